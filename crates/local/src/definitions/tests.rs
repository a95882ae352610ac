//! What a definition file must not be, with the whole text of each error.

use steward_core::{recovery::Then, workflow::Method};

use super::*;

const DEFINITION: &str = "\
name: order
version: 1
steps:
  reserve:
    agent: inventory
    complete_within: 10s
    request:
      path: /reservations
  charge:
    agent: payment
    after: [reserve]
    recovery: { attempts: 5 }
    request:
      path: /charges
      body:
        order: ${ task.id }
        amount: ${ input.amount }
";

/// What is said of [`DEFINITION`] once `from` has become `to` in it.
fn told(from: &str, to: &str) -> String {
    assert!(DEFINITION.contains(from), "{from}");
    told_of(&DEFINITION.replacen(from, to, 1))
}

fn told_of(text: &str) -> String {
    parse(Path::new("workflows/x.yaml"), text).unwrap_err().to_string()
}

/// A text whose first line break is there for the eye only.
fn text(lines: &'static str) -> &'static str {
    lines.strip_prefix('\n').unwrap()
}

#[test]
fn a_definition_of_this_kind_is_read() {
    assert_eq!(parse(Path::new("x.yaml"), DEFINITION).unwrap().steps.len(), 2);
}

#[test]
fn the_definition_that_ships_is_read_from_its_file() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let workflow = read_file(&root.join("workflows/order.yaml")).unwrap();
    let steps: Vec<_> = workflow.steps.keys().map(|name| name.as_str()).collect();
    assert_eq!((workflow.name.as_str(), workflow.version), ("order", 2));
    assert_eq!(steps, ["reserve", "charge", "ship"]);
    assert!(read_dir(&root.join("workflows")).unwrap().contains(&workflow));
}

#[test]
fn every_step_of_the_drone_delivery_that_makes_something_can_take_it_back() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let workflow = read_file(&root.join("workflows/drone-delivery.yaml")).unwrap();
    assert_eq!((workflow.name.as_str(), workflow.version), ("drone-delivery", 1));
    for (name, step) in &workflow.steps {
        let makes = step.request.method == Method::Put;
        assert_eq!(makes, step.undo.is_some(), "{name}");
        assert_eq!(step.recovery.then, Then::Undo, "{name}");
    }
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = read_file(Path::new("workflows/none.yaml")).unwrap_err();
    assert_eq!(error.to_string(), "workflows/none.yaml");
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(cause, "No such file or directory (os error 2)");
}

#[test]
fn json_is_read_as_well() {
    let json = serde_json::to_string_pretty(&parse(Path::new("x"), DEFINITION).unwrap()).unwrap();
    let tabbed = json.replace("  ", "\t");
    for text in [json.as_str(), tabbed.as_str()] {
        assert_eq!(
            parse(Path::new("x"), text).unwrap(),
            parse(Path::new("x"), DEFINITION).unwrap()
        );
    }
}

#[test]
fn a_country_code_is_no_boolean() {
    let body = "{ country: NO, gift: true }";
    let workflow = parse(Path::new("x"), &DEFINITION.replace("${ task.id }", body)).unwrap();
    let body = workflow.steps["charge"].request.as_ref().unwrap().body.as_ref().unwrap().source();
    assert_eq!(body["order"], serde_json::json!({ "country": "NO", "gift": true }));
}

#[test]
fn a_cycle_is_shown() {
    assert_eq!(
        told("agent: inventory\n", "agent: inventory\n    after: [charge]\n"),
        "workflows/x.yaml:4:3: steps: these steps wait for each other: reserve → charge → reserve"
    );
}

#[test]
fn an_unknown_step_in_after_is_named_with_those_there_are() {
    assert_eq!(
        told("[reserve]", "[reserv]"),
        "workflows/x.yaml:11:12: steps.charge.after: there is no step `reserv`; there are reserve, charge"
    );
}

#[test]
fn all_that_cannot_run_is_told_at_once_each_at_its_place() {
    let wrong = DEFINITION
        .replace("attempts: 5", "attempts: 500")
        .replace("10s", "1ms")
        .replace("${ input.amount }", "${ steps.ship.output }");
    assert_eq!(
        told_of(&wrong),
        text(
            "
workflows/x.yaml:6:22: steps.reserve.complete_within: must be from 100ms to 30d
workflows/x.yaml:12:27: steps.charge.recovery.attempts: must be from 1 to 100
workflows/x.yaml:14:7: steps.charge.request: `steps.ship.output`: there is no step `ship`"
        )
    );
}

