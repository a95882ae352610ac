//! The shell of one story: it saves, stores documents, moves the clock, and says what happened.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};
use steward_core::{
    effects::Effect,
    messages::{Alert, BusEvent, Outcome, StepRequest, Submission, WakeCause},
    names::StepName,
    ports::{Document, DocumentKey},
    submission::accept,
    task::{StepRecord, StepState, Task},
    transition::{Context, Documents, Event, Transition, needs, transition},
};

use super::{laws::*, script::*, *};

/// The shell of one story: the task as saved, the documents as stored, the clock.
pub(super) struct World<'a> {
    pub(super) story: &'a Story,
    pub(super) task: Option<Task>,
    pub(super) documents: Documents,
    pub(super) now: Timestamp,
    /// The laws that the last line broke.
    pub(super) broken: Vec<String>,
    pub(super) walk: Walk,
}

impl<'a> World<'a> {
    pub(super) fn new(story: &'a Story) -> Self {
        let (now, walk) = (Timestamp::UNIX_EPOCH, Walk::default());
        Self { story, task: None, documents: Documents::new(), now, broken: Vec::new(), walk }
    }

    /// Lets one line happen, and says what the core answered.
    pub(super) fn play(&mut self, line: &Line) -> Result<String, String> {
        match happens(&line.left)? {
            Happens::TimePasses(by) => {
                self.now = self.now.checked_add(by).map_err(|error| error.to_string())?;
                Ok(String::new())
            }
            Happens::Submitted { input, reply_to } => self.submit(input, reply_to),
            Happens::Event { event, redelivered } => self.decide(&event, redelivered),
        }
    }

    pub(super) fn submit(
        &mut self,
        input: Value,
        reply_to: Option<String>,
    ) -> Result<String, String> {
        let Story { workflow, timing, .. } = self.story;
        let task_id = TASK_ID.parse().map_err(|error| format!("{error}"))?;
        let name = workflow.name.clone();
        let submission = Submission { task_id, workflow: name, version: None, input, reply_to };
        let (task, document) = accept(&submission, workflow, None, self.now, *timing);
        self.broken = laws_of_the_task(None, &task, &[]);
        self.documents = Documents::from([(document.key, document.body)]);
        let due = said_due(&task);
        let said = format!("{}; {due}", task.process_state);
        self.task = Some(task);
        Ok(said)
    }

    pub(super) fn decide(&mut self, event: &Event, redelivered: bool) -> Result<String, String> {
        let before = self.task.clone().ok_or("nothing was submitted")?;
        let Story { workflow, timing, .. } = self.story;
        let actor = if *event == Event::Swept { "supervisor" } else { "scheduler" };
        let context = Context { now: self.now, actor, redelivered, timing: *timing };
        let answer = self.ask(&before, event, context);
        self.walk.arrows.extend(arrow(&before, event, &answer));
        Ok(match answer {
            Transition::Apply { task, documents, effects } => {
                self.store(&documents, event, &task);
                self.broken.extend(laws_of_the_task(Some(&before), &task, &effects));
                self.broken.extend(laws_of_the_end(&before, &task, event, &effects, self.now));
                self.broken.extend(laws_of_what_is_told(workflow, &task, &effects));
                let mut said = self.said_saved(&before, &task, &documents, &effects);
                said.extend(self.said_sent(&effects));
                self.task = Some(*task);
                said.join("; ")
            }
            Transition::Ignore { reason, effects } => {
                self.walk.reasons.insert(format!("{reason:?}"));
                self.broken.extend(laws_of_what_is_told(workflow, &before, &effects));
                let again = self.said_sent(&effects).map(|said| format!("; again {said}"));
                format!("ignored: {reason:?}{}", again.collect::<String>())
            }
            Transition::Illegal(reason) => format!("illegal: {reason}"),
        })
    }

    /// Hands over what `needs` asks for, and checks that this is all it takes.
    pub(super) fn ask(&mut self, task: &Task, event: &Event, context: Context<'_>) -> Transition {
        let workflow = &self.story.workflow;
        let wanted = needs(workflow, task, event, context);
        let mut handed = self.documents.clone();
        handed.retain(|key, _| wanted.contains(key));
        let answer = transition(workflow, task, &handed, event, context);
        if answer != transition(workflow, task, &self.documents, event, context) {
            self.broken.push(format!("`needs` asks for all it takes; it asked for {wanted:?}"));
        }
        if handed.len() < wanted.len() {
            self.broken.push(format!("`needs` asks for what is there; it asked for {wanted:?}"));
        }
        answer
    }

    pub(super) fn store(&mut self, documents: &[Document], event: &Event, task: &Task) {
        for Document { key, body, .. } in documents {
            let is_right = match (key, event) {
                (DocumentKey::Output { .. }, Event::Replied(reply)) => {
                    reply.outcome == Outcome::Completed { output: body.clone() }
                }
                (DocumentKey::Failure { step, .. }, _) => {
                    let reason = body.get("reason").and_then(Value::as_str).map(str::to_owned);
                    task.steps.get(step).is_some_and(|step| step.error == reason)
                }
                (DocumentKey::Output { .. } | DocumentKey::Submission, _) => false,
            };
            if !is_right {
                self.broken.push(format!("a document says what was said; {key} does not"));
            }
            if self.documents.insert(key.clone(), body.clone()).is_some() {
                self.broken.push(format!("a document is written once; {key} was written before"));
            }
        }
        for (step, record) in &task.steps {
            let (step, attempt) = (step.clone(), record.state.attempt());
            let key = DocumentKey::Output { step, attempt };
            let completed = matches!(record.state, StepState::Completed { .. });
            if completed && !self.documents.contains_key(&key) {
                self.broken.push(format!("the state never points at nothing; it points at {key}"));
            }
        }
    }

