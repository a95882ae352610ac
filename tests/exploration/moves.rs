//! What can happen next in a world.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::json;
use steward_core::{
    engine::event::Event,
    model::{
        attempt::{Action, Attempt, AttemptTimes},
        command::Command,
        messages::{Answer, Outcome, StepReply},
        names::{CallbackFence, Part, TaskId},
        step::StepState,
        task::Task,
        time::later,
    },
};

use super::{
    children::{ChildMove, refuses, says},
    expiry::Expired,
    settings::Setting,
    world::World,
};

/// Something that can happen.
#[derive(Debug, Clone)]
#[allow(clippy::large_enum_variant, reason = "most moves are arrivals")]
pub(super) enum Move {
    Submitted {
        /// It was to be undone before its submission came.
        undo: bool,
    },
    Arrives {
        event: Event,
        redelivered: bool,
    },
    /// The message whose effects were lost is delivered again.
    ComesBack,
    TimePasses(Timestamp),
    /// Nothing happens for some weeks.
    WeeksPass,
    /// Something that has expired is deleted.
    Expires(Expired),
    /// Something happens to the task of a step.
    Child(Part, ChildMove),
}

pub(super) fn task_id() -> TaskId {
    "t".parse().unwrap()
}

/// Everything that can happen next.
pub(super) fn moves(setting: &Setting, world: &World) -> Vec<Move> {
    let Some(task) = &world.task else {
        let both = [false, true].into_iter().filter(|undo| !undo || setting.is_child);
        return both.map(|undo| Move::Submitted { undo }).collect();
    };
    let arrives = |event, redelivered| Move::Arrives { event, redelivered };
    let mut moves =
        vec![arrives(Event::Wake, false), arrives(Event::Wake, true), arrives(Event::Swept, false)];
    // Time stands still between moves; in life two ends have two times.
    let is_of_another = |ended_at| world.alerted || task.ended_at != Some(ended_at);
    if let Some(ended_at) = world.confirming.filter(|at| is_of_another(*at)) {
        moves.push(arrives(Event::AlertSent { ended_at }, false));
    }
    if setting.is_child {
        for (action, again) in [(Action::Do, false), (Action::Do, true), (Action::Undo, false)] {
            moves.push(arrives(Event::Asked(action), again));
        }
        moves.push(arrives(Event::Asked(Action::Undo), true));
    }
    moves.extend(replies(setting, world, task));
    moves.extend(answers(setting, world, task));
    moves.extend(of_children(world));
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
                issued_at: None,
            };
            arrives(Event::Commanded(command), false)
        }));
    }
    if world.owed.is_some() {
        moves.push(Move::ComesBack);
    }
    moves.extend(next_instant(setting, world, task).map(Move::TimePasses));
    if world.budget.jumps > 0 {
        moves.push(Move::WeeksPass);
    }
    moves.extend(world.expired().into_iter().map(Move::Expires));
    moves
}

/// What an agent says that did what it was asked.
pub(super) fn completed(step: &Part, number: u32) -> Outcome {
    Outcome::Completed { output: json!({ "id": format!("{step}-{number}") }), may_continue: false }
}

/// What agents may say to anything that they were ever asked: also late, twice, and long after.
fn replies(setting: &Setting, world: &World, task: &Task) -> Vec<Move> {
    let mut moves = Vec::new();
    let sent = world.dispatches.iter().filter(|(_, dispatch)| dispatch.sent);
    for (attempt, _) in sent.filter(|(attempt, _)| !setting.runs_task(&attempt.step)) {
        let mut say = |outcome, redelivered| {
            let Attempt { step, action, number } = attempt.clone();
            let reply = StepReply {
                task_id: task_id(),
                step,
                action,
                attempt: number,
                outcome,
                incarnation: None,
                times: AttemptTimes::default(),
            };
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
        say(failed(true), false);
        if setting.slow {
            let output = json!({ "id": format!("{}-{}", attempt.step, attempt.number) });
            say(Outcome::Completed { output, may_continue: true }, false);
        }
        if !is_awaited {
            say(completed(), true);
            if setting.slow {
                say(Outcome::Unknown { reason: "the call was cut".to_owned() }, false);
            }
            continue;
        }
        if setting.slow {
            say(Outcome::Unknown { reason: "the call was cut".to_owned() }, false);
        }
        if world.budget.deferrals > 0 {
            say(deferred(false), false);
            say(deferred(true), false);
        }
        for output in setting.outputs.iter().filter(|_| attempt.action == Action::Do) {
            say(Outcome::Completed { output: output.clone(), may_continue: false }, false);
        }
    }
    moves
}

/// What those may say who were ever handed a token: before the agent has answered, after that, twice,
/// too late, and of an attempt long given up.
fn answers(setting: &Setting, world: &World, task: &Task) -> Vec<Move> {
    let mut moves = Vec::new();
    for (attempt, dispatch) in &world.dispatches {
        let has_token = dispatch.sent && attempt.action == Action::Do;
        if !has_token || setting.callback(&attempt.step).is_none() {
            continue;
        }
        let mut say = |answer, redelivered| {
            let (step, attempt) = (attempt.step.clone(), attempt.number);
            moves.push(Move::Arrives {
                event: Event::Answered { step, fence: CallbackFence::Attempt(attempt), answer },
                redelivered,
            });
        };
        let progress = task.progress(&attempt.step, attempt.action);
        let is_awaited = progress.is_some_and(|progress| {
            progress.state.awaited_by().is_some() && progress.state.attempt() == attempt.number
        });
        say(answer(&attempt.step), false);
        say(Answer::Failed { reason: "no".to_owned() }, false);
        say(Answer::Heartbeat, false);
        if !is_awaited {
            say(answer(&attempt.step), true);
        }
    }
    moves
}

/// What someone answers who was handed a token.
pub(super) fn answer(step: &Part) -> Answer {
    Answer::Completed { output: json!({ "id": format!("{step}-answered") }) }
}

/// What can happen to the tasks of steps, and what they say.
fn of_children(world: &World) -> Vec<Move> {
    let mut moves = Vec::new();
    for (part, child) in &world.children {
        let happens = child.moves(world.now).into_iter();
        moves.extend(happens.map(|happens| Move::Child(part.clone(), happens)));
        let ends = child.said.iter().filter_map(|end| says(part, *end));
        let refusals = child.refused.iter().map(|attempt| refuses(part, *attempt));
        for event in ends.chain(refusals) {
            moves.push(Move::Arrives { event: event.clone(), redelivered: false });
            moves.push(Move::Arrives { event, redelivered: true });
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
        instants.extend(progress.in_progress_until);
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
