//! One order for many tasks, with everything running behind the pages.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use aws_sdk_sqs::types::QueueAttributeName;
use axum::{Json, Router, extract::State, http::StatusCode, response::IntoResponse};
use futures_util::future::join_all;
use jiff::Timestamp;
use serde_json::{Value, json};
use steward_aws::{AwsPorts, Config};
use steward_core::model::{
    command::Order,
    document::{Document, DocumentKey},
    task::Task,
};
use steward_emulator::host::{Host, HostOptions};
use steward_runtime::{
    bulk::Bulk,
    ports::{Created, Ports, StateStore},
};

use crate::world::{Page, World};

/// A service that refuses every order until it is told otherwise.
#[derive(Clone, Default)]
struct Service {
    accepts: Arc<AtomicBool>,
}

impl Service {
    async fn start(&self) -> String {
        let router = Router::new().fallback(Self::answer).with_state(self.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        url
    }

    async fn answer(State(service): State<Self>) -> impl IntoResponse {
        if service.accepts.load(Ordering::Relaxed) {
            (StatusCode::OK, Json(json!({})))
        } else {
            (StatusCode::PAYMENT_REQUIRED, Json(json!({ "title": "Card declined" })))
        }
    }
}

/// A deployment that runs, with its console and its one service.
struct Running {
    host: Host,
    console: World,
    service: Service,
}

impl Running {
    /// With these orders, each of which was refused.
    async fn with_refused(orders: &[&str]) -> Self {
        let service = Service::default();
        let request = json!({ "path": "/charges", "body": { "order": "${ task.id }" } });
        let workflow = json!({
            "name": "order", "version": 1, "steps": { "charge": { "agent": "a", "request": request } },
        });
        let host = Host::start(HostOptions {
            workflows: vec![serde_json::from_value(workflow).unwrap()],
            agents: vec![("a".parse().unwrap(), service.start().await.parse().unwrap())],
            ..HostOptions::default()
        });
        let host = host.await.unwrap();
        let console = World::over(host.ports.clone(), host.aws.clone(), host.config.clone(), true);
        let running = Self { host, console, service };
        for order in orders {
            running.submit(order).await;
        }
        for order in orders {
            running.until(order, "Error").await;
        }
        running
    }

    async fn submit(&self, order: &str) {
        let body = json!({ "task_id": order, "workflow": "order" }).to_string();
        let url = &self.host.config.submissions_queue_url;
        let request = self.host.sqs().send_message().queue_url(url).message_body(body);
        request.send().await.unwrap();
    }

    async fn until(&self, order: &str, state: &str) -> Task {
        let id = order.parse().unwrap();
        eventually(async || {
            let task = self.host.ports.store().load(&id).await.unwrap();
            task.filter(|task| task.process_state.to_string() == state)
        })
        .await
    }

    /// The page of a run once every task has answered, and none that carried it out goes on.
    async fn until_answered(&self, address: &str) -> Page {
        eventually(async || {
            let page = self.console.get(address).await;
            page.says(&["Carried out"]);
            // It refreshes itself as long as there is something to wait for.
            let (answered, waits) = (page.text().contains("All "), page.html.contains("hx-get"));
            assert!(answered || waits, "{}", page.html);
            (!waits).then_some(page)
        })
        .await
    }

