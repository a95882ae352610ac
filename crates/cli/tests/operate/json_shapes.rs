//! The fields of what commands print as JSON, and their types. Scripts of users read them, so a change is a difference from
//! `tests/golden/commands.txt`: `STEWARD_RENEW=1 cargo test --workspace --test operate json_shapes` rewrites it. Those of a frozen
//! release are still there (`tests/golden/RELEASE/commands.txt`).

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::OperatorHarness;

/// A file of workflow definitions that forecasts, tests and checks read.
const ORDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../workflows/order.yaml");
const ORDER_TEST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../workflows/order.test.yaml");
const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden");

/// Fields with content of users or services.
const CONTENT: [&str; 3] = ["input", "output", "detail"];

/// Objects whose keys are names that users choose.
const NAMED: [&str; 3] = ["steps", "agents", "sent"];

/// The lines of a JSON value: each path, and its type. A key that is a name is `*`.
fn add_fields(fields: &mut BTreeSet<String>, path: &str, value: &Value) {
    let key = path.rsplit('.').next().unwrap_or_default();
    let kind = match value {
        Value::Null => return,
        _ if CONTENT.contains(&key) => "any",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "text",
        Value::Array(items) => {
            return items.iter().for_each(|item| add_fields(fields, &format!("{path}[]"), item));
        }
        Value::Object(entries) => {
            let is_named = NAMED.contains(&key);
            return entries.iter().for_each(|(key, value)| {
                let key = if is_named { "*" } else { key };
                add_fields(fields, &format!("{path}.{key}"), value);
            });
        }
    };
    fields.insert(format!("{path}: {kind}"));
}

struct Recorder {
    harness: OperatorHarness,
    folder: TempDir,
    fields: BTreeSet<String>,
}

impl Recorder {
    /// Runs a command, and records the fields of what it prints. `name` is its name in the golden file.
    async fn record(&mut self, name: &str, args: &[&str]) {
        let output = self.harness.steward(args).await;
        let printed: Value = serde_json::from_str(&output.out)
            .unwrap_or_else(|error| panic!("{args:?}: {error}: {output:?}"));
        add_fields(&mut self.fields, name, &printed);
    }

    fn submission(&self, id: &str, workflow: &str, refuse: &str) -> String {
        let submission =
            json!({ "task_id": id, "workflow": workflow, "input": { "refuse": refuse } });
        self.file(&format!("{id}.json"), &submission.to_string())
    }

    async fn record_tasks(&mut self) {
        let (good, bad) =
            (self.submission("good", "order", ""), self.submission("bad", "order", "/charge"));
        self.record("submit", &["submit", &good, "--json"]).await;
        self.record("submit --wait", &["submit", &good, &bad, "--wait=60s", "--json"]).await;
        let taken = self.submission("good", "order", "/ship");
        self.record("submit --wait", &["submit", &taken, "--wait", "--json"]).await;
        self.record("list", &["list", "--json"]).await;
        self.record("show", &["show", "bad", "--errors", "--json"]).await;
        self.record("tenants", &["tenants", "--json"]).await;
        let since = "2020-01-01T00:00:00Z";
        let all = ["retry-all", "--workflow", "order", "--since", since, "--why", "a test"];
        self.record("retry-all", &[&all[..], &["--dry-run", "--json"]].concat()).await;
        let all = ["--workflow", "order", "--since", since, "--state", "Error", "--from", "charge"];
        let all = [&["rerun-all", "--why", "a test", "--json"], &all[..]].concat();
        self.record("rerun-all", &[&all[..], &["--dry-run"]].concat()).await;
        let rerun = ["rerun", "good", "--from", "ship", "--why", "a test", "--json"];
        self.record("rerun --dry-run", &[&rerun[..], &["--dry-run"]].concat()).await;
        self.record("rerun", &rerun).await;
        self.harness.until_state("good-rerun-1", "Processed").await;
        self.record("show", &["show", "good", "--json"]).await;
        self.record("show", &["show", "good-rerun-1", "--json"]).await;
        let undo = ["undo", "bad", "--why", "a test", "--json"];
        self.record("undo", &undo).await;
        self.harness.until_state("bad", "Undone").await;
        self.record("undo", &undo).await;
        self.record("forget", &["forget", "bad", "--why", "a test", "--json"]).await;
    }

