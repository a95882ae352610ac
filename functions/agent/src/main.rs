//! The agent's Lambda function.

use aws_lambda_events::sqs::SqsEvent;
use lambda_runtime::{Error, LambdaEvent, run, service_fn};
use steward_agent::{
    Agent, AgentConfig, attempts_deadline, call_role::config_of_calls, handle, kind::AnyService,
    secret::Secret,
};
use steward_aws::{AwsPorts, Config, function, telemetry};
use steward_runtime::ports::{Clock, Ports, Queue};

#[tokio::main]
async fn main() -> Result<(), Error> {
    telemetry::init();
    let config: Config = function::configuration()?;
    let agent: AgentConfig = function::configuration()?;
    let (breaker, rate) = (agent.breaker(), agent.rate_limit());
    let sdk = function::sdk_config();
    let ports = &AwsPorts::new(&sdk, &config, "agent");
    let of_calls = config_of_calls(&sdk, &agent.call_role, agent.name.as_str()).await;
    let service = AnyService::configured(&agent, &of_calls, ports.bucket().cloned()).inspect_err(
        |error| {
            tracing::error!(%error, "the function cannot start");
        },
    )?;
    let now = ports.clock().now();
    let secret = match service.http() {
        Some(http) => Secret::configured(&sdk, agent.secret_arn, agent.headers, http, now).await,
        None => Ok(None),
    };
    let secret = &secret.inspect_err(|error| {
        tracing::error!(%error, "the function cannot start");
    })?;
    let queue = &Queue::Agent(agent.name.clone());
    let agent = &Agent::new(agent.name, service, breaker).with_rate_limit(rate);
    run(service_fn(|event: LambdaEvent<SqsEvent>| async move {
        let deadline = function::deadline(&event.context);
        let (stop, attempts) = (function::stop_at(deadline), attempts_deadline(deadline));
        let answer =
            ports.channel().process_batch(queue, event.payload, stop, |batch| async move {
                if let Some(secret) = secret {
                    secret.refresh(ports.clock().now()).await;
                }
                handle(ports, agent, batch, attempts).await
            });
        Ok::<_, Error>(telemetry::flush_after(answer).await)
    }))
    .await
}
