//! OAuth 2.0 access tokens by client credentials (RFC 6749, section 4.4), sent as bearer tokens (RFC 6750).
//!
//! The calls of an instance share one token. The first call that needs a new one requests it, and concurrent calls wait for
//! the answer and share it, whether it is a token or a fault. Errors, log lines and debug output contain neither the
//! credentials nor a token.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use reqwest::{
    Client, Request, Response, StatusCode, Url,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue},
};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use crate::{
    attempt::CallFault,
    connection_fault,
    retry_after::retry_after,
    transport::{error_word, not_sent},
};

/// The lifetime of a token whose response names none.
const LIFETIME_DEFAULT: Duration = Duration::from_secs(300);

/// The longest time that a token is used.
const LIFETIME_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// A token is replaced this long before it expires, or a tenth of its lifetime if that is shorter.
const MARGIN_MAX: Duration = Duration::from_secs(30);

/// The time limit of a request for a token.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// A service that refuses a token of this age refuses it for another reason than its age. It is longer than the longest
/// pause between two calls of an attempt, so that an attempt replaces a token only once.
const FRESH_FOR: Duration = Duration::from_secs(30);

/// The largest response of a token endpoint.
const RESPONSE_BYTES_MAX: usize = 64 * 1024;

/// Where and how an agent requests tokens: the object `oauth` of its secret.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OauthSettings {
    token_url: TokenUrl,
    client_id: String,
    client_secret: String,
    scope: Option<String>,
    audience: Option<String>,
    #[serde(default)]
    client_auth: ClientAuth,
}

/// How a token request names its client (RFC 6749, section 2.3.1).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ClientAuth {
    /// HTTP Basic, which every server has to support.
    #[default]
    Basic,
    /// Fields of the body.
    Body,
}

/// An https URL, or an http URL of this host.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
struct TokenUrl(Url);

/// The text is not a [`TokenUrl`]. The message does not contain it.
#[derive(Debug, thiserror::Error)]
#[error("not an https URL without credentials and fragment")]
struct InvalidTokenUrl;

impl TryFrom<String> for TokenUrl {
    type Error = InvalidTokenUrl;

    fn try_from(text: String) -> Result<Self, InvalidTokenUrl> {
        let url = Url::parse(&text).map_err(|_| InvalidTokenUrl)?;
        let is_local = matches!(url.host_str(), Some("127.0.0.1" | "localhost"));
        let is_safe = url.scheme() == "https" || (url.scheme() == "http" && is_local);
        let is_plain =
            url.username().is_empty() && url.password().is_none() && url.fragment().is_none();
        (is_safe && is_plain).then_some(Self(url)).ok_or(InvalidTokenUrl)
    }
}

impl fmt::Debug for OauthSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OauthSettings").finish_non_exhaustive()
    }
}

impl OauthSettings {
    /// A token request.
    fn request(&self) -> Request {
        let Self { token_url, client_id, client_secret, scope, audience, client_auth } = self;
        let mut request = Request::new(reqwest::Method::POST, token_url.0.clone());
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("grant_type", "client_credentials");
        for (name, value) in [("scope", scope), ("audience", audience)] {
            if let Some(value) = value {
                form.append_pair(name, value);
            }
        }
        match client_auth {
            ClientAuth::Basic => {
                let credentials = format!("{}:{}", encoded(client_id), encoded(client_secret));
                let credentials = format!("Basic {}", BASE64_STANDARD.encode(credentials));
                if let Some(value) = sensitive(&credentials) {
                    request.headers_mut().insert(AUTHORIZATION, value);
                }
            }
            ClientAuth::Body => {
                form.append_pair("client_id", client_id)
                    .append_pair("client_secret", client_secret);
            }
        }
        let form_type = HeaderValue::from_static("application/x-www-form-urlencoded");
        request.headers_mut().insert(CONTENT_TYPE, form_type);
        request.headers_mut().insert(ACCEPT, HeaderValue::from_static("application/json"));
        *request.body_mut() = Some(form.finish().into());
        request
    }
}

