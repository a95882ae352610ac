//! The worlds that come of what happens.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use jiff::Timestamp;
use serde_json::Value;
use steward_core::{
    engine::{
        decision::{Context, Transition},
        documents::{Documents, Wanted},
        effect::Effect,
        event::Event,
        transition::transition,
    },
    model::{
        attempt::{Action, Attempt},
        command::Order,
        messages::{ChildOutcome, Outcome, Parent, StepReply, Submission},
        names::{CallbackFence, Part},
        step::StepState,
        task::{ProcessState, Task},
        time::later,
    },
    submission::accept,
};

use super::{
    children::Asked,
    expiry::expires_at,
    laws::{self, Change, asked},
    moves::{Move, task_id},
    said::{said_event, said_outcome},
    settings::{Ending, Setting},
    states::{is_awaited, waits_until},
    world::{Dispatch, Owed, Truth, World, end},
};

/// A state, an event, and what the core made of it.
pub(crate) type Arrow = (String, String, String);

/// What came of a move.
#[derive(Default)]
pub(super) struct Outcomes {
    /// The worlds: in the first all was sent, in the second, if there is one, nothing.
    pub(super) worlds: Vec<World>,
    /// What was sent in the first of them.
    pub(super) effects: Vec<Effect>,
    pub(super) broken: Vec<String>,
    pub(super) arrow: Option<Arrow>,
    pub(super) ending: Option<Ending>,
}

/// Lets `happens` happen in `world`.
pub(super) fn play(setting: &Setting, world: &World, happens: &Move) -> Outcomes {
    match happens {
        Move::Submitted { undo } => submit(setting, world, *undo),
        Move::TimePasses(to) => {
            let mut after = world.clone();
            after.now = *to;
            Outcomes { worlds: vec![after], ..Outcomes::default() }
        }
        Move::WeeksPass => {
            let mut after = world.clone();
            after.now = weeks_after(world.now);
            after.budget.jumps = after.budget.jumps.saturating_sub(1);
            // No queue keeps a message for so long.
            after.owed = None;
            Outcomes { worlds: vec![after], ..Outcomes::default() }
        }
        Move::Expires(expired) => {
            let mut after = world.clone();
            after.delete(expired);
            Outcomes { worlds: vec![after], ..Outcomes::default() }
        }
        Move::Child(part, happens) => {
            let mut after = world.clone();
            after.children.entry(part.clone()).or_default().play(*happens, world.now);
            let broken = laws::of_the_world(setting, &after);
            Outcomes { worlds: vec![after], broken, ..Outcomes::default() }
        }
        Move::Arrives { event, redelivered } => decide(setting, world, event, *redelivered, None),
        Move::ComesBack => {
            let mut before = world.clone();
            let owed = before.owed.take().unwrap();
            decide(setting, &before, &owed.event, true, Some(&owed))
        }
    }
}

/// Tells of a move, and of the world that came of it: the one in which all was sent, or the other.
pub(super) fn tell(setting: &Setting, world: &World, happens: &Move, lost: bool) -> String {
    let decides = |world: &World, event: &Event, redelivered| {
        let task = world.task.as_ref().unwrap();
        let answer = ask(setting, world, task, event, context(setting, world, event, redelivered));
        let outcome = said_outcome(task, &answer.0);
        let dies = if lost { "; and the process dies before it sends" } else { "" };
        format!("{} => {outcome}{dies}", said_event(event, redelivered))
    };
    match happens {
        Move::Submitted { undo: false } => "submitted".to_owned(),
        Move::Submitted { undo: true } => "submitted, to be undone".to_owned(),
        Move::WeeksPass => format!("clock {}s", weeks_after(world.now).as_second()),
        Move::Expires(expired) => format!("expired, and deleted: {expired:?}"),
        Move::TimePasses(to) => format!("clock {}s", to.as_second()),
        Move::Child(part, happens) => format!("task of {part}: {happens:?}"),
        Move::Arrives { event, redelivered } => decides(world, event, *redelivered),
        Move::ComesBack => {
            let mut world = world.clone();
            let owed = world.owed.take().unwrap();
            decides(&world, &owed.event, true)
        }
    }
}

