//! A task's timeline as a picture, to scale. Each step and each undo has a row with a bar for each attempt; the bar shows
//! the time in the queue and the call separately. An operator's command is a line across all rows.
//!
//! ```text
//!              0 s        10 s        20 s
//! reserve      ▁██✓
//! charge           ▁████████✕ ·····▁███✓     ▁ in queue  █ call  · waiting
//!                            │ resubmit charge by ann
//! ```

use std::fmt::Write;

use indexmap::IndexMap;
use jiff::Timestamp;
use steward_core::{
    definition::workflow::Workflow,
    limits,
    model::{
        attempt::{Action, AttemptId, AttemptTimes},
        document::{Document, DocumentKey},
        names::Part,
        task::Task,
    },
};

use crate::escape_xml;

/// Width of the column of names, in pixels.
const NAMES: f64 = 170.0;
/// Width of the time axis, in pixels.
const TIME: f64 = 700.0;
/// Width of the right margin, in pixels.
const RIGHT: f64 = 24.0;
/// Height of a row, in pixels.
const ROW: f64 = 22.0;
/// Height of the axis labels above the rows, in pixels.
const TOP: f64 = 26.0;

/// The narrowest visible bar, in pixels.
const BAR_MIN: f64 = 3.0;

/// The largest number of marks on the axis.
const MARKS_MAX: f64 = 7.0;
/// The largest distance between two marks, in milliseconds.
const MARK_DISTANCE_MS_MAX: i64 = 28 * 86_400_000;

/// The largest number of characters in a row's name.
const NAME_CHARS_MAX: usize = 24;

/// The largest number of rows. More rows, such as those of a step with many items, would make the picture unreadable; the
/// table shows them.
const ROWS_MAX: usize = 60;

/// Possible distances between two marks, in milliseconds.
const MARK_DISTANCES_MS: [i64; 24] = [
    5,
    10,
    20,
    50,
    100,
    200,
    500,
    1_000,
    2_000,
    5_000,
    10_000,
    20_000,
    30_000,
    60_000,
    120_000,
    300_000,
    600_000,
    1_800_000,
    3_600_000,
    7_200_000,
    21_600_000,
    43_200_000,
    86_400_000,
    604_800_000,
];

/// Draws the timeline as an `<svg>` element for an HTML page. `documents` must be all of the task's.
///
/// The element has no styles of its own. The page's stylesheet must style its classes: `timeline`, `queued`, `call`,
/// `waits`, `command`, `axis`, and the outcomes of attempts: `completed`, `failed`, `deferred`, `running`.
#[must_use]
pub fn element(task: &Task, workflow: &Workflow, documents: &[Document], now: Timestamp) -> String {
    let rows = rows(task, workflow, documents, now);
    let scale = Scale::of(task, &rows, now);
    let height = TOP + ROW * f64::from(u32::try_from(rows.len()).unwrap_or_default()) + 8.0;
    let width = NAMES + TIME + RIGHT;
    let mut svg = format!(
        "<svg class=\"timeline\" width=\"{width:.0}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\" font-size=\"12\" \
         aria-label=\"Attempts over time; the table below has the same data\">\n"
    );
    scale.axis(&mut svg, height);
    for (row, y) in rows.iter().zip((0_u32..).map(|n| f64::from(n).mul_add(ROW, TOP))) {
        row.draw(&mut svg, &scale, y);
    }
    for command in &task.commands {
        let refused = if command.refused.is_some() { ", refused" } else { "" };
        let label = format!("{} by {}{refused}, {:.3}", command.command, command.by, command.at);
        let x = scale.x(command.at);
        let _ = writeln!(
            svg,
            "<g class=\"command\"><title>{}</title><path d=\"M {x:.1} {TOP} V {height:.0}\"/>\
             <text x=\"{x:.1}\" y=\"{:.0}\" text-anchor=\"middle\">▾</text></g>",
            escape_xml(&label),
            TOP - 2.0,
        );
    }
    svg.push_str("</svg>\n");
    svg
}

/// The attempts at doing or undoing a part.
struct Row {
    part: Part,
    action: Action,
    bars: Vec<Bar>,
    /// The time until which it waits, if it waits.
    waits_until: Option<Timestamp>,
}

/// One attempt.
struct Bar {
    number: u32,
    outcome: BarOutcome,
    times: AttemptTimes,
    /// When its outcome was recorded. For a running attempt: now.
    until: Timestamp,
}

/// The outcome of an attempt, as far as the picture shows it.
#[derive(Clone, Copy)]
enum BarOutcome {
    Completed,
    Failed,
    Deferred,
    Running,
}

