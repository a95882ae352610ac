//! An outage: days in which no function runs, while DynamoDB deletes what has expired.
//!
//! Messages outlive it: they stand for dead letters, which SQS keeps for 14 days and an operator sends back.

use std::fmt;

use aws_sdk_dynamodb::{Client, types::AttributeValue};
use jiff::Timestamp;
use steward_aws::items::{Item, has_expired};
use steward_emulator::resources::{DOCUMENTS_TABLE, TASKS_TABLE};

use super::site::Site;

/// What kind of outage follows a cut.
#[derive(Debug, Clone, Copy)]
pub(super) struct Outage {
    pub(super) lasts: Lasts,
    pub(super) deletes: Deletes,
    pub(super) resumes: Resumes,
}

/// How long the outage lasts: ten days in all, longer than the tables keep what nobody extends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lasts {
    TenDays,
    /// The supervisor sweeps once after five days. What belongs to an unfinished task must survive the other five.
    FiveDaysTwice,
}

/// Which expired items DynamoDB deletes in that time. It deletes them one by one and in any order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Deletes {
    Everything,
    Documents,
    Tasks,
    /// Every second item, beginning with the first.
    FirstOfTwo,
    /// The others.
    SecondOfTwo,
}

/// What runs first after the outage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Resumes {
    Messages,
    Supervisor,
}

impl fmt::Display for Outage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lasts, deletes, resumes } = self;
        write!(f, "outage of {lasts:?}, deletes {deletes:?}, resumes with {resumes:?}")
    }
}

/// An item by its key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Deleted {
    table: &'static str,
    pub(super) task_id: String,
    /// Absent of a task's own item.
    pub(super) document: Option<String>,
}

impl Deletes {
    fn takes(self, place: usize, item: &Deleted) -> bool {
        match self {
            Self::Everything => true,
            Self::Documents => item.table == DOCUMENTS_TABLE,
            Self::Tasks => item.table == TASKS_TABLE,
            Self::FirstOfTwo => place.is_multiple_of(2),
            Self::SecondOfTwo => !place.is_multiple_of(2),
        }
    }
}

impl Deleted {
    fn of(table: &'static str, item: &Item) -> Self {
        let text = |name| item.get(name).and_then(|value| value.as_s().ok()).cloned();
        Self { table, task_id: text("task_id").unwrap(), document: text("document") }
    }

    fn key(&self) -> Item {
        let document = self.document.iter().map(|document| ("document", document));
        let names = std::iter::once(("task_id", &self.task_id)).chain(document);
        names.map(|(name, text)| (name.to_owned(), AttributeValue::S(text.clone()))).collect()
    }
}

/// Deletes expired items as DynamoDB does; which ones.
pub(super) async fn delete_expired(site: &Site, deletes: Deletes, now: Timestamp) -> Vec<Deleted> {
    let client = Client::new(&site.deployment.aws.sdk_config());
    let mut expired = Vec::new();
    for table in [TASKS_TABLE, DOCUMENTS_TABLE] {
        let pages = client.scan().table_name(table).into_paginator().items();
        let items = pages.send().collect::<Result<Vec<_>, _>>().await.unwrap();
        let items = items.iter().filter(|item| has_expired(item, now));
        expired.extend(items.map(|item| Deleted::of(table, item)));
    }
    expired.sort();
    let mut place = 0..;
    expired.retain(|item| deletes.takes(place.next().unwrap_or_default(), item));
    for item in &expired {
        let request = client.delete_item().table_name(item.table).set_key(Some(item.key()));
        request.send().await.unwrap();
    }
    expired
}
