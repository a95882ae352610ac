//! `steward dlq list|show|redrive`: messages that were received too often without being done.
//!
//! ```text
//! steward-scheduler ──► received five times in vain ──► steward-scheduler-dead-letters
//!        ▲                                                        │
//!        └───────────────────── steward dlq redrive ──────────────┘
//! ```

use anyhow::{Context, Result, bail};
use aws_sdk_sqs::{
    Client,
    types::{
        ChangeMessageVisibilityBatchRequestEntry, Message, MessageAttributeValue,
        MessageSystemAttributeName, QueueAttributeName,
    },
};
use clap::{Args, Subcommand};
use futures_util::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;

use crate::{
    client::{BATCH, queue_url, sqs},
    redrive::{self, RedriveArgs},
    table::table,
};

/// What the names of dead-letter queues end in; what is before it is the source's name.
const SUFFIX: &str = "-dead-letters";

/// Queues asked about at once.
const QUEUES_AT_ONCE: usize = 8;

/// How long a message that is shown or sent back stays hidden from everybody else, in seconds.
const HIDDEN_SECONDS: i32 = 60;

/// How long to wait for a message, in seconds: long enough for SQS to ask all of its servers.
const POLL_SECONDS: i32 = 1;

/// What to do with dead letters.
#[derive(Debug, Subcommand)]
pub(crate) enum DlqCommand {
    /// List the dead-letter queues, with about how many messages each holds.
    List(ListArgs),
    /// Show the messages of a dead-letter queue, which keeps them.
    Show(ShowArgs),
    /// Send the messages of a dead-letter queue back to where they came from.
    Redrive(RedriveArgs),
}

/// Which queues to list.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// What the names of the deployment's queues begin with: on AWS, the stack's name.
    #[arg(long, env = "STEWARD_QUEUE_PREFIX", default_value = "steward")]
    prefix: String,
    /// Another dead-letter queue, by name or URL; repeatable.
    #[arg(long = "queue")]
    queues: Vec<String>,
}

/// Which messages to show.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// The dead-letter queue, by name or URL.
    queue: String,
    /// How many messages at most.
    #[arg(long, default_value_t = 10)]
    limit: usize,
    /// Show bodies too: they may hold what customers sent.
    #[arg(long)]
    body: bool,
}

/// `steward dlq`.
pub(crate) async fn run(command: DlqCommand) -> Result<()> {
    let client = sqs().await;
    match command {
        DlqCommand::List(args) => list(&client, args).await,
        DlqCommand::Show(args) => show(&client, &args).await,
        DlqCommand::Redrive(args) => redrive::run(&client, args).await,
    }
}

#[expect(clippy::print_stdout, reason = "a command's output")]
async fn list(client: &Client, args: ListArgs) -> Result<()> {
    let found = client.list_queues().queue_name_prefix(&args.prefix).max_results(1_000);
    let urls: Vec<_> =
        found.into_paginator().items().send().try_collect().await.context("list queues")?;
    let found: Vec<_> = stream::iter(urls)
        .map(|url| DeadLetters::of(client, url))
        .buffered(QUEUES_AT_ONCE)
        .try_collect()
        .await?;
    let mut queues: Vec<_> = found.into_iter().flatten().collect();
    for named in &args.queues {
        let named = DeadLetters::find(client, named).await?;
        if !queues.iter().any(|queue| queue.url == named.url) {
            queues.push(named);
        }
    }
    if queues.is_empty() {
        bail!(
            "no dead-letter queue's name begins with `{}`: say --prefix, or name queues with --queue",
            args.prefix
        );
    }
    let mut rows = table(&["queue", "messages", "in hand", "from"]);
    for queue in queues {
        let [waiting, in_hand] = queue.counts().await?;
        rows.add_row([queue.name().to_owned(), waiting, in_hand, queue.source_names().join(", ")]);
    }
    println!("{rows}");
    Ok(())
}

