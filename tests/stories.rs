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
//! sweep                       => reserve waiting (failures 1, reason kept); unlocked; due 52s;
//!                                wake scheduler
//! ```
//!
//! The clock starts at 0s and moves only where a story says so; every time is counted from that
//! start. Each `submit` begins another task. An answer first says what is saved (the task's new
//! state, its steps with the documents kept beside it, when it is due), then what is sent, and only
//! what changed. A line that is indented by four goes on with the one before it. What a story does
//! not say of its timing and steps is `clock skew 2s, pickup within 30s`, `within 60s, attempts 3`.
//!
//! The runner plays the shell's part: it hands over the documents that `needs` asked for and no
//! others, saves, and stores documents. After every line it also checks the laws that hold in every
//! story: [`laws_of_the_task`], [`laws_of_the_end`], [`laws_of_what_is_told`].

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};
use steward_core::{
    effects::Effect,
    messages::{
        Alert, BusEvent, Outcome, StepReply, StepRequest, Submission, WakeCause, idempotency_key,
    },
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
    nothing_starts_past_the_tasks_complete_by
    oversized_output_is_a_failure
    oversized_request_is_a_failure
    permanent_failure_alerts_at_once
    redelivered_wake_alerts_again
    redelivered_wake_sends_its_effects_again
    request_that_cannot_be_made_fails_its_step
    request_that_cannot_be_made_starts_no_other_branch
    scheduler_with_a_clock_behind_repeats_the_step_at_once
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
            above = event
                .strip_prefix("same")
                .map_or(event.to_owned(), |rest| format!("{above}{rest}"));
            Some((state.to_owned(), above.clone(), becomes.to_owned()))
        })
        .collect()
}

/// The arrow that was walked, in the table's words. What is ignored has none.
fn arrow(before: &Task, event: &Event, answer: &Transition) -> Option<Arrow> {
    let row = |words: &str, becomes: &str| {
        Some((before.process_state.to_string(), words.to_owned(), becomes.to_owned()))
    };
    match answer {
        Transition::Apply { task, .. } => {
            row(words(before, event, task), &task.process_state.to_string())
        }
        Transition::Illegal(_) if before.process_state == ProcessState::Pending => {
            event.step().and_then(|_| row("reply", "illegal"))
        }
        Transition::Illegal(_) | Transition::Ignore { .. } => None,
    }
}

fn words(before: &Task, event: &Event, after: &Task) -> &'static str {
    let has_failed = |task: &Task, step: &StepName| {
        task.steps.get(step).is_some_and(|step| matches!(step.state, StepState::Failed { .. }))
    };
    let mut failed =
        after.steps.keys().filter(|step| has_failed(after, step) && !has_failed(before, step));
    let failed = failed.next();
    match event {
        Event::Wake if failed.is_some() => "wake, request impossible",
        Event::Wake => "wake",
        Event::Swept => match (before.process_state, after.process_state) {
            (ProcessState::Pending, ProcessState::Pending) => "swept, past due",
            (ProcessState::Error, _) => "swept, alert unsent",
            (_, ProcessState::Error) if failed.is_some() => {
                "swept, step past due, attempts used up"
            }
            (_, ProcessState::Error) => "swept, task past due",
            _ if after.failure_count > before.failure_count => "swept, step past due",
            _ => "swept, nothing past due",
        },
        Event::Replied(reply) => match (&reply.outcome, failed) {
            (Outcome::Failed { .. }, _) => "reply failed",
            (Outcome::Completed { .. }, Some(step)) if *step == reply.step => {
                "reply completed, too large"
            }
            (Outcome::Completed { .. }, Some(_)) => "reply completed, next impossible",
            (Outcome::Completed { .. }, None) if after.process_state == ProcessState::Processed => {
                "reply completed, last"
            }
            (Outcome::Completed { .. }, None) => "reply completed",
        },
        Event::AlertSent => "alert sent",
    }
}

fn folder() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "stories"].iter().collect()
}

