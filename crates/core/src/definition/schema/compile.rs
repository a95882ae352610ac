//! Compiles a JSON Schema into rules. The time and memory that this takes are proportional to the size of the schema.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use percent_encoding::percent_decode_str;
use serde_json::{Map, Number, Value};

use super::{number::Decimal, patterns::Patterns};
use crate::limits;

/// The value of `$schema`: the draft of the schemas that are accepted and generated.
pub(crate) const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

/// Keywords of JSON Schema that are not supported, and what to write instead. All other unknown keywords are annotations.
const REFUSED: [(&str, &str); 11] = [
    ("$anchor", "write `$ref` as a path: `#/$defs/NAME`"),
    ("$dynamicAnchor", "use `$ref`"),
    ("$dynamicRef", "use `$ref`"),
    ("$recursiveAnchor", "use `$ref`"),
    ("$recursiveRef", "use `$ref`"),
    ("additionalItems", "use `prefixItems` and `items`"),
    ("dependencies", "use `dependentRequired` or `dependentSchemas`"),
    ("divisibleBy", "use `multipleOf`"),
    ("extends", "use `allOf`"),
    ("unevaluatedItems", "use `items: false`"),
    ("unevaluatedProperties", "list all properties, and use `additionalProperties: false`"),
];

/// The place of a subschema among [`Rules::nodes`].
pub(super) type NodeId = usize;

/// A compiled schema. The first node is the whole schema.
#[derive(Debug)]
pub(super) struct Rules {
    pub(super) nodes: Vec<Vec<Rule>>,
    pub(super) patterns: Patterns,
}

/// What one keyword demands.
#[derive(Debug)]
pub(super) enum Rule {
    /// The schema `false`.
    Never,
    Types(Vec<Type>),
    /// `enum` and `const`.
    OneOfValues(Vec<Value>),
    Minimum {
        limit: Number,
        exclusive: bool,
    },
    Maximum {
        limit: Number,
        exclusive: bool,
    },
    MultipleOf {
        divisor: Decimal,
        written: Number,
    },
    Length(Counted, Range),
    Pattern(Arc<regex::Regex>),
    UniqueItems,
    PrefixItems(Vec<NodeId>),
    /// The elements from a place on.
    Items {
        from: usize,
        schema: NodeId,
    },
    Contains {
        schema: NodeId,
        range: Range,
    },
    Properties(Properties),
    PropertyNames(NodeId),
    Required(Vec<String>),
    DependentRequired(BTreeMap<String, Vec<String>>),
    DependentSchemas(BTreeMap<String, NodeId>),
    /// `$ref`.
    Reference(NodeId),
    AllOf(Vec<NodeId>),
    AnyOf(Vec<NodeId>),
    OneOf(Vec<NodeId>),
    Not(NodeId),
    If {
        condition: NodeId,
        then: Option<NodeId>,
        otherwise: Option<NodeId>,
    },
}

/// What a length counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Counted {
    Characters,
    Items,
    Properties,
}

/// The smallest and the largest number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) min: u64,
    pub(super) max: u64,
}

/// `properties`, `patternProperties` and `additionalProperties`.
#[derive(Debug)]
pub(super) struct Properties {
    pub(super) named: HashMap<String, NodeId>,
    pub(super) patterns: Vec<(Arc<regex::Regex>, NodeId)>,
    /// The schema of all others.
    pub(super) others: Option<NodeId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    Array,
    Boolean,
    Integer,
    Null,
    Number,
    Object,
    String,
}

impl Type {
    const ALL: [(&'static str, Self); 7] = [
        ("array", Self::Array),
        ("boolean", Self::Boolean),
        ("integer", Self::Integer),
        ("null", Self::Null),
        ("number", Self::Number),
        ("object", Self::Object),
        ("string", Self::String),
    ];

    pub(super) fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, known)| *known == self).map_or("", |(name, _)| name)
    }
}

