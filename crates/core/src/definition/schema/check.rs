//! Checks a value against the rules of a schema, and counts the steps. A step takes a bounded time, so a budget of steps bounds
//! the whole, for every schema and every value.

use std::{cmp::Ordering, collections::HashMap, fmt::Write as _};

use serde_json::{Map, Value};

use super::{
    compile::{Counted, NodeId, Properties, Rule, Rules, Type, shortened},
    number::{self, Decimal},
};
use crate::limits;

/// The bytes of text that cost one step.
const BYTES_A_STEP: usize = 16;

/// The steps to remember a result. They bound the memory of all results.
const MEMO_STEPS: usize = 8;

/// The steps to match a short text with a pattern, beside those of the text: it takes as long as four rules.
const MATCH_STEPS: usize = 4;

/// The steps to divide an integer.
const DIVISION_STEPS: usize = 40;

/// The steps to read the digits of a float and divide it.
const FLOAT_DIVISION_STEPS: usize = 140;

/// The steps to divide if the quotient has hundreds of digits.
const LONG_DIVISION_STEPS: usize = 160;

/// The digits of the largest float.
const FLOAT_BYTES_MAX: usize = 309;

/// The maximum number of errors of a value in a message.
const REPORTED_ERRORS_MAX: usize = 5;

/// The steps are used up.
#[derive(Debug)]
struct Exhausted;

/// Whether a rule holds.
type Holds = Result<bool, Exhausted>;

/// Checks `value`. `name` is its name in error messages.
///
/// # Errors
/// The errors of the value, with locations, types and limits, but without values.
pub(super) fn check(rules: &Rules, name: &str, value: &Value) -> Result<(), String> {
    let steps = limits::SCHEMA_STEPS_MAX;
    let mut check = Check { rules, steps, known: HashMap::new(), errors: vec![], more: 0 };
    let at = At { above: None, segment: Segment::Root(name) };
    let exhausted = check.node(0, value, &at, true).is_err();
    let mut text = check.errors.join("; ");
    match (text.is_empty(), exhausted) {
        (true, false) => return Ok(()),
        (true, true) => {
            return Err(format!(
                "{name}: it takes more than {steps} steps to validate against the schema"
            ));
        }
        (false, true) => text.push_str("; and more"),
        (false, false) if check.more > 0 => {
            let _ = write!(text, "; and {} more", check.more);
        }
        (false, false) => {}
    }
    Err(text)
}

/// The place of a value in the whole.
#[derive(Clone, Copy)]
struct At<'a> {
    above: Option<&'a At<'a>>,
    segment: Segment<'a>,
}

#[derive(Clone, Copy)]
enum Segment<'a> {
    Root(&'a str),
    Name(&'a str),
    Index(usize),
}

impl<'a> At<'a> {
    fn below(&'a self, segment: Segment<'a>) -> At<'a> {
        At { above: Some(self), segment }
    }

    fn write(&self, to: &mut String) {
        if let Some(above) = self.above {
            above.write(to);
            to.push('.');
        }
        match self.segment {
            Segment::Root(name) => to.push_str(name),
            Segment::Name(name) => to.extend(name.chars().take(limits::NAME_CHARS_MAX)),
            Segment::Index(index) => {
                let _ = write!(to, "{index}");
            }
        }
    }
}

struct Check<'a> {
    rules: &'a Rules,
    /// How many are left.
    steps: usize,
    /// What is known of references to subschemas, by the address of the value. Without it, alternatives that all contain the same
    /// reference would be checked again and again, twice as often on each level of the value.
    known: HashMap<(NodeId, *const Value), bool>,
    errors: Vec<String>,
    /// The errors that were not described.
    more: usize,
}

impl<'a> Check<'a> {
    fn spend(&mut self, steps: usize) -> Result<(), Exhausted> {
        self.steps = self.steps.checked_sub(steps).ok_or(Exhausted)?;
        Ok(())
    }

    /// Spends the steps to read `text` once.
    fn spend_text(&mut self, text: &str) -> Result<(), Exhausted> {
        self.spend(1 + text.len() / BYTES_A_STEP)
    }

