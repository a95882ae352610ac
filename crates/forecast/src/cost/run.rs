//! One run: a task from its submission until all messages are handled and nothing is due.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures_util::{FutureExt, StreamExt, stream::FuturesUnordered};
use steward_core::{
    definition::workflow::Workflow,
    model::{
        attempt::Action,
        messages::Submission,
        names::TaskId,
        step::StepState,
        task::{ProcessState, Task},
    },
};
use steward_runtime::ports::StateStore;
use tokio::{select, sync::mpsc::UnboundedReceiver};

use super::{
    alternatives::AlternativeCounts,
    delivery,
    demand::DemandCounts,
    ledger::{AgentTime, CostAccounts},
    plan::{ForecastPlan, StepKey},
    settings::ForecastError,
    task_simulation::{QueuedMessage, TIMING, TaskSimulation},
};

/// The interval of the supervisor's sweeps, as in `template.yaml`.
const SWEEP_EVERY: Duration = Duration::from_secs(10);

/// The largest number of sweeps with due tasks in one run. It suffices for a task of the maximum duration with an
/// attempt in every minute of a day.
const SWEEPS_MAX: u32 = 20_000;

/// The counts of one step in one run, over all its items.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct StepCounts {
    pub(super) started: u64,
    pub(super) attempts: u64,
    pub(super) calls: u64,
    pub(super) retries: u64,
    pub(super) failed: u64,
    pub(super) skipped: u64,
    pub(super) undone: u64,
    pub(super) undo_attempts: u64,
    pub(super) undo_failed: u64,
}

/// The result of a run.
#[derive(Debug, Clone)]
pub(super) struct ForecastRun {
    pub(super) ended: ProcessState,
    pub(super) took: Duration,
    pub(super) reason: Option<String>,
    pub(super) steps: BTreeMap<StepKey, StepCounts>,
    pub(super) accounts: CostAccounts,
    pub(super) agents_took: Vec<AgentTime>,
    pub(super) demand_counts: DemandCounts,
    pub(super) alerts: u64,
    /// What alternative services would count.
    pub(super) alternatives: AlternativeCounts,
}