#[expect(clippy::print_stdout, reason = "a command's output")]
async fn show(client: &Client, args: &ShowArgs) -> Result<()> {
    let queue = DeadLetters::find(client, &args.queue).await?;
    let mut shown = Vec::new();
    while shown.len() < args.limit {
        let messages = queue.receive(args.limit - shown.len()).await?;
        if messages.is_empty() {
            break;
        }
        shown.extend(messages);
    }
    for message in &shown {
        println!("{}", described(&queue, message, args.body));
    }
    println!("{} shown of {}", shown.len(), queue.name());
    queue.give_back(&shown).await
}

/// A message for people to read.
fn described(queue: &DeadLetters<'_>, message: &Message, body: bool) -> String {
    let system = |name| message.attributes.as_ref().and_then(|all| all.get(&name)).cloned();
    let at = |name| {
        let millis: Option<i64> = system(name).and_then(|text| text.parse().ok());
        let at = millis.and_then(|millis| Timestamp::from_millisecond(millis).ok());
        at.map_or_else(|| "-".to_owned(), |at| format!("{at:.3}"))
    };
    let mut lines = vec![
        message.message_id().unwrap_or("-").to_owned(),
        format!("  from            {}", queue.source_name(message).unwrap_or("-")),
        format!("  sent            {}", at(MessageSystemAttributeName::SentTimestamp)),
        format!(
            "  first received  {}",
            at(MessageSystemAttributeName::ApproximateFirstReceiveTimestamp)
        ),
        format!(
            "  receives        {}",
            system(MessageSystemAttributeName::ApproximateReceiveCount).unwrap_or_default()
        ),
    ];
    let attributes = message.message_attributes.iter().flatten();
    lines.extend(attributes.map(|(name, value)| format!("  {name:<14}  {}", text(value))));
    let bytes = message.body().unwrap_or_default().len();
    lines.push(match (body, message.body()) {
        (true, Some(body)) => format!("  body            {body}"),
        (true, None) | (false, _) => format!("  body            {bytes} bytes; --body shows it"),
    });
    lines.join("\n")
}

fn text(value: &MessageAttributeValue) -> &str {
    value.string_value().unwrap_or("(binary)")
}

/// A dead-letter queue.
pub(crate) struct DeadLetters<'a> {
    client: &'a Client,
    url: String,
    /// The queues that send their dead letters here, by URL.
    sources: Vec<String>,
}

impl<'a> DeadLetters<'a> {
    /// The queue of this name or URL. Others than dead-letter queues are refused: to receive from
    /// them is to take part in their work.
    pub(crate) async fn find(client: &'a Client, name_or_url: &str) -> Result<Self> {
        let url = queue_url(client, name_or_url).await?;
        let queue = Self::of(client, url).await?;
        queue.with_context(|| {
            format!("`{name_or_url}` is no dead-letter queue: `steward dlq list` shows them")
        })
    }

    /// The queue, if it is one: some queue sends its dead letters here, or the name says so.
    async fn of(client: &'a Client, url: String) -> Result<Option<Self>> {
        let sources = client.list_dead_letter_source_queues().queue_url(&url).max_results(1_000);
        let sources: Result<Vec<_>, _> =
            sources.into_paginator().items().send().try_collect().await;
        let sources = match sources {
            Ok(sources) => sources,
            Err(error) if error.as_service_error().is_some_and(|e| e.is_queue_does_not_exist()) => {
                bail!("there is no queue `{url}`")
            }
            Err(error) => return Err(error).with_context(|| format!("list the sources of {url}")),
        };
        let queue = Self { client, url, sources };
        let is_one = !queue.sources.is_empty() || queue.name().ends_with(SUFFIX);
        Ok(is_one.then_some(queue))
    }

    pub(crate) fn name(&self) -> &str {
        name_of(&self.url)
    }

