//! The oracle observes everything that happens and checks invariants. It uses the plan, the services' [`EffectLedger`], and
//! everything that was stored, sent and published; never the reasoning of the core.
//!
//! This file holds its memory. The checks of saves are in [`save_checks`](super::save_checks), of calls in
//! [`call_checks`](super::call_checks), of child tasks in [`child_checks`](super::child_checks), and of the final
//! states in [`final_checks`](super::final_checks).

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use serde_json::{Value, json};
use steward_core::model::{
    attempt::Action,
    document::Document,
    events::{BusEvent, EventData, TaskAlert},
    messages::{NotificationStatus, SchedulerMessage, StatusNotification, StepRequest},
    names::{CallbackToken, CommandId, Incarnation, Part, StepName, TaskId, WorkflowName},
    step::{Progress, StepState},
    task::Task,
};
use steward_runtime::ports::{OutgoingMessage, Queue};

use super::{
    blueprint::WorkPlan,
    child_checks, due_check,
    expectations::{Expected, TaskExpectations},
    ledger::EffectLedger,
    plan::{Millis, SimulationPlan},
    save_checks,
    task_record::{describe, executes_command, is_final},
    trace_checks::TaskIncarnation,
    workflow_model::WorkflowModel,
};

/// A published alert.
#[derive(Debug, Clone)]
pub(super) struct ObservedAlert {
    pub(super) at: Timestamp,
    pub(super) undo_failed: bool,
    pub(super) steps: Vec<Part>,
    /// How many more steps the alert counts without naming them.
    pub(super) more_steps: usize,
}

/// An attempt at a part of a task.
pub(super) type AttemptKey = (TaskId, Part, Action, u32);

/// What the oracle has observed, and the violations that it found.
#[derive(Debug)]
pub(super) struct Oracle {
    models: BTreeMap<WorkflowName, WorkflowModel>,
    pub(super) skew: Duration,
    pub(super) pickup_within: Duration,
    pub(super) sweep_every: Duration,
    pub(super) faults_until: Millis,
    /// Whether messages arrive in time and no instance dies.
    pub(super) is_fault_free: bool,
    /// Whether messages may arrive after their tasks have expired.
    has_late: bool,
    /// The tasks as last saved.
    pub(super) tasks: BTreeMap<TaskId, Task>,
    created: BTreeMap<TaskId, Millis>,
    saved: BTreeMap<TaskId, Timestamp>,
    /// The inputs that clients submit for each task id. A task is recorded with one of them.
    client_inputs: BTreeMap<TaskId, Vec<Value>>,
    inputs: BTreeMap<TaskId, Value>,
    /// The inputs of child tasks, by task id and incarnation of the parent.
    pub(super) submitted: BTreeMap<(TaskId, Option<Incarnation>), Value>,
    /// The ids of clients' tasks that a child task may have too. Only one of the two tasks is recorded.
    colliding_ids: BTreeSet<TaskId>,
    /// The child tasks of each task, by part.
    children: BTreeMap<TaskId, BTreeSet<(Part, TaskId)>>,
    /// The attempts that an agent answered.
    pub(super) replied: BTreeSet<AttemptKey>,
    pub(super) callback_answered: BTreeSet<(TaskId, Part)>,
    /// The parts whose child task reported its end.
    pub(super) child_reported: BTreeSet<(TaskId, Part)>,
    /// When each wait was saved, and until when it lasts.
    pub(super) waits: BTreeMap<AttemptKey, (Timestamp, Timestamp)>,
    /// Parts and undos that an operator completed or skipped.
    settled_by_operator: BTreeSet<(TaskId, Part, Action)>,
    /// Steps that were skipped because of their `when`.
    skipped: BTreeSet<(TaskId, StepName)>,
    pub(super) notifications: BTreeSet<(String, String, i64)>,
    pub(super) alerts: BTreeMap<TaskId, Vec<ObservedAlert>>,
    /// The edits that operators sent, by command.
    pub(super) patches: BTreeMap<(TaskId, CommandId), Value>,
    pub(super) edited: BTreeMap<TaskId, Value>,
    /// The trace id of each task's calls.
    pub(super) traces: BTreeMap<TaskIncarnation, String>,
    pub(super) findings: Vec<String>,
}

