//! Runs a story: passes events to the core, saves the task and its documents, and advances the clock, in place of the
//! drive loop.

use jiff::Timestamp;
use serde_json::{Value, json};
use steward_core::{
    engine::{
        decision::{DecisionContext, Transition},
        documents::{LoadedDocuments, NeededDocuments},
        effect::Effect,
        event::Event,
        transition::transition,
    },
    limits,
    model::{
        attempt::{Action, AttemptId},
        command::{Command, CommandAction, ReceivedCommand},
        document::{Document, DocumentKey},
        messages::{CallbackOutcome, ChildOutcome, ReplyOutcome, Submission},
        step::StepState,
        task::{ProcessState, Task},
    },
    submission::accept,
};

use super::{
    decision_text::{due, effects_sent, saved_changes},
    event_parser::{StoryEvent, StorySubmission, TASK_ID, parse_event},
    story_file::{Story, StoryLine},
};

/// Where the documents of a story are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DocumentPlaces {
    /// In the item of the task, if they fit.
    InItem,
    /// As items of their own, because the item of the task is full.
    Separate,
}

/// The state of a story: the saved task, the stored documents, the clock.
pub(super) struct StoryRun<'a, F> {
    story: &'a Story,
    places: DocumentPlaces,
    task: Option<Task>,
    /// All documents, wherever they are stored.
    documents: LoadedDocuments,
    now: Timestamp,
    /// Called for every decision with the task before it, the event, and the decision.
    observer: F,
    /// The newest command, and the number of commands so far.
    command: Option<(Command, u32)>,
    /// Whether the sender of the newest alert died before it was sent, and a command follows.
    alert_is_lost: bool,
    /// The invariants that the last line violated.
    pub(super) violated: Vec<String>,
}

impl<'a, F: FnMut(&Task, &Event, &Transition)> StoryRun<'a, F> {
    pub(super) fn new(story: &'a Story, places: DocumentPlaces, observer: F) -> Self {
        Self {
            story,
            places,
            observer,
            task: None,
            documents: LoadedDocuments::new(),
            now: Timestamp::UNIX_EPOCH,
            command: None,
            alert_is_lost: false,
            violated: Vec::new(),
        }
    }

    /// Records that the alert was published, as its sender does at once, unless the story says that it died.
    fn confirm_alert(&mut self) -> Result<(), String> {
        let pending = self.task.as_ref().filter(|task| task.is_alert_due && !self.alert_is_lost);
        if let Some(ended_at) = pending.and_then(|task| task.ended_at) {
            self.decide(&Event::AlertPublished { ended_at }, false)?;
        }
        Ok(())
    }

    /// Runs one line, and returns the decision as text.
    pub(super) fn run(&mut self, line: &StoryLine) -> Result<String, String> {
        match parse_event(&line.event)? {
            StoryEvent::ClockAdvanced(by) => {
                self.now = self.now.checked_add(by).map_err(|error| error.to_string())?;
                Ok(String::new())
            }
            StoryEvent::Submitted(submitted) => self.submit(submitted),
            StoryEvent::Event { event, redelivered } => self.decide(&event, redelivered),
            StoryEvent::AlertSent { ended_at } => {
                let newest = self.task.as_ref().and_then(|task| task.ended_at);
                let ended_at = ended_at.map(|after| Timestamp::UNIX_EPOCH + after).or(newest);
                let event = Event::AlertPublished { ended_at: ended_at.unwrap_or(self.now) };
                self.decide(&event, false)
            }
            StoryEvent::AlertLost => {
                self.alert_is_lost = true;
                Ok(String::new())
            }
            StoryEvent::Commanded { by, why, action, redelivered } => {
                self.confirm_alert()?;
                self.alert_is_lost = false;
                let command = self.command(by, why, action)?;
                self.decide(&Event::CommandReceived(received(command)), redelivered)
            }
            StoryEvent::CommandRepeated { redelivered } => {
                let command =
                    self.command.as_ref().ok_or("there was no command to repeat")?.0.clone();
                self.decide(&Event::CommandReceived(received(command)), redelivered)
            }
        }
    }

    fn command(
        &mut self,
        by: String,
        why: String,
        action: CommandAction,
    ) -> Result<Command, String> {
        let number = self.command.as_ref().map_or(0, |(_, number)| *number) + 1;
        let command_id = format!("c-{number}").parse().map_err(|error| format!("{error}"))?;
        let task_id = TASK_ID.parse().map_err(|error| format!("{error}"))?;
        let issued_at = self.now;
        let command = Command { command_id, task_id, by, why, action, issued_at };
        self.command = Some((command.clone(), number));
        Ok(command)
    }

