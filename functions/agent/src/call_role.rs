//! The credentials of an agent of kind `aws` for its calls: those of a role of its own for them (`CallRole` in
//! `infra/agent.yaml`). Steps choose what such an agent calls. With the function's role, a step could send false replies to the
//! scheduler, or read documents of other tasks.

use std::time::{Duration, SystemTime};

use aws_config::{BehaviorVersion, SdkConfig, sts::AssumeRoleProvider};
use aws_credential_types::{
    Credentials,
    provider::{
        ProvideCredentials, Result, SharedCredentialsProvider,
        future::ProvideCredentials as Provided,
    },
};
use tokio::sync::Mutex;

/// How long before their end credentials are renewed: longer than any call takes.
const RENEWED_BEFORE: Duration = Duration::from_secs(300);

/// The configuration for calls with the credentials of `role`, an ARN. Without a role, `sdk` itself.
pub async fn config_of_calls(sdk: &SdkConfig, role: &str, session: &str) -> SdkConfig {
    if role.is_empty() {
        return sdk.clone();
    }
    // The provider needs a clock, which the loader sets.
    let mut of_sts = aws_config::defaults(BehaviorVersion::latest());
    if let Some(provider) = sdk.credentials_provider() {
        of_sts = of_sts.credentials_provider(provider);
    }
    if let Some(timeouts) = sdk.timeout_config() {
        of_sts = of_sts.timeout_config(timeouts.clone());
    }
    let of_sts = of_sts.region(sdk.region().cloned()).load().await;
    let provider = AssumeRoleProvider::builder(role).session_name(session).configure(&of_sts);
    let cached = Cached { provider: provider.build().await, current: Mutex::new(None) };
    let provider = SharedCredentialsProvider::new(cached);
    sdk.to_builder().credentials_provider(provider).build()
}

/// Credentials that are read again before they end.
#[derive(Debug)]
struct Cached<P> {
    provider: P,
    current: Mutex<Option<Credentials>>,
}

impl<P: ProvideCredentials> Cached<P> {
    async fn credentials(&self, now: SystemTime) -> Result {
        let mut current = self.current.lock().await;
        let is_valid_for = |credentials: &Credentials, time: Duration| {
            credentials.expiry().is_none_or(|end| end > now + time)
        };
        if let Some(current) = current.as_ref().filter(|known| is_valid_for(known, RENEWED_BEFORE))
        {
            return Ok(current.clone());
        }
        match (self.provider.provide_credentials().await, current.as_ref()) {
            (Ok(credentials), _) => {
                *current = Some(credentials.clone());
                Ok(credentials)
            }
            (Err(_), Some(known)) if is_valid_for(known, Duration::ZERO) => Ok(known.clone()),
            (Err(error), _) => Err(error),
        }
    }
}

impl<P: ProvideCredentials> ProvideCredentials for Cached<P> {
    fn provide_credentials<'a>(&'a self) -> Provided<'a>
    where
        Self: 'a,
    {
        Provided::new(self.credentials(SystemTime::now()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use aws_credential_types::provider::error::CredentialsError;

    use super::*;

    /// Gives credentials for an hour, whose key is the number of the call, and fails from the third call on.
    #[derive(Debug, Default)]
    struct Hourly(AtomicU64);

    const HOUR: Duration = Duration::from_secs(3_600);

    impl ProvideCredentials for Hourly {
        fn provide_credentials<'a>(&'a self) -> Provided<'a>
        where
            Self: 'a,
        {
            let calls = self.0.fetch_add(1, Relaxed) + 1;
            let end = SystemTime::UNIX_EPOCH + HOUR * u32::try_from(calls).unwrap();
            let credentials = Credentials::new(calls.to_string(), "s", None, Some(end), "test");
            let failed = || CredentialsError::provider_error("STS is not available");
            Provided::ready(if calls > 2 { Err(failed()) } else { Ok(credentials) })
        }
    }

    #[tokio::test]
    async fn credentials_are_renewed_before_they_end_and_used_until_then() {
        let cached = Cached { provider: Hourly::default(), current: Mutex::new(None) };
        for (minute, key) in [(0, "1"), (54, "1"), (56, "2"), (114, "2"), (116, "2")] {
            let now = SystemTime::UNIX_EPOCH + Duration::from_secs(minute * 60);
            let credentials = cached.credentials(now).await.unwrap();
            assert_eq!(credentials.access_key_id(), key, "minute {minute}");
        }
        let late = SystemTime::UNIX_EPOCH + HOUR * 2;
        cached.credentials(late).await.unwrap_err();
    }
}
