//! Steps with several agents: which agent gets a request, and what happens after an effect that the undo does not revert.

use serde_json::{Value, json};

use super::*;
use crate::{
    engine::{
        decision::{IgnoreReason, Transition},
        effect::Effect,
        event::Event,
        tests::{TaskDriver as Run, at, failed, new_command as command, reply as reply_to_part},
    },
    model::{
        command::CommandAction,
        messages::StepRequest,
        task::{ProcessState, Task},
    },
};

mod child_reports;
mod in_error;
mod requests_sent_again;
mod several_keys;
mod stray_effects;

/// A task of a workflow whose step `a` is undone when it fails, with these keys besides.
fn run_of_step(agent: &Value, more: &Value, input: &Value) -> Run {
    let mut step = json!({
        "agent": agent, "complete_within": "30s", "request": { "path": "/a" },
        "recovery": { "then": "undo" }, "undo": { "request": { "path": "/undo" } },
    });
    json_patch::merge(&mut step, more);
    Run::new(json!({ "complete_within": "10m", "steps": { "a": step } }), input)
}

impl Run {
    /// A run whose agents `a`, `b` and `c` are tried in order, after its first wake.
    fn in_order() -> Self {
        let mut run = run_of_step(&json!(["a", "b", "c"]), &json!({}), &Value::Null);
        assert_eq!(run.send(&Event::Wake), ["a #1 exclusive"]);
        run
    }

    /// Decides on an event a second after the event before.
    fn decide_next(&mut self, event: &Event) -> Transition {
        self.now += 1;
        self.decide(event)
    }

    /// The requests that an event causes: the agent, the attempt, and whether the request is exclusive.
    fn send(&mut self, event: &Event) -> Vec<String> {
        match self.decide_next(event) {
            Transition::Apply { effects, .. } | Transition::Ignore { effects, .. } => {
                requests(&effects)
            }
            Transition::Illegal(reason) => panic!("{reason}"),
        }
    }

    fn reply(&mut self, attempt: u32, outcome: ReplyOutcome) -> Vec<String> {
        self.send(&reply(attempt, outcome))
    }

    fn run(&self) -> &crate::model::step::Progress {
        &self.task.steps["a"].forward
    }
}

fn requests(effects: &[Effect]) -> Vec<String> {
    let text = |effect: &Effect| {
        let Effect::Request(StepRequest { agent, attempt, exclusive, action, .. }) = effect else {
            return None;
        };
        let undo = if *action == Action::Undo { "undo at " } else { "" };
        let exclusive = if *exclusive { " exclusive" } else { "" };
        Some(format!("{undo}{agent} #{attempt}{exclusive}"))
    };
    effects.iter().filter_map(text).collect()
}

fn reply(attempt: u32, outcome: ReplyOutcome) -> Event {
    reply_to(Action::Do, attempt, outcome)
}

fn reply_to(action: Action, attempt: u32, outcome: ReplyOutcome) -> Event {
    Event::ReplyReceived(reply_to_part("a", action, attempt, outcome))
}

fn deferred(certain: bool) -> ReplyOutcome {
    let reason = "circuit breaker open".to_owned();
    ReplyOutcome::Deferred {
        reason,
        retry_after_ms: 10_000,
        may_have_run: false,
        certain,
        call_in_doubt: false,
        detail: None,
    }
}

fn completed() -> ReplyOutcome {
    ReplyOutcome::Completed { output: Value::Null, may_continue: false }
}

fn resubmit(input: Option<Value>, did_not_run: bool) -> Event {
    command(CommandAction::Resubmit { step: None, input, did_not_run })
}

#[test]
fn a_certain_refusal_moves_the_step_on_to_the_next_agent_at_once_and_counts_no_failure() {
    let mut run = Run::in_order();
    assert_eq!(run.reply(1, deferred(true)), ["b #2 exclusive"]);
    assert_eq!(run.reply(2, deferred(true)), ["c #3 exclusive"]);
    assert_eq!(run.reply(3, completed()), [""; 0]);
    assert_eq!((run.task.process_state, run.task.failure_count), (ProcessState::Processed, 0));
    assert_eq!((run.run().agent, run.run().key_since), (Some(2), Some(3)));
}

