//! The Lambda function behind the public function URL for callbacks.

use std::sync::Arc;

use lambda_http::{Error, Request, RequestExt, run, service_fn, tower::ServiceExt};
use steward_aws::{
    AwsPorts, Config, callback_keys::CallbackKeyring, function, telemetry,
    webhook_secrets::StoredWebhookSecrets,
};
use steward_callback::{service, webhooks};
use steward_http::out_of_time;
use steward_runtime::ports::{Clock, Ports};

#[tokio::main]
async fn main() -> Result<(), Error> {
    telemetry::init();
    let config: Config = function::configuration()?;
    let sdk = function::sdk_config();
    let ports = Arc::new(AwsPorts::without_payloads(&sdk, &config, "callback"));
    let now = ports.clock().now();
    let keys = CallbackKeyring::from_secret(&sdk, &config.callback_secret, "", now).await;
    let keys = keys.inspect_err(|error| tracing::error!(%error, "the function does not start"))?;
    let keys = &Arc::new(keys.ok_or("STEWARD_CALLBACK_SECRET_ARN is empty")?);
    let secrets = if config.webhooks.is_empty() {
        None
    } else {
        let secrets = StoredWebhookSecrets::open(&sdk, &config.webhook_secret, now).await;
        for webhook in config.webhooks.without_secret(&secrets.shared().current()) {
            tracing::warn!(webhook, "the webhook has no secret: all its requests are refused");
        }
        Some(Arc::new(secrets))
    };
    let mut routes = service(ports.clone(), keys.clone());
    if let Some(secrets) = &secrets {
        routes = routes.merge(webhooks::routes(ports.clone(), config.webhooks, secrets.clone()));
    }
    let (ports, service, secrets) = (&ports, &routes, &secrets);
    run(service_fn(|request: Request| async move {
        let context = request.lambda_context_ref().cloned();
        let response = async {
            let now = ports.clock().now();
            keys.refresh(now).await;
            if let Some(secrets) = secrets {
                secrets.refresh(now).await;
            }
            service.clone().oneshot(request).await
        };
        // Boxed: the routes of callbacks and webhooks make a large future.
        let response = Box::pin(function::respond(context.as_ref(), response, out_of_time));
        telemetry::flush_after(response).await
    }))
    .await
}
