//! The explored workflows, each with the number of faults on one path.
//!
//! All times are multiples of ten seconds, so that different paths reach the same states.

use std::time::Duration;

use serde_json::{Value, json};
use steward_core::{
    definition::{plan::Plan, step::CallbackDefinition, workflow::Workflow},
    limits,
    model::{command::CommandAction, names::Part, time::Timing},
};

mod payloads;
mod step_kinds;

/// How a task ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Ending {
    /// Every step completed or was skipped.
    Processed,
    /// The task was undone.
    Undone,
    /// In Error, not undone.
    TaskInError,
    /// In Error, with a failed undo.
    UndoFailed,
    /// In Error, because an undo was requested past the point of no return.
    PastReturn,
}

/// A workflow to explore.
pub(super) struct ExploredWorkflow {
    pub(super) name: &'static str,
    pub(super) definition: Plan,
    pub(super) timing: Timing,
    pub(super) budget: Budget,
    /// The commands that operators may send.
    pub(super) commands: Vec<CommandAction>,
    /// The submitted input.
    pub(super) input: Value,
    /// The outputs that agents may return, in addition to one with an id.
    pub(super) outputs: Vec<Value>,
    /// Bytes by which the item of the task is larger: with none, all documents fit into it; with 1,024, none do.
    pub(super) filler_bytes: usize,
    /// Whether the task is a child.
    pub(super) is_child: bool,
    /// The steps with a `when`, each with the step whose output contains `ok`, or `input` if the input contains it.
    pub(super) whens: Vec<(&'static str, &'static str)>,
    /// The step with an empty list.
    pub(super) empty_list: Option<&'static str>,
    /// The steps of kind `wait`, with their durations.
    pub(super) waits: Vec<(&'static str, Duration)>,
    /// Whether agents may cut calls.
    pub(super) slow: bool,
    /// The endings that the exploration must reach.
    pub(super) endings: Vec<Ending>,
}

impl ExploredWorkflow {
    /// Changes the definition.
    pub(super) fn edit(&mut self, change: impl FnOnce(&mut Workflow)) {
        let mut definition = Workflow::clone(&self.definition);
        change(&mut definition);
        self.definition = Plan::new(definition).unwrap();
    }

    /// Whether a part runs a child task.
    pub(super) fn runs_child(&self, part: &Part) -> bool {
        self.definition.steps[&part.step].workflow.is_some()
    }

    /// Whether a part waits for an event.
    pub(super) fn awaits_event(&self, part: &Part) -> bool {
        self.definition.step(&part.step).awaits_event()
    }

    /// The callback of a part, if it has one.
    pub(super) fn callback(&self, part: &Part) -> Option<&CallbackDefinition> {
        self.definition.steps[&part.step].callback.as_ref()
    }
}

/// How often each kind of fault may occur on one path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Budget {
    /// Commands of operators.
    pub(super) commands: u32,
    /// Crashes between a save and its effects.
    pub(super) crashes: u32,
    /// Replies that defer a step.
    pub(super) deferrals: u32,
    /// Pauses of weeks.
    pub(super) long_pauses: u32,
}

/// One crash, and no other faults.
const ONE_CRASH: Budget = Budget { commands: 0, crashes: 1, deferrals: 0, long_pauses: 0 };

/// A step with attempts that are ten seconds apart.
fn step(after: &[&str], attempts: u32, then: &str) -> Value {
    json!({
        "agent": "a", "after": after, "complete_within": "30s",
        "recovery": {
            "attempts": attempts, "then": then,
            "backoff": { "first": "10s", "rate": 1, "max": "10s", "jitter": false },
        },
        "request": { "path": "/do", "body": "${ input }" },
    })
}

/// A step with an undo, which has one attempt.
fn undoable(after: &[&str], attempts: u32, then: &str) -> Value {
    let mut step = step(after, attempts, then);
    step["undo"] = json!({
        "complete_within": "30s", "recovery": { "attempts": 1 },
        "request": { "path": "/undo", "body": "${ input }" },
    });
    step
}

fn with(mut step: Value, key: &str, value: Value) -> Value {
    step[key] = value;
    step
}

