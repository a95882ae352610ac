//! The shell of one story: it saves, stores documents, moves the clock, and says what happened.

use jiff::Timestamp;
use serde_json::{Value, json};
use steward_core::{
    engine::{
        decision::{Context, Transition},
        documents::{Documents, Wanted},
        effect::Effect,
        event::Event,
        transition::transition,
    },
    model::{
        attempt::{Action, Attempt},
        command::{Command, Order},
        document::{Document, DocumentKey},
        messages::{Answer, ChildOutcome, Outcome, Submission},
        step::StepState,
        task::{ProcessState, Task},
    },
    submission::accept,
};

use super::{
    Walk,
    laws::{self, Decided},
    left::{Happens, Submitted, TASK_ID, happens},
    said::{said_due, said_saved, said_sent},
    script::{Line, Story},
};

/// The shell of one story: the task as saved, the documents as stored, the clock.
pub(super) struct World<'a> {
    story: &'a Story,
    task: Option<Task>,
    documents: Documents,
    now: Timestamp,
    /// The newest command, and how many there were.
    command: Option<(Command, u32)>,
    /// The laws that the last line broke.
    pub(super) broken: Vec<String>,
    pub(super) walk: Walk,
}

impl<'a> World<'a> {
    pub(super) fn new(story: &'a Story) -> Self {
        Self {
            story,
            task: None,
            documents: Documents::new(),
            now: Timestamp::UNIX_EPOCH,
            command: None,
            broken: Vec::new(),
            walk: Walk::default(),
        }
    }

    /// Lets one line happen, and says what the core answered.
    pub(super) fn play(&mut self, line: &Line) -> Result<String, String> {
        match happens(&line.left)? {
            Happens::TimePasses(by) => {
                self.now = self.now.checked_add(by).map_err(|error| error.to_string())?;
                Ok(String::new())
            }
            Happens::Submitted(submitted) => self.submit(submitted),
            Happens::Event { event, redelivered } => self.decide(&event, redelivered),
            Happens::AlertSent { of } => {
                let newest = self.task.as_ref().and_then(|task| task.ended_at);
                let ended_at = of.map(|of| Timestamp::UNIX_EPOCH + of).or(newest);
                let event = Event::AlertSent { ended_at: ended_at.unwrap_or(self.now) };
                self.decide(&event, false)
            }
            Happens::Commanded { by, why, order, redelivered } => {
                let command = self.command(by, why, order)?;
                self.decide(&Event::Commanded(command), redelivered)
            }
            Happens::CommandedAgain { redelivered } => {
                let command = self.command.as_ref().ok_or("nothing was commanded")?.0.clone();
                self.decide(&Event::Commanded(command), redelivered)
            }
        }
    }

    fn command(&mut self, by: String, why: String, order: Order) -> Result<Command, String> {
        let number = self.command.as_ref().map_or(0, |(_, number)| *number) + 1;
        let command_id = format!("c-{number}").parse().map_err(|error| format!("{error}"))?;
        let task_id = TASK_ID.parse().map_err(|error| format!("{error}"))?;
        let issued_at = Some(self.now);
        let command = Command { command_id, task_id, by, why, order, issued_at };
        self.command = Some((command.clone(), number));
        Ok(command)
    }

    fn submit(&mut self, submitted: Submitted) -> Result<String, String> {
        let Story { workflow, timing, .. } = self.story;
        let Submitted { input, reply_to, parent, undo } = submitted;
        let task_id = TASK_ID.parse().map_err(|error| format!("{error}"))?;
        let (workflow_name, version) = (workflow.name.clone(), None);
        let submission = Submission {
            task_id,
            workflow: workflow_name,
            version,
            input,
            reply_to,
            parent,
            undo,
            attempt: None,
            has_begun: false,
            keep: None,
        };
        let (task, document) = accept(&submission, workflow, None, self.now, *timing);
        self.documents = Documents::from([(document.key, document.body)]);
        let said = format!("{}; {}", task.process_state, said_due(&task));
        self.task = Some(task);
        Ok(said)
    }

