//! Runs all single failures, then the pairs that can occur together.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use steward_core::{
    definition::workflow::Workflow,
    model::{attempt::Action, names::WorkflowName},
};
use steward_forecast::cost::{
    ForecastSettings,
    scripted::{ScriptedPlan, StepKeyRef},
};

pub use super::variants::AnalysisError;
use super::{
    cases::{FailureCase, run_case},
    fault::{Site, faults_of, without_jitter},
    findings,
    report::FailureReport,
    service::PlannedFault,
    variants::{self, Variant},
};
use crate::parallel::in_parallel;

/// The default limit of the number of cases.
pub const CASES_MAX: usize = 20_000;

/// The default limit of the number of variants.
pub const VARIANTS_MAX: usize = 8;

/// What is analysed.
#[derive(Debug, Clone)]
pub struct FailureSettings {
    /// The workflow, those of its child tasks, the input and the outputs. Failure rates have no effect.
    pub forecast: ForecastSettings,
    /// The largest number of cases. Single failures come first.
    pub cases_max: usize,
    /// The largest number of variants.
    pub variants_max: usize,
    /// Whether pairs of failures are analysed too.
    pub pairs: bool,
    /// The interval of the supervisor's sweeps.
    pub sweep_every: Duration,
}

impl FailureSettings {
    /// The whole analysis.
    #[must_use]
    pub fn new(forecast: ForecastSettings) -> Self {
        Self {
            forecast,
            cases_max: CASES_MAX,
            variants_max: VARIANTS_MAX,
            pairs: true,
            sweep_every: Duration::from_secs(10),
        }
    }
}

/// A case to run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct PlannedCase {
    variant: usize,
    faults: Vec<PlannedFault>,
}

/// Runs the analysis on all processors. `done` is called after each case. The caller must not be inside a runtime.
///
/// # Errors
/// A definition is invalid, an expression has no value for the generated values, or a task does not end.
pub fn analyse(
    settings: FailureSettings,
    done: &(dyn Fn() + Sync),
) -> Result<FailureReport, AnalysisError> {
    let FailureSettings { mut forecast, cases_max, variants_max, pairs, sweep_every } = settings;
    let (original, children) = (forecast.workflow.clone(), forecast.with.clone());
    forecast.workflow = without_jitter(&forecast.workflow);
    forecast.with = forecast.with.iter().map(without_jitter).collect();
    let workflows: Vec<_> =
        std::iter::once(&forecast.workflow).chain(&forecast.with).cloned().collect();
    let plan = ScriptedPlan::new(forecast, |_, _| false)?;
    plan.check_samples()?;
    let (variants, variants_cut) = variants::find(&plan, &workflows, variants_max)?;
    let analysis =
        Analysis { plan: &plan, workflows: &workflows, variants: &variants, sweep_every };
    let singles = analysis.single_cases();
    let singles_cut = singles.len().saturating_sub(cases_max);
    let singles = analysis.run(singles.into_iter().take(cases_max).collect(), done)?;
    let (mut pair_cases, mut pairs_cut, mut pairs_equivalent) = (Vec::new(), 0, 0);
    if pairs {
        let (mut planned, equivalent) = analysis.pair_cases(&singles);
        pairs_equivalent = equivalent;
        planned.sort_by_key(|case| (case.variant, analysis.order(case)));
        let left = cases_max.saturating_sub(singles.len());
        pairs_cut = planned.len().saturating_sub(left);
        pair_cases = analysis.run(planned.into_iter().take(left).collect(), done)?;
        // The second failure did not occur after all: the case is that of the first alone.
        pair_cases.retain(|(_, case)| case.all_occurred);
    }
    let singles: Vec<_> = singles.into_iter().map(|(_, case)| case).collect();
    let pairs: Vec<_> = pair_cases.into_iter().map(|(_, case)| case).collect();
    let findings = findings::find(&original, &children, &variants, &singles, &pairs);
    Ok(FailureReport {
        workflow: original.name.to_string(),
        version: original.version,
        variants: variants.len(),
        cases_run: singles.len() + pairs.len(),
        cases_cut: singles_cut + pairs_cut,
        pairs_equivalent,
        variants_cut,
        healthy_took_ms: variants.iter().map(|variant| variant.took_ms).max().unwrap_or_default(),
        healthy_dollars_per_million: variants
            .iter()
            .map(|variant| variant.dollars_per_million)
            .fold(0.0, f64::max),
        findings,
        singles,
        pairs,
    })
}

struct Analysis<'a> {
    plan: &'a ScriptedPlan,
    workflows: &'a [Workflow],
    variants: &'a [Variant],
    sweep_every: Duration,
}

