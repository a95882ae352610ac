//! APIs of AWS whose members begin with a small letter, as `jobName`, and in Step Functions with a capital one, as `JobName`.
//! Facts: the API references of AWS Batch, CodeBuild and ECS.

use super::call::ResultShape;
use crate::{names::small, symbol::Symbol};

/// The services. They have the same names in IAM.
pub(super) const SERVICES: [&str; 3] = ["batch", "codebuild", "ecs"];

/// Members whose own members have names that users give, if they are no list.
const WITH_OWN_NAMES: [&str; 9] = [
    "Annotations",
    "DockerLabels",
    "DriverOpts",
    "Labels",
    "Limits",
    "Options",
    "Parameters",
    "Requests",
    "Tags",
];

/// Members that are texts, numbers or lists of these, which may be known only when the task runs. The names in any other value
/// could not be changed then.
const PLAIN: [&str; 40] = [
    "AssignPublicIp",
    "AttemptDurationSeconds",
    "Attempts",
    "BuildspecOverride",
    "CapacityProvider",
    "ClientToken",
    "Cluster",
    "Command",
    "ComputeTypeOverride",
    "Cpu",
    "EnableExecuteCommand",
    "EnvironmentTypeOverride",
    "Group",
    "IdempotencyToken",
    "Image",
    "ImageOverride",
    "InstanceType",
    "JobDefinition",
    "JobId",
    "JobName",
    "JobQueue",
    "Key",
    "LaunchType",
    "Memory",
    "MemoryReservation",
    "Name",
    "PlatformVersion",
    "ProjectName",
    "PropagateTags",
    "ReferenceId",
    "SecurityGroups",
    "ServiceRoleOverride",
    "ShareIdentifier",
    "Size",
    "SourceVersion",
    "StartedBy",
    "Subnets",
    "TaskDefinition",
    "Type",
    "Value",
];

/// The path of an operation; `None` if it is not known. Only Batch has a REST API, in which that of tags is another.
pub(super) fn path(service: &str, action: &str) -> Option<String> {
    match service {
        "batch" => {
            (!action.contains("Tag")).then(|| format!("/v1/{}", action.to_ascii_lowercase()))
        }
        _ => Some("/".to_owned()),
    }
}

/// The result of the state, given the response to this operation.
pub(super) fn result(action: &str) -> ResultShape {
    ResultShape::Members(match action {
        "SubmitJob" => &["JobArn", "JobId", "JobName"],
        _ => &[],
    })
}

/// The parameters with the names of the API.
pub(super) fn parameters(given: &Symbol, decisions: &mut Vec<String>) -> Symbol {
    if !matches!(given, Symbol::Object { .. }) {
        decisions.push(
            "the parameters are known only when the task runs: list them, with names that begin with a small letter"
                .to_owned(),
        );
    }
    members("", given, decisions)
}

/// The value of the member `name`, with the names of the API in it.
fn members(name: &str, value: &Symbol, decisions: &mut Vec<String>) -> Symbol {
    match value {
        Symbol::Object { .. } if WITH_OWN_NAMES.contains(&name) => value.clone(),
        Symbol::Object { fields, open } => {
            let renamed =
                fields.iter().map(|(name, value)| (small(name), members(name, value, decisions)));
            Symbol::Object { fields: renamed.collect(), open: open.clone() }
        }
        Symbol::List(items) => {
            let name = if WITH_OWN_NAMES.contains(&name) { "an item" } else { name };
            Symbol::List(items.iter().map(|item| members(name, item, decisions)).collect())
        }
        Symbol::Scalar(_) | Symbol::Deployed(_) => value.clone(),
        Symbol::Cel(_)
        | Symbol::Merged { .. }
        | Symbol::Either { .. }
        | Symbol::Maybe { .. }
        | Symbol::Unknown(_) => {
            let is_plain = PLAIN.contains(&name) || WITH_OWN_NAMES.contains(&name);
            if !is_plain && !name.is_empty() {
                decisions.push(format!(
                    "`{name}` is known only when the task runs: the names in it must begin with a small letter there"
                ));
            }
            value.clone()
        }
    }
}
