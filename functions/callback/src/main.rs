//! The Lambda function behind the public function URL for callbacks.

use std::sync::Arc;

use lambda_http::{Error, Request, run, service_fn, tower::ServiceExt};
use steward_aws::{AwsPorts, Config, callback_keys::CallbackKeyring, function, telemetry};
use steward_callback::service;
use steward_runtime::ports::{Clock, Ports};

#[tokio::main]
async fn main() -> Result<(), Error> {
    telemetry::init();
    let config: Config = function::configuration()?;
    let sdk = function::sdk_config();
    let ports = Arc::new(AwsPorts::new(&sdk, &config, "callback"));
    let now = ports.clock().now();
    let keys = CallbackKeyring::from_secret(&sdk, &config.callback_secret, "", now).await;
    let keys = keys.inspect_err(|error| tracing::error!(%error, "the function does not start"))?;
    let keys = &Arc::new(keys.ok_or("STEWARD_CALLBACK_SECRET_ARN is empty")?);
    let (ports, service) = (&ports, &service(ports.clone(), keys.clone()));
    run(service_fn(|request: Request| async move {
        keys.refresh(ports.clock().now()).await;
        telemetry::flush_after(service.clone().oneshot(request)).await
    }))
    .await
}
