//! `steward show`: a task's state, its timeline, and what happens next.

use anyhow::{Context, Result};
use serde_json::json;
use steward_core::model::names::TaskId;
use steward_operator::timeline::{TimelineEntry, timeline};
use steward_operator::view::TaskView;
use steward_runtime::ports::StateStore;

use crate::{client::DeploymentArgs, table::table};

/// Prints a task and its timeline.
pub(crate) async fn show(id: &TaskId, as_json: bool, deployment: &DeploymentArgs) -> Result<()> {
    let store = deployment.store().await;
    let task = store.load(id).await?.with_context(|| format!("task `{id}` does not exist"))?;
    let documents = store.all_documents(&task).await?;
    let view = TaskView::of(&task).with_reasons(&task, &documents);
    let lines = timeline(&task, &documents);
    if as_json {
        let mut shown = serde_json::to_value(view)?;
        if let Some(fields) = shown.as_object_mut() {
            fields.insert("timeline".to_owned(), json!(lines));
        }
        outln!("{}", serde_json::to_string_pretty(&shown)?);
        return Ok(());
    }
    outln!("{}", header(&view));
    let mut table = table(&["time", "step", "attempt", "event", "reason", "decision"]);
    for line in lines {
        table.add_row(cells(line));
    }
    outln!("{table}\nnext: {}", view.next);
    Ok(())
}

/// The lines above the timeline.
fn header(view: &TaskView) -> String {
    let TaskView { task_id, process_state, workflow, version, .. } = view;
    let mut lines = vec![format!("{task_id}: {process_state} ({workflow} version {version})")];
    lines.extend(view.error.iter().map(|error| format!("error: {error}")));
    lines.extend(view.undo_reason.iter().map(|reason| format!("reason for undo: {reason}")));
    lines.extend(view.paused_at.iter().map(|at| format!("paused since {at}")));
    lines.push(format!(
        "complete by {}, revision {}, failures {}",
        view.complete_by, view.revision, view.failure_count
    ));
    let steps = view.steps.iter().map(|(name, step)| {
        let unknown = if step.may_have_run { " (may have run)" } else { "" };
        format!("{name} {}{unknown}", step.state)
    });
    let steps: Vec<_> = steps.collect();
    if !steps.is_empty() {
        lines.push(format!("steps: {}", steps.join(", ")));
    }
    lines.join("\n")
}

/// The table row for a line of the timeline.
fn cells(line: TimelineEntry) -> [String; 6] {
    let (attempt, what) = (line.attempt(), line.description());
    let step = line.step.map(|step| step.to_string()).unwrap_or_default();
    let (why, decision) = (line.why.unwrap_or_default(), line.verdict.unwrap_or_default());
    [format!("{:.3}", line.at), step, attempt, what, why, decision]
}
