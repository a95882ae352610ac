//! Steward's ports on AWS: thin adapters, which translate and decide nothing.
//!
//! | port | service | where |
//! | --- | --- | --- |
//! | state store | DynamoDB: tables `tasks`, `documents`, index `due` | [`store`], [`items`] |
//! | definitions | DynamoDB: table `workflows` | [`definitions`] |
//! | channel | SQS, batched | [`channel`] |
//! | event bus | EventBridge, batched | [`bus`] |
//!
//! Beside them: the [`config`] of the functions, what is done with [`dead_letters`], [`batch`]es of SQS messages as Lambda hands them
//! over, [`telemetry`], and a [`meter`] that counts what AWS would bill.

pub mod batch;
pub mod bus;
pub mod channel;
pub mod config;
pub mod dead_letters;
pub mod definitions;
mod errors;
pub mod function;
pub mod items;
pub mod meter;
pub mod ports;
pub mod publisher;
pub mod queues;
pub mod rules;
pub mod store;
pub mod telemetry;

pub use config::Config;
pub use ports::AwsPorts;
