//! The indices of the tasks, read: a partition page by page, for the supervisor; all partitions as one
//! list, or counted, for consoles. An index is some moments behind the table.

use std::{collections::HashMap, fmt, num::NonZeroU32, ops::Range, str::FromStr};

use aws_sdk_dynamodb::{
    operation::query::builders::QueryFluentBuilder,
    types::{AttributeValue, Select},
};
use futures_util::{StreamExt, TryStreamExt, future::try_join_all, stream};
use jiff::Timestamp;
use steward_core::model::{
    names::{TaskId, WorkflowName},
    task::{ProcessState, Task},
};
use steward_runtime::ports::{Ended, PortError, StateStore, ended_parts};

use super::{DynamoStore, as_text, as_time};
use crate::{
    errors::{corrupt, failed},
    items::{self, Item, Unreadable, number, text},
};

/// Partitions asked at once.
const LANES_AT_ONCE: usize = 16;

/// An index of the table of tasks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Index {
    name: &'static str,
    partition: &'static str,
    sort: &'static str,
}

/// Tasks with something left to look after: by shard, and by when.
pub(super) const DUE: Index = Index { name: "due", partition: "shard", sort: "due" };

/// Tasks that have ended: by how and part, and by when.
pub(super) const ENDED: Index = Index { name: "ended", partition: "ended", sort: "ended_at" };

/// What is asked of a partition of an index.
#[derive(Debug, Clone)]
pub(super) struct Slice {
    pub(super) index: Index,
    pub(super) partition: AttributeValue,
    /// In milliseconds, both ends included.
    pub(super) from: i64,
    pub(super) to: i64,
    /// The last one seen.
    pub(super) after: Option<(Timestamp, TaskId)>,
    pub(super) newest_first: bool,
}

impl Slice {
    /// A whole partition, earliest first.
    fn whole(index: Index, partition: AttributeValue) -> Self {
        let (from, to) = (Timestamp::MIN.as_millisecond(), Timestamp::MAX.as_millisecond());
        Self { index, partition, from, to, after: None, newest_first: false }
    }

    /// What is left of it after a place in a list of many, of which it is number `lane`. Tasks of one
    /// moment are in the order of lanes.
    fn after(mut self, lane: usize, cursor: &Cursor) -> Self {
        let at = cursor.at.as_millisecond();
        let past = i64::from(lane < cursor.lane);
        if self.newest_first {
            self.to = self.to.min(at - past);
        } else {
            self.from = self.from.max(at + past);
        }
        self.after = (lane == cursor.lane).then(|| (cursor.at, cursor.task_id.clone()));
        self
    }
}

/// One task in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// When it is due, or when it ended.
    pub at: Timestamp,
    /// The task.
    pub task_id: TaskId,
    /// What it runs, if the index knows: that of ended tasks does.
    pub workflow: Option<WorkflowName>,
    lane: usize,
}

impl Entry {
    /// Its place in the list.
    #[must_use]
    pub fn cursor(&self) -> Cursor {
        Cursor { at: self.at, lane: self.lane, task_id: self.task_id.clone() }
    }
}

/// Some of a list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Entries {
    /// In the list's order.
    pub entries: Vec<Entry>,
    /// Whether there may be more.
    pub more: bool,
}

/// A place in a list: after this task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    at: Timestamp,
    lane: usize,
    task_id: TaskId,
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.at.as_millisecond(), self.lane, self.task_id)
    }
}

/// A text that is no place in a list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no place in a list")]
pub struct InvalidCursor(String);

impl FromStr for Cursor {
    type Err = InvalidCursor;

    fn from_str(text: &str) -> Result<Self, InvalidCursor> {
        let read = || {
            let mut parts = text.splitn(3, '.');
            let at = Timestamp::from_millisecond(parts.next()?.parse().ok()?).ok()?;
            let lane = parts.next()?.parse().ok()?;
            Some(Self { at, lane, task_id: parts.next()?.parse().ok()? })
        };
        read().ok_or_else(|| InvalidCursor(text.to_owned()))
    }
}

