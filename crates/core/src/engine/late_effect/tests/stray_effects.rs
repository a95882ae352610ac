//! Replies of agents that the step does not use any more: which of them stop the task in Error, and what follows.

use super::*;

fn unknown() -> ReplyOutcome {
    ReplyOutcome::Unknown { reason: "cut".to_owned(), detail: None }
}

fn alerting(agent: &Value, input: &Value) -> Run {
    let mut run =
        run_of_step(agent, &json!({ "recovery": { "attempts": 1, "then": "alert" } }), input);
    run.send(&Event::Wake);
    run
}

/// A reply that names its agent.
fn reply_of(agent: &str, attempt: u32, outcome: ReplyOutcome) -> Event {
    let agent = Some(agent.parse().unwrap());
    Event::ReplyReceived(StepReply { agent, ..reply_to_part("a", Action::Do, attempt, outcome) })
}

/// Undoes the task after all calls must have ended. Returns the requests.
fn undone(run: &mut Run) -> Vec<String> {
    let mut sent = run.send(&command(CommandAction::Undo));
    run.now += 200;
    sent.extend(run.send(&Event::Wake));
    sent
}

#[test]
fn a_second_delivery_that_says_what_was_known_is_no_stray_effect() {
    for (first, again) in
        [(unknown(), unknown()), (failed(true), failed(true)), (unknown(), failed(true))]
    {
        let mut run = alerting(&json!(["a", "b"]), &Value::Null);
        run.reply(1, first.clone());
        run.now += 200;
        run.send(&resubmit(None, true));
        assert_eq!(run.reply(2, deferred(true)), ["b #3 exclusive"]);
        run.redelivered = true;
        run.reply(1, again.clone());
        assert_eq!(run.task.process_state, ProcessState::Processing, "{:?}", run.task.error);
        assert!(!run.run().may_have_run);
        run.redelivered = false;
        run.reply(1, completed());
        assert_eq!(run.task.process_state, ProcessState::Error, "an effect at two services");
    }
}

/// Requests to a chosen agent are not exclusive: a second delivery may call after the first one failed.
#[test]
fn a_second_delivery_to_the_agent_chosen_before_an_edit_may_have_run_the_step() {
    let callback =
        json!({ "callback": { "within": "5m" }, "request": { "body": "${ callback.token }" } });
    for (more, outcome) in
        [(json!({}), unknown()), (json!({}), completed()), (callback, completed())]
    {
        let mut more = more;
        json_patch::merge(&mut more, &json!({ "recovery": { "then": "alert" } }));
        let choice = json!({ "choose": "${ input }", "of": ["eu", "us"] });
        let mut run = run_of_step(&choice, &more, &json!("eu"));
        run.send(&Event::Wake);
        run.reply(1, failed(false));
        assert_eq!(run.send(&resubmit(Some(json!("us")), false)), ["us #2"]);
        run.reply(1, outcome);
        assert_eq!(run.task.process_state, ProcessState::Error);
    }
}

#[test]
fn a_second_delivery_of_a_call_that_began_a_callback_is_no_stray_effect() {
    let more = json!({
        "recovery": { "then": "alert" }, "callback": { "within": "5m" },
        "request": { "body": "${ callback.token }" },
    });
    let mut run = run_of_step(&json!(["a", "b"]), &more, &Value::Null);
    run.send(&Event::Wake);
    run.reply(1, completed());
    run.send(&command(CommandAction::Reject { step: None }));
    run.send(&resubmit(None, true));
    assert_eq!(run.reply(2, deferred(true)), ["b #3 exclusive"]);
    run.reply(1, completed());
    assert_eq!(run.task.process_state, ProcessState::Processing, "{:?}", run.task.error);
    run.reply(2, completed());
    assert_eq!(run.task.process_state, ProcessState::Error, "2 was refused, and called");
}

#[test]
fn a_late_deferral_after_a_refusal_is_no_stray_effect() {
    let mut run = Run::in_order();
    run.reply(1, deferred(true));
    let ReplyOutcome::Deferred { reason, retry_after_ms, detail, .. } = deferred(false) else {
        unreachable!()
    };
    let late = ReplyOutcome::Deferred {
        reason,
        retry_after_ms,
        may_have_run: true,
        certain: false,
        call_in_doubt: false,
        detail,
    };
    run.reply(1, late);
    assert_eq!(run.task.process_state, ProcessState::Processing, "{:?}", run.task.error);
}