impl Analysis<'_> {
    fn is_given(&self, name: &WorkflowName) -> bool {
        self.workflows.iter().any(|workflow| workflow.name == *name)
    }

    fn label(&self, site: &Site) -> String {
        self.plan.label(&StepKeyRef { workflow: &site.workflow, step: &site.step })
    }

    /// The failures of a place. Of a step with items, the second one fails: others have completed, and others wait.
    fn faults(&self, site: &Site, items: Option<u32>) -> Vec<PlannedFault> {
        let workflow = self.workflows.iter().find(|workflow| workflow.name == site.workflow);
        let Some(step) = workflow.and_then(|workflow| workflow.steps.get(&site.step)) else {
            return Vec::new();
        };
        let item = items.map(|last| last.min(1));
        let faults = faults_of(step, site.action, |name| self.is_given(name));
        faults.into_iter().map(|fault| PlannedFault { site: site.clone(), fault, item }).collect()
    }

    fn single_cases(&self) -> Vec<PlannedCase> {
        let mut cases = Vec::new();
        for (variant, base) in self.variants.iter().enumerate() {
            for (site, items) in &base.called {
                let faults = self.faults(site, *items).into_iter();
                cases.extend(faults.map(|fault| PlannedCase { variant, faults: vec![fault] }));
            }
        }
        cases.sort_by_key(|case| (case.variant, self.order(case)));
        cases
    }

    /// Each single failure with each failure of a place that it led to. Of failures of a place with the same consequences,
    /// only the quickest is combined with others. Also returns the number of pairs that are left out for that reason.
    fn pair_cases(&self, singles: &[(PlannedCase, FailureCase)]) -> (Vec<PlannedCase>, usize) {
        let mut quickest: BTreeMap<_, &(PlannedCase, FailureCase)> = BTreeMap::new();
        for single in singles {
            let (planned, case) = single;
            let site = planned.faults.first().map(|first| &first.site);
            let key = (planned.variant, site, &case.state, &case.left_behind, &case.called);
            let entry = quickest.entry(key).or_insert(single);
            if case.took_ms < entry.1.took_ms {
                *entry = single;
            }
        }
        let chosen: BTreeSet<_> = quickest.values().map(|(planned, _)| planned).collect();
        let (mut cases, mut others) = (BTreeSet::new(), BTreeSet::new());
        for (planned, single) in singles {
            let pairs = self.pairs_of(planned, single);
            match chosen.contains(planned) {
                true => cases.extend(pairs),
                false => others.extend(pairs),
            }
        }
        let left_out = others.difference(&cases).count();
        (cases.into_iter().collect(), left_out)
    }

    /// A single failure with each failure of a place that was called in its run.
    fn pairs_of(&self, planned: &PlannedCase, single: &FailureCase) -> Vec<PlannedCase> {
        let Some(first) = planned.faults.first() else { return Vec::new() };
        let base = self.variants.get(planned.variant).map(|variant| &variant.called);
        let mut pairs = Vec::new();
        for site in single.called.iter().filter(|site| **site != first.site) {
            let run = Site { action: Action::Do, ..site.clone() };
            let items = base.and_then(|called| called.get(&run)).copied().flatten();
            for second in self.faults(site, items) {
                let mut faults = vec![first.clone(), second];
                // The failure of a step comes before that of an undo.
                faults.sort_by_key(|fault| (fault.site.action, self.position(&fault.site)));
                pairs.push(PlannedCase { variant: planned.variant, faults });
            }
        }
        pairs
    }

    /// The position of a step in the definitions.
    fn position(&self, site: &Site) -> (usize, usize) {
        let workflows = self.workflows.iter().enumerate();
        let found = workflows.into_iter().find(|(_, workflow)| workflow.name == site.workflow);
        found.map_or((0, 0), |(n, workflow)| {
            (n, workflow.steps.get_index_of(&site.step).unwrap_or_default())
        })
    }

    /// The places of these failures, in the order of the definitions.
    fn order(&self, case: &PlannedCase) -> Vec<(Action, (usize, usize))> {
        let places = case.faults.iter().map(|fault| &fault.site);
        places.map(|site| (site.action, self.position(site))).collect()
    }

    fn run(
        &self,
        planned: Vec<PlannedCase>,
        done: &(dyn Fn() + Sync),
    ) -> Result<Vec<(PlannedCase, FailureCase)>, AnalysisError> {
        let results = in_parallel(planned.len(), |n| {
            let case = planned.get(n)?;
            let variant = self.variants.get(case.variant)?;
            let result = run_case(
                self.plan,
                self.workflows,
                self.sweep_every,
                (case.variant, variant),
                &case.faults,
                |site| self.label(site),
            );
            done();
            Some(result)
        });
        let results = results.into_iter().flatten().collect::<Result<Vec<_>, _>>()?;
        Ok(planned.into_iter().zip(results).collect())
    }
}
