//! How long a request waits for the end of a task: `?wait=10s`, or `Prefer: wait=10` (RFC 7240).

use std::time::Duration;

use axum::http::{HeaderMap, Uri, header::HeaderName};

/// The longest wait. The function's time-out is 30 s, and an API Gateway in front of it waits for 29 s.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(25);

const PREFER: HeaderName = HeaderName::from_static("prefer");

/// The wait that a request asks for. The parameter counts before the header.
///
/// # Errors
/// The parameter is no duration, or is too long. A preference is a hint: it is shortened, and ignored if it is malformed.
pub(super) fn requested_wait(uri: &Uri, headers: &HeaderMap) -> Result<Option<Duration>, String> {
    let Some(text) = parameter(uri, "wait") else {
        return Ok(preferred_wait(headers).map(|wait| wait.min(WAIT_MAX)));
    };
    let wait = humantime::parse_duration(text);
    let wait = wait.map_err(|error| format!("`wait` must be a time such as 10s: {error}"))?;
    match wait <= WAIT_MAX {
        true => Ok(Some(wait)),
        false => {
            Err(format!("`wait` must be at most {WAIT_MAX:?}; repeat the request to wait longer"))
        }
    }
}

fn parameter<'a>(uri: &'a Uri, name: &str) -> Option<&'a str> {
    let mut pairs = uri.query()?.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    pairs.find_map(|(key, value)| (key == name).then_some(value))
}

/// The seconds of the first preference `wait`. A request may have several headers, with several preferences each.
fn preferred_wait(headers: &HeaderMap) -> Option<Duration> {
    let texts = headers.get_all(PREFER).iter().filter_map(|value| value.to_str().ok());
    let mut preferences = texts.flat_map(|text| text.split(','));
    preferences.find_map(|preference| {
        let (name, value) = preference.split(';').next()?.split_once('=')?;
        let is_wait = name.trim().eq_ignore_ascii_case("wait");
        let seconds = value.trim().trim_matches('"').parse().ok().filter(|_| is_wait)?;
        Some(Duration::from_secs(seconds))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(uri: &str, prefer: &[&str]) -> Result<Option<u64>, String> {
        let headers = prefer.iter().map(|text| (PREFER, text.parse().unwrap())).collect();
        let wait = requested_wait(&uri.parse().unwrap(), &headers)?;
        Ok(wait.map(|wait| wait.as_millis().try_into().unwrap()))
    }

    #[test]
    fn the_parameter_counts_before_the_preference_which_is_a_hint() {
        assert_eq!(of("/tasks", &[]), Ok(None));
        assert_eq!(of("/tasks?a=b&wait=1500ms", &["wait=3"]), Ok(Some(1_500)));
        assert_eq!(of("/tasks?wait=25s", &[]), Ok(Some(25_000)));
        assert_eq!(of("/tasks", &["respond-async", "Wait = \"7\"; x=y"]), Ok(Some(7_000)));
        assert_eq!(of("/tasks", &["return=minimal, wait=600"]), Ok(Some(25_000)));
        assert_eq!(of("/tasks", &["wait=soon", "wait"]), Ok(None));
    }

    #[test]
    fn a_wrong_parameter_is_refused() {
        for wrong in ["/tasks?wait=26s", "/tasks?wait=10", "/tasks?wait", "/tasks?wait=-1s"] {
            assert!(of(wrong, &[]).unwrap_err().starts_with("`wait` must be "), "{wrong}");
        }
    }
}
