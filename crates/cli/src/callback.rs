//! `steward callback`: answers a step that its call only began, with the token that it handed out.
//!
//! ```text
//! service ── token ──► someone ── steward callback complete TOKEN ──► scheduler queue ──► scheduler
//! ```

use std::time::Duration;

use anyhow::{Result, bail};
use backon::{ConstantBuilder, Retryable};
use clap::{Args, Subcommand, builder::NonEmptyStringValueParser};
use jiff::Timestamp;
use serde_json::Value;
use steward_aws::store::DynamoStore;
use steward_core::model::{
    attempt::Action,
    messages::{Answer, CallbackAnswer, SchedulerMessage},
    names::{CallbackFence, CallbackToken},
    step::StepState,
    task::Task,
};
use steward_runtime::ports::{PortError, StateStore};

use crate::{client::Deployment, operate::read_json};

/// The pause between two looks at the task.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What to answer.
#[derive(Debug, Subcommand)]
pub(crate) enum CallbackCommand {
    /// The step is done.
    Complete {
        #[command(flatten)]
        target: Target,
        /// What the step returns, as JSON, or @FILE with it.
        #[arg(long, value_name = "JSON|@FILE", value_parser = read_json, default_value = "null")]
        output: Value,
    },
    /// The step cannot be done: a permanent failure.
    Fail {
        #[command(flatten)]
        target: Target,
        /// Why, for people.
        #[arg(long, value_parser = NonEmptyStringValueParser::new())]
        reason: String,
    },
    /// It takes longer: the answer is still to come.
    Heartbeat {
        #[command(flatten)]
        target: Target,
    },
}

/// The token, and where to answer.
#[derive(Debug, Args)]
pub(crate) struct Target {
    /// The callback token from the step's request, as `order-7/approve/i0mfvx3k5z`.
    token: CallbackToken,
    /// How long to wait until the answer is on record.
    #[arg(long, default_value = "30s", value_parser = humantime::parse_duration)]
    wait: Duration,
    #[command(flatten)]
    deployment: Deployment,
}

/// Answers, and waits until the answer is on record.
pub(crate) async fn run(command: CallbackCommand) -> Result<()> {
    let (Target { token, wait, deployment }, answer) = match command {
        CallbackCommand::Complete { target, output } => (target, Answer::Completed { output }),
        CallbackCommand::Fail { target, reason } => (target, Answer::Failed { reason }),
        CallbackCommand::Heartbeat { target } => (target, Answer::Heartbeat),
    };
    let store = deployment.store().await;
    let Some(task) = store.load(&token.task_id).await? else {
        bail!("there is no task `{}`", token.task_id);
    };
    awaited(&task, &token)?;
    let heartbeat = answer == Answer::Heartbeat;
    let message = SchedulerMessage::Callback(CallbackAnswer { token: token.clone(), answer });
    let message = serde_json::to_string(&message)?;
    let refusals = deployment.scheduler().await?.send(&[message]).await?;
    if let Some(reason) = refusals.into_iter().flatten().next() {
        bail!("{token}: not sent, the queue refused it: {reason}");
    }
    if heartbeat {
        say!("{token}: sent");
        return Ok(());
    }
    let Some(after) = taken(&store, &token, wait).await? else {
        bail!("{token}: no answer within {}; see `steward show`", humantime::format_duration(wait));
    };
    if matches!(after, StepState::Waiting { .. }) {
        bail!("{token}: refused, the attempt was given up before the answer came");
    }
    say!("{token}: {}", after.name());
    Ok(())
}

/// Checks that the step of the token is awaiting an answer.
///
/// # Errors
/// It is not, and the error says why.
fn awaited(task: &Task, token: &CallbackToken) -> Result<()> {
    if task.is_another(token.incarnation) {
        bail!("{token}: it is of another task with the id `{}`, which is gone", task.task_id);
    }
    let Some(progress) = task.progress(&token.step, Action::Do) else {
        bail!("{token}: step {} has not begun", token.step);
    };
    let (state, newest, step) = (&progress.state, progress.state.attempt(), &token.step);
    match &token.fence {
        CallbackFence::Attempt(attempt) if *attempt != newest => {
            bail!(
                "{token}: this attempt no longer awaits an answer; the newest attempt is {newest}"
            );
        }
        CallbackFence::Request { edit } if *edit != progress.input => {
            bail!(
                "{token}: the input was edited since; step {step} was requested again, with another token"
            );
        }
        CallbackFence::Attempt(_) | CallbackFence::Request { .. } => {}
    }
    if let StepState::Waiting { until, .. } = state {
        bail!(
            "{token}: refused, attempt {newest} at step {step} was given up; answer again once the next \
             attempt awaits an answer, after {until:.0}"
        );
    }
    match state.awaited_by() {
        Some(by) if by < Timestamp::now() => {
            bail!("{token}: too late, the answer to step {step} was awaited until {by:.0}");
        }
        Some(_) => Ok(()),
        None => bail!("{token}: no answer is awaited; step {step} is {}", state.name()),
    }
}

/// What became of the step, once it is no longer as it was.
async fn taken(
    store: &DynamoStore,
    token: &CallbackToken,
    wait: Duration,
) -> Result<Option<StepState>> {
    let look = || async {
        let task = store.load(&token.task_id).await.map_err(Some)?;
        let progress = task.as_ref().and_then(|task| task.progress(&token.step, Action::Do));
        let state = progress.map(|progress| progress.state.clone());
        let is_settled = |state: &StepState| state.awaited_by().is_none();
        state.filter(is_settled).ok_or(None::<PortError>)
    };
    let pauses = ConstantBuilder::default().with_delay(LOOK_EVERY).without_max_times();
    let may_come = |error: &Option<PortError>| error.as_ref().is_none_or(|error| error.retryable);
    match tokio::time::timeout(wait, look.retry(pauses).when(may_come)).await {
        Ok(Ok(state)) => Ok(Some(state)),
        Ok(Err(Some(error))) => Err(error.into()),
        Ok(Err(None)) | Err(_) => Ok(None),
    }
}
