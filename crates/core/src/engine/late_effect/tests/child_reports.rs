//! The reports of child tasks: of the child in use, and of one from before an edit of the input. The reports of a child are
//! ordered by its revision, in whatever order they arrive.

use super::{several_keys::show, *};
use crate::model::messages::ChildOutcome;

fn child_run() -> Run {
    Run::new(
        json!({ "complete_within": "10m", "steps": { "a": {
        "workflow": { "name": "c", "version": 1, "input": "${ input }" }, "recovery": { "attempts": 1, "then": "alert" } } } }),
        &Value::Null,
    )
}

fn ended(child: &str, revision: u64, outcome: ChildOutcome) -> Event {
    Event::ChildEnded {
        step: "a".parse().unwrap(),
        outcome,
        attempt: None,
        child: Some(child.parse().unwrap()),
        revision: Some(revision),
    }
}

fn undone() -> ChildOutcome {
    ChildOutcome::Undone { reason: "r".to_owned() }
}

fn child_error(not_undone: bool) -> ChildOutcome {
    ChildOutcome::Error { reason: "r".to_owned(), not_undone, was_processed: false }
}

fn processed() -> ChildOutcome {
    ChildOutcome::Processed { output: Value::Null }
}

fn submissions(run: &mut Run, event: &Event) -> Vec<String> {
    let (Transition::Apply { effects, .. } | Transition::Ignore { effects, .. }) =
        run.decide_next(event)
    else {
        panic!()
    };
    effects
        .iter()
        .filter_map(|effect| {
            let Effect::Submit(submission) = effect else { return None };
            let undo = if submission.undo { "undo " } else { "" };
            Some(format!("{undo}{}", submission.task_id))
        })
        .collect()
}

/// A run whose first child was Undone, and whose second one runs with an edited input; and the id of the second.
fn two_children() -> (Run, String) {
    let mut run = child_run();
    assert_eq!(submissions(&mut run, &Event::Wake), ["t:a"]);
    run.send(&ended("t:a", 3, undone()));
    assert_eq!(run.task.process_state, ProcessState::Error);
    let second = submissions(&mut run, &resubmit(Some(json!({ "n": 2 })), false))[0].clone();
    (run, second)
}

/// The same, after the second child has reported this end: the first ran after all, and is being undone.
fn undo_of_the_first(second_reports: Option<ChildOutcome>) -> (Run, String) {
    let (mut run, second) = two_children();
    if let Some(outcome) = second_reports {
        run.send(&ended(&second, 4, outcome));
    }
    run.send(&ended("t:a", 5, child_error(false)));
    assert_eq!(run.task.process_state, ProcessState::Error);
    assert_eq!(submissions(&mut run, &command(CommandAction::Undo)), ["undo t:a"]);
    (run, second)
}

#[test]
fn the_report_of_the_child_in_use_does_not_end_the_undo_of_the_earlier_one() {
    let (mut run, second) = undo_of_the_first(None);
    run.send(&ended(&second, 4, undone()));
    assert_ne!(run.task.process_state, ProcessState::Undone, "{}", show(&run));
    let earlier = &run.task.steps["a"].earlier[0];
    assert!(!earlier.undone, "{}", show(&run));
}

#[test]
fn the_child_in_use_that_ran_after_all_during_the_undo_of_the_earlier_one_is_undone() {
    let (mut run, second) = undo_of_the_first(Some(undone()));
    run.send(&ended(&second, 6, child_error(false)));
    let sent = submissions(&mut run, &ended("t:a", 7, undone()));
    assert!(
        sent == [format!("undo {second}")] || run.task.process_state == ProcessState::Error,
        "{sent:?} {}",
        show(&run)
    );
}

#[test]
fn the_revision_of_the_earlier_child_does_not_count_for_the_one_in_use() {
    let (mut run, second) = undo_of_the_first(Some(processed()));
    run.send(&ended("t:a", 6, child_error(true)));
    assert_eq!(run.task.process_state, ProcessState::Error);
    run.send(&ended("t:a", 9, undone()));
    assert_eq!(submissions(&mut run, &resubmit(None, false)), ["undo t:a"]);
    let sent = submissions(&mut run, &ended("t:a", 9, undone()));
    assert_eq!(sent, [format!("undo {second}")]);
    run.send(&ended(&second, 5, undone()));
    assert_eq!(run.task.process_state, ProcessState::Undone, "{}", show(&run));
}

