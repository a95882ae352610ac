//! Tests of the limits of expressions: their nesting, the cost of their evaluation and the size of their results.

#![expect(
    clippy::disallowed_methods,
    reason = "the tests measure time; the tested code has no clock"
)]

use std::time::{Duration, Instant};

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{
    expression::{scope::Scope, template::Template},
    limits,
};

/// An input for the worst cases: about as large as a document may be, with long lists, many objects and a long text.
fn large_input() -> Value {
    let orders: Vec<_> = (0..1_500)
        .map(|n| json!({ "sku": format!("s{n}"), "price": n, "lines": [1, 2, 3], "of": n % 7 }))
        .collect();
    json!({
        "numbers": vec![0; 60_000],
        "orders": orders,
        "few": vec![1; 37],
        "text": "x".repeat(limits::DOCUMENT_BYTES_MAX - 100),
    })
}

fn render(expression: &str, input: &Value) -> Result<Value, String> {
    let template = Template::parse(json!(format!("${{ {expression} }}")));
    if let Some((_, error)) = template.problems().first() {
        return Err(error.to_string());
    }
    let scope = Scope { input: Some(input), ..Scope::default() };
    template.render(scope).map_err(|error| error.to_string())
}

fn repeat(open: &str, inner: &str, close: &str, times: usize) -> String {
    format!("{}{inner}{}", open.repeat(times), close.repeat(times))
}

/// The longest and deepest expressions of each kind within the limit on characters.
fn longest_expressions() -> Vec<String> {
    let deep = limits::EXPRESSION_DEPTH_MAX;
    let long_chain = |sign: &str| format!("1{}", format!("{sign}1").repeat(490 / sign.len()));
    vec![
        repeat("(", "1", ")", deep),
        repeat("[", "1", "]", deep),
        repeat("{1:", "1", "}", deep),
        repeat("size(", "'x'", ")", deep),
        repeat("[1].map(a,", "1", ")", deep),
        repeat("[1].filter(a,[1].all(b,", "true", "))", deep / 2),
        repeat("(1+", &long_chain("+").chars().take(800).collect::<String>(), "+1)", deep),
        repeat("(true?[1].map(x,", "1", "):[2])", deep / 2),
        long_chain("+"),
        long_chain("=="),
        long_chain(" in "),
        format!("true{}", "&&true".repeat(160)),
        format!("{}1", "-".repeat(980)),
        format!("{}true", "!".repeat(980)),
        format!("{}1", "true?1:".repeat(140)),
        format!("input{}", ".a".repeat(480)),
        format!("input{}", "[0]".repeat(320)),
        format!("input{}", ".size()".repeat(140)),
        format!("[1]{}", ".map(a,a)".repeat(105)),
        "(".repeat(990),
        "[".repeat(990),
        "{".repeat(990).replace('{', "{1:"),
        "'".repeat(990),
    ]
}

#[test]
fn longest_and_deepest_expressions_return_a_value_or_an_error() {
    let input = json!({ "a": 1 });
    // Less stack than any thread of the runtime has.
    let worker = std::thread::Builder::new().stack_size(512 * 1024);
    let work = worker.spawn(move || {
        for expression in longest_expressions() {
            let start = Instant::now();
            let _ = render(&expression, &input);
            assert!(start.elapsed() < Duration::from_secs(5), "{expression}");
        }
    });
    work.unwrap().join().unwrap();
}

#[test]
fn nesting_of_brackets_is_limited() {
    let input = json!(null);
    let deep = limits::EXPRESSION_DEPTH_MAX;
    assert_eq!(render(&repeat("(", "1", ")", deep), &input), Ok(json!(1)));
    assert_eq!(
        render(&repeat("(", "1", ")", deep + 1), &input),
        Err("an expression with brackets nested 17 deep; the limit is 16".to_owned())
    );
    let quoted = format!("'{}'", "(".repeat(50));
    assert_eq!(render(&quoted, &input), Ok(json!("(".repeat(50))));
}

