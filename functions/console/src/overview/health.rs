//! Detects problems of the deployment from the data of the overview. Pure.

use std::time::Duration;

use jiff::Timestamp;
use steward_aws::store::TaskCount;
use steward_core::model::{names::TaskId, time::earlier};
use steward_runtime::history::SupervisorRun;

use crate::{
    page::{DurationText, RelativeTime, count_text},
    tasks::task_url,
};

/// The supervisor runs every minute. Only its runs are recorded, not the sweeps in between. The alarm in
/// `infra/operations.yaml` has the same limit.
const SILENT_AFTER: Duration = Duration::from_secs(5 * 60);

/// A task that is overdue for this long was missed by more than one run.
const OVERDUE_AFTER: Duration = Duration::from_secs(3 * 60);

/// A problem, and the URL of its details.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HealthIssue {
    pub(crate) text: String,
    pub(crate) url: String,
}

/// The data in which problems are detected.
#[derive(Debug, Clone)]
pub(crate) struct HealthData {
    pub(crate) in_error: TaskCount,
    /// The agents whose circuit breakers are not closed.
    pub(crate) breakers: Vec<String>,
    /// The dead-letter queues with messages, and how many; `None` if SQS did not respond.
    pub(crate) dead_letters: Option<Vec<(String, u64)>>,
    pub(crate) last_run: Option<SupervisorRun>,
    /// The task that is due first, and when.
    pub(crate) due: Option<(Timestamp, TaskId)>,
}

/// The problems, most severe first.
pub(crate) fn issues(data: &HealthData, now: Timestamp) -> Vec<HealthIssue> {
    let HealthData { in_error, breakers, dead_letters, last_run, due } = data;
    let mut all = Vec::new();
    let mut add = |text: String, url: String| all.push(HealthIssue { text, url });
    match last_run {
        None => add("The supervisor has not run yet".to_owned(), "#supervisor".to_owned()),
        Some(run) if run.at < earlier(now, SILENT_AFTER) => {
            let silence = DurationText(now.duration_since(run.at));
            add(format!("The supervisor has not run for {silence}"), "#supervisor".to_owned());
        }
        Some(run) if run.shards_left > 0 || run.failed > 0 => {
            add(
                "The last run of the supervisor did not process all due tasks".to_owned(),
                "#supervisor".to_owned(),
            );
        }
        Some(_) => {}
    }
    if let Some((at, task_id)) = due
        && *at < earlier(now, OVERDUE_AFTER)
    {
        let due = RelativeTime::new(at, &now);
        add(
            format!("The supervisor has not handled task {task_id}, which was due {due}"),
            task_url(task_id),
        );
    }
    if in_error.counted > 0 {
        let (count, tasks) = (count_text(in_error), tasks(in_error.counted));
        add(format!("{count} {tasks} in Error"), "/console/tasks?state=unresolved".to_owned());
    }
    for (queue, messages) in dead_letters.iter().flatten() {
        let letters = if *messages == 1 { "dead letter" } else { "dead letters" };
        let url = format!("/console/dead-letters/{queue}");
        add(format!("{messages} {letters} in {queue}"), url);
    }
    for agent in breakers {
        let text = format!(
            "Agent {agent} has stopped calling its service, except for probes (circuit breaker open)"
        );
        add(text, "#breakers".to_owned());
    }
    if dead_letters.is_none() {
        add("SQS did not respond".to_owned(), "#queues".to_owned());
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

    fn healthy() -> HealthData {
        let at = earlier(NOW, Duration::from_secs(60));
        let (took_ms, due, failed, shards_left) = (5, 1, 0, 0);
        let last_run = SupervisorRun {
            at,
            took_ms,
            due,
            failed,
            shards_left,
            counted_until: None,
            errors: Default::default(),
        };
        HealthData {
            in_error: TaskCount::default(),
            breakers: Vec::new(),
            dead_letters: Some(Vec::new()),
            last_run: Some(last_run),
            due: Some((earlier(NOW, Duration::from_secs(90)), "t-1".parse().unwrap())),
        }
    }

    fn issue_texts(data: &HealthData) -> Vec<String> {
        issues(data, NOW).into_iter().map(|issue| issue.text).collect()
    }

    #[test]
    fn a_healthy_deployment_has_no_problems() {
        assert_eq!(issues(&healthy(), NOW), []);
    }

    #[test]
    fn each_problem_is_detected() {
        let run = healthy().last_run.unwrap();
        let silent = SupervisorRun { at: earlier(NOW, Duration::from_secs(301)), ..run };
        let count = |counted, more| TaskCount { counted, more };
        let overdue = earlier(NOW, Duration::from_secs(181));
        for (data, expected) in [
            (HealthData { last_run: None, ..healthy() }, "The supervisor has not run yet"),
            (
                HealthData { last_run: Some(silent), ..healthy() },
                "The supervisor has not run for 5 min",
            ),
            (
                HealthData { last_run: Some(SupervisorRun { shards_left: 1, ..run }), ..healthy() },
                "The last run of the supervisor did not process all due tasks",
            ),
            (
                HealthData { last_run: Some(SupervisorRun { failed: 1, ..run }), ..healthy() },
                "The last run of the supervisor did not process all due tasks",
            ),
            (
                HealthData { due: Some((overdue, "t-1".parse().unwrap())), ..healthy() },
                "The supervisor has not handled task t-1, which was due 3 min ago",
            ),
            (HealthData { in_error: count(1, false), ..healthy() }, "1 task is in Error"),
            (
                HealthData { in_error: count(10_000, true), ..healthy() },
                "10000+ tasks are in Error",
            ),
            (
                HealthData { dead_letters: Some(vec![("q".to_owned(), 2)]), ..healthy() },
                "2 dead letters in q",
            ),
            (HealthData { dead_letters: None, ..healthy() }, "SQS did not respond"),
            (
                HealthData { breakers: vec!["payment".to_owned()], ..healthy() },
                "Agent payment has stopped calling its service, except for probes (circuit breaker open)",
            ),
        ] {
            assert_eq!(issue_texts(&data), [expected]);
        }
    }
}
