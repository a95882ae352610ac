//! `steward dlq redrive`: sends dead letters back to their source queues.

use anyhow::{Result, bail};
use aws_sdk_sqs::Client;
use clap::{Args, builder::NonEmptyStringValueParser};
use indicatif::{ProgressBar, ProgressStyle};
use jiff::Timestamp;
use serde_json::json;
use steward_aws::dead_letters::RedriveRequest;
use steward_emulator::resources;

use crate::{
    client::{dead_letter_queue, event_bus, queue_url},
    operate::operator_name,
};

/// Options of `steward dlq redrive`.
#[derive(Debug, Args)]
pub(crate) struct RedriveArgs {
    /// The dead-letter queue, by name or URL.
    queue: String,
    /// The reason, for the audit record; it is shortened to 200 characters.
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    why: String,
    /// Who redrives, for the audit record.
    #[arg(long, default_value_t = operator_name(), value_parser = NonEmptyStringValueParser::new())]
    by: String,
    /// The maximum number of messages.
    #[arg(long, default_value_t = 10_000)]
    max: usize,
    /// The queue to send them to, by name or URL; by default the source queue of each message.
    #[arg(long)]
    to: Option<String>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// The event bus on which the redrive is published.
    #[arg(long, env = "STEWARD_EVENT_BUS", default_value = resources::EVENT_BUS)]
    event_bus: String,
}

/// Sends messages back, and prints how many. Returns an error if any message stays.
pub(crate) async fn run(client: &Client, args: RedriveArgs) -> Result<()> {
    let queue = dead_letter_queue(client, &args.queue).await?;
    let to = match &args.to {
        Some(to) => Some(queue_url(client, to).await?),
        None => None,
    };
    let style = ProgressStyle::with_template("{spinner} {pos} messages sent back, {elapsed} ")?;
    // The bar draws nothing if standard error is not a terminal.
    let bar = ProgressBar::new_spinner().with_style(style);
    let RedriveArgs { why, by, max, event_bus: bus, json, .. } = args;
    let (bus, request) = (event_bus(&bus).await, RedriveRequest { max, to, by, why });
    let on_progress = |seen: usize| {
        bar.set_position(seen as u64);
        true
    };
    let redriven = queue.redrive(&bus, Timestamp::now(), &request, on_progress).await?;
    bar.finish_and_clear();
    let problems = redriven.problems();
    if json {
        let (queue, sent) = (queue.name(), &redriven.sent);
        outln!("{:#}", json!({ "queue": queue, "sent": sent, "problems": problems }));
    } else if redriven.sent.is_empty() && redriven.reasons.is_empty() {
        outln!("{}: no messages", queue.name());
    }
    for (target, count) in redriven.sent.iter().filter(|_| !json) {
        outln!("{}: {count} sent back to {target}", queue.name());
    }
    if !problems.is_empty() {
        bail!("{}: {}", queue.name(), problems.join("; "));
    }
    Ok(())
}
