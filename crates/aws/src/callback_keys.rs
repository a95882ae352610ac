//! The keys of callback URLs, from a secret of AWS Secrets Manager. The scheduler signs with them, and the callback function
//! verifies. Both read the secret again every five minutes. The callback function also reads it when a URL names a key
//! that it does not know, so that a new key works at once.

use aws_config::SdkConfig;
use jiff::Timestamp;
use steward_core::callback_url::{CallbackUrls, InvalidCallbackKeys};

use crate::{
    ports::SharedCallbackUrls,
    secret::{SecretNotRead, StoredSecret},
};

/// The current keys of a deployment.
#[derive(Debug)]
pub struct CallbackKeyring {
    /// The address of the callback endpoint. Empty in the function that only verifies.
    base: String,
    urls: SharedCallbackUrls,
    secret: StoredSecret,
}

/// Why there are no keys. The error contains no part of the secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallbackKeysError {
    /// The secret cannot be read.
    #[error(transparent)]
    NotRead(#[from] SecretNotRead),
    /// The secret contains no keys.
    #[error("secret `{arn}`")]
    Invalid {
        /// The ARN of the secret.
        arn: String,
        /// What is wrong.
        #[source]
        source: InvalidCallbackKeys,
    },
}

impl CallbackKeyring {
    /// Reads the keys from the secret `arn`. `None` if `arn` is empty: the deployment has no callback endpoint. `base` is the
    /// address of the endpoint.
    ///
    /// # Errors
    /// The secret cannot be read, or contains no keys.
    pub async fn from_secret(
        sdk: &SdkConfig,
        arn: &str,
        base: &str,
        now: Timestamp,
    ) -> Result<Option<Self>, CallbackKeysError> {
        if arn.is_empty() {
            return Ok(None);
        }
        let secret = StoredSecret::new(sdk, arn.to_owned(), now);
        let urls = SharedCallbackUrls::new(read(&secret, base).await?);
        Ok(Some(Self { base: base.to_owned(), urls, secret }))
    }

    /// The current keys, with the address of the endpoint.
    #[must_use]
    pub fn urls(&self) -> &SharedCallbackUrls {
        &self.urls
    }

    /// Reads the secret again if it is due. If the read fails, the keys stay as they are.
    pub async fn refresh(&self, now: Timestamp) {
        if self.secret.claim_read(now) {
            self.replace(now).await;
        }
    }

    /// Reads the secret because a URL names an unknown key, at most twice a minute. Returns whether it was read.
    pub async fn refresh_for_unknown_key(&self, now: Timestamp) -> bool {
        self.secret.claim_extra_read(now) && self.replace(now).await
    }

    async fn replace(&self, now: Timestamp) -> bool {
        match read(&self.secret, &self.base).await {
            Ok(urls) => {
                self.secret.was_read(now);
                self.urls.replace(urls);
                true
            }
            Err(error) => {
                tracing::warn!(%error, "keys for callbacks not refreshed; the keys that were read before stay in use");
                false
            }
        }
    }
}

async fn read(secret: &StoredSecret, base: &str) -> Result<CallbackUrls, CallbackKeysError> {
    let text = secret.read().await?;
    let keys = text
        .parse()
        .map_err(|source| CallbackKeysError::Invalid { arn: secret.arn().to_owned(), source })?;
    Ok(CallbackUrls::new(base, keys))
}
