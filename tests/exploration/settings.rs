//! The small workflows, and how much may go wrong on one path through each.
//!
//! All times are multiples of ten seconds, so that different paths come to the same worlds.

use std::time::Duration;
use steward_core::definition::plan::Plan;

use serde_json::{Value, json};
use steward_core::{
    definition::{step::Callback, workflow::Workflow},
    model::{command::Order, names::Part, time::Timing},
};

mod steps;

/// A way for a task to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Ending {
    /// Every step completed or was skipped.
    Processed,
    /// What was done is undone.
    Undone,
    /// In Error on its way forward.
    TaskInError,
    /// In Error on its way back.
    UndoFailed,
    /// In Error, since it was to be undone and could not be any more.
    PastReturn,
}

/// One workflow to explore.
pub(super) struct Setting {
    pub(super) name: &'static str,
    pub(super) workflow: Plan,
    pub(super) timing: Timing,
    pub(super) budget: Budget,
    /// What operators may ask for.
    pub(super) orders: Vec<Order>,
    /// What the client submits.
    pub(super) input: Value,
    /// What agents may return beside an id.
    pub(super) outputs: Vec<Value>,
    /// Whether the task runs for another.
    pub(super) is_child: bool,
    /// The steps with a `when`, and the step whose output says `ok`; or `input`, if that does.
    pub(super) whens: Vec<(&'static str, &'static str)>,
    /// The step whose list is of nothing.
    pub(super) none: Option<&'static str>,
    /// The steps that wait, and how long.
    pub(super) waits: Vec<(&'static str, Duration)>,
    /// Whether agents cut calls that take too long.
    pub(super) slow: bool,
    /// The endings that must be reached.
    pub(super) endings: Vec<Ending>,
}

impl Setting {
    /// Changes the definition.
    pub(super) fn edit(&mut self, change: impl FnOnce(&mut Workflow)) {
        let mut workflow = Workflow::clone(&self.workflow);
        change(&mut workflow);
        self.workflow = Plan::new(workflow).unwrap();
    }

    /// Whether a part runs a task of its own.
    pub(super) fn runs_task(&self, part: &Part) -> bool {
        self.workflow.steps[&part.step].workflow.is_some()
    }

    /// How a part is answered, if someone is handed a token.
    pub(super) fn callback(&self, part: &Part) -> Option<&Callback> {
        self.workflow.steps[&part.step].callback.as_ref()
    }
}

/// How often each of these may happen on one path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Budget {
    /// Commands of operators.
    pub(super) commands: u32,
    /// Processes that die between a save and its effects.
    pub(super) losses: u32,
    /// Replies that defer a step.
    pub(super) deferrals: u32,
    /// Pauses of weeks.
    pub(super) jumps: u32,
}

const QUIET: Budget = Budget { commands: 0, losses: 1, deferrals: 0, jumps: 0 };

/// A step with an attempt or two, ten seconds apart.
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

/// The same with an undo, which is tried once and reads what the step returned, if it did.
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

fn setting(name: &'static str, steps: Value, budget: Budget, endings: &[Ending]) -> Setting {
    let overdue = if endings.contains(&Ending::Undone) { "undo" } else { "alert" };
    let definition = json!({
        "name": name, "version": 1, "complete_within": "200s", "overdue": overdue, "steps": steps,
    });
    let workflow: Plan = serde_json::from_value(definition).unwrap();
    assert_eq!(workflow.problems(), []);
    let ten = Duration::from_secs(10);
    let timing = Timing { pickup_within: 2 * ten, clock_skew: ten, retention: Timing::RETENTION };
    let endings = endings.to_vec();
    let (orders, input) = (Vec::new(), json!({ "n": 1, "m": 1 }));
    let (outputs, is_child) = (Vec::new(), false);
    let (whens, waits, none) = (Vec::new(), Vec::new(), None);
    Setting {
        name,
        workflow,
        timing,
        budget,
        orders,
        input,
        outputs,
        is_child,
        whens,
        none,
        waits,
        slow: false,
        endings,
    }
}

/// All that is explored.
pub(super) fn settings() -> Vec<Setting> {
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
        setting("line", line, QUIET, &[Processed, TaskInError]),
        setting("diamond", diamond, QUIET, &[Processed, TaskInError]),
        setting("line_undone", line_undone, Budget { deferrals: 1, ..QUIET }, &backward),
        setting("diamond_undone", diamond_undone, QUIET, &backward),
        point_of_no_return(),
        setting(
            "two_attempts",
            two_attempts,
            Budget { deferrals: 2, ..QUIET },
            &[Processed, TaskInError],
        ),
        branches_that_wait(),
        not_idempotent(),
        extended_wait(),
        commanded_forward(),
        commanded_backward(),
        impossible(),
        slow_calls(),
        weeks_pass(),
    ];
    agents.into_iter().chain(steps::all()).collect()
}

/// `b` cannot be taken back; `c`, beside it, may ask for that, and `d`, after both.
fn point_of_no_return() -> Setting {
    let b = with(step(&["a"], 1, "undo"), "point_of_no_return", json!(true));
    let steps = json!({
        "a": undoable(&[], 1, "undo"), "b": b, "c": undoable(&["a"], 1, "undo"),
        "d": step(&["b", "c"], 1, "undo"),
    });
    let endings = [Ending::Processed, Ending::Undone, Ending::UndoFailed, Ending::PastReturn];
    setting("point_of_no_return", steps, Budget { deferrals: 1, ..QUIET }, &endings)
}

