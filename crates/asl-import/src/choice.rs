//! The rules of a `Choice` state as expressions.

use serde_json::{Map, Value};

use crate::{
    cel::{Cel, Precedence},
    deployment::substitution,
    jsonata, jsonpath,
    scope::Scope,
    symbol::{Presence, Symbol, Untranslatable, literal, needs_value},
};

/// How deep `And`, `Or` and `Not` nest.
const NESTING_MAX: usize = 16;

/// The comparison of a rule, such as `NumericGreaterThan`.
struct Comparison {
    operator: &'static str,
    is_path: bool,
}

/// The expression of a rule.
///
/// # Errors
/// It has no counterpart.
pub(crate) fn rule(scope: &Scope, rule: &Map<String, Value>) -> Result<Cel, Untranslatable> {
    if let Some(condition) = rule.get("Condition") {
        let text = condition.as_str().unwrap_or_default();
        return match (condition, jsonata::code(text)) {
            (Value::Bool(value), _) => Ok(Cel::member(value.to_string())),
            (_, Some(code)) => jsonata::expression(scope, code).cel(),
            _ => Err(Untranslatable::new(condition.to_string(), "not a JSONata expression")),
        };
    }
    json_path_rule(scope, rule, 0)
}

fn json_path_rule(
    scope: &Scope,
    rule: &Map<String, Value>,
    depth: usize,
) -> Result<Cel, Untranslatable> {
    let original = || Value::Object(rule.clone()).to_string();
    if depth > NESTING_MAX {
        return Err(Untranslatable::new(original(), "the rule nests too deep"));
    }
    let inner = |value: &Value| {
        let rule = value.as_object();
        let rule = rule.ok_or_else(|| Untranslatable::new(value.to_string(), "not a rule"))?;
        json_path_rule(scope, rule, depth + 1)
    };
    for (operator, value) in rule {
        let combined = match (operator.as_str(), value) {
            ("Not", value) => inner(value)?.not(),
            ("And" | "Or", Value::Array(rules)) => {
                let rules = rules.iter().map(inner).collect::<Result<Vec<_>, _>>()?;
                let combine: fn(&Cel, &Cel) -> Cel =
                    if operator == "And" { Cel::and } else { Cel::or };
                let combined = rules.into_iter().reduce(|all, rule| combine(&all, &rule));
                combined.ok_or_else(|| Untranslatable::new(original(), "no rules"))?
            }
            ("Variable" | "Next" | "Comment" | "Assign", _) => continue,
            _ => return comparison(scope, rule, operator, value),
        };
        return Ok(combined);
    }
    Err(Untranslatable::new(original(), "the rule has no comparison"))
}

fn comparison(
    scope: &Scope,
    rule: &Map<String, Value>,
    operator: &str,
    value: &Value,
) -> Result<Cel, Untranslatable> {
    let Some(Value::String(variable)) = rule.get("Variable") else {
        return Err(Untranslatable::new(operator, "the rule has no `Variable`"));
    };
    if let Some(check) = operator.strip_prefix("Is") {
        return type_check(scope, variable, check, value);
    }
    let left = jsonpath::path(scope, variable).cel()?;
    if operator == "StringMatches" {
        let pattern = value.as_str().unwrap_or_default();
        if let Some(name) = substitution(pattern) {
            return Err(needs_value(name, "a pattern is a constant"));
        }
        let pattern = Cel::string(&regular_expression(pattern));
        let left = left.within(Precedence::Member);
        return Ok(Cel::member(format!("{left}.matches({})", pattern.text)));
    }
    let Some(Comparison { operator: symbol, is_path }) = operator_of(operator) else {
        let reason = match operator.starts_with("Timestamp") {
            true => "expressions cannot compare times",
            false => "unknown comparison",
        };
        return Err(Untranslatable::new(operator, reason));
    };
    let right = match (is_path, value) {
        (true, value) => jsonpath::path(scope, value.as_str().unwrap_or_default()),
        (false, Value::String(text)) => match substitution(text) {
            Some(name) if !operator.starts_with("String") => {
                return Err(needs_value(name, "it is compared as a number or a boolean"));
            }
            Some(_) | None => literal(text),
        },
        (false, value) => Symbol::constant(value),
    };
    Ok(left.binary(Precedence::Relation, symbol, &right.cel()?))
}

fn operator_of(name: &str) -> Option<Comparison> {
    let (name, is_path) = match name.strip_suffix("Path") {
        Some(name) => (name, true),
        None => (name, false),
    };
    let of_type = ["String", "Numeric", "Boolean"].iter().find_map(|kind| name.strip_prefix(kind));
    let operator = match of_type? {
        "Equals" => "==",
        "LessThan" => "<",
        "GreaterThan" => ">",
        "LessThanEquals" => "<=",
        "GreaterThanEquals" => ">=",
        _ => return None,
    };
    Some(Comparison { operator, is_path })
}

/// `IsPresent`, `IsNull`, `IsString` and the like.
fn type_check(
    scope: &Scope,
    variable: &str,
    check: &str,
    expected: &Value,
) -> Result<Cel, Untranslatable> {
    let expected = expected.as_bool().unwrap_or(true);
    let is = match check {
        "Present" => presence(scope, variable)?,
        "Null" => jsonpath::path(scope, variable).cel()?.equals(&Cel::member("null")),
        "String" => of_type(scope, variable, "''")?,
        "Boolean" => of_type(scope, variable, "true")?,
        "Numeric" => of_type(scope, variable, "0")?.or(&of_type(scope, variable, "0.0")?),
        _ => {
            let why = "expressions cannot check it";
            return Err(Untranslatable::new(format!("Is{check}"), why));
        }
    };
    Ok(if expected { is } else { is.not() })
}

/// Whether the value has the type of this literal.
fn of_type(scope: &Scope, variable: &str, like: &str) -> Result<Cel, Untranslatable> {
    let value = jsonpath::path(scope, variable).cel()?;
    let like = Cel::call("type", &[&Cel::member(like)]);
    Ok(Cel::call("type", &[&value]).equals(&like))
}

fn presence(scope: &Scope, variable: &str) -> Result<Cel, Untranslatable> {
    let Some((root, rest)) = jsonpath::root(scope, variable) else {
        return Err(Untranslatable::new(variable, "a path starts with `$`"));
    };
    Ok(match root.presence(&jsonpath::keys(rest)?)? {
        Presence::Known(value) => Cel::member(value.to_string()),
        Presence::Test(test) => test,
    })
}

/// A pattern of `StringMatches` as a regular expression: `*` is any text, and a backslash escapes.
fn regular_expression(pattern: &str) -> String {
    let mut regex = String::from("^");
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        let c = match c {
            '*' => {
                regex.push_str("(?s:.*)");
                continue;
            }
            '\\' => chars.next().unwrap_or('\\'),
            c => c,
        };
        if c.is_ascii_punctuation() {
            regex.push('\\');
        }
        regex.push(c);
    }
    regex.push('$');
    regex
}
