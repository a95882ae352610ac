//! What can be done to one task: each action's page says what it would do before it is done, and takes
//! who sends it back to the task.
//!
//! ```text
//! GET  …/tasks/ID/resubmit ──► what would happen; a form
//! POST …/tasks/ID/resubmit ──► refused: the form as it was filled in, and why
//!                          └─► a command to the scheduler, and to the task's page: …?sent=COMMAND
//! ```

use askama::Template;
use axum::{
    Extension, Form,
    extract::{Path, Query, State},
    http::StatusCode,
    response::{IntoResponse, Redirect, Response},
};
use serde::Deserialize;
use serde_json::Value;
use steward_core::{
    definition::mask::MASKED,
    limits,
    model::{
        command::{Command, CommandId, Order},
        messages::mistake,
        names::Part,
        task::Task,
    },
};
use steward_operator::preview::Preview;
use steward_runtime::{
    dispatch::commanded,
    ports::{Channel, Ports},
};

use crate::{
    Console,
    access::Caller,
    page::{Failure, Frame, page},
    task::{Seen, pretty},
};

/// Steps that a form offers.
const OFFERED_MAX: usize = 100;

/// What can be done to a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Resubmit,
    Skip,
    Complete,
    Undo,
    Cancel,
    Pause,
    Resume,
}

impl Verb {
    pub(crate) const ALL: [Self; 7] = [
        Self::Resubmit,
        Self::Skip,
        Self::Complete,
        Self::Undo,
        Self::Cancel,
        Self::Pause,
        Self::Resume,
    ];

    /// As addresses say it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Resubmit => "resubmit",
            Self::Skip => "skip",
            Self::Complete => "complete",
            Self::Undo => "undo",
            Self::Cancel => "cancel",
            Self::Pause => "pause",
            Self::Resume => "resume",
        }
    }

    /// As buttons say it.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Resubmit => "Resubmit",
            Self::Skip => "Skip",
            Self::Complete => "Complete",
            Self::Undo => "Undo",
            Self::Cancel => "Cancel",
            Self::Pause => "Pause",
            Self::Resume => "Resume",
        }
    }

    /// What it is good for.
    fn meaning(self) -> &'static str {
        match self {
            Self::Resubmit => "Try what failed again, or what waits at once.",
            Self::Skip => "Go on without a step, or without its undo.",
            Self::Complete => "Take a step, or its undo, as done by hand.",
            Self::Undo => "Undo the whole task.",
            Self::Cancel => {
                "Stop the task where it stands: nothing more is sent, nothing is undone."
            }
            Self::Pause => "Start nothing more, until it is resumed.",
            Self::Resume => "Go on after a pause.",
        }
    }

    /// Whether it settles one step by hand.
    pub(crate) fn is_by_hand(self) -> bool {
        matches!(self, Self::Skip | Self::Complete)
    }

    fn takes_step(self) -> bool {
        self == Self::Resubmit || self.is_by_hand()
    }

    fn may_say_it_did_not_run(self) -> bool {
        matches!(self, Self::Resubmit | Self::Skip)
    }

    /// Whether a button for it is a warning.
    fn is_danger(self) -> bool {
        matches!(self, Self::Undo | Self::Cancel | Self::Skip)
    }

    pub(crate) fn order(
        self,
        step: Option<Part>,
        input: Option<Value>,
        output: Value,
        did_not_run: bool,
    ) -> Order {
        match self {
            Self::Resubmit => Order::Resubmit { step, input, did_not_run },
            Self::Skip => Order::Skip { step, did_not_run },
            Self::Complete => Order::Complete { step, output },
            Self::Undo => Order::Undo,
            Self::Cancel => Order::Cancel,
            Self::Pause => Order::Pause,
            Self::Resume => Order::Resume,
        }
    }

    fn of(name: &str) -> Result<Self, Failure> {
        let found = Self::ALL.into_iter().find(|verb| verb.name() == name);
        found.ok_or_else(|| Failure::NotFound(format!("action {name}")))
    }
}

/// A new command's id.
pub(crate) fn new_id() -> Option<CommandId> {
    uuid::Uuid::new_v4().to_string().parse().ok()
}

/// A form as it is filled in.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Filled {
    reason: String,
    step: String,
    /// The edited input, as JSON.
    input: Option<String>,
    /// Which input was edited.
    base: String,
    /// The output, as JSON.
    output: Option<String>,
    did_not_run: Option<String>,
    command_id: Option<CommandId>,
    /// Present if only to be tried.
    check: Option<String>,
}

