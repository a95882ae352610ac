//! The steps of `docs/providers.md`, each against an [imitation](imitation) of the rules that its provider documents. A trial
//! says what happens to the first calls of a provider, and how the task ends then.

mod imitation;

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
use steward_core::{definition::workflow::Workflow, model::task::ProcessState};
use steward_emulator::host::{Host, HostOptions};
use steward_runtime::ports::{Ports, StateStore};

use self::imitation::{
    Answer,
    Event::{self, Answers, Fails, KeyIsUsed, Lost, LostBeforeOutage},
    KeyPlace::{Field, Header},
    Provider, Rules,
};

use crate::support::serve;

const PAGE: &str = include_str!("../docs/providers.md");

const HOUR: Duration = Duration::from_secs(3_600);

/// How long a provider keeps keys in the trials in which it forgets one, and how long the step relies on them.
const KEEPS_KEYS: Duration = Duration::from_secs(5);
const KEY_VALID_FOR: Duration = Duration::from_secs(4);

/// The time of an attempt in a trial in which all attempts fail.
const SHORT_ATTEMPT: Duration = Duration::from_secs(2);

/// A provider that reads no key.
const NO_KEY: Rules =
    Rules { key: None, chars_max: 0, keeps_keys: None, stores_errors: false, other_body: None };

