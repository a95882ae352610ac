//! The scenarios of outages: their items expire within ten days, and every undo reads what its step returned.

use serde_json::{Value, json};
use steward_core::{
    definition::workflow::Workflow,
    model::{attempt::Action, task::ProcessState},
};

use super::{Child, Ending, Scenario, completed, line, step, undone};
use crate::crash_points::{
    outage::{Lasts, Outage},
    remote::Manner,
    world::ComesBack,
};

impl Scenario {
    /// The same, but cut by outages.
    pub(in crate::crash_points) fn with(self, outage: Outage) -> Self {
        let child = self.child.map(|child| {
            let workflow = expiring(&child.workflow, outage.lasts);
            Child { workflow, ..child }
        });
        Self {
            workflow: expiring(&self.workflow, outage.lasts),
            child,
            // A message that waits for longer than an outage is visible again anyway.
            comes_back: ComesBack::AtOnce,
            outage: Some(outage),
            ..self
        }
    }
}

/// The workflow with an hour to complete and a short retention. Five days must not be too long for what a sweep
/// extends, and ten must be for what none does.
fn expiring(workflow: &Workflow, lasts: Lasts) -> Workflow {
    let mut workflow = serde_json::to_value(workflow).unwrap();
    workflow["complete_within"] = json!("1h");
    workflow["retention"] = match lasts {
        Lasts::TenDays => json!("1d"),
        Lasts::FiveDaysTwice => json!("6d"),
    };
    for (name, step) in workflow["steps"].as_object_mut().unwrap() {
        if let Some(request) = step.pointer_mut("/undo/request/body") {
            request["undoes"] = json!(format!("${{ steps.{name}.output }}"));
        }
    }
    serde_json::from_value(workflow).unwrap()
}

/// The second step is silent, and its next attempt would begin after the task's own time: the first is undone.
pub(in crate::crash_points) fn overdue_and_undone() -> Scenario {
    let Scenario { ending, .. } = undone();
    let mut workflow = serde_json::to_value(line("alert")).unwrap();
    workflow["overdue"] = json!("undo");
    workflow["steps"]["step_2"]["recovery"]["backoff"] = json!({ "first": "2h", "max": "2h" });
    Scenario {
        name: "overdue and undone",
        workflow: serde_json::from_value(workflow).unwrap(),
        manners: vec![("step_2", Action::Do, Manner::Silent)],
        ending: Ending { seconds: 3_600, ..ending },
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
        child: Some(Child {
            id: ":deliver",
            workflow: serde_json::from_value(child).unwrap(),
            effects: &["ship/do"],
        }),
        ending: Ending {
            state: ProcessState::Processed,
            effects: &["confirm/do"],
            told: &["received", "processed"],
            seconds: 0,
        },
        ..completed()
    }
}

/// The step after the child task is refused, and the child is undone.
pub(in crate::crash_points) fn child_undone() -> Scenario {
    let Scenario { child, .. } = child_completed();
    Scenario {
        name: "child undone",
        child: child.map(|child| Child { effects: &["ship/do", "ship/undo"], ..child }),
        manners: vec![("confirm", Action::Do, Manner::Refuses)],
        ending: Ending { effects: &[], ..undone().ending },
        ..child_completed()
    }
}

/// A step that runs a child task, and one with a request after it. It is undone when it is overdue.
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
