//! The input of a decision, and the decision before its requests are rendered.

use crate::{
    engine::{
        decision::IgnoreReason,
        effect::Effect,
        lifecycle::{MayHaveLost, lost_events, never_began},
        notify::end_of_task_effects,
        redelivery::{self, after_reply, in_progress},
        task_change::{Inputs, TaskChange},
        values::ValueSources,
    },
    model::{attempt::Action, events::BusEvent, names::Part, step::Progress, task::Task},
};

/// A decision before its requests are rendered.
pub(crate) enum PendingDecision<'a> {
    /// The task changes.
    Change(Box<TaskChange<'a>>),
    /// The task does not change. `resend` and `notify` are the requests and notifications that an earlier delivery
    /// may have lost.
    Ignore { reason: IgnoreReason, resend: Vec<(Part, Action)>, notify: Vec<Effect> },
    /// The event cannot have happened to the task.
    Illegal(String),
}

impl PendingDecision<'_> {
    /// Ignores the event, and sends nothing.
    pub(crate) fn ignore(reason: IgnoreReason) -> Self {
        Self::ignore_and(reason, Vec::new(), Vec::new())
    }

    /// Ignores the event, and sends these requests and notifications again.
    pub(crate) fn ignore_and(
        reason: IgnoreReason,
        resend: Vec<(Part, Action)>,
        notify: Vec<Effect>,
    ) -> Self {
        Self::Ignore { reason, resend, notify }
    }
}

/// The task to decide on, with everything that the decision reads.
#[derive(Clone, Copy)]
pub(crate) struct DecisionInput<'a, 't> {
    pub(crate) task: &'t Task,
    pub(crate) inputs: Inputs<'a>,
}

