//! What the data of a state machine is in terms of a Steward task: constants, expressions over `input` and `steps`, and
//! objects put together from them.
//!
//! A state machine passes one document from state to state, and each state changes it. A Steward step reads the input of the
//! task and the outputs of earlier steps. So the importer tracks for each state what the document is. For example,
//! `ResultPath: $.charge` makes it *the input, with `charge` = `steps.charge.output`*.

use indexmap::IndexMap;
use serde_json::{Map, Value};

use crate::{
    cel::{Cel, Precedence},
    deployment,
};

/// Nodes of one symbol. Each join of branches may double it.
const NODES_MAX: usize = 2_000;

/// A symbolic JSON value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Symbol {
    /// A constant without parts: null, a boolean, a number or a text.
    Scalar(Value),
    /// An expression.
    Cel(Cel),
    /// An object with these fields. If it is open, it has more fields, which Steward does not know.
    Object { fields: IndexMap<String, Symbol>, open: Option<String> },
    /// A list.
    List(Vec<Symbol>),
    /// An object with all fields of `base`, of which some are replaced or added.
    Merged { base: Box<Symbol>, fields: IndexMap<String, Symbol> },
    /// One of two values.
    Either { condition: Cel, then: Box<Symbol>, otherwise: Box<Symbol> },
    /// A field that may be absent, and the test whether it is present.
    Maybe { value: Cel, has: Cel },
    /// A text with substitutions of the deployment, such as `orders-${Stage}`. Each becomes a constant in `env`.
    Deployed(String),
    /// A value that cannot be said.
    Unknown(Untranslatable),
}

/// What cannot be said, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Untranslatable {
    /// The text in the state machine.
    pub(crate) original: String,
    /// Why, for people.
    pub(crate) reason: String,
    /// Whether a decision of a person is enough.
    pub(crate) is_decision: bool,
}

impl Untranslatable {
    pub(crate) fn new(original: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { original: original.into(), reason: reason.into(), is_decision: false }
    }
}

/// A text of the state machine that no expression is in. It may contain substitutions of the deployment.
pub(crate) fn literal(text: &str) -> Symbol {
    match deployment::substitution(text) {
        None => Symbol::Scalar(Value::String(text.to_owned())),
        Some(name) => match name.strip_prefix(deployment::WITHOUT_QUOTES) {
            Some(name) => {
                Symbol::Unknown(needs_value(name, "it has no quotes, so it may be a number"))
            }
            None => Symbol::Deployed(text.to_owned()),
        },
    }
}

/// A place needs the value of a substitution at the import.
pub(crate) fn needs_value(name: &str, why: &str) -> Untranslatable {
    let name = name.trim_start_matches(deployment::WITHOUT_QUOTES);
    Untranslatable {
        original: format!("${{{name}}}"),
        reason: format!("{why}; give its value with `--set {name}=VALUE`"),
        is_decision: true,
    }
}

impl From<Cel> for Symbol {
    fn from(cel: Cel) -> Self {
        Self::Cel(cel)
    }
}

impl Symbol {
    /// An expression that is a path, such as `input.amount`.
    pub(crate) fn path(text: &str) -> Self {
        Self::Cel(Cel::member(text))
    }

    pub(crate) fn unknown(original: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Unknown(Untranslatable::new(original, reason))
    }

    /// A constant.
    pub(crate) fn constant(value: &Value) -> Self {
        match value {
            Value::Array(items) => Self::List(items.iter().map(Self::constant).collect()),
            Value::Object(fields) => {
                Self::object(fields.iter().map(|(key, value)| (key.clone(), Self::constant(value))))
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                Self::Scalar(value.clone())
            }
        }
    }

    /// An object with exactly these fields.
    pub(crate) fn object(fields: impl IntoIterator<Item = (String, Self)>) -> Self {
        Self::Object { fields: fields.into_iter().collect(), open: None }
    }

    /// An object with these fields and others, which are not available; `why` says why.
    pub(crate) fn open_object<const N: usize>(fields: [(&str, Self); N], why: &str) -> Self {
        let fields = fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        Self::Object { fields, open: Some(why.to_owned()) }
    }

