//! The list of tasks: order, filter, pages.

use axum::http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use steward_core::model::{
    document::{Document, DocumentKey},
    task::{ProcessState, Task},
};
use steward_runtime::ports::{CreateOutcome, Ports, SaveOutcome, StateStore};

use crate::test_console::{PageResponse, TestConsole};

/// A task that was submitted an hour ago, with the fields of `rest`.
pub(crate) fn task(id: &str, rest: &Value) -> Task {
    let hour_ago = (Timestamp::now() - SignedDuration::from_hours(1)).as_millisecond();
    let mut task = json!({
        "task_id": id, "workflow": "order", "v": 1, "i": hour_ago, "k": hour_ago / 1_000 + 86_400, "process_state": "Processing",
        "revision": 1, "submitted_at": hour_ago, "complete_by": hour_ago + 86_400_000,
    });
    task.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    serde_json::from_value(task).unwrap()
}

/// The time `seconds` from now, in milliseconds since the epoch.
pub(crate) fn in_seconds(seconds: i64) -> i64 {
    (Timestamp::now() + SignedDuration::from_secs(seconds)).as_millisecond()
}

impl TestConsole {
    /// Stores a task.
    pub(crate) async fn create(&self, task: &Task) {
        let (key, at) = (DocumentKey::Submission, task.submitted_at);
        let document = Document::new(key, at, json!({}));
        let created = self.ports.store().create(task, Some(&document)).await.unwrap();
        assert_eq!(created, CreateOutcome::Created);
    }
}

/// The task ids on a page, in order.
fn ids(page: &PageResponse) -> Vec<String> {
    assert_eq!(page.status, StatusCode::OK, "{}", page.text());
    let links = page.html.split("<td class=\"mono\"><a href=\"/console/tasks/").skip(1);
    let ids = links.map(|link| link.split_once("\">").unwrap().1.split_once('<').unwrap().0);
    ids.map(str::to_owned).collect()
}

/// The URL of the next page.
fn next(page: &PageResponse) -> Option<String> {
    let (before, _) = page
        .html
        .split_once("\">More</a>")
        .or(page.html.split_once("\">Continue the search</a>"))?;
    let (_, address) = before.rsplit_once("href=\"")?;
    Some(address.replace("&#38;", "&"))
}

/// The task ids on all pages, and the number of pages.
async fn all(console: &TestConsole, address: &str) -> (Vec<String>, usize) {
    let (mut found, mut pages, mut address) = (Vec::new(), 0, Some(address.to_owned()));
    while let Some(at) = address {
        let page = console.get(&at).await;
        found.extend(ids(&page));
        pages += 1;
        address = next(&page);
        assert!(pages < 50, "the list does not end");
    }
    (found, pages)
}

#[tokio::test]
async fn unfinished_tasks_come_first_by_due_time_then_ended_tasks_newest_first() {
    let console = TestConsole::new().await;
    let mut expected = Vec::new();
    // Several tasks share each time, in all shards and all final states.
    for n in 0..130_i64 {
        let due = in_seconds(600) + n / 7;
        let id = format!("due-{n:03}");
        console.create(&task(&id, &json!({ "due": due }))).await;
        expected.push((due, id));
    }
    let states = ["Processed", "Error", "Undone"].into_iter().cycle();
    let ended_at = in_seconds(-60);
    for (n, state) in (0..130_i64).zip(states) {
        let ended_at = ended_at - n / 7;
        let id = format!("ended-{n:03}");
        console.create(&task(&id, &json!({ "process_state": state, "ended_at": ended_at }))).await;
        expected.push((i64::MAX - ended_at, id));
    }
    let (found, pages) = all(&console, "/console/tasks").await;
    assert_eq!((found.len(), pages), (260, 6));
    let times: Vec<i64> =
        found.iter().map(|id| expected.iter().find(|(_, of)| of == id).unwrap().0).collect();
    assert!(times.is_sorted(), "{found:?}");
    let mut once = found.clone();
    once.sort();
    once.dedup();
    assert_eq!(once.len(), 260, "each task is listed once");
    let (errors, _) = all(&console, "/console/tasks?state=Error").await;
    let expected: Vec<_> = found.iter().filter(|id| id.starts_with("ended")).collect();
    let expected = expected.iter().filter(|id| id[6..].parse::<u32>().unwrap() % 3 == 1);
    let (mut errors, mut expected) = (errors, expected.map(|id| (*id).clone()).collect::<Vec<_>>());
    errors.sort();
    expected.sort();
    assert_eq!(errors, expected);
}

