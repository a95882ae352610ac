//! Runs an agent with a service of one's own: as a Lambda function, or as a process that polls its queue.

use std::{env, sync::Arc, time::Duration};

use aws_lambda_events::sqs::{SqsEvent, SqsMessage};
use jiff::{SignedDuration, Timestamp};
use lambda_runtime::{Error, LambdaEvent, service_fn};
use steward_aws::{AwsPorts, Config, function, polling, telemetry};
use steward_runtime::ports::{Clock, Ports, Queue, error_chain};
use tokio::{sync::Semaphore, task::JoinSet, time::sleep};

use crate::{Agent, AgentConfig, attempt::RemoteService, attempts_deadline, handle};

/// The variable that Lambda sets for its functions.
const LAMBDA: &str = "AWS_LAMBDA_RUNTIME_API";

/// The largest number of concurrent batches of a process.
const BATCHES_AT_ONCE: usize = 16;

/// How long a batch of a process may take, as on Lambda.
const BATCH_WITHIN: SignedDuration = SignedDuration::from_secs(120);

/// The pause after a poll that failed.
const ERROR_PAUSE: Duration = Duration::from_secs(1);

/// Runs an agent that calls `service`, until its process ends. On Lambda, it handles the batches that the function receives.
/// Elsewhere, it polls the agent's queue. The configuration is in the variables of [`Config`] and [`AgentConfig`].
///
/// # Errors
/// A variable is missing or malformed, or the runtime of Lambda failed.
pub fn run<S: RemoteService + 'static>(service: S) -> Result<(), Error> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        telemetry::init();
        let config: Config = function::configuration()?;
        let settings: AgentConfig = function::configuration()?;
        let (breaker, rate) = (settings.breaker(), settings.rate_limit());
        let sdk = function::sdk_config();
        let ports = Arc::new(AwsPorts::new(&sdk, &config, "agent"));
        let agent = Arc::new(Agent::new(settings.name, service, breaker).with_rate_limit(rate));
        if env::var_os(LAMBDA).is_some() {
            return serve_lambda(&ports, &agent).await;
        }
        let queue_url = config.agent_queue_url.of(&agent.name);
        poll(aws_sdk_sqs::Client::new(&sdk), queue_url.into(), ports, agent).await
    })
}

async fn serve_lambda<S: RemoteService>(ports: &AwsPorts, agent: &Agent<S>) -> Result<(), Error> {
    let queue = &Queue::Agent(agent.name.clone());
    lambda_runtime::run(service_fn(|event: LambdaEvent<SqsEvent>| async move {
        let deadline = function::deadline(&event.context);
        let handle = |batch| handle(ports, agent, batch, attempts_deadline(deadline));
        let stop = function::stop_at(deadline);
        let answer = ports.channel().process_batch(queue, event.payload, stop, handle);
        Ok::<_, Error>(telemetry::flush_after(answer).await)
    }))
    .await
}

/// Does the work of Lambda between the queue and the agent.
async fn poll<S: RemoteService + 'static>(
    sqs: aws_sdk_sqs::Client,
    queue_url: Arc<str>,
    ports: Arc<AwsPorts>,
    agent: Arc<Agent<S>>,
) -> Result<(), Error> {
    let permits = Arc::new(Semaphore::new(BATCHES_AT_ONCE));
    let mut batches = JoinSet::new();
    loop {
        let permit = permits.clone().acquire_owned().await?;
        while batches.try_join_next().is_some() {}
        let messages = match polling::receive(&sqs, &queue_url).await {
            Ok(messages) => messages,
            Err(error) => {
                tracing::warn!(error = error_chain(&error), "poll failed");
                sleep(ERROR_PAUSE).await;
                continue;
            }
        };
        if messages.is_empty() {
            continue;
        }
        let (sqs, queue_url) = (sqs.clone(), queue_url.clone());
        let (ports, agent) = (ports.clone(), agent.clone());
        batches.spawn(async move {
            process_batch(&sqs, &queue_url, &ports, &agent, messages).await;
            drop(permit);
        });
    }
}

/// Handles a batch, and deletes the messages that did not fail.
async fn process_batch<S: RemoteService>(
    sqs: &aws_sdk_sqs::Client,
    queue_url: &str,
    ports: &AwsPorts,
    agent: &Agent<S>,
    messages: Vec<SqsMessage>,
) {
    let receipts: Vec<_> = messages
        .iter()
        .map(|message| (message.message_id.clone(), message.receipt_handle.clone()))
        .collect();
    let mut event = SqsEvent::default();
    event.records = messages;
    let deadline: Timestamp = ports.clock().now() + BATCH_WITHIN;
    let handle = |batch| handle(ports, agent, batch, attempts_deadline(deadline));
    let (queue, stop) = (Queue::Agent(agent.name.clone()), function::stop_at(deadline));
    let response = ports.channel().process_batch(&queue, event, stop, handle).await;
    let is_failed = |id: &Option<String>| {
        let failures = &response.batch_item_failures;
        failures.iter().any(|failure| Some(&failure.item_identifier) == id.as_ref())
    };
    let done = receipts.into_iter().filter(|(id, _)| !is_failed(id));
    let done = done.filter_map(|(_, receipt)| receipt).collect();
    if let Err(error) = polling::delete(sqs, queue_url, done).await {
        let error = error_chain(&error);
        tracing::warn!(error, "handled messages not deleted; they will be redelivered");
    }
}
