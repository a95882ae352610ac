//! A change in the making: the task as it becomes, with what is to be stored and sent.
//!
//! A decision goes through three phases. First [`outcome`](super::outcome), [`forward`](super::forward),
//! [`compensate`](super::compensate) and [`operate`](super::operate) change the task; then
//! [`render`](super::render) makes the requests of what starts; then [`settle`](super::settle) draws the conclusions
//! that hold for every change.

use std::{collections::BTreeSet, time::Duration};

use jiff::Timestamp;

use crate::{
    definition::{
        plan::Plan,
        step::{ActionDefinition, Work},
    },
    engine::{
        decision::Context,
        effect::Effect,
        values::{DocumentCache, Sources},
    },
    limits,
    model::{
        attempt::Action,
        document::Document,
        messages::WakeCause,
        names::Part,
        step::{Progress, StepRecord, StepState},
        task::{ProcessState, Task},
        time::later,
    },
};

/// What a decision reads beside the task, and does not change.
#[derive(Clone, Copy)]
pub(crate) struct Inputs<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) context: Context<'a>,
    pub(crate) documents: &'a DocumentCache<'a>,
    /// How long before its time a wait may end. A wake ends a wait by the clock of the scheduler that set it, which may be
    /// ahead of this one's. For any other event it is zero: a pause shorter than the tolerance would be none.
    pub(crate) wait_tolerance: Duration,
}

/// A change in the making.
pub(crate) struct Change<'a> {
    pub(crate) inputs: Inputs<'a>,
    /// The task as it becomes.
    pub(crate) task: Task,
    /// What starts, and needs a request.
    pub(crate) starts: Vec<(Part, Action)>,
    /// What was to start and cannot, with the reason.
    pub(crate) impossible: Vec<(Part, Action, String)>,
    /// What is stored before the task is saved.
    pub(crate) documents: Vec<Document>,
    /// Sent whatever else the change comes to.
    pub(crate) notifications: Vec<Effect>,
    /// When the scheduler must be woken.
    pub(crate) wakes: Wakes,
    /// Whether the end of the task is notified although the task had ended before.
    pub(crate) ends_again: bool,
    /// Whether `due` is computed anew. Otherwise it only moves earlier.
    pub(crate) due_anew: bool,
}

/// When the scheduler must be woken, and why.
pub(crate) struct Wakes {
    pub(crate) after: BTreeSet<Duration>,
    pub(crate) cause: WakeCause,
}

impl Wakes {
    /// Wakes the scheduler once `pause` is over. The supervisor finds what waits longer than a queue can hold a
    /// message back.
    pub(crate) fn after(&mut self, pause: Duration) {
        if pause <= limits::QUEUE_DELAY_MAX {
            self.after.insert(pause);
        }
    }

    pub(crate) fn at_once(&mut self) {
        self.after.insert(Duration::ZERO);
    }
}

impl<'a> Change<'a> {
    /// A change that changes nothing yet.
    pub(crate) fn of(inputs: Inputs<'a>, task: &Task) -> Box<Self> {
        Box::new(Self {
            inputs,
            task: task.clone(),
            starts: Vec::new(),
            impossible: Vec::new(),
            documents: Vec::new(),
            notifications: Vec::new(),
            wakes: Wakes { after: BTreeSet::new(), cause: WakeCause::Waited },
            ends_again: false,
            due_anew: false,
        })
    }

