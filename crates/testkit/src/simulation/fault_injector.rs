//! The in-memory ports of one instance, with fault injection. Every call of the store, the definitions, the channel's
//! `send` and the event bus passes the [`FaultInjector`]: it may be slow, fail before or after it took effect, or crash
//! its instance.

use std::{fmt, future::Future, sync::Arc, time::Duration};

use futures_util::future::AbortHandle;
use steward_core::model::{
    attempt::{Action, AttemptId},
    document::{Document, DocumentKey, DocumentOwner},
    events::BusEvent,
    task::Task,
};
use steward_operator::view::failure_reason_keys;
use steward_runtime::ports::{
    Channel, CreateOutcome, EventBus, OutgoingMessage, PortError, SaveOutcome, StateStore,
};
use steward_test_world::{InterceptedPorts, Interceptor, MemoryPorts, PortCall, PortReply};

use super::{
    deployment::SimulatedDeployment,
    virtual_time::{Millis, SECOND},
};

/// Intercepts the calls of the store, the definitions, the channel's `send` and the event bus of an instance, injects
/// faults, and reports to the oracle what happens.
#[derive(Clone)]
pub(super) struct FaultInjector {
    pub(super) deployment: Arc<SimulatedDeployment>,
    name: Arc<str>,
    /// Aborted when the instance crashes.
    abort_handle: AbortHandle,
}

/// The fault that is injected into a port call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InjectedFault {
    None,
    FailsBefore,
    FailsAfter,
    CrashesBefore,
    CrashesAfter,
}

/// The fault of a call, and how long the call takes before and after it takes effect.
struct DrawnFault {
    fault: InjectedFault,
    before: Millis,
    after: Millis,
}

impl FaultInjector {
    fn draw(&self) -> DrawnFault {
        let faults = &self.deployment.plan.faults;
        let mut state = self.deployment.state();
        let (mut before, after) = (state.random.within(0..=6), state.random.within(0..=3));
        if !state.faults_enabled {
            return DrawnFault { fault: InjectedFault::None, before, after };
        }
        if state.random.chance(faults.slow) {
            before += state.random.skewed(20 * SECOND);
        }
        let crashes = state.random.chance(faults.crash);
        let after_effect = state.random.chance(0.5);
        let fault = match (crashes, after_effect) {
            (true, true) => InjectedFault::CrashesAfter,
            (true, false) => InjectedFault::CrashesBefore,
            (false, _) if state.random.chance(faults.fail_before) => InjectedFault::FailsBefore,
            (false, _) if state.random.chance(faults.fail_after) => InjectedFault::FailsAfter,
            (false, _) => InjectedFault::None,
        };
        DrawnFault { fault, before, after }
    }

    pub(super) async fn inject<T>(
        &self,
        operation: impl Fn() -> String,
        call: impl Future<Output = Result<T, PortError>>,
    ) -> Result<T, PortError> {
        let DrawnFault { fault, before, after } = self.draw();
        self.wait(before).await;
        match fault {
            InjectedFault::FailsBefore => {
                return Err(self.injected_error(&operation, "before it took effect"));
            }
            InjectedFault::CrashesBefore => return self.crash_instance(&operation, "before").await,
            InjectedFault::None | InjectedFault::FailsAfter | InjectedFault::CrashesAfter => {}
        }
        let result = call.await;
        match fault {
            InjectedFault::CrashesAfter => return self.crash_instance(&operation, "after").await,
            InjectedFault::FailsAfter => {
                return Err(self.injected_error(&operation, "after it took effect"));
            }
            InjectedFault::None | InjectedFault::FailsBefore | InjectedFault::CrashesBefore => {}
        }
        self.wait(after).await;
        result
    }

    /// Waits. Never returns if the instance has crashed meanwhile.
    async fn wait(&self, time: Millis) {
        if time > 0 {
            tokio::time::sleep(Duration::from_millis(time)).await;
        }
        if self.abort_handle.is_aborted() {
            std::future::pending::<()>().await;
        }
    }

    /// The error of a call that fails by injection. Writes the fault to the trace.
    fn injected_error(&self, operation: &impl Fn() -> String, when: &str) -> PortError {
        self.deployment.fault(&self.name, || format!("{} fails {when}", operation()));
        injected_error(&operation())
    }

    async fn crash_instance<T>(&self, operation: &impl Fn() -> String, when: &str) -> T {
        self.deployment.fault(&self.name, || format!("dies {when}: {}", operation()));
        self.abort_handle.abort();
        std::future::pending().await
    }

