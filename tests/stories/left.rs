//! What the left-hand sides of a story say.

use jiff::SignedDuration;
use serde_json::{Value, json};
use steward_core::{
    engine::event::Event,
    model::{
        attempt::{Action, AttemptTimes},
        command::Order,
        messages::{Answer, ChildOutcome, Outcome, Parent, StepReply},
        names::{CallbackFence, CallbackToken},
    },
};

use super::script::{duration, json};

pub(super) const TASK_ID: &str = "o-1";

/// What the left-hand side says.
pub(super) enum Happens {
    Submitted(Submitted),
    Event {
        event: Event,
        redelivered: bool,
    },
    Commanded {
        by: String,
        why: String,
        order: Order,
        redelivered: bool,
    },
    CommandedAgain {
        redelivered: bool,
    },
    /// Of the end at this time after the start; of the newest one if none is said.
    AlertSent {
        of: Option<SignedDuration>,
    },
    TimePasses(SignedDuration),
}

/// A submission of a client, or of the task `p-1` for its step.
#[derive(Default)]
pub(super) struct Submitted {
    pub(super) input: Value,
    pub(super) reply_to: Option<String>,
    pub(super) parent: Option<Parent>,
    pub(super) undo: bool,
}

pub(super) fn happens(left: &str) -> Result<Happens, String> {
    let (said, redelivered) = match left.strip_suffix(" (redelivered)") {
        Some(said) => (said, true),
        None => (left, false),
    };
    let event = match said.split(' ').collect::<Vec<_>>().as_slice() {
        ["submit", ..] => return submitted(said),
        ["clock", by] => return Ok(Happens::TimePasses(duration(by)?)),
        ["the", "same", "command"] => return Ok(Happens::CommandedAgain { redelivered }),
        ["wake"] => Event::Wake,
        ["sweep"] => Event::Swept,
        ["alert", "sent"] => return Ok(Happens::AlertSent { of: None }),
        ["alert", "of", at, "sent"] => {
            return Ok(Happens::AlertSent { of: Some(duration(at)?) });
        }
        ["asked", "to", "be", "done"] => Event::Asked(Action::Do),
        ["asked", "to", "be", "undone"] => Event::Asked(Action::Undo),
        ["someone", verb @ ("completes" | "fails" | "is"), what @ ..] => {
            answered(verb, &what.join(" "))?
        }
        ["token", token, verb @ ("completes" | "fails"), what @ ..] => {
            answered_with(token, verb, &what.join(" "))?
        }
        ["task", "of", step, "is", outcome @ ..] => child_ended(step, None, &outcome.join(" "))?,
        ["task", child, "at", revision, "of", step, "is", outcome @ ..] => {
            let event = child_ended(step, None, &outcome.join(" "))?;
            reported_by(event, child, revision)?
        }
        ["task", "of", step, number, "is", outcome @ ..] => {
            let number = number.trim_start_matches('#');
            let number = number.parse().map_err(|_| "an attempt is written #1")?;
            child_ended(step, Some(number), &outcome.join(" "))?
        }
        ["agent", verb @ ("completes" | "fails" | "defers" | "cuts"), what @ ..] => {
            Event::Replied(replied(verb, &what.join(" "))?)
        }
        [by, verb, rest @ ..] => {
            let rest = rest.join(" ");
            let (rest, why) = match rest.split_once("because ") {
                Some((rest, why)) => (rest.trim(), why.trim_matches('"').to_owned()),
                None => (rest.as_str(), "a test".to_owned()),
            };
            let by = (*by).to_owned();
            return Ok(Happens::Commanded { by, why, order: order(verb, rest)?, redelivered });
        }
        _ => return Err(unknown(said)),
    };
    Ok(Happens::Event { event, redelivered })
}

fn unknown(said: &str) -> String {
    format!("nobody knows what `{said}` means")
}

/// `submit reply_to shop with {"item":"tea"}`, `submit for charge of p-1`, `submit to be undone for
/// charge of p-1`.
fn submitted(said: &str) -> Result<Happens, String> {
    let (said, input) = said.split_once(" with ").unwrap_or((said, "null"));
    let of = |step: &str, task: &str| {
        let task_id = task.parse().map_err(|error| format!("{error}"))?;
        let step = step.parse().map_err(|error| format!("{error}"))?;
        Ok::<_, String>(Some(Parent { task_id, step, depth: 1, incarnation: None }))
    };
    let submitted = match said.split(' ').collect::<Vec<_>>().as_slice() {
        ["submit"] => Submitted::default(),
        ["submit", "reply_to", queue] => {
            Submitted { reply_to: Some((*queue).to_owned()), ..Submitted::default() }
        }
        ["submit", "for", step, "of", task] => {
            Submitted { parent: of(step, task)?, ..Submitted::default() }
        }
        ["submit", "to", "be", "undone", "for", step, "of", task] => {
            Submitted { parent: of(step, task)?, undo: true, ..Submitted::default() }
        }
        _ => return Err(unknown(said)),
    };
    Ok(Happens::Submitted(Submitted { input: value(input), ..submitted }))
}

