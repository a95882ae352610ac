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
//! only the task whose [place](PayloadPlace) contains the key may read it, so a forged reference is of no use.

use std::{borrow::Cow, fmt};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    limits::{self, PAYLOAD_BYTES_MAX, PAYLOAD_KEY_BYTES_MAX},
    model::{
        attempt::Action,
        hash::fnv1a_128,
        json_text::to_json_value,
        names::{Incarnation, Part, TaskId},
    },
};

/// The only key of a JSON object that is a reference.
pub const PAYLOAD_MARKER: &str = "$payload";

/// The prefix of the keys of uploads.
pub const UPLOADS: &str = "uploads/";

/// The prefix of the keys of all objects that belong to tasks.
pub const TASKS: &str = "tasks/";

/// The version of the format of references.
const VERSION: u32 = 1;

/// The type of a payload whose sender names none.
pub const DEFAULT_CONTENT_TYPE: &str = "application/octet-stream";

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
                let key = place.claim_key(&reference);
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

/// The key of an object: `uploads/…` or `tasks/…`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PayloadKey(String);

/// The text is not a [`PayloadKey`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not the key of a payload")]
pub struct InvalidPayloadKey;

impl TryFrom<String> for PayloadKey {
    type Error = InvalidPayloadKey;

    fn try_from(text: String) -> Result<Self, InvalidPayloadKey> {
        let is_known = text.starts_with(UPLOADS) || text.starts_with(TASKS);
        let is_plain = |segment: &str| {
            let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:@".contains(&byte);
            // Task ids, steps and numbers begin with a letter or a digit, so `.` and `..` are no segments.
            segment.bytes().all(allowed)
                && segment.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric())
        };
        if is_known && text.len() <= PAYLOAD_KEY_BYTES_MAX && text.split('/').all(is_plain) {
            return Ok(Self(text));
        }
        Err(InvalidPayloadKey)
    }
}

impl From<PayloadKey> for String {
    fn from(key: PayloadKey) -> Self {
        key.0
    }
}

impl PayloadKey {
    /// The key of a new upload. `id` must be random: whoever knows it may submit the upload.
    #[must_use]
    pub fn upload(id: u128) -> Self {
        Self(format!("{UPLOADS}{id:032x}"))
    }

    /// The key itself.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is the key of an upload.
    #[must_use]
    pub fn is_upload(&self) -> bool {
        self.0.starts_with(UPLOADS)
    }

    /// The tasks to which the object belongs: the task itself first, then its parent and their parents. Empty if the
    /// key is not that of a task's object.
    #[must_use]
    pub fn owners(&self) -> Vec<(TaskId, Incarnation)> {
        let levels = self.0.strip_prefix(TASKS).unwrap_or_default().split('/');
        let levels = levels.map_while(|level| {
            let (task_id, incarnation) = level.split_once('@')?;
            Some((task_id.parse().ok()?, incarnation.parse().ok()?))
        });
        let mut owners: Vec<_> = levels.collect();
        owners.reverse();
        owners
    }
}

impl fmt::Display for PayloadKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The place of the payloads of one task: the prefix of their keys. It begins with the place of the parent task, so that
/// a parent may read what its child tasks have stored, and no task may read what others have.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PayloadPlace(String);

impl TryFrom<String> for PayloadPlace {
    type Error = InvalidPayloadKey;

    fn try_from(text: String) -> Result<Self, InvalidPayloadKey> {
        let levels = text.strip_prefix(TASKS).and_then(|rest| rest.strip_suffix('/'));
        let levels = levels.ok_or(InvalidPayloadKey)?;
        let is_task = |level: &str| {
            level.split_once('@').is_some_and(|(task_id, incarnation)| {
                task_id.parse::<TaskId>().is_ok() && incarnation.parse::<Incarnation>().is_ok()
            })
        };
        if text.len() < PAYLOAD_KEY_BYTES_MAX && levels.split('/').all(is_task) {
            return Ok(Self(text));
        }
        Err(InvalidPayloadKey)
    }
}

impl From<PayloadPlace> for String {
    fn from(place: PayloadPlace) -> Self {
        place.0
    }
}

impl PayloadPlace {
    /// The place of a task that has no parent.
    #[must_use]
    pub fn of_task(task_id: &TaskId, incarnation: Incarnation) -> Self {
        Self(format!("{TASKS}{task_id}@{incarnation}/"))
    }

