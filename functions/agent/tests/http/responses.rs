//! How the agent interprets responses and faults of the connection.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::{Duration, SystemTime},
};

use axum::{
    body::{Body, Bytes},
    http::{Response, StatusCode},
};
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use steward_agent::attempt::CallFault;
use steward_core::{
    expression::template::Template,
    limits,
    model::{
        messages::StepRequest,
        responses::{ResponseClass, ResponseOverrides},
    },
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpSocket,
    sync::oneshot,
};

use crate::test_server::{
    TestServer, get, output_of, permanent, redirect, respond, respond_problem, service, transient,
    unusable_response, without_detail,
};

fn nested(levels: usize) -> String {
    format!("{}{}", "[".repeat(levels), "]".repeat(levels))
}

#[tokio::test]
async fn a_json_body_is_the_output() {
    for status in [200, 201, 202] {
        let remote =
            TestServer::start(move || respond(status, r#"{"charge":"ch-1","amount":20}"#)).await;
        assert_eq!(remote.call().await, Ok(json!({ "charge": "ch-1", "amount": 20 })), "{status}");
    }
}

#[tokio::test]
async fn an_empty_body_is_null() {
    for status in [200, 201, 204] {
        let remote = TestServer::start(move || respond(status, "")).await;
        assert_eq!(remote.call().await, Ok(Value::Null), "{status}");
    }
}

/// What a service says is data: a person's address, or a card.
#[tokio::test]
async fn a_refusal_is_permanent_and_no_word_of_the_service_is_in_its_reason() {
    let problem = json!({
        "type": "https://pay.example/declined", "title": "Card 4111 of ada@mail.example declined",
        "detail": "card 4111 1111 1111 1111 of Ada", "balance": 3,
    });
    for (status, reason) in [
        (400, "HTTP 400 Bad Request"),
        (401, "HTTP 401 Unauthorized"),
        (402, "HTTP 402 Payment Required"),
        (403, "HTTP 403 Forbidden"),
        (404, "HTTP 404 Not Found"),
        (422, "HTTP 422 Unprocessable Entity"),
    ] {
        let body = problem.to_string();
        let remote = TestServer::start(move || respond_problem(status, body.clone())).await;
        assert_eq!(remote.call().await, permanent(reason));
    }
    let body = problem.to_string();
    let remote = TestServer::start(move || respond_problem(409, body.clone())).await;
    let reason = "HTTP 409 Conflict".to_owned();
    let conflict = CallFault::Conflict { reason, retry_after: None, detail: None };
    assert_eq!(remote.call().await, Err(conflict));
    let broken = TestServer::with_raw_connections(|mut socket| async move {
        let answer = "HTTP/1.1 402 Payment Required\r\ncontent-type: application/problem+json\r\ncontent-length: 99\r\n\r\n{\"title\":";
        socket.write_all(answer.as_bytes()).await.unwrap();
    });
    assert_eq!(broken.await.call().await, permanent("HTTP 402 Payment Required"));
}

#[tokio::test]
async fn a_redirect_is_not_followed_and_may_have_run() {
    for (status, reason) in [
        (301, "HTTP 301 Moved Permanently"),
        (302, "HTTP 302 Found"),
        (303, "HTTP 303 See Other"),
        (307, "HTTP 307 Temporary Redirect"),
        (308, "HTTP 308 Permanent Redirect"),
    ] {
        let answers = [respond(200, ""), redirect(status, "https://b.example/pay?card=4111#4111")];
        let answers = Arc::new(Mutex::new(VecDeque::from(answers)));
        let remote = TestServer::start(move || {
            let answer = answers.lock().unwrap().pop_front();
            answer.unwrap_or_else(|| respond(200, r#""followed""#))
        });
        let remote = remote.await;
        let service = remote.service();
        assert_eq!(output_of(&service, &get("/"), None).await, Ok(Value::Null));
        let reason = format!("{reason} to https://b.example");
        assert_eq!(output_of(&service, &get("/"), None).await, redirected(&reason));
        assert_eq!(remote.request_count(), 2);
    }
}

/// The attempt decides what it means: a service often carries a POST out before it redirects, or the base URL is wrong.
fn redirected(reason: &str) -> Result<Value, CallFault> {
    Err(CallFault::Redirected { reason: reason.to_owned(), detail: None })
}

#[tokio::test]
async fn the_target_of_a_redirect_is_named_without_what_may_be_payload() {
    let remote = TestServer::start(|| redirect(308, "https://b.example/")).await;
    assert_eq!(remote.call().await, redirected("HTTP 308 Permanent Redirect to https://b.example"));
    let same_host = " to another path of this host, perhaps only with or without a `/` at its end";
    for (target, named) in [
        ("https://me:4111@b.example:8443/x", " to https://b.example:8443"),
        ("//me:4111@b.example/x", ""),
        ("/4111", same_host),
    ] {
        let remote = TestServer::start(move || redirect(301, target)).await;
        let reason = format!("HTTP 301 Moved Permanently{named}");
        assert_eq!(remote.call().await, redirected(&reason));
    }
    // A status that the step defines means what it says.
    let remote = TestServer::start(|| redirect(303, "/4111")).await;
    let responses = [(303, ResponseClass::Unknown)].into_iter().collect();
    let output = output_of(&remote.service(), &StepRequest { responses, ..get("/") }, None).await;
    assert_eq!(
        without_detail(output),
        unusable_response(&format!("HTTP 303 See Other{same_host}"))
    );
}

#[tokio::test]
async fn a_conflict_may_come_from_an_earlier_call_in_progress() {
    for (status, reason) in [(409, "HTTP 409 Conflict"), (423, "HTTP 423 Locked")] {
        let remote =
            TestServer::start(move || respond_problem(status, r#"{"title":"Busy"}"#)).await;
        assert_eq!(
            remote.call().await,
            Err(CallFault::Conflict { reason: reason.to_owned(), retry_after: None, detail: None })
        );
    }
    let remote = TestServer::start(|| {
        let asks = Response::builder().status(409).header("retry-after", "7");
        asks.body(Body::empty()).unwrap()
    });
    let Err(CallFault::Conflict { retry_after, .. }) = remote.await.call().await else { panic!() };
    assert_eq!(retry_after, Some(Duration::from_secs(7)));
}

#[tokio::test]
async fn a_step_can_define_the_meaning_of_statuses() {
    let classes = [
        (404, ResponseClass::Completed),
        (409, ResponseClass::Failed),
        (422, ResponseClass::Retry),
        (429, ResponseClass::Retry),
        (500, ResponseClass::Unknown),
        (200, ResponseClass::Failed),
        (202, ResponseClass::Retry),
    ];
    let responses: ResponseOverrides = classes.into_iter().collect();
    let retry = |reason: &str, may_have_run| {
        let (reason, retry_after) = (reason.to_owned(), Some(Duration::ZERO));
        Err(CallFault::Transient { reason, retry_after, may_have_run, detail: None })
    };
    for (status, body, expected) in [
        (404, r#"{"gone":true}"#, Ok(json!({ "gone": true }))),
        (404, "<html>", Ok(json!({ "text": "<html>" }))),
        (409, "", permanent("HTTP 409 Conflict")),
        (422, "", retry("HTTP 422 Unprocessable Entity", true)),
        (429, "", retry("HTTP 429 Too Many Requests", false)),
        (500, "", unusable_response("HTTP 500 Internal Server Error")),
        (200, "{}", permanent("HTTP 200 OK, not judged a success")),
        (202, "{}", retry("HTTP 202 Accepted, not judged a success", true)),
    ] {
        let remote = TestServer::start(move || respond(status, body)).await;
        let request = StepRequest { responses: responses.clone(), ..get("/") };
        let result = without_detail(output_of(&remote.service(), &request, None).await);
        assert_eq!(result, expected, "{status}");
    }
}

/// Shopify answers 200 when it throttles, GitHub 403, and AWS 400.
#[tokio::test]
async fn a_step_can_judge_a_response_by_what_it_says() {
    let responses: ResponseOverrides = serde_json::from_value(json!({
        "200": [{
            "when": "${ response.body.errors[0].extensions.code == 'THROTTLED' }",
            "class": "retry", "did_not_run": true,
        }],
        "403": [{
            "when": "${ 'retry-after' in response.headers }", "class": "retry", "did_not_run": true,
        }],
        "400": [{
            "when": "${ response.body.__type.endsWith('ThrottlingException') }",
            "class": "retry", "did_not_run": true, "after": "2s",
        }],
    }))
    .unwrap();
    let retry = |reason: &str, seconds| {
        let (reason, retry_after) = (reason.to_owned(), Some(Duration::from_secs(seconds)));
        Err(CallFault::Transient { reason, retry_after, may_have_run: false, detail: None })
    };
    let throttled = r#"{"errors":[{"extensions":{"code":"THROTTLED"}}]}"#;
    let large = json!({ "data": large_text() }).to_string();
    let large_error = format!(r#"{{"rest":"{}",{}"#, large_text(), &throttled[1..]);
    for (status, retry_after, body, expected) in [
        (200, None, throttled, retry("HTTP 200 OK, not judged a success", 0)),
        (200, None, r#"{"data":7}"#, Ok(json!({ "data": 7 }))),
        (200, None, "OK", Ok(json!({ "text": "OK" }))),
        (200, None, &large_error, retry("HTTP 200 OK, not judged a success", 0)),
        (200, None, &large, too_large()),
        (403, Some("90"), "", retry("HTTP 403 Forbidden", 90)),
        (403, None, "", permanent("HTTP 403 Forbidden")),
        (400, None, r#"{"__type":"x#ThrottlingException"}"#, retry("HTTP 400 Bad Request", 2)),
        (400, None, "<p>no</p>", permanent("HTTP 400 Bad Request")),
    ] {
        let body = body.to_owned();
        let remote = TestServer::start(move || {
            let answer = Response::builder().status(status);
            let answer =
                retry_after.into_iter().fold(answer, |it, wait| it.header("retry-after", wait));
            answer.body(body.clone().into()).unwrap()
        });
        let remote = remote.await;
        let request = StepRequest { responses: responses.clone(), ..get("/") };
        let result = without_detail(output_of(&remote.service(), &request, None).await);
        assert_eq!(result, expected, "{status}");
    }
}

/// It may be an error, so it does not complete its step. A case that needs no body counts before it.
#[tokio::test]
async fn a_success_with_a_body_that_is_too_large_to_be_judged_is_unknown() {
    let huge = "x".repeat(limits::RESPONSE_BYTES_MAX + 1);
    let remote = TestServer::start(move || respond(200, huge.clone())).await;
    let service = remote.service();
    let outcome = async |cases: Value| {
        let responses = serde_json::from_value(json!({ "200": cases })).unwrap();
        output_of(&service, &StepRequest { responses, ..get("/") }, None).await
    };
    let error = json!({ "when": "${ response.body.error == 'busy' }", "class": "retry" });
    let ok = json!({ "when": "${ response.status == 200 }", "class": "completed" });
    let reason =
        "HTTP 200 OK: `responses` judges the body, and it exceeds the limit of 1048576 bytes";
    assert_eq!(outcome(json!([error])).await, unusable_response(reason));
    assert_eq!(outcome(json!([error, ok])).await, unusable_response(reason));
    assert_eq!(outcome(json!([ok, error])).await, too_large());
}

/// A condition reads the body of an error. That it breaks off or takes too long does not change what the status says.
#[tokio::test]
async fn a_body_that_is_judged_is_read_once() {
    let cases =
        json!([{ "when": "${ response.body.late }", "class": "retry" }, { "class": "completed" }]);
    let responses: ResponseOverrides = serde_json::from_value(
        json!({ "404": cases, "429": [{ "when": "${ false }", "class": "failed" }] }),
    )
    .unwrap();
    let broken = TestServer::with_raw_connections(|mut socket| async move {
        let answer = "HTTP/1.1 404 Not Found\r\ncontent-length: 99\r\n\r\n{\"id\":";
        socket.write_all(answer.as_bytes()).await.unwrap();
    });
    let request = StepRequest { responses: responses.clone(), ..get("/") };
    let output = output_of(&broken.await.service(), &request, None).await;
    assert_eq!(output, Ok(Value::Null));
    let stalled = TestServer::start(|| {
        let begun = stream::iter([Ok::<_, std::io::Error>("busy")]).chain(stream::pending());
        respond(429, Body::from_stream(begun))
    });
    let stalled = stalled.await;
    let request = StepRequest { responses, call_within_ms: 1_000, ..get("/") };
    let service = stalled.service();
    let call = output_of(&service, &request, None);
    let output = tokio::time::timeout(Duration::from_secs(1), call).await.expect("read once");
    let Err(CallFault::Transient { may_have_run: false, detail: Some(detail), .. }) = output else {
        panic!("{output:?}")
    };
    assert_eq!(detail.as_str(), "busy…");
}

#[tokio::test]
async fn an_output_is_selected_from_a_response_that_is_too_large_to_be_one() {
    let large = json!({ "id": "ch-1", "rest": "x".repeat(limits::DOCUMENT_BYTES_MAX) }).to_string();
    let remote = TestServer::start(move || {
        Response::builder().status(201).header("ETag", "v7").body(large.clone().into()).unwrap()
    })
    .await;
    assert_eq!(remote.call().await, too_large());
    let select = |template: Value| StepRequest {
        output: Some(Box::new(Template::parse(template))),
        ..get("/")
    };
    let selected = json!({ "id": "${ response.body.id }", "etag": "${ response.headers.etag }" });
    let output = output_of(&remote.service(), &select(selected), None).await;
    assert_eq!(output, Ok(json!({ "id": "ch-1", "etag": "v7" })));
    let whole = output_of(&remote.service(), &select(json!("${ response.body }")), None).await;
    assert!(matches!(whole, Err(CallFault::Permanent { may_have_run: true, .. })), "{whole:?}");

    let huge = "x".repeat(limits::RESPONSE_BYTES_MAX);
    let remote = TestServer::start(move || respond(200, format!("\"{huge}\""))).await;
    let output = output_of(&remote.service(), &select(json!("${ response.body }")), None).await;
    assert_eq!(output, unusable_response(&exceeds(limits::RESPONSE_BYTES_MAX)));
    // A template that does not read the body needs none.
    let status = select(json!("${ response.status }"));
    assert_eq!(output_of(&remote.service(), &status, None).await, Ok(json!(200)));
}

#[tokio::test]
async fn an_error_status_that_completes_the_step_has_an_output_too() {
    let responses: ResponseOverrides =
        serde_json::from_value(json!({ "404": "completed" })).unwrap();
    let output = json!("${ response.status == 404 ? 'gone' : response.body.id }");
    let output = Some(Box::new(Template::parse(output)));
    let remote = TestServer::start(|| respond(404, "<html>")).await;
    let request = StepRequest { responses, output, ..get("/") };
    assert_eq!(output_of(&remote.service(), &request, None).await, Ok(json!("gone")));
}

/// The output in place of a body that is too large for one: the call succeeded, so its task is not undone.
fn too_large() -> Result<Value, CallFault> {
    Ok(json!({ "too_large": true }))
}

fn large_text() -> String {
    "x".repeat(limits::DOCUMENT_BYTES_MAX)
}

fn exceeds(bytes: usize) -> String {
    format!("the response exceeds the limit of {bytes} bytes")
}

#[tokio::test]
async fn server_errors_are_transient() {
    for status in [500, 502, 503, 504] {
        let remote = TestServer::start(move || respond(status, r#"{"title":"Busy"}"#)).await;
        let status = StatusCode::from_u16(status).unwrap();
        assert_eq!(remote.call().await, transient(&format!("HTTP {status}")));
    }
}

/// What the service said is for operators; a body that does not end must not hide the status.
#[tokio::test]
async fn the_body_of_a_transient_error_is_kept_and_awaited_for_a_moment_only() {
    let remote = TestServer::start(|| respond(503, "disk full")).await;
    let output = output_of(&remote.service(), &get("/"), None).await;
    let Err(CallFault::Transient { detail: Some(detail), .. }) = output else {
        panic!("{output:?}")
    };
    assert_eq!(detail.as_str(), "disk full");
    let endless = || {
        let begun = stream::iter([Ok::<_, std::io::Error>("disk")]).chain(stream::pending());
        respond(503, Body::from_stream(begun))
    };
    let remote = TestServer::start(endless).await;
    assert_eq!(remote.call().await, transient("HTTP 503 Service Unavailable"));
    // Also if the call may take only a second.
    let short = StepRequest { call_within_ms: 1_000, ..get("/") };
    let service = remote.service();
    let call = output_of(&service, &short, None);
    let output = tokio::time::timeout(Duration::from_secs(1), call);
    let output = without_detail(output.await.expect("a status within the time of the call"));
    assert_eq!(output, transient("HTTP 503 Service Unavailable"));
}

#[tokio::test]
async fn statuses_408_425_and_429_are_transient_and_count_as_available() {
    for (status, may_have_run) in [(408, true), (425, false), (429, false)] {
        let remote = TestServer::start(move || respond(status, r#"{"title":"Busy"}"#)).await;
        let reason = format!("HTTP {}", StatusCode::from_u16(status).unwrap());
        let retry_after = Some(Duration::ZERO);
        let expected = CallFault::Transient { reason, retry_after, may_have_run, detail: None };
        assert_eq!(remote.call().await, Err(expected));
    }
}

#[tokio::test]
async fn retry_after_becomes_a_duration() {
    let wait_for = |retry_after: String| async move {
        let busy = move || {
            let busy = Response::builder().status(503).header("retry-after", &retry_after);
            busy.body(Body::empty()).unwrap()
        };
        match TestServer::start(busy).await.call().await {
            Err(CallFault::Transient { retry_after, .. }) => retry_after,
            other => panic!("{other:?}"),
        }
    };
    let hour = Duration::from_secs(3600);
    assert_eq!(wait_for("3600".to_owned()).await, Some(hour));
    let in_an_hour = SystemTime::now() + hour;
    let wait = wait_for(httpdate::fmt_http_date(in_an_hour)).await.unwrap();
    // A date has no fractions of a second, and the call took some time.
    assert!(wait <= hour && wait > hour - Duration::from_secs(60), "{wait:?}");
    assert_eq!(wait_for("soon".to_owned()).await, None);
    assert_eq!(wait_for("-5".to_owned()).await, None);
}

#[tokio::test]
async fn a_broken_connection_is_transient() {
    for partial_response in [
        "",
        "HTTP/1.1 200 OK\r\ncontent-le",
        "HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{\"id\":1}",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n8\r\n{\"id\":1}\r\n",
    ] {
        let remote = TestServer::with_raw_connections(move |mut socket| async move {
            socket.write_all(partial_response.as_bytes()).await.unwrap();
        });
        assert_eq!(
            remote.await.call().await,
            transient("the connection broke"),
            "{partial_response:?}"
        );
    }
}

#[tokio::test]
async fn a_refused_connection_is_transient() {
    // Bound but not listening: connections are refused, and no other process can use the port.
    let held = TcpSocket::new_v4().unwrap();
    held.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let base_url = format!("http://{}", held.local_addr().unwrap());
    let service = service(&base_url, "{}", Duration::from_secs(60));
    let refused = transient("no connection: the port refuses connections");
    assert_eq!(output_of(&service, &get("/"), None).await, refused);
}

#[tokio::test]
async fn a_fault_of_dns_or_of_the_protocol_is_named() {
    let unknown = service("http://no-such-host.invalid", "{}", Duration::from_secs(60));
    let expected = transient("no connection: the host name does not resolve");
    assert_eq!(output_of(&unknown, &get("/"), None).await, expected);

    let plain = TestServer::start(|| respond(200, "")).await;
    let https = plain.base_url.replace("http:", "https:");
    let service = service(&https, "{}", Duration::from_secs(60));
    let expected = transient("no connection: the port does not speak TLS");
    assert_eq!(output_of(&service, &get("/"), None).await, expected);

    let tls = TestServer::with_raw_connections(|mut socket| async move {
        // An alert of TLS: unexpected message.
        socket.write_all(&[21, 3, 3, 0, 2, 2, 10]).await.unwrap();
    });
    let expected =
        transient("the connection broke: the answer is not HTTP; does the base URL need https?");
    assert_eq!(tls.await.call().await, expected);
}

/// A service may close an idle connection at the moment of the next call. That call must not be repeated, and it is never made
/// over such a connection.
#[tokio::test]
async fn a_call_that_must_not_be_repeated_has_a_connection_of_its_own() {
    for (idempotent, connections) in [(true, 1), (false, 3)] {
        let accepted = Arc::new(Mutex::new(0));
        let counted = Arc::clone(&accepted);
        let remote = TestServer::with_raw_connections(move |mut socket| {
            *counted.lock().unwrap() += 1;
            async move {
                let (mut request, mut read) = ([0; 4096], 1);
                while read > 0 {
                    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
                    socket.write_all(answer).await.unwrap();
                    read = socket.read(&mut request).await.unwrap_or_default();
                }
            }
        });
        let remote = remote.await;
        let service = remote.service();
        for _ in 0..3 {
            let request = StepRequest { idempotent, ..get("/") };
            assert_eq!(output_of(&service, &request, None).await, Ok(Value::Null));
        }
        assert_eq!(*accepted.lock().unwrap(), connections, "{idempotent}");
    }
}

#[tokio::test]
async fn a_call_may_time_out_before_or_during_the_response() {
    for partial_response in ["", "HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{\"id\":1}"] {
        let remote = TestServer::with_raw_connections(move |mut socket| async move {
            socket.write_all(partial_response.as_bytes()).await.unwrap();
            // Waits until the client aborts the call.
            let _ = socket.read_u8().await;
        });
        let remote = remote.await;
        let service = service(&remote.base_url, "{}", Duration::from_millis(200));
        assert_eq!(
            output_of(&service, &get("/"), None).await,
            Err(CallFault::TimedOut { reason: "the call timed out".to_owned() }),
            "{partial_response:?}"
        );
    }
}

/// The service did the work. Only a step whose used output is missing fails.
#[tokio::test]
async fn a_response_that_is_not_json_completes_its_step() {
    let text = |text: &str| json!({ "text": text });
    for (body, expected) in [
        (&b"OK"[..], text("OK")),
        (b"\xef\xbb\xbf{\"id\":7}", json!({ "id": 7 })),
        (b"{\"card\":\"4111", text("{\"card\":\"4111")),
        (b" ", Value::Null),
        (b"{\"id\":18446744073709551616}", text("{\"id\":18446744073709551616}")),
        // Latin-1.
        (b"caf\xe9", json!({ "not_text": 4 })),
    ] {
        let remote = TestServer::start(move || respond(200, body)).await;
        assert_eq!(remote.call().await, Ok(expected), "{body:?}");
    }
    let remote = TestServer::start(|| respond(200, "OK")).await;
    let output = Some(Box::new(Template::parse(json!("${ response.body.id }"))));
    let output = output_of(&remote.service(), &StepRequest { output, ..get("/") }, None).await;
    assert!(matches!(output, Err(CallFault::Permanent { may_have_run: true, .. })), "{output:?}");
}

#[tokio::test]
async fn a_response_may_be_as_large_as_the_limit() {
    let text = |bytes: usize| format!("\"{}\"", "x".repeat(bytes - 2));
    let largest = text(limits::DOCUMENT_BYTES_MAX);
    let body = largest.clone();
    let remote = TestServer::start(move || respond(200, body.clone())).await;
    assert_eq!(remote.call().await, Ok(json!(largest.trim_matches('"'))));
    let remote =
        TestServer::start(move || respond(200, text(limits::DOCUMENT_BYTES_MAX + 1))).await;
    assert_eq!(remote.call().await, too_large());
}

#[tokio::test]
async fn the_agent_stops_reading_a_response_at_the_limit() {
    // One response announces a terabyte, the other never ends.
    let (hung_up, gone) = oneshot::channel();
    let hung_up = Arc::new(Mutex::new(Some(hung_up)));
    let announced = TestServer::with_raw_connections(move |mut socket| {
        let hung_up = hung_up.lock().unwrap().take().unwrap();
        async move {
            let head = "HTTP/1.1 200 OK\r\ncontent-length: 1000000000000\r\n\r\n";
            socket.write_all(head.as_bytes()).await.unwrap();
            while socket.write_all(&[b' '; 4096]).await.is_ok() {}
            hung_up.send(()).unwrap();
        }
    });
    let announced = announced.await;
    assert_eq!(announced.call().await, too_large());
    gone.await.expect("the client closed the connection");

    let (alive, gone) = oneshot::channel::<()>();
    let alive = Arc::new(Mutex::new(Some(alive)));
    let endless = TestServer::start(move || {
        let alive = alive.lock().unwrap().take().unwrap();
        let chunks = stream::repeat_with(move || {
            assert!(!alive.is_closed());
            Ok::<_, std::io::Error>(Bytes::from_static(&[b' '; 4096]))
        });
        respond(200, Body::from_stream(chunks))
    });
    let endless = endless.await;
    assert_eq!(endless.call().await, too_large());
    gone.await.expect_err("the server stopped sending");
}

#[tokio::test]
async fn a_response_that_nests_too_deeply_is_text() {
    let deepest = TestServer::start(|| respond(200, nested(limits::JSON_DEPTH_MAX))).await;
    assert!(deepest.call().await.unwrap().is_array());
    for levels in [limits::JSON_DEPTH_MAX + 1, 60_000] {
        let too_deep = TestServer::start(move || respond(200, nested(levels))).await;
        assert_eq!(too_deep.call().await, Ok(json!({ "text": nested(levels) })));
    }
}

/// What a service said in the body of an error.
async fn detail_of(
    respond: impl Fn() -> Response<Body> + Clone + Send + Sync + 'static,
) -> Option<String> {
    let remote = TestServer::start(respond).await;
    match output_of(&remote.service(), &get("/"), None).await {
        Err(
            CallFault::Permanent { reason, detail, .. }
            | CallFault::Redirected { reason, detail }
            | CallFault::Conflict { reason, detail, .. }
            | CallFault::Transient { reason, detail, .. },
        ) => {
            assert!(!reason.contains("4111"), "{reason}");
            detail.map(|detail| detail.as_str().to_owned())
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn any_error_body_is_kept_beside_the_reason() {
    for (status, body) in [
        (402, r#"{"error":"card 4111 refused"}"#),
        (400, "<h1>card 4111 refused</h1>"),
        (409, r#"{"title":"Busy","detail":"4111"}"#),
        (302, "4111"),
    ] {
        assert_eq!(
            detail_of(move || respond(status, body)).await.as_deref(),
            Some(body),
            "{status}"
        );
    }
    assert_eq!(detail_of(|| respond(404, "")).await, None);
}

#[tokio::test]
async fn an_error_body_is_cut_and_need_not_be_complete() {
    let large = "4111 ".repeat(limits::DOCUMENT_BYTES_MAX);
    let kept = detail_of(move || respond(402, large.clone())).await.unwrap();
    assert_eq!(kept.len(), limits::ERROR_DETAIL_BYTES_MAX);
    assert!(kept.starts_with("4111 4111") && kept.ends_with('…'), "{kept}");
    let remote = TestServer::with_raw_connections(|mut socket| async move {
        let head = b"HTTP/1.1 402 Payment Required\r\ncontent-length: 100\r\n\r\ncard 4111";
        socket.write_all(head).await.unwrap();
    })
    .await;
    let Err(CallFault::Permanent { reason, may_have_run: false, detail: Some(detail) }) =
        output_of(&remote.service(), &get("/"), None).await
    else {
        panic!("the status says that the step did not run");
    };
    assert_eq!((reason.as_str(), detail.as_str()), ("HTTP 402 Payment Required", "card 4111…"));
}
