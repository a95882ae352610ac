//! The differences between two definitions. Each is either safe, or risky: before the new definition is published, a
//! client, an operator, an agent or another workflow may have to change.
//!
//! Running tasks are not affected: each stays with the version that it started with.

use std::{collections::BTreeSet, time::Duration};

use steward_core::{
    definition::{
        mask::Mask,
        recovery::Overdue,
        workflow::{Trigger, Workflow},
    },
    model::lifecycle::LifecycleEventKinds,
};

mod change_list;
mod schema;
mod steps;
#[cfg(test)]
mod tests;

use change_list::{Changes, differing, duration_text};

pub use change_list::DefinitionChange;

/// All differences, in the order of the keys in a definition.
#[must_use]
pub fn compare_definitions(old: &Workflow, new: &Workflow) -> Vec<DefinitionChange> {
    let mut found = Changes::default();
    found.head(old, new);
    if let Some((schema_old, schema_new)) = differing(&old.input, &new.input) {
        schema::compare(&mut found, schema_old.as_ref(), schema_new.as_ref());
    }
    found.mask(&old.mask, &new.mask);
    found.named_values(old, new);
    found.labels(old, new);
    found.trigger(old.trigger.as_ref(), new.trigger.as_ref());
    found.time_limit("complete_within", old.complete_within, new.complete_within);
    if old.warn_after != new.warn_after {
        found.safe(
            "warn_after",
            "changed",
            "only decides when an unfinished task is reported as late",
        );
    }
    found.overdue(old.overdue, new.overdue);
    found.retention(old.retention, new.retention);
    found.lifecycle_events(&old.lifecycle_events, &new.lifecycle_events);
    steps::compare(&mut found, old, new);
    found.output(old, new);
    found.0
}

impl Changes {
    fn head(&mut self, old: &Workflow, new: &Workflow) {
        if old.name != new.name {
            let what = format!("`{}` became `{}`", old.name, new.name);
            self.risky("name", what, "this is a different workflow; the old one stays published");
        }
        let raised = format!("{} became {}", old.version, new.version);
        if new.version > old.version {
            let why = "new tasks use it unless they name another version";
            self.safe("version", raised, why);
        } else if new.version < old.version {
            let why = "new tasks use the highest version, so they will not use this one";
            self.risky("version", raised, why);
        } else if old != new {
            let what = format!("still {}", new.version);
            self.risky("version", what, "a published version cannot change; raise the version");
        }
        if old.description != new.description {
            self.safe("description", "changed", "has no effect on tasks");
        }
    }

    fn lifecycle_events(&mut self, old: &LifecycleEventKinds, new: &LifecycleEventKinds) {
        for kind in new.iter().filter(|kind| !old.contains(*kind)) {
            let why = "new tasks publish these events, and each of them is billed";
            self.safe("lifecycle_events", format!("`{kind}` added"), why);
        }
        for kind in old.iter().filter(|kind| !new.contains(*kind)) {
            let why = format!("subscribers of `{}` get no events of new tasks", kind.event_type());
            self.risky("lifecycle_events", format!("`{kind}` removed"), &why);
        }
    }

    fn mask(&mut self, old: &Mask, new: &Mask) {
        let (old, new): (BTreeSet<_>, BTreeSet<_>) =
            (old.pointers().collect(), new.pointers().collect());
        for place in new.difference(&old) {
            let why = "hides the value in new tasks; running tasks keep their mask";
            self.safe("mask", format!("`{place}` added"), why);
        }
        for place in old.difference(&new) {
            let why = "shows the value in new tasks";
            self.risky("mask", format!("`{place}` removed"), why);
        }
    }

