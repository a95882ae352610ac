//! The settings and errors of a forecast.

use std::time::Duration;

use serde_json::Value;
use steward_core::{definition::workflow::Workflow, limits};

use super::step_options::{DurationValue, Json, Share, StepOption, StepSelector};

/// The default number of runs.
pub const RUNS: u32 = 10_000;

/// The largest number of runs: all results are kept in memory until the last run is done.
pub const RUNS_MAX: u32 = 100_000;

/// The largest number of messages that share a request and an invocation: the limit of SQS, and the batch size in
/// `template.yaml`.
pub const BATCH_MAX: u32 = 10;

/// What a forecast assumes about a workflow, its services and its callers.
#[derive(Debug, Clone)]
pub struct ForecastSettings {
    /// The workflow.
    pub workflow: Workflow,
    /// The workflows of its child tasks, direct and indirect. A child workflow that is not given counts as a call.
    pub with: Vec<Workflow>,
    /// How many tasks to run.
    pub runs: u32,
    /// The seed of all random choices.
    pub seed: u64,
    /// How many messages share a request and an invocation.
    pub batch: u32,
    /// How long an agent's call may take before the agent cuts it.
    pub call_timeout: Duration,
    /// The input of the tasks; generated if absent.
    pub input: Option<Value>,
    /// The outputs of steps; generated if absent. For a step with items, the output of each item.
    pub output: Vec<StepOption<Json>>,
    /// The share of attempts that fail permanently.
    pub fail: Vec<StepOption<Share>>,
    /// The share of calls that fail, and may succeed when they are repeated.
    pub flaky: Vec<StepOption<Share>>,
    /// The share of attempts that are never answered.
    pub silent: Vec<StepOption<Share>>,
    /// The share of undo attempts that fail permanently.
    pub fail_undo: Vec<StepOption<Share>>,
    /// The average duration of a call.
    pub slow: Vec<StepOption<DurationValue>>,
    /// How long after the submission the service refuses every call.
    pub down: Vec<StepOption<DurationValue>>,
    /// The average time until the callback of a step is answered.
    pub answer: Vec<StepOption<DurationValue>>,
}

impl ForecastSettings {
    /// Settings without failures.
    #[must_use]
    pub fn new(workflow: Workflow) -> Self {
        Self {
            workflow,
            with: Vec::new(),
            runs: RUNS,
            seed: 0,
            batch: BATCH_MAX,
            call_timeout: limits::CALL_WITHIN_MAX,
            input: None,
            output: Vec::new(),
            fail: Vec::new(),
            flaky: Vec::new(),
            silent: Vec::new(),
            fail_undo: Vec::new(),
            slow: Vec::new(),
            down: Vec::new(),
            answer: Vec::new(),
        }
    }
}

/// The reason why a forecast failed.
#[derive(Debug, thiserror::Error)]
pub enum ForecastError {
    /// An option names a step that does not exist.
    #[error("--{option} {at}: this step does not exist; the steps are {known}{hint}")]
    UnknownStep {
        /// The option.
        option: &'static str,
        /// The step in the option.
        at: StepSelector,
        /// The existing steps.
        known: String,
        /// The most similar step, as a question.
        hint: String,
    },
    /// An option does not apply to its step.
    #[error("--{option} {at}: {why}")]
    DoesNotApply {
        /// The option.
        option: &'static str,
        /// The step in the option.
        at: StepSelector,
        /// Why it does not apply.
        why: String,
    },
    /// A number is outside its limits.
    #[error("--{option}: must be from 1 to {max}")]
    OutOfLimits {
        /// The option.
        option: &'static str,
        /// The upper limit.
        max: u32,
    },
    /// A workflow is given twice.
    #[error("--with: workflow `{0}` is given twice")]
    GivenTwice(String),
    /// The input does not match the workflow's schema.
    #[error("{whose} of workflow `{workflow}`: {reason}; use --input JSON")]
    Input {
        /// Which input: given or generated.
        whose: &'static str,
        /// The workflow.
        workflow: String,
        /// What is wrong.
        reason: String,
    },
    /// No task was Processed, so there is no successful task whose demand could be counted.
    #[error("no simulated task of workflow `{workflow}` was Processed: {reason}")]
    NoneProcessed {
        /// The workflow.
        workflow: String,
        /// The most frequent reason why a task was not Processed.
        reason: String,
    },
    /// An expression has no value for the input and the outputs of the steps.
    #[error("{workflow}: {at}: {reason}; use {options}")]
    Expression {
        /// The workflow.
        workflow: String,
        /// The location of the expression, as `steps.charge.when`.
        at: String,
        /// What is wrong.
        reason: String,
        /// The options that provide the missing values.
        options: String,
    },
    /// A definition is invalid.
    #[error("the definition of `{0}` is invalid: {1}")]
    Definition(String, String),
    /// The list of prices cannot be parsed.
    #[error("the list of prices: {0}")]
    Prices(String),
    /// A task was refused.
    #[error("run {run}: the task was refused: {reason}")]
    Refused {
        /// Which run.
        run: u32,
        /// Why.
        reason: String,
    },
    /// A task did not end.
    #[error("run {run}: the task had not ended after {days} days")]
    NotEnded {
        /// Which run.
        run: u32,
        /// How many days were simulated.
        days: u64,
    },
    /// The forecast itself failed.
    #[error("run {run}: {reason}")]
    Failed {
        /// Which run.
        run: u32,
        /// What happened.
        reason: String,
    },
}
