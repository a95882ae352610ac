//! Many runs: every cut at every call, singly and in pairs, on all cores. Each core has an embedded
//! AWS, a runtime and a clock of its own, all on one thread, and makes one run at a time; so a run is
//! the same whenever it is made.

use std::{
    panic::AssertUnwindSafe,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use futures_util::FutureExt;
use tokio::runtime::Runtime;

use super::{
    judge::{count, judge, judge_uncut, name},
    scenarios::Scenario,
    site::Site,
    wire::CutAt,
    world::{Run, run},
};
use crate::support::Cut;

/// Problems shown in full; the rest is counted.
const PROBLEMS_SHOWN: usize = 5;

/// A first cut, and what is tried after it.
struct Trial {
    scenario: Arc<Scenario>,
    uncut: Arc<Run>,
    first: CutAt,
    /// Cuts at each call after the first.
    seconds: Vec<Cut>,
}

#[derive(Default)]
struct Report {
    runs: usize,
    problems: Vec<String>,
}

/// Runs every scenario with each of `firsts` at every call, and then with each of `seconds` at every
/// call after it. Fails if any run does not end as it must.
pub(super) fn cut_everywhere(scenarios: Vec<Scenario>, firsts: &[Cut], seconds: &[Cut]) {
    let begun = Instant::now();
    let mut trials = Vec::new();
    for scenario in scenarios {
        let uncut = Core::new().run(&scenario, &[]).unwrap();
        let wrong = judge_uncut(&scenario, &uncut);
        assert!(wrong.is_empty(), "{}, uncut: {}", scenario.name, wrong.join("\n"));
        println!("{}: {:?}", scenario.name, count(&uncut.calls));
        let (scenario, uncut) = (Arc::new(scenario), Arc::new(uncut));
        for call in 0..uncut.calls.len() {
            trials.extend(firsts.iter().map(|cut| Trial {
                scenario: scenario.clone(),
                uncut: uncut.clone(),
                first: CutAt { call, cut: *cut },
                seconds: seconds.to_vec(),
            }));
        }
    }
    let Report { runs, problems } = on_all_cores(&trials);
    println!("{runs} runs in {:?}", begun.elapsed());
    let shown = problems.iter().take(PROBLEMS_SHOWN).cloned().collect::<Vec<_>>().join("\n\n");
    assert!(problems.is_empty(), "{} of {runs} runs went wrong:\n{shown}", problems.len());
}

/// Makes runs, one at a time.
struct Core {
    runtime: Runtime,
    /// Where it made the last one.
    site: Option<Site>,
}

impl Core {
    fn new() -> Self {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        Self { runtime: runtime.unwrap(), site: None }
    }

    fn run(&mut self, scenario: &Scenario, cuts: &[CutAt]) -> Result<Run, String> {
        let site = self.site.take().filter(|site| site.scenario.name == scenario.name);
        let work = async {
            let mut site = match site {
                Some(site) => site,
                None => Site::new(scenario).await,
            };
            let run = run(&mut site, cuts).await;
            (site, run)
        };
        let work = AssertUnwindSafe(Box::pin(work)).catch_unwind();
        let (site, run) = self.runtime.block_on(work).map_err(|_| "it panicked".to_owned())?;
        // What went wrong may have left something behind.
        self.site = run.wrong.is_empty().then_some(site);
        Ok(run)
    }
}

fn on_all_cores(trials: &[Trial]) -> Report {
    let next = AtomicUsize::new(0);
    let total = Mutex::new(Report::default());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                let mut core = Core::new();
                while let Some(trial) = trials.get(next.fetch_add(1, Ordering::SeqCst)) {
                    let report = attempt(&mut core, trial);
                    let mut total = total.lock().unwrap();
                    total.runs += report.runs;
                    total.problems.extend(report.problems);
                }
            });
        }
    });
    total.into_inner().unwrap()
}

fn attempt(core: &mut Core, trial: &Trial) -> Report {
    let mut report = Report::default();
    let Some(calls) = attempt_with(core, trial, &[trial.first], &mut report) else { return report };
    for call in trial.first.call + 1..calls {
        for cut in &trial.seconds {
            attempt_with(core, trial, &[trial.first, CutAt { call, cut: *cut }], &mut report);
        }
    }
    report
}

/// Runs and judges; the number of calls, if the run came to an end.
fn attempt_with(
    core: &mut Core,
    trial: &Trial,
    cuts: &[CutAt],
    report: &mut Report,
) -> Option<usize> {
    report.runs += 1;
    let Trial { scenario, uncut, .. } = trial;
    let (calls, wrong) = match core.run(scenario, cuts) {
        Ok(run) => {
            let wrong = judge(uncut, &run, cuts);
            (Some(run.calls), wrong)
        }
        Err(panic) => (None, vec![panic]),
    };
    if !wrong.is_empty() {
        let calls = calls.as_ref().unwrap_or(&uncut.calls);
        let cuts: Vec<_> = cuts.iter().map(|at| name(calls, *at)).collect();
        report.problems.push(format!(
            "{}, {}:\n{}",
            scenario.name,
            cuts.join(", then "),
            wrong.join("\n")
        ));
    }
    calls.map(|calls| calls.len())
}
