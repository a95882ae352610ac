//! Operators who edit the list of a step with `for_each`. In some runs an operator resubmits a task with failed or
//! waiting items, with a list in which items are replaced, reordered, removed or inserted. The scheduler may refuse an
//! edit.
//!
//! [`check_final`] checks that in a Processed task no item took effect twice, or for another element of the final list.
//! `final_checks` checks that each item took effect at all.

use serde_json::{Value, json};
use steward_core::model::{
    command::CommandAction,
    names::{Part, StepName},
    step::StepState,
    task::Task,
};
use steward_test_world::ledger::EffectLedger;

use super::{
    blueprint::{ItemsPlan, StepPlan, WorkPlan},
    expectations::{Expected, TaskExpectations},
    oracle::Oracle,
    random::SeededRandom,
};

/// A resubmit command with an edited list. `None` unless at least one item is failed or waiting and, according to the
/// services' ledger, had no effect.
pub(super) fn resubmit_with_edited_list(
    oracle: &Oracle,
    ledger: &EffectLedger,
    task: &Task,
    random: &mut SeededRandom,
) -> Option<CommandAction> {
    let list = oracle.final_input(task)?.get("items")?.as_array()?;
    let failed_or_waiting = task.started_actions().filter(|(.., progress)| {
        matches!(progress.state, StepState::Failed { .. } | StepState::Waiting { .. })
    });
    let failed_or_waiting: Vec<_> = failed_or_waiting.map(|(part, ..)| part).collect();
    let items = failed_or_waiting
        .iter()
        .filter(|part| part.item.is_some() && oracle.had_no_effect(ledger, task, part));
    let items: Vec<_> = items.collect();
    let one = random.index(items.len()).and_then(|index| items.get(index))?;
    // `did_not_run` must be true of every resubmitted part. So the command names one item, unless all failed or waiting
    // parts are items without effect.
    let step = (items.len() < failed_or_waiting.len()).then(|| (*one).clone());
    let items = edit_list(list.clone(), one.item? as usize, random);
    Some(CommandAction::Resubmit {
        step,
        input: Some(json!({ "items": items })),
        did_not_run: true,
    })
}

/// Makes one edit to the list. Half of the edits replace the item with the index `failed_or_waiting`.
fn edit_list(
    mut list: Vec<Value>,
    failed_or_waiting: usize,
    random: &mut SeededRandom,
) -> Vec<Value> {
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
        _ => list.get_mut(failed_or_waiting),
    };
    if let Some(item) = replaced {
        *item = new;
    }
    list
}

/// Checks a Processed task whose input was edited: no item took effect twice, or for another element of the final list.
pub(super) fn check_final(expected: TaskExpectations<'_>) -> Option<String> {
    let list = expected.oracle.edited_inputs.get(expected.id())?.get("items")?.as_array()?;
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
        && !expected.is_decided_by_operator(&name.clone().into())
}

fn check_step(expected: TaskExpectations<'_>, name: &StepName, list: &[Value]) -> Option<String> {
    // `None` for an item that was never called, or that an operator decided by hand.
    let effects_of = |index: usize| {
        let part = Part { step: name.clone(), item: u32::try_from(index).ok() };
        let account =
            expected.account(&part).filter(|_| !expected.is_decided_by_operator(&part))?;
        Some(account.effects.iter().map(|effect| &effect.item).collect::<Vec<_>>())
    };
    let count = expected.ledger.step_accounts(expected.id(), name).count().max(list.len());
    (0..count).find_map(|index| {
        let (effects, item) = (effects_of(index)?, list.get(index));
        let is_right = match effects.as_slice() {
            // `final_checks` reports an item that must take effect, and did not.
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
