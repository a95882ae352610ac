//! The values that the expressions of a step read. They come from the documents in the task's item and from the loaded
//! documents.
//!
//! A decision reads the latter from its [`DocumentCache`]. The cache records the keys of the documents that are not
//! loaded. The caller loads them and repeats the decision. Documents never change, so the repeated decision gets at
//! least as far.

use std::{
    borrow::Cow,
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    time::Duration,
};

use jiff::Timestamp;
use serde_json::Value;

use crate::{
    callback_url::CallbackUrls,
    definition::{plan::Plan, step::ForEach},
    engine::documents::LoadedDocuments,
    expression::{
        scope::{RequiredValues, Scope, TaskValues},
        template::Template,
    },
    limits,
    model::{
        attempt::{Action, AttemptId},
        command::CommandId,
        document::{Document, DocumentKey},
        lifecycle::whole_milliseconds,
        names::{CallbackToken, Part, StepName},
        step::{StepRecord, StepState},
        task::Task,
        time::later,
    },
};

/// The loaded documents, and the keys of those that a decision needs in addition.
pub(crate) struct DocumentCache<'d> {
    read: &'d LoadedDocuments,
    needed: RefCell<BTreeSet<DocumentKey>>,
    /// The items of steps with `for_each`. Each list is rendered once, not once for each item.
    items: RefCell<BTreeMap<ItemsKey, Rc<[Value]>>>,
}

/// A step with `for_each`, and the edit of the input from which its items were rendered.
type ItemsKey = (StepName, Option<CommandId>);

impl<'d> DocumentCache<'d> {
    pub(crate) fn new(read: &'d LoadedDocuments) -> Self {
        Self { read, needed: RefCell::default(), items: RefCell::default() }
    }

    pub(crate) fn get(&self, key: &DocumentKey) -> Result<&'d Value, ValueError> {
        if let Some(found) = self.read.get(key) {
            return Ok(found);
        }
        if self.read.is_absent(key) {
            let reason = format!("the document `{key}` is missing: it has expired or was deleted");
            return Err(ValueError::Invalid(reason));
        }
        self.needed.borrow_mut().insert(key.clone());
        Err(ValueError::NotLoaded)
    }

    /// The document, if it is loaded. Does not request it.
    pub(crate) fn loaded(&self, key: &DocumentKey) -> Option<&'d Value> {
        self.read.get(key)
    }

    /// Takes the keys of the documents that were read and are not loaded.
    pub(crate) fn needed(&self) -> BTreeSet<DocumentKey> {
        self.needed.take()
    }
}

/// The key of the document with the input, as it was submitted or as an operator edited it.
pub(crate) fn input_key(edit: Option<&CommandId>) -> DocumentKey {
    edit.map_or(DocumentKey::Submission, |id| DocumentKey::Input(id.clone()))
}

/// Why there is no value.
pub(crate) enum ValueError {
    /// A document is not loaded yet.
    NotLoaded,
    /// There is no value, for this reason.
    Invalid(String),
}

impl<T: Into<String>> From<T> for ValueError {
    fn from(reason: T) -> Self {
        Self::Invalid(reason.into())
    }
}

/// Where values come from: the task with the documents in its item, its workflow, the documents of this decision, and the
/// loaded documents.
#[derive(Clone, Copy)]
pub(crate) struct ValueSources<'s> {
    pub(crate) plan: &'s Plan,
    pub(crate) task: &'s Task,
    pub(crate) new_documents: &'s [Document],
    pub(crate) cache: &'s DocumentCache<'s>,
    /// Creates the URLs for callbacks. `None` if the deployment has no endpoint for them.
    pub(crate) callback_urls: Option<&'s CallbackUrls>,
}

