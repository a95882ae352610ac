//! The drive loop: load → transition, with the documents that it wants → conditional save → effects. The scheduler and
//! the supervisor run it; submission only creates tasks, and agents only reply.
//!
//! [`drive`] takes a batch of deliveries, groups them by task, decides the groups side by side, and
//! then sends all effects together, so that ten requests make one call; only what is large goes in parts,
//! so that memory is bounded. Events of one task are folded into one save. It answers for each delivery:
//! only one that is wholly done may be acknowledged.
//!
//! ```text
//! deliveries ─┬─ task a ── load ─ decide ─ save ─┬─ effects of all, batched ─┬─ done
//!             ├─ task b ── load ─ decide ─ save ─┤                           ├─ done
//!             └─ task c ── load ─ panics ────────┘ (only its own fail)       └─ try again
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    panic::AssertUnwindSafe,
    sync::Arc,
};
use steward_core::definition::plan::Plan;

use futures_util::{FutureExt, Stream, StreamExt, stream};
use jiff::Timestamp;

use crate::{
    dispatch::{Ready, Send, send_out},
    metrics,
    ports::{Clock, Definitions, PortError, Ports, Put, Saved, StateStore, chain},
    trace::{self, Span},
};
use steward_core::{
    engine::{
        decision::{Context, Ignored, Transition},
        documents::{Documents, Wanted},
        event::Event,
        transition::{stop_for_size, transition},
    },
    model::{
        document::{Document, DocumentKey, Owner},
        messages::{Answer, ChildOutcome, Outcome, StepReply},
        names::{CallbackFence, Incarnation, TaskId},
        task::Task,
    },
    submission::is_tombstone,
};

pub use keep::keep;
use line::Line;
use race::Race;

mod keep;
mod line;
mod race;

/// How many tasks of one batch are in hand at once.
pub const TASKS_AT_ONCE: usize = 64;

/// Bytes of messages that are sent together; what comes on top is sent apart. A batch of small messages
/// never has as many, so that all of them fill their requests.
const PART_BYTES: usize = 8 * 1024 * 1024;

/// Parts on their way at once.
const PARTS_AT_ONCE: usize = 2;

/// How many documents of one task are written at once.
const DOCUMENTS_AT_ONCE: usize = 16;

/// An event on its way to a task.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// The task.
    pub task_id: TaskId,
    /// Its incarnation that the message is about; any if the message does not say.
    pub incarnation: Option<Incarnation>,
    /// What happened.
    pub event: Event,
    /// Whether the queue delivered it before.
    pub redelivered: bool,
    /// The W3C `traceparent` that it came with.
    pub traceparent: Option<String>,
}

/// Why a delivery is not done.
#[derive(Debug, thiserror::Error)]
pub enum DriveError {
    /// A port failed.
    #[error("task {task_id}")]
    Port {
        /// The task.
        task_id: TaskId,
        /// What failed; shared, since it may concern several deliveries.
        #[source]
        source: Arc<PortError>,
    },
    /// The event cannot have happened to the task.
    #[error("task {task_id}: illegal event: {reason}")]
    Illegal {
        /// The task.
        task_id: TaskId,
        /// Why.
        reason: String,
    },
    /// The task, or the workflow it is pinned to, does not exist.
    #[error("task {task_id}: there is no {what}")]
    Missing {
        /// The task.
        task_id: TaskId,
        /// What is missing.
        what: String,
    },
    /// Other writers of the task were quicker for too long.
    #[error("task {task_id}: lost {lost} races in a row to other writers")]
    Contended {
        /// The task.
        task_id: TaskId,
        /// How many.
        lost: u32,
    },
    /// The decision panicked: a bug, kept away from the rest of the batch.
    #[error("task {task_id}: panicked")]
    Panicked {
        /// The task.
        task_id: TaskId,
    },
}

impl DriveError {
    /// Whether the message may succeed when it comes again. One that may not is corrupt. A port that
    /// refuses for good may be mended before the message is a dead letter: a permission, say.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Port { .. } | Self::Contended { .. } | Self::Panicked { .. } => true,
            Self::Illegal { .. } | Self::Missing { .. } => false,
        }
    }
}

