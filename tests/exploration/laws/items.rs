//! The laws of `for_each`: a step goes item by item, and is done when all of them are.

use serde_json::Value;
use steward_core::model::{
    attempt::Action,
    document::DocumentKey,
    json_text::JsonText,
    messages::StepRequest,
    names::{Part, StepName},
    step::{StepRecord, StepState},
    task::{ProcessState, Task},
};

use super::Change;
use crate::exploration::{
    states::{has_passed, is_completed, is_failed},
    world::World,
};

impl Change<'_> {
    /// How the items of each step stand.
    pub(super) fn of_items(&self, after: &Task, broken: &mut Vec<String>) {
        let goes_on = after.process_state == ProcessState::Processing && after.paused_at.is_none();
        for (name, record) in &after.steps {
            let Some(items) = &record.items else { continue };
            let mut law = |text: &str, holds: bool| {
                if !holds {
                    broken.push(format!("{name}: {text}"));
                }
            };
            let at_once = self.setting.workflow.steps[name].for_each.as_ref().unwrap().at_once;
            for action in [Action::Do, Action::Undo] {
                let open = items.begun.iter().filter_map(|item| item.progress(action));
                let open = open.filter(|way| !has_passed(way) && !is_failed(way)).count();
                law("no more at once than may be", open <= at_once as usize);
            }
            let passed = items.begun.iter().filter(|item| has_passed(&item.run)).count();
            let have_passed = passed == items.count as usize;
            law("done only when all items are", !is_completed(&record.run) || have_passed);
            let is_each = record.run.state == StepState::Each;
            law("done as soon as all items are", !goes_on || !have_passed || !is_each);
            let open = items.begun.iter().filter(|item| !has_passed(&item.run)).count();
            let full = open >= at_once as usize || items.begun.len() == items.count as usize;
            let in_time = self.after.now < after.complete_by;
            law("as many at once as may be", !goes_on || !in_time || !is_each || full);
            let list = self.after.items(record);
            let count = list.map_or(0, Vec::len);
            let none = self.setting.none == Some(name.as_str());
            law(
                "as many items as the list has",
                items.count as usize == if none { 0 } else { count },
            );
            law("a step with items has no undo of its own", record.undo.is_none());
        }
    }

    /// A request is about its own item, done and undone; and a step that reads the items' outputs
    /// reads them in the order of the items.
    pub(super) fn of_what_items_say(&self, after: &Task, broken: &mut Vec<String>) {
        for StepRequest { step, body, .. } in self.requests() {
            let body = body.as_ref().map(JsonText::value);
            let said = |key: &str| body.as_ref().and_then(|body| body.get(key));
            let record = &after.steps[&step.step];
            if let (Some(place), Some(item)) = (step.item, said("item")) {
                let list = self.after.items(&record.items.as_ref().unwrap().begun[place as usize]);
                if list.and_then(|list| list.get(place as usize)) != Some(item) {
                    broken.push(format!("{step}: the request is about its item, not {item}"));
                }
            }
            if let Some(read) = said("all")
                && *read != outputs(self.after, after, &"g".parse().unwrap())
            {
                broken.push(format!("{step}: outputs in the order of the items, not {read}"));
            }
        }
    }
}

/// What the items of `step` returned.
fn outputs(world: &World, task: &Task, step: &StepName) -> Value {
    let items = &task.steps[step].items.as_ref().unwrap().begun;
    let output = |(place, item): (u32, &StepRecord)| {
        let part = Part { step: step.clone(), item: Some(place) };
        let output = item.run.output(&part, Action::Do);
        output.and_then(|key| world.documents.get(&key)).cloned().unwrap_or_default()
    };
    (0..).zip(items).map(output).collect()
}

impl World {
    /// The list that a step or an item of it goes by: that of the input which doing it reads.
    pub(super) fn items(&self, record: &StepRecord) -> Option<&Vec<Value>> {
        let input = record.run.input.clone().map_or(DocumentKey::Submission, DocumentKey::Input);
        self.documents.get(&input)?.get("input")?.get("list")?.as_array()
    }
}
