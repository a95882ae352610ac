//! Expiry: an expired item counts as absent, whether or not it is deleted yet. A new task never sees the documents of an
//! earlier task with the same id.

use jiff::Timestamp;
use steward_core::model::{
    document::{Document, DocumentKey},
    messages::ParentStep,
    names::Incarnation,
    retention::DocumentRetention,
    task::{ProcessState, Task},
};
use steward_runtime::ports::{CreateOutcome, Ports, PutOutcome, StateStore};

use super::{
    backends::{AwsBackend, Backend},
    samples::{at, id, new_task, output, submission},
    tasks::race,
};

/// A task that was recorded and ended in this second of 2001, with a retention of one hour. DynamoDB does not delete it
/// during the test, because it keeps items that expired more than five years ago.
fn expired_task(task_id: &str, second: i64) -> Task {
    let then = Timestamp::from_second(1_000_000_000 + second).unwrap();
    Task {
        process_state: ProcessState::Processed,
        submitted_at: then,
        incarnation: Incarnation::recorded_at(then),
        complete_by: then,
        ended_at: Some(then),
        due: None,
        retention_s: Some(3_600),
        ..new_task(task_id)
    }
}

async fn create<P: Ports>(ports: &P, task: &Task) -> CreateOutcome {
    ports.store().create(task, Some(&distinct_submission(task, "submitted"))).await.unwrap()
}

/// A submission document whose body is distinct for each task.
fn distinct_submission(task: &Task, body: &str) -> Document {
    Document { body: format!("{body} at {}", task.submitted_at).into(), ..submission(task) }
}

async fn read<P: Ports>(ports: &P, task: &Task, key: DocumentKey) -> Vec<Document> {
    ports.store().documents(&task.document_owner(), &[key]).await.unwrap()
}

pub(super) async fn an_expired_task_is_absent(backend: impl Backend) {
    let ports = backend.ports();
    assert_eq!(create(ports, &expired_task("t", 0)).await, CreateOutcome::Created);
    assert_eq!(ports.store().load(&id("t")).await.unwrap(), None);
    // A due task never expires.
    let due = Task { due: Some(at(10)), ..expired_task("u", 0) };
    assert_eq!(create(ports, &due).await, CreateOutcome::Created);
    assert_eq!(ports.store().load(&id("u")).await.unwrap(), Some(due));
}

pub(super) async fn an_expired_document_is_absent(backend: impl Backend) {
    let (ports, task) = (backend.ports(), new_task("t"));
    let (gone, left) = (output("charge", 1, 1.into()), output("charge", 2, 2.into()));
    let past = DocumentRetention { from: Timestamp::UNIX_EPOCH, retention_s: Some(3_600) };
    for (retention, document) in [(past, &gone), (task.document_retention(), &left)] {
        let put = ports.store().put_document(&task.document_owner(), retention, document).await;
        assert_eq!(put.unwrap(), PutOutcome::Stored);
    }
    assert_eq!(read(ports, &task, gone.key.clone()).await, []);
    let keys = [gone.key, left.key.clone()];
    assert_eq!(ports.store().documents(&task.document_owner(), &keys).await.unwrap(), [left]);
}

pub(super) async fn a_new_task_replaces_an_expired_one(backend: impl Backend) {
    let ports = backend.ports();
    let (first, second) = (expired_task("t", 0), new_task("t"));
    assert_eq!(create(ports, &first).await, CreateOutcome::Created);
    assert_eq!(create(ports, &second).await, CreateOutcome::Created);
    assert_eq!(ports.store().load(&id("t")).await.unwrap().as_ref(), Some(&second));
    let submitted = read(ports, &second, DocumentKey::Submission).await;
    assert_eq!(submitted, [distinct_submission(&second, "submitted")]);
    assert_eq!(create(ports, &second).await, CreateOutcome::Exists(Some(Box::new(second))));
}

pub(super) async fn a_new_task_does_not_replace_an_unexpired_one(backend: impl Backend) {
    let ports = backend.ports();
    let first = expired_task("t", 0);
    assert_eq!(create(ports, &first).await, CreateOutcome::Created);
    let early = expired_task("t", 3_599);
    assert_eq!(create(ports, &early).await, CreateOutcome::Exists(Some(Box::new(first))));
    assert_eq!(read(ports, &early, DocumentKey::Submission).await, []);
    let in_time = new_task("t");
    assert_eq!(create(ports, &in_time).await, CreateOutcome::Created);
}

