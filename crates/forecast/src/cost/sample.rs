//! The input and the outputs of steps, given or generated.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use steward_core::{
    definition::{
        step::StepDefinition,
        wait::{EventWait, Wait},
        workflow::Workflow,
    },
    expression::{
        template::Template,
        uses::{PathKey, ValueKind, ValueUse},
    },
    model::names::StepName,
};

use super::{settings::ForecastSettings, value_shape::ValueShape};

/// A value that a run uses.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum SampleValue {
    /// Given by the user.
    Given(Value),
    /// Generated. Only booleans differ between runs.
    Generated(ValueShape),
}

impl Default for SampleValue {
    fn default() -> Self {
        Self::Generated(ValueShape::Object(indexmap::IndexMap::new()))
    }
}

impl SampleValue {
    /// The value for a run. Generated texts are named after `name`.
    pub(super) fn value(&self, name: &str, draw: &mut fastrand::Rng) -> Value {
        match self {
            Self::Given(value) => value.clone(),
            Self::Generated(shape) => shape.value(name, draw),
        }
    }
}

/// The input of the tasks.
pub(super) fn input(settings: &ForecastSettings) -> SampleValue {
    if let Some(given) = &settings.input {
        return SampleValue::Given(given.clone());
    }
    let workflow = &settings.workflow;
    let schema = workflow.input.as_ref();
    let mut shape = schema.map_or(ValueShape::Any, |schema| ValueShape::of_schema(schema.source()));
    for used in all_uses(workflow) {
        if let [PathKey::Field(root), path @ ..] = used.path.as_slice()
            && root == "input"
        {
            shape.add_read(path, &used.kind);
        }
    }
    // No expression reads the input.
    SampleValue::Generated(if shape == ValueShape::Any {
        ValueShape::Object(indexmap::IndexMap::new())
    } else {
        shape
    })
}

/// The generated outputs of the steps of a workflow. For a step with items, the output of each item.
pub(super) fn outputs(workflow: &Workflow) -> Vec<(StepName, SampleValue)> {
    let mut shapes: BTreeMap<&StepName, ValueShape> = BTreeMap::new();
    for (name, step) in &workflow.steps {
        // An answer that violates the schema would be refused.
        let schema = step.callback.as_ref().and_then(|callback| callback.answer.as_ref());
        shapes.extend(schema.map(|schema| (name, ValueShape::of_schema(schema.source()))));
        let wait = step.wait.as_ref().and_then(Wait::event);
        shapes.extend(wait.map(|wait| (name, event_shape(wait, step.for_each.is_some()))));
    }
    for used in all_uses(workflow) {
        if let [PathKey::Field(root), PathKey::Field(step), PathKey::Field(field), path @ ..] =
            used.path.as_slice()
            && (root.as_str(), field.as_str()) == ("steps", "output")
            && let Some((name, _)) = workflow.steps.get_key_value(step.as_str())
        {
            shapes.entry(name).or_default().add_read(path, &used.kind);
        }
    }
    let generated = shapes.into_iter().map(|(name, shape)| {
        let each = workflow.steps.get(name).is_some_and(|step| step.for_each.is_some());
        let shape = if each { shape.into_element() } else { shape };
        (name.clone(), SampleValue::Generated(shape))
    });
    generated.collect()
}

/// One of the events that a step waits for, or a list of them.
fn event_shape(wait: &EventWait, each: bool) -> ValueShape {
    let fixed = |text: &str| ValueShape::Fixed(json!(text));
    let shapes = wait.event.patterns().map(|of| {
        let fields = [("source", of.source), ("detail-type", of.detail_type)];
        let fields = fields.map(|(name, text)| (name.to_owned(), fixed(text)));
        ValueShape::Object(fields.into_iter().collect())
    });
    let shape = ValueShape::OneOf(shapes.collect());
    if each { ValueShape::List(Box::new(shape), 1) } else { shape }
}

/// Everything that the expressions of a workflow read. An item is read as an element of its list, or as the output of the round
/// before.
fn all_uses(workflow: &Workflow) -> Vec<ValueUse> {
    let mut uses = Vec::new();
    for (name, step) in &workflow.steps {
        let mut own = Vec::new();
        for (_, template, kind) in templates(step) {
            own.extend(template.value_uses(kind));
        }
        own.extend(step.repeat.iter().flat_map(|repeat| repeat.until.value_uses(ValueKind::Bool)));
        let items = step.for_each.as_ref().map(|each| each.items.value_uses(ValueKind::List));
        let list = match items.as_deref() {
            Some([list]) => Some(list.path.clone()),
            Some(_) | None => None,
        };
        let each = list.map(|list| [list, vec![PathKey::Element]].concat());
        let field = |key: &str| PathKey::Field(key.to_owned());
        let round = || [field("steps"), field(name.as_str()), field("output")].to_vec();
        let item = each.or_else(|| step.repeat.as_ref().map(|_| round()));
        uses.extend(own.into_iter().filter_map(|used| match used.path.as_slice() {
            [PathKey::Field(root), rest @ ..] if root == "item" => {
                let mut path = item.clone()?;
                path.extend_from_slice(rest);
                Some(ValueUse { path, kind: used.kind })
            }
            _ => Some(used),
        }));
    }
    uses.extend(workflow.labels.values().flat_map(|label| label.value_uses(ValueKind::Text)));
    uses.extend(workflow.output.iter().flat_map(|output| output.value_uses(ValueKind::Any)));
    uses
}

/// The templates of a step, each with its key and the required kind of value.
pub(super) fn templates(step: &StepDefinition) -> Vec<(String, &Template, ValueKind)> {
    let mut all = Vec::new();
    all.extend(step.when.iter().map(|when| ("when".to_owned(), when, ValueKind::Bool)));
    let items = step.for_each.iter();
    all.extend(items.map(|each| ("for_each.items".to_owned(), &each.items, ValueKind::List)));
    let first = step.repeat.iter().flat_map(|repeat| &repeat.first);
    all.extend(first.map(|first| ("repeat.first".to_owned(), first, ValueKind::Any)));
    all.extend(step.wait.iter().map(|wait| match wait {
        Wait::Until(until) => ("wait".to_owned(), &**until, ValueKind::DurationOrTime),
        Wait::Event(wait) => ("wait.event.equals".to_owned(), &wait.event.equals, ValueKind::Any),
    }));
    let child = step.workflow.iter().flat_map(|child| &child.input);
    all.extend(child.map(|input| ("workflow.input".to_owned(), input, ValueKind::Any)));
    let undo = step.undo.as_ref().and_then(|undo| undo.request.as_ref());
    for (of, request) in [("", step.request.as_ref()), ("undo.", undo)] {
        let Some(request) = request else { continue };
        for (key, template) in [("path", &request.path), ("body", &request.body)] {
            let template = template.iter();
            all.extend(
                template.map(|of_key| (format!("{of}request.{key}"), of_key, ValueKind::Any)),
            );
        }
    }
    all
}
