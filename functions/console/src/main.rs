//! The console's Lambda function, behind a function URL that IAM guards.

use std::sync::Arc;

use lambda_http::{
    Error, Request, RequestExt, request::RequestContext, run, service_fn, tower::ServiceExt,
};
use steward_aws::{AwsPorts, Config, function, telemetry};
use steward_console::{
    Console, caller::ConsoleCaller, config::ConsoleConfig, out_of_time, service,
};

#[tokio::main]
async fn main() -> Result<(), Error> {
    telemetry::init();
    let config: Config = function::configuration()?;
    let console: ConsoleConfig = function::configuration()?;
    let ports = Arc::new(AwsPorts::without_payloads(&function::sdk_config(), &config, "console"));
    let links = Arc::new(console.links());
    let (console, service) = (&console, &service(Console { ports, links }));
    run(service_fn(|mut request: Request| {
        if let Some(caller) = caller(&request, console) {
            request.extensions_mut().insert(caller);
        }
        let context = request.lambda_context_ref().cloned();
        let response = service.clone().oneshot(request);
        async move {
            let response = function::respond(context.as_ref(), response, out_of_time);
            telemetry::flush_after(response).await
        }
    }))
    .await
}

/// The caller that the function URL authenticated; `None` if there is none.
fn caller(request: &Request, console: &ConsoleConfig) -> Option<ConsoleCaller> {
    let RequestContext::ApiGatewayV2(context) = request.request_context_ref()? else { return None };
    let arn = context.authorizer.as_ref()?.iam.as_ref()?.user_arn.as_deref()?;
    ConsoleCaller::of(arn, request.headers(), &console.operators, &console.proxies)
}
