//! The pause that a service asks for with `Retry-After` (RFC 9110, 10.2.3): seconds, or a date in one of the three forms of
//! HTTP. It is never read as shorter than it is.

use std::time::{Duration, SystemTime};

use reqwest::header::{HeaderMap, RETRY_AFTER};

/// The pause in these headers; the longest, if there are several. A date that has passed is no pause.
pub(crate) fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let texts = headers.get_all(RETRY_AFTER).iter().filter_map(|value| value.to_str().ok());
    texts.filter_map(|text| pause(text.trim(), now)).max()
}

fn pause(text: &str, now: SystemTime) -> Option<Duration> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // More seconds than a number can hold are more than any pause.
        return Some(Duration::from_secs(text.parse().unwrap_or(u64::MAX)));
    }
    date(text)?.duration_since(now).ok()
}

/// A date. The parser has no leap second, so that counts as the second after the one before.
fn date(text: &str) -> Option<SystemTime> {
    let parse = |text: &str| httpdate::parse_http_date(text).ok();
    let before_leap = || parse(&text.replacen(":60 ", ":59 ", 1));
    parse(text).or_else(|| Some(before_leap()? + Duration::from_secs(1)))
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderValue;

    use super::*;

    fn of(texts: &[&'static str]) -> Option<Duration> {
        let now = httpdate::parse_http_date("Fri, 20 Nov 2026 12:00:00 GMT").unwrap();
        let headers = texts.iter().map(|text| (RETRY_AFTER, HeaderValue::from_static(text)));
        let mut map = HeaderMap::new();
        headers.for_each(|(name, value)| _ = map.append(name, value));
        retry_after(&map, now)
    }

    #[test]
    fn a_pause_is_seconds_or_a_date_in_any_form_of_http() {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        for (text, expected) in [
            ("120", seconds(120)),
            (" 7 ", seconds(7)),
            ("31536000", seconds(31_536_000)),
            ("99999999999999999999", seconds(u64::MAX)),
            ("Fri, 20 Nov 2026 12:01:00 GMT", seconds(60)),
            ("Friday, 20-Nov-26 12:01:00 GMT", seconds(60)),
            ("Fri Nov 20 12:01:00 2026", seconds(60)),
            ("Fri, 20 Nov 2026 12:00:60 GMT", seconds(60)),
            ("Fri, 20 Nov 2026 11:00:00 GMT", None),
            ("", None),
            ("soon", None),
            ("+5", None),
            ("-3", None),
            ("1.5", None),
        ] {
            assert_eq!(of(&[text]), expected, "{text}");
        }
        assert_eq!(of(&["5", "120", "soon"]), seconds(120));
        assert_eq!(of(&[]), None);
    }
}
