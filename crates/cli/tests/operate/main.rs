//! The operator's commands, as an operator types them: the real binary over the wire, against a host
//! with the real handlers.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "clippy.toml allows these in tests, and means test functions, not their helpers"
)]

mod callback;
mod dead_letters;
mod workflows;
mod world;

use serde_json::Value;

use crate::world::World;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_step_is_resubmitted_with_edited_input_and_show_tells_the_story() {
    let world = World::start().await;
    world.submit("order", "order-1", "/charge").await;
    world.until_state("order-1", "Error").await;
    let shown = world.steward(&["show", "order-1"]).await;
    shown.has(&["order-1: Error", "402", "Not today", "alert", "next: an operator: resubmit"]);

    let patch = r#"{ "refuse": "nothing" }"#;
    let why = "the card was replaced";
    let args = ["resubmit", "order-1", "--step", "charge", "--input", patch, "--why", why];
    let said = world.steward(&args);
    said.await.has(&["order-1: resubmit charge with edited input: done; Process"]);
    world.until_state("order-1", "Processed").await;
    assert_eq!(world.remote.paths("order-1"), ["/reserve", "/charge", "/charge", "/ship"]);
    let keys: Vec<_> = world.remote.calls("order-1").into_iter().map(|call| call.key).collect();
    assert_ne!(keys[1], keys[2], "another content under the same idempotency key");

    world.steward(&["show", "order-1"]).await.has(&[
        "order-1: Processed",
        "input edited by anna",
        "resubmit charge with edited input by",
        "the card was replaced",
        "carried out",
        "next: nothing: it has ended",
    ]);
    let shown = world.steward(&["show", "order-1", "--json"]).await;
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_is_skipped_or_completed_by_hand() {
    let world = World::start().await;
    world.submit("order", "skipped", "/ship").await;
    world.submit("order", "completed", "/charge").await;
    world.until_state("skipped", "Error").await;
    world.until_state("completed", "Error").await;

    let said = world.steward(&["skip", "skipped", "--why", "collected in the shop"]).await;
    said.has(&["skipped: skip: done; Processed"]);

    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), r#"{ "receipt": "by-hand-7" }"#).unwrap();
    let output = format!("@{}", file.path().display());
    let said = ["complete", "completed", "--output", &output, "--why", "charged at the terminal"];
    world.steward(&said).await.has(&["completed: complete: done"]);
    world.until_state("completed", "Processed").await;
    let ship = world.remote.calls("completed").pop().unwrap();
    assert_eq!((ship.path.as_str(), &ship.body["receipt"]), ("/ship", &"by-hand-7".into()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_processed_task_is_undone_and_a_failed_undo_is_resubmitted() {
    let world = World::start().await;
    world.submit("order", "order-1", "nothing").await;
    world.until_state("order-1", "Processed").await;
    world.remote.refuse_all(Some("/release"));
    let said = world.steward(&["undo", "order-1", "--why", "the customer returned it"]).await;
    said.has(&["order-1: undo: done; "]);
    world.until_state("order-1", "Error").await;
    let expected = ["/reserve", "/charge", "/ship", "/refund", "/release"];
    assert_eq!(world.remote.paths("order-1"), expected);
    world.steward(&["show", "order-1"]).await.has(&[
        "undone because: requested by anna: the customer returned it",
        "undo 1",
        "undone",
        "failed",
        "steps: charge undone, reserve undo failed, ship completed",
        "next: an operator: resubmit, skip or complete the undo that failed",
    ]);

    world.remote.refuse_all(None);
    let again = ["resubmit", "order-1", "--why", "the warehouse is back", "--by", "berta"];
    world.steward(&again).await.has(&["order-1: resubmit: done"]);
    let task = world.until_state("order-1", "Undone").await;
    assert_eq!(task.commands[1].by, "berta");
    world.steward(&["show", "order-1"]).await.has(&[
        "undo 2",
        "resubmit reserve by berta",
        "Undone",
    ]);
    world.steward(&["list", "--state", "undone"]).await.has(&["order-1"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_task_starts_nothing_until_it_is_resumed() {
    let world = World::start().await;
    world.remote.hold(true);
    world.submit("order", "order-1", "nothing").await;
    world.until_called("order-1", "/reserve").await;
    let said = world.steward(&["pause", "order-1", "--why", "stock count"]).await;
    said.has(&["order-1: pause: done; Processing, next: an operator: resume"]);
    world.remote.hold(false);
    let reserved =
        |task: &steward_core::model::task::Task| task.has_passed(&"reserve".parse().unwrap());
    world.until("order-1", reserved).await;
    world.steward(&["show", "order-1"]).await.has(&["paused since", "pause by anna"]);
    assert_eq!(world.remote.paths("order-1"), ["/reserve"]);

    world.steward(&["resume", "order-1", "--why", "counted"]).await.has(&["resume: done"]);
    world.until_state("order-1", "Processed").await;
    assert_eq!(world.remote.paths("order-1"), ["/reserve", "/charge", "/ship"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_task_stops_where_it_stands() {
    let world = World::start().await;
    world.remote.hold(true);
    world.submit("order", "order-1", "nothing").await;
    world.until_called("order-1", "/reserve").await;
    let said = world.steward(&["cancel", "order-1", "--why", "a test order"]).await;
    said.has(&["order-1: cancel: done; Error"]);
    world.remote.hold(false);
    let reserved =
        |task: &steward_core::model::task::Task| task.has_passed(&"reserve".parse().unwrap());
    world.until("order-1", reserved).await;
    assert_eq!(world.remote.paths("order-1"), ["/reserve"]);
    let shown = world.steward(&["show", "order-1"]).await;
    shown.has(&["error: cancelled by anna: a test order"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_makes_no_sense_is_refused_with_a_reason_and_on_record() {
    let world = World::start().await;
    world.submit("order", "order-1", "nothing").await;
    world.until_state("order-1", "Processed").await;
    let said = world.steward(&["resubmit", "order-1", "--why", "again"]).await;
    said.fails(&["order-1: resubmit: refused: the task is Processed"]);
    world.steward(&["show", "order-1"]).await.has(&[
        "resubmit by anna",
        "again",
        "refused: the task is",
    ]);

    // What is answered is this command, not an earlier one.
    world.steward(&["undo", "order-1", "--why", "returned"]).await.has(&["undo: done; Undo"]);

    let unknown = world.steward(&["undo", "order-2", "--why", "again"]).await;
    unknown.fails(&["there is no task `order-2`"]);
    world.steward(&["undo", "order-1"]).await.fails(&["--why"]);
    world.nobody(&["undo", "order-1", "--why", "again"]).await.fails(&["--by"]);
    let said = world.steward(&["resubmit", "order-1", "--why", "again", "--input", "{"]).await;
    said.fails(&["--input"]);
    let elsewhere = ["undo", "order-1", "--why", "again", "--scheduler-queue", "nowhere"];
    world.steward(&elsewhere).await.fails(&["there is no queue `nowhere`"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_an_answer_a_command_says_so_and_without_waiting_it_is_only_sent() {
    let world = World::start().await;
    world.submit("order", "order-1", "/ship").await;
    world.until_state("order-1", "Error").await;
    // Nobody reads this queue.
    let unread = ["--scheduler-queue", "steward-rejected", "--wait", "300ms"];
    let said = world.steward(&[&["skip", "order-1", "--why", "again"], &unread[..]].concat()).await;
    said.fails(&["order-1: skip: no answer within 300ms"]);
    let said = world.steward(&["skip", "order-1", "--why", "again", "--no-wait"]).await;
    said.has(&["order-1: skip: sent, as command "]);
    world.until_state("order-1", "Processed").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_that_failed_in_an_outage_are_retried_and_nothing_else() {
    let world = World::start().await;
    world.submit("order", "typo", "/charge").await;
    world.until_state("typo", "Error").await;
    world.remote.refuse_all(Some("/ship"));
    world.submit("return", "return-1", "nothing").await;
    let orders: Vec<_> = (1..=20).map(|n| format!("order-{n:02}")).collect();
    for order in &orders {
        world.submit("order", order, "nothing").await;
    }
    for order in orders.iter().map(String::as_str).chain(["return-1"]) {
        world.until_state(order, "Error").await;
    }
    let ships = ["--workflow", "order", "--reason-contains", "step ship", "--why", "outage over"];
    let retry_all =
        async |more: &[&str]| world.steward(&[&["retry-all"], &ships[..], more].concat()).await;
    retry_all(&["--since", "2h", "--dry-run"]).await.has(&["would be resubmitted: 20"]);
    retry_all(&["--since", "2100-01-01T00:00:00Z"]).await.has(&["no such task in Error"]);
    retry_all(&["--since", "yesterday"]).await.fails(&["neither a duration such as 2h nor a time"]);
    let unread = ["--scheduler-queue", "steward-rejected", "--wait", "300ms", "--limit", "3"];
    let said = retry_all(&[&["--since", "2h"], &unread[..]].concat()).await;
    said.fails(&["not resubmitted: 3 of 3"]);
    assert_eq!(said.out.matches("no answer").count(), 3, "{}", said.out);
    let task = world.until_state("order-01", "Error").await;
    assert!(task.commands.is_empty(), "a dry run, or a queue that nobody reads, did something");

    world.remote.refuse_all(None);
    let said = retry_all(&["--since", "2h"]).await;
    said.has(&["resubmitted: 20 of 20", "order-01", "order-20"]);
    assert_eq!(said.err, "", "no progress bar where there is no terminal");
    for order in &orders {
        world.until_state(order, "Processed").await;
    }
    let rest = ["retry-all", "--workflow", "order", "--since", "2h", "--why", "x", "--dry-run"];
    world.steward(&rest).await.has(&["typo", "would be resubmitted: 1"]);
    for other in ["typo", "return-1"] {
        let task = world.until_state(other, "Error").await;
        assert!(task.commands.is_empty(), "{other} was meant neither by workflow nor by reason");
    }
}
