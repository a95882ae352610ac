//! Invariants of `for_each`: the number of items, and the order of their outputs.

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
            if let (Some(position), Some(item)) = (step.item, field("item")) {
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
            if let Some(read) = field("all")
                && *read != outputs(self.after, after, &"g".parse().unwrap())
            {
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
