//! The representation of JSON that the schema library reads while it validates: `serde_json` values whose every access spends from
//! a budget. When the budget is used up, each value looks like `null`, without members and elements. So the validation ends soon,
//! and its result is void.
//!
//! The budget belongs to the thread: the library passes no state of its caller on to the names of properties.

use std::{borrow::Cow, cell::Cell, collections::HashSet, fmt::Write as _};

use jsonschema::{
    json::{Array, Json, Node, NodeIdentity, Object, cmp},
    types::JsonType,
};
use serde_json::{Map, Number, Value};

/// The bytes of text that cost one step.
const BYTES_A_STEP: usize = 16;

thread_local! {
    static METER: Cell<Meter> = const { Cell::new(Meter { steps: 0, rates: Rates { child: 0, identity: 0, name: 0, path: false } }) };
}

/// The digits of the largest float.
const FLOAT_BYTES_MAX: usize = 309;

/// The steps to read a float from [`LONG_FLOATS_FROM`] on.
const LONG_FLOAT_STEPS: usize = 1000;

/// Below, the library divides by every `multipleOf` that is accepted in 128 bits, and else with numbers of hundreds of digits.
const LONG_FLOATS_FROM: f64 = 1e29;

/// What one validation may still spend, and what it pays.
#[derive(Debug, Clone, Copy)]
struct Meter {
    steps: usize,
    rates: Rates,
}

/// The costs that depend on the schema, in steps.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rates {
    /// The cost of one member or element: it pays for the subschemas that it is checked against without being read.
    pub(super) child: usize,
    /// The cost of following one recursive reference: the library searches the references in progress.
    pub(super) identity: usize,
    /// How often the name of a member may be read again: by each pattern of a `patternProperties`.
    pub(super) name: usize,
    /// Whether each access also pays for the length of the value's path, which each error has a copy of.
    pub(super) path: bool,
}

/// Runs `work` with a budget of `steps`. Returns `None` if it used them up.
pub(super) fn within<T>(steps: usize, rates: Rates, work: impl FnOnce() -> T) -> Option<T> {
    METER.set(Meter { steps, rates });
    let result = work();
    (METER.get().steps > 0).then_some(result)
}

/// Spends `steps`. Returns whether any are left.
fn spend(steps: usize) -> bool {
    let mut meter = METER.get();
    meter.steps = meter.steps.saturating_sub(steps);
    METER.set(meter);
    meter.steps > 0
}

/// The steps for `bytes` of text.
const fn text_steps(bytes: usize) -> usize {
    1 + bytes / BYTES_A_STEP
}

/// The steps to read a number.
fn number_steps(number: &Number) -> usize {
    let is_long = number.as_f64().is_some_and(|float| float.abs() >= LONG_FLOATS_FROM);
    if is_long { LONG_FLOAT_STEPS } else { 1 }
}

/// Spends the steps for a comparison of the whole `value`.
fn spend_on_all(value: &Value) -> bool {
    match value {
        Value::Number(number) if number.is_f64() => spend(text_steps(FLOAT_BYTES_MAX)),
        Value::Null | Value::Bool(_) | Value::Number(_) => spend(1),
        Value::String(text) => spend(text_steps(text.len())),
        Value::Array(items) => spend(1) && items.iter().all(spend_on_all),
        Value::Object(members) => {
            let mut members = members.iter();
            spend(1)
                && members.all(|(key, value)| spend(text_steps(key.len())) && spend_on_all(value))
        }
    }
}

/// `serde_json` values that spend the budget of [`within`].
#[derive(Debug)]
pub(super) struct Metered;

impl Json for Metered {
    type Node<'a> = MeteredValue<'a>;
    type PreparedKey = String;
    type StringBuffer = Value;

    fn prepare_key(key: &str) -> String {
        key.to_owned()
    }

    fn with_string_node<T>(
        buffer: &mut Value,
        string: &str,
        work: impl FnOnce(MeteredValue<'_>) -> T,
    ) -> T {
        *buffer = Value::String(string.to_owned());
        work(MeteredValue::new(buffer))
    }
}

/// One value.
#[derive(Debug, Clone, Copy)]
pub(super) struct MeteredValue<'a> {
    value: &'a Value,
    /// The bytes of the keys on the path to the value.
    path_bytes: usize,
}

impl<'a> MeteredValue<'a> {
    /// The root of a payload.
    pub(super) const fn new(value: &'a Value) -> Self {
        Self { value, path_bytes: 0 }
    }

    const fn child(&self, value: &'a Value, key_bytes: usize) -> Self {
        Self { value, path_bytes: self.path_bytes + 1 + key_bytes }
    }