fn workflow(
    name: &'static str,
    steps: Value,
    budget: Budget,
    endings: &[Ending],
) -> ExploredWorkflow {
    let overdue = if endings.contains(&Ending::Undone) { "undo" } else { "alert" };
    let definition = json!({
        "name": name, "version": 1, "complete_within": "200s", "overdue": overdue, "steps": steps,
    });
    let definition: Plan = serde_json::from_value(definition).unwrap();
    assert_eq!(definition.problems(), []);
    let ten = Duration::from_secs(10);
    let timing = Timing { pickup_within: 2 * ten, clock_skew: ten, retention: Timing::RETENTION };
    let endings = endings.to_vec();
    let (commands, input) = (Vec::new(), json!({ "n": 1, "m": 1 }));
    let (outputs, is_child) = (Vec::new(), false);
    let (whens, waits, empty_list) = (Vec::new(), Vec::new(), None);
    ExploredWorkflow {
        name,
        definition,
        timing,
        budget,
        commands,
        input,
        outputs,
        filler_bytes: 0,
        is_child,
        whens,
        empty_list,
        waits,
        slow: false,
        endings,
    }
}

/// Bytes by which the items of tasks are larger: all documents fit into the item, some of them, none.
const FILLER_BYTES: [usize; 3] = [0, 600, limits::INLINE_DOCUMENTS_BYTES_MAX];

/// All workflows, each with one size of the item of its task, in turn. Only separate documents expire before their task, so
/// the workflows with long pauses have only such documents.
pub(super) fn explored_workflows() -> Vec<ExploredWorkflow> {
    let sized = |(mut workflow, bytes): (ExploredWorkflow, usize)| {
        let expires = workflow.budget.long_pauses > 0;
        workflow.filler_bytes = if expires { limits::INLINE_DOCUMENTS_BYTES_MAX } else { bytes };
        workflow
    };
    workflows().into_iter().zip(FILLER_BYTES.into_iter().cycle()).map(sized).collect()
}

/// All workflows, each with every size of the item of its task.
pub(super) fn workflows_of_every_size() -> Vec<ExploredWorkflow> {
    let sized = |bytes| {
        workflows()
            .into_iter()
            .map(move |workflow| ExploredWorkflow { filler_bytes: bytes, ..workflow })
    };
    FILLER_BYTES.into_iter().flat_map(sized).collect()
}

fn workflows() -> Vec<ExploredWorkflow> {
    use Ending::{Processed, TaskInError, UndoFailed, Undone};
    let backward = [Processed, Undone, UndoFailed];
    let line = json!({ "a": step(&[], 1, "alert"), "b": step(&["a"], 1, "alert") });
    let line_undone = json!({ "a": undoable(&[], 1, "undo"), "b": undoable(&["a"], 1, "undo") });
    let diamond = json!({
        "a": step(&[], 1, "alert"), "b": step(&["a"], 1, "alert"),
        "c": step(&["a"], 1, "alert"), "d": step(&["b", "c"], 1, "alert"),
    });
    let diamond_undone = json!({
        "a": undoable(&[], 1, "undo"), "b": undoable(&["a"], 1, "undo"),
        "c": step(&["a"], 1, "undo"), "d": undoable(&["b", "c"], 1, "undo"),
    });
    let two_attempts = json!({ "a": step(&[], 2, "alert"), "b": step(&["a"], 2, "alert") });
    let agents = vec![
        workflow("line", line, ONE_CRASH, &[Processed, TaskInError]),
        workflow("diamond", diamond, ONE_CRASH, &[Processed, TaskInError]),
        workflow("line_undone", line_undone, Budget { deferrals: 1, ..ONE_CRASH }, &backward),
        workflow("diamond_undone", diamond_undone, ONE_CRASH, &backward),
        point_of_no_return(),
        workflow(
            "two_attempts",
            two_attempts,
            Budget { deferrals: 2, ..ONE_CRASH },
            &[Processed, TaskInError],
        ),
        branches_that_wait(),
        not_idempotent(),
        extended_wait(),
        commanded_forward(),
        commanded_backward(),
        impossible(),
        slow_calls(),
        time_limits(),
        time_limits_commanded(),
        key_valid(),
        passed_over(),
        several_agents(),
        several_agents_commanded(),
        items_of_several_agents(),
        weeks_pass(),
    ];
    agents.into_iter().chain(step_kinds::all()).chain([payloads::payload()]).collect()
}

