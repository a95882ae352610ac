//! Tests of templates: parsing, rendering and errors.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::expression::scope::{FIELDS, RequiredValues, TaskValues};

const TASK: TaskValues<'static> = TaskValues {
    id: "order-1",
    workflow: "order",
    submitted_at: Timestamp::UNIX_EPOCH,
    complete_by: Timestamp::UNIX_EPOCH,
};

fn render(template: Value) -> Result<Value, String> {
    let charge = json!({ "id": "ch-1" });
    let outputs = BTreeMap::from([("charge".parse().unwrap(), Cow::Borrowed(&charge))]);
    let input = json!({ "amount": 20, "to": { "z": 1, "a": 2 }, "name": "Ada", "items": [1, 2] });
    let scope = Scope {
        input: Some(&input),
        outputs: Some(&outputs),
        task: Some(TASK),
        ..Scope::default()
    };
    let template = Template::parse(template);
    if let Some((_, error)) = template.problems().first() {
        return Err(error.to_string());
    }
    template.render(scope).map_err(|error| error.to_string())
}

#[test]
fn single_expression_keeps_its_type_and_an_embedded_one_becomes_text() {
    assert_eq!(render(json!("${ input.amount }")), Ok(json!(20)));
    assert_eq!(render(json!("${ input.amount * 2 }")), Ok(json!(40)));
    assert_eq!(render(json!("for ${ input.name }: ${ input.items }")), Ok(json!("for Ada: [1,2]")));
    assert_eq!(render(json!("/charges/${ steps.charge.output.id }")), Ok(json!("/charges/ch-1")));
    assert_eq!(
        render(json!({ "order": "${ task.id }", "rest": [true, null, "${input.to}"] })),
        Ok(json!({ "order": "order-1", "rest": [true, null, { "z": 1, "a": 2 }] }))
    );
    assert_eq!(
        render(json!("${ time.add(task.submitted_at, '90m') }")),
        Ok(json!("1970-01-01T01:30:00Z"))
    );
    assert_eq!(render(json!("${ input.items.map(i, i + 1) }")), Ok(json!([2, 3])));
    assert_eq!(render(json!("${ {'a}': steps.charge.output.id} }")), Ok(json!({ "a}": "ch-1" })));
    assert_eq!(render(json!("costs $${ and ${ 'x' }")), Ok(json!("costs ${ and x")));
}

#[test]
fn an_expression_can_ask_whether_a_step_has_an_output() {
    let id = |step: &str| {
        let ask = format!("has(steps.{step}.output)");
        json!(format!("${{ {ask} ? steps.{step}.output.id : task.id }}"))
    };
    assert_eq!(render(id("charge")), Ok(json!("ch-1")));
    assert_eq!(render(id("ship")), Ok(json!("order-1")));
    let unasked = render(json!("${ steps.ship.output.id + '!' }")).unwrap_err();
    assert_eq!(unasked, "expression `steps.ship.output.id + '!'`: there is no `output`");
}

#[test]
fn value_in_a_path_is_encoded_and_cannot_change_the_path() {
    let input = json!({
        "id": "../../admin?all=1#x", "n": 7, "up": "..", "dot": ".", "whole": "/a/b?c=d", "no": "x", "tab": "/a/.\t./b",
        "empty": "", "none": null,
    });
    let scope = Scope { input: Some(&input), ..Scope::default() };
    let path = |text: &str| Template::parse(json!(text)).render_path(scope);
    let refused = |text: &str, reason: &str| {
        let error = path(text).unwrap_err();
        assert!(error.starts_with(reason), "{text}: {error}");
    };
    assert_eq!(
        path("/orders/${ input.id }/items?n=${ input.n }"),
        Ok("/orders/..%2F..%2Fadmin%3Fall%3D1%23x/items?n=7".to_owned())
    );
    assert_eq!(path("${ input.whole }"), Ok("/a/b?c=d".to_owned()));
    for text in ["/a/%2E%2e/b", "/a/../b"] {
        refused(text, "the request's path must not have a `.` or `..` segment");
    }
    refused("${ input.tab }", "the request's path must not have the control character `\\t`");
    assert_eq!(path("/a?back=.."), Ok("/a?back=..".to_owned()));
    refused("${ input.no }", "the request's path must start with `/`");
    refused("${ input.n }", "the request's path is not a text");
}

