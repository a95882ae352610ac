//! A definition that can run, compiled once when it is loaded.
//!
//! [`Plan::new`] checks what the engine relies on: each step does exactly one thing, and `after` names steps that
//! exist, without a cycle. So the engine never meets a step without work, and never guesses what an unknown step
//! would do. What else can be wrong with a definition is found by [`Workflow::problems`] before it is published.

use std::{collections::BTreeSet, ops::Deref, time::Duration};

use indexmap::IndexMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{
    definition::{
        problem::Problem,
        step::{ActionDefinition, Callback, ChildWorkflow, RequestTemplate, StepDefinition, Work},
        workflow::Workflow,
    },
    expression::template::Template,
    model::{
        attempt::Action,
        names::{AgentName, StepName},
        task::Task,
    },
};

/// A definition that can run. It reads as its [`Workflow`].
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    definition: Workflow,
    steps: IndexMap<StepName, Step>,
    shortest_within: Duration,
}

impl Plan {
    /// Compiles a definition.
    ///
    /// # Errors
    /// The first step that does not do exactly one thing, or comes after one that does not exist or after itself.
    pub fn new(definition: Workflow) -> Result<Self, Problem> {
        let ancestors = definition.ancestors();
        let mut steps = IndexMap::new();
        for (name, step) in &definition.steps {
            let before = ancestors.get(name).into_iter().flatten();
            let ancestors: BTreeSet<_> = before.map(|before| (*before).clone()).collect();
            steps.insert(name.clone(), Step::new(&definition, name, step, ancestors)?);
        }
        let shortest_within = definition.shortest_within();
        Ok(Self { definition, steps, shortest_within })
    }

    /// The step of this name.
    ///
    /// # Panics
    /// There is none: the engine refuses a task that has a record of such a step, so this is a bug.
    #[must_use]
    #[expect(clippy::expect_used, reason = "an invariant that `transition` checks at its entry")]
    pub fn step(&self, name: &StepName) -> &Step {
        self.steps.get(name).expect("a task has records of its definition's steps only")
    }

    /// The step of this name, if there is one: for names that come from outside.
    #[must_use]
    pub fn find(&self, name: &StepName) -> Option<&Step> {
        self.steps.get(name)
    }

    /// All steps, in the order of the definition.
    pub fn steps(&self) -> impl Iterator<Item = (&StepName, &Step)> {
        self.steps.iter()
    }

    /// The step of which `task` has a record although the definition does not have it; none unless the task is corrupt.
    #[must_use]
    pub fn unknown_step<'t>(&self, task: &'t Task) -> Option<&'t StepName> {
        task.steps.keys().find(|name| !self.steps.contains_key(*name))
    }

    /// The shortest time that any attempt may take: until then a new task cannot be past due.
    #[must_use]
    pub fn shortest_within(&self) -> Duration {
        self.shortest_within
    }
}

impl Serialize for Plan {
    /// Writes the definition.
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        Serialize::serialize(&self.definition, to)
    }
}

impl<'de> Deserialize<'de> for Plan {
    /// Reads a definition, and compiles it.
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::new(Workflow::deserialize(from)?).map_err(serde::de::Error::custom)
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
pub struct Step {
    /// What the definition says of it.
    pub definition: StepDefinition,
    /// Every step that comes before it, directly or not.
    pub ancestors: BTreeSet<StepName>,
    work: StepWork,
}

/// What is done at a step, and to undo it.
#[derive(Debug, Clone, PartialEq)]
enum StepWork {
    Call { agent: AgentName, request: RequestTemplate, undo: Option<RequestTemplate> },
    Child(ChildWorkflow),
    Wait(Template),
}

impl Step {
    fn new(
        workflow: &Workflow,
        name: &StepName,
        definition: &StepDefinition,
        ancestors: BTreeSet<StepName>,
    ) -> Result<Self, Problem> {
        let problem = |key: &str, message: String| Problem {
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
            Some(Work::Call { agent, request, .. }) => StepWork::Call {
                agent: agent.clone(),
                request: request.clone(),
                undo: definition.undo.as_ref().and_then(|undo| undo.request.clone()),
            },
            Some(Work::Child(child)) => StepWork::Child(child.clone()),
            Some(Work::Wait(wait)) => StepWork::Wait(wait.clone()),
            None => {
                let message =
                    "a step has exactly one of `agent` with `request`, `wait` and `workflow`";
                return Err(problem("", message.to_owned()));
            }
        };
        Ok(Self { definition: definition.clone(), ancestors, work })
    }

    /// What is done.
    #[must_use]
    pub fn work(&self) -> Work<'_> {
        match &self.work {
            StepWork::Call { agent, request, .. } => {
                Work::Call { agent, request, callback: self.definition.callback.as_ref() }
            }
            StepWork::Child(child) => Work::Child(child),
            StepWork::Wait(wait) => Work::Wait(wait),
        }
    }

    /// How the step is done.
    #[must_use]
    pub fn run(&self) -> ActionDefinition<'_> {
        self.definition.run_by(self.work())
    }

    /// How the step is undone; nothing if it has no undo.
    #[must_use]
    pub fn undo(&self) -> Option<ActionDefinition<'_>> {
        let work = match &self.work {
            StepWork::Call { agent, undo, .. } => {
                Work::Call { agent, request: undo.as_ref()?, callback: None }
            }
            StepWork::Child(child) => Work::Child(child),
            StepWork::Wait(_) => return None,
        };
        Some(self.definition.undo_by(work))
    }

    /// How the step is done or undone; nothing if it is to be undone and has no undo.
    #[must_use]
    pub fn action(&self, action: Action) -> Option<ActionDefinition<'_>> {
        match action {
            Action::Do => Some(self.run()),
            Action::Undo => self.undo(),
        }
    }

    /// Whether the step only waits.
    #[must_use]
    pub fn waits(&self) -> bool {
        matches!(self.work, StepWork::Wait(_))
    }

    /// Whether the step runs a task of its own.
    #[must_use]
    pub fn runs_child(&self) -> bool {
        matches!(self.work, StepWork::Child(_))
    }

    /// How the step is completed if its call only begins it.
    #[must_use]
    pub fn callback(&self) -> Option<&Callback> {
        self.definition.callback.as_ref()
    }

    /// Whether a call in this direction may be repeated. An undo always may.
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
    fn a_definition_that_cannot_run_is_refused() {
        let call =
            |after: &str| json!({ "agent": "a", "after": [after], "request": { "path": "/" } });
        for (steps, problem) in [
            (json!({ "a": {} }), "steps.a: a step has exactly one of"),
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
    fn a_step_knows_everything_that_comes_before_it() {
        let call =
            |after: &[&str]| json!({ "agent": "a", "after": after, "request": { "path": "/" } });
        let plan =
            compiled(json!({ "c": call(&["b"]), "b": call(&["a"]), "a": call(&[]) })).unwrap();
        let before = |name: &str| -> Vec<_> {
            plan.step(&name.parse().unwrap()).ancestors.iter().map(ToString::to_string).collect()
        };
        assert_eq!((before("a"), before("c")), (vec![], vec!["a".to_owned(), "b".to_owned()]));
    }
}
