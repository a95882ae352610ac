//! Tests of the schemas of payloads: their messages, and the limits of their cost.

use std::{sync::mpsc, thread, time::Duration};

use serde_json::{Map, json};

use super::*;

#[test]
fn errors_of_an_input_do_not_contain_its_values() {
    let schema = PayloadSchema::new(json!({
        "type": "object",
        "required": ["amount"],
        "properties": { "amount": { "type": "integer" }, "to": { "maxLength": 3 } },
        "additionalProperties": false,
    }));
    assert_eq!(schema.problem(), None);
    assert_eq!(schema.validate("input", &json!({ "amount": 1 })), Ok(()));
    let wrong =
        schema.validate("input", &json!({ "amount": "secret", "to": "secret", "x": "secret" }));
    assert_eq!(
        wrong.unwrap_err(),
        "input.amount: it is not of type \"integer\"; input.to: it is longer than 3 characters; \
         input: Additional properties are not allowed ('x' was unexpected)"
    );
    assert_eq!(
        schema.validate("input", &json!({})).unwrap_err(),
        "input: \"amount\" is a required property"
    );
}

#[test]
fn an_invalid_schema_is_reported() {
    for (schema, problem) in [
        (json!({ "type": "objekt" }), "/type: \"objekt\" is not valid under any"),
        (json!({ "$ref": "https://example.com/x.json" }), "it refers to an external schema"),
        (json!({ "pattern": "(" }), "/pattern"),
    ] {
        let reported_problem = PayloadSchema::new(schema).problem().unwrap();
        assert!(reported_problem.starts_with(problem), "{reported_problem}");
    }
}

#[test]
fn a_pattern_takes_linear_time() {
    let schema = PayloadSchema::new(json!({ "pattern": "^(a+)+$" }));
    assert!(schema.validate("input", &json!(format!("{}b", "a".repeat(50_000)))).is_err());
}

/// What the validation returns, if it ends: one that does not would hold up the test forever.
fn validate(schema: Value, input: Value) -> Result<(), String> {
    let (send, receive) = mpsc::channel();
    thread::spawn(move || send.send(PayloadSchema::new(schema).validate("input", &input)));
    receive.recv_timeout(Duration::from_secs(20)).expect("the validation ends")
}

/// A value in `levels` objects.
fn nested(levels: usize, value: Value) -> Value {
    (0..levels).fold(value, |value, _| json!({ "a": value }))
}

/// An object with two alternatives that both contain the same schema again.
fn nested_alternatives(keyword: &str) -> Value {
    let object =
        json!({ "type": "object", "required": ["a"], "properties": { "a": { "$ref": "#" } } });
    json!({ keyword: [object, object] })
}

#[test]
fn nested_alternatives_take_no_exponential_time() {
    for keyword in ["oneOf", "anyOf"] {
        let refusal = validate(nested_alternatives(keyword), nested(28, json!(1))).unwrap_err();
        assert_eq!(refusal, "input: it does not match the schema");
    }
    let flat = validate(nested_alternatives("anyOf"), json!(1)).unwrap_err();
    assert_eq!(
        flat,
        "input: it is not valid under any of the schemas listed in the 'anyOf' keyword"
    );
}

#[test]
fn the_deepest_schema_and_input_fit_on_the_stack() {
    let again = json!({ "type": "object", "additionalProperties": { "$ref": "#" } });
    let schema = (0..limits::SCHEMA_DEPTH_MAX - 2).fold(again, |schema, n| match n % 3 {
        0 => json!({ "allOf": [schema] }),
        1 => json!({ "anyOf": [schema, schema] }),
        _ => json!({ "oneOf": [schema, false] }),
    });
    // The JSON parser reads no deeper value.
    assert!(validate(schema, nested(127, json!(1))).is_err());
}

#[test]
fn an_input_that_takes_too_many_steps_is_refused() {
    let alternatives = Value::from_iter(vec![json!(true); 3_900]);
    let schema = json!({ "items": { "allOf": alternatives } });
    assert_eq!(PayloadSchema::new(schema.clone()).problem(), None);
    assert_eq!(validate(schema.clone(), json!([1, 2, 3])), Ok(()));
    let refusal = validate(schema, Value::from_iter(vec![1; 60_000])).unwrap_err();
    assert_eq!(refusal, "input: it takes more than 1000000 steps to validate against the schema");
}

#[test]
fn only_the_first_of_very_many_errors_is_described() {
    let schema = json!({ "items": { "type": "string" } });
    let few = validate(schema.clone(), json!([1, 2, 3, 4, 5, 6, 7])).unwrap_err();
    assert!(few.ends_with("; and 2 more"), "{few}");
    let many = validate(schema, Value::from_iter(vec![1; 60_000])).unwrap_err();
    assert_eq!(many, "input.0: it is not of type \"string\"");
}

