//! References to payloads: documents that are too large for a message, and are stored as objects in a bucket (claim check).
//!
//! ```text
//! client ──► uploads/ID                  kept for a day, unless a submission claims it
//!               │ submission copies it
//!               ▼
//!            tasks/TASK@INCARNATION/input/…                the objects of one task: kept until the task has expired
//!            tasks/TASK@INCARNATION/output/STEP/do/1       written by an agent
//!            tasks/TASK@INCARNATION/TASK:STEP@INCARNATION/…       those of its child task
//! ```
//!
//! A [`PayloadReference`] is plain JSON, `{"$payload": {…}}`, that expressions pass on. It gives no right to read the object:
//! only the task whose [place](PayloadPlace) contains the key may send it to a service.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use checked_text::{ContentType, DEFAULT_CONTENT_TYPE, Sha256Hex};
pub use key::{InvalidPayloadKey, PayloadKey, PayloadPlace, TASKS, UPLOADS};

use crate::{
    limits::{PAYLOAD_BYTES_MAX, PAYLOAD_KEY_BYTES_MAX},
    model::json_text::to_json_value,
};

mod checked_text;
mod key;

/// The only key of a JSON object that is a reference.
pub const PAYLOAD_MARKER: &str = "$payload";

/// The version of the format of references.
const VERSION: u32 = 1;

/// A reference to a payload. As JSON, `{"$payload": {"version": 1, "key": …}}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PayloadReference {
    /// The version of the format: 1.
    pub version: u32,
    /// The key of the object in the deployment's bucket.
    pub key: PayloadKey,
    /// The bytes of the payload, at most 64 MiB.
    pub bytes: u64,
    /// The SHA-256 digest of the payload, in 64 hexadecimal digits.
    pub sha256: Sha256Hex,
    /// The media type of the payload.
    pub content_type: ContentType,
}

/// The JSON value of a reference.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReferenceValue {
    /// The reference.
    #[serde(rename = "$payload")]
    pub payload: PayloadReference,
}

/// Why a value with the key `$payload` is not a reference. The message contains no values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a reference to a payload: {0}")]
pub struct InvalidReference(String);

impl PayloadReference {
    /// A reference in the current format.
    #[must_use]
    pub fn new(key: PayloadKey, bytes: u64, sha256: Sha256Hex, content_type: ContentType) -> Self {
        Self { version: VERSION, key, bytes, sha256, content_type }
    }

    /// The reference that a JSON value is. `None` if the value is anything else.
    ///
    /// # Errors
    /// The value is an object with the key `$payload`, but not a valid reference.
    pub fn of(value: &Value) -> Option<Result<Self, InvalidReference>> {
        let fields = value.as_object()?;
        let content = fields.get(PAYLOAD_MARKER)?;
        if fields.len() > 1 {
            let reason = "it has other keys beside `$payload`";
            return Some(Err(InvalidReference(reason.to_owned())));
        }
        Some(Self::of_content(content))
    }

    fn of_content(content: &Value) -> Result<Self, InvalidReference> {
        // Serde would accept a list too.
        if !content.is_object() {
            return Err(InvalidReference("it must be an object".to_owned()));
        }
        let version = content.get("version").and_then(Value::as_u64);
        if version.is_some_and(|version| version != u64::from(VERSION)) {
            return Err(InvalidReference(format!("only version {VERSION} is known")));
        }
        let reference = Self::deserialize(content);
        // The message of the error may quote a value.
        let reference = reference.map_err(|_| {
            let fields = "`version`, `key`, `bytes`, `sha256` and `content_type`";
            InvalidReference(format!("it must have valid {fields}, as `POST /payloads` returned"))
        })?;
        if reference.bytes > PAYLOAD_BYTES_MAX {
            return Err(InvalidReference(format!("more than {PAYLOAD_BYTES_MAX} bytes")));
        }
        Ok(reference)
    }

    /// The reference as JSON.
    #[must_use]
    pub fn to_value(&self) -> Value {
        Value::Object(Map::from_iter([(PAYLOAD_MARKER.to_owned(), to_json_value(self))]))
    }
}

