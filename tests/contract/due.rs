//! The due index: the tasks that the supervisor has to look at, by shard and page.

use std::{collections::BTreeSet, num::NonZeroU32, time::Duration};

use jiff::Timestamp;
use steward_core::model::task::{ProcessState, Task};
use steward_runtime::ports::{CreateOutcome, Ports, SaveOutcome, StateStore, shard_of};

use super::{
    backends::Backend,
    samples::{at, id, ids_in, new_task, next, submission, task_due},
};

async fn create<P: Ports>(ports: &P, task: &Task) {
    let created = ports.store().create(task, Some(&submission(task))).await.unwrap();
    assert_eq!(created, CreateOutcome::Created);
}

async fn save<P: Ports>(ports: &P, task: &Task) {
    assert_eq!(ports.store().save(task).await.unwrap(), SaveOutcome::Saved);
}

/// The ids in all pages of one shard.
async fn due_in<P: Ports>(ports: &P, shard: u32, until: Timestamp) -> Vec<String> {
    let (mut ids, mut after) = (Vec::new(), None);
    loop {
        let page = ports.store().due_tasks(shard, until, after.as_ref()).await.unwrap();
        ids.extend(page.task_ids.iter().map(ToString::to_string));
        after = page.next;
        if after.is_none() {
            return ids;
        }
        assert!(!page.task_ids.is_empty(), "an empty page before the last");
    }
}

/// The ids in all shards, sorted.
async fn due<P: Ports>(ports: &P, until: Timestamp) -> Vec<String> {
    let mut ids = Vec::new();
    for shard in 0..ports.store().shards() {
        ids.extend(due_in(ports, shard, until).await);
    }
    ids.sort();
    ids
}

pub(super) async fn a_task_is_listed_from_its_due_time_on(backend: impl Backend) {
    let (ports, time) = (backend.ports(), at(10) + Duration::from_millis(5));
    create(ports, &task_due("t", Some(time))).await;
    assert_eq!(due(ports, at(10)).await, [""; 0]);
    assert_eq!(due(ports, time - Duration::from_nanos(1)).await, [""; 0]);
    assert_eq!(due(ports, time).await, ["t"]);
    assert_eq!(due(ports, time + Duration::from_nanos(1)).await, ["t"]);
    assert_eq!(due(ports, at(10_000)).await, ["t"]);
}

pub(super) async fn due_tasks_are_listed_earliest_first(backend: impl Backend) {
    let ports = backend.ports();
    let ids = ids_in(1, ports.store().shards(), 5);
    // 9 s and 100 s: sorted as text they would be in the wrong order.
    for (task_id, seconds) in ids.iter().zip([100, 9, 0, 50, 200]) {
        create(ports, &task_due(task_id, Some(at(seconds)))).await;
    }
    let expected = [&ids[2], &ids[1], &ids[3], &ids[0]];
    assert_eq!(due_in(ports, 1, at(199)).await, expected.map(String::as_str));
}

pub(super) async fn a_task_without_a_due_time_is_never_listed(backend: impl Backend) {
    let ports = backend.ports();
    create(ports, &task_due("t", None)).await;
    save(ports, &next(&task_due("t", None))).await;
    assert_eq!(due(ports, at(1_000_000)).await, [""; 0]);
}

pub(super) async fn an_ended_task_is_no_longer_listed(backend: impl Backend) {
    let (ports, task) = (backend.ports(), new_task("t"));
    create(ports, &task).await;
    create(ports, &new_task("other")).await;
    let ended = Task { due: None, process_state: ProcessState::Processed, ..next(&task) };
    save(ports, &ended).await;
    assert_eq!(due(ports, at(1_000)).await, ["other"]);
}

pub(super) async fn a_rescheduled_task_is_listed_at_its_new_time(backend: impl Backend) {
    let (ports, task) = (backend.ports(), task_due("t", Some(at(10))));
    create(ports, &task).await;
    let later = Task { due: Some(at(50)), ..next(&task) };
    save(ports, &later).await;
    assert_eq!(due(ports, at(49)).await, [""; 0]);
    assert_eq!(due(ports, at(50)).await, ["t"]);
    let sooner = Task { due: Some(at(20)), ..next(&later) };
    save(ports, &sooner).await;
    assert_eq!(due(ports, at(19)).await, [""; 0]);
    assert_eq!(due(ports, at(1_000)).await, ["t"], "listed once, at its new time");
    let unmoved = Task { failure_count: 1, ..next(&sooner) };
    save(ports, &unmoved).await;
    assert_eq!(due(ports, at(20)).await, ["t"]);
}