#[test]
fn after_the_last_agent_the_step_waits_and_starts_again_with_the_first() {
    let mut run = Run::in_order();
    run.reply(1, deferred(true));
    run.reply(2, deferred(true));
    assert_eq!(run.reply(3, deferred(true)), [""; 0]);
    assert_eq!(run.run().state.name(), "waiting");
    assert_eq!(run.send(&Event::Wake), [""; 0], "it waits for as long as the last agent said");
    run.now += 10;
    assert_eq!(run.send(&Event::Wake), ["a #4 exclusive"]);
    assert!(!run.run().may_have_run, "no delivery of an earlier request can run it");
    assert_eq!(run.reply(4, deferred(true)), ["b #5 exclusive"]);
}

#[test]
fn no_agent_gets_a_request_before_its_pause_is_over() {
    let mut run = run_of_step(&json!(["a", "b", "c"]), &json!({}), &json!({}));
    let refused = |certain, seconds: u64| {
        let reason = "Retry-After".to_owned();
        ReplyOutcome::Deferred {
            reason,
            retry_after_ms: seconds * 1_000,
            may_have_run: false,
            certain,
            call_in_doubt: false,
            detail: None,
        }
    };
    run.send(&Event::Wake);
    assert_eq!(run.reply(1, refused(true, 300)), ["b #2 exclusive"]);
    assert_eq!(run.reply(2, refused(true, 100)), ["c #3 exclusive"]);
    run.reply(3, refused(true, 3_600));
    // Each event takes a second.
    run.now += 90;
    assert_eq!(run.send(&Event::Wake), [""; 0]);
    run.now += 10;
    assert_eq!(run.send(&Event::Wake), ["b #4 exclusive"], "the first whose pause is over");
    assert_eq!(run.reply(4, refused(true, 400)), [""; 0], "c asked for an hour");
    run.now += 200;
    assert_eq!(run.send(&Event::Wake), ["a #5 exclusive"]);
    assert_eq!(run.reply(5, refused(true, 9_000)), [""; 0]);
    run.now += 200;
    assert_eq!(run.send(&Event::Wake), ["b #6 exclusive"]);
    run.reply(6, refused(false, 50));
    run.now += 40;
    assert_eq!(run.send(&Event::Wake), [""; 0], "the step stays with b, and waits as it says");
}

#[test]
fn a_pause_of_all_agents_past_the_deadline_is_an_error_at_once() {
    let mut run = Run::in_order();
    let year = |attempt| {
        let mut year = deferred(true);
        if let ReplyOutcome::Deferred { retry_after_ms, .. } = &mut year {
            *retry_after_ms = 31_536_000_000;
        }
        (attempt, year)
    };
    for (attempt, year) in [1, 2, 3].map(year) {
        assert_eq!(run.task.process_state, ProcessState::Processing);
        run.reply(attempt, year);
    }
    assert_eq!(run.task.process_state, ProcessState::Error);
}

#[test]
fn a_refusal_that_is_not_certain_keeps_the_agent_for_all_attempts_and_the_undo() {
    let mut run = Run::in_order();
    run.reply(1, deferred(true));
    assert_eq!(run.reply(2, deferred(false)), [""; 0]);
    run.now += 10;
    // Another delivery of attempt 2 may run, so nothing is certain any more.
    assert_eq!(run.send(&Event::Wake), ["b #3"]);
    assert_eq!(run.reply(3, deferred(true)), [""; 0]);
    run.now += 10;
    assert_eq!(run.send(&Event::Wake), ["b #4"]);
    assert_eq!(run.reply(4, failed(false)), [""; 0], "the undo waits for the calls");
    assert_eq!(run.task.process_state, ProcessState::Undoing);
    run.now += 200;
    assert_eq!(run.send(&Event::Wake), ["undo at b #1"]);
    let undone = reply_to(Action::Undo, 1, deferred(true));
    assert_eq!(run.send(&undone), [""; 0], "an undo never moves on");
    run.now += 10;
    assert_eq!(run.send(&Event::Wake), ["undo at b #2"]);
}