/// Compiles `schema`.
///
/// # Errors
/// It is not a schema, exceeds a limit, or uses what is not supported. The text begins with the keyword's place, such as
/// `/properties/a/type: `, unless that is the root.
pub(super) fn compile(schema: &Value) -> Result<Rules, String> {
    let mut compiler = Compiler {
        root: schema,
        nodes: vec![],
        places: vec![],
        known: HashMap::new(),
        patterns: Patterns::default(),
    };
    compiler.node(schema, (0, "", ""))?;
    let mut next = 0;
    while let Some(place) = compiler.places.get(next).copied() {
        let rules = compiler.rules(next, place.schema)?;
        compiler.nodes.push(rules);
        next += 1;
    }
    let rules = Rules { nodes: compiler.nodes, patterns: compiler.patterns };
    Depths::new(&rules).check()?;
    Ok(rules)
}

/// Where a subschema is: the schema that contains it, the keyword, and the name or index within its value.
type Within<'a> = (NodeId, &'a str, &'a str);

#[derive(Clone, Copy)]
struct Place<'a> {
    schema: &'a Value,
    within: Within<'a>,
}

struct Compiler<'a> {
    root: &'a Value,
    nodes: Vec<Vec<Rule>>,
    /// All subschemas that were found. Those behind the end of `nodes` are still to be compiled.
    places: Vec<Place<'a>>,
    /// The nodes of subschemas, by address.
    known: HashMap<*const Value, NodeId>,
    patterns: Patterns,
}

impl<'a> Compiler<'a> {
    /// The node of a subschema.
    fn node(&mut self, schema: &'a Value, within: Within<'a>) -> Result<NodeId, String> {
        if let Some(id) = self.known.get(&std::ptr::from_ref(schema)) {
            return Ok(*id);
        }
        if self.places.len() >= limits::SUBSCHEMAS_MAX {
            return Err(format!("it has more than {} subschemas", limits::SUBSCHEMAS_MAX));
        }
        self.places.push(Place { schema, within });
        self.known.insert(std::ptr::from_ref(schema), self.places.len() - 1);
        Ok(self.places.len() - 1)
    }

    fn rules(&mut self, id: NodeId, schema: &'a Value) -> Result<Vec<Rule>, String> {
        if let Value::Bool(accepts) = schema {
            return Ok(if *accepts { vec![] } else { vec![Rule::Never] });
        }
        let Some(keywords) = schema.as_object() else {
            return Err(self.at(id, "", "a schema is an object, `true` or `false`"));
        };
        let mut rules = vec![];
        for (keyword, value) in keywords {
            if let Some((_, advice)) = REFUSED.iter().find(|(refused, _)| refused == keyword) {
                return Err(self.at(id, "", &format!("`{keyword}` is not supported: {advice}")));
            }
            let rule = self.rule(id, keywords, keyword, value);
            rules.extend(rule.map_err(|problem| match problem {
                Problem::Here(text) => self.at(id, keyword, &text),
                Problem::Whole(text) => text,
            })?);
        }
        rules.extend(self.properties(id, keywords).map_err(|problem| match problem {
            Problem::Here(text) => self.at(id, "", &text),
            Problem::Whole(text) => text,
        })?);
        Ok(rules)
    }

