//! What changed between two definitions, in words, and whether it is safe to publish the new one
//! while clients, operators, agents and other workflows rely on the old one. Pure.
//!
//! Running tasks are never the question: each stays with the version that it began with. A change
//! needs a look if somebody else may have to do something first.

use std::{collections::BTreeSet, time::Duration};

use steward_core::{
    definition::{
        mask::Mask,
        recovery::{Recovery, Then},
        workflow::{Trigger, Workflow},
    },
    model::names::AgentName,
};

mod schema;
mod steps;
#[cfg(test)]
mod tests;

/// Seconds.
const DAY: u64 = 24 * 3600;

/// One difference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The key, as `steps.charge.undo`.
    pub at: String,
    /// What is different.
    pub what: String,
    /// Whether nobody has to look at it.
    pub safe: bool,
    /// Why, or why not.
    pub why: String,
}

/// Everything that is different, in the order in which definitions are written.
#[must_use]
pub fn changes(old: &Workflow, new: &Workflow) -> Vec<Change> {
    let mut found = Changes::default();
    found.head(old, new);
    if let Some((schema_old, schema_new)) = differing(&old.input, &new.input) {
        schema::compare(&mut found, schema_old.as_ref(), schema_new.as_ref());
    }
    found.mask(&old.mask, &new.mask);
    found.trigger(old.trigger.as_ref(), new.trigger.as_ref());
    found.within("complete_within", old.complete_within, new.complete_within);
    found.overdue(old.overdue, new.overdue);
    found.retention(old.retention, new.retention);
    match (old.lifecycle_events, new.lifecycle_events) {
        (false, true) => {
            found.safe(
                "lifecycle_events",
                "turned on",
                "each task's end is an event, and costs one",
            );
        }
        (true, false) => {
            let why = "whoever waits for `Task Ended` hears of new tasks no more";
            found.look("lifecycle_events", "turned off", why);
        }
        (true, true) | (false, false) => {}
    }
    steps::compare(&mut found, old, new);
    found.output(old, new);
    found.0
}

/// Both, if they are different.
fn differing<'a, T: PartialEq>(old: &'a T, new: &'a T) -> Option<(&'a T, &'a T)> {
    (old != new).then_some((old, new))
}

/// The agents that a workflow asks.
fn agents(workflow: &Workflow) -> BTreeSet<&AgentName> {
    workflow.steps.values().filter_map(|step| step.agent.as_ref()).collect()
}

/// As people write them: whole days stay days, where the library counts months.
fn human(duration: Duration) -> String {
    let (days, rest) = (duration.as_secs() / DAY, duration.as_secs() % DAY);
    if days > 0 && rest == 0 && duration.subsec_nanos() == 0 {
        return format!("{days}d");
    }
    humantime::format_duration(duration).to_string()
}

/// What has been found so far.
#[derive(Debug, Default)]
struct Changes(Vec<Change>);

impl Changes {
    fn push(&mut self, at: impl Into<String>, what: impl Into<String>, why: &str, safe: bool) {
        self.0.push(Change { at: at.into(), what: what.into(), safe, why: why.to_owned() });
    }

    fn safe(&mut self, at: impl Into<String>, what: impl Into<String>, why: &str) {
        self.push(at, what, why, true);
    }

    fn look(&mut self, at: impl Into<String>, what: impl Into<String>, why: &str) {
        self.push(at, what, why, false);
    }

    fn head(&mut self, old: &Workflow, new: &Workflow) {
        if old.name != new.name {
            let what = format!("`{}` became `{}`", old.name, new.name);
            self.look("name", what, "another workflow: the old one stays published beside it");
        }
        let raised = format!("{} became {}", old.version, new.version);
        if new.version > old.version {
            let why = "new tasks take it unless they name another";
            self.safe("version", raised, why);
        } else if new.version < old.version {
            let why = "new tasks take the highest version, which this is not";
            self.look("version", raised, why);
        } else if old != new {
            let what = format!("still {}", new.version);
            self.look("version", what, "a published version never changes: raise it");
        }
        if old.description != new.description {
            self.safe("description", "changed", "it is for people");
        }
    }

    fn mask(&mut self, old: &Mask, new: &Mask) {
        let (old, new): (BTreeSet<_>, BTreeSet<_>) =
            (old.places().collect(), new.places().collect());
        for place in new.difference(&old) {
            let why = "people are shown less of new tasks; of those that run, as much as before";
            self.safe("mask", format!("`{place}` added"), why);
        }
        for place in old.difference(&new) {
            let why = "people see of new tasks what was hidden";
            self.look("mask", format!("`{place}` removed"), why);
        }
    }

