//! The page of a callback's URL and its form, over HTTP and on embedded AWS: what a person sees, what a form answers, and that
//! nothing else answers.

#![cfg(test)]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Json, Router,
    body::{Body, to_bytes},
    http::{HeaderMap, Method, Request, header},
};
use jiff::Timestamp;
use serde_json::{Value, json};
use steward_aws::ports::SharedCallbackUrls;
use steward_callback::routes;
use steward_core::{
    callback_url::{CallbackKeys, CallbackUrls},
    definition::workflow::Workflow,
    model::{
        attempt::{Action, AttemptId},
        document::DocumentKey,
        names::{CallbackToken, Part},
        task::{ProcessState, Task},
    },
};
use steward_emulator::{
    host::{Host, HostOptions},
    resources,
};
use steward_runtime::ports::{Ports, StateStore};
use tokio::net::TcpListener;
use tower::ServiceExt;

/// What browsers send.
const BROWSER: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
const KEYS: &str = r#"{ "1": "a-key-of-callbacks-of-more-than-32-bytes" }"#;
const FORM: &str = "application/x-www-form-urlencoded";
const HOSTILE: &str = "\"><script>alert(1)</script>";
const SECRET: &str = "a-value-of-the-input";

/// A deployment with one task whose step awaits an answer.
struct Fixture {
    host: Host,
    api: Router,
    url: String,
}

/// The step that asks for an amount.
fn amount() -> Value {
    json!({
        "within": "1d", "from": "the owner of the budget",
        "answer": {
            "type": "object", "title": HOSTILE, "description": "Is it within the budget?", "required": ["limit", "ok"],
            "properties": {
                "limit": { "type": "integer", "title": "Amount", "maximum": 500 },
                "ok": { "type": "boolean" },
                "risk": { "enum": ["low", "high"] },
                "code": { "type": "string", "description": HOSTILE, "maxLength": 60 },
            },
        },
    })
}

impl Fixture {
    /// The task `o-1`, with this `callback`.
    async fn awaiting(callback: Value) -> Self {
        let service = accepting_service().await;
        let workflow: Workflow = serde_json::from_value(json!({
            "name": "purchase", "version": 1, "complete_within": "3d",
            "steps": { "approve": {
                "agent": "desk", "callback": callback, "recovery": { "then": "undo" },
                "request": { "path": "/ask", "body": { "at": "${ callback.token }", "of": "${ input.name }" } },
                "undo": { "request": { "path": "/forget" } },
            } },
        }))
        .unwrap();
        let host = Host::start(HostOptions {
            workflows: vec![workflow],
            agents: vec![("desk".parse().unwrap(), service.parse().unwrap())],
            ..HostOptions::default()
        })
        .await
        .unwrap();
        let input = json!({ "name": SECRET });
        let submission = json!({ "task_id": "o-1", "workflow": "purchase", "input": input });
        let queue = host.queue_url(resources::SUBMISSIONS_QUEUE);
        let send = host.sqs().send_message().queue_url(queue);
        send.message_body(submission.to_string()).send().await.unwrap();
        let api = routes(host.ports.clone(), Arc::new(SharedCallbackUrls::new(urls())));
        let mut fixture = Self { host, api, url: String::new() };
        let task = fixture.until(|task| {
            let record = task.record(&approve());
            record.is_some_and(|record| record.forward.state.awaiting_callback().is_some())
        });
        fixture.url = url(&task.await, "o-1");
        fixture
    }

    /// Sends a request. Returns the status, the headers and the body.
    async fn send(
        &self,
        method: Method,
        url: &str,
        headers: &[(header::HeaderName, &str)],
        body: String,
    ) -> (u16, HeaderMap, String) {
        let mut request = Request::builder().method(method).uri(url);
        for (name, value) in headers {
            request = request.header(name, *value);
        }
        let request = request.body(Body::from(body)).unwrap();
        let (head, body) = self.api.clone().oneshot(request).await.unwrap().into_parts();
        let body = to_bytes(body, 1 << 20).await.unwrap();
        (head.status.as_u16(), head.headers, String::from_utf8(body.to_vec()).unwrap())
    }

    async fn task(&self) -> Option<Task> {
        self.host.ports.store().load(&"o-1".parse().unwrap()).await.unwrap()
    }

