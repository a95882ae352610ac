//! Renders the request of a step from its templates: to an agent, the submission of a child task, or the subscription to an
//! event.

use std::fmt;

use serde_json::Value;

use crate::{
    correlation::{CorrelationKey, EventSubscription, Waiter},
    definition::{
        step::{ActionDefinition, ChildWorkflow, RequestTemplate, StepWork},
        wait::AwaitedEvent,
    },
    engine::{
        effect::Effect,
        passed_payloads::{check_path, check_payloads},
        values::{ValueError, ValueSources},
    },
    expression::template::Template,
    limits,
    model::{
        attempt::Action,
        command::CommandId,
        hash::fnv1a_128,
        json_text::{JsonText, bytes_in_message, to_json_text},
        messages::{ParentStep, StepRequest, Submission, idempotency_key},
        names::{AgentName, InvalidName, Part, TaskId},
        retention::DocumentRetention,
        step::StepState,
        task::Task,
    },
};

/// Renders the request that does or undoes a running part. Returns an error if a document is not loaded, or if no
/// valid request can be rendered.
pub(crate) fn render_request(
    sources: ValueSources<'_>,
    part: &Part,
    action: Action,
) -> Result<Effect, ValueError> {
    let invalid = |reason: &str| ValueError::Invalid(reason.to_owned());
    let step = sources.plan.step(&part.step);
    let definition = step.action(action).ok_or_else(|| invalid("the step has no undo"))?;
    match definition.work {
        StepWork::Call { agents, request, output, .. } => {
            let idempotent = step.is_repeatable(action);
            // The undo goes to the agent of the run.
            let position = sources.task.record(part).and_then(|record| record.agent(action));
            let agent = agents.at(position);
            let agent = agent.ok_or_else(|| invalid("no agent is chosen"))?;
            let falls_back = action == Action::Do && agents.falls_back();
            let call = AgentCall {
                part,
                action,
                agent,
                falls_back,
                request,
                output,
                idempotent,
                definition,
            };
            call.render(sources).map(Effect::Request)
        }
        StepWork::Child(child) => {
            submission_of_child(sources, part, action, child).map(Effect::Submit)
        }
        StepWork::Event(wait) => subscription(sources, part, &wait.event).map(Effect::AwaitEvent),
        StepWork::Wait(_) => Err(invalid("a wait sends no request")),
    }
}

struct AgentCall<'c> {
    part: &'c Part,
    action: Action,
    agent: &'c AgentName,
    falls_back: bool,
    request: &'c RequestTemplate,
    output: Option<&'c Template>,
    idempotent: bool,
    definition: ActionDefinition<'c>,
}

impl AgentCall<'_> {
    fn render(self, sources: ValueSources<'_>) -> Result<StepRequest, ValueError> {
        let Self {
            part,
            action,
            agent,
            falls_back,
            request: template,
            output,
            idempotent,
            definition,
        } = self;
        let task = sources.task;
        let progress = task.progress(part, action);
        let may_have_run = progress.is_some_and(|progress| progress.may_have_run);
        let second_delivery_may_act =
            progress.is_some_and(|progress| progress.second_delivery_may_act);
        let Some((StepState::Running { attempt, complete_by }, edit)) =
            progress.map(|progress| (progress.state.clone(), progress.input_edit_id.as_ref()))
        else {
            return Err("the step is not running".to_owned().into());
        };
        let mut values = sources.values_for_part(part, action, template.templates())?;
        let key = idempotency_key(&task.task_id, part, action, edit);
        let format = template.idempotency_key.as_ref();
        let form = format.and_then(|format| format.form).unwrap_or_default();
        values.key = Some(form.of(&key));
        let scope = values.scope();
        // Keep only the text, because the value may use thirty times as much memory.
        let body = template.body.as_ref().map(|body| body.render(scope)).transpose();
        if let Ok(Some(body)) = &body {
            check_payloads(body, task).map_err(|error| format!("request.body: {error}"))?;
        }
        let body = body.map(|body| body.map(JsonText::from));
        let path = template.path.as_ref().map(|path| path.render_path(scope)).transpose()?;
        let path = template.message_path(path.unwrap_or_default());
        check_path(&path).map_err(|error| format!("request.path: {error}"))?;
        let request = StepRequest {
            task_id: task.task_id.clone(),
            step: part.clone(),
            action,
            attempt,
            complete_by,
            idempotency_key: key,
            idempotent,
            call_within_ms: definition.call_within.as_millis().try_into().unwrap_or(u64::MAX),
            responses: definition.responses.clone(),
            exclusive: falls_back && !second_delivery_may_act,
            may_have_run,
            callback: action == Action::Do && sources.plan.step(&part.step).callback().is_some(),
            agent: agent.clone(),
            method: template.method,
            path,
            body: body.map_err(|error| error.to_string())?,
            auth: template.auth.clone(),
            key_format: template.idempotency_key.clone(),
            output: output.cloned().map(Box::new),
            incarnation: task.incarnation,
            tenant: task.tenant.clone(),
            payload_place: task.parent.as_ref().map(|_| task.payload_place()),
        };
        let body_bytes = request.body.as_ref().map_or(0, JsonText::sqs_bytes);
        let escapes = request.path.matches(['"', '\\']).count();
        let bytes = body_bytes + bytes_in_message(&request.path) + escapes;
        match over_limit(format_args!("a request"), bytes) {
            Some(reason) => Err(reason.into()),
            None => Ok(request),
        }
    }
}

