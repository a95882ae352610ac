//! What happens to a task next, and when, in words.

use jiff::Timestamp;
use steward_core::{
    messages::Action,
    names::{Part, TaskId},
    recovery::{Recovery, Then, Verdict},
    task::{ProcessState, Progress, StepState, Task},
    view::child_of,
    workflow::{Work, Workflow},
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

/// What comes next. A task that goes on has a last line for its own time.
#[must_use]
pub fn next(workflow: &Workflow, task: &Task) -> Vec<Next> {
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
        |(part, action, progress)| Move { workflow, task, part, action, progress }.next(),
    );
    let mut said: Vec<_> = moves.collect();
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
    part: Part,
    action: Action,
    progress: &'a Progress,
}

impl Move<'_> {
    fn next(self) -> Option<Next> {
        let Self { workflow, task, part, action, progress } = &self;
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
                let why = progress.error.as_ref().map(|error| format!("The last failed: {error}"));
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
