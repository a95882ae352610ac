//! What can happen next in a world, and the worlds that come of it.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};
use steward_core::{
    command::{Command, Order},
    effects::Effect,
    messages::{Action, Outcome, StepReply, Submission},
    names::{Part, TaskId},
    ports::{Attempt, DocumentKey},
    submission::accept,
    task::{ProcessState, StepState, Task, later},
    transition::{Context, Documents, Event, Transition, Wanted, transition},
};

use super::{
    laws::{self, Change},
    said::{said_event, said_outcome},
    settings::{Ending, Setting},
    states::is_awaited,
    world::{Dispatch, Owed, Truth, World},
};

/// A state, an event, and what the core made of it.
pub(crate) type Arrow = (String, String, String);

/// Something that can happen.
#[derive(Debug, Clone)]
pub(super) enum Move {
    Submitted,
    Arrives {
        event: Event,
        redelivered: bool,
    },
    /// The message whose effects were lost is delivered again.
    ComesBack,
    TimePasses(Timestamp),
}

/// What came of a move.
#[derive(Default)]
pub(super) struct Outcomes {
    /// The worlds, each with the line that tells of it.
    pub(super) worlds: Vec<(String, World)>,
    /// What was sent in the first of them.
    pub(super) effects: Vec<Effect>,
    pub(super) broken: Vec<String>,
    pub(super) arrow: Option<Arrow>,
    pub(super) ending: Option<Ending>,
}

fn task_id() -> TaskId {
    "t".parse().unwrap()
}

/// Everything that can happen next.
pub(super) fn moves(setting: &Setting, world: &World) -> Vec<Move> {
    let Some(task) = &world.task else { return vec![Move::Submitted] };
    let arrives = |event, redelivered| Move::Arrives { event, redelivered };
    let mut moves =
        vec![arrives(Event::Wake, false), arrives(Event::Wake, true), arrives(Event::Swept, false)];
    // Time stands still between moves; in life two ends have two times.
    let is_of_another = |ended_at| world.alerted || task.ended_at != Some(ended_at);
    if let Some(ended_at) = world.confirming.filter(|at| is_of_another(*at)) {
        moves.push(arrives(Event::AlertSent { ended_at }, false));
    }
    moves.extend(replies(setting, world, task));
    if let Some(command) = &world.last_command {
        moves.push(arrives(Event::Commanded(command.clone()), true));
    }
    if world.budget.commands > 0 {
        let command_id = format!("c-{}", world.budget.commands).parse().unwrap();
        moves.extend(setting.orders.iter().map(|order| {
            let (by, why) = ("op".to_owned(), "because".to_owned());
            let order = order.clone();
            let command = Command {
                command_id: Clone::clone(&command_id),
                task_id: task_id(),
                by,
                why,
                order,
            };
            arrives(Event::Commanded(command), false)
        }));
    }
    if world.owed.is_some() {
        moves.push(Move::ComesBack);
    }
    moves.extend(next_instant(setting, world, task).map(Move::TimePasses));
    moves
}

/// What an agent says that did what it was asked.
pub(super) fn completed(step: &Part, number: u32) -> Outcome {
    Outcome::Completed { output: json!({ "id": format!("{step}-{number}") }) }
}

/// What agents may say to anything that they were ever asked: also late, twice, and long after.
fn replies(setting: &Setting, world: &World, task: &Task) -> Vec<Move> {
    let mut moves = Vec::new();
    for (attempt, _) in world.dispatches.iter().filter(|(_, dispatch)| dispatch.sent) {
        let mut say = |outcome, redelivered| {
            let Attempt { step, action, number } = attempt.clone();
            let reply = StepReply { task_id: task_id(), step, action, attempt: number, outcome };
            moves.push(Move::Arrives { event: Event::Replied(reply), redelivered });
        };
        let completed = || completed(&attempt.step, attempt.number);
        let failed = |may_have_run| Outcome::Failed { reason: "no".to_owned(), may_have_run };
        let deferred = |may_have_run| {
            let (reason, retry_after_ms) = ("breaker open".to_owned(), 10_000);
            Outcome::Deferred { reason, retry_after_ms, may_have_run }
        };
        let progress = task.progress(&attempt.step, attempt.action);
        let is_awaited = progress.is_some_and(|progress| {
            progress.state.is_running() && progress.state.attempt() == attempt.number
        });
        say(completed(), false);
        say(failed(false), false);
        if !is_awaited {
            say(completed(), true);
            continue;
        }
        say(failed(true), false);
        if world.budget.deferrals > 0 {
            say(deferred(false), false);
            say(deferred(true), false);
        }
        if setting.useless_outputs {
            say(Outcome::Completed { output: Value::Null }, false);
        }
    }
    moves
}

