//! Templates: JSON in which a text may hold `${ expression }`.
//!
//! Expressions are CEL (<https://cel.dev>), over `input` (what was submitted),
//! `steps.<name>.output` (what a step before this one returned) and `task` (`task.id`,
//! `task.workflow`). A text that is one expression keeps the value's type; inside a longer text the
//! value becomes text. `$${` is a plain `${`.
//!
//! A template is parsed when it is read, so a definition with a broken expression is refused where
//! it stands; it is rendered without a clock, randomness or I/O. Errors name keys and types, never
//! values: payloads do not reach a log.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, LazyLock},
};

use cel::{
    Context, Env, ExecutionError, IdedExpr, Program,
    common::ast::{EntryExpr, Expr},
};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::{limits, names::StepName};

static ENVIRONMENT: LazyLock<Arc<Env>> = LazyLock::new(|| Arc::new(Env::stdlib()));

/// A template that cannot be what it says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTemplate {
    /// A `${` has no `}`.
    #[error("`{0}`: `${{` is never closed; write `$${{` for a plain `${{`")]
    Unclosed(String),
    /// The expression is not CEL.
    #[error("expression `{expression}`: {reason}")]
    Syntax {
        /// The expression as written.
        expression: String,
        /// What the parser says.
        reason: String,
    },
    /// The expression is over the limit.
    #[error("an expression of {0} characters; the limit is {max}", max = limits::EXPRESSION_CHARS_MAX)]
    TooLong(usize),
    /// The expression names something that does not exist.
    #[error(
        "expression `{expression}`: unknown name `{name}`; there are `input`, `steps` and `task`"
    )]
    UnknownName {
        /// The expression as written.
        expression: String,
        /// The unknown name.
        name: String,
    },
    /// `steps` is used in another form than `steps.<name>.output`.
    #[error("expression `{0}`: a step's result is written `steps.<name>.output`")]
    StepsForm(String),
    /// The template nests too deep.
    #[error("nested deeper than {max} levels", max = limits::JSON_DEPTH_MAX)]
    TooDeep,
}

/// An expression that could not be evaluated over this task's values: a permanent failure.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expression `{expression}`: {reason}")]
pub struct EvaluationError {
    expression: String,
    reason: String,
}

/// The values that expressions can name.
#[derive(Debug, Clone, Copy)]
pub struct Scope<'a> {
    /// What was submitted.
    pub input: &'a Value,
    /// What the steps that completed returned.
    pub outputs: &'a BTreeMap<StepName, &'a Value>,
    /// `task.id`.
    pub task_id: &'a str,
    /// `task.workflow`.
    pub workflow: &'a str,
}

/// JSON with expressions in it; parsed once, rendered for each request.
#[derive(Debug, Clone)]
pub struct Template {
    source: Value,
    root: Node,
    reads: Reads,
}

/// What a template reads: which documents must be at hand to render it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reads {
    /// Whether it reads `input`.
    pub input: bool,
    /// The steps whose output it reads.
    pub steps: BTreeSet<StepName>,
}

#[derive(Debug, Clone)]
enum Node {
    Literal(Value),
    Whole(Expression),
    Text(Vec<Part>),
    Array(Vec<Node>),
    Object(Vec<(String, Node)>),
}

#[derive(Debug, Clone)]
enum Part {
    Literal(String),
    Value(Expression),
}

#[derive(Debug, Clone)]
struct Expression {
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

impl Template {
    /// Parses `source`.
    ///
    /// # Errors
    /// The first expression that cannot be what it says.
    pub fn parse(source: Value) -> Result<Self, InvalidTemplate> {
        if limits::too_deep(&source) {
            return Err(InvalidTemplate::TooDeep);
        }
        let mut reads = Reads::default();
        let root = parse_node(&source, &mut reads)?;
        Ok(Self { source, root, reads })
    }

    /// What must be at hand to render this template.
    #[must_use]
    pub fn reads(&self) -> &Reads {
        &self.reads
    }

    /// The template as it was written.
    #[must_use]
    pub fn source(&self) -> &Value {
        &self.source
    }

