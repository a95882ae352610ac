//! The report of a forecast.

use std::{collections::BTreeMap, time::Duration};

use serde::Serialize;

use super::{
    alternatives::{AlternativeCounts, AlternativePrice, alternative_prices},
    demand::Demand,
    ledger::{CostAccounts, CostLedger, add_agents_time},
    plan::{ForecastPlan, StepKey},
    prices::{Dollars, MEMORY_GB, TaskUsage},
    run::{ForecastRun, StepCounts},
    settings::ForecastError,
};

/// The largest number of reasons in a report.
const REASONS: usize = 5;

/// The outcomes and the cost of all runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ForecastReport {
    /// The workflow.
    pub workflow: String,
    /// Its version.
    pub version: u32,
    /// The number of tasks.
    pub runs: u32,
    /// The seed of all random choices.
    pub seed: u64,
    /// The number and the duration of tasks by final state.
    pub outcomes: Vec<OutcomeSummary>,
    /// The most frequent reasons why tasks were not Processed.
    pub reasons: Vec<OutcomeReason>,
    /// The counts of each step, over all runs.
    pub steps: Vec<StepSummary>,
    /// The number of published alerts.
    pub alerts: u64,
    /// The number of tasks that ended in Error and need an operator.
    pub need_operator: u64,
    /// The region of the prices.
    pub region: String,
    /// The year and month of the prices.
    pub prices_as_of: String,
    /// The average usage of a task.
    pub usage: TaskUsage,
    /// The price of a million tasks.
    pub dollars_per_million: Dollars,
    /// The usage and price by function and by step.
    pub ledger: CostLedger,
    /// The price of a million of these tasks on alternative services.
    pub elsewhere: Vec<AlternativePrice>,
    /// The average demand of a task.
    #[serde(skip)]
    pub demand: Demand,
    /// The assumptions behind the numbers.
    pub assumes: Vec<String>,
}

/// The tasks with one final state.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OutcomeSummary {
    /// The state.
    pub state: String,
    /// The number of tasks.
    pub tasks: u64,
    /// Their share of all tasks, from 0 to 1.
    pub share: f64,
    /// The median duration from submission to end, in milliseconds.
    pub p50_ms: u64,
    /// The 90th percentile of the duration, in milliseconds.
    pub p90_ms: u64,
    /// The 99th percentile of the duration, in milliseconds.
    pub p99_ms: u64,
    /// The longest duration, in milliseconds.
    pub max_ms: u64,
}

/// A reason why tasks were not Processed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OutcomeReason {
    /// The text of the reason.
    pub reason: String,
    /// The number of tasks with this reason.
    pub tasks: u64,
}

/// The counts of a step over all runs. Each item counts separately.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StepSummary {
    /// The step; a step of another workflow has the name of the workflow as a prefix.
    pub step: String,
    /// How often the step started.
    pub started: u64,
    /// The attempts that the scheduler sent.
    pub attempts: u64,
    /// The calls, including calls of the undo.
    pub calls: u64,
    /// The repeated calls: by the agent within an attempt, or by another attempt.
    pub retries: u64,
    /// How often the step failed permanently.
    pub failed: u64,
    /// How often the step was skipped.
    pub skipped: u64,
    /// How often the step was undone.
    pub undone: u64,
    /// The attempts at its undo.
    pub undo_attempts: u64,
    /// How often its undo failed permanently.
    pub undo_failed: u64,
}

impl ForecastReport {
    /// Checks that a task was Processed: the price and the demand of a task that was not are those of its failure.
    ///
    /// # Errors
    /// No task was Processed. The error has the most frequent reason.
    pub fn require_processed(&self) -> Result<(), ForecastError> {
        if self.outcomes.iter().any(|outcome| outcome.state == "Processed" && outcome.tasks > 0) {
            return Ok(());
        }
        let reason = self.reasons.first().map_or("no task has ended", |first| &first.reason);
        Err(ForecastError::NoneProcessed {
            workflow: self.workflow.clone(),
            reason: reason.to_owned(),
        })
    }

    /// The report of all runs. `finished_runs` is in the order of the runs, since consecutive invocations of agents share a batch.
    pub(super) fn of(plan: &ForecastPlan, finished_runs: &[ForecastRun]) -> Self {
        let settings = &plan.settings;
        let runs = f64::from(settings.runs);
        let accounts = accounts(finished_runs, settings.batch);
        let mut sum = TaskUsage::default();
        accounts.values().for_each(|usage| sum += *usage);
        let usage = sum.divided(runs);
        let mut counts = AlternativeCounts::default();
        finished_runs.iter().for_each(|run| counts.add(&run.alternatives));
        let outcomes = outcomes(finished_runs);
        let demand_counts: Vec<_> = finished_runs.iter().map(|run| &run.demand_counts).collect();
        let error = outcomes.iter().filter(|outcome| outcome.state == "Error");
        Self {
            workflow: settings.workflow.name.to_string(),
            version: settings.workflow.version,
            runs: settings.runs,
            seed: settings.seed,
            need_operator: error.map(|outcome| outcome.tasks).sum(),
            outcomes,
            reasons: reasons(finished_runs),
            steps: steps(plan, finished_runs),
            alerts: finished_runs.iter().map(|run| run.alerts).sum(),
            region: plan.prices.region.clone(),
            prices_as_of: plan.prices.as_of.clone(),
            usage,
            dollars_per_million: plan.prices.of(&usage),
            ledger: CostLedger::of(plan, &accounts),
            elsewhere: alternative_prices(&plan.prices, &counts, runs),
            demand: Demand::of(&demand_counts, settings.batch),
            assumes: assumes(plan),
        }
    }
}