    fn trigger(&mut self, old: Option<&Trigger>, new: Option<&Trigger>) {
        let events =
            |trigger: &Trigger| format!("`{}` of `{}`", trigger.detail_type, trigger.source);
        match (old, new) {
            (None, Some(new)) => {
                let what = format!("added: events {}", events(new));
                let why =
                    "these events will submit tasks, including events meant for other consumers";
                self.risky("trigger", what, why);
            }
            (Some(old), None) => {
                let what = format!("removed: events {}", events(old));
                self.risky("trigger", what, "these events will no longer submit tasks");
            }
            (Some(old), Some(new)) => {
                if !old.matches(&new.source, &new.detail_type) {
                    let what = format!("{} became {}", events(old), events(new));
                    self.risky(
                        "trigger",
                        what,
                        "the old events will no longer submit tasks; the new ones will",
                    );
                }
                if old.task_id != new.task_id {
                    let why =
                        "an event that is redelivered after publication submits a second task";
                    self.risky("trigger.task_id", "changed", why);
                }
                if old.input != new.input {
                    let why = "new tasks get a different input; check that it matches the schema and the steps";
                    self.risky("trigger.input", "changed", why);
                }
                if old.tenant != new.tenant {
                    let why = "an event that is redelivered after publication is refused if its tenant differs";
                    self.risky("trigger.tenant", "changed", why);
                }
            }
            (None, None) => {}
        }
    }

    fn overdue(&mut self, old: Overdue, new: Overdue) {
        match (old, new) {
            (Overdue::Alert, Overdue::Undo) => {
                let why = "an overdue task is now undone automatically instead of waiting for an operator";
                self.risky("overdue", "alert became undo", why);
            }
            (Overdue::Undo, Overdue::Alert) => {
                let why = "an overdue task now waits for an operator instead of being undone automatically";
                self.risky("overdue", "undo became alert", why);
            }
            (Overdue::Alert, Overdue::Alert) | (Overdue::Undo, Overdue::Undo) => {}
        }
    }

    /// Compares the named values.
    fn named_values(&mut self, old: &Workflow, new: &Workflow) {
        for (name, value) in &new.env {
            let before = old.env.get(name);
            if before.is_some_and(|before| before != value) {
                let why = "new tasks use the new value; tasks of both versions run meanwhile";
                self.risky(format!("env.{name}"), "changed", why);
            }
        }
        for (name, value) in &new.vars {
            if old.vars.get(name).is_some_and(|before| before != value) {
                let why = "what reads it changes; see where it is used";
                self.risky(format!("vars.{name}"), "changed", why);
            }
        }
    }

    /// Compares the labels.
    fn labels(&mut self, old: &Workflow, new: &Workflow) {
        for (name, template) in &new.labels {
            let at = format!("labels.{name}");
            match old.labels.get(name) {
                None => self.safe(at, "added", "new tasks have it; each costs a write unit more"),
                Some(before) if before != template => {
                    let why = "searches and dashboards meet other values in new tasks";
                    self.risky(at, "changed", why);
                }
                Some(_) => {}
            }
        }
        for name in old.labels.keys().filter(|name| !new.labels.contains_key(*name)) {
            let why = "searches for it do not find new tasks";
            self.risky(format!("labels.{name}"), "removed", why);
        }
    }

    fn retention(&mut self, old: Option<Duration>, new: Option<Duration>) {
        let Some((old, new)) = differing(&old, &new).map(|(old, new)| (*old, *new)) else { return };
        let text = |retention: Option<Duration>| {
            retention.map_or_else(|| "the deployment's default".to_owned(), duration_text)
        };
        let what = format!("{} became {}", text(old), text(new));
        if old.zip(new).is_some_and(|(old, new)| new > old) {
            self.safe("retention", format!("lengthened: {what}"), "only increases storage costs");
        } else {
            let why =
                "tasks and their documents may be deleted earlier; check who still reads them";
            self.risky("retention", what, why);
        }
    }

    fn output(&mut self, old: &Workflow, new: &Workflow) {
        let why = "clients and parent workflows read it";
        match (&old.output, &new.output) {
            (Some(_), None) => self.risky("output", "removed", why),
            (Some(old), Some(new)) if old != new => self.risky("output", "changed", why),
            (None, Some(_)) => self.safe("output", "added", "there are no readers yet"),
            (Some(_), Some(_)) | (None, None) => {}
        }
    }
}