    fn trigger(&mut self, old: Option<&Trigger>, new: Option<&Trigger>) {
        let events =
            |trigger: &Trigger| format!("`{}` of `{}`", trigger.detail_type, trigger.source);
        match (old, new) {
            (None, Some(new)) => {
                let what = format!("added: events {}", events(new));
                let why = "from now on they submit tasks, also those that were meant for others";
                self.look("trigger", what, why);
            }
            (Some(old), None) => {
                let what = format!("removed: events {}", events(old));
                self.look("trigger", what, "they submit no tasks any more");
            }
            (Some(old), Some(new)) => {
                if !old.matches(&new.source, &new.detail_type) {
                    let what = format!("{} became {}", events(old), events(new));
                    self.look(
                        "trigger",
                        what,
                        "the former submit no tasks any more, the latter do",
                    );
                }
                if old.task_id != new.task_id {
                    let why =
                        "an event that is delivered again after publication makes a second task";
                    self.look("trigger.task_id", "changed", why);
                }
                if old.input != new.input {
                    let why = "events give new tasks another input: does it fit the schema and the steps?";
                    self.look("trigger.input", "changed", why);
                }
            }
            (None, None) => {}
        }
    }

    /// A time that something may take.
    fn within(&mut self, at: impl Into<String>, old: Duration, new: Duration) {
        let what = format!("{} became {}", human(old), human(new));
        if new < old {
            let why = "what took longer was in time before, and is too late now";
            self.look(at, format!("shortened: {what}"), why);
        } else if new > old {
            self.safe(at, format!("lengthened: {what}"), "what was in time still is");
        }
    }

    fn overdue(&mut self, old: Then, new: Then) {
        match (old, new) {
            (Then::Alert, Then::Undo) => {
                let why =
                    "a task past its time is undone by itself, where it waited for an operator";
                self.look("overdue", "alert became undo", why);
            }
            (Then::Undo, Then::Alert) => {
                let why =
                    "a task past its time waits for an operator, where it was undone by itself";
                self.look("overdue", "undo became alert", why);
            }
            (Then::Alert, Then::Alert) | (Then::Undo, Then::Undo) => {}
        }
    }

    fn retention(&mut self, old: Option<Duration>, new: Option<Duration>) {
        let Some((old, new)) = differing(&old, &new).map(|(old, new)| (*old, *new)) else { return };
        let said = |retention: Option<Duration>| {
            retention.map_or_else(|| "the deployment's".to_owned(), human)
        };
        let what = format!("{} became {}", said(old), said(new));
        if old.zip(new).is_some_and(|(old, new)| new > old) {
            self.safe("retention", format!("lengthened: {what}"), "costs storage, nothing else");
        } else {
            let why =
                "tasks and their documents may go earlier: can whoever looks them up bear it?";
            self.look("retention", what, why);
        }
    }

    /// What is done when attempts fail.
    fn recovery(&mut self, at: &str, old: &Recovery, new: &Recovery) {
        let at = |key: &str| format!("{at}.recovery.{key}");
        let (attempts_old, attempts_new) = (old.attempts.0, new.attempts.0);
        let what = format!("{attempts_old} became {attempts_new}");
        if attempts_new < attempts_old {
            self.look(at("attempts"), what, "gives up earlier on a service that is down");
        } else if attempts_new > attempts_old {
            self.safe(at("attempts"), what, "tries longer");
        }
        if old.backoff != new.backoff {
            self.safe(at("backoff"), "changed", "other pauses between attempts");
        }
        let waits = |recovery: &Recovery| {
            let wait = recovery.extended_wait.as_ref();
            wait.map_or(Duration::ZERO, |wait| wait.wait.saturating_mul(wait.times))
        };
        if old.extended_wait != new.extended_wait {
            let what = format!("{} in all became {}", human(waits(old)), human(waits(new)));
            if waits(new) < waits(old) {
                self.look(at("extended_wait"), what, "gives up earlier on a service that is down");
            } else {
                self.safe(at("extended_wait"), what, "waits as long or longer");
            }
        }
        match (old.then, new.then) {
            (Then::Alert, Then::Undo) => {
                let why =
                    "a task that fails here is undone by itself, where it waited for an operator";
                self.look(at("then"), "alert became undo", why);
            }
            (Then::Undo, Then::Alert) => {
                let why =
                    "a task that fails here waits for an operator, where it was undone by itself";
                self.look(at("then"), "undo became alert", why);
            }
            (Then::Alert, Then::Alert) | (Then::Undo, Then::Undo) => {}
        }
    }

    fn output(&mut self, old: &Workflow, new: &Workflow) {
        let why = "clients and the workflows that run this one read it";
        match (&old.output, &new.output) {
            (Some(_), None) => self.look("output", "removed", why),
            (Some(old), Some(new)) if old != new => self.look("output", "changed", why),
            (None, Some(_)) => self.safe("output", "added", "nobody reads it yet"),
            (Some(_), Some(_)) | (None, None) => {}
        }
    }
}
