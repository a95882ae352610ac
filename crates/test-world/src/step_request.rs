//! A request of the scheduler to an agent.

use serde_json::{Value, json};
use steward_core::model::messages::StepRequest;

/// The request of the first attempt at the step `charge` of the task `order-1`, with these fields besides.
///
/// # Errors
/// The fields are not those of a request.
pub fn step_request(fields: &Value) -> Result<StepRequest, serde_json::Error> {
    let mut request = json!({
        "task_id": "order-1", "step": "charge", "attempt": 1, "complete_by": "2026-11-20T12:00:00Z",
        "idempotency_key": "order-1/charge/do", "agent": "a", "method": "POST", "path": "/",
        "incarnation": 0, "call_within_ms": 100_000,
    });
    if let (Some(request), Some(fields)) = (request.as_object_mut(), fields.as_object()) {
        request.extend(fields.clone());
    }
    serde_json::from_value(request)
}
