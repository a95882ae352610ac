//! Credentials from a secret in AWS Secrets Manager: headers, the client of OAuth tokens, and a custom CA. The agent reads
//! the secret when the function starts, and again every five minutes, so that a rotated secret takes effect without a
//! deployment. Errors and log lines never contain its content.

use aws_config::SdkConfig;
use jiff::Timestamp;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value};
use steward_aws::secret::{SecretNotRead, StoredSecret};

use crate::{
    credentials::{CaBundle, Credentials},
    http::{Headers, HttpService},
};

/// A secret with credentials for the calls of a service.
#[derive(Debug)]
pub struct Secret {
    stored: StoredSecret,
    /// The configured headers, which the secret's override.
    configured_headers: Headers,
    service: HttpService,
}

/// Why a secret cannot be used. The error contains the secret's ARN and none of its content.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// Secrets Manager did not return it.
    #[error(transparent)]
    NotRead(#[from] SecretNotRead),
    /// Its text is not a JSON object of headers.
    #[error("secret `{0}` is not a JSON object of headers with a string for each name")]
    NotHeaders(String),
    /// Its `oauth` is invalid.
    #[error(
        "secret `{0}`: `oauth` is not an object of strings with an https `token_url`, `client_id` and `client_secret`, \
         and optionally `scope`, `audience` and `client_auth` (`basic` or `body`)"
    )]
    Oauth(String),
    /// Its `tls` is invalid.
    #[error("secret `{0}`: `tls` is not an object whose `ca` has one or more certificates in PEM")]
    Tls(String),
    /// The TLS back end failed to initialise.
    #[error("secret `{0}`: cannot create an HTTP client")]
    Client(String),
}

/// The object `tls` of a secret.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TlsSettings {
    ca: String,
}

impl Secret {
    /// Reads the secret `arn` for the first time and sets its credentials on `service`. Its headers override
    /// `configured_headers`.
    /// `None` if `arn` is empty.
    ///
    /// # Errors
    /// The secret cannot be read, or does not contain credentials.
    pub async fn configured(
        sdk: &SdkConfig,
        arn: String,
        configured_headers: Headers,
        service: &HttpService,
        now: Timestamp,
    ) -> Result<Option<Self>, SecretError> {
        if arn.is_empty() {
            return Ok(None);
        }
        let stored = StoredSecret::new(sdk, arn, now);
        let secret = Self { stored, configured_headers, service: service.clone() };
        secret.read().await?;
        Ok(Some(secret))
    }

    /// Reads the secret again if it is due. If the read fails, the agent keeps the credentials that it read before.
    pub async fn refresh(&self, now: Timestamp) {
        if !self.stored.claim_read(now) {
            return;
        }
        match self.read().await {
            Ok(()) => self.stored.was_read(now),
            Err(error) => {
                tracing::warn!(%error, "secret not refreshed; the agent keeps the credentials that it read before")
            }
        }
    }

    async fn read(&self) -> Result<(), SecretError> {
        let credentials = self.credentials(&self.stored.read().await?)?;
        let set = self.service.set_credentials(credentials);
        set.map_err(|_| SecretError::Client(self.stored.arn().to_owned()))
    }

    /// The credentials in a secret: strings are headers, and the objects `oauth` and `tls` are settings.
    fn credentials(&self, text: &str) -> Result<Credentials, SecretError> {
        // The errors do not name the invalid key: in a malformed secret, it may be a secret value.
        let not_headers = || SecretError::NotHeaders(self.stored.arn().to_owned());
        let mut values: Map<String, Value> =
            serde_json::from_str(text).map_err(|_| not_headers())?;
        let mut settings = |key: &str| match values.get(key) {
            None | Some(Value::String(_)) => None,
            Some(_) => values.shift_remove(key),
        };
        let (oauth, tls) = (settings("oauth"), settings("tls"));
        let invalid_oauth = || SecretError::Oauth(self.stored.arn().to_owned());
        let oauth = oauth.map(|oauth| object(oauth).ok_or_else(invalid_oauth)).transpose()?;
        let ca = tls.map(|tls| self.ca(tls)).transpose()?;
        let headers: Headers =
            Value::Object(values).to_string().parse().map_err(|_| not_headers())?;
        let headers = self.configured_headers.clone().merged_with(headers);
        Ok(Credentials { headers, oauth, ca })
    }

    fn ca(&self, tls: Value) -> Result<CaBundle, SecretError> {
        let invalid = || SecretError::Tls(self.stored.arn().to_owned());
        let TlsSettings { ca } = object(tls).ok_or_else(invalid)?;
        ca.parse().map_err(|_| invalid())
    }
}

/// The settings in a JSON object. Serde would accept a list too.
fn object<T: DeserializeOwned>(value: Value) -> Option<T> {
    serde_json::from_value(value.is_object().then_some(value)?).ok()
}
