//! Expiry. Expired items are deleted one by one in any order, as DynamoDB does, and operators may react weeks late. No
//! item that a task still refers to may have expired.

use std::time::Duration;

use futures_util::FutureExt;
use steward_core::{
    engine::request::child_id,
    model::{
        document::DocumentKey,
        names::{Incarnation, TaskId},
        task::{ProcessState, Task},
    },
};
use steward_runtime::ports::StateStore;

use super::{
    deployment::{ScheduledEvent, SimulatedDeployment, SimulationState},
    task_record::has_stopped,
    virtual_time::{HOUR, Millis, since_start},
};
use steward_test_world::ExpiredItem;

impl SimulatedDeployment {
    /// The task as it can be read now; `None` if it has expired.
    pub(super) fn present(&self, id: &TaskId) -> Option<Task> {
        self.present_after(id, Duration::ZERO)
    }

    /// The task as it can be read after this time; `None` if it has expired by then.
    pub(super) fn present_after(&self, id: &TaskId, time: Duration) -> Option<Task> {
        let store = self.memory.store.with_clock(self.memory.clock.ahead_by(time));
        store.load(id).now_or_never()?.ok()?
    }

    /// Whether the task exists and does not expire within the next hour.
    pub(super) fn is_present_for_an_hour(&self, id: &TaskId) -> bool {
        self.present_after(id, Duration::from_millis(HOUR)).is_some()
    }

    /// Deletes some of the expired items, and checks that none of them is still needed.
    pub(super) fn delete_expired(&self) {
        let store = &self.memory.store;
        for item in store.expired(self.time()) {
            if let Some(finding) = self.reason_to_keep(&item) {
                self.state().oracle.add_finding(finding);
            }
            if self.state().random.chance(0.5) {
                self.note("expiry", || format!("deletes {item:?}"));
                store.delete_expired(&item);
            }
        }
    }

    /// The reason why an item must not have expired.
    fn reason_to_keep(&self, item: &ExpiredItem) -> Option<String> {
        match item {
            ExpiredItem::Task(id) => {
                let task = self.state().oracle.tasks.get(id).cloned()?;
                if !has_stopped(&task) {
                    return Some(format!("{id}: expired, but is {}", task.process_state));
                }
                if task.is_unresolved() {
                    return Some(format!("{id}: expired, but no operator has settled its Error"));
                }
                let parent = task.parent?;
                let present = self.present(&parent.task_id);
                let present = present.filter(|task| task.incarnation == parent.incarnation)?;
                // The record that a child task never began is needed only as long as a late submission may arrive, and so
                // is that of an undone child task in whose place an edit of the input has begun another.
                let replaced = child_id(&present, &parent.step).is_ok_and(|child| child != *id);
                let gone = task.process_state == ProcessState::Undone
                    && (task.steps.is_empty() || replaced);
                (!gone).then(|| format!("{id}: expired, but its parent {} has not", parent.task_id))
            }
            // A claim fences calls, and no call begins after the complete-by of its attempt.
            ExpiredItem::Document(_, DocumentKey::Claim(_)) => None,
            ExpiredItem::Document(owner, key) => {
                let present = self.is_present(&owner.task_id, owner.incarnation);
                present.then(|| format!("{}: expired before its task: {key:?}", owner.task_id))
            }
        }
    }

    pub(super) fn is_present(&self, id: &TaskId, incarnation: Incarnation) -> bool {
        self.present(id).is_some_and(|task| task.incarnation == incarnation)
    }

    /// The next time of a recurring event: `every` after `now`. If nothing can happen until much later, the rounds until
    /// then are skipped.
    pub(super) fn next_round(&self, now: Millis, every: Millis) -> Millis {
        let state = self.state();
        let wakes = state.wakes_at().unwrap_or(now);
        let rounds = wakes.saturating_sub(now).div_ceil(every.max(1)).max(1);
        now + rounds * every
    }
}

impl SimulationState {
    /// The earliest time of an event that does not recur, or at which a task is due; `None` if messages are in transit.
    fn wakes_at(&self) -> Option<Millis> {
        if !self.network.is_empty() {
            return None;
        }
        let mut schedule = self.schedule.iter().filter(|(_, event)| !event.recurs());
        let next = schedule.next().map(|((at, _), _)| *at);
        let due = self.oracle.tasks.values().filter_map(|task| task.due);
        next.into_iter().chain(due.map(since_start)).min()
    }
}

impl ScheduledEvent {
    /// Whether the event recurs, and acts only if there is something to do.
    pub(super) fn recurs(&self) -> bool {
        match self {
            Self::Sweep(_)
            | Self::SweepPayloads(_)
            | Self::KeepErrors(_)
            | Self::ResumePaused
            | Self::KillInstance
            | Self::DeleteExpired => true,
            Self::Submit(_)
            | Self::SubmitForged(..)
            | Self::ReuseTaskId(_)
            | Self::Command(..)
            | Self::Outage(_)
            | Self::RestartInstance(_)
            | Self::CommitCall(_)
            | Self::AnswerCallback(_)
            | Self::PublishEvent(_)
            | Self::LateArrival(..)
            | Self::StopFaults => false,
        }
    }
}
