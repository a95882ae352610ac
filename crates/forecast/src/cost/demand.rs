//! Where a task's work falls: which queues get its messages and in which order, how long a function has
//! them, and whom it asks for how much. A [report](super::Report) has the sums, which are paid; this is
//! what [`scale`](crate::capacity) multiplies by a rate.

use std::{collections::BTreeMap, time::Duration};

use super::{run::Ran, world::Role};

tokio::task_local! {
    /// The message that is being handled.
    static HANDLED: Handled;
}

#[derive(Debug, Clone)]
struct Handled {
    role: Role,
    hop: usize,
}

/// Who is asked for something that has a limit by the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Asked {
    /// Write units of the table of tasks.
    TasksWrites,
    /// Read units of the table of tasks.
    TasksReads,
    /// Write units of its index of due tasks.
    IndexWrites,
    /// Write units of the table of documents.
    DocumentsWrites,
    /// Read units of the table of documents.
    DocumentsReads,
    /// Events on the bus.
    Events,
}

/// What a task asks of a deployment, on average.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Demand {
    /// Its messages, by how many came before: the submission, what that brought about, what those did.
    pub hops: Vec<BTreeMap<Role, Hop>>,
    /// What each function does for one message.
    pub roles: BTreeMap<Role, Handling>,
}

/// Messages of a task to one queue.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Hop {
    /// How many.
    pub messages: f64,
    /// For how long each is held back on purpose, in milliseconds: a wait, an answer that comes later.
    pub delay_ms: f64,
}

/// What a function does for one message.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Handling {
    /// How long an invocation with a full batch waits for others, in milliseconds: as long as the
    /// slowest of its messages.
    pub invocation_ms: f64,
    /// What it asks of whom.
    pub asks: BTreeMap<Asked, f64>,
}

/// Counts of one run.
#[derive(Debug, Clone, Default)]
pub(super) struct Visits {
    hops: Vec<BTreeMap<Role, Hop>>,
    asks: BTreeMap<(Role, Asked), f64>,
}

impl Visits {
    /// A message is sent, by whoever is being handled or from outside; answers which hop it is.
    pub(super) fn sent(&mut self, role: &Role, delay: Duration) -> usize {
        let hop = HANDLED.try_with(|handled| handled.hop + 1).unwrap_or(0);
        if self.hops.len() <= hop {
            self.hops.resize_with(hop + 1, BTreeMap::new);
        }
        if let Some(hops) = self.hops.get_mut(hop) {
            let hop = hops.entry(role.clone()).or_default();
            hop.messages += 1.0;
            hop.delay_ms += delay.as_secs_f64() * 1_000.0;
        }
        hop
    }

    /// Whoever is being handled asks for something.
    pub(super) fn asked(&mut self, of: Asked, units: f64) {
        let role = HANDLED.try_with(|handled| handled.role.clone()).unwrap_or(Role::Scheduler);
        *self.asks.entry((role, of)).or_default() += units;
    }

    /// The hop of the newest messages: what the supervisor finds comes after them.
    pub(super) fn newest(&self) -> usize {
        self.hops.len().saturating_sub(1)
    }
}

/// Carries out `work` as the handling of a message.
pub(super) async fn handling<F: Future>(role: Role, hop: usize, work: F) -> F::Output {
    HANDLED.scope(Handled { role, hop }, work).await
}

impl Demand {
    /// The mean of runs, of which `batch` messages share an invocation.
    pub(super) fn of(ran: &[Ran], batch: u32) -> Self {
        let runs = ran.len().max(1) as f64;
        let mut demand = Self::default();
        for visits in ran.iter().map(|ran| &ran.visits) {
            let deepest = visits.hops.len().max(demand.hops.len());
            demand.hops.resize_with(deepest, BTreeMap::new);
            for (all, one) in demand.hops.iter_mut().zip(&visits.hops) {
                for (role, hop) in one {
                    let all = all.entry(role.clone()).or_default();
                    all.messages += hop.messages;
                    all.delay_ms += hop.delay_ms;
                }
            }
            for ((role, asked), units) in &visits.asks {
                let asks = &mut demand.roles.entry(role.clone()).or_default().asks;
                *asks.entry(*asked).or_default() += units;
            }
        }
        let mut messages: BTreeMap<Role, f64> = BTreeMap::new();
        for (role, hop) in demand.hops.iter_mut().flatten() {
            *messages.entry(role.clone()).or_default() += hop.messages;
            hop.delay_ms /= hop.messages;
            hop.messages /= runs;
        }
        for (role, count) in messages {
            let handling = demand.roles.entry(role.clone()).or_default();
            handling.asks.values_mut().for_each(|units| *units /= count);
            handling.invocation_ms = slowest_of(batch, &role, ran);
        }
        demand
    }

    /// Messages of a task to a queue, all hops together.
    #[must_use]
    pub fn messages(&self, role: &Role) -> f64 {
        self.hops.iter().filter_map(|hops| hops.get(role)).map(|hop| hop.messages).sum()
    }
}

/// How long the slowest of so many messages takes, on average, in milliseconds.
fn slowest_of(batch: u32, role: &Role, ran: &[Ran]) -> f64 {
    let all = ran.iter().flat_map(|ran| &ran.millis).filter(|(of, _)| of == role);
    let times: Vec<_> = all.map(|(_, millis)| *millis).collect();
    let batches = times.chunks(usize::try_from(batch).unwrap_or(1).max(1));
    let count = batches.len().max(1) as f64;
    batches.filter_map(|batch| batch.iter().max()).sum::<u64>() as f64 / count
}
