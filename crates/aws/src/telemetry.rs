//! Logs, metrics and traces of a function.
//!
//! - Logs: structured JSON on standard output, for CloudWatch. `RUST_LOG` sets the level.
//! - Metrics: those of [`steward_runtime::metrics`], in CloudWatch's embedded metric format on standard output, once for
//!   each invocation. `STEWARD_DEPLOYMENT` is a dimension of each metric. The tenants in `STEWARD_TENANT_METRICS`, a
//!   comma-separated list, have metrics of their own.
//! - [`traces`]: the spans of [`steward_runtime::trace`], sent to the OpenTelemetry collector at
//!   `OTEL_EXPORTER_OTLP_ENDPOINT`. Without this variable there are no traces.
//!
//! Lambda freezes a function between invocations, so [`flush_after`] flushes metrics and spans before the response.
//!
//! A process that runs all functions starts the same telemetry with [`init_on`], or only the traces with [`start_traces`].

use std::{
    io::{Write, stderr, stdout},
    sync::OnceLock,
};

use metrics_cloudwatch_embedded::{Builder, Collector};
use tracing::{Level, Metadata};
use tracing_subscriber::{
    EnvFilter,
    filter::filter_fn,
    fmt::{self, MakeWriter},
    layer::SubscriberExt,
    registry::LookupSpan,
    util::SubscriberInitExt,
};

pub mod traces;

/// The CloudWatch namespace of the metrics. Alarms and dashboards refer to it.
const NAMESPACE: &str = "Steward";

/// The name of a deployment or function whose environment variable is not set, because it was started by hand.
const UNNAMED: &str = "steward";

static METRICS: OnceLock<(&Collector, LogStream)> = OnceLock::new();

/// The stream that gets the logs and metrics of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl LogStream {
    fn writer(self) -> Box<dyn Write> {
        match self {
            Self::Stdout => Box::new(stdout()),
            Self::Stderr => Box::new(stderr()),
        }
    }
}

/// Starts logs, metrics and, if there is a collector, traces. Every `main` of a function calls it once, before anything else.
pub fn init() {
    init_on(LogStream::Stdout);
}

/// The same as [`init`], with logs and metrics on this stream.
pub fn init_on(stream: LogStream) {
    start_logging(stream);
    start_traces();
    if let Some(tenants) = variable("STEWARD_TENANT_METRICS")
        && let Err(error) = steward_runtime::metrics::count_tenants(&tenants)
    {
        tracing::error!(%error, "STEWARD_TENANT_METRICS is invalid: no tenant has metrics of its own");
    }
    let (deployment, function) = names();
    match start_metrics(deployment, function) {
        Ok(collector) => _ = METRICS.set((collector, stream)),
        Err(error) => tracing::error!(%error, "cannot start metrics"),
    }
}

/// Starts traces, if `OTEL_EXPORTER_OTLP_ENDPOINT` names a collector.
pub fn start_traces() {
    let (deployment, function) = names();
    if let Some(collector) = variable("OTEL_EXPORTER_OTLP_ENDPOINT")
        && let Err(error) = traces::start(&collector, &deployment, &function)
    {
        tracing::error!(%error, "cannot start traces: OTEL_EXPORTER_OTLP_ENDPOINT is invalid");
    }
}

/// The names of the deployment and of the function.
fn names() -> (String, String) {
    let named = |name| variable(name).unwrap_or_else(|| UNNAMED.to_owned());
    (named("STEWARD_DEPLOYMENT"), named("AWS_LAMBDA_FUNCTION_NAME"))
}

/// The value of an environment variable, unless it is empty.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Starts logging. Each panic is logged as one line.
fn start_logging(stream: LogStream) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    lines(move || stream.writer()).with(filter).init();
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        tracing::error!(place, "panicked");
    }));
}

/// Whether a log line contains no payload, at any setting of `RUST_LOG`. Below `info`, the Lambda runtime, the AWS SDK and
/// the HTTP client log whole events and requests.
#[must_use]
pub fn contains_no_payload(line: &Metadata<'_>) -> bool {
    *line.level() <= Level::INFO || line.target().starts_with("steward")
}

/// A subscriber that writes a line of JSON for each event. The line includes the span of the Lambda runtime with the
/// request id, so that all lines of one invocation can be found.
fn lines(
    to: impl for<'w> MakeWriter<'w> + Send + Sync + 'static,
) -> impl tracing::Subscriber + for<'s> LookupSpan<'s> {
    let json = fmt::layer().json().flatten_event(true).with_span_list(false).with_writer(to);
    tracing_subscriber::registry().with(json).with(filter_fn(contains_no_payload))
}

/// Runs an invocation, and then flushes its metrics and spans. A failure to do so does not fail the invocation. A
/// collector that does not respond delays the invocation by half a second.
pub async fn flush_after<T>(invocation: impl Future<Output = T>) -> T {
    let response = invocation.await;
    if let Some((collector, stream)) = METRICS.get()
        && let Err(error) = write_metrics(collector, stream.writer())
    {
        tracing::warn!(%error, "metrics lost");
    }
    traces::flush().await;
    response
}