/// The subscription to the event that a running part waits for.
fn subscription(
    sources: ValueSources<'_>,
    part: &Part,
    event: &AwaitedEvent,
) -> Result<EventSubscription, ValueError> {
    let task = sources.task;
    let progress = task.progress(part, Action::Do);
    let Some(StepState::Running { attempt, complete_by }) = progress.map(|run| run.state.clone())
    else {
        return Err("the step is not running".to_owned().into());
    };
    let values = sources.values_for_part(part, Action::Do, std::iter::once(&event.equals))?;
    let value = event.equals.render(values.scope()).map_err(|error| error.to_string())?;
    let key = CorrelationKey::new(&task.workflow, &part.step, event, &value);
    let key = key.map_err(|error| error.to_string())?;
    let (task_id, incarnation, step) = (task.task_id.clone(), task.incarnation, part.clone());
    let (until, tenant) = (complete_by, task.tenant.clone());
    let waiter = Waiter { task_id, incarnation, step, attempt, until, tenant };
    Ok(EventSubscription { key, waiter })
}

/// The submission of a child task. It is sent again to request the child's outcome, or to undo the child.
fn submission_of_child(
    sources: ValueSources<'_>,
    part: &Part,
    action: Action,
    child: &ChildWorkflow,
) -> Result<Submission, ValueError> {
    let task = sources.task;
    let depth = task.parent.as_ref().map_or(0, |parent| parent.depth) + 1;
    if depth > limits::CHILD_DEPTH_MAX {
        let max = limits::CHILD_DEPTH_MAX;
        return Err(format!("child tasks are nested more than {max} levels deep").into());
    }
    // The content is the same for doing and undoing. Otherwise submission would refuse it as another task's.
    let edit = task.record(part).and_then(|record| record.edit(action));
    let values = sources.values_with_edit(part, edit, child.input.iter())?;
    let input = child.input.as_ref().map(|input| input.render(values.scope())).transpose();
    let input = match input {
        Ok(input) => input.unwrap_or_default(),
        // An operator completed the step before it started: no child was submitted, and none will be.
        Err(_) if action == Action::Undo => Value::Null,
        Err(error) => return Err(error.to_string().into()),
    };
    if let Some(reason) = size_error("input", &input) {
        return Err(reason.into());
    }
    // The scheduler submits the child again, in later attempts and to undo it. Submission refuses a message over the limit
    // before it reads whose child it is, so the longest of them must fit.
    let longest = Submission {
        task_id: child_id_of_edit(task, part, edit).map_err(|error| error.to_string())?,
        workflow: child.name.clone(),
        version: child.version,
        input,
        tenant: task.tenant.clone(),
        reply_to: None,
        parent: Some(ParentStep {
            task_id: task.task_id.clone(),
            step: part.clone(),
            depth,
            incarnation: task.incarnation,
            // The child knows the place of a parent that has no parent.
            payload_place: task.parent.as_ref().map(|_| task.payload_place()),
        }),
        undo: true,
        attempt: Some(u32::MAX),
        has_begun: true,
        retention: Some(DocumentRetention::LONGEST),
        rerun: None,
    };
    let bytes = bytes_in_message(&to_json_text(&longest));
    if let Some(reason) = over_limit(format_args!("a child submission"), bytes) {
        return Err(reason.into());
    }
    Ok(Submission {
        undo: action == Action::Undo,
        attempt: task.progress(part, action).map(|progress| progress.state.attempt_count()),
        has_begun: has_begun(task, part, action),
        retention: Some(task.document_retention()),
        ..longest
    })
}

