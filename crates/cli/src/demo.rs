//! `steward demo`: tasks through services that misbehave on purpose, everything in this process, and
//! an audit of what came of it. With `--chaos`, the function set itself is killed meanwhile. What the
//! tasks are is the [`Scenario`]'s to say.
//!
//! ```text
//! this client ──► submissions queue ──► the function set ──► the scenario's services
//!      ▲                                      │                 (slow, failing, silent)
//!      └── notices: received, processed, error┘                          │
//!      └──────────────── audit: state store against ledgers ◄────────────┘
//! ```

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::SocketAddr,
    num::NonZeroU32,
    sync::{Arc, Mutex, PoisonError},
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
use hdrhistogram::Histogram;
use indicatif::{ProgressBar, ProgressStyle};
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use serde_json::{Value, json};
use steward_core::model::{
    messages::{NoticeStatus, StatusNotice},
    task::Task,
};
use steward_demo::{
    audit::Audit,
    scenario::{Scenario, Shipped},
    services::{FaultKind, FaultPlan, Ledger, MockServices, Service},
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
use tokio::{sync::Semaphore, task::JoinSet};

use crate::{chaos::Chaos, endpoint::EndpointArgs, table::table};

/// How long the demo waits for the last task before it audits what there is.
const PATIENCE: Duration = Duration::from_secs(300);

/// Instances of each function while they are killed at random.
const INSTANCES_IN_CHAOS: NonZeroU32 = NonZeroU32::MIN.saturating_add(1);

/// How often a message is delivered twice.
const DUPLICATES: f64 = 0.03;

/// How often the demo's supervisor runs.
const SUPERVISE_EVERY: Duration = Duration::from_secs(1);

/// The longest latency that is told apart, in microseconds.
const LATENCY_MAX_US: u64 = 600_000_000;

/// Messages in one SQS request.
const BATCH: usize = 10;

/// What to run.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// What to run.
    #[arg(long, default_value = "order", value_parser = shipped())]
    workflow: Shipped,
    /// How many tasks to submit.
    #[arg(long, default_value_t = 1_000)]
    tasks: usize,
    /// Decides which call meets which fault.
    #[arg(long, default_value_t = 42)]
    seed: u64,
    /// How many tasks are under way at once.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    in_flight: u32,
    /// Kill submissions, schedulers, agents and supervisors meanwhile, take a service down for a
    /// while, and refuse more for good, undos too.
    #[arg(long)]
    chaos: bool,
    /// Where to serve the console, beside the AWS-compatible endpoint and `POST /tasks`.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    #[command(flatten)]
    aws: EndpointArgs,
    /// Stay until Ctrl-C when all tasks have ended, with services that behave from then on: what is in Error
    /// can be made good in the console.
    #[arg(long)]
    stay: bool,
    /// One JSON object on standard output instead of the table.
    #[arg(long)]
    json: bool,
}

fn shipped() -> impl clap::builder::TypedValueParser<Value = Shipped> {
    let names = Shipped::ALL.map(|shipped| shipped.scenario().name());
    PossibleValuesParser::new(names).try_map(|name| Shipped::named(&name).ok_or("no such workflow"))
}

/// Runs the demo; fails if the audit does.
#[expect(clippy::print_stderr, reason = "standard output is the report's alone")]
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
    }
    let client = Client::start(scenario, &host, args.in_flight as usize).await?;
    let started = Instant::now();
    let chaos = Chaos::new(args.seed);
    let havoc = chaos.wreak(&host, &services, &client.heard, (scenario.goes_down(), args.tasks));
    tokio::select! {
        submitted = client.submit_all(&host, args.tasks, args.json) => submitted?,
        () = havoc, if args.chaos => {}
    }
    let seconds = started.elapsed().as_secs_f64();
    let counted = (&counters, &chaos);
    let report = report(&args, &host, &services.ledger(), &client, counted, seconds).await?;
    report.print(args.json)?;
    if !report.audit.passed() {
        bail!("the audit failed");
    }
    if args.stay {
        services.heal();
        eprintln!("until Ctrl-C");
        tokio::signal::ctrl_c().await.context("wait for Ctrl-C")?;
    }
    Ok(())
}

async fn start_host(
    scenario: &dyn Scenario,
    services: &MockServices,
    args: &DemoArgs,
) -> Result<Host> {
    let agent = |&service: &Service| {
        Ok::<_, anyhow::Error>((service.name().parse()?, services.base_url(service).parse()?))
    };
    let host = Host::start(HostOptions {
        listen: Some(args.listen),
        external: args.aws.endpoints_of_one_run()?,
        workflows: vec![scenario.workflow()?],
        agents: scenario.services().iter().map(agent).collect::<Result<_, _>>()?,
        supervise_every: Some(SUPERVISE_EVERY),
        instances: if args.chaos { INSTANCES_IN_CHAOS } else { NonZeroU32::MIN },
        ..HostOptions::default()
    });
    let host = host.await?;
    host.aws.duplicate_messages(DUPLICATES, args.seed);
    Ok(host)
}

