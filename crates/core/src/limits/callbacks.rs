//! Limits of signed callback URLs.

/// Keys that may verify callback URLs at the same time: the newest, and those that signed URLs still in use.
pub const CALLBACK_KEYS_MAX: usize = 8;

/// Bytes of a key for callback URLs: as many as its signatures have.
pub const CALLBACK_KEY_BYTES_MIN: usize = 32;

/// Characters in the signed token of a callback URL. The longest valid one has some 400.
pub const SIGNED_CALLBACK_CHARS_MAX: usize = 512;
