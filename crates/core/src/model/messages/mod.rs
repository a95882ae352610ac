//! The messages that the roles exchange. Each is JSON in a queue. They are the contract for agents, which can be written
//! in any language.
//!
//! ```text
//! client ──Submission──► submission ──SchedulerMessage::Wake──► scheduler ──StepRequest──► agent
//!   ▲                                                            ▲    │                     │
//!   └──────────────────────StatusNotice──────────────────────────┼────┘                     │
//!                supervisor, operator ──SchedulerMessage──┘◄───SchedulerMessage::Reply┘
//! ```
//!
//! | module | messages |
//! | --- | --- |
//! | `submission` | the request to run a task |
//! | `scheduler` | all messages in the scheduler's queue |
//! | `agent` | requests to agents, and replies |
//! | `callback` | callbacks of steps |
//! | `child` | messages between a parent task and its child task |
//! | `client` | notifications to clients |
//!
//! The events on the event bus are in [`events`](crate::model::events), operators' commands in
//! [`command`](crate::model::command). The W3C `traceparent` is not part of a message: it is a message attribute of that
//! name.

mod agent;
mod callback;
mod child;
mod client;
mod scheduler;
mod submission;

pub use agent::{HttpMethod, ReplyOutcome, StepReply, StepRequest, idempotency_key};
pub use callback::{CallbackMessage, CallbackOutcome};
pub use child::{ChildEnded, ChildOutcome, ExtendRetention, ParentRequest};
pub use client::{NotificationStatus, StatusNotification};
pub(crate) use scheduler::NO_REPLY;
pub use scheduler::{OverdueCall, SchedulerMessage, Wake, WakeCause};
pub use submission::{ParentStep, Submission};

/// Describes why a text is not a valid message, with the position of the error. The messages of serde_json quote values
/// of the wrong type, which may be confidential. The description contains no values, only keys.
#[must_use]
pub fn mistake(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let prefixes_of_values = ["invalid type: ", "invalid value: ", "unknown variant "];
    let Some(prefix) = prefixes_of_values.iter().find(|prefix| text.starts_with(**prefix)) else {
        return text;
    };
    match text.rsplit_once(", expected ") {
        Some((_, expected)) => {
            format!("{}: expected {expected}", prefix.trim_end_matches([':', ' ']))
        }
        None => prefix.trim_end().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::attempt::AttemptTimes;
    use serde_json::json;

    #[test]
    fn parse_error_has_a_position_and_no_value() {
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
    fn reply_in_the_documented_format_is_read() {
        let message: SchedulerMessage = serde_json::from_value(json!({
            "type": "reply", "task_id": "o-1", "step": "charge", "attempt": 2, "incarnation": 7,
            "outcome": { "status": "completed", "output": { "charge": "c-1" } },
        }))
        .unwrap();
        let SchedulerMessage::Reply(reply) = message else { panic!("not a reply: {message:?}") };
        assert_eq!((reply.attempt, reply.times), (2, AttemptTimes::default()));
        assert!(!serde_json::to_string(&reply).unwrap().contains("times"));
    }

    #[test]
    fn every_message_has_a_schema() {
        for schema in [
            schemars::schema_for!(Submission),
            schemars::schema_for!(SchedulerMessage),
            schemars::schema_for!(StepRequest),
            schemars::schema_for!(StatusNotification),
            schemars::schema_for!(crate::model::events::BusEvent),
            schemars::schema_for!(crate::definition::workflow::Workflow),
        ] {
            assert!(schema.as_object().is_some_and(|schema| schema.contains_key("$schema")));
        }
    }
}
