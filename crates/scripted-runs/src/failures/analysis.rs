//! Runs the single failures, then the pairs that can occur together: all of them, or a sample if there are too many.

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
    cases::{FailureCase, named, run_case},
    fault::{Site, faults_of, without_jitter},
    findings,
    report::{FailureReport, places},
    sample::sample,
    service::PlannedFault,
    variants::{self, Variant},
};
use crate::parallel::in_parallel;

/// The work of the cases that are run by default, in what a million tasks without failures would cost in dollars. That counts all
/// that the functions do for a task, also each save that loses a race, and so the time that a case takes: some two milliseconds for
/// each dollar in a debug build, on one of two processors. The analysis ends within half a minute also for the largest workflow.
pub const WORK_MAX: f64 = 20_000.0;

/// The default limit of the number of variants.
pub const VARIANTS_MAX: usize = 8;

/// What is analysed.
#[derive(Debug, Clone)]
pub struct FailureSettings {
    /// The workflow, those of its child tasks, the input and the outputs. Failure rates have no effect.
    pub forecast: ForecastSettings,
    /// The largest number of cases: single failures, then pairs. By default as many as have [`WORK_MAX`].
    pub cases_max: Option<usize>,
    /// The seed of the choice, if there are more.
    pub seed: u64,
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
            cases_max: None,
            seed: 0,
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

/// What the analysis is about to do, or has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnalysisProgress {
    /// It starts to run `run` of `found` cases, with this number of failures each.
    Planned {
        /// One or two.
        failures: usize,
        /// The cases that there are.
        found: usize,
        /// The cases that are run.
        run: usize,
    },
    /// It has run a case.
    Ran,
}

/// Runs the analysis on all processors. The caller must not be inside a runtime.
///
/// # Errors
/// A definition is invalid, an expression has no value for the generated values, or a task does not end.
pub fn analyse(
    settings: FailureSettings,
    progress: &(dyn Fn(AnalysisProgress) + Sync),
) -> Result<FailureReport, AnalysisError> {
    let FailureSettings { mut forecast, cases_max, seed, variants_max, pairs, sweep_every } =
        settings;
    let (original, children) = (forecast.workflow.clone(), forecast.with.clone());
    forecast.workflow = without_jitter(&forecast.workflow);
    forecast.with = forecast.with.iter().map(without_jitter).collect();
    let workflows: Vec<_> =
        std::iter::once(&forecast.workflow).chain(&forecast.with).cloned().collect();
    let plan = ScriptedPlan::new(forecast, |_, _| false)?;
    plan.check_samples()?;
    let (variants, variants_cut) = variants::find(&plan, &workflows, variants_max)?;
    let mut analysis = Analysis {
        plan: &plan,
        workflows: &workflows,
        variants: &variants,
        sweep_every,
        seed,
        progress,
        not_run: BTreeMap::new(),
    };
    let cases_max = cases_max.unwrap_or_else(|| cases_within(WORK_MAX, &variants));
    // Pairs get a quarter, because what an undo leaves that fails is seen only in pairs.
    let singles_max = if pairs { cases_max - cases_max / 4 } else { cases_max };
    let singles = analysis.run(analysis.single_cases(), singles_max)?;
    let (mut pair_cases, mut pairs_equivalent) = (Vec::new(), 0);
    if pairs {
        let (mut planned, equivalent) = analysis.pair_cases(&singles);
        pairs_equivalent = equivalent;
        planned.sort_by_key(|case| (case.variant, analysis.order(case)));
        pair_cases = analysis.run(planned, cases_max.saturating_sub(singles.len()))?;
        // The second failure did not occur after all: the case is that of the first alone.
        pair_cases.retain(|(_, case)| case.all_occurred);
    }
    let not_run = analysis.not_run;
    let singles: Vec<_> = singles.into_iter().map(|(_, case)| case).collect();
    let pairs: Vec<_> = pair_cases.into_iter().map(|(_, case)| case).collect();
    let findings = findings::find(&original, &children, &variants, &singles, &pairs);
    Ok(FailureReport {
        workflow: original.name.to_string(),
        version: original.version,
        variants: variants.len(),
        cases_run: singles.len() + pairs.len(),
        cases_cut: not_run.values().sum(),
        not_run,
        seed,
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

/// How many cases have this much work, if each has as much as the most expensive variant without failures.
fn cases_within(work: f64, variants: &[Variant]) -> usize {
    let most = variants.iter().map(|variant| variant.dollars_per_million).fold(1.0, f64::max);
    (work / most).max(1.0) as usize
}

struct Analysis<'a> {
    plan: &'a ScriptedPlan,
    workflows: &'a [Workflow],
    variants: &'a [Variant],
    sweep_every: Duration,
    seed: u64,
    progress: &'a (dyn Fn(AnalysisProgress) + Sync),
    /// How many cases were left out, by the places that fail.
    not_run: BTreeMap<String, usize>,
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
        let repeats = |fault: &PlannedFault| fault.fault.repeats_the_effect();
        let first = || singles.iter().filter(|(planned, _)| !planned.faults.iter().any(repeats));
        for single in first() {
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
        for (planned, single) in first() {
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
            let seconds = self.faults(site, items).into_iter();
            for second in seconds.filter(|second| !second.fault.repeats_the_effect()) {
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

    /// Runs at most `most` of these cases, and adds the others to those that were left out.
    fn run(
        &mut self,
        planned: Vec<PlannedCase>,
        most: usize,
    ) -> Result<Vec<(PlannedCase, FailureCase)>, AnalysisError> {
        let Some(failures) = planned.first().map(|case| case.faults.len()) else {
            return Ok(Vec::new());
        };
        let found = planned.len();
        let sites = |case: &PlannedCase| -> Vec<_> {
            case.faults.iter().map(|fault| fault.site.clone()).collect()
        };
        let (planned, left_out) = sample(planned, most, self.seed, sites);
        (self.progress)(AnalysisProgress::Planned { failures, found, run: planned.len() });
        for case in left_out {
            let named = named(&case.faults, |site| self.label(site));
            *self.not_run.entry(places(&named)).or_default() += 1;
        }
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
            (self.progress)(AnalysisProgress::Ran);
            Some(result)
        });
        let results = results.into_iter().flatten().collect::<Result<Vec<_>, _>>()?;
        Ok(planned.into_iter().zip(results).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_more_work_a_task_is_the_fewer_of_its_cases_are_run() {
        let variant = |dollars_per_million| Variant {
            seed: 0,
            skipped: BTreeSet::new(),
            called: BTreeMap::new(),
            outputs: BTreeMap::new(),
            took_ms: 0,
            dollars_per_million,
        };
        let cases = |dollars: &[f64]| {
            let variants: Vec<_> = dollars.iter().copied().map(variant).collect();
            cases_within(30_000.0, &variants)
        };
        assert_eq!(cases(&[7.0, 200.0]), 150);
        assert_eq!(cases(&[1_000.0]), 30);
        assert_eq!(cases(&[1_000_000.0]), 1);
        assert_eq!(cases(&[0.0]), 30_000);
    }
}
