//! Texts. `replace` is CEL's, with a limit. `padStart` and `padEnd` are those of JavaScript.

use cel::{ExecutionError, common::value::CowVal};

use super::arguments::{Evaluated, arguments, owned_text, refuse, text, whole};
use crate::limits;

const TOO_LONG: &str = "`replace` makes a text of more than 1 MiB";
const TOO_WIDE: &str = "`padStart` and `padEnd` make at most 1000 characters";

/// `text.replace(from, to)`, or with the most replacements `text.replace(from, to, 2)`.
pub(super) fn replace<'b, 'v>(mut values: Vec<CowVal<'b, 'v>>) -> Evaluated<'b, 'v> {
    let most = if values.len() == 4 { values.pop() } else { None };
    let [of, from, to] = arguments(values)?;
    let (of, from, to) = (text(&of)?, text(&from)?, text(&to)?);
    // As in CEL, a negative number stands for all.
    let most = most.map_or(Ok(-1), |most| whole(&most))?;
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let found = of.matches(from).count().min(most);
    let bytes = of.len().saturating_add(found.saturating_mul(to.len()));
    if bytes.saturating_sub(found.saturating_mul(from.len())) > limits::RENDERED_BYTES_MAX {
        return Err(refuse(TOO_LONG));
    }
    owned_text(of.replacen(from, to, most))
}

/// The text, and what fills it up to so many characters.
fn padding<'b, 'v>(mut values: Vec<CowVal<'b, 'v>>) -> Result<(String, String), ExecutionError> {
    let fill = if values.len() == 3 { values.pop() } else { None };
    let [of, length] = arguments(values)?;
    let (of, fill) = (text(&of)?, fill.as_ref().map_or(Ok(" "), text)?);
    let length = usize::try_from(whole(&length)?).unwrap_or(0);
    if length > limits::PADDED_CHARS_MAX {
        return Err(refuse(TOO_WIDE));
    }
    let missing = length.saturating_sub(of.chars().count());
    Ok((of.to_owned(), fill.chars().cycle().take(missing).collect()))
}

pub(super) fn pad_start<'b, 'v>(values: Vec<CowVal<'b, 'v>>) -> Evaluated<'b, 'v> {
    let (of, fill) = padding(values)?;
    owned_text(fill + &of)
}

pub(super) fn pad_end<'b, 'v>(values: Vec<CowVal<'b, 'v>>) -> Evaluated<'b, 'v> {
    let (of, fill) = padding(values)?;
    owned_text(of + &fill)
}
