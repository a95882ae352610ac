//! What is told at the end of a task: the client, the operator, the task that it ran for, and whoever
//! listens.

use crate::definition::plan::Plan;
use serde_json::Value;

use crate::{
    engine::{
        effect::Effect,
        order::{self, PointOfNoReturn},
        values::{NoValue, Sources},
    },
    limits,
    model::{
        attempt::Action,
        document::DocumentKey,
        events::{BusEvent, Happened, TaskTrouble},
        hash::fnv1a,
        messages::{ChildEnded, ChildOutcome, NoticeStatus, Parent, StatusNotice},
        names::{Part, StepName},
        task::{ProcessState, Task},
    },
};

/// What is told at the end of a task; nothing while it goes on, or once the alert is known to be out.
pub(crate) fn ending(sources: Sources<'_>) -> Vec<Effect> {
    let Sources { task, plan, .. } = sources;
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
        notice: StatusNotice {
            task_id: task_id.clone(),
            status,
            at,
            reason: reason.clone(),
            output: result(sources).unwrap_or_default(),
        },
    });
    let publish = |data| Effect::Publish(BusEvent::new(task.task_id.as_str(), at, data));
    let alert = (task.process_state == ProcessState::Error).then(|| publish(alert(task, plan)));
    let lifecycle = plan.lifecycle_events.then(|| {
        publish(Happened::TaskEnded {
            task_id: task.task_id.clone(),
            workflow: task.workflow.clone(),
            version: task.version,
            process_state: task.process_state,
        })
    });
    notice.chain(alert).chain(lifecycle).chain(to_parent(sources)).collect()
}

/// What the task returned, if its workflow says what; or why that is missing.
fn result(sources: Sources<'_>) -> Result<Option<Value>, String> {
    let Sources { task, plan, .. } = sources;
    if task.process_state != ProcessState::Processed || plan.output.is_none() {
        return Ok(None);
    }
    match sources.document(&result_key(task)) {
        Ok(output) => Ok(Some(output.clone())),
        // It is read, and this is asked again.
        Err(NoValue::Wanted) => Ok(None),
        Err(NoValue::Because(reason)) => Err(reason),
    }
}

/// Where the output of a task lies whose steps have all passed: it follows from its input and from
/// which attempts completed, and those change no more.
pub fn result_key(task: &Task) -> DocumentKey {
    let mut made_from = task.input.as_ref().map(ToString::to_string).unwrap_or_default();
    for (part, record) in task.parts() {
        let state = &record.run.state;
        made_from.push_str(&format!("/{part} {} {}", state.name(), state.attempt()));
        // Not what an agent returned whose attempt has the same number.
        if let Some(command) = &record.run.completed_by {
            made_from.push_str(&format!(" by {command}"));
        }
    }
    DocumentKey::Result(fnv1a(&made_from))
}

/// Tells the task that this one ran for how it ended; nothing while it goes on.
pub(crate) fn to_parent(sources: Sources<'_>) -> Option<Effect> {
    let task = sources.task;
    let parent = task.parent.as_ref()?;
    let said = |text: &Option<String>| text.clone().unwrap_or_default();
    let outcome = match task.process_state {
        ProcessState::Pending | ProcessState::Processing | ProcessState::Undoing => return None,
        ProcessState::Processed => match result(sources) {
            Ok(output) => ChildOutcome::Processed { output: output.unwrap_or_default() },
            Err(reason) => ChildOutcome::Error { reason, not_undone: false },
        },
        ProcessState::Undone => ChildOutcome::Undone { reason: said(&task.undo_reason) },
        ProcessState::Error => {
            let stands = order::point_of_no_return(sources.plan, task);
            let passed = matches!(stands, PointOfNoReturn::Passed(_));
            let not_undone = passed || task.direction() == Action::Undo;
            ChildOutcome::Error { reason: said(&task.error), not_undone }
        }
    };
    Some(Effect::ChildEnded(to(task, parent, outcome)))
}

/// Tells the task that this one ran for that it is past its point of no return.
pub(crate) fn not_undone(task: &Task, step: &StepName) -> Option<Effect> {
    let reason = format!("not undone, past the point of no return {step}");
    let outcome = ChildOutcome::Error { reason, not_undone: true };
    Some(Effect::ChildEnded(to(task, task.parent.as_ref()?, outcome)))
}

/// The message to the task that another ran for.
fn to(task: &Task, parent: &Parent, outcome: ChildOutcome) -> ChildEnded {
    let Parent { task_id, step, incarnation, .. } = parent.clone();
    let (child, revision) = (Some(task.task_id.clone()), Some(task.revision));
    ChildEnded { task_id, step, outcome, attempt: None, child, revision, incarnation }
}

fn alert(task: &Task, plan: &Plan) -> Happened {
    let trouble = |mut steps: Vec<Part>| TaskTrouble {
        task_id: task.task_id.clone(),
        workflow: task.workflow.clone(),
        more_steps: steps.len().saturating_sub(limits::ALERT_STEPS_MAX),
        steps: {
            steps.truncate(limits::ALERT_STEPS_MAX);
            steps
        },
        reason: task.error.clone().unwrap_or_default(),
    };
    match task.direction() {
        Action::Undo => Happened::UndoFailed(trouble(order::outstanding(plan, task))),
        Action::Do => {
            let failed = task.parts().filter(|(_, record)| record.run.state.is_failed());
            Happened::TaskInError(trouble(failed.map(|(part, _)| part).collect()))
        }
    }
}
