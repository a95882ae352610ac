//! The AWS resources that an agent may call: its targets. The path of a request names one of them, as `/NAME`, or `/` if
//! there is only one.

use std::fmt;

/// The name of an AWS resource, such as `arn:aws:sqs:eu-west-1:123456789012:orders`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arn {
    text: String,
    partition: String,
    /// The service's name, which is also its name in signatures.
    pub(crate) service: String,
    /// The region.
    pub(crate) region: String,
    /// The account.
    pub(crate) account: String,
    /// The last part: `orders`, `function:charge`, `event-bus/orders`.
    resource: String,
}

/// The text is not the ARN of a target.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTarget {
    /// It is not an ARN at all, or not of this kind.
    #[error("target `{arn}` is not the ARN of {expected}, such as `{example}`")]
    OtherKind {
        /// The text.
        arn: String,
        /// The kind of resource that the agent calls.
        expected: &'static str,
        /// A valid ARN.
        example: &'static str,
    },
    /// There is none.
    #[error("an agent of this kind needs at least one target: the ARN of {0}")]
    None(&'static str),
    /// Two targets have the same name, so a path could not tell them apart.
    #[error("two targets have the name `{0}`")]
    Twice(String),
}

/// A kind of resource that agents call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TargetKind {
    /// The service in the ARN.
    pub(crate) service: &'static str,
    /// What precedes the name in the last part of the ARN.
    pub(crate) prefix: &'static str,
    /// For errors: `a Lambda function`.
    pub(crate) noun: &'static str,
    /// For errors.
    pub(crate) example: &'static str,
}

impl Arn {
    /// `None` if the text is not the ARN of one resource with a region and an account.
    fn parse(text: &str) -> Option<Self> {
        let parts: Vec<_> = text.splitn(6, ':').collect();
        let ["arn", partition, service, region, account, resource] = parts.as_slice() else {
            return None;
        };
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:$".contains(&byte);
        let is_given = [partition, service, region, account, resource]
            .iter()
            .all(|part| !part.is_empty() && part.bytes().all(is_plain));
        if !is_given || !account.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        Some(Self {
            text: text.to_owned(),
            partition: (*partition).to_owned(),
            service: (*service).to_owned(),
            region: (*region).to_owned(),
            account: (*account).to_owned(),
            resource: (*resource).to_owned(),
        })
    }
}

impl fmt::Display for Arn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Arn {
    /// The endpoint of the resource's service and region.
    pub(crate) fn endpoint(&self) -> String {
        let suffix = if self.partition == "aws-cn" { "amazonaws.com.cn" } else { "amazonaws.com" };
        format!("https://{}.{}.{suffix}", self.service, self.region)
    }

    /// The name of the resource, without the prefix of its kind.
    pub(crate) fn name(&self, kind: TargetKind) -> Option<&str> {
        let name = self.resource.strip_prefix(kind.prefix)?;
        (self.service == kind.service && !name.is_empty()).then_some(name)
    }
}

/// The targets of an agent, with the names that paths have for them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Targets(Vec<(String, Arn)>);

/// The path of a request names no target.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the request's path is not the name of a target of this agent, one of {0}")]
pub(crate) struct UnknownTarget(String);

impl Targets {
    /// Parses the ARNs of resources of one kind.
    pub(crate) fn parse(arns: &[String], kind: TargetKind) -> Result<Self, InvalidTarget> {
        let mut targets: Vec<(String, Arn)> = Vec::new();
        for text in arns {
            let arn = Arn::parse(text);
            let target = arn.and_then(|arn| Some((arn.name(kind)?.to_owned(), arn)));
            let Some((name, arn)) = target else {
                let TargetKind { noun: expected, example, .. } = kind;
                return Err(InvalidTarget::OtherKind { arn: text.clone(), expected, example });
            };
            if targets.iter().any(|(other, _)| *other == name) {
                return Err(InvalidTarget::Twice(name));
            }
            targets.push((name, arn));
        }
        match targets.is_empty() {
            true => Err(InvalidTarget::None(kind.noun)),
            false => Ok(Self(targets)),
        }
    }