#[test]
fn a_redelivered_report_of_the_earlier_child_shows_nothing_new() {
    let mut run = child_run();
    run.send(&Event::Wake);
    run.send(&ended("t:a", 3, child_error(false)));
    run.send(&ended("t:a", 5, undone()));
    assert_eq!(submissions(&mut run, &resubmit(Some(json!({ "n": 2 })), false)).len(), 1);
    run.send(&ended("t:a", 3, child_error(false)));
    assert_eq!(run.task.process_state, ProcessState::Processing, "{}", show(&run));
}

#[test]
fn a_later_error_of_the_earlier_child_counts_after_a_statement_and_its_undo_settles_it() {
    let mut run = child_run();
    run.send(&Event::Wake);
    run.send(&ended("t:a", 3, undone()));
    let sent = submissions(&mut run, &resubmit(Some(json!({ "n": 2 })), true));
    run.send(&ended(&sent[0], 1, processed()));
    assert_eq!(run.task.process_state, ProcessState::Processed);
    run.send(&ended("t:a", 5, child_error(false)));
    assert_eq!(run.task.process_state, ProcessState::Error, "{}", show(&run));
    run.send(&ended("t:a", 7, undone()));
    assert!(!run.task.steps["a"].has_stray_effect(), "{}", show(&run));
    run.send(&ended("t:a", 5, child_error(false)));
    assert!(!run.task.steps["a"].has_stray_effect(), "{}", show(&run));
}

#[test]
fn an_older_report_of_an_earlier_child_after_its_undo_is_ignored() {
    let (mut run, second) = two_children();
    run.send(&ended(&second, 4, undone()));
    run.send(&ended("t:a", 5, child_error(false)));
    assert_eq!(submissions(&mut run, &command(CommandAction::Undo)), ["undo t:a"]);
    run.send(&ended("t:a", 8, undone()));
    assert_eq!(run.task.process_state, ProcessState::Undone, "{}", show(&run));
    // Sent before revision 8, delivered after it.
    let sent = submissions(&mut run, &ended("t:a", 6, child_error(false)));
    assert_eq!(
        (run.task.process_state, sent.len()),
        (ProcessState::Undone, 0),
        "{sent:?} {}",
        show(&run)
    );
}

#[test]
fn an_older_report_of_an_earlier_child_in_error_is_no_alert() {
    let (mut run, second) = two_children();
    run.send(&ended(&second, 4, processed()));
    run.send(&ended("t:a", 5, child_error(false)));
    assert_eq!(submissions(&mut run, &command(CommandAction::Undo)), ["undo t:a"]);
    assert_eq!(submissions(&mut run, &ended("t:a", 8, undone())), [format!("undo {second}")]);
    run.send(&ended(&second, 6, child_error(true)));
    assert_eq!(run.task.process_state, ProcessState::Error);
    let error = run.task.error.clone();
    run.send(&ended("t:a", 6, child_error(true)));
    assert_eq!(run.task.error, error, "{}", show(&run));
}

#[test]
fn a_child_in_use_that_took_effect_after_its_undo_counts_although_an_earlier_one_was_undone_since()
{
    for second_ends in [processed(), child_error(false)] {
        let (mut run, second) = two_children();
        run.send(&ended(&second, 4, second_ends.clone()));
        let sent = submissions(&mut run, &command(CommandAction::Undo));
        assert_eq!(sent, [format!("undo {second}")]);
        run.send(&ended(&second, 6, undone()));
        assert_eq!(run.task.process_state, ProcessState::Undone);
        // The earlier child takes effect, and is undone.
        assert_eq!(submissions(&mut run, &ended("t:a", 5, child_error(false))), ["undo t:a"]);
        run.send(&ended("t:a", 7, undone()));
        assert_eq!(run.task.process_state, ProcessState::Undone, "{}", show(&run));
        // The child in use takes effect after its undo, and could not be undone.
        let sent = submissions(&mut run, &ended(&second, 9, child_error(true)));
        assert_eq!(sent, [format!("undo {second}")], "{}", show(&run));
        run.send(&ended(&second, 9, child_error(true)));
        assert_eq!(run.task.process_state, ProcessState::Error, "{}", show(&run));
    }
}

