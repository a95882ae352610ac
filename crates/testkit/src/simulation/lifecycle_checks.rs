//! Lifecycle events: which of them the random workflows choose, and the oracle's checks. The oracle derives the ids of the
//! events from the saved tasks, by the rules of the documentation.
//!
//! - Nothing is published that no save shows, and only what the workflow chose.
//! - Once the run is quiet, everything that the saved task shows was published. Only what a supervisor saved, which
//!   then crashed, may be missing: no message is redelivered. So may everything of a task that had expired before its
//!   message was redriven.

use steward_core::model::{
    lifecycle::{LifecycleEvent, LifecycleEventContent, LifecycleEventKind},
    names::Part,
    step::{Progress, StepState},
    task::{ProcessState, Task},
};

use super::{blueprint::Blueprint, oracle::Oracle, random::SeededRandom};

/// The share of workflows that publish lifecycle events.
const SHARE: f64 = 0.6;

/// Draws the events that the workflows of a run publish. Has its own random generator, so that the rest of the plan stays
/// the same.
pub(super) fn choose_events(seed: u64, blueprints: &mut [Blueprint]) {
    let random = &mut SeededRandom::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x11fe);
    for blueprint in blueprints {
        if random.chance(SHARE) {
            let share = random.pick(1.0, &[0.5]);
            let chosen = LifecycleEventKind::ALL.into_iter().filter(|_| random.chance(share));
            blueprint.lifecycle_events = chosen.collect();
        }
    }
}

/// Something that a saved task shows: the kind of the event about it, and its id.
struct Occurrence {
    kind: LifecycleEventKind,
    id: String,
}

impl Oracle {
    /// Records what a save shows for the first time.
    pub(super) fn observe_occurrences(&mut self, after: &Task) {
        let by_supervisor =
            after.saved_by.as_deref().is_some_and(|name| name.starts_with("supervisor"));
        for Occurrence { id, .. } in occurrences(after) {
            if self.occurrences.insert(id.clone()) && by_supervisor {
                self.saved_by_supervisor.insert(id);
            }
        }
    }

    /// Checks a published event.
    pub(super) fn observe_lifecycle_event(&mut self, event: &LifecycleEvent) {
        let (id, kind) = (&event.id, event.content.kind());
        let model = self.model(&event.subject);
        let is_chosen = model.is_some_and(|model| model.blueprint.lifecycle_events.contains(&kind));
        if !is_chosen && self.tasks.contains_key(&event.subject) {
            self.add_finding(format!(
                "{id}: was published, but its workflow did not choose {kind}"
            ));
        }
        if !self.occurrences.contains(id) && !self.may_be_intermediate(event) {
            self.add_finding(format!("{id}: was published, but no save shows it"));
        }
        let source = format!("/steward/workflows/{}", data_of(event).workflow);
        if event.source != source || data_of(event).task_id != event.subject {
            self.add_finding(format!("{id}: has the wrong source or subject"));
        }
        self.published.insert(id.clone());
    }

    /// One save may contain several decisions: the end of a task, or the failure of a step, and the command, the request
    /// of the parent, the failure or the late success that reopens it.
    fn may_be_intermediate(&self, event: &LifecycleEvent) -> bool {
        let Some(task) = self.tasks.get(&event.subject) else { return false };
        match event.content {
            LifecycleEventContent::Submitted(_) | LifecycleEventContent::StepCompleted(_) => false,
            LifecycleEventContent::StepFailed(_) => {
                let completed = event.id.replace("/failed/", "/completed/");
                !task.commands.is_empty() || self.occurrences.contains(&completed)
            }
            LifecycleEventContent::Processed(_) | LifecycleEventContent::Undone(_) => {
                !task.commands.is_empty() || task.parent.is_some()
            }
            // The failure of another step undoes the task.
            LifecycleEventContent::Error(_) => {
                !task.commands.is_empty() || task.parent.is_some() || task.undo_reason.is_some()
            }
        }
    }

