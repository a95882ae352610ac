//! What the expressions of a step read: the documents at hand, as the values that templates know by
//! name.
//!
//! A decision asks its [`DocumentCache`] for documents as it goes. What is not there is noted, and the
//! decision is taken again once it has been read: a document never changes, so the second time it
//! comes as far at least.

use crate::definition::plan::Plan;
use std::{
    borrow::Cow,
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use serde_json::Value;

use crate::{
    definition::step::ForEach,
    engine::documents::Documents,
    expression::{
        scope::{Reads, Scope},
        template::Template,
    },
    model::{
        attempt::Action,
        command::CommandId,
        document::{Document, DocumentKey},
        names::{CallbackFence, CallbackToken, Incarnation, Part, StepName},
        step::{StepRecord, StepState},
        task::Task,
    },
};

/// The documents at hand, and those that a decision turned out to want.
pub(crate) struct DocumentCache<'d> {
    read: &'d Documents,
    wanted: RefCell<BTreeSet<DocumentKey>>,
    /// The items of steps with `for_each`: rendered once, and not again for each of them.
    items: RefCell<BTreeMap<ItemsOf, Rc<[Value]>>>,
}

/// A step with `for_each`, and the edit of the input that its items are made from.
type ItemsOf = (StepName, Option<CommandId>);

impl<'d> DocumentCache<'d> {
    pub(crate) fn new(read: &'d Documents) -> Self {
        Self { read, wanted: RefCell::default(), items: RefCell::default() }
    }

    pub(crate) fn get(&self, key: &DocumentKey) -> Result<&'d Value, NoValue> {
        if let Some(found) = self.read.get(key) {
            return Ok(found);
        }
        if self.read.lacks(key) {
            let reason = format!("the document `{key}` is missing: it has expired or was deleted");
            return Err(NoValue::Because(reason));
        }
        self.wanted.borrow_mut().insert(key.clone());
        Err(NoValue::Wanted)
    }

    pub(crate) fn wanted(self) -> BTreeSet<DocumentKey> {
        self.wanted.into_inner()
    }
}

/// The document that holds the input, as submitted or as an operator edited it.
pub(crate) fn input_key(edit: Option<&CommandId>) -> DocumentKey {
    edit.map_or(DocumentKey::Submission, |id| DocumentKey::Input(id.clone()))
}

/// Why there is no value.
pub(crate) enum NoValue {
    /// A document is not at hand yet.
    Wanted,
    /// There is none, for this reason.
    Because(String),
}

impl From<String> for NoValue {
    fn from(reason: String) -> Self {
        Self::Because(reason)
    }
}

/// Where values come from: a task, its workflow, what was just made and what lies on the cache.
#[derive(Clone, Copy)]
pub(crate) struct Sources<'s> {
    pub(crate) plan: &'s Plan,
    pub(crate) task: &'s Task,
    pub(crate) made: &'s [Document],
    pub(crate) cache: &'s DocumentCache<'s>,
}

/// The values that some templates read.
pub(crate) struct Values<'s> {
    task: &'s Task,
    input: Option<&'s Value>,
    outputs: BTreeMap<StepName, Cow<'s, Value>>,
    item: Option<Value>,
    token: Option<String>,
}

impl Values<'_> {
    pub(crate) fn scope(&self) -> Scope<'_> {
        Scope {
            input: self.input,
            outputs: Some(&self.outputs),
            task: Some((self.task.task_id.as_str(), self.task.workflow.as_str())),
            item: self.item.as_ref(),
            callback_token: self.token.as_deref(),
            event: None,
        }
    }
}

