//! Headers from a secret in AWS Secrets Manager: read when the function starts, and again every five
//! minutes, so that a rotated secret arrives without a deployment. Its content is in no error and no
//! log line.

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
use steward_runtime::ports::chain;

use crate::http::{Headers, HttpService};

/// How old a secret may be before it is read again.
const READ_EVERY: Duration = Duration::from_secs(300);

/// How soon after a failure it is tried again: the batch at hand waits for it.
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(30);

/// How long reading may take, repeated calls included. Lambda gives a start ten seconds in all.
const READ_WITHIN: Duration = Duration::from_secs(5);

/// A secret that holds headers of a service's calls.
#[derive(Debug)]
pub struct Secret {
    client: Client,
    arn: String,
    /// The headers that the secret's are laid over.
    given: Headers,
    service: HttpService,
    /// When to read it next.
    due: Mutex<Timestamp>,
}

/// Why a secret is of no use. It names the secret, and holds nothing of its content: the SDK's own
/// error is kept as text, for its debug output may hold the answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// Secrets Manager did not give it.
    #[error("secret `{arn}` not read: {reason}")]
    NotRead {
        /// The secret.
        arn: String,
        /// What Secrets Manager or the connection said.
        reason: String,
    },
    /// It is not what headers are read from.
    #[error("secret `{0}` is not a JSON object of headers, a text for each name")]
    NotHeaders(String),
}

impl Secret {
    /// Reads the secret `arn` for the first time, and gives its headers to `service`, over those
    /// `given`. None if no secret is configured.
    ///
    /// # Errors
    /// It cannot be read, or holds no headers.
    pub async fn configured(
        sdk: &SdkConfig,
        arn: String,
        given: Headers,
        service: &HttpService,
        now: Timestamp,
    ) -> Result<Option<Self>, SecretError> {
        if arn.is_empty() {
            return Ok(None);
        }
        let patience = TimeoutConfig::builder().operation_timeout(READ_WITHIN).build();
        let config = aws_sdk_secretsmanager::config::Builder::from(sdk).timeout_config(patience);
        let client = Client::from_conf(config.build());
        let due = Mutex::new(later(now, READ_EVERY));
        let secret = Self { client, arn, given, service: service.clone(), due };
        secret.read().await?;
        Ok(Some(secret))
    }

    /// Reads the secret again if it is old; what was read before stays if that fails.
    pub async fn refresh(&self, now: Timestamp) {
        if !self.take_turn(now) {
            return;
        }
        match self.read().await {
            Ok(()) => self.set_due(later(now, READ_EVERY)),
            Err(error) => tracing::warn!(%error, "the headers read before are kept"),
        }
    }

    /// Whether the secret is due. Then the next turn is that of a failure, which also keeps others
    /// from reading it at the same time.
    fn take_turn(&self, now: Timestamp) -> bool {
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = now >= *due;
        if is_due {
            *due = later(now, TRY_AGAIN_AFTER);
        }
        is_due
    }

    fn set_due(&self, at: Timestamp) {
        *self.due.lock().unwrap_or_else(PoisonError::into_inner) = at;
    }

    async fn read(&self) -> Result<(), SecretError> {
        let answer = self.client.get_secret_value().secret_id(&self.arn).send().await;
        let secret = answer.map_err(|error| self.not_read(&error))?;
        let headers = self.headers(&secret)?;
        self.service.set_headers(self.given.clone().overlaid(headers));
        Ok(())
    }

    fn headers(&self, secret: &GetSecretValueOutput) -> Result<Headers, SecretError> {
        // Which header is wrong is not said: a secret in the wrong form may have its value there.
        let text = secret.secret_string().unwrap_or_default();
        text.parse().map_err(|_| SecretError::NotHeaders(self.arn.clone()))
    }

    fn not_read(&self, error: &SdkError<GetSecretValueError>) -> SecretError {
        let reason = match (error.code(), error.message()) {
            (Some(code), Some(message)) => format!("{code}: {message}"),
            (Some(code), None) => code.to_owned(),
            (None, _) => chain(error),
        };
        SecretError::NotRead { arn: self.arn.clone(), reason }
    }
}
