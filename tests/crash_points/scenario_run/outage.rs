//! An outage during a run, and the check months after the run has ended.

use std::{collections::BTreeSet, time::Duration};

use jiff::SignedDuration;
use serde_json::Value;
use steward_core::{model::task::Task, submission::is_tombstone};
use steward_emulator::resources;
use steward_runtime::ports::Clock;

use super::ScenarioRun;
use crate::crash_points::outage::{
    DeletedItem, ExpiredDeletion, FirstAfterOutage, Outage, OutageDuration, delete_expired,
};

const DAY: Duration = Duration::from_secs(24 * 3_600);

/// Longer than the longest delay of a message.
const HOUR: Duration = Duration::from_secs(3_600);

impl ScenarioRun<'_> {
    /// Advances ten days in which nothing runs, or only the supervisor once.
    pub(super) async fn pass_outage(&mut self, outage: Outage) {
        self.processes.clear();
        match outage.duration {
            OutageDuration::TenDays => drop(self.advance(10 * DAY, outage.deletion).await),
            OutageDuration::FiveDaysTwice => {
                self.advance(5 * DAY, outage.deletion).await;
                self.sweep_now().await;
                let deleted = self.advance(5 * DAY, outage.deletion).await;
                self.expect_extended(&deleted);
            }
        }
        if outage.first == FirstAfterOutage::Supervisor {
            self.sweep_now().await;
        }
    }

    /// Advances the clocks and deletes the items that expire; returns their keys.
    async fn advance(&mut self, time: Duration, deletes: ExpiredDeletion) -> Vec<DeletedItem> {
        self.collect_published().await;
        self.record_tasks().await;
        let clock = &self.environment.deployment.clock;
        clock.advance_by(SignedDuration::try_from(time).unwrap());
        // The queues use tokio's clock.
        tokio::time::advance(time).await;
        delete_expired(self.environment, deletes, self.environment.deployment.clock.now()).await
    }

    async fn sweep_now(&mut self) {
        let now = self.environment.deployment.clock.now();
        // A fault in this sweep starts another outage.
        Box::pin(self.sweep(now)).await;
    }

    /// Checks that the sweep extended the items of every unfinished task.
    fn expect_extended(&mut self, deleted: &[DeletedItem]) {
        for DeletedItem { task_id, document, .. } in deleted {
            let has_stopped = |task: &Task| task.process_state.has_stopped();
            let ended = self.last_tasks.get(task_id.as_str()).is_none_or(has_stopped);
            if !ended {
                let document = document.as_deref().unwrap_or("the item");
                self.problems
                    .push(format!("{document} of {task_id} was not extended by the sweep"));
            }
        }
    }

    /// Months after the run, all items have expired and every message is delivered once more. That must have no effect.
    pub(super) async fn pass_months(&mut self) -> Result<(), String> {
        self.advance(HOUR, ExpiredDeletion::Everything).await;
        while self.deliver_all().await? {}
        let messages = std::mem::take(&mut self.delivered);
        let calls = self.remote.service.ledger().calls;
        self.advance(60 * DAY, ExpiredDeletion::Everything).await;
        self.deliver_again(messages).await;
        while self.deliver_all().await? {}
        self.sweep_now().await;
        while self.deliver_all().await? {}
        let calls = self.remote.service.ledger().calls - calls;
        self.expect(calls == 0, || format!("months later the service is called {calls} times"));
        // The undo of a child task that does not exist leaves a record that it never started. Nobody has settled an Error.
        let tasks = self.tasks().await.into_iter();
        let tasks = tasks.filter(|(_, task)| !is_tombstone(task) && !task.is_unresolved());
        let tasks: Vec<_> = tasks.map(|(id, _)| id).collect();
        self.expect(tasks.is_empty(), || format!("months later there are {tasks:?}"));
        Ok(())
    }

    /// Sends all messages again except clients' submissions, whose ids can be used for new tasks by now.
    async fn deliver_again(&self, messages: BTreeSet<(String, String)>) {
        for (queue, body) in messages {
            let is_from_client = || {
                let body: Value = serde_json::from_str(&body).unwrap();
                body["parent"].is_null()
            };
            if !queue.ends_with(resources::SUBMISSIONS_QUEUE) || !is_from_client() {
                self.environment.send_to(&queue, body).await;
            }
        }
    }

    fn expect(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.problems.push(what());
        }
    }
}
