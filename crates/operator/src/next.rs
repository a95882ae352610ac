//! What happens to a task next, and when, in sentences.

use std::fmt;

use jiff::Timestamp;
use steward_core::{
    definition::{
        recovery::{FinalAction, Overdue, Recovery, RecoveryDecision},
        step::{StepDefinition, StepWork},
        workflow::Workflow,
    },
    engine::request::child_id,
    model::{
        attempt::Action,
        document::Document,
        names::{Part, TaskId},
        step::{Progress, StepState},
        task::{ProcessState, Task},
        time::later,
    },
};

use crate::{capitalize, failure_reason::newest_reason, part_label};

/// One thing that happens next. As a sentence without its full stop: `what`, then `at`, then a comma and `then`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NextEvent {
    /// What happens. If there is a time, this ends with the word before it: `by`, `at`, `until`.
    pub what: String,
    /// When it happens.
    pub at: Option<Timestamp>,
    /// What follows from it; empty if nothing does.
    pub then: String,
    /// The child task that runs for the step, if there is one.
    pub child: Option<TaskId>,
}

impl NextEvent {
    fn new(what: &str) -> Self {
        Self { what: what.to_owned(), ..Self::default() }
    }
}

impl fmt::Display for NextEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        if let Some(at) = self.at {
            write!(f, " {at}")?;
        }
        if !self.then.is_empty() {
            write!(f, ", {}", self.then)?;
        }
        Ok(())
    }
}

/// What happens to a task next. For a task that is not final the last event is its own deadline.
///
/// Without `workflow` the events do not name agents, and do not say what happens at a deadline. `documents` contain the
/// reasons of failures; without them a retry has no reason.
#[must_use]
pub fn next_events(
    task: &Task,
    workflow: Option<&Workflow>,
    documents: &[Document],
) -> Vec<NextEvent> {
    match task.process_state {
        ProcessState::Processed | ProcessState::Undone => {
            return vec![NextEvent::new("The task has ended")];
        }
        ProcessState::Error if task.resolved_at.is_some() => {
            return vec![NextEvent::new("An operator has settled the error; the task expires")];
        }
        ProcessState::Error if task.undo_reason.is_some() => {
            let undos = || task.part_spans().filter_map(|(_, record)| record.undo.as_ref());
            return vec![NextEvent::new(match undos().any(|undo| undo.state.is_failed()) {
                true => "An operator must resubmit, skip or complete the failed undo",
                false => "An operator must check the error, and resubmit to continue the undo",
            })];
        }
        ProcessState::Error => {
            let has_failed_step =
                task.part_spans().any(|(_, record)| record.forward.state.is_failed());
            let undo = !workflow.is_some_and(|workflow| is_past_return(workflow, task));
            return vec![NextEvent::new(match (has_failed_step, undo) {
                (true, true) => {
                    "An operator must resubmit, skip or complete the failed step, or undo the task"
                }
                (true, false) => "An operator must resubmit, skip or complete the failed step",
                (false, true) => "An operator must resubmit or undo the task",
                (false, false) => "An operator must resubmit the task",
            })];
        }
        ProcessState::Pending | ProcessState::Processing | ProcessState::Undoing => {}
    }
    let is_paused = task.paused_at.is_some();
    // A paused task starts no attempts.
    let goes_on = |progress: &Progress| !is_paused || progress.state.waiting_until().is_none();
    let open = task.started_actions().filter(|(_, _, progress)| goes_on(progress));
    let of_parts = open.filter_map(|(part, action, progress)| {
        OpenPart { workflow, task, documents, part, action, progress }.next_event()
    });
    let mut events: Vec<_> = of_parts.chain(calls_in_progress(task)).collect();
    if is_paused {
        events.push(NextEvent::new("Nothing starts until an operator resumes the task"));
        return events;
    }
    if events.is_empty() {
        events.push(NextEvent::new("The scheduler processes the task"));
    }
    events.push(task_deadline(task, workflow));
    events
}

/// Whether the task can no longer be undone.
fn is_past_return(workflow: &Workflow, task: &Task) -> bool {
    let points = workflow.steps.iter().filter(|(_, step)| step.point_of_no_return);
    let mut records = points.filter_map(|(name, _)| Some((name, task.steps.get(name)?)));
    records.any(|(name, record)| record.part_spans(name).any(|(_, part)| part.has_effect()))
}

