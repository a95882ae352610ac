//! Invariants of `for_each` and `repeat`: the number of items or rounds, what each gets, and the order of their outputs.

use serde_json::Value;
use steward_core::model::{
    attempt::Action,
    command::CommandId,
    document::DocumentKey,
    json_text::JsonText,
    messages::StepRequest,
    names::{Part, StepName},
    step::StepRecord,
    task::Task,
};

use super::CheckedTransition;
use crate::exploration::model_state::ModelState;

impl CheckedTransition<'_> {
    /// Each step has one item for each element of its list.
    pub(super) fn check_items(&self, after: &Task, violated: &mut Vec<String>) {
        for (name, record) in &after.steps {
            let Some(items) = &record.items else { continue };
            if self.workflow.definition.steps[name].repeat.is_some() {
                if items.count() > items.started() + 1 {
                    violated.push(format!("{name}: rounds are added one by one"));
                }
                continue;
            }
            let list = self.after.items(record);
            let count = list.map_or(0, |list| list.len());
            let none = self.workflow.empty_list == Some(name.as_str());
            if items.count() as usize != if none { 0 } else { count } {
                violated.push(format!("{name}: one item for each element of the list"));
            }
        }
    }

    /// The request of an item and of its undo contains the item. A step that reads the outputs of the items reads them in
    /// the order of the list.
    pub(super) fn check_item_requests(&self, after: &Task, violated: &mut Vec<String>) {
        for StepRequest { step, action, body, .. } in self.requests() {
            let body = body.as_ref().map(JsonText::value);
            let field = |key: &str| body.as_ref().and_then(|body| body.get(key));
            let record = &after.steps[&step.step];
            let outputs = |step: &StepName| outputs(self.after, after, step);
            let repeats = |step: &StepName| self.workflow.definition.steps[step].repeat.is_some();
            if let (Some(position), true) = (step.item, repeats(&step.step)) {
                let before = (position as usize).checked_sub(1);
                let before = before.map(|before| outputs(&step.step)[before].clone());
                if field("item") != Some(&before.clone().unwrap_or_default()) {
                    violated.push(format!("{step}: the request contains {before:?}"));
                }
            } else if let (Some(position), Some(item)) = (step.item, field("item")) {
                let item_record = record.items.as_ref().unwrap().get(position).unwrap();
                // An undo reads the input of its own key.
                let key = item_record.key_of_undo().filter(|_| *action == Action::Undo);
                let list = match key {
                    Some(key) => self.after.items_of_edit(key.input_edit_id.clone()),
                    None => self.after.items(item_record),
                };
                if list.as_ref().and_then(|list| list.get(position as usize)) != Some(item) {
                    violated.push(format!("{step}: the request contains its item, not {item}"));
                }
            }
            let g = "g".parse().unwrap();
            let expected = |read: &Value| match repeats(&g) {
                true => outputs(&g).as_array().and_then(|all| all.last()) == Some(read),
                false => outputs(&g) == *read,
            };
            if let Some(read) = field("all").filter(|read| !expected(read)) {
                violated.push(format!("{step}: outputs are in the order of the items, not {read}"));
            }
        }
    }
}

/// The outputs of the items of `step`.
fn outputs(model: &ModelState, task: &Task, step: &StepName) -> Value {
    let items = task.steps[step].items.as_ref().unwrap();
    let output = |(position, item): (u32, &StepRecord)| {
        let part = Part { step: step.clone(), item: Some(position) };
        let output = item.forward.output(&part, Action::Do);
        output.and_then(|key| model.document(&key)).unwrap_or_default()
    };
    (0..).zip(items.iter()).map(output).collect()
}

impl ModelState {
    /// The list of the input that a step or an item uses.
    pub(super) fn items(&self, record: &StepRecord) -> Option<Vec<Value>> {
        self.items_of_edit(record.forward.input_edit_id.clone())
    }

    fn items_of_edit(&self, edit: Option<CommandId>) -> Option<Vec<Value>> {
        let input = edit.map_or(DocumentKey::Submission, DocumentKey::Input);
        self.document(&input)?.get("input")?.get("list")?.as_array().cloned()
    }
}
