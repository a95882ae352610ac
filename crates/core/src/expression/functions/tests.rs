//! Tests of the functions of expressions: those of the page about workflows, their limits, and their errors.

#![expect(
    clippy::disallowed_methods,
    reason = "the tests measure time; the tested code has no clock"
)]

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::FUNCTIONS;
use crate::{
    expression::{scope::Scope, template::Template},
    limits,
};

const PAGE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/workflows.md"));

fn render(expression: &str, input: &Value) -> Result<Value, String> {
    let template = Template::parse(json!(format!("${{ {expression} }}")));
    if let Some((_, error)) = template.problems().first() {
        return Err(format!("{error}; {}", error.hint().unwrap_or_default()));
    }
    let scope = Scope { input: Some(input), ..Scope::default() };
    template.render(scope).map_err(|error| error.to_string())
}

/// The rows of the page's table of functions: names, example and result.
fn documented() -> Vec<[&'static str; 3]> {
    let (_, table) =
        PAGE.split_once("| functions | example | result |\n| --- | --- | --- |\n").unwrap();
    let rows = table.lines().take_while(|line| line.starts_with('|'));
    let cells = rows.map(|row| row.trim_matches('|').split(" | ").collect::<Vec<_>>());
    cells.map(|cells| cells.try_into().unwrap()).collect()
}