    fn decide(&mut self, event: &Event, redelivered: bool) -> Result<String, String> {
        let before = self.task.clone().ok_or("nothing was submitted")?;
        let workflow = &self.story.workflow;
        let context = self.context(event, redelivered);
        let answer = self.ask(&before, event, context);
        self.walk.step(&before, event, &answer);
        Ok(match answer {
            Transition::Apply { task, documents, effects } => {
                self.store(&documents, event, &task);
                let (before, after) = (&before, task.as_ref());
                let decided =
                    Decided { workflow, before, after, event, effects: &effects, context };
                self.broken.extend(laws::of_a_decision(&decided));
                self.broken.extend(self.law_of_going_on(&task));
                let mut said = said_saved(workflow, before, &task, &documents, &effects, self.now);
                said.extend(said_sent(workflow, &effects));
                self.task = Some(*task);
                said.join("; ")
            }
            Transition::Ignore { reason, effects } => {
                self.broken.extend(laws::of_what_is_told(workflow, &before, &effects));
                let again = said_sent(workflow, &effects).into_iter();
                let again = again.map(|said| format!("; again {said}"));
                format!("ignored: {reason:?}{}", again.collect::<String>())
            }
            Transition::Illegal(reason) => format!("illegal: {reason}"),
        })
    }

