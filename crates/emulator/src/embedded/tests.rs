//! The embedded AWS through the real SDK clients, as the rest of the project meets it.

use std::collections::HashMap;
use std::time::Duration;

use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, ConsumedCapacity, Get, GlobalSecondaryIndex,
    KeySchemaElement, KeyType, KeysAndAttributes, Projection, ProjectionType, Put, PutRequest,
    ReturnConsumedCapacity, ReturnValuesOnConditionCheckFailure, ScalarAttributeType,
    TimeToLiveSpecification, TransactGetItem, TransactWriteItem, WriteRequest,
};
use aws_sdk_eventbridge::types::{PutEventsRequestEntry, Target};
use aws_sdk_sqs::types::{
    DeleteMessageBatchRequestEntry, Message, MessageAttributeValue, SendMessageBatchRequestEntry,
};

use super::{EmbeddedAws, EventRule, REQUEST_BYTES_MAX};

type Item = HashMap<String, AttributeValue>;

fn text(value: &str) -> AttributeValue {
    AttributeValue::S(value.to_owned())
}

fn number(value: u64) -> AttributeValue {
    AttributeValue::N(value.to_string())
}

fn key(id: &str) -> Item {
    Item::from([("id".to_owned(), text(id))])
}

/// An item that is in the index while it has a `due`.
fn due_item(id: &str, due: u64) -> Item {
    let mut item = key(id);
    item.insert("wake".to_owned(), text("s"));
    item.insert("due".to_owned(), number(due));
    item
}

/// A table like the project's own: key `id`, sparse keys-only index `due` on `wake` and `due`.
async fn create_table(tables: &aws_sdk_dynamodb::Client, name: &str) {
    let schema = |name: &str, key_type| {
        KeySchemaElement::builder().attribute_name(name).key_type(key_type).build().unwrap()
    };
    let attribute = |name: &str, kind| {
        AttributeDefinition::builder().attribute_name(name).attribute_type(kind).build().unwrap()
    };
    let index = GlobalSecondaryIndex::builder()
        .index_name("due")
        .key_schema(schema("wake", KeyType::Hash))
        .key_schema(schema("due", KeyType::Range))
        .projection(Projection::builder().projection_type(ProjectionType::KeysOnly).build())
        .build()
        .unwrap();
    tables
        .create_table()
        .table_name(name)
        .billing_mode(BillingMode::PayPerRequest)
        .attribute_definitions(attribute("id", ScalarAttributeType::S))
        .attribute_definitions(attribute("wake", ScalarAttributeType::S))
        .attribute_definitions(attribute("due", ScalarAttributeType::N))
        .key_schema(schema("id", KeyType::Hash))
        .global_secondary_indexes(index)
        .send()
        .await
        .unwrap();
}

async fn tables_in(aws: &EmbeddedAws) -> aws_sdk_dynamodb::Client {
    let tables = aws_sdk_dynamodb::Client::new(&aws.sdk_config());
    create_table(&tables, "tasks").await;
    tables
}

async fn queue_in(aws: &EmbeddedAws, name: &str) -> (aws_sdk_sqs::Client, String) {
    let queues = aws_sdk_sqs::Client::new(&aws.sdk_config());
    let created = queues.create_queue().queue_name(name).send().await.unwrap();
    (queues, created.queue_url.unwrap())
}

async fn receive(queues: &aws_sdk_sqs::Client, url: &str, wait_s: i32) -> Vec<Message> {
    let received = queues
        .receive_message()
        .queue_url(url)
        .max_number_of_messages(10)
        .wait_time_seconds(wait_s)
        .message_attribute_names("All")
        .send()
        .await
        .unwrap();
    received.messages.unwrap_or_default()
}

#[tokio::test]
async fn a_lost_conditional_put_returns_the_item_that_won() {
    let tables = tables_in(&EmbeddedAws::in_memory().unwrap()).await;
    let put = |owner: &str| {
        tables
            .put_item()
            .table_name("tasks")
            .set_item(Some(key("t1")))
            .item("owner", text(owner))
            .condition_expression("attribute_not_exists(id)")
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .send()
    };
    put("first").await.unwrap();
    let error = put("second").await.unwrap_err().into_service_error();
    let aws_sdk_dynamodb::operation::put_item::PutItemError::ConditionalCheckFailedException(lost) =
        error
    else {
        panic!("not a failed condition: {error:?}");
    };
    assert_eq!(lost.item.unwrap()["owner"], text("first"));
}

