//! Applies the events of one task in memory, one after the other. Reads the documents that the decisions need.

use std::collections::BTreeSet;

use super::{
    delivery::Delivery,
    earlier_attempts::EarlierAttempts,
    error::DriveError,
    task_outcome::{Owners, TaskOutcome},
    transition_log::TransitionLogLine,
};
use crate::{
    dispatch::{OutgoingEffect, PreparedEffect},
    metrics,
    ports::{Clock, PortError, Ports, StateStore},
    trace::TraceSpan,
};
use steward_core::{
    callback_url::CallbackUrls,
    definition::plan::Plan,
    engine::{
        decision::{DecisionContext, IgnoreReason, Transition},
        documents::{LoadedDocuments, NeededDocuments},
        effect::Effect,
        event::Event,
        transition::{stop_for_size, transition},
    },
    model::{
        attempt::AttemptId,
        document::{Document, DocumentKey, DocumentOwner},
        task::Task,
    },
};

/// The result of applying all events of one task in memory: the next state of the task, with its new documents and
/// effects, and a result for each event.
pub(super) struct TaskUpdate {
    pub(super) task: Task,
    pub(super) documents: Vec<Document>,
    effects: Vec<(OutgoingEffect, Owners)>,
    results: Vec<Result<(), DriveError>>,
    /// The outcome of each event, in a word, for its trace span.
    span_outcomes: Vec<&'static str>,
    pub(super) log_lines: Vec<TransitionLogLine>,
}

impl TaskUpdate {
    /// An update without events yet.
    fn new(task: &Task) -> Self {
        Self {
            task: task.clone(),
            documents: Vec::new(),
            effects: Vec::new(),
            results: Vec::new(),
            span_outcomes: Vec::new(),
            log_lines: Vec::new(),
        }
    }

    /// Whether the task has to be saved. `before` is the task as it was loaded.
    pub(super) fn changes(&self, before: &Task) -> bool {
        self.task.revision != before.revision
    }

    /// Moves on to the next state of the task, with a revision that is one more than the `loaded` one.
    fn advance<P: Ports>(&mut self, ports: &P, loaded: &Task, mut next: Task, event: &Event) {
        next.revision = loaded.revision + 1;
        next.saved_by = Some(ports.instance().to_owned());
        self.log_lines.push(TransitionLogLine::new(&self.task, &next, event));
        self.task = next;
    }

    /// Ends the trace spans and prepares the effects for sending. `may_have_sent` is whether an earlier delivery may
    /// have sent the effects already.
    pub(super) fn into_outcome(self, spans: Vec<TraceSpan>, may_have_sent: bool) -> TaskOutcome {
        let spans = spans.into_iter().zip(self.span_outcomes);
        for ((span, outcome), result) in spans.zip(&self.results) {
            if result.is_ok() { span.end(outcome) } else { span.fail(outcome) }
        }
        let revision = self.task.revision;
        let effects = self.effects.into_iter().map(|(mut send, owners)| {
            // A change in memory does not know how many more the save contains.
            if let Effect::ChildEnded(ended) = &mut send.effect {
                ended.revision = ended.revision.map(|_| revision);
            }
            let effect = PreparedEffect::new(send);
            (if may_have_sent { effect.mark_resent() } else { effect }, owners)
        });
        TaskOutcome { results: self.results, effects: effects.collect() }
    }

    /// The attempts in progress that were not in progress `before`.
    pub(super) fn starts(&self, before: &Task) -> Vec<AttemptId> {
        let attempts = |task: &Task| -> BTreeSet<_> {
            let running = task.running_attempts();
            running.map(|(part, action, number, _)| (part, action, number)).collect()
        };
        let started = &attempts(&self.task) - &attempts(before);
        started
            .into_iter()
            .map(|(step, action, number)| AttemptId { step, action, number })
            .collect()
    }

    /// Adds the effects of the next delivery. Several redelivered messages of a batch send the same effects again: one of
    /// them is enough for all. If one save causes two alerts with one id, or two reports to a parent task, only the later one is sent: it
    /// tells about both changes.
    fn add_effects(&mut self, effects: Vec<Effect>, traceparent: Option<&str>) {
        let delivery = self.results.len();
        for effect in effects {
            match self.effects.iter_mut().find(|(send, _)| is_same(&send.effect, &effect)) {
                Some((send, owners)) => {
                    if replaces(&effect, &send.effect) {
                        send.effect = effect;
                    }
                    owners.push(delivery);
                }
                None => {
                    let traceparent = traceparent.map(str::to_owned);
                    let tenant = self.task.tenant.clone();
                    self.effects
                        .push((OutgoingEffect { effect, traceparent, tenant }, vec![delivery]));
                }
            }
        }
    }
}

