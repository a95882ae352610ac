//! How a service gets the idempotency key of a call. Services differ: Adyen takes at most 64 characters, Square 45; Checkout.com
//! reads `Cko-Idempotency-Key`. The key of a request may have more than 200 characters (`TASK/STEP/do/COMMAND`).
//!
//! ```text
//! idempotency_key: { header: Cko-Idempotency-Key, form: hash64 }    of a request
//! Cko-Idempotency-Key/hash64                                        of an agent
//! ```

use std::{fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::limits;

/// How a service gets the idempotency key. What a request leaves open is as its agent is configured.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KeyFormat {
    /// The header that has the key. By default `Idempotency-Key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<KeyHeader>,
    /// The form of the key in the header. By default `full`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub form: Option<KeyForm>,
}

/// A header for the key: a letter, then letters, digits and `-`, at most 64; not one that HTTP, authentication or tracing needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(
    with = "String",
    extend("pattern" = format!("^[A-Za-z][A-Za-z0-9-]{{0,{}}}$", limits::KEY_HEADER_CHARS_MAX - 1))
)]
pub struct KeyHeader(String);

/// A text is no [`KeyHeader`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a header for an idempotency key: a letter, then letters, digits and `-`, at most {max}; not one that HTTP, \
     authentication or tracing needs",
    max = limits::KEY_HEADER_CHARS_MAX
)]
pub struct InvalidKeyHeader(String);

/// Headers with another purpose; `-` at the end of one stands for all that begin so.
const RESERVED: [&str; 18] = [
    "accept",
    "accept-",
    "authorization",
    "connection",
    "content-",
    "cookie",
    "expect",
    "host",
    "keep-alive",
    "proxy-",
    "te",
    "traceparent",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "x-amz-content-sha256",
    "x-amz-date",
    "x-amz-security-token",
];

impl TryFrom<String> for KeyHeader {
    type Error = InvalidKeyHeader;

    fn try_from(name: String) -> Result<Self, InvalidKeyHeader> {
        let lower = name.to_ascii_lowercase();
        let is_name = name.starts_with(|first: char| first.is_ascii_alphabetic())
            && name.len() <= limits::KEY_HEADER_CHARS_MAX
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        let is_reserved = RESERVED.iter().any(|reserved| {
            lower == *reserved || reserved.ends_with('-') && lower.starts_with(reserved)
        });
        if is_name && !is_reserved { Ok(Self(name)) } else { Err(InvalidKeyHeader(name)) }
    }
}

impl From<KeyHeader> for String {
    fn from(KeyHeader(name): KeyHeader) -> Self {
        name
    }
}

/// A form of an idempotency key. Different keys have different texts in each form.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KeyForm {
    /// As it is, such as `order-7/charge/do`.
    #[default]
    Full,
    /// Its SHA-256 digest in 64 hexadecimal digits.
    Hash64,
    /// The first 36 digits of that digest.
    Hash36,
    /// A UUID of version 5, made of the key.
    Uuid,
}

/// The forms and their names.
const FORMS: [(&str, KeyForm); 4] = [
    ("full", KeyForm::Full),
    ("hash64", KeyForm::Hash64),
    ("hash36", KeyForm::Hash36),
    ("uuid", KeyForm::Uuid),
];

impl KeyForm {
    /// The key in this form.
    #[must_use]
    pub fn of(self, key: &str) -> String {
        let digest = || Sha256::digest(key).iter().map(|byte| format!("{byte:02x}")).collect();
        match self {
            Self::Full => key.to_owned(),
            Self::Hash64 => digest(),
            Self::Hash36 => {
                let mut digest: String = digest();
                digest.truncate(36);
                digest
            }
            Self::Uuid => {
                Uuid::new_v5(&Uuid::NAMESPACE_URL, format!("steward:{key}").as_bytes()).to_string()
            }
        }
    }
}

/// A text is no [`KeyFormat`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKeyFormat {
    /// The header is not valid.
    #[error(transparent)]
    Header(#[from] InvalidKeyHeader),
    /// There is no such form.
    #[error("`{0}` is not a form of a key: `full`, `hash64`, `hash36` or `uuid`")]
    Form(String),
}

impl FromStr for KeyFormat {
    type Err = InvalidKeyFormat;

    /// Parses `HEADER` or `HEADER/FORM`. An empty text leaves everything open.
    fn from_str(text: &str) -> Result<Self, InvalidKeyFormat> {
        if text.is_empty() {
            return Ok(Self::default());
        }
        let (header, form) = text.split_once('/').unwrap_or((text, "full"));
        let form = FORMS.into_iter().find(|(name, _)| *name == form).ok_or(form);
        let (_, form) = form.map_err(|form| InvalidKeyFormat::Form(form.to_owned()))?;
        Ok(Self { header: Some(header.to_owned().try_into()?), form: Some(form) })
    }
}

impl fmt::Display for KeyForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = FORMS.into_iter().find(|(_, form)| form == self);
        f.write_str(name.map_or("", |(name, _)| name))
    }
}

impl KeyFormat {
    /// The header of a key, and its text in this format. `configured` is what applies to what this leaves open.
    #[must_use]
    pub fn header(&self, configured: &Self, key: &str) -> (String, String) {
        let header = self.header.as_ref().or(configured.header.as_ref());
        let header = header.map_or("idempotency-key", |KeyHeader(name)| name).to_ascii_lowercase();
        (header, self.form.or(configured.form).unwrap_or_default().of(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "order-7/charge/do";

    #[test]
    fn a_form_is_stable_and_fits_where_it_says() {
        // Computed with `sha256sum` and with Python's `uuid.uuid5`.
        for (form, expected) in [
            ("full", KEY),
            ("hash64", "e4d255adfda535e4d79a6d32c1992913f011cc0c11eb2b451ef4d533d8ed246a"),
            ("hash36", "e4d255adfda535e4d79a6d32c1992913f011"),
            ("uuid", "5c4012c0-ad97-520f-9f8f-2b2b4181bf38"),
        ] {
            let format: KeyFormat = format!("X-Key/{form}").parse().unwrap();
            assert_eq!(format.form.unwrap().to_string(), form);
            let header = format.header(&KeyFormat::default(), KEY);
            assert_eq!(header, ("x-key".to_owned(), expected.to_owned()), "{form}");
        }
    }

    #[test]
    fn a_request_leaves_open_what_the_agent_says() {
        let agent: KeyFormat = "Cko-Idempotency-Key/uuid".parse().unwrap();
        let none = KeyFormat::default();
        assert_eq!(none.header(&none, KEY), ("idempotency-key".to_owned(), KEY.to_owned()));
        let (header, uuid) = none.header(&agent, KEY);
        assert_eq!((header.as_str(), uuid.len()), ("cko-idempotency-key", 36));
        let full = KeyFormat { header: None, form: Some(KeyForm::Full) };
        assert_eq!(full.header(&agent, KEY), ("cko-idempotency-key".to_owned(), KEY.to_owned()));
        assert_eq!("".parse(), Ok(none));
    }

    #[test]
    fn a_malformed_format_is_refused() {
        for text in ["X Key", "X-Key/", "X-Key/md5", "/full", "ключ", "Host", "Content-Type/uuid"]
        {
            assert!(text.parse::<KeyFormat>().is_err(), "{text}");
        }
    }
}