#[test]
fn value_that_names_no_segment_of_a_path_fails_with_its_expression_and_the_cure() {
    let input = json!({ "up": "..", "dot": ".", "empty": "", "none": null, "id": "r-1" });
    let scope = Scope { input: Some(&input), ..Scope::default() };
    let path = |text: &str| Template::parse(json!(text)).render_path(scope);
    for (text, expression, reason) in [
        ("/reservations/${ input.empty }", "input.empty", "empty path segment"),
        ("/reservations/${ input.empty }/items", "input.empty", "empty path segment"),
        ("/reservations/${ input.empty }?all=1", "input.empty", "empty path segment"),
        ("/reservations/${ input.none }", "input.none", "empty path segment"),
        ("/reservations/r-${ input.none }", "input.none", "empty path segment"),
        ("/a/${ input.id }/${ input.up }", "input.up", "`.` or `..` as a path segment"),
        ("/a/${ input.dot }", "input.dot", "`.` or `..` as a path segment"),
        ("/a/.${ input.dot }/b", "input.dot", "`.` or `..` as a path segment"),
        ("/a/${ input.dot }%2e", "input.dot", "`.` or `..` as a path segment"),
    ] {
        let error = path(text).unwrap_err();
        let expected = format!("expression `{expression}`: {reason}; ");
        assert!(error.starts_with(&expected), "{text}: {error}");
    }
    for (text, rendered) in [
        ("/a/${ input.empty }${ input.id }", "/a/r-1"),
        ("/a/x${ input.empty }", "/a/x"),
        ("/a?b=${ input.empty }&c=${ input.none }&d=/${ input.up }", "/a?b=&c=null&d=/.."),
    ] {
        assert_eq!(path(text), Ok(rendered.to_owned()));
    }
}

#[test]
fn what_an_author_wrote_around_the_values_of_a_path_is_checked_before_it_is_rendered() {
    const BARE_PERCENT: &str = "must not have a `%` without two hex digits after it; write `%25`";
    let problem = |text: &str| Template::parse(json!(text)).path_problem();
    for (text, reason) in [
        ("/a/.\t./${ input.x }", "must not have the control character `\\t`; write `%09`"),
        ("/a/${ input.x }#b", "must not have `#`; write `%23`"),
        ("/a/../${ input.x }", "must not have a `.` or `..` segment"),
        ("/a//${ input.x }", "must not have an empty segment (`//`)"),
        ("${ input.x }/a", "must start with `/`"),
        ("$${ input.x }", "must start with `/`"),
        ("/a/%${ input.x }", BARE_PERCENT),
        ("/a/%4${ input.x }", BARE_PERCENT),
        ("/a?b=%${ input.x }", BARE_PERCENT),
        ("/a/100%", BARE_PERCENT),
        ("/a/%zz/${ input.x }", BARE_PERCENT),
    ] {
        assert_eq!(problem(text).as_deref(), Some(reason), "{text}");
    }
    for text in [
        "/a/.${ input.x }",
        "${ input.path }",
        "/a?b=${ input.x }",
        "/${ input.x }",
        "/100%25/%2F${ input.x }",
    ] {
        assert_eq!(problem(text), None, "{text}");
    }
}

#[test]
fn rendering_is_deterministic() {
    let first = render(json!("${ {'b': input.to, 'a': 1, 'c': 2} }")).unwrap().to_string();
    for _ in 0..20 {
        let again = render(json!("${ {'b': input.to, 'a': 1, 'c': 2} }")).unwrap().to_string();
        assert_eq!(first, again);
    }
}

