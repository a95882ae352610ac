//! Throttling by AWS: responses to a request that is throttled as a whole, or to a batch of which one entry is
//! throttled.

use aws_smithy_runtime_api::client::{
    http::HttpConnectorFuture,
    orchestrator::{HttpRequest, HttpResponse},
    result::ConnectorError,
};
use serde_json::{Value, json};

use super::http_client::{
    json_body, json_response, json_response_body, operation_of, set_json_body,
};

/// Throttles a request: the whole request, or only the last entry of a batch. `forward` carries out the other
/// entries.
pub(crate) async fn throttle(
    mut request: HttpRequest,
    whole_request: bool,
    forward: impl FnOnce(HttpRequest) -> HttpConnectorFuture,
) -> Result<HttpResponse, ConnectorError> {
    let mut body = json_body(&request);
    let operation = operation_of(&request).to_owned();
    let Some(throttled) = remove_throttled(&operation, &mut body, whole_request) else {
        return Ok(throttled_response(&operation, &body));
    };
    let mut response = match throttled.is_whole_batch {
        true => json!({}),
        false => {
            set_json_body(&mut request, &body);
            json_response_body(&forward(request).await?).unwrap()
        }
    };
    throttled.add_to(&mut response);
    Ok(json_response(200, &response))
}

/// The throttled entries of a batch.
struct ThrottledEntries {
    is_whole_batch: bool,
    entries: Vec<Value>,
    kind: BatchKind,
}

enum BatchKind {
    Keys,
    Statements,
    Messages,
    Events,
}

/// Removes the throttled entries from the body of a batch; `None` if AWS carries out the operation as a whole or
/// not at all.
fn remove_throttled(
    operation: &str,
    body: &mut Value,
    whole_request: bool,
) -> Option<ThrottledEntries> {
    let (kind, entries) = match operation {
        "BatchGetItem" => {
            let (_, keys) = body["RequestItems"].as_object_mut()?.iter_mut().next_back()?;
            (BatchKind::Keys, &mut keys["Keys"])
        }
        "BatchExecuteStatement" => (BatchKind::Statements, &mut body["Statements"]),
        "SendMessageBatch" | "DeleteMessageBatch" | "ChangeMessageVisibilityBatch" => {
            (BatchKind::Messages, &mut body["Entries"])
        }
        "PutEvents" => (BatchKind::Events, &mut body["Entries"]),
        _ => return None,
    };
    let entries = entries.as_array_mut()?;
    let is_whole_batch = whole_request || entries.len() == 1;
    let mut throttled = entries.split_off(if is_whole_batch { 0 } else { entries.len() - 1 });
    if let BatchKind::Keys = kind {
        let tables = body["RequestItems"].as_object_mut()?;
        let (table, keys) = tables.iter().next_back()?;
        let mut unprocessed = json!({ table: keys });
        unprocessed[table]["Keys"] = throttled.into();
        // Batch reads use one table in this project.
        assert_eq!(tables.len(), 1);
        throttled = vec![unprocessed];
    }
    Some(ThrottledEntries { is_whole_batch, entries: throttled, kind })
}

impl ThrottledEntries {
    /// Adds the errors of the throttled entries to the response to the others.
    fn add_to(self, response: &mut Value) {
        let Self { entries, kind, .. } = self;
        let errors = |error: fn(&Value) -> Value| entries.iter().map(error);
        let add = |response: &mut Value, name: &str, errors: Vec<Value>| {
            if response[name].is_null() {
                response[name] = json!([]);
            }
            response[name].as_array_mut().unwrap().extend(errors);
        };
        match kind {
            BatchKind::Keys => {
                if response["Responses"].is_null() {
                    response["Responses"] = json!({});
                }
                response["UnprocessedKeys"] = entries[0].clone();
            }
            BatchKind::Statements => {
                let code = |_: &Value| json!({ "Error": { "Code": "ThrottlingError", "Message": "slow down" } });
                add(response, "Responses", errors(code).collect());
            }
            BatchKind::Messages => {
                let failed = |entry: &Value| json!({ "Id": entry["Id"], "Code": "RequestThrottled", "SenderFault": false });
                add(response, "Successful", Vec::new());
                add(response, "Failed", errors(failed).collect());
            }
            BatchKind::Events => {
                let failed = |_: &Value| json!({ "ErrorCode": "ThrottlingException", "ErrorMessage": "slow down" });
                add(response, "Entries", errors(failed).collect());
                response["FailedEntryCount"] = entries.len().into();
            }
        }
    }
}

/// The response to a request that is throttled as a whole. A transaction is cancelled because of its last item.
fn throttled_response(operation: &str, body: &Value) -> HttpResponse {
    if let Some(items) = body["TransactItems"].as_array() {
        let last = items.len() - 1;
        let code = |index| if index == last { "TransactionConflict" } else { "None" };
        let reasons: Vec<_> = (0..items.len()).map(|n| json!({ "Code": code(n) })).collect();
        return cancelled_transaction(&reasons);
    }
    let kind = match operation.contains("Message") || operation.contains("Queue") {
        true => "com.amazonaws.sqs#RequestThrottled",
        false => "com.amazonaws.dynamodb.v20120810#ThrottlingException",
    };
    json_response(400, &json!({ "__type": kind, "message": "slow down" }))
}

/// The response to a cancelled transaction, with a reason for each of its items.
pub(crate) fn cancelled_transaction(reasons: &[Value]) -> HttpResponse {
    let kind = "com.amazonaws.dynamodb.v20120810#TransactionCanceledException";
    json_response(400, &json!({ "__type": kind, "CancellationReasons": reasons }))
}
