//! `steward retry-all`: resubmits all tasks of a workflow that are in Error, for example after an outage.

use anyhow::{Result, bail};
use serde_json::{Value, json};
use steward_aws::store::StateFilter;
use steward_core::model::{command::CommandAction, task::Task};

use crate::{
    bulk::{BulkArgs, BulkResult},
    table::table,
};

/// Resubmits the tasks, and prints a result for each. Returns an error if a command was refused, was not
/// sent or has no outcome.
pub(crate) async fn run(args: BulkArgs) -> Result<()> {
    let store = args.deployment.store().await;
    let tasks = args.tasks(&store, StateFilter::Unresolved).await?;
    if tasks.is_empty() && !args.json {
        return Ok(());
    }
    if args.dry_run {
        return print_tasks(&tasks, args.json);
    }
    let action = CommandAction::Resubmit { step: None, input: None, did_not_run: false };
    let results = args.command(&store, &tasks, &action).await?;
    let text = |result: &BulkResult| match result {
        BulkResult::Done(_) => "resubmitted".to_owned(),
        other @ (BulkResult::Refused(..) | BulkResult::NoOutcome(_) | BulkResult::NotSent(_)) => {
            other.to_string()
        }
    };
    let resubmitted = results.iter().filter(|result| result.is_done()).count();
    if args.json {
        let listed = tasks.iter().zip(&results).map(|(task, result)| {
            json!({
                "task_id": task.task_id, "result": text(result), "resubmitted": result.is_done(),
                "process_state": result.process_state(),
            })
        });
        outln!("{:#}", Value::Array(listed.collect()));
    } else {
        let mut rows = table(&["task", "result", "state"]);
        for (task, result) in tasks.iter().zip(&results) {
            let state = result.process_state().map_or_else(|| "-".to_owned(), |s| s.to_string());
            rows.add_row([task.task_id.to_string(), text(result), state]);
        }
        outln!("{rows}\nresubmitted: {resubmitted} of {}", results.len());
    }
    if resubmitted < results.len() {
        bail!("not resubmitted: {} of {}", results.len() - resubmitted, results.len());
    }
    Ok(())
}

fn print_tasks(tasks: &[Task], json: bool) -> Result<()> {
    if json {
        let listed = tasks.iter().map(|task| {
            json!({ "task_id": task.task_id, "ended_at": task.ended_at, "error": task.error })
        });
        outln!("{:#}", Value::Array(listed.collect()));
        return Ok(());
    }
    let mut rows = table(&["task", "ended", "error"]);
    for task in tasks {
        let ended = task.ended_at.map(|at| at.to_string()).unwrap_or_default();
        let error = task.error.clone().unwrap_or_default();
        rows.add_row([task.task_id.to_string(), ended, error]);
    }
    outln!("{rows}\nwould be resubmitted: {}", tasks.len());
    Ok(())
}