fn start_metrics(deployment: String, function: String) -> Result<&'static Collector, String> {
    let collector = Builder::new()
        .cloudwatch_namespace(NAMESPACE)
        .with_dimension("deployment", deployment)
        .init();
    let collector = collector.map_err(|error| error.to_string())?;
    // A property and not a dimension: with a dimension, CloudWatch would have a separate metric for each function, and an
    // alarm could not use their sum.
    Ok(collector.set_property("function", function))
}

/// Writes the counts since the last call in one piece, so that no log line comes in between.
fn write_metrics(collector: &Collector, mut to: impl Write) -> std::io::Result<()> {
    let mut lines = Vec::new();
    collector.flush(&mut lines)?;
    to.write_all(&lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{sync::Arc, time::Duration};

    use serde_json::{Value, json};
    use steward_core::{
        breaker::BreakerTransition,
        engine::decision::IgnoreReason,
        model::{
            step::{StepRecord, StepState},
            task::{ProcessState, Task},
            time::Timing,
        },
        submission::accept,
    };
    use steward_runtime::metrics;

    #[test]
    fn a_log_line_contains_the_request_id() {
        let (reader, writer) = std::io::pipe().unwrap();
        tracing::subscriber::with_default(super::lines(Arc::new(writer)), || {
            // The same span as in `lambda_runtime`.
            tracing::info_span!("Lambda runtime invoke", requestId = "r-1")
                .in_scope(|| tracing::info!(task_id = "t-1", "driven"));
        });
        let line: Value = serde_json::from_reader(reader).unwrap();
        assert_eq!(line["span"]["requestId"], "r-1", "{line}");
        assert_eq!(line["task_id"], "t-1", "{line}");
    }

    #[test]
    fn other_crates_log_nothing_below_info() {
        let (reader, writer) = std::io::pipe().unwrap();
        tracing::subscriber::with_default(super::lines(Arc::new(writer)), || {
            tracing::trace!(target: "lambda_runtime::layers", body = "s3cret", "raw event");
            tracing::debug!(target: "aws_smithy_runtime", "s3cret");
            tracing::info!(target: "lambda_runtime", "started");
            tracing::trace!(target: "steward_core", "detail");
        });
        let lines: Vec<Value> =
            serde_json::Deserializer::from_reader(reader).into_iter().map(Result::unwrap).collect();
        let messages: Vec<_> = lines.iter().map(|line| line["message"].as_str().unwrap()).collect();
        assert_eq!(messages, ["started", "detail"]);
    }

    fn lines(collector: &Collector) -> Vec<Value> {
        let mut text = Vec::new();
        write_metrics(collector, &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn task() -> Task {
        let workflow = json!({ "name": "w", "version": 1, "steps": {
            "s": { "agent": "a", "request": { "path": "/" } },
        } });
        let submission = json!({ "task_id": "t", "workflow": "w", "input": {} });
        let (workflow, submission) = (
            serde_json::from_value(workflow).unwrap(),
            serde_json::from_value(submission).unwrap(),
        );
        let timing = Timing {
            pickup_within: Duration::ZERO,
            clock_skew: Duration::ZERO,
            retention: Timing::RETENTION,
        };
        accept(&submission, &workflow, None, jiff::Timestamp::UNIX_EPOCH, timing).unwrap().0
    }

    /// Counts every metric at least once; `EXPECTED` has the numbers.
    fn count_all() {
        let before = Task { process_state: ProcessState::Processing, ..task() };
        let begun = StepRecord::new(StepState::Failed { attempt: Some(1) });
        let after = Task {
            process_state: ProcessState::Error,
            undo_reason: Some("asked for".to_owned()),
            failure_count: 2,
            ended_at: Some(jiff::Timestamp::UNIX_EPOCH),
            steps: [("s".parse().unwrap(), begun)].into(),
            ..before.clone()
        };
        metrics::saved(&before, &after);
        for process_state in [ProcessState::Processed, ProcessState::Undone, ProcessState::Error] {
            metrics::saved(&before, &Task { process_state, ..before.clone() });
        }
        metrics::count_tenants("acme, globex").unwrap();
        // The list does not name `other`.
        for (tenant, process_state) in [
            ("acme", ProcessState::Undone),
            ("acme", ProcessState::Error),
            ("other", ProcessState::Error),
        ] {
            let tenant = tenant.parse().ok();
            metrics::saved(&before, &Task { process_state, tenant, ..before.clone() });
        }
        metrics::ignored(IgnoreReason::DuplicateReply);
        metrics::conflict();
        metrics::call_retried();
        metrics::agent_silent();
        metrics::deferred();
        metrics::call_rate_limited("deferred");
        metrics::breaker_turned(BreakerTransition::Opened);
        metrics::breaker_turned(BreakerTransition::Closed);
        metrics::swept();
        metrics::submission_refused();
        metrics::submission_held_back();
        metrics::callback_refused("forged");
        metrics::messages_failed(3);
        metrics::messages_late(2);
        metrics::queue_unread();
        metrics::errors_unresolved(5);
        metrics::dead_letters(4);
        metrics::request_throttled();
        metrics::statements_refused("AccessDenied", 2);
    }

    /// A metric: its name, its label, and the expected count.
    type ExpectedMetric = (&'static str, Option<(&'static str, &'static str)>, u64);

    const EXPECTED: [ExpectedMetric; 27] = [
        ("steward_tasks_ended_total", Some(("state", "Processed")), 1),
        ("steward_tasks_ended_total", Some(("state", "Undone")), 2),
        ("steward_tasks_ended_total", Some(("state", "Error")), 4),
        ("steward_attempts_started_total", None, 1),
        ("steward_attempts_failed_total", None, 2),
        ("steward_events_ignored_total", Some(("reason", "DuplicateReply")), 1),
        ("steward_saves_conflicted_total", None, 1),
        ("steward_calls_retried_total", None, 1),
        ("steward_agents_silent_total", None, 1),
        ("steward_attempts_deferred_total", None, 1),
        ("steward_calls_rate_limited_total", Some(("by", "deferred")), 1),
        ("steward_breakers_turned_total", Some(("to", "Opened")), 1),
        ("steward_breakers_turned_total", Some(("to", "Closed")), 1),
        ("steward_undos_failed_total", None, 1),
        ("steward_sweeps_total", None, 1),
        ("steward_submissions_refused_total", None, 1),
        ("steward_submissions_held_back_total", None, 1),
        ("steward_callbacks_refused_total", Some(("reason", "forged")), 1),
        ("steward_messages_failed_total", None, 3),
        ("steward_messages_late_total", None, 2),
        ("steward_queues_unread_total", None, 1),
        ("steward_errors_unresolved_total", None, 6),
        ("steward_dead_letters_total", None, 4),
        ("steward_requests_throttled_total", None, 1),
        ("steward_statements_refused_total", Some(("code", "AccessDenied")), 2),
        ("steward_tenant_tasks_ended_total", Some(("tenant", "acme")), 2),
        ("steward_tenant_tasks_in_error_total", Some(("tenant", "acme")), 1),
    ];

    #[test]
    fn every_declared_metric_is_written_in_the_form_that_alarms_use() {
        let collector = start_metrics("shop".to_owned(), "shop-scheduler".to_owned()).unwrap();
        assert_eq!(lines(collector), [] as [Value; 0], "nothing was counted");
        count_all();
        let counted = lines(collector);
        for (name, label, times) in EXPECTED {
            let labelled = |line: &&Value| {
                line.get(name).is_some() && label.is_none_or(|(key, value)| line[key] == value)
            };
            let line = counted.iter().find(labelled).unwrap_or_else(|| panic!("{name} {label:?}"));
            assert_eq!(
                (&line[name], &line["deployment"], &line["function"]),
                (&json!(times), &json!("shop"), &json!("shop-scheduler")),
                "{name} {label:?}"
            );
            let directive = &line["_aws"]["CloudWatchMetrics"][0];
            let dimensions: Vec<_> =
                std::iter::once("deployment").chain(label.map(|(key, _)| key)).collect();
            assert_eq!(directive["Namespace"], "Steward");
            assert_eq!(directive["Dimensions"], json!([dimensions]), "{name}");
            let metrics = directive["Metrics"].as_array().unwrap();
            assert!(metrics.contains(&json!({ "Name": name })), "{name}: {directive}");
        }
        let directives =
            counted.iter().map(|line| &line["_aws"]["CloudWatchMetrics"][0]["Metrics"]);
        let names = directives.map(|metrics| metrics.as_array().unwrap().len());
        assert_eq!(names.sum::<usize>(), EXPECTED.len(), "{counted:?}");
        assert_eq!(lines(collector), [] as [Value; 0], "counted twice");
    }

    #[test]
    fn every_declared_metric_is_tested() {
        let source = include_str!("../../runtime/src/metrics.rs");
        let declared = source.lines().filter_map(|line| line.strip_prefix("pub const "));
        let declared: Vec<_> = declared.filter_map(|line| line.split('"').nth(1)).collect();
        assert!(declared.len() > 10, "{declared:?}");
        for name in declared {
            assert!(EXPECTED.iter().any(|(expected, ..)| *expected == name), "{name}");
        }
    }

    #[test]
    fn a_collector_that_cannot_be_reached_in_plain_http_is_refused() {
        for url in ["https://collector:4318", "localhost:4318", "http://a b"] {
            assert_eq!(traces::start(url, "shop", "f"), Err(traces::InvalidCollector), "{url}");
        }
    }
}
