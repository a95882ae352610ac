//! How the steps of one task stand: in their boxes, and in words.

use crate::view::{StepView, TaskView};
use steward_core::{definition::workflow::Workflow, model::names::StepName};

use super::drawing::{Drawing, Kind, Standing};

/// The state of a step that has no record.
const NOT_STARTED: &str = "not started";

/// Says in the box of each step how it stands, in place of what it does.
pub(super) fn add(drawing: &mut Drawing, task: &TaskView) {
    drawing.title = format!("{}, {}", task.task_id, drawing.title);
    for node in drawing.nodes.iter_mut().filter(|node| node.kind != Kind::Condition) {
        node.standing = Some(standing(&node.step, task));
    }
}

/// What the picture shows, for whoever does not see it.
pub(super) fn in_words(workflow: &Workflow, task: Option<&TaskView>) -> String {
    let steps = workflow.steps.iter().map(|(name, step)| {
        let after: Vec<_> = step.after.iter().map(StepName::as_str).collect();
        let after = match after.as_slice() {
            [] => String::new(),
            after => format!(" after {}", after.join(", ")),
        };
        let stands = task.map(|task| format!(": {}", standing(name, task).said));
        format!("{name}{after}{}.", stands.unwrap_or_default())
    });
    steps.collect::<Vec<_>>().join(" ")
}

fn standing(name: &StepName, task: &TaskView) -> Standing {
    let Some(step) = task.steps.get(&name.clone().into()) else {
        return Standing { state: NOT_STARTED.to_owned(), said: NOT_STARTED.to_owned() };
    };
    let mut said = step.state.clone();
    if let Some(items) = step.items {
        said.push_str(&format!(", {} of {items} done", done(name, task)));
    }
    if step.attempt > 1 {
        said.push_str(&format!(", attempt {}", step.attempt));
    }
    Standing { state: step.state.clone(), said }
}

/// How many items of a step are past it.
fn done(name: &StepName, task: &TaskView) -> usize {
    let items = task.steps.iter().filter(|(part, _)| part.item.is_some() && part.step == *name);
    let is_done = |step: &StepView| matches!(step.state.as_str(), "completed" | "skipped");
    items.filter(|(_, step)| is_done(step)).count()
}
