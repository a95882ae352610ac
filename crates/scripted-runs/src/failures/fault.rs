//! The ways in which a call of a step, or of its undo, can fail.

use std::{fmt, time::Duration};

use serde::Serialize;
use serde_json::Value;
use steward_core::{
    definition::{
        step::{StepDefinition, StepWork},
        workflow::Workflow,
    },
    model::{
        attempt::Action,
        names::{StepName, WorkflowName},
        responses::{ClassifiedResponse, ResponseOverrides},
    },
};
use steward_forecast::cost::scripted::{Body, CallPlan, KeyMemory, Millis, Reply};

/// A way to fail. Where Steward cannot know whether the step took effect, there is one for each possibility.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// The service refuses the call for good, before it has an effect.
    Refused,
    /// The service cannot be reached.
    Unreachable,
    /// The service asks the agent to come back later, until the task's time is up.
    Busy,
    /// The service answers in a way that leaves the outcome open, and the call took effect.
    UnknownTookEffect,
    /// The same, and the call had no effect.
    UnknownNoEffect,
    /// The service never answers any call, and the first one took effect.
    SilentTookEffect,
    /// The same, and no call had an effect.
    SilentNoEffect,
    /// The service stores an error for the idempotency key and answers every call with it, and the first one took effect.
    ErrorStoredTookEffect,
    /// The same, and no call had an effect.
    ErrorStoredNoEffect,
    /// The service ignores idempotency keys, and the answer to the first call is lost.
    KeyIgnored,
    /// The answer to the first call is lost, and the service cannot be reached until it has forgotten the idempotency key.
    KeyForgotten,
    /// The callback says that the step failed.
    CallbackFailed,
    /// The callback never arrives, and the step took effect.
    NoCallbackTookEffect,
    /// The same, and the step had no effect.
    NoCallbackNoEffect,
    /// The awaited event never arrives.
    NoEvent,
    /// The child task undoes itself.
    ChildUndone,
    /// The child task ends in Error, with an effect.
    ChildError,
    /// The child task does not end.
    ChildNever,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Refused => "refused",
            Self::Unreachable => "unreachable",
            Self::Busy => "busy for long",
            Self::UnknownTookEffect => "unknown, took effect",
            Self::UnknownNoEffect => "unknown, no effect",
            Self::SilentTookEffect => "silent, took effect",
            Self::SilentNoEffect => "silent, no effect",
            Self::ErrorStoredTookEffect => "error stored, took effect",
            Self::ErrorStoredNoEffect => "error stored, no effect",
            Self::KeyIgnored => "key ignored",
            Self::KeyForgotten => "key forgotten",
            Self::CallbackFailed => "callback: failed",
            Self::NoCallbackTookEffect => "no callback, took effect",
            Self::NoCallbackNoEffect => "no callback, no effect",
            Self::NoEvent => "no event",
            Self::ChildUndone => "child undone",
            Self::ChildError => "child in Error",
            Self::ChildNever => "child never ends",
        })
    }
}

/// A place where something can fail: doing or undoing a step.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Site {
    pub(super) workflow: WorkflowName,
    pub(super) step: StepName,
    pub(super) action: Action,
}

/// How long a call takes, in milliseconds.
pub(super) const CALL_MS: u64 = 100;

/// How long a service keeps idempotency keys if the step does not say: as long as most that document it.
pub(super) const KEYS_KEPT: Duration = Duration::from_hours(24);

/// A busy service asks for a pause of this share of the task's time.
const BUSY_PAUSES: u32 = 10;

/// The shortest pause that a busy service asks for: longer than most attempts, so that they are deferred.
const BUSY_PAUSE_MIN: Duration = Duration::from_secs(600);

/// The ways in which a site can fail. `is_given` says whether the definition of a child workflow is given: then its own
/// steps fail.
pub(super) fn faults_of(
    step: &StepDefinition,
    action: Action,
    is_given: impl Fn(&WorkflowName) -> bool,
) -> Vec<Fault> {
    match (step.work(), action) {
        (Some(StepWork::Call { callback, .. }), Action::Do) => {
            let mut faults = vec![Fault::Refused, Fault::Unreachable, Fault::Busy];
            faults.extend([Fault::UnknownTookEffect, Fault::UnknownNoEffect]);
            faults.extend([Fault::SilentTookEffect, Fault::SilentNoEffect]);
            // Other calls are not repeated.
            if step.idempotent {
                faults.extend([Fault::ErrorStoredTookEffect, Fault::ErrorStoredNoEffect]);
                faults.extend([Fault::KeyIgnored, Fault::KeyForgotten]);
            }
            if callback.is_some() {
                faults.extend([Fault::CallbackFailed, Fault::NoCallbackTookEffect]);
                faults.push(Fault::NoCallbackNoEffect);
            }
            faults.retain(|fault| step.has_side_effect() || !fault.has_effect());
            faults.retain(|fault| fault.plan(&step.responses, Duration::ZERO).is_some());
            faults
        }
        (Some(StepWork::Call { .. }), Action::Undo) => {
            let responses =
                step.undo.as_ref().map(|undo| undo.responses.clone()).unwrap_or_default();
            let mut faults = vec![Fault::Refused, Fault::SilentTookEffect, Fault::SilentNoEffect];
            faults.extend([Fault::ErrorStoredTookEffect, Fault::ErrorStoredNoEffect]);
            faults.retain(|fault| fault.plan(&responses, Duration::ZERO).is_some());
            faults
        }
        (Some(StepWork::Event(_)), Action::Do) => vec![Fault::NoEvent],
        (Some(StepWork::Child(child)), _) if is_given(&child.name) => Vec::new(),
        (Some(StepWork::Child(_)), Action::Do) => {
            vec![Fault::ChildUndone, Fault::ChildError, Fault::ChildNever]
        }
        (Some(StepWork::Child(_)), Action::Undo) => vec![Fault::ChildError, Fault::ChildNever],
        (Some(StepWork::Wait(_) | StepWork::Event(_)), _) | (None, _) => Vec::new(),
    }
}

