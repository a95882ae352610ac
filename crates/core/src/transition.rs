//! The one decision: given a task, its workflow and an event, what is the task next, and what must
//! be told to whom? Pure: no clock, no I/O, no randomness.
//!
//! | state      | event                            | becomes    | and                                    |
//! | ---------- | -------------------------------- | ---------- | -------------------------------------- |
//! | Pending    | wake                             | Processing | first steps run; requests              |
//! | Pending    | wake, request impossible         | Error      | alert, notice                          |
//! | Pending    | swept, past due                  | Pending    | due later; wake                        |
//! | Pending    | swept, task past due             | Error      | alert, notice                          |
//! | Pending    | reply                            | illegal    |                                        |
//! | Processing | wake                             | Processing | waiting steps run again; requests      |
//! | Processing | reply completed                  | Processing | next steps run; requests               |
//! | Processing | reply completed, last            | Processed  | notice                                 |
//! | Processing | reply completed, next impossible | Error      | alert, notice                          |
//! | Processing | reply completed, too large       | Error      | alert, notice                          |
//! | Processing | reply failed                     | Error      | alert, notice                          |
//! | Processing | swept, step past due             | Processing | failure counted, step waits; wake      |
//! | Processing | same, attempts used up           | Error      | alert, notice                          |
//! | Processing | swept, task past due             | Error      | alert, notice                          |
//! | Processing | swept, nothing past due          | Processing | due moves on                           |
//! | Error      | reply completed                  | Error      | recorded, so that nothing is forgotten |
//! | Error      | reply failed                     | Error      | recorded                               |
//! | Error      | swept, alert unsent              | Error      | alert, notice again                    |
//! | Error      | alert sent                       | Error      | no longer due                          |
//!
//! A duplicate, a stale attempt, a reply after complete-by: ignored. If the ignored message was
//! delivered before, the effects of its first delivery may have been lost with the process, so they
//! are given again: the first three columns say what is saved, and only then is anything sent.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    effects::Effect,
    limits,
    messages::{
        Alert, BusEvent, NoticeStatus, Outcome, StatusNotice, StepReply, StepRequest, TaskEnded,
        Wake, WakeCause, idempotency_key,
    },
    names::StepName,
    ports::{Document, DocumentKey, Timing},
    task::{ProcessState, StepRecord, StepState, Task, later},
    template::Scope,
    workflow::Workflow,
};

/// Something that happened to a task.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// Someone asks to see what the task needs.
    Wake,
    /// An agent answered.
    Replied(StepReply),
    /// The supervisor found the task in the due index.
    Swept,
    /// The alert of a task in Error has been published.
    AlertSent,
}

impl Event {
    /// The event's name, as logs say it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Wake => "wake",
            Self::Replied(reply) => match reply.outcome {
                Outcome::Completed { .. } => "completed",
                Outcome::Failed { .. } => "failed",
            },
            Self::Swept => "swept",
            Self::AlertSent => "alert_sent",
        }
    }

    /// The step and attempt it is about, if it is about one.
    #[must_use]
    pub fn step(&self) -> Option<(&StepName, u32)> {
        match self {
            Self::Replied(reply) => Some((&reply.step, reply.attempt)),
            Self::Wake | Self::Swept | Self::AlertSent => None,
        }
    }
}

/// What a decision needs to know beside the task.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// The time.
    pub now: Timestamp,
    /// Who decides, for `locked_by`.
    pub actor: &'a str,
    /// Whether this message may have been acted on before: the queue delivered it before, or a save
    /// was lost to one that may have been our own.
    pub redelivered: bool,
    /// The deployment's times.
    pub timing: Timing,
}

/// The documents at hand, by key.
pub type Documents = BTreeMap<DocumentKey, Value>;

/// Why an event changed nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ignored {
    /// The reply has been recorded before.
    DuplicateReply,
    /// The reply is of an attempt that has been superseded or given up.
    StaleReply,
    /// The reply came after complete-by.
    LateReply,
    /// There is nothing to start.
    NothingReady,
    /// Nothing is past due.
    NotDue,
    /// The task has ended.
    Ended,
}

