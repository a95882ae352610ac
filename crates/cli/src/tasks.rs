//! `steward list`.

use std::num::NonZeroUsize;

use anyhow::Result;
use clap::{Args, ValueEnum};
use jiff::Timestamp;
use serde_json::json;
use steward_aws::store::{
    DynamoStore, FilterTime, Label, Labels, NewestTasks, SearchResult, StateFilter, TaskFilter,
};
use steward_core::model::{
    names::{StepName, Tenant, WorkflowName},
    task::Task,
};
use steward_operator::{
    causes::{CauseGroup, by_cause},
    view::TaskView,
};

use crate::{client::DeploymentArgs, table::table, tenants::since};

/// How many tasks are listed.
const LISTED: usize = 100;

/// How many tasks are read, at least, to find those that match.
const EXAMINED: usize = 10_000;

/// Options of `steward list`.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Only tasks in this state: that of a task, `unfinished`, `awaiting callback`, `late`, or `unresolved`: in Error, and not settled by an operator.
    #[arg(long, value_parser = state)]
    state: Option<StateFilter>,
    /// Only tasks of this workflow.
    #[arg(long)]
    workflow: Option<WorkflowName>,
    /// Only tasks of this tenant.
    #[arg(long)]
    tenant: Option<Tenant>,
    /// Only tasks with this label, such as `customer=42`; repeat it for tasks with all of several.
    #[arg(long, value_name = "NAME=VALUE")]
    label: Vec<Label>,
    /// Only tasks with this step, if it has failed and is not done.
    #[arg(long)]
    step: Option<StepName>,
    /// Only tasks whose error contains this text.
    #[arg(long)]
    reason_contains: Option<String>,
    /// Only tasks that were submitted after this: a time such as 2026-11-20T19:00:00Z, or a duration before now, such as `2h`.
    #[arg(long, value_name = "DURATION|TIME", value_parser = since)]
    since: Option<Timestamp>,
    /// Count the tasks in Error and the late ones by cause, in place of a list.
    #[arg(long)]
    group: Option<GroupBy>,
    /// Print only how many tasks there are, or that there are at least so many.
    #[arg(long, conflicts_with = "group")]
    count: bool,
    /// The maximum number of tasks: the newest 100, or 10000 with `--group` and `--count`.
    #[arg(long)]
    limit: Option<NonZeroUsize>,
    /// Print a JSON array.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    deployment: DeploymentArgs,
}

/// What tasks are counted by.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum GroupBy {
    /// Workflow, step and reason, without ids and numbers.
    Cause,
}

fn state(text: &str) -> Result<StateFilter, String> {
    let all = || StateFilter::all().map(|state| state.to_string());
    let named = StateFilter::all().find(|state| state.to_string().eq_ignore_ascii_case(text));
    named.ok_or_else(|| format!("the states are {}", all().collect::<Vec<_>>().join(", ")))
}

impl ListArgs {
    /// What is searched for causes, one after the other: the tasks in Error, and then those that may be late.
    fn filters(&self) -> Vec<TaskFilter> {
        let filter = self.filter();
        if self.state.is_some() {
            return vec![filter];
        }
        let states = [StateFilter::Unresolved, StateFilter::Unfinished];
        states.map(|state| TaskFilter { state: Some(state), ..filter.clone() }).into()
    }

    fn filter(&self) -> TaskFilter {
        TaskFilter {
            workflow: self.workflow.clone(),
            tenant: self.tenant.clone(),
            labels: (!self.label.is_empty()).then(|| Labels(self.label.clone())),
            state: self.state,
            from: self.since.map(FilterTime),
            to: None,
            step: self.step.clone(),
            error: self.reason_contains.clone(),
        }
    }
}

