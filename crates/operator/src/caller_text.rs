//! The operator of a recorded command, as text for people: the stated name, and who really sent the command.

use steward_core::model::command::{Caller, CommandRecord, CommandSource};

/// The operator of a command, with the verified sender: `ann (sent by AIDAEXAMPLE)`.
#[must_use]
pub fn name_and_caller(record: &CommandRecord) -> String {
    described(&record.by, &record.caller)
}

/// The name `by`, and what is verified about it.
pub(crate) fn described(by: &str, Caller { sender, via }: &Caller) -> String {
    match via {
        CommandSource::Direct => format!("{by} (sent by {sender})"),
        CommandSource::Console => format!("{by} (verified by the console, {sender})"),
        CommandSource::Redrive => format!("{by} (not verified; sent back by {sender})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_says_who_sent_the_command_and_whether_the_name_is_verified() {
        for (via, text) in [
            (CommandSource::Direct, "boss (sent by AROAEXAMPLE:ann)"),
            (CommandSource::Console, "boss (verified by the console, AROAEXAMPLE:ann)"),
            (CommandSource::Redrive, "boss (not verified; sent back by AROAEXAMPLE:ann)"),
        ] {
            let sender = "AROAEXAMPLE:ann".parse().unwrap();
            assert_eq!(described("boss", &Caller { sender, via }), text);
        }
    }
}
