//! Hints beside an error: which of the known names may have been meant.

/// A hint of more names than these helps nobody.
const NAMED_MAX: usize = 20;

/// The name among `known` that is most like `name`, if one is like it.
pub fn similar<'k>(name: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    // A slip is a letter too many, too few, wrong or swapped: one in three at most.
    let length = name.chars().count();
    let slips_max = (length / 3).max(1);
    let ranked = known.into_iter().map(|other| (strsim::osa_distance(name, other), other));
    ranked.filter(|(slips, _)| *slips <= slips_max && *slips < length).min().map(|(_, other)| other)
}

/// "did you mean" the name that is like `name`; or else all that are known.
pub fn instead_of<'k>(
    name: &str,
    known: impl IntoIterator<Item = &'k str> + Clone,
) -> Option<String> {
    if let Some(meant) = similar(name, known.clone()) {
        return Some(format!("did you mean `{meant}`?"));
    }
    let known: Vec<_> = known.into_iter().map(|known| format!("`{known}`")).collect();
    let (last, rest) = known.split_last()?;
    match rest.len() {
        0 => Some(format!("there is {last}")),
        count if count < NAMED_MAX => Some(format!("there are {} and {last}", rest.join(", "))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_recognised_and_another_word_is_not() {
        let known = ["reserve", "charge", "ship"];
        for (name, hint) in [
            ("reserv", "did you mean `reserve`?"),
            ("chrage", "did you mean `charge`?"),
            ("shop", "did you mean `ship`?"),
            ("x", "there are `reserve`, `charge` and `ship`"),
            ("refund", "there are `reserve`, `charge` and `ship`"),
        ] {
            assert_eq!(instead_of(name, known).as_deref(), Some(hint));
        }
        assert_eq!(instead_of("a", ["b"]).as_deref(), Some("there is `b`"));
        assert_eq!(instead_of("a", []), None);
        let many: Vec<_> = (0..30).map(|n| format!("step_{n}")).collect();
        assert_eq!(instead_of("x", many.iter().map(String::as_str)), None);
    }
}
