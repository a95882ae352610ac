//! The list of workflows, and the page of a workflow.

use axum::http::StatusCode;
use jiff::Timestamp;
use serde_json::{Value, json};
use steward_core::model::{
    attempt::AttemptTimes,
    document::{Document, DocumentKey},
    task::{ProcessState, Task},
};
use steward_runtime::{
    history::{EndedInMinute, SupervisorRun, minute_of},
    ports::{Ports, StateStore},
};

use crate::test_console::TestConsole;

fn order(version: u32, attempts: u32) -> Value {
    json!({
        "name": "order", "version": version, "description": "Sells <things>",
        "trigger": { "source": "shop", "detail_type": "Order Placed" },
        "steps": {
            "charge": { "agent": "a", "request": { "path": "/charges" }, "recovery": { "attempts": attempts } },
            "ship": { "agent": "a", "after": ["charge"], "request": { "path": "/parcels?<b>" } },
        },
    })
}

fn pause(name: &str) -> Value {
    json!({ "name": name, "version": 1, "steps": { "pause": { "wait": "1m" } } })
}

async fn unpublish(console: &TestConsole, name: &str, version: u32) {
    let definitions = console.ports.definitions();
    assert!(definitions.unpublish(&name.parse().unwrap(), version).await.unwrap());
}

#[tokio::test]
async fn each_workflow_is_listed_with_its_newest_published_version() {
    let console = TestConsole::new().await;
    console.get("/console/workflows").await.assert_text(&["No workflows are published yet"]);
    for version in 1..=3 {
        console.publish(order(version, version)).await;
    }
    console.publish(pause("pause")).await;
    unpublish(&console, "order", 3).await;
    unpublish(&console, "pause", 1).await;
    let page = console.get("/console/workflows").await;
    page.assert_text(&[
        "order Sells &#60;things&#62; 2 ✓ published 3 shop: Order Placed 0 0 0 list",
        "pause 1 – not published 1",
    ]);
    assert!(page.html.contains("href=\"/console/workflows/order\""), "{}", page.html);
    page.assert_absent(&["<things>", "More</a>"]);
}

#[tokio::test]
async fn a_long_list_has_several_pages() {
    let console = TestConsole::new().await;
    for n in 0..101 {
        console.publish(pause(&format!("w{n:03}"))).await;
    }
    let first = console.get("/console/workflows").await;
    first.assert_text(&["w000", "w099"]);
    first.assert_absent(&["w100"]);
    assert!(first.html.contains("href=\"/console/workflows?after=w099\""), "{}", first.html);
    let second = console.get("/console/workflows?after=w099").await;
    second.assert_text(&["w100"]);
    second.assert_absent(&["w099", "More</a>"]);
}

#[tokio::test]
async fn a_workflow_has_a_graph_versions_and_a_definition() {
    let console = TestConsole::new().await;
    for version in 1..=3 {
        console.publish(order(version, version)).await;
    }
    unpublish(&console, "order", 3).await;
    let page = console.get("/console/workflows/order").await;
    page.assert_text(&[
        "order version 2",
        "✓ published Sells &#60;things&#62;",
        "charge. ship after charge.",
        "a: POST /charges",
        "3 – not published since 2 2 ✓ published since 1 1 ✓ published Definition",
        "attempts: 2",
        "&#34;attempts&#34;: 2",
    ]);
    // Values of a definition are escaped, and the page has nothing inline.
    page.assert_absent(&["<things>", "<b>", "style=", "<style", "onclick", "javascript:"]);
    console
        .get("/console/workflows/order?version=3")
        .await
        .assert_text(&["order version 3", "– not published Sells"]);
}

#[tokio::test]
async fn any_two_versions_can_be_compared() {
    let console = TestConsole::new().await;
    for version in 1..=3 {
        console.publish(order(version, version)).await;
    }
    console.publish(order(4, 3)).await;
    let compared = |version, against| {
        let address = format!("/console/workflows/order?version={version}&against={against}");
        let console = &console;
        async move { console.get(&address).await }
    };
    compared(3, "1").await.assert_text(&[
        "Changes from version 1 to version 3",
        "✓ safe steps.charge.recovery.attempts 1 became 3 retries more often",
    ]);
    compared(1, "3").await.assert_text(&["△ risky steps.charge.recovery.attempts 3 became 1"]);
    compared(2, "2").await.assert_text(&["Changes from version 2 to version 2 Nothing changed."]);
    compared(4, "3").await.assert_text(&["✓ safe version 3 became 4"]);
    // The form sends an empty value if no version is chosen.
    let plain = compared(2, "").await;
    plain.assert_text(&["order version 2"]);
    plain.assert_absent(&["Changes from version"]);
}