    fn rule(
        &mut self,
        id: NodeId,
        keywords: &'a Map<String, Value>,
        keyword: &'a str,
        value: &'a Value,
    ) -> Result<Option<Rule>, Problem> {
        let sibling = |name: &'a str| keywords.get(name).map(|value| (name, value));
        let needs = |other: &str| match keywords.contains_key(other) {
            true => Ok(None),
            false => Err(here(&format!("it has no effect without `{other}`"))),
        };
        Ok(Some(match keyword {
            "$schema" if text(value)?.trim_end_matches('#') == DIALECT => return Ok(None),
            "$schema" => return Err(here(&format!("write `{DIALECT}`, or leave it out"))),
            "$id" if id != 0 => return Err(here("only the whole schema may have an `$id`")),
            "$defs" | "definitions" => {
                return self.named_schemas(id, keyword, value).map(|_| None);
            }
            "then" | "else" => return needs("if"),
            "minContains" | "maxContains" => return needs("contains"),
            "$ref" => Rule::Reference(self.reference(id, value)?),
            "type" => Rule::Types(types(value)?),
            "enum" => Rule::OneOfValues(list(value)?.clone()),
            "const" => Rule::OneOfValues(vec![value.clone()]),
            "minimum" => Rule::Minimum { limit: number(value)?, exclusive: false },
            "exclusiveMinimum" => Rule::Minimum { limit: number(value)?, exclusive: true },
            "maximum" => Rule::Maximum { limit: number(value)?, exclusive: false },
            "exclusiveMaximum" => Rule::Maximum { limit: number(value)?, exclusive: true },
            "multipleOf" => multiple_of(number(value)?)?,
            "minLength" => Rule::Length(Counted::Characters, Range::from(count(value)?)),
            "maxLength" => Rule::Length(Counted::Characters, Range::up_to(count(value)?)),
            "minItems" => Rule::Length(Counted::Items, Range::from(count(value)?)),
            "maxItems" => Rule::Length(Counted::Items, Range::up_to(count(value)?)),
            "minProperties" => Rule::Length(Counted::Properties, Range::from(count(value)?)),
            "maxProperties" => Rule::Length(Counted::Properties, Range::up_to(count(value)?)),
            "pattern" => Rule::Pattern(self.patterns.compile(text(value)?)?),
            "uniqueItems" => match value.as_bool() {
                Some(true) => Rule::UniqueItems,
                Some(false) => return Ok(None),
                None => return Err(here("write `true` or `false`")),
            },
            "prefixItems" => Rule::PrefixItems(self.list_of_schemas(id, keyword, value)?),
            "items" => {
                let prefix = keywords.get("prefixItems").and_then(Value::as_array);
                if value.is_array() {
                    return Err(here("a list is not supported: use `prefixItems`"));
                }
                let schema = self.node(value, (id, keyword, ""))?;
                Rule::Items { from: prefix.map_or(0, Vec::len), schema }
            }
            "contains" => {
                let bound = |name, default| keywords.get(name).map_or(Ok(default), count);
                let range =
                    Range { min: bound("minContains", 1)?, max: bound("maxContains", u64::MAX)? };
                Rule::Contains { schema: self.node(value, (id, keyword, ""))?, range }
            }
            "propertyNames" => Rule::PropertyNames(self.node(value, (id, keyword, ""))?),
            "required" => Rule::Required(texts(value)?),
            "dependentRequired" => {
                let names =
                    object(value)?.iter().map(|(name, names)| Ok((name.clone(), texts(names)?)));
                Rule::DependentRequired(names.collect::<Result<_, Problem>>()?)
            }
            "dependentSchemas" => {
                let schemas = self.named_schemas(id, keyword, value)?;
                Rule::DependentSchemas(schemas.into_iter().collect())
            }
            "allOf" => Rule::AllOf(self.list_of_schemas(id, keyword, value)?),
            "anyOf" => Rule::AnyOf(self.list_of_schemas(id, keyword, value)?),
            "oneOf" => Rule::OneOf(self.list_of_schemas(id, keyword, value)?),
            "not" => Rule::Not(self.node(value, (id, keyword, ""))?),
            "if" => {
                let condition = self.node(value, (id, keyword, ""))?;
                let mut branch = |name| match sibling(name) {
                    Some((name, value)) => self.node(value, (id, name, "")).map(Some),
                    None => Ok(None),
                };
                Rule::If { condition, then: branch("then")?, otherwise: branch("else")? }
            }
            _ => return Ok(None),
        }))
    }

