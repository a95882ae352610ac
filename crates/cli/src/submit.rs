//! `steward submit`: checks submissions, sends them, and waits for the end of their tasks if asked to.

use std::{
    io::Read,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use clap::Args;
use futures_util::{StreamExt, TryStreamExt, stream};
use serde::Serialize;
use serde_json::Value;
use steward_aws::{definitions::DynamoDefinitions, ports::SystemClock, store::DynamoStore};
use steward_core::{
    model::{document::DocumentKey, messages::Submission, names::TaskId, task::ProcessState},
    submission::{check_input, is_same_submission, parse},
};
use steward_operator::view::{TaskView, result_key_of};
use steward_runtime::{
    ports::{Definitions, StateStore},
    waiting::{Missing, wait_for_end},
};

use crate::{
    client::{BATCH, DeploymentArgs},
    failure::NotAsWanted,
};

/// Tasks that are awaited at the same time.
const WAITS_AT_ONCE: usize = 32;

/// Options of `steward submit`.
#[derive(Debug, Args)]
pub(crate) struct SubmitArgs {
    /// JSON files with submissions: one object, an array, or one object per line; `-` reads standard input.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Wait until the tasks have ended, but at most this time. Exits with 1 unless all of them are Processed then.
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "1m", value_parser = humantime::parse_duration)]
    wait: Option<Duration>,
    /// Do not check workflow and input before sending, which needs the right to read the workflow definitions. An invalid
    /// submission then goes to the rejected queue.
    #[arg(long)]
    unchecked: bool,
    /// Print one JSON array: the tasks if they are awaited, else their ids.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    deployment: DeploymentArgs,
}

/// A submission, and what is sent.
struct Prepared {
    submission: Submission,
    text: String,
}

/// Checks all submissions, sends them to the submissions queue, and waits for the end of their tasks.
pub(crate) async fn run(args: SubmitArgs) -> Result<()> {
    let prepared = read_files(&args.files)?;
    if !args.unchecked {
        check(&prepared, &args.deployment.definitions().await).await?;
    }
    send(&prepared, &args.deployment).await?;
    let Some(within) = args.wait else {
        return print_sent(&prepared, args.json);
    };
    let (store, end) = (args.deployment.store().await, Instant::now() + within);
    let views = prepared.iter().map(|prepared| ended_view(&store, &prepared.submission, end));
    let views: Vec<_> = stream::iter(views).buffered(WAITS_AT_ONCE).try_collect().await?;
    print_ended(&prepared, &views, args.json)
}

fn read_files(files: &[PathBuf]) -> Result<Vec<Prepared>> {
    let mut prepared = Vec::new();
    for file in files {
        for (n, value) in read_values(file)?.into_iter().enumerate() {
            let text = value.to_string();
            let submission = parse(&text)
                .with_context(|| format!("{}, submission {}", file.display(), n + 1))?;
            prepared.push(Prepared { submission, text });
        }
    }
    Ok(prepared)
}

/// Reads the JSON values of a file: an object, an array of objects, or one object per line.
fn read_values(file: &Path) -> Result<Vec<Value>> {
    let name = || file.display().to_string();
    let mut text = String::new();
    if file == Path::new("-") {
        std::io::stdin().read_to_string(&mut text).with_context(name)?;
    } else {
        text = std::fs::read_to_string(file).with_context(name)?;
    }
    let mut values = Vec::new();
    for value in serde_json::Deserializer::from_str(&text).into_iter::<Value>() {
        match value.with_context(name)? {
            Value::Array(items) => values.extend(items),
            value @ (Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Object(_)) => values.push(value),
        }
    }
    if values.is_empty() {
        bail!("{}: the file contains no submission", name());
    }
    Ok(values)
}

/// Refuses submissions that the deployment would refuse: the workflow is not published, or the input violates its schema.
async fn check(prepared: &[Prepared], definitions: &DynamoDefinitions) -> Result<()> {
    for Prepared { submission, .. } in prepared {
        let Submission { task_id, workflow: name, version, .. } = submission;
        let plan = definitions.published(name, *version).await;
        let plan =
            plan.context("the definitions cannot be read; --unchecked sends without a check")?;
        let Some(plan) = plan else {
            let version = version.map(|version| format!(" version {version}")).unwrap_or_default();
            bail!("{task_id}: there is no workflow `{name}`{version}; nothing was sent");
        };
        if let Err(refusal) = check_input(submission, &plan) {
            bail!("{task_id}: {refusal}; nothing was sent");
        }
    }
    Ok(())
}

async fn send(prepared: &[Prepared], deployment: &DeploymentArgs) -> Result<()> {
    let queue = deployment.submissions().await?;
    for batch in prepared.chunks(BATCH) {
        let texts: Vec<_> = batch.iter().map(|prepared| prepared.text.clone()).collect();
        if let Some(reason) = queue.send(&texts).await?.into_iter().flatten().next() {
            bail!("SQS refused a submission: {reason}");
        }
    }
    Ok(())
}

/// The task of a submission as soon as it has ended, or at `end`. `None` if it is not recorded by then.
async fn ended_view(
    store: &DynamoStore,
    submission: &Submission,
    end: Instant,
) -> Result<Option<TaskView>> {
    let id = &submission.task_id;
    let within = end.saturating_duration_since(Instant::now());
    let task = wait_for_end(store, &SystemClock, id, within, Missing::Wait).await?;
    let Some(task) = task else { return Ok(None) };
    let result = result_key_of(&task);
    let keys: Vec<_> = result.into_iter().chain([DocumentKey::Submission]).collect();
    let documents = store.documents_of(&task, &keys).await?;
    let (recorded, output): (Vec<_>, Vec<_>) =
        documents.into_iter().partition(|document| document.key == DocumentKey::Submission);
    if recorded.iter().any(|recorded| !is_same_submission(&recorded.body, submission)) {
        bail!("task `{id}` exists already, with other content, so the submission is refused");
    }
    let output = output.into_iter().next().map(|document| document.body);
    Ok(Some(TaskView { output, ..TaskView::of(&task) }))
}

fn print_sent(prepared: &[Prepared], json: bool) -> Result<()> {
    #[derive(Serialize)]
    struct Sent<'a> {
        task_id: &'a TaskId,
    }
    let ids = prepared.iter().map(|prepared| &prepared.submission.task_id);
    if json {
        let sent: Vec<_> = ids.map(|task_id| Sent { task_id }).collect();
        outln!("{}", serde_json::to_string_pretty(&sent)?);
    } else {
        ids.for_each(|id| outln!("{id}: sent"));
    }
    Ok(())
}

fn print_ended(prepared: &[Prepared], views: &[Option<TaskView>], json: bool) -> Result<()> {
    if json {
        outln!("{}", serde_json::to_string_pretty(views)?);
    }
    let mut not_processed = 0;
    for (Prepared { submission, .. }, view) in prepared.iter().zip(views) {
        let is_processed =
            view.as_ref().is_some_and(|view| view.process_state == ProcessState::Processed);
        not_processed += usize::from(!is_processed);
        if !json {
            outln!("{}: {}", submission.task_id, describe(view.as_ref()));
        }
    }
    match not_processed {
        0 => Ok(()),
        count => Err(NotAsWanted(format!("{count} of {} tasks not Processed", views.len())).into()),
    }
}

fn describe(view: Option<&TaskView>) -> String {
    let Some(view) = view else { return "not recorded yet".to_owned() };
    let reason = view.error.as_ref().or(view.undo_reason.as_ref());
    let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
    format!("{}{reason}", view.process_state)
}
