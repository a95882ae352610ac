//! The steps of `docs/providers.md`, each against an imitation of the rules that its provider documents. The answer of the first
//! call that takes effect is lost, or the first call is throttled. Each task is Processed, with one effect.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, Mutex},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use axum::{
    Router,
    body::Body,
    extract::Request,
    http::{HeaderMap, Response},
};
use futures_util::stream;
use serde_json::{Value, json};
use steward_core::model::task::{ProcessState, Task};
use steward_emulator::host::{Host, HostOptions};
use steward_runtime::ports::{Ports, StateStore};

const PAGE: &str = include_str!("../docs/providers.md");

/// What a provider has done.
#[derive(Default)]
struct Ledger {
    calls: usize,
    /// The keys of the calls that took effect. A call without a key has its number.
    effects: Vec<String>,
}

/// The answer to a call: a status, headers and a body, or a connection that breaks.
type Answer = Option<(u16, Vec<(&'static str, String)>, Value)>;
type Rules = Box<dyn Fn(&mut Ledger, &HeaderMap, &Value) -> Answer + Send + Sync>;

fn answer(status: u16, body: Value) -> Answer {
    Some((status, Vec::new(), body))
}

/// A provider that stores the first answer of a key, of at most `chars_max` characters. That answer is lost.
fn by_key(
    key: impl Fn(&HeaderMap, &Value) -> Option<String>,
    chars_max: usize,
) -> impl Fn(&mut Ledger, &HeaderMap, &Value) -> Answer {
    move |ledger, headers, body| {
        let key = key(headers, body).unwrap_or_else(|| format!("call {}", ledger.calls));
        if key.len() > chars_max {
            return answer(400, json!({ "message": "the idempotency key is too long" }));
        }
        if ledger.effects.contains(&key) {
            return answer(201, json!({ "id": 1 }));
        }
        ledger.effects.push(key);
        None
    }
}

fn by_header(name: &'static str, chars_max: usize) -> Rules {
    let key =
        move |headers: &HeaderMap, _: &Value| Some(headers.get(name)?.to_str().unwrap().to_owned());
    Box::new(by_key(key, chars_max))
}

fn by_field(name: &'static str, chars_max: usize) -> Rules {
    let key = move |_: &HeaderMap, body: &Value| Some(body.get(name)?.as_str()?.to_owned());
    Box::new(by_key(key, chars_max))
}

/// A provider that recognises no repetition, and throttles the first call.
fn throttles(throttled: impl Fn() -> Answer + Send + Sync + 'static) -> Rules {
    Box::new(move |ledger, _, _| {
        if ledger.calls == 1 {
            return throttled();
        }
        ledger.effects.push(format!("call {}", ledger.calls));
        answer(200, json!({ "data": { "id": 1 } }))
    })
}

/// The keys of the page's sections, and their rules.
fn providers() -> Vec<(&'static str, Rules)> {
    let in_progress = by_header("idempotency-key", 256);
    vec![
        ("Stripe", by_header("idempotency-key", 255)),
        ("Adyen", by_header("idempotency-key", 64)),
        ("Checkout.com", by_header("cko-idempotency-key", 255)),
        ("Qonto", by_header("x-qonto-idempotency-key", 255)),
        ("PayPal", by_header("paypal-request-id", 108)),
        ("Square", by_field("idempotency_key", 45)),
        (
            "Resend",
            Box::new(move |ledger, headers, body| match ledger.calls {
                // The first call, whose answer is lost, is still in progress.
                2 => answer(409, json!({ "name": "concurrent_idempotent_requests" })),
                _ => in_progress(ledger, headers, body),
            }),
        ),
        (
            "Shopify GraphQL",
            throttles(|| {
                answer(200, json!({ "errors": [{ "extensions": { "code": "THROTTLED" } }] }))
            }),
        ),
        (
            "GitHub",
            throttles(|| {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
                let reset = (now + Duration::from_secs(1)).as_secs().to_string();
                let headers =
                    vec![("x-ratelimit-remaining", "0".to_owned()), ("x-ratelimit-reset", reset)];
                Some((403, headers, json!({ "message": "API rate limit exceeded" })))
            }),
        ),
        (
            "AWS JSON APIs",
            throttles(|| {
                answer(
                    400,
                    json!({ "__type": "com.amazonaws.dynamodb.v20120810#ThrottlingException" }),
                )
            }),
        ),
    ]
}

/// The definition of the step in a section of the page.
fn step_of(section: &str) -> String {
    let (_, rest) = PAGE.split_once(&format!("\n## {section}\n")).expect("a section");
    let (_, block) = rest.split_once("```yaml\n").expect("a step");
    block.split_once("```").expect("the end of a step").0.to_owned()
}

async fn serve(rules: Rules) -> (String, Arc<Mutex<Ledger>>) {
    let ledger = Arc::new(Mutex::new(Ledger::default()));
    let (of_calls, rules) = (ledger.clone(), Arc::new(rules));
    let handler = move |request: Request| {
        let (ledger, rules) = (of_calls.clone(), rules.clone());
        async move {
            let (parts, body) = request.into_parts();
            let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
            let body = serde_json::from_slice(&body).unwrap_or_default();
            let ledger = &mut *ledger.lock().unwrap();
            ledger.calls += 1;
            response(rules(ledger, &parts.headers, &body))
        }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(
        async move { axum::serve(listener, Router::new().fallback(handler)).await.unwrap() },
    );
    (url, ledger)
}

fn response(answer: Answer) -> Response<Body> {
    let Some((status, headers, body)) = answer else {
        let broken = stream::iter([Err::<&str, _>(std::io::Error::other("broken"))]);
        return Response::new(Body::from_stream(broken));
    };
    let response = Response::builder().status(status);
    let response = headers.into_iter().fold(response, |it, (name, value)| it.header(name, value));
    response.body(body.to_string().into()).unwrap()
}

/// Runs one task with a step of the page.
async fn run(section: &str, rules: Rules) -> (Task, Vec<String>) {
    let (url, ledger) = serve(rules).await;
    // The signature needs the host of AWS: `functions/agent/tests/aws` has tests of it.
    let step = step_of(section).replace("  auth: aws\n", "");
    let step: String = step.lines().map(|line| format!("    {line}\n")).collect();
    let text = format!("name: w\nversion: 1\nsteps:\n  call:\n{step}");
    let workflow = steward_definition_file::parse(Path::new("providers.md"), &text).unwrap();
    let agent = workflow.steps["call"].agents()[0].clone();
    let host = Host::start(HostOptions {
        listen: Some("127.0.0.1:0".parse().unwrap()),
        workflows: vec![workflow],
        agents: vec![(agent, url.parse().unwrap())],
        ..HostOptions::default()
    });
    let host = host.await.unwrap();
    // As long as an id may be.
    let task_id = "t".repeat(128);
    let input = json!({
        "amount": 12, "authorization": "a-1", "source": "s-1", "to": "ada@example.com", "mutation": "m",
        "repository": "o", "tag": "v1", "items": [],
    });
    let submission = json!({ "task_id": task_id, "workflow": "w", "input": input });
    let url = format!("http://{}/tasks", host.address.unwrap());
    let client = reqwest::Client::new();
    let accepted = client.post(url).body(submission.to_string()).send().await.unwrap();
    assert_eq!(accepted.status().as_u16(), 202, "{section}");
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        let task = host.ports.store().load(&task_id.parse().unwrap()).await.unwrap();
        match task {
            Some(task) if task.process_state.has_stopped() => {
                return (task, ledger.lock().unwrap().effects.clone());
            }
            other => assert!(Instant::now() < deadline, "{section}: not ended: {other:#?}"),
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_documented_step_takes_effect_once_at_its_provider() {
    for (section, rules) in providers() {
        let (task, effects) = Box::pin(run(section, rules)).await;
        let end = (task.process_state, effects.len());
        assert_eq!(end, (ProcessState::Processed, 1), "{section}");
    }
}

/// Without its settings, a step of these providers is refused or has two effects: the imitations can tell.
#[test]
fn a_provider_tells_a_key_that_it_does_not_read() {
    let long = "k".repeat(200);
    let headers =
        HeaderMap::from_iter([("idempotency-key".parse().unwrap(), long.parse().unwrap())]);
    let effects: BTreeMap<_, _> = providers()
        .into_iter()
        .take(6)
        .map(|(section, rules)| {
            let mut ledger = Ledger::default();
            for _ in 0..2 {
                ledger.calls += 1;
                rules(&mut ledger, &headers, &json!({}));
            }
            (section, ledger.effects.len())
        })
        .collect();
    let expected = [
        ("Adyen", 0),
        ("Checkout.com", 2),
        ("PayPal", 2),
        ("Qonto", 2),
        ("Square", 2),
        ("Stripe", 1),
    ];
    assert_eq!(effects, expected.into());
}
