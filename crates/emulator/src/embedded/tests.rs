//! Tests of the embedded AWS through the real SDK clients, as the other crates use it.

mod dynamodb;
mod sqs_and_events;

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

/// An item that is in the index as long as it has a `due` attribute.
fn due_item(id: &str, due: u64) -> Item {
    let mut item = key(id);
    item.insert("wake".to_owned(), text("s"));
    item.insert("due".to_owned(), number(due));
    item
}

/// Creates a table like the project's table of tasks: key `id`, sparse keys-only index `due` on `wake` and `due`.
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

fn event(source: &str, detail_type: &str, detail: &str) -> PutEventsRequestEntry {
    let entry = PutEventsRequestEntry::builder().event_bus_name("steward");
    entry.source(source).detail_type(detail_type).detail(detail).build()
}

/// Serves a new instance on loopback; returns a configuration that uses it over HTTP only.
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
