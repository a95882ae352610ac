//! One task: what happened, why, what comes next and when, what can be done, and did it help.

use std::sync::Arc;
use steward_core::definition::plan::Plan;

use askama::Template;
use axum::{
    Extension,
    extract::{Path, Query, State},
    http::Uri,
    response::Response,
};
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::Value;
use steward_core::{
    definition::{step::Work, workflow::Workflow},
    engine::documents::Documents,
    model::{
        attempt::AttemptTimes,
        command::{Command, CommandId, CommandRecord, Order},
        document::{Document, DocumentKey},
        names::{Part, TaskId},
        task::Task,
    },
};
use steward_operator::{
    chart, graph,
    next::{Next, next},
    timeline::{Line, timeline},
};
use steward_operator::{
    preview::{Preview, preview},
    view::{TaskView, child_of},
};
use steward_runtime::ports::{Clock, Definitions, Ports, StateStore};

use crate::{
    Console,
    access::Caller,
    act::{Verb, new_id},
    page::{Failure, Frame, Span, page},
};

/// Bytes of documents on a page; what is over has a page of its own.
const SHOWN_BYTES_MAX: usize = 128 * 1024;

/// Steps whose own buttons are shown; the others are in the forms.
const PARTS_MAX: usize = 10;

/// A task with all that is known of it.
pub(crate) struct Seen {
    pub(crate) task: Task,
    pub(crate) workflow: Arc<Plan>,
    documents: Vec<Document>,
    pub(crate) now: Timestamp,
}

impl Seen {
    /// Reads everything about a task.
    pub(crate) async fn read(console: &Console, id: &str) -> Result<Self, Failure> {
        let no_task = || Failure::NotFound(format!("task {id}"));
        let id: TaskId = id.parse().map_err(|_| no_task())?;
        let ports = &console.ports;
        let task = ports.store().load(&id).await?.ok_or_else(no_task)?;
        let (name, version) = (&task.workflow, task.version);
        let workflow = ports.definitions().workflow(name, Some(version)).await?;
        // Without it nobody knows what of the task may be shown.
        let workflow = workflow.ok_or_else(|| {
            Failure::NotFound(format!("definition of workflow {name}, version {version}"))
        })?;
        let documents = ports.store().all_documents(&task.owner()).await?;
        Ok(Self { task, workflow, documents, now: ports.clock().now() })
    }

    /// What steps that start from now on read as the input; not as people may see it.
    pub(crate) fn input(&self) -> &Value {
        let key = match &self.task.input {
            Some(edit) => DocumentKey::Input(edit.clone()),
            None => DocumentKey::Submission,
        };
        let body = self.documents.iter().find(|document| document.key == key);
        body.and_then(|document| document.body.get("input")).unwrap_or(&Value::Null)
    }

    /// What an order would do.
    pub(crate) fn dry_run(&self, order: Order, caller: &Caller, why: &str) -> Preview {
        let Some(command_id) = new_id() else {
            return Preview::Refused("it can have no id".to_owned());
        };
        let (task_id, by, why) = (self.task.task_id.clone(), caller.name.clone(), why.to_owned());
        let command = Command { command_id, task_id, by, why, order, issued_at: Some(self.now) };
        let documents = self.documents.iter().map(|d| (d.key.clone(), d.body.clone()));
        let mut documents: Documents = documents.collect();
        preview(&self.workflow, &self.task, &mut documents, &command, self.now)
    }

    /// The steps, and items, that failed or wait in the direction in which the task goes.
    fn stuck(&self) -> Vec<Part> {
        let direction = self.task.direction();
        let stuck = self.task.actions().filter(|(_, action, progress)| {
            let state = &progress.state;
            *action == direction && (state.is_failed() || state.waits_until().is_some())
        });
        stuck.map(|(part, ..)| part).collect()
    }
}

/// What a page is asked to show beside the task.
#[derive(Debug, Deserialize)]
pub(crate) struct Asked {
    /// The command that was just sent.
    sent: Option<CommandId>,
    /// The one document to show, whole.
    document: Option<String>,
}

pub(crate) async fn show(
    State(console): State<Console>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Query(asked): Query<Asked>,
    uri: Uri,
) -> Result<Response, Failure> {
    let seen = Seen::read(&console, &id).await?;
    let frame = Frame::new(id, "tasks", &caller);
    // One document, whole, is for reading; all else may change.
    let frame = if asked.document.is_none() { frame.refreshed(&uri) } else { frame };
    Ok(page(&TaskPage::of(&seen, &console, frame, &asked)))
}