    /// Waits until the scheduler has nothing more to read.
    async fn until_idle(&self) {
        let counts = [
            QueueAttributeName::ApproximateNumberOfMessages,
            QueueAttributeName::ApproximateNumberOfMessagesNotVisible,
        ];
        eventually(async || {
            let url = &self.host.config.scheduler_queue_url;
            let request = self.host.sqs().get_queue_attributes().queue_url(url);
            let answer = request.set_attribute_names(Some(counts.to_vec())).send().await.unwrap();
            answer.attributes.unwrap().values().all(|count| count == "0").then_some(())
        })
        .await;
    }
}

async fn eventually<T>(look: impl AsyncFn() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(seen) = look().await {
            return seen;
        }
        assert!(Instant::now() < deadline, "waited too long");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The id of the run that a page would make.
fn id_on(page: &Page) -> String {
    let (_, after) = page.html.split_once("name=\"id\" value=\"").unwrap();
    after.split_once('"').unwrap().0.to_owned()
}

fn run(tasks: &[&str]) -> Bulk {
    let tasks = tasks.iter().map(|id| id.parse().unwrap()).collect();
    let order = Order::Resubmit { step: None, input: None, did_not_run: false };
    let (by, why, found_by) = ("ada".to_owned(), "mended".to_owned(), String::new());
    Bulk { id: "run-1".parse().unwrap(), order, by, why, at: Timestamp::now(), found_by, tasks }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_seen_and_left_ticked_is_commanded_and_each_task_says_what_became_of_it() {
    let world = Running::with_refused(&["order-1", "order-2", "order-3"]).await;
    world.service.accepts.store(true, Ordering::Relaxed);
    world.submit("order-4").await;
    world.until("order-4", "Processed").await;

    let page = world.console.get("/console/bulk?workflow=order&state=Error&action=resubmit").await;
    page.says(&["Found 3 of 3 looked at", "step charge: HTTP 402 Payment Required: Card declined"]);
    assert!(page.html.contains("value=\"resubmit\" required checked"), "{}", page.html);
    // Only who filters by a step can say which one to skip.
    page.has_no(&["value=\"skip\"", "order-4", "Those that follow"]);
    let page_by_step = world.console.get("/console/bulk?step=charge").await;
    assert!(page_by_step.html.contains("value=\"skip\""), "{}", page_by_step.html);

    let id = id_on(&page);
    let form = [
        ("id", id.as_str()),
        ("action", "resubmit"),
        ("reason", "cards work again"),
        ("found_by", "workflow=order&state=Error"),
        ("task", "order-1"),
        ("task", "order-2"),
        ("task", "order-4"),
        ("task", "order-9"),
    ];
    let address = format!("/console/bulk/{id}");
    // The second is an impatient hand's.
    for _ in 0..2 {
        let sent = world.console.post("/console/bulk", &form).await;
        assert_eq!((sent.status, sent.location), (StatusCode::SEE_OTHER, Some(address.clone())));
    }
    let page = world.until_answered(&address).await;
    page.says(&[
        "resubmit of 4 tasks All 4 answered",
        "Carried out 2 Refused 1 No answer yet 0 No such task any more 1 Tasks now ✓ Processed 3 Asked by ada,",
        "Why cards work again Found by workflow=order&#38;state=Error",
        "order-4 ✕ refused: the task is Processed ✓ Processed",
        "order-9 – there is no such task any more",
        "order-1 ✓ carried out",
    ]);
    page.has_no(&["Send again"]);
    assert!(page.html.contains("href=\"/console/tasks/order%2D2\""), "{}", page.html);
    for order in ["order-1", "order-2"] {
        let task = world.until(order, "Processed").await;
        let [command] = task.commands.as_slice() else { panic!("{:?}", task.commands) };
        assert_eq!(
            (command.id.as_str(), &*command.by, &*command.why),
            (&*id, "ada", "cards work again")
        );
    }
    assert_eq!(world.until("order-3", "Error").await.commands, [], "it was not ticked");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_was_recorded_and_never_sent_is_sent_by_hand_and_carried_out_once() {
    let orders = ["order-1", "order-2"];
    let world = Running::with_refused(&orders).await;
    world.service.accepts.store(true, Ordering::Relaxed);
    // What a function leaves that dies between the two.
    assert!(run(&orders).record(&*world.host.ports).await.unwrap());
    let page = world.console.get("/console/bulk/run-1").await;
    page.says(&["0 of 2 answered", "order-1 ○ no answer yet ✕ Error", "Send again"]);
    world.console.reader().get("/console/bulk/run-1").await.has_no(&["Send again</button>"]);

    // And one that died after it had sent some, of which nobody knows.
    run(&orders).send(&*world.host.ports, &["order-1".parse().unwrap()]).await;
    for _ in 0..2 {
        let sent = world.console.post("/console/bulk/run-1/send", &[]).await;
        assert_eq!(sent.location.as_deref(), Some("/console/bulk/run-1"));
    }
    world.until_answered("/console/bulk/run-1").await.says(&["Carried out 2 Refused 0"]);
    for order in orders {
        world.until(order, "Processed").await;
    }
    for answer in run(&orders).send(&*world.host.ports, &run(&orders).tasks).await {
        answer.unwrap();
    }
    world.until_idle().await;
    for order in orders {
        let task = world.until(order, "Processed").await;
        // A request may come to the service twice, by its key the same; what was asked for once is one attempt.
        let attempts = task.steps.values().map(|step| step.run.state.attempt());
        assert_eq!((task.commands.len(), attempts.max()), (1, Some(2)), "{task:?}");
    }
}

/// The same world with another configuration.
fn changed(world: &World, change: impl FnOnce(&mut Config)) -> World {
    let mut config = world.config.clone();
    change(&mut config);
    let ports = Arc::new(AwsPorts::new(&world.aws.sdk_config(), &config, "console"));
    World::over(ports, world.aws.clone(), config, true)
}

const UNDO: [(&str, &str); 5] = [
    ("id", "run-1"),
    ("action", "undo"),
    ("reason", "sold out"),
    ("task", "order-1"),
    ("task", "order-2"),
];

#[tokio::test]
async fn nothing_is_sent_of_a_run_that_cannot_be_recorded() {
    let world = World::new().await;
    let broken = changed(&world, |config| config.documents_table = "gone".to_owned());
    let failed = broken.post("/console/bulk", &UNDO).await;
    assert_eq!(failed.status, StatusCode::SERVICE_UNAVAILABLE);
    let sqs = aws_sdk_sqs::Client::new(&world.aws.sdk_config());
    let request = sqs.receive_message().queue_url(&world.config.scheduler_queue_url);
    assert_eq!(request.send().await.unwrap().messages(), []);
}

#[tokio::test]
async fn how_many_commands_could_not_be_sent_is_said() {
    let world = World::new().await;
    let broken = changed(&world, |config| config.scheduler_queue_url.push_str("-gone"));
    let sent = broken.post("/console/bulk", &UNDO).await;
    assert_eq!(sent.location.as_deref(), Some("/console/bulk/run-1?unsent=2"));
    let page = world.get(&sent.location.unwrap()).await;
    page.says(&["2 commands could not be sent", "undo of 2 tasks"]);
}

#[tokio::test]
async fn what_cannot_be_a_run_is_refused_with_the_reason() {
    let world = World::new().await;
    let good = [("id", "run-1"), ("action", "undo"), ("reason", "sold out"), ("task", "order-1")];
    let with = |changed: &[(&'static str, &'static str)]| {
        let kept = good.iter().filter(|(name, _)| changed.iter().all(|(other, _)| other != name));
        kept.chain(changed).filter(|(_, value)| !value.is_empty()).copied().collect::<Vec<_>>()
    };
    for (changed, said) in [
        (("reason", ""), "say why, for the record"),
        (("task", ""), "no task is selected"),
        (("task", "a b"), "task id `a b` is not valid"),
        (("action", "delete"), "there is no action `delete`"),
        (("action", "skip"), "say which step to skip"),
        (("id", ""), "command id `` is not valid"),
    ] {
        let refused = world.post("/console/bulk", &with(&[changed])).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{changed:?}");
        assert!(refused.text().contains(said), "{}", refused.text());
    }
    let ids: Vec<_> = (0..=1_000).map(|n| format!("order-{n}")).collect();
    let mut many = with(&[("task", "")]);
    many.extend(ids.iter().map(|id| ("task", id.as_str())));
    let refused = world.post("/console/bulk", &many).await;
    assert!(
        refused.text().contains("1001 tasks are selected; the limit is 1000"),
        "{}",
        refused.text()
    );
    for id in ["run-1", "-"] {
        let missing = world.get(&format!("/console/bulk/{id}")).await;
        assert_eq!(missing.status, StatusCode::NOT_FOUND, "something was recorded");
    }
}

#[tokio::test]
async fn one_run_takes_a_thousand_tasks_and_the_page_leads_to_the_others() {
    let world = World::new().await;
    assert!(world.get("/console/bulk?state=Pending").await.text().contains("No task matches"));
    let create = async |n: u32| {
        let task: Task = serde_json::from_value(json!({
            "task_id": format!("order-{n}"), "workflow": "order", "version": 1,
            "process_state": "Pending", "revision": 1, "complete_by": 9, "submitted_at": n, "due": n,
        }))
        .unwrap();
        let submitted = Document::new(DocumentKey::Submission, task.submitted_at, Value::Null);
        assert_eq!(world.ports.store().create(&task, &submitted).await.unwrap(), Created::Created);
    };
    join_all((0..1_003).map(create)).await;
    let page = world.get("/console/bulk?state=Pending&action=pause").await;
    page.says(&["Found 1000 of 1000 looked at", "one run takes at most 1000 tasks"]);
    assert_eq!(page.html.matches("name=\"task\"").count(), 1_000);
    let (_, link) = page.html.split_once("<a href=\"/console/bulk?").unwrap();
    let query = link.split_once('"').unwrap().0.replace("&#38;", "&");
    let rest = world.get(&format!("/console/bulk?{query}")).await;
    rest.says(&["Found 3 of 3 looked at"]);
    assert!(rest.html.contains("value=\"pause\" required checked"), "{}", rest.html);
    rest.has_no(&["Those that follow"]);
    let seen = |page: &Page| page.html.matches("name=\"task\"").count();
    assert_eq!((seen(&page), seen(&rest)), (1_000, 3));
}
