//! The request/response channel on SQS. Ten messages to one queue share a request; requests to several queues are sent
//! concurrently.
//!
//! | module | contents |
//! | --- | --- |
//! | `sqs_channel` | the channel: sending messages in batches |
//! | `depths` | the numbers of messages in the queues |
//! | `settings` | the settings of an agent's queue |
//! | [`fairness`] | the documented rules of fair queues |
//! | [`redelivery`] | redelivery of failed messages with backoff |

mod depths;
pub mod fairness;
pub mod redelivery;
mod settings;
mod sqs_channel;

pub use crate::sqs::{QueueUrls, queue_name, queue_url};
pub use depths::QueueDepth;
pub use settings::AgentQueueSettings;
pub use sqs_channel::{SqsChannel, size};
