//! The task of a step, as little of it as its parent can tell: whether it was recorded, which way it
//! goes, how it ended, and what of it is on its way. Each message may arrive at any time, more than
//! once, or never.

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

/// Where the task of a step stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Stands {
    /// Never recorded so far.
    #[default]
    Absent,
    /// Never to be recorded.
    Refused,
    /// On its way forward.
    Going,
    Processed,
    /// In Error on its way forward.
    Error,
    /// On its way back.
    Undoing,
    Undone,
    /// In Error on its way back.
    Stuck,
    /// It has expired, and what it did stands.
    Gone,
}

/// A submission that went out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Asked {
    pub(super) action: Action,
    /// Whether the parent knows that the task has begun.
    pub(super) has_begun: bool,
    pub(super) attempt: u32,
    /// Until when the task is there, if it has begun.
    pub(super) kept_until: Timestamp,
}

impl Asked {
    pub(super) fn by(submission: &Submission) -> Self {
        Self {
            action: if submission.undo { Action::Undo } else { Action::Do },
            has_begun: submission.has_begun,
            attempt: submission.attempt.unwrap_or_default(),
            kept_until: submission.keep.map_or(Timestamp::MAX, expires_at),
        }
    }
}

/// The task of a step.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Child {
    pub(super) stands: Stands,
    /// The submissions that went out: to be done, to be undone.
    pub(super) submitted: BTreeSet<Asked>,
    /// Until when the newest submission may begin it.
    pub(super) begins_until: Option<Timestamp>,
    /// When it may expire, once it has ended.
    pub(super) kept: Option<Timestamp>,
    /// What was first submitted.
    pub(super) content: Option<String>,
    /// The ends that it has told of.
    pub(super) said: BTreeSet<Stands>,
    /// The attempts whose submission was refused; a later one, or another delivery, may be accepted.
    pub(super) refused: BTreeSet<u32>,
}

/// What can happen to the task of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChildMove {
    /// A submission is delivered.
    Hears(Asked),
    /// The submission of this attempt is refused: its workflow is not published, say.
    IsRefusedFor(u32),
    /// A submission is refused, and so will be all.
    IsRefused,
    /// It ends.
    Ends(Stands),
}

impl Child {
    /// Whether it runs, stands done, or may still come to that.
    pub(super) fn is_open(&self, now: Timestamp) -> bool {
        match self.stands {
            Stands::Absent => self.asks(Action::Do).next().is_some() && !self.is_too_late(now),
            Stands::Refused | Stands::Undone => false,
            Stands::Going
            | Stands::Processed
            | Stands::Error
            | Stands::Undoing
            | Stands::Stuck
            | Stands::Gone => true,
        }
    }

    fn asks(&self, action: Action) -> impl Iterator<Item = &Asked> {
        self.submitted.iter().filter(move |asked| asked.action == action)
    }

    /// Attempts are told apart as the newest and the older ones only.
    pub(super) fn hash(&self, now: Timestamp, to: &mut impl Hasher) {
        let newest = self.submitted.iter().map(|asked| asked.attempt).max();
        let days = |at: Timestamp| days_until(now, at);
        (self.stands, &self.content, &self.said, self.kept.map(days)).hash(to);
        self.is_too_late(now).hash(to);
        for Asked { action, has_begun, attempt, kept_until } in &self.submitted {
            (action, has_begun, Some(*attempt) == newest, days(*kept_until)).hash(to);
        }
        self.refused.iter().for_each(|attempt| (Some(*attempt) == newest).hash(to));
    }

    /// Whether no submission that went out may begin it any more.
    fn is_too_late(&self, now: Timestamp) -> bool {
        self.begins_until.is_some_and(|until| until < now)
    }

    /// Whether there is a record of it.
    pub(super) fn is_recorded(&self) -> bool {
        !matches!(self.stands, Stands::Absent | Stands::Refused | Stands::Gone)
    }

    /// Whether it has ended.
    pub(super) fn is_final(&self) -> bool {
        !matches!(self.stands, Stands::Absent | Stands::Going | Stands::Undoing)
    }

    /// What becomes of it when it expires.
    pub(super) fn gone(&self) -> Stands {
        if self.stands == Stands::Undone { Stands::Absent } else { Stands::Gone }
    }

    /// Everything that can happen to it next and changes something.
    pub(super) fn moves(&self, now: Timestamp) -> Vec<ChildMove> {
        let ends: &[Stands] = match self.stands {
            Stands::Going => &[Stands::Processed, Stands::Error, Stands::Undone],
            Stands::Undoing => &[Stands::Undone, Stands::Stuck],
            Stands::Absent
            | Stands::Refused
            | Stands::Processed
            | Stands::Error
            | Stands::Undone
            | Stands::Stuck
            | Stands::Gone => &[],
        };
        let is_absent = self.stands == Stands::Absent;
        let hears = self.submitted.iter().map(|asked| ChildMove::Hears(*asked));
        let refused = (is_absent && !self.submitted.is_empty()).then_some(ChildMove::IsRefused);
        let once = self.asks(Action::Do).filter(|_| is_absent);
        let once = once.map(|asked| ChildMove::IsRefusedFor(asked.attempt));
        let ends = ends.iter().map(|end| ChildMove::Ends(*end));
        hears
            .chain(refused)
            .chain(once)
            .chain(ends)
            .filter(|happens| {
                let mut after = self.clone();
                after.play(*happens, now);
                after != *self
            })
            .collect()
    }