/// The next time at which something is past, or can start.
fn next_instant(setting: &Setting, world: &World, task: &Task) -> Option<Timestamp> {
    let mut instants: BTreeSet<_> = task.due.into_iter().collect();
    if !task.process_state.is_final() {
        instants.insert(task.complete_by);
    }
    for (_, _, progress) in task.actions() {
        match progress.state {
            StepState::Running { complete_by: at, .. }
            | StepState::HandedOut { complete_by: at, .. }
            | StepState::Waiting { until: at, .. } => {
                instants.insert(at);
            }
            StepState::Each
            | StepState::Completed { .. }
            | StepState::Failed { .. }
            | StepState::Skipped { .. } => {}
        }
    }
    let skew = setting.timing.clock_skew;
    let by_every_clock: Vec<_> = instants.iter().map(|at| later(*at, skew)).collect();
    instants.extend(by_every_clock);
    instants.into_iter().find(|at| *at > world.now)
}

/// Lets `happens` happen in `world`.
pub(super) fn play(setting: &Setting, world: &World, happens: &Move) -> Outcomes {
    match happens {
        Move::Submitted => submit(setting, world),
        Move::TimePasses(to) => {
            let mut after = world.clone();
            after.now = *to;
            let text = format!("clock {}s", to.as_second());
            Outcomes { worlds: vec![(text, after)], ..Outcomes::default() }
        }
        Move::Arrives { event, redelivered } => decide(setting, world, event, *redelivered, None),
        Move::ComesBack => {
            let mut before = world.clone();
            let owed = before.owed.take().unwrap();
            decide(setting, &before, &owed.event, true, Some(&owed))
        }
    }
}

