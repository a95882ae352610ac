//! The rounding of numbers. That of CEL depends on how a number is spelled: `math.ceil(12)` would fail, while
//! `math.ceil(12.0)` works.

use cel::common::{types::CelDouble, value::CowVal};

use super::arguments::{Evaluated, arguments, unexpected};
use crate::expression::numbers::Number;

/// A decimal without a fraction, of a number of either spelling.
fn rounded<'b, 'v>(values: Vec<CowVal<'b, 'v>>, round: fn(f64) -> f64) -> Evaluated<'b, 'v> {
    let [of] = arguments(values)?;
    let number = Number::of(of.as_ref()).ok_or_else(|| unexpected(of.as_ref(), "double"))?;
    Ok(CowVal::owned(CelDouble::from(round(number.decimal()))))
}

pub(super) fn ceil<'b, 'v>(values: Vec<CowVal<'b, 'v>>) -> Evaluated<'b, 'v> {
    rounded(values, f64::ceil)
}

pub(super) fn floor<'b, 'v>(values: Vec<CowVal<'b, 'v>>) -> Evaluated<'b, 'v> {
    rounded(values, f64::floor)
}

pub(super) fn round<'b, 'v>(values: Vec<CowVal<'b, 'v>>) -> Evaluated<'b, 'v> {
    rounded(values, f64::round)
}

pub(super) fn trunc<'b, 'v>(values: Vec<CowVal<'b, 'v>>) -> Evaluated<'b, 'v> {
    rounded(values, f64::trunc)
}
