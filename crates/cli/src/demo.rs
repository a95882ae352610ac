//! `steward demo`: runs tasks against services with injected faults, all in this process, and audits the
//! result. With `--chaos` it also kills instances of the functions while the tasks run. The [`Scenario`]
//! defines the tasks.
//!
//! ```text
//! demo client ──► submissions queue ──► functions ──► the scenario's services
//!   ▲ ▲                                     │            (slow, failing, silent)
//!   │ └── notifications: received, processed, error           │
//!   └──── audit: compares the state store with the ledgers ◄──┘
//! ```

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use serde_json::{Value, json};
use steward_core::model::task::Task;
use steward_demo::{
    audit::Audit,
    scenario::Scenario,
    services::{FaultKind, FaultPlan, MockServices, ServiceLedgers, StewardConnection},
};
use steward_emulator::{
    host::{Host, HostOptions},
    resources,
};
use steward_runtime::metrics;

use crate::{stop_signal::stop_signal, table::table};

mod chaos;
mod client;
mod growth;
mod options;
mod progress;
mod steady;

use chaos::Chaos;
use client::{DemoClient, announce, load_all, start_host};
pub(crate) use options::DemoArgs;

/// Runs the demo; fails if the audit does.
#[expect(clippy::print_stderr, reason = "standard output only has the report")]
pub(crate) async fn run(args: DemoArgs) -> Result<()> {
    let recorder = DebuggingRecorder::new();
    let counters = recorder.snapshotter();
    recorder.install().context("install the counters")?;
    let plan = if args.chaos { FaultPlan::chaos(args.seed) } else { FaultPlan::demo(args.seed) };
    let scenario = args.workflow.scenario();
    let services = MockServices::start(scenario.services(), plan).await?;
    if let Some(run_for) = args.run_for {
        return Box::pin(steady::run(&args, run_for, &services, &counters)).await;
    }
    let host = start_host(scenario, &services, &args, HostOptions::default()).await?;
    if let Some(address) = host.address {
        eprintln!("console http://{address}{}", steward_console::ROOT);
        let (sdk, url) = (host.aws.sdk_config(), format!("http://{address}"));
        services.connect(StewardConnection::new(&sdk, resources::EVENT_BUS, &url, true));
    }
    let client = DemoClient::start(scenario, &host, args.in_flight as usize).await?;
    let started = Instant::now();
    let chaos = Chaos::new(args.seed);
    if args.chaos {
        chaos.shorten_redelivery(&host).await?;
    }
    let outage = (scenario.outage_service(), args.tasks);
    let chaos_run = chaos.run(&host, &services, &client.progress, outage);
    tokio::select! {
        submitted = client.submit_all(&host, args.tasks, args.json) => submitted?,
        () = chaos_run, if args.chaos => {}
    }
    let seconds = started.elapsed().as_secs_f64();
    let measured = (&counters, &chaos);
    let left = client::messages_left(&services).await;
    let mut report = report(&args, &host, &services.ledgers(), &client, measured, seconds).await?;
    report.audit.findings.extend(left);
    report.print(args.json)?;
    if !report.audit.passed() {
        bail!("the audit failed");
    }
    if args.stay {
        services.heal();
        eprintln!("running until Ctrl-C");
        stop_signal().await?;
    }
    Ok(())
}

/// The results of the run.
struct DemoReport {
    scenario: &'static dyn Scenario,
    submitted: usize,
    audit: Audit,
    seconds: f64,
    latency_ms: BTreeMap<&'static str, f64>,
    /// JSON key, label and value of each counter, in the order in which they are shown.
    counts: Vec<(&'static str, &'static str, u64)>,
}

