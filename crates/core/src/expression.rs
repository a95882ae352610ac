//! Expressions: CEL (<https://cel.dev>) in a `${ }`, parsed once, evaluated over a task's values.
//!
//! Errors name keys and types, never values: payloads do not reach a log.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    sync::{Arc, LazyLock},
};

use cel::{
    Context, Env, ExecutionError, IdedExpr, Program,
    common::ast::{EntryExpr, Expr},
};
use serde_json::{Map, Value, json};

use crate::{
    limits,
    names::StepName,
    template::{EvaluationError, InvalidTemplate, Reads, Scope},
    uses::{self, Key, Kind, Use},
};

static ENVIRONMENT: LazyLock<Arc<Env>> = LazyLock::new(|| Arc::new(Env::stdlib()));

/// The names that an expression can begin with, but `steps`.
const ROOTS: [&str; 5] = ["input", "task", "item", "callback", "event"];

#[derive(Debug, Clone)]
pub(crate) struct Expression {
    source: String,
    code: Code,
}

/// Most expressions only point at a value. Those are walked as JSON, which keeps the order of keys
/// and costs a fraction of the interpreter.
#[derive(Debug, Clone)]
enum Code {
    Path(Vec<String>),
    Program(Arc<Program>),
}

pub(crate) fn parse(source: &str, reads: &mut Reads) -> Result<Expression, InvalidTemplate> {
    let length = source.chars().count();
    if length > limits::EXPRESSION_CHARS_MAX {
        return Err(InvalidTemplate::TooLong(length));
    }
    let program = ENVIRONMENT.compile(source).map_err(|errors| InvalidTemplate::Syntax {
        expression: source.to_owned(),
        reason: errors.errors.first().map_or_else(String::new, |error| plain(&error.msg)),
    })?;
    Names { source, reads, bound: Vec::new() }.visit(program.expression())?;
    let code = match path(&program.expression().expr) {
        Some(keys) => Code::Path(keys),
        None => Code::Program(Arc::new(program)),
    };
    Ok(Expression { source: source.to_owned(), code })
}

/// The parser's message without its list of every token that would have done.
fn plain(message: &str) -> String {
    message.split(" expecting {").next().unwrap_or_default().to_owned()
}

/// The keys of a plain `a.b.c`.
fn path(expr: &Expr) -> Option<Vec<String>> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the grammar's nodes, not our states")]
    match expr {
        Expr::Ident(name) => Some(vec![name.clone()]),
        Expr::Select(select) if !select.test => {
            let mut keys = path(&select.operand.expr)?;
            keys.push(select.field.clone());
            Some(keys)
        }
        _ => None,
    }
}

/// Collects which documents an expression reads, and refuses names that do not exist.
struct Names<'a> {
    source: &'a str,
    reads: &'a mut Reads,
    bound: Vec<String>,
}

