//! `steward dlq redrive`: sends dead letters back to the queues they came from. A message is deleted
//! only once it is sent: it may be done twice, and never not at all.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use aws_sdk_sqs::{Client, types::Message};
use clap::Args;
use futures_util::{StreamExt, stream};
use indicatif::{ProgressBar, ProgressStyle};

use crate::{
    client::{BATCH, queue_url},
    dead_letters::{DeadLetters, name_of},
};

/// Which messages to send back.
#[derive(Debug, Args)]
pub(crate) struct RedriveArgs {
    /// The dead-letter queue, by name or URL.
    queue: String,
    /// How many messages at most.
    #[arg(long, default_value_t = 10_000)]
    max: usize,
    /// Where to send them, by name or URL; without it, where each came from.
    #[arg(long)]
    to: Option<String>,
}

/// What became of the messages.
#[derive(Default)]
struct Report {
    /// How many were sent, by the queue's URL.
    sent: BTreeMap<String, usize>,
    /// Of these, how many could not be deleted: they are in both queues.
    doubled: usize,
    /// Those that could not be sent.
    kept: Vec<Message>,
    /// Why, and how many.
    reasons: BTreeMap<String, usize>,
}

/// Sends messages back, and says how many. It is an error if any is kept.
#[expect(clippy::print_stdout, reason = "a command's output")]
pub(crate) async fn run(client: &Client, args: RedriveArgs) -> Result<()> {
    let queue = DeadLetters::find(client, &args.queue).await?;
    let to = match &args.to {
        Some(to) => Some(queue_url(client, to).await?),
        None => None,
    };
    let style = ProgressStyle::with_template("{spinner} {pos} messages sent back, {elapsed} ")?;
    // On a terminal only: a bar draws nothing elsewhere.
    let bar = ProgressBar::new_spinner().with_style(style);
    let mut report = Report::default();
    let mut seen = 0;
    while seen < args.max {
        let mut messages = queue.receive(args.max - seen).await?;
        // In a long run, what is kept comes round again.
        messages.retain(|message| !report.keeps(message));
        if messages.is_empty() {
            break;
        }
        seen += messages.len();
        let sent: Vec<_> = stream::iter(messages)
            .map(async |message| {
                let sent = send_back(client, &queue, to.as_deref(), &message).await;
                (message, sent)
            })
            .buffer_unordered(BATCH)
            .collect()
            .await;
        for (message, sent) in sent {
            report.add(message, sent);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    queue.give_back(&report.kept).await?;
    if report.sent.is_empty() && report.kept.is_empty() {
        println!("{}: no messages", queue.name());
    }
    for (target, count) in &report.sent {
        println!("{}: {count} sent back to {}", queue.name(), name_of(target));
    }
    report.result(queue.name())
}

/// A message that is in its source again.
struct Sent {
    target: String,
    deleted: bool,
}

/// Sends a message where it came from, and then deletes it here.
async fn send_back(
    client: &Client,
    queue: &DeadLetters<'_>,
    to: Option<&str>,
    message: &Message,
) -> Result<Sent> {
    let target = match (to, queue.source_name(message)) {
        (Some(to), _) => to.to_owned(),
        (None, Some(source)) => queue.source_url(source).await?,
        (None, None) => bail!("several queues send their dead letters here: say --to"),
    };
    let body = message.body().context("the message has no body")?;
    let request = client
        .send_message()
        .queue_url(&target)
        .message_body(body)
        .set_message_attributes(message.message_attributes.clone());
    request.send().await.with_context(|| format!("send to {target}"))?;
    let deleted = queue.delete(message).await.is_ok();
    Ok(Sent { target, deleted })
}

impl Report {
    fn keeps(&self, message: &Message) -> bool {
        self.kept.iter().any(|kept| kept.message_id == message.message_id)
    }

    fn add(&mut self, message: Message, sent: Result<Sent>) {
        match sent {
            Ok(Sent { target, deleted }) => {
                *self.sent.entry(target).or_default() += 1;
                self.doubled += usize::from(!deleted);
            }
            Err(error) => {
                *self.reasons.entry(format!("{error:#}")).or_default() += 1;
                self.kept.push(message);
            }
        }
    }

    /// Whether every message is where it belongs, and only there.
    fn result(&self, queue: &str) -> Result<()> {
        let mut wrong: Vec<_> =
            self.reasons.iter().map(|(reason, count)| format!("{count} kept: {reason}")).collect();
        if self.doubled > 0 {
            wrong.push(format!("{} sent but not deleted: they are in both queues", self.doubled));
        }
        if !wrong.is_empty() {
            bail!("{queue}: {}", wrong.join("; "));
        }
        Ok(())
    }
}
