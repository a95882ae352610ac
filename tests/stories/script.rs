//! Reading a story: its workflow, its lines, and what the left-hand sides say.

use std::{collections::BTreeMap, fs, time::Duration};

use jiff::SignedDuration;
use serde_json::{Map, Value, json};
use steward_core::{
    messages::{Outcome, StepReply},
    ports::Timing,
    transition::Event,
    workflow::Workflow,
};

use super::*;

/// A story as it is written.
pub(super) struct Story {
    pub(super) workflow: Workflow,
    pub(super) timing: Timing,
    pub(super) lines: Vec<Line>,
}

/// One line: what happens, and the answer.
pub(super) struct Line {
    pub(super) number: usize,
    pub(super) left: String,
    pub(super) right: String,
}

pub(super) fn read(name: &str) -> Result<Story, String> {
    let file = folder().join(format!("{name}.story"));
    let text = fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    parse(&text).map_err(|problem| format!("tests/stories/{name}.story:{problem}"))
}

pub(super) fn parse(text: &str) -> Result<Story, String> {
    let mut timing =
        Timing { pickup_within: Duration::from_secs(30), clock_skew: Duration::from_secs(2) };
    let (mut about, mut steps, mut lines) = (BTreeMap::new(), Map::new(), Vec::new());
    for (number, line) in whole_lines(text) {
        let wrong = |what: String| format!("{number}: {what}");
        let (first, said) = line.trim().split_once(' ').unwrap_or((&line, ""));
        if first == "timing" {
            timing = read_timing(said).map_err(wrong)?;
        } else if first == "workflow" {
            about = options(said, &["within", "with lifecycle"]).map_err(wrong)?;
        } else if line.starts_with(' ') {
            let name =
                first.strip_suffix(':').ok_or_else(|| wrong("a step is `name: ...`".into()))?;
            steps.insert(name.to_owned(), step(name, said).map_err(wrong)?);
        } else {
            let (left, right) = line.split_once("=>").unwrap_or((&line, ""));
            let (left, right) = (left.trim().to_owned(), right.trim().to_owned());
            lines.push(Line { number, left, right });
        }
    }
    let workflow = json!({
        "name": "order",
        "version": 1,
        "complete_within": about.remove("within").unwrap_or("1h".to_owned()),
        "lifecycle_events": about.contains_key("with lifecycle"),
        "steps": steps,
    });
    let workflow: Workflow =
        serde_json::from_value(workflow).map_err(|error| format!("1: {error}"))?;
    match workflow.problems().first() {
        Some(problem) => Err(format!("1: {problem}")),
        None => Ok(Story { workflow, timing, lines }),
    }
}

/// The lines that say something, each with those that go on with it, and blanks as one space. A
/// step's keeps one blank in front.
pub(super) fn whole_lines(text: &str) -> Vec<(usize, String)> {
    let mut whole: Vec<(usize, String)> = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let words = line.split_whitespace().collect::<Vec<_>>().join(" ");
        match whole.last_mut() {
            _ if words.is_empty() || line.starts_with('#') => {}
            Some((_, last)) if line.starts_with("    ") => *last = format!("{last} {words}"),
            Some(_) | None if line.starts_with(' ') => whole.push((at + 1, format!(" {words}"))),
            Some(_) | None => whole.push((at + 1, words)),
        }
    }
    whole
}

pub(super) fn read_timing(said: &str) -> Result<Timing, String> {
    let found = options(said, &["clock skew", "pickup within"])?;
    let time = |name: &str| {
        duration(found.get(name).ok_or(format!("no {name}"))?)?
            .try_into()
            .map_err(|_| format!("{name} is negative"))
    };
    Ok(Timing { pickup_within: time("pickup within")?, clock_skew: time("clock skew")? })
}

/// A step's definition: `after a and b, within 30s, attempts 2, path /p, body {...}`.
pub(super) fn step(name: &str, said: &str) -> Result<Value, String> {
    let mut found = options(said, &["after", "within", "attempts", "path", "body"])?;
    let mut take = |word: &str, usual: &str| found.remove(word).unwrap_or(usual.to_owned());
    let after = take("after", "");
    Ok(json!({
        "agent": format!("{name}-agent"),
        "after": after.split(" and ").filter(|step| !step.is_empty()).collect::<Vec<_>>(),
        "complete_within": take("within", "60s"),
        "attempts": json(&take("attempts", "3")),
        "request": { "path": take("path", &format!("/{name}")), "body": json(&take("body", "null")) },
    }))
}

