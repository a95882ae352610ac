//! Requests that SQS refuses, and the exact content of messages and receipt handles.

use super::*;

#[tokio::test]
async fn numbers_beyond_the_limits_are_refused() {
    let (_aws, client) = in_memory();
    let url = create(&client, "work").await;
    let receive = || client.receive_message().queue_url(&url);
    for request in [
        receive().max_number_of_messages(11),
        receive().max_number_of_messages(0),
        receive().wait_time_seconds(21),
        receive().visibility_timeout(43_201),
    ] {
        let refused = request.send().await.unwrap_err().into_service_error();
        assert_eq!(code(&refused), "InvalidParameterValue");
    }
    let delayed = client.send_message().queue_url(&url).message_body("m").delay_seconds(901);
    let refused = delayed.send().await.unwrap_err().into_service_error();
    assert_eq!(code(&refused), "InvalidParameterValue");
    for (name, value) in [
        (QueueAttributeName::VisibilityTimeout, "43201"),
        (QueueAttributeName::DelaySeconds, "-1"),
        (QueueAttributeName::MaximumMessageSize, "1048577"),
        (QueueAttributeName::MessageRetentionPeriod, "59"),
    ] {
        assert_eq!(set(&client, &url, name, value).await.unwrap_err(), "InvalidAttributeValue");
    }
    let unknown = set(&client, &url, QueueAttributeName::FifoQueue, "true").await;
    assert_eq!(unknown.unwrap_err(), "InvalidAttributeName");
    assert_eq!(counts(&client, &url).await, ["0", "0", "0"]);
}

#[tokio::test]
async fn invalid_messages_are_refused() {
    let (_aws, client) = in_memory();
    let url = create(&client, "work").await;
    let refused = async |body: &str| {
        let sent = client.send_message().queue_url(&url).message_body(body).send().await;
        code(&sent.unwrap_err().into_service_error())
    };
    assert_eq!(refused("").await, "MissingParameter");
    assert_eq!(refused("bell \u{7}").await, "InvalidMessageContents");
    assert_eq!(refused(&"x".repeat(1024 * 1024 + 1)).await, "InvalidParameterValue");
    send(&client, &url, &"x".repeat(1024 * 1024)).await;
    send(&client, &url, "tab\t, line\n, 😀").await;

    let entry = |id: &str, body: &str| {
        SendMessageBatchRequestEntry::builder().id(id).message_body(body).build().unwrap()
    };
    let batch = async |entries: Vec<_>| {
        let sent = client.send_message_batch().queue_url(&url).set_entries(Some(entries));
        sent.send().await.map_err(|error| code(&error.into_service_error()))
    };
    let half = "x".repeat(512 * 1024 + 1);
    for (entries, error) in [
        (vec![], "EmptyBatchRequest"),
        ((0..11).map(|n| entry(&n.to_string(), "m")).collect(), "TooManyEntriesInBatchRequest"),
        (vec![entry("a", "m"), entry("a", "m")], "BatchEntryIdsNotDistinct"),
        (vec![entry("a.b", "m")], "InvalidBatchEntryId"),
        (vec![entry("a", &half), entry("b", &half)], "BatchRequestTooLong"),
    ] {
        let code = batch(entries).await.unwrap_err();
        assert_eq!(code, format!("AWS.SimpleQueueService.{error}"));
    }
    let mixed = batch(vec![entry("good", "m"), entry("bad", "\u{0}")]).await.unwrap();
    assert_eq!(mixed.successful()[0].id(), "good");
    let failed = &mixed.failed()[0];
    assert_eq!((failed.id(), failed.code()), ("bad", "InvalidMessageContents"));
    assert!(failed.sender_fault());
    assert_eq!(counts(&client, &url).await, ["3", "0", "0"]);
}

