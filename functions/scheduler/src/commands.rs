//! Which messages the scheduler accepts from which queue, and who sent a command.
//!
//! | queue | who may send | accepted |
//! | --- | --- | --- |
//! | the scheduler's queue | submission, agents, supervisor, scheduler | everything but commands |
//! | the commands queue | operators, the console | commands, and callbacks |
//!
//! IAM decides who may send to a queue. SQS states who sent a message, in its attribute `SenderId`, which the sender cannot
//! choose. A refused message is corrupt: it is alerted, and becomes a dead letter.

use steward_aws::{
    Config,
    batch::{CorruptMessage, ReceivedMessage},
    channel::queue_name,
};
use steward_core::model::{
    command::{Caller, CommandSource, SenderId},
    messages::SchedulerMessage,
};

/// The scheduler's rules about commands. Without a commands queue, which is the default, it refuses all of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommandAuthority {
    /// The name of the commands queue.
    queue: Option<String>,
    /// The unique id of the console's role.
    console_role: Option<String>,
}

impl CommandAuthority {
    /// The rules of a deployment.
    #[must_use]
    pub fn of(config: &Config) -> Self {
        Self::new(&config.commands_queue_url, &config.console_role_id)
    }

    /// The rules for a commands queue, by URL, and the console's role, by unique id. Both may be empty.
    #[must_use]
    pub fn new(commands_queue_url: &str, console_role_id: &str) -> Self {
        let present = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        Self {
            queue: present(queue_name(commands_queue_url)),
            console_role: present(console_role_id),
        }
    }

    /// Whether the commands queue has this name.
    #[must_use]
    pub fn is_commands_queue(&self, name: Option<&str>) -> bool {
        self.queue.is_some() && self.queue.as_deref() == name
    }

    /// Checks that a message came from a queue that may deliver it.
    pub(crate) fn check_queue(
        &self,
        content: &SchedulerMessage,
        message: &ReceivedMessage,
    ) -> Result<(), CorruptMessage> {
        let is_commands_queue = self.is_commands_queue(message.queue.as_deref());
        match content {
            SchedulerMessage::Callback(_) => Ok(()),
            SchedulerMessage::Command(_) if is_commands_queue => Ok(()),
            SchedulerMessage::Command(_) => {
                Err(message.corrupt(format!("{}: {NOT_FROM_COMMANDS_QUEUE}", sender_of(message))))
            }
            SchedulerMessage::Wake(_)
            | SchedulerMessage::Reply(_)
            | SchedulerMessage::ParentRequest(_)
            | SchedulerMessage::ChildEnded(_)
            | SchedulerMessage::ExtendRetention(_) => {
                if is_commands_queue {
                    let sender = sender_of(message);
                    return Err(message.corrupt(format!("{sender}: {NOT_A_COMMAND}")));
                }
                Ok(())
            }
        }
    }

    /// The caller of a command, from the sender that SQS states.
    pub(crate) fn caller(&self, message: &ReceivedMessage) -> Result<Caller, CorruptMessage> {
        let Some(sender) = message.sender_id.as_deref() else {
            return Err(message.corrupt("a command whose sender SQS does not state".to_owned()));
        };
        let sender: SenderId = sender
            .parse()
            .map_err(|error| message.corrupt(format!("a command of an unknown sender: {error}")))?;
        let is_console =
            self.console_role.is_some() && sender.role_id() == self.console_role.as_deref();
        let via = match (message.redriven, is_console && message.authenticated) {
            (true, _) => CommandSource::Redrive,
            (false, true) => CommandSource::Console,
            (false, false) => CommandSource::Direct,
        };
        Ok(Caller { sender, via })
    }
}

/// Who sent a refused message, for the alert.
fn sender_of(message: &ReceivedMessage) -> String {
    let sender = message.sender_id.as_deref().map(str::parse::<SenderId>);
    match sender {
        Some(Ok(sender)) => format!("sent by {sender}"),
        Some(Err(_)) | None => "sent by an unknown sender".to_owned(),
    }
}

