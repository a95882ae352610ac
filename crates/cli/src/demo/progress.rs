//! The progress of a demo's run.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use anyhow::Result;
use hdrhistogram::Histogram;
use serde_json::Value;
use steward_core::model::messages::{NotificationStatus, StatusNotification};
use tokio::sync::Semaphore;

/// The longest latency that the histogram can record, in microseconds.
pub(super) const LATENCY_MAX_US: u64 = 600_000_000;

/// The progress of the run, from the notifications and alerts received so far.
pub(super) struct DemoProgress {
    /// One permit for each further task that may run at the same time.
    pub(super) free_slots: Semaphore,
    inner: Mutex<DemoProgressInner>,
}

/// The data behind the lock.
pub(super) struct DemoProgressInner {
    /// Tasks that have been submitted and have not ended, with the time of their submission.
    pub(super) running: HashMap<String, Instant>,
    pub(super) latencies: Histogram<u64>,
    ended: usize,
    /// The tasks that have ended, and when, if the run audits them while it goes on.
    pub(super) ended_tasks: Option<Vec<(String, Instant)>>,
    pub(super) alerted: BTreeSet<String>,
    /// Ids of the events on the bus, by event name: an event that is published twice counts once.
    pub(super) events: BTreeMap<String, BTreeSet<String>>,
}

impl DemoProgress {
    /// The progress of a run in which at most `in_flight` tasks run at the same time.
    pub(super) fn new(in_flight: usize) -> Result<Self> {
        let inner = DemoProgressInner {
            running: HashMap::new(),
            latencies: Histogram::new_with_max(LATENCY_MAX_US, 3)?,
            ended: 0,
            ended_tasks: None,
            alerted: BTreeSet::new(),
            events: BTreeMap::new(),
        };
        Ok(Self { free_slots: Semaphore::new(in_flight), inner: Mutex::new(inner) })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, DemoProgressInner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a notification. Notifications may arrive more than once: only the first end of a task counts.
    pub(super) fn record_notification(&self, body: &str) {
        let Ok(StatusNotification { task_id: Some(id), status, .. }) = serde_json::from_str(body)
        else {
            return;
        };
        match status {
            NotificationStatus::Received => {}
            NotificationStatus::Refused
            | NotificationStatus::Processed
            | NotificationStatus::Undone
            | NotificationStatus::Error => {
                let mut inner = self.lock();
                let Some(since) = inner.running.remove(&id) else { return };
                let micros = u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX);
                inner.latencies.saturating_record(micros);
                inner.ended += 1;
                if let Some(ended) = &mut inner.ended_tasks {
                    ended.push((id, Instant::now()));
                }
                self.free_slots.add_permits(1);
            }
        }
    }

    /// Records an event of the bus.
    pub(super) fn record_event(&self, body: &str) {
        let event: Value = serde_json::from_str(body).unwrap_or_default();
        let text = |path| event.pointer(path).and_then(Value::as_str);
        let name = text("/detail/metadata/event").unwrap_or_default();
        let event_id = text("/detail/metadata/event_id").unwrap_or_default();
        let mut inner = self.lock();
        inner.events.entry(name.to_owned()).or_default().insert(event_id.to_owned());
        if matches!(name, "task_in_error" | "undo_failed")
            && let Some(id) = text("/detail/data/task_id")
        {
            inner.alerted.insert(id.to_owned());
        }
    }

    /// The latencies since the last call. They count no longer.
    pub(super) fn take_latencies(&self) -> Histogram<u64> {
        let mut inner = self.lock();
        let empty = Histogram::new_from(&inner.latencies);
        std::mem::replace(&mut inner.latencies, empty)
    }

    /// How many tasks have ended.
    pub(super) fn ended(&self) -> usize {
        self.lock().ended
    }

    /// How many events of this name were published.
    pub(super) fn events(&self, name: &str) -> usize {
        self.lock().events.get(name).map_or(0, BTreeSet::len)
    }
}
