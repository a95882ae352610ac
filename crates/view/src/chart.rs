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
    limits,
    messages::{Action, AttemptTimes},
    names::Part,
    ports::{Attempt, Document, DocumentKey},
    task::Task,
    workflow::Workflow,
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
        let queued_at = task.sent_at(&part, action, workflow);
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
        DocumentKey::Output(of) => (of, Ended::Completed),
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
