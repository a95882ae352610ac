//! Finds the paths of the values that an expression reads, and the kind of each value, as far as the operators around it
//! show. The forecast uses this to generate sample values for a definition that has never run.

use cel::{
    IdedExpr,
    common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, LiteralValue, operators},
};

use super::functions::{Operand, called, is_namespaced};
pub use super::value_kind::ValueKind;

/// One step of a path into a value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathKey {
    /// A field of an object.
    Field(String),
    /// Any element of a list.
    Element,
}

/// A value that an expression reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueUse {
    /// The path of the value. The first key is a name such as `input`, `steps` or `item`.
    pub path: Vec<PathKey>,
    /// The kind that the value must have.
    pub kind: ValueKind,
}

/// Returns the values that `expr` reads, if the result of `expr` must have this kind.
pub(super) fn uses(expr: &Expr, kind: ValueKind) -> Vec<ValueUse> {
    let mut collector = UseCollector::default();
    collector.visit(expr, kind);
    collector.found
}

/// Returns the keys of a path in the form `a.b.c`, if `expr` is one.
pub(super) fn plain_path(expr: &Expr) -> Option<Vec<String>> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the grammar's nodes, not our states")]
    match expr {
        Expr::Ident(name) => Some(vec![name.clone()]),
        Expr::Select(select) if !select.test => {
            let mut keys = plain_path(&select.operand.expr)?;
            keys.push(select.field.clone());
            Some(keys)
        }
        _ => None,
    }
}

/// The operands of a call. The name before the dot of `decimal.add(a, b)` is none.
pub(super) fn operands(call: &CallExpr) -> Vec<&IdedExpr> {
    let target = call.target.as_deref().filter(|_| !is_namespaced(call));
    target.into_iter().chain(&call.args).collect()
}

/// Collects the values that are read, on a walk through an expression.
#[derive(Default)]
struct UseCollector {
    found: Vec<ValueUse>,
    /// The variables of the macros around the current node, the innermost last. In `items.all(item, ...)`, `item` has the
    /// path of the elements of `items`. A variable without a path, such as an accumulator, has `None`.
    variables: Vec<(String, Option<Vec<PathKey>>)>,
}

