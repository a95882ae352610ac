//! The credentials of an agent for its HTTP service, and a custom CA.

use std::{
    str::FromStr,
    sync::{Arc, OnceLock},
    time::Duration,
};

use reqwest::{
    Certificate, Client, StatusCode,
    header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue},
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value};
use steward_core::{
    limits,
    model::{key_format::KeyFormat, messages::StepRequest, payload::PayloadReference},
};
use steward_runtime::trace;

use crate::{
    attempt::CallFault,
    headers::Headers,
    oauth::{OauthSettings, Token, TokenSource},
    transport::{client, client_trusting, single_use_client},
};

/// The credentials of an agent for its service, and whom it trusts.
#[derive(Debug, Clone, Default)]
pub struct Credentials {
    /// Headers of every call.
    pub headers: Headers,
    /// Where the agent gets the bearer tokens of its calls. They replace an `authorization` of the headers.
    pub oauth: Option<OauthSettings>,
    /// Authorities of the service and of the token endpoint, besides the public ones.
    pub ca: Option<CaBundle>,
}

/// A text does not contain credentials. The message contains none of it: in a malformed secret, also a key may be secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidCredentials {
    /// It is not a JSON object of headers.
    #[error("not a JSON object of headers with a string for each name")]
    Headers,
    /// Its `oauth` is invalid.
    #[error(
        "`oauth` is not an object of strings with an https `token_url`, `client_id` and `client_secret`, and optionally \
         `scope`, `audience` and `client_auth` (`basic` or `body`)"
    )]
    Oauth,
    /// Its `tls` is invalid.
    #[error("`tls` is not an object whose `ca` has one or more certificates in PEM")]
    Tls,
}

/// The object `tls` of a secret.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TlsSettings {
    ca: String,
}

impl FromStr for Credentials {
    type Err = InvalidCredentials;

    /// Parses the text of a secret: strings are headers, and the objects `oauth` and `tls` are settings.
    fn from_str(text: &str) -> Result<Self, InvalidCredentials> {
        let mut values: Map<String, Value> =
            serde_json::from_str(text).map_err(|_| InvalidCredentials::Headers)?;
        let mut settings = |key: &str| match values.get(key) {
            None | Some(Value::String(_)) => None,
            Some(_) => values.shift_remove(key),
        };
        let (oauth, tls) = (settings("oauth"), settings("tls"));
        let oauth =
            oauth.map(|oauth| object(oauth).ok_or(InvalidCredentials::Oauth)).transpose()?;
        let ca = tls.map(|tls| {
            let TlsSettings { ca } = object(tls)?;
            ca.parse().ok()
        });
        let ca = ca.map(|ca| ca.ok_or(InvalidCredentials::Tls)).transpose()?;
        let headers =
            Value::Object(values).to_string().parse().map_err(|_| InvalidCredentials::Headers)?;
        Ok(Self { headers, oauth, ca })
    }
}

/// The settings in a JSON object. Serde would accept a list too.
fn object<T: DeserializeOwned>(value: Value) -> Option<T> {
    serde_json::from_value(value.is_object().then_some(value)?).ok()
}

/// Certificates of authorities, in PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct CaBundle(String);

/// The text holds no certificate, or an invalid one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not one or more certificates in PEM")]
pub struct InvalidCaBundle;

impl FromStr for CaBundle {
    type Err = InvalidCaBundle;

    fn from_str(text: &str) -> Result<Self, InvalidCaBundle> {
        let bundle = Self(text.to_owned());
        let certificates = bundle.certificates().map_err(|_| InvalidCaBundle)?;
        if certificates.is_empty() {
            return Err(InvalidCaBundle);
        }
        // Only a client parses the certificates.
        client_trusting(limits::CALL_WITHIN_MAX, certificates).map_err(|_| InvalidCaBundle)?;
        Ok(bundle)
    }
}

impl CaBundle {
    fn certificates(&self) -> reqwest::Result<Vec<Certificate>> {
        Certificate::from_pem_bundle(self.0.as_bytes())
    }
}

impl std::fmt::Debug for CaBundle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CaBundle").finish_non_exhaustive()
    }
}

/// What the calls of an [`HttpService`](crate::http::HttpService) use of its credentials.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) client: Client,
    /// The client of calls that must not be repeated, as soon as there was one.
    single_use: OnceLock<Client>,
    call_timeout: Duration,
    /// The authorities that the clients trust besides the public ones.
    ca: Option<CaBundle>,
    headers: Headers,
    pub(crate) tokens: Option<Arc<TokenSource>>,
}

