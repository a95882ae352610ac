//! Who is calling, and what they may do. Reading and acting are two permissions: who reaches the console
//! may read; who is an operator may act.
//!
//! On AWS the function URL admits only whom IAM lets invoke it, and says who that is. An identity-aware
//! proxy before it signs with a role of its own, and names the person in headers, which are believed only
//! then.

use std::{convert::Infallible, net::IpAddr, str::FromStr};

use axum::{
    extract::Request,
    http::{HeaderMap, HeaderValue, Method, header, uri::Authority},
    middleware::Next,
    response::Response,
};

use crate::page::Failure;

/// Headers by which proxies say who someone is, as oauth2-proxy has them: email, user, groups.
pub const FORWARDED: [&str; 3] = ["x-forwarded-email", "x-forwarded-user", "x-forwarded-groups"];

/// Nothing from elsewhere, nothing inline, in nobody's frame.
const POLICY: &str = "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; \
                      form-action 'self'; frame-ancestors 'none'";

/// Who is calling.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// Their name, for the record.
    pub name: String,
    /// Whether they may act, or only read.
    pub may_act: bool,
}

/// Identities, separated by commas: ARNs, or of those whom a proxy names `user:NAME` and `group:NAME`;
/// each exact or with a `*` at its end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Operators(Vec<String>);

impl FromStr for Operators {
    type Err = Infallible;

    fn from_str(list: &str) -> Result<Self, Infallible> {
        let names = list.split(',').map(str::trim).filter(|name| !name.is_empty());
        Ok(Self(names.map(str::to_owned).collect()))
    }
}

impl Operators {
    fn include(&self, identity: &str) -> bool {
        self.0.iter().any(|pattern| match pattern.strip_suffix('*') {
            Some(prefix) => identity.starts_with(prefix),
            None => identity == pattern,
        })
    }
}

impl Caller {
    /// Whom IAM says is calling, or whom a proxy vouches for.
    #[must_use]
    pub fn of(
        arn: &str,
        headers: &HeaderMap,
        operators: &Operators,
        proxies: &Operators,
    ) -> Option<Self> {
        if !proxies.include(arn) {
            return Some(Self { name: arn.to_owned(), may_act: operators.include(arn) });
        }
        let said = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let [email, user, groups] = FORWARDED.map(said);
        // A proxy that names nobody vouches for nobody.
        let name = email.or(user).filter(|name| !name.is_empty())?;
        let groups = groups.unwrap_or_default().split(',').map(str::trim);
        let mut identities = groups.map(|group| format!("group:{group}"));
        let may_act = operators.include(&format!("user:{name}"))
            || identities.any(|identity| operators.include(&identity));
        Some(Self { name: name.to_owned(), may_act })
    }
}

/// Lets in who is known, and refuses what another site makes a browser send.
pub(crate) async fn guarded(request: Request, next: Next) -> Response {
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
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "same-origin"),
        (header::CACHE_CONTROL, "no-store"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Lets in who may act.
pub(crate) async fn may_act(request: Request, next: Next) -> Response {
    match request.extensions().get::<Caller>() {
        Some(caller) if caller.may_act => next.run(request).await,
        caller => Failure::Forbidden.page(caller),
    }
}

/// Lets in who uses this machine's address. A name that another site's owner points to this machine would
/// make its pages ours in a browser's eyes (DNS rebinding).
pub(crate) async fn by_address(request: Request, next: Next) -> Response {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    let authority = host.and_then(|host| host.parse::<Authority>().ok());
    let is_address = authority.is_none_or(|authority| {
        let host = authority.host().trim_matches(['[', ']']);
        host == "localhost" || host.parse::<IpAddr>().is_ok()
    });
    if is_address { next.run(request).await } else { Failure::CrossSite.page(None) }
}

/// Whether a browser says that a page of the console itself sent this. What is no browser sends neither
/// header, and no other site can make it send anything.
fn is_same_site(headers: &HeaderMap) -> bool {
    let said = |name| headers.get(name).map(HeaderValue::as_bytes);
    if let Some(site) = said(header::HeaderName::from_static("sec-fetch-site")) {
        return matches!(site, b"same-origin" | b"none");
    }
    let Some(origin) = said(header::ORIGIN) else { return true };
    let host = said(header::HOST).unwrap_or_default();
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

    fn caller(arn: &str, operators: &str, said: &[(&'static str, &'static str)]) -> Option<Caller> {
        let proxies = "arn:aws:sts::123456789012:assumed-role/Proxy/*".parse().unwrap();
        Caller::of(arn, &headers(said), &operators.parse().unwrap(), &proxies)
    }

    #[test]
    fn an_operator_may_act_and_everyone_else_may_read() {
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
    fn only_a_proxy_is_believed_on_who_someone_is() {
        let said =
            [("x-forwarded-email", "ada@example.com"), ("x-forwarded-groups", "eng, on-call")];
        let ada = |may_act| Some(Caller { name: "ada@example.com".to_owned(), may_act });
        assert_eq!(caller(PROXY, "group:on-call", &said), ada(true));
        assert_eq!(caller(PROXY, "user:ada@example.com", &said), ada(true));
        assert_eq!(caller(PROXY, "group:other", &said), ada(false));
        assert_eq!(caller(PERSON, "group:on-call", &said).unwrap().name, PERSON);
        assert!(!caller(PERSON, "group:on-call", &said).unwrap().may_act);
        assert_eq!(caller(PROXY, PROXY, &[]), None, "a proxy that names nobody");
    }

    #[test]
    fn another_site_is_told_by_what_the_browser_says() {
        for (said, same) in [
            (&[][..], true),
            (&[("sec-fetch-site", "same-origin")], true),
            (&[("sec-fetch-site", "none")], true),
            (&[("sec-fetch-site", "same-site")], false),
            (&[("sec-fetch-site", "cross-site")], false),
            (&[("origin", "https://console.example"), ("host", "console.example")], true),
            (&[("origin", "https://evil.example"), ("host", "console.example")], false),
            (&[("origin", "null"), ("host", "console.example")], false),
        ] {
            assert_eq!(is_same_site(&headers(said)), same, "{said:?}");
        }
    }
}
