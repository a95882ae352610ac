//! Golden files: what this state stores, sends and publishes, and what the functions of each release did.
//!
//! - `tests/golden/samples.txt` has a [sample](super::samples) of each kind of what this state writes. A change of a stored format, a
//!   message, an event or a metric is a difference. `STEWARD_RENEW=1 cargo test --workspace --test steward drills::compatibility`
//!   rewrites the file: commit it with the change that causes the difference.
//! - `tests/golden/RELEASE/` has the [formats of a release](super::release). This state must continue the tasks of each of its
//!   moments, and every task must end as if nothing had changed. A difference is a change that functions of that release meet
//!   during an upgrade or after a rollback, or scripts of its users. It needs a note in `tests/golden/migrations/`.
//!
//! `STEWARD_FREEZE=0.3.0 cargo test --workspace --test steward drills::compatibility` writes the files of a release. It
//! does so only for the version in Cargo.toml, and while CHANGELOG.md lists no unreleased changes. While no release is frozen, the
//! tests below write this state into a temporary folder, and read it as they would read a release.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use metrics_util::debugging::DebuggingRecorder;
use serde_json::{Value, json};
use steward_core::model::payload::PayloadReference;
use tokio::sync::OnceCell;

use super::{
    records,
    release::Release,
    samples::Samples,
    scenario::TASKS,
    shape::{self, Shape},
    world::{Moment, World},
};

/// How many steps lie between two copies of a run.
const COPY_EVERY: usize = 3;

/// The largest number of moments of a release: each costs a run.
const MOMENTS_MAX: usize = 6;

/// The largest number of lines of the files of a release.
const LINES_MAX: usize = 1_500;

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

/// The place of a reference to a payload among the samples.
const REFERENCE: &str = "payload reference";

/// A reference to a payload.
fn reference() -> PayloadReference {
    let key = "tasks/order-1@1gcmxpmo0/input/scan".to_owned().try_into().unwrap();
    let sha256 = "5e".repeat(32).parse().unwrap();
    PayloadReference::new(key, 3_145_728, sha256, "application/pdf".parse().unwrap())
}

fn golden() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden")
}

/// The formats of the frozen releases, by name, and of this state as if it were frozen.
async fn releases() -> BTreeMap<String, Release> {
    let folders = golden().read_dir().unwrap().map(|entry| entry.unwrap().path());
    let frozen = folders.filter(|folder| folder.join("samples.txt").exists());
    let release = |folder: PathBuf| {
        (folder.file_name().unwrap().to_str().unwrap().to_owned(), Release::read(&folder))
    };
    let mut releases: BTreeMap<_, _> = frozen.map(release).collect();
    let folder = tempfile::tempdir().unwrap();
    current().await.write(folder.path());
    releases.insert("of this state".to_owned(), Release::read(folder.path()));
    releases
}

/// The formats of this state.
async fn current() -> &'static Release {
    static CURRENT: OnceCell<Release> = OnceCell::const_new();
    CURRENT.get_or_init(|| Box::pin(record())).await
}

fn samples_of(moment: &Moment) -> Samples {
    let mut samples = Samples::default();
    for (table, items) in &moment.tables {
        items.iter().for_each(|item| samples.add_item(table, item));
    }
    for message in &moment.messages {
        samples.add_message(&message.queue, &serde_json::from_str(&message.body).unwrap());
    }
    samples
}

