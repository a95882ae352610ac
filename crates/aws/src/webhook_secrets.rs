//! The secrets of webhooks, from a secret of AWS Secrets Manager. The callback function reads it again every five minutes, and
//! also when a signature is wrong, so that a new secret works at once.

use std::sync::{Arc, PoisonError, RwLock};

use aws_config::SdkConfig;
use jiff::Timestamp;
use steward_core::webhook::{InvalidWebhookSecrets, WebhookSecrets};

use crate::secret::{SecretNotRead, StoredSecret};

/// The current secrets of a deployment's webhooks.
#[derive(Debug)]
pub struct StoredWebhookSecrets {
    current: RwLock<Arc<WebhookSecrets>>,
    secret: StoredSecret,
}

/// Why there are no secrets. The error contains no part of them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WebhookSecretsError {
    /// The secret cannot be read.
    #[error(transparent)]
    NotRead(#[from] SecretNotRead),
    /// The secret does not contain the secrets of webhooks.
    #[error("secret `{arn}`")]
    Invalid {
        /// The ARN of the secret.
        arn: String,
        /// What is wrong.
        #[source]
        source: InvalidWebhookSecrets,
    },
}

impl StoredWebhookSecrets {
    /// Reads the secrets from the secret `arn`. If that fails, all webhooks are refused until a later read succeeds, and
    /// callbacks still work.
    pub async fn open(sdk: &SdkConfig, arn: &str, now: Timestamp) -> Self {
        let secret = StoredSecret::new(sdk, arn.to_owned(), now);
        let secrets = read(&secret).await.unwrap_or_else(|error| {
            tracing::error!(%error, "no secrets of webhooks; all webhooks are refused until they can be read");
            WebhookSecrets::default()
        });
        Self { current: RwLock::new(Arc::new(secrets)), secret }
    }

    /// The current secrets.
    #[must_use]
    pub fn current(&self) -> Arc<WebhookSecrets> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the secret again if it is due. If the read fails, the secrets stay as they are.
    pub async fn refresh(&self, now: Timestamp) {
        if self.secret.claim_read(now) {
            self.replace(now).await;
        }
    }

    /// Reads the secret because a signature is wrong, at most twice a minute. Returns whether it was read.
    pub async fn refresh_after_wrong_signature(&self, now: Timestamp) -> bool {
        self.secret.claim_extra_read(now) && self.replace(now).await
    }

    async fn replace(&self, now: Timestamp) -> bool {
        match read(&self.secret).await {
            Ok(secrets) => {
                self.secret.was_read(now);
                *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(secrets);
                true
            }
            Err(error) => {
                tracing::warn!(%error, "secrets of webhooks not refreshed; those that were read before stay in use");
                false
            }
        }
    }
}

async fn read(secret: &StoredSecret) -> Result<WebhookSecrets, WebhookSecretsError> {
    let text = secret.read().await?;
    text.parse()
        .map_err(|source| WebhookSecretsError::Invalid { arn: secret.arn().to_owned(), source })
}
