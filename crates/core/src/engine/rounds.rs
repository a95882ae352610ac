//! The rounds of a step with `repeat`: items of a list that grows by one whenever its last item has passed, until the
//! condition of the step holds.

use std::borrow::Cow;

use serde_json::Value;

use crate::{
    definition::repeat::Repeat,
    engine::{
        task_change::TaskChange,
        values::{ValueError, ValueSources, json_type_name},
    },
    limits,
    model::{
        attempt::Action,
        command::CommandId,
        names::{Part, StepName},
        step::{StepRecord, StepState},
    },
};

/// Adds a round to a step whose rounds have all passed, unless its condition holds. A round that was skipped, or that the task
/// went on without, is the last one.
pub(crate) fn add_round(change: &mut TaskChange<'_>, step: &StepName, repeat: &Repeat) {
    let Some(ended) = last_round_if_completed(change, step) else { return };
    let is_over = change.sources().is_over(step, repeat, ended);
    let record = change.task.steps.get_mut(step);
    let Some(items) = record.and_then(|record| record.items.as_mut()) else { return };
    match is_over {
        Ok(true) | Err(ValueError::NotLoaded) => {}
        // An operator has resubmitted the part that says that there are too few rounds.
        Ok(false) | Err(ValueError::Invalid(_)) if items.count() >= limits::ITEMS_MAX => {
            change.fail_task(&format!("step {step}: no room for another round"));
        }
        Ok(false) => items.grow(),
        Err(ValueError::Invalid(reason)) => {
            let next = Part { step: step.clone(), item: Some(items.count()) };
            items.grow();
            items.push(StepRecord::new(StepState::Failed { attempt: None }));
            change.unrenderable.push((next, Action::Do, reason));
        }
    }
}

fn last_round_if_completed(change: &TaskChange<'_>, step: &StepName) -> Option<u32> {
    let record = change.task.steps.get(step)?;
    let items = record.items.as_ref().filter(|items| items.started() == items.count())?;
    let (last, record) =
        items.spans().last().filter(|_| record.forward.state == StepState::RunningItems)?;
    let completed = matches!(record.forward.state, StepState::Completed { .. });
    completed.then(|| last.end.saturating_sub(1))
}

impl<'s> ValueSources<'s> {
    /// Whether no round follows the one that has ended.
    ///
    /// # Errors
    /// The condition has no value, or it is false and there may be no further round.
    fn is_over(self, step: &StepName, repeat: &Repeat, ended: u32) -> Result<bool, ValueError> {
        let part = Part { step: step.clone(), item: Some(ended) };
        let edit = self.task.record(&part).and_then(|record| record.edit(Action::Do));
        let mut values = self.values(repeat.until.required_values(), edit, None)?;
        values.item = Some(self.output_of_round(step, ended)?.into_owned());
        values.item_index = part.item;
        let is_over =
            match repeat.until.render(values.scope()).map_err(|error| error.to_string())? {
                Value::Bool(is_over) => is_over,
                other @ (Value::Null
                | Value::Number(_)
                | Value::String(_)
                | Value::Array(_)
                | Value::Object(_)) => {
                    let found = json_type_name(&other);
                    return Err(
                        format!("`repeat.until` evaluates to {found}, not to a boolean").into()
                    );
                }
            };
        match !is_over && ended + 1 >= repeat.at_most {
            true => Err(format!("`repeat.until` is not true after {} rounds", ended + 1).into()),
            false => Ok(is_over),
        }
    }

    /// The `item` of a round: the output of the one before, or what the definition gives for the first.
    pub(super) fn item_of_round(
        self,
        step: &StepName,
        repeat: &Repeat,
        round: u32,
        edit: Option<&CommandId>,
    ) -> Result<Value, ValueError> {
        if let Some(before) = round.checked_sub(1) {
            return self.output_of_round(step, before).map(Cow::into_owned);
        }
        let Some(first) = &repeat.first else { return Ok(Value::Null) };
        let values = self.values(first.required_values(), edit, None)?;
        first.render(values.scope()).map_err(|error| error.to_string().into())
    }

    /// The output of a round that has passed.
    pub(super) fn output_of_round(
        self,
        step: &StepName,
        round: u32,
    ) -> Result<Cow<'s, Value>, ValueError> {
        let part = Part { step: step.clone(), item: Some(round) };
        let output = self.task.record(&part).and_then(|record| self.part_output(&part, record));
        output.unwrap_or(Ok(Cow::Owned(Value::Null)))
    }
}

#[cfg(test)]
mod tests;