    fn context(&self, event: &Event, redelivered: bool) -> Context<'static> {
        let actor = if *event == Event::Swept { "supervisor" } else { "scheduler" };
        Context { now: self.now, actor, redelivered, timing: self.story.timing }
    }

    /// Hands over what the core asks for, and checks that it asks for nothing else.
    fn ask(&mut self, task: &Task, event: &Event, context: Context<'_>) -> Transition {
        let workflow = &self.story.workflow;
        let mut handed = Documents::new();
        let answer = loop {
            match transition(workflow, task, &handed, event, context) {
                Ok(answer) => break answer,
                Err(Wanted(keys)) => {
                    for key in keys {
                        if !self.documents.contains_key(&key) {
                            self.broken.push(format!("it asks for what is there, and for {key}"));
                        }
                        let body = self.documents.get(&key).cloned().unwrap_or_default();
                        if handed.insert(key.clone(), body).is_some() {
                            self.broken.push(format!("it asks once, and again for {key}"));
                        }
                    }
                }
            }
        };
        if !handed.is_empty() && !reads(&answer) {
            let keys: Vec<_> = handed.keys().map(ToString::to_string).collect();
            self.broken.push(format!("it asks for nothing else; it asked for {keys:?}"));
        }
        if Ok(&answer) != transition(workflow, task, &self.documents, event, context).as_ref() {
            self.broken.push("it asks for all it takes".to_owned());
        }
        answer
    }

    /// A task that goes on never stands still: something runs or waits, or a wake would start it,
    /// and then the supervisor looks in time if that wake is lost.
    fn law_of_going_on(&self, task: &Task) -> Option<String> {
        if task.process_state.is_final() || task.paused_at.is_some() || self.now >= task.complete_by
        {
            return None;
        }
        let Story { workflow, timing, .. } = self.story;
        let context = self.context(&Event::Wake, false);
        let Ok(woken) = transition(workflow, task, &self.documents, &Event::Wake, context) else {
            return Some("all documents are at hand".to_owned());
        };
        let due_by = self.now + timing.pickup_within + timing.clock_skew;
        if matches!(woken, Transition::Apply { .. }) {
            let in_time = task.due.is_some_and(|due| due <= due_by);
            return (!in_time).then(|| "what could start now is due soon".to_owned());
        }
        let under_way = task.actions().any(|(_, action, progress)| match progress.state {
            StepState::Running { .. } | StepState::HandedOut { .. } => true,
            StepState::Waiting { .. } => action == task.direction(),
            StepState::Each
            | StepState::Completed { .. }
            | StepState::Failed { .. }
            | StepState::Skipped { .. } => false,
        });
        let under_way = under_way || task.undo_waits(self.now).next().is_some();
        (!under_way).then(|| "a task that goes on never stands still".to_owned())
    }

    fn store(&mut self, documents: &[Document], event: &Event, task: &Task) {
        for Document { key, body, .. } in documents {
            if !self.is_right(key, body, event, task) {
                self.broken.push(format!("a document says what was said; {key} does not"));
            }
            if self.documents.insert(key.clone(), body.clone()).is_some() {
                self.broken.push(format!("a document is written once; {key} was written before"));
            }
        }
        for (step, action, progress) in task.actions() {
            if let Some(key) = progress.output(&step, action)
                && !self.documents.contains_key(&key)
            {
                self.broken.push(format!("the state never points at nothing; it points at {key}"));
            }
        }
    }

    fn is_right(&self, key: &DocumentKey, body: &Value, event: &Event, task: &Task) -> bool {
        let order = match event {
            Event::Commanded(command) => Some(&command.order),
            Event::Wake
            | Event::Swept
            | Event::Replied(_)
            | Event::Answered { .. }
            | Event::Asked(_)
            | Event::ChildEnded { .. }
            | Event::AlertSent { .. } => None,
        };
        match (key, event) {
            (DocumentKey::Output(of), Event::Replied(reply)) => {
                matches!(&reply.outcome, Outcome::Completed { output, .. } if output == body)
                    && of.action == reply.action
            }
            (DocumentKey::Output(of), Event::Answered { answer, .. }) => {
                *answer == Answer::Completed { output: body.clone() } && of.action == Action::Do
            }
            (DocumentKey::Output(of), Event::ChildEnded { outcome, .. }) => match of.action {
                Action::Do => *outcome == ChildOutcome::Processed { output: body.clone() },
                Action::Undo => *body == Value::Null,
            },
            (DocumentKey::Result(_), _) => task.process_state == ProcessState::Processed,
            (DocumentKey::Output(_), _) => false,
            (DocumentKey::ByHand(..), _) => {
                matches!(order, Some(Order::Complete { output, .. }) if output == body)
            }
            (
                DocumentKey::Failure(Attempt { step, action, number })
                | DocumentKey::Deferral(Attempt { step, action, number }),
                _,
            ) => {
                let says =
                    |key| body.get(key).and_then(Value::as_str).is_some_and(|s| !s.is_empty());
                let attempt = task.progress(step, *action).map(|p| p.state.attempt());
                attempt == Some(*number) && says("reason") && says("verdict")
            }
            (DocumentKey::Input(id), Event::Commanded(command)) => {
                *id == command.command_id && body.get("input") == Some(&self.edited(order))
            }
            (DocumentKey::Input(_) | DocumentKey::Submission | DocumentKey::Claim(_), _) => false,
        }
    }

    /// The newest input with a command's edit of its top-level keys.
    fn edited(&self, order: Option<&Order>) -> Value {
        let newest = self.task.as_ref().and_then(|task| task.input.clone());
        let key = newest.map_or(DocumentKey::Submission, DocumentKey::Input);
        let mut input = self.documents.get(&key).map_or(json!({}), |body| body["input"].clone());
        if let (Some(Order::Resubmit { input: Some(patch), .. }), Some(input)) =
            (order, input.as_object_mut())
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

/// Whether a decision had to read documents: to make a request, or to find that it cannot be made, to
/// begin a step, to edit the input, to tell what the task returned.
fn reads(answer: &Transition) -> bool {
    let made = |effects: &[Effect]| {
        effects.iter().any(|effect| match effect {
            Effect::Request(_) | Effect::Submit(_) | Effect::ChildEnded(_) => true,
            Effect::Notice { notice, .. } => notice.output.is_some(),
            Effect::Ask(_)
            | Effect::Reply(_)
            | Effect::Wake { .. }
            | Effect::Reject { .. }
            | Effect::Publish(_) => false,
        })
    };
    match answer {
        Transition::Apply { task, documents, effects } => {
            let kept = documents.iter();
            let is_output =
                |key: &DocumentKey| matches!(key, DocumentKey::Output(_) | DocumentKey::ByHand(..));
            let mut kept = kept.filter(|made| !is_output(&made.key));
            let begun = task.steps.values().any(|record| {
                record.items.is_some()
                    || matches!(
                        record.run.state,
                        StepState::Skipped { attempt: 0 }
                            | StepState::Waiting { attempt: 0, .. }
                            | StepState::Completed { attempt: 0 }
                    )
            });
            let refused = task.commands.iter().any(|record| record.refused.is_some());
            made(effects) || kept.next().is_some() || begun || refused || task.error.is_some()
        }
        Transition::Ignore { effects, .. } => made(effects),
        Transition::Illegal(_) => false,
    }
}