    pub(crate) fn plan(&self) -> &'a Plan {
        self.inputs.plan
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.inputs.context.now
    }

    /// The sources of the values in its expressions.
    pub(crate) fn sources(&self) -> Sources<'_> {
        let Self { inputs, task, documents, .. } = self;
        Sources { plan: inputs.plan, task, made: documents, cache: inputs.documents }
    }

    /// Begins the next attempt at doing or undoing a part.
    pub(crate) fn start(&mut self, part: Part, action: Action) {
        let now = self.now();
        let Some(definition) = self.plan().step(&part.step).action(action) else { return };
        let complete_by = later(now, definition.complete_within).min(self.task.complete_by);
        let input = match action {
            Action::Do => self.task.input.clone(),
            // An undo reverts what was done, with the input that it was done with.
            Action::Undo => self.task.progress(&part, Action::Do).and_then(|run| run.input.clone()),
        };
        let Some(progress) = begun(&mut self.task, &part, action, now) else { return };
        let attempt = progress.state.attempt() + 1;
        if attempt == 1 {
            progress.input = input;
        }
        let deferred = progress.state.deferred_by();
        progress.state = StepState::Running { attempt, complete_by };
        if let Some(deferred) = deferred {
            self.may_act_until(deferred, &part, action);
        }
        self.task.locked_by = Some(self.inputs.context.actor.to_owned());
        self.starts.push((part, action));
    }

    /// Waits for the call of a deferred attempt, since another delivery of its request may still make one until
    /// `complete_by`. Of a step that is not idempotent only one delivery makes a call.
    pub(crate) fn may_act_until(&mut self, complete_by: Timestamp, part: &Part, action: Action) {
        if !self.plan().step(&part.step).is_repeatable(action) {
            return;
        }
        if let Some(progress) = self.task.progress_mut(part, action) {
            progress.may_have_run = true;
        }
        self.wait_for_call_begun_by(complete_by, part, action);
    }

    /// Waits for a call that began at `begun_by` or before, and may still be in progress at its service. The undo of the
    /// part, and the undos of what came before it, wait for its end. A wait that outlasts the time that the undo has gives the
    /// task more time.
    pub(crate) fn wait_for_call_begun_by(
        &mut self,
        begun_by: Timestamp,
        part: &Part,
        action: Action,
    ) {
        let definition = self.plan().step(&part.step).action(action);
        let Some(ActionDefinition { call_within, work: Work::Call { .. }, .. }) = definition else {
            return;
        };
        let until = later(later(begun_by, self.inputs.context.timing.clock_skew), call_within);
        let Some(progress) = self.task.progress_mut(part, action) else { return };
        progress.in_progress_until = progress.in_progress_until.max(Some(until));
        if self.task.process_state == ProcessState::Undoing && action == Action::Do {
            self.extend_time_to_undo();
        }
    }

    /// Moves the task's complete-by: the wait for calls in progress does not count as time to undo it.
    pub(crate) fn extend_time_to_undo(&mut self) {
        if let Some(last) = self.task.undo_waits(self.now()).max() {
            let complete_by = later(last, self.plan().complete_within);
            self.task.complete_by = self.task.complete_by.max(complete_by);
        }
    }

    /// Stops the task in Error, unless it has stopped already.
    pub(crate) fn fail_task(&mut self, reason: &str) {
        if self.task.process_state != ProcessState::Error {
            self.task.process_state = ProcessState::Error;
            self.task.error = Some(limits::shorten(reason, limits::ERROR_CHARS_MAX));
        }
    }

    /// Revokes the end of a task, and gives it as much time as it had at first.
    pub(crate) fn reopen(&mut self) {
        let complete_by = later(self.now(), self.plan().complete_within);
        self.task.complete_by = self.task.complete_by.max(complete_by);
        self.task.error = None;
        self.task.ended_at = None;
        self.ends_again = true;
    }

    /// The parts whose wait is over.
    pub(crate) fn waited(&self, action: Action) -> Vec<Part> {
        let soon = later(self.now(), self.inputs.wait_tolerance);
        let waited =
            |progress: &Progress| progress.state.waits_until().is_some_and(|until| until <= soon);
        let waited = self.task.actions().filter(|(_, of, p)| *of == action && waited(p));
        waited.map(|(part, ..)| part).collect()
    }

    /// Wakes the scheduler when each wait is over.
    pub(crate) fn wake_waiting(&mut self) {
        for pause in waits(&self.task, self.now()) {
            self.wakes.after(pause);
        }
    }

    /// Extends the time for which the documents of the task, and the tasks of its steps, are kept, to as long as the
    /// task may live now. If they may have expired by then, no task of a step counts as never begun any more.
    pub(crate) fn extend_retention(&mut self) {
        let now = self.now();
        if self.task.kept().expires_at(self.inputs.context.timing.retention) <= now {
            let records = self.task.steps.values_mut().flat_map(StepRecord::parts_mut);
            let begun = records.map(|record| &mut record.run).filter(|run| run.state.attempt() > 0);
            begun.for_each(|run| run.child_revision = run.child_revision.or(Some(0)));
        }
        self.task.keep_long_enough(now, self.plan().complete_within);
    }
}

/// How far doing or undoing a part has come; it begins if it has not. Nothing if there is no such
/// part: the scheduler begins the items of a step one after the other.
pub(crate) fn begun<'t>(
    task: &'t mut Task,
    part: &Part,
    action: Action,
    now: Timestamp,
) -> Option<&'t mut Progress> {
    let nothing = StepState::waiting(0, now);
    if part.item.is_none() {
        task.steps.entry(part.step.clone()).or_insert_with(|| StepRecord::new(nothing.clone()));
    }
    let record = task.record_mut(part)?;
    Some(match action {
        Action::Do => &mut record.run,
        Action::Undo => record.undo.get_or_insert_with(|| Progress::new(nothing)),
    })
}

/// How much longer each waiting step, or undo, waits, and how much longer a call may be in progress
/// that the undo waits for.
pub(crate) fn waits(task: &Task, now: Timestamp) -> Vec<Duration> {
    let direction = task.direction();
    let waiting = task.actions().filter(|(_, action, _)| *action == direction);
    let waiting = waiting.filter_map(|(_, _, progress)| progress.state.waits_until());
    waiting.chain(task.undo_waits(now)).map(|until| pause_until(until, now)).collect()
}

/// The time from `now` to `until`; zero if that has passed.
pub(crate) fn pause_until(until: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(until.duration_since(now)).unwrap_or_default()
}
