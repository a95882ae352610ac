//! The page of a task: state, next events, possible commands, graph, timeline, command history, documents.

use askama::Template;
use axum::{
    Extension,
    extract::{Path, Query, State},
    http::Uri,
    response::Response,
};
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use steward_core::{
    definition::workflow::Workflow,
    engine::request::child_id,
    model::{
        attempt::AttemptTimes,
        command::{CommandId, CommandRecord},
        document::DocumentKey,
        names::{AgentName, Part, TaskId},
        task::Task,
    },
};
use steward_operator::{
    chart, graph,
    masked_documents::{HiddenValues, masked_document},
    next::{NextEvent, next_events},
    payloads::ShownPayload,
    preview::Preview,
    shown_documents::CutStep,
    timeline::{TimelineEntry, timeline},
    view::TaskView,
};

use crate::{
    caller::ConsoleCaller,
    command::parse_step,
    console::Console,
    console_command::ConsoleCommand,
    loaded_task::{LoadedTask, pretty_json},
    page::{DurationText, Failure, Frame, render},
};

/// The largest size of documents on a page, in bytes. Further documents are linked, and have pages of their own.
const SHOWN_BYTES_MAX: usize = 128 * 1024;

/// The largest number of steps with buttons of their own. The forms offer the other steps.
const PARTS_MAX: usize = 10;

/// The query parameters of the page.
#[derive(Debug, Deserialize)]
pub(crate) struct TaskQuery {
    /// An item whose attempts to show, among others.
    #[serde(default)]
    part: String,
    /// The command that was just sent.
    sent: Option<CommandId>,
    /// The key of the only document to show, in full.
    document: Option<String>,
}

pub(crate) async fn show(
    State(console): State<Console>,
    Extension(caller): Extension<ConsoleCaller>,
    Path(id): Path<String>,
    Query(query): Query<TaskQuery>,
    uri: Uri,
) -> Result<Response, Failure> {
    let mut data = LoadedTask::read(&console, &id, query.part()?.as_ref()).await?;
    loop {
        let frame = Frame::new(id.clone(), "tasks", &caller);
        // A page with one document does not change, so it is not refreshed.
        let frame = if query.document.is_none() { frame.refreshed(&uri) } else { frame };
        let page = render(&TaskPage::of(&data, &console, frame, &query));
        if !data.read_needed(&console).await? {
            return Ok(page);
        }
    }
}

impl TaskQuery {
    /// The item whose documents to read: the chosen one, or that of the only document to show.
    fn part(&self) -> Result<Option<Part>, Failure> {
        let document = self.document.as_ref().and_then(|key| key.parse().ok());
        let of_document = document.as_ref().and_then(DocumentKey::attempt);
        let chosen = parse_step(self.part.trim())?;
        Ok(chosen.or_else(|| of_document.map(|attempt| attempt.step.clone())))
    }
}

#[derive(Template)]
#[template(path = "task.html")]
struct TaskPage<'s> {
    frame: Frame,
    task: &'s Task,
    sent: Option<SentCommand>,
    next_events: Vec<NextEvent>,
    commands: AvailableCommands,
    graph: String,
    chart: String,
    lines: Vec<TimelineEntry>,
    history: Vec<CommandEntry<'s>>,
    documents: Vec<ShownDocument>,
    cut: &'s [CutStep],
    children: Vec<(Part, TaskId)>,
    /// The agents of the parts whose steps have several.
    agents: Vec<(Part, AgentName)>,
    trace_id: Option<String>,
    logs: Option<String>,
    trace: Option<String>,
}

impl<'s> TaskPage<'s> {
    fn of(data: &'s LoadedTask, console: &Console, frame: Frame, query: &TaskQuery) -> Self {
        let LoadedTask { task, plan, documents, cut, now, .. } = data;
        let view = TaskView::of(task).with_agents(task, plan);
        let lines = timeline(task, documents);
        let history = CommandEntry::all(task, &lines);
        let trace_id = task.traceparent.as_deref().and_then(trace_id).map(str::to_owned);
        let link =
            |pattern: &Option<String>| link_url(pattern.as_ref()?, task, trace_id.as_deref());
        let operator = frame.caller.as_ref().filter(|caller| caller.may_act);
        let commands =
            operator.map(|caller| AvailableCommands::of(data, caller)).unwrap_or_default();
        Self {
            task,
            sent: query.sent.as_ref().map(|id| SentCommand::of(id, &history)),
            next_events: next_events(task, Some(plan), documents),
            commands,
            graph: graph::element(plan, Some(&view)),
            chart: chart::element(task, plan, documents, *now),
            documents: shown_documents(data, query.document.as_deref()),
            cut,
            children: children(&view, task, plan),
            agents: agents(&view),
            logs: link(&console.links.logs),
            trace: link(&console.links.trace),
            history,
            lines,
            trace_id,
            frame,
        }
    }
}

