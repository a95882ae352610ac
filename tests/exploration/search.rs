//! The breadth-first search through all states, which finds a shortest path to a violated invariant.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet, VecDeque},
    fmt::Write,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use steward_core::{
    correlation::EventSubscription,
    engine::{effect::Effect, event::Event},
    model::{
        attempt::{Action, AttemptId, AttemptTimes},
        command::{Command, CommandAction},
        messages::StepReply,
        time::later,
    },
};

use super::{
    children::{ChildSubmission, report as child_report},
    events::{ModelEvent, callback_answer, completed, possible_events},
    model_state::ModelState,
    shapes::{self, Shapes},
    successors::{describe, successors},
    workflows::{Ending, ExploredWorkflow},
};
use crate::transition_rows::TransitionRow;

/// The result of the exploration of one workflow.
pub(super) struct ExplorationReport {
    /// The name of the workflow.
    pub(super) name: &'static str,
    /// The number of distinct states.
    pub(super) states: usize,
    /// The number of applied events.
    pub(super) events: u64,
    /// The length of the longest path, in events.
    pub(super) depth: u32,
    /// Whether all reachable states were explored.
    pub(super) is_complete: bool,
    /// The endings that were reached.
    pub(super) endings: BTreeSet<Ending>,
    /// The rows of the transition table, with the numbers of their transitions.
    pub(super) rows: BTreeMap<TransitionRow, u64>,
    /// The shapes of parts that occurred.
    pub(super) shapes: Shapes,
    /// The duration of the exploration.
    pub(super) took: Duration,
}

/// How a state was first reached.
struct SearchNode {
    parent: usize,
    depth: u32,
    step: Option<PathStep>,
}

/// An event, and whether its effects were lost.
#[derive(Clone)]
struct PathStep {
    event: ModelEvent,
    lost: bool,
}

/// The state of the search.
struct Search<'a> {
    workflow: &'a ExploredWorkflow,
    seen: HashSet<u64>,
    nodes: Vec<SearchNode>,
    next: VecDeque<(usize, ModelState)>,
    /// The fingerprints of states from which a final state is reached.
    known_to_end: HashSet<u64>,
    report: ExplorationReport,
}

/// The most events that a task may need from any state to a final state, if nothing fails.
const EVENTS_TO_END_MAX: usize = 100;

/// Explores up to `states_max` states of a workflow.
///
/// # Errors
/// The path to the first violated invariant.
pub(super) fn explore(
    workflow: &ExploredWorkflow,
    states_max: usize,
) -> Result<ExplorationReport, String> {
    let started = Instant::now();
    let initial = ModelState::initial(workflow);
    let report = ExplorationReport {
        name: workflow.name,
        states: 0,
        events: 0,
        depth: 0,
        is_complete: true,
        endings: BTreeSet::new(),
        rows: BTreeMap::new(),
        shapes: BTreeMap::new(),
        took: Duration::ZERO,
    };
    let mut search = Search {
        workflow,
        seen: HashSet::from([initial.fingerprint(workflow)]),
        nodes: vec![SearchNode { parent: 0, depth: 0, step: None }],
        next: VecDeque::from([(0, initial)]),
        known_to_end: HashSet::new(),
        report,
    };
    while let Some((at, model)) = search.next.pop_front() {
        search.visit(at, &model, states_max)?;
    }
    let mut report = search.report;
    report.states = search.nodes.len();
    report.took = started.elapsed();
    Ok(report)
}