    /// Where dead letters come from: by the queues' settings, or else by this queue's name.
    fn source_names(&self) -> Vec<&str> {
        if self.sources.is_empty() {
            return self.name().strip_suffix(SUFFIX).into_iter().collect();
        }
        self.sources.iter().map(|url| name_of(url)).collect()
    }

    /// Where a message comes from, if there is no doubt.
    pub(crate) fn source_name<'m>(&'m self, message: &'m Message) -> Option<&'m str> {
        let arn = MessageSystemAttributeName::DeadLetterQueueSourceArn;
        let arn = message.attributes.as_ref().and_then(|attributes| attributes.get(&arn));
        let of_message = arn.and_then(|arn| arn.rsplit(':').next());
        match self.source_names().as_slice() {
            _ if of_message.is_some() => of_message,
            [only] => Some(only),
            _ => None,
        }
    }

    /// The URL of a source.
    pub(crate) async fn source_url(&self, name: &str) -> Result<String> {
        match self.sources.iter().find(|url| name_of(url) == name) {
            Some(url) => Ok(url.clone()),
            None => queue_url(self.client, name).await,
        }
    }

    /// About how many messages wait, and how many are in someone's hand.
    async fn counts(&self) -> Result<[String; 2]> {
        let names = [
            QueueAttributeName::ApproximateNumberOfMessages,
            QueueAttributeName::ApproximateNumberOfMessagesNotVisible,
        ];
        let request = self.client.get_queue_attributes().queue_url(&self.url);
        let answer = request.set_attribute_names(Some(names.to_vec())).send().await;
        let answer = answer.with_context(|| format!("count the messages of {}", self.name()))?;
        let attributes = answer.attributes.unwrap_or_default();
        Ok(names.map(|name| attributes.get(&name).cloned().unwrap_or_else(|| "-".to_owned())))
    }

    /// Receives up to `limit` messages, at most a batch; nobody else does for [`HIDDEN_SECONDS`].
    pub(crate) async fn receive(&self, limit: usize) -> Result<Vec<Message>> {
        let request = self
            .client
            .receive_message()
            .queue_url(&self.url)
            .max_number_of_messages(i32::try_from(limit.min(BATCH))?)
            .visibility_timeout(HIDDEN_SECONDS)
            .wait_time_seconds(POLL_SECONDS)
            .message_system_attribute_names(MessageSystemAttributeName::All)
            .message_attribute_names("All");
        let answer = request.send().await.with_context(|| format!("receive from {}", self.name()));
        Ok(answer?.messages.unwrap_or_default())
    }

    /// Deletes a message that has been received.
    pub(crate) async fn delete(&self, message: &Message) -> Result<()> {
        let receipt = message.receipt_handle().unwrap_or_default();
        let request = self.client.delete_message().queue_url(&self.url).receipt_handle(receipt);
        request.send().await.with_context(|| format!("delete from {}", self.name()))?;
        Ok(())
    }

    /// Lets others receive these messages again.
    pub(crate) async fn give_back(&self, messages: &[Message]) -> Result<()> {
        for batch in messages.chunks(BATCH) {
            let entries = batch.iter().enumerate().map(|(n, message)| {
                let receipt = message.receipt_handle().unwrap_or_default();
                ChangeMessageVisibilityBatchRequestEntry::builder()
                    .id(n.to_string())
                    .receipt_handle(receipt)
                    .visibility_timeout(0)
                    .build()
            });
            let entries = entries.collect::<Result<_, _>>()?;
            let request = self.client.change_message_visibility_batch().queue_url(&self.url);
            let given = request.set_entries(Some(entries)).send().await;
            given.with_context(|| {
                format!(
                    "give messages back to {}; they come by themselves in a minute",
                    self.name()
                )
            })?;
        }
        Ok(())
    }
}

/// The last part of a queue's URL.
pub(crate) fn name_of(url: &str) -> &str {
    url.rsplit('/').next().unwrap_or(url)
}
