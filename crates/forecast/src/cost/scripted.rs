//! Runs of one task whose services follow a script: tests of a workflow, and the analysis of its failures.
//!
//! The simulation is that of the forecast: the real handlers of submission, scheduler, agents and supervisor on a virtual
//! clock, with counted ports. Only the services differ. A [`Script`] says what each of them answers to which call, and the
//! agent's own code decides what the answer means. Nothing is random except the jitter of pauses, which has a fixed seed.

use std::{sync::Arc, time::Duration};

use serde_json::Value;
use steward_core::model::{
    command::Command,
    messages::{SchedulerMessage, Submission},
    names::{Part, StepName, TaskId, WorkflowName},
    task::Task,
    time::later,
};
use steward_runtime::ports::StateStore;

use super::{
    delivery::REPLY_QUEUE,
    ledger::{CostAccounts, add_agents_time},
    plan::ForecastPlan,
    prices::{Dollars, TaskUsage},
    run::{RunLimits, run_until_idle},
    settings::{ForecastError, ForecastSettings},
    task_simulation::TaskSimulation,
};

pub(super) mod calls;
pub(super) mod script;
pub(super) mod services;

pub use script::{CallRecord, ChildCall, LogEntry, LogItem, Script, ScriptedCall, StepKeyRef};
use services::ScriptedServices;
pub use steward_test_world::service::{Body, CallPlan, KeyMemory, Millis, Reply};

/// A workflow, and those of its child tasks, that scripted runs use. It is made once for many runs.
#[derive(Debug, Clone)]
pub struct ScriptedPlan(Arc<ForecastPlan>);

/// What runs, and what happens to it from outside.
#[derive(Debug, Clone)]
pub struct ScriptedTask {
    /// The task's id. If absent, one of the length of a UUID: ids are part of every item's size, and so of the price.
    pub task_id: Option<TaskId>,
    /// The input. A generated one if absent.
    pub input: Option<Value>,
    /// Messages from outside the functions, each with its time after the submission.
    pub messages: Vec<(Duration, OutsideMessage)>,
    /// When the run stops. If absent, when all messages are handled and nothing is due.
    pub until: Option<Duration>,
    /// The seed of generated values and of the agents' jitter.
    pub seed: u64,
}

/// A message from outside the functions.
#[derive(Debug, Clone)]
pub enum OutsideMessage {
    /// An operator's command.
    Command(Box<Command>),
    /// An event on the event bus, as EventBridge delivers it, for the steps that wait for it.
    Event(Value),
}

/// What a run did.
#[derive(Debug, Clone)]
pub struct ScriptedRun {
    /// The task as it was recorded last. `None` if its submission was refused.
    pub task: Option<Task>,
    /// Why the submission was refused.
    pub refused: Option<String>,
    /// The side effects that are not undone: their parts of tasks, with the workflows. A part is there as often as it took effect.
    pub effects: Vec<(WorkflowName, Part)>,
    /// The log, in the order of time.
    pub log: Vec<LogEntry>,
    /// The time from the submission to the task's end, if it has ended.
    pub took: Option<Duration>,
    /// How often the supervisor swept, while something was due.
    pub sweeps: u32,
    /// What AWS bills for the task.
    pub usage: TaskUsage,
    /// What a million such tasks cost.
    pub dollars_per_million: Dollars,
}

impl ScriptedPlan {
    /// The plan for these workflows and values. Failure rates in `settings` have no effect. `has_body` says whether a
    /// step's service answers with bodies, from which the agent selects the output by the step's `output`; the others
    /// answer with outputs.
    ///
    /// # Errors
    /// A definition is invalid, a workflow is given twice, or an option names an unknown step.
    pub fn new(
        settings: ForecastSettings,
        has_body: impl Fn(&WorkflowName, &StepName) -> bool,
    ) -> Result<Self, ForecastError> {
        let plan = ForecastPlan::unchecked(settings, |(workflow, step)| has_body(workflow, step))?;
        Ok(Self(Arc::new(plan)))
    }

    /// Checks that each expression has a value for the given and generated values.
    ///
    /// # Errors
    /// The first expression without one.
    pub fn check_samples(&self) -> Result<(), ForecastError> {
        super::sample_check::check(&self.0)
    }

    /// The name of a step in scripts and reports: `charge`, or `delivery.pack` for a step of a child workflow.
    #[must_use]
    pub fn label(&self, step: &StepKeyRef<'_>) -> String {
        self.0.label(&(step.workflow.clone(), step.step.clone()))
    }