/// A decision.
#[derive(Debug, Clone, PartialEq)]
pub enum Transition {
    /// Write the documents, save the task, then carry out the effects; in this order.
    Apply {
        /// The task as it becomes; its revision is the caller's to set.
        task: Box<Task>,
        /// What the new state refers to.
        documents: Vec<Document>,
        /// What to tell whom.
        effects: Vec<Effect>,
    },
    /// Save nothing; carry out the effects, which an earlier delivery may have lost.
    Ignore {
        /// Why.
        reason: Ignored,
        /// What may have been lost.
        effects: Vec<Effect>,
    },
    /// The event cannot have happened to this task: corruption, or a foreign message.
    Illegal(String),
}

/// Which documents [`transition`] will want.
#[must_use]
pub fn needs(
    workflow: &Workflow,
    task: &Task,
    event: &Event,
    context: Context<'_>,
) -> BTreeSet<DocumentKey> {
    let (after, send, made) = match decide(workflow, task, event, context) {
        Decision::Change(change) => (change.task, change.send, change.documents),
        Decision::Ignore { send, .. } => (task.clone(), send, Vec::new()),
        Decision::Illegal(_) => return BTreeSet::new(),
    };
    let mut keys: BTreeSet<_> = send
        .iter()
        .filter_map(|step| workflow.steps.get(step))
        .flat_map(|step| step.request.templates())
        .flat_map(|template| {
            let reads = template.reads();
            let outputs = reads.steps.iter().filter_map(|step| output_key(&after, step));
            outputs.chain(reads.input.then_some(DocumentKey::Submission))
        })
        .collect();
    // What this very event brings along need not be read.
    for document in made {
        keys.remove(&document.key);
    }
    keys
}

/// Decides. `documents` holds at least what [`needs`] asked for.
#[must_use]
pub fn transition(
    workflow: &Workflow,
    task: &Task,
    documents: &Documents,
    event: &Event,
    context: Context<'_>,
) -> Transition {
    match decide(workflow, task, event, context) {
        Decision::Change(mut change) => {
            change.render(task, workflow, documents, context);
            change.settle(task, workflow, context)
        }
        Decision::Ignore { reason, send, tell } => {
            let requests = send.iter().filter_map(|step| {
                request(workflow, task, documents, step).ok().map(Effect::Request)
            });
            Transition::Ignore { reason, effects: requests.chain(tell).collect() }
        }
        Decision::Illegal(reason) => Transition::Illegal(reason),
    }
}

/// A decision before its requests are rendered: state alone decides it, no document does.
enum Decision {
    Change(Box<Change>),
    Ignore { reason: Ignored, send: Vec<StepName>, tell: Vec<Effect> },
    Illegal(String),
}

/// A change in the making.
struct Change {
    task: Task,
    /// Steps to send to their agents.
    send: Vec<StepName>,
    /// Their requests, once rendered.
    requests: Vec<StepRequest>,
    documents: Vec<Document>,
    /// Whether the scheduler must be woken after the save.
    wake: bool,
    /// Whether the alert of a task that was in Error already is given again.
    alert_again: bool,
    /// Whether `due` is set anew (a sweep looked at all of it) or only moved earlier.
    due_anew: bool,
}

impl Change {
    fn of(task: &Task) -> Box<Self> {
        Box::new(Self {
            task: task.clone(),
            send: Vec::new(),
            requests: Vec::new(),
            documents: Vec::new(),
            wake: false,
            alert_again: false,
            due_anew: false,
        })
    }
}

fn decide(workflow: &Workflow, task: &Task, event: &Event, context: Context<'_>) -> Decision {
    let ignore = |reason| Decision::Ignore { reason, send: Vec::new(), tell: Vec::new() };
    match task.process_state {
        ProcessState::Pending => match event {
            Event::Wake => run_ready(workflow, task, context),
            Event::Swept => sweep_pending(task, context),
            Event::Replied(reply) => {
                Decision::Illegal(format!("a reply to step `{}`, which never started", reply.step))
            }
            Event::AlertSent => Decision::Illegal("no alert was raised".to_owned()),
        },
        ProcessState::Processing => match event {
            Event::Wake => run_ready(workflow, task, context),
            Event::Swept => sweep_processing(workflow, task, context),
            Event::Replied(reply) => replied(workflow, task, reply, context),
            Event::AlertSent => Decision::Illegal("no alert was raised".to_owned()),
        },
        ProcessState::Processed => match event {
            Event::Wake => ended(workflow, task, context),
            Event::Swept => ignore(Ignored::Ended),
            Event::Replied(reply) => replied(workflow, task, reply, context),
            Event::AlertSent => Decision::Illegal("no alert was raised".to_owned()),
        },
        ProcessState::Error => match event {
            Event::Wake => ended(workflow, task, context),
            Event::Replied(reply) => replied(workflow, task, reply, context),
            Event::Swept => sweep_error(task, context),
            Event::AlertSent => alert_sent(task),
        },
    }
}

