//! Shared records of the instances: each write is conditional on the previous revision.

use jiff::Timestamp;
use serde_json::{Value, json};
use steward_runtime::ports::{
    Ports, SharedRecord, SharedRecordKey, SharedRecordKind, SharedSaveOutcome, StateStore,
};

use super::{
    backends::{AwsBackend, Backend},
    samples::{at, id},
    tasks::race,
};

const KINDS: [SharedRecordKind; 11] = [
    SharedRecordKind::Breaker,
    SharedRecordKind::DeadLetters,
    SharedRecordKind::History,
    SharedRecordKind::Supervisor,
    SharedRecordKind::Bulk,
    SharedRecordKind::Intake,
    SharedRecordKind::Payloads,
    SharedRecordKind::Agent,
    SharedRecordKind::AgentSeen,
    SharedRecordKind::AgentClock,
    SharedRecordKind::Rate,
];

fn record(kind: SharedRecordKind, name: &str, revision: u64, body: Value) -> SharedRecord {
    SharedRecord {
        key: SharedRecordKey { kind, name: name.to_owned() },
        revision,
        body,
        expires_at: None,
    }
}

fn breaker(revision: u64, body: Value) -> SharedRecord {
    record(SharedRecordKind::Breaker, "payment", revision, body)
}

async fn save<P: Ports>(ports: &P, record: &SharedRecord) -> SharedSaveOutcome {
    ports.store().save_shared_record(record).await.unwrap()
}

async fn read<P: Ports>(ports: &P, record: &SharedRecord) -> Option<SharedRecord> {
    ports.store().shared_record(&record.key).await.unwrap()
}

pub(super) async fn a_shared_record_is_read_unchanged(backend: impl Backend) {
    let ports = backend.ports();
    let first = breaker(1, json!({ "z": [1, 2.5, null], "a": "“quoted” \u{1f4b3}" }));
    assert_eq!(read(ports, &first).await, None);
    assert_eq!(save(ports, &first).await, SharedSaveOutcome::Saved);
    assert_eq!(read(&backend.another_instance(), &first).await, Some(first.clone()));
    let second = SharedRecord { expires_at: Some(at(60)), ..breaker(2, json!({ "a": 1 })) };
    assert_eq!(save(&backend.another_instance(), &second).await, SharedSaveOutcome::Saved);
    assert_eq!(read(ports, &first).await, Some(second));
}

pub(super) async fn a_shared_record_is_saved_revision_after_revision(backend: impl Backend) {
    let ports = backend.ports();
    assert_eq!(save(ports, &breaker(2, json!(0))).await, SharedSaveOutcome::Conflict(None));
    let now = breaker(1, json!("first"));
    assert_eq!(save(ports, &now).await, SharedSaveOutcome::Saved);
    for stale in [1, 3] {
        let conflict = SharedSaveOutcome::Conflict(Some(now.clone()));
        assert_eq!(save(ports, &breaker(stale, json!("other"))).await, conflict);
    }
    assert_eq!(read(ports, &now).await, Some(now));
}

pub(super) async fn one_of_sixteen_concurrent_saves_of_a_shared_record_wins(backend: impl Backend) {
    for revision in [1, 2] {
        let saves = race(backend.ports(), move |ports, n| async move {
            save(&ports, &breaker(revision, n.into())).await
        });
        let (won, lost): (Vec<_>, Vec<_>) =
            saves.await.into_iter().partition(|saved| *saved == SharedSaveOutcome::Saved);
        assert_eq!(won.len(), 1);
        let now = read(backend.ports(), &breaker(revision, Value::Null)).await;
        assert!(
            lost.iter().all(|lost| *lost == SharedSaveOutcome::Conflict(now.clone())),
            "{lost:?}"
        );
    }
}

pub(super) async fn shared_records_are_listed_by_their_kind(backend: impl Backend) {
    let ports = backend.ports();
    for kind in KINDS {
        assert_eq!(ports.store().shared_records(kind).await.unwrap(), []);
    }
    let names = ["inventory", "payment", "shipping"];
    for name in names {
        for (n, kind) in KINDS.into_iter().enumerate() {
            let body = if kind == SharedRecordKind::Breaker { json!(name) } else { json!(n) };
            assert_eq!(save(ports, &record(kind, name, 1, body)).await, SharedSaveOutcome::Saved);
        }
    }
    let mut breakers = ports.store().shared_records(SharedRecordKind::Breaker).await.unwrap();
    breakers.sort_by(|a, b| a.key.cmp(&b.key));
    let expected = names.map(|name| record(SharedRecordKind::Breaker, name, 1, json!(name)));
    assert_eq!(breakers, expected);
}

pub(super) async fn the_expiry_of_a_shared_record_is_stored_in_seconds(backend: impl Backend) {
    let at = |second| Some(Timestamp::from_second(second).unwrap());
    let run = |revision, expires_at| SharedRecord {
        expires_at,
        ..record(SharedRecordKind::Bulk, "run", revision, json!([]))
    };
    let later = Some(Timestamp::from_millisecond(4_000_000_000_999).unwrap());
    assert_eq!(save(backend.ports(), &run(1, later)).await, SharedSaveOutcome::Saved);
    let now = run(1, at(4_000_000_000));
    assert_eq!(read(&backend.another_instance(), &now).await, Some(now.clone()));
    let all = backend.ports().store().shared_records(SharedRecordKind::Bulk).await.unwrap();
    assert_eq!(all, std::slice::from_ref(&now));
    assert_eq!(save(backend.ports(), &now).await, SharedSaveOutcome::Conflict(Some(now)));
    // A record without an expiry never expires.
    assert_eq!(save(backend.ports(), &run(2, None)).await, SharedSaveOutcome::Saved);
    assert_eq!(read(backend.ports(), &run(2, None)).await, Some(run(2, None)));
}

/// Only DynamoDB deletes expired records; the in-memory ports keep them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dynamodb_deletes_an_expired_shared_record() {
    let backend = AwsBackend::open_in_process().await;
    let records =
        [("past", Some(Timestamp::UNIX_EPOCH)), ("later", Some(Timestamp::MAX)), ("never", None)];
    for (name, expires_at) in records {
        let record =
            SharedRecord { expires_at, ..record(SharedRecordKind::Bulk, name, 1, json!([])) };
        assert_eq!(save(backend.ports(), &record).await, SharedSaveOutcome::Saved);
    }
    assert_eq!(backend.aws.delete_expired_items().unwrap(), 1);
    let left = backend.ports().store().shared_records(SharedRecordKind::Bulk).await.unwrap();
    let names: Vec<_> = left.into_iter().map(|record| record.key.name).collect();
    assert_eq!(names, ["later", "never"]);
}

pub(super) async fn a_shared_record_cannot_be_loaded_as_a_task(backend: impl Backend) {
    let ports = backend.ports();
    assert_eq!(save(ports, &breaker(1, json!(0))).await, SharedSaveOutcome::Saved);
    assert_eq!(ports.store().load(&id("payment")).await.unwrap(), None);
    assert!("#breaker".parse::<steward_core::model::names::TaskId>().is_err());
}