/// Drives each delivery's task one decision further. Answers in the order given.
pub async fn drive<P: Ports>(
    ports: &P,
    deliveries: Vec<Delivery>,
) -> Vec<Result<(), Arc<DriveError>>> {
    let mut answers: Vec<Result<(), Arc<DriveError>>> = deliveries.iter().map(|_| Ok(())).collect();
    let mut groups: BTreeMap<TaskId, Vec<(usize, Delivery)>> = BTreeMap::new();
    for (at, delivery) in deliveries.into_iter().enumerate() {
        groups.entry(delivery.task_id.clone()).or_default().push((at, delivery));
    }
    let decided = stream::iter(groups)
        .map(|(task_id, group)| async move {
            let (places, group): (Vec<_>, Vec<_>) = group.into_iter().unzip();
            let decided = AssertUnwindSafe(decide_group(ports, &task_id, group)).catch_unwind();
            let decided = decided
                .await
                .unwrap_or_else(|_| Err(DriveError::Panicked { task_id: task_id.clone() }));
            Group { task_id, places: places.into(), decided }
        })
        .buffer_unordered(TASKS_AT_ONCE);
    let told = in_parts(decided).map(|part| async move { tell(ports, part).await });
    let mut told = std::pin::pin!(told.buffer_unordered(PARTS_AT_ONCE));
    while let Some(part) = told.next().await {
        for (place, answer) in part {
            set(&mut answers, place, answer);
        }
    }
    answers
}

fn set<T>(answers: &mut [T], place: usize, answer: T) {
    if let Some(slot) = answers.get_mut(place) {
        *slot = answer;
    }
}

/// The deliveries of one task, by their places in the batch, and what became of them.
struct Group {
    task_id: TaskId,
    places: Arc<[usize]>,
    decided: Result<Decided, DriveError>,
}

/// The groups as they are decided: all together, unless they have more to send than memory has room for.
/// Then they go in parts, the first of which is sent while the next is decided.
fn in_parts(groups: impl Stream<Item = Group>) -> impl Stream<Item = Vec<Group>> {
    stream::unfold(Box::pin(groups), |mut groups| async move {
        let (mut part, mut bytes) = (Vec::new(), 0);
        while bytes < PART_BYTES
            && let Some(group) = groups.next().await
        {
            let ready = group.decided.iter().flat_map(|decided| &decided.ready);
            bytes += ready.map(Ready::bytes).sum::<usize>();
            part.push(group);
        }
        (!part.is_empty()).then_some((part, groups))
    })
}

/// Sends the effects of groups together. Answers for each place, the last answer being the one that
/// counts.
async fn tell<P: Ports>(
    ports: &P,
    groups: Vec<Group>,
) -> Vec<(usize, Result<(), Arc<DriveError>>)> {
    let (mut answers, mut ready, mut owners) = (Vec::new(), Vec::new(), Vec::new());
    for Group { task_id, places, decided } in groups {
        match decided {
            Err(error) => {
                let error = Arc::new(error);
                answers.extend(places.iter().map(|place| (*place, Err(error.clone()))));
            }
            Ok(decided) => {
                let results = decided.results.into_iter().map(|result| result.map_err(Arc::new));
                answers.extend(places.iter().copied().zip(results));
                owners.extend(decided.ready.iter().map(|_| (task_id.clone(), places.clone())));
                ready.extend(decided.ready);
            }
        }
    }
    let mut alerted: BTreeMap<_, _> = owners
        .iter()
        .zip(&ready)
        .filter_map(|((id, _), ready)| Some((id.clone(), ready.alerted_end()?)))
        .collect();
    let sent = send_out(ports, ready).await;
    for ((task_id, places), result) in owners.into_iter().zip(sent) {
        let Err(source) = result else { continue };
        // Whatever of the ending was not told, the notice too, is told again while the task is due.
        alerted.remove(&task_id);
        let error = Arc::new(DriveError::Port { task_id, source: Arc::new(source) });
        answers.extend(places.iter().map(|place| (*place, Err(error.clone()))));
    }
    confirm_alerts(ports, alerted).await;
    answers
}

