//! The consumers of queues: the mail service reads requests for approval, accounting reads bookings and their voids.
//!
//! | service | message | effect |
//! | --- | --- | --- |
//! | mail | `{ "purchase": …, "cost_centre": …, "amount": … }` | a mail to the manager |
//! | accounting | `{ "book": PURCHASE, … }` | a booking, unless its void came before |
//! | accounting | `{ "void": PURCHASE }` | voids the booking, also one that comes later |
//!
//! SQS delivers a message at least once, and in any order. The consumers recognise a repeated message by the attribute
//! `idempotency-key`. A consumer that fails does not delete its message, and receives it again after a second. Messages
//! that are not understood stay in the queue.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use aws_sdk_sqs::types::Message;
use serde_json::{Map, Value, json};
use steward_test_world::service::Reply;
use tokio::task::JoinSet;

use super::{
    connection::StewardConnection,
    demo_service::DemoService,
    fault::FaultKind,
    ledger::{SideEffect, SubjectRecord},
    mock_service::{IncomingCall, MockService, Operation, pause},
    request_fields::{is_id, json_object},
    responses::bad_request,
};

/// How many messages a consumer processes at the same time.
const CONCURRENCY: usize = 200;

/// How long a received message stays hidden, in seconds.
const VISIBILITY_SECONDS: i32 = 1;

/// How long a receive waits for a message, in seconds.
const WAIT_SECONDS: i32 = 10;

/// The messages of one receive.
const BATCH: i32 = 10;

/// The pause after a failed receive.
const ERROR_PAUSE: Duration = Duration::from_millis(500);

/// The attribute with the idempotency key, which the agent of kind `sqs` sets.
const KEY: &str = "idempotency-key";

/// A message that the consumer understands.
#[derive(Debug, Clone)]
pub(super) struct QueueMessage {
    pub(super) key: String,
    pub(super) operation: Operation,
    /// The purchase.
    pub(super) subject: String,
    pub(super) body: Map<String, Value>,
}

/// What a consumer does besides the ledger when a message takes effect.
pub(super) type OnEffect = Arc<dyn Fn(Map<String, Value>) + Send + Sync>;

/// Reads the queue of the service until the services are stopped.
pub(super) async fn consume(
    mock: Arc<MockService>,
    queue: &'static str,
    steward: StewardConnection,
    on_effect: OnEffect,
) {
    let mut running = JoinSet::new();
    let consuming = async {
        loop {
            while running.len() >= CONCURRENCY {
                running.join_next().await;
            }
            while running.try_join_next().is_some() {}
            let Ok((url, messages)) = receive(&steward, queue).await else {
                // Steward may not have started yet.
                tokio::time::sleep(ERROR_PAUSE).await;
                continue;
            };
            for message in messages {
                let (mock, on_effect) = (mock.clone(), on_effect.clone());
                let (sqs, url) = (steward.sqs.clone(), url.clone());
                running.spawn(async move {
                    if mock.handle_message(&message, &on_effect).await {
                        let delete = sqs.delete_message().queue_url(url);
                        // A message that could not be deleted comes again, which has no second effect.
                        let _ = delete.set_receipt_handle(message.receipt_handle).send().await;
                    }
                });
            }
        }
    };
    tokio::select! {
        () = consuming => {}
        () = mock.stopped() => {}
    }
}

/// Receives messages, and returns them with the URL of the queue.
async fn receive(steward: &StewardConnection, queue: &str) -> Result<(String, Vec<Message>)> {
    let url = steward.queue_url(queue).await?;
    let request = steward.sqs.receive_message().queue_url(&url).message_attribute_names(KEY);
    let request = request.max_number_of_messages(BATCH).wait_time_seconds(WAIT_SECONDS);
    let received = request.visibility_timeout(VISIBILITY_SECONDS).send().await;
    let received = received.with_context(|| format!("receive messages of {queue}"))?;
    Ok((url, received.messages.unwrap_or_default()))
}

impl MockService {
    /// Handles a message as the fault plan says. Returns whether it is to be deleted.
    async fn handle_message(&self, message: &Message, on_effect: &OnEffect) -> bool {
        let Some(message) = QueueMessage::parse(self.service(), message) else { return false };
        let QueueMessage { key, operation, subject, .. } = &message;
        let (operation, in_progress_status) = (*operation, None);
        let call = IncomingCall { operation, key, subject, in_progress_status };
        let (plan, _) = self.receive(call);
        let Some(after) = plan.commits_after else { return false };
        pause(after).await;
        self.carry_out_message(message, on_effect);
        // Otherwise the consumer fails now, and gets the message again.
        plan.reply != Reply::BrokenConnection
    }

    /// Carries the message out, once for each key.
    pub(super) fn carry_out_message(&self, message: QueueMessage, on_effect: &OnEffect) {
        let QueueMessage { key, operation, subject, body } = message;
        let id = format!("{}-{:016x}", self.service(), self.digest(&key));
        let reused = bad_request("key-reused", "This key was used for another message");
        let content = (operation, body);
        self.state().execute_once(&key, &subject, content, reused, |record, (_, body)| {
            if take_effect(record, operation, &key, id) {
                on_effect(body.clone());
            }
            json!({})
        });
    }
}

/// Adds the side effect to the record, or undoes it for good. Returns whether it was added.
fn take_effect(record: &mut SubjectRecord, operation: Operation, key: &str, id: String) -> bool {
    match operation {
        Operation::Undo => {
            record.undo(key, |_| true);
            record.void.get_or_insert_with(|| key.to_owned());
            false
        }
        Operation::Do if record.void.is_some() => {
            record.count_fault(FaultKind::OutOfOrder);
            false
        }
        Operation::Do => {
            record.effects.push(SideEffect { id, done_by: key.to_owned(), undone_by: None });
            true
        }
    }
}

impl QueueMessage {
    /// Parses a message to the service. `None` if the service does not understand it.
    fn parse(service: DemoService, message: &Message) -> Option<Self> {
        let key = message.message_attributes()?.get(KEY)?.string_value()?;
        let body = json_object(message.body()?.as_bytes()).ok()?;
        let subject = |field: &str| body.get(field)?.as_str().filter(|id| is_id(id));
        let (operation, subject) = match service {
            DemoService::Mail => (Operation::Do, subject("purchase")?),
            DemoService::Accounting => match (subject("book"), subject("void")) {
                (Some(purchase), None) => (Operation::Do, purchase),
                (None, Some(purchase)) => (Operation::Undo, purchase),
                (Some(_), Some(_)) | (None, None) => return None,
            },
            DemoService::Inventory
            | DemoService::Payment
            | DemoService::Shipping
            | DemoService::Account
            | DemoService::Package
            | DemoService::Transport
            | DemoService::DroneScheduler
            | DemoService::Delivery
            | DemoService::Finance
            | DemoService::Supplier => return None,
        };
        let subject = subject.to_owned();
        Some(Self { key: key.to_owned(), operation, subject, body })
    }
}
