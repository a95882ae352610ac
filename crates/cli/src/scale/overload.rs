//! The output of `steward scale --overload`.

use steward_forecast::capacity::{OVERLOAD_FACTOR, OverloadReport, OverloadRun};

use super::text::{load_text, number, percent, seconds};
use crate::table::table;

/// Prints the scenario.
pub(super) fn show(report: &OverloadReport) {
    let OverloadReport { workflow, version, deployment, bottleneck, sustained_rate, load, .. } =
        report;
    outln!("{workflow} version {version}, size {}", deployment.size);
    outln!("sustainable rate: {} submissions per second ({bottleneck})", number(*sustained_rate));
    outln!("overload: {}, {OVERLOAD_FACTOR} times as many, and then none", load_text(load));
    let mut table = table(&["", "with intake control", "without"]);
    for (name, value) in ROWS {
        table.add_row([
            (*name).to_owned(),
            value(&report.with_intake_control),
            value(&report.without),
        ]);
    }
    outln!("{table}");
    outln!(
        "lost attempts: their request or reply was handled so late that the supervisor may have abandoned them"
    );
    outln!(
        "not included: tasks that stop because their attempts are used up; the scheduler postpones first wakes"
    );
}

/// A row: its name, and its value in a run.
type Row = (&'static str, fn(&OverloadRun) -> String);

const ROWS: &[Row] = &[
    ("tasks done during the load, of what is sustainable", |run| percent(run.goodput)),
    ("the same in the worst minute, without the first", |run| percent(run.goodput_of_worst_minute)),
    ("lost attempts", |run| number(run.lost_attempts.round())),
    ("requests shed by agents", |run| number(run.shed_requests.round())),
    ("longest wait in an agent's queue", |run| seconds(run.longest_agent_wait_s)),
    ("longest wait in the scheduler's queue", |run| seconds(run.longest_scheduler_wait_s)),
    ("submissions held back at the same time, at most", |run| number(run.held_back_max.round())),
    ("how often a submission is held back, on average", |run| {
        format!("{:.1}", run.deferrals_per_submission)
    }),
    ("all tasks done after the last submission", |run| match run.drained_after_s {
        Some(after_s) => seconds(after_s),
        None => format!("{} tasks not done after four hours", number(run.unfinished)),
    }),
];
