//! Commands for one task. The form of a command shows its effects before it is sent. After it is sent, the browser is
//! redirected to the page of the task.
//!
//! ```text
//! GET  …/tasks/ID/resubmit ──► a form, with the effects
//! POST …/tasks/ID/resubmit ──► refused: the form with the entered values, and the reason
//!                          └─► a command to the scheduler, and a redirect to the task's page: …?sent=COMMAND
//! ```

use std::collections::{BTreeMap, BTreeSet};

use askama::Template;
use axum::{
    Extension, Form,
    extract::{Path, Query, State},
    http::StatusCode,
    response::{IntoResponse, Redirect, Response},
};
use serde::Deserialize;
use serde_json::{Value, json};
use steward_core::{
    limits,
    model::{
        command::{Command, CommandAction, CommandId},
        integers::check_integers,
        messages::mistake,
        names::{Part, Tenant},
        task::Task,
    },
};
use steward_http::answer_form::AnswerForm;
use steward_operator::{
    mask::{self, MASK_TEXT},
    preview::Preview,
};
use steward_runtime::{
    dispatch::command_message,
    ports::{Channel, Ports},
};

use crate::{
    caller::ConsoleCaller,
    console::Console,
    console_command::{ConsoleCommand, new_command_id},
    loaded_task::{LoadedTask, pretty_json},
    page::{Failure, Frame, REASON_MISSING, render},
};

/// The largest number of steps that a form offers.
const OFFERED_MAX: usize = 100;

/// The values of the form.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct CommandForm {
    reason: String,
    step: String,
    /// The edited input, as JSON.
    input: Option<String>,
    /// The version of the input that the form showed.
    base: String,
    /// The output, as JSON.
    output: Option<String>,
    new_key: Option<String>,
    did_not_run: Option<String>,
    command_id: Option<CommandId>,
    /// Present if the form asks for a preview only.
    check: Option<String>,
    /// The fields of an answer.
    #[serde(flatten)]
    more: BTreeMap<String, String>,
}

/// The query parameters of the form.
#[derive(Debug, Deserialize)]
pub(crate) struct FormQuery {
    #[serde(default)]
    step: String,
}

pub(crate) async fn show_form(
    State(console): State<Console>,
    Extension(caller): Extension<ConsoleCaller>,
    Path((id, name)): Path<(String, String)>,
    Query(query): Query<FormQuery>,
) -> Result<Response, Failure> {
    let kind = ConsoleCommand::from_name(&name)?;
    let step = parse_step(&query.step)?;
    let mut data = LoadedTask::read(&console, &id, step.as_ref()).await?;
    // An answer names its step, so that it never counts for another one that awaits a callback by then.
    let only = match data.awaiting_parts().as_slice() {
        [only] if kind.is_answer() => Some(only.clone()),
        _ => None,
    };
    let step = step.or(only);
    let form = CommandForm {
        step: step.as_ref().map(ToString::to_string).unwrap_or_default(),
        base: input_version(&data.task),
        command_id: new_command_id(),
        ..CommandForm::default()
    };
    loop {
        let dry_run = DryRun::before_input(&data, kind, step.clone(), &form, &caller);
        let page = render(&CommandPage::of(&data, kind, &caller, form.clone(), dry_run));
        if !data.read_needed(&console).await? {
            return Ok(page);
        }
    }
}

pub(crate) async fn submit(
    State(console): State<Console>,
    Extension(caller): Extension<ConsoleCaller>,
    Path((id, name)): Path<(String, String)>,
    Form(form): Form<CommandForm>,
) -> Result<Response, Failure> {
    let kind = ConsoleCommand::from_name(&name)?;
    let mut data = LoadedTask::read(&console, &id, parse_step(&form.step)?.as_ref()).await?;
    let command_id = form.command_id.clone().or_else(new_command_id);
    let command_id =
        command_id.ok_or_else(|| Failure::BadRequest("the form has no command id".to_owned()))?;
    if data.task.commands.iter().any(|record| record.id == command_id) {
        return Ok(redirect_to_task(&data.task, &command_id));
    }
    let action = action_of_form(&data, kind, &form);
    let dry_run = loop {
        let dry_run = match &action {
            Ok(action) => DryRun::of(&data, action.clone(), &form, &caller),
            Err(problem) => DryRun::refused(problem),
        };
        // The page that is shown if the command is not sent makes more dry runs.
        accepted_steps(&data, kind, &caller);
        if !data.read_needed(&console).await? {
            break dry_run;
        }
    };
    let reason = form.reason.trim();
    let command = match (action, &dry_run.refused) {
        (Ok(action), None) if form.check.is_none() && !reason.is_empty() => Command {
            command_id: command_id.clone(),
            task_id: data.task.task_id.clone(),
            by: caller.name.clone(),
            why: limits::short_line(reason, limits::COMMAND_TEXT_CHARS_MAX),
            action,
            issued_at: data.now,
        },
        (Ok(_), None) if form.check.is_some() => {
            return Ok(render(&CommandPage::of(&data, kind, &caller, form, dry_run)));
        }
        (action, refused) => {
            let is_reason_missing = refused.is_none() && action.is_ok();
            let dry_run =
                if is_reason_missing { dry_run.with_refusal(REASON_MISSING) } else { dry_run };
            let form_page = render(&CommandPage::of(&data, kind, &caller, form, dry_run));
            return Ok((StatusCode::UNPROCESSABLE_ENTITY, form_page).into_response());
        }
    };
    send(&console, command, data.task.tenant.clone()).await?;
    Ok(redirect_to_task(&data.task, &command_id))
}