impl Names<'_> {
    fn visit(&mut self, node: &IdedExpr) -> Result<(), InvalidTemplate> {
        match &node.expr {
            Expr::Unspecified | Expr::Literal(_) => Ok(()),
            Expr::Ident(name) => self.name(name),
            Expr::Select(select) => match &select.operand.expr {
                Expr::Select(inner) if is_steps(&inner.operand.expr) && !inner.test => {
                    self.step(&inner.field, &select.field)
                }
                Expr::Unspecified
                | Expr::Call(_)
                | Expr::Comprehension(_)
                | Expr::Ident(_)
                | Expr::List(_)
                | Expr::Literal(_)
                | Expr::Map(_)
                | Expr::Select(_)
                | Expr::Struct(_) => self.visit(&select.operand),
            },
            Expr::Call(call) => {
                call.target.iter().try_for_each(|target| self.visit(target))?;
                call.args.iter().try_for_each(|argument| self.visit(argument))
            }
            Expr::List(list) => list.elements.iter().try_for_each(|item| self.visit(item)),
            Expr::Map(map) => map.entries.iter().try_for_each(|entry| self.entry(&entry.expr)),
            Expr::Struct(made) => made.entries.iter().try_for_each(|entry| self.entry(&entry.expr)),
            Expr::Comprehension(loops) => {
                self.visit(&loops.iter_range)?;
                self.visit(&loops.accu_init)?;
                let outer = self.bound.len();
                self.bound.extend([loops.iter_var.clone(), loops.accu_var.clone()]);
                self.bound.extend(loops.iter_var2.clone());
                for part in [&loops.loop_cond, &loops.loop_step, &loops.result] {
                    self.visit(part)?;
                }
                self.bound.truncate(outer);
                Ok(())
            }
        }
    }

    fn entry(&mut self, entry: &EntryExpr) -> Result<(), InvalidTemplate> {
        match entry {
            EntryExpr::MapEntry(entry) => {
                self.visit(&entry.key)?;
                self.visit(&entry.value)
            }
            EntryExpr::StructField(field) => self.visit(&field.value),
        }
    }

    fn name(&mut self, name: &str) -> Result<(), InvalidTemplate> {
        if self.bound.iter().any(|bound| bound == name) {
            return Ok(());
        }
        if name == "steps" {
            return Err(InvalidTemplate::StepsForm(self.source.to_owned()));
        }
        let known = ROOTS.into_iter().find(|root| *root == name);
        let known = known.ok_or_else(|| InvalidTemplate::UnknownName {
            expression: self.source.to_owned(),
            name: name.to_owned(),
        })?;
        self.reads.names.insert(known);
        Ok(())
    }

    fn step(&mut self, step: &str, field: &str) -> Result<(), InvalidTemplate> {
        let name = step.parse::<StepName>();
        match (name, field) {
            (Ok(name), "output") => {
                self.reads.steps.insert(name);
                Ok(())
            }
            (Ok(_) | Err(_), _) => Err(InvalidTemplate::StepsForm(self.source.to_owned())),
        }
    }
}

fn is_steps(expr: &Expr) -> bool {
    matches!(expr, Expr::Ident(name) if name == "steps")
}

impl Expression {
    pub(crate) fn evaluate(&self, scope: Scope<'_>) -> Result<Value, EvaluationError> {
        match &self.code {
            Code::Path(keys) => self.follow(keys, scope),
            Code::Program(program) => self.run(program, scope),
        }
    }

    /// What it reads, if its value must be of this kind.
    pub(crate) fn uses(&self, kind: Kind) -> Vec<Use> {
        match &self.code {
            Code::Path(keys) => {
                let path = keys.iter().map(|key| Key::Field(key.clone())).collect();
                vec![Use { path, kind }]
            }
            Code::Program(program) => uses::of(&program.expression().expr, kind),
        }
    }

    fn follow(&self, keys: &[String], scope: Scope<'_>) -> Result<Value, EvaluationError> {
        let no_value = |key: &str| self.failed(format!("there is no `{key}`"));
        let (found, rest) = match keys {
            [steps, step, _, rest @ ..] if steps == "steps" => {
                let output = scope.outputs.and_then(|outputs| outputs.get(step.as_str()));
                (Cow::Borrowed(output.ok_or_else(|| no_value(step))?.as_ref()), rest)
            }
            [root, rest @ ..] => (scope.root(root).ok_or_else(|| no_value(root))?, rest),
            [] => return Err(no_value(&self.source)),
        };
        let mut value = found.as_ref();
        for key in rest {
            value = value.get(key).ok_or_else(|| no_value(key))?;
        }
        Ok(value.clone())
    }

