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
    net::SocketAddr,
    num::NonZeroU32,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent};
use aws_sdk_sqs::types::SendMessageBatchRequestEntry;
use clap::{
    Args,
    builder::{PossibleValuesParser, TypedValueParser as _},
};
use futures_util::{StreamExt, stream};
use indicatif::{ProgressBar, ProgressStyle};
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use serde_json::{Value, json};
use steward_core::model::task::Task;
use steward_demo::{
    audit::Audit,
    example_workflow::ExampleWorkflow,
    scenario::Scenario,
    services::{
        DemoService, FaultKind, FaultPlan, MockServices, ServiceLedgers, StewardConnection,
    },
};
use steward_emulator::{
    embedded::EmbeddedAws,
    event_source::EventSource,
    host::{Host, HostOptions},
    resources,
};
use steward_runtime::{
    metrics,
    ports::{Ports, StateStore},
};
use tokio::task::JoinSet;

use crate::{endpoint::EndpointArgs, table::table};

mod chaos;
mod progress;

use chaos::Chaos;
use progress::DemoProgress;

/// How long the demo waits for all tasks to end. It then audits the tasks as they are.
const RUN_TIMEOUT: Duration = Duration::from_secs(300);

/// Instances of each function in a run with `--chaos`, which kills instances at random.
const INSTANCES_IN_CHAOS: NonZeroU32 = NonZeroU32::MIN.saturating_add(1);

/// How long the audit waits until the services have read their queues.
const QUEUES_TIMEOUT: Duration = Duration::from_secs(60);

/// The share of messages that are delivered twice.
const DUPLICATE_RATE: f64 = 0.03;

/// How often the demo's supervisor runs.
const SUPERVISE_EVERY: Duration = Duration::from_secs(1);

/// Messages in one SQS request.
const BATCH: usize = 10;

/// Options of `steward demo`.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// The example workflow to run.
    #[arg(long, default_value = "order", value_parser = example_workflows())]
    workflow: ExampleWorkflow,
    /// How many tasks to submit.
    #[arg(long, default_value_t = 1_000)]
    tasks: usize,
    /// The seed that decides which calls get which faults.
    #[arg(long, default_value_t = 42)]
    seed: u64,
    /// How many tasks run at the same time.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    in_flight: u32,
    /// Also kill instances of submission, scheduler, agents and supervisor during the run, take one
    /// service down for a while, and inject more permanent refusals, also of undos.
    #[arg(long)]
    chaos: bool,
    /// The address of the console, the AWS-compatible endpoint and `POST /tasks`.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    #[command(flatten)]
    aws: EndpointArgs,
    /// Keep running until Ctrl-C after all tasks have ended, with healthy services, so that tasks in Error can
    /// be repaired in the console.
    #[arg(long)]
    stay: bool,
    /// Print one JSON object instead of the table.
    #[arg(long)]
    json: bool,
}

fn example_workflows() -> impl clap::builder::TypedValueParser<Value = ExampleWorkflow> {
    let names = ExampleWorkflow::ALL.map(|shipped| shipped.scenario().name());
    PossibleValuesParser::new(names)
        .try_map(|name| ExampleWorkflow::from_name(&name).ok_or("no such workflow"))
}

/// Runs the demo; fails if the audit does.
#[expect(clippy::print_stderr, reason = "standard output only has the report")]
pub(crate) async fn run(args: DemoArgs) -> Result<()> {
    let recorder = DebuggingRecorder::new();
    let counters = recorder.snapshotter();
    recorder.install().context("install the counters")?;
    let plan = if args.chaos { FaultPlan::chaos(args.seed) } else { FaultPlan::demo(args.seed) };
    let scenario = args.workflow.scenario();
    let services = MockServices::start(scenario.services(), plan).await?;
    let host = start_host(scenario, &services, &args).await?;
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
    let left = services.messages_left(QUEUES_TIMEOUT).await;
    let mut report = report(&args, &host, &services.ledgers(), &client, measured, seconds).await?;
    report.audit.findings.extend(left);
    report.print(args.json)?;
    if !report.audit.passed() {
        bail!("the audit failed");
    }
    if args.stay {
        services.heal();
        eprintln!("running until Ctrl-C");
        tokio::signal::ctrl_c().await.context("wait for Ctrl-C")?;
    }
    Ok(())
}

async fn start_host(
    scenario: &dyn Scenario,
    services: &MockServices,
    args: &DemoArgs,
) -> Result<Host> {
    let agent = |&service: &DemoService| {
        let target = service.agent_target(&services.base_url(service));
        Ok::<_, anyhow::Error>((service.name().parse()?, target.parse()?))
    };
    let host = Host::start(HostOptions {
        fast_path: true,
        listen: Some(args.listen),
        external: args.aws.endpoints_for_one_run()?,
        workflows: vec![scenario.workflow()?],
        agents: scenario.services().iter().map(agent).collect::<Result<_, _>>()?,
        supervise_every: Some(SUPERVISE_EVERY),
        instances: if args.chaos { INSTANCES_IN_CHAOS } else { NonZeroU32::MIN },
        ..HostOptions::default()
    });
    let host = host.await?;
    host.aws.duplicate_messages(DUPLICATE_RATE, args.seed);
    Ok(host)
}