/// The values that templates read.
pub(crate) struct TemplateValues<'s> {
    task: &'s Task,
    complete_within: Duration,
    input: Option<Cow<'s, Value>>,
    outputs: BTreeMap<StepName, Cow<'s, Value>>,
    failed: BTreeMap<StepName, Value>,
    step_started_at: Option<Timestamp>,
    pub(super) item: Option<Value>,
    pub(super) item_index: Option<u32>,
    /// The idempotency key of the request that is rendered.
    pub(crate) key: Option<String>,
    token: Option<String>,
    url: Option<String>,
}

impl TemplateValues<'_> {
    pub(crate) fn scope(&self) -> Scope<'_> {
        let submitted_at = whole_milliseconds(self.task.submitted_at);
        Scope {
            input: self.input.as_deref(),
            outputs: Some(&self.outputs),
            failed: Some(&self.failed),
            task: Some(TaskValues {
                id: self.task.task_id.as_str(),
                workflow: self.task.workflow.as_str(),
                submitted_at,
                complete_by: later(submitted_at, self.complete_within),
            }),
            step_started_at: self.step_started_at,
            item: self.item.as_ref(),
            item_index: self.item_index,
            request: self.key.as_deref(),
            callback: self.token.as_deref().map(|token| (token, self.url.as_deref())),
            event: None,
            response: None,
        }
    }
}