/// Each expression has a flag that tells whether it is allowed. On a busy machine, a debug build takes up to a second for
/// the slowest of them, and a release build hundredths of a second.
#[test]
fn no_expression_runs_for_long_with_any_input() {
    let input = large_input();
    let sum_of = |part: &str, times| vec![part; times].join("+");
    for (expression, is_allowed) in [
        ("input.numbers.map(a, a + 1)".to_owned(), true),
        ("input.numbers.filter(a, a == 0)".to_owned(), true),
        ("input.numbers.all(a, a == 0)".to_owned(), true),
        ("input.orders.map(o, o.price > 3 ? o.price : 0)".to_owned(), true),
        ("input.orders.filter(o, o.lines.exists(l, l == 2)).map(o, o.sku)".to_owned(), true),
        ("input.few.map(a, input.few.map(b, a * b))".to_owned(), true),
        ("input.few.map(a, input.few.map(b, input.few.map(c, 1)))".to_owned(), true),
        ("input.few.map(a, input.few.map(b, input.few.map(c, input.few)))".to_owned(), false),
        ("input.orders.map(a, input.orders.map(b, b))".to_owned(), false),
        ("input.orders.map(a, input.orders.filter(b, b.of == a.of))".to_owned(), false),
        ("input.numbers.map(a, input.numbers)".to_owned(), false),
        ("input.orders.all(o, input.text != input.text + 'x')".to_owned(), false),
        ("input.orders.all(o, o.sku.matches('^s[0-9]+$'))".to_owned(), false),
        ("input.few.all(o, 'x'.matches('[^a-z]{18}') || true)".to_owned(), true),
        (sum_of("input.numbers", 70), false),
        (sum_of("input.text", 80), false),
        ("input.numbers.map(a, string(1e300 * 1e8 + a))".to_owned(), false),
        (format!("input.numbers.map(a, [{}])", vec!["a"; 400].join(",")), false),
    ] {
        let start = Instant::now();
        let rendered = render(&expression, &input);
        let elapsed = start.elapsed();
        assert_eq!(rendered.is_ok(), is_allowed, "{expression}: {:?}", rendered.err());
        assert!(elapsed < Duration::from_secs(5), "{expression}: {elapsed:?}");
    }
}

#[test]
fn arithmetic_does_not_depend_on_how_a_number_is_spelled() {
    for (expression, amount, expected) in [
        ("input.x * 1.5", json!(12), json!(18.0)),
        ("input.x * 1.5", json!(12.0), json!(18.0)),
        ("1.5 + input.x", json!(1e2), json!(101.5)),
        ("input.x - 0.5", json!(12), json!(11.5)),
        ("input.x / 5", json!(15), json!(3)),
        ("input.x / 5", json!(12.0), json!(2.4)),
        ("input.x / 2.5", json!(12), json!(4.8)),
        ("[1, 2].map(i, i * input.x)", json!(1.5), json!([1.5, 3.0])),
        ("[1, 2].filter(i, i + input.x > 2)", json!(0.5), json!([2])),
        // Whole numbers keep every digit.
        ("input.x + 1", json!(9_223_372_036_854_775_808_u64), json!(9_223_372_036_854_775_809_u64)),
        ("input.x - 1", json!(9_223_372_036_854_775_808_u64), json!(i64::MAX)),
        ("input.x * 1", json!(3_544_790_567_247_868_102_i64), json!(3_544_790_567_247_868_102_i64)),
        // As in CEL.
        ("'a' + 'b'", json!(0), json!("ab")),
        ("[input.x] + [2]", json!(1), json!([1, 2])),
        ("input.x % 5", json!(12), json!(2)),
    ] {
        let input = json!({ "x": amount });
        assert_eq!(render(expression, &input).unwrap(), expected, "{expression} {amount}");
    }
    for (expression, amount, reason) in [
        ("input.x / 5", json!(12), "a division of whole numbers leaves a rest"),
        ("input.x / 0", json!(12), "division by zero"),
        ("input.x * 2", json!(u64::MAX), "overflow in `mul`"),
        ("input.x * 2", json!("12"), "`mul` does not support string and int"),
        ("input.x + 2", json!("12"), "string and int"),
    ] {
        let error = render(expression, &json!({ "x": amount })).unwrap_err();
        assert!(error.contains(reason), "{expression}: {error}");
    }
}

