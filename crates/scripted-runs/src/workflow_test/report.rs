//! The report of a case that did not pass, for people.

use std::{fmt::Write, time::Duration};

use super::{
    run::{CaseOutcome, CaseResult},
    timeline::text,
};

/// What differs, and the timeline. Nothing for a case that passed.
#[must_use]
pub fn describe(case: &CaseResult) -> String {
    let mut lines = String::new();
    // Writing to a `String` does not fail.
    match &case.outcome {
        CaseOutcome::Passed => return lines,
        CaseOutcome::NothingExpected => {
            let _ = writeln!(lines, "  there is no `expect`; `--update` writes what was seen");
        }
        CaseOutcome::NotRun { reason } => {
            let _ = writeln!(lines, "  not run: {reason}");
        }
        CaseOutcome::Failed { differences } => {
            for difference in differences {
                match difference.lines.as_slice() {
                    [line] => {
                        let _ = writeln!(lines, "  {}: {line}", difference.key);
                    }
                    several => {
                        let _ = writeln!(lines, "  {}:", difference.key);
                        for line in several {
                            let _ = writeln!(lines, "    {line}");
                        }
                    }
                }
            }
        }
    }
    if !case.timeline.is_empty() {
        let _ = writeln!(lines, "  timeline:");
    }
    for line in &case.timeline {
        let at = text(Duration::from_millis(line.at_ms));
        let _ = writeln!(lines, "    {at:>12}  {}", line.what);
    }
    lines
}
