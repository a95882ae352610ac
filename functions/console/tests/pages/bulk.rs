//! Bulk commands, against a deployment with running functions.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use aws_sdk_sqs::types::QueueAttributeName;
use axum::{Router, extract::State, http::StatusCode, response::IntoResponse};
use futures_util::future::join_all;
use jiff::Timestamp;
use serde_json::{Value, json};
use steward_aws::{AwsPorts, Config};
use steward_core::model::{
    command::CommandAction,
    document::{Document, DocumentKey},
    task::Task,
};
use steward_emulator::host::{Host, HostOptions};
use steward_runtime::{
    bulk::BulkCommand,
    ports::{CreateOutcome, Ports, StateStore},
};

use crate::test_console::{PageResponse, TestConsole};

/// A service that declines every charge until `accepts` is set.
#[derive(Clone, Default)]
struct PaymentService {
    accepts: Arc<AtomicBool>,
}

impl PaymentService {
    async fn start(&self) -> String {
        let router = Router::new().fallback(Self::answer).with_state(self.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        url
    }

    async fn answer(State(service): State<Self>) -> impl IntoResponse {
        let (status, body) = if service.accepts.load(Ordering::Relaxed) {
            (StatusCode::OK, json!({}))
        } else {
            (StatusCode::PAYMENT_REQUIRED, json!({ "title": "Card declined" }))
        };
        (status, [("content-type", "application/problem+json")], body.to_string())
    }
}

/// A deployment with running functions, its console and its service.
struct RunningDeployment {
    host: Host,
    console: TestConsole,
    service: PaymentService,
}

impl RunningDeployment {
    /// A deployment with these orders in Error, because the service declined them.
    async fn with_failed_orders(orders: &[&str]) -> Self {
        let service = PaymentService::default();
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
        let console = TestConsole::with_ports(
            host.ports.clone(),
            host.aws.clone(),
            host.config.clone(),
            true,
        );
        let running = Self { host, console, service };
        for order in orders {
            running.submit(order).await;
        }
        for order in orders {
            running.wait_for_state(order, "Error").await;
        }
        running
    }

    async fn submit(&self, order: &str) {
        let body = json!({ "task_id": order, "workflow": "order" }).to_string();
        let url = &self.host.config.submissions_queue_url;
        let request = self.host.sqs().send_message().queue_url(url).message_body(body);
        request.send().await.unwrap();
    }

    /// Waits until a task is in a state.
    async fn wait_for_state(&self, order: &str, state: &str) -> Task {
        let id = order.parse().unwrap();
        eventually(async || {
            let task = self.host.ports.store().load(&id).await.unwrap();
            task.filter(|task| task.process_state.to_string() == state)
        })
        .await
    }

    /// Waits until all commands of a run are processed and its tasks have ended. Returns the page of the run.
    async fn wait_for_run(&self, url: &str) -> PageResponse {
        eventually(async || {
            let page = self.console.get(url).await;
            page.assert_text(&["Carried out"]);
            // The page refreshes itself until the run is complete.
            let is_complete = page.text().contains("All ");
            let is_refreshed = page.html.contains("hx-get");
            assert!(is_complete || is_refreshed, "{}", page.html);
            (!is_refreshed).then_some(page)
        })
        .await
    }

