//! Breadth first through all worlds, so that the path to a broken law is a shortest one.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet, VecDeque},
    fmt::Write,
    time::{Duration, Instant},
};

use steward_core::{
    command::{Command, Order},
    effects::Effect,
    messages::StepReply,
    task::later,
    transition::Event,
};

use super::{
    moves::{Arrow, Move, completed, is_alert, moves, play},
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
    line: String,
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
        nodes: vec![Node { parent: 0, depth: 0, line: String::new() }],
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
                let line = outcomes.worlds.first().map_or("", |(line, _)| line.as_str());
                return Err(self.path(at, line, &outcomes.broken));
            }
            if let Some(arrow) = outcomes.arrow {
                *self.report.walked.entry(arrow).or_default() += 1;
            }
            self.report.endings.extend(outcomes.ending);
            for (line, next) in outcomes.worlds {
                if !self.seen.insert(next.fingerprint(self.setting)) {
                    continue;
                }
                if self.nodes.len() >= worlds_max {
                    self.report.is_whole = false;
                    continue;
                }
                if let Err((mut lines, broken)) = self.comes_to_an_end(&next) {
                    lines.insert(0, line);
                    return Err(self.path(at, &lines.join("\n  "), &broken));
                }
                let depth = self.nodes[at].depth + 1;
                self.report.depth = self.report.depth.max(depth);
                self.nodes.push(Node { parent: at, depth, line });
                self.next.push_back((self.nodes.len() - 1, next));
            }
        }
        Ok(())
    }

    /// The path from the start to node `at`, one more line, and what is wrong there.
    fn path(&self, mut at: usize, line: &str, broken: &[String]) -> String {
        let mut lines = vec![line];
        while at > 0 {
            lines.push(&self.nodes[at].line);
            at = self.nodes[at].parent;
        }
        let mut said = format!("{}:\n", self.setting.name);
        for line in lines.iter().rev() {
            writeln!(said, "  {line}").unwrap();
        }
        for law in broken {
            writeln!(said, "BROKEN: {law}").unwrap();
        }
        said
    }

    /// From here on no message is lost any more and agents do what they are asked; but whatever is on
    /// its way now is lost. A paused task is resumed first.
    fn comes_to_an_end(&mut self, world: &World) -> Result<(), (Vec<String>, Vec<String>)> {
        let mut world = world.clone();
        world.owed = None;
        world.confirming = None;
        world.budget.losses = 0;
        let mut inbox = VecDeque::new();
        if world.task.as_ref().is_some_and(|task| task.paused_at.is_some()) {
            world.budget.commands += 1;
            inbox.push_back(resume());
        }
        let (mut passed, mut lines) = (Vec::new(), Vec::new());
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
                world.now = due.unwrap_or(world.now).max(world.now);
                lines.push(format!("clock {}s", world.now.as_second()));
            }
            let happens = inbox.pop_front().unwrap_or(Event::Swept);
            let happens = Move::Arrives { event: happens, redelivered: false };
            let mut outcomes = play(self.setting, &world, &happens);
            let (line, next) = outcomes.worlds.remove(0);
            lines.push(line);
            if !outcomes.broken.is_empty() {
                return Err((lines, outcomes.broken));
            }
            inbox.extend(outcomes.effects.iter().flat_map(answers));
            world = next;
        }
        let broken = "from here on all goes well, and the task does not end".to_owned();
        Err((lines, vec![broken]))
    }
}

/// What a message leads to if all goes well. Wakes that are held back are lost: the supervisor's sweep
/// must do.
fn answers(effect: &Effect) -> Option<Event> {
    match effect {
        Effect::Request(request) => Some(Event::Replied(StepReply {
            task_id: request.task_id.clone(),
            step: request.step.clone(),
            action: request.action,
            attempt: request.attempt,
            outcome: completed(&request.step, request.attempt),
        })),
        Effect::Wake { after, .. } => after.is_zero().then_some(Event::Wake),
        Effect::Publish(event) => {
            let ended_at = event.metadata.at;
            is_alert(effect).then_some(Event::AlertSent { ended_at })
        }
        Effect::Submit(_)
        | Effect::Ask(_)
        | Effect::ChildEnded(_)
        | Effect::Reply(_)
        | Effect::Notice { .. }
        | Effect::Reject { .. } => None,
    }
}

fn resume() -> Event {
    Event::Commanded(Command {
        command_id: "resume".parse().unwrap(),
        task_id: "t".parse().unwrap(),
        by: "op".to_owned(),
        why: "because".to_owned(),
        order: Order::Resume,
    })
}
