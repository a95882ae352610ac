//! The events that can occur in a state.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::json;
use steward_core::{
    engine::event::Event,
    model::{
        attempt::{Action, AttemptId, AttemptTimes},
        command::Command,
        messages::{CallbackOutcome, ReplyOutcome, StepReply},
        names::{Part, TaskId},
        step::StepState,
        task::Task,
        time::later,
    },
};

use super::{
    children::{ChildEvent, refusal_report, report},
    expiry::ExpiredItem,
    model_state::ModelState,
    workflows::ExploredWorkflow,
};

/// An event of the exploration.
#[derive(Debug, Clone)]
#[allow(clippy::large_enum_variant, reason = "most events are arrivals")]
pub(super) enum ModelEvent {
    Submitted {
        /// Whether the submission of a child is to undo it, before it has started.
        undo: bool,
    },
    MessageArrives {
        event: Event,
        redelivered: bool,
    },
    /// The message whose effects were lost is redelivered.
    LostMessageRedelivered,
    ClockAdvances(Timestamp),
    /// Weeks pass without any message.
    WeeksPass,
    /// An expired item is deleted.
    ExpiredDeleted(ExpiredItem),
    /// An event of a child task.
    Child(Part, ChildEvent),
}

pub(super) fn task_id() -> TaskId {
    "t".parse().unwrap()
}

/// All events that can occur next.
pub(super) fn possible_events(workflow: &ExploredWorkflow, model: &ModelState) -> Vec<ModelEvent> {
    let Some(task) = &model.task else {
        let both = [false, true].into_iter().filter(|undo| !undo || workflow.is_child);
        return both.map(|undo| ModelEvent::Submitted { undo }).collect();
    };
    let arrives = |event, redelivered| ModelEvent::MessageArrives { event, redelivered };
    let mut events =
        vec![arrives(Event::Wake, false), arrives(Event::Wake, true), arrives(Event::Swept, false)];
    // The clock does not advance between events, so two ends may have the same time here.
    let is_distinguishable = |ended_at| model.alerted || task.ended_at != Some(ended_at);
    if let Some(ended_at) = model.pending_confirmation.filter(|at| is_distinguishable(*at)) {
        events.push(arrives(Event::AlertPublished { ended_at }, false));
    }
    if workflow.is_child {
        for (action, redelivered) in
            [(Action::Do, false), (Action::Do, true), (Action::Undo, false)]
        {
            events.push(arrives(Event::ParentRequested(action), redelivered));
        }
        events.push(arrives(Event::ParentRequested(Action::Undo), true));
    }
    events.extend(replies(workflow, model, task));
    events.extend(callbacks(workflow, model, task));
    events.extend(child_events(model));
    if let Some(command) = &model.last_command {
        events.push(arrives(
            Event::CommandReceived(command.clone().received_from("AIDAANN".parse().unwrap())),
            true,
        ));
    }
    if model.budget.commands > 0 {
        let command_id = format!("c-{}", model.budget.commands).parse().unwrap();
        events.extend(workflow.commands.iter().map(|action| {
            let (by, why) = ("op".to_owned(), "because".to_owned());
            let action = action.clone();
            let command = Command {
                command_id: Clone::clone(&command_id),
                task_id: task_id(),
                by,
                why,
                action,
                issued_at: model.now,
            };
            arrives(
                Event::CommandReceived(command.received_from("AIDAANN".parse().unwrap())),
                false,
            )
        }));
    }
    if model.lost.is_some() {
        events.push(ModelEvent::LostMessageRedelivered);
    }
    events.extend(next_instant(workflow, model, task).map(ModelEvent::ClockAdvances));
    if model.budget.long_pauses > 0 {
        events.push(ModelEvent::WeeksPass);
    }
    events.extend(model.expired().into_iter().map(ModelEvent::ExpiredDeleted));
    events
}

/// The outcome of a successful attempt.
pub(super) fn completed(step: &Part, number: u32) -> ReplyOutcome {
    ReplyOutcome::Completed {
        output: json!({ "id": format!("{step}-{number}") }),
        may_continue: false,
    }
}

