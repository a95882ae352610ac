//! JSON, Base64, and hashes.

use base64::{Engine, prelude::BASE64_STANDARD};
use cel::common::{types::CelBytes, value::CowVal};

use super::arguments::{Evaluated, arguments, owned_text, refuse, text};
use crate::{
    expression::json::{from_cel, to_cel},
    limits,
    model::key_format::KeyForm,
};

const NO_JSON: &str = "the text of `json.decode` is not JSON";
const TOO_LONG: &str = "`json.decode` reads a text of at most 128 KiB";
const TOO_DEEP: &str = "the JSON of `json.decode` nests deeper than 32 levels";

/// JSON without spaces, with the keys in their order.
pub(super) fn json_encode<'b, 'v>(values: Vec<CowVal<'b, 'v>>) -> Evaluated<'b, 'v> {
    let [of] = arguments(values)?;
    let value = cel::Value::try_from(of.as_ref())?;
    owned_text(from_cel(&value).map_err(|reason| refuse(&reason))?.to_string())
}

pub(super) fn json_decode<'b, 'v>(values: Vec<CowVal<'b, 'v>>) -> Evaluated<'b, 'v> {
    let [of] = arguments(values)?;
    let of = text(&of)?;
    if of.len() > limits::JSON_TEXT_BYTES_MAX {
        return Err(refuse(TOO_LONG));
    }
    let value = serde_json::from_str(of).map_err(|_| refuse(NO_JSON))?;
    if limits::nests_too_deep(&value) {
        return Err(refuse(TOO_DEEP));
    }
    Ok(CowVal::Owned(to_cel(&value).try_into()?))
}

/// Also of a text, since JSON has no bytes.
pub(super) fn base64_encode<'b, 'v>(values: Vec<CowVal<'b, 'v>>) -> Evaluated<'b, 'v> {
    let [of] = arguments(values)?;
    owned_text(match of.downcast_ref::<CelBytes<'v>>() {
        Some(bytes) => BASE64_STANDARD.encode(bytes.inner()),
        None => BASE64_STANDARD.encode(text(&of)?),
    })
}

/// The hash of a text, in the form of an idempotency key.
fn hash<'b, 'v>(values: Vec<CowVal<'b, 'v>>, form: KeyForm) -> Evaluated<'b, 'v> {
    let [of] = arguments(values)?;
    owned_text(form.of(text(&of)?))
}

pub(super) fn sha256<'b, 'v>(values: Vec<CowVal<'b, 'v>>) -> Evaluated<'b, 'v> {
    hash(values, KeyForm::Hash64)
}

pub(super) fn uuid<'b, 'v>(values: Vec<CowVal<'b, 'v>>) -> Evaluated<'b, 'v> {
    hash(values, KeyForm::Uuid)
}
