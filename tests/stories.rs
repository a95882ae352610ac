//! Stories of the pure core, as text tables: left what happens, right what the core answers.
//!
//! ```text
//! # The first line says it in one sentence.
//! timing   clock skew 2s, pickup within 30s
//! workflow within 10m
//!   reserve: within 20s, attempts 2
//!   charge:  after reserve, body ${ steps.reserve.output.id }
//!
//! submit                      => Pending; due 20s
//! wake                        => Processing; request reserve #1 by 20s
//! clock +22s
//! sweep                       => reserve waiting (failures 1, reason kept); unlocked; due 52s; wake scheduler
//! ```
//!
//! The clock starts at 0s and moves only where a story says so; every time is counted from that
//! start. An answer first says what is saved (the task's new state, its steps with the documents
//! kept beside it, when it is due), then what is sent. Only what changed is said. A line that is
//! indented goes on with the one before it.
//!
//! The runner plays the shell's part: it hands over the documents that `needs` asked for and no
//! others, saves, and stores documents. After every line it also checks what holds in every story:
//! see [`laws`].

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};
use steward_core::{
    effects::Effect,
    messages::{Alert, BusEvent, Outcome, StepReply, StepRequest, Submission, WakeCause, idempotency_key},
    names::StepName,
    ports::{Document, DocumentKey, Timing},
    submission::accept,
    task::{ProcessState, StepRecord, StepState, Task},
    transition::{Context, Documents, Event, Transition, needs, transition},
    workflow::Workflow,
};

macro_rules! stories {
    ($($name:ident)+) => {
        const STORIES: &[&str] = &[$(stringify!($name)),+];

        $(
            #[test]
            fn $name() {
                if let Err(report) = tell(stringify!($name)) {
                    panic!("{report}");
                }
            }
        )+
    };
}

stories! {
    alert_lost_in_a_crash_is_sent_again
    branches_run_side_by_side_and_join
    client_hears_processed_and_error
    clock_skew_is_waited_out
    duplicate_reply_is_ignored_and_its_effects_are_sent_again_only_if_redelivered
    illegal_events_are_refused
    late_branch_is_still_recorded_after_error
    late_reply_is_ignored
    lifecycle_event_if_wanted
    lost_recovery_wake_is_made_good
    lost_wake_is_made_good_by_the_supervisor
    oversized_output_is_a_failure
    permanent_failure_alerts_at_once
    redelivered_wake_sends_its_effects_again
    request_that_cannot_be_made_fails_its_step
    second_supervisor_counts_nothing
    silent_agent_is_repeated_then_error_and_alert
    stale_attempt_is_fenced
    straight_way_to_processed
    supervisor_too_early_only_moves_due
    task_past_its_own_complete_by_is_an_error
}

#[test]
fn every_story_in_the_folder_is_told() {
    let mut found: Vec<_> = fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    found.sort();
    let listed: Vec<_> = STORIES.iter().map(|name| format!("{name}.story")).collect();
    assert_eq!(found, listed);
}

#[test]
fn every_arrow_of_the_table_is_walked() {
    let (table, walk) = (table(), walk_all());
    assert!(table.len() > 10, "the table of transition.rs was not found: {table:?}");
    let left: Vec<_> = table.difference(&walk.arrows).collect();
    assert!(left.is_empty(), "no story walks:\n{left:#?}");
}

#[test]
fn every_arrow_that_is_walked_is_in_the_table() {
    let (table, walk) = (table(), walk_all());
    let left: Vec<_> = walk.arrows.difference(&table).collect();
    assert!(left.is_empty(), "not in the table of transition.rs:\n{left:#?}");
}

#[test]
fn every_reason_to_ignore_is_told() {
    let reasons = ["DuplicateReply", "Ended", "LateReply", "NotDue", "NothingReady", "StaleReply"];
    assert_eq!(walk_all().reasons, BTreeSet::from(reasons.map(str::to_owned)));
}

/// What the stories have walked over.
#[derive(Default)]
struct Walk {
    arrows: BTreeSet<Arrow>,
    reasons: BTreeSet<String>,
}