impl Oracle {
    pub(super) fn new(plan: &SimulationPlan) -> Self {
        let models =
            plan.blueprints.iter().map(|b| (b.name.clone(), WorkflowModel::of(b))).collect();
        let colliding_ids = plan.tasks.iter().filter(|task| task.id_collision);
        Self {
            models,
            skew: plan.timing.clock_skew,
            pickup_within: plan.timing.pickup_within,
            sweep_every: Duration::from_millis(plan.sweep_every),
            faults_until: plan.faults_until,
            is_fault_free: plan.faults.is_fault_free()
                && plan.commands.is_empty()
                && plan.outage.is_none()
                && plan.late_messages.is_empty(),
            has_late: !plan.late_messages.is_empty(),
            tasks: BTreeMap::new(),
            created: BTreeMap::new(),
            saved: BTreeMap::new(),
            client_inputs: plan
                .tasks
                .iter()
                .map(|t| (t.task_id.clone(), vec![t.input.clone()]))
                .collect(),
            inputs: BTreeMap::new(),
            submitted: BTreeMap::new(),
            colliding_ids: colliding_ids.map(|task| task.task_id.clone()).collect(),
            children: BTreeMap::new(),
            replied: BTreeSet::new(),
            callback_answered: BTreeSet::new(),
            child_reported: BTreeSet::new(),
            waits: BTreeMap::new(),
            settled_by_operator: BTreeSet::new(),
            skipped: BTreeSet::new(),
            notifications: BTreeSet::new(),
            alerts: BTreeMap::new(),
            patches: BTreeMap::new(),
            edited: BTreeMap::new(),
            traces: BTreeMap::new(),
            findings: Vec::new(),
        }
    }

    pub(super) fn add_finding(&mut self, finding: String) {
        self.findings.push(finding);
    }

    pub(super) fn model(&self, task_id: &TaskId) -> Option<&WorkflowModel> {
        self.models.get(&self.tasks.get(task_id)?.workflow)
    }

    /// How long a call may take at its service.
    pub(super) fn call_within(&self, request: &StepRequest) -> Millis {
        let model = self.model(&request.task_id);
        model.map_or(0, |model| model.call_within(&request.step.step, request.action))
    }

    /// Whether an operator completed or skipped a part, or its undo.
    pub(super) fn is_settled_by_operator(
        &self,
        task_id: &TaskId,
        part: &Part,
        action: Action,
    ) -> bool {
        self.settled_by_operator.contains(&(task_id.clone(), part.clone(), action))
    }

    /// Whether a step was skipped because of its `when`.
    pub(super) fn was_skipped(&self, task_id: &TaskId, step: &StepName) -> bool {
        self.skipped.contains(&(task_id.clone(), step.clone()))
    }

    /// The output that operators give when they complete a step.
    pub(super) fn operator_output() -> Value {
        json!({ "by": "hand" })
    }

    /// The input with which a task was submitted.
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

    /// The child tasks of a task, each with its part.
    pub(super) fn child_tasks(&self, task_id: &TaskId) -> impl Iterator<Item = (&Part, &Task)> {
        let all = self.children.get(task_id).into_iter().flatten();
        all.filter_map(|(part, child)| Some((part, self.tasks.get(child)?)))
    }

    /// The child tasks of a part.
    pub(super) fn child_tasks_of_part(
        &self,
        task_id: &TaskId,
        part: &Part,
    ) -> impl Iterator<Item = &Task> {
        let all = self.child_tasks(task_id).filter(move |(of, _)| *of == part);
        all.map(|(_, child)| child)
    }

    /// Forgets everything about an earlier task with the same id, before `task` is recorded in place of `earlier`. Returns
    /// whether there was an earlier task.
    pub(super) fn forget_earlier_task(&mut self, task: &Task, earlier: Option<&Task>) -> bool {
        let id = &task.task_id;
        let is_for_later_parent = |earlier: &Task| match (&earlier.parent, &task.parent) {
            (Some(before), Some(now)) => {
                is_final(earlier)
                    && before.task_id == now.task_id
                    && before.incarnation < now.incarnation
            }
            (None, _) | (_, None) => false,
        };
        if earlier.is_some_and(|earlier| !is_for_later_parent(earlier)) {
            self.add_finding(format!("{id}: was recorded in place of a task that has not expired"));
        }
        self.created.remove(id);
        self.edited.remove(id);
        self.patches.retain(|(of, _), _| of != id);
        self.saved.remove(id);
        self.children.remove(id);
        self.alerts.remove(id);
        self.replied.retain(|(of, ..)| of != id);
        self.callback_answered.retain(|(of, _)| of != id);
        self.child_reported.retain(|(of, _)| of != id);
        self.waits.retain(|(of, ..), _| of != id);
        self.settled_by_operator.retain(|(of, ..)| of != id);
        self.skipped.retain(|(of, _)| of != id);
        self.tasks.remove(id).is_some()
    }

    /// Records that a client reuses a task id with another input.
    pub(super) fn observe_id_reuse(&mut self, id: &TaskId, input: Value) {
        self.client_inputs.entry(id.clone()).or_default().push(input);
    }

