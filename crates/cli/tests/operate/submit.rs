//! `steward submit`: nothing is sent whose workflow or input would be refused, and `--wait` says how the tasks ended.

use serde_json::{Value, json};
use tempfile::NamedTempFile;

use crate::harness::{CommandOutput, OperatorHarness, steward_in};

async fn submit(harness: &OperatorHarness, submissions: &Value, options: &[&str]) -> CommandOutput {
    let file = NamedTempFile::new().unwrap();
    std::fs::write(file.path(), submissions.to_string()).unwrap();
    let args = [&["submit", file.path().to_str().unwrap()], options].concat();
    harness.steward(&args).await
}

fn order(id: &str, refuse: &str) -> Value {
    json!({ "task_id": id, "workflow": "order", "input": { "refuse": refuse } })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_would_be_refused_is_not_sent() {
    let harness = OperatorHarness::start().await;
    let unknown = json!({ "task_id": "order-2", "workflow": "ordr" });
    let output = submit(&harness, &json!([order("order-1", ""), unknown]), &[]).await;
    output.fails(&["error: order-2: there is no workflow `ordr`; nothing was sent"]);
    assert_eq!(output.code, 1);
    let wrong =
        json!({ "task_id": "strict-1", "workflow": "strict", "input": { "amount": "much" } });
    submit(&harness, &wrong, &[]).await.fails(&["strict-1: input.amount: ", "nothing was sent"]);
    let list = harness.steward(&["list", "--json"]).await;
    assert_eq!(serde_json::from_str::<Value>(&list.out).unwrap(), json!([]));

    submit(&harness, &wrong, &["--unchecked"]).await.has(&["strict-1: sent"]);
    let sent = submit(&harness, &order("order-1", ""), &["--json"]).await;
    assert_eq!(
        serde_json::from_str::<Value>(&sent.out).unwrap(),
        json!([{ "task_id": "order-1" }])
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn submit_waits_for_the_end_of_the_tasks() {
    let harness = OperatorHarness::start().await;
    submit(&harness, &order("fine", ""), &["--wait"]).await.has(&["fine: Processed\n"]);

    let both = json!([order("good", ""), order("bad", "/charge")]);
    let output = submit(&harness, &both, &["--wait=30s"]).await;
    output.fails(&["error: 1 of 2 tasks not Processed"]);
    assert_eq!(output.code, 1);
    assert!(
        output.out.contains("good: Processed\nbad: Error: step charge: HTTP 402"),
        "{output:?}"
    );

    let output = submit(&harness, &both, &["--wait=30s", "--json"]).await;
    let tasks: Value = serde_json::from_str(&output.out).unwrap();
    assert_eq!(
        (&tasks[0]["task_id"], &tasks[0]["process_state"]),
        (&json!("good"), &json!("Processed"))
    );
    assert_eq!(tasks[1]["process_state"], "Error");

    // The id is taken: the task in the store is that of another submission.
    let other = submit(&harness, &order("fine", "/ship"), &["--wait"]).await;
    other.fails(&["1 of 1 tasks not Processed"]);
    assert_eq!(other.out, "fine: refused: the task exists already, with other content\n");
    let other = submit(&harness, &order("fine", "/ship"), &["--wait", "--json"]).await;
    let refused = json!({
        "task_id": "fine", "process_state": null,
        "refused": "the task exists already, with other content",
    });
    assert_eq!(serde_json::from_str::<Value>(&other.out).unwrap(), json!([refused]));

    // One of three.
    let one = harness.steward(&["list", "--limit", "1", "--json"]).await;
    assert_eq!(serde_json::from_str::<Value>(&one.out).unwrap().as_array().unwrap().len(), 1);
    assert_eq!(one.err, "there may be more than 1: raise --limit\n");
    assert_eq!(harness.steward(&["list", "--limit", "3"]).await.err, "");
    harness.steward(&["list", "--limit", "0"]).await.fails(&["--limit"]);

    harness.shop.hold(true);
    let output = submit(&harness, &order("slow", ""), &["--wait=3s"]).await;
    assert!(!output.ok && output.out.starts_with("slow: P"), "{output:?}");
    harness.shop.hold(false);
}

/// Below `info`, the AWS SDK would log whole requests.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_payload_is_logged_at_any_level() {
    let harness = OperatorHarness::start().await;
    let file = NamedTempFile::new().unwrap();
    let submission = json!({
        "task_id": "order-1", "workflow": "order",
        "input": { "refuse": "", "note": "never-to-be-logged" },
    });
    std::fs::write(file.path(), submission.to_string()).unwrap();
    let endpoint = format!("http://{}", harness.host.address.unwrap());
    let variables = [
        ("AWS_ENDPOINT_URL", endpoint.as_str()),
        ("RUST_LOG", "trace"),
        ("AWS_REGION", "us-east-1"),
        ("AWS_ACCESS_KEY_ID", "x"),
        ("AWS_SECRET_ACCESS_KEY", "x"),
    ];
    let output = steward_in(&variables, &["submit", file.path().to_str().unwrap(), "--wait"]).await;
    output.has(&["order-1: Processed"]);
    assert!(!output.err.contains("never-to-be-logged"), "{}", output.err);
}

/// Exit code 69: nothing is known about the tasks.
#[tokio::test]
async fn an_unavailable_deployment_is_named_in_one_line() {
    let file = NamedTempFile::new().unwrap();
    std::fs::write(file.path(), order("order-1", "").to_string()).unwrap();
    let submit = ["submit", file.path().to_str().unwrap()];
    let unreachable = "http://127.0.0.1:1";
    for args in [&submit[..], &["list"], &["show", "order-1"], &["dlq", "list"]] {
        let output = steward_in(&[("AWS_ENDPOINT_URL", unreachable)], args).await;
        assert_eq!(output.code, 69, "{args:?}: {output:?}");
        let start = format!("error: no connection to AWS_ENDPOINT_URL={unreachable}: ");
        assert!(output.err.starts_with(&start), "{args:?}: {output:?}");
        assert_eq!(output.err.lines().count(), 1, "{output:?}");

        let variables = [("AWS_REGION", "eu-west-1"), ("AWS_EC2_METADATA_DISABLED", "true")];
        let output = steward_in(&variables, args).await;
        assert_eq!(output.code, 69, "{args:?}: {output:?}");
        assert!(
            output.err.starts_with("error: no AWS credentials (set AWS_PROFILE, "),
            "{output:?}"
        );
        assert_eq!(output.err.lines().count(), 1, "{output:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_are_found_and_counted_by_their_tenant() {
    let harness = OperatorHarness::start().await;
    let mut own = order("own", "");
    own["tenant"] = json!("globex");
    let both = json!([order("one", ""), order("two", "/charge"), own]);
    submit(&harness, &both, &["--tenant", "acme", "--wait=30s"]).await.fails(&["1 of 3 tasks"]);
    submit(&harness, &order("bare", ""), &["--wait"]).await.has(&["bare: Processed"]);

    let json_of = async |args: &[&str]| {
        serde_json::from_str::<Value>(&harness.steward(args).await.out).unwrap()
    };
    let list = json_of(&["list", "--tenant", "acme", "--json"]).await;
    let mut ids: Vec<_> = list.as_array().unwrap().iter().map(|task| &task["task_id"]).collect();
    ids.sort_by_key(|id| id.to_string());
    assert_eq!(ids, [&json!("one"), &json!("two")]);
    harness.steward(&["show", "own"]).await.has(&["tenant: globex"]);

    let counts = json_of(&["tenants", "--json"]).await;
    assert_eq!(
        counts,
        json!([
            { "tenant": null, "tasks": 1, "unfinished": 0, "processed": 1, "failed_attempts": 0 },
            { "tenant": "acme", "tasks": 2, "unfinished": 0, "processed": 1, "error": 1, "failed_attempts": 1 },
            { "tenant": "globex", "tasks": 1, "unfinished": 0, "processed": 1, "failed_attempts": 0 },
        ])
    );
    let since = json_of(&["tenants", "--since", "2100-01-01T00:00:00Z", "--json"]).await;
    assert_eq!(since, json!([]));
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../workflows/order.yaml");
    let cost = harness.steward(&["cost", file, "--runs", "20", "--tenants"]).await;
    cost.has(&["│ acme ", "50.0%", "│ (none) "]);

    let invalid = submit(&harness, &order("x", ""), &["--tenant", "a b"]).await;
    invalid.fails(&["tenant `a b` is not valid: letters, digits, `.`, `_` and `-`"]);
    let mut nested = order("x", "");
    nested["tenant"] = json!(7);
    submit(&harness, &nested, &[]).await.fails(&["submission 1", "invalid type"]);
}

/// Publishes a workflow whose only step waits.
async fn publish_waiting(harness: &OperatorHarness, name: &str, wait: &str, labels: Value) {
    let steps = json!({ "rest": { "wait": wait } });
    let definition = json!({ "name": name, "version": 1, "labels": labels, "steps": steps });
    let file = NamedTempFile::with_suffix(".json").unwrap();
    std::fs::write(file.path(), definition.to_string()).unwrap();
    let publish = ["workflow", "publish", file.path().to_str().unwrap()];
    harness.steward(&publish).await.has(&["published"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_are_listed_by_their_labels_and_without_a_filter_the_newest_first() {
    let harness = OperatorHarness::start().await;
    let labels = json!({ "customer": "${ input.customer.id }", "region": "${ input.region }" });
    publish_waiting(&harness, "slow", "1h", json!({})).await;
    publish_waiting(&harness, "parcel", "1s", labels).await;
    let parcel = |id: &str, customer: Value, region: &str| {
        let input = json!({ "customer": { "id": customer }, "region": region });
        json!({ "task_id": id, "workflow": "parcel", "input": input })
    };
    submit(&harness, &json!({ "task_id": "slow-1", "workflow": "slow" }), &[]).await.has(&["sent"]);
    harness.until_state("slow-1", "Processing").await;
    for (id, region) in [("parcel-1", "eu"), ("parcel-2", "us")] {
        submit(&harness, &parcel(id, json!(42), region), &["--wait=30s"]).await.has(&["Processed"]);
    }
    let list = async |args: &[&str]| {
        let output = harness.steward(&[&["list", "--json"], args].concat()).await;
        let tasks: Value = serde_json::from_str(&output.out).unwrap();
        let ids = tasks.as_array().unwrap().iter().map(|task| task["task_id"].as_str().unwrap());
        (ids.map(str::to_owned).collect::<Vec<_>>().join(" "), output.err)
    };
    let of = |ids: &str| (ids.to_owned(), String::new());
    assert_eq!(list(&[]).await, of("parcel-2 parcel-1 slow-1"));
    let newest = ("parcel-2".to_owned(), "there may be more than 1: raise --limit\n".to_owned());
    assert_eq!(list(&["--limit", "1"]).await, newest);
    let both = ["--label", "customer=42", "--state", "processed", "--since", "2d"];
    assert_eq!(list(&both).await, of("parcel-2 parcel-1"));
    assert_eq!(list(&["--label", "customer=42", "--label", "region=eu"]).await, of("parcel-1"));
    assert_eq!(list(&["--label", "customer=42", "--state", "error"]).await, of(""));
    assert_eq!(list(&["--label", "customer=42", "--limit", "1"]).await, newest);
    harness.steward(&["list", "--label", "customer"]).await.fails(&["write it as customer=42"]);

    let count = ["list", "--count", "--label", "customer=42"];
    assert_eq!(harness.steward(&count).await.out, "tasks: 2\n");
    let bounded = [&count[..], &["--limit", "1"]].concat();
    assert_eq!(harness.steward(&bounded).await.out, "tasks: at least 1\n");
    let counted = harness.steward(&[&bounded[..], &["--json"]].concat()).await.out;
    let counted: Value = serde_json::from_str(&counted).unwrap();
    assert_eq!(counted, json!({ "tasks": 1, "is_lower_bound": true }));

    harness.steward(&["show", "parcel-1"]).await.has(&["labels: customer=42, region=eu"]);
    let forget = ["forget", "parcel-1", "--why", "the customer requested it"];
    harness.steward(&forget).await.has(&["parcel-1: erased, 2 items in the documents table"]);
    assert_eq!(list(&["--label", "customer=42"]).await, of("parcel-2"));
    let shown = harness.steward(&["show", "parcel-1"]).await;
    assert!(!shown.out.contains("customer"), "{}", shown.out);
}