impl Fault {
    /// What a service with this fault does with every call, apart from the effect. `None` if the step's `responses` leave no
    /// status for it.
    pub(super) fn plan(
        self,
        responses: &ResponseOverrides,
        task_within: Duration,
    ) -> Option<CallPlan> {
        let classified =
            |statuses: &[u16], meaning| Reply::classified(responses, statuses, &meaning);
        let reply = match self {
            Self::Refused => Reply::refusal(responses)?,
            Self::UnknownTookEffect | Self::UnknownNoEffect => {
                classified(&[302, 303, 307, 308, 301], ClassifiedResponse::Unknown)?
            }
            Self::Busy => {
                let pause = (task_within / BUSY_PAUSES).max(BUSY_PAUSE_MIN).as_secs();
                let busy = ClassifiedResponse::Retry { may_have_run: false };
                classified(&[429, 425], busy)?.retry_after(pause)
            }
            Self::Unreachable => Reply::NoConnection,
            Self::SilentTookEffect | Self::SilentNoEffect => {
                return Some(CallPlan::success(CALL_MS, Value::Null).silent());
            }
            Self::ErrorStoredTookEffect | Self::ErrorStoredNoEffect => {
                let error = ClassifiedResponse::Retry { may_have_run: true };
                classified(&[500, 502, 503, 504], error)?
            }
            Self::KeyIgnored | Self::KeyForgotten => Reply::BrokenConnection,
            Self::CallbackFailed
            | Self::NoCallbackTookEffect
            | Self::NoCallbackNoEffect
            | Self::NoEvent
            | Self::ChildUndone
            | Self::ChildError
            | Self::ChildNever => Reply::success(Body::Output),
        };
        Some(CallPlan::without_effect(CALL_MS, reply))
    }

    /// Whether the calls succeed, and the failure comes later.
    pub(super) fn comes_later(self) -> bool {
        match self {
            Self::CallbackFailed
            | Self::NoCallbackTookEffect
            | Self::NoCallbackNoEffect
            | Self::NoEvent
            | Self::ChildUndone
            | Self::ChildError
            | Self::ChildNever => true,
            Self::Refused
            | Self::Unreachable
            | Self::Busy
            | Self::UnknownTookEffect
            | Self::UnknownNoEffect
            | Self::SilentTookEffect
            | Self::SilentNoEffect
            | Self::ErrorStoredTookEffect
            | Self::ErrorStoredNoEffect
            | Self::KeyIgnored
            | Self::KeyForgotten => false,
        }
    }

    /// Whether the step has an effect although it failed: not for a step that only reads.
    fn has_effect(self) -> bool {
        self.call_takes_effect() && self != Self::CallbackFailed
    }

    /// Whether the call is repeated, and takes effect each time. Another failure changes nothing of that, so it is in no pair.
    pub(super) fn repeats_the_effect(self) -> bool {
        matches!(self, Self::KeyIgnored | Self::KeyForgotten)
    }

    /// What the service does with an idempotency key that it got before. `kept` is the time after which it may forget one.
    pub(super) fn key_memory(self, kept: Duration) -> KeyMemory {
        if self == Self::KeyIgnored {
            KeyMemory::Ignored
        } else if self == Self::KeyForgotten {
            KeyMemory::ForgottenAfter(Millis::try_from(kept.as_millis()).unwrap_or(Millis::MAX))
        } else {
            KeyMemory::Kept
        }
    }

    /// Whether a call takes effect: the step is done, or undone. A failed callback says that nothing of it remains.
    pub(super) fn call_takes_effect(self) -> bool {
        match self {
            Self::UnknownTookEffect
            | Self::SilentTookEffect
            | Self::ErrorStoredTookEffect
            | Self::KeyIgnored
            | Self::KeyForgotten
            | Self::CallbackFailed
            | Self::NoCallbackTookEffect
            | Self::ChildError
            | Self::ChildNever => true,
            Self::Refused
            | Self::Unreachable
            | Self::Busy
            | Self::UnknownNoEffect
            | Self::SilentNoEffect
            | Self::ErrorStoredNoEffect
            | Self::NoCallbackNoEffect
            | Self::NoEvent
            | Self::ChildUndone => false,
        }
    }
}

/// Removes the jitter, so that each pause is as long as it can be.
pub(super) fn without_jitter(workflow: &Workflow) -> Workflow {
    let mut longest = workflow.clone();
    for step in longest.steps.values_mut() {
        // What makes no attempts has no pauses either, and a definition with some is invalid.
        step.recovery.backoff.jitter &= step.wait.is_some() || step.fail.is_some();
        if let Some(undo) = &mut step.undo {
            undo.recovery.backoff.jitter = false;
        }
    }
    longest
}
