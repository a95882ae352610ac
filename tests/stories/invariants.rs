//! The invariants that are checked after every line of every story, besides those of a task by itself, which the engine
//! asserts. They do not call the core's functions: the graph and what is left to undo are computed here a second time.

mod queries;

use jiff::Timestamp;
use steward_core::{
    correlation::EventSubscription,
    definition::workflow::Workflow,
    engine::{decision::DecisionContext, effect::Effect, event::Event},
    limits,
    model::{
        attempt::Action,
        command::ReceivedCommand,
        events::{BusEvent, EventData, OperatorEvent},
        lifecycle::{LifecycleEvent, LifecycleEventContent},
        messages::StepRequest,
        names::Part,
        step::{StepRecord, StepState},
        task::{ProcessState, Task},
    },
};

use queries::{
    all_sent, attempts_grow, descendants, events, has_effect, has_stopped, in_progress_until,
    is_awaited, is_left, is_undoing, keeps_steps, left_to_undo, matches_running_attempt,
    matches_running_step, ran_although_undone, requests, submitted_values,
};

/// A decision: the task before and after it, and its effects.
pub(super) struct DecisionCheck<'a> {
    pub(super) workflow: &'a Workflow,
    pub(super) before: &'a Task,
    pub(super) after: &'a Task,
    pub(super) event: &'a Event,
    pub(super) effects: &'a [Effect],
    pub(super) context: DecisionContext<'a>,
}

