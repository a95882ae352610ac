//! Bad input at both doors: what can never succeed is refused once, with its reason, kept, alerted
//! and told; the good beside it is not disturbed; and what only cannot be done just then comes back.

use aws_lambda_events::sqs::SqsBatchResponse;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_sqs::types::Message;
use reqwest::{
    Client, StatusCode,
    header::{CONTENT_TYPE, LOCATION},
};
use serde_json::{Value, json};
use steward_aws::{AwsPorts, Config};
use steward_core::{definition::workflow::Workflow, limits, model::document::DocumentKey};
use steward_emulator::{
    host::{Host, HostOptions},
    resources,
};
use steward_runtime::ports::{Clock, Ports, StateStore};
use tokio::net::TcpSocket;

use crate::support::{Deployment, event, failed, whole_millis};

/// The workflow that ships.
fn order() -> Workflow {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../workflows/order.yaml");
    steward_definition_file::read_file(&path).unwrap()
}

/// One whose input has a schema.
fn strict(version: u32, maximum: u32) -> Workflow {
    let amount = json!({ "type": "integer", "maximum": maximum });
    serde_json::from_value(json!({
        "name": "strict", "version": version,
        "input": { "type": "object", "required": ["amount"], "properties": { "amount": amount } },
        "steps": { "a": { "wait": "1s" } },
    }))
    .unwrap()
}

/// A deployment with a client's queue, which notices may go to, and a stranger's, which they may not.
struct Door {
    deployment: Deployment,
    client: String,
    stranger: String,
}

impl Door {
    async fn open() -> Self {
        let deployment = Deployment::new(&order()).await;
        let ports = deployment.ports("publisher");
        ports.definitions().publish(&strict(1, 10)).await.unwrap();
        let sdk = deployment.aws.sdk_config();
        let client = resources::create_queue(&sdk, "client-shop", None).await.unwrap();
        let stranger = resources::create_queue(&sdk, "stranger", None).await.unwrap();
        Self { deployment, client, stranger }
    }

    async fn hand_in(&self, texts: &[String]) -> SqsBatchResponse {
        let ports = self.deployment.ports("submission");
        let event = event(texts.iter().cloned(), 1);
        steward_submission::handle(&ports, &self.deployment.config.reply_queues, event).await
    }

    /// The tasks that the scheduler is asked to look at, sorted.
    async fn woken(&self) -> Vec<String> {
        let wakes = self.deployment.to_scheduler().await.into_iter().map(|body| {
            let wake: Value = serde_json::from_str(&body).unwrap();
            assert_eq!((&wake["type"], &wake["cause"]), (&json!("wake"), &json!("submitted")));
            wake["task_id"].as_str().unwrap().to_owned()
        });
        sorted(wakes.collect())
    }

    /// Texts on the rejected queue, each with its reason, sorted.
    async fn rejected(&self) -> Vec<(String, String)> {
        let taken = self.deployment.take(&self.deployment.config.rejected_queue_url).await;
        sorted(taken.iter().map(|message| (body(message), attribute(message, "reason"))).collect())
    }

    /// Alerts about submissions: id and reason, sorted.
    async fn alerted(&self) -> Vec<(Option<String>, String)> {
        let alerts = self.deployment.alerts().await.into_iter().map(|event| {
            assert_eq!(event["detail-type"], "Submission Refused");
            let (metadata, alert) = (&event["detail"]["metadata"], &event["detail"]["data"]);
            assert_eq!(metadata["event"], "submission_refused");
            assert_eq!(
                metadata["at"],
                json!(whole_millis(self.deployment.ports("reader").clock().now()))
            );
            (optional(&alert["task_id"]), alert["reason"].as_str().unwrap().to_owned())
        });
        sorted(alerts.collect())
    }

