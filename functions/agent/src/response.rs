//! The response of a remote service to a successful call, and the output of the step.

use reqwest::header::HeaderMap;
use serde_json::{Map, Value, json};
use steward_core::{
    engine::request::size_error,
    expression::{scope::Scope, template::Template},
};

use crate::{call_fault::CallFault, response_body::too_large, transport::unusable_response};

/// The response to a successful call.
#[derive(Debug, Clone, PartialEq)]
pub struct CallResponse {
    /// The HTTP status, 200 for a service that is not called by HTTP.
    pub status: u16,
    /// The HTTP headers.
    pub headers: HeaderMap,
    /// The body, or why there is none. Without an `output` in the request, it is the output of the step.
    pub body: Result<Value, CallFault>,
}

impl From<Value> for CallResponse {
    fn from(body: Value) -> Self {
        Self { status: 200, headers: HeaderMap::new(), body: Ok(body) }
    }
}

impl CallResponse {
    /// The output of the step: what `template` selects from the response, or the body.
    ///
    /// # Errors
    /// The template cannot be evaluated with this response, or its result is too large. The step has run, and a retry
    /// would fail too. Or the output needs the body, and there is none.
    pub fn output(self, template: Option<&Template>) -> Result<Value, CallFault> {
        let Some(template) = template else {
            let body = self.body?;
            return Ok(size_error("output", &body).map_or(body, |_| too_large()));
        };
        let output = self.select(template)?;
        match size_error("output", &output) {
            Some(reason) => Err(unusable_response(&reason)),
            None => Ok(output),
        }
    }

    fn select(self, template: &Template) -> Result<Value, CallFault> {
        let Self { status, headers, body } = self;
        let (body, missing) = match body {
            Ok(body) => (Some(body), None),
            Err(fault) => (None, Some(fault)),
        };
        let response = response_value(status, &headers, body);
        let scope = Scope { response: Some(&response), ..Scope::default() };
        template.render(scope).map_err(|error| {
            missing.unwrap_or_else(|| unusable_response(&format!("output: {error}")))
        })
    }
}

/// A response as expressions read it. Without a body, a template that reads it fails.
pub(crate) fn response_value(status: u16, headers: &HeaderMap, body: Option<Value>) -> Value {
    let mut response = json!({ "status": status, "headers": by_name(headers) });
    if let (Some(body), Some(fields)) = (body, response.as_object_mut()) {
        // Moved, because it may be large.
        fields.insert("body".to_owned(), body);
    }
    response
}

/// The headers by their names in lower case. Several values of one name are joined with `, ` (RFC 9110, 5.3). A value that
/// is not text is left out.
fn by_name(headers: &HeaderMap) -> Map<String, Value> {
    let values = |name| {
        let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        values.collect::<Vec<_>>().join(", ")
    };
    headers.keys().map(|name| (name.to_string(), values(name).into())).collect()
}

#[cfg(test)]
mod tests {
    use reqwest::header::{HeaderName, HeaderValue};
    use steward_core::{expression::scope::FIELDS, limits};

    use super::*;

    fn response(body: Value) -> CallResponse {
        let mut headers = HeaderMap::new();
        for (name, value) in [("etag", "v7"), ("link", "a"), ("link", "b")] {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        CallResponse { status: 201, headers, body: Ok(body) }
    }

    fn output(body: Value, template: Value) -> Result<Value, CallFault> {
        response(body).output(Some(&Template::parse(template)))
    }

    #[test]
    fn the_output_selects_from_body_headers_and_status() {
        let body = json!({ "items": [{ "id": "ch-1" }, { "id": "ch-2" }], "rest": "x" });
        assert_eq!(response(body.clone()).output(None), Ok(body.clone()));
        let first = output(body.clone(), json!("${ response.body.items[0] }"));
        assert_eq!(first, Ok(json!({ "id": "ch-1" })));
        let template = json!({
            "ids": "${ response.body.items.map(i, i.id) }", "etag": "${ response.headers.etag }",
            "links": "${ response.headers['link'] }", "status": "${ response.status }",
        });
        let expected =
            json!({ "ids": ["ch-1", "ch-2"], "etag": "v7", "links": "a, b", "status": 201 });
        assert_eq!(output(body, template), Ok(expected));
        let whole = output(json!(1), json!("${ response }")).unwrap();
        let (_, known) = FIELDS.into_iter().find(|(name, _)| *name == "response").unwrap();
        assert!(whole.as_object().unwrap().keys().eq(known));
    }

    #[test]
    fn an_output_that_cannot_be_selected_is_a_failure_of_a_step_that_has_run() {
        for (template, body) in [
            (json!("${ response.body.items[0] }"), json!({ "secret": "s3cret" })),
            (json!("${ response.body }"), json!("x".repeat(limits::DOCUMENT_BYTES_MAX))),
            (json!("${ input.amount }"), json!({})),
        ] {
            let Err(CallFault::Permanent { reason, may_have_run: true, .. }) =
                output(body, template.clone())
            else {
                panic!("{template}");
            };
            assert!(!reason.contains("s3cret"), "{reason}");
        }
    }

    /// `1e15` becomes `1000000000000000.0` in the message of the reply.
    #[test]
    fn a_body_that_is_too_large_in_the_reply_is_left_out_unless_an_output_selects_it() {
        let body = json!(vec![1e15; 7_000]);
        assert_eq!(response(body.clone()).output(None), Ok(json!({ "too_large": true })));
        let Err(CallFault::Permanent { reason, may_have_run: true, .. }) =
            output(body, json!("${ response.body }"))
        else {
            panic!("it is not refused");
        };
        assert_eq!(reason, "an output of 133001 bytes; the limit is 131072");
    }
}
