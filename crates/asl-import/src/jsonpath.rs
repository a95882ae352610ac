//! JSONPath and the intrinsic functions of Amazon States Language, as symbols.
//!
//! State machines use a small part of JSONPath: fields, indices, and one `[*]`. The crates for JSONPath evaluate paths; here a
//! path is translated, so the part is parsed here. All other forms are reported.

use serde_json::Value;

use crate::{
    cel::{Cel, Precedence},
    scope::Scope,
    symbol::{Symbol, Untranslatable, literal},
};

/// How deep intrinsic functions nest, as in Step Functions.
const NESTING_MAX: usize = 10;

/// One step of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Segment {
    Key(String),
    Index(i64),
    All,
}

/// Parses what follows the `$` of a path.
pub(crate) fn segments(text: &str) -> Result<Vec<Segment>, String> {
    let mut segments = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix('.') {
            let end = after.find(['.', '[']).unwrap_or(after.len());
            let (key, after) = after.split_at_checked(end).unwrap_or((after, ""));
            if key.is_empty() {
                return Err("`..` searches all levels, which expressions cannot do".to_owned());
            }
            segments.push(if key == "*" { Segment::All } else { Segment::Key(key.to_owned()) });
            rest = after;
        } else if let Some(after) = rest.strip_prefix('[') {
            let (inner, after) =
                after.split_once(']').ok_or_else(|| "a `[` is never closed".to_owned())?;
            segments.push(bracket(inner.trim())?);
            rest = after;
        } else {
            return Err(format!("`{first}` is not expected in a path"));
        }
    }
    Ok(segments)
}

fn bracket(inner: &str) -> Result<Segment, String> {
    let quoted = |quote: char| inner.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
    if let Some(key) = quoted('\'').or_else(|| quoted('"')) {
        return Ok(Segment::Key(key.to_owned()));
    }
    match (inner, inner.parse()) {
        ("*", _) => Ok(Segment::All),
        (_, Ok(index)) => Ok(Segment::Index(index)),
        _ => Err(format!(
            "`[{inner}]` is a filter or a slice, which the importer does not translate"
        )),
    }
}

/// The keys of a reference path such as `$.a.b`, for `ResultPath` and `IsPresent`.
pub(crate) fn keys(path: &str) -> Result<Vec<String>, Untranslatable> {
    let text = path.strip_prefix('$').unwrap_or(path);
    let segments = segments(text).map_err(|reason| Untranslatable::new(path, reason))?;
    let key = |segment| match segment {
        Segment::Key(key) => Ok(key),
        Segment::Index(_) | Segment::All => {
            Err(Untranslatable::new(path, "the path goes into a list"))
        }
    };
    segments.into_iter().map(key).collect()
}

/// The root of a path, and what follows it.
pub(crate) fn root<'t>(scope: &Scope, path: &'t str) -> Option<(Symbol, &'t str)> {
    if let Some(rest) = path.strip_prefix("$$") {
        return Some((scope.context.clone(), rest));
    }
    let rest = path.strip_prefix('$')?;
    if rest.is_empty() || rest.starts_with(['.', '[']) {
        return Some((scope.data.clone(), rest));
    }
    let end = rest.find(['.', '[']).unwrap_or(rest.len());
    let (name, rest) = rest.split_at_checked(end)?;
    let unknown = || Symbol::unknown(path, format!("no state before this one assigns `${name}`"));
    Some((scope.variables.get(name).cloned().unwrap_or_else(unknown), rest))
}

/// The value of a path.
pub(crate) fn path(scope: &Scope, path: &str) -> Symbol {
    let Some((root, rest)) = root(scope, path) else {
        return Symbol::unknown(path, "a path starts with `$`");
    };
    match segments(rest) {
        Ok(segments) => follow(&root, &segments, path),
        Err(reason) => Symbol::unknown(path, reason),
    }
}

fn follow(root: &Symbol, segments: &[Segment], path: &str) -> Symbol {
    let Some((segment, rest)) = segments.split_first() else { return root.clone() };
    match segment {
        Segment::Key(key) => follow(&root.field(key), rest, path),
        Segment::Index(index) => follow(&root.index(*index), rest, path),
        Segment::All if rest.is_empty() => root.clone(),
        Segment::All if rest.contains(&Segment::All) => Symbol::unknown(
            path,
            "two `[*]` in one path flatten a list, which expressions cannot do",
        ),
        Segment::All => {
            let each = follow(&Symbol::path("each"), rest, path);
            match (root.cel(), each.cel()) {
                (Ok(list), Ok(each)) => Cel::member(format!(
                    "{}.map(each, {})",
                    list.within(Precedence::Member),
                    each.text
                ))
                .into(),
                (Err(why), _) | (_, Err(why)) => Symbol::Unknown(why),
            }
        }
    }
}