    /// Notices on a queue: id, status and reason, sorted.
    async fn told(&self, queue: &str) -> Vec<(Option<String>, String, Option<String>)> {
        let taken = self.deployment.take(queue).await;
        let notices = taken.iter().map(|message| {
            let notice: Value = serde_json::from_str(&body(message)).unwrap();
            let status = notice["status"].as_str().unwrap().to_owned();
            (optional(&notice["task_id"]), status, optional(&notice["reason"]))
        });
        sorted(notices.collect())
    }

    /// Everything in the state store.
    async fn stored(&self) -> Vec<String> {
        let tables = aws_sdk_dynamodb::Client::new(&self.deployment.aws.sdk_config());
        let mut items = Vec::new();
        for table in [resources::TASKS_TABLE, resources::DOCUMENTS_TABLE] {
            let scan = tables.scan().table_name(table).send().await.unwrap();
            assert!(scan.last_evaluated_key().is_none(), "more than one page");
            for item in scan.items() {
                let item: std::collections::BTreeMap<_, _> = item.iter().collect();
                items.push(format!("{table} {item:?}"));
            }
        }
        sorted(items)
    }

    /// What was submitted as `id`, if it is recorded.
    async fn submitted(&self, id: &str) -> Option<Value> {
        let ports = self.deployment.ports("reader");
        let id = id.parse().unwrap();
        let task = ports.store().load(&id).await.unwrap()?;
        let owner = task.owner();
        let documents = ports.store().documents(&owner, &[DocumentKey::Submission]).await.unwrap();
        assert!(!documents.is_empty(), "{id}: a task and its document are one");
        documents.into_iter().next().map(|document| document.body)
    }
}

fn sorted<T: Ord>(mut items: Vec<T>) -> Vec<T> {
    items.sort();
    items
}

/// As much of each text as a person can look at.
fn shown(texts: &[(String, String)]) -> Vec<(String, &str)> {
    texts.iter().map(|(text, reason)| (limits::shorten(text, 200), reason.as_str())).collect()
}

