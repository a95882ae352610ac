//! Requests to agents, and their replies.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    expression::template::Template,
    model::{
        attempt::{Action, AttemptTimes},
        call_auth::CallAuth,
        command::CommandId,
        error_detail::ErrorDetail,
        json_text::JsonText,
        key_format::KeyFormat,
        names::{AgentName, Incarnation, Part, TaskId, Tenant},
        payload::PayloadPlace,
        responses::ResponseOverrides,
    },
};

/// The HTTP methods that a request may use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
#[expect(missing_docs, reason = "RFC 9110 defines them")]
pub enum HttpMethod {
    Get,
    #[default]
    Post,
    Put,
    Patch,
    Delete,
}

/// The scheduler's request to an agent: carry out one attempt at one step or at its undo.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StepRequest {
    /// The task.
    pub task_id: TaskId,
    /// The step, or one item of it. The reply returns it unchanged.
    pub step: Part,
    /// Whether the step is run or undone. The reply returns it unchanged.
    #[serde(default)]
    pub action: Action,
    /// The number of the attempt. It fences the reply, which returns it unchanged.
    pub attempt: u32,
    /// After this time the agent must not call the service. It replies only if it received the request too late to call.
    /// The time is in UTC, such as `2026-11-23T12:00:30.25Z`.
    pub complete_by: Timestamp,
    /// The same for all attempts. The agent sends it to the remote service as `Idempotency-Key`.
    pub idempotency_key: String,
    /// Whether the service recognises a repeated call by that key. If not, the agent records the attempt before the call,
    /// and calls only once.
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    pub idempotent: bool,
    /// How long one call to the service may take, in milliseconds. The agent cuts a longer call.
    pub call_within_ms: u64,
    /// The HTTP statuses whose meaning differs from the default.
    #[serde(default, skip_serializing_if = "ResponseOverrides::is_empty")]
    pub responses: ResponseOverrides,
    /// Whether the scheduler moves on to another agent if this one certainly does not call. Then the agent records the attempt
    /// before the call, and calls only once. If it refuses the call, it records that instead, and its reply is `certain`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exclusive: bool,
    /// Whether a call of an earlier attempt may have taken effect, and may still be in progress.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub may_have_run: bool,
    /// Whether the call only begins the step, and its callback ends it. An agent may look whether the callback has come, before
    /// it repeats the call.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub callback: bool,
    /// The logical agent that receives the request.
    pub agent: AgentName,
    /// The HTTP method.
    pub method: HttpMethod,
    /// The path below the agent's base URL.
    pub path: String,
    /// The JSON body, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<JsonText>,
    /// How the agent authenticates the call. If absent, as the agent is configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<CallAuth>,
    /// How the service gets the idempotency key. What is absent is as the agent is configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_format: Option<KeyFormat>,
    /// How the agent computes the output from the service's response: JSON with expressions that read `response`. If
    /// absent, the output is the response's body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Box<Template>>,
    /// The task's incarnation. The reply returns it unchanged.
    pub incarnation: Incarnation,
    /// The tenant of the task. The agent sends its reply with this message group id, so that the replies to a tenant with
    /// much load do not delay those to others. An agent may ignore it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<Tenant>,
    /// The prefix of the keys of the payloads that belong to the task, if the task is a child task. Otherwise the prefix is
    /// `tasks/TASK@INCARNATION/`, with the incarnation in nine digits of base 36. An agent that reads a payload for the
    /// task checks that its key has this prefix, and stores a large response below it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_place: Option<PayloadPlace>,
}

impl StepRequest {
    /// The place of the task's payloads.
    #[must_use]
    pub fn place(&self) -> PayloadPlace {
        let own = || PayloadPlace::of_task(&self.task_id, self.incarnation);
        self.payload_place.clone().unwrap_or_else(own)
    }
}

/// An agent's reply to a [`StepRequest`]. An agent that cannot finish before complete-by sends no reply.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StepReply {
    /// The task.
    pub task_id: TaskId,
    /// The step, or one item of it.
    pub step: Part,
    /// Whether the step was run or undone.
    #[serde(default)]
    pub action: Action,
    /// The attempt of the request.
    pub attempt: u32,
    /// The outcome of the attempt.
    pub outcome: ReplyOutcome,
    /// The incarnation in the request. A task of another incarnation ignores the reply.
    pub incarnation: Incarnation,
    /// The times that the agent recorded. They show whether its clock is wrong.
    #[serde(default, skip_serializing_if = "AttemptTimes::is_empty")]
    pub times: AttemptTimes,
    /// The agent that replies. If the step has several agents, a late reply is judged by it, so always send it. Absent in
    /// replies of the scheduler for an agent without a queue, and in those that bring an event to a step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentName>,
}