impl<'s> Sources<'s> {
    pub(crate) fn document(self, key: &DocumentKey) -> Result<&'s Value, NoValue> {
        let made = self.made.iter().find(|made| made.key == *key).map(|made| &made.body);
        made.map_or_else(|| self.cache.get(key), Ok)
    }

    /// The task's input as the edit `edit` made it.
    pub(crate) fn input(self, edit: Option<&CommandId>) -> Result<&'s Value, NoValue> {
        let body = self.document(&input_key(edit))?;
        Ok(body.get("input").unwrap_or(&Value::Null))
    }

    /// Renders `template`, which is about the task and none of its parts.
    pub(crate) fn render(self, template: &Template) -> Result<Value, NoValue> {
        let values = self.values(template.reads(), self.task.input.as_ref(), None)?;
        template.render(values.scope()).map_err(|error| NoValue::Because(error.to_string()))
    }

    /// The items of a step with `for_each`.
    pub(crate) fn items(
        self,
        step: &StepName,
        each: &ForEach,
        edit: Option<&CommandId>,
    ) -> Result<Rc<[Value]>, NoValue> {
        let key = (step.clone(), edit.cloned());
        if let Some(items) = self.cache.items.borrow().get(&key) {
            return Ok(items.clone());
        }
        let values = self.values(each.items.reads(), edit, None)?;
        let items: Rc<[Value]> =
            match each.items.render(values.scope()).map_err(|error| error.to_string())? {
                Value::Array(items) => items.into(),
                other @ (Value::Null
                | Value::Bool(_)
                | Value::Number(_)
                | Value::String(_)
                | Value::Object(_)) => {
                    let reason = format!("`for_each.items` gives {}, not a list", kind(&other));
                    return Err(reason.into());
                }
            };
        self.cache.items.borrow_mut().insert(key, items.clone());
        Ok(items)
    }

    /// What the templates of `part` read.
    pub(crate) fn of_part<'t>(
        self,
        part: &Part,
        action: Action,
        templates: impl Iterator<Item = &'t Template>,
    ) -> Result<Values<'s>, NoValue> {
        let mut reads = Reads::default();
        for template in templates {
            reads.names.extend(&template.reads().names);
            reads.steps.extend(template.reads().steps.iter().cloned());
        }
        let progress = self.task.progress(part, action);
        let edit = progress.map_or(self.task.input.as_ref(), |progress| progress.input.as_ref());
        let mut values = self.values(&reads, edit, Some(part))?;
        let each = self.plan.step(&part.step).definition.for_each.as_ref();
        if let (Some(each), Some(place), true) = (each, part.item, reads.names.contains("item")) {
            // What is undone is the item that was done, whatever the input says by now.
            let done = self.task.progress(part, Action::Do).map_or(edit, |run| run.input.as_ref());
            let items = self.items(&part.step, each, done)?;
            let item = items.get(place as usize);
            values.item = Some(item.cloned().ok_or_else(|| format!("there is no item {place}"))?);
        }
        if reads.names.contains("callback") {
            let (task_id, step) = (self.task.task_id.clone(), part.clone());
            let recorded = || Incarnation::recorded_at(self.task.submitted_at);
            let incarnation = Some(self.task.incarnation.unwrap_or_else(recorded));
            let fence = CallbackFence::Request { edit: edit.cloned() };
            let token = CallbackToken { task_id, step, incarnation, fence };
            values.token = Some(token.to_string());
        }
        Ok(values)
    }

    fn values(
        self,
        reads: &Reads,
        edit: Option<&CommandId>,
        own: Option<&Part>,
    ) -> Result<Values<'s>, NoValue> {
        // Everything is asked for before anything is missed, so that it is read at once.
        let input = reads.input().then(|| self.input(edit));
        let outputs: Vec<_> = reads
            .steps
            .iter()
            .filter_map(|step| Some((step.clone(), self.output(step, own)?)))
            .collect();
        let outputs = outputs.into_iter().map(|(step, output)| Ok((step, output?)));
        Ok(Values {
            task: self.task,
            input: input.transpose()?,
            outputs: outputs.collect::<Result<_, NoValue>>()?,
            item: None,
            token: None,
        })
    }

    /// What a step returned, if it has: of a step with items a list. An item that reads its own step
    /// reads what it returned itself.
    fn output(
        self,
        step: &StepName,
        own: Option<&Part>,
    ) -> Option<Result<Cow<'s, Value>, NoValue>> {
        let record = self.task.steps.get(step)?;
        if let Some(own) = own.filter(|own| own.step == *step && own.item.is_some()) {
            return self.returned(own, self.task.record(own)?);
        }
        let Some(items) = record.items.as_ref().filter(|_| record.run.state.has_passed()) else {
            return self.returned(&step.clone().into(), record);
        };
        if matches!(record.run.state, StepState::Skipped { .. }) {
            return Some(Ok(Cow::Owned(Value::Null)));
        }
        let outputs: Vec<_> = (0_u32..)
            .zip(&items.begun)
            .map(|(place, item)| {
                let part = Part { step: step.clone(), item: Some(place) };
                self.returned(&part, item).unwrap_or(Ok(Cow::Owned(Value::Null)))
            })
            .collect();
        let list = outputs.into_iter().map(|output| output.map(Cow::into_owned));
        Some(list.collect::<Result<_, _>>().map(|list| Cow::Owned(Value::Array(list))))
    }

    fn returned(self, part: &Part, record: &StepRecord) -> Option<Result<Cow<'s, Value>, NoValue>> {
        if let Some(output) = record.run.output(part, Action::Do) {
            return Some(self.document(&output).map(Cow::Borrowed));
        }
        match record.run.state {
            StepState::Completed { .. } | StepState::Skipped { .. } => {
                Some(Ok(Cow::Owned(Value::Null)))
            }
            StepState::Running { .. }
            | StepState::HandedOut { .. }
            | StepState::Each
            | StepState::Waiting { .. }
            | StepState::Failed { .. } => None,
        }
    }
}

/// A value's type, for people: values themselves reach no log.
pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
