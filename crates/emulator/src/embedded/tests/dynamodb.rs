//! The embedded DynamoDB: conditional writes, indices, consumed capacity, expiry.

use super::*;

#[tokio::test]
async fn failed_conditional_put_returns_the_existing_item() {
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
async fn failed_conditional_update_returns_the_existing_item() {
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

#[tokio::test]
async fn cancelled_transaction_writes_nothing_and_names_the_failed_item() {
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
async fn transaction_with_a_repeated_token_is_applied_again_in_process() {
    // The connector drops the SDK's tokens, because no response can be lost in the process.
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

/// Consumed units: total, of the table, of its index.
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
async fn invalid_requests_return_aws_exceptions() {
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
    assert_eq!(aws.delete_expired_items().unwrap(), 1);
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
