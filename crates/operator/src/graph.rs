//! A workflow as a picture, optionally with the states of a task's steps.

use crate::view::TaskView;
use steward_core::definition::workflow::Workflow;

use drawing::Drawing;

mod drawing;
mod layout;
mod mermaid;
mod step_states;
mod svg;
#[cfg(test)]
mod tests;

/// A workflow as a Mermaid flowchart, which GitHub, GitLab and many editors render. The workflow must be valid.
#[must_use]
pub fn mermaid(workflow: &Workflow) -> String {
    mermaid::draw(&Drawing::of(workflow))
}

/// A workflow as a standalone SVG file with styles. The workflow must be valid.
#[must_use]
pub fn svg(workflow: &Workflow) -> String {
    svg::file(&Drawing::of(workflow))
}

/// A workflow as an `<svg>` element for an HTML page. If a task of the workflow is given, with the state of each step.
///
/// The element has no styles of its own. The page's stylesheet must style its classes: `graph`, those of the file that
/// [`svg`] makes, and on the group of a step [`PartState::css_class`](crate::state::PartState::css_class). The group of a
/// step has the id `step-NAME`.
#[must_use]
pub fn element(workflow: &Workflow, task: Option<&TaskView>) -> String {
    let mut drawing = Drawing::of(workflow);
    if let Some(task) = task {
        step_states::add(&mut drawing, task);
    }
    svg::element(&drawing, &step_states::description(workflow, task))
}
