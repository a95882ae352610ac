//! The oracle: sees all that happens, and knows what may not. What it judges by are what was drawn, the
//! services' [`Ledger`] and what was stored, sent and published; never the core's own reasoning.
//!
//! This is its memory. What it holds against a save is in [`watch`](super::watch), against a call in
//! [`calls`](super::calls), against what tasks say to each other in [`family`](super::family), and
//! against the end of it all in [`verdict`](super::verdict).

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use serde_json::{Value, json};
use steward_core::model::{
    attempt::Action,
    document::Document,
    events::{BusEvent, Happened, TaskTrouble},
    messages::{NoticeStatus, SchedulerMessage, StatusNotice, StepRequest},
    names::{CallbackToken, CommandId, Incarnation, Part, StepName, TaskId, WorkflowName},
    step::{Progress, StepState},
    task::{ProcessState, Task},
};
use steward_runtime::ports::{Outgoing, Queue};

use super::{
    blueprint::WorkPlan,
    graph::Graph,
    ledger::Ledger,
    plan::{Millis, Plan},
    sense::{Known, Sense},
    trace::Life,
    watch,
};

/// An alert as the operator saw it.
#[derive(Debug, Clone)]
pub(super) struct Alert {
    pub(super) at: Timestamp,
    pub(super) undo_failed: bool,
    pub(super) steps: Vec<Part>,
    /// How many more it says there are.
    pub(super) more_steps: usize,
}

/// An attempt at a part, of a task.
pub(super) type AttemptOf = (TaskId, Part, Action, u32);

/// What the oracle has seen, and what it holds against it.
#[derive(Debug)]
pub(super) struct Oracle {
    graphs: BTreeMap<WorkflowName, Graph>,
    pub(super) skew: Duration,
    pub(super) pickup_within: Duration,
    pub(super) sweep_every: Duration,
    pub(super) storm_until: Millis,
    /// Every message arrives at once and no instance dies.
    pub(super) calm: bool,
    /// Whether messages may come when their tasks have expired.
    has_late: bool,
    /// The tasks as last saved, and when they were recorded.
    pub(super) tasks: BTreeMap<TaskId, Task>,
    created: BTreeMap<TaskId, Millis>,
    saved: BTreeMap<TaskId, Timestamp>,
    /// What clients submit, of which a task has one.
    offered: BTreeMap<TaskId, Vec<Value>>,
    inputs: BTreeMap<TaskId, Value>,
    /// What was submitted for steps, by the incarnation of the parent.
    pub(super) submitted: BTreeMap<(TaskId, Option<Incarnation>), Value>,
    /// The tasks of clients whose ids a step's task may have as well: only one of both is recorded.
    rivals: BTreeSet<TaskId>,
    /// The tasks that run for each task, by part.
    children: BTreeMap<TaskId, BTreeSet<(Part, TaskId)>>,
    /// What an agent answered, and what somebody answered who was handed a token.
    pub(super) answered: BTreeSet<AttemptOf>,
    pub(super) said: BTreeSet<(TaskId, Part)>,
    /// The parts whose task said how it ended.
    pub(super) heard: BTreeSet<(TaskId, Part)>,
    /// When the save that began a wait was made, and for how long it is.
    pub(super) waits: BTreeMap<AttemptOf, (Timestamp, Timestamp)>,
    /// Parts and undos that an operator completed or skipped.
    by_hand: BTreeSet<(TaskId, Part, Action)>,
    /// Steps that were skipped by themselves.
    skipped: BTreeSet<(TaskId, StepName)>,
    pub(super) notices: BTreeSet<(String, String, i64)>,
    pub(super) alerts: BTreeMap<TaskId, Vec<Alert>>,
    /// The edits that operators asked for, and the inputs that were edited.
    pub(super) patches: BTreeMap<(TaskId, CommandId), Value>,
    pub(super) edited: BTreeMap<TaskId, Value>,
    /// The trace that the calls of each task belong to.
    pub(super) traces: BTreeMap<Life, String>,
    pub(super) findings: Vec<String>,
}

