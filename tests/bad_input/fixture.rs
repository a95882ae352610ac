//! A deployment for invalid submissions, with access to everything that a submission causes.

use aws_lambda_events::sqs::SqsBatchResponse;
use aws_sdk_dynamodb::types::AttributeValue;
use aws_sdk_sqs::types::Message;
use serde_json::{Value, json};
use steward_core::{definition::workflow::Workflow, limits, model::document::DocumentKey};
use steward_emulator::resources;
use steward_runtime::ports::{Clock, Ports, StateStore};

use crate::support::{TestDeployment, sqs_event, truncate_to_millis};

/// The workflow `order` of this repository.
pub(super) fn order_workflow() -> Workflow {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../workflows/order.yaml");
    steward_definition_file::read_file(&path).unwrap()
}

/// A workflow whose input has a schema.
pub(super) fn strict_workflow(version: u32, maximum: u32) -> Workflow {
    let amount = json!({ "type": "integer", "maximum": maximum });
    serde_json::from_value(json!({
        "name": "strict", "version": version,
        "input": { "type": "object", "required": ["amount"], "properties": { "amount": amount } },
        "steps": { "a": { "wait": "1s" } },
    }))
    .unwrap()
}

/// A deployment with two more queues: a client's queue that is on the list of reply queues, and one that is not.
pub(super) struct SubmissionFixture {
    pub(super) deployment: TestDeployment,
    pub(super) client_queue: String,
    pub(super) unlisted_queue: String,
}

impl SubmissionFixture {
    pub(super) async fn new() -> Self {
        let deployment = TestDeployment::new(&order_workflow()).await;
        let ports = deployment.ports("publisher");
        ports.definitions().publish(&strict_workflow(1, 10)).await.unwrap();
        let sdk = deployment.aws.sdk_config();
        let client_queue = resources::create_queue(&sdk, "client-shop", None).await.unwrap();
        let unlisted_queue = resources::create_queue(&sdk, "unlisted-queue", None).await.unwrap();
        Self { deployment, client_queue, unlisted_queue }
    }

    pub(super) async fn submit(&self, texts: &[String]) -> SqsBatchResponse {
        let ports = self.deployment.ports("submission");
        let event = sqs_event(texts.iter().cloned(), 1);
        steward_submission::handle(&ports, &self.deployment.config.reply_queues, event).await
    }

    /// Takes the wakes for the scheduler; returns their task ids, sorted.
    pub(super) async fn woken_tasks(&self) -> Vec<String> {
        let wakes = self.deployment.take_scheduler_messages().await.into_iter().map(|body| {
            let wake: Value = serde_json::from_str(&body).unwrap();
            assert_eq!((&wake["type"], &wake["cause"]), (&json!("wake"), &json!("submitted")));
            wake["task_id"].as_str().unwrap().to_owned()
        });
        sorted(wakes.collect())
    }

    /// Takes the messages of the rejected queue; returns their texts and reasons, sorted.
    pub(super) async fn take_rejected(&self) -> Vec<(String, String)> {
        let taken = self.deployment.take_messages(&self.deployment.config.rejected_queue_url).await;
        sorted(taken.iter().map(|message| (body(message), attribute(message, "reason"))).collect())
    }

    /// Takes all alerts, which must be about submissions; returns their task ids and reasons, sorted.
    pub(super) async fn take_refusal_alerts(&self) -> Vec<(Option<String>, String)> {
        let alerts = self.deployment.take_alerts().await.into_iter().map(|event| {
            assert_eq!(event["detail-type"], "Submission Refused");
            let (metadata, alert) = (&event["detail"]["metadata"], &event["detail"]["data"]);
            assert_eq!(metadata["event"], "submission_refused");
            assert_eq!(
                metadata["at"],
                json!(truncate_to_millis(self.deployment.ports("reader").clock().now()))
            );
            (optional(&alert["task_id"]), alert["reason"].as_str().unwrap().to_owned())
        });
        sorted(alerts.collect())
    }

    /// Takes the notifications of a queue; returns their task ids, statuses and reasons, sorted.
    pub(super) async fn take_notifications(
        &self,
        queue: &str,
    ) -> Vec<(Option<String>, String, Option<String>)> {
        let taken = self.deployment.take_messages(queue).await;
        let notifications = taken.iter().map(|message| {
            let notification: Value = serde_json::from_str(&body(message)).unwrap();
            let status = notification["status"].as_str().unwrap().to_owned();
            (optional(&notification["task_id"]), status, optional(&notification["reason"]))
        });
        sorted(notifications.collect())
    }

    /// All items of the tables of tasks and documents, sorted.
    pub(super) async fn stored_items(&self) -> Vec<String> {
        let tables = aws_sdk_dynamodb::Client::new(&self.deployment.aws.sdk_config());
        let mut items = Vec::new();
        for table in [resources::TASKS_TABLE, resources::DOCUMENTS_TABLE] {
            let scan = tables.scan().table_name(table).send().await.unwrap();
            assert!(scan.last_evaluated_key().is_none(), "more than one page");
            for item in scan.items() {
                items.push(format!("{table} {}", text_of(&AttributeValue::M(item.clone()))));
            }
        }
        // Not of a task: the records of circuit breakers.
        items.retain(|item| !item.contains("#breaker"));
        sorted(items)
    }

    /// The submission document of the task `id`, if the task exists.
    pub(super) async fn submission_of(&self, id: &str) -> Option<Value> {
        let ports = self.deployment.ports("reader");
        let id = id.parse().unwrap();
        let task = ports.store().load(&id).await.unwrap()?;
        let documents =
            ports.store().documents_of(&task, &[DocumentKey::Submission]).await.unwrap();
        assert!(!documents.is_empty(), "{id}: a task without its submission");
        documents.into_iter().next().map(|document| document.body)
    }
}

/// The text of an attribute, with the fields of maps in order.
fn text_of(value: &AttributeValue) -> String {
    match value.as_m() {
        Ok(fields) => {
            let fields = fields.iter().map(|(name, value)| format!("{name}: {}", text_of(value)));
            format!("{{{}}}", sorted(fields.collect()).join(", "))
        }
        Err(other) => format!("{other:?}"),
    }
}

pub(super) fn sorted<T: Ord>(mut items: Vec<T>) -> Vec<T> {
    items.sort();
    items
}

/// The texts, each cut to 200 characters, with their reasons.
pub(super) fn shortened(texts: &[(String, String)]) -> Vec<(String, &str)> {
    texts.iter().map(|(text, reason)| (limits::short_line(text, 200), reason.as_str())).collect()
}

pub(super) fn optional(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

pub(super) fn body(message: &Message) -> String {
    message.body().unwrap().to_owned()
}

pub(super) fn attribute(message: &Message, name: &str) -> String {
    let attributes = message.message_attributes().unwrap();
    attributes[name].string_value().unwrap().to_owned()
}

pub(super) async fn drop_tasks_table(sdk: &aws_config::SdkConfig) {
    let tables = aws_sdk_dynamodb::Client::new(sdk);
    tables.delete_table().table_name(resources::TASKS_TABLE).send().await.unwrap();
}
