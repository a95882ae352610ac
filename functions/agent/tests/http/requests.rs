//! What the agent sends, and where secrets must not appear.

use std::{collections::HashMap, time::Duration};

use envconfig::Envconfig;
use serde_json::{Value, json};
use steward_agent::{
    AgentConfig,
    http::{Headers, HttpService, HttpSettings},
};
use steward_core::model::messages::{HttpMethod, StepRequest};

use crate::test_server::{TestServer, get, output_of, permanent, respond, service};

#[tokio::test]
async fn every_call_has_a_traceparent_and_calls_of_one_task_share_a_trace() {
    let remote = TestServer::start(|| respond(200, "")).await;
    let other = StepRequest { idempotency_key: "order-1/ship/do".to_owned(), ..get("/") };
    let another = StepRequest { task_id: "order-2".parse().unwrap(), ..get("/") };
    for request in [&get("/"), &get("/"), &other, &another] {
        output_of(&remote.service(), request, None).await.unwrap();
    }
    let received = remote.received.lock().unwrap();
    let sent: Vec<_> =
        received.iter().map(|received| received.headers["traceparent"].to_str().unwrap()).collect();
    let fields: Vec<Vec<_>> = sent.iter().map(|sent| sent.split('-').collect()).collect();
    for fields in &fields {
        assert_eq!(fields.iter().map(|field| field.len()).collect::<Vec<_>>(), [2, 32, 16, 2]);
    }
    assert_eq!(sent[0], sent[1], "a repeated call has the same traceparent");
    assert_eq!(fields[0][1], fields[2][1]);
    assert_ne!(fields[0][2], fields[2][2]);
    assert_ne!(fields[0][1], fields[3][1]);
}

