//! Invalid submissions, as messages and over HTTP: a submission that can never succeed is rejected with its reason, and does
//! not affect the others of its batch. A message that cannot be handled at the moment returns to its queue.

mod fixture;
mod http;
mod messages;
mod samples;
