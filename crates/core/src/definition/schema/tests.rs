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
        (json!({ "type": "objekt" }), "/type: \"objekt\" is not one of the types array, boolean,"),
        (
            json!({ "$ref": "https://example.com/x.json" }),
            "the reference `https://example.com/x.json` is not one within the schema: write `#` or",
        ),
        (
            json!({ "$id": "https://a.example/", "$ref": "https://a.example/" }),
            "the reference `https://a.example/` is not one within",
        ),
        (
            json!({ "$schema": "http://json-schema.org/draft-07/schema#" }),
            "/$schema: write `https://json-schema.org/draft/2020-12/schema`, or leave",
        ),
        (json!({ "then": false }), "/then: it has no effect without `if`"),
        (json!({ "else": false }), "/else: it has no effect without `if`"),
        (json!({ "minContains": 1 }), "/minContains: it has no effect without `contains`"),
        (json!({ "maxContains": 1 }), "/maxContains: it has no effect without `contains`"),
        (
            json!({ "$defs": { "a": { "type": "objekt" } } }),
            "/$defs/a/type: \"objekt\" is not one of the types",
        ),
        (json!({ "required": ["a", "b", "a"] }), "/required: \"a\" is twice in the list"),
        (
            json!({ "dependentRequired": { "a": ["b", "b"] } }),
            "/dependentRequired: \"b\" is twice in the list",
        ),
        (json!({ "pattern": "(" }), "the pattern `(` is no regular expression"),
        (
            json!({ "properties": { "a": { "minLength": -1 } } }),
            "/properties/a/minLength: it is not a whole",
        ),
        (json!({ "items": [true] }), "/items: a list is not supported: use `prefixItems`"),
        (json!({ "anyOf": [{ "required": "a" }] }), "/anyOf/…/required: it is not a list of texts"),
        (
            json!({ "unevaluatedProperties": false }),
            "`unevaluatedProperties` is not supported: list",
        ),
        (json!({ "exclusiveMinimum": true }), "/exclusiveMinimum: it is not a number"),
        (json!({ "multipleOf": 0 }), "/multipleOf: it is not a number over 0"),
        (json!({ "type": [] }), "/type: a list of types must name at least one"),
        (json!({ "type": vec!["string"; 18_000] }), "/type: the types of a list must differ"),
        (json!({ "$ref": "#/$defs/none" }), "the reference `#/$defs/none` leads nowhere"),
        (
            json!({ "$ref": "#/anyOf/00", "anyOf": [true] }),
            "the reference `#/anyOf/00` leads nowhere",
        ),
        (json!({ "$ref": "#/x", "x": 1 }), "/$ref: a schema is an object"),
        (json!([]), "a schema is an object, `true` or `false`"),
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
        assert_eq!(
            refusal,
            format!(
                "input: it is not valid under any of the schemas listed in the '{keyword}' keyword"
            )
        );
    }
}

/// Each level of the value is checked twice, and once more on the next level.
#[test]
fn a_deep_value_of_a_doubled_reference_is_valid() {
    let again = json!({ "$ref": "#" });
    let schema = json!({ "additionalProperties": { "allOf": [again, again] } });
    assert_eq!(validate(schema, nested(100, json!({}))), Ok(()));
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
    let alternatives = Value::from_iter(vec![json!(true); 4_000]);
    let schema = json!({ "items": { "allOf": alternatives } });
    assert_eq!(PayloadSchema::new(schema.clone()).problem(), None);
    assert_eq!(validate(schema.clone(), json!([1, 2, 3])), Ok(()));
    let refusal = validate(schema, Value::from_iter(vec![1; 60_000])).unwrap_err();
    assert_eq!(refusal, "input: it takes more than 4000000 steps to validate against the schema");
}

#[test]
fn only_the_first_of_very_many_errors_are_described() {
    let schema = json!({ "items": { "type": "string" } });
    let few = validate(schema.clone(), json!([1, 2, 3, 4, 5, 6, 7])).unwrap_err();
    assert!(few.ends_with("; and 2 more"), "{few}");
    let many = validate(schema, Value::from_iter(vec![1; 60_000])).unwrap_err();
    assert!(many.starts_with("input.0: it is not of type \"string\"; input.1: "), "{many}");
    assert!(many.ends_with("; and 59995 more"), "{many}");
    let costly = json!({ "items": { "allOf": vec![json!({ "type": "string" }); 1_000] } });
    let some = validate(costly, Value::from_iter(vec![1; 60_000])).unwrap_err();
    assert!(some.ends_with("; and more"), "{some}");
}

