//! Which tasks: what the list shows, and what an order to many is given to.
//!
//! Tasks are found by the indices of the state store: those that are not finished by when they are due,
//! those that have ended newest first. Whatever else is asked for no index knows, so tasks are looked at
//! one after the other; how many of them has a limit, and the answer says where to go on.

use std::{collections::HashSet, fmt, str::FromStr};

use axum::{extract::Query, http::Uri};
use jiff::{Timestamp, civil, tz::TimeZone};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Deserializer, de::Error as _};
use steward_aws::store::{Cursor, DynamoStore, Entries};
use steward_core::model::{
    names::{StepName, WorkflowName},
    task::{ProcessState, Task},
};
use steward_runtime::ports::PortError;

use crate::page::{Failure, STATES};

/// Tasks read at once.
const PAGE: usize = 100;

/// Which tasks. What is absent does not matter.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Filter {
    /// What they run.
    #[serde(deserialize_with = "text")]
    pub(crate) workflow: Option<WorkflowName>,
    /// Where they stand.
    #[serde(deserialize_with = "text")]
    pub(crate) state: Option<Stand>,
    /// Submitted then, or after.
    #[serde(deserialize_with = "text")]
    pub(crate) from: Option<Time>,
    /// Submitted then, or before.
    #[serde(deserialize_with = "text")]
    pub(crate) to: Option<Time>,
    /// A step that has failed, at least once, and has not passed.
    #[serde(deserialize_with = "text")]
    pub(crate) step: Option<StepName>,
    /// What the task's error or that of a step says, in part.
    #[serde(deserialize_with = "text")]
    pub(crate) error: Option<String>,
}

/// Where tasks stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stand {
    /// In any state that is not final.
    Unfinished,
    /// In this state.
    In(ProcessState),
}

impl Stand {
    /// All that can be asked for.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        std::iter::once(Self::Unfinished).chain(STATES.map(Self::In))
    }

    fn includes(self, state: ProcessState) -> bool {
        match self {
            Self::Unfinished => !state.is_final(),
            Self::In(wanted) => wanted == state,
        }
    }
}

impl fmt::Display for Stand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unfinished => f.write_str("unfinished"),
            Self::In(state) => state.fmt(f),
        }
    }
}

impl FromStr for Stand {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::all().find(|stand| stand.to_string() == text);
        found.ok_or_else(|| format!("`{text}` is no state of a task"))
    }
}

/// A time as forms have it: without a zone, which means UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Time(pub(crate) Timestamp);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole_minute = self.0.as_second() % 60 == 0;
        self.0.strftime(if whole_minute { "%FT%H:%M" } else { "%FT%T" }).fmt(f)
    }
}

impl FromStr for Time {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let civil = || text.parse::<civil::DateTime>().ok()?.to_zoned(TimeZone::UTC).ok();
        let time = text.parse().ok().or_else(|| Some(civil()?.timestamp()));
        time.map(Self).ok_or_else(|| format!("`{text}` is no time: write 2026-11-21T18:25, in UTC"))
    }
}

/// What a field of a form says; nothing if it is empty.
fn text<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: fmt::Display>,
{
    let text = String::deserialize(deserializer)?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.parse().map_err(D::Error::custom)).transpose()
}

/// A list that tasks are looked for in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum List {
    Unfinished,
    Ended,
}

/// How far one has looked: to a task of a list, or to its beginning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    list: List,
    after: Option<Cursor>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = match self.list {
            List::Unfinished => 'u',
            List::Ended => 'e',
        };
        match &self.after {
            Some(cursor) => write!(f, "{list}{cursor}"),
            None => write!(f, "{list}"),
        }
    }
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let list = [('u', List::Unfinished), ('e', List::Ended)];
        let mut found = list.iter().filter_map(|(c, list)| Some((list, text.strip_prefix(*c)?)));
        let (list, rest) = found.next().ok_or_else(|| format!("`{text}` is no place in a list"))?;
        let cursor = (!rest.is_empty()).then(|| rest.parse().map_err(|error| format!("{error}")));
        Ok(Self { list: *list, after: cursor.transpose()? })
    }
}

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// The tasks, as they are now.
    pub(crate) tasks: Vec<Task>,
    /// How many were looked at.
    pub(crate) looked_at: usize,
    /// Where to go on, if there may be more.
    pub(crate) next: Option<Place>,
}

impl Filter {
    /// All in a state.
    pub(crate) fn in_state(state: ProcessState) -> Self {
        Self { state: Some(Stand::In(state)), ..Self::default() }
    }

