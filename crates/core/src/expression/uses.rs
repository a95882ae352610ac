//! What expressions need of the values that they read: which paths, and of which kind, as far as the
//! operators around them tell. So that values can be made up for a definition that nobody has run yet.

use cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, LiteralValue, operators};

/// One step of a path into a value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// A field of an object.
    Field(String),
    /// Any element of a list.
    Element,
}

/// What kind of value is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Nothing tells.
    Any,
    /// True or false.
    Bool,
    /// A number.
    Number,
    /// A text.
    Text,
    /// A text that says a duration, or a time.
    Span,
    /// A list.
    List,
}

/// A value that an expression reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Use {
    /// Where it is: the first key is a name as `input`, `steps` or `item`.
    pub path: Vec<Key>,
    /// Of what kind it must be.
    pub kind: Kind,
}

/// What `expr` reads, if its own value must be of this kind.
pub(crate) fn of(expr: &Expr, kind: Kind) -> Vec<Use> {
    let mut looker = Looker::default();
    looker.look(expr, kind);
    looker.found
}

#[derive(Default)]
struct Looker {
    found: Vec<Use>,
    /// Names bound by macros as `items.all(item, ...)`, the innermost last, and what they stand for.
    bound: Vec<(String, Option<Vec<Key>>)>,
}

