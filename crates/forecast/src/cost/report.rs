//! What a forecast says.

use std::{collections::BTreeMap, time::Duration};

use serde::Serialize;

use super::{
    demand::Demand,
    elsewhere::{Counts, Elsewhere, elsewhere},
    ledger::{Accounts, Ledger, add_agents_time},
    meter::MEMORY_GB,
    plan::{Plan, StepKey},
    prices::{Dollars, Usage},
    run::{Ran, Tally},
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
    /// The region whose prices they are.
    pub region: String,
    /// Of when: year and month.
    pub prices_as_of: String,
    /// What a task uses of AWS on average.
    pub usage: Usage,
    /// What a million tasks cost.
    pub dollars_per_million: Dollars,
    /// On whose account: by function and by step.
    pub ledger: Ledger,
    /// What other services would charge for a million of these tasks.
    pub elsewhere: Vec<Elsewhere>,
    /// Where its work falls.
    #[serde(skip)]
    pub demand: Demand,
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
        let accounts = accounts(ran, settings.batch);
        let mut sum = Usage::default();
        accounts.values().for_each(|usage| sum += *usage);
        let usage = sum.divided(runs);
        let mut counts = Counts::default();
        ran.iter().for_each(|ran| counts.add(&ran.elsewhere));
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
            region: plan.prices.region.clone(),
            prices_as_of: plan.prices.as_of.clone(),
            usage,
            dollars_per_million: plan.prices.of(&usage),
            ledger: Ledger::of(plan, &accounts),
            elsewhere: elsewhere(&plan.prices, &counts, runs),
            demand: Demand::of(ran, settings.batch),
            assumes: assumes(plan),
        }
    }
}

/// What all runs used, the agents' time included, which they share.
fn accounts(ran: &[Ran], batch: u32) -> Accounts {
    let mut accounts = Accounts::new();
    for (account, usage) in ran.iter().flat_map(|ran| &ran.accounts) {
        *accounts.entry(account.clone()).or_default() += *usage;
    }
    let took: Vec<_> = ran.iter().flat_map(|ran| ran.agents_took.iter().cloned()).collect();
    add_agents_time(&mut accounts, &took, batch);
    accounts
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
        world::DELIVERY_TAKES,
    };
    let settings = &plan.settings;
    let ms = |time: Duration| time.as_millis();
    let mut assumes = vec![
        format!("list prices of {}, {}, without a free tier", plan.prices.region, plan.prices.as_of),
        format!("{} messages share a request and an invocation (--batch)", settings.batch),
        format!(
            "functions of {} MB on arm64 that wait {} ms for DynamoDB, {} ms for SQS, {} ms for EventBridge; {} ms in a queue",
            MEMORY_GB * 1_024.0,
            ms(DYNAMODB_TAKES),
            ms(SQS_TAKES),
            ms(EVENTBRIDGE_TAKES),
            ms(DELIVERY_TAKES),
        ),
        "not in the price: storage, logs, data transfer, the client's requests and notices, cold starts, the supervisor's rounds, idle polling, your services"
            .to_owned(),
        "elsewhere: what the service itself charges; the functions that make its calls come on top, which are in Steward's price"
            .to_owned(),
        "Express keeps no state: an execution that breaks off begins anew or is lost"
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
