//! Events that steps wait for. The queue carries two kinds of messages, which meet in a
//! [correlation record](steward_core::correlation):
//!
//! | message | from | effect |
//! | --- | --- | --- |
//! | an event | an EventBridge rule | completes the step that waits for it, or is kept for it |
//! | a subscription | the scheduler | the step waits, or has the event that came before |
//!
//! Both are delivered at least once, in any order. Handling one of them again sends the same reply again.

use aws_lambda_events::sqs::SqsBatchResponse;
use futures_util::{StreamExt, stream};
use serde_json::Value;
use steward_aws::batch::{
    Batch, CorruptMessage, ReceivedMessage, alert_corrupt, received_messages,
};
use steward_core::{
    correlation::{CorrelationKey, CorrelationRecord, EventSubscription, Waiter},
    definition::wait::AwaitedEvent,
    engine::{effect::Effect, request::size_error},
    expression::template::Template,
    model::{
        attempt::{Action, AttemptTimes},
        json_text::to_json_value,
        messages::{ReplyOutcome, StepReply},
        names::{StepName, WorkflowName},
    },
    submission::event::ReceivedEvent,
};
use steward_runtime::{
    dispatch::{OutgoingEffect, send_effects},
    ports::{
        Clock, Definitions, PortError, Ports, SharedRecord, SharedRecordKey, SharedRecordKind,
        SharedSaveOutcome, StateStore, error_chain,
    },
};

/// The role in alerts.
const ROLE: &str = "submission";

/// The largest number of concurrent messages of a batch.
const MESSAGES_AT_ONCE: usize = 64;

/// How often a save is repeated after a lost race, before the message is redelivered.
const SAVES_MAX: u32 = 8;

/// Why a message was not handled.
enum Failure {
    /// A port failed. A redelivery may succeed.
    Port(PortError),
    /// The message can never be handled.
    Corrupt(CorruptMessage),
}

impl From<PortError> for Failure {
    fn from(error: PortError) -> Self {
        Self::Port(error)
    }
}

/// Handles a batch of messages from the events queue. Returns the messages that SQS has to deliver again.
pub async fn handle<P: Ports>(ports: &P, batch: impl Into<Batch>) -> SqsBatchResponse {
    let Batch { event, progress } = batch.into();
    let progress = &progress;
    let handled = stream::iter(received_messages(event)).map(|message| async move {
        match handle_message(ports, &message).await {
            Ok(()) => progress.done(message.message_id),
            Err(Failure::Port(error)) => {
                let (message_id, error) = (message.message_id, error_chain(&error));
                tracing::warn!(message_id, error, "event not handled");
            }
            Err(Failure::Corrupt(message)) => return Some(message),
        }
        None
    });
    let corrupt: Vec<_> = handled.buffer_unordered(MESSAGES_AT_ONCE).collect().await;
    let corrupt: Vec<_> = corrupt.into_iter().flatten().collect();
    alert_corrupt(ports, ROLE, &corrupt).await;
    progress.response()
}

async fn handle_message<P: Ports>(ports: &P, message: &ReceivedMessage) -> Result<(), Failure> {
    let replies = match ReceivedEvent::read(&message.body) {
        Some(Ok(event)) => receive_event(ports, &event).await?,
        Some(Err(refusal)) => return Err(Failure::Corrupt(message.corrupt(refusal.to_string()))),
        None => {
            let subscription = message.parse().map_err(Failure::Corrupt)?;
            subscribe(ports, subscription).await?.into_iter().collect()
        }
    };
    let traced = |reply| OutgoingEffect { traceparent: message.traceparent.clone(), ..reply };
    let sent = send_effects(ports, replies.into_iter().map(traced).collect()).await;
    sent.into_iter().collect::<Result<(), _>>().map_err(Failure::Port)
}

/// Records that a step waits. Returns its reply, if its wait is over at once.
async fn subscribe<P: Ports>(
    ports: &P,
    EventSubscription { key, waiter }: EventSubscription,
) -> Result<Option<OutgoingEffect>, PortError> {
    let now = ports.clock().now();
    let outcome = update(ports, &key, |record| record.subscribe(waiter.clone(), now)).await?;
    Ok(outcome.map(|outcome| reply(waiter, outcome)))
}

