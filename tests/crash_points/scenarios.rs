//! The scenarios: which tasks are submitted, how the remote service behaves, and how the tasks must end with any fault.

use serde_json::{Value, json};
use steward_core::{
    definition::workflow::Workflow,
    model::{attempt::Action, command::CommandAction, task::ProcessState},
};

use super::{outage::Outage, scenario_run::Redelivery, scripted_service::ServiceBehavior};

mod outage_scenarios;

pub(super) use outage_scenarios::{child_completed, child_undone, overdue_and_undone};

/// A scenario with its expected ending.
#[derive(Debug, Clone)]
pub(super) struct Scenario {
    pub(super) name: &'static str,
    pub(super) workflow: Workflow,
    /// The child task that one of its steps runs.
    pub(super) child: Option<ScenarioChild>,
    /// The ids of the tasks, which are submitted together and have the same ending.
    pub(super) tasks: &'static [&'static str],
    pub(super) behaviors: Vec<(&'static str, Action, ServiceBehavior)>,
    /// The operator's command after an alert, when the service is repaired.
    pub(super) operator: Option<CommandAction>,
    pub(super) redelivery: Redelivery,
    /// Whether inputs and outputs do not fit into the items of their tasks.
    pub(super) large_documents: bool,
    /// Whether tables and queues are in files.
    pub(super) on_disk: bool,
    /// The outage at an [`InjectedFault::Outage`](super::fault_injection::InjectedFault::Outage), if the scenario has one.
    pub(super) outage: Option<Outage>,
    pub(super) ending: ExpectedEnding,
}

impl Scenario {
    /// The scenario with redelivery at once.
    pub(super) fn with_immediate_redelivery(self) -> Self {
        Self { redelivery: Redelivery::Immediate, ..self }
    }

    /// The scenario with tables and queues in files.
    pub(super) fn on_disk(self) -> Self {
        Self { on_disk: true, ..self }
    }

    /// The child tasks with their ids.
    pub(super) fn children(&self) -> impl Iterator<Item = (String, &ScenarioChild)> {
        let of_task =
            |task| self.child.iter().map(move |child| (format!("{task}{}", child.id), child));
        self.tasks.iter().flat_map(of_task)
    }
}

/// A child task, which ends in the same state as its parent.
#[derive(Debug, Clone)]
pub(super) struct ScenarioChild {
    /// The suffix after its parent's id: `:step`.
    pub(super) id: &'static str,
    pub(super) workflow: Workflow,
    /// The effects at the service, in order.
    pub(super) effects: &'static [&'static str],
}

/// How each task of a scenario ends.
#[derive(Debug, Clone)]
pub(super) struct ExpectedEnding {
    pub(super) state: ProcessState,
    /// The effects at the service, in order: `step/do`, `step/undo`.
    pub(super) effects: &'static [&'static str],
    /// The notifications and alerts.
    pub(super) published: &'static [&'static str],
    /// The duration by the test's clock, in seconds.
    pub(super) seconds: i64,
}

const STEP_1: &str = "step_1/do";
const STEP_2: &str = "step_2/do";
const STEP_1_UNDONE: &str = "step_1/undo";

/// Two steps complete.
pub(super) fn completed() -> Scenario {
    Scenario {
        name: "completed",
        workflow: line("alert"),
        child: None,
        tasks: &["t"],
        behaviors: vec![],
        operator: None,
        redelivery: Redelivery::Last,
        large_documents: false,
        on_disk: false,
        outage: None,
        ending: ExpectedEnding {
            state: ProcessState::Processed,
            effects: &[STEP_1, STEP_2],
            published: &["received", "processed"],
            seconds: 0,
        },
    }
}

/// The first step fails permanently, with `then alert`.
pub(super) fn refused() -> Scenario {
    Scenario {
        name: "refused",
        behaviors: vec![("step_1", Action::Do, ServiceBehavior::Fails)],
        ending: ExpectedEnding {
            state: ProcessState::Error,
            effects: &[],
            published: &["received", "error", "task_in_error"],
            seconds: 0,
        },
        ..completed()
    }
}

/// The second step fails permanently, and the first is undone.
pub(super) fn undone() -> Scenario {
    Scenario {
        name: "undone",
        workflow: line("undo"),
        behaviors: vec![("step_2", Action::Do, ServiceBehavior::Fails)],
        large_documents: true,
        ending: ExpectedEnding {
            state: ProcessState::Undone,
            effects: &[STEP_1, STEP_1_UNDONE],
            published: &["received", "undone"],
            seconds: 0,
        },
        ..completed()
    }
}

/// The agent does not reply to the first attempt; the second attempt completes.
pub(super) fn silent_at_first() -> Scenario {
    let Scenario { ending, .. } = completed();
    Scenario {
        name: "silent at first",
        behaviors: vec![("step_1", Action::Do, ServiceBehavior::SilentAtFirst)],
        ending: ExpectedEnding { seconds: 0, ..ending },
        ..completed()
    }
}

/// No attempt at the second step gets a reply, so the first is undone. The second, which may have run, has no undo.
pub(super) fn silent_for_good() -> Scenario {
    let Scenario { ending, .. } = undone();
    Scenario {
        name: "silent for good",
        behaviors: vec![("step_2", Action::Do, ServiceBehavior::Silent)],
        // Two attempts of 30 s, and then the time in which a call of the second may be in progress.
        ending: ExpectedEnding { seconds: 70, ..ending },
        ..undone()
    }
}

