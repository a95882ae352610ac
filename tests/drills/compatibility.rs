//! Golden files of each release, in `tests/golden/RELEASE/`: what older functions stored, sent and understood.
//!
//! - `moments/*.json`: tables and queues in the middle of the scenario. This release must continue each of them, and every
//!   task must end as if nothing had changed.
//! - `shape.txt`: every field and every word of the stored items, the messages, the events, and of a task as
//!   `steward show --json` prints it. A difference is a change that functions of that release meet during an upgrade or after
//!   a rollback, or scripts of its users. It needs a note in `tests/golden/migrations/`.
//! - `records.txt`: the fields that the item of a task can have, and that the scenario does not reach. They count as a part of
//!   `shape.txt`.
//! - `payload-reference.json`: a reference to a payload, as documents contain it.
//! - `interfaces/*.json`: the schemas of definitions and of workflow tests, and the HTTP interfaces. What is gone from them, or
//!   required now, counts as a part of `shape.txt`, too.
//! - `contract/*.json`: the schemas for agents and consumers of events. A change needs another version of the contract.
//!
//! `STEWARD_FREEZE=0.3.0 cargo test --workspace --test steward drills::compatibility` writes the files of a release. It
//! does so only for the version in Cargo.toml, and while CHANGELOG.md lists no unreleased changes.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use serde_json::Value;
use steward_core::{contract::ContractDocument, model::payload::PayloadReference};

use super::{
    interfaces, records,
    scenario::TASKS,
    shape::{self, Shape},
    world::{Moment, World},
};

/// How many steps lie between two copies of a run.
const COPY_EVERY: usize = 3;

/// The largest number of moments of a release: each costs a run.
const MOMENTS_MAX: usize = 10;

/// More hours than the scenario takes.
const HOURS_MAX: i64 = 6;

/// What the scenario must contain, so that the golden files do.
const COVERED: &[&str] = &[
    r#"tasks.process_state = "Pending""#,
    r#"tasks.process_state = "Processing""#,
    r#"tasks.process_state = "Processed""#,
    r#"tasks.process_state = "Undoing""#,
    r#"tasks.process_state = "Undone""#,
    r#"tasks.process_state = "Error""#,
    r#"tasks.steps.*.s = "r""#,
    r#"tasks.steps.*.s = "h""#,
    r#"tasks.steps.*.s = "e""#,
    r#"tasks.steps.*.s = "w""#,
    r#"tasks.steps.*.s = "c""#,
    r#"tasks.steps.*.s = "f""#,
    r#"tasks.steps.*.s = "k""#,
    "tasks.steps.*.p.l = text",
    "tasks.steps.*.m = bool",
    r#"tasks.steps.*.x.s = "c""#,
    "tasks.d submission.t = number",
    "tasks.d step/*/*/failure.t = number",
    "documents submission.at = number",
    "documents step/*/*/output.at = number",
    "documents step/*/*/claim.at = number",
    "documents items/*/*/*.at = number",
    "documents #agent.revision = number",
    "documents #breaker.revision = number",
    "documents #bulk.revision = number",
    "documents #correlation.revision = number",
    "documents #dead-letters.revision = number",
    "documents #history.revision = number",
    "documents #intake.revision = number",
    "documents #rate.revision = number",
    "documents #supervisor.revision = number",
    "message steward-submissions.task_id = text",
    "message steward-scheduler wake.task_id = text",
    "message steward-scheduler reply.task_id = text",
    "message steward-scheduler callback.token = text",
    "message steward-scheduler child_ended.task_id = text",
    "message steward-commands command.task_id = text",
    "message steward-agent-a.task_id = text",
    "message steward-events.key = text",
    "message client-drill.task_id = text",
    "shown.steps.*.attempt = number",
    "shown timeline[].at = text",
];

/// The golden file with a reference to a payload.
const REFERENCE: &str = "payload-reference.json";

/// A reference to a payload.
fn reference() -> PayloadReference {
    let key = "tasks/order-1@1gcmxpmo0/input/scan".to_owned().try_into().unwrap();
    let sha256 = "5e".repeat(32).parse().unwrap();
    PayloadReference::new(key, 3_145_728, sha256, "application/pdf".parse().unwrap())
}

/// A run of the scenario by this release.
struct Recording {
    shape: Shape,
    /// Few moments that contain, together, almost everything that any moment contains.
    moments: Vec<Moment>,
}

fn golden(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden").join(path)
}

