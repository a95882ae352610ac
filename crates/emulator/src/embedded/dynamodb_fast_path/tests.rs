//! Compares the fast path with dynoxide: the same requests must give the same responses and the same tables.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::embedded::{dynamodb::DynamoTables, request::EntryPoint};

/// The number of requests in a run: enough that every kind of request meets every state of an item.
const REQUESTS: usize = 6_000;

fn tables() -> DynamoTables {
    let tables = DynamoTables::in_memory(true).unwrap();
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

/// Dynoxide's own response.
fn dynoxide(tables: &DynamoTables, operation: &str, request: &Value) -> Value {
    read(tables.run(operation, request.to_string().as_bytes(), EntryPoint::InProcess).unwrap())
}

fn read(answered: Result<String, dynoxide::DynoxideError>) -> Value {
    let text = answered.unwrap_or_else(|error| error.to_json());
    let mut answer: Value = serde_json::from_str(&text).unwrap();
    // A batch may return its items in any order.
    let tables = answer.get_mut("Responses").and_then(Value::as_object_mut);
    for items in tables.into_iter().flat_map(|tables| tables.values_mut()) {
        items.as_array_mut().unwrap().sort_by_key(key);
    }
    answer
}

/// The sort key of an item in a comparison.
fn key(item: &Value) -> (String, String) {
    (item["task_id"].to_string(), item["document"].to_string())
}

/// The response of the tables, through the fast path if it supports the request, and whether it does.
async fn answer(tables: &DynamoTables, operation: &str, request: &Value) -> (Value, bool) {
    match tables.fast_path.try_serve(operation, request.to_string().as_bytes()).await {
        Some(answered) => (read(answered), true),
        None => (dynoxide(tables, operation, request), false),
    }
}

/// Mostly the same value, so that conditions are often true.
fn submitted_at(random: &mut fastrand::Rng) -> Value {
    json!({ "N": if random.u8(..24) == 0 { "0" } else { "1" } })
}

fn task(random: &mut fastrand::Rng) -> Value {
    let mut item = json!({
        "task_id": { "S": format!("task-{}", random.u8(..6)) },
        "revision": { "N": random.u8(..4).to_string() },
        "submitted_at": submitted_at(random),
        "steps": { "M": { "a": { "L": [{ "S": "ü\"" }, { "BOOL": true }, { "NULL": true }] } } },
    });
    // Sparse: not every task is due; and some keys have the wrong type.
    match random.u8(..16) {
        0..=4 => {}
        5 => item["due"] = json!({ "S": "soon" }),
        _ => {
            item["shard"] = json!({ "N": random.u8(..2).to_string() });
            item["due"] = json!({ "N": random.i32(-20..20).to_string() });
        }
    }
    if random.u8(..3) == 0 {
        let state = ["Processed", "Error", ""][random.usize(..3)];
        item["ended"] = json!({ "S": format!("{state}#{}", random.u8(..2)) });
        item["ended_at"] = json!({ "N": random.u8(..20).to_string() });
    }
    match random.u8(..4) {
        0 => {}
        1 => item["workflow"] = json!({ "S": "return" }),
        _ => item["workflow"] = json!({ "S": "order" }),
    }
    match random.u8(..32) {
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

fn document(random: &mut fastrand::Rng) -> Value {
    json!({
        "task_id": { "S": format!("task-{}", random.u8(..6)) },
        "document": { "S": format!("output-{}", random.u8(..3)) },
        "body": { "S": random.u8(..).to_string() },
    })
}

fn put(random: &mut fastrand::Rng) -> Value {
    let is_task = random.bool();
    let mut put = match is_task {
        true => json!({ "TableName": "tasks", "Item": task(random) }),
        false => json!({ "TableName": "documents", "Item": document(random) }),
    };
    let before = json!({ ":before": { "N": random.u8(..4).to_string() } });
    match random.u8(..8) {
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
            let of = submitted_at(random);
            put["ConditionExpression"] =
                json!("revision = :before AND submitted_at = :submitted_at");
            put["ExpressionAttributeValues"] = before;
            put["ExpressionAttributeValues"][":submitted_at"] = of;
        }
    }
    if random.bool() {
        put["ReturnValuesOnConditionCheckFailure"] = json!("ALL_OLD");
    }
    put
}

/// A statement like those of the state store, sometimes with a difference.
fn statement(random: &mut fastrand::Rng) -> Value {
    let is_task = random.u8(..4) > 0;
    let (mut table, item) = match is_task {
        true => ("tasks", task(random)),
        false => ("documents", document(random)),
    };
    let mut fields: Vec<_> = item.as_object().unwrap().clone().into_iter().collect();
    let (text, mut values) = if !is_task || random.u8(..3) == 0 {
        let names: Vec<_> = fields.iter().map(|(name, _)| format!("'{name}': ?")).collect();
        let text = format!("INSERT INTO \"{table}\" VALUE {{{}}}", names.join(", "));
        (text, fields.into_iter().map(|(_, value)| value).collect::<Vec<_>>())
    } else {
        let sets_key = random.u8(..32) == 0;
        let absent = ["shard", "due", "ended", "ended_at", "workflow", "extra", "none"];
        let absent = absent.iter().filter(|name| item.get(name).is_none() || random.u8(..64) == 0);
        let absent: String = absent.map(|name| format!(" REMOVE \"{name}\"")).collect();
        fields.retain(|(name, _)| name != "task_id" || sets_key);
        if random.u8(..32) == 0 {
            fields.extend_from_within(..1);
        }
        if random.u8(..32) == 0 {
            table = "documents";
        }
        let set: String = fields.iter().map(|(name, _)| format!(" SET \"{name}\"=?")).collect();
        let mut values: Vec<_> = fields.into_iter().map(|(_, value)| value).collect();
        let (before, of) = (random.u8(..4).to_string(), submitted_at(random));
        values.extend([item["task_id"].clone(), json!({ "N": before }), of]);
        let condition = "\"task_id\"=? AND \"revision\"=? AND \"submitted_at\"=?";
        let text = format!("UPDATE \"{table}\"{set}{absent} WHERE {condition}");
        (text, values)
    };
    let text = match random.u8(..48) {
        0 => text.replace(" AND \"revision\"=?", ""),
        1 => text.replace(" AND \"revision\"=?", " AND \"revision\">?"),
        2 => text.replace("\"tasks\"", "\"none\""),
        3 => text.replace("INSERT", "insert"),
        4 => text.replace(", ", ",  "),
        _ => text,
    };
    if random.u8(..48) == 0 {
        values.pop();
    }
    let mut statement = json!({ "Statement": text, "Parameters": values });
    if random.u8(..48) == 0 {
        statement["ReturnValuesOnConditionCheckFailure"] = json!("ALL_OLD");
    }
    statement
}

fn request(random: &mut fastrand::Rng) -> (&'static str, Value) {
    let key = |random: &mut fastrand::Rng| json!({ "task_id": { "S": format!("task-{}", random.u8(..7)) } });
    match random.u8(..10) {
        0 => {
            ("GetItem", json!({ "TableName": "tasks", "Key": key(random), "ConsistentRead": true }))
        }
        1 => {
            let keys: Vec<_> = (0..random.u8(1..4)).map(|_| key(random)).collect();
            let documents: Vec<_> = (0..random.u8(1..3))
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
            let (mut task, mut document) = (task(random), document(random));
            if random.bool() {
                // An id that does not exist yet.
                task["task_id"] = json!({ "S": format!("new-{}", random.u32(..)) });
                document["task_id"] = task["task_id"].clone();
            }
            let mut puts = [task, document].map(|item| {
                let table = if item.get("document").is_some() { "documents" } else { "tasks" };
                json!({ "Put": { "TableName": table, "Item": item, "ConditionExpression": condition } })
            });
            if random.u8(..4) == 0 {
                puts[1] = puts[0].clone();
            }
            ("TransactWriteItems", json!({ "TransactItems": puts }))
        }
        8.. => {
            let statements: Vec<_> = (0..random.u8(1..4)).map(|_| statement(random)).collect();
            ("BatchExecuteStatement", json!({ "Statements": statements }))
        }
        // Rarely, so that most requests find an existing item.
        3 if random.u8(..8) == 0 => {
            ("DeleteItem", json!({ "TableName": "tasks", "Key": key(random) }))
        }
        4 if random.u8(..4) == 0 => {
            ("PutItem", json!({ "TableName": "none", "Item": task(random) }))
        }
        5 if random.bool() => {
            let mut put = put(random);
            put["ReturnConsumedCapacity"] = json!("TOTAL");
            ("PutItem", put)
        }
        _ => ("PutItem", put(random)),
    }
}

#[tokio::test]
async fn responses_and_tables_equal_those_of_dynoxide() {
    let (with_fast_path, dynoxide_only) = (tables(), tables());
    let mut random = fastrand::Rng::with_seed(7);
    let mut fast_path_counts = BTreeMap::<_, usize>::new();
    for n in 0..REQUESTS {
        let (operation, request) = request(&mut random);
        let expected = dynoxide(&dynoxide_only, operation, &request);
        let (answer, used_fast_path) = answer(&with_fast_path, operation, &request).await;
        assert_eq!(answer, expected, "{n}: {operation} {request}");
        *fast_path_counts.entry(kind(operation, &request, &answer)).or_default() +=
            usize::from(used_fast_path);
        // Compare often, because a later request may repair a difference.
        if n % 10 == 0 {
            assert_eq!(rows(&with_fast_path), rows(&dynoxide_only), "{n}: {operation} {request}");
        }
    }
    let kinds =
        ["get", "batch get", "new task", "saved task", "document", "refused", "transaction"];
    for kind in kinds.into_iter().chain(["statements", "some statements refused"]) {
        assert!(
            fast_path_counts.get(kind).is_some_and(|count| *count > 30),
            "{kind}: {fast_path_counts:?}"
        );
    }
}

/// The kind of a request, and whether it succeeded, for the requests that every step makes.
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

/// All rows of the tables and of the indices.
fn rows(tables: &DynamoTables) -> [Value; 4] {
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

/// Concurrent writes share a commit, and each has its own response.
#[tokio::test]
async fn concurrent_writes_share_a_commit_and_have_their_own_responses() {
    let tables = tables();
    let puts = (0..50).map(|n| {
        let item = json!({ "task_id": { "S": format!("task-{}", n % 10) }, "revision": { "N": "1" } });
        json!({ "TableName": "tasks", "Item": item, "ConditionExpression": "attribute_not_exists(task_id)" })
    });
    let puts: Vec<_> = puts.collect();
    let answers = puts.iter().map(|put| answer(&tables, "PutItem", put));
    let answers = futures_util::future::join_all(answers).await;
    assert_eq!(answers.iter().filter(|(answer, _)| *answer == json!({})).count(), 10);
    assert!(answers.iter().all(|(_, used_fast_path)| *used_fast_path));
}

/// The future that is to make the commit may be dropped; the other writes still depend on the commit.
#[tokio::test]
async fn pending_write_is_committed_although_the_committing_future_is_dropped() {
    let tables = tables();
    let put = |id: &str| json!({ "TableName": "tasks", "Item": { "task_id": { "S": id }, "revision": { "N": "1" } } });
    let (first, second) = (put("first"), put("second"));
    let mut first_put = Box::pin(answer(&tables, "PutItem", &first));
    let mut second_put = Box::pin(answer(&tables, "PutItem", &second));
    assert!(futures_util::poll!(&mut first_put).is_pending());
    assert!(futures_util::poll!(&mut second_put).is_pending());
    drop(first_put);
    assert_eq!(second_put.await, (json!({}), true));
}
