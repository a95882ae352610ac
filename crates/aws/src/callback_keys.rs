//! The keys of callback URLs, from a secret of AWS Secrets Manager. The scheduler signs with them, and the callback function
//! verifies. Both read the secret again every five minutes. The callback function also reads it when a URL names a key
//! that it does not know, so that a new key works at once.

use aws_config::SdkConfig;
use jiff::Timestamp;
use steward_core::callback_url::{CallbackUrls, InvalidCallbackKeys};

use crate::secret::{RefreshedSecret, SecretError};

/// The current keys of a deployment, with the address of the callback endpoint. The address is empty in the function that
/// only verifies.
pub type CallbackKeyring = RefreshedSecret<CallbackUrls, InvalidCallbackKeys>;

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
    ) -> Result<Option<Self>, SecretError<InvalidCallbackKeys>> {
        if arn.is_empty() {
            return Ok(None);
        }
        let base = base.to_owned();
        let parse = move |text: &str| Ok(CallbackUrls::new(&base, text.parse()?));
        Ok(Some(Self::of(sdk, arn, now, parse, Err).await?))
    }
}
