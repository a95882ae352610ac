//! An outage: for days no function runs, while DynamoDB deletes expired items.
//!
//! Messages survive the outage. They represent dead letters, which SQS retains for 14 days and an operator sends back.

use std::fmt;

use aws_sdk_dynamodb::{Client, types::AttributeValue};
use jiff::Timestamp;
use steward_aws::items::{ItemAttributes, has_expired};
use steward_emulator::resources::{DOCUMENTS_TABLE, TASKS_TABLE};

use super::environment::Environment;

/// The kind of outage that follows a crash.
#[derive(Debug, Clone, Copy)]
pub(super) struct Outage {
    pub(super) duration: OutageDuration,
    pub(super) deletion: ExpiredDeletion,
    pub(super) first: FirstAfterOutage,
}

/// The duration of the outage: ten days in total. Items expire within that time unless their expiry is extended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OutageDuration {
    TenDays,
    /// The supervisor sweeps once after five days. Items of unfinished tasks must survive the next five days.
    FiveDaysTwice,
}

/// Which expired items DynamoDB deletes during the outage. DynamoDB deletes them one by one in any order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExpiredDeletion {
    Everything,
    Documents,
    Tasks,
    /// Every second item, starting with the first.
    FirstOfTwo,
    /// Every second item, starting with the second.
    SecondOfTwo,
}

/// Which function runs first after the outage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FirstAfterOutage {
    Messages,
    Supervisor,
}

impl fmt::Display for Outage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { duration, deletion, first } = self;
        write!(f, "outage of {duration:?}, deletes {deletion:?}, resumes with {first:?}")
    }
}

/// The key of a deleted item.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DeletedItem {
    table: &'static str,
    pub(super) task_id: String,
    /// `None` for a task's item.
    pub(super) document: Option<String>,
}

impl ExpiredDeletion {
    fn includes(self, position: usize, item: &DeletedItem) -> bool {
        match self {
            Self::Everything => true,
            Self::Documents => item.table == DOCUMENTS_TABLE,
            Self::Tasks => item.table == TASKS_TABLE,
            Self::FirstOfTwo => position.is_multiple_of(2),
            Self::SecondOfTwo => !position.is_multiple_of(2),
        }
    }
}

impl DeletedItem {
    fn of(table: &'static str, item: &ItemAttributes) -> Self {
        let text = |name| item.get(name).and_then(|value| value.as_s().ok()).cloned();
        Self { table, task_id: text("task_id").unwrap(), document: text("document") }
    }

    fn key(&self) -> ItemAttributes {
        let document = self.document.iter().map(|document| ("document", document));
        let names = std::iter::once(("task_id", &self.task_id)).chain(document);
        names.map(|(name, text)| (name.to_owned(), AttributeValue::S(text.clone()))).collect()
    }
}

/// Deletes expired items as DynamoDB does; returns their keys.
pub(super) async fn delete_expired(
    environment: &Environment,
    deletes: ExpiredDeletion,
    now: Timestamp,
) -> Vec<DeletedItem> {
    let client = Client::new(&environment.deployment.aws.sdk_config());
    let mut expired = Vec::new();
    for table in [TASKS_TABLE, DOCUMENTS_TABLE] {
        let pages = client.scan().table_name(table).into_paginator().items();
        let items = pages.send().collect::<Result<Vec<_>, _>>().await.unwrap();
        let items = items.iter().filter(|item| has_expired(item, now));
        expired.extend(items.map(|item| DeletedItem::of(table, item)));
    }
    expired.sort();
    let mut position = 0..;
    expired.retain(|item| deletes.includes(position.next().unwrap_or_default(), item));
    for item in &expired {
        let request = client.delete_item().table_name(item.table).set_key(Some(item.key()));
        request.send().await.unwrap();
    }
    expired
}
