//! Computes the states that follow an event.

use std::{
    collections::BTreeSet,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::LazyLock,
    time::Duration,
};

use jiff::Timestamp;
use serde_json::Value;
use steward_core::{
    engine::{
        decision::{DecisionContext, Transition},
        documents::{LoadedDocuments, NeededDocuments},
        effect::Effect,
        event::Event,
        invariants::decision::requested_attempt,
        transition::transition,
    },
    model::{
        attempt::AttemptId,
        messages::{ParentStep, Submission},
        step::StepState,
        task::{ProcessState, Task},
        time::later,
    },
    submission::accept,
};

use super::{
    children::ChildSubmission,
    descriptions::{describe_event, describe_outcome},
    events::{ModelEvent, task_id},
    expiry::expires_at,
    invariants::{self, CheckedTransition},
    model_state::{LostEffects, ModelState, end},
    recording::save,
    workflows::{Ending, ExploredWorkflow},
};
use crate::transition_rows::{TransitionRow, documented_rows, row_of};

/// The rows of the transition table.
static TABLE: LazyLock<BTreeSet<TransitionRow>> = LazyLock::new(documented_rows);

/// The outcome of an event.
#[derive(Default)]
pub(super) struct Successors {
    /// The next states. In the first all effects are sent. In the second, if there is one, all effects are lost.
    pub(super) states: Vec<ModelState>,
    /// The effects that are sent in the first state.
    pub(super) effects: Vec<Effect>,
    /// The violated invariants.
    pub(super) violated: Vec<String>,
    /// The row of the transition table. None if the event was ignored.
    pub(super) row: Option<TransitionRow>,
    pub(super) ending: Option<Ending>,
}

/// Applies `event` to `world`.
pub(super) fn successors(
    workflow: &ExploredWorkflow,
    model: &ModelState,
    event: &ModelEvent,
) -> Successors {
    match event {
        ModelEvent::Submitted { undo } => submit(workflow, model, *undo),
        ModelEvent::ClockAdvances(to) => {
            let mut after = model.clone();
            after.now = *to;
            Successors { states: vec![after], ..Successors::default() }
        }
        ModelEvent::WeeksPass => {
            let mut after = model.clone();
            after.now = weeks_after(model.now);
            after.budget.long_pauses = after.budget.long_pauses.saturating_sub(1);
            // No queue retains a message for so long.
            after.lost = None;
            Successors { states: vec![after], ..Successors::default() }
        }
        ModelEvent::ExpiredDeleted(expired) => {
            let mut after = model.clone();
            after.delete(expired);
            Successors { states: vec![after], ..Successors::default() }
        }
        ModelEvent::Child(part, event) => {
            let mut after = model.clone();
            after.children.entry(part.clone()).or_default().apply(*event, model.now);
            let violated = invariants::violated_in_state(workflow, &after);
            Successors { states: vec![after], violated, ..Successors::default() }
        }
        ModelEvent::MessageArrives { event, redelivered } => {
            decide(workflow, model, event, *redelivered, None)
        }
        ModelEvent::LostMessageRedelivered => {
            let mut before = model.clone();
            let lost_effects = before.lost.take().unwrap();
            decide(workflow, &before, &lost_effects.event, true, Some(&lost_effects))
        }
    }
}

