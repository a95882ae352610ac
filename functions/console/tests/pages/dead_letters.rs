//! Dead letters: counts, summaries, sending them back.

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
use steward_runtime::ports::{Clock, CreateOutcome, Ports, StateStore};

use crate::test_console::TestConsole;

/// The URL of the page of a queue's dead letters.
fn page_of(queue: &str) -> String {
    format!("/console/dead-letters/{queue}{DEAD_LETTERS}")
}

impl TestConsole {
    fn sqs(&self) -> Client {
        Client::new(&self.aws.sdk_config())
    }

    fn queue_url(&self, name: &str) -> String {
        self.config.scheduler_queue_url.replace(SCHEDULER_QUEUE, name)
    }

    /// Sends a message to the dead-letter queue of `queue`.
    async fn send_dead_letter(&self, queue: &str, body: impl ToString) {
        let url = self.queue_url(&format!("{queue}{DEAD_LETTERS}"));
        let request = self.sqs().send_message().queue_url(url).message_body(body.to_string());
        request.send().await.unwrap();
    }

    /// Receives the bodies of the messages in a queue, sorted.
    async fn receive_all(&self, queue: &str) -> Vec<String> {
        let (sqs, url) = (self.sqs(), self.queue_url(queue));
        let request = sqs.receive_message().queue_url(url).max_number_of_messages(10);
        let messages = request.send().await.unwrap().messages.unwrap_or_default();
        let mut bodies: Vec<_> =
            messages.into_iter().map(|message| message.body.unwrap()).collect();
        bodies.sort();
        bodies
    }

    /// Stores a task.
    async fn create_task(&self, task_id: &str, state: &str) {
        let now = self.ports.clock().now().as_millisecond();
        let task: Task = serde_json::from_value(json!({
            "task_id": task_id, "workflow": "order", "v": 1, "i": now, "k": now / 1_000, "process_state": state,
            "revision": 1, "complete_by": now, "submitted_at": now,
        }))
        .unwrap();
        let (key, at) = (DocumentKey::Submission, task.submitted_at);
        let submitted = Document::new(key, at, Value::Null);
        let created = self.ports.store().create(&task, Some(&submitted)).await.unwrap();
        assert_eq!(created, CreateOutcome::Created);
    }
}

fn wake(task_id: &str) -> String {
    let wake = Wake::new(task_id.parse().unwrap(), WakeCause::Waited);
    serde_json::to_string(&SchedulerMessage::Wake(wake)).unwrap()
}

#[tokio::test]
async fn queues_are_listed_with_message_counts_and_sources() {
    let console = TestConsole::new().await;
    let url = "/console/dead-letters";
    console
        .get(url)
        .await
        .assert_text(&["No dead letters", "steward-scheduler-dead-letters 0 0 steward-scheduler"]);
    console.send_dead_letter(SCHEDULER_QUEUE, "one").await;
    console.send_dead_letter(SCHEDULER_QUEUE, "two").await;
    let page = console.get(url).await;
    page.assert_text(&[
        "steward-scheduler-dead-letters 2 0 steward-scheduler",
        "steward-agent-a-dead-letters 0 0",
        "steward-rejected 0 0 steward-submissions",
    ]);
    page.assert_absent(&["No dead letters"]);
    assert!(page.html.contains(&format!("href=\"{}\"", page_of(SCHEDULER_QUEUE))), "{}", page.html);
}

#[tokio::test]
async fn viewing_shows_summaries_and_causes_and_keeps_the_messages() {
    let console = TestConsole::new().await;
    console.create_task("order-1", "Processing").await;
    console.send_dead_letter(SCHEDULER_QUEUE, wake("order-1")).await;
    console.send_dead_letter(SCHEDULER_QUEUE, wake("order-2")).await;
    let secret = r#"{"type":"wake","task_id":"order-3","cause":"card qzxq"}"#;
    console.send_dead_letter(SCHEDULER_QUEUE, secret).await;
    for n in 1..=3 {
        let page = console.get(&page_of(SCHEDULER_QUEUE)).await;
        page.assert_text(&[
            "About 3 messages, from steward-scheduler",
            "wake Task order-1 ◐ Processing Cause unknown",
            "wake Task order-2 Cause the task does not exist, or has expired",
            "message Task order-3 Cause the message is invalid: unknown variant",
            &format!("Receives {n}, including views"),
            "Body 55 bytes",
        ]);
        assert!(page.html.contains("href=\"/console/tasks/order%2D1\""), "{}", page.html);
        // A refresh would count as another receive, and a page shows no payload.
        page.assert_absent(&["hx-get", "qzxq"]);
    }
    assert_eq!(console.receive_all("steward-scheduler-dead-letters").await.len(), 3);
}

