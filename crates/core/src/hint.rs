//! Suggestions in error messages about unknown names.

/// The maximum number of names that a hint lists. A longer list would not help.
const LISTED_NAMES_MAX: usize = 20;

/// Returns the name in `known` that is most similar to `name`, if one is similar enough to be a misspelling.
pub fn closest_match<'k>(name: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    // A misspelling has at most one wrong, missing, added or swapped letter in three.
    let length = name.chars().count();
    let distance_max = (length / 3).max(1);
    let ranked = known.into_iter().map(|other| (strsim::osa_distance(name, other), other));
    ranked
        .filter(|(distance, _)| *distance <= distance_max && *distance < length)
        .min()
        .map(|(_, other)| other)
}

/// Returns a hint for the unknown `name`: "did you mean" with the most similar known name. If none is similar, the hint
/// lists the known names, unless there are too many.
pub fn suggestion<'k>(
    name: &str,
    known: impl IntoIterator<Item = &'k str> + Clone,
) -> Option<String> {
    if let Some(meant) = closest_match(name, known.clone()) {
        return Some(format!("did you mean `{meant}`?"));
    }
    let known: Vec<_> = known.into_iter().map(|known| format!("`{known}`")).collect();
    let (last, rest) = known.split_last()?;
    match rest.len() {
        0 => Some(format!("there is {last}")),
        count if count < LISTED_NAMES_MAX => {
            Some(format!("there are {} and {last}", rest.join(", ")))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelling_gets_a_suggestion_and_another_word_gets_the_list() {
        let known = ["reserve", "charge", "ship"];
        for (name, hint) in [
            ("reserv", "did you mean `reserve`?"),
            ("chrage", "did you mean `charge`?"),
            ("shop", "did you mean `ship`?"),
            ("x", "there are `reserve`, `charge` and `ship`"),
            ("refund", "there are `reserve`, `charge` and `ship`"),
        ] {
            assert_eq!(suggestion(name, known).as_deref(), Some(hint));
        }
        assert_eq!(suggestion("a", ["b"]).as_deref(), Some("there is `b`"));
        assert_eq!(suggestion("a", []), None);
        let many: Vec<_> = (0..30).map(|n| format!("step_{n}")).collect();
        assert_eq!(suggestion("x", many.iter().map(String::as_str)), None);
    }
}