    /// The task, once this is true of it.
    async fn until(&self, is_so: impl Fn(&Task) -> bool) -> Task {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(task) = self.task().await.filter(&is_so) {
                return task;
            }
            assert!(Instant::now() < deadline, "{:?}", self.task().await);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    async fn get(&self, url: &str) -> (u16, String) {
        let headers = [(header::ACCEPT, BROWSER)];
        let (status, _, page) = self.send(Method::GET, url, &headers, String::new()).await;
        (status, page)
    }

    /// Sends a body as a form.
    async fn post(&self, accept: &str, body: String) -> (u16, String) {
        let headers = [(header::ACCEPT, accept), (header::CONTENT_TYPE, FORM)];
        let (status, _, page) = self.send(Method::POST, &self.url, &headers, body).await;
        (status, page)
    }

    /// Sends a form as a browser does.
    async fn submit(&self, fields: &[(&str, &str)]) -> (u16, String) {
        let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        self.post(BROWSER, body).await
    }

    /// Sends a confirmed form, with the token of the page.
    async fn answer(&self, fields: &[(&str, &str)]) -> (u16, String) {
        let token = self.form_token().await;
        let all = [&[("form_token", token.as_str()), ("sure", "yes")], fields].concat();
        self.submit(&all).await
    }

    /// The token of the form in a newly opened page.
    async fn form_token(&self) -> String {
        let (_, page) = self.get(&self.url).await;
        let (_, after) = page.split_once("name=\"form_token\" value=\"").unwrap();
        after.split_once('"').unwrap().0.to_owned()
    }

    async fn output(&self) -> Value {
        let task = self.until(|task| task.process_state == ProcessState::Processed).await;
        let attempt = AttemptId { step: approve(), action: Action::Do, number: 1 };
        let key = DocumentKey::Output(attempt);
        let found = self.host.ports.store().documents_of(&task, &[key]).await.unwrap();
        found[0].body.clone()
    }
}

/// A service that accepts every request. Returns its URL.
async fn accepting_service() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let service = Router::new().fallback(async || Json(json!({})));
    tokio::spawn(async move { axum::serve(listener, service).await });
    url
}

fn approve() -> Part {
    "approve".parse().unwrap()
}

fn token(task: &Task, id: &str) -> CallbackToken {
    format!("{id}/approve/i{}", task.incarnation).parse().unwrap()
}

fn urls() -> CallbackUrls {
    CallbackUrls::new("", KEYS.parse().unwrap())
}

fn keys() -> CallbackKeys {
    KEYS.parse().unwrap()
}

fn url(task: &Task, id: &str) -> String {
    urls().url(&token(task, id), Timestamp::now() + Duration::from_secs(3_600))
}

