//! Scenarios for outages: their items expire within ten days, and every undo reads the output of its step.

use serde_json::{Value, json};
use steward_core::{
    definition::workflow::Workflow,
    model::{attempt::Action, task::ProcessState},
};

use super::{ExpectedEnding, Scenario, ScenarioChild, completed, line, step, undone};
use crate::crash_points::{
    outage::{Outage, OutageDuration},
    scenario_run::Redelivery,
    scripted_service::ServiceBehavior,
};

impl Scenario {
    /// The scenario with outages as faults.
    pub(in crate::crash_points) fn with_outage(self, outage: Outage) -> Self {
        let child = self.child.map(|child| {
            let workflow = expiring(&child.workflow, outage.duration);
            ScenarioChild { workflow, ..child }
        });
        Self {
            workflow: expiring(&self.workflow, outage.duration),
            child,
            // After an outage all messages are visible again anyway.
            redelivery: Redelivery::Immediate,
            outage: Some(outage),
            ..self
        }
    }
}

/// The workflow with an hour to complete and a short retention. Items that a sweep extends must survive five days; other
/// items must not survive ten.
fn expiring(workflow: &Workflow, duration: OutageDuration) -> Workflow {
    let mut workflow = serde_json::to_value(workflow).unwrap();
    workflow["complete_within"] = json!("1h");
    workflow["retention"] = match duration {
        OutageDuration::TenDays => json!("1d"),
        OutageDuration::FiveDaysTwice => json!("6d"),
    };
    for (name, step) in workflow["steps"].as_object_mut().unwrap() {
        if let Some(request) = step.pointer_mut("/undo/request/body") {
            request["undoes"] = json!(format!("${{ steps.{name}.output }}"));
        }
    }
    serde_json::from_value(workflow).unwrap()
}

/// The second step is silent, and its next attempt would start after the task's complete-by, so the first is undone.
pub(in crate::crash_points) fn overdue_and_undone() -> Scenario {
    let Scenario { ending, .. } = undone();
    let mut workflow = serde_json::to_value(line("alert")).unwrap();
    workflow["overdue"] = json!("undo");
    workflow["steps"]["step_2"]["recovery"]["backoff"] = json!({ "first": "2h", "max": "2h" });
    Scenario {
        name: "overdue and undone",
        workflow: serde_json::from_value(workflow).unwrap(),
        behaviors: vec![("step_2", Action::Do, ServiceBehavior::Silent)],
        ending: ExpectedEnding { seconds: 3_600, ..ending },
        ..completed()
    }
}

/// The first step runs a child task.
pub(in crate::crash_points) fn child_completed() -> Scenario {
    let child = json!({
        "name": "child", "version": 1, "steps": { "ship": step(&[], "alert", true) },
    });
    Scenario {
        name: "child completed",
        workflow: parent(),
        child: Some(ScenarioChild {
            id: ":deliver",
            workflow: serde_json::from_value(child).unwrap(),
            effects: &["ship/do"],
        }),
        ending: ExpectedEnding {
            state: ProcessState::Processed,
            effects: &["confirm/do"],
            published: &["received", "processed"],
            seconds: 0,
        },
        ..completed()
    }
}

/// The step after the child task fails, and the child is undone.
pub(in crate::crash_points) fn child_undone() -> Scenario {
    let Scenario { child, .. } = child_completed();
    Scenario {
        name: "child undone",
        child: child.map(|child| ScenarioChild { effects: &["ship/do", "ship/undo"], ..child }),
        behaviors: vec![("confirm", Action::Do, ServiceBehavior::Fails)],
        ending: ExpectedEnding { effects: &[], ..undone().ending },
        ..child_completed()
    }
}

/// A workflow with a step that runs a child task, and a later step with a request. It is undone when it is overdue.
fn parent() -> Workflow {
    let mut confirm: Value = step(&[], "undo", false);
    confirm["after"] = json!(["deliver"]);
    let deliver = json!({
        "workflow": { "name": "child", "input": { "of": "${ task.id }" } },
        "recovery": { "then": "undo" },
    });
    let parent = json!({
        "name": "line", "version": 1, "overdue": "undo",
        "steps": { "deliver": deliver, "confirm": confirm },
    });
    serde_json::from_value(parent).unwrap()
}
