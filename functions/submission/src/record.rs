//! Records a submission as a task, once.

use crate::payloads;
use steward_core::{
    definition::plan::Plan,
    model::{
        document::DocumentKey,
        messages::{ExtendRetention, Submission},
        names::TaskId,
        task::Task,
    },
    submission::{
        SubmissionRefusal, accept, check_input, is_same_submission,
        payloads::check_stored_size,
        rerun::{check_kept, check_source},
    },
};
use steward_runtime::{
    dispatch::extend_retention_message,
    ports::{Channel, Clock, CreateOutcome, Definitions, PortError, Ports, StateStore},
};

/// Records a submission as a task of its workflow, unless it was recorded before.
pub(crate) async fn record<P: Ports>(
    ports: &P,
    submission: &Submission,
    reply_to: Option<&String>,
    traceparent: Option<String>,
) -> Result<Result<Box<Task>, SubmissionRefusal>, PortError> {
    if submission.reply_to.is_some() && reply_to.is_none() {
        return Ok(Err(SubmissionRefusal::ReplyQueueNotAllowed));
    }
    // The parent has abandoned the step since, or has requested it again.
    if submission.retention.is_some_and(|needed| needed.from < ports.clock().now()) {
        return unless_recorded(ports, submission, SubmissionRefusal::TooLate).await;
    }
    let (name, version) = (&submission.workflow, submission.version);
    let plan = ports.definitions().published(name, version).await?;
    let plan = plan.ok_or_else(|| {
        let version = version.map(|version| format!(" version {version}")).unwrap_or_default();
        SubmissionRefusal::UnknownWorkflow(format!("{name}{version}"))
    });
    match plan {
        Ok(plan) => record_as(ports, submission, &plan, traceparent).await,
        Err(refusal) => unless_recorded(ports, submission, refusal).await,
    }
}

/// Records a submission as a task of `plan`, unless it was recorded before.
pub(crate) async fn record_as<P: Ports>(
    ports: &P,
    submission: &Submission,
    plan: &Plan,
    traceparent: Option<String>,
) -> Result<Result<Box<Task>, SubmissionRefusal>, PortError> {
    let kept = match &submission.rerun {
        Some(rerun) => {
            let task = ports.store().load(&rerun.task_id).await?;
            let old = ports.definitions().workflow(&submission.workflow, Some(rerun.version));
            let kept = check_kept(rerun, old.await?.as_deref(), plan);
            check_source(submission, rerun, task.as_ref()).and(kept)
        }
        None => Ok(()),
    };
    let checked = kept.and_then(|()| check_input(submission, plan));
    let has_payloads = checked.and_then(|()| payloads::check(submission));
    let has_payloads = match has_payloads {
        Ok(has_payloads) => has_payloads,
        Err(refusal) => return unless_recorded(ports, submission, refusal).await,
    };
    let accepted = accept(submission, plan, traceparent, ports.clock().now(), ports.timing());
    let (task, separate) = match accepted {
        Ok(accepted) => accepted,
        Err(refusal) => return unless_recorded(ports, submission, refusal).await,
    };
    if let Err(refusal) = check_stored_size(submission, &task.payload_place()) {
        return unless_recorded(ports, submission, refusal).await;
    }
    if has_payloads {
        // The uploads of a task that was recorded before may have expired, and need no further copy.
        if let Some(there) = ports.store().load(&submission.task_id).await? {
            return same_or_taken(ports, submission, Box::new(there)).await;
        }
        if let Err(refusal) = payloads::claim(ports, submission, &task).await? {
            return unless_recorded(ports, submission, refusal).await;
        }
    }
    match ports.store().create(&task, separate.as_ref()).await? {
        CreateOutcome::Created => {
            let (task_id, workflow, version) = (&task.task_id, &task.workflow, task.version);
            tracing::info!(
                %task_id, %workflow, version, event = "submitted", to = "Pending", revision = 1,
                "task transition"
            );
            Ok(Ok(Box::new(task)))
        }
        CreateOutcome::Exists(Some(there)) => same_or_taken(ports, submission, there).await,
        CreateOutcome::Exists(None) => Err(just_deleted(&submission.task_id)),
    }
}

/// The task that exists, if it was recorded for this submission.
async fn same_or_taken<P: Ports>(
    ports: &P,
    submission: &Submission,
    there: Box<Task>,
) -> Result<Result<Box<Task>, SubmissionRefusal>, PortError> {
    let same = is_task_of(ports, submission, &there).await?;
    tracing::debug!(task_id = %submission.task_id, same, "task exists already");
    Ok(if same {
        Ok(there)
    } else {
        Err(SubmissionRefusal::IdTaken(submission.task_id.to_string()))
    })
}

/// Extends the retention of an existing child task as far as its parent needs it. An earlier message of the parent about
/// that may have arrived before the child was recorded.
pub(crate) async fn extend_for_parent<P: Ports>(
    ports: &P,
    submission: &Submission,
    task: &Task,
) -> Result<(), PortError> {
    let (Some(parent), Some(retention)) = (&submission.parent, submission.retention) else {
        return Ok(());
    };
    let request = ExtendRetention {
        task_id: task.task_id.clone(),
        parent: parent.task_id.clone(),
        incarnation: parent.incarnation,
        retention,
    };
    if task.with_extended_retention(&request).is_none() {
        return Ok(());
    }
    let message = extend_retention_message(request, task.tenant.clone());
    ports.channel().send(vec![message]).await.into_iter().collect()
}

/// The refusal, unless the same submission was recorded before. The definition may have changed or been unpublished since;
/// a repeated submission gets the same result as the first.
pub(crate) async fn unless_recorded<P: Ports>(
    ports: &P,
    submission: &Submission,
    refusal: SubmissionRefusal,
) -> Result<Result<Box<Task>, SubmissionRefusal>, PortError> {
    let Some(task) = ports.store().load(&submission.task_id).await? else {
        return Ok(Err(refusal));
    };
    let recorded = is_task_of(ports, submission, &task).await?;
    Ok(if recorded { Ok(Box::new(task)) } else { Err(refusal) })
}

/// Whether `task` was recorded for this submission.
pub(crate) async fn is_task_of<P: Ports>(
    ports: &P,
    submission: &Submission,
    task: &Task,
) -> Result<bool, PortError> {
    let stored = ports.store().documents_of(task, &[DocumentKey::Submission]).await?;
    Ok(stored.iter().any(|document| is_same_submission(task, &document.body, submission)))
}

pub(crate) fn just_deleted(task_id: &TaskId) -> PortError {
    let source = "another task with this id was deleted at the same time".into();
    PortError { operation: format!("create task {task_id}"), retryable: true, source }
}
