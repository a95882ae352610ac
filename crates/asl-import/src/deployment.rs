//! Substitutions of the deployment, such as `${TableName}` of AWS SAM: the constants of `env`.
//!
//! A substitution in a text becomes `${ env.TableName }`. One without quotes in JSON (`"TimeoutSeconds": ${Timeout}`) may be a
//! number, and constants without a value are texts: it needs its value at the import.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::cel::{Cel, Precedence};

/// Characters of the name of a constant.
const NAME_CHARS_MAX: usize = 40;

/// Marks the name of a substitution that had no quotes.
pub(crate) const WITHOUT_QUOTES: &str = "value:";

/// A part of a text.
#[derive(Debug, PartialEq, Eq)]
enum Part<'t> {
    Text(&'t str),
    /// The name of a substitution.
    Name(&'t str),
}

/// The text with its substitutions as the state machine has them.
pub(crate) fn as_written(text: &str) -> String {
    text.replace(&format!("${{{WITHOUT_QUOTES}"), "${")
}

/// The name of the first substitution `${Name}` in a text.
pub(crate) fn substitution(text: &str) -> Option<&str> {
    parts(text).into_iter().find_map(|part| match part {
        Part::Name(name) => Some(name),
        Part::Text(_) => None,
    })
}

fn parts(text: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let (mut from, mut at) = (0, 0);
    while let Some(start) = text.get(at..).and_then(|rest| rest.find("${")).map(|n| at + n) {
        at = start + 2;
        let Some((name, _)) = text.get(at..).and_then(|rest| rest.split_once('}')) else { break };
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | ':' | '.');
        if name.is_empty() || !name.chars().all(is_name) {
            continue;
        }
        parts.extend(text.get(from..start).filter(|text| !text.is_empty()).map(Part::Text));
        parts.push(Part::Name(name));
        at += name.len() + 1;
        from = at;
    }
    parts.extend(text.get(from..).filter(|text| !text.is_empty()).map(Part::Text));
    parts
}

/// The name of the constant for a substitution: `AWS::Region` is `AWS_Region`.
fn constant(name: &str) -> String {
    let words: Vec<_> = name.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
    let mut constant =
        words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join("_");
    if !constant.starts_with(|c: char| c.is_ascii_alphabetic()) {
        constant.insert_str(0, "x_");
    }
    constant.chars().take(NAME_CHARS_MAX).collect()
}

/// The text as an expression.
pub(crate) fn cel(text: &str) -> Cel {
    let part = |part| match part {
        Part::Text(text) => Cel::string(text),
        Part::Name(name) => Cel::member(format!("env.{}", constant(name))),
    };
    let all = parts(text).into_iter().map(part);
    let all = all.reduce(|all, part| all.binary(Precedence::Sum, "+", &part));
    all.unwrap_or_else(|| Cel::string(""))
}

/// The text as a template.
pub(crate) fn template(text: &str) -> String {
    let part = |part| match part {
        Part::Text(text) => text.replace("${", "$${"),
        Part::Name(name) => format!("${{ env.{} }}", constant(name)),
    };
    parts(text).into_iter().map(part).collect()
}

/// The substitutions in all texts of a value, by the names of their constants.
pub(crate) fn constants(value: &Value) -> BTreeMap<String, BTreeSet<String>> {
    let mut all = BTreeMap::<String, BTreeSet<String>>::new();
    for_each_text(value, &mut |text| {
        for part in parts(text) {
            if let Part::Name(name) = part {
                all.entry(constant(name)).or_default().insert(name.to_owned());
            }
        }
    });
    all
}

/// Whether a template reads this constant.
pub(crate) fn reads(template: &Value, constant: &str) -> bool {
    let name = format!("env.{constant}");
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
    let mut found = false;
    for_each_text(template, &mut |text| {
        found |= text.contains("${")
            && text.match_indices(&name).any(|(at, _)| {
                let before = text.get(..at).and_then(|before| before.chars().next_back());
                let after = text.get(at + name.len()..).and_then(|after| after.chars().next());
                !before.is_some_and(is_part) && !after.is_some_and(|c| is_part(c) && c != '.')
            });
    });
    found
}

fn for_each_text(value: &Value, read: &mut dyn FnMut(&str)) {
    match value {
        Value::String(text) => read(text),
        Value::Array(items) => items.iter().for_each(|item| for_each_text(item, read)),
        Value::Object(fields) => fields.values().for_each(|field| for_each_text(field, read)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Replaces the substitutions whose values are given.
pub(crate) fn substitute(value: &mut Value, values: &BTreeMap<String, String>) {
    match value {
        Value::String(text) => {
            let without_quotes = values.iter().find(|(name, _)| {
                text.strip_prefix("${").and_then(|text| text.strip_suffix('}'))
                    == Some(&format!("{WITHOUT_QUOTES}{name}"))
            });
            if let Some((_, given)) = without_quotes {
                let text = || Value::String(given.clone());
                *value = serde_json::from_str(given).unwrap_or_else(|_| text());
                return;
            }
            for (name, given) in values {
                let name = format!("${{{name}}}");
                if text.contains(&name) {
                    *text = text.replace(&name, given);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| substitute(item, values)),
        Value::Object(fields) => fields.values_mut().for_each(|field| substitute(field, values)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// JSON in which substitutions without quotes have quotes. Other text is returned as it is.
pub(crate) fn quoted(text: &str) -> String {
    if !text.trim_start().starts_with('{') {
        return text.to_owned();
    }
    let mut quoted = String::with_capacity(text.len());
    let (mut rest, mut is_text) = (text, false);
    while let Some(c) = rest.chars().next() {
        if !is_text
            && let Some(after) = rest.strip_prefix("${")
            && let Some((name, after)) = after.split_once('}')
            && substitution(&format!("${{{name}}}")).is_some()
        {
            quoted.push_str(&format!("\"${{{WITHOUT_QUOTES}{name}}}\""));
            rest = after;
            continue;
        }
        let mut end = c.len_utf8();
        match c {
            '"' => is_text = !is_text,
            '\\' if is_text => {
                end += rest.get(1..).and_then(|rest| rest.chars().next()).map_or(0, char::len_utf8)
            }
            _ => {}
        }
        let (taken, after) = rest.split_at_checked(end).unwrap_or((rest, ""));
        quoted.push_str(taken);
        rest = after;
    }
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn substitutions_in_a_text_become_constants() {
        assert_eq!(template("a-${Stage}-${AWS::Region}"), "a-${ env.Stage }-${ env.AWS_Region }");
        assert_eq!(cel("a-${Stage}").text, "'a-' + env.Stage");
        assert_eq!(template("${}${a b}${Name"), "$${}$${a b}$${Name");
        assert_eq!(constant("1.a-b"), "x_1_a_b");
    }

    #[test]
    fn only_substitutions_outside_of_texts_get_quotes() {
        let text = r#"{ "a": ${X}, "b\"": "${Y} \" ${Z}", "c": [${X}] }"#;
        let expected = r#"{ "a": "${value:X}", "b\"": "${Y} \" ${Z}", "c": ["${value:X}"] }"#;
        assert_eq!(quoted(text), expected);
        assert_eq!(quoted("a: ${X}"), "a: ${X}");
    }

    #[test]
    fn a_template_reads_a_constant_by_its_whole_name() {
        let reads = |text: &str| reads(&Value::String(text.to_owned()), "Table");
        assert!(reads("${ env.Table }") && reads("${ 'a' + env.Table.b }"));
        assert!(!reads("${ env.TableName }") && !reads("${ my.env.Table }") && !reads("env.Table"));
    }
}
