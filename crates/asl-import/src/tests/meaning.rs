//! The meaning of translated expressions: CEL and JSONata give the same value for the same data.

use super::*;
use crate::{jsonata, scope::Scope, symbol::Symbol};
use jsonata_core::{evaluator::Evaluator, parser, value::JValue};
use proptest::prelude::*;
use steward_core::expression::{scope::Scope as CelScope, template::Template};

fn scope() -> Scope {
    Scope {
        data: Symbol::path("input"),
        variables: indexmap::IndexMap::new(),
        context: Symbol::object([]),
        result: None,
        unique_values: std::rc::Rc::default(),
    }
}

/// The value of the translation, with `input` as the data; `None` if it is not translated or cannot be evaluated.
fn by_steward(code: &str, input: &Value) -> Option<Value> {
    let symbol = jsonata::expression(&scope(), &code.replace("$d", "$states.input"));
    let template = Template::parse(symbol.template(&mut |_| "untranslated".to_owned()));
    let scope = CelScope { input: Some(input), ..CelScope::default() };
    template.render(scope).ok()
}

fn by_jsonata(code: &str, input: &Value) -> Option<Value> {
    let ast = parser::parse(&code.replace("$d", "$")).ok()?;
    let data = JValue::from_json_str(&input.to_string()).ok()?;
    let result = Evaluator::new().evaluate(&ast, &data).ok()?;
    serde_json::from_str(&result.to_json_string().ok()?).ok()
}

/// Numbers by value: `3.0` and `3` are one number in JSON.
fn normal(value: Value) -> Value {
    match value {
        Value::Number(number) => json!(number.as_f64()),
        Value::Array(items) => items.into_iter().map(normal).collect(),
        Value::Object(fields) => {
            Value::Object(fields.into_iter().map(|(key, value)| (key, normal(value))).collect())
        }
        other @ (Value::Null | Value::Bool(_) | Value::String(_)) => other,
    }
}

fn number() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        (0_i64..20).prop_map(|n| n.to_string()),
        Just("$d.n".to_owned()),
        Just("$d.list[1]".to_owned()),
        Just("$d.list[-1]".to_owned()),
        Just("$count($d.list)".to_owned()),
        Just("$length($d.text)".to_owned()),
    ];
    leaf.prop_recursive(3, 12, 2, |inner| {
        prop_oneof![
            (inner.clone(), prop::sample::select(vec!["+", "-", "*"]), inner.clone())
                .prop_map(|(a, op, b)| format!("({a} {op} {b})")),
            (inner.clone(), inner).prop_map(|(a, b)| format!("{a} + {b} * 2 - 1")),
        ]
    })
}

fn truth() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        (number(), prop::sample::select(vec!["=", "!=", "<", "<=", ">", ">="]), number())
            .prop_map(|(a, op, b)| format!("{a} {op} {b}")),
        Just("$d.flag".to_owned()),
        Just("$exists($d.absent)".to_owned()),
        Just("$exists($d.deep.er)".to_owned()),
        Just("$exists($d.absent.er)".to_owned()),
        Just("$d.n in $d.list".to_owned()),
        Just("$contains($d.text, 'b')".to_owned()),
    ];
    leaf.prop_recursive(3, 12, 2, |inner| {
        prop_oneof![
            (inner.clone(), prop::sample::select(vec!["and", "or"]), inner.clone())
                .prop_map(|(a, op, b)| format!("({a}) {op} ({b})")),
            inner.prop_map(|a| format!("$not({a})")),
        ]
    })
}

