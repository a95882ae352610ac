//! `steward rerun` and `steward rerun-all`.

use serde_json::{Value, json};

use crate::harness::OperatorHarness;

const WHY: [&str; 2] = ["--why", "the parcel was lost"];

async fn rerun(harness: &OperatorHarness, args: &[&str]) -> crate::harness::CommandOutput {
    harness.steward(&[&["rerun"], args, &WHY].concat()).await
}

async fn shown(harness: &OperatorHarness, task: &str) -> Value {
    let output = harness.steward(&["show", task, "--json"]).await;
    serde_json::from_str(&output.out).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_processed_task_is_run_again_once_and_the_tasks_name_each_other() {
    let harness = OperatorHarness::start().await;
    harness.submit("order", "order-1", "nothing").await;
    harness.until_state("order-1", "Processed").await;
    let preview = rerun(&harness, &["order-1", "--dry-run"]).await;
    preview.has(&[
        "order-1: would be run again as order-1-rerun-1: version 1",
        "runs reserve, charge, ship again, whose effects in the old task stay",
    ]);
    let task = harness.until_state("order-1", "Processed").await;
    assert!(task.commands.is_empty(), "a preview had an effect");

    rerun(&harness, &["order-1"])
        .await
        .has(&["order-1: rerun: done; task order-1-rerun-1 is submitted"]);
    harness.until_state("order-1-rerun-1", "Processed").await;
    assert_eq!(harness.shop.paths("order-1-rerun-1"), ["/reserve", "/charge", "/ship"]);
    let again = rerun(&harness, &["order-1"]).await;
    again.fails(&["not sent: the task was run again as order-1-rerun-1 already"]);
    let taken = rerun(&harness, &["order-1", "--id", "order-1"]).await;
    taken.fails(&["task order-1 exists already"]);
    assert_eq!(harness.shop.paths("order-1-rerun-1").len(), 3, "the repeated command ran a task");

    let old = harness.steward(&["show", "order-1"]).await;
    old.has(&["run again as order-1-rerun-1", "rerun by", "anna", "the parcel was lost"]);
    let new = harness.steward(&["show", "order-1-rerun-1"]).await;
    new.has(&["rerun of order-1\n", "submitted as a rerun of order-1"]);
    assert_eq!(shown(&harness, "order-1").await["reruns"], json!(["order-1-rerun-1"]));
    assert_eq!(shown(&harness, "order-1-rerun-1").await["rerun_of"], "order-1");
    rerun(&harness, &["order-1", "--id", "order-1b"]).await.has(&["task order-1b is submitted"]);
    harness.until_state("order-1b", "Processed").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rerun_from_a_step_keeps_outputs_and_never_undoes_the_kept_effects() {
    let harness = OperatorHarness::start().await;
    harness.submit("order", "order-1", "nothing").await;
    harness.until_state("order-1", "Processed").await;
    let output = rerun(&harness, &["order-1", "--from", "ship"]).await;
    output.has(&["order-1: rerun from ship: done; task order-1-rerun-1 is submitted"]);
    harness.until_state("order-1-rerun-1", "Processed").await;
    let calls = harness.shop.calls("order-1-rerun-1");
    assert_eq!(calls.len(), 1, "a kept service was called again: {calls:?}");
    assert_eq!((calls[0].path.as_str(), &calls[0].body["receipt"]), ("/ship", &"/charge".into()));
    harness.steward(&["show", "order-1-rerun-1"]).await.has(&[
        "rerun of order-1, whose outputs it keeps of charge, reserve",
        "charge skipped, reserve skipped, ship completed",
    ]);

    let undo = ["undo", "order-1-rerun-1", "--why", "a test"];
    harness.steward(&undo).await.has(&["done; Undone"]);
    assert_eq!(harness.shop.paths("order-1-rerun-1"), ["/ship"], "a kept effect was undone");
    harness.steward(&["undo", "order-1", "--why", "a test"]).await.has(&["done"]);
    harness.until_state("order-1", "Undone").await;
    let paths = harness.shop.paths("order-1");
    assert_eq!(paths, ["/reserve", "/charge", "/ship", "/refund", "/release"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_task_and_undone_outputs_are_refused() {
    let harness = OperatorHarness::start().await;
    harness.shop.hold(true);
    harness.submit("order", "order-1", "nothing").await;
    harness.until_called("order-1", "/reserve").await;
    let running = rerun(&harness, &["order-1"]).await;
    running
        .fails(&["order-1: rerun: not sent: the task is Processing: only a task that has ended"]);
    harness.shop.hold(false);
    harness.until_state("order-1", "Processed").await;
    harness.steward(&["undo", "order-1", "--why", "a test"]).await.has(&["done"]);
    harness.until_state("order-1", "Undone").await;
    let kept = rerun(&harness, &["order-1", "--from", "ship"]).await;
    kept.fails(&["was undone, so that its output cannot be kept"]);
    rerun(&harness, &["order-1"]).await.has(&["task order-1-rerun-1 is submitted"]);
    harness.until_state("order-1-rerun-1", "Processed").await;
    rerun(&harness, &["nothing"]).await.fails(&["task `nothing` does not exist"]);
    rerun(&harness, &["order-1", "--id", "x", "--version", "7"])
        .await
        .fails(&["no such published version"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_input_of_a_rerun_fits_the_version_that_it_runs() {
    let harness = OperatorHarness::start().await;
    harness.submit("strict", "strict-1", "nothing").await;
    harness.until_state("strict-1", "Processed").await;
    let file = tempfile::NamedTempFile::with_suffix(".yaml").unwrap();
    let input = json!({ "type": "object", "required": ["amount"] });
    let steps = json!({ "rest": { "wait": "1s" } });
    let workflow = json!({ "name": "strict", "version": 2, "input": input, "steps": steps });
    std::fs::write(file.path(), workflow.to_string()).unwrap();
    let publish = ["workflow", "publish", file.path().to_str().unwrap()];
    harness.steward(&publish).await.has(&["version 2: published"]);
    rerun(&harness, &["strict-1"]).await.fails(&["not sent: input", "amount"]);
    let old = rerun(&harness, &["strict-1", "--version", "1"]).await;
    old.has(&["rerun with version 1: done"]);
    let new = harness.until_state("strict-1-rerun-1", "Processed").await;
    assert_eq!(new.version, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_tasks_that_failed_at_a_step_are_run_again_after_a_preview() {
    let harness = OperatorHarness::start().await;
    harness.shop.refuse_all(Some("/ship"));
    for task in ["order-1", "order-2", "order-3"] {
        harness.submit("order", task, "nothing").await;
        harness.until_state(task, "Error").await;
    }
    harness.submit("order", "typo", "/charge").await;
    harness.until_state("typo", "Error").await;
    harness.shop.refuse_all(None);
    rerun(&harness, &["order-3"]).await.has(&["done"]);
    harness.until_state("order-3-rerun-1", "Processed").await;
    let choice = ["--workflow", "order", "--since", "2h", "--state", "Error", "--from", "ship"];
    let all = async |more: &[&str]| {
        harness.steward(&[&["rerun-all"], &choice[..], &WHY, more].concat()).await
    };
    all(&["--dry-run"]).await.has(&[
        "order-1-rerun-1 ┆ version 1; keeps charge, reserve",
        "not sent: step charge is failed",
        "would be run again: 2 of 3",
    ]);
    let task = harness.until_state("order-1", "Error").await;
    assert!(task.commands.is_empty(), "a preview had an effect");
    let ships = ["--reason-contains", "step ship"];
    all(&ships).await.has(&["run again: 2 of 2"]);
    for task in ["order-1-rerun-1", "order-2-rerun-1"] {
        harness.until_state(task, "Processed").await;
        assert_eq!(harness.shop.paths(task), ["/ship"]);
    }
    // A rerun settles the Error of its task.
    all(&ships).await.has(&["no matching task"]);
}
