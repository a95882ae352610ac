//! What the oracle holds against a save: attempts that begin too early or too often, waits cut short,
//! answers taken too late, steps skipped or refused that ought not to be.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use steward_core::model::{
    attempt::Action,
    document::Document,
    names::Part,
    step::{Progress, StepState},
    task::{ProcessState, Task},
};
use steward_operator::view::newest_reason;

use super::{
    blueprint::{CallbackPlan, StepPlan, WorkPlan},
    ledger::Ledger,
    oracle::{AttemptOf, Oracle, describe, is_asked, is_final, is_touched, resubmits},
    plan::{Millis, since_start},
    sense::{Known, Sense},
};

const SECOND: Duration = Duration::from_secs(1);

/// What a queue can hold a message back for, in seconds.
const DELAY_MAX_S: i64 = 900;

/// Reasons for which others fail a step: services, those who answer, silence, other tasks.
const FROM_OUTSIDE: [&str; 22] = [
    "408",
    "409",
    "422",
    "301",
    "302",
    "303",
    "307",
    "308",
    "503",
    "504",
    "2xx with HTML",
    "connection",
    "the call took longer than",
    "the call timed out",
    "the call that probed the service did not end in time",
    "the function's time was up",
    "declined",
    "no reply by complete-by",
    "its child task ",
    "the task is being undone, so the callback",
    "breaker",
    "outcome unknown",
];

/// One save, as it went through; the oracle knows the task as it was saved.
pub(super) struct Save<'a> {
    pub(super) oracle: &'a Oracle,
    pub(super) ledger: &'a Ledger,
    pub(super) before: &'a Task,
    pub(super) after: &'a Task,
    pub(super) documents: &'a [Document],
    /// When it was saved before.
    pub(super) last: Option<Timestamp>,
    pub(super) now: Timestamp,
}

/// One part of it, and how it changed.
struct Moved<'a> {
    part: Part,
    action: Action,
    step: &'a StepPlan,
    old: Option<&'a Progress>,
    new: &'a Progress,
}

impl Moved<'_> {
    fn number(&self) -> u32 {
        self.new.state.attempt()
    }

    fn callback(&self) -> Option<CallbackPlan> {
        match self.step.work {
            WorkPlan::Call { callback, .. } => callback.filter(|_| self.action == Action::Do),
            WorkPlan::Wait(_) | WorkPlan::Child(_) => None,
        }
    }

    fn is_wait(&self) -> bool {
        matches!(self.step.work, WorkPlan::Wait(_))
    }

    /// Whether it came into its state by this save.
    fn is_new(&self) -> bool {
        self.old.is_none_or(|old| old.state != self.new.state)
    }
}

