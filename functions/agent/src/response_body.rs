//! The body of a response as the value that expressions read. A service that did the work need not answer in JSON, so a body
//! is never a reason for a failure.
//!
//! | body | value |
//! | --- | --- |
//! | empty, or white space | null |
//! | JSON | that JSON; if an object has a key twice, the last one counts |
//! | other text: also JSON with a number outside of 64 bits, and JSON that nests too deeply | `{ "text": … }`, every character as it was |
//! | other bytes | a [payload](crate::payloads), or `{ "not_text": … }` with the number of bytes |
//! | more than an output may have | a [payload](crate::payloads), or `{ "too_large": true }` |
//!
//! A UTF-8 byte order mark is skipped.

use serde_json::{Value, json};
use steward_core::{
    limits,
    model::{integers::check_integers, messages::StepRequest},
};

use crate::{
    call_fault::CallFault,
    transport::{body_bytes_max, unusable_response},
};

/// The value of a body, or `None` if the body is not text.
pub(crate) fn body_value(bytes: &[u8]) -> Option<Value> {
    let text = std::str::from_utf8(bytes).ok()?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.trim().is_empty() {
        return Some(Value::Null);
    }
    Some(as_json(text).unwrap_or_else(|| json!({ "text": text })))
}

/// The value in place of a body that is not text, and that cannot be stored.
pub(crate) fn not_text(bytes: &[u8]) -> Value {
    json!({ "not_text": bytes.len() })
}

/// The value in place of a body that is too large for an output, and that cannot be stored.
pub(crate) fn too_large() -> Value {
    json!({ "too_large": true })
}

/// The body of a response to `request` that is larger than what is read of it. An `output` that selects from the body needs it.
pub(crate) fn too_large_body(request: &StepRequest) -> Result<Value, CallFault> {
    if request.output.is_none() {
        return Ok(too_large());
    }
    let max = body_bytes_max(request);
    Err(unusable_response(&format!("the response exceeds the limit of {max} bytes")))
}

/// The text as JSON that Steward can hold without a loss.
fn as_json(text: &str) -> Option<Value> {
    let value = serde_json::from_str(text).ok()?;
    (check_integers(text).is_ok() && !limits::nests_too_deep(&value)).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_json_or_text_or_nothing() {
        let text = |text: &str| Some(json!({ "text": text }));
        let cases: &[(&[u8], Option<Value>)] = &[
            (b"", Some(Value::Null)),
            (b"  \r\n ", Some(Value::Null)),
            (b"\xef\xbb\xbf{\"id\":7}", Some(json!({ "id": 7 }))),
            (b"\xef\xbb\xbf", Some(Value::Null)),
            (b"{\"a\":1,\"b\":2,\"a\":3}", Some(json!({ "a": 3, "b": 2 }))),
            (b"18446744073709551615", Some(json!(u64::MAX))),
            (b"12345678901234567890123", text("12345678901234567890123")),
            (b"OK", text("OK")),
            (b" OK\n", text(" OK\n")),
            (b"\xef\xbb\xbfOK", text("OK")),
            (b"NaN", text("NaN")),
            (b"1e999", text("1e999")),
            (b"\"\\ud800\"", text("\"\\ud800\"")),
            (b"{\"a\":1}\n{\"a\":2}", text("{\"a\":1}\n{\"a\":2}")),
            (b"caf\xe9", None),
            (b"\xff\xfe{\0}\0", None),
            (b"%PDF-1.7\n\x80", None),
        ];
        for (body, expected) in cases {
            assert_eq!(body_value(body), *expected, "{body:?}");
        }
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        assert_eq!(body_value(deep.as_bytes()), text(&deep));
    }
}
