//! A workflow as a picture.

use steward_core::workflow::Workflow;

use drawing::Drawing;

mod drawing;
mod layout;
mod mermaid;
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
    svg::draw(&Drawing::of(workflow))
}