/// The releases with golden files.
fn releases() -> Vec<String> {
    let entries = golden("").read_dir().unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut releases: Vec<_> =
        names.filter(|name| golden(name).join("shape.txt").exists()).collect();
    releases.sort();
    releases
}

fn shape_of(moment: &Moment) -> Shape {
    let mut shape = Shape::new();
    for (table, items) in &moment.tables {
        items.iter().for_each(|item| shape::add_item(&mut shape, table, item));
    }
    for message in &moment.messages {
        let body: Value = serde_json::from_str(&message.body).unwrap();
        shape::add_message(&mut shape, &message.queue, &body);
    }
    shape
}

/// Runs the scenario from the beginning.
async fn record() -> Recording {
    let mut world = World::new().await;
    world.submit_missing().await;
    let (mut shape, mut stored, mut candidates) = (Shape::new(), Shape::new(), Vec::new());
    for n in 0.. {
        if n % COPY_EVERY == 0 {
            let moment = world.moment().await;
            let of_moment = shape_of(&moment);
            if !of_moment.is_subset(&stored) {
                stored.extend(of_moment.iter().cloned());
                for (view, timeline) in world.shown().await {
                    shape::add(&mut shape, "shown", &view);
                    shape::add(
                        &mut shape,
                        "shown timeline",
                        &serde_json::to_value(timeline).unwrap(),
                    );
                }
                candidates.push((of_moment, moment));
            }
        }
        if world.has_ended().await {
            break;
        }
        world.step().await;
    }
    assert_eq!(world.problems, [""; 0]);
    shape.extend(stored);
    for (queue, body) in world.network.sent() {
        shape::add_message(&mut shape, &queue, &body);
    }
    for event in world.network.events() {
        let name = event["metadata"]["event"].as_str().or(event["type"].as_str());
        shape::add(&mut shape, &format!("event {}", name.unwrap_or_default()), &event);
    }
    Recording { shape, moments: cover(candidates) }
}

/// The candidate with the most new lines, again and again.
fn cover(mut candidates: Vec<(Shape, Moment)>) -> Vec<Moment> {
    let mut missing: Shape = candidates.iter().flat_map(|(shape, _)| shape.clone()).collect();
    let mut chosen = Vec::new();
    while !missing.is_empty() && chosen.len() < MOMENTS_MAX {
        let new = |shape: &Shape| shape.intersection(&missing).count();
        let best = (0..candidates.len()).max_by_key(|n| new(&candidates[*n].0)).unwrap();
        let (shape, moment) = candidates.remove(best);
        missing.retain(|line| !shape.contains(line));
        chosen.push(moment);
    }
    chosen.sort_by_key(|moment| moment.at);
    chosen
}

/// Writes the golden files of a release.
fn freeze(release: &str, recording: &Recording) {
    let changelog = std::fs::read_to_string(golden("../../CHANGELOG.md")).unwrap();
    let unreleased = changelog.split("## ").nth(1).unwrap();
    let is_next = release == env!("CARGO_PKG_VERSION") && unreleased.contains("Nothing yet.");
    assert!(
        is_next,
        "only the release that is about to be made can be frozen: {release} is not the version in Cargo.toml, or CHANGELOG.md \
         lists unreleased changes. The golden files of earlier releases stay as they are"
    );
    let folder = golden(release);
    drop(std::fs::remove_dir_all(folder.join("moments")));
    std::fs::create_dir_all(folder.join("moments")).unwrap();
    std::fs::write(folder.join(REFERENCE), format!("{:#}\n", reference().to_value())).unwrap();
    std::fs::create_dir_all(folder.join("contract")).unwrap();
    for schema in SCHEMAS {
        let text = format!("{:#}\n", schema.generate());
        std::fs::write(folder.join("contract").join(schema.file_name()), text).unwrap();
    }
    interfaces::freeze(&folder.join("interfaces"));
    let write = |file: &str, shape: &Shape| {
        let lines: String = shape.iter().map(|line| format!("{line}\n")).collect();
        std::fs::write(folder.join(file), lines).unwrap();
    };
    write("records.txt", &(&records::shape() - &recording.shape));
    write("shape.txt", &recording.shape);
    for (n, moment) in recording.moments.iter().enumerate() {
        let text = serde_json::to_string(moment).unwrap();
        // One line for each item, so that a difference can be read.
        let text = text.replace("},{", "},\n{");
        std::fs::write(folder.join("moments").join(format!("{:02}.json", n + 1)), text + "\n")
            .unwrap();
    }
}

