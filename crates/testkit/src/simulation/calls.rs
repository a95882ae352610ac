//! What the oracle holds against a call of a service: that it comes too late, twice, out of order, for
//! another item, or for a step that ought not to run.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::Value;
use steward_core::model::{
    attempt::Action,
    json_text::JsonText,
    messages::StepRequest,
    names::{Part, StepName},
    step::StepState,
    task::ProcessState,
};

use super::{
    blueprint::{StepPlan, WorkPlan},
    ledger::{Account, Ledger},
    oracle::{Oracle, describe, resubmits},
    plan::Millis,
    sense::{Known, Sense},
};

impl Oracle {
    /// An agent is about to call its service.
    pub(super) fn called(&mut self, request: &StepRequest, ledger: &Ledger, now: Timestamp) {
        let StepRequest { task_id, step: part, action, attempt, complete_by, .. } = request;
        let of = describe(task_id, part, *action);
        let Some(sense) = Sense::of(self, ledger, task_id) else {
            return self.find(format!("{of} was called, and there is no such task"));
        };
        let mut found = Vec::new();
        if now > *complete_by + self.skew {
            found.push(format!("attempt {attempt} was called after its complete-by"));
        }
        if ledger.is_borrowed(request) {
            found.push(format!("was called under another's key, {}", request.idempotency_key));
        }
        found.extend(self.called_beside(request, ledger));
        match sense.graph.step(&part.step) {
            None => found.push("there is no such step".to_owned()),
            Some(step) => {
                found.extend(self.crowded(request, step, ledger));
                found.extend(body(request, step, sense));
            }
        }
        if *action == Action::Undo {
            found.extend(undo_called(&part.step, sense));
        } else if !request.idempotent {
            // What cannot be repeated is called once, unless an operator asks for it again.
            let calls = sense.account(part).map_or(0, |account| account.calls) as usize;
            if calls > resubmits(sense.task) {
                found.push(format!("is not idempotent, and was called {} times", calls + 1));
            }
        }
        self.findings.extend(found.into_iter().map(|finding| format!("{of}: {finding}")));
    }

    /// Whether agents are still at work on an attempt, as far as anybody can know.
    fn is_at_work(&self, request: &StepRequest, part: &Part, call: &super::ledger::Call) -> bool {
        let key = (request.task_id.clone(), part.clone(), call.action, call.attempt);
        let is_said = call.action == Action::Do
            && self.said.contains(&(request.task_id.clone(), part.clone()));
        !self.answered.contains(&key) && !is_said
    }

    fn called_beside(&self, request: &StepRequest, ledger: &Ledger) -> Option<String> {
        let StepRequest { task_id, step: part, action, attempt, .. } = request;
        let own = super::ledger::Call { action: *action, attempt: *attempt };
        // Of what was answered, another delivery may still be at work: its effect is known.
        if !self.is_at_work(request, part, &own) {
            return None;
        }
        let live = ledger.account(task_id, part).map(|account| &account.live);
        let other = live.into_iter().flat_map(BTreeMap::values).find(|other| {
            let same = other.action == *action && other.attempt == *attempt;
            !same && self.is_at_work(request, part, other)
        })?;
        let (what, number) = (other.action.name(), other.attempt);
        Some(format!("called while its {what} attempt {number} is at work"))
    }

    /// No more items are under way than may be at once.
    fn crowded(&self, request: &StepRequest, step: &StepPlan, ledger: &Ledger) -> Option<String> {
        let StepRequest { task_id, step: part, action, .. } = request;
        let at_once = step.each.as_ref()?.at_once;
        let own = super::ledger::Call { action: *action, attempt: request.attempt };
        // Another delivery of what was answered is no news.
        if !self.is_at_work(request, part, &own) {
            return None;
        }
        let of_step = ledger.of_step(task_id, &part.step).filter(|(other, _)| *other != part);
        let busy = |(other, account): &(&Part, &Account)| {
            account
                .live
                .values()
                .any(|call| call.action == *action && self.is_at_work(request, other, call))
        };
        let called = of_step.filter(busy).map(|(other, _)| other.clone());
        let task = self.tasks.get(task_id);
        let handed_out = task.into_iter().flat_map(|task| task.actions());
        let handed_out = handed_out.filter(|(other, of, progress)| {
            let is_out = matches!(progress.state, StepState::HandedOut { .. });
            other.step == part.step && other != part && of == action && is_out
        });
        let under_way: BTreeSet<_> = called.chain(handed_out.map(|(other, ..)| other)).collect();
        let count = under_way.len() + 1;
        (count > at_once).then(|| format!("{count} items are under way; at once only {at_once}"))
    }

