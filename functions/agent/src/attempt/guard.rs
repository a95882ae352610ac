//! One instance's view of its agent's circuit breaker: a copy of what all instances share, and what
//! only this one has seen.
//!
//! It costs little. While all is well the shared breaker is read at most once a second, and a
//! successful call writes nothing; while it is open it is not read at all until its time is up. If
//! the state store cannot be read, the last copy counts: the breaker must not be what stops the agent.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use jiff::Timestamp;
use steward_core::{
    breaker::{Asked, Asker, Breaker, Heard, Permit, Settings, Turned},
    limits,
    model::{names::AgentName, time::later},
};
use steward_runtime::{
    breaker::{Stored, StoredSaved, tell},
    metrics,
    ports::{Clock, Ports, chain},
};
use tokio::sync::Mutex;

/// How long the copy counts.
const COPY_COUNTS_FOR: Duration = Duration::from_secs(1);

/// One instance's view of its agent's circuit breaker.
#[derive(Debug)]
pub struct Guard {
    settings: Settings,
    /// Asynchronous, and held over reads and saves: of calls side by side one reads, one probes.
    local: Mutex<Local>,
    names: AtomicU64,
}

#[derive(Debug)]
struct Local {
    copy: Stored,
    read_at: Option<Timestamp>,
    /// Calls in a row that found the service unavailable.
    in_a_row: u32,
}

/// Whether a call may be made.
pub(crate) enum Permitted {
    Yes(Permit),
    No { reason: String, wait: Duration },
}

impl Guard {
    /// The guard of an instance that has seen nothing yet.
    #[must_use]
    pub fn new(agent: AgentName, settings: Settings) -> Self {
        let local = Local { copy: Stored::new(agent), read_at: None, in_a_row: 0 };
        Self { settings, local: Mutex::new(local), names: AtomicU64::default() }
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// A name that nothing else has, in this instance or another.
    pub(crate) fn unique_name(&self, instance: &str) -> String {
        format!("{instance}/{}", self.names.fetch_add(1, Ordering::Relaxed))
    }

    /// Asks whether a call may be made that takes at most `call_within`. A permit is to be handed back to
    /// [`heard`](Self::heard).
    pub(crate) async fn ask<P: Ports>(&self, ports: &P, call_within: Duration) -> Permitted {
        let probe_within = self.settings.probe_within.min(call_within);
        let settings = Settings { probe_within, ..self.settings };
        let mut local = self.local.lock().await;
        let now = ports.clock().now();
        local.refresh(ports, now).await;
        let call = self.unique_name(ports.instance());
        let asker = Asker { call: &call, now, clock_skew: ports.timing().clock_skew };
        for _ in 0..limits::CONFLICTS_MAX {
            let (next, permit) = match local.copy.breaker.ask(asker, &settings) {
                Asked::Call => return Permitted::Yes(Permit::Call),
                Asked::Wait(wait) => return local.no(wait),
                Asked::Probe(next, permit) => (next, permit),
            };
            match local.save(ports, next, now).await {
                Some(true) => {
                    tracing::info!(agent = %local.copy.agent, call, "breaker half open: probing");
                    return Permitted::Yes(permit);
                }
                Some(false) => {}
                None => break,
            }
        }
        // Without the save this would be a call that nobody permitted.
        local.no(COPY_COUNTS_FOR)
    }

    /// Takes in what a call told about the service's health.
    pub(crate) async fn heard<P: Ports>(&self, ports: &P, permit: Permit, heard: Heard) {
        let mut local = self.local.lock().await;
        let now = ports.clock().now();
        local.in_a_row = match heard {
            Heard::Alive => 0,
            Heard::Unavailable { .. } => local.in_a_row.saturating_add(1),
            Heard::Nothing => local.in_a_row,
        };
        for _ in 0..limits::CONFLICTS_MAX {
            let Breaker { untold, .. } = &local.copy.breaker;
            let newest = untold.last().cloned();
            let next =
                local.copy.breaker.after(&permit, &heard, local.in_a_row, now, &self.settings);
            let Some(next) = next else { return };
            let turn = next.untold.last().filter(|turn| Some(*turn) != newest.as_ref()).cloned();
            match local.save(ports, next, now).await {
                Some(false) => {}
                None => return,
                Some(true) => {
                    local.in_a_row = 0;
                    if let Some(turn) = turn {
                        local.log(turn.to, &turn.reason);
                        let copy = local.copy.clone();
                        local.copy = tell(ports, copy, Timestamp::MAX).await.1;
                    }
                    return;
                }
            }
        }
    }
}

impl Local {
    /// Reads the breaker, if the copy no longer counts.
    async fn refresh<P: Ports>(&mut self, ports: &P, now: Timestamp) {
        let counts = |read_at| (read_at..later(read_at, COPY_COUNTS_FOR)).contains(&now);
        if self.read_at.is_some_and(counts) || self.copy.breaker.is_surely_open(now) {
            return;
        }
        // One that fails is not tried again at once either.
        self.read_at = Some(now);
        match Stored::read(ports, &self.copy.agent).await {
            Ok(copy) => self.copy = copy,
            Err(error) => {
                tracing::warn!(error = chain(&error), "breaker not read; the last copy counts");
            }
        }
    }

    /// Whether it was saved, or another was quicker; nothing if the store failed.
    async fn save<P: Ports>(&mut self, ports: &P, next: Breaker, now: Timestamp) -> Option<bool> {
        let (copy, saved) = match self.copy.save(ports, next).await {
            Ok(StoredSaved::Saved(copy)) => (copy, true),
            Ok(StoredSaved::Conflict(copy)) => (copy, false),
            Err(error) => {
                tracing::warn!(error = chain(&error), "breaker not saved");
                return None;
            }
        };
        self.copy = copy;
        self.read_at = Some(now);
        Some(saved)
    }

    /// What was counted before the breaker opened says nothing about what will be.
    fn no(&mut self, wait: Duration) -> Permitted {
        self.in_a_row = 0;
        let met = self.copy.breaker.reason().unwrap_or("the breaker cannot be read");
        Permitted::No { reason: format!("circuit breaker open: {met}"), wait }
    }

    fn log(&self, to: Turned, reason: &str) {
        metrics::breaker_turned(to);
        let agent = &self.copy.agent;
        match to {
            Turned::Opened => tracing::warn!(%agent, reason, "breaker opened"),
            Turned::Closed => tracing::info!(%agent, reason, "breaker closed"),
        }
    }
}
