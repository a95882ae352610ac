//! The loop that owns a world's time: what is on the agenda happens, idle instances are fed from their
//! queues, and time passes to the next thing that can happen.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures_util::{
    FutureExt, StreamExt,
    future::{AbortHandle, Abortable, BoxFuture},
    stream::FuturesUnordered,
};
use serde_json::Value;
use steward_core::model::{attempt::Action, messages::Submission};
use steward_runtime::ports::{Ports, StateStore};
use tokio::select;

use super::{
    SimulationReport, SimulationTotals,
    network::Feed,
    oracle::Oracle,
    plan::{self, HOUR, InstancePlan, Millis, Role, SECOND, TaskPlan},
    ports::SimPorts,
    roles::{self, REPLY_QUEUE},
    verdict,
    world::{Happening, World},
};

/// By when after the storm every task must have ended.
const REST_WITHIN: Millis = 72 * HOUR;

/// How often operators attend to what did not end well.
const ROUNDS: u32 = 3;

/// Messages that a function gets at most at once.
const BATCH_MAX: u64 = 10;

/// One run of one world.
pub(super) struct Run {
    world: Arc<World>,
    instances: Vec<Instance>,
    running: FuturesUnordered<BoxFuture<'static, Finished>>,
}

/// A function instance, and its current life.
struct Instance {
    plan: InstancePlan,
    life: u32,
    kept: Option<roles::Kept>,
    standing: Standing,
}

enum Standing {
    Idle,
    Busy(AbortHandle),
    Dead,
}

/// An invocation that came to its end.
struct Finished {
    instance: usize,
    /// The messages it was given.
    messages: Vec<u64>,
    /// Those that it did not do; nothing if it died.
    failed: Option<Vec<String>>,
}

impl Run {
    pub(super) fn new(world: Arc<World>) -> Self {
        let instance = |plan: &InstancePlan| Instance {
            plan: plan.clone(),
            life: 1,
            kept: roles::kept(&plan.role),
            standing: Standing::Idle,
        };
        let instances = world.plan.instances.iter().map(instance).collect();
        Self { world, instances, running: FuturesUnordered::new() }
    }

    /// Runs until everything has come to rest, and judges it.
    pub(super) async fn through(mut self, seed: u64) -> SimulationReport {
        self.prepare();
        for round in 0..=ROUNDS {
            if !self.until_quiet().await {
                break;
            }
            verdict(&self.world);
            let attended = self.world.plan.attended && round < ROUNDS && self.nothing_found();
            if !attended || !self.world.attend(round) {
                break;
            }
        }
        self.report(seed)
    }

    fn prepare(&self) {
        let world = &self.world;
        for (place, task) in world.plan.tasks.iter().enumerate() {
            for at in std::iter::once(task.at).chain(task.again.iter().copied()) {
                world.at(at, Happening::Submit(place));
            }
        }
        world.plan_commands();
        world.plan_second_lives();
        for (place, instance) in self.instances.iter().enumerate() {
            if instance.plan.role == Role::Supervisor {
                let first = world.state().dice.within(0..=world.plan.sweep_every);
                world.at(first, Happening::Sweep(place));
            }
        }
        if let Some(away) = &world.plan.away {
            world.at(away.start, Happening::Away(away.end));
        }
        if world.plan.weather.killed_every > 0 {
            world.at(world.plan.weather.killed_every, Happening::Death);
        }
        world.at(world.plan.deletes_every, Happening::Expiry);
        world.at(world.plan.storm_until, Happening::Calm);
    }

    /// Answers whether it came to rest in time.
    async fn until_quiet(&mut self) -> bool {
        let plan = &self.world.plan;
        let last = plan.late.last(self.world.now().max(plan.storm_until));
        let last = last + plan.operators_late + REST_WITHIN;
        loop {
            self.keep_appointments();
            self.feed();
            if !self.nothing_found() {
                return false;
            }
            if self.is_quiet() {
                return true;
            }
            if self.world.now() > last {
                let hours = REST_WITHIN / HOUR;
                let finding =
                    format!("{hours} h after the storm it is not quiet: {}", self.unrest());
                self.world.state().oracle.find(finding);
                return false;
            }
            let next = self.next();
            select! {
                biased;
                Some(finished) = self.running.next() => self.finish(finished),
                () = self.world.changed.notified() => {}
                () = self.world.sleep_until(next) => {}
            }
        }
    }