    /// The target that a path names: `/NAME`, or `/` for the only one.
    pub(crate) fn of_path(&self, path: &str) -> Result<&Arn, UnknownTarget> {
        let Self(targets) = self;
        if let ([(_, only)], "/") = (targets.as_slice(), path) {
            return Ok(only);
        }
        let named = targets.iter().find(|(name, _)| path.strip_prefix('/') == Some(name.as_str()));
        let paths = || {
            let paths = targets.iter().map(|(name, _)| format!("`/{name}`"));
            UnknownTarget(paths.collect::<Vec<_>>().join(", "))
        };
        named.map(|(_, arn)| arn).ok_or_else(paths)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUEUES: TargetKind =
        TargetKind { service: "sqs", prefix: "", noun: "an SQS queue", example: "arn:…" };
    const FUNCTIONS: TargetKind = TargetKind {
        service: "lambda",
        prefix: "function:",
        noun: "a Lambda function",
        example: "arn:…",
    };

    fn targets(kind: TargetKind, arns: &[&str]) -> Result<Targets, InvalidTarget> {
        let arns: Vec<_> = arns.iter().map(|arn| (*arn).to_owned()).collect();
        Targets::parse(&arns, kind)
    }

    #[test]
    fn a_path_names_a_target() {
        let one = "arn:aws:sqs:eu-west-1:123456789012:orders";
        let other = "arn:aws-cn:sqs:cn-north-1:123456789012:mails.fifo";
        let only = targets(QUEUES, &[one]).unwrap();
        assert_eq!(only.of_path("/").unwrap().to_string(), one);
        assert_eq!(only.of_path("/orders").unwrap().to_string(), one);
        let both = targets(QUEUES, &[one, other]).unwrap();
        assert_eq!(both.of_path("/mails.fifo").unwrap().to_string(), other);
        for path in ["/", "/order", "orders", "/orders/", "/orders?a=1", "/a/../orders"] {
            let error = both.of_path(path).unwrap_err().to_string();
            assert!(error.ends_with("one of `/orders`, `/mails.fifo`"), "{error}");
        }
        let endpoint = |path| both.of_path(path).unwrap().endpoint();
        assert_eq!(endpoint("/orders"), "https://sqs.eu-west-1.amazonaws.com");
        assert_eq!(endpoint("/mails.fifo"), "https://sqs.cn-north-1.amazonaws.com.cn");
    }

    #[test]
    fn a_function_may_have_a_qualifier() {
        let arn = "arn:aws:lambda:eu-west-1:123456789012:function:charge";
        let versions = targets(FUNCTIONS, &[arn, &format!("{arn}:live")]).unwrap();
        assert_eq!(versions.of_path("/charge").unwrap().to_string(), arn);
        assert_eq!(versions.of_path("/charge:live").unwrap().to_string(), format!("{arn}:live"));
    }

    #[test]
    fn targets_of_another_kind_wildcards_and_duplicates_are_refused() {
        let of_another_kind = [
            "orders",
            "arn:aws:sqs:eu-west-1:123456789012:*",
            "arn:aws:sqs:eu-west-1:123456789012:",
            "arn:aws:sqs:*:123456789012:orders",
            "arn:aws:sns:eu-west-1:123456789012:orders",
            "arn:aws:sqs:eu-west-1:me:orders",
            "arn:aws:sqs::123456789012:orders",
        ];
        for arn in of_another_kind {
            let error = targets(QUEUES, &[arn]).unwrap_err().to_string();
            let expected = format!("target `{arn}` is not the ARN of an SQS queue");
            assert!(error.starts_with(&expected), "{error}");
        }
        let error = targets(FUNCTIONS, &["arn:aws:lambda:eu-west-1:123456789012:layer:x"]);
        assert!(matches!(error, Err(InvalidTarget::OtherKind { .. })));
        assert_eq!(targets(QUEUES, &[]), Err(InvalidTarget::None("an SQS queue")));
        let twice = ["arn:aws:sqs:eu-west-1:1:orders", "arn:aws:sqs:us-east-1:1:orders"];
        assert_eq!(targets(QUEUES, &twice), Err(InvalidTarget::Twice("orders".to_owned())));
    }
}
