//! The supervisor's sweeps between two runs: its ticks, and what a minute without due tasks uses.

use std::{num::NonZeroU32, time::Duration};

use aws_sdk_sqs::types::QueueAttributeName;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use steward_aws::{
    meter::{AwsMeter, OperationUsage, total},
    ports::SharedInterceptor,
};
use steward_core::{model::time::later, submission::ReplyQueues};
use steward_forecast::cost::{
    idle_month::{QUEUES, RUN, TICK, TICKS},
    prices::{Prices, TaskUsage},
};
use steward_runtime::ports::{Clock, Ports, Queue, StateStore};
use steward_supervisor::{SweepResult, SweepSchedule, handle_ticks, run, ticks::RUN_EVERY};
use steward_test_world::MemoryPorts;

use crate::support::{TestDeployment, sequential_workflow, sqs_event, submission_message};

/// A sweep every so many seconds.
const fn every(seconds: u64) -> SweepSchedule {
    SweepSchedule { run_every: RUN_EVERY, sweep_every: Duration::from_secs(seconds) }
}

/// Ports in memory with a pending task whose wake was lost.
async fn ports_with_lost_wake() -> MemoryPorts {
    let ports = MemoryPorts::default();
    ports.definitions().publish(&sequential_workflow(1)).unwrap();
    let event = sqs_event([submission_message("t")], 1);
    steward_submission::handle(&ports, &ReplyQueues::default(), event).await;
    assert_eq!(ports.channel().take_all().len(), 1);
    ports
}

/// When the supervisor finds that task: when it is due, and the clock skew later.
async fn due(ports: &MemoryPorts) -> Timestamp {
    let task = ports.store().load(&"t".parse().unwrap()).await.unwrap().unwrap();
    later(task.due.unwrap(), ports.timing().clock_skew)
}

/// Handles a tick with this body; returns the number of due tasks.
async fn handle(ports: &MemoryPorts, body: &str) -> u64 {
    handle_ticks(ports, &every(10), vec![body.to_owned()], 0, Timestamp::MAX).await.unwrap().due
}

fn tick_at(at: Timestamp) -> String {
    json!({ "sweep_at": at }).to_string()
}

#[tokio::test]
async fn a_task_that_becomes_due_between_two_runs_is_found_by_the_next_tick() {
    let ports = ports_with_lost_wake().await;
    let started = due(&ports).await - SignedDuration::from_secs(25);
    ports.clock().set(started);
    assert_eq!(run(&ports, &every(10), 0, Timestamp::MAX).await.unwrap().due, 0);
    let ticks = ports.channel().take(&Queue::Sweeps);
    let delays: Vec<_> = ticks.iter().map(|tick| tick.delay.as_secs()).collect();
    assert_eq!(delays, [10, 20, 30, 40, 50]);
    let mut found = Vec::new();
    for tick in &ticks {
        ports.clock().set(started + SignedDuration::try_from(tick.delay).unwrap());
        found.push(handle(&ports, &tick.body).await);
    }
    assert_eq!(found, [0, 0, 1, 0, 0], "due after 25 seconds");
    assert_eq!(ports.channel().take(&Queue::Sweeps), [], "ticks send no ticks");
}

#[tokio::test]
async fn a_stale_tick_does_nothing() {
    let ports = ports_with_lost_wake().await;
    ports.clock().set(due(&ports).await);
    let now = ports.clock().now();
    let stale = tick_at(now - SignedDuration::from_secs(10));
    let swept = handle_ticks(&ports, &every(10), vec![stale], 0, Timestamp::MAX).await.unwrap();
    assert_eq!(swept, SweepResult::default(), "the next tick is due: no shard is left for it");
    let late = tick_at(now - SignedDuration::from_secs(9));
    assert_eq!(handle(&ports, &late).await, 1);
}

/// By a clock that is behind, a tick arrives early.
#[tokio::test]
async fn a_tick_that_arrives_early_sweeps() {
    let ports = ports_with_lost_wake().await;
    ports.clock().set(due(&ports).await);
    let early = tick_at(ports.clock().now() + SignedDuration::from_secs(2));
    assert_eq!(handle(&ports, &early).await, 1);
}

#[tokio::test]
async fn a_message_that_is_no_tick_does_nothing() {
    let ports = ports_with_lost_wake().await;
    ports.clock().set(due(&ports).await);
    for body in ["", "{", "{}", r#"{"sweep_at":"soon"}"#, r#"{"type":"wake","task_id":"t"}"#] {
        assert_eq!(handle(&ports, body).await, 0, "{body}");
    }
}

#[tokio::test]
async fn a_tick_neither_checks_dead_letters_nor_records_a_run() {
    let ports = ports_with_lost_wake().await;
    ports.channel().set_dead_letters("q-dead-letters", 1);
    assert_eq!(handle(&ports, &tick_at(ports.clock().now())).await, 0);
    assert_eq!(ports.bus().take(), []);
    run(&ports, &every(10), 0, Timestamp::MAX).await.unwrap();
    assert_eq!(ports.bus().take().len(), 1);
}

#[tokio::test]
async fn a_run_whose_ticks_cannot_be_sent_sweeps() {
    let ports = ports_with_lost_wake().await;
    ports.clock().set(due(&ports).await);
    ports.channel().delete_queue(&Queue::Sweeps);
    assert_eq!(run(&ports, &every(10), 0, Timestamp::MAX).await.unwrap().due, 1);
}

/// What a minute of the supervisor uses.
struct MinuteUsage {
    invocations: u64,
    dynamodb: OperationUsage,
    /// Without the receives and deletes of Lambda's poller.
    sqs_requests: u64,
}

