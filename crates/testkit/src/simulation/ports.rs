//! The in-memory ports as one instance reaches them: every call passes one [`Seam`], where it can be
//! slow, fail before or after it took effect, or be the last thing its instance does.

use std::{fmt, future::Future, ops::Range, sync::Arc, time::Duration};
use steward_core::definition::plan::Plan;

use futures_util::future::AbortHandle;
use jiff::Timestamp;
use steward_core::model::{
    attempt::Action,
    document::{Document, DocumentKey, Kept, Owner},
    events::BusEvent,
    names::{TaskId, WorkflowName},
    task::{ProcessState, Task},
    time::{Timing, later},
};
use steward_operator::view::reason_keys;
use steward_runtime::ports::{
    Channel, Clock, Created, Definitions, DueCursor, DuePage, Ended, EndedPage, EventBus, Outgoing,
    PortError, Ports, Put, Saved, Shared, SharedKey, SharedKind, SharedSaved, StateStore,
};

use super::{
    plan::{Millis, SECOND},
    world::World,
};
use crate::memory::MemoryPorts;

/// The one place that all calls of an instance pass.
#[derive(Clone)]
pub(super) struct Seam {
    pub(super) world: Arc<World>,
    name: Arc<str>,
    clock_ahead: Duration,
    life: AbortHandle,
}

/// What becomes of a port call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Fine,
    FailsBefore,
    FailsAfter,
    DiesBefore,
    DiesAfter,
}

impl Seam {
    /// Draws what becomes of a call, and how long it takes before and after it takes effect.
    fn draw(&self) -> (Fate, Millis, Millis) {
        let weather = &self.world.plan.weather;
        let mut state = self.world.state();
        let (mut before, after) = (state.dice.within(0..=6), state.dice.within(0..=3));
        if !state.storm {
            return (Fate::Fine, before, after);
        }
        if state.dice.chance(weather.slow) {
            before += state.dice.skewed(20 * SECOND);
        }
        let dies = state.dice.chance(weather.die);
        let late = state.dice.chance(0.5);
        let fate = match (dies, late) {
            (true, true) => Fate::DiesAfter,
            (true, false) => Fate::DiesBefore,
            (false, _) if state.dice.chance(weather.fail_before) => Fate::FailsBefore,
            (false, _) if state.dice.chance(weather.fail_after) => Fate::FailsAfter,
            (false, _) => Fate::Fine,
        };
        (fate, before, after)
    }

    async fn pass<T>(
        &self,
        operation: impl Fn() -> String,
        act: impl Future<Output = Result<T, PortError>>,
    ) -> Result<T, PortError> {
        let (fate, before, after) = self.draw();
        self.linger(before).await;
        match fate {
            Fate::FailsBefore => return Err(self.fails(&operation, "before it took effect")),
            Fate::DiesBefore => return self.dies(&operation, "before").await,
            Fate::Fine | Fate::FailsAfter | Fate::DiesAfter => {}
        }
        self.world.set_clock();
        let result = act.await;
        match fate {
            Fate::DiesAfter => return self.dies(&operation, "after").await,
            Fate::FailsAfter => return Err(self.fails(&operation, "after it took effect")),
            Fate::Fine | Fate::FailsBefore | Fate::DiesBefore => {}
        }
        self.linger(after).await;
        result
    }

    /// Takes time; for ever, if the instance is dead by then.
    async fn linger(&self, time: Millis) {
        if time > 0 {
            tokio::time::sleep(Duration::from_millis(time)).await;
        }
        if self.life.is_aborted() {
            std::future::pending::<()>().await;
        }
    }

    fn fails(&self, operation: &impl Fn() -> String, when: &str) -> PortError {
        self.world.fault(&self.name, || format!("{} fails {when}", operation()));
        PortError { operation: operation(), retryable: true, source: "injected".into() }
    }

    async fn dies<T>(&self, operation: &impl Fn() -> String, when: &str) -> T {
        self.world.fault(&self.name, || format!("dies {when}: {}", operation()));
        self.life.abort();
        std::future::pending().await
    }

    /// Whether the instance is dead.
    pub(super) fn is_dead(&self) -> bool {
        self.life.is_aborted()
    }

    /// Whose calls these are.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    fn note(&self, what: impl FnOnce() -> String) {
        self.world.note(&self.name, what);
    }

    fn memory(&self) -> &MemoryPorts {
        &self.world.memory
    }
}

impl fmt::Debug for Seam {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// All ports of one simulated instance.
#[derive(Debug, Clone)]
pub(super) struct SimPorts(Seam);

impl SimPorts {
    pub(super) fn new(
        world: Arc<World>,
        name: &str,
        clock_ahead: Duration,
        life: AbortHandle,
    ) -> Self {
        Self(Seam { world, name: name.into(), clock_ahead, life })
    }