/// The commands that would be accepted now, and those that would be refused.
#[derive(Default)]
struct AvailableCommands {
    /// The accepted commands for the task.
    of_task: Vec<ConsoleCommand>,
    /// The accepted commands for each step that awaits a callback, and for each failed or waiting one, if there are several.
    of_parts: Vec<(Part, Vec<ConsoleCommand>)>,
    /// The commands for the task whose effects are not known, with the reasons.
    unknown: Vec<(ConsoleCommand, String)>,
    /// The refused commands, with the reasons.
    refused: Vec<(ConsoleCommand, String)>,
}

impl AvailableCommands {
    /// Makes a dry run of each command.
    fn of(data: &LoadedTask, caller: &ConsoleCaller) -> Self {
        let mut commands = Self::default();
        let dry_run = |command: ConsoleCommand, step: Option<&Part>| {
            // The form asks the operator to confirm that no attempt took effect.
            data.dry_run(command.probe(step.cloned()), caller, "")
        };
        for command in ConsoleCommand::ALL {
            match dry_run(command, None) {
                Preview::Does(_) => commands.of_task.push(command),
                Preview::Unknown(reason) => commands.unknown.push((command, reason)),
                // The operator can choose a step in the form.
                Preview::Refused(_) if command.is_by_hand() && !data.stuck_parts().is_empty() => {}
                Preview::Refused(_) if command.is_answer() => {}
                Preview::Refused(reason) => commands.refused.push((command, reason)),
            }
        }
        let awaiting = data.awaiting_parts();
        if awaiting.len() > 1 {
            let answers = || vec![ConsoleCommand::Approve, ConsoleCommand::Reject];
            let parts = awaiting.into_iter().take(PARTS_MAX);
            commands.of_parts.extend(parts.map(|part| (part, answers())));
        }
        let stuck = data.stuck_parts();
        let several = stuck.len() > 1;
        for part in stuck.into_iter().take(PARTS_MAX).filter(|_| several) {
            let of_part =
                [ConsoleCommand::Resubmit, ConsoleCommand::Skip, ConsoleCommand::Complete];
            let accepted = of_part
                .into_iter()
                .filter(|command| matches!(dry_run(*command, Some(&part)), Preview::Does(_)));
            let accepted: Vec<_> = accepted.collect();
            commands.of_parts.push((part, accepted));
        }
        commands
    }
}

/// A command in the history of the task, and the events since then.
struct CommandEntry<'s> {
    record: &'s CommandRecord,
    since: String,
}

impl<'s> CommandEntry<'s> {
    /// All entries, newest first.
    fn all(task: &'s Task, lines: &[TimelineEntry]) -> Vec<Self> {
        let mut until = None;
        let entries = task.commands.iter().rev().map(|record| {
            let since = events_since(lines, record, until);
            // A refused command changed nothing, so the next events belong to an earlier command.
            until = if record.refused.is_none() { Some(record.at) } else { until };
            Self { record, since }
        });
        entries.collect()
    }
}

/// The newest event of each step since a command, until the next command.
fn events_since(
    lines: &[TimelineEntry],
    record: &CommandRecord,
    until: Option<Timestamp>,
) -> String {
    if record.refused.is_some() {
        return String::new();
    }
    let after = lines.iter().filter(|line| {
        !line.is_open && line.at >= record.at && until.is_none_or(|until| line.at < until)
    });
    let mut newest: Vec<(String, &str)> = Vec::new();
    for line in after.filter(|line| line.by.is_none()) {
        let subject = line.step.as_ref().map_or_else(|| "the task".to_owned(), ToString::to_string);
        // Events of the task that are not states, such as an edit of the input, do not show progress.
        if line.step.is_none() && !line.what.starts_with(char::is_uppercase) {
            continue;
        }
        newest.retain(|(other, _)| *other != subject);
        newest.push((subject, &line.what));
    }
    let texts = newest.into_iter().map(|(subject, what)| format!("{subject}: {what}"));
    texts.collect::<Vec<_>>().join("; ")
}

/// The status of the command that was just sent.
enum SentCommand {
    Pending,
    CarriedOut { command: String, since: String },
    Refused { command: String, reason: String },
}

