//! An EventBridge event, which may complete a step that waits for it. Turns an event into a submission, according to a
//! workflow's `trigger`.
//!
//! ```text
//! { "id", "source", "detail-type", "detail", … } ──► Event ──► trigger.task_id, trigger.input ──► Submission
//! ```
//!
//! Refusals contain keys and types, but no values of the event.

use std::str::FromStr;

use serde_json::Value;

use super::{
    refusal::{SubmissionRefusal, attribute_text, too_large},
    too_deep,
};
use crate::{
    definition::workflow::Workflow,
    expression::{
        scope::{EvaluationError, Scope},
        template::Template,
    },
    limits,
    model::{
        integers::check_integers,
        messages::Submission,
        names::{InvalidName, TaskId, Tenant},
    },
};

/// An event in the format in which EventBridge sends it to a queue.
#[derive(Debug, Clone, PartialEq)]
pub struct ReceivedEvent {
    source: String,
    detail_type: String,
    envelope: Value,
}

impl ReceivedEvent {
    /// Parses an event. Returns `None` if `text` is not an event, that is, if it has no key `detail-type`.
    ///
    /// # Errors
    /// The refusal, if the event lacks a required field or has an integer that is too large.
    #[must_use]
    pub fn read(text: &str) -> Option<Result<Self, SubmissionRefusal>> {
        // Fast path: most texts are submissions, which should be parsed only once.
        if !text.contains("\"detail-type\"") {
            return None;
        }
        let envelope: Value = serde_json::from_str(text).ok()?;
        envelope.get("detail-type")?;
        let integers = check_integers(text);
        Some(match integers {
            Ok(()) => Self::new(envelope),
            Err(error) => Err(SubmissionRefusal::Malformed(error.to_string())),
        })
    }

    fn new(envelope: Value) -> Result<Self, SubmissionRefusal> {
        let field = |key: &str| match envelope.get(key).and_then(Value::as_str) {
            Some(text) if !text.is_empty() => Ok(text.to_owned()),
            Some(_) | None => Err(SubmissionRefusal::Malformed(format!(
                "an event without the text field `{key}`"
            ))),
        };
        // By default, triggers read the id and the detail.
        field("id")?;
        if envelope.get("detail").is_none() {
            return Err(SubmissionRefusal::Malformed(
                "an event without the field `detail`".to_owned(),
            ));
        }
        let (source, detail_type) = (field("source")?, field("detail-type")?);
        Ok(Self { source, detail_type, envelope })
    }

    /// The id that its source gave the event. EventBridge delivers an event at least once, with the same id.
    #[must_use]
    pub fn id(&self) -> &str {
        self.envelope.get("id").and_then(Value::as_str).unwrap_or_default()
    }

    /// The whole event.
    #[must_use]
    pub fn envelope(&self) -> &Value {
        &self.envelope
    }

    /// The `source` of the event.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The `detail-type` of the event.
    #[must_use]
    pub fn detail_type(&self) -> &str {
        &self.detail_type
    }

    /// Returns the refusal of an event that triggers no workflow.
    #[must_use]
    pub fn no_trigger_refusal(&self) -> SubmissionRefusal {
        let short = |text: &str| attribute_text(text, limits::EVENT_TEXT_CHARS_MAX);
        let (source_name, detail_type) = (short(&self.source), short(&self.detail_type));
        SubmissionRefusal::NoTrigger { source_name, detail_type }
    }

