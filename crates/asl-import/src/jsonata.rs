//! JSONata expressions as symbols. The parser is that of the crate `jsonata-core`; the translation covers the common
//! part of the language, and reports everything else.
//!
//! JSONata reads an absent value as *nothing*, and a list of one value as the value. CEL fails on the first, and does not know
//! the second. So the importer translates only forms whose result is the same if the values that they read are present, and
//! reports filters, wildcards, sequences and all functions without a counterpart.

use jsonata_core::{
    ast::{AstNode, BinaryOp, PathStep, Stage, UnaryOp},
    parser,
};
use serde_json::Value;

use crate::{
    cel::{Cel, Precedence},
    scope::Scope,
    symbol::{Presence, Symbol, Untranslatable, literal},
};

/// Characters of one expression. A definition's expression has at most 1,000.
const CHARS_MAX: usize = 4_000;

/// Nesting of one expression.
const NESTING_MAX: usize = 40;

/// The expression in `{% … %}`, if the text is one.
pub(crate) fn code(text: &str) -> Option<&str> {
    text.trim().strip_prefix("{%")?.strip_suffix("%}").map(str::trim)
}

/// A JSON value whose texts may be JSONata expressions: `Arguments`, `Output`, `Assign`.
pub(crate) fn payload(scope: &Scope, template: &Value) -> Symbol {
    match template {
        Value::Object(fields) => {
            Symbol::object(fields.iter().map(|(key, value)| (key.clone(), payload(scope, value))))
        }
        Value::Array(items) => {
            Symbol::List(items.iter().map(|item| payload(scope, item)).collect())
        }
        Value::String(text) => match code(text) {
            Some(code) => expression(scope, code),
            None => literal(text),
        },
        Value::Null | Value::Bool(_) | Value::Number(_) => Symbol::Scalar(template.clone()),
    }
}

/// The value of an expression.
pub(crate) fn expression(scope: &Scope, code: &str) -> Symbol {
    match translate(scope, code) {
        Ok(value) => value,
        Err(why) => Symbol::Unknown(why),
    }
}

fn translate(scope: &Scope, code: &str) -> Result<Symbol, Untranslatable> {
    let refuse = |reason: String| Err(Untranslatable::new(code, reason));
    if code.chars().count() > CHARS_MAX {
        return refuse(format!("an expression of more than {CHARS_MAX} characters"));
    }
    match parser::parse(code) {
        Ok(ast) => Translator { scope, code, variables: Vec::new() }.node(&ast, 0),
        Err(error) => refuse(format!("not valid JSONata: {error}")),
    }
}

struct Translator<'a> {
    scope: &'a Scope,
    code: &'a str,
    /// The parameters of the functions around the node.
    variables: Vec<String>,
}

