//! Decimals for money: texts of digits, such as `"12.50"`, that JSON carries without loss. Results are exact; only `decimal.round` rounds,
//! and it names how.
//!
//! | function | result |
//! | --- | --- |
//! | `decimal.add(a, b)`, `decimal.subtract(a, b)`, `decimal.multiply(a, b)` | the exact result, as a text |
//! | `decimal.sum(list)` | the exact sum, `"0"` of an empty list |
//! | `decimal.compare(a, b)` | -1, 0 or 1 |
//! | `decimal.round(a, places, mode)` | `a` with so many decimal places |
//!
//! An operand is a text of digits, or a number of JSON. A result has as many decimal places as the operand with the most, and a product
//! as many as both together.

use std::str::FromStr;

use bigdecimal::{BigDecimal, RoundingMode};
use cel::{
    Env, ExecutionError,
    common::{
        functions::Function,
        types::{CelDouble, CelInt, CelString, CelUInt, DYN_TYPE, LIST_TYPE},
        value::{CowVal, Val},
    },
};

use crate::limits;

/// The name before the dot.
pub(super) const NAMESPACE: &str = "decimal";

/// The functions, with the number of their arguments.
const FUNCTIONS: [(&str, usize, Function); 6] = [
    ("decimal.add", 2, add),
    ("decimal.subtract", 2, subtract),
    ("decimal.multiply", 2, multiply),
    ("decimal.sum", 1, sum),
    ("decimal.compare", 2, compare),
    ("decimal.round", 3, round),
];

const MODES: [(&str, RoundingMode); 7] = [
    ("half_even", RoundingMode::HalfEven),
    ("half_up", RoundingMode::HalfUp),
    ("half_down", RoundingMode::HalfDown),
    ("up", RoundingMode::Up),
    ("down", RoundingMode::Down),
    ("ceiling", RoundingMode::Ceiling),
    ("floor", RoundingMode::Floor),
];

const NO_DECIMAL: &str =
    "an operand of `decimal` is neither a number nor a text of digits such as \"12.50\"";
const NO_LIST: &str = "`decimal.sum` needs a list";
const TOO_LONG: &str = "a decimal has more than 100 characters";
const NO_PLACES: &str = "the decimal places must be a whole number from 0 to 20";
const NO_MODE: &str =
    "the mode of `decimal.round` must be half_even, half_up, half_down, up, down, ceiling or floor";

type Evaluated<'b, 'v> = Result<CowVal<'b, 'v>, ExecutionError>;

/// Adds the functions to an environment.
pub(super) fn declare(environment: &mut Env) {
    for (name, arguments, function) in FUNCTIONS {
        let types = (0..arguments).map(|_| DYN_TYPE).collect();
        let added = environment.add_overload(name, name, types, function);
        debug_assert!(added.is_ok(), "{added:?}");
    }
}

/// The number of arguments of the function with this name after the dot, if there is one.
pub(super) fn arity(name: &str) -> Option<usize> {
    let after_dot = |known: &str| known.split_once('.').is_some_and(|(_, known)| known == name);
    FUNCTIONS.iter().find(|(known, ..)| after_dot(known)).map(|(_, arguments, _)| *arguments)
}

/// The reason in an error of these functions, if it is one. It contains no value.
pub(super) fn reason(error: &ExecutionError) -> Option<&'static str> {
    let ExecutionError::FunctionError { function, message } = error else { return None };
    let reasons = [NO_DECIMAL, NO_LIST, TOO_LONG, NO_PLACES, NO_MODE];
    reasons.into_iter().find(|reason| function == NAMESPACE && message == reason)
}

fn error(reason: &str) -> ExecutionError {
    ExecutionError::function_error(NAMESPACE, reason)
}

fn text_of(value: &dyn Val) -> Option<String> {
    let text = value.downcast_ref::<CelString>().map(|text| text.inner().to_owned());
    let int = || value.downcast_ref::<CelInt>().map(|int| int.inner().to_string());
    let uint = || value.downcast_ref::<CelUInt>().map(|uint| uint.inner().to_string());
    // The shortest text that stands for the same number: 12.5 as in JSON.
    let double = || value.downcast_ref::<CelDouble>().map(|double| double.inner().to_string());
    text.or_else(int).or_else(uint).or_else(double)
}

