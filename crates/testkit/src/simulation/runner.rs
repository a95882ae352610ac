//! The event loop of a run. It runs scheduled events that are due, invokes idle instances with messages from their
//! queues, and advances virtual time to the next possible event.

use std::{sync::Arc, time::Duration};

use futures_util::{
    FutureExt, StreamExt,
    future::{AbortHandle, Abortable, BoxFuture},
    stream::FuturesUnordered,
};
use steward_runtime::ports::{Ports, Queue, StateStore};
use tokio::select;

use super::{
    deployment::{ScheduledEvent, SimulatedDeployment},
    fault_injector::{self, SimulatedPorts},
    final_checks,
    handlers::{self, InstanceMemory},
    network::FunctionQueue,
    panics,
    plan::{InstancePlan, InstanceRole},
    report::{self, SimulationReport, SimulationTotals},
    virtual_time::{HOUR, Millis, SECOND},
};

/// How long after the end of fault injection every task must have ended.
const QUIET_WITHIN: Millis = 72 * HOUR;

/// How often a supervisor keeps the tasks in Error. In production it is an hour.
const KEEP_ERRORS_EVERY: Millis = 3 * HOUR;

/// How many times operators resolve tasks in Error.
const ROUNDS: u32 = 3;

/// The largest batch of messages for one invocation.
const BATCH_MAX: u64 = 10;

/// Runs one simulated deployment.
pub(super) struct Runner {
    deployment: Arc<SimulatedDeployment>,
    instances: Vec<FunctionInstance>,
    running: FuturesUnordered<BoxFuture<'static, FinishedInvocation>>,
}

/// A function instance. `generation` counts its restarts.
struct FunctionInstance {
    plan: InstancePlan,
    generation: u32,
    memory: InstanceMemory,
    state: InstanceState,
}

enum InstanceState {
    Idle,
    Busy(AbortHandle),
    Dead,
}

/// A finished invocation.
struct FinishedInvocation {
    instance: usize,
    /// The numbers of the messages in its batch.
    messages: Vec<u64>,
    /// The ids of the messages that it reported as failed; `None` if the instance died.
    failed: Option<Vec<String>>,
}

impl Runner {
    pub(super) fn new(deployment: Arc<SimulatedDeployment>) -> Self {
        let instance = |plan: &InstancePlan| FunctionInstance {
            plan: plan.clone(),
            generation: 1,
            memory: InstanceMemory::new(&plan.role, &deployment.plan),
            state: InstanceState::Idle,
        };
        let instances = deployment.plan.instances.iter().map(instance).collect();
        Self { deployment, instances, running: FuturesUnordered::new() }
    }

    /// Runs until the deployment is quiet, and checks the result.
    pub(super) async fn run(mut self, seed: u64) -> SimulationReport {
        self.prepare();
        for round in 0..=ROUNDS {
            if !self.run_until_quiet().await {
                break;
            }
            check_final_states(&self.deployment);
            let operators_act = self.deployment.plan.operators_act_when_quiet
                && round < ROUNDS
                && self.nothing_found();
            if !operators_act || !self.deployment.resolve_errors(round) {
                break;
            }
        }
        if self.deployment.plan.payloads.is_some() && self.nothing_found() {
            // What still happens meanwhile, as the reuse of an id, may end in Error, too.
            for _ in 0..ROUNDS {
                if self.deployment.settle_errors() && !self.run_until_quiet().await {
                    break;
                }
            }
            self.deployment.check_no_payload_is_left().await;
        }
        self.report(seed)
    }

