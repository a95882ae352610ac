//! The driver of the unit tests: a task of one workflow, with everything that it stored. It has no ports, and the test sets the
//! clock.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    decision::{DecisionContext, Transition},
    documents::{LoadedDocuments, NeededDocuments},
    effect::Effect,
    event::Event,
    transition::transition,
};
use crate::{
    definition::plan::Plan,
    model::{
        attempt::{Action, AttemptTimes},
        command::{Command, CommandAction},
        document::{Document, DocumentKey},
        messages::{ReplyOutcome, StepReply},
        names::Incarnation,
        task::Task,
        time::Timing,
    },
    submission::{accept, parse},
};

/// No instance needs time, and all clocks agree.
pub(crate) const TIMING: Timing = Timing {
    pickup_within: Duration::ZERO,
    clock_skew: Duration::ZERO,
    retention: Timing::RETENTION,
};

/// The task `t` of the workflow `w`, submitted at second 0.
pub(crate) struct TaskDriver {
    pub(crate) plan: Plan,
    pub(crate) task: Task,
    /// The documents that are stored outside of the task's item.
    pub(crate) stored: LoadedDocuments,
    /// The keys of the documents that the last decision read.
    pub(crate) read: BTreeSet<DocumentKey>,
    /// The time of the next decision, in seconds.
    pub(crate) now: i64,
    pub(crate) redelivered: bool,
}

impl TaskDriver {
    /// A task of a workflow with these keys, such as `steps`.
    pub(crate) fn new(definition: Value, input: &Value) -> Self {
        let mut workflow = json!({ "name": "w", "version": 1 });
        workflow.as_object_mut().unwrap().extend(definition.as_object().unwrap().clone());
        let plan: Plan = serde_json::from_value(workflow).unwrap();
        let submission = json!({ "task_id": "t", "workflow": "w", "input": input }).to_string();
        let submission = parse(&submission).unwrap();
        let (task, submitted) =
            accept(&submission, &plan, None, Timestamp::UNIX_EPOCH, TIMING).unwrap();
        let stored = LoadedDocuments::from_iter(submitted);
        Self { plan, task, stored, read: BTreeSet::new(), now: 0, redelivered: false }
    }

    pub(crate) fn context(&self) -> DecisionContext<'static> {
        DecisionContext {
            now: at(self.now),
            actor: "test",
            redelivered: self.redelivered,
            lost_starts: None,
            timing: TIMING,
            callback_urls: None,
        }
    }

    /// Decides on an event, with the documents that the decision asks for and no others, and saves what it changes.
    pub(crate) fn decide(&mut self, event: &Event) -> Transition {
        let mut loaded = LoadedDocuments::new();
        let decided = loop {
            match transition(&self.plan, &self.task, &loaded, event, self.context()) {
                Ok(decided) => break decided,
                Err(NeededDocuments(keys)) => loaded.extend(keys.into_iter().map(|key| {
                    let body = self.stored.get(&key).unwrap_or_else(|| panic!("no {key}"));
                    (key, body.clone())
                })),
            }
        };
        self.read = loaded.keys().cloned().collect();
        if let Transition::Apply { task, documents, .. } = &decided {
            self.task = (**task).clone();
            let new = documents.iter().cloned();
            self.stored.extend(new.map(|document| (document.key, document.body)));
        }
        decided
    }

    /// Decides on an event that changes the task. Returns what it stores outside of the task's item, and what it sends.
    pub(crate) fn apply(&mut self, event: &Event) -> (Vec<Document>, Vec<Effect>) {
        match self.decide(event) {
            Transition::Apply { documents, effects, .. } => (documents, effects),
            other @ (Transition::Ignore { .. } | Transition::Illegal(_)) => panic!("{other:?}"),
        }
    }

    /// Applies an event at this second.
    pub(crate) fn apply_at(&mut self, second: i64, event: &Event) -> (Vec<Document>, Vec<Effect>) {
        self.now = second;
        self.apply(event)
    }

    /// Carries out a command. Returns why it was refused.
    pub(crate) fn command(&mut self, id: &str, action: CommandAction) -> Option<String> {
        self.apply(&command(id, action, self.now));
        self.task.commands.last().unwrap().refused.clone()
    }
}

pub(crate) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// The reply to an attempt at a part.
pub(crate) fn reply(part: &str, action: Action, attempt: u32, outcome: ReplyOutcome) -> StepReply {
    StepReply {
        task_id: "t".parse().unwrap(),
        step: part.parse().unwrap(),
        action,
        attempt,
        outcome,
        incarnation: Incarnation::recorded_at(Timestamp::UNIX_EPOCH),
        times: AttemptTimes::default(),
        agent: None,
    }
}

pub(crate) fn completed(output: Value) -> ReplyOutcome {
    ReplyOutcome::Completed { output, may_continue: false }
}

pub(crate) fn failed(may_have_run: bool) -> ReplyOutcome {
    let reason = "no".to_owned();
    ReplyOutcome::Failed { reason, may_have_run, call_in_doubt: false, detail: None }
}

/// A command that Ann issues at this second.
pub(crate) fn command(id: &str, action: CommandAction, issued_at: i64) -> Event {
    let command = Command {
        command_id: id.parse().unwrap(),
        task_id: "t".parse().unwrap(),
        by: "ann".to_owned(),
        why: "a test".to_owned(),
        action,
        issued_at: at(issued_at),
    };
    Event::CommandReceived(command.received_from("AIDAANN".parse().unwrap()))
}

/// The same with a new id, issued at second 0.
pub(crate) fn new_command(action: CommandAction) -> Event {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    command(&format!("c-{}", NEXT.fetch_add(1, Ordering::Relaxed)), action, 0)
}
