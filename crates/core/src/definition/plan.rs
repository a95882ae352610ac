//! A compiled definition. It is compiled once, when it is loaded.
//!
//! [`Plan::new`] checks the properties on which the engine relies: each step is of exactly one kind, and `after`
//! names existing steps, without a cycle. So the engine never has to handle a step without work or an unknown step.
//! [`Workflow::problems`] finds all other problems of a definition before it is published.

use std::{collections::BTreeSet, ops::Deref};

use indexmap::IndexMap;
use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{
    definition::{
        problem::DefinitionProblem,
        step::{
            ActionDefinition, CallbackDefinition, ChildWorkflow, RequestTemplate, StepDefinition,
            StepWork,
        },
        step_agents::StepAgents,
        wait::EventWait,
        workflow::Workflow,
    },
    expression::template::Template,
    model::{
        attempt::Action, lifecycle::whole_milliseconds, names::StepName, step::Progress, task::Task,
    },
};

/// A compiled definition. It dereferences to its [`Workflow`].
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    definition: Workflow,
    steps: IndexMap<StepName, CompiledStep>,
    steps_at_once: usize,
}

impl Plan {
    /// Compiles a definition.
    ///
    /// # Errors
    /// The first step that is not of exactly one kind, that has an unknown predecessor, or that is its own
    /// predecessor.
    pub fn new(definition: Workflow) -> Result<Self, DefinitionProblem> {
        let ancestors = definition.ancestors();
        let mut steps = IndexMap::new();
        for (name, step) in &definition.steps {
            let before = ancestors.get(name).into_iter().flatten();
            let ancestors: BTreeSet<_> = before.map(|before| (*before).clone()).collect();
            steps.insert(name.clone(), CompiledStep::new(&definition, name, step, ancestors)?);
        }
        let steps_at_once = steps_at_once(&steps);
        Ok(Self { definition, steps, steps_at_once })
    }

    /// An upper bound of the number of steps that run at the same time.
    #[must_use]
    pub fn steps_at_once(&self) -> usize {
        self.steps_at_once
    }

    /// Returns the step with this name.
    ///
    /// # Panics
    /// If there is no such step. This is a bug, because the engine refuses a task with a record of an unknown step.
    #[must_use]
    #[expect(clippy::expect_used, reason = "an invariant that `transition` checks at its entry")]
    pub fn step(&self, name: &StepName) -> &CompiledStep {
        self.steps.get(name).expect("a task has records of its definition's steps only")
    }

    /// Returns the step with this name, if there is one. For names that come from messages.
    #[must_use]
    pub fn find(&self, name: &StepName) -> Option<&CompiledStep> {
        self.steps.get(name)
    }

    /// All steps, in the order of the definition.
    pub fn steps(&self) -> impl Iterator<Item = (&StepName, &CompiledStep)> {
        self.steps.iter()
    }

    /// Returns a step that `task` has a record of and that the definition does not have. There is one only if the
    /// task is corrupt.
    #[must_use]
    pub fn unknown_step<'t>(&self, task: &'t Task) -> Option<&'t StepName> {
        task.steps.keys().find(|name| !self.steps.contains_key(*name))
    }
}

/// The largest number of steps that are neither before nor after one step, and that step. Two such steps may be ordered
/// among each other, so this is an upper bound.
fn steps_at_once(steps: &IndexMap<StepName, CompiledStep>) -> usize {
    let beside = |(name, step): (&StepName, &CompiledStep)| {
        let is_ordered = |(other, of_other): &(&StepName, &CompiledStep)| {
            step.ancestors.contains(*other) || of_other.ancestors.contains(name)
        };
        steps.len() - steps.iter().filter(is_ordered).count()
    };
    steps.iter().map(beside).max().unwrap_or(0)
}

impl Serialize for Plan {
    /// Writes the definition.
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        Serialize::serialize(&self.definition, to)
    }
}

impl<'de> Deserialize<'de> for Plan {
    /// Reads a definition, applies its defaults and compiles it.
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        // `Workflow::deserialize` is the derived function, which applies no defaults.
        let definition = <Workflow as Deserialize>::deserialize(from)?;
        Self::new(definition).map_err(serde::de::Error::custom)
    }
}

