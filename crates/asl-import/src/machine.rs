//! The structure of a state machine: its states, and the order in which they run.

use std::collections::{BTreeMap, BTreeSet};

use indexmap::IndexMap;
use serde_json::{Map, Value};

use crate::{cel::Cel, source::child};

/// The kind of a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StateKind {
    Task,
    Pass,
    Choice,
    Wait,
    Parallel,
    Map,
    Succeed,
    Fail,
}

/// One state.
#[derive(Debug, Clone)]
pub(crate) struct State<'a> {
    pub(crate) name: &'a str,
    pub(crate) pointer: String,
    pub(crate) kind: StateKind,
    pub(crate) fields: &'a Map<String, Value>,
    pub(crate) is_jsonata: bool,
}

/// A state machine, or the states of a branch or of a `Map`.
#[derive(Debug, Clone)]
pub(crate) struct Machine<'a> {
    pub(crate) start: &'a str,
    pub(crate) states: IndexMap<&'a str, State<'a>>,
    pub(crate) is_jsonata: bool,
}

/// An error in the structure, with its JSON pointer.
pub(crate) type StructureError = (String, String);

impl<'a> Machine<'a> {
    /// Reads the states of `value`.
    ///
    /// # Errors
    /// It has no states, or a state is not one.
    pub(crate) fn read(
        value: &'a Value,
        pointer: &str,
        is_jsonata: bool,
    ) -> Result<Self, StructureError> {
        let error = |at: &str, message: &str| Err((at.to_owned(), message.to_owned()));
        let Some(fields) = value.as_object() else {
            return error(pointer, "a state machine is an object");
        };
        let is_jsonata = query_language(fields).unwrap_or(is_jsonata);
        let Some(start) = fields.get("StartAt").and_then(Value::as_str) else {
            return error(pointer, "a state machine needs `StartAt`");
        };
        let Some(all) = fields.get("States").and_then(Value::as_object) else {
            return error(pointer, "a state machine needs `States`");
        };
        let within = child(pointer, "States");
        let mut states = IndexMap::new();
        for (name, state) in all {
            let pointer = child(&within, name);
            let Some(fields) = state.as_object() else {
                return error(&pointer, "a state is an object");
            };
            let Some(kind) = fields.get("Type").and_then(Value::as_str).and_then(kind) else {
                return error(&pointer, "a state needs a known `Type`");
            };
            let is_jsonata = query_language(fields).unwrap_or(is_jsonata);
            states.insert(name.as_str(), State { name, pointer, kind, fields, is_jsonata });
        }
        let machine = Self { start, states, is_jsonata };
        machine.check_targets(pointer)?;
        Ok(machine)
    }

    fn check_targets(&self, pointer: &str) -> Result<(), StructureError> {
        if !self.states.contains_key(self.start) {
            return Err((child(pointer, "StartAt"), format!("there is no state `{}`", self.start)));
        }
        for state in self.states.values() {
            for target in state.targets().into_iter().chain(state.handlers()) {
                if !self.states.contains_key(target) {
                    return Err((state.pointer.clone(), format!("there is no state `{target}`")));
                }
            }
        }
        Ok(())
    }

    /// The states that are reached, each after all states that lead to it, and the transitions that go back to an earlier
    /// state.
    pub(crate) fn order(&self, flow: &Flow<'a>) -> (Vec<&'a str>, BTreeSet<(&'a str, &'a str)>) {
        let (marks, back) = (BTreeMap::new(), BTreeSet::new());
        let mut walk = Walk { machine: self, flow, marks, back, done: vec![] };
        walk.from(self.start);
        walk.done.reverse();
        (walk.done, walk.back)
    }
}

/// Where a machine goes on after the failure of a state.
#[derive(Debug, Clone)]
pub(crate) struct Exit<'a> {
    /// The index of the catcher.
    pub(crate) index: usize,
    pub(crate) target: &'a str,
    pub(crate) catcher: &'a Value,
}

/// A loop that one step replaces.
#[derive(Debug)]
pub(crate) struct Poll<'a> {
    pub(crate) task: &'a str,
    pub(crate) choice: &'a str,
    pub(crate) wait: &'a str,
    /// True for a response that leads out of the loop.
    pub(crate) condition: Cel,
    pub(crate) every_s: f64,
    /// Whether a later call would send another request.
    pub(crate) changes: bool,
}

/// What changes the transitions of a machine: failures after which it goes on, and loops that one step replaces.
#[derive(Debug, Default)]
pub(crate) struct Flow<'a> {
    /// By the state that may fail.
    pub(crate) exits: BTreeMap<&'a str, Exit<'a>>,
    pub(crate) polls: Vec<Poll<'a>>,
}

impl<'a> Flow<'a> {
    /// The states that may follow.
    fn targets(&self, state: &State<'a>) -> Vec<&'a str> {
        let mut targets = state.targets();
        if let Some(poll) = self.poll_of_choice(state.name) {
            targets.retain(|target| *target != poll.wait);
        }
        targets.extend(self.exits.get(state.name).map(|exit| exit.target));
        targets
    }

    /// The poll whose choice this state is.
    pub(crate) fn poll_of_choice(&self, name: &str) -> Option<&Poll<'a>> {
        self.polls.iter().find(|poll| poll.choice == name)
    }