/// Records an event for each step of a workflow that may wait for it. Returns the replies of the steps that it completes.
async fn receive_event<P: Ports>(
    ports: &P,
    event: &ReceivedEvent,
) -> Result<Vec<OutgoingEffect>, PortError> {
    let (source, detail_type) = (event.source(), event.detail_type());
    let plans = ports.definitions().awaiting(source, detail_type).await?;
    let mut keys = Vec::new();
    for plan in &plans {
        for (step, awaited) in plan.awaited_events() {
            let key = awaited.key_of(source, detail_type);
            keys.extend(key.and_then(|key| key_of(event, &plan.name, (step, awaited), key)));
        }
    }
    keys.sort();
    keys.dedup();
    let outcome = outcome_of(event);
    let mut replies = Vec::new();
    for key in keys {
        replies.extend(record_event(ports, &key, event.id(), &outcome).await?);
    }
    Ok(replies)
}

/// Records an event, by its id and the outcome that it gives to a step. Returns the reply of the step that it completes, if
/// one waits for it.
///
/// # Errors
/// The store failed.
pub async fn record_event<P: Ports>(
    ports: &P,
    key: &CorrelationKey,
    id: &str,
    outcome: &ReplyOutcome,
) -> Result<Option<OutgoingEffect>, PortError> {
    let now = ports.clock().now();
    let completed = update(ports, key, |record| record.record(id, outcome.clone(), now)).await?;
    Ok(completed.map(|(waiter, outcome)| reply(waiter, outcome)))
}

/// The key of an event for a step. `None` if the event has none: then it is for another step.
fn key_of(
    event: &ReceivedEvent,
    workflow: &WorkflowName,
    (step, awaited): (&StepName, &AwaitedEvent),
    key: &Template,
) -> Option<CorrelationKey> {
    let key = event.render(key).and_then(|value| {
        CorrelationKey::new(workflow, step, awaited, &value).map_err(|error| error.to_string())
    });
    match key {
        Ok(key) => Some(key),
        Err(reason) => {
            tracing::info!(%workflow, %step, reason, "event without a correlation key ignored");
            None
        }
    }
}

/// The outcome that an event gives to a step: its output, or a failure if it is too large for one.
fn outcome_of(event: &ReceivedEvent) -> ReplyOutcome {
    match size_error("event", event.envelope()) {
        None => ReplyOutcome::Completed { output: event.envelope().clone(), may_continue: false },
        Some(reason) => {
            ReplyOutcome::Failed { reason, may_have_run: false, call_in_doubt: false, detail: None }
        }
    }
}

/// Changes a correlation record, and saves it if it has changed. A lost race is repeated with the newer record.
async fn update<P: Ports, T>(
    ports: &P,
    key: &CorrelationKey,
    change: impl Fn(&mut CorrelationRecord) -> T,
) -> Result<T, PortError> {
    let key = SharedRecordKey { kind: SharedRecordKind::Correlation, name: key.to_string() };
    let unreadable = |source| PortError {
        operation: format!("read correlation {}", key.name),
        retryable: false,
        source,
    };
    let mut stored = ports.store().shared_record(&key).await?;
    for _ in 0..SAVES_MAX {
        let (revision, body) =
            stored.map_or((0, Value::Null), |stored| (stored.revision, stored.body));
        let before: Option<CorrelationRecord> =
            serde_json::from_value(body).map_err(|error| unreadable(error.into()))?;
        let before = before.unwrap_or_default();
        let mut record = before.clone();
        let result = change(&mut record);
        if record == before {
            return Ok(result);
        }
        let changed = SharedRecord {
            key: key.clone(),
            revision: revision + 1,
            body: to_json_value(&record),
            expires_at: Some(record.expires_at()),
        };
        match ports.store().save_shared_record(&changed).await? {
            SharedSaveOutcome::Saved => return Ok(result),
            SharedSaveOutcome::Conflict(newer) => stored = newer,
        }
    }
    Err(PortError {
        operation: format!("save correlation {}", key.name),
        retryable: true,
        source: "too many concurrent changes".into(),
    })
}

fn reply(waiter: Waiter, outcome: ReplyOutcome) -> OutgoingEffect {
    let Waiter { task_id, incarnation, step, attempt, until: _, tenant } = waiter;
    let (action, times, agent) = (Action::Do, AttemptTimes::default(), None);
    let reply = StepReply { task_id, step, action, attempt, outcome, incarnation, times, agent };
    OutgoingEffect { effect: Effect::Reply(reply), traceparent: None, tenant }
}