/// `b` is the point of no return. `c`, which runs concurrently, and `d`, which follows both, may fail and start an undo.
fn point_of_no_return() -> ExploredWorkflow {
    let b = with(step(&["a"], 1, "undo"), "point_of_no_return", json!(true));
    let steps = json!({
        "a": undoable(&[], 1, "undo"), "b": b, "c": undoable(&["a"], 1, "undo"),
        "d": step(&["b", "c"], 1, "undo"),
    });
    let endings = [Ending::Processed, Ending::Undone, Ending::UndoFailed, Ending::PastReturn];
    workflow("point_of_no_return", steps, Budget { deferrals: 1, ..ONE_CRASH }, &endings)
}

/// Two branches, so that one can wait for its next attempt while the other runs.
fn branches_that_wait() -> ExploredWorkflow {
    let steps = json!({ "a": undoable(&[], 2, "undo"), "b": undoable(&[], 1, "undo") });
    let budget = Budget { deferrals: 2, ..ONE_CRASH };
    workflow(
        "branches_that_wait",
        steps,
        budget,
        &[Ending::Processed, Ending::Undone, Ending::UndoFailed],
    )
}

/// `b` is not idempotent. The operator may state that it did not run.
fn not_idempotent() -> ExploredWorkflow {
    let b = with(undoable(&["a"], 2, "alert"), "idempotent", json!(false));
    let steps = json!({ "a": undoable(&[], 1, "alert"), "b": b });
    let endings = [Ending::Processed, Ending::TaskInError, Ending::Undone, Ending::UndoFailed];
    let budget = Budget { commands: 1, crashes: 0, deferrals: 1, long_pauses: 0 };
    let mut workflow = workflow("not_idempotent", steps, budget, &endings);
    let resubmit = |did_not_run| CommandAction::Resubmit { step: None, input: None, did_not_run };
    workflow.commands = vec![
        resubmit(false),
        resubmit(true),
        CommandAction::Skip { step: None, did_not_run: true },
        CommandAction::Undo,
    ];
    workflow
}

/// The task goes on without `b`, and calls `c` in its place; `d` is a way out, and undoes the task.
fn passed_over() -> ExploredWorkflow {
    let c = with(undoable(&["b"], 1, "undo"), "when", json!("${ steps.b.failed }"));
    let d = json!({
        "after": ["c"], "when": "${ steps.b.failed && has(input.strict) }", "fail": "b failed",
        "recovery": { "then": "undo" },
    });
    let mut a = undoable(&[], 1, "undo");
    a["undo"]["agent"] = json!("b");
    let mut limited = undoable(&["a"], 2, "continue");
    limited["recovery"]["give_up_after"] = json!("60s");
    let steps = json!({ "a": a, "b": limited, "c": c, "d": d });
    let endings = [Ending::Processed, Ending::Undone, Ending::UndoFailed, Ending::TaskInError];
    let budget = Budget { deferrals: 1, ..ONE_CRASH };
    workflow("passed_over", steps, budget, &endings)
}

/// Two extended waits: one of 15 minutes, which a queue can delay a message for, and one of 20 minutes, which it cannot.
fn extended_wait() -> ExploredWorkflow {
    let mut a = step(&[], 1, "alert");
    a["recovery"]["extended_wait"] = json!({ "wait": "20m", "times": 1 });
    let mut b = step(&["a"], 1, "alert");
    b["recovery"]["extended_wait"] = json!({ "wait": "15m", "times": 1 });
    let endings = [Ending::Processed, Ending::TaskInError];
    let mut workflow = workflow("extended_wait", json!({ "a": a, "b": b }), ONE_CRASH, &endings);
    workflow.edit(|definition| definition.complete_within = Duration::from_secs(2 * 3600));
    workflow
}

