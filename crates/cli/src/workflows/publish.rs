//! `steward workflow publish` and `unpublish`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use steward_core::{definition::workflow::Workflow, model::names::WorkflowName};
use steward_definition_file::read_file;
use steward_operator::agents::{kind_problems, problems};
use steward_runtime::{agents, ports::error_chain};

use crate::{client::DeploymentArgs, env_args::EnvArgs};

/// Publishes each file in turn. If one fails, the earlier ones stay published.
pub(super) async fn publish(
    files: &[PathBuf],
    env: &EnvArgs,
    json: bool,
    deployment: &DeploymentArgs,
) -> Result<()> {
    let publisher = deployment.publisher().await;
    let mut all = Vec::new();
    let workflows = files.iter().map(|file| Ok(read_file(file)?)).collect::<Result<_>>()?;
    for (file, workflow) in files.iter().zip(env.apply(workflows)?) {
        warn(file, &workflow);
        let published = publisher.publish(&workflow).await;
        if published.is_err() && json {
            outln!("{:#}", Value::Array(std::mem::take(&mut all)));
        }
        published.with_context(|| file.display().to_string())?;
        if !json {
            outln!("{} version {}: published", workflow.name, workflow.version);
        }
        all.push(json!({ "workflow": workflow.name, "version": workflow.version }));
        warn_of_agents(&workflow, deployment).await;
    }
    if json {
        outln!("{:#}", Value::Array(all));
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

/// Warns of agents that have no queue or are not registered. Publication is still allowed: the agent may be
/// deployed later. Until then its steps fail immediately, with an alert.
#[expect(clippy::print_stderr, reason = "a command's output")]
pub(super) async fn warn_of_agents(workflow: &Workflow, deployment: &DeploymentArgs) {
    let store = deployment.store().await;
    for (agent, needs) in workflow.agents() {
        let has_queue = deployment.has_agent_queue(agent).await;
        let found = match (has_queue, agents::registration(&store, agent).await) {
            (Ok(has_queue), Ok(registration)) => {
                let queue = deployment.agent_queue_name(agent);
                let queue = (!has_queue).then_some(queue.as_str());
                let mut found = problems(registration.as_ref(), queue, needs);
                let of_kind = registration.map(|of| kind_problems(&of, agent, workflow));
                found.extend(of_kind.into_iter().flatten());
                found
            }
            (Err(error), _) | (_, Err(error)) => {
                eprintln!(
                    "warning: {}: could not check the queue and the registration of agent `{agent}`: {}",
                    workflow.name,
                    error_chain(&error),
                );
                continue;
            }
        };
        for problem in found {
            eprintln!("warning: {}: agent `{agent}` {problem}", workflow.name);
        }
    }
}

/// Publishes the content of an older version as the next version.
pub(super) async fn roll_back(
    (name, to): (&WorkflowName, u32),
    json: bool,
    deployment: &DeploymentArgs,
) -> Result<()> {
    let publisher = deployment.publisher().await;
    let versions = publisher.definitions.definitions_of(name).await?;
    let older = versions.iter().find(|stored| stored.workflow.version == to);
    let older = older.with_context(|| format!("there is no workflow `{name}` version {to}"))?;
    let newest = versions.iter().map(|stored| stored.workflow.version).max().unwrap_or(to);
    ensure!(to < newest, "version {to} is the newest of workflow `{name}`");
    let next = newest.checked_add(1).context("there is no higher version")?;
    let workflow = Workflow { version: next, ..older.workflow.clone() };
    publisher.publish(&workflow).await?;
    if json {
        outln!("{:#}", json!({ "workflow": name, "version": next, "content_of": to }));
    } else {
        outln!("{name} version {next}: published, with the content of version {to}");
    }
    warn_of_agents(&workflow, deployment).await;
    Ok(())
}

/// Unpublishes a version.
pub(super) async fn unpublish(
    (name, version): (&WorkflowName, u32),
    json: bool,
    deployment: &DeploymentArgs,
) -> Result<()> {
    let publisher = deployment.publisher().await;
    publisher.unpublish(name, version).await?;
    let versions = publisher.definitions.definitions_of(name).await?;
    let newest = versions.iter().rfind(|stored| stored.is_published);
    if json {
        let newest = newest.map(|stored| stored.workflow.version);
        let unpublished = json!({ "workflow": name, "version": version, "newest": newest });
        outln!("{unpublished:#}");
        return Ok(());
    }
    let newest = newest.map_or_else(
        || "no published version is left".to_owned(),
        |stored| format!("the newest published version is now {}", stored.workflow.version),
    );
    outln!("{name} version {version}: unpublished; {newest}");
    Ok(())
}