/// A wake of a task that has ended. It may itself have ended it: by a request that cannot be made.
fn ended(workflow: &Workflow, task: &Task, context: Context<'_>) -> Decision {
    let tell = match task.process_state {
        ProcessState::Error if context.redelivered => ending(task, workflow),
        ProcessState::Pending
        | ProcessState::Processing
        | ProcessState::Processed
        | ProcessState::Error => Vec::new(),
    };
    Decision::Ignore { reason: Ignored::Ended, send: Vec::new(), tell }
}

/// Starts what can start: steps whose predecessors completed, and steps that waited long enough.
fn run_ready(workflow: &Workflow, task: &Task, context: Context<'_>) -> Decision {
    let again = if context.redelivered { running(task, |_| true) } else { Vec::new() };
    let mut change = Change::of(task);
    change.start_ready(workflow, context);
    if change.send.is_empty() {
        return Decision::Ignore { reason: Ignored::NothingReady, send: again, tell: Vec::new() };
    }
    // What has become ready since must not hide what the first delivery may have lost.
    change.send.extend(again);
    change.task.process_state = ProcessState::Processing;
    Decision::Change(change)
}

fn replied(workflow: &Workflow, task: &Task, reply: &StepReply, context: Context<'_>) -> Decision {
    let Some(record) = task.steps.get(&reply.step) else {
        return Decision::Illegal(format!("a reply to step `{}`, which never started", reply.step));
    };
    let newest = record.state.attempt();
    if reply.attempt > newest || reply.attempt == 0 {
        let (step, attempt) = (&reply.step, reply.attempt);
        return Decision::Illegal(format!(
            "a reply to attempt {attempt} at step `{step}`, of {newest}"
        ));
    }
    let ignore = |reason| Decision::Ignore { reason, send: Vec::new(), tell: Vec::new() };
    if reply.attempt < newest {
        return ignore(Ignored::StaleReply);
    }
    match &record.state {
        StepState::Running { complete_by, .. } if context.now > *complete_by => {
            ignore(Ignored::LateReply)
        }
        StepState::Running { .. } => {
            Decision::Change(Change::record(workflow, task, reply, context))
        }
        // The supervisor has given this attempt up.
        StepState::Waiting { .. } => ignore(Ignored::StaleReply),
        StepState::Completed { .. } | StepState::Failed { .. } if !context.redelivered => {
            ignore(Ignored::DuplicateReply)
        }
        StepState::Completed { .. } | StepState::Failed { .. } => Decision::Ignore {
            reason: Ignored::DuplicateReply,
            send: running(task, |step| {
                workflow.steps.get(step).is_some_and(|step| step.after.contains(&reply.step))
            }),
            tell: ending(task, workflow),
        },
    }
}

/// The steps with an agent among those that `wanted` accepts.
fn running(task: &Task, wanted: impl Fn(&StepName) -> bool) -> Vec<StepName> {
    task.running().map(|(name, ..)| name).filter(|name| wanted(name)).cloned().collect()
}

fn sweep_pending(task: &Task, context: Context<'_>) -> Decision {
    let ignore = |reason| Decision::Ignore { reason, send: Vec::new(), tell: Vec::new() };
    if !task.due.is_some_and(|due| context.is_past(due)) {
        return ignore(Ignored::NotDue);
    }
    let mut change = Change::of(task);
    if context.is_past(task.complete_by) {
        change.fail_task("the task was not done by its complete-by");
    } else {
        change.wake = true;
        change.due_anew = true;
    }
    Decision::Change(change)
}