/// The client: submits tasks, and hears of them on a queue of its own.
struct Client {
    scenario: &'static dyn Scenario,
    sqs: aws_sdk_sqs::Client,
    reply_to: String,
    heard: Arc<Heard>,
    _listeners: JoinSet<()>,
}

/// What has been heard so far.
pub(crate) struct Heard {
    /// A permit for each task that may be under way.
    room: Semaphore,
    inner: Mutex<HeardInner>,
}

struct HeardInner {
    under_way: HashMap<String, Instant>,
    latencies: Histogram<u64>,
    ended: usize,
    alerted: BTreeSet<String>,
    /// Events on the bus by name, each counted once however often it is published.
    events: BTreeMap<String, BTreeSet<String>>,
}

impl Heard {
    fn lock(&self) -> std::sync::MutexGuard<'_, HeardInner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A notice may come more than once; only the first end of a task counts.
    fn notice(&self, body: &str) {
        let Ok(StatusNotice { task_id: Some(id), status, .. }) = serde_json::from_str(body) else {
            return;
        };
        match status {
            NoticeStatus::Received => {}
            NoticeStatus::Refused
            | NoticeStatus::Processed
            | NoticeStatus::Undone
            | NoticeStatus::Error => {
                let mut inner = self.lock();
                let Some(since) = inner.under_way.remove(&id) else { return };
                let micros = u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX);
                inner.latencies.saturating_record(micros);
                inner.ended += 1;
                self.room.add_permits(1);
            }
        }
    }

    fn alert(&self, body: &str) {
        let event: Value = serde_json::from_str(body).unwrap_or_default();
        let text = |path| event.pointer(path).and_then(Value::as_str);
        let name = text("/detail/metadata/event").unwrap_or_default();
        let event_id = text("/detail/metadata/event_id").unwrap_or_default();
        let mut inner = self.lock();
        inner.events.entry(name.to_owned()).or_default().insert(event_id.to_owned());
        if matches!(name, "task_in_error" | "undo_failed")
            && let Some(id) = text("/detail/data/task_id")
        {
            inner.alerted.insert(id.to_owned());
        }
    }

    /// How many tasks have ended.
    pub(crate) fn ended(&self) -> usize {
        self.lock().ended
    }

    /// How many events of this name were published.
    pub(crate) fn events(&self, name: &str) -> usize {
        self.lock().events.get(name).map_or(0, BTreeSet::len)
    }
}

impl Client {
    async fn start(scenario: &'static dyn Scenario, host: &Host, in_flight: usize) -> Result<Self> {
        let reply_to = resources::create_queue(&host.aws.sdk_config(), "client-demo", None).await?;
        let inner = HeardInner {
            under_way: HashMap::new(),
            latencies: Histogram::new_with_max(LATENCY_MAX_US, 3)?,
            ended: 0,
            alerted: BTreeSet::new(),
            events: BTreeMap::new(),
        };
        let heard = Arc::new(Heard { room: Semaphore::new(in_flight), inner: Mutex::new(inner) });
        let (sqs, mut listeners) = (host.sqs(), JoinSet::new());
        let alerts = host.queue_url(resources::ALERTS_QUEUE);
        listen(&host.aws, reply_to.clone(), &heard, Heard::notice, &mut listeners);
        listen(&host.aws, alerts, &heard, Heard::alert, &mut listeners);
        Ok(Self { scenario, sqs, reply_to, heard, _listeners: listeners })
    }

    /// Submits `count` tasks as fast as there is room, and waits for the end of the last.
    async fn submit_all(&self, host: &Host, count: usize, quiet: bool) -> Result<()> {
        let progress = progress_bar(count, self.scenario.nouns().1, quiet)?;
        let queue = host.queue_url(resources::SUBMISSIONS_QUEUE);
        let mut next = 0;
        let deadline = Instant::now() + PATIENCE;
        loop {
            let under_way = self.heard.lock().under_way.len();
            progress.set_position((next - under_way) as u64);
            if (next == count && under_way == 0) || Instant::now() > deadline {
                break;
            }
            let room = self.heard.room.available_permits().min(BATCH).min(count - next);
            if room == 0 {
                tokio::time::sleep(Duration::from_millis(2)).await;
                continue;
            }
            self.heard.room.acquire_many(u32::try_from(room)?).await?.forget();
            self.submit(&queue, next..next + room).await?;
            next += room;
        }
        progress.finish_and_clear();
        Ok(())
    }

