//! The console's Lambda function, behind a function URL that IAM guards.

use std::sync::Arc;

use lambda_http::{
    Error, Request, RequestExt, request::RequestContext, run, service_fn, tower::ServiceExt,
};
use steward_aws::{AwsPorts, Config, function, telemetry};
use steward_console::{Console, access::Caller, config::ConsoleConfig, service};

#[tokio::main]
async fn main() -> Result<(), Error> {
    telemetry::init();
    let config: Config = function::configuration()?;
    let own: ConsoleConfig = function::configuration()?;
    let ports = Arc::new(AwsPorts::new(&function::sdk_config(), &config, "console"));
    let links = Arc::new(own.links());
    let (own, service) = (&own, &service(Console { ports, links }));
    run(service_fn(|mut request: Request| {
        if let Some(caller) = caller(&request, own) {
            request.extensions_mut().insert(caller);
        }
        telemetry::observed(service.clone().oneshot(request))
    }))
    .await
}

/// Whom the function URL says is calling.
fn caller(request: &Request, own: &ConsoleConfig) -> Option<Caller> {
    let RequestContext::ApiGatewayV2(context) = request.request_context_ref()? else { return None };
    let arn = context.authorizer.as_ref()?.iam.as_ref()?.user_arn.as_deref()?;
    Caller::of(arn, request.headers(), &own.operators, &own.proxies)
}
