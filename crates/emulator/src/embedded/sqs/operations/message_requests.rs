//! Operations on messages.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::{
    super::{
        attributes::{
            DELAY_SECONDS_MAX, MESSAGE_BYTES_MAX, VISIBILITY_SECONDS_MAX, WAIT_SECONDS_MAX,
        },
        error::SqsError,
        message::{self, MessageAttribute, QueueMessage, md5_of_attributes, md5_of_body},
        receipt::ReceiptHandle,
        service::{BATCH_MAX, SqsQueues, name_of},
        state::JournalRecord,
        store::{QueueStore, ReceiveOptions},
        time::{Micros, SECOND},
    },
    batch,
    parsing::{SqsResult, parse, queue_name},
};

/// The sender of the messages that the event bus sends to the targets of rules.
const EVENT_BUS_SENDER: &str = "events.amazonaws.com";

/// A message in a send request. An entry of a batch also has an id.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SendEntry {
    #[serde(default)]
    id: String,
    message_body: String,
    delay_seconds: Option<i64>,
    #[serde(default)]
    message_attributes: BTreeMap<String, MessageAttribute>,
    message_group_id: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DeleteEntry {
    #[serde(default)]
    id: String,
    receipt_handle: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct VisibilityEntry {
    #[serde(default)]
    id: String,
    receipt_handle: String,
    visibility_timeout: i64,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct BatchRequest<T> {
    queue_url: String,
    entries: Vec<T>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ReceiveRequest {
    queue_url: String,
    max_number_of_messages: Option<i64>,
    visibility_timeout: Option<i64>,
    wait_time_seconds: Option<i64>,
    #[serde(default)]
    attribute_names: Vec<String>,
    #[serde(default)]
    message_system_attribute_names: Vec<String>,
    #[serde(default)]
    message_attribute_names: Vec<String>,
}

/// Converts a number of seconds, if it is within SQS's limits.
fn seconds(name: &str, value: i64, max: u32) -> Result<Micros, SqsError> {
    if (0..=i64::from(max)).contains(&value) {
        return Ok(value * SECOND);
    }
    Err(SqsError::parameter(name, value, format!("Must be between 0 and {max}, if provided")))
}

impl SqsQueues {
    /// Sends one message, as EventBridge does to a rule's target.
    pub(in crate::embedded) fn send(&self, queue_url: &str, body: String) -> Result<(), String> {
        let send = SendEntry::new(body);
        let now = self.clock.now();
        let sent = self.store().send(name_of(queue_url), vec![send], EVENT_BUS_SENDER, now);
        sent.and_then(|sent| sent.into_iter().collect::<Result<Vec<_>, _>>())
            .map(drop)
            .map_err(|error| error.message)
    }

    pub(super) fn send_message(&self, body: &[u8], sender: &str) -> SqsResult {
        let (queue, send) = (queue_name(body)?, parse(body)?);
        let sent = self.store().send(&queue, vec![send], sender, self.clock.now())?;
        sent.into_iter().next().unwrap_or_else(|| Err(SqsError::missing_parameter("MessageBody")))
    }

    pub(super) fn send_message_batch(&self, body: &[u8], sender: &str) -> SqsResult {
        let BatchRequest::<SendEntry> { queue_url, entries } = parse(body)?;
        batch::check(entries.iter().map(|entry| entry.id.as_str()))?;
        let bytes = entries.iter().map(SendEntry::bytes).sum();
        if bytes > MESSAGE_BYTES_MAX {
            return Err(SqsError::batch_too_long(bytes, MESSAGE_BYTES_MAX));
        }
        let ids: Vec<_> = entries.iter().map(|entry| entry.id.clone()).collect();
        let sent = self.store().send(name_of(&queue_url), entries, sender, self.clock.now())?;
        batch::response(ids.into_iter().zip(sent))
    }

    pub(super) fn delete_message(&self, body: &[u8]) -> SqsResult {
        let (queue, DeleteEntry { receipt_handle, .. }) = (queue_name(body)?, parse(body)?);
        let mut store = self.store();
        store.state.queue(&queue)?;
        let records =
            store.state.delete(&queue, &[ReceiptHandle::read(&queue, &receipt_handle)?])?;
        store.commit(records).map(|()| json!({}))
    }

    pub(super) fn delete_message_batch(&self, body: &[u8]) -> SqsResult {
        let BatchRequest::<DeleteEntry> { queue_url, entries } = parse(body)?;
        let queue = name_of(&queue_url);
        batch::check(entries.iter().map(|entry| entry.id.as_str()))?;
        let read = entries.into_iter().map(|DeleteEntry { id, receipt_handle }| {
            (id, ReceiptHandle::read(queue, &receipt_handle))
        });
        let read: Vec<_> = read.collect();
        let receipts: Vec<_> =
            read.iter().filter_map(|(_, receipt)| receipt.as_ref().ok().copied()).collect();
        let mut store = self.store();
        let records = store.state.delete(queue, &receipts)?;
        store.commit(records)?;
        batch::response(read.into_iter().map(|(id, receipt)| (id, receipt.map(|_| json!({})))))
    }

    pub(super) fn change_message_visibility(&self, body: &[u8]) -> SqsResult {
        let (queue, change) = (queue_name(body)?, parse(body)?);
        let mut store = self.store();
        let record = store.visibility_change(&queue, &change, self.clock.now())?;
        store.commit(vec![record]).map(|()| json!({}))
    }

    pub(super) fn change_message_visibility_batch(&self, body: &[u8]) -> SqsResult {
        let BatchRequest::<VisibilityEntry> { queue_url, entries } = parse(body)?;
        let queue = name_of(&queue_url);
        batch::check(entries.iter().map(|entry| entry.id.as_str()))?;
        let mut store = self.store();
        store.state.queue(queue)?;
        let (mut records, mut outcomes) = (Vec::new(), Vec::new());
        for change in entries {
            let decided = store.visibility_change(queue, &change, self.clock.now());
            let outcome = decided.map(|record| {
                records.push(record);
                json!({})
            });
            outcomes.push((change.id, outcome));
        }
        store.commit(records)?;
        batch::response(outcomes)
    }

    /// `ReceiveMessage`, the only operation that waits.
    pub(super) async fn receive_message(&self, body: &[u8]) -> SqsResult {
        let request: ReceiveRequest = parse(body)?;
        let max = request.max_number_of_messages.unwrap_or(1);
        let in_limits = usize::try_from(max).ok().filter(|max| (1..=BATCH_MAX).contains(max));
        let max = in_limits.ok_or_else(|| {
            let reason = format!("Must be between 1 and {BATCH_MAX}, if provided");
            SqsError::parameter("MaxNumberOfMessages", max, reason)
        })?;
        let limited = |name, value: Option<i64>, max| {
            value.map(|value| seconds(name, value, max)).transpose()
        };
        let visibility = request.visibility_timeout;
        let visibility = limited("VisibilityTimeout", visibility, VISIBILITY_SECONDS_MAX)?;
        let wait = limited("WaitTimeSeconds", request.wait_time_seconds, WAIT_SECONDS_MAX)?;
        let queue = name_of(&request.queue_url).to_owned();
        let received = self.receive(&ReceiveOptions { queue, max, visibility, wait }).await?;
        if received.is_empty() {
            return Ok(json!({}));
        }
        let messages: Vec<_> =
            received.into_iter().map(|message| request.message_response(message)).collect();
        Ok(json!({ "Messages": messages }))
    }
}

impl QueueStore {
    /// Sends messages; returns the outcome of each.
    fn send(
        &mut self,
        queue: &str,
        messages: Vec<SendEntry>,
        sender: &str,
        now: Micros,
    ) -> Result<Vec<SqsResult>, SqsError> {
        let attributes = &self.state.queue(queue)?.attributes;
        let (bytes_max, delay) = (attributes.bytes_max, attributes.delay);
        let (mut records, mut results) = (Vec::new(), Vec::new());
        for message in messages {
            let message = match message.into_message(bytes_max, delay, sender, now) {
                Ok(message) => message,
                Err(error) => {
                    results.push(Err(error));
                    continue;
                }
            };
            results.push(Ok(send_response(&message)));
            let copies = 1 + usize::from(self.is_duplicated());
            for _ in 0..copies {
                let number = self.state.number(records.len() as u64);
                let (queue, message) = (queue.to_owned(), message.clone());
                records.push(JournalRecord::Sent {
                    queue,
                    message: QueueMessage { number, ..message },
                });
            }
        }
        self.commit(records)?;
        Ok(results)
    }

    fn visibility_change(
        &self,
        queue: &str,
        change: &VisibilityEntry,
        now: Micros,
    ) -> Result<JournalRecord, SqsError> {
        self.state.queue(queue)?;
        let receipt = ReceiptHandle::read(queue, &change.receipt_handle)?;
        let hidden =
            seconds("VisibilityTimeout", change.visibility_timeout, VISIBILITY_SECONDS_MAX)?;
        self.state.change_visibility(queue, &receipt, now, now.saturating_add(hidden))
    }
}

/// The response to the sender of a message.
fn send_response(message: &QueueMessage) -> Value {
    let mut response = json!({
        "MessageId": message.id,
        "MD5OfMessageBody": md5_of_body(&message.body),
    });
    if let Some(fields) = response.as_object_mut() {
        let digest = md5_of_attributes(&message.attributes);
        fields.extend(digest.map(|md5| ("MD5OfMessageAttributes".to_owned(), md5.into())));
    }
    response
}

impl SendEntry {
    /// A message without attributes, delay and group.
    fn new(message_body: String) -> Self {
        let (id, message_attributes) = (String::new(), BTreeMap::new());
        let (delay_seconds, message_group_id) = (None, None);
        Self { id, message_body, delay_seconds, message_attributes, message_group_id }
    }

    /// The size that counts towards a batch's limit, in bytes.
    fn bytes(&self) -> usize {
        self.message_body.len() + message::attributes_size(&self.message_attributes)
    }

    /// Validates it. The message's number is set later.
    fn into_message(
        self,
        bytes_max: usize,
        delay: Micros,
        sender: &str,
        now: Micros,
    ) -> Result<QueueMessage, SqsError> {
        message::check(&self.message_body, &self.message_attributes, bytes_max)?;
        self.message_group_id.as_deref().map_or(Ok(()), message::check_group)?;
        let delay = match self.delay_seconds {
            Some(value) => seconds("DelaySeconds", value, DELAY_SECONDS_MAX)?,
            None => delay,
        };
        Ok(QueueMessage {
            number: 0,
            id: Uuid::new_v4().to_string(),
            body: self.message_body,
            attributes: self.message_attributes,
            sender: sender.to_owned(),
            sent_at: now,
            visible_at: now.saturating_add(delay),
            receives: 0,
            released: 0,
            first_received_at: None,
            source: None,
            group: self.message_group_id,
        })
    }
}

impl ReceiveRequest {
    /// A received message with the requested attributes.
    fn message_response(&self, message: QueueMessage) -> Value {
        let mut response = Map::new();
        let mut add = |name: &str, value: Value| drop(response.insert(name.to_owned(), value));
        add("ReceiptHandle", ReceiptHandle::handle(name_of(&self.queue_url), &message).into());
        add("MD5OfBody", md5_of_body(&message.body).into());
        let wanted = || self.attribute_names.iter().chain(&self.message_system_attribute_names);
        let system = message.system_attributes();
        let system: Map<_, _> = system
            .filter(|(name, _)| wanted().any(|wanted| wanted == "All" || wanted == name))
            .map(|(name, value)| (name, value.into()))
            .collect();
        if !system.is_empty() {
            add("Attributes", system.into());
        }
        let mut attributes = message.attributes;
        attributes.retain(|name, _| self.message_attribute_names.iter().any(|w| matches(w, name)));
        if let Some(md5) = md5_of_attributes(&attributes) {
            add("MD5OfMessageAttributes", md5.into());
            add("MessageAttributes", json!(attributes));
        }
        add("MessageId", message.id.into());
        add("Body", message.body.into());
        Value::Object(response)
    }
}

/// Whether a requested attribute name, which may be `All` or `prefix.*`, matches a name.
fn matches(wanted: &str, name: &str) -> bool {
    let prefix = wanted.strip_suffix(".*");
    wanted == "All" || wanted == name || prefix.is_some_and(|prefix| name.starts_with(prefix))
}