/// Shorter than the retention; twice that is longer than anything is kept.
fn weeks_after(now: Timestamp) -> Timestamp {
    later(now, Duration::from_secs(20 * 24 * 3600))
}

fn submit(setting: &Setting, world: &World, undo: bool) -> Outcomes {
    let parent = Parent {
        task_id: "p".parse().unwrap(),
        step: "k".parse().unwrap(),
        depth: 1,
        incarnation: None,
    };
    let submission = Submission {
        task_id: task_id(),
        workflow: setting.workflow.name.clone(),
        version: None,
        input: setting.input.clone(),
        reply_to: Some("client".to_owned()),
        parent: setting.is_child.then_some(parent),
        undo,
        attempt: None,
        has_begun: false,
        keep: None,
    };
    let (task, document) = accept(&submission, &setting.workflow, None, world.now, setting.timing);
    let mut after = world.clone();
    Arc::make_mut(&mut after.documents).insert(document.key, document.body);
    after.keep(None, &task);
    let is_right =
        task.process_state == if undo { ProcessState::Undone } else { ProcessState::Pending };
    after.task = Some(task);
    let mut broken = laws::of_the_world(setting, &after);
    if !is_right {
        broken.push("what is to be undone before it began never begins".to_owned());
    }
    Outcomes { worlds: vec![after], broken, ..Outcomes::default() }
}

fn context<'a>(setting: &Setting, world: &World, event: &Event, redelivered: bool) -> Context<'a> {
    let actor = if *event == Event::Swept { "supervisor" } else { "scheduler" };
    Context { now: world.now, actor, redelivered, timing: setting.timing }
}

/// Lets the core decide, and makes the worlds in which the effects went out, and were lost.
fn decide(
    setting: &Setting,
    before: &World,
    event: &Event,
    redelivered: bool,
    owed: Option<&Owed>,
) -> Outcomes {
    let task = before.task.as_ref().unwrap();
    let context = context(setting, before, event, redelivered);
    let (answer, mut broken) = ask(setting, before, task, event, context);
    let (mut after, effects, applied) = match &answer {
        Transition::Apply { task: next, documents, effects } => {
            let mut after = before.clone();
            after.keep(Some(task), next);
            for document in documents {
                after.write(document);
            }
            after.keep(Some(next), next);
            apply(setting, &mut after, task, next, event);
            (after, effects.as_slice(), true)
        }
        Transition::Ignore { effects, .. } => (before.clone(), effects.as_slice(), false),
        Transition::Illegal(reason) => {
            broken.push(format!("nothing that can happen is illegal: {reason}"));
            (before.clone(), [].as_slice(), false)
        }
    };
    if matches!(event, Event::AlertSent { .. }) {
        after.confirming = None;
    }
    let lost = lost(&after, event, effects, applied && owed.is_none());
    send(&mut after, effects);
    let change = Change { setting, before, after: &after, event, owed, effects, applied };
    broken.extend(laws::of_the_change(&change));
    broken.extend(laws::of_the_world(setting, &after));
    let arrow = Some(super::said::arrow(task, event, redelivered, &answer));
    let ending = change.ending();
    let mut worlds = Vec::new();
    if let Some(lost) = lost {
        broken.extend(laws::of_the_world(setting, &lost));
        worlds.push(lost);
    }
    worlds.insert(0, after);
    let effects = match answer {
        Transition::Apply { effects, .. } | Transition::Ignore { effects, .. } => effects,
        Transition::Illegal(_) => Vec::new(),
    };
    Outcomes { worlds, effects, broken, arrow, ending }
}

/// How often a decision may ask for documents.
const ROUNDS_MAX: usize = 10;