#[test]
fn a_request_lost_after_the_move_is_sent_again_with_the_redelivered_refusal() {
    let mut run = Run::in_order();
    assert_eq!(run.reply(1, deferred(true)), ["b #2 exclusive"]);
    assert_eq!(run.reply(1, deferred(true)), [""; 0], "a second reply repeats nothing");
    run.redelivered = true;
    assert_eq!(run.reply(1, deferred(true)), ["b #2 exclusive"]);
    assert_eq!(run.reply(1, deferred(false)), [""; 0], "that reply started nothing");
    run.redelivered = false;
    run.reply(2, deferred(true));
    run.redelivered = true;
    assert_eq!(run.reply(1, deferred(true)), [""; 0], "the step is further on");
}

#[test]
fn an_agent_that_ran_a_step_after_its_refusal_stops_a_task_that_goes_forward_or_is_processed() {
    let evidence = [
        completed(),
        failed(true),
        ReplyOutcome::Unknown { reason: "cut".to_owned(), detail: None },
    ];
    for outcome in evidence {
        for end in [None, Some(completed())] {
            let mut run = Run::in_order();
            run.reply(1, deferred(true));
            if let Some(end) = end {
                run.reply(2, end);
            }
            run.reply(1, outcome.clone());
            assert_eq!(run.task.process_state, ProcessState::Error);
            let ran = if outcome == completed() { "ran" } else { "may have run" };
            let expected = format!("step a: attempt 1 {ran} at a too");
            assert_eq!(run.task.error, Some(expected));
            let again = run.decide_next(&reply(1, outcome.clone()));
            let stale = matches!(again, Transition::Ignore { .. });
            assert!(stale, "it is recorded once: {again:?}");
        }
    }
}

#[test]
fn an_effect_at_another_agent_is_undone_there_although_the_task_was_undone() {
    for outcome in [completed(), failed(true)] {
        let mut run = Run::in_order();
        run.reply(1, deferred(true));
        run.reply(2, failed(false));
        assert_eq!(run.task.process_state, ProcessState::Undone);
        let at_once = run.reply(1, outcome.clone());
        assert_eq!(run.task.process_state, ProcessState::Undoing);
        run.now += 200;
        let later = run.send(&Event::Wake);
        assert_eq!([at_once, later].concat(), ["undo at a #1"]);
        run.send(&reply_to(Action::Undo, 1, completed()));
        assert_eq!(run.task.process_state, ProcessState::Undone);
        let again = run.decide_next(&reply(1, outcome));
        assert!(matches!(again, Transition::Ignore { .. }), "it is undone: {again:?}");
    }
}

#[test]
fn each_key_of_a_part_is_undone_at_its_own_agent() {
    let mut run = Run::in_order();
    run.reply(1, deferred(true));
    run.reply(2, deferred(true));
    run.reply(3, completed());
    run.reply(2, completed());
    run.reply(1, completed());
    assert_eq!(run.send(&command(CommandAction::Undo)), ["undo at b #1"]);
    assert_eq!(run.send(&reply_to(Action::Undo, 1, completed())), ["undo at a #2"]);
    assert_eq!(run.send(&reply_to(Action::Undo, 2, completed())), ["undo at c #3"]);
    run.send(&reply_to(Action::Undo, 3, completed()));
    assert_eq!(run.task.process_state, ProcessState::Undone);
}

