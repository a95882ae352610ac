//! One expression: the CEL (<https://cel.dev>) code in a `${ }`. It is parsed once and evaluated with the values of tasks.
//!
//! Errors contain keys and types, but no values, so that payloads do not reach the logs.
//!
//! The length and the nesting of an expression are limited when it is parsed. The cost of its evaluation and the size of
//! its result are limited when it is evaluated.

use std::{borrow::Cow, collections::BTreeSet, sync::Arc};

use cel::{
    Context, ExecutionError, IdedExpr,
    common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, LiteralValue},
};
use serde_json::Value;

use crate::{
    expression::{
        cost::CostEstimator,
        functions::{self, InvalidCall},
        inputs::ExpressionInputs,
        json::from_cel,
        named_values::NamedValues,
        numbers,
        parse::{ROOTS, environment, is_root, parse_tree, with_large_stack},
        scope::{EvaluationError, InvalidTemplate, RequiredValues, Scope},
        uses::{PathKey, ValueKind, ValueUse, operands, plain_path, uses},
        value_size::size,
    },
    limits,
    model::names::StepName,
};

/// A parsed expression.
#[derive(Debug, Clone)]
pub(super) struct Expression {
    source: String,
    code: Code,
}

/// The executable form of an expression.
#[derive(Debug, Clone)]
enum Code {
    /// A path to a value, such as `input.amount`. Most expressions are paths. They are looked up in the JSON value, which
    /// preserves the order of keys and is much faster than the interpreter.
    Path(Vec<String>),
    /// Any other expression, for the interpreter.
    Program {
        tree: Arc<IdedExpr>,
        /// The same with the arithmetic of [`numbers`], which is evaluated.
        evaluated: Arc<IdedExpr>,
        /// The paths in the form `a.b.c` that it reads.
        paths: Vec<Vec<String>>,
    },
}

/// The steps and bytes that remain for one rendering of a template.
#[derive(Debug)]
pub(super) struct RenderBudget {
    steps: u64,
    bytes: usize,
}

impl Default for RenderBudget {
    fn default() -> Self {
        Self { steps: limits::RENDER_STEPS_MAX, bytes: limits::RENDERED_BYTES_MAX }
    }
}

/// Parses an expression, puts the named values in their places, and adds the values that it reads to `reads`. Without `named`,
/// the definition is still being read.
///
/// # Errors
/// The expression is too long, nests too deep, is not valid CEL, or uses unknown names.
pub(super) fn parse(
    source: &str,
    named: Option<&NamedValues>,
    reads: &mut RequiredValues,
) -> Result<Expression, InvalidTemplate> {
    let code = with_large_stack(|| compile(source, named, reads))?;
    Ok(Expression { source: source.to_owned(), code })
}

fn compile(
    source: &str,
    named: Option<&NamedValues>,
    reads: &mut RequiredValues,
) -> Result<Code, InvalidTemplate> {
    let tree = parse_tree(source)?;
    let tree = match named {
        Some(named) => named.expand(tree, source)?,
        None => tree,
    };
    let mut collector =
        ReadCollector { source, reads, variables: Vec::new(), paths: BTreeSet::new() };
    collector.visit(&tree)?;
    let paths = collector.paths.into_iter().collect();
    Ok(match plain_path(&tree.expr) {
        Some(keys) => Code::Path(keys),
        None => {
            let evaluated = Arc::new(numbers::with_arithmetic(&tree, functions::first_position));
            Code::Program { tree: Arc::new(tree), evaluated, paths }
        }
    })
}

/// Collects the values that an expression reads. Refuses unknown names and invalid patterns.
struct ReadCollector<'a> {
    source: &'a str,
    reads: &'a mut RequiredValues,
    /// The variables of the macros around the current node.
    variables: Vec<String>,
    paths: BTreeSet<Vec<String>>,
}