impl Oracle {
    pub(super) fn new(plan: &Plan) -> Self {
        let graphs = plan.blueprints.iter().map(|b| (b.name.clone(), Graph::of(b))).collect();
        let rivals = plan.tasks.iter().filter(|task| task.rival);
        Self {
            graphs,
            skew: plan.timing.clock_skew,
            pickup_within: plan.timing.pickup_within,
            sweep_every: Duration::from_millis(plan.sweep_every),
            storm_until: plan.storm_until,
            calm: plan.weather.is_calm()
                && plan.commands.is_empty()
                && plan.away.is_none()
                && plan.late.is_nothing(),
            has_late: !plan.late.is_nothing(),
            tasks: BTreeMap::new(),
            created: BTreeMap::new(),
            saved: BTreeMap::new(),
            offered: plan
                .tasks
                .iter()
                .map(|t| (t.task_id.clone(), vec![t.input.clone()]))
                .collect(),
            inputs: BTreeMap::new(),
            submitted: BTreeMap::new(),
            rivals: rivals.map(|task| task.task_id.clone()).collect(),
            children: BTreeMap::new(),
            answered: BTreeSet::new(),
            said: BTreeSet::new(),
            heard: BTreeSet::new(),
            waits: BTreeMap::new(),
            by_hand: BTreeSet::new(),
            skipped: BTreeSet::new(),
            notices: BTreeSet::new(),
            alerts: BTreeMap::new(),
            patches: BTreeMap::new(),
            edited: BTreeMap::new(),
            traces: BTreeMap::new(),
            findings: Vec::new(),
        }
    }

    pub(super) fn find(&mut self, finding: String) {
        self.findings.push(finding);
    }

    pub(super) fn graph(&self, task_id: &TaskId) -> Option<&Graph> {
        self.graphs.get(&self.tasks.get(task_id)?.workflow)
    }

    /// How long a call may take at its service.
    pub(super) fn call_within(&self, request: &StepRequest) -> Millis {
        let graph = self.graph(&request.task_id);
        graph.map_or(0, |graph| graph.call_within(&request.step.step, request.action))
    }

    /// Whether an operator settled a part, or its undo.
    pub(super) fn is_by_hand(&self, task_id: &TaskId, part: &Part, action: Action) -> bool {
        self.by_hand.contains(&(task_id.clone(), part.clone(), action))
    }

    /// Whether a step was skipped by itself.
    pub(super) fn is_skipped(&self, task_id: &TaskId, step: &StepName) -> bool {
        self.skipped.contains(&(task_id.clone(), step.clone()))
    }

    /// What an operator gives as the output of a step done by hand.
    pub(super) fn by_hand() -> Value {
        json!({ "by": "hand" })
    }

    /// What a task was submitted with.
    pub(super) fn input(&self, task: &Task) -> Option<&Value> {
        let id = &task.task_id;
        match &task.parent {
            Some(parent) => self.submitted.get(&(id.clone(), parent.incarnation)),
            None => self.inputs.get(id),
        }
    }

    pub(super) fn created_at(&self, task_id: &TaskId) -> Millis {
        self.created.get(task_id).copied().unwrap_or_default()
    }

    /// The tasks that ran for a task, each with its part.
    pub(super) fn children_of(&self, task_id: &TaskId) -> impl Iterator<Item = (&Part, &Task)> {
        let all = self.children.get(task_id).into_iter().flatten();
        all.filter_map(|(part, child)| Some((part, self.tasks.get(child)?)))
    }

    /// The tasks that ran for a part.
    pub(super) fn children(&self, task_id: &TaskId, part: &Part) -> impl Iterator<Item = &Task> {
        let all = self.children_of(task_id).filter(move |(of, _)| *of == part);
        all.map(|(_, child)| child)
    }

