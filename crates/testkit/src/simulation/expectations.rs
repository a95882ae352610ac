//! What the oracle expects of a task, computed from the blueprint and the services' answers: whether a step must run,
//! for which items, which outputs are possible, and the earliest time at which it can have passed.

use serde_json::{Value, json};
use steward_core::model::{
    attempt::Action,
    items::ItemRecords,
    names::{Part, StepName, TaskId},
    step::{StepRecord, StepState},
    task::{ProcessState, Task},
};
use steward_test_world::ledger::{EffectLedger, LedgerAccount};

use super::{
    blueprint::{ItemsPlan, OutputPlan, StepPlan, WaitPlan, WhenPlan, WorkPlan},
    oracle::Oracle,
    payload_values::is_same,
    plan::operator_output,
    task_record::{has_edited_input, resubmit_count},
    virtual_time::Millis,
    workflow_model::WorkflowModel,
};

/// Parts of the failure reasons that come from outside the scheduler: services, callbacks, timeouts, child tasks.
pub(super) const FROM_OUTSIDE: [&str; 27] = [
    // The body says that the call failed.
    "200 OK",
    "408",
    "409",
    "422",
    "429",
    "301",
    "302",
    "303",
    "307",
    "308",
    "503",
    "504",
    "connection",
    "the call took longer than",
    "the call timed out",
    "the request waited in the agent's queue until complete-by",
    "the call that probed the service did not end in time",
    "the function's time was up",
    "no time is left for another call",
    "the callback reported a failure",
    "no reply by complete-by",
    "its child task ",
    "the task is being undone, so the callback",
    "breaker",
    "rate limit",
    "outcome unknown",
    "the bucket of payloads cannot be used",
];

/// An expected value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Expected<T> {
    Value(T),
    /// The expression has no value: the step fails.
    NoValue,
    /// The oracle cannot determine the value: an operator changed its inputs, or there were several answers.
    Undetermined,
}

impl<T> Expected<T> {
    pub(super) fn value(self) -> Option<T> {
        match self {
            Self::Value(value) => Some(value),
            Self::NoValue | Self::Undetermined => None,
        }
    }
}

/// The oracle's expectations of one task.
#[derive(Debug, Clone, Copy)]
pub(super) struct TaskExpectations<'a> {
    pub(super) oracle: &'a Oracle,
    pub(super) ledger: &'a EffectLedger,
    pub(super) task: &'a Task,
    pub(super) model: &'a WorkflowModel,
}

impl<'a> TaskExpectations<'a> {
    pub(super) fn of(
        oracle: &'a Oracle,
        ledger: &'a EffectLedger,
        task_id: &TaskId,
    ) -> Option<Self> {
        let (task, model) = oracle.tasks.get(task_id).zip(oracle.model(task_id))?;
        Some(Self { oracle, ledger, task, model })
    }

