//! Late messages: reused ids of expired tasks, dead letters and their redrive, by the
//! [plan](super::late_message_plan).

use serde_json::Value;
use steward_core::model::names::TaskId;
use steward_runtime::ports::OutgoingMessage;

use super::{
    deployment::{ScheduledEvent, SimulatedDeployment},
    late_message_plan::is_late,
    network::{DeadLetter, FunctionQueue},
    virtual_time::MINUTE,
};

/// The task of a message for the scheduler.
fn task_of(message: &OutgoingMessage) -> Option<TaskId> {
    let body: Value = serde_json::from_str(&message.body).ok()?;
    body.get("task_id")?.as_str()?.parse().ok()
}

impl SimulatedDeployment {
    /// Schedules the submissions that reuse the ids of clients' tasks.
    pub(super) fn schedule_id_reuse(&self) {
        let Some(copies) = &self.plan.late_messages.copies else { return };
        for (index, _) in self.plan.tasks.iter().enumerate().filter(|(_, task)| !task.id_collision)
        {
            let at = copies.reuse_at + self.state().random.skewed(MINUTE);
            self.schedule(at, ScheduledEvent::ReuseTaskId(index));
        }
    }

    /// Handles a new dead letter: an operator redrives it, in runs that have such operators. A late message may be for a
    /// task that no longer exists, so it stays a dead letter if it failed without a fault.
    pub(super) fn handle_dead_letter(&self, letter: &DeadLetter) {
        let DeadLetter { source, message, received_at } = letter;
        let state = &mut *self.state();
        let plan = self.plan.late_messages.dead_letters.as_ref();
        let had_faults = *received_at < self.plan.faults_until;
        if is_late(message) && !(had_faults && plan.is_some()) {
            return;
        }
        let Some(plan) = plan else {
            let finding = format!("a message became a dead letter: {}", message.body);
            return state.oracle.add_finding(finding);
        };
        state.faults += 1;
        let now = self.now();
        let at = now + state.random.skewed(plan.redriven_within);
        state.schedule_late_arrival(source.clone(), at, message);
    }

    /// Delivers a late message to its queue.
    pub(super) fn deliver_late(&self, source: FunctionQueue, message: &OutgoingMessage) {
        self.fault("queue", || format!("a late message arrives: {}", message.body));
        let now = self.now();
        if let Some(task_id) = task_of(message).filter(|id| self.present(id).is_none()) {
            self.state().oracle.expired_before_redrive.insert(task_id);
        }
        self.state().network.put(source, now, now, message);
    }
}