impl Deref for Plan {
    type Target = Workflow;

    fn deref(&self) -> &Workflow {
        &self.definition
    }
}

/// A step of a [`Plan`].
#[derive(Debug, Clone, PartialEq)]
pub struct CompiledStep {
    /// The definition of the step.
    pub definition: StepDefinition,
    /// All its direct and indirect predecessors.
    pub ancestors: BTreeSet<StepName>,
    /// Whether its templates read `step.started_at`.
    reads_start: bool,
    work: CompiledWork,
}

/// The work of a step and of its undo, with owned data.
#[derive(Debug, Clone, PartialEq)]
#[expect(
    clippy::large_enum_variant,
    reason = "one for each step of a definition; nearly all of them are calls"
)]
enum CompiledWork {
    Call {
        agents: StepAgents,
        request: RequestTemplate,
        undo: Option<(StepAgents, RequestTemplate)>,
    },
    Child(ChildWorkflow),
    Wait(Template),
    Event(EventWait),
}

impl CompiledStep {
    fn new(
        workflow: &Workflow,
        name: &StepName,
        definition: &StepDefinition,
        ancestors: BTreeSet<StepName>,
    ) -> Result<Self, DefinitionProblem> {
        let problem = |key: &str, message: String| DefinitionProblem {
            at: format!("steps.{name}{key}"),
            message,
            hint: None,
        };
        if let Some(unknown) =
            definition.after.iter().find(|before| !workflow.steps.contains_key(*before))
        {
            return Err(problem(".after", format!("there is no step `{unknown}`")));
        }
        if ancestors.contains(name) {
            return Err(problem(".after", "the step comes after itself".to_owned()));
        }
        let work = match definition.work() {
            Some(StepWork::Call { agents, request, .. }) => CompiledWork::Call {
                agents: agents.clone(),
                request: request.clone(),
                undo: definition
                    .undo
                    .as_ref()
                    .and_then(|undo| Some((undo.agents(agents).clone(), undo.request.clone()?))),
            },
            Some(StepWork::Child(child)) => CompiledWork::Child(child.clone()),
            Some(StepWork::Wait(wait)) => CompiledWork::Wait(wait.clone()),
            Some(StepWork::Event(wait)) => CompiledWork::Event(wait.clone()),
            None => {
                let message = "a step needs exactly one of `agent` with `request`, `wait`, `workflow` and `fail`";
                return Err(problem("", message.to_owned()));
            }
        };
        let reads_start = definition.reads_start();
        Ok(Self { definition: definition.clone(), ancestors, reads_start, work })
    }

