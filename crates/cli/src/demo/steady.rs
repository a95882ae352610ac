//! `steward demo --for DURATION --rate N`: a soak. Tasks are submitted at a steady rate, and each is audited once it has
//! ended and its services have come to rest. Then everything about it is forgotten, so that nothing may grow with time.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, bail};
use hdrhistogram::Histogram;
use metrics_util::debugging::Snapshotter;
use serde_json::json;
use steward_core::model::time::Timing;
use steward_demo::{
    audit::Audit,
    services::{MockServices, StewardConnection},
};
use steward_emulator::{host::HostOptions, resources};

use super::{
    chaos::Chaos,
    client::{
        DemoClient, RUN_TIMEOUT, announce, load_all, messages_left, progress_bar, start_host,
    },
    growth::{QUARTERS, Quarter, QuarterFigures, Sample, growth, quarter_of},
    options::DemoArgs,
};
use crate::table::table;

/// How long after its end a task is audited. By then its alert has arrived, and calls that outlived it have ended.
const AUDIT_DELAY: Duration = Duration::from_secs(60);

/// How long the store keeps a task after its end: longer than [`AUDIT_DELAY`] and the delay of a notification, and short, so that
/// the files stay small. It is a share of the run, so that items expire before the second quarter ends.
const RETENTION_SHARE: u32 = 6;

/// The limits of that time.
const RETENTION: (Duration, Duration) = (Duration::from_secs(240), Duration::from_secs(600));

/// The journal of the queues, and the length in bytes at which it is rewritten. Up to this length it grows and shrinks, however
/// long the run is.
const JOURNAL: (&str, u64) = ("queues.jsonl", 32 << 20);

/// Samples in the whole run.
const SAMPLES: u32 = 240;

/// The shortest pause between two samples.
const SAMPLE_EVERY_MIN: Duration = Duration::from_millis(250);

/// Outages of one service in the whole run, with `--chaos`: three a quarter.
const OUTAGES: u32 = 12;

/// The shortest run that has something to compare.
const RUN_MIN: Duration = Duration::from_secs(4);

/// A run in progress.
struct SteadyRun<'a> {
    client: &'a DemoClient,
    services: &'a MockServices,
    host: &'a steward_emulator::host::Host,
    data: &'a Path,
    audit: Audit,
    /// Tasks that have ended and are not audited yet, by number, with the time of their end.
    waiting: Vec<(usize, Instant)>,
    quarters: [Quarter; QUARTERS],
    submitted: usize,
    /// Submissions that were left out because too many tasks were running.
    skipped: usize,
}

/// Runs the demo for this time. Fails if the audit does, or if anything grew.
pub(super) async fn run(
    args: &DemoArgs,
    run_for: Duration,
    services: &MockServices,
    counters: &Snapshotter,
) -> Result<()> {
    if run_for < RUN_MIN {
        bail!("--for must be at least {}", humantime::format_duration(RUN_MIN));
    }
    let scenario = args.workflow.scenario();
    let data = tempfile::tempdir().context("create the data directory")?;
    let options = HostOptions {
        data: Some(data.path().to_owned()),
        timing: Some(timing(run_for)),
        ..HostOptions::default()
    };
    let host = start_host(scenario, services, args, options).await?;
    let client = DemoClient::start(scenario, &host, args.in_flight as usize).await?;
    client.progress.lock().ended_tasks = Some(Vec::new());
    if let Some(address) = host.address {
        let (sdk, url) = (host.aws.sdk_config(), format!("http://{address}"));
        services.connect(StewardConnection::new(&sdk, resources::EVENT_BUS, &url, true));
    }
    let quarter =
        || -> Result<Quarter> { Ok(Quarter { samples: Vec::new(), latencies_us: latencies()? }) };
    let mut run = SteadyRun {
        client: &client,
        services,
        host: &host,
        data: data.path(),
        audit: Audit::of(scenario),
        waiting: Vec::new(),
        quarters: [quarter()?, quarter()?, quarter()?, quarter()?],
        submitted: 0,
        skipped: 0,
    };
    let chaos = Chaos::new(args.seed);
    if args.chaos {
        chaos.shorten_redelivery(&host).await?;
    }
    let outages = (scenario.outage_service(), run_for / OUTAGES);
    let chaos_run = chaos.run_steadily(&host, services, outages.0, outages.1);
    tokio::select! {
        submitted = run.submit_steadily(args, run_for, counters) => submitted?,
        () = chaos_run, if args.chaos => {}
    }
    run.finish().await?;
    let killed = args.chaos.then(|| chaos.killed());
    report(&run, args, run_for, killed)
}

