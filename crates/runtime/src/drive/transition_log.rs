//! The log line of a transition.

use steward_core::{
    engine::event::Event,
    model::{
        names::TaskId,
        task::{ProcessState, Task},
    },
};

/// The fields of the log line of one transition. They are collected before the save, and logged after it.
pub(super) struct TransitionLogLine {
    task_id: TaskId,
    workflow: String,
    step: String,
    /// `None` if the event is of no attempt.
    attempt: Option<u32>,
    event: &'static str,
    /// The agent whose reply the event is.
    agent: Option<String>,
    from: String,
    to: String,
    revision: u64,
    state: ProcessState,
}

impl TransitionLogLine {
    pub(super) fn new(before: &Task, after: &Task, event: &Event) -> Self {
        let (step, attempt) =
            event.part_and_attempt().map_or((None, None), |(step, attempt)| (Some(step), attempt));
        let state = |task: &Task| match step.and_then(|step| task.record(step)) {
            Some(record) => record.name().to_owned(),
            None => task.process_state.to_string(),
        };
        Self {
            task_id: after.task_id.clone(),
            workflow: after.workflow.to_string(),
            step: step.map(ToString::to_string).unwrap_or_default(),
            attempt,
            event: event.name(),
            agent: event.agent().map(ToString::to_string),
            from: state(before),
            to: state(after),
            revision: after.revision,
            state: after.process_state,
        }
    }

    pub(super) fn log(&self) {
        let Self { task_id, workflow, step, attempt, event, agent, from, to, revision, state } =
            self;
        tracing::info!(
            %task_id, workflow, step, attempt, event, agent, from, to, revision, process_state = %state,
            "task transition"
        );
    }
}
