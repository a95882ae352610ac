//! Entry point of the scheduler: handles each SQS batch of its two queues with [`handle_with`]. Messages that failed, or that are not
//! done two seconds before the function's timeout, return to the queue with a backoff. Telemetry is exported before the
//! invocation ends.

use aws_lambda_events::sqs::SqsEvent;
use lambda_runtime::{Error, LambdaEvent, run, service_fn};
use steward_aws::{
    AwsPorts, Config, batch::queue_of, callback_keys::CallbackKeyring, function, telemetry,
};
use steward_runtime::ports::{Clock, Ports, Queue};
use steward_scheduler::{AgentSightings, CommandAuthority, SchedulerInstance, handle_with};

#[tokio::main]
async fn main() -> Result<(), Error> {
    telemetry::init();
    let config: Config = function::configuration()?;
    let sdk = function::sdk_config();
    let ports = AwsPorts::without_payloads(&sdk, &config, "scheduler");
    let Config { callback_secret, callback_url, .. } = &config;
    let now = ports.clock().now();
    let keys = CallbackKeyring::from_secret(&sdk, callback_secret, callback_url, now).await;
    let keys =
        &keys.inspect_err(|error| tracing::error!(%error, "the scheduler does not start"))?;
    let ports = &ports.with_callback_urls(keys.as_ref().map(|keys| keys.shared().clone()));
    let (sightings, commands) = (AgentSightings::default(), CommandAuthority::of(&config));
    let instance = &SchedulerInstance { sightings, commands };
    run(service_fn(|invocation: LambdaEvent<SqsEvent>| async move {
        let stop = function::stop_at(function::deadline(&invocation.context));
        let batch = invocation.payload;
        // All messages of an invocation come from one queue.
        let source = batch.records.first().and_then(queue_of);
        let is_command = instance.commands.is_commands_queue(source);
        let queue = if is_command { Queue::Commands } else { Queue::Scheduler };
        let handled = ports.channel().process_batch(&queue, batch, stop, |batch| async move {
            if let Some(keys) = keys {
                keys.refresh(ports.clock().now()).await;
            }
            handle_with(ports, instance, batch).await
        });
        Ok::<_, Error>(telemetry::flush_after(handled).await)
    }))
    .await
}
