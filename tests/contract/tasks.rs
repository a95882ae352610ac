//! Tasks: created once, and saved on the condition that the stored revision is the previous one.

use std::sync::Arc;

use steward_core::model::{
    document::{Document, DocumentKey},
    retention::DocumentRetention,
    task::{ProcessState, Task},
};
use steward_runtime::ports::{CreateOutcome, Ports, SaveOutcome, StateStore};
use tokio::sync::Barrier;

use super::{
    backends::Backend,
    samples::{at, full_task, id, ids_in, new_task, next, output, owner, submission},
};

/// The number of concurrent writers in a race.
const WRITERS: usize = 16;

async fn create<P: Ports>(ports: &P, task: &Task) {
    let created = ports.store().create(task, Some(&submission(task))).await.unwrap();
    assert_eq!(created, CreateOutcome::Created);
}

async fn load<P: Ports>(ports: &P, task_id: &str) -> Option<Task> {
    ports.store().load(&id(task_id)).await.unwrap()
}

pub(super) async fn a_created_task_is_loaded_unchanged(backend: impl Backend) {
    let ports = backend.ports();
    create(ports, &full_task("t")).await;
    assert_eq!(load(ports, "t").await, Some(full_task("t")));
}

pub(super) async fn absent_fields_of_a_task_stay_absent(backend: impl Backend) {
    let (ports, task) = (backend.ports(), Task { due: None, ..new_task("t") });
    create(ports, &task).await;
    assert_eq!(load(ports, "t").await, Some(task));
}

pub(super) async fn times_are_stored_with_millisecond_precision(backend: impl Backend) {
    let ports = backend.ports();
    let precise = "2096-06-01T12:00:00.123456789Z".parse().unwrap();
    let kept = "2096-06-01T12:00:00.123Z".parse().unwrap();
    let task_at = |time| Task { submitted_at: time, due: Some(time), ..new_task("t") };
    let submitted = |at| Document { at, ..submission(&new_task("t")) };
    let returned = |at| Document { at, ..output("charge", 1, "ok".into()) };
    ports.store().create(&task_at(precise), Some(&submitted(precise))).await.unwrap();
    assert_eq!(load(ports, "t").await, Some(task_at(kept)));
    ports.store().save(&next(&task_at(precise))).await.unwrap();
    assert_eq!(load(ports, "t").await, Some(next(&task_at(kept))));
    ports
        .store()
        .put_document(
            &owner("t"),
            DocumentRetention { from: at(3_600), retention_s: None },
            &returned(precise),
        )
        .await
        .unwrap();
    for document in [submitted(kept), returned(kept)] {
        let read = ports.store().documents(&owner("t"), std::slice::from_ref(&document.key)).await;
        assert_eq!(read.unwrap(), [document]);
    }
}

pub(super) async fn a_task_that_was_not_created_is_absent(backend: impl Backend) {
    assert_eq!(load(backend.ports(), "t").await, None);
}

pub(super) async fn a_second_creation_reports_the_existing_task_and_changes_nothing(
    backend: impl Backend,
) {
    let (ports, first) = (backend.ports(), full_task("t"));
    create(ports, &first).await;
    let mut other = submission(&first);
    other.body = "other".into();
    for task in [first.clone(), new_task("t")] {
        let again = ports.store().create(&task, Some(&other)).await.unwrap();
        assert_eq!(again, CreateOutcome::Exists(Some(Box::new(first.clone()))));
    }
    assert_eq!(load(ports, "t").await.as_ref(), Some(&first));
    let read = ports.store().documents(&first.document_owner(), &[DocumentKey::Submission]).await;
    assert_eq!(read.unwrap(), [submission(&first)]);
}

pub(super) async fn a_task_is_not_created_without_its_document(backend: impl Backend) {
    let ports = backend.ports();
    let shards = ports.store().shards();
    let task = new_task(&ids_in(0, shards, 1)[0]);
    let mut first = submission(&task);
    first.body = "first".into();
    ports
        .store()
        .put_document(&task.document_owner(), task.document_retention(), &first)
        .await
        .unwrap();
    let created = ports.store().create(&task, Some(&submission(&task))).await.unwrap();
    assert_eq!(created, CreateOutcome::Exists(None));
    assert_eq!(ports.store().load(&task.task_id).await.unwrap(), None);
    let read = ports.store().documents(&task.document_owner(), &[DocumentKey::Submission]).await;
    assert_eq!(read.unwrap(), [first]);
    let due = ports.store().due_tasks(0, at(1_000), None).await.unwrap();
    assert!(due.task_ids.is_empty(), "{due:?}");
}