    fn prepare(&self) {
        let deployment = &self.deployment;
        for (index, task) in deployment.plan.tasks.iter().enumerate() {
            for at in std::iter::once(task.at).chain(task.repeated_at.iter().copied()) {
                deployment.schedule(at, ScheduledEvent::Submit(index));
            }
        }
        deployment.schedule_commands();
        deployment.schedule_id_reuse();
        deployment.schedule_forged_submissions();
        for (index, instance) in self.instances.iter().enumerate() {
            if instance.plan.role == InstanceRole::Supervisor {
                let first = deployment.state().random.within(0..=deployment.plan.sweep_every);
                deployment.schedule(first, ScheduledEvent::Sweep(index));
                deployment.schedule(first, ScheduledEvent::KeepErrors(index));
                if let Some(payloads) = &deployment.plan.payloads {
                    let first = deployment.state().random.within(0..=payloads.sweep_every);
                    deployment.schedule(first, ScheduledEvent::SweepPayloads(Some(index)));
                }
            }
        }
        if let Some(outage) = &deployment.plan.outage {
            deployment.schedule(outage.start, ScheduledEvent::Outage(outage.end));
        }
        if deployment.plan.faults.mean_time_between_crashes > 0 {
            deployment.schedule(
                deployment.plan.faults.mean_time_between_crashes,
                ScheduledEvent::KillInstance,
            );
        }
        deployment.schedule(deployment.plan.delete_expired_every, ScheduledEvent::DeleteExpired);
        deployment.schedule(deployment.plan.faults_until, ScheduledEvent::StopFaults);
    }

    /// Runs until nothing more can happen. Returns false if there is a finding, or if that takes too long.
    async fn run_until_quiet(&mut self) -> bool {
        let plan = &self.deployment.plan;
        let last = plan.late_messages.latest_arrival(self.deployment.now().max(plan.faults_until));
        let last = last + plan.operator_delay + QUIET_WITHIN;
        loop {
            self.run_due_events();
            self.invoke_idle_instances();
            self.deployment.state().oracle.violations.extend(panics::take());
            if !self.nothing_found() {
                return false;
            }
            if self.is_quiet() {
                return true;
            }
            if self.deployment.now() > last {
                let hours = QUIET_WITHIN / HOUR;
                let finding = format!(
                    "{hours} h after the last fault the run is not quiet: {}",
                    self.describe_activity()
                );
                self.deployment.state().oracle.add_finding(finding);
                return false;
            }
            let next = self.next();
            select! {
                biased;
                Some(finished) = self.running.next() => self.finish(finished),
                () = self.deployment.changed.notified() => {}
                () = self.deployment.sleep_until(next) => {}
            }
        }
    }

    fn nothing_found(&self) -> bool {
        self.deployment.state().oracle.violations.is_empty()
    }

    fn is_quiet(&self) -> bool {
        let state = self.deployment.state();
        !state.faults_enabled
            && self.running.is_empty()
            && state.network.is_empty()
            && state.schedule.values().all(ScheduledEvent::recurs)
            && state.oracle.tasks.values().all(|task| task.due.is_none())
    }

    fn describe_activity(&self) -> String {
        let state = self.deployment.state();
        let due = state.oracle.tasks.values().filter(|task| task.due.is_some());
        let due: Vec<_> = due.map(|t| format!("{} is {}", t.task_id, t.process_state)).collect();
        format!("{}; messages in transit: {}", due.join(", "), !state.network.is_empty())
    }

    /// The time of the next scheduled event or visible message.
    fn next(&self) -> Millis {
        let state = self.deployment.state();
        let event_at = state.schedule.keys().next().map(|(at, _)| *at);
        let idle = self.instances.iter().filter(|i| matches!(i.state, InstanceState::Idle));
        let sources = idle.filter_map(|instance| FunctionQueue::of(&instance.plan.role));
        let message = sources.filter_map(|source| state.network.next(&source)).min();
        // The schedule is never empty: each sweep of a supervisor schedules the next one.
        event_at.into_iter().chain(message).min().unwrap_or_default()
    }

    fn run_due_events(&mut self) {
        loop {
            let now = self.deployment.now();
            let event = {
                let mut state = self.deployment.state();
                match state.schedule.first_entry() {
                    Some(entry) if entry.key().0 <= now => entry.remove(),
                    Some(_) | None => return,
                }
            };
            self.run_event(event, now);
        }
    }

