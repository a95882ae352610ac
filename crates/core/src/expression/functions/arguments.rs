//! The arguments of functions, and their refusal.

use cel::{
    ExecutionError,
    common::{
        types::{CelInt, CelList, CelMap, CelString},
        value::{CowVal, Val},
    },
};

use crate::expression::numbers::Number;

/// The result of a function.
pub(super) type Evaluated<'b, 'v> = Result<CowVal<'b, 'v>, ExecutionError>;

/// The function of [`refuse`]. No expression can name it.
pub(super) const REFUSED: &str = "@refused";

/// The error that a function refuses its operands. The reason must not contain values.
pub(super) fn refuse(reason: &str) -> ExecutionError {
    ExecutionError::function_error(REFUSED, reason)
}

/// So many arguments. The interpreter has compared their number with the declaration.
pub(super) fn arguments<'b, 'v, const N: usize>(
    arguments: Vec<CowVal<'b, 'v>>,
) -> Result<[CowVal<'b, 'v>; N], ExecutionError> {
    let actual = arguments.len();
    let wrong = |_| ExecutionError::InvalidArgumentCount { expected: N, actual };
    <[_; N]>::try_from(arguments).map_err(wrong)
}

pub(super) fn unexpected(value: &dyn Val, want: &str) -> ExecutionError {
    ExecutionError::UnexpectedType {
        got: value.get_type().name().to_owned(),
        want: want.to_owned(),
    }
}

pub(super) fn text<'a>(value: &'a CowVal<'_, '_>) -> Result<&'a str, ExecutionError> {
    let text = value.downcast_ref::<CelString>().map(CelString::inner);
    text.ok_or_else(|| unexpected(value.as_ref(), "string"))
}

/// A whole number, also one that is spelled as a decimal, such as `3.0`.
pub(super) fn whole(value: &CowVal<'_, '_>) -> Result<i64, ExecutionError> {
    let whole = Number::of(value.as_ref()).and_then(Number::whole);
    whole.ok_or_else(|| unexpected(value.as_ref(), "int"))
}

pub(super) fn list<'a, 'v>(value: &'a CowVal<'_, 'v>) -> Result<&'a CelList<'v>, ExecutionError> {
    value.downcast_ref::<CelList<'v>>().ok_or_else(|| unexpected(value.as_ref(), "list"))
}

pub(super) fn map<'a, 'v>(value: &'a CowVal<'_, 'v>) -> Result<&'a CelMap<'v>, ExecutionError> {
    value.downcast_ref::<CelMap<'v>>().ok_or_else(|| unexpected(value.as_ref(), "map"))
}

pub(super) fn owned_text<'b, 'v>(text: String) -> Evaluated<'b, 'v> {
    Ok(CowVal::owned(CelString::from(text)))
}

/// -1, 0 or 1.
pub(super) fn ordering<'b, 'v>(ordering: std::cmp::Ordering) -> Evaluated<'b, 'v> {
    Ok(CowVal::owned(CelInt::from(ordering as i64)))
}
