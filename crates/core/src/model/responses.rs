//! The meaning of HTTP statuses for a step. This table has the defaults. The key `responses` of a step or an undo
//! overrides individual statuses.
//!
//! | status | class | may the step have run? | the circuit breaker |
//! | --- | --- | --- | --- |
//! | 2xx | `completed` | it has run | counts a success |
//! | 3xx, 1xx | `unknown` | yes: a service often carries out a POST before it responds with a redirect | counts a success |
//! | 408 | `retry` | yes | counts a success |
//! | 409, 423 | `retry` of an undo, and while an earlier call with the same idempotency key may be running, else `unknown` | yes | counts a success |
//! | 425, 429 | `retry` | no: the service refused the request before it began | counts a success |
//! | every other 4xx | `failed` | no | counts a success |
//! | 5xx | `retry` | yes | counts a failure, unless there is `Retry-After` |
//!
//! The classes that `responses` can assign to a status:
//!
//! | class | what the agent does | may the step have run? |
//! | --- | --- | --- |
//! | `completed` | replies that the step completed | it has run |
//! | `failed` | replies with a permanent failure | no, unless an earlier call may have run |
//! | `retry` | retries the call; if the step is not idempotent, the same as `unknown` | yes; no for 425 and 429 |
//! | `unknown` | replies with a permanent failure | yes |
//!
//! A status may have several cases in place of one class: a condition over the response, and the class if it is true.
//!
//! 409 and 423 are special because a service that follows the IETF draft on the `Idempotency-Key` header responds with
//! 409 while a request with the same key is in progress. That response leaves open how the call in progress will end,
//! so it never proves that the step did not run.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    definition::duration,
    expression::{
        scope::Scope,
        template::Template,
        uses::{PathKey, ValueKind, ValueUse},
    },
    model::time::later,
};

/// The class that a definition assigns to an HTTP status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResponseClass {
    /// The step completed.
    Completed,
    /// The service refused the request, and the step did not run. A retry would be refused too.
    Failed,
    /// A retry may succeed.
    Retry,
    /// A retry would not help, and the step may have run.
    Unknown,
}

/// The meaning of a response for its step. It has more detail than a [`ResponseClass`], from the default table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClassifiedResponse {
    /// The step completed.
    Completed,
    /// The service refused the request, and the step did not run.
    Failed,
    /// A retry may succeed.
    Retry {
        /// Whether the call may have taken effect nevertheless.
        may_have_run: bool,
    },
    /// An earlier call with the same idempotency key may be in progress. If there is none, the outcome is unknown.
    Conflict,
    /// A retry would not help, and the step may have run.
    Unknown,
}

/// The HTTP statuses whose meaning a step's definition overrides.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(
    try_from = "Option<BTreeMap<String, StatusMeaning>>",
    into = "BTreeMap<String, StatusMeaning>"
)]
pub struct ResponseOverrides(BTreeMap<u16, StatusMeaning>);

/// What a status means: the same for each response, or judged by what the response says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum StatusMeaning {
    /// The same for each response.
    Class(ResponseClass),
    /// The first case that matches. If none does, the default meaning of the status.
    Cases(Vec<ResponseCase>),
}

/// A case of a status.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResponseCase {
    /// The case matches if this expression is true; one that cannot be evaluated is not. It reads `response`, as an `output`
    /// does. If absent, the case matches each response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<Template>,
    /// The class of the response.
    pub class: ResponseClass,
    /// With the class `retry`: the service says that it did not begin the call, as with 429.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub did_not_run: bool,
    /// With the class `retry`: the pause before the next call, in seconds, or a duration such as `90s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Template>,
    /// With the class `retry`: the time before which there is no call, in seconds since 1970, or as `2026-11-20T12:00:00Z`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Template>,
}

/// What one response means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseMeaning {
    /// The meaning for the step.
    pub class: ClassifiedResponse,
    /// The pause that the response asks for, by the definition of the step.
    pub pause: Option<Duration>,
}

