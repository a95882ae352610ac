//! Edits of the input of a task, with which an operator resubmits a step.

use serde_json::{Value, json};

use crate::{
    definition::step::ForEach,
    engine::{
        operator::{Operator, Refused},
        request::too_large,
        values::NoValue,
    },
    model::{
        command::{Command, CommandId},
        document::{Document, DocumentKey},
        names::StepName,
        step::{Progress, StepState},
    },
};

impl Operator<'_, '_> {
    /// Changes the input, for what was resubmitted and for what starts from now on.
    pub(super) fn edit(&mut self, command: &Command, patch: &Value) -> Result<(), Refused> {
        if let Some(reason) = too_large("edit of the input", patch) {
            return Err(reason);
        }
        // What is not at hand is asked for, and this is asked again.
        let input = match self.change.sources().input(self.change.task.input.as_ref()) {
            Ok(input) => input,
            Err(NoValue::Wanted) => return Ok(()),
            Err(NoValue::Because(reason)) => return Err(reason),
        };
        let mut input = input.clone();
        json_patch::merge(&mut input, patch);
        if let Some(reason) = too_large("edited input", &input) {
            return Err(reason);
        }
        if let Some(schema) = &self.change.plan().input {
            schema.validate(&input)?;
        }
        let (id, at) = (command.command_id.clone(), self.change.now());
        let (key, body) = (DocumentKey::Input(id.clone()), json!({ "input": input }));
        self.change.documents.push(Document::new(key, at, body));
        for (name, step) in self.change.plan().steps() {
            if let Some(each) = &step.definition.for_each {
                self.keeps_items(name, each, &id)?;
            }
        }
        let task = &mut self.change.task;
        let direction = task.direction();
        task.input = Some(id.clone());
        for step in &self.steps {
            if let Some(progress) = task.progress_mut(step, direction) {
                progress.input = Some(id.clone());
                // Another task runs for the step from now on.
                progress.child_revision = None;
            }
        }
        Ok(())
    }

    /// Refuses an edit that would change the list of a step that goes item by item, but for items that
    /// have not completed and cannot have run: the others are done, or under way, in their places.
    fn keeps_items(
        &self,
        name: &StepName,
        each: &ForEach,
        edit: &CommandId,
    ) -> Result<(), Refused> {
        let (task, sources) = (&self.change.task, self.change.sources());
        let Some(record) = task.steps.get(name) else { return Ok(()) };
        let Some(items) = &record.items else { return Ok(()) };
        let list = |edit: Option<&CommandId>| match sources.items(name, each, edit) {
            Ok(list) => Ok(Some(list)),
            // What is not at hand is asked for, and this is asked again.
            Err(NoValue::Wanted) => Ok(None),
            Err(NoValue::Because(reason)) => Err(format!("step {name}: {reason}")),
        };
        let Some(new) = list(Some(edit))? else { return Ok(()) };
        if new.len() != items.count as usize {
            return Err(format!(
                "step {name} has begun with {} items, and the edited input gives it {}: an edit may \
                 only replace items that have not run, place by place",
                items.count,
                new.len()
            ));
        }
        for ((place, item), record) in (0_u32..).zip(new.iter()).zip(&items.begun) {
            let Some(old) = list(record.run.input.as_ref())? else { return Ok(()) };
            if old.get(place as usize) == Some(item) || self.can_be_replaced(&record.run) {
                continue;
            }
            return Err(format!(
                "step {name}: item {name}[{place}] is {}{}, and the edited input has another in its \
                 place: an edit may only replace items that have not run, place by place",
                record.run.state.name(),
                if record.run.may_have_run { " and may have run" } else { "" },
            ));
        }
        Ok(())
    }

    /// Whether an item has not completed, and cannot have run.
    fn can_be_replaced(&self, run: &Progress) -> bool {
        let may_act = run.may_have_run || run.in_progress(self.change.now()).is_some();
        match run.state {
            StepState::Waiting { .. } | StepState::Failed { .. } => !may_act,
            StepState::Running { .. }
            | StepState::HandedOut { .. }
            | StepState::Each
            | StepState::Completed { .. }
            | StepState::Skipped { .. } => false,
        }
    }
}