#[test]
fn a_number_that_json_cannot_represent_is_an_error() {
    let reason = "the result has a number that JSON cannot represent (infinite, or not a number): \
                  test the divisor or the argument of `double` first";
    for expression in [
        "1e300 * 1e10",
        "double('nan')",
        "double('inf')",
        "[1.0, input.x * 1e308 * 10]",
        "{'a': [{'b': input.x * 1e308 * 10}]}",
    ] {
        let error = render(expression, &json!({ "x": 1.5 })).unwrap_err();
        assert!(error.contains(expression) && error.contains(reason), "{error}");
    }
    let scope = Scope { input: Some(&json!({ "x": 1.5 })), ..Scope::default() };
    let within_a_text = Template::parse(json!({ "text": "a ${ input.x * 1e308 * 10 } b" }));
    assert!(within_a_text.render(scope).is_err());
    assert_eq!(render("input.x / 0.5", &json!({ "x": 1.5 })), Ok(json!(3.0)));
}

/// Whatever is done with the result: an infinite number is larger than any.
#[test]
fn a_division_by_zero_fails_however_the_zero_is_spelled() {
    for expression in
        ["1 / 0", "1 / 0.0", "1.0 / 0", "0.0 / 0.0", "-1.0 / -0.0", "12 / 0.0 > 5", "1 % 0"]
    {
        let error = render(expression, &json!({})).unwrap_err();
        assert!(error.contains("division by zero"), "{expression}: {error}");
    }
    assert_eq!(render("input.x % 7", &json!({ "x": u64::MAX })), Ok(json!(1)));
    assert_eq!(render("-7 % 4", &json!({})), Ok(json!(-3)));
    assert_eq!(render("12.0 % 5 + input.x % 5.0", &json!({ "x": 12 })), Ok(json!(4)));
    assert!(render("7.5 % 2", &json!({})).is_err());
}

#[test]
fn a_position_may_be_spelled_as_a_decimal() {
    let input = json!({ "n": 1.0, "text": "abcabc", "list": [1, [2], 3] });
    for (expression, expected) in [
        ("input.text.charAt(input.n)", json!("b")),
        ("input.text.substring(1.0, input.n + 2)", json!("bc")),
        ("input.text.indexOf('a', input.n)", json!(3)),
        ("'a-b-c'.split('-', input.n * 2)", json!(["a", "b-c"])),
        ("input.list.slice(0, input.n)", json!([1])),
        ("input.list.flatten(input.n)", json!([1, 2, 3])),
        ("input.list[input.n]", json!([2])),
        ("input.list[1.0]", json!([2])),
        ("input['te' + 'xt']", json!("abcabc")),
    ] {
        assert_eq!(render(expression, &input), Ok(expected), "{expression}");
    }
    for expression in ["input.list[0.5]", "input.text.charAt(0.5)", "input.list.slice(0, 1e300)"] {
        assert!(render(expression, &input).is_err(), "{expression}");
    }
}