    fn run_event(&mut self, event: ScheduledEvent, now: Millis) {
        let deployment = self.deployment.clone();
        match event {
            ScheduledEvent::Submit(index) => deployment.submit_planned(index),
            ScheduledEvent::SubmitForged(number, input) => deployment.submit_forged(number, input),
            ScheduledEvent::ReuseTaskId(index) => deployment.reuse_task_id(index),
            ScheduledEvent::Command(mut command, copies) => {
                command.issued_at = deployment.time();
                let (id, action) = (&command.task_id, &command.action);
                // Operators do not send commands to a task that is not visible yet, or expires soon.
                if !deployment.is_present_for_an_hour(id) {
                    return;
                }
                deployment.state().oracle.observe_command(&command);
                deployment.note("operator", || format!("{id}: {}", action.describe(&[])));
                (0..copies).for_each(|_| deployment.command(&command));
            }
            ScheduledEvent::CommitCall(number) => drop(deployment.commit(number)),
            ScheduledEvent::AnswerCallback(answer) => deployment.answer(&answer),
            ScheduledEvent::PublishEvent(draft) => deployment.publish(&draft),
            ScheduledEvent::LateArrival(source, message) => {
                deployment.deliver_late(source, &message)
            }
            ScheduledEvent::ResumePaused => deployment.resume_paused(),
            ScheduledEvent::DeleteExpired => {
                deployment.delete_expired();
                deployment.expire_uploads();
                deployment.check_payloads();
                deployment.schedule(
                    deployment.next_round(now, deployment.plan.delete_expired_every),
                    ScheduledEvent::DeleteExpired,
                );
            }
            ScheduledEvent::Sweep(index) => {
                deployment.schedule(
                    deployment.next_round(now, deployment.plan.sweep_every),
                    ScheduledEvent::Sweep(index),
                );
                self.sweep(index);
            }
            ScheduledEvent::SweepPayloads(index) => self.sweep_payloads(index, now),
            ScheduledEvent::KeepErrors(index) => self.keep_errors(index, now),
            ScheduledEvent::RestartInstance(index) => {
                if let Some(instance) = self.instances.get_mut(index) {
                    instance.state = InstanceState::Idle;
                    instance.generation += 1;
                    instance.memory =
                        InstanceMemory::new(&instance.plan.role, &self.deployment.plan);
                }
            }
            ScheduledEvent::Outage(until) => self.stop_deciders(until),
            ScheduledEvent::KillInstance => self.kill_random_instance(now),
            ScheduledEvent::StopFaults => {
                deployment.note("faults", || "fault injection stops".to_owned());
                deployment.state().faults_enabled = false;
                deployment
                    .schedule(now + deployment.plan.operator_delay, ScheduledEvent::ResumePaused);
            }
        }
    }

    /// Kills a random instance, whatever it is doing.
    fn kill_random_instance(&mut self, now: Millis) {
        let deployment = self.deployment.clone();
        if !deployment.state().faults_enabled {
            return;
        }
        let index = deployment.state().random.index(self.instances.len());
        let next = deployment
            .state()
            .random
            .within(1..=2 * deployment.plan.faults.mean_time_between_crashes);
        deployment.schedule(now + next, ScheduledEvent::KillInstance);
        let Some((index, instance)) = index.and_then(|p| Some((p, self.instances.get_mut(p)?)))
        else {
            return;
        };
        match &instance.state {
            InstanceState::Busy(abort_handle) => {
                deployment.fault(&instance.plan.name, || "is killed".to_owned());
                abort_handle.abort();
            }
            InstanceState::Idle => self.restart_later(index),
            InstanceState::Dead => {}
        }
    }

    /// Stops all schedulers and supervisors until `until`, so that messages pile up.
    fn stop_deciders(&mut self, until: Millis) {
        self.deployment.note("faults", || "all schedulers and supervisors are down".to_owned());
        for (index, instance) in self.instances.iter_mut().enumerate() {
            if !matches!(instance.plan.role, InstanceRole::Scheduler | InstanceRole::Supervisor) {
                continue;
            }
            if let InstanceState::Busy(abort_handle) = &instance.state {
                abort_handle.abort();
            }
            instance.state = InstanceState::Dead;
            self.deployment.schedule(until, ScheduledEvent::RestartInstance(index));
        }
    }