pub(super) async fn an_ended_task_can_be_due_again(backend: impl Backend) {
    let (ports, task) = (backend.ports(), task_due("t", None));
    create(ports, &task).await;
    save(ports, &Task { due: Some(at(30)), ..next(&task) }).await;
    assert_eq!(due(ports, at(30)).await, ["t"]);
}

pub(super) async fn a_rejected_save_does_not_change_the_due_time(backend: impl Backend) {
    let (ports, task) = (backend.ports(), task_due("t", Some(at(10))));
    create(ports, &task).await;
    for due in [None, Some(at(99))] {
        let stale = Task { due, ..task.clone() };
        let saved = ports.store().save(&stale).await.unwrap();
        assert!(matches!(saved, SaveOutcome::Conflict(Some(_))), "{saved:?}");
    }
    let missing = ports.store().save(&new_task("missing")).await.unwrap();
    assert_eq!(missing, SaveOutcome::Conflict(None));
    assert_eq!(due(ports, at(10)).await, ["t"]);
    assert_eq!(due(ports, at(1_000)).await, ["t"]);
}

pub(super) async fn every_task_is_listed_in_exactly_one_shard(backend: impl Backend) {
    let ports = backend.ports();
    let shards = NonZeroU32::new(ports.store().shards()).unwrap();
    let ids: BTreeSet<_> = (0..60).map(|n| format!("order-{n}")).collect();
    for task_id in &ids {
        create(ports, &new_task(task_id)).await;
    }
    let mut found = BTreeSet::new();
    for shard in 0..shards.get() {
        let here = due_in(ports, shard, at(1_000)).await;
        assert!(!here.is_empty(), "nothing in shard {shard}");
        for task_id in here {
            assert_eq!(shard_of(&id(&task_id), shards), shard, "{task_id}");
            assert!(found.insert(task_id.clone()), "{task_id} twice");
        }
    }
    assert_eq!(found, ids);
}

pub(super) async fn pages_list_each_task_once(backend: impl Backend) {
    let ports = backend.ports();
    let ids = ids_in(2, ports.store().shards(), 250);
    for (seconds, task_id) in (0..).zip(&ids) {
        create(ports, &task_due(task_id, Some(at(seconds)))).await;
    }
    assert_eq!(due_in(ports, 2, at(1_000)).await, ids);
    assert_eq!(due_in(ports, 2, at(149)).await, ids[..150]);
    // The last page is full: an empty page may follow.
    assert_eq!(due_in(ports, 2, at(99)).await, ids[..100]);
}

pub(super) async fn pages_of_tasks_due_at_the_same_time_list_each_once(backend: impl Backend) {
    let ports = backend.ports();
    let mut ids = ids_in(0, ports.store().shards(), 250);
    for task_id in &ids {
        create(ports, &task_due(task_id, Some(at(5)))).await;
    }
    let mut found = due_in(ports, 0, at(5)).await;
    found.sort();
    ids.sort();
    assert_eq!(found, ids);
}

/// The supervisor reschedules each task of a page before it reads the next page.
pub(super) async fn rescheduling_tasks_between_pages_hides_no_other_task(backend: impl Backend) {
    let ports = backend.ports();
    let mut ids = ids_in(0, ports.store().shards(), 250);
    for task_id in &ids {
        create(ports, &task_due(task_id, Some(at(5)))).await;
    }
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = ports.store().due_tasks(0, at(5), after.as_ref()).await.unwrap();
        for (n, task_id) in page.task_ids.into_iter().enumerate() {
            let task = ports.store().load(&task_id).await.unwrap().unwrap();
            let due = (n % 2 == 0).then(|| at(60));
            save(ports, &Task { due, ..next(&task) }).await;
            found.push(task_id.to_string());
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    found.sort();
    ids.sort();
    assert_eq!(found, ids);
    assert_eq!(due_in(ports, 0, at(59)).await, [""; 0]);
}

pub(super) async fn an_empty_shard_has_one_empty_page(backend: impl Backend) {
    let ports = backend.ports();
    create(ports, &new_task(&ids_in(0, ports.store().shards(), 1)[0])).await;
    let page = ports.store().due_tasks(1, at(1_000), None).await.unwrap();
    assert_eq!(page, Default::default());
}
