//! Tasks that failed for the same reason, as one row: sixty-one rows of one sentence help nobody.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;
use steward_core::model::{
    names::{TaskId, WorkflowName},
    task::{ProcessState, Task},
};

/// What stands for a part of a reason that differs between tasks.
const VARIES: &str = "…";

const LATE: &str = "late: it has not ended by its `complete_within`";

/// Why a task needs attention, without what differs from task to task.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Cause {
    /// The workflow.
    pub workflow: WorkflowName,
    /// The step that the reason names, without the item.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// The reason. Numbers, ids and times are `…`.
    pub reason: String,
}

/// The tasks with one cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CauseGroup {
    /// The cause.
    #[serde(flatten)]
    pub cause: Cause,
    /// How many tasks it has.
    pub tasks: usize,
    /// When the first of them ended, or was submitted if it is late.
    pub first: Timestamp,
    /// The same of the last.
    pub last: Timestamp,
    /// The last one.
    pub example: TaskId,
    /// A part of the reason that all of them contain, for a search.
    pub contains: String,
}

impl CauseGroup {
    /// Whether its tasks are late, and not in Error.
    #[must_use]
    pub fn is_late(&self) -> bool {
        self.cause.reason == LATE
    }
}

impl Cause {
    /// Why a task is in Error, or late at this time. `None` if it is neither.
    #[must_use]
    pub fn of(task: &Task, now: Timestamp) -> Option<Self> {
        let reason = reason_of(task, now)?;
        let (step, reason) = match step_and_reason(reason) {
            Some((step, reason)) => (Some(step.to_owned()), reason),
            None => (None, reason),
        };
        Some(Self { workflow: task.workflow.clone(), step, reason: without_values(reason) })
    }
}

/// The tasks in Error and the late ones by their causes: the most frequent cause comes first.
#[must_use]
pub fn by_cause<'a>(tasks: impl IntoIterator<Item = &'a Task>, now: Timestamp) -> Vec<CauseGroup> {
    let mut groups: BTreeMap<Cause, CauseGroup> = BTreeMap::new();
    for task in tasks {
        let Some(cause) = Cause::of(task, now) else { continue };
        let at = task.ended_at.unwrap_or(task.submitted_at);
        let new = || CauseGroup {
            contains: longest_fragment(&cause.reason).to_owned(),
            cause: cause.clone(),
            tasks: 0,
            first: at,
            last: at,
            example: task.task_id.clone(),
        };
        let group = groups.entry(cause.clone()).or_insert_with(new);
        group.tasks += 1;
        group.first = group.first.min(at);
        if at >= group.last {
            (group.last, group.example) = (at, task.task_id.clone());
        }
    }
    let mut groups: Vec<_> = groups.into_values().collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.tasks));
    groups
}

fn reason_of(task: &Task, now: Timestamp) -> Option<&str> {
    let is_late = !task.process_state.has_stopped() && task.complete_by < now;
    match task.process_state {
        ProcessState::Error => {
            Some(task.error.as_deref().or(task.undo_reason.as_deref()).unwrap_or_default())
        }
        _ if is_late => Some(LATE),
        ProcessState::Pending
        | ProcessState::Processing
        | ProcessState::Processed
        | ProcessState::Undoing
        | ProcessState::Undone => None,
    }
}

/// The step and the reason of `step charge[3]: HTTP 402`, or of `undo of step charge: …`.
fn step_and_reason(text: &str) -> Option<(&str, &str)> {
    let (head, reason) = text.split_once(": ")?;
    let (before, part) = head.rsplit_once(' ')?;
    let step = part.split('[').next().unwrap_or(part);
    before.ends_with("step").then_some((step, reason))
}

/// A reason in which each word with a digit is `…`, except the status of a response.
fn without_values(reason: &str) -> String {
    let mut words: Vec<&str> = Vec::new();
    for word in reason.split(' ') {
        let is_status = words.last() == Some(&"HTTP");
        let varies = !is_status && word.contains(|c: char| c.is_ascii_digit());
        words.push(if varies { VARIES } else { word });
    }
    words.dedup_by(|next, word| *next == VARIES && *word == VARIES);
    words.join(" ")
}

/// The longest text between two values.
fn longest_fragment(reason: &str) -> &str {
    let fragments = reason.split(VARIES).map(str::trim);
    fragments.max_by_key(|fragment| fragment.len()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn task(id: &str, state: &str, error: &str, ended_at: i64) -> Task {
        let task = json!({
            "task_id": id, "workflow": "order", "v": 1, "i": 0, "k": 1, "process_state": state, "revision": 1,
            "complete_by": 9_000, "submitted_at": 0, "error": error,
        });
        let task: Task = serde_json::from_value(task).unwrap();
        let ended_at = (state == "Error").then(|| Timestamp::from_second(ended_at).unwrap());
        Task { ended_at, ..task }
    }

    #[test]
    fn a_reason_is_the_same_whatever_its_ids_numbers_and_times_are() {
        for (error, step, reason) in [
            ("step charge: HTTP 402 Payment Required", Some("charge"), "HTTP 402 Payment Required"),
            (
                "step pick[12]: no reply by complete-by, attempt 3",
                Some("pick"),
                "no reply by complete-by, attempt …",
            ),
            ("step a: item 3f2a-77 of order-9 is gone", Some("a"), "item … of … is gone"),
            ("step a: took 3 4 5 s", Some("a"), "took … s"),
            ("requested by ann: a test", None, "requested by ann: a test"),
        ] {
            let found = Cause::of(&task("t", "Error", error, 1), Timestamp::UNIX_EPOCH).unwrap();
            assert_eq!((found.step.as_deref(), found.reason.as_str()), (step, reason));
        }
    }

    #[test]
    fn the_most_frequent_cause_comes_first_and_all_its_tasks_contain_the_text_to_search_for() {
        let declined = |n: u32| format!("step charge: card {n} declined, ask {n}");
        let mut tasks: Vec<_> =
            (1..=3).map(|n| task(&format!("o-{n}"), "Error", &declined(n), i64::from(n))).collect();
        tasks.insert(0, task("p-1", "Error", "step ship: HTTP 500", 7));
        tasks.push(task("q-1", "Processing", "", 0));
        tasks.push(task("r-1", "Processed", "", 0));
        let groups = by_cause(&tasks, Timestamp::from_second(5).unwrap());
        assert_eq!(groups.len(), 2, "the task that runs is not late: {groups:?}");
        let first = &groups[0];
        assert_eq!((first.tasks, first.example.as_str()), (3, "o-3"));
        assert_eq!(first.cause.reason, "card … declined, ask …");
        assert_eq!((first.first.as_second(), first.last.as_second()), (1, 3));
        assert_eq!(first.contains, "declined, ask");
        assert!((1..=3).all(|n| declined(n).contains(&first.contains)));
        let late = by_cause(&tasks, Timestamp::from_second(10).unwrap());
        assert_eq!(late.len(), 3);
        assert!(late.iter().any(|group| group.cause.reason.starts_with("late: ")));
    }
}
