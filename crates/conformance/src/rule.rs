//! The rules of the contract that the kit checks. A test compares them with `docs/agent-contract.md`.

use std::fmt;

/// A rule of the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "`statement` describes each")]
pub enum Rule {
    Answer = 1,
    DeleteLast,
    Poison,
    UnknownFields,
    Schema,
    Echo,
    Trace,
    Duplicates,
    Key,
    Retry,
    CompleteBy,
    LargeRequest,
    LargeOutput,
    UnknownOutcome,
    Deferral,
    Refusal,
    Redelivery,
    Once,
    Logs,
    Deletion,
    Certain,
    Reason,
    Unsupported,
    AnyBody,
}

impl Rule {
    /// All rules, by number.
    pub const ALL: [Self; 24] = [
        Self::Answer,
        Self::DeleteLast,
        Self::Poison,
        Self::UnknownFields,
        Self::Schema,
        Self::Echo,
        Self::Trace,
        Self::Duplicates,
        Self::Key,
        Self::Retry,
        Self::CompleteBy,
        Self::LargeRequest,
        Self::LargeOutput,
        Self::UnknownOutcome,
        Self::Deferral,
        Self::Refusal,
        Self::Redelivery,
        Self::Once,
        Self::Logs,
        Self::Deletion,
        Self::Certain,
        Self::Reason,
        Self::Unsupported,
        Self::AnyBody,
    ];

    /// What an agent must do.
    #[must_use]
    pub fn statement(self) -> &'static str {
        match self {
            Self::Answer => "Reply to every request that arrives in time: do, undo, items",
            Self::DeleteLast => "Delete a request only after its reply was sent",
            Self::Poison => {
                "Leave an unreadable message in the queue, and handle the others of its batch"
            }
            Self::UnknownFields => "Ignore unknown fields",
            Self::Schema => "Send replies that obey the JSON Schema",
            Self::Echo => "Return task_id, step, action, attempt and incarnation unchanged",
            Self::Trace => "Continue the trace of the request in the reply",
            Self::Duplicates => "Never send contradicting replies to one attempt",
            Self::Key => "Send the idempotency key with every call",
            Self::Retry => "Handle a further attempt with the same key",
            Self::CompleteBy => "Do not call after complete-by; then reply only deferred",
            Self::LargeRequest => "Handle a request of 128 KiB",
            Self::LargeOutput => "Report an output over 128 KiB as failed, with may_have_run",
            Self::UnknownOutcome => "Never report a call without an answer as one that did not run",
            Self::Deferral => "Defer if the service is busy, for as long as it says",
            Self::Refusal => "Report a refusal of the service as failed",
            Self::Redelivery => "Set may_have_run in a failure after a redelivery",
            Self::Once => "Call at most once for an attempt that is not idempotent",
            Self::Logs => "Log no payload",
            Self::Deletion => "Delete every request to which you replied",
            Self::Certain => "Set certain only if no delivery of an exclusive request calls",
            Self::Reason => "Put no payload into a reason",
            Self::Unsupported => "Carry out auth and output, or refuse the request before the call",
            Self::AnyBody => "Report a call that succeeded as completed, also without JSON",
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "R{}", *self as u8)
    }
}

/// Whether an agent obeys a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It does, in all cases that the kit tried.
    Holds,
    /// It does not. The text says what the kit observed.
    Broken(String),
    /// The kit could not find out. The text says why.
    NotChecked(String),
}

impl Verdict {
    /// `Holds` if there is no finding, otherwise `Broken` with the first one.
    pub(crate) fn of(findings: impl IntoIterator<Item = String>) -> Self {
        findings.into_iter().next().map_or(Self::Holds, Self::Broken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_is_in_the_documentation() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/agent-contract.md");
        let page = std::fs::read_to_string(path).unwrap();
        for rule in Rule::ALL {
            let heading = format!("**{rule}. {}.**", rule.statement());
            assert!(page.contains(&heading), "docs/agent-contract.md lacks {heading}");
        }
        let count = page.lines().filter(|line| {
            let rule = line.strip_prefix("- **R").and_then(|rest| rest.split_once('.'));
            rule.is_some_and(|(number, _)| number.parse::<usize>().is_ok())
        });
        assert_eq!(count.count(), Rule::ALL.len(), "docs/agent-contract.md has other rules");
    }

    #[test]
    fn rules_are_numbered_in_order() {
        let names: Vec<_> = Rule::ALL.iter().map(ToString::to_string).collect();
        let numbers: Vec<_> = (1..=Rule::ALL.len()).map(|n| format!("R{n}")).collect();
        assert_eq!(names, numbers);
    }
}