    /// The filter of a query string.
    pub(crate) fn of(uri: &Uri) -> Result<Self, Failure> {
        let read = Query::try_from_uri(uri);
        let Query(filter) = read.map_err(|error| Failure::BadRequest(error.body_text()))?;
        Ok(filter)
    }

    /// What a form or a query string has of it.
    pub(crate) fn pairs(&self) -> Vec<(&'static str, String)> {
        let Self { workflow, state, from, to, step, error } = self;
        let pairs = [
            ("workflow", workflow.as_ref().map(ToString::to_string)),
            ("state", state.map(|state| state.to_string())),
            ("from", from.map(|from| from.to_string())),
            ("to", to.map(|to| to.to_string())),
            ("step", step.as_ref().map(ToString::to_string)),
            ("error", error.clone()),
        ];
        pairs.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }

    /// The query string, with more in it; without a question mark.
    pub(crate) fn query(&self, more: &[(&str, String)]) -> String {
        let own = self.pairs();
        let pairs = own.iter().map(|(name, value)| (*name, value));
        let pairs = pairs.chain(more.iter().map(|(name, value)| (*name, value)));
        let pairs = pairs.map(|(name, value)| {
            format!("{name}={}", utf8_percent_encode(value, NON_ALPHANUMERIC))
        });
        pairs.collect::<Vec<_>>().join("&")
    }

    /// Up to `limit` tasks that match, from a place on; looks at no more than `look_at`.
    pub(crate) async fn find(
        &self,
        store: &DynamoStore,
        from: Option<Place>,
        limit: usize,
        look_at: usize,
    ) -> Result<Found, PortError> {
        let mut found = Found::default();
        let first = || self.lists().first().map(|list| Place { list: *list, after: None });
        let mut place = from.or_else(first);
        while let Some(Place { list, after }) = place {
            if found.tasks.len() >= limit || found.looked_at >= look_at {
                return Ok(Found { next: Some(Place { list, after }), ..found });
            }
            let size = PAGE.min(look_at - found.looked_at);
            let page = self.page(store, list, after.as_ref(), size).await?;
            let last = self.look_through(store, &page, limit, &mut found).await?;
            place = match last {
                Some(after) => Some(Place { list, after: Some(after) }),
                None => self.list_after(list).map(|list| Place { list, after: None }),
            };
        }
        Ok(found)
    }

