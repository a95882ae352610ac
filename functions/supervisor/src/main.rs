//! The supervisor's Lambda function, triggered by a schedule.

use lambda_runtime::{Error, LambdaEvent, run, service_fn};
use serde::de::IgnoredAny;
use steward_aws::{AwsPorts, Config, function, telemetry};
use steward_supervisor::run_once;

#[tokio::main]
async fn main() -> Result<(), Error> {
    telemetry::init();
    let config: Config = function::configuration()?;
    let ports = &AwsPorts::new(&function::sdk_config(), &config, "supervisor");
    run(service_fn(|event: LambdaEvent<IgnoredAny>| async move {
        let first_shard = function::random();
        let deadline = function::deadline(&event.context);
        let swept = telemetry::flush_after(run_once(ports, first_shard, deadline)).await?;
        tracing::info!(
            due = swept.due,
            failed = swept.failed,
            shards_left = swept.shards_left,
            "due index swept"
        );
        Ok::<_, Error>(swept)
    }))
    .await
}