    fn submit(&mut self, submitted: StorySubmission) -> Result<String, String> {
        let Story { plan, timing, .. } = self.story;
        let StorySubmission { input, reply_to, parent, undo } = submitted;
        let task_id = TASK_ID.parse().map_err(|error| format!("{error}"))?;
        let (workflow_name, version) = (plan.name.clone(), None);
        let submission = Submission {
            task_id,
            workflow: workflow_name,
            version,
            input,
            reply_to,
            tenant: None,
            parent,
            undo,
            attempt: None,
            has_begun: false,
            retention: None,
            rerun: None,
        };
        // An attribute that no decision reads fills the item.
        let filler = match self.places {
            DocumentPlaces::InItem => None,
            DocumentPlaces::Separate => Some("x".repeat(limits::INLINE_DOCUMENTS_BYTES_MAX)),
        };
        let (task, separate) = accept(&submission, plan, filler, self.now, *timing)
            .map_err(|refusal| refusal.to_string())?;
        self.documents = task.documents.iter().chain(separate).collect();
        let text = format!("{}; {}", task.process_state, due(&task));
        self.task = Some(task);
        Ok(text)
    }

    fn decide(&mut self, event: &Event, redelivered: bool) -> Result<String, String> {
        let before = self.task.clone().ok_or("nothing was submitted")?;
        let plan = &self.story.plan;
        let context = self.context(event, redelivered);
        let answer = self.transition(&before, event, context);
        (self.observer)(&before, event, &answer);
        Ok(match answer {
            Transition::Apply { task, documents: separate, effects } => {
                let is_new = |document: &Document| !before.documents.contains(&document.key);
                let documents = task.documents.iter().filter(is_new).chain(separate);
                let documents: Vec<_> = documents.collect();
                self.store(&documents, event, &task);
                let mut texts = saved_changes(plan, &before, &task, &documents, &effects, self.now);
                texts.extend(effects_sent(plan, &effects));
                self.task = Some(*task);
                texts.join("; ")
            }
            Transition::Ignore { reason, effects } => {
                let resent = effects_sent(plan, &effects).into_iter();
                let resent = resent.map(|effect| format!("; again {effect}"));
                format!("ignored: {reason:?}{}", resent.collect::<String>())
            }
            Transition::Illegal(reason) => format!("illegal: {reason}"),
        })
    }

