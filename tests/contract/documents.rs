//! Documents: written once, and read in batches.

use serde_json::{Value, json};
use steward_core::{
    limits,
    model::{
        attempt::{Action, AttemptId, AttemptTimes},
        document::{Document, DocumentKey},
        retention::DocumentRetention,
        task::Task,
    },
};
use steward_runtime::ports::{CreateOutcome, Ports, PutOutcome, StateStore};

use super::{
    backends::Backend,
    samples::{at, new_task, output, owner, small_documents, step, submission},
    tasks::race,
};

async fn put<P: Ports>(ports: &P, task: &Task, document: &Document) {
    assert_eq!(
        ports
            .store()
            .put_document(&task.document_owner(), task.document_retention(), document)
            .await
            .unwrap(),
        PutOutcome::Stored
    );
}

/// Reads documents, sorted by key because the port guarantees no order.
async fn read<P: Ports>(ports: &P, task_id: &str, keys: &[DocumentKey]) -> Vec<Document> {
    let mut documents = ports.store().documents(&owner(task_id), keys).await.unwrap();
    documents.sort_by(|a, b| a.key.cmp(&b.key));
    documents
}

pub(super) async fn a_document_is_read_unchanged(backend: impl Backend) {
    let (ports, task) = (backend.ports(), new_task("t"));
    let bodies = [
        Value::Null,
        json!(""),
        json!({}),
        json!({ "z": 1, "a": [true, null, -1.5e-7, 0.1, u64::MAX, i64::MIN], "": "" }),
        json!("Ünïcödé \u{1f4e6} \u{0} \u{7f} \u{ffff} \u{2028} \"\\/\n"),
        json!("x".repeat(limits::DOCUMENT_BYTES_MAX - 2)),
    ];
    for (attempt, body) in (1..).zip(bodies) {
        let document = output("charge", attempt, body);
        put(ports, &task, &document).await;
        let back = read(ports, "t", std::slice::from_ref(&document.key)).await;
        assert_eq!(back, std::slice::from_ref(&document));
        // The order of fields is kept, too.
        assert_eq!(back[0].body.to_string(), document.body.to_string());
    }
}

pub(super) async fn documents_in_the_item_of_a_task_are_read_with_it(backend: impl Backend) {
    let ports = backend.ports();
    let task = Task { documents: small_documents(), ..new_task("t") };
    assert_eq!(ports.store().create(&task, None).await.unwrap(), CreateOutcome::Created);
    let separate = output("charge", 1, json!("separate"));
    put(ports, &task, &separate).await;
    // A save that failed may have left a separate document with the key of one in the item, which counts.
    let left = Document { body: json!("left"), ..output("book", 1, Value::Null) };
    put(ports, &task, &left).await;
    let loaded = ports.store().load(&task.task_id).await.unwrap().unwrap();
    assert_eq!(loaded, task);
    let keys =
        [DocumentKey::Submission, left.key, separate.key.clone(), output("x", 1, 0.into()).key];
    let mut read = ports.store().documents_of(&loaded, &keys).await.unwrap();
    read.sort_by(|a, b| a.key.cmp(&b.key));
    let mut expected: Vec<_> = task.documents.iter().chain([separate]).collect();
    expected.sort_by(|a, b| a.key.cmp(&b.key));
    assert_eq!(read, expected);
}

pub(super) async fn a_document_keeps_the_times_of_its_attempt(backend: impl Backend) {
    let (ports, task) = (backend.ports(), new_task("t"));
    let times = [
        AttemptTimes::default(),
        AttemptTimes { queued_at: Some(at(1)), ..AttemptTimes::default() },
        AttemptTimes { queued_at: Some(at(1)), called_at: Some(at(2)), answered_at: Some(at(3)) },
    ];
    for (attempt, times) in (1..).zip(times) {
        let document = Document { times, ..output("charge", attempt, Value::Null) };
        put(ports, &task, &document).await;
        assert_eq!(read(ports, "t", std::slice::from_ref(&document.key)).await, [document]);
    }
}

