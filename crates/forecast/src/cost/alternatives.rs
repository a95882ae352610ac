//! The price of the same tasks on alternative services.
//!
//! The price contains only what the service itself charges. The functions that would make the calls cost extra, whereas
//! Steward's price includes its agents. Costs that cannot be known are omitted, in favour of the alternative.
//!
//! | service | counted |
//! | --- | --- |
//! | Step Functions Standard | a state transition for each attempt at a step or an undo, each wait, choice (`when`) and map (`for_each`); none for start and end |
//! | Step Functions Standard with a distributed map | as above, but each item is one state transition and an Express execution of 64 MB for 100 ms: AWS [charges a transition][transitions] for each child execution that a distributed map starts |
//! | Step Functions Express | an execution for each task with 64 MB, for the duration of the task here |
//! | Lambda durable functions | an operation for the start of each task, each attempt, each wait and each callback; the bytes of the documents |
//!
//! [transitions]: https://docs.aws.amazon.com/step-functions/latest/dg/concepts-transitions.html

use std::time::Duration;

use indexmap::IndexMap;
use serde::Serialize;
use steward_core::{
    definition::{
        step::{StepDefinition, StepWork},
        workflow::Workflow,
    },
    model::{step::StepState, task::Task},
};

use super::prices::Prices;

/// The longest duration of an Express workflow.
const EXPRESS_MAX: Duration = Duration::from_secs(300);

/// The billed memory of an Express execution in GB. Express bills chunks of 64 MB: 50 MB, the definition and the data
/// are one chunk.
const EXPRESS_GB: f64 = 0.0625;

/// Express rounds the duration of an execution up to a multiple of this.
const EXPRESS_ROUNDS_TO: Duration = Duration::from_millis(100);

/// The bytes of a billed GB.
const GB: f64 = 1024.0 * 1024.0 * 1024.0;

/// What alternative services would count for tasks.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct AlternativeCounts {
    /// State transitions.
    pub(super) transitions: u64,
    /// Those of them that belong to items of a `for_each`.
    pub(super) item_transitions: u64,
    /// Items of a `for_each`.
    pub(super) items: u64,
    /// Durable operations.
    pub(super) operations: u64,
    /// Executions: one for each task.
    pub(super) executions: u64,
    /// The seconds that Express would bill.
    pub(super) billed_seconds: f64,
    /// The bytes of the documents.
    pub(super) written_bytes: u64,
    /// Whether a task took longer than Express allows.
    pub(super) too_long: bool,
    /// Whether a step has a callback.
    pub(super) called_back: bool,
}

impl AlternativeCounts {
    /// Adds a task that has ended.
    pub(super) fn add_task(&mut self, task: &Task, workflow: &Workflow, took: Duration) {
        self.executions += 1;
        self.operations += 1;
        let rounded = took.as_millis().div_ceil(EXPRESS_ROUNDS_TO.as_millis()) as f64;
        self.billed_seconds += rounded * EXPRESS_ROUNDS_TO.as_secs_f64();
        self.too_long |= took > EXPRESS_MAX;
        for (name, record) in &task.steps {
            let Some(step) = workflow.steps.get(name) else { continue };
            self.transitions +=
                u64::from(step.when.is_some()) + u64::from(step.items_at_once().is_some());
            if matches!(record.forward.state, StepState::Skipped { .. }) {
                continue;
            }
            let before = self.transitions;
            for (_, part) in record.parts(name) {
                let undo = part.undo.as_ref().map_or(0, |undo| undo.state.attempt_count());
                self.add_part(step, part.forward.state.attempt_count(), undo);
            }
            if let Some(items) = record.items.as_ref().filter(|_| step.for_each.is_some()) {
                self.items += u64::from(items.started());
                self.item_transitions += self.transitions - before;
            }
        }
    }

    fn add_part(&mut self, step: &StepDefinition, attempts: u32, undo_attempts: u32) {
        let attempts = match step.work() {
            Some(StepWork::Wait(_) | StepWork::Event(_)) => 1,
            Some(StepWork::Call { .. } | StepWork::Child(_)) | None => u64::from(attempts),
        };
        let both = attempts + u64::from(undo_attempts);
        self.transitions += both;
        self.operations += both;
        if step.callback.is_some() {
            self.operations += attempts;
            self.called_back = true;
        }
    }

    /// Adds the counts of other tasks.
    pub(super) fn add(&mut self, other: &Self) {
        self.transitions += other.transitions;
        self.item_transitions += other.item_transitions;
        self.items += other.items;
        self.operations += other.operations;
        self.executions += other.executions;
        self.billed_seconds += other.billed_seconds;
        self.written_bytes += other.written_bytes;
        self.too_long |= other.too_long;
        self.called_back |= other.called_back;
    }
}

/// The price of a million of these tasks on an alternative service.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AlternativePrice {
    /// The service.
    pub service: &'static str,
    /// The average counts of a task.
    pub counts: IndexMap<&'static str, f64>,
    /// The price of a million tasks in dollars; absent if the service cannot run them.
    pub dollars_per_million: Option<f64>,
    /// Why the service cannot run them.
    pub cannot: Option<&'static str>,
}

/// The prices on alternative services, from the counts of `runs` tasks.
pub(super) fn alternative_prices(
    prices: &Prices,
    counts: &AlternativeCounts,
    runs: f64,
) -> Vec<AlternativePrice> {
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
        (true, _) => Some("no callbacks"),
        (false, true) => Some("5-minute limit"),
        (false, false) => None,
    };
    let mut others = vec![
        AlternativePrice {
            service: "Step Functions Standard",
            counts: IndexMap::from([("state transitions", transitions)]),
            dollars_per_million: Some(standard),
            cannot: None,
        },
        AlternativePrice {
            service: "Step Functions Express",
            counts: IndexMap::from([
                ("executions", executions),
                ("billed seconds", counts.billed_seconds / runs),
            ]),
            dollars_per_million: cannot.is_none().then_some(express),
            cannot,
        },
        AlternativePrice {
            service: "Lambda durable functions",
            counts: IndexMap::from([
                ("operations", operations),
                ("bytes written", each(counts.written_bytes)),
            ]),
            dollars_per_million: Some(durable),
            cannot: None,
        },
    ];
    others.extend(distributed_map_price(prices, counts, runs));
    others
}

/// The price with a distributed map for each `for_each`; `None` if the workflow has none.
fn distributed_map_price(
    prices: &Prices,
    counts: &AlternativeCounts,
    runs: f64,
) -> Option<AlternativePrice> {
    let items = counts.items as f64 / runs;
    let transitions = (counts.transitions - counts.item_transitions) as f64 / runs + items;
    let seconds = items * EXPRESS_ROUNDS_TO.as_secs_f64();
    let gb_hours = seconds * EXPRESS_GB / 3_600.0;
    let dollars = prices.step_functions_transitions.per_million(transitions)
        + prices.step_functions_express_requests.per_million(items)
        + prices.step_functions_express_gb_hours.per_million(gb_hours);
    (counts.items > 0).then(|| AlternativePrice {
        service: "Step Functions distributed map",
        counts: IndexMap::from([
            ("state transitions", transitions),
            ("executions", items),
            ("billed seconds", seconds),
        ]),
        dollars_per_million: Some(dollars),
        cannot: None,
    })
}