#[derive(Template)]
#[template(path = "task.html")]
struct TaskPage<'s> {
    frame: Frame,
    task: &'s Task,
    state: String,
    sent: Option<Sent>,
    next: Vec<Next>,
    actions: Actions,
    graph: String,
    chart: String,
    lines: Vec<Line>,
    commands: Vec<Asking<'s>>,
    documents: Vec<Shown>,
    children: Vec<(Part, TaskId)>,
    trace_id: Option<String>,
    logs: Option<String>,
    trace: Option<String>,
}

impl<'s> TaskPage<'s> {
    fn of(seen: &'s Seen, console: &Console, frame: Frame, asked: &Asked) -> Self {
        let Seen { task, workflow, documents, now } = seen;
        let lines = timeline(task, documents);
        let commands: Vec<_> = Asking::all(task, &lines);
        let trace_id = task.traceparent.as_deref().and_then(trace_id).map(str::to_owned);
        let link = |pattern: &Option<String>| address(pattern.as_ref()?, task, trace_id.as_deref());
        let operator = frame.caller.as_ref().filter(|caller| caller.may_act);
        let actions = operator.map(|caller| Actions::of(seen, caller)).unwrap_or_default();
        Self {
            task,
            state: task.process_state.to_string(),
            sent: asked.sent.as_ref().map(|id| Sent::of(id, &commands)),
            next: next(workflow, task, documents),
            actions,
            graph: graph::element(workflow, Some(&TaskView::of(task))),
            chart: chart::element(task, workflow, documents, *now),
            documents: shown(seen, asked.document.as_deref()),
            children: children(task, workflow),
            logs: link(&console.links.logs),
            trace: link(&console.links.trace),
            commands,
            lines,
            trace_id,
            frame,
        }
    }
}

/// What can be done now, and what cannot.
#[derive(Default)]
struct Actions {
    /// Of the whole task: verb, label.
    whole: Vec<Verb>,
    /// Of steps that failed or wait.
    of_parts: Vec<(Part, Vec<Verb>)>,
    /// Why what is left cannot be done.
    refused: Vec<(Verb, String)>,
}

impl Actions {
    /// Each order is tried, and what of it would be refused is told.
    fn of(seen: &Seen, caller: &Caller) -> Self {
        let mut actions = Self::default();
        let tried = |verb: Verb, step: Option<&Part>| {
            // That an attempt did not take effect is asked in the form.
            let order = verb.order(step.cloned(), None, Value::Null, true);
            seen.dry_run(order, caller, "")
        };
        for verb in Verb::ALL {
            match tried(verb, None) {
                Preview::Does(_) => actions.whole.push(verb),
                // A step can be named in the form.
                Preview::Refused(_) if verb.is_by_hand() && !seen.stuck().is_empty() => {}
                Preview::Refused(reason) => actions.refused.push((verb, reason)),
            }
        }
        let stuck = seen.stuck();
        let several = stuck.len() > 1;
        for part in stuck.into_iter().take(PARTS_MAX).filter(|_| several) {
            let of_part = [Verb::Resubmit, Verb::Skip, Verb::Complete];
            let accepted = of_part
                .into_iter()
                .filter(|verb| matches!(tried(*verb, Some(&part)), Preview::Does(_)));
            let accepted: Vec<_> = accepted.collect();
            actions.of_parts.push((part, accepted));
        }
        actions
    }
}

/// A command on record, and what has happened since.
struct Asking<'s> {
    record: &'s CommandRecord,
    since: String,
}

impl<'s> Asking<'s> {
    /// All of them, the newest first.
    fn all(task: &'s Task, lines: &[Line]) -> Vec<Self> {
        let mut until = None;
        let asking = task.commands.iter().rev().map(|record| {
            let since = since(lines, record, until);
            // One that was refused changed nothing.
            until = if record.refused.is_none() { Some(record.at) } else { until };
            Self { record, since }
        });
        asking.collect()
    }
}

