//! The list of tasks: which there are, in which order, page by page.

use axum::http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use steward_core::model::{
    document::{Document, DocumentKey},
    task::{ProcessState, Task},
};
use steward_runtime::ports::{Created, Ports, Saved, StateStore};

use crate::world::{Page, World};

/// A task that was submitted an hour ago; `rest` says what is special about it.
pub(crate) fn task(id: &str, rest: &Value) -> Task {
    let hour_ago = (Timestamp::now() - SignedDuration::from_hours(1)).as_millisecond();
    let mut task = json!({
        "task_id": id, "workflow": "order", "version": 1, "process_state": "Processing",
        "revision": 1, "submitted_at": hour_ago, "complete_by": hour_ago + 86_400_000,
    });
    task.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    serde_json::from_value(task).unwrap()
}

/// Milliseconds since the epoch, so many seconds from now.
pub(crate) fn in_seconds(seconds: i64) -> i64 {
    (Timestamp::now() + SignedDuration::from_secs(seconds)).as_millisecond()
}

impl World {
    pub(crate) async fn create(&self, task: &Task) {
        let (key, at) = (DocumentKey::Submission, task.submitted_at);
        let document = Document::new(key, at, json!({}));
        let created = self.ports.store().create(task, &document).await.unwrap();
        assert_eq!(created, Created::Created);
    }
}

/// The ids on a page, in their order.
fn ids(page: &Page) -> Vec<String> {
    assert_eq!(page.status, StatusCode::OK, "{}", page.text());
    let links = page.html.split("<td class=\"mono\"><a href=\"/console/tasks/").skip(1);
    let ids = links.map(|link| link.split_once("\">").unwrap().1.split_once('<').unwrap().0);
    ids.map(str::to_owned).collect()
}

/// Where the list goes on.
fn next(page: &Page) -> Option<String> {
    let (before, _) =
        page.html.split_once("\">More</a>").or(page.html.split_once("\">Look further</a>"))?;
    let (_, address) = before.rsplit_once("href=\"")?;
    Some(address.replace("&#38;", "&"))
}

/// The ids of all pages, and how many pages there are.
async fn all(world: &World, address: &str) -> (Vec<String>, usize) {
    let (mut found, mut pages, mut address) = (Vec::new(), 0, Some(address.to_owned()));
    while let Some(at) = address {
        let page = world.get(&at).await;
        found.extend(ids(&page));
        pages += 1;
        address = next(&page);
        assert!(pages < 50, "it never ends");
    }
    (found, pages)
}

#[tokio::test]
async fn unfinished_tasks_come_first_by_when_they_are_due_then_ended_ones_newest_first() {
    let world = World::new().await;
    let mut expected = Vec::new();
    // Moments that several share, over all shards and all ways to end.
    for n in 0..130_i64 {
        let due = in_seconds(600) + n / 7;
        let id = format!("due-{n:03}");
        world.create(&task(&id, &json!({ "due": due }))).await;
        expected.push((due, id));
    }
    let states = ["Processed", "Error", "Undone"].into_iter().cycle();
    let ended_at = in_seconds(-60);
    for (n, state) in (0..130_i64).zip(states) {
        let ended_at = ended_at - n / 7;
        let id = format!("ended-{n:03}");
        world.create(&task(&id, &json!({ "process_state": state, "ended_at": ended_at }))).await;
        expected.push((i64::MAX - ended_at, id));
    }
    let (found, pages) = all(&world, "/console/tasks").await;
    assert_eq!((found.len(), pages), (260, 6));
    let times: Vec<i64> =
        found.iter().map(|id| expected.iter().find(|(_, of)| of == id).unwrap().0).collect();
    assert!(times.is_sorted(), "{found:?}");
    let mut once = found.clone();
    once.sort();
    once.dedup();
    assert_eq!(once.len(), 260, "each is shown once");
    let (errors, _) = all(&world, "/console/tasks?state=Error").await;
    let expected: Vec<_> = found.iter().filter(|id| id.starts_with("ended")).collect();
    let expected = expected.iter().filter(|id| id[6..].parse::<u32>().unwrap() % 3 == 1);
    let (mut errors, mut expected) = (errors, expected.map(|id| (*id).clone()).collect::<Vec<_>>());
    errors.sort();
    expected.sort();
    assert_eq!(errors, expected);
}