/// All possible replies of agents to any sent request, also late and repeated ones.
fn replies(workflow: &ExploredWorkflow, model: &ModelState, task: &Task) -> Vec<ModelEvent> {
    let mut events = Vec::new();
    let sent = model.dispatches.iter().filter(|(_, dispatch)| dispatch.sent);
    for (attempt, dispatch) in sent.filter(|(attempt, _)| !workflow.runs_child(&attempt.step)) {
        let mut add = |outcome, redelivered| {
            let AttemptId { step, action, number } = attempt.clone();
            let reply = StepReply {
                task_id: task_id(),
                step,
                action,
                attempt: number,
                outcome,
                incarnation: task.incarnation,
                times: AttemptTimes::default(),
                agent: None,
            };
            events.push(ModelEvent::MessageArrives {
                event: Event::ReplyReceived(reply),
                redelivered,
            });
        };
        let completed = || completed(&attempt.step, attempt.number);
        let failed = |may_have_run, call_in_doubt| ReplyOutcome::Failed {
            reason: "no".to_owned(),
            may_have_run,
            call_in_doubt,
            detail: None,
        };
        let deferred = |may_have_run, certain| {
            let (reason, retry_after_ms) = ("breaker open".to_owned(), 10_000);
            ReplyOutcome::Deferred {
                reason,
                retry_after_ms,
                may_have_run,
                certain,
                call_in_doubt: false,
                detail: None,
            }
        };
        // The agent has recorded its refusal, and repeats it.
        if dispatch.refused {
            add(deferred(false, true), false);
            add(deferred(false, true), true);
            continue;
        }
        let progress = task.progress(&attempt.step, attempt.action);
        let is_awaited = progress.is_some_and(|progress| {
            progress.state.is_running() && progress.state.attempt_count() == attempt.number
        });
        add(completed(), false);
        add(failed(false, false), false);
        // An event, or the refusal of its subscription.
        if workflow.awaits_event(&attempt.step) {
            add(completed(), true);
            continue;
        }
        add(failed(true, false), false);
        // A doubt about its own call.
        add(failed(true, true), false);
        if workflow.slow {
            let output = json!({ "id": format!("{}-{}", attempt.step, attempt.number) });
            add(ReplyOutcome::Completed { output, may_continue: true }, false);
        }
        if !is_awaited {
            add(completed(), true);
            if workflow.slow {
                add(
                    ReplyOutcome::Unknown { reason: "the call was cut".to_owned(), detail: None },
                    false,
                );
            }
            continue;
        }
        if workflow.slow {
            add(
                ReplyOutcome::Unknown { reason: "the call was cut".to_owned(), detail: None },
                false,
            );
        }
        if model.budget.deferrals > 0 {
            add(deferred(false, false), false);
            add(deferred(true, false), false);
            if dispatch.exclusive {
                add(deferred(false, true), false);
            }
        }
        for output in workflow.outputs.iter().filter(|_| attempt.action == Action::Do) {
            add(ReplyOutcome::Completed { output: output.clone(), may_continue: false }, false);
        }
    }
    events
}

/// All possible callbacks with the token of any sent request: before and after the agent's reply, repeated, too late, and
/// from before an edit of the input.
fn callbacks(workflow: &ExploredWorkflow, model: &ModelState, task: &Task) -> Vec<ModelEvent> {
    let mut events = Vec::new();
    let sent = model.dispatches.iter().filter(|(attempt, dispatch)| {
        let has_token = attempt.action == Action::Do && workflow.callback(&attempt.step).is_some();
        has_token && dispatch.sent
    });
    let tokens: BTreeSet<_> = sent.map(|(of, dispatch)| (&of.step, &dispatch.edit)).collect();
    for (step, edit) in tokens {
        let mut add = |outcome, redelivered| {
            let (step, edit) = (step.clone(), edit.clone());
            let event = Event::CallbackReceived { step, edit, outcome };
            events.push(ModelEvent::MessageArrives { event, redelivered });
        };
        let is_awaited = task.progress(step, Action::Do).is_some_and(|progress| {
            progress.state.reply_due_by().is_some() && progress.input_edit_id == *edit
        });
        add(callback_answer(step), false);
        add(CallbackOutcome::Failed { reason: "no".to_owned() }, false);
        add(CallbackOutcome::Heartbeat, false);
        if !is_awaited {
            add(callback_answer(step), true);
        }
    }
    events
}

/// The answer of a successful callback.
pub(super) fn callback_answer(step: &Part) -> CallbackOutcome {
    CallbackOutcome::Completed { output: json!({ "id": format!("{step}-answered") }) }
}

/// The events of child tasks, and their reports.
fn child_events(model: &ModelState) -> Vec<ModelEvent> {
    let mut events = Vec::new();
    for (part, child) in &model.children {
        let own_events = child.events(model.now).into_iter();
        events.extend(own_events.map(|event| ModelEvent::Child(part.clone(), event)));
        let ends = child.reported.iter().filter_map(|end| report(part, *end));
        let refusals = child.refused.iter().map(|attempt| refusal_report(part, *attempt));
        for event in ends.chain(refusals) {
            events.push(ModelEvent::MessageArrives { event: event.clone(), redelivered: false });
            events.push(ModelEvent::MessageArrives { event, redelivered: true });
        }
    }
    events
}

/// The next time at which a deadline passes or something can start.
fn next_instant(workflow: &ExploredWorkflow, model: &ModelState, task: &Task) -> Option<Timestamp> {
    let mut instants: BTreeSet<_> = task.due.into_iter().collect();
    if !task.process_state.has_stopped() {
        instants.insert(task.complete_by);
    }
    for (_, _, progress) in task.started_actions() {
        instants.extend(progress.call_may_run_until);
        match progress.state {
            StepState::Running { complete_by: at, .. }
            | StepState::AwaitingCallback { complete_by: at, .. }
            | StepState::Waiting { until: at, .. } => {
                instants.insert(at);
            }
            StepState::RunningItems
            | StepState::Completed { .. }
            | StepState::Failed { .. }
            | StepState::Skipped { .. } => {}
        }
    }
    let skew = workflow.timing.clock_skew;
    let by_every_clock: Vec<_> = instants.iter().map(|at| later(*at, skew)).collect();
    instants.extend(by_every_clock);
    instants.into_iter().find(|at| *at > model.now)
}
