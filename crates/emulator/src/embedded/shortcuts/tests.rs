//! The shortcuts against dynoxide: the same requests, the same answers, the same tables in the end.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::embedded::{Door, tables::Tables};

/// Requests of a run: enough for every kind to meet every state of an item.
const REQUESTS: usize = 6_000;

fn tables() -> Tables {
    let tables = Tables::in_memory().unwrap();
    let attribute =
        |name: &str, kind: &str| json!({ "AttributeName": name, "AttributeType": kind });
    let key = |names: &[&str]| -> Value {
        let kinds = ["HASH", "RANGE"].iter();
        let keys = names.iter().zip(kinds);
        keys.map(|(name, kind)| json!({ "AttributeName": name, "KeyType": kind })).collect()
    };
    let indices = json!([
        {
            "IndexName": "due",
            "KeySchema": key(&["shard", "due"]),
            "Projection": { "ProjectionType": "KEYS_ONLY" },
        },
        {
            "IndexName": "ended",
            "KeySchema": key(&["ended", "ended_at"]),
            "Projection": { "ProjectionType": "INCLUDE", "NonKeyAttributes": ["workflow"] },
        },
    ]);
    let attributes =
        [("task_id", "S"), ("shard", "N"), ("due", "N"), ("ended", "S"), ("ended_at", "N")];
    let tasks = json!({
        "TableName": "tasks",
        "AttributeDefinitions": attributes.map(|(name, kind)| attribute(name, kind)),
        "KeySchema": key(&["task_id"]),
        "GlobalSecondaryIndexes": indices,
        "BillingMode": "PAY_PER_REQUEST",
    });
    let documents = json!({
        "TableName": "documents",
        "AttributeDefinitions": [attribute("task_id", "S"), attribute("document", "S")],
        "KeySchema": key(&["task_id", "document"]),
        "BillingMode": "PAY_PER_REQUEST",
    });
    for table in [tasks, documents] {
        dynoxide(&tables, "CreateTable", &table);
    }
    tables
}

/// What dynoxide answers by itself.
fn dynoxide(tables: &Tables, operation: &str, request: &Value) -> Value {
    read(tables.run(operation, request.to_string().as_bytes(), Door::Connector).unwrap())
}

fn read(answered: Result<String, dynoxide::DynoxideError>) -> Value {
    let text = answered.unwrap_or_else(|error| error.to_json());
    let mut answer: Value = serde_json::from_str(&text).unwrap();
    // A batch is answered in any order.
    let tables = answer.get_mut("Responses").and_then(Value::as_object_mut);
    for items in tables.into_iter().flat_map(|tables| tables.values_mut()) {
        items.as_array_mut().unwrap().sort_by_key(key);
    }
    answer
}

/// What a row goes by.
fn key(item: &Value) -> (String, String) {
    (item["task_id"].to_string(), item["document"].to_string())
}

/// What the tables answer, with a shortcut if there is one; and whether there was.
async fn answer(tables: &Tables, operation: &str, request: &Value) -> (Value, bool) {
    match tables.shortcuts.answer(operation, request.to_string().as_bytes()).await {
        Some(answered) => (read(answered), true),
        None => (dynoxide(tables, operation, request), false),
    }
}

/// Mostly the same, so that conditions hold.
fn submitted_at(dice: &mut fastrand::Rng) -> Value {
    json!({ "N": if dice.u8(..24) == 0 { "0" } else { "1" } })
}

