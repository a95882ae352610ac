//! Copies of the tables: what a backup contains.

use std::collections::{BTreeMap, HashMap};

use aws_sdk_dynamodb::{Client, types::AttributeValue};
use serde_json::{Value, json};

/// The items of each table, by the table's name, as plain JSON. Sorted, so that equal tables have equal copies.
pub(super) type Tables = BTreeMap<String, Vec<Value>>;

/// The tables of a deployment.
pub(super) const TABLES: [&str; 3] = ["steward-tasks", "steward-documents", "steward-workflows"];

/// Copies all tables.
pub(super) async fn dump(client: &Client) -> Tables {
    let mut tables = Tables::new();
    for table in TABLES {
        tables.insert(table.to_owned(), dump_table(client, table).await);
    }
    tables
}

async fn dump_table(client: &Client, table: &str) -> Vec<Value> {
    let mut items = Vec::new();
    let mut start = None;
    loop {
        let scan = client.scan().table_name(table).set_exclusive_start_key(start);
        let page = scan.send().await.unwrap();
        items.extend(page.items().iter().map(to_json));
        start = page.last_evaluated_key;
        if start.is_none() {
            break;
        }
    }
    items.iter_mut().for_each(Value::sort_all_objects);
    items.sort_by_key(Value::to_string);
    items
}

/// The key of an object that is a set of strings. Plain JSON has no sets, and a list is none.
const SET: &str = "$set";

fn to_json(item: &HashMap<String, AttributeValue>) -> Value {
    let attribute = |value: &AttributeValue| match value.as_ss() {
        Ok(texts) => json!({ SET: texts }),
        Err(_) => serde_dynamo::from_attribute_value(value.clone()).unwrap(),
    };
    item.iter().map(|(name, value)| (name.clone(), attribute(value))).collect()
}

fn from_json(item: &Value) -> HashMap<String, AttributeValue> {
    let attribute = |value: &Value| match value.get(SET) {
        None => serde_dynamo::to_attribute_value(value).unwrap(),
        Some(texts) => AttributeValue::Ss(serde_json::from_value(texts.clone()).unwrap()),
    };
    let fields = item.as_object().unwrap().iter();
    fields.map(|(name, value)| (name.clone(), attribute(value))).collect()
}

/// Deletes all items of a table, and puts the copy into it.
pub(super) async fn restore_table(client: &Client, table: &str, items: &[Value]) {
    let (hash, range) = match table {
        "steward-tasks" => ("task_id", None),
        "steward-documents" => ("task_id", Some("document")),
        _ => ("name", Some("version")),
    };
    let old = client.scan().table_name(table).send().await.unwrap();
    assert!(old.last_evaluated_key.is_none(), "the tables of a drill fit into one page");
    for item in old.items() {
        let delete = client.delete_item().table_name(table).key(hash, item[hash].clone());
        let delete =
            range.map(|range| delete.clone().key(range, item[range].clone())).unwrap_or(delete);
        delete.send().await.unwrap();
    }
    for item in items {
        client.put_item().table_name(table).set_item(Some(from_json(item))).send().await.unwrap();
    }
}
