//! The index of labels in the AWS adapter, on every database. The in-memory ports have no search.

use std::{collections::HashMap, time::Duration};

use aws_sdk_dynamodb::types::AttributeValue;
use jiff::Timestamp;
use steward_aws::{
    items::expires_at,
    store::{DynamoStore, FilterTime, PageCursor, StateFilter, TaskFilter},
};
use steward_core::model::task::{ProcessState, Task};
use steward_runtime::ports::{CreateOutcome, Ports, SaveOutcome, StateStore};

use super::{
    backends::{AwsBackend, Backend as _},
    samples::{at, id, new_task, next, submission},
};

fn labelled(task_id: &str, submitted_at: Timestamp, labels: &[(&str, &str)]) -> Task {
    let labels = labels.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
    Task { submitted_at, labels: labels.collect(), ..new_task(task_id) }
}

async fn create(store: &DynamoStore, task: &Task) {
    let created = store.create(task, Some(&submission(task))).await.unwrap();
    assert_eq!(created, CreateOutcome::Created);
}

fn filter(labels: &str) -> TaskFilter {
    TaskFilter { labels: Some(labels.parse().unwrap()), ..TaskFilter::default() }
}

/// The ids in all pages, each of `size` tasks. The cursor passes a URL between two pages.
async fn found(store: &DynamoStore, filter: &TaskFilter, size: usize) -> Vec<String> {
    let (mut ids, mut from) = (Vec::new(), None);
    loop {
        let page = filter.find(store, from, size, 1_000).await.unwrap();
        assert!(page.tasks.len() <= size);
        ids.extend(page.tasks.iter().map(|task| task.task_id.to_string()));
        let Some(next) = page.next else { return ids };
        from = Some(next.to_string().parse::<PageCursor>().unwrap());
    }
}

#[tokio::test]
async fn pages_list_each_labelled_task_once_and_the_newest_first() {
    let backend = AwsBackend::open().await;
    let store = backend.ports().store();
    let mut submitted = Vec::new();
    // Five tasks at each time.
    for n in 0..30_u64 {
        let (task_id, time) = (format!("t-{n}"), at(n / 5) + Duration::from_millis(7));
        create(store, &labelled(&task_id, time, &[("customer", "42")])).await;
        submitted.push((time, task_id));
    }
    create(store, &labelled("other", at(3), &[("customer", "4"), ("order", "42")])).await;
    let whole = found(store, &filter("customer=42"), 100).await;
    assert_eq!(whole.len(), submitted.len());
    let times: Vec<_> = whole
        .iter()
        .map(|found| submitted.iter().find(|(_, task_id)| task_id == found).unwrap().0)
        .collect();
    assert!(times.is_sorted_by(|newer, older| newer >= older), "{times:?}");
    for size in [1, 3, 7] {
        assert_eq!(found(store, &filter("customer=42"), size).await, whole, "pages of {size}");
    }
    let (from, to) = (Some(FilterTime(times[9])), Some(FilterTime(times[5])));
    let within = TaskFilter { from, to, ..filter("customer=42") };
    assert_eq!(found(store, &within, 4).await, whole[5..10]);
    assert_eq!(found(store, &filter("customer=420"), 10).await, [""; 0]);
}

#[tokio::test]
async fn a_search_for_labels_combines_with_every_other_criterion() {
    let backend = AwsBackend::open().await;
    let store = backend.ports().store();
    let eu = |customer| [("customer", customer), ("region", "eu, west")];
    for (n, (task_id, customer)) in [("a", "1"), ("b", "2"), ("c", "1")].into_iter().enumerate() {
        let task = labelled(task_id, at(n as u64), &eu(customer));
        create(store, &Task { tenant: Some(format!("tenant-{task_id}").parse().unwrap()), ..task })
            .await;
    }
    create(store, &labelled("d", at(9), &[("customer", "1")])).await;
    let c = store.load(&id("c")).await.unwrap().unwrap();
    let ended = Task { process_state: ProcessState::Undone, ended_at: Some(at(60)), ..next(&c) };
    assert_eq!(store.save(&ended).await.unwrap(), SaveOutcome::Saved);

    assert_eq!(found(store, &filter("customer=1"), 10).await, ["d", "c", "a"]);
    assert_eq!(found(store, &filter("region=eu, west"), 10).await, ["c", "b", "a"]);
    assert_eq!(found(store, &filter("customer=1, region=eu, west"), 10).await, ["c", "a"]);
    let state = Some(StateFilter::In(ProcessState::Undone));
    let undone = TaskFilter { state, ..filter("customer=1") };
    assert_eq!(found(store, &undone, 10).await, ["c"]);
    let tenant = Some("tenant-a".parse().unwrap());
    let of_tenant = TaskFilter { tenant, ..filter("customer=1") };
    assert_eq!(found(store, &of_tenant, 10).await, ["a"]);
    // The bound on the work: the result says that there may be more.
    let bounded = filter("region=eu, west, customer=2").find(store, None, 10, 1).await.unwrap();
    assert_eq!((bounded.tasks.len(), bounded.examined, bounded.next.is_some()), (0, 1, true));
}

async fn entries(backend: &AwsBackend) -> Vec<HashMap<String, AttributeValue>> {
    let client = aws_sdk_dynamodb::Client::new(&backend.aws.sdk_config());
    let scan = client.scan().table_name(&backend.config.documents_table).send().await.unwrap();
    let is_label = |item: &HashMap<_, AttributeValue>| {
        item["task_id"].as_s().is_ok_and(|key| key.starts_with("#label/"))
    };
    scan.items.unwrap_or_default().into_iter().filter(is_label).collect()
}

#[tokio::test]
async fn an_entry_without_its_task_is_skipped() {
    let backend = AwsBackend::open().await;
    let store = backend.ports().store();
    let task = labelled("t", at(0), &[("customer", "42")]);
    create(store, &task).await;
    // An attempt to record the same id at another time, and one with other labels.
    for other in [labelled("t", at(5), &[("customer", "42")]), labelled("t", at(6), &[("n", "1")])]
    {
        let existing = store.create(&other, Some(&submission(&other))).await.unwrap();
        assert_eq!(existing, CreateOutcome::Exists(Some(Box::new(task.clone()))));
    }
    let entry = entries(&backend).await;
    assert_eq!(entry.len(), 1, "{entry:#?}");
    // The entries of a task that does not exist, and of an earlier one with the same id.
    let client = aws_sdk_dynamodb::Client::new(&backend.aws.sdk_config());
    for document in ["000000000000005/gone", "000000000000006/t"] {
        let mut orphan = entry[0].clone();
        orphan.insert("document".to_owned(), AttributeValue::S(document.to_owned()));
        let put = client.put_item().table_name(&backend.config.documents_table);
        put.set_item(Some(orphan)).send().await.unwrap();
    }
    for size in [1, 10] {
        assert_eq!(found(store, &filter("customer=42"), size).await, ["t"], "pages of {size}");
    }
}

#[tokio::test]
async fn an_entry_lives_as_long_as_the_documents_of_its_task() {
    let backend = AwsBackend::open().await;
    let store = backend.ports().store();
    let task = labelled("t", at(0), &[("customer", "42")]);
    create(store, &task).await;
    let before = entries(&backend).await;
    let longer = Task { retention_start: at(1_000_000), ..task };
    store.extend_documents(&longer).await.unwrap();
    let after = entries(&backend).await;
    let expiry = |entries: &[HashMap<_, _>]| {
        entries.iter().map(|entry| expires_at(entry).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(expiry(&after), [expiry(&before)[0] + 1_000_000 - 7_200]);
}
