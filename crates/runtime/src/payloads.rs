//! The port of payloads: documents that are too large for a message, as objects in a bucket
//! ([`steward_core::model::payload`]).

use std::{future::Future, pin::Pin, time::Duration};

use jiff::Timestamp;
use steward_core::model::payload::{PayloadKey, PayloadReference};

use crate::port_error::PortError;

/// The result of an operation, later. Boxed, so that a deployment without a bucket needs no type for it.
pub type PayloadFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, PortError>> + Send + 'a>>;

/// A task takes over an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The object, and what the sender says about it.
    pub source: PayloadReference,
    /// The key of the task's copy.
    pub target: PayloadKey,
    /// An upload that is older than this has expired.
    pub expired_before: Timestamp,
}

/// The outcome of a claim. A refusal is a value, not an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimOutcome {
    /// The task has its copy.
    Claimed,
    /// The object cannot be used. The reason contains no values.
    Refused(&'static str),
}

/// The reason for which an object that does not exist is refused.
pub const MISSING: &str =
    "there is no such payload: its upload was not completed, or it has expired";

/// The reason for which an upload that is too old is refused.
pub const EXPIRED: &str = "the upload has expired; upload the payload again";

/// The reason for which an object of another size is refused.
pub const OTHER_SIZE: &str = "the payload has another size than `bytes`";

/// The reason for which an object with another digest is refused.
pub const OTHER_DIGEST: &str = "the payload has another digest than `sha256`";

/// How a client uploads an object, once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UploadRequest {
    /// The URL. It contains a signature.
    pub url: String,
    /// The headers that the request must have.
    pub headers: Vec<(String, String)>,
}

/// An object that belongs to a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredPayload {
    /// The key.
    pub key: PayloadKey,
    /// When it was stored.
    pub stored_at: Timestamp,
}

/// A page of the objects that belong to tasks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PayloadPage {
    /// The objects, in the order of their keys.
    pub payloads: Vec<StoredPayload>,
    /// Where the next page begins, if there is one.
    pub next: Option<String>,
}

/// The bucket of payloads.
pub trait PayloadStore: Send + Sync {
    /// Checks an object against its reference, and copies it. A repeated claim has the same outcome.
    fn claim<'a>(&'a self, claim: &'a Claim) -> PayloadFuture<'a, ClaimOutcome>;

    /// Signs a request that uploads exactly the content that `reference` describes, to its key, unless there is an object with
    /// this key.
    fn upload_request<'a>(
        &'a self,
        reference: &'a PayloadReference,
        valid_for: Duration,
    ) -> PayloadFuture<'a, UploadRequest>;

    /// Reads a page of the objects of tasks, which begins after this key.
    fn task_payloads<'a>(&'a self, after: Option<&'a str>) -> PayloadFuture<'a, PayloadPage>;

    /// Deletes objects: at most those of one page.
    fn delete<'a>(&'a self, keys: &'a [PayloadKey]) -> PayloadFuture<'a, ()>;
}
