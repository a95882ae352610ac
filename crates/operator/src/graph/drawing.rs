//! The content of a picture of a workflow, independent of the output format.

use std::collections::HashMap;

use serde_json::Value;
use steward_core::{
    definition::{
        recovery::FinalAction,
        step::{RequestTemplate, StepDefinition, StepWork},
        workflow::Workflow,
    },
    expression::template::Template,
    limits,
    model::{messages::HttpMethod, names::StepName},
};

use crate::state::PartState;

/// The largest number of characters of an expression or path in a picture.
const TEXT_CHARS_MAX: usize = 40;

/// A workflow as nodes and edges.
#[derive(Debug)]
pub(super) struct Drawing {
    /// The workflow's name and version.
    pub(super) title: String,
    pub(super) nodes: Vec<GraphNode>,
    pub(super) edges: Vec<Edge>,
}

/// A step, or the condition before a step.
#[derive(Debug)]
pub(super) struct GraphNode {
    /// The step, or the step that the condition belongs to.
    pub(super) step: StepName,
    pub(super) kind: NodeKind,
    /// The text in the box; the first line is the step's name.
    pub(super) lines: Vec<String>,
    /// Whether the step has `for_each` or `repeat`.
    pub(super) is_many: bool,
    /// Whether the step is the point of no return.
    pub(super) is_point_of_no_return: bool,
    /// The status of the step in a task; `None` in the picture of a workflow.
    pub(super) status: Option<StepStatus>,
}

impl GraphNode {
    /// A unique id: `step-NAME` or `when-NAME`, with `separator` in place of the `-`.
    pub(super) fn id(&self, separator: char) -> String {
        let prefix = if self.kind == NodeKind::Condition { "when" } else { "step" };
        format!("{prefix}{separator}{}", self.step)
    }
}

/// The status of a step in a task.
#[derive(Debug)]
pub(super) struct StepStatus {
    pub(super) state: PartState,
    /// The state's name, the progress of items, and the attempt if it is not the first.
    pub(super) text: String,
}

/// What a node represents; it determines the shape of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NodeKind {
    /// A step with a call of an agent.
    Call,
    /// A step with a call that a callback completes.
    Callback,
    /// A step that waits.
    Wait,
    /// A step with a child task.
    Child,
    /// The `when` of the step after it.
    Condition,
}

/// An edge between two nodes, which are indices of [`Drawing::nodes`].
#[derive(Debug)]
pub(super) struct Edge {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) label: &'static str,
}

