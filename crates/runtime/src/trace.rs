//! Every span of Steward goes through here: OpenTelemetry's facade, as `metrics` and `tracing` are the
//! facades of counts and logs. Whoever runs the process decides where spans go with [`start`]; without
//! that there are none, nothing is allocated, and every `traceparent` is handed on as it came.
//!
//! ```text
//! submit ─► decide ─► attempt ─► call ─► the remote service, by its `traceparent` header
//!             │          └─────► decide ─► attempt ...
//!             └ each message carries the span that it was sent from; the task keeps `submit`
//! ```

use std::{collections::HashMap, fmt, sync::OnceLock};

pub use opentelemetry::trace::SpanKind;
use opentelemetry::{
    Context, KeyValue, Value,
    global::{BoxedSpan, BoxedTracer},
    propagation::TextMapPropagator,
    trace::{Span as _, SpanBuilder, SpanContext, Status, TraceContextExt, Tracer},
};

use crate::drive::Delivery;
use steward_core::{
    engine::event::Event,
    model::{hash::fnv1a_128, messages::StepRequest, task::Task},
};

const TRACEPARENT: &str = "traceparent";

struct Tracing {
    tracer: BoxedTracer,
    propagator: Box<dyn TextMapPropagator + Send + Sync>,
}

static TRACING: OnceLock<Tracing> = OnceLock::new();

/// From now on there are spans, of `tracer`, for the rest of the process. `propagator` reads and writes
/// `traceparent`. Says whether it was the first to be called; any other changes nothing.
pub fn start(
    tracer: BoxedTracer,
    propagator: impl TextMapPropagator + Send + Sync + 'static,
) -> bool {
    TRACING.set(Tracing { tracer, propagator: Box::new(propagator) }).is_ok()
}

/// A span under way, if there are any. One that is dropped before its [end](Self::end) was cut off, by a
/// panic or an error that is retried, and is marked as an error.
#[derive(Debug, Default)]
pub struct Span(Option<BoxedSpan>);

impl Span {
    /// Begins a span under the one that `parent`, a W3C `traceparent`, names. Without a valid one it
    /// begins a trace.
    #[must_use]
    pub fn begin(name: &'static str, kind: SpanKind, parent: Option<&str>) -> Self {
        let span = TRACING.get().map(|tracing| {
            let parent = tracing.context(parent);
            tracing.tracer.build_with_context(SpanBuilder::from_name(name).with_kind(kind), &parent)
        });
        Self(span)
    }

    /// Its `traceparent`, for what follows from it; none if there are no spans.
    #[must_use]
    pub fn traceparent(&self) -> Option<String> {
        let (span, tracing) = (self.0.as_ref()?, TRACING.get()?);
        let context = Context::new().with_remote_span_context(span.span_context().clone());
        let mut carrier = HashMap::new();
        tracing.propagator.inject_context(&context, &mut carrier);
        carrier.remove(TRACEPARENT)
    }

    /// Says something of it; never a payload, an address or a secret.
    pub fn set(&mut self, key: &'static str, value: impl fmt::Display) {
        self.attribute(key, || value.to_string().into());
    }

    /// Says a number of it.
    pub fn set_number(&mut self, key: &'static str, value: u32) {
        self.attribute(key, || i64::from(value).into());
    }

    /// Says which attempt it is about.
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

    /// Ends it with what came of it.
    pub fn end(mut self, outcome: impl fmt::Display) {
        self.set("outcome", outcome);
        // Dropping the inner span ends it, without the mark of one that was cut off.
        self.0.take();
    }

    /// Ends it with what went wrong.
    pub fn fail(mut self, outcome: impl fmt::Display) {
        self.set("outcome", outcome);
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        if let Some(span) = &mut self.0 {
            span.set_status(Status::error(""));
        }
    }
}

impl Tracing {
    fn context(&self, traceparent: Option<&str>) -> Context {
        // The library takes shorter ids too; whoever gets them from us need not.
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

/// A valid `traceparent` for the calls of a task that came without one: the same trace for all its steps, by task
/// and incarnation, and a span for each attempt; not sampled (<https://www.w3.org/TR/trace-context/>).
#[must_use]
pub fn derived(request: &StepRequest) -> String {
    let StepRequest { task_id, incarnation, idempotency_key, attempt, .. } = request;
    let life = incarnation.map(|incarnation| incarnation.to_string()).unwrap_or_default();
    let trace = fnv1a_128(&format!("{task_id}/{life}"));
    let span = fnv1a_128(&format!("{idempotency_key}/{life}/{attempt}")) as u64;
    // An id of zeros is not valid.
    format!("00-{:032x}-{:016x}-00", trace.max(1), span.max(1))
}

/// The `traceparent` that a call is sent with: the one that its request came with, or else a derived one.
#[must_use]
pub fn of_call(request: &StepRequest, came: Option<&str>) -> String {
    came.map_or_else(|| derived(request), str::to_owned)
}

/// Begins the span of a decision: `sweep` if nobody but the supervisor asked for it, else `decide`.
pub(crate) fn decision(delivery: &Delivery, task: &Task) -> Span {
    let Some(tracing) = TRACING.get() else { return Span::default() };
    let (name, kind) = match delivery.event {
        Event::Swept => ("sweep", SpanKind::Internal),
        Event::Wake
        | Event::Replied(_)
        | Event::Commanded(_)
        | Event::Answered { .. }
        | Event::Asked(_)
        | Event::ChildEnded { .. }
        | Event::AlertSent { .. } => ("decide", SpanKind::Consumer),
    };
    // What comes from elsewhere, a command say, is of no trace or of another: a task has but one.
    let (came, own) = (delivery.traceparent.as_deref(), task.traceparent.as_deref());
    let trace = tracing.span_context(own);
    let is_own = |context: &SpanContext| context.trace_id() == trace.trace_id();
    let parent = match trace.is_valid() && !is_own(&tracing.span_context(came)) {
        true => own,
        false => came,
    };
    let mut span = Span::begin(name, kind, parent);
    span.set("task_id", &task.task_id);
    span.set("workflow", &task.workflow);
    span.set("event", delivery.event.name());
    if let Some((step, attempt)) = delivery.event.step() {
        span.set("step", step);
        span.set_number("attempt", attempt);
    }
    span
}
