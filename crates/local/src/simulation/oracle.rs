//! The oracle: sees all that happens, and knows what may not. What it judges by are the definitions,
//! the services' [`Ledger`] and what was stored, sent and published; never the core's own reasoning.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use serde_json::{Value, json};
use steward_core::{
    events::{BusEvent, Happened},
    messages::{Action, NoticeStatus, SchedulerMessage, StatusNotice, StepRequest},
    names::{Part, TaskId, WorkflowName},
    ports::{Attempt, Document, DocumentKey, Outgoing, Queue},
    task::{ProcessState, Progress, StepState, Task},
};

use super::{graph::Graph, ledger::Ledger, plan::Plan};

const SECOND: Duration = Duration::from_secs(1);

/// An alert as the operator saw it.
#[derive(Debug, Clone)]
pub(super) struct Alert {
    pub(super) at: Timestamp,
    pub(super) undo_failed: bool,
    pub(super) steps: Vec<Part>,
}

/// A step's attempt, of a task.
type AttemptOf = (TaskId, Part, Action, u32);

/// What the oracle has seen, and what it holds against it.
#[derive(Debug)]
pub(super) struct Oracle {
    graphs: BTreeMap<WorkflowName, Graph>,
    skew: Duration,
    pickup_within: Duration,
    /// Every message arrives at once and no instance dies.
    calm: bool,
    /// The tasks as last saved.
    pub(super) tasks: BTreeMap<TaskId, Task>,
    answered: BTreeSet<AttemptOf>,
    /// When the save that began a wait was made, and for how long it is.
    waits: BTreeMap<AttemptOf, (Timestamp, Timestamp)>,
    /// Steps and undos that an operator completed or skipped.
    by_hand: BTreeSet<(TaskId, Part, Action)>,
    pub(super) notices: BTreeSet<(String, String, i64)>,
    pub(super) alerts: BTreeMap<TaskId, Vec<Alert>>,
    pub(super) findings: Vec<String>,
}

impl Oracle {
    pub(super) fn new(plan: &Plan) -> Self {
        let graphs = plan.workflows.iter().map(|w| (w.name.clone(), Graph::of(w))).collect();
        Self {
            graphs,
            skew: plan.timing.clock_skew,
            pickup_within: plan.timing.pickup_within,
            calm: plan.weather.is_calm() && plan.commands.is_empty(),
            tasks: BTreeMap::new(),
            answered: BTreeSet::new(),
            waits: BTreeMap::new(),
            by_hand: BTreeSet::new(),
            notices: BTreeSet::new(),
            alerts: BTreeMap::new(),
            findings: Vec::new(),
        }
    }

    pub(super) fn find(&mut self, finding: String) {
        self.findings.push(finding);
    }

    pub(super) fn graph(&self, task_id: &TaskId) -> Option<&Graph> {
        self.graphs.get(&self.tasks.get(task_id)?.workflow)
    }

    /// Whether an operator settled a step, or its undo.
    pub(super) fn is_by_hand(&self, task_id: &TaskId, step: &Part, action: Action) -> bool {
        self.by_hand.contains(&(task_id.clone(), step.clone(), action))
    }

    /// What an operator gives as the output of a step done by hand.
    pub(super) fn by_hand() -> Value {
        json!({ "by": "hand" })
    }

    /// A task was recorded.
    pub(super) fn recorded(&mut self, task: &Task) {
        if self.tasks.insert(task.task_id.clone(), task.clone()).is_some() {
            self.find(format!("{}: recorded twice", task.task_id));
        }
        self.check_due(task, task.submitted_at);
    }