    /// Replaces each expression by its value in `scope`.
    ///
    /// # Errors
    /// The first expression that has no value there.
    pub fn render(&self, scope: Scope<'_>) -> Result<Value, EvaluationError> {
        render_node(&self.root, scope)
    }
}

impl PartialEq for Template {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

impl Serialize for Template {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.source.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Template {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(Value::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

impl schemars::JsonSchema for Template {
    fn schema_name() -> Cow<'static, str> {
        "Template".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "Any JSON; texts may hold CEL expressions as `${ }`",
        })
    }
}

fn parse_node(source: &Value, reads: &mut Reads) -> Result<Node, InvalidTemplate> {
    Ok(match source {
        Value::String(text) => parse_text(text, reads)?,
        Value::Array(items) => {
            Node::Array(items.iter().map(|item| parse_node(item, reads)).collect::<Result<_, _>>()?)
        }
        Value::Object(fields) => Node::Object(
            fields
                .iter()
                .map(|(key, value)| Ok((key.clone(), parse_node(value, reads)?)))
                .collect::<Result<_, _>>()?,
        ),
        Value::Null | Value::Bool(_) | Value::Number(_) => Node::Literal(source.clone()),
    })
}

fn parse_text(text: &str, reads: &mut Reads) -> Result<Node, InvalidTemplate> {
    let mut parts = Vec::new();
    let mut literal = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let (before, after) = (rest.get(..at).unwrap_or(""), rest.get(at + 2..).unwrap_or(""));
        if let Some(before) = before.strip_suffix('$') {
            literal.push_str(before);
            literal.push_str("${");
            rest = after;
            continue;
        }
        literal.push_str(before);
        let end =
            end_of_expression(after).ok_or_else(|| InvalidTemplate::Unclosed(text.to_owned()))?;
        if !literal.is_empty() {
            parts.push(Part::Literal(std::mem::take(&mut literal)));
        }
        parts.push(Part::Value(parse_expression(after.get(..end).unwrap_or("").trim(), reads)?));
        rest = after.get(end + 1..).unwrap_or("");
    }
    literal.push_str(rest);
    if parts.is_empty() {
        return Ok(Node::Literal(Value::String(literal)));
    }
    if !literal.is_empty() {
        parts.push(Part::Literal(literal));
    }
    if let [Part::Value(_)] = parts.as_slice()
        && let Some(Part::Value(expression)) = parts.pop()
    {
        return Ok(Node::Whole(expression));
    }
    Ok(Node::Text(parts))
}

/// Where the `}` is that closes an expression, skipping those in texts and in map literals.
fn end_of_expression(text: &str) -> Option<usize> {
    let (mut depth, mut quote, mut escaped) = (0_usize, None, false);
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(_), _) if escaped => escaped = false,
            (Some(_), '\\') => escaped = true,
            (Some(open), _) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, '{') => depth += 1,
            (None, '}') if depth == 0 => return Some(at),
            (None, '}') => depth -= 1,
            (None, _) => {}
        }
    }
    None
}

