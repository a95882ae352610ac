//! What changed step by step.

use std::collections::{BTreeMap, BTreeSet};

use indexmap::IndexMap;
use steward_core::{
    definition::{
        step::{ActionDefinition, ChildWorkflow, ForEach, StepDefinition, UndoDefinition},
        workflow::Workflow,
    },
    limits,
    model::{attempt::Action, names::StepName},
};

use super::{Changes, agents, differing, human};

/// Finds what changed in the steps.
pub(super) fn compare(found: &mut Changes, old: &Workflow, new: &Workflow) {
    let renamed = renamed(old, new);
    let agents = agents(old);
    for (name, step) in &old.steps {
        let at = format!("steps.{name}");
        if new.steps.contains_key(name) {
            continue;
        }
        if let Some(to) = renamed.get(name) {
            let why = "operators' commands, documents and idempotency keys go by the name";
            found.look(at, format!("renamed to `{to}`"), why);
        } else {
            let why = if step.undo.is_some() {
                "new tasks do it no more, nor undo it: does anything rely on it?"
            } else {
                "new tasks do it no more: does anything rely on it?"
            };
            found.look(at, "removed", why);
        }
    }
    for (name, step) in &new.steps {
        let was_named = renamed.iter().find(|(_, to)| **to == name).map(|(from, _)| *from);
        let before = old.steps.get(name).or_else(|| old.steps.get(was_named?));
        if let Some(agent) = step.agent.as_ref().filter(|agent| !agents.contains(agent)) {
            let why = "it needs a queue and a deployment before this is published";
            found.look(format!("steps.{name}.agent"), format!("new agent `{agent}`"), why);
        }
        match before {
            None => found.safe(format!("steps.{name}"), "added", "new tasks do one thing more"),
            Some(before) => Step { found, at: format!("steps.{name}") }.compare(before, step),
        }
    }
    order(found, old, new, &renamed);
}

/// Steps that are gone, by the new ones that do the same.
fn renamed<'a>(old: &'a Workflow, new: &'a Workflow) -> BTreeMap<&'a StepName, &'a StepName> {
    let only = |of: &'a IndexMap<StepName, StepDefinition>, not: &Workflow| {
        let others = of.iter().filter(|(name, _)| !not.steps.contains_key(*name));
        others.collect::<Vec<_>>()
    };
    let (gone, mut come) = (only(&old.steps, new), only(&new.steps, old));
    let mut renamed = BTreeMap::new();
    for (from, step) in gone {
        let alone = |step: &StepDefinition| StepDefinition { after: Vec::new(), ..step.clone() };
        let same = come.iter().position(|(_, other)| alone(other) == alone(step));
        if let Some(same) = same {
            renamed.insert(from, come.swap_remove(same).0);
        }
    }
    renamed
}

/// Whether each step still comes after all that it came after.
fn order(
    found: &mut Changes,
    old: &Workflow,
    new: &Workflow,
    renamed: &BTreeMap<&StepName, &StepName>,
) {
    let (before_old, before_new) = (old.ancestors(), new.ancestors());
    for (name, ancestors) in before_old {
        let now = |name| renamed.get(name).copied().unwrap_or(name);
        let Some(still) = before_new.get(now(name)) else { continue };
        let lost: Vec<_> = ancestors
            .into_iter()
            .map(now)
            .filter(|other| new.steps.contains_key(*other) && !still.contains(other))
            .map(|other| format!("`{other}`"))
            .collect();
        let after = [old.steps.get(name), new.steps.get(now(name))].map(|step| {
            let after = step.iter().flat_map(|step| &step.after);
            after.map(|other| renamed.get(other).copied().unwrap_or(other)).collect::<BTreeSet<_>>()
        });
        let at = format!("steps.{}.after", now(name));
        if !lost.is_empty() {
            let what = format!("no longer after {}", lost.join(", "));
            found.look(at, what, "it may run before it, or beside it");
        } else if after.first() != after.last() {
            found.safe(at, "changed", "it still comes after all that it came after");
        }
    }
}

/// One step that is in both.
struct Step<'a> {
    found: &'a mut Changes,
    at: String,
}

