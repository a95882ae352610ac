//! A request to the embedded AWS: how it arrives, and how large it may be.

/// The largest request body, in bytes. AWS allows 16 MiB on DynamoDB. Requests of this project are much smaller,
/// so a small limit detects runaway payloads early.
pub const REQUEST_BYTES_MAX: usize = 2 * 1024 * 1024;

/// How a request reached the embedded AWS.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum EntryPoint {
    /// The SDK's connector in this process. A response is never lost.
    InProcess,
    /// HTTP. A response can be lost, and the request repeated.
    Http,
}