impl SentCommand {
    fn of(id: &CommandId, history: &[CommandEntry<'_>]) -> Self {
        let Some(entry) = history.iter().find(|entry| entry.record.id == *id) else {
            return Self::Pending;
        };
        let command = entry.record.command.clone();
        match &entry.record.refused {
            Some(reason) => Self::Refused { command, reason: reason.clone() },
            None => Self::CarriedOut { command, since: entry.since.clone() },
        }
    }
}

/// A document as the page shows it, with masked values.
struct ShownDocument {
    key: String,
    at: Timestamp,
    /// The content; `None` if the page is full.
    text: Option<String>,
    is_open: bool,
    /// The payloads to which it refers.
    payloads: Vec<ShownPayload>,
}

/// All documents of the task. With `only`, the content of that document only.
fn shown_documents(data: &LoadedTask, only: Option<&str>) -> Vec<ShownDocument> {
    let mut remaining_bytes = SHOWN_BYTES_MAX;
    let mask = &data.plan.mask;
    let hidden = HiddenValues::of(mask, &data.documents);
    let hidden = hidden.of_all_documents(mask, data.cut.is_empty());
    let mut documents: Vec<_> = data.documents.iter().collect();
    documents.sort_by_key(|document| document.at);
    let shown = documents.into_iter().map(|document| {
        let key = document.key.to_string();
        let is_open = only == Some(key.as_str());
        let masked = masked_document(mask, &hidden, document);
        let payloads = ShownPayload::of(&data.task, &document.key, &masked);
        let text = (only.is_none() || is_open).then(|| pretty_json(&masked));
        let text = text.filter(|text| is_open || text.len() <= remaining_bytes);
        remaining_bytes = remaining_bytes.saturating_sub(text.as_ref().map_or(0, String::len));
        ShownDocument { key, at: document.at, text, is_open, payloads }
    });
    shown.collect()
}

/// The child tasks of the shown steps and items.
fn children(view: &TaskView, task: &Task, workflow: &Workflow) -> Vec<(Part, TaskId)> {
    let runs_task = |part: &Part| {
        let step = workflow.steps.get(&part.step);
        step.is_some_and(|step| step.work().is_some_and(|work| work.is_child()))
    };
    let parts = view.steps.keys().filter(|part| runs_task(part));
    parts.filter_map(|part| Some((part.clone(), child_id(task, part).ok()?))).collect()
}

/// The agents of the shown parts whose steps have several: of all such steps, and of the first items.
fn agents(view: &TaskView) -> Vec<(Part, AgentName)> {
    let agents =
        view.steps.iter().filter_map(|(part, view)| Some((part.clone(), view.agent.clone()?)));
    let (items, steps): (Vec<_>, Vec<_>) = agents.partition(|(part, _)| part.item.is_some());
    steps.into_iter().chain(items.into_iter().take(PARTS_MAX)).collect()
}

/// The trace id of a W3C `traceparent`.
fn trace_id(traceparent: &str) -> Option<&str> {
    let id = traceparent.split('-').nth(1)?;
    (id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(id)
}

/// The URL of a link; `None` if the pattern contains a trace id and the task has none.
fn link_url(pattern: &str, task: &Task, trace_id: Option<&str>) -> Option<String> {
    let url = pattern.replace("{task_id}", task.task_id.as_str());
    if !url.contains("trace_id}") {
        return Some(url);
    }
    let id = trace_id?;
    let (start, rest) = id.split_at_checked(8)?;
    let xray = format!("1-{start}-{rest}");
    Some(url.replace("{trace_id}", id).replace("{xray_trace_id}", &xray))
}

/// How long an attempt was in its queue, and how long its call took; empty if unknown.
pub(crate) fn duration_texts(times: &AttemptTimes) -> (String, String) {
    let AttemptTimes { queued_at, called_at, answered_at } = times;
    let duration = |from: &Option<Timestamp>, to: &Option<Timestamp>| {
        let duration = from.zip(*to).map(|(from, to)| to.duration_since(from));
        // A difference of clocks may make a duration negative.
        duration.map_or_else(String::new, |duration| {
            DurationText(duration.max(SignedDuration::ZERO)).to_string()
        })
    };
    (duration(queued_at, called_at), duration(called_at, answered_at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_trace_id_is_read_from_a_valid_traceparent() {
        let id = "0af7651916cd43dd8448eb211c80319c";
        assert_eq!(trace_id(&format!("00-{id}-b7ad6b7169203331-01")), Some(id));
        for text in ["", "00", "00-1-2-01", "00-\"><script>-b7ad6b7169203331-01"] {
            assert_eq!(trace_id(text), None);
        }
    }
}