impl Search<'_> {
    /// Applies all possible events to a state.
    fn visit(&mut self, at: usize, model: &ModelState, states_max: usize) -> Result<(), String> {
        for event in possible_events(self.workflow, model) {
            let outcomes = successors(self.workflow, model, &event);
            self.report.events += 1;
            if !outcomes.violated.is_empty() {
                let step = PathStep { event, lost: false };
                return Err(self.path(at, vec![step], &outcomes.violated));
            }
            if let Some(row) = outcomes.row {
                *self.report.rows.entry(row).or_default() += 1;
            }
            self.report.endings.extend(outcomes.ending);
            for (next, lost) in outcomes.states.into_iter().zip([false, true]) {
                if !self.seen.insert(next.fingerprint(self.workflow)) {
                    continue;
                }
                if self.nodes.len() >= states_max {
                    self.report.is_complete = false;
                    continue;
                }
                let step = PathStep { event: event.clone(), lost };
                if let Err((mut steps, violated)) = self.reaches_final_state(&next) {
                    steps.insert(0, step);
                    return Err(self.path(at, steps, &violated));
                }
                if let Some(task) = &next.task {
                    shapes::add(&mut self.report.shapes, self.workflow.name, task);
                }
                let depth = self.nodes[at].depth + 1;
                self.report.depth = self.report.depth.max(depth);
                self.nodes.push(SearchNode { parent: at, depth, step: Some(step) });
                self.next.push_back((self.nodes.len() - 1, next));
            }
        }
        Ok(())
    }

    /// Describes the path from the start to node `at`, further steps, and the violated invariants.
    fn path(&self, mut at: usize, steps: Vec<PathStep>, violated: &[String]) -> String {
        let mut path = VecDeque::from(steps);
        while let Some(step) = &self.nodes[at].step {
            path.push_front(step.clone());
            at = self.nodes[at].parent;
        }
        let mut text = format!("{}:\n", self.workflow.name);
        let mut model = ModelState::initial(self.workflow);
        for PathStep { event, lost } in path {
            writeln!(text, "  {}", describe(self.workflow, &model, &event, lost)).unwrap();
            model = successors(self.workflow, &model, &event).states.remove(usize::from(lost));
        }
        for invariant in violated {
            writeln!(text, "invariant violated: {invariant}").unwrap();
        }
        text
    }

    /// Checks that the task reaches a final state if from now on no message is lost and all requests succeed. Messages
    /// that are in flight now are lost. A paused task is resumed first.
    fn reaches_final_state(
        &mut self,
        model: &ModelState,
    ) -> Result<(), (Vec<PathStep>, Vec<String>)> {
        let mut model = model.clone();
        model.lost = None;
        model.pending_confirmation = None;
        model.budget.crashes = 0;
        let mut inbox = VecDeque::new();
        if model.task.as_ref().is_some_and(|task| task.paused_at.is_some()) {
            model.budget.commands += 1;
            inbox.push_back(arrives(resume(model.now)));
        }
        let (mut passed, mut steps) = (Vec::new(), Vec::new());
        for _ in 0..EVENTS_TO_END_MAX {
            let Some(task) = &model.task else { return Ok(()) };
            if task.process_state.has_stopped() && task.due.is_none() && inbox.is_empty() {
                self.known_to_end.extend(passed);
                return Ok(());
            }
            if inbox.is_empty() {
                let fingerprint = model.fingerprint(self.workflow);
                if self.known_to_end.contains(&fingerprint) {
                    self.known_to_end.extend(passed);
                    return Ok(());
                }
                passed.push(fingerprint);
                let due = task.due.map(|due| later(due, self.workflow.timing.clock_skew));
                let now = due.unwrap_or(model.now).max(model.now);
                inbox.extend([ModelEvent::ClockAdvances(now), arrives(Event::Swept)]);
            }
            let Some(event) = inbox.pop_front() else { continue };
            steps.push(PathStep { event: event.clone(), lost: false });
            let mut outcomes = successors(self.workflow, &model, &event);
            if !outcomes.violated.is_empty() {
                return Err((steps, outcomes.violated));
            }
            model = outcomes.states.remove(0);
            for effect in &outcomes.effects {
                inbox.extend(successful_responses(self.workflow, &model, effect));
            }
        }
        let violated = "the task reaches a final state if nothing fails any more".to_owned();
        Err((steps, vec![violated]))
    }
}

fn arrives(event: Event) -> ModelEvent {
    ModelEvent::MessageArrives { event, redelivered: false }
}

/// The messages that follow an effect if everything succeeds. Delayed wakes are lost, so that the supervisor's sweep has
/// to replace them.
fn successful_responses(
    workflow: &ExploredWorkflow,
    model: &ModelState,
    effect: &Effect,
) -> Vec<ModelEvent> {
    match effect {
        Effect::Request(request) => {
            let (step, number) = (request.step.clone(), request.attempt);
            let reply = Event::ReplyReceived(StepReply {
                task_id: request.task_id.clone(),
                step: step.clone(),
                action: request.action,
                attempt: number,
                outcome: completed(&step, number),
                incarnation: request.incarnation,
                times: AttemptTimes::default(),
                agent: None,
            });
            let awaits_callback =
                workflow.callback(&step).is_some() && request.action == Action::Do;
            let attempt = AttemptId { step: step.clone(), action: request.action, number };
            let edit = model.dispatches.get(&attempt).and_then(|dispatch| dispatch.edit.clone());
            let callback = Event::CallbackReceived { edit, outcome: callback_answer(&step), step };
            std::iter::once(reply).chain(awaits_callback.then_some(callback)).map(arrives).collect()
        }
        Effect::AwaitEvent(EventSubscription { waiter, .. }) => {
            let (step, attempt) = (waiter.step.clone(), waiter.attempt);
            let event = Event::ReplyReceived(StepReply {
                task_id: waiter.task_id.clone(),
                outcome: completed(&step, attempt),
                step,
                action: Action::Do,
                attempt,
                incarnation: waiter.incarnation,
                times: AttemptTimes::default(),
                agent: None,
            });
            vec![arrives(event)]
        }
        Effect::Submit(submission) => {
            let Some(parent) = &submission.parent else { return Vec::new() };
            let child = model.children.get(&parent.step).cloned().unwrap_or_default();
            let (events, end) = child.succeed(ChildSubmission::new(submission), model.now);
            let step = &parent.step;
            let events = events.into_iter().map(|event| ModelEvent::Child(step.clone(), event));
            events.chain(child_report(step, end).map(arrives)).collect()
        }
        Effect::Wake { after, .. } => {
            after.is_zero().then(|| arrives(Event::Wake)).into_iter().collect()
        }
        Effect::Publish(event) => {
            let sent = event.alerted_end().map(|ended_at| Event::AlertPublished { ended_at });
            sent.map(arrives).into_iter().collect()
        }
        Effect::ParentRequest(_)
        | Effect::ChildEnded(_)
        | Effect::Reply(_)
        | Effect::Notification { .. }
        | Effect::Reject { .. } => Vec::new(),
    }
}

fn resume(issued_at: Timestamp) -> Event {
    let command = Command {
        command_id: "resume".parse().unwrap(),
        task_id: "t".parse().unwrap(),
        by: "op".to_owned(),
        why: "because".to_owned(),
        action: CommandAction::Resume,
        issued_at,
    };
    Event::CommandReceived(command.received_from("AIDAANN".parse().unwrap()))
}
