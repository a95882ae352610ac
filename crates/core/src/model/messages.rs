//! The messages that the roles exchange. Each is JSON on a queue or an event bus; together they are
//! the contract that lets an agent be written in any language.
//!
//! ```text
//! client ──Submission──► submission ──SchedulerMessage::Wake──► scheduler ──StepRequest──► agent
//!   ▲                                                            ▲    │                     │
//!   └──────────────────────StatusNotice──────────────────────────┼────┘                     │
//!                supervisor, operator ──SchedulerMessage──┘◄───SchedulerMessage::Reply┘
//! ```
//!
//! What is published on the event bus is in [`events`](crate::model::events), what an operator asks in
//! [`command`](crate::model::command). The W3C `traceparent` travels beside each message as an attribute of that name, not in it.

use crate::model::attempt::Action;
use crate::model::attempt::AttemptTimes;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::model::{
    command::{Command, CommandId},
    document::Kept,
    json_text::JsonText,
    names::{AgentName, CallbackToken, Incarnation, Part, TaskId, WorkflowName},
    responses::Responses,
};

/// A client asks for a task. Submitting the same again is harmless; the same id with other content
/// is refused.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Submission {
    /// Chosen by the client; its order number, say.
    pub task_id: TaskId,
    /// Which workflow to run.
    pub workflow: WorkflowName,
    /// Which version of it; the newest if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
    /// What the steps' expressions call `input`.
    #[serde(default)]
    pub input: Value,
    /// URL of the client's own queue for [`StatusNotice`]s; must be on the allow-list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
    /// Whose step the task is, if it runs for another task; written by the scheduler only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
    /// Whether the task is to be undone, or never to be done; written by the scheduler only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub undo: bool,
    /// The attempt at the parent's step that submits it: goes back with a refusal; written by the
    /// scheduler only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// Whether the task has begun, or may have begun and expired. If it is to be undone and there is no record of it,
    /// its undo fails, since its effects are unknown. Written by the scheduler only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_begun: bool,
    /// How long the task that it runs for may need it; written by the scheduler only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<Kept>,
}

/// The task, and its step, that another task runs for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Parent {
    /// The task.
    pub task_id: TaskId,
    /// Its step.
    pub step: Part,
    /// How many tasks it runs for itself, one for the other: 0 for a client's own.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub depth: u32,
    /// The task's incarnation: goes back unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<Incarnation>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// What the scheduler hears.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum SchedulerMessage {
    /// A task may be able to go on: it was just recorded, or the supervisor asks for recovery.
    Wake(Wake),
    /// An agent has an answer.
    Reply(StepReply),
    /// An operator asks for something.
    Command(Command),
    /// Someone answers a step that was handed out.
    Callback(CallbackAnswer),
    /// A task asks for the task of its step: to be done, or undone.
    Ask(Ask),
    /// A task that runs for another has ended.
    ChildEnded(ChildEnded),
    /// A task needs the task of its step for longer.
    Keep(Keep),
}

/// A task lives longer than was known when it submitted the task of its step: that one must not expire
/// before it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Keep {
    /// The task that runs for the other.
    pub task_id: TaskId,
    /// The other.
    pub parent: TaskId,
    /// The other's incarnation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<Incarnation>,
    /// How long it is needed.
    pub kept: Kept,
}

/// An answer to a step that its call only began, from whoever has the token.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CallbackAnswer {
    /// What the step's request handed out.
    pub token: CallbackToken,
    /// The answer.
    #[serde(flatten)]
    pub answer: Answer,
}

/// What an answer says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Answer {
    /// The step is done.
    Completed {
        /// What the step returns.
        #[serde(default)]
        output: Value,
    },
    /// The step cannot be done.
    Failed {
        /// Why, for people.
        reason: String,
    },
    /// It takes longer: the answer is still to come.
    Heartbeat,
}

/// A task asks for the task that runs for one of its steps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Ask {
    /// The task that runs for the other.
    pub task_id: TaskId,
    /// Whether it is to be done or undone.
    pub action: Action,
    /// The incarnation of the task that is asked for: no other is meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<Incarnation>,
}

/// A task that ran for a step of another has ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChildEnded {
    /// The task that it ran for.
    pub task_id: TaskId,
    /// That task's step.
    pub step: Part,
    /// How it ended.
    pub outcome: ChildOutcome,
    /// Of a refusal: the attempt whose submission was refused. A later attempt may have been accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// Which task ended: an operator who edits the input has another one run for the same step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<TaskId>,
    /// That task's revision: what it reports later has a higher one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    /// The incarnation of the task that it ran for: no other is meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<Incarnation>,
}

