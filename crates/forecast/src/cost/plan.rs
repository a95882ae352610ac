//! What is assumed, resolved: how each step of each workflow fares, and what it returns.

use std::{collections::BTreeMap, time::Duration};

use steward_core::{
    definition::{
        step::{StepDefinition, Work},
        workflow::Workflow,
    },
    model::{
        attempt::Action,
        names::{StepName, WorkflowName},
    },
};

use super::{
    odds::{At, Said},
    prices::Prices,
    sample::{self, Sample},
    settings::{BATCH_MAX, ForecastError, RUNS_MAX, Settings},
};
use steward_testkit::memory::MemoryDefinitions;

/// How long a call takes on average unless it is said.
const LATENCY: Duration = Duration::from_millis(100);

/// How long an answer takes on average unless it is said; or a tenth of what the step allows.
const ANSWER: Duration = Duration::from_secs(60);

/// Heartbeats until an answer, on average.
const HEARTBEATS_MAX: u128 = 1_000;

/// How alike two names must be for one to be meant by the other.
const ALIKE: f64 = 0.6;

/// A step of a workflow.
pub(super) type StepKey = (WorkflowName, StepName);

/// How a step fares.
#[derive(Debug, Clone)]
pub(super) struct Temper {
    pub(super) fail: f64,
    pub(super) flaky: f64,
    pub(super) silent: f64,
    pub(super) fail_undo: f64,
    pub(super) slow: Duration,
    pub(super) down: Duration,
    pub(super) answer: Duration,
    pub(super) output: Sample,
}

/// Everything that a run goes by.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) settings: Settings,
    pub(super) prices: Prices,
    pub(super) input: Sample,
    pub(super) tempers: BTreeMap<StepKey, Temper>,
    /// The workflows, published once for all runs.
    pub(super) definitions: MemoryDefinitions,
}

