//! `steward rerun` and `steward rerun-all`: submit new tasks that repeat tasks that have ended.
//!
//! Each task is checked before the command is sent, as the scheduler and the submission function will check it. So what would be
//! refused is refused at once, and `--dry-run` is a preview.

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use futures_util::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use serde::Serialize;
use steward_aws::{
    definitions::DynamoDefinitions,
    store::{DynamoStore, StateFilter},
};
use steward_core::{
    definition::plan::Plan,
    engine::{
        documents::{LoadedDocuments, NeededDocuments},
        rerun::rerun_submission,
    },
    model::{
        command::CommandAction,
        messages::Submission,
        names::{StepName, TaskId},
        step::StepState,
        task::{ProcessState, Task},
    },
    submission::{check_input, rerun::check_kept},
};
use steward_runtime::ports::{Definitions, StateStore};

use crate::{
    bulk::{BulkArgs, BulkResult},
    client::DeploymentArgs,
    operate::{self, TaskCommandArgs},
    table::table,
};

/// Tasks that are checked at the same time.
const CHECKS_AT_ONCE: usize = 16;

/// What the new task runs.
#[derive(Debug, Args)]
struct RerunChoice {
    /// Keep the outputs of the steps that are neither this step nor after it. The new task does not run them and never undoes
    /// them: their effects belong to the old task. If absent, the new task runs all steps.
    #[arg(long, value_name = "STEP")]
    from: Option<StepName>,
    /// The version of the workflow. If absent, the newest published one.
    #[arg(long)]
    version: Option<u32>,
}

/// Options of `steward rerun`.
#[derive(Debug, Args)]
pub(crate) struct RerunArgs {
    #[command(flatten)]
    target: TaskCommandArgs,
    #[command(flatten)]
    choice: RerunChoice,
    /// The id of the new task. If absent, `TASK-rerun-1`; the rerun of that is `TASK-rerun-2`.
    #[arg(long)]
    id: Option<TaskId>,
    /// Only say what the new task would be, and send nothing.
    #[arg(long)]
    dry_run: bool,
}

/// Options of `steward rerun-all`.
#[derive(Debug, Args)]
pub(crate) struct RerunAllArgs {
    /// Only tasks in this state.
    #[arg(long)]
    state: EndState,
    #[command(flatten)]
    choice: RerunChoice,
    #[command(flatten)]
    tasks: BulkArgs,
}

/// The state of a task that has ended.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum EndState {
    #[value(name = "Processed")]
    Processed,
    #[value(name = "Undone")]
    Undone,
    #[value(name = "Error")]
    Error,
}

impl From<EndState> for StateFilter {
    fn from(state: EndState) -> Self {
        match state {
            EndState::Processed => Self::In(ProcessState::Processed),
            EndState::Undone => Self::In(ProcessState::Undone),
            // What an operator has settled is not run again in bulk.
            EndState::Error => Self::Unresolved,
        }
    }
}

/// A new task that would repeat an old one.
#[derive(Debug, Serialize)]
struct PlannedRerun {
    new_task_id: TaskId,
    version: u32,
    kept: Vec<StepName>,
    /// The steps of the old task whose effects stay, although the new task runs them again.
    effects_twice: Vec<StepName>,
}

/// The JSON of `steward rerun --dry-run`.
#[derive(Debug, Serialize)]
struct RerunPreview<'a> {
    task_id: &'a TaskId,
    #[serde(flatten)]
    planned: &'a PlannedRerun,
}

/// What is needed to check a rerun.
struct Checker {
    store: DynamoStore,
    definitions: DynamoDefinitions,
}