/// The size and the type of a payload, for people: `payload of 1.5 MiB, application/pdf`.
impl fmt::Display for PayloadReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const KIB: u64 = 1024;
        let size = match self.bytes {
            bytes if bytes < KIB => format!("{bytes} bytes"),
            bytes if bytes < KIB * KIB => format!("{} KiB", bytes / KIB),
            bytes => {
                format!("{}.{} MiB", bytes / (KIB * KIB), bytes % (KIB * KIB) * 10 / (KIB * KIB))
            }
        };
        write!(f, "payload of {size}, {}", self.content_type)
    }
}

/// A reference inside a JSON value, and its place as a JSON pointer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundReference {
    /// Where it is: a JSON pointer.
    pub pointer: String,
    /// The reference.
    pub reference: PayloadReference,
}

/// All references in a value, in the order of the text.
///
/// # Errors
/// The pointer of the first object with the key `$payload` that is not a valid reference, and why.
pub fn find_references(value: &Value) -> Result<Vec<FoundReference>, (String, InvalidReference)> {
    fn search(
        value: &Value,
        pointer: &str,
        found: &mut Vec<FoundReference>,
    ) -> Result<(), (String, InvalidReference)> {
        match (PayloadReference::of(value), value) {
            (Some(Ok(reference)), _) => {
                found.push(FoundReference { pointer: pointer.to_owned(), reference });
                Ok(())
            }
            (Some(Err(error)), _) => Err((pointer.to_owned(), error)),
            (None, value) => {
                let mut result = Ok(());
                children(value, pointer, |pointer, value| {
                    if result.is_ok() {
                        result = search(value, &pointer, found);
                    }
                });
                result
            }
        }
    }
    let mut found = Vec::new();
    search(value, "", &mut found)?;
    Ok(found)
}

/// The valid references in a value, for people. What is not valid is left out.
#[must_use]
pub fn valid_references(value: &Value) -> Vec<FoundReference> {
    fn search(value: &Value, pointer: &str, found: &mut Vec<FoundReference>) {
        match (PayloadReference::of(value), value) {
            (Some(Ok(reference)), _) => {
                found.push(FoundReference { pointer: pointer.to_owned(), reference });
            }
            (Some(Err(_)), _) => {}
            (None, value) => {
                children(value, pointer, |pointer, value| search(value, &pointer, found));
            }
        }
    }
    let mut found = Vec::new();
    search(value, "", &mut found);
    found
}

/// Visits the values in an object or a list, with their JSON pointers.
fn children<'a>(value: &'a Value, pointer: &str, mut visit: impl FnMut(String, &'a Value)) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| {
            let name = name.replace('~', "~0").replace('/', "~1");
            visit(format!("{pointer}/{name}"), value);
        }),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(n, item)| visit(format!("{pointer}/{n}"), item));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Whether a value contains an object with the key `$payload`.
