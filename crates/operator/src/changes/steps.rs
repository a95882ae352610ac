//! Compares the steps of two definitions.

use std::collections::{BTreeMap, BTreeSet};

use indexmap::IndexMap;
use steward_core::{
    definition::{
        repeat::Repeat,
        step::{ActionDefinition, ChildWorkflow, ForEach, StepDefinition, UndoDefinition},
        wait::Wait,
        workflow::Workflow,
    },
    limits,
    model::{
        attempt::Action,
        names::{AgentName, StepName},
    },
};

use super::change_list::{Changes, differing, duration_text};

/// Compares all steps, and their order.
pub(super) fn compare(found: &mut Changes, old: &Workflow, new: &Workflow) {
    let renamed = renamed(old, new);
    let agents = agents(old);
    for (name, step) in &old.steps {
        let at = format!("steps.{name}");
        if new.steps.contains_key(name) {
            continue;
        }
        if let Some(to) = renamed.get(name) {
            let why = "operators' commands, documents and idempotency keys contain the name";
            found.risky(at, format!("renamed to `{to}`"), why);
        } else {
            let why = if step.undo.is_some() {
                "new tasks neither run it nor undo it; check what depends on it"
            } else {
                "new tasks do not run it; check what depends on it"
            };
            found.risky(at, "removed", why);
        }
    }
    for (name, step) in &new.steps {
        let was_named = renamed.iter().find(|(_, to)| **to == name).map(|(from, _)| *from);
        let before = old.steps.get(name).or_else(|| old.steps.get(was_named?));
        for agent in step.agents().filter(|agent| !agents.contains(agent)) {
            let why = "deploy the agent and its queue before you publish";
            found.risky(format!("steps.{name}.agent"), format!("new agent `{agent}`"), why);
        }
        match before {
            None => {
                found.safe(format!("steps.{name}"), "added", "new tasks run an additional step")
            }
            Some(before) => {
                StepComparison { found, at: format!("steps.{name}") }.compare(before, step)
            }
        }
    }
    compare_order(found, old, new, &renamed);
}

/// The agents that a workflow uses.
fn agents(workflow: &Workflow) -> BTreeSet<&AgentName> {
    workflow.steps.values().flat_map(|step| step.agents()).collect()
}

/// The old names of renamed steps with their new names. A step was renamed if a new step is equal except for `after`.
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

/// Compares the order: whether each step still runs after all steps that it ran after.
fn compare_order(
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
            found.risky(at, what, "the steps may now run in a different order or in parallel");
        } else if after.first() != after.last() {
            found.safe(at, "changed", "the order of existing steps is unchanged");
        }
    }
}

/// A comparison of a step that is in both definitions.
struct StepComparison<'a> {
    found: &'a mut Changes,
    at: String,
}

