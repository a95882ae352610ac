//! What the oracle records, and which checks it runs, when something happens: a task is recorded or saved, a message is
//! sent, an event is published, an operator sends a command.

use jiff::Timestamp;
use serde_json::Value;
use steward_core::{
    contract::{check_message_of_agent, check_request},
    model::{
        attempt::Action,
        command::{Command, CommandAction},
        document::Document,
        events::{BusEvent, EventData, TaskAlert},
        messages::{
            ChildOutcome, NotificationStatus, ReplyOutcome, SchedulerMessage, StatusNotification,
            StepRequest,
        },
        names::{CallbackToken, Part, TaskId},
        step::{Progress, StepState},
        task::Task,
    },
};
use steward_runtime::ports::{OutgoingMessage, Queue};
use steward_test_world::ledger::EffectLedger;

use super::{
    blueprint::WorkPlan,
    child_checks,
    expectations::{Expected, TaskExpectations},
    oracle::{ObservedAlert, Oracle},
    payload_values::is_same,
    plan::operator_output,
    save_checks,
    task_record::{describe, executes_command},
    virtual_time::Millis,
};

impl Oracle {
    /// Records that a client reuses a task id with another input.
    pub(super) fn observe_id_reuse(&mut self, id: &TaskId, input: Value) {
        self.candidate_inputs.entry(id.clone()).or_default().push(input);
    }

    /// Records a new task with its submission, and checks it.
    pub(super) fn observe_creation(
        &mut self,
        task: &Task,
        submitted: Option<&Value>,
        ledger: &EffectLedger,
        now: Millis,
    ) {
        let id = &task.task_id;
        if task.parent.is_none() {
            let input = submitted.and_then(|body| body.get("input")).cloned();
            let input = input.unwrap_or_default();
            let sent = self.candidate_inputs.get(id).into_iter().flatten();
            if !sent.into_iter().any(|sent| is_same(sent, &input)) {
                self.add_finding(format!(
                    "{id}: was recorded with an input that no client submitted: {input}"
                ));
            }
            self.client_task_inputs.insert(id.clone(), input);
        }
        self.observe_submitted_payloads(task, submitted);
        self.tasks.insert(id.clone(), task.clone());
        self.created_at.insert(id.clone(), now);
        if let Some(parent) = &task.parent {
            let of = self.children.entry(parent.task_id.clone()).or_default();
            of.insert((parent.step.clone(), id.clone()));
            let found = child_checks::check_creation(self, ledger, task);
            self.violations.extend(found);
        }
        let retention = self.model(id).and_then(|model| model.blueprint.retention_h);
        if task.retention_s != retention.map(|hours| hours * 3_600) {
            self.add_finding(format!(
                "{id}: has the wrong retention of {:?} seconds",
                task.retention_s
            ));
        }
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
        self.observe_occurrences(after);
        self.observe_agents(before, after, ledger);
        self.tasks.insert(after.task_id.clone(), after.clone());
        for (part, action, progress) in after.started_actions() {
            let old = before.progress(&part, action);
            self.record_decision(
                (before, after),
                (&part, action),
                (old, progress),
                documents,
                ledger,
            );
            // An undo ends the wait of a deferred attempt, which may wait again once its outcome is unknown.
            let waited = old.is_some_and(|old| matches!(old.state, StepState::Waiting { .. }));
            if let StepState::Waiting { until, .. } = progress.state
                && !waited
            {
                let attempt = progress.state.attempt_count();
                let key = (after.task_id.clone(), part, action, attempt);
                self.waits.insert(key, (now, until));
            }
        }
        self.observe_event_completions(before, after, documents, ledger, now);
        self.observe_stored_payloads(after, documents);
        let last = self.last_saved_at.insert(after.task_id.clone(), now);
        let save =
            save_checks::ObservedSave { oracle: self, ledger, before, after, documents, last, now };
        let found = save.check();
        self.violations.extend(found);
    }