impl UseCollector {
    fn visit(&mut self, expr: &Expr, kind: ValueKind) {
        // `has(a.b)` is true or false; `a.b` may be anything.
        let is_presence_test = matches!(expr, Expr::Select(select) if select.test);
        let kind = if is_presence_test { ValueKind::Any } else { kind };
        if let Some(path) = self.path(expr) {
            self.found.extend(path.map(|path| ValueUse { path, kind }));
            return;
        }
        match expr {
            Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_) => {}
            Expr::Select(select) => self.visit(&select.operand.expr, ValueKind::Any),
            Expr::Call(call) => self.call(call, kind),
            Expr::List(list) => {
                list.elements.iter().for_each(|item| self.visit(&item.expr, ValueKind::Any));
            }
            Expr::Map(map) => map.entries.iter().for_each(|entry| self.entry(&entry.expr)),
            Expr::Struct(message) => {
                message.entries.iter().for_each(|entry| self.entry(&entry.expr))
            }
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
        }
    }

    fn entry(&mut self, entry: &EntryExpr) {
        match entry {
            EntryExpr::MapEntry(entry) => {
                self.visit(&entry.key.expr, ValueKind::Text);
                self.visit(&entry.value.expr, ValueKind::Any);
            }
            EntryExpr::StructField(field) => self.visit(&field.value.expr, ValueKind::Any),
        }
    }

    fn call(&mut self, call: &CallExpr, kind: ValueKind) {
        let operands = operands(call);
        let literal = operands.iter().find_map(|operand| literal_kind(&operand.expr));
        let all = |kind| vec![kind; operands.len()];
        if let Some(function) = called(call) {
            let next = operands.iter().skip(1).map(Some).chain([None]);
            for ((operand, must_be), next) in operands.iter().zip(function.operands()).zip(next) {
                self.operand(
                    &operand.expr,
                    must_be,
                    next.and_then(|next| literal_text(&next.expr)),
                );
            }
            return;
        }
        let kinds = match call.func_name.as_str() {
            operators::LOGICAL_AND
            | operators::LOGICAL_OR
            | operators::LOGICAL_NOT
            | operators::NOT_STRICTLY_FALSE => all(ValueKind::Bool),
            operators::CONDITIONAL => vec![ValueKind::Bool, kind.clone(), kind],
            operators::EQUALS | operators::NOT_EQUALS => all(literal.unwrap_or(ValueKind::Any)),
            operators::GREATER
            | operators::GREATER_EQUALS
            | operators::LESS
            | operators::LESS_EQUALS => all(literal.unwrap_or(ValueKind::Number)),
            operators::DIVIDE if !operands.iter().any(|operand| is_decimal(&operand.expr)) => {
                all(ValueKind::Divided)
            }
            // `(a + b) / 2` depends on the spelling of `a` and `b`.
            operators::ADD | operators::SUBSTRACT | operators::MULTIPLY | operators::NEGATE
                if kind == ValueKind::Divided =>
            {
                let divided = !operands.iter().any(|operand| is_decimal(&operand.expr));
                all(if divided { kind } else { ValueKind::Number })
            }
            operators::SUBSTRACT
            | operators::MULTIPLY
            | operators::DIVIDE
            | operators::MODULO
            | operators::NEGATE => all(literal.unwrap_or(ValueKind::Number)),
            operators::ADD => all(literal.unwrap_or(kind)),
            operators::IN => vec![literal.unwrap_or(ValueKind::Any), ValueKind::List],
            _ => all(ValueKind::Any),
        };
        for (operand, kind) in operands.iter().zip(kinds) {
            self.visit(&operand.expr, kind);
        }
    }

    /// Visits an operand of a function. `next` is the text after it, if that is a literal.
    fn operand(&mut self, expr: &Expr, must_be: &Operand, next: Option<String>) {
        let kind = match must_be {
            Operand::Of(kind) => kind.clone(),
            Operand::TimeInNext => next.map_or(ValueKind::Text, ValueKind::TimeIn),
            Operand::ListOf(kind) => {
                let elements = self.path(expr).flatten();
                self.found.extend(elements.map(|mut path| {
                    path.push(PathKey::Element);
                    ValueUse { path, kind: kind.clone() }
                }));
                ValueKind::List
            }
        };
        self.visit(expr, kind);
    }

    fn comprehension(&mut self, comprehension: &ComprehensionExpr) {
        self.visit(&comprehension.iter_range.expr, ValueKind::List);
        self.visit(&comprehension.accu_init.expr, ValueKind::Any);
        let element = self.path(&comprehension.iter_range.expr).flatten().map(|mut path| {
            path.push(PathKey::Element);
            path
        });
        let outer = self.variables.len();
        // `sortBy` names its list like this.
        let accumulator = self.path(&comprehension.accu_init.expr).flatten();
        self.variables.push((comprehension.accu_var.clone(), accumulator));
        match &comprehension.iter_var2 {
            // With two variables, the first is the index.
            Some(second) => {
                self.variables.push((comprehension.iter_var.clone(), None));
                self.variables.push((second.clone(), element));
            }
            None => self.variables.push((comprehension.iter_var.clone(), element)),
        }
        for part in [&comprehension.loop_cond, &comprehension.loop_step, &comprehension.result] {
            self.visit(&part.expr, ValueKind::Any);
        }
        self.variables.truncate(outer);
    }

    /// The path in the form of an expression such as `a.b['c'][0]`. Returns `None` if `expr` is not a path, and
    /// `Some(None)` if it is a path that begins with a variable without a path.
    fn path(&self, expr: &Expr) -> Option<Option<Vec<PathKey>>> {
        let (inner, key) = match expr {
            Expr::Ident(name) => {
                let variable = self.variables.iter().rev().find(|(variable, _)| variable == name);
                let input = || Some(vec![PathKey::Field(name.clone())]);
                return Some(variable.map_or_else(input, |(_, path)| path.clone()));
            }
            Expr::Select(select) => (&select.operand.expr, PathKey::Field(select.field.clone())),
            Expr::Call(call) if call.func_name == operators::INDEX => match call.args.as_slice() {
                [of, at] => match &at.expr {
                    Expr::Literal(LiteralValue::String(name)) => {
                        (&of.expr, PathKey::Field(name.inner().to_owned()))
                    }
                    Expr::Literal(_) => (&of.expr, PathKey::Element),
                    Expr::Unspecified
                    | Expr::Call(_)
                    | Expr::Comprehension(_)
                    | Expr::Ident(_)
                    | Expr::List(_)
                    | Expr::Map(_)
                    | Expr::Select(_)
                    | Expr::Struct(_) => return None,
                },
                _ => return None,
            },
            Expr::Unspecified
            | Expr::Call(_)
            | Expr::Comprehension(_)
            | Expr::List(_)
            | Expr::Literal(_)
            | Expr::Map(_)
            | Expr::Struct(_) => return None,
        };
        let path = self.path(inner)?;
        Some(path.map(|mut path| {
            path.push(key);
            path
        }))
    }
}

/// Whether the value is certainly a decimal.
fn is_decimal(expr: &Expr) -> bool {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the grammar's nodes, not our states")]
    match expr {
        Expr::Literal(LiteralValue::Double(_)) => true,
        Expr::Call(call) => match call.func_name.as_str() {
            "double" => true,
            operators::ADD | operators::SUBSTRACT | operators::MULTIPLY | operators::DIVIDE => {
                call.args.iter().any(|operand| is_decimal(&operand.expr))
            }
            operators::NEGATE => call.args.iter().all(|operand| is_decimal(&operand.expr)),
            _ => false,
        },
        _ => false,
    }
}

