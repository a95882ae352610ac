//! What is wrong, in words; pure.

use std::time::Duration;

use jiff::Timestamp;
use steward_aws::store::Count;
use steward_core::model::{names::TaskId, time::earlier};
use steward_runtime::history::LastRun;

use crate::{
    overview::said,
    page::{Span, When},
    tasks::address,
};

/// The supervisor runs every minute; the alarm of `infra/operations.yaml` is as patient.
const SILENT_AFTER: Duration = Duration::from_secs(5 * 60);

/// A task this long past its due time was missed by more than one run.
const OVERDUE_AFTER: Duration = Duration::from_secs(3 * 60);

/// Something that is wrong, and where to look.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Wrong {
    pub(crate) what: String,
    pub(crate) address: String,
}

/// What tells whether something is wrong.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) in_error: Count,
    /// The agents whose breakers are not closed.
    pub(crate) breakers: Vec<String>,
    /// The queues that hold dead letters; absent if they did not answer.
    pub(crate) dead_letters: Option<Vec<(String, u64)>>,
    pub(crate) last_run: Option<LastRun>,
    /// What is due first.
    pub(crate) due: Option<(Timestamp, TaskId)>,
}

/// What is wrong, the worst first.
pub(crate) fn wrong(seen: &Seen, now: Timestamp) -> Vec<Wrong> {
    let Seen { in_error, breakers, dead_letters, last_run, due } = seen;
    let mut all = Vec::new();
    let mut add = |what: String, address: String| all.push(Wrong { what, address });
    match last_run {
        None => add("The supervisor has never run".to_owned(), "#supervisor".to_owned()),
        Some(run) if run.at < earlier(now, SILENT_AFTER) => {
            let silent = Span(now.duration_since(run.at));
            add(format!("The supervisor has not run for {silent}"), "#supervisor".to_owned());
        }
        Some(run) if run.shards_left > 0 || run.failed > 0 => {
            add("The supervisor's last run left tasks behind".to_owned(), "#supervisor".to_owned());
        }
        Some(_) => {}
    }
    if let Some((at, task_id)) = due
        && *at < earlier(now, OVERDUE_AFTER)
    {
        let since = When::new(at, &now);
        add(format!("A task has been due since {since}: {task_id}"), address(task_id));
    }
    if in_error.counted > 0 {
        let (count, tasks) = (said(in_error), tasks(in_error.counted));
        add(format!("{count} {tasks} in Error"), "/console/tasks?state=Error".to_owned());
    }
    for (queue, messages) in dead_letters.iter().flatten() {
        let letters = if *messages == 1 { "dead letter" } else { "dead letters" };
        let address = format!("/console/dead-letters/{queue}");
        add(format!("{messages} {letters} in {queue}"), address);
    }
    for agent in breakers {
        let what = format!("The breaker of agent {agent} is not closed");
        add(what, "#breakers".to_owned());
    }
    if dead_letters.is_none() {
        add("The queues did not answer".to_owned(), "#queues".to_owned());
    }
    all
}

fn tasks(count: u64) -> &'static str {
    if count == 1 { "task is" } else { "tasks are" }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::constant(1_780_000_000, 0);

    fn well() -> Seen {
        let at = earlier(NOW, Duration::from_secs(60));
        let (took_ms, due, failed, shards_left) = (5, 1, 0, 0);
        let last_run = LastRun { at, took_ms, due, failed, shards_left, counted_until: None };
        Seen {
            in_error: Count::default(),
            breakers: Vec::new(),
            dead_letters: Some(Vec::new()),
            last_run: Some(last_run),
            due: Some((earlier(NOW, Duration::from_secs(90)), "t-1".parse().unwrap())),
        }
    }

    fn said_of(seen: &Seen) -> Vec<String> {
        wrong(seen, NOW).into_iter().map(|wrong| wrong.what).collect()
    }

    #[test]
    fn nothing_is_wrong_while_all_is_in_time() {
        assert_eq!(wrong(&well(), NOW), []);
    }

    #[test]
    fn each_thing_that_is_wrong_is_said() {
        let run = well().last_run.unwrap();
        let silent = LastRun { at: earlier(NOW, Duration::from_secs(301)), ..run };
        let count = |counted, more| Count { counted, more };
        let overdue = earlier(NOW, Duration::from_secs(181));
        for (seen, expected) in [
            (Seen { last_run: None, ..well() }, "The supervisor has never run"),
            (Seen { last_run: Some(silent), ..well() }, "The supervisor has not run for 5 min"),
            (
                Seen { last_run: Some(LastRun { shards_left: 1, ..run }), ..well() },
                "The supervisor's last run left tasks behind",
            ),
            (
                Seen { last_run: Some(LastRun { failed: 1, ..run }), ..well() },
                "The supervisor's last run left tasks behind",
            ),
            (
                Seen { due: Some((overdue, "t-1".parse().unwrap())), ..well() },
                "A task has been due since 3 min ago: t-1",
            ),
            (Seen { in_error: count(1, false), ..well() }, "1 task is in Error"),
            (Seen { in_error: count(10_000, true), ..well() }, "10000+ tasks are in Error"),
            (
                Seen { dead_letters: Some(vec![("q".to_owned(), 2)]), ..well() },
                "2 dead letters in q",
            ),
            (Seen { dead_letters: None, ..well() }, "The queues did not answer"),
            (
                Seen { breakers: vec!["payment".to_owned()], ..well() },
                "The breaker of agent payment is not closed",
            ),
        ] {
            assert_eq!(said_of(&seen), [expected]);
        }
    }
}
