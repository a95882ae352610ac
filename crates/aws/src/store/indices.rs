//! Reads the indices of the table of tasks: one partition page by page for the supervisor, and all partitions as one
//! list, or as a count, for the console. An index lags behind the table by a moment.

use std::{collections::HashMap, fmt, ops::Range, str::FromStr, time::Duration};

use aws_sdk_dynamodb::{
    operation::query::builders::QueryFluentBuilder,
    types::{AttributeValue, Select},
};
use futures_util::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use steward_core::model::{
    names::{TaskId, WorkflowName},
    time::later,
};
use steward_runtime::ports::{EndedTask, PortError, ended_index_partitions};

use super::{
    dynamo_store::DynamoStore,
    item_fields::{as_text, as_time},
};
use crate::{
    errors::{corrupt, failed},
    items::{self, EndState, ItemAttributes, Unreadable, number, text},
};

/// The number of partitions that are queried concurrently.
pub(super) const PARTITIONS_AT_ONCE: usize = 16;

/// An index of the table of tasks.
#[derive(Debug, Clone, Copy)]
pub(super) struct TaskIndex {
    name: &'static str,
    partition: &'static str,
    sort: &'static str,
}

/// The index of the tasks that the supervisor has to look at, by shard and due time.
pub(super) const DUE: TaskIndex = TaskIndex { name: "due", partition: "shard", sort: "due" };

/// The index of the tasks that have ended, by final state and partition, and by end time.
pub(super) const ENDED: TaskIndex =
    TaskIndex { name: "ended", partition: "ended", sort: "ended_at" };

/// A query of one partition of an index.
#[derive(Debug, Clone)]
pub(super) struct PartitionQuery {
    pub(super) index: TaskIndex,
    pub(super) partition: AttributeValue,
    /// The earliest time, in milliseconds since the epoch, inclusive.
    pub(super) from: i64,
    /// The latest time, in milliseconds since the epoch, inclusive.
    pub(super) to: i64,
    /// The last entry of the page before.
    pub(super) exclusive_start: Option<(Timestamp, TaskId)>,
    pub(super) newest_first: bool,
}

impl PartitionQuery {
    /// A query of a whole partition, earliest first.
    fn whole(index: TaskIndex, partition: AttributeValue) -> Self {
        let (from, to) = (Timestamp::MIN.as_millisecond(), Timestamp::MAX.as_millisecond());
        Self { index, partition, from, to, exclusive_start: None, newest_first: false }
    }

    /// Limits the query to the entries after `cursor`, in a list that merges several partitions. `partition` is the
    /// number of this partition. Entries with the same time are ordered by partition, so the list has already shown those
    /// of lower partitions: there the query continues one millisecond further.
    fn starting_after(mut self, partition: usize, cursor: &ListCursor) -> Self {
        let at = cursor.at.as_millisecond();
        let shown = i64::from(partition < cursor.partition);
        if self.newest_first {
            self.to = self.to.min(at - shown);
        } else {
            self.from = self.from.max(at + shown);
        }
        self.exclusive_start =
            (partition == cursor.partition).then(|| (cursor.at, cursor.task_id.clone()));
        self
    }
}

/// One task in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskListEntry {
    /// The due time, the end time or the time of submission, depending on the index.
    pub at: Timestamp,
    /// The task.
    pub task_id: TaskId,
    /// The workflow of the task. Only the index `ended` contains it.
    pub workflow: Option<WorkflowName>,
    pub(super) partition: usize,
}

impl TaskListEntry {
    /// The cursor of the list after this entry.
    #[must_use]
    pub fn cursor(&self) -> ListCursor {
        ListCursor { at: self.at, partition: self.partition, task_id: self.task_id.clone() }
    }
}

/// One page of a list of tasks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TaskList {
    /// The tasks, in the order of the list.
    pub entries: Vec<TaskListEntry>,
    /// Whether there may be more tasks.
    pub more: bool,
}

/// A position in a list of tasks: after this task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListCursor {
    at: Timestamp,
    partition: usize,
    task_id: TaskId,
}

impl fmt::Display for ListCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.at.as_millisecond(), self.partition, self.task_id)
    }
}

impl ListCursor {
    /// The exclusive end of what a list with the newest first has not shown of a partition. Entries with the same time are
    /// ordered by partition, so the list has already shown those of lower partitions.
    pub(super) fn end(&self, partition: usize) -> Timestamp {
        let is_shown = partition < self.partition;
        later(self.at, Duration::from_millis(u64::from(!is_shown)))
    }

    /// The last entry that the list has shown, if it is of this partition.
    pub(super) fn last_of(&self, partition: usize) -> Option<(Timestamp, &TaskId)> {
        (partition == self.partition).then_some((self.at, &self.task_id))
    }
}

