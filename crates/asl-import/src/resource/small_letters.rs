//! APIs of AWS whose members begin with a small letter, as `jobName`, and in Step Functions with a capital one, as `JobName`.
//! Facts: the API references of AWS Batch, CodeBuild and ECS.

use indexmap::IndexMap;

use super::call::ResultShape;
use crate::symbol::Symbol;

/// The services. They have the same names in IAM.
pub(super) const SERVICES: [&str; 3] = ["batch", "codebuild", "ecs"];

/// Members whose own members have names that users give.
const WITH_OWN_NAMES: [&str; 3] = ["DockerLabels", "Parameters", "Tags"];

/// Members that have others: their names cannot be changed if they are known only when the task runs.
const WITH_MEMBERS: [&str; 10] = [
    "ArrayProperties",
    "ContainerOverrides",
    "DependsOn",
    "Environment",
    "EnvironmentVariablesOverride",
    "NetworkConfiguration",
    "Overrides",
    "ResourceRequirements",
    "RetryStrategy",
    "Timeout",
];

/// The path of an operation. Only Batch has a REST API.
pub(super) fn path(service: &str, action: &str) -> String {
    match service {
        "batch" => format!("/v1/{}", action.to_ascii_lowercase()),
        _ => "/".to_owned(),
    }
}

/// The result of the state, given the response to this operation.
pub(super) fn result(action: &str) -> ResultShape {
    ResultShape::Members(match action {
        "SubmitJob" => &["JobArn", "JobId", "JobName"],
        _ => &[],
    })
}

/// A name that begins with a small letter.
pub(super) fn small(name: &str) -> String {
    let mut chars = name.chars();
    chars.next().map(|first| first.to_ascii_lowercase()).into_iter().chain(chars).collect()
}

/// The parameters with the names of the API.
pub(super) fn members(parameters: &Symbol, decisions: &mut Vec<String>) -> Symbol {
    match parameters {
        Symbol::Object { fields, open } => {
            let mut renamed = IndexMap::new();
            for (name, value) in fields {
                let is_known = matches!(
                    value,
                    Symbol::Object { .. }
                        | Symbol::List(_)
                        | Symbol::Scalar(_)
                        | Symbol::Deployed(_)
                );
                if WITH_MEMBERS.contains(&name.as_str()) && !is_known {
                    decisions.push(format!(
                        "`{name}` is known only when the task runs: the names in it must begin with a small letter there"
                    ));
                }
                let value = match WITH_OWN_NAMES.contains(&name.as_str()) {
                    true => value.clone(),
                    false => members(value, decisions),
                };
                renamed.insert(small(name), value);
            }
            Symbol::Object { fields: renamed, open: open.clone() }
        }
        Symbol::List(items) => {
            Symbol::List(items.iter().map(|item| members(item, decisions)).collect())
        }
        Symbol::Scalar(_)
        | Symbol::Cel(_)
        | Symbol::Merged { .. }
        | Symbol::Either { .. }
        | Symbol::Maybe { .. }
        | Symbol::Deployed(_)
        | Symbol::Unknown(_) => parameters.clone(),
    }
}
