//! The laws that hold in every world and in every change. They read the definition and the world; none
//! asks the core's own functions what is ready, what is left to undo, or what is due.

use std::collections::BTreeSet;

use jiff::Timestamp;
use steward_core::{
    engine::{effect::Effect, event::Event},
    limits,
    model::{
        attempt::{Action, Attempt},
        document::DocumentKey,
        events::Happened,
        messages::{Outcome, StepRequest},
        names::{Part, StepName},
        step::{Progress, StepState},
        task::{ProcessState, Task},
        time::later,
    },
};

use super::{
    play::is_alert,
    settings::{Ending, Setting},
    states::{
        awaited_by, has_passed, is_awaited, is_completed, is_failed, is_final, is_running,
        waits_until,
    },
    world::{Owed, World, end},
};

mod callbacks;
mod children;
mod items;
mod requests;
mod waits;

/// What an event changed.
pub(super) struct Change<'a> {
    pub(super) setting: &'a Setting,
    pub(super) before: &'a World,
    /// With the effects sent.
    pub(super) after: &'a World,
    pub(super) event: &'a Event,
    /// What was lost when this event came first.
    pub(super) owed: Option<&'a Owed>,
    pub(super) effects: &'a [Effect],
    /// Whether anything was saved.
    pub(super) applied: bool,
}

/// Every step that comes after `step`, directly or not.
fn followers(setting: &Setting, step: &StepName) -> BTreeSet<StepName> {
    let mut found = BTreeSet::from([step.clone()]);
    for _ in 0..setting.workflow.steps.len() {
        let more = setting.workflow.steps.iter();
        let more = more.filter(|(_, other)| other.after.iter().any(|name| found.contains(name)));
        let more: Vec<_> = more.map(|(name, _)| name.clone()).collect();
        found.extend(more);
    }
    found.remove(step);
    found
}

/// Whether the definition says how a part is undone.
fn has_undo(setting: &Setting, part: &Part) -> bool {
    let step = &setting.workflow.steps[&part.step];
    step.undo.is_some() || step.workflow.is_some()
}

/// Whether `part` has an undo, may have had an effect, and is not undone yet.
fn is_left(setting: &Setting, world: &World, part: &Part) -> bool {
    let record = world.task.as_ref().and_then(|task| task.record(part));
    let completed = record.is_some_and(|record| is_completed(&record.run));
    let undone = record.and_then(|record| record.undo.as_ref()).is_some_and(has_passed);
    // Of a task, what is left is known for sure.
    let stands = world.children.get(part).is_none_or(|child| child.is_open(world.now));
    has_undo(setting, part) && (completed || world.may_have_run(part)) && !undone && stands
}

/// All that is left to undo.
fn left(setting: &Setting, world: &World) -> Vec<Part> {
    let parts = world.task.iter().flat_map(Task::parts).map(|(part, _)| part);
    parts.filter(|part| is_left(setting, world, part)).collect()
}