/// A payload template: `Parameters`, `ResultSelector`, `ItemSelector`. A key that ends in `.$` has a path or an intrinsic
/// function.
pub(crate) fn payload(scope: &Scope, template: &Value) -> Symbol {
    match template {
        Value::Object(fields) => Symbol::object(fields.iter().map(|(key, value)| {
            match (key.strip_suffix(".$"), value) {
                (Some(key), Value::String(text)) => (key.to_owned(), expression(scope, text)),
                (Some(key), other) => {
                    let why = "a key that ends in `.$` needs a path";
                    (key.to_owned(), Symbol::unknown(other.to_string(), why))
                }
                (None, value) => (key.clone(), payload(scope, value)),
            }
        })),
        Value::Array(items) => {
            Symbol::List(items.iter().map(|item| payload(scope, item)).collect())
        }
        Value::String(text) => literal(text),
        Value::Null | Value::Bool(_) | Value::Number(_) => Symbol::Scalar(template.clone()),
    }
}

/// A path or a call of an intrinsic function.
pub(crate) fn expression(scope: &Scope, text: &str) -> Symbol {
    let mut parser = Intrinsics { scope, text, rest: text.trim(), depth: 0 };
    let value = parser.argument();
    match value {
        Ok(_) if !parser.rest.trim().is_empty() => {
            Symbol::unknown(text, format!("`{}` is not expected", parser.rest.trim()))
        }
        Ok(value) => value,
        Err(why) => Symbol::Unknown(why),
    }
}

/// A parser of intrinsic functions.
struct Intrinsics<'a> {
    scope: &'a Scope,
    text: &'a str,
    rest: &'a str,
    depth: usize,
}

impl<'a> Intrinsics<'a> {
    fn error<T>(&self, reason: impl Into<String>) -> Result<T, Untranslatable> {
        Err(Untranslatable::new(self.text, reason))
    }

    fn argument(&mut self) -> Result<Symbol, Untranslatable> {
        self.rest = self.rest.trim_start();
        if self.rest.starts_with("States.") {
            return self.call();
        }
        if let Some(after) = self.rest.strip_prefix('\'') {
            return self.quoted(after);
        }
        let end = self.end_of_token();
        let (token, rest) = self.rest.split_at_checked(end).unwrap_or((self.rest, ""));
        self.rest = rest;
        let token = token.trim();
        match serde_json::from_str::<Value>(token) {
            Ok(value @ (Value::Null | Value::Bool(_) | Value::Number(_))) => {
                Ok(Symbol::Scalar(value))
            }
            Ok(Value::String(_) | Value::Array(_) | Value::Object(_)) | Err(_) => {
                Ok(path(self.scope, token))
            }
        }
    }

    /// The end of a path or a literal: a comma or a bracket outside of `[…]`.
    fn end_of_token(&self) -> usize {
        let mut brackets = 0_usize;
        for (at, c) in self.rest.char_indices() {
            match c {
                '[' => brackets += 1,
                ']' => brackets = brackets.saturating_sub(1),
                ',' | ')' if brackets == 0 => return at,
                _ => {}
            }
        }
        self.rest.len()
    }

