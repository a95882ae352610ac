//! `steward callback`: sends a callback for a step that awaits one, with the callback token from its request.
//!
//! ```text
//! service ── token ──► sender ── steward callback complete TOKEN ──► scheduler queue ──► scheduler
//! ```

use std::time::Duration;

use anyhow::{Context, Result, bail};
use backon::{ConstantBuilder, Retryable};
use clap::{Args, Subcommand, builder::NonEmptyStringValueParser};
use jiff::Timestamp;
use serde_json::{Value, json};
use steward_aws::store::DynamoStore;
use steward_core::{
    engine::callback_check::check_callback,
    model::{
        attempt::Action,
        messages::{CallbackMessage, CallbackOutcome, SchedulerMessage},
        names::CallbackToken,
        step::StepState,
    },
};
use steward_runtime::ports::{PortError, StateStore};

use crate::{
    client::{DeploymentArgs, QueuedText},
    operate::read_json,
};

/// The pause between two reads of the task.
const POLL_EVERY: Duration = Duration::from_millis(100);

/// Subcommands of `steward callback`.
#[derive(Debug, Subcommand)]
pub(crate) enum CallbackCommand {
    /// Complete the step.
    Complete {
        #[command(flatten)]
        args: CallbackArgs,
        /// The output of the step, as JSON or @FILE.
        #[arg(long, value_name = "JSON|@FILE", value_parser = read_json, default_value = "null")]
        output: Value,
    },
    /// Fail the step permanently.
    Fail {
        #[command(flatten)]
        args: CallbackArgs,
        /// The reason, for operators.
        #[arg(long, value_parser = NonEmptyStringValueParser::new())]
        reason: String,
    },
    /// Restart the step's heartbeat time. The deadline of the callback stays the same.
    Heartbeat {
        #[command(flatten)]
        args: CallbackArgs,
    },
}

/// The arguments that all callbacks have.
#[derive(Debug, Args)]
pub(crate) struct CallbackArgs {
    /// The callback token from the step's request, such as `order-7/approve/i0mfvx3k5z`.
    token: CallbackToken,
    /// How long to wait until the scheduler has recorded the callback.
    #[arg(long, default_value = "30s", value_parser = humantime::parse_duration)]
    wait: Duration,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    deployment: DeploymentArgs,
}

/// Sends the callback, and waits until the scheduler has recorded it. Does not wait for a heartbeat.
pub(crate) async fn run(command: CallbackCommand) -> Result<()> {
    let (CallbackArgs { token, wait, json, deployment }, outcome) = match command {
        CallbackCommand::Complete { args, output } => (args, CallbackOutcome::Completed { output }),
        CallbackCommand::Fail { args, reason } => (args, CallbackOutcome::Failed { reason }),
        CallbackCommand::Heartbeat { args } => (args, CallbackOutcome::Heartbeat),
    };
    let store = deployment.store().await;
    let Some(task) = store.load(&token.task_id).await? else {
        bail!("task `{}` does not exist", token.task_id);
    };
    check_callback(&task, &token, Timestamp::now())
        .with_context(|| format!("{token}: not sent"))?;
    let is_heartbeat = outcome == CallbackOutcome::Heartbeat;
    let message = SchedulerMessage::Callback(CallbackMessage { token: token.clone(), outcome });
    let message = QueuedText { text: serde_json::to_string(&message)?, tenant: task.tenant };
    let refusals = deployment.scheduler().await?.send(&[message]).await?;
    if let Some(reason) = refusals.into_iter().flatten().next() {
        bail!("{token}: not sent, because SQS refused it: {reason}");
    }
    if is_heartbeat {
        print_state(&token, "sent", json);
        return Ok(());
    }
    let Some(state) = wait_until_recorded(&store, &token, wait).await? else {
        bail!(
            "{token}: not recorded within {}; see `steward show`",
            humantime::format_duration(wait)
        );
    };
    if matches!(state, StepState::Waiting { .. }) {
        bail!("{token}: refused, because the attempt ended before the callback arrived");
    }
    print_state(&token, state.name(), json);
    Ok(())
}

fn print_state(token: &CallbackToken, state: &str, json: bool) {
    match json {
        true => outln!("{:#}", json!({ "token": token, "state": state })),
        false => outln!("{token}: {state}"),
    }
}

/// Waits until the step no longer awaits a callback, and returns its state; `None` if that takes too long.
async fn wait_until_recorded(
    store: &DynamoStore,
    token: &CallbackToken,
    wait: Duration,
) -> Result<Option<StepState>> {
    let read = || async {
        let task = store.load(&token.task_id).await.map_err(Some)?;
        let progress = task.as_ref().and_then(|task| task.progress(&token.step, Action::Do));
        let state = progress.map(|progress| progress.state.clone());
        let is_answered = |state: &StepState| state.reply_due_by().is_none();
        state.filter(is_answered).ok_or(None::<PortError>)
    };
    let pauses = ConstantBuilder::default().with_delay(POLL_EVERY).without_max_times();
    let may_follow = |error: &Option<PortError>| error.as_ref().is_none_or(|error| error.retryable);
    match tokio::time::timeout(wait, read.retry(pauses).when(may_follow)).await {
        Ok(Ok(state)) => Ok(Some(state)),
        Ok(Err(Some(error))) => Err(error.into()),
        Ok(Err(None)) | Err(_) => Ok(None),
    }
}
