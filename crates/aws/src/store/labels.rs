//! The index of labels: an item of the table of documents for each label of a task. Its partition is the label with its
//! value, and its sort key the time of submission, so that a query finds the newest tasks first.
//!
//! The entries are written before their task, so that a task is never without them. An entry whose task was not recorded, or
//! is another one with the same id, is skipped by [the search](super::search).

use std::{collections::HashMap, fmt, ops::Range, str::FromStr};

use aws_sdk_dynamodb::types::AttributeValue;
use futures_util::{StreamExt, TryStreamExt, future::try_join_all, stream};
use jiff::Timestamp;
use steward_core::model::{
    names::{LabelValue, ValueName},
    task::Task,
};
use steward_runtime::ports::PortError;

use super::{
    dynamo_store::DynamoStore,
    indices::{ListCursor, PARTITIONS_AT_ONCE, TaskList, TaskListEntry, merged},
    item_fields::as_text,
    writes::{ConditionalPut, WriteCondition},
};
use crate::{
    errors::{corrupt, failed},
    items::{ItemAttributes, LABEL_PARTITIONS, Unreadable, label_partition, label_position, text},
};

/// A label with a value that tasks are searched for. Its text is `NAME=VALUE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// The name.
    pub name: ValueName,
    /// The value.
    pub value: LabelValue,
}

impl Label {
    /// Whether a task has it.
    #[must_use]
    pub fn is_of(&self, task: &Task) -> bool {
        task.labels.get(&self.name) == Some(&self.value)
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.value)
    }
}

impl FromStr for Label {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text
            .split_once('=')
            .ok_or_else(|| format!("`{text}` is not a label; write it as customer=42"))?;
        let name = name.trim().parse().map_err(|error| format!("{error}"))?;
        let value = value.trim().parse().map_err(|error| format!("{error}"))?;
        Ok(Self { name, value })
    }
}

/// Labels of which a task must have all. The text separates them by commas. A part of it that is no label continues the
/// value before it, so that a value may contain commas.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Labels(pub Vec<Label>);

impl fmt::Display for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<_> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&texts.join(", "))
    }
}

impl FromStr for Labels {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut texts: Vec<String> = Vec::new();
        for part in text.split(',') {
            match texts.last_mut().filter(|_| part.parse::<Label>().is_err()) {
                Some(before) => before.extend([",", part]),
                None => texts.push(part.to_owned()),
            }
        }
        texts.iter().map(|text| text.parse()).collect::<Result<_, _>>().map(Self)
    }
}

impl DynamoStore {
    /// Writes the entries of a task's labels.
    pub(super) async fn write_labels(&self, task: &Task) -> Result<(), PortError> {
        let operation = || format!("write the labels of task {}", task.task_id);
        // An entry that exists is that of another attempt to record the same task.
        let puts = self.items.labels(task).into_iter().map(|entry| {
            let put = ConditionalPut::new(&self.documents, entry, WriteCondition::IsNew);
            self.writer.put_alone(put, operation)
        });
        try_join_all(puts).await.map(drop)
    }

    /// Deletes the entries of a task's labels. Returns their number.
    ///
    /// # Errors
    /// DynamoDB failed. Repeat the call.
    pub async fn delete_labels(&self, task: &Task) -> Result<usize, PortError> {
        let operation = format!("delete the labels of task {}", task.task_id);
        let entries = self.items.labels(task);
        for mut key in entries.iter().cloned() {
            key.retain(|name, _| ["task_id", "document"].contains(&name.as_str()));
            let delete = self.client.delete_item().table_name(&self.documents).set_key(Some(key));
            delete.send().await.map_err(failed(operation.clone()))?;
        }
        Ok(entries.len())
    }

    /// Up to `limit` entries of the tasks with this label that were submitted during `within`, whose end is exclusive. The
    /// newest come first. An entry may be that of a task that does not exist.
    ///
    /// # Errors
    /// DynamoDB failed, or an entry is unreadable.
    pub async fn list_labelled(
        &self,
        label: &Label,
        within: Range<Timestamp>,
        after: Option<&ListCursor>,
        limit: usize,
    ) -> Result<TaskList, PortError> {
        let partitions = 0..LABEL_PARTITIONS.get();
        let pages = partitions.map(|n| self.label_page(label, n, &within, after, limit));
        let pages = stream::iter(pages).buffered(PARTITIONS_AT_ONCE).try_collect().await?;
        Ok(merged(pages, true, limit))
    }

    /// A page of one partition, like [`PartitionQuery`](super::indices::PartitionQuery) reads those of an index.
    async fn label_page(
        &self,
        Label { name, value }: &Label,
        number: u32,
        within: &Range<Timestamp>,
        after: Option<&ListCursor>,
        limit: usize,
    ) -> Result<TaskList, PortError> {
        let partition = number as usize;
        let to = after.map_or(within.end, |cursor| within.end.min(cursor.end(partition)));
        if within.start >= to {
            return Ok(TaskList::default());
        }
        let key = text(&label_partition(name, value, number));
        let last = after.and_then(|cursor| cursor.last_of(partition));
        let start = last.map(|(at, task_id)| {
            let position = text(&label_position(at, task_id.as_str()));
            HashMap::from([("task_id".to_owned(), key.clone()), ("document".to_owned(), position)])
        });
        let position = |at| AttributeValue::S(label_position(at, ""));
        let query = self
            .client
            .query()
            .table_name(&self.documents)
            .key_condition_expression("task_id = :label AND document BETWEEN :from AND :to")
            .expression_attribute_values(":label", key)
            .expression_attribute_values(":from", position(within.start))
            .expression_attribute_values(":to", position(to))
            .consistent_read(true)
            .scan_index_forward(false)
            .limit(i32::try_from(limit).unwrap_or(i32::MAX))
            .set_exclusive_start_key(start);
        let output = query.send().await.map_err(failed(format!("search for label {name}")))?;
        let entries = output.items.unwrap_or_default();
        let entries: Result<_, _> =
            entries.iter().map(|item| read_entry(item, partition)).collect();
        let entries = entries.map_err(corrupt(format!("read the entries of label {name}")))?;
        Ok(TaskList { entries, more: output.last_evaluated_key.is_some() })
    }
}

fn read_entry(item: &ItemAttributes, partition: usize) -> Result<TaskListEntry, Unreadable> {
    let position = as_text(item, "document")?.split_once('/');
    let (at, task_id) = position.ok_or("no time and task in `document`")?;
    let at = Timestamp::from_millisecond(at.parse()?)?;
    Ok(TaskListEntry { at, task_id: task_id.parse()?, workflow: None, partition })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_round_trip() {
        for text in ["customer=42", "customer=42, region=eu", "name=Smith, John, a=b=c, region=eu"]
        {
            assert_eq!(text.parse::<Labels>().unwrap().to_string(), text);
        }
        assert_eq!("a=1,b=2".parse::<Labels>().unwrap().0.len(), 2);
        for text in ["", "customer", "=42", "customer=", "a-b=1", "customer=a\nb"] {
            assert!(text.parse::<Labels>().is_err(), "{text}");
        }
    }
}
