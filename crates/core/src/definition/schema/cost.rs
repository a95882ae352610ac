//! What a schema costs at most, from its text alone: how many subschemas are checked against one value, and how deep they nest. A
//! schema without such limits is refused. The validation of an input pays by these figures.

use std::collections::HashMap;

use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};

use crate::limits;

/// The bytes of `/` and an index in a location.
const INDEX_BYTES: usize = 5;

/// The decimals of a `multipleOf`.
const DIVISOR_DECIMALS_MAX: usize = 9;

/// Whether the schemas in the value of `keyword` are checked against the same value, and not against parts of it.
fn is_on_the_value(keyword: &str) -> bool {
    matches!(
        keyword,
        "allOf"
            | "anyOf"
            | "oneOf"
            | "not"
            | "if"
            | "then"
            | "else"
            | "dependentSchemas"
            | "dependencies"
    )
}

/// The schemas in the value of `keyword`, with the bytes that name each of them within it.
fn subschemas<'a>(keyword: &str, value: &'a Value) -> Vec<(&'a Value, usize)> {
    match (keyword, value) {
        ("allOf" | "anyOf" | "oneOf" | "items" | "prefixItems", Value::Array(schemas)) => {
            schemas.iter().map(|schema| (schema, INDEX_BYTES)).collect()
        }
        (
            "properties" | "patternProperties" | "dependentSchemas" | "dependencies",
            Value::Object(schemas),
        ) => {
            let schemas = schemas.iter().filter(|(_, schema)| !schema.is_array());
            schemas.map(|(name, schema)| (schema, 1 + name.len())).collect()
        }
        (
            "not"
            | "if"
            | "then"
            | "else"
            | "additionalProperties"
            | "items"
            | "additionalItems"
            | "contains"
            | "propertyNames"
            | "unevaluatedProperties"
            | "unevaluatedItems",
            schema,
        ) => vec![(schema, 0)],
        _ => vec![],
    }
}

/// What one value costs at most.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Cost {
    /// The subschemas that are checked against one value.
    pub(super) subschemas: usize,
    /// Those among them that are `false`: they fail without reading the value.
    pub(super) refusals: usize,
    /// How deep they nest.
    pub(super) depth: usize,
}

impl Cost {
    fn max(self, other: Self) -> Self {
        Self {
            subschemas: self.subschemas.max(other.subschemas),
            refusals: self.refusals.max(other.refusals),
            depth: self.depth.max(other.depth),
        }
    }
}

/// The cost of a schema and its patterns.
#[derive(Debug, Default)]
pub(super) struct SchemaCost<'a> {
    /// The largest figures of all values.
    pub(super) one_value: Cost,
    /// The largest number of patterns in one `patternProperties`, each of which reads every name.
    pub(super) name_patterns: usize,
    /// The regular expressions.
    pub(super) patterns: Vec<&'a str>,
}

/// Computes the cost of `schema`.
///
/// # Errors
/// The schema exceeds a limit, refers to itself on one value, or contains a reference that cannot be followed here.
pub(super) fn of(schema: &Value) -> Result<SchemaCost<'_>, String> {
    let mut walk = Walk {
        root: schema,
        known: HashMap::new(),
        parts: vec![],
        location_bytes: 0,
        found: SchemaCost::default(),
    };
    walk.parts.push((schema, 0));
    while let Some((part, location)) = walk.parts.pop() {
        let cost = walk.measure(part, location, 0)?;
        walk.found.one_value = walk.found.one_value.max(cost);
    }
    Ok(walk.found)
}

/// A walk through all subschemas that the root reaches.
struct Walk<'a> {
    root: &'a Value,
    /// The costs of the subschemas visited, by address. `None` while one is visited.
    known: HashMap<*const Value, Option<Cost>>,
    /// Subschemas of parts of values, to be visited, with the bytes of their location.
    parts: Vec<(&'a Value, usize)>,
    /// The bytes of the locations of all keywords, which the compiled schema contains.
    location_bytes: usize,
    found: SchemaCost<'a>,
}

impl<'a> Walk<'a> {
    fn measure(
        &mut self,
        schema: &'a Value,
        location: usize,
        above: usize,
    ) -> Result<Cost, String> {
        let key = std::ptr::from_ref(schema);
        let cost = match self.known.get(&key) {
            Some(Some(cost)) => *cost,
            Some(None) => {
                return Err(
                    "a schema refers to itself without a property or an item between".to_owned()
                );
            }
            None => {
                self.known.insert(key, None);
                if self.known.len() > limits::SUBSCHEMAS_MAX {
                    return Err(format!("it has more than {} subschemas", limits::SUBSCHEMAS_MAX));
                }
                let cost = self.visit(schema, location, above)?;
                self.known.insert(key, Some(cost));
                cost
            }
        };
        if above + cost.depth > limits::SCHEMA_DEPTH_MAX {
            let max = limits::SCHEMA_DEPTH_MAX;
            return Err(format!("more than {max} subschemas nest on one value"));
        }
        Ok(cost)
    }

