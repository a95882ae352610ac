//! Limits of payloads in the bucket.

use std::time::Duration;

/// Bytes of a payload in the bucket. The object is streamed, so no function holds it in memory; the time of a call limits it.
pub const PAYLOAD_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Bytes of the key of a payload: the limit of S3. The longest place of a task and the name of an object in it fit.
pub const PAYLOAD_KEY_BYTES_MAX: usize = 1_024;

/// Characters of the media type of a payload.
pub const CONTENT_TYPE_CHARS_MAX: usize = 128;

/// References to payloads in one submission. Submission copies each object.
pub const SUBMITTED_PAYLOADS_MAX: usize = 16;

/// How long after its upload a payload can be submitted. The bucket deletes uploads later than that.
pub const UPLOAD_LIFETIME: Duration = Duration::from_secs(24 * 3600);

/// How long the URL of an upload is valid.
pub const UPLOAD_URL_LIFETIME: Duration = Duration::from_secs(15 * 60);

/// The age from which the payload of a task that does not exist is deleted. Submission stores the payloads of a task shortly
/// before it records the task.
pub const ORPHANED_PAYLOAD_AGE: Duration = Duration::from_secs(2 * 24 * 3600);