#[test]
fn each_stray_effect_of_an_agent_stops_the_task_and_each_redelivery_nothing() {
    let mut run = Run::in_order();
    run.reply(1, deferred(true));
    run.reply(2, deferred(true));
    for (agent, attempt) in [("a", 1), ("b", 2)] {
        run.send(&reply_of(agent, attempt, completed()));
        let error = run.task.error.clone().unwrap();
        assert_eq!(error, format!("step a: attempt {attempt} ran at {agent} too"));
        let again = run.decide_next(&reply_of(agent, attempt, completed()));
        assert!(matches!(again, Transition::Ignore { .. }), "{again:?}");
        run.send(&resubmit(None, false));
        assert_eq!(run.task.process_state, ProcessState::Processing);
    }
}

#[test]
fn an_attempt_that_failed_before_the_refusal_is_no_stray_effect_after_another_either() {
    let mut run = alerting(&json!(["a", "b"]), &Value::Null);
    run.reply(1, failed(false));
    run.send(&resubmit(None, false));
    run.reply(2, deferred(true));
    run.send(&reply_of("a", 2, completed()));
    run.send(&resubmit(None, false));
    run.reply(1, failed(true));
    assert_eq!(run.task.process_state, ProcessState::Processing, "{:?}", run.task.error);
}

#[test]
fn a_stray_effect_stays_known_after_the_operator_continues_and_others() {
    let mut run = Run::in_order();
    run.reply(1, deferred(true));
    run.reply(2, deferred(true));
    let both = [reply_of("a", 1, completed()), reply_of("b", 2, unknown())];
    for reply in &both {
        run.send(reply);
        assert_eq!(run.task.process_state, ProcessState::Error);
        run.send(&resubmit(None, false));
    }
    for reply in &both {
        assert!(matches!(run.decide_next(reply), Transition::Ignore { .. }));
    }
    run.send(&reply_of("b", 2, completed()));
    assert_eq!(run.task.process_state, ProcessState::Error, "b says more than before");
}

#[test]
fn a_redelivered_stray_effect_is_old_after_the_next_refusal() {
    let mut run = alerting(&json!(["a", "b"]), &Value::Null);
    run.reply(1, deferred(true));
    run.reply(1, unknown());
    run.reply(2, failed(false));
    run.now += 300;
    assert_eq!(run.send(&resubmit(None, true)), ["b #3 exclusive"]);
    run.reply(3, deferred(true));
    run.reply(1, unknown());
    assert_eq!(run.task.process_state, ProcessState::Processing, "{:?}", run.task.error);
}

/// The next agent does not know the key of the one before, so a request to it could run the step a second time.
#[test]
fn after_a_stray_effect_no_request_of_the_step_goes_out_before_an_operator_states_that_it_did_not_run()
 {
    let mut paused = run_of_step(&json!(["a", "b"]), &json!({}), &Value::Null);
    paused.send(&Event::Wake);
    paused.send(&command(CommandAction::Pause));
    paused.reply(1, deferred(true));
    let choice = json!({ "choose": "${ input }", "of": ["eu", "us"] });
    let more = json!({ "recovery": { "then": "alert" } });
    let mut edited = run_of_step(&choice, &more, &json!("eu"));
    edited.send(&Event::Wake);
    edited.reply(1, unknown());
    edited.send(&command(CommandAction::Pause));
    edited.now += 100;
    assert_eq!(edited.send(&resubmit(Some(json!("us")), true)), [""; 0]);
    for (run, next) in [(&mut paused, "b #2 exclusive"), (&mut edited, "us #2")] {
        run.reply(1, completed());
        assert!(run.run().state.is_failed());
        for edit in [None, Some(json!("us"))] {
            assert_eq!(run.send(&resubmit(edit, false)), [""; 0]);
            assert_eq!(run.task.process_state, ProcessState::Error);
            let refused = run.task.commands.last().unwrap().refused.as_ref().unwrap();
            assert!(refused.contains("may have taken effect"), "{refused}");
        }
        assert_eq!(run.send(&resubmit(None, true)), [next]);
    }
}

