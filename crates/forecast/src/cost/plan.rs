//! The inputs of a forecast, resolved from its settings: the assumptions about each step of each workflow, the input of
//! the tasks, the definitions and the prices.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use steward_core::{
    definition::{step::StepDefinition, workflow::Workflow},
    model::names::{AgentName, StepName, WorkflowName},
};
use steward_test_world::MemoryDefinitions;

use super::{prices::Prices, sample::SampleValue, settings::ForecastSettings};

/// A step of a workflow.
pub(super) type StepKey = (WorkflowName, StepName);

/// The assumptions about a step.
#[derive(Debug, Clone)]
pub(super) struct StepAssumptions {
    pub(super) fail: f64,
    pub(super) flaky: f64,
    pub(super) silent: f64,
    pub(super) fail_undo: f64,
    pub(super) slow: Duration,
    pub(super) down: Duration,
    pub(super) answer: Duration,
    pub(super) output: SampleValue,
}

/// The inputs of a forecast. Its runs, of one simulated task each, share them. The runs use all of them except the
/// prices, which the report uses.
#[derive(Debug)]
pub(super) struct ForecastPlan {
    pub(super) settings: ForecastSettings,
    pub(super) prices: Prices,
    pub(super) input: SampleValue,
    pub(super) step_assumptions: BTreeMap<StepKey, StepAssumptions>,
    /// The published workflows, shared by all runs.
    pub(super) definitions: MemoryDefinitions,
}

impl ForecastPlan {
    /// The workflow of the forecast, then the workflows of child tasks that the caller gave.
    pub(super) fn workflows(&self) -> impl Iterator<Item = &Workflow> {
        std::iter::once(&self.settings.workflow).chain(&self.settings.with)
    }

    /// The agents that undo what others have done.
    pub(super) fn undo_agents(&self) -> BTreeSet<AgentName> {
        let undos = self.workflows().flat_map(|of| of.steps.values()).filter_map(|step| {
            let agent = step.undo.as_ref()?.agent.as_ref()?;
            Some(agent.names())
        });
        undos.flatten().cloned().collect()
    }

    /// The workflow with this name, if the caller gave it.
    pub(super) fn workflow(&self, name: &WorkflowName) -> Option<&Workflow> {
        self.workflows().find(|workflow| workflow.name == *name)
    }

    pub(super) fn all_steps(&self) -> impl Iterator<Item = (StepKey, &StepDefinition)> {
        self.workflows().flat_map(|workflow| {
            let steps = workflow.steps.iter();
            steps.map(|(name, step)| ((workflow.name.clone(), name.clone()), step))
        })
    }

    pub(super) fn step(&self, key: &StepKey) -> Option<&StepDefinition> {
        self.workflow(&key.0)?.steps.get(&key.1)
    }

    /// The name of a step in options and reports: `charge`, or `delivery.pack` for a step of a child
    /// workflow.
    pub(super) fn label(&self, (workflow, step): &StepKey) -> String {
        match *workflow == self.settings.workflow.name {
            true => step.to_string(),
            false => format!("{workflow}.{step}"),
        }
    }

    /// The label, in reports, of what a task of the workflow needs outside its steps.
    pub(super) fn task_label(&self, workflow: &WorkflowName) -> String {
        match *workflow == self.settings.workflow.name {
            true => "the task".to_owned(),
            false => format!("the task of {workflow}"),
        }
    }
}
