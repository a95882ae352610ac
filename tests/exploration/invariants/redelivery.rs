//! Invariant of redelivery: effects that a crash lost are sent again when their message is redelivered.

use steward_core::{
    engine::effect::Effect,
    model::{
        attempt::AttemptId,
        task::{ProcessState, Task},
    },
};

use super::CheckedTransition;
use crate::exploration::{
    model_state::end,
    progress::{has_stopped, is_awaited, is_running, waits_until},
};

impl CheckedTransition<'_> {
    /// Effects that a crash lost are sent when the message is redelivered.
    pub(super) fn check_redelivery(&self, after: &Task, violated: &mut Vec<String>) {
        let Some(lost) = self.lost else { return };
        let mut check = |text: String, holds: bool| {
            if !holds {
                violated.push(text);
            }
        };
        for (attempt, dispatch) in &self.after.dispatches {
            let AttemptId { step, action, number } = attempt;
            let runs = after.progress(step, *action).is_some_and(|progress| {
                is_running(progress) && progress.state.attempt_count() == *number
            });
            // A step that will be undone should not be requested at all.
            let goes_on = !has_stopped(after) || after.goes_on();
            let wanted = runs && goes_on && *action == after.direction();
            let text =
                format!("the lost request of {} {step} #{number} is sent again", action.name());
            check(text, !wanted || dispatch.sent);
        }
        let alerted = after.process_state != ProcessState::Error || self.after.alerted;
        check("the lost alert is sent again".to_owned(), alerted);
        let notifications =
            self.effects.iter().filter(|e| matches!(e, Effect::Notification { .. })).count();
        let is_end = lost.ended.is_some() && lost.ended == end(after);
        let known = after.process_state == ProcessState::Error && !after.is_alert_due;
        check(
            "the lost notification of the end is sent again".to_owned(),
            !is_end || known || notifications == 1,
        );
        let (wakes, now) = (self.wakes(), self.after.now);
        for (AttemptId { step, action, number }, at) in &lost.waits {
            let still = after.progress(step, *action).is_some_and(|progress| {
                waits_until(progress) == Some(*at) && progress.state.attempt_count() == *number
            });
            let wanted = still
                && after.goes_on()
                && (!has_stopped(after) || *number > 0 && *at < after.complete_by)
                && *action == after.direction();
            let sent = wakes.contains(at) || (*at <= now && wakes.contains(&now));
            check(
                format!("the lost wake for {} {step} is sent again", action.name()),
                !wanted || sent,
            );
        }
        let idle = !after.started_actions().any(|(.., p)| {
            is_awaited(p) || waits_until(p).is_some() || p.in_progress(now).is_some()
        });
        let stopped = has_stopped(after) || after.paused_at.is_some() || now >= after.complete_by;
        let wanted = lost.immediate_wake && idle && !stopped;
        check("the lost immediate wake is sent again".to_owned(), !wanted || !wakes.is_empty());
    }
}