    pub(super) fn seam(&self) -> Seam {
        self.0.clone()
    }
}

/// Each port is the same seam.
impl Ports for SimPorts {
    type Store = Seam;
    type Definitions = Seam;
    type Channel = Seam;
    type Bus = Seam;
    type Clock = Seam;

    fn store(&self) -> &Seam {
        &self.0
    }
    fn definitions(&self) -> &Seam {
        &self.0
    }
    fn channel(&self) -> &Seam {
        &self.0
    }
    fn bus(&self) -> &Seam {
        &self.0
    }
    fn clock(&self) -> &Seam {
        &self.0
    }
    fn timing(&self) -> Timing {
        self.0.world.plan.timing
    }
    fn instance(&self) -> &str {
        &self.0.name
    }
}

impl Clock for Seam {
    fn now(&self) -> Timestamp {
        later(self.world.time(), self.clock_ahead)
    }

    async fn pause(&self, duration: Duration) {
        self.linger(u64::try_from(duration.as_millis()).unwrap_or(Millis::MAX)).await;
    }
}

impl Definitions for Seam {
    async fn workflow(
        &self,
        name: &WorkflowName,
        version: Option<u32>,
    ) -> Result<Option<Arc<Plan>>, PortError> {
        let operation = || format!("read workflow {name}");
        self.pass(operation, self.memory().definitions().workflow(name, version)).await
    }

    async fn published(
        &self,
        name: &WorkflowName,
        version: Option<u32>,
    ) -> Result<Option<Arc<Plan>>, PortError> {
        let operation = || format!("read workflow {name} for a new task");
        self.pass(operation, self.memory().definitions().published(name, version)).await
    }

    async fn triggered(
        &self,
        source: &str,
        detail_type: &str,
    ) -> Result<Vec<Arc<Plan>>, PortError> {
        let operation = || format!("read the workflows that {source} triggers");
        self.pass(operation, self.memory().definitions().triggered(source, detail_type)).await
    }
}

impl StateStore for Seam {
    async fn load(&self, id: &TaskId) -> Result<Option<Task>, PortError> {
        self.pass(|| format!("load {id}"), self.memory().store().load(id)).await
    }

    async fn create(&self, task: &Task, submitted: &Document) -> Result<Created, PortError> {
        let id = &task.task_id;
        let act = async {
            let earlier = self.world.present(id);
            let created = self.memory().store().create(task, submitted).await;
            let created = created.map_err(|error| self.world.judge_refusal(id, error))?;
            self.note(|| format!("creates {id}: {created:?}"));
            if created == Created::Created {
                self.world.judge_size(None, task);
                let now = self.world.now();
                let state = &mut *self.world.state();
                if state.oracle.forgets(task, earlier.as_ref()) {
                    state.ledger.forget(id);
                }
                state.oracle.recorded(task, &submitted.body, &state.ledger, now);
            }
            Ok(created)
        };
        self.pass(|| format!("create {id}"), act).await
    }

    async fn save(&self, task: &Task) -> Result<Saved, PortError> {
        let id = &task.task_id;
        let act = async {
            let store = self.memory().store();
            let before = store.load(id).await?;
            let saved = store.save(task).await;
            let saved = saved.map_err(|error| self.world.judge_refusal(id, error))?;
            if saved == Saved::Saved {
                self.note(|| format!("saves {}", summary(task)));
                let keys: Vec<_> = outputs(task).into_iter().chain(reason_keys(task)).collect();
                let documents = store.documents(&task.owner(), &keys).await?;
                let now = self.world.time();
                self.world.judge_size(before.as_ref(), task);
                if let Some(before) = before {
                    let state = &mut *self.world.state();
                    state.oracle.saved(&before, task, &documents, &state.ledger, now);
                }
            } else {
                self.note(|| format!("loses the race for {id} at revision {}", task.revision));
            }
            Ok(saved)
        };
        self.pass(|| format!("save {id} revision {}", task.revision), act).await
    }

    async fn put_document(
        &self,
        owner: &Owner,
        kept: Kept,
        document: &Document,
    ) -> Result<Put, PortError> {
        let operation = || format!("write {} {}", owner.task_id, document.key);
        let act = async {
            let put = self.memory().store().put_document(owner, kept, document).await;
            put.map_err(|error| self.world.judge_refusal(&owner.task_id, error))
        };
        self.pass(operation, act).await
    }

    async fn extend_documents(&self, owner: &Owner, kept: Kept) -> Result<(), PortError> {
        let operation = || format!("keep documents of {} for longer", owner.task_id);
        self.pass(operation, self.memory().store().extend_documents(owner, kept)).await
    }

