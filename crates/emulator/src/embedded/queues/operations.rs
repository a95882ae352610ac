//! SQS's operations: requests and responses in its JSON protocol.

mod batch;
pub(super) mod message_requests;
mod queue_requests;

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::error::SqsError;
use super::{SqsQueues, name_of};

/// The JSON of a response, or SQS's error.
type SqsResult = Result<Value, SqsError>;

impl SqsQueues {
    /// Runs an operation that does not wait; `None` if the operation is unknown.
    pub(super) fn run(&self, operation: &str, body: &[u8]) -> Option<SqsResult> {
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

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, SqsError> {
    serde_json::from_slice(body).map_err(|error| SqsError::unreadable(&error))
}

/// The name of the queue in a request.
fn queue_name(body: &[u8]) -> Result<String, SqsError> {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Request {
        queue_url: String,
    }
    parse(body).map(|Request { queue_url }| name_of(&queue_url).to_owned())
}
