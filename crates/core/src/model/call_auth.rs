//! How an agent authenticates a call to its remote service, beside the headers of its configuration: the key `auth` of
//! a request, and the setting of an agent.
//!
//! ```text
//! auth: aws                                            service and region follow from the host of the URL
//! auth: { aws: { service: s3, region: eu-west-1 } }    for other hosts
//! ```

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::model::names::AwsName;

/// How an agent authenticates a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "WrittenAuth", into = "WrittenAuth")]
pub enum CallAuth {
    /// By a signature with the agent's own AWS credentials (Signature Version 4).
    Aws(AwsScope),
}

/// What an AWS signature is valid for. The agent derives an absent part from the host of the URL.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AwsScope {
    /// The name of the service in signatures, such as `execute-api`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<AwsName>,
    /// The region.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<AwsName>,
}

/// The two ways to write a [`CallAuth`].
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
enum WrittenAuth {
    Name(AuthName),
    Scoped(ScopedAuth),
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum AuthName {
    Aws,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ScopedAuth {
    aws: AwsScope,
}

impl From<WrittenAuth> for CallAuth {
    fn from(written: WrittenAuth) -> Self {
        match written {
            WrittenAuth::Name(AuthName::Aws) => Self::Aws(AwsScope::default()),
            WrittenAuth::Scoped(ScopedAuth { aws }) => Self::Aws(aws),
        }
    }
}

impl From<CallAuth> for WrittenAuth {
    fn from(CallAuth::Aws(scope): CallAuth) -> Self {
        match scope {
            AwsScope { service: None, region: None } => Self::Name(AuthName::Aws),
            aws @ AwsScope { .. } => Self::Scoped(ScopedAuth { aws }),
        }
    }
}

impl JsonSchema for CallAuth {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "CallAuth".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        WrittenAuth::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn both_ways_to_write_it_are_read_and_written_back() {
        for text in [
            json!("aws"),
            json!({ "aws": { "service": "s3" } }),
            json!({ "aws": { "service": "s3", "region": "eu-west-1" } }),
        ] {
            let auth: CallAuth = serde_json::from_value(text.clone()).unwrap();
            assert_eq!(serde_json::to_value(&auth).unwrap(), text);
        }
        let CallAuth::Aws(scope) = serde_json::from_value(json!({ "aws": {} })).unwrap();
        assert_eq!(scope, AwsScope::default());
    }

    #[test]
    fn nothing_else_is_an_auth() {
        let wrong = [
            json!("awz"),
            json!({ "aws": { "region": "EU" } }),
            json!({ "aws": { "regoin": "eu-west-1" } }),
            json!({ "basic": {} }),
            Value::Null,
        ];
        for wrong in wrong {
            assert!(serde_json::from_value::<CallAuth>(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
