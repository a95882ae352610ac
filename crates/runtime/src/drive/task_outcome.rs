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

    /// The outcome for deliveries to a task that does not exist. These may arrive after the task has expired and are ignored: the
    /// report of a child task, which is kept for longer than its parent, the late answer to a callback, and the reply for an event that
    /// the step had and that arrives again. Such a reply names no agent.
    pub(super) fn without_task(task_id: &TaskId, deliveries: &[Delivery]) -> Self {
        let result = |delivery: &Delivery| match &delivery.event {
            Event::ReplyReceived(StepReply { agent: None, .. })
            | Event::ChildEnded { .. }
            | Event::CallbackReceived { .. } => {
                let event = delivery.event.name();
                tracing::warn!(%task_id, event, "event ignored: there is no such task, or it has expired");
                metrics::ignored(IgnoreReason::AnotherIncarnation);
                Ok(())
            }
            Event::Wake
            | Event::ReplyReceived(_)
            | Event::Swept
            | Event::CommandReceived(_)
            | Event::ParentRequested(_)
            | Event::AlertPublished { .. } => {
                Err(DriveError::missing(task_id, "such task".to_owned()))
            }
        };
        Self { results: deliveries.iter().map(result).collect(), effects: Vec::new() }
    }
}