#[tokio::test]
async fn a_lost_conditional_update_returns_the_item_that_won() {
    let tables = tables_in(&EmbeddedAws::in_memory().unwrap()).await;
    let item = due_item("t1", 5);
    tables.put_item().table_name("tasks").set_item(Some(item.clone())).send().await.unwrap();
    let error = tables
        .update_item()
        .table_name("tasks")
        .set_key(Some(key("t1")))
        .update_expression("SET due = :due")
        .condition_expression("due = :seen")
        .expression_attribute_values(":due", number(9))
        .expression_attribute_values(":seen", number(4))
        .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
        .send()
        .await
        .unwrap_err()
        .into_service_error();
    use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
    let UpdateItemError::ConditionalCheckFailedException(lost) = error else {
        panic!("not a failed condition: {error:?}");
    };
    assert_eq!(lost.item.unwrap(), item);
}

fn put_new(table: &str, item: Item) -> TransactWriteItem {
    let put = Put::builder()
        .table_name(table)
        .set_item(Some(item))
        .condition_expression("attribute_not_exists(id)")
        .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
        .build()
        .unwrap();
    TransactWriteItem::builder().put(put).build()
}

#[tokio::test]
async fn a_cancelled_transaction_writes_nothing_and_says_which_item_lost() {
    let tables = tables_in(&EmbeddedAws::in_memory().unwrap()).await;
    let taken = due_item("taken", 1);
    tables.put_item().table_name("tasks").set_item(Some(taken.clone())).send().await.unwrap();
    let error = tables
        .transact_write_items()
        .transact_items(put_new("tasks", key("free")))
        .transact_items(put_new("tasks", key("taken")))
        .send()
        .await
        .unwrap_err()
        .into_service_error();
    use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
    let TransactWriteItemsError::TransactionCanceledException(cancelled) = error else {
        panic!("not cancelled: {error:?}");
    };
    let reasons = cancelled.cancellation_reasons();
    let codes: Vec<_> = reasons.iter().map(|reason| reason.code().unwrap()).collect();
    assert_eq!(codes, ["None", "ConditionalCheckFailed"]);
    assert_eq!(reasons[1].item(), Some(&taken));
    let free = tables.get_item().table_name("tasks").set_key(Some(key("free"))).send().await;
    assert!(free.unwrap().item.is_none());
}

#[tokio::test]
async fn a_transaction_repeated_with_its_token_is_applied_again_in_process() {
    // The SDK's tokens are dropped at the connector, where no answer can be lost.
    let tables = tables_in(&EmbeddedAws::in_memory().unwrap()).await;
    let send = || {
        let item = put_new("tasks", key("t1"));
        tables.transact_write_items().client_request_token("token").transact_items(item).send()
    };
    send().await.unwrap();
    assert!(send().await.is_err());
}

#[tokio::test]
async fn a_sparse_index_holds_only_items_with_its_keys() {
    let tables = tables_in(&EmbeddedAws::in_memory().unwrap()).await;
    for item in [due_item("late", 10), due_item("later", 20), key("done")] {
        tables.put_item().table_name("tasks").set_item(Some(item)).send().await.unwrap();
    }
    let due = |until| {
        tables
            .query()
            .table_name("tasks")
            .index_name("due")
            .key_condition_expression("wake = :wake AND due <= :until")
            .expression_attribute_values(":wake", text("s"))
            .expression_attribute_values(":until", number(until))
            .send()
    };
    assert_eq!(due(15).await.unwrap().items(), [due_item("late", 10)]);
    tables
        .update_item()
        .table_name("tasks")
        .set_key(Some(key("late")))
        .update_expression("REMOVE due, wake")
        .send()
        .await
        .unwrap();
    assert_eq!(due(99).await.unwrap().items(), [due_item("later", 20)]);
}

/// Units of the table and of its index, as DynamoDB would bill them.
fn units(consumed: &ConsumedCapacity) -> (f64, f64, f64) {
    let index = consumed.global_secondary_indexes().and_then(|indexes| indexes.get("due"));
    let index = index.and_then(|index| index.capacity_units()).unwrap_or_default();
    let table = consumed.table().and_then(|table| table.capacity_units()).unwrap_or_default();
    (consumed.capacity_units().unwrap(), table, index)
}