/// Tells one story; all that is not as it says, with file and line.
fn tell(name: &str) -> Result<(), String> {
    let story = read(name)?;
    let mut world = World::new(&story);
    let mut wrong = Vec::new();
    for line in &story.lines {
        let Line { number, left, right } = line;
        let said = world.play(line);
        let mut problems: Vec<_> =
            world.broken.drain(..).map(|law| format!("\n  broken:   {law}")).collect();
        match said {
            Ok(said) if said == *right => {}
            Ok(said) => problems.push(format!("\n  expected: {right}\n  got:      {said}")),
            Err(problem) => problems.push(format!("\n  {problem}")),
        }
        if !problems.is_empty() {
            wrong.push(format!(
                "tests/stories/{name}.story:{number}\n  {left}{}",
                problems.concat()
            ));
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
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
    Ok(Timing { pickup_within: time("pickup within")?, clock_skew: time("clock skew")? })
}

/// A step's definition: `after a and b, within 30s, attempts 2, path /p, body {...}`.
fn step(name: &str, said: &str) -> Result<Value, String> {
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
fn options(said: &str, words: &[&str]) -> Result<BTreeMap<String, String>, String> {
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
        self.broken = laws_of_the_task(None, &task, &[]);
        self.documents = Documents::from([(document.key, document.body)]);
        let due = said_due(&task);
        let said = format!("{}; {due}", task.process_state);
        self.task = Some(task);
        Ok(said)
    }

    fn decide(&mut self, event: &Event, redelivered: bool) -> Result<String, String> {
        let before = self.task.clone().ok_or("nothing was submitted")?;
        let Story { workflow, timing, .. } = self.story;
        let actor = if *event == Event::Swept { "supervisor" } else { "scheduler" };
        let context = Context { now: self.now, actor, redelivered, timing: *timing };
        let answer = self.ask(&before, event, context);
        self.walk.arrows.extend(arrow(&before, event, &answer));
        Ok(match answer {
            Transition::Apply { task, documents, effects } => {
                self.store(&documents, event, &task);
                self.broken.extend(laws_of_the_task(Some(&before), &task, &effects));
                self.broken.extend(laws_of_the_end(&before, &task, event, &effects, self.now));
                self.broken.extend(laws_of_what_is_told(workflow, &task, &effects));
                let mut said = self.said_saved(&before, &task, &documents, &effects);
                said.extend(self.said_sent(&effects));
                self.task = Some(*task);
                said.join("; ")
            }
            Transition::Ignore { reason, effects } => {
                self.walk.reasons.insert(format!("{reason:?}"));
                self.broken.extend(laws_of_what_is_told(workflow, &before, &effects));
                let again = self.said_sent(&effects).map(|said| format!("; again {said}"));
                format!("ignored: {reason:?}{}", again.collect::<String>())
            }
            Transition::Illegal(reason) => format!("illegal: {reason}"),
        })
    }

    /// Hands over what `needs` asks for, and checks that this is all it takes.
    fn ask(&mut self, task: &Task, event: &Event, context: Context<'_>) -> Transition {
        let workflow = &self.story.workflow;
        let wanted = needs(workflow, task, event, context);
        let mut handed = self.documents.clone();
        handed.retain(|key, _| wanted.contains(key));
        let answer = transition(workflow, task, &handed, event, context);
        if answer != transition(workflow, task, &self.documents, event, context) {
            self.broken.push(format!("`needs` asks for all it takes; it asked for {wanted:?}"));
        }
        if handed.len() < wanted.len() {
            self.broken.push(format!("`needs` asks for what is there; it asked for {wanted:?}"));
        }
        answer
    }

    fn store(&mut self, documents: &[Document], event: &Event, task: &Task) {
        for Document { key, body, .. } in documents {
            let is_right = match (key, event) {
                (DocumentKey::Output { .. }, Event::Replied(reply)) => {
                    reply.outcome == Outcome::Completed { output: body.clone() }
                }
                (DocumentKey::Failure { step, .. }, _) => {
                    let reason = body.get("reason").and_then(Value::as_str).map(str::to_owned);
                    task.steps.get(step).is_some_and(|step| step.error == reason)
                }
                (DocumentKey::Output { .. } | DocumentKey::Submission, _) => false,
            };
            if !is_right {
                self.broken.push(format!("a document says what was said; {key} does not"));
            }
            if self.documents.insert(key.clone(), body.clone()).is_some() {
                self.broken.push(format!("a document is written once; {key} was written before"));
            }
        }
        for (step, record) in &task.steps {
            let (step, attempt) = (step.clone(), record.state.attempt());
            let key = DocumentKey::Output { step, attempt };
            let completed = matches!(record.state, StepState::Completed { .. });
            if completed && !self.documents.contains_key(&key) {
                self.broken.push(format!("the state never points at nothing; it points at {key}"));
            }
        }
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
        let mut kept: BTreeMap<_, _> =
            documents.iter().map(|made| (made.key.clone(), made)).collect();
        for name in self.story.workflow.steps.keys() {
            let (old, new) = (before.steps.get(name), after.steps.get(name));
            if let Some(new) = new.filter(|new| old != Some(*new)) {
                said.extend(self.said_step(name, old, new, &mut kept, effects));
            }
        }
        said.extend(kept.keys().map(|key| format!("document {key}")));
        if before.locked_by.is_some() && after.locked_by.is_none() && !is_final(after) {
            said.push("unlocked".to_owned());
        }
        if after.due != before.due {
            said.push(said_due(after));
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

    /// What is sent, in an order of its own: the core promises none.
    fn said_sent(&self, effects: &[Effect]) -> impl Iterator<Item = String> {
        let place = |effect: &Effect| match effect {
            Effect::Request(request) => (0, self.story.workflow.steps.get_index_of(&request.step)),
            Effect::Notice { .. } => (1, None),
            Effect::Publish(BusEvent::Alert(_)) => (2, None),
            Effect::Publish(BusEvent::TaskEnded(_)) => (3, None),
            Effect::Wake(_) | Effect::Reply(_) | Effect::Reject { .. } => (4, None),
        };
        let mut effects: Vec<_> = effects.iter().collect();
        effects.sort_by_key(|effect| place(effect));
        effects.into_iter().map(said_effect)
    }
}

fn said_effect(effect: &Effect) -> String {
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
            let steps =
                if steps.is_empty() { String::new() } else { format!(" {}", steps.join(", ")) };
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

fn said_due(task: &Task) -> String {
    task.due.map_or("no longer due".to_owned(), |due| format!("due {}", since_start(due)))
}

/// A time as stories write it: `63s` after the start.
fn since_start(time: Timestamp) -> String {
    let millis = time.as_millisecond();
    match millis % 1000 {
        0 => format!("{}s", millis / 1000),
        rest => format!("{}.{rest:03}s", millis / 1000),
    }
}

/// What every saved task keeps to.
fn laws_of_the_task(before: Option<&Task>, after: &Task, effects: &[Effect]) -> Vec<String> {
    let goes_on = !is_final(after);
    let requests = effects.iter().any(|effect| matches!(effect, Effect::Request(_)));
    let running = after.running().map(|(_, _, complete_by)| complete_by);
    let earliest = running.fold(after.complete_by, Timestamp::min);
    let failures: u32 = after.steps.values().map(|step| step.failure_count).sum();
    let stored = serde_json::to_value(after).ok();
    let again: Option<Task> = stored.and_then(|stored| serde_json::from_value(stored).ok());
    broken([
        ("a task that goes on has a due time", !goes_on || after.due.is_some()),
        (
            "due is no later than the earliest complete-by",
            !goes_on || after.due.is_some_and(|due| due <= earliest),
        ),
        ("what has ended is not locked", goes_on || after.locked_by.is_none()),
        (
            "who sends a request holds the lock",
            !(goes_on && requests) || after.locked_by.as_deref() == Some("scheduler"),
        ),
        ("a failure is counted for its step and for the task", after.failure_count == failures),
        ("a task reads back as it was saved", again.as_ref() == Some(after)),
        (
            "what was submitted stays",
            before.is_none_or(|before| submitted(before) == submitted(after)),
        ),
        (
            "an attempt follows the one before it",
            before.is_none_or(|before| attempts_grow(before, after)),
        ),
    ])
}

/// How a task ends, and that it stays so.
fn laws_of_the_end(
    before: &Task,
    after: &Task,
    event: &Event,
    effects: &[Effect],
    now: Timestamp,
) -> Vec<String> {
    let ends = is_final(after) && !is_final(before);
    let in_error = after.process_state == ProcessState::Error;
    let count =
        |wanted: fn(&Effect) -> bool| effects.iter().filter(|effect| wanted(effect)).count();
    let alerts = count(|effect| matches!(effect, Effect::Publish(BusEvent::Alert(_))));
    let notices = count(|effect| matches!(effect, Effect::Notice { .. }));
    let stays = before.process_state == after.process_state && before.ended_at == after.ended_at;
    let was_due = ends || before.due.is_some();
    broken([
        ("a final state is final", !is_final(before) || stays),
        ("the end has a time", after.ended_at.is_some() == is_final(after)),
        ("it is the time of the decision", !ends || after.ended_at == Some(now)),
        ("Error has a reason", after.error.is_some() == in_error),
        ("Error is alerted, and nothing else is", (alerts == 1) == (in_error && ends) || !ends),
        (
            "a task in Error is due until its alert is sent",
            !in_error || !was_due || after.due.is_some() || *event == Event::AlertSent,
        ),
        ("the client hears the end", !ends || notices == usize::from(after.reply_to.is_some())),
    ])
}

/// What is sent says what is saved.
fn laws_of_what_is_told(workflow: &Workflow, task: &Task, effects: &[Effect]) -> Vec<String> {
    let ended = |at: Timestamp| Some(at) == task.ended_at;
    let is_right = |effect: &Effect| match effect {
        Effect::Request(request) => is_saved(workflow, task, request),
        Effect::Notice { notice, .. } => {
            ended(notice.at) && notice.task_id.as_deref() == Some(task.task_id.as_str())
        }
        Effect::Publish(BusEvent::Alert(Alert::TaskInError { task_id, at, .. })) => {
            ended(*at) && *task_id == task.task_id
        }
        Effect::Publish(BusEvent::TaskEnded(event)) => {
            ended(event.at) && event.task_id == task.task_id && event.version == task.version
        }
        Effect::Wake(wake) => wake.task_id == task.task_id,
        Effect::Publish(BusEvent::Alert(_)) | Effect::Reply(_) | Effect::Reject { .. } => false,
    };
    let wrong = effects.iter().filter(|effect| !is_right(effect));
    wrong
        .map(|effect| format!("what is sent says what is saved; this does not: {effect:?}"))
        .collect()
}

fn broken<const N: usize>(laws: [(&str, bool); N]) -> Vec<String> {
    laws.into_iter().filter(|(_, holds)| !holds).map(|(law, _)| law.to_owned()).collect()
}

fn is_final(task: &Task) -> bool {
    task.process_state.is_final()
}

/// What no decision may change.
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

/// A request is that of the attempt that runs, for the step's own agent, and repeatable.
fn is_saved(workflow: &Workflow, task: &Task, request: &StepRequest) -> bool {
    let StepRequest { task_id, step, attempt, complete_by, idempotency_key: key, .. } = request;
    let asks = |agent, method| agent == &request.agent && method == request.method;
    *task_id == task.task_id
        && *key == idempotency_key(task_id, step)
        && workflow.steps.get(step).is_some_and(|step| asks(&step.agent, step.request.method))
        && task.running().any(|running| running == (step, *attempt, *complete_by))
}
