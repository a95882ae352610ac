//! References to payloads in JSON values. It does not use the functions of the core, so that it does not repeat their mistakes.

use serde_json::{Map, Value, json};

/// The only key of a reference.
const MARKER: &str = "$payload";

/// What a payload consists of. In a simulation, the digest alone identifies it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Content {
    pub(super) bytes: u64,
    pub(super) sha256: String,
    pub(super) content_type: String,
}

/// A reference to an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Reference {
    pub(super) key: String,
    pub(super) content: Content,
}

impl Content {
    /// The content with this number. It is too large for a message.
    pub(super) fn numbered(number: u64) -> Self {
        const MORE_THAN_A_DOCUMENT: u64 = 128 * 1_024 + 1;
        Self {
            bytes: MORE_THAN_A_DOCUMENT + number,
            sha256: format!("{number:064x}"),
            content_type: "application/pdf".to_owned(),
        }
    }

    /// A large response in the ledger: a reference without a key, because the service does not know where it will be stored.
    pub(super) fn to_response(&self) -> Value {
        let Self { bytes, sha256, content_type } = self;
        json!({ MARKER: { "bytes": bytes, "sha256": sha256, "content_type": content_type } })
    }

    /// The content of a large response.
    pub(super) fn of_response(value: &Value) -> Option<Self> {
        let fields = marked(value)?;
        if fields.contains_key("key") { None } else { content(fields) }
    }
}

impl Reference {
    /// The reference that a value is; `None` if it is none, or malformed.
    pub(super) fn of(value: &Value) -> Option<Self> {
        let fields = marked(value)?;
        let is_known = fields.get("version").and_then(Value::as_u64) == Some(1);
        let key = fields.get("key").and_then(Value::as_str).filter(|_| is_known)?;
        Some(Self { key: key.to_owned(), content: content(fields)? })
    }

    pub(super) fn to_value(&self) -> Value {
        let Content { bytes, sha256, content_type } = &self.content;
        json!({ MARKER: {
            "version": 1, "key": self.key, "bytes": bytes, "sha256": sha256, "content_type": content_type,
        } })
    }
}

fn marked(value: &Value) -> Option<&Map<String, Value>> {
    value.as_object().filter(|fields| fields.len() == 1)?.get(MARKER)?.as_object()
}

fn content(fields: &Map<String, Value>) -> Option<Content> {
    let text = |name: &str| Some(fields.get(name)?.as_str()?.to_owned());
    let bytes = fields.get("bytes")?.as_u64()?;
    Some(Content { bytes, sha256: text("sha256")?, content_type: text("content_type")? })
}

/// Whether a value contains the key of references.
pub(super) fn has_marker(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.contains_key(MARKER) || fields.values().any(has_marker),
        Value::Array(items) => items.iter().any(has_marker),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Everything in a value that has the key of references, also what is malformed.
pub(super) fn marked_values(value: &Value) -> Vec<&Value> {
    match value {
        Value::Object(fields) if fields.contains_key(MARKER) => vec![value],
        Value::Object(fields) => fields.values().flat_map(marked_values).collect(),
        Value::Array(items) => items.iter().flat_map(marked_values).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    }
}

/// All valid references in a value.
pub(super) fn references(value: &Value) -> Vec<Reference> {
    marked_values(value).into_iter().filter_map(Reference::of).collect()
}

/// The value with another key in each reference.
pub(super) fn with_keys(value: &Value, key: &mut impl FnMut(&Reference) -> String) -> Value {
    match (Reference::of(value), value) {
        (Some(reference), _) => {
            let key = key(&reference);
            Reference { key, ..reference }.to_value()
        }
        (None, Value::Object(fields)) => {
            fields.iter().map(|(name, value)| (name.clone(), with_keys(value, key))).collect()
        }
        (None, Value::Array(items)) => items.iter().map(|item| with_keys(item, key)).collect(),
        (None, Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => value.clone(),
    }
}

/// Whether two values are the same, wherever their payloads are stored.
pub(super) fn is_same(one: &Value, other: &Value) -> bool {
    if one == other {
        return true;
    }
    match (one, other) {
        (Value::Object(fields), Value::Object(others)) => {
            match (content_of(one), content_of(other)) {
                (Some(content), Some(other)) => content == other,
                _ => {
                    let is_same =
                        |(name, value)| others.get(name).is_some_and(|of| is_same(value, of));
                    fields.len() == others.len() && fields.iter().all(is_same)
                }
            }
        }
        (Value::Array(items), Value::Array(others)) => {
            let mut pairs = items.iter().zip(others);
            items.len() == others.len() && pairs.all(|(one, other)| is_same(one, other))
        }
        _ => false,
    }
}

/// The content of a reference, or of a large response.
fn content_of(value: &Value) -> Option<Content> {
    content(marked(value)?)
}