fn optional(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn body(message: &Message) -> String {
    message.body().unwrap().to_owned()
}

fn attribute(message: &Message, name: &str) -> String {
    let attributes = message.message_attributes().unwrap();
    attributes[name].string_value().unwrap().to_owned()
}

fn order_of(id: &str) -> Value {
    json!({ "task_id": id, "workflow": "order", "input": { "items": ["x"], "amount": 20 } })
}

fn with(mut submission: Value, key: &str, value: Value) -> Value {
    submission[key] = value;
    submission
}

fn nested(levels: usize) -> Value {
    (0..levels).fold(json!(1), |value, _| json!([value]))
}

/// A submission that must be refused.
struct Bad {
    text: String,
    /// The id that the alert names.
    id: Option<&'static str>,
    reason: String,
    /// Whether the client hears of it.
    told: bool,
}

fn bad(text: impl ToString, id: impl Into<Option<&'static str>>, reason: &str, told: bool) -> Bad {
    Bad { text: text.to_string(), id: id.into(), reason: reason.to_owned(), told }
}

/// One of each kind. Task `taken` must be there already, with other content.
fn all_kinds(client: &str, stranger: &str) -> Vec<Bad> {
    let to_client = |submission: Value| with(submission, "reply_to", json!(client));
    let not_an_id =
        "a letter or digit, then letters, digits, `-`, `_`, `.` and `:`, at most 128 characters";
    let mut no_id = to_client(order_of("x"));
    no_id.as_object_mut().unwrap().shift_remove("task_id");
    let slash = to_client(order_of("shop/7")).to_string();
    let slash_at = slash.find("shop/7").unwrap() + "shop/7".len() + 1;
    let large =
        to_client(with(order_of("large"), "input", json!("x".repeat(limits::DOCUMENT_BYTES_MAX))));
    let large_bytes = large.to_string().len();
    let unknown_key = to_client(with(order_of("unknown-key"), "inputs", json!({})));
    let unknown_key_at = unknown_key.to_string().find("\"inputs\"").unwrap() + "\"inputs\"".len();
    let half = with(json!({ "task_id": "half" }), "reply_to", json!(stranger));
    let keys = "`task_id`, `workflow`, `version`, `input`, `reply_to`, `parent`, `undo`, \
                `attempt`, `has_begun`, `keep`";
    vec![
        bad(
            r#"{"task_id":"broken","#,
            None,
            "not a submission: EOF while parsing a value at line 1 column 20",
            false,
        ),
        bad("4111 1111 1111 1111", None, "not a submission: not a JSON object", false),
        bad(
            to_client(with(order_of("unknown-workflow"), "workflow", json!("ordr"))),
            "unknown-workflow",
            "there is no workflow `ordr`",
            true,
        ),
        bad(
            to_client(with(order_of("unknown-version"), "version", json!(9))),
            "unknown-version",
            "there is no workflow `order version 9`",
            true,
        ),
        bad(
            &no_id,
            None,
            &format!(
                "not a submission: missing field `task_id` at line 1 column {}",
                no_id.to_string().len()
            ),
            true,
        ),
        bad(
            &slash,
            "shop/7",
            &format!(
                "not a submission: task id `shop/7` is not valid: {not_an_id} at line 1 column {slash_at}"
            ),
            true,
        ),
        bad(
            large,
            "large",
            &format!("a submission of {large_bytes} bytes; the limit is 131072"),
            true,
        ),
        bad(
            to_client(with(order_of("deep"), "input", nested(limits::JSON_DEPTH_MAX + 1))),
            "deep",
            "the input nests deeper than 32 levels",
            true,
        ),
        bad(
            &unknown_key,
            "unknown-key",
            &format!(
                "not a submission: unknown field `inputs`, expected one of {keys} at line 1 column {unknown_key_at}"
            ),
            true,
        ),
        bad(
            &half,
            "half",
            &format!(
                "not a submission: missing field `workflow` at line 1 column {}",
                half.to_string().len()
            ),
            false,
        ),
        bad(
            with(order_of("not-allowed"), "reply_to", json!(stranger)),
            "not-allowed",
            "reply_to is not on the list of reply queues",
            false,
        ),
        bad(
            to_client(with(order_of("wrong"), "workflow", json!("strict"))),
            "wrong",
            "input.amount: it is greater than the maximum of 10",
            true,
        ),
        bad(
            to_client(with(order_of("taken"), "input", json!({ "amount": 21 }))),
            "taken",
            "task `taken` exists already, with other content",
            true,
        ),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_good_of_a_batch_are_recorded_and_the_bad_kept_alerted_and_told() {
    let door = Door::open().await;
    let taken = order_of("taken");
    assert_eq!(door.hand_in(&[taken.to_string()]).await, SqsBatchResponse::default());
    assert_eq!(door.woken().await, ["taken"]);

    let bad = all_kinds(&door.client, &door.stranger);
    let good = with(order_of("good"), "reply_to", json!(door.client));
    let twin = order_of("twin");
    // The same to a reader of JSON, whatever the order of keys and the spaces between them.
    let again = "{ \"input\": {\"amount\":20, \"items\":[\"x\"]}, \"workflow\":\"order\", \"task_id\":\"twin\" }";
    let mut batch: Vec<_> = bad.iter().map(|bad| bad.text.clone()).collect();
    batch.insert(4, good.to_string());
    batch.insert(0, twin.to_string());
    batch.push(again.to_owned());
    batch.push(order_of("good-too").to_string());

    let mut before = None;
    for delivery in 1..=2 {
        let answer = door.hand_in(&batch).await;
        assert_eq!(answer, SqsBatchResponse::default(), "delivery {delivery}");

        assert_eq!(door.woken().await, ["good", "good-too", "twin", "twin"]);
        let kept = bad.iter().map(|bad| (bad.text.clone(), bad.reason.clone()));
        let (rejected, kept) = (door.rejected().await, sorted(kept.collect()));
        assert!(rejected == kept, "{:#?}\nand not\n{:#?}", shown(&rejected), shown(&kept));
        let alerted = bad.iter().map(|bad| (bad.id.map(str::to_owned), bad.reason.clone()));
        assert_eq!(door.alerted().await, sorted(alerted.collect()));
        let mut told = vec![(Some("good".to_owned()), "received".to_owned(), None)];
        told.extend(bad.iter().filter(|bad| bad.told).map(|bad| {
            (bad.id.map(str::to_owned), "refused".to_owned(), Some(bad.reason.clone()))
        }));
        assert_eq!(door.told(&door.client).await, sorted(told));
        assert_eq!(door.told(&door.stranger).await, []);

        assert_eq!(door.submitted("taken").await, Some(taken.clone()));
        assert_eq!(door.submitted("good").await, Some(good.clone()));
        assert_eq!(door.submitted("twin").await, Some(twin.clone()));
        assert_eq!(door.submitted("good-too").await, Some(order_of("good-too")));
        let stored = door.stored().await;
        assert_eq!(stored.len(), 8, "a task and a document for each of four: {stored:#?}");
        assert_eq!(before.get_or_insert_with(|| stored.clone()), &stored, "delivery {delivery}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_input_is_as_the_schema_says_or_refused_without_its_values() {
    let door = Door::open().await;
    let submission = |input: Value| json!({ "task_id": "x", "workflow": "strict", "input": input, "reply_to": door.client });
    for (input, reason) in [
        (json!({ "amount": "secret" }), "input.amount: it is not of type \"integer\""),
        (json!({ "other": "secret" }), "input: \"amount\" is a required property"),
        (json!(null), "input: it is not of type \"object\""),
    ] {
        let text = submission(input).to_string();
        assert_eq!(door.hand_in(std::slice::from_ref(&text)).await, SqsBatchResponse::default());
        assert_eq!(door.rejected().await, [(text, reason.to_owned())]);
        assert_eq!(door.alerted().await, [(Some("x".to_owned()), reason.to_owned())]);
        let refused = (Some("x".to_owned()), "refused".to_owned(), Some(reason.to_owned()));
        assert_eq!(door.told(&door.client).await, [refused]);
        assert_eq!(door.submitted("x").await, None);
    }
    let fits = submission(json!({ "amount": 10 })).to_string();
    assert_eq!(door.hand_in(&[fits]).await, SqsBatchResponse::default());
    assert_eq!(door.woken().await, ["x"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_who_repeats_itself_is_told_the_same_though_the_definition_has_changed() {
    let door = Door::open().await;
    let submission = |id: &str| {
        json!({ "task_id": id, "workflow": "strict", "input": { "amount": 10 } }).to_string()
    };
    assert_eq!(door.hand_in(&[submission("before")]).await, SqsBatchResponse::default());
    let ports = door.deployment.ports("publisher");
    let definitions = ports.definitions();
    definitions.publish(&strict(2, 9)).await.unwrap();
    let reason = "input.amount: it is greater than the maximum of 9".to_owned();
    let after = submission("after");
    let both = [submission("before"), after.clone()];
    assert_eq!(door.hand_in(&both).await, SqsBatchResponse::default());
    assert_eq!(door.rejected().await, [(after.clone(), reason)]);
    for version in [1, 2] {
        assert!(definitions.unpublish(&"strict".parse().unwrap(), version).await.unwrap());
    }
    assert_eq!(door.hand_in(&both).await, SqsBatchResponse::default());
    assert_eq!(door.rejected().await, [(after, "there is no workflow `strict`".to_owned())]);
    assert_eq!(door.woken().await, ["before"; 3]);
    assert_eq!(door.submitted("after").await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_contents_for_one_id_in_a_batch_one_is_recorded_and_the_other_kept() {
    let door = Door::open().await;
    let contents = [20, 21]
        .map(|amount| with(order_of("x"), "input", json!({ "amount": amount })).to_string());
    assert_eq!(door.hand_in(&contents).await, SqsBatchResponse::default());
    let recorded = door.submitted("x").await.unwrap().to_string();
    let other = contents.iter().find(|text| **text != recorded).unwrap().clone();
    assert!(contents.contains(&recorded), "{recorded}");
    let reason = "task `x` exists already, with other content".to_owned();
    assert_eq!(door.rejected().await, [(other, reason)]);
    assert_eq!(door.woken().await, ["x"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_text_that_quotes_itself_into_its_reason_is_refused_like_any_other() {
    let door = Door::open().await;
    // Quoted in the reason, and again in the alert, this would be too large for the bus.
    let quotes = "\"".repeat(limits::DOCUMENT_BYTES_MAX / 2 - 1_000);
    let quotes = with(order_of("quotes"), "version", json!(quotes)).to_string();
    let key = json!({ "\u{7}".repeat(20_000): 1 }).to_string();
    let texts = [quotes, key];
    assert_eq!(door.hand_in(&texts).await, SqsBatchResponse::default());
    let rejected = door.rejected().await;
    assert_eq!(
        rejected.iter().map(|(text, _)| text.clone()).collect::<Vec<_>>(),
        sorted(texts.to_vec())
    );
    for (_, reason) in &rejected {
        assert!(reason.chars().count() <= limits::REASON_CHARS_MAX, "{}", reason.len());
        assert!(!reason.contains(char::is_control), "an attribute cannot hold it");
    }
    assert_eq!(door.alerted().await.len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trace_goes_with_the_wake_and_one_that_cannot_travel_is_left_out() {
    let door = Door::open().await;
    let traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let mut batch = event([order_of("traced").to_string(), order_of("untraced").to_string()], 1);
    for (record, text) in batch.records.iter_mut().zip([traceparent, "not\na trace"]) {
        let attribute = json!({
            "stringValue": text, "dataType": "String", "stringListValues": [], "binaryListValues": [],
        });
        let attribute = serde_json::from_value(attribute).unwrap();
        record.message_attributes.insert("traceparent".to_owned(), attribute);
    }
    let ports = door.deployment.ports("submission");
    let answer =
        steward_submission::handle(&ports, &door.deployment.config.reply_queues, batch).await;
    assert_eq!(answer, SqsBatchResponse::default());
    let wakes = door.deployment.take(&door.deployment.config.scheduler_queue_url).await;
    assert_eq!(wakes.len(), 2);
    for wake in wakes {
        let trace = wake.message_attributes().and_then(|attributes| attributes.get("traceparent"));
        let trace = trace.and_then(|attribute| attribute.string_value());
        let expected = body(&wake).contains("\"traced\"").then_some(traceparent);
        assert_eq!(trace, expected, "{}", body(&wake));
    }
    assert_eq!(door.deployment.task("traced").await.traceparent.as_deref(), Some(traceparent));
    assert_eq!(door.deployment.task("untraced").await.traceparent, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_state_store_cannot_do_comes_back_and_the_rest_is_done() {
    let door = Door::open().await;
    drop_tasks_table(&door.deployment.aws.sdk_config()).await;
    let client = json!(door.client);
    let texts = [
        "{".to_owned(),
        with(order_of("good"), "reply_to", client).to_string(),
        order_of("good-too").to_string(),
    ];
    let answer = door.hand_in(&texts).await;
    assert_eq!(sorted(failed(&answer)), ["m-1", "m-2"]);
    let reason = "not a submission: EOF while parsing an object at line 1 column 1".to_owned();
    assert_eq!(door.rejected().await, [("{".to_owned(), reason)]);
    assert_eq!(door.told(&door.client).await, [], "nothing is recorded, so nothing is said");
    assert_eq!(door.woken().await, [""; 0]);
    let tables = aws_sdk_dynamodb::Client::new(&door.deployment.aws.sdk_config());
    let documents = tables.scan().table_name(resources::DOCUMENTS_TABLE).send().await.unwrap();
    assert_eq!(documents.count(), 0, "a document without its task");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_nothing_answers_every_message_comes_back() {
    let door = Door::open().await;
    let Config { reply_queues, .. } = &door.deployment.config;
    let (_held, sdk) = out_of_reach(&door.deployment);
    let ports = AwsPorts::new(&sdk, &door.deployment.config, "submission");
    let texts = ["{".to_owned(), order_of("good").to_string(), order_of("good-too").to_string()];
    let answer = steward_submission::handle(&ports, reply_queues, event(texts.clone(), 1)).await;
    assert_eq!(sorted(failed(&answer)), ["m-0", "m-1", "m-2"]);
    assert_eq!(door.stored().await, [""; 0]);
    // And once it answers again, the same messages are as good as new.
    assert_eq!(door.hand_in(&texts).await, SqsBatchResponse::default());
    assert_eq!(door.woken().await, ["good", "good-too"]);
    assert_eq!(door.rejected().await.len(), 1);
}

/// Clients of an address where nobody listens while it is held, and which do not try twice.
fn out_of_reach(deployment: &Deployment) -> (TcpSocket, aws_config::SdkConfig) {
    let held = TcpSocket::new_v4().unwrap();
    held.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = held.local_addr().unwrap();
    let mut sdk = deployment.aws.sdk_config().into_builder();
    sdk.set_http_client(None);
    sdk.set_endpoint_url(Some(format!("http://{address}")));
    sdk.set_retry_config(Some(RetryConfig::disabled()));
    (held, sdk.build())
}

async fn drop_tasks_table(sdk: &aws_config::SdkConfig) {
    let tables = aws_sdk_dynamodb::Client::new(sdk);
    tables.delete_table().table_name(resources::TASKS_TABLE).send().await.unwrap();
}

/// A host that listens, with the workflow that ships.
async fn host() -> (Host, String) {
    let listen = Some("127.0.0.1:0".parse().unwrap());
    let options =
        HostOptions { listen, workflows: vec![order(), strict(1, 10)], ..HostOptions::default() };
    let host = Host::start(options).await.unwrap();
    let tasks = format!("http://{}/tasks", host.address.unwrap());
    (host, tasks)
}

async fn post(tasks: &str, text: impl ToString) -> reqwest::Response {
    Client::new().post(tasks).body(text.to_string()).send().await.unwrap()
}

async fn assert_problem(answer: reqwest::Response, status: u16, title: &str, detail: &str) {
    assert_eq!(answer.headers()[CONTENT_TYPE], "application/problem+json");
    assert_eq!(answer.status().as_u16(), status);
    let kind = match answer.status().canonical_reason() {
        Some(reason) if reason == title => "about:blank".to_owned(),
        _ => format!("urn:steward:{}", title.to_lowercase().replace(' ', "-")),
    };
    let expected = json!({ "type": kind, "title": title, "status": status, "detail": detail });
    assert_eq!(answer.text().await.unwrap(), expected.to_string());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_http_a_submission_is_accepted_with_its_address_however_often_it_comes() {
    let (host, tasks) = host().await;
    let mut first = None;
    for _ in 0..2 {
        let answer = post(&tasks, order_of("shop:7")).await;
        assert_eq!(answer.status(), StatusCode::ACCEPTED);
        assert_eq!(answer.headers()[LOCATION], "/tasks/shop:7");
        assert_eq!(answer.headers()[CONTENT_TYPE], "application/json");
        assert_eq!(answer.text().await.unwrap(), r#"{"task_id":"shop:7","href":"/tasks/shop:7"}"#);
        let task = host.ports.store().load(&"shop:7".parse().unwrap()).await.unwrap().unwrap();
        assert_eq!(*first.get_or_insert(task.submitted_at), task.submitted_at, "recorded once");
    }
    let task = Client::new().get(format!("{tasks}/shop:7")).send().await.unwrap();
    assert_eq!(task.status(), StatusCode::OK);
    let task: Value = serde_json::from_str(&task.text().await.unwrap()).unwrap();
    assert_eq!(task["task_id"], "shop:7");
    assert_eq!((&task["workflow"], &task["version"]), (&json!("order"), &json!(2)));
    assert_eq!(task["submitted_at"], json!(first));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_http_the_refused_hears_why_and_nothing_is_kept_or_alerted() {
    let (host, tasks) = host().await;
    assert_eq!(post(&tasks, order_of("taken")).await.status(), StatusCode::ACCEPTED);
    let client =
        resources::create_queue(&host.aws.sdk_config(), "client-shop", None).await.unwrap();
    for bad in all_kinds(&client, "https://stranger") {
        let (status, title) = match bad.reason.as_str() {
            reason if reason.starts_with("not a submission") => (400, "Malformed submission"),
            reason if reason.starts_with("there is no workflow") => (400, "Unknown workflow"),
            reason if reason.starts_with("input.amount") => (400, "Invalid input"),
            reason if reason.starts_with("reply_to") => (400, "Reply queue not allowed"),
            reason if reason.starts_with("task `taken`") => (409, "Task id taken"),
            _ => (413, "Submission too large"),
        };
        assert_problem(post(&tasks, &bad.text).await, status, title, &bad.reason).await;
    }
    let not_text =
        Client::new().post(&tasks).body(b"{\"input\":\"\xff\"}".to_vec()).send().await.unwrap();
    assert_problem(not_text, 400, "Malformed submission", "not a submission: not UTF-8").await;
    for queue in
        [host.queue_url(resources::REJECTED_QUEUE), host.queue_url(resources::ALERTS_QUEUE), client]
    {
        let request = host.sqs().receive_message().queue_url(&queue).max_number_of_messages(10);
        let answer = request.send().await.unwrap();
        // The task that was accepted has no agents on this host.
        let of_the_task =
            |message: &&Message| message.body().unwrap().contains("\"Agent Missing\"");
        let others: Vec<_> = answer.messages().iter().filter(|m| !of_the_task(m)).collect();
        assert_eq!(others, [] as [&Message; 0], "{queue}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_http_a_task_is_asked_for_by_its_id() {
    let (_host, tasks) = host().await;
    let ask = |id: &'static str| Client::new().get(format!("{tasks}/{id}")).send();
    assert_problem(ask("none").await.unwrap(), 404, "No such task", "there is no task `none`")
        .await;
    let detail = "task id `a/b` is not valid: a letter or digit, then letters, digits, `-`, `_`, `.` and `:`, \
                  at most 128 characters";
    assert_problem(ask("a%2Fb").await.unwrap(), 400, "Malformed task id", detail).await;
    let wrong = Client::new().delete(&tasks).send().await.unwrap();
    let detail = "this route does not support DELETE";
    assert_problem(wrong, 405, "Method Not Allowed", detail).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_http_a_body_that_no_submission_can_have_is_not_taken_in() {
    let (_host, tasks) = host().await;
    let answer = post(&tasks, " ".repeat(limits::MESSAGE_BYTES_MAX)).await;
    let reason = "a submission of 256000 bytes; the limit is 131072";
    assert_problem(answer, 413, "Submission too large", reason).await;
    let answer = post(&tasks, " ".repeat(limits::MESSAGE_BYTES_MAX + 1)).await;
    let reason = "a submission of more than 256000 bytes; the limit is 131072";
    assert_problem(answer, 413, "Submission too large", reason).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_http_what_the_state_store_cannot_do_may_be_asked_again() {
    let (host, tasks) = host().await;
    drop_tasks_table(&host.aws.sdk_config()).await;
    let detail = "the state store did not respond; the same request can be safely repeated";
    assert_problem(post(&tasks, order_of("good")).await, 503, "Service Unavailable", detail).await;
    let task = Client::new().get(format!("{tasks}/good")).send().await.unwrap();
    assert_problem(task, 503, "Service Unavailable", detail).await;
}
