//! Expressions: CEL (<https://cel.dev>) in a `${ }`, parsed once, evaluated over a task's values.
//!
//! Errors name keys and types, never values: payloads do not reach a log.
//!
//! Expressions are bounded: in length and nesting when they are parsed, in the work they may make and
//! in the size of what they give when they are evaluated.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, LazyLock},
};

use cel::{
    Context, Env, ExecutionError, IdedExpr, Program,
    common::ast::{CallExpr, EntryExpr, Expr, LiteralValue},
};
use serde_json::{Map, Value};

use super::bound::{self, Counter};
use super::documents::Documents;
use crate::{
    expression::{
        scope::{EvaluationError, InvalidTemplate, Reads, Scope},
        uses::{self, Key, Kind, Use},
    },
    limits,
    model::names::StepName,
};

static ENVIRONMENT: LazyLock<Arc<Env>> = LazyLock::new(|| Arc::new(Env::stdlib()));

/// The names that an expression can begin with.

/// The same but `steps`.
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
    Program {
        program: Arc<Program>,
        /// What it reads: `a.b.c` of all that begins with a name.
        paths: Vec<Vec<String>>,
    },
}

/// What is left to one rendering of a template.
#[derive(Debug)]
pub(crate) struct Budget {
    steps: u64,
    bytes: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Self { steps: limits::RENDER_STEPS_MAX, bytes: limits::RENDERED_BYTES_MAX }
    }
}

/// The parser and the interpreter go down with each bracket and each operator, in frames of tens of
/// kilobytes in a debug build: more than a thread's stack has.
fn deep<T>(work: impl FnOnce() -> T) -> T {
    stacker::maybe_grow(limits::EXPRESSION_STACK_BYTES, limits::EXPRESSION_STACK_BYTES, work)
}

pub(crate) fn parse(source: &str, reads: &mut Reads) -> Result<Expression, InvalidTemplate> {
    let length = source.chars().count();
    if length > limits::EXPRESSION_CHARS_MAX {
        return Err(InvalidTemplate::TooLong(length));
    }
    let depth = nesting(source);
    if depth > limits::EXPRESSION_DEPTH_MAX {
        return Err(InvalidTemplate::TooNested(depth));
    }
    let code = deep(|| compile(source, reads))?;
    Ok(Expression { source: source.to_owned(), code })
}

fn compile(source: &str, reads: &mut Reads) -> Result<Code, InvalidTemplate> {
    let program = ENVIRONMENT.compile(source).map_err(|errors| InvalidTemplate::Syntax {
        expression: source.to_owned(),
        reason: errors.errors.first().map_or_else(String::new, |error| plain(&error.msg)),
    })?;
    let mut names = Names { source, reads, bound: Vec::new(), paths: BTreeSet::new() };
    names.visit(program.expression())?;
    let paths = names.paths.into_iter().collect();
    Ok(match uses::plain_path(&program.expression().expr) {
        Some(keys) => Code::Path(keys),
        None => Code::Program { program: Arc::new(program), paths },
    })
}

