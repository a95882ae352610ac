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
    ExecutionError,
    common::{
        types::{CelDouble, CelInt, CelString, CelUInt, LIST_TYPE},
        value::{CowVal, Val},
    },
};

use super::arguments::{Evaluated, arguments, ordering, owned_text, refuse, whole};
use crate::limits;

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
    let text = text_of(value).filter(|text| is_plain(text)).ok_or_else(|| refuse(NO_DECIMAL))?;
    if text.len() > limits::DECIMAL_CHARS_MAX {
        return Err(refuse(TOO_LONG));
    }
    BigDecimal::from_str(&text).map_err(|_| refuse(NO_DECIMAL))
}

/// The decimal with so many places, which are at least those that it has.
fn written<'b, 'v>(decimal: &BigDecimal, places: i64) -> Evaluated<'b, 'v> {
    let text = decimal.with_scale(places).to_plain_string();
    if text.len() > limits::DECIMAL_CHARS_MAX {
        return Err(refuse(TOO_LONG));
    }
    owned_text(text)
}

fn places(decimal: &BigDecimal) -> i64 {
    decimal.fractional_digit_count()
}

fn pair(values: Vec<CowVal<'_, '_>>) -> Result<(BigDecimal, BigDecimal), ExecutionError> {
    let [left, right] = arguments(values)?;
    Ok((read(left.as_ref())?, read(right.as_ref())?))
}

pub(super) fn add<'b, 'v>(values: Vec<CowVal<'b, 'v>>) -> Evaluated<'b, 'v> {
    let (left, right) = pair(values)?;
    let places = places(&left).max(places(&right));
    written(&(left + right), places)
}

pub(super) fn subtract<'b, 'v>(values: Vec<CowVal<'b, 'v>>) -> Evaluated<'b, 'v> {
    let (left, right) = pair(values)?;
    let places = places(&left).max(places(&right));
    written(&(left - right), places)
}

pub(super) fn multiply<'b, 'v>(values: Vec<CowVal<'b, 'v>>) -> Evaluated<'b, 'v> {
    let (left, right) = pair(values)?;
    let places = places(&left) + places(&right);
    written(&(left * right), places)
}

pub(super) fn compare<'b, 'v>(values: Vec<CowVal<'b, 'v>>) -> Evaluated<'b, 'v> {
    let (left, right) = pair(values)?;
    ordering(left.cmp(&right))
}

pub(super) fn sum<'b, 'v>(values: Vec<CowVal<'b, 'v>>) -> Evaluated<'b, 'v> {
    let [list] = arguments(values)?;
    let list = Some(list.as_ref()).filter(|list| list.get_type().name() == LIST_TYPE.name());
    let list = list.and_then(|list| list.as_iterable()).ok_or_else(|| refuse(NO_LIST))?;
    let (mut sum, mut most, mut items) = (BigDecimal::from(0), 0, list.iter());
    while let Some(item) = items.next() {
        let item = read(item)?;
        most = most.max(places(&item));
        sum += item;
    }
    written(&sum, most)
}

pub(super) fn round<'b, 'v>(values: Vec<CowVal<'b, 'v>>) -> Evaluated<'b, 'v> {
    let [decimal, places, mode] = arguments(values)?;
    let places =
        whole(&places).ok().filter(|places| (0..=limits::DECIMAL_PLACES_MAX).contains(places));
    let mode = mode.as_ref().downcast_ref::<CelString>().map(|mode| mode.inner().to_owned());
    let mode = MODES.iter().find(|(name, _)| mode.as_deref() == Some(name));
    let decimal = read(decimal.as_ref())?;
    let places = places.ok_or_else(|| refuse(NO_PLACES))?;
    let (_, mode) = mode.ok_or_else(|| refuse(NO_MODE))?;
    written(&decimal.with_scale_round(places, *mode), places)
}
