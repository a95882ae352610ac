//! Late messages: reused ids of expired tasks, dead letters and their redrive, by the
//! [plan](super::late_message_plan).

use steward_runtime::ports::OutgoingMessage;

use super::{
    deployment::{ScheduledEvent, SimulatedDeployment},
    late_message_plan::is_late,
    network::FunctionQueue,
    virtual_time::MINUTE,
};

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

    /// Handles a new dead letter: an operator redrives it, in runs that have such operators.
    pub(super) fn handle_dead_letter(&self, source: FunctionQueue, letter: &OutgoingMessage) {
        let body = &letter.body;
        let state = &mut *self.state();
        let plan = self.plan.late_messages.dead_letters.as_ref();
        if is_late(letter) && !(state.faults_enabled && plan.is_some()) {
            // A late message may be for a task that no longer exists. It stays a dead letter.
            return;
        }
        let Some(plan) = plan else {
            let finding = format!("a message became a dead letter: {body}");
            return state.oracle.add_finding(finding);
        };
        state.faults += 1;
        let now = self.now();
        let at = now + state.random.skewed(plan.redriven_within);
        state.schedule_late_arrival(source, at, letter);
    }

    /// Delivers a late message to its queue.
    pub(super) fn deliver_late(&self, source: FunctionQueue, message: &OutgoingMessage) {
        self.fault("queue", || format!("a late message arrives: {}", message.body));
        self.state().network.put(source, self.now(), message);
    }
}
