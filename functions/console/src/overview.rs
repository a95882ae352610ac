//! The overview: is anything wrong, in words and first; then how much there is of what, and how it went.

use std::time::Duration;

use askama::Template;
use axum::{Extension, extract::State, http::Uri, response::Response};
use futures_util::try_join;
use jiff::{SignedDuration, Timestamp};
use steward_aws::{
    AwsPorts,
    channel::Depth,
    store::{Count, Entry},
};
use steward_core::{
    breaker::Breaker,
    model::{
        task::{ProcessState, Task},
        time::earlier,
    },
};
use steward_runtime::{
    history::{Counts, LastRun},
    ports::{Channel, PortError, Ports, Shared, SharedKind, StateStore, chain},
};

use crate::{
    Console,
    access::Caller,
    filter::Filter,
    history::{self, Minutes},
    page::{Failure, Frame, Span, page},
};

mod bars;
mod wrong;

use bars::Bars;
use wrong::{Seen, Wrong};

/// Tasks counted of a kind, at most: "10000+".
const COUNT_MOST: usize = 10_000;

/// Newest tasks in Error.
const NEWEST: usize = 10;

/// How far back the pictures go.
const HISTORY: Duration = Duration::from_secs(3 * 3_600);

#[derive(Template)]
#[template(path = "overview.html")]
struct Overview {
    frame: Frame,
    wrong: Vec<Wrong>,
    unfinished: Count,
    in_error: Count,
    /// In the last hour.
    ended: Counts,
    pictures: [Bars; 2],
    queues: Option<Vec<Queue>>,
    breakers: Vec<Turned>,
    closed: usize,
    last_run: Option<LastRun>,
    newest: Vec<Task>,
    dashboard: Option<String>,
}

/// A queue and what was given up of it.
struct Queue {
    depth: Depth,
    /// The queue of its dead letters, and how many there are.
    dead_letters: Option<(String, u64)>,
}

/// A breaker that is not closed.
struct Turned {
    agent: String,
    says: String,
    reason: String,
}

/// What the state store says.
struct Stored {
    unfinished: Count,
    in_error: Count,
    /// What is due first.
    next: Option<Entry>,
    newest: Vec<Task>,
    breakers: Vec<Shared>,
    last_run: Option<LastRun>,
    minutes: Minutes,
}

pub(crate) async fn show(
    State(console): State<Console>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Response, Failure> {
    let frame = Frame::new("Overview", "overview", &caller).refreshed(&uri);
    let now = frame.now;
    let stored = Box::pin(stored(&console.ports, now));
    let (stored, queues) = futures_util::join!(stored, Box::pin(queues(&console.ports)));
    let Stored { unfinished, in_error, next, newest, breakers, last_run, minutes } = stored?;
    // The rest is worth seeing without them.
    let queues = queues.inspect_err(|error| tracing::warn!(error = chain(error), "queues unseen"));
    let queues = queues.ok();
    let known = breakers.len();
    let breakers: Vec<_> = breakers.iter().filter_map(|breaker| turned(breaker, now)).collect();
    let seen = Seen {
        in_error,
        breakers: breakers.iter().map(|breaker| breaker.agent.clone()).collect(),
        dead_letters: queues.as_deref().map(dead_letters),
        last_run,
        due: next.map(|next| (next.at, next.task_id)),
    };
    Ok(page(&Overview {
        wrong: wrong::wrong(&seen, now),
        unfinished,
        in_error,
        ended: ended(&minutes, earlier(now, Duration::from_secs(3_600))),
        pictures: [Bars::ended(&minutes, now), Bars::failed(&minutes, now)],
        queues,
        closed: known - breakers.len(),
        breakers,
        last_run,
        newest,
        dashboard: console.links.dashboard.clone(),
        frame,
    }))
}

async fn stored(ports: &AwsPorts, now: Timestamp) -> Result<Stored, PortError> {
    let store = ports.store();
    let in_error = Filter::in_state(ProcessState::Error);
    let history = async {
        let last_run = store.shared(&LastRun::key()).await?;
        let last_run = last_run.as_ref().and_then(LastRun::read);
        let from = earlier(now, HISTORY);
        Ok((last_run, history::since(store, from, now, last_run.as_ref()).await?))
    };
    let (unfinished, failed, next, newest, breakers, (last_run, minutes)) = try_join!(
        store.count_unfinished(COUNT_MOST),
        store.count_ended(ProcessState::Error, COUNT_MOST),
        store.list_unfinished(None, 1),
        in_error.find(store, None, NEWEST, NEWEST),
        store.all_shared(SharedKind::Breaker),
        history,
    )?;
    Ok(Stored {
        unfinished,
        in_error: failed,
        next: next.entries.into_iter().next(),
        newest: newest.tasks,
        breakers,
        last_run,
        minutes,
    })
}

async fn queues(ports: &AwsPorts) -> Result<Vec<Queue>, PortError> {
    let channel = ports.channel();
    let (depths, mut letters) = try_join!(channel.depths(), channel.dead_letters())?;
    let queues = depths.into_iter().map(|depth| {
        // Agents' queues may have names of their own kind: what both begin with tells which is whose.
        let stem = depth.name.strip_suffix("-requests").unwrap_or(&depth.name);
        let own = |(name, _): &(String, u64)| name.strip_suffix("-dead-letters") == Some(stem);
        let own = letters.iter().position(own);
        Queue { dead_letters: own.map(|own| letters.swap_remove(own)), depth }
    });
    Ok(queues.collect())
}

fn dead_letters(queues: &[Queue]) -> Vec<(String, u64)> {
    let letters = queues.iter().filter_map(|queue| queue.dead_letters.clone());
    letters.filter(|(_, messages)| *messages > 0).collect()
}

fn turned(record: &Shared, now: Timestamp) -> Option<Turned> {
    let breaker: Breaker = serde_json::from_value(record.body.clone()).ok()?;
    let says = if breaker.is_surely_open(now) { "open" } else { "half open" };
    let (agent, reason) = (record.key.name.clone(), breaker.reason()?.to_owned());
    Some(Turned { agent, says: says.to_owned(), reason })
}

fn ended(minutes: &Minutes, from: Timestamp) -> Counts {
    let mut all = Counts::default();
    minutes.range(from..).for_each(|(_, minute)| all += minute.all());
    all
}

/// So many, or more.
pub(crate) fn said(count: &Count) -> String {
    format!("{}{}", count.counted, if count.more { "+" } else { "" })
}

/// A length of time in milliseconds, as people say it.
pub(crate) fn took(millis: &u64) -> Span {
    Span(SignedDuration::from_millis(i64::try_from(*millis).unwrap_or(i64::MAX)))
}