/// The usage of all runs, including the shared time of the agents.
fn accounts(finished_runs: &[ForecastRun], batch: u32) -> CostAccounts {
    let mut accounts = CostAccounts::new();
    for (account, usage) in finished_runs.iter().flat_map(|run| &run.accounts) {
        *accounts.entry(account.clone()).or_default() += *usage;
    }
    let took: Vec<_> =
        finished_runs.iter().flat_map(|run| run.agents_took.iter().cloned()).collect();
    add_agents_time(&mut accounts, &took, batch);
    accounts
}

fn outcomes(finished_runs: &[ForecastRun]) -> Vec<OutcomeSummary> {
    let mut times: BTreeMap<_, Vec<u64>> = BTreeMap::new();
    for run in finished_runs {
        times.entry(run.ended).or_default().push(run.took.as_millis() as u64);
    }
    let outcomes = times.into_iter().map(|(state, mut times)| {
        times.sort_unstable();
        let at = |share: f64| percentile(&times, share);
        OutcomeSummary {
            state: state.to_string(),
            tasks: times.len() as u64,
            share: times.len() as f64 / finished_runs.len() as f64,
            p50_ms: at(0.5),
            p90_ms: at(0.9),
            p99_ms: at(0.99),
            max_ms: at(1.0),
        }
    });
    outcomes.collect()
}

/// The percentile of a sorted list by the nearest rank.
fn percentile(sorted: &[u64], share: f64) -> u64 {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied().unwrap_or(0)
}

fn reasons(finished_runs: &[ForecastRun]) -> Vec<OutcomeReason> {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for reason in finished_runs.iter().filter_map(|run| run.reason.as_deref()) {
        *counts.entry(reason).or_default() += 1;
    }
    let reasons = counts.into_iter();
    let mut reasons: Vec<_> =
        reasons.map(|(reason, tasks)| OutcomeReason { reason: reason.to_owned(), tasks }).collect();
    reasons.sort_by_key(|reason| std::cmp::Reverse(reason.tasks));
    reasons.truncate(REASONS);
    reasons
}

fn steps(plan: &ForecastPlan, finished_runs: &[ForecastRun]) -> Vec<StepSummary> {
    let mut counts_by_step: BTreeMap<&StepKey, StepCounts> = BTreeMap::new();
    for (key, counts) in finished_runs.iter().flat_map(|run| &run.steps) {
        counts_by_step.entry(key).or_default().add(counts);
    }
    let step = |key: &StepKey| {
        let counts = counts_by_step.get(key).copied().unwrap_or_default();
        StepSummary {
            step: plan.label(key),
            started: counts.started,
            attempts: counts.attempts,
            calls: counts.calls,
            retries: counts.retries,
            failed: counts.failed,
            skipped: counts.skipped,
            undone: counts.undone,
            undo_attempts: counts.undo_attempts,
            undo_failed: counts.undo_failed,
        }
    };
    plan.all_steps().map(|(key, _)| step(&key)).collect()
}

impl StepCounts {
    fn add(&mut self, other: &Self) {
        self.started += other.started;
        self.attempts += other.attempts;
        self.calls += other.calls;
        self.retries += other.retries;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.undone += other.undone;
        self.undo_attempts += other.undo_attempts;
        self.undo_failed += other.undo_failed;
    }
}

fn assumes(plan: &ForecastPlan) -> Vec<String> {
    use super::{
        ports::{DYNAMODB_LATENCY, EVENTBRIDGE_LATENCY, SQS_LATENCY},
        task_simulation::DELIVERY_LATENCY,
    };
    let settings = &plan.settings;
    let ms = |time: Duration| time.as_millis();
    let mut assumes = vec![
        format!("list prices of {}, {}, without a free tier", plan.prices.region, plan.prices.as_of),
        format!("{} messages share a request and an invocation (--batch)", settings.batch),
        format!(
            "functions with {} MB on x86_64; {} ms for a DynamoDB request, {} ms for SQS, {} ms for EventBridge; {} ms in a queue",
            MEMORY_GB * 1_024.0,
            ms(DYNAMODB_LATENCY),
            ms(SQS_LATENCY),
            ms(EVENTBRIDGE_LATENCY),
            ms(DELIVERY_LATENCY),
        ),
        "not in the price: storage, logs, data transfer, the client's requests and notifications, cold starts, your services; nor an idle month: the supervisor, polling, alarms (--per-month)"
            .to_owned(),
        "alternatives: only what the service itself charges; Steward's price includes the functions that make the calls, the others do not"
            .to_owned(),
        "Express keeps no state: an interrupted execution restarts or is lost"
            .to_owned(),
    ];
    let generated = matches!(plan.input, super::sample::SampleValue::Generated(_));
    assumes.extend(generated.then(|| "generated inputs and outputs, which are small: they fit into the item of their task; larger ones cost more (--input, --output)".to_owned()));
    let outside: Vec<_> = plan
        .all_steps()
        .filter_map(|(key, step)| {
            let child = step.workflow.as_ref()?;
            plan.workflow(&child.name).is_none().then(|| plan.label(&key))
        })
        .collect();
    if !outside.is_empty() {
        let outside = outside.join(", ");
        assumes.push(format!(
            "the workflow of {outside} counts as a call, without its own price (--with)"
        ));
    }
    assumes
}
