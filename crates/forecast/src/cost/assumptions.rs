//! Resolves the options to the assumptions about each step: failure rates, latencies and outputs.

use std::{collections::BTreeMap, time::Duration};

use steward_core::{
    definition::step::{StepDefinition, StepWork},
    model::attempt::Action,
};
use steward_test_world::MemoryDefinitions;

use super::{
    plan::{ForecastPlan, StepAssumptions, StepKey},
    prices::Prices,
    sample::{self, SampleValue},
    sample_check,
    settings::{BATCH_MAX, ForecastError, ForecastSettings, RUNS_MAX},
    step_options::{StepOption, StepSelector},
};

/// The default average duration of a call.
const LATENCY: Duration = Duration::from_millis(100);

/// The default average time until a callback is answered, if a tenth of the step's `within` is not shorter.
const ANSWER: Duration = Duration::from_secs(60);

/// The largest average number of heartbeats until the answer to a callback.
const HEARTBEATS_MAX: u128 = 1_000;

/// How similar a step's name must be for a suggestion, from 0 to 1.
const SIMILARITY_MIN: f64 = 0.6;

impl ForecastPlan {
    /// Validates the settings and resolves their options. Checks that every expression has a value.
    pub(super) fn new(settings: ForecastSettings) -> Result<Self, ForecastError> {
        // The assumed output of a step is what its agent selects from the response.
        let plan = Self::unchecked(settings, |_| false)?;
        sample_check::check(&plan)?;
        Ok(plan)
    }

    /// The same without the check of the expressions. The agents select the outputs of the steps for which `has_body`
    /// holds: their services answer with bodies. The other services answer with outputs.
    pub(super) fn unchecked(
        settings: ForecastSettings,
        has_body: impl Fn(&StepKey) -> bool,
    ) -> Result<Self, ForecastError> {
        for (option, value, max) in
            [("runs", settings.runs, RUNS_MAX), ("batch", settings.batch, BATCH_MAX)]
        {
            if !(1..=max).contains(&value) {
                return Err(ForecastError::OutOfLimits { option, max });
            }
        }
        let mut names = vec![&settings.workflow.name];
        for workflow in &settings.with {
            if names.contains(&&workflow.name) {
                return Err(ForecastError::GivenTwice(workflow.name.to_string()));
            }
            names.push(&workflow.name);
        }
        let definitions = MemoryDefinitions::default();
        for workflow in std::iter::once(&settings.workflow).chain(&settings.with) {
            let mut simulated = workflow.clone();
            for (name, step) in &mut simulated.steps {
                if !has_body(&(workflow.name.clone(), name.clone())) {
                    step.output = None;
                }
            }
            definitions.publish(&simulated).map_err(|error| {
                ForecastError::Definition(workflow.name.to_string(), error.to_string())
            })?;
        }
        let input = sample::input(&settings);
        let (prices, step_assumptions) = (Prices::listed()?, BTreeMap::new());
        let mut plan = Self { input, prices, step_assumptions, definitions, settings };
        plan.step_assumptions =
            plan.all_steps().map(|(key, step)| (key, assumptions(step))).collect();
        plan.set_generated_outputs();
        plan.apply_options()?;
        plan.check_heartbeats()?;
        Ok(plan)
    }

    fn set_generated_outputs(&mut self) {
        let outputs = self.workflows().flat_map(|workflow| {
            let outputs = sample::outputs(workflow).into_iter();
            outputs.map(|(step, output)| ((workflow.name.clone(), step), output))
        });
        for (key, output) in outputs.collect::<Vec<_>>() {
            if let Some(assumptions) = self.step_assumptions.get_mut(&key) {
                assumptions.output = output;
            }
        }
    }

    /// Applies the options for steps.
    fn apply_options(&mut self) -> Result<(), ForecastError> {
        let all = self.settings.clone();
        self.apply_option("fail", &all.fail, can_fail, |assumptions, share| {
            assumptions.fail = share.0
        })?;
        self.apply_option("flaky", &all.flaky, is_called, |assumptions, share| {
            assumptions.flaky = share.0
        })?;
        self.apply_option("silent", &all.silent, can_fail, |assumptions, share| {
            assumptions.silent = share.0
        })?;
        self.apply_option("fail-undo", &all.fail_undo, has_undo, |assumptions, share| {
            assumptions.fail_undo = share.0;
        })?;
        self.apply_option("slow", &all.slow, can_fail, |assumptions, span| {
            assumptions.slow = span.0
        })?;
        self.apply_option("down", &all.down, is_called, |assumptions, span| {
            assumptions.down = span.0
        })?;
        self.apply_option("answer", &all.answer, is_answered, |assumptions, span| {
            assumptions.answer = span.0
        })?;
        self.apply_option("output", &all.output, has_output, |assumptions, value| {
            assumptions.output = SampleValue::Given(value.0.clone());
        })
    }

