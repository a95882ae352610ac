//! Checks before anything runs that every expression has a value for the input and the outputs of the steps.

use std::{borrow::Cow, collections::BTreeMap};

use jiff::Timestamp;
use serde_json::Value;
use steward_core::{
    definition::{
        step::{StepDefinition, StepWork, wait_until},
        workflow::Workflow,
    },
    expression::{
        scope::{Scope, TaskValues},
        template::Template,
        uses::ValueKind,
    },
    limits,
    model::{attempt::Action, names::StepName},
};

use super::{plan::ForecastPlan, sample::templates, settings::ForecastError};

/// Checks that every expression has a value, in the workflow and the workflows of its child tasks.
pub(super) fn check(plan: &ForecastPlan) -> Result<(), ForecastError> {
    let mut draw = fastrand::Rng::with_seed(plan.settings.seed);
    let input = plan.input.value("input", &mut draw);
    let whose = if plan.settings.input.is_some() { "the input" } else { "the generated input" };
    SampleChecker { plan, draw }.workflow(&plan.settings.workflow, &input, whose, 0).map(|_| ())
}

struct SampleChecker<'p> {
    plan: &'p ForecastPlan,
    draw: fastrand::Rng,
}

type Outputs<'a> = BTreeMap<StepName, Cow<'a, Value>>;

impl SampleChecker<'_> {
    /// Checks a workflow. Returns its output.
    fn workflow(
        &mut self,
        workflow: &Workflow,
        input: &Value,
        whose: &'static str,
        depth: u32,
    ) -> Result<Value, ForecastError> {
        let name = workflow.name.to_string();
        let valid =
            workflow.input.as_ref().map_or(Ok(()), |schema| schema.validate("input", input));
        valid.map_err(|reason| ForecastError::Input { whose, workflow: name.clone(), reason })?;
        let mut outputs = Outputs::new();
        let ancestors = workflow.ancestors();
        let mut steps: Vec<_> = workflow.steps.iter().collect();
        steps.sort_by_key(|(name, _)| ancestors.get(name).map_or(0, |before| before.len()));
        for (step_name, step) in steps {
            let output = self.step(workflow, (step_name, step), input, &mut outputs, depth)?;
            outputs.insert(step_name.clone(), Cow::Owned(output));
        }
        let Some(output) = &workflow.output else { return Ok(Value::Null) };
        let scope = scope(workflow, input, &outputs);
        output.render(scope).map_err(|error| failed(workflow, "output", output, error.to_string()))
    }

    /// Checks a step. Returns its output.
    fn step(
        &mut self,
        workflow: &Workflow,
        (name, step): (&StepName, &StepDefinition),
        input: &Value,
        outputs: &mut Outputs<'_>,
        depth: u32,
    ) -> Result<Value, ForecastError> {
        let key = (workflow.name.clone(), name.clone());
        let generated = self.plan.step_assumptions.get(&key).map(|assumptions| &assumptions.output);
        let generated = generated
            .map(|generated| generated.value(name.as_str(), &mut self.draw))
            .unwrap_or_default();
        let mut scope_item = step.repeat.as_ref().map(|_| Value::Null);
        let mut child_input = Value::Null;
        let mut count = None;
        for (at, template, kind) in templates(step) {
            // An empty list has no item for the expression.
            let reads = |name| template.required_values().names.contains(name);
            if count == Some(0) && (reads("item") || reads("item_index")) {
                continue;
            }
            // An undo may read the output of its step.
            if at.starts_with("undo.") {
                outputs.insert(name.clone(), Cow::Owned(generated.clone()));
            }
            let mut scope = scope(workflow, input, outputs);
            scope.step_started_at = Some(Timestamp::UNIX_EPOCH);
            scope.item = scope_item.as_ref();
            scope.item_index = scope_item.is_some().then_some(0);
            let key = sample_key(name, step, &at);
            scope.request = key.as_deref();
            scope.callback =
                Some(("task/step/i0mfvx3k5z", Some("https://host/callbacks/1.1.token.signature")));
            let place = format!("steps.{name}.{at}");
            let error = |reason: String| failed(workflow, &place, template, reason);
            let value = match at.ends_with("request.path") {
                true => template.render_path(scope).map(Value::String),
                false => template.render(scope).map_err(|error| error.to_string()),
            }
            .map_err(error)?;
            fits(&kind, &at, &value).map_err(error)?;
            match (at.as_str(), value) {
                ("for_each.items", Value::Array(items)) => {
                    count = Some(items.len());
                    scope_item = Some(items.into_iter().next().unwrap_or_default());
                }
                ("repeat.first", first) => scope_item = Some(first),
                ("workflow.input", value) => child_input = value,
                _ => {}
            }
        }
        let output = match step.work() {
            Some(StepWork::Wait(_)) | None => Value::Null,
            Some(StepWork::Call { .. } | StepWork::Event(_)) => generated,
            Some(StepWork::Child(child)) => match self.plan.workflow(&child.name) {
                Some(child) if depth < limits::CHILD_DEPTH_MAX => {
                    self.workflow(child, &child_input, "the input", depth + 1)?
                }
                Some(_) | None => generated,
            },
        };
        Ok(count.map_or(output.clone(), |count| Value::Array(vec![output; count])))
    }
}