    /// Whether the instance has crashed.
    pub(super) fn has_crashed(&self) -> bool {
        self.abort_handle.is_aborted()
    }

    /// The name of the instance, with the number of its restart.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn trace(&self, what: impl FnOnce() -> String) {
        self.deployment.note(&self.name, what);
    }

    fn memory(&self) -> &MemoryPorts {
        &self.deployment.memory
    }
}

impl fmt::Debug for FaultInjector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// All ports of one simulated instance.
pub(super) type SimulatedPorts = InterceptedPorts<FaultInjector>;

/// The ports of an instance whose clock is ahead of the true time, and which dies when the handle is aborted.
pub(super) fn ports(
    deployment: Arc<SimulatedDeployment>,
    name: &str,
    clock_offset: Duration,
    abort_handle: AbortHandle,
) -> SimulatedPorts {
    let memory = deployment.memory.with_instance(name);
    let name = memory.instance.clone();
    let ports = memory.intercepted(FaultInjector { deployment, name, abort_handle });
    SimulatedPorts { clock: ports.clock.ahead_by(clock_offset), ..ports }
}

impl Interceptor for FaultInjector {
    async fn intercept<T: Send + Sync>(
        &self,
        call: PortCall<'_>,
        port_call: impl Future<Output = Result<T, PortError>> + Send,
        as_reply: impl Fn(&T) -> PortReply<'_> + Send,
    ) -> Result<T, PortError> {
        let observed_call = async move {
            let before = self.task_before(call).await?;
            if let PortCall::PutDocument(owner, _, document) = call {
                self.observe_put(owner, document).await?;
            }
            let reply = port_call.await.map_err(|error| self.check_write_error(call, error))?;
            match (call, as_reply(&reply)) {
                (PortCall::Create(task, separate), PortReply::Created(created)) => {
                    self.observe_creation(before.as_ref(), task, separate, created);
                }
                (PortCall::Save(task), PortReply::Saved(SaveOutcome::Saved)) => {
                    self.observe_save(before.as_ref(), task).await?;
                }
                (PortCall::Save(task), PortReply::Saved(SaveOutcome::Conflict(_))) => {
                    let (id, revision) = (&task.task_id, task.revision);
                    self.trace(|| format!("loses the race for {id} at revision {revision}"));
                }
                (PortCall::Claim(claim), PortReply::Claimed(outcome)) => {
                    self.observe_claim(claim, outcome);
                }
                (PortCall::DeletePayloads(keys), _) => self.observe_deletion(keys),
                _ => {}
            }
            Ok(reply)
        };
        self.inject(|| call.to_string(), observed_call).await
    }

    async fn send(
        &self,
        channel: &impl Channel,
        messages: Vec<OutgoingMessage>,
    ) -> Vec<Result<(), PortError>> {
        let count = messages.len();
        let call = async {
            let mut answers = Vec::new();
            for message in messages {
                answers.push(self.send_one(channel, message).await);
            }
            Ok(answers)
        };
        let sent = self.inject(|| format!("send {count} messages"), call).await;
        sent.unwrap_or_else(|_| (0..count).map(|_| Err(injected_error("send"))).collect())
    }

    async fn publish(
        &self,
        bus: &impl EventBus,
        events: Vec<BusEvent>,
    ) -> Vec<Result<(), PortError>> {
        let count = events.len();
        let call = async {
            let answers = bus.publish(events).await;
            for event in self.memory().bus.take() {
                self.trace(|| format!("publishes {}", event.id()));
                self.deployment.state().oracle.observe_event(&event);
            }
            Ok(answers)
        };
        let published = self.inject(|| format!("publish {count} events"), call).await;
        published.unwrap_or_else(|_| (0..count).map(|_| Err(injected_error("publish"))).collect())
    }
}

/// What the oracle learns from the calls of the store.
impl FaultInjector {
    /// The task as it is stored before a create or a save.
    async fn task_before(&self, call: PortCall<'_>) -> Result<Option<Task>, PortError> {
        if let PortCall::Create(task, _) = call {
            // The clock of the instance that records the task may be ahead.
            let skew = self.deployment.plan.timing.clock_skew;
            Ok(self.deployment.present_after(&task.task_id, skew))
        } else if let PortCall::Save(task) = call {
            self.memory().store.load(&task.task_id).await
        } else {
            Ok(None)
        }
    }