#[track_caller]
fn assert_has(page: &str, parts: &[&str]) {
    for part in parts {
        assert!(page.contains(part), "no `{part}` in {page}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_browser_gets_a_page_that_answers_nothing_and_shows_no_input() {
    let fixture = Fixture::awaiting(amount()).await;
    let before = fixture.task().await;
    let browser = [(header::ACCEPT, BROWSER)];
    let (status, headers, page) =
        fixture.send(Method::GET, &fixture.url, &browser, String::new()).await;
    for (name, part) in [
        ("cache-control", "no-store"),
        ("referrer-policy", "no-referrer"),
        ("x-robots-tag", "noindex"),
        ("x-content-type-options", "nosniff"),
        ("content-security-policy", "default-src 'none'; style-src 'sha256-"),
        ("content-security-policy", "frame-ancestors 'none'"),
    ] {
        let value = headers[name].to_str().unwrap();
        assert!(value.contains(part), "{name}: {value}");
    }
    assert_eq!(status, 200);
    assert_has(
        &page,
        &[
            "purchase",
            "approve",
            "o-1",
            "the owner of the budget",
            "Answer by",
            "Is it within the budget?",
            r#"name="answer.limit" type="number" value="" max="500" step="1" required"#,
            r#"<select id="answer.ok" name="answer.ok" required><option value=""></option>"#,
            "<option value=\"high\">high</option>",
            r#"maxlength="60""#,
            r#"<input type="checkbox" name="sure" value="yes" required>"#,
            "Decline",
        ],
    );
    assert!(!page.contains("<script") && !page.contains(SECRET), "{page}");
    assert!(page.contains("&#60;script&#62;"), "{page}");
    // No script, no other address, and no inline style but the one that the policy names.
    for part in ["src=", "href=", "style=", "action=", " onclick"] {
        assert!(!page.contains(part), "{part} in {page}");
    }
    let head = fixture.send(Method::HEAD, &fixture.url, &browser, String::new()).await;
    assert_eq!((head.0, head.2.as_str()), (200, ""));
    // Programs get what they always got: they could take a page for an answer.
    for accept in ["*/*", "application/json, text/html;q=0.9", "application/json, text/html"] {
        let headers = [(header::ACCEPT, accept)];
        let refused = fixture.send(Method::GET, &fixture.url, &headers, String::new()).await;
        assert_eq!((refused.0, refused.1["allow"].to_str().unwrap()), (405, "POST"), "{accept}");
    }
    assert_eq!(fixture.task().await, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_confirmed_form_answers_with_the_types_of_the_schema() {
    let fixture = Fixture::awaiting(amount()).await;
    let fields = [
        ("answer.limit", "500"),
        ("answer.ok", "yes"),
        ("answer.risk", "high"),
        ("answer.code", "007"),
    ];
    let (status, page) = fixture.answer(&fields).await;
    assert_eq!(status, 202, "{page}");
    assert_has(&page, &["Your answer was sent", "step approve of task o-1"]);
    let answer = json!({ "limit": 500, "ok": true, "risk": "high", "code": "007" });
    assert_eq!(fixture.output().await, answer);
    let (status, page) = fixture.get(&fixture.url).await;
    assert_eq!(status, 409);
    assert_has(&page, &["This question has been answered"]);
    // A form that was opened before does not answer again.
    let own = token(&fixture.task().await.unwrap(), "o-1");
    let form_token = keys().sign_form(&own, Timestamp::now());
    let again = [&[("form_token", form_token.as_str()), ("sure", "yes")], &fields[..]].concat();
    assert_eq!(fixture.submit(&again).await.0, 409);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_fresh_token_of_its_own_page_and_a_tick_nothing_is_answered() {
    let fixture = Fixture::awaiting(amount()).await;
    let before = fixture.task().await;
    let own = token(before.as_ref().unwrap(), "o-1");
    let sign = |token: &CallbackToken, seconds_ago: u64| {
        keys().sign_form(token, Timestamp::now() - Duration::from_secs(seconds_ago))
    };
    let fresh = sign(&own, 0);
    let old = sign(&own, 3_700);
    let of_another = sign(&token(before.as_ref().unwrap(), "o-2"), 0);
    let of_the_url = fixture.url.rsplit_once('/').unwrap().1;
    let fields = [("answer.limit", "5"), ("answer.ok", "no")];
    for (form_token, confirmed, status, says) in [
        ("", true, 403, "the form was not opened by this link"),
        (of_the_url, true, 403, "the form was not opened by this link"),
        (of_another.as_str(), true, 403, "the form was not opened by this link"),
        (old.as_str(), true, 403, "the form was opened more than an hour ago"),
        (fresh.as_str(), false, 400, "tick the box above the button"),
    ] {
        for outcome in ["complete", "fail"] {
            let sure = if confirmed { "yes" } else { "" };
            let token = [("form_token", form_token), ("sure", sure), ("outcome", outcome)];
            let all = [&token[..], &fields, &[("reason", "no money")]].concat();
            let (refused, page) = fixture.submit(&all).await;
            assert_eq!(refused, status, "{page}");
            // The form is there again, with what was entered.
            assert_has(
                &page,
                &[says, r#"name="answer.limit" type="number" value="5""#, "no money"],
            );
        }
    }
    // A browser that sends nothing at all, and a scanner that does not say that it wants a page.
    assert_eq!(fixture.submit(&[]).await.0, 403);
    let (status, problem) = fixture.post("*/*", "answer.limit=5&sure=yes".to_owned()).await;
    assert_eq!(status, 400);
    assert_has(&problem, &["urn:steward:invalid-answer"]);
    assert_eq!(fixture.task().await, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_answer_gets_the_form_again_with_what_was_entered() {
    let fixture = Fixture::awaiting(amount()).await;
    let before = fixture.task().await;
    for (limit, says) in [
        ("501", "answer.limit: it is greater than the maximum of 500"),
        ("", "Amount is missing"),
        ("many", "Amount is not a number"),
    ] {
        let fields = [("answer.limit", limit), ("answer.ok", "yes"), ("answer.code", HOSTILE)];
        let (status, page) = fixture.answer(&fields).await;
        assert_eq!(status, 400, "{page}");
        assert_has(&page, &[says, &format!(r#"value="{limit}""#), "&#34;&#62;&#60;script&#62;"]);
        assert!(!page.contains("<script"), "{page}");
    }
    let fields = [("outcome", "fail"), ("reason", " ")];
    let (status, page) = fixture.answer(&fields).await;
    assert_eq!(status, 400);
    assert_has(&page, &["enter a reason", "<details open>"]);
    let large = "x".repeat(400_000);
    assert_eq!(fixture.answer(&[("answer.code", &large)]).await.0, 413);
    assert_eq!(fixture.task().await, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_person_declines_with_a_reason() {
    let fixture = Fixture::awaiting(amount()).await;
    let declined = fixture.answer(&[("outcome", "fail"), ("reason", "too dear")]).await;
    assert_eq!(declined.0, 202, "{}", declined.1);
    fixture.until(|task| task.process_state == ProcessState::Undone).await;
    let (status, page) = fixture.get(&fixture.url).await;
    assert_eq!(status, 410);
    assert_has(&page, &["No answer is needed any more"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_schemas_and_none_take_json() {
    let list = json!({ "type": "array", "items": { "type": "integer" } });
    let fixture = Fixture::awaiting(json!({ "within": "1d", "answer": list })).await;
    assert_has(&fixture.get(&fixture.url).await.1, &["<textarea", "required spellcheck"]);
    let (status, page) = fixture.answer(&[("output", "[1,")]).await;
    assert_eq!(status, 400);
    assert_has(&page, &["the answer is not JSON", "[1,</textarea>"]);
    assert_eq!(fixture.answer(&[("output", "[1, 2]")]).await.0, 202);
    assert_eq!(fixture.output().await, json!([1, 2]));

    let of_the_input = "a friend of ${ input.name }";
    let fixture = Fixture::awaiting(json!({ "within": "1d", "from": of_the_input })).await;
    let (_, page) = fixture.get(&fixture.url).await;
    assert_has(&page, &["<summary>Add a value</summary>"]);
    assert!(!page.contains("Asked") && !page.contains(SECRET), "{page}");
    // Without a schema, an empty request of a program completes the step. That of a browser does not.
    assert_eq!(fixture.submit(&[]).await.0, 403);
    assert_eq!(fixture.answer(&[("output", "")]).await.0, 202);
    assert_eq!(fixture.output().await, Value::Null);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn links_that_are_not_valid_any_more_have_a_page_each() {
    let fixture = Fixture::awaiting(amount()).await;
    let task = fixture.task().await.unwrap();
    let (unsigned, _) = fixture.url.rsplit_once('.').unwrap();
    let expired = urls().url(&token(&task, "o-1"), Timestamp::now());
    for (url, status, says) in [
        (format!("{unsigned}.{}", "A".repeat(43)), 403, "This link is not valid"),
        (unsigned.to_owned(), 400, "This link is not valid"),
        (expired, 410, "The time to answer is over"),
        (url(&task, "o-9"), 404, "This question does not exist any more"),
    ] {
        let (refused, page) = fixture.get(&url).await;
        assert_eq!(refused, status, "{page}");
        assert_has(&page, &["<!doctype html>", says]);
    }
}

/// Many clients send JSON under the type of a form, and Java's with the `Accept` of a browser.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn json_of_a_program_is_an_answer_whatever_its_headers_say() {
    let fixture = Fixture::awaiting(amount()).await;
    let java = "text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2";
    let post = async |body: &str| {
        let (status, text) = fixture.post(java, body.to_owned()).await;
        (status, serde_json::from_str::<Value>(&text).unwrap())
    };
    let (status, problem) = post(r#"{"limit":501,"ok":true}"#).await;
    assert_eq!((status, &problem["type"]), (400, &json!("urn:steward:invalid-answer")));
    let (status, accepted) = post(r#"{"limit":5,"ok":true}"#).await;
    let expected = json!({ "task_id": "o-1", "step": "approve", "answer": "completed" });
    assert_eq!((status, accepted), (202, expected));
}
