//! The states of a task's steps, in the boxes of a graph and as a text description.

use steward_core::{definition::workflow::Workflow, model::names::StepName};

use super::drawing::{Drawing, NodeKind, StepStatus};
use crate::{state::PartState, view::TaskView};

/// Sets the status of each step's box, which replaces the lines about what the step does.
pub(super) fn add(drawing: &mut Drawing, task: &TaskView) {
    drawing.title = format!("{}, {}", task.task_id, drawing.title);
    for node in drawing.nodes.iter_mut().filter(|node| node.kind != NodeKind::Condition) {
        node.status = Some(step_status(&node.step, task));
    }
}

/// The picture as text, for screen readers.
pub(super) fn description(workflow: &Workflow, task: Option<&TaskView>) -> String {
    let steps = workflow.steps.iter().map(|(name, step)| {
        let after: Vec<_> = step.after.iter().map(StepName::as_str).collect();
        let after = match after.as_slice() {
            [] => String::new(),
            after => format!(" after {}", after.join(", ")),
        };
        let status = task.map(|task| format!(": {}", step_status(name, task).text));
        format!("{name}{after}{}.", status.unwrap_or_default())
    });
    steps.collect::<Vec<_>>().join(" ")
}

fn step_status(name: &StepName, task: &TaskView) -> StepStatus {
    let Some(step) = task.steps.get(&name.clone().into()) else {
        let state = PartState::NotStarted;
        return StepStatus { state, text: state.to_string() };
    };
    let mut text = step.state.to_string();
    if let Some(items) = step.items {
        text.push_str(&format!(", {} of {items} done", step.items_done()));
    }
    if step.attempt > 1 {
        text.push_str(&format!(", attempt {}", step.attempt));
    }
    StepStatus { state: step.state, text }
}
