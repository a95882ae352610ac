//! DynamoDB in the process: dynoxide's actions behind the JSON protocol's operation names.
//!
//! dynoxide's own HTTP router is private, so the little that it does around the actions is done
//! here: read the request, name the error as AWS would, write the answer.

use std::path::Path;

use dynoxide::{Database, DynoxideError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use super::answer::Answer;
use super::shortcuts::Shortcuts;
use super::{Door, EmbeddedError};

/// The database's file inside the data directory.
const FILE_NAME: &str = "dynamodb.sqlite";

/// Makes an AWS exception of a message.
type Exception = fn(String) -> DynoxideError;

/// How dynoxide's deserialisers mark which AWS exception a malformed request deserves.
const MARKS: [(&str, Exception); 5] = [
    ("VALIDATION:", DynoxideError::ValidationException),
    ("VALIDATION_AS_READ:", DynoxideError::ValidationException),
    ("VALIDATION_REQUEST:", DynoxideError::EnvelopedValidation),
    ("SERIALIZATION:", DynoxideError::SerializationException),
    ("SERIALIZATION_AS_READ:", DynoxideError::SerializationException),
];

/// What serde says, without a mark, of requests that DynamoDB calls invalid, not unreadable.
const INVALID: [&str; 5] = [
    "missing field",
    "unknown variant",
    "invalid type: null",
    "empty AttributeValue",
    "Supplied AttributeValue",
];

/// The embedded tables.
pub(super) struct Tables {
    database: Database,
    pub(super) shortcuts: Shortcuts,
}

impl Tables {
    /// Tables in memory.
    pub(super) fn in_memory() -> Result<Self, EmbeddedError> {
        // SQLite's own way for two connections to share what is in memory; the name is this one's alone.
        Self::open(&format!("file:/{}?vfs=memdb", Uuid::new_v4()))
    }

    /// Tables in a file in `dir`, which this process has locked.
    pub(super) fn on_disk(dir: &Path) -> Result<Self, EmbeddedError> {
        let path = dir.join(FILE_NAME);
        let Some(path) = path.to_str() else {
            return Err(EmbeddedError::PathNotUtf8 { path });
        };
        let tables = Self::open(path)?;
        // The only public switch for SQLite's `synchronous` on dynoxide's connection; this sets NORMAL
        // (FULL is the default): with a write-ahead log a killed process still loses nothing, and a
        // write no longer waits for the disk.
        tables.database.disable_bulk_loading().map_err(EmbeddedError::OpenTables)?;
        Ok(tables)
    }

    fn open(path: &str) -> Result<Self, EmbeddedError> {
        let database = Database::new(path).map_err(EmbeddedError::OpenTables)?;
        let shortcuts = Shortcuts::open(path).map_err(EmbeddedError::OpenShortcuts)?;
        Ok(Self { database, shortcuts })
    }

    /// Remove expired items; returns how many.
    pub(super) fn sweep_ttl(&self) -> Result<usize, DynoxideError> {
        self.database.sweep_ttl()
    }

    /// Answer one DynamoDB request.
    pub(super) async fn answer(&self, operation: &str, body: &[u8], door: Door) -> Answer {
        // A transaction that may be repeated is dynoxide's, who knows its token.
        let may_repeat = door == Door::Endpoint && operation == "TransactWriteItems";
        let short = if may_repeat { None } else { self.shortcuts.answer(operation, body).await };
        let answered =
            short.or_else(|| self.shortcuts.aside(operation, || self.run(operation, body, door)));
        match answered {
            Some(Ok(json)) => Answer::ok(json),
            Some(Err(error)) => {
                let error = enveloped(operation, error);
                Answer::error(error.status_code(), error.error_type(), error.to_json())
            }
            None => Answer::unknown_operation(operation),
        }
    }

    /// Run one operation; `None` if there is no such operation here.
    pub(super) fn run(
        &self,
        operation: &str,
        body: &[u8],
        door: Door,
    ) -> Option<Result<String, DynoxideError>> {
        let db = &self.database;
        Some(match operation {
            "CreateTable" => act(body, |request| db.create_table(request)),
            "DescribeTable" => act(body, |request| db.describe_table(request)),
            "DeleteTable" => act(body, |request| db.delete_table(request)),
            "ListTables" => act(body, |request| db.list_tables(request)),
            "UpdateTimeToLive" => act(body, |request| db.update_time_to_live(request)),
            "DescribeTimeToLive" => act(body, |request| db.describe_time_to_live(request)),
            "PutItem" => act(body, |request| db.put_item(request)),
            "GetItem" => act(body, |request| db.get_item(request)),
            "UpdateItem" => act(body, |request| db.update_item(request)),
            "DeleteItem" => act(body, |request| db.delete_item(request)),
            "Query" => act(body, |request| db.query(request)),
            "Scan" => act(body, |request| db.scan(request)),
            "BatchGetItem" => act(body, |request| db.batch_get_item(request)),
            "BatchExecuteStatement" => act(body, |request| db.batch_execute_statement(request)),
            "BatchWriteItem" => act(body, |request| db.batch_write_item(request)),
            "TransactGetItems" => act(body, |request| db.transact_get_items(request)),
            "TransactWriteItems" => act(
                body,
                |mut request: dynoxide::actions::transact_write_items::TransactWriteItemsRequest| {
                    // The SDK invents a token for every transaction, and dynoxide scans all it
                    // has seen. In process no answer is lost, so no repeat needs recognising.
                    if door == Door::Connector {
                        request.client_request_token = None;
                    }
                    db.transact_write_items(request)
                },
            ),
            _ => return None,
        })
    }
}

/// Read the request, run the action, write its answer.
fn act<Request: DeserializeOwned, Response: Serialize>(
    body: &[u8],
    action: impl FnOnce(Request) -> Result<Response, DynoxideError>,
) -> Result<String, DynoxideError> {
    let request = serde_json::from_slice(body).map_err(|error| unreadable(&error))?;
    let response = action(request)?;
    serde_json::to_string(&response)
        .map_err(|error| DynoxideError::InternalServerError(error.to_string()))
}

/// The AWS exception for a request that serde refused.
fn unreadable(error: &serde_json::Error) -> DynoxideError {
    let message = error.to_string();
    let message = message.rsplit_once(" at line ").map_or(message.as_str(), |(said, _)| said);
    for (mark, exception) in MARKS {
        if let Some(said) = message.strip_prefix(mark) {
            return exception(said.to_owned());
        }
    }
    if INVALID.iter().any(|hint| message.contains(hint)) {
        DynoxideError::ValidationException(message.to_owned())
    } else {
        DynoxideError::SerializationException(message.to_owned())
    }
}

/// Add the words that DynamoDB puts before some refusals of single-item writes.
fn enveloped(operation: &str, error: DynoxideError) -> DynoxideError {
    if let DynoxideError::EnvelopedValidation(said) = &error
        && matches!(operation, "PutItem" | "UpdateItem" | "DeleteItem")
    {
        return DynoxideError::ValidationException(format!("1 validation error detected: {said}"));
    }
    error
}
