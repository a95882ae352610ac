//! Many runs of a scenario: every cut at every call, singly and in pairs. Each campaign has an
//! embedded AWS, a runtime and a clock of its own, all on one thread, and makes one run at a time; so a
//! run is the same whenever it is made. The test harness spreads campaigns over the cores.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use tokio::runtime::Runtime;

use super::{
    effects::judge_effects,
    judge::{self, count, judge_uncut},
    panics,
    scenarios::Scenario,
    site::Site,
    wire::{Cut, CutAt},
    world::{Run, run},
};

/// Problems shown in full; the rest is counted.
const PROBLEMS_SHOWN: usize = 5;

/// Runs a scenario with each of `firsts` at every call, and then with each of `seconds` at every call
/// after it. Fails if any run does not end as it must.
#[expect(clippy::print_stdout, reason = "says how many runs there were")]
pub(super) fn cut_everywhere(scenario: &Scenario, firsts: &[Cut], seconds: &[Cut]) {
    let mut core = Core::new();
    let uncut = core.run(scenario, &[]).unwrap();
    let wrong = judge_uncut(scenario, &uncut);
    assert!(wrong.is_empty(), "{}, uncut: {}", scenario.name, wrong.join("\n"));
    let mut campaign = Campaign { scenario, uncut: &uncut, core, runs: 0, problems: Vec::new() };
    for call in 0..uncut.calls.len() {
        for cut in firsts {
            campaign.attempt(CutAt { call, cut: *cut }, seconds);
        }
    }
    let Campaign { runs, problems, .. } = campaign;
    let name = match scenario.outage {
        None => scenario.name.to_owned(),
        Some(outage) => format!("{}, {outage}", scenario.name),
    };
    println!("{name}: {runs} runs; calls uncut: {:?}", count(&uncut.calls));
    let shown = problems.iter().take(PROBLEMS_SHOWN).cloned().collect::<Vec<_>>().join("\n\n");
    assert!(problems.is_empty(), "{name}: {} of {runs} runs went wrong:\n{shown}", problems.len());
}

/// The runs of one scenario.
struct Campaign<'s> {
    scenario: &'s Scenario,
    uncut: &'s Run,
    core: Core,
    runs: usize,
    problems: Vec<String>,
}

impl Campaign<'_> {
    fn attempt(&mut self, first: CutAt, seconds: &[Cut]) {
        let Some(calls) = self.attempt_with(&[first]) else { return };
        for call in first.call + 1..calls {
            for cut in seconds {
                self.attempt_with(&[first, CutAt { call, cut: *cut }]);
            }
        }
    }

    /// Runs and judges; the number of calls, if the run came to an end.
    fn attempt_with(&mut self, cuts: &[CutAt]) -> Option<usize> {
        self.runs += 1;
        let (calls, wrong) = match self.core.run(self.scenario, cuts) {
            Ok(run) => {
                let wrong = match self.scenario.outage {
                    None => judge::judge(self.uncut, &run, cuts),
                    Some(_) => judge_effects(self.scenario, self.uncut, &run, cuts),
                };
                (Some(run.calls), wrong)
            }
            Err(panic) => (None, vec![panic]),
        };
        if !wrong.is_empty() {
            let calls = calls.as_ref().unwrap_or(&self.uncut.calls);
            let cuts: Vec<_> = cuts.iter().map(|at| judge::name(calls, *at)).collect();
            self.problems.push(format!("{}:\n{}", cuts.join(", then "), wrong.join("\n")));
        }
        calls.map(|calls| calls.len())
    }
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
        let panics = panics::count();
        let (site, mut run) = self.runtime.block_on(work).map_err(|_| "it panicked".to_owned())?;
        // A handler catches the panic of a single message.
        if panics::count() > panics {
            run.wrong.push("a handler panicked".to_owned());
        }
        // What went wrong may have left something behind, and so does a kill: messages that were received.
        let is_clean = run.wrong.is_empty() && !scenario.on_disk;
        self.site = is_clean.then_some(site);
        Ok(run)
    }
}
