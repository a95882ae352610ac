//! Applies the mask of a workflow to what people see. An operator can edit an input without seeing its hidden values.
//!
//! ```text
//! mask: [/card/number, /items/*/secret]
//!
//! { "card": { "number": "4111…", "name": "Ann" } }   stored
//! { "card": { "number": "••••",  "name": "Ann" } }   shown, and edited
//!                  { "name": "Bob" }                 the resulting merge patch (RFC 7396)
//! ```

use serde_json::{Map, Value};
use steward_core::definition::mask::Mask;

/// The text that replaces a masked value.
pub const MASK_TEXT: &str = "••••";

/// Returns `value` with its masked values replaced by [`MASK_TEXT`].
#[must_use]
pub fn apply(mask: &Mask, value: &Value) -> Value {
    let mut masked = value.clone();
    for pointer in mask.pointers() {
        let tokens: Vec<_> = pointer.split('/').skip(1).map(unescaped).collect();
        mask_at(&mut masked, &tokens);
    }
    masked
}

/// Returns the merge patch for `input` that corresponds to the changes that `edited` makes to the masked input.
/// Returns `None` if there are no changes.
///
/// # Errors
/// A merge patch cannot express the edit. The message contains no values.
pub fn patch_from_edit(
    mask: &Mask,
    input: &Value,
    edited: &Value,
) -> Result<Option<Value>, String> {
    let edited = unmasked(input, &apply(mask, input), edited);
    let Some(patch) = difference(input, &edited) else { return Ok(None) };
    if let Some(at) = find_mask(&patch, "") {
        return Err(format!(
            "{}: the edit would replace a hidden value with `{MASK_TEXT}`. In an object, leave \
             hidden fields unchanged; a list with a hidden value can only be replaced as a whole",
            if at.is_empty() { "the input" } else { &at }
        ));
    }
    let mut result = input.clone();
    json_patch::merge(&mut result, &patch);
    if patch.is_null() || result != edited {
        return Err("a value cannot be set to null: remove the field, or keep its value".to_owned());
    }
    Ok(Some(patch))
}

/// The masked values in `value`.
pub(crate) fn values_at<'v>(mask: &Mask, value: &'v Value) -> Vec<&'v Value> {
    let mut found = Vec::new();
    for pointer in mask.pointers() {
        let tokens: Vec<_> = pointer.split('/').skip(1).map(unescaped).collect();
        collect_at(value, &tokens, &mut found);
    }
    found
}