/// The calls with an unknown outcome that undos have to wait for.
fn calls_in_progress(task: &Task) -> impl Iterator<Item = NextEvent> {
    let is_undoing = task.direction() == Action::Undo;
    let without_undo =
        task.part_spans().filter(move |(_, record)| is_undoing && record.undo.is_none());
    without_undo.filter_map(|(run, record)| {
        let at = Some(record.forward.call_may_run_until?);
        let others = match run.count() {
            0 | 1 => String::new(),
            count => format!(" and of {} more items", count - 1),
        };
        let part = run.parts().next()?;
        let what = format!(
            "A call of step {part}{others} may still be in progress at its service. Its undo waits until"
        );
        Some(NextEvent { what, at, ..NextEvent::default() })
    })
}

fn task_deadline(task: &Task, workflow: Option<&Workflow>) -> NextEvent {
    let overdue = workflow.map(|workflow| workflow.overdue);
    let (verb, then) = match (task.process_state, overdue) {
        (ProcessState::Undoing, _) => ("be undone", "or it stops in Error with an alert"),
        (_, Some(Overdue::Alert)) => ("complete", "or it stops in Error with an alert"),
        (_, Some(Overdue::Undo)) => ("complete", "or it is undone"),
        (_, None) => ("complete", ""),
    };
    let what = format!("The task must {verb} by");
    NextEvent { what, at: Some(task.complete_by), then: then.to_owned(), child: None }
}

/// A part, or its undo, that has not reached a final state.
struct OpenPart<'a> {
    workflow: Option<&'a Workflow>,
    task: &'a Task,
    documents: &'a [Document],
    part: Part,
    action: Action,
    progress: &'a Progress,
}

