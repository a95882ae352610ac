//! `steward list`.

use std::num::NonZeroUsize;

use anyhow::Result;
use clap::{Args, ValueEnum};
use steward_core::model::{
    names::Tenant,
    task::{ProcessState, Task},
};
use steward_operator::view::TaskView;

use crate::{client::DeploymentArgs, table::table};

/// Options of `steward list`.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Only tasks in this state.
    #[arg(long, ignore_case = true)]
    state: Option<StateFilter>,
    /// Only tasks of this workflow.
    #[arg(long)]
    workflow: Option<String>,
    /// Only tasks of this tenant.
    #[arg(long)]
    tenant: Option<Tenant>,
    /// The maximum number of tasks. If more match, which of them are listed is undefined.
    #[arg(long, default_value = "100")]
    limit: NonZeroUsize,
    /// Print a JSON array.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    deployment: DeploymentArgs,
}

/// The states that `--state` accepts.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum StateFilter {
    Pending,
    Processing,
    Processed,
    Undoing,
    Undone,
    Error,
}

impl StateFilter {
    fn process_state(self) -> ProcessState {
        match self {
            Self::Pending => ProcessState::Pending,
            Self::Processing => ProcessState::Processing,
            Self::Processed => ProcessState::Processed,
            Self::Undoing => ProcessState::Undoing,
            Self::Undone => ProcessState::Undone,
            Self::Error => ProcessState::Error,
        }
    }
}

/// Prints tasks, newest first.
#[expect(clippy::print_stderr, reason = "standard output only has the list")]
pub(crate) async fn list(args: ListArgs) -> Result<()> {
    let matches = |task: &Task| {
        args.state.is_none_or(|state| state.process_state() == task.process_state)
            && args.workflow.as_ref().is_none_or(|name| name == task.workflow.as_str())
            && args.tenant.as_ref().is_none_or(|tenant| Some(tenant) == task.tenant.as_ref())
    };
    let limit = args.limit.get();
    let store = args.deployment.store().await;
    let mut tasks = store.scan_tasks(limit.saturating_add(1), matches).await?;
    if tasks.len() > limit {
        tasks.truncate(limit);
        eprintln!("more than {limit} tasks match, also newer ones: raise --limit");
    }
    tasks.sort_by_key(|task| std::cmp::Reverse(task.submitted_at));
    let views: Vec<_> = tasks.iter().map(TaskView::of).collect();
    if args.json {
        outln!("{}", serde_json::to_string_pretty(&views)?);
        return Ok(());
    }
    let header = ["task", "tenant", "workflow", "state", "submitted", "failures", "error"];
    let mut table = table(&header);
    for view in views {
        table.add_row([
            view.task_id.to_string(),
            view.tenant.map(|tenant| tenant.to_string()).unwrap_or_default(),
            format!("{} {}", view.workflow, view.version),
            view.process_state.to_string(),
            view.submitted_at.to_string(),
            view.failure_count.to_string(),
            view.error.unwrap_or_default(),
        ]);
    }
    outln!("{table}");
    Ok(())
}
