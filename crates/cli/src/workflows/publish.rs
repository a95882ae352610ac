//! `steward workflow publish` and `unpublish`.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use steward_core::{definition::workflow::Workflow, model::names::WorkflowName};
use steward_definition_file::read_file;
use steward_runtime::ports::chain;

use crate::client::Deployment;

/// Publishes each file; those before one that fails stay published.
pub(super) async fn publish(files: &[PathBuf], deployment: &Deployment) -> Result<()> {
    let publisher = deployment.publisher().await;
    for file in files {
        let workflow = read_file(file)?;
        warn(file, &workflow);
        let published = publisher.publish(&workflow).await;
        published.with_context(|| file.display().to_string())?;
        say!("{} version {}: published", workflow.name, workflow.version);
        warn_of_missing_agents(&workflow, deployment).await;
    }
    Ok(())
}

/// Says what a workflow will not do as its author expects; errors were refused when it was read.
#[expect(clippy::print_stderr, reason = "a command's output")]
fn warn(file: &Path, workflow: &Workflow) {
    for warning in workflow.lint() {
        eprintln!("{}: {warning}", file.display());
    }
}

/// Says which agents of a workflow have no queue. That is no reason not to publish it: an agent may be
/// deployed later, and until then its steps fail at once, with an alert.
#[expect(clippy::print_stderr, reason = "a command's output")]
async fn warn_of_missing_agents(workflow: &Workflow, deployment: &Deployment) {
    let agents: BTreeSet<_> =
        workflow.steps.values().filter_map(|step| step.agent.as_ref()).collect();
    for agent in agents {
        match deployment.has_agent_queue(agent).await {
            Ok(true) => {}
            Ok(false) => eprintln!(
                "warning: {}: agent `{agent}` has no queue `{}`: deploy the agent, or its steps fail",
                workflow.name,
                deployment.agent_queue_name(agent),
            ),
            Err(error) => eprintln!(
                "warning: {}: whether agent `{agent}` has a queue is not known: {}",
                workflow.name,
                chain(&error),
            ),
        }
    }
}

/// Ends the publication of a version.
pub(super) async fn unpublish(
    name: &WorkflowName,
    version: u32,
    deployment: &Deployment,
) -> Result<()> {
    let publisher = deployment.publisher().await;
    publisher.unpublish(name, version).await?;
    let versions = publisher.definitions.versions(name).await?;
    let newest = versions.iter().rfind(|stored| stored.is_published);
    let newest = newest.map_or_else(
        || "no version is published now".to_owned(),
        |stored| format!("the newest is version {} now", stored.workflow.version),
    );
    say!("{name} version {version}: unpublished; {newest}");
    Ok(())
}