impl StepComparison<'_> {
    fn safe(&mut self, key: &str, what: impl Into<String>, why: &str) {
        self.found.safe(format!("{}.{key}", self.at), what, why);
    }

    fn risky(&mut self, key: &str, what: impl Into<String>, why: &str) {
        self.found.risky(format!("{}.{key}", self.at), what, why);
    }

    fn compare(&mut self, old: &StepDefinition, new: &StepDefinition) {
        if old.description != new.description {
            self.safe("description", "changed", "has no effect on tasks");
        }
        self.when(old, new);
        self.for_each(old.for_each.as_ref(), new.for_each.as_ref());
        self.repeat(old.repeat.as_ref(), new.repeat.as_ref());
        self.work(old, new);
        self.callback(old, new);
        let times =
            |step: &StepDefinition, action| step.action(action).map(|of| of.complete_within);
        if let Some((old, new)) = times(old, Action::Do).zip(times(new, Action::Do)) {
            self.found.time_limit(format!("{}.complete_within", self.at), old, new);
        }
        for action in [Action::Do, Action::Undo] {
            if let Some((old, new)) = old.action(action).zip(new.action(action)) {
                self.calls(action, &old, &new);
            }
        }
        self.found.recovery(&self.at, &old.recovery, &new.recovery);
        match (old.idempotent, new.idempotent) {
            (true, false) => {
                let why = "unknown outcomes are no longer retried; they lead to `then`";
                self.risky("idempotent", "turned off", why);
            }
            (false, true) => {
                let why =
                    "unknown outcomes are now retried; the service must honour the idempotency key";
                self.risky("idempotent", "turned on", why);
            }
            (true, true) | (false, false) => {}
        }
        if old.read_only != new.read_only {
            self.safe("read_only", "changed", "only `steward workflow failures` reads it");
        }
        if old.no_undo_needed != new.no_undo_needed {
            self.safe("no_undo_needed", "changed", "only `steward workflow failures` reads it");
        }
        match (old.point_of_no_return, new.point_of_no_return) {
            (false, true) => {
                let why = "after it completes, the task can no longer be undone";
                self.risky("point_of_no_return", "added", why);
            }
            (true, false) => {
                let why = "a task may now be undone after it; check that it and the steps before it can be undone";
                self.risky("point_of_no_return", "removed", why);
            }
            (true, true) | (false, false) => {}
        }
        if old.output != new.output {
            let why = "the output has other content; check its readers";
            self.risky("output", "changed", why);
        }
        self.undo(old, new);
    }

    /// Compares the time limit of a call, and the meaning of the service's responses.
    fn calls(&mut self, action: Action, old: &ActionDefinition<'_>, new: &ActionDefinition<'_>) {
        let key = |key: &str| match action {
            Action::Do => key.to_owned(),
            Action::Undo => format!("undo.{key}"),
        };
        // The default follows `complete_within`, whose change is reported separately.
        let own = |of: &ActionDefinition<'_>| {
            let default = of.complete_within.min(limits::CALL_WITHIN_MAX);
            (of.call_within != default).then_some(of.call_within)
        };
        if own(old) != own(new) {
            let what = format!(
                "{} became {}",
                duration_text(old.call_within),
                duration_text(new.call_within)
            );
            let why = "the service must end every call within this time, even after the agent has timed out";
            self.risky(&key("call_within"), what, why);
        }
        if old.responses != new.responses {
            let why = "check that the service uses these statuses with this meaning";
            self.risky(&key("responses"), "changed", why);
        }
    }

    fn when(&mut self, old: &StepDefinition, new: &StepDefinition) {
        let why = "the step may now be skipped; check that readers of its output accept null";
        match (&old.when, &new.when) {
            (None, Some(_)) => self.risky("when", "added", why),
            (Some(old), Some(new)) if old != new => self.risky("when", "changed", why),
            (Some(_), None) => self.risky("when", "removed", "the step now always runs"),
            (Some(_), Some(_)) | (None, None) => {}
        }
    }

    fn for_each(&mut self, old: Option<&ForEach>, new: Option<&ForEach>) {
        match (old, new) {
            (None, Some(_)) => {
                let why = "its output becomes a list; check its readers";
                self.risky("for_each", "added", why);
            }
            (Some(_), None) => {
                let why = "its output is no longer a list; check its readers";
                self.risky("for_each", "removed", why);
            }
            (Some(old), Some(new)) => {
                if old.items != new.items {
                    self.risky("for_each.items", "changed", "the step runs for different items");
                }
                let what = format!("{} became {}", old.at_once, new.at_once);
                if new.at_once > old.at_once {
                    let why = "more concurrent calls; check the capacity of the service";
                    self.risky("for_each.at_once", what, why);
                } else if new.at_once < old.at_once {
                    self.safe("for_each.at_once", what, "fewer concurrent calls");
                }
            }
            (None, None) => {}
        }
    }

    fn repeat(&mut self, old: Option<&Repeat>, new: Option<&Repeat>) {
        match (old, new) {
            (None, Some(_)) => self.risky("repeat", "added", "the step runs several times"),
            (Some(_), None) => self.risky("repeat", "removed", "the step runs once"),
            (Some(old), Some(new)) if old != new => {
                let why = "the step runs for other rounds, or for more or fewer of them";
                self.risky("repeat", "changed", why);
            }
            (Some(_), Some(_)) | (None, None) => {}
        }
    }

    /// Compares what the step does: a call, a wait, or a child task.
    fn work(&mut self, old: &StepDefinition, new: &StepDefinition) {
        match (&old.agent, &new.agent) {
            (Some(old), Some(new)) if old != new => {
                let what = format!("`{old}` became `{new}`");
                self.risky("agent", what, "a different service gets the calls");
            }
            (Some(_), Some(_)) | (None, None) => {}
            (Some(_), None) => self.risky("agent", "removed", "the step does something different"),
            (None, Some(_)) => self.risky("agent", "added", "the step does something different"),
        }
        if let (Some(old), Some(new)) = (&old.request, &new.request) {
            let why = "the service gets both kinds of calls while tasks of both versions run";
            let parts = [
                ("request.method", old.method != new.method),
                ("request.path", old.path != new.path),
                ("request.aws", old.aws != new.aws),
                ("request.body", old.body != new.body),
                ("request.auth", old.auth != new.auth),
                ("request.idempotency_key", old.idempotency_key != new.idempotency_key),
            ];
            for (key, _) in parts.iter().filter(|(_, differs)| *differs) {
                self.risky(key, "changed", why);
            }
        }
        match (&old.wait, &new.wait) {
            (Some(Wait::Event(old)), Some(Wait::Event(new))) => {
                let why = "other events complete the step, and while tasks of both versions wait, one event may complete a step of each";
                if old.event != new.event {
                    self.risky("wait.event", "changed", why);
                }
            }
            (Some(Wait::Event(_)), Some(Wait::Until(_)))
            | (Some(Wait::Until(_)), Some(Wait::Event(_))) => {
                self.risky("wait", "changed", "the step does something different");
            }
            (Some(old), Some(new)) if old != new => {
                self.safe("wait", "changed", "only new tasks wait for the new time");
            }
            (Some(_), None) => self.risky("wait", "removed", "the step does something different"),
            (None, Some(_)) => self.risky("wait", "added", "the step does something different"),
            (Some(_), Some(_)) | (None, None) => {}
        }
        let why = "the step ends with other responses, or asks at other times";
        self.changed("until", &old.until, &new.until, why);
        self.changed("fail", &old.fail, &new.fail, "the step fails with another reason");
        self.child(old.workflow.as_ref(), new.workflow.as_ref());
    }

    /// Reports that a key was added, changed or removed.
    fn changed<T: PartialEq>(&mut self, key: &str, old: &Option<T>, new: &Option<T>, why: &str) {
        match (old, new) {
            (Some(old), Some(new)) if old != new => self.risky(key, "changed", why),
            (Some(_), None) => self.risky(key, "removed", "the step does something different"),
            (None, Some(_)) => self.risky(key, "added", "the step does something different"),
            (Some(_), Some(_)) | (None, None) => {}
        }
    }

    fn child(&mut self, old: Option<&ChildWorkflow>, new: Option<&ChildWorkflow>) {
        match (old, new) {
            (Some(old), Some(new)) => {
                if old.name != new.name {
                    let what = format!("`{}` became `{}`", old.name, new.name);
                    self.risky("workflow.name", what, "publish that workflow first");
                }
                if old.version != new.version {
                    let why = "check that it is published and that its output is compatible";
                    self.risky("workflow.version", "changed", why);
                }
                if old.input != new.input {
                    let why = "check that it matches the input schema of that workflow";
                    self.risky("workflow.input", "changed", why);
                }
            }
            (Some(_), None) => {
                self.risky("workflow", "removed", "the step does something different")
            }
            (None, Some(_)) => self.risky("workflow", "added", "the step does something different"),
            (None, None) => {}
        }
    }

    fn callback(&mut self, old: &StepDefinition, new: &StepDefinition) {
        match (&old.callback, &new.callback) {
            (None, Some(_)) => {
                let why = "the call no longer completes the step; a callback must";
                self.risky("callback", "added", why);
            }
            (Some(_), None) => {
                let why = "the call completes the step; later callbacks are ignored";
                self.risky("callback", "removed", why);
            }
            (Some(old), Some(new)) => {
                self.found.time_limit(
                    format!("{}.callback.within", self.at),
                    old.within,
                    new.within,
                );
                let Some((old, new)) = differing(&old.heartbeat, &new.heartbeat) else { return };
                match (old, new) {
                    (Some(old), Some(new)) => {
                        self.found.time_limit(
                            format!("{}.callback.heartbeat", self.at),
                            *old,
                            *new,
                        );
                    }
                    (None, Some(new)) => {
                        let what = format!("added: {}", duration_text(*new));
                        let why = "a longer silence counts as a failure";
                        self.risky("callback.heartbeat", what, why);
                    }
                    (Some(_), None) => {
                        self.safe(
                            "callback.heartbeat",
                            "removed",
                            "heartbeats are no longer required",
                        );
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
                let why = "its effect stays when a task is undone";
                self.risky("undo", "removed", why);
            }
            (None, Some(_)) if old.workflow.is_none() => {
                self.safe("undo", "added", "its effect is undone with the task");
            }
            (Some(_) | None, Some(_) | None) => {}
        }
        let agent = |step: &StepDefinition| step.undo.as_ref().and_then(|undo| undo.agent.clone());
        if old.undo.is_some() && new.undo.is_some() && agent(old) != agent(new) {
            let why = "another agent undoes the step";
            self.risky("undo.agent", "changed", why);
        }
        if let Some((old, new)) = old.action(Action::Undo).zip(new.action(Action::Undo)) {
            let at = format!("{}.undo", self.at);
            self.found.time_limit(
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
            let why = "check that it still undoes the step";
            self.risky("undo.request", "changed", why);
        }
    }
}