/// Whether two effects of one task are the same. Requests are equal if they are for the same attempt, events if they have the
/// same id, and reports to a parent task if the second is of the same end or of a later change.
fn is_same(one: &Effect, other: &Effect) -> bool {
    if let (Effect::Publish(one), Effect::Publish(other)) = (one, other) {
        return one.id() == other.id();
    }
    if let (Effect::Request(one), Effect::Request(other)) = (one, other) {
        return (&one.step, one.action, one.attempt) == (&other.step, other.action, other.attempt);
    }
    if let (Effect::ChildEnded(one), Effect::ChildEnded(other)) = (one, other) {
        let is_of_same = (&one.task_id, &one.step, &one.child, one.attempt)
            == (&other.task_id, &other.step, &other.child, other.attempt);
        return is_of_same && (one.outcome == other.outcome || other.revision > one.revision);
    }
    one == other
}

/// Whether an effect tells about a later change than the same one before it.
fn replaces(effect: &Effect, before: &Effect) -> bool {
    match (effect, before) {
        (Effect::ChildEnded(now), Effect::ChildEnded(before)) => now.revision > before.revision,
        (now, _) => matches!(now, Effect::Publish(_)),
    }
}

/// Applies the events of the deliveries to the task.
pub(super) async fn apply_events<P: Ports>(
    ports: &P,
    plan: &Plan,
    task: &Task,
    deliveries: &[Delivery],
    earlier: &EarlierAttempts,
    spans: &[TraceSpan],
) -> Result<TaskUpdate, PortError> {
    let lost_starts = earlier.lost_starts.as_deref();
    let (mut documents, urls) = (earlier.found.clone(), ports.callback_urls());
    read_for_all(ports, plan, task, deliveries, lost_starts, &mut documents).await?;
    let mut update = TaskUpdate::new(task);
    for (delivery, span) in deliveries.iter().zip(spans) {
        let event = &delivery.event;
        let context = context(ports, delivery, lost_starts, urls.as_deref());
        let decided = decide(ports, plan, &update.task, delivery, context, &mut documents);
        let decided = decided.await?;
        let (effects, result, outcome) = match decided {
            Transition::Apply { task: next, documents: new, effects } => {
                update.advance(ports, task, *next, event);
                documents.extend(new.iter().map(|made| (made.key.clone(), made.body.clone())));
                update.documents.extend(new);
                (effects, Ok(()), "applied")
            }
            Transition::Ignore { reason, effects } => {
                log_ignored(delivery, reason, effects.len());
                (effects, Ok(()), "ignored")
            }
            // No effect is lost with it, and a redelivery would change nothing.
            Transition::Illegal(reason)
                if event.part_and_attempt().is_some() && !event.may_report_effect() =>
            {
                let task_id = &delivery.task_id;
                tracing::warn!(%task_id, event = event.name(), reason, "event ignored");
                metrics::ignored(IgnoreReason::StaleReply);
                (Vec::new(), Ok(()), "ignored")
            }
            Transition::Illegal(reason) => {
                let task_id = delivery.task_id.clone();
                (Vec::new(), Err(DriveError::Illegal { task_id, reason }), "illegal")
            }
        };
        let traceparent = span.traceparent().or_else(|| update.task.traceparent.clone());
        update.add_effects(effects, traceparent.as_deref());
        update.results.push(result);
        update.span_outcomes.push(outcome);
    }
    Ok(update)
}

/// Stops a task whose next state is too large for the store.
pub(super) fn apply_size_limit<P: Ports>(
    ports: &P,
    plan: &Plan,
    task: &Task,
    deliveries: &[Delivery],
) -> TaskUpdate {
    let mut update = TaskUpdate::new(task);
    for delivery in deliveries {
        let context = context(ports, delivery, None, None);
        let effects = match stop_for_size(plan, &update.task, &delivery.event, context) {
            Transition::Apply { task: next, effects, .. } => {
                update.advance(ports, task, *next, &delivery.event);
                effects
            }
            Transition::Ignore { reason, effects } => {
                metrics::ignored(reason);
                effects
            }
            Transition::Illegal(_) => Vec::new(),
        };
        let traceparent = update.task.traceparent.clone();
        update.add_effects(effects, traceparent.as_deref());
        update.results.push(Ok(()));
        update.span_outcomes.push("stopped: too large");
    }
    update
}

