//! What a restart or a killed process leaves behind: the journal, receipt handles, redelivery counts.

use std::os::unix::fs::MetadataExt;

use super::*;

/// If restarts counted, a service manager that restarts a crashing process at once would use up the receives of a
/// healthy message within seconds.
#[tokio::test]
async fn restarts_create_no_dead_letters() {
    let folder = TempDataDir::new();
    let (aws, client) = folder.open();
    let (work, dead) = create_with_dead_letters(&client).await;
    client.send_message().queue_url(&work).message_body("m").send().await.unwrap();
    drop((aws, client));
    for restart in 0..20 {
        let (aws, client) = folder.open();
        aws.release_messages(&work).unwrap();
        let received = receive(&client, &work, 180, 0).await.remove(0);
        let count =
            &received.attributes.unwrap()[&MessageSystemAttributeName::ApproximateReceiveCount];
        assert_eq!(*count, (restart + 1).to_string(), "it counts as redelivered");
    }
    let (aws, client) = folder.open();
    aws.release_messages(&work).unwrap();
    // These two receives count, because the process does not restart.
    for _ in 0..2 {
        assert_eq!(receive(&client, &work, 0, 0).await.len(), 1);
    }
    assert_eq!(receive(&client, &work, 0, 0).await.len(), 0);
    assert_eq!(receive(&client, &dead, 0, 0).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn acknowledged_changes_survive_a_kill() {
    let folder = TempDataDir::new();
    let (_aws, client) = folder.open();
    let (work, dead) = create_with_dead_letters(&client).await;
    send(&client, &work, "dead letter").await;
    receive(&client, &work, 0, 0).await;
    receive(&client, &work, 0, 0).await;
    assert!(receive(&client, &work, 0, 0).await.is_empty(), "not a dead letter");
    send(&client, &work, "deleted").await;
    delete(&client, &work, &receive(&client, &work, 30, 0).await[0]).await;
    send(&client, &work, "in flight").await;
    let in_flight = receive(&client, &work, 30, 0).await.remove(0);
    let trace = MessageAttributeValue::builder().data_type("String").string_value("00-1-2-01");
    let sent = client.send_message().queue_url(&work).message_body("sent");
    sent.message_attributes("traceparent", trace.build().unwrap()).send().await.unwrap();
    let later = client.send_message().queue_url(&work).message_body("later").delay_seconds(25);
    later.send().await.unwrap();

    let (aws, client) = folder.after_a_kill().open();
    assert_eq!(counts(&client, &work).await, ["1", "1", "1"]);
    let sent = receive(&client, &work, 600, 0).await;
    assert_eq!((bodies(&sent), receives(&sent[0])), (vec!["sent"], "1"));
    let trace = &sent[0].message_attributes.as_ref().unwrap()["traceparent"];
    assert_eq!(trace.string_value(), Some("00-1-2-01"));
    assert!(receive(&client, &work, 600, 20).await.is_empty());
    assert_eq!(bodies(&receive(&client, &work, 600, 20).await), ["later"]);

    // The message in flight is redelivered after its visibility timeout.
    let again = aws.receive(&work).await.unwrap().remove(0);
    assert_eq!(again.message_id, in_flight.message_id);
    let again = ReceivedMessage::new(again);
    assert!(again.body == "in flight" && again.redelivered, "{again:?}");

    let letters = receive(&client, &dead, 600, 0).await;
    assert_eq!((bodies(&letters), receives(&letters[0])), (vec!["dead letter"], "3"));
    let source = system(&letters[0], MessageSystemAttributeName::DeadLetterQueueSourceArn);
    assert_eq!(source, "arn:aws:sqs:us-east-1:000000000000:work");
}

#[tokio::test(start_paused = true)]
async fn receipt_from_before_a_kill_is_valid_until_the_next_receive() {
    let folder = TempDataDir::new();
    let (_aws, client) = folder.open();
    let url = create(&client, "work").await;
    send(&client, &url, "one").await;
    let first = receive(&client, &url, 5, 0).await.remove(0);

    let left = folder.after_a_kill();
    let (_aws, client) = left.open();
    let second = receive(&client, &url, 5, 20).await.remove(0);
    assert_eq!(receives(&second), "2");
    delete(&client, &url, &first).await;
    assert_eq!(counts(&client, &url).await, ["0", "1", "0"], "an old receipt deleted it");

    let (_aws, client) = left.after_a_kill().open();
    delete(&client, &url, &second).await;
    assert_eq!(counts(&client, &url).await, ["0", "0", "0"]);
}

#[tokio::test]
async fn deleted_and_purged_queues_stay_so_after_a_kill() {
    let folder = TempDataDir::new();
    let (_aws, client) = folder.open();
    for name in ["kept", "purged", "deleted"] {
        let url = create(&client, name).await;
        send(&client, &url, name).await;
    }
    let url = |name: &str| format!("http://127.0.0.1:4566/000000000000/{name}");
    client.purge_queue().queue_url(url("purged")).send().await.unwrap();
    client.delete_queue().queue_url(url("deleted")).send().await.unwrap();
    set(&client, &url("kept"), QueueAttributeName::VisibilityTimeout, "77").await.unwrap();

    let (_aws, client) = folder.after_a_kill().open();
    let listed = client.list_queues().send().await.unwrap();
    assert_eq!(listed.queue_urls(), [url("kept"), url("purged")]);
    assert_eq!(counts(&client, &url("kept")).await, ["1", "0", "0"]);
    assert_eq!(counts(&client, &url("purged")).await, ["0", "0", "0"]);
    let kept = client.get_queue_attributes().queue_url(url("kept"));
    let kept = kept.attribute_names(QueueAttributeName::VisibilityTimeout).send().await.unwrap();
    assert_eq!(kept.attributes.unwrap()[&QueueAttributeName::VisibilityTimeout], "77");
}

#[test]
fn data_directory_is_locked_while_it_is_used() {
    let folder = TempDataDir::new();
    let first = EmbeddedAws::on_disk(&folder.0).unwrap();
    let refused = EmbeddedAws::on_disk(&folder.0).unwrap_err();
    assert!(matches!(refused, EmbeddedError::InUse { .. }), "{refused}");
    let (message, process) = (refused.to_string(), std::process::id().to_string());
    assert!(
        message.contains(folder.0.to_str().unwrap()) && message.contains(&process),
        "{message}"
    );
    drop(first);
    EmbeddedAws::on_disk(&folder.0).unwrap();
}

/// The bodies of the messages in a journal, in order.
fn kept(dir: &Path) -> Result<Vec<String>, JournalError> {
    let mut state = QueuesState::default();
    QueueJournal::open(dir, &mut state)?;
    let bodies = state.snapshot().filter_map(|record| {
        let JournalRecord::Sent { message, .. } = record else { return None };
        Some(message.body)
    });
    Ok(bodies.collect())
}

#[tokio::test]
async fn truncated_journal_opens_with_its_complete_lines() {
    let folder = TempDataDir::new();
    let (_aws, client) = folder.open();
    let url = create(&client, "work").await;
    for n in 0..3 {
        send(&client, &url, &format!("message {n}")).await;
    }
    let whole = fs::read(folder.journal()).unwrap();
    let header = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    let mut most = 0;
    for length in header..=whole.len() {
        let cut = TempDataDir::new();
        fs::write(cut.journal(), &whole[..length]).unwrap();
        let there = kept(&cut.0).unwrap();
        let expected: Vec<_> = (0..there.len()).map(|n| format!("message {n}")).collect();
        assert_eq!(there, expected, "{length} bytes");
        assert!(there.len() >= most, "{length} bytes");
        most = there.len();
        // A second open gives the same state.
        assert_eq!(kept(&cut.0).unwrap(), expected);
    }
    assert_eq!(most, 3);
}

#[test]
fn journal_of_another_release_is_refused_and_not_changed() {
    for (text, expected) in [
        ("{\"steward_queues\":2}\n", "not a journal of queues that this release can read"),
        ("{\"steward_queues\":1}\n{\"renamed\":{}}\n{\"next_number\":7}\n", "line 2 of"),
    ] {
        let folder = TempDataDir::new();
        fs::write(folder.journal(), text).unwrap();
        let refused = kept(&folder.0).unwrap_err().to_string();
        assert!(refused.contains(expected), "{refused}");
        assert_eq!(fs::read_to_string(folder.journal()).unwrap(), text);
    }
}

#[tokio::test]
async fn long_journal_is_rewritten_without_deleted_messages() {
    const LARGE: usize = 200 * 1024;
    let folder = TempDataDir::new();
    let (_aws, client) = folder.open();
    let url = create(&client, "work").await;
    let mut longest = 0;
    let large = "x".repeat(LARGE);
    for _ in 0..200 {
        send(&client, &url, &large).await;
        delete(&client, &url, &receive(&client, &url, 30, 0).await[0]).await;
        longest = longest.max(fs::metadata(folder.journal()).unwrap().len());
    }
    assert!((30..34).contains(&(longest >> 20)), "{longest} bytes at most");
    send(&client, &url, "last").await;
    assert_eq!(kept(&folder.after_a_kill().0).unwrap(), ["last"]);
}

/// A rewrite of a backlog would make everything wait, and save nothing.
#[tokio::test]
async fn a_long_journal_of_a_backlog_is_not_rewritten() {
    let folder = TempDataDir::new();
    let (_aws, client) = folder.open();
    let url = create(&client, "work").await;
    let file = || fs::metadata(folder.journal()).unwrap();
    let first = file().ino();
    let large = "x".repeat(200 * 1024);
    for _ in 0..180 {
        send(&client, &url, &large).await;
    }
    assert!(file().len() > 33 << 20);
    assert_eq!(file().ino(), first);
    loop {
        let received = receive(&client, &url, 30, 0).await;
        if received.is_empty() {
            break;
        }
        for message in &received {
            delete(&client, &url, message).await;
        }
    }
    assert_ne!(file().ino(), first);
    // It was rewritten when a quarter of the messages was left.
    assert!(file().len() < 10 << 20, "{} bytes", file().len());
}

#[tokio::test]
async fn journal_restores_the_state_after_random_operations() {
    for seed in 0..20 {
        let mut random = fastrand::Rng::with_seed(seed);
        let folder = TempDataDir::new();
        let (aws, client) = folder.open();
        let (work, dead) = create_with_dead_letters(&client).await;
        let mut held: Vec<(String, Message)> = Vec::new();
        for n in 0..60 {
            let url = if random.bool() { &work } else { &dead };
            match random.u8(..10) {
                0..4 => {
                    let message = client.send_message().queue_url(url).message_body(n.to_string());
                    message.delay_seconds(random.i32(0..2) * 900).send().await.unwrap();
                }
                4..7 => {
                    let received = receive(&client, url, random.i32(0..2) * 60, 0).await;
                    held.extend(received.into_iter().map(|message| (url.clone(), message)));
                }
                7 => drop(client.purge_queue().queue_url(&dead).send().await.unwrap()),
                8 if !held.is_empty() => {
                    let (url, message) = held.swap_remove(random.usize(..held.len()));
                    delete(&client, &url, &message).await;
                }
                _ if !held.is_empty() => {
                    let (url, message) = &held[random.usize(..held.len())];
                    let change = client.change_message_visibility().queue_url(url);
                    let change = change.set_receipt_handle(message.receipt_handle.clone());
                    // The message may be deleted or not in flight.
                    let _ = change.visibility_timeout(random.i32(0..2) * 90).send().await;
                }
                _ => {}
            }
        }
        let there = |state: &QueuesState| -> Vec<_> {
            state.snapshot().map(|record| serde_json::to_string(&record).unwrap()).collect()
        };
        let mut again = QueuesState::default();
        QueueJournal::open(&folder.after_a_kill().0, &mut again).unwrap();
        let live = &aws.services.queues.store().state;
        assert_eq!(there(&again), there(live), "seed {seed}");
    }
}

#[tokio::test]
async fn receipt_of_a_deleted_message_never_matches_a_later_message() {
    let folder = TempDataDir::new();
    let (_aws, client) = folder.open();
    let url = create(&client, "work").await;
    send(&client, &url, "first").await;
    let first = receive(&client, &url, 30, 0).await.remove(0);
    delete(&client, &url, &first).await;
    // Opened twice: the second time the journal does not contain the first message any more.
    let left = folder.after_a_kill();
    drop(left.open());
    let (_aws, client) = left.open();
    send(&client, &url, "second").await;
    receive(&client, &url, 30, 0).await;
    delete(&client, &url, &first).await;
    assert_eq!(counts(&client, &url).await, ["0", "1", "0"]);
}
