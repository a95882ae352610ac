//! The invariants of attempts: when they begin, when they are given up, and which replies and callbacks count.

use super::{
    decision::Decision,
    part_change::PartChange,
    record::{ViolatedInvariant, awaited_by, has_passed, is_awaited, require},
};
use crate::{
    definition::{plan::CompiledStep, recovery::FinalAction},
    engine::{decision::IgnoreReason, event::Event},
    model::{
        attempt::{Action, AttemptId},
        command::{CommandAction, ReceivedCommand},
        earlier_key::EarlierKey,
        messages::{CallbackOutcome, ReplyOutcome, StepReply},
        names::Part,
        step::{Progress, StepState},
        task::{ProcessState, Task},
        time::later,
    },
};

pub(super) fn check(decision: &Decision<'_>) -> Result<(), ViolatedInvariant> {
    let requested = decision.requested_attempts();
    for change in decision.changes() {
        let subject = || format!("{} {} #{}", change.action.name(), change.part, change.number());
        let attempt =
            AttemptId { step: change.part.clone(), action: change.action, number: change.number() };
        require(subject, &limit_invariants(decision, &change))?;
        require(subject, &begin_invariants(decision, &change, requested.contains(&attempt)))?;
        require(subject, &abandon_invariants(decision, &change))?;
        require(subject, &deadline_invariants(decision, &change))?;
    }
    let subject = || format!("task {}", decision.after.task_id);
    require(
        subject,
        &[("a sweep leaves no overdue attempt awaited", sweeps_all_overdue(decision))],
    )?;
    for (name, _) in decision.plan.steps().filter(|(_, step)| step.waits()) {
        let part = Part::from(name.clone());
        if let Some(new) = decision.after.progress(&part, Action::Do) {
            require(|| format!("wait {name}"), &wait_invariants(decision, &part, new))?;
        }
    }
    Ok(())
}

