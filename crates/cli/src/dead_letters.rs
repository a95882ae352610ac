//! `steward dlq list|show|redrive`: messages that were received too often without success. `crates/aws`
//! reads and redrives them.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use aws_sdk_sqs::Client;
use clap::{Args, Subcommand};
use jiff::Timestamp;
use serde_json::{Value, json};
use steward_aws::dead_letters::{DeadLetter, DeadLetterQueue};

use crate::{
    client::{dead_letter_queue, sqs},
    redrive::{self, RedriveArgs},
    table::table,
};

/// Subcommands of `steward dlq`.
#[derive(Debug, Subcommand)]
pub(crate) enum DlqCommand {
    /// List the dead-letter queues with the approximate number of messages in each.
    List(ListArgs),
    /// Show the messages of a dead-letter queue without removing them.
    Show(ShowArgs),
    /// Send the messages of a dead-letter queue back to their source queues.
    Redrive(RedriveArgs),
}

/// Options of `steward dlq list`.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// The prefix of the names of the deployment's queues: on AWS, the stack's name.
    #[arg(long, env = "STEWARD_QUEUE_PREFIX", default_value = "steward")]
    prefix: String,
    /// A further dead-letter queue, by name or URL; repeatable.
    #[arg(long = "queue")]
    queues: Vec<String>,
    /// Print a JSON list.
    #[arg(long)]
    json: bool,
}

/// Options of `steward dlq show`.
#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// The dead-letter queue, by name or URL.
    queue: String,
    /// The maximum number of messages.
    #[arg(long, default_value_t = 10)]
    limit: usize,
    /// Show message bodies too. They may contain customer data.
    #[arg(long)]
    body: bool,
    /// Print a JSON list.
    #[arg(long)]
    json: bool,
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

async fn list(client: &Client, args: ListArgs) -> Result<()> {
    let mut queues = DeadLetterQueue::list(client, &args.prefix).await?;
    for named in &args.queues {
        let named = dead_letter_queue(client, named).await?;
        if !queues.iter().any(|queue| queue.url() == named.url()) {
            queues.push(named);
        }
    }
    if queues.is_empty() {
        bail!(
            "no dead-letter queue has a name that begins with `{}`: set --prefix or --queue",
            args.prefix
        );
    }
    let (mut rows, mut listed) =
        (table(&["queue", "messages", "in flight", "source queues"]), vec![]);
    for queue in queues {
        let holds = queue.contents().await?;
        let (waiting, in_flight, sources) = (holds.waiting, holds.in_flight, queue.source_names());
        listed.push(json!({
            "queue": queue.name(), "messages": waiting, "in_flight": in_flight, "source_queues": sources,
        }));
        let (waiting, in_flight) = (waiting.to_string(), in_flight.to_string());
        rows.add_row([queue.name().to_owned(), waiting, in_flight, sources.join(", ")]);
    }
    match args.json {
        true => outln!("{:#}", Value::Array(listed)),
        false => outln!("{rows}"),
    }
    Ok(())
}

async fn show(client: &Client, args: &ShowArgs) -> Result<()> {
    let queue = dead_letter_queue(client, &args.queue).await?;
    let letters = queue.peek(args.limit).await.with_context(|| format!("show {}", queue.name()))?;
    if args.json {
        let letters = letters.iter().map(|letter| letter_json(letter, args.body));
        outln!("{:#}", Value::Array(letters.collect()));
        return Ok(());
    }
    for letter in &letters {
        outln!("{}", description(letter, args.body));
    }
    outln!("{}: messages shown: {}", queue.name(), letters.len());
    Ok(())
}

fn letter_json(letter: &DeadLetter, body: bool) -> Value {
    json!({
        "message_id": letter.message_id(),
        "source_queue": letter.source(),
        "sent_at": letter.sent_at(),
        "first_received_at": letter.first_received_at(),
        "receives": letter.receives(),
        "attributes": letter.attributes().collect::<BTreeMap<_, _>>(),
        "bytes": letter.body().len(),
        "body": body.then(|| letter.body()),
    })
}

/// The lines that describe a message.
fn description(letter: &DeadLetter, body: bool) -> String {
    let at = |at: Option<Timestamp>| at.map_or_else(|| "-".to_owned(), |at| format!("{at:.3}"));
    let receives = letter.receives().map(|count| count.to_string());
    let mut lines = vec![
        letter.message_id().to_owned(),
        format!("  source queue    {}", letter.source().unwrap_or("-")),
        format!("  sent            {}", at(letter.sent_at())),
        format!("  first received  {}", at(letter.first_received_at())),
        format!("  receives        {}", receives.unwrap_or_default()),
    ];
    lines.extend(letter.attributes().map(|(name, text)| format!("  {name:<14}  {text}")));
    lines.push(if body {
        format!("  body            {}", letter.body())
    } else {
        format!("  body            {} bytes; use --body to show it", letter.body().len())
    });
    lines.join("\n")
}
