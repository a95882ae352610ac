//! The scenarios: what is submitted, how the remote service treats it, and how all must end,
//! whatever is cut on the way.

use serde_json::{Value, json};
use steward_core::{
    definition::workflow::Workflow,
    model::{attempt::Action, command::Order, task::ProcessState},
};

use super::{outage::Outage, remote::Manner, world::ComesBack};

mod expiring;

pub(super) use expiring::{child_completed, child_undone, overdue_and_undone};

/// A story with one ending.
#[derive(Debug, Clone)]
pub(super) struct Scenario {
    pub(super) name: &'static str,
    pub(super) workflow: Workflow,
    /// What runs as the task of one of its steps.
    pub(super) child: Option<Child>,
    /// The tasks, all submitted at once and all with the same ending.
    pub(super) tasks: &'static [&'static str],
    pub(super) manners: Vec<(&'static str, Action, Manner)>,
    /// What an operator asks after an alert, having mended the service.
    pub(super) operator: Option<Order>,
    pub(super) comes_back: ComesBack,
    /// Whether tables and queues are in files.
    pub(super) on_disk: bool,
    /// What happens at a [`Cut::Outage`](super::wire::Cut::Outage), if the scenario is made for one.
    pub(super) outage: Option<Outage>,
    pub(super) ending: Ending,
}

impl Scenario {
    /// The same, but what is not acknowledged comes back at once.
    pub(super) fn in_haste(self) -> Self {
        Self { comes_back: ComesBack::AtOnce, ..self }
    }

    /// The same, with tables and queues in files.
    pub(super) fn on_disk(self) -> Self {
        Self { on_disk: true, ..self }
    }

    /// The ids of the child tasks.
    pub(super) fn children(&self) -> impl Iterator<Item = (String, &Child)> {
        let of_task =
            |task| self.child.iter().map(move |child| (format!("{task}{}", child.id), child));
        self.tasks.iter().flat_map(of_task)
    }
}

/// A child task, whose process state ends as its parent's does.
#[derive(Debug, Clone)]
pub(super) struct Child {
    /// What its id has after its parent's: `:step`.
    pub(super) id: &'static str,
    pub(super) workflow: Workflow,
    /// What takes effect at the service, in order.
    pub(super) effects: &'static [&'static str],
}

/// How each task of a scenario ends.
#[derive(Debug, Clone)]
pub(super) struct Ending {
    pub(super) state: ProcessState,
    /// What takes effect at the service, in order: `step/do`, `step/undo`.
    pub(super) effects: &'static [&'static str],
    /// What clients and operators are told.
    pub(super) told: &'static [&'static str],
    /// How long it takes by the test's clock, in seconds.
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
        manners: vec![],
        operator: None,
        comes_back: ComesBack::Last,
        on_disk: false,
        outage: None,
        ending: Ending {
            state: ProcessState::Processed,
            effects: &[STEP_1, STEP_2],
            told: &["received", "processed"],
            seconds: 0,
        },
    }
}

/// The first step is refused for good, and the policy says alert.
pub(super) fn refused() -> Scenario {
    Scenario {
        name: "refused",
        manners: vec![("step_1", Action::Do, Manner::Refuses)],
        ending: Ending {
            state: ProcessState::Error,
            effects: &[],
            told: &["received", "error", "task_in_error"],
            seconds: 0,
        },
        ..completed()
    }
}

/// The second step is refused for good, and the first is undone.
pub(super) fn undone() -> Scenario {
    Scenario {
        name: "undone",
        workflow: line("undo"),
        manners: vec![("step_2", Action::Do, Manner::Refuses)],
        ending: Ending {
            state: ProcessState::Undone,
            effects: &[STEP_1, STEP_1_UNDONE],
            told: &["received", "undone"],
            seconds: 0,
        },
        ..completed()
    }
}

/// The agent of the first attempt says nothing; the second attempt is answered.
pub(super) fn silent_at_first() -> Scenario {
    let Scenario { ending, .. } = completed();
    Scenario {
        name: "silent at first",
        manners: vec![("step_1", Action::Do, Manner::SilentAtFirst)],
        ending: Ending { seconds: 30, ..ending },
        ..completed()
    }
}

/// No attempt at the second step is ever answered, so the first is undone; the second, which may
/// have run, has no undo.
pub(super) fn silent_for_good() -> Scenario {
    let Scenario { ending, .. } = undone();
    Scenario {
        name: "silent for good",
        manners: vec![("step_2", Action::Do, Manner::Silent)],
        // Two attempts of 30 s, and a call of the second may be in progress for as long again.
        ending: Ending { seconds: 100, ..ending },
        ..undone()
    }
}

/// The first step is never answered, and the policy says alert: the supervisor ends the task.
pub(super) fn overdue() -> Scenario {
    let mut workflow = serde_json::to_value(line("alert")).unwrap();
    workflow["steps"]["step_1"]["recovery"]["attempts"] = json!(1);
    Scenario {
        name: "overdue",
        workflow: serde_json::from_value(workflow).unwrap(),
        manners: vec![("step_1", Action::Do, Manner::Silent)],
        ending: Ending { seconds: 30, ..refused().ending },
        ..refused()
    }
}

/// The undo of the first step is refused too.
pub(super) fn undo_refused() -> Scenario {
    Scenario {
        name: "undo refused",
        manners: vec![
            ("step_2", Action::Do, Manner::Refuses),
            ("step_1", Action::Undo, Manner::Refuses),
        ],
        ending: Ending {
            state: ProcessState::Error,
            effects: &[STEP_1],
            told: &["received", "error", "undo_failed"],
            seconds: 0,
        },
        ..undone()
    }
}

/// After the alert an operator mends the service and resubmits.
pub(super) fn resubmitted() -> Scenario {
    Scenario {
        name: "resubmitted",
        manners: vec![("step_2", Action::Do, Manner::RefusesUntilMended)],
        operator: Some(Order::Resubmit { step: None, input: None, did_not_run: false }),
        ending: Ending {
            state: ProcessState::Processed,
            effects: &[STEP_1, STEP_2],
            told: &["received", "error", "task_in_error", "operator_command", "processed"],
            seconds: 0,
        },
        ..completed()
    }
}

/// The second step's request reads what the first never returned.
pub(super) fn request_impossible() -> Scenario {
    let mut workflow = serde_json::to_value(line("undo")).unwrap();
    workflow["steps"]["step_2"]["request"]["body"]["before"] =
        json!("${ steps.step_1.output.missing }");
    Scenario {
        name: "request impossible",
        workflow: serde_json::from_value(workflow).unwrap(),
        manners: vec![],
        ..undone()
    }
}

/// Two branches after the first step, and a last step that joins them and is refused: all three are
/// undone.
pub(super) fn side_by_side() -> Scenario {
    Scenario {
        name: "side by side",
        workflow: workflow(json!({
            "first": step(&[], "undo", true),
            "left": step(&["first"], "undo", true),
            "right": step(&["first"], "undo", true),
            "last": step(&["left", "right"], "undo", true),
        })),
        manners: vec![("last", Action::Do, Manner::Refuses)],
        ending: Ending {
            state: ProcessState::Undone,
            effects: &["first/do", "left/do", "right/do", "left/undo", "right/undo", "first/undo"],
            told: &["received", "undone"],
            seconds: 0,
        },
        ..completed()
    }
}

/// Two tasks share every batch.
pub(super) fn two_tasks() -> Scenario {
    Scenario { name: "two tasks", tasks: &["t", "u"], ..silent_at_first() }
}

/// Two steps in a row, the first of which can be undone; `then` is the policy of both.
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