/// Counts the failure of each step that is past its complete-by, and asks for another attempt while
/// there are any left.
fn sweep_processing(workflow: &Workflow, task: &Task, context: Context<'_>) -> Decision {
    let ignore = |reason| Decision::Ignore { reason, send: Vec::new(), tell: Vec::new() };
    if !task.due.is_some_and(|due| context.is_past(due)) {
        return ignore(Ignored::NotDue);
    }
    let mut change = Change::of(task);
    change.due_anew = true;
    let overdue: Vec<_> = task
        .running()
        .filter(|(_, _, complete_by)| context.is_past(*complete_by))
        .map(|(name, attempt, _)| (name.clone(), attempt))
        .collect();
    for (step, attempt) in overdue {
        let attempts = workflow.steps.get(&step).map_or(1, |step| step.attempts);
        let reason = "no reply by complete-by";
        if attempt < attempts {
            let waiting = StepState::Waiting { attempt, until: context.now };
            change.count_failure(&step, waiting, reason, context);
            change.task.locked_by = None;
        } else {
            change.count_failure(&step, StepState::Failed { attempt }, reason, context);
            change.fail_task(&format!("step {step}: {reason}, attempt {attempt} of {attempts}"));
        }
    }
    if context.is_past(task.complete_by) {
        change.fail_task("the task was not done by its complete-by");
    }
    change.wake = change.has_waiting_until(context.now);
    Decision::Change(change)
}

fn sweep_error(task: &Task, context: Context<'_>) -> Decision {
    if !task.due.is_some_and(|due| context.is_past(due)) {
        return Decision::Ignore { reason: Ignored::NotDue, send: Vec::new(), tell: Vec::new() };
    }
    let mut change = Change::of(task);
    change.alert_again = true;
    Decision::Change(change)
}

fn alert_sent(task: &Task) -> Decision {
    if task.due.is_none() {
        return Decision::Ignore { reason: Ignored::NotDue, send: Vec::new(), tell: Vec::new() };
    }
    let mut change = Change::of(task);
    change.task.due = None;
    Decision::Change(change)
}

impl Context<'_> {
    /// Whether `time` has passed by every clock.
    fn is_past(&self, time: Timestamp) -> bool {
        later(time, self.timing.clock_skew) <= self.now
    }
}

impl Change {
    /// Records an agent's answer and, if the task is being driven forward, starts what it allows.
    fn record(
        workflow: &Workflow,
        task: &Task,
        reply: &StepReply,
        context: Context<'_>,
    ) -> Box<Self> {
        let mut change = Self::of(task);
        let attempt = reply.attempt;
        match &reply.outcome {
            Outcome::Completed { output } => match too_large(output) {
                None => change.complete(&reply.step, attempt, output, context),
                Some(reason) => change.fail_step(&reply.step, attempt, &reason, context),
            },
            Outcome::Failed { reason } => change.fail_step(&reply.step, attempt, reason, context),
        }
        if change.task.process_state == ProcessState::Processing {
            change.start_ready(workflow, context);
            if workflow.is_complete(&change.task) {
                change.task.process_state = ProcessState::Processed;
            }
        }
        change
    }

    fn complete(&mut self, step: &StepName, attempt: u32, output: &Value, context: Context<'_>) {
        if let Some(record) = self.task.steps.get_mut(step) {
            record.state = StepState::Completed { attempt };
            record.error = None;
        }
        let key = DocumentKey::Output { step: step.clone(), attempt };
        self.documents.push(Document { key, at: context.now, body: output.clone() });
    }

    fn fail_step(&mut self, step: &StepName, attempt: u32, reason: &str, context: Context<'_>) {
        self.count_failure(step, StepState::Failed { attempt }, reason, context);
        self.fail_task(&format!("step {step}: {reason}"));
    }

    fn count_failure(
        &mut self,
        step: &StepName,
        next: StepState,
        reason: &str,
        context: Context<'_>,
    ) {
        let attempt = next.attempt();
        if let Some(record) = self.task.steps.get_mut(step) {
            record.state = next;
            record.failure_count += 1;
            record.error = Some(limits::shorten(reason, limits::ERROR_CHARS_MAX));
        }
        self.task.failure_count += 1;
        let key = DocumentKey::Failure { step: step.clone(), attempt };
        let body = json!({ "reason": limits::shorten(reason, limits::REASON_CHARS_MAX) });
        self.documents.push(Document { key, at: context.now, body });
    }

    fn fail_task(&mut self, reason: &str) {
        if self.task.process_state != ProcessState::Error {
            self.task.process_state = ProcessState::Error;
            self.task.error = Some(limits::shorten(reason, limits::ERROR_CHARS_MAX));
        }
    }