pub(super) async fn a_document_is_not_created_without_its_task(backend: impl Backend) {
    let (ports, task) = (backend.ports(), new_task("t"));
    create(ports, &task).await;
    let late = output("charge", 1, "late".into());
    let created = ports.store().create(&task, Some(&late)).await.unwrap();
    assert_eq!(created, CreateOutcome::Exists(Some(Box::new(task.clone()))));
    assert_eq!(ports.store().documents(&task.document_owner(), &[late.key]).await.unwrap(), []);
}

pub(super) async fn one_of_sixteen_concurrent_creations_wins<W: Backend>(backend: W) {
    let attempts = race(backend.ports(), |ports, n| async move {
        let task = Task { version: n, ..new_task("t") };
        let mut document = submission(&task);
        document.body = n.into();
        (n, ports.store().create(&task, Some(&document)).await)
    });
    let (mut winners, mut losers) = (Vec::new(), 0);
    for (n, created) in attempts.await {
        match created {
            Ok(CreateOutcome::Created) => winners.push(n),
            Ok(CreateOutcome::Exists(_)) => losers += 1,
            // DynamoDB may also report a conflict with another transaction.
            Err(error) if error.retryable => losers += 1,
            Err(error) => panic!("{error:?}"),
        }
    }
    assert_eq!((winners.len(), losers), (1, WRITERS - 1));
    let task = load(backend.ports(), "t").await.unwrap();
    assert_eq!(task.version, winners[0]);
    let read =
        backend.ports().store().documents(&owner("t"), &[DocumentKey::Submission]).await.unwrap();
    assert_eq!(read[0].body, winners[0], "the document and the task are of different writers");
}

pub(super) async fn a_task_with_its_submission_in_its_item_is_created_once<W: Backend>(backend: W) {
    let with_submission = |n: u32| {
        let document = Document { body: n.into(), ..submission(&new_task("t")) };
        Task { version: n, documents: [document].into_iter().collect(), ..new_task("t") }
    };
    let attempts = race(backend.ports(), |ports, n| async move {
        (n, ports.store().create(&with_submission(n), None).await.unwrap())
    });
    let attempts = attempts.await;
    let is_winner =
        |(n, created): &(u32, CreateOutcome)| (*created == CreateOutcome::Created).then_some(*n);
    let winners: Vec<_> = attempts.iter().filter_map(is_winner).collect();
    assert_eq!(winners.len(), 1, "{attempts:?}");
    let stored = load(backend.ports(), "t").await.unwrap();
    assert_eq!(stored, with_submission(winners[0]));
    let exists = CreateOutcome::Exists(Some(Box::new(stored)));
    let losers = attempts.into_iter().filter(|(n, _)| *n != winners[0]);
    losers.for_each(|(_, created)| assert_eq!(created, exists));
}

pub(super) async fn a_save_replaces_the_whole_task(backend: impl Backend) {
    let (ports, before) = (backend.ports(), full_task("t"));
    create(ports, &before).await;
    let after = Task { revision: before.revision + 1, due: None, ..new_task("t") };
    assert_eq!(ports.store().save(&after).await.unwrap(), SaveOutcome::Saved);
    assert_eq!(load(ports, "t").await, Some(after));
}

pub(super) async fn a_task_is_saved_revision_after_revision(backend: impl Backend) {
    let (ports, mut task) = (backend.ports(), new_task("t"));
    create(ports, &task).await;
    for failure_count in 1..=20 {
        task = Task { failure_count, ..next(&task) };
        assert_eq!(ports.store().save(&task).await.unwrap(), SaveOutcome::Saved);
    }
    assert_eq!(load(ports, "t").await.as_ref(), Some(&task));
    assert_eq!(task.revision, 21);
}

pub(super) async fn a_save_of_an_old_revision_is_a_conflict(backend: impl Backend) {
    let (ports, first) = (backend.ports(), full_task("t"));
    create(ports, &first).await;
    let second = Task { locked_by: Some("second".to_owned()), ..next(&first) };
    let third = Task { locked_by: Some("third".to_owned()), ..next(&second) };
    for task in [&second, &third] {
        assert_eq!(ports.store().save(task).await.unwrap(), SaveOutcome::Saved);
    }
    for revision in [first.revision, second.revision, third.revision, 0] {
        let stale = Task { revision, process_state: ProcessState::Processed, ..first.clone() };
        let saved = ports.store().save(&stale).await.unwrap();
        assert_eq!(saved, SaveOutcome::Conflict(Some(Box::new(third.clone()))), "{revision}");
    }
    assert_eq!(load(ports, "t").await, Some(third));
}