/// Two branches, each tried twice, so that one waits while the other goes on.
fn branches_that_wait() -> Setting {
    let steps = json!({ "a": undoable(&[], 2, "undo"), "b": undoable(&[], 1, "undo") });
    let budget = Budget { deferrals: 2, ..QUIET };
    setting(
        "branches_that_wait",
        steps,
        budget,
        &[Ending::Processed, Ending::Undone, Ending::UndoFailed],
    )
}

/// `b` must not be repeated by itself; the operator may say that it did not run.
fn not_idempotent() -> Setting {
    let b = with(undoable(&["a"], 2, "alert"), "idempotent", json!(false));
    let steps = json!({ "a": undoable(&[], 1, "alert"), "b": b });
    let endings = [Ending::Processed, Ending::TaskInError, Ending::Undone, Ending::UndoFailed];
    let budget = Budget { commands: 1, losses: 0, deferrals: 1, jumps: 0 };
    let mut setting = setting("not_idempotent", steps, budget, &endings);
    let resubmit = |did_not_run| Order::Resubmit { step: None, input: None, did_not_run };
    setting.orders = vec![
        resubmit(false),
        resubmit(true),
        Order::Skip { step: None, did_not_run: true },
        Order::Undo,
    ];
    setting
}

/// Waits that a queue can hold back and waits that it cannot: fifteen minutes and twenty.
fn extended_wait() -> Setting {
    let mut a = step(&[], 1, "alert");
    a["recovery"]["extended_wait"] = json!({ "wait": "20m", "times": 1 });
    let mut b = step(&["a"], 1, "alert");
    b["recovery"]["extended_wait"] = json!({ "wait": "15m", "times": 1 });
    let endings = [Ending::Processed, Ending::TaskInError];
    let mut setting = setting("extended_wait", json!({ "a": a, "b": b }), QUIET, &endings);
    setting.edit(|workflow| workflow.complete_within = Duration::from_secs(2 * 3600));
    setting
}

/// Everything that operators may ask for.
fn orders() -> Vec<Order> {
    let a = || Some("a".parse().unwrap());
    vec![
        Order::Resubmit { step: None, input: None, did_not_run: false },
        Order::Resubmit { step: None, input: Some(json!({ "n": 2 })), did_not_run: true },
        Order::Resubmit { step: None, input: Some(json!({ "n": 3 })), did_not_run: false },
        Order::Skip { step: a(), did_not_run: false },
        Order::Skip { step: None, did_not_run: false },
        Order::Complete { step: a(), output: json!({ "id": "by hand" }) },
        Order::Complete { step: None, output: json!({ "id": "by hand" }) },
        Order::Undo,
        Order::Cancel,
        Order::Pause,
        Order::Resume,
    ]
}

fn commanded_forward() -> Setting {
    let steps = json!({ "a": undoable(&[], 1, "alert"), "b": undoable(&["a"], 1, "alert") });
    let endings = [Ending::Processed, Ending::TaskInError, Ending::Undone, Ending::UndoFailed];
    let budget = Budget { commands: 2, losses: 1, deferrals: 0, jumps: 0 };
    let orders = orders();
    Setting { orders, ..setting("commanded_forward", steps, budget, &endings) }
}

fn commanded_backward() -> Setting {
    let steps = json!({ "a": undoable(&[], 1, "undo"), "b": undoable(&[], 1, "undo") });
    let endings = [Ending::Processed, Ending::TaskInError, Ending::Undone, Ending::UndoFailed];
    let budget = Budget { commands: 2, losses: 0, deferrals: 1, jumps: 0 };
    let orders = orders();
    Setting { orders, ..setting("commanded_backward", steps, budget, &endings) }
}

/// `b`, and the undo of `a`, are made from what `a` returned, which may be useless.
fn impossible() -> Setting {
    let mut a = undoable(&[], 1, "undo");
    a["undo"]["request"]["path"] = json!("/undo/${ steps.a.output.id }");
    let mut b = step(&["a"], 1, "undo");
    b["request"]["path"] = json!("/do/${ steps.a.output.id }");
    let steps = json!({ "a": a, "b": b, "c": undoable(&["a"], 1, "undo") });
    let endings = [Ending::Processed, Ending::Undone, Ending::UndoFailed];
    let outputs = vec![Value::Null];
    Setting { outputs, ..setting("impossible", steps, QUIET, &endings) }
}

/// Calls that are cut, or that nobody hears of, and that may go on at the service for a while.
fn slow_calls() -> Setting {
    let steps = json!({
        "a": undoable(&[], 2, "undo"), "b": step(&["a"], 1, "undo"), "c": undoable(&["a"], 1, "undo"),
    });
    let endings = [Ending::Processed, Ending::Undone, Ending::UndoFailed];
    let budget = Budget { deferrals: 1, ..QUIET };
    Setting { slow: true, ..setting("slow_calls", steps, budget, &endings) }
}

/// A task may lie for weeks: behind a dead letter, or while everything is down. What it refers to may expire.
fn weeks_pass() -> Setting {
    let mut a = undoable(&[], 2, "undo");
    a["undo"]["request"]["path"] = json!("/undo/${ steps.a.output.id }");
    let steps = json!({ "a": a, "b": undoable(&["a"], 1, "undo") });
    let endings = [Ending::Processed, Ending::Undone, Ending::UndoFailed];
    let budget = Budget { jumps: 3, ..QUIET };
    setting("weeks_pass", steps, budget, &endings)
}
