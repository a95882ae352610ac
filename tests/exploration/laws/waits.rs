//! The laws of `when` and `wait`: what is skipped, what waits and until when, and that what can begin
//! has begun.

use steward_core::{
    engine::event::Event,
    model::{
        attempt::Action,
        command::Order,
        document::DocumentKey,
        names::StepName,
        step::StepState,
        task::{ProcessState, Task},
        time::later,
    },
};

use super::Change;
use crate::exploration::{
    play::brings_late_news,
    states::{has_passed, is_awaited, is_completed, waits_until},
};

impl Change<'_> {
    /// Nothing is left lying that can begin.
    pub(super) fn of_what_is_ready(&self, after: &Task, broken: &mut Vec<String>) {
        if !self.starts(after) {
            return;
        }
        let passed = |name| after.steps.get(name).is_some_and(|record| has_passed(&record.run));
        for (name, step) in &self.setting.workflow.steps {
            if !after.steps.contains_key(name) && step.after.iter().all(passed) {
                broken.push(format!("{name} can begin, and has not"));
            }
        }
    }

    /// Whether this is a change that starts whatever can start on the way forward.
    fn starts(&self, after: &Task) -> bool {
        // That is only put on record.
        if brings_late_news(self.before.task.as_ref().unwrap(), after, self.event) {
            return false;
        }
        let decides = match self.event {
            Event::Wake
            | Event::Replied(_)
            | Event::Answered { .. }
            | Event::ChildEnded { .. }
            | Event::Asked(_) => true,
            Event::Commanded(_) => after.commands.last().is_some_and(|c| c.refused.is_none()),
            Event::Swept | Event::AlertSent { .. } => false,
        };
        let goes_on = after.process_state == ProcessState::Processing && after.paused_at.is_none();
        decides && goes_on && self.after.now < after.complete_by
    }

    /// A step with `when` is done if that is true, and skipped if it is false.
    pub(super) fn of_when(&self, before: &Task, after: &Task, broken: &mut Vec<String>) {
        for (name, source) in &self.setting.whens {
            let name: StepName = name.parse().unwrap();
            let Some(record) = after.steps.get(&name) else { continue };
            if before.steps.get(&name).is_some_and(|old| old.run.state == record.run.state) {
                continue;
            }
            let holds = self.condition(after, source);
            let by_hand = matches!(self.event, Event::Commanded(_)) && has_passed(&record.run);
            let follows = match record.run.state {
                StepState::Skipped { attempt: 0 } => holds == Some(false),
                StepState::Running { attempt: 1, .. } => holds == Some(true),
                StepState::Failed { attempt: 0 } => holds.is_none(),
                StepState::Each
                | StepState::Running { .. }
                | StepState::HandedOut { .. }
                | StepState::Waiting { .. }
                | StepState::Completed { .. }
                | StepState::Failed { .. }
                | StepState::Skipped { .. } => true,
            };
            if !follows && !by_hand {
                let state = record.run.state.name();
                broken.push(format!("{name}: its `when` is {holds:?}, and it is {state}"));
            }
        }
    }

    /// What the condition says that reads `ok` of the input, or of what a step returned.
    fn condition(&self, task: &Task, source: &str) -> Option<bool> {
        let documents = &self.after.documents;
        if source == "input" {
            let key = task.input.clone().map_or(DocumentKey::Submission, DocumentKey::Input);
            return documents.get(&key)?.get("input")?.get("ok")?.as_bool();
        }
        let step = source.parse().unwrap();
        let record = task.record(&step)?;
        documents.get(&record.run.output(&step, Action::Do)?)?.get("ok")?.as_bool()
    }

    /// A wait is as long as the definition says, and ends no sooner but by an operator.
    pub(super) fn of_the_waits(&self, before: &Task, after: &Task, broken: &mut Vec<String>) {
        let now = self.after.now;
        let obeyed = after.commands.last().is_some_and(|command| command.refused.is_none());
        let named = match self.event {
            Event::Commanded(command) => match &command.order {
                Order::Resubmit { step, .. } => Some(step.as_ref()),
                Order::Skip { .. }
                | Order::Complete { .. }
                | Order::Undo
                | Order::Cancel
                | Order::Pause
                | Order::Resume => None,
            },
            Event::Wake
            | Event::Swept
            | Event::Replied(_)
            | Event::Answered { .. }
            | Event::Asked(_)
            | Event::ChildEnded { .. }
            | Event::AlertSent { .. } => None,
        };
        for (name, wait) in &self.setting.waits {
            let part = name.parse().unwrap();
            let Some(record) = after.record(&part) else { continue };
            let old = before.record(&part);
            let mut law = |text: &str, holds: bool| {
                if !holds {
                    broken.push(format!("{name}: {text}"));
                }
            };
            let until = waits_until(&record.run);
            let begins = old.is_none() && until.is_some();
            law("a wait is as long as it says", !begins || until == Some(later(now, *wait)));
            let over = old.and_then(|old| waits_until(&old.run));
            let skew = self.setting.timing.clock_skew;
            let soon = if *self.event == Event::Wake { later(now, skew) } else { now };
            let ended = is_completed(&record.run);
            let commanded = matches!(self.event, Event::Commanded(_));
            law(
                "a wait ends when it is over",
                !ended || commanded || over.is_none_or(|over| over <= soon),
            );
            law("a wait is not over when it begins", !ended || commanded || old.is_some());
            let goes_on =
                after.process_state == ProcessState::Processing && after.paused_at.is_none();
            let waits = until.is_some_and(|until| until <= now);
            law("a wait that is over ends", !waits || !self.starts(after));
            let waited = over.is_some() && until.is_some();
            let resubmitted = obeyed && named == Some(Some(&part));
            law("an operator ends a wait at once", !resubmitted || !goes_on || !waited);
            let unnamed = named == Some(None) && over.is_some_and(|over| over > now);
            law("an operator who names no wait ends none", !unnamed || until == over);
            let backward = after.process_state == ProcessState::Undoing;
            let mut returns = after
                .parts()
                .filter(|(part, _)| self.setting.workflow.steps[&part.step].point_of_no_return);
            let may_be_called_off = returns.any(|(_, record)| is_awaited(&record.run));
            let paused = after.paused_at.is_some();
            law(
                "no wait goes on while the task goes backward for good",
                !backward
                    || may_be_called_off
                    || paused
                    || until.is_none()
                    || *self.event == Event::Swept,
            );
            let skipped = matches!(record.run.state, StepState::Skipped { .. });
            law(
                "no wait is given up while the undo may be called off",
                !skipped || over.is_none() || commanded || !may_be_called_off,
            );
            let called_off =
                before.process_state == ProcessState::Undoing && after.undo_reason.is_none();
            law(
                "an undo that is called off ends no wait",
                !called_off || over.is_none() || until == over,
            );
        }
    }
}