    /// Renders the trigger of `workflow` with this event, and returns the resulting submission.
    ///
    /// # Errors
    /// The refusal, if the workflow has no trigger, if the trigger's templates cannot be rendered with this event, if the
    /// rendered id is invalid, or if the rendered input is too large.
    pub fn submission(&self, workflow: &Workflow) -> Result<Submission, SubmissionRefusal> {
        let trigger = workflow.trigger.as_ref().ok_or_else(|| self.no_trigger_refusal())?;
        let refused = |key| {
            let workflow = workflow.name.clone();
            move |reason| SubmissionRefusal::Trigger { workflow, key, reason }
        };
        let task_id = self.task_id(&trigger.task_id).map_err(refused("task_id"))?;
        let input = self.render(&trigger.input).map_err(refused("input"))?;
        let tenant = trigger.tenant.as_ref().map(|template| self.tenant(template)).transpose();
        let tenant = tenant.map_err(refused("tenant"))?.flatten();
        let workflow = workflow.name.clone();
        let submission = Submission {
            task_id,
            workflow,
            version: None,
            input,
            tenant,
            reply_to: None,
            parent: None,
            undo: false,
            attempt: None,
            has_begun: false,
            retention: None,
            rerun: None,
        };
        let text = serde_json::to_string(&submission)
            .map_err(|error| SubmissionRefusal::Malformed(error.to_string()))?;
        if text.len() > limits::DOCUMENT_BYTES_MAX {
            return Err(too_large(text.len()));
        }
        too_deep(&submission)?;
        Ok(submission)
    }

    fn task_id(&self, template: &Template) -> Result<TaskId, String> {
        parse_name(self.render(template)?, "id")
    }

    /// The tenant; `None` if the template renders to null.
    fn tenant(&self, template: &Template) -> Result<Option<Tenant>, String> {
        match self.render(template)? {
            Value::Null => Ok(None),
            value @ (Value::String(_)
            | Value::Bool(_)
            | Value::Number(_)
            | Value::Array(_)
            | Value::Object(_)) => parse_name(value, "tenant").map(Some),
        }
    }

    /// Renders a template that reads `event`.
    ///
    /// # Errors
    /// It cannot be rendered with this event. The reason contains no value of the event.
    pub fn render(&self, template: &Template) -> Result<Value, String> {
        let scope = Scope { event: Some(&self.envelope), ..Scope::default() };
        let reason =
            |error: EvaluationError| attribute_text(&error.to_string(), limits::REASON_CHARS_MAX);
        template.render(scope).map_err(reason)
    }
}

