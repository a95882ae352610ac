//! The labels of a new task. They are computed once, from the submission, and never change.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Number, Value};

use super::refusal::{SubmissionRefusal, attribute_text};
use crate::{
    definition::plan::Plan,
    expression::{
        scope::{Scope, TaskValues},
        template::Template,
    },
    limits,
    model::{
        lifecycle::whole_milliseconds,
        messages::Submission,
        names::{LabelValue, ValueName},
        time::later,
    },
};

/// The largest integer up to which a floating-point number has all integers.
const INTEGER_MAX: f64 = 9_007_199_254_740_992.0;

/// The labels of the task of `submission`. A label without a value is left out. A task that is undone before it begins has
/// none.
///
/// # Errors
/// The refusal, if an expression fails for another reason than an absent value, or if a value cannot be a label.
pub(super) fn labels_of(
    submission: &Submission,
    plan: &Plan,
    now: Timestamp,
) -> Result<BTreeMap<ValueName, LabelValue>, SubmissionRefusal> {
    let mut labels = BTreeMap::new();
    if submission.undo {
        return Ok(labels);
    }
    let submitted_at = whole_milliseconds(now);
    let task = TaskValues {
        id: submission.task_id.as_str(),
        workflow: submission.workflow.as_str(),
        submitted_at,
        complete_by: later(submitted_at, plan.complete_within),
    };
    let scope = Scope { input: Some(&submission.input), task: Some(task), ..Scope::default() };
    for (name, template) in &plan.labels {
        let refused = |reason| SubmissionRefusal::Label { name: name.clone(), reason };
        let value = label(template, scope).map_err(refused)?;
        labels.extend(value.map(|value| (name.clone(), value)));
    }
    Ok(labels)
}

/// The value of a label; `None` if it reads an absent value, or is null or empty. The error contains no values.
fn label(template: &Template, scope: Scope<'_>) -> Result<Option<LabelValue>, String> {
    let value = match template.render(scope) {
        Ok(value) => value,
        Err(error) if error.is_absent => return Ok(None),
        Err(error) => return Err(attribute_text(&error.to_string(), limits::REASON_CHARS_MAX)),
    };
    let text = match value {
        Value::Null => return Ok(None),
        Value::String(text) => text.trim().to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => number_text(&number),
        Value::Array(_) | Value::Object(_) => {
            return Err("the result is not a text, a number or a boolean".to_owned());
        }
    };
    let (bytes, max) = (text.len(), limits::LABEL_BYTES_MAX);
    if bytes == 0 {
        return Ok(None);
    }
    if bytes > max {
        return Err(format!("the result has {bytes} bytes; the limit is {max}"));
    }
    text.try_into().map(Some).map_err(|_| "the result has control characters".to_owned())
}

/// A number as text. A search for 42 also finds 42.0, which other writers of JSON make of it.
fn number_text(number: &Number) -> String {
    match number.as_f64().filter(|value| value.fract() == 0.0 && value.abs() < INTEGER_MAX) {
        // The sum makes 0 of -0.
        Some(integer) => format!("{:.0}", integer + 0.0),
        None => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::submission::parse;

    fn plan(labels: &Value) -> Plan {
        let steps = json!({ "a": { "wait": "1s" } });
        let definition = json!({
            "name": "w", "version": 1, "env": { "stage": "test" }, "vars": { "id": "${ input.customer.id }" },
            "labels": labels, "steps": steps,
        });
        serde_json::from_value(definition).unwrap()
    }

    fn labels(labels: &Value, input: &Value) -> Result<Value, String> {
        let text = json!({ "task_id": "t-1", "workflow": "w", "input": input }).to_string();
        let found = labels_of(&parse(&text).unwrap(), &plan(labels), Timestamp::UNIX_EPOCH);
        found.map(|labels| json!(labels)).map_err(|refusal| refusal.to_string())
    }

    #[test]
    fn texts_numbers_booleans_and_times_become_text() {
        let wanted = json!({
            "customer": "${ vars.id }", "shop": "${ input.shop }-${ env.stage }", "gift": "${ input.gift }",
            "price": "${ input.price }", "whole": "${ input.whole }", "at": "${ task.submitted_at }", "fixed": 7, "zero": "${ input.zero }",
        });
        let input = json!({ "customer": { "id": 42 }, "shop": "münchen", "gift": true, "price": 1.5, "whole": -3.0, "zero": -0.0 });
        let expected = json!({
            "customer": "42", "shop": "münchen-test", "gift": "true", "price": "1.5", "whole": "-3",
            "at": "1970-01-01T00:00:00Z", "fixed": "7", "zero": "0",
        });
        assert_eq!(labels(&wanted, &input), Ok(expected));
    }

    #[test]
    fn absent_null_and_empty_values_are_no_labels() {
        let wanted = json!({
            "absent": "${ input.none }", "deep": "${ string(input.none.id) + 'x' }", "null": "${ input.nothing }",
            "empty": "${ input.empty }", "text": "no ${ input.none }",
        });
        assert_eq!(labels(&wanted, &json!({ "nothing": null, "empty": "" })), Ok(json!({})));
        let field = json!({ "absent": "${ input.none.id }" });
        assert_eq!(labels(&field, &json!("a text has no fields")), Ok(json!({})));
    }

    #[test]
    fn what_cannot_be_a_label_is_refused_without_its_value() {
        let long = "s".repeat(101);
        for (value, reason) in [
            (json!([1]), "labels.x: the result is not a text, a number or a boolean"),
            (json!({}), "labels.x: the result is not a text, a number or a boolean"),
            (json!(long), "labels.x: the result has 101 bytes; the limit is 100"),
            (json!("ü".repeat(51)), "labels.x: the result has 102 bytes; the limit is 100"),
            (json!("a\nb"), "labels.x: the result has control characters"),
        ] {
            let refused = labels(&json!({ "x": "${ input }" }), &value);
            assert_eq!(refused, Err(reason.to_owned()));
        }
        let failed = labels(&json!({ "x": "${ input.n / 0 }" }), &json!({ "n": 1 })).unwrap_err();
        assert!(
            failed.contains("labels.x: expression `input.n / 0`: division by zero"),
            "{failed}"
        );
        let longest = labels(&json!({ "x": "${ input }" }), &json!("s".repeat(100)));
        assert_eq!(longest, Ok(json!({ "x": "s".repeat(100) })));
    }
}