/// How a task ended that ran for another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum ChildOutcome {
    /// It is done.
    Processed {
        /// What it returned.
        #[serde(default)]
        output: Value,
    },
    /// Nothing of it stands.
    Undone {
        /// Why, for people.
        reason: String,
    },
    /// It can go no further by itself; its own alert is out.
    Error {
        /// Why, for people.
        reason: String,
        /// Whether it was to be undone, or is to be now, and cannot be. If not, it may not have heard
        /// yet that it is to be.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        not_undone: bool,
    },
    /// Its submission was refused. Another delivery of that submission may have been accepted, unless the id
    /// is another task's.
    Refused {
        /// Why, for people.
        reason: String,
        /// Whether the id is another task's.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        id_taken: bool,
    },
}

/// Asks the scheduler to see what a task needs. Says nothing about the task: the state store does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Wake {
    /// The task to look at.
    pub task_id: TaskId,
    /// Why, for the log.
    pub cause: WakeCause,
}

/// Why a task is woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WakeCause {
    /// Submission has just recorded it.
    Submitted,
    /// The supervisor found it past due (the pattern's supervisor request).
    Recovery,
    /// A wait is over, or the scheduler left itself something to do.
    Waited,
}

/// The HTTP methods a request may use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
#[expect(missing_docs, reason = "RFC 9110 defines them")]
pub enum Method {
    Get,
    #[default]
    Post,
    Put,
    Patch,
    Delete,
}

/// The scheduler asks an agent to carry out one attempt at one step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StepRequest {
    /// The task.
    pub task_id: TaskId,
    /// Its step, or one item of it: goes back unchanged.
    pub step: Part,
    /// Whether the step is done or undone: goes back unchanged.
    #[serde(default)]
    pub action: Action,
    /// Fences the reply: goes back unchanged.
    pub attempt: u32,
    /// After this time the agent must neither act nor reply.
    #[schemars(with = "String")]
    pub complete_by: Timestamp,
    /// Stable over all attempts; goes to the remote service as `Idempotency-Key`.
    pub idempotency_key: String,
    /// Whether the service recognises a repeated call by that key. If not, the agent records the
    /// attempt before the call, and calls once.
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    pub idempotent: bool,
    /// How long one call may take at the service, in milliseconds: the agent cuts one that takes longer.
    /// Absent in messages of releases before there was such a bound: then the agent's own holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_within_ms: Option<u64>,
    /// What the statuses of the service's responses mean, where they mean something else than the
    /// default.
    #[serde(default, skip_serializing_if = "Responses::is_empty")]
    pub responses: Responses,
    /// Whether a call of an earlier attempt may have run, and may still be running.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub may_have_run: bool,
    /// The logical agent it is for.
    pub agent: AgentName,
    /// The HTTP method.
    pub method: Method,
    /// The path under the agent's base URL.
    pub path: String,
    /// The JSON body, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<JsonText>,
    /// The task's incarnation: goes back unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<Incarnation>,
}

/// An agent's answer to a [`StepRequest`]. An agent that could not finish in time gives none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StepReply {
    /// The task.
    pub task_id: TaskId,
    /// Its step, or one item of it.
    pub step: Part,
    /// What was asked for.
    #[serde(default)]
    pub action: Action,
    /// The attempt that this answers.
    pub attempt: u32,
    /// How it went.
    pub outcome: Outcome,
    /// The incarnation that the request named: a task of another one ignores the reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<Incarnation>,
    /// When, as far as the agent says; nothing is decided by it.
    #[serde(default, skip_serializing_if = "AttemptTimes::are_unknown")]
    pub times: AttemptTimes,
}

/// How an attempt went.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Outcome {
    /// The step is done.
    Completed {
        /// What the remote service returned.
        output: Value,
        /// Whether an earlier call of the attempt may still be in progress.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        may_continue: bool,
    },
    /// The step cannot be done, and trying again would not help.
    Failed {
        /// Why, for people.
        reason: String,
        /// Whether it may have taken effect nonetheless: another call of the attempt broke off.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        may_have_run: bool,
    },
    /// The remote service is known to be down, and was left alone: the step waits, and that costs it
    /// none of its attempts.
    Deferred {
        /// Why, for people.
        reason: String,
        /// When to ask again, in milliseconds from now.
        retry_after_ms: u64,
        /// Whether an earlier call of the attempt may have taken effect.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        may_have_run: bool,
    },
    /// Whether the step ran is not known, and the attempt is over: a call took longer than it may, and
    /// was cut. It counts as an attempt that got no reply, without waiting for its complete-by.
    Unknown {
        /// Why, for people.
        reason: String,
    },
}

