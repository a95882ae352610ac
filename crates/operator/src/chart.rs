//! A task's timeline as a picture, to scale: a row for each step and each undo, in it a bar for each
//! attempt, its time in the queue apart from the call; operators' commands across all rows.
//!
//! ```text
//!              0 s        10 s        20 s
//! reserve      ▁██✓
//! charge           ▁████████✕ ·····▁███✓     ▁ queued  █ called  · waits
//!                            │ resubmit charge by ann
//! ```

use std::fmt::Write;

use indexmap::IndexMap;
use jiff::Timestamp;
use steward_core::{
    definition::workflow::Workflow,
    limits,
    model::{
        attempt::{Action, Attempt, AttemptTimes},
        document::{Document, DocumentKey},
        names::Part,
        task::Task,
    },
};

use crate::escaped;

/// Pixels: of the names at the left, of the time beside them, of what is free at the right, of a row.
const NAMES: f64 = 170.0;
const TIME: f64 = 700.0;
const RIGHT: f64 = 24.0;
const ROW: f64 = 22.0;
const TOP: f64 = 26.0;

/// The narrowest bar that can be seen.
const BAR_MIN: f64 = 3.0;

/// Marks of the axis, and the largest distance between two.
const MARKS_MAX: f64 = 7.0;
const STEP_MS_MAX: i64 = 28 * 86_400_000;

/// Characters of a row's name.
const NAME_CHARS_MAX: usize = 24;

/// Rows that are drawn: the items of a large step would make the picture unreadable, and the table has
/// them.
const ROWS_MAX: usize = 60;