async fn report(
    args: &DemoArgs,
    host: &Host,
    ledgers: &ServiceLedgers,
    client: &DemoClient,
    (counters, chaos): (&Snapshotter, &Chaos),
    seconds: f64,
) -> Result<DemoReport> {
    let scenario = client.scenario;
    let ids: Vec<_> = (0..args.tasks).map(|number| scenario.task_id(number)).collect();
    let tasks = load_all(host, &ids).await?;
    let in_error = tasks.values().filter(|task| task.error.is_some());
    wait_for_alerts(client, in_error.map(|task| task.task_id.to_string()).collect()).await;
    announce(&format!("auditing {} {}", args.tasks, scenario.nouns().1));
    let mut audit = Audit::of(scenario);
    {
        let progress = client.progress.lock();
        for (number, id) in ids.iter().enumerate() {
            audit.check(number, tasks.get(id), ledgers, &progress.alerted);
            if progress.running.contains_key(id) {
                audit
                    .findings
                    .push(format!("{id}: the client never received a notification of its end"));
            }
        }
    }
    audit.check_unknown_subjects(args.tasks, ledgers);
    let progress = client.progress.lock();
    let percentile = |p| progress.latencies.value_at_quantile(p) as f64 / 1_000.0;
    let latency_ms = BTreeMap::from([("p50", percentile(0.5)), ("p99", percentile(0.99))]);
    let faults = FaultKind::ALL.into_iter().map(|kind| ledgers.faults_total(kind)).sum();
    let totals = totals(counters);
    let counted = |name| totals.get(name).copied().unwrap_or_default();
    let attempts = tasks.values().flat_map(Task::started_actions);
    let repeated = attempts
        .map(|(.., progress)| u64::from(progress.state.attempt_count().saturating_sub(1)))
        .sum();
    let mut counts = vec![
        ("remote_calls", "remote calls", ledgers.calls_total()),
        ("faults_injected", "faults injected", faults),
        ("calls_retried", "calls retried by agents", counted(metrics::CALLS_RETRIED)),
        ("attempts_repeated", "attempts repeated by the scheduler", repeated),
        (
            "attempts_deferred",
            "attempts deferred by circuit breakers",
            counted(metrics::ATTEMPTS_DEFERRED),
        ),
        (
            "duplicates_ignored",
            "duplicate and late replies ignored",
            counted(metrics::EVENTS_IGNORED),
        ),
        (
            "calls_deduplicated",
            "repeated calls recognised by services",
            ledgers.deduplicated_total(),
        ),
        ("alerts", "tasks alerted", progress.alerted.len() as u64),
    ];
    if args.chaos {
        counts.push(("instances_killed", "instances killed", chaos.killed()));
        for (name, label) in [
            ("breaker_opened", "circuit breakers opened"),
            ("breaker_closed", "circuit breakers closed"),
        ] {
            let events = progress.events.get(name).map_or(0, BTreeSet::len);
            counts.push((name, label, events as u64));
        }
    }
    Ok(DemoReport { scenario, submitted: args.tasks, audit, seconds, latency_ms, counts })
}

/// Waits until the tasks in `wanted` are alerted, at most 20 s: alerts may arrive after the last notification.
async fn wait_for_alerts(client: &DemoClient, wanted: BTreeSet<String>) {
    if !wanted.is_empty() {
        let nouns = client.scenario.nouns().1;
        announce(&format!("waiting for the alerts of {} {nouns} in Error", wanted.len()));
    }
    let deadline = Instant::now() + Duration::from_secs(20);
    while !wanted.is_subset(&client.progress.lock().alerted) && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The sum of each counter over all labels, by name.
fn totals(counters: &Snapshotter) -> HashMap<String, u64> {
    let mut totals = HashMap::new();
    for (key, _, _, value) in counters.snapshot().into_vec() {
        if let DebugValue::Counter(count) = value {
            *totals.entry(key.key().name().to_owned()).or_default() += count;
        }
    }
    totals
}

impl DemoReport {
    fn print(&self, as_json: bool) -> Result<()> {
        let text = if as_json { serde_json::to_string_pretty(&self.json())? } else { self.table() };
        outln!("{text}");
        Ok(())
    }

    fn throughput(&self) -> f64 {
        self.submitted as f64 / self.seconds.max(f64::EPSILON)
    }

    fn json(&self) -> Value {
        let by_state: BTreeMap<_, _> =
            self.audit.by_state.iter().map(|(state, count)| (state.to_string(), count)).collect();
        let counts: BTreeMap<_, _> =
            self.counts.iter().map(|(key, _, count)| (key, count)).collect();
        json!({
            "audit": { "passed": self.audit.passed(), "findings": self.audit.findings },
            "tasks": { "submitted": self.submitted, "by_state": by_state },
            "counts": counts,
            "seconds": self.seconds,
            "throughput_per_s": self.throughput(),
            "latency_ms": self.latency_ms,
        })
    }

    fn table(&self) -> String {
        let mut table = table(&[]);
        let (_, tasks) = self.scenario.nouns();
        table.add_row([format!("{tasks} submitted"), self.submitted.to_string()]);
        for (state, count) in &self.audit.by_state {
            table.add_row([format!("  {state}"), count.to_string()]);
        }
        for (_, label, count) in &self.counts {
            table.add_row([(*label).to_owned(), count.to_string()]);
        }
        table.add_row([format!("{tasks} per second"), format!("{:.0}", self.throughput())]);
        for (name, value) in &self.latency_ms {
            table.add_row([format!("submission to end, {name}"), format!("{value:.0} ms")]);
        }
        let verdict = if self.audit.passed() {
            format!("passed: {}", self.scenario.audit_summary())
        } else {
            "FAILED".to_owned()
        };
        let findings: String =
            self.audit.findings.iter().take(20).map(|finding| format!("\n  {finding}")).collect();
        format!("{table}\naudit {verdict}{findings}")
    }
}