/// What became of the deliveries of one task, and what is to be sent.
struct Decided {
    results: Vec<Result<(), DriveError>>,
    ready: Vec<Ready>,
}

impl Decided {
    /// What becomes of deliveries to the record that a child task was never begun, whose workflow may never
    /// have existed: that record does not change.
    fn for_tombstone(task_id: &TaskId, group: &[Delivery]) -> Self {
        for delivery in group {
            let event = delivery.event.name();
            tracing::warn!(%task_id, event, "event ignored: the task was undone before it began");
            metrics::ignored(Ignored::Ended);
        }
        Self { results: group.iter().map(|_| Ok(())).collect(), ready: Vec::new() }
    }

    /// What becomes of deliveries to a task that does not exist. Two kinds may come after the task has
    /// expired: the report of a child task, which is kept for longer than its parent, and the late answer
    /// to a callback. Both are ignored.
    fn without_task(task_id: &TaskId, group: &[Delivery]) -> Self {
        let result = |delivery: &Delivery| match delivery.event {
            Event::ChildEnded { .. } | Event::Answered { .. } => {
                let event = delivery.event.name();
                tracing::warn!(%task_id, event, "event ignored: there is no such task, or it has expired");
                metrics::ignored(Ignored::AnotherIncarnation);
                Ok(())
            }
            Event::Wake
            | Event::Replied(_)
            | Event::Swept
            | Event::Commanded(_)
            | Event::Asked(_)
            | Event::AlertSent { .. } => {
                let what = "such task".to_owned();
                Err(DriveError::Missing { task_id: task_id.clone(), what })
            }
        };
        Self { results: group.iter().map(result).collect(), ready: Vec::new() }
    }
}

async fn decide_group<P: Ports>(
    ports: &P,
    task_id: &TaskId,
    mut group: Vec<Delivery>,
) -> Result<Decided, DriveError> {
    let port = |source| DriveError::Port { task_id: task_id.clone(), source: Arc::new(source) };
    let missing = |what: String| DriveError::Missing { task_id: task_id.clone(), what };
    let loaded = ports.store().load(task_id).await.map_err(port)?;
    let Some(mut task) = loaded else { return Ok(Decided::without_task(task_id, &group)) };
    let (name, version) = (task.workflow.clone(), task.version);
    let workflow = ports.definitions().workflow(&name, Some(version)).await.map_err(port)?;
    let Some(workflow) = workflow else {
        let ignored = is_tombstone(&task).then(|| Decided::for_tombstone(task_id, &group));
        return ignored.ok_or_else(|| missing(format!("workflow `{name}` in version {version}")));
    };
    let spans: Vec<_> = group.iter().map(|delivery| trace::decision(delivery, &task)).collect();
    let mut race = Race::new(ports.clock().now());
    // Documents that an earlier try wrote: they are not written again.
    let mut stored = Vec::new();
    loop {
        let mut fold = fold(ports, &workflow, &task, &group, &spans).await.map_err(port)?;
        let again = group.iter().any(|delivery| delivery.redelivered);
        if fold.task.revision == task.revision {
            return Ok(fold.decided(spans, again));
        }
        let mut written = write(ports, &workflow, &task, &fold, &stored).await;
        if written.as_ref().is_err_and(PortError::is_too_large) {
            // The limit on a task's size lies below the store's, so this does not happen; but if it did, the
            // message would come back for ever.
            fold = Fold::stopped_for_size(ports, &workflow, &task, &group);
            if fold.task.revision == task.revision {
                return Ok(fold.decided(spans, again));
            }
            written = write(ports, &workflow, &task, &fold, &stored).await;
        }
        match written.map_err(port)? {
            Written::Saved => {
                fold.lines.iter().for_each(Line::log);
                metrics::saved(&task, &fold.task);
                return Ok(fold.decided(spans, again));
            }
            Written::Conflict(now) => {
                metrics::conflict();
                stored.append(&mut fold.documents);
                let before = task.revision;
                task = *now.ok_or_else(|| missing("such task any more".to_owned()))?;
                // The save that came first may be our own, whose answer was lost, and others may have saved
                // since. Another's effects are another's to send.
                let own = task.saved_by.as_deref() == Some(ports.instance())
                    || task.revision > before + 1;
                group.iter_mut().for_each(|delivery| delivery.redelivered |= own);
                let pause = race.lost(ports.instance(), task_id, ports.clock().now());
                let Some(pause) = pause else {
                    return Err(DriveError::Contended {
                        task_id: task_id.clone(),
                        lost: race.losses(),
                    });
                };
                if !pause.is_zero() {
                    drop(fold);
                    ports.clock().pause(pause).await;
                    // Others have saved in the meantime: what the refusal brought is old.
                    let loaded = ports.store().load(task_id).await.map_err(port)?;
                    task = loaded.ok_or_else(|| missing("such task any more".to_owned()))?;
                }
            }
            // An earlier attempt to save got as far as the document. What it says stands.
            Written::Document(key, body) => {
                group.iter_mut().for_each(|d| adopt(d, &key, &body));
                if !race.met_document(group.len()) {
                    return Err(DriveError::Contended {
                        task_id: task_id.clone(),
                        lost: race.losses(),
                    });
                }
            }
        }
    }
}

