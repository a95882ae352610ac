//! Estimates the cost of an expression before it is evaluated. The estimate is an upper bound, computed from the sizes of
//! the values that the expression reads. The same expression with the same values always has the same estimate, so a
//! repeated evaluation is refused again.
//!
//! The unit is a step. The interpreter takes about one step for one node of the expression, and to copy or compare one
//! value or 32 bytes of it. The body of a macro counts once for each item:
//!
//! ```text
//! input.orders.map(o, o.lines.filter(l, l.price > 10))
//! └── items of `orders` ──┘ × └── items of the longest `lines` ──┘ × └ body ┘
//! ```
//!
//! CEL for Go has the same kind of cost estimate (<https://github.com/google/cel-go>, `checker/cost.go`).

use std::{cell::OnceCell, collections::HashMap, rc::Rc};

use cel::{
    IdedExpr,
    common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, LiteralValue, operators},
};
use serde_json::Value;

use super::{
    inputs::ExpressionInputs,
    uses::{is_namespaced, operands},
    value_size::{STEP_BYTES, size, text_size},
};
use crate::limits;

/// Steps to compile a pattern of the maximum size, and to start the search.
const MATCH_STEPS: u64 = 4_000;

/// Steps to read a decimal of the most characters, and to calculate with it.
const DECIMAL_STEPS: u64 = 20;

/// Steps to start the evaluation of an expression.
const START_STEPS: u64 = 50;

/// An upper bound for the result of a node.
#[derive(Debug, Clone, Default)]
enum SizeBound<'v> {
    /// The result is one of these input values.
    Input(Rc<InputValues<'v>>),
    /// The result is a new value of at most `size`, with at most `items` items, each of at most the size `item`.
    Computed { size: u64, items: u64, item: u64 },
    /// The result is a number, a boolean or null.
    #[default]
    Scalar,
}

/// Values of the input, whose size is computed once.
#[derive(Debug)]
struct InputValues<'v> {
    values: Vec<&'v Value>,
    size: OnceCell<u64>,
}

impl<'v> SizeBound<'v> {
    fn input(values: Vec<&'v Value>) -> Self {
        Self::Input(Rc::new(InputValues { values, size: OnceCell::new() }))
    }

    /// The bound of a value of which only the size is known.
    fn of_size(size: u64) -> Self {
        Self::Computed { size, items: size, item: size }
    }

    fn size(&self) -> u64 {
        match self {
            Self::Input(input) => *input
                .size
                .get_or_init(|| input.values.iter().map(|value| size(value)).max().unwrap_or(1)),
            Self::Computed { size, .. } => *size,
            Self::Scalar => 1,
        }
    }

    /// Whether the result is a number, a boolean or null.
    fn is_scalar(&self) -> bool {
        match self {
            Self::Input(input) => input
                .values
                .iter()
                .all(|value| !(value.is_string() || value.is_array() || value.is_object())),
            Self::Computed { .. } => false,
            Self::Scalar => true,
        }
    }

    /// The maximum number of items.
    fn items(&self) -> u64 {
        match self {
            Self::Input(input) => {
                let counts = input.values.iter().map(|value| match value {
                    Value::Array(items) => items.len() as u64,
                    Value::Object(fields) => fields.len() as u64,
                    Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
                });
                counts.max().unwrap_or(0)
            }
            Self::Computed { items, .. } => *items,
            Self::Scalar => 0,
        }
    }

