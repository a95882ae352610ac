//! Reading a story: its workflow, its times, its lines.

use std::{collections::BTreeMap, fs, time::Duration};
use steward_core::definition::plan::Plan;

use jiff::SignedDuration;
use serde_json::{Map, Value, json};
use steward_core::model::time::Timing;

use super::folder;

/// A story as it is written.
pub(super) struct Story {
    pub(super) workflow: Plan,
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

fn parse(text: &str) -> Result<Story, String> {
    let mut timing = Timing {
        pickup_within: Duration::from_secs(30),
        clock_skew: Duration::from_secs(2),
        retention: Timing::RETENTION,
    };
    let (mut about, mut steps, mut lines) = (BTreeMap::new(), Map::new(), Vec::new());
    for (number, line) in whole_lines(text) {
        let wrong = |what: String| format!("{number}: {what}");
        let (first, said) = line.trim().split_once(' ').unwrap_or((&line, ""));
        if first == "timing" {
            timing = read_timing(said).map_err(wrong)?;
        } else if first == "workflow" {
            about =
                options(said, &["within", "overdue", "with lifecycle", "output"]).map_err(wrong)?;
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
    let mut workflow = json!({
        "name": "order",
        "version": 1,
        "complete_within": about.remove("within").unwrap_or("1h".to_owned()),
        "overdue": about.remove("overdue").unwrap_or("alert".to_owned()),
        "lifecycle_events": about.contains_key("with lifecycle"),
        "steps": steps,
    });
    if let (Some(output), Some(workflow)) = (about.remove("output"), workflow.as_object_mut()) {
        workflow.insert("output".to_owned(), json(&output));
    }
    let workflow: Plan = serde_json::from_value(workflow).map_err(|error| format!("1: {error}"))?;
    match workflow.problems().first() {
        Some(problem) => Err(format!("1: {problem}")),
        None => Ok(Story { workflow, timing, lines }),
    }
}

/// The lines that say something, each with those that go on with it, and blanks as one space. A
/// step's keeps one blank in front.
fn whole_lines(text: &str) -> Vec<(usize, String)> {
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

fn read_timing(said: &str) -> Result<Timing, String> {
    let found = options(said, &["clock skew", "pickup within"])?;
    let time = |name: &str| {
        duration(found.get(name).ok_or(format!("no {name}"))?)?
            .try_into()
            .map_err(|_| format!("{name} is negative"))
    };
    Ok(Timing {
        pickup_within: time("pickup within")?,
        clock_skew: time("clock skew")?,
        retention: Timing::RETENTION,
    })
}

/// What doing a step and undoing it have in common.
const ACTION_WORDS: [&str; 6] =
    ["within", "attempts", "backoff from", "extended wait", "path", "body"];

/// A step's definition: `after a and b, within 30s, attempts 2, then undo, undo (path /refund)`.
fn step(name: &str, said: &str) -> Result<Value, String> {
    let words = ["after", "then", "not idempotent", "point of no return", "undo"];
    let kinds = ["when", "for each", "wait", "callback within", "workflow"];
    let mut found = options(said, &[&words[..], &kinds, &ACTION_WORDS].concat())?;
    let after = found.remove("after").unwrap_or_default();
    let after: Value = after.split(" and ").filter(|step| !step.is_empty()).collect();
    if let Some(wait) = found.remove("wait") {
        return Ok(with_when(&mut found, json!({ "after": after, "wait": wait })));
    }
    let body = found.get("body").map(|body| json(body));
    let mut definition = action(&mut found, &format!("/{name}"))?;
    if let Some(child) = found.remove("workflow") {
        definition.remove("request");
        definition.insert("after".to_owned(), after);
        definition.insert("workflow".to_owned(), json!({ "name": child, "input": body }));
        for_each(&mut found, &mut definition)?;
        return Ok(with_when(&mut found, definition.into()));
    }
    let said = Map::from_iter([
        ("agent".to_owned(), json!(format!("{name}-agent"))),
        ("after".to_owned(), after),
        ("idempotent".to_owned(), json!(!found.contains_key("not idempotent"))),
        ("point_of_no_return".to_owned(), json!(found.contains_key("point of no return"))),
    ]);
    definition.extend(said);
    if let Some(undo) = found.remove("undo") {
        let undo = undo.trim_start_matches('(').trim_end_matches(')');
        let mut found = options(undo, &ACTION_WORDS)?;
        definition.insert("undo".to_owned(), action(&mut found, &format!("/{name}/undo"))?.into());
    }
    if let Some(callback) = found.remove("callback within") {
        definition.insert("callback".to_owned(), read_callback(&callback));
    }
    for_each(&mut found, &mut definition)?;
    Ok(with_when(&mut found, definition.into()))
}

fn with_when(found: &mut BTreeMap<String, String>, mut definition: Value) -> Value {
    if let (Some(when), Some(definition)) = (found.remove("when"), definition.as_object_mut()) {
        definition.insert("when".to_owned(), json!(when));
    }
    definition
}

/// `for each ${ input.items } 2 at once`.
fn for_each(
    found: &mut BTreeMap<String, String>,
    definition: &mut Map<String, Value>,
) -> Result<(), String> {
    let Some(said) = found.remove("for each") else { return Ok(()) };
    let said = said.strip_suffix(" at once").ok_or("items go `2 at once`")?;
    let (items, at_once) = said.rsplit_once(' ').ok_or("items go `2 at once`")?;
    let each = json!({ "items": items, "at_once": json(at_once) });
    definition.insert("for_each".to_owned(), each);
    Ok(())
}

/// `callback within 1h`, `callback within 1h heard every 10m`.
fn read_callback(said: &str) -> Value {
    match said.split_once(" heard every ") {
        Some((within, heartbeat)) => json!({ "within": within, "heartbeat": heartbeat }),
        None => json!({ "within": said }),
    }
}

fn action(found: &mut BTreeMap<String, String>, path: &str) -> Result<Map<String, Value>, String> {
    let mut take = |word: &str, usual: &str| found.remove(word).unwrap_or(usual.to_owned());
    let backoff = take("backoff from", "0s");
    let mut recovery = Map::from_iter([
        ("attempts".to_owned(), json(&take("attempts", "3"))),
        ("backoff".to_owned(), read_backoff(&backoff)?),
        ("then".to_owned(), json!(take("then", "alert"))),
    ]);
    // `extended wait 15m 2 times`.
    match take("extended wait", "").split(' ').collect::<Vec<_>>().as_slice() {
        [""] => {}
        [wait, times, "times" | "time"] => {
            let extended = json!({ "wait": wait, "times": json(times) });
            recovery.insert("extended_wait".to_owned(), extended);
        }
        _ => return Err("an extended wait is `15m 2 times`".to_owned()),
    }
    let (path, body) = (take("path", path), json(&take("body", "null")));
    Ok(Map::from_iter([
        ("complete_within".to_owned(), json!(take("within", "60s"))),
        ("recovery".to_owned(), recovery.into()),
        ("request".to_owned(), json!({ "path": path, "body": body })),
    ]))
}

/// `backoff from 2s`, `backoff from 2s rate 3 up to 20s with jitter`.
fn read_backoff(said: &str) -> Result<Value, String> {
    let (said, jitter) = match said.strip_suffix(" with jitter") {
        Some(said) => (said, true),
        None => (said, false),
    };
    let (said, max) = said.split_once(" up to ").unwrap_or((said, "60s"));
    let (first, rate) = said.split_once(" rate ").unwrap_or((said, "2"));
    Ok(json!({ "first": first, "rate": json(rate), "max": max, "jitter": jitter }))
}

/// Reads `word value, word, word value`; a comma inside brackets of any kind belongs to the value.
fn options(said: &str, words: &[&str]) -> Result<BTreeMap<String, String>, String> {
    let mut parts = vec![String::new()];
    let mut depth = 0;
    for c in said.chars() {
        depth += i32::from(matches!(c, '{' | '[' | '(')) - i32::from(matches!(c, '}' | ']' | ')'));
        match parts.last_mut() {
            Some(part) if c != ',' || depth > 0 => part.push(c),
            _ => parts.push(String::new()),
        }
    }
    let parts = parts.iter().map(|part| part.trim()).filter(|part| !part.is_empty());
    parts
        .map(|part| {
            let starts = |word: &&&str| part == **word || part.starts_with(&format!("{word} "));
            let word = *words
                .iter()
                .find(starts)
                .ok_or_else(|| format!("`{part}` does not start with one of {words:?}"))?;
            let value = part.get(word.len() + 1..).unwrap_or_default();
            Ok((word.to_owned(), value.to_owned()))
        })
        .collect()
}

/// JSON, or a text that is none: `${ input.id }`.
pub(super) fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| json!(text))
}

pub(super) fn duration(text: &str) -> Result<SignedDuration, String> {
    text.trim_start_matches('+').parse().map_err(|error| format!("`{text}`: {error}"))
}