    async fn record_queues(&mut self) {
        let unknown = self.submission("unknown", "nothing", "");
        self.harness.steward(&["submit", &unknown, "--unchecked"]).await.has(&["sent"]);
        for _ in 0..100 {
            let shown = self.harness.steward(&["dlq", "show", "steward-rejected", "--json"]).await;
            if shown.out.contains("message_id") {
                break;
            }
        }
        self.record("dlq show", &["dlq", "show", "steward-rejected", "--body", "--json"]).await;
        self.record("dlq list", &["dlq", "list", "--json"]).await;
        let redrive = ["dlq", "redrive", "steward-rejected", "--why", "a test", "--json"];
        self.record("dlq redrive", &redrive).await;
        self.record("agents", &["agents", "--json"]).await;
    }

    /// Writes a file, and returns its path.
    fn file(&self, name: &str, content: &str) -> String {
        let file = self.folder.path().join(name);
        fs::write(&file, content).unwrap();
        file.to_str().unwrap().to_owned()
    }

    async fn record_changes_of_definitions(&mut self) {
        let definition = |path| {
            let request = json!({ "path": path, "body": { "id": "${ task.id }" } });
            let a = json!({ "agent": "shop", "complete_within": "60s", "request": request });
            json!({ "name": "new", "version": 1, "steps": { "a": a } }).to_string()
        };
        let old = self.file("old.yaml", &definition("/a"));
        let new = self.file("new.yaml", &definition("/b"));
        self.record("workflow diff", &["workflow", "diff", &old, &new, "--json"]).await;
        self.record("workflow publish", &["workflow", "publish", &old, "--json"]).await;
        self.record("workflow unpublish", &["workflow", "unpublish", "new", "1", "--json"]).await;
        let machine = json!({ "StartAt": "Call", "States": {
            "Call": { "Type": "Task", "Resource": "arn:aws:states:::lambda:invoke", "Next": "Fork",
                "Parameters": { "FunctionName": "f", "Payload.$": "$" },
                "Catch": [{ "ErrorEquals": ["States.ALL"], "Next": "Refused" }] },
            "Fork": { "Type": "Choice", "Choices": [], "Default": "Call" },
            "Refused": { "Type": "Fail", "Error": "Refused" },
        } });
        let machine = self.file("machine.asl.json", &machine.to_string());
        self.record("workflow import", &["workflow", "import", &machine, "--json"]).await;
    }

