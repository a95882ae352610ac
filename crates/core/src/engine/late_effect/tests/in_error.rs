//! A task in Error: what has started goes on, each failure is alerted, and a full record halts it.

use super::{several_keys::show, *};
use crate::{engine::transition::stop_for_size, model::task::StopCause};

/// The reply to an attempt at a step.
fn reply_of(step: &str, attempt: u32, outcome: ReplyOutcome) -> Event {
    Event::ReplyReceived(reply_to_part(step, Action::Do, attempt, outcome))
}

/// A run in Error with a published alert: its step `mail` has failed, and `charge` is running.
fn mail_failed(more: Value) -> Run {
    let mut plan = json!({ "complete_within": "10m", "steps": {
        "mail": { "agent": "m", "complete_within": "30s", "request": { "path": "/m" }, "recovery": { "attempts": 1 } },
        "charge": { "agent": "c", "complete_within": "30s", "request": { "path": "/c" },
            "recovery": { "attempts": 3, "then": "undo" }, "undo": { "request": { "path": "/undo" } } },
    } });
    json_patch::merge(&mut plan, &more);
    let mut run = Run::new(plan, &Value::Null);
    run.send(&Event::Wake);
    run.send(&reply_of("mail", 1, failed(false)));
    assert_eq!(run.task.process_state, ProcessState::Error);
    publish_alert(&mut run);
    run
}

fn publish_alert(run: &mut Run) {
    let ended_at = run.task.ended_at.unwrap();
    run.send(&Event::AlertPublished { ended_at });
    assert!(!run.task.is_alert_due);
}

fn two_failed() -> Run {
    let alert = json!({ "recovery": { "attempts": 1, "then": "alert" } });
    let mut run = mail_failed(json!({ "steps": { "charge": alert } }));
    run.send(&reply_of("charge", 1, failed(false)));
    assert!(run.task.is_alert_due, "the second failure is alerted, too");
    publish_alert(&mut run);
    run
}

fn resubmit_mail() -> Event {
    let step = Some("mail".parse().unwrap());
    command(CommandAction::Resubmit { step, input: None, did_not_run: false })
}

fn without_room(run: &Run, event: &Event) -> Transition {
    stop_for_size(&run.plan, &run.task, event, run.context())
}

#[test]
fn a_full_record_halts_the_task_with_an_alert() {
    let run = mail_failed(json!({}));
    let decided = without_room(&run, &reply_of("charge", 1, completed()));
    let Transition::Apply { task, .. } = decided else { panic!("{decided:?}") };
    assert_eq!(task.stop_cause, StopCause::Halted);
    let error = task.error.unwrap();
    assert!(task.is_alert_due && error.contains("the task's record"), "{error}");
}

#[test]
fn a_command_that_finds_no_room_is_refused_and_halts_nothing() {
    let decided = without_room(&mail_failed(json!({})), &resubmit(None, false));
    let Transition::Ignore { effects, .. } = decided else { panic!("{decided:?}") };
    assert_eq!(effects.len(), 1, "{effects:?}");
}

#[test]
fn a_full_record_does_not_hide_that_the_task_was_processed() {
    let mut run = run_of_step(&json!(["a", "b"]), &json!({}), &Value::Null);
    run.send(&Event::Wake);
    run.reply(1, deferred(true));
    run.reply(2, completed());
    run.reply(1, completed());
    assert_eq!(run.task.stop_cause, StopCause::AfterProcessed);
    let decided = without_room(&run, &reply(2, completed()));
    assert!(matches!(decided, Transition::Ignore { .. }), "{decided:?}");
}

#[test]
fn a_resubmitted_step_that_fails_again_beside_a_failed_one_is_alerted() {
    let mut run = two_failed();
    assert_eq!(run.send(&resubmit_mail()), ["m #2"], "{}", show(&run));
    run.send(&reply_of("mail", 2, failed(false)));
    assert!(run.task.is_alert_due, "{}", show(&run));
}

#[test]
fn a_step_resubmitted_after_complete_by_beside_a_failed_one_starts() {
    let mut run = two_failed();
    run.now = 1_000;
    assert_eq!(run.send(&resubmit_mail()), ["m #2"], "{}", show(&run));
}

#[test]
fn a_point_of_no_return_that_runs_decides_whether_an_undo_wins() {
    for (outcome, state) in [
        (completed(), ProcessState::Error),
        (failed(true), ProcessState::Error),
        (failed(false), ProcessState::Undoing),
    ] {
        let ship = json!({ "agent": "s", "complete_within": "30s", "point_of_no_return": true, "request": { "path": "/s" } });
        let mut run = mail_failed(json!({ "steps": { "ship": ship } }));
        run.send(&reply_of("charge", 1, failed(true)));
        assert_eq!(run.task.process_state, ProcessState::Undoing, "{}", show(&run));
        run.send(&reply_of("ship", 1, outcome));
        assert_eq!(run.task.process_state, state, "{}", show(&run));
    }
}

#[test]
fn nothing_is_due_and_nobody_is_woken_after_complete_by() {
    let log = json!({ "agent": "l", "complete_within": "60s", "recovery": { "attempts": 2 }, "request": { "path": "/l" } });
    let mut run = mail_failed(json!({ "complete_within": "60s", "steps": { "log": log } }));
    run.send(&reply_of("charge", 1, deferred(false)));
    run.now = 70;
    run.send(&Event::Swept);
    assert_eq!(
        (run.task.process_state, run.task.due),
        (ProcessState::Error, None),
        "{}",
        show(&run)
    );
}
