//! The invariants of a task that has ended: of its state, of the side effects at the services, and of the alerts. The callers
//! collect these facts, and this module checks them: from the ledger of the services, or, in the exploration, from what the
//! agents have told.
//!
//! | state | invariant |
//! | --- | --- |
//! | Processed | each expected side effect happened exactly once, and none is undone |
//! | Undone | no side effect is left, except those that the workflow does not undo |
//! | Processed, Undone | no call is in progress |
//! | Error | an alert was published |
//! | any | no side effect happened twice |

use crate::model::task::ProcessState;

/// How a task has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskEnding {
    /// The state, by its record.
    pub state: ProcessState,
    /// Whether an alert about its end was published.
    pub is_alerted: bool,
    /// Its parts, or the services that they call.
    pub parts: Vec<PartEnding>,
}

/// The side effects of a part of a task, or of all of its parts at one service.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PartEnding {
    /// How findings name it.
    pub name: String,
    /// How many side effects it has had.
    pub effects: usize,
    /// How many of these are not undone.
    pub active: usize,
    /// How many it must have if the task is Processed, where that is known.
    pub expected: Option<usize>,
    /// Whether its side effects may remain when the task is Undone.
    pub may_remain: bool,
    /// The calls that are in progress at the end of the task, or begin after it.
    pub in_progress: Vec<String>,
}

impl TaskEnding {
    /// The violated invariants.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        let state = self.state;
        let mut found = Vec::new();
        let ends_well = match state {
            ProcessState::Pending | ProcessState::Processing | ProcessState::Undoing => {
                return vec![format!("still {state}")];
            }
            ProcessState::Error => {
                found.extend((!self.is_alerted).then(|| "Error without an alert".to_owned()));
                false
            }
            ProcessState::Processed | ProcessState::Undone => true,
        };
        found.extend(self.parts.iter().filter_map(|part| part.violation(state)));
        let in_progress = self.parts.iter().filter(|_| ends_well).flat_map(|part| {
            part.in_progress.iter().map(move |call| {
                format!("{state} with a call in progress in {}: {call}", part.name)
            })
        });
        found.extend(in_progress);
        found
    }
}

impl PartEnding {
    /// What is wrong with its side effects, if its task ends in this state.
    #[must_use]
    pub fn violation(&self, state: ProcessState) -> Option<String> {
        let Self { name, effects, active, expected, may_remain, .. } = self;
        let is_right = match (state, expected) {
            (ProcessState::Processed, Some(expected)) => (effects, active) == (expected, expected),
            (ProcessState::Undone, _) => *effects <= 1 && (*active == 0 || *may_remain),
            _ => *effects <= 1,
        };
        (!is_right).then(|| {
            format!("{state} with {effects} side effects in {name}, {active} of them active")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn violations(state: ProcessState, part: PartEnding) -> Vec<String> {
        let parts = vec![PartEnding { name: "pay".to_owned(), ..part }];
        TaskEnding { state, is_alerted: false, parts }.violations()
    }

    #[test]
    fn each_violation_is_found() {
        let part = |effects, active| PartEnding {
            effects,
            active,
            expected: Some(1),
            ..PartEnding::default()
        };
        let calling = |part| PartEnding { in_progress: vec!["k".to_owned()], ..part };
        let none = Vec::<String>::new();
        assert_eq!(violations(ProcessState::Processed, part(1, 1)), none);
        assert_eq!(violations(ProcessState::Undone, part(1, 0)), none);
        let remaining = PartEnding { may_remain: true, ..part(1, 1) };
        assert_eq!(violations(ProcessState::Undone, remaining), none);
        let wrong = [
            (
                ProcessState::Processed,
                part(0, 0),
                "Processed with 0 side effects in pay, 0 of them active",
            ),
            (
                ProcessState::Processed,
                part(2, 2),
                "Processed with 2 side effects in pay, 2 of them active",
            ),
            (
                ProcessState::Processed,
                part(1, 0),
                "Processed with 1 side effects in pay, 0 of them active",
            ),
            (
                ProcessState::Undone,
                part(1, 1),
                "Undone with 1 side effects in pay, 1 of them active",
            ),
            (
                ProcessState::Undone,
                part(2, 0),
                "Undone with 2 side effects in pay, 0 of them active",
            ),
            (ProcessState::Undone, calling(part(0, 0)), "Undone with a call in progress in pay: k"),
            (ProcessState::Error, calling(part(1, 1)), "Error without an alert"),
            (ProcessState::Undoing, part(0, 0), "still Undoing"),
        ];
        for (state, part, finding) in wrong {
            assert_eq!(violations(state, part), [finding]);
        }
    }
}