/// `steward rerun`.
pub(crate) async fn run(args: RerunArgs) -> Result<()> {
    let RerunArgs { target, choice: RerunChoice { from, version }, id, dry_run } = args;
    let action = CommandAction::Rerun { id, from, version };
    let checker = Checker::new(&target.options.deployment).await;
    let old = &target.task;
    let task = checker.store.load(old).await?;
    let task = task.with_context(|| format!("task `{old}` does not exist"))?;
    match checker.check(&task, &action).await? {
        Err(reason) => bail!("{old}: {}: not sent: {reason}", action.describe(&[])),
        Ok(planned) if dry_run && target.options.json => {
            let preview = RerunPreview { task_id: old, planned: &planned };
            outln!("{}", serde_json::to_string_pretty(&preview)?);
            Ok(())
        }
        Ok(planned) if dry_run => {
            outln!("{old}: would be run again as {}: {}", planned.new_task_id, planned.describe());
            Ok(())
        }
        Ok(_) => operate::command(target, action).await,
    }
}

/// `steward rerun-all`.
pub(crate) async fn run_all(args: RerunAllArgs) -> Result<()> {
    let RerunAllArgs { state, choice: RerunChoice { from, version }, tasks: args } = args;
    let action = CommandAction::Rerun { id: None, from, version };
    let checker = Checker::new(&args.deployment).await;
    let mut tasks = args.tasks(&checker.store, state.into()).await?;
    let found = tasks.len();
    tasks.retain(|task| task.reruns().next().is_none());
    if tasks.len() < found && !args.json {
        outln!("run again before, and left out: {}", found - tasks.len());
    }
    let checks = stream::iter(&tasks).map(|task| checker.check(task, &action));
    let checks: Vec<_> = checks.buffered(CHECKS_AT_ONCE).try_collect().await?;
    let mut rows: Vec<_> =
        tasks.iter().zip(checks).map(|(task, check)| RerunRow::new(task, check)).collect();
    if !args.dry_run {
        let sent: Vec<_> = tasks
            .into_iter()
            .zip(&rows)
            .filter_map(|(task, row)| row.planned.is_some().then_some(task))
            .collect();
        let results = args.command(&checker.store, &sent, &action).await?;
        let planned = rows.iter_mut().filter(|row| row.planned.is_some());
        planned.zip(results).for_each(|(row, result)| row.record(&result));
    }
    print_rows(&rows, &args)
}

/// One task of `steward rerun-all`.
#[derive(Debug, Serialize)]
struct RerunRow {
    task_id: TaskId,
    result: String,
    /// Whether the new task is submitted, or would be.
    submitted: bool,
    #[serde(flatten)]
    planned: Option<PlannedRerun>,
}

impl RerunRow {
    fn new(task: &Task, check: Result<PlannedRerun, String>) -> Self {
        let task_id = task.task_id.clone();
        match check {
            Ok(planned) => {
                let result = planned.describe();
                Self { task_id, result, submitted: true, planned: Some(planned) }
            }
            Err(reason) => {
                let result = format!("not sent: {reason}");
                Self { task_id, result, submitted: false, planned: None }
            }
        }
    }

    fn record(&mut self, result: &BulkResult) {
        self.submitted = result.is_done();
        self.result = result.to_string();
    }
}

fn print_rows(rows: &[RerunRow], args: &BulkArgs) -> Result<()> {
    let submitted = rows.iter().filter(|row| row.submitted).count();
    if args.json {
        outln!("{}", serde_json::to_string_pretty(rows)?);
    } else if !rows.is_empty() {
        let mut table = table(&["task", "new task", "result"]);
        for RerunRow { task_id, result, planned, .. } in rows {
            let new = planned.as_ref().map(|planned| planned.new_task_id.to_string());
            table.add_row([task_id.to_string(), new.unwrap_or_default(), result.clone()]);
        }
        let verb = if args.dry_run { "would be run again" } else { "run again" };
        outln!("{table}\n{verb}: {submitted} of {}", rows.len());
    }
    if submitted < rows.len() && !args.dry_run {
        bail!("not run again: {} of {}", rows.len() - submitted, rows.len());
    }
    Ok(())
}

impl PlannedRerun {
    /// `order version 2, keeps reserve; effects that stay and come again: charge`.
    fn describe(&self) -> String {
        let names = |steps: &[StepName]| {
            steps.iter().map(StepName::to_string).collect::<Vec<_>>().join(", ")
        };
        let mut text = format!("version {}", self.version);
        if !self.kept.is_empty() {
            text.push_str(&format!("; keeps {}", names(&self.kept)));
        }
        if !self.effects_twice.is_empty() {
            let steps = names(&self.effects_twice);
            text.push_str(&format!("; runs {steps} again, whose effects in the old task stay"));
        }
        text
    }
}