#[test]
fn schemas_that_may_cost_too_much_are_refused() {
    let nested_schema = |levels| (0..levels).fold(json!({}), |schema, _| json!({ "not": schema }));
    let doubled = |times: usize| {
        let twice = |n: usize| {
            let next = json!({ "$ref": format!("#/$defs/{}", n + 1) });
            (n.to_string(), json!({ "allOf": [next, next] }))
        };
        let mut schemas: Map<_, _> = (0..times).map(twice).collect();
        schemas.insert(times.to_string(), json!(true));
        json!({ "$defs": schemas, "items": { "$ref": "#/$defs/0" } })
    };
    let properties = |number: usize| json!({ "properties": (0..number).map(|n| (n.to_string(), json!({}))).collect::<Map<_, _>>() });
    let long_name = "x".repeat(100_000);
    let below_a_long_name =
        json!({ "properties": { long_name: { "allOf": vec![json!({ "type": "null" }); 50] } } });
    for (schema, problem) in [
        (nested_schema(31), None),
        (nested_schema(32), Some("more than 32 subschemas nest on one value")),
        (doubled(9), None),
        (doubled(11), Some("more than 4000 subschemas are checked against one value")),
        (doubled(30), Some("more than 32 subschemas nest on one value")),
        (properties(3_900), None),
        (properties(4_001), Some("it has more than 4000 subschemas")),
        (below_a_long_name, Some("it has too many keywords below long names")),
        (
            json!({ "anyOf": [{ "type": "null" }, { "$ref": "#" }] }),
            Some("a schema refers to itself without a property or an item between"),
        ),
        (json!({ "$dynamicRef": "#a" }), Some("`$dynamicRef` is not supported: use `$ref`")),
        (json!({ "$ref": "#a" }), Some("the reference `#a` is not a path: write `#/$defs/NAME`")),
        (
            json!({ "not": { "$id": "https://a.example/" } }),
            Some("a subschema has an `$id`: only the whole schema may"),
        ),
        (
            json!({ "$ref": "#/$defs/a/not", "$defs": { "a": { "$id": "https://a.example/", "not": {} } } }),
            Some("the reference `#/$defs/a/not` leads into a schema with an `$id`"),
        ),
        (json!({ "multipleOf": 0.123_456_789 }), None),
        (json!({ "multipleOf": 1e300 }), None),
        (json!({ "multipleOf": 1.5e-300 }), Some("a `multipleOf` has more than 9 decimals")),
        (json!({ "$ref": "#/$defs/a%3Cb%3E~1c", "$defs": { "a<b>/c": {} } }), None),
    ] {
        let start: String = schema.to_string().chars().take(100).collect();
        assert_eq!(PayloadSchema::new(schema).problem().as_deref(), problem, "{start}");
    }
}

#[test]
fn a_long_list_of_prices_is_checked_against_a_fraction() {
    let schema = json!({ "items": { "multipleOf": 0.01 } });
    let prices = |last: f64| {
        let prices = (0..25_000).map(|n| json!(f64::from(n) / 4.0));
        Value::from_iter(prices.chain([json!(last)]))
    };
    assert_eq!(validate(schema.clone(), prices(1e300)), Ok(()));
    assert!(validate(schema, prices(0.001)).is_err());
}

#[test]
fn formats_and_content_are_annotations_in_every_draft() {
    for draft in
        ["http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema"]
    {
        for (keyword, value) in [
            ("format", "email"),
            ("contentMediaType", "application/json"),
            ("contentEncoding", "base64"),
        ] {
            let schema = json!({ "$schema": draft, keyword: value });
            assert_eq!(validate(schema, json!("{ ")), Ok(()), "{keyword} of {draft}");
        }
    }
}

#[test]
fn patterns_that_may_take_long_are_refused() {
    let refused = [
        "(x{0,200}){0,200}y",
        "[ab]*a[ab]{20}c",
        "[ab]*a[ab]{20}$",
        "\\bword\\b",
        "^\\p{L}{1,200}$",
    ];
    for pattern in refused {
        for schema in
            [json!({ "pattern": pattern }), json!({ "patternProperties": { pattern: true } })]
        {
            let problem = PayloadSchema::new(schema).problem().unwrap();
            let start =
                format!("the pattern `{pattern}` is too complex: limit lengths by `maxLength`");
            assert!(problem.starts_with(&start), "{problem}");
        }
    }
    let together = (0..300).map(|n| json!({ "pattern": format!("^[a-z]+-{n}") }));
    assert!(PayloadSchema::new(json!({ "anyOf": Value::from_iter(together) })).problem().is_some());
    for pattern in [
        "^[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\\.[A-Za-z]{2,}$",
        "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$",
        "^\\d{4}-\\d{2}-\\d{2}T\\d{2}:\\d{2}:\\d{2}(\\.\\d+)?(Z|[+-]\\d{2}:\\d{2})$",
        "^[\\p{L} '-]+$",
        "^[A-Z0-9]{1,64}$",
        "^.{1,100}$",
        "^\\S+( \\S+)*$",
    ] {
        assert_eq!(PayloadSchema::new(json!({ "pattern": pattern })).problem(), None, "{pattern}");
    }
}