/// Hands over what the decision wants, and checks that it wants no more and decides the same if it has
/// everything at hand.
fn ask(
    setting: &Setting,
    world: &World,
    task: &Task,
    event: &Event,
    context: Context<'_>,
) -> (Transition, Vec<String>) {
    let (answer, mut broken, wanted) =
        decided(setting, world, task, event, context, Documents::new());
    let sends = |answer: &Transition| match answer {
        Transition::Apply { effects, .. } | Transition::Ignore { effects, .. } => {
            effects.iter().any(|effect| matches!(effect, Effect::Request(_) | Effect::Submit(_)))
        }
        Transition::Illegal(_) => false,
    };
    // Only a request is made from documents, or cannot be made for want of one.
    if wanted < world.documents.len() && (sends(&answer) || wanted > 0) {
        let there = world.documents.keys().filter_map(|key| world.read(key).map(|it| (key, it)));
        let there = there.map(|(key, body)| (key.clone(), body.clone())).collect();
        let whole = decided(setting, world, task, event, context, there);
        if whole.0 != answer {
            broken.push("a decision is the same whatever was at hand".to_owned());
        }
    }
    (answer, broken)
}

/// The decision, what was wrong on the way to it, and how many documents it wanted.
fn decided(
    setting: &Setting,
    world: &World,
    task: &Task,
    event: &Event,
    context: Context<'_>,
    mut at_hand: Documents,
) -> (Transition, Vec<String>, usize) {
    let (mut broken, mut noted) = (Vec::new(), BTreeSet::new());
    let mut wanted = 0;
    for _ in 0..ROUNDS_MAX {
        let keys = match transition(&setting.workflow, task, &at_hand, event, context) {
            Ok(answer) => return (answer, broken, wanted),
            Err(Wanted(keys)) => keys,
        };
        wanted += keys.len();
        for key in keys {
            let is_new = match world.read(&key).cloned() {
                Some(found) => at_hand.insert(key.clone(), found).is_none(),
                None if world.lacks(&key) => {
                    at_hand.note_missing(key.clone());
                    noted.insert(key.clone())
                }
                None => {
                    broken.push(format!("what is wanted is there; {key} is not"));
                    at_hand.insert(key.clone(), Value::Null).is_none()
                }
            };
            if !is_new {
                broken.push(format!("what is at hand is not wanted; {key} is"));
            }
        }
    }
    broken.push("a decision is reached".to_owned());
    (Transition::Illegal("undecided".to_owned()), broken, wanted)
}

/// Puts what was saved into the world, and remembers what it means outside the core.
fn apply(setting: &Setting, after: &mut World, before: &Task, next: &Task, event: &Event) {
    let mut task = next.clone();
    task.revision += 1;
    for (step, action, number, complete_by) in task.running() {
        let attempt = Attempt { step, action, number };
        let may_last = true;
        let begins_by = complete_by;
        let dispatch = Dispatch { sent: false, truth: Truth::Unknown, begins_by, may_last };
        after.dispatches.entry(attempt).or_insert(dispatch);
    }
    match event {
        Event::Replied(reply) => learn(setting, after, before, reply),
        Event::Answered { step, fence: CallbackFence::Attempt(attempt), .. } => {
            let attempt = Attempt { step: step.clone(), action: Action::Do, number: *attempt };
            // The call that hands out the token may not have come back.
            if let Some(dispatch) = after.dispatches.get_mut(&attempt) {
                dispatch.truth = Truth::MayHaveRun;
            }
        }
        Event::Answered { fence: CallbackFence::Request { .. }, .. } => {}
        Event::ChildEnded { step, outcome, .. } => hear(after, step, outcome),
        Event::Commanded(command) => {
            after.budget.commands = after.budget.commands.saturating_sub(1);
            after.last_command = Some(command.clone());
            let obeyed = task.commands.last().is_some_and(|record| record.refused.is_none());
            let did_not_run = match &command.order {
                Order::Resubmit { did_not_run, .. } | Order::Skip { did_not_run, .. } => {
                    *did_not_run
                }
                Order::Complete { .. }
                | Order::Undo
                | Order::Cancel
                | Order::Pause
                | Order::Resume => false,
            };
            if obeyed && did_not_run {
                clear(after, before, &command.order);
            }
        }
        // An attempt that was deferred and then heard of no more may have run after all.
        Event::Swept => {
            for (step, action, number, _) in before.awaited() {
                let given_up = !task.progress(&step, action).is_some_and(is_awaited);
                let dispatch = after.dispatches.get_mut(&Attempt { step, action, number });
                if let Some(dispatch) = dispatch.filter(|_| given_up) {
                    dispatch.truth = Truth::Unknown;
                }
            }
        }
        Event::Wake | Event::AlertSent { .. } | Event::Asked(_) => {}
    }
    // A deferred attempt that is given up, or skipped, may have run after all: its other delivery.
    if !matches!(event, Event::Replied(_) | Event::Answered { .. } | Event::ChildEnded { .. }) {
        for (step, action, progress) in task.actions() {
            let old = before.progress(&step, action);
            let turned = progress.may_have_run
                && old.is_some_and(|old| !old.may_have_run && waits_until(old).is_some());
            let attempt = Attempt { step, action, number: progress.state.attempt() };
            if let Some(dispatch) = after.dispatches.get_mut(&attempt).filter(|_| turned) {
                dispatch.truth = Truth::Unknown;
                dispatch.may_last = true;
            }
        }
    }
    after.late_news |= brings_late_news(before, &task, event);
    if task.process_state != ProcessState::Error || task.ended_at != before.ended_at {
        after.alerted = false;
    }
    after.task = Some(task);
}

