//! The submission Lambda function.

use aws_lambda_events::sqs::SqsEvent;
use lambda_runtime::{Error, LambdaEvent, run, service_fn};
use steward_aws::{AwsPorts, Config, batch::queue_of, channel::queue_name, function, telemetry};
use steward_runtime::ports::{Ports, Queue};
use steward_submission::{IntakeView, events, handle_with_intake};

#[tokio::main]
async fn main() -> Result<(), Error> {
    telemetry::init();
    let config: Config = function::configuration()?;
    let ports = &AwsPorts::new(&function::sdk_config(), &config, "submission");
    let config = &config;
    let (reply_queues, intake) = (&config.reply_queues, &IntakeView::default());
    run(service_fn(|event: LambdaEvent<SqsEvent>| async move {
        let stop = function::stop_at(function::deadline(&event.context));
        let batch = event.payload;
        // Every batch is from one queue.
        let queue = batch.records.first().and_then(queue_of);
        let is_event = queue.is_some_and(|queue| queue == queue_name(&config.events_queue_url));
        let handled = async {
            if is_event {
                let handle = |batch| events::handle(ports, batch);
                return ports.channel().process_batch(&Queue::Events, batch, stop, handle).await;
            }
            let handle = |batch| handle_with_intake(ports, intake, reply_queues, batch);
            ports.channel().process_batch(&Queue::Submissions, batch, stop, handle).await
        };
        Ok::<_, Error>(telemetry::flush_after(handled).await)
    }))
    .await
}