    async fn submit(&self, queue: &str, numbers: std::ops::Range<usize>) -> Result<()> {
        let mut entries = Vec::new();
        for number in numbers {
            let id = self.scenario.task_id(number);
            let entry = SendMessageBatchRequestEntry::builder().id(number.to_string());
            entries.push(entry.message_body(self.submission(number, &id).to_string()).build()?);
            self.heard.lock().under_way.insert(id, Instant::now());
        }
        let request = self.sqs.send_message_batch().queue_url(queue).set_entries(Some(entries));
        let answer = request.send().await.context("submit")?;
        match answer.failed().first() {
            Some(failed) => bail!("the queue refused a submission: {}", failed.code()),
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

/// Hears every message of a queue until the `JoinSet` is dropped. What comes again is heard again,
/// which changes nothing.
fn listen(
    aws: &EmbeddedAws,
    queue_url: String,
    heard: &Arc<Heard>,
    hear: fn(&Heard, &str),
    listeners: &mut JoinSet<()>,
) {
    let heard = heard.clone();
    let handler = move |event: SqsEvent| {
        for message in &event.records {
            hear(&heard, message.body.as_deref().unwrap_or_default());
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

/// What came of the run.
struct Report {
    scenario: &'static dyn Scenario,
    submitted: usize,
    audit: Audit,
    seconds: f64,
    latency_ms: BTreeMap<&'static str, f64>,
    /// Counted things, in the order in which they are shown.
    counts: Vec<(&'static str, &'static str, u64)>,
}

async fn report(
    args: &DemoArgs,
    host: &Host,
    ledger: &Ledger,
    client: &Client,
    (counters, chaos): (&Snapshotter, &Chaos),
    seconds: f64,
) -> Result<Report> {
    let scenario = client.scenario;
    let ids: Vec<_> = (0..args.tasks).map(|number| scenario.task_id(number)).collect();
    let tasks = load_all(host, &ids).await?;
    let in_error = |task: &&Task| task.error.is_some();
    wait_for_alerts(client, tasks.values().filter(in_error).map(|task| task.task_id.to_string()))
        .await;
    let mut audit = Audit::of(scenario);
    {
        let heard = client.heard.lock();
        for (number, id) in ids.iter().enumerate() {
            audit.check(number, tasks.get(id), ledger, &heard.alerted);
            if heard.under_way.contains_key(id) {
                audit.findings.push(format!("{id}: the client never heard of its end"));
            }
        }
    }
    audit.check_foreign(args.tasks, ledger);
    let heard = client.heard.lock();
    let percentile = |p| heard.latencies.value_at_quantile(p) as f64 / 1_000.0;
    let latency_ms = BTreeMap::from([("p50", percentile(0.5)), ("p99", percentile(0.99))]);
    let faults = FaultKind::ALL.into_iter().map(|kind| ledger.faults_total(kind)).sum();
    let counted = totals(counters);
    let counted = |name| counted.get(name).copied().unwrap_or_default();
    let attempts = tasks.values().flat_map(Task::actions);
    let repeated = attempts.map(|(.., of)| u64::from(of.state.attempt().saturating_sub(1))).sum();
    let mut counts = vec![
        ("remote_calls", "remote calls", ledger.calls_total()),
        ("faults_injected", "faults injected", faults),
        ("calls_retried", "calls retried by agents", counted(metrics::CALLS_RETRIED)),
        ("attempts_repeated", "attempts repeated by the scheduler", repeated),
        ("attempts_deferred", "attempts deferred by breakers", counted(metrics::ATTEMPTS_DEFERRED)),
        (
            "duplicates_ignored",
            "duplicates and latecomers ignored",
            counted(metrics::EVENTS_IGNORED),
        ),
        ("calls_deduplicated", "repeats recognised by the services", ledger.deduplicated_total()),
        ("alerts", "tasks alerted", heard.alerted.len() as u64),
    ];
    if args.chaos {
        counts.push(("instances_killed", "instances killed", chaos.killed()));
        for (name, label) in
            [("breaker_opened", "breakers opened"), ("breaker_closed", "breakers closed")]
        {
            let events = heard.events.get(name).map_or(0, BTreeSet::len);
            counts.push((name, label, events as u64));
        }
    }
    Ok(Report { scenario, submitted: args.tasks, audit, seconds, latency_ms, counts })
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

/// The last alerts may still be on their way when the last notice has come.
async fn wait_for_alerts(client: &Client, wanted: impl Iterator<Item = String>) {
    let wanted: BTreeSet<_> = wanted.collect();
    let deadline = Instant::now() + Duration::from_secs(20);
    while !wanted.is_subset(&client.heard.lock().alerted) && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Counters by name, over all labels.
fn totals(counters: &Snapshotter) -> HashMap<String, u64> {
    let mut totals = HashMap::new();
    for (key, _, _, value) in counters.snapshot().into_vec() {
        if let DebugValue::Counter(count) = value {
            *totals.entry(key.key().name().to_owned()).or_default() += count;
        }
    }
    totals
}

impl Report {
    fn print(&self, as_json: bool) -> Result<()> {
        let text = if as_json { serde_json::to_string_pretty(&self.json())? } else { self.table() };
        say!("{text}");
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
            table.add_row([format!("submitted to ended, {name}"), format!("{value:.0} ms")]);
        }
        let verdict = if self.audit.passed() {
            format!("passed: {}", self.scenario.verdict())
        } else {
            "FAILED".to_owned()
        };
        let findings: String =
            self.audit.findings.iter().take(20).map(|finding| format!("\n  {finding}")).collect();
        format!("{table}\naudit {verdict}{findings}")
    }
}
