//! A world: the task as saved, the documents, the clock, what agents were asked, what was lost. Beside
//! what the core keeps it remembers what really went out, so that the laws need not believe the core.

use std::{
    collections::{BTreeMap, hash_map::DefaultHasher},
    hash::{Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use steward_core::{
    engine::{documents::Documents, event::Event},
    model::{
        attempt::{Action, Attempt},
        command::Command,
        document::DocumentKey,
        names::Part,
        step::{Progress, StepState},
        task::{ProcessState, Task},
        time::later,
    },
};

use super::{
    children::Child,
    settings::{Budget, Setting},
    states::has_passed,
};

/// How a task ended, and when, after how many commands, and whether on its way back.
pub(super) type End = (ProcessState, Timestamp, usize, bool);

/// What one attempt at an agent has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Truth {
    /// Nobody knows whether it took effect.
    Unknown,
    /// The scheduler was told that it took effect, or may have.
    MayHaveRun,
    /// The scheduler was told that it did not.
    DidNotRun,
}

/// An attempt that the core decided to make.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Dispatch {
    /// Whether its request went out. An agent can answer only then.
    pub(super) sent: bool,
    pub(super) truth: Truth,
    /// By when every call of it has begun.
    pub(super) begins_by: Timestamp,
    /// Whether a call of it may go on at the service after its agent has given it up: nobody has said
    /// how it ended. So may one of another delivery of a request that was deferred.
    pub(super) may_last: bool,
}

/// A message whose effects were lost: it comes back.
#[derive(Debug, Clone)]
pub(super) struct Owed {
    pub(super) event: Event,
    /// Waits of which nobody was told, with their ends.
    pub(super) waits: BTreeMap<Attempt, Timestamp>,
    /// Whether the scheduler was to be woken at once.
    pub(super) left: bool,
    /// The end of the task of which nobody was told.
    pub(super) ended: Option<End>,
}

#[derive(Debug, Clone)]
pub(super) struct World {
    pub(super) task: Option<Task>,
    /// Shared, since most moves write none.
    pub(super) documents: Arc<Documents>,
    /// When each document that was ever written may go.
    pub(super) expires: Arc<BTreeMap<DocumentKey, Timestamp>>,
    pub(super) now: Timestamp,
    pub(super) dispatches: BTreeMap<Attempt, Dispatch>,
    /// The tasks of steps, once asked for.
    pub(super) children: BTreeMap<Part, Child>,
    pub(super) owed: Option<Owed>,
    /// Whether the alert of the present Error went out.
    pub(super) alerted: bool,
    /// Whoever sent an alert has yet to put that on record; for the end at this time.
    pub(super) confirming: Option<Timestamp>,
    pub(super) last_command: Option<Command>,
    /// Whether something took effect after all that was believed not to have run: undos of what came
    /// before it may have begun.
    pub(super) late_news: bool,
    pub(super) budget: Budget,
}

impl World {
    pub(super) fn first(setting: &Setting) -> Self {
        Self {
            task: None,
            documents: Arc::default(),
            expires: Arc::default(),
            children: BTreeMap::new(),
            now: Timestamp::UNIX_EPOCH,
            dispatches: BTreeMap::new(),
            owed: None,
            alerted: false,
            confirming: None,
            last_command: None,
            late_news: false,
            budget: setting.budget,
        }
    }

    /// Whether an attempt at doing `step` took effect, or may have.
    pub(super) fn may_have_run(&self, step: &Part) -> bool {
        self.dispatches.iter().any(|(attempt, dispatch)| {
            attempt.step == *step
                && attempt.action == Action::Do
                && dispatch.sent
                && dispatch.truth != Truth::DidNotRun
        })
    }

    /// Until when a call at doing or undoing `part` may still be in progress at its service: an agent
    /// whose clock is behind begins it at complete-by, and it takes as long as a call may.
    pub(super) fn in_progress_until(
        &self,
        setting: &Setting,
        part: &Part,
        action: Action,
    ) -> Option<Timestamp> {
        let step = &setting.workflow.steps[&part.step];
        step.agent.as_ref()?;
        let within = match action {
            Action::Do => step.complete_within?,
            Action::Undo => step.undo.as_ref()?.complete_within?,
        };
        let call_within = within.min(Duration::from_secs(100));
        let own = self.dispatches.iter().filter(|(attempt, dispatch)| {
            attempt.step == *part && attempt.action == action && dispatch.sent && dispatch.may_last
        });
        let last = own.map(|(_, dispatch)| dispatch.begins_by).max()?;
        Some(later(later(last, setting.timing.clock_skew), call_within))
            .filter(|until| *until > self.now)
    }

    /// The same of either, for what comes before `part`: an undo that has not passed is waited for anyway.
    pub(super) fn is_in_progress(&self, setting: &Setting, part: &Part) -> bool {
        let record = self.task.as_ref().and_then(|task| task.record(part));
        let is_undone = record.and_then(|record| record.undo.as_ref()).is_some_and(has_passed);
        self.in_progress_until(setting, part, Action::Do).is_some()
            || (is_undone && self.in_progress_until(setting, part, Action::Undo).is_some())
    }