impl ResponseCase {
    /// The templates of the case, with their keys.
    pub fn templates(&self) -> impl Iterator<Item = (&'static str, &Template)> {
        let keys = [("when", &self.when), ("after", &self.after), ("until", &self.until)];
        keys.into_iter().filter_map(|(key, template)| Some((key, template.as_ref()?)))
    }

    /// Keys that have no effect, because the class is not `retry`.
    pub fn keys_without_effect(&self) -> impl Iterator<Item = &'static str> {
        let is_idle = self.class != ResponseClass::Retry;
        let keys = [
            ("did_not_run", self.did_not_run),
            ("after", self.after.is_some()),
            ("until", self.until.is_some()),
        ];
        keys.into_iter().filter_map(move |(key, given)| (is_idle && given).then_some(key))
    }

    /// Keys whose value is no expression and not valid, with what it must be.
    pub fn invalid_literals(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let literal = |template: &Option<Template>| template.as_ref()?.as_literal().cloned();
        let after = literal(&self.after).is_some_and(|value| pause(&value).is_none());
        let until = literal(&self.until).is_some_and(|value| time(&value).is_none());
        let after = after.then_some(("after", "must be seconds, or a duration such as `90s`"));
        let until = until.then_some((
            "until",
            "must be seconds since 1970, or a time such as `2026-12-24T18:00:00Z`",
        ));
        after.into_iter().chain(until)
    }

    /// Whether the condition may read the body of the response.
    fn reads_body(&self) -> bool {
        let reads = |when: &Template| when.value_uses(ValueKind::Any).into_iter().any(is_of_body);
        self.when.as_ref().is_some_and(reads)
    }

    fn matches(&self, scope: Scope<'_>) -> bool {
        let is_true = |when: &Template| when.render(scope) == Ok(Value::Bool(true));
        self.when.as_ref().is_none_or(is_true)
    }

    fn pause(&self, scope: Scope<'_>, now: Timestamp) -> Option<Duration> {
        let value = |template: &Option<Template>| template.as_ref()?.render(scope).ok();
        let until = value(&self.until).and_then(|until| time(&until));
        let until = until.map(|until| Duration::try_from(until.duration_since(now)).ok());
        value(&self.after).and_then(|after| pause(&after)).max(until.flatten())
    }

    fn meaning(&self, default: ClassifiedResponse) -> ClassifiedResponse {
        match (self.class, self.did_not_run) {
            (ResponseClass::Retry, true) => DID_NOT_BEGIN,
            (class, _) => class.meaning(default),
        }
    }
}

/// Whether the value may be in the body of the response: it is not in the headers, and it is not the status.
fn is_of_body(value: ValueUse) -> bool {
    match value.path.as_slice() {
        [PathKey::Field(root), PathKey::Field(field), ..] if root == "response" => {
            !matches!(field.as_str(), "headers" | "status")
        }
        [PathKey::Field(root), ..] => root == "response",
        [PathKey::Element, ..] | [] => false,
    }
}

/// A number, also as text: headers are texts.
fn number(value: &Value) -> Option<f64> {
    let number = value.as_f64().or_else(|| value.as_str()?.trim().parse().ok())?;
    (number >= 0.0).then_some(number)
}

/// More seconds than a duration can hold are the longest one.
fn seconds_of(number: f64) -> Duration {
    Duration::try_from_secs_f64(number).unwrap_or(Duration::MAX)
}

fn pause(value: &Value) -> Option<Duration> {
    match number(value) {
        Some(seconds) => Some(seconds_of(seconds)),
        None => duration::parse(value.as_str()?).ok(),
    }
}

fn time(value: &Value) -> Option<Timestamp> {
    match number(value) {
        Some(seconds) => Some(later(Timestamp::UNIX_EPOCH, seconds_of(seconds))),
        None => value.as_str()?.parse().ok(),
    }
}

/// The service refused the request before it began.
const DID_NOT_BEGIN: ClassifiedResponse = ClassifiedResponse::Retry { may_have_run: false };