/// A union in the form that serde gives to an enum, and 7,500 values.
#[test]
fn a_large_input_of_tagged_unions_is_accepted() {
    let variants = (0..60).map(|n| {
        let name = format!("k{n}");
        json!({ "type": "object", "required": [name], "properties": { name: { "type": "integer" } }, "additionalProperties": false })
    });
    let schema = json!({ "items": { "oneOf": variants.collect::<Vec<_>>() } });
    let items = (0..5_000).map(|n| json!({ format!("k{}", n % 60): n }));
    assert_eq!(validate(schema, Value::from_iter(items)), Ok(()));
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
    for (schema, problem) in [
        (nested_schema(31), None),
        (nested_schema(32), Some("more than 32 subschemas nest on one value")),
        (doubled(14), None),
        (doubled(30), Some("more than 32 subschemas nest on one value")),
        (properties(7_900), None),
        (properties(8_001), Some("it has more than 8000 subschemas")),
        (
            json!({ "anyOf": [{ "type": "null" }, { "$ref": "#" }] }),
            Some("a schema refers to itself without a property or an item between"),
        ),
        (json!({ "$dynamicRef": "#a" }), Some("`$dynamicRef` is not supported: use `$ref`")),
        (json!({ "$ref": "#a" }), Some("the reference `#a` is not a path: write `#/$defs/NAME`")),
        (
            json!({ "not": { "$id": "https://a.example/" } }),
            Some("/not/$id: only the whole schema may have an `$id`"),
        ),
        (
            json!({ "$ref": "#/$defs/a/not", "$defs": { "a": { "$id": "https://a.example/", "not": {} } } }),
            Some("the reference `#/$defs/a/not` leads into a schema with an `$id`"),
        ),
        (json!({ "multipleOf": 0.123_456_789 }), None),
        (json!({ "multipleOf": 1e300 }), None),
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
fn formats_and_content_are_annotations() {
    for (keyword, value) in [
        ("format", "email"),
        ("contentMediaType", "application/json"),
        ("contentEncoding", "base64"),
        ("id", "https://a.example/"),
    ] {
        let schema = json!({ "$schema": DIALECT, "not": { "not": { keyword: value } } });
        assert_eq!(validate(schema, json!("{ ")), Ok(()), "{keyword}");
    }
}

#[test]
fn a_property_may_have_the_name_of_a_keyword() {
    for name in ["$id", "$anchor", "$defs", "$ref", "$schema", "dependencies", "id", "then", "type"]
    {
        let schema = json!({
            "properties": { name: { "properties": { "a": { "type": "null" } } } },
            "patternProperties": { "^b$": { "$ref": format!("#/properties/{name}/properties/a") } },
            "required": [name],
        });
        assert_eq!(validate(schema.clone(), json!({ name: { "a": null }, "b": null })), Ok(()));
        for wrong in [json!({}), json!({ name: { "a": 1 } }), json!({ name: 1, "b": 1 })] {
            assert!(validate(schema.clone(), wrong.clone()).is_err(), "{name}: {wrong}");
        }
    }
}

#[test]
fn a_repeated_pattern_is_compiled_once() {
    let pattern = json!({ "pattern": "^([ab]{8000}|c)" });
    let mut patterns = patterns::Patterns::default();
    let [one, other] =
        [1, 2].map(|_| patterns.compile(pattern["pattern"].as_str().unwrap()).unwrap());
    assert!(std::sync::Arc::ptr_eq(&one, &other));
}

#[test]
fn a_dot_matches_no_end_of_a_line() {
    for end in ["\n", "\r", "\u{2028}", "\u{2029}"] {
        assert!(validate(json!({ "pattern": "^.$" }), json!(end)).is_err(), "{end:?}");
    }
    for (pattern, text) in [("^.$", "\u{2027}"), ("^[.]$", "."), ("^\\.$", "."), ("^[a\\].]$", ".")]
    {
        let pattern = json!({ "pattern": pattern });
        assert_eq!(validate(pattern.clone(), json!(text)), Ok(()));
        let is_any = text != ".";
        assert_eq!(validate(pattern, json!("x")).is_ok(), is_any);
    }
}

#[test]
fn patterns_are_those_of_ecmascript() {
    let linear = "would not be matched in linear time";
    for (pattern, advice) in [
        ("(?i)a", "write `[Aa]` instead of flags"),
        ("(?s-i:a)", "write `[Aa]` instead of flags"),
        ("a++", "write one `+`"),
        ("^\\d*+$", "write one `+`"),
        ("a\\z", "write `$` instead"),
        ("\\Aa", "write `^` instead"),
        ("\\x{61}", "write `\\u{61}` instead"),
        ("[\\x{61}]", "write `\\u{61}` instead"),
        ("\\pL", "write `\\p{L}` instead"),
        ("[^\\PL]", "write `\\p{L}` instead"),
        ("(?P<name>a)", "write `(?<name>a)` instead"),
        ("\\<a\\>", "write `<` and `>` without"),
        ("a\\0", "write `\\x00` instead"),
        ("\\uD83D\\uDE00", "write `\\u{1F600}` instead"),
        ("a[]b", "a class must list"),
        ("[^]", "a class must list"),
        ("(a)\\1", &format!("back-references {linear}")),
        ("(?<a>b)\\k<a>", &format!("back-references {linear}")),
        ("(?=a)", &format!("look-around {linear}")),
        ("(?!a)", &format!("look-around {linear}")),
        ("(?<=a)b", &format!("look-around {linear}")),
        ("(?<!a)b", &format!("look-around {linear}")),
    ] {
        let problem = PayloadSchema::new(json!({ "pattern": pattern })).problem().unwrap();
        let start = format!("the pattern `{pattern}` is not supported: {advice}");
        assert!(problem.starts_with(&start), "{problem}");
    }
    for pattern in ["a{2}+", "a{,2}", "a}", "(?x)a", "\\a", "[\\d-z]", "\\p{^L}", "[z-a]"] {
        let problem = PayloadSchema::new(json!({ "pattern": pattern })).problem().unwrap();
        assert_eq!(
            problem,
            format!("the pattern `{pattern}` is no regular expression of ECMAScript")
        );
    }
    for (pattern, text) in [
        ("^(?:a|b)+?$", "ab"),
        ("^(?<name>a)\\u{61}+\\p{Lu}+$", "aaAÄ"),
        ("^\\++[++(?=]$", "++="),
        ("^\\\\A$", "\\A"),
        ("^\\uD7A3\\x61\\cJ$", "\u{D7A3}a\n"),
        ("^[[a&&]$", "["),
    ] {
        assert_eq!(validate(json!({ "pattern": pattern }), json!(text)), Ok(()), "{pattern}");
    }
}

#[test]
fn numbers_are_divided_exactly() {
    for (value, divisor, is_multiple) in [
        (json!(0.3), json!(0.1), true),
        (json!(1.1), json!(0.01), true),
        (json!(0.35), json!(0.1), false),
        (json!(1e300), json!(0.000_000_007), false),
        (json!(7e300), json!(0.000_000_007), true),
        (json!(1.234_567_890_123_456_7e308), json!(1e-300), true),
        (json!(5e-324), json!(1e-320), false),
        (json!(0), json!(0.7), true),
        (json!(-4.5), json!(1.5), true),
        (json!(u64::MAX), json!(5), true),
        (json!(u64::MAX), json!(u64::MAX), true),
        (json!(u64::MAX - 1), json!(u64::MAX), false),
        (json!(9_007_199_254_740_993_u64), json!(2), false),
        (json!(9_223_372_036_854_775_808.0), json!(9_223_372_036_854_775_808_u64), true),
        (json!(18_446_744_073_709_551_616.0), json!(9_007_199_254_740_992.0), true),
    ] {
        let result = validate(json!({ "multipleOf": divisor }), value.clone());
        assert_eq!(result.is_ok(), is_multiple, "{value} by {divisor}");
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
    let together = (0..900).map(|n| json!({ "pattern": format!("^[a-z]+-{n}") }));
    let problem = PayloadSchema::new(json!({ "anyOf": Value::from_iter(together) })).problem();
    assert!(
        problem
            .unwrap()
            .starts_with("its patterns need more than 2097152 bytes together, from `^[a-z]+-")
    );
    let long = json!({ "pattern": format!("[{}]", "^\\p{L}".repeat(4_000)) });
    assert_eq!(
        PayloadSchema::new(long).problem().unwrap(),
        "its patterns have more than 16384 bytes"
    );
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
        json!({ "dependentSchemas": { "a": { "required": ["b"] } } }),
        json!({ "items": { "$ref": "#" }, "additionalProperties": { "$ref": "#" }, "not": { "const": 3 } }),
        json!(false),
        json!({}),
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

mod against_the_library {
    use proptest::prelude::*;

    use super::*;

    fn value() -> impl Strategy<Value = Value> {
        let number = prop_oneof![
            (-3_i64..4).prop_map(|n| json!(n)),
            (-6_i32..7).prop_map(|n| json!(f64::from(n) / 2.0)),
        ];
        let leaf = prop_oneof![
            Just(json!(null)),
            any::<bool>().prop_map(|b| json!(b)),
            number,
            "[ab]{0,2}".prop_map(|s| json!(s))
        ];
        leaf.prop_recursive(3, 12, 3, |inner| {
            let members = prop::collection::btree_map("[abc]", inner.clone(), 0..3);
            prop_oneof![
                prop::collection::vec(inner, 0..4).prop_map(Value::from),
                members.prop_map(Value::from_iter),
            ]
        })
    }

    fn schema() -> impl Strategy<Value = Value> {
        let types = ["array", "boolean", "integer", "null", "number", "object", "string"];
        let names = prop::collection::vec("[abc]", 0..3);
        let unique = names.prop_map(|mut names| {
            names.sort();
            names.dedup();
            json!(names)
        });
        let small = 0_u8..4;
        let leaf = prop_oneof![
            any::<bool>().prop_map(|b| json!(b)),
            prop::sample::subsequence(types.to_vec(), 1..3)
                .prop_map(|types| json!({ "type": types })),
            value().prop_map(|value| json!({ "const": value })),
            (value(), value()).prop_map(|(a, b)| json!({ "enum": [a, b] })),
            (small.clone(), small.clone())
                .prop_map(|(a, b)| json!({ "minimum": a, "exclusiveMaximum": b })),
            (small.clone(), small.clone())
                .prop_map(|(a, b)| json!({ "exclusiveMinimum": a, "maximum": b })),
            (1_u8..4).prop_map(|n| json!({ "multipleOf": f64::from(n) / 2.0 })),
            (small.clone(), small.clone())
                .prop_map(|(a, b)| json!({ "minLength": a, "maxLength": b })),
            (small.clone(), small.clone())
                .prop_map(|(a, b)| json!({ "minItems": a, "maxItems": b })),
            (small.clone(), small)
                .prop_map(|(a, b)| json!({ "minProperties": a, "maxProperties": b })),
            Just(json!({ "uniqueItems": true })),
            "\\^?[ab]\\$?".prop_map(|pattern| json!({ "pattern": pattern })),
            unique.clone().prop_map(|names| json!({ "required": names })),
            unique.prop_map(|names| json!({ "dependentRequired": { "a": names } })),
        ];
        leaf.prop_recursive(3, 20, 3, |inner| {
            let some = prop::collection::vec(inner.clone(), 1..4);
            let two = (inner.clone(), inner.clone());
            prop_oneof![
                some.clone().prop_map(|all| json!({ "allOf": all })),
                some.clone().prop_map(|any| json!({ "anyOf": any })),
                some.clone().prop_map(|one| json!({ "oneOf": one })),
                some.prop_map(|prefix| json!({ "prefixItems": prefix })),
                two.clone().prop_map(|(a, b)| json!({ "prefixItems": [a], "items": b })),
                inner.clone().prop_map(|not| json!({ "not": not })),
                inner.clone().prop_map(|names| json!({ "propertyNames": names })),
                (two.clone(), 0_u8..3).prop_map(|((a, b), n)| json!({ "contains": a, "minContains": n, "items": b })),
                two.clone().prop_map(|(a, b)| json!({ "properties": { "a": a }, "additionalProperties": b })),
                two.clone().prop_map(|(a, b)| json!({ "patternProperties": { "^[ab]": a }, "additionalProperties": b })),
                two.clone().prop_map(|(a, b)| json!({ "dependentSchemas": { "a": a }, "properties": { "b": b } })),
                (two, inner).prop_map(|((a, b), c)| json!({ "if": a, "then": b, "else": c })),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1_000))]

        #[test]
        fn random_values_are_valid_exactly_if_the_library_says_so(
            schema in schema(),
            values in prop::collection::vec(value(), 30),
        ) {
            let (own, library) =
                (PayloadSchema::new(schema.clone()), jsonschema::validator_for(&schema).unwrap());
            prop_assert_eq!(own.problem(), None, "{}", schema);
            for value in values {
                let result = own.validate("input", &value);
                prop_assert_eq!(result.is_ok(), library.is_valid(&value), "{} against {}: {:?}", value, schema, result);
            }
        }
    }
}
