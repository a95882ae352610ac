//! One case of the analysis: a variant of the workflow, with one or two failures.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde::Serialize;
use steward_core::{
    definition::{step::StepDefinition, workflow::Workflow},
    model::{
        attempt::Action,
        events::BusEvent,
        names::{Part, StepName},
        step::StepState,
        task::{ProcessState, Task},
    },
};
use steward_forecast::cost::{
    ForecastError,
    scripted::{LogItem, ScriptedPlan, ScriptedRun},
};

use super::{
    fault::{Fault, Site},
    run_task::run_task,
    service::{FaultyServices, Observed, PlannedFault},
    variants::Variant,
};

/// A failure, by the name of its step.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct NamedFault {
    /// The step: `charge`, or `packing.pack` for a step of a child workflow.
    pub step: String,
    /// Whether the step or its undo fails.
    pub action: Action,
    /// How it fails.
    pub fault: Fault,
}

/// What a task does if these failures occur.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FailureCase {
    /// The number of the variant, from 0.
    pub variant: usize,
    /// The failures: one or two.
    pub faults: Vec<NamedFault>,
    /// The final state of the task.
    pub state: String,
    /// Why it is in that state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The steps, or items, whose side effects exist at the end although the task is not Processed.
    pub left_behind: Vec<String>,
    /// The steps, or items, whose side effect exists more than once at the end.
    pub more_than_once: Vec<String>,
    /// The steps that have not run, although the task can no longer be undone.
    pub not_done: Vec<String>,
    /// The alerts, by name.
    pub alerts: Vec<&'static str>,
    /// The longest time from the first failed call to the alert that the task needs an operator, in milliseconds. Absent if
    /// there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alerted_within_ms: Option<u64>,
    /// The time from the submission to the end of the task, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<u64>,
    /// What a million such tasks cost, in dollars.
    pub dollars_per_million: f64,
    /// The places that were called.
    #[serde(skip)]
    pub(super) called: BTreeSet<Site>,
    /// Whether each failure occurred.
    #[serde(skip)]
    pub(super) all_occurred: bool,
}

impl FailureCase {
    /// Whether the task ends as Undone, without an alert, and side effects remain.
    #[must_use]
    pub fn leaves_effects_unnoticed(&self) -> bool {
        self.state == "Undone" && !self.left_behind.is_empty()
    }

    /// Whether the task stops, and an operator has to decide.
    #[must_use]
    pub fn needs_operator(&self) -> bool {
        self.state == "Error"
    }
}

/// Runs one case. Each sweep of the supervisor may come `sweep_every` later than in the run.
pub(super) fn run_case(
    plan: &ScriptedPlan,
    workflows: &[Workflow],
    sweep_every: Duration,
    variant: (usize, &Variant),
    faults: &[PlannedFault],
    label: impl Fn(&Site) -> String,
) -> Result<FailureCase, ForecastError> {
    let (number, variant) = variant;
    let services =
        FaultyServices::new(workflows.to_vec(), faults.to_vec(), variant.outputs.clone());
    let (run, observed) = run_task(plan, variant.seed, services)?;
    let state = run.task.as_ref().map(|task| task.process_state.to_string()).unwrap_or_default();
    let mut times: BTreeMap<String, usize> = BTreeMap::new();
    let mut need_undo = BTreeSet::new();
    for (workflow, Part { step, item }) in &run.effects {
        let definition = workflows.iter().find(|found| found.name == *workflow);
        let definition = definition.and_then(|workflow| workflow.steps.get(step));
        let runs_child = definition.is_some_and(|step| step.workflow.is_some());
        if !runs_child && !definition.is_some_and(StepDefinition::has_side_effect) {
            continue;
        }
        let (workflow, step) = (workflow.clone(), step.clone());
        let label = label(&Site { workflow, step, action: Action::Do });
        let label = item.map_or(label.clone(), |item| format!("{label}[{item}]"));
        if runs_child || definition.is_some_and(StepDefinition::needs_undo) {
            need_undo.insert(label.clone());
        }
        *times.entry(label).or_default() += 1;
    }
    let is_processed = state == "Processed";
    let left_behind = need_undo.into_iter().filter(|_| !is_processed).collect();
    let more_than_once = times.into_iter().filter(|(_, times)| *times > 1);
    let (alerts, alerted) = alerts(&run, &observed, sweep_every);
    Ok(FailureCase {
        variant: number,
        faults: named(faults, label),
        reason: run
            .task
            .as_ref()
            .and_then(|task| task.error.clone().or_else(|| task.undo_reason.clone())),
        not_done: run.task.as_ref().map(|task| not_done(task, workflows)).unwrap_or_default(),
        left_behind,
        more_than_once: more_than_once.map(|(label, _)| label).collect(),
        alerts,
        alerted_within_ms: alerted.map(millis),
        took_ms: run.took.map(millis),
        dollars_per_million: run.dollars_per_million.total,
        called: observed.called.keys().cloned().collect(),
        all_occurred: faults.iter().all(|planned| observed.occurred.contains(&planned.site)),
        state,
    })
}

/// The failures, by the names of their steps.
pub(super) fn named(faults: &[PlannedFault], label: impl Fn(&Site) -> String) -> Vec<NamedFault> {
    let named = faults.iter().map(|planned| NamedFault {
        step: label(&planned.site),
        action: planned.site.action,
        fault: planned.fault,
    });
    named.collect()
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The names of the alerts, and the longest time until the first one.
fn alerts(
    run: &ScriptedRun,
    observed: &Observed,
    sweep_every: Duration,
) -> (Vec<&'static str>, Option<Duration>) {
    let name = |event: &BusEvent| {
        let name = event.operator_event()?.data.name();
        (!matches!(name, "breaker_closed" | "operator_command" | "operator_redrive"))
            .then_some(name)
    };
    let alerts = run.log.iter().filter_map(|entry| {
        let LogItem::Published(event) = &entry.item else { return None };
        Some((entry.at, name(event)?))
    });
    let alerts: Vec<_> = alerts.collect();
    let since = observed.first_fault.unwrap_or_default();
    // A breaker that opens says something about a service, not about this task.
    let of_task = |name: &str| matches!(name, "task_in_error" | "undo_failed");
    let first = alerts.iter().find(|(at, name)| *at >= since && of_task(name)).map(|(at, _)| *at);
    let longest = first.map(|at| at.saturating_sub(since) + sweep_every * run.sweeps);
    (alerts.into_iter().map(|(_, name)| name).collect(), longest)
}

/// The other steps that are not done in a task that stopped after its point of no return completed, or may have run.
fn not_done(task: &Task, workflows: &[Workflow]) -> Vec<String> {
    let Some(workflow) = workflows.iter().find(|workflow| workflow.name == task.workflow) else {
        return Vec::new();
    };
    let is_completed = |name: &StepName| {
        task.steps.get(name).is_some_and(|record| {
            matches!(record.forward.state, StepState::Completed { .. } | StepState::Skipped { .. })
        })
    };
    let may_have_run = |name: &StepName| {
        task.steps.get(name).is_some_and(|record| {
            record.part_spans(name).any(|(_, part)| part.forward.may_have_run)
        })
    };
    let has_passed = |(name, step): &(&StepName, &StepDefinition)| {
        step.point_of_no_return && (is_completed(name) || may_have_run(name))
    };
    let Some((passed, _)) = workflow.steps.iter().find(has_passed) else { return Vec::new() };
    if task.process_state != ProcessState::Error {
        return Vec::new();
    }
    let open = workflow.steps.keys().filter(|name| *name != passed && !is_completed(name));
    open.map(ToString::to_string).collect()
}
