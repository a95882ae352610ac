//! The overview page.

use aws_sdk_sqs::Client;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use steward_core::{
    breaker::{Breaker, BreakerState},
    model::task::ProcessState,
};
use steward_runtime::{
    history::{EndedInMinute, minute_of},
    ports::{
        Ports, SharedRecord, SharedRecordKey, SharedRecordKind, SharedSaveOutcome, StateStore,
    },
};
use steward_supervisor::run_once;

use crate::{
    tasks::{in_seconds, task},
    test_console::TestConsole,
};

async fn run_supervisor(console: &TestConsole) {
    run_once(&*console.ports, 0, Timestamp::MAX).await.unwrap();
}

async fn save_shared(console: &TestConsole, record: &SharedRecord) {
    assert_eq!(
        console.ports.store().save_shared_record(record).await.unwrap(),
        SharedSaveOutcome::Saved
    );
}

#[tokio::test]
async fn a_healthy_deployment_has_no_problems() {
    let console = TestConsole::new().await;
    run_supervisor(&console).await;
    console.create(&task("o-1", &json!({ "due": in_seconds(60) }))).await;
    let page = console.get("/console").await;
    page.assert_text(&[
        "Overview ✓ No problems found. 1 unfinished 0 in Error 0 Processed in the last hour",
        "No task is in Error.",
        "steward-submissions 0 0 0 0",
        "steward-agent-a 0 0 0 0",
        "steward-rejected 0 0 0 –",
        "None is open.",
        "0 due tasks.",
    ]);
    page.assert_absent(&["style=", "onclick", "note bad"]);
}

#[tokio::test]
async fn each_problem_is_shown_with_a_link() {
    let console = TestConsole::new().await;
    let failed = json!({ "process_state": "Error", "ended_at": in_seconds(-30), "error": "card <declined>" });
    console.create(&task("o-1", &failed)).await;
    console.create(&task("o-2", &json!({ "due": in_seconds(-600) }))).await;
    let until = Timestamp::now() + SignedDuration::from_secs(60);
    let open = BreakerState::Open { until, open_for_ms: 60_000, reason: "503".to_owned() };
    let body = serde_json::to_value(Breaker { state: open, ..Breaker::default() }).unwrap();
    let key = SharedRecordKey { kind: SharedRecordKind::Breaker, name: "a".to_owned() };
    save_shared(&console, &SharedRecord { key, revision: 1, body, expires_at: None }).await;
    let sqs = Client::new(&console.aws.sdk_config());
    let queue =
        sqs.get_queue_url().queue_name("steward-agent-a-dead-letters").send().await.unwrap();
    let letter = sqs.send_message().queue_url(queue.queue_url.unwrap()).message_body("{");
    letter.send().await.unwrap();
    let page = console.get("/console").await;
    page.assert_text(&[
        "✕ 5 problems:",
        "The supervisor has not run yet",
        "The supervisor has not handled task o-2, which was due 10 min ago",
        "1 task is in Error",
        "1 dead letter in steward-agent-a-dead-letters",
        "Agent a has stopped calling its service, except for probes (circuit breaker open)",
        "1 order",
        "card &#60;declined&#62;",
        "a open 503",
        "steward-agent-a 0 0 0 1",
        "The supervisor has not run yet.",
    ]);
    for url in [
        "/console/tasks?state=unresolved",
        "/console/tasks/o%2D2",
        "/console/dead-letters/steward-agent-a-dead-letters",
        "#breakers",
    ] {
        assert!(page.html.contains(&format!("href=\"{url}\"")), "{url}: {}", page.html);
    }
}

#[tokio::test]
async fn the_charts_contain_counted_minutes_and_later_tasks() {
    let console = TestConsole::new().await;
    let hour_ago = minute_of(Timestamp::now() - SignedDuration::from_mins(30));
    let mut minute = EndedInMinute::default();
    for state in [ProcessState::Processed, ProcessState::Processed, ProcessState::Undone] {
        minute.add(&"order".parse().unwrap(), state);
    }
    save_shared(&console, &minute.record(hour_ago)).await;
    run_supervisor(&console).await;
    console
        .create(&task("o-1", &json!({ "process_state": "Processed", "ended_at": in_seconds(0) })))
        .await;
    let page = console.get("/console").await;
    page.assert_text(&[
        "3 Processed in the last hour 1 Undone in the last hour",
        "Ended: 4 in the last 3 h",
    ]);
    page.assert_text(&["In Error or Undone: 1 in the last 3 h; maximum in 2 min: 1"]);
    assert_eq!(page.html.matches("<rect").count(), 3, "{}", page.html);
}

#[tokio::test]
async fn without_the_queues_the_page_shows_the_rest() {
    let console = TestConsole::new().await;
    run_supervisor(&console).await;
    let sqs = Client::new(&console.aws.sdk_config());
    let queue = sqs.get_queue_url().queue_name("steward-rejected").send().await.unwrap();
    sqs.delete_queue().queue_url(queue.queue_url.unwrap()).send().await.unwrap();
    let page = console.get("/console").await;
    page.assert_text(&["✕ 1 problem: SQS did not respond", "0 unfinished"]);
}

#[tokio::test]
async fn tasks_that_failed_for_the_same_reason_share_a_row_that_links_to_them() {
    let console = TestConsole::new().await;
    run_supervisor(&console).await;
    for n in 1..=3 {
        let error = format!("step charge: card {n} of a customer was declined");
        let steps = json!({ "charge": { "s": "f", "a": 1, "f": 1 } });
        let ended = json!({
            "process_state": "Error", "ended_at": in_seconds(n), "error": error, "steps": steps,
        });
        console.create(&task(&format!("o-{n}"), &ended)).await;
    }
    let other = json!({ "process_state": "Error", "ended_at": in_seconds(0), "error": "step ship: HTTP 500" });
    console.create(&task("o-9", &other)).await;
    let page = console.get("/console").await;
    page.assert_text(&["3 order charge card … of a customer was declined"]);
    page.assert_text(&["1 order ship HTTP 500"]);
    let query =
        "workflow=order&state=unresolved&step=charge&error=of%20a%20customer%20was%20declined";
    assert!(page.html.contains(&query.replace('&', "&#38;")), "{}", page.html);
    let found = console.get(&format!("/console/tasks?{query}")).await;
    found.assert_text(&["o-1", "o-2", "o-3"]);
    assert!(!found.html.contains("o-9"));
}
