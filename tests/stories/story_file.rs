//! Parses a story file: workflow, timing, lines.

use std::{collections::BTreeMap, fs, path::Path, time::Duration};

use jiff::SignedDuration;
use serde_json::{Map, Value, json};
use steward_core::{
    definition::plan::Plan,
    model::{lifecycle::LifecycleEventKind, time::Timing},
};

/// A parsed story.
pub(super) struct Story {
    pub(super) plan: Plan,
    pub(super) timing: Timing,
    pub(super) lines: Vec<StoryLine>,
}

/// One line: an event, and the decision that is expected for it.
pub(super) struct StoryLine {
    /// The line's number in the file.
    pub(super) number: usize,
    /// The text left of `=>`.
    pub(super) event: String,
    /// The text right of `=>`.
    pub(super) expected: String,
}

impl Story {
    /// Reads a story file.
    ///
    /// # Errors
    /// The error with its file and line.
    pub(super) fn read(file: &Path) -> Result<Self, String> {
        let name = display_name(file);
        let text = fs::read_to_string(file).map_err(|error| format!("{name}: {error}"))?;
        parse(&text).map_err(|problem| format!("{name}:{problem}"))
    }
}

/// The path of a story from the root of the repository.
pub(super) fn display_name(file: &Path) -> String {
    format!("tests/stories/{}", file.file_name().unwrap_or_default().display())
}

fn parse(text: &str) -> Result<Story, String> {
    let mut timing = Timing {
        pickup_within: Duration::from_secs(30),
        clock_skew: Duration::from_secs(2),
        retention: Timing::RETENTION,
    };
    let (mut workflow_options, mut steps, mut lines) = (BTreeMap::new(), Map::new(), Vec::new());
    for (number, line) in joined_lines(text) {
        let with_number = |problem: String| format!("{number}: {problem}");
        let (first, rest) = line.trim().split_once(' ').unwrap_or((&line, ""));
        if first == "timing" {
            timing = parse_timing(rest).map_err(with_number)?;
        } else if first == "workflow" {
            let keys = ["within", "late after", "overdue", "with lifecycle", "output"];
            workflow_options = options(rest, &keys).map_err(with_number)?;
        } else if line.starts_with(' ') {
            let name = first.strip_suffix(':');
            let name = name.ok_or_else(|| with_number("a step is `name: ...`".into()))?;
            steps.insert(name.to_owned(), step(name, rest).map_err(with_number)?);
        } else {
            let (event, expected) = line.split_once("=>").unwrap_or((&line, ""));
            let (event, expected) = (event.trim().to_owned(), expected.trim().to_owned());
            lines.push(StoryLine { number, event, expected });
        }
    }
    let mut workflow = json!({
        "name": "order",
        "version": 1,
        "complete_within": workflow_options.remove("within").unwrap_or("1h".to_owned()),
        "warn_after": workflow_options.remove("late after"),
        "overdue": workflow_options.remove("overdue").unwrap_or("alert".to_owned()),
        "lifecycle_events": match workflow_options.contains_key("with lifecycle") {
            true => &LifecycleEventKind::ALL[..],
            false => &[],
        },
        "steps": steps,
    });
    if let (Some(output), Some(workflow)) =
        (workflow_options.remove("output"), workflow.as_object_mut())
    {
        workflow.insert("output".to_owned(), json(&output));
    }
    let plan: Plan = serde_json::from_value(workflow).map_err(|error| format!("1: {error}"))?;
    match plan.problems().first() {
        Some(problem) => Err(format!("1: {problem}")),
        None => Ok(Story { plan, timing, lines }),
    }
}

/// The lines without comments and empty lines, each with its number and joined with its continuation lines. Runs of
/// spaces become one space. The line of a step begins with a space.
fn joined_lines(text: &str) -> Vec<(usize, String)> {
    let mut joined: Vec<(usize, String)> = Vec::new();
    for (n, line) in text.lines().enumerate() {
        let words = line.split_whitespace().collect::<Vec<_>>().join(" ");
        match joined.last_mut() {
            _ if words.is_empty() || line.starts_with('#') => {}
            Some((_, last)) if line.starts_with("    ") => *last = format!("{last} {words}"),
            Some(_) | None if line.starts_with(' ') => joined.push((n + 1, format!(" {words}"))),
            Some(_) | None => joined.push((n + 1, words)),
        }
    }
    joined
}