    async fn documents(
        &self,
        owner: &Owner,
        keys: &[DocumentKey],
    ) -> Result<Vec<Document>, PortError> {
        let operation = || format!("read documents of {}", owner.task_id);
        self.pass(operation, self.memory().store().documents(owner, keys)).await
    }

    async fn due(
        &self,
        shard: u32,
        until: Timestamp,
        after: Option<&DueCursor>,
    ) -> Result<DuePage, PortError> {
        let operation = || format!("read the due index, shard {shard}");
        self.pass(operation, self.memory().store().due(shard, until, after)).await
    }

    async fn ended(
        &self,
        state: ProcessState,
        part: u32,
        within: Range<Timestamp>,
        after: Option<&Ended>,
    ) -> Result<EndedPage, PortError> {
        let operation = || format!("read the ended tasks, part {part}");
        self.pass(operation, self.memory().store().ended(state, part, within, after)).await
    }

    fn shards(&self) -> u32 {
        self.memory().store().shards()
    }

    async fn shared(&self, key: &SharedKey) -> Result<Option<Shared>, PortError> {
        self.pass(|| format!("read {}", key.name), self.memory().store().shared(key)).await
    }

    async fn save_shared(&self, shared: &Shared) -> Result<SharedSaved, PortError> {
        let operation = || format!("save {}", shared.key.name);
        self.pass(operation, self.memory().store().save_shared(shared)).await
    }

    async fn all_shared(&self, kind: SharedKind) -> Result<Vec<Shared>, PortError> {
        let operation = || format!("read all {}", kind.name());
        self.pass(operation, self.memory().store().all_shared(kind)).await
    }
}

impl Channel for Seam {
    async fn send(&self, messages: Vec<Outgoing>) -> Vec<Result<(), PortError>> {
        let count = messages.len();
        let act = async {
            let mut answers = Vec::new();
            for message in messages {
                answers.push(self.send_one(message).await);
            }
            Ok(answers)
        };
        let sent = self.pass(|| format!("send {count} messages"), act).await;
        sent.unwrap_or_else(|_| (0..count).map(|_| Err(unsent("send"))).collect())
    }

    async fn dead_letters(&self) -> Result<Vec<(String, u64)>, PortError> {
        Ok(Vec::new())
    }
}

impl Seam {
    /// One message of a batch; each can fail by itself.
    async fn send_one(&self, message: Outgoing) -> Result<(), PortError> {
        let (fate, ..) = self.draw();
        let fails = matches!(fate, Fate::FailsBefore | Fate::FailsAfter);
        if fails {
            self.world.fault(&self.name, || format!("sending one message {fate:?}"));
        }
        if fate != Fate::FailsBefore {
            let (queue, body, delay) = (&message.queue, &message.body, message.delay);
            self.note(|| format!("sends to {queue:?} after {delay:?}: {body}"));
            let sent = self.memory().channel().send(vec![message]).await;
            for answer in sent {
                answer?;
            }
            for message in self.memory().channel().take_all() {
                self.world.carry(&message);
            }
        }
        if fails { Err(unsent("send")) } else { Ok(()) }
    }
}

impl EventBus for Seam {
    async fn publish(&self, events: Vec<BusEvent>) -> Vec<Result<(), PortError>> {
        let count = events.len();
        let act = async {
            self.memory().bus().publish(events).await;
            for event in self.memory().bus().take() {
                let metadata = &event.metadata;
                self.note(|| format!("publishes {}", metadata.event_id));
                self.world.state().oracle.published(&event);
            }
            Ok((0..count).map(|_| Ok(())).collect())
        };
        let published = self.pass(|| format!("publish {count} events"), act).await;
        published.unwrap_or_else(|_| (0..count).map(|_| Err(unsent("publish"))).collect())
    }
}

fn unsent(operation: &str) -> PortError {
    let operation = operation.to_owned();
    PortError { operation, retryable: true, source: "injected".into() }
}

/// The outputs that a task refers to.
fn outputs(task: &Task) -> Vec<DocumentKey> {
    task.actions().filter_map(|(step, action, progress)| progress.output(&step, action)).collect()
}

/// A task on one line of the trace.
fn summary(task: &Task) -> String {
    let mut text = format!("{} r{} {}", task.task_id, task.revision, task.process_state);
    for (step, action, progress) in task.actions() {
        let undo = if action == Action::Undo { "undo of " } else { "" };
        let (state, attempt) = (progress.state.name(), progress.state.attempt());
        let doubt = if progress.may_have_run { "?" } else { "" };
        text.push_str(&format!(", {undo}{step} {state} #{attempt}{doubt}"));
    }
    text
}
