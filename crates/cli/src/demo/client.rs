//! The functions of a demo, and the client that submits its tasks and receives their notifications.

use std::{
    collections::BTreeMap,
    num::NonZeroU32,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent};
use aws_sdk_sqs::types::SendMessageBatchRequestEntry;
use futures_util::{StreamExt, stream};
use indicatif::{ProgressBar, ProgressStyle};
use jiff::Timestamp;
use serde_json::{Value, json};
use steward_core::model::task::Task;
use steward_demo::{
    scenario::Scenario,
    services::{DemoService, MockServices},
};
use steward_emulator::{
    embedded::EmbeddedAws,
    event_source::EventSource,
    host::{Host, HostOptions},
    resources,
};
use steward_runtime::ports::{Ports, StateStore};
use tokio::task::JoinSet;

use super::{options::DemoArgs, progress::DemoProgress};

/// How long the demo waits for all tasks to end. If all were submitted by then, it audits them as they are.
pub(super) const RUN_TIMEOUT: Duration = Duration::from_secs(300);

/// How long the audit waits until the services have read their queues.
const QUEUES_TIMEOUT: Duration = Duration::from_secs(60);

/// Instances of each function in a run with `--chaos`, which kills instances at random.
const INSTANCES_IN_CHAOS: NonZeroU32 = NonZeroU32::MIN.saturating_add(1);

/// The share of messages that are delivered twice.
const DUPLICATE_RATE: f64 = 0.03;

/// How often the demo's supervisor runs.
const SUPERVISE_EVERY: Duration = Duration::from_secs(1);

/// Messages in one SQS request.
const BATCH: usize = 10;

/// Starts the functions. Of `options`, the data directory and the times apply.
pub(super) async fn start_host(
    scenario: &dyn Scenario,
    services: &MockServices,
    args: &DemoArgs,
    options: HostOptions,
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
        ..options
    });
    let host = host.await?;
    host.aws.duplicate_messages(DUPLICATE_RATE, args.seed);
    Ok(host)
}

/// Submits tasks, and receives their notifications on its own reply queue.
pub(super) struct DemoClient {
    pub(super) scenario: &'static dyn Scenario,
    sqs: aws_sdk_sqs::Client,
    reply_to: String,
    pub(super) progress: Arc<DemoProgress>,
    _listeners: JoinSet<()>,
}

impl DemoClient {
    /// Starts to receive notifications and alerts. At most `in_flight` tasks run at the same time.
    pub(super) async fn start(
        scenario: &'static dyn Scenario,
        host: &Host,
        in_flight: usize,
    ) -> Result<Self> {
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
    pub(super) async fn submit_all(&self, host: &Host, count: usize, quiet: bool) -> Result<()> {
        let nouns = self.scenario.nouns().1;
        let at_once = self.progress.free_slots.available_permits();
        announce(&format!("submitting {count} {nouns}, at most {at_once} at the same time"));
        let bar = progress_bar(count, nouns, quiet)?;
        let queue = host.queue_url(resources::SUBMISSIONS_QUEUE);
        let mut next = 0;
        let deadline = Instant::now() + RUN_TIMEOUT;
        loop {
            let running = self.progress.lock().running.len();
            bar.set_position((next - running) as u64);
            let is_late = Instant::now() > deadline;
            if next == count && (running == 0 || is_late) {
                break;
            }
            ensure!(
                !is_late,
                "stopped after {} s: {next} of {count} {nouns} were submitted, and {running} of them have not ended. The machine is \
                 too slow or too busy for this many: choose fewer with --tasks",
                RUN_TIMEOUT.as_secs()
            );
            let slots = self.progress.free_slots.available_permits().min(BATCH).min(count - next);
            if slots == 0 {
                tokio::time::sleep(Duration::from_millis(2)).await;
                continue;
            }
            self.progress.free_slots.acquire_many(u32::try_from(slots)?).await?.forget();
            self.submit(&queue, next..next + slots).await?;
            next += slots;
            if next == count {
                let running = self.progress.lock().running.len();
                bar.suspend(|| {
                    announce(&format!("waiting until the last {running} {nouns} have ended"));
                });
            }
        }
        bar.finish_and_clear();
        Ok(())
    }

    /// Submits the tasks with these numbers.
    pub(super) async fn submit(&self, queue: &str, numbers: std::ops::Range<usize>) -> Result<()> {
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

    /// Records that the Errors of these tasks are settled.
    pub(super) async fn resolve(
        &self,
        queue: &str,
        tasks: impl Iterator<Item = &Task>,
    ) -> Result<()> {
        for task in tasks {
            let id = &task.task_id;
            let body = json!({
                "type": "command",
                "task_id": id,
                "command_id": "audited",
                "order": { "command": "resolve" },
                "by": "the audit",
                "why": "audited",
                "issued_at": Timestamp::now(),
            });
            let send = self.sqs.send_message().queue_url(queue).message_body(body.to_string());
            send.send().await.with_context(|| format!("resolve {id}"))?;
        }
        Ok(())
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

/// Waits until the services have read their queues. Returns what they left.
pub(super) async fn messages_left(services: &MockServices) -> Vec<String> {
    announce("waiting until the services have read their queues");
    services.messages_left(QUEUES_TIMEOUT).await
}

/// Prints what the demo does next, or waits for. In a pipe there is no progress bar.
#[expect(clippy::print_stderr, reason = "standard output only has the report")]
pub(super) fn announce(phase: &str) {
    eprintln!("{phase}");
}

/// A bar on standard error that counts to `count`, unless the run is quiet.
pub(super) fn progress_bar(count: usize, tasks: &str, quiet: bool) -> Result<ProgressBar> {
    if quiet {
        return Ok(ProgressBar::hidden());
    }
    let template = format!("{{bar:40}} {{pos}}/{{len}} {tasks} ended, {{elapsed}} ");
    let style = ProgressStyle::with_template(&template)?;
    Ok(ProgressBar::new(count as u64).with_style(style))
}

/// Loads tasks, by their ids. Those that are not stored are left out.
pub(super) async fn load_all(host: &Host, ids: &[String]) -> Result<BTreeMap<String, Task>> {
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