/// A row of the table at the top of transition.rs: state, event, what it becomes.
type Arrow = (String, String, String);

fn walk_all() -> Walk {
    let mut walk = Walk::default();
    for story in STORIES.iter().filter_map(|name| read(name).ok()) {
        let mut world = World::new(&story);
        for line in &story.lines {
            // A story that is not right says so in its own test.
            let _ = world.play(line);
        }
        walk.arrows.extend(world.walk.arrows);
        walk.reasons.extend(world.walk.reasons);
    }
    walk
}

/// The rows of the table. `same, x` stands for the event of the row above, and x.
fn table() -> BTreeSet<Arrow> {
    let source = include_str!("../crates/core/src/transition.rs");
    let rows = source.lines().filter_map(|line| line.strip_prefix("//! | "));
    let mut above = String::new();
    rows.skip(2)
        .filter_map(|row| {
            let mut cells = row.split('|').map(str::trim);
            let (state, event, becomes) = (cells.next()?, cells.next()?, cells.next()?);
            above = event.strip_prefix("same").map_or(event.to_owned(), |rest| format!("{above}{rest}"));
            Some((state.to_owned(), above.clone(), becomes.to_owned()))
        })
        .collect()
}

/// The arrow that was walked, in the table's words. What is ignored has none.
fn arrow(before: &Task, event: &Event, answer: &Transition) -> Option<Arrow> {
    let after = match answer {
        Transition::Apply { task, .. } => Some(task),
        Transition::Illegal(_) if before.process_state == ProcessState::Pending => None,
        Transition::Illegal(_) | Transition::Ignore { .. } => return None,
    };
    let becomes = after.map_or("illegal".to_owned(), |task| task.process_state.to_string());
    let failed = |task: &Task| {
        task.steps.values().filter(|step| matches!(step.state, StepState::Failed { .. })).count()
    };
    let some_failed = after.is_some_and(|after| failed(after) > failed(before));
    let counted = after.is_some_and(|after| after.failure_count > before.failure_count);
    let words = match (event, before.process_state, becomes.as_str()) {
        (Event::Wake, ..) if some_failed => "wake, request cannot be made",
        (Event::Wake, ..) => "wake",
        (Event::AlertSent, ..) => "alert sent",
        (Event::Swept, ProcessState::Pending, "Pending") => "swept, past due",
        (Event::Swept, ProcessState::Error, _) => "swept, alert unsent",
        (Event::Swept, _, "Error") if some_failed => "swept, step past due, attempts used up",
        (Event::Swept, _, "Error") => "swept, task past due",
        (Event::Swept, ..) if counted => "swept, step past due",
        (Event::Swept, ..) => "swept, nothing past due",
        (Event::Replied(_), ProcessState::Pending, _) => "reply",
        (Event::Replied(reply), state, becomes) => match reply.outcome {
            Outcome::Completed { .. } if becomes == "Processed" => "reply completed, last",
            Outcome::Completed { .. } if some_failed && state == ProcessState::Processing => {
                "reply completed, output or next request impossible"
            }
            Outcome::Completed { .. } => "reply completed",
            Outcome::Failed { .. } => "reply failed",
        },
    };
    Some((before.process_state.to_string(), words.to_owned(), becomes))
}

fn folder() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "stories"].iter().collect()
}

/// Tells one story; all that is not as it says, with file and line.
fn tell(name: &str) -> Result<(), String> {
    let story = read(name)?;
    let mut world = World::new(&story);
    let mut wrong = String::new();
    for line in &story.lines {
        let Line { number, left, right } = line;
        let at = format!("tests/stories/{name}.story:{number}\n  {left}\n");
        match world.play(line) {
            Ok(said) if said == *right => {}
            Ok(said) => {
                wrong.push_str(&format!("{at}  expected: {right}\n  got:      {said}\n"));
            }
            Err(problem) => return Err(format!("{wrong}{at}  {problem}")),
        }
        for law in std::mem::take(&mut world.broken) {
            wrong.push_str(&format!("{at}  broken:   {law}\n"));
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong) }
}

