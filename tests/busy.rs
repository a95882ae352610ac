//! AWS when it is busy: how it refuses a request as a whole or, of a batch, a part.

use aws_smithy_runtime_api::{
    client::{
        http::HttpConnectorFuture,
        orchestrator::{HttpRequest, HttpResponse},
        result::ConnectorError,
    },
    http::StatusCode,
};
use aws_smithy_types::body::SdkBody;
use serde_json::{Value, json};

/// The operation that a request asks for.
pub(crate) fn operation(request: &HttpRequest) -> &str {
    let target = request.headers().get("x-amz-target").unwrap_or_default();
    target.rsplit('.').next().unwrap_or_default()
}

/// What a request says.
pub(crate) fn said(request: &HttpRequest) -> Value {
    let body = request.body().bytes();
    body.and_then(|body| serde_json::from_slice(body).ok()).unwrap_or_default()
}

/// Refuses a request: all of it, or only the last entry of a batch, so that `service` does the others.
pub(crate) async fn refuse(
    mut request: HttpRequest,
    all: bool,
    service: impl FnOnce(HttpRequest) -> HttpConnectorFuture,
) -> Result<HttpResponse, ConnectorError> {
    let mut wanted = said(&request);
    let operation = operation(&request).to_owned();
    let Some(refused) = take(&operation, &mut wanted, all) else {
        return Ok(throttled(&operation, &wanted));
    };
    let mut answered = match refused.is_all {
        true => json!({}),
        false => {
            let body = wanted.to_string();
            request.headers_mut().insert("content-length", body.len().to_string());
            *request.body_mut() = SdkBody::from(body);
            let response = service(request).await?;
            let body = response.body().bytes().expect("a body that is there as a whole");
            serde_json::from_slice(body).unwrap()
        }
    };
    refused.complete(&mut answered);
    Ok(answer(200, &answered))
}

/// What is left out of a batch.
struct Refused {
    is_all: bool,
    entries: Vec<Value>,
    kind: Kind,
}

enum Kind {
    Keys,
    Statements,
    Messages,
    Events,
}

/// Takes what is refused out of a batch; nothing if the operation has no batches of which a part may be done.
fn take(operation: &str, wanted: &mut Value, all: bool) -> Option<Refused> {
    let (kind, entries) = match operation {
        "BatchGetItem" => {
            let (_, keys) = wanted["RequestItems"].as_object_mut()?.iter_mut().next_back()?;
            (Kind::Keys, &mut keys["Keys"])
        }
        "BatchExecuteStatement" => (Kind::Statements, &mut wanted["Statements"]),
        "SendMessageBatch" | "DeleteMessageBatch" | "ChangeMessageVisibilityBatch" => {
            (Kind::Messages, &mut wanted["Entries"])
        }
        "PutEvents" => (Kind::Events, &mut wanted["Entries"]),
        _ => return None,
    };
    let entries = entries.as_array_mut()?;
    let is_all = all || entries.len() == 1;
    let mut refused = entries.split_off(if is_all { 0 } else { entries.len() - 1 });
    if let Kind::Keys = kind {
        let tables = wanted["RequestItems"].as_object_mut()?;
        let (table, keys) = tables.iter().next_back()?;
        let mut left = json!({ table: keys });
        left[table]["Keys"] = refused.into();
        // Batches of reads have one table in this project.
        assert_eq!(tables.len(), 1);
        refused = vec![left];
    }
    Some(Refused { is_all, entries: refused, kind })
}

impl Refused {
    /// Adds to the answer to the others what is said of those that were refused.
    fn complete(self, answered: &mut Value) {
        let Self { entries, kind, .. } = self;
        let refusals = |refusal: fn(&Value) -> Value| entries.iter().map(refusal);
        let add = |answered: &mut Value, name: &str, refusals: Vec<Value>| {
            if answered[name].is_null() {
                answered[name] = json!([]);
            }
            answered[name].as_array_mut().unwrap().extend(refusals);
        };
        match kind {
            Kind::Keys => {
                if answered["Responses"].is_null() {
                    answered["Responses"] = json!({});
                }
                answered["UnprocessedKeys"] = entries[0].clone();
            }
            Kind::Statements => {
                let code = |_: &Value| json!({ "Error": { "Code": "ThrottlingError", "Message": "slow down" } });
                add(answered, "Responses", refusals(code).collect());
            }
            Kind::Messages => {
                let failed = |entry: &Value| json!({ "Id": entry["Id"], "Code": "RequestThrottled", "SenderFault": false });
                add(answered, "Successful", Vec::new());
                add(answered, "Failed", refusals(failed).collect());
            }
            Kind::Events => {
                let failed = |_: &Value| json!({ "ErrorCode": "ThrottlingException", "ErrorMessage": "slow down" });
                add(answered, "Entries", refusals(failed).collect());
                answered["FailedEntryCount"] = entries.len().into();
            }
        }
    }
}

/// The refusal of a request as a whole. A transaction is cancelled, because of its last item.
fn throttled(operation: &str, wanted: &Value) -> HttpResponse {
    if let Some(items) = wanted["TransactItems"].as_array() {
        let last = items.len() - 1;
        let code = |place| if place == last { "TransactionConflict" } else { "None" };
        let reasons: Vec<_> = (0..items.len()).map(|n| json!({ "Code": code(n) })).collect();
        return cancelled(&reasons);
    }
    let kind = match operation.contains("Message") || operation.contains("Queue") {
        true => "com.amazonaws.sqs#RequestThrottled",
        false => "com.amazonaws.dynamodb.v20120810#ThrottlingException",
    };
    answer(400, &json!({ "__type": kind, "message": "slow down" }))
}

/// A transaction that was cancelled, with a reason for each of its items.
pub(crate) fn cancelled(reasons: &[Value]) -> HttpResponse {
    let kind = "com.amazonaws.dynamodb.v20120810#TransactionCanceledException";
    answer(400, &json!({ "__type": kind, "CancellationReasons": reasons }))
}

fn answer(status: u16, body: &Value) -> HttpResponse {
    HttpResponse::new(StatusCode::try_from(status).unwrap(), SdkBody::from(body.to_string()))
}