/// When an attempt begins.
fn begin_invariants(
    decision: &Decision<'_>,
    change: &PartChange<'_>,
    requested: bool,
) -> [(&'static str, bool); 5] {
    let PartChange { part, action, step, old, new } = change;
    let (number, begins) = (change.number(), change.begins());
    let state = old.map(|old| &old.state);
    // Another agent may still have a delivery of a deferred request: the attempt runs again.
    let goes_on = number == change.old_number()
        && state.is_some_and(|old| old.is_running() || old.deferred_by().is_some());
    // After a certain refusal the request to the next agent starts at once, and after an unknown outcome the next attempt may,
    // although the attempt was awaited.
    let is_refused = matches!(decision.event, Event::ReplyReceived(reply)
    if reply.step == *part
        && matches!(
            reply.outcome,
            ReplyOutcome::Deferred { certain: true, .. } | ReplyOutcome::Unknown { .. }
        ));
    // An operator may let a step wait anew for its event. Nothing is called.
    let waits_anew = step.awaits_event() && matches!(decision.event, Event::CommandReceived(_));
    // The undo of the next key begins when that of the one before has completed.
    let is_of_next_key =
        *action == Action::Undo && old.is_some_and(|old| old.key_since != new.key_since);
    // A completion by hand has a number, too.
    let by_hand =
        u32::from(*action == Action::Undo && matches!(decision.event, Event::CommandReceived(_)));
    let needs_none_before = begins && !is_refused && !waits_anew && !is_of_next_key;
    let record = decision.after.record(part);
    let is_undone = |key: &&EarlierKey| Some(key.since) == new.key_since;
    let key = record.and_then(|record| record.earlier.iter().find(is_undone));
    let run = record.map(|record| &record.forward.input_edit_id);
    let input = key.map(|key| &key.input_edit_id).or(run);
    let is_first_undo = *action == Action::Undo && begins && (old.is_none() || is_of_next_key);
    [
        (
            "attempt numbers increase by at most one",
            (change.old_number()..=change.old_number() + 1 + by_hand).contains(&number),
        ),
        (
            "the request of an attempt that begins is sent",
            !new.state.is_running() || goes_on || requested,
        ),
        ("one attempt at a time", !state.is_some_and(is_awaited) || !needs_none_before),
        (
            "an attempt begins before its deadline",
            !begins || awaited_by(&new.state) > Some(decision.context.now),
        ),
        ("an undo uses the input of its key", !is_first_undo || input == Some(&new.input_edit_id)),
    ]
}

/// Until when attempts begin.
fn limit_invariants(decision: &Decision<'_>, change: &PartChange<'_>) -> [(&'static str, bool); 5] {
    let PartChange { action, step, old, new, .. } = change;
    let Decision { before, after, event, context, .. } = decision;
    let begins_before = |time| new.give_up_at.is_none_or(|limit| time < limit);
    let until = new.state.waiting_until();
    let waits = until.filter(|_| old.is_none_or(|old| old.state.waiting_until() != until));
    let is_paused = before.paused_at.is_some() || after.paused_at.is_some();
    let after = step.action(*action).and_then(|definition| definition.recovery.give_up_after);
    let limit = old.and_then(|old| old.give_up_at).or(after.map(|after| later(context.now, after)));
    let commanded = matches!(event, Event::CommandReceived(_));
    let valid = step.action(*action).and_then(|definition| definition.key_valid_for());
    let of_key = old.filter(|old| {
        (old.key_since, old.agent, &old.input_edit_id)
            == (new.key_since, new.agent, &new.input_edit_id)
    });
    let is_kept = |old: &&Progress| {
        old.is_in_doubt() || old.key_valid_until.is_some_and(|until| context.now < until)
    };
    let key_limit = match of_key.filter(is_kept) {
        Some(old) => old.key_valid_until,
        None => valid.map(|valid| later(context.now, valid)),
    };
    [
        (
            "no attempt that may have run is repeated after the time of its key",
            !change.begins() || new.key_valid_until.is_none_or(|limit| context.now < limit),
        ),
        (
            "the time of a key counts from its first request, or from one before which nothing ran",
            !change.begins() || commanded || new.key_valid_until == key_limit,
        ),
        (
            "no attempt begins after the time limit of its part",
            !change.begins() || begins_before(context.now),
        ),
        (
            "a time limit counts from the first attempt",
            !change.begins() || commanded || new.give_up_at == limit,
        ),
        (
            "no wait begins that ends after the time limit of its part",
            is_paused || waits.is_none_or(begins_before),
        ),
    ]
}

/// When an attempt is given up, and what a silent one means.
fn abandon_invariants(
    decision: &Decision<'_>,
    change: &PartChange<'_>,
) -> [(&'static str, bool); 7] {
    let Decision { before, after, event, .. } = decision;
    let PartChange { part, action, step, old, new } = change;
    let by = change.was_awaited_by();
    let is_about_it = event.part_and_attempt().is_some_and(|(of, _)| of == part);
    let commanded = matches!(event, Event::CommandReceived(_));
    let turns = before.direction() != after.direction();
    let undoes = after.undo_reason.is_some() || before.undo_reason.is_some();
    let swept = **event == Event::Swept;
    let is_overdue = by.is_some_and(|by| decision.context.is_past(by));
    let awaits_event = step.awaits_event();
    let was_running = old.is_some_and(|old| old.state.is_running());
    // When an undo starts, only agents and callbacks of a point of no return are still awaited.
    let is_dropped = turns && !is_overdue && (!was_running || step.runs_child() || awaits_event);
    let is_supervised = !before.process_state.has_stopped() || before.goes_on();
    let is_silent = swept && by.is_some() && !is_dropped && is_supervised;
    let failures = old.map_or(0, |old| old.failure_count);
    let was_undoing = before.process_state == ProcessState::Undoing;
    let wanted = !was_undoing || *action == Action::Undo;
    let repeatable = *action == Action::Undo || step.definition.idempotent && !awaits_event;
    let allowed = step.action(*action).map_or(0, |definition| {
        let recovery = definition.recovery;
        let waits = recovery.extended_wait.as_ref().map_or(0, |wait| wait.times);
        recovery.attempts.0 * (waits + 1)
    });
    let again = repeatable && wanted && new.failure_count < allowed;
    let ended = !was_undoing && (undoes || after.process_state.has_stopped());
    let is_skipped = |run: &Progress| matches!(run.state, StepState::Skipped { attempt: Some(_) });
    let goes_on = step.action(*action).is_some_and(|of| of.recovery.then == FinalAction::Continue);
    let is_passed_over = is_skipped(new) && !old.is_some_and(is_skipped) && !commanded;
    let has_given_up = new.state.is_failed() || is_passed_over;
    let has_limit = old.is_some_and(|old| old.no_attempt_from().or(old.key_valid_until).is_some());
    let is_out_of_time = has_limit && has_given_up;
    let keeps_callback = step.definition.point_of_no_return
        && old.is_some_and(|old| old.state.awaiting_callback().is_some());
    [
        (
            "an awaited attempt ends by its own message, a sweep, a command or an undo",
            by.is_none()
                || is_about_it
                || commanded
                || swept
                || undoes
                || after.process_state.has_stopped(),
        ),
        (
            "the callback of a point of no return is awaited until its deadline",
            by.is_none() || !keeps_callback || is_about_it || commanded || swept && is_overdue,
        ),
        ("a sweep gives up only overdue attempts", !is_silent || is_overdue),
        ("a silent attempt may have run", !is_silent || new.may_have_run != awaits_event),
        ("a silent attempt is one failure", !is_silent || new.failure_count == failures + 1),
        (
            "a silent step is repeated as its policy allows",
            !is_silent || has_given_up != again || ended || is_out_of_time,
        ),
        (
            "the task goes on without a step only if its policy says so, and forward",
            !is_passed_over || goes_on && wanted,
        ),
    ]
}

/// By when a callback is awaited.
fn deadline_invariants(
    decision: &Decision<'_>,
    change: &PartChange<'_>,
) -> [(&'static str, bool); 2] {
    let (StepState::AwaitingCallback { complete_by, answer_by, .. }, Some(callback)) =
        (&change.new.state, change.step.callback())
    else {
        return [("", true); 2];
    };
    let now = decision.context.now;
    let old = change.old.map(|old| &old.state);
    if let Some(StepState::AwaitingCallback { complete_by: by, answer_by: last, .. }) = old {
        // The clock of the instance with the earlier heartbeat may be ahead.
        let skew = decision.context.timing.clock_skew;
        let is_heartbeat = matches!(decision.event,
                Event::CallbackReceived { outcome: CallbackOutcome::Heartbeat, step, .. }
                    if *step == change.part);
        return [
            ("the deadline of a callback does not change", last == answer_by),
            (
                "only a heartbeat extends the time to the next",
                by == complete_by || is_heartbeat && *by <= later(*complete_by, skew),
            ),
        ];
    }
    let last = later(now, callback.within).min(decision.after.complete_by);
    let last = change.new.give_up_at.map_or(last, |limit| limit.min(last));
    let first = callback.heartbeat.map_or(last, |every| later(now, every).min(last));
    [
        ("the deadline of a callback is as defined", *answer_by == last),
        ("the deadline of the first heartbeat is as defined", *complete_by == first),
    ]
}

fn sweeps_all_overdue(decision: &Decision<'_>) -> bool {
    *decision.event != Event::Swept
        || decision.before.process_state.has_stopped() && !decision.before.goes_on()
        || decision.after.action_spans().all(|(.., progress)| {
            awaited_by(&progress.state).is_none_or(|by| !decision.context.is_past(by))
        })
}

/// How a wait ends.
fn wait_invariants(
    decision: &Decision<'_>,
    part: &Part,
    new: &Progress,
) -> [(&'static str, bool); 4] {
    let Decision { before, after, event, context, .. } = decision;
    let until = new.state.waiting_until();
    let over = before.progress(part, Action::Do).and_then(|old| old.state.waiting_until());
    let command = match event {
        Event::CommandReceived(ReceivedCommand { command, .. }) => Some(&command.action),
        Event::Wake
        | Event::Swept
        | Event::ReplyReceived(_)
        | Event::CallbackReceived { .. }
        | Event::ParentRequested(_)
        | Event::ChildEnded { .. }
        | Event::AlertPublished { .. } => None,
    };
    let resubmits_all = matches!(command, Some(CommandAction::Resubmit { step: None, .. }));
    let has_begun_undo = after.part_spans().any(|(_, record)| record.undo.is_some());
    let undoing = after.process_state == ProcessState::Undoing && after.paused_at.is_none();
    let is_completed = matches!(new.state, StepState::Completed { .. });
    let is_skipped = matches!(new.state, StepState::Skipped { .. });
    let is_undone = after.process_state == ProcessState::Undone;
    let is_abandoned = before.process_state == ProcessState::Undoing && after.undo_reason.is_none();
    [
        (
            "it ends when it is over, or by a command",
            !is_completed || command.is_some() || over.is_none_or(|over| over <= context.now),
        ),
        (
            "neither a resubmit of other steps nor the end of an undo ends it early",
            !(resubmits_all || is_abandoned)
                || over.is_none_or(|over| over <= context.now || until == Some(over)),
        ),
        (
            "it does not continue in an undo that has begun",
            !undoing || !has_begun_undo || until.is_none() || **event == Event::Swept,
        ),
        (
            "it is not given up in an undo that may be abandoned",
            !is_skipped || over.is_none() || command.is_some() || has_begun_undo || is_undone,
        ),
    ]
}

/// Which replies and callbacks count.
pub(super) fn check_event(decision: &Decision<'_>) -> Result<(), ViolatedInvariant> {
    match decision.event {
        Event::ReplyReceived(reply) if decision.ignored.is_none() => {
            require(|| format!("reply of step {}", reply.step), &reply_invariants(decision, reply))
        }
        Event::CallbackReceived { step, .. } => {
            require(|| format!("callback of step {step}"), &callback_invariants(decision, step))
        }
        Event::Wake
        | Event::ReplyReceived(_)
        | Event::Swept
        | Event::CommandReceived(_)
        | Event::ParentRequested(_)
        | Event::ChildEnded { .. }
        | Event::AlertPublished { .. } => Ok(()),
    }
}

/// What a reply changes.
fn reply_invariants(decision: &Decision<'_>, reply: &StepReply) -> [(&'static str, bool); 3] {
    let Decision { before, after, .. } = decision;
    let (part, action) = (&reply.step, reply.action);
    let (old, new) = (before.progress(part, action), after.progress(part, action));
    let count = |of: Option<&Progress>| of.map_or(0, |of| of.failure_count);
    let has_given_up =
        |new: &Progress| new.state.is_failed() || matches!(new.state, StepState::Skipped { .. });
    let failed = new.is_some_and(has_given_up);
    let is_deferral = matches!(reply.outcome, ReplyOutcome::Deferred { .. }) && !failed;
    let polls = decision.plan.find(&part.step).is_some_and(|step| step.definition.until.is_some());
    // A reply that was not awaited any more only reports that the call took effect.
    let is_awaited =
        old.is_some_and(|old| old.state.is_running() && old.state.attempt_count() == reply.attempt);
    let step = decision.plan.find(&part.step);
    let begins_callback = is_awaited
        && action == Action::Do
        && matches!(reply.outcome, ReplyOutcome::Completed { .. })
        && step.is_some_and(|step| step.callback().is_some());
    let awaits = new.is_some_and(|new| new.state.awaiting_callback().is_some());
    let waits = before.direction() == Action::Do
        || step.is_some_and(|step| step.definition.point_of_no_return);
    let may_have_run = action == Action::Do
        && reply.outcome.may_have_run()
        && step.is_some_and(|step| !step.awaits_event());
    let is_kept = new.is_some_and(|new| {
        new.may_have_run || has_passed(&new.state) || self::is_awaited(&new.state)
    });
    [
        (
            "an attempt that took effect, or may have, is recorded as one",
            !is_awaited || !may_have_run || is_kept,
        ),
        (
            "a deferral is no failure",
            !is_deferral || count(old) == count(new) || polls && count(new) == 0,
        ),
        (
            "after its call it awaits the callback, unless it was given up",
            !begins_callback || failed || awaits == waits,
        ),
    ]
}

/// Whether the part failed, also if the task goes on without it.
fn has_given_up(state: &StepState) -> bool {
    state.is_failed() || matches!(state, StepState::Skipped { attempt: Some(_) })
}

/// Which callbacks count. One that completes the step also counts between two attempts.
fn callback_invariants(decision: &Decision<'_>, step: &Part) -> [(&'static str, bool); 3] {
    let Event::CallbackReceived { edit, outcome, .. } = decision.event else {
        return [("", true); 3];
    };
    let (old, new) =
        (decision.before.progress(step, Action::Do), decision.after.progress(step, Action::Do));
    let is_between = old.is_some_and(|old| old.state.waiting_until().is_some())
        && matches!(outcome, CallbackOutcome::Completed { .. });
    let awaited = old.is_some_and(|old| is_awaited(&old.state));
    let in_time = (awaited || is_between) && old.is_some_and(|old| old.input_edit_id == *edit);
    // A callback proves that the call took place, because its sender has the token.
    let may_have_run = |of: Option<&Progress>| of.is_some_and(|of| of.may_have_run);
    let earlier = |task: &Task| task.record(step).map(|record| record.earlier.clone());
    let has_failed = old.is_some_and(|old| old.state.is_failed());
    let completes_failed = has_failed && new.is_some_and(|new| has_passed(&new.state));
    let is_news = may_have_run(new) && !may_have_run(old)
        || completes_failed
        || earlier(decision.before) != earlier(decision.after);
    let is_refused =
        matches!(decision.ignored, Some(IgnoreReason::InvalidAnswer | IgnoreReason::NoRoom));
    let is_failure = new.is_some_and(|new| has_given_up(&new.state) && new.may_have_run);
    let is_taken = match outcome {
        // An output that is too large is a failure.
        CallbackOutcome::Completed { .. } => {
            is_failure || new.is_some_and(|new| has_passed(&new.state))
        }
        CallbackOutcome::Failed { .. } => is_failure,
        CallbackOutcome::Heartbeat => true,
    };
    let callback = decision.plan.find(&step.step).and_then(CompiledStep::callback);
    let extended = old.and_then(|old| match old.state {
        StepState::AwaitingCallback { answer_by, .. } => {
            Some(later(decision.context.now, callback?.heartbeat?).min(answer_by))
        }
        StepState::Running { .. }
        | StepState::RunningItems
        | StepState::Waiting { .. }
        | StepState::Completed { .. }
        | StepState::Failed { .. }
        | StepState::Skipped { .. } => None,
    });
    let extended = extended.filter(|_| in_time && *outcome == CallbackOutcome::Heartbeat);
    [
        ("only an awaited one counts", decision.ignored.is_some() || in_time || is_news),
        ("one in time counts", !in_time || is_taken || is_refused),
        (
            "a heartbeat in time extends the deadline",
            extended.is_none() || new.and_then(|new| awaited_by(&new.state)) == extended,
        ),
    ]
}