#[tokio::test]
async fn the_list_shows_states_and_errors() {
    let console = TestConsole::new().await;
    let error = "step `charge`: <declined>";
    let ended_at = in_seconds(-30);
    console
        .create(&task(
            "o-1",
            &json!({ "process_state": "Error", "ended_at": ended_at, "error": error }),
        ))
        .await;
    console.create(&task("o-2", &json!({ "due": in_seconds(45), "paused_at": ended_at }))).await;
    let page = console.get("/console/tasks").await;
    page.assert_text(&[
        "o-2 ◐ Processing paused order 1",
        "o-1 ✕ Error order 1",
        "step `charge`: &#60;declined&#62;",
        "2 shown, 2 examined.",
        "Act on all matching tasks…",
    ]);
    page.assert_absent(&["<declined>", ">More<"]);
    console.get("/console/tasks?state=Undone").await.assert_text(&["No task matches."]);
}

#[tokio::test]
async fn a_resubmitted_task_is_no_longer_in_error() {
    let console = TestConsole::new().await;
    let failed = task("o-1", &json!({ "process_state": "Error", "ended_at": in_seconds(-30) }));
    console.create(&failed).await;
    assert_eq!(ids(&console.get("/console/tasks?state=Error").await), ["o-1"]);
    let again = Task {
        revision: 2,
        process_state: ProcessState::Processing,
        ended_at: None,
        due: Some(Timestamp::now()),
        ..failed
    };
    assert_eq!(console.ports.store().save(&again).await.unwrap(), SaveOutcome::Saved);
    assert_eq!(ids(&console.get("/console/tasks?state=Error").await), [""; 0]);
    assert_eq!(ids(&console.get("/console/tasks?state=Processing").await), ["o-1"]);
}

#[tokio::test]
async fn a_filter_finds_by_workflow_step_error_and_time() {
    let console = TestConsole::new().await;
    let failed = |step: &str, error: &str| {
        let steps = json!({ step: { "s": "f", "a": 3, "f": 3 } });
        json!({ "process_state": "Error", "ended_at": in_seconds(-30), "error": error, "steps": steps })
    };
    console.create(&task("o-1", &failed("charge", "card declined"))).await;
    console.create(&task("o-2", &failed("ship", "no such street"))).await;
    let mut old = task("o-3", &failed("ship", "card declined"));
    old.submitted_at = "2026-01-02T03:04:05Z".parse().unwrap();
    console.create(&old).await;
    console.create(&task("r-1", &json!({ "workflow": "return", "due": in_seconds(9) }))).await;
    console
        .create(&task(
            "r-2",
            &json!({ "workflow": "return", "process_state": "Undone", "ended_at": in_seconds(-9) }),
        ))
        .await;
    for (query, expected) in [
        ("workflow=return", vec!["r-1", "r-2"]),
        ("step=ship&state=Error&from=2026-01-03", vec!["o-2"]),
        ("error=DECLINED&from=2026-01-03", vec!["o-1"]),
        ("from=2026-01-02T03%3A04&to=2026-01-02T03%3A05", vec!["o-3"]),
        ("step=charge&error=street", vec![]),
    ] {
        assert_eq!(
            ids(&console.get(&format!("/console/tasks?{query}")).await),
            expected,
            "{query}"
        );
    }
    // The form shows the filter, and the bulk command has the same filter.
    let page =
        console.get("/console/tasks?workflow=order&state=Error&error=a%26b&from=2026-01-03").await;
    assert!(page.html.contains("<option selected>Error</option>"), "{}", page.html);
    assert!(page.html.contains("value=\"a&#38;b\""), "{}", page.html);
    assert!(page.html.contains("value=\"2026-01-03T00:00\""), "{}", page.html);
    let page = console.get("/console/tasks?workflow=return").await;
    assert!(page.html.contains("href=\"/console/bulk?workflow=return\""), "{}", page.html);
}

#[tokio::test]
async fn a_search_has_a_limit_and_can_be_continued() {
    let console = TestConsole::new().await;
    for n in 0..1_010 {
        let due = in_seconds(600) + n;
        console.create(&task(&format!("o-{n}"), &json!({ "due": due }))).await;
    }
    console.create(&task("r-1", &json!({ "workflow": "return", "due": in_seconds(6_000) }))).await;
    let first = console.get("/console/tasks?workflow=return").await;
    first.assert_text(&["No match among the 1000 tasks examined so far.", "Continue the search"]);
    let second = console.get(&next(&first).unwrap()).await;
    assert_eq!((ids(&second), next(&second)), (vec!["r-1".to_owned()], None));
}

#[tokio::test]
async fn a_task_is_found_by_its_complete_id_only() {
    let console = TestConsole::new().await;
    console.create(&task("o-1:a", &json!({ "due": in_seconds(9) }))).await;
    let found = console.get("/console/tasks?id=+o-1:a+").await;
    assert_eq!(found.status, StatusCode::SEE_OTHER);
    for id in ["o-1", "o 1"] {
        let address = format!("/console/tasks?id={}", id.replace(' ', "%20"));
        console.get(&address).await.assert_text(&["There is no task with the id", id]);
    }
    for query in ["before=x", "state=Lost", "from=noon"] {
        let refused = console.get(&format!("/console/tasks?{query}")).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{query}");
    }
}
