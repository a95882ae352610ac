//! Operator commands: the real binary, over HTTP, against a host with the real handlers.

#![cfg(test)]

mod agents;
mod callback;
mod data;
mod dead_letters;
mod harness;
mod json_shapes;
mod rerun;
mod submit;
mod workflows;

use serde_json::Value;
use steward_core::model::step::StepState;

use crate::harness::OperatorHarness;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_step_is_resubmitted_with_edited_input_and_show_has_the_timeline() {
    let harness = OperatorHarness::start().await;
    harness.submit("order", "order-1", "/charge").await;
    harness.until_state("order-1", "Error").await;
    let shown = harness.steward(&["show", "order-1"]).await;
    shown.has(&["order-1: Error", "402", "alert", "next: An operator must resubmit"]);

    let patch = r#"{ "refuse": "nothing" }"#;
    let why = "the card was replaced";
    let args = ["resubmit", "order-1", "--step", "charge", "--input", patch, "--why", why];
    let output = harness.steward(&args);
    output.await.has(&["order-1: resubmit charge with edited input: done; Process"]);
    harness.until_state("order-1", "Processed").await;
    assert_eq!(harness.shop.paths("order-1"), ["/reserve", "/charge", "/charge", "/ship"]);
    let keys: Vec<_> = harness.shop.calls("order-1").into_iter().map(|call| call.key).collect();
    assert_ne!(keys[1], keys[2], "other content with the same idempotency key");

    harness.steward(&["show", "order-1"]).await.has(&[
        "order-1: Processed",
        "input edited by anna",
        "resubmit charge with edited input by",
        "the card was replaced",
        "carried out",
        "next: The task has ended",
    ]);
    let shown = harness.steward(&["show", "order-1", "--json"]).await;
    let shown: Value = serde_json::from_str(&shown.out).unwrap();
    let timeline = shown["timeline"].as_array().unwrap();
    let whats: Vec<_> = timeline.iter().map(|line| line["what"].as_str().unwrap()).collect();
    assert_eq!(
        whats,
        [
            "submitted",
            "completed",
            "failed",
            "resubmit charge with edited input",
            "input edited by anna",
            "completed",
            "completed",
            "Processed",
        ]
    );
    assert_eq!(timeline[2]["step"], "charge");
    assert_eq!(timeline[2]["attempt"], 1);
    assert_eq!(timeline[2]["verdict"], "alert");
    assert!(timeline[2]["why"].as_str().unwrap().contains("402"));
    assert_eq!(timeline[3]["by"], "anna");
    assert_eq!(timeline[5]["attempt"], 2);
    assert_eq!(shown["commands"][0]["why"], "the card was replaced");
}

