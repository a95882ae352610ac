//! SQS in the process: rustack's queue actors, in memory, and a knob that doubles messages.

use std::sync::{Arc, Mutex, PoisonError};

use aws_lambda_events::sqs::{SqsMessage, SqsMessageAttribute};
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, HeaderValue};
use bytes::Bytes;
use rustack_sqs_core::config::SqsConfig;
use rustack_sqs_core::handler::RustackSqsHandler;
use rustack_sqs_core::provider::RustackSqs;
use rustack_sqs_http::dispatch::dispatch_operation;
use rustack_sqs_http::response::error_to_response;
use rustack_sqs_http::router::resolve_operation;
use rustack_sqs_model::input::{DeleteMessageBatchInput, ReceiveMessageInput};
use rustack_sqs_model::types::{DeleteMessageBatchRequestEntry, Message};
use serde_json::{Value, json};

use super::answer::Answer;
use super::{ACCOUNT, REGION};

const SEND_MESSAGE: &str = "AmazonSQS.SendMessage";
const SEND_MESSAGE_BATCH: &str = "AmazonSQS.SendMessageBatch";
const LIST_SOURCES: &str = "AmazonSQS.ListDeadLetterSourceQueues";

/// Messages that a poller takes at once, by SQS's limit.
const BATCH: i32 = 10;

/// How long a poll waits for messages, in seconds.
const POLL_SECONDS: i32 = 20;

/// The embedded queues.
pub(super) struct Queues {
    queues: Arc<RustackSqs>,
    /// The same behind SQS's protocol.
    handler: RustackSqsHandler,
    /// `None` unless messages are to be doubled.
    coin: Mutex<Option<Coin>>,
}

/// Decides which messages are doubled.
struct Coin {
    rate: f64,
    random: fastrand::Rng,
}

impl Queues {
    /// No queues yet; their URLs will carry `host` and `port`.
    pub(super) fn new(host: String, port: u16) -> Self {
        let config = SqsConfig {
            host,
            port,
            skip_signature_validation: true,
            default_region: REGION.to_owned(),
            account_id: ACCOUNT.to_owned(),
        };
        let queues = Arc::new(RustackSqs::new(config));
        let handler = RustackSqsHandler::new(queues.clone());
        Self { queues, handler, coin: Mutex::new(None) }
    }

    /// Up to ten messages, waiting for the first, as Lambda's poller takes them.
    pub(super) async fn receive(&self, queue_url: &str) -> Result<Vec<SqsMessage>, String> {
        let all = || vec!["All".to_owned()];
        let request = ReceiveMessageInput {
            queue_url: queue_url.to_owned(),
            max_number_of_messages: Some(BATCH),
            wait_time_seconds: Some(POLL_SECONDS),
            message_system_attribute_names: all(),
            message_attribute_names: all(),
            ..ReceiveMessageInput::default()
        };
        let answer = self.queues.receive_message(request).await;
        Ok(answer.map_err(|error| error.to_string())?.messages.into_iter().map(record).collect())
    }

    /// Deletes what was received.
    pub(super) async fn delete(
        &self,
        queue_url: &str,
        receipts: Vec<String>,
    ) -> Result<(), String> {
        let entries = receipts.into_iter().enumerate().map(|(n, receipt_handle)| {
            DeleteMessageBatchRequestEntry { id: n.to_string(), receipt_handle }
        });
        let entries: Vec<_> = entries.collect();
        if entries.is_empty() {
            return Ok(());
        }
        let request = DeleteMessageBatchInput { queue_url: queue_url.to_owned(), entries };
        let answer = self.queues.delete_message_batch(request).await;
        answer.map(|_| ()).map_err(|error| error.to_string())
    }

    /// Double each message with probability `rate` from now on.
    pub(super) fn duplicate_messages(&self, rate: f64, seed: u64) {
        let coin = (rate > 0.0).then(|| Coin { rate, random: fastrand::Rng::with_seed(seed) });
        *self.coin.lock().unwrap_or_else(PoisonError::into_inner) = coin;
    }