fn task(dice: &mut fastrand::Rng) -> Value {
    let mut item = json!({
        "task_id": { "S": format!("task-{}", dice.u8(..6)) },
        "revision": { "N": dice.u8(..4).to_string() },
        "submitted_at": submitted_at(dice),
        "steps": { "M": { "a": { "L": [{ "S": "ü\"" }, { "BOOL": true }, { "NULL": true }] } } },
    });
    // Sparse: not every task is due; and some keys have the wrong type.
    match dice.u8(..16) {
        0..=4 => {}
        5 => item["due"] = json!({ "S": "soon" }),
        _ => {
            item["shard"] = json!({ "N": dice.u8(..2).to_string() });
            item["due"] = json!({ "N": dice.i32(-20..20).to_string() });
        }
    }
    if dice.u8(..3) == 0 {
        let state = ["Processed", "Error", ""][dice.usize(..3)];
        item["ended"] = json!({ "S": format!("{state}#{}", dice.u8(..2)) });
        item["ended_at"] = json!({ "N": dice.u8(..20).to_string() });
    }
    match dice.u8(..4) {
        0 => {}
        1 => item["workflow"] = json!({ "S": "return" }),
        _ => item["workflow"] = json!({ "S": "order" }),
    }
    match dice.u8(..32) {
        0 => item["steps"] = json!({ "NS": ["1", "2"] }),
        1 => item["revision"] = json!({ "N": "1.50" }),
        2 => item["task_id"] = json!({ "S": "" }),
        3 => item["task_id"] = json!({ "N": "1" }),
        4 => item["extra"] = json!({ "N": "one" }),
        5 => item["ended"] = json!({ "S": "" }),
        6 => item["ended"] = json!({ "N": "1" }),
        _ => {}
    }
    item
}

fn document(dice: &mut fastrand::Rng) -> Value {
    json!({
        "task_id": { "S": format!("task-{}", dice.u8(..6)) },
        "document": { "S": format!("output-{}", dice.u8(..3)) },
        "body": { "S": dice.u8(..).to_string() },
    })
}

fn put(dice: &mut fastrand::Rng) -> Value {
    let is_task = dice.bool();
    let mut put = match is_task {
        true => json!({ "TableName": "tasks", "Item": task(dice) }),
        false => json!({ "TableName": "documents", "Item": document(dice) }),
    };
    let before = json!({ ":before": { "N": dice.u8(..4).to_string() } });
    match dice.u8(..8) {
        0 => {}
        1..=3 => put["ConditionExpression"] = json!("attribute_not_exists(task_id)"),
        4 => put["ConditionExpression"] = json!("attribute_not_exists(body)"),
        5 => {
            put["ConditionExpression"] = json!("revision > :before");
            put["ExpressionAttributeValues"] = before;
        }
        6 => {
            put["ConditionExpression"] = json!("revision = :before");
            put["ExpressionAttributeValues"] = before;
        }
        _ => {
            let of = submitted_at(dice);
            put["ConditionExpression"] =
                json!("revision = :before AND submitted_at = :submitted_at");
            put["ExpressionAttributeValues"] = before;
            put["ExpressionAttributeValues"][":submitted_at"] = of;
        }
    }
    if dice.bool() {
        put["ReturnValuesOnConditionCheckFailure"] = json!("ALL_OLD");
    }
    put
}