/// A story as it is written.
struct Story {
    workflow: Workflow,
    timing: Timing,
    lines: Vec<Line>,
}

/// One line: what happens, and the answer.
struct Line {
    number: usize,
    left: String,
    right: String,
}

fn read(name: &str) -> Result<Story, String> {
    let file = folder().join(format!("{name}.story"));
    let text = fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    parse(&text).map_err(|problem| format!("tests/stories/{name}.story:{problem}"))
}

fn parse(text: &str) -> Result<Story, String> {
    let mut timing = Map::new();
    let mut workflow = json!({ "name": "order", "version": 1, "steps": {} });
    let mut lines: Vec<Line> = Vec::new();
    let numbered = text.lines().enumerate().map(|(at, line)| (at + 1, line));
    for (number, line) in numbered.filter(|(_, line)| !line.starts_with('#') && !line.is_empty()) {
        let wrong = |what: String| format!("{number}: {what}");
        let words = line.split_whitespace().collect::<Vec<_>>().join(" ");
        if let Some(said) = words.strip_prefix("timing ") {
            timing = options(said, &["clock skew", "pickup within"]).map_err(wrong)?;
        } else if words == "workflow" || words.starts_with("workflow ") {
            let said = words.trim_start_matches("workflow").trim_start();
            let found = options(said, &["within", "with"]).map_err(wrong)?;
            workflow["complete_within"] = found.get("within").cloned().unwrap_or(json!("1h"));
            workflow["lifecycle_events"] = json!(found.get("with") == Some(&json!("lifecycle events")));
        } else if !line.starts_with(' ') {
            lines.push(Line { number, left: words, right: String::new() });
        } else if let Some(last) = lines.last_mut() {
            last.left = format!("{} {words}", last.left);
        } else {
            let (name, said) = words.split_once(':').ok_or_else(|| wrong("no step".into()))?;
            workflow["steps"][name] = step(name, said.trim()).map_err(wrong)?;
        }
    }
    for line in &mut lines {
        if let Some((left, right)) = line.left.split_once("=>") {
            (line.left, line.right) = (left.trim().to_owned(), right.trim().to_owned());
        }
    }
    let workflow: Workflow = serde_json::from_value(workflow).map_err(|error| format!("1: {error}"))?;
    if let Some(problem) = workflow.problems().first() {
        return Err(format!("1: {problem}"));
    }
    let time = |name: &str, usual: &str| {
        let text = timing.get(name).and_then(Value::as_str).unwrap_or(usual);
        duration(text)?.try_into().map_err(|_| format!("1: {name} is negative"))
    };
    let timing =
        Timing { pickup_within: time("pickup within", "30s")?, clock_skew: time("clock skew", "2s")? };
    Ok(Story { workflow, timing, lines })
}

/// A step's definition: `after a and b, within 30s, attempts 2, path /p, body {...}`.
fn step(name: &str, said: &str) -> Result<Value, String> {
    let mut found = options(said, &["after", "within", "attempts", "path", "body"])?;
    let path = found.remove("path").unwrap_or_else(|| json!(format!("/{name}")));
    let mut step = json!({ "agent": format!("{name}-agent"), "request": { "path": path } });
    for (word, value) in found {
        let text = value.as_str().unwrap_or_default();
        match word.as_str() {
            "after" => step["after"] = text.split(" and ").collect(),
            "attempts" => step["attempts"] = json(text),
            "body" => step["request"]["body"] = json(text),
            _ => step["complete_within"] = value,
        }
    }
    Ok(step)
}

/// Reads `word value, word value`; a comma inside braces belongs to the value.
fn options(said: &str, words: &[&str]) -> Result<Map<String, Value>, String> {
    let mut parts = vec![String::new()];
    let mut depth = 0;
    for c in said.chars() {
        depth += i32::from(c == '{') - i32::from(c == '}');
        match parts.last_mut() {
            Some(part) if c != ',' || depth > 0 => part.push(c),
            _ => parts.push(String::new()),
        }
    }
    let parts = parts.iter().map(|part| part.trim()).filter(|part| !part.is_empty());
    parts
        .map(|part| {
            let word = words.iter().find(|word| part.starts_with(&format!("{word} ")));
            let word = *word.ok_or_else(|| format!("`{part}` does not start with one of {words:?}"))?;
            let value = part.get(word.len() + 1..).unwrap_or_default();
            Ok((word.to_owned(), json!(value)))
        })
        .collect()
}