impl Outcome {
    /// Whether a call took effect, or may have.
    #[must_use]
    pub fn may_have_run(&self) -> bool {
        match self {
            Self::Completed { .. } | Self::Unknown { .. } => true,
            Self::Failed { may_have_run, .. } | Self::Deferred { may_have_run, .. } => {
                *may_have_run
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

/// Tells the client how its task fares, on the client's own queue. At least once, in no order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StatusNotice {
    /// The task, as the client named it; absent if a refused submission had no readable id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<String>,
    /// What happened.
    pub status: NoticeStatus,
    /// When.
    #[schemars(with = "String")]
    pub at: Timestamp,
    /// Why, if it went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What the task returned, if its workflow says what.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
}

/// What a [`StatusNotice`] tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NoticeStatus {
    /// The task is recorded.
    Received,
    /// The submission was refused; nothing was recorded.
    Refused,
    /// Every step completed.
    Processed,
    /// What had been done was undone.
    Undone,
    /// The task is in Error; the operator has been alerted.
    Error,
}

/// What is wrong with a text that should be a message, and where. The parser's own words would quote a
/// value that is of the wrong kind; keys it may quote.
#[must_use]
pub fn mistake(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let quotes = ["invalid type: ", "invalid value: ", "unknown variant "];
    let Some(what) = quotes.iter().find(|start| text.starts_with(**start)) else { return text };
    match text.rsplit_once(", expected ") {
        Some((_, expected)) => {
            format!("{}: expected {expected}", what.trim_end_matches([':', ' ']))
        }
        None => what.trim_end().to_owned(),
    }
}

/// The key that makes a remote call repeatable: stable over all attempts and redeliveries. An
/// operator who edits the input makes it another request, so that has a key of its own: services
/// refuse a known key with other content.
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
    use serde_json::json;

    #[test]
    fn a_mistake_is_told_with_its_place_and_without_the_value() {
        let wake = |text| mistake(&serde_json::from_str::<Wake>(text).unwrap_err());
        assert_eq!(
            wake(r#""secret, expected or not""#),
            "invalid type: expected struct Wake at line 1 column 25"
        );
        let cause = wake(r#"{"task_id":"t","cause":"secret"}"#);
        assert!(
            cause.starts_with("unknown variant: expected ") && !cause.contains("secret"),
            "{cause}"
        );
        assert_eq!(wake(r#"{"task_id":"t"}"#), "missing field `cause` at line 1 column 15");
    }

    #[test]
    fn a_reply_reads_as_the_contract_says() {
        let message: SchedulerMessage = serde_json::from_value(json!({
            "type": "reply", "task_id": "o-1", "step": "charge", "attempt": 2,
            "outcome": { "status": "completed", "output": { "charge": "c-1" } },
        }))
        .unwrap();
        let SchedulerMessage::Reply(reply) = message else { panic!("not a reply: {message:?}") };
        assert_eq!((reply.attempt, reply.times), (2, AttemptTimes::default()));
        assert!(!serde_json::to_string(&reply).unwrap().contains("times"));
    }

    #[test]
    fn a_reply_may_say_when_its_attempt_got_how_far() {
        let text = r#"{"task_id":"o-1","step":"charge","attempt":1,
            "outcome":{"status":"failed","reason":"no"},
            "times":{"queued_at":"2026-11-21T12:00:00Z","called_at":"2026-11-21T12:00:00.25Z"}}"#;
        let reply: StepReply = serde_json::from_str(text).unwrap();
        let millis = |time: Option<Timestamp>| time.map(|time| time.as_millisecond() % 1_000);
        let AttemptTimes { queued_at, called_at, answered_at } = reply.times;
        assert_eq!([queued_at, called_at, answered_at].map(millis), [Some(0), Some(250), None]);
        let again = serde_json::to_string(&reply).unwrap();
        assert_eq!(serde_json::from_str::<StepReply>(&again).unwrap(), reply);
    }

    #[test]
    fn a_submission_with_an_unknown_key_is_refused() {
        let text = r#"{"task_id":"o-1","workflow":"order","inputs":{}}"#;
        let error = serde_json::from_str::<Submission>(text).unwrap_err().to_string();
        assert!(error.starts_with("unknown field `inputs`"), "{error}");
    }

    #[test]
    fn every_message_has_a_schema() {
        for schema in [
            schemars::schema_for!(Submission),
            schemars::schema_for!(SchedulerMessage),
            schemars::schema_for!(StepRequest),
            schemars::schema_for!(StatusNotice),
            schemars::schema_for!(crate::model::events::BusEvent),
            schemars::schema_for!(crate::definition::workflow::Workflow),
        ] {
            assert!(schema.as_object().is_some_and(|schema| schema.contains_key("$schema")));
        }
    }
}