impl Save<'_> {
    pub(super) fn check(&self) -> Vec<String> {
        let (id, before, after) = (&self.after.task_id, self.before, self.after);
        let mut found = Vec::new();
        if after.revision != before.revision + 1 {
            let (old, new) = (before.revision, after.revision);
            found.push(format!("{id}: revision {new} was saved over revision {old}"));
        }
        found.extend(check_due(self.oracle, after, self.now));
        found.extend(self.check_end());
        found.extend(self.check_idle());
        found.extend(super::family::not_undone(self.oracle, before, after));
        found.extend(self.check_in_progress());
        let Some(sense) = Sense::of(self.oracle, self.ledger, id) else { return found };
        for (part, action, new) in after.actions() {
            let of = describe(id, &part, action);
            let Some(step) = sense.graph.step(&part.step) else {
                found.push(format!("{of}: there is no such step"));
                continue;
            };
            let old = before.progress(&part, action);
            let moved = Moved { part, action, step, old, new };
            let more = [
                self.check_attempt(&moved),
                self.check_failures(&moved, sense),
                self.check_between(&moved),
                self.check_completed(&moved, sense),
                self.check_begun(&moved, sense),
                self.check_handed_out(&moved),
                self.check_given_up(&moved),
                self.check_undo_of_task(&moved),
                // Given up now, and not before its task ended.
                moved
                    .is_new()
                    .then(|| {
                        let reason = self.reason(&moved.part, moved.action);
                        let given_up = (&moved.part, new, reason.as_deref());
                        super::family::given_up(self.oracle, self.after, given_up, self.now)
                    })
                    .flatten(),
            ];
            found.extend(more.into_iter().flatten().map(|finding| format!("{of}: {finding}")));
        }
        found
    }

    /// Why the newest attempt at a part failed or was deferred, as its document says.
    fn reason(&self, part: &Part, action: Action) -> Option<String> {
        newest_reason(self.documents, part, action)
    }

    fn key(&self, moved: &Moved<'_>, number: u32) -> AttemptOf {
        (self.after.task_id.clone(), moved.part.clone(), moved.action, number)
    }

    /// What ended stays ended, unless an operator asks for more, or the task that it runs for goes
    /// backward.
    fn check_end(&self) -> Option<String> {
        let (before, after) = (self.before, self.after);
        let parent = after.parent.as_ref().and_then(|of| self.oracle.tasks.get(&of.task_id));
        let undone = after.undo_reason.is_some()
            && before.undo_reason.is_none()
            && parent.is_some_and(|parent| parent.undo_reason.is_some());
        let went_on = is_final(before) && before.process_state != after.process_state;
        let (id, old, new) = (&after.task_id, before.process_state, after.process_state);
        // Another delivery of what was refused took effect.
        let ran_after_all = (old, new) == (ProcessState::Undone, ProcessState::Error)
            && after.error.as_ref().is_some_and(|error| error.contains("took effect after"));
        if ran_after_all {
            return None;
        }
        (went_on && !undone && !is_asked(before, after))
            .then(|| format!("{id}: was {old} and became {new} by itself"))
    }

    /// When a task is reported Processed or Undone, no call is in progress that will still do something,
    /// and of a task that is undone every task of its steps is.
    fn check_in_progress(&self) -> Vec<String> {
        let (id, state) = (&self.after.task_id, self.after.process_state);
        let reported = state != self.before.process_state
            && matches!(state, ProcessState::Processed | ProcessState::Undone);
        if !reported {
            return Vec::new();
        }
        let by_hand = |part: &Part, action| self.oracle.is_by_hand(id, part, action);
        let pending = self.ledger.pending(id);
        let calls = pending.filter(|process| {
            let request = &process.request;
            !by_hand(&request.step, request.action)
        });
        let mut found: Vec<_> = calls
            .map(|process| {
                let (part, attempt) = (&process.request.step, process.request.attempt);
                let later = process.commits_at.unwrap_or_default().saturating_sub(since_start(self.now));
                format!(
                    "{id}: {state}, and a call of step {part}, attempt {attempt}, is in progress: it \
                     takes effect {later} ms later"
                )
            })
            .collect();
        if state == ProcessState::Undone {
            let children = self.oracle.children_of(id);
            found.extend(children.filter(|(part, _)| !by_hand(part, Action::Undo)).filter_map(
                |(part, child)| {
                    let state = child.process_state;
                    (state != ProcessState::Undone).then(|| {
                        format!(
                            "{id}: Undone, and {}, the task of step {part}, is {state}",
                            child.task_id
                        )
                    })
                },
            ));
        }
        found
    }

    /// A task that has begun runs out of time only while somebody is at work, or something waits.
    fn check_idle(&self) -> Option<String> {
        let (before, after) = (self.before, self.after);
        let overdue = "the task was not done by its complete-by";
        let says = |reason: &Option<String>| reason.as_deref() == Some(overdue);
        let was = says(&before.error) || says(&before.undo_reason);
        let is = says(&after.error) || says(&after.undo_reason);
        let busy = before.actions().any(|(_, _, progress)| {
            matches!(progress.state, StepState::Waiting { .. })
                || awaited_by(&progress.state).is_some()
        });
        // What ends at the last moment lets nothing more begin.
        let early = self.last.is_some_and(|last| last + self.oracle.skew < before.complete_by);
        let idle = is && !was && !busy && early && !is_touched(after);
        idle.then(|| format!("{}: ran out of time, and nobody was at work", after.task_id))
    }

    fn check_attempt(&self, moved: &Moved<'_>) -> Option<String> {
        let (number, last) = (moved.number(), moved.old.map_or(0, |old| old.state.attempt()));
        let is_wait_over =
            moved.is_wait() && moved.new.state == StepState::Completed { attempt: 0 };
        if number < last && !is_wait_over {
            return Some(format!("attempt {number} was taken although {last} had begun"));
        }
        let begins = moved.new.state.is_running() && number > last;
        if begins && self.before.paused_at.is_some() && self.after.paused_at.is_some() {
            return Some(format!("attempt {number} began in a paused task"));
        }
        let complete_by = moved.old.and_then(|old| awaited_by(&old.state))?;
        let said = self.is_answered(moved, last);
        (begins && self.now <= complete_by && !said)
            .then(|| format!("attempt {number} began while {last} may be at work"))
    }

    /// Whether whoever is at work on an attempt has answered.
    fn is_answered(&self, moved: &Moved<'_>, number: u32) -> bool {
        let key = self.key(moved, number);
        let handed_out =
            moved.old.is_some_and(|old| matches!(old.state, StepState::HandedOut { .. }));
        let heard = (self.after.task_id.clone(), moved.part.clone());
        (moved.action == Action::Do && self.oracle.said.contains(&heard))
            || (!handed_out && self.oracle.answered.contains(&key))
            || self.oracle.heard.contains(&heard)
    }

    fn check_failures(&self, moved: &Moved<'_>, sense: Sense<'_>) -> Option<String> {
        let max = sense.graph.failures_max(&moved.part.step, moved.action);
        let count = moved.new.failure_count;
        // A permanent failure may come on top.
        if count > max.max(1) + 1 {
            return Some(format!("failed {count} times; its policy allows {max}"));
        }
        if !moved.is_new() || !moved.new.state.is_failed() {
            return None;
        }
        let error = self.reason(&moved.part, moved.action).unwrap_or_default();
        let outside = FROM_OUTSIDE.iter().any(|reason| error.contains(reason));
        let expected = outside || error.is_empty() || sense.may_fail(&moved.part, moved.action);
        (!expected).then(|| format!("it was refused: {error}"))
    }

    /// No wait between attempts is cut short; and where nothing is lost, none lasts longer than it
    /// must.
    fn check_between(&self, moved: &Moved<'_>) -> Option<String> {
        let last = moved.old.map_or(0, |old| old.state.attempt());
        let begins = moved.new.state.is_running() && moved.number() > last;
        if !begins || !self.after.commands.is_empty() {
            return None;
        }
        let (since, until) = self.oracle.waits.get(&self.key(moved, last)).copied()?;
        let early = until.duration_since(self.now).as_millis();
        let skew = self.oracle.skew.as_millis() as i128;
        if early > 2 * skew {
            return Some(format!("began {early} ms before its wait was over"));
        }
        self.is_late(since, until)
    }

    fn is_late(&self, since: Timestamp, until: Timestamp) -> Option<String> {
        let Oracle { skew, pickup_within, sweep_every, calm, .. } = self.oracle;
        let by_wake = until.duration_since(since).as_secs() < DELAY_MAX_S;
        let found_within = if by_wake { Duration::ZERO } else { *pickup_within + *sweep_every };
        let late = self.now.duration_since(until).as_millis();
        let most = (*skew * 3 + found_within).as_millis() as i128 + 5_000;
        (*calm && late > most)
            .then(|| format!("its wait was over {late} ms ago, and nothing went wrong"))
    }

    fn check_completed(&self, moved: &Moved<'_>, sense: Sense<'_>) -> Option<String> {
        let StepState::Completed { attempt: number } = moved.new.state else { return None };
        if number == 0 {
            return self.check_wait(moved, sense);
        }
        let key = moved.new.output(&moved.part, moved.action);
        let is_it = |document: &&Document| Some(&document.key) == key.as_ref();
        let Some(document) = self.documents.iter().find(is_it) else {
            return Some("completed, and its output is nowhere".to_owned());
        };
        if !moved.is_new() || document.body == Oracle::by_hand() {
            return None;
        }
        let said = |value: &Value| *value == document.body;
        let account = sense.account(&moved.part);
        let is_said = match moved.callback() {
            Some(_) => account.is_some_and(|account| account.said.iter().any(said)),
            None if moved.action == Action::Undo => true,
            None => sense.part_may_return(&moved.part, moved.step, &document.body),
        };
        (!is_said).then(|| format!("completed with what nobody said: {}", document.body))
    }

    /// A wait that is over: not too early, and where nothing is lost, not too late.
    fn check_wait(&self, moved: &Moved<'_>, sense: Sense<'_>) -> Option<String> {
        if !moved.is_wait() {
            return Some("completed by nobody".to_owned());
        }
        if !moved.is_new() || resubmits(self.after) > 0 {
            return None;
        }
        let (now, least) = (since_start(self.now), sense.passes_at(&moved.part.step));
        if now < least {
            return Some(format!("its wait ended {} ms early", least - now));
        }
        let (since, until) = self.oracle.waits.get(&self.key(moved, 0)).copied()?;
        if is_touched(self.after) {
            return None;
        }
        self.is_late(since, until)
    }

    /// Only what ought to run begins, and only what ought not is skipped.
    fn check_begun(&self, moved: &Moved<'_>, sense: Sense<'_>) -> Option<String> {
        if moved.old.is_some() || moved.action == Action::Undo {
            return None;
        }
        let holds = sense.holds(moved.step);
        match moved.new.state {
            StepState::Skipped { .. } => {
                let by_itself = sense.oracle.is_skipped(sense.id(), &moved.part.step);
                let wrong = by_itself && matches!(holds, Known::Is(true) | Known::Fails);
                wrong.then(|| "was skipped, and ought to run".to_owned())
            }
            StepState::Running { .. } | StepState::HandedOut { .. } | StepState::Waiting { .. } => {
                let wrong = matches!(holds, Known::Is(false) | Known::Fails);
                wrong.then(|| "began, and ought not to run".to_owned())
            }
            StepState::Each | StepState::Completed { .. } | StepState::Failed { .. } => None,
        }
    }

    /// Who is handed a token has as long as was drawn, and heartbeats do not make it more.
    fn check_handed_out(&self, moved: &Moved<'_>) -> Option<String> {
        let StepState::HandedOut { attempt, complete_by, answer_by } = moved.new.state else {
            return None;
        };
        let Some(CallbackPlan { within, heartbeat }) = moved.callback() else {
            return Some("was handed out, and nobody is to answer".to_owned());
        };
        if !moved.is_new() {
            return None;
        }
        let span = |time: Millis| Duration::from_millis(time);
        let latest = |time| self.now + self.oracle.skew + span(time);
        if complete_by > answer_by || heartbeat.is_some_and(|every| complete_by > latest(every)) {
            return Some(format!("heard of again only by {complete_by}"));
        }
        match moved.old.map(|old| &old.state) {
            Some(StepState::HandedOut { attempt: of, answer_by: by, .. }) if *of == attempt => {
                (*by != answer_by).then(|| format!("answered by {by}, and now by {answer_by}"))
            }
            _ => {
                let account = self.ledger.account(&self.after.task_id, &moved.part);
                let begun = account.and_then(|account| account.effects.last());
                let least = begun.map(|effect| effect.at + within).unwrap_or_default();
                // Nobody is waited for past the task's own time.
                let task_by = self.before.complete_by.min(self.after.complete_by);
                let least = least.min(since_start(task_by));
                let wrong = answer_by > latest(within) || since_start(answer_by) < least;
                wrong.then(|| format!("must be answered by {answer_by}"))
            }
        }
    }

    /// The undo of a step's task is given up only if that task has come to a stop.
    fn check_undo_of_task(&self, moved: &Moved<'_>) -> Option<String> {
        let error = self.reason(&moved.part, moved.action).unwrap_or_default();
        let failed = moved.is_new() && moved.new.state.is_failed();
        if !failed || moved.action == Action::Do || !error.starts_with("its child task is in Error") {
            return None;
        }
        // Its id is that of a client's task: nobody can tell what is to be undone.
        if error.contains("exists already") {
            return None;
        }
        let mut children = self.oracle.children(&self.after.task_id, &moved.part);
        let stopped = |child: &Task| {
            let graph = self.oracle.graph(&child.task_id);
            let points = graph.into_iter().flat_map(|graph| graph.points_of_no_return());
            let mut points = points.filter_map(|point| child.steps.get(point));
            child.process_state == ProcessState::Error
                || is_touched(child)
                || points.any(|point| matches!(point.run.state, StepState::Completed { .. }))
        };
        (!children.any(stopped)).then(|| "was given up, and goes well".to_owned())
    }

    /// Nobody's attempt is given up before its time.
    fn check_given_up(&self, moved: &Moved<'_>) -> Option<String> {
        let complete_by = moved.old.and_then(|old| awaited_by(&old.state))?;
        let number = moved.old.map_or(0, |old| old.state.attempt());
        let given_up = match moved.new.state {
            StepState::Waiting { attempt, .. } | StepState::Failed { attempt } => attempt == number,
            StepState::Running { .. }
            | StepState::HandedOut { .. }
            | StepState::Each
            | StepState::Completed { .. }
            | StepState::Skipped { .. } => false,
        };
        let backward = self.after.process_state == ProcessState::Undoing
            || self.after.undo_reason.is_some() && moved.action == Action::Do;
        if !given_up || backward {
            return None;
        }
        let answered = self.is_answered(moved, number);
        (!answered && !is_touched(self.after) && self.now <= complete_by)
            .then(|| format!("attempt {number} was given up before {complete_by}"))
    }
}

