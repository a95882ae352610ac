//! The task of a step, as little of it as its parent can tell: whether it was recorded, which way it
//! goes, how it ended, and what of it is on its way. Each message may arrive at any time, more than
//! once, or never.

use std::collections::BTreeSet;

use serde_json::json;
use steward_core::{
    messages::{Action, ChildOutcome},
    names::Part,
    transition::Event,
};

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
}

/// The task of a step.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Child {
    pub(super) stands: Stands,
    /// The submissions that went out: to be done, to be undone.
    pub(super) submitted: BTreeSet<Action>,
    /// What was first submitted.
    pub(super) content: Option<String>,
    /// The ends that it has told of.
    pub(super) said: BTreeSet<Stands>,
}

/// What can happen to the task of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChildMove {
    /// A submission is delivered.
    Hears(Action),
    /// A submission is refused, and so will be all.
    IsRefused,
    /// It ends.
    Ends(Stands),
}

impl Child {
    /// Whether it runs, stands done, or may still come to that.
    pub(super) fn is_open(&self) -> bool {
        match self.stands {
            Stands::Absent => self.submitted.contains(&Action::Do),
            Stands::Refused | Stands::Undone => false,
            Stands::Going | Stands::Processed | Stands::Error | Stands::Undoing | Stands::Stuck => {
                true
            }
        }
    }

    /// Everything that can happen to it next and changes something.
    pub(super) fn moves(&self) -> Vec<ChildMove> {
        let ends: &[Stands] = match self.stands {
            Stands::Going => &[Stands::Processed, Stands::Error, Stands::Undone],
            Stands::Undoing => &[Stands::Undone, Stands::Stuck],
            Stands::Absent
            | Stands::Refused
            | Stands::Processed
            | Stands::Error
            | Stands::Undone
            | Stands::Stuck => &[],
        };
        let hears = self.submitted.iter().map(|action| ChildMove::Hears(*action));
        let refused = (self.stands == Stands::Absent && !self.submitted.is_empty())
            .then_some(ChildMove::IsRefused);
        let all = hears.chain(refused).chain(ends.iter().map(|end| ChildMove::Ends(*end)));
        all.filter(|happens| {
            let mut after = self.clone();
            after.play(*happens);
            after != *self
        })
        .collect()
    }

    /// Lets something happen to it.
    pub(super) fn play(&mut self, happens: ChildMove) {
        match happens {
            ChildMove::IsRefused => self.stands = Stands::Refused,
            ChildMove::Ends(end) => self.stands = end,
            ChildMove::Hears(Action::Do) if self.stands == Stands::Absent => {
                self.stands = Stands::Going;
            }
            // Only asks how it is.
            ChildMove::Hears(Action::Do) => {}
            ChildMove::Hears(Action::Undo) => self.hears_undo(),
        }
        match self.stands {
            Stands::Absent | Stands::Going | Stands::Undoing => {}
            Stands::Refused
            | Stands::Processed
            | Stands::Error
            | Stands::Undone
            | Stands::Stuck => {
                self.said.insert(self.stands);
            }
        }
    }

    fn hears_undo(&mut self) {
        self.stands = match self.stands {
            // A task that was never begun is undone.
            Stands::Absent => Stands::Undone,
            Stands::Going | Stands::Processed | Stands::Error => Stands::Undoing,
            Stands::Undoing | Stands::Undone | Stands::Stuck | Stands::Refused => self.stands,
        };
    }

    /// What happens to it if it does what it is asked, and how it ends.
    pub(super) fn goes_well(mut self, action: Action) -> (Vec<ChildMove>, Stands) {
        let mut moves = vec![ChildMove::Hears(action)];
        self.play(ChildMove::Hears(action));
        let end = match self.stands {
            Stands::Going => Some(Stands::Processed),
            Stands::Undoing => Some(Stands::Undone),
            Stands::Absent
            | Stands::Refused
            | Stands::Processed
            | Stands::Error
            | Stands::Undone
            | Stands::Stuck => None,
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
        Stands::Absent | Stands::Going | Stands::Undoing => return None,
    };
    // A refusal is not of the task. Of the others each comes later than those above it in `Stands`.
    let is_its = end != Stands::Refused;
    let child = is_its.then(|| child_id(step).parse().unwrap());
    let revision = is_its.then_some(end as u64);
    Some(Event::ChildEnded { step: step.clone(), outcome, attempt: None, child, revision })
}

/// The id of the task of a step of task `t`.
pub(super) fn child_id(step: &Part) -> String {
    format!("t:{}", step.to_string().replace('[', ":").replace(']', ""))
}