    /// Checks a value against a subschema. With `report`, describes all errors; without it, ends at the first one.
    fn node(&mut self, id: NodeId, value: &Value, at: &At<'_>, report: bool) -> Holds {
        self.spend(1)?;
        let rules = self.rules;
        let mut holds = true;
        for rule in rules.nodes.get(id).into_iter().flatten() {
            self.spend(1)?;
            holds &= self.rule(rule, value, at, report)?;
            if !holds && !report {
                break;
            }
        }
        Ok(holds)
    }

    /// The same for several subschemas of one value.
    fn all(&mut self, ids: &[NodeId], value: &Value, at: &At<'_>, report: bool) -> Holds {
        let mut holds = true;
        for id in ids {
            holds &= self.node(*id, value, at, report)?;
            if !holds && !report {
                break;
            }
        }
        Ok(holds)
    }

    /// How many of the subschemas the value matches, at most `max`.
    fn matches(
        &mut self,
        ids: &[NodeId],
        value: &Value,
        at: &At<'_>,
        max: usize,
    ) -> Result<usize, Exhausted> {
        let mut matches = 0;
        for id in ids {
            matches += usize::from(self.node(*id, value, at, false)?);
            if matches == max {
                break;
            }
        }
        Ok(matches)
    }

    fn reference(&mut self, id: NodeId, value: &Value, at: &At<'_>, report: bool) -> Holds {
        if !value.is_object() && !value.is_array() {
            return self.node(id, value, at, report);
        }
        let key = (id, std::ptr::from_ref(value));
        match self.known.get(&key) {
            Some(holds) if *holds || !report => return Ok(*holds),
            _ => {}
        }
        self.spend(MEMO_STEPS)?;
        let holds = self.node(id, value, at, report)?;
        self.known.insert(key, holds);
        Ok(holds)
    }