    /// The bound of a part of the result. `select` returns the candidates among the parts of one input value.
    fn part(&self, select: impl Fn(&'v Value) -> Vec<&'v Value>) -> Self {
        match self {
            Self::Input(input) => {
                Self::input(input.values.iter().flat_map(|value| select(value)).collect())
            }
            Self::Computed { item, .. } => Self::of_size(*item),
            Self::Scalar => Self::Scalar,
        }
    }

    /// The maximum size of an item.
    fn item_size(&self) -> u64 {
        match self {
            Self::Input(_) => self.item().size(),
            Self::Computed { item, .. } => *item,
            Self::Scalar => 1,
        }
    }

    /// The bound of the field `name`.
    fn field(&self, name: &str) -> Self {
        self.part(|value| value.get(name).into_iter().collect())
    }

    /// The bound of any item of a list, or of any value of a map.
    fn item(&self) -> Self {
        self.part(|value| match value {
            Value::Array(items) => items.iter().collect(),
            Value::Object(fields) => fields.values().collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
        })
    }

    /// The bound of the iteration variable of a macro: an item of a list, or a key of a map.
    fn iteration_variable(&self) -> Self {
        let Self::Input(input) = self else { return self.item() };
        let keys =
            input.values.iter().filter_map(|value| value.as_object()).flat_map(|map| map.keys());
        let longest_key = keys.map(|key| text_size(key.len())).max();
        match longest_key {
            None => self.item(),
            Some(longest) => Self::of_size(longest.max(self.item().size())),
        }
    }
}

/// Adds up the steps of the nodes of an expression.
pub(super) struct CostEstimator<'v> {
    inputs: &'v ExpressionInputs<'v>,
    /// The variables of the macros around the current node, the innermost last.
    variables: Vec<(String, SizeBound<'v>)>,
    /// How often the current node is evaluated.
    times: u64,
    steps: u64,
    /// The bounds of the paths that have been looked up in the inputs.
    path_bounds: HashMap<Vec<String>, SizeBound<'v>>,
}

impl<'v> CostEstimator<'v> {
    /// Returns an upper bound for the steps to evaluate `expression`, including the conversion of the inputs and of the
    /// result.
    pub(super) fn estimate(expression: &IdedExpr, inputs: &'v ExpressionInputs<'v>) -> u64 {
        let mut estimator = Self {
            inputs,
            variables: Vec::new(),
            times: 1,
            steps: START_STEPS,
            path_bounds: HashMap::new(),
        };
        let result = estimator.visit(expression);
        estimator.add(result.size());
        estimator.add(inputs.size());
        estimator.steps
    }

    fn add(&mut self, steps: u64) {
        self.steps = self.steps.saturating_add(self.times.saturating_mul(steps));
    }

    /// Adds the steps of a node, and returns the bound of its result.
    fn visit(&mut self, node: &IdedExpr) -> SizeBound<'v> {
        self.add(1);
        if self.steps > limits::RENDER_STEPS_MAX {
            return SizeBound::Scalar;
        }
        match &node.expr {
            Expr::Unspecified => SizeBound::Scalar,
            Expr::Literal(literal) => literal_bound(literal),
            Expr::Ident(name) => {
                match self.variables.iter().rev().find(|(variable, _)| variable == name) {
                    Some((_, bound)) => bound.clone(),
                    None => self.path_bound(vec![name.clone()]),
                }
            }
            Expr::Select(select) => {
                if let Some(path) = super::uses::plain_path(&node.expr)
                    && let [root, ..] = path.as_slice()
                    && !self.variables.iter().any(|(variable, _)| variable == root)
                {
                    return self.path_bound(path);
                }
                let operand = self.visit(&select.operand);
                if select.test { SizeBound::Scalar } else { operand.field(&select.field) }
            }
            Expr::Call(call) => self.call(call),
            Expr::List(list) => {
                let items: Vec<_> =
                    list.elements.iter().map(|item| self.visit(item).size()).collect();
                self.container(&items)
            }
            Expr::Map(map) => {
                let items: Vec<_> =
                    map.entries.iter().map(|entry| self.entry(&entry.expr)).collect();
                self.container(&items)
            }
            Expr::Struct(message) => {
                let items: Vec<_> =
                    message.entries.iter().map(|entry| self.entry(&entry.expr)).collect();
                self.container(&items)
            }
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
        }
    }

    /// Visits a key and its value, and returns the sum of their sizes.
    fn entry(&mut self, entry: &EntryExpr) -> u64 {
        match entry {
            EntryExpr::MapEntry(entry) => {
                let key = self.visit(&entry.key).size();
                key.saturating_add(self.visit(&entry.value).size())
            }
            EntryExpr::StructField(field) => self.visit(&field.value).size(),
        }
    }

