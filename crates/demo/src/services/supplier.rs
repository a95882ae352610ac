//! The supplier: accepts orders, confirms or refuses each one later at the URL in `confirm_at`, and announces the delivery
//! with an event.
//!
//! ```text
//! POST /orders ──► ledger ─┬─► POST CONFIRM_AT, or CONFIRM_AT/fail
//!                          └─► event `Goods Delivered`: after the confirmation, or before it; never for a lost parcel
//! ```
//!
//! The supplier repeats an answer until Steward accepts or refuses it. It may send answers and events late or twice
//! ([`Sending`]). It answers nothing for an order that was cancelled meanwhile.

use std::sync::{Arc, OnceLock};

use aws_sdk_eventbridge::types::PutEventsRequestEntry;
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use axum::routing::post;
use backon::Retryable;
use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::{
    by_idempotency_key::{Endpoint, KeyedRequest, serve},
    connection::StewardConnection,
    fault::{Fault, FaultKind, Sending},
    manager,
    mock_service::{MockService, Operation, pause},
    responses::refusal,
    retry::{NotYet, backoff},
};

/// Articles with this prefix are always refused.
const DISCONTINUED_PREFIX: &str = "discontinued";

/// Parcels with these articles are always lost.
const LOST_PREFIX: &str = "lost";

/// The source and the detail-type of the event.
const SOURCE: &str = "supplier";
const DELIVERED: &str = "Goods Delivered";

/// The field of a request that names the purchase.
const SUBJECT: &str = "reference";

/// How the supplier reaches Steward.
#[derive(Debug, Clone)]
pub(super) struct SupplierOffice {
    pub(super) http: reqwest::Client,
    /// Without a connection, the supplier publishes no events.
    pub(super) steward: Arc<OnceLock<StewardConnection>>,
}

/// An order that the supplier has accepted, and not confirmed yet.
#[derive(Debug)]
struct AcceptedOrder {
    reference: String,
    confirm_at: Option<String>,
    article: String,
}

/// What became of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answered {
    /// This answer, or an earlier one, completed the step.
    Accepted,
    Refused,
}

/// The routes of the supplier.
pub(super) fn routes(office: SupplierOffice) -> Router<Arc<MockService>> {
    let order = Endpoint { operation: Operation::Do, noun: "order", subject_field: SUBJECT };
    let cancellation =
        Endpoint { operation: Operation::Undo, noun: "cancellation", subject_field: SUBJECT };
    let serve = move |endpoint: Endpoint| {
        let office = office.clone();
        post(
            move |State(mock): State<Arc<MockService>>, headers: HeaderMap, body: Bytes| async move {
                let request = match KeyedRequest::parse(&headers, &body, SUBJECT) {
                    Ok(request) => request,
                    Err(error) => return error.into_response(),
                };
                let (own_mock, reference) = (mock.clone(), request.subject.clone());
                let on_effect = move |body: &Map<String, Value>| {
                    if endpoint.operation == Operation::Do {
                        let order = AcceptedOrder::of(reference, body);
                        tokio::spawn(order.process_until_stopped(own_mock, office));
                    }
                };
                serve(mock, endpoint, request, on_effect).await
            },
        )
    };
    Router::new().route("/orders", serve(order)).route("/cancellations", serve(cancellation))
}

impl AcceptedOrder {
    fn of(reference: String, body: &Map<String, Value>) -> Self {
        let text = |key| body.get(key).and_then(Value::as_str).map(str::to_owned);
        let (confirm_at, article) = (text("confirm_at"), text("article").unwrap_or_default());
        Self { reference, confirm_at, article }
    }

    async fn process_until_stopped(self, mock: Arc<MockService>, office: SupplierOffice) {
        tokio::select! {
            () = self.process(&mock, &office) => {}
            () = mock.stopped() => {}
        }
    }