/// Which step a form is opened for.
#[derive(Debug, Deserialize)]
pub(crate) struct Asked {
    #[serde(default)]
    step: String,
}

pub(crate) async fn confirm(
    State(console): State<Console>,
    Extension(caller): Extension<Caller>,
    Path((id, action)): Path<(String, String)>,
    Query(asked): Query<Asked>,
) -> Result<Response, Failure> {
    let verb = Verb::of(&action)?;
    let seen = Seen::read(&console, &id).await?;
    let filled = Filled {
        step: asked.step,
        base: base(&seen.task),
        command_id: new_id(),
        ..Filled::default()
    };
    let step = step(&filled.step)?;
    let order = verb.order(step, None, Value::Null, false);
    let tried = Tried::of(&seen, order, &filled, &caller);
    Ok(page(&ActPage::of(&seen, verb, &caller, filled, tried)))
}

pub(crate) async fn act(
    State(console): State<Console>,
    Extension(caller): Extension<Caller>,
    Path((id, action)): Path<(String, String)>,
    Form(filled): Form<Filled>,
) -> Result<Response, Failure> {
    let verb = Verb::of(&action)?;
    let seen = Seen::read(&console, &id).await?;
    let command_id = filled.command_id.clone().or_else(new_id);
    let command_id = command_id.ok_or_else(|| Failure::BadRequest("no command id".to_owned()))?;
    if seen.task.commands.iter().any(|record| record.id == command_id) {
        return Ok(sent(&seen.task, &command_id));
    }
    let order = order(&seen, verb, &filled);
    let tried = match &order {
        Ok(order) => Tried::of(&seen, order.clone(), &filled, &caller),
        Err(problem) => Tried::refused(problem),
    };
    let reason = filled.reason.trim();
    let command = match (order, &tried.refused) {
        (Ok(order), None) if filled.check.is_none() && !reason.is_empty() => Command {
            command_id: command_id.clone(),
            task_id: seen.task.task_id.clone(),
            by: caller.name.clone(),
            why: limits::shorten(reason, limits::COMMAND_TEXT_CHARS_MAX),
            order,
            issued_at: Some(seen.now),
        },
        (Ok(_), None) if filled.check.is_some() => {
            return Ok(page(&ActPage::of(&seen, verb, &caller, filled, tried)));
        }
        (order, refused) => {
            let problem = refused.is_none() && order.is_ok();
            let tried = if problem { tried.but("say why, for the record") } else { tried };
            let form = page(&ActPage::of(&seen, verb, &caller, filled, tried));
            return Ok((StatusCode::UNPROCESSABLE_ENTITY, form).into_response());
        }
    };
    send(&console, command).await?;
    Ok(sent(&seen.task, &command_id))
}

fn sent(task: &Task, command: &CommandId) -> Response {
    Redirect::to(&format!("/console/tasks/{}?sent={command}", task.task_id)).into_response()
}

async fn send(console: &Console, command: Command) -> Result<(), Failure> {
    let Command { command_id, task_id, by, order, .. } = &command;
    let order = order.describe(&[]);
    tracing::info!(%task_id, %command_id, by, order, "command sent");
    let answers = console.ports.channel().send(vec![commanded(command)]).await;
    Ok(answers.into_iter().collect::<Result<(), _>>()?)
}

/// Which input a form shows.
fn base(task: &Task) -> String {
    task.input.as_ref().map(ToString::to_string).unwrap_or_default()
}

fn step(text: &str) -> Result<Option<Part>, Failure> {
    let step = Some(text).filter(|text| !text.is_empty()).map(str::parse).transpose();
    step.map_err(|_| Failure::BadRequest("that is no step".to_owned()))
}

/// What a form asks for.
fn order(seen: &Seen, verb: Verb, filled: &Filled) -> Result<Order, String> {
    let step = step(&filled.step).map_err(|failure| failure.to_string())?;
    let input = match &filled.input {
        Some(text) if verb == Verb::Resubmit => edit(seen, filled, text)?,
        Some(_) | None => None,
    };
    let output = match &filled.output {
        Some(text) if verb == Verb::Complete => json("output", text)?,
        Some(_) | None => Value::Null,
    };
    Ok(verb.order(step, input, output, filled.did_not_run.is_some()))
}

