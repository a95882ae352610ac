//! `steward submit`: checks submissions, sends them, and waits for the end of their tasks if asked to.

use std::{
    fmt,
    io::Read,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use clap::Args;
use futures_util::{StreamExt, TryStreamExt, stream};
use serde::Serialize;
use serde_json::{Value, json};
use steward_aws::{ports::SystemClock, store::DynamoStore};
use steward_core::{
    model::{
        document::DocumentKey,
        messages::Submission,
        names::{TaskId, Tenant},
        task::{ProcessState, Task},
    },
    submission::{check_input, is_same_submission, parse, payloads::submitted_payloads},
};
use steward_operator::view::{TaskView, result_key_of};
use steward_runtime::{
    ports::{Definitions, StateStore},
    waiting::{Missing, wait_for_end},
};

use crate::{
    client::{BATCH, DeploymentArgs, QueuedText},
    failure::UnexpectedOutcome,
    payloads::{self, PayloadFile},
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
    /// Upload a file of up to 64 MiB, and put a reference to it in place of the input, or with FIELD=FILE into a field of the
    /// input, such as `document.scan=scan.pdf`. Only for a single submission; it may be given several times. The upload
    /// needs the right to write to the bucket of payloads.
    #[arg(long = "payload", value_name = "[FIELD=]FILE")]
    payloads: Vec<PayloadFile>,
    /// The tenant of all tasks whose submission names none.
    #[arg(long)]
    tenant: Option<Tenant>,
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
    let mut values = read_files(&args.files)?;
    if !args.payloads.is_empty() {
        let [value] = values.as_mut_slice() else {
            bail!("--payload needs exactly one submission, and there are {}", values.len());
        };
        let store = args.deployment.payloads().await;
        payloads::upload_into(&mut value.value, &args.payloads, &store).await?;
    }
    let prepared = prepare(values, args.tenant.as_ref())?;
    if !args.unchecked {
        check(&prepared, &args.deployment).await?;
    }
    send(&prepared, &args.deployment).await?;
    let Some(within) = args.wait else {
        return print_sent(&prepared, args.json);
    };
    let end = Instant::now().checked_add(within).context("--wait is too long")?;
    let store = args.deployment.store().await;
    let ends = prepared.iter().map(|prepared| await_end(&store, &prepared.submission, end));
    let ends: Vec<_> = stream::iter(ends).buffered(WAITS_AT_ONCE).try_collect().await?;
    print_ends(&prepared, &ends, args.json)
}

/// A submission as it is in a file, and its place.
struct ReadValue {
    value: Value,
    place: String,
}

fn read_files(files: &[PathBuf]) -> Result<Vec<ReadValue>> {
    let mut values = Vec::new();
    for file in files {
        for (n, value) in read_values(file)?.into_iter().enumerate() {
            let place = format!("{}, submission {}", file.display(), n + 1);
            values.push(ReadValue { value, place });
        }
    }
    Ok(values)
}

fn prepare(values: Vec<ReadValue>, tenant: Option<&Tenant>) -> Result<Vec<Prepared>> {
    let prepared = values.into_iter().map(|ReadValue { mut value, place }| {
        if let (Some(tenant), Value::Object(fields)) = (tenant, &mut value) {
            fields.entry("tenant").or_insert_with(|| tenant.as_str().into());
        }
        let text = value.to_string();
        let submission = parse(&text).context(place)?;
        Ok(Prepared { submission, text })
    });
    prepared.collect()
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

/// Refuses submissions whose workflow is not published, or whose input violates its schema, unless the same submission was
/// recorded before.
async fn check(prepared: &[Prepared], deployment: &DeploymentArgs) -> Result<()> {
    let (definitions, store) = (deployment.definitions().await, deployment.store().await);
    for Prepared { submission, .. } in prepared {
        let Submission { task_id, workflow: name, version, .. } = submission;
        let plan = definitions.published(name, *version).await;
        let plan =
            plan.context("the definitions cannot be read; --unchecked sends without a check")?;
        let refusal = match plan {
            Some(plan) => {
                let checked = check_input(submission, &plan);
                let checked = checked.and_then(|()| submitted_payloads(submission).map(drop));
                checked.err().map(|refusal| refusal.to_string())
            }
            None => {
                let version = version.map(|version| format!(" version {version}"));
                Some(format!("there is no workflow `{name}`{}", version.unwrap_or_default()))
            }
        };
        let Some(refusal) = refusal else { continue };
        match store.load(task_id).await? {
            Some(task) if is_task_of(&store, &task, submission).await? => {}
            Some(_) | None => bail!("{task_id}: {refusal}; nothing was sent"),
        }
    }
    Ok(())
}

/// Whether the task was recorded for this submission.
async fn is_task_of(store: &DynamoStore, task: &Task, submission: &Submission) -> Result<bool> {
    let recorded = store.documents_of(task, &[DocumentKey::Submission]).await?;
    Ok(recorded.iter().any(|recorded| is_same_submission(task, &recorded.body, submission)))
}

async fn send(prepared: &[Prepared], deployment: &DeploymentArgs) -> Result<()> {
    let queue = deployment.submissions().await?;
    for (n, batch) in prepared.chunks(BATCH).enumerate() {
        let texts = batch.iter().map(|Prepared { submission, text }| QueuedText {
            text: text.clone(),
            tenant: submission.tenant.clone(),
        });
        let texts: Vec<_> = texts.collect();
        let sent_before = || format!("the first {} of {} were sent", n * BATCH, prepared.len());
        let refusals = queue.send(&texts).await.with_context(sent_before)?;
        if let Some(reason) = refusals.into_iter().flatten().next() {
            bail!("{}, and SQS refused a further one: {reason}", sent_before());
        }
    }
    Ok(())
}

/// What has become of an awaited submission.
enum AwaitedEnd {
    /// It is not recorded yet.
    NotRecorded,
    /// The id is that of another task, so the submission is refused.
    Taken,
    /// The task as it was when it had ended, or at the end of the wait.
    Task(Box<TaskView>),
}

/// Waits until the task of a submission has ended, at most until `end`.
async fn await_end(
    store: &DynamoStore,
    submission: &Submission,
    end: Instant,
) -> Result<AwaitedEnd> {
    let id = &submission.task_id;
    let within = end.saturating_duration_since(Instant::now());
    let task = wait_for_end(store, &SystemClock, id, within, Missing::Wait).await?;
    let Some(task) = task else { return Ok(AwaitedEnd::NotRecorded) };
    if !is_task_of(store, &task, submission).await? {
        return Ok(AwaitedEnd::Taken);
    }
    let result: Vec<_> = result_key_of(&task).into_iter().collect();
    let output = store.documents_of(&task, &result).await?.into_iter().next();
    let output = output.map(|document| document.body);
    Ok(AwaitedEnd::Task(Box::new(TaskView { output, ..TaskView::of(&task) })))
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

fn print_ends(prepared: &[Prepared], ends: &[AwaitedEnd], json: bool) -> Result<()> {
    if json {
        let ids = prepared.iter().map(|prepared| &prepared.submission.task_id);
        let ends = ids.zip(ends).map(|(id, end)| end.to_json(id));
        outln!("{:#}", Value::Array(ends.collect()));
    }
    let mut not_processed = 0;
    for (Prepared { submission, .. }, end) in prepared.iter().zip(ends) {
        let is_processed =
            end.view().is_some_and(|view| view.process_state == ProcessState::Processed);
        not_processed += usize::from(!is_processed);
        if !json {
            outln!("{}: {end}", submission.task_id);
        }
    }
    match not_processed {
        0 => Ok(()),
        count => {
            Err(UnexpectedOutcome(format!("{count} of {} tasks not Processed", ends.len())).into())
        }
    }
}

const TAKEN: &str = "the task exists already, with other content";

impl AwaitedEnd {
    /// The task as `steward list --json` prints it. Without a task, its id, a state that is null, and why it is refused.
    fn to_json(&self, id: &TaskId) -> Value {
        match self {
            Self::Task(view) => json!(view),
            Self::NotRecorded => json!({ "task_id": id, "process_state": null }),
            Self::Taken => json!({ "task_id": id, "process_state": null, "refused": TAKEN }),
        }
    }

    fn view(&self) -> Option<&TaskView> {
        match self {
            Self::Task(view) => Some(view),
            Self::NotRecorded | Self::Taken => None,
        }
    }
}

impl fmt::Display for AwaitedEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRecorded => f.write_str(
                "not recorded yet; if it was refused, `steward dlq list` shows it in the queue of rejected submissions",
            ),
            Self::Taken => write!(f, "refused: {TAKEN}"),
            Self::Task(view) => {
                let reason = view.error.as_ref().or(view.undo_reason.as_ref());
                let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
                write!(f, "{}{reason}", view.process_state)
            }
        }
    }
}