    /// A call is about to take effect, which it has not before.
    pub(super) fn takes_effect(&mut self, request: &StepRequest, ledger: &Ledger, now: Millis) {
        if request.action == Action::Undo {
            return;
        }
        let (task_id, part) = (&request.task_id, &request.step);
        let of = describe(task_id, part, Action::Do);
        let Some(sense) = Sense::of(self, ledger, task_id) else {
            return self.find(format!("{of} took effect, and there is no such task"));
        };
        let mut found: Vec<_> = sense.ought_not(part).into_iter().collect();
        if sense.account(part).is_some_and(|account| !account.effects.is_empty()) {
            found.push("took effect twice".to_owned());
        }
        let least = sense.begins_at(&part.step);
        if now < least {
            found.push(format!("took effect {} ms before its time", least - now));
        }
        let undone =
            |step: &StepName| ledger.of_step(task_id, step).any(|(_, account)| account.undo_called);
        let own = sense.account(part).is_some_and(|account| account.undo_called);
        let before = sense.graph.before(&part.step).into_iter().find(|step| undone(step));
        if let Some(undone) = Some(&part.step).filter(|_| own).or(before) {
            found.push(format!("took effect after the undo of {undone}"));
        }
        let is_point = sense.graph.points_of_no_return().any(|point| *point == part.step);
        if is_point && let Some((undone, _)) = sense.graph.steps().find(|(step, _)| undone(step)) {
            found.push(format!("the point of no return, took effect after the undo of {undone}"));
        }
        for missing in sense.graph.directly_before(&part.step) {
            if !has_passed(missing, sense) {
                found.push(format!("took effect before {missing}, which it comes after"));
            }
        }
        self.findings.extend(found.into_iter().map(|finding| format!("{of}: {finding}")));
    }
}

impl Sense<'_> {
    /// Why a part ought not to run, if it ought not.
    pub(super) fn ought_not(&self, part: &Part) -> Option<String> {
        let step = self.graph.step(&part.step)?;
        match self.holds(step) {
            Known::Is(false) => return Some("was to be skipped".to_owned()),
            Known::Fails => return Some("has no telling whether it is to run".to_owned()),
            Known::Is(true) | Known::Open => {}
        }
        if step.each.is_some() != part.item.is_some() {
            return Some("is not what is done at once".to_owned());
        }
        let exists = self.parts(&part.step, step).contains(part);
        (!exists).then(|| "there is no such item".to_owned())
    }
}

/// Whether a step has come to its end, by the books where there are any.
fn has_passed(name: &StepName, sense: Sense<'_>) -> bool {
    let Some(step) = sense.graph.step(name) else { return false };
    let whole = Part::from(name.clone());
    if sense.oracle.is_skipped(sense.id(), name) || sense.is_by_hand(&whole) {
        return true;
    }
    let completed = |part: &Part| {
        let progress = sense.task.progress(part, Action::Do);
        progress.is_some_and(|run| matches!(run.state, StepState::Completed { .. }))
    };
    let parts = sense.parts(name, step);
    parts.iter().all(|part| {
        sense.is_by_hand(part)
            || match &step.work {
                WorkPlan::Call { callback, .. } => sense.account(part).is_some_and(|account| {
                    let said = callback.is_none() || !account.said.is_empty();
                    !account.effects.is_empty() && said
                }),
                WorkPlan::Wait(_) => completed(part),
                WorkPlan::Child(_) => {
                    let heard = (sense.id().clone(), part.clone());
                    completed(part) && sense.oracle.heard.contains(&heard)
                }
            }
    })
}

/// What is asked must be about the part it is for, and hand on what came before.
fn body(request: &StepRequest, step: &StepPlan, sense: Sense<'_>) -> Option<String> {
    let part = &request.step;
    let said = request.body.as_ref().map(JsonText::value);
    let said = said.as_ref();
    let item = said.and_then(|body| body.get("item"));
    if step.each.is_some() || item.is_some() {
        let items = sense.items(step).is().flatten().unwrap_or_default();
        let place = part.item.map_or(usize::MAX, |place| place as usize);
        let undone = sense.account(part).filter(|_| request.action == Action::Undo);
        let done = undone.and_then(|account| account.item.as_ref());
        if done.or(items.get(place)).is_some_and(|known| Some(known) != item) {
            return Some(format!("was called for item {}", item.unwrap_or(&Value::Null)));
        }
    }
    if request.action == Action::Undo {
        return None;
    }
    let before = said.and_then(|body| body.get("before"));
    let wrong = step.reads.iter().find(|name| {
        let output = before.and_then(|before| before.get(name.as_str()));
        output.is_none_or(|output| !sense.may_return(name, output))
    })?;
    let output = before.and_then(|before| before.get(wrong.as_str())).unwrap_or(&Value::Null);
    Some(format!("was told that step {wrong} returned {output}"))
}

/// Backward only in reverse order, and never past a point of no return.
fn undo_called(step: &StepName, sense: Sense<'_>) -> Vec<String> {
    let mut found = Vec::new();
    for point in sense.graph.points_of_no_return() {
        let mut children = sense.oracle.children_of(sense.id());
        let ran = children.any(|(part, child)| {
            part.step == *point && child.process_state == ProcessState::Processed
        });
        let mut accounts = sense.ledger.of_step(sense.id(), point);
        if ran || accounts.any(|(_, account)| !account.effects.is_empty()) {
            found.push(format!("was called past the point of no return, {point}"));
        }
    }
    let parts = sense.all_parts();
    for later in sense.graph.after(step) {
        if parts.iter().any(|part| part.step == *later && sense.is_left(part)) {
            found.push(format!("was called before that of {later}, which came later"));
        }
    }
    found
}