    /// Starts nothing once the task's own complete-by has passed: nobody may act on it then.
    fn start_ready(&mut self, workflow: &Workflow, context: Context<'_>) {
        if context.now >= self.task.complete_by {
            return;
        }
        let soon = later(context.now, context.timing.clock_skew);
        let waited = self.task.steps.iter().filter_map(|(name, record)| match record.state {
            // Whoever set `until` may have a clock that is ahead of this one.
            StepState::Waiting { until, .. } if until <= soon => Some(name),
            StepState::Waiting { .. }
            | StepState::Running { .. }
            | StepState::Completed { .. }
            | StepState::Failed { .. } => None,
        });
        let start: Vec<_> = workflow.ready(&self.task).chain(waited).cloned().collect();
        for name in start {
            let Some(step) = workflow.steps.get(&name) else { continue };
            let record = self.task.steps.entry(name.clone()).or_insert(StepRecord {
                state: StepState::Waiting { attempt: 0, until: context.now },
                failure_count: 0,
                error: None,
            });
            let attempt = record.state.attempt() + 1;
            let complete_by = later(context.now, step.complete_within).min(self.task.complete_by);
            record.state = StepState::Running { attempt, complete_by };
            self.task.locked_by = Some(context.actor.to_owned());
            self.send.push(name);
        }
    }

    fn has_waiting_until(&self, now: Timestamp) -> bool {
        self.task.process_state == ProcessState::Processing
            && self.task.steps.values().any(|record| match record.state {
                StepState::Waiting { until, .. } => until <= now,
                StepState::Running { .. }
                | StepState::Completed { .. }
                | StepState::Failed { .. } => false,
            })
    }

    /// Makes the requests of the steps that start. One that cannot be made is a permanent failure of
    /// its step, and then nothing else starts either: the task is in Error.
    fn render(
        &mut self,
        before: &Task,
        workflow: &Workflow,
        documents: &Documents,
        context: Context<'_>,
    ) {
        let mut at_hand = documents.clone();
        at_hand.extend(self.documents.iter().map(|made| (made.key.clone(), made.body.clone())));
        let send = std::mem::take(&mut self.send);
        let mut impossible = Vec::new();
        for step in &send {
            match request(workflow, &self.task, &at_hand, step) {
                Ok(request) => self.requests.push(request),
                Err(reason) => impossible.push((step, reason)),
            }
        }
        if impossible.is_empty() {
            return;
        }
        self.requests.clear();
        for step in send.iter().filter(|step| impossible.iter().all(|(failed, _)| failed != step)) {
            match before.steps.get(step) {
                Some(record) => self.task.steps.insert(step.clone(), record.clone()),
                None => self.task.steps.remove(step),
            };
        }
        for (step, reason) in impossible {
            let attempt = self.task.steps.get(step).map_or(1, |record| record.state.attempt());
            self.fail_step(step, attempt, &reason, context);
        }
    }

    /// Draws the conclusions that hold for every change: the end of a task, and when it is due.
    fn settle(mut self, before: &Task, workflow: &Workflow, context: Context<'_>) -> Transition {
        let task = &mut self.task;
        let ended = task.process_state.is_final() && !before.process_state.is_final();
        if ended {
            task.ended_at = Some(context.now);
            task.locked_by = None;
        }
        let pickup = later(context.now, context.timing.pickup_within);
        let deadline = task.earliest_deadline(context.now, context.timing.pickup_within);
        task.due = match task.process_state {
            ProcessState::Pending => Some(deadline.min(pickup)),
            ProcessState::Processing if self.due_anew => Some(deadline),
            ProcessState::Processing => Some(task.due.map_or(deadline, |due| due.min(deadline))),
            ProcessState::Processed => None,
            // Due until the alert is out, so that a crash before it is made good.
            ProcessState::Error if ended || self.alert_again => Some(pickup),
            ProcessState::Error => task.due,
        };
        let mut effects: Vec<_> = self.requests.into_iter().map(Effect::Request).collect();
        if ended || self.alert_again {
            effects.extend(ending(task, workflow));
        }
        if self.wake {
            let (task_id, cause) = (task.task_id.clone(), WakeCause::Recovery);
            effects.push(Effect::Wake(Wake { task_id, cause }));
        }
        Transition::Apply { task: Box::new(self.task), documents: self.documents, effects }
    }
}