#[tokio::test]
async fn missing_workflows_and_versions_are_reported() {
    let console = TestConsole::new().await;
    console.publish(order(1, 1)).await;
    for (url, status) in [
        ("/console/workflows/none", StatusCode::NOT_FOUND),
        ("/console/workflows/NONE", StatusCode::NOT_FOUND),
        ("/console/workflows/order?version=2", StatusCode::NOT_FOUND),
        ("/console/workflows/order?against=2", StatusCode::NOT_FOUND),
        ("/console/workflows/order?version=x", StatusCode::BAD_REQUEST),
    ] {
        let page = console.get(url).await;
        assert_eq!(page.status, status, "{url}");
        assert!(page.html.contains("<main"), "{}", page.html);
    }
}

/// Stores a task that ended `ms` milliseconds after the epoch, with its attempts: document key, and the times at which the
/// attempt was queued, called and answered.
async fn create_ended(
    console: &TestConsole,
    id: &str,
    of: &str,
    ms: i64,
    attempts: &[(&str, [i64; 3])],
) {
    // In 2093, so that the task has not expired.
    let start = 3_900_000_000_000_i64;
    let task = json!({
        "task_id": id, "workflow": of, "v": 1, "i": start, "k": start / 1_000, "process_state": "Processed", "revision": 1,
        "submitted_at": start, "ended_at": start + ms, "complete_by": start + 1_000,
    });
    let task: Task = serde_json::from_value(task).unwrap();
    let at = |ms: i64| Timestamp::from_millisecond(start + ms).unwrap();
    let store = console.ports.store();
    let submitted = Document::new(DocumentKey::Submission, at(0), json!({ "input": null }));
    store.create(&task, Some(&submitted)).await.unwrap();
    for (key, times) in attempts {
        let [queued_at, called_at, answered_at] = times.map(|ms| Some(at(ms)));
        let times = AttemptTimes { queued_at, called_at, answered_at };
        let document = Document { times, ..Document::new(key.parse().unwrap(), at(0), json!({})) };
        store
            .put_document(&task.document_owner(), task.document_retention(), &document)
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn statistics_are_measured_on_the_last_ended_tasks() {
    let console = TestConsole::new().await;
    console.publish(order(1, 1)).await;
    console
        .get("/console/workflows/order")
        .await
        .assert_text(&["No recently ended task of this workflow"]);
    // Not measured: older than the last fifty, or of another workflow.
    create_ended(&console, "old", "order", 1, &[("step/charge/7/failure", [0, 0, 90_000])]).await;
    create_ended(&console, "other", "return", 900, &[("step/charge/1/failure", [0, 0, 90_000])])
        .await;
    for n in 0..50 {
        let attempts: &[_] = match n {
            0 => &[
                ("step/charge/1/failure", [0, 20, 1_520]),
                ("step/charge/2/output", [0, 20, 1_520]),
                ("step/ship/1/failure", [0, 5, 15]),
                ("undo/charge/1/output", [0, 5, 15]),
            ],
            _ => &[("step/charge/1/output", [0, 10, 210])],
        };
        create_ended(&console, &format!("t{n}"), "order", 100 + n, attempts).await;
    }
    console.get("/console/workflows/order").await.assert_text(&[
        "charge 51 1 (1%) 10 ms 10 ms 200 ms 200 ms",
        "undo of charge 1 0 5 ms 5 ms 10 ms 10 ms",
        "ship 1 1 (100%) 5 ms",
        "Measured on the last 50 ended tasks, of all versions.",
    ]);
}

#[tokio::test]
async fn tasks_that_ended_in_the_last_day_are_counted_by_state() {
    let console = TestConsole::new().await;
    console.publish(order(1, 1)).await;
    console.publish(pause("pause")).await;
    console
        .get("/console/workflows/order")
        .await
        .assert_text(&["Tasks that ended in the last 24 hours No tasks."]);
    let (store, now) = (console.ports.store(), Timestamp::now());
    let ago = |hours| minute_of(now - jiff::SignedDuration::from_hours(hours));
    for (hours, processed) in [(1, 997), (2, 1_002), (25, 4)] {
        let mut minute = EndedInMinute::default();
        let order = "order".parse().unwrap();
        (0..processed).for_each(|_| minute.add(&order, ProcessState::Processed));
        minute.add(&"pause".parse().unwrap(), ProcessState::Undone);
        if hours == 1 {
            minute.add(&order, ProcessState::Error);
        }
        store.save_shared_record(&minute.record(ago(hours))).await.unwrap();
    }
    let counted_until = Some(minute_of(now));
    let run = SupervisorRun {
        at: now,
        took_ms: 0,
        due: 0,
        failed: 0,
        shards_left: 0,
        counted_until,
        errors: Default::default(),
    };
    store.save_shared_record(&run.record(0)).await.unwrap();
    console
        .get("/console/workflows")
        .await
        .assert_text(&["Order Placed 1999 1 0 list", "pause 1 ✓ published 1 0 0 2 list"]);
    console
        .get("/console/workflows/order")
        .await
        .assert_text(&["99.9% of 2000 processed 1999 ✓ Processed 1 ✕ Error 0 ↺ Undone"]);
}
