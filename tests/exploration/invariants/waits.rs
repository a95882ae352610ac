//! Invariants of `when` and `wait`: which steps are skipped, how long they wait, and that a command ends them.

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
                | CommandAction::Resolve
                | CommandAction::Pause
                | CommandAction::Resume
                | CommandAction::Rerun { .. } => None,
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
            let ended = is_completed(&record.forward);
            let commanded = matches!(self.event, Event::CommandReceived(_));
            check("a wait is not over when it begins", !ended || commanded || old.is_some());
            let waits = until.is_some_and(|until| until <= now);
            check("a wait that is over is ended", !waits || !self.starts(after));
            let waited = over.is_some() && until.is_some();
            let resubmitted = accepted && named == Some(Some(&part));
            let starts = self.starts(after);
            check("a resubmit of a wait ends it at once", !resubmitted || !starts || !waited);
        }
    }
}
