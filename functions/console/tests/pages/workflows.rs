//! The list of workflows, and one.

use axum::http::StatusCode;
use jiff::Timestamp;
use serde_json::{Value, json};
use steward_core::model::{
    attempt::AttemptTimes,
    document::{Document, DocumentKey},
    task::{ProcessState, Task},
};
use steward_runtime::{
    history::{LastRun, Minute, minute_of},
    ports::{Ports, StateStore},
};

use crate::world::World;

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

async fn unpublish(world: &World, name: &str, version: u32) {
    let definitions = world.ports.definitions();
    assert!(definitions.unpublish(&name.parse().unwrap(), version).await.unwrap());
}

#[tokio::test]
async fn each_workflow_is_listed_with_its_newest_published_version() {
    let world = World::new().await;
    world.get("/console/workflows").await.says(&["No workflow is stored"]);
    for version in 1..=3 {
        world.publish(order(version, version)).await;
    }
    world.publish(pause("pause")).await;
    unpublish(&world, "order", 3).await;
    unpublish(&world, "pause", 1).await;
    let page = world.get("/console/workflows").await;
    page.says(&[
        "order Sells &#60;things&#62; 2 ✓ published 3 shop: Order Placed 0 0 0 list",
        "pause 1 – not published 1",
    ]);
    assert!(page.html.contains("href=\"/console/workflows/order\""), "{}", page.html);
    page.has_no(&["<things>", "More</a>"]);
}

#[tokio::test]
async fn a_long_list_goes_on_where_it_ended() {
    let world = World::new().await;
    for n in 0..101 {
        world.publish(pause(&format!("w{n:03}"))).await;
    }
    let first = world.get("/console/workflows").await;
    first.says(&["w000", "w099"]);
    first.has_no(&["w100"]);
    assert!(first.html.contains("href=\"/console/workflows?after=w099\""), "{}", first.html);
    let second = world.get("/console/workflows?after=w099").await;
    second.says(&["w100"]);
    second.has_no(&["w099", "More</a>"]);
}

#[tokio::test]
async fn a_workflow_is_shown_with_its_graph_its_versions_and_its_definition() {
    let world = World::new().await;
    for version in 1..=3 {
        world.publish(order(version, version)).await;
    }
    unpublish(&world, "order", 3).await;
    let page = world.get("/console/workflows/order").await;
    page.says(&[
        "order version 2",
        "✓ published Sells &#60;things&#62;",
        "charge. ship after charge.",
        "a: POST /charges",
        "3 – not published since 2 2 ✓ published since 1 1 ✓ published Definition",
        "attempts: 2",
        "&#34;attempts&#34;: 2",
    ]);
    // What is in a definition is text, and a policy that allows nothing inline is kept.
    page.has_no(&["<things>", "<b>", "style=", "<style", "onclick", "javascript:"]);
    world
        .get("/console/workflows/order?version=3")
        .await
        .says(&["order version 3", "– not published Sells"]);
}

#[tokio::test]
async fn what_changed_between_any_two_versions_is_said() {
    let world = World::new().await;
    for version in 1..=3 {
        world.publish(order(version, version)).await;
    }
    world.publish(order(4, 3)).await;
    let compared = |version, against| {
        let address = format!("/console/workflows/order?version={version}&against={against}");
        let world = &world;
        async move { world.get(&address).await }
    };
    compared(3, "1").await.says(&[
        "From version 1 to version 3",
        "✓ safe steps.charge.recovery.attempts 1 became 3 tries longer",
    ]);
    compared(1, "3").await.says(&["△ look steps.charge.recovery.attempts 3 became 1"]);
    compared(2, "2").await.says(&["From version 2 to version 2 Nothing changed."]);
    compared(4, "3").await.says(&["✓ safe version 3 became 4"]);
    // As the form sends it when nothing was chosen.
    let plain = compared(2, "").await;
    plain.says(&["order version 2"]);
    plain.has_no(&["From version"]);
}

