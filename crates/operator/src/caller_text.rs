//! The operator of a recorded command, as text for people: the stated name, and who really sent the command.

use steward_core::model::command::{Caller, CommandRecord, CommandSource};

/// The operator of a command, with the verified sender: `ann (sent by AIDAEXAMPLE)`.
#[must_use]
pub fn name_and_caller(record: &CommandRecord) -> String {
    described(&record.by, record.caller.as_ref())
}

/// The name `by`, and what is verified about it.
pub(crate) fn described(by: &str, caller: Option<&Caller>) -> String {
    let Some(Caller { sender, via }) = caller else { return format!("{by} (not verified)") };
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
        let text = |via: Option<CommandSource>| {
            let sender = "AROAEXAMPLE:ann".parse().unwrap();
            let caller = via.map(|via| Caller { sender, via });
            described("boss", caller.as_ref())
        };
        assert_eq!(text(None), "boss (not verified)");
        assert_eq!(text(Some(CommandSource::Direct)), "boss (sent by AROAEXAMPLE:ann)");
        assert_eq!(
            text(Some(CommandSource::Console)),
            "boss (verified by the console, AROAEXAMPLE:ann)"
        );
        assert_eq!(
            text(Some(CommandSource::Redrive)),
            "boss (not verified; sent back by AROAEXAMPLE:ann)"
        );
    }
}
