//! Functions for the `main` of every function: read the configuration, configure the SDK, compute the deadline.

use std::{env, time::Duration};

use aws_config::{
    BehaviorVersion, Region, SdkConfig, environment::EnvironmentVariableCredentialsProvider,
    timeout::TimeoutConfig,
};
use aws_credential_types::provider::SharedCredentialsProvider;
use envconfig::Envconfig;
use jiff::Timestamp;
use lambda_runtime::{Context, Error};
use tokio::time::{Instant, timeout_at};

/// The time, in milliseconds, that is reserved at the end of an invocation: for the visibility of failed messages, for
/// logs, metrics and spans, and for the response.
const MARGIN_MS: i64 = 2_000;

/// The time limit of one attempt at a request to AWS. A connection that died while Lambda had frozen the function never
/// gets a response.
const ATTEMPT_WITHIN: Duration = Duration::from_secs(3);

/// The time limit of a request to AWS with all its attempts: half of the time limit of the shortest function.
const OPERATION_WITHIN: Duration = Duration::from_secs(15);

/// Reads a function's configuration from the environment variables.
///
/// # Errors
/// A variable is missing or malformed. The message names it.
pub fn configuration<C: Envconfig>() -> Result<C, Error> {
    C::init_from_env().map_err(|error| {
        tracing::error!(%error, "the function cannot start");
        error.to_string().into()
    })
}

/// The SDK configuration from the variables that Lambda sets: region, credentials, and `AWS_ENDPOINT_URL` for emulators.
/// The loader of the SDK also supports profiles, single sign-on and instance roles. A function has none of these, and
/// the loader would add a tenth to its size.
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

/// The time at which the handler has to stop, shortly before Lambda stops the function.
#[must_use]
pub fn deadline(context: &Context) -> Timestamp {
    let millis = i64::try_from(context.deadline).unwrap_or(i64::MAX).saturating_sub(MARGIN_MS);
    Timestamp::from_millisecond(millis).unwrap_or(Timestamp::MAX)
}

/// A deadline as a time of tokio's clock.
#[must_use]
pub fn stop_at(deadline: Timestamp) -> Instant {
    let left = Duration::try_from(Timestamp::now().duration_until(deadline));
    Instant::now() + left.unwrap_or_default()
}

/// The response of a function that serves HTTP. If there is none at the function's deadline, `unavailable` makes the
/// response: Lambda would kill the function, and the client would get a 502 that does not say whether a retry may succeed.
pub async fn respond<R, E>(
    context: Option<&Context>,
    response: impl Future<Output = Result<R, E>>,
    unavailable: impl FnOnce() -> R,
) -> Result<R, E> {
    let Some(context) = context else { return response.await };
    timeout_at(stop_at(deadline(context)), response).await.unwrap_or_else(|_| Ok(unavailable()))
}

/// A random number. It differs between instances.
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

    /// Lambda kills a function at its timeout, here after 30 s.
    #[tokio::test(start_paused = true)]
    async fn a_request_without_a_response_two_seconds_before_the_timeout_is_unavailable() {
        let mut context = Context::default();
        let timeout = Timestamp::now() + Duration::from_secs(30);
        context.deadline = u64::try_from(timeout.as_millisecond()).unwrap();
        let start = Instant::now();
        let ready = std::future::ready(Ok::<_, std::convert::Infallible>(200));
        assert_eq!(respond(Some(&context), ready, || 503).await, Ok(200));
        let pending = || std::future::pending::<Result<u16, std::convert::Infallible>>();
        assert_eq!(respond(Some(&context), pending(), || 503).await, Ok(503));
        let seconds = start.elapsed().as_secs_f64();
        assert!((27.0..=28.01).contains(&seconds), "{seconds}");
    }

    /// The loader of the SDK would configure retries. Without them, a throttled table would fail an invocation.
    #[tokio::test]
    async fn a_request_that_fails_in_aws_is_retried() {
        assert_eq!(requests_until_answered(Some("500 Internal Server Error")).await, 2);
    }

    /// A connection that died while the function was frozen behaves like this.
    #[tokio::test]
    async fn a_request_without_a_response_is_retried() {
        assert_eq!(requests_until_answered(None).await, 2);
    }

    /// The number of attempts at a request whose first attempt gets the response `first`. If it is `None`, the first
    /// attempt gets no response, and the test clock advances past its time limit.
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
                let response = format!(
                    "HTTP/1.1 {status}\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{{}}"
                );
                connection.write_all(response.as_bytes()).await.unwrap();
            }
        });
        let credentials = Credentials::new("key", "secret", None, None, "test");
        let config = sdk_config()
            .into_builder()
            .endpoint_url(aws)
            .region(Region::from_static("us-east-1"))
            .credentials_provider(SharedCredentialsProvider::new(credentials))
            .build();
        aws_sdk_sqs::Client::new(&config).list_queues().send().await.unwrap();
        requests.load(Ordering::SeqCst)
    }
}
