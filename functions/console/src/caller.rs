//! The caller of a request, and who may send commands.
//!
//! On AWS the function URL accepts only callers that IAM allows to invoke it, and passes their identity. An
//! identity-aware proxy signs its requests with its own role and names the person in headers. The console trusts these
//! headers only from configured proxies.

use std::{convert::Infallible, str::FromStr};

use axum::http::HeaderMap;

/// The headers with which a proxy names a person, as oauth2-proxy sends them: email, user, groups.
pub const FORWARDED: [&str; 3] = ["x-forwarded-email", "x-forwarded-user", "x-forwarded-groups"];

/// The authenticated caller of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsoleCaller {
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

impl ConsoleCaller {
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

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::{HeaderValue, header};

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
    ) -> Option<ConsoleCaller> {
        let proxies = "arn:aws:sts::123456789012:assumed-role/Proxy/*".parse().unwrap();
        ConsoleCaller::of(arn, &headers(pairs), &operators.parse().unwrap(), &proxies)
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
                ConsoleCaller { name: PERSON.to_owned(), may_act: false },
                "{operators}"
            );
        }
    }

    #[test]
    fn headers_about_the_caller_are_trusted_only_from_a_proxy() {
        let pairs =
            [("x-forwarded-email", "ada@example.com"), ("x-forwarded-groups", "eng, on-call")];
        let ada = |may_act| Some(ConsoleCaller { name: "ada@example.com".to_owned(), may_act });
        assert_eq!(caller(PROXY, "group:on-call", &pairs), ada(true));
        assert_eq!(caller(PROXY, "user:ada@example.com", &pairs), ada(true));
        assert_eq!(caller(PROXY, "group:other", &pairs), ada(false));
        assert_eq!(caller(PERSON, "group:on-call", &pairs).unwrap().name, PERSON);
        assert!(!caller(PERSON, "group:on-call", &pairs).unwrap().may_act);
        assert_eq!(caller(PROXY, PROXY, &[]), None, "a proxy without headers about the caller");
    }
}
