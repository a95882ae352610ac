//! Credentials from a secret in AWS Secrets Manager: headers, the client of OAuth tokens, and a custom CA. The agent reads
//! the secret when the function starts, and again every five minutes, so that a rotated secret takes effect without a
//! deployment. Errors and log lines never contain its content.

use aws_config::SdkConfig;
use jiff::Timestamp;
use steward_aws::secret::{SecretNotRead, StoredSecret};

use crate::{
    credentials::{Credentials, InvalidCredentials},
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
    /// It does not contain credentials.
    #[error("secret `{0}`: {1}")]
    Invalid(String, InvalidCredentials),
    /// The TLS back end failed to initialise.
    #[error("secret `{0}`: cannot create an HTTP client")]
    Client(String),
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

    /// The credentials in a secret.
    fn credentials(&self, text: &str) -> Result<Credentials, SecretError> {
        let invalid = |reason| SecretError::Invalid(self.stored.arn().to_owned(), reason);
        let Credentials { headers, oauth, ca } = text.parse().map_err(invalid)?;
        let headers = self.configured_headers.clone().merged_with(headers);
        Ok(Credentials { headers, oauth, ca })
    }
}
