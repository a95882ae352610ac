//! What a forecast is asked to assume.

use std::time::Duration;

use serde_json::Value;
use steward_core::{definition::workflow::Workflow, limits};

use super::odds::{At, Json, Said, Share, Span};

/// Runs unless said otherwise...
pub const RUNS: u32 = 10_000;

/// ...and at most: each is kept until all are done.
pub const RUNS_MAX: u32 = 100_000;

/// Messages that share a request and an invocation, at most: SQS's limit, and what `template.yaml`
/// says.
pub const BATCH_MAX: u32 = 10;

/// What is assumed of a workflow's world.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The workflow.
    pub workflow: Workflow,
    /// The workflows that its steps run, and theirs. One that is not here is taken as a call.
    pub with: Vec<Workflow>,
    /// How many tasks to run.
    pub runs: u32,
    /// What chance begins with.
    pub seed: u64,
    /// How many messages share a request and an invocation.
    pub batch: u32,
    /// How long an agent's call may take before it is made again.
    pub call_timeout: Duration,
    /// What is submitted; made up if absent.
    pub input: Option<Value>,
    /// What steps return; made up if absent. Of a step with items, what each of them returns.
    pub output: Vec<Said<Json>>,
    /// Attempts that fail for good.
    pub fail: Vec<Said<Share>>,
    /// Calls that fail and may succeed when they are made again.
    pub flaky: Vec<Said<Share>>,
    /// Attempts that nobody answers.
    pub silent: Vec<Said<Share>>,
    /// Attempts at the undo that fail for good.
    pub fail_undo: Vec<Said<Share>>,
    /// How long a call takes on average.
    pub slow: Vec<Said<Span>>,
    /// For how long after the submission the service refuses every call.
    pub down: Vec<Said<Span>>,
    /// How long the answer takes to a step that its call only begins, on average.
    pub answer: Vec<Said<Span>>,
}

impl Settings {
    /// A world in which nothing goes wrong.
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

/// Why there is no forecast.
#[derive(Debug, thiserror::Error)]
pub enum ForecastError {
    /// Something is said of a step that does not exist.
    #[error("--{option} {at}: there is no such step; there are {known}{hint}")]
    UnknownStep {
        /// The option.
        option: &'static str,
        /// What was said.
        at: At,
        /// The steps that there are.
        known: String,
        /// What may have been meant.
        hint: String,
    },
    /// Something is said of a step that it cannot be said of.
    #[error("--{option} {at}: {why}")]
    Senseless {
        /// The option.
        option: &'static str,
        /// What was said.
        at: At,
        /// Why it makes no sense.
        why: String,
    },
    /// A number is out of its limits.
    #[error("--{option}: must be from 1 to {max}")]
    OutOfLimits {
        /// The option.
        option: &'static str,
        /// The upper limit.
        max: u32,
    },
    /// A workflow is given twice.
    #[error("--with: workflow `{0}` is there twice")]
    Twice(String),
    /// The input is not what the workflow's schema wants.
    #[error("{whose} of workflow `{workflow}`: {reason}; say it with --input JSON")]
    Input {
        /// Whether it was given or made up.
        whose: &'static str,
        /// The workflow.
        workflow: String,
        /// What is wrong.
        reason: String,
    },
    /// An expression has no value over the input and what the steps return.
    #[error("{workflow}: {at}: {reason}; say {say}")]
    Expression {
        /// The workflow.
        workflow: String,
        /// Where the expression stands, as `steps.charge.when`.
        at: String,
        /// What is wrong.
        reason: String,
        /// Which options would help.
        say: String,
    },
    /// A definition cannot run.
    #[error("the definition of `{0}` cannot run: {1}")]
    Definition(String, String),
    /// The list of prices cannot be read.
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
    /// A task never came to rest.
    #[error("run {run}: the task was still open after {days} days")]
    Restless {
        /// Which run.
        run: u32,
        /// How long it was watched.
        days: u64,
    },
    /// The forecast itself failed.
    #[error("run {run}: {reason}")]
    Broken {
        /// Which run.
        run: u32,
        /// What happened.
        reason: String,
    },
}