fn is_plain(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let (whole, places) = digits.split_once('.').unwrap_or((digits, "0"));
    let are_digits = |text: &str| !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
    are_digits(whole) && are_digits(places)
}

fn read(value: &dyn Val) -> Result<BigDecimal, ExecutionError> {
    let text = text_of(value).filter(|text| is_plain(text)).ok_or_else(|| error(NO_DECIMAL))?;
    if text.len() > limits::DECIMAL_CHARS_MAX {
        return Err(error(TOO_LONG));
    }
    BigDecimal::from_str(&text).map_err(|_| error(NO_DECIMAL))
}

/// The decimal with so many places, which are at least those that it has.
fn written<'b, 'v>(decimal: &BigDecimal, places: i64) -> Evaluated<'b, 'v> {
    let text = decimal.with_scale(places).to_plain_string();
    if text.len() > limits::DECIMAL_CHARS_MAX {
        return Err(error(TOO_LONG));
    }
    Ok(CowVal::owned(CelString::from(text)))
}

fn places(decimal: &BigDecimal) -> i64 {
    decimal.fractional_digit_count()
}

/// So many arguments. The interpreter has compared their number with the declaration.
fn arguments<'b, 'v, const N: usize>(
    arguments: Vec<CowVal<'b, 'v>>,
) -> Result<[CowVal<'b, 'v>; N], ExecutionError> {
    let actual = arguments.len();
    let wrong = |_| ExecutionError::InvalidArgumentCount { expected: N, actual };
    <[_; N]>::try_from(arguments).map_err(wrong)
}

fn pair(values: Vec<CowVal<'_, '_>>) -> Result<(BigDecimal, BigDecimal), ExecutionError> {
    let [left, right] = arguments(values)?;
    Ok((read(left.as_ref())?, read(right.as_ref())?))
}

fn add<'b, 'v>(values: Vec<CowVal<'b, 'v>>) -> Evaluated<'b, 'v> {
    let (left, right) = pair(values)?;
    let places = places(&left).max(places(&right));
    written(&(left + right), places)
}

fn subtract<'b, 'v>(values: Vec<CowVal<'b, 'v>>) -> Evaluated<'b, 'v> {
    let (left, right) = pair(values)?;
    let places = places(&left).max(places(&right));
    written(&(left - right), places)
}

fn multiply<'b, 'v>(values: Vec<CowVal<'b, 'v>>) -> Evaluated<'b, 'v> {
    let (left, right) = pair(values)?;
    let places = places(&left) + places(&right);
    written(&(left * right), places)
}

fn compare<'b, 'v>(values: Vec<CowVal<'b, 'v>>) -> Evaluated<'b, 'v> {
    let (left, right) = pair(values)?;
    Ok(CowVal::owned(CelInt::from(left.cmp(&right) as i64)))
}

fn sum<'b, 'v>(values: Vec<CowVal<'b, 'v>>) -> Evaluated<'b, 'v> {
    let [list] = arguments(values)?;
    let list = Some(list.as_ref()).filter(|list| list.get_type().name() == LIST_TYPE.name());
    let list = list.and_then(|list| list.as_iterable()).ok_or_else(|| error(NO_LIST))?;
    let (mut sum, mut most, mut items) = (BigDecimal::from(0), 0, list.iter());
    while let Some(item) = items.next() {
        let item = read(item)?;
        most = most.max(places(&item));
        sum += item;
    }
    written(&sum, most)
}

fn round<'b, 'v>(values: Vec<CowVal<'b, 'v>>) -> Evaluated<'b, 'v> {
    let [decimal, places, mode] = arguments(values)?;
    let places = places.as_ref().downcast_ref::<CelInt>().map(|places| *places.inner());
    let places = places.filter(|places| (0..=limits::DECIMAL_PLACES_MAX).contains(places));
    let mode = mode.as_ref().downcast_ref::<CelString>().map(|mode| mode.inner().to_owned());
    let mode = MODES.iter().find(|(name, _)| mode.as_deref() == Some(name));
    let decimal = read(decimal.as_ref())?;
    let places = places.ok_or_else(|| error(NO_PLACES))?;
    let (_, mode) = mode.ok_or_else(|| error(NO_MODE))?;
    written(&decimal.with_scale_round(places, *mode), places)
}
