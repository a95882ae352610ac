//! What a forecast says.

use std::{collections::BTreeMap, time::Duration};

use serde::Serialize;

use super::{
    demand::Demand,
    meter::gb_seconds,
    plan::{Plan, StepKey},
    prices::{Dollars, MEMORY_GB, STEP_FUNCTIONS_TRANSITIONS, Usage},
    run::{Ran, Tally},
    world::Role,
};

/// How many reasons are named.
const REASONS: usize = 5;

/// The distribution of what became of the runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The workflow.
    pub workflow: String,
    /// Its version.
    pub version: u32,
    /// How many tasks ran.
    pub runs: u32,
    /// What chance began with.
    pub seed: u64,
    /// How they ended: the state, how many, and how long that took.
    pub outcomes: Vec<Outcome>,
    /// Why those that were not Processed were not: the most frequent reasons.
    pub reasons: Vec<Reason>,
    /// What became of each step, over all runs.
    pub steps: Vec<Step>,
    /// Alerts that tasks sent to the operator.
    pub alerts: u64,
    /// Tasks that need an operator: they ended in Error.
    pub need_operator: u64,
    /// What a task uses of AWS on average.
    pub usage: Usage,
    /// What a million tasks cost.
    pub dollars_per_million: Dollars,
    /// Where its work falls.
    #[serde(skip)]
    pub demand: Demand,
    /// State transitions of a task on average, as Step Functions would count them.
    pub transitions: f64,
    /// What Step Functions Standard would charge for those of a million tasks.
    pub step_functions_dollars_per_million: f64,
    /// What the numbers take for granted.
    pub assumes: Vec<String>,
}

/// One way in which tasks ended.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    /// The state.
    pub state: String,
    /// How many tasks.
    pub tasks: u64,
    /// Their share of all, from 0 to 1.
    pub share: f64,
    /// Half of them took no longer, from submitted to ended, in milliseconds.
    pub p50_ms: u64,
    /// Nine in ten took no longer.
    pub p90_ms: u64,
    /// Ninety-nine in a hundred took no longer.
    pub p99_ms: u64,
    /// The longest.
    pub max_ms: u64,
}

/// Why tasks were not Processed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reason {
    /// As the task says it.
    pub reason: String,
    /// How many tasks say it.
    pub tasks: u64,
}

/// What became of a step over all runs; items count each.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Step {
    /// The step; of another workflow with that workflow's name.
    pub step: String,
    /// How often it was begun.
    pub started: u64,
    /// Attempts that the scheduler sent.
    pub attempts: u64,
    /// Calls that were made, those to undo it too.
    pub calls: u64,
    /// Calls of the same again: by the agent within an attempt, or by another attempt.
    pub retries: u64,
    /// How often it failed for good.
    pub failed: u64,
    /// How often it was skipped.
    pub skipped: u64,
    /// How often it was undone.
    pub undone: u64,
    /// Attempts at undoing it.
    pub undo_attempts: u64,
    /// How often undoing it failed for good.
    pub undo_failed: u64,
}

impl Report {
    /// `ran` in the order of the runs: invocations of agents that follow one another share a batch.
    pub(super) fn of(plan: &Plan, ran: &[Ran]) -> Self {
        let settings = &plan.settings;
        let runs = f64::from(settings.runs);
        let mut sum = Usage::default();
        ran.iter().for_each(|ran| sum.add(&ran.usage));
        sum.gb_seconds += agents_gb_seconds(ran, settings.batch);
        let usage = sum.divided(runs);
        let transitions = ran.iter().map(|ran| ran.transitions).sum::<u64>() as f64 / runs;
        let outcomes = outcomes(ran);
        let error = outcomes.iter().filter(|outcome| outcome.state == "Error");
        Self {
            workflow: settings.workflow.name.to_string(),
            version: settings.workflow.version,
            runs: settings.runs,
            seed: settings.seed,
            need_operator: error.map(|outcome| outcome.tasks).sum(),
            outcomes,
            reasons: reasons(ran),
            steps: steps(plan, ran),
            alerts: ran.iter().map(|ran| ran.alerts).sum(),
            usage,
            dollars_per_million: usage.per_million(),
            demand: Demand::of(ran, settings.batch),
            transitions,
            step_functions_dollars_per_million: transitions * STEP_FUNCTIONS_TRANSITIONS,
            assumes: assumes(plan),
        }
    }
}