impl Translator<'_> {
    fn error<T>(&self, reason: impl Into<String>) -> Result<T, Untranslatable> {
        Err(Untranslatable::new(self.code, reason))
    }

    fn cel(&mut self, node: &AstNode, depth: usize) -> Result<Cel, Untranslatable> {
        self.node(node, depth)?.cel()
    }

    fn node(&mut self, node: &AstNode, depth: usize) -> Result<Symbol, Untranslatable> {
        if depth > NESTING_MAX {
            return self.error("the expression nests too deep");
        }
        let depth = depth + 1;
        #[expect(clippy::wildcard_enum_match_arm, reason = "a foreign enum; the rest is reported")]
        match node {
            AstNode::String(text) => Ok(literal(text)),
            AstNode::Number(number) => Ok(Symbol::Scalar(json_number(*number))),
            AstNode::Boolean(value) => Ok(Symbol::Scalar((*value).into())),
            AstNode::Null => Ok(Symbol::Scalar(Value::Null)),
            AstNode::Variable(name) => self.variable(name),
            AstNode::Path { steps } => self.path(steps, depth),
            AstNode::Binary { op: BinaryOp::Concatenate, .. } => {
                let mut parts = Vec::new();
                self.concatenated(node, depth, &mut parts)?;
                Symbol::concatenation(&parts)
            }
            AstNode::Binary { op, lhs, rhs } => self.binary(*op, lhs, rhs, depth),
            AstNode::Unary { op: UnaryOp::Negate, operand } => match &**operand {
                AstNode::Number(number) => Ok(Symbol::Scalar(json_number(-number))),
                operand => Ok(self.cel(operand, depth)?.negate().into()),
            },
            AstNode::Unary { op: UnaryOp::Not, operand } => {
                Ok(self.cel(operand, depth)?.not().into())
            }
            AstNode::Array(items) => {
                let items = items.iter().map(|item| self.node(item, depth));
                Ok(Symbol::List(items.collect::<Result<_, _>>()?))
            }
            AstNode::Object(fields) => {
                let mut object = Vec::new();
                for (key, value) in fields {
                    let AstNode::String(key) = key else {
                        return self.error("the key of an object is an expression");
                    };
                    object.push((key.clone(), self.node(value, depth)?));
                }
                Ok(Symbol::object(object))
            }
            AstNode::Block(nodes) => match nodes.as_slice() {
                [node] => self.node(node, depth),
                _ => self.error("a block with several expressions"),
            },
            AstNode::Conditional { condition, then_branch, else_branch: Some(otherwise) } => {
                let condition = self.cel(condition, depth)?;
                let then = self.node(then_branch, depth)?;
                Ok(Symbol::either(&condition, then, self.node(otherwise, depth)?))
            }
            AstNode::Conditional { .. } => {
                self.error("a conditional without an else gives nothing")
            }
            AstNode::Function { name, args, .. } => self.function(name, args, depth),
            other => self.error(format!("{} has no counterpart", kind(other))),
        }
    }

    fn concatenated(
        &mut self,
        node: &AstNode,
        depth: usize,
        parts: &mut Vec<Symbol>,
    ) -> Result<(), Untranslatable> {
        if let AstNode::Binary { op: BinaryOp::Concatenate, lhs, rhs } = node {
            self.concatenated(lhs, depth, parts)?;
            return self.concatenated(rhs, depth, parts);
        }
        parts.push(self.node(node, depth)?);
        Ok(())
    }

    fn variable(&self, name: &str) -> Result<Symbol, Untranslatable> {
        if self.variables.iter().any(|variable| variable == name) {
            return Ok(Symbol::path(name));
        }
        match self.scope.variables.get(name) {
            Some(value) => Ok(value.clone()),
            None if name == "states" => self.error("`$states` as a whole"),
            None => self.error(format!("no state before this one assigns `${name}`")),
        }
    }

    fn path(&mut self, steps: &[PathStep], depth: usize) -> Result<Symbol, Untranslatable> {
        let Some((first, mut rest)) = steps.split_first() else { return self.error("no path") };
        let mut value = match (&first.node, rest.first().map(|step| &step.node)) {
            (AstNode::Variable(states), Some(AstNode::Name(of))) if states == "states" => {
                let value = self.of_states(of)?;
                let (head, tail) = rest.split_at_checked(1).unwrap_or((rest, &[]));
                rest = tail;
                self.stages(value, head)?
            }
            (node, _) => {
                let value = self.node(node, depth)?;
                self.stages(value, std::slice::from_ref(first))?
            }
        };
        for step in rest {
            let AstNode::Name(key) = &step.node else {
                return self.error(format!("{} in a path", kind(&step.node)));
            };
            value = self.stages(value.field(key), std::slice::from_ref(step))?;
        }
        Ok(value)
    }

    fn of_states(&self, part: &str) -> Result<Symbol, Untranslatable> {
        match (part, &self.scope.result) {
            ("input", _) => Ok(self.scope.data.clone()),
            ("context", _) => Ok(self.scope.context.clone()),
            ("result", Some(result)) => Ok(result.clone()),
            ("errorOutput", _) => {
                self.error("a definition knows that a step failed, but not the error")
            }
            _ => self.error(format!("`$states.{part}` is not available here")),
        }
    }

    /// Applies the indices that follow a step of a path.
    fn stages(&self, mut value: Symbol, step: &[PathStep]) -> Result<Symbol, Untranslatable> {
        for step in step {
            if step.focus.is_some() || step.index_var.is_some() || step.ancestor_label.is_some() {
                return self.error("a binding in a path");
            }
            for stage in &step.stages {
                value = match stage {
                    Stage::Filter(filter) => match constant_index(filter) {
                        Some(index) => value.index(index),
                        None => return self.error("a filter gives a sequence"),
                    },
                    Stage::KeepArray => return self.error("`[]` makes a list of a single value"),
                    Stage::Index(_) => return self.error("a binding in a path"),
                };
            }
        }
        Ok(value)
    }

    fn binary(
        &mut self,
        op: BinaryOp,
        lhs: &AstNode,
        rhs: &AstNode,
        depth: usize,
    ) -> Result<Symbol, Untranslatable> {
        let (precedence, operator) = match op {
            BinaryOp::Add => (Precedence::Sum, "+"),
            BinaryOp::Subtract => (Precedence::Sum, "-"),
            BinaryOp::Multiply => (Precedence::Product, "*"),
            BinaryOp::Modulo => (Precedence::Product, "%"),
            BinaryOp::Divide => {
                // The quotient of two integers is an integer in CEL, and a decimal in JSONata.
                let double = |cel: &Cel| Cel::call("double", &[cel]);
                let (lhs, rhs) = (self.cel(lhs, depth)?, self.cel(rhs, depth)?);
                return Ok(double(&lhs).binary(Precedence::Product, "/", &double(&rhs)).into());
            }
            BinaryOp::Equal => (Precedence::Relation, "=="),
            BinaryOp::NotEqual => (Precedence::Relation, "!="),
            BinaryOp::LessThan => (Precedence::Relation, "<"),
            BinaryOp::LessThanOrEqual => (Precedence::Relation, "<="),
            BinaryOp::GreaterThan => (Precedence::Relation, ">"),
            BinaryOp::GreaterThanOrEqual => (Precedence::Relation, ">="),
            BinaryOp::And => (Precedence::And, "&&"),
            BinaryOp::Or => (Precedence::Or, "||"),
            BinaryOp::In => (Precedence::Relation, "in"),
            BinaryOp::Concatenate
            | BinaryOp::Range
            | BinaryOp::ColonEqual
            | BinaryOp::FocusBind
            | BinaryOp::IndexBind
            | BinaryOp::Coalesce
            | BinaryOp::Default
            | BinaryOp::ChainPipe => return self.error(format!("the operator {op:?}")),
        };
        let (lhs, rhs) = (self.cel(lhs, depth)?, self.cel(rhs, depth)?);
        Ok(lhs.binary(precedence, operator, &rhs).into())
    }

    fn function(
        &mut self,
        name: &str,
        args: &[AstNode],
        depth: usize,
    ) -> Result<Symbol, Untranslatable> {
        match (name, args) {
            ("exists", [value]) => self.exists(value, depth),
            ("count", [list]) => Ok(Cel::call("size", &[&self.cel(list, depth)?]).into()),
            ("length", [text]) => Ok(Cel::call("size", &[&self.cel(text, depth)?]).into()),
            ("not", [value]) => Ok(self.cel(value, depth)?.not().into()),
            ("string", [value]) => {
                let value = self.node(value, depth)?;
                let is_composite =
                    matches!(value, Symbol::Object { .. } | Symbol::List(_) | Symbol::Merged { .. });
                match is_composite {
                    true => Ok(Cel::call("json.encode", &[&value.cel()?]).into()),
                    false => Ok(value.as_text()?.into()),
                }
            }
            ("contains", [text, part @ AstNode::String(_)]) => {
                let (text, part) = (self.cel(text, depth)?, self.cel(part, depth)?);
                Ok(text.method("contains", &[&part]).into())
            }
            ("append", [a, b]) => {
                let (a, b) = (self.node(a, depth)?, self.node(b, depth)?);
                match (&a, &b) {
                    (Symbol::List(x), Symbol::List(y)) => {
                        Ok(Symbol::List(x.iter().chain(y).cloned().collect()))
                    }
                    _ => Ok(a.cel()?.binary(Precedence::Sum, "+", &b.cel()?).into()),
                }
            }
            ("join" | "split", [of, by @ AstNode::String(_)]) => {
                let (of, by) = (self.cel(of, depth)?, self.cel(by, depth)?);
                Ok(of.method(name, &[&by]).into())
            }
            ("join" | "distinct" | "sort" | "reverse", [list]) => {
                Ok(self.cel(list, depth)?.method(name, &[]).into())
            }
            ("substring", [text, AstNode::Number(start)]) if *start >= 0.0 => {
                let start = Cel::member(json_number(*start).to_string());
                Ok(self.cel(text, depth)?.method(name, &[&start]).into())
            }
            ("merge", [AstNode::Array(objects)]) => {
                let merge = |merged: Option<Cel>, of: Cel| match merged {
                    Some(merged) => Cel::call("maps.merge", &[&merged, &of]),
                    None => of,
                };
                let objects: Vec<_> =
                    objects.iter().map(|of| self.cel(of, depth)).collect::<Result<_, _>>()?;
                let merged = objects.into_iter().fold(None, |merged, of| Some(merge(merged, of)));
                Ok(merged.map_or_else(|| Symbol::object([]), Symbol::Cel))
            }
            ("floor" | "ceil", [number]) => {
                let rounded = Cel::call(&format!("math.{name}"), &[&self.cel(number, depth)?]);
                Ok(Cel::call("int", &[&rounded]).into())
            }
            ("parse", [text]) => Ok(Cel::call("json.decode", &[&self.cel(text, depth)?]).into()),
            ("base64encode", [text]) => {
                Ok(Cel::call("base64.encode", &[&self.cel(text, depth)?]).into())
            }
            ("base64decode", [text]) => {
                let bytes = Cel::call("base64.decode", &[&self.cel(text, depth)?]);
                Ok(Cel::call("string", &[&bytes]).into())
            }
            ("hash", [text, AstNode::String(by)]) if by == "SHA-256" => {
                Ok(Cel::call("hash.sha256", &[&self.cel(text, depth)?]).into())
            }
            ("uppercase" | "lowercase", _) => self.error(
                "`upperAscii` and `lowerAscii` change the letters A to Z only; write them if that is enough",
            ),
            ("keys", _) => self.error("`maps.keys` sorts the keys; write it if that is right"),
            ("uuid" | "random" | "now" | "millis", _) => self.error(format!(
                "`${name}` has another value each time; expressions are deterministic. Use `task.id`, `hash.uuid(task.id)` or `task.submitted_at`, or put the value into the input"
            )),
            _ => self.error(format!("expressions have no counterpart of `${name}`")),
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "a foreign enum; the rest is reported")]
    fn exists(&mut self, value: &AstNode, depth: usize) -> Result<Symbol, Untranslatable> {
        let (root, steps) = match value {
            AstNode::Variable(name) => {
                return Ok(Symbol::Scalar(self.scope.variables.contains_key(name).into()));
            }
            AstNode::Path { steps } => {
                let is_key = |step: &&PathStep| {
                    matches!(step.node, AstNode::Name(_)) && step.stages.is_empty()
                };
                let keys = steps.iter().rev().take_while(is_key).count();
                let of_states = matches!(steps.first(), Some(step) if matches!(&step.node, AstNode::Variable(name) if name == "states"));
                let keys = if of_states && keys + 1 == steps.len() { keys - 1 } else { keys };
                let (root, rest) =
                    steps.split_at_checked(steps.len() - keys).unwrap_or((steps, &[]));
                (self.path(root, depth)?, rest)
            }
            _ => return self.error("`$exists` of an expression"),
        };
        let keys: Vec<String> = steps
            .iter()
            .filter_map(|step| match &step.node {
                AstNode::Name(key) => Some(key.clone()),
                _ => None,
            })
            .collect();
        Ok(match root.presence(&keys)? {
            Presence::Known(value) => Symbol::Scalar(value.into()),
            Presence::Test(test) => test.into(),
        })
    }
}

/// The number in `[n]`.
fn constant_index(filter: &AstNode) -> Option<i64> {
    if let AstNode::Unary { op: UnaryOp::Negate, operand } = filter {
        return constant_index(operand).map(|index| -index);
    }
    if let AstNode::Number(number) = filter { json_number(*number).as_i64() } else { None }
}

/// A JSON number: whole, if it can be.
fn json_number(number: f64) -> Value {
    match number.fract() == 0.0 && number.abs() < 9e15 {
        true => (number as i64).into(),
        false => number.into(),
    }
}

/// The kind of a node, for people.
fn kind(node: &AstNode) -> String {
    let text = format!("{node:?}");
    let end = text.find([' ', '(', '{']).unwrap_or(text.len());
    format!("`{}`", text.get(..end).unwrap_or(&text))
}