/// A text is not a valid cursor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a valid position in a list")]
pub struct InvalidListCursor(String);

impl FromStr for ListCursor {
    type Err = InvalidListCursor;

    fn from_str(text: &str) -> Result<Self, InvalidListCursor> {
        let read = || {
            let mut parts = text.splitn(3, '.');
            let at = Timestamp::from_millisecond(parts.next()?.parse().ok()?).ok()?;
            let partition = parts.next()?.parse().ok()?;
            Some(Self { at, partition, task_id: parts.next()?.parse().ok()? })
        };
        read().ok_or_else(|| InvalidListCursor(text.to_owned()))
    }
}

/// A number of tasks, counted up to a limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TaskCount {
    /// The number of tasks that were counted.
    pub counted: u64,
    /// Whether there may be more tasks.
    pub more: bool,
}

impl DynamoStore {
    /// Up to `limit` tasks of the index `due`, ordered by due time: tasks that have not ended, and tasks in Error whose
    /// alert was not sent yet.
    ///
    /// # Errors
    /// DynamoDB failed, or an entry is unreadable.
    pub async fn list_due(
        &self,
        after: Option<&ListCursor>,
        limit: usize,
    ) -> Result<TaskList, PortError> {
        self.list(self.due_partitions(), after, limit).await
    }

    /// The same tasks, those with the latest due time first.
    ///
    /// # Errors
    /// DynamoDB failed, or an entry is unreadable.
    pub async fn list_latest_due(
        &self,
        after: Option<&ListCursor>,
        limit: usize,
    ) -> Result<TaskList, PortError> {
        let queries = self.due_partitions().into_iter();
        let queries = queries.map(|query| PartitionQuery { newest_first: true, ..query });
        self.list(queries.collect(), after, limit).await
    }

    /// Up to `limit` tasks that ended in one of these ways during `within`, whose end is exclusive. The newest come
    /// first.
    ///
    /// # Errors
    /// DynamoDB failed, or an entry is unreadable.
    pub async fn list_ended(
        &self,
        ends: &[EndState],
        within: Range<Timestamp>,
        after: Option<&ListCursor>,
        limit: usize,
    ) -> Result<TaskList, PortError> {
        let queries = self.ended_partitions(ends).into_iter().map(|query| PartitionQuery {
            newest_first: true,
            from: within.start.as_millisecond(),
            to: within.end.as_millisecond() - 1,
            ..query
        });
        self.list(queries.collect(), after, limit).await
    }

    /// The number of tasks of the index `due`. The count stops between `limit` and twice `limit`.
    ///
    /// # Errors
    /// DynamoDB failed.
    pub async fn count_due(&self, limit: usize) -> Result<TaskCount, PortError> {
        self.count(self.due_partitions(), limit).await
    }

    /// The number of tasks that ended in this way and are still stored. The count stops between `limit`
    /// and twice `limit`.
    ///
    /// # Errors
    /// DynamoDB failed.
    pub async fn count_ended(&self, end: EndState, limit: usize) -> Result<TaskCount, PortError> {
        self.count(self.ended_partitions(&[end]), limit).await
    }

    fn due_partitions(&self) -> Vec<PartitionQuery> {
        let shards = 0..self.items.shards.get();
        shards.map(|shard| PartitionQuery::whole(DUE, number(i64::from(shard)))).collect()
    }

    fn ended_partitions(&self, ends: &[EndState]) -> Vec<PartitionQuery> {
        let partitions = 0..ended_index_partitions(self.items.shards).get();
        let keys =
            |end: EndState| partitions.clone().map(move |partition| items::ended(end, partition));
        let keys = ends.iter().flat_map(|end| keys(*end));
        keys.map(|key| PartitionQuery::whole(ENDED, key)).collect()
    }

    /// Merges the results of several partitions into one page.
    async fn list(
        &self,
        queries: Vec<PartitionQuery>,
        after: Option<&ListCursor>,
        limit: usize,
    ) -> Result<TaskList, PortError> {
        let newest_first = queries.iter().any(|query| query.newest_first);
        let size = i32::try_from(limit).unwrap_or(i32::MAX);
        let pages = queries.into_iter().enumerate().map(|(partition, query)| async move {
            let query = match after {
                Some(cursor) => query.starting_after(partition, cursor),
                None => query,
            };
            let (items, last) = self.page(query.clone(), size).await?;
            let entry = |item| {
                let IndexEntry { at, task_id, workflow } = read_entry(item, query.index)?;
                Ok(TaskListEntry { at, task_id, workflow, partition })
            };
            let entries: Result<Vec<_>, Unreadable> = items.iter().map(entry).collect();
            let entries = entries.map_err(corrupt(format!("read index {}", query.index.name)))?;
            Ok::<_, PortError>(TaskList { entries, more: last.is_some() })
        });
        let pages: Vec<_> = stream::iter(pages).buffered(PARTITIONS_AT_ONCE).try_collect().await?;
        Ok(merged(pages, newest_first, limit))
    }

