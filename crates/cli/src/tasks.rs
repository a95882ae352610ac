//! `steward submit`, `show` and `list`.

use std::{io::Read, path::Path};

use anyhow::{Context, Result, bail};
use aws_sdk_sqs::types::SendMessageBatchRequestEntry;
use clap::{Args, ValueEnum};
use jiff::Timestamp;
use serde_json::{Value, json};
use steward_core::{
    names::TaskId,
    ports::{Document, DocumentKey, StateStore},
    submission::parse,
    task::{ProcessState, Task},
    view::TaskView,
};

use crate::{client::Deployment, table::table};

/// Submissions in one request, by SQS's limit.
const BATCH: usize = 10;

/// Sends the submissions in `files` to the submissions queue, after checking all of them.
#[expect(clippy::print_stdout, reason = "a command's output")]
pub(crate) async fn submit(files: &[std::path::PathBuf], deployment: &Deployment) -> Result<()> {
    let mut submissions = Vec::new();
    for file in files {
        for (n, value) in read_values(file)?.into_iter().enumerate() {
            let text = value.to_string();
            let submission = parse(&text)
                .with_context(|| format!("{}, submission {}", file.display(), n + 1))?;
            submissions.push((submission.task_id, text));
        }
    }
    let (client, queue) = deployment.submissions().await?;
    for batch in submissions.chunks(BATCH) {
        let entries = batch.iter().enumerate().map(|(n, (_, text))| {
            SendMessageBatchRequestEntry::builder().id(n.to_string()).message_body(text).build()
        });
        let entries = entries.collect::<Result<_, _>>()?;
        let request = client.send_message_batch().queue_url(&queue).set_entries(Some(entries));
        let answer = request.send().await.context("send to the submissions queue")?;
        if let Some(failed) = answer.failed().first() {
            bail!("the queue refused a submission: {}", failed.message().unwrap_or(failed.code()));
        }
        for (task_id, _) in batch {
            println!("{task_id}: sent");
        }
    }
    Ok(())
}

/// The JSON values of a file: an object, an array of objects, or one object a line.
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
        bail!("{}: no submission in it", name());
    }
    Ok(values)
}

/// Prints a task and the timeline of its attempts.
#[expect(clippy::print_stdout, reason = "a command's output")]
pub(crate) async fn show(task: &str, as_json: bool, deployment: &Deployment) -> Result<()> {
    let id: TaskId = task.parse()?;
    let store = deployment.store().await;
    let task = store.load(&id).await?.with_context(|| format!("there is no task `{id}`"))?;
    let documents = store.all_documents(&id).await?;
    let lines = timeline(&task, &documents);
    if as_json {
        let timeline: Vec<_> = lines.iter().map(Line::json).collect();
        let mut shown = serde_json::to_value(TaskView::of(&task))?;
        if let Some(fields) = shown.as_object_mut() {
            fields.insert("timeline".to_owned(), json!(timeline));
        }
        println!("{}", serde_json::to_string_pretty(&shown)?);
        return Ok(());
    }
    println!("{id}: {} ({} version {})", task.process_state, task.workflow, task.version);
    if let Some(error) = &task.error {
        println!("error: {error}");
    }
    println!(
        "complete by {}, revision {}, failures {}",
        task.complete_by, task.revision, task.failure_count
    );
    let mut table = table(&["at", "step", "attempt", "what"]);
    for line in lines {
        let Line { at, step, attempt, what } = line;
        let attempt = attempt.map(|attempt| attempt.to_string()).unwrap_or_default();
        table.add_row([at.to_string(), step, attempt, what]);
    }
    println!("{table}");
    Ok(())
}

/// One line of a task's timeline.
struct Line {
    at: Timestamp,
    step: String,
    attempt: Option<u32>,
    what: String,
}

impl Line {
    fn json(&self) -> Value {
        let Self { at, step, attempt, what } = self;
        json!({ "at": at, "step": step, "attempt": attempt, "what": what })
    }
}

/// What happened, in order of time, and what is going on.
fn timeline(task: &Task, documents: &[Document]) -> Vec<Line> {
    let mut lines: Vec<_> = documents
        .iter()
        .map(|document| {
            let (step, attempt, what) = match &document.key {
                DocumentKey::Submission => (String::new(), None, "submitted".to_owned()),
                DocumentKey::Input(id) => (String::new(), None, format!("input edited by {id}")),
                DocumentKey::Output(of) => {
                    (of.step.to_string(), Some(of.number), "completed".to_owned())
                }
                DocumentKey::Claim(of) => {
                    (of.step.to_string(), Some(of.number), "claimed".to_owned())
                }
                DocumentKey::Failure(of) => {
                    let reason = document.body.get("reason").and_then(Value::as_str).unwrap_or("-");
                    (of.step.to_string(), Some(of.number), format!("failed: {reason}"))
                }
            };
            Line { at: document.at, step, attempt, what }
        })
        .collect();
    if let Some(at) = task.ended_at {
        let what = format!("{}", task.process_state);
        lines.push(Line { at, step: String::new(), attempt: None, what });
    }
    lines.sort_by_key(|line| line.at);
    let open = TaskView::of(task).steps.into_iter().filter_map(|(name, step)| {
        let at = step.until?;
        let what = match step.state.as_str() {
            "running" => "running, must be done by then".to_owned(),
            state => format!("{state}, next attempt from then on"),
        };
        Some(Line { at, step: name.to_string(), attempt: Some(step.attempt), what })
    });
    lines.extend(open);
    lines
}

/// Which tasks to list.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Only tasks in this state.
    #[arg(long)]
    state: Option<State>,
    /// Only tasks of this workflow.
    #[arg(long)]
    workflow: Option<String>,
    /// How many at most.
    #[arg(long, default_value_t = 100)]
    limit: usize,
    /// As a JSON array.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    deployment: Deployment,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum State {
    Pending,
    Processing,
    Processed,
    Undoing,
    Undone,
    Error,
}

impl State {
    fn process_state(self) -> ProcessState {
        match self {
            Self::Pending => ProcessState::Pending,
            Self::Processing => ProcessState::Processing,
            Self::Processed => ProcessState::Processed,
            Self::Undoing => ProcessState::Undoing,
            Self::Undone => ProcessState::Undone,
            Self::Error => ProcessState::Error,
        }
    }
}

/// Prints tasks, newest first.
#[expect(clippy::print_stdout, reason = "a command's output")]
pub(crate) async fn list(args: ListArgs) -> Result<()> {
    let wanted = |task: &Task| {
        args.state.is_none_or(|state| state.process_state() == task.process_state)
            && args.workflow.as_ref().is_none_or(|name| name == task.workflow.as_str())
    };
    let mut tasks = args.deployment.store().await.scan_tasks(args.limit, wanted).await?;
    tasks.sort_by_key(|task| std::cmp::Reverse(task.submitted_at));
    let views: Vec<_> = tasks.iter().map(TaskView::of).collect();
    if args.json {
        println!("{}", serde_json::to_string_pretty(&views)?);
        return Ok(());
    }
    let mut table = table(&["task", "workflow", "state", "submitted", "failures", "error"]);
    for view in views {
        table.add_row([
            view.task_id.to_string(),
            format!("{} {}", view.workflow, view.version),
            view.process_state.to_string(),
            view.submitted_at.to_string(),
            view.failure_count.to_string(),
            view.error.unwrap_or_default(),
        ]);
    }
    println!("{table}");
    Ok(())
}
