//! `steward show`: a task's state, its timeline, and what happens next.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};
use steward_core::{
    definition::{mask::Mask, plan::Plan},
    model::{
        attempt::{Action, AttemptId},
        document::{Document, DocumentKey},
        names::{Part, TaskId},
        payload::{PayloadKey, has_reference},
        task::Task,
    },
};
use steward_operator::{
    masked_documents::{HiddenValues, masked_document},
    payloads::ShownPayload,
    shown_documents::{CutStep, ShownDocuments},
    timeline::{TimelineEntry, timeline},
    view::TaskView,
};
use steward_runtime::ports::{Definitions, PortError, StateStore};

use crate::{client::DeploymentArgs, payloads, table::table};

/// What to print of a task.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ShowOptions<'a> {
    /// An item whose attempts are shown in any case.
    pub(crate) part: Option<&'a Part>,
    /// Whether to print error bodies.
    pub(crate) errors: bool,
    /// Whether to print JSON.
    pub(crate) json: bool,
    /// A payload to write to the standard output, instead of the task.
    pub(crate) payload: Option<&'a PayloadKey>,
}

/// What a service said about a failed attempt.
#[derive(Debug, Serialize)]
struct ShownError {
    step: Part,
    action: Action,
    attempt: u32,
    at: Timestamp,
    /// The body with its masked values hidden: JSON, or a text.
    detail: Value,
}

/// Prints a task and its timeline.
pub(crate) async fn show(
    id: &TaskId,
    options: ShowOptions<'_>,
    deployment: &DeploymentArgs,
) -> Result<()> {
    let store = deployment.store().await;
    let task = store.load(id).await?.with_context(|| format!("task `{id}` does not exist"))?;
    let ShownDocuments { ranges, cut } = ShownDocuments::of(&task, options.part);
    let documents = store.documents_in(&task, &ranges).await?;
    let payloads = shown_payloads(&task, &documents, deployment).await?;
    if let Some(key) = options.payload {
        let is_shown = payloads.iter().any(|payload| payload.reference.key == *key);
        ensure!(is_shown, "task `{id}` shows no payload `{key}`");
        return payloads::download(key, &deployment.payloads().await).await;
    }
    let mut view = TaskView::of(&task).with_reasons(&task, &documents);
    // A task whose definition cannot be read is shown without its agents.
    if let Ok(Some(workflow)) = workflow(&task, deployment).await {
        view = view.with_agents(&task, &workflow);
    }
    let lines = timeline(&task, &documents);
    let errors = match options.errors {
        true => Some(error_bodies(&mask(&task, deployment).await?, documents, cut.is_empty())),
        false => None,
    };
    if options.json {
        let mut shown = serde_json::to_value(view)?;
        if let Some(fields) = shown.as_object_mut() {
            fields.insert("timeline".to_owned(), json!(lines));
            if !payloads.is_empty() {
                fields.insert("payloads".to_owned(), json!(payloads));
            }
            if let Some(errors) = errors {
                fields.insert("errors".to_owned(), json!(errors));
            }
        }
        outln!("{}", serde_json::to_string_pretty(&shown)?);
        return Ok(());
    }
    outln!("{}", header(&view));
    let mut table = table(&["time", "step", "attempt", "event", "reason", "decision"]);
    for line in lines {
        table.add_row(cells(line));
    }
    outln!("{table}");
    for CutStep { step, items, started } in cut {
        outln!("{} of {started} started items of {step} are shown (--part)", items.len());
    }
    for payload in payloads {
        outln!("{payload}");
    }
    for error in errors.iter().flatten() {
        outln!("{}", error_text(error)?);
    }
    outln!("next: {}", view.next);
    Ok(())
}

async fn workflow(
    task: &Task,
    deployment: &DeploymentArgs,
) -> Result<Option<Arc<Plan>>, PortError> {
    let definitions = deployment.definitions().await;
    definitions.workflow(&task.workflow, Some(task.version)).await
}

/// The mask of the task's workflow.
async fn mask(task: &Task, deployment: &DeploymentArgs) -> Result<Mask> {
    let (name, version) = (&task.workflow, task.version);
    let workflow = workflow(task, deployment).await?.with_context(|| {
        format!("without workflow `{name}` version {version} it is not known what its mask hides")
    })?;
    Ok(workflow.mask.clone())
}

/// The task's own payloads to which its documents refer, without those that the workflow masks.
async fn shown_payloads(
    task: &Task,
    documents: &[Document],
    deployment: &DeploymentArgs,
) -> Result<Vec<ShownPayload>> {
    if !documents.iter().any(|document| has_reference(&document.body)) {
        return Ok(Vec::new());
    }
    let mask = mask(task, deployment).await?;
    let hidden = HiddenValues::of(&mask, documents);
    let payloads = documents.iter().flat_map(|document| {
        ShownPayload::of(task, &document.key, &masked_document(&mask, &hidden, document))
    });
    Ok(payloads.collect())
}