/// Runs the scenario from the beginning.
async fn record() -> Release {
    let recorder = DebuggingRecorder::new();
    let _metrics = metrics::set_default_local_recorder(&recorder);
    let mut world = World::new().await;
    world.submit_missing().await;
    let (mut samples, mut stored, mut candidates) = (Samples::default(), Shape::new(), Vec::new());
    for n in 0.. {
        if n % COPY_EVERY == 0 {
            let moment = world.moment().await;
            let of_moment = samples_of(&moment);
            let shape = of_moment.shape();
            samples.extend(&of_moment);
            if !shape.is_subset(&stored) {
                stored.extend(shape.iter().cloned());
                for (view, timeline) in world.shown().await {
                    samples.add("shown", &view);
                    samples.add("shown timeline", &serde_json::to_value(timeline).unwrap());
                }
                candidates.push((shape, moment));
            }
        }
        if world.has_ended().await {
            break;
        }
        world.step().await;
    }
    assert_eq!(world.problems, [""; 0]);
    for (queue, body) in world.network.sent() {
        samples.add_message(&queue, &body);
    }
    for (operation, request) in world.network.writes() {
        samples.add_write(&operation, &request);
    }
    for event in world.network.events() {
        let name = event["metadata"]["event"].as_str().or(event["type"].as_str());
        samples.add(&format!("event {}", name.unwrap_or_default()), &event);
    }
    for (key, ..) in recorder.snapshotter().snapshot().into_vec() {
        let labels = key.key().labels().map(|label| (label.key().to_owned(), json!(label.value())));
        samples.add(&format!("metric {}", key.key().name()), &labels.collect());
    }
    samples.add_item("steward-tasks", &records::item());
    samples.add(REFERENCE, &reference().to_value());
    Release::current(samples, cover(candidates))
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
fn freeze(release: &str, current: &Release) {
    let changelog = std::fs::read_to_string(golden().join("../../CHANGELOG.md")).unwrap();
    let unreleased = changelog.split("## ").nth(1).unwrap();
    let is_next = release == env!("CARGO_PKG_VERSION") && unreleased.contains("Nothing yet.");
    assert!(
        is_next,
        "only the release that is about to be made can be frozen: {release} is not the version in Cargo.toml, or CHANGELOG.md \
         lists unreleased changes. The golden files of earlier releases stay as they are"
    );
    current.write(&golden().join(release));
}

/// The number of lines of all files in a folder.
fn line_count(folder: &Path) -> usize {
    let of = |path: PathBuf| match path.is_dir() {
        true => line_count(&path),
        false => std::fs::read_to_string(path).unwrap().lines().count(),
    };
    folder.read_dir().unwrap().map(|entry| of(entry.unwrap().path())).sum()
}

/// The lines of the migration notes that explain differences from this release.
fn noted(release: &str) -> Vec<String> {
    let Ok(notes) = golden().join("migrations").read_dir() else { return Vec::new() };
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
async fn what_is_written_and_sent_is_as_the_golden_samples_say() {
    let current = current().await;
    let shape = current.samples.shape();
    let missing: Vec<_> = COVERED.iter().filter(|line| !shape.contains(**line)).collect();
    assert!(missing.is_empty(), "the scenario lacks {missing:#?}, of {shape:#?}");
    let (file, found) = (golden().join("samples.txt"), current.samples.lines());
    if std::env::var_os("STEWARD_RENEW").is_some() {
        let text: String = found.iter().map(|line| format!("{line}\n")).collect();
        std::fs::write(file, text).unwrap();
        return;
    }
    let golden: BTreeSet<_> =
        std::fs::read_to_string(file).unwrap().lines().map(str::to_owned).collect();
    let differences = shape::difference(&golden, &found);
    assert!(
        differences.is_empty(),
        "tests/golden/samples.txt differs:\n{}\nIf that is intended, renew it: STEWARD_RENEW=1",
        differences.join("\n")
    );
}

#[tokio::test(start_paused = true)]
async fn what_this_state_stores_and_sends_is_known_to_every_release() {
    let current = current().await;
    if let Ok(release) = std::env::var("STEWARD_FREEZE") {
        freeze(&release, current);
    }
    for (name, release) in releases().await {
        let unexplained = unexplained(&release.differences(current), &noted(&name));
        assert!(
            unexplained.is_empty(),
            "the format differs from that of release {name}:\n{}\nFunctions of both releases run side by side during an \
             upgrade. Make the change so that both can read it, and describe it in tests/golden/migrations/ (see its \
             README.md). Before {name} is released: STEWARD_FREEZE={name}.",
            unexplained.join("\n")
        );
        assert_eq!(release.contract_breaks(current), [""; 0], "release {name}");
        let [stored] = &release.samples.at(REFERENCE)[..] else { panic!("release {name}") };
        assert_eq!(PayloadReference::of(stored), Some(Ok(reference())), "release {name}");
        assert_eq!(reference().to_value(), *stored, "release {name}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_files_of_a_release_are_compact() {
    let folder = tempfile::tempdir().unwrap();
    current().await.write(folder.path());
    let commands = std::fs::read_to_string(golden().join("commands.txt")).unwrap();
    let lines = line_count(folder.path()) + commands.lines().count();
    assert!(lines <= LINES_MAX, "{lines} lines");
}

#[tokio::test(start_paused = true)]
async fn tasks_of_every_release_continue_from_every_moment() {
    let expected: BTreeMap<_, _> =
        TASKS.iter().map(|(id, course)| ((*id).to_owned(), course.end())).collect();
    for (name, release) in releases().await {
        assert!(!release.moments.is_empty(), "release {name} has no moments");
        for moment in release.moments {
            let mut world = World::at(&moment).await;
            world.run_to_end(HOURS_MAX).await;
            let mut problems = world.problems.clone();
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
            assert!(problems.is_empty(), "release {name}, {}: {problems:#?}", moment.at);
        }
    }
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
        // Nobody has settled an Error.
        let is_error = |item: &Value| item["process_state"] == "Error";
        let kept = items.iter().filter(|item| !item["expires_at"].is_number() && !is_error(item));
        let kept: Vec<_> = kept.collect();
        assert!(kept.is_empty(), "{table} keeps without limit: {kept:#?}");
    }
}

#[test]
fn a_renamed_field_a_new_word_and_a_stale_note_are_found() {
    let of = |item: Value| {
        let mut samples = Samples::default();
        samples.add_item("steward-tasks", &item);
        samples.shape()
    };
    let old = of(json!({ "task_id": "t-1", "due": 1, "steps": { "pay": { "s": "r", "a": 1 } } }));
    let renamed =
        json!({ "task_id": "t-1", "due_at": 1, "steps": { "ship": { "s": "r", "a": 1 } } });
    let differences = shape::difference(&old, &of(renamed));
    assert_eq!(differences, ["- tasks.due = number", "+ tasks.due_at = number"]);
    let letter = json!({ "task_id": "t-2", "due": 1, "steps": { "pay": { "s": "q", "a": 1 } } });
    let differences = shape::difference(&old, &of(letter));
    assert_eq!(differences, [r#"- tasks.steps.*.s = "r""#, r#"+ tasks.steps.*.s = "q""#]);
    assert_eq!(unexplained(&differences, &differences), [""; 0]);
    assert_eq!(unexplained(&differences, &differences[..1]), differences[1..]);
    assert_eq!(unexplained(&[], &differences[..1]).len(), 1);
}

#[test]
fn samples_are_few_and_have_no_order() {
    let messages = [json!({ "b": 1, "a": [{ "x": 1 }] }), json!({ "a": [{ "x": 2 }], "b": 2 })];
    let lines = |messages: &[Value]| {
        let mut samples = Samples::default();
        messages.iter().for_each(|message| samples.add_message("q", message));
        samples.lines().into_iter().collect::<Vec<_>>()
    };
    let expected = [r#"message q = {"a":[],"b":1}"#, r#"message q.a[] = {"x":1}"#];
    assert_eq!(lines(&messages), expected);
    let [first, second] = messages;
    assert_eq!(lines(&[second, first]), expected);
}
