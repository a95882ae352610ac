//! What a function tells of itself.
//!
//! - Logs: structured JSON on standard output, as CloudWatch takes them; `RUST_LOG` sets the level.
//! - Counts: those of [`steward_runtime::metrics`], in CloudWatch's embedded metric format on standard
//!   output, once an invocation. `STEWARD_DEPLOYMENT` is a dimension of each.
//! - [`traces`]: the spans of [`steward_runtime::trace`], sent to the OpenTelemetry collector at
//!   `OTEL_EXPORTER_OTLP_ENDPOINT`; without that there are none.
//!
//! Lambda freezes a function between invocations, so counts and spans leave before the answer:
//! [`observed`].

use std::{io::Write, sync::OnceLock};

use metrics_cloudwatch_embedded::{Builder, Collector};
use tracing_subscriber::{
    EnvFilter,
    fmt::{self, MakeWriter},
    layer::SubscriberExt,
    registry::LookupSpan,
    util::SubscriberInitExt,
};

pub mod traces;

/// CloudWatch's namespace of the counts; alarms and dashboards name it.
const NAMESPACE: &str = "Steward";

/// What a deployment or a function is called that does not know its name: one that was started by hand.
const UNNAMED: &str = "steward";

static COUNTS: OnceLock<&Collector> = OnceLock::new();

/// Starts logs, counts and, if there is a collector, traces. Call once, first in `main`.
pub fn init() {
    log();
    let named = |name| variable(name).unwrap_or_else(|| UNNAMED.to_owned());
    let (deployment, function) = (named("STEWARD_DEPLOYMENT"), named("AWS_LAMBDA_FUNCTION_NAME"));
    if let Some(collector) = variable("OTEL_EXPORTER_OTLP_ENDPOINT")
        && let Err(error) = traces::start(&collector, &deployment, &function)
    {
        tracing::error!(%error, "OTEL_EXPORTER_OTLP_ENDPOINT: there will be no traces");
    }
    match counts(deployment, function) {
        Ok(collector) => _ = COUNTS.set(collector),
        Err(error) => tracing::error!(%error, "there will be no metrics"),
    }
}

/// A variable that is set to something.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Starts logging, and logs panics as one line.
fn log() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    lines(std::io::stdout).with(filter).init();
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        tracing::error!(place, "panicked");
    }));
}

/// A line of JSON for each event, with the span of Lambda's runtime around it: that has the request id, by which the
/// lines of one invocation are found.
fn lines(
    to: impl for<'w> MakeWriter<'w> + Send + Sync + 'static,
) -> impl tracing::Subscriber + for<'s> LookupSpan<'s> {
    let json = fmt::layer().json().flatten_event(true).with_span_list(false).with_writer(to);
    tracing_subscriber::registry().with(json)
}

/// Runs an invocation to its answer, and then lets its counts and spans out. Nothing of this can fail
/// the invocation, and a collector that does not answer delays it by half a second.
pub async fn observed<T>(invocation: impl Future<Output = T>) -> T {
    let answer = invocation.await;
    if let Some(collector) = COUNTS.get()
        && let Err(error) = print(collector, std::io::stdout())
    {
        tracing::warn!(%error, "counts lost");
    }
    traces::send().await;
    answer
}

fn counts(deployment: String, function: String) -> Result<&'static Collector, String> {
    let collector = Builder::new()
        .cloudwatch_namespace(NAMESPACE)
        .with_dimension("deployment", deployment)
        .init();
    let collector = collector.map_err(|error| error.to_string())?;
    // Not a dimension: each would be a metric of its own, and no alarm could look at their sum.
    Ok(collector.set_property("function", function))
}