/// The merge patch that an edited input comes to.
fn edit(seen: &Seen, filled: &Filled, text: &str) -> Result<Option<Value>, String> {
    let edited = json("input", text)?;
    let patch = seen.workflow.mask.patch(seen.input(), &edited)?;
    if patch.is_some() && filled.base != base(&seen.task) {
        return Err("someone else has edited the input since: open this page anew".to_owned());
    }
    Ok(patch)
}

fn json(what: &str, text: &str) -> Result<Value, String> {
    let read = serde_json::from_str(text);
    read.map_err(|error| format!("the {what} is not JSON: {}", mistake(&error)))
}

/// What an order would do, or why it would be refused.
struct Tried {
    does: Vec<String>,
    refused: Option<String>,
    /// Whether it would be refused unless no earlier attempt took effect.
    only_if_not_run: bool,
}

impl Tried {
    fn of(seen: &Seen, order: Order, filled: &Filled, caller: &Caller) -> Self {
        let dry_run = |order| seen.dry_run(order, caller, filled.reason.trim());
        let reason = match dry_run(order.clone()) {
            Preview::Does(does) => return Self { does, refused: None, only_if_not_run: false },
            Preview::Refused(reason) => reason,
        };
        match order {
            Order::Resubmit { step, input, did_not_run: false } => {
                match dry_run(Order::Resubmit { step, input, did_not_run: true }) {
                    Preview::Does(does) => {
                        Self { does, refused: Some(reason), only_if_not_run: true }
                    }
                    Preview::Refused(_) => Self::refused(&reason),
                }
            }
            Order::Resubmit { .. }
            | Order::Skip { .. }
            | Order::Complete { .. }
            | Order::Undo
            | Order::Cancel
            | Order::Pause
            | Order::Resume => Self::refused(&reason),
        }
    }

    fn refused(reason: &str) -> Self {
        Self { does: Vec::new(), refused: Some(reason.to_owned()), only_if_not_run: false }
    }

    /// The same, with something else in the way.
    fn but(self, problem: &str) -> Self {
        Self { refused: Some(problem.to_owned()), ..self }
    }
}

#[derive(Template)]
#[template(path = "act.html")]
struct ActPage<'s> {
    frame: Frame,
    task: &'s Task,
    state: String,
    verb: Verb,
    filled: Filled,
    tried: Tried,
    /// The steps that it can be about.
    steps: Vec<Part>,
    /// Whether an attempt that it is about may have taken effect.
    may_have_run: bool,
    has_mask: bool,
    input: String,
    output: String,
}

impl<'s> ActPage<'s> {
    fn of(seen: &'s Seen, verb: Verb, caller: &Caller, filled: Filled, tried: Tried) -> Self {
        let Seen { task, workflow, .. } = seen;
        let title = format!("{} {}", verb.label(), task.task_id);
        let input = filled.input.clone();
        let input = input.unwrap_or_else(|| pretty(&workflow.mask.over(seen.input())));
        let output = filled.output.clone().unwrap_or_else(|| "null".to_owned());
        let direction = task.direction();
        let may_have_run = task.actions().any(|(part, action, progress)| {
            let is_meant = filled.step.is_empty() || part.to_string() == filled.step;
            action == direction && is_meant && progress.may_have_run
        });
        Self {
            frame: Frame::new(title, "tasks", caller),
            task,
            state: task.process_state.to_string(),
            verb,
            steps: offered(seen, verb, caller),
            may_have_run: verb.may_say_it_did_not_run() && may_have_run,
            has_mask: !workflow.mask.is_empty(),
            filled,
            tried,
            input,
            output,
        }
    }
}

/// The steps, and items, that a verb can be about.
fn offered(seen: &Seen, verb: Verb, caller: &Caller) -> Vec<Part> {
    if !verb.takes_step() {
        return Vec::new();
    }
    let Seen { task, workflow, .. } = seen;
    let begun = task.parts().map(|(part, _)| part);
    let all = workflow.steps.keys().cloned().map(Part::from).chain(begun);
    let is_accepted = |part: &Part| {
        let order = verb.order(Some(part.clone()), None, Value::Null, true);
        matches!(seen.dry_run(order, caller, ""), Preview::Does(_))
    };
    let mut offered: Vec<_> = all.take(OFFERED_MAX).filter(is_accepted).collect();
    let mut known = std::collections::BTreeSet::new();
    offered.retain(|part| known.insert(part.clone()));
    offered
}
