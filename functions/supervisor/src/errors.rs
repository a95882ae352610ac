//! The tasks in Error that no operator has settled: once an hour their records are kept, and once a day they are reported.
//!
//! A task that is settled, or continued, expires like any other. Both reports are for people; decisions do not depend on them.

use std::{cmp::Reverse, collections::BTreeMap, num::NonZeroU32, time::Duration};

use futures_util::future::join_all;
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
    history::ErrorsPass,
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

/// Makes the pass, if an hour has begun since the last one, and the report, if a day has begun. What fails, or is not done by the
/// deadline, is not noted in `done`: the next run repeats the pass, and that of the next hour the report.
pub(crate) async fn keep_each_hour<P: Ports>(
    ports: &P,
    done: &mut ErrorsPass,
    at: Timestamp,
    deadline: Timestamp,
) -> Result<(), PortError> {
    let (kept_at, reported_at) =
        (*done.kept_at.get_or_insert(at), *done.reported_at.get_or_insert(at));
    if !has_begun(EVERY, kept_at, at) {
        return Ok(());
    }
    let (found, read) = keep(ports, at, deadline).await;
    if read? {
        done.kept_at = Some(at);
    }
    if has_begun(REPORTED_AFTER, reported_at, at) {
        if found.tasks > 0 {
            let tasks = found.tasks;
            publish(ports, found.event(at)).await?;
            metrics::errors_unresolved(tasks);
        }
        done.reported_at = Some(at);
    }
    Ok(())
}

/// Reads the index of tasks in Error, earliest first, keeps those that are not settled, and returns the older ones, and whether it
/// reached all by the `deadline`. It begins at another partition each minute, so that each has its turn.
pub async fn keep<P: Ports>(
    ports: &P,
    at: Timestamp,
    deadline: Timestamp,
) -> (Unresolved, Result<bool, PortError>) {
    let mut found = Unresolved::default();
    let read = Box::pin(read_all(ports, at, deadline, &mut found)).await;
    (found, read)
}

/// Whether a period of this length has begun between the times, counted from 1970.
fn has_begun(every: Duration, last: Timestamp, at: Timestamp) -> bool {
    let every = i64::try_from(every.as_secs()).unwrap_or(i64::MAX).max(1);
    let number = |at: Timestamp| at.as_second().div_euclid(every);
    number(last) < number(at)
}

async fn read_all<P: Ports>(
    ports: &P,
    at: Timestamp,
    deadline: Timestamp,
    found: &mut Unresolved,
) -> Result<bool, PortError> {
    let shards = NonZeroU32::new(ports.store().shards()).unwrap_or(NonZeroU32::MIN);
    let parts = ended_index_partitions(shards).get();
    let first = u32::try_from(at.as_second().div_euclid(60).rem_euclid(i64::from(parts)));
    let reported = earlier(at, REPORTED_AFTER);
    for part in (0..parts).map(|part| (part + first.unwrap_or_default()) % parts) {
        let mut after = None;
        loop {
            let (store, within) = (ports.store(), Timestamp::MIN..at);
            let page = store.ended_tasks(ProcessState::Error, part, within, after.as_ref()).await?;
            for ended in page.ended.chunks(AT_ONCE) {
                if ports.clock().now() >= deadline {
                    return Ok(false);
                }
                let kept = ended.iter().map(|ended| Box::pin(keep_one(ports, ended)));
                let kept = join_all(kept).await.into_iter().flatten();
                kept.filter(|kept| kept.at <= reported).for_each(|kept| found.add(kept));
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
    }
    Ok(true)
}

/// Keeps a task. Returns it if it is not settled. A task that cannot be saved now is kept by the next pass.
async fn keep_one<'e, P: Ports>(ports: &P, ended: &'e EndedTask) -> Option<&'e EndedTask> {
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
    fn add(&mut self, EndedTask { at, workflow, .. }: &EndedTask) {
        self.tasks += 1;
        self.since = Some(self.since.map_or(*at, |since| since.min(*at)));
        *self.workflows.entry(workflow.clone()).or_default() += 1;
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
