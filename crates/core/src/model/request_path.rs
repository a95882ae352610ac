//! The rule for the path of a request: a URL parser must find in it what its author wrote.
//!
//! A URL parser (<https://url.spec.whatwg.org/#concept-basic-url-parser>) drops tabs, line breaks and a space at the end, reads `\` as `/`,
//! resolves `.` and `..`, and cuts the text at `#`. So a request could reach another resource than the one that the path seems
//! to name, also outside the base URL of its service. Definitions, the scheduler and agents check paths by [`check`].

use std::fmt;

/// Why a text cannot be the path of a request. The message follows the name of the path, such as `request.path: must start
/// with`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPath {
    /// Appended to a base URL, it could change the host.
    #[error("must start with `/`")]
    Start,
    /// A character that a URL parser drops or reinterprets.
    #[error("must not have {}; write {}", Shown(*.0), Encoded(*.0))]
    Character(char),
    /// A `.` or `..` segment, in any spelling.
    #[error("must not have a `.` or `..` segment")]
    DotSegment,
    /// `//`: the name of another resource than with `/`, or of the same one, as the service likes.
    #[error("must not have an empty segment (`//`)")]
    EmptySegment,
}

/// Checks the path of a request, which may have a query.
///
/// # Errors
/// A URL parser would not find in it what is written.
pub fn check(path: &str) -> Result<(), InvalidPath> {
    if !path.starts_with('/') {
        return Err(InvalidPath::Start);
    }
    let (segments, _) = path.split_once('?').unwrap_or((path, ""));
    let changed = path.chars().find(|c| c.is_control() || *c == '#');
    let changed = changed.or_else(|| segments.contains('\\').then_some('\\'));
    if let Some(c) = changed.or_else(|| path.ends_with(' ').then_some(' ')) {
        return Err(InvalidPath::Character(c));
    }
    if segments.contains("//") {
        return Err(InvalidPath::EmptySegment);
    }
    match segments.split('/').any(is_dot_segment) {
        true => Err(InvalidPath::DotSegment),
        false => Ok(()),
    }
}

/// Whether an HTTP client would resolve a segment as `.` or `..`, in any spelling
/// (<https://url.spec.whatwg.org/#double-dot-path-segment>).
pub(crate) fn is_dot_segment(segment: &str) -> bool {
    let decoded = segment.to_ascii_lowercase().replace("%2e", ".");
    decoded == "." || decoded == ".."
}

/// A character in a message, which a terminal must not execute.
struct Shown(char);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ' ' => f.write_str("a space at its end"),
            c if c.is_control() => write!(f, "the control character `{}`", c.escape_debug()),
            c => write!(f, "`{c}`"),
        }
    }
}

/// A character in percent-encoding.
struct Encoded(char);

impl fmt::Display for Encoded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("`")?;
        self.0.encode_utf8(&mut [0; 4]).bytes().try_for_each(|byte| write!(f, "%{byte:02X}"))?;
        f.write_str("`")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_a_url_parser_changes_is_refused_with_the_cure() {
        for (path, problem) in [
            ("", "must start with `/`"),
            ("//evil.example", "must not have an empty segment (`//`)"),
            ("/a/.\t./b", "must not have the control character `\\t`; write `%09`"),
            ("/a\r\n", "must not have the control character `\\r`; write `%0D`"),
            ("/a\u{85}", "must not have the control character `\\u{85}`; write `%C2%85`"),
            ("/a?b=\0", "must not have the control character `\\0`; write `%00`"),
            ("/a#b", "must not have `#`; write `%23`"),
            ("/a?b#c", "must not have `#`; write `%23`"),
            ("/a\\..\\b", "must not have `\\`; write `%5C`"),
            ("/a ", "must not have a space at its end; write `%20`"),
            ("/a?b ", "must not have a space at its end; write `%20`"),
            ("/a/..", "must not have a `.` or `..` segment"),
            ("/a/%2e%2E/b", "must not have a `.` or `..` segment"),
            ("/.%2e?x", "must not have a `.` or `..` segment"),
            ("/./b", "must not have a `.` or `..` segment"),
        ] {
            assert_eq!(check(path).map_err(|error| error.to_string()), Err(problem.to_owned()));
        }
        for path in [
            "/",
            "/a/",
            "/a b",
            "/a?x=//../\\",
            "/a/...",
            "/a%2F..",
            "/%23%09",
            "/stra\u{df}e",
            "/?",
        ] {
            assert_eq!(check(path), Ok(()), "{path}");
        }
    }
}
