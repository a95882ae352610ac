//! What is told at the end of a task: the client, the operator, and whoever listens.

use crate::{
    effects::Effect,
    events::{BusEvent, Happened, TaskTrouble},
    messages::{Action, NoticeStatus, StatusNotice},
    names::StepName,
    task::{ProcessState, Task},
    undo,
    workflow::Workflow,
};

/// What is told at the end of a task; nothing while it goes on, or once the alert is known to be out.
pub(crate) fn ending(task: &Task, workflow: &Workflow) -> Vec<Effect> {
    let at = task.ended_at.unwrap_or(task.submitted_at);
    let (status, reason) = match task.process_state {
        ProcessState::Pending | ProcessState::Processing | ProcessState::Undoing => {
            return Vec::new();
        }
        ProcessState::Error if task.due.is_none() => return Vec::new(),
        ProcessState::Processed => (NoticeStatus::Processed, None),
        ProcessState::Undone => (NoticeStatus::Undone, task.undo_reason.clone()),
        ProcessState::Error => (NoticeStatus::Error, task.error.clone()),
    };
    let task_id = Some(task.task_id.to_string());
    let notice = task.reply_to.iter().map(|queue| Effect::Notice {
        queue: queue.clone(),
        notice: StatusNotice { task_id: task_id.clone(), status, at, reason: reason.clone() },
    });
    let publish = |data| Effect::Publish(BusEvent::new(task.task_id.as_str(), at, data));
    let alert = (task.process_state == ProcessState::Error).then(|| publish(alert(task, workflow)));
    let lifecycle = workflow.lifecycle_events.then(|| {
        publish(Happened::TaskEnded {
            task_id: task.task_id.clone(),
            workflow: task.workflow.clone(),
            version: task.version,
            process_state: task.process_state,
        })
    });
    notice.chain(alert).chain(lifecycle).collect()
}

fn alert(task: &Task, workflow: &Workflow) -> Happened {
    let trouble = |steps: Vec<StepName>| TaskTrouble {
        task_id: task.task_id.clone(),
        workflow: task.workflow.clone(),
        steps,
        reason: task.error.clone().unwrap_or_default(),
    };
    match task.direction() {
        Action::Undo => Happened::UndoFailed(trouble(undo::left_or_unknown(workflow, task))),
        Action::Do => {
            let failed = task.steps.iter().filter(|(_, record)| record.run.state.is_failed());
            Happened::TaskInError(trouble(failed.map(|(name, _)| name.clone()).collect()))
        }
    }
}