fn parse_expression(source: &str, reads: &mut Reads) -> Result<Expression, InvalidTemplate> {
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
        match name {
            _ if self.bound.iter().any(|bound| bound == name) => Ok(()),
            "input" => {
                self.reads.input = true;
                Ok(())
            }
            "task" => Ok(()),
            "steps" => Err(InvalidTemplate::StepsForm(self.source.to_owned())),
            _ => Err(InvalidTemplate::UnknownName {
                expression: self.source.to_owned(),
                name: name.to_owned(),
            }),
        }
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

fn render_node(node: &Node, scope: Scope<'_>) -> Result<Value, EvaluationError> {
    Ok(match node {
        Node::Literal(value) => value.clone(),
        Node::Whole(expression) => expression.evaluate(scope)?,
        Node::Text(parts) => {
            let mut text = String::new();
            for part in parts {
                match part {
                    Part::Literal(literal) => text.push_str(literal),
                    Part::Value(expression) => match expression.evaluate(scope)? {
                        Value::String(value) => text.push_str(&value),
                        other @ (Value::Null
                        | Value::Bool(_)
                        | Value::Number(_)
                        | Value::Array(_)
                        | Value::Object(_)) => text.push_str(&other.to_string()),
                    },
                }
            }
            Value::String(text)
        }
        Node::Array(items) => Value::Array(
            items.iter().map(|item| render_node(item, scope)).collect::<Result<_, _>>()?,
        ),
        Node::Object(fields) => Value::Object(
            fields
                .iter()
                .map(|(key, value)| Ok((key.clone(), render_node(value, scope)?)))
                .collect::<Result<_, _>>()?,
        ),
    })
}

impl Expression {
    fn evaluate(&self, scope: Scope<'_>) -> Result<Value, EvaluationError> {
        match &self.code {
            Code::Path(keys) => self.follow(keys, scope),
            Code::Program(program) => self.run(program, scope),
        }
    }

    fn follow(&self, keys: &[String], scope: Scope<'_>) -> Result<Value, EvaluationError> {
        let no_value = |key: &str| self.failed(format!("there is no `{key}`"));
        let task = || task_value(scope);
        let (found, rest) = match keys {
            [root, rest @ ..] if root == "input" => (Cow::Borrowed(scope.input), rest),
            [root, rest @ ..] if root == "task" => (Cow::Owned(task()), rest),
            [_, step, _, rest @ ..] => {
                let output = scope.outputs.get(step.as_str());
                (Cow::Borrowed(*output.ok_or_else(|| no_value(step))?), rest)
            }
            [..] => return Err(no_value(&self.source)),
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
        if references.has_variable("input") {
            context.add_variable_from_value("input", to_cel(scope.input));
        }
        if references.has_variable("task") {
            context.add_variable_from_value("task", to_cel(&task_value(scope)));
        }
        if references.has_variable("steps") {
            let steps = scope
                .outputs
                .iter()
                .map(|(name, output)| (name.to_string(), serde_json::json!({ "output": output })))
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

fn task_value(scope: Scope<'_>) -> Value {
    serde_json::json!({ "id": scope.task_id, "workflow": scope.workflow })
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn render(template: Value) -> Result<Value, String> {
        let charge = json!({ "id": "ch-1" });
        let outputs = BTreeMap::from([("charge".parse().unwrap(), &charge)]);
        let input =
            json!({ "amount": 20, "to": { "z": 1, "a": 2 }, "name": "Ada", "items": [1, 2] });
        let scope =
            Scope { input: &input, outputs: &outputs, task_id: "order-1", workflow: "order" };
        Template::parse(template)
            .map_err(|error| error.to_string())?
            .render(scope)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_whole_expression_keeps_its_type_and_an_embedded_one_becomes_text() {
        assert_eq!(render(json!("${ input.amount }")), Ok(json!(20)));
        assert_eq!(render(json!("${ input.amount * 2 }")), Ok(json!(40)));
        assert_eq!(
            render(json!("for ${ input.name }: ${ input.items }")),
            Ok(json!("for Ada: [1,2]"))
        );
        assert_eq!(
            render(json!("/charges/${ steps.charge.output.id }")),
            Ok(json!("/charges/ch-1"))
        );
        assert_eq!(
            render(json!({ "order": "${ task.id }", "rest": [true, null, "${input.to}"] })),
            Ok(json!({ "order": "order-1", "rest": [true, null, { "z": 1, "a": 2 }] }))
        );
        assert_eq!(render(json!("${ input.items.map(i, i + 1) }")), Ok(json!([2, 3])));
        assert_eq!(
            render(json!("${ {'a}': steps.charge.output.id} }")),
            Ok(json!({ "a}": "ch-1" }))
        );
        assert_eq!(render(json!("costs $${ and ${ 'x' }")), Ok(json!("costs ${ and x")));
    }

    #[test]
    fn rendering_is_deterministic() {
        let first = render(json!("${ {'b': input.to, 'a': 1, 'c': 2} }")).unwrap().to_string();
        for _ in 0..20 {
            let again = render(json!("${ {'b': input.to, 'a': 1, 'c': 2} }")).unwrap().to_string();
            assert_eq!(first, again);
        }
    }

    #[test]
    fn what_it_reads_is_known_before_it_runs() {
        let template =
            Template::parse(json!({ "a": "${ steps.charge.output.id }", "b": ["${ input.x }"] }))
                .unwrap();
        let steps = BTreeSet::from(["charge".parse().unwrap()]);
        assert_eq!(template.reads(), &Reads { input: true, steps });
        let plain = Template::parse(json!({ "a": "${ task.id }", "b": 1 })).unwrap();
        assert_eq!(plain.reads(), &Reads::default());
        let nested = Template::parse(json!("${ [1].map(i, steps.charge.output.n + i) }")).unwrap();
        assert_eq!(nested.reads().steps.len(), 1);
    }

    #[test]
    fn a_broken_template_is_refused_with_the_reason() {
        for (template, reason) in [
            (
                json!("${ input.x"),
                "`${ input.x`: `${` is never closed; write `$${` for a plain `${`",
            ),
            (
                json!("${ inptu.x }"),
                "expression `inptu.x`: unknown name `inptu`; there are `input`, `steps` and `task`",
            ),
            (
                json!("${ steps.charge }"),
                "expression `steps.charge`: a step's result is written `steps.<name>.output`",
            ),
            (
                json!("${ steps['charge'].output }"),
                "expression `steps['charge'].output`: a step's result is written `steps.<name>.output`",
            ),
        ] {
            assert_eq!(render(template), Err(reason.to_owned()));
        }
        assert!(render(json!("${ 1 + }")).unwrap_err().starts_with("expression `1 +`: "));
        assert!(
            render(json!(format!("${{ {} }}", "1+".repeat(600))))
                .unwrap_err()
                .contains("the limit is")
        );
    }

    #[test]
    fn a_failing_expression_names_types_and_keys_but_no_values() {
        for (template, reason) in [
            (json!("${ input.missing }"), "expression `input.missing`: there is no `missing`"),
            (
                json!("${ steps.other.output.x }"),
                "expression `steps.other.output.x`: there is no `other`",
            ),
            (
                json!("${ input.name + 1 }"),
                "expression `input.name + 1`: `add` is not for string and int",
            ),
        ] {
            let error = render(template).unwrap_err();
            assert_eq!(error, reason);
            assert!(!error.contains("Ada"));
        }
    }
}
