//! The request of a step, made from its template and the documents at hand.

use std::borrow::Cow;

use serde_json::Value;

use crate::{
    command::CommandId,
    limits,
    messages::{Action, StepRequest, idempotency_key},
    names::StepName,
    ports::{Attempt, DocumentKey},
    task::{StepState, Task},
    template::Scope,
    transition::Documents,
    workflow::{Work, Workflow},
};

/// The document that holds the input, as submitted or as an operator edited it.
pub(crate) fn input_key(edit: Option<&CommandId>) -> DocumentKey {
    edit.map_or(DocumentKey::Submission, |id| DocumentKey::Input(id.clone()))
}

/// The key of what `step` returned, if it completed.
pub(crate) fn output_key(task: &Task, step: &StepName) -> Option<DocumentKey> {
    match task.steps.get(step)?.run.state {
        StepState::Completed { attempt: number } => {
            Some(DocumentKey::Output(Attempt { step: step.clone(), action: Action::Do, number }))
        }
        StepState::Running { .. }
        | StepState::Waiting { .. }
        | StepState::Failed { .. }
        | StepState::Skipped { .. } => None,
    }
}

/// The documents that the request of `step` is made from.
pub(crate) fn reads(
    workflow: &Workflow,
    task: &Task,
    step: &StepName,
    action: Action,
) -> Vec<DocumentKey> {
    let definition = workflow.steps.get(step).and_then(|step| step.action(action));
    let templates = definition.iter().flat_map(|definition| definition.work.templates());
    let edit = task.progress(step, action).and_then(|progress| progress.input.as_ref());
    let mut keys = Vec::new();
    for reads in templates.map(crate::template::Template::reads) {
        keys.extend(reads.steps.iter().filter_map(|step| output_key(task, step)));
        keys.extend(reads.input().then(|| input_key(edit)));
    }
    keys
}

/// The request of a running step, or why it cannot be made.
pub(crate) fn request(
    workflow: &Workflow,
    task: &Task,
    documents: &Documents,
    step: &StepName,
    action: Action,
) -> Result<StepRequest, String> {
    let definition = workflow.steps.get(step).ok_or("the workflow has no such step")?;
    let work = definition.action(action).ok_or("the step has no undo")?.work;
    let Work::Call { agent, request: template, .. } = work else {
        return Err("not a call".to_owned());
    };
    let progress = task.progress(step, action);
    let Some((StepState::Running { attempt, complete_by }, edit)) =
        progress.map(|progress| (progress.state.clone(), progress.input.as_ref()))
    else {
        return Err("the step is not running".to_owned());
    };
    let outputs = task
        .steps
        .iter()
        .filter_map(|(name, record)| {
            if matches!(record.run.state, StepState::Skipped { .. }) {
                return Some((name.clone(), Cow::Owned(Value::Null)));
            }
            Some((name.clone(), Cow::Borrowed(documents.get(&output_key(task, name)?)?)))
        })
        .collect();
    let input = documents.get(&input_key(edit));
    let scope = Scope {
        input: Some(input.and_then(|document| document.get("input")).unwrap_or(&Value::Null)),
        outputs: Some(&outputs),
        task: Some((task.task_id.as_str(), task.workflow.as_str())),
        ..Scope::default()
    };
    let body = template.body.as_ref().map(|body| body.render(scope)).transpose();
    let request = StepRequest {
        task_id: task.task_id.clone(),
        step: step.clone(),
        action,
        attempt,
        complete_by,
        idempotency_key: idempotency_key(&task.task_id, step, action, edit),
        // An undo must always do no harm when it is repeated.
        idempotent: definition.idempotent || action == Action::Undo,
        agent: agent.clone(),
        method: template.method,
        path: template.path.render_path(scope)?,
        body: body.map_err(|error| error.to_string())?,
    };
    let bytes = request.body.as_ref().map_or(0, |body| body.to_string().len());
    if bytes + request.path.len() > limits::DOCUMENT_BYTES_MAX {
        return Err(format!(
            "a request of {bytes} bytes; the limit is {}",
            limits::DOCUMENT_BYTES_MAX
        ));
    }
    Ok(request)
}

/// Why `value` cannot be kept, if it cannot; `what` it is.
pub(crate) fn too_large(what: &str, value: &Value) -> Option<String> {
    if limits::too_deep(value) {
        return Some(format!("the {what} nests deeper than {} levels", limits::JSON_DEPTH_MAX));
    }
    let bytes = value.to_string().len();
    let limit = limits::DOCUMENT_BYTES_MAX;
    (bytes > limit).then(|| format!("an {what} of {bytes} bytes; the limit is {limit}"))
}
