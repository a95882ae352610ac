//! What evaluating an expression may cost, found before it is evaluated: an upper bound, from the
//! sizes of the values that it reads. The same expression over the same values always has the same
//! bound, so a task that is evaluated again is refused again.
//!
//! A step is about what the interpreter does for one node of the expression, or to copy or compare
//! one value, or 32 bytes of one. A macro counts its body once for each item:
//!
//! ```text
//! input.orders.map(o, o.lines.filter(l, l.price > 10))
//! └── items of `orders` ──┘ × └── items of the longest `lines` ──┘ × └ body ┘
//! ```
//!
//! The idea is that of CEL's own cost estimates (<https://github.com/google/cel-go>, `checker/cost.go`).

use std::{cell::OnceCell, collections::HashMap, rc::Rc};

use cel::{
    IdedExpr,
    common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, LiteralValue, operators},
};
use serde_json::Value;

use super::documents::Documents;
use crate::limits;

/// Bytes that are copied or compared in the time of one step.
const STEP_BYTES: u64 = 32;

/// To compile a pattern of the size that is let through, and to begin looking.
const MATCH_STEPS: u64 = 4_000;

/// To begin to evaluate an expression.
const BEGIN_STEPS: u64 = 50;

/// The values and bytes of `value`, in steps.
pub(super) fn size(value: &Value) -> u64 {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 1,
        Value::String(text) => text_size(text.len()),
        Value::Array(items) => items.iter().map(size).fold(1, u64::saturating_add),
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| text_size(key.len()).saturating_add(size(value)))
            .fold(1, u64::saturating_add),
    }
}

fn text_size(bytes: usize) -> u64 {
    1 + bytes as u64 / STEP_BYTES
}

/// What a node may evaluate to.
#[derive(Debug, Clone, Default)]
enum Shape<'v> {
    /// One of these parts of the documents.
    Known(Rc<Known<'v>>),
    /// Something of at most this size, with at most this many items, each of at most that size.
    Made { size: u64, items: u64, item: u64 },
    /// A number, a truth, or nothing.
    #[default]
    Small,
}

/// Parts of the documents, measured once.
#[derive(Debug)]
struct Known<'v> {
    values: Vec<&'v Value>,
    size: OnceCell<u64>,
}

impl<'v> Shape<'v> {
    fn known(values: Vec<&'v Value>) -> Self {
        Self::Known(Rc::new(Known { values, size: OnceCell::new() }))
    }

    fn size(&self) -> u64 {
        match self {
            Self::Known(known) => *known
                .size
                .get_or_init(|| known.values.iter().map(|value| size(value)).max().unwrap_or(1)),
            Self::Made { size, .. } => *size,
            Self::Small => 1,
        }
    }

    /// Whether it is a number, a truth, or nothing.
    fn is_small(&self) -> bool {
        match self {
            Self::Known(known) => known
                .values
                .iter()
                .all(|value| !(value.is_string() || value.is_array() || value.is_object())),
            Self::Made { .. } => false,
            Self::Small => true,
        }
    }

    fn items(&self) -> u64 {
        match self {
            Self::Known(known) => {
                let counts = known.values.iter().map(|value| match value {
                    Value::Array(items) => items.len() as u64,
                    Value::Object(fields) => fields.len() as u64,
                    Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
                });
                counts.max().unwrap_or(0)
            }
            Self::Made { items, .. } => *items,
            Self::Small => 0,
        }
    }