impl Drawing {
    /// The picture of a workflow, which must be valid.
    pub(super) fn of(workflow: &Workflow) -> Self {
        let (mut nodes, mut edges) = (Vec::new(), Vec::new());
        let mut policies = workflow.steps.values().map(|step| step.recovery.then);
        let first = policies.next();
        let shows_policies = policies.any(|then| Some(then) != first);
        // The first and the last node of each step: they differ if the step has a condition.
        let (mut entries, mut exits) = (HashMap::new(), HashMap::new());
        for (name, step) in &workflow.steps {
            entries.insert(name, nodes.len());
            if let Some(when) = &step.when {
                let (from, to) = (nodes.len(), nodes.len() + 1);
                edges.push(Edge { from, to, label: "true" });
                nodes.push(GraphNode {
                    step: name.clone(),
                    kind: NodeKind::Condition,
                    lines: vec![format!("when {}", template_text(when))],
                    is_many: false,
                    is_point_of_no_return: false,
                    status: None,
                });
            }
            exits.insert(name, nodes.len());
            nodes.push(node(name, step, shows_policies));
        }
        let ancestors = workflow.ancestors();
        for (name, step) in &workflow.steps {
            // An edge that follows from two others is left out.
            let is_implied = |before: &StepName| {
                let others = step.after.iter().filter_map(|other| ancestors.get(other));
                others.into_iter().any(|ancestors| ancestors.contains(before))
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

fn node(name: &StepName, step: &StepDefinition, shows_policies: bool) -> GraphNode {
    let mut lines = vec![name.to_string()];
    let kind = match step.work() {
        Some(StepWork::Call { agents, request, output: _, callback }) => {
            lines.push(format!("{agents}: {}", request_text(request)));
            lines.extend(callback.map(|callback| {
                format!("callback within {}", humantime::format_duration(callback.within))
            }));
            if callback.is_some() { NodeKind::Callback } else { NodeKind::Call }
        }
        Some(StepWork::Child(child)) => {
            let version = child.version.map(|version| format!(" version {version}"));
            lines.push(format!("workflow {}{}", child.name, version.unwrap_or_default()));
            NodeKind::Child
        }
        Some(StepWork::Wait(wait)) => {
            let what = if step.fail.is_some() { "fail: " } else { "wait " };
            lines.push(format!("{what}{}", template_text(wait)));
            NodeKind::Wait
        }
        Some(StepWork::Event(wait)) => {
            let within = humantime::format_duration(wait.within);
            let names = limits::short_line(&wait.event.names(), TEXT_CHARS_MAX);
            lines.push(format!("event {names} within {within}"));
            NodeKind::Wait
        }
        // Only in an invalid definition.
        None => NodeKind::Call,
    };
    if let Some(each) = &step.for_each {
        lines.push(format!("[*] each of {}, {} at once", template_text(&each.items), each.at_once));
    }
    if let Some(repeat) = &step.repeat {
        let until = template_text(&repeat.until);
        lines.push(format!("[*] repeat until {until}, at most {} times", repeat.at_most));
    }
    let undo = step.undo.as_ref();
    if let Some(request) = undo.and_then(|undo| undo.request.as_ref()) {
        let agent = undo.and_then(|undo| undo.agent.as_ref());
        let agent = agent.map(|agent| format!("{agent}: ")).unwrap_or_default();
        lines.push(format!("undo: {agent}{}", request_text(request)));
    } else if kind == NodeKind::Child {
        lines.push("undo: undoes the child task".to_owned());
    }
    if let Some(until) = &step.until {
        let every = humantime::format_duration(until.every);
        lines.push(format!("every {every} until {}", template_text(&until.condition)));
    }
    if shows_policies && (step.fail.is_some() || !matches!(step.work(), Some(StepWork::Wait(_)))) {
        let then = match step.recovery.then {
            FinalAction::Undo => "undo the task",
            FinalAction::Alert => "alert",
            FinalAction::Continue => "go on",
        };
        lines.push(format!("if it fails: {then}"));
    }
    if step.point_of_no_return {
        lines.push("point of no return".to_owned());
    }
    GraphNode {
        step: name.clone(),
        kind,
        lines,
        is_many: step.items_at_once().is_some(),
        is_point_of_no_return: step.point_of_no_return,
        status: None,
    }
}

/// `POST /charges`, or `dynamodb:PutItem`.
fn request_text(request: &RequestTemplate) -> String {
    if let Some(action) = &request.aws {
        return action.to_string();
    }
    let method = match request.method {
        HttpMethod::Get => "GET",
        HttpMethod::Post => "POST",
        HttpMethod::Put => "PUT",
        HttpMethod::Patch => "PATCH",
        HttpMethod::Delete => "DELETE",
    };
    format!("{method} {}", request.path.as_ref().map(template_text).unwrap_or_default())
}

/// The source of a template in one line, shortened. An expression has no `${ }`; within a text it is `{task.id}`.
fn template_text(template: &Template) -> String {
    let source = template.source();
    let text = source.as_str().map_or_else(|| Value::to_string(source), str::to_owned);
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let inside = text.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
    let text = match inside.filter(|_| template.is_expression()) {
        Some(expression) => expression.trim().to_owned(),
        None => text.replace("${ ", "{").replace(" }", "}"),
    };
    limits::short_line(&text, TEXT_CHARS_MAX)
}
