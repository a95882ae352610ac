//! The overview: problems first, then the numbers of tasks and messages, and charts of ended tasks.

use std::time::Duration;

use askama::Template;
use axum::{Extension, extract::State, http::Uri, response::Response};
use futures_util::{future::join, try_join};
use jiff::{SignedDuration, Timestamp};
use steward_aws::{
    AwsPorts,
    channel::QueueDepth,
    store::{TaskCount, TaskFilter, TaskListEntry},
};
use steward_core::{
    breaker::Breaker,
    model::{
        task::{ProcessState, Task},
        time::earlier,
    },
};
use steward_operator::causes::{CauseGroup, by_cause};
use steward_runtime::{
    agents,
    history::{EndedCounts, SupervisorRun},
    ports::{Channel, PortError, Ports, SharedRecord, SharedRecordKind, StateStore, error_chain},
};

use crate::{
    caller::ConsoleCaller,
    console::Console,
    filter::query_of,
    history::{self, Minutes},
    page::{DurationText, Failure, Frame, render},
};

mod bar_chart;
mod health;

use bar_chart::{BarChart, HISTORY};
use health::{HealthData, HealthIssue};

/// The number at which counting stops; the page then shows `10000+`.
const COUNT_MAX: usize = 10_000;

/// How many of the tasks that ended last in Error are counted by cause.
const GROUPED_MAX: usize = 100;

/// The number of causes in the table.
const CAUSES_MAX: usize = 10;

#[derive(Template)]
#[template(path = "overview.html")]
struct OverviewPage {
    frame: Frame,
    issues: Vec<HealthIssue>,
    unfinished: TaskCount,
    in_error: TaskCount,
    /// The tasks that ended in the last hour.
    ended: EndedCounts,
    charts: [BarChart; 2],
    queues: Option<Vec<QueueStatus>>,
    /// The circuit breakers that are not closed.
    breakers: Vec<BreakerStatus>,
    /// The number of closed circuit breakers that have a record.
    closed: usize,
    last_run: Option<SupervisorRun>,
    causes: Vec<CauseGroup>,
    dashboard: Option<String>,
}

/// The query string of the tasks with a cause.
pub(crate) fn query_of_cause(group: &CauseGroup) -> String {
    let filter = TaskFilter {
        workflow: Some(group.cause.workflow.clone()),
        step: group.cause.step.clone(),
        error: group.contains.clone(),
        ..TaskFilter::unresolved()
    };
    query_of(&filter, &[])
}

/// The message counts of a queue and of its dead-letter queue.
struct QueueStatus {
    depth: QueueDepth,
    /// The name of its dead-letter queue, and the number of messages there.
    dead_letters: Option<(String, u64)>,
}

/// A circuit breaker that is not closed.
struct BreakerStatus {
    agent: String,
    state: &'static str,
    reason: String,
}

/// The data from the state store.
struct StoredData {
    unfinished: TaskCount,
    in_error: TaskCount,
    /// The task that is due first.
    next_due: Option<TaskListEntry>,
    latest_errors: Vec<Task>,
    breakers: Vec<SharedRecord>,
    last_run: Option<SupervisorRun>,
    minutes: Minutes,
}

pub(crate) async fn show(
    State(console): State<Console>,
    Extension(caller): Extension<ConsoleCaller>,
    uri: Uri,
) -> Result<Response, Failure> {
    let frame = Frame::new("Overview", "overview", &caller).refreshed(&uri);
    let now = frame.now;
    let stored = Box::pin(read_store(&console.ports, now));
    let (stored, queues) = futures_util::join!(stored, Box::pin(read_queues(&console.ports)));
    let StoredData { unfinished, in_error, next_due, latest_errors, breakers, last_run, minutes } =
        stored?;
    // Without the queues, the page still shows the rest.
    let queues = queues
        .inspect_err(|error| tracing::warn!(error = error_chain(error), "message counts not read"));
    let queues = queues.ok();
    let known = breakers.len();
    let breakers: Vec<_> =
        breakers.iter().filter_map(|record| breaker_status(record, now)).collect();
    let health = HealthData {
        in_error,
        breakers: breakers.iter().map(|breaker| breaker.agent.clone()).collect(),
        dead_letters: queues.as_deref().map(dead_letters),
        last_run,
        due: next_due.map(|next| (next.at, next.task_id)),
    };
    let mut causes = by_cause(&latest_errors, now);
    causes.truncate(CAUSES_MAX);
    Ok(render(&OverviewPage {
        issues: health::issues(&health, now),
        unfinished,
        in_error,
        ended: ended_since(&minutes, earlier(now, Duration::from_secs(3_600))),
        charts: [BarChart::ended(&minutes, now), BarChart::failed(&minutes, now)],
        queues,
        closed: known - breakers.len(),
        breakers,
        last_run,
        causes,
        dashboard: console.links.dashboard.clone(),
        frame,
    }))
}

