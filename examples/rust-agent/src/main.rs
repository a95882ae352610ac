//! An agent of Steward in Rust: sends greetings through an HTTP service. On Lambda it handles the batches of its queue;
//! elsewhere it polls the queue. Retries, the circuit breaker, claims and replies are those of the crate `steward-agent`.

use std::env;

use steward_agent::{
    Error, StepRequest,
    attempt::{CallFault, RemoteService},
    http::{HttpService, HttpSettings},
    response::CallResponse,
    runner::run,
    serde_json::Value,
};

/// Completes the body of a request with a greeting, and calls the service.
struct Greeter {
    service: HttpService,
}

impl RemoteService for Greeter {
    async fn call(
        &self,
        request: &StepRequest,
        traceparent: Option<&str>,
    ) -> Result<CallResponse, CallFault> {
        let mut body = request.body.as_ref().map(|body| body.value()).unwrap_or_default();
        let Some(person) = body.as_object_mut() else {
            let reason = "the body is not an object".to_owned();
            return Err(CallFault::Permanent { reason, may_have_run: false, detail: None });
        };
        let field = |name| person.get(name).and_then(Value::as_str);
        let hello = match field("language") {
            Some("fr") => "Bonjour",
            Some("de") => "Guten Tag",
            _ => "Hello",
        };
        let text = format!("{hello}, {}!", field("name").unwrap_or("stranger"));
        person.insert("text".to_owned(), text.into());
        let request = StepRequest { body: Some(body.into()), ..request.clone() };
        self.service.call(&request, traceparent).await
    }
}

fn main() -> Result<(), Error> {
    let settings = HttpSettings::new(env::var("SERVICE_URL")?.parse()?);
    run(Greeter { service: HttpService::new(settings)? })
}