impl ReadCollector<'_> {
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
                self.function(call)?;
                operands(call).into_iter().try_for_each(|operand| self.visit(operand))
            }
            Expr::List(list) => list.elements.iter().try_for_each(|item| self.visit(item)),
            Expr::Map(map) => map.entries.iter().try_for_each(|entry| self.entry(&entry.expr)),
            Expr::Struct(message) => Err(InvalidTemplate::Syntax {
                expression: self.source.to_owned(),
                reason: format!("there is no type `{}`", message.type_name),
            }),
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
        }
    }

    fn comprehension(&mut self, comprehension: &ComprehensionExpr) -> Result<(), InvalidTemplate> {
        self.visit(&comprehension.iter_range)?;
        self.visit(&comprehension.accu_init)?;
        let outer_variables = self.variables.len();
        self.variables.extend([comprehension.iter_var.clone(), comprehension.accu_var.clone()]);
        self.variables.extend(comprehension.iter_var2.clone());
        for part in [&comprehension.loop_cond, &comprehension.loop_step, &comprehension.result] {
            self.visit(part)?;
        }
        self.variables.truncate(outer_variables);
        Ok(())
    }

    /// Collects a path in the form `a.b.c` or `has(a.b.c)`. Returns whether `operand.field` has this form.
    fn path(&mut self, operand: &Expr, field: &str) -> Result<bool, InvalidTemplate> {
        let Some(mut keys) = plain_path(operand) else { return Ok(false) };
        keys.push(field.to_owned());
        match keys.as_slice() {
            [steps, step, output, ..] if steps == "steps" && !self.is_variable(steps) => {
                self.step(step, output)?;
            }
            [root, key, ..] => {
                self.name(root)?;
                self.reads.callback_url |=
                    root == "callback" && key == "url" && !self.is_variable(root);
            }
            [_] | [] => {}
        }
        self.paths.insert(keys);
        Ok(true)
    }

    /// Checks the name and the arguments of a function.
    fn function(&self, call: &CallExpr) -> Result<(), InvalidTemplate> {
        let is_value = |name: &str| is_root(name) || self.is_variable(name);
        let expression = || self.source.to_owned();
        functions::check(call, is_value).map_err(|invalid| match invalid {
            InvalidCall::Unknown(name) => {
                InvalidTemplate::UnknownFunction { expression: expression(), name }
            }
            InvalidCall::Form(reason) => {
                InvalidTemplate::Syntax { expression: expression(), reason }
            }
        })
    }

    /// Checks the pattern of `matches`. The interpreter compiles it again for each text, so it must be a literal of
    /// limited size.
    fn pattern(&self, call: &CallExpr) -> Result<(), InvalidTemplate> {
        if call.func_name != "matches" {
            return Ok(());
        }
        let invalid = |reason: &str| InvalidTemplate::Pattern {
            expression: self.source.to_owned(),
            reason: reason.to_owned(),
        };
        let Some(Expr::Literal(LiteralValue::String(pattern))) =
            call.args.last().map(|pattern| &pattern.expr)
        else {
            return Err(invalid("the pattern of `matches` must be a string literal"));
        };
        let compiled =
            regex::RegexBuilder::new(pattern.inner()).size_limit(limits::PATTERN_BYTES_MAX).build();
        match compiled {
            Ok(_) => Ok(()),
            Err(regex::Error::CompiledTooBig(_)) => {
                Err(invalid("the pattern is too large once it is compiled"))
            }
            Err(_) => Err(invalid("the pattern is not a regular expression (RE2)")),
        }
    }

    fn is_variable(&self, name: &str) -> bool {
        self.variables.iter().any(|variable| variable == name)
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

    /// Collects a name at the root of a path.
    fn name(&mut self, name: &str) -> Result<(), InvalidTemplate> {
        if self.is_variable(name) {
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

    /// Collects `steps.<step>.<field>`. The valid fields are `output` and `failed`.
    fn step(&mut self, step: &str, field: &str) -> Result<(), InvalidTemplate> {
        let name = step.parse::<StepName>();
        match (name, field) {
            (Ok(name), "output") => {
                self.reads.steps.insert(name);
                Ok(())
            }
            (Ok(name), "failed") => {
                self.reads.failed.insert(name);
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
    /// The expression as written.
    pub(super) fn source(&self) -> &str {
        &self.source
    }

    /// Evaluates the expression with the values in `scope`, and deducts its cost from `budget`.
    ///
    /// # Errors
    /// A value is absent or has the wrong type, or the budget is exceeded.
    pub(super) fn evaluate(
        &self,
        scope: Scope<'_>,
        budget: &mut RenderBudget,
    ) -> Result<Value, EvaluationError> {
        match &self.code {
            Code::Path(keys) => self.follow(keys, scope, budget),
            Code::Program { tree, evaluated, paths } => with_large_stack(|| {
                let inputs = ExpressionInputs::new(paths, scope);
                self.spend_steps(CostEstimator::estimate(tree, &inputs), budget)?;
                self.interpret(evaluated, &inputs, budget)
            }),
        }
    }

    /// Returns the values that it reads, if its result must have this kind.
    pub(super) fn uses(&self, kind: ValueKind) -> Vec<ValueUse> {
        match &self.code {
            Code::Path(keys) => {
                let path = keys.iter().map(|key| PathKey::Field(key.clone())).collect();
                vec![ValueUse { path, kind }]
            }
            Code::Program { tree, .. } => with_large_stack(|| uses(&tree.expr, kind)),
        }
    }

    /// Deducts the steps of an evaluation from the budget.
    fn spend_steps(&self, steps: u64, budget: &mut RenderBudget) -> Result<(), EvaluationError> {
        let left = budget.steps.checked_sub(steps);
        let max = limits::RENDER_STEPS_MAX;
        budget.steps = left.ok_or_else(|| {
            self.error(format!("may take more than {max} steps with this task's values"))
        })?;
        Ok(())
    }

    /// Evaluates a path.
    fn follow(
        &self,
        keys: &[String],
        scope: Scope<'_>,
        budget: &mut RenderBudget,
    ) -> Result<Value, EvaluationError> {
        let no_value = |key: &str| self.absent(format!("there is no `{key}`"));
        let (root, rest) = match keys {
            [steps, step, field, rest @ ..] if steps == "steps" => {
                let value = scope.of_step(step, field);
                (Cow::Borrowed(value.ok_or_else(|| no_value(step))?), rest)
            }
            [root, field, rest @ ..] if root == "task" => {
                let value = scope.task.ok_or_else(|| no_value(root))?.field(field);
                (Cow::Owned(value.ok_or_else(|| no_value(field))?), rest)
            }
            [root, rest @ ..] => (scope.root(root).ok_or_else(|| no_value(root))?, rest),
            [] => return Err(no_value(&self.source)),
        };
        let mut value = root.as_ref();
        for key in rest {
            value = value.get(key).ok_or_else(|| no_value(key))?;
        }
        self.spend_steps(size(value), budget)?;
        self.spend_bytes(value, budget)?;
        Ok(value.clone())
    }

    /// Deducts the bytes of a result from the budget.
    fn spend_bytes(
        &self,
        result: &Value,
        budget: &mut RenderBudget,
    ) -> Result<(), EvaluationError> {
        let bytes = json_bytes(result);
        budget.bytes = budget.bytes.checked_sub(bytes).ok_or_else(|| {
            let max = limits::RENDERED_BYTES_MAX;
            self.error(format!("makes the rendered template larger than {max} bytes"))
        })?;
        Ok(())
    }

    /// Evaluates code with the interpreter.
    fn interpret(
        &self,
        code: &IdedExpr,
        inputs: &ExpressionInputs<'_>,
        budget: &mut RenderBudget,
    ) -> Result<Value, EvaluationError> {
        let mut context = Context::with_env(environment());
        for (name, value) in inputs.variables() {
            context.add_variable_from_value(name, value);
        }
        let value = cel::Value::resolve(code, &context).map_err(|error| {
            let reason = describe(&self.source, &error);
            let is_absent = matches!(error, ExecutionError::NoSuchKey(_));
            if is_absent { self.absent(reason) } else { self.error(reason) }
        })?;
        let json = from_cel(&value).map_err(|reason| self.error(reason))?;
        self.spend_bytes(&json, budget)?;
        Ok(json)
    }

    pub(super) fn error(&self, reason: String) -> EvaluationError {
        EvaluationError { expression: self.source.clone(), reason, is_absent: false }
    }

    fn absent(&self, reason: String) -> EvaluationError {
        EvaluationError { is_absent: true, ..self.error(reason) }
    }
}

/// Estimates the bytes of `value` as JSON.
fn json_bytes(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
        Value::String(text) => text.len() + 2,
        Value::Array(items) => items.iter().map(|item| json_bytes(item) + 1).sum::<usize>() + 2,
        Value::Object(fields) => {
            fields.iter().map(|(key, value)| key.len() + 4 + json_bytes(value)).sum::<usize>() + 2
        }
    }
}

/// Whether a key is a part of the expression, as `.key` or as a text.
fn is_written(expression: &str, key: &str) -> bool {
    [format!(".{key}"), format!("'{key}'"), format!("\"{key}\"")]
        .iter()
        .any(|written| !key.is_empty() && expression.contains(written))
}

/// Describes an error of the interpreter with keys and types only. The interpreter's own messages contain values.
fn describe(expression: &str, error: &ExecutionError) -> String {
    #[expect(clippy::wildcard_enum_match_arm, reason = "a foreign, non-exhaustive enum")]
    match error {
        // A key that the expression computes may be payload.
        ExecutionError::NoSuchKey(key) if is_written(expression, key) => {
            format!("there is no `{key}`")
        }
        ExecutionError::NoSuchKey(_) => "there is no such key".to_owned(),
        ExecutionError::UndeclaredReference(name) => format!("unknown name `{name}`"),
        ExecutionError::NoSuchOverload(overload) => overload.to_string(),
        ExecutionError::UnsupportedBinaryOperator(operator, left, right) => {
            format!("`{operator}` does not support {} and {}", left.type_of(), right.type_of())
        }
        ExecutionError::ValuesNotComparable(left, right) => {
            format!("{} and {} cannot be compared", left.type_of(), right.type_of())
        }
        ExecutionError::UnexpectedType { got, want } => format!("expected {want}, got {got}"),
        ExecutionError::DivisionByZero(_) | ExecutionError::RemainderByZero(_) => {
            "division by zero".to_owned()
        }
        ExecutionError::Overflow(operator, ..) => format!("overflow in `{operator}`"),
        ExecutionError::IndexOutOfBounds(_) => "index out of bounds".to_owned(),
        ExecutionError::InvalidArgumentCount { expected, actual } => {
            format!("expected {expected} arguments, got {actual}")
        }
        error => {
            match numbers::reason(error).map(str::to_owned).or_else(|| functions::reason(error)) {
                Some(reason) => reason,
                None => "cannot be evaluated with this task's values".to_owned(),
            }
        }
    }
}
