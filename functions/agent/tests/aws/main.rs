//! Signed calls: to services with `auth: aws`, and of the agents for Lambda, SQS and EventBridge. A layer before each
//! server verifies the signatures by its own computation.

#![cfg(test)]

mod actions;
mod events;
mod http_auth;
mod kinds;
mod lambda;
mod server;
mod sigv4;
mod sqs;
