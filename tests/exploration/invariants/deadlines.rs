//! Invariants of due times and wakes.

use jiff::Timestamp;
use steward_core::{
    engine::event::Event,
    limits,
    model::{task::Task, time::later},
};

use super::CheckedTransition;
use crate::exploration::progress::{awaited_by, has_passed, is_final, waits_until};

impl CheckedTransition<'_> {
    /// A task is due early enough for everything in it.
    pub(super) fn check_due(&self, after: &Task, violated: &mut Vec<String>) {
        let (Some(due), false) = (after.due, is_final(after)) else { return };
        let (now, timing) = (self.after.now, self.workflow.timing);
        let paused = after.paused_at.is_some();
        let mut check = |text: &str, by: Timestamp| {
            if due > by {
                violated.push(format!("due {}s: {text}", due.as_second()));
            }
        };
        let mut is_idle = true;
        for (_, _, progress) in after.started_actions() {
            if let Some(complete_by) = awaited_by(progress) {
                is_idle = false;
                check("due by the deadline of each awaited reply or callback", complete_by);
            }
            if let (Some(until), false) = (waits_until(progress), paused) {
                is_idle = false;
                check(
                    "due soon after the end of each wait",
                    later(until.max(now), timing.pickup_within),
                );
            }
        }
        let backward = after.undo_reason.is_some();
        for (part, record) in after.started_parts().filter(|_| backward && !paused) {
            let undo = record.undo.as_ref().filter(|undo| has_passed(undo));
            let undo = undo.and_then(|undo| undo.in_progress(now));
            let until = record.run.in_progress(now).max(undo);
            let may_be_in_progress = self.after.is_in_progress(self.workflow, &part);
            is_idle &= until.is_none() && !may_be_in_progress;
            // The task records a call only after its attempt is over.
            if let Some(until) = until {
                check("due soon after the end of a call", later(until, timing.pickup_within));
            }
        }
        if paused {
            return check(
                "a paused task is due within the limit",
                later(now, limits::PAUSED_CHECK_INTERVAL),
            );
        }
        check("due by the task's complete-by", after.complete_by);
        if is_idle {
            check(
                "a task in which nothing runs or waits is due soon",
                later(now, timing.pickup_within),
            );
        }
        if *self.event == Event::Swept && later(due, timing.clock_skew) <= now {
            violated.push("a task is not due any more after a sweep".to_owned());
        }
    }

    /// A wake is sent for every wait, if a queue can delay it that long.
    pub(super) fn check_wakes(&self, before: &Task, after: &Task, violated: &mut Vec<String>) {
        let (wakes, now) = (self.wakes(), self.after.now);
        if is_final(after) || after.paused_at.is_some() || now >= after.complete_by {
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