/// The schemas that are frozen with a release.
const SCHEMAS: [ContractDocument; 3] =
    [ContractDocument::Request, ContractDocument::Reply, ContractDocument::LifecycleEvent];

/// What authors of agents and consumers of events would meet without another version: a changed schema, and within one major
/// version a field that they no longer get or suddenly have to send.
fn contract_break(schema: ContractDocument, old: &Value, new: &Value) -> Option<&'static str> {
    let version = |schema: &Value| -> Vec<u32> {
        let text = schema["version"].as_str().unwrap();
        text.split('.').map(|number| number.parse().unwrap()).collect()
    };
    let required = |schema: &Value| -> BTreeSet<String> {
        let names = schema["required"].as_array().unwrap().iter();
        names.map(|name| name.as_str().unwrap().to_owned()).collect()
    };
    let (old_version, new_version) = (version(old), version(new));
    if new_version <= old_version {
        return (old != new).then_some("it changed, and its version did not increase");
    }
    // Steward sends requests and events; agents send replies.
    let is_kept = if schema == ContractDocument::Reply {
        required(new).is_subset(&required(old))
    } else {
        required(old).is_subset(&required(new))
    };
    (old_version[0] == new_version[0] && !is_kept)
        .then_some("other fields are required, so it needs another major version")
}

/// The lines of the migration notes that explain differences from this release.
fn noted(release: &str) -> Vec<String> {
    let Ok(notes) = golden("migrations").read_dir() else { return Vec::new() };
    let mut lines = Vec::new();
    for note in notes {
        let path = note.unwrap().path();
        if path.ends_with("README.md") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        for heading in ["How to notice", "What to do"] {
            assert!(text.contains(heading), "{} has no paragraph `{heading}`", path.display());
        }
        if text.lines().any(|line| line == format!("From: {release}")) {
            // Fields of commands are held to their notes by `json_shapes`.
            let is_change = |line: &&str| {
                !line.starts_with("- steward ")
                    && (line.starts_with("- ") || line.starts_with("+ "))
            };
            let block = text.split("```diff").nth(1).and_then(|rest| rest.split("```").next());
            lines.extend(block.unwrap_or_default().lines().filter(is_change).map(str::to_owned));
        }
    }
    lines
}

/// The differences that no note explains, and notes about differences that there are not.
fn unexplained(differences: &[String], notes: &[String]) -> Vec<String> {
    let missing = differences.iter().filter(|line| !notes.contains(line));
    let stale = notes.iter().filter(|line| !differences.contains(line));
    missing.cloned().chain(stale.map(|line| format!("noted, but not found: {line}"))).collect()
}

#[tokio::test(start_paused = true)]
async fn what_this_release_stores_and_sends_is_known_to_every_earlier_release() {
    let recording = record().await;
    let missing: Vec<_> = COVERED.iter().filter(|line| !recording.shape.contains(**line)).collect();
    assert!(missing.is_empty(), "the scenario lacks {missing:#?}, of {:#?}", recording.shape);
    if let Ok(release) = std::env::var("STEWARD_FREEZE") {
        freeze(&release, &recording);
    }
    assert!(!releases().is_empty());
    let new = &recording.shape | &records::shape();
    for release in releases() {
        let lines = |file| std::fs::read_to_string(golden(&release).join(file)).unwrap();
        let texts = [lines("shape.txt"), lines("records.txt")];
        let old: Shape = texts.iter().flat_map(|text| text.lines()).map(str::to_owned).collect();
        let mut differences = shape::difference(&old, &new);
        differences.extend(interfaces::differences(&golden(&release).join("interfaces")));
        let unexplained = unexplained(&differences, &noted(&release));
        assert!(
            unexplained.is_empty(),
            "the format differs from that of release {release}:\n{}\nFunctions of both releases run side by side during an \
             upgrade. Make the change so that both can read it, and describe it in tests/golden/migrations/ (see its \
             README.md). Before {release} is released: STEWARD_FREEZE={release}.",
            unexplained.join("\n")
        );
    }
}