    /// The work of the step.
    #[must_use]
    pub fn work(&self) -> StepWork<'_> {
        match &self.work {
            CompiledWork::Call { agents, request, .. } => {
                let StepDefinition { output, callback, .. } = &self.definition;
                StepWork::Call {
                    agents,
                    request,
                    output: output.as_ref(),
                    callback: callback.as_ref(),
                }
            }
            CompiledWork::Child(child) => StepWork::Child(child),
            CompiledWork::Wait(wait) => StepWork::Wait(wait),
            CompiledWork::Event(wait) => StepWork::Event(wait),
        }
    }

    /// Records the start of the step, if its templates read it and it has not started before.
    pub(crate) fn record_start(&self, progress: &mut Progress, now: Timestamp) {
        if self.reads_start && progress.started_at().is_none() {
            progress.set_started_at(whole_milliseconds(now));
        }
    }

    /// How the step is done.
    #[must_use]
    pub fn run(&self) -> ActionDefinition<'_> {
        self.definition.do_settings(self.work())
    }

    /// How the step is undone, or `None` if it has no undo.
    #[must_use]
    pub fn undo(&self) -> Option<ActionDefinition<'_>> {
        let work = match &self.work {
            CompiledWork::Call { undo, .. } => {
                let (agents, request) = undo.as_ref()?;
                StepWork::Call { agents, request, output: None, callback: None }
            }
            CompiledWork::Child(child) => StepWork::Child(child),
            CompiledWork::Wait(_) | CompiledWork::Event(_) => return None,
        };
        Some(self.definition.undo_settings(work))
    }

    /// How the step is done or undone, or `None` for the undo of a step without one.
    #[must_use]
    pub fn action(&self, action: Action) -> Option<ActionDefinition<'_>> {
        match action {
            Action::Do => Some(self.run()),
            Action::Undo => self.undo(),
        }
    }

    /// Whether the step waits until a time.
    #[must_use]
    pub fn waits(&self) -> bool {
        matches!(self.work, CompiledWork::Wait(_))
    }

    /// Whether the step waits for an event.
    #[must_use]
    pub fn awaits_event(&self) -> bool {
        matches!(self.work, CompiledWork::Event(_))
    }

    /// Whether the step runs a child task.
    #[must_use]
    pub fn runs_child(&self) -> bool {
        matches!(self.work, CompiledWork::Child(_))
    }

    /// The callback that completes the step, if it has one.
    #[must_use]
    pub fn callback(&self) -> Option<&CallbackDefinition> {
        self.definition.callback.as_ref()
    }

    /// The agents that may execute the step, if it is of that kind.
    #[must_use]
    pub fn agents(&self) -> Option<&StepAgents> {
        match &self.work {
            CompiledWork::Call { agents, .. } => Some(agents),
            CompiledWork::Child(_) | CompiledWork::Wait(_) | CompiledWork::Event(_) => None,
        }
    }

    /// Whether a call of this action may be repeated. An undo may always be repeated.
    #[must_use]
    pub fn is_repeatable(&self, action: Action) -> bool {
        action == Action::Undo || self.definition.idempotent
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn compiled(steps: serde_json::Value) -> Result<Plan, String> {
        let workflow = json!({ "name": "w", "version": 1, "steps": steps });
        Plan::new(serde_json::from_value(workflow).unwrap()).map_err(|problem| problem.to_string())
    }

    #[test]
    fn a_definition_that_cannot_run_does_not_compile() {
        let call =
            |after: &str| json!({ "agent": "a", "after": [after], "request": { "path": "/" } });
        for (steps, problem) in [
            (json!({ "a": {} }), "steps.a: a step needs exactly one of"),
            (json!({ "a": call("b") }), "steps.a.after: there is no step `b`"),
            (
                json!({ "a": call("b"), "b": call("a") }),
                "steps.a.after: the step comes after itself",
            ),
        ] {
            let found = compiled(steps).unwrap_err();
            assert!(found.starts_with(problem), "{found}");
        }
    }

    #[test]
    fn a_compiled_step_has_all_its_predecessors() {
        let call =
            |after: &[&str]| json!({ "agent": "a", "after": after, "request": { "path": "/" } });
        let plan =
            compiled(json!({ "c": call(&["b"]), "b": call(&["a"]), "a": call(&[]) })).unwrap();
        let before = |name: &str| -> Vec<_> {
            plan.step(&name.parse().unwrap()).ancestors.iter().map(ToString::to_string).collect()
        };
        assert_eq!((before("a"), before("c")), (vec![], vec!["a".to_owned(), "b".to_owned()]));
    }
    #[test]
    fn a_plan_that_is_read_has_the_defaults_of_its_definition() {
        let definition = json!({
            "name": "w", "version": 1,
            "defaults": { "complete_within": "7s", "recovery": { "attempts": 1 } },
            "steps": { "a": { "agent": "a", "request": { "path": "/" } } },
        });
        let read: Plan = serde_json::from_value(definition).unwrap();
        let read_again: Plan =
            serde_json::from_value(serde_json::to_value(&read).unwrap()).unwrap();
        for plan in [read, read_again] {
            let action = plan.step(&"a".parse().unwrap()).action(Action::Do).unwrap();
            assert_eq!(action.complete_within.as_secs(), 7);
            assert_eq!(serde_json::to_value(action.recovery).unwrap()["attempts"], 1);
        }
    }
}