/// The laws that are broken in a world as it stands.
pub(super) fn of_the_world(setting: &Setting, world: &World) -> Vec<String> {
    let Some(task) = &world.task else { return Vec::new() };
    let state = task.process_state;
    let steps = &setting.workflow.steps;
    let mut broken = Vec::new();
    let mut law = |text: &str, holds: bool| {
        if !holds {
            broken.push(text.to_owned());
        }
    };
    law("a task that goes on has a due time", is_final(task) || task.due.is_some());
    law(
        "Processed: every step completed or was skipped",
        state != ProcessState::Processed
            || steps.keys().all(|s| task.steps.get(s).is_some_and(|r| has_passed(&r.run))),
    );
    law(
        "Undone: whatever may have run is undone, or its undo skipped",
        state != ProcessState::Undone || left(setting, world).is_empty(),
    );
    law(
        "Undone: no call may still be in progress",
        state != ProcessState::Undone
            || !task.parts().any(|(part, _)| world.is_in_progress(setting, &part)),
    );
    law(
        "Undone: nobody is waited for",
        state != ProcessState::Undone || !task.actions().any(|(.., p)| is_awaited(p)),
    );
    law(
        "Error: the alert is out, or the task is due until it is",
        state != ProcessState::Error || world.alerted || task.due.is_some(),
    );
    law(
        "Processed, Undone: no longer due",
        state == ProcessState::Error || !is_final(task) || task.due.is_none(),
    );
    law(
        "Processing: no step failed",
        state != ProcessState::Processing || !task.parts().any(|(_, r)| is_failed(&r.run)),
    );
    law(
        "Undoing: no undo failed",
        state != ProcessState::Undoing || !task.parts().flat_map(|(_, r)| &r.undo).any(is_failed),
    );
    let returned = |name: &StepName| {
        let mut parts = task.parts().filter(|(part, _)| part.step == *name);
        steps[name].point_of_no_return && parts.any(|(_, record)| is_completed(&record.run))
    };
    law(
        "past the point of no return nothing is undone",
        !matches!(state, ProcessState::Undoing | ProcessState::Undone)
            || !steps.keys().any(returned),
    );
    broken.extend(children::of_children(setting, world, task));
    let mut law = |text: &str, holds: bool| {
        if !holds {
            broken.push(text.to_owned());
        }
    };
    for (step, action, progress) in task.actions() {
        let output = progress.output(&step, action);
        law(
            "a completed step points at its output",
            output.is_none_or(|key| world.documents.contains_key(&key) || world.lacks(&key)),
        );
        let input = progress.input.clone().map(DocumentKey::Input);
        law(
            "a step points at the input it reads",
            input.is_none_or(|key| world.documents.contains_key(&key) || world.lacks(&key)),
        );
    }
    broken
}

/// The laws that a change broke.
pub(super) fn of_the_change(change: &Change<'_>) -> Vec<String> {
    let mut broken = Vec::new();
    let (before, after) = change.tasks();
    change.of_requests(before, after, &mut broken);
    change.of_what_comes_back(after, &mut broken);
    change.of_what_items_say(after, &mut broken);
    change.of_submissions(&mut broken);
    change.of_what_children_say(before, after, &mut broken);
    change.of_answers(before, after, &mut broken);
    change.of_what_took_effect(before, after, &mut broken);
    change.of_the_parent(after, &mut broken);
    if change.applied {
        broken.extend(change.after.expires_too_early());
        change.of_due(after, &mut broken);
        change.of_attempts(before, after, &mut broken);
        change.of_failures(before, after, &mut broken);
        change.of_wakes(before, after, &mut broken);
        change.of_the_end(before, after, &mut broken);
        change.of_items(after, &mut broken);
        change.of_when(before, after, &mut broken);
        change.of_the_waits(before, after, &mut broken);
        change.of_what_is_ready(after, &mut broken);
        change.of_what_is_handed_out(before, after, &mut broken);
        change.of_what_returns(before, after, &mut broken);
        change.of_what_is_said_not_to_have_run(before, after, &mut broken);
        change.of_edits(before, after, &mut broken);
        change.of_edited_lists(before, after, &mut broken);
    }
    broken
}