/// Submits tasks, and receives their notifications on its own reply queue.
struct DemoClient {
    scenario: &'static dyn Scenario,
    sqs: aws_sdk_sqs::Client,
    reply_to: String,
    progress: Arc<DemoProgress>,
    _listeners: JoinSet<()>,
}

impl DemoClient {
    async fn start(scenario: &'static dyn Scenario, host: &Host, in_flight: usize) -> Result<Self> {
        let reply_to = resources::create_queue(&host.aws.sdk_config(), "client-demo", None).await?;
        let progress = Arc::new(DemoProgress::new(in_flight)?);
        let (sqs, mut listeners) = (host.sqs(), JoinSet::new());
        let alerts = host.queue_url(resources::ALERTS_QUEUE);
        let on_notification = DemoProgress::record_notification;
        listen(&host.aws, reply_to.clone(), &progress, on_notification, &mut listeners);
        listen(&host.aws, alerts, &progress, DemoProgress::record_event, &mut listeners);
        Ok(Self { scenario, sqs, reply_to, progress, _listeners: listeners })
    }

    /// Submits `count` tasks as fast as slots become free, and waits until all have ended.
    async fn submit_all(&self, host: &Host, count: usize, quiet: bool) -> Result<()> {
        let bar = progress_bar(count, self.scenario.nouns().1, quiet)?;
        let queue = host.queue_url(resources::SUBMISSIONS_QUEUE);
        let mut next = 0;
        let deadline = Instant::now() + RUN_TIMEOUT;
        loop {
            let running = self.progress.lock().running.len();
            bar.set_position((next - running) as u64);
            if (next == count && running == 0) || Instant::now() > deadline {
                break;
            }
            let slots = self.progress.free_slots.available_permits().min(BATCH).min(count - next);
            if slots == 0 {
                tokio::time::sleep(Duration::from_millis(2)).await;
                continue;
            }
            self.progress.free_slots.acquire_many(u32::try_from(slots)?).await?.forget();
            self.submit(&queue, next..next + slots).await?;
            next += slots;
        }
        bar.finish_and_clear();
        Ok(())
    }

    async fn submit(&self, queue: &str, numbers: std::ops::Range<usize>) -> Result<()> {
        let mut entries = Vec::new();
        for number in numbers {
            let id = self.scenario.task_id(number);
            let entry = SendMessageBatchRequestEntry::builder().id(number.to_string());
            entries.push(entry.message_body(self.submission(number, &id).to_string()).build()?);
            self.progress.lock().running.insert(id, Instant::now());
        }
        let request = self.sqs.send_message_batch().queue_url(queue).set_entries(Some(entries));
        let response = request.send().await.context("submit")?;
        match response.failed().first() {
            Some(failed) => bail!("SQS refused a submission: {}", failed.code()),
            None => Ok(()),
        }
    }

    fn submission(&self, number: usize, id: &str) -> Value {
        json!({
            "task_id": id,
            "workflow": self.scenario.name(),
            "reply_to": self.reply_to,
            "input": self.scenario.input(number),
        })
    }
}

/// Passes every message of a queue to `record` until the `JoinSet` is dropped. `record` must tolerate
/// duplicates.
fn listen(
    aws: &EmbeddedAws,
    queue_url: String,
    progress: &Arc<DemoProgress>,
    record: fn(&DemoProgress, &str),
    listeners: &mut JoinSet<()>,
) {
    let progress = progress.clone();
    let handler = move |event: SqsEvent| {
        for message in &event.records {
            record(&progress, message.body.as_deref().unwrap_or_default());
        }
        std::future::ready(SqsBatchResponse::default())
    };
    EventSource { queue_url, concurrency: 2 }.spawn(aws, handler, listeners);
}

fn progress_bar(count: usize, tasks: &str, quiet: bool) -> Result<ProgressBar> {
    if quiet {
        return Ok(ProgressBar::hidden());
    }
    let template = format!("{{bar:40}} {{pos}}/{{len}} {tasks} ended, {{elapsed}} ");
    let style = ProgressStyle::with_template(&template)?;
    Ok(ProgressBar::new(count as u64).with_style(style))
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
    let in_error = |task: &&Task| task.error.is_some();
    wait_for_alerts(client, tasks.values().filter(in_error).map(|task| task.task_id.to_string()))
        .await;
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

async fn load_all(host: &Host, ids: &[String]) -> Result<BTreeMap<String, Task>> {
    let loads = stream::iter(ids).map(|id| async move {
        let task = host.ports.store().load(&id.parse()?).await?;
        Ok::<_, anyhow::Error>((id.clone(), task))
    });
    let loaded: Vec<_> = loads.buffer_unordered(16).collect().await;
    let mut tasks = BTreeMap::new();
    for loaded in loaded {
        let (id, task) = loaded?;
        tasks.extend(task.map(|task| (id, task)));
    }
    Ok(tasks)
}

/// Waits until the tasks in `wanted` are alerted, at most 20 s: alerts may arrive after the last notification.
async fn wait_for_alerts(client: &DemoClient, wanted: impl Iterator<Item = String>) {
    let wanted: BTreeSet<_> = wanted.collect();
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
