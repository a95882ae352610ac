//! History: the supervisor's counts of ended tasks, and the record of its last run.

use aws_lambda_events::sqs::SqsBatchResponse;
use futures_util::join;
use jiff::{SignedDuration, Timestamp};
use steward_aws::{
    meter::{AwsMeter, total},
    ports::SharedInterceptor,
};
use steward_core::model::task::ProcessState;
use steward_runtime::{
    history::{EndedCounts, EndedInMinute, SupervisorRun, minute_of},
    ports::{Clock, Ports, SharedRecordKind, StateStore},
};
use steward_supervisor::run_once;

use crate::support::{
    InjectedFault, SdkFaultInjector, TestDeployment, completed_reply, sequential_workflow,
    sqs_event,
};

/// The time after which an ended task is counted.
const COUNTED_AFTER: SignedDuration = SignedDuration::from_secs(120);

/// Runs a supervisor; returns the number of due tasks.
async fn run_supervisor(deployment: &TestDeployment, role: &str) -> u64 {
    run_once(&deployment.ports(role), 0, Timestamp::MAX).await.unwrap().due
}

/// Submits and processes tasks with the real handlers, all within one minute; returns that minute.
async fn process(deployment: &TestDeployment, ids: &[&str]) -> Timestamp {
    let into_minute = deployment.clock.now().as_second().rem_euclid(60);
    deployment.clock.advance_seconds(61 - into_minute);
    let ids: Vec<_> = ids.iter().map(|id| (*id).to_owned()).collect();
    deployment.submit(&deployment.ports("submission"), &ids).await;
    let scheduler = deployment.ports("scheduler");
    loop {
        let replies: Vec<_> =
            deployment.take_agent_requests().await.iter().map(completed_reply).collect();
        let messages: Vec<_> =
            deployment.take_scheduler_messages().await.into_iter().chain(replies).collect();
        if messages.is_empty() {
            break;
        }
        let response = steward_scheduler::handle(&scheduler, sqs_event(messages, 1)).await;
        assert_eq!(response, SqsBatchResponse::default());
    }
    for id in &ids {
        assert_eq!(deployment.task(id).await.process_state, ProcessState::Processed);
    }
    minute_of(deployment.task(&ids[0]).await.ended_at.unwrap())
}

async fn history(deployment: &TestDeployment) -> Vec<(Timestamp, EndedCounts)> {
    let store = deployment
        .ports("console")
        .store()
        .shared_records(SharedRecordKind::History)
        .await
        .unwrap();
    let minutes = store.iter().map(|record| EndedInMinute::read(record).unwrap());
    minutes.map(|(start, minute)| (start, minute.workflows["line"])).collect()
}

async fn last_run(deployment: &TestDeployment) -> Option<SupervisorRun> {
    let record =
        deployment.ports("console").store().shared_record(&SupervisorRun::key()).await.unwrap();
    record.map(|record| SupervisorRun::read(&record).unwrap())
}

fn processed_counts(processed: u64) -> EndedCounts {
    EndedCounts { processed, ..EndedCounts::default() }
}

#[tokio::test]
async fn ended_tasks_are_counted_once_after_their_minute_is_over() {
    let deployment = TestDeployment::new(&sequential_workflow(1)).await;
    run_supervisor(&deployment, "supervisor").await;
    let first = process(&deployment, &["a", "b", "c"]).await;
    run_supervisor(&deployment, "supervisor").await;
    assert_eq!(history(&deployment).await, [], "their minute is not over");
    let second = process(&deployment, &["d"]).await;
    deployment.clock.advance_by(COUNTED_AFTER);
    run_supervisor(&deployment, "supervisor").await;
    let counted = [(first, processed_counts(3)), (second, processed_counts(1))];
    assert_eq!(history(&deployment).await, counted);
    run_supervisor(&deployment, "supervisor").await;
    assert_eq!(history(&deployment).await, counted);
}

#[tokio::test]
async fn a_run_records_its_time_and_its_counts() {
    let deployment = TestDeployment::new(&sequential_workflow(1)).await;
    deployment.submit(&deployment.ports("submission"), &["a".to_owned()]).await;
    deployment.clock.advance_seconds(3_600);
    let at = deployment.clock.now();
    assert_eq!(run_supervisor(&deployment, "supervisor").await, 1);
    let run = last_run(&deployment).await.unwrap();
    assert_eq!((run.due, run.failed, run.shards_left), (1, 0, 0));
    assert!(run.at >= at && run.at <= deployment.clock.now(), "{run:?}");
    let counted_until = run.counted_until.unwrap();
    assert!(counted_until <= run.at - SignedDuration::from_secs(30), "{run:?}");
    assert!(counted_until > run.at - SignedDuration::from_secs(91), "{run:?}");
}