/// Describes an event and the next state. `lost` selects the state in which the effects are lost.
pub(super) fn describe(
    workflow: &ExploredWorkflow,
    model: &ModelState,
    event: &ModelEvent,
    lost: bool,
) -> String {
    let describe_decision = |model: &ModelState, event: &Event, redelivered| {
        let task = model.task.as_ref().unwrap();
        let context = context(workflow, model, event, redelivered);
        let answer = transition_checked(workflow, model, task, event, context);
        let outcome = describe_outcome(task, &answer.0);
        let crash = if lost { "; the process crashes before it sends the effects" } else { "" };
        format!("{} => {outcome}{crash}", describe_event(event, redelivered))
    };
    match event {
        ModelEvent::Submitted { undo: false } => "submitted".to_owned(),
        ModelEvent::Submitted { undo: true } => "submitted to be undone".to_owned(),
        ModelEvent::WeeksPass => format!("clock {}s", weeks_after(model.now).as_second()),
        ModelEvent::ExpiredDeleted(expired) => format!("expired item deleted: {expired:?}"),
        ModelEvent::ClockAdvances(to) => format!("clock {}s", to.as_second()),
        ModelEvent::Child(part, event) => format!("child of {part}: {event:?}"),
        ModelEvent::MessageArrives { event, redelivered } => {
            describe_decision(model, event, *redelivered)
        }
        ModelEvent::LostMessageRedelivered => {
            let mut model = model.clone();
            let lost_effects = model.lost.take().unwrap();
            describe_decision(&model, &lost_effects.event, true)
        }
    }
}

/// 20 days later. That is shorter than the retention, but twice as much is longer than any item is kept.
fn weeks_after(now: Timestamp) -> Timestamp {
    later(now, Duration::from_secs(20 * 24 * 3600))
}

/// The incarnation of the parent of a child task.
pub(super) const PARENT_INCARNATION: &str = "000000007";

fn submit(workflow: &ExploredWorkflow, model: &ModelState, undo: bool) -> Successors {
    let parent = ParentStep {
        task_id: "p".parse().unwrap(),
        step: "k".parse().unwrap(),
        depth: 1,
        incarnation: PARENT_INCARNATION.parse().unwrap(),
        payload_place: None,
    };
    let submission = Submission {
        task_id: task_id(),
        workflow: workflow.definition.name.clone(),
        version: None,
        input: workflow.input.clone(),
        reply_to: Some("client".to_owned()),
        tenant: None,
        parent: workflow.is_child.then_some(parent),
        undo,
        attempt: None,
        has_begun: false,
        retention: None,
        rerun: None,
    };
    // An attribute that no decision reads makes the item larger.
    let filler = Some("x".repeat(workflow.filler_bytes));
    let (task, separate) =
        accept(&submission, &workflow.definition, filler, model.now, workflow.timing).unwrap();
    let mut after = model.clone();
    separate.into_iter().for_each(|document| after.write(&document));
    after.extend_expiries(None, &task);
    let expected = if undo { ProcessState::Undone } else { ProcessState::Pending };
    let is_right = task.process_state == expected;
    after.task = Some(task);
    let mut violated = invariants::violated_in_state(workflow, &after);
    if !is_right {
        violated.push("a child whose undo arrives before its submission never starts".to_owned());
    }
    Successors { states: vec![after], violated, ..Successors::default() }
}

fn context<'a>(
    workflow: &ExploredWorkflow,
    model: &ModelState,
    event: &Event,
    redelivered: bool,
) -> DecisionContext<'a> {
    let actor = if *event == Event::Swept { "supervisor" } else { "scheduler" };
    DecisionContext {
        now: model.now,
        actor,
        redelivered,
        lost_starts: None,
        timing: workflow.timing,
        callback_urls: None,
    }
}

