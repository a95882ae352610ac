//! SQS's operations: requests and answers in its JSON protocol.

mod batch;
pub(super) mod messages;
mod queues;

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::refusal::Refusal;
use super::{Queues, name_of};

/// An answer's JSON, or SQS's refusal.
type Answered = Result<Value, Refusal>;

impl Queues {
    /// Runs an operation that waits for nothing, if it is known.
    pub(super) fn run(&self, operation: &str, body: &[u8]) -> Option<Answered> {
        Some(match operation {
            "SendMessage" => self.send_message(body),
            "SendMessageBatch" => self.send_message_batch(body),
            "DeleteMessage" => self.delete_message(body),
            "DeleteMessageBatch" => self.delete_message_batch(body),
            "ChangeMessageVisibility" => self.change_message_visibility(body),
            "ChangeMessageVisibilityBatch" => self.change_message_visibility_batch(body),
            "CreateQueue" => self.create_queue(body),
            "DeleteQueue" => self.delete_queue(body),
            "PurgeQueue" => self.purge_queue(body),
            "GetQueueUrl" => self.get_queue_url(body),
            "GetQueueAttributes" => self.get_queue_attributes(body),
            "SetQueueAttributes" => self.set_queue_attributes(body),
            "ListQueues" => self.list_queues(body),
            "ListDeadLetterSourceQueues" => self.list_dead_letter_source_queues(body),
            _ => return None,
        })
    }
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    serde_json::from_slice(body).map_err(|error| Refusal::unreadable(&error))
}

/// The queue that a request is for.
fn queue_name(body: &[u8]) -> Result<String, Refusal> {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Request {
        queue_url: String,
    }
    parse(body).map(|Request { queue_url }| name_of(&queue_url).to_owned())
}