pub(super) async fn a_save_of_a_future_revision_is_a_conflict(backend: impl Backend) {
    let (ports, task) = (backend.ports(), new_task("t"));
    create(ports, &task).await;
    let early = next(&next(&task));
    let saved = ports.store().save(&early).await.unwrap();
    assert_eq!(saved, SaveOutcome::Conflict(Some(Box::new(task.clone()))));
    assert_eq!(load(ports, "t").await, Some(task));
}

/// A writer that repeats a save after a lost response finds its own save.
pub(super) async fn a_repeated_save_is_a_conflict_with_itself(backend: impl Backend) {
    let (ports, task) = (backend.ports(), full_task("t"));
    create(ports, &task).await;
    let saved = next(&task);
    assert_eq!(ports.store().save(&saved).await.unwrap(), SaveOutcome::Saved);
    let again = ports.store().save(&saved).await.unwrap();
    assert_eq!(again, SaveOutcome::Conflict(Some(Box::new(saved))));
}

pub(super) async fn a_save_of_a_missing_task_is_a_conflict_without_a_task(backend: impl Backend) {
    let ports = backend.ports();
    for revision in [0, 1, 2] {
        let task = Task { revision, ..new_task("t") };
        let saved = ports.store().save(&task).await.unwrap();
        assert_eq!(saved, SaveOutcome::Conflict(None), "{revision}");
    }
    assert_eq!(load(ports, "t").await, None);
}

pub(super) async fn one_of_sixteen_concurrent_saves_wins<W: Backend>(backend: W) {
    let task = full_task("t");
    create(backend.ports(), &task).await;
    for round in 1..=10_u64 {
        let revision = task.revision + round;
        let attempts = race(backend.ports(), |ports, n| async move {
            let task = Task { revision, failure_count: n, ..full_task("t") };
            let saved = ports.store().save(&task).await.unwrap();
            (task, saved)
        });
        let (won, lost): (Vec<_>, Vec<_>) =
            attempts.await.into_iter().partition(|(_, saved)| *saved == SaveOutcome::Saved);
        assert_eq!(won.len(), 1);
        let winner = &won[0].0;
        for (_, saved) in lost {
            assert_eq!(saved, SaveOutcome::Conflict(Some(Box::new(winner.clone()))));
        }
        assert_eq!(load(backend.ports(), "t").await.as_ref(), Some(winner));
    }
}

pub(super) async fn another_instance_reads_a_write_at_once(backend: impl Backend) {
    let (one, another) = (backend.ports(), backend.another_instance());
    let mut task = new_task("t");
    create(one, &task).await;
    for attempt in 1..=50 {
        task = next(&task);
        let document = output("charge", attempt, attempt.into());
        one.store()
            .put_document(&task.document_owner(), task.document_retention(), &document)
            .await
            .unwrap();
        one.store().save(&task).await.unwrap();
        assert_eq!(load(&another, "t").await.as_ref(), Some(&task));
        let keys = [document.key.clone(), DocumentKey::Submission];
        let read = another.store().documents(&task.document_owner(), &keys[..1]).await.unwrap();
        assert_eq!(read, std::slice::from_ref(&document));
        let read = another.store().documents(&task.document_owner(), &keys).await.unwrap();
        assert!(read.contains(&document), "{read:?}");
    }
}

/// Runs sixteen numbered writers concurrently; returns their results.
pub(super) async fn race<P, F, T>(ports: &P, writer: impl Fn(P, u32) -> F) -> Vec<T>
where
    P: Ports + Clone + 'static,
    F: Future<Output = T> + Send + 'static,
    T: Send + 'static,
{
    let start = Arc::new(Barrier::new(WRITERS));
    let writers = (1..).take(WRITERS).map(|n| {
        let (start, writing) = (start.clone(), writer(ports.clone(), n));
        tokio::spawn(async move {
            start.wait().await;
            writing.await
        })
    });
    let writers: Vec<_> = writers.collect();
    let mut results = Vec::new();
    for writer in writers {
        results.push(writer.await.unwrap());
    }
    results
}
