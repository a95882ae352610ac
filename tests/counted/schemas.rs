//! The most expensive schemas and inputs that are known within the limits: a schema that `check` accepts, compiled, and an input of 128
//! KiB that is validated against it.

use serde_json::{Map, Value, json};
use steward_core::{definition::schema::PayloadSchema, limits};

use crate::case::Case;

/// The limit for instructions: 250 ms of a processor that runs 2.8 a nanosecond, in a build that is not optimised. Another division of
/// the crate into units of the compiler changes a count by a fifth.
pub(crate) const INSTRUCTIONS_MAX: u64 = 700_000_000;

/// The limit of the peak memory.
pub(crate) const BYTES_MAX: u64 = 64 * 1024 * 1024;

/// The two cases with the most instructions.
pub(crate) fn worst_cases() -> Vec<Case> {
    let is_one =
        |case: &Case| ["schema/multiples_of_floats", "schema/name_patterns"].contains(&&*case.name);
    cases().into_iter().filter(is_one).collect()
}

/// All cases.
pub(crate) fn cases() -> Vec<Case> {
    let case = |(name, schema, input): NamedInput| {
        Case::new(
            format!("schema/{name}"),
            move || (PayloadSchema::new(schema.clone()), input.clone()),
            |(schema, input)| schema.validate("input", &input),
        )
    };
    inputs().into_iter().map(case).collect()
}

/// Asserts that the schemas and inputs are within the limits.
pub(crate) fn assert_accepted() {
    for (name, schema, input) in inputs() {
        assert!(schema.to_string().len() <= limits::DEFINITION_BYTES_MAX, "{name}");
        assert!(input.to_string().len() <= limits::DOCUMENT_BYTES_MAX, "{name}");
        assert_eq!(PayloadSchema::new(schema).problem(), None, "{name}");
    }
}

/// The name of a case, its schema and its input.
type NamedInput = (&'static str, Value, Value);

fn inputs() -> Vec<NamedInput> {
    vec![
        ("alternatives", alternatives(), nested(28, numbers(60_000))),
        ("copies", copies(), Value::from_iter(vec!["no name of the list at all"; 4_000])),
        ("doubled_references", doubled_references(), numbers(60_000)),
        ("enumerations", enumerations(), Value::from_iter(vec!["x".repeat(60); 2_000])),
        ("long_names", long_names(), json!({ "\u{301}é\n".repeat(20_000): 1 })),
        (
            "multiples",
            multiples(1.234_567_890_123_456_7e-300),
            Value::from_iter(vec![1.234_567_890_123_456_7e308; 5_000]),
        ),
        (
            "multiples_of_floats",
            multiples(1.234_567_890_123_456_7e-20),
            Value::from_iter(vec![1.234_567_890_123_456_7e10; 5_000]),
        ),
        (
            "multiples_of_integers",
            multiples(12_345.678_901_234_567),
            Value::from_iter(vec![10_u64.pow(18); 5_000]),
        ),
        ("name_patterns", name_patterns(), json!({ "abc".repeat(40_000): 1 })),
        ("patterns", patterns(), Value::from_iter(vec!["abc".repeat(10_000); 4])),
        ("properties", properties(), Value::from_iter(vec![json!({}); 40_000])),
        ("unique_names", json!({ "uniqueItems": true }), Value::from_iter(same_names())),
    ]
}

fn numbers(number: usize) -> Value {
    Value::from_iter(vec![1; number])
}

fn nested(levels: usize, value: Value) -> Value {
    (0..levels).fold(value, |value, _| json!({ "a": value }))
}

/// Alternatives that all contain the same schema again.
fn alternatives() -> Value {
    let again = json!({ "$ref": "#" });
    json!({ "oneOf": [
        { "type": "object", "additionalProperties": again },
        { "type": "object", "patternProperties": { "": again } },
        { "type": "array", "items": again },
    ] })
}

/// Each schema refers to the next one twice, and none reads the value.
fn doubled_references() -> Value {
    let twice = |n: usize| {
        let next = json!({ "$ref": format!("#/$defs/{}", n + 1) });
        (n.to_string(), json!({ "allOf": [next, next] }))
    };
    let mut schemas: Map<_, _> = (0..14).map(twice).collect();
    schemas.insert("14".to_owned(), json!(true));
    json!({ "$defs": schemas, "items": { "$ref": "#/$defs/0" } })
}

/// Patterns that read each text to its end.
fn patterns() -> Value {
    let pattern = |n| json!({ "pattern": format!("(a|b|c)*{n}[xy]{{3}}$") });
    json!({ "items": { "anyOf": (0..100).map(pattern).collect::<Vec<_>>() } })
}

/// Patterns that read each name to its end, many times.
fn name_patterns() -> Value {
    let pattern = |n| (format!("(a|b|c)*{n}[xy]{{3}}$"), json!(true));
    let patterns: Map<_, _> = (0..100).map(pattern).collect();
    let again = vec![json!({ "$ref": "#/$defs/names" }); 240];
    let names =
        json!({ "patternProperties": patterns, "additionalProperties": { "type": "integer" } });
    json!({ "$defs": { "names": names }, "allOf": again })
}

/// Large keywords that an error could copy, of values that all violate them.
fn copies() -> Value {
    let names = Value::from_iter((0..5_000).map(|n| format!("a name of the list, {n}")));
    let never = json!({ "not": { "not": { "enum": names } } });
    json!({ "$defs": { "never": never }, "items": { "allOf": vec![json!({ "$ref": "#/$defs/never" }); 1_000] } })
}

/// Texts that differ from each value in their last byte.
fn enumerations() -> Value {
    let text = |n: usize| format!("{}{n:04}", "x".repeat(56));
    json!({ "items": { "enum": (0..3_000).map(text).collect::<Vec<_>>() } })
}

/// Many patterns that read a name.
fn long_names() -> Value {
    let pattern = json!({ "pattern": "[xy]{3}$" });
    json!({ "propertyNames": { "anyOf": vec![pattern; 3_000] } })
}

/// Divisions by a long fraction.
fn multiples(divisor: f64) -> Value {
    let multiple = json!({ "anyOf": [{ "multipleOf": divisor }, true] });
    json!({ "items": { "allOf": vec![multiple; 300] } })
}

/// Objects that differ in their last member alone, with names that need escapes.
fn same_names() -> impl Iterator<Item = Value> {
    let name = "\u{301}\n".repeat(100);
    (0..300).map(move |n| json!({ &name: n }))
}

/// The largest number of subschemas that is accepted.
fn properties() -> Value {
    let again = |n: usize| (n.to_string(), json!({ "$ref": "#" }));
    let properties: Map<_, _> = (0..limits::SUBSCHEMAS_MAX - 2).map(again).collect();
    json!({ "items": { "properties": properties } })
}