#[tokio::test(start_paused = true)]
async fn tasks_of_every_release_continue_from_every_moment() {
    for release in releases() {
        let mut files: Vec<_> = golden(&release)
            .join("moments")
            .read_dir()
            .unwrap()
            .map(|file| file.unwrap().path())
            .collect();
        files.sort();
        assert!(!files.is_empty(), "release {release} has no moments");
        for file in files {
            let text = std::fs::read_to_string(&file).unwrap();
            let moment: Moment = serde_json::from_str(&text).unwrap();
            let mut world = World::at(&moment).await;
            world.run_to_end(HOURS_MAX).await;
            let mut problems = world.problems.clone();
            let expected: BTreeMap<_, _> =
                TASKS.iter().map(|(id, course)| ((*id).to_owned(), course.end())).collect();
            let states = world.states().await;
            for (id, state) in &states {
                if Some(state) != expected.get(id) {
                    problems.push(format!("{id} is {state}: {}", world.error(id).await));
                }
            }
            if states.len() != expected.len() {
                problems.push(format!("there are only {:?}", states.keys()));
            }
            problems.extend(world.wrong_effects().await);
            assert!(problems.is_empty(), "{}: {problems:#?}", file.display());
        }
    }
}

#[test]
fn references_of_every_release_are_read_and_written_alike() {
    for release in releases() {
        let text = std::fs::read_to_string(golden(&release).join(REFERENCE)).unwrap();
        let stored: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(PayloadReference::of(&stored), Some(Ok(reference())), "release {release}");
        assert_eq!(reference().to_value(), stored, "release {release}");
    }
}

#[test]
fn a_change_of_the_contract_has_another_version() {
    for release in releases() {
        for schema in SCHEMAS {
            let text =
                std::fs::read_to_string(golden(&release).join("contract").join(schema.file_name()));
            let old: Value = serde_json::from_str(&text.unwrap()).unwrap();
            let problem = contract_break(schema, &old, &schema.generate());
            assert_eq!(problem, None, "{}, release {release}", schema.file_name());
        }
    }
    let reply = ContractDocument::Reply.generate();
    let changed = |version: &str, field: Option<&str>| {
        let mut changed = reply.clone();
        changed["version"] = version.into();
        changed["properties"]["cost"] = serde_json::json!({ "type": "number" });
        changed["required"].as_array_mut().unwrap().extend(field.map(Value::from));
        contract_break(ContractDocument::Reply, &reply, &changed)
    };
    let same = reply["version"].as_str().unwrap();
    assert!(changed(same, None).is_some());
    assert!(changed("2.99.0", Some("cost")).is_some());
    assert_eq!(changed("2.99.0", None), None);
    assert_eq!(changed("3.0.0", Some("cost")), None);
}

#[tokio::test(start_paused = true)]
async fn everything_that_ended_tasks_leave_expires() {
    let mut world = World::new().await;
    world.submit_missing().await;
    world.run_to_end(HOURS_MAX).await;
    let tables = world.moment().await.tables;
    let is_of_task = |item: &&Value| {
        let id = item["task_id"].as_str().unwrap();
        !id.starts_with('#') || id.starts_with("#correlation")
    };
    for (table, least) in [("steward-tasks", 2 * TASKS.len()), ("steward-documents", TASKS.len())] {
        let items: Vec<_> = tables[table].iter().filter(is_of_task).collect();
        assert!(items.len() >= least, "{table} has {} items", items.len());
        let kept: Vec<_> = items.iter().filter(|item| !item["expires_at"].is_number()).collect();
        assert!(kept.is_empty(), "{table} keeps without limit: {kept:#?}");
    }
}

#[test]
fn a_renamed_field_a_new_word_and_a_stale_note_are_found() {
    let of = |item: Value| {
        let mut shape = Shape::new();
        shape::add_item(&mut shape, "steward-tasks", &item);
        shape
    };
    let old = of(
        serde_json::json!({ "task_id": "t-1", "due": 1, "steps": { "pay": { "s": "r", "a": 1 } } }),
    );
    let renamed = of(
        serde_json::json!({ "task_id": "t-1", "due_at": 1, "steps": { "ship": { "s": "r", "a": 1 } } }),
    );
    let differences = shape::difference(&old, &renamed);
    assert_eq!(differences, ["- tasks.due = number", "+ tasks.due_at = number"]);
    let letter = of(
        serde_json::json!({ "task_id": "t-2", "due": 1, "steps": { "pay": { "s": "q", "a": 1 } } }),
    );
    let differences = shape::difference(&old, &letter);
    assert_eq!(differences, [r#"- tasks.steps.*.s = "r""#, r#"+ tasks.steps.*.s = "q""#]);
    assert_eq!(unexplained(&differences, &differences), [""; 0]);
    assert_eq!(unexplained(&differences, &differences[..1]), differences[1..]);
    assert_eq!(unexplained(&[], &differences[..1]).len(), 1);
}