/// A task that goes on is due, and not later than it must be.
pub(super) fn check_due(oracle: &Oracle, task: &Task, now: Timestamp) -> Option<String> {
    let id = &task.task_id;
    match task.due {
        None if !is_final(task) => Some(format!("{id}: goes on, and has no due time")),
        None => None,
        Some(due) if is_final(task) && task.process_state != ProcessState::Error => {
            Some(format!("{id}: is {}, and still due at {due}", task.process_state))
        }
        Some(due) => {
            let last = task.actions().filter_map(|(.., progress)| match progress.state {
                StepState::Running { complete_by, .. }
                | StepState::HandedOut { complete_by, .. } => Some(complete_by),
                // A second for what a save takes.
                StepState::Waiting { until, .. } if task.paused_at.is_none() => {
                    Some(until.max(now + oracle.skew) + oracle.pickup_within + SECOND)
                }
                StepState::Each
                | StepState::Waiting { .. }
                | StepState::Completed { .. }
                | StepState::Failed { .. }
                | StepState::Skipped { .. } => None,
            });
            let last = last.min().filter(|last| due > *last && !is_final(task))?;
            Some(format!("{id}: due at {due}, later than it must be, {last}"))
        }
    }
}

/// By when somebody is to be heard of.
fn awaited_by(state: &StepState) -> Option<Timestamp> {
    match state {
        StepState::Running { complete_by, .. } | StepState::HandedOut { complete_by, .. } => {
            Some(*complete_by)
        }
        StepState::Each
        | StepState::Waiting { .. }
        | StepState::Completed { .. }
        | StepState::Failed { .. }
        | StepState::Skipped { .. } => None,
    }
}
