//! The submission Lambda function.

use aws_lambda_events::sqs::SqsEvent;
use lambda_runtime::{Error, LambdaEvent, run, service_fn};
use steward_aws::{AwsPorts, Config, function, telemetry};
use steward_runtime::ports::{Ports, Queue};
use steward_submission::{IntakeView, handle_with_intake};

#[tokio::main]
async fn main() -> Result<(), Error> {
    telemetry::init();
    let config: Config = function::configuration()?;
    let ports = &AwsPorts::new(&function::sdk_config(), &config, "submission");
    let (reply_queues, intake) = (&config.reply_queues, &IntakeView::default());
    run(service_fn(|event: LambdaEvent<SqsEvent>| async move {
        Ok::<_, Error>(
            telemetry::flush_after(ports.channel().process_batch(
                &Queue::Submissions,
                event.payload,
                |event| handle_with_intake(ports, intake, reply_queues, event),
            ))
            .await,
        )
    }))
    .await
}
