//! What every function's `main` needs from Lambda.

use std::{env, time::Duration};

use aws_config::{
    BehaviorVersion, Region, SdkConfig, environment::EnvironmentVariableCredentialsProvider,
    timeout::TimeoutConfig,
};
use aws_credential_types::provider::SharedCredentialsProvider;
use envconfig::Envconfig;
use jiff::Timestamp;
use lambda_runtime::{Context, Error};

/// Time kept back from an invocation, for the answer, and before it for the visibility of failed messages, the log, counts
/// and spans.
const MARGIN_MS: i64 = 2_000;

/// How long AWS may take to answer one attempt at a request. A connection that died while Lambda had the function
/// frozen is never answered.
const ATTEMPT_WITHIN: Duration = Duration::from_secs(3);

/// How long a request may take with all its attempts: half of what the shortest function has.
const OPERATION_WITHIN: Duration = Duration::from_secs(15);

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
        .credentials_provider(SharedCredentialsProvider::new(credentials))
        .timeout_config(timeouts());
    config.set_region(env::var("AWS_REGION").ok().map(Region::new));
    config.set_endpoint_url(env::var("AWS_ENDPOINT_URL").ok());
    config.build()
}

fn timeouts() -> TimeoutConfig {
    TimeoutConfig::builder()
        .operation_attempt_timeout(ATTEMPT_WITHIN)
        .operation_timeout(OPERATION_WITHIN)
        .build()
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    };

    use aws_credential_types::Credentials;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    /// What the SDK's own loader would have set: without it a throttled table would fail an invocation.
    #[tokio::test]
    async fn a_request_that_aws_fails_is_sent_again() {
        assert_eq!(requests_until_answered(Some("500 Internal Server Error")).await, 2);
    }

    /// As on a connection that died while the function was frozen.
    #[tokio::test]
    async fn a_request_that_aws_does_not_answer_is_sent_again() {
        assert_eq!(requests_until_answered(None).await, 2);
    }

    /// How often a request is sent whose first attempt has this answer; if none, its time passes at once.
    async fn requests_until_answered(first: Option<&'static str>) -> u32 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let aws = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(AtomicU32::new(0));
        let counted = requests.clone();
        tokio::spawn(async move {
            let mut unanswered = Vec::new();
            loop {
                let (mut connection, _) = listener.accept().await.unwrap();
                assert_ne!(connection.read(&mut [0; 8192]).await.unwrap(), 0);
                let is_first = counted.fetch_add(1, Ordering::SeqCst) == 0;
                let Some(status) = (if is_first { first } else { Some("200 OK") }) else {
                    unanswered.push(connection);
                    tokio::time::pause();
                    tokio::time::advance(ATTEMPT_WITHIN).await;
                    tokio::time::resume();
                    continue;
                };
                let answer = format!(
                    "HTTP/1.1 {status}\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{{}}"
                );
                connection.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        let who = Credentials::new("key", "secret", None, None, "test");
        let config = sdk_config()
            .into_builder()
            .endpoint_url(aws)
            .region(Region::from_static("us-east-1"))
            .credentials_provider(SharedCredentialsProvider::new(who))
            .build();
        aws_sdk_sqs::Client::new(&config).list_queues().send().await.unwrap();
        requests.load(Ordering::SeqCst)
    }
}