    pub(super) fn said_saved(
        &self,
        before: &Task,
        after: &Task,
        documents: &[Document],
        effects: &[Effect],
    ) -> Vec<String> {
        let mut said = Vec::new();
        if after.process_state != before.process_state {
            said.push(after.process_state.to_string());
        }
        let mut kept: BTreeMap<_, _> =
            documents.iter().map(|made| (made.key.clone(), made)).collect();
        for name in self.story.workflow.steps.keys() {
            let (old, new) = (before.steps.get(name), after.steps.get(name));
            if let Some(new) = new.filter(|new| old != Some(*new)) {
                said.extend(self.said_step(name, old, new, &mut kept, effects));
            }
        }
        said.extend(kept.keys().map(|key| format!("document {key}")));
        if before.locked_by.is_some() && after.locked_by.is_none() && !is_final(after) {
            said.push("unlocked".to_owned());
        }
        if after.due != before.due {
            said.push(said_due(after));
        }
        if said.is_empty() && effects.is_empty() {
            said.push("nothing".to_owned());
        }
        said
    }

    /// `reserve waiting (failures 1, reason kept)`. A step that runs is said by its request.
    pub(super) fn said_step(
        &self,
        name: &StepName,
        old: Option<&StepRecord>,
        new: &StepRecord,
        kept: &mut BTreeMap<DocumentKey, &Document>,
        effects: &[Effect],
    ) -> Option<String> {
        let state = new.state.name();
        let requested = |attempt: u32| {
            effects.iter().any(|effect| {
                matches!(effect, Effect::Request(request)
                    if request.step == *name && request.attempt == attempt)
            })
        };
        let mut said = match new.state {
            StepState::Running { attempt, .. } if requested(attempt) => return None,
            StepState::Running { attempt, .. } => format!("{name} {state} #{attempt}"),
            StepState::Waiting { until, .. } if until != self.now => {
                format!("{name} {state} until {}", since_start(until))
            }
            StepState::Waiting { .. } | StepState::Completed { .. } | StepState::Failed { .. } => {
                format!("{name} {state}")
            }
        };
        let (step, attempt) = (name.clone(), new.state.attempt());
        let mut details = Vec::new();
        if new.failure_count != old.map_or(0, |old| old.failure_count) {
            details.push(format!("failures {}", new.failure_count));
        }
        if kept.remove(&DocumentKey::Output { step: step.clone(), attempt }).is_some() {
            details.push("output kept".to_owned());
        }
        if kept.remove(&DocumentKey::Failure { step, attempt }).is_some() {
            details.push("reason kept".to_owned());
        }
        if !details.is_empty() {
            said.push_str(&format!(" ({})", details.join(", ")));
        }
        Some(said)
    }

    /// What is sent, in an order of its own: the core promises none.
    pub(super) fn said_sent(&self, effects: &[Effect]) -> impl Iterator<Item = String> {
        let place = |effect: &Effect| match effect {
            Effect::Request(request) => (0, self.story.workflow.steps.get_index_of(&request.step)),
            Effect::Notice { .. } => (1, None),
            Effect::Publish(BusEvent::Alert(_)) => (2, None),
            Effect::Publish(BusEvent::TaskEnded(_)) => (3, None),
            Effect::Wake(_) | Effect::Reply(_) | Effect::Reject { .. } => (4, None),
        };
        let mut effects: Vec<_> = effects.iter().collect();
        effects.sort_by_key(|effect| place(effect));
        effects.into_iter().map(said_effect)
    }
}

pub(super) fn said_effect(effect: &Effect) -> String {
    match effect {
        Effect::Request(request) => said_request(request),
        Effect::Wake(wake) if wake.cause == WakeCause::Recovery => "wake scheduler".to_owned(),
        Effect::Notice { queue, notice } => {
            let status = json!(notice.status);
            let status = status.as_str().unwrap_or_default();
            let reason = notice.reason.iter().map(|reason| format!(" \"{reason}\""));
            format!("notice to {queue}: {status}{}", reason.collect::<String>())
        }
        Effect::Publish(BusEvent::Alert(Alert::TaskInError { steps, reason, .. })) => {
            let steps: Vec<_> = steps.iter().map(StepName::as_str).collect();
            let steps =
                if steps.is_empty() { String::new() } else { format!(" {}", steps.join(", ")) };
            format!("alert{steps} \"{reason}\"")
        }
        Effect::Publish(BusEvent::TaskEnded(ended)) => {
            format!("event: ended in {}", ended.process_state)
        }
        Effect::Wake(_) | Effect::Reply(_) | Effect::Reject { .. } | Effect::Publish(_) => {
            format!("{effect:?}")
        }
    }
}

/// `request charge #1 by 35s at /path with {"body":1}`; a path that is just the step's name is not
/// said.
pub(super) fn said_request(request: &StepRequest) -> String {
    let StepRequest { step, attempt, complete_by, path, body, .. } = request;
    let mut said = format!("request {step} #{attempt} by {}", since_start(*complete_by));
    if *path != format!("/{step}") {
        said.push_str(&format!(" at {path}"));
    }
    if let Some(body) = body {
        said.push_str(&format!(" with {body}"));
    }
    said
}

pub(super) fn said_due(task: &Task) -> String {
    task.due.map_or("no longer due".to_owned(), |due| format!("due {}", since_start(due)))
}

/// A time as stories write it: `63s` after the start.
pub(super) fn since_start(time: Timestamp) -> String {
    let millis = time.as_millisecond();
    match millis % 1000 {
        0 => format!("{}s", millis / 1000),
        rest => format!("{}.{rest:03}s", millis / 1000),
    }
}