    /// Returns whether `holds`. Describes the error if not, and if `report`.
    fn leaf(
        &mut self,
        holds: bool,
        at: &At<'_>,
        report: bool,
        error: impl FnOnce() -> String,
    ) -> Holds {
        if !holds && report {
            if self.errors.len() < REPORTED_ERRORS_MAX {
                let mut text = String::new();
                at.write(&mut text);
                let _ = write!(text, ": {}", error());
                self.errors.push(text);
            } else {
                self.more += 1;
            }
        }
        Ok(holds)
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the other rules are those of one type of value"
    )]
    fn rule(&mut self, rule: &'a Rule, value: &Value, at: &At<'_>, report: bool) -> Holds {
        match rule {
            Rule::Never => {
                self.leaf(false, at, report, || "False schema does not allow it".to_owned())
            }
            Rule::Types(types) => {
                let holds = types.iter().any(|known| is_of(value, *known));
                self.leaf(holds, at, report, || wrong_type(types))
            }
            Rule::OneOfValues(values) => {
                let mut holds = false;
                for expected in values {
                    holds = holds || self.equal(value, expected)?;
                }
                self.leaf(holds, at, report, || not_a_value(values))
            }
            Rule::Reference(schema) => self.reference(*schema, value, at, report),
            Rule::AllOf(schemas) => self.all(schemas, value, at, report),
            Rule::AnyOf(schemas) => {
                let holds = self.matches(schemas, value, at, 1)? == 1;
                self.leaf(holds, at, report, || no_alternative("anyOf"))
            }
            Rule::OneOf(schemas) => {
                let matches = self.matches(schemas, value, at, 2)?;
                self.leaf(matches == 1, at, report, || match matches {
                    0 => no_alternative("oneOf"),
                    _ => "it is valid under more than one of the schemas listed in the 'oneOf' keyword".to_owned(),
                })
            }
            Rule::Not(schema) => {
                let holds = !self.node(*schema, value, at, false)?;
                self.leaf(holds, at, report, || "it is what 'not' does not allow".to_owned())
            }
            Rule::If { condition, then, otherwise } => {
                let branch =
                    if self.node(*condition, value, at, false)? { then } else { otherwise };
                branch.map_or(Ok(true), |branch| self.node(branch, value, at, report))
            }
            Rule::Length(counted, range) => {
                let Some(length) = self.length(*counted, value)? else { return Ok(true) };
                let holds = (range.min..=range.max).contains(&length);
                self.leaf(holds, at, report, || {
                    wrong_length(*counted, length, range.min, range.max)
                })
            }
            _ => match value {
                Value::Number(number) => self.number(rule, number, at, report),
                Value::String(text) => self.text(rule, text, at, report),
                Value::Array(items) => self.array(rule, items, at, report),
                Value::Object(members) => self.object(rule, value, members, at, report),
                Value::Null | Value::Bool(_) => Ok(true),
            },
        }
    }

    fn length(&mut self, counted: Counted, value: &Value) -> Result<Option<u64>, Exhausted> {
        let length = match (counted, value) {
            (Counted::Characters, Value::String(text)) => {
                self.spend_text(text)?;
                text.chars().count()
            }
            (Counted::Items, Value::Array(items)) => items.len(),
            (Counted::Properties, Value::Object(members)) => members.len(),
            _ => return Ok(None),
        };
        Ok(u64::try_from(length).ok())
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "the other rules say nothing about numbers")]
    fn number(
        &mut self,
        rule: &'a Rule,
        value: &serde_json::Number,
        at: &At<'_>,
        report: bool,
    ) -> Holds {
        match rule {
            Rule::Minimum { limit, exclusive } => {
                let order = number::compare(value, limit);
                let holds = order == Ordering::Greater || (order == Ordering::Equal && !exclusive);
                let or_equal = if *exclusive { "or equal to " } else { "" };
                self.leaf(holds, at, report, || {
                    format!("it is less than {or_equal}the minimum of {limit}")
                })
            }
            Rule::Maximum { limit, exclusive } => {
                let order = number::compare(value, limit);
                let holds = order == Ordering::Less || (order == Ordering::Equal && !exclusive);
                let or_equal = if *exclusive { "or equal to " } else { "" };
                self.leaf(holds, at, report, || {
                    format!("it is greater than {or_equal}the maximum of {limit}")
                })
            }
            Rule::MultipleOf { divisor, written } => {
                let is_float = value.is_f64();
                let value = Decimal::of(value);
                let is_long = value.is_some_and(|value| value.has_long_quotient(*divisor));
                self.spend(match (is_long, is_float) {
                    (true, _) => LONG_DIVISION_STEPS,
                    (false, true) => FLOAT_DIVISION_STEPS,
                    (false, false) => DIVISION_STEPS,
                })?;
                let holds = value.is_some_and(|value| value.is_multiple_of(*divisor));
                self.leaf(holds, at, report, || format!("it is not a multiple of {written}"))
            }
            _ => Ok(true),
        }
    }

    fn text(&mut self, rule: &'a Rule, text: &str, at: &At<'_>, report: bool) -> Holds {
        let Rule::Pattern(pattern) = rule else { return Ok(true) };
        self.spend(MATCH_STEPS)?;
        self.spend_text(text)?;
        let holds = pattern.is_match(text);
        self.leaf(holds, at, report, || "it does not match the pattern".to_owned())
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "the other rules say nothing about lists")]
    fn array(&mut self, rule: &'a Rule, items: &[Value], at: &At<'_>, report: bool) -> Holds {
        match rule {
            Rule::UniqueItems => {
                let holds = self.is_unique(items)?;
                self.leaf(holds, at, report, || "it has non-unique elements".to_owned())
            }
            Rule::PrefixItems(schemas) => {
                let each = items.iter().zip(schemas).enumerate();
                self.each(
                    each.map(|(index, (item, id))| (*id, item, Segment::Index(index))),
                    at,
                    report,
                )
            }
            Rule::Items { from, schema } => {
                let each = items.iter().enumerate().skip(*from);
                self.each(
                    each.map(|(index, item)| (*schema, item, Segment::Index(index))),
                    at,
                    report,
                )
            }
            Rule::Contains { schema, range } => {
                let mut matches = 0;
                for (index, item) in items.iter().enumerate() {
                    let at = at.below(Segment::Index(index));
                    matches += u64::from(self.node(*schema, item, &at, false)?);
                }
                let holds = (range.min..=range.max).contains(&matches);
                self.leaf(holds, at, report, || {
                    format!("{matches} of its elements match 'contains'")
                })
            }
            _ => Ok(true),
        }
    }

    /// Checks parts of a value, each against a subschema.
    fn each<'b>(
        &mut self,
        parts: impl Iterator<Item = (NodeId, &'b Value, Segment<'b>)>,
        at: &At<'_>,
        report: bool,
    ) -> Holds {
        let mut holds = true;
        for (id, part, segment) in parts {
            // The borrow of the place ends before that of the part.
            let at = At { above: Some(at), segment };
            holds &= self.node(id, part, &at, report)?;
            if !holds && !report {
                break;
            }
        }
        Ok(holds)
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "the other rules say nothing about objects")]
    fn object(
        &mut self,
        rule: &'a Rule,
        value: &Value,
        members: &Map<String, Value>,
        at: &At<'_>,
        report: bool,
    ) -> Holds {
        match rule {
            Rule::Properties(properties) => self.properties(properties, members, at, report),
            Rule::PropertyNames(schema) => {
                let mut holds = true;
                for name in members.keys() {
                    self.spend_text(name)?;
                    let text = Value::String(name.clone());
                    holds &= self.node(*schema, &text, at, report)?;
                }
                Ok(holds)
            }
            Rule::Required(names) => self.required(names, members, at, report),
            Rule::DependentRequired(names) => {
                let mut holds = true;
                for (name, names) in names {
                    self.spend_text(name)?;
                    if members.contains_key(name) {
                        holds &= self.required(names, members, at, report)?;
                    }
                }
                Ok(holds)
            }
            Rule::DependentSchemas(schemas) => {
                let mut holds = true;
                for (name, schema) in schemas {
                    self.spend_text(name)?;
                    if members.contains_key(name) {
                        holds &= self.node(*schema, value, at, report)?;
                    }
                }
                Ok(holds)
            }
            _ => Ok(true),
        }
    }

    fn required(
        &mut self,
        names: &[String],
        members: &Map<String, Value>,
        at: &At<'_>,
        report: bool,
    ) -> Holds {
        let mut holds = true;
        for name in names {
            self.spend_text(name)?;
            let is_there = members.contains_key(name);
            let missing = || format!("{} is a required property", shortened(&name.as_str().into()));
            holds &= self.leaf(is_there, at, report, missing)?;
        }
        Ok(holds)
    }

    fn properties(
        &mut self,
        properties: &'a Properties,
        members: &Map<String, Value>,
        at: &At<'_>,
        report: bool,
    ) -> Holds {
        let mut holds = true;
        for (name, value) in members {
            self.spend_text(name)?;
            let below = at.below(Segment::Name(name));
            let named = properties.named.get(name);
            let mut is_known = named.is_some();
            if let Some(schema) = named {
                holds &= self.node(*schema, value, &below, report)?;
            }
            for (pattern, schema) in &properties.patterns {
                self.spend(MATCH_STEPS)?;
                self.spend_text(name)?;
                if pattern.is_match(name) {
                    is_known = true;
                    holds &= self.node(*schema, value, &below, report)?;
                }
            }
            if let (false, Some(schema)) = (is_known, properties.others) {
                holds &= self.other_property(schema, name, value, at, report)?;
            }
            if !holds && !report {
                break;
            }
        }
        Ok(holds)
    }

    fn other_property(
        &mut self,
        schema: NodeId,
        name: &str,
        value: &Value,
        at: &At<'_>,
        report: bool,
    ) -> Holds {
        let is_false =
            matches!(self.rules.nodes.get(schema).map(Vec::as_slice), Some([Rule::Never]));
        if !is_false {
            return self.node(schema, value, &at.below(Segment::Name(name)), report);
        }
        self.leaf(false, at, report, || {
            let name: String = name.chars().take(limits::NAME_CHARS_MAX).collect();
            format!("Additional properties are not allowed ('{name}' was unexpected)")
        })
    }

    /// Whether the values are equal. Numbers are by value.
    fn equal(&mut self, value: &Value, expected: &Value) -> Holds {
        self.spend(1)?;
        match (value, expected) {
            (Value::Number(a), Value::Number(b)) => Ok(number::compare(a, b) == Ordering::Equal),
            (Value::String(a), Value::String(b)) => {
                if a.len() != b.len() {
                    return Ok(false);
                }
                self.spend_text(a)?;
                Ok(a == b)
            }
            (Value::Array(a), Value::Array(b)) => {
                let mut holds = a.len() == b.len();
                for (a, b) in a.iter().zip(b) {
                    holds = holds && self.equal(a, b)?;
                }
                Ok(holds)
            }
            (Value::Object(a), Value::Object(b)) => {
                let mut holds = a.len() == b.len();
                for (name, a) in a {
                    if !holds {
                        break;
                    }
                    self.spend_text(name)?;
                    holds = match b.get(name) {
                        Some(b) => self.equal(a, b)?,
                        None => false,
                    };
                }
                Ok(holds)
            }
            (a, b) => Ok(a == b),
        }
    }

    /// Whether no two elements are equal. Compares texts that are the same for equal values, so that the time is proportional to the
    /// size of the elements.
    fn is_unique(&mut self, items: &[Value]) -> Holds {
        let mut seen = std::collections::HashSet::new();
        for item in items {
            self.spend_all(item)?;
            let mut text = String::new();
            write_canonical(item, &mut text);
            if !seen.insert(text) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Spends the steps to read the whole `value`.
    fn spend_all(&mut self, value: &Value) -> Result<(), Exhausted> {
        match value {
            Value::Number(number) if number.is_f64() => {
                self.spend(1 + FLOAT_BYTES_MAX / BYTES_A_STEP)
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => self.spend(2),
            Value::String(text) => self.spend_text(text),
            Value::Array(items) => {
                self.spend(2)?;
                items.iter().try_for_each(|item| self.spend_all(item))
            }
            Value::Object(members) => {
                self.spend(2)?;
                members.iter().try_for_each(|(name, value)| {
                    self.spend_text(name)?;
                    self.spend_all(value)
                })
            }
        }
    }
}

fn is_of(value: &Value, expected: Type) -> bool {
    match expected {
        Type::Array => value.is_array(),
        Type::Boolean => value.is_boolean(),
        Type::Integer => value.as_number().is_some_and(|number| {
            !number.is_f64() || number.as_f64().is_some_and(|float| float.fract() == 0.0)
        }),
        Type::Null => value.is_null(),
        Type::Number => value.is_number(),
        Type::Object => value.is_object(),
        Type::String => value.is_string(),
    }
}

fn wrong_type(types: &[Type]) -> String {
    let names: Vec<_> = types.iter().map(|known| format!("\"{}\"", known.name())).collect();
    let s = if names.len() == 1 { "" } else { "s" };
    format!("it is not of type{s} {}", names.join(", "))
}

fn not_a_value(values: &[Value]) -> String {
    match values {
        [value] => format!("{} was expected", shortened(value)),
        values if values.len() <= REPORTED_ERRORS_MAX => {
            let values: Vec<_> = values.iter().map(shortened).collect();
            format!("it is not one of {}", values.join(", "))
        }
        values => format!("it is not one of the {} values of 'enum'", values.len()),
    }
}

fn no_alternative(keyword: &str) -> String {
    format!("it is not valid under any of the schemas listed in the '{keyword}' keyword")
}

fn wrong_length(counted: Counted, length: u64, min: u64, max: u64) -> String {
    let (limit, is_less) = if length < min { (min, true) } else { (max, false) };
    let (unit, units) = match counted {
        Counted::Characters => ("character", "characters"),
        Counted::Items => ("item", "items"),
        Counted::Properties => ("property", "properties"),
    };
    let unit = if limit == 1 { unit } else { units };
    match (counted, is_less) {
        (Counted::Characters, true) => format!("it is shorter than {limit} {unit}"),
        (Counted::Characters, false) => format!("it is longer than {limit} {unit}"),
        (Counted::Items | Counted::Properties, true) => format!("it has less than {limit} {unit}"),
        (Counted::Items | Counted::Properties, false) => format!("it has more than {limit} {unit}"),
    }
}

/// Writes a text that is the same for equal values: keys are sorted and follow their lengths, and `1.0` is `1`.
fn write_canonical(value: &Value, to: &mut String) {
    match value {
        Value::Array(items) => {
            to.push('[');
            for item in items {
                write_canonical(item, to);
                to.push(',');
            }
            to.push(']');
        }
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_unstable_by_key(|(key, _)| *key);
            to.push('{');
            for (key, value) in members {
                let _ = write!(to, "{}:{key}", key.len());
                write_canonical(value, to);
                to.push(',');
            }
            to.push('}');
        }
        // Every `f64` from 2^53 on is an integer, and this format writes all its digits.
        Value::Number(number) if number.is_f64() => {
            let number = number.as_f64().unwrap_or_default();
            let _ = write!(to, "{}", if number == 0.0 { 0.0 } else { number });
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            let _ = write!(to, "{value}");
        }
    }
}