#[test]
fn each_example_of_the_page_has_the_result_that_the_page_shows() {
    let input = json!({
        "grams": 1500,
        "lines": [{ "price": "10.05", "count": 4 }, { "price": 0.9, "count": 1 }],
    });
    for [_, example, result] in documented() {
        let code = |cell: &'static str| cell.trim().trim_matches('`');
        let result: Value = serde_json::from_str(code(result)).unwrap();
        assert_eq!(render(code(example), &input), Ok(result), "{example}");
    }
}

#[test]
fn the_page_names_each_function() {
    let of_cel = ["uint", "bytes", "dyn", "value", "hasValue", "or", "orValue"];
    for function in FUNCTIONS {
        let is_hidden = function.name.contains('@')
            || function.name.starts_with("optional.")
            || function.name.starts_with("math.is")
            || of_cel.contains(&function.name);
        assert!(is_hidden || PAGE.contains(&format!("`{}`", function.name)), "{}", function.name);
    }
}

#[test]
fn functions_do_not_depend_on_how_a_number_is_spelled() {
    let input = json!({});
    for (expression, expected) in [
        ("math.ceil(12)", json!(12.0)),
        ("math.floor(12.5)", json!(12.0)),
        ("math.round(-2.5)", json!(-3.0)),
        ("math.trunc(-2.5)", json!(-2.0)),
        ("[12.5, 12, 3].sort()", json!([3, 12, 12.5])),
        ("[3, 1.5, 2].sortBy(x, -x)", json!([3, 2, 1.5])),
        // As decimals, all three would be equal.
        (
            "[9007199254740993, 9007199254740992.0, 9007199254740991].sort()",
            json!([9_007_199_254_740_991_u64, 9_007_199_254_740_992.0, 9_007_199_254_740_993_u64]),
        ),
        ("[1, 1.0, 2].distinct()", json!([1, 2])),
        ("math.least([3, 1.5])", json!(1.5)),
        ("lists.range(2.0)", json!([0, 1])),
        ("'7'.padStart(2.0, '0')", json!("07")),
        ("decimal.round('1.25', 1.0, 'half_up')", json!("1.3")),
        ("'%.1f'.format([12])", json!("12.0")),
    ] {
        assert_eq!(render(expression, &input), Ok(expected), "{expression}");
    }
}

#[test]
fn functions_handle_their_edge_cases() {
    let input = json!({ "deep": format!("{}1{}", "[".repeat(32), "]".repeat(32)), "a": "ä€😀" });
    for (expression, expected) in [
        ("'abc'.replace('', '-')", json!("-a-b-c-")),
        ("'aaa'.replace('a', 'b', 2)", json!("bba")),
        ("'aaa'.replace('a', 'b', -1)", json!("bbb")),
        ("'7'.padStart(3)", json!("  7")),
        ("'7'.padEnd(4, 'ab')", json!("7aba")),
        ("'long'.padStart(2, '0')", json!("long")),
        ("'x'.padStart(-1, '0')", json!("x")),
        ("'x'.padStart(3, '')", json!("x")),
        ("input.a.padStart(4, 'é')", json!("éä€😀")),
        ("input.a.reverse()", json!("😀€ä")),
        ("lists.range(0)", json!([])),
        ("[].sort()", json!([])),
        ("[true, false].sort()", json!([false, true])),
        ("['b', 'a'].sort()", json!(["a", "b"])),
        ("maps.omit({'a': 1, 'b': 2}, ['b', 'c'])", json!({ "a": 1 })),
        ("maps.pick({'a': 1, 'b': 2}, ['b', 'c'])", json!({ "b": 2 })),
        ("maps.values({'b': 1, 'a': 2})", json!([2, 1])),
        ("maps.merge({'a': {'x': 1}}, {'a': {'y': 2}})", json!({ "a": { "y": 2 } })),
        ("json.decode('{\"a\": [1, 2.5, null, \"x\"]}')", json!({ "a": [1, 2.5, null, "x"] })),
        ("size(json.decode(input.deep))", json!(1)),
        ("json.encode(json.decode('18446744073709551615'))", json!("18446744073709551615")),
        ("json.encode('\\u0001\\n')", json!("\"\\u0001\\n\"")),
        ("base64.encode(b'\\xff')", json!("/w==")),
        (
            "hash.sha256('')",
            json!("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
        ),
        ("time.parse('2026-01-31', '%Y-%m-%d', 'UTC')", json!("2026-01-31T00:00:00Z")),
        (
            "time.parse('31 Jan 2026 12:00 +0200', '%d %b %Y %H:%M %z', 'UTC')",
            json!("2026-01-31T10:00:00Z"),
        ),
        (
            "time.parse('2026-03-31 09:00 America/New_York', '%Y-%m-%d %H:%M %Q', 'Europe/Berlin')",
            json!("2026-03-31T13:00:00Z"),
        ),
        ("time.parse('1769857200', '%s', 'UTC')", json!("2026-01-31T11:00:00Z")),
        // The clocks go from 2:00 to 3:00.
        (
            "time.parse('2026-03-29 02:30', '%Y-%m-%d %H:%M', 'Europe/Berlin')",
            json!("2026-03-29T01:30:00Z"),
        ),
        (
            "time.format('2026-01-31T23:00:00Z', '%F %T %Q', 'Asia/Tokyo')",
            json!("2026-02-01 08:00:00 Asia/Tokyo"),
        ),
        ("time.format('2026-01-31T23:00:00.123+01:00', '%s', 'UTC')", json!("1769896800")),
        ("time.compare('2026-01-31T12:00:00+01:00', '2026-01-31T11:00:00Z')", json!(0)),
        ("time.add('2026-01-31T12:00:00.5Z', '1ms')", json!("2026-01-31T12:00:00.501Z")),
    ] {
        assert_eq!(render(expression, &input), Ok(expected), "{expression}");
    }
}

/// The maps of the interpreter have another order each time.
#[test]
fn a_result_is_the_same_each_time() {
    let fields: Value = (0..20).map(|n| (format!("k{:02}", n * 7 % 20), json!(n))).collect();
    let input = json!({ "m": fields });
    for expression in [
        "maps.keys(input.m)",
        "maps.values(input.m)",
        "json.encode(maps.merge(input.m, {'z': input.m}))",
        "json.encode(maps.omit(input.m, ['k03']))",
        "input.m.map(k, k)",
        "input.m.filter(k, input.m[k] > 3)",
        "input.m.map(k, k).sortBy(k, 0)",
        "'%s'.format([input.m])",
    ] {
        let first = render(expression, &input).unwrap();
        for _ in 0..100 {
            assert_eq!(render(expression, &input).unwrap(), first, "{expression}");
        }
    }
    let sorted: Vec<_> = (0..20).map(|n| format!("k{n:02}")).collect();
    assert_eq!(render("input.m.map(k, k)", &input), Ok(json!(sorted)));
}

#[test]
fn refused_operands_are_errors_without_their_values() {
    let secret = "secret-4711";
    let input = json!({
        "s": secret, "n": 4711, "l": [secret, 4711], "m": { secret: 1 }, "huge": i64::MAX,
        "deep": format!("{}1{}", "[".repeat(33), "]".repeat(33)), "x": "x".repeat(2_000),
    });
    for (expression, reason) in [
        ("lists.range(input.huge)", "`lists.range` makes 0 to 10000 numbers"),
        ("lists.range(10001)", "10000 numbers"),
        ("lists.range(-1)", "10000 numbers"),
        ("lists.range(1.5)", "expected int, got double"),
        ("input.s.padStart(input.huge, ' ')", "at most 1000 characters"),
        ("input.s.padStart(1001)", "at most 1000 characters"),
        ("input.x.replace('x', input.x)", "more than 1 MiB"),
        ("input.s.replace(input.n, 'x')", "expected string, got int"),
        ("'%.101f'.format([1.5])", "`format` does not accept these arguments"),
        ("'%d'.format([input.s])", "`format` does not accept these arguments"),
        ("input.s.substring(4711)", "`substring` does not accept these arguments"),
        ("input.s.charAt(-1)", "`charAt` does not accept these arguments"),
        ("input.l.slice(3, 4)", "`slice` does not accept these arguments"),
        ("base64.decode(input.s + '!')", "`base64.decode` does not accept these arguments"),
        ("input.l.sort()", "compare texts, or numbers"),
        ("[input.m].sort()", "compare texts, or numbers"),
        ("[double('nan'), 1.0].sort()", "compare texts, or numbers"),
        ("input.l.join()", "expected string, got int"),
        ("maps.keys(input.l)", "expected map, got list"),
        ("maps.pick(input.m, input.s)", "expected list, got string"),
        ("maps.omit(input.m, [input.m])", "expected string, got map"),
        ("json.decode(input.s)", "is not JSON"),
        ("json.decode(input.deep)", "deeper than 32 levels"),
        ("json.encode(double('inf'))", "infinite"),
        ("hash.sha256(input.m)", "expected string, got map"),
        ("time.parse(input.s, '%Y', 'UTC')", "does not have the given format"),
        ("time.parse('2026', '%Y', 'UTC')", "does not have the given format"),
        ("time.format(input.s, '%Y', 'UTC')", "RFC 3339"),
        ("time.format('2026-01-31T12:00:00Z', '%!', 'UTC')", "strftime"),
        ("time.format('2026-01-31T12:00:00Z', '%Y', input.s)", "time zone"),
        ("time.add('2026-01-31T12:00:00Z', input.s)", "the duration of `time.add` is none"),
        ("time.add('9999-01-31T12:00:00Z', '1000d')", "years"),
        ("time.compare(input.s, input.s)", "RFC 3339"),
        ("math.ceil(input.s)", "expected double, got string"),
        ("[1].map(x, {'a': [1, x.padStart(4711)]})", "expected string, got int"),
    ] {
        let error = render(expression, &input).unwrap_err();
        let (_, said) = error.split_once("`: ").unwrap();
        assert!(said.contains(reason), "{expression}: {error}");
        assert!(!said.contains("4711") && !said.contains("secret"), "{expression}: {error}");
    }
}