impl BarOutcome {
    /// The CSS class, which is also its name, and the symbol.
    fn class_and_symbol(self) -> (&'static str, &'static str) {
        match self {
            Self::Completed => ("completed", "✓"),
            Self::Failed => ("failed", "✕"),
            Self::Deferred => ("deferred", "…"),
            Self::Running => ("running", "◐"),
        }
    }
}

/// A row for each part and each undo that has begun, in the order of their first attempts.
fn rows(task: &Task, workflow: &Workflow, documents: &[Document], now: Timestamp) -> Vec<Row> {
    let mut bars: Vec<_> = documents.iter().filter_map(recorded_bar).collect();
    bars.extend(task.awaited_attempts().map(|(part, action, number, _)| {
        let queued_at = workflow.sent_at(task, &part, action);
        let times = AttemptTimes { queued_at, ..AttemptTimes::default() };
        ((part, action), Bar { number, outcome: BarOutcome::Running, times, until: now })
    }));
    bars.sort_by_key(|(_, bar)| bar.begins());
    let mut rows: IndexMap<_, Vec<_>> = IndexMap::new();
    for (part_action, bar) in bars {
        rows.entry(part_action).or_default().push(bar);
    }
    let rows = rows.into_iter().take(ROWS_MAX).map(|((part, action), bars)| {
        let progress = task.progress(&part, action);
        let waits_until = progress.and_then(|progress| progress.state.waiting_until());
        Row { part, action, bars, waits_until }
    });
    rows.collect()
}

/// The bar for the attempt whose outcome a document records; `None` for other documents.
fn recorded_bar(document: &Document) -> Option<((Part, Action), Bar)> {
    let (attempt, outcome) = match &document.key {
        DocumentKey::Output(attempt) | DocumentKey::OperatorOutput(attempt, _) => {
            (attempt, BarOutcome::Completed)
        }
        DocumentKey::Failure(attempt) => (attempt, BarOutcome::Failed),
        DocumentKey::Deferral(attempt) => (attempt, BarOutcome::Deferred),
        DocumentKey::Submission
        | DocumentKey::Input(_)
        | DocumentKey::Items { .. }
        | DocumentKey::Result(_)
        | DocumentKey::Claim(_) => return None,
    };
    let AttemptId { step, action, number } = attempt.clone();
    let (times, until) = (document.times, document.at);
    Some(((step, action), Bar { number, outcome, times, until }))
}

impl Bar {
    /// The earliest known time of the attempt.
    fn begins(&self) -> Timestamp {
        let AttemptTimes { queued_at, called_at, answered_at } = self.times;
        queued_at.or(called_at).or(answered_at).unwrap_or(self.until).min(self.until)
    }

    /// Start and end of the call. An unknown start is the start of the attempt; an unknown end, its recorded end.
    fn call(&self) -> (Timestamp, Timestamp) {
        let AttemptTimes { called_at, answered_at, .. } = self.times;
        let begun = called_at.unwrap_or_else(|| self.begins()).min(self.until);
        (begun, answered_at.unwrap_or(self.until).max(begun))
    }

    /// The tooltip.
    fn tooltip(&self) -> String {
        let AttemptTimes { queued_at, called_at, answered_at } = self.times;
        let times = [("queued", queued_at), ("called", called_at), ("answered", answered_at)];
        let mut text = format!("attempt {} {}", self.number, self.outcome.class_and_symbol().0);
        for (what, at) in times.iter().filter_map(|(what, at)| Some((what, (*at)?))) {
            let _ = write!(text, ", {what} {at:.3}");
        }
        match self.outcome {
            BarOutcome::Running => {}
            BarOutcome::Completed | BarOutcome::Failed | BarOutcome::Deferred => {
                let _ = write!(text, ", recorded {:.3}", self.until);
            }
        }
        text
    }

    fn draw(&self, svg: &mut String, scale: &Scale, y: f64) {
        let (class, symbol) = self.outcome.class_and_symbol();
        let (begun, ended) = self.call();
        let (queued, called, answered) = (scale.x(self.begins()), scale.x(begun), scale.x(ended));
        let width = (answered - called).max(BAR_MIN);
        let _ = write!(svg, "<g class=\"{class}\"><title>{}</title>", escape_xml(&self.tooltip()));
        if called > queued {
            let (y, width) = (y + 7.0, called - queued);
            let _ = write!(
                svg,
                "<rect class=\"queued\" x=\"{queued:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"4\"/>"
            );
        }
        let _ = writeln!(
            svg,
            "<rect class=\"call\" x=\"{called:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"10\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\">{symbol}</text></g>",
            y + 4.0,
            called + width + 2.0,
            y + 13.0,
        );
    }
}

