//! Describes events and decisions as text, for the path to a violated invariant.

use std::fmt::Write;

use steward_core::{
    engine::{decision::Transition, effect::Effect, event::Event},
    model::{
        attempt::Action,
        command::ReceivedCommand,
        messages::{CallbackOutcome, ReplyOutcome, StepReply, StepRequest},
        names::Part,
        step::StepState,
        task::Task,
    },
};

/// Describes an event: `agent completes a #1`.
pub(super) fn describe_event(event: &Event, redelivered: bool) -> String {
    let text = match event {
        Event::Wake => "scheduler woken".to_owned(),
        Event::Swept => "supervisor sweeps".to_owned(),
        Event::AlertPublished { .. } => "alert confirmed as sent".to_owned(),
        Event::ParentRequested(action) => format!("parent requests {}", action.name()),
        Event::ChildEnded { step, outcome, .. } => format!("child of {step} reports {outcome:?}"),
        Event::CallbackReceived { step, edit, outcome } => {
            let edit = edit.iter().map(|edit| format!(" of {edit}")).collect::<String>();
            let verb = match outcome {
                CallbackOutcome::Completed { .. } => "completes",
                CallbackOutcome::Failed { .. } => "fails",
                CallbackOutcome::Heartbeat => "sends a heartbeat for",
            };
            format!("callback{edit} {verb} {step}")
        }
        Event::CommandReceived(ReceivedCommand { command, .. }) => {
            format!("operator: {}", command.action.describe(&[]))
        }
        Event::ReplyReceived(StepReply { step, action, attempt, outcome, .. }) => {
            let verb = match outcome {
                ReplyOutcome::Completed { may_continue: false, .. } => "completes",
                ReplyOutcome::Completed { may_continue: true, .. } => "completes (may continue)",
                ReplyOutcome::Failed { may_have_run: false, .. } => "fails",
                ReplyOutcome::Failed { may_have_run: true, .. } => "fails (may have run)",
                ReplyOutcome::Deferred { may_have_run: false, .. } => "defers",
                ReplyOutcome::Deferred { may_have_run: true, .. } => "defers (may have run)",
                ReplyOutcome::Unknown { .. } => "cuts",
            };
            format!("agent {verb} {} #{attempt}", describe_part(step, *action))
        }
    };
    if redelivered { format!("{text}, redelivered") } else { text }
}

fn describe_part(step: &Part, action: Action) -> String {
    match action {
        Action::Do => step.to_string(),
        Action::Undo => format!("the undo of {step}"),
    }
}

/// Describes a decision: `Processing, a completed, b running #1 by 60s; due 30s; request b #1`.
pub(super) fn describe_outcome(before: &Task, answer: &Transition) -> String {
    let (mut text, effects) = match answer {
        Transition::Apply { task, effects, .. } => (describe_task(task), effects.as_slice()),
        Transition::Ignore { reason, effects } => {
            (format!("{}, ignored: {reason:?}", before.process_state), effects.as_slice())
        }
        Transition::Illegal(reason) => (format!("illegal: {reason}"), [].as_slice()),
    };
    for effect in effects {
        match effect {
            Effect::Request(StepRequest { step, action, attempt, .. }) => {
                let of = describe_part(step, *action);
                write!(text, "; request {of} #{attempt}").unwrap();
            }
            Effect::Wake { after, .. } => write!(text, "; wake after {after:?}").unwrap(),
            Effect::Notification { notice, .. } => {
                write!(text, "; notification {:?}", notice.status).unwrap()
            }
            Effect::Publish(event) => write!(text, "; event {}", event.detail_type()).unwrap(),
            Effect::Submit(submission) => {
                let to = if submission.undo { " to be undone" } else { "" };
                write!(text, "; submit {}{to}", submission.task_id).unwrap();
            }
            Effect::ChildEnded(ended) => write!(text, "; report {:?}", ended.outcome).unwrap(),
            Effect::AwaitEvent(_)
            | Effect::ParentRequest(_)
            | Effect::Reply(_)
            | Effect::Reject { .. } => text.push_str("; ?"),
        }
    }
    text
}

fn describe_task(task: &Task) -> String {
    let mut text = task.process_state.to_string();
    if task.paused_at.is_some() {
        text.push_str(" (paused)");
    }
    for (name, record) in task.steps.iter().filter(|(_, record)| record.items.is_some()) {
        write!(text, ", {name} {}", describe_state(&record.forward.state)).unwrap();
    }
    for (step, action, progress) in task.started_actions() {
        write!(text, ", {} {}", describe_part(&step, action), describe_state(&progress.state))
            .unwrap();
        if progress.may_have_run && action == Action::Do {
            text.push_str(" (may have run)");
        }
    }
    match task.due {
        Some(due) => write!(text, "; due {}s", due.as_second()).unwrap(),
        None => text.push_str("; not due"),
    }
    text
}

fn describe_state(state: &StepState) -> String {
    let (name, attempt) = (state.name(), state.attempt_count());
    match state {
        StepState::Running { complete_by: at, .. }
        | StepState::AwaitingCallback { complete_by: at, .. } => {
            format!("{name} #{attempt} by {}s", at.as_second())
        }
        StepState::Waiting { until: at, .. } => format!("{name} until {}s", at.as_second()),
        StepState::RunningItems
        | StepState::Completed { .. }
        | StepState::Failed { .. }
        | StepState::Skipped { .. } => name.to_owned(),
    }
}
