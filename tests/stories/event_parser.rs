//! Parses the left-hand side of a story's line: an event.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use steward_core::{
    engine::event::Event,
    model::{
        attempt::{Action, AttemptTimes},
        command::CommandAction,
        messages::{CallbackOutcome, ChildOutcome, ParentStep, ReplyOutcome, StepReply},
        names::{Incarnation, Part},
    },
};

use super::story_file::{duration, json};

pub(super) const TASK_ID: &str = "o-1";

/// What a line of a story makes happen.
pub(super) enum StoryEvent {
    Submitted(StorySubmission),
    Event {
        event: Event,
        redelivered: bool,
    },
    Commanded {
        by: String,
        why: String,
        action: CommandAction,
        redelivered: bool,
    },
    /// The last command is delivered again.
    CommandRepeated {
        redelivered: bool,
    },
    /// The alert of a task's end was sent. `ended_at` is the end's time after the start; the default is the newest end.
    AlertSent {
        ended_at: Option<SignedDuration>,
    },
    /// The sender of the alert dies before it is sent. Otherwise it is recorded as sent before the next command.
    AlertLost,
    ClockAdvanced(SignedDuration),
}

/// A submission by a client, or by a parent task for one of its steps.
#[derive(Default)]
pub(super) struct StorySubmission {
    pub(super) input: Value,
    pub(super) reply_to: Option<String>,
    pub(super) parent: Option<ParentStep>,
    pub(super) undo: bool,
}

/// Parses an event. The keywords are described in `tests/stories.rs`.
pub(super) fn parse_event(line: &str) -> Result<StoryEvent, String> {
    let (text, redelivered) = match line.strip_suffix(" (redelivered)") {
        Some(text) => (text, true),
        None => (line, false),
    };
    let event = match text.split(' ').collect::<Vec<_>>().as_slice() {
        ["submit", ..] => return submission(text),
        ["clock", by] => return Ok(StoryEvent::ClockAdvanced(duration(by)?)),
        ["repeat", "command"] => return Ok(StoryEvent::CommandRepeated { redelivered }),
        ["wake"] => Event::Wake,
        ["sweep"] => Event::Swept,
        ["alert", "lost"] => return Ok(StoryEvent::AlertLost),
        ["alert", "sent"] => return Ok(StoryEvent::AlertSent { ended_at: None }),
        ["alert", "of", at, "sent"] => {
            return Ok(StoryEvent::AlertSent { ended_at: Some(duration(at)?) });
        }
        ["parent", "requests", "do"] => Event::ParentRequested(Action::Do),
        ["parent", "requests", "undo"] => Event::ParentRequested(Action::Undo),
        ["callback", "heartbeat", "for", step] => callback(None, step, "heartbeat", "")?,
        ["callback", "of", edit, verb @ ("completes" | "fails"), step, rest @ ..] => {
            callback(Some(edit), step, verb, &rest.join(" "))?
        }
        ["callback", verb @ ("completes" | "fails"), step, rest @ ..] => {
            callback(None, step, verb, &rest.join(" "))?
        }
        ["child", "of", step, "is", outcome @ ..] => child_ended(step, None, &outcome.join(" "))?,
        ["child", child, "at", "revision", revision, "of", step, "is", outcome @ ..] => {
            let event = child_ended(step, None, &outcome.join(" "))?;
            reported_by(event, child, revision)?
        }
        ["child", "of", step, number, "is", outcome @ ..] => {
            let number = number.trim_start_matches('#');
            let number = number.parse().map_err(|_| "an attempt is written #1")?;
            child_ended(step, Some(number), &outcome.join(" "))?
        }
        ["agent", verb @ ("completes" | "fails" | "defers" | "cuts"), rest @ ..] => {
            Event::ReplyReceived(reply(verb, &rest.join(" "))?)
        }
        [by, verb, rest @ ..] => {
            let rest = rest.join(" ");
            let (rest, why) = match rest.split_once("because ") {
                Some((rest, why)) => (rest.trim(), why.trim_matches('"').to_owned()),
                None => (rest.as_str(), "a test".to_owned()),
            };
            let by = (*by).to_owned();
            return Ok(StoryEvent::Commanded { by, why, action: action(verb, rest)?, redelivered });
        }
        _ => return Err(unknown(text)),
    };
    Ok(StoryEvent::Event { event, redelivered })
}

fn unknown(text: &str) -> String {
    format!("unknown event or outcome `{text}`")
}