#[tokio::test]
async fn the_input_of_a_submission_is_masked_or_hidden_without_a_definition() {
    let console = TestConsole::new().await;
    console
        .publish(json!({
            "name": "order", "version": 1, "mask": ["/card/number"],
            "steps": { "pause": { "wait": "1m" } },
        }))
        .await;
    console.create_task("order-7", "Processed").await;
    let input = json!({ "card": { "number": "qzxq", "name": "<Ann>" } });
    for (task_id, workflow) in [("order-7", "order"), ("parcel-7", "parcel")] {
        let submission = json!({ "task_id": task_id, "workflow": workflow, "input": input });
        console.send_dead_letter(SUBMISSIONS_QUEUE, submission).await;
    }
    let event = json!({
        "id": "e-1", "source": "shop", "detail-type": "Order Placed", "detail": { "card": "qzxq" },
    });
    console.send_dead_letter(SUBMISSIONS_QUEUE, event).await;
    let page = console.get(&page_of(SUBMISSIONS_QUEUE)).await;
    page.assert_text(&[
        "submission for order Task order-7 ✓ Processed Cause the task exists",
        "Input of the submission { &#34;card&#34;: { &#34;number&#34;: &#34;••••&#34;, &#34;name&#34;: &#34;&#60;Ann&#62;&#34;",
        "submission for parcel Task parcel-7",
        "event Order Placed from shop",
    ]);
    page.assert_absent(&["qzxq", "<Ann>"]);
    assert_eq!(page.html.matches("Input of the submission").count(), 1);
}

#[tokio::test]
async fn sending_messages_back_requires_a_reason_and_is_published() {
    let console = TestConsole::new().await;
    console.send_dead_letter(SCHEDULER_QUEUE, wake("order-1")).await;
    console.send_dead_letter(SCHEDULER_QUEUE, wake("order-2")).await;
    let (url, redrive) =
        (page_of(SCHEDULER_QUEUE), format!("{}/redrive", page_of(SCHEDULER_QUEUE)));
    let (form, reader) = ([("reason", " mended ")], console.read_only());
    reader.get(&url).await.assert_absent(&["<form method=\"post\""]);
    assert_eq!(reader.post(&redrive, &form).await.status, StatusCode::FORBIDDEN);
    assert_eq!(console.post(&redrive, &[("reason", " ")]).await.status, StatusCode::BAD_REQUEST);
    assert_eq!(
        console.receive_all(ALERTS_QUEUE).await,
        [""; 0],
        "an event was published without a redrive"
    );

    let page = console.post(&redrive, &form).await;
    assert_eq!(page.status, StatusCode::SEE_OTHER);
    let location = page.location.unwrap();
    assert_eq!(location, format!("{url}?sent=2&kept=0&doubled=0"));
    console.get(&location).await.assert_text(&["2 sent back.", "About 0 messages", "No messages."]);
    assert_eq!(console.receive_all(SCHEDULER_QUEUE).await, [wake("order-1"), wake("order-2")]);
    let [event] = console.receive_all(ALERTS_QUEUE).await.try_into().unwrap();
    let event: Value = serde_json::from_str(&event).unwrap();
    assert_eq!(event["detail-type"], "Operator Redrive");
    let expected = json!({
        "queue": "steward-scheduler-dead-letters", "messages_max": 1_000, "by": "ada", "why": "mended",
    });
    assert_eq!(event["detail"]["data"], expected);
}

#[tokio::test]
async fn a_queue_that_is_not_configured_has_no_page() {
    let console = TestConsole::new().await;
    create_queue(&console.aws.sdk_config(), "private", Some(SCHEDULER)).await.unwrap();
    for name in [SCHEDULER_QUEUE, "private-dead-letters", "nowhere"] {
        let url = format!("/console/dead-letters/{name}");
        assert_eq!(console.get(&url).await.status, StatusCode::NOT_FOUND);
        let redrive = format!("{url}/redrive");
        let refused = console.post(&redrive, &[("reason", "mended")]).await;
        assert_eq!(refused.status, StatusCode::NOT_FOUND);
    }
}
