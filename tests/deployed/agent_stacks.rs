//! Stacks of single agents, deployed from `infra/agent.yaml` beside the main stack.

use super::{
    aws_requests::run,
    stack::{Stack, delete},
    target::{TargetKind, deployment_target},
};

/// Deploys an agent with these parameters of `infra/agent.yaml`.
pub(super) async fn deploy_agent(stack: &Stack, name: &str, parameters: &[String]) {
    let target = deployment_target();
    let mut arguments = vec![
        stack.name_of(name),
        "infra/agent.yaml".to_owned(),
        format!("Steward={}", target.stack),
        format!("Name={name}"),
        format!("DocumentsTable={}", stack.variable("STEWARD_DOCUMENTS_TABLE")),
        "Size=small".to_owned(),
    ];
    if target.kind != TargetKind::Aws {
        arguments.push("PlainHttp=true".to_owned());
    }
    arguments.extend_from_slice(parameters);
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    run("infra/deploy", &arguments).await;
}

/// Deletes the stack of an agent.
pub(super) async fn delete_agent(stack: &Stack, name: &str) {
    delete(&stack.name_of(name)).await;
}