/// The providers of the page, and their rules.
fn providers() -> [(&'static str, Rules); 10] {
    let header = |name, chars_max| Rules { key: Some(Header(name)), chars_max, ..NO_KEY };
    let field = |name, chars_max| Rules { key: Some(Field(name)), chars_max, ..NO_KEY };
    let keeping = |time, rules| Rules { keeps_keys: Some(time), ..rules };
    let storing_errors = |rules| Rules { stores_errors: true, ..rules };
    let refusing = |status, body, rules| Rules { other_body: Some((status, body)), ..rules };
    [
        (
            "Stripe",
            keeping(
                24 * HOUR,
                storing_errors(refusing(
                    400,
                    r#"{ "error": { "type": "idempotency_error" } }"#,
                    header("idempotency-key", 255),
                )),
            ),
        ),
        ("Adyen", keeping(31 * 24 * HOUR, storing_errors(header("idempotency-key", 64)))),
        ("Checkout.com", keeping(24 * HOUR, header("cko-idempotency-key", 255))),
        ("Qonto", keeping(HOUR / 2, header("x-qonto-idempotency-key", 255))),
        ("PayPal", header("paypal-request-id", 108)),
        ("Square", field("idempotency_key", 45)),
        (
            "Resend",
            keeping(
                24 * HOUR,
                refusing(
                    409,
                    r#"{ "name": "invalid_idempotent_request" }"#,
                    header("idempotency-key", 256),
                ),
            ),
        ),
        ("Shopify GraphQL", NO_KEY),
        ("GitHub", NO_KEY),
        (
            "AWS APIs",
            keeping(
                HOUR / 6,
                refusing(
                    400,
                    r#"{ "__type": "x#IdempotentParameterMismatchException" }"#,
                    field("ClientRequestToken", 36),
                ),
            ),
        ),
    ]
}

fn rules_of(section: &str) -> Rules {
    providers().into_iter().find(|(name, _)| *name == section).expect("a provider").1
}

/// How a trial ends: the state of the task, the number of effects, and whether the call was repeated.
type End = (ProcessState, usize, bool);

/// One task with a step of the page.
struct Trial {
    section: &'static str,
    events: Vec<Event>,
    /// Changes the workflow, so that the trial takes seconds.
    shorten: fn(&mut Workflow),
    keeps_keys: Option<Duration>,
    end: End,
}

const DONE_ONCE: End = (ProcessState::Processed, 1, true);
/// Nothing was done by this task, and the call was not repeated.
const REFUSED: End = (ProcessState::Error, 0, false);

fn trial(section: &'static str, events: impl Into<Vec<Event>>, end: End) -> Trial {
    let keeps_keys = rules_of(section).keeps_keys;
    Trial { section, events: events.into(), shorten: |_| (), keeps_keys, end }
}

/// The provider cannot be reached until it has forgotten the key.
fn forgetting(section: &'static str, shorten: fn(&mut Workflow), end: End) -> Trial {
    let trial = trial(section, [LostBeforeOutage], end);
    Trial { shorten, keeps_keys: Some(KEEPS_KEYS), ..trial }
}

fn shorten_attempts(workflow: &mut Workflow) {
    workflow.steps["call"].complete_within = Some(SHORT_ATTEMPT);
}

fn shorten_key(workflow: &mut Workflow) {
    shorten_attempts(workflow);
    workflow.steps["call"].recovery.key_valid_for = Some(KEY_VALID_FOR);
}

fn remove_key_limit(workflow: &mut Workflow) {
    shorten_attempts(workflow);
    let recovery = &mut workflow.steps["call"].recovery;
    recovery.key_valid_for = None;
    recovery.attempts.0 = 5;
}

/// What each provider documents on repeated calls and keys.
fn trials_of_keys() -> Vec<Trial> {
    let answers = |status, body: &str| Answers(Answer::new(status, body));
    let replays_error = Trial {
        shorten: shorten_attempts,
        ..trial("Stripe", [Fails], (ProcessState::Error, 0, true))
    };
    let paypal = r#"{ "details": [{ "issue": "PREVIOUS_REQUEST_IN_PROGRESS" }] }"#;
    let aws = r#"{ "__type": "com.amazonaws.dynamodb.v20120810#TransactionInProgressException" }"#;
    let mut trials = vec![
        replays_error,
        trial("Stripe", [Lost, answers(409, "{}")], DONE_ONCE),
        trial("Stripe", [KeyIsUsed], REFUSED),
        trial("Adyen", [Lost], DONE_ONCE),
        trial("Checkout.com", [Lost], DONE_ONCE),
        trial("Checkout.com", [Fails], DONE_ONCE),
        trial("Qonto", [Lost], DONE_ONCE),
        trial("Qonto", [Fails], DONE_ONCE),
        // It answers with the result of the other request.
        trial("Qonto", [KeyIsUsed], (ProcessState::Processed, 0, false)),
        trial("PayPal", [Lost, answers(409, paypal)], DONE_ONCE),
        trial("Square", [Lost], DONE_ONCE),
        trial(
            "Resend",
            [Lost, answers(409, r#"{ "name": "concurrent_idempotent_requests" }"#)],
            DONE_ONCE,
        ),
        trial("Resend", [KeyIsUsed], REFUSED),
        trial("AWS APIs", [Lost, answers(400, aws)], DONE_ONCE),
        trial("AWS APIs", [KeyIsUsed], REFUSED),
        // Without `key_valid_for`, what the others are saved from.
        forgetting("Qonto", remove_key_limit, (ProcessState::Processed, 2, true)),
    ];
    for section in ["Stripe", "Adyen", "Checkout.com", "Qonto", "Resend", "AWS APIs"] {
        trials.push(forgetting(section, shorten_key, (ProcessState::Error, 1, true)));
    }
    trials
}

/// What each provider documents on limits, and how it answers a refusal.
fn trials_of_limits() -> Vec<Trial> {
    let answers = |status, body: &str| Answers(Answer::new(status, body));
    let github =
        |status, message: &str| Answer::new(status, &json!({ "message": message }).to_string());
    let limited = |status| github(status, "API rate limit exceeded");
    let next_second = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() + 1;
    let reset =
        limited(403).with("x-ratelimit-remaining", 0).with("x-ratelimit-reset", next_second);
    let secondary = github(403, "You have exceeded a secondary rate limit.");
    let refused = github(403, "Resource not accessible by integration");
    let aws = |name| {
        answers(
            400,
            &json!({ "__type": format!("com.amazonaws.dynamodb.v20120810#{name}") }).to_string(),
        )
    };
    let done_in_doubt = (ProcessState::Error, 1, false);
    vec![
        trial(
            "Shopify GraphQL",
            [answers(200, r#"{ "errors": [{ "extensions": { "code": "THROTTLED" } }] }"#)],
            DONE_ONCE,
        ),
        trial("Shopify GraphQL", [answers(200, r#"{ "errors": [{ "message": "no" }] }"#)], REFUSED),
        trial("Shopify GraphQL", [Lost], done_in_doubt),
        trial("GitHub", [Answers(reset)], DONE_ONCE),
        trial("GitHub", [Answers(limited(403).with("retry-after", 1))], DONE_ONCE),
        trial("GitHub", [Answers(limited(429).with("retry-after", 1))], DONE_ONCE),
        trial("GitHub", [Answers(secondary)], DONE_ONCE),
        trial("GitHub", [Answers(refused)], REFUSED),
        trial("GitHub", [Lost], done_in_doubt),
        trial("AWS APIs", [aws("ThrottlingException")], DONE_ONCE),
        trial("AWS APIs", [aws("ProvisionedThroughputExceededException")], DONE_ONCE),
        trial("AWS APIs", [aws("ValidationException")], REFUSED),
    ]
}

/// The step in a section of the page.
fn step_of(section: &str) -> String {
    let (_, rest) = PAGE.split_once(&format!("\n## {section}\n")).expect("a section");
    let (_, block) = rest.split_once("```yaml\n").expect("a step");
    let step = block.split_once("```").expect("the end of a step").0;
    // A trial has no minutes.
    step.replace("after: 1m", "after: 1s")
}

/// The workflow of trial `n`, whose step is that of a section of the page.
fn workflow(n: usize, section: &str) -> Workflow {
    let step = step_of(section);
    let (agent, step) = step.split_once('\n').expect("more than an agent");
    assert!(agent.starts_with("agent: "), "{section}");
    let step: String = step.lines().map(|line| format!("    {line}\n")).collect();
    let text = format!("name: w-{n}\nversion: 1\nsteps:\n  call:\n    agent: a-{n}\n{step}");
    steward_definition_file::parse(Path::new("providers.md"), &text).unwrap()
}

async fn serve_provider(provider: Arc<Mutex<Provider>>) -> String {
    let handler = move |request: Request| {
        let provider = provider.clone();
        async move {
            let (parts, body) = request.into_parts();
            let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
            let body: Value = serde_json::from_slice(&body).unwrap_or_default();
            response(provider.lock().unwrap().call(&parts.headers, &body))
        }
    };
    serve(Router::new().fallback(handler)).await
}

fn response(answer: Option<Answer>) -> Response<Body> {
    let Some(Answer { status, headers, body }) = answer else {
        let broken = stream::iter([Err::<&str, _>(std::io::Error::other("broken"))]);
        return Response::new(Body::from_stream(broken));
    };
    let response = Response::builder().status(status);
    let response = headers.into_iter().fold(response, |it, (name, value)| it.header(name, value));
    response.body(body.to_string().into()).unwrap()
}

/// The id of the task of trial `n`, as long as an id may be.
fn task_id(n: usize) -> String {
    format!("{n:t>128}")
}

/// Submits the task of trial `n`.
async fn submit(host: &Host, n: usize) {
    let input = json!({
        "amount": 12, "authorization": "a-1", "source": "s-1", "to": "ada@example.com", "mutation": "m",
        "repository": "o", "tag": "v1", "items": [],
    });
    let submission = json!({ "task_id": task_id(n), "workflow": format!("w-{n}"), "input": input });
    let url = format!("http://{}/tasks", host.address.unwrap());
    let accepted = reqwest::Client::new().post(url).body(submission.to_string()).send().await;
    assert_eq!(accepted.unwrap().status().as_u16(), 202);
}

/// The state in which the task of trial `n` stops.
async fn stopped(host: &Host, n: usize) -> ProcessState {
    let deadline = Instant::now() + Duration::from_secs(180);
    loop {
        let task = host.ports.store().load(&task_id(n).parse().unwrap()).await.unwrap();
        match task {
            Some(task) if task.process_state.has_stopped() => return task.process_state,
            other => assert!(Instant::now() < deadline, "not ended: {other:#?}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Runs all trials at the same time, each with an agent of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_documented_step_does_what_the_rules_of_its_provider_ask_for() {
    let trials: Vec<_> = trials_of_keys().into_iter().chain(trials_of_limits()).collect();
    let (mut workflows, mut agents, mut providers) = (Vec::new(), Vec::new(), Vec::new());
    for (n, trial) in trials.iter().enumerate() {
        let rules = Rules { keeps_keys: trial.keeps_keys, ..rules_of(trial.section) };
        let provider = Arc::new(Mutex::new(Provider::new(rules, trial.events.clone())));
        let url = serve_provider(provider.clone()).await;
        let mut workflow = workflow(n, trial.section);
        (trial.shorten)(&mut workflow);
        let target = if trial.section == "AWS APIs" { format!("aws@{url}") } else { url };
        agents.push((format!("a-{n}").parse().unwrap(), target.parse().unwrap()));
        workflows.push(workflow);
        providers.push(provider);
    }
    let listen = Some("127.0.0.1:0".parse().unwrap());
    let host = Host::start(HostOptions { listen, workflows, agents, ..HostOptions::default() });
    let host = host.await.unwrap();
    for n in 0..trials.len() {
        submit(&host, n).await;
    }
    for (n, (trial, provider)) in trials.iter().zip(providers).enumerate() {
        let state = stopped(&host, n).await;
        let provider = provider.lock().unwrap();
        let end = (state, provider.effects, provider.calls > 1);
        assert_eq!(end, trial.end, "{}: {:?}", trial.section, trial.events);
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
            let mut provider = Provider::new(rules, Vec::new());
            (0..2).for_each(|_| drop(provider.call(&headers, &json!({}))));
            (section, provider.effects)
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

#[test]
fn a_step_relies_on_a_key_for_less_time_than_its_provider_keeps_it() {
    for (n, (section, rules)) in providers().into_iter().enumerate() {
        let recovery = &workflow(n, section).steps["call"].recovery;
        assert_eq!(recovery.key_valid_for.is_some(), rules.keeps_keys.is_some(), "{section}");
        assert!(recovery.key_valid_for <= rules.keeps_keys.map(|time| time * 29 / 30), "{section}");
    }
}