    /// A field.
    pub(crate) fn field(&self, key: &str) -> Self {
        match self {
            Self::Scalar(_) | Self::List(_) | Self::Deployed(_) => {
                Self::unknown(key, format!("a constant here has no field `{key}`"))
            }
            Self::Cel(cel) | Self::Maybe { value: cel, .. } => cel.field(key).into(),
            Self::Object { fields, open } => match (fields.get(key), open) {
                (Some(value), _) => value.clone(),
                (None, Some(why)) => Self::unknown(key, format!("`{key}` is not available: {why}")),
                (None, None) => {
                    Self::unknown(key, format!("the object at this place has no field `{key}`"))
                }
            },
            Self::Merged { base, fields } => {
                fields.get(key).cloned().unwrap_or_else(|| base.field(key))
            }
            Self::Either { condition, then, otherwise } => {
                Self::either(condition, then.field(key), otherwise.field(key))
            }
            Self::Unknown(why) => Self::Unknown(why.clone()),
        }
    }

    /// A field of an object that has other fields, too: it may be absent.
    fn field_or_none(&self, key: &str) -> Self {
        match self {
            Self::Cel(cel) | Self::Maybe { value: cel, .. } => {
                Self::Maybe { value: cel.field(key), has: cel.has(key) }
            }
            Self::Scalar(_)
            | Self::Object { .. }
            | Self::List(_)
            | Self::Merged { .. }
            | Self::Either { .. }
            | Self::Deployed(_)
            | Self::Unknown(_) => self.field(key),
        }
    }

    /// An element of a list.
    pub(crate) fn index(&self, index: i64) -> Self {
        match self {
            Self::List(items) => {
                let len = i64::try_from(items.len()).unwrap_or(i64::MAX);
                let at = if index < 0 { len.saturating_add(index) } else { index };
                let item = usize::try_from(at).ok().and_then(|at| items.get(at));
                item.cloned().unwrap_or_else(|| {
                    Self::unknown(format!("[{index}]"), format!("the list has no element {index}"))
                })
            }
            Self::Cel(cel) | Self::Maybe { value: cel, .. } => cel.index(index).into(),
            Self::Either { condition, then, otherwise } => {
                Self::either(condition, then.index(index), otherwise.index(index))
            }
            Self::Unknown(why) => Self::Unknown(why.clone()),
            Self::Scalar(_) | Self::Object { .. } | Self::Merged { .. } | Self::Deployed(_) => {
                Self::unknown(format!("[{index}]"), "the value at this place is not a list")
            }
        }
    }

    /// The value with `value` at this path of keys.
    pub(crate) fn with(&self, path: &[String], value: Self) -> Self {
        let Some((key, rest)) = path.split_first() else { return value };
        let inner = |old: Option<Self>| match rest {
            [] => value.clone(),
            rest => old.unwrap_or_else(|| Self::object([])).with(rest, value.clone()),
        };
        match self {
            Self::Object { fields, open } => {
                let mut fields = fields.clone();
                let new = inner(fields.get(key).cloned());
                fields.insert(key.clone(), new);
                Self::Object { fields, open: open.clone() }
            }
            Self::Cel(_) | Self::Maybe { .. } => {
                let fields = [(key.clone(), inner(Some(self.field(key))))].into_iter().collect();
                Self::Merged { base: Box::new(self.clone()), fields }
            }
            Self::Merged { base, fields } => {
                let mut fields = fields.clone();
                let old = fields.get(key).cloned().unwrap_or_else(|| base.field(key));
                fields.insert(key.clone(), inner(Some(old)));
                Self::Merged { base: base.clone(), fields }
            }
            Self::Either { condition, then, otherwise } => Self::Either {
                condition: condition.clone(),
                then: Box::new(then.with(path, value.clone())),
                otherwise: Box::new(otherwise.with(path, value)),
            },
            Self::Unknown(why) => {
                // The rest is unknown, but the new field can be read.
                let fields = [(key.clone(), inner(None))].into_iter().collect();
                Self::Merged { base: Box::new(Self::Unknown(why.clone())), fields }
            }
            Self::Scalar(_) | Self::List(_) | Self::Deployed(_) => {
                Self::unknown(key, "a field is set in a value that is not an object")
            }
        }
    }