impl<'s> ValueSources<'s> {
    pub(crate) fn document(self, key: &DocumentKey) -> Result<Cow<'s, Value>, ValueError> {
        if let Some(new) = self.new_documents.iter().find(|new| new.key == *key) {
            return Ok(Cow::Borrowed(&new.body));
        }
        match self.task.documents.body(key) {
            Some(body) => Ok(Cow::Owned(body)),
            None => self.cache.get(key).map(Cow::Borrowed),
        }
    }

    /// The task's input after the edit `edit`, or as submitted if there is none.
    pub(crate) fn input(self, edit: Option<&CommandId>) -> Result<Cow<'s, Value>, ValueError> {
        Ok(match self.document(&input_key(edit))? {
            Cow::Borrowed(body) => Cow::Borrowed(body.get("input").unwrap_or(&Value::Null)),
            Cow::Owned(mut body) => {
                Cow::Owned(body.get_mut("input").map(Value::take).unwrap_or_default())
            }
        })
    }

    /// Renders a template of the task as a whole.
    pub(crate) fn render(self, template: &Template) -> Result<Value, ValueError> {
        let values =
            self.values(template.required_values(), self.task.input_edit_id.as_ref(), None)?;
        template.render(values.scope()).map_err(|error| ValueError::Invalid(error.to_string()))
    }

    /// The items of a step with `for_each`.
    pub(crate) fn items(
        self,
        step: &StepName,
        each: &ForEach,
        edit: Option<&CommandId>,
    ) -> Result<Rc<[Value]>, ValueError> {
        let key = (step.clone(), edit.cloned());
        if let Some(items) = self.cache.items.borrow().get(&key) {
            return Ok(items.clone());
        }
        let values = self.values(each.items.required_values(), edit, None)?;
        let items: Rc<[Value]> =
            match each.items.render(values.scope()).map_err(|error| error.to_string())? {
                Value::Array(items) => items.into(),
                other @ (Value::Null
                | Value::Bool(_)
                | Value::Number(_)
                | Value::String(_)
                | Value::Object(_)) => {
                    let reason = format!(
                        "`for_each.items` evaluates to {}, not to a list",
                        json_type_name(&other)
                    );
                    return Err(reason.into());
                }
            };
        self.cache.items.borrow_mut().insert(key, items.clone());
        Ok(items)
    }

    /// Returns the values that the templates of `part` read.
    pub(crate) fn values_for_part<'t>(
        self,
        part: &Part,
        action: Action,
        templates: impl Iterator<Item = &'t Template>,
    ) -> Result<TemplateValues<'s>, ValueError> {
        let progress = self.task.progress(part, action);
        let edit = progress
            .map_or(self.task.input_edit_id.as_ref(), |progress| progress.input_edit_id.as_ref());
        let templates: Vec<_> = templates.collect();
        let mut values = self.values_with_edit(part, edit, templates.iter().copied())?;
        if action == Action::Undo {
            self.use_output_of_undone_key(part, &templates, &mut values)?;
        }
        Ok(values)
    }

    /// The undo of an earlier key reads the output of that key, if there is one, as that of its step. The undo of a step that
    /// the task went on without reads none, like that of a step that failed.
    fn use_output_of_undone_key(
        self,
        part: &Part,
        templates: &[&Template],
        values: &mut TemplateValues<'s>,
    ) -> Result<(), ValueError> {
        let record = self.task.record(part);
        let reads_output =
            |template: &&Template| template.required_values().steps.contains(&part.step);
        let Some(record) = record.filter(|_| templates.iter().any(reads_output)) else {
            return Ok(());
        };
        let Some(key) = record.key_of_undo() else {
            if matches!(record.forward.state, StepState::Skipped { .. }) {
                values.outputs.remove(&part.step);
            }
            return Ok(());
        };
        let attempt = |number| AttemptId { step: part.clone(), action: Action::Do, number };
        match key.output_of.map(|number| DocumentKey::Output(attempt(number))) {
            Some(document) => {
                drop(values.outputs.insert(part.step.clone(), self.document(&document)?))
            }
            None => drop(values.outputs.remove(&part.step)),
        }
        Ok(())
    }

    /// Returns the values that the templates of `part` read, with the input of this edit.
    pub(crate) fn values_with_edit<'t>(
        self,
        part: &Part,
        edit: Option<&CommandId>,
        templates: impl Iterator<Item = &'t Template>,
    ) -> Result<TemplateValues<'s>, ValueError> {
        let mut reads = RequiredValues::default();
        for template in templates {
            reads.add(template.required_values());
        }
        let mut values = self.values(&reads, edit, Some(part))?;
        if let Some(index) = part.item.filter(|_| reads.names.contains("item")) {
            // An undo reverts the item that was done, even if the input has been edited since.
            let done = self.task.record(part).map_or(edit, |record| record.edit(Action::Undo));
            let definition = &self.plan.step(&part.step).definition;
            values.item = match (&definition.for_each, &definition.repeat) {
                (Some(each), _) => Some(self.item(&part.step, each, index, done)?),
                (None, Some(repeat)) => Some(self.item_of_round(&part.step, repeat, index, done)?),
                (None, None) => None,
            };
        }
        values.item_index = part.item;
        values.step_started_at =
            self.task.record(part).and_then(|record| record.forward.started_at());
        if reads.names.contains("callback") {
            let (task_id, step) = (self.task.task_id.clone(), part.clone());
            let (incarnation, edit) = (self.task.incarnation, edit.cloned());
            let token = CallbackToken { task_id, step, incarnation, edit };
            values.token = Some(token.to_string());
            if reads.callback_url && self.callback_urls.is_none() {
                let reason = "the deployment has no HTTP endpoint for callbacks, so there is no `callback.url`";
                return Err(reason.to_owned().into());
            }
            let expires = self.task.retention_start;
            values.url = self.callback_urls.map(|urls| urls.url(&token, expires));
        }
        Ok(values)
    }

    pub(super) fn values(
        self,
        reads: &RequiredValues,
        edit: Option<&CommandId>,
        own: Option<&Part>,
    ) -> Result<TemplateValues<'s>, ValueError> {
        // Look up all values before returning an error, so that all missing documents are loaded together.
        let input = reads.input().then(|| self.input(edit));
        let outputs: Vec<_> = reads
            .steps
            .iter()
            .filter_map(|step| Some((step.clone(), self.output(step, own)?)))
            .collect();
        let outputs = outputs.into_iter().map(|(step, output)| Ok((step, output?)));
        let failed = reads.failed.iter().map(|step| {
            let record = self.task.steps.get(step);
            (step.clone(), Value::Bool(record.is_some_and(StepRecord::is_passed_over)))
        });
        Ok(TemplateValues {
            task: self.task,
            complete_within: self.plan.complete_within,
            input: input.transpose()?,
            outputs: outputs.collect::<Result<_, ValueError>>()?,
            failed: failed.collect(),
            step_started_at: None,
            item: None,
            item_index: None,
            key: None,
            token: None,
            url: None,
        })
    }

    /// The output of a step that has passed. The output of a step with items is a list, and of one with rounds that of the last
    /// round. An item that reads its own step reads its own output.
    pub(super) fn output(
        self,
        step: &StepName,
        own: Option<&Part>,
    ) -> Option<Result<Cow<'s, Value>, ValueError>> {
        if self.task.keeps(step) {
            return Some(self.kept_output(step));
        }
        let record = self.task.steps.get(step)?;
        if let Some(own) = own.filter(|own| own.step == *step && own.item.is_some()) {
            return self.part_output(own, self.task.record(own)?);
        }
        let Some(items) =
            record.items.as_ref().filter(|_| record.forward.state.is_completed_or_skipped())
        else {
            return self.part_output(&step.clone().into(), record);
        };
        if matches!(record.forward.state, StepState::Skipped { .. }) {
            return Some(Ok(Cow::Owned(Value::Null)));
        }
        if self.plan.step(step).definition.repeat.is_some() {
            return Some(self.output_of_round(step, items.started().saturating_sub(1)));
        }
        if items.output_memory_bytes() > limits::ITEM_OUTPUTS_MEMORY_BYTES_MAX {
            return Some(Err(too_large_outputs(step, items.output_memory_bytes()).into()));
        }
        let outputs: Vec<_> = (0_u32..)
            .zip(items.iter())
            .map(|(place, item)| {
                let part = Part { step: step.clone(), item: Some(place) };
                self.part_output(&part, item).unwrap_or(Ok(Cow::Owned(Value::Null)))
            })
            .collect();
        let list = outputs.into_iter().map(|output| output.map(Cow::into_owned));
        Some(list.collect::<Result<_, _>>().map(|list| Cow::Owned(Value::Array(list))))
    }

    /// The output of a kept step, which the submission brought along.
    fn kept_output(self, step: &StepName) -> Result<Cow<'s, Value>, ValueError> {
        let pointer = format!("/rerun/kept/{step}");
        Ok(match self.document(&DocumentKey::Submission)? {
            Cow::Borrowed(body) => Cow::Borrowed(body.pointer(&pointer).unwrap_or(&Value::Null)),
            Cow::Owned(mut body) => {
                Cow::Owned(body.pointer_mut(&pointer).map(Value::take).unwrap_or_default())
            }
        })
    }

    pub(super) fn part_output(
        self,
        part: &Part,
        record: &StepRecord,
    ) -> Option<Result<Cow<'s, Value>, ValueError>> {
        if let Some(output) = record.forward.output(part, Action::Do) {
            return Some(self.document(&output));
        }
        match record.forward.state {
            StepState::Completed { .. } | StepState::Skipped { .. } => {
                Some(Ok(Cow::Owned(Value::Null)))
            }
            StepState::Running { .. }
            | StepState::AwaitingCallback { .. }
            | StepState::RunningItems
            | StepState::Waiting { .. }
            | StepState::Failed { .. } => None,
        }
    }
}

fn too_large_outputs(step: &StepName, bytes: u64) -> String {
    let (megabyte, max) = (1024 * 1024, limits::ITEM_OUTPUTS_MEMORY_BYTES_MAX);
    format!(
        "the outputs of the items of step {step} need {} MB of memory; an expression can read {} MB",
        bytes.div_ceil(megabyte),
        max / megabyte
    )
}

/// The JSON type of a value, for messages. Messages never contain the value itself.
pub(crate) fn json_type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