/// What is told at the end of a task; nothing while it goes on, or once the alert is known to be out.
fn ending(task: &Task, workflow: &Workflow) -> Vec<Effect> {
    let at = task.ended_at.unwrap_or(task.submitted_at);
    let status = match task.process_state {
        ProcessState::Pending | ProcessState::Processing => return Vec::new(),
        ProcessState::Error if task.due.is_none() => return Vec::new(),
        ProcessState::Processed => NoticeStatus::Processed,
        ProcessState::Error => NoticeStatus::Error,
    };
    let notice = task.reply_to.iter().map(|queue| Effect::Notice {
        queue: queue.clone(),
        notice: StatusNotice {
            task_id: Some(task.task_id.to_string()),
            status,
            at,
            reason: task.error.clone(),
        },
    });
    let alert = (task.process_state == ProcessState::Error).then(|| {
        let failed = |record: &StepRecord| matches!(record.state, StepState::Failed { .. });
        Effect::Publish(BusEvent::Alert(Alert::TaskInError {
            task_id: task.task_id.clone(),
            workflow: task.workflow.clone(),
            steps: task.steps.iter().filter(|(_, r)| failed(r)).map(|(n, _)| n.clone()).collect(),
            reason: task.error.clone().unwrap_or_default(),
            at,
        }))
    });
    let lifecycle = workflow.lifecycle_events.then(|| {
        Effect::Publish(BusEvent::TaskEnded(TaskEnded {
            task_id: task.task_id.clone(),
            workflow: task.workflow.clone(),
            version: task.version,
            process_state: task.process_state,
            at,
        }))
    });
    notice.chain(alert).chain(lifecycle).collect()
}

/// The key of what `step` returned, if it completed.
fn output_key(task: &Task, step: &StepName) -> Option<DocumentKey> {
    match task.steps.get(step)?.state {
        StepState::Completed { attempt } => {
            Some(DocumentKey::Output { step: step.clone(), attempt })
        }
        StepState::Running { .. } | StepState::Waiting { .. } | StepState::Failed { .. } => None,
    }
}

/// The request of a running step, or why it cannot be made.
fn request(
    workflow: &Workflow,
    task: &Task,
    documents: &Documents,
    step: &StepName,
) -> Result<StepRequest, String> {
    let definition = workflow.steps.get(step).ok_or("the workflow has no such step")?;
    let Some(StepState::Running { attempt, complete_by }) =
        task.steps.get(step).map(|record| record.state.clone())
    else {
        return Err("the step is not running".to_owned());
    };
    let outputs = task
        .steps
        .keys()
        .filter_map(|name| Some((name.clone(), documents.get(&output_key(task, name)?)?)))
        .collect();
    let submitted = documents.get(&DocumentKey::Submission);
    let scope = Scope {
        input: submitted.and_then(|document| document.get("input")).unwrap_or(&Value::Null),
        outputs: &outputs,
        task_id: task.task_id.as_str(),
        workflow: task.workflow.as_str(),
    };
    let template = &definition.request;
    let path = template.path.render(scope).map_err(|error| error.to_string())?;
    let path = path.as_str().filter(|path| path.starts_with('/'));
    let body = template.body.as_ref().map(|body| body.render(scope)).transpose();
    let request = StepRequest {
        task_id: task.task_id.clone(),
        step: step.clone(),
        attempt,
        complete_by,
        idempotency_key: idempotency_key(&task.task_id, step),
        agent: definition.agent.clone(),
        method: template.method,
        path: path.ok_or("the request's path is not a text that starts with `/`")?.to_owned(),
        body: body.map_err(|error| error.to_string())?,
    };
    let bytes = request.body.as_ref().map_or(0, |body| body.to_string().len());
    if bytes + request.path.len() > limits::DOCUMENT_BYTES_MAX {
        return Err(format!(
            "a request of {bytes} bytes; the limit is {}",
            limits::DOCUMENT_BYTES_MAX
        ));
    }
    Ok(request)
}

/// Why `output` cannot be kept, if it cannot.
fn too_large(output: &Value) -> Option<String> {
    if limits::too_deep(output) {
        return Some(format!("the output nests deeper than {} levels", limits::JSON_DEPTH_MAX));
    }
    let bytes = output.to_string().len();
    (bytes > limits::DOCUMENT_BYTES_MAX)
        .then(|| format!("an output of {bytes} bytes; the limit is {}", limits::DOCUMENT_BYTES_MAX))
}
