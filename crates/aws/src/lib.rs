//! Implements Steward's ports with AWS services. The adapters translate; they contain no rules of a decision.
//!
//! | port | service | module |
//! | --- | --- | --- |
//! | state store | DynamoDB: tables `tasks` and `documents`, indices `due` and `ended` | [`store`], [`items`] |
//! | definitions | DynamoDB: table `workflows` | [`definitions`] |
//! | channel | SQS, batched | [`channel`] |
//! | event bus | EventBridge, batched | [`bus`] |
//! | payloads | S3 | [`payloads`] |
//!
//! | other module | contents |
//! | --- | --- |
//! | [`agents`] | what is known about each agent, for people |
//! | [`batch`] | batches of SQS messages in the format of Lambda |
//! | `coalescer` | concurrent reads, writes and sends that share requests |
//! | `callback_keys`, `webhook_secrets`, `secret` | keys of callback URLs, and other secrets of Secrets Manager; with the feature `secrets` |
//! | [`config`], [`function`] | configuration and start of a function |
//! | [`dead_letters`] | reading and redriving dead letters |
//! | [`meter`] | counts the requests and units that AWS bills |
//! | [`polling`] | the work of Lambda's poller, for a process |
//! | [`publisher`], [`rules`] | publication of definitions, with the EventBridge rules of their triggers |
//! | [`queues`] | the queue settings of `template.yaml` |
//! | [`telemetry`] | logs, metrics and traces of a function |

pub mod agents;
pub mod batch;
pub mod bus;
#[cfg(feature = "secrets")]
pub mod callback_keys;
pub mod channel;
mod coalescer;
pub mod config;
pub mod dead_letters;
pub mod definitions;
mod errors;
mod field_names;
pub mod function;
pub mod items;
pub mod meter;
pub mod payloads;
pub mod polling;
pub mod ports;
pub mod publisher;
pub mod queues;
pub mod rules;
#[cfg(feature = "secrets")]
pub mod secret;
mod sqs;
pub mod store;
pub mod telemetry;
#[cfg(feature = "secrets")]
pub mod webhook_secrets;

pub use config::Config;
pub use ports::AwsPorts;