#[test]
fn values_that_a_template_reads_are_known_before_it_is_rendered() {
    let template =
        Template::parse(json!({ "a": "${ steps.charge.output.id }", "b": ["${ input.x }"] }));
    let steps = BTreeSet::from(["charge".parse().unwrap()]);
    assert_eq!(
        template.required_values(),
        &RequiredValues { names: BTreeSet::from(["input"]), steps, ..RequiredValues::default() }
    );
    let plain = Template::parse(json!({ "a": "${ task.id }", "b": 1 }));
    assert!(!plain.required_values().input() && plain.required_values().steps.is_empty());
    let nested = Template::parse(json!("${ [1].map(i, steps.charge.output.n + i) }"));
    assert_eq!(nested.required_values().steps.len(), 1);
}

#[test]
fn known_fields_are_those_of_the_scope() {
    let (task, callback) = (Some(TASK), Some(("token", Some("url"))));
    let scope = Scope { task, callback, request: Some("k"), ..Scope::default() };
    for name in ["task", "request", "callback"] {
        let value = scope.root(name).unwrap();
        let built: Vec<_> = value.as_object().unwrap().keys().map(String::as_str).collect();
        let known = FIELDS.iter().find(|(of, _)| *of == name).unwrap().1;
        assert_eq!(built, known);
    }
}

#[test]
fn fields_that_no_value_has_are_known_before_a_template_is_rendered() {
    let unknown = |expression: &str| {
        let template = Template::parse(json!(format!("${{ {expression} }}")));
        assert_eq!(template.problems(), []);
        let unknown = template.unknown_fields().into_iter();
        unknown.map(|(_, (name, _), field)| format!("{name}.{field}")).collect::<Vec<_>>().join(" ")
    };
    for (expression, fields) in [
        ("response.stauts", "response.stauts"),
        ("response.stauts == 200 ? response.body.x : task.uuid", "response.stauts task.uuid"),
        ("task['idempotency_key']", "task.idempotency_key"),
        ("has(callback.uri)", "callback.uri"),
        ("[1].map(n, event.deatil.n)", "event.deatil"),
        ("event", ""),
        ("event.detail.any['thing']", ""),
        ("event['detail-type'] + event.resources[0] + event['replay-name']", ""),
        ("response.headers['x'] + response.body[0].x", ""),
        ("input.list.map(task, task.name)", ""),
        ("input.list.map(task, task['name'])", ""),
        ("input.status + item.status", ""),
    ] {
        assert_eq!(unknown(expression), fields, "{expression}");
    }
}

#[test]
fn invalid_template_has_an_error_with_the_reason() {
    for (template, reason) in [
        (json!("${ input.x"), "`${ input.x`: `${` is never closed"),
        (json!("${ inptu.x }"), "expression `inptu.x`: unknown name `inptu`"),
        (
            json!("${ steps.charge }"),
            "expression `steps.charge`: `steps` can only be used as `steps.<name>.output` and `steps.<name>.failed`",
        ),
        (
            json!("${ steps['charge'].output }"),
            "expression `steps['charge'].output`: `steps` can only be used as `steps.<name>.output` and `steps.<name>.failed`",
        ),
    ] {
        assert_eq!(render(template), Err(reason.to_owned()));
    }
    assert!(render(json!("${ 1 + }")).unwrap_err().starts_with("expression `1 +`: "));
    assert!(
        render(json!(format!("${{ {} }}", "1+".repeat(600)))).unwrap_err().contains("the limit is")
    );
}

#[test]
fn evaluation_error_contains_types_and_keys_but_no_values() {
    for (template, reason) in [
        (json!("${ input.missing }"), "expression `input.missing`: there is no `missing`"),
        (
            json!("${ steps.other.output.x }"),
            "expression `steps.other.output.x`: there is no `other`",
        ),
        (
            json!("${ input.name + 1 }"),
            "expression `input.name + 1`: `add` does not support string and int",
        ),
    ] {
        let error = render(template).unwrap_err();
        assert_eq!(error, reason);
        assert!(!error.contains("Ada"));
    }
}