/// All commands of operators.
fn commands() -> Vec<CommandAction> {
    let a = || Some("a".parse().unwrap());
    vec![
        CommandAction::Resubmit { step: None, input: None, did_not_run: false },
        CommandAction::Resubmit { step: None, input: Some(json!({ "n": 2 })), did_not_run: true },
        CommandAction::Resubmit { step: None, input: Some(json!({ "n": 3 })), did_not_run: false },
        CommandAction::Skip { step: a(), did_not_run: false },
        CommandAction::Skip { step: None, did_not_run: false },
        CommandAction::Complete { step: a(), output: json!({ "id": "by hand" }) },
        CommandAction::Complete { step: None, output: json!({ "id": "by hand" }) },
        CommandAction::Undo,
        CommandAction::Cancel,
        CommandAction::Resolve,
        CommandAction::Pause,
        CommandAction::Resume,
    ]
}

fn commanded_forward() -> ExploredWorkflow {
    let steps = json!({ "a": undoable(&[], 1, "alert"), "b": undoable(&["a"], 1, "alert") });
    let endings = [Ending::Processed, Ending::TaskInError, Ending::Undone, Ending::UndoFailed];
    let budget = Budget { commands: 2, crashes: 1, deferrals: 0, long_pauses: 0 };
    let commands = commands();
    ExploredWorkflow { commands, ..workflow("commanded_forward", steps, budget, &endings) }
}

fn commanded_backward() -> ExploredWorkflow {
    let steps = json!({ "a": undoable(&[], 1, "undo"), "b": undoable(&[], 1, "undo") });
    let endings = [Ending::Processed, Ending::TaskInError, Ending::Undone, Ending::UndoFailed];
    let budget = Budget { commands: 2, crashes: 0, deferrals: 1, long_pauses: 0 };
    let commands = commands();
    ExploredWorkflow { commands, ..workflow("commanded_backward", steps, budget, &endings) }
}

/// The requests of `b` and of the undo of `a` read the output of `a`, which may lack the value.
fn impossible() -> ExploredWorkflow {
    let mut a = undoable(&[], 1, "undo");
    a["undo"]["request"]["path"] = json!("/undo/${ steps.a.output.id }");
    let mut b = step(&["a"], 1, "undo");
    b["request"]["path"] = json!("/do/${ steps.a.output.id }");
    let steps = json!({ "a": a, "b": b, "c": undoable(&["a"], 1, "undo") });
    let endings = [Ending::Processed, Ending::Undone, Ending::UndoFailed];
    let outputs = vec![Value::Null];
    ExploredWorkflow { outputs, ..workflow("impossible", steps, ONE_CRASH, &endings) }
}

/// Calls that are cut or get no reply, and may still be in progress at the service.
fn slow_calls() -> ExploredWorkflow {
    let steps = json!({
        "a": undoable(&[], 2, "undo"), "b": step(&["a"], 1, "undo"), "c": undoable(&["a"], 1, "undo"),
    });
    let endings = [Ending::Processed, Ending::Undone, Ending::UndoFailed];
    let budget = Budget { deferrals: 1, ..ONE_CRASH };
    ExploredWorkflow { slow: true, ..workflow("slow_calls", steps, budget, &endings) }
}

/// A step and undos that give up before their attempts are used up.
fn time_limits() -> ExploredWorkflow {
    let mut a = limited(undoable(&[], 3, "undo"));
    a["undo"]["recovery"] =
        json!({ "attempts": 3, "give_up_after": "50s", "backoff": a["recovery"]["backoff"] });
    let steps = json!({ "a": a, "b": limited(undoable(&["a"], 3, "undo")) });
    let endings = [Ending::Processed, Ending::Undone, Ending::UndoFailed];
    let budget = Budget { deferrals: 2, ..ONE_CRASH };
    ExploredWorkflow { slow: true, ..workflow("time_limits", steps, budget, &endings) }
}

/// The same with an operator, who may pause the task, and retry what waits or failed.
fn time_limits_commanded() -> ExploredWorkflow {
    let steps = json!({ "a": limited(undoable(&[], 3, "alert")), "b": step(&[], 2, "undo") });
    let endings = [Ending::Processed, Ending::TaskInError, Ending::Undone, Ending::UndoFailed];
    let budget = Budget { commands: 2, crashes: 0, deferrals: 2, long_pauses: 0 };
    let resubmit = CommandAction::Resubmit { step: None, input: None, did_not_run: false };
    let commands = vec![resubmit, CommandAction::Pause, CommandAction::Resume];
    ExploredWorkflow { commands, ..workflow("time_limits_commanded", steps, budget, &endings) }
}