#[test]
fn unique_items_are_compared_by_value() {
    let unique = |items: Value| {
        PayloadSchema::new(json!({ "uniqueItems": true })).validate("input", &items).is_ok()
    };
    for equal in [
        json!([1, 1.0]),
        json!([0, -0.0]),
        json!([{ "a": 1, "b": [2] }, { "b": [2.0], "a": 1 }]),
        json!(["a", "a"]),
        json!([1e20, 100_000_000_000_000_000_000.0]),
    ] {
        assert!(!unique(equal.clone()), "{equal}");
    }
    for different in [
        json!([1, "1"]),
        json!([[], [[]], [[[]]], {}, null, false, ""]),
        json!([9_007_199_254_740_993_u64, 9_007_199_254_740_992.0]),
        json!([["a", "b"], ["a,b"], ["a\",\"b"]]),
        json!([{ "1:a": 1 }, { "a": 1 }, { "a1:b": 1 }, { "a": 1, "b": 1 }]),
    ] {
        assert!(unique(different.clone()), "{different}");
    }
}

/// The budget changes no result: the library's own representation of JSON has none.
#[test]
fn every_keyword_means_what_it_means_to_the_library() {
    let schemas = [
        json!({ "type": ["integer", "null"] }),
        json!({ "type": "number", "multipleOf": 0.5 }),
        json!({ "enum": [1, "a", [1], { "a": 1 }, null] }),
        json!({ "const": { "a": [1.0] } }),
        json!({ "const": "a" }),
        json!({ "minimum": 1, "exclusiveMaximum": 3 }),
        json!({ "minLength": 1, "maxLength": 2, "pattern": "^[a-z]" }),
        json!({ "minItems": 1, "maxItems": 2, "uniqueItems": true }),
        json!({ "prefixItems": [{ "type": "integer" }], "items": false }),
        json!({ "contains": { "type": "string" }, "maxContains": 1 }),
        json!({ "required": ["a"], "maxProperties": 1 }),
        json!({ "properties": { "a": { "type": "integer" } }, "additionalProperties": false }),
        json!({ "patternProperties": { "^a": true }, "additionalProperties": { "type": "null" } }),
        json!({ "propertyNames": { "enum": ["a"] } }),
        json!({ "dependentRequired": { "a": ["b"] } }),
        json!({ "if": { "type": "object" }, "then": { "minProperties": 1 }, "else": { "not": { "type": "string" } } }),
        json!({ "oneOf": [{ "type": "integer" }, { "minimum": 2 }] }),
        json!({ "anyOf": [{ "type": "array" }, { "required": ["a"] }] }),
        json!({ "properties": { "a": true }, "unevaluatedProperties": false }),
        json!({ "prefixItems": [true], "unevaluatedItems": false }),
        json!({ "items": { "$ref": "#" }, "additionalProperties": { "$ref": "#" }, "not": { "const": 3 } }),
        json!(false),
        json!({}),
        json!({ "$schema": "http://json-schema.org/draft-07/schema#", "items": [{ "type": "integer" }], "additionalItems": false }),
    ];
    let values = [
        json!(null),
        json!(true),
        json!(1),
        json!(1.0),
        json!(2.5),
        json!(3),
        json!(""),
        json!("a"),
        json!("abc"),
        json!("2020-01-01"),
        json!([]),
        json!([1]),
        json!([1, 1]),
        json!(["a", 1]),
        json!(["a", "b", 3]),
        json!({}),
        json!({ "a": 1 }),
        json!({ "a": [1] }),
        json!({ "a": "x", "b": null }),
        json!({ "b": { "a": 3 } }),
    ];
    for schema in schemas {
        let (own, library) =
            (PayloadSchema::new(schema.clone()), jsonschema::validator_for(&schema).unwrap());
        assert_eq!(own.problem(), None, "{schema}");
        for value in &values {
            let result = own.validate("input", value);
            assert_eq!(
                result.is_ok(),
                library.is_valid(value),
                "{value} against {schema}: {result:?}"
            );
        }
    }
}
