//! Whether a long run of the demo grows: its memory, its files, or the latency of its tasks.
//!
//! The run is divided into quarters. The first is the warm-up. The last is compared with the second. A median of samples
//! is compared, so a single outage or a busy moment of the machine does not decide.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

/// The number of parts of the run.
pub(super) const QUARTERS: usize = 4;

/// By which factor each figure may be larger in the last quarter than in the second.
const FACTOR_MAX: f64 = 1.15;

/// By which factor a latency may be larger: other work of the machine changes it too.
const LATENCY_FACTOR_MAX: f64 = 1.5;

/// Growth of memory and files that does not count, in MiB: allocators and logs grow in steps.
const MIB_IGNORED: f64 = 8.0;

/// Growth of latency that does not count, in milliseconds.
const MS_IGNORED: f64 = 50.0;

/// How many tasks must have ended in a quarter before its p99 says something: with fewer, one outage decides it.
const TASKS_FOR_P99_MIN: u64 = 1_000;

/// Growth of the p99 that does not count, in milliseconds: outages of services last for seconds.
const P99_MS_IGNORED: f64 = 10_000.0;

/// One look at the running process.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    /// The resident memory of the process in MiB, if the system tells it.
    pub(super) memory_mib: Option<f64>,
    /// The size of all data files in MiB.
    pub(super) files_mib: f64,
    /// Stored items of tasks, documents and messages do not grow with time if tasks end: the tasks that run.
    pub(super) running: usize,
}

/// The samples of a quarter, and the latencies of the tasks that ended in it.
#[derive(Debug)]
pub(super) struct Quarter {
    pub(super) samples: Vec<Sample>,
    pub(super) latencies_us: Histogram<u64>,
}

/// The figures of a quarter.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct QuarterFigures {
    pub(super) ended: u64,
    pub(super) running: f64,
    pub(super) memory_mib: Option<f64>,
    pub(super) files_mib: f64,
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
}

impl Quarter {
    /// The medians of its samples, and percentiles of its latencies.
    pub(super) fn figures(&self) -> QuarterFigures {
        let ms = |quantile| self.latencies_us.value_at_quantile(quantile) as f64 / 1_000.0;
        let memory: Option<Vec<_>> = self.samples.iter().map(|sample| sample.memory_mib).collect();
        QuarterFigures {
            ended: self.latencies_us.len(),
            running: median(self.samples.iter().map(|sample| sample.running as f64).collect()),
            memory_mib: memory.map(median),
            files_mib: median(self.samples.iter().map(|sample| sample.files_mib).collect()),
            p50_ms: ms(0.5),
            p99_ms: ms(0.99),
        }
    }
}

/// The quarter of a run to which a moment belongs: 0 to 3.
pub(super) fn quarter_of(elapsed: Duration, whole: Duration) -> usize {
    let part = elapsed.as_secs_f64() / whole.as_secs_f64().max(f64::EPSILON);
    ((part * QUARTERS as f64) as usize).min(QUARTERS - 1)
}

/// What grew from the second quarter to the last, one sentence each. Empty: nothing did.
pub(super) fn growth(quarters: &[QuarterFigures; QUARTERS]) -> Vec<String> {
    let [_, early, _, late] = quarters;
    let mut grown = Vec::new();
    let mut compare = |what: &str, unit: &str, (early, late): (f64, f64), factor, ignored: f64| {
        if late > early * factor && late - early > ignored {
            grown.push(format!("{what} grew from {early:.1} to {late:.1} {unit}"));
        }
    };
    if let (Some(early), Some(late)) = (early.memory_mib, late.memory_mib) {
        compare("memory", "MiB", (early, late), FACTOR_MAX, MIB_IGNORED);
    }
    compare("the data files", "MiB", (early.files_mib, late.files_mib), FACTOR_MAX, MIB_IGNORED);
    let running = (early.running, late.running);
    compare("the number of running tasks", "tasks", running, LATENCY_FACTOR_MAX, 5.0);
    let p50 = (early.p50_ms, late.p50_ms);
    compare("the median latency", "ms", p50, LATENCY_FACTOR_MAX, MS_IGNORED);
    if early.ended.min(late.ended) >= TASKS_FOR_P99_MIN {
        let p99 = (early.p99_ms, late.p99_ms);
        compare("the p99 of the latency", "ms", p99, LATENCY_FACTOR_MAX, P99_MS_IGNORED);
    }
    if early.ended == 0 || late.ended == 0 {
        grown.push(format!("nothing to compare: {} and {} tasks ended", early.ended, late.ended));
    }
    grown
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quarters(change: impl Fn(usize, &mut QuarterFigures)) -> [QuarterFigures; QUARTERS] {
        std::array::from_fn(|n| {
            let mut figures = QuarterFigures {
                ended: 600,
                running: 4.0,
                memory_mib: Some(80.0 + n as f64),
                files_mib: 30.0,
                p50_ms: 120.0,
                p99_ms: 9_000.0,
            };
            change(n, &mut figures);
            figures
        })
    }

    #[test]
    fn small_differences_are_no_growth() {
        assert_eq!(growth(&quarters(|_, _| {})), [""; 0]);
    }

    #[test]
    fn each_figure_that_grows_is_named() {
        let leak = quarters(|n, figures| figures.memory_mib = Some(80.0 + 10.0 * n as f64));
        assert_eq!(growth(&leak), ["memory grew from 90.0 to 110.0 MiB"]);
        let files = quarters(|n, figures| figures.files_mib = 30.0 * (n + 1) as f64);
        assert_eq!(growth(&files), ["the data files grew from 60.0 to 120.0 MiB"]);
        let slower = quarters(|n, figures| figures.p50_ms = 120.0 * (n + 1) as f64);
        assert_eq!(growth(&slower), ["the median latency grew from 240.0 to 480.0 ms"]);
        let tail = |ended| {
            growth(&quarters(|n, figures| {
                *figures = QuarterFigures { ended, p99_ms: 20_000.0 * n as f64, ..figures.clone() };
            }))
        };
        assert_eq!(tail(4_500), ["the p99 of the latency grew from 20000.0 to 60000.0 ms"]);
        assert_eq!(tail(600), [""; 0]);
        let stuck = quarters(|n, figures| figures.running = 10.0 * (n + 1) as f64);
        assert_eq!(growth(&stuck), ["the number of running tasks grew from 20.0 to 40.0 tasks"]);
    }

    #[test]
    fn the_warm_up_does_not_count_and_a_run_without_tasks_fails() {
        let cold = quarters(|n, figures| figures.p50_ms = if n == 0 { 1.0 } else { 900.0 });
        assert_eq!(growth(&cold), [""; 0]);
        let idle = quarters(|_, figures| figures.ended = 0);
        assert_eq!(growth(&idle), ["nothing to compare: 0 and 0 tasks ended"]);
    }

    #[test]
    fn the_last_moment_belongs_to_the_last_quarter() {
        let whole = Duration::from_secs(100);
        let of = |seconds| quarter_of(Duration::from_secs(seconds), whole);
        assert_eq!([0, 24, 25, 99, 100, 130].map(of), [0, 0, 1, 3, 3, 3]);
    }
}