#[tokio::test]
async fn a_request_has_an_idempotency_key_a_traceparent_and_the_configured_headers() {
    let traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let remote = TestServer::start(|| respond(204, "")).await;
    let base_url = format!("{}/v1/", remote.base_url);
    let headers = r#"{ "Authorization": "Bearer s3cret", "x-tenant": "shop" }"#;
    let service = service(&base_url, headers, Duration::from_secs(60));
    let post = StepRequest {
        method: HttpMethod::Post,
        body: Some(json!({ "order": "order-1", "to": "Zoë" }).into()),
        ..get("/charges?expand=all")
    };
    assert_eq!(output_of(&service, &post, Some(traceparent)).await, Ok(Value::Null));
    let received = remote.received.lock().unwrap().pop().unwrap();
    assert_eq!(
        (received.method.as_str(), received.uri.to_string().as_str()),
        ("POST", "/v1/charges?expand=all")
    );
    assert_eq!(received.body, r#"{"order":"order-1","to":"Zoë"}"#.as_bytes());
    for (name, value) in [
        ("idempotency-key", "order-1/charge/do"),
        ("traceparent", traceparent),
        ("content-type", "application/json"),
        ("authorization", "Bearer s3cret"),
        ("x-tenant", "shop"),
    ] {
        let values: Vec<_> = received.headers.get_all(name).iter().collect();
        assert_eq!(values, [value], "{name}");
    }
}

#[tokio::test]
async fn a_service_gets_the_idempotency_key_in_the_header_and_the_form_that_it_reads() {
    let remote = TestServer::start(|| respond(204, "")).await;
    let settings = HttpSettings::new(remote.base_url.parse().unwrap());
    let key_format = "X-Agent-Key/uuid".parse().unwrap();
    let service = HttpService::new(HttpSettings { key_format, ..settings }).unwrap();
    for (of_request, name, chars) in [
        (json!(null), "x-agent-key", 36),
        (json!({ "header": "Cko-Idempotency-Key" }), "cko-idempotency-key", 36),
        (json!({ "form": "hash64" }), "x-agent-key", 64),
        (json!({ "form": "full" }), "x-agent-key", "order-1/charge/do".len()),
    ] {
        let key_format = serde_json::from_value(of_request).unwrap();
        output_of(&service, &StepRequest { key_format, ..get("/") }, None).await.unwrap();
        let received = remote.received.lock().unwrap().pop().unwrap();
        assert_eq!(received.headers[name].len(), chars, "{name}");
        assert!(!received.headers.contains_key("idempotency-key"));
    }
}

#[tokio::test]
async fn a_configured_content_type_replaces_that_of_json() {
    let remote = TestServer::start(|| respond(200, "{}")).await;
    let headers = r#"{ "content-type": "application/x-amz-json-1.0" }"#;
    let service = service(&remote.base_url, headers, Duration::from_secs(60));
    let post = StepRequest { body: Some(json!({}).into()), ..get("/") };
    output_of(&service, &post, None).await.unwrap();
    let received = remote.received.lock().unwrap().pop().unwrap();
    let types: Vec<_> = received.headers.get_all("content-type").iter().collect();
    assert_eq!(types, ["application/x-amz-json-1.0"]);
}

#[tokio::test]
async fn every_method_is_sent_and_without_a_body_if_there_is_none() {
    let remote = TestServer::start(|| respond(200, "{}")).await;
    let service = remote.service();
    for (method, sent) in [
        (HttpMethod::Get, "GET"),
        (HttpMethod::Post, "POST"),
        (HttpMethod::Put, "PUT"),
        (HttpMethod::Patch, "PATCH"),
        (HttpMethod::Delete, "DELETE"),
    ] {
        output_of(&service, &StepRequest { method, ..get("/x") }, None).await.unwrap();
        let received = remote.received.lock().unwrap().pop().unwrap();
        assert_eq!((received.method.as_str(), received.uri.path()), (sent, "/x"));
        assert!(received.body.is_empty(), "{received:?}");
        assert!(!received.headers.contains_key("content-type"), "{received:?}");
        assert_eq!(received.headers["idempotency-key"], "order-1/charge/do");
    }
}

#[tokio::test]
async fn an_invalid_request_is_permanent_and_not_sent() {
    let remote = TestServer::start(|| respond(200, "{}")).await;
    // Appended to `http://127.0.0.1:80`, `@evil.example` would send the headers to another host.
    let start = "the request's path must start with `/`";
    let tab = "the request's path must not have the control character `\\t`; write `%09`";
    for (path, reason) in [
        ("@evil.example/", start),
        (".evil.example/", start),
        ("", start),
        ("charges", start),
        ("/.\t./admin", tab),
    ] {
        assert_eq!(
            output_of(&remote.service(), &get(path), None).await,
            permanent(reason),
            "{path}"
        );
    }
    let odd_key = StepRequest { idempotency_key: "a\nb".to_owned(), ..get("/") };
    assert_eq!(
        output_of(&remote.service(), &odd_key, None).await,
        permanent("the request cannot be built: failed to parse header value")
    );
    assert_eq!(remote.request_count(), 0);
}

#[tokio::test]
async fn debug_output_errors_and_reasons_contain_no_secrets_of_headers() {
    let secret = |text: String| assert!(!text.contains("s3cret"), "{text}");
    let headers = r#"{ "authorization": "Bearer s3cret", "x-api-key": "s3cret" }"#;
    let remote = TestServer::start(|| respond(402, "s3cret")).await;
    let variables = [
        ("STEWARD_AGENT_NAME", "payment"),
        ("STEWARD_AGENT_BASE_URL", remote.base_url.as_str()),
        ("STEWARD_AGENT_HEADERS", headers),
    ];
    let variables: HashMap<_, _> =
        variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let config = AgentConfig::init_from_hashmap(&variables).unwrap();
    secret(format!("{config:?} {config:#?}"));
    secret(format!("{:?}", config.headers));
    let settings = HttpSettings::new(config.base_url.unwrap());
    let service = HttpService::new(HttpSettings { headers: config.headers, ..settings }).unwrap();
    secret(format!("{service:?} {service:#?}"));
    secret(format!("{:?}", output_of(&service, &get("/"), None).await.unwrap_err()));
    assert_eq!(remote.received.lock().unwrap()[0].headers["x-api-key"], "s3cret");

    for wrong in [
        r#"{ "authorization": "s3cret\n" }"#,
        r#"{ "authorization": ["s3cret"] }"#,
        r#"["s3cret"]"#,
        r#"s3cret"#,
    ] {
        let error = wrong.parse::<Headers>().unwrap_err();
        secret(format!("{error} {error:?}"));
        let variables = variables.iter().map(|(name, value)| (name.clone(), value.clone()));
        let mut variables: HashMap<_, _> = variables.collect();
        variables.insert("STEWARD_AGENT_HEADERS".to_owned(), wrong.to_owned());
        let error = AgentConfig::init_from_hashmap(&variables).unwrap_err();
        secret(format!("{error} {error:?}"));
    }
}