    fn properties(
        &mut self,
        id: NodeId,
        keywords: &'a Map<String, Value>,
    ) -> Result<Option<Rule>, Problem> {
        let [named, patterns, others] = ["properties", "patternProperties", "additionalProperties"]
            .map(|key| keywords.get(key));
        if named.is_none() && patterns.is_none() && others.is_none() {
            return Ok(None);
        }
        let mut schemas = |keyword, value: Option<&'a Value>| match value {
            Some(value) => self.named_schemas(id, keyword, value),
            None => Ok(vec![]),
        };
        let named = schemas("properties", named)?.into_iter().collect();
        let by_pattern = schemas("patternProperties", patterns)?;
        let patterns = by_pattern
            .into_iter()
            .map(|(pattern, schema)| Ok((self.patterns.compile(&pattern)?, schema)));
        let patterns = patterns.collect::<Result<_, Problem>>()?;
        let others = others.map(|value| self.node(value, (id, "additionalProperties", "")));
        Ok(Some(Rule::Properties(Properties { named, patterns, others: others.transpose()? })))
    }

    fn list_of_schemas(
        &mut self,
        id: NodeId,
        keyword: &'a str,
        value: &'a Value,
    ) -> Result<Vec<NodeId>, Problem> {
        let schemas = list(value)?.iter().map(|schema| self.node(schema, (id, keyword, "…")));
        Ok(schemas.collect::<Result<_, String>>()?)
    }

    fn named_schemas(
        &mut self,
        id: NodeId,
        keyword: &'a str,
        value: &'a Value,
    ) -> Result<Vec<(String, NodeId)>, Problem> {
        let schemas = object(value)?.iter();
        let schemas = schemas
            .map(|(name, schema)| Ok((name.clone(), self.node(schema, (id, keyword, name))?)));
        Ok(schemas.collect::<Result<_, String>>()?)
    }

    /// The subschema that a `$ref` names.
    fn reference(&mut self, id: NodeId, reference: &'a Value) -> Result<NodeId, Problem> {
        let reference = text(reference)?;
        let whole = |text| Err(Problem::Whole(text));
        let Some(pointer) = reference.strip_prefix('#') else {
            return whole(format!(
                "the reference `{reference}` is not one within the schema: write `#` or `#/$defs/NAME`"
            ));
        };
        if !pointer.is_empty() && !pointer.starts_with('/') {
            return whole(format!(
                "the reference `{reference}` is not a path: write `#/$defs/NAME`"
            ));
        }
        let Ok(pointer) = percent_decode_str(pointer).decode_utf8() else {
            return whole(format!("the reference `{reference}` is not UTF-8"));
        };
        let Some(schema) = self.root.pointer(&pointer) else {
            return whole(format!("the reference `{reference}` leads nowhere"));
        };
        let above = pointer.match_indices('/').skip(1);
        let mut above =
            above.filter_map(|(end, _)| self.root.pointer(pointer.get(..end)?)?.as_object());
        if above.any(|schema| schema.get("$id").is_some_and(Value::is_string)) {
            return whole(format!("the reference `{reference}` leads into a schema with an `$id`"));
        }
        Ok(self.node(schema, (id, "$ref", ""))?)
    }

    /// `text` with the place of a keyword before it.
    fn at(&self, id: NodeId, keyword: &str, text: &str) -> String {
        let mut path = if keyword.is_empty() { String::new() } else { format!("/{keyword}") };
        let mut id = id;
        while id != 0 && path.len() < limits::NAME_CHARS_MAX {
            let Some(Place { within: (above, keyword, name), .. }) = self.places.get(id) else {
                break;
            };
            let name = if name.is_empty() { String::new() } else { format!("/{name}") };
            path = format!("/{keyword}{name}{path}");
            id = *above;
        }
        let path: String = path.chars().take(limits::NAME_CHARS_MAX).collect();
        if path.is_empty() { text.to_owned() } else { format!("{path}: {text}") }
    }
}

/// What is wrong with a schema.
enum Problem {
    /// With the value of the keyword that is being compiled.
    Here(String),
    /// With the schema as a whole.
    Whole(String),
}

impl From<String> for Problem {
    fn from(text: String) -> Self {
        Self::Whole(text)
    }
}

fn here(text: &str) -> Problem {
    Problem::Here(text.to_owned())
}

impl Range {
    fn from(min: u64) -> Self {
        Self { min, max: u64::MAX }
    }

    fn up_to(max: u64) -> Self {
        Self { min: 0, max }
    }
}

fn list(value: &Value) -> Result<&Vec<Value>, Problem> {
    let list = value.as_array().filter(|list| !list.is_empty());
    list.ok_or_else(|| here("it is not a list of at least one value"))
}

fn object(value: &Value) -> Result<&Map<String, Value>, Problem> {
    value.as_object().ok_or_else(|| here("it is not an object"))
}

fn text(value: &Value) -> Result<&str, Problem> {
    value.as_str().ok_or_else(|| here("it is not a text"))
}

fn texts(value: &Value) -> Result<Vec<String>, Problem> {
    let list = value.as_array().ok_or_else(|| here("it is not a list of texts"))?;
    let mut seen = HashSet::new();
    let names = list.iter().map(|name| match text(name)? {
        name if seen.insert(name) => Ok(name.to_owned()),
        name => Err(here(&format!("{} is twice in the list", shortened(&name.into())))),
    });
    names.collect()
}

