//! Files as a whole: YAML, JSON, locations, sizes.

use steward_core::{definition::recovery::FinalAction, model::messages::HttpMethod};

use super::*;

#[test]
fn a_valid_definition_is_accepted() {
    assert_eq!(parse(Path::new("x.yaml"), DEFINITION).unwrap().steps.len(), 2);
}

#[test]
fn the_shipped_definition_is_read_from_its_file() {
    let workflow = read_file(&repository().join("workflows/order.yaml")).unwrap();
    let steps: Vec<_> = workflow.steps.keys().map(|name| name.as_str()).collect();
    assert_eq!((workflow.name.as_str(), workflow.version), ("order", 2));
    assert_eq!(steps, ["reserve", "charge", "ship"]);
    assert!(read_dir(&repository().join("workflows")).unwrap().contains(&workflow));
}

#[test]
fn every_put_step_of_the_drone_delivery_has_an_undo() {
    let workflow = read_file(&repository().join("workflows/drone-delivery.yaml")).unwrap();
    assert_eq!((workflow.name.as_str(), workflow.version), ("drone-delivery", 2));
    for (name, step) in &workflow.steps {
        let is_put = step.request.as_ref().unwrap().method == HttpMethod::Put;
        assert_eq!(is_put, step.undo.is_some(), "{name}");
        assert_eq!(step.recovery.then, FinalAction::Undo, "{name}");
    }
}

#[test]
fn the_purchase_undoes_every_step_that_has_a_lasting_effect() {
    let workflow = read_file(&repository().join("workflows/purchase.yaml")).unwrap();
    assert_eq!((workflow.name.as_str(), workflow.version), ("purchase", 1));
    let undone = workflow.steps.iter().filter(|(_, step)| step.undo.is_some());
    let undone: Vec<_> = undone.map(|(name, _)| name.as_str()).collect();
    assert_eq!(undone, ["budget", "order", "booking"]);
    let answered = workflow.steps.iter().filter(|(_, step)| step.callback.is_some());
    let answered: Vec<_> = answered.map(|(name, _)| name.as_str()).collect();
    assert_eq!(answered, ["approval", "order"]);
}

#[test]
fn the_error_for_a_missing_file_names_it() {
    let error = read_file(Path::new("workflows/none.yaml")).unwrap_err();
    assert_eq!(error.to_string(), "workflows/none.yaml");
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(cause, "No such file or directory (os error 2)");
}

#[test]
fn json_is_accepted_and_its_errors_have_locations() {
    let yaml = parse(Path::new("x"), DEFINITION).unwrap();
    let json = serde_json::to_string_pretty(&yaml).unwrap();
    for text in [json.clone(), json.replace("  ", "\t")] {
        assert_eq!(parse(Path::new("x"), &text).unwrap(), yaml);
    }
    let invalid = r#"{ "name": "order", "version": 0,
  "steps": { "charge": { "agnet": "payment", "request": { "path": "/${ inptu.x }" } } } }"#;
    assert_eq!(
        errors_in(invalid),
        text(
            "
1:31: version: must be at least 1
2:26: steps.charge: unknown key `agnet`; did you mean `agent`?
2:67: steps.charge.request.path: expression `inptu.x`: unknown name `inptu`; did you mean `input`?"
        )
    );
}

#[test]
fn a_published_definition_is_read_back_unchanged() {
    let text = "
name: order
version: 1
defaults: { complete_within: 5s, recovery: { extended_wait: { wait: 1m }, attempts: 7 } }
steps:
  a: { agent: x, request: { path: / } }
  b: { agent: x, request: { path: / }, complete_within: null, recovery: null }
  c: { agent: x, request: { path: / }, recovery: { extended_wait: null, attempts: null } }
";
    let workflow = parse(Path::new("x"), text).unwrap();
    let written = serde_json::to_string(&workflow).unwrap();
    assert_eq!(parse(Path::new("x"), &written).unwrap(), workflow);
    let attempts: Vec<_> = workflow.steps.values().map(|step| step.recovery.attempts.0).collect();
    assert_eq!(attempts, [7, 3, 3]);
    let waits = workflow.steps.values().map(|step| step.recovery.extended_wait.is_some());
    assert_eq!(waits.collect::<Vec<_>>(), [true, false, false]);
    assert!(!written.contains("give_up_after"), "earlier releases refuse unknown keys: {written}");
}