impl ResponseClass {
    /// The meaning of a class for a status with this default.
    fn meaning(self, default: ClassifiedResponse) -> ClassifiedResponse {
        match self {
            Self::Completed => ClassifiedResponse::Completed,
            Self::Failed => ClassifiedResponse::Failed,
            Self::Unknown => ClassifiedResponse::Unknown,
            Self::Retry => ClassifiedResponse::Retry { may_have_run: default != DID_NOT_BEGIN },
        }
    }
}

impl ResponseOverrides {
    /// No overrides: every status has its default meaning.
    pub const NONE: Self = Self(BTreeMap::new());

    /// Whether every status has its default meaning.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The overridden statuses and their meanings, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = (u16, &StatusMeaning)> {
        self.0.iter().map(|(status, meaning)| (*status, meaning))
    }

    /// These overrides, with others in place of those of the same statuses.
    #[must_use]
    pub fn with(mut self, others: impl IntoIterator<Item = (u16, StatusMeaning)>) -> Self {
        self.0.extend(others);
        self
    }

    /// Whether the step defines the meaning of this status.
    #[must_use]
    pub fn contains(&self, status: u16) -> bool {
        self.0.contains_key(&status)
    }

    /// Whether the meaning of this status depends on the response.
    #[must_use]
    pub fn is_conditional(&self, status: u16) -> bool {
        matches!(self.0.get(&status), Some(StatusMeaning::Cases(_)))
    }

    /// Whether a response with this status cannot be judged without its body. `response` is what expressions read, without the
    /// body.
    #[must_use]
    pub fn needs_body(&self, status: u16, response: &Value) -> bool {
        let Some(StatusMeaning::Cases(cases)) = self.0.get(&status) else { return false };
        let scope = Scope { response: Some(response), ..Scope::default() };
        let judged = cases.iter().find(|case| case.reads_body() || case.matches(scope));
        judged.is_some_and(ResponseCase::reads_body)
    }

    /// The meaning of a response with this status that says nothing.
    #[must_use]
    pub fn classify(&self, status: u16) -> ClassifiedResponse {
        self.meaning(status, &Value::Null, Timestamp::UNIX_EPOCH).class
    }

    /// The meaning of a response with this status. `response` is what expressions read.
    #[must_use]
    pub fn meaning(&self, status: u16, response: &Value, now: Timestamp) -> ResponseMeaning {
        self.meaning_or(default_meaning(status), status, response, now)
    }

    /// The same, with another default meaning of this status.
    #[must_use]
    pub fn meaning_or(
        &self,
        default: ClassifiedResponse,
        status: u16,
        response: &Value,
        now: Timestamp,
    ) -> ResponseMeaning {
        let class_only = |class| ResponseMeaning { class, pause: None };
        let cases = match self.0.get(&status) {
            None => return class_only(default),
            Some(StatusMeaning::Class(class)) => return class_only(class.meaning(default)),
            Some(StatusMeaning::Cases(cases)) => cases,
        };
        let scope = Scope { response: Some(response), ..Scope::default() };
        let Some(case) = cases.iter().find(|case| case.matches(scope)) else {
            return class_only(default);
        };
        ResponseMeaning { class: case.meaning(default), pause: case.pause(scope, now) }
    }
}

/// The default meaning of a status: the first table of this file.
fn default_meaning(status: u16) -> ClassifiedResponse {
    match status {
        200..300 => ClassifiedResponse::Completed,
        409 | 423 => ClassifiedResponse::Conflict,
        425 | 429 => ClassifiedResponse::Retry { may_have_run: false },
        408 | 500..600 => ClassifiedResponse::Retry { may_have_run: true },
        400..500 => ClassifiedResponse::Failed,
        _ => ClassifiedResponse::Unknown,
    }
}

/// The error for a key of `responses` that is not an HTTP status.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an HTTP status, a number from 100 to 599")]
pub struct InvalidHttpStatus(String);

impl TryFrom<Option<BTreeMap<String, StatusMeaning>>> for ResponseOverrides {
    type Error = InvalidHttpStatus;

