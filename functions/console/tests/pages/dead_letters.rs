//! Dead letters: which there are, what they are about, and back to where they came from.

use aws_sdk_sqs::Client;
use axum::http::StatusCode;
use serde_json::{Value, json};
use steward_aws::queues::SCHEDULER;
use steward_core::model::{
    document::{Document, DocumentKey},
    messages::{SchedulerMessage, Wake, WakeCause},
    task::Task,
};
use steward_emulator::resources::{
    ALERTS_QUEUE, DEAD_LETTERS, SCHEDULER_QUEUE, SUBMISSIONS_QUEUE, create_queue,
};
use steward_runtime::ports::{Clock, Created, Ports, StateStore};

use crate::world::World;

/// The address of a queue's dead letters.
fn page_of(queue: &str) -> String {
    format!("/console/dead-letters/{queue}{DEAD_LETTERS}")
}

impl World {
    fn sqs(&self) -> Client {
        Client::new(&self.aws.sdk_config())
    }

    fn queue_url(&self, name: &str) -> String {
        self.config.scheduler_queue_url.replace(SCHEDULER_QUEUE, name)
    }

    /// Sends a message to the dead letters of a queue.
    async fn dead_letter(&self, queue: &str, body: impl ToString) {
        let url = self.queue_url(&format!("{queue}{DEAD_LETTERS}"));
        let request = self.sqs().send_message().queue_url(url).message_body(body.to_string());
        request.send().await.unwrap();
    }

    /// Takes the bodies of what is in a queue.
    async fn take(&self, queue: &str) -> Vec<String> {
        let (sqs, url) = (self.sqs(), self.queue_url(queue));
        let request = sqs.receive_message().queue_url(url).max_number_of_messages(10);
        let messages = request.send().await.unwrap().messages.unwrap_or_default();
        let mut bodies: Vec<_> =
            messages.into_iter().map(|message| message.body.unwrap()).collect();
        bodies.sort();
        bodies
    }

    async fn record(&self, task_id: &str, state: &str) {
        let now = self.ports.clock().now().as_millisecond();
        let task: Task = serde_json::from_value(json!({
            "task_id": task_id, "workflow": "order", "version": 1, "process_state": state,
            "revision": 1, "complete_by": now, "submitted_at": now,
        }))
        .unwrap();
        let (key, at) = (DocumentKey::Submission, task.submitted_at);
        let submitted = Document::new(key, at, Value::Null);
        let created = self.ports.store().create(&task, &submitted).await.unwrap();
        assert_eq!(created, Created::Created);
    }
}

fn wake(task_id: &str) -> String {
    let wake = Wake { task_id: task_id.parse().unwrap(), cause: WakeCause::Waited };
    serde_json::to_string(&SchedulerMessage::Wake(wake)).unwrap()
}

#[tokio::test]
async fn queues_are_listed_with_what_they_hold_and_where_it_comes_from() {
    let world = World::new().await;
    let address = "/console/dead-letters";
    world
        .get(address)
        .await
        .says(&["No dead letters", "steward-scheduler-dead-letters 0 0 steward-scheduler"]);
    world.dead_letter(SCHEDULER_QUEUE, "one").await;
    world.dead_letter(SCHEDULER_QUEUE, "two").await;
    let page = world.get(address).await;
    page.says(&[
        "steward-scheduler-dead-letters 2 0 steward-scheduler",
        "steward-agent-a-dead-letters 0 0",
    ]);
    page.has_no(&["No dead letters"]);
    assert!(page.html.contains(&format!("href=\"{}\"", page_of(SCHEDULER_QUEUE))), "{}", page.html);
}

#[tokio::test]
async fn a_look_tells_what_a_message_is_about_and_why_it_is_there_and_uses_nothing_up() {
    let world = World::new().await;
    world.record("order-1", "Processing").await;
    world.dead_letter(SCHEDULER_QUEUE, wake("order-1")).await;
    world.dead_letter(SCHEDULER_QUEUE, wake("order-2")).await;
    let secret = r#"{"type":"wake","task_id":"order-3","cause":"card 4111"}"#;
    world.dead_letter(SCHEDULER_QUEUE, secret).await;
    for n in 1..=3 {
        let page = world.get(&page_of(SCHEDULER_QUEUE)).await;
        page.says(&[
            "About 3 messages, from steward-scheduler",
            "wake Task order-1 ◐ Processing Why here not known here",
            "wake Task order-2 Why here there is no such task, or it has expired",
            "message Task order-3 Why here it cannot be read: unknown variant",
            &format!("Receives {n}, looks included"),
            "Body 55 bytes",
        ]);
        assert!(page.html.contains("href=\"/console/tasks/order%2D1\""), "{}", page.html);
        // Looking by itself would count for ever, and a payload is nobody's to see.
        page.has_no(&["hx-get", "4111"]);
    }
    assert_eq!(world.take("steward-scheduler-dead-letters").await.len(), 3);
}