    /// Lets something happen to it.
    pub(super) fn play(&mut self, happens: ChildMove, now: Timestamp) {
        let stood = self.stands;
        match happens {
            ChildMove::IsRefused => self.stands = Stands::Refused,
            ChildMove::IsRefusedFor(attempt) => {
                self.refused.insert(attempt);
            }
            ChildMove::Ends(end) => self.stands = end,
            ChildMove::Hears(Asked { action: Action::Do, attempt, .. }) => {
                self.hears(attempt, now);
            }
            ChildMove::Hears(Asked { has_begun, kept_until, .. }) => {
                self.hears_undo(has_begun || kept_until <= now);
            }
        }
        if self.stands != stood && self.is_recorded() {
            self.kept = self.kept.max(Some(later(now, RETENTION)));
        }
        match self.stands {
            Stands::Absent | Stands::Going | Stands::Undoing | Stands::Gone => {}
            Stands::Refused
            | Stands::Processed
            | Stands::Error
            | Stands::Undone
            | Stands::Stuck => {
                self.said.insert(self.stands);
            }
        }
    }

    /// It begins, unless there is a record of it, which only tells how it is; or the submission is too old.
    fn hears(&mut self, attempt: u32, now: Timestamp) {
        if !matches!(self.stands, Stands::Absent | Stands::Gone) {
            return;
        }
        if self.is_too_late(now) {
            self.refused.insert(attempt);
        } else {
            self.stands = Stands::Going;
        }
    }

    fn hears_undo(&mut self, has_begun: bool) {
        self.stands = match self.stands {
            // A task that was never begun is undone.
            Stands::Absent if !has_begun => Stands::Undone,
            Stands::Absent | Stands::Gone => {
                let said = if has_begun { Stands::Stuck } else { Stands::Undone };
                self.said.insert(said);
                self.stands
            }
            Stands::Going | Stands::Processed | Stands::Error => Stands::Undoing,
            Stands::Undoing | Stands::Undone | Stands::Stuck | Stands::Refused => self.stands,
        };
    }

    /// What happens to it if it does what it is asked, and how it ends.
    pub(super) fn goes_well(mut self, asked: Asked, now: Timestamp) -> (Vec<ChildMove>, Stands) {
        let mut moves = vec![ChildMove::Hears(asked)];
        self.play(ChildMove::Hears(asked), now);
        let end = match self.stands {
            Stands::Going => Some(Stands::Processed),
            Stands::Undoing => Some(Stands::Undone),
            Stands::Absent
            | Stands::Refused
            | Stands::Processed
            | Stands::Error
            | Stands::Undone
            | Stands::Stuck => None,
            // Nothing is known of it, or that it is gone.
            Stands::Gone if asked.has_begun || asked.kept_until <= now => {
                return (moves, Stands::Stuck);
            }
            Stands::Gone => return (moves, Stands::Undone),
        };
        moves.extend(end.map(ChildMove::Ends));
        (moves, end.unwrap_or(self.stands))
    }
}

/// The message that tells the parent of an end.
pub(super) fn says(step: &Part, end: Stands) -> Option<Event> {
    let reason = || "so it is".to_owned();
    let outcome = match end {
        Stands::Processed => ChildOutcome::Processed { output: json!({ "id": format!("{step}") }) },
        Stands::Undone => ChildOutcome::Undone { reason: reason() },
        Stands::Refused => ChildOutcome::Refused { reason: reason(), id_taken: false },
        Stands::Error => ChildOutcome::Error { reason: reason(), not_undone: false },
        Stands::Stuck => ChildOutcome::Error { reason: reason(), not_undone: true },
        Stands::Absent | Stands::Going | Stands::Undoing | Stands::Gone => return None,
    };
    // A refusal is not of the task. Of the others each comes later than those above it in `Stands`.
    let is_its = end != Stands::Refused;
    let child = is_its.then(|| child_id(step).parse().unwrap());
    let revision = is_its.then_some(end as u64);
    Some(Event::ChildEnded { step: step.clone(), outcome, attempt: None, child, revision })
}

/// The message that tells the parent that the submission of an attempt was refused.
pub(super) fn refuses(step: &Part, attempt: u32) -> Event {
    let outcome = ChildOutcome::Refused { reason: "no such workflow".to_owned(), id_taken: false };
    let step = step.clone();
    Event::ChildEnded { step, outcome, attempt: Some(attempt), child: None, revision: None }
}

/// The id of the task of a step of task `t`.
pub(super) fn child_id(step: &Part) -> String {
    format!("t:{}", step.to_string().replace('[', ":").replace(']', ""))
}