#[test]
fn a_removed_time_limit_stays_removed_in_a_published_definition() {
    let text = "
name: order
version: 1
defaults: { recovery: { give_up_after: 1d }, undo: { recovery: { give_up_after: 2h } } }
steps:
  a: { agent: x, request: { path: / }, undo: { request: { path: / } } }
  b: { agent: x, request: { path: / }, recovery: { give_up_after: null }, undo: { request: { path: / }, recovery: null } }
  c: { workflow: { name: other }, undo: { complete_within: 1h }, recovery: { give_up_after: 2d } }
  d: { workflow: { name: other }, recovery: null }
  e: { wait: 1h }
  f: { wait: { event: { source: s, detail_type: d, key: '${ event.id }', equals: x }, within: 1h } }
";
    let workflow = parse(Path::new("x"), text).unwrap();
    let written = serde_json::to_string(&workflow).unwrap();
    assert_eq!(parse(Path::new("x"), &written).unwrap(), workflow);
    let limits = workflow.steps.values().map(|step| {
        let undo = step.undo.as_ref().and_then(|undo| undo.recovery.give_up_after);
        [step.recovery.give_up_after, undo].map(|limit| limit.map(|limit| limit.as_secs() / 3600))
    });
    let none = [None, None];
    assert_eq!(
        limits.collect::<Vec<_>>(),
        [[Some(24), Some(2)], none, [Some(48), Some(2)], none, none, none]
    );
}

#[test]
fn the_country_code_no_is_a_string() {
    let body = "{ country: NO, gift: true }";
    let workflow = parse(Path::new("x"), &DEFINITION.replace("${ task.id }", body)).unwrap();
    let body = workflow.steps["charge"].request.as_ref().unwrap().body.as_ref().unwrap().source();
    assert_eq!(body["order"], serde_json::json!({ "country": "NO", "gift": true }));
}

#[test]
fn anchors_and_aliases_are_supported() {
    let text = "
name: order
version: 1
steps:
  a: { agent: x, recovery: &often { attempts: 9, atempts: 1 }, request: &root { path: / } }
  b: { agent: x, recovery: *often, request: *root }
";
    assert_eq!(
        errors_in(text),
        two_lines(
            "5:50: steps.a.recovery: unknown key `atempts`; did you mean `attempts`?",
            "6:28: steps.b.recovery: unknown key `atempts`; did you mean `attempts`?"
        )
    );
    assert_eq!(errors_in(&text.replace(", atempts: 1", "")), "");
}

fn two_lines(first: &str, second: &str) -> String {
    format!("{first}\n{second}")
}

