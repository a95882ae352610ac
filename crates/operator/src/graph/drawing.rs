//! What a picture of a workflow shows, whatever it is drawn with.

use std::collections::HashMap;

use serde_json::Value;
use steward_core::{
    definition::{
        step::{RequestTemplate, StepDefinition, Work},
        workflow::Workflow,
    },
    expression::template::Template,
    limits,
    model::{messages::Method, names::StepName},
};

/// Characters of an expression or a path in a picture.
const TEXT_CHARS_MAX: usize = 40;

/// A workflow as nodes and edges.
#[derive(Debug)]
pub(super) struct Drawing {
    /// The workflow's name and version.
    pub(super) title: String,
    pub(super) nodes: Vec<Node>,
    pub(super) edges: Vec<Edge>,
}

/// A step, or the condition in front of one.
#[derive(Debug)]
pub(super) struct Node {
    /// The step that it is, or whose condition.
    pub(super) step: StepName,
    pub(super) kind: Kind,
    /// The name first.
    pub(super) lines: Vec<String>,
    /// Done once for each item of a list.
    pub(super) is_many: bool,
    /// Whether nothing is undone once it is done.
    pub(super) is_point_of_no_return: bool,
    /// How it stands in one task.
    pub(super) standing: Option<Standing>,
}

impl Node {
    /// Unique in the picture: `step-NAME` or `when-NAME`, with this character in place of the `-`.
    pub(super) fn id(&self, joint: char) -> String {
        let of = if self.kind == Kind::Condition { "when" } else { "step" };
        format!("{of}{joint}{}", self.step)
    }
}

/// How a step stands in a task.
#[derive(Debug)]
pub(super) struct Standing {
    /// Its state, as people say it.
    pub(super) state: String,
    /// The same, with what more there is to say.
    pub(super) said: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// An agent calls its service.
    Call,
    /// The call only begins it: somebody answers later.
    Callback,
    Wait,
    /// A task of its own.
    Child,
    /// What decides whether the step after it is done or skipped.
    Condition,
}

/// Nodes by their places in the list.
#[derive(Debug)]
pub(super) struct Edge {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) label: &'static str,
}

impl Drawing {
    /// Draws a workflow that has no problems.
    pub(super) fn of(workflow: &Workflow) -> Self {
        let (mut nodes, mut edges) = (Vec::new(), Vec::new());
        // Where each step is entered, and where it is left.
        let (mut entries, mut exits) = (HashMap::new(), HashMap::new());
        for (name, step) in &workflow.steps {
            entries.insert(name, nodes.len());
            if let Some(when) = &step.when {
                let (from, to) = (nodes.len(), nodes.len() + 1);
                edges.push(Edge { from, to, label: "true" });
                nodes.push(Node {
                    step: name.clone(),
                    kind: Kind::Condition,
                    lines: vec![format!("when {}", said(when))],
                    is_many: false,
                    is_point_of_no_return: false,
                    standing: None,
                });
            }
            exits.insert(name, nodes.len());
            nodes.push(node(name, step));
        }
        let ancestors = workflow.ancestors();
        for (name, step) in &workflow.steps {
            // What another one comes after anyway needs no arrow of its own.
            let is_implied = |before: &StepName| {
                let others = step.after.iter().filter_map(|other| ancestors.get(other));
                others.into_iter().any(|of_other| of_other.contains(before))
            };
            let before = step.after.iter().filter(|before| !is_implied(before));
            let before = before.filter_map(|before| exits.get(before));
            let to = entries.get(name);
            edges.extend(before.zip(to.into_iter().cycle()).map(|(from, to)| Edge {
                from: *from,
                to: *to,
                label: "",
            }));
        }
        let title = format!("{} version {}", workflow.name, workflow.version);
        Self { title, nodes, edges }
    }
}

fn node(name: &StepName, step: &StepDefinition) -> Node {
    let mut lines = vec![name.to_string()];
    let kind = match step.work() {
        Some(Work::Call { agent, request, callback }) => {
            lines.push(format!("{agent}: {}", call(request)));
            lines.extend(callback.map(|callback| {
                format!("answered within {}", humantime::format_duration(callback.within))
            }));
            if callback.is_some() { Kind::Callback } else { Kind::Call }
        }
        Some(Work::Child(child)) => {
            let version = child.version.map(|version| format!(" version {version}"));
            lines.push(format!("workflow {}{}", child.name, version.unwrap_or_default()));
            Kind::Child
        }
        Some(Work::Wait(wait)) => {
            lines.push(format!("wait {}", said(wait)));
            Kind::Wait
        }
        // Only of a definition with problems.
        None => Kind::Call,
    };
    if let Some(each) = &step.for_each {
        lines.push(format!("[*] each of {}, {} at once", said(&each.items), each.at_once));
    }
    let undo = step.undo.as_ref();
    if let Some(request) = undo.and_then(|undo| undo.request.as_ref()) {
        lines.push(format!("undo: {}", call(request)));
    } else if kind == Kind::Child {
        lines.push("undo: its own".to_owned());
    }
    if step.point_of_no_return {
        lines.push("point of no return".to_owned());
    }
    Node {
        step: name.clone(),
        kind,
        lines,
        is_many: step.for_each.is_some(),
        is_point_of_no_return: step.point_of_no_return,
        standing: None,
    }
}

fn call(request: &RequestTemplate) -> String {
    let method = match request.method {
        Method::Get => "GET",
        Method::Post => "POST",
        Method::Put => "PUT",
        Method::Patch => "PATCH",
        Method::Delete => "DELETE",
    };
    format!("{method} {}", said(&request.path))
}

/// A template as it was written, in one short line; an expression without its `${ }`, or within a text
/// as `{task.id}`.
fn said(template: &Template) -> String {
    let source = template.source();
    let text = source.as_str().map_or_else(|| Value::to_string(source), str::to_owned);
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let inside = text.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
    let text = match inside.filter(|_| template.is_expression()) {
        Some(expression) => expression.trim().to_owned(),
        None => text.replace("${ ", "{").replace(" }", "}"),
    };
    limits::shorten(&text, TEXT_CHARS_MAX)
}