impl Step<'_> {
    fn safe(&mut self, key: &str, what: impl Into<String>, why: &str) {
        self.found.safe(format!("{}.{key}", self.at), what, why);
    }

    fn look(&mut self, key: &str, what: impl Into<String>, why: &str) {
        self.found.look(format!("{}.{key}", self.at), what, why);
    }

    fn compare(&mut self, old: &StepDefinition, new: &StepDefinition) {
        if old.description != new.description {
            self.safe("description", "changed", "it is for people");
        }
        self.when(old, new);
        self.for_each(old.for_each.as_ref(), new.for_each.as_ref());
        self.work(old, new);
        self.callback(old, new);
        let times =
            |step: &StepDefinition, action| step.action(action).map(|of| of.complete_within);
        if let Some((old, new)) = times(old, Action::Do).zip(times(new, Action::Do)) {
            self.found.within(format!("{}.complete_within", self.at), old, new);
        }
        for action in [Action::Do, Action::Undo] {
            if let Some((old, new)) = old.action(action).zip(new.action(action)) {
                self.calls(action, &old, &new);
            }
        }
        self.found.recovery(&self.at, &old.recovery, &new.recovery);
        match (old.idempotent, new.idempotent) {
            (true, false) => {
                let why = "attempts are no longer repeated: an unknown outcome goes to `then`";
                self.look("idempotent", "turned off", why);
            }
            (false, true) => {
                let why =
                    "attempts are repeated now: the service must recognise the idempotency key";
                self.look("idempotent", "turned on", why);
            }
            (true, true) | (false, false) => {}
        }
        match (old.point_of_no_return, new.point_of_no_return) {
            (false, true) => {
                let why = "once it has completed, nothing is undone any more";
                self.look("point_of_no_return", "moved here", why);
            }
            (true, false) => {
                let why = "a task may be undone after it: can what comes before it, and it, be?";
                self.look("point_of_no_return", "taken from here", why);
            }
            (true, true) | (false, false) => {}
        }
        self.undo(old, new);
    }

    /// How long one call may take, and what the service's responses mean.
    fn calls(&mut self, action: Action, old: &ActionDefinition<'_>, new: &ActionDefinition<'_>) {
        let key = |key: &str| match action {
            Action::Do => key.to_owned(),
            Action::Undo => format!("undo.{key}"),
        };
        // By default it goes with `complete_within`.
        let own = |of: &ActionDefinition<'_>| {
            let default = of.complete_within.min(limits::CALL_WITHIN_MAX);
            (of.call_within != default).then_some(of.call_within)
        };
        if own(old) != own(new) {
            let what = format!("{} became {}", human(old.call_within), human(new.call_within));
            let why = "no call may take longer at the service, also after its agent gave it up";
            self.look(&key("call_within"), what, why);
        }
        if old.responses != new.responses {
            let why = "does the service mean that by these statuses?";
            self.look(&key("responses"), "changed", why);
        }
    }

    fn when(&mut self, old: &StepDefinition, new: &StepDefinition) {
        let why = "it may be skipped where it was done: can those that read its output bear null?";
        match (&old.when, &new.when) {
            (None, Some(_)) => self.look("when", "added", why),
            (Some(old), Some(new)) if old != new => self.look("when", "changed", why),
            (Some(_), None) => self.look("when", "removed", "it is done where it was skipped"),
            (Some(_), Some(_)) | (None, None) => {}
        }
    }

    fn for_each(&mut self, old: Option<&ForEach>, new: Option<&ForEach>) {
        match (old, new) {
            (None, Some(_)) => {
                let why = "its output is a list now, for all that read it";
                self.look("for_each", "added", why);
            }
            (Some(_), None) => {
                let why = "its output is no longer a list, for all that read it";
                self.look("for_each", "removed", why);
            }
            (Some(old), Some(new)) => {
                if old.items != new.items {
                    self.look("for_each.items", "changed", "it is done for other items");
                }
                let what = format!("{} became {}", old.at_once, new.at_once);
                if new.at_once > old.at_once {
                    let why = "more calls at once: can the service bear them?";
                    self.look("for_each.at_once", what, why);
                } else if new.at_once < old.at_once {
                    self.safe("for_each.at_once", what, "fewer calls at once");
                }
            }
            (None, None) => {}
        }
    }

    /// What is done: by an agent, by a wait, by a workflow.
    fn work(&mut self, old: &StepDefinition, new: &StepDefinition) {
        match (&old.agent, &new.agent) {
            (Some(old), Some(new)) if old != new => {
                let what = format!("`{old}` became `{new}`");
                self.look("agent", what, "another service gets its calls");
            }
            (Some(_), Some(_)) | (None, None) => {}
            (Some(_), None) => self.look("agent", "removed", "it does something else now"),
            (None, Some(_)) => self.look("agent", "added", "it does something else now"),
        }
        if let (Some(old), Some(new)) = (&old.request, &new.request) {
            let why = "the service gets both calls while tasks of both versions run";
            let parts = [
                ("request.method", old.method != new.method),
                ("request.path", old.path != new.path),
                ("request.body", old.body != new.body),
            ];
            for (key, _) in parts.iter().filter(|(_, differs)| *differs) {
                self.look(key, "changed", why);
            }
        }
        match (&old.wait, &new.wait) {
            (Some(old), Some(new)) if old != new => {
                self.safe("wait", "changed", "new tasks wait as it says now");
            }
            (Some(_), None) => self.look("wait", "removed", "it does something else now"),
            (None, Some(_)) => self.look("wait", "added", "it does something else now"),
            (Some(_), Some(_)) | (None, None) => {}
        }
        self.child(old.workflow.as_ref(), new.workflow.as_ref());
    }

    fn child(&mut self, old: Option<&ChildWorkflow>, new: Option<&ChildWorkflow>) {
        match (old, new) {
            (Some(old), Some(new)) => {
                if old.name != new.name {
                    let what = format!("`{}` became `{}`", old.name, new.name);
                    self.look("workflow.name", what, "it must be published before this is");
                }
                if old.version != new.version {
                    let why = "is it published, and does it return what is read of it?";
                    self.look("workflow.version", "changed", why);
                }
                if old.input != new.input {
                    let why = "does it fit the schema of that workflow?";
                    self.look("workflow.input", "changed", why);
                }
            }
            (Some(_), None) => self.look("workflow", "removed", "it does something else now"),
            (None, Some(_)) => self.look("workflow", "added", "it does something else now"),
            (None, None) => {}
        }
    }

    fn callback(&mut self, old: &StepDefinition, new: &StepDefinition) {
        match (&old.callback, &new.callback) {
            (None, Some(_)) => {
                let why = "its call no longer completes it: somebody must answer with the token";
                self.look("callback", "added", why);
            }
            (Some(_), None) => {
                let why = "its call completes it: later answers are ignored";
                self.look("callback", "removed", why);
            }
            (Some(old), Some(new)) => {
                self.found.within(format!("{}.callback.within", self.at), old.within, new.within);
                let Some((old, new)) = differing(&old.heartbeat, &new.heartbeat) else { return };
                match (old, new) {
                    (Some(old), Some(new)) => {
                        self.found.within(format!("{}.callback.heartbeat", self.at), *old, *new);
                    }
                    (None, Some(new)) => {
                        let what = format!("added: {}", human(*new));
                        let why = "whoever is silent longer counts as gone";
                        self.look("callback.heartbeat", what, why);
                    }
                    (Some(_), None) => {
                        self.safe("callback.heartbeat", "removed", "nobody has to send them");
                    }
                    (None, None) => {}
                }
            }
            (None, None) => {}
        }
    }

    fn undo(&mut self, old: &StepDefinition, new: &StepDefinition) {
        match (&old.undo, &new.undo) {
            (Some(_), None) if new.workflow.is_none() => {
                let why = "what it did stays done when a task is undone";
                self.look("undo", "removed", why);
            }
            (None, Some(_)) if old.workflow.is_none() => {
                self.safe("undo", "added", "what it did is undone with the task");
            }
            (Some(_) | None, Some(_) | None) => {}
        }
        if let Some((old, new)) = old.action(Action::Undo).zip(new.action(Action::Undo)) {
            let at = format!("{}.undo", self.at);
            self.found.within(
                format!("{at}.complete_within"),
                old.complete_within,
                new.complete_within,
            );
            self.found.recovery(&at, old.recovery, new.recovery);
        }
        let request =
            |undo: &Option<UndoDefinition>| undo.as_ref().and_then(|undo| undo.request.clone());
        if let (Some(old), Some(new)) = (request(&old.undo), request(&new.undo))
            && old != new
        {
            let why = "does it still undo what the step does?";
            self.look("undo.request", "changed", why);
        }
    }
}