    fn nothing_found(&self) -> bool {
        self.world.state().oracle.findings.is_empty()
    }

    fn is_quiet(&self) -> bool {
        let state = self.world.state();
        !state.storm
            && self.running.is_empty()
            && state.network.is_empty()
            && state.agenda.values().all(Happening::recurs)
            && state.oracle.tasks.values().all(|task| task.due.is_none())
    }

    fn unrest(&self) -> String {
        let state = self.world.state();
        let due = state.oracle.tasks.values().filter(|task| task.due.is_some());
        let due: Vec<_> = due.map(|t| format!("{} is {}", t.task_id, t.process_state)).collect();
        format!("{}; messages on their way: {}", due.join(", "), !state.network.is_empty())
    }

    /// When the next thing can happen, as far as is known now.
    fn next(&self) -> Millis {
        let state = self.world.state();
        let appointment = state.agenda.keys().next().map(|(at, _)| *at);
        let idle = self.instances.iter().filter(|i| matches!(i.standing, Standing::Idle));
        let feeds = idle.filter_map(|instance| Feed::of(&instance.plan.role));
        let message = feeds.filter_map(|feed| state.network.next(&feed)).min();
        // There is always an appointment: supervisors sweep for ever.
        appointment.into_iter().chain(message).min().unwrap_or_default()
    }

    fn keep_appointments(&mut self) {
        loop {
            let now = self.world.now();
            let happening = {
                let mut state = self.world.state();
                match state.agenda.first_entry() {
                    Some(entry) if entry.key().0 <= now => entry.remove(),
                    Some(_) | None => return,
                }
            };
            self.happen(happening, now);
        }
    }

    fn happen(&mut self, happening: Happening, now: Millis) {
        let world = self.world.clone();
        match happening {
            Happening::Submit(place) => self.submit(place),
            Happening::Reuse(place) => self.reuse(place),
            Happening::Command(mut command, copies) => {
                command.issued_at = Some(world.time());
                let (id, order) = (&command.task_id, &command.order);
                // Nobody commands what cannot be seen yet, or soon not any more.
                if !world.stays(id) {
                    return;
                }
                world.state().oracle.commanded(&command);
                world.note("operator", || format!("{id}: {}", order.describe(&[])));
                (0..copies).for_each(|_| world.command(&command));
            }
            Happening::Commit(number) => drop(world.commit(number)),
            Happening::Answer(said) => world.answer(&said),
            Happening::Arrival(feed, message) => world.arrives(feed, &message),
            Happening::Look => world.look_for_paused(),
            Happening::Expiry => {
                world.delete_expired();
                world.at(world.next_round(now, world.plan.deletes_every), Happening::Expiry);
            }
            Happening::Sweep(place) => {
                world.at(world.next_round(now, world.plan.sweep_every), Happening::Sweep(place));
                self.sweep(place);
            }
            Happening::Revive(place) => {
                if let Some(instance) = self.instances.get_mut(place) {
                    instance.standing = Standing::Idle;
                    instance.life += 1;
                    instance.kept = roles::kept(&instance.plan.role);
                }
            }
            Happening::Away(until) => self.away(until),
            Happening::Death => self.death(now),
            Happening::Calm => {
                world.note("weather", || "the storm is over".to_owned());
                world.state().storm = false;
                world.at(now + world.plan.operators_late, Happening::Look);
            }
        }
    }

    fn submit(&self, place: usize) {
        let Some(task) = self.world.plan.tasks.get(place) else { return };
        self.submit_with(task, task.input.clone());
    }

    /// Submits a task with an id that was used before, if the task that used it has expired.
    fn reuse(&self, place: usize) {
        let Some(task) = self.world.plan.tasks.get(place) else { return };
        if self.world.present(&task.task_id).is_some() {
            return;
        }
        let input = plan::input(&mut self.world.state().dice);
        self.world.state().oracle.reused(&task.task_id, input.clone());
        self.submit_with(task, input);
    }