#[test]
fn a_step_that_is_there_twice_is_refused() {
    assert_eq!(
        told("  charge:", "  reserve:"),
        text(
            "
workflows/x.yaml:9:3: key `reserve` is there twice
   |
 7 |     request:
 8 |       path: /reservations
 9 |   reserve:
   |   ^
10 |     agent: payment
11 |     after: [reserve]
   |"
        )
    );
}

#[test]
fn an_unknown_key_is_named_with_those_there_are() {
    assert_eq!(
            told("attempts: 5", "atempts: 5"),
            text(
                "
workflows/x.yaml:12:17: unknown field `atempts`, expected one of attempts, backoff, extended_wait, then
   |
10 |     agent: payment
11 |     after: [reserve]
12 |     recovery: { atempts: 5 }
   |                 ^
13 |     request:
14 |       path: /charges
   |"
            )
        );
}

#[test]
fn a_broken_expression_is_found_at_its_own_line() {
    assert_eq!(
            told("${ input.amount }", "${ inptu.amount }"),
            text(
                "
workflows/x.yaml:17:17: expression `inptu.amount`: unknown name `inptu`; there are `input`, `steps` and `task`
   |
15 |       body:
16 |         order: ${ task.id }
17 |         amount: ${ inptu.amount }
   |                 ^"
            )
        );
    let first_line = |to| told("${ input.amount }", to).lines().next().unwrap().to_owned();
    assert_eq!(
        first_line("${ input.amount"),
        "workflows/x.yaml:17:17: `${ input.amount`: `${` is never closed; write `$${` for a plain `${`"
    );
    assert_eq!(
        first_line("[1, { a: '${ input.amount + }' }]"),
        "workflows/x.yaml:17:26: expression `input.amount +`: Syntax error: mismatched input '<EOF>'"
    );
}

#[test]
fn a_template_that_is_wrong_as_a_whole_is_found_where_it_starts() {
    let deep = format!("{}{}", "[".repeat(33), "]".repeat(33));
    let told = told("${ input.amount }", &deep);
    assert!(told.starts_with("workflows/x.yaml:16:9: nested deeper than 32 levels\n"), "{told}");
}

#[test]
fn a_value_of_the_wrong_type_is_told_what_it_should_be() {
    assert_eq!(
        told("attempts: 5", "attempts: many"),
        text(
            "
workflows/x.yaml:12:27: expected a whole number, not negative
   |
10 |     agent: payment
11 |     after: [reserve]
12 |     recovery: { attempts: many }
   |                           ^
13 |     request:
14 |       path: /charges
   |"
        )
    );
    let first_line = |from, to| told(from, to).lines().next().unwrap().to_owned();
    for (from, to, expected) in [
        ("[reserve]", "reserve", "11:12: expected a list, as `[a, b]`"),
        ("agent: payment", "agent: [payment]", "10:12: expected a single value"),
        ("agent: payment", "agent:", "10:10: null is not allowed here"),
        (
            "path: /charges",
            "path: 5",
            "14:13: steps.charge.request.path: must be a text that starts with `/`",
        ),
        (
            "path: /charges",
            "method: SEND",
            "14:15: unknown variant `SEND`, expected one of GET, POST, PUT, PATCH, DELETE",
        ),
        (
            "agent: payment",
            "agent: Payment",
            "10:12: agent name `Payment` is not valid: a lower-case letter, then lower-case \
                 letters, digits, `-` and `_`, at most 40 characters",
        ),
    ] {
        assert_eq!(first_line(from, to), format!("workflows/x.yaml:{expected}"));
    }
    let told = told_of("name: order\nversion: 1\nsteps: none\n");
    assert!(told.starts_with("workflows/x.yaml:3:8: expected keys with values\n"), "{told}");
}

#[test]
fn a_wrong_duration_is_told_what_is_wrong_with_it() {
    assert_eq!(
        told("10s", "soon"),
        text(
            "
workflows/x.yaml:6:22: duration `soon`: expected number at 0
  |
4 |   reserve:
5 |     agent: inventory
6 |     complete_within: soon
  |                      ^
7 |     request:
8 |       path: /reservations
  |"
        )
    );
    let without_unit = told("10s", "10");
    let expected =
        "workflows/x.yaml:6:22: duration `10`: time unit needed, for example 10sec or 10ms\n";
    assert!(without_unit.starts_with(expected), "{without_unit}");
}