/// Each invariant's text, and whether it holds.
type Invariants = Vec<(&'static str, bool)>;

/// The invariants that a decision violates.
pub(super) fn violated_by_decision(decision: &DecisionCheck<'_>) -> Vec<String> {
    let invariants = [
        task_invariants(decision),
        due_invariants(decision),
        end_invariants(decision),
        alert_invariants(decision),
        undo_invariants(decision),
        request_invariants(decision),
        command_invariants(decision),
    ];
    let violated = invariants.concat().into_iter().filter(|(_, holds)| !holds);
    let mut violated: Vec<_> = violated.map(|(text, _)| text.to_owned()).collect();
    violated.extend(violated_by_effects(decision.workflow, decision.after, decision.effects));
    violated
}

/// Invariants of every saved task.
fn task_invariants(DecisionCheck { before, after, effects, .. }: &DecisionCheck<'_>) -> Invariants {
    let stored = serde_json::to_value(after).ok();
    let read_back: Option<Task> = stored.and_then(|stored| serde_json::from_value(stored).ok());
    vec![
        (
            "a scheduler that sends a request holds the lock",
            requests(effects).next().is_none() || after.locked_by.as_deref() == Some("scheduler"),
        ),
        ("the task's failure count never decreases", after.failure_count >= before.failure_count),
        ("a saved task is read back unchanged", read_back.as_ref() == Some(after)),
        (
            "the submitted values of a task do not change",
            submitted_values(before) == submitted_values(after),
        ),
        ("attempt numbers increase by one", attempts_grow(before, after)),
        ("the record of a started step is kept", keeps_steps(before, after)),
        ("the request of each running attempt was sent", all_sent(before, after, effects)),
    ]
}

/// A task is due soon after each wake, in case it is lost.
fn due_invariants(DecisionCheck { after, effects, context, .. }: &DecisionCheck<'_>) -> Invariants {
    let in_time = |time: Timestamp| has_stopped(after) || after.due.is_some_and(|due| due <= time);
    let delays = effects.iter().filter_map(|effect| {
        let Effect::Wake { after, .. } = effect else { return None };
        Some(*after)
    });
    let pickup = context.timing.pickup_within;
    vec![
        (
            "due soon after each wake, in case it is lost",
            delays.clone().all(|delay| in_time(context.now + delay + pickup)),
        ),
        (
            "no wake is delayed longer than a queue can delay it",
            { delays }.all(|delay| delay <= limits::QUEUE_DELAY_MAX),
        ),
    ]
}

/// Invariants of final states, which change only by a command or by a report that contradicts them.
fn end_invariants(decision: &DecisionCheck<'_>) -> Invariants {
    let DecisionCheck { before, after, event, effects, context, .. } = decision;
    let ends = decision.ends();
    let stays = before.process_state == after.process_state && before.ended_at == after.ended_at;
    let commanded =
        matches!(event, Event::CommandReceived(_) | Event::ParentRequested(Action::Undo));
    let notifications =
        effects.iter().filter(|effect| matches!(effect, Effect::Notification { .. })).count();
    vec![
        (
            "a final state changes only by a command, or by a report that contradicts it",
            !has_stopped(before) || stays || commanded || ran_although_undone(before, after, event),
        ),
        ("the end time is the time of the decision", !ends || after.ended_at == Some(context.now)),
        (
            "the client is notified of the end",
            !ends || notifications == usize::from(after.reply_to.is_some()),
        ),
    ]
}

/// Error sends an alert, which names the steps that failed or are left to undo.
fn alert_invariants(decision: &DecisionCheck<'_>) -> Invariants {
    let DecisionCheck { workflow, before, after, event, effects, .. } = decision;
    let (ends, in_error) = (decision.ends(), after.process_state == ProcessState::Error);
    let events: Vec<_> = events(effects).filter(|event| event.alerted_end().is_some()).collect();
    let failed = after.started_parts().filter(|(_, record)| record.forward.state.is_failed());
    let failed: Vec<_> = failed.map(|(part, _)| part).collect();
    let left = left_to_undo(workflow, after);
    let names = |steps: &[Part], wanted: &[Part]| steps == wanted;
    let backward = after.undo_reason.is_some();
    let names_the_parts = |event: &&BusEvent| {
        let data = event.operator_event().map(|event| &event.data);
        if let Some(EventData::UndoFailed(trouble)) = data {
            return backward && names(&trouble.steps, &left);
        }
        matches!(data, Some(EventData::TaskInError(trouble))
            if !backward && names(&trouble.steps, &failed))
    };
    let was_due = ends || before.due.is_some();
    vec![
        (
            "Error sends exactly one alert, and no other state sends one",
            !ends || events.len() == usize::from(in_error),
        ),
        (
            "an alert names the parts that failed, or those that are left to undo",
            events.iter().all(names_the_parts),
        ),
        (
            "a task in Error is due until the alert is recorded as sent",
            !in_error
                || !was_due
                || after.due.is_some()
                || matches!(event, Event::AlertPublished { .. }),
        ),
    ]
}

/// Invariants of undo: which steps are undone, and in which order.
fn undo_invariants(
    DecisionCheck { workflow, after, effects, context, .. }: &DecisionCheck<'_>,
) -> Invariants {
    let undos = || requests(effects).filter(|request| request.action == Action::Undo);
    let dos = || requests(effects).filter(|request| request.action == Action::Do);
    let may_be_in_progress = |record: &StepRecord| in_progress_until(record) > Some(context.now);
    let is_undone_in_order = |request: &StepRequest| {
        descendants(workflow, &request.step.step).into_iter().all(|later| {
            let parts = after.started_parts().filter(|(part, _)| part.step == *later);
            parts.into_iter().all(|(_, r)| {
                !is_awaited(r) && !may_be_in_progress(r) && !is_left(workflow, later, r)
            })
        })
    };
    let had_effect = |request: &StepRequest| {
        after
            .record(&request.step)
            .is_some_and(|r| has_effect(r) && !is_awaited(r) && !may_be_in_progress(r))
    };
    let can_be_undone =
        workflow.steps.iter().filter(|(_, step)| step.point_of_no_return).all(|(name, _)| {
            let mut parts = after.started_parts().filter(|(part, _)| part.step == *name);
            parts.all(|(_, r)| !has_effect(r) && !is_awaited(r))
        });
    vec![
        (
            "no step is requested while the task is Undoing",
            !is_undoing(after) || dos().next().is_none(),
        ),
        (
            "an undo is requested only while the task is Undoing",
            is_undoing(after) || undos().next().is_none(),
        ),
        ("an undo starts after the undo of all later steps", undos().all(is_undone_in_order)),
        ("only a part that may have run is undone", undos().all(had_effect)),
        (
            "past the point of no return nothing is undone",
            can_be_undone || after.undo_is_final || undos().next().is_none(),
        ),
    ]
}

/// Invariants of requests to agents.
fn request_invariants(decision: &DecisionCheck<'_>) -> Invariants {
    let DecisionCheck { before, after, effects, context, .. } = decision;
    let may_run = |request: &StepRequest| {
        let progress = after.progress(&request.step, request.action);
        request.idempotent || progress.is_some_and(|progress| !progress.may_have_run)
    };
    let waited = |request: &StepRequest| {
        let old = before.progress(&request.step, request.action);
        old.is_none_or(|old| match old.state {
            StepState::Waiting { until, .. } => {
                until <= context.now + context.timing.clock_skew
                    || matches!(decision.event, Event::CommandReceived(_))
            }
            StepState::Running { .. } => true,
            StepState::Failed { .. } => matches!(decision.event, Event::CommandReceived(_)),
            StepState::AwaitingCallback { .. }
            | StepState::RunningItems
            | StepState::Completed { .. }
            | StepState::Skipped { .. } => false,
        })
    };
    let no_request = requests(effects).next().is_none();
    vec![
        ("nothing starts in a paused task", after.paused_at.is_none() || no_request),
        ("nothing starts in a task in a final state", !has_stopped(after) || no_request),
        (
            "nothing starts past the task's complete-by",
            no_request || context.now < after.complete_by,
        ),
        (
            "no attempt ends after the task's complete-by",
            requests(effects).all(|r| r.complete_by <= after.complete_by),
        ),
        ("a supervisor sends no requests", *decision.event != Event::Swept || no_request),
        (
            "a part that may have run is repeated only if it is idempotent",
            requests(effects).all(may_run),
        ),
        (
            "no attempt starts before the end of a wait, or for a part with an outcome",
            requests(effects).all(waited),
        ),
    ]
}

/// Each command is recorded and published; a refused one changes nothing else.
fn command_invariants(
    DecisionCheck { before, after, event, effects, context, .. }: &DecisionCheck<'_>,
) -> Invariants {
    let published: Vec<_> = events(effects)
        .filter_map(|event| {
            let EventData::OperatorCommand { command_id, by, caller, why, refused, .. } =
                &event.operator_event()?.data
            else {
                return None;
            };
            Some((command_id, by, caller.as_ref(), why, refused))
        })
        .collect();
    let Event::CommandReceived(ReceivedCommand { command, caller }) = event else {
        return vec![
            ("only a command is recorded as a command", before.commands == after.commands),
            ("only a command is published as a command", published.is_empty()),
        ];
    };
    let record = after.commands.last();
    let refused = record.and_then(|record| record.refused.as_ref());
    let unchanged = Task { commands: before.commands.clone(), due: before.due, ..(*after).clone() };
    vec![
        (
            "a command is recorded with its caller, operator and reason",
            record.is_some_and(|record| {
                record.id == command.command_id
                    && (&record.by, &record.why) == (&command.by, &command.why)
                    && record.caller == *caller
                    && record.at == context.now
            }),
        ),
        (
            "a command is published as it is recorded",
            published
                == record
                    .map(|r| (&r.id, &r.by, Some(&r.caller), &r.why, &r.refused))
                    .into_iter()
                    .collect::<Vec<_>>(),
        ),
        ("a refused command changes nothing else", refused.is_none() || unchanged == **before),
    ]
}

/// The effects that do not match the saved task, as violated invariants.
pub(super) fn violated_by_effects(
    workflow: &Workflow,
    task: &Task,
    effects: &[Effect],
) -> Vec<String> {
    let matches_task = |effect: &Effect| match effect {
        Effect::Request(request) => matches_running_attempt(workflow, task, request),
        Effect::AwaitEvent(EventSubscription { waiter, .. }) => {
            let run = task.progress(&waiter.step, Action::Do).map(|run| &run.state);
            run == Some(&StepState::Running { attempt: waiter.attempt, complete_by: waiter.until })
        }
        Effect::Notification { notice, .. } => {
            Some(notice.at) == task.ended_at
                && notice.task_id.as_deref() == Some(task.task_id.as_str())
        }
        Effect::Publish(BusEvent::Lifecycle(event)) => event_matches(task, event),
        Effect::Publish(BusEvent::Operator(event)) => {
            let OperatorEvent { metadata, data } = &**event;
            let ended = Some(metadata.at) == task.ended_at;
            match data {
                EventData::TaskInError(trouble) | EventData::UndoFailed(trouble) => {
                    ended && trouble.task_id == task.task_id
                }
                EventData::OperatorCommand { task_id, .. } => *task_id == task.task_id,
                EventData::BreakerOpened(_)
                | EventData::SubmissionRefused { .. }
                | EventData::MessageCorrupt { .. }
                | EventData::DeadLetterSeen { .. }
                | EventData::AgentMissing { .. }
                | EventData::OperatorRedrive { .. }
                | EventData::BreakerClosed(_) => false,
            }
        }
        Effect::Wake { wake, .. } => wake.task_id == task.task_id,
        Effect::Submit(submission) => matches_running_step(workflow, task, submission),
        Effect::ChildEnded(ended) => task.parent.as_ref().is_some_and(|parent| {
            has_stopped(task) && (&parent.task_id, &parent.step) == (&ended.task_id, &ended.step)
        }),
        Effect::ParentRequest(_) | Effect::Reply(_) | Effect::Reject { .. } => false,
    };
    let wrong = effects.iter().filter(|effect| !matches_task(effect));
    wrong.map(|effect| format!("an effect matches the saved task; not {effect:?}")).collect()
}

/// Whether a lifecycle event is about what the saved task shows.
fn event_matches(task: &Task, event: &LifecycleEvent) -> bool {
    let ended = |state| task.process_state == state && Some(event.time) == task.ended_at;
    let is_about = match &event.content {
        LifecycleEventContent::Submitted(_) => {
            task.process_state != ProcessState::Pending && event.time == task.submitted_at
        }
        LifecycleEventContent::StepCompleted(data) => task.steps.get(&data.step).is_some_and(|r| {
            let is_completed = matches!(r.forward.state, StepState::Completed { .. });
            is_completed && r.forward.state.newest_attempt() == data.attempt
        }),
        LifecycleEventContent::StepFailed(data) => task.record(&data.step).is_some_and(|r| {
            r.forward.state.is_failed() && r.forward.state.newest_attempt() == data.attempt
        }),
        LifecycleEventContent::Processed(_) => ended(ProcessState::Processed),
        LifecycleEventContent::Undone(_) => ended(ProcessState::Undone),
        LifecycleEventContent::Error(data) => {
            ended(ProcessState::Error) && data.undo_failed == task.undo_reason.is_some()
        }
    };
    is_about && event.subject == task.task_id
}

impl DecisionCheck<'_> {
    /// Whether the task ends now, for the first time or again.
    fn ends(&self) -> bool {
        let Self { before, after, .. } = self;
        let changed = before.process_state != after.process_state;
        has_stopped(after) && (changed || before.ended_at != after.ended_at)
    }
}