#[tokio::test]
async fn concurrent_supervisors_count_each_task_once() {
    let deployment = TestDeployment::new(&sequential_workflow(1)).await;
    run_supervisor(&deployment, "supervisor").await;
    let minute = process(&deployment, &["a", "b"]).await;
    deployment.clock.advance_by(COUNTED_AFTER);
    join!(
        run_supervisor(&deployment, "one"),
        run_supervisor(&deployment, "other"),
        run_supervisor(&deployment, "third")
    );
    assert_eq!(history(&deployment).await, [(minute, processed_counts(2))]);
    assert!(last_run(&deployment).await.unwrap().counted_until > Some(minute));
}

#[tokio::test]
async fn the_next_run_counts_the_same_after_a_supervisor_crashed() {
    for fault in [InjectedFault::CrashBefore, InjectedFault::CrashAfter] {
        for record in ["#history", "#supervisor"] {
            let deployment = TestDeployment::new(&sequential_workflow(1)).await;
            run_supervisor(&deployment, "supervisor").await;
            let minute = process(&deployment, &["a", "b"]).await;
            deployment.clock.advance_by(COUNTED_AFTER);
            let ports = deployment
                .ports_with_faults("supervisor", SdkFaultInjector::once("PutItem", record, fault));
            let run = async move { run_once(&ports, 0, Timestamp::MAX).await };
            assert!(tokio::spawn(run).await.is_err());
            run_supervisor(&deployment, "supervisor").await;
            let counted = history(&deployment).await;
            assert_eq!(counted, [(minute, processed_counts(2))], "{fault:?} {record}");
        }
    }
}

/// If the index of ended tasks cannot be read, the sweep still runs, the run is recorded, and a later run counts the
/// tasks.
#[tokio::test]
async fn a_failed_count_does_not_fail_the_sweep() {
    let deployment = TestDeployment::new(&sequential_workflow(1)).await;
    run_supervisor(&deployment, "supervisor").await;
    let minute = process(&deployment, &["a"]).await;
    deployment.submit(&deployment.ports("submission"), &["b".to_owned()]).await;
    deployment.clock.advance_seconds(3_600);
    let before = last_run(&deployment).await.unwrap();
    let injector = SdkFaultInjector::always("Query", "\"ended\"", InjectedFault::FailBefore);
    let ports = deployment.ports_with_faults("supervisor", injector);
    let swept = run_once(&ports, 0, Timestamp::MAX).await.unwrap();
    assert_eq!((swept.due, swept.failed), (1, 0));
    let run = last_run(&deployment).await.unwrap();
    assert!(run.at > before.at);
    assert_eq!(run.counted_until, before.counted_until);
    // A single run does not count that many minutes.
    for _ in 0..2 {
        run_supervisor(&deployment, "supervisor").await;
    }
    assert_eq!(history(&deployment).await, [(minute, processed_counts(1))]);
}

#[tokio::test]
async fn a_run_without_remaining_time_leaves_the_count_to_the_next_one() {
    let deployment = TestDeployment::new(&sequential_workflow(1)).await;
    run_supervisor(&deployment, "supervisor").await;
    let minute = process(&deployment, &["a"]).await;
    deployment.clock.advance_by(COUNTED_AFTER);
    let ports = deployment.ports("supervisor");
    run_once(&ports, 0, ports.clock().now()).await.unwrap();
    assert_eq!(history(&deployment).await, []);
    run_supervisor(&deployment, "supervisor").await;
    assert_eq!(history(&deployment).await, [(minute, processed_counts(1))]);
}

/// With four shards, a run reads six partitions of the index of ended tasks for each minute, and writes one record for each
/// minute in which tasks ended.
#[tokio::test]
async fn a_run_uses_few_read_and_write_units() {
    let deployment = TestDeployment::new(&sequential_workflow(1)).await;
    run_supervisor(&deployment, "supervisor").await;
    process(&deployment, &["a", "b", "c"]).await;
    deployment.clock.advance_by(COUNTED_AFTER);
    run_supervisor(&deployment, "supervisor").await;
    let ended = SignedDuration::from_secs(60);
    for (tasks, records) in [(&["d"][..], 1.0), (&[], 0.0)] {
        if !tasks.is_empty() {
            process(&deployment, tasks).await;
        }
        deployment.clock.advance_by(ended + ended);
        let meter = AwsMeter::default();
        let ports = deployment
            .ports_with_interceptors("supervisor", vec![SharedInterceptor::new(meter.clone())]);
        let before = last_run(&deployment).await.unwrap().counted_until.unwrap();
        run_once(&ports, 0, Timestamp::MAX).await.unwrap();
        let after = last_run(&deployment).await.unwrap().counted_until.unwrap();
        let minutes = after.duration_since(before).as_mins() as f64;
        let used = total(&meter.read(), "DynamoDB.");
        // Writes: the record of this run, and one for the minute. Reads: four shards, three kinds of shared records (the
        // registered agents among them), six partitions for each minute, and the last run.
        assert_eq!(used.write_units, 1.0 + records, "{used:?}");
        assert!(
            used.read_units <= 4.0 * 0.5 + 3.0 + minutes * 6.0 * 0.5 + 1.0,
            "{minutes} {used:?}"
        );
    }
}
