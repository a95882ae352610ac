//! Message groups: how a queue with a noisy group delivers, and what is refused and kept.

use super::*;

/// Sends a message of a group.
async fn send_of(client: &Client, url: &str, group: &str, body: &str) {
    let send = client.send_message().queue_url(url).message_group_id(group).message_body(body);
    send.send().await.unwrap();
}

fn groups(messages: &[Message]) -> Vec<&str> {
    let group = |message: &'_ Message| {
        let attributes = message.attributes.as_ref().unwrap();
        attributes.get(&MessageSystemAttributeName::MessageGroupId).cloned()
    };
    let groups = messages.iter().map(group);
    groups.map(|group| if group.as_deref() == Some("loud") { "loud" } else { "other" }).collect()
}

/// A queue with 30 messages of `loud` in flight, and 20 more that wait.
async fn queue_with_noisy_group(client: &Client) -> String {
    let url = create(client, "work").await;
    for n in 0..50 {
        send_of(client, &url, "loud", &format!("loud {n}")).await;
    }
    for _ in 0..3 {
        assert_eq!(receive(client, &url, 600, 0).await.len(), 10);
    }
    url
}

#[tokio::test]
async fn messages_of_a_noisy_group_are_delivered_last() {
    let (_aws, client) = in_memory();
    let url = queue_with_noisy_group(&client).await;
    send_of(&client, &url, "calm", "calm").await;
    send(&client, &url, "without a group").await;
    let next = receive(&client, &url, 600, 0).await;
    assert_eq!(bodies(&next)[..2], ["calm", "without a group"]);
    assert_eq!(groups(&next)[2..], ["loud"; 8], "the noisy group has the rest of the capacity");
}

#[tokio::test]
async fn a_group_with_few_messages_in_flight_is_delivered_in_order() {
    let (_aws, client) = in_memory();
    let url = create(&client, "work").await;
    for n in 0..25 {
        send_of(&client, &url, "loud", &format!("loud {n}")).await;
    }
    for _ in 0..2 {
        receive(&client, &url, 600, 0).await;
    }
    send_of(&client, &url, "calm", "calm").await;
    assert_eq!(groups(&receive(&client, &url, 600, 0).await)[..5], ["loud"; 5]);
}

#[tokio::test]
async fn a_noisy_group_is_quiet_again_when_its_backlog_is_empty() {
    let (_aws, client) = in_memory();
    let url = queue_with_noisy_group(&client).await;
    for _ in 0..2 {
        assert_eq!(receive(&client, &url, 600, 0).await.len(), 10);
    }
    send_of(&client, &url, "loud", "one more").await;
    send_of(&client, &url, "calm", "calm").await;
    assert_eq!(bodies(&receive(&client, &url, 600, 0).await), ["one more", "calm"]);
}

#[tokio::test]
async fn the_group_survives_a_restart_and_the_dead_letter_queue() {
    let dir = TempDataDir::new();
    let (aws, client) = dir.open();
    let (work, dead) = create_with_dead_letters(&client).await;
    send_of(&client, &work, "acme", "m").await;
    let killed = dir.after_a_kill();
    drop(aws);
    let (_aws, client) = killed.open();
    let group = |messages: &[Message]| {
        let attributes = messages[0].attributes.as_ref().unwrap();
        attributes[&MessageSystemAttributeName::MessageGroupId].clone()
    };
    for _ in 0..2 {
        assert_eq!(group(&receive(&client, &work, 0, 0).await), "acme");
    }
    assert_eq!(receive(&client, &work, 0, 0).await, []);
    assert_eq!(group(&receive(&client, &dead, 0, 0).await), "acme");
}

#[tokio::test]
async fn an_invalid_group_id_is_refused() {
    let (_aws, client) = in_memory();
    let url = create(&client, "work").await;
    for group in ["", "a b", "\u{fc}", &"x".repeat(129)] {
        let send = client.send_message().queue_url(&url).message_body("m").message_group_id(group);
        let refused = send.send().await.unwrap_err().into_service_error();
        assert_eq!(code(&refused), "InvalidParameterValue", "{group}");
    }
    let longest = "!~".repeat(64);
    send_of(&client, &url, &longest, "m").await;
    assert_eq!(counts(&client, &url).await, ["1", "0", "0"]);
}
