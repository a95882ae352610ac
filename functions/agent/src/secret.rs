//! Headers from a secret in AWS Secrets Manager. The agent reads the secret when the function starts, and again every five
//! minutes, so that a rotated secret takes effect without a deployment. Errors and log lines never contain its content.

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
use steward_core::model::time::later;
use steward_runtime::ports::error_chain;

use crate::http::{Headers, HttpService};

/// The age at which the secret is read again.
const REFRESH_INTERVAL: Duration = Duration::from_secs(300);

/// The pause after a failed read. It limits how often a batch has to wait for a read.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);

/// The time limit of a read, including retries. Lambda limits the start of a function to ten seconds.
const READ_TIMEOUT: Duration = Duration::from_secs(5);

/// A secret with headers for the calls of a service.
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
}

impl Secret {
    /// Reads the secret `arn` for the first time and sets its headers on `service`. They override `configured_headers`.
    /// `None` if `arn` is empty.
    ///
    /// # Errors
    /// The secret cannot be read, or does not contain headers.
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

    /// Reads the secret again if it is due. If the read fails, the agent keeps the headers that it read before.
    pub async fn refresh(&self, now: Timestamp) {
        if !self.claim_read(now) {
            return;
        }
        match self.read().await {
            Ok(()) => self.set_next_read(later(now, REFRESH_INTERVAL)),
            Err(error) => {
                tracing::warn!(%error, "secret not refreshed; the agent keeps the headers that it read before")
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
        let headers = self.headers(&secret)?;
        self.service.set_headers(self.configured_headers.clone().merged_with(headers));
        Ok(())
    }

    fn headers(&self, secret: &GetSecretValueOutput) -> Result<Headers, SecretError> {
        // The error does not name the invalid header: in a malformed secret, the name may be a secret value.
        let text = secret.secret_string().unwrap_or_default();
        text.parse().map_err(|_| SecretError::NotHeaders(self.arn.clone()))
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
