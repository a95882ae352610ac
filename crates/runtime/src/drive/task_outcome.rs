//! The results for the deliveries of one task, and the effects to send.

use steward_core::{
    engine::{decision::IgnoreReason, event::Event},
    model::{messages::StepReply, names::TaskId},
};

use super::{delivery::Delivery, error::DriveError};
use crate::{dispatch::PreparedEffect, metrics};

/// The results for the deliveries of one task, and the effects to send.
pub(super) struct TaskOutcome {
    pub(super) results: Vec<Result<(), DriveError>>,
    pub(super) effects: Vec<(PreparedEffect, Owners)>,
}

/// The deliveries of the task, by position, that need an effect. If it cannot be sent, only they are handled again: a
/// redelivered message sends many effects again, so a failure must not make other messages redelivered too.
pub(super) type Owners = Vec<usize>;

impl TaskOutcome {
    /// The outcome for deliveries to a tombstone: the record of a child task that was undone before it began. Its
    /// workflow may not exist, and the record never changes, so all events are ignored.
    pub(super) fn for_tombstone(task_id: &TaskId, deliveries: &[Delivery]) -> Self {
        for delivery in deliveries {
            let event = delivery.event.name();
            tracing::warn!(%task_id, event, "event ignored: the task was undone before it began");
            metrics::ignored(IgnoreReason::Ended);
        }
        Self { results: deliveries.iter().map(|_| Ok(())).collect(), effects: Vec::new() }
    }

    /// The outcome for deliveries to a task that does not exist: it has expired, or there never was one. They are ignored, except
    /// those of which a person has to learn.
    pub(super) fn without_task(task_id: &TaskId, deliveries: &[Delivery]) -> Self {
        let result = |Delivery { event, .. }: &Delivery| {
            if needs_its_task(event) {
                return Err(DriveError::missing(task_id, "such task".to_owned()));
            }
            let event = event.name();
            tracing::warn!(%task_id, event, "event ignored: there is no such task, or it has expired");
            metrics::ignored(IgnoreReason::AnotherIncarnation);
            Ok(())
        };
        Self { results: deliveries.iter().map(result).collect(), effects: Vec::new() }
    }
}

/// Whether an event must not be ignored although its task does not exist.
fn needs_its_task(event: &Event) -> bool {
    match event {
        // An agent reports an effect that no task accounts for.
        Event::ReplyReceived(StepReply { agent: Some(_), .. }) => event.may_report_effect(),
        // The reply for an event that the step had, and that arrives again.
        Event::ReplyReceived(StepReply { agent: None, .. }) => false,
        // The task may not be recorded yet. If it never is, the operator learns that the command was not carried out.
        Event::CommandReceived(_) => true,
        // A child task is kept for longer than its parent, and answers to a callback may come late.
        Event::ChildEnded { .. } | Event::CallbackReceived { .. } => false,
        // A parent task repeats its request. The others concern a recorded task only.
        Event::ParentRequested(_) | Event::Wake | Event::Swept | Event::AlertPublished { .. } => {
            false
        }
    }
}