#[test]
fn a_call_that_can_never_work_is_found_in_the_definition() {
    for (expression, error) in [
        ("jsn.encode(1)", "unknown function `jsn.encode`; did you mean `json.encode`?"),
        (
            "json.stringify(1)",
            "unknown function `json.stringify`; there are `json.decode` and `json.encode`",
        ),
        ("input.a.padstart(3)", "unknown function `padstart`; did you mean `padStart`?"),
        ("timestamp('x')", "unknown function `timestamp`; "),
        ("input.a.sortBy(x)", "`sortBy` is called as in `list.sortBy(x, x.id)`"),
        ("input.a.map(x)", "`map` is called as in `list.map(x, x + 1)`"),
        ("input.a.padStart()", "`padStart` takes 1 or 2 arguments"),
        ("input.a.trim(1)", "`trim` takes 0 arguments"),
        ("hash.uuid()", "`hash.uuid` takes 1 argument"),
        ("size(1, 2)", "`size` takes 1 argument"),
        ("trim('a')", "`trim` is called as in `a.trim(…)`"),
        ("'a'.string()", "`string` is called as in `string(a)`"),
        ("[1].map(json, json.stringify())", "unknown function `stringify`"),
        ("inptu.contains('x')", "unknown name `inptu`"),
    ] {
        let found = render(expression, &json!({})).unwrap_err();
        assert!(found.contains(error), "{expression}: {found}");
    }
    // A variable may have the name of functions.
    assert_eq!(render("['x'].all(json, json.startsWith('x'))", &json!({})), Ok(json!(true)));
    assert_eq!(render("['x'].map(text, text.padEnd(2, '!'))", &json!({})), Ok(json!(["x!"])));
}

