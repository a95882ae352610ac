//! Limits of documents and of the messages that contain them.

use std::time::Duration;

/// Bytes of a document as compact JSON, such as the submission or the output of one step.
pub const DOCUMENT_BYTES_MAX: usize = 128 * 1024;

/// Bytes in one message body. A request may contain several documents. The limit is below 256 KiB, because the
/// message attributes need room too. 256 KiB was the limit of SQS until August 2025 (since then 1 MiB), and is still the
/// limit for messages that EventBridge sends to a queue.
pub const MESSAGE_BYTES_MAX: usize = 250 * 1024;

/// The maximum delay of an SQS message. The supervisor wakes tasks that wait longer.
pub const QUEUE_DELAY_MAX: Duration = Duration::from_secs(900);

/// Characters in a `traceparent`. Version 00 of the W3C format has 55; later versions may be longer.
pub const TRACEPARENT_CHARS_MAX: usize = 128;

/// Characters in SQS's id of a sender. The id of a role's session has at most 86: 21 of the role, a colon, 64 of the session.
pub const SENDER_ID_CHARS_MAX: usize = 128;
