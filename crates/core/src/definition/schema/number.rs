//! Exact comparisons and divisions of JSON numbers.

use std::cmp::Ordering;

use serde_json::Number;

/// A number as `digits` times a power of ten. `digits` do not end with a zero, except for 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Decimal {
    digits: i128,
    exponent: i32,
}

impl Decimal {
    /// Reads a number: a whole one below 1e30 exactly, as `compare` does, another float with the fewest digits that denote it.
    pub(super) fn of(number: &Number) -> Option<Self> {
        let (mut digits, mut exponent) = match whole(number) {
            Some(whole) => (whole, 0),
            None => Self::read(&number.to_string())?,
        };
        if digits == 0 {
            exponent = 0;
        }
        while digits != 0 && digits % 10 == 0 {
            digits /= 10;
            exponent += 1;
        }
        Some(Self { digits, exponent })
    }

    /// The digits and the exponent of a text such as `1.25e-7`.
    fn read(text: &str) -> Option<(i128, i32)> {
        let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits = format!("{whole}{fraction}").parse().ok()?;
        let decimals = i32::try_from(fraction.len()).ok()?;
        Some((digits, exponent.parse::<i32>().ok()?.checked_sub(decimals)?))
    }

    pub(super) fn is_positive(self) -> bool {
        self.digits > 0
    }

    /// The number, if it is whole and from 0 to the largest `u64`.
    pub(super) fn to_u64(self) -> Option<u64> {
        let power = 10_i128.checked_pow(u32::try_from(self.exponent).ok()?)?;
        u64::try_from(self.digits.checked_mul(power)?).ok()
    }

    /// Whether a division by `divisor` takes many multiplications.
    pub(super) fn has_long_quotient(self, divisor: Self) -> bool {
        self.exponent - divisor.exponent > 30
    }

    /// Whether a division by `divisor`, which is positive, leaves no remainder. Both have at most 30 digits.
    pub(super) fn is_multiple_of(self, divisor: Self) -> bool {
        let shift = self.exponent - divisor.exponent;
        // The digits would have to end with zeros.
        if shift < 0 {
            return self.digits == 0;
        }
        let modulus = divisor.digits;
        let product = |a: i128, b: i128| multiply_modulo(a, b, modulus);
        let (mut power, mut base, mut left) = (1 % modulus, 10 % modulus, shift);
        while left > 0 {
            if left % 2 == 1 {
                power = product(power, base);
            }
            base = product(base, base);
            left /= 2;
        }
        product(self.digits % modulus, power) == 0
    }
}

/// `a` times `b` modulo `modulus`, of which all have at most 30 digits.
fn multiply_modulo(a: i128, b: i128, modulus: i128) -> i128 {
    if let Some(product) = a.checked_mul(b) {
        return product % modulus;
    }
    // Digit by digit, so that no product has more than 31 digits.
    let (mut result, mut factor, mut left) = (0, a, b);
    while left != 0 {
        result = (result + factor * (left % 10)) % modulus;
        factor = factor * 10 % modulus;
        left /= 10;
    }
    result
}

/// Compares two numbers by value.
pub(super) fn compare(a: &Number, b: &Number) -> Ordering {
    match (whole(a), whole(b)) {
        (Some(a), Some(b)) => a.cmp(&b),
        _ => {
            let (a, b) = (a.as_f64().unwrap_or_default(), b.as_f64().unwrap_or_default());
            a.partial_cmp(&b).unwrap_or(Ordering::Equal)
        }
    }
}

/// The number as an integer, if it is one of at most 30 digits.
fn whole(number: &Number) -> Option<i128> {
    if number.is_f64() {
        let float = number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() < 1e30)?;
        #[expect(clippy::cast_possible_truncation, reason = "it is whole and fits")]
        return Some(float as i128);
    }
    number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))
}
