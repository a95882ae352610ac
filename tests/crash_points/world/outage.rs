//! What an outage does to a run, and what months do after the run has ended.

use std::{collections::BTreeSet, time::Duration};

use jiff::SignedDuration;
use serde_json::Value;
use steward_core::{model::task::Task, submission::is_tombstone};
use steward_emulator::resources;
use steward_runtime::ports::Clock;

use super::World;
use crate::crash_points::outage::{Deleted, Deletes, Lasts, Outage, Resumes, delete_expired};

const DAY: Duration = Duration::from_secs(24 * 3_600);

/// Longer than a message can be delayed.
const HOUR: Duration = Duration::from_secs(3_600);

impl World<'_> {
    /// Nothing runs for ten days, or only the supervisor once.
    pub(super) async fn pass_outage(&mut self, outage: Outage) {
        self.instances.clear();
        match outage.lasts {
            Lasts::TenDays => drop(self.stand_still(10 * DAY, outage.deletes).await),
            Lasts::FiveDaysTwice => {
                self.stand_still(5 * DAY, outage.deletes).await;
                self.sweep_now().await;
                let deleted = self.stand_still(5 * DAY, outage.deletes).await;
                self.expect_extended(&deleted);
            }
        }
        if outage.resumes == Resumes::Supervisor {
            self.sweep_now().await;
        }
    }

    /// Lets time pass and deletes what expires in it; which items.
    async fn stand_still(&mut self, time: Duration, deletes: Deletes) -> Vec<Deleted> {
        self.hear().await;
        self.observe().await;
        let clock = &self.site.deployment.clock;
        clock.advance_by(SignedDuration::try_from(time).unwrap());
        // The queues' clock is tokio's.
        tokio::time::advance(time).await;
        delete_expired(self.site, deletes, self.site.deployment.clock.now()).await
    }

    async fn sweep_now(&mut self) {
        let now = self.site.deployment.clock.now();
        // A sweep that is cut passes an outage in turn.
        Box::pin(self.sweep(now)).await;
    }

    /// A sweep has extended the documents of every unfinished task.
    fn expect_extended(&mut self, deleted: &[Deleted]) {
        for Deleted { task_id, document, .. } in deleted {
            let is_final = |task: &Task| task.process_state.is_final();
            let ended = self.seen.get(task_id.as_str()).is_none_or(is_final);
            if !ended {
                let document = document.as_deref().unwrap_or("the item");
                self.wrong.push(format!("{document} of {task_id} was not extended by the sweep"));
            }
        }
    }

    /// Months after the run, all items have expired and every message comes once more: nothing must follow from it.
    pub(super) async fn pass_months(&mut self) -> Result<(), String> {
        self.stand_still(HOUR, Deletes::Everything).await;
        while self.deliver_all().await? {}
        let messages = std::mem::take(&mut self.delivered);
        let calls = self.remote.calls();
        self.stand_still(60 * DAY, Deletes::Everything).await;
        self.deliver_again(messages).await;
        while self.deliver_all().await? {}
        self.sweep_now().await;
        while self.deliver_all().await? {}
        let calls = self.remote.calls() - calls;
        self.expect(calls == 0, || format!("months later the service is called {calls} times"));
        // The undo of a child task that is not there leaves a record that it never began.
        let tasks = self.tasks().await.into_iter().filter(|(_, task)| !is_tombstone(task));
        let tasks: Vec<_> = tasks.map(|(id, _)| id).collect();
        self.expect(tasks.is_empty(), || format!("months later there are {tasks:?}"));
        Ok(())
    }

    /// Sends everything again but what clients submitted: their ids are free for new tasks by now.
    async fn deliver_again(&self, messages: BTreeSet<(String, String)>) {
        for (queue, body) in messages {
            let is_clients = || {
                let body: Value = serde_json::from_str(&body).unwrap();
                body["parent"].is_null()
            };
            if !queue.ends_with(resources::SUBMISSIONS_QUEUE) || !is_clients() {
                self.site.send_to(&queue, body).await;
            }
        }
    }

    fn expect(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.wrong.push(what());
        }
    }
}