    /// Answer one SQS request.
    pub(super) async fn answer(&self, target: &str, body: Bytes) -> Answer {
        let repeat = self.repeat_of(target, &body);
        let answer = self.call(target, body).await;
        if let Some(repeat) = repeat
            && answer.status == 200
        {
            self.call(target, repeat).await;
        }
        answer
    }

    /// Send one message, as EventBridge does for a rule's target.
    pub(super) async fn send(&self, queue_url: &str, message: &str) -> Answer {
        let body = json!({ "QueueUrl": queue_url, "MessageBody": message }).to_string();
        self.answer(SEND_MESSAGE, body.into()).await
    }

    /// The request that sends again those messages whose coin says so.
    fn repeat_of(&self, target: &str, body: &Bytes) -> Option<Bytes> {
        let mut coin = self.coin.lock().unwrap_or_else(PoisonError::into_inner);
        let coin = coin.as_mut()?;
        match target {
            SEND_MESSAGE => coin.flip().then(|| body.clone()),
            SEND_MESSAGE_BATCH => {
                let mut batch: Value = serde_json::from_slice(body).ok()?;
                let entries = batch.get_mut("Entries")?.as_array_mut()?;
                entries.retain(|_| coin.flip());
                (!entries.is_empty()).then(|| batch.to_string().into())
            }
            _ => None,
        }
    }

    async fn call(&self, target: &str, body: Bytes) -> Answer {
        // rustack reads the operation from a header, and only so.
        let mut headers = HeaderMap::new();
        if let Ok(target) = HeaderValue::from_str(target) {
            headers.insert("x-amz-target", target);
        }
        let response = match resolve_operation(&headers) {
            Ok(operation) => dispatch_operation(&self.handler, operation, body).await,
            Err(error) => Err(error),
        };
        let response = response.unwrap_or_else(|error| error_to_response(&error, ""));
        let (parts, body) = response.into_parts();
        // The body is already in memory, so reading it can neither wait nor fail.
        let body = to_bytes(Body::new(body), usize::MAX).await.unwrap_or_default();
        if parts.status.is_success() {
            return Answer::ok(if target == LIST_SOURCES { as_aws_spells(&body) } else { body });
        }
        let query_error =
            parts.headers.get("x-amzn-query-error").and_then(|code| code.to_str().ok());
        let code = query_error.and_then(|code| code.split(';').next()).unwrap_or("InternalError");
        let query_error = query_error.map(str::to_owned);
        Answer { query_error, ..Answer::error(parts.status.as_u16(), code, body) }
    }
}

/// The one answer of SQS that begins its list's name with a small letter; rustack uses a capital, and
/// the SDK would find no list.
fn as_aws_spells(sources: &Bytes) -> Bytes {
    let Ok(mut answer) = serde_json::from_slice::<Value>(sources) else { return sources.clone() };
    if let Some(fields) = answer.as_object_mut()
        && let Some(urls) = fields.remove("QueueUrls")
    {
        fields.insert("queueUrls".to_owned(), urls);
    }
    answer.to_string().into()
}

/// A message as Lambda's event carries it.
fn record(message: Message) -> SqsMessage {
    let mut record = SqsMessage::default();
    record.message_id = message.message_id;
    record.receipt_handle = message.receipt_handle;
    record.body = message.body;
    record.attributes = message.attributes;
    let attributes = message.message_attributes.into_iter().map(|(name, value)| {
        let mut attribute = SqsMessageAttribute::default();
        attribute.string_value = value.string_value;
        attribute.data_type = Some(value.data_type);
        (name, attribute)
    });
    record.message_attributes = attributes.collect();
    record.event_source = Some("aws:sqs".to_owned());
    record
}

impl Coin {
    fn flip(&mut self) -> bool {
        self.random.f64() < self.rate
    }
}