#[tokio::test]
async fn a_list_says_where_tasks_stand_and_why() {
    let world = World::new().await;
    let error = "step `charge`: <declined>";
    let ended_at = in_seconds(-30);
    world
        .create(&task(
            "o-1",
            &json!({ "process_state": "Error", "ended_at": ended_at, "error": error }),
        ))
        .await;
    world.create(&task("o-2", &json!({ "due": in_seconds(45), "paused_at": ended_at }))).await;
    let page = world.get("/console/tasks").await;
    page.says(&[
        "o-2 ◐ Processing paused order 1",
        "o-1 ✕ Error order 1",
        "step `charge`: &#60;declined&#62;",
        "2 shown, 2 looked at.",
        "Act on all that match…",
    ]);
    page.has_no(&["<declined>", ">More<"]);
    world.get("/console/tasks?state=Undone").await.says(&["No task matches."]);
}

#[tokio::test]
async fn what_is_resubmitted_is_in_error_no_more() {
    let world = World::new().await;
    let failed = task("o-1", &json!({ "process_state": "Error", "ended_at": in_seconds(-30) }));
    world.create(&failed).await;
    assert_eq!(ids(&world.get("/console/tasks?state=Error").await), ["o-1"]);
    let again = Task {
        revision: 2,
        process_state: ProcessState::Processing,
        ended_at: None,
        due: Some(Timestamp::now()),
        ..failed
    };
    assert_eq!(world.ports.store().save(&again).await.unwrap(), Saved::Saved);
    assert_eq!(ids(&world.get("/console/tasks?state=Error").await), [""; 0]);
    assert_eq!(ids(&world.get("/console/tasks?state=Processing").await), ["o-1"]);
}

#[tokio::test]
async fn a_filter_finds_by_workflow_step_error_and_time() {
    let world = World::new().await;
    let failed = |step: &str, said: &str| {
        let steps = json!({ step: { "s": "f", "a": 3, "f": 3 } });
        json!({ "process_state": "Error", "ended_at": in_seconds(-30), "error": said, "steps": steps })
    };
    world.create(&task("o-1", &failed("charge", "card declined"))).await;
    world.create(&task("o-2", &failed("ship", "no such street"))).await;
    let mut old = task("o-3", &failed("ship", "card declined"));
    old.submitted_at = "2026-01-02T03:04:05Z".parse().unwrap();
    world.create(&old).await;
    world.create(&task("r-1", &json!({ "workflow": "return", "due": in_seconds(9) }))).await;
    world
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
        assert_eq!(ids(&world.get(&format!("/console/tasks?{query}")).await), expected, "{query}");
    }
    // The form says what was asked for, and an order to many is given to the same.
    let page =
        world.get("/console/tasks?workflow=order&state=Error&error=a%26b&from=2026-01-03").await;
    assert!(page.html.contains("<option selected>Error</option>"), "{}", page.html);
    assert!(page.html.contains("value=\"a&#38;b\""), "{}", page.html);
    assert!(page.html.contains("value=\"2026-01-03T00:00\""), "{}", page.html);
    let page = world.get("/console/tasks?workflow=return").await;
    assert!(page.html.contains("href=\"/console/bulk?workflow=return\""), "{}", page.html);
}

#[tokio::test]
async fn a_search_has_a_limit_and_goes_on_from_there() {
    let world = World::new().await;
    for n in 0..1_010 {
        let due = in_seconds(600) + n;
        world.create(&task(&format!("o-{n}"), &json!({ "due": due }))).await;
    }
    world.create(&task("r-1", &json!({ "workflow": "return", "due": in_seconds(6_000) }))).await;
    let first = world.get("/console/tasks?workflow=return").await;
    first.says(&["None among the 1000 tasks looked at so far.", "Look further"]);
    let second = world.get(&next(&first).unwrap()).await;
    assert_eq!((ids(&second), next(&second)), (vec!["r-1".to_owned()], None));
}

#[tokio::test]
async fn a_task_is_found_by_its_whole_id_and_only_by_that() {
    let world = World::new().await;
    world.create(&task("o-1:a", &json!({ "due": in_seconds(9) }))).await;
    let found = world.get("/console/tasks?id=+o-1:a+").await;
    assert_eq!(found.status, StatusCode::SEE_OTHER);
    for id in ["o-1", "o 1"] {
        let address = format!("/console/tasks?id={}", id.replace(' ', "%20"));
        world.get(&address).await.says(&["No task has the id", id]);
    }
    for query in ["before=x", "state=Lost", "from=noon"] {
        let refused = world.get(&format!("/console/tasks?{query}")).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{query}");
    }
}
