//! A model of a child task, reduced to what its parent can observe: whether it was recorded, whether it is being undone,
//! how it ended, and which messages are in flight. Each message may arrive at any time, more than once, or never.

use std::{
    collections::BTreeSet,
    hash::{Hash, Hasher},
};

use jiff::Timestamp;
use serde_json::json;
use steward_core::{
    engine::event::Event,
    model::{
        attempt::Action,
        messages::{ChildOutcome, Submission},
        names::Part,
        time::later,
    },
};

use super::expiry::{RETENTION, days_until, expires_at};

/// The state of a child task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum ChildState {
    /// Not recorded yet.
    #[default]
    Absent,
    /// Refused for good.
    Refused,
    /// In Processing.
    Running,
    Processed,
    /// In Error, not undone.
    Error,
    /// In Undoing.
    Undoing,
    Undone,
    /// In Error, with a failed undo.
    UndoFailed,
    /// Expired, with its side effects in place.
    Expired,
}

/// A submission that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ChildSubmission {
    pub(super) action: Action,
    /// Whether the parent knows that the child has started.
    pub(super) has_begun: bool,
    pub(super) attempt: u32,
    /// The expiry of the child, if it has started.
    pub(super) kept_until: Timestamp,
}

impl ChildSubmission {
    pub(super) fn new(submission: &Submission) -> Self {
        Self {
            action: if submission.undo { Action::Undo } else { Action::Do },
            has_begun: submission.has_begun,
            attempt: submission.attempt.unwrap_or_default(),
            kept_until: submission.retention.map_or(Timestamp::MAX, expires_at),
        }
    }
}

/// A child task.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ChildModel {
    pub(super) state: ChildState,
    /// The submissions that were sent, to run the child or to undo it.
    pub(super) submitted: BTreeSet<ChildSubmission>,
    /// The time until which the newest submission may start the child.
    pub(super) begins_until: Option<Timestamp>,
    /// The expiry of the child after its end.
    pub(super) expires_at: Option<Timestamp>,
    /// The input of the first submission.
    pub(super) content: Option<String>,
    /// The outcomes that the child has reported.
    pub(super) reported: BTreeSet<ChildState>,
    /// The attempts whose submission was refused. A later submission or another delivery may be accepted.
    pub(super) refused: BTreeSet<u32>,
}

/// An event of a child task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChildEvent {
    /// A submission is delivered.
    SubmissionDelivered(ChildSubmission),
    /// The submission of this attempt is refused, for example because its workflow is not published.
    AttemptRefused(u32),
    /// All submissions are refused.
    Refused,
    /// The child reaches a final state.
    Ended(ChildState),
}

impl ChildModel {
    /// Whether it has side effects, or may still have.
    pub(super) fn is_open(&self, now: Timestamp) -> bool {
        match self.state {
            ChildState::Absent => {
                self.submissions(Action::Do).next().is_some() && !self.is_too_late(now)
            }
            ChildState::Refused | ChildState::Undone => false,
            ChildState::Running
            | ChildState::Processed
            | ChildState::Error
            | ChildState::Undoing
            | ChildState::UndoFailed
            | ChildState::Expired => true,
        }
    }

    fn submissions(&self, action: Action) -> impl Iterator<Item = &ChildSubmission> {
        self.submitted.iter().filter(move |submission| submission.action == action)
    }

    /// Hashes the child. Attempts are distinguished only as the newest and older ones.
    pub(super) fn hash(&self, now: Timestamp, to: &mut impl Hasher) {
        let newest = self.submitted.iter().map(|submission| submission.attempt).max();
        let days = |at: Timestamp| days_until(now, at);
        (self.state, &self.content, &self.reported, self.expires_at.map(days)).hash(to);
        self.is_too_late(now).hash(to);
        for ChildSubmission { action, has_begun, attempt, kept_until } in &self.submitted {
            (action, has_begun, Some(*attempt) == newest, days(*kept_until)).hash(to);
        }
        self.refused.iter().for_each(|attempt| (Some(*attempt) == newest).hash(to));
    }

    /// Whether it is too late for every sent submission to start the child.
    fn is_too_late(&self, now: Timestamp) -> bool {
        self.begins_until.is_some_and(|until| until < now)
    }

    /// Whether its record exists.
    pub(super) fn is_recorded(&self) -> bool {
        !matches!(self.state, ChildState::Absent | ChildState::Refused | ChildState::Expired)
    }

    /// Whether it is in a final state.
    pub(super) fn has_stopped(&self) -> bool {
        !matches!(self.state, ChildState::Absent | ChildState::Running | ChildState::Undoing)
    }

    /// The state after its record has expired.
    pub(super) fn expired_state(&self) -> ChildState {
        if self.state == ChildState::Undone { ChildState::Absent } else { ChildState::Expired }
    }

    /// All events that can occur next and change something.
    pub(super) fn events(&self, now: Timestamp) -> Vec<ChildEvent> {
        let ends: &[ChildState] = match self.state {
            ChildState::Running => &[ChildState::Processed, ChildState::Error, ChildState::Undone],
            ChildState::Undoing => &[ChildState::Undone, ChildState::UndoFailed],
            ChildState::Absent
            | ChildState::Refused
            | ChildState::Processed
            | ChildState::Error
            | ChildState::Undone
            | ChildState::UndoFailed
            | ChildState::Expired => &[],
        };
        let is_absent = self.state == ChildState::Absent;
        let delivered =
            self.submitted.iter().map(|submission| ChildEvent::SubmissionDelivered(*submission));
        let refused = (is_absent && !self.submitted.is_empty()).then_some(ChildEvent::Refused);
        let once = self.submissions(Action::Do).filter(|_| is_absent);
        let once = once.map(|submission| ChildEvent::AttemptRefused(submission.attempt));
        let ends = ends.iter().map(|end| ChildEvent::Ended(*end));
        delivered
            .chain(refused)
            .chain(once)
            .chain(ends)
            .filter(|event| {
                let mut after = self.clone();
                after.apply(*event, now);
                after != *self
            })
            .collect()
    }