    /// Adds what matches; answers where the list goes on, if it does.
    async fn look_through(
        &self,
        store: &DynamoStore,
        page: &Entries,
        limit: usize,
        found: &mut Found,
    ) -> Result<Option<Cursor>, PortError> {
        // Of an ended task the index knows what it ran.
        let may_match = page.entries.iter().filter(|entry| {
            let (wanted, workflow) = (self.workflow.as_ref(), entry.workflow.as_ref());
            wanted.is_none_or(|wanted| workflow.is_none_or(|workflow| workflow == wanted))
        });
        let tasks = store.tasks(may_match.map(|entry| &entry.task_id)).await?;
        let mut seen: HashSet<_> = found.tasks.iter().map(|task| task.task_id.clone()).collect();
        let mut tasks = tasks.into_iter().peekable();
        for (at, entry) in page.entries.iter().enumerate() {
            found.looked_at += 1;
            if let Some(task) = tasks.next_if(|task| task.task_id == entry.task_id)
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

    async fn page(
        &self,
        store: &DynamoStore,
        list: List,
        after: Option<&Cursor>,
        size: usize,
    ) -> Result<Entries, PortError> {
        match list {
            List::Unfinished => store.list_unfinished(after, size).await,
            List::Ended => {
                // None has ended before it was submitted.
                let from = self.from.map_or(Timestamp::MIN, |from| from.0);
                store.list_ended(&self.ended(), from..Timestamp::MAX, after, size).await
            }
        }
    }

    /// In which final states.
    fn ended(&self) -> Vec<ProcessState> {
        let wanted = |state: &ProcessState| self.state.is_none_or(|stand| stand.includes(*state));
        STATES.into_iter().filter(|state| state.is_final()).filter(wanted).collect()
    }

    /// Where to look.
    fn lists(&self) -> &'static [List] {
        match self.state {
            None => &[List::Unfinished, List::Ended],
            Some(Stand::In(state)) if state.is_final() => &[List::Ended],
            Some(Stand::Unfinished | Stand::In(_)) => &[List::Unfinished],
        }
    }

    fn list_after(&self, list: List) -> Option<List> {
        self.lists().iter().copied().skip_while(|of| *of != list).nth(1)
    }

    /// Whether a task is one of them.
    pub(crate) fn matches(&self, task: &Task) -> bool {
        let Self { workflow, state, from, to, step, error } = self;
        workflow.as_ref().is_none_or(|workflow| *workflow == task.workflow)
            && state.is_none_or(|state| state.includes(task.process_state))
            && from.is_none_or(|from| task.submitted_at >= from.0)
            && to.is_none_or(|to| task.submitted_at <= to.0)
            && step.as_ref().is_none_or(|step| fails(task, step))
            && error.as_ref().is_none_or(|error| says(task, &error.to_lowercase()))
    }
}

/// Whether doing or undoing a step has failed at least once, and is not done with.
fn fails(task: &Task, step: &StepName) -> bool {
    task.actions().any(|(part, _, progress)| {
        let failed = progress.state.is_failed() || progress.failure_count > 0;
        part.step == *step && failed && !progress.state.has_passed()
    })
}

/// Whether the error of the task, or the reason why it is undone, says so; in small letters. Both name
/// the step that failed and why. What other steps failed of is in documents, which a list does not read.
fn says(task: &Task, error: &str) -> bool {
    let said = task.error.iter().chain(&task.undo_reason);
    said.into_iter().any(|said| said.to_lowercase().contains(error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn filter(query: &str) -> Result<Filter, Failure> {
        Filter::of(&format!("/console/tasks?{query}").parse().unwrap())
    }

    fn task() -> Task {
        let task = json!({
            "task_id": "o-1", "workflow": "order", "version": 1, "process_state": "Error",
            "revision": 7, "complete_by": 0, "submitted_at": 1_780_000_000_000_u64,
            "error": "step `charge`: Card declined", "undo_reason": "step charge: 402 Payment Required",
            "steps": {
                "reserve": { "s": "c", "a": 2, "f": 1 },
                "charge": { "s": "f", "a": 3, "f": 3 },
            },
        });
        serde_json::from_value(task).unwrap()
    }

    #[test]
    fn a_query_reads_back_as_it_was_written_and_empty_fields_mean_nothing() {
        assert_eq!(
            filter("workflow=&state=&from=&to=&step=&error=&id=x").unwrap(),
            Filter::default()
        );
        let query = "workflow=order&state=Error&from=2026-11-21T18%3A25&step=charge&error=50%25+off+%26+more";
        let read = filter(query).unwrap();
        assert_eq!(read.error.as_deref(), Some("50% off & more"));
        assert_eq!(read.from.unwrap().0, "2026-11-21T18:25:00Z".parse().unwrap());
        assert_eq!(filter(&read.query(&[])).unwrap(), read);
        assert!(read.query(&[("before", "e1.2.x".to_owned())]).ends_with("&before=e1%2E2%2Ex"));
    }

    #[test]
    fn what_is_no_filter_is_refused_with_the_reason() {
        for (query, said) in
            [("state=Lost", "`Lost` is no state"), ("from=noon", "`noon` is no time")]
        {
            let refused = filter(query).unwrap_err().to_string();
            assert!(refused.contains(said), "{refused}");
        }
    }

    #[test]
    fn a_task_matches_by_all_that_is_asked_for() {
        for (query, matches) in [
            ("", true),
            ("workflow=order", true),
            ("workflow=return", false),
            ("state=Error", true),
            ("state=unfinished", false),
            ("state=Processed", false),
            ("step=charge", true),
            ("step=reserve", false),
            ("step=ship", false),
            ("error=card DECLINED", true),
            ("error=payment+required", true),
            ("error=timed+out", false),
            ("from=2026-05-28T20:26&to=2026-05-28T20:27", true),
            ("from=2026-05-28T20:27", false),
            ("to=2026-05-28", false),
            ("workflow=order&step=charge&error=gone", false),
        ] {
            let query = query.replace(' ', "+");
            assert_eq!(filter(&query).unwrap().matches(&task()), matches, "{query}");
        }
    }

    #[test]
    fn a_place_reads_back_as_it_was_written() {
        for place in ["u", "e", "u1780000000000.3.o-1", "e1780000000000.0.a.b:c"] {
            assert_eq!(place.parse::<Place>().unwrap().to_string(), place);
        }
        for text in ["", "x1.2.o", "e1.2", "e1.x.o"] {
            assert!(text.parse::<Place>().is_err(), "{text}");
        }
    }
}
