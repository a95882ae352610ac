//! The manager, a simulated person: approves or rejects purchases in the console, and undoes a purchase whose parcel is
//! lost. Sends the same forms as a browser.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use backon::Retryable;
use serde_json::{Map, Value};

use super::{
    connection::StewardConnection,
    fault::{Fault, FaultKind},
    mock_service::{MockService, Operation, pause},
    responses::refusal,
    retry::{NotYet, backoff},
};

/// Purchases of cost centres with this prefix are always rejected.
const FROZEN_PREFIX: &str = "frozen";

/// The step of the workflow that awaits the manager.
const STEP: &str = "approval";

/// Decides on the purchase of a mail.
pub(super) async fn decide(
    mock: Arc<MockService>,
    http: reqwest::Client,
    steward: StewardConnection,
    mail: Map<String, Value>,
) {
    let text = |key| mail.get(key).and_then(Value::as_str).unwrap_or_default();
    let (purchase, amount) = (text("purchase"), mail.get("amount").cloned().unwrap_or_default());
    let decision = format!("decide {purchase}");
    let is_rejected = text("cost_centre").starts_with(FROZEN_PREFIX)
        || mock.fault(Operation::Do, &decision) == Fault::Refuse;
    let sending = mock.sending(&decision);
    {
        let mut state = mock.state();
        let record = state.record(purchase);
        for (is_counted, kind) in [
            (is_rejected, FaultKind::Refuse),
            (sending.is_repeated, FaultKind::Repeated),
            (sending.delay_ms > 0, FaultKind::Late),
        ] {
            if is_counted {
                record.count_fault(kind);
            }
        }
    }
    pause(mock.latency_ms() + sending.delay_ms).await;
    let amount = amount.to_string();
    let reason = if is_rejected { refusal(mock.service()).title } else { "within the budget" };
    let form = [("step", STEP), ("reason", reason), ("answer.limit", &amount)];
    let command = if is_rejected { "reject" } else { "approve" };
    let is_sent = send(&http, &steward, purchase, command, &form).await;
    if is_sent && sending.is_repeated {
        // A deputy decides in the same way. The console refuses it, or the scheduler does.
        let _ = post(&http, &steward, purchase, command, &form).await;
    }
}

/// Undoes a purchase, if the manager is simulated.
pub(super) async fn undo(
    http: &reqwest::Client,
    steward: &StewardConnection,
    purchase: &str,
    why: &str,
) {
    if steward.has_manager {
        send(http, steward, purchase, "undo", &[("reason", why)]).await;
    }
}

/// Sends a command as soon as the console accepts it. Returns whether it was sent: not if the task does not proceed any
/// more.
async fn send(
    http: &reqwest::Client,
    steward: &StewardConnection,
    purchase: &str,
    command: &str,
    form: &[(&str, &str)],
) -> bool {
    let attempt = || async {
        // The console redirects to the task's page after it has sent a command.
        if post(http, steward, purchase, command, form).await == Some(StatusCode::SEE_OTHER) {
            return Ok(true);
        }
        match proceeds(http, steward, purchase).await {
            Some(false) => Ok(false),
            Some(true) | None => Err(NotYet),
        }
    };
    attempt.retry(backoff()).await.unwrap_or_default()
}

/// Sends the form of a command once. `None` if the console could not be reached.
async fn post(
    http: &reqwest::Client,
    steward: &StewardConnection,
    purchase: &str,
    command: &str,
    form: &[(&str, &str)],
) -> Option<StatusCode> {
    let url = format!("{}/console/tasks/{purchase}/{command}", steward.base_url);
    let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
    let request = http.post(url).header(CONTENT_TYPE, "application/x-www-form-urlencoded");
    Some(request.body(body).send().await.ok()?.status())
}

/// Whether the task still proceeds: it has neither ended nor is it being undone. `None` if that is not known.
async fn proceeds(
    http: &reqwest::Client,
    steward: &StewardConnection,
    purchase: &str,
) -> Option<bool> {
    let response = http.get(format!("{}/tasks/{purchase}", steward.base_url)).send().await.ok()?;
    let task: Value = serde_json::from_str(&response.text().await.ok()?).ok()?;
    let state = task.get("process_state")?.as_str()?;
    Some(matches!(state, "Pending" | "Processing"))
}
