//! The secrets of webhooks, from a secret of AWS Secrets Manager. The callback function reads it again every five minutes, and
//! also when a signature is wrong, so that a new secret works at once.

use std::convert::Infallible;

use aws_config::SdkConfig;
use jiff::Timestamp;
use steward_core::webhook::{InvalidWebhookSecrets, WebhookSecrets};

use crate::secret::RefreshedSecret;

/// The current secrets of a deployment's webhooks.
pub type StoredWebhookSecrets = RefreshedSecret<WebhookSecrets, InvalidWebhookSecrets>;

impl StoredWebhookSecrets {
    /// Reads the secrets from the secret `arn`. If that fails, all webhooks are refused until a later read succeeds, and
    /// callbacks still work.
    pub async fn open(sdk: &SdkConfig, arn: &str, now: Timestamp) -> Self {
        let Ok(secrets) = Self::of(sdk, arn, now, str::parse, |error| {
            tracing::error!(%error, "no secrets of webhooks; all webhooks are refused until they can be read");
            Ok::<_, Infallible>(WebhookSecrets::default())
        })
        .await;
        secrets
    }
}
