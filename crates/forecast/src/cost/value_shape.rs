//! Generated values, of the shape that a schema describes and that expressions read.

use indexmap::IndexMap;
use jiff::{Timestamp, fmt::strtime, tz::TimeZone};
use serde_json::{Value, json};
use steward_core::{
    expression::uses::{PathKey, ValueKind},
    limits,
};

/// How many elements a list has, within the limits of its schema.
const ELEMENTS: usize = 3;

/// The value of a time.
const TIME: &str = "2026-01-01T12:00:00Z";

/// The value of a number without a schema.
const NUMBER: i64 = 100;

/// The known shape of a value.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) enum ValueShape {
    /// Unknown: the value is a text named after its field.
    #[default]
    Any,
    /// A random boolean.
    Bool,
    Number,
    /// A text whose content does not matter.
    Text(TextLength),
    List(Box<ValueShape>, usize),
    Object(IndexMap<String, ValueShape>),
    /// Exactly this value.
    Fixed(Value),
    /// A random one of these.
    OneOf(Vec<ValueShape>),
}

/// The least and the greatest number of characters of a text.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct TextLength {
    least: usize,
    most: usize,
}

/// How many nesting levels a `$ref` counts as. It ends the expansion of a schema that refers to itself before the value
/// is large.
const REFERENCE_DEPTH: usize = 8;

impl ValueShape {
    /// The shape that a schema describes: its example or default, or its type.
    pub(super) fn of_schema(schema: &Value) -> Self {
        Self::of_part(schema, schema, 0)
    }

    /// The shape that a part of the schema `root` describes.
    fn of_part(schema: &Value, root: &Value, depth: usize) -> Self {
        let given = schema.pointer("/examples/0").or(schema.get("default"));
        let given = given.or(schema.get("const")).or(schema.pointer("/enum/0"));
        if let Some(value) = given {
            return Self::Fixed(value.clone());
        }
        if depth >= limits::JSON_DEPTH_MAX {
            return Self::Any;
        }
        let nested = |schema: &Value| Self::of_part(schema, root, depth + 1);
        let reference = schema.get("$ref").and_then(Value::as_str);
        if let Some(target) = reference.and_then(|at| root.pointer(at.strip_prefix('#')?)) {
            return Self::of_part(target, root, depth + REFERENCE_DEPTH);
        }
        let kind =
            schema.get("type").and_then(|kind| kind.as_str().or_else(|| kind.get(0)?.as_str()));
        match kind {
            Some("boolean") => Self::Bool,
            Some("null") => Self::Fixed(Value::Null),
            Some("integer" | "number") => Self::Fixed(number(schema)),
            Some("string") => text(schema),
            Some("array") => {
                let limit = |key: &str| schema.get(key)?.as_u64()?.try_into().ok();
                let least: usize = limit("minItems").unwrap_or(0);
                let count = ELEMENTS.max(least).min(limit("maxItems").unwrap_or(usize::MAX));
                let element = schema.get("items").map(nested).unwrap_or_default();
                Self::List(Box::new(element), count)
            }
            Some("object") => Self::of_properties(schema, nested),
            Some(_) | None if schema.get("properties").is_some() => {
                Self::of_properties(schema, nested)
            }
            Some(_) | None => {
                let choices = ["/allOf/0", "/anyOf/0", "/oneOf/0"];
                choices.iter().find_map(|at| schema.pointer(at)).map(nested).unwrap_or_default()
            }
        }
    }

    fn of_properties(schema: &Value, nested: impl Fn(&Value) -> Self) -> Self {
        let properties = schema.get("properties").and_then(Value::as_object);
        let fields = properties.into_iter().flatten();
        Self::Object(fields.map(|(name, field)| (name.clone(), nested(field))).collect())
    }

    /// Adds that an expression reads a value of `kind` at `path`. Of known shapes, only a text changes: it gets a content that the
    /// expression can read.
    pub(super) fn add_read(&mut self, path: &[PathKey], kind: &ValueKind) {
        if let Self::OneOf(shapes) = self {
            return shapes.iter_mut().for_each(|shape| shape.add_read(path, kind));
        }
        match path {
            [] => {
                if *self == Self::Any {
                    *self = Self::of_kind(kind);
                } else if let Self::Text(length) = self
                    && let Some(text) = text_of_kind(kind).filter(|text| length.allows(text))
                {
                    *self = Self::Fixed(json!(text));
                }
            }
            [PathKey::Field(name), rest @ ..] => {
                if *self == Self::Any {
                    *self = Self::Object(IndexMap::new());
                }
                if let Self::Object(fields) = self {
                    fields.entry(name.clone()).or_default().add_read(rest, kind);
                }
            }
            [PathKey::Element, rest @ ..] => {
                if *self == Self::Any {
                    *self = Self::List(Box::default(), ELEMENTS);
                }
                if let Self::List(element, _) = self {
                    element.add_read(rest, kind);
                }
            }
        }
    }

