//! All runs of a scenario: each fault at its calls, singly and in pairs. A campaign has its own embedded AWS, runtime and
//! clock on one thread and makes one run at a time, so a run is reproducible. The test harness runs campaigns in parallel.

use std::{env, panic::AssertUnwindSafe};

use futures_util::FutureExt;
use tokio::runtime::Runtime;

use super::{
    checks::{self, check_baseline, count},
    environment::Environment,
    fault_injection::{FaultAt, InjectedFault},
    panics,
    scenario_run::{RunResult, run},
    scenarios::Scenario,
    side_effects::check_side_effects,
};

/// How many calls apart the same fault is injected, unless `CRASH_POINTS=all`. Each fault begins at another call, so three
/// faults or more meet every call.
const CALLS_APART: usize = 3;

/// The most problems that are shown in full.
const PROBLEMS_SHOWN: usize = 5;

/// Runs a scenario with the faults of `firsts` at its calls: each at every third call, or at every call if the environment says
/// `CRASH_POINTS=all`. Then combines each of these runs with each fault of `seconds` at every later call. Fails if any run
/// does not end as expected.
pub(super) fn inject_at_calls(
    scenario: &Scenario,
    firsts: &[InjectedFault],
    seconds: &[InjectedFault],
) {
    let mut core = CampaignRuntime::new();
    let baseline = core.run(scenario, &[]).unwrap();
    let problems = check_baseline(scenario, &baseline);
    assert!(problems.is_empty(), "{}, without faults: {}", scenario.name, problems.join("\n"));
    let mut campaign =
        Campaign { scenario, baseline: &baseline, core, runs: 0, problems: Vec::new() };
    let all = env::var("CRASH_POINTS").is_ok_and(|which| which == "all");
    let apart = if all { 1 } else { CALLS_APART };
    for (first_call, fault) in firsts.iter().enumerate() {
        for call in (first_call % apart..baseline.calls.len()).step_by(apart) {
            campaign.run_with(FaultAt { call, fault: *fault }, seconds);
        }
    }
    let Campaign { runs, problems, .. } = campaign;
    let name = match scenario.outage {
        None => scenario.name.to_owned(),
        Some(outage) => format!("{}, {outage}", scenario.name),
    };
    println!("{name}: {runs} runs; calls without faults: {:?}", count(&baseline.calls));
    let shown = problems.iter().take(PROBLEMS_SHOWN).cloned().collect::<Vec<_>>().join("\n\n");
    assert!(
        problems.is_empty(),
        "{name}: {} of {runs} runs had problems:\n{shown}",
        problems.len()
    );
}

/// The runs of one scenario.
struct Campaign<'s> {
    scenario: &'s Scenario,
    /// The run without faults.
    baseline: &'s RunResult,
    core: CampaignRuntime,
    runs: usize,
    problems: Vec<String>,
}

impl Campaign<'_> {
    fn run_with(&mut self, first: FaultAt, seconds: &[InjectedFault]) {
        let Some(calls) = self.run_and_check(&[first]) else { return };
        for call in first.call + 1..calls {
            for fault in seconds {
                self.run_and_check(&[first, FaultAt { call, fault: *fault }]);
            }
        }
    }

    /// Makes a run and checks it; returns the number of calls, or `None` if the run panicked.
    fn run_and_check(&mut self, faults: &[FaultAt]) -> Option<usize> {
        self.runs += 1;
        let (calls, problems) = match self.core.run(self.scenario, faults) {
            Ok(run) => {
                let problems = self.check(&run, faults);
                (Some(run.calls), problems)
            }
            Err(panic) => (None, vec![panic]),
        };
        if !problems.is_empty() {
            let calls = calls.as_ref().unwrap_or(&self.baseline.calls);
            let faults: Vec<_> = faults.iter().map(|at| checks::name(calls, *at)).collect();
            self.problems.push(format!("{}:\n{}", faults.join(", then "), problems.join("\n")));
        }
        calls.map(|calls| calls.len())
    }

    /// All problems of a run. One whose task may take another way than without faults is judged by its side effects.
    fn check(&self, run: &RunResult, faults: &[FaultAt]) -> Vec<String> {
        let by_side_effects = || check_side_effects(self.scenario, self.baseline, run, faults);
        if self.scenario.outage.is_some() {
            return by_side_effects();
        }
        let problems = checks::check(self.baseline, run, faults);
        let may_differ = checks::leaves_a_doubt(self.baseline, run, faults);
        if !problems.is_empty() && may_differ { by_side_effects() } else { problems }
    }
}

/// Makes runs, one at a time.
struct CampaignRuntime {
    runtime: Runtime,
    /// The environment of the last run.
    environment: Option<Environment>,
}

impl CampaignRuntime {
    fn new() -> Self {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        Self { runtime: runtime.unwrap(), environment: None }
    }

    fn run(&mut self, scenario: &Scenario, faults: &[FaultAt]) -> Result<RunResult, String> {
        let environment = self
            .environment
            .take()
            .filter(|environment| environment.scenario.name == scenario.name);
        let work = async {
            let mut environment = match environment {
                Some(environment) => environment,
                None => Environment::new(scenario).await,
            };
            let run = run(&mut environment, faults).await;
            (environment, run)
        };
        let work = AssertUnwindSafe(Box::pin(work)).catch_unwind();
        let panics = panics::count();
        let (environment, mut run) =
            self.runtime.block_on(work).map_err(|_| "the run panicked".to_owned())?;
        // A handler catches the panic of a single message.
        if panics::count() > panics {
            run.problems.push("a handler panicked".to_owned());
        }
        // A failed run may have left messages or items behind; a kill leaves received messages behind.
        let is_clean = run.problems.is_empty() && !scenario.on_disk;
        self.environment = is_clean.then_some(environment);
        Ok(run)
    }
}