#[tokio::test]
async fn consumed_capacity_counts_the_table_and_the_index() {
    let tables = tables_in(&EmbeddedAws::in_memory().unwrap()).await;
    let by = ReturnConsumedCapacity::Indexes;
    let mut large = due_item("t1", 5);
    large.insert("payload".to_owned(), text(&"x".repeat(1500)));
    let put = tables.put_item().table_name("tasks").set_item(Some(large));
    let put = put.return_consumed_capacity(by.clone()).send().await.unwrap();
    assert_eq!(units(&put.consumed_capacity.unwrap()), (3.0, 2.0, 1.0));

    let update = |expression: &str| {
        tables
            .update_item()
            .table_name("tasks")
            .set_key(Some(key("t1")))
            .update_expression(expression)
            .return_consumed_capacity(by.clone())
    };
    let kept = update("SET note = :n").expression_attribute_values(":n", text("n"));
    let kept = kept.send().await.unwrap();
    assert_eq!(units(&kept.consumed_capacity.unwrap()), (2.0, 2.0, 0.0));
    let removed = update("REMOVE due, wake").send().await.unwrap();
    assert_eq!(units(&removed.consumed_capacity.unwrap()), (3.0, 2.0, 1.0));

    let get = tables.get_item().table_name("tasks").set_key(Some(key("t1")));
    let get = get.consistent_read(true).return_consumed_capacity(by.clone()).send().await.unwrap();
    assert_eq!(units(&get.consumed_capacity.unwrap()), (1.0, 1.0, 0.0));

    let total = tables.put_item().table_name("tasks").set_item(Some(due_item("t2", 5)));
    let total = total.return_consumed_capacity(ReturnConsumedCapacity::Total).send().await.unwrap();
    assert_eq!(units(&total.consumed_capacity.unwrap()), (2.0, 0.0, 0.0));
    let query = tables
        .query()
        .table_name("tasks")
        .index_name("due")
        .key_condition_expression("wake = :wake")
        .expression_attribute_values(":wake", text("s"))
        .return_consumed_capacity(by.clone());
    let query = query.send().await.unwrap();
    assert_eq!(units(&query.consumed_capacity.unwrap()), (0.5, 0.0, 0.5));
}

#[tokio::test]
async fn a_transaction_consumes_twice_the_units_on_the_table_alone() {
    let tables = tables_in(&EmbeddedAws::in_memory().unwrap()).await;
    create_table(&tables, "dedup").await;
    let answer = tables
        .transact_write_items()
        .transact_items(put_new("tasks", due_item("t1", 5)))
        .transact_items(put_new("dedup", key("t1")))
        .return_consumed_capacity(ReturnConsumedCapacity::Indexes)
        .send()
        .await
        .unwrap();
    let consumed = answer.consumed_capacity();
    let of = |name| consumed.iter().find(|table| table.table_name() == Some(name)).unwrap();
    assert_eq!(units(of("tasks")), (3.0, 2.0, 1.0));
    assert_eq!(units(of("dedup")), (2.0, 2.0, 0.0));
}

#[tokio::test]
async fn requests_that_aws_refuses_come_back_as_its_exceptions() {
    let tables = tables_in(&EmbeddedAws::in_memory().unwrap()).await;
    let missing = tables.put_item().table_name("none").set_item(Some(key("t"))).send().await;
    assert!(missing.unwrap_err().into_service_error().is_resource_not_found_exception());
    let unkeyed = tables.put_item().table_name("tasks").item("other", text("x")).send().await;
    let unkeyed = unkeyed.unwrap_err().into_service_error();
    assert_eq!(unkeyed.meta().code(), Some("ValidationException"));
    let malformed = key("t").into_iter().chain([("n".to_owned(), AttributeValue::N("x".into()))]);
    let malformed = tables.put_item().table_name("tasks").set_item(Some(malformed.collect()));
    let malformed = malformed.send().await.unwrap_err().into_service_error();
    assert_eq!(malformed.meta().code(), Some("ValidationException"));
    assert!(!malformed.meta().message().unwrap().contains("VALIDATION"));
    let unknown = tables.describe_endpoints().send().await.unwrap_err().into_service_error();
    assert_eq!(unknown.meta().code(), Some("UnknownOperationException"));
}

