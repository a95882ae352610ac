//! Whether a step awaits the callback with a given token. Senders of callbacks check this before they send, to tell their
//! caller why an answer would be refused. The scheduler decides on the message itself in `replies`.

use jiff::Timestamp;

use crate::model::{
    attempt::Action,
    names::{CallbackToken, Part},
    step::StepState,
    task::Task,
};

/// Why a callback would be refused, or may have no effect.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallbackRefusal {
    /// The token belongs to an earlier task with the same id.
    #[error("the token belongs to an earlier task with the same id")]
    EarlierTask,
    /// The step has not started.
    #[error("step {0} has not started")]
    NotStarted(Part),
    /// An operator edited the input, and the step was requested again.
    #[error("the task's input was edited; step {0} was requested again, with a new token")]
    Edited(Part),
    /// The attempt has ended, and the next one has not begun.
    #[error(
        "attempt {attempt} of step {step} has ended. Send the callback again after {until:.0}, \
         when the next attempt is waiting for it"
    )]
    BetweenAttempts {
        /// The step.
        step: Part,
        /// The attempt that ended.
        attempt: u32,
        /// When the next attempt may begin.
        until: Timestamp,
    },
    /// The deadline of the attempt has passed, and the result of its call is not recorded yet. A further attempt may follow, with the
    /// same token: the client should send the callback again.
    #[error(
        "the call of attempt {attempt} of step {step} is overdue. Send the callback again in a minute: by then, an \
         attempt awaits it, or the step has ended"
    )]
    CallOverdue {
        /// The step.
        step: Part,
        /// The attempt.
        attempt: u32,
    },
    /// The deadline has passed.
    #[error("too late, step {step} awaited its callback until {by:.0}")]
    TooLate {
        /// The step.
        step: Part,
        /// The deadline of the callback or of its last heartbeat.
        by: Timestamp,
    },
    /// The step has ended.
    #[error("step {step} does not await a callback; it is {state}")]
    Ended {
        /// The step.
        step: Part,
        /// Its state, in a word.
        state: &'static str,
        /// Whether it has completed. Otherwise, it failed or was skipped.
        completed: bool,
    },
}

/// Checks that the step of `token` awaits a callback at `now`.
///
/// # Errors
/// It does not. This is stricter than the scheduler, which also accepts an answer shortly after its deadline, and one that
/// completes the step between two attempts.
pub fn check_callback(
    task: &Task,
    token: &CallbackToken,
    now: Timestamp,
) -> Result<(), CallbackRefusal> {
    let step = || token.step.clone();
    if task.incarnation != token.incarnation {
        return Err(CallbackRefusal::EarlierTask);
    }
    let Some(progress) = task.progress(&token.step, Action::Do) else {
        return Err(CallbackRefusal::NotStarted(step()));
    };
    let (state, newest) = (&progress.state, progress.state.attempt_count());
    if token.edit != progress.input_edit_id {
        return Err(CallbackRefusal::Edited(step()));
    }
    match state {
        StepState::Waiting { until, .. } => {
            Err(CallbackRefusal::BetweenAttempts { step: step(), attempt: newest, until: *until })
        }
        StepState::Running { complete_by, .. } if *complete_by < now => {
            Err(CallbackRefusal::CallOverdue { step: step(), attempt: newest })
        }
        StepState::Running { .. } => Ok(()),
        StepState::AwaitingCallback { complete_by, .. } => match *complete_by {
            by if by < now => Err(CallbackRefusal::TooLate { step: step(), by }),
            _ => Ok(()),
        },
        StepState::RunningItems
        | StepState::Completed { .. }
        | StepState::Failed { .. }
        | StepState::Skipped { .. } => {
            let completed = matches!(state, StepState::Completed { .. });
            Err(CallbackRefusal::Ended { step: step(), state: state.name(), completed })
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::engine::{
        event::Event,
        tests::{TaskDriver, at, completed, reply},
    };

    /// A task whose step has 30 seconds for a call, and an hour for the answer. It started at second 5.
    fn started() -> TaskDriver {
        let steps = json!({ "a": {
            "agent": "a", "complete_within": "30s", "callback": { "within": "1h" },
            "request": { "path": "/a", "body": "${ callback.token }" },
        } });
        let definition = json!({ "complete_within": "2h", "steps": steps });
        let mut driver = TaskDriver::new(definition, &Value::Null);
        driver.apply_at(5, &Event::Wake);
        driver
    }

    /// The refusal of an answer at a time in seconds, as text.
    fn refusal(task: &Task, seconds: i64) -> Option<String> {
        let token: CallbackToken = format!("t/a/i{}", task.incarnation).parse().unwrap();
        check_callback(task, &token, at(seconds)).err().map(|refusal| refusal.to_string())
    }

    #[test]
    fn an_answer_is_not_refused_for_good_while_the_step_may_be_attempted_again() {
        let TaskDriver { task: started, .. } = started();
        assert_eq!(refusal(&started, 34), None);
        let overdue = refusal(&started, 36).unwrap();
        assert!(overdue.starts_with("the call of attempt 1 of step a is overdue."), "{overdue}");
    }

    #[test]
    fn an_answer_after_the_deadline_of_a_recorded_call_is_too_late() {
        let mut driver = started();
        let called = reply("a", Action::Do, 1, completed(Value::Null));
        driver.apply_at(6, &Event::ReplyReceived(called));
        let awaiting = driver.task;
        assert_eq!(refusal(&awaiting, 3_000), None);
        assert!(refusal(&awaiting, 4_000).unwrap().starts_with("too late, step a awaited"));
    }
}
