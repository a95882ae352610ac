//! Whether a step awaits the callback with a given token. Senders of callbacks check this before they send, to tell their
//! caller why an answer would be refused. The scheduler decides on the message itself in `replies`.

use jiff::Timestamp;

use crate::model::{
    attempt::Action,
    names::{CallbackFence, CallbackToken, Part},
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
    /// The token belongs to an earlier attempt. Only tokens of older releases name an attempt.
    #[error("this attempt no longer awaits a callback; the newest attempt is {0}")]
    EarlierAttempt(u32),
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
    if task.is_other_incarnation(token.incarnation) {
        return Err(CallbackRefusal::EarlierTask);
    }
    let Some(progress) = task.progress(&token.step, Action::Do) else {
        return Err(CallbackRefusal::NotStarted(step()));
    };
    let (state, newest) = (&progress.state, progress.state.attempt_count());
    match &token.fence {
        CallbackFence::Attempt(attempt) if *attempt != newest => {
            return Err(CallbackRefusal::EarlierAttempt(newest));
        }
        CallbackFence::Request { edit } if *edit != progress.input_edit_id => {
            return Err(CallbackRefusal::Edited(step()));
        }
        CallbackFence::Attempt(_) | CallbackFence::Request { .. } => {}
    }
    match state {
        StepState::Waiting { until, .. } => {
            Err(CallbackRefusal::BetweenAttempts { step: step(), attempt: newest, until: *until })
        }
        StepState::Running { complete_by, .. }
        | StepState::AwaitingCallback { complete_by, .. } => match *complete_by {
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
