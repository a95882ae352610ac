//! A check for JSON integers that do not fit in 64 bits. The JSON parser would silently convert them to doubles, which
//! have 53 bits of precision, so an order number would change. Input with such an integer is refused.

/// The error for an integer that does not fit in 64 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "an integer of more than 64 bits at line {line} column {column}: it would lose digits; send it as a string"
)]
pub struct IntegerTooLarge {
    /// The line, counted from 1.
    pub line: usize,
    /// The column, in bytes, counted from 1.
    pub column: usize,
}

/// The number of digits from which on an integer may be too large.
const DIGITS_MIN: usize = 19;

/// Checks that every integer in a JSON text fits in 64 bits, signed or unsigned. Numbers with a fraction or an exponent
/// are not checked, because their author chose a floating-point format.
///
/// # Errors
/// The position of the first integer that is too large.
pub fn check_integers(json: &str) -> Result<(), IntegerTooLarge> {
    // Fast path: nearly every text has no sequence of so many digits.
    let bytes = json.as_bytes();
    let mut digits = 0;
    let is_long = |byte: &u8| {
        digits = if byte.is_ascii_digit() { digits + 1 } else { 0 };
        digits == DIGITS_MIN
    };
    if !bytes.iter().any(is_long) {
        return Ok(());
    }
    let mut rest = json;
    while let Some(at) = rest.find(|c: char| c == '"' || c == '-' || c.is_ascii_digit()) {
        let (_, token) = rest.split_at(at);
        let length =
            if token.starts_with('"') { string_length(token) } else { number_length(token) };
        let (number, after) = token.split_at(length);
        if !fits(number) {
            let before = json.get(..json.len() - token.len()).unwrap_or_default();
            let line = before.matches('\n').count() + 1;
            let column = before.len() - before.rfind('\n').map_or(0, |newline| newline + 1) + 1;
            return Err(IntegerTooLarge { line, column });
        }
        rest = after;
    }
    Ok(())
}

/// The bytes of the JSON string at the start of `token`, including both quotes.
fn string_length(token: &str) -> usize {
    let mut escaped = false;
    let end = token.char_indices().skip(1).find(|(_, c)| {
        let ends = *c == '"' && !escaped;
        escaped = *c == '\\' && !escaped;
        ends
    });
    end.map_or(token.len(), |(at, _)| at + 1)
}

/// The bytes of the number at the start of `token`.
fn number_length(token: &str) -> usize {
    let is_part = |c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.' | 'e' | 'E');
    token.find(|c| !is_part(c)).unwrap_or(token.len())
}

fn fits(token: &str) -> bool {
    let digits = token.strip_prefix('-').unwrap_or(token);
    let is_integer = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    !is_integer || token.parse::<u64>().is_ok() || token.parse::<i64>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_of_64_bits_are_accepted_and_larger_ones_are_not() {
        for fits in [
            "18446744073709551615",
            "-9223372036854775808",
            r#"{"n":[1,18446744073709551615,-9223372036854775808]}"#,
            r#""18446744073709551616""#,
            r#"{"18446744073709551616":"a \" 18446744073709551616 \\"}"#,
            "18446744073709551616.0",
            "1e400",
            "1.8446744073709552e19",
            r#""\"18446744073709551616"#,
            "",
        ] {
            assert_eq!(check_integers(fits), Ok(()), "{fits}");
        }
        for (large, line, column) in [
            ("18446744073709551616", 1, 1),
            ("-9223372036854775809", 1, 1),
            (r#"{"a":"\\","n":18446744073709551616}"#, 1, 15),
            ("{\n  \"ü\": [1,\n  99999999999999999999999]}", 3, 3),
        ] {
            assert_eq!(check_integers(large), Err(IntegerTooLarge { line, column }), "{large}");
        }
    }

    #[test]
    fn refused_integer_would_have_become_a_double() {
        let number: serde_json::Value = serde_json::from_str("18446744073709551617").unwrap();
        assert!(number.is_f64());
    }
}