#[test]
fn decimals_are_texts_and_exact() {
    for (expression, expected) in [
        ("decimal.add('12.50', '0.10')", "12.60"),
        ("decimal.add(0.1, 0.2)", "0.3"),
        ("decimal.add(input.whole, '0.01')", "9007199254740993.01"),
        ("decimal.subtract('1', '1.00')", "0.00"),
        ("decimal.multiply('19.99', 3)", "59.97"),
        ("decimal.multiply('-0.05', '0.1')", "-0.005"),
        ("decimal.sum(input.lines.map(l, decimal.multiply(l.price, l.count)))", "41.10"),
        ("decimal.sum([])", "0"),
        ("decimal.sum(['0.00', '0.00'])", "0.00"),
        ("decimal.sum(['1.00', '-1.00', '2'])", "2.00"),
        ("decimal.sum(['2', '-1.00', '1.00'])", "2.00"),
        ("decimal.subtract('5', '0.00')", "5.00"),
        ("decimal.multiply('1.00', '2.5')", "2.500"),
        ("decimal.multiply('0.00', '2.5')", "0.000"),
        ("['4', '5'].all(decimal, decimal.matches('^[0-9]$')) ? 'all' : 'none'", "all"),
        ("decimal.round('2.345', 2, 'half_even')", "2.34"),
        ("decimal.round('2.345', 2, 'half_up')", "2.35"),
        ("decimal.round('2.345', 2, 'half_down')", "2.34"),
        ("decimal.round('-2.341', 2, 'up')", "-2.35"),
        ("decimal.round('-2.349', 2, 'down')", "-2.34"),
        ("decimal.round('-2.341', 2, 'ceiling')", "-2.34"),
        ("decimal.round('-2.341', 2, 'floor')", "-2.35"),
        ("decimal.round(12, 2, 'half_even')", "12.00"),
        ("decimal.compare('10', '9.99') > 0 ? 'more' : 'less'", "more"),
        ("decimal.compare('1.0', 1) == 0 ? 'equal' : 'other'", "equal"),
    ] {
        let input = json!({
            "whole": 9_007_199_254_740_993_u64,
            "lines": [{ "price": "10.05", "count": 4 }, { "price": 0.9, "count": 1 }],
        });
        assert_eq!(render(expression, &input), Ok(json!(expected)), "{expression}");
    }
}

#[test]
fn what_is_no_decimal_is_an_error_without_its_value() {
    let digits = "neither a number nor a text of digits";
    let long = "7".repeat(90);
    for (expression, reason) in [
        ("decimal.add('4111x', 1)", digits),
        ("decimal.add('1e3', 1)", digits),
        ("decimal.add('', 1)", digits),
        ("decimal.add('.5', 1)", digits),
        ("decimal.add('--5', 1)", digits),
        ("decimal.add(true, 1)", digits),
        ("decimal.add(double('inf'), 1)", digits),
        ("decimal.sum('12')", "needs a list"),
        ("decimal.sum({'12': '13'})", "needs a list"),
        ("decimal.sum(['12', null])", digits),
        ("decimal.multiply(input.long, input.long)", "more than 100 characters"),
        ("decimal.add(1e200, 1)", "more than 100 characters"),
        ("decimal.round('1', 21, 'up')", "decimal places"),
        ("decimal.round('1', 1, 'bankers')", "mode"),
    ] {
        let error = render(expression, &json!({ "long": long })).unwrap_err();
        let (_, said) = error.split_once("`: ").unwrap();
        assert!(said.contains(reason) && !said.contains("4111"), "{expression}: {error}");
    }
    let error = render("decimal.divide(1, 2)", &json!({})).unwrap_err();
    assert!(error.contains("unknown function `decimal.divide`"), "{error}");
    let error = render("decimal.round('1.5', 1)", &json!({})).unwrap_err();
    assert!(error.contains("`decimal.round` takes 3 arguments"), "{error}");
}

#[test]
fn error_about_a_budget_contains_no_values() {
    let input = large_input();
    assert_eq!(
        render("input.numbers.map(a, input.numbers)", &input),
        Err("expression `input.numbers.map(a, input.numbers)`: may take more than 2000000 steps \
             with this task's values"
            .to_owned())
    );
    let nine = Template::parse(json!(vec!["${ input.text }"; 9]));
    let scope = Scope { input: Some(&input), ..Scope::default() };
    assert_eq!(
        nine.render(scope).unwrap_err().to_string(),
        "expression `input.text`: makes the rendered template larger than 1048576 bytes"
    );
}

#[test]
fn all_expressions_of_a_template_share_one_budget() {
    let input = large_input();
    let scope = Scope { input: Some(&input), ..Scope::default() };
    let sum = "${ input.numbers.all(a, a == 0) }";
    assert!(Template::parse(json!([sum])).render(scope).is_ok());
    let error = Template::parse(json!(vec![sum; 5])).render(scope).unwrap_err().to_string();
    assert!(error.contains("may take more than"), "{error}");
}

