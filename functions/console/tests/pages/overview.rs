//! The overview: whether anything is wrong, and how much there is of what.

use aws_sdk_sqs::Client;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use steward_core::{
    breaker::{Breaker, State},
    model::task::ProcessState,
};
use steward_runtime::{
    history::{Minute, minute_of},
    ports::{Ports, Shared, SharedKey, SharedKind, SharedSaved, StateStore},
};
use steward_supervisor::supervise;

use crate::{
    tasks::{in_seconds, task},
    world::World,
};

async fn swept(world: &World) {
    supervise(&*world.ports, 0, Timestamp::MAX).await.unwrap();
}

async fn record(world: &World, record: &Shared) {
    assert_eq!(world.ports.store().save_shared(record).await.unwrap(), SharedSaved::Saved);
}

#[tokio::test]
async fn a_deployment_that_is_well_says_so_first() {
    let world = World::new().await;
    swept(&world).await;
    world.create(&task("o-1", &json!({ "due": in_seconds(60) }))).await;
    let page = world.get("/console").await;
    page.says(&[
        "Overview ✓ Nothing is wrong. 1 not finished 0 in Error 0 Processed in the last hour",
        "No task is in Error.",
        "steward-submissions 0 0 0 0",
        "steward-agent-a 0 0 0 0",
        "steward-rejected 0 0 0 –",
        "None is open.",
        "0 due.",
    ]);
    page.has_no(&["style=", "onclick", "note bad"]);
}

#[tokio::test]
async fn what_is_wrong_is_said_with_a_link_to_it() {
    let world = World::new().await;
    let failed = json!({ "process_state": "Error", "ended_at": in_seconds(-30), "error": "card <declined>" });
    world.create(&task("o-1", &failed)).await;
    world.create(&task("o-2", &json!({ "due": in_seconds(-600) }))).await;
    let until = Timestamp::now() + SignedDuration::from_secs(60);
    let open = State::Open { until, open_for_ms: 60_000, reason: "503".to_owned() };
    let body = serde_json::to_value(Breaker { state: open, untold: Vec::new() }).unwrap();
    let key = SharedKey { kind: SharedKind::Breaker, name: "a".to_owned() };
    record(&world, &Shared { key, revision: 1, body, expires_at: None }).await;
    let sqs = Client::new(&world.aws.sdk_config());
    let queue =
        sqs.get_queue_url().queue_name("steward-agent-a-dead-letters").send().await.unwrap();
    let letter = sqs.send_message().queue_url(queue.queue_url.unwrap()).message_body("{");
    letter.send().await.unwrap();
    let page = world.get("/console").await;
    page.says(&[
        "✕ 5 things need a look:",
        "The supervisor has never run",
        "A task has been due since 10 min ago: o-2",
        "1 task is in Error",
        "1 dead letter in steward-agent-a-dead-letters",
        "The breaker of agent a is not closed",
        "o-1 order",
        "card &#60;declined&#62;",
        "a open 503",
        "steward-agent-a 0 0 0 1",
        "It has never run.",
    ]);
    for address in [
        "/console/tasks?state=Error",
        "/console/tasks/o%2D2",
        "/console/dead-letters/steward-agent-a-dead-letters",
        "#breakers",
    ] {
        assert!(page.html.contains(&format!("href=\"{address}\"")), "{address}: {}", page.html);
    }
}

#[tokio::test]
async fn history_is_what_the_supervisor_counted_and_what_ended_since() {
    let world = World::new().await;
    let hour_ago = minute_of(Timestamp::now() - SignedDuration::from_mins(30));
    let mut minute = Minute::default();
    for state in [ProcessState::Processed, ProcessState::Processed, ProcessState::Undone] {
        minute.add(&"order".parse().unwrap(), state);
    }
    record(&world, &minute.record(hour_ago)).await;
    swept(&world).await;
    world
        .create(&task("o-1", &json!({ "process_state": "Processed", "ended_at": in_seconds(0) })))
        .await;
    let page = world.get("/console").await;
    page.says(&[
        "3 Processed in the last hour 1 Undone in the last hour",
        "Ended: 4 in the last 3 h",
    ]);
    page.says(&["In Error or Undone: 1 in the last 3 h; most in 2 min: 1"]);
    assert_eq!(page.html.matches("<rect").count(), 3, "{}", page.html);
}

#[tokio::test]
async fn what_does_not_answer_leaves_the_rest_to_be_seen() {
    let world = World::new().await;
    swept(&world).await;
    let sqs = Client::new(&world.aws.sdk_config());
    let queue = sqs.get_queue_url().queue_name("steward-rejected").send().await.unwrap();
    sqs.delete_queue().queue_url(queue.queue_url.unwrap()).send().await.unwrap();
    let page = world.get("/console").await;
    page.says(&["✕ 1 thing needs a look: The queues did not answer", "0 not finished"]);
}