/// The usage of a run and its ticks with the template's eight shards, while no task is due.
async fn idle_minute(sweep_every: u64) -> MinuteUsage {
    let mut deployment = TestDeployment::new(&sequential_workflow(1)).await;
    deployment.config.shards = NonZeroU32::new(8).unwrap();
    // The number of minutes that a run counts depends on the second at which it starts.
    deployment.clock.set("2026-11-20T12:00:10Z".parse().unwrap());
    let meter = AwsMeter::default();
    let interceptors = vec![SharedInterceptor::new(meter.clone())];
    let ports = deployment.ports_with_interceptors("supervisor", interceptors);
    let schedule = every(sweep_every);
    // The first run has no minutes to count, and sends no ticks here.
    run(&ports, &every(60), 0, Timestamp::MAX).await.unwrap();
    deployment.clock.advance_seconds(120);
    let before = meter.read();
    run(&ports, &schedule, 0, Timestamp::MAX).await.unwrap();
    let ticks = delayed_ticks(&deployment).await;
    for _ in 0..ticks {
        deployment.clock.advance_by(SignedDuration::try_from(schedule.sweep_every).unwrap());
        let tick = tick_at(deployment.clock.now());
        handle_ticks(&ports, &schedule, vec![tick], 0, Timestamp::MAX).await.unwrap();
    }
    let used = |prefix: &str| {
        let (all, earlier) = (total(&meter.read(), prefix), total(&before, prefix));
        OperationUsage {
            requests: all.requests - earlier.requests,
            read_units: all.read_units - earlier.read_units,
            write_units: all.write_units - earlier.write_units,
            ..OperationUsage::default()
        }
    };
    MinuteUsage {
        invocations: 1 + ticks,
        dynamodb: used("DynamoDB."),
        sqs_requests: used("SQS.").requests,
    }
}

/// The number of messages that wait in the queue of ticks.
async fn delayed_ticks(deployment: &TestDeployment) -> u64 {
    // On a slow machine the first tick may be visible already.
    let delayed = QueueAttributeName::ApproximateNumberOfMessagesDelayed;
    let visible = QueueAttributeName::ApproximateNumberOfMessages;
    let request = aws_sdk_sqs::Client::new(&deployment.aws.sdk_config()).get_queue_attributes();
    let request = request.queue_url(&deployment.config.sweeps_queue_url);
    let request = request.attribute_names(delayed).attribute_names(visible);
    let attributes = request.send().await.unwrap().attributes.unwrap();
    attributes.values().map(|count| count.parse::<u64>().unwrap()).sum()
}

/// `docs/operations/cost.md` has the same figures. A read of an empty shard is eventually consistent: half a unit.
#[tokio::test]
async fn each_sweep_of_an_idle_minute_uses_half_a_read_unit_a_shard() {
    let once = idle_minute(60).await;
    assert_eq!(once.invocations, 1);
    for (sweep_every, ticks, sends) in [(10, 5, 1), (20, 2, 1), (5, 11, 2)] {
        let minute = idle_minute(sweep_every).await;
        assert_eq!(minute.invocations, 1 + ticks, "every {sweep_every} s");
        let sweeps = ticks as f64;
        assert_eq!(minute.dynamodb.read_units - once.dynamodb.read_units, sweeps * 8.0 * 0.5);
        assert_eq!(minute.dynamodb.write_units, once.dynamodb.write_units);
        assert_eq!(minute.dynamodb.requests - once.dynamodb.requests, ticks * 8);
        assert_eq!(minute.sqs_requests - once.sqs_requests, sends, "ten ticks share a request");
    }
}

/// The assumptions of `steward cost --per-month`, except for the times.
#[tokio::test]
async fn an_idle_minute_uses_what_the_idle_month_assumes() {
    let (once, minute) = (idle_minute(60).await, idle_minute(10).await);
    // This run counts the ended tasks of two minutes, in 3 states × 4 parts.
    let second_minute = 3.0 * 4.0 * 0.5;
    let dynamodb = (once.dynamodb.read_units - second_minute, once.dynamodb.write_units);
    assert_eq!(dynamodb, (RUN.read_units, RUN.write_units));
    assert_eq!(
        once.sqs_requests,
        u64::from(2 * QUEUES),
        "a count of each queue and of its dead letters"
    );
    assert_eq!((minute.sqs_requests - once.sqs_requests) as f64, RUN.sqs_requests, "the ticks");
    assert_eq!(minute.invocations, 1 + u64::from(TICKS));
    let ticks = minute.dynamodb.read_units - once.dynamodb.read_units;
    assert_eq!(ticks, f64::from(TICKS) * TICK.read_units);
}

/// The dollars of a month of idle minutes, without the durations of the invocations.
async fn idle_month(sweep_every: u64) -> f64 {
    let MinuteUsage { invocations, dynamodb, sqs_requests } = idle_minute(sweep_every).await;
    // Lambda's poller deletes each tick. It polls also if there is none.
    let ticks = invocations - 1;
    let minute = TaskUsage {
        write_units: dynamodb.write_units,
        read_units: dynamodb.read_units,
        sqs_requests: (sqs_requests + ticks) as f64,
        invocations: invocations as f64,
        ..TaskUsage::default()
    };
    // Prices are those of a million.
    Prices::listed().unwrap().of(&minute).total * f64::from(30 * 24 * 60) / 1e6
}

/// `docs/operations/cost.md` adds their estimated durations.
#[tokio::test]
async fn ticks_cost_a_quarter_of_a_dollar_a_month_beside_their_durations() {
    let ticks = idle_month(10).await - idle_month(60).await;
    assert_eq!((ticks * 100.0).round(), 25.0, "{ticks} dollars");
}