    /// Runs one task on this thread, in a new runtime. The caller must not be inside a runtime.
    ///
    /// # Errors
    /// The task does not end, or the simulation itself failed. A refused submission is no error.
    pub fn run(
        &self,
        task: &ScriptedTask,
        script: Arc<dyn Script>,
    ) -> Result<ScriptedRun, ForecastError> {
        // The pauses of the agents use the random generator of this thread.
        fastrand::seed(task.seed);
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build();
        let runtime =
            runtime.map_err(|error| ForecastError::Failed { run: 0, reason: error.to_string() })?;
        runtime.block_on(self.run_inside(task, script))
    }

    async fn run_inside(
        &self,
        task: &ScriptedTask,
        script: Arc<dyn Script>,
    ) -> Result<ScriptedRun, ForecastError> {
        let (mut simulation, waiting) = TaskSimulation::new(self.0.clone(), task.seed);
        simulation.scripted = Some(ScriptedServices::new(script));
        let simulation = Arc::new(simulation);
        let workflow = &self.0.settings.workflow;
        let generated = format!("{:08x}-f04e-4000-8000-000000000000", task.seed).parse();
        let task_id = task.task_id.clone().or(generated.ok()).ok_or_else(|| {
            ForecastError::Failed { run: 0, reason: "the task id is invalid".to_owned() }
        })?;
        let input = match &task.input {
            Some(input) => input.clone(),
            None => self.0.input.value("input", &mut simulation.state().draw),
        };
        simulation.submit(&Submission {
            task_id: task_id.clone(),
            workflow: workflow.name.clone(),
            version: Some(workflow.version),
            input,
            tenant: None,
            reply_to: Some(REPLY_QUEUE.to_owned()),
            parent: None,
            undo: false,
            attempt: None,
            has_begun: false,
            retention: None,
            rerun: None,
        });
        for (after, message) in &task.messages {
            send_outside(&simulation, *after, message);
        }
        let limits = RunLimits { run: 0, until: task.until };
        let sweeps = run_until_idle(&simulation, waiting, limits).await?;
        self.record(&simulation, &task_id, sweeps).await
    }

    async fn record(
        &self,
        simulation: &TaskSimulation,
        task_id: &TaskId,
        sweeps: u32,
    ) -> Result<ScriptedRun, ForecastError> {
        let loaded = simulation.memory.store.load(task_id).await;
        let task =
            loaded.map_err(|error| ForecastError::Failed { run: 0, reason: error.to_string() })?;
        let took = task.as_ref().and_then(|task| {
            let from = simulation.since_start(task.submitted_at);
            Some(simulation.since_start(task.ended_at?).saturating_sub(from))
        });
        let batch = self.0.settings.batch;
        let state = &mut *simulation.state();
        let mut accounts: CostAccounts = std::mem::take(&mut state.meter.accounts);
        add_agents_time(&mut accounts, &state.agents_took, batch);
        let mut usage = TaskUsage::default();
        accounts.values().for_each(|one| usage += *one);
        let mut log =
            simulation.scripted.as_ref().map(ScriptedServices::take_log).unwrap_or_default();
        log.sort_by_key(|entry| entry.at);
        Ok(ScriptedRun {
            task,
            refused: state.refused.clone(),
            effects: state.effects(),
            log,
            took,
            sweeps,
            usage,
            dollars_per_million: self.0.prices.of(&usage),
        })
    }
}

fn send_outside(simulation: &TaskSimulation, after: Duration, message: &OutsideMessage) {
    let scripted = simulation.scripted.as_ref();
    let log = |text: String| {
        if let Some(scripted) = scripted {
            scripted.log(after, LogItem::Sent(text));
        }
    };
    match message {
        OutsideMessage::Command(command) => {
            log(format!("{} by {}", command.action.describe(&[]), command.by));
            let issued_at = later(simulation.time(), after);
            let message =
                SchedulerMessage::Command(Command { issued_at, ..Command::clone(command) });
            simulation.send_command(&message, after);
        }
        OutsideMessage::Event(event) => {
            let text = |key: &str| event.get(key).and_then(Value::as_str).unwrap_or_default();
            log(format!("event {} from {}", text("detail-type"), text("source")));
            simulation.send_event(event.to_string(), after);
        }
    }
}
