//! The oracle's checks of calls to services: a call must not be late, duplicated, out of order, for another item, or
//! for a step that must not run.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::Value;
use steward_core::model::{
    attempt::Action,
    json_text::JsonText,
    messages::StepRequest,
    names::{Part, StepName},
    step::StepState,
};
use steward_test_world::ledger::{CallAttempt, EffectLedger, LedgerAccount};

use super::{
    agent_checks::check_agent,
    blueprint::{StepPlan, WorkPlan},
    expectations::{Expected, TaskExpectations},
    oracle::Oracle,
    task_record::{describe, resubmit_count},
    virtual_time::Millis,
};

impl Oracle {
    /// Checks that a call is within its agent's rate limit. A call of which only one delivery may call begins after its
    /// claim, whose write may be slow, so it does not count.
    pub(super) fn check_rate(&mut self, request: &StepRequest, now: Timestamp) {
        let (agent, skew) = (&request.agent, self.clock_skew);
        let is_claimed = !request.idempotent || request.exclusive;
        let holds = self
            .rate_meters
            .get_mut(agent)
            .is_none_or(|meter| is_claimed || meter.count(now, skew));
        if !holds {
            self.add_finding(format!("agent {agent}: exceeds its rate limit"));
        }
    }

    /// Checks a call that an agent is about to make.
    pub(super) fn check_call(
        &mut self,
        request: &StepRequest,
        ledger: &EffectLedger,
        now: Timestamp,
    ) {
        let StepRequest { task_id, step: part, action, attempt, complete_by, .. } = request;
        let of = describe(task_id, part, *action);
        let Some(expected) = TaskExpectations::of(self, ledger, task_id) else {
            return self.add_finding(format!("{of} was called, but the task does not exist"));
        };
        let mut found = Vec::new();
        if now > *complete_by + self.clock_skew {
            found.push(format!("attempt {attempt} was called after its complete-by"));
        }
        if ledger.is_key_reused(request) {
            found.push(format!(
                "was called with the idempotency key of another part, {}",
                request.idempotency_key
            ));
        }
        found.extend(self.check_concurrent_call(request, ledger));
        match expected.model.step(&part.step) {
            None => found.push("the step does not exist".to_owned()),
            Some(step) => {
                found.extend(self.check_items_in_progress(request, step, ledger));
                found.extend(check_body(request, step, expected));
                found.extend(check_round_of_undo(request, step, expected));
                found.extend(check_agent(request, &step.work, expected));
            }
        }
        if *action == Action::Do && !request.idempotent {
            // A step that is not idempotent is called once, unless an operator resubmits it.
            let calls = expected.account(part).map_or(0, |account| account.calls) as usize;
            if calls > resubmit_count(expected.task) {
                found.push(format!("is not idempotent, but was called {} times", calls + 1));
            }
        }
        self.violations.extend(found.into_iter().map(|finding| format!("{of}: {finding}")));
    }

    /// Whether agents may still be working on an attempt: neither they nor a callback have answered.
    fn may_be_in_progress(&self, request: &StepRequest, part: &Part, call: &CallAttempt) -> bool {
        let key = (request.task_id.clone(), part.clone(), call.action, call.attempt);
        let has_callback_answer = call.action == Action::Do
            && self.callbacks_received.contains(&(request.task_id.clone(), part.clone()));
        !self.agent_replies.contains(&key) && !has_callback_answer
    }

    fn check_concurrent_call(
        &self,
        request: &StepRequest,
        ledger: &EffectLedger,
    ) -> Option<String> {
        let StepRequest { task_id, step: part, action, attempt, .. } = request;
        let own = CallAttempt { action: *action, attempt: *attempt };
        // Another delivery of an answered attempt may still be running. Its effect is known, so it is harmless.
        if !self.may_be_in_progress(request, part, &own) {
            return None;
        }
        let in_progress = ledger.account(task_id, part).map(|account| &account.in_progress);
        let other = in_progress.into_iter().flat_map(BTreeMap::values).find(|other| {
            let same = other.action == *action && other.attempt == *attempt;
            !same && self.may_be_in_progress(request, part, other)
        })?;
        let (what, number) = (other.action.name(), other.attempt);
        Some(format!("called while attempt {number} of its {what} is in progress"))
    }

