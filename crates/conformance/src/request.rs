//! The messages that the kit sends to the agent: the request of each case, and the unreadable messages.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use steward_core::{
    limits,
    model::{request_path, time::later},
};

use crate::case::{Case, PAYLOAD_MARK, task_id, unreadable_task};

/// What the requests of a check have in common.
#[derive(Debug, Clone)]
pub struct CheckRequest {
    /// The agent's name.
    pub agent: String,
    /// The HTTP method.
    pub method: String,
    /// The path.
    pub path: String,
    /// The body.
    pub body: Value,
    /// What the agent's delay adds to the time limits of the cases.
    pub slack: Duration,
}

impl CheckRequest {
    /// A request that any agent of the kit's own service accepts.
    #[must_use]
    pub fn of_agent(agent: &str) -> Self {
        let body = json!({ "name": "Ada", "note": PAYLOAD_MARK });
        Self {
            agent: agent.to_owned(),
            method: "POST".to_owned(),
            path: "/check".to_owned(),
            body,
            slack: Duration::ZERO,
        }
    }

    /// Replaces method, path and body by those in a JSON object.
    ///
    /// # Errors
    /// It is not an object, `path` or `method` is not a text, or `path` is not the path of a request.
    pub fn replaced_by(mut self, request: &Value) -> Result<Self, String> {
        let object = request.as_object().ok_or("the request is not a JSON object")?;
        for (name, value) in object {
            let text = || {
                value
                    .as_str()
                    .map(str::to_owned)
                    .ok_or(format!("`{name}` of the request: not a text"))
            };
            match name.as_str() {
                "method" => self.method = text()?,
                "path" => {
                    self.path = text()?;
                    request_path::check(&self.path)
                        .map_err(|why| format!("`path` of the request: {why}"))?;
                }
                "body" => self.body = value.clone(),
                _ => {
                    return Err(format!("unknown key `{name}` of the request: method, path, body"));
                }
            }
        }
        Ok(self)
    }

    /// The request of one attempt. `run` distinguishes the tasks of several checks.
    #[must_use]
    pub fn request(&self, run: &str, case: Case, attempt: u32, now: Timestamp) -> Value {
        let action = if case == Case::Undo { "undo" } else { "do" };
        let step = if case == Case::Item { "greet[3]" } else { "greet" };
        let task_id = task_id(run, case);
        let complete_by = if matches!(case, Case::Late | Case::LateRedriven) {
            now - Duration::from_secs(2)
        } else {
            later(now, case.complete_within() + self.slack)
        };
        let mut request = json!({
            "task_id": task_id, "step": step, "action": action, "attempt": attempt,
            "complete_by": complete_by, "idempotency_key": format!("{task_id}/{step}/{action}"),
            "call_within_ms": case.call_within().as_secs() * 1_000, "agent": self.agent,
            "method": self.method, "path": self.path, "body": self.body,
            "incarnation": now.as_millisecond(),
        });
        if let Value::Object(fields) = &mut request {
            for (name, value) in self.special_fields(case, attempt) {
                fields.insert(name.to_owned(), value);
            }
        }
        request
    }

    /// The fields in which the requests of a case differ from others.
    fn special_fields(&self, case: Case, attempt: u32) -> Vec<(&'static str, Value)> {
        let mut fields = Vec::new();
        if case.is_once() {
            fields.push(("idempotent", json!(false)));
        }
        if case.is_exclusive() {
            fields.push(("exclusive", json!(true)));
        }
        if case == Case::Signed {
            let aws = json!({ "service": "execute-api", "region": "us-east-1" });
            fields.push(("auth", json!({ "aws": aws })));
        }
        if case == Case::Selected {
            fields.push(("output", json!("${ response.status }")));
        }
        if case == Case::UnknownField {
            fields.push(("field_of_a_later_version", json!({ "a": [1, null] })));
        }
        if case == Case::LargeRequest {
            fields.push(("body", self.large_body()));
        }
        if case == Case::Refused {
            fields.push(("body", self.padded_body(PAYLOAD_MARK)));
        }
        if case == Case::Retry && attempt > 1 || case == Case::RefusedRetry {
            fields.push(("may_have_run", json!(true)));
        }
        fields
    }

    /// The body, filled up to the maximum size of path and body.
    fn large_body(&self) -> Value {
        let size = self.path.len() + self.body.to_string().len() + r#","padding":"""#.len();
        let padding = PAYLOAD_MARK.repeat(limits::DOCUMENT_BYTES_MAX / PAYLOAD_MARK.len());
        let padding = padding.get(..limits::DOCUMENT_BYTES_MAX.saturating_sub(size));
        self.padded_body(padding.unwrap_or_default())
    }

    /// The body with another field, if it is an object.
    fn padded_body(&self, padding: &str) -> Value {
        let mut body = self.body.clone();
        if let Value::Object(fields) = &mut body {
            fields.insert("padding".to_owned(), json!(padding));
        }
        body
    }
}

/// The unreadable messages of [`Case::Batch`]: no JSON, a JSON object that is no request, and requests with an unknown action,
/// for another agent, with a field of the wrong type, and without a required field.
#[must_use]
pub fn poison(run: &str, template: &CheckRequest) -> Vec<String> {
    let task_id = unreadable_task(run);
    let request = |name: &str, value: Option<Value>| {
        let mut request = template.request(run, Case::Batch, 1, Timestamp::now());
        if let Value::Object(fields) = &mut request {
            fields.insert("idempotency_key".to_owned(), json!(format!("{task_id}/greet/{name}")));
            fields.insert("task_id".to_owned(), json!(task_id));
            match value {
                Some(value) => drop(fields.insert(name.to_owned(), value)),
                None => drop(fields.remove(name)),
            }
        }
        request.to_string()
    };
    vec![
        format!("{{ no JSON: {PAYLOAD_MARK} {run}"),
        json!({ "poison": format!("{PAYLOAD_MARK} {run}") }).to_string(),
        request("action", Some(json!("redo"))),
        request("agent", Some(json!("another-agent"))),
        request("attempt", Some(json!("1"))),
        request("step", None),
        request("complete_by", None),
        request("idempotency_key", None),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::case_of_key;

    #[test]
    fn requests_of_all_cases_obey_the_contract() {
        let template = CheckRequest::of_agent("a");
        for case in Case::ALL {
            let request = template.request("r1", case, 1, Timestamp::UNIX_EPOCH);
            steward_core::contract::check_request(&request).unwrap();
            let parsed: steward_core::model::messages::StepRequest =
                serde_json::from_value(request.clone()).unwrap();
            assert_eq!(case_of_key(&parsed.idempotency_key), Some(case));
            let body = parsed.body.unwrap().sqs_bytes() + parsed.path.len();
            assert!(body <= limits::DOCUMENT_BYTES_MAX, "{body}");
            let is_large = body > limits::DOCUMENT_BYTES_MAX - 100;
            assert_eq!(is_large, case == Case::LargeRequest, "{body}");
        }
    }

    #[test]
    fn a_request_of_the_author_is_read_strictly() {
        let template = || CheckRequest::of_agent("a");
        let given = template().replaced_by(&json!({ "path": "/x", "body": [1] })).unwrap();
        assert_eq!((given.path.as_str(), given.method.as_str()), ("/x", "POST"));
        for wrong in
            [json!([]), json!({ "path": 1 }), json!({ "path": "/a/../b" }), json!({ "paht": "/x" })]
        {
            template().replaced_by(&wrong).unwrap_err();
        }
    }
}