    fn visit(&mut self, schema: &'a Value, location: usize, above: usize) -> Result<Cost, String> {
        let mut cost =
            Cost { subschemas: 1, refusals: usize::from(schema == &Value::Bool(false)), depth: 1 };
        let Some(keywords) = schema.as_object() else { return Ok(cost) };
        if !std::ptr::eq(schema, self.root) && names_itself(keywords) {
            return Err("a subschema has an `$id`: only the whole schema may".to_owned());
        }
        // Checked first: the walk itself recurses as deep.
        if above >= limits::SCHEMA_DEPTH_MAX {
            return Ok(Cost { depth: 2, ..cost });
        }
        let mut below = vec![];
        for (keyword, value) in keywords {
            let location = location + 1 + keyword.len();
            self.spend_location(location)?;
            match keyword.as_str() {
                "$ref" => below.extend(self.referenced(value)?),
                "$dynamicRef" | "$recursiveRef" => {
                    return Err(format!("`{keyword}` is not supported: use `$ref`"));
                }
                "multipleOf" => check_divisor(value)?,
                "pattern" => self.found.patterns.extend(value.as_str()),
                "patternProperties" => {
                    let patterns = value.as_object().into_iter().flat_map(Map::keys);
                    let number = value.as_object().map_or(0, Map::len);
                    self.found.name_patterns = self.found.name_patterns.max(number);
                    self.found.patterns.extend(patterns.map(String::as_str));
                }
                _ => {}
            }
            let schemas = subschemas(keyword, value).into_iter();
            let schemas = schemas.map(|(schema, bytes)| (schema, location + bytes));
            if is_on_the_value(keyword) {
                below.extend(schemas);
            } else {
                self.parts.extend(schemas);
            }
        }
        for (schema, location) in below {
            let below = self.measure(schema, location, above + 1)?;
            cost.subschemas = cost.subschemas.saturating_add(below.subschemas);
            cost.refusals = cost.refusals.saturating_add(below.refusals);
            cost.depth = cost.depth.max(below.depth + 1);
        }
        // These check the subschemas of the same value once more, to find what they cover.
        if keywords.contains_key("unevaluatedProperties")
            || keywords.contains_key("unevaluatedItems")
        {
            cost.subschemas = cost.subschemas.saturating_mul(2);
        }
        if cost.subschemas > limits::SCHEMA_ALTERNATIVES_MAX {
            let max = limits::SCHEMA_ALTERNATIVES_MAX;
            return Err(format!("more than {max} subschemas are checked against one value"));
        }
        Ok(cost)
    }

    fn spend_location(&mut self, bytes: usize) -> Result<(), String> {
        self.location_bytes = self.location_bytes.saturating_add(bytes);
        if self.location_bytes > limits::SCHEMA_LOCATIONS_BYTES_MAX {
            return Err("it has too many keywords below long names".to_owned());
        }
        Ok(())
    }

    /// The subschema that a `$ref` names, with the bytes of its location. `None` if the library reports the mistake.
    fn referenced(&self, reference: &'a Value) -> Result<Option<(&'a Value, usize)>, String> {
        let Some(reference) = reference.as_str() else { return Ok(None) };
        let Some(pointer) = reference.strip_prefix('#') else {
            return Err("it refers to an external schema".to_owned());
        };
        if !pointer.is_empty() && !pointer.starts_with('/') {
            return Err(format!("the reference `{reference}` is not a path: write `#/$defs/NAME`"));
        }
        let pointer = percent_decode_str(pointer).decode_utf8_lossy();
        let above = pointer.match_indices('/').skip(1);
        let mut above =
            above.filter_map(|(end, _)| self.root.pointer(pointer.get(..end)?)?.as_object());
        if above.any(names_itself) {
            return Err(format!("the reference `{reference}` leads into a schema with an `$id`"));
        }
        Ok(self.root.pointer(&pointer).map(|schema| (schema, pointer.len())))
    }
}

/// Checks that a division by `divisor` needs no numbers of hundreds of digits. The library reports what is not a number.
fn check_divisor(divisor: &Value) -> Result<(), String> {
    // A float is written with the fewest digits that denote it, and without an exponent.
    let written = divisor.as_f64().unwrap_or_default().to_string();
    match written.split_once('.') {
        Some((_, decimals)) if decimals.len() > DIVISOR_DECIMALS_MAX => {
            Err(format!("a `multipleOf` has more than {DIVISOR_DECIMALS_MAX} decimals"))
        }
        _ => Ok(()),
    }
}

/// Whether references inside of the schema are relative to itself.
fn names_itself(keywords: &Map<String, Value>) -> bool {
    ["$id", "id"].into_iter().any(|key| keywords.get(key).is_some_and(Value::is_string))
}