    /// The bound of the input value at a path.
    fn path_bound(&mut self, path: Vec<String>) -> SizeBound<'v> {
        let inputs = self.inputs;
        let look_up = |path: &Vec<String>| {
            let keys: Vec<_> = path.iter().map(String::as_str).collect();
            SizeBound::input(inputs.find(&keys).into_iter().collect())
        };
        self.path_bounds.entry(path).or_insert_with_key(look_up).clone()
    }

    /// Adds the steps to create a list or map of items with these sizes, and returns its bound.
    fn container(&mut self, items: &[u64]) -> SizeBound<'v> {
        let size = sum(items.iter().copied());
        self.add(size);
        let item = items.iter().copied().max().unwrap_or(1);
        SizeBound::Computed { size: size.saturating_add(1), items: items.len() as u64, item }
    }

    /// Visits the operands of an operator or function, adds the steps of the call, and returns the bound of its result.
    fn call(&mut self, call: &CallExpr) -> SizeBound<'v> {
        let bounds: Vec<_> =
            operands(call).into_iter().map(|operand| self.visit(operand)).collect();
        let total_size = || sum(bounds.iter().map(SizeBound::size));
        if is_namespaced(call) {
            let items = sum(bounds.iter().map(SizeBound::items));
            self.add(DECIMAL_STEPS.saturating_mul(items.saturating_add(2)));
        }
        let name = call.func_name.as_str();
        match (name, bounds.as_slice()) {
            (operators::INDEX | operators::OPT_INDEX | operators::OPT_SELECT, [operand, ..]) => {
                operand.item()
            }
            (operators::CONDITIONAL, [_, yes, no]) => SizeBound::Computed {
                size: yes.size().max(no.size()),
                items: yes.items().max(no.items()),
                item: yes.item_size().max(no.item_size()),
            },
            (name, _) if returns_scalar_in_one_step(name) => SizeBound::Scalar,
            (operators::ADD, bounds) if bounds.iter().all(SizeBound::is_scalar) => {
                SizeBound::Scalar
            }
            (operators::ADD, bounds) => {
                let size = total_size();
                self.add(size);
                let items = sum(bounds.iter().map(SizeBound::items));
                let item = bounds.iter().map(SizeBound::item_size).max().unwrap_or(1);
                SizeBound::Computed { size, items, item }
            }
            (name, _) if reads_all_and_returns_scalar(name) => {
                self.add(total_size());
                SizeBound::Scalar
            }
            ("matches", _) => {
                self.add(total_size().saturating_add(MATCH_STEPS));
                SizeBound::Scalar
            }
            // A number has up to 330 characters as text.
            (_, _) => {
                let size = total_size().saturating_add(330 / STEP_BYTES);
                self.add(size);
                SizeBound::of_size(size)
            }
        }
    }

    /// Adds the steps of a macro such as `map` or `all`, and returns the bound of its result.
    fn comprehension(&mut self, comprehension: &ComprehensionExpr) -> SizeBound<'v> {
        let range = self.visit(&comprehension.iter_range);
        let initial = self.visit(&comprehension.accu_init);
        let (item, count) = (range.iteration_variable(), range.items());
        let (outer_variables, outer_times) = (self.variables.len(), self.times);
        self.variables.push((comprehension.iter_var.clone(), item.clone()));
        let second = comprehension.iter_var2.clone();
        self.variables.extend(second.map(|name| (name, range.item())));
        // The interpreter appends to a list in place, so an iteration does not copy the collected items.
        self.variables.push((comprehension.accu_var.clone(), SizeBound::Scalar));
        self.times = outer_times.saturating_mul(count);
        self.add(item.size());
        self.visit(&comprehension.loop_cond);
        let each = self.visit(&comprehension.loop_step);
        self.times = outer_times;
        let collects = matches!(&comprehension.accu_init.expr, Expr::List(_) | Expr::Map(_));
        let accumulated = match collects {
            true => SizeBound::Computed {
                size: count.saturating_mul(each.size()).saturating_add(initial.size()),
                items: count,
                item: each.item_size(),
            },
            false => SizeBound::of_size(each.size()),
        };
        self.add(accumulated.size());
        if let Some((_, bound)) = self.variables.last_mut() {
            *bound = accumulated;
        }
        let result = self.visit(&comprehension.result);
        self.variables.truncate(outer_variables);
        result
    }
}

/// Whether an operator takes one step and returns a number or a boolean.
fn returns_scalar_in_one_step(name: &str) -> bool {
    matches!(
        name,
        operators::LOGICAL_AND
            | operators::LOGICAL_OR
            | operators::LOGICAL_NOT
            | operators::NOT_STRICTLY_FALSE
            | operators::SUBSTRACT
            | operators::MULTIPLY
            | operators::DIVIDE
            | operators::MODULO
            | operators::NEGATE
    )
}

/// Whether an operator or function may read all of its operands, and returns a number or a boolean.
fn reads_all_and_returns_scalar(name: &str) -> bool {
    matches!(
        name,
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
            | "bool"
    )
}

fn sum(sizes: impl Iterator<Item = u64>) -> u64 {
    sizes.fold(0, u64::saturating_add)
}

fn literal_bound<'v>(literal: &LiteralValue) -> SizeBound<'v> {
    let bytes = match literal {
        LiteralValue::String(text) => text.inner().len(),
        LiteralValue::Bytes(bytes) => bytes.inner().len(),
        LiteralValue::Boolean(_)
        | LiteralValue::Double(_)
        | LiteralValue::Int(_)
        | LiteralValue::Null
        | LiteralValue::UInt(_) => return SizeBound::Scalar,
    };
    SizeBound::of_size(text_size(bytes))
}
