//! Operators who edit the list of a step with `for_each`. In some runs an operator resubmits a task whose items failed,
//! with a list in which items are replaced, reordered, removed or inserted. The scheduler may refuse an edit. In a
//! Processed task, each item of the final list must have taken effect once.

use serde_json::{Value, json};
use steward_core::model::{
    command::{Command, CommandAction},
    names::{Part, StepName},
    step::StepState,
    task::Task,
};

use super::{
    blueprint::{Blueprint, ForEachPlan, ItemsPlan, StepPlan, WhenPlan, WorkPlan},
    expectations::{Expected, TaskExpectations},
    ledger::EffectLedger,
    operators::did_not_run,
    oracle::Oracle,
    plan::{ServiceProfile, TaskPlan},
    random::SeededRandom,
};

/// The share of runs with such operators.
const LIST_EDITS_SHARE: f64 = 0.05;

/// Draws from a separate generator whether operators edit lists, and prepares the workflows for that.
pub(super) fn draw_list_edits(seed: u64, blueprints: &mut [Blueprint]) -> bool {
    let random = &mut SeededRandom::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0xed17);
    let edits_lists = random.chance(LIST_EDITS_SHARE);
    if edits_lists {
        blueprints.iter_mut().for_each(|blueprint| use_input_list(blueprint, random));
    }
    edits_lists
}

/// Makes steps iterate over the list of the input, and stop with an alert when an item fails.
fn use_input_list(blueprint: &mut Blueprint, random: &mut SeededRandom) {
    let read: Vec<StepName> = blueprint.steps.values().flat_map(reads_fields).cloned().collect();
    for (name, step) in &mut blueprint.steps {
        let is_call = matches!(step.work, WorkPlan::Call { callback: None, .. });
        if is_call && !read.contains(name) && random.chance(0.7) {
            step.each = Some(ForEachPlan {
                items: ItemsPlan::Input,
                at_once: random.within(1..=3) as usize,
            });
            step.recovery = Some(json!({ "attempts": 1, "then": "alert" }));
        }
    }
}

/// The steps whose output fields a step reads. Their output must not become a list.
fn reads_fields(step: &StepPlan) -> impl Iterator<Item = &StepName> {
    let when = match &step.when {
        Some(WhenPlan::RollBelow(other, _)) => Some(other),
        Some(WhenPlan::Always(_) | WhenPlan::AmountBelow(_) | WhenPlan::NotBoolean) | None => None,
    };
    let items = match step.each.as_ref().map(|each| &each.items) {
        Some(ItemsPlan::Output(other)) => Some(other),
        Some(ItemsPlan::Literal(_) | ItemsPlan::Input | ItemsPlan::NotAList) | None => None,
    };
    when.into_iter().chain(items)
}

/// Makes a service fail often, but never permanently: a failed call succeeds when it is repeated.
pub(super) fn make_transient(profile: &mut ServiceProfile) {
    (profile.fail, profile.false_error, profile.refuse) = (0.2, 0.0, 0.0);
}

/// Gives a task a list of several distinct items.
pub(super) fn lengthen_list(task: &mut TaskPlan) {
    let count = 2 + task.task_id.as_str().len() as u64 % 4;
    let items: Vec<_> = (1..=count).map(|n| n * 10).collect();
    if let Some(list) = task.input.get_mut("items") {
        *list = json!(items);
    }
}

/// A resubmit command with an edited list, if items failed that had no effect according to the services' ledger.
pub(super) fn edit_order(
    oracle: &Oracle,
    ledger: &EffectLedger,
    task: &Task,
    random: &mut SeededRandom,
) -> Option<CommandAction> {
    let list = oracle.final_input(task)?.get("items")?.as_array()?;
    let failed = task.started_actions().filter(|(.., progress)| {
        matches!(progress.state, StepState::Failed { .. } | StepState::Waiting { .. })
    });
    let failed: Vec<_> = failed.map(|(part, ..)| part).collect();
    let items =
        failed.iter().filter(|part| part.item.is_some() && did_not_run(oracle, ledger, task, part));
    let items: Vec<_> = items.collect();
    let one = random.index(items.len()).and_then(|index| items.get(index))?;
    let step = (items.len() < failed.len()).then(|| (*one).clone());
    let items = edit_list(list.clone(), one.item? as usize, random);
    Some(CommandAction::Resubmit {
        step,
        input: Some(json!({ "items": items })),
        did_not_run: true,
    })
}