/// Whether the child task of a part is known to have started, because it has reported an end. A child that may have
/// expired since then counts as started.
fn has_begun(task: &Task, part: &Part, action: Action) -> bool {
    let Some(record) = task.record(part) else { return false };
    if action == Action::Undo && record.key_of_undo().is_some() {
        return true;
    }
    let run = &record.forward;
    let is_completed = matches!(run.state, StepState::Completed { attempt: Some(_) });
    run.child_revision.is_some() || (is_completed && run.completed_by_hand.is_none())
}

/// The id of a child task, made of those of its parent and its step, is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the child task has no valid id: {0}")]
pub struct InvalidChildId(InvalidName);

/// Returns the id of the child task of a part: `order-7:deliver`, or `order-7:deliver:3` for an item. After an
/// operator has edited the input, the part runs another child, with the id of the edit in its own id. If the parent's
/// id is too long, a hash replaces its end: `order-7.1f…c4:deliver`. Returns an error if the result is not a valid
/// id.
pub fn child_id(task: &Task, part: &Part) -> Result<TaskId, InvalidChildId> {
    let edit = task.progress(part, Action::Do).and_then(|progress| progress.input_edit_id.as_ref());
    child_id_of_edit(task, part, edit)
}

/// The ids of all child tasks that the part may have run, with any edit of the input.
pub fn child_ids<'a>(task: &'a Task, part: &'a Part) -> impl Iterator<Item = TaskId> + 'a {
    let record = task.record(part).into_iter();
    let earlier = record.flat_map(|record| record.other_keys());
    let edits = earlier.map(|key| key.input_edit_id.as_ref());
    let earlier = edits.filter_map(move |edit| child_id_of_edit(task, part, edit).ok());
    child_id(task, part).ok().into_iter().chain(earlier)
}

/// The same for the child task that the part ran, or runs, with this edit of the input.
pub(crate) fn child_id_of_edit(
    task: &Task,
    part: &Part,
    edit: Option<&CommandId>,
) -> Result<TaskId, InvalidChildId> {
    let mut suffix = format!(":{}", part.step);
    for component in
        part.item.map(|item| item.to_string()).into_iter().chain(edit.map(ToString::to_string))
    {
        suffix.push(':');
        suffix.push_str(&component);
    }
    let parent = task.task_id.as_str();
    let available = limits::TASK_ID_CHARS_MAX.saturating_sub(suffix.len());
    let id = match parent.len() <= available {
        true => format!("{parent}{suffix}"),
        false => {
            let hash = format!(".{:032x}", fnv1a_128(parent));
            // Ids are ASCII, so every index is a character boundary.
            let head = parent.get(..available.saturating_sub(hash.len())).unwrap_or_default();
            format!("{head}{hash}{suffix}")
        }
    };
    id.parse().map_err(InvalidChildId)
}

/// Returns an error message if `value` is too large or too deeply nested to store. `what` names the value in the message.
pub fn size_error(what: &str, value: &Value) -> Option<String> {
    if limits::nests_too_deep(value) {
        return Some(format!("the {what} nests deeper than {} levels", limits::JSON_DEPTH_MAX));
    }
    over_limit(format_args!("an {what}"), bytes_in_message(&value.to_string()))
}