#[tokio::test]
async fn digests_and_attributes_of_a_message_equal_those_of_sqs() {
    let (_aws, client) = in_memory();
    let url = create(&client, "work").await;
    let value = |kind: &str| MessageAttributeValue::builder().data_type(kind);
    let request = client.send_message().queue_url(&url).message_body("hello");
    let request = request
        .message_attributes(
            "traceparent",
            value("String").string_value("00-1-2-01").build().unwrap(),
        )
        .message_attributes("count", value("Number").string_value("7").build().unwrap())
        .message_attributes(
            "blob",
            value("Binary").binary_value(Blob::new([0x00, 0xff])).build().unwrap(),
        );
    let sent = request.send().await.unwrap();
    assert_eq!(sent.md5_of_message_body(), Some("5d41402abc4b2a76b9719d911017c592"));
    assert_eq!(sent.md5_of_message_attributes(), Some("01c6879fc26f8b7b3f6b14cfcd8ba6d1"));
    let message = receive(&client, &url, 0, 0).await.remove(0);
    assert_eq!(message.message_id(), sent.message_id());
    assert_eq!(message.md5_of_body(), sent.md5_of_message_body());
    assert_eq!(message.md5_of_message_attributes(), sent.md5_of_message_attributes());
    let blob = message.message_attributes.as_ref().unwrap()["blob"].binary_value();
    assert_eq!(blob.unwrap().as_ref(), [0x00, 0xff]);
    // Attributes are returned only if they are requested.
    let bare = client.receive_message().queue_url(&url).send().await.unwrap();
    let bare = &bare.messages()[0];
    assert!(bare.message_attributes().is_none() && bare.attributes().is_none());

    for attribute in
        [value("Text").string_value("x"), value("String"), value("Number").string_value("")]
    {
        let sent = client.send_message().queue_url(&url).message_body("m");
        let sent = sent.message_attributes("a", attribute.build().unwrap()).send().await;
        let refused = sent.unwrap_err().into_service_error();
        assert_eq!(code(&refused), "InvalidParameterValue");
    }
}

#[tokio::test]
async fn receipt_handles_are_read_and_checked() {
    let (_aws, client) = in_memory();
    let (url, other) = (create(&client, "work").await, create(&client, "other").await);
    send(&client, &url, "one").await;
    let message = receive(&client, &url, 30, 0).await.remove(0);
    let handle = message.receipt_handle().unwrap();
    for (url, handle) in [(&url, "garbage"), (&other, handle)] {
        let delete = client.delete_message().queue_url(url).receipt_handle(handle);
        let refused = delete.send().await.unwrap_err().into_service_error();
        assert!(refused.is_receipt_handle_is_invalid(), "{handle}");
    }
    let entry = |id: &str, handle: &str| {
        DeleteMessageBatchRequestEntry::builder().id(id).receipt_handle(handle).build().unwrap()
    };
    let delete = client.delete_message_batch().queue_url(&url);
    let deleted = delete.entries(entry("bad", "garbage")).entries(entry("good", handle));
    let deleted = deleted.send().await.unwrap();
    assert_eq!((deleted.successful()[0].id(), deleted.failed()[0].id()), ("good", "bad"));
    // A second deletion succeeds; a change of a deleted message fails.
    delete_again(&client, &url, handle).await;
    let change = client.change_message_visibility().queue_url(&url).receipt_handle(handle);
    let refused = change.visibility_timeout(0).send().await.unwrap_err().into_service_error();
    assert_eq!(code(&refused), "InvalidParameterValue");

    send(&client, &url, "two").await;
    let message = receive(&client, &url, 0, 0).await.remove(0);
    let change = ChangeMessageVisibilityBatchRequestEntry::builder().id("c").visibility_timeout(60);
    let change = change.set_receipt_handle(message.receipt_handle).build().unwrap();
    let changed = client.change_message_visibility_batch().queue_url(&url).entries(change);
    let changed = changed.send().await.unwrap();
    assert_eq!(changed.failed()[0].code(), "AWS.SimpleQueueService.MessageNotInflight");
}

async fn delete_again(client: &Client, url: &str, handle: &str) {
    client.delete_message().queue_url(url).receipt_handle(handle).send().await.unwrap();
}
