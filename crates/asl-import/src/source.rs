//! The source of a state machine: its JSON or YAML as a value, and the line and column of each part of it.

use std::{collections::HashMap, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Number, Value};
use serde_saphyr::{Location, Spanned};

use crate::{error::ImportError, position::Position};

/// The positions of the parts of a state machine, by JSON pointer (RFC 6901).
#[derive(Debug, Default)]
pub(crate) struct Positions(HashMap<String, Position>);

impl Positions {
    /// The position of the part, or else of the closest part around it that the file has.
    pub(crate) fn of(&self, pointer: &str) -> Position {
        let mut at = pointer;
        loop {
            if let Some(position) = self.0.get(at) {
                return *position;
            }
            match at.rsplit_once('/') {
                Some((parent, _)) => at = parent,
                None => return Position { line: 1, column: 1 },
            }
        }
    }
}

/// `pointer` extended by a key, which is escaped.
pub(crate) fn child(pointer: &str, key: &str) -> String {
    format!("{pointer}/{}", key.replace('~', "~0").replace('/', "~1"))
}

/// Parses JSON or YAML.
///
/// # Errors
/// It is not valid JSON or YAML.
pub(crate) fn parse(text: &str) -> Result<(Value, Positions), ImportError> {
    let options = serde_saphyr::options! { strict_booleans: true };
    let root: Spanned<Node> =
        serde_saphyr::from_str_with_options(text, options).map_err(|error| {
            let location = error.location().unwrap_or(Location::UNKNOWN);
            let position = position(location).unwrap_or(Position { line: 1, column: 1 });
            let message = error.without_snippet().to_string();
            ImportError::Syntax { position, message: printable(&message) }
        })?;
    let mut positions = Positions::default();
    let value = flatten(root.value, String::new(), &mut positions);
    Ok((value, positions))
}

/// `text` on one line, with its control characters escaped: a terminal must not execute them.
pub(crate) fn printable(text: &str) -> String {
    let escaped =
        |c: char| if c.is_control() { c.escape_debug().to_string() } else { c.to_string() };
    text.chars().map(escaped).collect()
}

fn position(location: Location) -> Option<Position> {
    (location != Location::UNKNOWN)
        .then(|| Position { line: location.line(), column: location.column() })
}

fn flatten(node: Node, pointer: String, positions: &mut Positions) -> Value {
    match node {
        Node::Scalar(value) => value,
        Node::List(items) => {
            let items = items.into_iter().enumerate().map(|(index, item)| {
                let pointer = format!("{pointer}/{index}");
                if let Some(position) = position(item.referenced) {
                    positions.0.insert(pointer.clone(), position);
                }
                flatten(item.value, pointer, positions)
            });
            Value::Array(items.collect())
        }
        Node::Mapping(entries) => {
            let mut fields = Map::new();
            for (key, item) in entries {
                let pointer = child(&pointer, &key.value);
                if let Some(position) = position(key.referenced) {
                    positions.0.insert(pointer.clone(), position);
                }
                fields.insert(key.value, flatten(item.value, pointer, positions));
            }
            Value::Object(fields)
        }
    }
}

/// A value with the positions of what is in it.
enum Node {
    Scalar(Value),
    List(Vec<Spanned<Node>>),
    Mapping(Vec<(Spanned<String>, Spanned<Node>)>),
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = map.next_key()? {
            entries.push((key, map.next_value()?));
        }
        Ok(Node::Mapping(entries))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Node, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = sequence.next_element()? {
            items.push(item);
        }
        Ok(Node::List(items))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Node, E> {
        let number = Number::from_f64(value);
        let number =
            number.ok_or_else(|| E::custom("JSON has no infinite numbers and no `.nan`"))?;
        Ok(Node::Scalar(Value::Number(number)))
    }

    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Scalar(Value::Null))
    }
}