impl OpenPart<'_> {
    /// The next event of this part; `None` if nothing is pending.
    fn next_event(self) -> Option<NextEvent> {
        let work = self.definition().and_then(|step| step.action(self.action));
        let work = work.map(|definition| definition.work);
        let name = part_label(&self.part, self.action);
        let (what, at, then) = match &self.progress.state {
            StepState::Running { attempt, complete_by } => {
                let (what, then) = self.running(*attempt, &name, work.as_ref())?;
                (what, *complete_by, then)
            }
            StepState::AwaitingCallback { complete_by, .. } => {
                let then = self.at_deadline();
                let what = match then.is_empty() {
                    true => format!("{} awaits a callback until", capitalize(&name)),
                    false => format!("{} awaits a callback. Without one by", capitalize(&name)),
                };
                (what, *complete_by, then)
            }
            StepState::Waiting { attempt, until, .. } => {
                let (what, then) = self.waiting(*attempt, &name, work.as_ref());
                (what, *until, then)
            }
            StepState::RunningItems
            | StepState::Completed { .. }
            | StepState::Failed { .. }
            | StepState::Skipped { .. } => return None,
        };
        let is_child = work.is_some_and(|work| work.is_child());
        let child = is_child.then(|| child_id(self.task, &self.part).ok()).flatten();
        Some(NextEvent { what, at: Some(at), then, child })
    }

    /// What a running attempt waits for, and what happens at its deadline. `None` for a wait: it has no deadline.
    fn running(
        &self,
        attempt: u32,
        name: &str,
        work: Option<&StepWork<'_>>,
    ) -> Option<(String, String)> {
        let (attempt, then) = (self.attempt_label(attempt), self.at_deadline());
        let what = match work {
            Some(StepWork::Call { agents, .. }) => {
                let agent = agents
                    .shown(self.task.record(&self.part).and_then(|record| record.forward.agent));
                format!("Agent {agent} is running {name} ({attempt}). Without a reply by")
            }
            Some(StepWork::Child(child)) => {
                format!(
                    "A task of workflow {} is running for {name}. If it has not ended by",
                    child.name
                )
            }
            Some(StepWork::Event(wait)) => {
                let events = wait.event.names();
                format!("{} waits for the event `{events}`. Without it by", capitalize(name))
            }
            Some(StepWork::Wait(_)) => return None,
            None => format!("{} is running ({attempt}). Its deadline is", capitalize(name)),
        };
        Some((what, then))
    }

    /// What starts after a wait, and why it waits.
    fn waiting(
        &self,
        attempt: Option<u32>,
        name: &str,
        work: Option<&StepWork<'_>>,
    ) -> (String, String) {
        let name = capitalize(name);
        let next = self.attempt_label(attempt.map_or(1, |last| last.saturating_add(1)));
        match (work, attempt) {
            (Some(StepWork::Wait(_)), _) | (None, None) => {
                (format!("{name} waits until"), String::new())
            }
            (Some(StepWork::Call { .. } | StepWork::Child(_) | StepWork::Event(_)), None) => {
                (format!("{name} starts ({next}) at"), String::new())
            }
            (
                Some(StepWork::Call { .. } | StepWork::Child(_) | StepWork::Event(_)) | None,
                Some(_),
            ) => {
                let reason = newest_reason(self.documents, &self.part, self.action);
                let reason = reason.map(|reason| format!("reason: {reason}"));
                (format!("{name} is retried ({next}) at"), reason.unwrap_or_default())
            }
        }
    }

    fn definition(&self) -> Option<&StepDefinition> {
        self.workflow?.steps.get(&self.part.step)
    }

    fn recovery(&self) -> Option<&Recovery> {
        Some(self.definition()?.action(self.action)?.recovery)
    }

    /// `attempt 3 of 5`. After an extended wait, or after an operator's resubmit, the count starts again: then
    /// `attempt 7 (2 of 5)`. Without the definition only `attempt 3`.
    fn attempt_label(&self, attempt: u32) -> String {
        let Some(recovery) = self.recovery() else { return format!("attempt {attempt}") };
        let attempts = recovery.attempts.0.max(1);
        let counted = self.progress.failure_count % attempts + 1;
        if counted == attempt {
            format!("attempt {attempt} of {attempts}")
        } else {
            format!("attempt {attempt} ({counted} of {attempts})")
        }
    }

    /// What the supervisor does if nothing arrives by the deadline; empty without the definition.
    fn at_deadline(&self) -> String {
        let Some(step) = self.definition() else { return String::new() };
        // A late attempt of a task that is being undone is not retried.
        if self.action == Action::Do && self.task.direction() == Action::Undo {
            return "it is undone with the other steps".to_owned();
        }
        let is_repeatable = self.action == Action::Undo || step.idempotent;
        let Some(recovery) = self.recovery() else { return String::new() };
        let give_up = RecoveryDecision::GiveUp(recovery.then);
        let mut verdict = match is_repeatable {
            true => recovery.verdict(self.progress.failure_count.saturating_add(1), 0),
            false => give_up,
        };
        let next = verdict.pause().zip(self.progress.state.reply_due_by());
        let next = next.map(|(pause, by)| later(by, pause));
        let limits = self.progress.give_up_at.into_iter().chain(self.progress.key_valid_until);
        if limits.min().is_some_and(|limit| next.is_some_and(|next| next >= limit)) {
            verdict = give_up;
        }
        match verdict {
            RecoveryDecision::Retry { next: (next, attempts), .. } => {
                format!("the supervisor retries it (attempt {next} of {attempts})")
            }
            RecoveryDecision::ExtendedWait { wait, round: (round, rounds) } => format!(
                "the supervisor retries it after {} (extended wait {round} of {rounds})",
                humantime::format_duration(wait)
            ),
            RecoveryDecision::GiveUp(FinalAction::Alert) => {
                "the task stops in Error with an alert".to_owned()
            }
            RecoveryDecision::GiveUp(FinalAction::Undo) => "the task is undone".to_owned(),
            RecoveryDecision::GiveUp(FinalAction::Continue) => {
                "the task goes on without the step".to_owned()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn workflow() -> Workflow {
        let call = json!({
            "agent": "bank", "complete_within": "30s", "request": { "path": "/charges" },
            "recovery": { "attempts": 2, "extended_wait": { "wait": "15m", "times": 1 }, "then": "undo" },
            "undo": { "request": { "path": "/refunds" } },
        });
        let mut once = call.clone();
        once["idempotent"] = json!(false);
        once["recovery"] = json!({ "attempts": 3 });
        let definition = json!({
            "name": "order", "version": 1, "overdue": "undo",
            "steps": {
                "charge": call, "once": once, "rest": { "wait": "1h" },
                "send": { "workflow": { "name": "delivery" } },
                "seal": { "agent": "bank", "point_of_no_return": true, "request": { "path": "/seals" } },
                "approve": { "agent": "reviews", "callback": { "within": "1h" }, "request": { "path": "/${ callback.token }" } },
            },
        });
        serde_json::from_value(definition).unwrap()
    }

    /// The events of a task with these fields, as text.
    fn events(patch: Value) -> Vec<String> {
        events_with(patch, Some(&workflow()), &[])
    }

    fn events_with(
        patch: Value,
        workflow: Option<&Workflow>,
        documents: &[Document],
    ) -> Vec<String> {
        let mut task = json!({
            "task_id": "o-1", "workflow": "order", "v": 1, "i": 0, "k": 3_600, "process_state": "Processing",
            "revision": 1, "complete_by": 3_600_000, "submitted_at": 0, "steps": {},
        });
        let fields = patch.as_object().unwrap().clone();
        task.as_object_mut().unwrap().extend(fields);
        let task = serde_json::from_value(task).unwrap();
        let line = |event: NextEvent| match &event.child {
            Some(child) => format!("{event} [{child}]"),
            None => event.to_string(),
        };
        next_events(&task, workflow, documents).into_iter().map(line).collect()
    }

    /// The event of one step with this record.
    fn event_of(name: &str, record: Value) -> String {
        events(json!({ "steps": { name: record } })).remove(0)
    }

    #[test]
    fn a_running_attempt_names_its_agent_and_what_happens_at_its_deadline() {
        let running = |failures| json!({ "s": "r", "a": failures + 1, "b": 30_000, "f": failures });
        for (failures, expected) in [
            (
                0,
                "(attempt 1 of 2). Without a reply by 1970-01-01T00:00:30Z, the supervisor retries it (attempt 2 of 2)",
            ),
            (
                1,
                "(attempt 2 of 2). Without a reply by 1970-01-01T00:00:30Z, the supervisor retries it after 15m (extended wait 1 of 1)",
            ),
            (
                3,
                "(attempt 4 (2 of 2)). Without a reply by 1970-01-01T00:00:30Z, the task is undone",
            ),
        ] {
            let event = event_of("charge", running(failures));
            assert_eq!(event, format!("Agent bank is running step charge {expected}"));
        }
        let mut limited = running(0);
        limited["l"] = json!(30_500);
        let limited = event_of("charge", limited);
        assert!(limited.ends_with("the task is undone"), "{limited}");
        let once = event_of("once", running(0));
        assert!(once.ends_with("the task stops in Error with an alert"), "{once}");
    }

    #[test]
    fn a_retry_has_its_time_and_the_reason_of_the_failure() {
        let waiting = json!({ "s": "w", "a": 1, "u": 40_000, "f": 1 });
        let attempt = steward_core::model::attempt::AttemptId {
            step: "charge".parse().unwrap(),
            action: Action::Do,
            number: 1,
        };
        let failure = Document::new(
            steward_core::model::document::DocumentKey::Failure(attempt),
            Timestamp::UNIX_EPOCH,
            json!({ "reason": "no reply by complete-by", "verdict": "attempt 2 of 2" }),
        );
        let steps = json!({ "steps": { "charge": waiting } });
        assert_eq!(
            events_with(steps, Some(&workflow()), &[failure]).remove(0),
            "Step charge is retried (attempt 2 of 2) at 1970-01-01T00:00:40Z, reason: \
             no reply by complete-by"
        );
        let rest = event_of("rest", json!({ "s": "w", "a": 0, "u": 40_000 }));
        assert_eq!(rest, "Step rest waits until 1970-01-01T00:00:40Z");
        let undo = json!({ "s": "c", "a": 1, "x": waiting });
        let task =
            json!({ "process_state": "Undoing", "undo_reason": "x", "steps": { "charge": undo } });
        let events = events(task);
        assert!(events[0].starts_with("The undo of step charge is retried"), "{events:?}");
        assert!(events[1].starts_with("The task must be undone by"), "{events:?}");
    }

    #[test]
    fn an_undo_waits_for_a_call_in_progress() {
        let failed = json!({ "s": "f", "a": 1, "f": 1, "m": true, "w": 90_000 });
        let task = json!({ "process_state": "Undoing", "undo_reason": "x", "steps": { "charge": failed } });
        let events = events(task);
        assert_eq!(
            events[0],
            "A call of step charge may still be in progress at its service. Its undo waits until \
             1970-01-01T00:01:30Z"
        );
    }

    #[test]
    fn a_child_task_is_named() {
        let events = event_of("send", json!({ "s": "r", "a": 1, "b": 30_000 }));
        assert!(
            events.starts_with("A task of workflow delivery is running for step send."),
            "{events}"
        );
        assert!(events.ends_with(" [o-1:send]"), "{events}");
        let events = event_of("approve", json!({ "s": "h", "a": 1, "b": 30_000, "u": 30_000 }));
        assert!(
            events.starts_with(
                "Step approve awaits a callback. Without one by 1970-01-01T00:00:30Z,"
            ),
            "{events}"
        );
    }

    #[test]
    fn a_paused_task_waits_for_running_attempts_and_an_operator() {
        let steps = json!({
            "charge": { "s": "w", "a": 1, "u": 40_000 }, "once": { "s": "r", "a": 1, "b": 30_000 },
        });
        let events = events(json!({ "paused_at": 1, "steps": steps }));
        assert_eq!(events.len(), 2, "{events:?}");
        assert!(events[0].starts_with("Agent bank is running step once"), "{events:?}");
        assert_eq!(events[1], "Nothing starts until an operator resumes the task");
    }

    #[test]
    fn a_final_task_has_ended_or_needs_an_operator() {
        assert_eq!(events(json!({ "process_state": "Processed" })), ["The task has ended"]);
        for (fields, what) in [
            (json!({ "process_state": "Error" }), "must resubmit or undo the task"),
            (
                json!({ "process_state": "Error", "steps": { "charge": { "s": "f", "a": 1 }, "seal": { "s": "c", "a": 1 } } }),
                "An operator must resubmit, skip or complete the failed step",
            ),
            (
                json!({ "process_state": "Error", "steps": { "a": { "s": "f", "a": 1, "f": 1 } } }),
                "the failed step, or undo the task",
            ),
            (json!({ "process_state": "Error", "undo_reason": "x" }), "to continue the undo"),
            (
                json!({ "process_state": "Error", "undo_reason": "x", "steps": {
                    "a": { "s": "c", "a": 1, "x": { "s": "f", "a": 1, "f": 1 } },
                } }),
                "the failed undo",
            ),
        ] {
            let events = events(fields);
            assert!(events[0].ends_with(what), "{events:?}");
        }
        let pending = events(json!({ "process_state": "Pending" }));
        assert_eq!(
            pending,
            [
                "The scheduler processes the task",
                "The task must complete by 1970-01-01T01:00:00Z, or it is undone"
            ]
        );
    }

    #[test]
    fn without_the_definition_an_event_has_only_its_time() {
        for (record, expected) in [
            (
                json!({ "s": "r", "a": 2, "b": 30_000 }),
                "Step s is running (attempt 2). Its deadline is 1970-01-01T00:00:30Z",
            ),
            (
                json!({ "s": "h", "a": 1, "b": 30_000, "u": 30_000 }),
                "Step s awaits a callback until 1970-01-01T00:00:30Z",
            ),
            (
                json!({ "s": "w", "a": 1, "u": 40_000 }),
                "Step s is retried (attempt 2) at 1970-01-01T00:00:40Z",
            ),
            (json!({ "s": "w", "a": 0, "u": 40_000 }), "Step s waits until 1970-01-01T00:00:40Z"),
        ] {
            let events = events_with(json!({ "steps": { "s": record } }), None, &[]);
            let deadline = "The task must complete by 1970-01-01T01:00:00Z";
            assert_eq!(events, [expected, deadline]);
        }
    }
}