    /// The shape of a value of which only the kind is known.
    fn of_kind(kind: &ValueKind) -> Self {
        match kind {
            ValueKind::Any => Self::Any,
            ValueKind::Bool => Self::Bool,
            ValueKind::Number | ValueKind::Divided | ValueKind::Decimal => Self::Number,
            ValueKind::List => Self::List(Box::default(), ELEMENTS),
            ValueKind::Text
            | ValueKind::Json
            | ValueKind::Time
            | ValueKind::TimeIn(_)
            | ValueKind::DurationOrTime => text_of_kind(kind)
                .map_or(Self::Text(TextLength::ANY), |text| Self::Fixed(json!(text))),
        }
    }

    /// The shape of the elements, if it is a list.
    pub(super) fn into_element(self) -> Self {
        match self {
            Self::List(element, _) => *element,
            Self::Any
            | Self::Bool
            | Self::Number
            | Self::Text(_)
            | Self::Object(_)
            | Self::Fixed(_)
            | Self::OneOf(_) => Self::Any,
        }
    }

    /// Generates a value of this shape. Texts in it are named after `name`.
    pub(super) fn value(&self, name: &str, draw: &mut fastrand::Rng) -> Value {
        self.numbered(name, 1, draw)
    }

    fn numbered(&self, name: &str, number: usize, draw: &mut fastrand::Rng) -> Value {
        match self {
            Self::Any => json!(format!("{name}-{number}")),
            Self::Text(length) => json!(length.sample(format!("{name}-{number}"))),
            Self::Bool => json!(draw.bool()),
            Self::Number => json!(NUMBER),
            Self::List(element, count) => {
                (1..=*count).map(|number| element.numbered(name, number, draw)).collect()
            }
            Self::Object(fields) => {
                let fields = fields.iter();
                let fields =
                    fields.map(|(name, field)| (name.clone(), field.numbered(name, number, draw)));
                Value::Object(fields.collect())
            }
            Self::Fixed(value) => value.clone(),
            Self::OneOf(shapes) => match draw.choice(shapes) {
                Some(shape) => shape.numbered(name, number, draw),
                None => Value::Null,
            },
        }
    }
}

impl TextLength {
    const ANY: Self = Self { least: 0, most: usize::MAX };

    fn allows(self, text: &str) -> bool {
        (self.least..=self.most).contains(&text.chars().count())
    }

    /// This text, or another one if its length is not allowed.
    fn sample(self, text: String) -> String {
        if self.allows(&text) { text } else { "x".repeat(self.least.max(8).min(self.most)) }
    }
}

/// A text of this kind, unless any text is one.
fn text_of_kind(kind: &ValueKind) -> Option<String> {
    match kind {
        ValueKind::Decimal => Some("12.50".to_owned()),
        ValueKind::Json => Some("{}".to_owned()),
        ValueKind::Time => Some(TIME.to_owned()),
        ValueKind::TimeIn(format) => {
            let time: Timestamp = TIME.parse().ok()?;
            strtime::format(format, &time.to_zoned(TimeZone::UTC)).ok()
        }
        ValueKind::DurationOrTime => Some("1m".to_owned()),
        ValueKind::Any
        | ValueKind::Bool
        | ValueKind::Number
        | ValueKind::Divided
        | ValueKind::Text
        | ValueKind::List => None,
    }
}

/// A number within the limits of the schema.
fn number(schema: &Value) -> Value {
    let limit = |key: &str| schema.get(key).and_then(Value::as_f64);
    let least = limit("minimum").or(limit("exclusiveMinimum").map(|least| least + 1.0));
    let most = limit("maximum").or(limit("exclusiveMaximum").map(|most| most - 1.0));
    let number = (NUMBER as f64).max(least.unwrap_or(f64::MIN)).min(most.unwrap_or(f64::MAX));
    if number.fract() == 0.0 && number.abs() < 1e15 { json!(number as i64) } else { json!(number) }
}

