//! The invariants of a decision: how an event may change a task, and which messages follow. `attempts` has those of each
//! changed part, `messages` those of each message.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::{
    part_change::{PartChange, part_changes},
    record::{ViolatedInvariant, has_passed, is_awaited, is_left_to_undo, require},
};
use crate::{
    definition::plan::Plan,
    engine::{
        decision::{DecisionContext, IgnoreReason, Transition},
        effect::Effect,
        event::Event,
    },
    limits,
    model::{
        attempt::{Action, AttemptId},
        command::ReceivedCommand,
        events::{BusEvent, EventData},
        messages::{ChildOutcome, StepReply, StepRequest},
        names::Part,
        part_span::PartSpan,
        step::{Progress, StepRecord, StepState},
        task::{ProcessState, Task},
        time::later,
    },
};

/// A decision to check.
pub struct Decision<'a> {
    pub(super) plan: &'a Plan,
    pub(super) before: &'a Task,
    /// The same as `before` if the event was ignored.
    pub(super) after: &'a Task,
    pub(super) event: &'a Event,
    pub(super) effects: &'a [Effect],
    /// Why the event was ignored. `None` if the task is saved.
    pub(super) ignored: Option<IgnoreReason>,
    pub(super) context: DecisionContext<'a>,
}

impl<'a> Decision<'a> {
    /// The decision on an event. `None` if the event is illegal.
    #[must_use]
    pub fn new(
        plan: &'a Plan,
        before: &'a Task,
        event: &'a Event,
        decided: &'a Transition,
        context: DecisionContext<'a>,
    ) -> Option<Self> {
        let (after, effects, ignored) = match decided {
            Transition::Apply { task, effects, .. } => (&**task, effects, None),
            Transition::Ignore { reason, effects } => (before, effects, Some(*reason)),
            Transition::Illegal(_) => return None,
        };
        Some(Self { plan, before, after, event, effects, ignored, context })
    }

    /// Checks the change of the task as a whole.
    pub(super) fn check_change(&self) -> Result<(), ViolatedInvariant> {
        let subject = || format!("task {}", self.after.task_id);
        require(subject, &self.change_invariants())?;
        require(subject, &self.command_invariants())?;
        require(subject, &self.due_invariants())?;
        require(subject, &self.start_invariants())?;
        if self.ends() {
            require(subject, &self.end_invariants())?;
        }
        Ok(())
    }