    /// A task is to be recorded, in place of `earlier` if there is one. Forgets the life of an earlier task
    /// with the same id, and answers whether there was one.
    pub(super) fn forgets(&mut self, task: &Task, earlier: Option<&Task>) -> bool {
        let id = &task.task_id;
        let for_another = |earlier: &Task| match (&earlier.parent, &task.parent) {
            (Some(before), Some(now)) => {
                is_final(earlier)
                    && before.task_id == now.task_id
                    && before.incarnation < now.incarnation
            }
            (None, _) | (_, None) => false,
        };
        if earlier.is_some_and(|earlier| !for_another(earlier)) {
            self.find(format!("{id}: recorded in place of a task that has not expired"));
        }
        self.created.remove(id);
        self.edited.remove(id);
        self.patches.retain(|(of, _), _| of != id);
        self.saved.remove(id);
        self.children.remove(id);
        self.alerts.remove(id);
        self.answered.retain(|(of, ..)| of != id);
        self.said.retain(|(of, _)| of != id);
        self.heard.retain(|(of, _)| of != id);
        self.waits.retain(|(of, ..), _| of != id);
        self.by_hand.retain(|(of, ..)| of != id);
        self.skipped.retain(|(of, _)| of != id);
        self.tasks.remove(id).is_some()
    }

    /// A client uses an id once more, for something else.
    pub(super) fn reused(&mut self, id: &TaskId, input: Value) {
        self.offered.entry(id.clone()).or_default().push(input);
    }

    /// A task was recorded, with what was submitted.
    pub(super) fn recorded(
        &mut self,
        task: &Task,
        submitted: &Value,
        ledger: &Ledger,
        now: Millis,
    ) {
        let id = &task.task_id;
        if task.parent.is_none() {
            let input = submitted.get("input").cloned().unwrap_or_default();
            if !self.offered.get(id).is_some_and(|offered| offered.contains(&input)) {
                self.find(format!("{id}: recorded with what nobody submitted: {input}"));
            }
            self.inputs.insert(id.clone(), input);
        }
        self.tasks.insert(id.clone(), task.clone());
        self.created.insert(id.clone(), now);
        if let Some(parent) = &task.parent {
            let of = self.children.entry(parent.task_id.clone()).or_default();
            of.insert((parent.step.clone(), id.clone()));
            let found = super::family::recorded(self, ledger, task);
            self.findings.extend(found);
        }
        let retention = self.graph(id).and_then(|graph| graph.blueprint.retention_h);
        if task.retention_s != retention.map(|hours| hours * 3_600) {
            self.find(format!("{id}: is kept for {:?} seconds", task.retention_s));
        }
        let found = watch::check_due(self, task, task.submitted_at);
        self.findings.extend(found);
    }

    /// A save went through. `documents` are those there are, of the attempts that completed.
    pub(super) fn saved(
        &mut self,
        before: &Task,
        after: &Task,
        documents: &[Document],
        ledger: &Ledger,
        now: Timestamp,
    ) {
        self.edited(before, after);
        self.tasks.insert(after.task_id.clone(), after.clone());
        for (part, action, progress) in after.actions() {
            let old = before.progress(&part, action);
            self.settled((before, after), (&part, action), (old, progress), documents, ledger);
            if let StepState::Waiting { attempt, until, .. } = progress.state {
                let key = (after.task_id.clone(), part, action, attempt);
                self.waits.entry(key).or_insert((now, until));
            }
        }
        let last = self.saved.insert(after.task_id.clone(), now);
        let save = watch::Save { oracle: self, ledger, before, after, documents, last, now };
        let found = save.check();
        self.findings.extend(found);
    }