#[tokio::test]
async fn what_is_not_there_is_said_to_be_missing() {
    let world = World::new().await;
    world.publish(order(1, 1)).await;
    for (address, status) in [
        ("/console/workflows/none", StatusCode::NOT_FOUND),
        ("/console/workflows/NONE", StatusCode::NOT_FOUND),
        ("/console/workflows/order?version=2", StatusCode::NOT_FOUND),
        ("/console/workflows/order?against=2", StatusCode::NOT_FOUND),
        ("/console/workflows/order?version=x", StatusCode::BAD_REQUEST),
    ] {
        let page = world.get(address).await;
        assert_eq!(page.status, status, "{address}");
        assert!(page.html.contains("<main"), "{}", page.html);
    }
}

/// Stores a task that ended so long after a day's beginning, with its attempts: the key, and when it was
/// sent, called and answered.
async fn ended(world: &World, id: &str, of: &str, ms: i64, attempts: &[(&str, [i64; 3])]) {
    let task = json!({
        "task_id": id, "workflow": of, "version": 1, "process_state": "Processed", "revision": 1,
        "submitted_at": 0, "ended_at": ms, "complete_by": 4_000_000_000_000_i64,
    });
    let task: Task = serde_json::from_value(task).unwrap();
    let at = |ms: i64| Timestamp::from_millisecond(ms).unwrap();
    let store = world.ports.store();
    let submitted = Document::new(DocumentKey::Submission, at(0), json!({ "input": null }));
    store.create(&task, &submitted).await.unwrap();
    for (key, times) in attempts {
        let [queued_at, called_at, answered_at] = times.map(|ms| Some(at(ms)));
        let times = AttemptTimes { queued_at, called_at, answered_at };
        let document = Document { times, ..Document::new(key.parse().unwrap(), at(0), json!({})) };
        store.put_document(&task.owner(), task.kept(), &document).await.unwrap();
    }
}

#[tokio::test]
async fn steps_are_measured_on_the_newest_tasks_that_ended() {
    let world = World::new().await;
    world.publish(order(1, 1)).await;
    world.get("/console/workflows/order").await.says(&["No task of it that ended lately"]);
    // Older than the fifty newest, and of another workflow.
    ended(&world, "old", "order", 1, &[("step/charge/7/failure", [0, 0, 90_000])]).await;
    ended(&world, "other", "return", 900, &[("step/charge/1/failure", [0, 0, 90_000])]).await;
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
        ended(&world, &format!("t{n}"), "order", 100 + n, attempts).await;
    }
    world.get("/console/workflows/order").await.says(&[
        "charge 51 1 (1%) 10 ms 10 ms 200 ms 200 ms",
        "undo of charge 1 0 5 ms 5 ms 10 ms 10 ms",
        "ship 1 1 (100%) 5 ms",
        "Measured on the 50 tasks of any version that ended last.",
    ]);
}

#[tokio::test]
async fn what_ended_in_the_last_day_is_counted_by_how() {
    let world = World::new().await;
    world.publish(order(1, 1)).await;
    world.publish(pause("pause")).await;
    world
        .get("/console/workflows/order")
        .await
        .says(&["Tasks that ended in the last 24 hours None."]);
    let (store, now) = (world.ports.store(), Timestamp::now());
    let ago = |hours| minute_of(now - jiff::SignedDuration::from_hours(hours));
    for (hours, processed) in [(1, 997), (2, 1_002), (25, 4)] {
        let mut minute = Minute::default();
        let order = "order".parse().unwrap();
        (0..processed).for_each(|_| minute.add(&order, ProcessState::Processed));
        minute.add(&"pause".parse().unwrap(), ProcessState::Undone);
        if hours == 1 {
            minute.add(&order, ProcessState::Error);
        }
        store.save_shared(&minute.record(ago(hours))).await.unwrap();
    }
    let counted_until = Some(minute_of(now));
    let run = LastRun { at: now, took_ms: 0, due: 0, failed: 0, shards_left: 0, counted_until };
    store.save_shared(&run.record(0)).await.unwrap();
    world
        .get("/console/workflows")
        .await
        .says(&["Order Placed 1999 1 0 list", "pause 1 ✓ published 1 0 0 2 list"]);
    world
        .get("/console/workflows/order")
        .await
        .says(&["99.9% of 2000 processed 1999 ✓ Processed 1 ✕ Error 0 ↺ Undone"]);
}