/// The first step never gets a reply, with `then alert`: the agent's wake, which reports that, ends the task.
pub(super) fn overdue() -> Scenario {
    let mut workflow = serde_json::to_value(line("alert")).unwrap();
    workflow["steps"]["step_1"]["recovery"]["attempts"] = json!(1);
    Scenario {
        name: "overdue",
        workflow: serde_json::from_value(workflow).unwrap(),
        behaviors: vec![("step_1", Action::Do, ServiceBehavior::Silent)],
        ending: ExpectedEnding { seconds: 0, ..refused().ending },
        ..refused()
    }
}

/// The undo of the first step fails too.
pub(super) fn undo_refused() -> Scenario {
    Scenario {
        name: "undo refused",
        behaviors: vec![
            ("step_2", Action::Do, ServiceBehavior::Fails),
            ("step_1", Action::Undo, ServiceBehavior::Fails),
        ],
        ending: ExpectedEnding {
            state: ProcessState::Error,
            effects: &[STEP_1],
            published: &["received", "error", "undo_failed"],
            seconds: 0,
        },
        ..undone()
    }
}

/// After the alert an operator repairs the service and resubmits.
pub(super) fn resubmitted() -> Scenario {
    Scenario {
        name: "resubmitted",
        behaviors: vec![("step_2", Action::Do, ServiceBehavior::FailsUntilRepaired)],
        operator: Some(CommandAction::Resubmit { step: None, input: None, did_not_run: false }),
        ending: ExpectedEnding {
            state: ProcessState::Processed,
            effects: &[STEP_1, STEP_2],
            published: &["received", "error", "task_in_error", "operator_command", "processed"],
            seconds: 0,
        },
        ..completed()
    }
}

/// The second step's request reads a value that the first did not return.
pub(super) fn request_impossible() -> Scenario {
    let mut workflow = serde_json::to_value(line("undo")).unwrap();
    workflow["steps"]["step_2"]["request"]["body"]["before"] =
        json!("${ steps.step_1.output.missing }");
    Scenario {
        name: "request impossible",
        workflow: serde_json::from_value(workflow).unwrap(),
        behaviors: vec![],
        ..undone()
    }
}

/// Two branches after the first step, and a last step that joins them and fails. The first three are undone.
pub(super) fn branches() -> Scenario {
    Scenario {
        name: "branches",
        workflow: workflow(json!({
            "first": step(&[], "undo", true),
            "left": step(&["first"], "undo", true),
            "right": step(&["first"], "undo", true),
            "last": step(&["left", "right"], "undo", true),
        })),
        behaviors: vec![("last", Action::Do, ServiceBehavior::Fails)],
        ending: ExpectedEnding {
            state: ProcessState::Undone,
            effects: &["first/do", "left/do", "right/do", "left/undo", "right/undo", "first/undo"],
            published: &["received", "undone"],
            seconds: 0,
        },
        ..completed()
    }
}

/// The list of the first step is stored in slices of one item. The second step fails, and the items are undone.
pub(super) fn items_undone() -> Scenario {
    let mut workflow = serde_json::to_value(line("undo")).unwrap();
    let items = &mut workflow["steps"]["step_1"];
    let item = |name: &str| format!("input.note + input.note + '{name}'");
    let list = ["x", "y"].map(item).join(", ");
    items["for_each"] = json!({ "items": format!("${{ [{list}] }}"), "at_once": 1 });
    items["request"]["body"]["item"] = json!("${ item }");
    items["undo"]["request"]["body"]["item"] = json!("${ item }");
    workflow["steps"]["step_2"]["request"]["body"]["before"] = json!("${ steps.step_1.output }");
    Scenario {
        name: "items undone",
        workflow: serde_json::from_value(workflow).unwrap(),
        ending: ExpectedEnding {
            effects: &["step_1[0]/do", "step_1[1]/do", "step_1[0]/undo", "step_1[1]/undo"],
            ..undone().ending
        },
        ..undone()
    }
}

/// Two tasks share every batch.
pub(super) fn two_tasks() -> Scenario {
    Scenario { name: "two tasks", tasks: &["t", "u"], ..silent_at_first() }
}

/// Two sequential steps with the same `then`. The first has an undo.
fn line(then: &str) -> Workflow {
    workflow(json!({
        "step_1": step(&[], then, true),
        "step_2": step(&["step_1"], then, false),
    }))
}

fn workflow(steps: Value) -> Workflow {
    serde_json::from_value(json!({ "name": "line", "version": 1, "steps": steps })).unwrap()
}

/// A step with two attempts of 30 seconds and no pause between them.
fn step(after: &[&str], then: &str, has_undo: bool) -> Value {
    let mut body = json!({ "order": "${ task.id }", "input": "${ input }" });
    if let Some(before) = after.first() {
        body["before"] = json!(format!("${{ steps.{before}.output.id }}"));
    }
    let recovery = json!({ "attempts": 2, "backoff": { "first": "0s" } });
    let mut step = json!({
        "agent": "a", "after": after, "complete_within": "30s", "recovery": recovery,
        "request": { "path": "/do", "body": body },
    });
    step["recovery"]["then"] = json!(then);
    if has_undo {
        let request = json!({ "path": "/undo", "body": { "order": "${ task.id }" } });
        step["undo"] =
            json!({ "complete_within": "30s", "recovery": recovery, "request": request });
    }
    step
}