    async fn record_definitions(&mut self) {
        self.record("workflow list", &["workflow", "list", "--json"]).await;
        let invalid =
            self.file("invalid.yaml", "name: a\nversion: 1\nsteps: { a: { agnet: x } }\n");
        self.record("workflow check", &["workflow", "check", "--format", "json", &invalid]).await;
        self.record("workflow check sarif", &["workflow", "check", "--format", "sarif", &invalid])
            .await;
        self.record(
            "workflow simulate",
            &["workflow", "simulate", ORDER, "--runs", "20", "--json"],
        )
        .await;
        self.record("workflow test", &["workflow", "test", ORDER_TEST, "--json"]).await;
        let failures = ["workflow", "failures", ORDER, "--cases", "40", "--json"];
        self.record("workflow failures", &failures).await;
        self.record("cost", &["cost", ORDER, "--runs", "20", "--json"]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_print_the_fields_of_the_golden_file() {
    let (harness, folder) = (OperatorHarness::start().await, TempDir::new().unwrap());
    let mut recorder = Recorder { harness, folder, fields: BTreeSet::new() };
    recorder.record_tasks().await;
    recorder.record_queues().await;
    recorder.record_definitions().await;
    recorder.record_changes_of_definitions().await;
    let Recorder { fields, .. } = recorder;
    let text = text_of(&fields);
    if let Ok(release) = env::var("STEWARD_FREEZE") {
        assert_eq!(release, env!("CARGO_PKG_VERSION"), "only the files of this release change");
        fs::write(Path::new(GOLDEN).join(release).join("commands.txt"), &text).unwrap();
    }
    let current = Path::new(GOLDEN).join("commands.txt");
    if env::var_os("STEWARD_RENEW").is_some() {
        fs::write(&current, text).unwrap();
    }
    let golden = fields_of(&fs::read_to_string(current).unwrap());
    let differences: Vec<_> = golden.symmetric_difference(&fields).collect();
    assert!(
        differences.is_empty(),
        "tests/golden/commands.txt has these fields, or lacks them: {differences:#?}\nIf that is intended, renew it: \
         STEWARD_RENEW=1, and describe what is gone in CHANGELOG.md, under Breaking changes"
    );
    for release in releases() {
        let old = fields_of(&fs::read_to_string(release.join("commands.txt")).unwrap());
        let noted = noted(release.file_name().unwrap().to_str().unwrap());
        let missing: Vec<_> =
            old.difference(&fields).map(|line| format!("{NOTED}{line}")).collect();
        let missing: Vec<_> = missing.into_iter().filter(|line| !noted.contains(line)).collect();
        assert!(
            missing.is_empty(),
            "{}: scripts read these fields, which are not printed any more:\n{}\nPrint them again, or describe the change in \
             tests/golden/migrations/ with these lines (see its README.md), and in CHANGELOG.md, under Breaking changes",
            release.display(),
            missing.join("\n")
        );
    }
}

/// The folders of the frozen releases.
fn releases() -> Vec<PathBuf> {
    let folders = Path::new(GOLDEN).read_dir().unwrap().map(|entry| entry.unwrap().path());
    folders.filter(|folder| folder.join("samples.txt").exists()).collect()
}

/// The fields as a golden file has them: a line for each object, such as `list.tasks[]: state text, task_id text`.
fn text_of(fields: &BTreeSet<String>) -> String {
    let mut objects = BTreeMap::<&str, Vec<String>>::new();
    for field in fields {
        let (path, kind) = field.rsplit_once(": ").unwrap();
        let (object, key) = path.rsplit_once('.').unwrap();
        objects.entry(object).or_default().push(format!("{key} {kind}"));
    }
    objects.iter().map(|(object, keys)| format!("{object}: {}\n", keys.join(", "))).collect()
}

/// The fields in the text of a golden file.
fn fields_of(text: &str) -> BTreeSet<String> {
    let of_line = |line: &str| -> Vec<String> {
        let (object, keys) = line.split_once(": ").unwrap();
        let field = |key: &str| {
            let (key, kind) = key.rsplit_once(' ').unwrap();
            format!("{object}.{key}: {kind}")
        };
        keys.split(", ").map(field).collect()
    };
    text.lines().flat_map(of_line).collect()
}

/// How the line of a field begins in a migration note.
const NOTED: &str = "- steward ";

/// The fields that are gone since a release, by the migration notes.
fn noted(release: &str) -> BTreeSet<String> {
    let notes = Path::new(GOLDEN).join("migrations").read_dir().unwrap();
    let texts = notes.map(|note| fs::read_to_string(note.unwrap().path()).unwrap());
    let from = format!("From: {release}");
    let of_release: Vec<_> = texts.filter(|text| text.lines().any(|line| line == from)).collect();
    let lines = of_release.iter().flat_map(|text| text.lines());
    lines.filter(|line| line.starts_with(NOTED)).map(str::to_owned).collect()
}
