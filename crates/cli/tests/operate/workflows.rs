//! `steward workflow`: publishing, listing, comparing and drawing definitions.

use std::path::Path;

use serde_json::{Value, json};

use crate::harness::OperatorHarness;

/// Writes a definition with one step and an optional trigger. Returns the path of the file.
fn write(dir: &Path, version: u32, trigger: Value, step: Value) -> String {
    let mut definition = json!({
        "name": "parcel", "version": version, "complete_within": "10m", "steps": { "pack": step },
    });
    if !trigger.is_null() {
        definition["trigger"] = trigger;
    }
    let path = dir.join(format!("parcel-{version}.json"));
    std::fs::write(&path, definition.to_string()).unwrap();
    path.to_str().unwrap().to_owned()
}

fn pack(path: &str) -> Value {
    let body = json!({ "order": "${ task.id }" });
    json!({ "agent": "shop", "request": { "path": path, "body": body } })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn publication_warns_of_an_agent_without_a_queue() {
    let harness = OperatorHarness::start().await;
    let dir = tempfile::tempdir().unwrap();
    let mut step = pack("/packs");
    step["agent"] = json!("warehouse");
    let missing = write(dir.path(), 1, Value::Null, step);
    let output = harness.steward(&["workflow", "publish", &missing]).await;
    output.has(&["parcel version 1: published"]);
    let warning = "warning: parcel: agent `warehouse` has no queue `steward-agent-warehouse`";
    assert!(output.err.contains(warning), "{}", output.err);

    harness.submit("parcel", "p-1", "nothing").await;
    let task = harness.until_state("p-1", "Error").await;
    assert_eq!(task.error.as_deref(), Some("step pack: agent `warehouse` has no queue"));
    let known = write(dir.path(), 2, Value::Null, pack("/packs"));
    let output = harness.steward(&["workflow", "publish", &known]).await;
    assert_eq!((output.ok, output.err.as_str()), (true, ""));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deadlines_that_may_be_too_short_are_a_warning_and_impossible_ones_an_error() {
    let harness = OperatorHarness::start().await;
    let dir = tempfile::tempdir().unwrap();
    let mut step = pack("/packs");
    step["complete_within"] = json!("5m");
    let risky = write(dir.path(), 1, Value::Null, step);
    let warning =
        "warning: steps.pack.recovery: attempts, pauses and extended waits take up to 15m 3s";
    for command in ["check", "publish"] {
        let output = harness.steward(&["workflow", command, &risky]).await;
        assert!(output.ok && output.err.contains(warning), "{output:?}");
    }
    let impossible = write(dir.path(), 2, Value::Null, json!({ "wait": "20d" }));
    for command in ["check", "publish"] {
        let output = harness.steward(&["workflow", command, &impossible]).await;
        output.fails(&["steps.pack.wait: longer than the task's `complete_within` of 10m"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn versions_are_published_listed_shown_and_unpublished() {
    let harness = OperatorHarness::start().await;
    let dir = tempfile::tempdir().unwrap();
    let placed = json!({ "source": "shop", "detail_type": "Order Placed" });
    let first = write(dir.path(), 1, Value::Null, pack("/packs"));
    let second = write(dir.path(), 2, placed, pack("/packs"));
    let output = harness.steward(&["workflow", "publish", &first, &second]).await;
    output.has(&["parcel version 1: published", "parcel version 2: published"]);
    let listed = harness.steward(&["workflow", "list"]).await;
    listed.has(&["order", "parcel", "1, 2", "shop: Order Placed"]);
    let listed = harness.steward(&["workflow", "list", "--json"]).await;
    let listed: Value = serde_json::from_str(&listed.out).unwrap();
    let names = listed.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap());
    assert_eq!(names.collect::<Vec<_>>(), ["approval", "order", "parcel", "return", "strict"]);
    assert_eq!((&listed[2]["newest"], &listed[2]["published"]), (&json!(2), &json!([1, 2])));

    let shown = harness.steward(&["workflow", "show", "parcel", "--version", "1"]).await;
    shown.has(&["# parcel version 1, published", "name: parcel", "path: /packs"]);
    assert!(!shown.out.contains("Order Placed"), "{}", shown.out);
    let again = dir.path().join("shown.yaml");
    std::fs::write(&again, &shown.out).unwrap();
    let again = again.to_str().unwrap();
    let published = harness.steward(&["workflow", "publish", "--json", again]).await;
    let published: Value = serde_json::from_str(&published.out).unwrap();
    assert_eq!(published, json!([{ "workflow": "parcel", "version": 1 }]));
    harness.steward(&["workflow", "show", "parcel", "--json"]).await.has(&["\"version\": 2"]);

    harness.shop.hold(true);
    harness.submit("parcel", "p-1", "nothing").await;
    harness.until_called("p-1", "/packs").await;
    let unpublish =
        async |version: &str| harness.steward(&["workflow", "unpublish", "parcel", version]).await;
    let refused = unpublish("2").await;
    refused.fails(&["cannot unpublish workflow `parcel` version 2: 1 of its tasks is neither Processed nor Undone: p-1"]);
    harness.shop.hold(false);
    harness.until_state("p-1", "Processed").await;
    unpublish("2")
        .await
        .has(&["parcel version 2: unpublished; the newest published version is now 1"]);
    let json = ["workflow", "unpublish", "parcel", "1", "--json"];
    let unpublished: Value = serde_json::from_str(&harness.steward(&json).await.out).unwrap();
    assert_eq!(unpublished, json!({ "workflow": "parcel", "version": 1, "newest": null }));
    unpublish("1").await.has(&["parcel version 1: unpublished; no published version is left"]);
    unpublish("3").await.fails(&["there is no workflow `parcel` version 3"]);
    let shown = harness.steward(&["workflow", "show", "parcel"]).await;
    shown.has(&["# parcel version 2, unpublished"]);
    let show = ["workflow", "show", "parcel", "--version", "7"];
    harness
        .steward(&show)
        .await
        .fails(&["workflow `parcel` has no version 7; stored versions: 1, 2"]);
    let none = harness.steward(&["workflow", "show", "nothing"]).await;
    none.fails(&["there is no workflow `nothing`"]);

    let roll_back =
        async |to: &str| harness.steward(&["workflow", "rollback", "parcel", "--to", to]).await;
    roll_back("2").await.fails(&["version 2 is the newest of workflow `parcel`"]);
    roll_back("9").await.fails(&["there is no workflow `parcel` version 9"]);
    roll_back("1").await.has(&["parcel version 3: published, with the content of version 1"]);
    let shown = harness.steward(&["workflow", "show", "parcel"]).await;
    shown.has(&["# parcel version 3, published", "path: /packs"]);
    assert!(!shown.out.contains("Order Placed"), "{}", shown.out);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn diff_prints_changes_and_a_risky_change_is_an_error() {
    let harness = OperatorHarness::start().await;
    let dir = tempfile::tempdir().unwrap();
    let first = write(dir.path(), 1, Value::Null, pack("/packs"));
    let mut undone = pack("/packs");
    undone["undo"] = json!({ "request": { "path": "/unpacks" } });
    let safe = write(dir.path(), 2, Value::Null, undone);
    let risky = write(dir.path(), 3, Value::Null, pack("/other"));
    harness.steward(&["workflow", "publish", &first]).await.has(&["published"]);
    for old in [first.as_str(), "parcel", "parcel@1"] {
        let output = harness.steward(&["workflow", "diff", old, &safe]).await;
        output.has(&["steps.pack.undo", "added", "the changes apply to new tasks only"]);
        let output = harness.steward(&["workflow", "diff", old, &risky]).await;
        output.fails(&["error: 1 risky change"]);
        assert!(output.out.contains("steps.pack.request.path"), "{}", output.out);
    }
    harness.steward(&["workflow", "diff", &safe, "parcel"]).await.fails(&["2 risky changes"]);
    harness.steward(&["workflow", "diff", &first, "parcel"]).await.has(&["no changes"]);
    let output = harness.steward(&["workflow", "diff", &first, &safe, "--json"]).await;
    let output: Value = serde_json::from_str(&output.out).unwrap();
    assert_eq!((&output[1]["at"], &output[1]["safe"]), (&json!("steps.pack.undo"), &json!(true)));
    let missing = harness.steward(&["workflow", "diff", "parcel@9", &first]).await;
    missing.fails(&["workflow `parcel` has no version 9; stored versions: 1"]);
    harness.steward(&["workflow", "diff", "./none.yaml", &first]).await.fails(&["./none.yaml"]);
    harness
        .steward(&["workflow", "diff", "parcel@x", &first])
        .await
        .fails(&["`parcel@x`: the version is not a number"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_definition_is_drawn_to_standard_output_or_to_a_file() {
    let harness = OperatorHarness::start().await;
    let dir = tempfile::tempdir().unwrap();
    let file = write(dir.path(), 1, Value::Null, pack("/packs"));
    let drawn = harness.steward(&["workflow", "graph", &file]).await;
    drawn.has(&["flowchart TD", "step_pack[\"pack<br/>shop: POST /packs\"]"]);
    let picture = dir.path().join("parcel.svg");
    let args = ["workflow", "graph", &file, "--format", "svg", "-o", picture.to_str().unwrap()];
    harness.steward(&args).await.has(&[]);
    let picture = std::fs::read_to_string(picture).unwrap();
    assert!(picture.starts_with("<svg ") && picture.contains(">pack</text>"), "{picture}");
}