    fn try_from(
        definition: Option<BTreeMap<String, StatusMeaning>>,
    ) -> Result<Self, InvalidHttpStatus> {
        let statuses = definition.unwrap_or_default().into_iter().map(|(key, meaning)| {
            let digits = key.len() == 3 && key.bytes().all(|byte| byte.is_ascii_digit());
            let status = key.parse().ok().filter(|status| digits && (100..600).contains(status));
            Ok((status.ok_or(InvalidHttpStatus(key))?, meaning))
        });
        statuses.collect::<Result<_, _>>().map(Self)
    }
}

impl From<ResponseOverrides> for BTreeMap<String, StatusMeaning> {
    fn from(responses: ResponseOverrides) -> Self {
        responses.0.into_iter().map(|(status, meaning)| (status.to_string(), meaning)).collect()
    }
}

impl FromIterator<(u16, ResponseClass)> for ResponseOverrides {
    fn from_iter<I: IntoIterator<Item = (u16, ResponseClass)>>(statuses: I) -> Self {
        let class = |(status, class)| (status, StatusMeaning::Class(class));
        Self(statuses.into_iter().map(class).collect())
    }
}

impl JsonSchema for ResponseOverrides {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Responses".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let meaning: Value = generator.subschema_for::<StatusMeaning>().into();
        schemars::json_schema!({
            "type": "object",
            "description": "HTTP statuses whose meaning differs from the default, such as `404: completed`",
            "patternProperties": { "^[1-5][0-9]{2}$": meaning },
            "additionalProperties": false,
            "maxProperties": crate::limits::RESPONSES_MAX,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_status_has_the_meaning_of_the_documented_table() {
        use ClassifiedResponse::{Completed, Conflict, Failed, Retry, Unknown};
        let table = [
            (100..200, Unknown),
            (200..300, Completed),
            (300..400, Unknown),
            (400..408, Failed),
            (408..409, Retry { may_have_run: true }),
            (409..410, Conflict),
            (410..423, Failed),
            (423..424, Conflict),
            (424..425, Failed),
            (425..426, Retry { may_have_run: false }),
            (426..429, Failed),
            (429..430, Retry { may_have_run: false }),
            (430..500, Failed),
            (500..600, Retry { may_have_run: true }),
        ];
        for (statuses, meaning) in table {
            for status in statuses {
                assert_eq!(ResponseOverrides::NONE.classify(status), meaning, "{status}");
            }
        }
    }

    #[test]
    fn a_response_needs_its_body_if_a_condition_before_the_first_match_may_read_it() {
        let of_body = json!({ "when": "${ response.body.error }", "class": "retry" });
        let by_name = json!({ "when": "${ response[input.name] == 1 }", "class": "retry" });
        let whole = json!({ "when": "${ size(response) > 3 }", "class": "retry" });
        let presence = json!({ "when": "${ has(response.body) }", "class": "retry" });
        let header = json!({ "when": "${ response.headers['x-a'] == '1' }", "class": "retry" });
        let status = json!({ "when": "${ response.status == 200 }", "class": "completed" });
        let always = json!({ "class": "completed" });
        let response = json!({ "status": 200, "headers": {} });
        for (cases, needs_body) in [
            (json!([of_body]), true),
            (json!([by_name]), true),
            (json!([whole]), true),
            (json!([presence]), true),
            (json!([header]), false),
            (json!([header, of_body, always]), true),
            (json!([status, of_body]), false),
            (json!([always, of_body]), false),
            (json!("retry"), false),
        ] {
            let responses: ResponseOverrides =
                serde_json::from_value(json!({ "200": cases })).unwrap();
            assert_eq!(responses.needs_body(200, &response), needs_body, "{cases}");
            assert!(!responses.needs_body(201, &response));
        }
    }

    #[test]
    fn step_overrides_the_meaning_of_statuses() {
        let definition =
            json!({ "404": "completed", "409": "failed", "422": "retry", "429": "retry" });
        let responses: ResponseOverrides = serde_json::from_value(definition.clone()).unwrap();
        assert_eq!(responses.classify(404), ClassifiedResponse::Completed);
        assert_eq!(responses.classify(409), ClassifiedResponse::Failed);
        assert_eq!(responses.classify(422), ClassifiedResponse::Retry { may_have_run: true });
        assert_eq!(responses.classify(429), ClassifiedResponse::Retry { may_have_run: false });
        assert_eq!(responses.classify(423), ClassifiedResponse::Conflict);
        assert_eq!(serde_json::to_value(&responses).unwrap(), definition);
    }

    #[test]
    fn a_status_is_judged_by_what_the_response_says() {
        let reset = "${ response.headers['x-ratelimit-reset'] }";
        let responses: ResponseOverrides = serde_json::from_value(json!({
            "200": [{
                "when": "${ response.body.errors[0].code == 'THROTTLED' }",
                "class": "retry", "did_not_run": true, "after": "${ response.body.wait }",
            }],
            "403": [
                { "when": "${ 'later' in response.headers }", "class": "retry", "after": "90s" },
                {
                    "when": "${ response.headers['x-ratelimit-remaining'] == '0' }",
                    "class": "retry", "did_not_run": true, "until": reset,
                },
                { "class": "failed" },
            ],
            "409": [{ "when": "${ response.body.code == 'conflict' }", "class": "failed" }],
        }))
        .unwrap();
        let now = Timestamp::from_second(1_000).unwrap();
        let retry = |may_have_run| ClassifiedResponse::Retry { may_have_run };
        let throttled = json!({ "errors": [{ "code": "THROTTLED" }], "wait": 2.5 });
        let limited = json!({ "x-ratelimit-remaining": "0", "x-ratelimit-reset": "1060" });
        let past = json!({ "x-ratelimit-remaining": "0", "x-ratelimit-reset": "900" });
        for (status, headers, body, class, pause_ms) in [
            (200, json!({}), json!({ "data": 1 }), ClassifiedResponse::Completed, None),
            (200, json!({}), throttled, retry(false), Some(2_500)),
            (403, json!({ "later": "1" }), json!(null), retry(true), Some(90_000)),
            (403, limited, json!(null), retry(false), Some(60_000)),
            (403, past, json!(null), retry(false), None),
            (403, json!({}), json!(null), ClassifiedResponse::Failed, None),
            (409, json!({}), json!({ "code": "conflict" }), ClassifiedResponse::Failed, None),
            (409, json!({}), json!({ "code": "busy" }), ClassifiedResponse::Conflict, None),
        ] {
            let response = json!({ "status": status, "headers": headers, "body": body });
            let pause = pause_ms.map(Duration::from_millis);
            let expected = ResponseMeaning { class, pause };
            assert_eq!(responses.meaning(status, &response, now), expected, "{response}");
        }
        let long = json!({ "errors": [{ "code": "THROTTLED" }], "wait": "1e400" });
        let response = json!({ "status": 200, "headers": {}, "body": long });
        assert_eq!(responses.meaning(200, &response, now).pause, Some(Duration::MAX));
        // A response that says nothing.
        assert_eq!(responses.classify(200), ClassifiedResponse::Completed);
        assert_eq!(responses.classify(403), ClassifiedResponse::Failed);
        let written = serde_json::to_value(&responses).unwrap();
        assert_eq!(serde_json::from_value::<ResponseOverrides>(written).unwrap(), responses);
    }

    #[test]
    fn key_that_is_not_a_status_is_refused() {
        for key in ["99", "600", "4xx", "+40", "0404", ""] {
            let error =
                serde_json::from_value::<ResponseOverrides>(json!({ key: "failed" })).unwrap_err();
            let expected = format!("`{key}` is not an HTTP status, a number from 100 to 599");
            assert_eq!(error.to_string(), expected);
        }
        assert!(serde_json::from_value::<ResponseOverrides>(json!({ "404": "done" })).is_err());
    }
}