fn redirect_to_task(task: &Task, command: &CommandId) -> Response {
    Redirect::to(&format!("/console/tasks/{}?sent={command}", task.task_id)).into_response()
}

async fn send(console: &Console, command: Command, tenant: Option<Tenant>) -> Result<(), Failure> {
    let Command { command_id, task_id, by, action, .. } = &command;
    let action = action.describe(&[]);
    tracing::info!(%task_id, %command_id, by, action, "command sent");
    let results = console.ports.channel().send(vec![command_message(command, tenant)]).await;
    Ok(results.into_iter().collect::<Result<(), _>>()?)
}

/// The version of the input: the id of the command that edited it last; empty if no command did.
fn input_version(task: &Task) -> String {
    task.input_edit_id.as_ref().map(ToString::to_string).unwrap_or_default()
}

/// The step or item that a form or a link names.
pub(crate) fn parse_step(text: &str) -> Result<Option<Part>, Failure> {
    let step = Some(text).filter(|text| !text.is_empty()).map(str::parse).transpose();
    step.map_err(|_| Failure::BadRequest(format!("`{text}` is not a step")))
}

/// The action that a form describes.
fn action_of_form(
    data: &LoadedTask,
    kind: ConsoleCommand,
    form: &CommandForm,
) -> Result<CommandAction, String> {
    let step = parse_step(&form.step).map_err(|failure| failure.to_string())?;
    if kind.is_answer() && step.is_none() {
        return Err("choose the step".to_owned());
    }
    let input = match &form.input {
        Some(text) if kind == ConsoleCommand::Resubmit => {
            input_patch(data, form, text)?.or_else(|| form.new_key.is_some().then(|| json!({})))
        }
        Some(_) | None => None,
    };
    let output = match (&form.output, answer_form(data, kind, form)) {
        (_, Some(form)) => form.answer()?,
        (Some(text), None) if kind == ConsoleCommand::Approve => parse_json("answer", text)?,
        (Some(text), None) if kind == ConsoleCommand::Complete => parse_json("output", text)?,
        (Some(_) | None, None) => Value::Null,
    };
    Ok(kind.action(step, input, output, form.did_not_run.is_some()))
}

/// The fields of the answer that an approval needs. `None` if its schema has no simple form.
fn answer_form(data: &LoadedTask, kind: ConsoleCommand, form: &CommandForm) -> Option<AnswerForm> {
    let step = parse_step(&form.step).ok()?;
    let schema = data.callback(step.as_ref())?.answer.as_ref()?;
    AnswerForm::new(schema.source(), &form.more).filter(|_| kind == ConsoleCommand::Approve)
}

/// The merge patch from the current input to the edited input; `None` if they are equal.
fn input_patch(data: &LoadedTask, form: &CommandForm, text: &str) -> Result<Option<Value>, String> {
    let edited = parse_json("input", text)?;
    let patch = mask::patch_from_edit(&data.plan.mask, data.input(), &edited)?;
    if patch.is_some() && form.base != input_version(&data.task) {
        return Err(
            "someone else has edited the input: copy your changes, reload this page, and apply them again"
                .to_owned(),
        );
    }
    Ok(patch)
}

fn parse_json(what: &str, text: &str) -> Result<Value, String> {
    check_integers(text).map_err(|error| format!("the {what} has {error}"))?;
    let read = serde_json::from_str(text);
    read.map_err(|error| format!("the {what} is not JSON: {}", mistake(&error)))
}

/// The result of a dry run of a command, for its page.
#[derive(Default)]
struct DryRun {
    effects: Vec<String>,
    /// Why the effects are not known. The scheduler may carry the command out, or refuse it.
    unknown: Option<String>,
    refused: Option<String>,
    /// Whether the command is accepted only if the operator confirms that no earlier attempt took effect.
    requires_did_not_run: bool,
}

