//! Breadth first through all worlds, so that the path to a broken law is a shortest one.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet, VecDeque},
    fmt::Write,
    time::{Duration, Instant},
};

use steward_core::{
    engine::{effect::Effect, event::Event},
    model::{
        attempt::{Action, AttemptTimes},
        command::{Command, Order},
        messages::StepReply,
        names::CallbackFence,
        time::later,
    },
};

use super::{
    children::{Asked, says},
    moves::{Move, answer, completed, moves},
    play::{Arrow, is_alert, play, tell},
    settings::{Ending, Setting},
    world::World,
};

/// What was seen of one workflow.
pub(crate) struct Report {
    /// The workflow.
    pub(crate) name: &'static str,
    /// Different worlds.
    pub(crate) worlds: usize,
    /// Moves played.
    pub(crate) moves: u64,
    /// The longest path, in moves.
    pub(crate) depth: u32,
    /// Whether there are no other worlds.
    pub(crate) is_whole: bool,
    /// The endings reached.
    pub(crate) endings: BTreeSet<Ending>,
    /// The arrows walked, and how often.
    pub(crate) walked: BTreeMap<Arrow, u64>,
    /// How long it took.
    pub(crate) took: Duration,
}

/// How a world was first reached.
struct Node {
    parent: usize,
    depth: u32,
    happened: Option<Step>,
}

/// A move, and whether what it sent was lost.
#[derive(Clone)]
struct Step {
    happens: Move,
    lost: bool,
}

struct Search<'a> {
    setting: &'a Setting,
    seen: HashSet<u64>,
    nodes: Vec<Node>,
    next: VecDeque<(usize, World)>,
    /// Worlds from which an ending is known to be reached.
    ends: HashSet<u64>,
    report: Report,
}

/// How many moves a task may need from anywhere to its end, if all goes well.
const MOVES_TO_THE_END_MAX: usize = 100;

/// Goes through the worlds of `setting`, up to `worlds_max` of them.
///
/// # Errors
/// The path to the first broken law.
pub(super) fn explore(setting: &Setting, worlds_max: usize) -> Result<Report, String> {
    let started = Instant::now();
    let first = World::first(setting);
    let report = Report {
        name: setting.name,
        worlds: 0,
        moves: 0,
        depth: 0,
        is_whole: true,
        endings: BTreeSet::new(),
        walked: BTreeMap::new(),
        took: Duration::ZERO,
    };
    let mut search = Search {
        setting,
        seen: HashSet::from([first.fingerprint(setting)]),
        nodes: vec![Node { parent: 0, depth: 0, happened: None }],
        next: VecDeque::from([(0, first)]),
        ends: HashSet::new(),
        report,
    };
    while let Some((at, world)) = search.next.pop_front() {
        search.visit(at, &world, worlds_max)?;
    }
    let mut report = search.report;
    report.worlds = search.nodes.len();
    report.took = started.elapsed();
    Ok(report)
}