/// JSON, or a text that is none: `${ input.id }`.
fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| json!(text))
}

/// A value given as JSON, or by its size: `131073 bytes`, `33 levels`.
fn value(text: &str) -> Value {
    let size = |unit| text.strip_suffix(unit).and_then(|number| number.parse::<usize>().ok());
    match (size(" bytes"), size(" levels")) {
        (Some(bytes), _) => json!("x".repeat(bytes.saturating_sub(2))),
        (_, Some(levels)) => (0..levels).fold(json!(1), |value, _| json!([value])),
        (None, None) => json(text),
    }
}

fn duration(text: &str) -> Result<SignedDuration, String> {
    text.trim_start_matches('+').parse().map_err(|error| format!("`{text}`: {error}"))
}

/// What the left-hand side says.
enum Happens {
    Submitted { input: Value, reply_to: Option<String> },
    Event { event: Event, redelivered: bool },
    TimePasses(SignedDuration),
}

const TASK_ID: &str = "o-1";

fn happens(left: &str) -> Result<Happens, String> {
    let (said, redelivered) = match left.strip_suffix(" (redelivered)") {
        Some(said) => (said, true),
        None => (left, false),
    };
    let (said, with) = said.split_once(" with ").unwrap_or((said, "null"));
    let event = match said.split(' ').collect::<Vec<_>>().as_slice() {
        ["submit", rest @ ..] => {
            let reply_to = match rest {
                ["reply_to", queue] => Some((*queue).to_owned()),
                _ => None,
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

fn reply(step: &str, attempt: &str, outcome: Outcome) -> Result<StepReply, String> {
    let attempt = attempt.strip_prefix('#').and_then(|number| number.parse().ok());
    Ok(StepReply {
        task_id: TASK_ID.parse().map_err(|error| format!("{error}"))?,
        step: step.parse().map_err(|error| format!("{error}"))?,
        attempt: attempt.ok_or("an attempt is written #1")?,
        outcome,
    })
}

/// The shell of one story: the task as saved, the documents as stored, the clock.
struct World<'a> {
    story: &'a Story,
    task: Option<Task>,
    documents: Documents,
    now: Timestamp,
    /// The laws that the last line broke.
    broken: Vec<String>,
    walk: Walk,
}

impl<'a> World<'a> {
    fn new(story: &'a Story) -> Self {
        let (now, walk) = (Timestamp::UNIX_EPOCH, Walk::default());
        Self { story, task: None, documents: Documents::new(), now, broken: Vec::new(), walk }
    }

    /// Lets one line happen, and says what the core answered.
    fn play(&mut self, line: &Line) -> Result<String, String> {
        match happens(&line.left)? {
            Happens::TimePasses(by) => {
                self.now = self.now.checked_add(by).map_err(|error| error.to_string())?;
                Ok(String::new())
            }
            Happens::Submitted { input, reply_to } => self.submit(input, reply_to),
            Happens::Event { event, redelivered } => self.decide(&event, redelivered),
        }
    }

    fn submit(&mut self, input: Value, reply_to: Option<String>) -> Result<String, String> {
        let Story { workflow, timing, .. } = self.story;
        let task_id = TASK_ID.parse().map_err(|error| format!("{error}"))?;
        let name = workflow.name.clone();
        let submission = Submission { task_id, workflow: name, version: None, input, reply_to };
        let (task, document) = accept(&submission, workflow, None, self.now, *timing);
        self.broken = laws(workflow, None, &task, &Event::Wake, &[], self.now);
        self.documents.insert(document.key, document.body);
        let due = self.said_due(&task);
        let said = format!("{}; {due}", task.process_state);
        self.task = Some(task);
        Ok(said)
    }

    fn decide(&mut self, event: &Event, redelivered: bool) -> Result<String, String> {
        let before = self.task.clone().ok_or("nothing was submitted")?;
        let Story { workflow, timing, .. } = self.story;
        let actor = if *event == Event::Swept { "supervisor" } else { "scheduler" };
        let context = Context { now: self.now, actor, redelivered, timing: *timing };
        let mut asked = self.documents.clone();
        let wanted = needs(workflow, &before, event, context);
        asked.retain(|key, _| wanted.contains(key));
        let answer = transition(workflow, &before, &asked, event, context);
        if answer != transition(workflow, &before, &self.documents, event, context) {
            self.broken.push(format!("`needs` asks for all it takes; it asked for {wanted:?}"));
        }
        self.walk.arrows.extend(arrow(&before, event, &answer));
        Ok(match answer {
            Transition::Apply { task, documents, effects } => {
                self.store(&documents);
                self.broken.extend(laws(workflow, Some(&before), &task, event, &effects, self.now));
                self.broken.extend(self.points_at_nothing(&task));
                let mut said = self.said_saved(&before, &task, &documents, &effects);
                said.extend(effects.iter().map(|effect| self.said_effect(effect)));
                self.task = Some(*task);
                said.join("; ")
            }
            Transition::Ignore { reason, effects } => {
                self.walk.reasons.insert(format!("{reason:?}"));
                let again = effects.iter().map(|effect| format!("; again {}", self.said_effect(effect)));
                format!("ignored: {reason:?}{}", again.collect::<String>())
            }
            Transition::Illegal(reason) => format!("illegal: {reason}"),
        })
    }

    fn store(&mut self, documents: &[Document]) {
        for Document { key, body, .. } in documents {
            let stored = self.documents.entry(key.clone()).or_insert_with(|| body.clone());
            if stored != body {
                self.broken.push(format!("a document is written once; {key} was written before"));
            }
        }
    }

    /// The outputs that the state refers to and nobody stored.
    fn points_at_nothing(&self, task: &Task) -> Vec<String> {
        let missing = task.steps.iter().filter_map(|(step, record)| match record.state {
            StepState::Completed { attempt } => Some(DocumentKey::Output { step: step.clone(), attempt }),
            StepState::Running { .. } | StepState::Waiting { .. } | StepState::Failed { .. } => None,
        });
        let missing = missing.filter(|key| !self.documents.contains_key(key));
        missing.map(|key| format!("the state never points at nothing; it points at {key}")).collect()
    }

    fn said_saved(
        &self,
        before: &Task,
        after: &Task,
        documents: &[Document],
        effects: &[Effect],
    ) -> Vec<String> {
        let mut said = Vec::new();
        if after.process_state != before.process_state {
            said.push(after.process_state.to_string());
        }
        let mut kept: BTreeMap<_, _> = documents.iter().map(|made| (made.key.clone(), made)).collect();
        for name in self.story.workflow.steps.keys() {
            let (old, new) = (before.steps.get(name), after.steps.get(name));
            if let Some(new) = new.filter(|new| old != Some(*new)) {
                said.extend(self.said_step(name, old, new, &mut kept, effects));
            }
        }
        said.extend(kept.keys().map(|key| format!("document {key}")));
        if before.locked_by.is_some() && after.locked_by.is_none() && !after.process_state.is_final() {
            said.push("unlocked".to_owned());
        }
        if after.due != before.due {
            said.push(self.said_due(after));
        }
        if said.is_empty() && effects.is_empty() {
            said.push("nothing".to_owned());
        }
        said
    }

    /// `reserve waiting (failures 1, reason kept)`. A step that runs is said by its request.
    fn said_step(
        &self,
        name: &StepName,
        old: Option<&StepRecord>,
        new: &StepRecord,
        kept: &mut BTreeMap<DocumentKey, &Document>,
        effects: &[Effect],
    ) -> Option<String> {
        let state = new.state.name();
        let requested = |attempt: u32| {
            effects.iter().any(|effect| {
                matches!(effect, Effect::Request(request)
                    if request.step == *name && request.attempt == attempt)
            })
        };
        let mut said = match new.state {
            StepState::Running { attempt, .. } if requested(attempt) => return None,
            StepState::Running { attempt, .. } => format!("{name} {state} #{attempt}"),
            StepState::Waiting { until, .. } if until != self.now => {
                format!("{name} {state} until {}", since_start(until))
            }
            StepState::Waiting { .. } | StepState::Completed { .. } | StepState::Failed { .. } => {
                format!("{name} {state}")
            }
        };
        let (step, attempt) = (name.clone(), new.state.attempt());
        let mut details = Vec::new();
        if new.failure_count != old.map_or(0, |old| old.failure_count) {
            details.push(format!("failures {}", new.failure_count));
        }
        if kept.remove(&DocumentKey::Output { step: step.clone(), attempt }).is_some() {
            details.push("output kept".to_owned());
        }
        if kept.remove(&DocumentKey::Failure { step, attempt }).is_some() {
            details.push("reason kept".to_owned());
        }
        if !details.is_empty() {
            said.push_str(&format!(" ({})", details.join(", ")));
        }
        Some(said)
    }

    fn said_due(&self, task: &Task) -> String {
        task.due.map_or("no longer due".to_owned(), |due| format!("due {}", since_start(due)))
    }

    fn said_effect(&self, effect: &Effect) -> String {
        match effect {
            Effect::Request(request) => said_request(request),
            Effect::Wake(wake) if wake.cause == WakeCause::Recovery => "wake scheduler".to_owned(),
            Effect::Notice { queue, notice } => {
                let status = json!(notice.status);
                let status = status.as_str().unwrap_or_default();
                let reason = notice.reason.iter().map(|reason| format!(" \"{reason}\""));
                format!("notice to {queue}: {status}{}", reason.collect::<String>())
            }
            Effect::Publish(BusEvent::Alert(Alert::TaskInError { steps, reason, .. })) => {
                let steps: Vec<_> = steps.iter().map(StepName::as_str).collect();
                let steps = if steps.is_empty() { String::new() } else { format!(" {}", steps.join(", ")) };
                format!("alert{steps} \"{reason}\"")
            }
            Effect::Publish(BusEvent::TaskEnded(ended)) => {
                format!("event: ended in {}", ended.process_state)
            }
            Effect::Wake(_) | Effect::Reply(_) | Effect::Reject { .. } | Effect::Publish(_) => {
                format!("{effect:?}")
            }
        }
    }
}

/// `request charge #1 by 35s at /path with {"body":1}`; a path that is just the step's name is not
/// said.
fn said_request(request: &StepRequest) -> String {
    let StepRequest { step, attempt, complete_by, path, body, .. } = request;
    let mut said = format!("request {step} #{attempt} by {}", since_start(*complete_by));
    if *path != format!("/{step}") {
        said.push_str(&format!(" at {path}"));
    }
    if let Some(body) = body {
        said.push_str(&format!(" with {body}"));
    }
    said
}

/// A time as stories write it: `63s` after the start.
fn since_start(time: Timestamp) -> String {
    let millis = time.as_millisecond();
    match millis % 1000 {
        0 => format!("{}s", millis / 1000),
        rest => format!("{}.{rest:03}s", millis / 1000),
    }
}

/// What holds after every line of every story; answers with what is broken.
fn laws(
    workflow: &Workflow,
    before: Option<&Task>,
    after: &Task,
    event: &Event,
    effects: &[Effect],
    now: Timestamp,
) -> Vec<String> {
    let is_final = after.process_state.is_final();
    let was_final = before.is_some_and(|before| before.process_state.is_final());
    let ends = is_final && !was_final;
    let stays_due = |before: &Task| before.due.is_none() || after.due.is_some();
    let count = |wanted: fn(&Effect) -> bool| effects.iter().filter(|effect| wanted(effect)).count();
    let alerts = count(|effect| matches!(effect, Effect::Publish(BusEvent::Alert(_))));
    let notices = count(|effect| matches!(effect, Effect::Notice { .. }));
    let in_error = after.process_state == ProcessState::Error;
    let again: Option<Task> =
        serde_json::to_value(after).ok().and_then(|stored| serde_json::from_value(stored).ok());
    let laws = [
        ("a task that goes on has a due time", is_final || after.due.is_some()),
        (
            "due is no later than the earliest complete-by",
            is_final || after.due.is_some_and(|due| due <= earliest_complete_by(after)),
        ),
        (
            "a task in Error is due until its alert is sent",
            !in_error || *event == Event::AlertSent || (!ends || after.due.is_some())
                && before.is_none_or(stays_due),
        ),
        ("Error is alerted", !(ends && in_error) || alerts == 1),
        ("only Error is alerted", in_error || alerts == 0),
        ("the client hears the end", !ends || notices == usize::from(after.reply_to.is_some())),
        ("a final state is final", !was_final || before.map(|b| b.process_state) == Some(after.process_state)),
        ("the end has a time", after.ended_at.is_some() == is_final && (!ends || after.ended_at == Some(now))),
        ("what has ended is not locked", !is_final || after.locked_by.is_none()),
        (
            "who sends a request holds the lock",
            count(|effect| matches!(effect, Effect::Request(_))) == 0
                || is_final
                || after.locked_by.as_deref() == Some("scheduler"),
        ),
        ("Error has a reason", after.error.is_some() == in_error),
        (
            "failures are counted once, with their step",
            after.failure_count == after.steps.values().map(|step| step.failure_count).sum::<u32>(),
        ),
        ("what was submitted stays", before.is_none_or(|before| submitted(before) == submitted(after))),
        ("an attempt follows the one before it", before.is_none_or(|before| attempts_grow(before, after))),
        ("a task reads back as it was saved", again.as_ref() == Some(after)),
        (
            "a request is the saved one",
            effects.iter().all(|effect| match effect {
                Effect::Request(request) => is_saved(workflow, after, request),
                _ => true,
            }),
        ),
        ("what is told of the end carries its time", effects.iter().all(|effect| tells_time(after, effect))),
    ];
    laws.into_iter().filter(|(_, holds)| !holds).map(|(law, _)| law.to_owned()).collect()
}

fn earliest_complete_by(task: &Task) -> Timestamp {
    task.running().map(|(_, _, complete_by)| complete_by).fold(task.complete_by, Timestamp::min)
}

fn submitted(task: &Task) -> Task {
    Task {
        process_state: ProcessState::Pending,
        revision: 0,
        locked_by: None,
        failure_count: 0,
        ended_at: None,
        due: None,
        error: None,
        steps: BTreeMap::new(),
        ..task.clone()
    }
}

fn attempts_grow(before: &Task, after: &Task) -> bool {
    let attempt = |task: &Task, step| task.steps.get(step).map_or(0, |step| step.state.attempt());
    before.steps.keys().chain(after.steps.keys()).all(|step| {
        let (old, new) = (attempt(before, step), attempt(after, step));
        new == old || new == old + 1
    })
}

fn is_saved(workflow: &Workflow, task: &Task, request: &StepRequest) -> bool {
    let StepRequest { task_id, step, attempt, complete_by, idempotency_key: key, agent, method, .. } =
        request;
    *task_id == task.task_id
        && *key == idempotency_key(task_id, step)
        && workflow.steps.get(step).is_some_and(|s| s.agent == *agent && s.request.method == *method)
        && task.running().any(|running| running == (step, *attempt, *complete_by))
}

fn tells_time(task: &Task, effect: &Effect) -> bool {
    match effect {
        Effect::Notice { notice, .. } => Some(notice.at) == task.ended_at,
        Effect::Publish(BusEvent::Alert(Alert::TaskInError { at, .. })) => Some(*at) == task.ended_at,
        Effect::Publish(BusEvent::TaskEnded(ended)) => Some(ended.at) == task.ended_at,
        _ => true,
    }
}