/// All events of one task, applied one after the other in memory.
struct Fold {
    task: Task,
    documents: Vec<Document>,
    sends: Vec<Send>,
    results: Vec<Result<(), DriveError>>,
    /// What became of each event, in a word.
    outcomes: Vec<&'static str>,
    lines: Vec<Line>,
}

impl Fold {
    fn of(task: &Task) -> Self {
        Self {
            task: task.clone(),
            documents: Vec::new(),
            sends: Vec::new(),
            results: Vec::new(),
            outcomes: Vec::new(),
            lines: Vec::new(),
        }
    }

    /// What becomes of a task whose next state the store refuses to take, since it is too large.
    fn stopped_for_size<P: Ports>(
        ports: &P,
        workflow: &Plan,
        task: &Task,
        group: &[Delivery],
    ) -> Self {
        let mut fold = Self::of(task);
        for delivery in group {
            let context = context(ports, delivery);
            let effects = match stop_for_size(workflow, &fold.task, &delivery.event, context) {
                Transition::Apply { task: mut next, effects, .. } => {
                    next.revision = task.revision + 1;
                    next.saved_by = Some(ports.instance().to_owned());
                    fold.lines.push(Line::of(&fold.task, &next, &delivery.event));
                    fold.task = *next;
                    effects
                }
                Transition::Ignore { reason, effects } => {
                    metrics::ignored(reason);
                    effects
                }
                Transition::Illegal(_) => Vec::new(),
            };
            let traceparent = fold.task.traceparent.clone();
            let send = |effect| Send { effect, traceparent: traceparent.clone() };
            fold.sends.extend(effects.into_iter().map(send));
            fold.results.push(Ok(()));
            fold.outcomes.push("stopped: too large");
        }
        fold
    }

    fn decided(self, spans: Vec<Span>, again: bool) -> Decided {
        for ((span, outcome), result) in spans.into_iter().zip(self.outcomes).zip(&self.results) {
            if result.is_ok() { span.end(outcome) } else { span.fail(outcome) }
        }
        let ready = self.sends.into_iter().map(Ready::of);
        let ready = ready.map(|ready| if again { ready.sent_again() } else { ready }).collect();
        Decided { results: self.results, ready }
    }
}

