//! Names of steps, agents and workflows, derived from those of the state machine.

use std::collections::BTreeSet;

/// Characters of a name in a definition.
const CHARS_MAX: usize = 40;

/// The words of a name: `CancelHTTPCall`, `cancel-http-call` and `Cancel HTTP call` have the same.
pub(crate) fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let chars: Vec<char> = name.chars().collect();
    for (at, c) in chars.iter().enumerate() {
        if !c.is_ascii_alphanumeric() {
            words.push(String::new());
            continue;
        }
        let before = at.checked_sub(1).and_then(|before| chars.get(before));
        let after = chars.get(at + 1);
        let starts_word = c.is_ascii_uppercase()
            && (before
                .is_some_and(|before| before.is_ascii_lowercase() || before.is_ascii_digit())
                || before.is_some_and(char::is_ascii_uppercase)
                    && after.is_some_and(char::is_ascii_lowercase));
        if starts_word {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut() {
            word.push(c.to_ascii_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// A name with this separator between its words, which is not in `used`, and is added to it.
pub(crate) fn unique(name: &str, separator: &str, used: &mut BTreeSet<String>) -> String {
    let base = plain(name, separator);
    let mut candidate = base.clone();
    let mut number = 2;
    while !used.insert(candidate.clone()) {
        let suffix = format!("{separator}{number}");
        candidate = base.chars().take(CHARS_MAX - suffix.len()).collect::<String>() + &suffix;
        number += 1;
    }
    candidate
}

/// A name with this separator between its words.
pub(crate) fn plain(name: &str, separator: &str) -> String {
    let mut joined = words(name).join(separator);
    if !joined.starts_with(|c: char| c.is_ascii_lowercase()) {
        joined.insert_str(0, if joined.is_empty() { "x" } else { "x_" });
        joined = joined.replace('_', separator);
    }
    let mut short: String = joined.chars().take(CHARS_MAX).collect();
    while short.ends_with(['-', '_']) {
        short.pop();
    }
    short
}

/// The last part of an ARN, a URL or a substitution of the deployment, as the name of a resource. The flag tells whether it
/// is a substitution.
pub(crate) fn resource(text: &str) -> (String, bool) {
    if let Some(name) = crate::deployment::substitution(text)
        && text.trim_end_matches(":*").ends_with('}')
    {
        let name = name.rsplit(['.', ':']).next().unwrap_or(name);
        let is_long = |suffix: &str| name.len() > suffix.len();
        let name = ["Arn", "ARN", "Url", "Name"]
            .iter()
            .find_map(|suffix| name.strip_suffix(suffix).filter(|_| is_long(suffix)))
            .unwrap_or(name);
        return (name.to_owned(), true);
    }
    let text = text.trim_end_matches('/');
    (text.rsplit([':', '/']).next().unwrap_or(text).to_owned(), false)
}

/// A name that begins with a small letter.
pub(crate) fn small(name: &str) -> String {
    let mut chars = name.chars();
    chars.next().map(|first| first.to_ascii_lowercase()).into_iter().chain(chars).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_valid_and_unique() {
        let mut used = BTreeSet::new();
        assert_eq!(unique("Cancel HTTPCall", "_", &mut used), "cancel_http_call");
        assert_eq!(unique("cancelHttpCall", "_", &mut used), "cancel_http_call_2");
        assert_eq!(unique("2nd try", "-", &mut used), "x-2nd-try");
        assert_eq!(unique("日本", "_", &mut used), "x");
        let long = "a".repeat(60);
        assert_eq!(unique(&long, "_", &mut used).len(), 40);
        assert_eq!(unique(&long, "_", &mut used).len(), 40);
    }
}
