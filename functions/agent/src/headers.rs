//! The configured headers of an agent's calls.

use std::{collections::BTreeMap, str::FromStr};

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

/// Headers of every call, parsed from a JSON object. Their values may be secrets and are never printed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Headers(pub(crate) HeaderMap);

/// The headers are invalid. The message never contains a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidHeaders {
    /// The text is not a JSON object, or a value is not a string.
    #[error("not a JSON object of strings")]
    NotAnObject,
    /// A header's name or value contains invalid characters.
    #[error("header `{0}` is not valid")]
    Invalid(String),
}

impl FromStr for Headers {
    type Err = InvalidHeaders;

    fn from_str(text: &str) -> Result<Self, InvalidHeaders> {
        let given: BTreeMap<String, String> =
            serde_json::from_str(text).map_err(|_| InvalidHeaders::NotAnObject)?;
        let mut headers = HeaderMap::new();
        for (name, value) in given {
            let invalid = |_| InvalidHeaders::Invalid(name.clone());
            let key =
                HeaderName::from_str(&name).map_err(|_| InvalidHeaders::Invalid(name.clone()))?;
            let mut value = HeaderValue::from_str(&value).map_err(invalid)?;
            value.set_sensitive(true);
            headers.insert(key, value);
        }
        Ok(Self(headers))
    }
}

impl Headers {
    /// These headers and `others`. If both have a name, the value of `others` is used.
    #[must_use]
    pub fn merged_with(mut self, others: Self) -> Self {
        self.0.extend(others.0);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_about_headers_has_the_name_and_no_value() {
        let error = Headers::from_str(r#"{ "x api": "secret" }"#).unwrap_err().to_string();
        assert_eq!(error, "header `x api` is not valid");
        assert!(Headers::from_str(r#"["secret"]"#).is_err());
    }
}
