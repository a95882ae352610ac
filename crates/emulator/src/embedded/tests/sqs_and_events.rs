//! The embedded SQS and EventBridge: batches, delays, duplicates, rules.

use super::*;
use steward_core::expression::scope::FIELDS;

#[tokio::test]
async fn a_batch_is_sent_received_and_deleted_with_its_attributes() {
    let aws = EmbeddedAws::in_memory().unwrap();
    let (queues, url) = queue_in(&aws, "work").await;
    assert_eq!(url, "http://127.0.0.1:4566/000000000000/work");
    let attribute = MessageAttributeValue::builder().data_type("String").string_value("trace");
    let attribute = attribute.build().unwrap();
    let entries = (0..10).map(|n| {
        SendMessageBatchRequestEntry::builder()
            .id(n.to_string())
            .message_body(format!("body {n}"))
            .message_attributes("traceparent", attribute.clone())
            .build()
            .unwrap()
    });
    let sent = queues.send_message_batch().queue_url(&url).set_entries(Some(entries.collect()));
    assert_eq!(sent.send().await.unwrap().successful().len(), 10);
    let messages = receive(&queues, &url, 0).await;
    assert_eq!(messages.len(), 10);
    let first = messages[0].message_attributes().unwrap();
    assert_eq!(first["traceparent"].string_value(), Some("trace"));
    let entries = messages.iter().enumerate().map(|(n, message)| {
        let entry = DeleteMessageBatchRequestEntry::builder().id(n.to_string());
        entry.receipt_handle(message.receipt_handle().unwrap()).build().unwrap()
    });
    let deleted =
        queues.delete_message_batch().queue_url(&url).set_entries(Some(entries.collect()));
    assert_eq!(deleted.send().await.unwrap().successful().len(), 10);
    let missing = queues.send_message().queue_url("http://x/000000000000/none").message_body("m");
    let missing = missing.send().await.unwrap_err().into_service_error();
    assert!(missing.is_queue_does_not_exist());
}

#[tokio::test(start_paused = true)]
async fn delayed_message_is_visible_after_its_delay() {
    let aws = EmbeddedAws::in_memory().unwrap();
    let (queues, url) = queue_in(&aws, "work").await;
    let send = queues.send_message().queue_url(&url).message_body("later").delay_seconds(30);
    send.send().await.unwrap();
    assert!(receive(&queues, &url, 20).await.is_empty());
    tokio::time::sleep(Duration::from_secs(9)).await;
    assert_eq!(receive(&queues, &url, 20).await[0].body(), Some("later"));
}

#[tokio::test]
async fn same_seed_duplicates_the_same_messages() {
    let count = |seed| async move {
        let aws = EmbeddedAws::in_memory().unwrap();
        let (queues, url) = queue_in(&aws, "work").await;
        aws.duplicate_messages(0.5, seed);
        for n in 0..4 {
            let body = format!("single {n}");
            queues.send_message().queue_url(&url).message_body(body).send().await.unwrap();
            let entries = (0..5).map(|m| {
                let entry = SendMessageBatchRequestEntry::builder().id(m.to_string());
                entry.message_body(format!("batch {n} {m}")).build().unwrap()
            });
            let batch = queues.send_message_batch().queue_url(&url);
            batch.set_entries(Some(entries.collect())).send().await.unwrap();
        }
        let mut bodies = Vec::new();
        loop {
            let messages = receive(&queues, &url, 0).await;
            if messages.is_empty() {
                return bodies;
            }
            bodies.extend(messages.into_iter().filter_map(|message| message.body));
        }
    };
    let (first, again, other) = (count(7).await, count(7).await, count(8).await);
    assert_eq!(first, again);
    assert_ne!(first, other);
    assert!(first.len() > 24 && first.len() < 48, "{} of 24", first.len());
}

