//! The Lambda function behind a function URL: single submissions, and a task's status.

use std::sync::Arc;

use lambda_http::{Error, Request, run, service_fn, tower::ServiceExt};
use steward_aws::{AwsPorts, Config, function, telemetry};
use steward_submission::http::service;

#[tokio::main]
async fn main() -> Result<(), Error> {
    telemetry::init();
    let config: Config = function::configuration()?;
    let ports = AwsPorts::new(&function::sdk_config(), &config, "submission-http");
    let service = &service(Arc::new(ports), Arc::new(config.reply_queues));
    run(service_fn(|request: Request| telemetry::flush_after(service.clone().oneshot(request))))
        .await
}