    fn submit_with(&self, task: &TaskPlan, input: Value) {
        let Ok(workflow) = task.workflow.parse() else { return };
        self.world.note("client", || format!("submits {} to {}", task.task_id, task.workflow));
        self.world.submit(&Submission {
            task_id: task.task_id.clone(),
            workflow,
            version: None,
            input,
            reply_to: Some(REPLY_QUEUE.to_owned()),
            parent: None,
            undo: false,
            attempt: None,
            has_begun: false,
            keep: None,
        });
    }

    /// Some instance dies, whatever it is doing.
    fn death(&mut self, now: Millis) {
        let world = self.world.clone();
        if !world.state().storm {
            return;
        }
        let place = world.state().dice.place(self.instances.len());
        let next = world.state().dice.within(1..=2 * world.plan.weather.killed_every);
        world.at(now + next, Happening::Death);
        let Some((place, instance)) = place.and_then(|p| Some((p, self.instances.get_mut(p)?)))
        else {
            return;
        };
        match &instance.standing {
            Standing::Busy(life) => {
                world.fault(&instance.plan.name, || "is killed".to_owned());
                life.abort();
            }
            Standing::Idle => self.bury(place),
            Standing::Dead => {}
        }
    }

    /// Nobody decides anything until then, and messages pile up.
    fn away(&mut self, until: Millis) {
        self.world.note("weather", || "no scheduler and no supervisor is there".to_owned());
        for (place, instance) in self.instances.iter_mut().enumerate() {
            if !matches!(instance.plan.role, Role::Scheduler | Role::Supervisor) {
                continue;
            }
            if let Standing::Busy(life) = &instance.standing {
                life.abort();
            }
            instance.standing = Standing::Dead;
            self.world.at(until, Happening::Revive(place));
        }
    }

    /// A dead instance comes back, after a while.
    fn bury(&mut self, place: usize) {
        let Some(instance) = self.instances.get_mut(place) else { return };
        instance.standing = Standing::Dead;
        let pause = self.world.state().dice.skewed(60 * SECOND);
        self.world.at(self.world.now() + pause, Happening::Revive(place));
    }

    /// Idle instances receive what their queues hold.
    fn feed(&mut self) {
        for place in 0..self.instances.len() {
            let Some(instance) = self.instances.get(place) else { return };
            let role = instance.plan.role.clone();
            let idle = matches!(instance.standing, Standing::Idle);
            let kept = instance.kept.clone();
            let Some(feed) = Feed::of(&role).filter(|_| idle) else { continue };
            let now = self.world.now();
            let mut state = self.world.state();
            if state.network.next(&feed).is_none_or(|at| at > now) {
                continue;
            }
            let limit = self.limit(&role);
            let count = state.dice.within(1..=BATCH_MAX);
            let again_at = now + limit + 5 * SECOND;
            let (event, messages) = state.network.receive(&feed, count, now, again_at);
            let dead = std::mem::take(&mut state.network.dead);
            drop(state);
            for (feed, letter) in dead {
                self.world.is_dead(feed, &letter);
            }
            if !messages.is_empty() {
                self.invoke(place, messages, |ports, limit| {
                    async move { roles::handle(&role, &ports, kept, event, limit).await }.boxed()
                });
            }
        }
    }

    fn limit(&self, role: &Role) -> Millis {
        match role {
            Role::Agent(_) => self.world.plan.agent_limit,
            Role::Submission | Role::Scheduler | Role::Supervisor => self.world.plan.limit,
        }
    }

