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
//! 409 and 423 are special because a service that follows the IETF draft on the `Idempotency-Key` header responds with
//! 409 while a request with the same key is in progress. That response leaves open how the call in progress will end,
//! so it never proves that the step did not run.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

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
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    try_from = "Option<BTreeMap<String, ResponseClass>>",
    into = "BTreeMap<String, ResponseClass>"
)]
pub struct ResponseOverrides(BTreeMap<u16, ResponseClass>);

impl ResponseOverrides {
    /// No overrides: every status has its default meaning.
    pub const NONE: Self = Self(BTreeMap::new());

    /// Whether every status has its default meaning.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The overridden statuses and their classes, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = (u16, ResponseClass)> {
        self.0.iter().map(|(status, class)| (*status, *class))
    }

    /// The class that overrides the default of this status, if there is one.
    #[must_use]
    pub fn overridden(&self, status: u16) -> Option<ResponseClass> {
        self.0.get(&status).copied()
    }

    /// The meaning of a response with this status.
    #[must_use]
    pub fn classify(&self, status: u16) -> ClassifiedResponse {
        let default = default_meaning(status);
        match self.0.get(&status) {
            None => default,
            Some(ResponseClass::Completed) => ClassifiedResponse::Completed,
            Some(ResponseClass::Failed) => ClassifiedResponse::Failed,
            Some(ResponseClass::Unknown) => ClassifiedResponse::Unknown,
            Some(ResponseClass::Retry) => {
                let did_not_run = ClassifiedResponse::Retry { may_have_run: false };
                ClassifiedResponse::Retry { may_have_run: default != did_not_run }
            }
        }
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

impl TryFrom<Option<BTreeMap<String, ResponseClass>>> for ResponseOverrides {
    type Error = InvalidHttpStatus;

    fn try_from(
        definition: Option<BTreeMap<String, ResponseClass>>,
    ) -> Result<Self, InvalidHttpStatus> {
        let statuses = definition.unwrap_or_default().into_iter().map(|(key, class)| {
            let digits = key.len() == 3 && key.bytes().all(|byte| byte.is_ascii_digit());
            let status = key.parse().ok().filter(|status| digits && (100..600).contains(status));
            Ok((status.ok_or(InvalidHttpStatus(key))?, class))
        });
        statuses.collect::<Result<_, _>>().map(Self)
    }
}

impl From<ResponseOverrides> for BTreeMap<String, ResponseClass> {
    fn from(responses: ResponseOverrides) -> Self {
        responses.0.into_iter().map(|(status, class)| (status.to_string(), class)).collect()
    }
}

impl FromIterator<(u16, ResponseClass)> for ResponseOverrides {
    fn from_iter<I: IntoIterator<Item = (u16, ResponseClass)>>(statuses: I) -> Self {
        Self(statuses.into_iter().collect())
    }
}

impl JsonSchema for ResponseOverrides {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Responses".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let class: Value = generator.subschema_for::<ResponseClass>().into();
        schemars::json_schema!({
            "type": "object",
            "description": "HTTP statuses whose meaning differs from the default, such as `404: completed`",
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