impl Looker {
    fn look(&mut self, expr: &Expr, kind: Kind) {
        if let Some(path) = self.path(expr) {
            self.found.extend(path.map(|path| Use { path, kind }));
            return;
        }
        match expr {
            Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_) => {}
            Expr::Select(select) => self.look(&select.operand.expr, Kind::Any),
            Expr::Call(call) => self.call(call, kind),
            Expr::List(list) => {
                list.elements.iter().for_each(|item| self.look(&item.expr, Kind::Any));
            }
            Expr::Map(map) => map.entries.iter().for_each(|entry| self.entry(&entry.expr)),
            Expr::Struct(made) => made.entries.iter().for_each(|entry| self.entry(&entry.expr)),
            Expr::Comprehension(loops) => self.comprehension(loops),
        }
    }

    fn entry(&mut self, entry: &EntryExpr) {
        match entry {
            EntryExpr::MapEntry(entry) => {
                self.look(&entry.key.expr, Kind::Text);
                self.look(&entry.value.expr, Kind::Any);
            }
            EntryExpr::StructField(field) => self.look(&field.value.expr, Kind::Any),
        }
    }

    fn call(&mut self, call: &CallExpr, kind: Kind) {
        let operands: Vec<_> = call.target.iter().map(AsRef::as_ref).chain(&call.args).collect();
        let literal = operands.iter().find_map(|operand| literal(&operand.expr));
        let same = |kind| vec![kind; operands.len()];
        let kinds = match call.func_name.as_str() {
            operators::LOGICAL_AND
            | operators::LOGICAL_OR
            | operators::LOGICAL_NOT
            | operators::NOT_STRICTLY_FALSE => same(Kind::Bool),
            operators::CONDITIONAL => vec![Kind::Bool, kind, kind],
            operators::EQUALS | operators::NOT_EQUALS => same(literal.unwrap_or(Kind::Any)),
            operators::GREATER
            | operators::GREATER_EQUALS
            | operators::LESS
            | operators::LESS_EQUALS => same(literal.unwrap_or(Kind::Number)),
            operators::SUBSTRACT
            | operators::MULTIPLY
            | operators::DIVIDE
            | operators::MODULO
            | operators::NEGATE => same(literal.unwrap_or(Kind::Number)),
            operators::ADD => same(literal.unwrap_or(kind)),
            operators::IN => vec![literal.unwrap_or(Kind::Any), Kind::List],
            "startsWith" | "endsWith" | "contains" | "matches" => same(Kind::Text),
            "duration" | "timestamp" => same(Kind::Span),
            "int" | "uint" | "double" => same(Kind::Number),
            _ => same(Kind::Any),
        };
        for (operand, kind) in operands.iter().zip(kinds) {
            self.look(&operand.expr, kind);
        }
    }

    fn comprehension(&mut self, loops: &ComprehensionExpr) {
        self.look(&loops.iter_range.expr, Kind::List);
        self.look(&loops.accu_init.expr, Kind::Any);
        let element = self.path(&loops.iter_range.expr).flatten().map(|mut path| {
            path.push(Key::Element);
            path
        });
        let outer = self.bound.len();
        self.bound.push((loops.accu_var.clone(), None));
        match &loops.iter_var2 {
            // With two names the first is the place.
            Some(second) => {
                self.bound.push((loops.iter_var.clone(), None));
                self.bound.push((second.clone(), element));
            }
            None => self.bound.push((loops.iter_var.clone(), element)),
        }
        for part in [&loops.loop_cond, &loops.loop_step, &loops.result] {
            self.look(&part.expr, Kind::Any);
        }
        self.bound.truncate(outer);
    }

    /// The path that `expr` is, if it is one; nothing inside if it begins with a name that stands for
    /// no path.
    fn path(&self, expr: &Expr) -> Option<Option<Vec<Key>>> {
        let (inner, key) = match expr {
            Expr::Ident(name) => {
                let bound = self.bound.iter().rev().find(|(bound, _)| bound == name);
                let free = || Some(vec![Key::Field(name.clone())]);
                return Some(bound.map_or_else(free, |(_, path)| path.clone()));
            }
            Expr::Select(select) => (&select.operand.expr, Key::Field(select.field.clone())),
            Expr::Call(call) if call.func_name == operators::INDEX => match call.args.as_slice() {
                [of, at] => match &at.expr {
                    Expr::Literal(LiteralValue::String(name)) => {
                        (&of.expr, Key::Field(name.inner().to_owned()))
                    }
                    Expr::Literal(_) => (&of.expr, Key::Element),
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

/// The kind of a literal, or of what a list of them begins with.
fn literal(expr: &Expr) -> Option<Kind> {
    match expr {
        Expr::Literal(LiteralValue::Boolean(_)) => Some(Kind::Bool),
        Expr::Literal(LiteralValue::Double(_) | LiteralValue::Int(_) | LiteralValue::UInt(_)) => {
            Some(Kind::Number)
        }
        Expr::Literal(LiteralValue::String(_)) => Some(Kind::Text),
        Expr::List(list) => list.elements.first().and_then(|item| literal(&item.expr)),
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

    fn uses(expression: &str, kind: Kind) -> Vec<String> {
        let template = Template::parse(format!("${{ {expression} }}").into());
        let said = template.uses(kind).into_iter().map(|used| {
            let keys = used.path.iter().map(|key| match key {
                Key::Field(name) => format!(".{name}"),
                Key::Element => "[]".to_owned(),
            });
            format!("{} {:?}", keys.collect::<String>().trim_start_matches('.'), used.kind)
        });
        said.collect()
    }

    #[test]
    fn a_path_is_of_the_kind_that_its_place_wants() {
        assert_eq!(uses("input.express", Kind::Bool), ["input.express Bool"]);
        assert_eq!(uses("steps.a.output.b[0].c", Kind::Any), ["steps.a.output.b[].c Any"]);
        assert_eq!(uses("input['a-b']", Kind::List), ["input.a-b List"]);
    }

    #[test]
    fn operators_tell_what_their_operands_are() {
        for (expression, expected) in [
            ("input.a > 100", vec!["input.a Number"]),
            ("input.a == 'gold'", vec!["input.a Text"]),
            ("!input.a && input.b", vec!["input.a Bool", "input.b Bool"]),
            ("input.a * input.b", vec!["input.a Number", "input.b Number"]),
            ("input.a + '!'", vec!["input.a Text"]),
            ("input.a in ['x']", vec!["input.a Text"]),
            ("input.a.startsWith('x')", vec!["input.a Text"]),
            ("input.a ? input.b : 1", vec!["input.a Bool", "input.b Any"]),
            ("has(input.a)", vec!["input.a Any"]),
        ] {
            assert_eq!(uses(expression, Kind::Any), expected, "{expression}");
        }
    }

    #[test]
    fn a_macro_reads_the_elements_of_its_list() {
        let found = uses("input.items.all(i, i.price > 1)", Kind::Bool);
        assert!(found.contains(&"input.items List".to_owned()), "{found:?}");
        assert!(found.contains(&"input.items[].price Number".to_owned()), "{found:?}");
    }
}

/// The keys of a plain `a.b.c`.
pub(crate) fn plain_path(expr: &Expr) -> Option<Vec<String>> {
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
