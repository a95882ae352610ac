//! The local event source, which delivers messages of a queue to a handler as Lambda does: only failed messages, or those
//! of an invocation that panicked, are redelivered, and in the end become dead letters. Time is tokio's, and paused.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent};
use aws_sdk_sqs::Client;
use steward_aws::queues::QueueSettings;
use steward_aws::{AwsPorts, batch::Batch};
use steward_emulator::{
    embedded::EmbeddedAws,
    event_source::EventSource,
    resources::{self, create_queue},
};
use steward_runtime::ports::{Ports, Queue};
use tokio::{task::JoinSet, time::Instant};

/// The time limit of a test, on the paused clock.
const TIMEOUT: Duration = Duration::from_secs(3_600);

const REDELIVERY: QueueSettings = QueueSettings { visibility_seconds: 180, receives_max: 5 };

/// A queue with three messages, one of which is bad, and with a dead-letter queue.
async fn queue_with_a_bad_message() -> (EmbeddedAws, String) {
    let aws = EmbeddedAws::in_memory().unwrap();
    let sdk = aws.sdk_config();
    let queue = create_queue(&sdk, "work", Some(REDELIVERY)).await.unwrap();
    let client = Client::new(&sdk);
    for body in ["good", "bad", "good"] {
        client.send_message().queue_url(&queue).message_body(body).send().await.unwrap();
    }
    (aws, queue)
}

/// Runs `handler` on the queue until `is_done` returns true for the dead letters so far; returns these.
async fn run_until<H, F>(
    aws: &EmbeddedAws,
    queue: &str,
    handler: H,
    is_done: impl Fn(&[String]) -> bool,
) -> Vec<String>
where
    H: Fn(SqsEvent) -> F + Send + Sync + 'static,
    F: Future<Output = SqsBatchResponse> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    let source = EventSource { queue_url: queue.to_owned(), concurrency: 2 };
    source.spawn(aws, handler, &mut tasks);
    let client = Client::new(&aws.sdk_config());
    let mut dead = Vec::new();
    let start = Instant::now();
    while !is_done(&dead) {
        assert!(start.elapsed() < TIMEOUT, "dead letters so far: {dead:?}");
        let letters = client.receive_message().queue_url(format!("{queue}-dead-letters"));
        let letters =
            letters.wait_time_seconds(20).max_number_of_messages(10).send().await.unwrap();
        for letter in letters.messages() {
            dead.extend(letter.body.clone());
            let delete = client.delete_message().queue_url(format!("{queue}-dead-letters"));
            delete.receipt_handle(letter.receipt_handle().unwrap()).send().await.unwrap();
        }
    }
    dead
}

fn count(event: &SqsEvent, body: &str) -> u32 {
    let same = event.records.iter().filter(|message| message.body.as_deref() == Some(body));
    u32::try_from(same.count()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn only_failed_messages_are_redelivered_and_become_dead_letters() {
    let (aws, queue) = queue_with_a_bad_message().await;
    let (good, bad) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (good_count, bad_count) = (good.clone(), bad.clone());
    let handler = move |event: SqsEvent| {
        good_count.fetch_add(count(&event, "good"), Ordering::SeqCst);
        bad_count.fetch_add(count(&event, "bad"), Ordering::SeqCst);
        let failed = event.records.iter().filter(|message| message.body.as_deref() == Some("bad"));
        let mut response = SqsBatchResponse::default();
        for message in failed {
            response.add_failure(message.message_id.clone().unwrap());
        }
        std::future::ready(response)
    };
    let dead = run_until(&aws, &queue, handler, |dead| !dead.is_empty()).await;
    assert_eq!(dead, ["bad"]);
    assert_eq!((good.load(Ordering::SeqCst), bad.load(Ordering::SeqCst)), (2, 5));
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_panics_loses_no_message() {
    let (aws, queue) = queue_with_a_bad_message().await;
    let done = Arc::new(AtomicU32::new(0));
    let counter = done.clone();
    let handler = move |event: SqsEvent| {
        let counter = counter.clone();
        async move {
            assert_eq!(count(&event, "bad"), 0, "the handler panics over this message");
            counter.fetch_add(count(&event, "good"), Ordering::SeqCst);
            SqsBatchResponse::default()
        }
    };
    // A good message that is always in a batch with the bad one becomes a dead letter with it.
    let all_accounted_for =
        |dead: &[String]| dead.len() + done.load(Ordering::SeqCst) as usize == 3;
    let dead = run_until(&aws, &queue, handler, all_accounted_for).await;
    assert!(dead.contains(&"bad".to_owned()), "{dead:?}");
}

/// A failed message returns long before its visibility timeout, which is six times the timeout of the function.
#[tokio::test(start_paused = true)]
async fn failed_messages_are_redelivered_within_seconds() {
    let aws = EmbeddedAws::in_memory().unwrap();
    let config = resources::create(&aws, &[]).await.unwrap();
    let sdk = aws.sdk_config();
    let ports = Arc::new(AwsPorts::new(&sdk, &config, "scheduler"));
    let queue = config.scheduler_queue_url;
    Client::new(&sdk).send_message().queue_url(&queue).message_body("bad").send().await.unwrap();
    let (delivered, mut deliveries) = tokio::sync::mpsc::unbounded_channel();
    let handler = move |event| {
        let (ports, delivered) = (ports.clone(), delivered.clone());
        let fail = move |batch: Batch| {
            delivered.send(Instant::now()).unwrap();
            std::future::ready(batch.progress.response())
        };
        let stop = Instant::now() + Duration::from_secs(28);
        async move { ports.channel().process_batch(&Queue::Scheduler, event, stop, fail).await }
    };
    let mut tasks = JoinSet::new();
    EventSource { queue_url: queue, concurrency: 1 }.spawn(&aws, handler, &mut tasks);
    let mut last = deliveries.recv().await.unwrap();
    for longest in [2, 4, 8, 16] {
        let next = deliveries.recv().await.unwrap();
        let seconds = (next - last).as_secs_f64();
        // Includes the time of a poll.
        let (shortest, longest) = (f64::from(longest) / 2.0, f64::from(longest) + 1.0);
        assert!((shortest..longest).contains(&seconds), "{seconds} s, not {shortest} to {longest}");
        last = next;
    }
}
