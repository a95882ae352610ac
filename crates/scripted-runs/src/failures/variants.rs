//! The variants of a workflow: which of its conditional steps run. Conditions depend on the input and on the outputs of
//! steps, so the analysis runs the workflow without failures, with several generated values.

use std::collections::{BTreeMap, BTreeSet, btree_map::Entry};

use serde_json::Value;
use steward_core::{
    definition::workflow::Workflow,
    model::{names::StepName, step::StepState, task::ProcessState},
};
use steward_forecast::cost::{
    ForecastError,
    scripted::{ScriptedPlan, ScriptedRun},
};

use super::{
    fault::Site,
    run_task::run_task,
    service::{FaultyServices, Observed},
};

/// How many times the values of a workflow are generated. With n independent conditions there are 2ⁿ variants.
const DRAWS: u64 = 32;

/// How many times the values are generated: once, if the same calls are made with all of them.
fn draws(workflows: &[Workflow]) -> u64 {
    let mut steps = workflows.iter().flat_map(|workflow| workflow.steps.values());
    match steps.any(|step| step.when.is_some() || step.for_each.is_some()) {
        true => DRAWS,
        false => 1,
    }
}

/// A run without failures.
#[derive(Debug, Clone)]
pub(super) struct Variant {
    pub(super) seed: u64,
    /// The steps that were skipped.
    pub(super) skipped: BTreeSet<String>,
    /// The calls, with the highest item of each step.
    pub(super) called: BTreeMap<Site, Option<u32>>,
    pub(super) outputs: BTreeMap<Site, Value>,
    pub(super) took_ms: u64,
    pub(super) dollars_per_million: f64,
}

/// Why a workflow cannot be analysed.
#[derive(Debug, thiserror::Error)]
pub enum AnalysisError {
    /// The forecast of a run failed.
    #[error(transparent)]
    Run(#[from] ForecastError),
    /// The task is not Processed although no service fails.
    #[error(
        "without a failure of a service the task ends as {state}: {reason}; give the values that it needs (--input, --output)"
    )]
    NotProcessed {
        /// The state of the task.
        state: String,
        /// Its reason.
        reason: String,
    },
}

/// The variants of a workflow, at most `most`, and how many more were found.
pub(super) fn find(
    plan: &ScriptedPlan,
    workflows: &[Workflow],
    most: usize,
) -> Result<(Vec<Variant>, usize), AnalysisError> {
    let mut found: BTreeMap<Vec<Site>, Variant> = BTreeMap::new();
    let (mut order, mut not_processed) = (Vec::new(), None);
    for seed in 0..draws(workflows) {
        let services = FaultyServices::new(workflows.to_vec(), Vec::new(), BTreeMap::new());
        let (run, observed) = run_task(plan, seed, services)?;
        let is_meant = ends_by_its_definition(&run, workflows);
        let variant = match variant(seed, &run, observed) {
            Err(error) if is_meant => {
                not_processed = Some(error);
                continue;
            }
            variant => variant?,
        };
        let key: Vec<_> = variant.called.keys().cloned().collect();
        if let Entry::Vacant(entry) = found.entry(key) {
            order.push(entry.key().clone());
            entry.insert(variant);
        }
    }
    if let Some(error) = not_processed.filter(|_| order.is_empty()) {
        return Err(error);
    }
    let cut = order.len().saturating_sub(most);
    let kept = order.iter().take(most);
    Ok((kept.filter_map(|key| found.remove(key)).collect(), cut))
}

/// Whether the task ended because of a step that only fails: values of other runs lead elsewhere.
fn ends_by_its_definition(run: &ScriptedRun, workflows: &[Workflow]) -> bool {
    let Some(task) = &run.task else { return false };
    let workflow = workflows.iter().find(|workflow| workflow.name == task.workflow);
    let only_fails = |name: &StepName| {
        workflow.and_then(|of| of.steps.get(name)).is_some_and(|step| step.fail.is_some())
    };
    let mut failed = task.steps.iter().filter(|(_, record)| record.forward.state.is_failed());
    failed.any(|(name, _)| only_fails(name))
}

fn variant(seed: u64, run: &ScriptedRun, observed: Observed) -> Result<Variant, AnalysisError> {
    let task = run.task.as_ref();
    let state = task.map_or("Refused".to_owned(), |task| task.process_state.to_string());
    let processed = task.filter(|task| task.process_state == ProcessState::Processed);
    let Some(task) = processed else {
        let reason = run.refused.clone().or_else(|| {
            task.and_then(|task| task.error.clone().or_else(|| task.undo_reason.clone()))
        });
        return Err(AnalysisError::NotProcessed { state, reason: reason.unwrap_or_default() });
    };
    let skipped = task.steps.iter();
    let skipped =
        skipped.filter(|(_, record)| matches!(record.forward.state, StepState::Skipped { .. }));
    Ok(Variant {
        seed,
        skipped: skipped.map(|(name, _)| name.to_string()).collect(),
        called: observed.called,
        outputs: observed.outputs,
        took_ms: run.took.map_or(0, |took| took.as_millis() as u64),
        dollars_per_million: run.dollars_per_million.total,
    })
}