/// The list with one edit. Most edits replace a failed item.
fn edit_list(mut list: Vec<Value>, failed: usize, random: &mut SeededRandom) -> Vec<Value> {
    let Some(index) = random.index(list.len()) else { return list };
    let new = json!(random.within(1_000..=9_999));
    let replaced = match random.within(0..=9) {
        0 => {
            list.remove(index);
            None
        }
        1 => {
            list.insert(index, new.clone());
            None
        }
        2 => {
            list.reverse();
            None
        }
        3 => {
            list.rotate_left(1);
            None
        }
        4 => list.get_mut(index),
        _ => list.get_mut(failed),
    };
    if let Some(item) = replaced {
        *item = new;
    }
    list
}

impl Oracle {
    /// Records a command that an operator sends.
    pub(super) fn observe_command(&mut self, command: &Command) {
        if let CommandAction::Resubmit { input: Some(patch), .. } = &command.order {
            let of = (command.task_id.clone(), command.command_id.clone());
            self.patches.insert(of, patch.clone());
        }
    }

    /// Records an edit of the input that a save executed.
    pub(super) fn observe_edit(&mut self, before: &Task, after: &Task) {
        let Some(edit) = after.input.as_ref().filter(|edit| before.input.as_ref() != Some(*edit))
        else {
            return;
        };
        let id = &after.task_id;
        let Some(patch) = self.patches.get(&(id.clone(), edit.clone())) else { return };
        let Some(fields) = patch.as_object() else { return };
        let mut input = self.final_input(before).cloned().unwrap_or_default();
        if let Some(known) = input.as_object_mut() {
            known.extend(fields.clone());
        }
        self.edited.insert(id.clone(), input);
    }

    /// The input of a task with all edits.
    fn final_input(&self, task: &Task) -> Option<&Value> {
        self.edited.get(&task.task_id).or_else(|| self.input(task))
    }
}

/// Checks the items of a Processed task whose input was edited.
pub(super) fn check_final(expected: TaskExpectations<'_>) -> Option<String> {
    let list = expected.oracle.edited.get(expected.id())?.get("items")?.as_array()?;
    let mut steps = expected.model.steps().filter(|(name, step)| is_checked(expected, name, step));
    steps.find_map(|(name, _)| check_step(expected, name, list))
}

/// Whether a step called its service for each item of the input's list.
fn is_checked(expected: TaskExpectations<'_>, name: &StepName, step: &StepPlan) -> bool {
    let of_input = step.each.as_ref().is_some_and(|each| matches!(each.items, ItemsPlan::Input));
    let runs = matches!(expected.should_run(step), Expected::Value(true));
    of_input
        && runs
        && matches!(step.work, WorkPlan::Call { .. })
        && !expected.oracle.was_skipped(expected.id(), name)
        && !expected.is_settled_by_operator(&name.clone().into())
}

fn check_step(expected: TaskExpectations<'_>, name: &StepName, list: &[Value]) -> Option<String> {
    let took_effect = |index: usize| {
        let part = Part { step: name.clone(), item: u32::try_from(index).ok() };
        let account =
            expected.account(&part).filter(|_| !expected.is_settled_by_operator(&part))?;
        Some(account.effects.iter().map(|effect| &effect.item).collect::<Vec<_>>())
    };
    let count = expected.ledger.step_accounts(expected.id(), name).count().max(list.len());
    (0..count).find_map(|index| {
        let (effects, item) = (took_effect(index)?, list.get(index));
        let is_right = match effects.as_slice() {
            [] => true,
            [one] => one.as_ref() == item,
            _ => false,
        };
        (!is_right).then(|| {
            let items: Vec<_> = effects.into_iter().flatten().map(Value::to_string).collect();
            let (items, list) = (items.join(", "), Value::from(list.to_vec()));
            format!("Processed with the list {list}, but {name}[{index}] took effect for {items}")
        })
    })
}