    fn quoted(&mut self, after: &'a str) -> Result<Symbol, Untranslatable> {
        let mut text = String::new();
        let mut chars = after.char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                '\\' => match chars.next() {
                    // `States.Format` needs to know which brackets are escaped.
                    Some((_, c @ ('{' | '}'))) => text.extend(['\\', c]),
                    Some((_, c)) => text.push(c),
                    None => break,
                },
                '\'' => {
                    self.rest = after.get(at + 1..).unwrap_or("");
                    return Ok(literal(&text));
                }
                c => text.push(c),
            }
        }
        self.error("a text is never closed")
    }

    fn call(&mut self) -> Result<Symbol, Untranslatable> {
        self.depth += 1;
        if self.depth > NESTING_MAX {
            return self.error("intrinsic functions nest too deep");
        }
        let Some((name, after)) = self.rest.split_once('(') else {
            return self.error("`(` is missing after the name of the function");
        };
        let name = name.trim().strip_prefix("States.").unwrap_or(name).to_owned();
        self.rest = after.trim_start();
        let mut arguments = Vec::new();
        loop {
            if let Some(after) = self.rest.strip_prefix(')') {
                self.rest = after;
                break;
            }
            arguments.push(self.argument()?);
            self.rest = self.rest.trim_start();
            if let Some(after) = self.rest.strip_prefix(',') {
                self.rest = after.trim_start();
            } else if !self.rest.starts_with(')') {
                return self.error("`)` is missing");
            }
        }
        self.depth -= 1;
        self.apply(&name, &arguments)
    }

    fn apply(&self, name: &str, arguments: &[Symbol]) -> Result<Symbol, Untranslatable> {
        match (name, arguments) {
            (
                "Format",
                [
                    Symbol::Scalar(Value::String(format)) | Symbol::Deployed(format),
                    arguments @ ..,
                ],
            ) => self.format(format, arguments),
            ("Format", [Symbol::Unknown(why), ..]) => Err(why.clone()),
            ("Array", items) => Ok(Symbol::List(items.to_vec())),
            ("ArrayContains", [list, item]) => {
                let (list, item) = (list.cel()?, item.cel()?);
                Ok(item.binary(Precedence::Relation, "in", &list).into())
            }
            ("ArrayLength", [list]) => Ok(Cel::call("size", &[&list.cel()?]).into()),
            ("ArrayGetItem", [list, Symbol::Scalar(index)]) => {
                Ok(list.index(index.as_i64().unwrap_or(0)))
            }
            ("ArrayGetItem", [list, index]) => {
                let list = list.cel()?.within(Precedence::Member);
                Ok(Cel::member(format!("{list}[{}]", index.cel()?.text)).into())
            }
            ("MathAdd", [a, b]) => Ok(a.cel()?.binary(Precedence::Sum, "+", &b.cel()?).into()),
            ("JsonMerge", [base, Symbol::Object { fields, open: None }, ..]) => {
                let merged = fields.iter().fold(base.clone(), |merged, (key, value)| {
                    merged.with(std::slice::from_ref(key), value.clone())
                });
                Ok(merged)
            }
            ("JsonMerge", [base, over, ..]) => {
                Ok(Cel::call("maps.merge", &[&base.cel()?, &over.cel()?]).into())
            }
            ("JsonToString", [value]) => Ok(Cel::call("json.encode", &[&value.cel()?]).into()),
            ("StringToJson", [text]) => Ok(Cel::call("json.decode", &[&text.cel()?]).into()),
            ("StringSplit", [text, Symbol::Scalar(Value::String(at))]) if at.chars().count() == 1 => {
                // Step Functions leaves out empty parts.
                let (each, filled) = (Cel::member("each"), Cel::member("each != ''"));
                let parts = text.cel()?.method("split", &[&Cel::string(at)]);
                Ok(parts.method("filter", &[&each, &filled]).into())
            }
            ("ArrayRange", [first, last, Symbol::Scalar(step)]) if step == 1 => {
                Ok(Cel::range(&first.cel()?, &last.cel()?).into())
            }
            ("ArrayUnique", [list]) => Ok(list.cel()?.method("distinct", &[]).into()),
            ("Base64Encode", [text]) => Ok(Cel::call("base64.encode", &[&text.cel()?]).into()),
            ("Base64Decode", [text]) => {
                let bytes = Cel::call("base64.decode", &[&text.cel()?]);
                Ok(Cel::call("string", &[&bytes]).into())
            }
            ("Hash", [text, Symbol::Scalar(Value::String(by))]) if by == "SHA-256" => {
                Ok(Cel::call("hash.sha256", &[&text.cel()?]).into())
            }
            ("UUID", []) => Ok(self.scope.uuid().into()),
            ("MathRandom", _) => self.error(
                "`States.MathRandom` is random; expressions are deterministic. Put the value into the input",
            ),
            _ => self.error(format!("expressions have no counterpart of `States.{name}`")),
        }
    }

    /// `States.Format('a {} b', x)`.
    fn format(&self, format: &str, arguments: &[Symbol]) -> Result<Symbol, Untranslatable> {
        let (mut parts, mut text, mut used) = (Vec::new(), String::new(), arguments.iter());
        let mut chars = format.chars().peekable();
        while let Some(c) = chars.next() {
            match (c, chars.peek()) {
                ('\\', Some('{' | '}')) => text.extend(chars.next()),
                ('{', Some('}')) => {
                    chars.next();
                    let Some(argument) = used.next() else {
                        return self.error("`States.Format` has fewer arguments than `{}`");
                    };
                    if !text.is_empty() {
                        parts.push(literal(&std::mem::take(&mut text)));
                    }
                    parts.push(argument.clone());
                }
                _ => text.push(c),
            }
        }
        if used.next().is_some() {
            return self.error("`States.Format` has more arguments than `{}`");
        }
        if !text.is_empty() {
            parts.push(literal(&text));
        }
        Symbol::concatenation(&parts)
    }
}
