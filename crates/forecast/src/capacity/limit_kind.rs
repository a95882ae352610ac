//! The kinds of limits, and their names.

use std::fmt;

use crate::cost::{FunctionRole, Resource};

/// The kind of a limit.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum LimitKind {
    /// The configured concurrency of a function.
    Concurrency(FunctionRole),
    /// The current number of pollers of a queue.
    Pollers(FunctionRole),
    /// Messages of a queue that are received, but not deleted.
    InFlight(FunctionRole),
    /// The account's concurrent executions.
    Account,
    /// The account's invocations per second.
    Invocations,
    /// The warm throughput of a table or index.
    Warm(Resource),
    /// The quota of a table or index.
    Quota(Resource),
    /// The busiest partition of the due index.
    Shards,
    /// Requests to the event bus.
    Bus,
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TasksWrites => "tasks, write units",
            Self::TasksReads => "tasks, read units",
            Self::IndexWrites => "index due, write units",
            Self::DocumentsWrites => "documents, write units",
            Self::DocumentsReads => "documents, read units",
            Self::Events => "events",
        })
    }
}

impl fmt::Display for LimitKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Concurrency(role) => write!(f, "{role}: concurrent invocations"),
            Self::Pollers(role) => write!(f, "{role}: pollers of its queue"),
            Self::InFlight(role) => write!(f, "{role}: messages in flight"),
            Self::Account => f.write_str("account: concurrent invocations"),
            Self::Invocations => f.write_str("account: invocations per second"),
            Self::Warm(resource) => write!(f, "{resource}: warm throughput"),
            Self::Quota(resource) => write!(f, "{resource}: quota"),
            Self::Shards => f.write_str("index due, write units: busiest partition"),
            Self::Bus => f.write_str("event bus: requests per second"),
        }
    }
}
