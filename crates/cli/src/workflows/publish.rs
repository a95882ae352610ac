//! `steward workflow publish` and `unpublish`.

use std::path::PathBuf;

use anyhow::{Context, Result};
use steward_core::names::WorkflowName;
use steward_local::definitions::read_file;

use crate::client::Deployment;

/// Publishes each file; those before one that fails stay published.
pub(super) async fn publish(files: &[PathBuf], deployment: &Deployment) -> Result<()> {
    let publisher = deployment.publisher().await;
    for file in files {
        let workflow = read_file(file)?;
        let published = publisher.publish(&workflow).await;
        published.with_context(|| file.display().to_string())?;
        say!("{} version {}: published", workflow.name, workflow.version);
    }
    Ok(())
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
