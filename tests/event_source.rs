//! What Lambda does between a queue and a function, done locally: what a handler fails or loses in a
//! panic comes back, alone, and is a dead letter in the end. The queue's time is tokio's, and paused.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use aws_lambda_events::sqs::{SqsBatchResponse, SqsEvent};
use aws_sdk_sqs::Client;
use steward_aws::batch::response;
use steward_local::{embedded::EmbeddedAws, event_source::EventSource, resources::create_queue};
use tokio::task::JoinSet;

/// A queue with three messages, one of them bad, and its dead letters.
async fn queue_with_a_bad_message() -> (Client, String) {
    let sdk = EmbeddedAws::in_memory().unwrap().sdk_config();
    let queue = create_queue(&sdk, "work", true).await.unwrap();
    let client = Client::new(&sdk);
    for body in ["good", "bad", "good"] {
        client.send_message().queue_url(&queue).message_body(body).send().await.unwrap();
    }
    (client, queue)
}

/// Runs `handler` on the queue until a message is among the dead letters; returns those.
async fn until_dead<H, F>(client: &Client, queue: &str, handler: H) -> Vec<String>
where
    H: Fn(SqsEvent) -> F + Send + Sync + 'static,
    F: Future<Output = SqsBatchResponse> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    let source = EventSource { queue_url: queue.to_owned(), concurrency: 2 };
    source.spawn(client, handler, &mut tasks);
    loop {
        let dead = client.receive_message().queue_url(format!("{queue}-dead-letters"));
        let dead = dead.wait_time_seconds(20).send().await.unwrap();
        if !dead.messages().is_empty() {
            return dead.messages().iter().filter_map(|m| m.body.clone()).collect();
        }
    }
}

fn count(event: &SqsEvent, body: &str) -> u32 {
    let same = event.records.iter().filter(|message| message.body.as_deref() == Some(body));
    u32::try_from(same.count()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn what_a_handler_reports_failed_comes_back_alone_and_ends_as_a_dead_letter() {
    let (client, queue) = queue_with_a_bad_message().await;
    let (good, bad) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (seen_good, seen_bad) = (good.clone(), bad.clone());
    let dead = until_dead(&client, &queue, move |event| {
        seen_good.fetch_add(count(&event, "good"), Ordering::SeqCst);
        seen_bad.fetch_add(count(&event, "bad"), Ordering::SeqCst);
        let failed = event.records.iter().filter(|message| message.body.as_deref() == Some("bad"));
        let failed: Vec<_> = failed.filter_map(|message| message.message_id.clone()).collect();
        std::future::ready(response(failed))
    })
    .await;
    assert_eq!(dead, ["bad"]);
    assert_eq!((good.load(Ordering::SeqCst), bad.load(Ordering::SeqCst)), (2, 5));
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_panics_loses_its_answer_and_no_message() {
    let (client, queue) = queue_with_a_bad_message().await;
    let done = Arc::new(AtomicU32::new(0));
    let seen = done.clone();
    let dead = until_dead(&client, &queue, move |event| {
        let seen = seen.clone();
        async move {
            assert_eq!(count(&event, "bad"), 0, "this invocation dies");
            seen.fetch_add(count(&event, "good"), Ordering::SeqCst);
            SqsBatchResponse::default()
        }
    })
    .await;
    let left = 2 - u32::try_from(dead.iter().filter(|body| *body == "good").count()).unwrap();
    assert!(dead.contains(&"bad".to_owned()));
    assert_eq!(done.load(Ordering::SeqCst), left, "a good message was done, or is kept: never lost");
}
