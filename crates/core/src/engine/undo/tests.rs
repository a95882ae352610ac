//! Tasks whose undo had begun when the point of no return took effect, as functions before 2026-11-27 stored them.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;

use super::*;
use crate::{
    definition::plan::Plan,
    engine::{
        decision::{DecisionContext, Transition},
        documents::LoadedDocuments,
        event::Event,
        transition::transition,
    },
    model::{
        command::{Command, CommandAction},
        messages::{ReplyOutcome, StepReply},
        step::{Progress, StepRecord},
        task::Task,
        time::Timing,
    },
};

/// A task in this state, in which `a` is undone, `p` is the point of no return in this state, and `z` has failed for good.
fn stored(state: &str, undo_reason: Option<&str>, p: StepState) -> (Plan, Task) {
    let step = |path: &str| json!({ "agent": path, "request": { "path": "/x" } });
    let mut steps = json!({ "a": step("a"), "p": step("p"), "z": step("z") });
    steps["a"]["undo"] = json!({ "request": { "path": "/undo" } });
    steps["p"]["point_of_no_return"] = true.into();
    let plan = json!({ "name": "w", "version": 1, "steps": steps });
    let mut task: Task = serde_json::from_value(json!({
        "task_id": "t", "workflow": "w", "v": 1, "process_state": state, "revision": 1,
        "complete_by": 900_000, "submitted_at": 0, "undo_reason": undo_reason,
    }))
    .unwrap();
    let completed = StepState::Completed { attempt: Some(1) };
    let mut a = StepRecord::new(completed.clone());
    a.undo = Some(Progress::new(completed));
    let z = StepRecord::new(StepState::Failed { attempt: Some(1) });
    for (name, record) in [("a", a), ("p", StepRecord::new(p)), ("z", z)] {
        task.steps.insert(name.parse().unwrap(), record);
    }
    (serde_json::from_value(plan).unwrap(), task)
}

fn decide(plan: &Plan, task: &Task, event: &Event) -> Task {
    let (pickup_within, clock_skew) = (Duration::ZERO, Duration::ZERO);
    let context = DecisionContext {
        now: Timestamp::from_second(1).unwrap(),
        actor: "test",
        redelivered: false,
        lost_starts: None,
        timing: Timing { pickup_within, clock_skew, retention: Timing::RETENTION },
        callback_urls: None,
    };
    match transition(plan, task, &LoadedDocuments::new(), event, context).unwrap() {
        Transition::Apply { task, .. } => *task,
        other @ (Transition::Ignore { .. } | Transition::Illegal(_)) => panic!("{other:?}"),
    }
}

fn commanded(plan: &Plan, task: &Task, id: &str, order: CommandAction) -> Task {
    let (command_id, task_id) = (id.parse().unwrap(), task.task_id.clone());
    let (by, why) = ("ann".to_owned(), "a test".to_owned());
    let command = Command { command_id, task_id, by, why, order, issued_at: None };
    decide(plan, task, &Event::CommandReceived(command.received_from("AIDAANN".parse().unwrap())))
}

#[test]
fn a_task_that_went_forward_cannot_be_undone_after_its_point_of_no_return() {
    let p = StepState::Completed { attempt: Some(1) };
    let (plan, task) = stored("Error", None, p);
    let after = commanded(&plan, &task, "c-1", CommandAction::Undo);
    let refused = after.commands[0].refused.as_deref();
    assert_eq!(refused, Some("the task is past its point of no return, step p"));
}

#[test]
fn an_undo_that_has_begun_stops_once_for_the_point_of_no_return_and_then_ends() {
    let p = StepState::Completed { attempt: Some(1) };
    let (plan, task) = stored("Undoing", Some("z failed"), p);
    let stopped = decide(&plan, &task, &Event::Wake);
    assert_eq!(stopped.process_state, ProcessState::Error);
    assert_eq!(stopped.error.as_deref(), Some("step p took effect after the undo began"));
    let order = || CommandAction::Resubmit { step: None, input: None, did_not_run: false };
    let ended = commanded(&plan, &stopped, "c-1", order());
    assert_eq!(ended.process_state, ProcessState::Undone, "{:?}", ended.error);
}

#[test]
fn an_undo_that_has_begun_waits_for_a_running_point_of_no_return() {
    let complete_by = Timestamp::from_second(60).unwrap();
    let (plan, task) = stored("Error", None, StepState::Running { attempt: 1, complete_by });
    let undoing = commanded(&plan, &task, "c-1", CommandAction::Undo);
    assert_eq!(undoing.process_state, ProcessState::Undoing);
    assert_eq!(order::point_of_no_return(&plan, &undoing), PointOfNoReturn::Running);
}

/// The reply that `p` has run after all.
fn late_success() -> Event {
    let outcome = ReplyOutcome::Completed { output: json!({}), may_continue: false };
    Event::ReplyReceived(StepReply {
        task_id: "t".parse().unwrap(),
        step: "p".parse().unwrap(),
        action: Action::Do,
        attempt: 1,
        outcome,
        incarnation: None,
        times: Default::default(),
        agent: None,
    })
}

#[test]
fn a_task_that_went_forward_again_goes_on_after_its_point_of_no_return() {
    let (plan, task) = stored("Processing", None, StepState::Failed { attempt: Some(1) });
    let after = decide(&plan, &task, &late_success());
    assert_eq!((after.error, after.undo_is_final), (None, false));
}

#[test]
fn the_undo_of_a_late_point_of_no_return_waits_for_the_undo_of_the_step_after_it() {
    let (plan, mut task) =
        stored("Undoing", Some("z failed"), StepState::Failed { attempt: Some(1) });
    let mut definition = serde_json::to_value(&*plan).unwrap();
    definition["steps"]["p"]["undo"] = json!({ "request": { "path": "/undo" } });
    definition["steps"]["a"]["after"] = json!(["p"]);
    let plan: Plan = serde_json::from_value(definition).unwrap();
    let a = task.steps.get_mut("a").unwrap();
    a.undo.as_mut().unwrap().state = StepState::Failed { attempt: Some(1) };
    let stopped = decide(&plan, &task, &late_success());
    assert_eq!(stopped.process_state, ProcessState::Error);
    let order = || CommandAction::Resubmit { step: None, input: None, did_not_run: false };
    let undoing = commanded(&plan, &stopped, "c-1", order());
    let undo = |name: &str| undoing.steps[name].undo.clone().map(|undo| undo.state);
    assert!(matches!(undo("a"), Some(StepState::Running { .. })), "{:?}", undo("a"));
    assert_eq!(undo("p"), None);
}