#[tokio::test]
async fn event_reaches_subscribers_and_the_queue_of_a_matching_rule() {
    let aws = EmbeddedAws::in_memory().unwrap();
    let (queues, url) = queue_in(&aws, "events").await;
    let mut subscriber = aws.subscribe_events();
    aws.add_rule(EventRule {
        bus: "steward".to_owned(),
        source: Some("steward".to_owned()),
        detail_type: Some("TaskDone".to_owned()),
        queue_url: url.clone(),
    });
    let events = aws_sdk_eventbridge::Client::new(&aws.sdk_config());
    let answer = events
        .put_events()
        .entries(event("steward", "TaskDone", r#"{"task_id":"t1"}"#))
        .entries(event("steward", "TaskFailed", "{}"))
        .entries(event("steward", "TaskDone", "not json"))
        .send()
        .await
        .unwrap();
    assert_eq!(answer.failed_entry_count(), 1);
    assert_eq!(answer.entries()[2].error_code(), Some("MalformedDetail"));
    let seen = [subscriber.recv().await.unwrap(), subscriber.recv().await.unwrap()];
    assert_eq!(seen[0]["id"].as_str(), answer.entries()[0].event_id());
    assert_eq!(seen[0]["detail"]["task_id"], "t1");
    assert_eq!(seen[1]["detail-type"], "TaskFailed");
    let (_, known) = FIELDS.into_iter().find(|(name, _)| *name == "event").unwrap();
    assert!(seen[1].as_object().unwrap().keys().all(|field| known.contains(&field.as_str())));
    let delivered = receive(&queues, &url, 0).await;
    assert_eq!(delivered.len(), 1);
    assert_eq!(delivered[0].body().unwrap(), seen[0].to_string());
    let eleven = (0..11).map(|_| event("steward", "TaskDone", "{}")).collect();
    let refused = events.put_events().set_entries(Some(eleven)).send().await.unwrap_err();
    assert_eq!(refused.into_service_error().meta().code(), Some("ValidationException"));
}

#[tokio::test]
async fn rule_delivers_matching_events_to_its_target_until_it_is_deleted() {
    let aws = EmbeddedAws::in_memory().unwrap();
    let (queues, url) = queue_in(&aws, "events").await;
    let events = aws_sdk_eventbridge::Client::new(&aws.sdk_config());
    let pattern = |text: &str| {
        let rule = events.put_rule().name("orders").event_bus_name("steward");
        rule.event_pattern(text).send()
    };
    let arn = |name: &str| format!("arn:aws:sqs:us-east-1:000000000000:{name}");
    let target = Target::builder().id("t").arn(arn("events")).build().unwrap();
    let put_targets = |rule: &str| {
        events.put_targets().rule(rule).event_bus_name("steward").targets(target.clone()).send()
    };
    let missing = put_targets("orders").await.unwrap_err().into_service_error();
    assert!(missing.is_resource_not_found_exception());
    let made = pattern(r#"{ "source": ["a", "shop"], "detail-type": ["Placed"] }"#).await.unwrap();
    let rule_arn = "arn:aws:events:us-east-1:000000000000:rule/steward/orders";
    assert_eq!(made.rule_arn(), Some(rule_arn));
    assert_eq!(put_targets("orders").await.unwrap().failed_entry_count(), 0);
    let put = async |source: &str, detail_type: &str| {
        let put = events.put_events().entries(event(source, detail_type, "{}"));
        put.send().await.unwrap();
        receive(&queues, &url, 0).await.len()
    };
    assert_eq!(put("shop", "Placed").await, 1);
    assert_eq!(put("shop", "Paid").await, 0);
    assert_eq!(put("shop2", "Placed").await, 0);
    // A second pattern replaces the first; the targets stay.
    pattern(r#"{ "source": ["shop2"] }"#).await.unwrap();
    assert_eq!((put("shop", "Placed").await, put("shop2", "Paid").await), (0, 1));
    let refused = pattern(r#"{ "source": [{ "suffix": "s" }] }"#).await.unwrap_err();
    assert!(refused.into_service_error().is_invalid_event_pattern_exception());
    let listed = async || {
        let rules = events.list_rules().event_bus_name("steward").name_prefix("ord").send().await;
        rules.unwrap().rules.unwrap().len()
    };
    assert_eq!(listed().await, 1);
    let delete = || events.delete_rule().name("orders").event_bus_name("steward").send();
    let busy = delete().await.unwrap_err().into_service_error();
    assert_eq!(busy.meta().code(), Some("ValidationException"));
    let remove = events.remove_targets().rule("orders").event_bus_name("steward").ids("t");
    remove.send().await.unwrap();
    assert_eq!(put("shop2", "Paid").await, 0);
    delete().await.unwrap();
    delete().await.unwrap();
    assert_eq!(listed().await, 0);
}

/// The event patterns that the page of lifecycle events shows: one in a command, others in the text.
fn documented_patterns() -> Vec<String> {
    const PAGE: &str = include_str!("../../../../../docs/lifecycle-events.md");
    let in_commands =
        PAGE.split("--event-pattern '").skip(1).filter_map(|rest| rest.split('\'').next());
    let in_text = PAGE.split('`').filter(|code| code.starts_with("\"detail-type\":"));
    let in_text = in_text.map(|fields| format!("{{ {fields} }}"));
    in_commands.map(str::to_owned).chain(in_text).collect()
}

#[tokio::test]
async fn the_patterns_of_the_page_about_lifecycle_events_match_what_the_page_says() {
    let sent = [
        ("steward.step.failed", "order"),
        ("steward.step.failed", "refund"),
        ("steward.step.completed", "order"),
        ("steward.task.undone", "order"),
        ("Task In Error", "order"),
    ];
    let mut matched = Vec::new();
    for pattern in documented_patterns() {
        let aws = EmbeddedAws::in_memory().unwrap();
        let (queues, url) = queue_in(&aws, "events").await;
        let events = aws_sdk_eventbridge::Client::new(&aws.sdk_config());
        let rule = events.put_rule().name("documented").event_bus_name("steward");
        rule.event_pattern(&pattern).send().await.unwrap();
        let target = Target::builder().id("queue").arn("arn:aws:sqs:us-east-1:000000000000:events");
        let targets = events.put_targets().rule("documented").event_bus_name("steward");
        targets.targets(target.build().unwrap()).send().await.unwrap();
        let entries = sent.map(|(detail_type, workflow)| {
            let detail = serde_json::json!({ "data": { "workflow": workflow } });
            event("steward", detail_type, &detail.to_string())
        });
        events.put_events().set_entries(Some(entries.into())).send().await.unwrap();
        let mut received: Vec<_> = receive(&queues, &url, 0)
            .await
            .iter()
            .map(|message| {
                let event: serde_json::Value =
                    serde_json::from_str(message.body().unwrap()).unwrap();
                let name = event["detail-type"].as_str().unwrap().to_owned();
                format!("{name} {}", event["detail"]["data"]["workflow"].as_str().unwrap())
            })
            .collect();
        received.sort();
        matched.push(received);
    }
    let failures: &[_] = &["steward.step.failed order", "steward.task.undone order"];
    let steps: &[_] = &[
        "steward.step.completed order",
        "steward.step.failed order",
        "steward.step.failed refund",
    ];
    let alerts: &[_] = &["Task In Error order"];
    assert_eq!(matched, [failures, steps, alerts]);
}