fn text() -> impl Strategy<Value = String> {
    (truth(), number()).prop_map(|(truth, number)| {
        format!("'it\\'s ' & $d.text & ' ' & ({number}) & ({truth} ? ' a' : ' b')")
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn translated_jsonata_has_the_value_of_jsonata(
        code in prop_oneof![number(), truth(), text()], n in 0_i64..9, flag: bool,
    ) {
        let input = json!({
            "n": n, "flag": flag, "list": [1, n, 3], "text": "abc", "deep": { "er": null },
        });
        let expected = by_jsonata(&code, &input);
        prop_assume!(expected.is_some());
        prop_assert_eq!(by_steward(&code, &input).map(normal), expected.map(normal), "{}", code);
    }

    #[test]
    fn no_text_panics_or_imports_silently(text in "\\PC{0,60}") {
        let mut all = machine(json!({
            "A": task("a", json!({ "Arguments": { "x": format!("{{% {text} %}}") }, "End": true })),
        }));
        all["QueryLanguage"] = "JSONata".into();
        let import = imported(&all);
        let parsed = steward_definition_file::parse(Path::new("m.yaml"), &import.definitions[0].yaml);
        prop_assert_eq!(parsed.is_ok(), import.report.status() == Status::Complete);
    }
}

#[test]
fn functions_have_the_value_of_jsonata() {
    let input = json!({
        "text": "b,a,b", "n": 2.5, "list": ["b", "a", "b"], "numbers": [3, 1.5], "x": { "a": 1, "b": 2 },
    });
    let mut different = Vec::new();
    for code in [
        "$split($d.text, ',')",
        "$join($d.list, '-')",
        "$join($d.list)",
        "$sort($d.list)",
        "$sort($d.numbers)",
        "$reverse($d.numbers)",
        "$substring($d.text, 2)",
        "$merge([$d.x, {'b': 3, 'c': 4}])",
        "$floor($d.n) + $ceil($d.n)",
        "$base64decode($base64encode($d.text))",
        "$string({'a': $d.n})",
    ] {
        let values = (by_steward(code, &input).map(normal), by_jsonata(code, &input).map(normal));
        if values.0.is_none() || values.0 != values.1 {
            different.push((code, values));
        }
    }
    assert!(different.is_empty(), "{different:#?}");
    // Functions of Step Functions.
    for (code, value) in [
        ("$parse('{\"a\": 1}')", json!({ "a": 1 })),
        (
            "$hash('', 'SHA-256')",
            json!("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
        ),
    ] {
        assert_eq!(by_steward(code, &input), Some(value), "{code}");
    }
}

#[test]
fn type_checks_of_a_choice_have_their_meaning() {
    let input = json!({ "t": "a", "n": 1, "d": 1.5, "b": false, "null": null });
    for (check, true_for) in [
        ("IsString", vec!["t"]),
        ("IsNumeric", vec!["n", "d"]),
        ("IsBoolean", vec!["b"]),
        ("IsNull", vec!["null"]),
    ] {
        for key in ["t", "n", "d", "b", "null"] {
            let rule = json!({ "Variable": format!("$.{key}"), check: true });
            let rule = crate::choice::rule(&scope(), rule.as_object().unwrap()).unwrap();
            let template = Template::parse(json!(format!("${{ {} }}", rule.text)));
            let scope = CelScope { input: Some(&input), ..CelScope::default() };
            let expected = json!(true_for.contains(&key));
            assert_eq!(template.render(scope).unwrap(), expected, "{check} {key}");
        }
    }
    complete(&machine(json!({
        "Which": { "Type": "Choice", "Default": "B", "Choices": [
            { "Variable": "$.n", "IsNumeric": true, "Next": "A" },
        ] },
        "A": task("a", json!({ "End": true })),
        "B": task("b", json!({ "Parameters": {}, "End": true })),
    })));
}

#[test]
fn a_division_has_decimals() {
    assert_eq!(by_steward("5 / $d.n", &json!({ "n": 2 })), Some(json!(2.5)));
}

/// What the documentation says about values of other types, and about values that are absent.
#[test]
fn mixed_types_and_absent_values_compare_or_fail_but_have_no_other_value() {
    let at = |code: &str| by_steward(code, &json!({ "whole": 120, "part": 120.5, "text": "x" }));
    assert_eq!(at("$d.part > 100"), Some(json!(true)), "numbers of both kinds can be compared");
    assert_eq!(at("$d.whole = 120.0"), Some(json!(true)));
    assert_eq!(at("$d.whole + 1"), Some(json!(121)));
    assert_eq!(at("$d.part + 1"), Some(json!(121.5)));
    assert_eq!(at("$d.text = 1"), Some(json!(false)));
    assert_eq!(at("$d.text > 1"), None);
    assert_eq!(at("$d.absent = 1"), None);
    assert_eq!(at("$exists($d.absent) and $d.absent.x = 1"), Some(json!(false)));
}