fn submit(setting: &Setting, world: &World) -> Outcomes {
    let submission = Submission {
        task_id: task_id(),
        workflow: setting.workflow.name.clone(),
        version: None,
        input: json!({ "n": 1, "m": 1 }),
        reply_to: Some("client".to_owned()),
        parent: None,
        undo: false,
    };
    let (task, document) = accept(&submission, &setting.workflow, None, world.now, setting.timing);
    let mut after = world.clone();
    after.documents.insert(document.key, document.body);
    after.task = Some(task);
    let broken = laws::of_the_world(setting, &after);
    Outcomes { worlds: vec![("submitted".to_owned(), after)], broken, ..Outcomes::default() }
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
    let actor = if *event == Event::Swept { "supervisor" } else { "scheduler" };
    let context = Context { now: before.now, actor, redelivered, timing: setting.timing };
    let (answer, mut broken) = ask(setting, before, task, event, context);
    let text = format!("{} => {}", said_event(event, redelivered), said_outcome(task, &answer));
    let (mut after, effects, applied) = match &answer {
        Transition::Apply { task: next, documents, effects } => {
            let mut after = before.clone();
            for document in documents {
                // Written once: what is there stays.
                let kept = after.documents.entry(document.key.clone());
                kept.or_insert_with(|| document.body.clone());
            }
            apply(&mut after, task, next, event);
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
        worlds.push((format!("{text}; and the process dies before it sends"), lost));
    }
    worlds.insert(0, (text, after));
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
        let whole = decided(setting, world, task, event, context, world.documents.clone());
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
    let mut broken = Vec::new();
    let mut wanted = 0;
    for _ in 0..ROUNDS_MAX {
        let keys = match transition(&setting.workflow, task, &at_hand, event, context) {
            Ok(answer) => return (answer, broken, wanted),
            Err(Wanted(keys)) => keys,
        };
        wanted += keys.len();
        for key in keys {
            let found = world.documents.get(&key).cloned();
            if found.is_none() {
                broken.push(format!("what is wanted is there; {key} is not"));
            }
            if at_hand.insert(key.clone(), found.unwrap_or_default()).is_some() {
                broken.push(format!("what is at hand is not wanted; {key} is"));
            }
        }
    }
    broken.push("a decision is reached".to_owned());
    (Transition::Illegal("undecided".to_owned()), broken, wanted)
}

/// Puts what was saved into the world, and remembers what it means outside the core.
fn apply(after: &mut World, before: &Task, next: &Task, event: &Event) {
    let mut task = next.clone();
    task.revision += 1;
    for (step, action, number, complete_by) in task.running() {
        let attempt = Attempt { step, action, number };
        let dispatch = Dispatch { sent: false, truth: Truth::Unknown, complete_by };
        after.dispatches.entry(attempt).or_insert(dispatch);
    }
    match event {
        Event::Replied(reply) => learn(after, reply),
        Event::Commanded(command) => {
            after.budget.commands -= 1;
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
                clear(after, before);
            }
        }
        // An attempt that was deferred and then heard of no more may have run after all.
        Event::Swept => {
            for (step, action, number, _) in before.awaited() {
                let given_up = !task.progress(&step, action).is_some_and(is_awaited);
                let dispatch = after.dispatches.get_mut(&Attempt { step, action, number });
                dispatch.filter(|_| given_up).map(|dispatch| dispatch.truth = Truth::Unknown);
            }
        }
        Event::Wake
        | Event::AlertSent { .. }
        | Event::Answered { .. }
        | Event::Asked(_)
        | Event::ChildEnded { .. } => {}
    }
    if task.process_state != ProcessState::Error || task.ended_at != before.ended_at {
        after.alerted = false;
    }
    after.task = Some(task);
}

/// What an accepted reply tells.
fn learn(after: &mut World, reply: &StepReply) {
    let StepReply { step, action, attempt: number, outcome, .. } = reply;
    let ran = match outcome {
        Outcome::Completed { .. } => true,
        Outcome::Failed { may_have_run, .. } => *may_have_run,
        Outcome::Deferred { may_have_run, .. } => {
            after.budget.deferrals = after.budget.deferrals.saturating_sub(1);
            *may_have_run
        }
    };
    let attempt = Attempt { step: step.clone(), action: *action, number: *number };
    if let Some(dispatch) = after.dispatches.get_mut(&attempt) {
        // What was said once of an attempt still holds when it is given up after all.
        let ran = ran || dispatch.truth == Truth::MayHaveRun;
        dispatch.truth = if ran { Truth::MayHaveRun } else { Truth::DidNotRun };
    }
}

/// The operator has seen that what failed, or waits, did not run.
fn clear(after: &mut World, before: &Task) {
    let stuck = |state: &StepState| match state {
        StepState::Failed { .. } | StepState::Waiting { .. } => true,
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
    let owed = Owed { event: event.clone(), waits: waits.collect() };
    lost.owed = comes_back.then_some(owed);
    Some(lost)
}

/// Whether an effect is the alert of a task in Error.
pub(super) fn is_alert(effect: &Effect) -> bool {
    matches!(effect, Effect::Publish(event) if event.is_task_alert())
}

fn send(after: &mut World, effects: &[Effect]) {
    for effect in effects {
        if let Effect::Request(request) = effect {
            let (step, action, number) = (request.step.clone(), request.action, request.attempt);
            if let Some(dispatch) = after.dispatches.get_mut(&Attempt { step, action, number }) {
                dispatch.sent = true;
            }
        }
    }
    if effects.iter().any(is_alert) {
        after.alerted = true;
        after.confirming = after.task.as_ref().and_then(|task| task.ended_at);
    }
}

/// The document that a completed step points at.
pub(super) fn output_key(step: &Part, action: Action, number: u32) -> DocumentKey {
    DocumentKey::Output(Attempt { step: step.clone(), action, number })
}