#[test]
fn a_step_with_a_stray_effect_whose_request_is_out_gets_no_other_one_before_the_statement_either() {
    for outcome in [deferred(true), deferred(false), unknown()] {
        let mut run = alerting(&json!(["a", "b"]), &Value::Null);
        run.reply(1, deferred(true));
        run.reply(1, completed());
        assert_eq!(run.send(&resubmit(None, false)), [""; 0]);
        assert_eq!(run.reply(2, outcome), [""; 0]);
        run.now += 400;
        assert_eq!(run.send(&Event::Wake), [""; 0]);
        assert_eq!(run.task.process_state, ProcessState::Error);
        assert_eq!(run.send(&resubmit(None, true)), ["b #3 exclusive"]);
        // Now only b may have run it, with its own key.
        run.reply(3, failed(true));
        run.now += 300;
        assert_eq!(run.send(&resubmit(None, false)), ["b #4"]);
    }
}

#[test]
fn a_statement_after_a_stray_effect_waits_for_another_delivery_of_a_deferred_request() {
    let mut run = Run::in_order();
    run.reply(1, deferred(true));
    run.reply(2, deferred(false));
    run.reply(1, completed());
    let alert = json!({ "recovery": { "then": "alert" } });
    let mut running = run_of_step(&json!(["a", "b", "c"]), &alert, &Value::Null);
    running.send(&Event::Wake);
    running.reply(1, deferred(true));
    running.reply(1, completed());
    running.reply(2, deferred(false));
    for run in [&mut run, &mut running] {
        assert_eq!(run.send(&resubmit(None, true)), [""; 0], "attempt 2 may still make a call");
        run.now += 200;
        assert_eq!(run.send(&resubmit(None, true)), ["b #3 exclusive"]);
    }
}

#[test]
fn an_effect_at_another_agent_beside_a_completion_by_hand_is_undone_first() {
    let mut run = run_of_step(&json!(["a", "b"]), &json!({}), &Value::Null);
    run.send(&Event::Wake);
    run.send(&command(CommandAction::Pause));
    run.reply(1, deferred(true));
    let step = "a".parse().ok();
    run.send(&command(CommandAction::Complete { step, output: Value::Null }));
    run.send(&reply_of("a", 1, completed()));
    assert_eq!(run.task.error.as_deref(), Some("step a: attempt 1 ran at a too"));
    assert_eq!(undone(&mut run), ["undo at a #1"]);
    assert_eq!(run.send(&reply_to(Action::Undo, 1, completed())), ["undo at b #2"]);
}

#[test]
fn the_error_names_the_agent_also_if_its_name_is_long() {
    let long = |last: char| format!("{}{last}", "x".repeat(crate::limits::NAME_CHARS_MAX - 1));
    let mut run = run_of_step(&json!([long('a'), long('b')]), &json!({}), &Value::Null);
    run.send(&Event::Wake);
    run.reply(1, deferred(true));
    run.send(&reply_of(&long('a'), 1, completed()));
    let error = run.task.error.clone().unwrap();
    assert!(error.contains(&format!("attempt 1 ran at {}", long('a'))), "{error}");
}

/// The agents break the contract in every attempt. The agent in use is one of them.
#[test]
fn the_effect_of_each_agent_stops_the_task_once() {
    let agents: Vec<_> = ('a'..='d').map(String::from).collect();
    let mut run = run_of_step(&json!(agents), &json!({}), &Value::Null);
    run.send(&Event::Wake);
    for attempt in 1..=7 {
        run.reply(attempt, deferred(true));
        if attempt == 4 {
            run.now += 400;
            assert_eq!(run.send(&Event::Wake), ["a #5 exclusive"]);
        }
    }
    let mut stopped = 0;
    for attempt in (1..=7).cycle().take(7 * 4) {
        if matches!(run.decide_next(&reply(attempt, completed())), Transition::Apply { .. }) {
            stopped += 1;
            assert_eq!(run.task.process_state, ProcessState::Error);
            run.send(&resubmit(None, false));
        }
    }
    assert_eq!(stopped, 4, "the keys of three agents, and that of the agent in use");
    assert_eq!(run.task.steps["a"].earlier.len(), 4);
}