    /// `then` if the condition holds, else `otherwise`. Fields that are equal in both do not depend on the condition.
    pub(crate) fn either(condition: &Cel, then: Self, otherwise: Self) -> Self {
        if then == otherwise {
            return then;
        }
        let merged = |then: &IndexMap<String, Self>,
                      otherwise: &IndexMap<String, Self>,
                      base: Option<&Self>| {
            let keys = then.keys().chain(otherwise.keys().filter(|key| !then.contains_key(*key)));
            let of = |fields: &IndexMap<String, Self>, key: &String| {
                fields.get(key).cloned().or_else(|| base.map(|base| base.field_or_none(key)))
            };
            keys.map(|key| {
                let (a, b) = (of(then, key)?, of(otherwise, key)?);
                Some((key.clone(), Self::either(condition, a, b)))
            })
            .collect::<Option<IndexMap<_, _>>>()
        };
        let joined = match (&then, &otherwise) {
            (Self::Object { fields: a, open: x }, Self::Object { fields: b, open: y })
                if x == y =>
            {
                merged(a, b, None).map(|fields| Self::Object { fields, open: x.clone() })
            }
            (Self::Merged { base: x, fields: a }, Self::Merged { base: y, fields: b })
                if x == y =>
            {
                merged(a, b, Some(x)).map(|fields| Self::Merged { base: x.clone(), fields })
            }
            (Self::Merged { base, fields }, other) if **base == *other => {
                merged(fields, &IndexMap::new(), Some(base))
                    .map(|fields| Self::Merged { base: base.clone(), fields })
            }
            (other, Self::Merged { base, fields }) if **base == *other => {
                merged(&IndexMap::new(), fields, Some(base))
                    .map(|fields| Self::Merged { base: base.clone(), fields })
            }
            _ => None,
        };
        let joined = joined.unwrap_or_else(|| Self::Either {
            condition: condition.clone(),
            then: Box::new(then),
            otherwise: Box::new(otherwise),
        });
        match joined.nodes() > NODES_MAX {
            true => Self::unknown("$", "the data depends on too many choices"),
            false => joined,
        }
    }

    fn nodes(&self) -> usize {
        match self {
            Self::Scalar(_)
            | Self::Cel(_)
            | Self::Maybe { .. }
            | Self::Deployed(_)
            | Self::Unknown(_) => 1,
            Self::Object { fields, .. } => 1 + fields.values().map(Self::nodes).sum::<usize>(),
            Self::List(items) => 1 + items.iter().map(Self::nodes).sum::<usize>(),
            Self::Merged { base, fields } => {
                1 + base.nodes() + fields.values().map(Self::nodes).sum::<usize>()
            }
            Self::Either { then, otherwise, .. } => 1 + then.nodes() + otherwise.nodes(),
        }
    }

    /// Whether there is a value at this path of keys. A value on the way to it may be absent, too.
    pub(crate) fn presence(&self, path: &[String]) -> Result<Presence, Untranslatable> {
        let Some((key, rest)) = path.split_first() else { return Ok(self.own_presence()) };
        match self {
            Self::Maybe { value, has } => match Self::Cel(value.clone()).presence(path)? {
                Presence::Known(false) => Ok(Presence::Known(false)),
                Presence::Known(true) => Ok(Presence::Test(has.clone())),
                Presence::Test(inner) => Ok(Presence::Test(has.and(&inner))),
            },
            Self::Scalar(_) | Self::List(_) | Self::Deployed(_) => Ok(Presence::Known(false)),
            Self::Object { fields, open } => match (fields.get(key), open) {
                (Some(value), _) => value.presence(rest),
                (None, None) => Ok(Presence::Known(false)),
                (None, Some(why)) => Err(Untranslatable::new(key, why)),
            },
            Self::Merged { base, fields } => match fields.get(key) {
                Some(value) => value.presence(rest),
                None => base.presence(path),
            },
            Self::Cel(cel) => {
                let own = cel.has(key);
                match Self::Cel(cel.field(key)).presence(rest)? {
                    Presence::Known(true) => Ok(Presence::Test(own)),
                    Presence::Known(false) => Ok(Presence::Known(false)),
                    Presence::Test(inner) => Ok(Presence::Test(own.and(&inner))),
                }
            }
            Self::Either { condition, then, otherwise } => {
                Ok(Presence::either(condition, then.presence(path)?, otherwise.presence(path)?))
            }
            Self::Unknown(why) => Err(why.clone()),
        }
    }

