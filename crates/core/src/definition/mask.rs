//! The mask of a workflow: the values of its tasks' documents that people do not see. The definition lists them as JSON
//! pointers (RFC 6901), with `*` for every element: `mask: [/card/number, /items/*/secret]`. A mask has no effect on
//! decisions: what shows documents to people applies it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::limits;

/// JSON pointers to the masked values, in the input, in the output of each step, and in the output of the task.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Mask(Vec<String>);

impl Mask {
    /// Whether nothing is masked.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The JSON pointers.
    pub fn pointers(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// The problems of the pointers, each with the index of the pointer.
    pub(crate) fn problems(&self) -> impl Iterator<Item = (usize, String)> {
        self.0.iter().enumerate().filter_map(|(n, place)| Some((n, problem(place)?)))
    }
}

fn problem(place: &str) -> Option<String> {
    let max = limits::MASK_CHARS_MAX;
    if place.chars().count() > max {
        return Some(format!("must have at most {max} characters"));
    }
    if place.len() < 2 || !place.starts_with('/') {
        return Some(
            "must be a JSON pointer, such as `/card/number` or `/items/*/secret`".to_owned(),
        );
    }
    let mut escapes = place.split('~').skip(1);
    escapes
        .any(|rest| !rest.starts_with(['0', '1']))
        .then(|| "`~` is written `~0` in a JSON pointer, and `/` in a key `~1`".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn invalid_pointers_are_reported() {
        let pointers = json!(["/a", "", "/", "a", "/a~2", "/a~", "/a~0~1"]);
        let wrong: Mask = serde_json::from_value(pointers).unwrap();
        let numbers: Vec<_> = wrong.problems().map(|(n, _)| n).collect();
        assert_eq!(numbers, [1, 2, 3, 4, 5]);
    }
}