/// Whether a message says that a part took effect, or may have, that nobody waited for any more.
pub(super) fn brings_late_news(before: &Task, after: &Task, event: &Event) -> bool {
    let part = match event {
        Event::Replied(StepReply { step, action: Action::Do, .. })
        | Event::Answered { step, .. }
        | Event::ChildEnded { step, .. } => step,
        Event::Wake
        | Event::Swept
        | Event::Replied(_)
        | Event::Commanded(_)
        | Event::Asked(_)
        | Event::AlertSent { .. } => return false,
    };
    let may_have_run = |task: &Task| task.record(part).is_some_and(|r| r.run.may_have_run);
    let is_over = before.record(part).is_some_and(|r| !is_awaited(&r.run));
    is_over && may_have_run(after) && !may_have_run(before)
}

/// What an accepted reply tells. A request may be delivered twice, and the agent that has the other
/// delivery of one that was deferred may call.
fn learn(setting: &Setting, after: &mut World, before: &Task, reply: &StepReply) {
    let StepReply { step, action, attempt: number, outcome, .. } = reply;
    if matches!(outcome, Outcome::Deferred { .. }) {
        after.budget.deferrals = after.budget.deferrals.saturating_sub(1);
    }
    let ran = outcome.may_have_run();
    let is_over = match outcome {
        Outcome::Completed { may_continue, .. } => !may_continue,
        Outcome::Failed { may_have_run, .. } => !may_have_run,
        Outcome::Deferred { .. } | Outcome::Unknown { .. } => false,
    };
    // Only one of the deliveries calls what must not be repeated.
    let is_called_once = *action == Action::Do && !setting.workflow.steps[&step.step].idempotent;
    let may_act = matches!(outcome, Outcome::Deferred { .. }) && !is_called_once;
    let is_late = !before.progress(step, *action).is_some_and(is_awaited);
    let attempt = Attempt { step: step.clone(), action: *action, number: *number };
    let Some(dispatch) = after.dispatches.get_mut(&attempt) else { return };
    // What was said once of an attempt still holds when it is given up after all.
    dispatch.truth = match dispatch.truth {
        _ if ran => Truth::MayHaveRun,
        Truth::Unknown if may_act => Truth::Unknown,
        Truth::MayHaveRun => Truth::MayHaveRun,
        Truth::Unknown | Truth::DidNotRun => Truth::DidNotRun,
    };
    dispatch.may_last = !is_over && (ran || may_act);
    // The other delivery was heard of before.
    if is_late {
        dispatch.begins_by = dispatch.begins_by.min(after.now);
    }
}