/// Milliseconds between two marks of an axis.
const STEPS_MS: [i64; 24] = [
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

/// The `<svg>` element of a page. It holds no style: the page's stylesheet gives one to its classes, which
/// are `timeline`, `queued`, `call`, `waits`, `command`, `axis`, and how an attempt ended: `completed`,
/// `failed`, `deferred`, `running`.
#[must_use]
pub fn element(task: &Task, workflow: &Workflow, documents: &[Document], now: Timestamp) -> String {
    let rows = rows(task, workflow, documents, now);
    let scale = Scale::of(task, &rows, now);
    let height = TOP + ROW * f64::from(u32::try_from(rows.len()).unwrap_or_default()) + 8.0;
    let width = NAMES + TIME + RIGHT;
    let mut svg = format!(
        "<svg class=\"timeline\" width=\"{width:.0}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\" font-size=\"12\" \
         aria-label=\"Attempts in time; the table below says the same\">\n"
    );
    scale.axis(&mut svg, height);
    for (row, y) in rows.iter().zip((0_u32..).map(|n| f64::from(n).mul_add(ROW, TOP))) {
        row.draw(&mut svg, &scale, y);
    }
    for command in &task.commands {
        let refused = if command.refused.is_some() { ", refused" } else { "" };
        let said = format!("{} by {}{refused}, {:.3}", command.command, command.by, command.at);
        let x = scale.x(command.at);
        let _ = writeln!(
            svg,
            "<g class=\"command\"><title>{}</title><path d=\"M {x:.1} {TOP} V {height:.0}\"/>\
             <text x=\"{x:.1}\" y=\"{:.0}\" text-anchor=\"middle\">▾</text></g>",
            escaped(&said),
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
    /// Until when it waits.
    waits_until: Option<Timestamp>,
}

/// One attempt.
struct Bar {
    number: u32,
    ended: Ended,
    times: AttemptTimes,
    /// When its end was recorded; of one that goes on, now.
    until: Timestamp,
}

#[derive(Clone, Copy)]
enum Ended {
    Completed,
    Failed,
    Deferred,
    Not,
}

impl Ended {
    /// Its class, as people say it, and its shape.
    fn name(self) -> (&'static str, &'static str) {
        match self {
            Self::Completed => ("completed", "✓"),
            Self::Failed => ("failed", "✕"),
            Self::Deferred => ("deferred", "…"),
            Self::Not => ("running", "◐"),
        }
    }
}

/// A row for each part and each undo that began, in the order in which they did.
fn rows(task: &Task, workflow: &Workflow, documents: &[Document], now: Timestamp) -> Vec<Row> {
    let mut bars: Vec<_> = documents.iter().filter_map(of_document).collect();
    bars.extend(task.awaited().map(|(part, action, number, _)| {
        let queued_at = workflow.sent_at(task, &part, action);
        let times = AttemptTimes { queued_at, ..AttemptTimes::default() };
        ((part, action), Bar { number, ended: Ended::Not, times, until: now })
    }));
    bars.sort_by_key(|(_, bar)| bar.begins());
    let mut rows: IndexMap<_, Vec<_>> = IndexMap::new();
    for (of, bar) in bars {
        rows.entry(of).or_default().push(bar);
    }
    let rows = rows.into_iter().take(ROWS_MAX).map(|((part, action), bars)| {
        let progress = task.progress(&part, action);
        let waits_until = progress.and_then(|progress| progress.state.waits_until());
        Row { part, action, bars, waits_until }
    });
    rows.collect()
}

/// The attempt that a document tells of, if it does.
fn of_document(document: &Document) -> Option<((Part, Action), Bar)> {
    let (of, ended) = match &document.key {
        DocumentKey::Output(of) | DocumentKey::ByHand(of, _) => (of, Ended::Completed),
        DocumentKey::Failure(of) => (of, Ended::Failed),
        DocumentKey::Deferral(of) => (of, Ended::Deferred),
        DocumentKey::Submission
        | DocumentKey::Input(_)
        | DocumentKey::Result(_)
        | DocumentKey::Claim(_) => return None,
    };
    let Attempt { step, action, number } = of.clone();
    let (times, until) = (document.times, document.at);
    Some(((step, action), Bar { number, ended, times, until }))
}

impl Bar {
    /// When it began, as far as is known.
    fn begins(&self) -> Timestamp {
        let AttemptTimes { queued_at, called_at, answered_at } = self.times;
        queued_at.or(called_at).or(answered_at).unwrap_or(self.until).min(self.until)
    }

    /// From when to when it was with the service, as far as is known.
    fn call(&self) -> (Timestamp, Timestamp) {
        let AttemptTimes { called_at, answered_at, .. } = self.times;
        let begun = called_at.unwrap_or_else(|| self.begins()).min(self.until);
        (begun, answered_at.unwrap_or(self.until).max(begun))
    }

    /// What a pointer held over it is told.
    fn said(&self) -> String {
        let AttemptTimes { queued_at, called_at, answered_at } = self.times;
        let times = [("queued", queued_at), ("called", called_at), ("answered", answered_at)];
        let mut said = format!("attempt {} {}", self.number, self.ended.name().0);
        for (what, at) in times.iter().filter_map(|(what, at)| Some((what, (*at)?))) {
            let _ = write!(said, ", {what} {at:.3}");
        }
        match self.ended {
            Ended::Not => {}
            Ended::Completed | Ended::Failed | Ended::Deferred => {
                let _ = write!(said, ", recorded {:.3}", self.until);
            }
        }
        said
    }

    fn draw(&self, svg: &mut String, scale: &Scale, y: f64) {
        let (class, shape) = self.ended.name();
        let (begun, ended) = self.call();
        let (queued, called, answered) = (scale.x(self.begins()), scale.x(begun), scale.x(ended));
        let width = (answered - called).max(BAR_MIN);
        let _ = write!(svg, "<g class=\"{class}\"><title>{}</title>", escaped(&self.said()));
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
             <text x=\"{:.1}\" y=\"{:.1}\">{shape}</text></g>",
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
            escaped(&limits::shorten(&name, NAME_CHARS_MAX)),
        );
        for bar in &self.bars {
            bar.draw(svg, scale, y);
        }
        if let Some((last, until)) = self.bars.last().zip(self.waits_until) {
            let (from, to) = (scale.x(last.until), scale.x(until));
            let _ = writeln!(
                svg,
                "<path class=\"waits\" d=\"M {from:.1} {y:.1} H {to:.1}\"><title>waits until {until:.3}</title></path>",
                y = y + 9.0,
            );
        }
    }
}

/// How times become places.
struct Scale {
    start: Timestamp,
    /// Milliseconds that the whole width stands for.
    span_ms: f64,
}

impl Scale {
    /// From the task's beginning to its end, or to what is under way and a little more.
    fn of(task: &Task, rows: &[Row], now: Timestamp) -> Self {
        let end = if task.process_state.is_final() { task.ended_at } else { Some(now) };
        let seen = rows.iter().flat_map(|row| &row.bars).map(|bar| bar.call().1.max(bar.until));
        let commands = task.commands.iter().map(|command| command.at);
        let end = seen.chain(commands).chain(end).fold(task.submitted_at, Timestamp::max);
        let begun = rows.iter().flat_map(|row| &row.bars).map(Bar::begins);
        let start = begun.fold(task.submitted_at, Timestamp::min);
        Self { start, span_ms: (millis(start, end) * 1.05).max(10.0) }
    }

    /// What lies beyond the picture's end stands at its end.
    fn x(&self, at: Timestamp) -> f64 {
        (millis(self.start, at) / self.span_ms * TIME).clamp(0.0, TIME) + NAMES
    }

    fn axis(&self, svg: &mut String, height: f64) {
        let step = STEPS_MS.into_iter().find(|step| self.span_ms / as_float(*step) <= MARKS_MAX);
        let step = step.unwrap_or(STEP_MS_MAX);
        svg.push_str("<g class=\"axis\">");
        for mark in (0..).map(|n| n * step).take_while(|mark| as_float(*mark) < self.span_ms) {
            let x = as_float(mark) / self.span_ms * TIME + NAMES;
            let _ = write!(
                svg,
                "<path d=\"M {x:.1} {TOP} V {height:.0}\"/><text x=\"{x:.1}\" y=\"12\" text-anchor=\"middle\">{}</text>",
                length(mark),
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

/// A mark's distance from the start, in its largest unit.
fn length(millis: i64) -> String {
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

    /// A task that has run for 100 seconds: `a` completed at its second attempt, `b` runs.
    fn draw() -> String {
        let command = json!({
            "id": "c-1", "command": "resubmit a", "by": "<ann>", "why": "x", "at": 50 * SECOND,
        });
        let task = json!({
            "task_id": "t", "workflow": "w", "version": 1, "process_state": "Processing",
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

    /// Where and how wide each bar of a class is, in hundredths of the time that is drawn.
    fn bars(svg: &str, class: &str) -> Vec<(f64, f64)> {
        let document = roxmltree::Document::parse(svg).unwrap();
        let bars = document.descendants().filter(|node| node.attribute("class") == Some(class));
        let number =
            |node: roxmltree::Node<'_, '_>, name| node.attribute(name).unwrap().parse::<f64>();
        let hundredths = |pixels: f64| (pixels / TIME * 105.0).round();
        bars.map(|bar| {
            let (x, width) = (number(bar, "x").unwrap(), number(bar, "width").unwrap());
            (hundredths(x - NAMES), hundredths(width))
        })
        .collect()
    }

    #[test]
    fn attempts_are_drawn_to_scale_their_time_in_the_queue_apart() {
        let svg = draw();
        assert_eq!(bars(&svg, "queued"), [(0.0, 10.0)]);
        // The one that runs was sent when its complete-by says, and goes on.
        assert_eq!(bars(&svg, "call"), [(10.0, 20.0), (60.0, 10.0), (80.0, 20.0)]);
    }

    #[test]
    fn it_is_well_formed_has_no_style_and_says_in_words_what_it_draws() {
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
    fn clocks_that_disagree_and_times_that_nobody_knows_are_drawn_all_the_same() {
        let task = json!({
            "task_id": "t", "workflow": "w", "version": 1, "process_state": "Processed", "revision": 1,
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