/// Makes the core's decision, and creates the states in which its effects are sent and lost.
fn decide(
    workflow: &ExploredWorkflow,
    before: &ModelState,
    event: &Event,
    redelivered: bool,
    lost_effects: Option<&LostEffects>,
) -> Successors {
    let task = before.task.as_ref().unwrap();
    let context = context(workflow, before, event, redelivered);
    let (answer, mut violated) = transition_checked(workflow, before, task, event, context);
    let (mut after, effects, applied) = match &answer {
        Transition::Apply { task: next, documents, effects } => {
            let mut after = before.clone();
            after.extend_expiries(Some(task), next);
            for document in documents {
                after.write(document);
            }
            after.extend_expiries(Some(next), next);
            save(workflow, &mut after, task, next, event);
            (after, effects.as_slice(), true)
        }
        Transition::Ignore { effects, .. } => (before.clone(), effects.as_slice(), false),
        Transition::Illegal(reason) => {
            violated.push(format!("no possible event is illegal: {reason}"));
            (before.clone(), [].as_slice(), false)
        }
    };
    if matches!(event, Event::AlertPublished { .. }) {
        after.pending_confirmation = None;
    }
    let lost = state_with_lost_effects(&after, event, effects, applied && lost_effects.is_none());
    send(&mut after, effects);
    let change = CheckedTransition {
        workflow,
        before,
        after: &after,
        event,
        lost: lost_effects,
        effects,
        applied,
    };
    violated.extend(invariants::violated_by_transition(&change));
    violated.extend(invariants::violated_in_state(workflow, &after));
    let row = row_of(task, event, &answer);
    if let Some(row) = row.as_ref().filter(|row| !TABLE.contains(row)) {
        violated.push(format!("every transition is in the table of transition.rs; not `{row}`"));
    }
    let ending = change.ending();
    let mut states = Vec::new();
    if let Some(lost) = lost {
        violated.extend(invariants::violated_in_state(workflow, &lost));
        states.push(lost);
    }
    states.insert(0, after);
    let effects = match answer {
        Transition::Apply { effects, .. } | Transition::Ignore { effects, .. } => effects,
        Transition::Illegal(_) => Vec::new(),
    };
    Successors { states, effects, violated, row, ending }
}

/// The most rounds in which a decision may want documents.
const ROUNDS_MAX: usize = 10;

/// Makes a decision with the documents that the core wants. Checks that the decision is the same with all documents.
fn transition_checked(
    workflow: &ExploredWorkflow,
    model: &ModelState,
    task: &Task,
    event: &Event,
    context: DecisionContext<'_>,
) -> (Transition, Vec<String>) {
    let (answer, mut violated, wanted) =
        transition_with(workflow, model, task, event, context, LoadedDocuments::new());
    let sends = |answer: &Transition| match answer {
        Transition::Apply { effects, .. } | Transition::Ignore { effects, .. } => {
            effects.iter().any(|effect| matches!(effect, Effect::Request(_) | Effect::Submit(_)))
        }
        Transition::Illegal(_) => false,
    };
    // Only requests are created from documents.
    if wanted < model.documents.len() && (sends(&answer) || wanted > 0) {
        let existing = model.documents.keys().filter_map(|key| model.read(key).map(|it| (key, it)));
        let existing = existing.map(|(key, body)| (key.clone(), body.clone())).collect();
        let with_all = transition_with(workflow, model, task, event, context, existing);
        if with_all.0 != answer {
            violated.push("a decision is the same with all documents available".to_owned());
        }
    }
    (answer, violated)
}

/// Makes a decision; returns it with the violated invariants and the number of wanted documents.
fn transition_with(
    workflow: &ExploredWorkflow,
    model: &ModelState,
    task: &Task,
    event: &Event,
    context: DecisionContext<'_>,
    mut documents: LoadedDocuments,
) -> (Transition, Vec<String>, usize) {
    let (mut violated, mut noted) = (Vec::new(), BTreeSet::new());
    let mut wanted = 0;
    for _ in 0..ROUNDS_MAX {
        // A violated invariant of the task or of the decision makes it panic.
        let decide = || transition(&workflow.definition, task, &documents, event, context);
        let keys = match catch_unwind(AssertUnwindSafe(decide)) {
            Ok(Ok(answer)) => return (answer, violated, wanted),
            Ok(Err(NeededDocuments(keys))) => keys,
            Err(panicked) => {
                let text = panicked.downcast_ref::<String>().cloned().unwrap_or_default();
                violated.push(format!("a decision does not panic; not with `{text}`"));
                break;
            }
        };
        wanted += keys.len();
        for key in keys {
            let is_new = match model.read(&key).cloned() {
                Some(found) => documents.insert(key.clone(), found).is_none(),
                None if model.lacks(&key) => {
                    documents.mark_absent(key.clone());
                    noted.insert(key.clone())
                }
                None => {
                    violated.push(format!("the core wants only existing documents; not {key}"));
                    documents.insert(key.clone(), Value::Null).is_none()
                }
            };
            if !is_new {
                violated.push(format!(
                    "the core wants only documents that it does not have; not {key}"
                ));
            }
        }
    }
    violated.push("a decision is made in a few rounds of documents".to_owned());
    (Transition::Illegal("undecided".to_owned()), violated, wanted)
}

