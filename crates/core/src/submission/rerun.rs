//! Which outputs of an ended task a version of its workflow can keep.

use crate::{
    definition::{
        plan::{CompiledStep, Plan},
        step::StepWork,
    },
    model::{messages::Submission, rerun::RerunSource, task::Task},
    submission::SubmissionRefusal,
};

/// Checks that the ended task has a command that submits this one.
///
/// # Errors
/// It has none: somebody else wrote the submission.
pub fn check_source(
    submission: &Submission,
    rerun: &RerunSource,
    old: Option<&Task>,
) -> Result<(), SubmissionRefusal> {
    let is_so = |old: &Task| {
        let of = (old.incarnation, old.version, &old.workflow, old.tenant.as_ref());
        of == (rerun.incarnation, rerun.version, &submission.workflow, submission.tenant.as_ref())
            && old.reruns().any(|id| *id == submission.task_id)
    };
    if old.is_some_and(is_so) {
        return Ok(());
    }
    let (id, of) = (&submission.task_id, &rerun.task_id);
    Err(SubmissionRefusal::Rerun(format!("task {of} has no command to be run again as {id}")))
}

/// Checks that each kept step means the same in `target` as in `old`, the version that the ended task ran, and that it comes after
/// kept steps only.
///
/// # Errors
/// The first step that does not.
pub fn check_kept(
    rerun: &RerunSource,
    old: Option<&Plan>,
    target: &Plan,
) -> Result<(), SubmissionRefusal> {
    let version = target.version;
    let refused = |name, reason: String| {
        let of = &rerun.task_id;
        Err(SubmissionRefusal::Rerun(format!("step {name} of task {of} is not kept: {reason}")))
    };
    for name in rerun.kept.keys() {
        let Some(step) = target.find(name) else {
            return refused(name, format!("version {version} has no such step"));
        };
        let before = old.and_then(|old| old.find(name));
        if !before.is_some_and(|before| is_same_work(before, step)) {
            return refused(name, format!("version {version} does it in another way"));
        }
        if let Some(first) = step.ancestors.iter().find(|before| !rerun.kept.contains_key(*before))
        {
            return refused(
                name,
                format!("in version {version} it comes after {first}, which is to run"),
            );
        }
    }
    Ok(())
}

/// Whether two steps have outputs of the same kind: of the same agents, the same workflow or the same event, and both or neither a list.
fn is_same_work(old: &CompiledStep, new: &CompiledStep) -> bool {
    let same_kind = match (old.work(), new.work()) {
        (
            StepWork::Call { agents, callback, .. },
            StepWork::Call { agents: new, callback: new_callback, .. },
        ) => agents == new && callback.is_some() == new_callback.is_some(),
        (StepWork::Child(child), StepWork::Child(new)) => child.name == new.name,
        (StepWork::Event(wait), StepWork::Event(new)) => wait.event == new.event,
        (StepWork::Wait(_), StepWork::Wait(_)) => true,
        (
            StepWork::Call { .. } | StepWork::Child(_) | StepWork::Event(_) | StepWork::Wait(_),
            _,
        ) => false,
    };
    same_kind
        && old.definition.for_each.is_some() == new.definition.for_each.is_some()
        && old.definition.repeat.is_some() == new.definition.repeat.is_some()
}