    /// Waits until the scheduler's queues are empty.
    async fn wait_until_idle(&self) {
        let counts = [
            QueueAttributeName::ApproximateNumberOfMessages,
            QueueAttributeName::ApproximateNumberOfMessagesNotVisible,
        ];
        let config = &self.host.config;
        // A command leads to messages in the scheduler's queue, never the other way round.
        for url in [&config.commands_queue_url, &config.scheduler_queue_url] {
            eventually(async || {
                let request = self.host.sqs().get_queue_attributes().queue_url(url);
                let request = request.set_attribute_names(Some(counts.to_vec()));
                let answer = request.send().await.unwrap();
                answer.attributes.unwrap().values().all(|count| count == "0").then_some(())
            })
            .await;
        }
    }
}

/// Polls until `poll` returns a value.
async fn eventually<T>(poll: impl AsyncFn() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = poll().await {
            return found;
        }
        assert!(Instant::now() < deadline, "waited too long");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The id of the run that the form of a page creates.
fn run_id_in(page: &PageResponse) -> String {
    let (_, after) = page.html.split_once("name=\"id\" value=\"").unwrap();
    after.split_once('"').unwrap().0.to_owned()
}

fn run(tasks: &[&str]) -> BulkCommand {
    let tasks = tasks.iter().map(|id| id.parse().unwrap()).collect();
    let action = CommandAction::Resubmit { step: None, input: None, did_not_run: false };
    let (by, why, found_by) = ("ada".to_owned(), "mended".to_owned(), String::new());
    BulkCommand {
        id: "run-1".parse().unwrap(),
        action,
        by,
        why,
        at: Timestamp::now(),
        found_by,
        tasks,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn selected_tasks_get_the_command_and_the_page_shows_each_result() {
    let deployment =
        Box::pin(RunningDeployment::with_failed_orders(&["order-1", "order-2", "order-3"])).await;
    deployment.service.accepts.store(true, Ordering::Relaxed);
    deployment.submit("order-4").await;
    deployment.wait_for_state("order-4", "Processed").await;

    let page =
        deployment.console.get("/console/bulk?workflow=order&state=Error&action=resubmit").await;
    page.assert_text(&["Found 3 of 3 examined", "step charge: HTTP 402 Payment Required"]);
    assert!(page.html.contains("value=\"resubmit\" required checked"), "{}", page.html);
    // Skip is offered only with a filter by step.
    page.assert_absent(&["value=\"skip\"", "order-4", "Create another run"]);
    let page_by_step = deployment.console.get("/console/bulk?step=charge").await;
    assert!(page_by_step.html.contains("value=\"skip\""), "{}", page_by_step.html);

    let id = run_id_in(&page);
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
    // The form is sent twice.
    for _ in 0..2 {
        let sent = deployment.console.post("/console/bulk", &form).await;
        assert_eq!((sent.status, sent.location), (StatusCode::SEE_OTHER, Some(address.clone())));
    }
    let page = deployment.wait_for_run(&address).await;
    page.assert_text(&[
        "resubmit of 4 tasks All 4 commands processed",
        "Carried out 2 Refused 1 Not processed yet 0 Task not found 1 Current states ✓ Processed 3 Sent by ada,",
        "Reason cards work again Filter workflow=order&#38;state=Error",
        "order-4 ✕ refused: the task is Processed ✓ Processed",
        "order-9 – task not found",
        "order-1 ✓ carried out",
    ]);
    page.assert_absent(&["Send again"]);
    assert!(page.html.contains("href=\"/console/tasks/order%2D2\""), "{}", page.html);
    for order in ["order-1", "order-2"] {
        let task = deployment.wait_for_state(order, "Processed").await;
        let [command] = task.commands.as_slice() else { panic!("{:?}", task.commands) };
        assert_eq!(
            (command.id.as_str(), &*command.by, &*command.why),
            (&*id, "ada", "cards work again")
        );
    }
    assert_eq!(
        deployment.wait_for_state("order-3", "Error").await.commands,
        [],
        "it was not selected"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_was_not_sent_is_resent_and_carried_out_once() {
    let orders = ["order-1", "order-2"];
    let deployment = Box::pin(RunningDeployment::with_failed_orders(&orders)).await;
    deployment.service.accepts.store(true, Ordering::Relaxed);
    // A function died after it recorded the run and before it sent the commands.
    assert!(run(&orders).record(&*deployment.host.ports).await.unwrap());
    let page = deployment.console.get("/console/bulk/run-1").await;
    page.assert_text(&[
        "0 of 2 commands processed",
        "order-1 ○ not processed yet ✕ Error",
        "Send again",
    ]);
    deployment
        .console
        .read_only()
        .get("/console/bulk/run-1")
        .await
        .assert_absent(&["Send again</button>"]);

    // Another function died after it sent some of the commands.
    run(&orders).send(&*deployment.host.ports, &["order-1".parse().unwrap()]).await;
    for _ in 0..2 {
        let sent = deployment.console.post("/console/bulk/run-1/send", &[]).await;
        assert_eq!(sent.location.as_deref(), Some("/console/bulk/run-1"));
    }
    deployment.wait_for_run("/console/bulk/run-1").await.assert_text(&["Carried out 2 Refused 0"]);
    for order in orders {
        deployment.wait_for_state(order, "Processed").await;
    }
    for answer in run(&orders).send(&*deployment.host.ports, &run(&orders).tasks).await {
        answer.unwrap();
    }
    deployment.wait_until_idle().await;
    for order in orders {
        let task = deployment.wait_for_state(order, "Processed").await;
        // The service may get a request twice, with the same key, but there is one attempt for the command.
        let attempts = task.steps.values().map(|step| step.forward.state.attempt_count());
        assert_eq!((task.commands.len(), attempts.max()), (1, Some(2)), "{task:?}");
    }
}

/// The same console with a changed configuration.
fn reconfigured(console: &TestConsole, change: impl FnOnce(&mut Config)) -> TestConsole {
    let mut config = console.config.clone();
    change(&mut config);
    let ports = Arc::new(AwsPorts::new(&console.aws.sdk_config(), &config, "console"));
    TestConsole::with_ports(ports, console.aws.clone(), config, true)
}

const UNDO: [(&str, &str); 5] = [
    ("id", "run-1"),
    ("action", "undo"),
    ("reason", "sold out"),
    ("task", "order-1"),
    ("task", "order-2"),
];

#[tokio::test]
async fn a_run_that_cannot_be_recorded_is_not_sent() {
    let console = TestConsole::new().await;
    let broken = reconfigured(&console, |config| config.documents_table = "gone".to_owned());
    let failed = broken.post("/console/bulk", &UNDO).await;
    assert_eq!(failed.status, StatusCode::SERVICE_UNAVAILABLE);
    let sqs = aws_sdk_sqs::Client::new(&console.aws.sdk_config());
    let request = sqs.receive_message().queue_url(&console.config.commands_queue_url);
    assert_eq!(request.send().await.unwrap().messages(), []);
}

#[tokio::test]
async fn the_page_shows_how_many_commands_could_not_be_sent() {
    let console = TestConsole::new().await;
    let broken = reconfigured(&console, |config| config.commands_queue_url.push_str("-gone"));
    let sent = broken.post("/console/bulk", &UNDO).await;
    assert_eq!(sent.location.as_deref(), Some("/console/bulk/run-1?unsent=2"));
    let page = console.get(&sent.location.unwrap()).await;
    page.assert_text(&["2 commands could not be sent", "undo of 2 tasks"]);
}

#[tokio::test]
async fn an_invalid_run_is_rejected_with_the_reason() {
    let console = TestConsole::new().await;
    let good = [("id", "run-1"), ("action", "undo"), ("reason", "sold out"), ("task", "order-1")];
    let with = |changed: &[(&'static str, &'static str)]| {
        let kept = good.iter().filter(|(name, _)| changed.iter().all(|(other, _)| other != name));
        kept.chain(changed).filter(|(_, value)| !value.is_empty()).copied().collect::<Vec<_>>()
    };
    for (changed, expected) in [
        (("reason", ""), "enter a reason"),
        (("task", ""), "no task is selected"),
        (("task", "a b"), "task id `a b` is not valid"),
        (("action", "delete"), "there is no command `delete`"),
        (("action", "skip"), "no step to skip"),
        (("id", ""), "command id `` is not valid"),
    ] {
        let refused = console.post("/console/bulk", &with(&[changed])).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{changed:?}");
        assert!(refused.text().contains(expected), "{}", refused.text());
    }
    let ids: Vec<_> = (0..=1_000).map(|n| format!("order-{n}")).collect();
    let mut many = with(&[("task", "")]);
    many.extend(ids.iter().map(|id| ("task", id.as_str())));
    let refused = console.post("/console/bulk", &many).await;
    assert!(
        refused.text().contains("1001 tasks are selected; the limit is 1000"),
        "{}",
        refused.text()
    );
    for id in ["run-1", "-"] {
        let missing = console.get(&format!("/console/bulk/{id}")).await;
        assert_eq!(missing.status, StatusCode::NOT_FOUND, "a run was recorded");
    }
}

#[tokio::test]
async fn a_run_has_at_most_a_thousand_tasks_and_links_to_the_next_run() {
    let console = TestConsole::new().await;
    assert!(console.get("/console/bulk?state=Pending").await.text().contains("No task matches"));
    let create = async |n: u32| {
        let task: Task = serde_json::from_value(json!({
            "task_id": format!("order-{n}"), "workflow": "order", "v": 1, "i": n, "k": 0,
            "process_state": "Pending", "revision": 1, "complete_by": 9, "submitted_at": n, "due": n,
        }))
        .unwrap();
        let submitted = Document::new(DocumentKey::Submission, task.submitted_at, Value::Null);
        assert_eq!(
            console.ports.store().create(&task, Some(&submitted)).await.unwrap(),
            CreateOutcome::Created
        );
    };
    join_all((0..1_003).map(create)).await;
    let page = console.get("/console/bulk?state=Pending&action=pause").await;
    page.assert_text(&["Found 1000 of 1000 examined", "a run has at most 1000"]);
    assert_eq!(page.html.matches("name=\"task\"").count(), 1_000);
    let (_, link) = page.html.split_once("<a href=\"/console/bulk?").unwrap();
    let query = link.split_once('"').unwrap().0.replace("&#38;", "&");
    let rest = console.get(&format!("/console/bulk?{query}")).await;
    rest.assert_text(&["Found 3 of 3 examined"]);
    assert!(rest.html.contains("value=\"pause\" required checked"), "{}", rest.html);
    rest.assert_absent(&["Create another run"]);
    let count = |page: &PageResponse| page.html.matches("name=\"task\"").count();
    assert_eq!((count(&page), count(&rest)), (1_000, 3));
}