    /// Notes a failed attempt whose document was written by a decision that lost its race, with another reason.
    async fn observe_put(
        &self,
        owner: &DocumentOwner,
        document: &Document,
    ) -> Result<(), PortError> {
        let DocumentKey::Failure(AttemptId { step, action, number }) = &document.key else {
            return Ok(());
        };
        let keys = std::slice::from_ref(&document.key);
        let existing = self.memory().store.documents(owner, keys).await?;
        if existing.iter().any(|existing| existing.body != document.body) {
            let key = (owner.task_id.clone(), step.clone(), *action, *number);
            self.deployment.state().oracle.kept_reasons.insert(key);
        }
        Ok(())
    }

    fn check_write_error(&self, call: PortCall<'_>, error: PortError) -> PortError {
        let (PortCall::Create(Task { task_id, .. }, _)
        | PortCall::Save(Task { task_id, .. })
        | PortCall::PutDocument(DocumentOwner { task_id, .. }, ..)) = call
        else {
            return error;
        };
        self.deployment.check_write_error(task_id, error)
    }

    fn observe_creation(
        &self,
        earlier: Option<&Task>,
        task: &Task,
        separate: Option<&Document>,
        created: &CreateOutcome,
    ) {
        self.trace(|| format!("creates {}: {created:?}", task.task_id));
        if *created == CreateOutcome::Created {
            self.deployment.check_task(None, task);
            let now = self.deployment.now();
            let inline = task.documents.body(&DocumentKey::Submission);
            let submitted = separate.map(|document| &document.body).or(inline.as_ref());
            {
                let state = &mut *self.deployment.state();
                if state.oracle.forget_earlier_task(task, earlier) {
                    state.ledger.forget(&task.task_id);
                }
                state.oracle.observe_creation(task, submitted, &state.ledger, now);
            }
            self.deployment.schedule_early_events(task);
        }
    }

    async fn observe_save(&self, before: Option<&Task>, task: &Task) -> Result<(), PortError> {
        self.trace(|| format!("saves {}", trace_line(task)));
        let keys: Vec<_> = output_keys(task).into_iter().chain(failure_reason_keys(task)).collect();
        let documents = self.memory().store.documents_of(task, &keys).await?;
        let now = self.deployment.time();
        self.deployment.check_task(before, task);
        if let Some(before) = before {
            let state = &mut *self.deployment.state();
            state.oracle.observe_save(before, task, &documents, &state.ledger, now);
        }
        Ok(())
    }
}

impl FaultInjector {
    /// Sends one message of a batch. Each message may fail separately, before or after it is sent. Crashes and delays that
    /// are drawn here are ignored: they are drawn once for the batch.
    async fn send_one(
        &self,
        channel: &impl Channel,
        message: OutgoingMessage,
    ) -> Result<(), PortError> {
        let DrawnFault { fault, .. } = self.draw();
        let fails = matches!(fault, InjectedFault::FailsBefore | InjectedFault::FailsAfter);
        if fails {
            self.deployment.fault(&self.name, || format!("sending one message {fault:?}"));
        }
        if fault != InjectedFault::FailsBefore {
            let (queue, body, delay) = (&message.queue, &message.body, message.delay);
            self.trace(|| format!("sends to {queue:?} after {delay:?}: {body}"));
            let sent = channel.send(vec![message]).await;
            for answer in sent {
                answer?;
            }
            for message in self.memory().channel.take_all() {
                self.deployment.send_message(&message);
            }
        }
        if fails { Err(injected_error("send")) } else { Ok(()) }
    }
}

/// The error of a call that fails by injection.
fn injected_error(operation: &str) -> PortError {
    let operation = operation.to_owned();
    PortError { operation, retryable: true, source: "injected".into() }
}

/// The keys of the output documents that a task refers to.
fn output_keys(task: &Task) -> Vec<DocumentKey> {
    task.started_actions()
        .filter_map(|(step, action, progress)| progress.output(&step, action))
        .collect()
}

/// A task as a line of the trace.
fn trace_line(task: &Task) -> String {
    let mut text = format!("{} r{} {}", task.task_id, task.revision, task.process_state);
    for (step, action, progress) in task.started_actions() {
        let undo = if action == Action::Undo { "undo of " } else { "" };
        let (state, attempt) = (progress.state.name(), progress.state.attempt_count());
        let unknown_outcome = if progress.may_have_run { "?" } else { "" };
        text.push_str(&format!(", {undo}{step} {state} #{attempt}{unknown_outcome}"));
    }
    text
}