/// A statement as the store says them, or nearly so.
fn statement(dice: &mut fastrand::Rng) -> Value {
    let is_task = dice.u8(..4) > 0;
    let (mut table, item) = match is_task {
        true => ("tasks", task(dice)),
        false => ("documents", document(dice)),
    };
    let mut fields: Vec<_> = item.as_object().unwrap().clone().into_iter().collect();
    let (text, mut values) = if !is_task || dice.u8(..3) == 0 {
        let names: Vec<_> = fields.iter().map(|(name, _)| format!("'{name}': ?")).collect();
        let text = format!("INSERT INTO \"{table}\" VALUE {{{}}}", names.join(", "));
        (text, fields.into_iter().map(|(_, value)| value).collect::<Vec<_>>())
    } else {
        let sets_key = dice.u8(..32) == 0;
        let absent = ["shard", "due", "ended", "ended_at", "workflow", "extra", "none"];
        let absent = absent.iter().filter(|name| item.get(name).is_none() || dice.u8(..64) == 0);
        let absent: String = absent.map(|name| format!(" REMOVE \"{name}\"")).collect();
        fields.retain(|(name, _)| name != "task_id" || sets_key);
        if dice.u8(..32) == 0 {
            fields.extend_from_within(..1);
        }
        if dice.u8(..32) == 0 {
            table = "documents";
        }
        let set: String = fields.iter().map(|(name, _)| format!(" SET \"{name}\"=?")).collect();
        let mut values: Vec<_> = fields.into_iter().map(|(_, value)| value).collect();
        let (before, of) = (dice.u8(..4).to_string(), submitted_at(dice));
        values.extend([item["task_id"].clone(), json!({ "N": before }), of]);
        let whose = "\"task_id\"=? AND \"revision\"=? AND \"submitted_at\"=?";
        let text = format!("UPDATE \"{table}\"{set}{absent} WHERE {whose}");
        (text, values)
    };
    let text = match dice.u8(..48) {
        0 => text.replace(" AND \"revision\"=?", ""),
        1 => text.replace(" AND \"revision\"=?", " AND \"revision\">?"),
        2 => text.replace("\"tasks\"", "\"none\""),
        3 => text.replace("INSERT", "insert"),
        4 => text.replace(", ", ",  "),
        _ => text,
    };
    if dice.u8(..48) == 0 {
        values.pop();
    }
    let mut statement = json!({ "Statement": text, "Parameters": values });
    if dice.u8(..48) == 0 {
        statement["ReturnValuesOnConditionCheckFailure"] = json!("ALL_OLD");
    }
    statement
}

fn request(dice: &mut fastrand::Rng) -> (&'static str, Value) {
    let key =
        |dice: &mut fastrand::Rng| json!({ "task_id": { "S": format!("task-{}", dice.u8(..7)) } });
    match dice.u8(..10) {
        0 => ("GetItem", json!({ "TableName": "tasks", "Key": key(dice), "ConsistentRead": true })),
        1 => {
            let keys: Vec<_> = (0..dice.u8(1..4)).map(|_| key(dice)).collect();
            let documents: Vec<_> = (0..dice.u8(1..3))
                .map(|n| json!({ "task_id": { "S": "task-1" }, "document": { "S": format!("output-{n}") } }))
                .collect();
            let tables = json!({
                "tasks": { "Keys": keys, "ConsistentRead": true },
                "documents": { "Keys": documents },
            });
            ("BatchGetItem", json!({ "RequestItems": tables }))
        }
        2 => {
            let condition = json!("attribute_not_exists(task_id)");
            let (mut task, mut document) = (task(dice), document(dice));
            if dice.bool() {
                // One that is surely new.
                task["task_id"] = json!({ "S": format!("new-{}", dice.u32(..)) });
                document["task_id"] = task["task_id"].clone();
            }
            let mut puts = [task, document].map(|item| {
                let table = if item.get("document").is_some() { "documents" } else { "tasks" };
                json!({ "Put": { "TableName": table, "Item": item, "ConditionExpression": condition } })
            });
            if dice.u8(..4) == 0 {
                puts[1] = puts[0].clone();
            }
            ("TransactWriteItems", json!({ "TransactItems": puts }))
        }
        8.. => {
            let statements: Vec<_> = (0..dice.u8(1..4)).map(|_| statement(dice)).collect();
            ("BatchExecuteStatement", json!({ "Statements": statements }))
        }
        // Seldom: most requests are to meet an item that is there.
        3 if dice.u8(..8) == 0 => ("DeleteItem", json!({ "TableName": "tasks", "Key": key(dice) })),
        4 if dice.u8(..4) == 0 => ("PutItem", json!({ "TableName": "none", "Item": task(dice) })),
        5 if dice.bool() => {
            let mut put = put(dice);
            put["ReturnConsumedCapacity"] = json!("TOTAL");
            ("PutItem", put)
        }
        _ => ("PutItem", put(dice)),
    }
}

