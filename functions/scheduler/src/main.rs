//! Entry point of the scheduler: handles each SQS batch with [`handle_with_sightings`]. Failed messages return to the queue with a
//! backoff. Telemetry is exported before the invocation ends.

use aws_lambda_events::sqs::SqsEvent;
use lambda_runtime::{Error, LambdaEvent, run, service_fn};
use steward_aws::{AwsPorts, Config, callback_keys::CallbackKeyring, function, telemetry};
use steward_runtime::ports::{Clock, Ports, Queue};
use steward_scheduler::{AgentSightings, handle_with_sightings};

#[tokio::main]
async fn main() -> Result<(), Error> {
    telemetry::init();
    let config: Config = function::configuration()?;
    let sdk = function::sdk_config();
    let ports = AwsPorts::new(&sdk, &config, "scheduler");
    let Config { callback_secret, callback_url, .. } = &config;
    let now = ports.clock().now();
    let keys = CallbackKeyring::from_secret(&sdk, callback_secret, callback_url, now).await;
    let keys =
        &keys.inspect_err(|error| tracing::error!(%error, "the scheduler does not start"))?;
    let ports = &ports.with_callback_urls(keys.as_ref().map(|keys| keys.urls().clone()));
    let sightings = &AgentSightings::default();
    run(service_fn(|invocation: LambdaEvent<SqsEvent>| async move {
        if let Some(keys) = keys {
            keys.refresh(ports.clock().now()).await;
        }
        Ok::<_, Error>(
            telemetry::flush_after(ports.channel().process_batch(
                &Queue::Scheduler,
                invocation.payload,
                |batch| handle_with_sightings(ports, sightings, batch),
            ))
            .await,
        )
    }))
    .await
}