/// A step whose service keeps the idempotency key for fifty seconds, with an operator, who may pause the task, retry what waits or
/// failed, and state that it did not run.
fn key_valid() -> ExploredWorkflow {
    let mut a = undoable(&[], 3, "alert");
    a["recovery"]["key_valid_for"] = json!("50s");
    a["undo"]["recovery"] =
        json!({ "attempts": 3, "key_valid_for": "50s", "backoff": a["recovery"]["backoff"] });
    let endings = [Ending::Processed, Ending::TaskInError, Ending::Undone, Ending::UndoFailed];
    let budget = Budget { commands: 2, crashes: 0, deferrals: 2, long_pauses: 0 };
    let resubmit = |did_not_run| CommandAction::Resubmit { step: None, input: None, did_not_run };
    let commands = vec![
        resubmit(false),
        resubmit(true),
        CommandAction::Pause,
        CommandAction::Resume,
        CommandAction::Undo,
    ];
    let steps = json!({ "a": a });
    ExploredWorkflow { commands, ..workflow("key_valid", steps, budget, &endings) }
}

/// A step that gives up after fifty seconds: in time for a second attempt, and too early for a third one.
fn limited(mut step: Value) -> Value {
    step["recovery"]["give_up_after"] = json!("50s");
    step
}

/// A step whose second agent is tried only if the first certainly did not run it.
fn several_agents() -> ExploredWorkflow {
    let a = with(undoable(&[], 2, "undo"), "agent", json!(["x", "y"]));
    let steps = json!({ "a": a, "b": step(&["a"], 1, "undo") });
    let endings = [Ending::Processed, Ending::Undone, Ending::UndoFailed];
    let budget = Budget { deferrals: 3, ..ONE_CRASH };
    ExploredWorkflow { slow: true, ..workflow("several_agents", steps, budget, &endings) }
}

/// The same with operators, for a step that is not idempotent and one whose agent the input chooses.
fn several_agents_commanded() -> ExploredWorkflow {
    let a = with(undoable(&[], 1, "alert"), "agent", json!(["x", "y"]));
    let choice = json!({ "choose": "${ input.n == 1 ? 'x' : 'y' }", "of": ["x", "y"] });
    let b = with(undoable(&["a"], 1, "alert"), "agent", choice);
    let steps = json!({ "a": with(a, "idempotent", json!(false)), "b": b });
    let endings = [Ending::Processed, Ending::TaskInError, Ending::Undone, Ending::UndoFailed];
    let budget = Budget { commands: 2, crashes: 1, deferrals: 2, long_pauses: 0 };
    let commands = commands();
    ExploredWorkflow { commands, ..workflow("several_agents_commanded", steps, budget, &endings) }
}

/// Each item has its own agent.
fn items_of_several_agents() -> ExploredWorkflow {
    let mut a = with(undoable(&[], 1, "undo"), "agent", json!(["x", "y"]));
    a["for_each"] = json!({ "items": "${ input.list }", "at_once": 2 });
    a["request"]["body"] = json!({ "item": "${ item }" });
    let endings = [Ending::Processed, Ending::Undone, Ending::UndoFailed];
    let budget = Budget { deferrals: 2, ..ONE_CRASH };
    let input = json!({ "n": 1, "list": [1, 2] });
    let explored = workflow("items_of_several_agents", json!({ "a": a }), budget, &endings);
    ExploredWorkflow { input, ..explored }
}

/// A task may be stopped for weeks, for example because of a dead letter. Its documents may expire.
fn weeks_pass() -> ExploredWorkflow {
    let mut a = undoable(&[], 2, "undo");
    a["undo"]["request"]["path"] = json!("/undo/${ steps.a.output.id }");
    let steps = json!({ "a": a, "b": undoable(&["a"], 1, "undo") });
    let endings = [Ending::Processed, Ending::Undone, Ending::UndoFailed];
    let budget = Budget { long_pauses: 3, ..ONE_CRASH };
    workflow("weeks_pass", steps, budget, &endings)
}
