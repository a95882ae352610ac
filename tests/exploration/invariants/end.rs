//! Invariants of the end of a task: notification, alert, recorded command.

use steward_core::{
    engine::{effect::Effect, event::Event},
    model::{
        events::{BusEvent, EventData},
        names::Part,
        task::{ProcessState, Task},
    },
};

use super::{CheckedTransition, has_undo, left_to_undo};
use crate::exploration::{
    progress::{is_awaited, is_failed, waits_until},
    successors::is_alert,
};

impl CheckedTransition<'_> {
    /// Notifications and alerts at the end of a task.
    pub(super) fn check_end(&self, before: &Task, after: &Task, violated: &mut Vec<String>) {
        let mut check = |text: &str, holds: bool| {
            if !holds {
                violated.push(text.to_owned());
            }
        };
        let alerts = || self.effects.iter().filter(|effect| is_alert(effect));
        let ends = self.ends(before, after);
        if matches!(self.event, Event::CommandReceived(_)) {
            check("a command is recorded", after.commands.len() == before.commands.len() + 1);
        }
        let decides = matches!(self.event, Event::Wake | Event::ReplyReceived(_));
        if decides && after.process_state == ProcessState::Undoing && after.paused_at.is_none() {
            let begun = after.started_actions().any(|(.., p)| {
                is_awaited(p) || waits_until(p).is_some() || p.in_progress(self.after.now).is_some()
            });
            let has_work = begun || !left_to_undo(self.workflow, self.after).is_empty();
            let stuck = self.after.now >= after.complete_by;
            check("Undoing: a part is left to undo", has_work || stuck || !self.wakes().is_empty());
        }
        if !ends {
            return;
        }
        let notifications =
            self.effects.iter().filter(|e| matches!(e, Effect::Notification { .. })).count();
        check("the client is notified of the end once", notifications == 1);
        let in_error = after.process_state == ProcessState::Error;
        check(
            "Error sends exactly one alert, and no other state sends one",
            alerts().count() == usize::from(in_error),
        );
        let backward = after.undo_reason.is_some();
        for effect in alerts() {
            let Effect::Publish(BusEvent::Operator(event)) = effect else { continue };
            let (is_undo, named) = match &event.data {
                EventData::UndoFailed(trouble) => (true, &trouble.steps),
                EventData::TaskInError(trouble) => (false, &trouble.steps),
                EventData::BreakerOpened(_)
                | EventData::SubmissionRefused { .. }
                | EventData::MessageCorrupt { .. }
                | EventData::DeadLetterSeen { .. }
                | EventData::AgentMissing { .. }
                | EventData::BreakerClosed(_)
                | EventData::OperatorCommand { .. }
                | EventData::OperatorRedrive { .. } => continue,
            };
            check("the kind of the alert matches the direction of the task", is_undo == backward);
            let left_to_undo = left_to_undo(self.workflow, self.after);
            check(
                "the alert names all parts that are left to undo",
                !backward || left_to_undo.iter().all(|part| named.contains(part)),
            );
            let can = |part: &Part| has_undo(self.workflow, part);
            check(
                "the alert names only parts that have an undo",
                !backward || named.iter().all(can),
            );
            let failed = after.started_parts().filter(|(_, record)| is_failed(&record.forward));
            let failed: Vec<_> = failed.map(|(part, _)| part).collect();
            check("the alert names the parts that failed", backward || failed == *named);
        }
    }
}