    /// What no event changes, and what changes only by some events.
    fn change_invariants(&self) -> [(&'static str, bool); 8] {
        let Self { before, after, event, context, .. } = self;
        let stays =
            (before.process_state, before.ended_at) == (after.process_state, after.ended_at);
        let is_requested =
            matches!(event, Event::CommandReceived(_) | Event::ParentRequested(Action::Undo));
        // Items are only appended, so the last one of a span stands for all.
        let is_recorded = |(span, action, progress): (PartSpan<'_>, Action, &Progress)| {
            let item = span.items.map(|items| items.end.saturating_sub(1));
            let last = Part { step: span.step.clone(), item };
            // A step that failed before it started loses its own record when its items start.
            progress.state == StepState::Failed { attempt: None }
                || after.progress(&last, action).is_some()
        };
        // A request that is sent again belongs to an attempt that another instance may have begun.
        let begins = |request: &StepRequest| {
            before
                .progress(&request.step, request.action)
                .is_none_or(|progress| progress.state.attempt_count() < request.attempt)
        };
        let begins = self.requests().any(begins);
        [
            ("its failure count never decreases", after.failure_count >= before.failure_count),
            ("what was submitted does not change", submitted(before) == submitted(after)),
            (
                "it is reported as late once",
                before.late_at.is_none() || after.late_at == before.late_at,
            ),
            ("the record of what has started is kept", before.action_spans().all(is_recorded)),
            (
                "the end of a task changes only by a request, or because a step ran after all",
                !before.process_state.has_stopped()
                    || stays
                    || is_requested
                    || self.ran_after_all()
                    || self.fails_again(),
            ),
            (
                "the instance that begins an attempt holds the lock",
                !begins || after.locked_by.as_deref() == Some(context.actor),
            ),
            (
                "a task in Error is to be alerted until the alert is recorded as sent",
                after.process_state != ProcessState::Error
                    || !(self.ends() || before.is_alert_due)
                    || after.is_alert_due
                    || matches!(event, Event::AlertPublished { .. }),
            ),
            (
                "a task goes on only with an alert that is recorded as sent, or sent again",
                !self.sends_pending_alert() || self.alerts() == 1,
            ),
        ]
    }

    /// Each command is recorded and published. A refused one changes nothing else.
    fn command_invariants(&self) -> [(&'static str, bool); 4] {
        let Self { before, after, event, context, .. } = self;
        let published = self.effects.iter().filter_map(|effect| match effect {
            Effect::Publish(BusEvent::Operator(event)) => match &event.data {
                EventData::OperatorCommand { command_id, by, caller, why, refused, .. } => {
                    Some((command_id, by, caller.as_ref(), why, refused))
                }
                EventData::TaskInError(_)
                | EventData::UndoFailed(_)
                | EventData::BreakerOpened(_)
                | EventData::BreakerClosed(_)
                | EventData::SubmissionRefused { .. }
                | EventData::MessageCorrupt { .. }
                | EventData::DeadLetterSeen { .. }
                | EventData::AgentMissing { .. }
                | EventData::AgentClockWrong { .. }
                | EventData::ErrorsUnresolved { .. }
                | EventData::TaskLate { .. }
                | EventData::OperatorRedrive { .. } => None,
            },
            Effect::Publish(BusEvent::Lifecycle(_))
            | Effect::Request(_)
            | Effect::Submit(_)
            | Effect::ParentRequest(_)
            | Effect::AwaitEvent(_)
            | Effect::ChildEnded(_)
            | Effect::Reply(_)
            | Effect::Wake { .. }
            | Effect::Notification { .. }
            | Effect::Reject { .. } => None,
        });
        let received = match event {
            Event::CommandReceived(received) => Some(received),
            Event::Wake
            | Event::ReplyReceived(_)
            | Event::Swept
            | Event::CallbackReceived { .. }
            | Event::ParentRequested(_)
            | Event::ChildEnded { .. }
            | Event::AlertPublished { .. } => None,
        };
        let record = received.and(after.commands.last());
        let is_right = |ReceivedCommand { command, caller }: &ReceivedCommand| {
            record.is_some_and(|record| {
                (&record.id, &record.by, &record.why)
                    == (&command.command_id, &command.by, &command.why)
                    && (&record.caller, record.at) == (caller, context.now)
            })
        };
        let recorded = record.map(|it| (&it.id, &it.by, Some(&it.caller), &it.why, &it.refused));
        let is_refused = record.is_some_and(|record| record.refused.is_some());
        let is_same =
            (before.process_state, before.complete_by, &before.undo_reason, before.paused_at)
                == (after.process_state, after.complete_by, &after.undo_reason, after.paused_at)
                && before.input_edit_id == after.input_edit_id
                && self
                    .changes()
                    .all(|change| change.old.is_some_and(|old| old.state == change.new.state));
        [
            (
                "a command is recorded with its operator, caller, reason and time",
                received.is_none_or(is_right),
            ),
            (
                "only a command is recorded as one",
                received.is_some() || before.commands == after.commands,
            ),
            ("each command is published as it is recorded", published.eq(recorded)),
            ("a refused command changes nothing else", !is_refused || is_same),
        ]
    }

    /// When the task is due, and which wakes are sent: if a wake is lost, the supervisor still finds the task.
    fn due_invariants(&self) -> [(&'static str, bool); 5] {
        let Self { before, after, event, context, .. } = self;
        let (now, timing) = (context.now, context.timing);
        let due_by = |time| {
            after.process_state.has_stopped() && !after.goes_on()
                || after.due.is_some_and(|due| due <= time)
        };
        let is_active = !after.process_state.has_stopped() && after.paused_at.is_none();
        let is_sent =
            |until: Timestamp| self.wakes().any(|delay| later(now, delay) == until.max(now));
        let mut new_waits = after.action_spans().filter_map(|(span, action, progress)| {
            let until = progress.state.waiting_until()?;
            let part = span.parts().next()?;
            let old = before.progress(&part, action).and_then(|old| old.state.waiting_until());
            let is_new = old != Some(until) || before.paused_at.is_some();
            let has_started = progress.state.newest_attempt().is_some();
            let goes_on = is_active || has_started && until < after.complete_by;
            // A wait that goes on during an undo starts nothing until the undo is cancelled.
            let starts = action == after.direction();
            (is_new && goes_on && starts).then_some(until)
        });
        let longest = later(now, limits::QUEUE_DELAY_MAX);
        [
            (
                "due soon after each wake",
                self.wakes().all(|delay| due_by(later(later(now, delay), timing.pickup_within))),
            ),
            (
                "no wake is delayed longer than a queue can delay it",
                self.wakes().all(|delay| delay <= limits::QUEUE_DELAY_MAX),
            ),
            (
                "a wake is sent for each new wait",
                !after.goes_on()
                    || now >= after.complete_by
                    || new_waits.all(|until| until > longest || is_sent(until)),
            ),
            // By the clock of another instance, if nothing changes.
            (
                "due soon if nothing runs or waits",
                !is_active
                    || self.is_busy()
                    || due_by(later(now, timing.pickup_within + timing.clock_skew)),
            ),
            (
                "a sweep leaves nothing past due",
                **event != Event::Swept
                    || !is_active
                    || after.due.is_none_or(|due| due == now || !context.is_past(due)),
            ),
        ]
    }

    /// What has started when the decision continues the task. Starts may be postponed to the next decision, with a wake.
    fn start_invariants(&self) -> [(&'static str, bool); 3] {
        let Self { plan, after, context, .. } = self;
        let in_time = context.now < after.complete_by;
        let is_active = in_time && after.paused_at.is_none();
        let goes_on = is_active && after.process_state == ProcessState::Processing;
        let is_postponed = self.wakes().any(|delay| delay.is_zero());
        let passed = |name| after.steps.get(name).is_some_and(|of| has_passed(&of.forward.state));
        let is_full = |(name, record): (_, &StepRecord)| {
            let (Some(items), Some(step)) = (&record.items, plan.find(name)) else { return true };
            let passed = items.spans().filter(|(_, item)| has_passed(&item.forward.state));
            let open = items.started() - passed.map(|(span, _)| span.len() as u32).sum::<u32>();
            let at_once = step.definition.items_at_once().unwrap_or(0);
            record.forward.state != StepState::RunningItems
                || open >= at_once
                || items.started() == items.count()
        };
        let decides = matches!(self.event, Event::Wake | Event::ReplyReceived(_));
        let is_undoing = is_active && after.process_state == ProcessState::Undoing;
        let mut parts = after.part_spans();
        let is_left = || {
            parts.any(|(span, record)| {
                plan.find(span.step).is_some_and(|step| is_left_to_undo(step, record))
            })
        };
        [
            (
                "each step that is ready has started",
                !(goes_on && self.continues())
                    || is_postponed
                    || plan.steps().all(|(name, step)| {
                        after.steps.contains_key(name) || !step.definition.after.iter().all(passed)
                    }),
            ),
            (
                "as many items run as `at_once` allows",
                !goes_on || is_postponed || after.steps.iter().all(is_full),
            ),
            (
                "Undoing: something is left to undo, or is waited for",
                !(is_undoing && decides) || self.is_busy() || self.wakes().next().is_some() || {
                    is_left
                }(
                ),
            ),
        ]
    }

    /// The notifications of an end.
    fn end_invariants(&self) -> [(&'static str, bool); 4] {
        let Self { after, effects, context, .. } = self;
        let count = |is: fn(&&Effect) -> bool| effects.iter().filter(is).count();
        let notifications = count(|effect| matches!(effect, Effect::Notification { .. }));
        let reports = count(|effect| matches!(effect, Effect::ChildEnded(_)));
        let own = usize::from(after.process_state == ProcessState::Error);
        let pending = usize::from(self.sends_pending_alert());
        // A task that was reopened may stop again in the same decision.
        let most = own + usize::from(self.before.is_alert_due);
        [
            ("the end time is that of the decision", after.ended_at == Some(context.now)),
            (
                "the client is notified of each end once",
                notifications == usize::from(after.reply_to.is_some()),
            ),
            (
                "the parent is notified of each end once",
                reports == usize::from(after.parent.is_some()),
            ),
            (
                "Error sends one alert, and no other end does",
                (own + pending..=most).contains(&self.alerts()),
            ),
        ]
    }

    pub(super) fn changes(&self) -> impl Iterator<Item = PartChange<'_>> {
        part_changes(self.plan, self.before, self.after)
    }

    /// Whether the task ends now, for the first time or again.
    pub(super) fn ends(&self) -> bool {
        let end = |task: &Task| (task.process_state, task.ended_at);
        self.ignored.is_none()
            && self.after.process_state.has_stopped()
            && end(self.before) != end(self.after)
    }

    /// Whether a task in Error goes on whose alert is not recorded as sent.
    pub(super) fn sends_pending_alert(&self) -> bool {
        self.before.is_alert_due && self.after.process_state != ProcessState::Error
    }

    /// The number of alerts that are sent.
    fn alerts(&self) -> usize {
        let is_alert = |effect: &&Effect| matches!(effect, Effect::Publish(event) if event.alerted_end().is_some());
        self.effects.iter().filter(is_alert).count()
    }

    /// Whether a step fails in a task in Error: another alert follows, or an undo.
    fn fails_again(&self) -> bool {
        let Self { before, after, .. } = self;
        let turns = before.undo_reason.is_none() && after.undo_reason.is_some();
        before.process_state == ProcessState::Error
            && before.goes_on()
            // Another alert, or a point of no return that may have run and cancels the undo.
            && (turns || after.process_state == ProcessState::Error)
    }

    /// Whether something is awaited, waits, or may be in progress while the task is undone.
    fn is_busy(&self) -> bool {
        let waits = |(.., progress): (_, _, &Progress)| {
            is_awaited(&progress.state) || progress.state.waiting_until().is_some()
        };
        let backward = self.after.undo_reason.is_some();
        let mut parts = self.after.part_spans().filter(|_| backward);
        self.after.action_spans().any(waits)
            || parts.any(|(_, record)| self.may_be_in_progress(record))
    }

    /// Whether a call of a part, or of its completed undo, may be in progress. An undo that is not complete is waited for
    /// anyway.
    pub(super) fn may_be_in_progress(&self, record: &StepRecord) -> bool {
        let undo = record.undo.as_ref().filter(|undo| has_passed(&undo.state));
        record.forward.call_may_run_until.max(undo.and_then(|undo| undo.call_may_run_until))
            > Some(self.context.now)
    }

    /// Whether the event continues the task. Late news is only recorded.
    fn continues(&self) -> bool {
        let may_have_run =
            |task: &Task, part| task.record(part).is_some_and(|of| of.forward.may_have_run);
        let is_late = |part| {
            self.before.record(part).is_some_and(|old| !is_awaited(&old.forward.state))
                && may_have_run(self.after, part)
                && !may_have_run(self.before, part)
        };
        match self.event {
            Event::Wake | Event::ParentRequested(_) => true,
            Event::ReplyReceived(StepReply { step, .. })
            | Event::CallbackReceived { step, .. }
            | Event::ChildEnded { step, .. } => !is_late(step),
            Event::CommandReceived(_) => {
                self.after.commands.last().is_some_and(|command| command.refused.is_none())
            }
            Event::Swept | Event::AlertPublished { .. } => false,
        }
    }

    /// Whether the event reports that a step of a task without an error took effect, or may have, although the task's record
    /// says otherwise. The task then changes to Error, or is undone further.
    fn ran_after_all(&self) -> bool {
        let Self { before, after, .. } = self;
        let step = match self.event {
            Event::ReplyReceived(StepReply { step, action: Action::Do, outcome, .. })
                if outcome.may_have_run() =>
            {
                step
            }
            Event::ChildEnded {
                step,
                outcome: ChildOutcome::Processed { .. } | ChildOutcome::Error { .. },
                ..
            }
            // The call that contains the token was made.
            | Event::CallbackReceived { step, .. } => step,
            Event::Wake
            | Event::Swept
            | Event::ReplyReceived(_)
            | Event::CommandReceived(_)
            | Event::ParentRequested(_)
            | Event::ChildEnded { .. }
            | Event::AlertPublished { .. } => return false,
        };
        let (Some(old), Some(new)) = (before.record(step), after.record(step)) else {
            return false;
        };
        let is_passed =
            |undo: &Option<Progress>| undo.as_ref().is_some_and(|undo| has_passed(&undo.state));
        let shows_effect = !old.forward.may_have_run && new.forward.may_have_run
            || old.earlier != new.earlier
            || is_passed(&old.undo) && !is_passed(&new.undo)
            // Its child task was Processed, and another effect came to light.
            || old.forward.child_revision != new.forward.child_revision;
        let is_undone_further = before.process_state == ProcessState::Undone
            && after.process_state == ProcessState::Undoing;
        (after.process_state == ProcessState::Error || is_undone_further) && shows_effect
    }

    pub(super) fn requests(&self) -> impl Iterator<Item = &StepRequest> {
        self.effects.iter().filter_map(|effect| match effect {
            Effect::Request(request) => Some(request),
            Effect::Submit(_)
            | Effect::ParentRequest(_)
            | Effect::AwaitEvent(_)
            | Effect::ChildEnded(_)
            | Effect::Reply(_)
            | Effect::Wake { .. }
            | Effect::Notification { .. }
            | Effect::Reject { .. }
            | Effect::Publish(_) => None,
        })
    }

    /// The attempts whose requests, submissions or subscriptions are sent.
    pub(super) fn requested_attempts(&self) -> BTreeSet<AttemptId> {
        self.effects.iter().filter_map(|effect| requested_attempt(self.after, effect)).collect()
    }

    /// The delays of the wakes that are sent.
    fn wakes(&self) -> impl Iterator<Item = std::time::Duration> {
        self.effects.iter().filter_map(|effect| match effect {
            Effect::Wake { after, .. } => Some(*after),
            Effect::Request(_)
            | Effect::Submit(_)
            | Effect::ParentRequest(_)
            | Effect::AwaitEvent(_)
            | Effect::ChildEnded(_)
            | Effect::Reply(_)
            | Effect::Notification { .. }
            | Effect::Reject { .. }
            | Effect::Publish(_) => None,
        })
    }
}

/// The attempt that an effect requests: from an agent, from a child task, or as a wait for an event.
#[must_use]
pub fn requested_attempt(task: &Task, effect: &Effect) -> Option<AttemptId> {
    match effect {
        Effect::Request(StepRequest { step, action, attempt: number, .. }) => {
            Some(AttemptId { step: step.clone(), action: *action, number: *number })
        }
        Effect::Submit(submission) => {
            let step = submission.parent.as_ref()?.step.clone();
            let action = if submission.undo { Action::Undo } else { Action::Do };
            let number = task.progress(&step, action)?.state.attempt_count();
            Some(AttemptId { step, action, number })
        }
        Effect::AwaitEvent(subscription) => {
            let (step, number) = (subscription.waiter.step.clone(), subscription.waiter.attempt);
            Some(AttemptId { step, action: Action::Do, number })
        }
        Effect::ParentRequest(_)
        | Effect::ChildEnded(_)
        | Effect::Reply(_)
        | Effect::Wake { .. }
        | Effect::Notification { .. }
        | Effect::Reject { .. }
        | Effect::Publish(_) => None,
    }
}

/// The values of a task that no decision may change.
fn submitted(task: &Task) -> impl PartialEq + '_ {
    (
        (&task.task_id, &task.workflow, task.version, task.submitted_at, task.incarnation),
        (&task.reply_to, &task.tenant, &task.parent, &task.traceparent),
        (task.retention_for_parent, task.retention_s, &task.rerun, &task.labels),
    )
}

#[cfg(test)]
mod tests;