impl Checker {
    async fn new(deployment: &DeploymentArgs) -> Self {
        let (store, definitions) = (deployment.store().await, deployment.definitions().await);
        Self { store, definitions }
    }

    /// What the command would submit, or why it would be refused.
    async fn check(
        &self,
        task: &Task,
        action: &CommandAction,
    ) -> Result<Result<PlannedRerun, String>> {
        let name = &task.workflow;
        let old = self.definitions.workflow(name, Some(task.version)).await?;
        let old = old
            .with_context(|| format!("workflow `{name}` version {} is not stored", task.version))?;
        let submission = match self.submission(&old, task, action).await? {
            Ok(submission) => submission,
            Err(reason) => return Ok(Err(reason)),
        };
        let Some(target) = self.definitions.published(name, submission.version).await? else {
            return Ok(Err("the workflow has no such published version".to_owned()));
        };
        let kept =
            submission.rerun.iter().try_for_each(|rerun| check_kept(rerun, Some(&old), &target));
        if let Err(refusal) = kept.and_then(|()| check_input(&submission, &target)) {
            return Ok(Err(refusal.to_string()));
        }
        let keeps = submission.rerun.as_ref().is_some_and(|rerun| !rerun.kept.is_empty());
        if let Some(first) = task.rerun.as_ref().filter(|first| keeps && !first.kept.is_empty()) {
            // Its effects are those that the new task relies on.
            let first_task = self.store.load(&first.of).await?;
            let is_undone = |task: Task| {
                matches!(task.process_state, ProcessState::Undoing | ProcessState::Undone)
            };
            if first_task.is_none_or(is_undone) {
                let of = &first.of;
                return Ok(Err(format!(
                    "task {of}, whose effects it keeps, was undone or is gone"
                )));
            }
        }
        let new_task_id = submission.task_id;
        if self.store.load(&new_task_id).await?.is_some() {
            return Ok(Err(format!("task {new_task_id} exists already: name another id")));
        }
        let kept: Vec<_> =
            submission.rerun.into_iter().flat_map(|rerun| rerun.kept.into_keys()).collect();
        let has_effect = |name: &StepName| {
            let record = task.steps.get(name).filter(|_| !old.step(name).work().is_wait());
            record.is_some_and(|record| {
                let is_open = |state: &StepState| {
                    state.newest_attempt().is_some()
                        && !state.is_failed()
                        && !state.is_completed_or_skipped()
                };
                record
                    .parts(name)
                    .any(|(_, part)| part.next_to_undo().is_some() || is_open(&part.forward.state))
            })
        };
        let runs = target.steps().map(|(name, _)| name).filter(|name| !kept.contains(name));
        let effects_twice =
            runs.filter(|name| old.find(name).is_some() && has_effect(name)).cloned().collect();
        Ok(Ok(PlannedRerun { new_task_id, version: target.version, kept, effects_twice }))
    }

    /// The submission that the scheduler would send, with the documents that it needs.
    async fn submission(
        &self,
        old: &Plan,
        task: &Task,
        action: &CommandAction,
    ) -> Result<Result<Submission, String>> {
        let mut loaded = LoadedDocuments::new();
        loop {
            match rerun_submission(old, task, &loaded, action, Timestamp::now()) {
                Ok(decided) => return Ok(decided),
                Err(NeededDocuments(keys)) => {
                    let keys: Vec<_> = keys.into_iter().collect();
                    let found = self.store.documents_of(task, &keys).await?;
                    loaded.extend(found.into_iter().map(|document| (document.key, document.body)));
                    let absent = keys.into_iter().filter(|key| !loaded.contains_key(key));
                    let absent: Vec<_> = absent.collect();
                    absent.into_iter().for_each(|key| loaded.mark_absent(key));
                }
            }
        }
    }
}