/// Runs task number `run` on this thread, in a new runtime.
pub(super) fn run(plan: &Arc<ForecastPlan>, run: u32) -> Result<ForecastRun, ForecastError> {
    let failure = |reason: String| ForecastError::Failed { run, reason };
    let mixed = plan.settings.seed.wrapping_add(u64::from(run).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let seed = fastrand::Rng::with_seed(mixed).u64(..);
    // The pauses of the agents use the random generator of this thread.
    fastrand::seed(seed);
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build();
    let runtime = runtime.map_err(|error| failure(error.to_string()))?;
    runtime.block_on(async {
        let (simulation, waiting) = TaskSimulation::new(plan.clone(), seed);
        // As long as a UUID, since ids are part of every item's size.
        let id = format!("{:08x}-f04e-4000-8000-{run:012x}", seed as u32);
        let task_id: TaskId =
            id.parse().map_err(|_| failure("the task id is invalid".to_owned()))?;
        let simulation = Arc::new(simulation);
        let input = plan.input.value("input", &mut simulation.state().draw);
        let workflow = &plan.settings.workflow;
        simulation.submit(&Submission {
            task_id: task_id.clone(),
            workflow: workflow.name.clone(),
            version: Some(workflow.version),
            input,
            tenant: None,
            reply_to: None,
            parent: None,
            undo: false,
            attempt: None,
            has_begun: false,
            retention: None,
            rerun: None,
        });
        run_until_idle(&simulation, waiting, RunLimits { run, until: None }).await?;
        outcome(&simulation, &task_id, run).await
    })
}

/// When a run stops, at the latest.
#[derive(Debug, Clone, Copy)]
pub(super) struct RunLimits {
    /// The number of the run, for errors.
    pub(super) run: u32,
    /// The time since the start at which the run stops, if it is not idle before.
    pub(super) until: Option<Duration>,
}

/// Advances time until all messages are handled and no task is due, or until the limit. Returns the number of sweeps of
/// the supervisor.
pub(super) async fn run_until_idle(
    simulation: &Arc<TaskSimulation>,
    mut waiting: UnboundedReceiver<QueuedMessage>,
    RunLimits { run, until }: RunLimits,
) -> Result<u32, ForecastError> {
    let mut running = FuturesUnordered::new();
    let millis = simulation.state().draw.u64(0..SWEEP_EVERY.as_millis() as u64);
    let first_sweep = Duration::from_millis(millis);
    let (mut sweeping, mut sweeps, mut swept_at) = (false, 0, None);
    let deliver = |message| delivery::deliver(simulation.clone(), message).map(|()| false).boxed();
    loop {
        while let Ok(message) = waiting.try_recv() {
            running.push(deliver(message));
        }
        let due = simulation.first_due().filter(|_| !sweeping);
        let sweep_at = due.map(|due| {
            let from = simulation.since_start(due) + TIMING.clock_skew;
            next_sweep(first_sweep, from.max(simulation.now()), swept_at)
        });
        if running.is_empty() && sweep_at.is_none() {
            return Ok(sweeps);
        }
        select! {
            biased;
            () = simulation.sleep_until(until.unwrap_or_default()), if until.is_some() => return Ok(sweeps),
            Some(swept) = running.next() => sweeping &= !swept,
            Some(message) = waiting.recv() => running.push(deliver(message)),
            () = simulation.sleep_until(sweep_at.unwrap_or_default()), if sweep_at.is_some() => {
                swept_at = sweep_at;
                sweeping = true;
                sweeps += 1;
                running.push(delivery::sweep(simulation.clone()).map(|()| true).boxed());
            }
        }
        if sweeps > SWEEPS_MAX {
            let days = simulation.now().as_secs() / (24 * 3600);
            return Err(ForecastError::NotEnded { run, days });
        }
    }
}

/// The time of the first sweep at or after `from` that is later than the last one.
fn next_sweep(first: Duration, from: Duration, last: Option<Duration>) -> Duration {
    let rounds = from.saturating_sub(first).as_millis().div_ceil(SWEEP_EVERY.as_millis());
    let at = first + SWEEP_EVERY * u32::try_from(rounds).unwrap_or(u32::MAX);
    last.map_or(at, |last| at.max(last + SWEEP_EVERY))
}

async fn outcome(
    simulation: &TaskSimulation,
    id: &TaskId,
    run: u32,
) -> Result<ForecastRun, ForecastError> {
    if let Some(reason) = simulation.state().refused.clone() {
        return Err(ForecastError::Refused { run, reason });
    }
    let failure = |reason: &str| ForecastError::Failed { run, reason: reason.to_owned() };
    let ids: Vec<_> = simulation.state().tasks.keys().cloned().collect();
    let (mut steps, mut alternatives) = (BTreeMap::new(), AlternativeCounts::default());
    let took = |task: &Task| {
        let (from, to) = (task.submitted_at, task.ended_at.unwrap_or(task.submitted_at));
        simulation.since_start(to).saturating_sub(simulation.since_start(from))
    };
    for id in &ids {
        let task = simulation.memory.store.load(id).await;
        let Ok(Some(task)) = task else { return Err(failure("a task does not exist any more")) };
        let Some(workflow) = simulation.plan.workflow(&task.workflow) else { continue };
        counts(&task, workflow, &mut steps);
        alternatives.add_task(&task, workflow, took(&task));
    }
    let task = simulation.memory.store.load(id).await;
    let Ok(Some(task)) = task else { return Err(failure("the task was not recorded")) };
    let state = &mut *simulation.state();
    for ((key, action), calls) in &state.calls {
        let counts: &mut StepCounts = steps.entry(key.clone()).or_default();
        match action {
            Action::Do => {
                counts.calls += calls;
                counts.retries += calls.saturating_sub(counts.started);
            }
            Action::Undo => counts.calls += calls,
        }
    }
    Ok(ForecastRun {
        ended: task.process_state,
        took: simulation.since_start(task.ended_at.unwrap_or(task.submitted_at)),
        reason: task.error.or(task.undo_reason),
        steps,
        accounts: std::mem::take(&mut state.meter.accounts),
        agents_took: std::mem::take(&mut state.agents_took),
        demand_counts: std::mem::take(&mut state.demand_counts),
        alerts: state.alerts,
        alternatives: AlternativeCounts {
            written_bytes: state.meter.written_bytes,
            ..alternatives
        },
    })
}

/// Adds the counts of a task's steps.
fn counts(task: &Task, workflow: &Workflow, steps: &mut BTreeMap<StepKey, StepCounts>) {
    for (name, record) in &task.steps {
        if !workflow.steps.contains_key(name) {
            continue;
        }
        let counts = steps.entry((workflow.name.clone(), name.clone())).or_default();
        if matches!(record.forward.state, StepState::Skipped { .. }) {
            counts.skipped += 1;
            continue;
        }
        for (_, part) in record.parts(name) {
            counts.started += 1;
            counts.attempts += u64::from(part.forward.state.attempt_count());
            counts.failed += u64::from(part.forward.state.is_failed());
            let Some(undo) = &part.undo else { continue };
            counts.undo_attempts += u64::from(undo.state.attempt_count());
            counts.undone += u64::from(undo.state.is_completed_or_skipped());
            counts.undo_failed += u64::from(undo.state.is_failed());
        }
    }
}
