//! Limits of the webhooks of other services.

use std::time::Duration;

/// Webhooks of other services that a deployment accepts.
pub const WEBHOOKS_MAX: usize = 20;

/// Secrets that may verify a webhook at the same time: the newest, and those that are being replaced.
pub const WEBHOOK_SECRETS_MAX: usize = 4;

/// Bytes of a secret of a webhook. Services choose them; the shortest known ones have 20.
pub const WEBHOOK_SECRET_BYTES_MIN: usize = 16;
/// See [`WEBHOOK_SECRET_BYTES_MIN`].
pub const WEBHOOK_SECRET_BYTES_MAX: usize = 256;

/// Characters in the header with the signature of a webhook.
pub const WEBHOOK_SIGNATURE_CHARS_MAX: usize = 2_048;

/// Signatures in this header: a service signs with each of its secrets during a rotation.
pub const WEBHOOK_SIGNATURES_MAX: usize = 8;

/// How far the time in the signature of a webhook may be from now at most.
pub const WEBHOOK_TOLERANCE_MAX: Duration = Duration::from_secs(3_600);