    /// Marks an instance as dead and schedules its restart.
    fn restart_later(&mut self, index: usize) {
        let Some(instance) = self.instances.get_mut(index) else { return };
        instance.state = InstanceState::Dead;
        let pause = self.deployment.state().random.skewed(60 * SECOND);
        self.deployment
            .schedule(self.deployment.now() + pause, ScheduledEvent::RestartInstance(index));
    }

    /// Invokes idle instances with the visible messages of their queues.
    fn invoke_idle_instances(&mut self) {
        for index in 0..self.instances.len() {
            let Some(instance) = self.instances.get(index) else { return };
            let role = instance.plan.role.clone();
            let idle = matches!(instance.state, InstanceState::Idle);
            let memory = instance.memory.clone();
            let Some(source) = FunctionQueue::of(&role).filter(|_| idle) else { continue };
            let now = self.deployment.now();
            let mut state = self.deployment.state();
            if state.network.next(&source).is_none_or(|at| at > now) {
                continue;
            }
            let limit = self.timeout(&role);
            let count = state.random.within(1..=BATCH_MAX);
            let visible_again_at = now + limit + 5 * SECOND;
            let (event, messages) = state.network.receive(&source, count, now, visible_again_at);
            let dead = std::mem::take(&mut state.network.dead);
            drop(state);
            for letter in dead {
                self.deployment.handle_dead_letter(&letter);
            }
            if !messages.is_empty() {
                self.invoke(index, messages, |ports, limit| {
                    async move { handlers::handle(&role, &ports, memory, event, limit).await }
                        .boxed()
                });
            }
        }
    }

    fn timeout(&self, role: &InstanceRole) -> Millis {
        match role {
            InstanceRole::Agent(_) => self.deployment.plan.agent_timeout,
            InstanceRole::Submission | InstanceRole::Scheduler | InstanceRole::Supervisor => {
                self.deployment.plan.function_timeout
            }
        }
    }

    /// Invokes a supervisor, if it is idle and any task is due.
    fn sweep(&mut self, index: usize) {
        let deployment = &self.deployment;
        let store = deployment.memory.store();
        let horizon =
            steward_core::model::time::later(deployment.time(), deployment.plan.timing.clock_skew);
        let due = |shard| match store.due_tasks(shard, horizon, None).now_or_never() {
            Some(Ok(page)) => !page.task_ids.is_empty(),
            Some(Err(_)) | None => true,
        };
        let idle =
            self.instances.get(index).is_some_and(|i| matches!(i.state, InstanceState::Idle));
        if idle && (0..store.shards()).any(due) {
            self.invoke(index, Vec::new(), move |ports, limit| {
                async move {
                    handlers::sweep(&ports, index as u32, limit).await;
                    Vec::new()
                }
                .boxed()
            });
        }
    }

    /// Lets a supervisor keep the tasks in Error, if it is idle.
    fn keep_errors(&mut self, index: usize, now: Millis) {
        let deployment = self.deployment.clone();
        let unresolved = !deployment.unresolved().is_empty();
        let every = KEEP_ERRORS_EVERY;
        let next = if unresolved { now + every } else { deployment.next_round(now, every) };
        deployment.schedule(next, ScheduledEvent::KeepErrors(index));
        let state = self.instances.get(index).map(|instance| &instance.state);
        if unresolved && matches!(state, Some(InstanceState::Idle)) {
            self.invoke(index, Vec::new(), |ports, limit| {
                async move {
                    handlers::keep_errors(&ports, limit).await;
                    Vec::new()
                }
                .boxed()
            });
        }
    }

    /// Lets a supervisor delete payloads, if it is idle.
    fn sweep_payloads(&mut self, index: Option<usize>, now: Millis) {
        let deployment = self.deployment.clone();
        if let (Some(payloads), Some(_)) = (&deployment.plan.payloads, index) {
            let every = payloads.sweep_every;
            // Passes go on while tasks wait.
            let next = deployment.next_round(now, every).min(now + 6 * HOUR.max(every));
            deployment.schedule(next, ScheduledEvent::SweepPayloads(index));
        }
        let mut supervisors = (0..).zip(&self.instances).filter(|(number, instance)| {
            let is_meant = index.is_none_or(|index| index == *number);
            let is_supervisor = instance.plan.role == InstanceRole::Supervisor;
            is_meant && is_supervisor && matches!(instance.state, InstanceState::Idle)
        });
        if let Some((number, _)) = supervisors.next() {
            self.invoke(number, Vec::new(), |ports, limit| {
                async move {
                    handlers::delete_orphans(&ports, limit).await;
                    Vec::new()
                }
                .boxed()
            });
        }
    }