#[tokio::test]
async fn answers_and_tables_are_dynoxides_own() {
    let (ours, theirs) = (tables(), tables());
    let mut dice = fastrand::Rng::with_seed(7);
    let mut short = BTreeMap::<_, usize>::new();
    for n in 0..REQUESTS {
        let (operation, request) = request(&mut dice);
        let expected = dynoxide(&theirs, operation, &request);
        let (answer, was_short) = answer(&ours, operation, &request).await;
        assert_eq!(answer, expected, "{n}: {operation} {request}");
        *short.entry(kind(operation, &request, &answer)).or_default() += usize::from(was_short);
        // Often: what one request left behind, another cleans up.
        if n % 10 == 0 {
            assert_eq!(rows(&ours), rows(&theirs), "{n}: {operation} {request}");
        }
    }
    let kinds =
        ["get", "batch get", "new task", "saved task", "document", "refused", "transaction"];
    for kind in kinds.into_iter().chain(["statements", "some statements refused"]) {
        assert!(short.get(kind).is_some_and(|count| *count > 30), "{kind}: {short:?}");
    }
}

/// What came of a request, of those that every step makes.
fn kind(operation: &str, request: &Value, answer: &Value) -> &'static str {
    let is_done = answer.get("__type").is_none();
    let condition = request["ConditionExpression"].as_str();
    match (operation, request["TableName"].as_str(), condition) {
        ("GetItem", ..) => "get",
        ("BatchGetItem", ..) => "batch get",
        ("TransactWriteItems", ..) if is_done => "transaction",
        ("BatchExecuteStatement", ..) => {
            let answers = answer["Responses"].as_array();
            let refused =
                answers.is_some_and(|all| all.iter().any(|one| one.get("Error").is_some()));
            if refused { "some statements refused" } else { "statements" }
        }
        ("PutItem", ..) if !is_done => "refused",
        ("PutItem", Some("documents"), _) => "document",
        ("PutItem", Some("tasks"), Some(condition)) if condition.starts_with("revision = ") => {
            "saved task"
        }
        ("PutItem", Some("tasks"), _) => "new task",
        _ => "other",
    }
}

/// All that is in the tables and in the indices.
fn rows(tables: &Tables) -> [Value; 4] {
    let scans = [
        json!({ "TableName": "tasks" }),
        json!({ "TableName": "documents" }),
        json!({ "TableName": "tasks", "IndexName": "due" }),
        json!({ "TableName": "tasks", "IndexName": "ended" }),
    ];
    scans.map(|scan| {
        let mut items = dynoxide(tables, "Scan", &scan)["Items"].clone();
        items.as_array_mut().unwrap().sort_by_key(key);
        items
    })
}

/// Writes that meet are committed together, and each has an answer of its own.
#[tokio::test]
async fn writes_at_the_same_moment_do_not_see_half_of_each_other() {
    let tables = tables();
    let puts = (0..50).map(|n| {
        let item = json!({ "task_id": { "S": format!("task-{}", n % 10) }, "revision": { "N": "1" } });
        json!({ "TableName": "tasks", "Item": item, "ConditionExpression": "attribute_not_exists(task_id)" })
    });
    let puts: Vec<_> = puts.collect();
    let answers = puts.iter().map(|put| answer(&tables, "PutItem", put));
    let answers = futures_util::future::join_all(answers).await;
    assert_eq!(answers.iter().filter(|(answer, _)| *answer == json!({})).count(), 10);
    assert!(answers.iter().all(|(_, was_short)| *was_short));
}

/// Whoever leads a commit may be given up before it is made; the others wait for it nonetheless.
#[tokio::test]
async fn a_write_is_committed_though_the_one_who_leads_is_given_up() {
    let tables = tables();
    let put = |id: &str| json!({ "TableName": "tasks", "Item": { "task_id": { "S": id }, "revision": { "N": "1" } } });
    let (first, second) = (put("first"), put("second"));
    let mut leader = Box::pin(answer(&tables, "PutItem", &first));
    let mut other = Box::pin(answer(&tables, "PutItem", &second));
    assert!(futures_util::poll!(&mut leader).is_pending());
    assert!(futures_util::poll!(&mut other).is_pending());
    drop(leader);
    assert_eq!(other.await, (json!({}), true));
}
