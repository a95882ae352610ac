//! The index of ended tasks, by final state and end time.

use std::{collections::BTreeSet, num::NonZeroU32, time::Duration};

use jiff::Timestamp;
use steward_core::model::task::{ProcessState, Task};
use steward_runtime::ports::{
    CreateOutcome, EndedTask, Ports, SaveOutcome, StateStore, ended_index_partitions, shard_of,
};

use super::{
    backends::Backend,
    samples::{at, id, new_task, next, submission},
};

const FINAL: [ProcessState; 3] =
    [ProcessState::Processed, ProcessState::Error, ProcessState::Undone];

fn ended_task(task_id: &str, state: ProcessState, ended_at: Timestamp) -> Task {
    let ended_at = Some(ended_at);
    Task { process_state: state, ended_at, due: None, ..new_task(task_id) }
}

async fn create<P: Ports>(ports: &P, task: &Task) {
    let created = ports.store().create(task, Some(&submission(task))).await.unwrap();
    assert_eq!(created, CreateOutcome::Created);
}

async fn save<P: Ports>(ports: &P, task: &Task) {
    assert_eq!(ports.store().save(task).await.unwrap(), SaveOutcome::Saved);
}

fn partition_count<P: Ports>(ports: &P) -> u32 {
    ended_index_partitions(NonZeroU32::new(ports.store().shards()).unwrap()).get()
}

/// The tasks in all pages of one partition.
async fn ended_in<P: Ports>(
    ports: &P,
    state: ProcessState,
    partition: u32,
    to: Timestamp,
) -> Vec<EndedTask> {
    let (mut ended, mut after) = (Vec::new(), None);
    loop {
        let page =
            ports.store().ended_tasks(state, partition, at(0)..to, after.as_ref()).await.unwrap();
        ended.extend(page.ended);
        after = page.next;
        if after.is_none() {
            return ended;
        }
    }
}

/// The ids in all partitions, sorted.
async fn ended<P: Ports>(ports: &P, state: ProcessState, to: Timestamp) -> Vec<String> {
    let mut ids = Vec::new();
    for n in 0..partition_count(ports) {
        ids.extend(
            ended_in(ports, state, n, to).await.into_iter().map(|one| one.task_id.to_string()),
        );
    }
    ids.sort();
    ids
}

pub(super) async fn an_ended_task_is_listed_by_its_state_and_end_time(backend: impl Backend) {
    let ports = backend.ports();
    for (state, task_id) in FINAL.into_iter().zip(["p", "e", "u"]) {
        let task = new_task(task_id);
        create(ports, &task).await;
        for other in FINAL {
            assert!(!ended(ports, other, at(1_000)).await.contains(&task_id.to_owned()));
        }
        let time = at(60) + Duration::from_millis(7);
        save(ports, &Task { revision: 2, ..ended_task(task_id, state, time) }).await;
        assert_eq!(ended(ports, state, time).await, [""; 0], "the end of the range is exclusive");
        assert_eq!(ended(ports, state, time + Duration::from_millis(1)).await, [task_id]);
    }
}

pub(super) async fn an_ended_task_is_listed_with_its_workflow(backend: impl Backend) {
    let ports = backend.ports();
    let workflow = "return".parse().unwrap();
    let task = Task { workflow, ..ended_task("t", ProcessState::Undone, at(5)) };
    create(ports, &task).await;
    let mut found = Vec::new();
    for n in 0..partition_count(ports) {
        found.extend(ended_in(ports, ProcessState::Undone, n, at(6)).await);
    }
    let expected = EndedTask { at: at(5), task_id: id("t"), workflow: "return".parse().unwrap() };
    assert_eq!(found, [expected]);
}

pub(super) async fn a_resumed_task_is_no_longer_listed_as_ended(backend: impl Backend) {
    let ports = backend.ports();
    let error = ended_task("t", ProcessState::Error, at(5));
    create(ports, &error).await;
    assert_eq!(ended(ports, ProcessState::Error, at(10)).await, ["t"]);
    let resubmitted = Task { due: Some(at(60)), revision: 2, ..new_task("t") };
    let resubmitted = Task { process_state: ProcessState::Processing, ..resubmitted };
    save(ports, &resubmitted).await;
    for state in FINAL {
        assert_eq!(ended(ports, state, at(1_000)).await, [""; 0], "{state}");
    }
    let processed = ended_task("t", ProcessState::Processed, at(70));
    save(ports, &Task { revision: 3, ..processed }).await;
    assert_eq!(ended(ports, ProcessState::Error, at(1_000)).await, [""; 0]);
    assert_eq!(ended(ports, ProcessState::Processed, at(1_000)).await, ["t"]);
}

/// An alert that is not yet sent keeps an ended task in the due index.
pub(super) async fn a_task_in_error_can_be_both_due_and_ended(backend: impl Backend) {
    let ports = backend.ports();
    let error = Task { due: Some(at(9)), ..ended_task("t", ProcessState::Error, at(5)) };
    create(ports, &error).await;
    assert_eq!(ended(ports, ProcessState::Error, at(10)).await, ["t"]);
    save(ports, &Task { due: None, ..next(&error) }).await;
    assert_eq!(ended(ports, ProcessState::Error, at(10)).await, ["t"]);
}

pub(super) async fn ended_tasks_are_listed_once_earliest_first_in_their_partitions(
    backend: impl Backend,
) {
    let ports = backend.ports();
    let partitions = ended_index_partitions(NonZeroU32::new(ports.store().shards()).unwrap());
    let ids: BTreeSet<_> = (0..300).map(|n| format!("order-{n}")).collect();
    for (n, task_id) in (0..).zip(&ids) {
        // Three tasks for each end time.
        create(ports, &ended_task(task_id, ProcessState::Processed, at(100 - n / 3))).await;
    }
    let mut found = BTreeSet::new();
    for n in 0..partitions.get() {
        let here = ended_in(ports, ProcessState::Processed, n, at(1_000)).await;
        assert!(here.is_sorted_by_key(|one| one.at), "partition {n}");
        for one in here {
            assert_eq!(shard_of(&one.task_id, partitions), n);
            assert!(found.insert(one.task_id.to_string()), "{} twice", one.task_id);
        }
    }
    assert_eq!(found, ids);
}
