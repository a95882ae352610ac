//! Texts of CEL expressions, with their precedence. So brackets appear only where they are needed.

use serde_json::Value;

/// How strongly an expression binds, from the weakest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Precedence {
    Conditional,
    Or,
    And,
    Relation,
    Sum,
    Product,
    Unary,
    Member,
}

/// A CEL expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cel {
    pub(crate) text: String,
    precedence: Precedence,
}

/// Words that cannot follow a dot.
const RESERVED: [&str; 21] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "false",
    "for",
    "function",
    "if",
    "import",
    "in",
    "let",
    "loop",
    "namespace",
    "null",
    "package",
    "return",
    "true",
    "var",
    "void",
    "while",
];

/// Whether `.key` can select it.
pub(crate) fn is_identifier(key: &str) -> bool {
    let mut chars = key.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !RESERVED.contains(&key)
}

impl Cel {
    /// A name, a literal, a call, or another expression that binds most strongly.
    pub(crate) fn member(text: impl Into<String>) -> Self {
        Self { text: text.into(), precedence: Precedence::Member }
    }

    /// A literal text.
    pub(crate) fn string(text: &str) -> Self {
        let mut quoted = String::from("'");
        for c in text.chars() {
            match c {
                '\\' => quoted.push_str("\\\\"),
                '\'' => quoted.push_str("\\'"),
                '\n' => quoted.push_str("\\n"),
                '\r' => quoted.push_str("\\r"),
                '\t' => quoted.push_str("\\t"),
                c if c.is_control() => quoted.push_str(&format!("\\u{:04x}", u32::from(c))),
                c => quoted.push(c),
            }
        }
        quoted.push('\'');
        Self::member(quoted)
    }

    /// A literal of a scalar; lists and objects have no place here.
    pub(crate) fn literal(value: &Value) -> Option<Self> {
        Some(match value {
            Value::Null | Value::Bool(_) => Self::member(value.to_string()),
            Value::Number(number) => {
                let text = number.to_string();
                let precedence =
                    if text.starts_with('-') { Precedence::Unary } else { Precedence::Member };
                Self { text, precedence }
            }
            Value::String(text) => Self::string(text),
            Value::Array(_) | Value::Object(_) => return None,
        })
    }

    /// The text, in brackets if it binds more weakly than `than`.
    pub(crate) fn within(&self, than: Precedence) -> String {
        match self.precedence < than {
            true => format!("({})", self.text),
            false => self.text.clone(),
        }
    }

    /// A field of it.
    pub(crate) fn field(&self, key: &str) -> Self {
        let own = self.within(Precedence::Member);
        Self::member(match is_identifier(key) {
            true => format!("{own}.{key}"),
            false => format!("{own}[{}]", Self::string(key).text),
        })
    }

    /// An element of it. A negative index counts from the end.
    pub(crate) fn index(&self, index: i64) -> Self {
        let own = self.within(Precedence::Member);
        Self::member(match index < 0 {
            true => format!("{own}[size({}) - {}]", self.text, index.unsigned_abs()),
            false => format!("{own}[{index}]"),
        })
    }

    /// Whether it has this field.
    pub(crate) fn has(&self, key: &str) -> Self {
        let own = self.within(Precedence::Member);
        match is_identifier(key) {
            true => Self::member(format!("has({own}.{key})")),
            false => Self::string(key).binary(Precedence::Relation, "in", self),
        }
    }

    /// `self operator other`, where `precedence` is that of the operator. Operators of equal precedence associate to the
    /// left.
    pub(crate) fn binary(&self, precedence: Precedence, operator: &str, other: &Self) -> Self {
        let right = match precedence {
            Precedence::And | Precedence::Or => other.within(precedence),
            Precedence::Conditional
            | Precedence::Relation
            | Precedence::Sum
            | Precedence::Product
            | Precedence::Unary
            | Precedence::Member => match other.precedence <= precedence {
                true => format!("({})", other.text),
                false => other.text.clone(),
            },
        };
        // A comparison of comparisons needs brackets on both sides.
        let left = match precedence == Precedence::Relation && self.precedence == precedence {
            true => format!("({})", self.text),
            false => self.within(precedence),
        };
        Self { text: format!("{left} {operator} {right}"), precedence }
    }

    pub(crate) fn and(&self, other: &Self) -> Self {
        self.binary(Precedence::And, "&&", other)
    }

    pub(crate) fn or(&self, other: &Self) -> Self {
        self.binary(Precedence::Or, "||", other)
    }

    pub(crate) fn equals(&self, other: &Self) -> Self {
        self.binary(Precedence::Relation, "==", other)
    }

    pub(crate) fn not(&self) -> Self {
        Self {
            text: format!("!{}", self.within(Precedence::Member)),
            precedence: Precedence::Unary,
        }
    }

    pub(crate) fn negate(&self) -> Self {
        Self {
            text: format!("-{}", self.within(Precedence::Member)),
            precedence: Precedence::Unary,
        }
    }

    /// `self ? then : otherwise`.
    pub(crate) fn choose(&self, then: &Self, otherwise: &Self) -> Self {
        let text = format!(
            "{} ? {} : {}",
            self.within(Precedence::Or),
            then.within(Precedence::Or),
            otherwise.within(Precedence::Conditional)
        );
        Self { text, precedence: Precedence::Conditional }
    }

    /// A call of a function.
    pub(crate) fn call(name: &str, arguments: &[&Self]) -> Self {
        let arguments: Vec<_> = arguments.iter().map(|argument| argument.text.as_str()).collect();
        Self::member(format!("{name}({})", arguments.join(", ")))
    }

    /// A call of a member function.
    pub(crate) fn method(&self, name: &str, arguments: &[&Self]) -> Self {
        let own = self.within(Precedence::Member);
        Self::call(&format!("{own}.{name}"), arguments)
    }

    /// The whole numbers from `first` to `last`, both included.
    pub(crate) fn range(first: &Self, last: &Self) -> Self {
        let one = Self::member("1");
        let count = last.binary(Precedence::Sum, "-", first).binary(Precedence::Sum, "+", &one);
        let number = first.binary(Precedence::Sum, "+", &Self::member("each"));
        Self::call("lists.range", &[&count]).method("map", &[&Self::member("each"), &number])
    }

    /// Whether it reads the variable of a macro.
    pub(crate) fn is_text(&self, text: &str) -> bool {
        self.text == text
    }
}
