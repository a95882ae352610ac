//! The kinds of values that operators and functions take.

/// The kind of a value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ValueKind {
    /// Unknown.
    Any,
    /// True or false.
    Bool,
    /// A number.
    Number,
    /// A number in a division, in which no operand is certainly a decimal: 12 and 12.0 give different results.
    Divided,
    /// A number, or a text of digits such as `12.50`.
    Decimal,
    /// A text.
    Text,
    /// A text that is JSON.
    Json,
    /// A text with a time, in the form of RFC 3339.
    Time,
    /// A text with a time, in this format of strftime.
    TimeIn(String),
    /// A text with a duration or a time.
    DurationOrTime,
    /// A list.
    List,
}