    /// Whether the value itself is present.
    fn own_presence(&self) -> Presence {
        match self {
            Self::Maybe { has, .. } => Presence::Test(has.clone()),
            Self::Either { condition, then, otherwise } => {
                Presence::either(condition, then.own_presence(), otherwise.own_presence())
            }
            Self::Scalar(_)
            | Self::Cel(_)
            | Self::Object { .. }
            | Self::List(_)
            | Self::Merged { .. }
            | Self::Deployed(_)
            | Self::Unknown(_) => Presence::Known(true),
        }
    }

    /// The value as one expression.
    ///
    /// # Errors
    /// A part of it cannot be said.
    pub(crate) fn cel(&self) -> Result<Cel, Untranslatable> {
        match self {
            Self::Scalar(value) => Ok(Cel::literal(value).unwrap_or_else(|| Cel::member("null"))),
            Self::Cel(cel) | Self::Maybe { value: cel, .. } => Ok(cel.clone()),
            Self::Object { fields, .. } => {
                let fields = fields.iter().map(|(key, value)| {
                    Ok(format!("{}: {}", Cel::string(key).text, value.cel()?.text))
                });
                let fields = fields.collect::<Result<Vec<_>, _>>()?;
                Ok(Cel::member(format!("{{{}}}", fields.join(", "))))
            }
            Self::List(items) => {
                let items = items.iter().map(|item| Ok(item.cel()?.text));
                let items = items.collect::<Result<Vec<_>, Untranslatable>>()?;
                Ok(Cel::member(format!("[{}]", items.join(", "))))
            }
            Self::Merged { base, fields } => {
                // Where Step Functions makes the object around a new field, an expression would fail.
                if fields.values().any(|field| matches!(field, Self::Merged { .. })) {
                    return Err(unmergeable(base, fields));
                }
                base.merged_with(fields)
            }
            Self::Either { condition, then, otherwise } => {
                Ok(condition.choose(&then.cel()?, &otherwise.cel()?))
            }
            Self::Deployed(text) => Ok(deployment::cel(text)),
            Self::Unknown(why) => Err(why.clone()),
        }
    }

    /// The value with other fields. A field that has its own value in some cases is absent if it is absent there.
    fn merged_with(&self, fields: &IndexMap<String, Self>) -> Result<Cel, Untranslatable> {
        let is_own = |key: &String, value: &Self| value.has_part(&self.field_or_none(key));
        let (own, new): (IndexMap<_, _>, IndexMap<_, _>) =
            fields.clone().into_iter().partition(|(key, value)| is_own(key, value));
        let mut merged = self.cel()?;
        if !new.is_empty() {
            merged = Cel::call("maps.merge", &[&merged, &Self::object(new).cel()?]);
        }
        for (key, value) in own {
            let field = value.unless(&self.field_or_none(&key), &key)?;
            merged = Cel::call("maps.merge", &[&merged, &field]);
        }
        Ok(merged)
    }

    /// Whether this is one of the values.
    fn has_part(&self, part: &Self) -> bool {
        match self {
            Self::Either { then, otherwise, .. } => then.has_part(part) || otherwise.has_part(part),
            Self::Maybe { .. } => self == part,
            Self::Scalar(_)
            | Self::Cel(_)
            | Self::Object { .. }
            | Self::List(_)
            | Self::Merged { .. }
            | Self::Deployed(_)
            | Self::Unknown(_) => false,
        }
    }

