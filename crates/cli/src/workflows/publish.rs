//! `steward workflow publish` and `unpublish`.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use steward_core::{definition::workflow::Workflow, model::names::WorkflowName};
use steward_definition_file::read_file;
use steward_runtime::ports::error_chain;

use crate::client::DeploymentArgs;

/// Publishes each file in turn. If one fails, the earlier ones stay published.
pub(super) async fn publish(files: &[PathBuf], deployment: &DeploymentArgs) -> Result<()> {
    let publisher = deployment.publisher().await;
    for file in files {
        let workflow = read_file(file)?;
        warn(file, &workflow);
        let published = publisher.publish(&workflow).await;
        published.with_context(|| file.display().to_string())?;
        outln!("{} version {}: published", workflow.name, workflow.version);
        warn_of_missing_agents(&workflow, deployment).await;
    }
    Ok(())
}

/// Prints the lint warnings. Lint errors were refused when the file was read.
#[expect(clippy::print_stderr, reason = "a command's output")]
fn warn(file: &Path, workflow: &Workflow) {
    for warning in workflow.lint() {
        eprintln!("{}: {warning}", file.display());
    }
}

/// Warns of agents without a queue. Publication is still allowed: the agent may be deployed later. Until
/// then its steps fail immediately, with an alert.
#[expect(clippy::print_stderr, reason = "a command's output")]
async fn warn_of_missing_agents(workflow: &Workflow, deployment: &DeploymentArgs) {
    let agents: BTreeSet<_> =
        workflow.steps.values().filter_map(|step| step.agent.as_ref()).collect();
    for agent in agents {
        match deployment.has_agent_queue(agent).await {
            Ok(true) => {}
            Ok(false) => eprintln!(
                "warning: {}: agent `{agent}` has no queue `{}`; its steps fail until the agent is deployed",
                workflow.name,
                deployment.agent_queue_name(agent),
            ),
            Err(error) => eprintln!(
                "warning: {}: could not check whether agent `{agent}` has a queue: {}",
                workflow.name,
                error_chain(&error),
            ),
        }
    }
}

/// Unpublishes a version.
pub(super) async fn unpublish(
    name: &WorkflowName,
    version: u32,
    deployment: &DeploymentArgs,
) -> Result<()> {
    let publisher = deployment.publisher().await;
    publisher.unpublish(name, version).await?;
    let versions = publisher.definitions.definitions_of(name).await?;
    let newest = versions.iter().rfind(|stored| stored.is_published);
    let newest = newest.map_or_else(
        || "no published version is left".to_owned(),
        |stored| format!("the newest published version is now {}", stored.workflow.version),
    );
    outln!("{name} version {version}: unpublished; {newest}");
    Ok(())
}