impl Search<'_> {
    fn visit(&mut self, at: usize, world: &World, worlds_max: usize) -> Result<(), String> {
        for happens in moves(self.setting, world) {
            let outcomes = play(self.setting, world, &happens);
            self.report.moves += 1;
            if !outcomes.broken.is_empty() {
                let step = Step { happens, lost: false };
                return Err(self.path(at, vec![step], &outcomes.broken));
            }
            if let Some(arrow) = outcomes.arrow {
                *self.report.walked.entry(arrow).or_default() += 1;
            }
            self.report.endings.extend(outcomes.ending);
            for (next, lost) in outcomes.worlds.into_iter().zip([false, true]) {
                if !self.seen.insert(next.fingerprint(self.setting)) {
                    continue;
                }
                if self.nodes.len() >= worlds_max {
                    self.report.is_whole = false;
                    continue;
                }
                let step = Step { happens: happens.clone(), lost };
                if let Err((mut steps, broken)) = self.comes_to_an_end(&next) {
                    steps.insert(0, step);
                    return Err(self.path(at, steps, &broken));
                }
                let depth = self.nodes[at].depth + 1;
                self.report.depth = self.report.depth.max(depth);
                self.nodes.push(Node { parent: at, depth, happened: Some(step) });
                self.next.push_back((self.nodes.len() - 1, next));
            }
        }
        Ok(())
    }

    /// The path from the start to node `at`, the steps from there, and what is wrong in the end.
    fn path(&self, mut at: usize, steps: Vec<Step>, broken: &[String]) -> String {
        let mut path = VecDeque::from(steps);
        while let Some(step) = &self.nodes[at].happened {
            path.push_front(step.clone());
            at = self.nodes[at].parent;
        }
        let mut said = format!("{}:\n", self.setting.name);
        let mut world = World::first(self.setting);
        for Step { happens, lost } in path {
            writeln!(said, "  {}", tell(self.setting, &world, &happens, lost)).unwrap();
            world = play(self.setting, &world, &happens).worlds.remove(usize::from(lost));
        }
        for law in broken {
            writeln!(said, "BROKEN: {law}").unwrap();
        }
        said
    }

    /// From here on no message is lost any more and agents do what they are asked; but whatever is on
    /// its way now is lost. A paused task is resumed first.
    fn comes_to_an_end(&mut self, world: &World) -> Result<(), (Vec<Step>, Vec<String>)> {
        let mut world = world.clone();
        world.owed = None;
        world.confirming = None;
        world.budget.losses = 0;
        let mut inbox = VecDeque::new();
        if world.task.as_ref().is_some_and(|task| task.paused_at.is_some()) {
            world.budget.commands += 1;
            inbox.push_back(arrives(resume()));
        }
        let (mut passed, mut steps) = (Vec::new(), Vec::new());
        for _ in 0..MOVES_TO_THE_END_MAX {
            let Some(task) = &world.task else { return Ok(()) };
            if task.process_state.is_final() && task.due.is_none() && inbox.is_empty() {
                self.ends.extend(passed);
                return Ok(());
            }
            if inbox.is_empty() {
                let mark = world.fingerprint(self.setting);
                if self.ends.contains(&mark) {
                    self.ends.extend(passed);
                    return Ok(());
                }
                passed.push(mark);
                let due = task.due.map(|due| later(due, self.setting.timing.clock_skew));
                let now = due.unwrap_or(world.now).max(world.now);
                inbox.extend([Move::TimePasses(now), arrives(Event::Swept)]);
            }
            let Some(happens) = inbox.pop_front() else { continue };
            steps.push(Step { happens: happens.clone(), lost: false });
            let mut outcomes = play(self.setting, &world, &happens);
            if !outcomes.broken.is_empty() {
                return Err((steps, outcomes.broken));
            }
            world = outcomes.worlds.remove(0);
            for effect in &outcomes.effects {
                inbox.extend(answers(self.setting, &world, effect));
            }
        }
        let broken = "from here on all goes well, and the task does not end".to_owned();
        Err((steps, vec![broken]))
    }
}

fn arrives(event: Event) -> Move {
    Move::Arrives { event, redelivered: false }
}

/// What a message leads to if all goes well. Wakes that are held back are lost: the supervisor's sweep
/// must do.
fn answers(setting: &Setting, world: &World, effect: &Effect) -> Vec<Move> {
    match effect {
        Effect::Request(request) => {
            let (step, number) = (request.step.clone(), request.attempt);
            let reply = Event::Replied(StepReply {
                task_id: request.task_id.clone(),
                step: step.clone(),
                action: request.action,
                attempt: number,
                outcome: completed(&step, number),
                incarnation: None,
                times: AttemptTimes::default(),
            });
            let handed_out = setting.callback(&step).is_some() && request.action == Action::Do;
            let fence = CallbackFence::Attempt(number);
            let answer = Event::Answered { fence, answer: answer(&step), step };
            std::iter::once(reply).chain(handed_out.then_some(answer)).map(arrives).collect()
        }
        Effect::Submit(submission) => {
            let Some(parent) = &submission.parent else { return Vec::new() };
            let child = world.children.get(&parent.step).cloned().unwrap_or_default();
            let (moves, end) = child.goes_well(Asked::by(submission), world.now);
            let step = &parent.step;
            let moves = moves.into_iter().map(|happens| Move::Child(step.clone(), happens));
            moves.chain(says(step, end).map(arrives)).collect()
        }
        Effect::Wake { after, .. } => {
            after.is_zero().then(|| arrives(Event::Wake)).into_iter().collect()
        }
        Effect::Publish(event) => {
            let ended_at = event.metadata.at;
            let sent = is_alert(effect).then_some(Event::AlertSent { ended_at });
            sent.map(arrives).into_iter().collect()
        }
        Effect::Ask(_)
        | Effect::ChildEnded(_)
        | Effect::Reply(_)
        | Effect::Notice { .. }
        | Effect::Reject { .. } => Vec::new(),
    }
}

fn resume() -> Event {
    Event::Commanded(Command {
        command_id: "resume".parse().unwrap(),
        task_id: "t".parse().unwrap(),
        by: "op".to_owned(),
        why: "because".to_owned(),
        order: Order::Resume,
        issued_at: None,
    })
}
