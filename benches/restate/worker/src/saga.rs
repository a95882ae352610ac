//! The order saga of `steward bench`: sequential steps, each with one POST to the remote service.

use restate_sdk::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What a step sends: the same two fields as in `steward bench`.
#[derive(Serialize)]
struct StepRequest<'a> {
    order: &'a str,
    amount: i64,
}

/// The submission; its other fields are stored by Restate and not used by the steps.
#[derive(Deserialize, Serialize)]
pub(crate) struct Order {
    task_id: String,
    input: OrderInput,
}

#[derive(Deserialize, Serialize)]
struct OrderInput {
    amount: i64,
    #[serde(flatten)]
    rest: serde_json::Map<String, Value>,
}

/// Runs sagas.
#[derive(Clone)]
pub(crate) struct SagaWorker {
    http: reqwest::Client,
    /// The base URL of the remote service.
    service: String,
    steps: u32,
}

#[service]
impl SagaWorker {
    /// Runs one saga.
    #[handler]
    async fn run(
        &self,
        context: Context<'_>,
        order: Json<Order>,
    ) -> Result<Json<Value>, HandlerError> {
        let order = order.into_inner();
        for step in 1..=self.steps {
            let url = format!("{}/step_{step}", self.service);
            let body = StepRequest { order: &order.task_id, amount: order.input.amount };
            // Restate stores the response before the next step starts.
            let _: Json<Value> = context
                .run(|| async {
                    let response = self.http.post(url).json(&body).send().await?;
                    Ok(Json(response.error_for_status()?.json().await?))
                })
                .name(format!("step_{step}"))
                .await?;
        }
        Ok(Json(serde_json::json!({ "task_id": order.task_id, "status": "processed" })))
    }
}

impl SagaWorker {
    pub(crate) fn new(service: String, steps: u32) -> Self {
        Self { http: reqwest::Client::new(), service, steps }
    }
}