    /// A save went through. `documents` are those there are, of the attempts that completed.
    pub(super) fn saved(
        &mut self,
        before: &Task,
        after: &Task,
        documents: &[Document],
        now: Timestamp,
    ) {
        let id = &after.task_id;
        if after.revision != before.revision + 1 {
            let (old, new) = (before.revision, after.revision);
            self.find(format!("{id}: revision {new} was saved over revision {old}"));
        }
        self.check_due(after, now);
        self.check_end(before, after);
        for (step, action, progress) in after.actions() {
            let old = before.progress(&step, action);
            let at = Attempt { step: step.clone(), action, number: progress.state.attempt() };
            let of = describe(id, &step, action);
            self.check_document(&of, &at, progress, old, documents, id);
            self.check_progress(&of, &at, old, progress, (before, after), now);
        }
        self.tasks.insert(id.clone(), after.clone());
    }

    fn check_due(&mut self, task: &Task, now: Timestamp) {
        let id = &task.task_id;
        match task.due {
            None if !is_final(task) => self.find(format!("{id}: goes on, and has no due time")),
            None => {}
            Some(due) if is_final(task) && task.process_state != ProcessState::Error => {
                self.find(format!("{id}: is {}, and still due at {due}", task.process_state));
            }
            Some(due) => {
                let last = task.actions().filter_map(|(.., progress)| match progress.state {
                    StepState::Running { complete_by, .. }
                    | StepState::HandedOut { complete_by, .. } => Some(complete_by),
                    // A second for what a save takes.
                    StepState::Waiting { until, .. } if task.paused_at.is_none() => {
                        Some(until.max(now + self.skew) + self.pickup_within + SECOND)
                    }
                    StepState::Each
                    | StepState::Waiting { .. }
                    | StepState::Completed { .. }
                    | StepState::Failed { .. }
                    | StepState::Skipped { .. } => None,
                });
                if let Some(last) = last.min().filter(|last| due > *last && !is_final(task)) {
                    self.find(format!("{id}: due at {due}, later than it must be, {last}"));
                }
            }
        }
    }

    /// What ended stays ended, unless an operator asks for more.
    fn check_end(&mut self, before: &Task, after: &Task) {
        let asked = before.commands.last().map(|c| &c.id) != after.commands.last().map(|c| &c.id);
        if is_final(before) && before.process_state != after.process_state && !asked {
            let (id, old, new) = (&after.task_id, before.process_state, after.process_state);
            self.find(format!("{id}: was {old} and became {new} by itself"));
        }
    }

