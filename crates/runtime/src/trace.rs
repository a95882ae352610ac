//! All trace spans of Steward, through the OpenTelemetry facade. The process decides with [`start`] where the spans go.
//! Without that call there are no spans and no allocations, and each `traceparent` is passed on unchanged.
//!
//! ```text
//! submit ─► decide ─► attempt ─► call ─► the remote service, by its `traceparent` header
//!             │          └─────► decide ─► attempt ...
//!             └ each message carries the span of its sender; the task stores the span `submit`
//! ```

use std::{collections::HashMap, fmt, sync::OnceLock};

pub use opentelemetry::trace::SpanKind;
use opentelemetry::{
    Context, KeyValue, Value,
    global::{BoxedSpan, BoxedTracer},
    propagation::TextMapPropagator,
    trace::{Span as _, SpanBuilder, SpanContext, Status, TraceContextExt, Tracer},
};

use steward_core::{
    engine::event::Event,
    model::{hash::fnv1a_128, messages::StepRequest, task::Task},
};

const TRACEPARENT: &str = "traceparent";

/// The tracer and the propagator of this process.
struct TracingSetup {
    tracer: BoxedTracer,
    propagator: Box<dyn TextMapPropagator + Send + Sync>,
}

static TRACING: OnceLock<TracingSetup> = OnceLock::new();

/// Starts tracing with `tracer` for the rest of the process. `propagator` reads and writes `traceparent`. Returns
/// whether this was the first call. Later calls change nothing.
pub fn start(
    tracer: BoxedTracer,
    propagator: impl TextMapPropagator + Send + Sync + 'static,
) -> bool {
    TRACING.set(TracingSetup { tracer, propagator: Box::new(propagator) }).is_ok()
}

/// A trace span, or nothing if tracing was not started. A span that is dropped without [`end`](Self::end), by a panic or
/// an error that is retried, is marked as an error.
#[derive(Debug, Default)]
pub struct TraceSpan(Option<BoxedSpan>);

impl TraceSpan {
    /// Starts a span as a child of `parent`, a W3C `traceparent`. Without a valid parent, the span starts a new trace.
    #[must_use]
    pub fn begin(name: &'static str, kind: SpanKind, parent: Option<&str>) -> Self {
        let span = TRACING.get().map(|tracing| {
            let parent = tracing.context(parent);
            tracing.tracer.build_with_context(SpanBuilder::from_name(name).with_kind(kind), &parent)
        });
        Self(span)
    }

    /// The `traceparent` of this span, for its children. Returns nothing if tracing was not started.
    #[must_use]
    pub fn traceparent(&self) -> Option<String> {
        let (span, tracing) = (self.0.as_ref()?, TRACING.get()?);
        let context = Context::new().with_remote_span_context(span.span_context().clone());
        let mut carrier = HashMap::new();
        tracing.propagator.inject_context(&context, &mut carrier);
        carrier.remove(TRACEPARENT)
    }

    /// Sets an attribute. Its value must not be a payload, an address or a secret.
    pub fn set(&mut self, key: &'static str, value: impl fmt::Display) {
        self.attribute(key, || value.to_string().into());
    }

    /// Sets a numeric attribute.
    pub fn set_number(&mut self, key: &'static str, value: u32) {
        self.attribute(key, || i64::from(value).into());
    }

    /// Sets the attributes that identify the attempt of a request.
    pub fn set_request(&mut self, request: &StepRequest) {
        self.set("task_id", &request.task_id);
        self.set("step", &request.step);
        self.set_number("attempt", request.attempt);
    }

    fn attribute(&mut self, key: &'static str, value: impl FnOnce() -> Value) {
        if let Some(span) = &mut self.0 {
            span.set_attribute(KeyValue::new(key, value()));
        }
    }

    /// Ends the span successfully, with an outcome.
    pub fn end(mut self, outcome: impl fmt::Display) {
        self.set("outcome", outcome);
        // Dropping the inner span ends it without marking it as an error.
        self.0.take();
    }

    /// Ends the span as an error, with an outcome.
    pub fn fail(mut self, outcome: impl fmt::Display) {
        self.set("outcome", outcome);
    }
}

impl Drop for TraceSpan {
    fn drop(&mut self) {
        if let Some(span) = &mut self.0 {
            span.set_status(Status::error(""));
        }
    }
}

impl TracingSetup {
    fn context(&self, traceparent: Option<&str>) -> Context {
        // The library accepts shorter ids too, but the receivers of our `traceparent` may not.
        let has_fields = |text: &&str| text.split('-').map(str::len).take(4).eq([2, 32, 16, 2]);
        let traceparent = traceparent.filter(has_fields);
        let carrier = traceparent.map(|text| (TRACEPARENT.to_owned(), text.to_owned()));
        let carrier: HashMap<_, _> = carrier.into_iter().collect();
        self.propagator.extract_with_context(&Context::new(), &carrier)
    }

    fn span_context(&self, traceparent: Option<&str>) -> SpanContext {
        self.context(traceparent).span().span_context().clone()
    }
}

/// A valid `traceparent` for a request without one. The trace id is the same for all steps of one task and incarnation,
/// and the span id is specific to the attempt. The trace is not sampled (<https://www.w3.org/TR/trace-context/>).
#[must_use]
fn derived_traceparent(request: &StepRequest) -> String {
    let StepRequest { task_id, incarnation, idempotency_key, attempt, .. } = request;
    let trace = fnv1a_128(&format!("{task_id}/{incarnation}"));
    let span = fnv1a_128(&format!("{idempotency_key}/{incarnation}/{attempt}")) as u64;
    // An id of zeros is invalid.
    format!("00-{:032x}-{:016x}-00", trace.max(1), span.max(1))
}

/// The `traceparent` for a call to a remote service: that of the request, or a derived one.
#[must_use]
pub fn of_call(request: &StepRequest, received: Option<&str>) -> String {
    received.map_or_else(|| derived_traceparent(request), str::to_owned)
}

/// Starts the span of a decision: `sweep` for an event of the supervisor, otherwise `decide`. `received` is the
/// `traceparent` of the message that carried the event.
pub(crate) fn decision(task: &Task, event: &Event, received: Option<&str>) -> TraceSpan {
    let Some(tracing) = TRACING.get() else { return TraceSpan::default() };
    let (name, kind) = match event {
        Event::Swept => ("sweep", SpanKind::Internal),
        Event::Wake
        | Event::ReplyReceived(_)
        | Event::CommandReceived(_)
        | Event::CallbackReceived { .. }
        | Event::ParentRequested(_)
        | Event::ChildEnded { .. }
        | Event::AlertPublished { .. } => ("decide", SpanKind::Consumer),
    };
    // A message from another source, such as a command, has no trace or a foreign one. All spans of a task belong to
    // the trace of the task.
    let own = task.traceparent.as_deref();
    let trace = tracing.span_context(own);
    let is_own = |context: &SpanContext| context.trace_id() == trace.trace_id();
    let parent = match trace.is_valid() && !is_own(&tracing.span_context(received)) {
        true => own,
        false => received,
    };
    let mut span = TraceSpan::begin(name, kind, parent);
    span.set("task_id", &task.task_id);
    span.set("workflow", &task.workflow);
    span.set("event", event.name());
    if let Some((step, attempt)) = event.part_and_attempt() {
        span.set("step", step);
        if let Some(attempt) = attempt {
            span.set_number("attempt", attempt);
        }
    }
    span
}