pub(super) async fn a_document_is_never_overwritten(backend: impl Backend) {
    let (ports, task) = (backend.ports(), new_task("t"));
    let first = output("charge", 1, json!({ "charge": "c-1" }));
    put(ports, &task, &first).await;
    for body in [json!({ "charge": "c-2" }), first.body.clone()] {
        let again = Document { at: at(99), body, ..first.clone() };
        let existing = ports
            .store()
            .put_document(&task.document_owner(), task.document_retention(), &again)
            .await
            .unwrap();
        assert_eq!(existing, PutOutcome::Existing(first.body.clone()));
    }
    assert_eq!(read(ports, "t", std::slice::from_ref(&first.key)).await, [first]);
}

pub(super) async fn the_first_of_sixteen_concurrent_document_writes_wins<W: Backend>(backend: W) {
    let attempts = race(backend.ports(), |ports, n| async move {
        let document = output("charge", 1, n.into());
        (
            document.body.clone(),
            ports
                .store()
                .put_document(
                    &owner("t"),
                    DocumentRetention { from: at(3_600), retention_s: None },
                    &document,
                )
                .await
                .unwrap(),
        )
    });
    let (stored, existing): (Vec<_>, Vec<_>) =
        attempts.await.into_iter().partition(|(_, put)| *put == PutOutcome::Stored);
    assert_eq!(stored.len(), 1);
    let first = &stored[0].0;
    assert!(
        existing.iter().all(|(_, put)| *put == PutOutcome::Existing(first.clone())),
        "{existing:?}"
    );
    let key = output("charge", 1, Value::Null).key;
    assert_eq!(&read(backend.ports(), "t", &[key]).await[0].body, first);
}

pub(super) async fn any_number_of_documents_can_be_read(backend: impl Backend) {
    let (ports, task) = (backend.ports(), new_task("t"));
    let mut documents: Vec<_> =
        (1..=120).map(|attempt| output("charge", attempt, json!({ "attempt": attempt }))).collect();
    for document in &documents {
        put(ports, &task, document).await;
    }
    documents.sort_by(|a, b| a.key.cmp(&b.key));
    let keys: Vec<_> = documents.iter().map(|document| document.key.clone()).collect();
    for count in [0, 1, 3, 99, 100, 101, 120] {
        assert_eq!(read(ports, "t", &keys[..count]).await, documents[..count]);
    }
}

pub(super) async fn missing_documents_are_left_out(backend: impl Backend) {
    let (ports, task) = (backend.ports(), new_task("t"));
    let existing = output("charge", 2, "existing".into());
    put(ports, &task, &existing).await;
    let key = |attempt| output("charge", attempt, Value::Null).key;
    assert_eq!(read(ports, "t", &[key(1)]).await, []);
    assert_eq!(read(ports, "t", &[key(1), key(3)]).await, []);
    assert_eq!(read(ports, "t", &[key(1), key(2), key(3)]).await, [existing]);
    assert_eq!(read(ports, "no-such-task", &[key(2)]).await, []);
}

pub(super) async fn a_document_belongs_to_its_task(backend: impl Backend) {
    let ports = backend.ports();
    let failure = DocumentKey::Failure(AttemptId {
        step: step("charge").into(),
        action: Action::Do,
        number: 1,
    });
    let mut keys = vec![output("charge", 1, Value::Null).key, failure, DocumentKey::Submission];
    keys.sort();
    let documents_of = |task_id: &str| -> Vec<_> {
        let each = keys
            .iter()
            .map(|key| Document::new(key.clone(), at(1), format!("{task_id} {key}").into()));
        each.collect()
    };
    for task_id in ["t", "t2", "T"] {
        for document in documents_of(task_id) {
            put(ports, &new_task(task_id), &document).await;
        }
    }
    for task_id in ["t", "t2", "T"] {
        assert_eq!(read(ports, task_id, &keys).await, documents_of(task_id));
    }
}

pub(super) async fn the_submission_is_read_and_written_like_any_document(backend: impl Backend) {
    let (ports, task) = (backend.ports(), new_task("t"));
    let first = submission(&task);
    ports.store().create(&task, Some(&first)).await.unwrap();
    assert_eq!(read(ports, "t", &[DocumentKey::Submission]).await, std::slice::from_ref(&first));
    let again = Document { body: "other".into(), ..first.clone() };
    let existing = ports
        .store()
        .put_document(&task.document_owner(), task.document_retention(), &again)
        .await
        .unwrap();
    assert_eq!(existing, PutOutcome::Existing(first.body));
}