    fn run(&self, program: &Program, scope: Scope<'_>) -> Result<Value, EvaluationError> {
        let mut context = Context::with_env(ENVIRONMENT.clone());
        let references = program.references();
        for name in ROOTS.into_iter().filter(|name| references.has_variable(name)) {
            if let Some(value) = scope.root(name) {
                context.add_variable_from_value(name, to_cel(&value));
            }
        }
        if references.has_variable("steps") {
            let outputs = scope.outputs.into_iter().flatten();
            let steps = outputs
                .map(|(name, output)| (name.to_string(), json!({ "output": output })))
                .collect();
            context.add_variable_from_value("steps", to_cel(&Value::Object(steps)));
        }
        let value = program.execute(&context).map_err(|error| self.failed(describe(&error)))?;
        let json = value.json().map_err(|_| self.failed("the result is not JSON".to_owned()))?;
        Ok(sorted(json))
    }

    fn failed(&self, reason: String) -> EvaluationError {
        EvaluationError { expression: self.source.clone(), reason }
    }
}

impl<'a> Scope<'a> {
    fn root(&self, name: &str) -> Option<Cow<'a, Value>> {
        match name {
            "input" => self.input.map(Cow::Borrowed),
            "item" => self.item.map(Cow::Borrowed),
            "event" => self.event.map(Cow::Borrowed),
            "callback" => self.callback_token.map(|token| Cow::Owned(json!({ "token": token }))),
            "task" => self
                .task
                .map(|(id, workflow)| Cow::Owned(json!({ "id": id, "workflow": workflow }))),
            _ => None,
        }
    }
}

/// JSON's integers become CEL's `int` (and not `uint`), as people expect of `input.amount * 2`.
fn to_cel(value: &Value) -> cel::Value {
    match value {
        Value::Null => cel::Value::Null,
        Value::Bool(value) => (*value).into(),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(value), _) => value.into(),
            (None, Some(value)) => value.into(),
            (None, None) => number.as_f64().unwrap_or(f64::NAN).into(),
        },
        Value::String(text) => text.as_str().into(),
        Value::Array(items) => items.iter().map(to_cel).collect::<Vec<_>>().into(),
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| (key.clone(), to_cel(value)))
            .collect::<std::collections::HashMap<_, _>>()
            .into(),
    }
}

/// CEL's maps have no order; sorting them keeps rendering a function of its inputs.
fn sorted(value: Value) -> Value {
    match value {
        Value::Array(items) => Value::Array(items.into_iter().map(sorted).collect()),
        Value::Object(fields) => {
            let ordered: BTreeMap<_, _> = fields.into_iter().collect();
            Value::Object(ordered.into_iter().map(|(k, v)| (k, sorted(v))).collect::<Map<_, _>>())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value,
    }
}

/// The interpreter's own messages print values; these name only keys and types.
fn describe(error: &ExecutionError) -> String {
    #[expect(clippy::wildcard_enum_match_arm, reason = "a foreign, non-exhaustive enum")]
    match error {
        ExecutionError::NoSuchKey(key) => format!("there is no `{key}`"),
        ExecutionError::UndeclaredReference(name) => format!("unknown name `{name}`"),
        ExecutionError::NoSuchOverload(overload) => overload.to_string(),
        ExecutionError::UnsupportedBinaryOperator(operator, left, right) => {
            format!("`{operator}` is not for {} and {}", left.type_of(), right.type_of())
        }
        ExecutionError::ValuesNotComparable(left, right) => {
            format!("{} and {} can not be compared", left.type_of(), right.type_of())
        }
        ExecutionError::UnexpectedType { got, want } => format!("got {got}, wanted {want}"),
        ExecutionError::DivisionByZero(_) | ExecutionError::RemainderByZero(_) => {
            "division by zero".to_owned()
        }
        ExecutionError::Overflow(operator, ..) => format!("overflow in `{operator}`"),
        ExecutionError::IndexOutOfBounds(_) => "index out of bounds".to_owned(),
        ExecutionError::InvalidArgumentCount { expected, actual } => {
            format!("{actual} arguments where {expected} are wanted")
        }
        _ => "it has no value for this task".to_owned(),
    }
}
