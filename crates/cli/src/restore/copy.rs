//! Copies the items of restored tables into those of a deployment. DynamoDB restores a backup only into a new table, which
//! the deployment's functions cannot use.
//!
//! An item that the deployment has is kept, unless the copy overwrites it: the deployment's item is the newer one, and a
//! claim or an output that it has proves that a call was made. So a copy can be repeated, after a failure too.

use std::collections::{BTreeSet, HashMap};

use anyhow::{Context, Result, ensure};
use aws_sdk_dynamodb::{Client, operation::put_item::PutItemError, types::AttributeValue};
use futures_util::{StreamExt, stream};
use jiff::Timestamp;
use steward_aws::items::labelled_task;
use steward_core::{limits, model::names::TaskId};

/// The number of items that are written concurrently. Each costs at least one write unit, so a table without warm capacity
/// throttles some of them, and the SDK retries those.
const WRITES_AT_ONCE: usize = 32;

/// The number of items in a page of the scan.
const PAGE: i32 = 500;

/// The attribute with the time at which an item expires, in seconds since the epoch.
const EXPIRES_AT: &str = "expires_at";

/// What a copy does.
#[derive(Debug, Clone, Default)]
pub(super) struct CopyOptions {
    /// Only the items of these tasks. `None`: all, with the records that instances share.
    pub(super) tasks: Option<BTreeSet<String>>,
    /// Whether items that the deployment has are replaced.
    pub(super) overwrite: bool,
    /// Whether nothing is written.
    pub(super) dry_run: bool,
}

/// How many items a copy met.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct CopyCounts {
    /// Items that were written, or would be.
    pub(super) written: u64,
    /// Items that the deployment has already. They stay as they are.
    pub(super) kept: u64,
    /// Items that have expired by now.
    pub(super) expired: u64,
}

/// What became of one item.
enum Copied {
    Written,
    Kept,
}

/// Copies the items of the table `from` into the table `to`. `on_progress` gets the counts after each page.
///
/// # Errors
/// A table cannot be read or written. What was copied stays; repeat the copy.
pub(super) async fn copy_table(
    client: &Client,
    (from, to): (&str, &str),
    now: Timestamp,
    options: &CopyOptions,
    mut on_progress: impl FnMut(CopyCounts),
) -> Result<CopyCounts> {
    let mut counts = CopyCounts::default();
    let mut start = None;
    loop {
        let scan = client.scan().table_name(from).limit(PAGE).set_exclusive_start_key(start);
        let page = scan.send().await.with_context(|| format!("scan {from}"))?;
        let (mut items, last) = (page.items.unwrap_or_default(), page.last_evaluated_key);
        items.retain(|item| is_of(item, options.tasks.as_ref()));
        let before = items.len();
        items.retain(|item| !has_expired(item, now));
        counts.expired += (before - items.len()) as u64;
        let copies = items.into_iter().map(|item| copy_item(client, to, item, options));
        let mut copies = stream::iter(copies).buffer_unordered(WRITES_AT_ONCE);
        while let Some(copied) = copies.next().await {
            match copied? {
                Copied::Written => counts.written += 1,
                Copied::Kept => counts.kept += 1,
            }
        }
        on_progress(counts);
        if last.is_none() {
            return Ok(counts);
        }
        start = last;
    }
}

async fn copy_item(
    client: &Client,
    to: &str,
    item: HashMap<String, AttributeValue>,
    options: &CopyOptions,
) -> Result<Copied> {
    let operation =
        || format!("copy an item of task {} to {to}", task_of(&item).unwrap_or("without id"));
    if options.dry_run {
        if options.overwrite {
            return Ok(Copied::Written);
        }
        let keys = ["task_id", "document"].into_iter();
        let key = keys.filter_map(|name| Some((name.to_owned(), item.get(name)?.clone())));
        let get = client.get_item().table_name(to).set_key(Some(key.collect()));
        let found = get.projection_expression("task_id").send().await.with_context(operation)?;
        return Ok(if found.item.is_some() { Copied::Kept } else { Copied::Written });
    }
    let operation = operation();
    let mut put = client.put_item().table_name(to).set_item(Some(item));
    if !options.overwrite {
        put = put.condition_expression("attribute_not_exists(task_id)");
    }
    match put.send().await {
        Ok(_) => Ok(Copied::Written),
        Err(error) => match error.as_service_error() {
            Some(PutItemError::ConditionalCheckFailedException(_)) => Ok(Copied::Kept),
            Some(_) | None => Err(error).context(operation),
        },
    }
}

/// The tasks with these ids in a restored table of tasks, their child tasks, and the children of those.
///
/// # Errors
/// The table cannot be read, or does not have one of the tasks.
pub(super) async fn with_children(
    client: &Client,
    table: &str,
    named: &[TaskId],
) -> Result<BTreeSet<String>> {
    let scan = client.scan().table_name(table).projection_expression("task_id, #parent");
    let scan = scan.expression_attribute_names("#parent", "parent").into_paginator().items();
    let items = scan.send().try_collect().await.with_context(|| format!("scan {table}"))?;
    let parents: HashMap<&str, Option<&str>> =
        items.iter().filter_map(|item| Some((task_of(item)?, parent_of(item)))).collect();
    let missing: Vec<_> =
        named.iter().map(TaskId::as_str).filter(|id| !parents.contains_key(id)).collect();
    ensure!(missing.is_empty(), "{table} does not have the task {}", missing.join(", "));
    let is_below_named = |id: &&&str| {
        let mut above = Some(**id);
        // As many steps as there may be levels of children.
        (0..=limits::CHILD_DEPTH_MAX).any(|_| {
            let is_named = above.is_some_and(|id| named.iter().any(|task| task.as_str() == id));
            above = above.and_then(|id| *parents.get(id)?);
            is_named
        })
    };
    Ok(parents.keys().filter(is_below_named).map(|id| (*id).to_owned()).collect())
}

/// Whether the item belongs to one of the tasks. Records that instances share belong to none.
fn is_of(item: &HashMap<String, AttributeValue>, tasks: Option<&BTreeSet<String>>) -> bool {
    let owner = labelled_task(item).or_else(|| task_of(item));
    tasks.is_none_or(|tasks| owner.is_some_and(|id| tasks.contains(id)))
}

fn parent_of(item: &HashMap<String, AttributeValue>) -> Option<&str> {
    item.get("parent")?.as_m().ok()?.get("task_id")?.as_s().ok().map(String::as_str)
}

fn task_of(item: &HashMap<String, AttributeValue>) -> Option<&str> {
    item.get("task_id")?.as_s().ok().map(String::as_str)
}

fn has_expired(item: &HashMap<String, AttributeValue>, now: Timestamp) -> bool {
    let at = item.get(EXPIRES_AT).and_then(|at| at.as_n().ok()?.parse::<i64>().ok());
    at.is_some_and(|at| at <= now.as_second())
}
