//! What happens to a task next, and when, in words.

use crate::view::{child_of, newest_reason};
use jiff::Timestamp;
use steward_core::{
    definition::{
        recovery::{Recovery, Then, Verdict},
        step::Work,
        workflow::Workflow,
    },
    model::{
        attempt::Action,
        document::Document,
        names::{Part, TaskId},
        step::{Progress, StepState},
        task::{ProcessState, Task},
    },
};

/// One thing that comes next: `what`, perhaps a task, perhaps a time, and what `then`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Next {
    /// What happens, up to where the time stands: it ends with `by` or `at` if there is one.
    pub what: String,
    /// The task that runs for a step, if it is about one.
    pub task: Option<TaskId>,
    /// When.
    pub at: Option<Timestamp>,
    /// What follows; empty if nothing does.
    pub then: String,
}

impl Next {
    fn said(what: &str) -> Self {
        Self { what: what.to_owned(), ..Self::default() }
    }
}

/// What comes next; `documents` say why an attempt failed. A task that goes on has a last line for its own time.
#[must_use]
pub fn next(workflow: &Workflow, task: &Task, documents: &[Document]) -> Vec<Next> {
    match task.process_state {
        ProcessState::Processed | ProcessState::Undone => {
            return vec![Next::said("Nothing: the task has ended")];
        }
        ProcessState::Error if task.undo_reason.is_some() => {
            return vec![Next::said(
                "Nothing by itself. Resubmit, skip or complete the undo that failed",
            )];
        }
        ProcessState::Error => {
            return vec![Next::said(
                "Nothing by itself. Resubmit, skip or complete what failed, or undo the task",
            )];
        }
        ProcessState::Pending | ProcessState::Processing | ProcessState::Undoing => {}
    }
    let paused = task.paused_at.is_some();
    let starts = |progress: &Progress| !paused || progress.state.waits_until().is_none();
    let moves = task.actions().filter(|(_, _, progress)| starts(progress)).filter_map(
        |(part, action, progress)| {
            Move { workflow, task, documents, part, action, progress }.next()
        },
    );
    let mut said: Vec<_> = moves.chain(calls_in_progress(task)).collect();
    if paused {
        said.push(Next::said("Nothing starts until the task is resumed"));
        return said;
    }
    if said.is_empty() {
        said.push(Next::said("The scheduler takes the task up"));
    }
    said.push(of_task(workflow, task));
    said
}

/// The calls of unknown outcome that an undo waits for.
fn calls_in_progress(task: &Task) -> impl Iterator<Item = Next> {
    let backward = task.direction() == Action::Undo;
    let waits = task.parts().filter(move |(_, record)| backward && record.undo.is_none());
    waits.filter_map(|(part, record)| {
        let at = Some(record.run.in_progress_until?);
        let what = format!(
            "A call of step {part} may still be in progress at its service. Its undo waits until"
        );
        Some(Next { what, task: None, at, then: String::new() })
    })
}

fn of_task(workflow: &Workflow, task: &Task) -> Next {
    let (what, then) = match (task.process_state, workflow.overdue) {
        (ProcessState::Undoing, _) => ("undone", "or it stops in Error, with an alert"),
        (_, Then::Alert) => ("done", "or it stops in Error, with an alert"),
        (_, Then::Undo) => ("done", "or it is undone"),
    };
    let what = format!("The task must be {what} by");
    Next { what, task: None, at: Some(task.complete_by), then: then.to_owned() }
}

/// A step, or its undo, that has not come to its end.
struct Move<'a> {
    workflow: &'a Workflow,
    task: &'a Task,
    documents: &'a [Document],
    part: Part,
    action: Action,
    progress: &'a Progress,
}