/// Decides about one event. Reads the documents that the decision requests, and decides again.
async fn decide<P: Ports>(
    ports: &P,
    plan: &Plan,
    task: &Task,
    delivery: &Delivery,
    context: DecisionContext<'_>,
    documents: &mut LoadedDocuments,
) -> Result<Transition, PortError> {
    if delivery.is_for_another(task) {
        return Ok(Transition::Ignore {
            reason: IgnoreReason::AnotherIncarnation,
            effects: Vec::new(),
        });
    }
    // Each iteration reads documents that were not read before, and their number is small.
    loop {
        match transition(plan, task, documents, &delivery.event, context) {
            Ok(decided) => return Ok(decided),
            Err(NeededDocuments(keys)) => {
                read_documents(ports, &task.document_owner(), keys, documents).await?
            }
        }
    }
}

/// Counts and logs an event that changed nothing. `resent` is the number of effects that are sent again.
fn log_ignored(delivery: &Delivery, reason: IgnoreReason, resent: usize) {
    let Delivery { task_id, event, .. } = delivery;
    metrics::ignored(reason);
    if let Event::CallbackReceived { step, .. } = event
        && !matches!(reason, IgnoreReason::DuplicateReply | IgnoreReason::StillAwaited)
    {
        tracing::warn!(%task_id, %step, ?reason, "callback answer refused");
    }
    tracing::debug!(%task_id, event = event.name(), ?reason, resent, "event ignored");
}

/// The context of a decision. `lost_starts` is absent unless a save of the delivery lost a race, possibly to itself.
fn context<'a, P: Ports>(
    ports: &'a P,
    delivery: &Delivery,
    lost_starts: Option<&'a [AttemptId]>,
    callback_urls: Option<&'a CallbackUrls>,
) -> DecisionContext<'a> {
    DecisionContext {
        now: ports.clock().now(),
        actor: ports.instance(),
        redelivered: delivery.redelivered || lost_starts.is_some(),
        lost_starts: lost_starts.filter(|_| !delivery.redelivered),
        timing: ports.timing(),
        callback_urls,
    }
}

/// Reads the documents that several events need in one request, instead of one request for each event. Documents that an
/// event needs only because of the event before it are read later, by [`decide`].
async fn read_for_all<P: Ports>(
    ports: &P,
    plan: &Plan,
    task: &Task,
    deliveries: &[Delivery],
    lost_starts: Option<&[AttemptId]>,
    documents: &mut LoadedDocuments,
) -> Result<(), PortError> {
    let [_, _, ..] = deliveries else { return Ok(()) };
    let urls = ports.callback_urls();
    let wanted = |delivery: &Delivery| {
        let context = context(ports, delivery, lost_starts, urls.as_deref());
        transition(plan, task, documents, &delivery.event, context).err()
    };
    let for_task = deliveries.iter().filter(|delivery| !delivery.is_for_another(task));
    let keys: BTreeSet<_> =
        for_task.filter_map(wanted).flat_map(|NeededDocuments(keys)| keys).collect();
    if keys.is_empty() {
        return Ok(());
    }
    read_documents(ports, &task.document_owner(), keys, documents).await
}

/// Reads documents into `documents`, and records which of them do not exist.
async fn read_documents<P: Ports>(
    ports: &P,
    owner: &DocumentOwner,
    keys: BTreeSet<DocumentKey>,
    documents: &mut LoadedDocuments,
) -> Result<(), PortError> {
    let keys: Vec<_> = keys.into_iter().collect();
    let read = ports.store().documents(owner, &keys).await?;
    documents.extend(read.into_iter().map(|document| (document.key, document.body)));
    for key in keys {
        if !documents.contains_key(&key) {
            tracing::error!(task_id = %owner.task_id, document = %key, "a document is missing");
            documents.mark_absent(key);
        }
    }
    Ok(())
}
