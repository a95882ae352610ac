//! The agent's Lambda function.

use agent::{Agent, AgentConfig, handle, http::HttpService};
use aws_lambda_events::sqs::SqsEvent;
use lambda_runtime::{Error, LambdaEvent, run, service_fn};
use steward_aws::{AwsPorts, Config, function, telemetry};

#[tokio::main]
async fn main() -> Result<(), Error> {
    telemetry::init();
    let config: Config = function::configuration()?;
    let agent: AgentConfig = function::configuration()?;
    let breaker = agent.breaker();
    let sdk = function::sdk_config().await;
    let ports = &AwsPorts::new(&sdk, &config, "agent");
    let service = HttpService::new(agent.base_url, agent.headers, agent.call_timeout.0)?;
    let agent = &Agent::new(agent.name, service, breaker);
    run(service_fn(|event: LambdaEvent<SqsEvent>| async move {
        let deadline = function::deadline(&event.context);
        let answer = handle(ports, agent, event.payload, deadline);
        Ok::<_, Error>(telemetry::observed(answer).await)
    }))
    .await
}