    /// Records a new task with its submission, and checks it.
    pub(super) fn observe_creation(
        &mut self,
        task: &Task,
        submitted: &Value,
        ledger: &EffectLedger,
        now: Millis,
    ) {
        let id = &task.task_id;
        if task.parent.is_none() {
            let input = submitted.get("input").cloned().unwrap_or_default();
            if !self.client_inputs.get(id).is_some_and(|inputs| inputs.contains(&input)) {
                self.add_finding(format!(
                    "{id}: was recorded with an input that no client submitted: {input}"
                ));
            }
            self.inputs.insert(id.clone(), input);
        }
        self.tasks.insert(id.clone(), task.clone());
        self.created.insert(id.clone(), now);
        if let Some(parent) = &task.parent {
            let of = self.children.entry(parent.task_id.clone()).or_default();
            of.insert((parent.step.clone(), id.clone()));
            let found = child_checks::check_creation(self, ledger, task);
            self.findings.extend(found);
        }
        let retention = self.model(id).and_then(|model| model.blueprint.retention_h);
        if task.retention_s != retention.map(|hours| hours * 3_600) {
            self.add_finding(format!(
                "{id}: has the wrong retention of {:?} seconds",
                task.retention_s
            ));
        }
        let found = due_check::check_due(self, task, task.submitted_at);
        self.findings.extend(found);
    }

    /// Records a successful save, and checks it. `documents` are the existing documents of the task's attempts.
    pub(super) fn observe_save(
        &mut self,
        before: &Task,
        after: &Task,
        documents: &[Document],
        ledger: &EffectLedger,
        now: Timestamp,
    ) {
        self.observe_edit(before, after);
        self.tasks.insert(after.task_id.clone(), after.clone());
        for (part, action, progress) in after.started_actions() {
            let old = before.progress(&part, action);
            self.record_settlement(
                (before, after),
                (&part, action),
                (old, progress),
                documents,
                ledger,
            );
            if let StepState::Waiting { until, .. } = progress.state {
                let attempt = progress.state.attempt_count();
                let key = (after.task_id.clone(), part, action, attempt);
                self.waits.entry(key).or_insert((now, until));
            }
        }
        let last = self.saved.insert(after.task_id.clone(), now);
        let save =
            save_checks::ObservedSave { oracle: self, ledger, before, after, documents, last, now };
        let found = save.check();
        self.findings.extend(found);
    }

    /// Records whether a part was settled by its task or by an operator.
    fn record_settlement(
        &mut self,
        (before, after): (&Task, &Task),
        (part, action): (&Part, Action),
        (old, new): (Option<&Progress>, &Progress),
        documents: &[Document],
        ledger: &EffectLedger,
    ) {
        let id = &after.task_id;
        let part_action = (id.clone(), part.clone(), action);
        match new.state {
            StepState::Skipped { .. } if old.is_some_and(|old| old.state == new.state) => {}
            StepState::Skipped { .. } => {
                let fresh = action == Action::Do && old.is_none() && part.item.is_none();
                let has_command = executes_command(before, after);
                let expected = TaskExpectations::of(self, ledger, id);
                let step = expected
                    .and_then(|expected| Some((expected, expected.model.step(&part.step)?)));
                let must_be_skipped = step.is_some_and(|(expected, step)| {
                    expected.should_run(step) == Expected::Value(false)
                });
                // A task that is being undone skips its waits.
                let waits = step.is_some_and(|(_, step)| matches!(step.work, WorkPlan::Wait(_)));
                let given_up = waits && after.undo_reason.is_some();
                if fresh && (must_be_skipped || !(has_command || given_up)) {
                    self.skipped.insert((id.clone(), part.step.clone()));
                }
                // An operator may skip a step before its task does.
                if has_command {
                    self.settled_by_operator.insert(part_action);
                }
            }
            StepState::Completed { .. } => {
                let key = new.output(part, action);
                let document =
                    documents.iter().find(|document| Some(&document.key) == key.as_ref());
                if document.is_some_and(|document| document.body == Self::operator_output()) {
                    self.settled_by_operator.insert(part_action);
                }
            }
            StepState::Running { .. }
            | StepState::AwaitingCallback { .. }
            | StepState::RunningItems
            | StepState::Waiting { .. }
            | StepState::Failed { .. } => {
                self.settled_by_operator.remove(&part_action);
            }
        }
    }

    /// Records the answer to a callback.
    pub(super) fn observe_callback_answer(&mut self, token: &CallbackToken) {
        self.callback_answered.insert((token.task_id.clone(), token.step.clone()));
    }

