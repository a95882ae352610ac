//! The agent kind `sqs`: sends a message to an SQS queue. The step's body is the message: a string as it is, anything else
//! as JSON. The step's output is `{ "message_id": … }`.
//!
//! | response of SQS | outcome | may the step have run? |
//! | --- | --- | --- |
//! | 200, and the digest of the message is right | completed | it has run |
//! | 200 with another digest or without a message id | failed | yes |
//! | throttling, also of the queue's key | retried, the service is available | no |
//! | 408, 5xx, a broken connection | retried | yes: the queue may get the message twice |
//! | no connection | retried | no |
//! | every other 4xx: no such queue, no permission, invalid characters | failed | no |
//! | every other status, such as 3xx | failed | yes |
//!
//! Each message has the attributes `idempotency-key` and `traceparent`. In a FIFO queue, the messages of a task are a
//! group, and SQS drops a repeated message within five minutes.
//!
//! <https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessage.html>

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use steward_core::model::messages::StepRequest;
use steward_runtime::trace::TraceSpan;

use crate::{
    arn::{Arn, TargetKind},
    attempt::CallFault,
    aws_api::{ApiResponse, AwsApi},
    response::CallResponse,
    transport::{not_sent, unusable_response},
};

/// What the agent calls.
pub(crate) const QUEUES: TargetKind = TargetKind {
    service: "sqs",
    prefix: "",
    noun: "an SQS queue",
    example: "arn:aws:sqs:eu-west-1:123456789012:orders",
};

/// Sends the message to the queue that the request names.
pub(crate) async fn call(
    api: &AwsApi,
    request: &StepRequest,
    traceparent: &str,
    span: &mut TraceSpan,
) -> Result<CallResponse, CallFault> {
    let target = api.target(request)?;
    let message = message(request)?;
    let queue_url = queue_url(api, target);
    let body = send_message(request, traceparent, target, &queue_url, &message);
    let headers = vec![
        ("content-type", "application/x-amz-json-1.0".to_owned()),
        ("x-amz-target", "AmazonSQS.SendMessage".to_owned()),
    ];
    let call = api.post(target, "/", headers, body.to_string());
    outcome(&message, &api.send(call, request, span).await?)
}

/// The text of the message.
fn message(request: &StepRequest) -> Result<String, CallFault> {
    let message = match request.body.as_ref().map(|body| body.value()) {
        None => String::new(),
        Some(Value::String(text)) => text,
        Some(other) => other.to_string(),
    };
    match message.is_empty() {
        true => Err(not_sent("the request has no body; SQS accepts no empty message")),
        false => Ok(message),
    }
}

fn queue_url(api: &AwsApi, queue: &Arn) -> String {
    let name = queue.name(QUEUES).unwrap_or_default();
    format!("{}/{}/{name}", api.endpoint(queue), queue.account)
}

fn send_message(
    request: &StepRequest,
    traceparent: &str,
    queue: &Arn,
    queue_url: &str,
    message: &str,
) -> Value {
    let attribute = |text: &str| json!({ "DataType": "String", "StringValue": text });
    let mut body = json!({
        "QueueUrl": queue_url,
        "MessageBody": message,
        "MessageAttributes": {
            "idempotency-key": attribute(&request.idempotency_key),
            "traceparent": attribute(traceparent),
        },
    });
    if queue.to_string().ends_with(".fifo")
        && let Some(body) = body.as_object_mut()
    {
        // The key may be longer than the 128 characters that SQS accepts.
        let digest = Sha256::digest(request.idempotency_key.as_bytes());
        let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        body.insert("MessageGroupId".to_owned(), request.task_id.as_str().into());
        body.insert("MessageDeduplicationId".to_owned(), digest.into());
    }
    body
}

/// The outcome of a request: the table of this file.
fn outcome(message: &str, response: &ApiResponse) -> Result<CallResponse, CallFault> {
    if response.status != 200 {
        return Err(response.fault(response.common_error()));
    }
    let Some(sent) = response.json() else {
        return Err(unusable_response("SQS accepted the message with an unreadable response"));
    };
    let text = |key: &str| sent.get(key).and_then(Value::as_str);
    let Some(id) = text("MessageId") else {
        return Err(unusable_response("SQS accepted the message without an id"));
    };
    let digest = format!("{:x}", md5::compute(message));
    if text("MD5OfMessageBody").is_some_and(|received| received != digest) {
        return Err(unusable_response("SQS received another message: its digest differs"));
    }
    let mut output = json!({ "message_id": id });
    if let (Some(number), Some(output)) = (text("SequenceNumber"), output.as_object_mut()) {
        output.insert("sequence_number".to_owned(), number.into());
    }
    Ok(response.with_body(Ok(output)))
}