/// The error bodies in documents of a task, oldest first. `are_all` is whether these are all its documents.
fn error_bodies(mask: &Mask, mut documents: Vec<Document>, are_all: bool) -> Vec<ShownError> {
    let hidden = HiddenValues::of(mask, &documents).of_all_documents(mask, are_all);
    documents.sort_by_key(|document| document.at);
    let errors = documents.into_iter().filter_map(|document| {
        let (DocumentKey::Failure(id) | DocumentKey::Deferral(id)) = &document.key else {
            return None;
        };
        let AttemptId { step, action, number: attempt } = id;
        let (step, action, attempt, at) = (step.clone(), *action, *attempt, document.at);
        let detail = masked_document(mask, &hidden, &document).get_mut("detail")?.take();
        Some(ShownError { step, action, attempt, at, detail })
    });
    errors.collect()
}

/// `error of charge, attempt 2:`, and the body.
fn error_text(error: &ShownError) -> Result<String> {
    let ShownError { step, action, attempt, at: _, detail } = error;
    let undo = match action {
        Action::Do => "",
        Action::Undo => "the undo of ",
    };
    let detail = match detail.as_str() {
        Some(text) => text.to_owned(),
        None => serde_json::to_string_pretty(detail)?,
    };
    Ok(format!("error of {undo}{step}, attempt {attempt}:\n{detail}"))
}

/// The lines above the timeline.
fn header(view: &TaskView) -> String {
    let TaskView { task_id, process_state, workflow, version, .. } = view;
    let mut lines = vec![format!("{task_id}: {process_state} ({workflow} version {version})")];
    lines.extend(view.tenant.iter().map(|tenant| format!("tenant: {tenant}")));
    lines.extend(view.rerun_of.iter().map(|of| match view.kept_steps.as_slice() {
        [] => format!("rerun of {of}"),
        kept => format!("rerun of {of}, whose outputs it keeps of {}", names(kept)),
    }));
    if !view.reruns.is_empty() {
        lines.push(format!("run again as {}", names(&view.reruns)));
    }
    let labels: Vec<_> =
        view.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    lines.extend((!labels.is_empty()).then(|| format!("labels: {}", labels.join(", "))));
    lines.extend(view.error.iter().map(|error| format!("error: {error}")));
    lines.extend(view.undo_reason.iter().map(|reason| format!("reason for undo: {reason}")));
    lines.extend(view.paused_at.iter().map(|at| format!("paused since {at}")));
    lines.push(format!(
        "complete by {}, revision {}, failures {}",
        view.complete_by, view.revision, view.failure_count
    ));
    if !view.steps.is_empty() {
        lines.push(format!("steps: {}", step_states(view).join(", ")));
    }
    lines.join("\n")
}

fn names<T: ToString>(names: &[T]) -> String {
    names.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// The state of each step and item. Successive items with equal states share a text.
fn step_states(view: &TaskView) -> Vec<String> {
    let mut states: Vec<(&Part, Option<u32>, String)> = Vec::new();
    for (part, step) in &view.steps {
        let unknown = if step.may_have_run { " (may have run)" } else { "" };
        let done = step.items.map_or_else(String::new, |items| {
            format!(", {} of {items} items done", step.items_done())
        });
        let agent = step.agent.as_ref().map(|agent| format!(" (agent {agent})"));
        let earlier: String =
            step.earlier_effects.iter().map(|effect| format!("; {effect}")).collect();
        let state = format!("{}{}{unknown}{done}{earlier}", step.state, agent.unwrap_or_default());
        match states.last_mut() {
            Some((first, last, text))
                if first.step == part.step
                    && *text == state
                    && last.is_some_and(|last| last.checked_add(1) == part.item) =>
            {
                *last = part.item;
            }
            Some(_) | None => states.push((part, part.item, state)),
        }
    }
    let texts = states.into_iter().map(|(first, last, state)| match (first.item, last) {
        (Some(start), Some(end)) if start < end => format!("{}[{start}–{end}] {state}", first.step),
        (_, _) => format!("{first} {state}"),
    });
    texts.collect()
}

/// The table row for a line of the timeline.
fn cells(line: TimelineEntry) -> [String; 6] {
    let (attempt, what) = (line.attempt(), line.description());
    let step = line.step.map(|step| step.to_string()).unwrap_or_default();
    let (why, decision) = (line.why.unwrap_or_default(), line.verdict.unwrap_or_default());
    [format!("{:.3}", line.at), step, attempt, what, why, decision]
}