/// A service may store the error of a call and repeat it for its key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_is_resubmitted_with_a_new_key_and_the_same_input() {
    let harness = OperatorHarness::start().await;
    harness.submit("order", "order-1", "/charge").await;
    harness.until_state("order-1", "Error").await;
    let args = ["resubmit", "order-1", "--new-key", "--why", "a stored error"];
    let output = harness.steward(&args).await;
    output.has(&["order-1: resubmit with a new key: done"]);
    let refused_again = StepState::Failed { attempt: Some(2) };
    harness.until("order-1", |task| task.steps["charge"].forward.state == refused_again).await;
    let keys: Vec<_> = harness.shop.calls("order-1").into_iter().map(|call| call.key).collect();
    assert_ne!(keys[1], keys[2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn error_bodies_are_shown_on_request_without_masked_values() {
    let harness = OperatorHarness::start().await;
    harness.submit("return", "return-1", "/charge").await;
    harness.until_state("return-1", "Error").await;
    let shown = harness.steward(&["show", "return-1"]).await;
    assert!(!shown.out.contains("no funds"), "{}", shown.out);
    let shown = harness.steward(&["show", "return-1", "--errors"]).await;
    shown.has(&["error of charge, attempt 1:", r#""bank": "no funds""#, r#""refuse": "••••""#]);
    assert!(!shown.out.contains("/charge"), "{}", shown.out);
    let shown = harness.steward(&["show", "return-1", "--errors", "--json"]).await;
    let shown: Value = serde_json::from_str(&shown.out).unwrap();
    let error = &shown["errors"][0];
    assert_eq!((&error["step"], &error["attempt"]), (&"charge".into(), &1.into()));
    assert_eq!(error["detail"]["bank"], "no funds");
    assert!(!shown["timeline"].to_string().contains("no funds"), "{shown}");
    assert!(harness.steward(&["show", "return-1", "--json"]).await.out.find("no funds").is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_is_skipped_or_completed_by_hand() {
    let harness = OperatorHarness::start().await;
    harness.submit("order", "skipped", "/ship").await;
    harness.submit("order", "completed", "/charge").await;
    harness.until_state("skipped", "Error").await;
    harness.until_state("completed", "Error").await;

    let output = harness.steward(&["skip", "skipped", "--why", "collected in the shop"]).await;
    output.has(&["skipped: skip: done; Processed"]);

    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), r#"{ "receipt": "by-hand-7" }"#).unwrap();
    let output = format!("@{}", file.path().display());
    let output = ["complete", "completed", "--output", &output, "--why", "charged at the terminal"];
    harness.steward(&output).await.has(&["completed: complete: done"]);
    harness.until_state("completed", "Processed").await;
    let ship = harness.shop.calls("completed").pop().unwrap();
    assert_eq!((ship.path.as_str(), &ship.body["receipt"]), ("/ship", &"by-hand-7".into()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_processed_task_is_undone_and_a_failed_undo_is_resubmitted() {
    let harness = OperatorHarness::start().await;
    harness.submit("order", "order-1", "nothing").await;
    harness.until_state("order-1", "Processed").await;
    harness.shop.refuse_all(Some("/release"));
    let output = harness.steward(&["undo", "order-1", "--why", "the customer returned it"]).await;
    output.has(&["order-1: undo: done; "]);
    harness.until_state("order-1", "Error").await;
    let expected = ["/reserve", "/charge", "/ship", "/refund", "/release"];
    assert_eq!(harness.shop.paths("order-1"), expected);
    harness.steward(&["show", "order-1"]).await.has(&[
        "reason for undo: requested by anna: the customer returned it",
        "undo 1",
        "undone",
        "failed",
        "steps: charge undone, reserve undo failed, ship completed",
        "next: An operator must resubmit, skip or complete the failed undo",
    ]);

    harness.shop.refuse_all(None);
    let again = ["resubmit", "order-1", "--why", "the warehouse is back", "--by", "berta"];
    harness.steward(&again).await.has(&["order-1: resubmit: done"]);
    let task = harness.until_state("order-1", "Undone").await;
    assert_eq!(task.commands[1].by, "berta");
    harness.steward(&["show", "order-1"]).await.has(&[
        "undo 2",
        "resubmit reserve by berta",
        "Undone",
    ]);
    for state in ["undone", "Undone"] {
        harness.steward(&["list", "--state", state]).await.has(&["order-1"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_task_starts_nothing_until_it_is_resumed() {
    let harness = OperatorHarness::start().await;
    harness.shop.hold(true);
    harness.submit("order", "order-1", "nothing").await;
    harness.until_called("order-1", "/reserve").await;
    let output = harness.steward(&["pause", "order-1", "--why", "stock count"]).await;
    output.has(&[
        "order-1: pause: done; Processing, next: Step reserve is running (attempt 1)",
        "Nothing starts until an operator resumes the task",
    ]);
    harness.shop.hold(false);
    let reserved =
        |task: &steward_core::model::task::Task| task.has_passed(&"reserve".parse().unwrap());
    harness.until("order-1", reserved).await;
    harness.steward(&["show", "order-1"]).await.has(&["paused since", "pause by anna"]);
    assert_eq!(harness.shop.paths("order-1"), ["/reserve"]);

    harness.steward(&["resume", "order-1", "--why", "counted"]).await.has(&["resume: done"]);
    harness.until_state("order-1", "Processed").await;
    assert_eq!(harness.shop.paths("order-1"), ["/reserve", "/charge", "/ship"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_task_sends_no_further_requests() {
    let harness = OperatorHarness::start().await;
    harness.shop.hold(true);
    harness.submit("order", "order-1", "nothing").await;
    harness.until_called("order-1", "/reserve").await;
    let output = harness.steward(&["cancel", "order-1", "--why", "a test order"]).await;
    output.has(&["order-1: cancel: done; Error"]);
    assert!(output.err.starts_with("cancel undoes nothing: "), "{}", output.err);
    harness.shop.hold(false);
    let reserved =
        |task: &steward_core::model::task::Task| task.has_passed(&"reserve".parse().unwrap());
    harness.until("order-1", reserved).await;
    assert_eq!(harness.shop.paths("order-1"), ["/reserve"]);
    let shown = harness.steward(&["show", "order-1"]).await;
    shown.has(&["error: cancelled by anna: a test order"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_impossible_command_is_refused_with_a_recorded_reason() {
    let harness = OperatorHarness::start().await;
    harness.submit("order", "order-1", "nothing").await;
    harness.until_state("order-1", "Processed").await;
    let output = harness.steward(&["resubmit", "order-1", "--why", "again"]).await;
    output.fails(&["order-1: resubmit: refused: the task is Processed"]);
    harness.steward(&["show", "order-1"]).await.has(&[
        "resubmit by anna",
        "again",
        "refused: the task is",
    ]);

    // The printed outcome is that of this command, not of an earlier one.
    harness.steward(&["undo", "order-1", "--why", "returned"]).await.has(&["undo: done; Undo"]);

    let unknown = harness.steward(&["undo", "order-2", "--why", "again"]).await;
    unknown.fails(&["task `order-2` does not exist"]);
    harness.steward(&["undo", "order-1"]).await.fails(&["--why"]);
    let in_container = harness.steward_without_user(&["undo", "order-1", "--why", "again"]);
    in_container.await.fails(&["refused"]);
    harness.steward(&["show", "order-1"]).await.has(&["undo by unknown@box"]);
    let output = harness.steward(&["resubmit", "order-1", "--why", "again", "--input", "{"]).await;
    output.fails(&["--input"]);
    let unknown_queue = ["undo", "order-1", "--why", "again", "--commands-queue", "nowhere"];
    harness.steward(&unknown_queue).await.fails(&["there is no queue `nowhere`"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_outcome_is_an_error_and_no_wait_only_sends_the_command() {
    let harness = OperatorHarness::start().await;
    harness.submit("order", "order-1", "/ship").await;
    harness.until_state("order-1", "Error").await;
    // The scheduler does not read this queue.
    let unread = ["--commands-queue", "steward-rejected", "--wait", "300ms"];
    let output =
        harness.steward(&[&["skip", "order-1", "--why", "again"], &unread[..]].concat()).await;
    output.fails(&["order-1: skip: no outcome within 300ms"]);
    let output = harness.steward(&["skip", "order-1", "--why", "again", "--no-wait"]).await;
    output.has(&["order-1: skip: sent as command "]);
    harness.until_state("order-1", "Processed").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retry_all_resubmits_exactly_the_tasks_that_failed_in_the_outage() {
    let harness = OperatorHarness::start().await;
    harness.submit("order", "typo", "/charge").await;
    harness.until_state("typo", "Error").await;
    harness.shop.refuse_all(Some("/ship"));
    harness.submit("return", "return-1", "nothing").await;
    let orders: Vec<_> = (1..=20).map(|n| format!("order-{n:02}")).collect();
    for order in &orders {
        harness.submit("order", order, "nothing").await;
    }
    for order in orders.iter().map(String::as_str).chain(["return-1"]) {
        harness.until_state(order, "Error").await;
    }
    let ships = ["--workflow", "order", "--reason-contains", "step ship", "--why", "outage over"];
    let retry_all =
        async |more: &[&str]| harness.steward(&[&["retry-all"], &ships[..], more].concat()).await;
    retry_all(&["--since", "2h", "--dry-run"]).await.has(&["would be resubmitted: 20"]);
    retry_all(&["--since", "2100-01-01T00:00:00Z"]).await.has(&["no matching task"]);
    retry_all(&["--since", "yesterday"]).await.fails(&["neither a duration such as 2h nor a time"]);
    let unread = ["--commands-queue", "steward-rejected", "--wait", "300ms", "--limit", "3"];
    let output = retry_all(&[&["--since", "2h"], &unread[..]].concat()).await;
    output.fails(&["not resubmitted: 3 of 3"]);
    assert_eq!(output.out.matches("no outcome").count(), 3, "{}", output.out);
    let task = harness.until_state("order-01", "Error").await;
    assert!(task.commands.is_empty(), "a dry run, or a queue without a reader, had an effect");

    harness.shop.refuse_all(None);
    let output = retry_all(&["--since", "2h"]).await;
    output.has(&["resubmitted: 20 of 20", "order-01", "order-20"]);
    assert_eq!(output.err, "", "there must be no progress bar without a terminal");
    for order in &orders {
        harness.until_state(order, "Processed").await;
    }
    let rest = ["retry-all", "--workflow", "order", "--since", "2h", "--why", "x", "--dry-run"];
    harness.steward(&rest).await.has(&["typo", "would be resubmitted: 1"]);
    for other in ["typo", "return-1"] {
        let task = harness.until_state(other, "Error").await;
        assert!(task.commands.is_empty(), "{other} matches neither by workflow nor by reason");
    }
}