    /// A supervisor sweeps, if it is there and there is anything to find.
    fn sweep(&mut self, place: usize) {
        let world = &self.world;
        let store = world.memory.store();
        let horizon = steward_core::model::time::later(world.time(), world.plan.timing.clock_skew);
        let due = |shard| match store.due(shard, horizon, None).now_or_never() {
            Some(Ok(page)) => !page.task_ids.is_empty(),
            Some(Err(_)) | None => true,
        };
        let idle = self.instances.get(place).is_some_and(|i| matches!(i.standing, Standing::Idle));
        if idle && (0..store.shards()).any(due) {
            self.invoke(place, Vec::new(), move |ports, limit| {
                async move {
                    roles::sweep(&ports, place as u32, limit).await;
                    Vec::new()
                }
                .boxed()
            });
        }
    }

    /// Starts a handler on an instance: until it is done, its time is up, or it dies.
    fn invoke(
        &mut self,
        place: usize,
        messages: Vec<u64>,
        work: impl FnOnce(SimPorts, Duration) -> BoxFuture<'static, Vec<String>>,
    ) {
        let Some(role) = self.instances.get(place).map(|i| i.plan.role.clone()) else { return };
        let limit = Duration::from_millis(self.limit(&role));
        let Some(instance) = self.instances.get_mut(place) else { return };
        let (life, registration) = AbortHandle::new_pair();
        let InstancePlan { name, clock_ahead, .. } = &instance.plan;
        let name = format!("{name}.{}", instance.life);
        self.world.note(&name, || match messages.as_slice() {
            [] => "sweeps".to_owned(),
            messages => format!("receives {messages:?}"),
        });
        let ports = SimPorts::new(self.world.clone(), &name, *clock_ahead, life.clone());
        let handled = Abortable::new(work(ports, limit), registration);
        instance.standing = Standing::Busy(life);
        let finished = async move {
            let failed = match tokio::time::timeout(limit, handled).await {
                Ok(Ok(failed)) => Some(failed),
                Ok(Err(_)) | Err(_) => None,
            };
            Finished { instance: place, messages, failed }
        };
        self.running.push(finished.boxed());
    }

    fn finish(&mut self, finished: Finished) {
        let Finished { instance: place, messages, failed } = finished;
        let Some(instance) = self.instances.get_mut(place) else { return };
        let Some(failed) = failed else { return self.bury(place) };
        instance.standing = Standing::Idle;
        let name = format!("{}.{}", instance.plan.name, instance.life);
        self.world.note(&name, || match failed.as_slice() {
            [] => "is done".to_owned(),
            failed => format!("is done, but for {}", failed.join(", ")),
        });
        let mut state = self.world.state();
        for number in messages.into_iter().filter(|n| !failed.contains(&n.to_string())) {
            state.network.delete(number);
        }
    }

    fn report(&self, seed: u64) -> SimulationReport {
        let mut state = self.world.state();
        let mut totals = SimulationTotals {
            seeds: 1,
            faults: state.faults,
            messages: state.network.delivered,
            effects: state.ledger.effects,
            ..SimulationTotals::default()
        };
        for task in state.oracle.tasks.values() {
            *totals.tasks.entry(task.process_state.to_string()).or_default() += 1;
            let took = task.ended_at.map(|ended| ended.duration_since(task.submitted_at));
            totals.task_ms += took.and_then(|t| u64::try_from(t.as_millis()).ok()).unwrap_or(0);
        }
        totals.steps = tally(&state.oracle);
        let findings = state.oracle.findings.clone();
        let trace = state.trace.take().unwrap_or_default();
        SimulationReport { seed, findings, trace, totals }
    }
}

/// What the steps of all tasks came to, by kind.
fn tally(oracle: &Oracle) -> BTreeMap<String, u64> {
    let mut tally = BTreeMap::new();
    for task in oracle.tasks.values() {
        let Some(graph) = oracle.graph(&task.task_id) else { continue };
        for (part, action, progress) in task.actions() {
            let kind = graph.step(&part.step).map_or("unknown", |step| step.work.name());
            let item = if part.item.is_some() { " item" } else { "" };
            let undo = if action == Action::Undo { " undo" } else { "" };
            let state = progress.state.name();
            *tally.entry(format!("{kind}{item}{undo} {state}")).or_default() += 1;
        }
    }
    tally
}

fn verdict(world: &World) {
    let state = &mut *world.state();
    verdict::judge(&mut state.oracle, &state.ledger, &world.plan);
}
