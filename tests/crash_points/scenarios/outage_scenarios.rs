//! Outages: `with_outage` shortens the retention of a scenario so that items expire within ten days, and makes each undo
//! read the output of its step. Three scenarios for it follow.

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
    /// The scenario with this outage as the injected fault.
    pub(in crate::crash_points) fn with_outage(self, outage: Outage) -> Self {
        let child = self.child.map(|child| {
            let workflow = with_short_retention(&child.workflow, outage.duration);
            ScenarioChild { workflow, ..child }
        });
        Self {
            workflow: with_short_retention(&self.workflow, outage.duration),
            child,
            // The visibility timeout does not matter, because an outage is longer.
            redelivery: Redelivery::Immediate,
            outage: Some(outage),
            // Documents in the item of a task expire with it.
            large_documents: true,
            ..self
        }
    }
}

/// The workflow with a deadline of an hour, a short retention, and undos that read the output of their step. The retention
/// is long enough that items extended by a sweep survive five days, and short enough that others expire within ten.
fn with_short_retention(workflow: &Workflow, duration: OutageDuration) -> Workflow {
    let mut workflow = serde_json::to_value(workflow).unwrap();
    workflow["complete_within"] = json!("1h");
    workflow["retention"] = match duration {
        OutageDuration::TenDays => json!("1d"),
        OutageDuration::FiveDaysTwice => json!("6d"),
    };
    for (name, step) in workflow["steps"].as_object_mut().unwrap() {
        if let Some(body) = step.pointer_mut("/undo/request/body") {
            body["output_of_step"] = json!(format!("${{ steps.{name}.output }}"));
        }
    }
    serde_json::from_value(workflow).unwrap()
}

/// The second step is silent. Its next attempt would start after the task's deadline (the hour that `with_outage` sets),
/// so the first step is undone.
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
            // A suffix of the parent's id.
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

/// A workflow with a step that runs a child task, and then a step that calls the service. It is undone when it is
/// overdue.
fn parent() -> Workflow {
    let mut confirm: Value = step(&[], "undo", false);
    confirm["after"] = json!(["deliver"]);
    let deliver = json!({
        "workflow": { "name": "child", "input": { "of": "${ task.id }" } },
        "recovery": { "then": "undo" },
    });
    let parent = json!({
        "name": "parent", "version": 1, "overdue": "undo",
        "steps": { "deliver": deliver, "confirm": confirm },
    });
    serde_json::from_value(parent).unwrap()
}
