//! The filter of the task index, which also selects the tasks of a bulk command.
//!
//! Tasks are read from two indexes of the state store: unfinished tasks by due time, and ended tasks, newest first. A search
//! for labels reads the index of the first label, newest first. All other criteria have no index, so the tasks are examined one
//! by one, up to a limit. The result says where to continue.

use std::{collections::HashSet, fmt, str::FromStr, time::Duration};

use jiff::{Timestamp, civil, tz::TimeZone};
use serde::{Deserialize, Deserializer, de::Error as _};
use steward_core::model::{
    names::{StepName, TaskId, Tenant, WorkflowName},
    task::{ProcessState, Task},
    time::later,
};
use steward_runtime::ports::PortError;

use super::{
    dynamo_store::DynamoStore,
    indices::{ListCursor, TaskList},
    labels::{Label, Labels},
};
use crate::items::EndState;

/// The number of index entries in one read.
pub(super) const READ_SIZE: usize = 100;

/// The criteria; a task must match all that are present.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct TaskFilter {
    /// The name of the workflow.
    #[serde(deserialize_with = "optional")]
    pub workflow: Option<WorkflowName>,
    /// The tenant.
    #[serde(deserialize_with = "optional")]
    pub tenant: Option<Tenant>,
    /// The labels, all of them.
    #[serde(rename = "label", deserialize_with = "optional")]
    pub labels: Option<Labels>,
    /// The state.
    #[serde(deserialize_with = "optional")]
    pub state: Option<StateFilter>,
    /// The earliest time of submission.
    #[serde(deserialize_with = "optional")]
    pub from: Option<FilterTime>,
    /// The latest time of submission.
    #[serde(deserialize_with = "optional")]
    pub to: Option<FilterTime>,
    /// A step that has failed at least once and has neither completed nor been skipped.
    #[serde(deserialize_with = "optional")]
    pub step: Option<StepName>,
    /// A part of the task's error or undo reason, in upper or lower case.
    #[serde(deserialize_with = "optional")]
    pub error: Option<String>,
}

/// The filter by state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateFilter {
    /// In any state that is not final.
    Unfinished,
    /// Unfinished, and a step awaits a callback.
    AwaitingCallback,
    /// Unfinished, and reported as late, or past its complete-by.
    Late,
    /// In Error, and no operator has settled that.
    Unresolved,
    /// In this state.
    In(ProcessState),
}

impl StateFilter {
    /// All filters, in the order of the form.
    pub fn all() -> impl Iterator<Item = Self> {
        [Self::Unfinished, Self::AwaitingCallback, Self::Late, Self::Unresolved]
            .into_iter()
            .chain(ProcessState::ALL.map(Self::In))
    }

    fn includes(self, state: ProcessState) -> bool {
        match self {
            Self::Unfinished | Self::AwaitingCallback | Self::Late => !state.has_stopped(),
            Self::Unresolved => state == ProcessState::Error,
            Self::In(wanted) => wanted == state,
        }
    }
}

impl fmt::Display for StateFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unfinished => f.write_str("unfinished"),
            Self::AwaitingCallback => f.write_str("awaiting callback"),
            Self::Late => f.write_str("late"),
            Self::Unresolved => f.write_str("unresolved"),
            Self::In(state) => state.fmt(f),
        }
    }
}

impl FromStr for StateFilter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::all().find(|state| state.to_string() == text);
        found.ok_or_else(|| format!("`{text}` is not the state of a task"))
    }
}

/// A time in a form. Without a time zone it is in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilterTime(pub Timestamp);

impl fmt::Display for FilterTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole_minute = self.0.as_second() % 60 == 0;
        self.0.strftime(if whole_minute { "%FT%H:%M" } else { "%FT%T" }).fmt(f)
    }
}

impl FromStr for FilterTime {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let civil = || text.parse::<civil::DateTime>().ok()?.to_zoned(TimeZone::UTC).ok();
        let time = text.parse().ok().or_else(|| Some(civil()?.timestamp()));
        time.map(Self)
            .ok_or_else(|| format!("`{text}` is not a time; write it as 2026-11-21T18:25, in UTC"))
    }
}

/// Parses a field of a form; `None` if it is empty.
fn optional<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: fmt::Display>,
{
    let text = String::deserialize(deserializer)?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.parse().map_err(D::Error::custom)).transpose()
}

/// An index of tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TaskIndex {
    Unfinished,
    Ended,
    Labelled,
}

/// Where a search continues: after a task of an index, or at the start of the index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageCursor {
    index: TaskIndex,
    after: Option<ListCursor>,
}

impl fmt::Display for PageCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let index = match self.index {
            TaskIndex::Unfinished => 'u',
            TaskIndex::Ended => 'e',
            TaskIndex::Labelled => 'l',
        };
        match &self.after {
            Some(cursor) => write!(f, "{index}{cursor}"),
            None => write!(f, "{index}"),
        }
    }
}