/// Parses the rendered value of a template as a name of this kind. The error contains no values.
fn parse_name<N: FromStr<Err = InvalidName>>(value: Value, kind: &str) -> Result<N, String> {
    match value {
        Value::String(text) => text.parse().map_err(|error: InvalidName| {
            format!("the result is not a valid {kind}: {}", error.rule())
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            let error = "the result is not a text; to use a number, embed it in a longer text";
            Err(error.to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn event(detail: Value) -> Value {
        json!({
            "version": "0", "id": "e-1", "source": "shop", "detail-type": "Order Placed",
            "time": "2026-11-20T19:00:00Z", "resources": [], "detail": detail,
        })
    }

    fn read(envelope: &Value) -> Option<Result<ReceivedEvent, SubmissionRefusal>> {
        ReceivedEvent::read(&envelope.to_string())
    }

    fn submission(trigger: Value, detail: Value) -> Result<Submission, String> {
        let mut definition = json!({
            "name": "order", "version": 3, "trigger": { "source": "shop", "detail_type": "Order Placed" },
            "steps": { "a": { "wait": "1s" } },
        });
        for (key, template) in trigger.as_object().unwrap() {
            definition["trigger"][key] = template.clone();
        }
        let workflow: Workflow = serde_json::from_value(definition).unwrap();
        assert_eq!(workflow.problems(), []);
        let event = read(&event(detail)).unwrap().unwrap();
        event.submission(&workflow).map_err(|refusal| refusal.to_string())
    }

    #[test]
    fn event_submits_a_task_with_its_id_and_detail_unless_the_trigger_has_templates() {
        let by_default = submission(json!({}), json!({ "order": 7 })).unwrap();
        assert_eq!(
            json!(by_default),
            json!({ "task_id": "e-1", "workflow": "order", "input": { "order": 7 } })
        );
        assert_eq!(by_default.tenant, None);
        let tenant = json!({ "tenant": "${ event.detail.shop }" });
        let of = |shop: Value| submission(tenant.clone(), json!({ "shop": shop })).unwrap().tenant;
        assert_eq!(of(json!("acme")).unwrap().as_str(), "acme");
        assert_eq!(of(Value::Null), None);
        let trigger = json!({
            "task_id": "order-${ event.detail.order }",
            "input": { "n": "${ event.detail.order }", "at": "${ event.time }" },
        });
        let rendered = submission(trigger, json!({ "order": 7 })).unwrap();
        assert_eq!(rendered.task_id.as_str(), "order-7");
        assert_eq!(rendered.input, json!({ "n": 7, "at": "2026-11-20T19:00:00Z" }));
    }

    #[test]
    fn event_that_the_trigger_cannot_use_is_refused_without_values() {
        let secret = json!({ "order": "not an id: secret", "n": 7, "deep": [[[[[[[[[[1]]]]]]]]]] });
        let nested = (0..30).fold(json!("${ event.detail.deep }"), |value, _| json!([value]));
        for (trigger, reason) in [
            (
                json!({ "task_id": "${ event.detail.order }" }),
                "workflow `order`: trigger.task_id: the result is not a valid id: a letter or digit, then letters, \
                 digits, `-`, `_`, `.` and `:`, at most 128 characters",
            ),
            (
                json!({ "task_id": "${ event.detail.n }" }),
                "workflow `order`: trigger.task_id: the result is not a text; to use a number, \
                 embed it in a longer text",
            ),
            (
                json!({ "task_id": "${ event.detail.id }" }),
                "workflow `order`: trigger.task_id: expression `event.detail.id`: there is no `id`",
            ),
            (
                json!({ "input": { "x": "${ event.detail.order + 1 }" } }),
                "workflow `order`: trigger.input: expression `event.detail.order + 1`: `add` does \
                 not support string and int",
            ),
            (
                json!({ "tenant": "${ event.detail.order }" }),
                "workflow `order`: trigger.tenant: the result is not a valid tenant: letters, digits, `.`, `_` and \
                 `-`, at most 64 characters",
            ),
            (
                json!({ "tenant": "${ event.detail.n }" }),
                "workflow `order`: trigger.tenant: the result is not a text; to use a number, embed it in a longer text",
            ),
            (json!({ "input": nested }), "the input nests deeper than 32 levels"),
        ] {
            assert_eq!(submission(trigger, secret.clone()).unwrap_err(), reason);
        }
        let large = json!({ "text": "x".repeat(limits::DOCUMENT_BYTES_MAX) });
        let refused = submission(json!({}), large).unwrap_err();
        assert!(refused.starts_with("a submission of 1311"), "{refused}");
    }

    #[test]
    fn event_is_recognised_by_its_detail_type() {
        let submission =
            json!({ "task_id": "a", "workflow": "order", "input": { "detail-type": "x" } });
        assert_eq!(read(&submission), None);
        assert_eq!(ReceivedEvent::read("{\"detail-type\":"), None);
        assert_eq!(ReceivedEvent::read("[\"detail-type\"]"), None);
        for (key, reason) in [
            ("id", "an event without the text field `id`"),
            ("source", "an event without the text field `source`"),
            ("detail", "an event without the field `detail`"),
        ] {
            let mut broken = event(json!({}));
            broken.as_object_mut().unwrap().remove(key);
            let refused = read(&broken).unwrap().unwrap_err();
            assert_eq!(refused, SubmissionRefusal::Malformed(reason.to_owned()));
        }
        let large = event(json!({ "id": 7 }))
            .to_string()
            .replace("\"id\":7", "\"id\":99999999999999999999");
        let refused = ReceivedEvent::read(&large).unwrap().unwrap_err().to_string();
        assert!(refused.contains("an integer of more than 64 bits at line 1 column "), "{refused}");
        let mut number = event(json!({}));
        number["detail-type"] = json!(7);
        assert!(read(&number).unwrap().is_err());
    }

    #[test]
    fn refusal_of_an_event_without_a_trigger_is_valid_in_an_attribute() {
        let mut odd = event(json!({}));
        odd["source"] = json!(format!("a\u{7}{}", "x".repeat(1_000)));
        let refusal = read(&odd).unwrap().unwrap().no_trigger_refusal().to_string();
        assert!(
            refusal.starts_with("no workflow is triggered by source `a\u{fffd}xx"),
            "{refusal}"
        );
        assert!(refusal.chars().count() < 400, "{refusal}");
    }
}