/// What the task of a step tells of itself.
fn hear(after: &mut World, step: &Part, outcome: &ChildOutcome) {
    let ran = match outcome {
        ChildOutcome::Processed { .. } | ChildOutcome::Error { .. } => true,
        // Another delivery of the submission may be accepted.
        ChildOutcome::Refused { id_taken, .. } => !id_taken,
        ChildOutcome::Undone { .. } => false,
    };
    let own = after.dispatches.iter_mut().filter(|(attempt, _)| attempt.step == *step);
    if let Some((_, dispatch)) = own.max_by_key(|(attempt, _)| (attempt.action, attempt.number)) {
        dispatch.truth = if ran { Truth::MayHaveRun } else { Truth::DidNotRun };
    }
}

/// The operator has seen that what failed, or waits, did not run.
fn clear(after: &mut World, before: &Task, order: &Order) {
    let stuck = |state: &StepState| match state {
        StepState::Failed { .. } => true,
        StepState::Waiting { .. } => matches!(order, Order::Resubmit { .. }),
        StepState::Running { .. }
        | StepState::HandedOut { .. }
        | StepState::Each
        | StepState::Completed { .. }
        | StepState::Skipped { .. } => false,
    };
    for (attempt, dispatch) in &mut after.dispatches {
        let progress = before.progress(&attempt.step, attempt.action);
        if before.direction() == attempt.action && progress.is_some_and(|p| stuck(&p.state)) {
            dispatch.truth = Truth::DidNotRun;
        }
    }
}

/// The world in which what was saved was not told. A message comes back; a sweep does not, the next
/// one finds what is due.
fn lost(after: &World, event: &Event, effects: &[Effect], applied: bool) -> Option<World> {
    let comes_back = match event {
        Event::Wake
        | Event::Replied(_)
        | Event::Commanded(_)
        | Event::Answered { .. }
        | Event::Asked(_)
        | Event::ChildEnded { .. } => true,
        Event::Swept | Event::AlertSent { .. } => false,
    };
    if !applied || effects.is_empty() || after.budget.losses == 0 {
        return None;
    }
    let mut lost = after.clone();
    lost.budget.losses -= 1;
    let is_lost = |at: &Timestamp| {
        effects.iter().any(|effect| {
            matches!(effect, Effect::Wake { after: pause, .. } if later(after.now, *pause) == *at)
        })
    };
    let waits = after.task.iter().flat_map(Task::actions).filter_map(|(step, action, progress)| {
        let StepState::Waiting { attempt: number, until, .. } = progress.state else { return None };
        let attempt = Attempt { step, action, number };
        is_lost(&until).then_some((attempt, until))
    });
    let ended = after.task.as_ref().and_then(end);
    let ended = ended.filter(|_| effects.iter().any(|e| matches!(e, Effect::Notice { .. })));
    let left = is_lost(&after.now);
    let owed = Owed { event: event.clone(), waits: waits.collect(), left, ended };
    lost.owed = comes_back.then_some(owed);
    Some(lost)
}

/// Whether an effect is the alert of a task in Error.
pub(super) fn is_alert(effect: &Effect) -> bool {
    matches!(effect, Effect::Publish(event) if event.is_task_alert())
}

fn send(after: &mut World, effects: &[Effect]) {
    let Some(task) = after.task.clone() else { return };
    for effect in effects {
        let attempt = asked(&task, effect);
        if let Some(dispatch) = attempt.and_then(|attempt| after.dispatches.get_mut(&attempt)) {
            dispatch.sent = true;
        }
        if let Effect::Submit(submission) = effect
            && let Some(parent) = &submission.parent
        {
            let child = after.children.entry(parent.step.clone()).or_default();
            child.content.get_or_insert_with(|| submission.input.to_string());
            child.submitted.insert(Asked::by(submission));
            child.kept = child.kept.max(submission.keep.map(expires_at));
            if !submission.undo {
                let until = submission.keep.map(|keep| keep.from);
                child.begins_until = child.begins_until.max(until);
            }
        }
    }
    if effects.iter().any(is_alert) {
        after.alerted = true;
        after.confirming = task.ended_at;
    }
}
