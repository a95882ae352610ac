//! What the HTTP status of a service's response says about a step: one table, which the key
//! `responses` of a step or an undo overrides status by status.
//!
//! | status | class | may the step have run? | the circuit breaker |
//! | --- | --- | --- | --- |
//! | 2xx | `completed` | it has run | counts a success |
//! | 3xx, 1xx | `unknown` | yes: a POST that is answered by a redirect has often been carried out | counts a success |
//! | 408 | `retry` | yes | counts a success |
//! | 409, 423 | `retry` of an undo, and while an earlier call with the same idempotency key may be running, else `unknown` | yes | counts a success |
//! | 425, 429 | `retry` | no: the service refused to begin | counts a success |
//! | every other 4xx | `failed` | no | counts a success |
//! | 5xx | `retry` | yes | counts a failure, unless there is `Retry-After` |
//!
//! A class that `responses` gives to a status:
//!
//! | class | what the agent does | may the step have run? |
//! | --- | --- | --- |
//! | `completed` | replies that the step completed | it has run |
//! | `failed` | replies with a permanent failure | no, unless an earlier call may have run |
//! | `retry` | repeats the call; of a step that is not idempotent as `unknown` | yes; no for 425 and 429 |
//! | `unknown` | replies with a permanent failure | yes |
//!
//! Why 409 and 423 are special: a service that follows the IETF draft on the `Idempotency-Key` header
//! answers 409 while a request with the same key is in progress. That answer says nothing about the
//! call that is in progress, so it never proves that the step did not run.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What a response says about its step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResponseClass {
    /// The step is done.
    Completed,
    /// The service refused, and the step did not run. The same again would be refused again.
    Failed,
    /// The same again may succeed.
    Retry,
    /// The same again would not help, and the step may have run.
    Unknown,
}

/// What a status says about its step, with what the default table knows beyond its class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseMeaning {
    /// The step is done.
    Completed,
    /// The service refused, and the step did not run.
    Failed,
    /// The same again may succeed.
    Retry {
        /// Whether the call may have taken effect nonetheless.
        may_have_run: bool,
    },
    /// An earlier call with the same idempotency key may be in progress; if there is none, the outcome
    /// is unknown.
    Conflict,
    /// The same again would not help, and the step may have run.
    Unknown,
}

/// The statuses that a step's definition classifies itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    try_from = "Option<BTreeMap<String, ResponseClass>>",
    into = "BTreeMap<String, ResponseClass>"
)]
pub struct Responses(BTreeMap<u16, ResponseClass>);

impl Responses {
    /// Every status means what it means by default.
    pub const NONE: Self = Self(BTreeMap::new());

    /// Whether every status means what it means by default.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The statuses that are classified here, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u16, ResponseClass)> {
        self.0.iter().map(|(status, class)| (*status, *class))
    }

    /// What a response with this status says about its step.
    #[must_use]
    pub fn meaning(&self, status: u16) -> ResponseMeaning {
        let default = by_default(status);
        match self.0.get(&status) {
            None => default,
            Some(ResponseClass::Completed) => ResponseMeaning::Completed,
            Some(ResponseClass::Failed) => ResponseMeaning::Failed,
            Some(ResponseClass::Unknown) => ResponseMeaning::Unknown,
            Some(ResponseClass::Retry) => {
                let did_not_run = ResponseMeaning::Retry { may_have_run: false };
                ResponseMeaning::Retry { may_have_run: default != did_not_run }
            }
        }
    }
}

/// The first table of this file.
fn by_default(status: u16) -> ResponseMeaning {
    match status {
        200..300 => ResponseMeaning::Completed,
        409 | 423 => ResponseMeaning::Conflict,
        425 | 429 => ResponseMeaning::Retry { may_have_run: false },
        408 | 500..600 => ResponseMeaning::Retry { may_have_run: true },
        400..500 => ResponseMeaning::Failed,
        _ => ResponseMeaning::Unknown,
    }
}

/// A key of `responses` that is no status.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an HTTP status, a number from 100 to 599")]
pub struct NotAStatus(String);

impl TryFrom<Option<BTreeMap<String, ResponseClass>>> for Responses {
    type Error = NotAStatus;

    fn try_from(said: Option<BTreeMap<String, ResponseClass>>) -> Result<Self, NotAStatus> {
        let said = said.unwrap_or_default().into_iter();
        let statuses = said.map(|(key, class)| {
            let digits = key.len() == 3 && key.bytes().all(|byte| byte.is_ascii_digit());
            let status = key.parse().ok().filter(|status| digits && (100..600).contains(status));
            Ok((status.ok_or(NotAStatus(key))?, class))
        });
        statuses.collect::<Result<_, _>>().map(Self)
    }
}

impl From<Responses> for BTreeMap<String, ResponseClass> {
    fn from(responses: Responses) -> Self {
        responses.0.into_iter().map(|(status, class)| (status.to_string(), class)).collect()
    }
}

impl FromIterator<(u16, ResponseClass)> for Responses {
    fn from_iter<I: IntoIterator<Item = (u16, ResponseClass)>>(statuses: I) -> Self {
        Self(statuses.into_iter().collect())
    }
}

impl JsonSchema for Responses {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Responses".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let class: Value = generator.subschema_for::<ResponseClass>().into();
        schemars::json_schema!({
            "type": "object",
            "description": "What HTTP statuses mean, as `404: completed`",
            "patternProperties": { "^[1-5][0-9]{2}$": class },
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
        use ResponseMeaning::{Completed, Conflict, Failed, Retry, Unknown};
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
                assert_eq!(Responses::NONE.meaning(status), meaning, "{status}");
            }
        }
    }

    #[test]
    fn a_step_classifies_statuses_itself() {
        let said = json!({ "404": "completed", "409": "failed", "422": "retry", "429": "retry" });
        let responses: Responses = serde_json::from_value(said.clone()).unwrap();
        assert_eq!(responses.meaning(404), ResponseMeaning::Completed);
        assert_eq!(responses.meaning(409), ResponseMeaning::Failed);
        assert_eq!(responses.meaning(422), ResponseMeaning::Retry { may_have_run: true });
        assert_eq!(responses.meaning(429), ResponseMeaning::Retry { may_have_run: false });
        assert_eq!(responses.meaning(423), ResponseMeaning::Conflict);
        assert_eq!(serde_json::to_value(&responses).unwrap(), said);
    }

    #[test]
    fn a_key_that_is_no_status_is_refused() {
        for key in ["99", "600", "4xx", "+40", "0404", ""] {
            let error = serde_json::from_value::<Responses>(json!({ key: "failed" })).unwrap_err();
            let expected = format!("`{key}` is not an HTTP status, a number from 100 to 599");
            assert_eq!(error.to_string(), expected);
        }
        assert!(serde_json::from_value::<Responses>(json!({ "404": "done" })).is_err());
    }
}
