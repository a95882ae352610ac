//! What is asked of an agent, or of another task: made from a step's templates and the values at hand.

use crate::model::hash::fnv1a_128;
use serde_json::Value;

use crate::{
    definition::step::{ActionDefinition, ChildWorkflow, RequestTemplate, Work},
    engine::{
        effect::Effect,
        values::{NoValue, Sources},
    },
    limits,
    model::{
        attempt::Action,
        json_text::{JsonText, bytes_in_message},
        messages::{Parent, StepRequest, Submission, idempotency_key},
        names::{AgentName, Part, TaskId},
        step::StepState,
        task::Task,
    },
};

/// The request of a running part: to do it, or to undo it. Or the reason why no request can be made.
pub(crate) fn request(
    sources: Sources<'_>,
    part: &Part,
    action: Action,
) -> Result<Effect, NoValue> {
    let because = |reason: &str| NoValue::Because(reason.to_owned());
    let step = sources.plan.step(&part.step);
    let definition = step.action(action).ok_or_else(|| because("the step has no undo"))?;
    match definition.work {
        Work::Call { agent, request, .. } => {
            let idempotent = step.is_repeatable(action);
            let call = Call { part, action, agent, request, idempotent, definition };
            call.render(sources).map(Effect::Request)
        }
        Work::Child(child) => submission(sources, part, action, child).map(Effect::Submit),
        Work::Wait(_) => Err(because("a wait sends no request")),
    }
}

struct Call<'c> {
    part: &'c Part,
    action: Action,
    agent: &'c AgentName,
    request: &'c RequestTemplate,
    idempotent: bool,
    definition: ActionDefinition<'c>,
}

impl Call<'_> {
    fn render(self, sources: Sources<'_>) -> Result<StepRequest, NoValue> {
        let Self { part, action, agent, request: template, idempotent, definition } = self;
        let task = sources.task;
        let progress = task.progress(part, action);
        let may_have_run = progress.is_some_and(|progress| progress.may_have_run);
        let Some((StepState::Running { attempt, complete_by }, edit)) =
            progress.map(|progress| (progress.state.clone(), progress.input.as_ref()))
        else {
            return Err("the step is not running".to_owned().into());
        };
        let values = sources.of_part(part, action, template.templates())?;
        let scope = values.scope();
        // Only the text is kept: the value may take thirty times as much memory.
        let body = template.body.as_ref().map(|body| body.render(scope)).transpose();
        let body = body.map(|body| body.map(JsonText::from));
        let request = StepRequest {
            task_id: task.task_id.clone(),
            step: part.clone(),
            action,
            attempt,
            complete_by,
            idempotency_key: idempotency_key(&task.task_id, part, action, edit),
            idempotent,
            call_within_ms: u64::try_from(definition.call_within.as_millis()).ok(),
            responses: definition.responses.clone(),
            may_have_run,
            agent: agent.clone(),
            method: template.method,
            path: template.path.render_path(scope)?,
            body: body.map_err(|error| error.to_string())?,
            incarnation: task.incarnation,
        };
        let bytes = request.body.as_ref().map_or(0, JsonText::bytes_in_message);
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
        parent: Some(Parent {
            task_id: task.task_id.clone(),
            step: part.clone(),
            depth,
            incarnation: task.incarnation,
        }),
        undo: action == Action::Undo,
        attempt: task.progress(part, action).map(|progress| progress.state.attempt()),
        has_begun: has_begun(task, part),
        keep: Some(task.kept()),
    })
}

/// Whether the task that runs for a part has begun, as far as is known: it has told of an end. So it is taken if it
/// may have expired since.
fn has_begun(task: &Task, part: &Part) -> bool {
    let Some(run) = task.progress(part, Action::Do) else { return false };
    let is_completed = matches!(run.state, StepState::Completed { attempt } if attempt > 0);
    run.child_revision.is_some() || (is_completed && run.completed_by.is_none())
}