/// Reads `word value, word value`; a comma inside braces or brackets belongs to the value.
pub(super) fn options(said: &str, words: &[&str]) -> Result<BTreeMap<String, String>, String> {
    let mut parts = vec![String::new()];
    let mut depth = 0;
    for c in said.chars() {
        depth += i32::from(matches!(c, '{' | '[')) - i32::from(matches!(c, '}' | ']'));
        match parts.last_mut() {
            Some(part) if c != ',' || depth > 0 => part.push(c),
            _ => parts.push(String::new()),
        }
    }
    let parts = parts.iter().map(|part| part.trim()).filter(|part| !part.is_empty());
    parts
        .map(|part| {
            let word = words.iter().find(|word| part.starts_with(&format!("{word} ")));
            let word =
                *word.ok_or_else(|| format!("`{part}` does not start with one of {words:?}"))?;
            let value = part.get(word.len() + 1..).unwrap_or_default();
            Ok((word.to_owned(), value.to_owned()))
        })
        .collect()
}

/// JSON, or a text that is none: `${ input.id }`.
pub(super) fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| json!(text))
}

/// A value given as JSON, or by its size: `131073 bytes`, `33 levels`.
pub(super) fn value(text: &str) -> Value {
    let size = |unit| text.strip_suffix(unit).and_then(|number| number.parse::<usize>().ok());
    match (size(" bytes"), size(" levels")) {
        (Some(bytes), _) => json!("x".repeat(bytes.saturating_sub(2))),
        (_, Some(levels)) => (0..levels).fold(json!(1), |value, _| json!([value])),
        (None, None) => json(text),
    }
}

pub(super) fn duration(text: &str) -> Result<SignedDuration, String> {
    text.trim_start_matches('+').parse().map_err(|error| format!("`{text}`: {error}"))
}

/// What the left-hand side says.
pub(super) enum Happens {
    Submitted { input: Value, reply_to: Option<String> },
    Event { event: Event, redelivered: bool },
    TimePasses(SignedDuration),
}

pub(super) const TASK_ID: &str = "o-1";

pub(super) fn happens(left: &str) -> Result<Happens, String> {
    let (said, redelivered) = match left.strip_suffix(" (redelivered)") {
        Some(said) => (said, true),
        None => (left, false),
    };
    let (said, with) = match said.split_once(" with ") {
        Some((said, with)) if !said.starts_with("agent fails") => (said, with),
        _ => (said, "null"),
    };
    let event = match said.split(' ').collect::<Vec<_>>().as_slice() {
        ["submit", rest @ ..] => {
            let reply_to = match rest {
                [] => None,
                ["reply_to", queue] => Some((*queue).to_owned()),
                _ => return Err(format!("nobody knows what `{said}` means")),
            };
            return Ok(Happens::Submitted { input: value(with), reply_to });
        }
        ["clock", by] => return Ok(Happens::TimePasses(duration(by)?)),
        ["wake"] => Event::Wake,
        ["sweep"] => Event::Swept,
        ["alert", "sent"] => Event::AlertSent,
        ["agent", "completes", step, attempt] => {
            Event::Replied(reply(step, attempt, Outcome::Completed { output: value(with) })?)
        }
        ["agent", "fails", step, attempt, ..] => {
            let reason = said.split('"').nth(1).ok_or("a reason is missing")?.to_owned();
            Event::Replied(reply(step, attempt, Outcome::Failed { reason })?)
        }
        _ => return Err(format!("nobody knows what `{said}` means")),
    };
    Ok(Happens::Event { event, redelivered })
}

pub(super) fn reply(step: &str, attempt: &str, outcome: Outcome) -> Result<StepReply, String> {
    let attempt = attempt.strip_prefix('#').and_then(|number| number.parse().ok());
    Ok(StepReply {
        task_id: TASK_ID.parse().map_err(|error| format!("{error}"))?,
        step: step.parse().map_err(|error| format!("{error}"))?,
        attempt: attempt.ok_or("an attempt is written #1")?,
        outcome,
    })
}