pub(super) async fn documents_of_an_earlier_task_are_not_visible(backend: impl Backend) {
    let ports = backend.ports();
    let (first, second) = (new_task("t"), Task { submitted_at: at(1), ..new_task("t") });
    let second = Task { incarnation: Incarnation::recorded_at(at(1)), ..second };
    // The earlier task is deleted; its submission and output are not.
    for document in [distinct_submission(&first, "left"), output("charge", 1, 1.into())] {
        let owner = first.document_owner();
        let put = ports.store().put_document(&owner, first.document_retention(), &document).await;
        assert_eq!(put.unwrap(), PutOutcome::Stored);
    }
    assert_eq!(create(ports, &second).await, CreateOutcome::Created);
    let output = output("charge", 1, 2.into());
    assert_eq!(read(ports, &second, output.key.clone()).await, []);
    let put = ports
        .store()
        .put_document(&second.document_owner(), second.document_retention(), &output)
        .await;
    assert_eq!(put.unwrap(), PutOutcome::Stored);
    for (task, body) in [(first, 1), (second, 2)] {
        assert_eq!(read(ports, &task, output.key.clone()).await[0].body, body);
    }
}

pub(super) async fn a_child_task_replaces_the_ended_child_of_an_earlier_parent(
    backend: impl Backend,
) {
    let ports = backend.ports();
    let of_parent = |second, task: Task| Task {
        parent: Some(ParentStep {
            task_id: id("p"),
            step: "ship".parse().unwrap(),
            depth: 1,
            incarnation: Incarnation::recorded_at(at(second)),
            payload_place: None,
        }),
        ..task
    };
    let again = Task {
        submitted_at: at(2),
        incarnation: Incarnation::recorded_at(at(2)),
        ..of_parent(2, new_task("p:ship"))
    };
    let ended = Task {
        process_state: ProcessState::Processed,
        ended_at: Some(at(1)),
        due: None,
        ..of_parent(1, new_task("p:ship"))
    };
    assert_eq!(create(ports, &ended).await, CreateOutcome::Created);
    let same_parent = of_parent(1, again.clone());
    assert_eq!(create(ports, &same_parent).await, CreateOutcome::Exists(Some(Box::new(ended))));
    assert_eq!(create(ports, &again).await, CreateOutcome::Created);
    assert_eq!(ports.store().load(&id("p:ship")).await.unwrap(), Some(again.clone()));
    // An unended child is not replaced.
    let later = of_parent(3, Task { submitted_at: at(3), ..again.clone() });
    assert_eq!(create(ports, &later).await, CreateOutcome::Exists(Some(Box::new(again))));
}

pub(super) async fn one_of_sixteen_concurrent_creations_replaces_an_expired_task<W: Backend>(
    backend: W,
) {
    assert_eq!(create(backend.ports(), &expired_task("t", 0)).await, CreateOutcome::Created);
    let attempts = race(backend.ports(), |ports, n| async move {
        let task = Task { version: n, ..new_task("t") };
        (n, ports.store().create(&task, Some(&distinct_submission(&task, "new"))).await)
    });
    let is_won = |(n, created): (u32, Result<CreateOutcome, _>)| match created {
        Ok(CreateOutcome::Created) => Some(n),
        Ok(CreateOutcome::Exists(_)) => None,
        // DynamoDB may also report a conflict with another transaction.
        Err(steward_runtime::ports::PortError { retryable: true, .. }) => None,
        Err(error) => panic!("{error:?}"),
    };
    let winners: Vec<_> = attempts.await.into_iter().filter_map(is_won).collect();
    let task = backend.ports().store().load(&id("t")).await.unwrap().unwrap();
    assert_eq!(winners, [task.version]);
}

/// The operators' view of a task excludes the documents of earlier tasks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operators_see_only_the_documents_of_the_newest_task() {
    let backend = AwsBackend::open().await;
    let (ports, first, second) = (backend.ports(), expired_task("t", 0), new_task("t"));
    let retention = second.document_retention();
    for task in [&first, &second] {
        assert_eq!(create(ports, task).await, CreateOutcome::Created);
        let returned = output("charge", 1, task.submitted_at.to_string().into());
        ports.store().put_document(&task.document_owner(), retention, &returned).await.unwrap();
    }
    let all = ["!".to_owned()..="~".to_owned()];
    let shown = ports.store().documents_in(&second, &all).await.unwrap();
    let bodies: Vec<_> = shown.iter().map(|document| document.body.clone()).collect();
    assert_eq!(bodies, [at(0).to_string().into(), distinct_submission(&second, "submitted").body]);
    let times = ports.store().attempt_times(&second, &all).await.unwrap();
    let keys: Vec<_> = times.into_iter().map(|(key, _)| key).collect();
    assert_eq!(keys, [output("charge", 1, 0.into()).key, DocumentKey::Submission]);
    let mut tasks = Vec::new();
    ports.store().visit_tasks(|task| tasks.push(task)).await.unwrap();
    assert_eq!(tasks, [second]);
}
