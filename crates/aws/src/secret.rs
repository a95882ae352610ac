//! A secret of AWS Secrets Manager that a function reads when it starts and again from time to time, so that a changed
//! secret takes effect without a deployment. Errors and log lines never contain its content.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use aws_config::{SdkConfig, timeout::TimeoutConfig};
use aws_sdk_secretsmanager::{
    Client,
    error::{ProvideErrorMetadata, SdkError},
    operation::get_secret_value::GetSecretValueError,
};
use jiff::Timestamp;
use steward_core::model::time::later;
use steward_runtime::ports::error_chain;

use crate::ports::Shared;

/// The age at which a secret is read again.
const REFRESH_INTERVAL: Duration = Duration::from_secs(300);

/// The pause after a read that failed. It limits how often a batch has to wait for a read.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);

/// The time limit of a read, including retries. Lambda limits the start of a function to ten seconds.
const READ_TIMEOUT: Duration = Duration::from_secs(5);

type Parser<T, E> = dyn Fn(&str) -> Result<T, E> + Send + Sync;

/// The value in a secret. Each read of the secret replaces it.
pub struct RefreshedSecret<T, E> {
    secret: StoredSecret,
    parse: Box<Parser<T, E>>,
    current: Shared<T>,
}

/// Why a secret has no value. The error contains no part of the secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SecretError<E: std::error::Error + 'static> {
    /// The secret cannot be read.
    #[error(transparent)]
    NotRead(#[from] SecretNotRead),
    /// The secret does not contain such a value.
    #[error("secret `{arn}`")]
    Invalid {
        /// The ARN of the secret.
        arn: String,
        /// What is wrong.
        #[source]
        source: E,
    },
}

impl<T, E: std::error::Error + 'static> RefreshedSecret<T, E> {
    /// Reads the value from the secret `arn`. If that fails, `otherwise` returns the value, or an error.
    pub(crate) async fn of<F>(
        sdk: &SdkConfig,
        arn: &str,
        now: Timestamp,
        parse: impl Fn(&str) -> Result<T, E> + Send + Sync + 'static,
        otherwise: impl FnOnce(SecretError<E>) -> Result<T, F>,
    ) -> Result<Self, F> {
        let secret = StoredSecret::new(sdk, arn.to_owned(), now);
        let value = secret.read_value(&parse).await.or_else(otherwise)?;
        Ok(Self { secret, parse: Box::new(parse), current: Shared::new(value) })
    }

    /// The value, shared with those who use it.
    #[must_use]
    pub fn shared(&self) -> &Shared<T> {
        &self.current
    }

    /// Reads the secret again if it is due. If the read fails, the value stays as it is.
    pub async fn refresh(&self, now: Timestamp) {
        if self.secret.claim_read(now) {
            self.replace(now).await;
        }
    }

    /// Reads the secret because its value does not suffice, at most twice a minute. Returns whether it was read.
    pub async fn refresh_early(&self, now: Timestamp) -> bool {
        self.secret.claim_extra_read(now) && self.replace(now).await
    }

    async fn replace(&self, now: Timestamp) -> bool {
        match self.secret.read_value(&self.parse).await {
            Ok(value) => {
                self.secret.was_read(now);
                self.current.replace(value);
                true
            }
            Err(error) => {
                tracing::warn!(%error, "secret not refreshed; what was read before stays in use");
                false
            }
        }
    }
}

/// A secret, and when to read it next.
#[derive(Debug)]
pub struct StoredSecret {
    client: Client,
    arn: String,
    next_read: Mutex<NextRead>,
}

#[derive(Debug, Clone, Copy)]
struct NextRead {
    /// When the content is too old.
    due: Timestamp,
    /// The earliest time of an extra read.
    extra_from: Timestamp,
}

/// Secrets Manager did not return a secret. The SDK's error is kept as text, because its debug output may contain the
/// response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot read secret `{arn}`: {reason}")]
pub struct SecretNotRead {
    /// The ARN of the secret.
    pub arn: String,
    /// The error of Secrets Manager or of the connection.
    pub reason: String,
}

impl StoredSecret {
    /// The secret `arn`, which the caller reads at once, at `now`.
    #[must_use]
    pub fn new(sdk: &SdkConfig, arn: String, now: Timestamp) -> Self {
        let timeouts = TimeoutConfig::builder().operation_timeout(READ_TIMEOUT).build();
        let config = aws_sdk_secretsmanager::config::Builder::from(sdk).timeout_config(timeouts);
        let client = Client::from_conf(config.build());
        Self { client, arn, next_read: Mutex::new(NextRead::after_success(now)) }
    }

    /// The ARN of the secret.
    #[must_use]
    pub fn arn(&self) -> &str {
        &self.arn
    }

    /// Reads its text.
    ///
    /// # Errors
    /// Secrets Manager cannot be reached, or refuses the request.
    pub async fn read(&self) -> Result<String, SecretNotRead> {
        let response = self.client.get_secret_value().secret_id(&self.arn).send().await;
        let secret = response.map_err(|error| self.not_read(&error))?;
        Ok(secret.secret_string.unwrap_or_default())
    }

    async fn read_value<T, E: std::error::Error + 'static>(
        &self,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Result<T, SecretError<E>> {
        let invalid = |source| SecretError::Invalid { arn: self.arn.clone(), source };
        parse(&self.read().await?).map_err(invalid)
    }

    /// Whether the secret is due. If it is, this moves the next read to the time after a failure, so that concurrent
    /// callers do not read it too.
    pub fn claim_read(&self, now: Timestamp) -> bool {
        self.claim(now, |next| next.due)
    }

    /// Whether the secret may be read because its content does not suffice: half a minute after the last read.
    pub fn claim_extra_read(&self, now: Timestamp) -> bool {
        self.claim(now, |next| next.extra_from)
    }

    fn claim(&self, now: Timestamp, from: impl Fn(&NextRead) -> Timestamp) -> bool {
        let mut next = self.next_read.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = now >= from(&next);
        if is_due {
            let retry = later(now, RETRY_INTERVAL);
            *next = NextRead { due: retry, extra_from: retry };
        }
        is_due
    }

    /// Records a read that succeeded.
    pub fn was_read(&self, now: Timestamp) {
        let mut next = self.next_read.lock().unwrap_or_else(PoisonError::into_inner);
        *next = NextRead::after_success(now);
    }

    fn not_read(&self, error: &SdkError<GetSecretValueError>) -> SecretNotRead {
        let reason = match (error.code(), error.message()) {
            (Some(code), Some(message)) => format!("{code}: {message}"),
            (Some(code), None) => code.to_owned(),
            (None, _) => error_chain(error),
        };
        SecretNotRead { arn: self.arn.clone(), reason }
    }
}

impl NextRead {
    fn after_success(now: Timestamp) -> Self {
        Self { due: later(now, REFRESH_INTERVAL), extra_from: later(now, RETRY_INTERVAL) }
    }
}