/// A text with the format and length of the schema.
fn text(schema: &Value) -> ValueShape {
    let fixed = |text: &str| ValueShape::Fixed(json!(text));
    match schema.get("format").and_then(Value::as_str) {
        Some("date-time") => return fixed(TIME),
        Some("date") => return fixed("2026-01-01"),
        Some("time") => return fixed("12:00:00Z"),
        Some("uuid") => return fixed("0b0e6f3c-6a51-4a0e-9d0c-6f2a4b8f1e55"),
        Some("email") => return fixed("someone@example.com"),
        Some("uri") => return fixed("https://example.com/"),
        Some(_) | None => {}
    }
    let limit = |key: &str| usize::try_from(schema.get(key)?.as_u64()?).ok();
    // A longer text fits in no document.
    let least = limit("minLength").unwrap_or(0).min(limits::DOCUMENT_BYTES_MAX);
    ValueShape::Text(TextLength { least, most: limit("maxLength").unwrap_or(usize::MAX) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generated(shape: &ValueShape) -> Value {
        shape.value("input", &mut fastrand::Rng::with_seed(7))
    }

    #[test]
    fn a_generated_value_has_the_fields_that_expressions_read() {
        let mut shape = ValueShape::Any;
        let field = |name: &str| PathKey::Field(name.to_owned());
        shape.add_read(&[field("items")], &ValueKind::List);
        shape.add_read(&[field("items"), PathKey::Element, field("sku")], &ValueKind::Any);
        shape.add_read(&[field("amount")], &ValueKind::Number);
        assert_eq!(
            generated(&shape),
            json!({ "items": [{ "sku": "sku-1" }, { "sku": "sku-2" }, { "sku": "sku-3" }], "amount": 100 })
        );
    }

    #[test]
    fn a_schema_takes_precedence_over_expressions() {
        let schema = json!({ "type": "object", "properties": {
            "amount": { "type": "integer", "minimum": 1, "maximum": 50 },
            "tier": { "enum": ["gold", "none"] },
            "note": { "type": "string", "minLength": 12 },
            "tags": { "type": "array", "items": { "type": "string" }, "minItems": 4 },
            "at": { "type": "string", "format": "date" },
        } });
        let mut shape = ValueShape::of_schema(&schema);
        shape.add_read(&[PathKey::Field("amount".to_owned())], &ValueKind::Text);
        shape.add_read(&[PathKey::Field("more".to_owned())], &ValueKind::Any);
        assert_eq!(
            generated(&shape),
            json!({ "amount": 50, "tier": "gold", "note": "xxxxxxxxxxxx",
                    "tags": ["tags-1", "tags-2", "tags-3", "tags-4"], "at": "2026-01-01",
                    "more": "more-1" })
        );
        assert_eq!(
            generated(&ValueShape::of_schema(&json!({ "examples": [7], "type": "string" }))),
            json!(7)
        );
    }

    #[test]
    fn a_text_of_a_schema_has_the_content_that_a_function_reads() {
        let schema = json!({ "type": "object", "properties": {
            "price": { "type": "string", "maxLength": 20 },
            "prices": { "type": "array", "items": { "type": "string" } },
            "paid": { "type": "string" },
            "json": { "type": "string" },
            "at": { "type": "string" },
            "code": { "type": "string", "minLength": 30 },
        } });
        let mut shape = ValueShape::of_schema(&schema);
        let field = |name: &str| PathKey::Field(name.to_owned());
        shape.add_read(&[field("price")], &ValueKind::Decimal);
        shape.add_read(&[field("prices"), PathKey::Element], &ValueKind::Decimal);
        shape.add_read(&[field("paid")], &ValueKind::TimeIn("%d.%m.%Y".to_owned()));
        shape.add_read(&[field("json")], &ValueKind::Json);
        shape.add_read(&[field("at")], &ValueKind::Time);
        // Too short for the schema.
        shape.add_read(&[field("code")], &ValueKind::Json);
        // Without a schema.
        shape.add_read(&[field("answer")], &ValueKind::Json);
        shape.add_read(&[field("tax")], &ValueKind::Decimal);
        assert_eq!(
            generated(&shape),
            json!({ "price": "12.50", "prices": ["12.50", "12.50", "12.50"], "paid": "01.01.2026", "json": "{}",
                    "at": "2026-01-01T12:00:00Z", "code": "x".repeat(30), "answer": "{}", "tax": 100 })
        );
    }

    #[test]
    fn references_in_a_schema_are_followed_also_to_the_schema_itself() {
        let place = json!({ "type": "object", "properties": { "lat": { "type": "number", "maximum": 3 } } });
        let schema = json!({
            "properties": { "to": { "$ref": "#/$defs/place" }, "next": { "$ref": "#" } },
            "$defs": { "place": place },
        });
        let generated = generated(&ValueShape::of_schema(&schema));
        assert_eq!(generated["to"], json!({ "lat": 3 }));
        assert_eq!(generated["next"]["to"], json!({ "lat": 3 }));
    }
}
