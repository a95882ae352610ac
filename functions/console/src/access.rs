//! The checks that run before each page. Everyone who can reach the console may read; only operators may send commands.

use std::net::IpAddr;

use axum::{
    extract::Request,
    http::{HeaderMap, HeaderValue, Method, header, uri::Authority},
    middleware::Next,
    response::Response,
};

use crate::{caller::ConsoleCaller, page::Failure};

/// The content security policy: no resources of other sites, nothing inline, no embedding in frames.
const CONTENT_SECURITY_POLICY: &str = "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; \
                      form-action 'self'; frame-ancestors 'none'";

/// Rejects requests without a caller, and commands that the page of another site makes a browser send (CSRF).
pub(crate) async fn require_caller(request: Request, next: Next) -> Response {
    let Some(caller) = request.extensions().get::<ConsoleCaller>().cloned() else {
        return Failure::Unauthorized.page(None);
    };
    if is_of_other_site(&request) {
        return Failure::CrossOrigin.page(Some(&caller));
    }
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "same-origin"),
        (header::CACHE_CONTROL, "no-store"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Rejects requests to another host than this machine, and what may change something if the page of another site makes a browser
/// send it. For `steward local`, whose other routes have no access control.
pub async fn refuse_other_sites(request: Request, next: Next) -> Response {
    match !names_this_machine(&request) || is_of_other_site(&request) {
        true => Failure::CrossOrigin.page(None),
        false => next.run(request).await,
    }
}

/// Whether a request may change something, and the page of another site made a browser send it.
fn is_of_other_site(request: &Request) -> bool {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    !is_read && !is_same_origin(request.headers())
}

/// Rejects callers that may not send commands.
pub(crate) async fn require_operator(request: Request, next: Next) -> Response {
    match request.extensions().get::<ConsoleCaller>() {
        Some(caller) if caller.may_act => next.run(request).await,
        caller => Failure::Forbidden.page(caller),
    }
}

/// Rejects requests whose `Host` is neither an IP address nor `localhost`. The owner of another site could point its name
/// to this machine, and a browser would treat the console as a part of that site (DNS rebinding).
pub(crate) async fn require_local_address(request: Request, next: Next) -> Response {
    match names_this_machine(&request) {
        true => next.run(request).await,
        false => Failure::CrossOrigin.page(None),
    }
}

/// Whether each host that a request names, in its `Host` and in its URL, is an IP address or `localhost`.
fn names_this_machine(request: &Request) -> bool {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let in_headers = hosts.all(|host| {
        Authority::try_from(host.as_bytes()).is_ok_and(|authority| is_local(&authority))
    });
    in_headers && request.uri().authority().is_none_or(is_local)
}

fn is_local(authority: &Authority) -> bool {
    let host = authority.host().trim_matches(['[', ']']);
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok()
}

/// Whether the console's own page sent the request, according to the browser. Clients other than browsers send neither
/// header; another site cannot make them send requests.
fn is_same_origin(headers: &HeaderMap) -> bool {
    let header_value = |name| headers.get(name).map(HeaderValue::as_bytes);
    if let Some(site) = header_value(header::HeaderName::from_static("sec-fetch-site")) {
        return matches!(site, b"same-origin" | b"none");
    }
    let Some(origin) = header_value(header::ORIGIN) else { return true };
    let host = header_value(header::HOST).unwrap_or_default();
    origin.splitn(3, |byte| *byte == b'/').nth(2) == Some(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pairs = pairs.iter().map(|(name, value)| {
            (header::HeaderName::from_static(name), HeaderValue::from_static(value))
        });
        pairs.collect()
    }

    #[test]
    fn only_an_ip_address_and_localhost_name_this_machine() {
        let names = |url: &str, hosts: &[&str]| {
            let mut request = Request::get(url);
            for host in hosts {
                request = request.header(header::HOST, *host);
            }
            names_this_machine(&request.body(axum::body::Body::empty()).unwrap())
        };
        for host in ["127.0.0.1:4566", "[::1]:4566", "localhost:4566", "LOCALHOST", "10.0.0.7"] {
            assert!(names("/", &[host]), "{host}");
        }
        for host in ["evil.example", "evil.example:4566", "localhost.evil.example", "a b", ""] {
            assert!(!names("/", &[host]), "{host}");
        }
        assert!(names("/", &[]) && !names("/", &["localhost", "evil.example"]));
        assert!(!names("http://evil.example/", &["localhost"]) && names("http://[::1]/", &[]));
    }

    #[test]
    fn requests_from_another_site_are_recognised_by_the_browsers_headers() {
        for (pairs, same) in [
            (&[][..], true),
            (&[("sec-fetch-site", "same-origin")], true),
            (&[("sec-fetch-site", "none")], true),
            (&[("sec-fetch-site", "same-site")], false),
            (&[("sec-fetch-site", "cross-site")], false),
            (&[("origin", "https://console.example"), ("host", "console.example")], true),
            (&[("origin", "https://evil.example"), ("host", "console.example")], false),
            (&[("origin", "null"), ("host", "console.example")], false),
        ] {
            assert_eq!(is_same_origin(&headers(pairs)), same, "{pairs:?}");
        }
    }
}