#[test]
fn the_statement_counts_while_a_request_to_the_next_agent_is_out() {
    for step in [None, "a".parse().ok()] {
        let mut run = Run::in_order();
        run.reply(1, deferred(true));
        run.reply(1, completed());
        let action = CommandAction::Resubmit { step, input: None, did_not_run: true };
        assert_eq!(run.send(&command(action)), [""; 0], "the request goes on");
        assert_eq!(run.task.commands.last().unwrap().refused, None);
        assert_eq!(run.task.process_state, ProcessState::Processing);
        assert_eq!(run.reply(2, deferred(true)), ["c #3 exclusive"]);
    }
}

/// The statement is about the agents before, and does not lose what the agent in use may have done.
#[test]
fn the_statement_during_an_attempt_keeps_what_may_have_run_at_the_agent_in_use() {
    let in_order = json!(["a", "b"]);
    let choice = json!({ "choose": "${ input }", "of": ["a", "b"] });
    for (agent, next) in [(in_order, "b #3"), (choice, "b #3")] {
        let mut run = run_of_step(&agent, &json!({ "call_within": "1s" }), &json!("a"));
        run.send(&Event::Wake);
        if agent.is_array() {
            run.reply(1, deferred(true));
        } else {
            run.send(&command(CommandAction::Pause));
            run.reply(1, unknown());
            run.now += 60;
            run.send(&resubmit(Some(json!("b")), true));
            run.send(&command(CommandAction::Resume));
        }
        run.reply(2, unknown());
        run.now += 40;
        assert_eq!(run.send(&Event::Wake), [next]);
        run.reply(1, completed());
        run.now += 40;
        run.send(&resubmit(None, true));
        assert!(!run.task.steps["a"].has_stray_effect());
        run.reply(3, failed(false));
        run.now += 200;
        let undo = run.send(&Event::Wake);
        assert!(run.run().may_have_run && run.task.undo_reason.is_some(), "{:?}", run.task.error);
        assert!(undo == ["undo at b #1"] || run.task.steps["a"].undo.is_some());
    }
}

#[test]
fn the_statement_waits_for_the_end_of_a_call_of_the_agent_before() {
    let mut run = Run::in_order();
    run.reply(1, deferred(true));
    run.reply(1, unknown());
    for (wait, refused) in [(0, true), (200, false)] {
        run.now += wait;
        run.send(&resubmit(None, true));
        assert_eq!(run.task.commands.last().unwrap().refused.is_some(), refused);
    }
}

#[test]
fn an_edit_changes_no_request_that_is_out_after_a_stray_effect() {
    let mut run = Run::in_order();
    run.reply(1, deferred(true));
    run.reply(1, completed());
    run.send(&resubmit(Some(json!({ "n": 1 })), true));
    assert_eq!(run.run().input_edit_id, None, "attempt 2 has the input of the submission");
    assert!(run.task.steps["a"].has_stray_effect(), "the statement was about no part");
}

#[test]
fn a_redelivered_stray_effect_stops_no_task_after_its_end() {
    let mut run = run_of_step(&json!(["a", "b"]), &json!({}), &Value::Null);
    run.send(&Event::Wake);
    run.send(&command(CommandAction::Pause));
    run.reply(1, deferred(true));
    run.reply(1, unknown());
    run.now += 300;
    let step = "a".parse().ok();
    run.send(&command(CommandAction::Skip { step, did_not_run: true }));
    run.send(&command(CommandAction::Undo));
    assert_eq!(run.task.process_state, ProcessState::Undone);
    run.reply(1, unknown());
    assert_eq!(run.task.process_state, ProcessState::Undone, "{:?}", run.task.error);
}

/// Only the name of the agent in the reply is another one: it is for people.
#[test]
fn the_name_in_a_reply_of_the_agent_in_use_is_no_stray_effect() {
    let mut run = Run::in_order();
    run.reply(1, deferred(true));
    run.send(&reply_of("payment-service", 2, completed()));
    assert_eq!(run.task.process_state, ProcessState::Processed, "{:?}", run.task.error);
}

#[test]
fn a_step_stays_with_an_agent_of_which_two_deliveries_may_have_acted() {
    let mut run = alerting(&json!(["a", "b"]), &Value::Null);
    run.reply(1, failed(true));
    run.now += 100;
    assert_eq!(run.send(&resubmit(None, false)), ["a #2"]);
    run.reply(2, failed(false));
    assert_eq!(run.send(&resubmit(None, true)), ["a #3"], "another delivery of 2 may act");
    assert_eq!(run.reply(3, deferred(true)), [""; 0]);
    run.now += 100;
    assert_eq!(run.send(&Event::Wake), ["a #4"]);
}

