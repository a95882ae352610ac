//! What a task's expressions mean, by what was drawn and by what the services returned: whether a step
//! ought to run, for which items, what it may have returned, when it can have passed at the earliest.

use serde_json::{Value, json};
use steward_core::model::{
    attempt::Action,
    names::{Part, StepName, TaskId},
    step::StepState,
    task::{ProcessState, Task},
};

use super::{
    blueprint::{ItemsPlan, Output, StepPlan, WaitPlan, When, WorkPlan},
    graph::Graph,
    ledger::{Account, Ledger},
    oracle::{Oracle, is_edited, resubmits},
    plan::Millis,
};

/// What the oracle expects.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Known<T> {
    Is(T),
    /// There is no value: the step fails.
    Fails,
    /// An operator changed what it depends on, or several answers were given.
    Open,
}

impl<T> Known<T> {
    pub(super) fn is(self) -> Option<T> {
        match self {
            Self::Is(value) => Some(value),
            Self::Fails | Self::Open => None,
        }
    }
}

/// One task, seen by the oracle.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sense<'a> {
    pub(super) oracle: &'a Oracle,
    pub(super) ledger: &'a Ledger,
    pub(super) task: &'a Task,
    pub(super) graph: &'a Graph,
}

impl<'a> Sense<'a> {
    pub(super) fn of(oracle: &'a Oracle, ledger: &'a Ledger, task_id: &TaskId) -> Option<Self> {
        let (task, graph) = oracle.tasks.get(task_id).zip(oracle.graph(task_id))?;
        Some(Self { oracle, ledger, task, graph })
    }

