//! The oracle's checks of saves: attempts that begin too early or too often, waits that end too early, outputs that no
//! service returned, and steps that are skipped or fail without reason.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use steward_core::model::{
    attempt::Action,
    document::Document,
    messages::StepRequest,
    names::Part,
    step::{Progress, StepState},
    task::{ProcessState, Task},
};
use steward_operator::view::newest_reason;
use steward_test_world::ledger::EffectLedger;

use super::{
    blueprint::{CallbackPlan, StepPlan, WorkPlan},
    child_checks,
    expectations::{Expected, FROM_OUTSIDE, TaskExpectations},
    oracle::{AttemptKey, Oracle},
    plan::operator_output,
    task_record::{awaited_by, describe, has_commands, resubmit_count, took_effect_late},
    virtual_time::since_start,
};

/// The longest delay of a message in its queue, in seconds.
const DELAY_MAX_S: i64 = 900;

/// A successful save. The oracle has already recorded `after`.
pub(super) struct ObservedSave<'a> {
    pub(super) oracle: &'a Oracle,
    pub(super) ledger: &'a EffectLedger,
    pub(super) before: &'a Task,
    pub(super) after: &'a Task,
    pub(super) documents: &'a [Document],
    /// When the task was saved before.
    pub(super) last: Option<Timestamp>,
    pub(super) now: Timestamp,
}

/// The change of one part by a save.
struct PartChange<'a> {
    part: Part,
    action: Action,
    step: &'a StepPlan,
    old: Option<&'a Progress>,
    new: &'a Progress,
}

impl PartChange<'_> {
    fn number(&self) -> u32 {
        self.new.state.attempt_count()
    }

    fn callback(&self) -> Option<CallbackPlan> {
        match self.step.work {
            WorkPlan::Call { callback, .. } => callback.filter(|_| self.action == Action::Do),
            WorkPlan::Wait(_) | WorkPlan::Event(_) | WorkPlan::Child(_) => None,
        }
    }

    fn is_wait(&self) -> bool {
        matches!(self.step.work, WorkPlan::Wait(_))
    }

    /// Whether this save changed the state of the part.
    fn is_new(&self) -> bool {
        self.old.is_none_or(|old| old.state != self.new.state)
    }
}