impl Connection {
    pub(crate) fn new(call_timeout: Duration, headers: Headers) -> reqwest::Result<Self> {
        let client = client(call_timeout)?;
        Ok(Self {
            client,
            single_use: OnceLock::new(),
            call_timeout,
            ca: None,
            headers,
            tokens: None,
        })
    }

    /// The client for a request. A call that must not be repeated has a connection of its own. A service may close a reused one
    /// while the call is sent; then it is unknown whether the service got the call.
    pub(crate) fn client_for(&self, request: &StepRequest) -> reqwest::Result<&Client> {
        if request.idempotent {
            return Ok(&self.client);
        }
        if let Some(client) = self.single_use.get() {
            return Ok(client);
        }
        let client = single_use_client(self.call_timeout, self.certificates()?)?;
        Ok(self.single_use.get_or_init(|| client))
    }

    fn certificates(&self) -> reqwest::Result<Vec<Certificate>> {
        Ok(self.ca.as_ref().map(CaBundle::certificates).transpose()?.unwrap_or_default())
    }

    /// The same connection with other credentials. It keeps the open connections and the current token if the new
    /// credentials say the same about them.
    pub(crate) fn with(&self, credentials: Credentials) -> reqwest::Result<Self> {
        let Credentials { headers, oauth, ca } = credentials;
        let kept = self.tokens.clone().filter(|tokens| Some(tokens.settings()) == oauth.as_ref());
        let tokens = kept.or_else(|| Some(Arc::new(TokenSource::new(oauth?))));
        let is_same_ca = ca == self.ca;
        let (client, single_use) = (self.client.clone(), OnceLock::new());
        let next =
            Self { client, single_use, call_timeout: self.call_timeout, ca, headers, tokens };
        if is_same_ca {
            return Ok(next);
        }
        Ok(Self { client: client_trusting(self.call_timeout, next.certificates()?)?, ..next })
    }

    /// The headers of one call. Steward's own headers override configured headers of the same name, except the content type.
    /// `payload` is the body, if that is a payload; `key_format` applies to what the request leaves open.
    pub(crate) fn headers(
        &self,
        request: &StepRequest,
        traceparent: Option<&str>,
        payload: Option<&PayloadReference>,
        key_format: &KeyFormat,
    ) -> Result<HeaderMap, String> {
        let value = |text: &str| HeaderValue::from_str(text).map_err(|error| error.to_string());
        let mut headers = self.headers.0.clone();
        let requested = request.key_format.clone().unwrap_or_default();
        let (name, key) = requested.header(key_format, &request.idempotency_key);
        if requested.header.is_some() && headers.contains_key(&name) {
            // It may be a credential.
            return Err("the header of the idempotency key is one that the agent sets".to_owned());
        }
        let name = HeaderName::try_from(name).map_err(|error| error.to_string())?;
        headers.insert(name, value(&key)?);
        headers.insert("traceparent", value(&trace::of_call(request, traceparent))?);
        if let Some(PayloadReference { bytes, content_type, .. }) = payload {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(*bytes));
            let content_type = value(content_type.as_str())?;
            headers.entry(CONTENT_TYPE).or_insert(content_type);
        } else if request.body.is_some() {
            // A configured type takes precedence: AWS APIs choose their protocol by it.
            let json = HeaderValue::from_static("application/json");
            headers.entry(CONTENT_TYPE).or_insert(json);
        }
        Ok(headers)
    }

    /// Drops an old token that the service refused: it may have expired early or been revoked. The fault lets the attempt
    /// repeat the call with a new token. Only a new token proves that the service refuses the client.
    pub(crate) fn check_token(
        &self,
        token: &Arc<Token>,
        status: StatusCode,
        request: &StepRequest,
    ) -> Result<(), CallFault> {
        let is_refused = status == StatusCode::UNAUTHORIZED
            && (!request.responses.contains(status.as_u16())
                || request.responses.is_conditional(status.as_u16()));
        if !is_refused || !token.is_old() {
            return Ok(());
        }
        if let Some(tokens) = &self.tokens {
            tokens.drop_token(token);
        }
        let reason = format!("HTTP {status}: the access token is replaced");
        let retry_after = Some(Duration::ZERO);
        Err(CallFault::Transient { reason, retry_after, may_have_run: false, detail: None })
    }
}