#[test]
fn a_child_in_use_that_took_effect_after_its_undo_counts() {
    for second_ends in [processed(), child_error(false)] {
        let (mut run, second) = two_children();
        run.send(&ended(&second, 4, second_ends.clone()));
        submissions(&mut run, &command(CommandAction::Undo));
        run.send(&ended(&second, 6, undone()));
        assert_eq!(run.task.process_state, ProcessState::Undone);
        run.send(&ended(&second, 9, child_error(true)));
        assert_eq!(run.task.process_state, ProcessState::Error, "{}", show(&run));
    }
}

#[test]
fn an_older_undone_of_an_earlier_child_does_not_override_its_newer_error() {
    let (mut run, second) = two_children();
    run.send(&ended(&second, 4, processed()));
    run.send(&ended("t:a", 5, child_error(false)));
    assert!(run.task.steps["a"].has_stray_effect());
    run.send(&ended("t:a", 9, child_error(true)));
    run.send(&ended("t:a", 6, undone()));
    let stray = run.task.steps["a"].has_stray_effect();
    let sent = submissions(&mut run, &command(CommandAction::Undo));
    assert!(stray && sent == ["undo t:a"], "{sent:?} {}", show(&run));
}

#[test]
fn an_older_undone_does_not_end_the_undo_of_an_earlier_child() {
    let (mut run, second) = two_children();
    run.send(&ended(&second, 4, undone()));
    run.send(&ended("t:a", 9, child_error(true)));
    assert_eq!(submissions(&mut run, &command(CommandAction::Undo)), ["undo t:a"]);
    run.send(&ended("t:a", 6, undone()));
    assert_eq!(run.task.process_state, ProcessState::Undoing, "{}", show(&run));
}

#[test]
fn an_older_undone_does_not_end_the_undo_of_the_child_in_use() {
    let mut run = child_run();
    submissions(&mut run, &Event::Wake);
    run.send(&ended("t:a", 9, child_error(true)));
    assert_eq!(submissions(&mut run, &command(CommandAction::Undo)), ["undo t:a"]);
    run.send(&ended("t:a", 6, undone()));
    assert_eq!(run.task.process_state, ProcessState::Undoing, "{}", show(&run));
}

#[test]
fn a_newer_effect_of_an_earlier_child_after_its_undo_is_undone() {
    let (mut run, second) = two_children();
    run.send(&ended(&second, 4, undone()));
    run.send(&ended("t:a", 5, child_error(false)));
    assert_eq!(submissions(&mut run, &command(CommandAction::Undo)), ["undo t:a"]);
    run.send(&ended("t:a", 8, undone()));
    let sent = submissions(&mut run, &ended("t:a", 10, child_error(true)));
    assert_eq!(
        (run.task.process_state, sent.len()),
        (ProcessState::Undoing, 1),
        "{sent:?} {}",
        show(&run)
    );
}

#[test]
fn all_orders_of_the_reports_of_a_child_give_one_end() {
    let reports = [(5, child_error(false)), (6, undone()), (9, child_error(true))];
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let (mut earlier, second) = two_children();
        earlier.send(&ended(&second, 4, processed()));
        let mut in_use = child_run();
        submissions(&mut in_use, &Event::Wake);
        for run in [&mut earlier, &mut in_use] {
            for (revision, outcome) in order.map(|index: usize| reports[index].clone()) {
                run.send(&ended("t:a", revision, outcome));
            }
            let sent = submissions(run, &command(CommandAction::Undo));
            assert_eq!(sent, ["undo t:a"], "{order:?} {}", show(run));
        }
    }
}
