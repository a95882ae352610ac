//! The agent of my-project: calls the project's service. On Lambda it handles the batches of its queue; elsewhere it polls the
//! queue. Retries, the circuit breaker, claims and replies are those of the crate `steward-agent`.

use std::env;

use steward_agent::{
    Error, StepRequest,
    attempt::{CallFault, RemoteService},
    http::{HttpService, HttpSettings},
    response::CallResponse,
    runner::run,
};

/// Calls the service as the request says. Change the request here, or call something else.
struct Agent {
    service: HttpService,
}

impl RemoteService for Agent {
    async fn call(
        &self,
        request: &StepRequest,
        traceparent: Option<&str>,
    ) -> Result<CallResponse, CallFault> {
        self.service.call(request, traceparent).await
    }
}

fn main() -> Result<(), Error> {
    let settings = HttpSettings::new(env::var("SERVICE_URL")?.parse()?);
    run(Agent { service: HttpService::new(settings)? })
}