impl FromStr for PageCursor {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let index =
            [('u', TaskIndex::Unfinished), ('e', TaskIndex::Ended), ('l', TaskIndex::Labelled)];
        let mut found = index.iter().filter_map(|(c, index)| Some((index, text.strip_prefix(*c)?)));
        let (index, rest) =
            found.next().ok_or_else(|| format!("`{text}` is not a valid position in the index"))?;
        let cursor = (!rest.is_empty()).then(|| rest.parse().map_err(|error| format!("{error}")));
        Ok(Self { index: *index, after: cursor.transpose()? })
    }
}

/// The result of a search.
#[derive(Debug, Default)]
pub struct SearchResult {
    /// The matching tasks, in their current state.
    pub tasks: Vec<Task>,
    /// How many tasks were examined.
    pub examined: usize,
    /// Where to continue; `None` if there are no more tasks.
    pub next: Option<PageCursor>,
}

impl TaskFilter {
    /// The filter for all tasks in a state.
    #[must_use]
    pub fn in_state(state: ProcessState) -> Self {
        Self { state: Some(StateFilter::In(state)), ..Self::default() }
    }

    /// The filter for tasks in Error that no operator has settled.
    #[must_use]
    pub fn unresolved() -> Self {
        Self { state: Some(StateFilter::Unresolved), ..Self::default() }
    }

    /// The filter for tasks with a step that awaits a callback.
    #[must_use]
    pub fn awaiting_callback() -> Self {
        Self { state: Some(StateFilter::AwaitingCallback), ..Self::default() }
    }

    /// The names and values of the criteria that are present, as in a form or query string.
    #[must_use]
    pub fn pairs(&self) -> Vec<(&'static str, String)> {
        let Self { workflow, tenant, labels, state, from, to, step, error } = self;
        let pairs = [
            ("workflow", workflow.as_ref().map(ToString::to_string)),
            ("tenant", tenant.as_ref().map(ToString::to_string)),
            ("label", labels.as_ref().map(ToString::to_string)),
            ("state", state.map(|state| state.to_string())),
            ("from", from.map(|from| from.to_string())),
            ("to", to.map(|to| to.to_string())),
            ("step", step.as_ref().map(ToString::to_string)),
            ("error", error.clone()),
        ];
        pairs.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }

    /// Searches from a position for up to `limit` tasks that match, and examines at most `examined_max` tasks.
    ///
    /// # Errors
    /// DynamoDB failed, or a record is unreadable.
    pub async fn find(
        &self,
        store: &DynamoStore,
        from: Option<PageCursor>,
        limit: usize,
        examined_max: usize,
    ) -> Result<SearchResult, PortError> {
        let (mut found, mut seen) = (SearchResult::default(), HashSet::new());
        let first =
            || self.indexes().first().map(|index| PageCursor { index: *index, after: None });
        let mut place = from.or_else(first);
        while let Some(PageCursor { index, after }) = place {
            if found.tasks.len() >= limit || found.examined >= examined_max {
                return Ok(SearchResult { next: Some(PageCursor { index, after }), ..found });
            }
            let size = READ_SIZE.min(examined_max - found.examined);
            let page = self.read_page(store, index, after.as_ref(), size).await?;
            let all = (&mut found, &mut seen);
            let last = self.add_matching(store, index, &page, limit, all).await?;
            place = match last {
                Some(after) => Some(PageCursor { index, after: Some(after) }),
                None => self.index_after(index).map(|index| PageCursor { index, after: None }),
            };
        }
        Ok(found)
    }

    /// Adds the matching tasks of a page of index entries to `found`. Returns where the index continues; `None` at its end.
    pub(super) async fn add_matching(
        &self,
        store: &DynamoStore,
        index: TaskIndex,
        page: &TaskList,
        limit: usize,
        (found, seen): (&mut SearchResult, &mut HashSet<TaskId>),
    ) -> Result<Option<ListCursor>, PortError> {
        // The index of ended tasks contains the workflow.
        let may_match = page.entries.iter().filter(|entry| {
            let (wanted, workflow) = (self.workflow.as_ref(), entry.workflow.as_ref());
            wanted.is_none_or(|wanted| workflow.is_none_or(|workflow| workflow == wanted))
        });
        let tasks = store.load_tasks(may_match.map(|entry| &entry.task_id)).await?;
        let mut tasks = tasks.into_iter().peekable();
        for (at, entry) in page.entries.iter().enumerate() {
            found.examined += 1;
            if let Some(task) = tasks.next_if(|task| task.task_id == entry.task_id)
                // The entry may be that of an earlier task with this id, or of an attempt to record it.
                && (index != TaskIndex::Labelled || task.submitted_at == entry.at)
                && self.matches(&task)
                && seen.insert(task.task_id.clone())
            {
                found.tasks.push(task);
            }
            if found.tasks.len() >= limit {
                let more = page.more || at + 1 < page.entries.len();
                return Ok(more.then(|| entry.cursor()));
            }
        }
        Ok(page.entries.last().filter(|_| page.more).map(|entry| entry.cursor()))
    }