    fn context(&self, event: &Event, redelivered: bool) -> DecisionContext<'static> {
        let actor = if *event == Event::Swept { "supervisor" } else { "scheduler" };
        DecisionContext {
            now: self.now,
            actor,
            redelivered,
            lost_starts: None,
            timing: self.story.timing,
            callback_urls: None,
        }
    }

    /// Calls the core with the documents that it wants, and checks that it wants only existing documents, each once.
    fn transition(
        &mut self,
        task: &Task,
        event: &Event,
        context: DecisionContext<'_>,
    ) -> Transition {
        let plan = &self.story.plan;
        let mut read = LoadedDocuments::new();
        let answer = loop {
            match transition(plan, task, &read, event, context) {
                Ok(answer) => break answer,
                Err(NeededDocuments(keys)) => {
                    for key in keys {
                        if task.documents.contains(&key) {
                            self.violated
                                .push(format!("the core wants only separate documents; not {key}"));
                        }
                        if !self.documents.contains_key(&key) {
                            self.violated
                                .push(format!("the core wants only existing documents; not {key}"));
                        }
                        let body = self.documents.get(&key).cloned().unwrap_or_default();
                        if read.insert(key.clone(), body).is_some() {
                            self.violated
                                .push(format!("the core wants a document once; not {key}"));
                        }
                    }
                }
            }
        };
        if !read.is_empty() && !needs_documents(&answer) {
            let keys: Vec<_> = read.keys().map(ToString::to_string).collect();
            self.violated.push(format!("the core wants only documents that it uses; not {keys:?}"));
        }
        if Ok(&answer) != transition(plan, task, &self.documents, event, context).as_ref() {
            let text = "with all documents available, the core decides the same";
            self.violated.push(text.to_owned());
        }
        answer
    }

    fn store(&mut self, documents: &[Document], event: &Event, task: &Task) {
        for Document { key, body, .. } in documents {
            if !self.is_body_right(key, body, event, task) {
                self.violated
                    .push(format!("a document contains what the event reported; not {key}"));
            }
            if self.documents.insert(key.clone(), body.clone()).is_some() {
                self.violated.push(format!("a document is written once; {key} was written before"));
            }
        }
        let text = serde_json::to_string(task).unwrap();
        if serde_json::from_str::<Task>(&text).ok().as_ref() != Some(task) {
            self.violated.push("a saved task is read back unchanged".to_owned());
        }
        for (step, action, progress) in task.started_actions() {
            if let Some(key) = progress.output(&step, action)
                && !self.documents.contains_key(&key)
            {
                self.violated
                    .push(format!("the task refers only to existing documents; not to {key}"));
            }
        }
    }

    /// Whether a new document contains what the event reported.
    fn is_body_right(&self, key: &DocumentKey, body: &Value, event: &Event, task: &Task) -> bool {
        let action = match event {
            Event::CommandReceived(ReceivedCommand { command, .. }) => Some(&command.action),
            Event::Wake
            | Event::Swept
            | Event::ReplyReceived(_)
            | Event::CallbackReceived { .. }
            | Event::ParentRequested(_)
            | Event::ChildEnded { .. }
            | Event::AlertPublished { .. } => None,
        };
        match (key, event) {
            (DocumentKey::Output(of), Event::ReplyReceived(reply)) => {
                matches!(&reply.outcome, ReplyOutcome::Completed { output, .. } if output == body)
                    && of.action == reply.action
            }
            (DocumentKey::Output(of), Event::CallbackReceived { outcome, .. }) => {
                *outcome == CallbackOutcome::Completed { output: body.clone() }
                    && of.action == Action::Do
            }
            (DocumentKey::Output(of), Event::ChildEnded { outcome, .. }) => match of.action {
                Action::Do => *outcome == ChildOutcome::Processed { output: body.clone() },
                Action::Undo => *body == Value::Null,
            },
            (DocumentKey::Items { .. }, _) => {
                body.as_array().is_some_and(|items| !items.is_empty())
            }
            (DocumentKey::Result(_), _) => task.process_state == ProcessState::Processed,
            (DocumentKey::Output(_), _) => false,
            (DocumentKey::OperatorOutput(..), _) => {
                matches!(
                    action,
                    Some(
                        CommandAction::Complete { output, .. }
                            | CommandAction::Approve { answer: output, .. }
                    ) if output == body
                )
            }
            (
                DocumentKey::Failure(AttemptId { step, action, number })
                | DocumentKey::Deferral(AttemptId { step, action, number }),
                _,
            ) => {
                let has_text =
                    |key| body.get(key).and_then(Value::as_str).is_some_and(|s| !s.is_empty());
                let attempt = task.progress(step, *action).map(|p| p.state.attempt_count());
                // After a refusal, the next attempt starts at once, at the next agent.
                let refused = matches!(event, Event::ReplyReceived(reply)
                    if reply.attempt == *number
                        && matches!(reply.outcome, ReplyOutcome::Deferred { certain: true, .. }));
                let is_newest = attempt == Some(*number) || refused && attempt == Some(number + 1);
                is_newest && has_text("reason") && has_text("verdict")
            }
            (DocumentKey::Input(id), Event::CommandReceived(ReceivedCommand { command, .. })) => {
                *id == command.command_id && body.get("input") == Some(&self.edited(action))
            }
            (DocumentKey::Input(_) | DocumentKey::Submission | DocumentKey::Claim(_), _) => false,
        }
    }

    /// The newest input with a command's edit applied to its top-level keys.
    fn edited(&self, action: Option<&CommandAction>) -> Value {
        let newest = self.task.as_ref().and_then(|task| task.input_edit_id.clone());
        let key = newest.map_or(DocumentKey::Submission, DocumentKey::Input);
        let mut input = self.documents.get(&key).map_or(json!({}), |body| body["input"].clone());
        if let (Some(CommandAction::Resubmit { input: Some(patch), .. }), Some(input)) =
            (action, input.as_object_mut())
        {
            for (key, value) in patch.as_object().cloned().unwrap_or_default() {
                if value.is_null() {
                    input.remove(&key);
                } else {
                    input.insert(key, value);
                }
            }
        }
        input
    }
}

/// Whether a decision needed documents: for a request, also one that cannot be made; to start a step; to edit the input;
/// or to report the task's output.
fn needs_documents(answer: &Transition) -> bool {
    let contain_documents = |effects: &[Effect]| {
        effects.iter().any(|effect| match effect {
            Effect::Request(_)
            | Effect::Submit(_)
            | Effect::AwaitEvent(_)
            | Effect::ChildEnded(_) => true,
            Effect::Notification { notice, .. } => notice.output.is_some(),
            Effect::ParentRequest(_)
            | Effect::Reply(_)
            | Effect::Wake { .. }
            | Effect::Reject { .. }
            | Effect::Publish(_) => false,
        })
    };
    match answer {
        Transition::Apply { task, documents, effects } => {
            let created = documents.iter();
            let is_output = |key: &DocumentKey| {
                matches!(key, DocumentKey::Output(_) | DocumentKey::OperatorOutput(..))
            };
            let mut created = created.filter(|document| !is_output(&document.key));
            let started = task.steps.values().any(|record| {
                record.items.is_some()
                    || matches!(
                        record.forward.state,
                        StepState::Skipped { attempt: None }
                            | StepState::Waiting { attempt: None, .. }
                            | StepState::Completed { attempt: None }
                    )
            });
            let refused = task.commands.iter().any(|record| record.refused.is_some());
            contain_documents(effects)
                || created.next().is_some()
                || started
                || refused
                || task.error.is_some()
        }
        Transition::Ignore { effects, .. } => contain_documents(effects),
        Transition::Illegal(_) => false,
    }
}

/// The command as received from the operator of all stories.
fn received(command: Command) -> ReceivedCommand {
    command.received_from("AIDAOPERATOR".parse().unwrap())
}