/// `completes charge #1 with {...}`, `fails charge #1 "no"`, `is still at charge #1`: with a token of an
/// older release, which names an attempt.
fn answered(verb: &str, what: &str) -> Result<Event, String> {
    let what = what.strip_prefix("still at ").unwrap_or(what);
    let (step, what) = what.split_once(" #").ok_or("an attempt is written #1")?;
    let (attempt, what) = what.split_once(' ').unwrap_or((what, ""));
    let answer = answer(verb, what)?;
    let attempt = attempt.parse().map_err(|_| "an attempt is written #1")?;
    Ok(Event::Answered {
        step: step.parse().map_err(|error| format!("{error}"))?,
        fence: CallbackFence::Attempt(attempt),
        answer,
    })
}

/// `o-1/charge/i0 completes with {...}`, `o-1/charge/i0 fails "no"`.
fn answered_with(token: &str, verb: &str, what: &str) -> Result<Event, String> {
    let CallbackToken { step, fence, .. } = token.parse().map_err(|error| format!("{error}"))?;
    Ok(Event::Answered { step, fence, answer: answer(verb, what)? })
}

fn answer(verb: &str, what: &str) -> Result<Answer, String> {
    Ok(match verb {
        "completes" => {
            Answer::Completed { output: value(what.strip_prefix("with ").unwrap_or("null")) }
        }
        "fails" => {
            let reason = what.split('"').nth(1).ok_or("a reason is missing")?.to_owned();
            Answer::Failed { reason }
        }
        _ => Answer::Heartbeat,
    })
}

/// `Processed with {...}`, `Undone "no"`, `in Error "no"` (perhaps `, not undone`), `refused "no"`.
fn child_ended(step: &str, attempt: Option<u32>, said: &str) -> Result<Event, String> {
    let reason = said.split('"').nth(1).unwrap_or_default().to_owned();
    let outcome = match said.split([' ', '"']).next().unwrap_or_default() {
        "Processed" => {
            let output = said.strip_prefix("Processed with ").map(value).unwrap_or_default();
            ChildOutcome::Processed { output }
        }
        "Undone" => ChildOutcome::Undone { reason },
        "in" => ChildOutcome::Error { reason, not_undone: said.ends_with(", not undone") },
        "refused" => ChildOutcome::Refused { reason, id_taken: said.ends_with(", id taken") },
        _ => return Err(unknown(said)),
    };
    let step = step.parse().map_err(|error| format!("{error}"))?;
    Ok(Event::ChildEnded { step, outcome, attempt, child: None, revision: None })
}

/// `task order-1:pack at 3 of pack is ...`: the child task that reports, at a revision of its own.
fn reported_by(event: Event, child: &str, revision: &str) -> Result<Event, String> {
    let Event::ChildEnded { step, outcome, attempt, .. } = event else { return Ok(event) };
    let child = Some(child.parse().map_err(|error| format!("{error}"))?);
    let revision = Some(revision.parse().map_err(|_| "a revision is a number")?);
    Ok(Event::ChildEnded { step, outcome, attempt, child, revision })
}

/// `charge #1 with {...}`, `undo of charge #1 "no reply", may have run`, `charge #1 for 10s "..."`.
fn replied(verb: &str, what: &str) -> Result<StepReply, String> {
    let (what, may_have_run) = match what.strip_suffix(", may have run") {
        Some(what) => (what, true),
        None => (what, false),
    };
    let (what, may_continue) = match what.strip_suffix(", and an earlier call may continue") {
        Some(what) => (what, true),
        None => (what, false),
    };
    let (what, action) = match what.strip_prefix("undo of ") {
        Some(what) => (what, Action::Undo),
        None => (what, Action::Do),
    };
    let (step, what) = what.split_once(" #").ok_or("an attempt is written #1")?;
    let (attempt, what) = what.split_once(' ').unwrap_or((what, ""));
    let reason = || what.split('"').nth(1).map(str::to_owned).ok_or("a reason is missing");
    let outcome = match verb {
        "completes" => {
            let output = value(what.strip_prefix("with ").unwrap_or("null"));
            Outcome::Completed { output, may_continue }
        }
        "fails" => Outcome::Failed { reason: reason()?, may_have_run },
        "cuts" => Outcome::Unknown { reason: reason()? },
        _ => {
            let pause = what.strip_prefix("for ").and_then(|what| what.split(' ').next());
            let pause = duration(pause.ok_or("a step is deferred `for 10s`")?)?;
            let retry_after_ms =
                u64::try_from(pause.as_millis()).map_err(|error| error.to_string())?;
            Outcome::Deferred { reason: reason()?, retry_after_ms, may_have_run }
        }
    };
    Ok(StepReply {
        task_id: TASK_ID.parse().map_err(|error| format!("{error}"))?,
        step: step.parse().map_err(|error| format!("{error}"))?,
        action,
        attempt: attempt.parse().map_err(|_| "an attempt is written #1")?,
        outcome,
        incarnation: None,
        times: AttemptTimes::default(),
    })
}

/// `resubmits charge with input {...}, it did not run`, `completes charge with {...}`, `undoes`.
fn order(verb: &str, rest: &str) -> Result<Order, String> {
    let (rest, did_not_run) = match rest.strip_suffix(", it did not run") {
        Some(rest) => (rest, true),
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
            Order::Resubmit { step, input, did_not_run }
        }
        ("skips", None) => Order::Skip { step, did_not_run },
        ("completes", with) => {
            Order::Complete { step, output: with.map(value).unwrap_or_default() }
        }
        ("undoes", None) => Order::Undo,
        ("cancels", None) => Order::Cancel,
        ("pauses", None) => Order::Pause,
        ("resumes", None) => Order::Resume,
        _ => return Err(unknown(&format!("{verb} {rest}"))),
    })
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