    /// Counts the entries of several partitions, at most about twice `limit`. The tasks are spread evenly over the
    /// partitions, so each partition counts up to twice its share.
    async fn count(
        &self,
        queries: Vec<PartitionQuery>,
        limit: usize,
    ) -> Result<TaskCount, PortError> {
        let share = (limit / queries.len().max(1)).saturating_mul(2).max(1);
        let counts = queries.into_iter().map(|query| self.count_one(query, share));
        let counts: Vec<TaskCount> =
            stream::iter(counts).buffer_unordered(PARTITIONS_AT_ONCE).try_collect().await?;
        Ok(counts.into_iter().fold(TaskCount::default(), |all, one| TaskCount {
            counted: all.counted + one.counted,
            more: all.more || one.more,
        }))
    }

    async fn count_one(&self, query: PartitionQuery, limit: usize) -> Result<TaskCount, PortError> {
        let name = query.index.name;
        let (mut counted, mut start) = (0, None);
        loop {
            let left = i32::try_from(limit).unwrap_or(i32::MAX).saturating_sub(counted);
            let request = self.query(&query, left).select(Select::Count);
            let output = request.set_exclusive_start_key(start).send().await;
            let output = output.map_err(failed(format!("count index {name}")))?;
            counted = counted.saturating_add(output.count);
            start = output.last_evaluated_key;
            let more = start.is_some();
            if !more || counted as usize >= limit {
                return Ok(TaskCount { counted: counted.unsigned_abs().into(), more });
            }
        }
    }

    /// One page of a partition, and the key of its last item if there may be more.
    pub(super) async fn page(
        &self,
        query: PartitionQuery,
        limit: i32,
    ) -> Result<(Vec<ItemAttributes>, Option<ItemAttributes>), PortError> {
        // A cursor can move the start past the end. DynamoDB refuses such a range.
        if query.from > query.to {
            return Ok((Vec::new(), None));
        }
        let start = query.exclusive_start.as_ref().map(|(at, task_id)| {
            HashMap::from([
                (query.index.partition.to_owned(), query.partition.clone()),
                (query.index.sort.to_owned(), items::time(*at)),
                ("task_id".to_owned(), text(task_id.as_str())),
            ])
        });
        let output = self.query(&query, limit).set_exclusive_start_key(start).send().await;
        let output = output.map_err(failed(format!("query index {}", query.index.name)))?;
        Ok((output.items.unwrap_or_default(), output.last_evaluated_key))
    }

    fn query(&self, query: &PartitionQuery, limit: i32) -> QueryFluentBuilder {
        let PartitionQuery { index, partition, from, to, newest_first, .. } = query;
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

/// Merges the pages of several partitions, in the order of the partitions, into one page.
pub(super) fn merged(pages: Vec<TaskList>, newest_first: bool, limit: usize) -> TaskList {
    let more = pages.iter().any(|page| page.more);
    let mut entries: Vec<_> = pages.into_iter().flat_map(|page| page.entries).collect();
    // The sort is stable, so entries with the same time stay ordered by partition.
    entries.sort_by_key(|entry| {
        let at = entry.at.as_millisecond();
        if newest_first { -at } else { at }
    });
    let more = more || entries.len() > limit;
    entries.truncate(limit);
    TaskList { entries, more }
}

/// The attributes of a task in an index. Only the index `ended` contains the workflow.
pub(super) struct IndexEntry {
    pub(super) at: Timestamp,
    pub(super) task_id: TaskId,
    pub(super) workflow: Option<WorkflowName>,
}

/// Reads an entry of an index.
pub(super) fn read_entry(
    item: &ItemAttributes,
    index: TaskIndex,
) -> Result<IndexEntry, Unreadable> {
    let workflow = item.get("workflow").and_then(|name| name.as_s().ok());
    Ok(IndexEntry {
        at: as_time(item, index.sort)?,
        task_id: as_text(item, "task_id")?.parse()?,
        workflow: workflow.map(|name| name.parse()).transpose()?,
    })
}

/// Reads an entry of the index `ended`.
pub(super) fn read_ended(item: &ItemAttributes) -> Result<EndedTask, Unreadable> {
    let IndexEntry { at, task_id, .. } = read_entry(item, ENDED)?;
    Ok(EndedTask { at, task_id, workflow: as_text(item, "workflow")?.parse()? })
}
