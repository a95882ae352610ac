//! The size limits of AWS hold in the embedded AWS, too, so that a test that passes there does not fail on AWS because of
//! sizes. The limits are from AWS's documentation.
//!
//! <https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/ServiceQuotas.html>,
//! <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-messages.html>

use std::collections::HashMap;

use aws_sdk_dynamodb::{
    Client,
    error::ProvideErrorMetadata,
    types::{
        AttributeValue, BatchStatementRequest, KeysAndAttributes, Put, TransactWriteItem,
        WriteRequest,
    },
};
use steward_emulator::{
    embedded::EmbeddedAws,
    resources::{self, DOCUMENTS_TABLE, TASKS_TABLE},
};

const KIB: usize = 1024;

type Item = HashMap<String, AttributeValue>;

fn text(text: impl Into<String>) -> AttributeValue {
    AttributeValue::S(text.into())
}

fn key(partition: &str, document: usize) -> Item {
    let document = text(format!("d-{document:03}"));
    [("task_id".to_owned(), text(partition)), ("document".to_owned(), document)].into()
}

/// An item of about `kib` KiB.
fn document(partition: &str, number: usize, kib: usize) -> Item {
    let mut item = key(partition, number);
    item.insert("body".to_owned(), text("x".repeat(kib * KIB)));
    item
}

async fn dynamodb() -> (EmbeddedAws, Client) {
    let aws = EmbeddedAws::in_memory().unwrap();
    resources::create(&aws, &[]).await.unwrap();
    let client = Client::new(&aws.sdk_config());
    (aws, client)
}

async fn put(client: &Client, item: Item) -> Result<(), String> {
    let put = client.put_item().table_name(DOCUMENTS_TABLE).set_item(Some(item)).send().await;
    put.map(|_| ()).map_err(|error| error.code().unwrap_or_default().to_owned())
}

/// Reads a batch; returns the number of items, and the number of unprocessed keys.
async fn batch_read(client: &Client, keys: Vec<Item>) -> Result<(usize, usize), String> {
    let keys = KeysAndAttributes::builder().set_keys(Some(keys)).build().unwrap();
    let response = client.batch_get_item().request_items(DOCUMENTS_TABLE, keys).send().await;
    let response = response.map_err(|error| error.code().unwrap_or_default().to_owned())?;
    let items = response.responses.unwrap_or_default().remove(DOCUMENTS_TABLE).unwrap_or_default();
    let unprocessed = response.unprocessed_keys.unwrap_or_default();
    Ok((items.len(), unprocessed.values().map(|keys| keys.keys().len()).sum()))
}

#[tokio::test]
async fn an_item_is_limited_to_400_kb() {
    let (_aws, client) = dynamodb().await;
    let smallest = "task_id".len() + "p".len() + "document".len() + "d-000".len() + "body".len();
    let item_of = |bytes: usize| {
        let mut item = key("p", 0);
        item.insert("body".to_owned(), text("x".repeat(bytes - smallest)));
        item
    };
    assert_eq!(put(&client, item_of(400 * KIB)).await, Ok(()));
    assert_eq!(put(&client, item_of(400 * KIB + 1)).await, Err("ValidationException".to_owned()));
}

#[tokio::test]
async fn a_batch_read_is_limited_to_100_keys() {
    let (_aws, client) = dynamodb().await;
    let keys = |count| (0..count).map(|n| key("p", n)).collect();
    assert_eq!(batch_read(&client, keys(100)).await, Ok((0, 0)));
    assert_eq!(batch_read(&client, keys(101)).await, Err("ValidationException".to_owned()));
}

#[tokio::test]
async fn a_batch_read_leaves_keys_unprocessed_beyond_1_mb_of_a_partition() {
    let (_aws, client) = dynamodb().await;
    for number in 0..5 {
        put(&client, document("p", number, 300)).await.unwrap();
        put(&client, document(&format!("p-{number}"), 0, 300)).await.unwrap();
    }
    let (items, unprocessed) =
        batch_read(&client, (0..5).map(|n| key("p", n)).collect()).await.unwrap();
    assert!(items <= 4 && unprocessed >= 1, "{items} read, {unprocessed} unprocessed");
    assert_eq!(items + unprocessed, 5);
    let other_partitions = (0..5).map(|n| key(&format!("p-{n}"), 0)).collect();
    assert_eq!(batch_read(&client, other_partitions).await, Ok((5, 0)));
}

#[tokio::test]
async fn a_batch_read_leaves_keys_unprocessed_beyond_16_mb() {
    let (_aws, client) = dynamodb().await;
    for number in 0..50 {
        put(&client, document(&format!("p-{number}"), 0, 390)).await.unwrap();
    }
    let keys = (0..50).map(|n| key(&format!("p-{n}"), 0)).collect();
    let (items, unprocessed) = batch_read(&client, keys).await.unwrap();
    assert!(items <= 42 && items > 0, "{items} read, {unprocessed} unprocessed");
    assert_eq!(items + unprocessed, 50);
}

