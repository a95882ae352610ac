//! The kinds of values that operators and functions take.

/// The kind of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ValueKind {
    /// Unknown.
    Any,
    /// True or false.
    Bool,
    /// A number.
    Number,
    /// A number in a division, in which no operand is certainly a decimal: 12 and 12.0 give different results.
    Divided,
    /// A text.
    Text,
    /// A text with a time, in the form of RFC 3339.
    Time,
    /// A text with a duration or a time.
    DurationOrTime,
    /// A list.
    List,
}