    /// Takes down who settled a part: its task, or an operator.
    fn settled(
        &mut self,
        (before, after): (&Task, &Task),
        (part, action): (&Part, Action),
        (old, new): (Option<&Progress>, &Progress),
        documents: &[Document],
        ledger: &Ledger,
    ) {
        let id = &after.task_id;
        let hand = (id.clone(), part.clone(), action);
        match new.state {
            StepState::Skipped { .. } if old.is_some_and(|old| old.state == new.state) => {}
            StepState::Skipped { .. } => {
                let fresh = action == Action::Do && old.is_none() && part.item.is_none();
                let asked = is_asked(before, after);
                let sense = Sense::of(self, ledger, id);
                let step = sense.and_then(|sense| Some((sense, sense.graph.step(&part.step)?)));
                let ought_not =
                    step.is_some_and(|(sense, step)| sense.holds(step) == Known::Is(false));
                // Nobody waits any longer in a task that is being undone.
                let waits = step.is_some_and(|(_, step)| matches!(step.work, WorkPlan::Wait(_)));
                let given_up = waits && after.undo_reason.is_some();
                if fresh && (ought_not || !(asked || given_up)) {
                    self.skipped.insert((id.clone(), part.step.clone()));
                }
                // Of what was not to run, an operator may have been ahead.
                if asked {
                    self.by_hand.insert(hand);
                }
            }
            StepState::Completed { .. } => {
                let key = new.output(part, action);
                let document =
                    documents.iter().find(|document| Some(&document.key) == key.as_ref());
                if document.is_some_and(|document| document.body == Self::by_hand()) {
                    self.by_hand.insert(hand);
                }
            }
            StepState::Running { .. }
            | StepState::HandedOut { .. }
            | StepState::Each
            | StepState::Waiting { .. }
            | StepState::Failed { .. } => {
                self.by_hand.remove(&hand);
            }
        }
    }

    /// Somebody who was handed a token answers.
    pub(super) fn answers(&mut self, token: &CallbackToken) {
        self.said.insert((token.task_id.clone(), token.step.clone()));
    }

    /// A message was sent.
    pub(super) fn sent(&mut self, message: &Outgoing, ledger: &Ledger) {
        let body = &message.body;
        match &message.queue {
            Queue::Submissions => {
                let found = super::family::submitted(self, ledger, body);
                self.findings.extend(found);
            }
            Queue::Agent(_) => self.asked(body),
            Queue::Scheduler => match serde_json::from_str(body) {
                Ok(SchedulerMessage::Reply(reply)) => {
                    let attempt = (reply.task_id, reply.step, reply.action, reply.attempt);
                    self.answered.insert(attempt);
                }
                Ok(SchedulerMessage::ChildEnded(ended)) => {
                    let found = super::family::told(self, ledger, &ended);
                    self.heard.insert((ended.task_id, ended.step));
                    self.findings.extend(found);
                }
                Ok(
                    SchedulerMessage::Wake(_)
                    | SchedulerMessage::Command(_)
                    | SchedulerMessage::Callback(_)
                    | SchedulerMessage::Ask(_)
                    | SchedulerMessage::Keep(_),
                )
                | Err(_) => {}
            },
            Queue::Client(_) => self.noticed(body, ledger),
            Queue::Rejected => {
                let id = serde_json::from_str::<Value>(body).unwrap_or_default();
                let id = id.get("task_id").and_then(Value::as_str).unwrap_or_default().to_owned();
                // Of an id that is used again, an earlier submission may come late.
                let mut offered = self.offered.iter();
                let is_reused = offered.any(|(of, inputs)| of.as_str() == id && inputs.len() > 1);
                if !is_reused && !self.rivals.iter().any(|rival| rival.as_str() == id) {
                    self.find(format!("a submission was refused: {body}"));
                }
            }
        }
    }

    fn noticed(&mut self, body: &str, ledger: &Ledger) {
        let Ok(notice) = serde_json::from_str::<StatusNotice>(body) else {
            return self.find(format!("a notice that cannot be read: {body}"));
        };
        let task_id = notice.task_id.unwrap_or_default();
        let output = notice.output.unwrap_or_default();
        let id = task_id.parse::<TaskId>().ok();
        let sense = id.as_ref().and_then(|id| Sense::of(self, ledger, id));
        let is_result = notice.status != NoticeStatus::Processed
            || sense.is_none_or(|sense| sense.may_result_in(&output));
        if !is_result {
            self.find(format!("{task_id}: cannot have returned {output}"));
        }
        let status = status(notice.status).to_owned();
        self.notices.insert((task_id, status, notice.at.as_millisecond()));
    }