    /// Whether an attempt at doing `part` was decided on of which nobody knows that it did not run.
    pub(super) fn was_decided(&self, part: &Part) -> bool {
        self.dispatches.iter().any(|(attempt, dispatch)| {
            attempt.step == *part
                && attempt.action == Action::Do
                && dispatch.truth != Truth::DidNotRun
        })
    }

    /// A number that is the same for worlds that go on alike.
    pub(super) fn fingerprint(&self, setting: &Setting) -> u64 {
        let mut hash = DefaultHasher::new();
        let to = &mut hash;
        if let Some(task) = &self.task {
            self.hash_task(task, setting, to);
        }
        self.hash_dispatches(to);
        self.children.iter().for_each(|(part, child)| {
            part.hash(to);
            child.hash(self.now, to);
        });
        self.hash_expiry(to);
        if let Some(Owed { event, waits, left, ended }) = &self.owed {
            (format!("{event:?}"), left).hash(to);
            ended.map(|of| Some(of) == self.task.as_ref().and_then(end)).hash(to);
            waits.iter().for_each(|(of, at)| (of, self.seconds_until(*at, setting)).hash(to));
        }
        (self.alerted, self.late_news, self.budget).hash(to);
        let ended_at = self.task.as_ref().and_then(|task| task.ended_at);
        self.confirming.map(|of| Some(of) == ended_at).hash(to);
        let command = self.last_command.as_ref();
        command.map(|command| (&command.command_id, command.order.describe(&[]))).hash(to);
        hash.finish()
    }

    /// Seconds from now; what is past by every clock is past.
    fn seconds_until(&self, time: Timestamp, setting: &Setting) -> i64 {
        let long_ago = -2 * i64::try_from(setting.timing.clock_skew.as_secs()).unwrap();
        (time.as_second() - self.now.as_second()).max(long_ago)
    }

    fn hash_task(&self, task: &Task, setting: &Setting, to: &mut impl Hasher) {
        let relative = |time: Timestamp| self.seconds_until(time, setting);
        task.process_state.hash(to);
        let settled = task.process_state.is_final() && self.budget.commands == 0;
        if !settled {
            relative(task.complete_by).hash(to);
        }
        task.due.map(relative).hash(to);
        task.undo_reason.is_some().hash(to);
        task.paused_at.map(|at| (at.as_second() - self.now.as_second()).max(-200)).hash(to);
        task.input.hash(to);
        for (name, record) in &task.steps {
            (name, record.items.as_ref().map(|items| items.count)).hash(to);
            hash_progress(&record.run, relative, to);
        }
        for (step, action, progress) in task.actions() {
            (&step, action).hash(to);
            hash_progress(progress, relative, to);
            progress.in_progress(self.now).map(relative).hash(to);
            self.in_progress_until(setting, &step, action).map(relative).hash(to);
            let output = progress.output(&step, action);
            let output = output.and_then(|key| self.read(&key));
            output.map(ToString::to_string).hash(to);
        }
    }

    /// Attempts are told apart as the newest and the older ones only.
    fn hash_dispatches(&self, to: &mut impl Hasher) {
        let mut newest: BTreeMap<(&Part, Action), (&Dispatch, bool, bool)> = BTreeMap::new();
        for (attempt, dispatch) in &self.dispatches {
            let older = newest.get(&(&attempt.step, attempt.action)).copied();
            let stale = older.is_some_and(|(older, stale, _)| stale || older.sent);
            let ran = older.is_some_and(|(.., ran)| ran)
                || (dispatch.sent && dispatch.truth != Truth::DidNotRun);
            newest.insert((&attempt.step, attempt.action), (dispatch, stale, ran));
        }
        for (of, (dispatch, stale, ran)) in newest {
            (of, dispatch.sent, dispatch.truth, dispatch.may_last, stale, ran).hash(to);
        }
    }
}

/// How and when a task ended. In life two ends have two times; here an operator may come between.
pub(super) fn end(task: &Task) -> Option<End> {
    let backward = task.undo_reason.is_some();
    Some((task.process_state, task.ended_at?, task.commands.len(), backward))
}

fn hash_progress(progress: &Progress, relative: impl Fn(Timestamp) -> i64, to: &mut impl Hasher) {
    let Progress { state, failure_count, may_have_run, input, .. } = progress;
    (state.name(), state.attempt() > 0, failure_count, may_have_run, input).hash(to);
    match state {
        StepState::Running { complete_by, .. } => relative(*complete_by).hash(to),
        StepState::HandedOut { complete_by, answer_by, .. } => {
            (relative(*complete_by), relative(*answer_by)).hash(to);
        }
        StepState::Waiting { until, complete_by, .. } => {
            (relative(*until), complete_by.map(relative)).hash(to);
        }
        StepState::Each
        | StepState::Completed { .. }
        | StepState::Failed { .. }
        | StepState::Skipped { .. } => {}
    }
}