    pub(super) fn id(&self) -> &'a TaskId {
        &self.task.task_id
    }

    pub(super) fn account(&self, part: &Part) -> Option<&'a Account> {
        self.ledger.account(self.id(), part)
    }

    fn input(&self, key: &str) -> Known<&'a Value> {
        if is_edited(self.task) {
            return Known::Open;
        }
        let input = self.oracle.input(self.task);
        input.and_then(|input| input.get(key)).map_or(Known::Fails, Known::Is)
    }

    /// Whether a step ought to run.
    pub(super) fn holds(&self, step: &StepPlan) -> Known<bool> {
        let below = |value: Known<&Value>, limit: u64| match value {
            Known::Is(value) => value.as_u64().map_or(Known::Fails, |n| Known::Is(n < limit)),
            Known::Fails => Known::Fails,
            Known::Open => Known::Open,
        };
        match &step.when {
            None => Known::Is(true),
            Some(When::Always(holds)) => Known::Is(*holds),
            Some(When::AmountBelow(limit)) => below(self.input("amount"), *limit),
            Some(When::RollBelow(step, limit)) => below(self.returned(step, "roll"), *limit),
            Some(When::NotBoolean) => Known::Fails,
        }
    }

    /// What a step that is one call returned under a key.
    fn returned(&self, step: &StepName, key: &str) -> Known<&'a Value> {
        let part = Part::from(step.clone());
        let plan = self.graph.step(step);
        let is_call = plan
            .is_some_and(|plan| plan.each.is_none() && matches!(plan.work, WorkPlan::Call { .. }));
        // Null, a list, what was given by hand or a task's result: they have no such key.
        if !is_call || self.is_by_hand(&part) || self.oracle.is_skipped(self.id(), step) {
            return Known::Fails;
        }
        let values: Vec<_> = self.outputs(&part).into_iter().map(|value| value.get(key)).collect();
        match values.as_slice() {
            [] => Known::Open,
            [None] => Known::Fails,
            [Some(first), rest @ ..] if rest.iter().all(|other| *other == Some(*first)) => {
                Known::Is(first)
            }
            _ => Known::Open,
        }
    }

    /// What somebody returned for a part that is a call.
    fn outputs(&self, part: &Part) -> Vec<&'a Value> {
        let Some(account) = self.account(part) else { return Vec::new() };
        match self.graph.step(&part.step).map(|step| &step.work) {
            Some(WorkPlan::Call { callback: Some(_), .. }) => account.said.iter().collect(),
            Some(WorkPlan::Call { .. } | WorkPlan::Wait(_) | WorkPlan::Child(_)) | None => {
                account.returned().collect()
            }
        }
    }

    /// The items of a step; none of a step that is done once.
    pub(super) fn items(&self, step: &StepPlan) -> Known<Option<Vec<Value>>> {
        let Some(each) = &step.each else { return Known::Is(None) };
        let list = match &each.items {
            ItemsPlan::Literal(items) => {
                return Known::Is(Some(items.iter().map(|n| json!(n)).collect()));
            }
            ItemsPlan::Input => self.input("items"),
            ItemsPlan::Output(step) => self.returned(step, "items"),
            ItemsPlan::NotAList => Known::Fails,
        };
        match list {
            Known::Is(list) => {
                list.as_array().map_or(Known::Fails, |list| Known::Is(Some(list.clone())))
            }
            Known::Fails => Known::Fails,
            Known::Open => Known::Open,
        }
    }

    /// The parts of a step that ought to run; those on record if that cannot be told.
    pub(super) fn parts(&self, name: &StepName, step: &StepPlan) -> Vec<Part> {
        let part = |item| Part { step: name.clone(), item };
        let count = match self.items(step) {
            Known::Is(None) => return vec![part(None)],
            Known::Is(Some(items)) => u32::try_from(items.len()).unwrap_or(u32::MAX),
            Known::Fails => 0,
            Known::Open => {
                let record = self.task.steps.get(name);
                record.and_then(|record| record.items.as_ref()).map_or(0, |items| items.count)
            }
        };
        (0..count).map(|place| part(Some(place))).collect()
    }

    /// Whether an operator settled a part, or the whole step.
    pub(super) fn is_by_hand(&self, part: &Part) -> bool {
        let whole = Part::from(part.step.clone());
        [part, &whole].iter().any(|part| self.oracle.is_by_hand(self.id(), part, Action::Do))
    }

    /// Whether expressions of a step have no value, of itself or of its undo.
    pub(super) fn may_fail(&self, part: &Part, action: Action) -> bool {
        let Some(step) = self.graph.step(&part.step) else { return false };
        if action == Action::Undo {
            let completed = self.task.progress(part, Action::Do);
            let completed =
                completed.is_some_and(|run| matches!(run.state, StepState::Completed { .. }));
            return !completed && step.undo.as_ref().is_some_and(|undo| undo.reads_own);
        }
        let fails = self.holds(step) == Known::Fails || self.items(step) == Known::Fails;
        fails || matches!(step.work, WorkPlan::Wait(WaitPlan::Broken)) || is_edited(self.task)
    }

    /// Whether `value` may be what a step returned.
    pub(super) fn may_return(&self, name: &StepName, value: &Value) -> bool {
        let Some(step) = self.graph.step(name) else { return false };
        let whole = Part::from(name.clone());
        if self.oracle.is_skipped(self.id(), name)
            || self.oracle.is_by_hand(self.id(), &whole, Action::Do)
        {
            return value.is_null() || *value == Oracle::by_hand();
        }
        if step.each.is_none() {
            return self.part_may_return(&whole, step, value);
        }
        let parts = self.parts(name, step);
        let Some(values) = value.as_array().filter(|values| values.len() == parts.len()) else {
            return false;
        };
        let mut pairs = parts.iter().zip(values);
        pairs.all(|(part, value)| self.part_may_return(part, step, value))
    }

    /// Whether `value` may be what a part returned.
    pub(super) fn part_may_return(&self, part: &Part, step: &StepPlan, value: &Value) -> bool {
        if self.is_by_hand(part) {
            return value.is_null() || *value == Oracle::by_hand();
        }
        match step.work {
            WorkPlan::Call { .. } => self.outputs(part).contains(&value),
            WorkPlan::Wait(_) => value.is_null(),
            WorkPlan::Child(_) => self.oracle.children(self.id(), part).any(|child| {
                Self::of(self.oracle, self.ledger, &child.task_id)
                    .is_some_and(|child| child.may_result_in(value))
            }),
        }
    }

    /// Whether `value` may be what the task returned.
    pub(super) fn may_result_in(&self, value: &Value) -> bool {
        let Output::Of(steps) = &self.graph.blueprint.output else { return value.is_null() };
        let amount = match self.input("amount") {
            Known::Is(amount) => value.get("amount") == Some(amount),
            Known::Fails => false,
            Known::Open => true,
        };
        let outputs = value.get("steps").and_then(Value::as_object);
        let same = |outputs: &serde_json::Map<String, Value>| {
            outputs.len() == steps.len()
                && steps.iter().all(|step| {
                    let output = outputs.get(step.as_str());
                    output.is_some_and(|output| self.may_return(step, output))
                })
        };
        amount && outputs.is_some_and(same)
    }

    /// When a step can have passed at the earliest, however clocks differ.
    pub(super) fn passes_at(&self, name: &StepName) -> Millis {
        // An operator settles a step whenever it pleases them.
        if self.is_by_hand(&name.clone().into()) {
            return self.oracle.created_at(self.id());
        }
        let base = self.begins_at(name);
        let Some(step) = self.graph.step(name) else { return base };
        if self.oracle.is_skipped(self.id(), name) || resubmits(self.task) > 0 {
            return base;
        }
        match &step.work {
            WorkPlan::Call { .. } => {
                let parts = self.ledger.of_step(self.id(), name);
                let effects = parts
                    .filter(|(part, _)| !self.is_by_hand(part))
                    .flat_map(|(_, account)| &account.effects);
                effects.map(|effect| effect.at).fold(base, Millis::max)
            }
            WorkPlan::Wait(wait) => {
                let skew = 2 * self.oracle.skew.as_millis() as Millis;
                let until = match *wait {
                    WaitPlan::For(time) => base + time,
                    WaitPlan::Until(time) => time,
                    WaitPlan::Input => {
                        let text = self.input("wait").is().and_then(Value::as_str);
                        let time = text.and_then(|text| text.strip_suffix("ms")?.parse().ok());
                        base + time.unwrap_or(0)
                    }
                    WaitPlan::Broken => 0,
                };
                base.max(until.saturating_sub(skew))
            }
            WorkPlan::Child(_) => base,
        }
    }

    /// When a step can have begun at the earliest.
    pub(super) fn begins_at(&self, name: &StepName) -> Millis {
        let before = self.graph.directly_before(name).iter().map(|name| self.passes_at(name));
        before.fold(self.oracle.created_at(self.id()), Millis::max)
    }

    /// Whether something that the part did should be undone, and is not.
    pub(super) fn is_left(&self, part: &Part) -> bool {
        if !self.graph.has_undo(&part.step) || self.oracle.is_by_hand(self.id(), part, Action::Undo)
        {
            return false;
        }
        if !matches!(self.graph.step(&part.step).map(|step| &step.work), Some(WorkPlan::Child(_))) {
            return self.account(part).is_some_and(Account::stands);
        }
        self.oracle.children(self.id(), part).any(|child| {
            let sense = Self::of(self.oracle, self.ledger, &child.task_id);
            child.process_state != ProcessState::Undone
                && sense
                    .is_some_and(|sense| sense.all_parts().iter().any(|part| sense.is_left(part)))
        })
    }

    /// Everything that was called, or ran a task.
    pub(super) fn all_parts(&self) -> Vec<Part> {
        let called = self.ledger.of_task(self.id()).map(|(part, _)| part.clone());
        let ran = self.oracle.children_of(self.id()).map(|(part, _)| part.clone());
        let mut parts: Vec<_> = called.chain(ran).collect();
        parts.sort();
        parts.dedup();
        parts
    }
}