#[test]
fn a_stray_effect_by_a_call_that_may_be_in_progress_delays_the_undo() {
    let mut run = Run::in_order();
    run.reply(1, deferred(true));
    run.reply(2, failed(false));
    run.reply(1, unknown());
    assert_eq!(run.send(&resubmit(None, false)), [""; 0], "the call may be in progress");
    run.now += 200;
    assert_eq!(run.send(&Event::Wake), ["undo at a #1"]);
}

#[test]
fn an_unknown_outcome_of_one_item_is_no_stray_effect_after_a_refusal_of_it() {
    let more = json!({ "for_each": { "items": "${ input }", "at_once": 3 },
        "recovery": { "attempts": 1, "then": "alert" } });
    let mut run = run_of_step(&json!(["a", "b"]), &more, &json!([1, 2, 3]));
    run.send(&Event::Wake);
    run.send(&reply_of_item(1, 1, unknown()));
    run.now += 200;
    run.send(&resubmit(None, true));
    run.send(&reply_of_item(1, 2, deferred(true)));
    run.send(&reply_of_item(1, 1, unknown()));
    assert_eq!(run.task.process_state, ProcessState::Processing, "{:?}", run.task.error);
}

fn reply_of_item(item: u32, attempt: u32, outcome: ReplyOutcome) -> Event {
    let Event::ReplyReceived(mut reply) = reply(attempt, outcome) else { unreachable!() };
    reply.step = format!("a[{item}]").parse().unwrap();
    Event::ReplyReceived(reply)
}

#[test]
fn a_command_that_starts_more_requests_than_one_decision_sends_starts_all_of_them() {
    let more = json!({
        "for_each": { "items": "${ input }", "at_once": 30 }, "request": { "body": "x".repeat(60_000) },
        "recovery": { "attempts": 1, "then": "alert" },
    });
    let items: Vec<u32> = (0..30).collect();
    let mut run = run_of_step(&json!(["a", "b"]), &more, &json!(items));
    let sent: usize = (0..4).map(|_| run.send(&Event::Wake).len()).sum();
    assert_eq!(sent, 30);
    for item in 0..30 {
        run.send(&reply_of_item(item, 1, failed(item == 29)));
    }
    run.now += 200;
    let first = run.send(&resubmit(None, true)).len();
    let rest: usize = (0..4).map(|_| run.send(&Event::Wake).len()).sum();
    assert!(first < 30, "one decision sends no more than fit");
    assert_eq!(first + rest, 30);
    let items = run.task.steps["a"].items.as_ref().unwrap();
    assert!(items.iter().all(|record| !record.forward.may_have_run), "the statement is kept");
}

#[test]
fn a_child_that_may_have_begun_long_ago_counts_as_begun_also_if_its_request_is_postponed() {
    let more = json!({
        "agent": null, "request": null, "undo": null, "complete_within": "30s",
        "for_each": { "items": "${ input }", "at_once": 30 },
        "workflow": { "name": "child", "input": "x".repeat(60_000) },
        "recovery": { "attempts": 1, "then": "alert" },
    });
    let items: Vec<u32> = (0..30).collect();
    let mut run = run_of_step(&Value::Null, &more, &json!(items));
    let submissions = |decided: Transition| {
        let (Transition::Apply { effects, .. } | Transition::Ignore { effects, .. }) = decided
        else {
            panic!("an illegal event")
        };
        let begun = effects.iter().filter_map(|effect| {
            let Effect::Submit(submission) = effect else { return None };
            Some(submission.has_begun)
        });
        begun.collect::<Vec<_>>()
    };
    let sent: usize = (0..4).map(|_| submissions(run.decide_next(&Event::Wake)).len()).sum();
    assert_eq!(sent, 30);
    run.now += 60;
    run.send(&Event::Swept);
    run.now += 60 * 24 * 3_600;
    let mut again = submissions(run.decide_next(&resubmit(None, false)));
    assert!((1..30).contains(&again.len()));
    (0..4).for_each(|_| again.extend(submissions(run.decide_next(&Event::Wake))));
    assert_eq!(again, [true; 30]);
}
