//! SQS's operations: requests and responses in its JSON protocol.

mod batch;
mod message_requests;
mod parsing;
mod queue_requests;

use super::service::SqsQueues;
use crate::embedded::response::ServiceResponse;
use parsing::SqsResult;

impl SqsQueues {
    /// Responds to one SQS request. `sender` is the identity that signed it.
    pub(in crate::embedded) async fn respond(
        &self,
        operation: &str,
        body: &[u8],
        sender: &str,
    ) -> ServiceResponse {
        let result = match operation {
            "ReceiveMessage" => Some(self.receive_message(body).await),
            _ => self.run(operation, body, sender),
        };
        match result {
            Some(Ok(body)) => ServiceResponse::ok(body.to_string()),
            Some(Err(error)) => error.into_response(),
            None => ServiceResponse::unknown_operation(&format!("AmazonSQS.{operation}")),
        }
    }

    /// Runs an operation that does not wait; `None` if the operation is unknown.
    fn run(&self, operation: &str, body: &[u8], sender: &str) -> Option<SqsResult> {
        Some(match operation {
            "SendMessage" => self.send_message(body, sender),
            "SendMessageBatch" => self.send_message_batch(body, sender),
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
