//! Limits of expressions, and of the templates that contain them.

/// Characters in one `${ }` expression.
pub const EXPRESSION_CHARS_MAX: usize = 1_000;

/// How deep brackets may nest in one expression. Handwritten expressions have four or five levels. Each level takes
/// stack space, so without a limit a deeply nested expression would overflow the stack and end the process.
pub const EXPRESSION_DEPTH_MAX: usize = 16;

/// Parts, such as operators and names, that named values put into one expression. A part in another one takes stack space.
pub const EXPRESSION_PARTS_MAX: usize = 1_000;

/// Parts that named values put into all expressions of a definition. Each takes some hundred bytes of memory.
pub const DEFINITION_PARTS_MAX: usize = 100_000;

/// Stack for parsing and evaluating one expression: twice the measured need of the longest and deepest expression in a
/// debug build. It is allocated only if the current thread has less stack left. Only the touched pages use memory.
pub const EXPRESSION_STACK_BYTES: usize = 64 * 1024 * 1024;

/// Bytes of a compiled pattern of `matches`: room for about thirty character classes. The interpreter compiles the
/// pattern again for each text.
pub const PATTERN_BYTES_MAX: usize = 64 * 1024;

/// Evaluation steps of all expressions of one template, as estimated before each evaluation. This many steps take
/// about half a second in a debug build.
pub const RENDER_STEPS_MAX: u64 = 2_000_000;

/// Bytes in the results of all expressions of one template. A rendered template becomes one message or one document,
/// and these have smaller limits. This limit bounds memory until they are checked.
pub const RENDERED_BYTES_MAX: usize = 1024 * 1024;

/// The most characters of a decimal: of an operand, and of a result.
pub const DECIMAL_CHARS_MAX: usize = 100;

/// The most decimal places to which a decimal is rounded.
pub const DECIMAL_PLACES_MAX: i64 = 20;

/// The most numbers that `lists.range` makes.
pub const RANGE_ITEMS_MAX: u64 = 10_000;

/// The most characters to which `padStart` and `padEnd` fill up a text.
pub const PADDED_CHARS_MAX: usize = 1_000;

/// The most bytes of a text that `json.decode` reads. Values take many times the memory of their text.
pub const JSON_TEXT_BYTES_MAX: usize = 128 * 1024;
