//! The demand of one task: the queues that get its messages, in which order, how long a function handles each, and the
//! capacity that each message uses. The [report](super::Report) contains the sums, which are billed;
//! [`scale`](crate::capacity) multiplies this demand by a rate.

use std::{collections::BTreeMap, time::Duration};

use super::function_role::FunctionRole;

tokio::task_local! {
    /// The message that is being handled.
    static CURRENT_MESSAGE: HandledMessage;
}

#[derive(Debug, Clone)]
struct HandledMessage {
    role: FunctionRole,
    hop: usize,
}

/// A resource with a limit per second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
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

impl Resource {
    /// Whether it is counted in read units.
    #[must_use]
    pub const fn is_read(self) -> bool {
        matches!(self, Self::TasksReads | Self::DocumentsReads)
    }
}

/// The average demand of a task.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Demand {
    /// Its messages by hop: the submission, the messages that the submission caused, the messages that those caused, …
    pub hops: Vec<BTreeMap<FunctionRole, HopMessages>>,
    /// The work of each function for one message.
    pub roles: BTreeMap<FunctionRole, Handling>,
}

/// The messages of a task to one queue in one hop.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct HopMessages {
    /// The number of messages.
    pub messages: f64,
    /// The average intended delay in milliseconds: of a wait, or of a callback.
    pub delay_ms: f64,
}

/// The work of a function for one message.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Handling {
    /// How long an invocation with a full batch takes, in milliseconds: as long as its slowest message.
    pub invocation_ms: f64,
    /// The units of each resource.
    pub units: BTreeMap<Resource, f64>,
}

/// The counts of one run.
#[derive(Debug, Clone, Default)]
pub(super) struct DemandCounts {
    hops: Vec<BTreeMap<FunctionRole, HopMessages>>,
    units: BTreeMap<(FunctionRole, Resource), f64>,
    /// How many milliseconds each invocation took.
    invocations: Vec<(FunctionRole, u64)>,
}

impl DemandCounts {
    /// Counts a message, sent by the current handler or from outside. Returns its hop.
    pub(super) fn sent(&mut self, role: &FunctionRole, delay: Duration) -> usize {
        let hop = CURRENT_MESSAGE.try_with(|handled| handled.hop + 1).unwrap_or(0);
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

    /// Counts units of a resource that the current handler uses.
    pub(super) fn add_units(&mut self, of: Resource, units: f64) {
        let role = CURRENT_MESSAGE
            .try_with(|handled| handled.role.clone())
            .unwrap_or(FunctionRole::Scheduler);
        *self.units.entry((role, of)).or_default() += units;
    }

    /// Counts an invocation.
    pub(super) fn record_invocation(&mut self, role: &FunctionRole, millis: u64) {
        self.invocations.push((role.clone(), millis));
    }

    /// The hop of the newest messages. Messages of the supervisor belong to the next one.
    pub(super) fn last_hop(&self) -> usize {
        self.hops.len().saturating_sub(1)
    }
}

/// Runs `work` as the handler of a message.
pub(super) async fn attribute_to<F: Future>(role: FunctionRole, hop: usize, work: F) -> F::Output {
    CURRENT_MESSAGE.scope(HandledMessage { role, hop }, work).await
}

impl Demand {
    /// The mean over all runs. `batch` messages share an invocation.
    pub(super) fn of(runs: &[&DemandCounts], batch: u32) -> Self {
        let count_of_runs = runs.len().max(1) as f64;
        let mut demand = Self::default();
        for run in runs {
            let deepest = run.hops.len().max(demand.hops.len());
            demand.hops.resize_with(deepest, BTreeMap::new);
            for (all, one) in demand.hops.iter_mut().zip(&run.hops) {
                for (role, hop) in one {
                    let all = all.entry(role.clone()).or_default();
                    all.messages += hop.messages;
                    all.delay_ms += hop.delay_ms;
                }
            }
            for ((role, resource), units) in &run.units {
                let total = &mut demand.roles.entry(role.clone()).or_default().units;
                *total.entry(*resource).or_default() += units;
            }
        }
        let mut messages: BTreeMap<FunctionRole, f64> = BTreeMap::new();
        for (role, hop) in demand.hops.iter_mut().flatten() {
            *messages.entry(role.clone()).or_default() += hop.messages;
            hop.delay_ms /= hop.messages;
            hop.messages /= count_of_runs;
        }
        for (role, count) in messages {
            let handling = demand.roles.entry(role.clone()).or_default();
            handling.units.values_mut().for_each(|units| *units /= count);
            handling.invocation_ms = slowest_of(batch, &role, runs);
        }
        demand
    }

    /// The number of messages of a task to a queue, over all hops.
    #[must_use]
    pub fn messages(&self, role: &FunctionRole) -> f64 {
        self.hops.iter().filter_map(|hops| hops.get(role)).map(|hop| hop.messages).sum()
    }
}

/// The average duration of the slowest message in a batch, in milliseconds.
fn slowest_of(batch: u32, role: &FunctionRole, runs: &[&DemandCounts]) -> f64 {
    let all = runs.iter().flat_map(|run| &run.invocations).filter(|(of, _)| of == role);
    let times: Vec<_> = all.map(|(_, millis)| *millis).collect();
    let batches = times.chunks(usize::try_from(batch).unwrap_or(1).max(1));
    let count = batches.len().max(1) as f64;
    batches.filter_map(|batch| batch.iter().max()).sum::<u64>() as f64 / count
}
