//! Spans on their way to an OpenTelemetry collector: OTLP over plain HTTP, in protobuf. They are held
//! until the end of the invocation, and leave in one request, on the invocation's own time: the library's
//! batching threads would be frozen with the function.

use std::{
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use opentelemetry::{Context, KeyValue, global::BoxedTracer, trace::TracerProvider};
use opentelemetry_otlp::{RetryPolicy, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::{
    Resource,
    error::OTelSdkResult,
    propagation::TraceContextPropagator,
    trace::{SdkTracerProvider, Span, SpanData, SpanExporter, SpanProcessor},
};
use steward_runtime::{ports::chain, trace};
use tokio::time::timeout;

/// How long an invocation waits for the collector. With the answer it must fit into the time that
/// [`deadline`](crate::function::deadline) keeps back: a dead collector costs spans, and no batch.
const SEND_WITHIN: Duration = Duration::from_millis(500);

/// Spans of one invocation that are kept, as many as OpenTelemetry's own queue takes.
const SPANS_MAX: usize = 2_048;

static OUTBOX: OnceLock<Outbox> = OnceLock::new();

struct Outbox {
    ended: Ended,
    exporter: opentelemetry_otlp::SpanExporter,
}

/// No collector can be reached there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not the base of an http:// URL")]
pub struct InvalidCollector;

/// Starts tracing, for the rest of the process, to the collector with this base URL.
///
/// # Errors
/// It is not an `http://` URL. The connection is not tried here.
pub fn start(collector: &str, deployment: &str, function: &str) -> Result<(), InvalidCollector> {
    // The collector is on the same machine or network: there is no TLS in this client.
    if !collector.starts_with("http://") {
        return Err(InvalidCollector);
    }
    let resource = Resource::builder()
        .with_service_name(function.to_owned())
        .with_attribute(KeyValue::new("service.namespace", deployment.to_owned()))
        .build();
    let mut exporter = opentelemetry_otlp::SpanExporter::builder()
        .with_http()
        .with_endpoint(format!("{}/v1/traces", collector.trim_end_matches('/')))
        .with_timeout(SEND_WITHIN)
        .with_retry_policy(RetryPolicy::disabled())
        .build()
        .map_err(|_| InvalidCollector)?;
    exporter.set_resource(&resource);
    let ended = Ended::default();
    let provider = SdkTracerProvider::builder()
        .with_span_processor(ended.clone())
        .with_resource(resource)
        .build();
    if OUTBOX.set(Outbox { ended, exporter }).is_ok() {
        let tracer = BoxedTracer::new(Box::new(provider.tracer("steward")));
        trace::start(tracer, TraceContextPropagator::new());
    }
    Ok(())
}

/// Sends the spans that have ended. Those that the collector does not take in time are lost.
pub async fn send() {
    let Some(Outbox { ended, exporter }) = OUTBOX.get() else { return };
    let spans = std::mem::take(&mut *ended.lock());
    let count = spans.len();
    if count == 0 {
        return;
    }
    if count == SPANS_MAX {
        tracing::warn!(kept = count, "too many spans for one invocation, the rest are lost");
    }
    match timeout(SEND_WITHIN, exporter.export(spans)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(spans = count, error = chain(&error), "spans lost"),
        Err(_) => tracing::warn!(spans = count, "spans lost: no answer from the collector"),
    }
}

/// The spans that have ended and are not sent.
#[derive(Debug, Clone, Default)]
struct Ended(Arc<Mutex<Vec<SpanData>>>);

impl Ended {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<SpanData>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SpanProcessor for Ended {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        let mut spans = self.lock();
        if spans.len() < SPANS_MAX && span.span_context.is_sampled() {
            spans.push(span);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    use steward_runtime::trace::{Span, SpanKind};

    use tokio::time::Instant;

    use crate::telemetry::observed;

    // The clock is tokio's: it goes on when there is nothing left but to wait for the collector.
    #[tokio::test(start_paused = true)]
    async fn a_collector_that_is_dead_or_mute_delays_the_answer_and_does_no_more() {
        assert_eq!(Span::begin("off", SpanKind::Internal, None).traceparent(), None);
        send().await;
        // Connections are taken in by the system, and nobody ever reads from them.
        let mute = TcpListener::bind("127.0.0.1:0").unwrap();
        start(&format!("http://{}", mute.local_addr().unwrap()), "shop", "f").unwrap();
        let invocation = async {
            Span::begin("on", SpanKind::Internal, None).end("done");
            7
        };
        let begun = Instant::now();
        assert_eq!(observed(invocation).await, 7);
        assert!((SEND_WITHIN..2 * SEND_WITHIN).contains(&begun.elapsed()), "{:?}", begun.elapsed());
        assert!(OUTBOX.get().unwrap().ended.lock().is_empty(), "kept for ever");

        drop(mute);
        for _ in 0..=SPANS_MAX {
            Span::begin("on", SpanKind::Internal, None).end("done");
        }
        assert_eq!(OUTBOX.get().unwrap().ended.lock().len(), SPANS_MAX);
        observed(async {}).await;
        assert!(OUTBOX.get().unwrap().ended.lock().is_empty(), "kept for ever");
    }
}