async fn fold<P: Ports>(
    ports: &P,
    workflow: &Plan,
    task: &Task,
    group: &[Delivery],
    spans: &[Span],
) -> Result<Fold, PortError> {
    let mut at_hand = Documents::new();
    fetch_for_all(ports, workflow, task, group, &mut at_hand).await?;
    let mut fold = Fold::of(task);
    for (delivery, span) in group.iter().zip(spans) {
        let (Delivery { task_id, event, .. }, context) = (delivery, context(ports, delivery));
        // Each round brings documents that were not at hand, and there are not many.
        let decided = loop {
            if fold.task.is_another(delivery.incarnation) {
                let reason = Ignored::AnotherIncarnation;
                break Transition::Ignore { reason, effects: Vec::new() };
            }
            match transition(workflow, &fold.task, &at_hand, event, context) {
                Ok(decided) => break decided,
                Err(Wanted(keys)) => {
                    fetch(ports, &fold.task.owner(), keys, &mut at_hand).await?;
                }
            }
        };
        let (effects, result, outcome) = match decided {
            Transition::Apply { task: mut next, documents, effects } => {
                next.revision = task.revision + 1;
                next.saved_by = Some(ports.instance().to_owned());
                fold.lines.push(Line::of(&fold.task, &next, event));
                at_hand.extend(documents.iter().map(|made| (made.key.clone(), made.body.clone())));
                fold.documents.extend(documents);
                fold.task = *next;
                (effects, Ok(()), "applied")
            }
            Transition::Ignore { reason, effects } => {
                metrics::ignored(reason);
                if let Event::Answered { step, .. } = event
                    && !matches!(reason, Ignored::DuplicateReply | Ignored::StillAwaited)
                {
                    tracing::warn!(%task_id, %step, ?reason, "callback answer refused");
                }
                let (event, resent) = (event.name(), effects.len());
                tracing::debug!(%task_id, event, ?reason, resent, "event ignored");
                (effects, Ok(()), "ignored")
            }
            Transition::Illegal(reason) => {
                let illegal = DriveError::Illegal { task_id: task_id.clone(), reason };
                (Vec::new(), Err(illegal), "illegal")
            }
        };
        let traceparent = span.traceparent().or_else(|| fold.task.traceparent.clone());
        fold.sends.extend(
            effects.into_iter().map(|effect| Send { effect, traceparent: traceparent.clone() }),
        );
        fold.results.push(result);
        fold.outcomes.push(outcome);
    }
    Ok(fold)
}

fn context<'a, P: Ports>(ports: &'a P, delivery: &Delivery) -> Context<'a> {
    Context {
        now: ports.clock().now(),
        actor: ports.instance(),
        redelivered: delivery.redelivered,
        timing: ports.timing(),
    }
}

/// Reads what the events of a group want, together: folded one after the other, each would wait for its
/// own. What an event wants because of the one before it is read when its turn comes.
async fn fetch_for_all<P: Ports>(
    ports: &P,
    workflow: &Plan,
    task: &Task,
    group: &[Delivery],
    at_hand: &mut Documents,
) -> Result<(), PortError> {
    let [_, _, ..] = group else { return Ok(()) };
    let wants = |delivery: &Delivery| {
        transition(workflow, task, at_hand, &delivery.event, context(ports, delivery)).err()
    };
    let meant = group.iter().filter(|delivery| !task.is_another(delivery.incarnation));
    let keys: BTreeSet<_> = meant.filter_map(wants).flat_map(|Wanted(keys)| keys).collect();
    if keys.is_empty() { Ok(()) } else { fetch(ports, &task.owner(), keys, at_hand).await }
}

/// Reads documents, and notes those that are missing.
async fn fetch<P: Ports>(
    ports: &P,
    owner: &Owner,
    keys: BTreeSet<DocumentKey>,
    at_hand: &mut Documents,
) -> Result<(), PortError> {
    let keys: Vec<_> = keys.into_iter().collect();
    let read = ports.store().documents(owner, &keys).await?;
    at_hand.extend(read.into_iter().map(|document| (document.key, document.body)));
    for key in keys {
        if !at_hand.contains_key(&key) {
            tracing::error!(task_id = %owner.task_id, document = %key, "a document is missing");
            at_hand.note_missing(key);
        }
    }
    Ok(())
}

enum Written {
    Saved,
    Conflict(Option<Box<Task>>),
    Document(DocumentKey, serde_json::Value),
}

