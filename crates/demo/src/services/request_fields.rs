//! Parses the fields of requests that several services share.

use serde_json::{Map, Value};

use super::responses::{ErrorResponse, bad_request};

/// The maximum length of a client-generated id in bytes.
const ID_BYTES_MAX: usize = 512;

/// Parses a body, which must be a JSON object.
pub(super) fn json_object(body: &[u8]) -> Result<Map<String, Value>, ErrorResponse> {
    serde_json::from_slice(body)
        .map_err(|_| bad_request("body-not-an-object", "The body is not a JSON object"))
}

/// The id in the `package` field of a request.
pub(super) fn package_of(request: &Map<String, Value>) -> Result<String, ErrorResponse> {
    match request.get("package").and_then(Value::as_str) {
        Some(package) if is_id(package) => Ok(package.to_owned()),
        Some(_) => Err(bad_request("package-length", "package is empty or too long")),
        None => Err(bad_request("package-missing", "package is missing or not a string")),
    }
}

/// Whether a client-generated id is valid.
pub(super) fn is_id(text: &str) -> bool {
    !text.is_empty() && text.len() <= ID_BYTES_MAX
}