    /// A part of it, as those of the known that `pick` names.
    fn part(&self, pick: impl Fn(&'v Value) -> Vec<&'v Value>) -> Self {
        match self {
            Self::Known(known) => {
                Self::known(known.values.iter().flat_map(|value| pick(value)).collect())
            }
            Self::Made { item, .. } => Self::opaque(*item),
            Self::Small => Self::Small,
        }
    }

    /// Nothing is known but the size.
    fn opaque(size: u64) -> Self {
        Self::Made { size, items: size, item: size }
    }

    /// The size of the largest item.
    fn item(&self) -> u64 {
        match self {
            Self::Known(_) => self.children().size(),
            Self::Made { item, .. } => *item,
            Self::Small => 1,
        }
    }

    fn field(&self, name: &str) -> Self {
        self.part(|value| value.get(name).into_iter().collect())
    }

    fn children(&self) -> Self {
        self.part(|value| match value {
            Value::Array(items) => items.iter().collect(),
            Value::Object(fields) => fields.values().collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
        })
    }

    /// What a macro binds its variable to: items of a list, keys of a map.
    fn iterated(&self) -> Self {
        let Self::Known(known) = self else { return self.children() };
        let keys =
            known.values.iter().filter_map(|value| value.as_object()).flat_map(|map| map.keys());
        let longest_key = keys.map(|key| text_size(key.len())).max();
        match longest_key {
            None => self.children(),
            Some(longest) => {
                let size = longest.max(self.children().size());
                Self::opaque(size)
            }
        }
    }
}

/// Counts on the way through an expression.
pub(super) struct Counter<'v> {
    documents: &'v Documents<'v>,
    /// What the variables of the macros around a node are.
    bound: Vec<(String, Shape<'v>)>,
    /// How often a node here is evaluated.
    times: u64,
    steps: u64,
    /// What the paths from the roots lead to.
    known: HashMap<Vec<String>, Shape<'v>>,
}

impl<'v> Counter<'v> {
    /// The steps that evaluating `expression` may take, its values brought in and its result taken out.
    pub(super) fn count(expression: &IdedExpr, documents: &'v Documents<'v>) -> u64 {
        let mut counter = Self {
            documents,
            bound: Vec::new(),
            times: 1,
            steps: BEGIN_STEPS,
            known: HashMap::new(),
        };
        let result = counter.visit(expression);
        counter.spend(result.size());
        counter.spend(documents.size());
        counter.steps
    }

    fn spend(&mut self, steps: u64) {
        self.steps = self.steps.saturating_add(self.times.saturating_mul(steps));
    }

    fn visit(&mut self, node: &IdedExpr) -> Shape<'v> {
        self.spend(1);
        if self.steps > limits::RENDER_STEPS_MAX {
            return Shape::Small;
        }
        match &node.expr {
            Expr::Unspecified => Shape::Small,
            Expr::Literal(literal) => literal_shape(literal),
            Expr::Ident(name) => match self.bound.iter().rev().find(|(bound, _)| bound == name) {
                Some((_, shape)) => shape.clone(),
                None => self.known(vec![name.clone()]),
            },
            Expr::Select(select) => {
                if let Some(path) = super::uses::plain_path(&node.expr)
                    && let [root, ..] = path.as_slice()
                    && !self.bound.iter().any(|(bound, _)| bound == root)
                {
                    return self.known(path);
                }
                let operand = self.visit(&select.operand);
                if select.test { Shape::Small } else { operand.field(&select.field) }
            }
            Expr::Call(call) => self.call(call),
            Expr::List(list) => {
                let items: Vec<_> =
                    list.elements.iter().map(|item| self.visit(item).size()).collect();
                self.made(&items)
            }
            Expr::Map(map) => {
                let items: Vec<_> =
                    map.entries.iter().map(|entry| self.entry(&entry.expr)).collect();
                self.made(&items)
            }
            Expr::Struct(made) => {
                let items: Vec<_> =
                    made.entries.iter().map(|entry| self.entry(&entry.expr)).collect();
                self.made(&items)
            }
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
        }
    }

    fn entry(&mut self, entry: &EntryExpr) -> u64 {
        match entry {
            EntryExpr::MapEntry(entry) => {
                let key = self.visit(&entry.key).size();
                key.saturating_add(self.visit(&entry.value).size())
            }
            EntryExpr::StructField(field) => self.visit(&field.value).size(),
        }
    }

