//! Authentication and permissions. Everyone who can reach the console may read; only operators may send commands.
//!
//! On AWS the function URL accepts only callers that IAM allows to invoke it, and passes their identity. An
//! identity-aware proxy signs its requests with its own role and names the person in headers. The console trusts these
//! headers only from configured proxies.

use std::{convert::Infallible, net::IpAddr, str::FromStr};

use axum::{
    extract::Request,
    http::{HeaderMap, HeaderValue, Method, header, uri::Authority},
    middleware::Next,
    response::Response,
};

use crate::page::Failure;

/// The headers with which a proxy names a person, as oauth2-proxy sends them: email, user, groups.
pub const FORWARDED: [&str; 3] = ["x-forwarded-email", "x-forwarded-user", "x-forwarded-groups"];

/// The content security policy: no resources of other sites, nothing inline, no embedding in frames.
const CONTENT_SECURITY_POLICY: &str = "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; \
                      form-action 'self'; frame-ancestors 'none'";

/// The authenticated caller of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The name, which is recorded with commands.
    pub name: String,
    /// Whether the caller may send commands, or only read.
    pub may_act: bool,
}

/// A list of identity patterns, separated by commas. An identity is an ARN; for a person whom a proxy names, it is
/// `user:NAME` or `group:NAME`. Each pattern is exact or ends with a `*`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IdentityPatterns(Vec<String>);

impl FromStr for IdentityPatterns {
    type Err = Infallible;

    fn from_str(list: &str) -> Result<Self, Infallible> {
        let names = list.split(',').map(str::trim).filter(|name| !name.is_empty());
        Ok(Self(names.map(str::to_owned).collect()))
    }
}

impl IdentityPatterns {
    fn include(&self, identity: &str) -> bool {
        self.0.iter().any(|pattern| match pattern.strip_suffix('*') {
            Some(prefix) => identity.starts_with(prefix),
            None => identity == pattern,
        })
    }
}

impl Caller {
    /// The caller with the IAM identity `arn`, or, if that is a proxy, the person whom its headers name. `None` if a proxy
    /// names no person.
    #[must_use]
    pub fn of(
        arn: &str,
        headers: &HeaderMap,
        operators: &IdentityPatterns,
        proxies: &IdentityPatterns,
    ) -> Option<Self> {
        if !proxies.include(arn) {
            return Some(Self { name: arn.to_owned(), may_act: operators.include(arn) });
        }
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let [email, user, groups] = FORWARDED.map(header);
        let name = email.or(user).filter(|name| !name.is_empty())?;
        let groups = groups.unwrap_or_default().split(',').map(str::trim);
        let mut identities = groups.map(|group| format!("group:{group}"));
        let may_act = operators.include(&format!("user:{name}"))
            || identities.any(|identity| operators.include(&identity));
        Some(Self { name: name.to_owned(), may_act })
    }
}

/// Rejects requests without a caller, and commands that the page of another site makes a browser send (CSRF).
pub(crate) async fn require_caller(request: Request, next: Next) -> Response {
    let Some(caller) = request.extensions().get::<Caller>().cloned() else {
        return Failure::Unauthorized.page(None);
    };
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    if !is_read && !is_same_site(request.headers()) {
        return Failure::CrossSite.page(Some(&caller));
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

/// Rejects callers that may not send commands.
pub(crate) async fn require_operator(request: Request, next: Next) -> Response {
    match request.extensions().get::<Caller>() {
        Some(caller) if caller.may_act => next.run(request).await,
        caller => Failure::Forbidden.page(caller),
    }
}

/// Rejects requests whose `Host` is neither an IP address nor `localhost`. The owner of another site could point its name
/// to this machine, and a browser would treat the console as a part of that site (DNS rebinding).
pub(crate) async fn require_local_address(request: Request, next: Next) -> Response {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    let authority = host.and_then(|host| host.parse::<Authority>().ok());
    let is_address = authority.is_none_or(|authority| {
        let host = authority.host().trim_matches(['[', ']']);
        host == "localhost" || host.parse::<IpAddr>().is_ok()
    });
    if is_address { next.run(request).await } else { Failure::CrossSite.page(None) }
}

/// Whether the console's own page sent the request, according to the browser. Clients other than browsers send neither
/// header; another site cannot make them send requests.
fn is_same_site(headers: &HeaderMap) -> bool {
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

    const PERSON: &str = "arn:aws:sts::123456789012:assumed-role/OnCall/ada";
    const PROXY: &str = "arn:aws:sts::123456789012:assumed-role/Proxy/i-1";

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pairs = pairs.iter().map(|(name, value)| {
            (header::HeaderName::from_static(name), HeaderValue::from_static(value))
        });
        pairs.collect()
    }

    fn caller(
        arn: &str,
        operators: &str,
        pairs: &[(&'static str, &'static str)],
    ) -> Option<Caller> {
        let proxies = "arn:aws:sts::123456789012:assumed-role/Proxy/*".parse().unwrap();
        Caller::of(arn, &headers(pairs), &operators.parse().unwrap(), &proxies)
    }

    #[test]
    fn operators_may_act_and_everyone_else_may_read() {
        let of = |operators| caller(PERSON, operators, &[]).unwrap();
        assert!(of("arn:aws:sts::123456789012:assumed-role/OnCall/*").may_act);
        assert!(of(PERSON).may_act);
        for operators in
            ["", "arn:aws:sts::123456789012:assumed-role/OnCall", "user:ada", "group:*"]
        {
            assert_eq!(
                of(operators),
                Caller { name: PERSON.to_owned(), may_act: false },
                "{operators}"
            );
        }
    }

    #[test]
    fn headers_about_the_caller_are_trusted_only_from_a_proxy() {
        let pairs =
            [("x-forwarded-email", "ada@example.com"), ("x-forwarded-groups", "eng, on-call")];
        let ada = |may_act| Some(Caller { name: "ada@example.com".to_owned(), may_act });
        assert_eq!(caller(PROXY, "group:on-call", &pairs), ada(true));
        assert_eq!(caller(PROXY, "user:ada@example.com", &pairs), ada(true));
        assert_eq!(caller(PROXY, "group:other", &pairs), ada(false));
        assert_eq!(caller(PERSON, "group:on-call", &pairs).unwrap().name, PERSON);
        assert!(!caller(PERSON, "group:on-call", &pairs).unwrap().may_act);
        assert_eq!(caller(PROXY, PROXY, &[]), None, "a proxy without headers about the caller");
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
            assert_eq!(is_same_site(&headers(pairs)), same, "{pairs:?}");
        }
    }
}
