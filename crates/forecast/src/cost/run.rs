//! One run: a task from its submission until nothing of it is left to look after.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures_util::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
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
use steward_runtime::ports::{Ports, StateStore};
use tokio::select;

use super::{
    demand::Visits,
    elsewhere::Counts,
    ledger::{Accounts, Took},
    plan::{Plan, StepKey},
    roles,
    settings::ForecastError,
    world::{Role, TIMING, World},
};

/// How often the supervisor looks, as in `template.yaml`.
const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// How often it may find a task due before the run is given up: a task that is watched for the longest
/// time that it may take, with an attempt in every minute of a day.
const SWEEPS_MAX: u32 = 20_000;

/// What became of one step in one run, its items taken together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tally {
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

/// What became of a run.
#[derive(Debug, Clone)]
pub(super) struct Ran {
    pub(super) ended: ProcessState,
    pub(super) took: Duration,
    pub(super) reason: Option<String>,
    pub(super) steps: BTreeMap<StepKey, Tally>,
    pub(super) accounts: Accounts,
    pub(super) agents_took: Vec<Took>,
    pub(super) millis: Vec<(Role, u64)>,
    pub(super) visits: Visits,
    pub(super) alerts: u64,
    /// What other services would count.
    pub(super) elsewhere: Counts,
}

