//! What the services of a case do.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use reqwest::header::{HeaderName, HeaderValue};
use serde_json::{Map, Value, json};
use steward_core::{
    definition::duration::WrittenDuration,
    model::{
        attempt::Action,
        command::{Command, CommandAction},
        messages::{CallbackOutcome, ChildOutcome, mistake},
        names::{Part, StepName, TaskId, WorkflowName},
    },
};
use steward_forecast::cost::scripted::{
    Body, CallPlan, ChildCall, OutsideMessage, Reply, Script, ScriptedCall, StepKeyRef,
};

use super::{
    file::{
        Answer, AnswerFault, Answers, CallbackAnswer, ChildEnd, ChildUndoEnd, ServiceScript,
        TestCase, TimedCommand, TimedEvent,
    },
    workflow_tests::WorkflowTests,
};

/// How long a service takes that the test file does not say it of, in milliseconds.
const CALL_MS: u64 = 100;

/// How long a child task takes that the test file does not say it of.
const CHILD_TIME: Duration = Duration::from_secs(1);

/// The script of a case.
#[derive(Debug, Default)]
pub(super) struct CaseScript {
    steps: BTreeMap<(WorkflowName, StepName), ServiceScript>,
    /// How many calls have started each part that awaits a callback.
    started: Mutex<BTreeMap<(TaskId, Part), u32>>,
}

impl CaseScript {
    pub(super) fn new(tests: &WorkflowTests, case: &TestCase) -> Self {
        let labels = tests.labels();
        let steps = labels.iter().filter_map(|label| {
            let (workflow, step, _) = tests.step(label)?;
            let script = tests.script(case, label)?;
            Some(((workflow.name.clone(), step.clone()), script.clone()))
        });
        Self { steps: steps.collect(), started: Mutex::default() }
    }

    fn step(&self, step: &StepKeyRef<'_>) -> Option<&ServiceScript> {
        self.steps.get(&(step.workflow.clone(), step.step.clone()))
    }

    /// The answers to the calls of a part: those of its item, of its agent, or of its step.
    fn answers(&self, call: &ScriptedCall<'_>) -> Option<&Answers> {
        let script = self.step(&call.step)?;
        let item = call.request.step.item.and_then(|item| script.items.get(&item.to_string()));
        let (of_item, of_step) = match call.request.action {
            Action::Do => (item.and_then(|item| item.run.as_ref()), script.run.as_ref()),
            Action::Undo => (item.and_then(|item| item.undo.as_ref()), script.undo.as_ref()),
        };
        let of_agent = script.agents.get(call.request.agent.as_str());
        let of_agent = of_agent.filter(|_| call.request.action == Action::Do);
        of_item.or(of_agent).or(of_step)
    }
}

impl Script for CaseScript {
    fn call(&self, call: &ScriptedCall<'_>) -> CallPlan {
        let answer = self.answers(call).and_then(|answers| nth(answers.list(), call.number));
        match (answer, call.request.action) {
            (Some(answer), _) => planned(answer),
            (None, Action::Do) => CallPlan::success(CALL_MS, call.sample.clone()),
            (None, Action::Undo) => CallPlan::success(CALL_MS, Value::Null),
        }
    }

    fn callbacks(&self, call: &ScriptedCall<'_>) -> Vec<(Duration, CallbackOutcome)> {
        let Some(script) = self.step(&call.step) else { return Vec::new() };
        let item = call.request.step.item.and_then(|item| script.items.get(&item.to_string()));
        let of_item = item.map(|item| &item.callback).filter(|callback| !callback.is_empty());
        let number = {
            let mut started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
            let part = (call.request.task_id.clone(), call.request.step.clone());
            let count = started.entry(part).or_default();
            *count += 1;
            *count
        };
        let callbacks = of_item.unwrap_or(&script.callback).iter();
        let callbacks = callbacks.filter(|callback| callback.call.unwrap_or(1) == number);
        callbacks.map(|callback| (time(callback.after), outcome(callback))).collect()
    }

    fn child(&self, child: &ChildCall<'_>) -> Option<(Duration, ChildOutcome)> {
        let script = self.step(&child.step).and_then(|script| script.child.clone());
        let script = script.unwrap_or_default();
        let after = script.after.map_or(CHILD_TIME, |after| after.0);
        let reason = || "as the test says".to_owned();
        let error =
            |not_undone| ChildOutcome::Error { reason: reason(), not_undone, was_processed: false };
        let outcome = match (child.action, script.ends, script.undo) {
            (Action::Do, ChildEnd::Processed, _) => {
                ChildOutcome::Processed { output: script.output.unwrap_or(child.sample.clone()) }
            }
            (Action::Do, ChildEnd::Undone, _) | (Action::Undo, _, ChildUndoEnd::Undone) => {
                ChildOutcome::Undone { reason: reason() }
            }
            (Action::Do, ChildEnd::Error, _) => error(false),
            (Action::Undo, _, ChildUndoEnd::Error) => error(true),
            (Action::Do, ChildEnd::Never, _) | (Action::Undo, _, ChildUndoEnd::Never) => {
                return None;
            }
        };
        Some((after, outcome))
    }