    /// Applies one option. A value for one step overrides a value for all steps.
    fn apply_option<T>(
        &mut self,
        option: &'static str,
        option_values: &[StepOption<T>],
        applies: fn(&Self, &StepDefinition) -> Result<(), String>,
        set: impl Fn(&mut StepAssumptions, &T),
    ) -> Result<(), ForecastError> {
        for option_value in
            option_values.iter().filter(|option_value| option_value.at == StepSelector::All)
        {
            let applicable = self.all_steps().filter(|(_, step)| applies(self, step).is_ok());
            for key in applicable.map(|(key, _)| key).collect::<Vec<_>>() {
                self.step_assumptions
                    .entry(key)
                    .and_modify(|assumptions| set(assumptions, &option_value.value));
            }
        }
        for option_value in option_values {
            let StepSelector::Step(name) = &option_value.at else { continue };
            let found = self.all_steps().find(|(key, _)| self.label(key) == *name);
            let (key, step) =
                found.ok_or_else(|| self.unknown_step(option, &option_value.at, name))?;
            applies(self, step).map_err(|why| {
                let at = option_value.at.clone();
                ForecastError::DoesNotApply { option, at, why }
            })?;
            self.step_assumptions
                .entry(key)
                .and_modify(|assumptions| set(assumptions, &option_value.value));
        }
        Ok(())
    }

    /// Limits the heartbeats, since each is a simulated message.
    fn check_heartbeats(&self) -> Result<(), ForecastError> {
        for (key, step) in self.all_steps() {
            let heartbeat = step.callback.as_ref().and_then(|callback| callback.heartbeat);
            let answer = self.step_assumptions.get(&key).map(|assumptions| assumptions.answer);
            let (Some(heartbeat), Some(answer)) = (heartbeat, answer) else { continue };
            let count = answer.as_millis() / (heartbeat / 2).as_millis().max(1);
            if count > HEARTBEATS_MAX {
                let why = format!("this takes {count} heartbeats; the maximum is {HEARTBEATS_MAX}");
                let at = StepSelector::Step(self.label(&key));
                return Err(ForecastError::DoesNotApply { option: "answer", at, why });
            }
        }
        Ok(())
    }

    fn unknown_step(&self, option: &'static str, at: &StepSelector, name: &str) -> ForecastError {
        let known: Vec<_> = self.all_steps().map(|(key, _)| self.label(&key)).collect();
        let similar = known.iter().map(|other| (strsim::jaro_winkler(name, other), other));
        let nearest = similar.max_by(|(one, _), (other, _)| one.total_cmp(other));
        let meant = nearest.filter(|(similarity, _)| *similarity >= SIMILARITY_MIN);
        let hint = meant.map(|(_, other)| format!("; did you mean `{other}`?"));
        let (known, hint) = (known.join(", "), hint.unwrap_or_default());
        ForecastError::UnknownStep { option, at: at.clone(), known, hint }
    }
}

fn assumptions(step: &StepDefinition) -> StepAssumptions {
    let tenth = step.callback.as_ref().map_or(ANSWER, |callback| callback.within / 10);
    StepAssumptions {
        fail: 0.0,
        flaky: 0.0,
        silent: 0.0,
        fail_undo: 0.0,
        slow: LATENCY,
        down: Duration::ZERO,
        answer: ANSWER.min(tenth),
        output: SampleValue::default(),
    }
}

/// Checks that a step has attempts that may fail.
fn can_fail(plan: &ForecastPlan, step: &StepDefinition) -> Result<(), String> {
    match step.work() {
        Some(StepWork::Wait(_) | StepWork::Event(_)) | None => {
            Err("this step is a wait".to_owned())
        }
        Some(StepWork::Child(child)) if plan.workflow(&child.name).is_some() => Err(format!(
            "the workflow of this step is given: apply the option to one of its steps, as {}.STEP",
            child.name
        )),
        Some(StepWork::Child(_) | StepWork::Call { .. }) => Ok(()),
    }
}

fn has_output(plan: &ForecastPlan, step: &StepDefinition) -> Result<(), String> {
    match step.work() {
        Some(StepWork::Event(_)) => Ok(()),
        Some(StepWork::Wait(_) | StepWork::Call { .. } | StepWork::Child(_)) | None => {
            can_fail(plan, step)
        }
    }
}

fn is_called(_: &ForecastPlan, step: &StepDefinition) -> Result<(), String> {
    match step.work() {
        Some(StepWork::Call { .. }) => Ok(()),
        Some(StepWork::Wait(_) | StepWork::Event(_) | StepWork::Child(_)) | None => {
            Err("this step calls no service".to_owned())
        }
    }
}

fn has_undo(plan: &ForecastPlan, step: &StepDefinition) -> Result<(), String> {
    can_fail(plan, step)?;
    step.action(Action::Undo).map(|_| ()).ok_or_else(|| "this step has no undo".to_owned())
}

fn is_answered(_: &ForecastPlan, step: &StepDefinition) -> Result<(), String> {
    step.callback.as_ref().map(|_| ()).ok_or_else(|| "this step has no callback".to_owned())
}
