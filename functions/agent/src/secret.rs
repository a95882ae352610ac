//! Credentials from a secret in AWS Secrets Manager: headers, the client of OAuth tokens, and a custom CA. The agent reads
//! the secret when the function starts, and again every five minutes, so that a rotated secret takes effect without a
//! deployment. Errors and log lines never contain its content.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use aws_config::{SdkConfig, timeout::TimeoutConfig};
use aws_sdk_secretsmanager::{
    Client,
    error::{ProvideErrorMetadata, SdkError},
    operation::get_secret_value::{GetSecretValueError, GetSecretValueOutput},
};
use jiff::Timestamp;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value};
use steward_core::model::time::later;
use steward_runtime::ports::error_chain;

use crate::{
    credentials::{CaBundle, Credentials},
    http::{Headers, HttpService},
};

/// The age at which the secret is read again.
const REFRESH_INTERVAL: Duration = Duration::from_secs(300);

/// The pause after a failed read. It limits how often a batch has to wait for a read.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);

/// The time limit of a read, including retries. Lambda limits the start of a function to ten seconds.
const READ_TIMEOUT: Duration = Duration::from_secs(5);

/// A secret with credentials for the calls of a service.
#[derive(Debug)]
pub struct Secret {
    client: Client,
    arn: String,
    /// The configured headers, which the secret's override.
    configured_headers: Headers,
    service: HttpService,
    /// When to read the secret next.
    next_read: Mutex<Timestamp>,
}

/// Why a secret cannot be used. The error contains the secret's ARN and none of its content. The SDK's error is kept as
/// text, because its debug output may contain the response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// Secrets Manager did not return it.
    #[error("cannot read secret `{arn}`: {reason}")]
    NotRead {
        /// The ARN of the secret.
        arn: String,
        /// The error of Secrets Manager or of the connection.
        reason: String,
    },
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
        let timeouts = TimeoutConfig::builder().operation_timeout(READ_TIMEOUT).build();
        let config = aws_sdk_secretsmanager::config::Builder::from(sdk).timeout_config(timeouts);
        let client = Client::from_conf(config.build());
        let next_read = Mutex::new(later(now, REFRESH_INTERVAL));
        let secret = Self { client, arn, configured_headers, service: service.clone(), next_read };
        secret.read().await?;
        Ok(Some(secret))
    }

    /// Reads the secret again if it is due. If the read fails, the agent keeps the credentials that it read before.
    pub async fn refresh(&self, now: Timestamp) {
        if !self.claim_read(now) {
            return;
        }
        match self.read().await {
            Ok(()) => self.set_next_read(later(now, REFRESH_INTERVAL)),
            Err(error) => {
                tracing::warn!(%error, "secret not refreshed; the agent keeps the credentials that it read before")
            }
        }
    }

    /// Whether the secret is due. If it is, this moves the next read to the time after a failure, so that concurrent
    /// callers do not read it too.
    fn claim_read(&self, now: Timestamp) -> bool {
        let mut next_read = self.next_read.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = now >= *next_read;
        if is_due {
            *next_read = later(now, RETRY_INTERVAL);
        }
        is_due
    }

    fn set_next_read(&self, at: Timestamp) {
        *self.next_read.lock().unwrap_or_else(PoisonError::into_inner) = at;
    }

    async fn read(&self) -> Result<(), SecretError> {
        let response = self.client.get_secret_value().secret_id(&self.arn).send().await;
        let secret = response.map_err(|error| self.not_read(&error))?;
        let credentials = self.credentials(&secret)?;
        let set = self.service.set_credentials(credentials);
        set.map_err(|_| SecretError::Client(self.arn.clone()))
    }

    /// The credentials in a secret: strings are headers, and the objects `oauth` and `tls` are settings.
    fn credentials(&self, secret: &GetSecretValueOutput) -> Result<Credentials, SecretError> {
        // The errors do not name the invalid key: in a malformed secret, it may be a secret value.
        let not_headers = || SecretError::NotHeaders(self.arn.clone());
        let text = secret.secret_string().unwrap_or_default();
        let mut values: Map<String, Value> =
            serde_json::from_str(text).map_err(|_| not_headers())?;
        let mut settings = |key: &str| match values.get(key) {
            None | Some(Value::String(_)) => None,
            Some(_) => values.shift_remove(key),
        };
        let (oauth, tls) = (settings("oauth"), settings("tls"));
        let invalid_oauth = || SecretError::Oauth(self.arn.clone());
        let oauth = oauth.map(|oauth| object(oauth).ok_or_else(invalid_oauth)).transpose()?;
        let ca = tls.map(|tls| self.ca(tls)).transpose()?;
        let headers: Headers =
            Value::Object(values).to_string().parse().map_err(|_| not_headers())?;
        let headers = self.configured_headers.clone().merged_with(headers);
        Ok(Credentials { headers, oauth, ca })
    }

    fn ca(&self, tls: Value) -> Result<CaBundle, SecretError> {
        let invalid = || SecretError::Tls(self.arn.clone());
        let TlsSettings { ca } = object(tls).ok_or_else(invalid)?;
        ca.parse().map_err(|_| invalid())
    }

    fn not_read(&self, error: &SdkError<GetSecretValueError>) -> SecretError {
        let reason = match (error.code(), error.message()) {
            (Some(code), Some(message)) => format!("{code}: {message}"),
            (Some(code), None) => code.to_owned(),
            (None, _) => error_chain(error),
        };
        SecretError::NotRead { arn: self.arn.clone(), reason }
    }
}

/// The settings in a JSON object. Serde would accept a list too.
fn object<T: DeserializeOwned>(value: Value) -> Option<T> {
    serde_json::from_value(value.is_object().then_some(value)?).ok()
}