/// Returns an error message if the bytes of `what` exceed the limit of a document.
pub(crate) fn over_limit(what: fmt::Arguments<'_>, bytes: usize) -> Option<String> {
    let limit = limits::DOCUMENT_BYTES_MAX;
    (bytes > limit).then(|| format!("{what} of {bytes} bytes; the limit is {limit}"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use jiff::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::{
        definition::plan::Plan,
        engine::{
            documents::LoadedDocuments,
            event::Event,
            tests::{TaskDriver, new_command},
            values::DocumentCache,
        },
        model::{
            command::CommandAction,
            document::DocumentKey,
            json_text::escape_for_sqs,
            step::{Progress, StepRecord},
        },
        submission::parse,
    };

    fn task_with_id(id: &str, part: &Part, edit: Option<&str>) -> Task {
        let mut task: Task = serde_json::from_value(serde_json::json!({
            "task_id": id, "workflow": "w", "v": 1, "i": 0, "k": 1, "process_state": "Processing", "revision": 1,
            "complete_by": 9, "submitted_at": 0,
        }))
        .unwrap();
        if let (Some(edit), None) = (edit, part.item) {
            let mut record = StepRecord::new(StepState::Completed { attempt: Some(1) });
            record.forward =
                Progress { input_edit_id: Some(edit.parse().unwrap()), ..record.forward };
            task.steps.insert(part.step.clone(), record);
        }
        task
    }

    fn id(parent: &str, part: &str, edit: Option<&str>) -> String {
        let part = part.parse().unwrap();
        child_id(&task_with_id(parent, &part, edit), &part).unwrap().to_string()
    }

    #[test]
    fn the_id_of_a_child_task_begins_with_the_id_of_its_parent() {
        assert_eq!(id("order-7", "deliver", None), "order-7:deliver");
        assert_eq!(id("order-7", "deliver[3]", None), "order-7:deliver:3");
        assert_eq!(id("order-7", "deliver", Some("c-1")), "order-7:deliver:c-1");
        let most = "x".repeat(limits::TASK_ID_CHARS_MAX - ":deliver".len());
        assert_eq!(id(&most, "deliver", None), format!("{most}:deliver"));
    }

    #[test]
    fn a_parent_with_a_long_id_has_children_with_distinct_ids() {
        let step = "s".repeat(limits::NAME_CHARS_MAX);
        let edit = "e".repeat(limits::COMMAND_ID_CHARS_MAX);
        let parent = |last: char| format!("{}{last}", "x".repeat(limits::TASK_ID_CHARS_MAX - 1));
        let all = [
            id(&parent('a'), &step, None),
            id(&parent('b'), &step, None),
            id(&parent('a'), &format!("{step}[9999]"), None),
            id(&parent('a'), &step, Some(&edit)),
        ];
        let different: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(different.len(), all.len(), "{all:?}");
        assert!(all.iter().all(|id| id.len() <= limits::TASK_ID_CHARS_MAX), "{all:?}");
        assert!(all[0].ends_with(&format!(":{step}")), "{}", all[0]);
        assert_eq!(all[0], id(&parent('a'), &step, None), "the id is deterministic");
        // A child with a shortened id can have children too.
        assert_ne!(id(&all[0], &step, None), all[0]);
    }

    /// A task of a workflow with this step, before and after its first wake.
    struct Woken {
        plan: Plan,
        /// The documents that are stored with the submission.
        submitted: LoadedDocuments,
        after: Task,
        /// The documents that the wake stores.
        stored: LoadedDocuments,
        effects: Vec<Effect>,
    }

    fn wake(step: &Value, input: &Value) -> Woken {
        let mut driver = TaskDriver::new(json!({ "steps": { "a": step } }), input);
        let submitted = driver.stored.clone();
        let (documents, effects) = driver.apply_at(1, &Event::Wake);
        let stored = driver.task.documents.iter().chain(documents).collect();
        Woken { plan: driver.plan, submitted, after: driver.task, stored, effects }
    }

    fn requests(effects: &[Effect]) -> impl Iterator<Item = &StepRequest> {
        effects.iter().filter_map(|effect| {
            let Effect::Request(request) = effect else { return None };
            Some(request)
        })
    }

    #[test]
    fn a_request_above_the_limit_of_a_document_is_a_permanent_failure_of_its_step() {
        let step = json!({ "agent": "a", "request": { "path": "/x", "body": "${ input }" } });
        // Each of these characters has three bytes, and six in a message.
        let text = "\u{ffff}".repeat(limits::DOCUMENT_BYTES_MAX / 4);
        let Woken { after, stored, effects, .. } = wake(&step, &json!(text));
        let sent = effects.iter().any(|effect| matches!(effect, Effect::Request(_)));
        assert!(!sent, "a request is sent");
        assert!(after.steps["a"].forward.state.is_failed());
        let (key, body) = stored.first_key_value().unwrap();
        assert!(matches!(key, DocumentKey::Failure(_)));
        let reason = body["reason"].as_str().unwrap();
        assert!(reason.contains("; the limit is 131072"), "{reason}");
    }

    /// Renders the submission of the child task of step `a`, and returns its text as SQS delivers it.
    fn child_submission(
        plan: &Plan,
        task: &Task,
        stored: &LoadedDocuments,
        action: Action,
    ) -> String {
        let cache = DocumentCache::new(stored);
        let (new_documents, cache, callback_urls) = (&[], &cache, None);
        let sources = ValueSources { plan, task, new_documents, cache, callback_urls };
        match render_request(sources, &"a".parse().unwrap(), action) {
            Ok(Effect::Submit(submission)) => escape_for_sqs(to_json_text(&submission)),
            Ok(other) => panic!("{other:?}"),
            Err(ValueError::Invalid(reason)) => panic!("{reason}"),
            Err(ValueError::NotLoaded) => panic!("a document is not loaded"),
        }
    }

    /// The submissions of one child task differ: the one for its undo is the longest.
    #[test]
    fn a_child_task_of_any_size_is_accepted_in_every_submission_or_fails_its_step() {
        let input = json!({ "head": "${ input.head }", "again": "${ input.head }", "tail": "${ input.tail }" });
        let step = json!({ "workflow": { "name": "kid", "input": input } });
        let head = "x".repeat(60_000);
        let rendered = |tail: &str| json!({ "head": head, "again": head, "tail": tail });
        let least = bytes_in_message(&rendered("\u{ffff}").to_string());
        let mut accepted = BTreeSet::new();
        for bytes in limits::DOCUMENT_BYTES_MAX - 400..=limits::DOCUMENT_BYTES_MAX + 1 {
            let tail = format!("\u{ffff}{}", "x".repeat(bytes - least));
            assert_eq!(bytes_in_message(&rendered(&tail).to_string()), bytes);
            let woken = wake(&step, &json!({ "head": head, "tail": tail }));
            let Woken { plan, submitted, mut after, stored, effects } = woken;
            if after.steps["a"].forward.state.is_failed() {
                let (_, failure) = stored.first_key_value().unwrap();
                let reason = failure["reason"].as_str().unwrap();
                assert!(reason.contains(" bytes; the limit is 131072"), "{bytes}: {reason}");
                assert!(!effects.iter().any(|effect| matches!(effect, Effect::Submit(_))));
                continue;
            }
            accepted.insert(bytes);
            parse(&child_submission(&plan, &after, &submitted, Action::Do)).unwrap();
            let complete_by = Timestamp::UNIX_EPOCH;
            let last = StepState::Running { attempt: limits::ATTEMPTS_MAX * 1_001, complete_by };
            let record = after.steps.get_mut("a").unwrap();
            record.forward.state = StepState::Completed { attempt: Some(1) };
            record.undo = Some(Progress::new(last));
            let undo = child_submission(&plan, &after, &submitted, Action::Undo);
            assert!(parse(&undo).unwrap().undo, "{bytes}");
        }
        let least = limits::DOCUMENT_BYTES_MAX - 400;
        let most = *accepted.last().unwrap();
        assert!(accepted.into_iter().eq(least..=most), "larger ones are refused");
        assert!(limits::DOCUMENT_BYTES_MAX - most < 350, "{most}");
    }

    /// In the message, a path is JSON: these characters are escaped.
    #[test]
    fn the_path_of_a_request_is_measured_as_in_its_message() {
        let path = "${ '/x?q=' + input + input }";
        let step = json!({ "agent": "a", "request": { "path": path } });
        let input = json!("\"".repeat(limits::DOCUMENT_BYTES_MAX / 3));
        let Woken { stored, effects, .. } = wake(&step, &input);
        assert!(!effects.iter().any(|effect| matches!(effect, Effect::Request(_))));
        let (_, failure) = stored.first_key_value().unwrap();
        assert_eq!(failure["reason"], "a request of 174765 bytes; the limit is 131072");
    }

    #[test]
    fn a_request_can_contain_its_own_key_in_the_form_that_its_service_takes() {
        for (form, expected) in [(json!(null), "t/a/do".len()), (json!("hash36"), 36)] {
            let step = json!({ "agent": "a", "request": {
                "path": "/x/${ request.idempotency_key }", "idempotency_key": { "form": form },
                "body": { "key": "${ request.idempotency_key }" },
            } });
            let woken = wake(&step, &Value::Null);
            let request = requests(&woken.effects).next().unwrap();
            let key = request.body.as_ref().unwrap().value()["key"].as_str().unwrap().to_owned();
            assert_eq!((request.idempotency_key.as_str(), key.len()), ("t/a/do", expected));
            assert_eq!(request.path, format!("/x/{}", key.replace('/', "%2F")));
        }
    }

    /// The path of the message names the action, as it names the function or the queue for agents of those kinds.
    #[test]
    fn a_request_with_an_action_of_aws_has_it_in_its_path() {
        for (request, path) in [
            (
                json!({ "aws": "dynamodb:PutItem", "body": { "TableName": "t" } }),
                "/dynamodb:PutItem",
            ),
            (
                json!({ "aws": "batch:TagResource", "path": "/v1/tags/${ task.id }", "method": "POST" }),
                "/batch:TagResource/v1/tags/t",
            ),
        ] {
            let step = json!({ "agent": "a", "request": request });
            let Woken { effects, .. } = wake(&step, &Value::Null);
            let sent = requests(&effects).next().map(|request| request.path.as_str());
            assert_eq!(sent, Some(path));
        }
    }

    #[test]
    fn a_request_has_the_output_template_of_its_step_and_an_undo_has_none() {
        let output = json!({ "id": "${ response.body.id }" });
        let step = json!({
            "agent": "a", "request": { "path": "/x" }, "output": output,
            "undo": { "request": { "path": "/y" } },
        });
        let Woken { plan, effects, .. } = wake(&step, &Value::Null);
        assert_eq!(
            requests(&effects).next().unwrap().output.as_deref().map(Template::source),
            Some(&output)
        );
        let undo = plan.steps["a"].action(Action::Undo).unwrap();
        assert!(matches!(undo.work, StepWork::Call { output: None, .. }));
    }

    #[test]
    fn the_undo_of_a_step_whose_request_was_impossible_has_the_time_of_its_start() {
        let undo = json!({ "request": { "path": "/", "body": "${ step.started_at }" } });
        let request = json!({ "path": "/", "body": "${ input.missing }" });
        let next = json!({ "after": ["a"], "fail": "no", "recovery": { "then": "undo" } });
        let steps = json!({ "a": { "agent": "a", "request": request, "undo": undo }, "b": next });
        let mut driver = TaskDriver::new(json!({ "steps": steps }), &json!({}));
        driver.apply_at(1, &Event::Wake);
        assert!(driver.task.steps["a"].forward.state.is_failed());
        driver.now = 5;
        let step = Some("a".parse().unwrap());
        let complete = CommandAction::Complete { step, output: json!(1) };
        driver.apply(&new_command(complete));
        let (_, effects) = driver.apply(&Event::Wake);
        let undo = requests(&effects).next().unwrap();
        assert_eq!(undo.action, Action::Undo);
        assert_eq!(undo.body.as_ref().unwrap().value(), json!("1970-01-01T00:00:01Z"));
    }

    #[test]
    fn requests_over_the_memory_limit_of_a_decision_start_in_later_decisions() {
        let step = json!({
            "agent": "a", "for_each": { "items": "${ input.items }", "at_once": 100 },
            "request": { "path": "/x", "body": "${ input }" },
        });
        let text = "x".repeat(100_000);
        let input = json!({ "items": (0..50).collect::<Vec<_>>(), "text": text });
        let mut driver = TaskDriver::new(json!({ "steps": { "a": step } }), &input);
        let (mut started, mut decisions) = (BTreeSet::new(), 0);
        loop {
            let (_, effects) = driver.apply_at(1, &Event::Wake);
            decisions += 1;
            let requests: Vec<_> = requests(&effects).collect();
            let bytes: usize =
                requests.iter().map(|r| r.body.as_ref().unwrap().as_str().len()).sum();
            assert!(bytes < limits::DECISION_BYTES_MAX + limits::DOCUMENT_BYTES_MAX);
            for request in requests {
                assert_eq!(request.attempt, 1);
                assert!(started.insert(request.step.clone()), "{} is sent twice", request.step);
            }
            let woken_again = effects
                .iter()
                .any(|effect| matches!(effect, Effect::Wake { after, .. } if after.is_zero()));
            assert_eq!(woken_again, started.len() < 50, "a wake starts the rest");
            if !woken_again {
                break;
            }
        }
        assert_eq!((started.len(), driver.task.running_attempts().count()), (50, 50));
        assert_eq!(decisions, 5, "each decision starts as many as fit");
    }
}
