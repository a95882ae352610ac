//! An operation of an AWS API by its name, such as `dynamodb:PutItem`: the key `aws` of a request. On its way to the agent it
//! is the path of the request, like the name of a function or a queue:
//!
//! ```text
//! { aws: dynamodb:PutItem }                          POST /dynamodb:PutItem
//! { aws: batch:SubmitJob, path: /v1/submitjob }      POST /batch:SubmitJob/v1/submitjob
//! ```

use std::{fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::limits::NAME_CHARS_MAX;

/// The form of an action, as a regular expression.
const PATTERN: &str = "^[a-z][a-z0-9-]*:[A-Z][A-Za-z0-9]*$";

/// An operation of an AWS API: the service's prefix in IAM actions, `:`, and the name of the operation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(
    with = "String",
    description = "the prefix of a service in IAM, `:` and an operation, such as `dynamodb:PutItem`",
    extend("pattern" = PATTERN)
)]
pub struct AwsAction {
    service: String,
    operation: String,
}

/// A text is no [`AwsAction`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an action of AWS, such as `dynamodb:PutItem`")]
pub struct InvalidAwsAction(String);

impl FromStr for AwsAction {
    type Err = InvalidAwsAction;

    fn from_str(text: &str) -> Result<Self, InvalidAwsAction> {
        Self::parse(text).ok_or_else(|| InvalidAwsAction(text.to_owned()))
    }
}

impl TryFrom<String> for AwsAction {
    type Error = InvalidAwsAction;

    fn try_from(text: String) -> Result<Self, InvalidAwsAction> {
        text.parse()
    }
}

impl From<AwsAction> for String {
    fn from(action: AwsAction) -> Self {
        action.to_string()
    }
}

impl fmt::Display for AwsAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.service, self.operation)
    }
}

impl AwsAction {
    fn parse(text: &str) -> Option<Self> {
        let (service, operation) = text.split_once(':')?;
        let is_service = service.starts_with(|c: char| c.is_ascii_lowercase())
            && service.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        let is_operation = operation.starts_with(|c: char| c.is_ascii_uppercase())
            && operation.bytes().all(|b| b.is_ascii_alphanumeric());
        let fits = service.len().max(operation.len()) <= NAME_CHARS_MAX;
        (is_service && is_operation && fits)
            .then(|| Self { service: service.to_owned(), operation: operation.to_owned() })
    }

    /// The prefix of the service in IAM actions, such as `dynamodb`.
    #[must_use]
    pub fn service(&self) -> &str {
        &self.service
    }

    /// The name of the operation, such as `PutItem`.
    #[must_use]
    pub fn operation(&self) -> &str {
        &self.operation
    }

    /// The path of a request that calls the operation. `path` is the operation's own path, if its service has paths.
    #[must_use]
    pub fn request_path(&self, path: &str) -> String {
        format!("/{self}{path}")
    }

    /// The action that the path of a request names, and the operation's own path: the inverse of [`Self::request_path`].
    #[must_use]
    pub fn of_request_path(path: &str) -> Option<(Self, &str)> {
        let rest = path.strip_prefix('/')?;
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (action, path) = rest.split_at_checked(end)?;
        Some((Self::parse(action)?, path))
    }
}

#[cfg(test)]
mod tests {
    use regex::Regex;

    use super::*;

    #[test]
    fn an_action_is_a_service_and_an_operation() {
        let pattern = Regex::new(PATTERN).unwrap();
        for text in
            ["dynamodb:PutItem", "cognito-idp:AdminGetUser", "ec2:DescribeInstances", "s3:X2"]
        {
            assert_eq!(text.parse::<AwsAction>().unwrap().to_string(), text);
            assert!(pattern.is_match(text));
        }
        for text in [
            "dynamodb",
            "PutItem",
            "dynamodb:putItem",
            "DynamoDB:PutItem",
            "sqs:",
            ":A",
            "a:B*",
            "a:B:C",
            "a b:C",
        ] {
            let error = text.parse::<AwsAction>().unwrap_err().to_string();
            assert_eq!(
                error,
                format!("`{text}` is not an action of AWS, such as `dynamodb:PutItem`")
            );
            assert!(!pattern.is_match(text));
        }
        assert!(format!("a:B{}", "c".repeat(NAME_CHARS_MAX)).parse::<AwsAction>().is_err());
    }

    #[test]
    fn the_path_of_a_request_names_the_action_and_the_path_of_the_operation() {
        for (action, path) in [
            ("dynamodb:PutItem", ""),
            ("batch:SubmitJob", "/v1/submitjob"),
            ("lambda:InvokeFunction", "/2015-03-31/functions/a:b/invocations?Qualifier=live"),
        ] {
            let action: AwsAction = action.parse().unwrap();
            let of_request = action.request_path(path);
            assert_eq!(AwsAction::of_request_path(&of_request), Some((action, path)));
        }
        for other in ["/", "/orders", "/charge:live", "dynamodb:PutItem", "/v1/dynamodb:PutItem"] {
            assert_eq!(AwsAction::of_request_path(other), None, "{other}");
        }
    }
}
