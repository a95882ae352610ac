//! What other services would count and charge for the same tasks.
//!
//! Only what the service itself charges: the functions that would make the calls come on top of it,
//! where Steward's own price has its agents in it. What cannot be known is left out in favour of the
//! other service.
//!
//! | | counted |
//! | --- | --- |
//! | Step Functions Standard | a state transition for each attempt at a step or an undo, for each wait, choice (`when`) and map (`for_each`); none for start and end |
//! | Step Functions Express | an execution for each task, in 64 MB, for as long as the task takes here |
//! | Lambda durable functions | an operation for the start of each task, each attempt, each wait and each callback; the documents as written |

use std::time::Duration;

use indexmap::IndexMap;
use serde::Serialize;
use steward_core::{
    definition::{
        step::{StepDefinition, Work},
        workflow::Workflow,
    },
    model::{step::StepState, task::Task},
};

use super::prices::Prices;

/// How long an Express workflow may run.
const EXPRESS_MAX: Duration = Duration::from_secs(300);

/// Express bills memory in chunks of 64 MB: 50 MB, the definition and the data come to one, in GB.
const EXPRESS_GB: f64 = 0.0625;

/// Express rounds an execution's time up to this.
const EXPRESS_ROUNDS_TO: Duration = Duration::from_millis(100);

/// Bytes in a GB that is written.
const GB: f64 = 1024.0 * 1024.0 * 1024.0;

/// What other services would count of tasks.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Counts {
    /// State transitions.
    pub(super) transitions: u64,
    /// Durable operations.
    pub(super) operations: u64,
    /// Executions: one for each task.
    pub(super) executions: u64,
    /// Seconds that Express would bill for.
    pub(super) billed_seconds: f64,
    /// Bytes of the documents.
    pub(super) written_bytes: u64,
    /// Something took longer than Express allows.
    pub(super) too_long: bool,
    /// Somebody answered later.
    pub(super) called_back: bool,
}

impl Counts {
    /// Adds a task that has ended, or rests.
    pub(super) fn add_task(&mut self, task: &Task, workflow: &Workflow, took: Duration) {
        self.executions += 1;
        self.operations += 1;
        let rounded = took.as_millis().div_ceil(EXPRESS_ROUNDS_TO.as_millis()) as f64;
        self.billed_seconds += rounded * EXPRESS_ROUNDS_TO.as_secs_f64();
        self.too_long |= took > EXPRESS_MAX;
        for (name, record) in &task.steps {
            let Some(step) = workflow.steps.get(name) else { continue };
            self.transitions += u64::from(step.when.is_some()) + u64::from(step.for_each.is_some());
            if matches!(record.run.state, StepState::Skipped { .. }) {
                continue;
            }
            for (_, part) in record.parts(name) {
                let undo = part.undo.as_ref().map_or(0, |undo| undo.state.attempt());
                self.add_part(step, part.run.state.attempt(), undo);
            }
        }
    }

    fn add_part(&mut self, step: &StepDefinition, attempts: u32, undo_attempts: u32) {
        let attempts = match step.work() {
            Some(Work::Wait(_)) => 1,
            Some(Work::Call { .. } | Work::Child(_)) | None => u64::from(attempts),
        };
        let both = attempts + u64::from(undo_attempts);
        self.transitions += both;
        self.operations += both;
        if step.callback.is_some() {
            self.operations += attempts;
            self.called_back = true;
        }
    }

    /// Adds those of other tasks.
    pub(super) fn add(&mut self, other: &Self) {
        self.transitions += other.transitions;
        self.operations += other.operations;
        self.executions += other.executions;
        self.billed_seconds += other.billed_seconds;
        self.written_bytes += other.written_bytes;
        self.too_long |= other.too_long;
        self.called_back |= other.called_back;
    }
}

/// What a million of these tasks would cost elsewhere.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Elsewhere {
    /// The service.
    pub service: &'static str,
    /// What it counts of a task on average.
    pub counts: IndexMap<&'static str, f64>,
    /// What it charges for those of a million tasks; nothing if it cannot run them.
    pub dollars_per_million: Option<f64>,
    /// Why it cannot run them.
    pub cannot: Option<&'static str>,
}

/// What the tasks of so many runs would cost elsewhere.
pub(super) fn elsewhere(prices: &Prices, counts: &Counts, runs: f64) -> Vec<Elsewhere> {
    let each = |count: u64| count as f64 / runs;
    let (transitions, operations) = (each(counts.transitions), each(counts.operations));
    let executions = each(counts.executions);
    let gb_hours = counts.billed_seconds / runs * EXPRESS_GB / 3_600.0;
    let gb_written = each(counts.written_bytes) / GB;
    let standard = prices.step_functions_transitions.per_million(transitions);
    let express = prices.step_functions_express_requests.per_million(executions)
        + prices.step_functions_express_gb_hours.per_million(gb_hours);
    let durable = prices.durable_operations.per_million(operations)
        + prices.durable_gb_written.per_million(gb_written);
    let cannot = match (counts.called_back, counts.too_long) {
        (true, _) => Some("it has no callbacks"),
        (false, true) => Some("it ends after five minutes"),
        (false, false) => None,
    };
    vec![
        Elsewhere {
            service: "Step Functions Standard",
            counts: IndexMap::from([("state transitions", transitions)]),
            dollars_per_million: Some(standard),
            cannot: None,
        },
        Elsewhere {
            service: "Step Functions Express",
            counts: IndexMap::from([
                ("executions", executions),
                ("billed seconds", counts.billed_seconds / runs),
            ]),
            dollars_per_million: cannot.is_none().then_some(express),
            cannot,
        },
        Elsewhere {
            service: "Lambda durable functions",
            counts: IndexMap::from([
                ("operations", operations),
                ("bytes written", each(counts.written_bytes)),
            ]),
            dollars_per_million: Some(durable),
            cannot: None,
        },
    ]
}
