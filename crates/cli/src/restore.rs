//! `steward restore`: copies the items of tables that DynamoDB restored into the tables of a deployment
//! (docs/operations/backup.md).

use anyhow::{Context, Result, bail};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use jiff::Timestamp;
use serde_json::json;
use steward_aws::store::Client;
use steward_core::model::names::TaskId;

use crate::{client::DeploymentArgs, table::table};

mod copy;

use copy::{CopyCounts, CopyOptions, copy_table, with_children};

/// Options of `steward restore`.
#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    /// The restored table of tasks.
    #[arg(long)]
    from_tasks: Option<String>,
    /// The restored table of documents. It is copied before the tasks.
    #[arg(long)]
    from_documents: Option<String>,
    /// Only these tasks and their child tasks. By default all, with the records that instances share.
    #[arg(long = "task", requires = "from_tasks")]
    tasks: Vec<TaskId>,
    /// Replace items that the deployment has, too. Without it they stay: they are newer than the backup. A replaced task
    /// repeats what it did since.
    #[arg(long)]
    overwrite: bool,
    /// Only count what would be written.
    #[arg(long)]
    dry_run: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    deployment: DeploymentArgs,
}

/// Copies the tables, documents first: a task whose documents are missing would fail.
pub(crate) async fn run(args: RestoreArgs) -> Result<()> {
    let (tasks, documents) = args.deployment.task_tables();
    let copies: Vec<_> = [(&args.from_documents, documents), (&args.from_tasks, tasks)]
        .into_iter()
        .filter_map(|(from, to)| Some((from.as_deref()?, to)))
        .collect();
    if copies.is_empty() {
        bail!("nothing to copy: name the restored tables with --from-tasks and --from-documents");
    }
    if let Some((same, _)) = copies.iter().find(|(from, to)| from == to) {
        bail!("`{same}` is a table of the deployment itself; name the restored table");
    }
    let client = args.deployment.dynamodb().await;
    let tasks = match &args.from_tasks {
        Some(from) if !args.tasks.is_empty() => {
            Some(with_children(&client, from, &args.tasks).await?)
        }
        Some(_) | None => None,
    };
    let options = CopyOptions { tasks, overwrite: args.overwrite, dry_run: args.dry_run };
    let written = if args.dry_run { "would be written" } else { "written" };
    let mut rows = table(&["from", "to", written, "kept", "expired"]);
    let mut report = Vec::new();
    for (from, to) in copies {
        let counts = copy_one(&client, (from, to), &options).await?;
        let CopyCounts { written, kept, expired } = counts;
        rows.add_row([
            from.to_owned(),
            to.to_owned(),
            written.to_string(),
            kept.to_string(),
            expired.to_string(),
        ]);
        report.push(
            json!({ "from": from, "to": to, "written": written, "kept": kept, "expired": expired }),
        );
    }
    match args.json {
        true => outln!("{:#}", json!({ "dry_run": args.dry_run, "tables": report })),
        false => outln!("{rows}"),
    }
    Ok(())
}

async fn copy_one(
    client: &Client,
    tables: (&str, &str),
    options: &CopyOptions,
) -> Result<CopyCounts> {
    let style = ProgressStyle::with_template("{spinner} {msg}, {elapsed} ")?;
    // The bar draws nothing if standard error is not a terminal.
    let bar = ProgressBar::new_spinner().with_style(style);
    let (from, to) = tables;
    let on_progress = |CopyCounts { written, kept, expired }: CopyCounts| {
        bar.set_message(format!("{to}: {written} written, {kept} kept, {expired} expired"));
    };
    let copied = copy_table(client, tables, Timestamp::now(), options, on_progress).await;
    bar.finish_and_clear();
    copied.with_context(|| {
        format!("copy {from} to {to}: run the command again, it keeps what is there")
    })
}