/// Parses `submit reply_to shop with {"item":"tea"}`, `submit for charge of p-1`, or `submit undo for charge of p-1`.
fn submission(text: &str) -> Result<StoryEvent, String> {
    let (text, input) = text.split_once(" with ").unwrap_or((text, "null"));
    let parent = |step: &str, task: &str| {
        let task_id = task.parse().map_err(|error| format!("{error}"))?;
        let step = step.parse().map_err(|error| format!("{error}"))?;
        Ok::<_, String>(Some(ParentStep {
            task_id,
            step,
            depth: 1,
            incarnation: Incarnation::recorded_at(Timestamp::UNIX_EPOCH),
            payload_place: None,
        }))
    };
    let submission = match text.split(' ').collect::<Vec<_>>().as_slice() {
        ["submit"] => StorySubmission::default(),
        ["submit", "reply_to", queue] => {
            StorySubmission { reply_to: Some((*queue).to_owned()), ..StorySubmission::default() }
        }
        ["submit", "for", step, "of", task] => {
            StorySubmission { parent: parent(step, task)?, ..StorySubmission::default() }
        }
        ["submit", "undo", "for", step, "of", task] => StorySubmission {
            parent: parent(step, task)?,
            undo: true,
            ..StorySubmission::default()
        },
        _ => return Err(unknown(text)),
    };
    Ok(StoryEvent::Submitted(StorySubmission { input: value(input), ..submission }))
}

/// A callback with the token of the request after an edit of the input, or of the request with the submitted input.
fn callback(edit: Option<&str>, step: &str, verb: &str, text: &str) -> Result<Event, String> {
    let edit = edit.map(|edit| edit.parse().map_err(|error| format!("{error}"))).transpose()?;
    let step = step.parse().map_err(|error| format!("{error}"))?;
    Ok(Event::CallbackReceived { step, edit, outcome: answer(verb, text)? })
}

fn answer(verb: &str, text: &str) -> Result<CallbackOutcome, String> {
    Ok(match verb {
        "completes" => CallbackOutcome::Completed {
            output: value(text.strip_prefix("with ").unwrap_or("null")),
        },
        "fails" => {
            let reason = text.split('"').nth(1).ok_or("a reason is missing")?.to_owned();
            CallbackOutcome::Failed { reason }
        }
        _ => CallbackOutcome::Heartbeat,
    })
}

/// Parses `Processed with {...}`, `Undone "no"`, `in Error "no"` (optionally `, not undone` or `, was Processed`), or `refused "no"`.
fn child_ended(step: &str, attempt: Option<u32>, text: &str) -> Result<Event, String> {
    let reason = text.split('"').nth(1).unwrap_or_default().to_owned();
    let outcome = match text.split([' ', '"']).next().unwrap_or_default() {
        "Processed" => {
            let output = text.strip_prefix("Processed with ").map(value).unwrap_or_default();
            ChildOutcome::Processed { output }
        }
        "Undone" => ChildOutcome::Undone { reason },
        "in" => ChildOutcome::Error {
            reason,
            not_undone: text.ends_with(", not undone"),
            was_processed: text.ends_with(", was Processed"),
        },
        "refused" => ChildOutcome::Refused { reason, id_taken: text.ends_with(", id taken") },
        _ => return Err(unknown(text)),
    };
    let step = step.parse().map_err(|error| format!("{error}"))?;
    Ok(Event::ChildEnded { step, outcome, attempt, child: None, revision: None })
}

/// Adds the reporting child task and its revision: `child o-1:pack at revision 3 of pack is ...`.
fn reported_by(event: Event, child: &str, revision: &str) -> Result<Event, String> {
    let Event::ChildEnded { step, outcome, attempt, .. } = event else { return Ok(event) };
    let child = Some(child.parse().map_err(|error| format!("{error}"))?);
    let revision = Some(revision.parse().map_err(|_| "a revision is a number")?);
    Ok(Event::ChildEnded { step, outcome, attempt, child, revision })
}