fn scope<'a>(workflow: &'a Workflow, input: &'a Value, outputs: &'a Outputs<'a>) -> Scope<'a> {
    Scope {
        input: Some(input),
        outputs: Some(outputs),
        task: Some(TaskValues {
            id: "task",
            workflow: workflow.name.as_str(),
            submitted_at: Timestamp::UNIX_EPOCH,
            complete_by: Timestamp::UNIX_EPOCH + workflow.complete_within,
        }),
        ..Scope::default()
    }
}

/// An idempotency key for the request that the template at this key of a step is part of. `None` if it is part of none.
fn sample_key(name: &StepName, step: &StepDefinition, at: &str) -> Option<String> {
    let (action, request) = match at.strip_prefix("undo.") {
        Some(_) => (Action::Undo, step.undo.as_ref()?.request.as_ref()?),
        None => (Action::Do, step.request.as_ref().filter(|_| at.starts_with("request."))?),
    };
    let form = request.idempotency_key.as_ref().and_then(|format| format.form);
    Some(form.unwrap_or_default().of(&format!("task/{name}/{}", action.name())))
}

/// Checks that a value has the required kind.
fn fits(kind: &ValueKind, at: &str, value: &Value) -> Result<(), String> {
    match kind {
        ValueKind::Bool if !value.is_boolean() => Err(format!("`{at}` must be true or false")),
        ValueKind::List if !value.is_array() => Err(format!("`{at}` must be a list")),
        ValueKind::DurationOrTime => match wait_until(value, Timestamp::UNIX_EPOCH) {
            Ok(_) => Ok(()),
            Err(invalid) => Err(invalid.to_string()),
        },
        ValueKind::Any
        | ValueKind::Bool
        | ValueKind::Number
        | ValueKind::Divided
        | ValueKind::Decimal
        | ValueKind::Text
        | ValueKind::Json
        | ValueKind::TimeIn(_)
        | ValueKind::Time
        | ValueKind::List => Ok(()),
    }
}

fn failed(workflow: &Workflow, at: &str, template: &Template, reason: String) -> ForecastError {
    let reads = template.required_values();
    let input = reads.input() || reads.names.contains("item");
    let mut options: Vec<_> =
        reads.steps.iter().map(|step| format!("--output {step}=JSON")).collect();
    options.extend((input || options.is_empty()).then(|| "--input JSON".to_owned()));
    // Add the expression, unless the reason contains it.
    let reason = match (template.source().as_str(), reason.starts_with("expression")) {
        (Some(source), false) => format!("expression `{source}`: {reason}"),
        (Some(_) | None, _) => reason,
    };
    let (workflow, at) = (workflow.name.to_string(), at.to_owned());
    ForecastError::Expression { workflow, at, reason, options: options.join(" or ") }
}