    /// Starts a handler on an instance. It runs until it is done, times out, or the instance dies.
    fn invoke(
        &mut self,
        index: usize,
        messages: Vec<u64>,
        work: impl FnOnce(SimulatedPorts, Duration) -> BoxFuture<'static, Vec<String>>,
    ) {
        let Some(role) = self.instances.get(index).map(|i| i.plan.role.clone()) else { return };
        let limit = Duration::from_millis(self.timeout(&role));
        let Some(instance) = self.instances.get_mut(index) else { return };
        let (abort_handle, registration) = AbortHandle::new_pair();
        let InstancePlan { name, clock_offset, .. } = &instance.plan;
        let name = format!("{name}.{}", instance.generation);
        self.deployment.note(&name, || match messages.as_slice() {
            [] => "sweeps".to_owned(),
            messages => format!("receives {messages:?}"),
        });
        let ports = fault_injector::ports(
            self.deployment.clone(),
            &name,
            *clock_offset,
            abort_handle.clone(),
        );
        let handled = Abortable::new(work(ports, limit), registration);
        instance.state = InstanceState::Busy(abort_handle);
        let finished = async move {
            let failed = match tokio::time::timeout(limit, handled).await {
                Ok(Ok(failed)) => Some(failed),
                Ok(Err(_)) | Err(_) => None,
            };
            FinishedInvocation { instance: index, messages, failed }
        };
        self.running.push(finished.boxed());
    }

    fn finish(&mut self, finished: FinishedInvocation) {
        let FinishedInvocation { instance: index, messages, failed } = finished;
        let Some(instance) = self.instances.get_mut(index) else { return };
        let Some(failed) = failed else { return self.restart_later(index) };
        instance.state = InstanceState::Idle;
        let name = format!("{}.{}", instance.plan.name, instance.generation);
        self.deployment.note(&name, || match failed.as_slice() {
            [] => "is done".to_owned(),
            failed => format!("is done, failed messages: {}", failed.join(", ")),
        });
        let now = self.deployment.time();
        let state = &mut *self.deployment.state();
        for number in messages.into_iter().filter(|n| !failed.contains(&n.to_string())) {
            let message = state.network.delete(number);
            if let Some(message) = message.filter(|message| message.queue == Queue::Events) {
                state.oracle.observe_handled_event(&message.body, now);
            }
        }
    }

    fn report(&self, seed: u64) -> SimulationReport {
        let mut state = self.deployment.state();
        let mut totals = SimulationTotals {
            seeds: 1,
            faults: state.faults,
            messages: state.network.delivered,
            effects: state.ledger.effects,
            rate_deferrals: state.oracle.rate_deferrals,
            agent_moves: state.oracle.agent_moves,
            payload_tasks: state.oracle.payloads.references.len() as u64,
            payloads_sent: state.oracle.payloads.sent,
            payloads_stored: state.oracle.payloads.stored,
            forgeries_refused: state.oracle.payloads.refused.len() as u64,
            ..SimulationTotals::default()
        };
        for task in state.oracle.tasks.values() {
            *totals.tasks.entry(task.process_state.to_string()).or_default() += 1;
            let took = task.ended_at.map(|ended| ended.duration_since(task.submitted_at));
            totals.task_ms += took.and_then(|t| u64::try_from(t.as_millis()).ok()).unwrap_or(0);
        }
        totals.steps = report::count_steps(&state.oracle);
        let findings = state.oracle.violations.clone();
        let trace = state.trace.take().unwrap_or_default();
        SimulationReport { seed, findings, trace, totals }
    }
}

fn check_final_states(deployment: &SimulatedDeployment) {
    let state = &mut *deployment.state();
    final_checks::check(&mut state.oracle, &state.ledger, &deployment.plan);
}
