//! Operators who edit the list of a step with `for_each`. In some worlds a task whose items failed is
//! resubmitted with a list in which items are replaced, reordered, removed or inserted. The scheduler may
//! refuse an edit. At the end of a task that is Processed each item of the final list took effect once.

use serde_json::{Value, json};
use steward_core::model::{
    command::{Command, Order},
    names::{Part, StepName},
    step::StepState,
    task::Task,
};

use super::{
    blueprint::{Blueprint, Each, ItemsPlan, StepPlan, When, WorkPlan},
    dice::Dice,
    ledger::Ledger,
    operator::did_not_run,
    oracle::Oracle,
    plan::{TaskPlan, Temper},
    sense::{Known, Sense},
};

/// The share of worlds with such operators.
const WORLDS: f64 = 0.05;

/// Whether the operators of a world edit lists; drawn from dice of their own.
pub(super) fn are_edited(seed: u64, blueprints: &mut [Blueprint]) -> bool {
    let dice = &mut Dice::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0xed17);
    let are_edited = dice.chance(WORLDS);
    if are_edited {
        blueprints.iter_mut().for_each(|blueprint| go_item_by_item(blueprint, dice));
    }
    are_edited
}

/// Lets steps go through the list of the input, and stop when an item fails.
fn go_item_by_item(blueprint: &mut Blueprint, dice: &mut Dice) {
    let read: Vec<StepName> = blueprint.steps.values().flat_map(reads_fields).cloned().collect();
    for (name, step) in &mut blueprint.steps {
        let is_call = matches!(step.work, WorkPlan::Call { callback: None, .. });
        if is_call && !read.contains(name) && dice.chance(0.7) {
            step.each =
                Some(Each { items: ItemsPlan::Input, at_once: dice.within(1..=3) as usize });
            step.recovery = Some(json!({ "attempts": 1, "then": "alert" }));
        }
    }
}

/// The steps of which it reads fields of the output, which a list does not have.
fn reads_fields(step: &StepPlan) -> impl Iterator<Item = &StepName> {
    let when = match &step.when {
        Some(When::RollBelow(other, _)) => Some(other),
        Some(When::Always(_) | When::AmountBelow(_) | When::NotBoolean) | None => None,
    };
    let items = match step.each.as_ref().map(|each| &each.items) {
        Some(ItemsPlan::Output(other)) => Some(other),
        Some(ItemsPlan::Literal(_) | ItemsPlan::Input | ItemsPlan::NotAList) | None => None,
    };
    when.into_iter().chain(items)
}

/// Services that fail often, and refuse nothing for good: what failed succeeds when it is done again.
pub(super) fn soften(temper: &mut Temper) {
    (temper.fail, temper.lie, temper.refuse) = (0.2, 0.0, 0.0);
}

/// Lists of several items, each there once.
pub(super) fn lengthen(task: &mut TaskPlan) {
    let count = 2 + task.task_id.as_str().len() as u64 % 4;
    let items: Vec<_> = (1..=count).map(|n| n * 10).collect();
    if let Some(list) = task.input.get_mut("items") {
        *list = json!(items);
    }
}

/// A resubmission with an edited list, if parts of a list failed of which the services' books say that
/// they did not run.
pub(super) fn order(
    oracle: &Oracle,
    ledger: &Ledger,
    task: &Task,
    dice: &mut Dice,
) -> Option<Order> {
    let list = oracle.final_input(task)?.get("items")?.as_array()?;
    let failed = task.actions().filter(|(.., progress)| {
        matches!(progress.state, StepState::Failed { .. } | StepState::Waiting { .. })
    });
    let failed: Vec<_> = failed.map(|(part, ..)| part).collect();
    let items =
        failed.iter().filter(|part| part.item.is_some() && did_not_run(oracle, ledger, task, part));
    let items: Vec<_> = items.collect();
    let one = dice.place(items.len()).and_then(|place| items.get(place))?;
    let step = (items.len() < failed.len()).then(|| (*one).clone());
    let items = edited(list.clone(), one.item? as usize, dice);
    Some(Order::Resubmit { step, input: Some(json!({ "items": items })), did_not_run: true })
}

/// The list with one edit; most edits replace an item that failed.
fn edited(mut list: Vec<Value>, failed: usize, dice: &mut Dice) -> Vec<Value> {
    let Some(place) = dice.place(list.len()) else { return list };
    let new = json!(dice.within(1_000..=9_999));
    let replaced = match dice.within(0..=9) {
        0 => {
            list.remove(place);
            None
        }
        1 => {
            list.insert(place, new.clone());
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
        4 => list.get_mut(place),
        _ => list.get_mut(failed),
    };
    if let Some(item) = replaced {
        *item = new;
    }
    list
}

impl Oracle {
    /// An operator's command sets out.
    pub(super) fn commanded(&mut self, command: &Command) {
        if let Order::Resubmit { input: Some(patch), .. } = &command.order {
            let of = (command.task_id.clone(), command.command_id.clone());
            self.patches.insert(of, patch.clone());
        }
    }

    /// Takes down an edit of the input that was carried out.
    pub(super) fn edited(&mut self, before: &Task, after: &Task) {
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

    /// What a task was submitted with, with all edits.
    fn final_input(&self, task: &Task) -> Option<&Value> {
        self.edited.get(&task.task_id).or_else(|| self.input(task))
    }
}

/// What is wrong with the items of a task that is Processed and whose input was edited.
pub(super) fn judge(sense: Sense<'_>) -> Option<String> {
    let list = sense.oracle.edited.get(sense.id())?.get("items")?.as_array()?;
    let mut steps = sense.graph.steps().filter(|(name, step)| is_judged(sense, name, step));
    steps.find_map(|(name, _)| judge_step(sense, name, list))
}

/// Whether a step went through the list of the input at its service.
fn is_judged(sense: Sense<'_>, name: &StepName, step: &StepPlan) -> bool {
    let of_input = step.each.as_ref().is_some_and(|each| matches!(each.items, ItemsPlan::Input));
    let runs = matches!(sense.holds(step), Known::Is(true));
    of_input
        && runs
        && matches!(step.work, WorkPlan::Call { .. })
        && !sense.oracle.is_skipped(sense.id(), name)
        && !sense.is_by_hand(&name.clone().into())
}

fn judge_step(sense: Sense<'_>, name: &StepName, list: &[Value]) -> Option<String> {
    let took_effect = |place: usize| {
        let part = Part { step: name.clone(), item: u32::try_from(place).ok() };
        let account = sense.account(&part).filter(|_| !sense.is_by_hand(&part))?;
        Some(account.effects.iter().map(|effect| &effect.item).collect::<Vec<_>>())
    };
    let count = sense.ledger.of_step(sense.id(), name).count().max(list.len());
    (0..count).find_map(|place| {
        let (effects, item) = (took_effect(place)?, list.get(place));
        let is_right = match effects.as_slice() {
            [] => true,
            [one] => one.as_ref() == item,
            _ => false,
        };
        (!is_right).then(|| {
            let items: Vec<_> = effects.into_iter().flatten().map(Value::to_string).collect();
            let (items, list) = (items.join(", "), Value::from(list.to_vec()));
            format!("Processed with the list {list}, and {name}[{place}] took effect for {items}")
        })
    })
}
