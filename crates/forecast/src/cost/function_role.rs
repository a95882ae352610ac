//! The functions that handle messages.

use std::{fmt, time::Duration};

use steward_aws::queues;
use steward_core::model::names::AgentName;

use super::ledger::BilledFunction;

/// The function that handles a message.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum FunctionRole {
    /// Validates and records submissions.
    Submission,
    /// Decides the next actions of a task.
    Scheduler,
    /// Calls a remote service.
    Agent(AgentName),
}

impl FunctionRole {
    /// The function in the bill.
    pub(super) fn function(&self) -> BilledFunction {
        match self {
            Self::Submission => BilledFunction::Submission,
            Self::Scheduler => BilledFunction::Scheduler,
            Self::Agent(_) => BilledFunction::Agent,
        }
    }

    /// The timeout of the function in `template.yaml`.
    pub(super) fn timeout(&self) -> Duration {
        Duration::from_secs(match self {
            Self::Submission | Self::Scheduler => 30,
            Self::Agent(_) => 120,
        })
    }

    /// How often its queue delivers a message before it becomes a dead letter.
    pub(super) fn receives_max(&self) -> u32 {
        let redelivery = match self {
            Self::Submission => queues::SUBMISSIONS,
            Self::Scheduler => queues::SCHEDULER,
            Self::Agent(_) => queues::AGENT,
        };
        redelivery.receives_max
    }
}

impl fmt::Display for FunctionRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Submission => f.write_str("submission"),
            Self::Scheduler => f.write_str("scheduler"),
            Self::Agent(name) => write!(f, "agent {name}"),
        }
    }
}
