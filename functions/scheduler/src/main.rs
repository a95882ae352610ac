//! The scheduler's Lambda function.

use aws_lambda_events::sqs::SqsEvent;
use lambda_runtime::{Error, LambdaEvent, run, service_fn};
use steward_aws::{AwsPorts, Config, function, telemetry};
use steward_runtime::ports::{Ports, Queue};
use steward_scheduler::handle;

#[tokio::main]
async fn main() -> Result<(), Error> {
    telemetry::init();
    let config: Config = function::configuration()?;
    let ports = &AwsPorts::new(&function::sdk_config(), &config, "scheduler");
    run(service_fn(|event: LambdaEvent<SqsEvent>| async move {
        Ok::<_, Error>(
            telemetry::flush_after(ports.channel().process_batch(
                &Queue::Scheduler,
                event.payload,
                |event| handle(ports, event),
            ))
            .await,
        )
    }))
    .await
}
