//! The registrar: registers an agent when the agent's stack is created or updated, and deregisters it when the stack is
//! deleted. CloudFormation calls it for the custom resource `Custom::StewardAgent`, and waits for an answer.
//!
//! ```text
//! stack of an agent ──► CloudFormation ──► registrar ──► #agent in the documents table
//!                            ▲                 │
//!                            └── PUT answer ───┘  to the URL in the event
//! ```
//!
//! Every event gets an answer, also after a panic or a timeout: without one, the deployment would wait until its own
//! timeout. A deletion always succeeds, so that the registry never blocks a roll-back.
//!
//! | module | contents |
//! | --- | --- |
//! | `event` | the events of CloudFormation |
//! | `properties` | the properties of the custom resource |
//! | [`error`] | why an agent is not registered, or an answer not delivered |
//! | `answer` | the answers, and how they are delivered |

use std::{panic::AssertUnwindSafe, time::Duration};

use futures_util::FutureExt;
use jiff::Timestamp;
use steward_aws::{
    channel::{AgentQueueSettings, SqsChannel},
    dead_letters,
};
use steward_core::model::{
    registration::{AgentRegistration, RegistrationOwner},
    time::later,
};
use steward_runtime::{
    agents::{self, RegisterOutcome},
    ports::{Clock, Ports},
};

mod answer;
pub mod error;
mod event;
mod properties;

use answer::{Answer, deliver};
use error::{AGENT_INFIX, DeliveryError, RegistrationError};
use event::{CustomResourceEvent, RequestType};
use properties::{AgentProperties, InvalidProperties};

/// The visibility timeout of an agent's queue must be this many times the timeout of its function. This is AWS's
/// recommendation for event sources: the poller may hold a batch while the function is throttled.
const VISIBILITY_FACTOR: u32 = 6;

/// The time that remains for delivering the answer.
const DELIVERY_WITHIN: Duration = Duration::from_secs(8);

/// The time that remains for the last look at the queue, and for the registration.
const LAST_LOOK_WITHIN: Duration = Duration::from_secs(10);

/// The pause between two looks at the queue.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Handles an event, and delivers the answer.
///
/// # Errors
/// The event names no URL for the answer, or the answer could not be delivered.
pub async fn handle<P>(
    ports: &P,
    client: &reqwest::Client,
    event: &serde_json::Value,
    deadline: Timestamp,
) -> Result<(), DeliveryError>
where
    P: Ports<Channel = SqsChannel>,
{
    let event = CustomResourceEvent::parse(event)?;
    let left = ports.clock().now().duration_until(deadline);
    let left = Duration::try_from(left).unwrap_or_default().saturating_sub(DELIVERY_WITHIN);
    let looks_until = later(ports.clock().now(), left.saturating_sub(LAST_LOOK_WITHIN));
    let change = AssertUnwindSafe(change_registration(ports, &event, looks_until)).catch_unwind();
    let changed = match left {
        // Nothing is begun.
        Duration::ZERO => Err(RegistrationError::Timeout),
        left => match tokio::time::timeout(left, change).await {
            Ok(Ok(changed)) => changed,
            Ok(Err(_)) => Err(RegistrationError::Panic),
            Err(_) => Err(RegistrationError::Timeout),
        },
    };
    let (agent, kind) = (event.property("Name"), event.request_type.as_str());
    match &changed {
        Ok(()) => tracing::info!(agent, kind, stack = event.stack_id, "registration changed"),
        Err(error) => {
            let error = error.to_string();
            tracing::error!(agent, kind, stack = event.stack_id, error, "registration not changed");
        }
    }
    deliver(client, &event, &Answer::of(&event, changed.err())).await
}

async fn change_registration<P>(
    ports: &P,
    event: &CustomResourceEvent,
    looks_until: Timestamp,
) -> Result<(), RegistrationError>
where
    P: Ports<Channel = SqsChannel>,
{
    let owner = RegistrationOwner {
        stack: event.stack_id.parse().map_err(InvalidProperties::StackId)?,
        resource: Some(event.logical_resource_id.clone()),
    };
    match event.request()? {
        RequestType::Create | RequestType::Update => {
            let properties = AgentProperties::parse(&event.resource_properties)?;
            await_queue(ports, &properties, looks_until).await?;
            register(ports, owner, properties).await
        }
        RequestType::Delete => {
            // The deletion of a resource that could not be created may have any properties.
            let Ok(name) = event.property("Name").unwrap_or_default().parse() else {
                return Ok(());
            };
            agents::deregister(ports.store(), &name, &owner, ports.clock().now()).await?;
            Ok(())
        }
    }
}