#[test]
fn what_is_not_yaml_is_shown_where_it_stops_being_it() {
    assert_eq!(
        told("[reserve]", "[reserve"),
        text(
            "
workflows/x.yaml:12:13: illegal placement of ':' indicator
   |
10 |     agent: payment
11 |     after: [reserve
12 |     recovery: { attempts: 5 }
   |             ^
13 |     request:
14 |       path: /charges
   |"
        )
    );
    assert_eq!(told_of(""), "workflows/x.yaml:1:1: unexpected end of file");
    let twice = told_of(&format!("{DEFINITION}---\n{DEFINITION}"));
    let expected = "workflows/x.yaml:19:1: only single YAML document expected but multiple found\n";
    assert!(twice.starts_with(expected), "{twice}");
}

#[test]
fn what_is_wrong_with_an_undo_is_found_at_its_place() {
    let undo = "agent: payment
    undo:
      recovery: { then: undo, attempts: 0 }
      request: { path: '/refunds/${ steps.ship.output }' }";
    assert_eq!(
        told("agent: payment", undo),
        text(
            "
workflows/x.yaml:12:25: steps.charge.undo.recovery.then: an undo that fails cannot be undone; it ends in an alert
workflows/x.yaml:12:41: steps.charge.undo.recovery.attempts: must be from 1 to 100
workflows/x.yaml:13:16: steps.charge.undo.request: `steps.ship.output`: there is no step `ship`"
        )
    );
    let broken = undo.replace("steps.ship.output", "nothing.here");
    let told = told("agent: payment", &broken);
    assert!(
        told.starts_with("workflows/x.yaml:13:24: expression `nothing.here`: unknown name"),
        "{told}"
    );
}

#[test]
fn a_missing_key_is_named() {
    assert_eq!(
        told("    agent: payment\n", ""),
        text(
            "
workflows/x.yaml:12:5: missing field `agent`
   |
10 |     after: [reserve]
11 |     recovery: { attempts: 5 }
12 |     request:
   |     ^
13 |       path: /charges
14 |       body:
   |"
        )
    );
    assert_eq!(
        told_of("name: order\nversion: 1\n"),
        text(
            "
workflows/x.yaml:2:1: missing field `steps`
  |
1 | name: order
2 | version: 1
  | ^"
        )
    );
}

#[test]
fn a_definition_over_the_limit_is_refused_unread() {
    let large = format!("{DEFINITION}# {}", "x".repeat(limits::DEFINITION_BYTES_MAX));
    assert_eq!(
        told_of(&large),
        format!("workflows/x.yaml: {} bytes; the limit is 262144", large.len())
    );
}

#[test]
fn no_definition_can_make_the_reader_run_away() {
    let mut bomb = DEFINITION.replace("amount: ${ input.amount }", "z0: &z0 [x, x, x, x]");
    for n in 1..12 {
        let aliases = vec![format!("*z{}", n - 1); 8].join(", ");
        bomb.push_str(&format!("        z{n}: &z{n} [{aliases}]\n"));
    }
    let told = told_of(&bomb);
    assert!(told.contains("YAML document too large or too complex"), "{told}");
    let told = told_of(&"[".repeat(limits::DEFINITION_BYTES_MAX));
    assert!(told.starts_with("workflows/x.yaml:1:256: recursion limit exceeded\n"), "{told}");
}

#[test]
fn nothing_in_a_definition_reaches_the_terminal_as_a_command() {
    let escaped = told("name: order", "name: \"\\e[31m\"");
    let expected = "workflows/x.yaml:1:7: workflow name `\\u{1b}[31m` is not valid: ";
    assert!(escaped.starts_with(expected), "{escaped}");
    let raw = told("name: order", "name: order # \u{1b}[31m");
    assert!(raw.starts_with("workflows/x.yaml:1:15: unexpected character: `\\u{1b}'\n"), "{raw}");
    assert!(!escaped.contains('\u{1b}') && !raw.contains('\u{1b}'), "{raw:?}");
}