    pub(super) fn id(&self) -> &'a TaskId {
        &self.task.task_id
    }

    pub(super) fn account(&self, part: &Part) -> Option<&'a LedgerAccount> {
        self.ledger.account(self.id(), part)
    }

    pub(super) fn input(&self, key: &str) -> Expected<&'a Value> {
        if has_edited_input(self.task) {
            return Expected::Undetermined;
        }
        let input = self.oracle.input(self.task);
        input.and_then(|input| input.get(key)).map_or(Expected::NoValue, Expected::Value)
    }

    /// Whether a step must run, by its `when`.
    pub(super) fn should_run(&self, step: &StepPlan) -> Expected<bool> {
        let below = |value: Expected<&Value>, limit: u64| match value {
            Expected::Value(value) => {
                value.as_u64().map_or(Expected::NoValue, |n| Expected::Value(n < limit))
            }
            Expected::NoValue => Expected::NoValue,
            Expected::Undetermined => Expected::Undetermined,
        };
        match &step.when {
            None => Expected::Value(true),
            Some(WhenPlan::Always(should_run)) => Expected::Value(*should_run),
            Some(WhenPlan::AmountBelow(limit)) => below(self.input("amount"), *limit),
            Some(WhenPlan::RollBelow(step, limit)) => below(self.returned(step, "roll"), *limit),
            Some(WhenPlan::NotBoolean) => Expected::NoValue,
        }
    }

    /// A field of the output of a step that is a single call.
    fn returned(&self, step: &StepName, key: &str) -> Expected<&'a Value> {
        let part = Part::from(step.clone());
        let plan = self.model.step(step);
        let is_call = plan
            .is_some_and(|plan| plan.each.is_none() && matches!(plan.work, WorkPlan::Call { .. }));
        // The result of a child task may be the output of one of its steps.
        let mut children = self.oracle.child_tasks_of_part(self.id(), &part);
        let returns_an_output = |id| {
            let child = Self::of(self.oracle, self.ledger, id);
            child.is_some_and(|child| matches!(child.model.blueprint.output, OutputPlan::One(_)))
        };
        if children.any(|child| returns_an_output(&child.task_id)) {
            return Expected::Undetermined;
        }
        // Null, a list, an operator's output and other results of child tasks have no such field.
        if !is_call
            || self.is_decided_by_operator(&part)
            || self.oracle.was_skipped(self.id(), step)
        {
            return Expected::NoValue;
        }
        let values: Vec<_> = self.outputs(&part).into_iter().map(|value| value.get(key)).collect();
        match values.as_slice() {
            [] => Expected::Undetermined,
            [None, rest @ ..] if rest.iter().all(Option::is_none) => Expected::NoValue,
            [Some(first), rest @ ..] if rest.iter().all(|other| *other == Some(*first)) => {
                Expected::Value(first)
            }
            _ => Expected::Undetermined,
        }
    }

    /// The possible outputs of a part that is a call: of its service, or of its callback.
    fn outputs(&self, part: &Part) -> Vec<&'a Value> {
        let Some(account) = self.account(part) else { return Vec::new() };
        match self.model.step(&part.step).map(|step| &step.work) {
            Some(WorkPlan::Call { callback: Some(_), .. }) => {
                account.callback_outputs.iter().collect()
            }
            Some(
                WorkPlan::Call { .. } | WorkPlan::Wait(_) | WorkPlan::Event(_) | WorkPlan::Child(_),
            )
            | None => account.returned().collect(),
        }
    }

    /// The items of a step; `None` for a step without `for_each`.
    pub(super) fn items(&self, step: &StepPlan) -> Expected<Option<Vec<Value>>> {
        let Some(each) = &step.each else { return Expected::Value(None) };
        let list = match &each.items {
            ItemsPlan::Literal(items) => {
                return Expected::Value(Some(items.iter().map(|n| json!(n)).collect()));
            }
            ItemsPlan::Input => self.input("items"),
            ItemsPlan::Output(step) => self.returned(step, "items"),
            ItemsPlan::NotAList => Expected::NoValue,
            // What a round gets is checked with its call.
            ItemsPlan::Rounds(count) => {
                return Expected::Value(Some(vec![Value::Null; *count as usize]));
            }
        };
        match list {
            Expected::Value(list) => list
                .as_array()
                .map_or(Expected::NoValue, |list| Expected::Value(Some(list.clone()))),
            Expected::NoValue => Expected::NoValue,
            Expected::Undetermined => Expected::Undetermined,
        }
    }

    /// The parts of a step that must run; the recorded ones if that cannot be determined.
    pub(super) fn parts(&self, name: &StepName, step: &StepPlan) -> Vec<Part> {
        let part = |item| Part { step: name.clone(), item };
        let items = self.task.steps.get(name).and_then(|record| record.items.as_ref());
        // A round that was skipped, or that the task went on without, is the last one.
        let skips = |items: &&ItemRecords<StepRecord>| {
            items.iter().any(|item| matches!(item.forward.state, StepState::Skipped { .. }))
        };
        if let Some(items) = items.filter(|items| step.rounds().is_some() && skips(items)) {
            return (0..items.count()).map(|index| part(Some(index))).collect();
        }
        let count = match self.items(step) {
            Expected::Value(None) => return vec![part(None)],
            Expected::Value(Some(items)) => u32::try_from(items.len()).unwrap_or(u32::MAX),
            Expected::NoValue => 0,
            Expected::Undetermined => items.map_or(0, ItemRecords::count),
        };
        (0..count).map(|index| part(Some(index))).collect()
    }

    /// Whether an operator skipped or completed a part, or the whole step.
    pub(super) fn is_decided_by_operator(&self, part: &Part) -> bool {
        let whole = Part::from(part.step.clone());
        [part, &whole]
            .iter()
            .any(|part| self.oracle.is_decided_by_operator(self.id(), part, Action::Do))
    }

    /// Whether an expression of a step, or of its undo, may have no value.
    pub(super) fn may_fail(&self, part: &Part, action: Action) -> bool {
        let Some(step) = self.model.step(&part.step) else { return false };
        if action == Action::Undo {
            let completed = self.task.progress(part, Action::Do);
            let completed =
                completed.is_some_and(|run| matches!(run.state, StepState::Completed { .. }));
            let reads_missing = !completed && step.undo.as_ref().is_some_and(|undo| undo.reads_own);
            let reads_foreign = step.undo.as_ref().is_some_and(|undo| undo.reads_own)
                && self.has_foreign_output(&part.step);
            // An operator completed the step before it chose its agent.
            return reads_missing
                || reads_foreign
                || self.chosen_agent(&step.work) == Expected::NoValue;
        }
        let fails =
            self.should_run(step) == Expected::NoValue || self.items(step) == Expected::NoValue;
        fails
            || self.chosen_agent(&step.work) == Expected::NoValue
            || matches!(step.work, WorkPlan::Wait(WaitPlan::Broken))
            || self.has_no_key(part)
            || self.has_unusable_document(part)
            || has_edited_input(self.task)
    }

    /// Whether `value` is a possible output of a step.
    pub(super) fn is_possible_output(&self, name: &StepName, value: &Value) -> bool {
        let Some(step) = self.model.step(name) else { return false };
        let whole = Part::from(name.clone());
        if self.oracle.was_skipped(self.id(), name)
            || self.oracle.is_decided_by_operator(self.id(), &whole, Action::Do)
        {
            return value.is_null() || *value == operator_output();
        }
        if step.each.is_none() {
            return self.is_possible_part_output(&whole, step, value);
        }
        let parts = self.parts(name, step);
        if step.rounds().is_some() {
            let last = parts.last();
            return last.is_some_and(|last| self.is_possible_part_output(last, step, value));
        }
        let Some(values) = value.as_array().filter(|values| values.len() == parts.len()) else {
            return false;
        };
        let mut pairs = parts.iter().zip(values);
        pairs.all(|(part, value)| self.is_possible_part_output(part, step, value))
    }

    /// Whether `value` is a possible output of a part.
    pub(super) fn is_possible_part_output(
        &self,
        part: &Part,
        step: &StepPlan,
        value: &Value,
    ) -> bool {
        if self.is_decided_by_operator(part) {
            return value.is_null() || *value == operator_output();
        }
        match step.work {
            WorkPlan::Call { .. } => self.outputs(part).iter().any(|output| is_same(output, value)),
            WorkPlan::Wait(_) => value.is_null(),
            WorkPlan::Event(wait) => self.is_possible_event(part, wait, value),
            WorkPlan::Child(_) => self.oracle.child_tasks_of_part(self.id(), part).any(|child| {
                Self::of(self.oracle, self.ledger, &child.task_id)
                    .is_some_and(|child| child.is_possible_result(value))
            }),
        }
    }

    /// Whether `value` is a possible result of the task.
    pub(super) fn is_possible_result(&self, value: &Value) -> bool {
        let steps = match &self.model.blueprint.output {
            OutputPlan::Of(steps) => steps,
            OutputPlan::One(step) => return self.is_possible_output(step, value),
            OutputPlan::Nothing | OutputPlan::Broken => return value.is_null(),
        };
        let amount = match self.input("amount") {
            Expected::Value(amount) => value.get("amount") == Some(amount),
            Expected::NoValue => false,
            Expected::Undetermined => true,
        };
        let outputs = value.get("steps").and_then(Value::as_object);
        let same = |outputs: &serde_json::Map<String, Value>| {
            outputs.len() == steps.len()
                && steps.iter().all(|step| {
                    let output = outputs.get(step.as_str());
                    output.is_some_and(|output| self.is_possible_output(step, output))
                })
        };
        amount && outputs.is_some_and(same)
    }

    /// The earliest time at which a step can have passed, for any clock skew.
    pub(super) fn earliest_completion(&self, name: &StepName) -> Millis {
        // An operator may skip or complete a step at any time.
        if self.is_decided_by_operator(&name.clone().into()) {
            return self.oracle.created_at(self.id());
        }
        let base = self.earliest_start(name);
        let Some(step) = self.model.step(name) else { return base };
        if self.oracle.was_skipped(self.id(), name) || resubmit_count(self.task) > 0 {
            return base;
        }
        match &step.work {
            WorkPlan::Call { .. } => {
                let parts = self.ledger.step_accounts(self.id(), name);
                let effects = parts
                    .filter(|(part, _)| !self.is_decided_by_operator(part))
                    .flat_map(|(_, account)| &account.effects);
                effects.map(|effect| effect.at).fold(base, Millis::max)
            }
            WorkPlan::Wait(wait) => {
                let skew = 2 * self.oracle.clock_skew.as_millis() as Millis;
                let until = match *wait {
                    WaitPlan::For(time) => base + time,
                    WaitPlan::Until(time) => time,
                    WaitPlan::Input => {
                        let text = self.input("wait").value().and_then(Value::as_str);
                        let time = text.and_then(|text| text.strip_suffix("ms")?.parse().ok());
                        base + time.unwrap_or(0)
                    }
                    WaitPlan::Broken => 0,
                };
                base.max(until.saturating_sub(skew))
            }
            WorkPlan::Event(_) | WorkPlan::Child(_) => base,
        }
    }

    /// The earliest time at which a step can have begun.
    pub(super) fn earliest_start(&self, name: &StepName) -> Millis {
        let before =
            self.model.directly_before(name).iter().map(|name| self.earliest_completion(name));
        before.fold(self.oracle.created_at(self.id()), Millis::max)
    }

    /// Whether a part has an effect that must be undone, and is not undone yet.
    pub(super) fn needs_undo(&self, part: &Part) -> bool {
        if !self.model.has_undo(&part.step)
            || self.oracle.is_decided_by_operator(self.id(), part, Action::Undo)
        {
            return false;
        }
        if !matches!(self.model.step(&part.step).map(|step| &step.work), Some(WorkPlan::Child(_))) {
            return self.account(part).is_some_and(LedgerAccount::has_remaining_effect);
        }
        self.oracle.child_tasks_of_part(self.id(), part).any(|child| {
            let expected = Self::of(self.oracle, self.ledger, &child.task_id);
            child.process_state != ProcessState::Undone
                && expected.is_some_and(|expected| {
                    expected.called_parts().iter().any(|part| expected.needs_undo(part))
                })
        })
    }

    /// All parts that were called or have a child task.
    pub(super) fn called_parts(&self) -> Vec<Part> {
        let check_call = self.ledger.task_accounts(self.id()).map(|(part, _)| part.clone());
        let ran = self.oracle.child_tasks(self.id()).map(|(part, _)| part.clone());
        let mut parts: Vec<_> = check_call.chain(ran).collect();
        parts.sort();
        parts.dedup();
        parts
    }
}