/// Parses `charge #1 with {...}`, `undo of charge #1 "no reply", may have run`, or `charge #1 for 10s "..."`.
fn reply(verb: &str, text: &str) -> Result<StepReply, String> {
    let (text, call_in_doubt) = match text.strip_suffix(", its own call may have run") {
        Some(text) => (text, true),
        None => (text, false),
    };
    let (text, may_have_run) = match text.strip_suffix(", may have run") {
        Some(text) => (text, true),
        None => (text, false),
    };
    let (text, certain) = match text.strip_suffix(", for certain") {
        Some(text) => (text, true),
        None => (text, false),
    };
    let (text, may_continue) = match text.strip_suffix(", and an earlier call may continue") {
        Some(text) => (text, true),
        None => (text, false),
    };
    let (text, action) = match text.strip_prefix("undo of ") {
        Some(text) => (text, Action::Undo),
        None => (text, Action::Do),
    };
    let (step, text) = text.split_once(" #").ok_or("an attempt is written #1")?;
    let (attempt, text) = text.split_once(' ').unwrap_or((text, ""));
    let reason = || text.split('"').nth(1).map(str::to_owned).ok_or("a reason is missing");
    let outcome = match verb {
        "completes" => {
            let output = value(text.strip_prefix("with ").unwrap_or("null"));
            ReplyOutcome::Completed { output, may_continue }
        }
        "fails" => {
            ReplyOutcome::Failed { reason: reason()?, may_have_run, call_in_doubt, detail: None }
        }
        "cuts" => ReplyOutcome::Unknown { reason: reason()?, detail: None },
        _ => {
            let pause = text.strip_prefix("for ").and_then(|text| text.split(' ').next());
            let pause = duration(pause.ok_or("a step is deferred `for 10s`")?)?;
            let retry_after_ms =
                u64::try_from(pause.as_millis()).map_err(|error| error.to_string())?;
            ReplyOutcome::Deferred {
                reason: reason()?,
                retry_after_ms,
                may_have_run,
                certain,
                call_in_doubt,
                detail: None,
            }
        }
    };
    Ok(StepReply {
        task_id: TASK_ID.parse().map_err(|error| format!("{error}"))?,
        step: step.parse().map_err(|error| format!("{error}"))?,
        action,
        attempt: attempt.parse().map_err(|_| "an attempt is written #1")?,
        outcome,
        incarnation: Incarnation::recorded_at(Timestamp::UNIX_EPOCH),
        times: AttemptTimes::default(),
        agent: None,
    })
}

/// Parses a command: `resubmits charge with input {...}, it did not run`, `resubmits, it did not run`, `completes charge with {...}`,
/// `undoes`.
fn action(verb: &str, rest: &str) -> Result<CommandAction, String> {
    let verb = verb.trim_end_matches(',');
    let (rest, did_not_run) = match rest.strip_suffix("it did not run") {
        Some(rest) => (rest.trim_end_matches(", "), true),
        None => (rest, false),
    };
    let (rest, with) = match rest.strip_prefix("with ") {
        Some(with) => ("", Some(with)),
        None => rest.split_once(" with ").map_or((rest, None), |(rest, with)| (rest, Some(with))),
    };
    let step = match rest {
        "" => None,
        step => Some(step.parse().map_err(|error| format!("{error}"))?),
    };
    Ok(match (verb, with) {
        ("resubmits", with) => {
            let input = with.map(|with| value(with.trim_start_matches("input ")));
            CommandAction::Resubmit { step, input, did_not_run }
        }
        ("skips", None) => CommandAction::Skip { step, did_not_run },
        ("completes", with) => {
            CommandAction::Complete { step, output: with.map(value).unwrap_or_default() }
        }
        ("approves", with) => {
            CommandAction::Approve { step, answer: with.map(value).unwrap_or_default() }
        }
        ("rejects", None) => CommandAction::Reject { step },
        ("undoes", None) => CommandAction::Undo,
        ("cancels", None) => CommandAction::Cancel,
        ("resolves", None) => CommandAction::Resolve,
        ("pauses", None) => CommandAction::Pause,
        ("resumes", None) => CommandAction::Resume,
        ("reruns", None) => {
            let from = step.map(|part: Part| part.step);
            CommandAction::Rerun { id: None, from, version: None }
        }
        _ => return Err(unknown(&format!("{verb} {rest}"))),
    })
}

/// Parses a value given as JSON, or creates one by its size: `131073 bytes`, `33 levels`.
fn value(text: &str) -> Value {
    let size = |unit| text.strip_suffix(unit).and_then(|number| number.parse::<usize>().ok());
    match (size(" bytes"), size(" levels")) {
        (Some(bytes), _) => json!("x".repeat(bytes.saturating_sub(2))),
        (_, Some(levels)) => (0..levels).fold(json!(1), |value, _| json!([value])),
        (None, None) => json(text),
    }
}