    /// The events of a test come at their own times.
    fn event_after(&self, _: &StepKeyRef<'_>, _: &Part, _: Duration) -> Option<Duration> {
        None
    }
}

/// The answer to the call with this number, from 1. The last answer is repeated.
fn nth(answers: &[Answer], number: u32) -> Option<&Answer> {
    let mut before = 0;
    for answer in answers {
        before += answer.times.unwrap_or(1);
        if number <= before {
            return Some(answer);
        }
    }
    answers.last()
}

/// What a service does whose answer is written in the test.
fn planned(answer: &Answer) -> CallPlan {
    let after = answer.after.map_or(CALL_MS, |after| after.0.as_millis() as u64);
    let reply = match answer.fault {
        Some(AnswerFault::Silent) => {
            return CallPlan::success(after, Value::Null).silent();
        }
        Some(AnswerFault::NoConnection) => Reply::NoConnection,
        Some(AnswerFault::BrokenConnection) => Reply::BrokenConnection,
        None => {
            let body = match (&answer.body, &answer.text) {
                (_, Some(text)) => text.clone().into_bytes(),
                (Some(body), None) => body.to_string().into_bytes(),
                (None, None) => Vec::new(),
            };
            let headers = answer.headers.iter().filter_map(|(name, value)| {
                Some((HeaderName::try_from(name).ok()?, HeaderValue::try_from(value).ok()?))
            });
            let (status, headers) = (answer.status.unwrap_or(200), headers.collect());
            Reply::Http { status, headers, body: Body::Bytes(body) }
        }
    };
    CallPlan::without_effect(after, reply)
}

fn outcome(callback: &CallbackAnswer) -> CallbackOutcome {
    match (&callback.completed, &callback.failed) {
        (Some(output), _) => CallbackOutcome::Completed { output: output.clone() },
        (None, Some(reason)) => CallbackOutcome::Failed { reason: reason.clone() },
        (None, None) => CallbackOutcome::Heartbeat,
    }
}

fn time(written: Option<WrittenDuration>) -> Duration {
    written.map_or(Duration::ZERO, |written| written.0)
}

/// What an operator's command does.
///
/// # Errors
/// The command does not have one of the keys.
pub(super) fn command_action(command: &TimedCommand) -> Result<CommandAction, String> {
    let TimedCommand { step, input, output, answer, did_not_run, .. } = command;
    let mut fields = Map::new();
    fields.insert("command".to_owned(), json!(format!("{:?}", command.command).to_lowercase()));
    let values = [
        ("step", step.clone().map(Value::String)),
        ("input", input.clone()),
        ("output", output.clone()),
        ("answer", answer.clone()),
        ("did_not_run", did_not_run.map(Value::Bool)),
    ];
    let values = values.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
    fields.extend(values);
    serde_json::from_value(Value::Object(fields)).map_err(|error| mistake(&error))
}

/// The messages from outside the functions in a case, with their times after the submission.
pub(super) fn messages(case: &TestCase, task_id: &TaskId) -> Vec<(Duration, OutsideMessage)> {
    let commands = case.commands.iter().enumerate().filter_map(|(n, command)| {
        let sent = Command {
            command_id: format!("command-{}", n + 1).parse().ok()?,
            task_id: task_id.clone(),
            by: command.by.clone().unwrap_or_else(|| "operator".to_owned()),
            why: command.why.clone().unwrap_or_else(|| "test".to_owned()),
            action: command_action(command).ok()?,
            // The time of its delivery replaces it.
            issued_at: Timestamp::UNIX_EPOCH,
        };
        Some((command.at.0, OutsideMessage::Command(Box::new(sent))))
    });
    let events = case.events.iter().enumerate().map(|(n, event)| {
        let TimedEvent { at, source, detail_type, detail } = event;
        let envelope = json!({
            "version": "0", "id": format!("event-{}", n + 1), "account": "000000000000",
            "region": "us-east-1", "time": Timestamp::UNIX_EPOCH, "resources": [],
            "source": source, "detail-type": detail_type, "detail": detail,
        });
        (at.0, OutsideMessage::Event(envelope))
    });
    commands.chain(events).collect()
}