/// The id of the task that runs for a part: `order-7:deliver`, or `order-7:deliver:3`. An operator
/// who edits the input makes it another task. Of a task whose id is too long for that, the end is replaced by a
/// hash: `order-7.1f…c4:deliver`.
pub fn child_id(task: &Task, part: &Part) -> Result<TaskId, String> {
    let mut of_part = format!(":{}", part.step);
    let edit = task.progress(part, Action::Do).and_then(|progress| progress.input.as_ref());
    for more in
        part.item.map(|item| item.to_string()).into_iter().chain(edit.map(ToString::to_string))
    {
        of_part.push(':');
        of_part.push_str(&more);
    }
    let parent = task.task_id.as_str();
    let room = limits::TASK_ID_CHARS_MAX.saturating_sub(of_part.len());
    let id = match parent.len() <= room {
        true => format!("{parent}{of_part}"),
        false => {
            let hash = format!(".{:032x}", fnv1a_128(parent));
            // Ids are ASCII, so every place is between two characters.
            let head = parent.get(..room.saturating_sub(hash.len())).unwrap_or_default();
            format!("{head}{hash}{of_part}")
        }
    };
    id.parse().map_err(|error| format!("no id for its task: {error}"))
}

/// Why `value` cannot be kept, if it cannot; `what` it is.
pub(crate) fn too_large(what: &str, value: &Value) -> Option<String> {
    if limits::too_deep(value) {
        return Some(format!("the {what} nests deeper than {} levels", limits::JSON_DEPTH_MAX));
    }
    let bytes = bytes_in_message(&value.to_string());
    let limit = limits::DOCUMENT_BYTES_MAX;
    (bytes > limit).then(|| format!("an {what} of {bytes} bytes; the limit is {limit}"))
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, time::Duration};

    use jiff::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::{
        definition::plan::Plan,
        engine::{
            decision::{Context, Transition},
            documents::Documents,
            event::Event,
            transition::transition,
        },
        model::{
            document::DocumentKey,
            step::{Progress, StepRecord},
            time::Timing,
        },
        submission::{accept, parse},
    };

    fn task_with_id(id: &str, part: &Part, edit: Option<&str>) -> Task {
        let mut task: Task = serde_json::from_value(serde_json::json!({
            "task_id": id, "workflow": "w", "version": 1, "process_state": "Processing", "revision": 1,
            "complete_by": 9, "submitted_at": 0,
        }))
        .unwrap();
        if let (Some(edit), None) = (edit, part.item) {
            let mut record = StepRecord::new(StepState::Completed { attempt: 1 });
            record.run = Progress { input: Some(edit.parse().unwrap()), ..record.run };
            task.steps.insert(part.step.clone(), record);
        }
        task
    }

    fn id(parent: &str, part: &str, edit: Option<&str>) -> String {
        let part = part.parse().unwrap();
        child_id(&task_with_id(parent, &part, edit), &part).unwrap().to_string()
    }

    #[test]
    fn the_task_of_a_step_is_named_after_its_parent() {
        assert_eq!(id("order-7", "deliver", None), "order-7:deliver");
        assert_eq!(id("order-7", "deliver[3]", None), "order-7:deliver:3");
        assert_eq!(id("order-7", "deliver", Some("c-1")), "order-7:deliver:c-1");
        let most = "x".repeat(limits::TASK_ID_CHARS_MAX - ":deliver".len());
        assert_eq!(id(&most, "deliver", None), format!("{most}:deliver"));
    }

    #[test]
    fn a_parent_whose_id_is_too_long_has_children_nonetheless() {
        let step = "s".repeat(limits::NAME_CHARS_MAX);
        let edit = "e".repeat(limits::COMMAND_ID_CHARS_MAX);
        let parent = |last: char| format!("{}{last}", "x".repeat(limits::TASK_ID_CHARS_MAX - 1));
        let all = [
            id(&parent('a'), &step, None),
            id(&parent('b'), &step, None),
            id(&parent('a'), &format!("{step}[99]"), None),
            id(&parent('a'), &step, Some(&edit)),
        ];
        let different: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(different.len(), all.len(), "{all:?}");
        assert!(all.iter().all(|id| id.len() <= limits::TASK_ID_CHARS_MAX), "{all:?}");
        assert!(all[0].ends_with(&format!(":{step}")), "{}", all[0]);
        assert_eq!(all[0], id(&parent('a'), &step, None), "the same each time");
        // And so do they.
        assert_ne!(id(&all[0], &step, None), all[0]);
    }

    const TIMING: Timing = Timing {
        pickup_within: Duration::ZERO,
        clock_skew: Duration::ZERO,
        retention: Timing::RETENTION,
    };

    fn submitted(workflow: &Plan, input: &Value) -> (Task, Documents) {
        let submission = json!({ "task_id": "t", "workflow": "w", "input": input }).to_string();
        let submission = parse(&submission).unwrap();
        let (task, submitted) = accept(&submission, workflow, None, Timestamp::UNIX_EPOCH, TIMING);
        (task, Documents::from([(submitted.key, submitted.body)]))
    }

    fn woken(workflow: &Plan, task: &Task, at_hand: &Documents) -> (Task, Documents, Vec<Effect>) {
        let now = Timestamp::from_second(1).unwrap();
        let context = Context { now, actor: "test", redelivered: false, timing: TIMING };
        match transition(workflow, task, at_hand, &Event::Wake, context).unwrap() {
            Transition::Apply { task, documents, effects } => {
                let made = documents.into_iter().map(|made| (made.key, made.body));
                (*task, made.collect(), effects)
            }
            other @ (Transition::Ignore { .. } | Transition::Illegal(_)) => panic!("{other:?}"),
        }
    }

    fn workflow(step: &Value) -> Plan {
        serde_json::from_value(json!({ "name": "w", "version": 1, "steps": { "a": step } }))
            .unwrap()
    }

    #[test]
    fn a_request_that_no_queue_would_take_is_a_permanent_failure_of_its_step() {
        let workflow =
            workflow(&json!({ "agent": "a", "request": { "path": "/x", "body": "${ input }" } }));
        // Each of these characters has three bytes, and six in a message.
        let text = "\u{ffff}".repeat(limits::DOCUMENT_BYTES_MAX / 4);
        let (task, at_hand) = submitted(&workflow, &json!(text));
        let (after, made, effects) = woken(&workflow, &task, &at_hand);
        let sent = effects.iter().any(|effect| matches!(effect, Effect::Request(_)));
        assert!(!sent, "nothing is sent");
        assert!(after.steps["a"].run.state.is_failed());
        let (key, body) = made.first_key_value().unwrap();
        assert!(matches!(key, DocumentKey::Failure(_)));
        let reason = body["reason"].as_str().unwrap();
        assert!(reason.contains("; the limit is 131072"), "{reason}");
    }

    #[test]
    fn requests_that_are_too_many_for_one_decision_begin_with_the_next_ones() {
        let workflow = workflow(&json!({
            "agent": "a", "for_each": { "items": "${ input.items }", "at_once": 100 },
            "request": { "path": "/x", "body": "${ input }" },
        }));
        let text = "x".repeat(100_000);
        let input = json!({ "items": (0..50).collect::<Vec<_>>(), "text": text });
        let (mut task, at_hand) = submitted(&workflow, &input);
        let (mut begun, mut decisions) = (BTreeSet::new(), 0);
        loop {
            let (after, _, effects) = woken(&workflow, &task, &at_hand);
            decisions += 1;
            let requests: Vec<_> = effects
                .iter()
                .filter_map(|effect| {
                    let Effect::Request(request) = effect else { return None };
                    Some(request)
                })
                .collect();
            let bytes: usize =
                requests.iter().map(|r| r.body.as_ref().unwrap().as_str().len()).sum();
            assert!(bytes < limits::DECISION_BYTES_MAX + limits::DOCUMENT_BYTES_MAX);
            for request in requests {
                assert_eq!(request.attempt, 1);
                assert!(begun.insert(request.step.clone()), "{} is sent twice", request.step);
            }
            task = after;
            let woken_again = effects
                .iter()
                .any(|effect| matches!(effect, Effect::Wake { after, .. } if after.is_zero()));
            assert_eq!(woken_again, begun.len() < 50, "what is left is begun by a wake");
            if !woken_again {
                break;
            }
        }
        assert_eq!((begun.len(), task.running().count()), (50, 50));
        assert_eq!(decisions, 5, "as many as fit begin at once");
    }
}