impl Row {
    fn draw(&self, svg: &mut String, scale: &Scale, y: f64) {
        let undo = if self.action == Action::Undo { "undo of " } else { "" };
        let name = format!("{undo}{}", self.part);
        let _ = writeln!(
            svg,
            "<text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            NAMES - 8.0,
            y + 13.0,
            escape_xml(&limits::short_line(&name, NAME_CHARS_MAX)),
        );
        for bar in &self.bars {
            bar.draw(svg, scale, y);
        }
        if let Some((last, until)) = self.bars.last().zip(self.waits_until) {
            let (from, to) = (scale.x(last.until), scale.x(until));
            let _ = writeln!(
                svg,
                "<path class=\"waits\" d=\"M {from:.1} {y:.1} H {to:.1}\"><title>waiting until {until:.3}</title></path>",
                y = y + 9.0,
            );
        }
    }
}

/// The mapping from times to horizontal positions.
struct Scale {
    start: Timestamp,
    /// The length of the time axis, in milliseconds.
    span_ms: f64,
}

impl Scale {
    /// A scale from the start of the task to its end, or to now if it is not final, with a margin.
    fn of(task: &Task, rows: &[Row], now: Timestamp) -> Self {
        let end = if task.process_state.has_stopped() { task.ended_at } else { Some(now) };
        let ends = rows.iter().flat_map(|row| &row.bars).map(|bar| bar.call().1.max(bar.until));
        let commands = task.commands.iter().map(|command| command.at);
        let end = ends.chain(commands).chain(end).fold(task.submitted_at, Timestamp::max);
        let begun = rows.iter().flat_map(|row| &row.bars).map(Bar::begins);
        let start = begun.fold(task.submitted_at, Timestamp::min);
        Self { start, span_ms: (millis(start, end) * 1.05).max(10.0) }
    }

    /// The horizontal position of a time, in pixels. Times outside the axis are moved to its nearest end.
    fn x(&self, at: Timestamp) -> f64 {
        (millis(self.start, at) / self.span_ms * TIME).clamp(0.0, TIME) + NAMES
    }

    fn axis(&self, svg: &mut String, height: f64) {
        let step =
            MARK_DISTANCES_MS.into_iter().find(|step| self.span_ms / as_float(*step) <= MARKS_MAX);
        let step = step.unwrap_or(MARK_DISTANCE_MS_MAX);
        svg.push_str("<g class=\"axis\">");
        for mark in (0..).map(|n| n * step).take_while(|mark| as_float(*mark) < self.span_ms) {
            let x = as_float(mark) / self.span_ms * TIME + NAMES;
            let _ = write!(
                svg,
                "<path d=\"M {x:.1} {TOP} V {height:.0}\"/><text x=\"{x:.1}\" y=\"12\" text-anchor=\"middle\">{}</text>",
                mark_label(mark),
            );
        }
        svg.push_str("</g>\n");
    }
}

fn millis(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_millis_f64()
}

#[expect(clippy::cast_precision_loss, reason = "milliseconds of weeks are far below 2^52")]
fn as_float(millis: i64) -> f64 {
    millis as f64
}