/// The agents' invocations: one carries out its batch side by side, so it takes as long as the slowest
/// of them.
fn agents_gb_seconds(ran: &[Ran], batch: u32) -> f64 {
    let mut queues: BTreeMap<&Role, Vec<u64>> = BTreeMap::new();
    for (role, millis) in ran.iter().flat_map(|ran| &ran.millis) {
        if matches!(role, Role::Agent(_)) {
            queues.entry(role).or_default().push(*millis);
        }
    }
    let batch = usize::try_from(batch).unwrap_or(1).max(1);
    let batches = queues.values().flat_map(|times| times.chunks(batch));
    batches
        .map(|times| {
            // A last batch that is not full counts for what it holds.
            let full = times.len() as f64 / batch as f64;
            gb_seconds(times.iter().copied().max().unwrap_or(0)) * full
        })
        .sum()
}

fn outcomes(ran: &[Ran]) -> Vec<Outcome> {
    let mut times: BTreeMap<_, Vec<u64>> = BTreeMap::new();
    for ran in ran {
        times.entry(ran.ended).or_default().push(ran.took.as_millis() as u64);
    }
    let outcomes = times.into_iter().map(|(state, mut times)| {
        times.sort_unstable();
        let at = |share: f64| percentile(&times, share);
        Outcome {
            state: state.to_string(),
            tasks: times.len() as u64,
            share: times.len() as f64 / ran.len() as f64,
            p50_ms: at(0.5),
            p90_ms: at(0.9),
            p99_ms: at(0.99),
            max_ms: at(1.0),
        }
    });
    outcomes.collect()
}

/// By the nearest rank; `sorted` is.
fn percentile(sorted: &[u64], share: f64) -> u64 {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied().unwrap_or(0)
}

fn reasons(ran: &[Ran]) -> Vec<Reason> {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for reason in ran.iter().filter_map(|ran| ran.reason.as_deref()) {
        *counts.entry(reason).or_default() += 1;
    }
    let reasons = counts.into_iter();
    let mut reasons: Vec<_> =
        reasons.map(|(reason, tasks)| Reason { reason: reason.to_owned(), tasks }).collect();
    reasons.sort_by_key(|reason| std::cmp::Reverse(reason.tasks));
    reasons.truncate(REASONS);
    reasons
}

fn steps(plan: &Plan, ran: &[Ran]) -> Vec<Step> {
    let mut tallies: BTreeMap<&StepKey, Tally> = BTreeMap::new();
    for (key, tally) in ran.iter().flat_map(|ran| &ran.steps) {
        tallies.entry(key).or_default().add(tally);
    }
    let step = |key: &StepKey| {
        let tally = tallies.get(key).copied().unwrap_or_default();
        Step {
            step: plan.label(key),
            started: tally.started,
            attempts: tally.attempts,
            calls: tally.calls,
            retries: tally.retries,
            failed: tally.failed,
            skipped: tally.skipped,
            undone: tally.undone,
            undo_attempts: tally.undo_attempts,
            undo_failed: tally.undo_failed,
        }
    };
    plan.all_steps().map(|(key, _)| step(&key)).collect()
}

impl Tally {
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

fn assumes(plan: &Plan) -> Vec<String> {
    use super::{
        ports::{DYNAMODB_TAKES, EVENTBRIDGE_TAKES, SQS_TAKES},
        prices::{AS_OF, REGION},
        world::DELIVERY_TAKES,
    };
    let settings = &plan.settings;
    let ms = |time: Duration| time.as_millis();
    let mut assumes = vec![
        format!("list prices of {REGION}, {AS_OF}, without a free tier"),
        format!("{} messages share a request and an invocation (--batch)", settings.batch),
        format!(
            "functions of {} MB on arm64 that wait {} ms for DynamoDB, {} ms for SQS, {} ms for EventBridge; {} ms in a queue",
            MEMORY_GB * 1_024.0,
            ms(DYNAMODB_TAKES),
            ms(SQS_TAKES),
            ms(EVENTBRIDGE_TAKES),
            ms(DELIVERY_TAKES),
        ),
        "not in the price: storage, logs, cold starts, the supervisor's rounds, idle polling"
            .to_owned(),
    ];
    let made = matches!(plan.input, super::sample::Sample::Made(_));
    assumes.extend(made.then(|| "an input that was made up (--input)".to_owned()));
    let outside: Vec<_> = plan
        .all_steps()
        .filter_map(|(key, step)| {
            let child = step.workflow.as_ref()?;
            plan.workflow(&child.name).is_none().then(|| plan.label(&key))
        })
        .collect();
    if !outside.is_empty() {
        let outside = outside.join(", ");
        assumes
            .push(format!("the workflow of {outside} taken as a call, without its price (--with)"));
    }
    assumes
}
