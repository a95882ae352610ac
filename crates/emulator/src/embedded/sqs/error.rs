//! SQS's errors with its own error codes.

use std::fmt::Display;

use crate::embedded::response::ServiceResponse;

/// Why a request, or one entry of a batch, is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SqsError {
    /// The code of SQS's older protocol, which its SDKs use.
    pub(super) code: &'static str,
    pub(super) message: String,
}

/// The only code that is not the caller's fault.
const INTERNAL: &str = "InternalError";

/// The codes with HTTP status 403.
const FORBIDDEN: [&str; 1] = ["OverLimit"];

impl SqsError {
    fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    pub(super) fn no_queue() -> Self {
        Self::new(
            "AWS.SimpleQueueService.NonExistentQueue",
            "The specified queue does not exist for this wsdl version.",
        )
    }

    pub(super) fn queue_exists(attribute: &str) -> Self {
        let message =
            format!("A queue already exists with the same name and another value of {attribute}");
        Self::new("QueueAlreadyExists", message)
    }

    /// The value of a parameter is invalid, for a reason.
    pub(super) fn parameter(name: &str, value: impl Display, reason: impl Display) -> Self {
        let message = format!("Value {value} for parameter {name} is invalid. Reason: {reason}.");
        Self::new("InvalidParameterValue", message)
    }

    pub(super) fn missing_parameter(name: &str) -> Self {
        let message = format!("The request must contain the parameter {name}.");
        Self::new("MissingParameter", message)
    }

    /// The request could not be parsed.
    pub(super) fn unreadable(error: &serde_json::Error) -> Self {
        let message = error.to_string();
        match message.strip_prefix("missing field `").and_then(|rest| rest.split('`').next()) {
            Some(field) => Self::missing_parameter(field),
            None => Self::new("SerializationException", message),
        }
    }

    pub(super) fn attribute_name(name: &str) -> Self {
        Self::new("InvalidAttributeName", format!("Unknown Attribute {name}."))
    }

    pub(super) fn attribute_value(name: &str, value: &str) -> Self {
        let message = format!("Invalid value for the parameter {name}: {value}");
        Self::new("InvalidAttributeValue", message)
    }

    pub(super) fn message_contents() -> Self {
        let message = "Invalid characters found. Valid unicode characters are \
                       #x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF";
        Self::new("InvalidMessageContents", message)
    }

    pub(super) fn message_too_long(bytes_max: usize) -> Self {
        let message = format!(
            "One or more parameters are invalid. Reason: Message must be shorter than {bytes_max} bytes."
        );
        Self::new("InvalidParameterValue", message)
    }

    pub(super) fn receipt_handle() -> Self {
        Self::new("ReceiptHandleIsInvalid", "The input receipt handle is invalid.")
    }

    pub(super) fn not_in_flight() -> Self {
        Self::new(
            "AWS.SimpleQueueService.MessageNotInflight",
            "The message referred to is not in flight.",
        )
    }

    pub(super) fn too_many_in_flight(max: usize) -> Self {
        Self::new("OverLimit", format!("Consumers have {max} messages of the queue in flight."))
    }

    pub(super) fn empty_batch() -> Self {
        Self::new(
            "AWS.SimpleQueueService.EmptyBatchRequest",
            "There should be at least one entry in the request.",
        )
    }

    pub(super) fn too_many_entries(entries: usize) -> Self {
        Self::new(
            "AWS.SimpleQueueService.TooManyEntriesInBatchRequest",
            format!("Maximum number of entries per request are 10. You have sent {entries}."),
        )
    }

    pub(super) fn entry_ids_not_distinct(id: &str) -> Self {
        let message = format!("Id {id} repeated.");
        Self::new("AWS.SimpleQueueService.BatchEntryIdsNotDistinct", message)
    }

    pub(super) fn entry_id() -> Self {
        Self::new(
            "AWS.SimpleQueueService.InvalidBatchEntryId",
            "A batch entry id can only contain alphanumeric characters, hyphens and underscores. \
             It can be at most 80 letters long.",
        )
    }

    pub(super) fn batch_too_long(bytes: usize, bytes_max: usize) -> Self {
        let message = format!(
            "Batch requests cannot be longer than {bytes_max} bytes. You have sent {bytes} bytes."
        );
        Self::new("AWS.SimpleQueueService.BatchRequestTooLong", message)
    }

    /// The change could not be written to the journal.
    pub(super) fn not_written(error: &std::io::Error) -> Self {
        Self::new(INTERNAL, format!("The embedded queues cannot write to their file: {error}"))
    }

    /// Whether the request itself is wrong, so that a retry cannot succeed.
    pub(super) fn is_sender_fault(&self) -> bool {
        self.code != INTERNAL
    }

    /// The response to a request that is refused as a whole.
    pub(super) fn into_response(self) -> ServiceResponse {
        let (status, fault) = match self.code {
            INTERNAL => (500, "Receiver"),
            code if FORBIDDEN.contains(&code) => (403, "Sender"),
            _ => (400, "Sender"),
        };
        let query_error = Some(format!("{};{fault}", self.code));
        ServiceResponse {
            query_error,
            ..ServiceResponse::client_error(status, self.code, &self.message)
        }
    }
}