/// The times of one machine, and the short retention.
fn timing(run_for: Duration) -> Timing {
    let retention = (run_for / RETENTION_SHARE).clamp(RETENTION.0, RETENTION.1);
    Timing { pickup_within: Duration::from_secs(10), clock_skew: Duration::ZERO, retention }
}

fn latencies() -> Result<Histogram<u64>> {
    Ok(Histogram::new_with_max(super::progress::LATENCY_MAX_US, 3)?)
}

impl SteadyRun<'_> {
    /// Submits tasks at the rate until the time is over, and samples and audits meanwhile.
    async fn submit_steadily(
        &mut self,
        args: &DemoArgs,
        run_for: Duration,
        counters: &Snapshotter,
    ) -> Result<()> {
        let started = Instant::now();
        let sample_every = (run_for / SAMPLES).max(SAMPLE_EVERY_MIN);
        let mut ticks = tokio::time::interval(Duration::from_secs(1) / args.rate);
        let mut next_sample = sample_every;
        let queue = self.host.queue_url(resources::SUBMISSIONS_QUEUE);
        let expected = usize::try_from(run_for.as_secs())? * args.rate as usize;
        let nouns = self.client.scenario.nouns().1;
        let lasts = humantime::format_duration(run_for);
        announce(&format!("submitting {} {nouns} per second for {lasts}", args.rate));
        let bar = progress_bar(expected, nouns, args.json)?;
        while started.elapsed() < run_for {
            ticks.tick().await;
            // Waiting for a slot would delay the samples and the audit.
            match self.client.progress.free_slots.try_acquire() {
                Ok(slot) => {
                    slot.forget();
                    self.client.submit(&queue, self.submitted..self.submitted + 1).await?;
                    self.submitted += 1;
                }
                Err(_) => self.skipped += 1,
            }
            bar.set_position(self.submitted as u64);
            if started.elapsed() >= next_sample {
                next_sample += sample_every;
                self.sample(quarter_of(started.elapsed(), run_for))?;
                self.audit_ended(AUDIT_DELAY).await?;
                // The recorder keeps every value of a histogram until it is read.
                drop(counters.snapshot());
            }
        }
        bar.finish_and_clear();
        Ok(())
    }

    fn sample(&mut self, quarter: usize) -> Result<()> {
        let sample = Sample {
            memory_mib: memory_mib(),
            files_mib: files_mib(self.data)?,
            running: self.client.progress.lock().running.len(),
        };
        let latencies = self.client.progress.take_latencies();
        let quarter = self.quarters.get_mut(quarter).context("the run has four quarters")?;
        quarter.samples.push(sample);
        quarter.latencies_us.add(latencies)?;
        Ok(())
    }

    /// Audits the tasks that ended at least `delay` ago, and forgets all about them.
    async fn audit_ended(&mut self, delay: Duration) -> Result<()> {
        let ended =
            std::mem::take(&mut self.client.progress.lock().ended_tasks).unwrap_or_default();
        self.client.progress.lock().ended_tasks = Some(Vec::new());
        for (id, at) in ended {
            let number = id.rsplit('-').next().and_then(|number| number.parse().ok());
            self.waiting.push((number.with_context(|| format!("the task id {id}"))?, at));
        }
        let (due, waiting): (Vec<_>, Vec<_>) =
            self.waiting.drain(..).partition(|(_, at)| at.elapsed() >= delay);
        self.waiting = waiting;
        let numbers: Vec<_> = due.into_iter().map(|(number, _)| number).collect();
        self.audit(&numbers).await
    }

    async fn audit(&mut self, numbers: &[usize]) -> Result<()> {
        if numbers.is_empty() {
            return Ok(());
        }
        let scenario = self.client.scenario;
        let ids: Vec<_> = numbers.iter().map(|number| scenario.task_id(*number)).collect();
        let tasks = load_all(self.host, &ids).await?;
        let ledgers = self.services.ledgers();
        {
            let mut progress = self.client.progress.lock();
            for (number, id) in numbers.iter().zip(&ids) {
                self.audit.check(*number, tasks.get(id), &ledgers, &progress.alerted);
                progress.alerted.remove(id);
            }
            // Duplicates of an event arrive within seconds, and this run does not count events.
            progress.events = BTreeMap::from([(String::new(), BTreeSet::new())]);
        }
        // Otherwise a task in Error is kept for ever.
        let commands = self.host.queue_url(resources::COMMANDS_QUEUE);
        self.client.resolve(&commands, tasks.values().filter(|task| task.is_unresolved())).await?;
        let mut subjects = HashSet::new();
        for service in scenario.services() {
            subjects.extend(numbers.iter().map(|number| scenario.subject(*service, *number)));
        }
        self.services.forget(&subjects);
        Ok(())
    }

    /// Waits until every task has ended, and audits the rest.
    async fn finish(&mut self) -> Result<()> {
        let deadline = Instant::now() + RUN_TIMEOUT;
        let running = self.client.progress.lock().running.len();
        let nouns = self.client.scenario.nouns().1;
        announce(&format!("waiting until the last {running} {nouns} have ended"));
        while !self.client.progress.lock().running.is_empty() && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(20)).await;
            // The last order can take longer than the store keeps the others.
            self.audit_ended(AUDIT_DELAY).await?;
        }
        let delay = humantime::format_duration(AUDIT_DELAY);
        announce(&format!("waiting {delay} for late alerts and calls, then auditing"));
        tokio::time::sleep(AUDIT_DELAY).await;
        self.audit_ended(Duration::ZERO).await?;
        self.audit.findings.extend(messages_left(self.services).await);
        let unended: Vec<_> = self.client.progress.lock().running.keys().cloned().collect();
        let finding = |id| format!("{id}: the client never received a notification of its end");
        self.audit.findings.extend(unended.into_iter().map(finding));
        Ok(())
    }
}