#[test]
fn no_function_takes_long_or_makes_much_with_any_input() {
    let input = json!({
        "text": "x".repeat(limits::DOCUMENT_BYTES_MAX - 100),
        "numbers": vec![0; 50_000],
        "lines": (0..1_500).map(|n| json!({ "id": n, "name": format!("n{n}") })).collect::<Vec<_>>(),
        "few": vec!["ab"; 40],
        "n": 10_000,
    });
    let nested = |part: &str, times: usize| {
        let open: String = (0..times).map(|n| format!("lists.range(input.n).map(v{n},")).collect();
        format!("{open}{part}{}", ")".repeat(times))
    };
    let mut unexpected = Vec::new();
    for (expression, is_allowed) in [
        (nested("1", 1), true),
        (nested("1", 2), false),
        (nested("'x'.padStart(1000, 'y')", 1), false),
        ("lists.range(40).map(i, lists.range(40).map(j, i * j))".to_owned(), true),
        ("lists.range(size(input.lines)).map(i, input.lines[i].id)".to_owned(), true),
        ("lists.range(1000).map(i, 'x'.padStart(1000, 'y'))".to_owned(), true),
        ("input.text.replace('x', input.text)".to_owned(), false),
        ("input.text.replace('', 'y')".to_owned(), true),
        ("input.text.replace('', 'y').replace('', 'y').replace('', 'y')".to_owned(), true),
        (format!("input.text{}", ".replace('', 'yyyyyyyy')".repeat(30)), false),
        ("input.text.split('')".to_owned(), true),
        (format!("input.text{}", ".split('').join('yyyyyyyy')".repeat(20)), false),
        ("'ab'.split('').join('-').split('-').join('+')".to_owned(), true),
        ("input.numbers.map(n, string(n)).join(input.text)".to_owned(), false),
        ("input.lines.map(l, l.name).join(', ')".to_owned(), true),
        ("'%s'.format([input.text])".to_owned(), true),
        ("input.lines.map(l, '%.100f'.format([1e300])).join('')".to_owned(), true),
        ("input.lines.map(l, '%s'.format([input.lines]))".to_owned(), false),
        ("input.text.indexOf(input.text.substring(0, 60000) + 'y')".to_owned(), false),
        ("input.text.indexOf('y')".to_owned(), true),
        ("input.numbers.distinct()".to_owned(), false),
        ("input.lines.map(l, l.name).distinct()".to_owned(), true),
        ("input.numbers.sort()".to_owned(), true),
        ("input.lines.sortBy(l, -l.id).map(l, l.name)".to_owned(), true),
        ("input.few.map(a, input.few.sortBy(b, b + a))".to_owned(), true),
        ("input.lines.map(a, input.lines.sortBy(b, b.name))".to_owned(), false),
        ("json.encode(input.lines)".to_owned(), true),
        ("json.encode(json.encode(input.lines))".to_owned(), true),
        ("lists.range(10000).map(i, hash.sha256('x'))".to_owned(), true),
        ("lists.range(3000).map(i, '%.100f'.format([1e300 + i])).join('').size()".to_owned(), true),
        (
            "input.lines.map(l, time.format('2026-01-31T12:00:00Z', '%c', 'Asia/Tokyo'))"
                .to_owned(),
            true,
        ),
        ("input.lines.map(l, json.encode(input.lines))".to_owned(), false),
        ("lists.range(200).map(i, json.decode(json.encode(input.lines[i])).name)".to_owned(), true),
        ("hash.sha256(input.text)".to_owned(), true),
        ("input.lines.map(l, hash.uuid(l.name))".to_owned(), true),
        ("input.lines.map(l, time.add('2026-01-31T12:00:00Z', '1d'))".to_owned(), true),
        ("input.numbers.map(l, time.add('2026-01-31T12:00:00Z', '1d'))".to_owned(), false),
        (format!("time.format('2026-01-31T12:00:00Z', '{}', 'UTC')", "%255d".repeat(180)), true),
        ("input.lines.map(l, maps.merge(l, {'x': 1}))".to_owned(), true),
        ("input.lines.map(l, maps.keys(l)).flatten().distinct()".to_owned(), false),
        ("input.few.map(a, input.few.map(b, [a, b])).flatten()".to_owned(), true),
        (format!("input.lines{}", ".map(l, [l, l]).flatten()".repeat(30)), false),
    ] {
        let start = Instant::now();
        let rendered = render(&expression, &input);
        let elapsed = start.elapsed();
        println!("{:>6} ms {} {expression:.90}", elapsed.as_millis(), rendered.is_ok());
        assert!(elapsed < Duration::from_secs(5), "{expression}: {elapsed:?}");
        let is_limit = |error: &String| {
            ["may take more than", "larger than", "1 MiB"].iter().any(|limit| error.contains(limit))
        };
        if rendered.is_ok() != is_allowed || !rendered.as_ref().err().is_none_or(is_limit) {
            unexpected.push(format!("{expression:.90}: {:?}", rendered.map(|_| ())));
        }
    }
    assert!(unexpected.is_empty(), "{unexpected:#?}");
}

