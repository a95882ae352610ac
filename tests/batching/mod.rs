//! A batch is handled as one: so many messages for so many tasks are so many loads and saves side by
//! side, and a tenth as many sends; nothing waits in turn that need not. Counted by the
//! [meter](steward_aws::meter) and over an AWS that is [slow], for batches of 10, 100 and 1,000.

mod agent;
mod scheduler;
mod slow;
mod submission;
mod supervisor;
mod wide;

use aws_lambda_events::sqs::SqsBatchResponse;
use slow::Seen;
use steward_runtime::drive::TASKS_AT_ONCE;

use crate::support::Deployment;

/// The batches.
const SIZES: [usize; 3] = [10, 100, 1_000];

/// Batches to SQS and to EventBridge under way at once.
const SENDS_AT_ONCE: usize = 16;

/// Messages in one request to SQS.
const SEND: usize = 10;

fn ids(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("t-{n:04}")).collect()
}

/// How long so many calls take that are made in tens, and so many of those at once.
fn sends(messages: usize) -> u64 {
    messages.div_ceil(SEND).div_ceil(SENDS_AT_ONCE) as u64
}

/// How many rounds so many take of which so many are in hand.
fn rounds(tasks: usize, at_once: usize) -> u64 {
    tasks.div_ceil(at_once) as u64
}

/// Requests for one item each of so many tasks: those that are in hand at once share one.
fn together(tasks: usize) -> usize {
    tasks.div_ceil(TASKS_AT_ONCE)
}

/// Requests that write so many items of each of so many tasks: 25 of those that are in hand at once share
/// one.
fn writes(tasks: usize, items: usize) -> usize {
    let (rounds, rest) = (tasks / TASKS_AT_ONCE, tasks % TASKS_AT_ONCE);
    rounds * (TASKS_AT_ONCE * items).div_ceil(25) + (rest * items).div_ceil(25)
}

/// Puts tasks into the store, and throws their wakes away.
async fn submitted(deployment: &Deployment, ids: &[String]) {
    deployment.submit(&deployment.ports("submission"), ids).await;
    deployment.to_scheduler().await;
}

/// All is done, and that with these requests, and no longer a chain than this.
fn assert_seen(answer: &SqsBatchResponse, seen: &Seen, requests: &[(&str, usize)], chain: u64) {
    assert_eq!(*answer, SqsBatchResponse::default());
    let wanted: Vec<_> =
        requests.iter().map(|(name, count)| ((*name).to_owned(), *count as u64)).collect();
    assert_eq!(seen.requests, wanted);
    assert!(seen.chain <= chain, "a chain of {} calls, not {chain}", seen.chain);
}