async fn read_store(ports: &AwsPorts, now: Timestamp) -> Result<StoredData, PortError> {
    let store = ports.store();
    let in_error = TaskFilter::unresolved();
    let history = async {
        let last_run = store.shared_record(&SupervisorRun::key()).await?;
        let last_run = last_run.as_ref().and_then(SupervisorRun::read);
        let from = earlier(now, HISTORY);
        Ok((last_run, history::since(store, from, now, last_run.as_ref()).await?))
    };
    let (unfinished, failed, next_due, latest_errors, breakers, (last_run, minutes)) = try_join!(
        store.count_due(COUNT_MAX),
        store.count_ended(ProcessState::Error.into(), COUNT_MAX),
        store.list_due(None, 1),
        in_error.find(store, None, GROUPED_MAX, GROUPED_MAX),
        store.shared_records(SharedRecordKind::Breaker),
        history,
    )?;
    Ok(StoredData {
        unfinished,
        in_error: failed,
        next_due: next_due.entries.into_iter().next(),
        latest_errors: latest_errors.tasks,
        breakers,
        last_run,
        minutes,
    })
}

async fn read_queues(ports: &AwsPorts) -> Result<Vec<QueueStatus>, PortError> {
    let (channel, agents) = (ports.channel(), agents::registered(ports.store()).await?);
    let watched = agents::dead_letter_queues(channel, &agents);
    let existing = agents.iter().filter(|agent| !agent.is_deleted());
    let names: Vec<_> = existing.map(|agent| agent.name.clone()).collect();
    let (depths, letters) = join(channel.depths(&names), channel.dead_letters(&watched)).await;
    let depths = depths?;
    let is_deleted = |name: &String| {
        let mut deleted = agents.iter().filter(|agent| agent.is_deleted());
        deleted.any(|agent| agent.registration.dead_letter_queue.as_str() == name)
    };
    let letters = letters.into_iter().filter_map(|(name, messages)| match messages {
        Err(error) if error.is_no_such_queue() && is_deleted(&name) => None,
        Ok(_) | Err(_) => Some(messages.map(|messages| (name, messages))),
    });
    let mut letters = letters.collect::<Result<Vec<_>, _>>()?;
    let queues = depths.into_iter().map(|depth| {
        // A queue and its dead-letter queue have the same name except for their suffixes.
        let stem = depth.name.strip_suffix("-requests").unwrap_or(&depth.name);
        let own = |(name, _): &(String, u64)| name.strip_suffix("-dead-letters") == Some(stem);
        let own = letters.iter().position(own);
        QueueStatus { dead_letters: own.map(|own| letters.swap_remove(own)), depth }
    });
    Ok(queues.collect())
}

/// The dead-letter queues with messages.
fn dead_letters(queues: &[QueueStatus]) -> Vec<(String, u64)> {
    let letters = queues.iter().filter_map(|queue| queue.dead_letters.clone());
    letters.filter(|(_, messages)| *messages > 0).collect()
}

/// The status of a circuit breaker; `None` if it is closed.
fn breaker_status(record: &SharedRecord, now: Timestamp) -> Option<BreakerStatus> {
    let breaker: Breaker = serde_json::from_value(record.body.clone()).ok()?;
    let state = if breaker.is_certainly_open(now) { "open" } else { "half-open" };
    let (agent, reason) = (record.key.name.clone(), breaker.reason()?.to_owned());
    Some(BreakerStatus { agent, state, reason })
}

/// The numbers of tasks that ended since `from`.
fn ended_since(minutes: &Minutes, from: Timestamp) -> EndedCounts {
    let mut all = EndedCounts::default();
    minutes.range(from..).for_each(|(_, minute)| all += minute.all());
    all
}

/// A duration in milliseconds, as text.
pub(crate) fn millis_text(millis: &u64) -> DurationText {
    DurationText(SignedDuration::from_millis(i64::try_from(*millis).unwrap_or(i64::MAX)))
}