/// Waits until the agent's queue exists and suits the agent. SQS needs some seconds, and at most a minute, to spread a change
/// of a queue, so a queue that CloudFormation has just changed may look as it was before.
async fn await_queue<P>(
    ports: &P,
    properties: &AgentProperties,
    until: Timestamp,
) -> Result<(), RegistrationError>
where
    P: Ports<Channel = SqsChannel>,
{
    let channel = ports.channel();
    let queue = channel.agent_queue_name(&properties.name);
    loop {
        let settings = channel.agent_queue_settings(&properties.name).await?;
        let checked = match settings {
            Some(found) => check_queue(&queue, channel.agent_queue_prefix(), &found, properties),
            None => Err(RegistrationError::NoQueue(queue.clone())),
        };
        match checked {
            Err(error) if error.may_pass() && ports.clock().now() < until => {
                tracing::info!(error = error.to_string(), "the queue does not suit the agent yet");
                let left = ports.clock().now().duration_until(until);
                ports.clock().sleep(LOOK_EVERY.min(left.unsigned_abs())).await;
            }
            checked => return checked,
        }
    }
}

async fn register<P>(
    ports: &P,
    owner: RegistrationOwner,
    properties: AgentProperties,
) -> Result<(), RegistrationError>
where
    P: Ports<Channel = SqsChannel>,
{
    let name = properties.name.clone();
    let queue = ports.channel().agent_queue_name(&name);
    let registration = AgentRegistration {
        kind: properties.kind,
        queue: queue.parse().map_err(InvalidProperties::QueueName)?,
        dead_letter_queue: properties.dead_letter_queue,
        contract: properties.contract.get(),
        version: properties.version,
        owner,
        calls_at_once: properties.calls_at_once,
        rate_per_second: properties.rate_per_second,
        burst: properties.burst,
        at: ports.clock().now(),
        deleted_at: None,
    };
    match agents::register(ports.store(), &name, &registration).await? {
        RegisterOutcome::Registered => Ok(()),
        RegisterOutcome::OwnedBy(stack) => {
            Err(RegistrationError::OtherStack { name, stack: stack.to_string() })
        }
    }
}

/// Checks that dead letters of the agent reach a queue that the supervisor may read, and that a request is not delivered
/// again while the agent works on it. `prefix` is the prefix of the names of agents' queues.
fn check_queue(
    queue: &str,
    prefix: &str,
    settings: &AgentQueueSettings,
    properties: &AgentProperties,
) -> Result<(), RegistrationError> {
    if prefix.strip_suffix(AGENT_INFIX).is_some_and(|stack| stack.contains(AGENT_INFIX)) {
        return Err(RegistrationError::AmbiguousStack);
    }
    let name = properties.dead_letter_queue.as_str();
    if !(name.starts_with(prefix) && name.ends_with(dead_letters::SUFFIX)) {
        let (prefix, suffix) = (prefix.to_owned(), dead_letters::SUFFIX);
        return Err(RegistrationError::DeadLetterQueueName {
            name: name.to_owned(),
            prefix,
            suffix,
        });
    }
    if settings.dead_letter_queue.as_deref() != Some(name) {
        let (queue, found) = (queue.to_owned(), settings.dead_letter_queue.clone());
        return Err(RegistrationError::OtherDeadLetterQueue {
            queue,
            expected: name.to_owned(),
            found,
        });
    }
    let expected =
        properties.timeout_seconds.map_or(0, |timeout| timeout.get() * VISIBILITY_FACTOR);
    if settings.visibility_seconds < expected {
        let (queue, visibility_seconds) = (queue.to_owned(), settings.visibility_seconds);
        return Err(RegistrationError::VisibilityTimeout { queue, visibility_seconds, expected });
    }
    Ok(())
}