/// Each was accepted, and took minutes or a gigabyte, or stopped the process, or gave another result each time.
#[test]
fn what_an_adversary_found_is_refused() {
    let input = json!({ "a": "x", "k": "put", "n": 3000.0 });
    for (expression, reason) in [
        ("[.dyn(lists.range(9))].all(l, .dyn(l).all(a, true))", "unknown function"),
        ("_nope(1)", "unknown function"),
        (".matches(input.a, input.a)", "unknown function"),
        ("Foo{a: 1}", "there is no type"),
        (
            "time.add('2026-01-01T00:00:00Z', '18446744073709551615s 1000000000ns')",
            "the duration of `time.add`",
        ),
        ("{1: 'a', '1': 'b'}", "two keys"),
        ("json.encode(maps.merge({1: 'x'}, {1u: 'y'}))", "two keys"),
        ("[optional.of(5)]", "optional"),
        (
            "[lists.range(10000)].all(b, lists.range(10000).all(i, b - 1 == 0 || true))",
            "may take more than",
        ),
        (
            "[{'a': lists.range(10000)}].all(b, lists.range(10000).all(i, has(b.?a.c) || true))",
            "may take more than",
        ),
        (
            "size(json.decode('[' + 'x'.padStart(1000, ' ').replace(' ', '1111111111,'.padEnd(200, '1')) + '0]'))",
            "128 KiB",
        ),
        ("{'x': 1}[input.k]", "there is no such key"),
        // `n` is 3000.0.
        ("lists.range(input.n).all(a, lists.range(3000).all(b, true))", "may take more than"),
    ] {
        let error = render(expression, &input).unwrap_err();
        assert!(error.contains(reason), "{expression}: {error}");
    }
    let picked = "size(maps.pick({'a': lists.range(100)}, lists.range(1000).map(x, 'a')))";
    assert_eq!(render(picked, &input), Ok(json!(1)));
}