fn number(value: &Value) -> Result<Number, Problem> {
    value.as_number().cloned().ok_or_else(|| here("it is not a number"))
}

fn count(value: &Value) -> Result<u64, Problem> {
    let number = value.as_number().and_then(Decimal::of).and_then(Decimal::to_u64);
    number.ok_or_else(|| here("it is not a whole number of at least 0"))
}

fn multiple_of(written: Number) -> Result<Rule, Problem> {
    match Decimal::of(&written) {
        Some(divisor) if divisor.is_positive() => Ok(Rule::MultipleOf { divisor, written }),
        _ => Err(here("it is not a number over 0")),
    }
}

fn types(value: &Value) -> Result<Vec<Type>, Problem> {
    let known = |value: &Value| {
        let found = Type::ALL.iter().find(|(name, _)| Some(*name) == value.as_str());
        found.map(|(_, found)| *found).ok_or_else(|| {
            let names = Type::ALL.map(|(name, _)| name).join(", ");
            here(&format!("{} is not one of the types {names}", shortened(value)))
        })
    };
    let Some(names) = value.as_array() else { return Ok(vec![known(value)?]) };
    // A list of thousands of types would be searched for each value.
    let mut types = Vec::new();
    for found in names.iter().map(known) {
        let found = found?;
        if types.contains(&found) {
            return Err(here("the types of a list must differ"));
        }
        types.push(found);
    }
    if types.is_empty() {
        return Err(here("a list of types must name at least one"));
    }
    Ok(types)
}

/// The JSON of a value, without what is too long for a message.
pub(super) fn shortened(value: &Value) -> String {
    let text = value.to_string();
    if text.len() <= limits::NAME_CHARS_MAX {
        return text;
    }
    text.chars().take(limits::NAME_CHARS_MAX).chain(['…']).collect()
}

/// How deep subschemas nest that are checked against one value.
struct Depths<'a> {
    rules: &'a Rules,
    /// By node. `None` while it is visited.
    known: HashMap<NodeId, Option<usize>>,
}

impl<'a> Depths<'a> {
    fn new(rules: &'a Rules) -> Self {
        Self { rules, known: HashMap::new() }
    }

    fn check(mut self) -> Result<(), String> {
        (0..self.rules.nodes.len()).try_for_each(|id| self.depth(id, 0).map(drop))
    }

    fn depth(&mut self, id: NodeId, above: usize) -> Result<usize, String> {
        let depth = match self.known.get(&id) {
            Some(Some(depth)) => *depth,
            Some(None) => {
                return Err(
                    "a schema refers to itself without a property or an item between".to_owned()
                );
            }
            // The walk itself recurses as deep.
            None if above >= limits::SCHEMA_DEPTH_MAX => 1,
            None => {
                self.known.insert(id, None);
                let mut deepest = 0;
                for rule in self.rules.nodes.get(id).into_iter().flatten() {
                    for below in rule.on_the_value() {
                        deepest = deepest.max(self.depth(below, above + 1)?);
                    }
                }
                self.known.insert(id, Some(deepest + 1));
                deepest + 1
            }
        };
        if above + depth > limits::SCHEMA_DEPTH_MAX {
            let max = limits::SCHEMA_DEPTH_MAX;
            return Err(format!("more than {max} subschemas nest on one value"));
        }
        Ok(depth)
    }
}

impl Rule {
    /// The subschemas that are checked against the same value, and not against parts of it.
    #[expect(clippy::wildcard_enum_match_arm, reason = "the other rules have none")]
    fn on_the_value(&self) -> Vec<NodeId> {
        match self {
            Self::AllOf(schemas) | Self::AnyOf(schemas) | Self::OneOf(schemas) => schemas.clone(),
            Self::Reference(schema) | Self::Not(schema) => vec![*schema],
            Self::If { condition, then, otherwise } => {
                [Some(*condition), *then, *otherwise].into_iter().flatten().collect()
            }
            Self::DependentSchemas(schemas) => schemas.values().copied().collect(),
            _ => vec![],
        }
    }
}
