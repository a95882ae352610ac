//! The tasks in Error that no operator has settled: once an hour their records are kept, and once a day they are reported.
//!
//! A task that is settled, or continued, expires like any other. Both reports are for people; decisions do not depend on them.

use std::{cmp::Reverse, collections::BTreeMap, num::NonZeroU32, time::Duration};

use futures_util::{StreamExt, stream};
use jiff::Timestamp;
use steward_core::{
    engine::effect::Effect,
    limits,
    model::{
        events::{BusEvent, EventData},
        names::WorkflowName,
        task::{ProcessState, Task},
        time::earlier,
    },
};
use steward_runtime::{
    dispatch::{OutgoingEffect, send_effects},
    drive::keep_until_resolved,
    metrics,
    ports::{Clock, EndedTask, PortError, Ports, StateStore, ended_index_partitions, error_chain},
};

/// How often the pass runs: several times in [`limits::RETENTION_MARGIN`], by which documents are kept longer than their task.
const EVERY: Duration = Duration::from_secs(3_600);

/// From this age on, an Error is reported, once in as long.
const REPORTED_AFTER: Duration = Duration::from_secs(24 * 3_600);

/// How many tasks are kept at the same time.
const AT_ONCE: usize = 16;

/// The tasks that have been in Error for more than a day, and are not settled.
#[derive(Debug, Default)]
pub struct Unresolved {
    tasks: u64,
    since: Option<Timestamp>,
    workflows: BTreeMap<WorkflowName, u64>,
}

/// Makes the pass, if an hour has begun since the `last` run.
pub(crate) async fn keep_each_hour<P: Ports>(
    ports: &P,
    last: Option<Timestamp>,
    at: Timestamp,
    deadline: Timestamp,
) -> Result<(), PortError> {
    if !has_begun(EVERY, last, at) {
        return Ok(());
    }
    let (found, read) = keep(ports, at, deadline).await;
    if found.tasks > 0 && has_begun(REPORTED_AFTER, last, at) {
        metrics::errors_unresolved(found.tasks);
        publish(ports, found.event(at)).await?;
    }
    read
}

/// Reads the index of tasks in Error, earliest first, keeps those that are not settled, and returns the older ones. Ends at
/// `deadline`: tasks that it has not reached by then are kept by a later pass, long before they expire.
pub async fn keep<P: Ports>(
    ports: &P,
    at: Timestamp,
    deadline: Timestamp,
) -> (Unresolved, Result<(), PortError>) {
    let mut found = Unresolved::default();
    let read = Box::pin(read_all(ports, at, deadline, &mut found)).await;
    (found, read)
}

/// Whether a period of this length has begun between the times, counted from 1970.
fn has_begun(every: Duration, last: Option<Timestamp>, at: Timestamp) -> bool {
    let every = i64::try_from(every.as_secs()).unwrap_or(i64::MAX).max(1);
    let number = |at: Timestamp| at.as_second().div_euclid(every);
    last.is_some_and(|last| number(last) < number(at))
}

async fn read_all<P: Ports>(
    ports: &P,
    at: Timestamp,
    deadline: Timestamp,
    found: &mut Unresolved,
) -> Result<(), PortError> {
    let shards = NonZeroU32::new(ports.store().shards()).unwrap_or(NonZeroU32::MIN);
    for part in 0..ended_index_partitions(shards).get() {
        let mut after = None;
        while ports.clock().now() < deadline {
            let (store, within) = (ports.store(), Timestamp::MIN..at);
            let page = store.ended_tasks(ProcessState::Error, part, within, after.as_ref()).await?;
            let kept = page.ended.into_iter().map(|ended| Box::pin(keep_one(ports, ended)));
            let kept: Vec<_> = stream::iter(kept).buffer_unordered(AT_ONCE).collect().await;
            let reported = earlier(at, REPORTED_AFTER);
            kept.into_iter()
                .flatten()
                .filter(|kept| kept.at <= reported)
                .for_each(|kept| found.add(kept));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
    }
    Ok(())
}

/// Keeps a task. Returns it if it is not settled. A task that cannot be saved now is kept by the next pass.
async fn keep_one<P: Ports>(ports: &P, ended: EndedTask) -> Option<EndedTask> {
    match keep_until_resolved(ports, &ended.task_id).await {
        // The task may have ended again since.
        Ok(task) => task.filter(Task::is_unresolved).map(|_| ended),
        Err(error) => {
            tracing::warn!(error = error_chain(&error), "a task in Error was not kept for longer");
            Some(ended)
        }
    }
}

impl Unresolved {
    fn add(&mut self, EndedTask { at, workflow, .. }: EndedTask) {
        self.tasks += 1;
        self.since = Some(self.since.map_or(at, |since| since.min(at)));
        *self.workflows.entry(workflow).or_default() += 1;
    }

    fn event(self, at: Timestamp) -> BusEvent {
        let Self { tasks, since, workflows } = self;
        let mut workflows: Vec<_> = workflows.into_iter().collect();
        workflows.sort_by_key(|(_, tasks)| Reverse(*tasks));
        let most = workflows.into_iter().take(limits::ALERT_STEPS_MAX).map(|(name, _)| name);
        let (since, workflows) = (since.unwrap_or(at), most.collect());
        BusEvent::of_day("tasks", at, EventData::ErrorsUnresolved { tasks, since, workflows })
    }
}

async fn publish<P: Ports>(ports: &P, event: BusEvent) -> Result<(), PortError> {
    let effect = Effect::Publish(event);
    let sent =
        send_effects(ports, vec![OutgoingEffect { effect, traceparent: None, tenant: None }]);
    sent.await.into_iter().collect()
}