    fn check_document(
        &mut self,
        of: &str,
        attempt: &Attempt,
        progress: &Progress,
        old: Option<&Progress>,
        documents: &[Document],
        id: &TaskId,
    ) {
        let hand = (id.clone(), attempt.step.clone(), attempt.action);
        match progress.state {
            StepState::Skipped { .. } => drop(self.by_hand.insert(hand)),
            StepState::Completed { .. } => {
                let key = DocumentKey::Output(attempt.clone());
                let Some(document) = documents.iter().find(|document| document.key == key) else {
                    return self.find(format!("{of} completed, and its output is nowhere"));
                };
                if document.body == Self::by_hand() {
                    self.by_hand.insert(hand);
                    return;
                }
                if let Some(StepState::Running { attempt, complete_by }) = old.map(|o| &o.state)
                    && *attempt == progress.state.attempt()
                    && document.at.as_millisecond() > complete_by.as_millisecond()
                {
                    self.find(format!("{of}: a reply was taken after complete-by"));
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

    fn check_progress(
        &mut self,
        of: &str,
        attempt: &Attempt,
        old: Option<&Progress>,
        new: &Progress,
        (before, after): (&Task, &Task),
        now: Timestamp,
    ) {
        let number = attempt.number;
        let key = |n| (after.task_id.clone(), attempt.step.clone(), attempt.action, n);
        let last = old.map_or(0, |old| old.state.attempt());
        if number < last {
            self.find(format!("{of}: attempt {number} was taken although {last} had begun"));
        }
        let begins = new.state.is_running() && number > last;
        if begins && before.paused_at.is_some() && after.paused_at.is_some() {
            self.find(format!("{of}: attempt {number} began in a paused task"));
        }
        if let Some(StepState::Running { complete_by, .. }) = old.map(|old| &old.state)
            && begins
            && now <= *complete_by
            && !self.answered.contains(&key(last))
        {
            self.find(format!("{of}: attempt {number} began while {last} may be at work"));
        }
        let graph = self.graphs.get(&after.workflow);
        let max = graph.map_or(0, |graph| graph.failures_max(&attempt.step, attempt.action));
        // A permanent failure may come on top.
        if new.failure_count > max.max(1) + 1 {
            self.find(format!("{of}: failed {} times; its policy allows {max}", new.failure_count));
        }
        if let StepState::Waiting { until, .. } = new.state {
            self.waits.entry(key(number)).or_insert((now, until));
        }
        if begins && after.commands.is_empty() {
            self.check_wait(of, key(last), now);
        }
    }

    /// No wait is cut short; and where nothing is lost, none lasts longer than it must.
    fn check_wait(&mut self, of: &str, key: AttemptOf, now: Timestamp) {
        let Some((since, until)) = self.waits.get(&key).copied() else { return };
        let early = until.duration_since(now);
        let skew = self.skew.as_millis() as i128;
        if early.as_millis() > 2 * skew {
            self.find(format!("{of}: began {} ms before its wait was over", early.as_millis()));
        }
        let by_wake = until.duration_since(since).as_secs() < 900;
        let late = now.duration_since(until).as_millis();
        if self.calm && by_wake && late > 2 * skew + 5_000 {
            self.find(format!("{of}: its wait was over {late} ms ago, and nothing went wrong"));
        }
    }

    /// A message was sent.
    pub(super) fn sent(&mut self, message: &Outgoing) {
        match &message.queue {
            Queue::Submissions => {}
            Queue::Agent(_) => self.asked(&message.body),
            Queue::Scheduler => {
                if let Ok(SchedulerMessage::Reply(reply)) = serde_json::from_str(&message.body) {
                    let attempt = (reply.task_id, reply.step, reply.action, reply.attempt);
                    self.answered.insert(attempt);
                }
            }
            Queue::Client(_) => {
                let Ok(notice) = serde_json::from_str::<StatusNotice>(&message.body) else {
                    return self.find(format!("a notice that cannot be read: {}", message.body));
                };
                let status = status(notice.status).to_owned();
                let task_id = notice.task_id.unwrap_or_default();
                self.notices.insert((task_id, status, notice.at.as_millisecond()));
            }
            Queue::Rejected => self.find(format!("a submission was refused: {}", message.body)),
        }
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
            Happened::MessageCorrupt { role, reason, .. } => {
                return self.find(format!("{role} found a message corrupt: {reason}"));
            }
            Happened::SubmissionRefused { .. }
            | Happened::DeadLetterSeen { .. }
            | Happened::BreakerOpened(_)
            | Happened::BreakerClosed(_)
            | Happened::OperatorCommand { .. }
            | Happened::TaskEnded { .. } => return,
        };
        let alert = Alert { at, undo_failed, steps: trouble.steps.clone() };
        self.alerts.entry(trouble.task_id.clone()).or_default().push(alert);
    }

    /// An agent is about to call its service.
    pub(super) fn called(&mut self, request: &StepRequest, ledger: &Ledger, now: Timestamp) {
        let StepRequest { task_id, step, action, attempt, complete_by, .. } = request;
        let of = describe(task_id, step, *action);
        if now > *complete_by + self.skew {
            self.find(format!("{of}: attempt {attempt} was called after its complete-by"));
        }
        let own = (task_id.clone(), step.clone(), *action, *attempt);
        let answered = self.answered.contains(&own);
        let live = ledger.account(task_id, step).map(|account| &account.live);
        let others: Vec<_> = live.into_iter().flat_map(BTreeMap::values).cloned().collect();
        for other in others {
            let key = (task_id.clone(), step.clone(), other.action, other.attempt);
            let same = other.action == *action && other.attempt == *attempt;
            // Of what was answered, another delivery may still be at work: its effect is known.
            if !same && !answered && !self.answered.contains(&key) {
                let (what, number) = (other.action.name(), other.attempt);
                self.find(format!("{of}: called while its {what} attempt {number} is at work"));
            }
        }
        if *action == Action::Undo {
            self.undo_called(request, ledger);
        } else if !request.idempotent {
            self.unrepeatable_called(request, ledger);
        }
    }

    /// What cannot be repeated is called once, unless an operator asks for it again.
    fn unrepeatable_called(&mut self, request: &StepRequest, ledger: &Ledger) {
        let (task_id, step) = (&request.task_id, &request.step);
        let calls = ledger.account(task_id, step).map_or(0, |account| account.calls) as usize;
        let resubmitted = self.tasks.get(task_id).map_or(0, |task| {
            let accepted = task.commands.iter().filter(|record| record.refused.is_none());
            accepted.filter(|record| record.command.starts_with("resubmit")).count()
        });
        if calls > resubmitted {
            let of = describe(task_id, step, Action::Do);
            self.find(format!("{of} is not idempotent, and was called {} times", calls + 1));
        }
    }

    /// Backward only in reverse order, and never past a point of no return.
    fn undo_called(&mut self, request: &StepRequest, ledger: &Ledger) {
        let (task_id, step) = (&request.task_id, &request.step);
        let of = describe(task_id, step, Action::Undo);
        let Some(graph) = self.graph(task_id) else {
            return self.find(format!("{of} was called, and there is no such task"));
        };
        let mut found = Vec::new();
        for point in graph.points_of_no_return() {
            if ledger.account(task_id, point).is_some_and(|account| !account.effects.is_empty()) {
                found.push(format!("{of} was called past the point of no return, {point}"));
            }
        }
        for later in graph.after(step).into_iter().filter(|later| graph.has_undo(later)) {
            let stands = ledger.account(task_id, later).is_some_and(|account| account.stands());
            if stands && !self.is_by_hand(task_id, later, Action::Undo) {
                found.push(format!("{of} was called before that of {later}, which came later"));
            }
        }
        self.findings.extend(found);
    }

    /// A call is about to take effect, which it has not before.
    pub(super) fn takes_effect(&mut self, request: &StepRequest, ledger: &Ledger) {
        if request.action == Action::Undo {
            return;
        }
        let (task_id, step) = (&request.task_id, &request.step);
        let of = describe(task_id, step, Action::Do);
        let Some(graph) = self.graph(task_id) else {
            return self.find(format!("{of} took effect, and there is no such task"));
        };
        let mut found = Vec::new();
        let account = |step: &Part| ledger.account(task_id, step);
        if account(step).is_some_and(|account| !account.effects.is_empty()) {
            found.push(format!("{of} took effect twice"));
        }
        let undone = |step: &&Part| account(step).is_some_and(|a| a.undo_called);
        if let Some(undone) = std::iter::once(step).chain(graph.before(step)).find(undone) {
            found.push(format!("{of} took effect after the undo of {undone}"));
        }
        if graph.points_of_no_return().any(|point| point == step)
            && let Some(undone) = graph.steps().find(undone)
        {
            found.push(format!(
                "{of}, the point of no return, took effect after the undo of {undone}"
            ));
        }
        for missing in graph.directly_before(step) {
            let by_hand = self.is_by_hand(task_id, missing, Action::Do);
            if !by_hand && account(missing).is_none_or(|account| account.effects.is_empty()) {
                found.push(format!("{of} took effect before {missing}, which it comes after"));
            }
        }
        self.findings.extend(found);
    }
}

/// As people say it: `order-1 undo of charge`.
pub(super) fn describe(task_id: &TaskId, step: &Part, action: Action) -> String {
    match action {
        Action::Do => format!("{task_id} step {step}"),
        Action::Undo => format!("{task_id} undo of {step}"),
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

fn status(status: NoticeStatus) -> &'static str {
    match status {
        NoticeStatus::Received => "received",
        NoticeStatus::Refused => "refused",
        NoticeStatus::Processed => "Processed",
        NoticeStatus::Undone => "Undone",
        NoticeStatus::Error => "Error",
    }
}