#[test]
fn the_undo_of_an_earlier_key_reads_the_input_and_the_output_of_that_key() {
    let more = json!({
        "recovery": { "then": "alert" }, "request": { "body": "${ input }" },
        "undo": { "request": { "body": ["${ input }", "${ steps.a.output }"] } },
    });
    let mut run = run_of_step(&json!("a"), &more, &json!({ "n": 1 }));
    run.send(&Event::Wake);
    run.reply(1, failed(false));
    run.send(&resubmit(Some(json!({ "n": 2 })), false));
    run.reply(2, ReplyOutcome::Completed { output: json!("second"), may_continue: false });
    run.reply(1, ReplyOutcome::Completed { output: json!("first"), may_continue: false });
    let error = run.task.error.as_deref();
    assert_eq!(error, Some("step a: attempt 1 ran with the input before its edit too"));
    let body = |decided: Transition| {
        let Transition::Apply { effects, .. } = decided else { panic!("{decided:?}") };
        let request = effects.into_iter().find_map(|effect| {
            let Effect::Request(request) = effect else { return None };
            Some(request)
        });
        let request = request.unwrap();
        (request.idempotency_key, request.body.unwrap().as_str().to_owned())
    };
    let (key, first) = body(run.decide_next(&command(CommandAction::Undo)));
    assert_eq!((&*key, &*first), ("t/a/undo", r#"[{"n":1},"first"]"#));
    let (key, second) = body(run.decide_next(&reply_to(Action::Undo, 1, completed())));
    assert!(key.starts_with("t/a/undo/c-"), "{key}");
    assert_eq!(second, r#"[{"n":2},"second"]"#);
    run.send(&reply_to(Action::Undo, 2, completed()));
    assert_eq!(run.task.process_state, ProcessState::Undone);
}

#[test]
fn an_edit_is_refused_once_a_part_has_the_most_earlier_keys() {
    let alert = json!({ "recovery": { "then": "alert" } });
    let mut run = run_of_step(&json!("a"), &alert, &json!({ "n": 0 }));
    run.send(&Event::Wake);
    for attempt in 1..=20 {
        run.reply(attempt, failed(false));
        let edit = resubmit(Some(json!({ "n": attempt })), false);
        assert_eq!(run.send(&edit), [format!("a #{}", attempt + 1)]);
    }
    run.reply(21, failed(false));
    let issued_now = |run: &Run, event: Event| {
        let Event::CommandReceived(mut received) = event else { unreachable!() };
        received.command.issued_at = at(run.now);
        Event::CommandReceived(received)
    };
    let edit = issued_now(&run, resubmit(Some(json!({ "n": 21 })), false));
    assert_eq!(run.send(&edit), [""; 0]);
    let refused = run.task.commands.last().unwrap().refused.as_ref().unwrap();
    assert!(refused.contains("edited too often"), "{refused}");
    let again = issued_now(&run, resubmit(None, false));
    assert_eq!(run.send(&again), ["a #22"], "without an edit");
}

#[test]
fn a_late_refusal_is_no_stray_effect() {
    let mut run = Run::in_order();
    run.reply(1, deferred(true));
    for late in [deferred(true), deferred(false), failed(false)] {
        let decided = run.decide_next(&reply(1, late));
        let expected = Transition::Ignore { reason: IgnoreReason::StaleReply, effects: Vec::new() };
        assert_eq!(decided, expected);
    }
}

#[test]
fn a_stray_effect_between_a_refusal_and_its_redelivery_loses_no_request() {
    let alert = json!({ "recovery": { "then": "alert" } });
    let mut run = run_of_step(&json!(["a", "b"]), &alert, &Value::Null);
    run.send(&Event::Wake);
    run.reply(1, failed(false));
    run.send(&resubmit(None, false));
    run.reply(2, deferred(true));
    run.reply(1, completed());
    run.send(&resubmit(None, false));
    assert_eq!(run.task.process_state, ProcessState::Processing);
    run.redelivered = true;
    assert_eq!(run.reply(2, deferred(true)), ["b #3 exclusive"], "as it was sent at first");
}

#[test]
fn a_paused_task_moves_on_when_it_is_resumed() {
    let mut run = Run::in_order();
    run.send(&command(CommandAction::Pause));
    assert_eq!(run.reply(1, deferred(true)), [""; 0]);
    assert_eq!(run.send(&command(CommandAction::Resume)), ["b #2 exclusive"]);
}

#[test]
fn each_item_has_its_own_agent() {
    let items = json!({ "for_each": { "items": "${ input }", "at_once": 2 } });
    let mut run = run_of_step(&json!(["a", "b"]), &items, &json!([1, 2]));
    assert_eq!(run.send(&Event::Wake), ["a #1 exclusive", "a #1 exclusive"]);
    let Event::ReplyReceived(mut second) = reply(1, deferred(true)) else { unreachable!() };
    second.step = "a[1]".parse().unwrap();
    assert_eq!(run.send(&Event::ReplyReceived(second)), ["b #2 exclusive"]);
    let items = run.task.steps["a"].items.as_ref().unwrap();
    let agents: Vec<_> = items.iter().map(|record| record.forward.agent).collect();
    assert_eq!(agents, [None, Some(1)]);
    let stored = serde_json::to_value(&run.task).unwrap();
    assert_eq!(serde_json::from_value::<Task>(stored).unwrap(), run.task);
}

#[test]
fn an_expression_chooses_the_agent_of_all_attempts_and_of_the_undo() {
    let agent = json!({ "choose": "${ input.region }-pay", "of": ["eu-pay", "us-pay"] });
    let mut run = run_of_step(&agent, &json!({}), &json!({ "region": "us" }));
    assert_eq!(run.send(&Event::Wake), ["us-pay #1"]);
    run.reply(1, ReplyOutcome::Unknown { reason: "cut".to_owned(), detail: None });
    run.now += 60;
    assert_eq!(run.send(&Event::Wake), ["us-pay #2"]);
    assert_eq!(run.reply(2, failed(false)), ["undo at us-pay #1"]);
}

#[test]
fn a_chosen_name_that_is_not_declared_fails_the_step_which_did_not_run() {
    let agent = json!({ "choose": "${ input }", "of": ["eu", "us"] });
    for input in [json!("asia"), json!(7)] {
        let mut run = run_of_step(&agent, &json!({}), &input);
        assert_eq!(run.send(&Event::Wake), [""; 0]);
        assert!(run.run().state.is_failed() && !run.run().may_have_run);
        assert_eq!(run.send(&Event::Wake), [""; 0]);
        let reason = run.task.undo_reason.clone().unwrap();
        assert_eq!(reason, "step a: `agent.choose` does not result in one of eu, us");
        assert_eq!(run.task.process_state, ProcessState::Undone, "nothing is to be undone");
    }
}

#[test]
fn an_edited_input_chooses_another_agent_only_if_the_step_did_not_run() {
    let agent = json!({ "choose": "${ input }", "of": ["eu", "us"] });
    let alert = json!({ "recovery": { "then": "alert" } });
    let mut run = run_of_step(&agent, &alert, &json!("eu"));
    run.send(&Event::Wake);
    run.reply(1, failed(true));
    assert_eq!(run.send(&resubmit(Some(json!("us")), false)), [""; 0], "it may have run at eu");
    run.now += 200;
    assert_eq!(run.send(&resubmit(Some(json!("us")), true)), ["us #2"]);
    run.reply(1, completed());
    assert_eq!(run.task.error.as_deref(), Some("step a: attempt 1 ran at eu too"));
}

#[test]
fn an_operator_who_retries_a_step_keeps_its_agent() {
    let alert = json!({ "recovery": { "then": "alert" } });
    let mut run = run_of_step(&json!(["a", "b"]), &alert, &json!({}));
    run.send(&Event::Wake);
    run.reply(1, deferred(true));
    run.reply(2, failed(false));
    assert_eq!(run.send(&resubmit(None, false)), ["b #3 exclusive"]);
    assert_eq!(run.reply(3, deferred(true)), [""; 0]);
    run.now += 10;
    assert_eq!(run.send(&Event::Wake), ["a #4 exclusive"]);
}