/// Documents first, then the save that refers to them; but for documents that are `stored` already. What
/// the task refers to is kept for longer before the task that lives longer is saved.
async fn write<P: Ports>(
    ports: &P,
    workflow: &Plan,
    before: &Task,
    fold: &Fold,
    stored: &[Document],
) -> Result<Written, PortError> {
    if fold.task.kept_from > before.kept_from {
        Box::pin(keep::for_longer(ports, workflow, &fold.task)).await?;
    }
    let (owner, kept) = (fold.task.owner(), fold.task.kept());
    let is_stored = |document: &&Document| {
        stored.iter().any(|old| old.key == document.key && old.body == document.body)
    };
    let documents: Vec<_> = fold.documents.iter().filter(|made| !is_stored(made)).collect();
    let puts = documents.iter().map(|document| ports.store().put_document(&owner, kept, document));
    let puts: Vec<_> =
        stream::iter(puts.collect::<Vec<_>>()).buffered(DOCUMENTS_AT_ONCE).collect().await;
    for (document, put) in documents.into_iter().zip(puts) {
        match put? {
            Put::Stored => {}
            Put::Existing(body) => match document.key {
                DocumentKey::Output(_) if body != document.body => {
                    return Ok(Written::Document(document.key.clone(), body));
                }
                // Nothing is decided by why an attempt failed: the first reason written stays. And a
                // command edits the input once.
                DocumentKey::Output(_)
                | DocumentKey::ByHand(..)
                | DocumentKey::Result(_)
                | DocumentKey::Failure(_)
                | DocumentKey::Deferral(_)
                | DocumentKey::Claim(_)
                | DocumentKey::Input(_)
                | DocumentKey::Submission => {}
            },
        }
    }
    Ok(match ports.store().save(&fold.task).await? {
        Saved::Saved => Written::Saved,
        Saved::Conflict(now) => Written::Conflict(now),
    })
}

/// Lets an answer say what an earlier answer to the same attempt said, whose document is stored.
fn adopt(delivery: &mut Delivery, key: &DocumentKey, body: &serde_json::Value) {
    let DocumentKey::Output(stored) = key else { return };
    match &mut delivery.event {
        Event::Replied(StepReply { step, action, attempt, outcome, .. })
            if (&*step, *action, *attempt) == (&stored.step, stored.action, stored.number) =>
        {
            let may_continue = !matches!(outcome, Outcome::Completed { may_continue: false, .. });
            *outcome = Outcome::Completed { output: body.clone(), may_continue };
        }
        Event::Answered { step, fence, answer: Answer::Completed { output } }
            if *step == stored.step && may_be_of(fence, stored.number) =>
        {
            *output = body.clone();
        }
        Event::ChildEnded { step, outcome: ChildOutcome::Processed { output }, .. }
            if *step == stored.step =>
        {
            *output = body.clone();
        }
        Event::Wake
        | Event::Replied(_)
        | Event::Swept
        | Event::Commanded(_)
        | Event::Answered { .. }
        | Event::Asked(_)
        | Event::ChildEnded { .. }
        | Event::AlertSent { .. } => {}
    }
}

/// Whether an answer may be to this attempt, which was the newest when it was decided on.
fn may_be_of(fence: &CallbackFence, attempt: u32) -> bool {
    match fence {
        CallbackFence::Attempt(number) => *number == attempt,
        CallbackFence::Request { .. } => true,
    }
}

/// A task in Error stays due until its alert is out. If this save is lost, the supervisor alerts
/// again: at least once.
async fn confirm_alerts<P: Ports>(ports: &P, alerted: BTreeMap<TaskId, Timestamp>) {
    let confirmed = stream::iter(alerted).map(|(task_id, ended_at)| async move {
        let event = Event::AlertSent { ended_at };
        let task = task_id.clone();
        let delivery = Delivery {
            task_id: task,
            incarnation: None,
            event,
            redelivered: false,
            traceparent: None,
        };
        if let Err(error) = decide_group(ports, &task_id, vec![delivery]).await {
            tracing::warn!(error = chain(&error), "alert sent, but not recorded as sent");
        }
    });
    confirmed.buffer_unordered(TASKS_AT_ONCE).collect::<()>().await;
}