    fn known(&mut self, path: Vec<String>) -> Shape<'v> {
        let documents = self.documents;
        let found = |path: &Vec<String>| {
            let keys: Vec<_> = path.iter().map(String::as_str).collect();
            Shape::known(documents.find(&keys).into_iter().collect())
        };
        self.known.entry(path).or_insert_with_key(found).clone()
    }

    /// Of items with these sizes.
    fn made(&mut self, items: &[u64]) -> Shape<'v> {
        let size = sum(items.iter().copied());
        self.spend(size);
        let item = items.iter().copied().max().unwrap_or(1);
        Shape::Made { size: size.saturating_add(1), items: items.len() as u64, item }
    }

    fn call(&mut self, call: &CallExpr) -> Shape<'v> {
        let of: Vec<_> = call.target.iter().map(|target| &**target).chain(&call.args).collect();
        let shapes: Vec<_> = of.into_iter().map(|of| self.visit(of)).collect();
        let all = |shapes: &[Shape<'v>]| sum(shapes.iter().map(Shape::size));
        match (call.func_name.as_str(), shapes.as_slice()) {
            (operators::INDEX | operators::OPT_INDEX | operators::OPT_SELECT, [of, ..]) => {
                of.children()
            }
            (operators::CONDITIONAL, [_, yes, no]) => Shape::Made {
                size: yes.size().max(no.size()),
                items: yes.items().max(no.items()),
                item: yes.item().max(no.item()),
            },
            (
                operators::LOGICAL_AND
                | operators::LOGICAL_OR
                | operators::LOGICAL_NOT
                | operators::NOT_STRICTLY_FALSE
                | operators::SUBSTRACT
                | operators::MULTIPLY
                | operators::DIVIDE
                | operators::MODULO
                | operators::NEGATE,
                _,
            ) => Shape::Small,
            (operators::ADD, shapes) if shapes.iter().all(Shape::is_small) => Shape::Small,
            (operators::ADD, shapes) => {
                let (size, items) = (all(shapes), sum(shapes.iter().map(Shape::items)));
                self.spend(size);
                let item = shapes.iter().map(Shape::item).max().unwrap_or(1);
                Shape::Made { size, items, item }
            }
            (
                operators::EQUALS
                | operators::NOT_EQUALS
                | operators::LESS
                | operators::LESS_EQUALS
                | operators::GREATER
                | operators::GREATER_EQUALS
                | operators::IN
                | "size"
                | "contains"
                | "startsWith"
                | "endsWith"
                | "int"
                | "uint"
                | "double"
                | "bool",
                shapes,
            ) => {
                self.spend(all(shapes));
                Shape::Small
            }
            ("matches", shapes) => {
                self.spend(all(shapes).saturating_add(MATCH_STEPS));
                Shape::Small
            }
            // A number as a text has up to 330 characters.
            (_, shapes) => {
                let size = all(shapes).saturating_add(330 / STEP_BYTES);
                self.spend(size);
                Shape::opaque(size)
            }
        }
    }

    fn comprehension(&mut self, loops: &ComprehensionExpr) -> Shape<'v> {
        let range = self.visit(&loops.iter_range);
        let first = self.visit(&loops.accu_init);
        let (item, count) = (range.iterated(), range.items());
        let (outer, times) = (self.bound.len(), self.times);
        self.bound.push((loops.iter_var.clone(), item.clone()));
        self.bound.extend(loops.iter_var2.clone().map(|name| (name, range.children())));
        // Lists are appended to in place: what has been collected is not touched again.
        self.bound.push((loops.accu_var.clone(), Shape::Small));
        self.times = times.saturating_mul(count);
        self.spend(item.size());
        self.visit(&loops.loop_cond);
        let each = self.visit(&loops.loop_step);
        self.times = times;
        let collects = matches!(&loops.accu_init.expr, Expr::List(_) | Expr::Map(_));
        let collected = match collects {
            true => Shape::Made {
                size: count.saturating_mul(each.size()).saturating_add(first.size()),
                items: count,
                item: each.item(),
            },
            false => Shape::opaque(each.size()),
        };
        self.spend(collected.size());
        if let Some((_, shape)) = self.bound.last_mut() {
            *shape = collected;
        }
        let result = self.visit(&loops.result);
        self.bound.truncate(outer);
        result
    }
}

fn sum(sizes: impl Iterator<Item = u64>) -> u64 {
    sizes.fold(0, u64::saturating_add)
}

fn literal_shape<'v>(literal: &LiteralValue) -> Shape<'v> {
    let bytes = match literal {
        LiteralValue::String(text) => text.inner().len(),
        LiteralValue::Bytes(bytes) => bytes.inner().len(),
        LiteralValue::Boolean(_)
        | LiteralValue::Double(_)
        | LiteralValue::Int(_)
        | LiteralValue::Null
        | LiteralValue::UInt(_) => return Shape::Small,
    };
    Shape::opaque(text_size(bytes))
}
