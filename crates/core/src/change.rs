//! A change in the making: what the transition decided on, until it is a task, documents and effects.
//!
//! The parts are small and named in the words of the table in [`transition`](crate::transition):
//! complete, fail, start what is ready; then render the requests, and settle what holds for every
//! change, the end of a task and its due time.

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
    ports::{Document, DocumentKey},
    task::{ProcessState, StepRecord, StepState, Task, later},
    template::Scope,
    transition::{Context, Documents, Transition},
    workflow::Workflow,
};

/// A change in the making.
pub(crate) struct Change {
    pub(crate) task: Task,
    /// Steps to send to their agents.
    pub(crate) send: Vec<StepName>,
    /// Their requests, once rendered.
    requests: Vec<StepRequest>,
    pub(crate) documents: Vec<Document>,
    /// Whether the scheduler must be woken after the save.
    pub(crate) wake: bool,
    /// Whether the alert of a task that was in Error already is given again.
    pub(crate) alert_again: bool,
    /// Whether `due` is set anew (a sweep looked at all of it) or only moved earlier.
    pub(crate) due_anew: bool,
}

impl Change {
    pub(crate) fn of(task: &Task) -> Box<Self> {
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

    /// Records an agent's answer and, if the task is being driven forward, starts what it allows.
    pub(crate) fn record(
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

    pub(crate) fn count_failure(
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

    pub(crate) fn fail_task(&mut self, reason: &str) {
        if self.task.process_state != ProcessState::Error {
            self.task.process_state = ProcessState::Error;
            self.task.error = Some(limits::shorten(reason, limits::ERROR_CHARS_MAX));
        }
    }

    /// Starts nothing once the task's own complete-by has passed: nobody may act on it then.
    pub(crate) fn start_ready(&mut self, workflow: &Workflow, context: Context<'_>) {
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

    pub(crate) fn has_waiting_until(&self, now: Timestamp) -> bool {
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
    pub(crate) fn render(
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
    pub(crate) fn settle(
        mut self,
        before: &Task,
        workflow: &Workflow,
        context: Context<'_>,
    ) -> Transition {
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
pub(crate) fn ending(task: &Task, workflow: &Workflow) -> Vec<Effect> {
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
pub(crate) fn output_key(task: &Task, step: &StepName) -> Option<DocumentKey> {
    match task.steps.get(step)?.state {
        StepState::Completed { attempt } => {
            Some(DocumentKey::Output { step: step.clone(), attempt })
        }
        StepState::Running { .. } | StepState::Waiting { .. } | StepState::Failed { .. } => None,
    }
}

/// The request of a running step, or why it cannot be made.
pub(crate) fn request(
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
    let body = template.body.as_ref().map(|body| body.render(scope)).transpose();
    let request = StepRequest {
        task_id: task.task_id.clone(),
        step: step.clone(),
        attempt,
        complete_by,
        idempotency_key: idempotency_key(&task.task_id, step),
        agent: definition.agent.clone(),
        method: template.method,
        path: template.path.render_path(scope)?,
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