const NOT_FROM_COMMANDS_QUEUE: &str = "a command outside the commands queue, which was not carried out. If an operator sent \
     it, send it again with a `steward` or a console of this release";

const NOT_A_COMMAND: &str = "only commands and callbacks are accepted from the commands queue";

#[cfg(test)]
mod tests {
    use super::*;

    const CONSOLE: &str = "AROACONSOLE:steward-console";

    fn authority() -> CommandAuthority {
        CommandAuthority::new(
            "https://sqs.eu-west-1.amazonaws.com/1/steward-commands",
            "AROACONSOLE",
        )
    }

    fn message(sender_id: Option<&str>) -> ReceivedMessage {
        ReceivedMessage {
            message_id: "m".to_owned(),
            body: String::new(),
            redelivered: false,
            redelivered_again: false,
            first_delivery: true,
            traceparent: None,
            sent_at: None,
            first_received_at: None,
            queue: Some("steward-commands".to_owned()),
            sender_id: sender_id.map(str::to_owned),
            redriven: false,
            authenticated: false,
            tenant: None,
        }
    }

    fn via(sender: &str, authenticated: bool, redriven: bool) -> CommandSource {
        let message = ReceivedMessage { authenticated, redriven, ..message(Some(sender)) };
        let caller = authority().caller(&message).unwrap();
        assert_eq!(caller.sender.as_str(), sender);
        caller.via
    }

    #[test]
    fn the_console_vouches_for_a_name_only_with_its_role_and_for_what_it_sends_itself() {
        assert_eq!(via(CONSOLE, true, false), CommandSource::Console);
        assert_eq!(via(CONSOLE, false, false), CommandSource::Direct);
        assert_eq!(via(CONSOLE, true, true), CommandSource::Redrive);
        for other in ["AIDAANN", "AROAOTHER:steward-console", "AROACONSOLE", "x:AROACONSOLE:c"] {
            assert_eq!(via(other, true, false), CommandSource::Direct, "{other}");
        }
        let without_console = CommandAuthority::new("https://q/steward-commands", "");
        let message = ReceivedMessage { authenticated: true, ..message(Some("AIDAANN")) };
        assert_eq!(without_console.caller(&message).unwrap().via, CommandSource::Direct);
    }

    #[test]
    fn a_command_without_a_valid_sender_is_refused() {
        assert!(authority().caller(&message(None)).is_err());
        assert!(authority().caller(&message(Some(""))).is_err());
        assert!(authority().caller(&message(Some("two words"))).is_err());
    }

    #[test]
    fn each_queue_delivers_its_own_messages() {
        let of = |text: &str| serde_json::from_str::<SchedulerMessage>(text).unwrap();
        let command = of(
            r#"{"type":"command","command_id":"c","task_id":"t","by":"ann","why":"w","issued_at":"2026-11-20T12:00:00Z","order":{"command":"undo"}}"#,
        );
        let callback = of(r#"{"type":"callback","token":"t/ask/i0mfvx3k5z","answer":"heartbeat"}"#);
        let wake = of(r#"{"type":"wake","task_id":"t","cause":"submitted"}"#);
        let from = |queue: Option<&str>| ReceivedMessage {
            queue: queue.map(str::to_owned),
            ..message(Some("AIDAANN"))
        };
        let accepted = |content: &SchedulerMessage, queue: Option<&str>| {
            authority().check_queue(content, &from(queue)).is_ok()
        };
        let (commands, scheduler) = (Some("steward-commands"), Some("steward-scheduler"));
        assert!(accepted(&command, commands));
        assert!(!accepted(&command, scheduler) && !accepted(&command, None));
        assert!(accepted(&callback, commands) && accepted(&callback, scheduler));
        assert!(!accepted(&wake, commands) && accepted(&wake, scheduler) && accepted(&wake, None));
        let no_queue = CommandAuthority::default();
        for queue in [commands, Some(""), None] {
            assert!(no_queue.check_queue(&command, &from(queue)).is_err(), "{queue:?}");
        }
    }
}
