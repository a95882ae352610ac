//! The Lambda function behind a function URL: single submissions, and a task's status.

use std::sync::Arc;

use lambda_http::{Error, Request, RequestExt, run, service_fn, tower::ServiceExt};
use steward_aws::{AwsPorts, Config, function, telemetry};
use steward_http::out_of_time;
use steward_submission::http::service;

#[tokio::main]
async fn main() -> Result<(), Error> {
    telemetry::init();
    let config: Config = function::configuration()?;
    let ports = AwsPorts::new(&function::sdk_config(), &config, "submission-http");
    let service = &service(Arc::new(ports), Arc::new(config.reply_queues));
    run(service_fn(|request: Request| async move {
        let context = request.lambda_context_ref().cloned();
        let response = service.clone().oneshot(request);
        let response = function::respond(context.as_ref(), response, out_of_time);
        telemetry::flush_after(response).await
    }))
    .await
}