/// The state in which the decision is saved and its effects are lost. A message will be redelivered. A sweep is not
/// repeated, because the next sweep finds what is due.
fn state_with_lost_effects(
    after: &ModelState,
    event: &Event,
    effects: &[Effect],
    applied: bool,
) -> Option<ModelState> {
    let is_redelivered = match event {
        Event::Wake
        | Event::ReplyReceived(_)
        | Event::CommandReceived(_)
        | Event::CallbackReceived { .. }
        | Event::ParentRequested(_)
        | Event::ChildEnded { .. } => true,
        Event::Swept | Event::AlertPublished { .. } => false,
    };
    if !applied || effects.is_empty() || after.budget.crashes == 0 {
        return None;
    }
    let mut lost = after.clone();
    lost.budget.crashes -= 1;
    let is_lost = |at: &Timestamp| {
        effects.iter().any(|effect| {
            matches!(effect, Effect::Wake { after: pause, .. } if later(after.now, *pause) == *at)
        })
    };
    let waits =
        after.task.iter().flat_map(Task::started_actions).filter_map(|(step, action, progress)| {
            let StepState::Waiting { attempt: number, until, .. } = progress.state else {
                return None;
            };
            let attempt = AttemptId { step, action, number: number.unwrap_or(0) };
            is_lost(&until).then_some((attempt, until))
        });
    let ended = after.task.as_ref().and_then(end);
    let ended = ended.filter(|_| effects.iter().any(|e| matches!(e, Effect::Notification { .. })));
    let immediate_wake = is_lost(&after.now);
    let lost_effects =
        LostEffects { event: event.clone(), waits: waits.collect(), immediate_wake, ended };
    lost.lost = is_redelivered.then_some(lost_effects);
    Some(lost)
}

/// The end of the task in Error of which an effect is the alert.
fn alerted_end(effect: &Effect) -> Option<Timestamp> {
    let Effect::Publish(event) = effect else { return None };
    event.alerted_end()
}

/// Records that effects are sent.
fn send(after: &mut ModelState, effects: &[Effect]) {
    let Some(task) = after.task.clone() else { return };
    for effect in effects {
        let attempt = requested_attempt(&task, effect);
        if let Some(dispatch) = attempt.and_then(|attempt| after.dispatches.get_mut(&attempt)) {
            dispatch.sent = true;
            if let Effect::Request(request) = effect {
                dispatch.agent = Some(request.agent.clone());
                dispatch.exclusive = request.exclusive;
            }
        }
        if let Effect::Submit(submission) = effect
            && let Some(parent) = &submission.parent
        {
            let child = after.children.entry(parent.step.clone()).or_default();
            child.content.get_or_insert_with(|| submission.input.to_string());
            child.submitted.insert(ChildSubmission::new(submission));
            child.expires_at = child.expires_at.max(submission.retention.map(expires_at));
            if !submission.undo {
                let until = submission.retention.map(|keep| keep.from);
                child.begins_until = child.begins_until.max(until);
            }
        }
    }
    for ended_at in effects.iter().filter_map(alerted_end) {
        after.alerted |= task.process_state == ProcessState::Error;
        after.pending_confirmation = Some(ended_at);
    }
}
