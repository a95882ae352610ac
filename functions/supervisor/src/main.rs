//! The supervisor's Lambda function, triggered by a schedule, and by its own ticks in between.

use lambda_runtime::{Error, LambdaEvent, run, service_fn};
use serde::Deserialize;
use serde_json::Value;
use steward_aws::{AwsPorts, Config, function, telemetry};
use steward_supervisor::{SupervisorConfig, SweepResult, SweepSchedule, handle_ticks};

#[tokio::main]
async fn main() -> Result<(), Error> {
    telemetry::init();
    let config: Config = function::configuration()?;
    let schedule: &SweepSchedule = &function::configuration::<SupervisorConfig>()?.into();
    let ports = &AwsPorts::new(&function::sdk_config(), &config, "supervisor");
    run(service_fn(|event: LambdaEvent<Value>| async move {
        let first_shard = function::random();
        let deadline = function::deadline(&event.context);
        let ticks = QueueEvent::deserialize(&event.payload).ok();
        let is_run = ticks.is_none();
        let swept = telemetry::flush_after(async {
            match ticks {
                Some(QueueEvent { records }) => {
                    let ticks = records.into_iter().map(|tick| tick.body).collect();
                    handle_ticks(ports, schedule, ticks, first_shard, deadline).await
                }
                // The schedule, or an operator.
                None => steward_supervisor::run(ports, schedule, first_shard, deadline).await,
            }
        });
        let swept = swept.await?;
        // Most ticks find nothing. A line for each would be most of the log.
        if is_run || swept != SweepResult::default() {
            tracing::info!(
                due = swept.due,
                failed = swept.failed,
                shards_left = swept.shards_left,
                "due index swept"
            );
        }
        Ok::<_, Error>(swept)
    }))
    .await
}

/// The part of an event of SQS that the supervisor reads.
#[derive(Deserialize)]
struct QueueEvent {
    #[serde(rename = "Records")]
    records: Vec<TickRecord>,
}

#[derive(Deserialize)]
struct TickRecord {
    body: String,
}
