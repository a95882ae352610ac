//! A workflow as a picture; with the states of its steps, a task.

use crate::view::TaskView;
use steward_core::definition::workflow::Workflow;

use drawing::Drawing;

mod drawing;
mod layout;
mod mermaid;
mod standing;
mod svg;
#[cfg(test)]
mod tests;

/// Text that GitHub, GitLab and many editors draw: a Mermaid flowchart of a workflow without problems.
#[must_use]
pub fn mermaid(workflow: &Workflow) -> String {
    mermaid::draw(&Drawing::of(workflow))
}

/// An SVG file of a workflow without problems, which looks right by itself.
#[must_use]
pub fn svg(workflow: &Workflow) -> String {
    svg::file(&Drawing::of(workflow))
}

/// The `<svg>` element of a page, with the state of each step if a task of the workflow is given. It
/// holds no style: the page's stylesheet gives one to its classes, which are `graph`, those of the file
/// that [`svg`] makes, and on a step's group [`class`](crate::state::class). The box of a step has the
/// id `step-NAME`.
#[must_use]
pub fn element(workflow: &Workflow, task: Option<&TaskView>) -> String {
    let mut drawing = Drawing::of(workflow);
    if let Some(task) = task {
        standing::add(&mut drawing, task);
    }
    svg::element(&drawing, &standing::in_words(workflow, task))
}
