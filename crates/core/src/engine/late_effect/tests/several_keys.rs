//! Several keys of a part whose effects come to light one after the other, also after an operator settled an undo by hand.

use super::*;

fn alert2() -> Run {
    let alert = json!({ "recovery": { "then": "alert" } });
    let mut run = run_of_step(&json!(["a", "b"]), &alert, &Value::Null);
    run.send(&Event::Wake);
    run
}

fn by_hand() -> Event {
    command(CommandAction::Complete { step: Some("a".parse().unwrap()), output: Value::Null })
}

fn skip(did_not_run: bool) -> Event {
    command(CommandAction::Skip { step: Some("a".parse().unwrap()), did_not_run })
}

pub(super) fn show(run: &Run) -> String {
    format!(
        "{:?} {:?} {}",
        run.task.process_state,
        run.task.error,
        serde_json::to_string(&run.task.steps).unwrap()
    )
}

#[test]
fn an_effect_of_the_key_in_use_after_the_undo_of_an_earlier_key_by_hand_is_undone() {
    for settle in [by_hand as fn() -> Event, || skip(false)] {
        let mut run = Run::in_order();
        run.reply(1, deferred(true));
        run.reply(2, failed(false));
        assert_eq!(run.task.process_state, ProcessState::Undone);
        assert_eq!(run.reply(1, completed()), ["undo at a #1"]);
        run.send(&reply_to(Action::Undo, 1, failed(false)));
        assert_eq!(run.task.process_state, ProcessState::Error);
        run.send(&settle());
        assert_eq!(run.task.process_state, ProcessState::Undone);
        let sent = run.reply(2, completed());
        assert!(
            sent.iter().any(|s| s.starts_with("undo at b"))
                || run.task.process_state == ProcessState::Error,
            "{sent:?} {}",
            show(&run)
        );
    }
}

#[test]
fn a_skip_of_the_undo_of_an_earlier_key_while_the_key_in_use_runs_does_not_cover_that_key() {
    let mut run = Run::in_order();
    run.reply(1, deferred(true));
    run.reply(1, completed());
    run.send(&command(CommandAction::Undo));
    run.send(&skip(false));
    let sent = run.reply(2, completed());
    assert!(
        sent.iter().any(|s| s.starts_with("undo at b"))
            || run.task.process_state == ProcessState::Error,
        "{sent:?} {}",
        show(&run)
    );
}

#[test]
fn undo_covers_a_stray_effect_although_another_ran_beside_a_completion() {
    for stray_first in [true, false] {
        let mut run = alert2();
        run.reply(1, deferred(true));
        run.reply(2, failed(false));
        run.send(&by_hand());
        let order = if stray_first { [1, 2] } else { [2, 1] };
        for attempt in order {
            run.reply(attempt, completed());
            assert_eq!(run.task.process_state, ProcessState::Error);
        }
        let sent = run.send(&command(CommandAction::Undo));
        assert_eq!(sent, ["undo at a #1"], "{}", show(&run));
    }
}

#[test]
fn a_reply_belongs_to_the_agent_that_it_names_after_the_agents_start_again_from_the_first() {
    let mut run = alert2();
    run.reply(1, deferred(true)); // b 2
    run.reply(2, deferred(true)); // wait, a
    run.now += 20;
    assert_eq!(run.send(&Event::Wake), ["a #3 exclusive"]);
    assert_eq!(run.reply(3, deferred(true)), ["b #4 exclusive"]);
    let Event::ReplyReceived(mut late) = reply(3, completed()) else { unreachable!() };
    late.agent = Some("a".parse().unwrap());
    run.send(&Event::ReplyReceived(late));
    assert_eq!(run.task.error.as_deref(), Some("step a: attempt 3 ran at a too"));
}

#[test]
fn a_task_is_undone_further_for_each_key() {
    for order in [[1, 2, 3], [3, 2, 1], [2, 3, 1]] {
        let mut run = Run::in_order();
        run.reply(1, deferred(true));
        run.reply(2, deferred(true));
        run.reply(3, failed(false));
        for (undo, attempt) in (1..).zip(order) {
            assert_eq!(run.task.process_state, ProcessState::Undone);
            let at = ["a", "b", "c"][attempt as usize - 1];
            assert_eq!(run.reply(attempt, completed()), [format!("undo at {at} #{undo}")]);
            run.send(&reply_to(Action::Undo, undo, completed()));
        }
        assert_eq!(run.task.process_state, ProcessState::Undone);
    }
}

#[test]
fn an_earlier_key_after_the_undo_of_the_key_in_use_by_hand_is_undone() {
    for settle in [by_hand as fn() -> Event, || skip(false)] {
        let mut run = alert2();
        run.reply(1, deferred(true));
        run.reply(2, completed());
        assert_eq!(run.send(&command(CommandAction::Undo)), ["undo at b #1"]);
        run.send(&reply_to(Action::Undo, 1, failed(false)));
        run.send(&settle());
        assert_eq!(run.task.process_state, ProcessState::Undone);
        let sent = run.reply(1, completed());
        assert!(sent.iter().any(|s| s.starts_with("undo at a")), "{sent:?} {}", show(&run));
    }
}

#[test]
fn the_late_completion_of_a_deferred_undo_begins_that_of_the_next_key() {
    let mut run = run_of_step(&json!(["a", "b"]), &json!({}), &Value::Null);
    run.send(&Event::Wake);
    run.reply(1, deferred(true));
    run.reply(2, completed());
    run.reply(1, completed());
    assert_eq!(run.send(&command(CommandAction::Undo)), ["undo at a #1"]);
    run.send(&reply_to(Action::Undo, 1, deferred(false)));
    assert_eq!(run.send(&reply_to(Action::Undo, 1, completed())), ["undo at b #2"]);
}

#[test]
fn an_operator_settles_the_undo_of_one_key_and_that_of_the_next_begins() {
    // A completion by hand has a number of its own.
    for (settle, next) in [(by_hand as fn() -> Event, 3), (|| skip(false), 2)] {
        let mut run = Run::in_order();
        run.reply(1, deferred(true));
        run.reply(2, completed());
        run.reply(1, completed());
        assert_eq!(run.send(&command(CommandAction::Undo)), ["undo at a #1"], "{}", show(&run));
        run.send(&reply_to(Action::Undo, 1, failed(false)));
        assert_eq!(run.task.process_state, ProcessState::Error);
        assert_eq!(run.send(&settle()), [format!("undo at b #{next}")], "{}", show(&run));
        run.send(&reply_to(Action::Undo, next, completed()));
        assert_eq!(run.task.process_state, ProcessState::Undone, "{}", show(&run));
    }
}