/// A text as a form encodes it.
fn encoded(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

/// The text as a header value that is never printed; `None` if it has invalid characters.
fn sensitive(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// An access token.
#[derive(Debug)]
pub(crate) struct Token {
    /// `Bearer …`, marked as sensitive.
    pub(crate) authorization: HeaderValue,
    received_at: Instant,
    /// When to request the next one.
    replace_at: Instant,
}

impl Token {
    /// Whether the token may be refused because of its age.
    pub(crate) fn is_old(&self) -> bool {
        self.received_at.elapsed() >= FRESH_FOR
    }
}

/// The result of a token request.
type TokenResult = Result<Arc<Token>, CallFault>;

/// Requests tokens and keeps the current one.
#[derive(Debug)]
pub(crate) struct TokenSource {
    settings: OauthSettings,
    /// The last result, and when it arrived.
    last: Mutex<Option<(Instant, TokenResult)>>,
    /// Held during a request for a token.
    requesting: tokio::sync::Mutex<()>,
}

impl TokenSource {
    pub(crate) fn new(settings: OauthSettings) -> Self {
        Self { settings, last: Mutex::new(None), requesting: tokio::sync::Mutex::default() }
    }

    pub(crate) fn settings(&self) -> &OauthSettings {
        &self.settings
    }

    /// The token for a call that may take `call_within`. It leaves the call at least half of this time.
    ///
    /// # Errors
    /// The token endpoint returned none. The call was not made.
    pub(crate) async fn token(&self, client: &Client, call_within: Duration) -> TokenResult {
        let asked_at = Instant::now();
        if let Some(result) = self.usable(asked_at) {
            return result;
        }
        let until = asked_at + REQUEST_TIMEOUT.min(call_within / 2);
        let _requesting = timeout_at(until, self.requesting.lock())
            .await
            .map_err(|_| unavailable("no answer in time", None))?;
        // Another call may have received a result during the wait.
        if let Some(result) = self.usable(asked_at) {
            return result;
        }
        let result = self.requested(client, until).await.map(Arc::new);
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) =
            Some((Instant::now(), result.clone()));
        result
    }

    /// The last result, if a call that needs a token since `asked_at` can use it. Every result that arrived since then is
    /// shared, also a fault and a token that must not be kept.
    fn usable(&self, asked_at: Instant) -> Option<TokenResult> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let (arrived_at, result) = last.as_ref()?;
        let is_valid = result.as_ref().is_ok_and(|token| Instant::now() < token.replace_at);
        (is_valid || *arrived_at > asked_at).then(|| result.clone())
    }

    /// Drops a token that the service refused, unless it has been replaced.
    pub(crate) fn drop_token(&self, refused: &Arc<Token>) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(&*last, Some((_, Ok(token))) if Arc::ptr_eq(token, refused)) {
            *last = None;
        }
    }

    async fn requested(&self, client: &Client, until: Instant) -> Result<Token, CallFault> {
        let mut request = self.settings.request();
        // Its lifetime counts from before the request, so that the token is never used for too long.
        let received_at = Instant::now();
        *request.timeout_mut() = Some(until.saturating_duration_since(received_at));
        let response = client.execute(request).await.map_err(|error| broken(&error))?;
        let status = response.status();
        if status.is_success() {
            return token(&body(response).await?, received_at).ok_or_else(unreadable);
        }
        let requested = retry_after(response.headers(), SystemTime::now());
        match status {
            // An endpoint that limits the rate of requests is available.
            StatusCode::TOO_MANY_REQUESTS => {
                Err(unavailable(&http_reason(status), Some(requested.unwrap_or_default())))
            }
            _ if status.is_server_error() => Err(unavailable(&http_reason(status), requested)),
            _ => {
                let body = body(response).await.unwrap_or_default();
                let word = error_code(&body).map(|word| format!(": {word}")).unwrap_or_default();
                let reason = format!("{}{word}", http_reason(status));
                // A rotated client secret is read within minutes.
                match matches!(status, StatusCode::UNAUTHORIZED | StatusCode::REQUEST_TIMEOUT) {
                    true => Err(unavailable(&reason, requested)),
                    false => Err(not_sent(&format!("{ENDPOINT}: {reason}"))),
                }
            }
        }
    }
}

