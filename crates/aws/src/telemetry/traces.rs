//! Sends trace spans to an OpenTelemetry collector: OTLP in protobuf over plain HTTP. The spans of an invocation are
//! buffered and sent in one request at its end, before the response. The background threads of the library cannot do
//! this, because Lambda freezes them together with the function.

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
use steward_runtime::{ports::error_chain, trace};
use tokio::time::timeout;

/// The time that an invocation waits for the collector. It must fit into the time that
/// [`deadline`](crate::function::deadline) reserves: if the collector is down, spans are lost, but no batch fails.
const SEND_TIMEOUT: Duration = Duration::from_millis(500);

/// The maximum number of buffered spans of one invocation. The queue of the OpenTelemetry library has the same limit.
const SPANS_MAX: usize = 2_048;

static PIPELINE: OnceLock<SpanPipeline> = OnceLock::new();

struct SpanPipeline {
    buffer: SpanBuffer,
    exporter: opentelemetry_otlp::SpanExporter,
}

/// The URL of the collector is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not the base of an http:// URL")]
pub struct InvalidCollector;

/// Starts sending spans to the collector with this base URL, for the rest of the process.
///
/// # Errors
/// The URL is not an `http://` URL. The connection is not tested.
pub fn start(collector: &str, deployment: &str, function: &str) -> Result<(), InvalidCollector> {
    // The client has no TLS, because the collector is on the same machine or network.
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
        .with_timeout(SEND_TIMEOUT)
        .with_retry_policy(RetryPolicy::disabled())
        .build()
        .map_err(|_| InvalidCollector)?;
    exporter.set_resource(&resource);
    let buffer = SpanBuffer::default();
    let provider = SdkTracerProvider::builder()
        .with_span_processor(buffer.clone())
        .with_resource(resource)
        .build();
    if PIPELINE.set(SpanPipeline { buffer, exporter }).is_ok() {
        let tracer = BoxedTracer::new(Box::new(provider.tracer("steward")));
        trace::start(tracer, TraceContextPropagator::new());
    }
    Ok(())
}

/// Sends the spans that have ended. Spans that the collector does not accept in time are lost.
pub async fn flush() {
    let Some(SpanPipeline { buffer, exporter }) = PIPELINE.get() else { return };
    let spans = std::mem::take(&mut *buffer.lock());
    let count = spans.len();
    if count == 0 {
        return;
    }
    if count == SPANS_MAX {
        tracing::warn!(
            limit = count,
            "the buffer of spans is full; further spans of the invocation are lost"
        );
    }
    match timeout(SEND_TIMEOUT, exporter.export(spans)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(spans = count, error = error_chain(&error), "spans lost"),
        Err(_) => tracing::warn!(spans = count, "spans lost: no response from the collector"),
    }
}

/// The spans that have ended and are not sent yet.
#[derive(Debug, Clone, Default)]
struct SpanBuffer(Arc<Mutex<Vec<SpanData>>>);

impl SpanBuffer {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<SpanData>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SpanProcessor for SpanBuffer {
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

    use steward_runtime::trace::{SpanKind, TraceSpan};

    use tokio::time::Instant;

    use crate::telemetry::flush_after;

    // The test uses the paused clock of tokio, which advances when all tasks wait for the collector.
    #[tokio::test(start_paused = true)]
    async fn a_collector_that_is_down_or_does_not_respond_only_delays_the_response() {
        assert_eq!(TraceSpan::begin("off", SpanKind::Internal, None).traceparent(), None);
        flush().await;
        // The system accepts connections, but the test never reads from them.
        let unresponsive = TcpListener::bind("127.0.0.1:0").unwrap();
        start(&format!("http://{}", unresponsive.local_addr().unwrap()), "shop", "f").unwrap();
        let invocation = async {
            TraceSpan::begin("on", SpanKind::Internal, None).end("done");
            7
        };
        let begun = Instant::now();
        assert_eq!(flush_after(invocation).await, 7);
        assert!(
            (SEND_TIMEOUT..2 * SEND_TIMEOUT).contains(&begun.elapsed()),
            "{:?}",
            begun.elapsed()
        );
        assert!(PIPELINE.get().unwrap().buffer.lock().is_empty(), "never removed");

        drop(unresponsive);
        for _ in 0..=SPANS_MAX {
            TraceSpan::begin("on", SpanKind::Internal, None).end("done");
        }
        assert_eq!(PIPELINE.get().unwrap().buffer.lock().len(), SPANS_MAX);
        flush_after(async {}).await;
        assert!(PIPELINE.get().unwrap().buffer.lock().is_empty(), "never removed");
    }
}
