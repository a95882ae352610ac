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

use std::collections::HashMap;

use cel::{
    IdedExpr,
    common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, LiteralValue, operators},
};

use super::{
    functions::{Operands, called},
    inputs::ExpressionInputs,
    size_bound::SizeBound,
    uses::operands,
    value_size::text_size,
};
use crate::limits;

/// Steps to start the evaluation of an expression.
const START_STEPS: u64 = 50;

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
                let field = operand.field(&select.field);
                if is_optional(&select.operand.expr) {
                    self.add(field.size());
                }
                if select.test { SizeBound::Scalar } else { field }
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
        let of = Operands(&bounds);
        if let Some(function) = called(call) {
            let result = (function.result)(&of);
            self.add(
                (function.extra)(&of).saturating_add(of.total()).saturating_add(result.size()),
            );
            return result;
        }
        let name = call.func_name.as_str();
        match (name, bounds.as_slice()) {
            (operators::INDEX, [operand, ..]) => operand.item(),
            // The interpreter copies what it selects.
            (operators::OPT_INDEX | operators::OPT_SELECT, [operand, ..]) => {
                let item = operand.item();
                self.add(item.size());
                item
            }
            (operators::CONDITIONAL, [_, yes, no]) => SizeBound::Computed {
                size: yes.size().max(no.size()),
                items: yes.items().max(no.items()),
                item: yes.item_size().max(no.item_size()),
            },
            (name, _) if is_logical(name) => SizeBound::Scalar,
            (name, bounds) if is_arithmetic(name) => {
                // An error copies the operands, and `||` may hide it.
                if !bounds.iter().all(SizeBound::is_scalar) {
                    self.add(of.total());
                }
                SizeBound::Scalar
            }
            (operators::ADD, bounds) if bounds.iter().all(SizeBound::is_scalar) => {
                SizeBound::Scalar
            }
            (operators::ADD, bounds) => {
                let size = of.total();
                self.add(size);
                let items = sum(bounds.iter().map(SizeBound::items));
                let item = bounds.iter().map(SizeBound::item_size).max().unwrap_or(1);
                SizeBound::Computed { size, items, item }
            }
            (name, _) if is_comparison(name) => {
                self.add(of.total());
                SizeBound::Scalar
            }
            // What this estimate does not know is refused.
            (_, _) => {
                self.steps = u64::MAX;
                SizeBound::Scalar
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
        let accumulated = match (count, collects) {
            // `sortBy` names its list like this, and repeats nothing.
            (0, _) => initial,
            (_, true) => SizeBound::Computed {
                size: count.saturating_mul(each.size()).saturating_add(initial.size()),
                items: count,
                item: each.item_size(),
            },
            (_, false) => SizeBound::of_size(each.size()),
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

/// Whether an operator takes one step and returns a boolean.
fn is_logical(name: &str) -> bool {
    matches!(
        name,
        operators::LOGICAL_AND
            | operators::LOGICAL_OR
            | operators::LOGICAL_NOT
            | operators::NOT_STRICTLY_FALSE
    )
}

/// Whether an operator calculates with numbers only.
fn is_arithmetic(name: &str) -> bool {
    matches!(
        name,
        operators::SUBSTRACT
            | operators::MULTIPLY
            | operators::DIVIDE
            | operators::MODULO
            | operators::NEGATE
    )
}

fn is_comparison(name: &str) -> bool {
    matches!(
        name,
        operators::EQUALS
            | operators::NOT_EQUALS
            | operators::GREATER_EQUALS
            | operators::LESS_EQUALS
            | operators::GREATER
            | operators::LESS
            | operators::IN
    )
}

/// Whether the value is an optional one, of which a field is copied when it is selected.
fn is_optional(node: &Expr) -> bool {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the grammar's nodes, not our states")]
    match node {
        Expr::Call(call) => {
            matches!(call.func_name.as_str(), operators::OPT_INDEX | operators::OPT_SELECT)
        }
        Expr::Select(select) => is_optional(&select.operand.expr),
        _ => false,
    }
}

fn sum(sizes: impl Iterator<Item = u64>) -> u64 {
    sizes.fold(0, u64::saturating_add)
}

fn literal_bound<'v>(literal: &LiteralValue) -> SizeBound<'v> {
    let bytes = match literal {
        LiteralValue::String(text) => text.inner().len(),
        LiteralValue::Bytes(bytes) => bytes.inner().len(),
        LiteralValue::Int(whole) => {
            return SizeBound::Whole((*whole.inner()).try_into().unwrap_or(0));
        }
        LiteralValue::Boolean(_)
        | LiteralValue::Double(_)
        | LiteralValue::Null
        | LiteralValue::UInt(_) => return SizeBound::Scalar,
    };
    SizeBound::of_size(text_size(bytes))
}
