//! The supervisor's Lambda function, triggered by a schedule.

use lambda_runtime::{Error, LambdaEvent, run, service_fn};
use serde::de::IgnoredAny;
use steward_aws::{AwsPorts, Config, function, telemetry};
use steward_supervisor::{SupervisorConfig, run_until_next_trigger};

#[tokio::main]
async fn main() -> Result<(), Error> {
    telemetry::init();
    let config: Config = function::configuration()?;
    let supervisor: SupervisorConfig = function::configuration()?;
    let sweep_every = supervisor.sweep_every.get();
    let ports = &AwsPorts::new(&function::sdk_config(), &config, "supervisor");
    run(service_fn(|event: LambdaEvent<IgnoredAny>| async move {
        let first_shard = function::random();
        let deadline = function::deadline(&event.context);
        let run = run_until_next_trigger(ports, first_shard, sweep_every, deadline);
        let swept = telemetry::flush_after(run).await?;
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
