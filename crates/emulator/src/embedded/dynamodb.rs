//! DynamoDB in the process: maps the operation names of the JSON protocol to dynoxide's actions.
//!
//! dynoxide's HTTP router is private. This module does what that router does around each action: it reads the
//! request, converts errors to AWS exceptions, and writes the response.

use std::path::Path;

use dynoxide::{Database, DynoxideError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use super::{
    dynamodb_fast_path::FastPath, error::EmbeddedError, request::EntryPoint,
    response::ServiceResponse,
};

/// The database's file inside the data directory.
const FILE_NAME: &str = "dynamodb.sqlite";

/// Creates an AWS exception with a message.
type ExceptionConstructor = fn(String) -> DynoxideError;

/// Prefixes of error messages by which dynoxide's deserialisers select the AWS exception for a malformed request.
const EXCEPTION_PREFIXES: [(&str, ExceptionConstructor); 5] = [
    ("VALIDATION:", DynoxideError::ValidationException),
    ("VALIDATION_AS_READ:", DynoxideError::ValidationException),
    ("VALIDATION_REQUEST:", DynoxideError::EnvelopedValidation),
    ("SERIALIZATION:", DynoxideError::SerializationException),
    ("SERIALIZATION_AS_READ:", DynoxideError::SerializationException),
];

/// Parts of serde's messages, without such a prefix, for requests that DynamoDB rejects with a
/// `ValidationException` instead of a `SerializationException`.
const VALIDATION_MESSAGES: [&str; 5] = [
    "missing field",
    "unknown variant",
    "invalid type: null",
    "empty AttributeValue",
    "Supplied AttributeValue",
];

/// The embedded tables.
pub(super) struct DynamoTables {
    database: Database,
    pub(super) fast_path: FastPath,
    /// Whether the fast path serves all requests that it supports; otherwise only batch reads.
    use_fast_path: bool,
}

impl DynamoTables {
    /// Opens tables in memory.
    pub(super) fn in_memory(use_fast_path: bool) -> Result<Self, EmbeddedError> {
        // With `memdb`, two connections share an in-memory database of this name. The name is unique.
        let uri = format!("file:/{}?vfs=memdb", Uuid::new_v4());
        let database = Database::new(&uri).map_err(EmbeddedError::OpenTables)?;
        Ok(Self { database, fast_path: FastPath::in_memory(&uri)?, use_fast_path })
    }

    /// Opens tables in a file in `dir`, which this process has locked.
    pub(super) fn on_disk(dir: &Path, use_fast_path: bool) -> Result<Self, EmbeddedError> {
        let path = dir.join(FILE_NAME);
        let Some(path) = path.to_str() else {
            return Err(EmbeddedError::PathNotUtf8 { path });
        };
        let database = Database::new(path).map_err(EmbeddedError::OpenTables)?;
        // This is dynoxide's only public way to set SQLite's `synchronous` to NORMAL (the default is FULL).
        // With a write-ahead log, a killed process still loses nothing, and a write does not wait for the
        // disk.
        database.disable_bulk_loading().map_err(EmbeddedError::OpenTables)?;
        Ok(Self { database, fast_path: FastPath::on_disk(path)?, use_fast_path })
    }

    /// Deletes expired items; returns their number.
    pub(super) fn sweep_ttl(&self) -> Result<usize, DynoxideError> {
        self.database.sweep_ttl()
    }

    /// Responds to one DynamoDB request.
    pub(super) async fn respond(
        &self,
        operation: &str,
        body: &[u8],
        entry_point: EntryPoint,
    ) -> ServiceResponse {
        // Only dynoxide recognises a repeated transaction by its token.
        let may_repeat = entry_point == EntryPoint::Http && operation == "TransactWriteItems";
        // Only the fast path limits the bytes that a batch reads from a partition, as DynamoDB does.
        let try_fast_path = operation == "BatchGetItem" || (self.use_fast_path && !may_repeat);
        let served = match try_fast_path {
            true => self.fast_path.try_serve(operation, body).await,
            false => None,
        };
        let result = served.or_else(|| {
            self.fast_path.run_exclusively(operation, || self.run(operation, body, entry_point))
        });
        match result {
            Some(Ok(json)) => ServiceResponse::ok(json),
            Some(Err(error)) => {
                let error = enveloped(operation, error);
                ServiceResponse::error(error.status_code(), error.error_type(), error.to_json())
            }
            None => ServiceResponse::unknown_operation(operation),
        }
    }

    /// Runs an operation with dynoxide; `None` if the operation is not supported.
    pub(super) fn run(
        &self,
        operation: &str,
        body: &[u8],
        entry_point: EntryPoint,
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
                    // The SDK adds a token to every transaction, and dynoxide scans all tokens that
                    // it has seen. In the process no response is lost, so there are no repeated
                    // transactions to recognise.
                    if entry_point == EntryPoint::InProcess {
                        request.client_request_token = None;
                    }
                    db.transact_write_items(request)
                },
            ),
            _ => return None,
        })
    }
}

/// Reads the request, runs the action, and writes its response.
fn act<Request: DeserializeOwned, Response: Serialize>(
    body: &[u8],
    action: impl FnOnce(Request) -> Result<Response, DynoxideError>,
) -> Result<String, DynoxideError> {
    let request = serde_json::from_slice(body).map_err(|error| unreadable(&error))?;
    let response = action(request)?;
    serde_json::to_string(&response)
        .map_err(|error| DynoxideError::InternalServerError(error.to_string()))
}

/// The AWS exception for a request that serde could not read.
fn unreadable(error: &serde_json::Error) -> DynoxideError {
    let message = error.to_string();
    let message = message.rsplit_once(" at line ").map_or(message.as_str(), |(text, _)| text);
    for (prefix, exception) in EXCEPTION_PREFIXES {
        if let Some(text) = message.strip_prefix(prefix) {
            return exception(text.to_owned());
        }
    }
    if VALIDATION_MESSAGES.iter().any(|part| message.contains(part)) {
        DynoxideError::ValidationException(message.to_owned())
    } else {
        DynoxideError::SerializationException(message.to_owned())
    }
}

/// Adds the words with which DynamoDB begins some validation errors of single-item writes.
fn enveloped(operation: &str, error: DynoxideError) -> DynoxideError {
    if let DynoxideError::EnvelopedValidation(message) = &error
        && matches!(operation, "PutItem" | "UpdateItem" | "DeleteItem")
    {
        return DynoxideError::ValidationException(format!(
            "1 validation error detected: {message}"
        ));
    }
    error
}