/// How deep brackets nest, those in texts aside.
fn nesting(source: &str) -> usize {
    let (mut depth, mut deepest, mut quote, mut escaped) = (0_usize, 0, None, false);
    for c in source.chars() {
        match (quote, c) {
            (Some(_), _) if escaped => escaped = false,
            (Some(_), '\\') => escaped = true,
            (Some(open), _) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, '(' | '[' | '{') => depth += 1,
            (None, ')' | ']' | '}') => depth = depth.saturating_sub(1),
            (None, _) => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

/// The parser's message without its list of every token that would have done.
fn plain(message: &str) -> String {
    message.split(" expecting {").next().unwrap_or_default().to_owned()
}

/// Collects which documents an expression reads, and refuses names that do not exist.
struct Names<'a> {
    source: &'a str,
    reads: &'a mut Reads,
    bound: Vec<String>,
    paths: BTreeSet<Vec<String>>,
}

impl Names<'_> {
    fn visit(&mut self, node: &IdedExpr) -> Result<(), InvalidTemplate> {
        match &node.expr {
            Expr::Unspecified | Expr::Literal(_) => Ok(()),
            Expr::Ident(name) => {
                self.paths.insert(vec![name.clone()]);
                self.name(name)
            }
            Expr::Select(select) if self.path(&select.operand.expr, &select.field)? => Ok(()),
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
                self.pattern(call)?;
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

    /// Whether the node is a plain `a.b.c`, or asks whether there is one: then it is done with.
    fn path(&mut self, operand: &Expr, field: &str) -> Result<bool, InvalidTemplate> {
        let Some(mut keys) = uses::plain_path(operand) else { return Ok(false) };
        keys.push(field.to_owned());
        match keys.as_slice() {
            [steps, step, output, ..] if steps == "steps" && !self.is_bound(steps) => {
                self.step(step, output)?;
            }
            [root, ..] => self.name(root)?,
            [] => {}
        }
        self.paths.insert(keys);
        Ok(true)
    }

    /// A pattern is compiled for each text it is held against, so it must be known to be small.
    fn pattern(&self, call: &CallExpr) -> Result<(), InvalidTemplate> {
        if call.func_name != "matches" {
            return Ok(());
        }
        let wrong = |reason: &str| InvalidTemplate::Pattern {
            expression: self.source.to_owned(),
            reason: reason.to_owned(),
        };
        let Some(Expr::Literal(LiteralValue::String(pattern))) =
            call.args.last().map(|pattern| &pattern.expr)
        else {
            return Err(wrong("the pattern of `matches` must be a text in quotes"));
        };
        let sized =
            regex::RegexBuilder::new(pattern.inner()).size_limit(limits::PATTERN_BYTES_MAX).build();
        match sized {
            Ok(_) => Ok(()),
            Err(regex::Error::CompiledTooBig(_)) => {
                Err(wrong("the pattern is too large once it is compiled"))
            }
            Err(_) => Err(wrong("the pattern is not a regular expression (RE2)")),
        }
    }

    fn is_bound(&self, name: &str) -> bool {
        self.bound.iter().any(|bound| bound == name)
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
        if self.is_bound(name) {
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
    /// Its value in `scope`; what that takes is taken from `budget`.
    pub(crate) fn evaluate(
        &self,
        scope: Scope<'_>,
        budget: &mut Budget,
    ) -> Result<Value, EvaluationError> {
        match &self.code {
            Code::Path(keys) => self.follow(keys, scope, budget),
            Code::Program { program, paths } => {
                deep(|| self.run(program, &Documents::new(paths, scope), budget))
            }
        }
    }

    /// What it reads, if its value must be of this kind.
    pub(crate) fn uses(&self, kind: Kind) -> Vec<Use> {
        match &self.code {
            Code::Path(keys) => {
                let path = keys.iter().map(|key| Key::Field(key.clone())).collect();
                vec![Use { path, kind }]
            }
            Code::Program { program, .. } => uses::of(&program.expression().expr, kind),
        }
    }

    fn spend(&self, steps: u64, budget: &mut Budget) -> Result<(), EvaluationError> {
        let left = budget.steps.checked_sub(steps);
        let max = limits::RENDER_STEPS_MAX;
        budget.steps = left.ok_or_else(|| {
            self.failed(format!("may take more than {max} steps over this task's values"))
        })?;
        Ok(())
    }

    fn follow(
        &self,
        keys: &[String],
        scope: Scope<'_>,
        budget: &mut Budget,
    ) -> Result<Value, EvaluationError> {
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
        self.spend(bound::size(value), budget)?;
        self.take(value, budget)?;
        Ok(value.clone())
    }

    /// Takes the bytes of a result from the budget.
    fn take(&self, result: &Value, budget: &mut Budget) -> Result<(), EvaluationError> {
        let bytes = bytes(result);
        budget.bytes = budget.bytes.checked_sub(bytes).ok_or_else(|| {
            let max = limits::RENDERED_BYTES_MAX;
            self.failed(format!("makes the whole larger than {max} bytes"))
        })?;
        Ok(())
    }

    fn run(
        &self,
        program: &Program,
        documents: &Documents<'_>,
        budget: &mut Budget,
    ) -> Result<Value, EvaluationError> {
        self.spend(Counter::count(program.expression(), documents), budget)?;
        let mut context = Context::with_env(ENVIRONMENT.clone());
        for (name, value) in documents.variables() {
            context.add_variable_from_value(name, value);
        }
        let value = program.execute(&context).map_err(|error| self.failed(describe(&error)))?;
        let json = value.json().map_err(|_| self.failed("the result is not JSON".to_owned()))?;
        self.take(&json, budget)?;
        Ok(sorted(json))
    }

    fn failed(&self, reason: String) -> EvaluationError {
        EvaluationError { expression: self.source.clone(), reason }
    }
}

/// About how many bytes `value` has as JSON.
fn bytes(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
        Value::String(text) => text.len() + 2,
        Value::Array(items) => items.iter().map(|item| bytes(item) + 1).sum::<usize>() + 2,
        Value::Object(fields) => {
            fields.iter().map(|(key, value)| key.len() + 4 + bytes(value)).sum::<usize>() + 2
        }
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