    /// Reads a page of an index.
    pub(super) async fn read_page(
        &self,
        store: &DynamoStore,
        index: TaskIndex,
        after: Option<&ListCursor>,
        size: usize,
    ) -> Result<TaskList, PortError> {
        match index {
            TaskIndex::Unfinished => store.list_due(after, size).await,
            TaskIndex::Ended => {
                // A task ends after its submission.
                let from = self.from.map_or(Timestamp::MIN, |from| from.0);
                store.list_ended(&self.ends(), from..Timestamp::MAX, after, size).await
            }
            TaskIndex::Labelled => {
                let Some(label) = self.labels().first() else { return Ok(TaskList::default()) };
                let from = self.from.map_or(Timestamp::MIN, |from| from.0);
                let to = self.to.map_or(Timestamp::MAX, |to| later(to.0, Duration::from_millis(1)));
                store.list_labelled(label, from..to, after, size).await
            }
        }
    }

    /// The labels that a task must have.
    pub(super) fn labels(&self) -> &[Label] {
        self.labels.as_ref().map_or(&[], |labels| &labels.0)
    }

    /// The ways to end that the filter accepts.
    fn ends(&self) -> Vec<EndState> {
        let wanted = |state: &ProcessState| self.state.is_none_or(|filter| filter.includes(*state));
        let states = ProcessState::ALL.into_iter().filter(|state| state.has_stopped());
        let mut ends: Vec<EndState> = states.filter(wanted).map(EndState::In).collect();
        let in_error = ends.contains(&EndState::In(ProcessState::Error));
        if in_error && self.state != Some(StateFilter::Unresolved) {
            ends.push(EndState::Resolved);
        }
        ends
    }

    /// The indexes to search, in this order.
    pub(super) fn indexes(&self) -> &'static [TaskIndex] {
        if !self.labels().is_empty() {
            return &[TaskIndex::Labelled];
        }
        match self.state {
            None => &[TaskIndex::Unfinished, TaskIndex::Ended],
            Some(StateFilter::Unresolved) => &[TaskIndex::Ended],
            Some(StateFilter::In(state)) if state.has_stopped() => &[TaskIndex::Ended],
            Some(
                StateFilter::Unfinished
                | StateFilter::AwaitingCallback
                | StateFilter::Late
                | StateFilter::In(_),
            ) => &[TaskIndex::Unfinished],
        }
    }

    fn index_after(&self, index: TaskIndex) -> Option<TaskIndex> {
        self.indexes().iter().copied().skip_while(|other| *other != index).nth(1)
    }

    /// Whether a task matches.
    #[must_use]
    pub fn matches(&self, task: &Task) -> bool {
        let Self { workflow, tenant, labels: _, state, from, to, step, error } = self;
        workflow.as_ref().is_none_or(|workflow| *workflow == task.workflow)
            && tenant.as_ref().is_none_or(|tenant| Some(tenant) == task.tenant.as_ref())
            && self.labels().iter().all(|label| label.is_of(task))
            && state.is_none_or(|state| state.includes(task.process_state))
            && (*state != Some(StateFilter::AwaitingCallback) || awaits_callback(task))
            && (*state != Some(StateFilter::Late) || is_late(task, Timestamp::now()))
            && (*state != Some(StateFilter::Unresolved) || task.is_unresolved())
            && from.is_none_or(|from| task.submitted_at >= from.0)
            && to.is_none_or(|to| task.submitted_at <= to.0)
            && step.as_ref().is_none_or(|step| has_failed_at(task, step))
            && error.as_ref().is_none_or(|error| error_contains(task, &error.to_lowercase()))
    }
}

/// Whether a task that has not ended was reported as late, or is past its complete-by.
fn is_late(task: &Task, now: Timestamp) -> bool {
    task.late_at.is_some() || task.complete_by < now
}

/// Whether a step awaits a callback.
fn awaits_callback(task: &Task) -> bool {
    task.action_spans().any(|(.., progress)| progress.state.awaiting_callback().is_some())
}

/// Whether a step or its undo has failed at least once, and has neither completed nor been skipped.
fn has_failed_at(task: &Task, step: &StepName) -> bool {
    task.started_actions().any(|(part, _, progress)| {
        let failed = progress.state.is_failed() || progress.failure_count > 0;
        part.step == *step && failed && !progress.state.is_completed_or_skipped()
    })
}

/// Whether the error or the undo reason of the task contains `error`, which must be in lower case. Both name the failed step
/// and its reason. Failures of other steps are in documents, which a search does not read.
fn error_contains(task: &Task, error: &str) -> bool {
    let texts = task.error.iter().chain(&task.undo_reason);
    texts.into_iter().any(|text| text.to_lowercase().contains(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_round_trips() {
        for cursor in
            ["u", "e", "u1780000000000.3.o-1", "e1780000000000.0.a.b:c", "l1780000000000.2.o-1"]
        {
            assert_eq!(cursor.parse::<PageCursor>().unwrap().to_string(), cursor);
        }
        for text in ["", "x1.2.o", "e1.2", "e1.x.o"] {
            assert!(text.parse::<PageCursor>().is_err(), "{text}");
        }
    }
}