impl Change<'_> {
    fn tasks(&self) -> (&Task, &Task) {
        (self.before.task.as_ref().unwrap(), self.after.task.as_ref().unwrap())
    }

    fn requests(&self) -> impl Iterator<Item = &StepRequest> {
        self.effects.iter().filter_map(|effect| match effect {
            Effect::Request(request) => Some(request),
            Effect::Submit(_)
            | Effect::Ask(_)
            | Effect::ChildEnded(_)
            | Effect::Reply(_)
            | Effect::Wake { .. }
            | Effect::Notice { .. }
            | Effect::Reject { .. }
            | Effect::Publish(_) => None,
        })
    }

    /// What is asked for, of agents and of other tasks, with the attempt.
    fn asked(&self) -> Vec<Attempt> {
        let task = self.after.task.as_ref().unwrap();
        self.effects.iter().filter_map(|effect| asked(task, effect)).collect()
    }

    fn wakes(&self) -> BTreeSet<Timestamp> {
        let wakes = self.effects.iter().filter_map(|effect| match effect {
            Effect::Wake { after, .. } => Some(later(self.after.now, *after)),
            Effect::Request(_)
            | Effect::Submit(_)
            | Effect::Ask(_)
            | Effect::ChildEnded(_)
            | Effect::Reply(_)
            | Effect::Notice { .. }
            | Effect::Reject { .. }
            | Effect::Publish(_) => None,
        });
        wakes.collect()
    }

    /// Whether the task ended, or ended once more.
    fn ends(&self, before: &Task, after: &Task) -> bool {
        let end = |task: &Task| (task.process_state, task.ended_at);
        self.applied && is_final(after) && end(after) != end(before)
    }

    /// How the task ended, if this ended it.
    pub(super) fn ending(&self) -> Option<Ending> {
        let (before, after) = self.tasks();
        if !self.ends(before, after) {
            return None;
        }
        let undo_failed = self.effects.iter().any(|effect| {
            matches!(effect, Effect::Publish(event)
                if matches!(event.data, Happened::UndoFailed(_)))
        });
        let past_return = after.error.iter().any(|text| text.contains("point of no return"));
        match after.process_state {
            ProcessState::Processed => Some(Ending::Processed),
            ProcessState::Undone => Some(Ending::Undone),
            ProcessState::Error if past_return => Some(Ending::PastReturn),
            ProcessState::Error if undo_failed => Some(Ending::UndoFailed),
            ProcessState::Error => Some(Ending::TaskInError),
            ProcessState::Pending | ProcessState::Processing | ProcessState::Undoing => None,
        }
    }

    /// What was lost with a process is sent when its message comes back.
    fn of_what_comes_back(&self, after: &Task, broken: &mut Vec<String>) {
        let Some(owed) = self.owed else { return };
        let mut law = |text: String, holds: bool| {
            if !holds {
                broken.push(text);
            }
        };
        for (attempt, dispatch) in &self.after.dispatches {
            let Attempt { step, action, number } = attempt;
            let runs = after.progress(step, *action).is_some_and(|progress| {
                is_running(progress) && progress.state.attempt() == *number
            });
            // A step that is to be undone is better not asked for at all.
            let wanted = runs && !is_final(after) && *action == after.direction();
            let text = format!("the lost request of {} {step} #{number} is sent", action.name());
            law(text, !wanted || dispatch.sent);
        }
        let alerted = after.process_state != ProcessState::Error || self.after.alerted;
        law("the lost alert is sent".to_owned(), alerted);
        let notices = self.effects.iter().filter(|e| matches!(e, Effect::Notice { .. })).count();
        let is_end = owed.ended.is_some() && owed.ended == end(after);
        let known = after.process_state == ProcessState::Error && after.due.is_none();
        law("the lost end is told".to_owned(), !is_end || known || notices == 1);
        let (wakes, now) = (self.wakes(), self.after.now);
        for (Attempt { step, action, number }, at) in &owed.waits {
            let still = after.progress(step, *action).is_some_and(|progress| {
                waits_until(progress) == Some(*at) && progress.state.attempt() == *number
            });
            let wanted = still
                && !is_final(after)
                && after.paused_at.is_none()
                && *action == after.direction();
            let sent = wakes.contains(at) || (*at <= now && wakes.contains(&now));
            law(format!("the lost wake for {} {step} is sent", action.name()), !wanted || sent);
        }
        let idle = !after.actions().any(|(.., p)| {
            is_awaited(p) || waits_until(p).is_some() || p.in_progress(now).is_some()
        });
        let stopped = is_final(after) || after.paused_at.is_some() || now >= after.complete_by;
        let wanted = owed.left && idle && !stopped;
        law("what was left to do is asked for".to_owned(), !wanted || !wakes.is_empty());
    }

    /// A task is due before anything in it needs looking after.
    fn of_due(&self, after: &Task, broken: &mut Vec<String>) {
        let (Some(due), false) = (after.due, is_final(after)) else { return };
        let (now, timing) = (self.after.now, self.setting.timing);
        let paused = after.paused_at.is_some();
        let mut law = |text: &str, by: Timestamp| {
            if due > by {
                broken.push(format!("due {}s: {text}", due.as_second()));
            }
        };
        let mut is_idle = true;
        for (_, _, progress) in after.actions() {
            if let Some(complete_by) = awaited_by(progress) {
                is_idle = false;
                law("due by the complete-by of what is awaited", complete_by);
            }
            if let (Some(until), false) = (waits_until(progress), paused) {
                is_idle = false;
                law(
                    "due once a wait was to be picked up",
                    later(until.max(now), timing.pickup_within),
                );
            }
        }
        let backward = after.undo_reason.is_some();
        for (part, record) in after.parts().filter(|_| backward && !paused) {
            let undo = record.undo.as_ref().filter(|undo| has_passed(undo));
            let undo = undo.and_then(|undo| undo.in_progress(now));
            let until = record.run.in_progress(now).max(undo);
            let really = self.after.is_in_progress(self.setting, &part);
            is_idle &= until.is_none() && !really;
            // It is known from when its attempt is over.
            if let Some(until) = until {
                law("due once a call is over", later(until, timing.pickup_within));
            }
        }
        if paused {
            return law("due within the hour", later(now, limits::PAUSED_LOOK_WITHIN));
        }
        law("due by the task's complete-by", after.complete_by);
        if is_idle {
            law("due soon if nothing runs or waits", later(now, timing.pickup_within));
        }
        if *self.event == Event::Swept && later(due, timing.clock_skew) <= now {
            broken.push("what was swept is not due still".to_owned());
        }
    }

    /// Attempts follow each other, and start only when they may.
    fn of_attempts(&self, before: &Task, after: &Task, broken: &mut Vec<String>) {
        for (step, action, progress) in after.actions() {
            let old = before.progress(&step, action);
            let (number, old_number) =
                (progress.state.attempt(), old.map_or(0, |old| old.state.attempt()));
            let of = format!("{} {step} #{number}", action.name());
            let mut law = |text: &str, holds: bool| {
                if !holds {
                    broken.push(format!("{of}: {text}"));
                }
            };
            law("attempts only grow, by one", (old_number..=old_number + 1).contains(&number));
            let by_hand = matches!(self.event, Event::Commanded(_)) && has_passed(progress);
            if number == old_number || by_hand {
                continue;
            }
            if let (Action::Undo, 1) = (action, number) {
                let done = after.progress(&step, Action::Do).and_then(|run| run.input.as_ref());
                law("what is undone is what was done", by_hand || progress.input.as_ref() == done);
            }
            law("one attempt at a time", !old.is_some_and(is_awaited));
            law("nothing starts in a paused task", after.paused_at.is_none());
            let attempt = Attempt { step: step.clone(), action, number };
            let asked = self.asked().contains(&attempt);
            law("what starts is asked for", asked || is_failed(progress));
            if let StepState::Running { complete_by, .. } = progress.state {
                let in_time = complete_by > self.after.now && complete_by <= after.complete_by;
                law("an attempt ends within the task's time", in_time);
            }
        }
        // What never began is begun anew, and may have items then.
        let begun = |progress: &Progress| progress.state != StepState::Failed { attempt: 0 };
        let mut begun = before.actions().filter(|(.., progress)| begun(progress));
        if let Some((step, ..)) = begun.find(|(s, a, _)| after.progress(s, *a).is_none()) {
            broken.push(format!("the record of {step} is gone"));
        }
    }

    /// Replies are accepted in time, failures counted once, policies kept to.
    fn of_failures(&self, before: &Task, after: &Task, broken: &mut Vec<String>) {
        let now = self.after.now;
        let mut law = |text: &str, holds: bool| {
            if !holds {
                broken.push(text.to_owned());
            }
        };
        if let Event::Replied(reply) = self.event {
            let old = before.progress(&reply.step, reply.action);
            let state = old.map(|old| &old.state);
            let newest = state.is_some_and(|state| state.attempt() == reply.attempt);
            let completed = matches!(reply.outcome, Outcome::Completed { .. });
            let ran = reply.outcome.may_have_run() && reply.action == Action::Do;
            let is_news = ran && old.is_some_and(|old| !old.may_have_run);
            // A second refusal says nothing new.
            let is_proof =
                matches!(reply.outcome, Outcome::Completed { .. } | Outcome::Unknown { .. });
            let is_earlier = state.is_some_and(|state| reply.attempt < state.attempt());
            let counts = match state {
                Some(StepState::Running { .. }) => true,
                // Given up, and nothing has been asked for since.
                Some(StepState::Waiting { .. }) => completed || is_news,
                // Believed not to have run.
                Some(StepState::Failed { .. } | StepState::Skipped { .. }) => is_news && is_proof,
                Some(
                    StepState::HandedOut { .. } | StepState::Each | StepState::Completed { .. },
                )
                | None => false,
            };
            law(
                "a reply is accepted of the newest attempt, until it is given up",
                newest && counts || is_earlier && is_news && is_proof,
            );
            let count = |task: &Task| {
                task.progress(&reply.step, reply.action).map_or(0, |p| p.failure_count)
            };
            let failed = after.progress(&reply.step, reply.action).is_some_and(is_failed);
            let deferred = matches!(reply.outcome, Outcome::Deferred { .. }) && !failed;
            law("a deferral is not counted", !deferred || count(before) == count(after));
        }
        if *self.event != Event::Swept || is_final(before) {
            return;
        }
        let past = |at: Timestamp| later(at, self.setting.timing.clock_skew) <= now;
        for (step, action, old) in before.actions() {
            let Some(new) = after.progress(&step, action) else { continue };
            let Some(complete_by) = awaited_by(old) else { continue };
            // Nobody is waited for once the task turns round, but agents and whoever may pass the
            // point of no return.
            let turns = before.direction() != after.direction();
            let is_dropped = turns && (!is_running(old) || self.setting.runs_task(&step));
            if is_awaited(new) || (is_dropped && !past(complete_by)) {
                law("what is past due is given up", !past(complete_by));
                continue;
            }
            law("nothing else is given up", past(complete_by));
            law("a silent attempt may have run", new.may_have_run);
            law("a failure is counted once", new.failure_count == old.failure_count + 1);
            let definition = &self.setting.workflow.steps[&step.step];
            let repeatable = definition.idempotent || action == Action::Undo;
            let wanted = before.process_state != ProcessState::Undoing || action == Action::Undo;
            let policy = definition.action(action).unwrap().recovery;
            let waits = policy.extended_wait.as_ref().map_or(0, |wait| wait.times);
            let allowed = policy.attempts.0 * (waits + 1);
            let again = repeatable && wanted && new.failure_count < allowed;
            let ended = before.process_state != ProcessState::Undoing
                && (after.undo_reason.is_some() || is_final(after));
            law("all attempts are made, and no more", is_failed(new) != again || ended);
        }
    }

    /// Every wait ends by a wake, if a queue can hold it back so long.
    fn of_wakes(&self, before: &Task, after: &Task, broken: &mut Vec<String>) {
        let (wakes, now) = (self.wakes(), self.after.now);
        if is_final(after) || after.paused_at.is_some() || now >= after.complete_by {
            return;
        }
        for (step, action, progress) in after.actions() {
            let Some(until) = waits_until(progress) else { continue };
            let is_new = before.progress(&step, action).and_then(waits_until) != Some(until);
            let longest = later(now, limits::QUEUE_DELAY_MAX);
            let wanted = is_new || before.paused_at.is_some();
            if wanted && until <= longest && !wakes.contains(&until.max(now)) {
                broken.push(format!("{} {step} waits, and nobody is woken", action.name()));
            }
        }
    }

    /// Who is told of the end.
    fn of_the_end(&self, before: &Task, after: &Task, broken: &mut Vec<String>) {
        let mut law = |text: &str, holds: bool| {
            if !holds {
                broken.push(text.to_owned());
            }
        };
        let alerts = || self.effects.iter().filter(|effect| is_alert(effect));
        let ends = self.ends(before, after);
        if matches!(self.event, Event::Commanded(_)) {
            law("a command is on record", after.commands.len() == before.commands.len() + 1);
        }
        let decides = matches!(self.event, Event::Wake | Event::Replied(_));
        if decides && after.process_state == ProcessState::Undoing && after.paused_at.is_none() {
            let begun = after.actions().any(|(.., p)| {
                is_awaited(p) || waits_until(p).is_some() || p.in_progress(self.after.now).is_some()
            });
            let left = begun || !left(self.setting, self.after).is_empty();
            let stuck = self.after.now >= after.complete_by;
            law("Undoing: something is left to undo", left || stuck || !self.wakes().is_empty());
        }
        if !ends {
            return;
        }
        let notices = self.effects.iter().filter(|e| matches!(e, Effect::Notice { .. })).count();
        law("the client is told of the end, once", notices == 1);
        let in_error = after.process_state == ProcessState::Error;
        law("an Error is alerted, nothing else is", alerts().count() == usize::from(in_error));
        law("what has ended is not paused", after.paused_at.is_none());
        let backward = after.undo_reason.is_some();
        for effect in alerts() {
            let Effect::Publish(event) = effect else { continue };
            let (is_undo, named) = match &event.data {
                Happened::UndoFailed(trouble) => (true, &trouble.steps),
                Happened::TaskInError(trouble) => (false, &trouble.steps),
                Happened::BreakerOpened(_)
                | Happened::SubmissionRefused { .. }
                | Happened::MessageCorrupt { .. }
                | Happened::DeadLetterSeen { .. }
                | Happened::AgentMissing { .. }
                | Happened::BreakerClosed(_)
                | Happened::OperatorCommand { .. }
                | Happened::OperatorRedrive { .. }
                | Happened::TaskEnded { .. } => continue,
            };
            law("the alert says which way the task went", is_undo == backward);
            let left = left(self.setting, self.after);
            law(
                "the alert names what is left",
                !backward || left.iter().all(|part| named.contains(part)),
            );
            let can = |part: &Part| has_undo(self.setting, part);
            law("the alert names what can be undone", !backward || named.iter().all(can));
            let failed = after.parts().filter(|(_, record)| is_failed(&record.run));
            let failed: Vec<_> = failed.map(|(part, _)| part).collect();
            law("the alert names what failed", backward || failed == *named);
        }
    }
}

/// What an effect asks for, of an agent or of another task.
pub(super) fn asked(task: &Task, effect: &Effect) -> Option<Attempt> {
    match effect {
        Effect::Request(StepRequest { step, action, attempt: number, .. }) => {
            Some(Attempt { step: step.clone(), action: *action, number: *number })
        }
        Effect::Submit(submission) => {
            let step = submission.parent.as_ref()?.step.clone();
            let action = if submission.undo { Action::Undo } else { Action::Do };
            let number = task.progress(&step, action)?.state.attempt();
            Some(Attempt { step, action, number })
        }
        Effect::Ask(_)
        | Effect::ChildEnded(_)
        | Effect::Reply(_)
        | Effect::Wake { .. }
        | Effect::Notice { .. }
        | Effect::Reject { .. }
        | Effect::Publish(_) => None,
    }
}