    /// A step was sent to its agent: what is sent must have been stored.
    fn asked(&mut self, body: &str) {
        let Ok(request) = serde_json::from_str::<StepRequest>(body) else {
            return self.find(format!("a request that cannot be read: {body}"));
        };
        let StepRequest { task_id, step, action, attempt, .. } = &request;
        let task = self.tasks.get(task_id);
        let stored = task.and_then(|task| task.progress(step, *action));
        if stored.is_none_or(|progress| progress.state.attempt() < *attempt) {
            let of = describe(task_id, step, *action);
            self.find(format!("{of}: attempt {attempt} was sent before it was saved"));
        }
    }

    /// An event was published.
    pub(super) fn published(&mut self, event: &BusEvent) {
        let at = event.metadata.at;
        let (trouble, undo_failed) = match &event.data {
            Happened::TaskInError(trouble) => (trouble, false),
            Happened::UndoFailed(trouble) => (trouble, true),
            // What comes late may be about a task that has expired.
            Happened::MessageCorrupt { reason, .. }
                if self.has_late && reason.ends_with("there is no such task") =>
            {
                return;
            }
            Happened::MessageCorrupt { role, reason, .. } => {
                return self.find(format!("{role} found a message corrupt: {reason}"));
            }
            Happened::SubmissionRefused { .. }
            | Happened::DeadLetterSeen { .. }
            | Happened::AgentMissing { .. }
            | Happened::BreakerOpened(_)
            | Happened::BreakerClosed(_)
            | Happened::OperatorCommand { .. }
            | Happened::OperatorRedrive { .. }
            | Happened::TaskEnded { .. } => return,
        };
        let TaskTrouble { steps, more_steps, .. } = trouble.clone();
        let alert = Alert { at, undo_failed, steps, more_steps };
        self.alerts.entry(trouble.task_id.clone()).or_default().push(alert);
    }
}

/// As people say it: `order-1 undo of charge`.
pub(super) fn describe(task_id: &TaskId, part: &Part, action: Action) -> String {
    match action {
        Action::Do => format!("{task_id} step {part}"),
        Action::Undo => format!("{task_id} undo of {part}"),
    }
}

/// Whether the task ended, by the oracle's own reckoning.
pub(super) fn is_final(task: &Task) -> bool {
    use ProcessState::{Error, Pending, Processed, Processing, Undoing, Undone};
    match task.process_state {
        Pending | Processing | Undoing => false,
        Processed | Undone | Error => true,
    }
}

/// Whether a save carries out a command.
pub(super) fn is_asked(before: &Task, after: &Task) -> bool {
    before.commands.last().map(|c| &c.id) != after.commands.last().map(|c| &c.id)
}

/// Whether an operator has changed its input.
pub(super) fn is_edited(task: &Task) -> bool {
    accepted(task).any(|command| command.ends_with("with edited input"))
}

/// How often an operator had steps done again.
pub(super) fn resubmits(task: &Task) -> usize {
    accepted(task).filter(|command| command.starts_with("resubmit")).count()
}

/// Whether an operator had a hand in it.
pub(super) fn is_touched(task: &Task) -> bool {
    accepted(task).next().is_some()
}

fn accepted(task: &Task) -> impl Iterator<Item = &str> {
    let accepted = task.commands.iter().filter(|record| record.refused.is_none());
    accepted.map(|record| record.command.as_str())
}

fn status(status: NoticeStatus) -> &'static str {
    match status {
        NoticeStatus::Received => "received",
        NoticeStatus::Refused => "refused",
        NoticeStatus::Processed => "Processed",
        NoticeStatus::Undone => "Undone",
        NoticeStatus::Error => "Error",
    }
}