    /// Applies an event.
    pub(super) fn apply(&mut self, event: ChildEvent, now: Timestamp) {
        let before = self.state;
        match event {
            ChildEvent::Refused => self.state = ChildState::Refused,
            ChildEvent::AttemptRefused(attempt) => {
                self.refused.insert(attempt);
            }
            ChildEvent::Ended(end) => self.state = end,
            ChildEvent::SubmissionDelivered(ChildSubmission {
                action: Action::Do,
                attempt,
                ..
            }) => {
                self.receive_submission(attempt, now);
            }
            ChildEvent::SubmissionDelivered(ChildSubmission { has_begun, kept_until, .. }) => {
                self.receive_undo(has_begun || kept_until <= now);
            }
        }
        if self.state != before && self.is_recorded() {
            self.expires_at = self.expires_at.max(Some(later(now, RETENTION)));
        }
        match self.state {
            ChildState::Absent
            | ChildState::Running
            | ChildState::Undoing
            | ChildState::Expired => {}
            ChildState::Refused
            | ChildState::Processed
            | ChildState::Error
            | ChildState::Undone
            | ChildState::UndoFailed => {
                self.reported.insert(self.state);
            }
        }
    }

    /// Starts the child, unless its record exists or the submission is too old.
    fn receive_submission(&mut self, attempt: u32, now: Timestamp) {
        if !matches!(self.state, ChildState::Absent | ChildState::Expired) {
            return;
        }
        if self.is_too_late(now) {
            self.refused.insert(attempt);
        } else {
            self.state = ChildState::Running;
        }
    }

    fn receive_undo(&mut self, has_begun: bool) {
        self.state = match self.state {
            // A child that has never started counts as undone.
            ChildState::Absent if !has_begun => ChildState::Undone,
            ChildState::Absent | ChildState::Expired => {
                let outcome = if has_begun { ChildState::UndoFailed } else { ChildState::Undone };
                self.reported.insert(outcome);
                self.state
            }
            ChildState::Running | ChildState::Processed | ChildState::Error => ChildState::Undoing,
            ChildState::Undoing
            | ChildState::Undone
            | ChildState::UndoFailed
            | ChildState::Refused => self.state,
        };
    }

    /// The events and the final state if the submission succeeds.
    pub(super) fn succeed(
        mut self,
        submission: ChildSubmission,
        now: Timestamp,
    ) -> (Vec<ChildEvent>, ChildState) {
        let mut events = vec![ChildEvent::SubmissionDelivered(submission)];
        self.apply(ChildEvent::SubmissionDelivered(submission), now);
        let end = match self.state {
            ChildState::Running => Some(ChildState::Processed),
            ChildState::Undoing => Some(ChildState::Undone),
            ChildState::Absent
            | ChildState::Refused
            | ChildState::Processed
            | ChildState::Error
            | ChildState::Undone
            | ChildState::UndoFailed => None,
            // The child's record has expired.
            ChildState::Expired if submission.has_begun || submission.kept_until <= now => {
                return (events, ChildState::UndoFailed);
            }
            ChildState::Expired => return (events, ChildState::Undone),
        };
        events.extend(end.map(ChildEvent::Ended));
        (events, end.unwrap_or(self.state))
    }
}

/// The message that reports an end to the parent.
pub(super) fn report(step: &Part, end: ChildState) -> Option<Event> {
    let reason = || "a reason".to_owned();
    let outcome = match end {
        ChildState::Processed => {
            ChildOutcome::Processed { output: json!({ "id": format!("{step}") }) }
        }
        ChildState::Undone => ChildOutcome::Undone { reason: reason() },
        ChildState::Refused => ChildOutcome::Refused { reason: reason(), id_taken: false },
        ChildState::Error => {
            ChildOutcome::Error { reason: reason(), not_undone: false, was_processed: false }
        }
        ChildState::UndoFailed => {
            ChildOutcome::Error { reason: reason(), not_undone: true, was_processed: false }
        }
        ChildState::Absent | ChildState::Running | ChildState::Undoing | ChildState::Expired => {
            return None;
        }
    };
    // A refusal has no child. The other states are declared in the order of their revisions.
    let has_child = end != ChildState::Refused;
    let child = has_child.then(|| child_id(step).parse().unwrap());
    let revision = has_child.then_some(end as u64);
    Some(Event::ChildEnded { step: step.clone(), outcome, attempt: None, child, revision })
}

/// The message that reports the refusal of an attempt's submission to the parent.
pub(super) fn refusal_report(step: &Part, attempt: u32) -> Event {
    let outcome = ChildOutcome::Refused { reason: "no such workflow".to_owned(), id_taken: false };
    let step = step.clone();
    Event::ChildEnded { step, outcome, attempt: Some(attempt), child: None, revision: None }
}

/// The id of the child of a part of task `t`.
pub(super) fn child_id(step: &Part) -> String {
    format!("t:{}", step.to_string().replace('[', ":").replace(']', ""))
}