impl ObservedSave<'_> {
    pub(super) fn check(&self) -> Vec<String> {
        let (id, before, after) = (&self.after.task_id, self.before, self.after);
        let mut found = Vec::new();
        if after.revision != before.revision + 1 {
            let (old, new) = (before.revision, after.revision);
            found.push(format!("{id}: revision {new} was saved over revision {old}"));
        }
        found.extend(self.check_idle());
        found.extend(child_checks::check_overdue_undo(self.oracle, before, after));
        found.extend(self.check_in_progress());
        let Some(expected) = TaskExpectations::of(self.oracle, self.ledger, id) else {
            return found;
        };
        for (part, action, new) in after.started_actions() {
            let of = describe(id, &part, action);
            let Some(step) = expected.model.step(&part.step) else {
                found.push(format!("{of}: the step does not exist"));
                continue;
            };
            let old = before.progress(&part, action);
            let change = PartChange { part, action, step, old, new };
            let more = [
                self.check_attempt(&change),
                self.check_failures(&change, expected),
                self.check_wait_between_attempts(&change),
                self.check_completed(&change, expected),
                self.check_start(&change, expected),
                self.check_event_wait(&change, expected),
                self.check_undo_of_task(&change),
                // Only the save that gives up the attempt is checked, not later ones.
                change
                    .is_new()
                    .then(|| {
                        let reason = self.reason(&change.part, change.action);
                        let given_up = (&change.part, new, reason.as_deref());
                        child_checks::check_given_up(self.oracle, self.after, given_up, self.now)
                    })
                    .flatten(),
            ];
            found.extend(more.into_iter().flatten().map(|finding| format!("{of}: {finding}")));
        }
        found
    }

    /// The reason why the newest attempt at a part failed or was deferred, from its document.
    fn reason(&self, part: &Part, action: Action) -> Option<String> {
        newest_reason(self.documents, part, action)
    }

    fn key(&self, change: &PartChange<'_>, number: u32) -> AttemptKey {
        (self.after.task_id.clone(), change.part.clone(), change.action, number)
    }

    /// When a task becomes Processed or Undone, no call in progress will still take effect. When it becomes Undone, all
    /// its child tasks are Undone.
    fn check_in_progress(&self) -> Vec<String> {
        let (id, state) = (&self.after.task_id, self.after.process_state);
        let reported = state != self.before.process_state
            && matches!(state, ProcessState::Processed | ProcessState::Undone);
        if !reported {
            return Vec::new();
        }
        let is_decided = |part: &Part, action| self.oracle.is_decided_by_operator(id, part, action);
        let pending = self.ledger.pending_calls(id);
        // A second delivery of a refused request comes to light later.
        let counts_as_refused = |request: &StepRequest| {
            request.action == Action::Do
                && self.after.record(&request.step).is_some_and(|record| !record.has_effect())
        };
        let calls = pending.filter(|service_call| {
            let request = &service_call.request;
            !is_decided(&request.step, request.action) && !counts_as_refused(request)
        });
        let mut found: Vec<_> = calls
            .map(|service_call| {
                let (part, attempt) = (&service_call.request.step, service_call.request.attempt);
                let later = service_call.commits_at.unwrap_or_default().saturating_sub(since_start(self.now));
                format!(
                    "{id}: {state}, but a call of step {part}, attempt {attempt}, is in progress: it \
                     takes effect {later} ms later"
                )
            })
            .collect();
        if state == ProcessState::Undone {
            let children = self.oracle.child_tasks(id);
            found.extend(children.filter(|(part, _)| !is_decided(part, Action::Undo)).filter_map(
                |(part, child)| {
                    let state = child.process_state;
                    // The parent has not received that report yet.
                    (state != ProcessState::Undone && !took_effect_late(child)).then(|| {
                        format!(
                            "{id}: Undone, but {}, the child task of step {part}, is {state}",
                            child.task_id
                        )
                    })
                },
            ));
        }
        found
    }

    /// A task that has begun runs out of time only while an attempt or a wait is in progress.
    fn check_idle(&self) -> Option<String> {
        let (before, after) = (self.before, self.after);
        let overdue = "the task was not done by its complete-by";
        let is_overdue = |reason: &Option<String>| reason.as_deref() == Some(overdue);
        let was = is_overdue(&before.error) || is_overdue(&before.undo_reason);
        let is = is_overdue(&after.error) || is_overdue(&after.undo_reason);
        let busy = before.started_actions().any(|(_, _, progress)| {
            matches!(progress.state, StepState::Waiting { .. })
                || awaited_by(&progress.state).is_some()
        });
        // An attempt that ends shortly before the deadline allows no further attempt.
        let early =
            self.last.is_some_and(|last| last + self.oracle.clock_skew < before.complete_by);
        // The record of a refused command does not begin a task.
        let has_begun = before.process_state != ProcessState::Pending;
        let idle = is && !was && has_begun && !busy && early && !has_commands(after);
        idle.then(|| {
            format!(
                "{}: ran out of time while no attempt and no wait was in progress",
                after.task_id
            )
        })
    }

    /// No attempt begins while its predecessor may be in progress, by what the agents have sent.
    fn check_attempt(&self, change: &PartChange<'_>) -> Option<String> {
        let (number, last) =
            (change.number(), change.old.map_or(0, |old| old.state.attempt_count()));
        let begins = change.new.state.is_running() && number > last;
        let complete_by = change.old.and_then(|old| awaited_by(&old.state))?;
        let is_answered = self.is_answered(change, last);
        // An operator may let a step wait anew for its event. Nothing is called.
        let waits_anew = matches!(change.step.work, WorkPlan::Event(_)) && has_commands(self.after);
        (begins && self.now <= complete_by && !is_answered && !waits_anew)
            .then(|| format!("attempt {number} began while attempt {last} may be in progress"))
    }

    /// Whether an attempt has been answered: by its agent, its callback or its child task.
    fn is_answered(&self, change: &PartChange<'_>, number: u32) -> bool {
        let key = self.key(change, number);
        let is_awaiting_callback =
            change.old.is_some_and(|old| matches!(old.state, StepState::AwaitingCallback { .. }));
        let task_part = (self.after.task_id.clone(), change.part.clone());
        (change.action == Action::Do && self.oracle.callbacks_received.contains(&task_part))
            || (!is_awaiting_callback && self.oracle.agent_replies.contains(&key))
            || self.oracle.child_reports_received.contains(&task_part)
    }

    fn check_failures(
        &self,
        change: &PartChange<'_>,
        expected: TaskExpectations<'_>,
    ) -> Option<String> {
        if !change.is_new() || !change.new.state.is_failed() {
            return None;
        }
        let error = self.reason(&change.part, change.action).unwrap_or_default();
        let outside = FROM_OUTSIDE.iter().any(|reason| error.contains(reason));
        let key = self.key(change, change.new.state.attempt_count());
        let may_fail = expected.may_fail(&change.part, change.action);
        let competes = error.contains("waits for an event with the same key");
        let may_fail =
            may_fail || competes && self.oracle.has_other_waiter(self.after, &change.part);
        let is_expected =
            outside || error.is_empty() || may_fail || self.oracle.kept_reasons.contains(&key);
        (!is_expected).then(|| format!("failed with an unexpected reason: {error}"))
    }

    /// In a run without faults, no wait between attempts lasts too long.
    fn check_wait_between_attempts(&self, change: &PartChange<'_>) -> Option<String> {
        let last = change.old.map_or(0, |old| old.state.attempt_count());
        let begins = change.new.state.is_running() && change.number() > last;
        if !begins || !self.after.commands.is_empty() {
            return None;
        }
        let (since, until) = self.oracle.waits.get(&self.key(change, last)).copied()?;
        self.is_late(since, until)
    }

    fn is_late(&self, since: Timestamp, until: Timestamp) -> Option<String> {
        let Oracle { clock_skew, pickup_within, sweep_every, is_fault_free, .. } = self.oracle;
        let by_wake = until.duration_since(since).as_secs() < DELAY_MAX_S;
        let found_within = if by_wake { Duration::ZERO } else { *pickup_within + *sweep_every };
        let late = self.now.duration_since(until).as_millis();
        let most = (*clock_skew * 3 + found_within).as_millis() as i128 + 5_000;
        (*is_fault_free && late > most)
            .then(|| format!("its wait ended {late} ms ago in a run without faults"))
    }

    fn check_completed(
        &self,
        change: &PartChange<'_>,
        expected: TaskExpectations<'_>,
    ) -> Option<String> {
        let StepState::Completed { attempt } = change.new.state else { return None };
        if attempt.is_none() {
            return self.check_wait(change, expected);
        }
        let key = change.new.output(&change.part, change.action);
        let is_output = |document: &&Document| Some(&document.key) == key.as_ref();
        let Some(document) = self.documents.iter().find(is_output) else {
            return Some("completed, but its output document does not exist".to_owned());
        };
        if !change.is_new() || document.body == operator_output() {
            return None;
        }
        let is_body = |value: &Value| *value == document.body;
        let account = expected.account(&change.part);
        let is_returned = match change.callback() {
            Some(_) => account.is_some_and(|account| account.callback_outputs.iter().any(is_body)),
            None if change.action == Action::Undo => true,
            None => expected.is_possible_part_output(&change.part, change.step, &document.body),
        };
        (!is_returned)
            .then(|| format!("completed with an output that nothing returned: {}", document.body))
    }

    /// A wait step does not complete too early. In a run without faults, it does not complete too late.
    fn check_wait(
        &self,
        change: &PartChange<'_>,
        expected: TaskExpectations<'_>,
    ) -> Option<String> {
        if !change.is_wait() {
            return Some("completed without an attempt".to_owned());
        }
        if !change.is_new() || resubmit_count(self.after) > 0 {
            return None;
        }
        let (now, least) = (since_start(self.now), expected.earliest_completion(&change.part.step));
        if now < least {
            return Some(format!("its wait ended {} ms early", least - now));
        }
        let (since, until) = self.oracle.waits.get(&self.key(change, 0)).copied()?;
        if has_commands(self.after) {
            return None;
        }
        self.is_late(since, until)
    }

    /// Only steps that must run begin, and only steps that must not run are skipped.
    fn check_start(
        &self,
        change: &PartChange<'_>,
        expected: TaskExpectations<'_>,
    ) -> Option<String> {
        if change.old.is_some() || change.action == Action::Undo {
            return None;
        }
        let should_run = expected.should_run(change.step);
        match change.new.state {
            StepState::Skipped { .. } => {
                let skipped_by_task = expected.oracle.was_skipped(expected.id(), &change.part.step);
                let wrong = skipped_by_task
                    && matches!(should_run, Expected::Value(true) | Expected::NoValue);
                wrong.then(|| "was skipped, but must run".to_owned())
            }
            StepState::Running { .. }
            | StepState::AwaitingCallback { .. }
            | StepState::Waiting { .. } => {
                let wrong = matches!(should_run, Expected::Value(false) | Expected::NoValue);
                wrong.then(|| "began, but must not run".to_owned())
            }
            StepState::RunningItems | StepState::Completed { .. } | StepState::Failed { .. } => {
                None
            }
        }
    }

    /// A wait for an event is as long as its definition says. In a run without faults, its end is noticed in time.
    fn check_event_wait(
        &self,
        change: &PartChange<'_>,
        expected: TaskExpectations<'_>,
    ) -> Option<String> {
        let wait = expected.awaited_event(&change.part).filter(|_| change.is_new())?;
        if let StepState::Running { complete_by, .. } = change.new.state {
            return expected.wrong_length_of_wait(wait, complete_by, (self.last, self.now));
        }
        let silent = self
            .reason(&change.part, change.action)
            .is_some_and(|reason| reason.starts_with("no reply") || reason.starts_with("no event"));
        let until = change.old.and_then(|old| awaited_by(&old.state)).filter(|_| silent)?;
        let Oracle { clock_skew, pickup_within, sweep_every, is_fault_free, .. } = self.oracle;
        let most = *clock_skew * 3 + *pickup_within + *sweep_every + Duration::from_secs(5);
        let late = self.now.duration_since(until);
        // A task that stopped meanwhile notices the end once an operator lets it continue.
        let is_late = !has_commands(self.after) && late.as_millis() > most.as_millis() as i128;
        (*is_fault_free && is_late)
            .then(|| format!("its wait for an event ended {late:#} ago in a run without faults"))
    }

    /// The undo of a child task fails only if the child has stopped.
    fn check_undo_of_task(&self, change: &PartChange<'_>) -> Option<String> {
        let error = self.reason(&change.part, change.action).unwrap_or_default();
        let failed = change.is_new() && change.new.state.is_failed();
        if !failed
            || change.action == Action::Do
            || !error.starts_with("its child task is in Error")
        {
            return None;
        }
        // A client's task has the child's id, so it is unknown what must be undone.
        if error.contains("exists already") {
            return None;
        }
        let mut children = self.oracle.child_tasks_of_part(&self.after.task_id, &change.part);
        let stopped = |child: &Task| {
            let model = self.oracle.model(&child.task_id);
            let points = model.into_iter().flat_map(|model| model.points_of_no_return());
            let mut points = points.filter_map(|point| child.steps.get(point));
            child.process_state == ProcessState::Error
                || has_commands(child)
                || points.any(|point| matches!(point.forward.state, StepState::Completed { .. }))
        };
        (!children.any(stopped))
            .then(|| "was given up, but its child task can still be undone".to_owned())
    }
}