#[test]
fn all_problems_are_reported_at_once_each_with_its_location() {
    let invalid = "
name: Order
version: 1
complete_witin: 10m
retention: 5
steps:
  reserve:
    agent: inventory
    complete_within: soon
    recovery: { atempts: 500, then: unod }
    request:
      path: /reservations
      body:
        list: [a, \"${ inptu.x }\"]
  charge:
    agnt: payment
    decide_2: choose
    after: [reserv, reserve, A b]
    request:
      body: ${ steps.shop.output }
  ship: 7
  empty: {}
";
    assert_eq!(
        errors_in(invalid),
        text(
            "
2:7: name: `Order` is not a valid name: a lower-case letter, then lower-case letters, digits, `-` and `_`, at most 40 characters; did you mean `order`?
4:1: unknown key `complete_witin`; did you mean `complete_within`?
5:12: retention: must be a string, not a number; a duration needs a unit, such as `90s` or `15m`
9:22: steps.reserve.complete_within: `soon` is not a duration; write numbers with units, such as `90s`, `15m`, `2h` or `1d 12h`
10:17: steps.reserve.recovery: unknown key `atempts`; did you mean `attempts`?
10:26: steps.reserve.recovery.attempts: must be from 1 to 100
10:37: steps.reserve.recovery.then: must be one of `alert`, `undo`, `continue`; did you mean `undo`?
14:19: steps.reserve.request.body.list.1: expression `inptu.x`: unknown name `inptu`; did you mean `input`?
16:5: steps.charge: unknown key `agnt`; did you mean `agent`?
17:5: steps.charge: `decide_2` is a mark of `steward workflow import`; do what its text says, then delete the key
18:13: steps.charge.after.0: there is no step `reserv`; did you mean `reserve`?
18:30: steps.charge.after.2: `A b` is not a valid name: a lower-case letter, then lower-case letters, digits and `_`, at most 40 characters; did you mean `a_b`?
19:5: steps.charge.request: missing key `path`
20:13: steps.charge.request.body: `steps.shop.output`: there is no step `shop`; did you mean `ship`?
21:9: steps.ship: must be a mapping, not a number
22:3: steps.empty: the step has no work; it needs an `agent`, a `wait`, a `workflow` or a `fail`"
        )
    );
}

#[test]
fn consequences_of_a_problem_are_not_reported() {
    for (from, to, expected) in [
        ("agent: payment", "agent: 5", "10:12: steps.charge.agent: must be a string, not a number"),
        (
            "path: /charges",
            "path: [a]",
            "14:13: steps.charge.request.path: must be a string, not a list",
        ),
        (
            "steps:\n",
            "steps: none\nsetps:\n",
            "3:8: steps: must be a mapping, not a string\n4:1: unknown key `setps`; did you mean `steps`?",
        ),
        (
            "after: [reserve]",
            "after: reserve",
            "11:12: steps.charge.after: must be a list, not a string; write it as `[a, b]`",
        ),
        (
            "name: order",
            "title: order",
            "1:1: missing key `name`\n1:1: unknown key `title`; there are `name`, `version`, `description`, `input`, `mask`, `trigger`, `env`, `vars`, `labels`, `complete_within`, `warn_after`, `overdue`, `retention`, `lifecycle_events`, `defaults`, `steps` and `output`",
        ),
    ] {
        assert_eq!(errors_after_edit(from, to), expected, "{to}");
    }
}

#[test]
fn a_location_has_the_byte_range_of_the_key() {
    let text = DEFINITION.replace("order\n", "order # Übung\n").replace("attempts", "atempts");
    let Err(DefinitionError::Invalid { text, problems, .. }) = parse(Path::new("x"), &text) else {
        panic!("the definition is accepted");
    };
    let bytes = problems[0].location.as_ref().unwrap().bytes.clone();
    assert_eq!(&text[bytes], "atempts");
}

#[test]
fn duplicate_keys_are_refused() {
    assert_eq!(errors_after_edit("  charge:", "  reserve:"), "9:3: duplicate key `reserve`");
    assert_eq!(
        errors_after_edit("agent: payment", "agent: payment\n    agent: x"),
        "11:5: duplicate key `agent`"
    );
}

#[test]
fn an_invalid_expression_is_reported_at_its_location() {
    for (to, expected) in [
        (
            "${ inptu.amount }",
            "17:17: steps.charge.request.body.amount: expression `inptu.amount`: unknown name `inptu`; did you mean `input`?",
        ),
        (
            "${ x }",
            "17:17: steps.charge.request.body.amount: expression `x`: unknown name `x`; there are `input`, `steps`, `task`, `vars` and `env`, and in some places `step`, `item`, `item_index`, `request`, `callback`, `event` and `response`",
        ),
        (
            "${ input.amount",
            "17:17: steps.charge.request.body.amount: `${ input.amount`: `${` is never closed; close it with `}`, or write `$${` for a plain `${`",
        ),
        (
            "[1, { a: '${ input.amount + }' }]",
            "17:26: steps.charge.request.body.amount.1.a: expression `input.amount +`: Syntax error: mismatched input '<EOF>'",
        ),
        (
            "${ steps.reserve }",
            "17:17: steps.charge.request.body.amount: expression `steps.reserve`: `steps` can only be used as `steps.<name>.output` and `steps.<name>.failed`; for example `steps.charge.output.id`",
        ),
        (
            "${ 'x'.matches('(') }",
            "17:17: steps.charge.request.body.amount: expression `'x'.matches('(')`: the pattern is not a regular expression (RE2)",
        ),
        (
            "${ 'x'.matches(input.p) }",
            "17:17: steps.charge.request.body.amount: expression `'x'.matches(input.p)`: the pattern of `matches` must be a string literal",
        ),
        (
            "${ ((((((((((((((((( 1 ))))))))))))))))) }",
            "17:17: steps.charge.request.body.amount: an expression with brackets nested 17 deep; the limit is 16",
        ),
        (
            "${ steps.charge.output }",
            "17:17: steps.charge.request.body.amount: `steps.charge.output`: there is none before the step has ended",
        ),
    ] {
        assert_eq!(errors_after_edit("${ input.amount }", to), expected, "{to}");
    }
    let long = format!("${{ {} }}", "1+".repeat(600));
    assert_eq!(
        errors_after_edit("${ input.amount }", &long),
        "17:17: steps.charge.request.body.amount: an expression of 1200 characters; the limit is 1000"
    );
}

#[test]
fn a_template_that_nests_too_deeply_is_reported_at_its_start() {
    let deep = format!("{}{}", "[".repeat(33), "]".repeat(33));
    assert_eq!(
        errors_after_edit("${ input.amount }", &deep),
        "15:7: steps.charge.request.body: nested deeper than 32 levels"
    );
}

#[test]
fn a_yaml_syntax_error_is_reported_at_its_location() {
    assert_eq!(
        errors_after_edit("[reserve]", "[reserve"),
        "12:13: illegal placement of ':' indicator"
    );
    assert_eq!(errors_in(""), "1:1: must be a mapping, not null");
    let twice = errors_in(&format!("{DEFINITION}---\n{DEFINITION}"));
    assert_eq!(twice, "19:1: only single YAML document expected but multiple found");
    for (text, given) in [("7", "a number"), ("[a]", "a list"), ("~", "null")] {
        assert_eq!(errors_in(text), format!("1:1: must be a mapping, not {given}"));
    }
}

#[test]
fn a_number_that_json_cannot_represent_is_refused() {
    for number in [".inf", "-.inf", ".nan", "1e999"] {
        let errors = errors_after_edit("${ input.amount }", number);
        assert!(errors.ends_with("is not a finite number"), "{number}: {errors}");
    }
}

#[test]
fn a_definition_over_the_size_limit_is_refused_before_it_is_parsed() {
    let large = format!("{DEFINITION}# {}", "x".repeat(limits::DEFINITION_BYTES_MAX));
    assert_eq!(errors_in(&large), format!(" {} bytes; the limit is 262144", large.len()));
}

#[test]
fn alias_bombs_and_deep_nesting_are_refused() {
    let mut bomb = DEFINITION.replace("amount: ${ input.amount }", "z0: &z0 [x, x, x, x]");
    for n in 1..12 {
        let aliases = vec![format!("*z{}", n - 1); 8].join(", ");
        bomb.push_str(&format!("        z{n}: &z{n} [{aliases}]\n"));
    }
    let errors = errors_in(&bomb);
    assert!(errors.contains("YAML document too large or too complex"), "{errors}");
    let errors = errors_in(&"[".repeat(limits::DEFINITION_BYTES_MAX));
    assert_eq!(errors, "1:256: recursion limit exceeded");
}

#[test]
fn control_characters_of_a_definition_are_escaped_in_errors() {
    let escaped = errors_after_edit("name: order", "name: \"\\e[31m\"");
    assert!(escaped.starts_with("1:7: name: `\\u{1b}[31m` is not a valid name: "), "{escaped}");
    let raw = errors_after_edit("name: order", "name: order # \u{1b}[31m");
    assert!(raw.starts_with("1:15: unexpected character: `\\u{1b}'"), "{raw}");
    let expression = errors_after_edit("${ input.amount }", "\"${ x + '\\e[31m' }\"");
    assert!(expression.contains("unknown name `x`"), "{expression}");
    let key = errors_after_edit("recovery:", "\"\\e[31m\":");
    assert!(key.contains("unknown key `\\u{1b}[31m`"), "{key}");
    for errors in [escaped, raw, expression, key] {
        assert!(!errors.contains('\u{1b}'), "{errors:?}");
    }
}

#[test]
fn tests_beside_definitions_are_known_by_their_names() {
    for name in ["order.yaml", "order.yml", "workflows/order.v2.json", "test.yaml"] {
        assert!(!is_test_file(Path::new(name)), "{name}");
    }
    for name in ["order.test.yaml", "order.test.json"] {
        assert!(is_test_file(Path::new(name)), "{name}");
    }
}