    /// Checks that no more than `at_once` items of a step are in progress.
    fn check_items_in_progress(
        &self,
        request: &StepRequest,
        step: &StepPlan,
        ledger: &EffectLedger,
    ) -> Option<String> {
        let StepRequest { task_id, step: part, action, .. } = request;
        let at_once = step.each.as_ref()?.at_once;
        let own = CallAttempt { action: *action, attempt: request.attempt };
        let task = self.tasks.get(task_id);
        // Of an item that has completed, only a repeated call may be in progress.
        let has_completed = |of: &Part| {
            let progress = task.and_then(|task| task.progress(of, *action));
            progress.is_some_and(|of| matches!(of.state, StepState::Completed { .. }))
        };
        // A redelivery of an answered attempt does not count.
        if !self.may_be_in_progress(request, part, &own) || has_completed(part) {
            return None;
        }
        let step_accounts = ledger
            .step_accounts(task_id, &part.step)
            .filter(|(other, _)| *other != part && !has_completed(other));
        let busy = |(other, account): &(&Part, &LedgerAccount)| {
            account
                .in_progress
                .values()
                .any(|call| call.action == *action && self.may_be_in_progress(request, other, call))
        };
        let called = step_accounts.filter(busy).map(|(other, _)| other.clone());
        let awaiting_callback = task.into_iter().flat_map(|task| task.started_actions());
        let awaiting_callback = awaiting_callback.filter(|(other, of, progress)| {
            let is_awaiting = matches!(progress.state, StepState::AwaitingCallback { .. });
            other.step == part.step && other != part && of == action && is_awaiting
        });
        let items_in_progress: BTreeSet<_> =
            called.chain(awaiting_callback.map(|(other, ..)| other)).collect();
        let count = items_in_progress.len() + 1;
        (count > at_once).then(|| format!("{count} items are in progress; at_once is {at_once}"))
    }

    /// Checks a call that is about to take effect for the first time.
    pub(super) fn check_effect(
        &mut self,
        request: &StepRequest,
        ledger: &EffectLedger,
        now: Millis,
    ) {
        let (task_id, part) = (&request.task_id, &request.step);
        let of = describe(task_id, part, request.action);
        if request.action == Action::Undo {
            if ledger.had_effect(request) {
                self.add_finding(format!("{of}: took effect twice with one idempotency key"));
            }
            return;
        }
        let Some(expected) = TaskExpectations::of(self, ledger, task_id) else {
            return self.add_finding(format!("{of} took effect, but the task does not exist"));
        };
        let mut found: Vec<_> = expected.reason_not_to_run(part).into_iter().collect();
        if expected.account(part).is_some_and(|account| !account.effects.is_empty()) {
            found.push("took effect twice".to_owned());
        }
        let least = expected.earliest_start(&part.step);
        if now < least {
            found.push(format!("took effect {} ms too early", least - now));
        }
        let undone = |step: &StepName| {
            ledger.step_accounts(task_id, step).any(|(_, account)| account.undo_called)
        };
        let own = expected.account(part).is_some_and(|account| account.undo_called);
        let before = expected.model.before(&part.step).into_iter().find(|step| undone(step));
        if let Some(undone) = Some(&part.step).filter(|_| own).or(before) {
            found.push(format!("took effect after the undo of {undone}"));
        }
        let is_point = expected.model.points_of_no_return().any(|point| *point == part.step);
        if is_point && let Some((undone, _)) = expected.model.steps().find(|(step, _)| undone(step))
        {
            found.push(format!("the point of no return, took effect after the undo of {undone}"));
        }
        for missing in expected.model.directly_before(&part.step) {
            if !has_passed(missing, expected) {
                found.push(format!("took effect before {missing}, which must complete first"));
            }
        }
        self.violations.extend(found.into_iter().map(|finding| format!("{of}: {finding}")));
    }
}

impl TaskExpectations<'_> {
    /// The reason why a part must not run; `None` if it may run.
    pub(super) fn reason_not_to_run(&self, part: &Part) -> Option<String> {
        let step = self.model.step(&part.step)?;
        match self.should_run(step) {
            Expected::Value(false) => return Some("must be skipped".to_owned()),
            Expected::NoValue => return Some("has a `when` without a value".to_owned()),
            Expected::Value(true) | Expected::Undetermined => {}
        }
        if step.each.is_some() != part.item.is_some() {
            return Some("runs as an item of a step without `for_each`, or the reverse".to_owned());
        }
        let exists = self.parts(&part.step, step).contains(part);
        (!exists).then(|| "the item does not exist".to_owned())
    }
}