/// Prints the figures of the quarters and the verdict.
fn report(
    run: &SteadyRun<'_>,
    args: &DemoArgs,
    run_for: Duration,
    killed: Option<u64>,
) -> Result<()> {
    let quarters = run.quarters.each_ref().map(Quarter::figures);
    let grown = growth(&quarters);
    let by_state: BTreeMap<_, _> =
        run.audit.by_state.iter().map(|(state, count)| (state.to_string(), count)).collect();
    if args.json {
        let report = json!({
            "audit": { "passed": run.audit.passed(), "findings": run.audit.findings },
            "tasks": { "submitted": run.submitted, "skipped": run.skipped, "by_state": by_state },
            "seconds": run_for.as_secs_f64(),
            "rate_per_s": args.rate,
            "instances_killed": killed,
            "quarters": quarters,
            "growth": grown,
        });
        outln!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print_table(run, &quarters);
        for line in grown.iter().chain(run.audit.findings.iter().take(20)) {
            outln!("  {line}");
        }
        if let Some(killed) = killed {
            outln!("instances killed: {killed}");
        }
    }
    match (run.audit.passed(), grown.is_empty()) {
        (true, true) => Ok(()),
        (false, _) => Err(anyhow!("the audit failed")),
        (true, false) => Err(anyhow!("{}", grown.join("; "))),
    }
}

fn print_table(run: &SteadyRun<'_>, quarters: &[QuarterFigures; QUARTERS]) {
    let mut rows = table(&["quarter", "ended", "memory, MiB", "files, MiB", "p50, ms", "p99, ms"]);
    for (n, quarter) in quarters.iter().enumerate() {
        let memory = quarter.memory_mib.map_or_else(|| "-".to_owned(), |mib| format!("{mib:.0}"));
        rows.add_row([
            (n + 1).to_string(),
            quarter.ended.to_string(),
            memory,
            format!("{:.1}", quarter.files_mib),
            format!("{:.0}", quarter.p50_ms),
            format!("{:.0}", quarter.p99_ms),
        ]);
    }
    outln!("{rows}");
    let states = run.audit.by_state.iter().map(|(state, count)| format!("{count} {state}"));
    let states: Vec<_> = states.collect();
    outln!("{} submitted, {} skipped: {}", run.submitted, run.skipped, states.join(", "));
    let verdict = match run.audit.passed() {
        true => format!("passed: {}", run.client.scenario.audit_summary()),
        false => "FAILED".to_owned(),
    };
    outln!("audit {verdict}");
}

/// The resident memory of this process in MiB. `None` except on Linux.
fn memory_mib() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib / 1_024.0)
}

/// The size of all files in a directory and those below it, in MiB. Of the journal of the queues, only what exceeds the length at
/// which it is rewritten counts.
fn files_mib(dir: &Path) -> Result<f64> {
    let (mut bytes, mut folders) = (0, vec![dir.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in folder.read_dir().with_context(|| folder.display().to_string())? {
            let entry = entry?;
            // A file may be deleted between the two calls.
            match entry.metadata() {
                Ok(metadata) if metadata.is_dir() => folders.push(entry.path()),
                Ok(metadata) if entry.file_name() == JOURNAL.0 => {
                    bytes += metadata.len().saturating_sub(JOURNAL.1);
                }
                Ok(metadata) => bytes += metadata.len(),
                Err(_) => {}
            }
        }
    }
    Ok(bytes as f64 / f64::from(1 << 20))
}
