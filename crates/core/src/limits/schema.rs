//! Limits of the JSON Schema of an input, and of its validation.

/// Subschemas of a JSON Schema.
pub const SUBSCHEMAS_MAX: usize = 8_000;

/// How deep subschemas nest that are checked against one value. Each level takes stack for each level of the input.
pub const SCHEMA_DEPTH_MAX: usize = 32;

/// Bytes of the texts of all patterns of a JSON Schema.
pub const SCHEMA_PATTERNS_TEXT_BYTES_MAX: usize = 16 * 1024;

/// Bytes of the finite automata of all patterns of a JSON Schema. Within this limit the matcher never has to simulate a
/// pattern, which takes time proportional to its size for each character.
pub const SCHEMA_PATTERNS_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Steps to validate an input: a rule of a subschema for a value, or 16 bytes of text.
pub const SCHEMA_STEPS_MAX: usize = 4_000_000;

/// Stack for the validation of one input: twice the measured need of the deepest input and schema in a debug build. It is
/// allocated only if the current thread has less stack left.
pub const SCHEMA_STACK_BYTES: usize = 16 * 1024 * 1024;
