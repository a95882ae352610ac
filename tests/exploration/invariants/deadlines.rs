//! Invariants of due times and wakes.

use steward_core::{
    engine::event::Event,
    limits,
    model::{task::Task, time::later},
};

use super::CheckedTransition;
use crate::exploration::progress::{has_passed, has_stopped, is_awaited, waits_until};

impl CheckedTransition<'_> {
    /// A task in which nothing is in progress is due soon, and a sweep moves the due time.
    pub(super) fn check_due(&self, after: &Task, violated: &mut Vec<String>) {
        let (Some(due), false) = (after.due, has_stopped(after)) else { return };
        let (now, timing) = (self.after.now, self.workflow.timing);
        if after.paused_at.is_some() {
            return;
        }
        let mut is_busy = after
            .started_actions()
            .any(|(.., progress)| is_awaited(progress) || waits_until(progress).is_some());
        let backward = after.undo_reason.is_some();
        for (part, record) in after.started_parts().filter(|_| backward) {
            let undo = record.undo.as_ref().filter(|undo| has_passed(undo));
            let undo = undo.and_then(|undo| undo.in_progress(now));
            is_busy |= record.forward.in_progress(now).max(undo).is_some()
                || self.after.is_in_progress(self.workflow, &part);
        }
        if !is_busy && due > later(now, timing.pickup_within) {
            violated.push("a task in which nothing runs or waits is due soon".to_owned());
        }
        if *self.event == Event::Swept && later(due, timing.clock_skew) <= now {
            violated.push("a task is not due any more after a sweep".to_owned());
        }
    }

    /// A wake is sent for every wait, if a queue can delay it that long.
    pub(super) fn check_wakes(&self, before: &Task, after: &Task, violated: &mut Vec<String>) {
        let (wakes, now) = (self.wakes(), self.after.now);
        if has_stopped(after) || after.paused_at.is_some() || now >= after.complete_by {
            return;
        }
        for (step, action, progress) in after.started_actions() {
            let Some(until) = waits_until(progress) else { continue };
            let is_new = before.progress(&step, action).and_then(waits_until) != Some(until);
            let longest = later(now, limits::QUEUE_DELAY_MAX);
            let wanted = is_new || before.paused_at.is_some();
            if wanted && until <= longest && !wakes.contains(&until.max(now)) {
                violated.push(format!("a wake is sent for the wait of {} {step}", action.name()));
            }
        }
    }
}