    /// Confirms or refuses the order, and delivers it.
    async fn process(&self, mock: &MockService, office: &SupplierOffice) {
        let Self { reference, confirm_at: Some(confirm_at), article } = self else { return };
        let confirm = format!("confirm {reference}");
        let sending = mock.sending(&confirm);
        self.wait(mock, sending).await;
        if !self.is_active(mock) {
            return;
        }
        let is_discontinued = article.starts_with(DISCONTINUED_PREFIX);
        if is_discontinued || mock.fault(Operation::Do, &confirm) == Fault::Refuse {
            self.refuse(mock);
            let reason = json!({ "reason": refusal(mock.service()).title });
            office.answer(&format!("{confirm_at}/fail"), &reason, sending).await;
            return;
        }
        let tracking = mock.sending(&format!("deliver {reference}"));
        let is_lost = article.starts_with(LOST_PREFIX);
        if tracking.is_early && !is_lost {
            mock.state().record(reference).count_fault(FaultKind::Early);
            self.deliver(mock, office, tracking).await;
        }
        let confirmation =
            json!({ "confirmation": format!("confirmation-{:016x}", mock.digest(reference)) });
        let answered = office.answer(confirm_at, &confirmation, sending).await;
        if answered != Some(Answered::Accepted) {
            return;
        }
        if is_lost {
            if let Some(steward) = office.steward.get() {
                manager::undo(&office.http, steward, reference, "the parcel is lost").await;
            }
        } else if !tracking.is_early {
            self.deliver(mock, office, tracking).await;
        }
    }

    /// Waits before an answer or event is sent, and counts what is unusual about it.
    async fn wait(&self, mock: &MockService, Sending { delay_ms, is_repeated, .. }: Sending) {
        {
            let mut state = mock.state();
            let record = state.record(&self.reference);
            if is_repeated {
                record.count_fault(FaultKind::Repeated);
            }
            if delay_ms > 0 {
                record.count_fault(FaultKind::Late);
            }
        }
        pause(mock.latency_ms() + delay_ms).await;
    }

    /// Whether the order is neither cancelled nor refused.
    fn is_active(&self, mock: &MockService) -> bool {
        mock.state().record(&self.reference).active_effects() > 0
    }

    /// Cancels the order on the supplier's own decision.
    fn refuse(&self, mock: &MockService) {
        let mut state = mock.state();
        let record = state.record(&self.reference);
        record.count_fault(FaultKind::Refuse);
        record.undo("the supplier's refusal", |_| true);
    }

    /// Publishes the event, unless the order was cancelled meanwhile.
    async fn deliver(&self, mock: &MockService, office: &SupplierOffice, sending: Sending) {
        self.wait(mock, sending).await;
        let Some(steward) = office.steward.get().filter(|_| self.is_active(mock)) else { return };
        let Self { reference, .. } = self;
        let parcel = format!("parcel-{:016x}", mock.digest(&format!("deliver {reference}")));
        let detail = json!({ "reference": reference, "parcel": parcel }).to_string();
        let entry = PutEventsRequestEntry::builder()
            .event_bus_name(&steward.event_bus)
            .source(SOURCE)
            .detail_type(DELIVERED)
            .detail(detail)
            .build();
        let entries = if sending.is_repeated { vec![entry.clone(), entry] } else { vec![entry] };
        let put = || async {
            let request = steward.events.put_events().set_entries(Some(entries.clone()));
            let response = request.send().await.map_err(|_| NotYet)?;
            if response.failed_entry_count() == 0 { Ok(()) } else { Err(NotYet) }
        };
        // An event that could not be sent delays its task: the audit finds it.
        let _ = put.retry(backoff()).await;
    }
}

impl SupplierOffice {
    /// Sends an answer, or the same answer twice at the same time. `None` if Steward could not be reached.
    async fn answer(&self, url: &str, body: &Value, sending: Sending) -> Option<Answered> {
        let body = body.to_string();
        if !sending.is_repeated {
            return self.answer_once(url, &body).await;
        }
        let answers = tokio::join!(self.answer_once(url, &body), self.answer_once(url, &body));
        match answers {
            (Some(Answered::Accepted), _) | (_, Some(Answered::Accepted)) => {
                Some(Answered::Accepted)
            }
            (Some(Answered::Refused) | None, second) => second,
        }
    }

    /// Sends an answer until it is accepted or refused.
    async fn answer_once(&self, url: &str, body: &str) -> Option<Answered> {
        (|| self.try_answer(url, body)).retry(backoff()).await.ok()
    }

    async fn try_answer(&self, url: &str, body: &str) -> Result<Answered, NotYet> {
        let response = self.http.post(url).body(body.to_owned()).send().await;
        let response = response.map_err(|_| NotYet)?;
        let status = response.status();
        if status == StatusCode::ACCEPTED {
            return Ok(Answered::Accepted);
        }
        let problem = response.text().await.unwrap_or_default();
        let problem: Value = serde_json::from_str(&problem).unwrap_or_default();
        match problem.get("type").and_then(Value::as_str) {
            Some("urn:steward:callback-already-answered") => Ok(Answered::Accepted),
            Some("urn:steward:callback-not-awaited-now") => Err(NotYet),
            _ if status.is_server_error() => Err(NotYet),
            Some(_) | None => Ok(Answered::Refused),
        }
    }
}