#[tokio::test]
async fn items_are_written_and_read_in_batches() {
    let tables = tables_in(&EmbeddedAws::in_memory().unwrap()).await;
    let write = |id: &str| {
        let put = PutRequest::builder().set_item(Some(key(id))).build().unwrap();
        WriteRequest::builder().put_request(put).build()
    };
    let batch = tables.batch_write_item().request_items("tasks", vec![write("a"), write("b")]);
    assert!(batch.send().await.unwrap().unprocessed_items().unwrap().is_empty());
    let keys = KeysAndAttributes::builder().keys(key("a")).keys(key("b")).keys(key("c"));
    let batch = tables.batch_get_item().request_items("tasks", keys.build().unwrap());
    assert_eq!(batch.send().await.unwrap().responses().unwrap()["tasks"].len(), 2);
    let get = Get::builder().table_name("tasks").set_key(Some(key("a"))).build().unwrap();
    let read = tables.transact_get_items();
    let read = read.transact_items(TransactGetItem::builder().get(get).build());
    assert_eq!(read.send().await.unwrap().responses()[0].item(), Some(&key("a")));
}

#[tokio::test]
async fn items_and_tables_are_deleted() {
    let tables = tables_in(&EmbeddedAws::in_memory().unwrap()).await;
    for id in ["a", "b"] {
        let put = tables.put_item().table_name("tasks").set_item(Some(key(id)));
        put.send().await.unwrap();
    }
    let delete = tables.delete_item().table_name("tasks").set_key(Some(key("a")));
    delete.send().await.unwrap();
    let described = tables.describe_table().table_name("tasks").send().await.unwrap();
    assert_eq!(described.table.unwrap().item_count(), Some(1));
    assert_eq!(tables.list_tables().send().await.unwrap().table_names(), ["tasks"]);
    tables.delete_table().table_name("tasks").send().await.unwrap();
    assert!(tables.list_tables().send().await.unwrap().table_names().is_empty());
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused() {
    let tables = tables_in(&EmbeddedAws::in_memory().unwrap()).await;
    let huge = text(&"x".repeat(REQUEST_BYTES_MAX));
    let refused = tables.put_item().table_name("tasks").item("id", huge).send().await;
    let refused = refused.unwrap_err().into_service_error();
    assert_eq!(refused.meta().code(), Some("RequestEntityTooLargeException"));
}

#[tokio::test]
async fn expired_items_are_swept() {
    let aws = EmbeddedAws::in_memory().unwrap();
    let tables = tables_in(&aws).await;
    let ttl = TimeToLiveSpecification::builder().attribute_name("expires").enabled(true);
    let update = tables.update_time_to_live().table_name("tasks");
    update.time_to_live_specification(ttl.build().unwrap()).send().await.unwrap();
    let described = tables.describe_time_to_live().table_name("tasks").send().await.unwrap();
    let described = described.time_to_live_description.unwrap();
    assert_eq!(described.attribute_name(), Some("expires"));
    let now = jiff::Timestamp::now().as_second() as u64;
    for (id, expires) in [("old", now - 60), ("new", now + 3600)] {
        let put = tables.put_item().table_name("tasks").set_item(Some(key(id)));
        put.item("expires", number(expires)).send().await.unwrap();
    }
    assert_eq!(aws.sweep_ttl().unwrap(), 1);
    let left = tables.scan().table_name("tasks").send().await.unwrap();
    assert_eq!(left.items()[0]["id"], text("new"));
}

#[tokio::test]
async fn tables_survive_in_the_data_directory() {
    let dir = std::env::temp_dir().join(format!("embedded-aws-{}", uuid::Uuid::new_v4()));
    {
        let tables = tables_in(&EmbeddedAws::on_disk(&dir).unwrap()).await;
        let put = tables.put_item().table_name("tasks").set_item(Some(due_item("t1", 5)));
        put.send().await.unwrap();
    }
    let aws = EmbeddedAws::on_disk(&dir).unwrap();
    let tables = aws_sdk_dynamodb::Client::new(&aws.sdk_config());
    let kept = tables.get_item().table_name("tasks").set_key(Some(key("t1"))).send().await;
    assert_eq!(kept.unwrap().item.unwrap(), due_item("t1", 5));
    std::fs::remove_dir_all(dir).unwrap();
}

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
async fn a_delayed_message_comes_when_its_delay_is_over() {
    let aws = EmbeddedAws::in_memory().unwrap();
    let (queues, url) = queue_in(&aws, "work").await;
    let send = queues.send_message().queue_url(&url).message_body("later").delay_seconds(30);
    send.send().await.unwrap();
    assert!(receive(&queues, &url, 20).await.is_empty());
    tokio::time::sleep(Duration::from_secs(9)).await;
    assert_eq!(receive(&queues, &url, 20).await[0].body(), Some("later"));
}

#[tokio::test]
async fn messages_are_doubled_the_same_way_for_the_same_seed() {
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

fn event(source: &str, detail_type: &str, detail: &str) -> PutEventsRequestEntry {
    let entry = PutEventsRequestEntry::builder().event_bus_name("steward");
    entry.source(source).detail_type(detail_type).detail(detail).build()
}

#[tokio::test]
async fn an_event_reaches_subscribers_and_the_queue_of_a_rule_that_matches() {
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
    let delivered = receive(&queues, &url, 0).await;
    assert_eq!(delivered.len(), 1);
    assert_eq!(delivered[0].body().unwrap(), seen[0].to_string());
    let eleven = (0..11).map(|_| event("steward", "TaskDone", "{}")).collect();
    let refused = events.put_events().set_entries(Some(eleven)).send().await.unwrap_err();
    assert_eq!(refused.into_service_error().meta().code(), Some("ValidationException"));
}

#[tokio::test]
async fn a_rule_brings_events_of_its_pattern_to_its_target_until_it_is_deleted() {
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
    // Another pattern takes the place of the first; the targets stay.
    pattern(r#"{ "source": ["shop2"] }"#).await.unwrap();
    assert_eq!((put("shop", "Placed").await, put("shop2", "Paid").await), (0, 1));
    for unknown in [r#"{ "source": [{ "prefix": "s" }] }"#, r#"{ "detail": { "a": ["b"] } }"#, "{"]
    {
        let refused = pattern(unknown).await.unwrap_err().into_service_error();
        assert!(refused.is_invalid_event_pattern_exception(), "{unknown}");
    }
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

/// Serve a fresh instance on loopback; returns a configuration that reaches it by HTTP alone.
async fn served() -> aws_config::SdkConfig {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let aws = EmbeddedAws::builder().public_address("127.0.0.1", port).build().unwrap();
    let in_process = aws.sdk_config();
    tokio::spawn(async move { axum::serve(listener, aws.router()).await });
    aws_config::SdkConfig::builder()
        .behavior_version(aws_config::BehaviorVersion::latest())
        .region(in_process.region().cloned())
        .credentials_provider(in_process.credentials_provider().unwrap())
        .endpoint_url(format!("http://127.0.0.1:{port}"))
        .build()
}

#[tokio::test]
async fn an_sdk_with_an_endpoint_url_reaches_all_three_services() {
    let config = served().await;
    let tables = aws_sdk_dynamodb::Client::new(&config);
    create_table(&tables, "tasks").await;
    let transaction = || {
        let write = tables.transact_write_items().client_request_token("token");
        write.transact_items(put_new("tasks", key("t1"))).send()
    };
    transaction().await.unwrap();
    transaction().await.expect("a repeated token is recognised over HTTP");
    let taken = tables.put_item().table_name("tasks").set_item(Some(key("t1")));
    let taken = taken.condition_expression("attribute_not_exists(id)").send().await.unwrap_err();
    assert!(taken.into_service_error().is_conditional_check_failed_exception());

    let queues = aws_sdk_sqs::Client::new(&config);
    let created = queues.create_queue().queue_name("work").send().await.unwrap();
    let url = created.queue_url.unwrap();
    assert!(url.starts_with(config.endpoint_url().unwrap()), "{url}");
    queues.send_message().queue_url(&url).message_body("hello").send().await.unwrap();
    assert_eq!(receive(&queues, &url, 1).await[0].body(), Some("hello"));

    let events = aws_sdk_eventbridge::Client::new(&config);
    let put = events.put_events().entries(event("steward", "TaskDone", "{}")).send().await;
    assert_eq!(put.unwrap().failed_entry_count(), 0);

    let huge = text(&"x".repeat(REQUEST_BYTES_MAX));
    let refused = tables.put_item().table_name("tasks").item("id", huge).send().await;
    let refused = refused.unwrap_err().into_service_error();
    assert_eq!(refused.meta().code(), Some("RequestEntityTooLargeException"));
}