fn collect_at<'v>(value: &'v Value, tokens: &[String], found: &mut Vec<&'v Value>) {
    let Some((token, rest)) = tokens.split_first() else { return found.push(value) };
    match value {
        Value::Array(items) if token == "*" => {
            items.iter().for_each(|item| collect_at(item, rest, found));
        }
        Value::Array(items) => {
            let item = token.parse::<usize>().ok().and_then(|place| items.get(place));
            item.into_iter().for_each(|item| collect_at(item, rest, found));
        }
        Value::Object(fields) if token == "*" => {
            fields.values().for_each(|field| collect_at(field, rest, found));
        }
        Value::Object(fields) => {
            fields.get(token).into_iter().for_each(|field| collect_at(field, rest, found));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn unescaped(token: &str) -> String {
    token.replace("~1", "/").replace("~0", "~")
}

fn mask_at(value: &mut Value, tokens: &[String]) {
    let Some((token, rest)) = tokens.split_first() else {
        *value = MASK_TEXT.into();
        return;
    };
    match value {
        Value::Array(items) if token == "*" => {
            items.iter_mut().for_each(|item| mask_at(item, rest))
        }
        Value::Array(items) => {
            let item = token.parse::<usize>().ok().and_then(|place| items.get_mut(place));
            item.into_iter().for_each(|item| mask_at(item, rest));
        }
        Value::Object(fields) if token == "*" => {
            fields.values_mut().for_each(|field| mask_at(field, rest));
        }
        Value::Object(fields) => {
            fields.get_mut(token).into_iter().for_each(|field| mask_at(field, rest));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Returns the edited input with its masks replaced by the original values. A value that equals its masked form is
/// unchanged.
fn unmasked(input: &Value, shown: &Value, edited: &Value) -> Value {
    if shown == edited {
        return input.clone();
    }
    let (Value::Object(input), Value::Object(shown), Value::Object(edited)) =
        (input, shown, edited)
    else {
        return edited.clone();
    };
    let fields = edited.iter().map(|(key, value)| {
        let before = input.get(key).zip(shown.get(key));
        let unmasked_value =
            before.map_or_else(|| value.clone(), |(input, shown)| unmasked(input, shown, value));
        (key.clone(), unmasked_value)
    });
    Value::Object(fields.collect())
}

/// Returns the merge patch from one value to another, as far as a merge patch can express it.
fn difference(from: &Value, to: &Value) -> Option<Value> {
    if from == to {
        return None;
    }
    let (Value::Object(from), Value::Object(to)) = (from, to) else { return Some(to.clone()) };
    let gone = from.keys().filter(|key| !to.contains_key(*key));
    let mut patch: Map<_, _> = gone.map(|key| (key.clone(), Value::Null)).collect();
    patch.extend(to.iter().filter_map(|(key, value)| {
        let changed = from.get(key).map_or(Some(value.clone()), |old| difference(old, value));
        Some((key.clone(), changed?))
    }));
    Some(patch.into())
}

/// Returns the location of a text in `value` that contains the mask.
fn find_mask(value: &Value, at: &str) -> Option<String> {
    match value {
        Value::String(text) => text.contains(MASK_TEXT).then(|| at.to_owned()),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .find_map(|(place, item)| find_mask(item, &format!("{at}/{place}"))),
        Value::Object(fields) => {
            fields.iter().find_map(|(key, field)| find_mask(field, &format!("{at}/{key}")))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn mask(places: &[&str]) -> Mask {
        serde_json::from_value(json!(places)).unwrap()
    }

    #[test]
    fn only_the_values_at_the_pointers_are_masked() {
        let value = json!({
            "card": { "number": "4111", "name": "Ann" }, "a/b~": 1,
            "items": [{ "secret": { "x": 1 }, "sku": 7 }, { "sku": 8 }, "text", { "secret": null }],
        });
        let pointers = mask(&["/card/number", "/items/*/secret", "/a~1b~0", "/not/there"]);
        let shown = apply(&pointers, &value);
        let covered = json!({
            "card": { "number": MASK_TEXT, "name": "Ann" }, "a/b~": MASK_TEXT,
            "items": [{ "secret": MASK_TEXT, "sku": 7 }, { "sku": 8 }, "text", { "secret": MASK_TEXT }],
        });
        assert_eq!(shown, covered);
        assert_eq!(apply(&mask(&["/items/1/sku"]), &value)["items"][1]["sku"], MASK_TEXT);
        assert_eq!(apply(&mask(&["/card/*"]), &value)["card"]["name"], MASK_TEXT);
        assert_eq!(apply(&mask(&[]), &value), value);
    }

    #[test]
    fn the_patch_of_an_edit_leaves_hidden_values_unchanged() {
        let mask = mask(&["/card/number", "/keys/*"]);
        let input = json!({ "card": { "number": "4111", "name": "Ann" }, "n": 1, "keys": ["k"] });
        let of = |edited: Value| patch_from_edit(&mask, &input, &edited);
        let shown = apply(&mask, &input);
        assert_eq!(of(shown.clone()), Ok(None));
        let edited = json!({ "card": { "number": MASK_TEXT, "name": "Bob" }, "keys": [MASK_TEXT], "new": [1] });
        let patch = of(edited).unwrap().unwrap();
        assert_eq!(patch, json!({ "n": null, "card": { "name": "Bob" }, "new": [1] }));
        let mut result = input.clone();
        json_patch::merge(&mut result, &patch);
        assert_eq!(
            result,
            json!({ "card": { "number": "4111", "name": "Bob" }, "keys": ["k"], "new": [1] })
        );
        // A hidden value may be replaced or removed.
        let edited = json!({ "card": { "number": "4222", "name": "Ann" }, "n": 1 });
        let patch = json!({ "keys": null, "card": { "number": "4222" } });
        assert_eq!(of(edited), Ok(Some(patch)));
    }

    #[test]
    fn a_replaced_hidden_object_is_replaced_as_a_whole() {
        let input = json!({ "card": { "number": "4111", "pin": 1 } });
        let patch =
            patch_from_edit(&mask(&["/card"]), &input, &json!({ "card": { "number": "4222" } }));
        assert_eq!(patch, Ok(Some(json!({ "card": { "pin": null, "number": "4222" } }))));
    }

    #[test]
    fn an_edit_that_would_store_the_mask_is_refused() {
        let mask = mask(&["/card/number", "/items/*/secret"]);
        let input = json!({ "card": { "number": "4" }, "items": [{ "secret": "s", "n": 1 }] });
        for (edited, at) in [
            (
                json!({ "card": { "number": "4" }, "items": [{ "secret": MASK_TEXT, "n": 2 }] }),
                "/items/0/secret: ",
            ),
            (json!({ "pan": MASK_TEXT, "card": { "number": MASK_TEXT }, "items": [] }), "/pan: "),
            (json!({ "card": { "number": "x••••" }, "items": [] }), "/card/number: "),
            (json!([MASK_TEXT]), "/0: "),
            (json!(MASK_TEXT), "the input: "),
        ] {
            let message = patch_from_edit(&mask, &input, &edited).unwrap_err();
            assert!(message.starts_with(at), "{message}");
        }
    }

    #[test]
    fn an_edit_that_no_merge_patch_can_express_is_refused() {
        let input = json!({ "a": 1, "b": null });
        for edited in [
            json!({ "a": null, "b": null }),
            json!({ "a": 1, "b": null, "c": { "d": null } }),
            json!(null),
        ] {
            assert!(patch_from_edit(&mask(&[]), &input, &edited).is_err(), "{edited}");
        }
        let kept = json!({ "a": 2, "b": null });
        assert_eq!(patch_from_edit(&mask(&[]), &input, &kept), Ok(Some(json!({ "a": 2 }))));
        assert_eq!(patch_from_edit(&mask(&[]), &input, &json!(3)), Ok(Some(json!(3))));
    }
}