/// The subject of all reasons of this file.
const ENDPOINT: &str = "OAuth token endpoint";

fn http_reason(status: StatusCode) -> String {
    format!("HTTP {status}")
}

/// The fault of a call that was not made, because there is no token now.
fn unavailable(reason: &str, retry_after: Option<Duration>) -> CallFault {
    let reason = format!("{ENDPOINT}: {reason}");
    CallFault::Transient { reason, retry_after, may_have_run: false, detail: None }
}

fn broken(error: &reqwest::Error) -> CallFault {
    match error.is_timeout() {
        true => unavailable("no answer in time", None),
        false => unavailable(&connection_fault::reason(error), None),
    }
}

fn unreadable() -> CallFault {
    not_sent(&format!("{ENDPOINT}: the response has no usable bearer token"))
}

async fn body(mut response: Response) -> Result<Vec<u8>, CallFault> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| broken(&error))? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() > RESPONSE_BYTES_MAX {
            return Err(unreadable());
        }
    }
    Ok(bytes)
}

/// The `error` of an error response (RFC 6749, section 5.2), if it is a word.
fn error_code(body: &[u8]) -> Option<String> {
    let body: Value = serde_json::from_slice(body).ok()?;
    error_word(body.get("error")?.as_str()?).map(str::to_owned)
}

/// The token of a successful response (RFC 6749, section 5.1).
fn token(body: &[u8], received_at: Instant) -> Option<Token> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let text = |name: &str| body.get(name)?.as_str();
    let access_token = text("access_token").filter(|token| !token.is_empty())?;
    if !text("token_type")?.eq_ignore_ascii_case("bearer") {
        return None;
    }
    let authorization = sensitive(&format!("Bearer {access_token}"))?;
    // Some servers send the number as a text.
    let seconds = body.get("expires_in").and_then(|value| {
        value.as_u64().or_else(|| value.as_str().and_then(|text| text.parse().ok()))
    });
    let lifetime = seconds.map_or(LIFETIME_DEFAULT, Duration::from_secs).min(LIFETIME_MAX);
    let replace_at = received_at + (lifetime - MARGIN_MAX.min(lifetime / 10));
    Some(Token { authorization, received_at, replace_at })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn settings(url: &str) -> Result<OauthSettings, serde_json::Error> {
        let settings = json!({ "token_url": url, "client_id": "id", "client_secret": "s3cret" });
        serde_json::from_value(settings)
    }

    #[test]
    fn the_token_url_is_https_or_of_this_host() {
        for url in ["https://idp.example/t?a=1", "http://127.0.0.1:1/t", "http://localhost/t"] {
            assert!(settings(url).is_ok(), "{url}");
        }
        for url in [
            "http://idp.example/t",
            "http://localhost.idp.example/t",
            "https://me:pw@idp.example/t",
            "https://idp.example/t#f",
            "ftp://localhost/t",
            "/t",
        ] {
            assert!(settings(url).is_err(), "{url}");
        }
    }

    #[test]
    fn a_token_is_replaced_a_margin_before_it_expires() {
        let now = Instant::now();
        for (expires_in, seconds) in [
            (json!(3600), 3570),
            (json!("3600"), 3570),
            (json!(100), 90),
            (json!(0), 0),
            (json!(null), 270),
            (json!(-1), 270),
            (json!(u64::MAX), 24 * 60 * 60 - 30),
        ] {
            let body =
                json!({ "access_token": "t", "token_type": "bEARER", "expires_in": expires_in });
            let token = token(body.to_string().as_bytes(), now).unwrap();
            assert_eq!(token.replace_at - now, Duration::from_secs(seconds), "{expires_in}");
        }
    }

    #[test]
    fn only_a_bearer_token_is_used() {
        for body in [
            json!({ "access_token": "t" }),
            json!({ "access_token": "t", "token_type": "mac" }),
            json!({ "access_token": "", "token_type": "Bearer" }),
            json!({ "access_token": "a\nb", "token_type": "Bearer" }),
            json!({ "token_type": "Bearer" }),
            json!([]),
        ] {
            assert!(token(body.to_string().as_bytes(), Instant::now()).is_none(), "{body}");
        }
    }
}