    /// Spends `steps`. Returns the value, or null if no steps are left.
    fn spend(&self, steps: usize) -> &'a Value {
        let path = if METER.get().rates.path { self.path_bytes / BYTES_A_STEP } else { 0 };
        if spend(steps.saturating_mul(1 + path)) { self.value } else { &Value::Null }
    }

    /// Spends the steps for reading one member or element. Returns whether any are left.
    fn enter(&self) -> bool {
        self.spend(1 + METER.get().rates.child);
        METER.get().steps > 0
    }
}

impl<'a> Node<'a, Metered> for MeteredValue<'a> {
    type Object = MeteredObject<'a>;
    type Array = MeteredArray<'a>;
    type Number = &'a Number;

    fn as_object(&self) -> Option<MeteredObject<'a>> {
        let members = self.spend(1).as_object()?;
        Some(MeteredObject { node: *self, members })
    }

    fn as_array(&self) -> Option<MeteredArray<'a>> {
        let items = self.spend(1).as_array()?;
        Some(MeteredArray { node: *self, items })
    }

    fn as_string(&self) -> Option<Cow<'a, str>> {
        let bytes = self.value.as_str().map_or(0, str::len);
        self.spend(text_steps(bytes)).as_str().map(Cow::Borrowed)
    }

    fn as_number(&self) -> Option<&'a Number> {
        let steps = self.value.as_number().map_or(1, number_steps);
        self.spend(steps).as_number()
    }

    fn as_boolean(&self) -> Option<bool> {
        self.spend(1).as_bool()
    }

    fn is_null(&self) -> bool {
        self.spend(1).is_null()
    }

    fn json_type(&self) -> JsonType {
        JsonType::from(self.spend(1))
    }

    fn equals_value(&self, expected: &Value) -> bool {
        let may_be_equal = match (self.spend(1), expected) {
            (Value::String(own), Value::String(expected)) => {
                own.len() == expected.len() && spend(text_steps(own.len()))
            }
            (Value::Array(own), Value::Array(expected)) => {
                own.len() == expected.len() && spend_on_all(self.value)
            }
            (Value::Object(own), Value::Object(expected)) => {
                own.len() == expected.len() && spend_on_all(self.value)
            }
            (own, _) => !own.is_null() || self.value.is_null(),
        };
        may_be_equal && cmp::equal(self.value, expected)
    }

    /// Errors need no value, and those of alternatives would contain a copy each.
    fn to_value(&self) -> Cow<'a, Value> {
        Cow::Borrowed(&Value::Null)
    }

    fn identity(&self) -> Option<NodeIdentity> {
        spend(METER.get().rates.identity);
        Some(NodeIdentity::new(std::ptr::from_ref(self.value) as usize))
    }

    fn container_identity(&self) -> Option<NodeIdentity> {
        let is_container = self.value.is_object() || self.value.is_array();
        is_container.then(|| NodeIdentity::new(std::ptr::from_ref(self.value) as usize))
    }
}

/// The members of an object.
#[derive(Debug)]
pub(super) struct MeteredObject<'a> {
    node: MeteredValue<'a>,
    members: &'a Map<String, Value>,
}

impl<'a> Object<'a, Metered> for MeteredObject<'a> {
    type Node = MeteredValue<'a>;
    type MemberName = &'a str;
    type MembersIter = Box<dyn Iterator<Item = (&'a str, MeteredValue<'a>)> + 'a>;

    fn len(&self) -> usize {
        self.members.len()
    }

    fn get(&self, key: &String) -> Option<MeteredValue<'a>> {
        self.node.spend(text_steps(key.len()));
        let value = self.members.get(key)?;
        self.node.enter().then(|| self.node.child(value, key.len()))
    }

    fn members(&self) -> Self::MembersIter {
        let node = self.node;
        Box::new(self.members.iter().map_while(move |(key, value)| {
            let reads = 1 + METER.get().rates.name;
            let left = spend(text_steps(key.len()).saturating_mul(reads)) && node.enter();
            left.then(|| (key.as_str(), node.child(value, key.len())))
        }))
    }
}

/// The elements of an array.
#[derive(Debug)]
pub(super) struct MeteredArray<'a> {
    node: MeteredValue<'a>,
    items: &'a [Value],
}

impl<'a> Array<'a, Metered> for MeteredArray<'a> {
    type Node = MeteredValue<'a>;
    type ElementsIter = Box<dyn Iterator<Item = MeteredValue<'a>> + 'a>;

    fn len(&self) -> usize {
        self.items.len()
    }

    fn elements(&self) -> Self::ElementsIter {
        let node = self.node;
        let entered = self.items.iter().take_while(move |_| node.enter());
        Box::new(entered.map(move |item| node.child(item, 0)))
    }

    /// Compares texts that are the same for equal values. The library's hashes are the same for all lists of empty lists.
    fn is_unique(&self) -> bool {
        let mut seen = HashSet::with_capacity(self.items.len());
        self.items.iter().take_while(|item| spend_on_all(item)).all(|item| {
            let mut text = String::new();
            write_canonical(item, &mut text);
            seen.insert(text)
        })
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