/// The label of a mark: its distance from the start, in the largest unit.
fn mark_label(millis: i64) -> String {
    match millis {
        0 => "0".to_owned(),
        _ if millis % 86_400_000 == 0 => format!("{} d", millis / 86_400_000),
        _ if millis % 3_600_000 == 0 => format!("{} h", millis / 3_600_000),
        _ if millis % 60_000 == 0 => format!("{} min", millis / 60_000),
        _ if millis % 1_000 == 0 => format!("{} s", millis / 1_000),
        _ => format!("{millis} ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const SECOND: i64 = 1_000;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millisecond(millis).unwrap()
    }

    fn workflow() -> Workflow {
        let step = json!({ "agent": "a", "complete_within": "30s", "request": { "path": "/" } });
        let definition = json!({ "name": "w", "version": 1, "steps": { "a": step, "b": step } });
        serde_json::from_value(definition).unwrap()
    }

    fn document(key: &str, millis: i64, times: AttemptTimes) -> Document {
        let body = json!({ "reason": "<no>", "verdict": "x" });
        Document { times, ..Document::new(key.parse().unwrap(), at(millis), body) }
    }

    fn times(queued: i64, called: i64, answered: i64) -> AttemptTimes {
        let [queued_at, called_at, answered_at] = [queued, called, answered].map(|ms| Some(at(ms)));
        AttemptTimes { queued_at, called_at, answered_at }
    }

    /// The picture of a task after 100 seconds: `a` completed at its second attempt, `b` is running.
    fn draw() -> String {
        let command = json!({
            "id": "c-1", "command": "resubmit a", "by": "<ann>", "caller": { "sender": "AIDAANN", "via": "direct" }, "why": "x", "at": 50 * SECOND,
        });
        let task = json!({
            "task_id": "t", "workflow": "w", "v": 1, "i": 0, "k": 3_600, "process_state": "Processing",
            "revision": 1, "complete_by": 3_600 * SECOND, "submitted_at": 0, "commands": [command],
            "steps": { "a": { "s": "c", "a": 2 }, "b": { "s": "r", "a": 1, "b": 110 * SECOND } },
        });
        let documents = [
            document("submission", 0, AttemptTimes::default()),
            document("step/a/1/failure", 30 * SECOND, times(0, 10 * SECOND, 30 * SECOND)),
            document("step/a/2/output", 70 * SECOND, times(60 * SECOND, 60 * SECOND, 70 * SECOND)),
        ];
        element(&serde_json::from_value(task).unwrap(), &workflow(), &documents, at(100 * SECOND))
    }

    /// Position and width of each bar of a class, in seconds.
    fn bars(svg: &str, class: &str) -> Vec<(f64, f64)> {
        let document = roxmltree::Document::parse(svg).unwrap();
        let bars = document.descendants().filter(|node| node.attribute("class") == Some(class));
        let number =
            |node: roxmltree::Node<'_, '_>, name| node.attribute(name).unwrap().parse::<f64>();
        let seconds = |pixels: f64| (pixels / TIME * 105.0).round();
        bars.map(|bar| {
            let (x, width) = (number(bar, "x").unwrap(), number(bar, "width").unwrap());
            (seconds(x - NAMES), seconds(width))
        })
        .collect()
    }

    #[test]
    fn attempts_are_drawn_to_scale_with_separate_time_in_the_queue() {
        let svg = draw();
        assert_eq!(bars(&svg, "queued"), [(0.0, 10.0)]);
        // The running attempt starts at its complete-by minus `complete_within`, and ends now.
        assert_eq!(bars(&svg, "call"), [(10.0, 20.0), (60.0, 10.0), (80.0, 20.0)]);
    }

    #[test]
    fn the_picture_is_valid_xml_without_styles_and_has_tooltips() {
        let svg = draw();
        let document = roxmltree::Document::parse(&svg).unwrap();
        let titles: Vec<_> = document
            .descendants()
            .filter(|node| node.has_tag_name("title"))
            .filter_map(|title| title.text())
            .collect();
        assert_eq!(
            titles,
            [
                "attempt 1 failed, queued 1970-01-01T00:00:00.000Z, called 1970-01-01T00:00:10.000Z, \
                 answered 1970-01-01T00:00:30.000Z, recorded 1970-01-01T00:00:30.000Z",
                "attempt 2 completed, queued 1970-01-01T00:01:00.000Z, called 1970-01-01T00:01:00.000Z, \
                 answered 1970-01-01T00:01:10.000Z, recorded 1970-01-01T00:01:10.000Z",
                "attempt 1 running, queued 1970-01-01T00:01:20.000Z",
                "resubmit a by <ann>, 1970-01-01T00:00:50.000Z",
            ]
        );
        assert!(!svg.contains("style") && svg.contains("20 s"), "{svg}");
    }

    #[test]
    fn disagreeing_clocks_and_unknown_times_are_drawn_without_negative_sizes() {
        let task = json!({
            "task_id": "t", "workflow": "w", "v": 1, "i": 0, "k": 3_600, "process_state": "Processed", "revision": 1,
            "complete_by": 0, "submitted_at": 5_000, "ended_at": 6_000, "steps": { "a": { "s": "c", "a": 1 } },
        });
        let task = serde_json::from_value(task).unwrap();
        for times in [AttemptTimes::default(), times(9_000_000, 4_000, 1), times(1, 9_000_000, 2)] {
            let documents = [document("step/a/1/output", 6_000, times)];
            let svg = element(&task, &workflow(), &documents, at(7_000));
            let drawn = bars(&svg, "call");
            assert!(drawn.iter().all(|(x, width)| *x >= 0.0 && *width >= 0.0), "{drawn:?} {svg}");
        }
    }
}