/// Runs task number `run`, on this thread, in a runtime of its own.
pub(super) fn run(plan: &Arc<Plan>, run: u32) -> Result<Ran, ForecastError> {
    let broken = |reason: String| ForecastError::Broken { run, reason };
    let mixed = plan.settings.seed.wrapping_add(u64::from(run).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let seed = fastrand::Rng::with_seed(mixed).u64(..);
    // The agents' pauses draw from this thread's own generator.
    fastrand::seed(seed);
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build();
    let runtime = runtime.map_err(|error| broken(error.to_string()))?;
    runtime.block_on(async {
        let (world, waiting) = World::new(plan.clone(), seed);
        // As long as a UUID: ids are part of every item.
        let id = format!("{:08x}-f04e-4000-8000-{run:012x}", seed as u32);
        let task_id: TaskId = id.parse().map_err(|_| broken("no task id".to_owned()))?;
        let world = Arc::new(world);
        let input = plan.input.value("input", &mut world.state().draw);
        let workflow = &plan.settings.workflow;
        world.submit(&Submission {
            task_id: task_id.clone(),
            workflow: workflow.name.clone(),
            version: Some(workflow.version),
            input,
            reply_to: None,
            parent: None,
            undo: false,
            attempt: None,
            has_begun: false,
            keep: None,
        });
        through(&world, waiting, run).await?;
        outcome(&world, &task_id, run).await
    })
}

type Messages = tokio::sync::mpsc::UnboundedReceiver<BoxFuture<'static, ()>>;

/// Lets time pass until all messages are done and no task is due.
async fn through(world: &Arc<World>, mut waiting: Messages, run: u32) -> Result<(), ForecastError> {
    let mut running = FuturesUnordered::new();
    let millis = world.state().draw.u64(0..SWEEP_EVERY.as_millis() as u64);
    let first_sweep = Duration::from_millis(millis);
    let (mut sweeping, mut sweeps, mut swept_at) = (false, 0, None);
    loop {
        while let Ok(message) = waiting.try_recv() {
            running.push(message.map(|()| false).boxed());
        }
        let due = world.first_due().filter(|_| !sweeping);
        let sweep_at = due.map(|due| {
            let from = world.since_start(due) + TIMING.clock_skew;
            next_sweep(first_sweep, from.max(world.now()), swept_at)
        });
        if running.is_empty() && sweep_at.is_none() {
            return Ok(());
        }
        select! {
            biased;
            Some(swept) = running.next() => sweeping &= !swept,
            Some(message) = waiting.recv() => running.push(message.map(|()| false).boxed()),
            () = world.sleep_until(sweep_at.unwrap_or_default()), if sweep_at.is_some() => {
                swept_at = sweep_at;
                sweeping = true;
                sweeps += 1;
                running.push(roles::sweep(world.clone()).map(|()| true).boxed());
            }
        }
        if sweeps > SWEEPS_MAX {
            let days = world.now().as_secs() / (24 * 3600);
            return Err(ForecastError::Restless { run, days });
        }
    }
}

/// The first round of the supervisor at `from` or after, but later than the last one.
fn next_sweep(first: Duration, from: Duration, last: Option<Duration>) -> Duration {
    let rounds = from.saturating_sub(first).as_millis().div_ceil(SWEEP_EVERY.as_millis());
    let at = first + SWEEP_EVERY * u32::try_from(rounds).unwrap_or(u32::MAX);
    last.map_or(at, |last| at.max(last + SWEEP_EVERY))
}

async fn outcome(world: &World, id: &TaskId, run: u32) -> Result<Ran, ForecastError> {
    if let Some(reason) = world.state().refused.clone() {
        return Err(ForecastError::Refused { run, reason });
    }
    let broken = |reason: &str| ForecastError::Broken { run, reason: reason.to_owned() };
    let ids: Vec<_> = world.state().tasks.keys().cloned().collect();
    let (mut steps, mut elsewhere) = (BTreeMap::new(), Counts::default());
    let took = |task: &Task| {
        let (from, to) = (task.submitted_at, task.ended_at.unwrap_or(task.submitted_at));
        world.since_start(to).saturating_sub(world.since_start(from))
    };
    for id in &ids {
        let task = world.memory.store().load(id).await;
        let Ok(Some(task)) = task else { return Err(broken("a task is gone")) };
        let Some(workflow) = world.plan.workflow(&task.workflow) else { continue };
        tally(&task, workflow, &mut steps);
        elsewhere.add_task(&task, workflow, took(&task));
    }
    let task = world.memory.store().load(id).await;
    let Ok(Some(task)) = task else { return Err(broken("the task was not recorded")) };
    let state = &mut *world.state();
    for ((key, action), calls) in &state.calls {
        let tally: &mut Tally = steps.entry(key.clone()).or_default();
        match action {
            Action::Do => {
                tally.calls += calls;
                tally.retries += calls.saturating_sub(tally.started);
            }
            Action::Undo => tally.calls += calls,
        }
    }
    Ok(Ran {
        ended: task.process_state,
        took: world.since_start(task.ended_at.unwrap_or(task.submitted_at)),
        reason: task.error.or(task.undo_reason),
        steps,
        accounts: std::mem::take(&mut state.meter.accounts),
        agents_took: std::mem::take(&mut state.agents_took),
        millis: std::mem::take(&mut state.millis),
        visits: std::mem::take(&mut state.visits),
        alerts: state.alerts,
        elsewhere: Counts { written_bytes: state.meter.written_bytes, ..elsewhere },
    })
}

/// Adds what became of a task's steps.
fn tally(task: &Task, workflow: &Workflow, steps: &mut BTreeMap<StepKey, Tally>) {
    for (name, record) in &task.steps {
        if !workflow.steps.contains_key(name) {
            continue;
        }
        let tally = steps.entry((workflow.name.clone(), name.clone())).or_default();
        if matches!(record.run.state, StepState::Skipped { .. }) {
            tally.skipped += 1;
            continue;
        }
        for (_, part) in record.parts(name) {
            tally.started += 1;
            tally.attempts += u64::from(part.run.state.attempt());
            tally.failed += u64::from(part.run.state.is_failed());
            let Some(undo) = &part.undo else { continue };
            tally.undo_attempts += u64::from(undo.state.attempt());
            tally.undone += u64::from(undo.state.has_passed());
            tally.undo_failed += u64::from(undo.state.is_failed());
        }
    }
}
