//! What a remote service said in the body of an error. Operators need it to understand a failure, and it may contain
//! payload. So it is part of the failure's document and of nothing else: no reason, event, notification or log line
//! contains it.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::limits;

/// The beginning of an error body, as text without control characters, at most
/// [`ERROR_DETAIL_BYTES_MAX`](limits::ERROR_DETAIL_BYTES_MAX) bytes. A shortened text ends in an ellipsis.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(from = "String")]
pub struct ErrorDetail(String);

impl ErrorDetail {
    /// The detail in a body of any encoding; `None` if nothing readable is in it.
    #[must_use]
    pub fn of_body(body: &[u8]) -> Option<Self> {
        // Control characters are removed, so a few more bytes than the limit may be needed; the rest never is.
        let head = body.get(..limits::ERROR_DETAIL_BYTES_MAX * 2).unwrap_or(body);
        let mut text = String::from_utf8_lossy(head).into_owned();
        if head.len() < body.len() {
            text.push('…');
        }
        let detail = Self::from(text);
        (!detail.0.is_empty()).then_some(detail)
    }

    /// The beginning, at most `bytes_max` bytes.
    #[must_use]
    pub fn shortened(&self, bytes_max: usize) -> Self {
        Self(limits::truncate_bytes(self.0.clone(), bytes_max))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for ErrorDetail {
    fn from(text: String) -> Self {
        Self(limits::truncate_bytes(clean(&text), limits::ERROR_DETAIL_BYTES_MAX))
    }
}

/// A text as a detail contains it: without control characters, and without white space at its ends.
#[must_use]
pub fn clean(text: &str) -> String {
    let is_shown = |c: &char| matches!(c, '\n' | '\t') || !limits::is_terminal_control(*c);
    let text: String = text.chars().filter(is_shown).collect();
    text.trim().to_owned()
}

impl fmt::Debug for ErrorDetail {
    /// Without the text, because debug output may be logged.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ErrorDetail({} bytes)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(body: impl AsRef<[u8]>) -> Option<String> {
        ErrorDetail::of_body(body.as_ref()).map(|detail| detail.as_str().to_owned())
    }

    #[test]
    fn any_text_is_kept_without_control_characters() {
        assert_eq!(of(r#"{"error":"no"}"#).as_deref(), Some(r#"{"error":"no"}"#));
        assert_eq!(of(" <h1>no</h1>\r\n\tend\n").as_deref(), Some("<h1>no</h1>\n\tend"));
        assert_eq!(of("\u{1b}[31mno\u{0}\u{202e}\u{9b}").as_deref(), Some("[31mno"));
        assert_eq!(of([b'a', 0xff, b'b']).as_deref(), Some("a\u{fffd}b"));
        assert_eq!((of(""), of("\u{0}\r\n ")), (None, None));
    }

    #[test]
    fn a_long_body_is_cut_at_the_limit() {
        let max = limits::ERROR_DETAIL_BYTES_MAX;
        assert_eq!(of("x".repeat(max)).unwrap().len(), max);
        let cut = of("é".repeat(max)).unwrap();
        assert!(cut.len() <= max && cut.ends_with("é…"), "{}", cut.len());
        // A character that is cut in the middle, beyond the limit.
        assert!(of("é".repeat(3 * max)).unwrap().ends_with("é…"));
    }

    #[test]
    fn a_received_detail_obeys_the_same_limits_and_debug_output_hides_it() {
        let sent = serde_json::json!(format!("s3cret\u{7}{}", "x".repeat(100_000)));
        let received: ErrorDetail = serde_json::from_value(sent).unwrap();
        assert_eq!(received.as_str().len(), limits::ERROR_DETAIL_BYTES_MAX);
        assert!(received.as_str().starts_with("s3cretx"));
        assert_eq!(format!("{received:?}"), "ErrorDetail(4096 bytes)");
    }
}
