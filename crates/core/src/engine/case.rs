//! A task and an event to decide on, and the decision before its requests are made.

use crate::{
    engine::{
        change::{Change, Inputs},
        decision::Ignored,
        effect::Effect,
        notify::ending,
        redelivery::{self, in_progress},
        values::Sources,
    },
    model::{attempt::Action, names::Part, step::Progress, task::Task},
};

/// A decision before its requests are made.
pub(crate) enum Decision<'a> {
    /// The task changes.
    Change(Box<Change<'a>>),
    /// The task does not change. Requests and notifications that an earlier delivery may have lost are sent again.
    Ignore { reason: Ignored, resend: Vec<(Part, Action)>, notify: Vec<Effect> },
    /// The event cannot have happened to the task.
    Illegal(String),
}

impl Decision<'_> {
    /// Changes nothing, and sends nothing.
    pub(crate) fn ignore(reason: Ignored) -> Self {
        Self::ignore_and(reason, Vec::new(), Vec::new())
    }

    /// Changes nothing, and sends these again.
    pub(crate) fn ignore_and(
        reason: Ignored,
        resend: Vec<(Part, Action)>,
        notify: Vec<Effect>,
    ) -> Self {
        Self::Ignore { reason, resend, notify }
    }
}

/// What is decided on.
#[derive(Clone, Copy)]
pub(crate) struct Case<'a, 't> {
    pub(crate) task: &'t Task,
    pub(crate) inputs: Inputs<'a>,
}

impl<'a> Case<'a, '_> {
    pub(crate) fn sources(&self) -> Sources<'_> {
        Sources { plan: self.inputs.plan, task: self.task, made: &[], cache: self.inputs.documents }
    }

    pub(crate) fn change(&self) -> Box<Change<'a>> {
        Change::of(self.inputs, self.task)
    }

    /// Whether the message may have been acted on before.
    pub(crate) fn redelivered(&self) -> bool {
        self.inputs.context.redelivered
    }

    /// The newest attempt at doing or undoing a part, if the message is about it; or the decision if it is not.
    pub(crate) fn progress(
        &self,
        step: &Part,
        action: Action,
        attempt: u32,
        what: &str,
    ) -> Result<&Progress, Decision<'a>> {
        let of = match action {
            Action::Do => format!("step `{step}`"),
            Action::Undo => format!("the undo of step `{step}`"),
        };
        let Some(progress) = self.task.progress(step, action) else {
            return Err(Decision::Illegal(format!("{what} to {of}, which never started")));
        };
        let newest = progress.state.attempt();
        if attempt > newest || attempt == 0 {
            let what = format!("{what} to attempt {attempt} at {of}, of {newest}");
            return Err(Decision::Illegal(what));
        }
        if attempt < newest {
            return Err(self.stale(step, action));
        }
        Ok(progress)
    }

    /// A reply to an attempt that was given up or deferred. It may have been recorded, and have started
    /// undos and steps whose wait was over; or have ended the task once more.
    pub(crate) fn stale(&self, step: &Part, action: Action) -> Decision<'a> {
        let again = |name: &Part, of, number| {
            let is_other = (name, of) != (step, action);
            is_other && (of == Action::Undo || self.may_start_any_time(name, number))
        };
        self.ignore_late(Ignored::StaleReply, again)
    }

    /// A reply that was recorded before. What it started may have been lost: whatever comes after its step,
    /// the next items of it, undos, and steps whose wait was over.
    pub(crate) fn duplicate(&self, step: &Part) -> Decision<'a> {
        let plan = self.inputs.plan;
        let follows = |name: &Part, action: Action, number: u32| {
            let after = plan.step(&name.step).ancestors.contains(&step.step);
            let next = name.step == step.step && name.item > step.item;
            action == Action::Undo || self.may_start_any_time(name, number) || after || next
        };
        self.ignore_late(Ignored::DuplicateReply, follows)
    }

    /// Changes nothing. If the message was delivered before: sends again the requests in progress that `again` accepts, the
    /// notifications of the end, and the wakes.
    fn ignore_late(
        &self,
        reason: Ignored,
        again: impl Fn(&Part, Action, u32) -> bool,
    ) -> Decision<'a> {
        if !self.redelivered() {
            return Decision::ignore(reason);
        }
        Decision::ignore_and(reason, in_progress(self.task, again), self.ending_and_wakes())
    }

    /// The notifications of the task's end, if it has ended, and the wakes of its waits.
    pub(crate) fn ending_and_wakes(&self) -> Vec<Effect> {
        let mut effects = ending(self.sources());
        effects.extend(self.wakes());
        effects
    }

    /// The wakes that the task's last save may have sent.
    pub(crate) fn wakes(&self) -> Vec<Effect> {
        redelivery::wakes(self.task, self.inputs.context.now)
    }

    /// Whether any event may have started this attempt, once a wait was over: it is not the first, or
    /// comes after a step that waits.
    fn may_start_any_time(&self, part: &Part, number: u32) -> bool {
        let plan = self.inputs.plan;
        number > 1 || plan.step(&part.step).ancestors.iter().any(|name| plan.step(name).waits())
    }
}