#[tokio::test]
async fn a_query_page_is_limited_to_1_mb() {
    let (_aws, client) = dynamodb().await;
    for number in 0..5 {
        put(&client, document("p", number, 300)).await.unwrap();
    }
    let query = client.query().table_name(DOCUMENTS_TABLE).key_condition_expression("task_id = :p");
    let page = query.expression_attribute_values(":p", text("p")).send().await.unwrap();
    assert!(page.count <= 4, "{}", page.count);
    assert!(page.last_evaluated_key.is_some());
}

async fn transact(client: &Client, items: Vec<Item>) -> Result<(), String> {
    let put = |item| {
        let put = Put::builder().table_name(DOCUMENTS_TABLE).set_item(Some(item)).build().unwrap();
        TransactWriteItem::builder().put(put).build()
    };
    let items = items.into_iter().map(put).collect();
    let written = client.transact_write_items().set_transact_items(Some(items)).send().await;
    written.map(|_| ()).map_err(|error| error.code().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn a_transaction_is_limited_to_100_distinct_items() {
    let (_aws, client) = dynamodb().await;
    let refused = Err("ValidationException".to_owned());
    let items = |count: usize| (0..count).map(move |n| document("p", n, 1)).collect();
    assert_eq!(transact(&client, items(100)).await, Ok(()));
    assert_eq!(transact(&client, items(101)).await, refused);
    let twice = vec![document("p", 0, 1), document("p", 0, 1)];
    assert_eq!(transact(&client, twice).await, refused);
}

#[tokio::test]
async fn a_batch_is_limited_to_25_writes_or_statements() {
    let (_aws, client) = dynamodb().await;
    let statements = async |count: usize| {
        let statement = |n: usize| {
            let statement = format!(r#"INSERT INTO "{TASKS_TABLE}" VALUE {{'task_id': ?}}"#);
            let statement = BatchStatementRequest::builder().statement(statement);
            statement.parameters(text(format!("t-{n}"))).build().unwrap()
        };
        let batch = client.batch_execute_statement();
        let batch = batch.set_statements(Some((0..count).map(statement).collect()));
        batch.send().await.map(|_| ()).map_err(|e| e.code().unwrap_or_default().to_owned())
    };
    let writes = async |count: usize| {
        let write = |n| {
            let put = aws_sdk_dynamodb::types::PutRequest::builder();
            let put = put.set_item(Some(document("p", n, 1))).build().unwrap();
            WriteRequest::builder().put_request(put).build()
        };
        let writes = (0..count).map(write).collect();
        let batch = client.batch_write_item().request_items(DOCUMENTS_TABLE, writes);
        batch.send().await.map(|_| ()).map_err(|e| e.code().unwrap_or_default().to_owned())
    };
    let refused = Err("ValidationException".to_owned());
    assert_eq!(statements(25).await, Ok(()));
    assert_eq!(statements(26).await, refused);
    assert_eq!(writes(25).await, Ok(()));
    assert_eq!(writes(26).await, refused);
}

#[tokio::test]
async fn a_message_and_a_message_batch_are_limited_to_1_mib() {
    let aws = EmbeddedAws::in_memory().unwrap();
    let config = resources::create(&aws, &[]).await.unwrap();
    let (sqs, url) = (aws_sdk_sqs::Client::new(&aws.sdk_config()), config.scheduler_queue_url);
    let send = async |bytes: usize| {
        let sent = sqs.send_message().queue_url(&url).message_body("x".repeat(bytes)).send().await;
        sent.map(|_| ()).map_err(|error| error.code().unwrap_or_default().to_owned())
    };
    assert_eq!(send(KIB * KIB).await, Ok(()));
    assert_eq!(send(KIB * KIB + 1).await, Err("InvalidParameterValue".to_owned()));
    let batch = async |bytes: usize| {
        let entry = |id: &str| {
            let entry = aws_sdk_sqs::types::SendMessageBatchRequestEntry::builder().id(id);
            entry.message_body("x".repeat(bytes / 2)).build().unwrap()
        };
        let batch = sqs.send_message_batch().queue_url(&url).entries(entry("a"));
        let sent = batch.entries(entry("b")).send().await;
        sent.map(|_| ()).map_err(|error| error.code().unwrap_or_default().to_owned())
    };
    assert_eq!(batch(KIB * KIB).await, Ok(()));
    let too_long = Err("AWS.SimpleQueueService.BatchRequestTooLong".to_owned());
    assert_eq!(batch(KIB * KIB + 2).await, too_long);
}