    /// The place of a child task of the task with this place.
    #[must_use]
    pub fn of_child(&self, task_id: &TaskId, incarnation: Incarnation) -> Self {
        Self(format!("{}{task_id}@{incarnation}/", self.0))
    }

    /// The prefix itself.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The prefix of the keys of all tasks that have had the same id, with the same parent. It ends before the incarnation.
    #[must_use]
    pub fn prefix_of_id(&self) -> &str {
        self.0.rfind('@').and_then(|at| self.0.get(..=at)).unwrap_or(&self.0)
    }

    /// Whether the object with this key belongs to the task, or to one of its child tasks.
    #[must_use]
    pub fn contains(&self, key: &PayloadKey) -> bool {
        key.as_str().starts_with(&self.0)
    }

    /// The key under which an agent stores the response to an attempt. It is the same for every delivery of the request.
    #[must_use]
    pub fn output_key(&self, part: &Part, action: Action, attempt: u32) -> PayloadKey {
        let item = part.item.map(|item| format!("{item}/")).unwrap_or_default();
        let (step, action) = (&part.step, action.name());
        PayloadKey(format!("{}output/{step}/{item}{action}/{attempt}", self.0))
    }

    /// The key of the task's copy of an object. It follows from the content of an upload, so that the same content, uploaded
    /// twice, is the same submission. The digest of another task's object is not verified; its key is unique.
    #[must_use]
    pub fn claim_key(&self, reference: &PayloadReference) -> PayloadKey {
        let PayloadReference { key, sha256, .. } = reference;
        let name = match key.is_upload() {
            true => sha256.as_str().to_owned(),
            false => format!("{:032x}", fnv1a_128(key.as_str())),
        };
        PayloadKey(format!("{}input/{name}", self.0))
    }
}

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

impl JsonSchema for PayloadKey {
    fn schema_name() -> Cow<'static, str> {
        "PayloadKey".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^(uploads|tasks)(/[0-9A-Za-z][0-9A-Za-z._:@-]*)+$" })
    }
}

impl JsonSchema for PayloadPlace {
    fn schema_name() -> Cow<'static, str> {
        "PayloadPlace".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^tasks(/[0-9A-Za-z][0-9A-Za-z._:-]*@[0-9a-z]{9})+/$" })
    }
}

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

    #[test]
    fn only_a_task_and_its_ancestors_contain_its_objects() {
        let parent = place("order-1");
        let child = parent.of_child(&"order-1:ship".parse().unwrap(), "000000002".parse().unwrap());
        let key = child.output_key(&"pack[3]".parse().unwrap(), Action::Do, 2);
        let text = "tasks/order-1@000000001/order-1:ship@000000002/output/pack/3/do/2";
        assert_eq!(key.as_str(), text);
        assert_eq!(PayloadKey::try_from(text.to_owned()), Ok(key.clone()));
        assert!(parent.contains(&key) && child.contains(&key));
        assert!(!place("order-2").contains(&key) && !place("order").contains(&key));
        let owners = key.owners();
        let owners: Vec<_> = owners.iter().map(|(id, at)| format!("{id} {at}")).collect();
        assert_eq!(owners, ["order-1:ship 000000002", "order-1 000000001"]);
        assert_eq!(PayloadKey::upload(7).owners(), []);
        let place = String::from(child.clone());
        assert_eq!(PayloadPlace::try_from(place), Ok(child));
    }

    #[test]
    fn the_longest_key_is_valid() {
        let id: TaskId = "x".repeat(limits::TASK_ID_CHARS_MAX).parse().unwrap();
        let incarnation: Incarnation = "zzzzzzzzz".parse().unwrap();
        let mut place = PayloadPlace::of_task(&id, incarnation);
        for _ in 0..limits::CHILD_DEPTH_MAX {
            place = place.of_child(&id, incarnation);
        }
        let step = "s".repeat(limits::NAME_CHARS_MAX).parse().unwrap();
        let part = Part { step, item: Some(u32::MAX) };
        let longest = place.output_key(&part, Action::Undo, u32::MAX);
        assert_eq!(PayloadKey::try_from(longest.to_string()), Ok(longest.clone()));
        assert_eq!(longest.owners().len(), 6);
        assert_eq!(PayloadPlace::try_from(place.as_str().to_owned()), Ok(place));
    }
}