#[tokio::test]
async fn a_submission_is_shown_as_its_workflow_masks_it_and_not_at_all_without_one() {
    let world = World::new().await;
    world
        .publish(json!({
            "name": "order", "version": 1, "mask": ["/card/number"],
            "steps": { "pause": { "wait": "1m" } },
        }))
        .await;
    world.record("order-7", "Processed").await;
    let input = json!({ "card": { "number": "4111", "name": "<Ann>" } });
    for (task_id, workflow) in [("order-7", "order"), ("parcel-7", "parcel")] {
        let submission = json!({ "task_id": task_id, "workflow": workflow, "input": input });
        world.dead_letter(SUBMISSIONS_QUEUE, submission).await;
    }
    let event = json!({
        "id": "e-1", "source": "shop", "detail-type": "Order Placed", "detail": { "card": "4111" },
    });
    world.dead_letter(SUBMISSIONS_QUEUE, event).await;
    let page = world.get(&page_of(SUBMISSIONS_QUEUE)).await;
    page.says(&[
        "submission for order Task order-7 ✓ Processed Why here the task is recorded",
        "What was submitted { &#34;card&#34;: { &#34;number&#34;: &#34;••••&#34;, &#34;name&#34;: &#34;&#60;Ann&#62;&#34;",
        "submission for parcel Task parcel-7",
        "event Order Placed of shop",
    ]);
    page.has_no(&["4111", "<Ann>"]);
    assert_eq!(page.html.matches("What was submitted").count(), 1);
}

#[tokio::test]
async fn messages_are_sent_back_by_name_and_with_a_reason() {
    let world = World::new().await;
    world.dead_letter(SCHEDULER_QUEUE, wake("order-1")).await;
    world.dead_letter(SCHEDULER_QUEUE, wake("order-2")).await;
    let (address, redrive) =
        (page_of(SCHEDULER_QUEUE), format!("{}/redrive", page_of(SCHEDULER_QUEUE)));
    let (because, reader) = ([("reason", " mended ")], world.reader());
    reader.get(&address).await.has_no(&["<form method=\"post\""]);
    assert_eq!(reader.post(&redrive, &because).await.status, StatusCode::FORBIDDEN);
    assert_eq!(world.post(&redrive, &[("reason", " ")]).await.status, StatusCode::BAD_REQUEST);
    assert_eq!(world.take(ALERTS_QUEUE).await, [""; 0], "told of what was not done");

    let page = world.post(&redrive, &because).await;
    assert_eq!(page.status, StatusCode::SEE_OTHER);
    let location = page.location.unwrap();
    assert_eq!(location, format!("{address}?sent=2&kept=0&doubled=0"));
    world.get(&location).await.says(&["2 sent back.", "About 0 messages", "Nothing to show"]);
    assert_eq!(world.take(SCHEDULER_QUEUE).await, [wake("order-1"), wake("order-2")]);
    let [told] = world.take(ALERTS_QUEUE).await.try_into().unwrap();
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["detail-type"], "Operator Redrive");
    let said = json!({
        "queue": "steward-scheduler-dead-letters", "messages_max": 1_000, "by": "ada", "why": "mended",
    });
    assert_eq!(told["detail"]["data"], said);
}

#[tokio::test]
async fn a_queue_that_is_not_watched_is_not_looked_into() {
    let world = World::new().await;
    create_queue(&world.aws.sdk_config(), "private", Some(SCHEDULER)).await.unwrap();
    for name in [SCHEDULER_QUEUE, "private-dead-letters", "nowhere"] {
        let address = format!("/console/dead-letters/{name}");
        assert_eq!(world.get(&address).await.status, StatusCode::NOT_FOUND);
        let redrive = format!("{address}/redrive");
        let refused = world.post(&redrive, &[("reason", "mended")]).await;
        assert_eq!(refused.status, StatusCode::NOT_FOUND);
    }
}
