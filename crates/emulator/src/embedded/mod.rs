//! AWS in the process: DynamoDB, SQS, EventBridge and S3 behind the real SDK clients. A service with an external
//! [endpoint](ExternalEndpoints) is served there instead.
//!
//! The same handlers run here and on Lambda, through the same clients. No sockets are open unless the host
//! serves the HTTP endpoint:
//!
//! ```text
//! SDK client ── connector.rs ─┐                   ┌─ dynamodb.rs      dynoxide (SQLite)
//!                             ├─ EmbeddedAws ─────┼─ sqs.rs           memory, with a journal
//! aws cli, SDK ─ endpoint.rs ─┘     respond()     ├─ eventbridge.rs   rules and subscribers in memory
//!                                                 └─ s3.rs            files
//! ```
//!
//! Both entry points use AWS's JSON protocol: `x-amz-target` names the operation, the body is JSON. A request without
//! `x-amz-target` is one to S3, in path style.

mod account;
mod aws;
mod builder;
mod connector;
mod data_dir_lock;
mod dynamodb;
mod dynamodb_fast_path;
mod endpoint;
mod error;
mod event_pattern;
mod eventbridge;
mod external;
mod request;
mod response;
mod routing_client;
mod rules;
mod s3;
mod sdk_config;
mod sqs;
mod table_layout;
#[cfg(test)]
mod tests;

pub use account::{ACCOUNT, REGION};
pub use aws::EmbeddedAws;
pub use builder::EmbeddedAwsBuilder;
pub use error::EmbeddedError;
pub use eventbridge::EventRule;
pub use external::{AwsService, ExternalEndpoints, InvalidExternalEndpoints};
pub use request::REQUEST_BYTES_MAX;
pub use s3::StoreError;
pub use sqs::JournalError;