    /// Records whether its task or an operator decided the outcome of a part.
    fn record_decision(
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
                let is_passed_over = action == Action::Do
                    && (new.failure_count > 0 || new.state.newest_attempt().is_some())
                    && step.is_some_and(|(_, step)| step.is_passed_over());
                if is_passed_over && !has_command {
                    self.completed_or_skipped_by_operator.insert(part_action);
                    return;
                }
                if fresh && (must_be_skipped || !(has_command || given_up)) {
                    self.skipped.insert((id.clone(), part.step.clone()));
                }
                // An operator may skip a step before its task does.
                if has_command {
                    self.completed_or_skipped_by_operator.insert(part_action);
                }
            }
            StepState::Completed { .. } => {
                let key = new.output(part, action);
                let document =
                    documents.iter().find(|document| Some(&document.key) == key.as_ref());
                if document.is_some_and(|document| document.body == operator_output()) {
                    self.completed_or_skipped_by_operator.insert(part_action);
                }
            }
            StepState::Running { .. }
            | StepState::AwaitingCallback { .. }
            | StepState::RunningItems
            | StepState::Waiting { .. }
            | StepState::Failed { .. } => {
                self.completed_or_skipped_by_operator.remove(&part_action);
            }
        }
    }

    /// Records the answer to a callback.
    pub(super) fn observe_callback_answer(&mut self, token: &CallbackToken) {
        self.callbacks_received.insert((token.task_id.clone(), token.step.clone()));
    }

    /// Checks a message to or from an agent against the published schemas.
    fn check_contract(&mut self, message: &OutgoingMessage) {
        let check: fn(&Value) -> Result<(), String> = match &message.queue {
            Queue::Agent(_) => check_request,
            Queue::Scheduler => check_message_of_agent,
            Queue::Commands
            | Queue::Submissions
            | Queue::Events
            | Queue::Client(_)
            | Queue::Rejected
            | Queue::Sweeps => return,
        };
        let parsed = serde_json::from_str(&message.body).unwrap_or_default();
        if let Err(violation) = check(&parsed) {
            self.violations.push(format!("a message violates the contract of agents: {violation}"));
        }
    }

    /// Records a sent message, and checks it.
    pub(super) fn observe_message(&mut self, message: &OutgoingMessage, ledger: &EffectLedger) {
        let body = &message.body;
        self.check_tenant(message);
        self.check_contract(message);
        match &message.queue {
            Queue::Submissions => {
                let found = child_checks::check_submission(self, ledger, body);
                self.violations.extend(found);
            }
            Queue::Agent(_) => self.observe_request(body),
            Queue::Scheduler | Queue::Commands => match serde_json::from_str(body) {
                Ok(SchedulerMessage::Reply(reply)) => {
                    self.rate_deferrals += u64::from(is_rate_deferral(&reply.outcome));
                    self.observe_refusal(&reply);
                    let attempt = (reply.task_id, reply.step, reply.action, reply.attempt);
                    self.agent_replies.insert(attempt);
                }
                Ok(SchedulerMessage::ChildEnded(ended)) => {
                    let found = child_checks::check_report(self, ledger, &ended);
                    if let ChildOutcome::Processed { output } = &ended.outcome {
                        self.payloads.observe_child_output(&ended.task_id, &ended.step, output);
                    }
                    self.child_reports_received.insert((ended.task_id, ended.step));
                    self.violations.extend(found);
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
            Queue::Events => {}
            Queue::Client(_) => self.observe_notification(body, ledger),
            Queue::Sweeps => self.add_finding(format!("a tick was sent: {body}")),
            Queue::Rejected => {
                let id = serde_json::from_str::<Value>(body).unwrap_or_default();
                let id = id.get("task_id").and_then(Value::as_str).unwrap_or_default().to_owned();
                // A late copy of an earlier submission is refused if its id was reused.
                let mut client_inputs = self.candidate_inputs.iter();
                let is_reused =
                    client_inputs.any(|(of, inputs)| of.as_str() == id && inputs.len() > 1);
                let is_right = is_reused || self.payloads.refused.contains(body);
                if !is_right && !self.colliding_ids.iter().any(|known| known.as_str() == id) {
                    self.add_finding(format!("a submission was refused: {body}"));
                }
            }
        }
    }

    /// Every message about a task has its tenant as the message group id. A child task has the tenant of its parent.
    fn check_tenant(&mut self, message: &OutgoingMessage) {
        if matches!(message.queue, Queue::Rejected | Queue::Sweeps) {
            return;
        }
        let body: Value = serde_json::from_str(&message.body).unwrap_or_default();
        let field = |key: &str| body.get(key).and_then(Value::as_str);
        // A refused submission may have the id of another task.
        let Some(id) = field("task_id").filter(|_| field("status") != Some("refused")) else {
            return;
        };
        let Some(task) = id.parse().ok().and_then(|id: TaskId| self.tasks.get(&id)) else { return };
        let is_collision = self.colliding_ids.iter().any(|known| known.as_str() == id);
        if !is_collision && task.tenant != message.tenant {
            let (queue, tenant) = (&message.queue, &message.tenant);
            let expected = &task.tenant;
            self.add_finding(format!(
                "{id}: a message to {queue:?} has the tenant {tenant:?} instead of {expected:?}"
            ));
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

    /// Records a command that an operator sends.
    pub(super) fn observe_command(&mut self, command: &Command) {
        if let CommandAction::Resubmit { input: Some(patch), .. } = &command.action {
            let of = (command.task_id.clone(), command.command_id.clone());
            self.input_edits.insert(of, patch.clone());
        }
    }

    /// Records an edit of the input that a save executed.
    fn observe_edit(&mut self, before: &Task, after: &Task) {
        let Some(edit) = after
            .input_edit_id
            .as_ref()
            .filter(|edit| before.input_edit_id.as_ref() != Some(*edit))
        else {
            return;
        };
        let id = &after.task_id;
        let Some(patch) = self.input_edits.get(&(id.clone(), edit.clone())) else { return };
        let Some(fields) = patch.as_object() else { return };
        let mut input = self.final_input(before).cloned().unwrap_or_default();
        if let Some(known) = input.as_object_mut() {
            known.extend(fields.clone());
        }
        self.edited_inputs.insert(id.clone(), input);
    }

    /// Records a published event, and checks it.
    pub(super) fn observe_event(&mut self, event: &BusEvent) {
        let event = match event {
            BusEvent::Operator(event) => event,
            BusEvent::Lifecycle(event) => return self.observe_lifecycle_event(event),
        };
        let at = event.metadata.at;
        let (trouble, undo_failed) = match &event.data {
            EventData::TaskInError(trouble) => (trouble, false),
            EventData::UndoFailed(trouble) => (trouble, true),
            // A late message may be for a task that has expired.
            EventData::MessageCorrupt { reason, .. }
                if self.has_late_messages && reason.ends_with("there is no such task") =>
            {
                return;
            }
            EventData::MessageCorrupt { role, reason, .. } => {
                return self.add_finding(format!("{role} reported a corrupt message: {reason}"));
            }
            EventData::SubmissionRefused { .. }
            | EventData::DeadLetterSeen { .. }
            | EventData::AgentMissing { .. }
            | EventData::AgentClockWrong { .. }
            | EventData::ErrorsUnresolved { .. }
            | EventData::TaskLate { .. }
            | EventData::BreakerOpened(_)
            | EventData::BreakerClosed(_)
            | EventData::OperatorCommand { .. }
            | EventData::OperatorRedrive { .. } => return,
        };
        let TaskAlert { steps, more_steps, .. } = trouble.clone();
        let alert = ObservedAlert { at, undo_failed, steps, more_steps };
        self.alerts.entry(trouble.task_id.clone()).or_default().push(alert);
    }
}

fn is_rate_deferral(outcome: &ReplyOutcome) -> bool {
    matches!(outcome, ReplyOutcome::Deferred { reason, .. } if reason.starts_with("rate limit"))
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