    /// Records a sent message, and checks it.
    pub(super) fn observe_message(&mut self, message: &OutgoingMessage, ledger: &EffectLedger) {
        let body = &message.body;
        match &message.queue {
            Queue::Submissions => {
                let found = child_checks::check_submission(self, ledger, body);
                self.findings.extend(found);
            }
            Queue::Agent(_) => self.observe_request(body),
            Queue::Scheduler => match serde_json::from_str(body) {
                Ok(SchedulerMessage::Reply(reply)) => {
                    let attempt = (reply.task_id, reply.step, reply.action, reply.attempt);
                    self.replied.insert(attempt);
                }
                Ok(SchedulerMessage::ChildEnded(ended)) => {
                    let found = child_checks::check_report(self, ledger, &ended);
                    self.child_reported.insert((ended.task_id, ended.step));
                    self.findings.extend(found);
                }
                Ok(
                    SchedulerMessage::Wake(_)
                    | SchedulerMessage::Command(_)
                    | SchedulerMessage::Callback(_)
                    | SchedulerMessage::ParentRequest(_)
                    | SchedulerMessage::ExtendRetention(_),
                )
                | Err(_) => {}
            },
            Queue::Client(_) => self.observe_notification(body, ledger),
            Queue::Rejected => {
                let id = serde_json::from_str::<Value>(body).unwrap_or_default();
                let id = id.get("task_id").and_then(Value::as_str).unwrap_or_default().to_owned();
                // A late copy of an earlier submission is refused if its id was reused.
                let mut client_inputs = self.client_inputs.iter();
                let is_reused =
                    client_inputs.any(|(of, inputs)| of.as_str() == id && inputs.len() > 1);
                if !is_reused && !self.colliding_ids.iter().any(|known| known.as_str() == id) {
                    self.add_finding(format!("a submission was refused: {body}"));
                }
            }
        }
    }

    fn observe_notification(&mut self, body: &str, ledger: &EffectLedger) {
        let Ok(notification) = serde_json::from_str::<StatusNotification>(body) else {
            return self.add_finding(format!("a notification cannot be parsed: {body}"));
        };
        let task_id = notification.task_id.unwrap_or_default();
        let output = notification.output.unwrap_or_default();
        let id = task_id.parse::<TaskId>().ok();
        let expected = id.as_ref().and_then(|id| TaskExpectations::of(self, ledger, id));
        let is_result = notification.status != NotificationStatus::Processed
            || expected.is_none_or(|expected| expected.is_possible_result(&output));
        if !is_result {
            self.add_finding(format!("{task_id}: {output} is no possible result"));
        }
        let status = status(notification.status).to_owned();
        self.notifications.insert((task_id, status, notification.at.as_millisecond()));
    }

    /// Checks a request to an agent: its attempt must have been saved before.
    fn observe_request(&mut self, body: &str) {
        let Ok(request) = serde_json::from_str::<StepRequest>(body) else {
            return self.add_finding(format!("a request cannot be parsed: {body}"));
        };
        let StepRequest { task_id, step, action, attempt, .. } = &request;
        let task = self.tasks.get(task_id);
        let stored = task.and_then(|task| task.progress(step, *action));
        if stored.is_none_or(|progress| progress.state.attempt_count() < *attempt) {
            let of = describe(task_id, step, *action);
            self.add_finding(format!("{of}: attempt {attempt} was sent before it was saved"));
        }
    }

    /// Records a published event, and checks it.
    pub(super) fn observe_event(&mut self, event: &BusEvent) {
        let at = event.metadata.at;
        let (trouble, undo_failed) = match &event.data {
            EventData::TaskInError(trouble) => (trouble, false),
            EventData::UndoFailed(trouble) => (trouble, true),
            // A late message may be for a task that has expired.
            EventData::MessageCorrupt { reason, .. }
                if self.has_late && reason.ends_with("there is no such task") =>
            {
                return;
            }
            EventData::MessageCorrupt { role, reason, .. } => {
                return self.add_finding(format!("{role} reported a corrupt message: {reason}"));
            }
            EventData::SubmissionRefused { .. }
            | EventData::DeadLetterSeen { .. }
            | EventData::AgentMissing { .. }
            | EventData::BreakerOpened(_)
            | EventData::BreakerClosed(_)
            | EventData::OperatorCommand { .. }
            | EventData::OperatorRedrive { .. }
            | EventData::TaskEnded { .. } => return,
        };
        let TaskAlert { steps, more_steps, .. } = trouble.clone();
        let alert = ObservedAlert { at, undo_failed, steps, more_steps };
        self.alerts.entry(trouble.task_id.clone()).or_default().push(alert);
    }
}

fn status(status: NotificationStatus) -> &'static str {
    match status {
        NotificationStatus::Received => "received",
        NotificationStatus::Refused => "refused",
        NotificationStatus::Processed => "Processed",
        NotificationStatus::Undone => "Undone",
        NotificationStatus::Error => "Error",
    }
}