impl Plan {
    pub(super) fn new(settings: Settings) -> Result<Self, ForecastError> {
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
                return Err(ForecastError::Twice(workflow.name.to_string()));
            }
            names.push(&workflow.name);
        }
        let definitions = MemoryDefinitions::default();
        for workflow in std::iter::once(&settings.workflow).chain(&settings.with) {
            definitions.publish(workflow).map_err(|error| {
                ForecastError::Definition(workflow.name.to_string(), error.to_string())
            })?;
        }
        let input = sample::input(&settings);
        let (prices, tempers) = (Prices::listed()?, BTreeMap::new());
        let mut plan = Self { input, prices, tempers, definitions, settings };
        plan.tempers = plan.all_steps().map(|(key, step)| (key, temper(step))).collect();
        plan.make_outputs();
        plan.say()?;
        plan.count_heartbeats()?;
        sample::check(&plan)?;
        Ok(plan)
    }

    /// The workflow that is forecast, then those that its steps run.
    pub(super) fn workflows(&self) -> impl Iterator<Item = &Workflow> {
        std::iter::once(&self.settings.workflow).chain(&self.settings.with)
    }

    /// A workflow that is run.
    pub(super) fn workflow(&self, name: &WorkflowName) -> Option<&Workflow> {
        self.workflows().find(|workflow| workflow.name == *name)
    }

    pub(super) fn all_steps(&self) -> impl Iterator<Item = (StepKey, &StepDefinition)> {
        self.workflows().flat_map(|workflow| {
            let steps = workflow.steps.iter();
            steps.map(|(name, step)| ((workflow.name.clone(), name.clone()), step))
        })
    }

    pub(super) fn step(&self, key: &StepKey) -> Option<&StepDefinition> {
        self.workflow(&key.0)?.steps.get(&key.1)
    }

    /// A step as people say it here: `charge`, or `delivery.pack` of another workflow.
    pub(super) fn label(&self, (workflow, step): &StepKey) -> String {
        match *workflow == self.settings.workflow.name {
            true => step.to_string(),
            false => format!("{workflow}.{step}"),
        }
    }

    /// A workflow's task beside its steps, as people say it here.
    pub(super) fn task_label(&self, workflow: &WorkflowName) -> String {
        match *workflow == self.settings.workflow.name {
            true => "the task".to_owned(),
            false => format!("the task of {workflow}"),
        }
    }

    fn make_outputs(&mut self) {
        let outputs: Vec<_> = self.workflows().flat_map(sample::outputs).collect();
        for (key, output) in outputs {
            if let Some(temper) = self.tempers.get_mut(&key) {
                temper.output = output;
            }
        }
    }

    /// Takes in what is said of steps.
    fn say(&mut self) -> Result<(), ForecastError> {
        let all = self.settings.clone();
        self.each("fail", &all.fail, can_fail, |temper, share| temper.fail = share.0)?;
        self.each("flaky", &all.flaky, is_called, |temper, share| temper.flaky = share.0)?;
        self.each("silent", &all.silent, can_fail, |temper, share| temper.silent = share.0)?;
        self.each("fail-undo", &all.fail_undo, has_undo, |temper, share| {
            temper.fail_undo = share.0;
        })?;
        self.each("slow", &all.slow, can_fail, |temper, span| temper.slow = span.0)?;
        self.each("down", &all.down, is_called, |temper, span| temper.down = span.0)?;
        self.each("answer", &all.answer, is_answered, |temper, span| temper.answer = span.0)?;
        self.each("output", &all.output, can_fail, |temper, value| {
            temper.output = Sample::Given(value.0.clone());
        })
    }

    /// What is said of one step counts more than what is said of all.
    fn each<T>(
        &mut self,
        option: &'static str,
        said: &[Said<T>],
        fits: fn(&Self, &StepDefinition) -> Result<(), String>,
        set: impl Fn(&mut Temper, &T),
    ) -> Result<(), ForecastError> {
        for said in said.iter().filter(|said| said.at == At::All) {
            let fit = self.all_steps().filter(|(_, step)| fits(self, step).is_ok());
            for key in fit.map(|(key, _)| key).collect::<Vec<_>>() {
                self.tempers.entry(key).and_modify(|temper| set(temper, &said.value));
            }
        }
        for said in said {
            let At::Step(name) = &said.at else { continue };
            let found = self.all_steps().find(|(key, _)| self.label(key) == *name);
            let (key, step) = found.ok_or_else(|| self.unknown(option, &said.at, name))?;
            fits(self, step).map_err(|why| {
                let at = said.at.clone();
                ForecastError::Senseless { option, at, why }
            })?;
            self.tempers.entry(key).and_modify(|temper| set(temper, &said.value));
        }
        Ok(())
    }

    /// Each heartbeat is a message.
    fn count_heartbeats(&self) -> Result<(), ForecastError> {
        for (key, step) in self.all_steps() {
            let heartbeat = step.callback.as_ref().and_then(|callback| callback.heartbeat);
            let answer = self.tempers.get(&key).map(|temper| temper.answer);
            let (Some(heartbeat), Some(answer)) = (heartbeat, answer) else { continue };
            let count = answer.as_millis() / (heartbeat / 2).as_millis().max(1);
            if count > HEARTBEATS_MAX {
                let why = format!("that takes {count} heartbeats; the limit is {HEARTBEATS_MAX}");
                let at = At::Step(self.label(&key));
                return Err(ForecastError::Senseless { option: "answer", at, why });
            }
        }
        Ok(())
    }

    fn unknown(&self, option: &'static str, at: &At, name: &str) -> ForecastError {
        let known: Vec<_> = self.all_steps().map(|(key, _)| self.label(&key)).collect();
        let alike = known.iter().map(|other| (strsim::jaro_winkler(name, other), other));
        let nearest = alike.max_by(|(one, _), (other, _)| one.total_cmp(other));
        let meant = nearest.filter(|(likeness, _)| *likeness >= ALIKE);
        let hint = meant.map(|(_, other)| format!("; did you mean `{other}`?"));
        let (known, hint) = (known.join(", "), hint.unwrap_or_default());
        ForecastError::UnknownStep { option, at: at.clone(), known, hint }
    }
}

fn temper(step: &StepDefinition) -> Temper {
    let tenth = step.callback.as_ref().map_or(ANSWER, |callback| callback.within / 10);
    Temper {
        fail: 0.0,
        flaky: 0.0,
        silent: 0.0,
        fail_undo: 0.0,
        slow: LATENCY,
        down: Duration::ZERO,
        answer: ANSWER.min(tenth),
        output: Sample::default(),
    }
}

/// Whether there is an attempt that chance decides over.
fn can_fail(plan: &Plan, step: &StepDefinition) -> Result<(), String> {
    match step.work() {
        Some(Work::Wait(_)) | None => Err("the step only waits".to_owned()),
        Some(Work::Child(child)) if plan.workflow(&child.name).is_some() => Err(format!(
            "the step's workflow is run: say it of a step of its own, as {}.STEP",
            child.name
        )),
        Some(Work::Child(_) | Work::Call { .. }) => Ok(()),
    }
}

fn is_called(_: &Plan, step: &StepDefinition) -> Result<(), String> {
    match step.work() {
        Some(Work::Call { .. }) => Ok(()),
        Some(Work::Wait(_) | Work::Child(_)) | None => Err("the step calls no service".to_owned()),
    }
}

fn has_undo(plan: &Plan, step: &StepDefinition) -> Result<(), String> {
    can_fail(plan, step)?;
    step.action(Action::Undo).map(|_| ()).ok_or_else(|| "the step has no undo".to_owned())
}

fn is_answered(_: &Plan, step: &StepDefinition) -> Result<(), String> {
    step.callback.as_ref().map(|_| ()).ok_or_else(|| "the step has no callback".to_owned())
}
