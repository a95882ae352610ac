//! What every function's `main` needs from Lambda.

use std::env;

use aws_config::{
    BehaviorVersion, Region, SdkConfig, environment::EnvironmentVariableCredentialsProvider,
};
use aws_credential_types::provider::SharedCredentialsProvider;
use envconfig::Envconfig;
use jiff::Timestamp;
use lambda_runtime::{Context, Error};

/// Time kept back from an invocation, for the answer, and for the log, counts and spans before it.
const MARGIN_MS: i64 = 1_000;

/// A function's configuration from the environment.
///
/// # Errors
/// Names the variable that is missing or malformed.
pub fn configuration<C: Envconfig>() -> Result<C, Error> {
    C::init_from_env().map_err(|error| {
        tracing::error!(%error, "the function cannot start");
        error.to_string().into()
    })
}

/// The SDK's configuration from what Lambda sets: region, credentials, and for emulators
/// `AWS_ENDPOINT_URL`. The SDK's own loader knows profiles, single sign-on and instance roles too, none
/// of which a function has: they would be a tenth of its size.
#[must_use]
pub fn sdk_config() -> SdkConfig {
    let credentials = EnvironmentVariableCredentialsProvider::new();
    let mut config = SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .credentials_provider(SharedCredentialsProvider::new(credentials));
    config.set_region(env::var("AWS_REGION").ok().map(Region::new));
    config.set_endpoint_url(env::var("AWS_ENDPOINT_URL").ok());
    config.build()
}

/// When to stop working: shortly before Lambda stops the function.
#[must_use]
pub fn deadline(context: &Context) -> Timestamp {
    let millis = i64::try_from(context.deadline).unwrap_or(i64::MAX).saturating_sub(MARGIN_MS);
    Timestamp::from_millisecond(millis).unwrap_or(Timestamp::MAX)
}

/// A number by which instances differ.
#[must_use]
pub fn random() -> u32 {
    fastrand::u32(..)
}
