//! The idempotency keys that a part used before the one in use.
//!
//! An effect is identified by its idempotency key: by the agent that was called, and by the input that the request was
//! rendered with. A part nearly always has one key. It gets another one when it moves on to the next agent, and when an
//! operator edits its input. A late message can show that a request with an earlier key took effect. That effect is one
//! more, beside that of the key in use, so it has its own undo: at its own agent, and with its own input.
//!
//! What is known of a key only grows, in whatever order the messages arrive: it did not run, may have run, ran. Only the
//! statement of an operator takes something back: a key that is denied counts as one that did not run, until a message says
//! more than was known then.

use serde::{Deserialize, Serialize};

use crate::model::command::CommandId;

/// Whether the requests with a key have run the step.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum Ran {
    /// All were refused, or are denied.
    #[default]
    No,
    /// The outcome of one is not known.
    #[serde(rename = "m")]
    Maybe,
    /// One ran the step.
    #[serde(rename = "y")]
    Yes,
}

/// An idempotency key that a part used before the one in use.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct EarlierKey {
    /// The first attempt with it. It identifies the key in its part.
    #[serde(rename = "a")]
    pub since: u32,
    /// The position of its agent, as in [`Progress::agent`](crate::model::step::Progress::agent).
    #[serde(rename = "n", default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<u32>,
    /// The command whose edit of the input its requests used.
    #[serde(rename = "i", default, skip_serializing_if = "Option::is_none")]
    pub input_edit_id: Option<CommandId>,
    /// Whether its requests have run the step.
    #[serde(rename = "m", default, skip_serializing_if = "is_no")]
    pub ran: Ran,
    /// The attempt whose output is stored, if one ran the step and had an output.
    #[serde(rename = "c", default, skip_serializing_if = "Option::is_none")]
    pub output_of: Option<u32>,
    /// The statement of an operator that it did not run. What a message says of these attempts is no news, unless it says more
    /// than was known then.
    #[serde(rename = "s", default, skip_serializing_if = "Option::is_none")]
    pub denied: Option<Denial>,
    /// Whether its effect is undone.
    #[serde(rename = "x", default, skip_serializing_if = "std::ops::Not::not")]
    pub undone: bool,
    /// The revision of the newest report of its child task.
    #[serde(rename = "r", default, skip_serializing_if = "Option::is_none")]
    pub child_revision: Option<u64>,
}

/// What a message says about an attempt with a key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Report {
    pub(crate) attempt: u32,
    pub(crate) ran: Ran,
    /// Whether there is an output to store.
    pub(crate) has_output: bool,
    /// Of a child task, its revision. It knows its own effects, so its newest report says what is true.
    pub(crate) revision: Option<u64>,
}

/// What the task did not know before a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum News {
    /// Nothing.
    None,
    /// Only that the child has sent this report, or that its effect is gone.
    Recorded,
    /// It has an effect.
    Effect,
}

/// The statement of an operator that the requests with a key did not run the step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Denial {
    /// It is about the attempts up to this one.
    #[serde(rename = "a")]
    pub through: u32,
    /// What was known when it was made.
    #[serde(rename = "m")]
    pub known: Ran,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_no(ran: &Ran) -> bool {
    *ran == Ran::No
}

impl EarlierKey {
    /// A key with these requests, none of which has run the step.
    pub(super) fn new(since: u32, agent: Option<u32>, input_edit_id: Option<CommandId>) -> Self {
        let (ran, output_of, denied, undone) = (Ran::No, None, None, false);
        Self { since, agent, input_edit_id, ran, output_of, denied, undone, child_revision: None }
    }

    /// Whether it has an effect, certain or possible, that is not undone.
    #[must_use]
    pub fn has_effect(&self) -> bool {
        self.ran > Ran::No && !self.undone
    }

    /// Records what a message says about an attempt with it.
    pub(super) fn learn(&mut self, report: Report) -> News {
        let Report { attempt, ran, has_output, revision } = report;
        if revision.is_some() && revision <= self.child_revision {
            return News::None;
        }
        self.child_revision = revision.or(self.child_revision);
        let nothing = if revision.is_some() { News::Recorded } else { News::None };
        if revision.is_some() && ran == Ran::No {
            self.undone |= self.ran > Ran::No;
            return nothing;
        }
        let is_denied = |denial: Denial| attempt <= denial.through && ran <= denial.known;
        let is_known = ran <= self.ran && !(self.undone && revision.is_some());
        if is_known || revision.is_none() && self.denied.is_some_and(is_denied) {
            return nothing;
        }
        self.ran = ran;
        self.undone &= revision.is_none();
        self.output_of = self.output_of.or(has_output.then_some(attempt));
        if self.has_effect() { News::Effect } else { nothing }
    }

    /// Records the statement of an operator that no attempt up to this one ran. It says nothing new if none was known to.
    pub(super) fn deny(&mut self, through: u32) {
        if self.ran > Ran::No {
            let before = self.denied.map_or(Ran::No, |denial| denial.known);
            self.denied = Some(Denial { through, known: before.max(self.ran) });
            self.ran = Ran::No;
        }
    }
}