    /// An object with the value as its field, but without it where it is `old`.
    fn unless(&self, old: &Self, key: &str) -> Result<Cel, Untranslatable> {
        if let Self::Either { condition, then, otherwise } = self {
            return Ok(condition.choose(&then.unless(old, key)?, &otherwise.unless(old, key)?));
        }
        match self == old {
            true => Ok(Cel::member("{}")),
            false => Self::object([(key.to_owned(), self.clone())]).cel(),
        }
    }

    /// The value as a template of a definition. What cannot be said is given to `mark`, which returns its placeholder.
    pub(crate) fn template(&self, mark: &mut dyn FnMut(&Untranslatable) -> String) -> Value {
        match self {
            Self::Scalar(Value::String(text)) => Value::String(text.replace("${", "$${")),
            Self::Scalar(value) => value.clone(),
            Self::Deployed(text) => Value::String(deployment::template(text)),
            Self::Object { fields, .. } => {
                let fields = fields.iter().map(|(key, value)| (key.clone(), value.template(mark)));
                Value::Object(fields.collect::<Map<_, _>>())
            }
            Self::List(items) => {
                Value::Array(items.iter().map(|item| item.template(mark)).collect())
            }
            Self::Cel(_)
            | Self::Maybe { .. }
            | Self::Merged { .. }
            | Self::Either { .. }
            | Self::Unknown(_) => match self.cel() {
                Ok(cel) => Value::String(format!("${{ {} }}", cel.text)),
                Err(why) => Value::String(format!("${{ {} }}", mark(&why))),
            },
        }
    }

    /// As text in a concatenation.
    pub(crate) fn as_text(&self) -> Result<Cel, Untranslatable> {
        if let Self::Scalar(Value::String(text)) = self {
            return Ok(Cel::string(text));
        }
        if let Self::Deployed(text) = self {
            return Ok(deployment::cel(text));
        }
        Ok(Cel::call("string", &[&self.cel()?]))
    }

    /// The texts of `parts`, one after the other.
    pub(crate) fn concatenation(parts: &[Self]) -> Result<Self, Untranslatable> {
        let mut all: Option<Cel> = None;
        for part in parts {
            let text = part.as_text()?;
            all = Some(match all {
                None => text,
                Some(before) => before.binary(Precedence::Sum, "+", &text),
            });
        }
        Ok(all.map_or_else(|| Self::Scalar(Value::String(String::new())), Self::Cel))
    }
}

/// Whether a value is present: known at the import, or an expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Presence {
    Known(bool),
    Test(Cel),
}

impl Presence {
    fn either(condition: &Cel, then: Self, otherwise: Self) -> Self {
        if then == otherwise {
            return then;
        }
        Self::Test(condition.choose(&then.cel(), &otherwise.cel()))
    }

    fn cel(self) -> Cel {
        match self {
            Self::Known(value) => Cel::member(value.to_string()),
            Self::Test(test) => test,
        }
    }
}

fn unmergeable(base: &Symbol, fields: &IndexMap<String, Symbol>) -> Untranslatable {
    let names: Vec<_> = fields.keys().map(|key| format!("`{key}`")).collect();
    let base = match base {
        Symbol::Cel(cel) | Symbol::Maybe { value: cel, .. } => format!("`{}`", cel.text),
        Symbol::Unknown(why) => return why.clone(),
        Symbol::Scalar(_)
        | Symbol::Object { .. }
        | Symbol::List(_)
        | Symbol::Merged { .. }
        | Symbol::Deployed(_)
        | Symbol::Either { .. } => "an object".to_owned(),
    };
    let reason = format!(
        "the whole of {base} with a field inside of {} added, which may be absent: list the fields that are needed",
        names.join(", ")
    );
    Untranslatable { original: "$".to_owned(), reason, is_decision: true }
}
