//! Entry point of the scheduler: handles each SQS batch with [`handle_with_sightings`]. Failed messages return to the queue with a
//! backoff. Telemetry is exported before the invocation ends.

use aws_lambda_events::sqs::SqsEvent;
use lambda_runtime::{Error, LambdaEvent, run, service_fn};
use steward_aws::{AwsPorts, Config, function, telemetry};
use steward_runtime::ports::{Ports, Queue};
use steward_scheduler::{AgentSightings, handle_with_sightings};

#[tokio::main]
async fn main() -> Result<(), Error> {
    telemetry::init();
    let config: Config = function::configuration()?;
    let ports = &AwsPorts::new(&function::sdk_config(), &config, "scheduler");
    let sightings = &AgentSightings::default();
    run(service_fn(|invocation: LambdaEvent<SqsEvent>| async move {
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