impl Move<'_> {
    fn next(self) -> Option<Next> {
        let Self { workflow, task, documents, part, action, progress } = &self;
        let definition = workflow.steps.get(&part.step).and_then(|step| step.action(*action));
        let work = definition.map(|definition| definition.work);
        let name = self.name();
        let at = progress.state.awaited_by().or(progress.state.waits_until());
        let (what, then) = match (&progress.state, work) {
            (StepState::Running { attempt, .. }, Some(Work::Call { agent, .. })) => {
                let which = self.which(*attempt);
                let what =
                    format!("Agent {agent} is at work on {name}, {which}. If it says nothing by");
                (what, self.on_silence())
            }
            (StepState::Running { .. }, Some(Work::Child(child))) => {
                let what = format!(
                    "A task of workflow {} runs for {name}. If it is not done by",
                    child.name
                );
                (what, self.on_silence())
            }
            (StepState::Running { .. }, Some(Work::Wait(_)) | None) => return None,
            (StepState::HandedOut { .. }, _) => {
                let what = format!(
                    "Whoever was handed the token of {name} is to answer. If nothing is heard by"
                );
                (what, self.on_silence())
            }
            (StepState::Waiting { .. }, Some(Work::Wait(_))) => {
                (format!("The wait {} is over at", part.step), String::new())
            }
            (StepState::Waiting { attempt, .. }, _) => {
                let which = self.which(attempt + 1);
                let why = newest_reason(documents, part, *action);
                let why = why.map(|reason| format!("after this: {reason}"));
                (format!("{} is tried again, {which}, at", capital(&name)), why.unwrap_or_default())
            }
            (
                StepState::Each
                | StepState::Completed { .. }
                | StepState::Failed { .. }
                | StepState::Skipped { .. },
                _,
            ) => return None,
        };
        let task = matches!(work, Some(Work::Child(_))).then(|| child_of(task, part)).flatten();
        Some(Next { what, task, at, then })
    }

    /// `step charge`, or its undo.
    fn name(&self) -> String {
        match self.action {
            Action::Do => format!("step {}", self.part),
            Action::Undo => format!("the undo of step {}", self.part),
        }
    }

    fn recovery(&self) -> Option<&Recovery> {
        let step = self.workflow.steps.get(&self.part.step)?;
        Some(step.action(self.action)?.recovery)
    }

    /// `attempt 3 of 5`; after an extended wait, or an operator's resubmission, it is counted anew.
    fn which(&self, attempt: u32) -> String {
        let attempts = self.recovery().map_or(1, |recovery| recovery.attempts.0.max(1));
        let counted = self.progress.failure_count % attempts + 1;
        if counted == attempt {
            format!("attempt {attempt} of {attempts}")
        } else {
            format!("attempt {attempt} ({counted} of {attempts})")
        }
    }

    /// What the supervisor does if nobody answers.
    fn on_silence(&self) -> String {
        let given_up = self.action == Action::Do && self.task.direction() == Action::Undo;
        if given_up {
            return "it is undone with the rest".to_owned();
        }
        let step = self.workflow.steps.get(&self.part.step);
        let repeatable = self.action == Action::Undo || step.is_none_or(|step| step.idempotent);
        let Some(recovery) = self.recovery() else { return String::new() };
        let verdict = match repeatable {
            true => recovery.verdict(self.progress.failure_count + 1, 0),
            false => Verdict::Finally(recovery.then),
        };
        match verdict {
            Verdict::Again { next: (next, of), .. } => {
                format!("the supervisor has it tried again, {next} of {of}")
            }
            Verdict::ExtendedWait { wait, round: (round, of) } => format!(
                "the supervisor has it tried again after {}, wait {round} of {of}",
                humantime::format_duration(wait)
            ),
            Verdict::Finally(Then::Alert) => "the task stops in Error, with an alert".to_owned(),
            Verdict::Finally(Then::Undo) => "the task is undone".to_owned(),
        }
    }
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
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
                "ask": { "agent": "desk", "callback": { "within": "1h" }, "request": { "path": "/${ callback.token }" } },
            },
        });
        serde_json::from_value(definition).unwrap()
    }

    fn said(patch: Value) -> Vec<String> {
        said_with(patch, &[])
    }

    fn said_with(patch: Value, documents: &[Document]) -> Vec<String> {
        let mut task = json!({
            "task_id": "o-1", "workflow": "order", "version": 1, "process_state": "Processing",
            "revision": 1, "complete_by": 3_600_000, "submitted_at": 0, "steps": {},
        });
        let fields = patch.as_object().unwrap().clone();
        task.as_object_mut().unwrap().extend(fields);
        let task = serde_json::from_value(task).unwrap();
        let line = |next: Next| {
            let at = next.at.map(|at| format!(" {at}")).unwrap_or_default();
            let task = next.task.map(|task| format!(" [{task}]")).unwrap_or_default();
            let then =
                if next.then.is_empty() { String::new() } else { format!(", {}", next.then) };
            format!("{}{at}{then}{task}", next.what)
        };
        next(&workflow(), &task, documents).into_iter().map(line).collect()
    }

    /// What is said of one step, in this state.
    fn of_step(name: &str, record: Value) -> String {
        said(json!({ "steps": { name: record } })).remove(0)
    }

    #[test]
    fn who_is_at_work_is_said_and_what_is_done_if_they_stay_silent() {
        let running = |failures| json!({ "s": "r", "a": failures + 1, "b": 30_000, "f": failures });
        for (failures, expected) in [
            (
                0,
                "attempt 1 of 2. If it says nothing by 1970-01-01T00:00:30Z, the supervisor has it tried again, 2 of 2",
            ),
            (
                1,
                "attempt 2 of 2. If it says nothing by 1970-01-01T00:00:30Z, the supervisor has it tried again after 15m, wait 1 of 1",
            ),
            (
                3,
                "attempt 4 (2 of 2). If it says nothing by 1970-01-01T00:00:30Z, the task is undone",
            ),
        ] {
            let said = of_step("charge", running(failures));
            assert_eq!(said, format!("Agent bank is at work on step charge, {expected}"));
        }
        let once = of_step("once", running(0));
        assert!(once.ends_with("the task stops in Error, with an alert"), "{once}");
    }

    #[test]
    fn what_waits_is_said_with_its_next_attempt() {
        let waiting = json!({ "s": "w", "a": 1, "u": 40_000, "f": 1 });
        let attempt = steward_core::model::attempt::Attempt {
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
            said_with(steps, &[failure]).remove(0),
            "Step charge is tried again, attempt 2 of 2, at 1970-01-01T00:00:40Z, after this: \
             no reply by complete-by"
        );
        let rest = of_step("rest", json!({ "s": "w", "a": 0, "u": 40_000 }));
        assert_eq!(rest, "The wait rest is over at 1970-01-01T00:00:40Z");
        let undo = json!({ "s": "c", "a": 1, "x": waiting });
        let task =
            json!({ "process_state": "Undoing", "undo_reason": "x", "steps": { "charge": undo } });
        let said = said(task);
        assert!(said[0].starts_with("The undo of step charge is tried again"), "{said:?}");
        assert!(said[1].starts_with("The task must be undone by"), "{said:?}");
    }

    #[test]
    fn a_call_in_progress_that_an_undo_waits_for_is_said() {
        let failed = json!({ "s": "f", "a": 1, "f": 1, "m": true, "w": 90_000 });
        let task = json!({ "process_state": "Undoing", "undo_reason": "x", "steps": { "charge": failed } });
        let said = said(task);
        assert_eq!(
            said[0],
            "A call of step charge may still be in progress at its service. Its undo waits until \
             1970-01-01T00:01:30Z"
        );
    }

    #[test]
    fn a_task_that_runs_for_a_step_is_named() {
        let said = of_step("send", json!({ "s": "r", "a": 1, "b": 30_000 }));
        assert!(said.starts_with("A task of workflow delivery runs for step send."), "{said}");
        assert!(said.ends_with(" [o-1:send]"), "{said}");
        let said = of_step("ask", json!({ "s": "h", "a": 1, "b": 30_000, "u": 30_000 }));
        assert!(
            said.starts_with("Whoever was handed the token of step ask is to answer."),
            "{said}"
        );
    }

    #[test]
    fn a_paused_task_waits_for_an_operator_and_for_who_is_at_work() {
        let steps = json!({
            "charge": { "s": "w", "a": 1, "u": 40_000 }, "once": { "s": "r", "a": 1, "b": 30_000 },
        });
        let said = said(json!({ "paused_at": 1, "steps": steps }));
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(said[0].starts_with("Agent bank is at work on step once"), "{said:?}");
        assert_eq!(said[1], "Nothing starts until the task is resumed");
    }

    #[test]
    fn the_end_is_said() {
        assert_eq!(said(json!({ "process_state": "Processed" })), ["Nothing: the task has ended"]);
        for (fields, what) in [
            (json!({ "process_state": "Error" }), "what failed, or undo the task"),
            (json!({ "process_state": "Error", "undo_reason": "x" }), "the undo that failed"),
        ] {
            let said = said(fields);
            assert!(said[0].ends_with(what), "{said:?}");
        }
        let pending = said(json!({ "process_state": "Pending" }));
        assert_eq!(
            pending,
            [
                "The scheduler takes the task up",
                "The task must be done by 1970-01-01T01:00:00Z, or it is undone"
            ]
        );
    }
}