    /// What the task shows, and was not published.
    pub(super) fn unpublished(&self, task: &Task) -> Vec<String> {
        let model = self.model(&task.task_id);
        let Some(chosen) = model.map(|model| &model.blueprint.lifecycle_events) else {
            return Vec::new();
        };
        // A child task that was undone before it began was never submitted: it ended when it was recorded.
        let lost = self.expired_before_redrive.contains(&task.task_id);
        if chosen.is_empty() || lost || task.ended_at == Some(task.submitted_at) {
            return Vec::new();
        }
        let may_be_lost = |occurrence: &Occurrence| match occurrence.kind {
            LifecycleEventKind::Submitted | LifecycleEventKind::StepFailed => {
                !self.is_fault_free && self.saved_by_supervisor.contains(&occurrence.id)
            }
            LifecycleEventKind::StepCompleted
            | LifecycleEventKind::Processed
            | LifecycleEventKind::Undone
            | LifecycleEventKind::Error => false,
        };
        let missing = occurrences(task).into_iter().filter(|occurrence| {
            chosen.contains(&occurrence.kind)
                && !self.published.contains(&occurrence.id)
                && !may_be_lost(occurrence)
        });
        missing.map(|Occurrence { id, .. }| format!("{id} was not published")).collect()
    }
}

fn data_of(event: &LifecycleEvent) -> &steward_core::model::lifecycle::TaskData {
    match &event.content {
        LifecycleEventContent::Submitted(data)
        | LifecycleEventContent::Processed(data)
        | LifecycleEventContent::Undone(data) => data,
        LifecycleEventContent::StepCompleted(data) => &data.task,
        LifecycleEventContent::StepFailed(data) => &data.task,
        LifecycleEventContent::Error(data) => &data.task,
    }
}

/// Everything that the saved task shows.
fn occurrences(task: &Task) -> Vec<Occurrence> {
    let of_task = format!("{}/{}", task.task_id, task.submitted_at.as_millisecond());
    let mut found = Vec::new();
    let mut add = |kind, what: String| {
        found.push(Occurrence { kind, id: format!("{of_task}/{what}") });
    };
    if task.process_state != ProcessState::Pending {
        add(LifecycleEventKind::Submitted, "submitted".to_owned());
    }
    for (name, record) in &task.steps {
        if let StepState::Completed { attempt } = record.forward.state {
            let by = record.forward.completed_by_hand.as_ref().map(|id| format!("/{id}"));
            let what = format!("{name}/completed{}{}", number(attempt), by.unwrap_or_default());
            add(LifecycleEventKind::StepCompleted, what);
        }
        let whole = (Part::from(name.clone()), &record.forward);
        let items = record.items.iter().flat_map(|items| items.iter());
        let items = items
            .zip(0..)
            .map(|(item, index)| (Part { step: name.clone(), item: Some(index) }, &item.forward));
        for (part, Progress { state, .. }) in std::iter::once(whole).chain(items) {
            if let StepState::Failed { attempt } = state {
                let what = format!("{part}/failed{}", number(*attempt));
                add(LifecycleEventKind::StepFailed, what);
            }
        }
    }
    let end = match task.process_state {
        ProcessState::Pending | ProcessState::Processing | ProcessState::Undoing => None,
        ProcessState::Processed => Some((LifecycleEventKind::Processed, "processed")),
        ProcessState::Undone => Some((LifecycleEventKind::Undone, "undone")),
        ProcessState::Error => Some((LifecycleEventKind::Error, "error")),
    };
    if let (Some((kind, name)), Some(at)) = (end, task.ended_at) {
        add(kind, format!("{name}/{}", at.as_millisecond()));
    }
    found
}

fn number(attempt: Option<u32>) -> String {
    attempt.map_or(String::new(), |attempt| format!("/{attempt}"))
}