/// The text of a literal.
fn literal_text(expr: &Expr) -> Option<String> {
    let Expr::Literal(LiteralValue::String(text)) = expr else { return None };
    Some(text.inner().to_owned())
}

/// The kind of a literal, or of the first literal in a list.
fn literal_kind(expr: &Expr) -> Option<ValueKind> {
    match expr {
        Expr::Literal(LiteralValue::Boolean(_)) => Some(ValueKind::Bool),
        Expr::Literal(LiteralValue::Double(_) | LiteralValue::Int(_) | LiteralValue::UInt(_)) => {
            Some(ValueKind::Number)
        }
        Expr::Literal(LiteralValue::String(_)) => Some(ValueKind::Text),
        Expr::List(list) => list.elements.first().and_then(|item| literal_kind(&item.expr)),
        Expr::Unspecified
        | Expr::Call(_)
        | Expr::Comprehension(_)
        | Expr::Ident(_)
        | Expr::Literal(LiteralValue::Bytes(_) | LiteralValue::Null)
        | Expr::Map(_)
        | Expr::Select(_)
        | Expr::Struct(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expression::template::Template;

    fn uses(expression: &str, kind: ValueKind) -> Vec<String> {
        let template = Template::parse(format!("${{ {expression} }}").into());
        let descriptions = template.value_uses(kind).into_iter().map(|used| {
            let keys = used.path.iter().map(|key| match key {
                PathKey::Field(name) => format!(".{name}"),
                PathKey::Element => "[]".to_owned(),
            });
            format!("{} {:?}", keys.collect::<String>().trim_start_matches('.'), used.kind)
        });
        descriptions.collect()
    }

    #[test]
    fn path_has_the_kind_of_the_whole_expression() {
        assert_eq!(uses("input.express", ValueKind::Bool), ["input.express Bool"]);
        assert_eq!(uses("steps.a.output.b[0].c", ValueKind::Any), ["steps.a.output.b[].c Any"]);
        assert_eq!(uses("input['a-b']", ValueKind::List), ["input.a-b List"]);
    }

    #[test]
    fn operators_determine_the_kinds_of_their_operands() {
        for (expression, expected) in [
            ("input.a > 100", vec!["input.a Number"]),
            ("input.a == 'gold'", vec!["input.a Text"]),
            ("!input.a && input.b", vec!["input.a Bool", "input.b Bool"]),
            ("input.a * input.b", vec!["input.a Number", "input.b Number"]),
            ("input.a + '!'", vec!["input.a Text"]),
            ("input.a in ['x']", vec!["input.a Text"]),
            ("input.a.startsWith('x')", vec!["input.a Text"]),
            ("decimal.add(input.a, '1')", vec!["input.a Decimal"]),
            ("decimal.sum(input.a)", vec!["input.a[] Decimal", "input.a List"]),
            ("decimal.round(input.a, 2, input.b)", vec!["input.a Decimal", "input.b Any"]),
            ("json.decode(input.a)", vec!["input.a Json"]),
            ("time.parse(input.a, '%d.%m.%Y', 'UTC')", vec!["input.a TimeIn(\"%d.%m.%Y\")"]),
            ("time.parse(input.a, input.f, 'UTC')", vec!["input.a Text", "input.f Text"]),
            (
                "input.a.padStart(input.n, input.f)",
                vec!["input.a Text", "input.n Number", "input.f Text"],
            ),
            ("input.a.join(input.b)", vec!["input.a[] Text", "input.a List", "input.b Text"]),
            ("maps.keys(input.a)", vec!["input.a Any"]),
            ("math.greatest(input.a, 1)", vec!["input.a Number"]),
            ("time.add(input.a, input.b)", vec!["input.a Time", "input.b DurationOrTime"]),
            ("time.format(input.a, '%Y', input.z)", vec!["input.a Time", "input.z Text"]),
            ("input.a ? input.b : 1", vec!["input.a Bool", "input.b Any"]),
            ("has(input.a)", vec!["input.a Any"]),
            ("has(input.a) ? input.a.b : 1", vec!["input.a Any", "input.a.b Any"]),
        ] {
            assert_eq!(uses(expression, ValueKind::Any), expected, "{expression}");
        }
    }

    #[test]
    fn macro_reads_the_elements_of_its_list() {
        let found = uses("input.items.all(i, i.price > 1)", ValueKind::Bool);
        assert!(found.contains(&"input.items List".to_owned()), "{found:?}");
        assert!(found.contains(&"input.items[].price Number".to_owned()), "{found:?}");
        let found = uses("input.items.sortBy(i, i.price * 2)", ValueKind::List);
        assert!(found.contains(&"input.items List".to_owned()), "{found:?}");
        assert!(found.contains(&"input.items[].price Number".to_owned()), "{found:?}");
    }
}