/// Prints the newest tasks, their number, or their causes.
pub(crate) async fn list(args: ListArgs) -> Result<()> {
    let default = if args.group.is_some() || args.count { EXAMINED } else { LISTED };
    let limit = args.limit.map_or(default, NonZeroUsize::get);
    let store = args.deployment.store().await;
    if args.group.is_some() {
        return list_causes(&args, &store, limit).await;
    }
    let NewestTasks { tasks, examined, more } =
        args.filter().newest(&store, limit, limit.max(EXAMINED)).await?;
    if args.count {
        return print_count(tasks.len(), more, args.json);
    }
    if more {
        report_more(tasks.len() >= limit, limit, examined);
    }
    print_tasks(&tasks, args.json)
}

/// Prints the causes of the tasks in Error and of the late ones.
async fn list_causes(args: &ListArgs, store: &DynamoStore, limit: usize) -> Result<()> {
    let mut tasks = Vec::new();
    for filter in args.filters() {
        let found = filter.find(store, None, limit, limit.max(EXAMINED)).await?;
        let SearchResult { tasks: found, examined, next } = found;
        if next.is_some() {
            report_more(found.len() >= limit, limit, examined);
        }
        tasks.extend(found);
    }
    print_causes(&by_cause(&tasks, Timestamp::now()), args.json)
}

/// Reports that not all tasks were searched.
#[expect(clippy::print_stderr, reason = "standard output only has the list")]
fn report_more(is_full: bool, limit: usize, examined: usize) {
    if is_full {
        eprintln!("there may be more than {limit}: raise --limit");
    } else {
        eprintln!("only {examined} tasks were searched: raise --limit");
    }
}

/// Prints the number of tasks, and whether it is a lower bound.
fn print_count(tasks: usize, is_lower_bound: bool, json: bool) -> Result<()> {
    if json {
        let count = json!({ "tasks": tasks, "is_lower_bound": is_lower_bound });
        outln!("{}", serde_json::to_string_pretty(&count)?);
    } else {
        outln!("tasks: {}{tasks}", if is_lower_bound { "at least " } else { "" });
    }
    Ok(())
}

fn print_tasks(tasks: &[Task], json: bool) -> Result<()> {
    let views: Vec<_> = tasks.iter().map(TaskView::of).collect();
    if json {
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

fn print_causes(groups: &[CauseGroup], json: bool) -> Result<()> {
    if json {
        outln!("{}", serde_json::to_string_pretty(groups)?);
        return Ok(());
    }
    let header = ["tasks", "workflow", "step", "reason", "first", "last", "example"];
    let mut table = table(&header);
    for group in groups {
        let CauseGroup { cause, tasks, first, last, example, .. } = group;
        table.add_row([
            tasks.to_string(),
            cause.workflow.to_string(),
            group.place(),
            cause.reason.clone(),
            format!("{first:.0}"),
            format!("{last:.0}"),
            example.to_string(),
        ]);
    }
    outln!("{table}");
    if let Some(group) = groups.iter().find(|group| group.can_be_found()) {
        outln!("to resubmit the tasks of one cause, such as the first:\n{}", retry_command(group));
    }
    Ok(())
}

/// The command that resubmits the tasks of a cause, for a shell.
fn retry_command(group: &CauseGroup) -> String {
    let CauseGroup { cause, first, contains, .. } = group;
    let mut command = format!("steward retry-all --workflow {} --since {first:.0}", cause.workflow);
    if let Some(step) = &cause.step {
        command.push_str(&format!(" --step {step}"));
    }
    if let Some(contains) = contains {
        command.push_str(&format!(" --reason-contains '{}'", contains.replace('\'', "'\\''")));
    }
    command + " --why REASON --dry-run"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_expands_nothing_in_the_printed_command() {
        let task = json!({
            "task_id": "o-1", "workflow": "order", "v": 1, "i": 0, "k": 1, "process_state": "Error", "revision": 1,
            "complete_by": 0, "submitted_at": 0, "error": "step a[2]: it's `touch x` $HOME",
        });
        let task: Task = serde_json::from_value(task).unwrap();
        let group = by_cause([&task], Timestamp::UNIX_EPOCH).remove(0);
        assert_eq!(
            retry_command(&group),
            "steward retry-all --workflow order --since 1970-01-01T00:00:00Z --step a \
             --reason-contains 'it'\\''s `touch x` $HOME' --why REASON --dry-run"
        );
    }
}
