//! `steward tenants`: the stored tasks by tenant. `steward cost --tenants` estimates their cost.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use clap::Args;
use jiff::Timestamp;
use serde::Serialize;
use steward_core::model::{
    names::{Tenant, WorkflowName},
    task::{ProcessState, Task},
    time::earlier,
};
use steward_runtime::history::EndedCounts;

use crate::{client::DeploymentArgs, table::table};

/// Options of `steward tenants`.
#[derive(Debug, Args)]
pub(crate) struct TenantsArgs {
    /// Only tasks of this workflow.
    #[arg(long)]
    workflow: Option<WorkflowName>,
    /// Only tasks that were submitted after this: a time such as 2026-11-20T19:00:00Z, or a duration before now, such as
    /// `24h`. By default all stored tasks.
    #[arg(long, value_name = "DURATION|TIME", value_parser = since)]
    since: Option<Timestamp>,
    /// Print a JSON array.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    deployment: DeploymentArgs,
}

/// Parses a time, or a duration before now.
pub(crate) fn since(text: &str) -> Result<Timestamp> {
    match humantime::parse_duration(text) {
        Ok(ago) => Ok(earlier(Timestamp::now(), ago)),
        Err(_) => text
            .parse()
            .context("neither a duration such as 2h nor a time such as 2026-11-20T19:00:00Z"),
    }
}

/// The tasks of a tenant.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct TenantCounts {
    /// All tasks.
    pub(crate) tasks: u64,
    /// Tasks that have not ended.
    unfinished: u64,
    /// Tasks that have ended, by state.
    #[serde(flatten)]
    ended: EndedCounts,
    /// Attempts that failed.
    failed_attempts: u64,
}

impl TenantCounts {
    fn add(&mut self, task: &Task) {
        self.tasks += 1;
        self.unfinished += u64::from(!task.process_state.has_stopped());
        self.ended += EndedCounts::of(task.process_state);
        self.failed_attempts += u64::from(task.failure_count);
    }
}

/// Counts the stored tasks of each tenant; under `None` those without a tenant. Scans the whole table.
pub(crate) async fn count(
    deployment: &DeploymentArgs,
    workflow: Option<&WorkflowName>,
    since: Option<Timestamp>,
) -> Result<BTreeMap<Option<Tenant>, TenantCounts>> {
    let mut counts: BTreeMap<Option<Tenant>, TenantCounts> = BTreeMap::new();
    let visit = |task: Task| {
        let is_wanted = workflow.is_none_or(|workflow| *workflow == task.workflow)
            && since.is_none_or(|since| task.submitted_at >= since);
        if is_wanted {
            counts.entry(task.tenant.clone()).or_default().add(&task);
        }
    };
    deployment.store().await.visit_tasks(visit).await?;
    Ok(counts)
}

/// The name of a tenant in a table.
pub(crate) fn name(tenant: Option<&Tenant>) -> &str {
    tenant.map_or("(none)", Tenant::as_str)
}

/// Prints the tasks of each tenant.
pub(crate) async fn run(args: TenantsArgs) -> Result<()> {
    #[derive(Serialize)]
    struct Row<'a> {
        tenant: Option<&'a Tenant>,
        #[serde(flatten)]
        counts: TenantCounts,
    }
    let counts = count(&args.deployment, args.workflow.as_ref(), args.since).await?;
    if args.json {
        let rows =
            counts.iter().map(|(tenant, counts)| Row { tenant: tenant.as_ref(), counts: *counts });
        outln!("{}", serde_json::to_string_pretty(&rows.collect::<Vec<_>>())?);
        return Ok(());
    }
    let states = [ProcessState::Processed, ProcessState::Undone, ProcessState::Error];
    let [processed, undone, error] = states.map(|state| state.to_string());
    let header = ["tenant", "tasks", "unfinished", &processed, &undone, &error, "failed attempts"];
    let mut rows = table(&header);
    for (tenant, TenantCounts { tasks, unfinished, ended, failed_attempts }) in &counts {
        let numbers =
            [*tasks, *unfinished, ended.processed, ended.undone, ended.error, *failed_attempts];
        let cells = numbers.map(|number| number.to_string());
        rows.add_row([name(tenant.as_ref()).to_owned()].into_iter().chain(cells));
    }
    outln!("{rows}");
    Ok(())
}
