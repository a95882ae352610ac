//! Holds new tasks back while a queue of their steps is too long: [`steward_core::intake`].
//!
//! A submission that is held back returns to the submissions queue with a delay. It is no task yet, so no deadline runs.
//! Child tasks belong to a task in progress, and are never held back. An instance reads the record at most once a second.

use std::{sync::Arc, time::Duration};

use aws_lambda_events::sqs::{SqsEvent, SqsMessage};
use futures_util::{StreamExt, stream};
use jiff::Timestamp;
use steward_aws::batch::BatchProgress;
use steward_core::{
    definition::plan::Plan,
    intake::{Intake, may_start, pause_before_next_turn},
    model::{messages::Submission, time::later},
    submission::{event::ReceivedEvent, parse},
};
use steward_runtime::{
    intake::read_intake,
    metrics,
    ports::{Channel, Clock, Definitions, OutgoingMessage, PortError, Ports, Queue, error_chain},
};
use tokio::sync::Mutex;

/// The largest number of submissions of a batch about which is decided concurrently.
const DECISIONS_AT_ONCE: usize = 64;

/// How long the copy of the record is used without a read.
const CACHE_TTL: Duration = Duration::from_secs(1);

/// The message attribute that counts how often a submission was held back.
const TURN: &str = "turn";

/// An instance's view of the levels of intake control.
#[derive(Debug, Default)]
pub struct IntakeView {
    /// The copy, and when it was read. The lock is held during the read, so that only one of several callers reads.
    copy: Mutex<Option<(Timestamp, Intake)>>,
}

impl IntakeView {
    /// The current levels. If they cannot be read, the last copy counts, or else all tasks start.
    async fn levels<P: Ports>(&self, ports: &P) -> Intake {
        let mut copy = self.copy.lock().await;
        let now = ports.clock().now();
        if let Some((read_at, levels)) = &*copy
            && (*read_at..later(*read_at, CACHE_TTL)).contains(&now)
        {
            return levels.clone();
        }
        let levels = read_intake(ports).await.unwrap_or_else(|error| {
            tracing::warn!(error = error_chain(&error), "intake levels not read");
            copy.take().map(|(_, levels)| levels).unwrap_or_default()
        });
        *copy = Some((now, levels.clone()));
        levels
    }

    /// Divides a batch into the messages whose tasks may start now, and those to hold back.
    pub(crate) async fn divide<P: Ports>(
        &self,
        ports: &P,
        mut event: SqsEvent,
    ) -> (SqsEvent, Vec<SqsMessage>) {
        let levels = self.levels(ports).await;
        if levels.is_open(ports.clock().now()) {
            return (event, Vec::new());
        }
        let decided: Vec<_> = stream::iter(event.records)
            .map(|message| async {
                let text = message.body.as_deref().unwrap_or_default();
                (starts(ports, &levels, text, turn(&message)).await, message)
            })
            .buffer_unordered(DECISIONS_AT_ONCE)
            .collect()
            .await;
        let (start, hold): (Vec<_>, Vec<_>) = decided.into_iter().partition(|(starts, _)| *starts);
        event.records = start.into_iter().map(|(_, message)| message).collect();
        (event, hold.into_iter().map(|(_, message)| message).collect())
    }

    /// Whether the tasks of a submission may start now. `turn` makes each try decide anew.
    pub(crate) async fn may_start<P: Ports>(&self, ports: &P, text: &str, turn: u32) -> bool {
        let levels = self.levels(ports).await;
        levels.is_open(ports.clock().now()) || starts(ports, &levels, text, turn).await
    }
}

/// Whether the tasks of a message may start now. Decides about valid submissions only: all others are refused at once.
async fn starts<P: Ports>(ports: &P, levels: &Intake, text: &str, turn: u32) -> bool {
    match start_share(ports, levels, text).await {
        Ok(share) => may_start(text, turn, share),
        // The handling of the message meets the same error.
        Err(_) => true,
    }
}

async fn start_share<P: Ports>(ports: &P, levels: &Intake, text: &str) -> Result<f64, PortError> {
    let (now, definitions) = (ports.clock().now(), ports.definitions());
    match ReceivedEvent::read(text) {
        Some(Ok(event)) => {
            let workflows = definitions.triggered(event.source(), event.detail_type()).await?;
            let share = |plan: &Arc<Plan>| {
                let tenant = event.submission(plan).ok().and_then(|submission| submission.tenant);
                levels.start_share(plan, tenant.as_ref(), now)
            };
            Ok(workflows.iter().map(share).fold(1.0, f64::min))
        }
        Some(Err(_)) => Ok(1.0),
        None => match parse(text) {
            Ok(Submission { parent: None, workflow, version, tenant, .. }) => {
                let plan = definitions.published(&workflow, version).await?;
                Ok(plan.map_or(1.0, |plan| levels.start_share(&plan, tenant.as_ref(), now)))
            }
            Ok(_) | Err(_) => Ok(1.0),
        },
    }
}

/// Puts messages back into the submissions queue, with a delay. A copy is sent before the message is acknowledged, so a
/// crash duplicates a submission and never loses it.
///
/// A failed delivery would count as a receive, and after 30 of them the submission would be a dead letter.
pub(crate) async fn hold_back<P: Ports>(
    ports: &P,
    messages: Vec<SqsMessage>,
    progress: &BatchProgress,
) {
    let (mut message_ids, mut copies) = (Vec::new(), Vec::new());
    for message in messages {
        let turn = turn(&message);
        let traceparent = message.message_attributes.get("traceparent");
        let traceparent = traceparent.and_then(|attribute| attribute.string_value.clone());
        let body = message.body.unwrap_or_default();
        let delay = pause_before_next_turn(&body, turn);
        let attributes = traceparent.map(|traceparent| ("traceparent", traceparent)).into_iter();
        let attributes = attributes.chain([(TURN, (turn.saturating_add(1)).to_string())]).collect();
        message_ids.push(message.message_id.unwrap_or_default());
        let tenant = parse(&body).ok().and_then(|submission| submission.tenant);
        copies.push(OutgoingMessage { queue: Queue::Submissions, body, attributes, tenant, delay });
    }
    if copies.is_empty() {
        return;
    }
    tracing::info!(submissions = copies.len(), "submissions held back: a queue is too long");
    for (message_id, sent) in message_ids.into_iter().zip(ports.channel().send(copies).await) {
        match sent {
            Ok(()) => {
                metrics::submission_held_back();
                progress.done(message_id);
            }
            Err(error) => {
                tracing::warn!(message_id, error = error_chain(&error), "submission not held back");
            }
        }
    }
}

fn turn(message: &SqsMessage) -> u32 {
    let turn = message.message_attributes.get(TURN);
    turn.and_then(|turn| turn.string_value.as_deref()?.parse().ok()).unwrap_or(0)
}
