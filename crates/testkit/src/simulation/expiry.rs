//! What time does: items that have expired are deleted, one by one and in any order, as DynamoDB does,
//! and operators may come weeks late. Nothing that a task still refers to may be among the expired.

use std::time::Duration;

use futures_util::FutureExt;
use steward_core::model::{
    document::DocumentKey,
    names::{Incarnation, TaskId},
    task::{ProcessState, Task},
    time::later,
};
use steward_runtime::ports::{Ports, StateStore};

use super::{
    oracle::is_final,
    plan::{HOUR, Millis},
    world::{Happening, State, World},
};
use crate::memory::ExpiredItem;

impl World {
    /// What the store goes by to tell what has expired.
    pub(super) fn set_clock(&self) {
        self.memory.clock().set(self.time());
    }

    /// The task as anyone can read it now; nothing if it has expired.
    pub(super) fn present(&self, id: &TaskId) -> Option<Task> {
        self.set_clock();
        self.memory.store().load(id).now_or_never()?.ok()?
    }

    /// Whether the task is there, and does not expire within the next hour.
    pub(super) fn stays(&self, id: &TaskId) -> bool {
        self.memory.clock().set(later(self.time(), Duration::from_millis(HOUR)));
        let found = self.memory.store().load(id).now_or_never();
        self.set_clock();
        matches!(found, Some(Ok(Some(_))))
    }

    /// Deletes some of what has expired.
    pub(super) fn delete_expired(&self) {
        self.set_clock();
        let store = self.memory.store();
        for item in store.expired(self.time()) {
            if let Some(finding) = self.is_needed(&item) {
                self.state().oracle.find(finding);
            }
            if self.state().dice.chance(0.5) {
                self.note("time", || format!("deletes {item:?}"));
                store.delete_expired(&item);
            }
        }
    }

    /// Why an item must not have expired.
    fn is_needed(&self, item: &ExpiredItem) -> Option<String> {
        match item {
            ExpiredItem::Task(id) => {
                let task = self.state().oracle.tasks.get(id).cloned()?;
                if !is_final(&task) {
                    return Some(format!("{id}: expired, and is {}", task.process_state));
                }
                // A record that it was never begun is needed for as long as a late submission may come.
                let never_begun =
                    task.steps.is_empty() && task.process_state == ProcessState::Undone;
                let parent = task.parent.filter(|_| !never_begun)?;
                let present = self.is_present(&parent.task_id, parent.incarnation);
                present.then(|| format!("{id}: expired, and {} has not", parent.task_id))
            }
            // It fences calls, and none begins after the attempt's complete-by.
            ExpiredItem::Document(_, DocumentKey::Claim(_)) => None,
            ExpiredItem::Document(owner, key) => {
                let present = self.is_present(&owner.task_id, owner.incarnation);
                present.then(|| format!("{}: expired before its task: {key:?}", owner.task_id))
            }
        }
    }

    fn is_present(&self, id: &TaskId, incarnation: Option<Incarnation>) -> bool {
        self.present(id).is_some_and(|task| task.incarnation == incarnation)
    }

    /// When something that recurs happens again: after `every`, or, if nothing can happen until much later,
    /// at the first of its rounds after that.
    pub(super) fn next_round(&self, now: Millis, every: Millis) -> Millis {
        let state = self.state();
        let wakes = state.wakes_at().unwrap_or(now);
        let rounds = wakes.saturating_sub(now).div_ceil(every.max(1)).max(1);
        now + rounds * every
    }
}

impl State {
    /// The earliest time at which something can happen that does not recur by itself; nothing if messages
    /// are on their way.
    fn wakes_at(&self) -> Option<Millis> {
        if !self.network.is_empty() {
            return None;
        }
        let mut agenda = self.agenda.iter().filter(|(_, happening)| !happening.recurs());
        let next = agenda.next().map(|((at, _), _)| *at);
        let due = self.oracle.tasks.values().filter_map(|task| task.due);
        next.into_iter().chain(due.map(super::plan::since_start)).min()
    }
}

impl Happening {
    /// Whether it happens again and again, and does something only if there is something to do.
    pub(super) fn recurs(&self) -> bool {
        match self {
            Self::Sweep(_) | Self::Look | Self::Death | Self::Expiry => true,
            Self::Submit(_)
            | Self::Reuse(_)
            | Self::Command(..)
            | Self::Away(_)
            | Self::Revive(_)
            | Self::Commit(_)
            | Self::Answer(_)
            | Self::Arrival(..)
            | Self::Calm => false,
        }
    }
}