impl DryRun {
    /// The dry run for an empty form. The effects of an answer that must obey a schema are not known yet.
    fn before_input(
        data: &LoadedTask,
        kind: ConsoleCommand,
        step: Option<Part>,
        form: &CommandForm,
        caller: &ConsoleCaller,
    ) -> Self {
        let callback = data.callback(step.as_ref()).filter(|_| kind == ConsoleCommand::Approve);
        if callback.is_none_or(|callback| callback.answer.is_none()) {
            return Self::of(data, kind.action(step, None, Value::Null, false), form, caller);
        }
        Self { effects: Vec::new(), ..Self::of(data, kind.probe(step), form, caller) }
    }

    fn of(
        data: &LoadedTask,
        action: CommandAction,
        form: &CommandForm,
        caller: &ConsoleCaller,
    ) -> Self {
        let preview = |action| data.dry_run(action, caller, form.reason.trim());
        let reason = match preview(action.clone()) {
            Preview::Does(effects) => return Self { effects, ..Self::default() },
            Preview::Unknown(reason) => return Self { unknown: Some(reason), ..Self::default() },
            Preview::Refused(reason) => reason,
        };
        match action {
            CommandAction::Resubmit { step, input, did_not_run: false } => {
                match preview(CommandAction::Resubmit { step, input, did_not_run: true }) {
                    Preview::Does(effects) => Self {
                        effects,
                        refused: Some(reason),
                        requires_did_not_run: true,
                        ..Self::default()
                    },
                    Preview::Refused(_) | Preview::Unknown(_) => Self::refused(&reason),
                }
            }
            CommandAction::Resubmit { .. }
            | CommandAction::Skip { .. }
            | CommandAction::Complete { .. }
            | CommandAction::Approve { .. }
            | CommandAction::Reject { .. }
            | CommandAction::Undo
            | CommandAction::Cancel
            | CommandAction::Resolve
            | CommandAction::Pause
            | CommandAction::Resume
            | CommandAction::Rerun { .. } => Self::refused(&reason),
        }
    }

    fn refused(reason: &str) -> Self {
        Self::default().with_refusal(reason)
    }

    /// The same, with a reason why the form is not accepted.
    fn with_refusal(self, reason: &str) -> Self {
        Self { refused: Some(reason.to_owned()), ..self }
    }
}

#[derive(Template)]
#[template(path = "command.html")]
struct CommandPage<'s> {
    frame: Frame,
    task: &'s Task,
    command: ConsoleCommand,
    form: CommandForm,
    dry_run: DryRun,
    /// The steps and items that the command accepts.
    steps: Vec<Part>,
    /// Whether an attempt at the chosen step may have taken effect.
    may_have_run: bool,
    has_mask: bool,
    input: String,
    output: String,
    /// The fields of the answer of an approval. `None`: the operator writes JSON.
    answer: Option<AnswerForm>,
}

impl<'s> CommandPage<'s> {
    fn of(
        data: &'s LoadedTask,
        kind: ConsoleCommand,
        caller: &ConsoleCaller,
        form: CommandForm,
        dry_run: DryRun,
    ) -> Self {
        let LoadedTask { task, plan, .. } = data;
        let title = format!("{} {}", kind.label(), task.task_id);
        let input = form.input.clone();
        let input = input.unwrap_or_else(|| pretty_json(&mask::apply(&plan.mask, data.input())));
        let output = form.output.clone().unwrap_or_else(|| "null".to_owned());
        let direction = task.direction();
        let may_have_run = task.started_actions().any(|(part, action, progress)| {
            let is_chosen = form.step.is_empty() || part.to_string() == form.step;
            action == direction && is_chosen && progress.may_have_run
        });
        Self {
            frame: Frame::new(title, "tasks", caller),
            task,
            command: kind,
            steps: accepted_steps(data, kind, caller),
            may_have_run: kind.takes_did_not_run() && may_have_run,
            has_mask: !plan.mask.is_empty(),
            answer: answer_form(data, kind, &form),
            form,
            dry_run,
            input,
            output,
        }
    }
}

/// The steps and items for which the command would be accepted.
fn accepted_steps(data: &LoadedTask, kind: ConsoleCommand, caller: &ConsoleCaller) -> Vec<Part> {
    if !kind.takes_step() {
        return Vec::new();
    }
    let LoadedTask { task, plan, .. } = data;
    let begun = task.started_parts().map(|(part, _)| part);
    let steps = plan.steps.keys().cloned().map(Part::from);
    let first = if kind.is_answer() { data.awaiting_parts() } else { data.stuck_parts() };
    let all = first.into_iter().chain(steps).chain(begun);
    let is_accepted = |part: &Part| {
        matches!(data.dry_run(kind.probe(Some(part.clone())), caller, ""), Preview::Does(_))
    };
    let unique: BTreeSet<_> = all.take(OFFERED_MAX).collect();
    unique.into_iter().filter(is_accepted).collect()
}
