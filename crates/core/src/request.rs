//! What is asked of an agent, or of another task: made from a step's templates and the values at hand.

use serde_json::Value;

use crate::{
    effects::Effect,
    limits,
    messages::{Action, Parent, StepRequest, Submission, idempotency_key},
    names::{AgentName, Part, TaskId},
    task::{StepState, Task},
    values::{NoValue, Sources},
    workflow::{ChildWorkflow, RequestTemplate, Work},
};

/// What asks for a running part of a step to be done, or undone; or why that cannot be asked.
pub(crate) fn request(
    sources: Sources<'_>,
    part: &Part,
    action: Action,
) -> Result<Effect, NoValue> {
    let because = |reason: &str| NoValue::Because(reason.to_owned());
    let step = sources.workflow.steps.get(&part.step);
    let step = step.ok_or_else(|| because("the workflow has no such step"))?;
    let definition = step.action(action).ok_or_else(|| because("the step has no undo"))?;
    match definition.work {
        Work::Call { agent, request, .. } => {
            // An undo must always do no harm when it is repeated.
            let idempotent = step.idempotent || action == Action::Undo;
            let call = Call { part, action, agent, request, idempotent };
            call.render(sources).map(Effect::Request)
        }
        Work::Child(child) => submission(sources, part, action, child).map(Effect::Submit),
        Work::Wait(_) => Err(because("a wait asks for nothing")),
    }
}

struct Call<'c> {
    part: &'c Part,
    action: Action,
    agent: &'c AgentName,
    request: &'c RequestTemplate,
    idempotent: bool,
}

impl Call<'_> {
    fn render(self, sources: Sources<'_>) -> Result<StepRequest, NoValue> {
        let Self { part, action, agent, request: template, idempotent } = self;
        let task = sources.task;
        let progress = task.progress(part, action);
        let Some((StepState::Running { attempt, complete_by }, edit)) =
            progress.map(|progress| (progress.state.clone(), progress.input.as_ref()))
        else {
            return Err("the step is not running".to_owned().into());
        };
        let values = sources.of_part(part, action, template.templates())?;
        let scope = values.scope();
        let body = template.body.as_ref().map(|body| body.render(scope)).transpose();
        let request = StepRequest {
            task_id: task.task_id.clone(),
            step: part.clone(),
            action,
            attempt,
            complete_by,
            idempotency_key: idempotency_key(&task.task_id, part, action, edit),
            idempotent,
            agent: agent.clone(),
            method: template.method,
            path: template.path.render_path(scope)?,
            body: body.map_err(|error| error.to_string())?,
        };
        let bytes = request.body.as_ref().map_or(0, |body| body.to_string().len());
        let limit = limits::DOCUMENT_BYTES_MAX;
        if bytes + request.path.len() > limit {
            return Err(format!("a request of {bytes} bytes; the limit is {limit}").into());
        }
        Ok(request)
    }
}

/// The task that runs for a step: submitted, and submitted again to ask how it is, or to undo it.
fn submission(
    sources: Sources<'_>,
    part: &Part,
    action: Action,
    child: &ChildWorkflow,
) -> Result<Submission, NoValue> {
    let task = sources.task;
    let depth = task.parent.as_ref().map_or(0, |parent| parent.depth) + 1;
    if depth > limits::CHILD_DEPTH_MAX {
        let max = limits::CHILD_DEPTH_MAX;
        return Err(format!("workflows that run workflows: more than {max} deep").into());
    }
    // The same content whatever is asked, or it would be another task's.
    let values = sources.of_part(part, Action::Do, child.input.iter())?;
    let input = child.input.as_ref().map(|input| input.render(values.scope())).transpose();
    let input = match input {
        Ok(input) => input.unwrap_or_default(),
        // It was completed by hand before its turn: no task was submitted, and none will be.
        Err(_) if action == Action::Undo => Value::Null,
        Err(error) => return Err(error.to_string().into()),
    };
    if let Some(reason) = too_large("input", &input) {
        return Err(reason.into());
    }
    Ok(Submission {
        task_id: child_id(task, part)?,
        workflow: child.name.clone(),
        version: child.version,
        input,
        reply_to: None,
        parent: Some(Parent { task_id: task.task_id.clone(), step: part.clone(), depth }),
        undo: action == Action::Undo,
    })
}

/// The id of the task that runs for a part: `order-7:deliver`, or `order-7:deliver:3`. An operator
/// who edits the input makes it another task.
pub(crate) fn child_id(task: &Task, part: &Part) -> Result<TaskId, String> {
    let mut id = format!("{}:{}", task.task_id, part.step);
    let edit = task.progress(part, Action::Do).and_then(|progress| progress.input.as_ref());
    for more in
        part.item.map(|item| item.to_string()).into_iter().chain(edit.map(ToString::to_string))
    {
        id.push(':');
        id.push_str(&more);
    }
    id.parse().map_err(|error| format!("no id for its task: {error}"))
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
