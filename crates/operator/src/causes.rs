//! Counts the tasks that failed for the same reason, so that a list of many errors has one row for each cause.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;
use steward_core::model::{
    names::{StepName, TaskId, WorkflowName},
    task::Task,
};

/// What stands for a part of a reason that differs between tasks.
const VARIES: &str = "…";

/// Why a task needs attention, without what differs from task to task.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Cause {
    /// The workflow.
    pub workflow: WorkflowName,
    /// The step that the reason names, without the item.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<StepName>,
    /// Whether its undo failed, and not the step.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_undo: bool,
    /// Whether the tasks are late, and not in Error.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_late: bool,
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
    /// A part of the reason that all of them contain, for a search. Absent if there is none, or if the tasks are late.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contains: Option<String>,
}

impl Cause {
    /// Why a task is in Error, or late at this time. `None` if it is neither.
    #[must_use]
    pub fn of(task: &Task, now: Timestamp) -> Option<Self> {
        let workflow = task.workflow.clone();
        let is_open = !task.process_state.has_stopped();
        let late_by = match task.late_at {
            _ if task.complete_by < now => Some("complete_within"),
            reported => reported.map(|_| "warn_after"),
        };
        if let Some(limit) = late_by.filter(|_| is_open) {
            let (is_late, reason) = (true, format!("late: it has not ended by its `{limit}`"));
            return Some(Self { workflow, step: None, is_undo: false, is_late, reason });
        }
        if !task.is_unresolved() {
            return None;
        }
        let text = task.error.as_deref().or(task.undo_reason.as_deref()).unwrap_or_default();
        let (step, is_undo, reason) = match step_and_reason(text) {
            Some((step, is_undo, reason)) => (Some(step), is_undo, reason),
            None => (None, false, text),
        };
        let reason = without_values(reason);
        Some(Self { workflow, step, is_undo, is_late: false, reason })
    }
}

impl CauseGroup {
    /// The step, or its undo, for people.
    #[must_use]
    pub fn place(&self) -> String {
        let undo = if self.cause.is_undo { "undo of " } else { "" };
        self.cause.step.as_ref().map(|step| format!("{undo}{step}")).unwrap_or_default()
    }

    /// Whether a search can find its tasks and not those of every other cause.
    #[must_use]
    pub fn can_be_found(&self) -> bool {
        !self.cause.is_late && (self.cause.step.is_some() || self.contains.is_some())
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
            contains: longest_fragment(&cause.reason).filter(|_| !cause.is_late),
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

/// The step, whether its undo failed, and the reason, of `step charge[3]: HTTP 402` or `undo of step charge: …`.
fn step_and_reason(text: &str) -> Option<(StepName, bool, &str)> {
    let (head, reason) = text.split_once(": ")?;
    let (before, part) = head.rsplit_once(' ')?;
    let is_undo = before == "undo of step";
    let step = part.split('[').next()?.parse().ok()?;
    (is_undo || before == "step").then_some((step, is_undo, reason))
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
fn longest_fragment(reason: &str) -> Option<String> {
    let fragments = reason.split(VARIES).map(str::trim);
    let longest = fragments.max_by_key(|fragment| fragment.len());
    longest.filter(|fragment| !fragment.is_empty()).map(str::to_owned)
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
            let place = found.step.as_ref().map(StepName::as_str);
            assert_eq!((place, found.reason.as_str()), (step, reason));
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
        assert_eq!(first.contains.as_deref(), Some("declined, ask"));
        assert!((1..=3).all(|n| declined(n).contains("declined, ask")));
        let late = by_cause(&tasks, Timestamp::from_second(10).unwrap());
        assert_eq!(late.len(), 3);
        let late: Vec<_> = late.iter().filter(|group| group.cause.is_late).collect();
        assert_eq!((late.len(), late[0].can_be_found()), (1, false));
    }

    #[test]
    fn a_failed_undo_is_another_cause_than_the_failed_step() {
        let failed = ["step charge: HTTP 422", "undo of step charge: HTTP 422", "step pay: E1"];
        let tasks: Vec<_> = failed.iter().map(|error| task("t", "Error", error, 1)).collect();
        let groups = by_cause(&tasks, Timestamp::UNIX_EPOCH);
        let mut places: Vec<_> = groups.iter().map(CauseGroup::place).collect();
        places.sort();
        assert_eq!(places, ["charge", "pay", "undo of charge"]);
        let varies = groups.iter().find(|group| group.place() == "pay").unwrap();
        assert_eq!((varies.contains.as_deref(), varies.can_be_found()), (None, true));
    }
}
