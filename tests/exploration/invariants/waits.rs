//! Invariants of `when` and `wait`: which steps are skipped, how long they wait, and that every ready step has started.

use steward_core::{
    engine::event::Event,
    model::{
        attempt::Action,
        command::{CommandAction, ReceivedCommand},
        document::DocumentKey,
        names::StepName,
        step::StepState,
        task::{ProcessState, Task},
        time::later,
    },
};

use super::CheckedTransition;
use crate::exploration::{
    progress::{has_passed, is_completed, waits_until},
    recording::brings_late_news,
};

impl CheckedTransition<'_> {
    /// Every step that is ready has started.
    pub(super) fn check_ready_steps(&self, after: &Task, violated: &mut Vec<String>) {
        if !self.starts(after) {
            return;
        }
        let passed = |name| after.steps.get(name).is_some_and(|record| has_passed(&record.forward));
        for (name, step) in &self.workflow.definition.steps {
            if !after.steps.contains_key(name) && step.after.iter().all(passed) {
                violated.push(format!("{name}: a step that is ready has started"));
            }
        }
    }

    /// Whether this transition starts all ready steps.
    fn starts(&self, after: &Task) -> bool {
        // Late news is only recorded.
        if brings_late_news(self.before.task.as_ref().unwrap(), after, self.event) {
            return false;
        }
        let decides = match self.event {
            Event::Wake
            | Event::ReplyReceived(_)
            | Event::CallbackReceived { .. }
            | Event::ChildEnded { .. }
            | Event::ParentRequested(_) => true,
            Event::CommandReceived(_) => after.commands.last().is_some_and(|c| c.refused.is_none()),
            Event::Swept | Event::AlertPublished { .. } => false,
        };
        let is_active =
            after.process_state == ProcessState::Processing && after.paused_at.is_none();
        decides && is_active && self.after.now < after.complete_by
    }

    /// A step with `when` runs if the condition is true, and is skipped if it is false.
    pub(super) fn check_when(&self, before: &Task, after: &Task, violated: &mut Vec<String>) {
        for (name, source) in &self.workflow.whens {
            let name: StepName = name.parse().unwrap();
            let Some(record) = after.steps.get(&name) else { continue };
            if before.steps.get(&name).is_some_and(|old| old.forward.state == record.forward.state)
            {
                continue;
            }
            let holds = self.condition(after, source);
            let by_hand =
                matches!(self.event, Event::CommandReceived(_)) && has_passed(&record.forward);
            let is_right = match record.forward.state {
                StepState::Skipped { attempt: None } => holds == Some(false),
                StepState::Running { attempt: 1, .. } => holds == Some(true),
                StepState::Failed { attempt: None } => holds.is_none(),
                StepState::RunningItems
                | StepState::Running { .. }
                | StepState::AwaitingCallback { .. }
                | StepState::Waiting { .. }
                | StepState::Completed { .. }
                | StepState::Failed { .. }
                | StepState::Skipped { .. } => true,
            };
            if !is_right && !by_hand {
                let state = record.forward.state.name();
                violated.push(format!(
                    "{name}: its state matches its `when`; not {state} if that is {holds:?}"
                ));
            }
        }
    }

    /// The value of a condition, which reads `ok` from the input or from a step's output.
    fn condition(&self, task: &Task, source: &str) -> Option<bool> {
        if source == "input" {
            let key =
                task.input_edit_id.clone().map_or(DocumentKey::Submission, DocumentKey::Input);
            return self.after.document(&key)?.get("input")?.get("ok")?.as_bool();
        }
        let step = source.parse().unwrap();
        let record = task.record(&step)?;
        self.after.document(&record.forward.output(&step, Action::Do)?)?.get("ok")?.as_bool()
    }

    /// A wait is as long as defined, and only an operator ends it earlier.
    pub(super) fn check_waits(&self, before: &Task, after: &Task, violated: &mut Vec<String>) {
        let now = self.after.now;
        let accepted = after.commands.last().is_some_and(|command| command.refused.is_none());
        let named = match self.event {
            Event::CommandReceived(ReceivedCommand { command, .. }) => match &command.action {
                CommandAction::Resubmit { step, .. } => Some(step.as_ref()),
                CommandAction::Skip { .. }
                | CommandAction::Complete { .. }
                | CommandAction::Approve { .. }
                | CommandAction::Reject { .. }
                | CommandAction::Undo
                | CommandAction::Cancel
                | CommandAction::Pause
                | CommandAction::Resume => None,
            },
            Event::Wake
            | Event::Swept
            | Event::ReplyReceived(_)
            | Event::CallbackReceived { .. }
            | Event::ParentRequested(_)
            | Event::ChildEnded { .. }
            | Event::AlertPublished { .. } => None,
        };
        for (name, wait) in &self.workflow.waits {
            let part = name.parse().unwrap();
            let Some(record) = after.record(&part) else { continue };
            let old = before.record(&part);
            let mut check = |text: &str, holds: bool| {
                if !holds {
                    violated.push(format!("{name}: {text}"));
                }
            };
            let until = waits_until(&record.forward);
            let begins = old.is_none() && until.is_some();
            check("a wait is as long as defined", !begins || until == Some(later(now, *wait)));
            let over = old.and_then(|old| waits_until(&old.forward));
            let skew = self.workflow.timing.clock_skew;
            let soon = if *self.event == Event::Wake { later(now, skew) } else { now };
            let ended = is_completed(&record.forward);
            let commanded = matches!(self.event, Event::CommandReceived(_));
            check(
                "a wait ends when it is over",
                !ended || commanded || over.is_none_or(|over| over <= soon),
            );
            check("a wait is not over when it begins", !ended || commanded || old.is_some());
            let waits = until.is_some_and(|until| until <= now);
            check("a wait that is over is ended", !waits || !self.starts(after));
            let waited = over.is_some() && until.is_some();
            let resubmitted = accepted && named == Some(Some(&part));
            let starts = self.starts(after);
            check("a resubmit of a wait ends it at once", !resubmitted || !starts || !waited);
            let unnamed = named == Some(None) && over.is_some_and(|over| over > now);
            check("a resubmit without a step ends no wait", !unnamed || until == over);
            let backward = after.process_state == ProcessState::Undoing;
            let is_undone = after.process_state == ProcessState::Undone;
            let is_final_undo = after.started_parts().any(|(_, record)| record.undo.is_some());
            let paused = after.paused_at.is_some();
            check(
                "no wait continues in an undo that is final",
                !backward
                    || !is_final_undo
                    || paused
                    || until.is_none()
                    || *self.event == Event::Swept,
            );
            let skipped = matches!(record.forward.state, StepState::Skipped { .. });
            check(
                "no wait is given up in an undo that may be abandoned",
                !skipped || over.is_none() || commanded || is_final_undo || is_undone,
            );
            let abandoned =
                before.process_state == ProcessState::Undoing && after.undo_reason.is_none();
            check(
                "an undo that is abandoned ends no wait",
                !abandoned || over.is_none() || until == over,
            );
        }
    }
}