fn parse_timing(text: &str) -> Result<Timing, String> {
    let found = options(text, &["clock skew", "pickup within"])?;
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

/// The options that both a step and an undo have.
const ACTION_OPTIONS: [&str; 8] = [
    "within",
    "attempts",
    "backoff from",
    "extended wait",
    "gives up after",
    "key valid for",
    "path",
    "body",
];

/// Parses a step: `after a and b, within 30s, attempts 2, then undo, undo (path /refund)`.
fn step(name: &str, text: &str) -> Result<Value, String> {
    let general = ["after", "then", "not idempotent", "point of no return", "undo"];
    let kinds = [
        "when",
        "for each",
        "repeat",
        "wait",
        "fails with",
        "callback within",
        "workflow",
        "agents",
    ];
    let mut found = options(text, &[&general[..], &kinds, &ACTION_OPTIONS].concat())?;
    let after = found.remove("after").unwrap_or_default();
    let after: Value = after.split(" and ").filter(|step| !step.is_empty()).collect();
    if let Some(wait) = found.remove("wait") {
        return Ok(with_when(&mut found, json!({ "after": after, "wait": wait })));
    }
    if let Some(reason) = found.remove("fails with") {
        let then = found.remove("then").unwrap_or("alert".to_owned());
        let recovery = json!({ "then": then });
        let definition = json!({ "after": after, "fail": reason, "recovery": recovery });
        return Ok(with_when(&mut found, definition));
    }
    let body = found.get("body").map(|body| json(body));
    let mut definition = action(&mut found, &format!("/{name}"))?;
    if let Some(child) = found.remove("workflow") {
        definition.remove("request");
        definition.insert("after".to_owned(), after);
        definition.insert("workflow".to_owned(), json!({ "name": child, "input": body }));
        if found.remove("point of no return").is_some() {
            definition.insert("point_of_no_return".to_owned(), json!(true));
        }
        for_each(&mut found, &mut definition)?;
        repeat(&mut found, &mut definition)?;
        return Ok(with_when(&mut found, definition.into()));
    }
    let agents = found.remove("agents").map(|agents| agents.split(" and ").collect());
    let fields = Map::from_iter([
        ("agent".to_owned(), agents.unwrap_or(json!(format!("{name}-agent")))),
        ("after".to_owned(), after),
        ("idempotent".to_owned(), json!(!found.contains_key("not idempotent"))),
        ("point_of_no_return".to_owned(), json!(found.contains_key("point of no return"))),
    ]);
    definition.extend(fields);
    if let Some(undo) = found.remove("undo") {
        let undo = undo.trim_start_matches('(').trim_end_matches(')');
        let mut found = options(undo, &[&["at"][..], &ACTION_OPTIONS].concat())?;
        let agent = found.remove("at");
        let mut undo = action(&mut found, &format!("/{name}/undo"))?;
        undo.extend(agent.map(|agent| ("agent".to_owned(), json!(agent))));
        definition.insert("undo".to_owned(), undo.into());
    }
    if let Some(callback) = found.remove("callback within") {
        definition.insert("callback".to_owned(), parse_callback(&callback));
    }
    for_each(&mut found, &mut definition)?;
    repeat(&mut found, &mut definition)?;
    Ok(with_when(&mut found, definition.into()))
}

fn with_when(found: &mut BTreeMap<String, String>, mut definition: Value) -> Value {
    if let (Some(when), Some(definition)) = (found.remove("when"), definition.as_object_mut()) {
        definition.insert("when".to_owned(), json!(when));
    }
    definition
}

/// Parses `for each ${ input.items } 2 at once`.
fn for_each(
    found: &mut BTreeMap<String, String>,
    definition: &mut Map<String, Value>,
) -> Result<(), String> {
    let Some(text) = found.remove("for each") else { return Ok(()) };
    let error = "`for each` is `for each ${ ... } 2 at once`";
    let text = text.strip_suffix(" at once").ok_or(error)?;
    let (items, at_once) = text.rsplit_once(' ').ok_or(error)?;
    let each = json!({ "items": items, "at_once": json(at_once) });
    definition.insert("for_each".to_owned(), each);
    Ok(())
}

/// Parses `repeat until ${ item.next == null } at most 5`.
fn repeat(
    found: &mut BTreeMap<String, String>,
    definition: &mut Map<String, Value>,
) -> Result<(), String> {
    let Some(text) = found.remove("repeat") else { return Ok(()) };
    let text = text.strip_prefix("until ").and_then(|text| text.rsplit_once(" at most "));
    let (until, at_most) = text.ok_or("`repeat` is `repeat until ${ ... } at most 5`")?;
    let repeat = json!({ "first": "${ input }", "until": until, "at_most": json(at_most) });
    definition.insert("repeat".to_owned(), repeat);
    Ok(())
}

/// Parses `callback within 1h`, `callback within 1h heartbeat every 10m` or `callback within 1h as {"type":"integer"}`.
fn parse_callback(text: &str) -> Value {
    if let Some((within, schema)) = text.split_once(" as ") {
        return json!({ "within": within, "answer": json(schema) });
    }
    match text.split_once(" heartbeat every ") {
        Some((within, heartbeat)) => json!({ "within": within, "heartbeat": heartbeat }),
        None => json!({ "within": text }),
    }
}

fn action(found: &mut BTreeMap<String, String>, path: &str) -> Result<Map<String, Value>, String> {
    let mut take = |key: &str, default: &str| found.remove(key).unwrap_or(default.to_owned());
    let backoff = take("backoff from", "0s");
    let mut recovery = Map::from_iter([
        ("attempts".to_owned(), json(&take("attempts", "3"))),
        ("backoff".to_owned(), parse_backoff(&backoff)?),
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
    for (option, key) in [("gives up after", "give_up_after"), ("key valid for", "key_valid_for")] {
        let limit = take(option, "");
        if !limit.is_empty() {
            recovery.insert(key.to_owned(), json!(limit));
        }
    }
    let (path, body) = (take("path", path), json(&take("body", "null")));
    Ok(Map::from_iter([
        ("complete_within".to_owned(), json!(take("within", "60s"))),
        ("recovery".to_owned(), recovery.into()),
        ("request".to_owned(), json!({ "path": path, "body": body })),
    ]))
}

/// Parses `backoff from 2s` or `backoff from 2s rate 3 up to 20s with jitter`.
fn parse_backoff(text: &str) -> Result<Value, String> {
    let (text, jitter) = match text.strip_suffix(" with jitter") {
        Some(rest) => (rest, true),
        None => (text, false),
    };
    let (text, max) = text.split_once(" up to ").unwrap_or((text, "60s"));
    let (first, rate) = text.split_once(" rate ").unwrap_or((text, "2"));
    Ok(json!({ "first": first, "rate": json(rate), "max": max, "jitter": jitter }))
}

/// Parses `key value, key, key value`. A comma inside brackets belongs to the value.
fn options(text: &str, keys: &[&str]) -> Result<BTreeMap<String, String>, String> {
    let mut parts = vec![String::new()];
    let mut depth = 0;
    for c in text.chars() {
        depth += i32::from(matches!(c, '{' | '[' | '(')) - i32::from(matches!(c, '}' | ']' | ')'));
        match parts.last_mut() {
            Some(part) if c != ',' || depth > 0 => part.push(c),
            _ => parts.push(String::new()),
        }
    }
    let parts = parts.iter().map(|part| part.trim()).filter(|part| !part.is_empty());
    parts
        .map(|part| {
            let starts = |key: &&&str| part == **key || part.starts_with(&format!("{key} "));
            let key = *keys
                .iter()
                .find(starts)
                .ok_or_else(|| format!("`{part}` does not start with one of {keys:?}"))?;
            let value = part.get(key.len() + 1..).unwrap_or_default();
            Ok((key.to_owned(), value.to_owned()))
        })
        .collect()
}

/// Parses JSON. Text that is not JSON becomes a string, such as `${ input.id }`.
pub(super) fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| json!(text))
}

/// Parses a duration, such as `+22s`.
pub(super) fn duration(text: &str) -> Result<SignedDuration, String> {
    text.trim_start_matches('+').parse().map_err(|error| format!("`{text}`: {error}"))
}