/// Writes what was counted since the last time, in one piece, so that no log line comes between.
fn print(collector: &Collector, mut to: impl Write) -> std::io::Result<()> {
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
        breaker::Turned,
        engine::decision::Ignored,
        model::{
            step::{StepRecord, StepState},
            task::{ProcessState, Task},
            time::Timing,
        },
        submission::accept,
    };
    use steward_runtime::metrics;

    #[test]
    fn a_log_line_says_of_which_request_it_is() {
        let (reader, writer) = std::io::pipe().unwrap();
        tracing::subscriber::with_default(super::lines(Arc::new(writer)), || {
            // As `lambda_runtime` has it.
            tracing::info_span!("Lambda runtime invoke", requestId = "r-1")
                .in_scope(|| tracing::info!(task_id = "t-1", "driven"));
        });
        let line: Value = serde_json::from_reader(reader).unwrap();
        assert_eq!(line["span"]["requestId"], "r-1", "{line}");
        assert_eq!(line["task_id"], "t-1", "{line}");
    }

    fn lines(collector: &Collector) -> Vec<Value> {
        let mut text = Vec::new();
        print(collector, &mut text).unwrap();
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
        accept(&submission, &workflow, None, jiff::Timestamp::UNIX_EPOCH, timing).0
    }

    /// Counts each metric once, but for tasks that ended and attempts that failed.
    fn count_all() {
        let before = Task { process_state: ProcessState::Processing, ..task() };
        let begun = StepRecord::new(StepState::Failed { attempt: 1 });
        let after = Task {
            process_state: ProcessState::Error,
            undo_reason: Some("asked for".to_owned()),
            failure_count: 2,
            steps: [("s".parse().unwrap(), begun)].into(),
            ..before.clone()
        };
        metrics::saved(&before, &after);
        for process_state in [ProcessState::Processed, ProcessState::Undone, ProcessState::Error] {
            metrics::saved(&before, &Task { process_state, ..before.clone() });
        }
        metrics::ignored(Ignored::DuplicateReply);
        metrics::conflict();
        metrics::call_retried();
        metrics::agent_silent();
        metrics::deferred();
        metrics::breaker_turned(Turned::Opened);
        metrics::breaker_turned(Turned::Closed);
        metrics::swept();
        metrics::submission_refused();
        metrics::messages_failed(3);
        metrics::statements_refused("AccessDenied", 2);
    }

    /// What alarms and dashboards are written against: name, label, how many.
    type Counted = (&'static str, Option<(&'static str, &'static str)>, u64);

    const COUNTED: [Counted; 17] = [
        ("steward_tasks_ended_total", Some(("state", "Processed")), 1),
        ("steward_tasks_ended_total", Some(("state", "Undone")), 1),
        ("steward_tasks_ended_total", Some(("state", "Error")), 2),
        ("steward_attempts_started_total", None, 1),
        ("steward_attempts_failed_total", None, 2),
        ("steward_events_ignored_total", Some(("reason", "DuplicateReply")), 1),
        ("steward_saves_conflicted_total", None, 1),
        ("steward_calls_retried_total", None, 1),
        ("steward_agents_silent_total", None, 1),
        ("steward_attempts_deferred_total", None, 1),
        ("steward_breakers_turned_total", Some(("to", "Opened")), 1),
        ("steward_breakers_turned_total", Some(("to", "Closed")), 1),
        ("steward_undos_failed_total", None, 1),
        ("steward_sweeps_total", None, 1),
        ("steward_submissions_refused_total", None, 1),
        ("steward_messages_failed_total", None, 3),
        ("steward_statements_refused_total", Some(("code", "AccessDenied")), 2),
    ];

    #[test]
    fn every_declared_metric_comes_out_as_alarms_look_for_it() {
        let collector = counts("shop".to_owned(), "shop-scheduler".to_owned()).unwrap();
        assert_eq!(lines(collector), [] as [Value; 0], "nothing was counted");
        count_all();
        let counted = lines(collector);
        for (name, label, times) in COUNTED {
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
        assert_eq!(names.sum::<usize>(), COUNTED.len(), "{counted:?}");
        assert_eq!(lines(collector), [] as [Value; 0], "counted twice");
    }

    #[test]
    fn no_declared_metric_is_left_out() {
        let source = include_str!("../../runtime/src/metrics.rs");
        let declared = source.lines().filter_map(|line| line.strip_prefix("pub const "));
        let declared: Vec<_> = declared.filter_map(|line| line.split('"').nth(1)).collect();
        assert!(declared.len() > 10, "{declared:?}");
        for name in declared {
            assert!(COUNTED.iter().any(|(counted, ..)| *counted == name), "{name}");
        }
    }

    #[test]
    fn a_collector_that_cannot_be_reached_in_plain_http_is_refused() {
        for url in ["https://collector:4318", "localhost:4318", "http://a b"] {
            assert_eq!(traces::start(url, "shop", "f"), Err(traces::InvalidCollector), "{url}");
        }
    }
}
