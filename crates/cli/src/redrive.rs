//! `steward dlq redrive`: sends dead letters back to the queues they came from.

use anyhow::{Result, bail};
use aws_sdk_sqs::Client;
use clap::{Args, builder::NonEmptyStringValueParser};
use indicatif::{ProgressBar, ProgressStyle};
use jiff::Timestamp;
use steward_aws::dead_letters::Redrive;
use steward_emulator::resources;

use crate::{
    client::{event_bus, queue_url},
    dead_letters::find,
};

/// Which messages to send back.
#[derive(Debug, Args)]
pub(crate) struct RedriveArgs {
    /// The dead-letter queue, by name or URL.
    queue: String,
    /// Why, for the record; 200 characters are kept.
    #[arg(long, value_parser = NonEmptyStringValueParser::new())]
    why: String,
    /// Who asks, for the record.
    #[arg(long, env = "USER", value_parser = NonEmptyStringValueParser::new())]
    by: String,
    /// How many messages at most.
    #[arg(long, default_value_t = 10_000)]
    max: usize,
    /// Where to send them, by name or URL; without it, where each came from.
    #[arg(long)]
    to: Option<String>,
    /// The event bus, on which it is told.
    #[arg(long, env = "STEWARD_EVENT_BUS", default_value = resources::EVENT_BUS)]
    event_bus: String,
}

/// Sends messages back, and says how many. It is an error if any is kept.
pub(crate) async fn run(client: &Client, args: RedriveArgs) -> Result<()> {
    let queue = find(client, &args.queue).await?;
    let to = match &args.to {
        Some(to) => Some(queue_url(client, to).await?),
        None => None,
    };
    let style = ProgressStyle::with_template("{spinner} {pos} messages sent back, {elapsed} ")?;
    // On a terminal only: a bar draws nothing elsewhere.
    let bar = ProgressBar::new_spinner().with_style(style);
    let RedriveArgs { why, by, max, event_bus: bus, .. } = args;
    let (bus, asked) = (event_bus(&bus).await, Redrive { max, to, by, why });
    let goes_on = |seen: usize| {
        bar.set_position(seen as u64);
        true
    };
    let redriven = queue.redrive(&bus, Timestamp::now(), &asked, goes_on).await?;
    bar.finish_and_clear();
    if redriven.sent.is_empty() && redriven.reasons.is_empty() {
        say!("{}: no messages", queue.name());
    }
    for (target, count) in &redriven.sent {
        say!("{}: {count} sent back to {target}", queue.name());
    }
    let wrong = redriven.wrong();
    if !wrong.is_empty() {
        bail!("{}: {}", queue.name(), wrong.join("; "));
    }
    Ok(())
}
