//! The newest tasks of a filter, by the time of their submission. Only the index of labels has this order. The other indexes
//! are read from their end, up to a limit: the latest due times of unfinished tasks, and the tasks that ended last.

use std::{cmp::Reverse, collections::HashSet};

use steward_core::model::task::Task;
use steward_runtime::ports::PortError;

use super::{
    dynamo_store::DynamoStore,
    search::{READ_SIZE, SearchResult, TaskFilter, TaskIndex},
};

/// The newest tasks that match a filter.
#[derive(Debug, Default)]
pub struct NewestTasks {
    /// The tasks, the newest first, in their current state.
    pub tasks: Vec<Task>,
    /// How many tasks were examined.
    pub examined: usize,
    /// Whether there may be more.
    pub more: bool,
}

impl TaskFilter {
    /// The newest `limit` tasks that match. Examines at most `examined_max` tasks of each index, so a newer task may be
    /// missing if there are more.
    ///
    /// # Errors
    /// DynamoDB failed, or a record is unreadable.
    pub async fn newest(
        &self,
        store: &DynamoStore,
        limit: usize,
        examined_max: usize,
    ) -> Result<NewestTasks, PortError> {
        if !self.labels().is_empty() {
            let found = self.find(store, None, limit, examined_max).await?;
            let SearchResult { tasks, examined, next } = found;
            return Ok(NewestTasks { tasks, examined, more: next.is_some() });
        }
        let mut newest = NewestTasks::default();
        for index in self.indexes() {
            self.add_newest(store, *index, (limit, examined_max), &mut newest).await?;
        }
        Ok(newest)
    }

    /// Adds the newest tasks of an index.
    async fn add_newest(
        &self,
        store: &DynamoStore,
        index: TaskIndex,
        (limit, examined_max): (usize, usize),
        newest: &mut NewestTasks,
    ) -> Result<(), PortError> {
        let tasks = std::mem::take(&mut newest.tasks);
        let mut seen: HashSet<_> = tasks.iter().map(|task| task.task_id.clone()).collect();
        let mut found = SearchResult { tasks, ..SearchResult::default() };
        let mut after = None;
        loop {
            let size = READ_SIZE.min(examined_max - found.examined);
            let page = match index {
                TaskIndex::Unfinished => store.list_latest_due(after.as_ref(), size).await?,
                TaskIndex::Ended | TaskIndex::Labelled => {
                    self.read_page(store, index, after.as_ref(), size).await?
                }
            };
            // A task ended after its submission, so all others of this index are older.
            let oldest = found.tasks.get(limit.saturating_sub(1)).map(|task| task.submitted_at);
            let is_older = page
                .entries
                .first()
                .zip(oldest)
                .is_some_and(|(next, oldest)| index == TaskIndex::Ended && next.at <= oldest);
            if is_older {
                newest.more = true;
                break;
            }
            let all = (&mut found, &mut seen);
            after = self.add_matching(store, index, &page, usize::MAX, all).await?;
            found.tasks.sort_by_key(|task| Reverse(task.submitted_at));
            newest.more |= found.tasks.len() > limit;
            found.tasks.truncate(limit);
            if after.is_none() {
                break;
            }
            if found.examined >= examined_max {
                newest.more = true;
                break;
            }
        }
        newest.tasks = found.tasks;
        newest.examined += found.examined;
        Ok(())
    }
}
