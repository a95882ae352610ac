//! Limits of signed callback URLs, and of the forms that answer callbacks.

/// Keys that may verify callback URLs at the same time: the newest, and those that signed URLs still in use.
pub const CALLBACK_KEYS_MAX: usize = 8;

/// Bytes of a key for callback URLs: as many as its signatures have.
pub const CALLBACK_KEY_BYTES_MIN: usize = 32;

/// Characters in the signed token of a callback URL. The longest valid one has some 400.
pub const SIGNED_CALLBACK_CHARS_MAX: usize = 512;

/// How many seconds after a form was opened its answer is accepted.
pub const CALLBACK_FORM_AGE_S_MAX: i64 = 3_600;

/// Fields of a form. For an answer with more properties, people write JSON.
pub const ANSWER_FIELDS_MAX: usize = 50;

/// Choices of a field in a form.
pub const ANSWER_CHOICES_MAX: usize = 100;

/// Characters of a name or a choice in a form, and of a shown label. A longer label is cut.
pub const ANSWER_LABEL_CHARS_MAX: usize = 200;

/// Characters of a shown description in a form. A longer one is cut.
pub const ANSWER_HELP_CHARS_MAX: usize = 1_000;