impl<'a> DecisionInput<'a, '_> {
    pub(crate) fn sources(&self) -> ValueSources<'_> {
        ValueSources {
            plan: self.inputs.plan,
            task: self.task,
            new_documents: &[],
            cache: self.inputs.documents,
            callback_urls: self.inputs.context.callback_urls,
        }
    }

    pub(crate) fn change(&self) -> Box<TaskChange<'a>> {
        TaskChange::new(self.inputs, self.task)
    }

    /// Whether the message may have been processed before.
    pub(crate) fn redelivered(&self) -> bool {
        self.inputs.context.redelivered
    }

    /// Returns the newest attempt at doing or undoing a part, if the message belongs to it. Otherwise returns the
    /// decision on the message. `what` names the message in the reason of that decision.
    pub(crate) fn progress(
        &self,
        step: &Part,
        action: Action,
        attempt: u32,
        what: &str,
    ) -> Result<&Progress, PendingDecision<'a>> {
        let target = match action {
            Action::Do => format!("step `{step}`"),
            Action::Undo => format!("the undo of step `{step}`"),
        };
        let Some(progress) = self.task.progress(step, action) else {
            return Err(PendingDecision::Illegal(format!(
                "{what} to {target}, which never started"
            )));
        };
        let newest = progress.state.attempt_count();
        if attempt > newest || attempt == 0 {
            let what = format!("{what} to attempt {attempt} at {target}; the newest is {newest}");
            return Err(PendingDecision::Illegal(what));
        }
        if attempt < newest {
            return Err(self.stale(step, action));
        }
        Ok(progress)
    }

    /// Decides on a reply to an attempt that was abandoned or deferred. An earlier delivery may have recorded the
    /// reply and started undos and waiting steps, or ended the task again.
    pub(crate) fn stale(&self, step: &Part, action: Action) -> PendingDecision<'a> {
        let again = |name: &Part, of, number| {
            (name, of) != (step, action) && self.may_start_with_any_reply(name, of, number)
        };
        self.ignore_late(IgnoreReason::StaleReply, step, again)
    }

    /// The same for a reply that also started the newest attempt at its own part.
    pub(crate) fn stale_and_own_next(&self, step: &Part, action: Action) -> PendingDecision<'a> {
        let again = |name: &Part, of, number| {
            (name, of) == (step, action) || self.may_start_with_any_reply(name, of, number)
        };
        self.ignore_late(IgnoreReason::StaleReply, step, again)
    }

    /// Decides on a reply that is already recorded. The requests that it started may have been lost: those of the
    /// step's successors and of its next items, undos, and steps whose wait had ended.
    pub(crate) fn duplicate(&self, step: &Part) -> PendingDecision<'a> {
        let plan = self.inputs.plan;
        let follows = |name: &Part, action: Action, number: u32| {
            let after = plan.step(&name.step).ancestors.contains(&step.step);
            let next = name.step == step.step && name.item > step.item;
            action == Action::Undo || self.may_start_any_time(name, number) || after || next
        };
        self.ignore_late(IgnoreReason::DuplicateReply, step, follows)
    }

    /// Ignores a reply to a step. If the message was delivered before, sends again the requests in progress that `again`
    /// accepts, the notifications of the end, the lifecycle events, and the wakes.
    fn ignore_late(
        &self,
        reason: IgnoreReason,
        step: &Part,
        again: impl Fn(&Part, Action, u32) -> bool,
    ) -> PendingDecision<'a> {
        if !self.redelivered() {
            return PendingDecision::ignore(reason);
        }
        PendingDecision::ignore_and(
            reason,
            self.lost_after_reply(step, again),
            self.lost_notifications_and_wakes(&MayHaveLost::Reply(&step.step)),
        )
    }

    /// The attempts in progress whose requests an earlier handling of the message may have lost.
    pub(crate) fn lost_requests(&self) -> Vec<(Part, Action)> {
        in_progress(self.task, |part, action, number| {
            self.inputs.context.may_have_lost(part, action, number)
        })
    }

    /// The same for a reply to `step`, and only those that `again` accepts.
    pub(crate) fn lost_after_reply(
        &self,
        step: &Part,
        again: impl Fn(&Part, Action, u32) -> bool,
    ) -> Vec<(Part, Action)> {
        let lost = |part: &Part, action, number| {
            self.inputs.context.may_have_lost(part, action, number) && again(part, action, number)
        };
        // A subscription causes no message until its event comes. A lost one would not be noticed before the end of the wait.
        if self.inputs.plan.step(&step.step).awaits_event() {
            return in_progress(self.task, lost);
        }
        after_reply(self.task, step, lost)
    }

    /// The notifications of the task's end, if it has ended, the lifecycle events that may have been lost, and the wakes
    /// of its waits.
    pub(crate) fn lost_notifications_and_wakes(&self, cause: &MayHaveLost<'_>) -> Vec<Effect> {
        let mut effects = self.lost_notifications(cause);
        effects.extend(self.wakes());
        effects
    }

    /// The notifications of the task's end, if it has ended, and the lifecycle events that may have been lost.
    pub(crate) fn lost_notifications(&self, cause: &MayHaveLost<'_>) -> Vec<Effect> {
        let mut effects = end_of_task_effects(self.sources(), self.task.revision);
        if never_began(self.task) {
            effects.retain(|effect| !matches!(effect, Effect::Publish(BusEvent::Lifecycle(_))));
            return effects;
        }
        effects.extend(self.lost_events(cause));
        effects
    }

    /// The lifecycle events, other than the end of the task, that may have been lost.
    pub(crate) fn lost_events(&self, cause: &MayHaveLost<'_>) -> Vec<Effect> {
        lost_events(self.inputs.plan, self.task, cause, self.inputs.context.now)
    }

    /// The same if the message was delivered before. Otherwise none.
    pub(crate) fn lost_events_if_redelivered(&self, cause: &MayHaveLost<'_>) -> Vec<Effect> {
        if self.redelivered() { self.lost_events(cause) } else { Vec::new() }
    }

    /// The wakes that the last save of the task may have sent.
    pub(crate) fn wakes(&self) -> Vec<Effect> {
        redelivery::wakes(self.task, self.inputs.context.now)
    }

    /// Whether any reply may have started this attempt.
    fn may_start_with_any_reply(&self, part: &Part, action: Action, number: u32) -> bool {
        action == Action::Undo || self.may_start_any_time(part, number)
    }

    /// Whether any event may have started this attempt, because a wait had ended: it is not the first attempt, or its
    /// step comes after a step with `wait`.
    fn may_start_any_time(&self, part: &Part, number: u32) -> bool {
        let plan = self.inputs.plan;
        number > 1 || plan.step(&part.step).ancestors.iter().any(|name| plan.step(name).waits())
    }
}
