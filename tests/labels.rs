//! Labels: computed at submission by the real handlers, and found by a search, also after a crash at each point of a submission.

use aws_lambda_events::sqs::SqsBatchResponse;
use jiff::SignedDuration;
use serde_json::{Value, json};
use steward_aws::store::TaskFilter;
use steward_core::definition::workflow::Workflow;
use steward_runtime::ports::Ports;

use crate::support::{
    AdapterPorts, InjectedFault, SdkFaultInjector, TestDeployment, failed_message_ids,
    sequential_workflow, sqs_event,
};

/// The workflow `line` with two labels.
fn workflow() -> Workflow {
    let mut definition = serde_json::to_value(sequential_workflow(1)).unwrap();
    definition["labels"] =
        json!({ "customer": "${ input.customer.id }", "region": "${ input.region }" });
    serde_json::from_value(definition).unwrap()
}

fn submission(id: &str, customer: impl Into<Value>, region: &str) -> String {
    let input = json!({ "customer": { "id": customer.into() }, "region": region });
    json!({ "task_id": id, "workflow": "line", "input": input }).to_string()
}

/// Runs a submission; returns the ids of its failed messages, or `None` if it panicked.
async fn submit(
    deployment: &TestDeployment,
    ports: AdapterPorts,
    messages: Vec<String>,
) -> Option<Vec<String>> {
    let queues = deployment.config.reply_queues.clone();
    let run =
        async move { steward_submission::handle(&ports, &queues, sqs_event(messages, 1)).await };
    let response = tokio::spawn(run).await.ok()?;
    Some(failed_message_ids(&response).into_iter().map(str::to_owned).collect())
}

async fn found(deployment: &TestDeployment, labels: &str) -> Vec<String> {
    let filter = TaskFilter { labels: Some(labels.parse().unwrap()), ..TaskFilter::default() };
    let ports = deployment.ports("reader");
    let found = filter.find(ports.store(), None, 100, 1_000).await.unwrap();
    assert_eq!(found.next, None);
    found.tasks.iter().map(|task| task.task_id.to_string()).collect()
}

/// The number of entries in the index of labels.
async fn entries(deployment: &TestDeployment) -> usize {
    let client = aws_sdk_dynamodb::Client::new(&deployment.aws.sdk_config());
    let scan = client.scan().table_name(&deployment.config.documents_table).send().await.unwrap();
    let items = scan.items.unwrap_or_default();
    items.iter().filter(|item| item["task_id"].as_s().unwrap().starts_with("#label")).count()
}

#[tokio::test]
async fn submitted_tasks_are_found_by_their_labels_newest_first() {
    let deployment = TestDeployment::new(&workflow()).await;
    for (id, customer, region) in
        [("a", json!(42), "eu"), ("b", json!(7), "eu"), ("c", json!("42"), "us")]
    {
        let message = submission(id, customer, region);
        assert_eq!(
            submit(&deployment, deployment.ports("submission"), vec![message]).await,
            Some(vec![])
        );
        deployment.clock.advance_by(SignedDuration::from_secs(1));
    }
    assert_eq!(found(&deployment, "customer=42").await, ["c", "a"]);
    assert_eq!(found(&deployment, "region=eu").await, ["b", "a"]);
    assert_eq!(found(&deployment, "region=eu, customer=42").await, ["a"]);
    assert_eq!(found(&deployment, "customer=4").await, [""; 0]);
    assert_eq!(entries(&deployment).await, 6);
    // A repeated submission is the same task, and writes nothing.
    deployment.clock.advance_by(SignedDuration::from_secs(60));
    let again = vec![submission("a", 42, "eu")];
    assert_eq!(submit(&deployment, deployment.ports("submission"), again).await, Some(vec![]));
    assert_eq!((entries(&deployment).await, found(&deployment, "customer=42").await.len()), (6, 2));
    assert_eq!(deployment.take_alerts().await, Vec::<Value>::new());
}

#[tokio::test]
async fn a_value_that_cannot_be_a_label_is_refused_and_an_absent_one_is_no_label() {
    let deployment = TestDeployment::new(&workflow()).await;
    let ports = deployment.ports("submission");
    let messages = vec![
        submission("long", "x".repeat(101), "eu"),
        submission("list", json!([1]), "eu"),
        json!({ "task_id": "bare", "workflow": "line", "input": {} }).to_string(),
    ];
    assert_eq!(submit(&deployment, ports, messages).await, Some(vec![]));
    assert_eq!(entries(&deployment).await, 0);
    assert!(deployment.task("bare").await.labels.is_empty());
    let alerts = deployment.take_alerts().await;
    let reasons: Vec<_> =
        alerts.iter().map(|alert| alert["detail"]["data"]["reason"].as_str().unwrap()).collect();
    assert_eq!(reasons.len(), 2, "{alerts:#?}");
    for reason in [
        "labels.customer: the result has 101 bytes; the limit is 100",
        "labels.customer: the result is not a text, a number or a boolean",
    ] {
        assert!(reasons.contains(&reason), "{reasons:?}");
    }
}

#[tokio::test]
async fn a_submission_that_fails_at_any_write_leaves_a_task_with_all_its_labels_or_none() {
    use InjectedFault::{CrashAfter, CrashBefore, FailAfter, FailBefore};
    for table in ["#label/customer", "#label/region", "steward-tasks"] {
        for fault in [CrashBefore, CrashAfter, FailBefore, FailAfter] {
            let deployment = TestDeployment::new(&workflow()).await;
            let message = || vec![submission("t", 42, "eu")];
            let injector = SdkFaultInjector::once("PutItem", table, fault);
            let ports = deployment.ports_with_faults("submission", injector.clone());
            let returned = submit(&deployment, ports, message()).await;
            assert!(injector.is_exhausted(), "{table} {fault:?}");
            assert_eq!(returned.unwrap_or_default().len(), 1, "{table} {fault:?}");
            let is_recorded = table == "steward-tasks" && matches!(fault, CrashAfter | FailAfter);
            let expected: &[&str] = if is_recorded { &["t"] } else { &[] };
            for label in ["customer=42", "region=eu"] {
                assert_eq!(found(&deployment, label).await, expected, "{table} {fault:?} {label}");
            }
            // The message returns later.
            deployment.clock.advance_by(SignedDuration::from_secs(180));
            let again = submit(&deployment, deployment.ports("another"), message()).await;
            assert_eq!(again, Some(vec![]));
            for label in ["customer=42", "region=eu", "customer=42, region=eu"] {
                assert_eq!(found(&deployment, label).await, ["t"], "{table} {fault:?} {label}");
            }
        }
    }
}

#[tokio::test]
async fn a_workflow_without_labels_writes_no_entries_and_reads_nothing_more() {
    let deployment = TestDeployment::new(&sequential_workflow(1)).await;
    let meter = steward_aws::meter::AwsMeter::default();
    let interceptor = steward_aws::ports::SharedInterceptor::new(meter.clone());
    let ports = deployment.ports_with_interceptors("submission", vec![interceptor]);
    let queues = &deployment.config.reply_queues;
    let event = sqs_event([submission("t", 42, "eu")], 1);
    assert_eq!(
        steward_submission::handle(&ports, queues, event).await,
        SqsBatchResponse::default()
    );
    assert_eq!(entries(&deployment).await, 0);
    let used = meter.read();
    let of = |operation: &str| steward_aws::meter::total(&used, operation).requests;
    assert_eq!((of("DynamoDB.PutItem"), of("DynamoDB.GetItem")), (1, 0));
}