/// How many there are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// As many as were counted.
    pub counted: u64,
    /// Whether there are more.
    pub more: bool,
}

impl DynamoStore {
    /// Up to `limit` tasks that are not finished, by when they are due. Also such in Error whose alert
    /// was not sent yet.
    ///
    /// # Errors
    /// As every read.
    pub async fn list_unfinished(
        &self,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Entries, PortError> {
        self.list(self.due_lanes(), after, limit).await
    }

    /// Up to `limit` tasks that ended in one of these states within a time (its end excluded), newest
    /// first.
    ///
    /// # Errors
    /// As every read.
    pub async fn list_ended(
        &self,
        states: &[ProcessState],
        within: Range<Timestamp>,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Entries, PortError> {
        let lanes = self.ended_lanes(states).into_iter().map(|lane| Slice {
            newest_first: true,
            from: within.start.as_millisecond(),
            to: within.end.as_millisecond() - 1,
            ..lane
        });
        self.list(lanes.collect(), after, limit).await
    }

    /// How many tasks are not finished; counts to about `most`.
    ///
    /// # Errors
    /// As every read.
    pub async fn count_unfinished(&self, most: usize) -> Result<Count, PortError> {
        self.count(self.due_lanes(), most).await
    }

    /// How many tasks ended in a state and are still kept; counts to about `most`.
    ///
    /// # Errors
    /// As every read.
    pub async fn count_ended(&self, state: ProcessState, most: usize) -> Result<Count, PortError> {
        self.count(self.ended_lanes(&[state]), most).await
    }

    /// Tasks as they are now, in the order asked; those that are gone are left out.
    ///
    /// # Errors
    /// As every read.
    pub async fn tasks<'a>(
        &self,
        ids: impl IntoIterator<Item = &'a TaskId>,
    ) -> Result<Vec<Task>, PortError> {
        let tasks = try_join_all(ids.into_iter().map(|id| self.load(id))).await?;
        Ok(tasks.into_iter().flatten().collect())
    }

    fn due_lanes(&self) -> Vec<Slice> {
        let shards = 0..self.items.shards.get();
        shards.map(|shard| Slice::whole(DUE, number(i64::from(shard)))).collect()
    }

    fn ended_lanes(&self, states: &[ProcessState]) -> Vec<Slice> {
        let lanes = |state| (0..self.parts().get()).map(move |part| items::ended(state, part));
        states.iter().flat_map(|state| lanes(*state)).map(|key| Slice::whole(ENDED, key)).collect()
    }

    fn parts(&self) -> NonZeroU32 {
        ended_parts(self.items.shards)
    }

    async fn list(
        &self,
        lanes: Vec<Slice>,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Entries, PortError> {
        let newest_first = lanes.iter().any(|lane| lane.newest_first);
        let size = i32::try_from(limit).unwrap_or(i32::MAX);
        let pages = lanes.into_iter().enumerate().map(|(lane, slice)| async move {
            let slice = match after {
                Some(cursor) => slice.after(lane, cursor),
                None => slice,
            };
            let (items, last) = self.page(slice.clone(), size).await?;
            let entry = |item| read_entry(item, slice.index).map(|entry| Entry { lane, ..entry });
            let entries: Result<Vec<_>, _> = items.iter().map(entry).collect();
            let entries = entries.map_err(corrupt(format!("read index {}", slice.index.name)))?;
            Ok::<_, PortError>(Entries { entries, more: last.is_some() })
        });
        let pages: Vec<_> = stream::iter(pages).buffered(LANES_AT_ONCE).try_collect().await?;
        let more = pages.iter().any(|page| page.more);
        let mut entries: Vec<_> = pages.into_iter().flat_map(|page| page.entries).collect();
        // What is of one moment stays in the order of lanes.
        entries.sort_by_key(|entry| {
            let at = entry.at.as_millisecond();
            if newest_first { -at } else { at }
        });
        let more = more || entries.len() > limit;
        entries.truncate(limit);
        Ok(Entries { entries, more })
    }

    /// Ids are spread evenly, so each partition may count its share and as much again.
    async fn count(&self, lanes: Vec<Slice>, most: usize) -> Result<Count, PortError> {
        let share = (most / lanes.len().max(1)).saturating_mul(2).max(1);
        let counts = lanes.into_iter().map(|lane| self.count_one(lane, share));
        let counts: Vec<Count> =
            stream::iter(counts).buffer_unordered(LANES_AT_ONCE).try_collect().await?;
        Ok(counts.into_iter().fold(Count::default(), |all, one| Count {
            counted: all.counted + one.counted,
            more: all.more || one.more,
        }))
    }

    async fn count_one(&self, slice: Slice, most: usize) -> Result<Count, PortError> {
        let name = slice.index.name;
        let (mut counted, mut start) = (0, None);
        loop {
            let left = i32::try_from(most).unwrap_or(i32::MAX).saturating_sub(counted);
            let query = self.query(&slice, left).select(Select::Count);
            let answer = query.set_exclusive_start_key(start).send().await;
            let answer = answer.map_err(failed(format!("count index {name}")))?;
            counted = counted.saturating_add(answer.count);
            start = answer.last_evaluated_key;
            let more = start.is_some();
            if !more || counted as usize >= most {
                return Ok(Count { counted: counted.unsigned_abs().into(), more });
            }
        }
    }

    /// Some of a partition, and the key of the last one if there may be more.
    pub(super) async fn page(
        &self,
        slice: Slice,
        limit: i32,
    ) -> Result<(Vec<Item>, Option<Item>), PortError> {
        if slice.from > slice.to {
            return Ok((Vec::new(), None));
        }
        let start = slice.after.as_ref().map(|(at, task_id)| {
            HashMap::from([
                (slice.index.partition.to_owned(), slice.partition.clone()),
                (slice.index.sort.to_owned(), items::time(*at)),
                ("task_id".to_owned(), text(task_id.as_str())),
            ])
        });
        let answer = self.query(&slice, limit).set_exclusive_start_key(start).send().await;
        let answer = answer.map_err(failed(format!("query index {}", slice.index.name)))?;
        Ok((answer.items.unwrap_or_default(), answer.last_evaluated_key))
    }

    fn query(&self, slice: &Slice, limit: i32) -> QueryFluentBuilder {
        let Slice { index, partition, from, to, newest_first, .. } = slice;
        self.client
            .query()
            .table_name(&self.tasks)
            .index_name(index.name)
            .key_condition_expression("#partition = :partition AND #at BETWEEN :from AND :to")
            .expression_attribute_names("#partition", index.partition)
            .expression_attribute_names("#at", index.sort)
            .expression_attribute_values(":partition", partition.clone())
            .expression_attribute_values(":from", number(*from))
            .expression_attribute_values(":to", number(*to))
            .scan_index_forward(!newest_first)
            .limit(limit)
    }
}

pub(super) fn read_entry(item: &Item, index: Index) -> Result<Entry, Unreadable> {
    let workflow = item.get("workflow").and_then(|name| name.as_s().ok());
    Ok(Entry {
        at: as_time(item, index.sort)?,
        task_id: as_text(item, "task_id")?.parse()?,
        workflow: workflow.map(|name| name.parse()).transpose()?,
        lane: 0,
    })
}

pub(super) fn read_ended(item: &Item) -> Result<Ended, Unreadable> {
    let Entry { at, task_id, .. } = read_entry(item, ENDED)?;
    Ok(Ended { at, task_id, workflow: as_text(item, "workflow")?.parse()? })
}
