//! Texts with a fixed form: the digest and the media type of a payload.

use std::{borrow::Cow, fmt};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::limits;

/// The type of a payload whose sender names none.
pub const DEFAULT_CONTENT_TYPE: &str = "application/octet-stream";

macro_rules! checked {
    ($(#[$doc:meta])* $name:ident, $error:literal, $pattern:literal, $valid:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// The text itself.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = &'static str;

            fn try_from(text: String) -> Result<Self, &'static str> {
                let is_valid: fn(&str) -> bool = $valid;
                if is_valid(&text) { Ok(Self(text)) } else { Err($error) }
            }
        }

        impl std::str::FromStr for $name {
            type Err = &'static str;

            fn from_str(text: &str) -> Result<Self, &'static str> {
                Self::try_from(text.to_owned())
            }
        }

        impl From<$name> for String {
            fn from(text: $name) -> Self {
                text.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string", "pattern": $pattern })
            }
        }
    };
}

checked!(
    /// A SHA-256 digest in 64 lower-case hexadecimal digits.
    Sha256Hex,
    "not a SHA-256 digest: 64 lower-case hexadecimal digits",
    "^[0-9a-f]{64}$",
    |text| text.len() == 64
        && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
);

checked!(
    /// A media type, such as `application/pdf`.
    ContentType,
    "not a media type: 1 to 128 printable ASCII characters, such as `application/pdf`",
    "^[ -~]{1,128}$",
    |text| (1..=limits::CONTENT_TYPE_CHARS_MAX).contains(&text.len())
        && text.bytes().all(|byte| (b' '..=b'~').contains(&byte))
);

impl Default for ContentType {
    fn default() -> Self {
        Self(DEFAULT_CONTENT_TYPE.to_owned())
    }
}

impl Sha256Hex {
    /// The digest with these bytes.
    #[must_use]
    pub fn of_digest(digest: &[u8; 32]) -> Self {
        Self(digest.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// The bytes of the digest.
    #[must_use]
    pub fn digest(&self) -> Vec<u8> {
        let digits: Vec<u8> =
            self.0.chars().filter_map(|digit| digit.to_digit(16)).map(|n| n as u8).collect();
        digits
            .chunks_exact(2)
            .map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit))
            .collect()
    }
}