#[must_use]
pub fn has_reference(value: &Value) -> bool {
    match value {
        Value::Object(fields) => {
            fields.contains_key(PAYLOAD_MARKER) || fields.values().any(has_reference)
        }
        Value::Array(items) => items.iter().any(has_reference),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// The value as a task in `place` stores it: each reference names the copy of its object that belongs to the task. A
/// reference of that task already is kept.
#[must_use]
pub fn claimed(value: &Value, place: &PayloadPlace) -> Value {
    if let Some(Ok(reference)) = PayloadReference::of(value) {
        return match place.contains(&reference.key) {
            true => value.clone(),
            false => {
                let key = place.claim_key(&reference.key, &reference.sha256);
                PayloadReference { key, ..reference }.to_value()
            }
        };
    }
    match value {
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| (name.clone(), claimed(value, place))).collect()
        }
        Value::Array(items) => items.iter().map(|item| claimed(item, place)).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

/// Whether a text may be the JSON of a reference. For a value that is only kept as text.
#[must_use]
pub fn may_be_reference(json: &str) -> bool {
    json.len() <= REFERENCE_BYTES_MAX
        && json.strip_prefix('{').is_some_and(|rest| rest.trim_start().starts_with("\"$payload\""))
}

/// More bytes than a reference has as compact JSON.
const REFERENCE_BYTES_MAX: usize = 2 * PAYLOAD_KEY_BYTES_MAX;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const SHA: &str = "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae";

    fn reference(key: &str) -> Value {
        json!({ "$payload": { "version": 1, "key": key, "bytes": 3, "sha256": SHA, "content_type": "text/plain" } })
    }

    fn place(task_id: &str) -> PayloadPlace {
        PayloadPlace::of_task(&task_id.parse().unwrap(), "000000001".parse().unwrap())
    }

    #[test]
    fn a_list_is_no_reference() {
        let list = json!({ "$payload": [1, "uploads/0123", 3, SHA, "text/plain"] });
        PayloadReference::of(&list).unwrap().unwrap_err();
    }

    #[test]
    fn a_reference_reads_back_as_written_and_says_its_size() {
        let value = reference("uploads/0123");
        let read = PayloadReference::of(&value).unwrap().unwrap();
        assert_eq!(read.to_value(), value);
        assert!(may_be_reference(&value.to_string()));
        assert_eq!(read.to_string(), "payload of 3 bytes, text/plain");
        let size = |bytes| PayloadReference { bytes, ..read.clone() }.to_string();
        assert_eq!(size(150 * 1024), "payload of 150 KiB, text/plain");
        assert_eq!(size(3 * 1024 * 1024 / 2), "payload of 1.5 MiB, text/plain");
        assert_eq!(Sha256Hex::of_digest(&read.sha256.digest().try_into().unwrap()), read.sha256);
    }

    #[test]
    fn other_values_are_no_references_and_a_wrong_one_is_refused_without_its_values() {
        for other in [json!(null), json!({}), json!({ "payload": 1 }), json!([{ "$payload": 1 }])] {
            assert_eq!(PayloadReference::of(&other), None);
        }
        let with = |name: &str, value: Value| {
            let mut reference = reference("uploads/0123");
            reference["$payload"][name] = value;
            reference
        };
        let mut beside = reference("uploads/0123");
        beside["secret"] = json!("s3cret");
        for wrong in [
            beside,
            json!({ "$payload": "s3cret" }),
            with("version", json!(2)),
            with("bytes", json!(PAYLOAD_BYTES_MAX + 1)),
            with("sha256", json!("s3cret")),
            with("content_type", json!("s3cret\n")),
            with("s3cret", json!(1)),
            with("key", json!("other/s3cret")),
            with("key", json!("uploads/../tasks/s3cret")),
            with("key", json!("uploads//s3cret")),
            with("key", json!("uploads/")),
        ] {
            let error = PayloadReference::of(&wrong).unwrap().unwrap_err().to_string();
            assert!(!error.contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn references_are_found_with_their_pointers() {
        let value = json!({ "a": [1, reference("uploads/1")], "b/c": reference("uploads/2") });
        let found = find_references(&value).unwrap();
        let pointers: Vec<_> = found.iter().map(|found| found.pointer.as_str()).collect();
        assert_eq!(pointers, ["/a/1", "/b~1c"]);
        let (pointer, _) = find_references(&json!({ "a": [{ "$payload": 1 }] })).unwrap_err();
        assert_eq!(pointer, "/a/0");
    }

    #[test]
    fn a_claimed_reference_names_the_copy_of_the_task() {
        let value = json!({ "doc": reference("uploads/1"), "n": 1 });
        let copy = format!("tasks/order-1@000000001/input/{SHA}");
        let expected = json!({ "doc": reference(&copy), "n": 1 });
        assert_eq!(claimed(&value, &place("order-1")), expected);
        // The same content, uploaded again, is the same submission.
        let again = json!({ "doc": reference("uploads/2"), "n": 1 });
        assert_eq!(claimed(&again, &place("order-1")), expected);
        assert_eq!(claimed(&expected, &place("order-1")), expected);
    }
}