    /// The poll whose task this state is.
    pub(crate) fn poll_of_task(&self, name: &str) -> Option<&Poll<'a>> {
        self.polls.iter().find(|poll| poll.task == name)
    }
}

/// A depth-first walk with an explicit stack: a state machine may have a thousand states in a row.
struct Walk<'m, 'a> {
    machine: &'m Machine<'a>,
    flow: &'m Flow<'a>,
    /// Whether the walk has left the state.
    marks: BTreeMap<&'a str, bool>,
    back: BTreeSet<(&'a str, &'a str)>,
    done: Vec<&'a str>,
}

impl<'a> Walk<'_, 'a> {
    fn from(&mut self, start: &'a str) {
        let mut stack = vec![(start, self.targets(start))];
        self.marks.insert(start, false);
        while let Some((state, targets)) = stack.last_mut() {
            let state = *state;
            let Some(target) = targets.pop() else {
                self.marks.insert(state, true);
                self.done.push(state);
                stack.pop();
                continue;
            };
            match self.marks.get(target) {
                None => {
                    self.marks.insert(target, false);
                    let targets = self.targets(target);
                    stack.push((target, targets));
                }
                Some(false) => {
                    self.back.insert((state, target));
                }
                Some(true) => {}
            }
        }
    }

    fn targets(&self, state: &str) -> Vec<&'a str> {
        let state = self.machine.states.get(state);
        state.map(|state| self.flow.targets(state)).unwrap_or_default()
    }
}

impl<'a> State<'a> {
    /// The value of a key.
    pub(crate) fn get(&self, key: &str) -> Option<&'a Value> {
        self.fields.get(key)
    }

    /// A text.
    pub(crate) fn text(&self, key: &str) -> Option<&'a str> {
        self.get(key).and_then(Value::as_str)
    }

    /// The pointer of a key.
    pub(crate) fn at(&self, key: &str) -> String {
        child(&self.pointer, key)
    }

    /// The states that may follow, without those of `Catch`.
    pub(crate) fn targets(&self) -> Vec<&'a str> {
        let choices = self.list("Choices").iter();
        let rules = choices.filter_map(|rule| rule.get("Next")).filter_map(Value::as_str);
        let others = [self.text("Default"), self.text("Next")].into_iter().flatten();
        rules.chain(others).collect()
    }

    /// The states that `Catch` names.
    pub(crate) fn handlers(&self) -> Vec<&'a str> {
        let catchers = self.list("Catch").iter();
        catchers.filter_map(|catcher| catcher.get("Next")).filter_map(Value::as_str).collect()
    }

    /// The items of a list; empty if there is none.
    pub(crate) fn list(&self, key: &str) -> &'a [Value] {
        self.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// The keys that states of this kind do not have.
    pub(crate) fn unknown_keys(&self) -> impl Iterator<Item = &'a str> {
        let known = [COMMON, keys_of(self.kind)];
        self.fields
            .keys()
            .map(String::as_str)
            .filter(move |key| !known.iter().any(|keys| keys.contains(key)))
    }
}

/// Whether the object chooses JSONata.
fn query_language(fields: &Map<String, Value>) -> Option<bool> {
    Some(fields.get("QueryLanguage")?.as_str()? == "JSONata")
}

fn kind(name: &str) -> Option<StateKind> {
    Some(match name {
        "Task" => StateKind::Task,
        "Pass" => StateKind::Pass,
        "Choice" => StateKind::Choice,
        "Wait" => StateKind::Wait,
        "Parallel" => StateKind::Parallel,
        "Map" => StateKind::Map,
        "Succeed" => StateKind::Succeed,
        "Fail" => StateKind::Fail,
        _ => return None,
    })
}

const COMMON: &[&str] = &[
    "Type",
    "Comment",
    "QueryLanguage",
    "InputPath",
    "OutputPath",
    "Output",
    "Assign",
    "Next",
    "End",
];

fn keys_of(kind: StateKind) -> &'static [&'static str] {
    match kind {
        StateKind::Task => &[
            "Resource",
            "Parameters",
            "Arguments",
            "ResultSelector",
            "ResultPath",
            "Retry",
            "Catch",
            "TimeoutSeconds",
            "TimeoutSecondsPath",
            "HeartbeatSeconds",
            "HeartbeatSecondsPath",
            "Credentials",
        ],
        StateKind::Pass => &["Result", "Parameters", "ResultPath"],
        StateKind::Choice => &["Choices", "Default"],
        StateKind::Wait => &["Seconds", "SecondsPath", "Timestamp", "TimestampPath"],
        StateKind::Parallel => &[
            "Branches",
            "Parameters",
            "Arguments",
            "ResultSelector",
            "ResultPath",
            "Retry",
            "Catch",
        ],
        StateKind::Map => &[
            "Iterator",
            "ItemProcessor",
            "ItemsPath",
            "Items",
            "ItemSelector",
            "Parameters",
            "MaxConcurrency",
            "MaxConcurrencyPath",
            "ItemReader",
            "ItemBatcher",
            "ResultWriter",
            "ToleratedFailurePercentage",
            "ToleratedFailurePercentagePath",
            "ToleratedFailureCount",
            "ToleratedFailureCountPath",
            "Label",
            "ResultSelector",
            "ResultPath",
            "Retry",
            "Catch",
        ],
        StateKind::Succeed => &[],
        StateKind::Fail => &["Error", "Cause", "ErrorPath", "CausePath"],
    }
}