/// Whether a step has passed, by the ledger where it has an account, else by the task's record.
fn has_passed(name: &StepName, expected: TaskExpectations<'_>) -> bool {
    let Some(step) = expected.model.step(name) else { return false };
    let whole = Part::from(name.clone());
    if expected.oracle.was_skipped(expected.id(), name) || expected.is_decided_by_operator(&whole) {
        return true;
    }
    let completed = |part: &Part| {
        let progress = expected.task.progress(part, Action::Do);
        progress.is_some_and(|run| matches!(run.state, StepState::Completed { .. }))
    };
    let parts = expected.parts(name, step);
    parts.iter().all(|part| {
        expected.is_decided_by_operator(part)
            || match &step.work {
                WorkPlan::Call { callback, .. } => expected.account(part).is_some_and(|account| {
                    let has_answer = callback.is_none() || !account.callback_outputs.is_empty();
                    !account.effects.is_empty() && has_answer
                }),
                WorkPlan::Wait(_) | WorkPlan::Event(_) => completed(part),
                WorkPlan::Child(_) => {
                    let key = (expected.id().clone(), part.clone());
                    completed(part) && expected.oracle.child_reports_received.contains(&key)
                }
            }
    })
}

/// Checks that no later round that has completed is still to be undone.
fn check_round_of_undo(
    request: &StepRequest,
    step: &StepPlan,
    expected: TaskExpectations<'_>,
) -> Option<String> {
    step.rounds().filter(|_| request.action == Action::Undo)?;
    let is_left = |part: &Part| {
        let completed = expected.task.progress(part, Action::Do);
        completed.is_some_and(|run| matches!(run.state, StepState::Completed { .. }))
            && expected.account(part).is_some_and(|account| !account.undo_called)
            && !expected.oracle.is_decided_by_operator(expected.id(), part, Action::Undo)
    };
    let mut parts = expected.parts(&request.step.step, step).into_iter();
    let later = parts.find(|part| part.item > request.step.item && is_left(part));
    later.map(|later| format!("is undone before {later}"))
}

/// Checks that the body of a call is for the right item and contains the outputs of the steps that it reads.
fn check_body(
    request: &StepRequest,
    step: &StepPlan,
    expected: TaskExpectations<'_>,
) -> Option<String> {
    let part = &request.step;
    let body = request.body.as_ref().map(JsonText::value);
    let body = body.as_ref();
    let item = body.and_then(|body| body.get("item"));
    if step.rounds().is_some() {
        let before = part.item.and_then(|index| index.checked_sub(1));
        let before = before.map(|index| Part { step: part.step.clone(), item: Some(index) });
        let is_right = match (&before, item) {
            (Some(before), Some(item)) => expected.is_possible_part_output(before, step, item),
            (None, item) => item.is_none_or(Value::is_null),
            (Some(_), None) => request.action == Action::Undo,
        };
        if !is_right {
            return Some(format!("was called with {}", item.unwrap_or(&Value::Null)));
        }
    } else if step.each.is_some() || item.is_some() {
        let items = expected.items(step).value().flatten().unwrap_or_default();
        let index = part.item.map_or(usize::MAX, |index| index as usize);
        let undone = expected.account(part).filter(|_| request.action == Action::Undo);
        // If no call had an effect, an edit may have replaced the item since.
        let done = undone
            .filter(|account| !account.effects.is_empty())
            .and_then(|account| account.item.as_ref());
        let is_listed = items.get(index).is_none_or(|listed| Some(listed) == item);
        // An operator may edit the input of a part and then complete the part by hand, so that no call has the new item.
        let is_right = match done {
            Some(done) => Some(done) == item || expected.is_decided_by_operator(part) && is_listed,
            None => is_listed,
        };
        if !is_right {
            return Some(format!("was called for item {}", item.unwrap_or(&Value::Null)));
        }
    }
    if request.action == Action::Undo {
        return None;
    }
    let before = body.and_then(|body| body.get("before"));
    let wrong = step.reads.iter().find(|name| {
        let output = before.and_then(|before| before.get(name.as_str()));
        output.is_none_or(|output| !expected.is_possible_output(name, output))
    })?;
    let output = before.and_then(|before| before.get(wrong.as_str())).unwrap_or(&Value::Null);
    Some(format!("received {output} as the output of step {wrong}"))
}