/// The outcome of an attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum ReplyOutcome {
    /// The step completed.
    Completed {
        /// The response of the remote service.
        output: Value,
        /// Whether an earlier call of the attempt may still be in progress.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        may_continue: bool,
    },
    /// The step failed permanently: a retry would fail too.
    Failed {
        /// The reason, for people.
        reason: String,
        /// Whether the step may have taken effect nevertheless, because another call of the attempt was interrupted.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        may_have_run: bool,
        /// Whether a call of this very delivery has no certain outcome. Such a failure counts also if another delivery of the request
        /// was refused before.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        call_in_doubt: bool,
        /// What the service said in the body of its error, for operators.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        detail: Option<ErrorDetail>,
    },
    /// The agent could not get a response now: the circuit breaker is open, or the service stayed busy for as long as the
    /// agent's function may run. The step waits, and the deferral costs no attempt.
    Deferred {
        /// The reason, for people.
        reason: String,
        /// The time until the retry, in milliseconds from now.
        retry_after_ms: u64,
        /// Whether an earlier call of the attempt may have taken effect.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        may_have_run: bool,
        /// Whether no delivery of the request has run the step or will run it: the agent has recorded that. Only in the
        /// reply to an `exclusive` request. The scheduler may move on to another agent.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        certain: bool,
        /// Whether a call of this very delivery has no certain outcome. Such a deferral counts also if another delivery of the request
        /// was refused before.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        call_in_doubt: bool,
        /// What the service said in the body of its last error, for operators.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        detail: Option<ErrorDetail>,
    },
    /// The attempt has ended and it is unknown whether the step took effect: a call took too long, and the agent cut it.
    /// The attempt counts like one without a reply, but the scheduler does not wait for its complete-by.
    Unknown {
        /// The reason, for people.
        reason: String,
        /// What the service said in the body of its last error, for operators.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        detail: Option<ErrorDetail>,
    },
}

impl ReplyOutcome {
    /// Whether a call took effect, or may have.
    #[must_use]
    pub fn may_have_run(&self) -> bool {
        match self {
            Self::Completed { .. } | Self::Unknown { .. } => true,
            Self::Failed { may_have_run, call_in_doubt, .. }
            | Self::Deferred { may_have_run, call_in_doubt, .. } => *may_have_run || *call_in_doubt,
        }
    }

    /// Whether a call of the delivery that replies has no certain outcome.
    #[must_use]
    pub fn has_call_in_doubt(&self) -> bool {
        match self {
            Self::Completed { .. } => false,
            Self::Unknown { .. } => true,
            Self::Failed { call_in_doubt, .. } | Self::Deferred { call_in_doubt, .. } => {
                *call_in_doubt
            }
        }
    }
}

impl StepReply {
    /// Takes back that nothing ran: the agent's clock is wrong, so it cannot know when an attempt is over.
    pub fn doubt(&mut self) {
        match &mut self.outcome {
            ReplyOutcome::Completed { .. } | ReplyOutcome::Unknown { .. } => {}
            ReplyOutcome::Failed { may_have_run, .. } => *may_have_run = true,
            ReplyOutcome::Deferred { may_have_run, certain, .. } => {
                (*may_have_run, *certain) = (true, false);
            }
        }
    }
}

fn yes() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_true(value: &bool) -> bool {
    *value
}

/// The key by which a remote service recognises a repeated call. It is the same for all attempts and redeliveries of a
/// step. If an operator edits the input, the request gets a new key, because services refuse a known key with other
/// content.
#[must_use]
pub fn idempotency_key(
    task_id: &TaskId,
    step: &Part,
    action: Action,
    edit: Option<&CommandId>,
) -> String {
    let action = action.name();
    let edit = edit.map(|edit| format!("/{edit}")).unwrap_or_default();
    format!("{task_id}/{step}/{action}{edit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reply_with_the_times_of_its_attempt_reads_back_as_written() {
        let text = r#"{"task_id":"o-1","step":"charge","attempt":1,
            "outcome":{"status":"failed","reason":"no"},"incarnation":1763726400000,
            "times":{"queued_at":"2026-11-21T12:00:00Z","called_at":"2026-11-21T12:00:00.25Z"}}"#;
        let reply: StepReply = serde_json::from_str(text).unwrap();
        let millis = |time: Option<Timestamp>| time.map(|time| time.as_millisecond() % 1_000);
        let AttemptTimes { queued_at, called_at, answered_at } = reply.times;
        assert_eq!([queued_at, called_at, answered_at].map(millis), [Some(0), Some(250), None]);
        let again = serde_json::to_string(&reply).unwrap();
        assert_eq!(serde_json::from_str::<StepReply>(&again).unwrap(), reply);
    }
}
