//! The registrar's Lambda function.

use lambda_runtime::{Error, LambdaEvent, run, service_fn};
use serde_json::Value;
use steward_aws::{AwsPorts, Config, function, telemetry};
use steward_registrar::handle;

#[tokio::main]
async fn main() -> Result<(), Error> {
    telemetry::init();
    let config: Config = function::configuration()?;
    let ports = &AwsPorts::without_payloads(&function::sdk_config(), &config, "registrar");
    let client = &reqwest::Client::builder().build()?;
    run(service_fn(|event: LambdaEvent<Value>| async move {
        let deadline = function::deadline(&event.context);
        // After an error Lambda invokes the function again: without an answer, the deployment waits.
        let handled = Box::pin(handle(ports, client, &event.payload, deadline));
        Ok::<_, Error>(telemetry::flush_after(handled).await?)
    }))
    .await
}