#[test]
fn cost_includes_only_the_values_that_an_expression_reads() {
    let mut input = large_input();
    input["amount"] = json!(20);
    let many = vec!["${ input.amount * 2 }"; 1_000];
    let scope = Scope { input: Some(&input), ..Scope::default() };
    let rendered = Template::parse(json!(many)).render(scope).unwrap();
    assert_eq!(rendered[999], json!(40));
}

#[test]
fn values_are_found_at_every_kind_of_path() {
    let input = json!({ "a": { "b": [1, 2], "c": "x" }, "n": 1 });
    for (expression, value) in [
        ("has(input.a.b)", json!(true)),
        ("has(input.a.d)", json!(false)),
        ("has(input.x)", json!(false)),
        ("[input.a.c, input.a]", json!(["x", { "b": [1, 2], "c": "x" }])),
        ("input.a.b[1] + input.n", json!(3)),
        ("input['a'].b.size()", json!(2)),
        ("[1].map(input, input + 1)", json!([2])),
        ("size(input.a.b.map(input, input))", json!(2)),
    ] {
        assert_eq!(render(expression, &input), Ok(value), "{expression}");
    }
    for expression in ["input.x + 1", "input.a.x + 1", "input.a.c.d + 1", "input.a.b.d + 1"] {
        let error = render(expression, &input).unwrap_err();
        assert!(error.starts_with(&format!("expression `{expression}`: ")), "{error}");
    }
}

#[test]
fn pattern_must_be_a_small_literal() {
    let input = json!({ "p": "x" });
    assert_eq!(render("'abc'.matches('^[a-c]+$')", &input), Ok(json!(true)));
    for (expression, error) in [
        ("'x'.matches(input.p)", "the pattern of `matches` must be a string literal"),
        ("'x'.matches('(')", "the pattern is not a regular expression (RE2)"),
        ("'x'.matches('\\\\w{500}')", "the pattern is too large once it is compiled"),
    ] {
        assert_eq!(render(expression, &input), Err(format!("expression `{expression}`: {error}")));
    }
}

/// Generates texts of random tokens of the expression language.
fn random_expression() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec![
        "input",
        "item",
        "steps.a.output",
        "task.id",
        "a",
        "b",
        ".",
        ".map(a,",
        ".filter(b,",
        ".all(a,",
        "has(",
        "size(",
        "string(",
        "matches('",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        "'",
        "\"",
        "\\",
        "+",
        "-",
        "*",
        "/",
        "%",
        "==",
        "&&",
        "||",
        "!",
        "?",
        ":",
        ",",
        "1",
        "1u",
        "1.5",
        "9223372036854775807",
        "0x7",
        "true",
        "null",
        "b'x'",
        "r'x'",
        "'''",
        " ",
        "in",
        "ü",
        "\u{0}",
        "Foo{a: 1}",
        "optional.of(",
        "dyn(",
        "type(",
        "timestamp(",
        "duration(",
        ".?a",
        "[?0]",
        "//",
        "as",
        "package",
        ".padStart(9,",
        ".replace(",
        ".split(",
        ".join(",
        ".sort()",
        ".sortBy(a,",
        ".flatten()",
        ".format([",
        "lists.range(",
        "math.greatest(",
        "maps.keys(",
        "json.encode(",
        "json.decode(",
        "hash.uuid(",
        "time.format(",
        "base64.decode(",
    ]);
    prop::collection::vec(word, 0..40).prop_map(|words| words.concat())
}

/// Generates random JSON. Each string in it contains `secret`.
fn random_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "secret[a-z]{0,4}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec(("[ab]", inner), 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_expression_panics_and_no_error_contains_a_value(
        expression in random_expression(),
        input in random_json(),
    ) {
        if let Err(error) = render(&expression, &input) {
            prop_assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn no_text_panics(text in any::<String>()) {
        let template = Template::parse(json!({ "a": [text.clone(), format!("${{{text}}}")] }));
        let _ = template.render(Scope::default());
        let _ = template.render_path(Scope::default());
    }
}
