//! A request that is sent again is exclusive if it was at first. Otherwise two deliveries of it could act, of which nothing is
//! recorded.

use super::*;

/// Two deliveries of the reply "unknown", and a scheduler that stops before it has deleted an operator's command.
#[test]
fn a_request_stays_exclusive_if_the_attempt_before_may_have_run_after_all() {
    let more = json!({ "call_within": "1s", "recovery": { "attempts": 1, "then": "alert" } });
    let mut run = run_of_step(&json!(["a", "b"]), &more, &Value::Null);
    run.send(&Event::Wake);
    let unknown = ReplyOutcome::Unknown { reason: "cut".to_owned(), detail: None };
    run.reply(1, unknown.clone());
    run.now += 40;
    let again = resubmit(None, true);
    assert_eq!(run.send(&again), ["a #2 exclusive"]);
    run.reply(1, unknown);
    assert!(run.run().may_have_run);
    run.redelivered = true;
    assert_eq!(run.send(&again), ["a #2 exclusive"]);
    run.redelivered = false;
    run.reply(2, failed(false));
    run.now += 3;
    assert_eq!(run.send(&resubmit(None, false)), ["a #3"], "it may have run in attempt 1");
    run.reply(3, failed(false));
    assert_eq!(run.send(&resubmit(None, true)), ["a #4"], "another delivery of 3 may act");
}

#[test]
fn a_request_stays_exclusive_after_a_stray_effect() {
    let statement = resubmit(None, false);
    for redelivered in [&statement, &reply(1, deferred(true))] {
        let more = json!({ "recovery": { "then": "alert" } });
        let mut run = run_of_step(&json!(["a", "b", "c"]), &more, &Value::Null);
        run.send(&Event::Wake);
        assert_eq!(run.reply(1, deferred(true)), ["b #2 exclusive"]);
        run.reply(1, completed());
        assert_eq!(run.send(&statement), [""; 0]);
        run.redelivered = true;
        assert_eq!(run.send(redelivered), ["b #2 exclusive"]);
        run.redelivered = false;
        run.reply(2, failed(false));
        assert_eq!(run.send(&resubmit(None, true)), ["b #3 exclusive"]);
        assert_eq!(run.reply(3, deferred(true)), ["c #4 exclusive"]);
    }
}