/// What has happened since a command, until the next one: did it help?
fn since(lines: &[Line], record: &CommandRecord, until: Option<Timestamp>) -> String {
    if record.refused.is_some() {
        return String::new();
    }
    let after = lines.iter().filter(|line| {
        !line.is_open && line.at >= record.at && until.is_none_or(|until| line.at < until)
    });
    let mut newest: Vec<(String, &str)> = Vec::new();
    for line in after.filter(|line| line.by.is_none()) {
        let of = line.step.as_ref().map_or_else(|| "the task".to_owned(), ToString::to_string);
        // The input, and what was returned, are no news of how it goes.
        if line.step.is_none() && !line.what.starts_with(char::is_uppercase) {
            continue;
        }
        newest.retain(|(known, _)| *known != of);
        newest.push((of, &line.what));
    }
    let said: Vec<_> = newest.into_iter().map(|(of, what)| format!("{of}: {what}")).collect();
    said.join("; ")
}

/// What became of the command that was just sent.
enum Sent {
    Waiting,
    Done { command: String, since: String },
    Refused { command: String, reason: String },
}

impl Sent {
    fn of(id: &CommandId, commands: &[Asking<'_>]) -> Self {
        let Some(asking) = commands.iter().find(|asking| asking.record.id == *id) else {
            return Self::Waiting;
        };
        let command = asking.record.command.clone();
        match &asking.record.refused {
            Some(reason) => Self::Refused { command, reason: reason.clone() },
            None => Self::Done { command, since: asking.since.clone() },
        }
    }
}

/// A document as people may see it.
struct Shown {
    key: String,
    at: Timestamp,
    /// Nothing if the page is full.
    text: Option<String>,
    is_open: bool,
}

/// All documents, or the one that is asked for.
fn shown(seen: &Seen, asked: Option<&str>) -> Vec<Shown> {
    let mut room = SHOWN_BYTES_MAX;
    let mut documents: Vec<_> = seen.documents.iter().collect();
    documents.sort_by_key(|document| document.at);
    let shown = documents.into_iter().map(|document| {
        let key = document.key.to_string();
        let is_open = asked == Some(key.as_str());
        let text =
            (asked.is_none() || is_open).then(|| pretty(&seen.workflow.mask.shown(document)));
        let text = text.filter(|text| is_open || text.len() <= room);
        room = room.saturating_sub(text.as_ref().map_or(0, String::len));
        Shown { key, at: document.at, text, is_open }
    });
    shown.collect()
}

/// JSON as people read it.
pub(crate) fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

/// The tasks that run, or ran, for its steps.
fn children(task: &Task, workflow: &Workflow) -> Vec<(Part, TaskId)> {
    let runs_task = |part: &Part| {
        let step = workflow.steps.get(&part.step);
        step.is_some_and(|step| matches!(step.work(), Some(Work::Child(_))))
    };
    let parts = task.parts().map(|(part, _)| part).filter(runs_task);
    parts.filter_map(|part| Some((part.clone(), child_of(task, &part)?))).collect()
}

/// The trace that a W3C `traceparent` names.
fn trace_id(traceparent: &str) -> Option<&str> {
    let id = traceparent.split('-').nth(1)?;
    (id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(id)
}

/// An address elsewhere; none if it wants a trace that the task does not have.
fn address(pattern: &str, task: &Task, trace_id: Option<&str>) -> Option<String> {
    let address = pattern.replace("{task_id}", task.task_id.as_str());
    if !address.contains("trace_id}") {
        return Some(address);
    }
    let id = trace_id?;
    let (begun, rest) = id.split_at_checked(8)?;
    let xray = format!("1-{begun}-{rest}");
    Some(address.replace("{trace_id}", id).replace("{xray_trace_id}", &xray))
}

/// How long an attempt was in its queue, and how long with the service.
pub(crate) fn lengths(times: &AttemptTimes) -> (String, String) {
    let AttemptTimes { queued_at, called_at, answered_at } = times;
    let length = |from: &Option<Timestamp>, to: &Option<Timestamp>| {
        let length = from.zip(*to).map(|(from, to)| to.duration_since(from));
        // Clocks may disagree.
        length.map_or_else(String::new, |length| Span(length.max(SignedDuration::ZERO)).to_string())
    };
    (length(queued_at, called_at), length(called_at, answered_at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_named_by_what_is_a_traceparent() {
        let id = "0af7651916cd43dd8448eb211c80319c";
        assert_eq!(trace_id(&format!("00-{id}-b7ad6b7169203331-01")), Some(id));
        for text in ["", "00", "00-1-2-01", "00-\"><script>-b7ad6b7169203331-01"] {
            assert_eq!(trace_id(text), None);
        }
    }
}
