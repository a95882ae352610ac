//! A queue with its function in the simulation: what starts, what is refused, and what waits.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use steward_core::intake::{IntakeLevel, SCHEDULER_TIME};

use super::{
    fluid::{Portion, PortionPool, PortionQueue},
    limit_kind::LimitKind,
    model::Stage,
    scaling_limits::PollerScaling,
};
use crate::cost::FunctionRole;

/// The length of a tick, in seconds.
pub(super) const TICK_S: f64 = 0.01;

/// Messages that arrive at a queue within this many seconds are merged.
const QUEUE_MERGE_S: f64 = 0.1;

/// The age of the oldest message, in seconds, from which a queue counts as backlogged.
pub(super) const BACKLOG_S: f64 = 1.0;

/// How long an invocation waits that does nothing but send its messages to another queue, in seconds.
const SEND_S: f64 = 0.01;

/// The result of a stage.
#[derive(Debug, Clone, Default)]
pub(super) struct StageResult {
    /// The largest length of the queue, and when it occurred.
    pub(super) max_length: f64,
    pub(super) max_length_at_s: f64,
    /// The longest waiting time of a message, in seconds.
    pub(super) max_age_s: f64,
    /// The first and the last moment with a backlog, in seconds. The queue may have had none in between.
    pub(super) backlog_s: Option<(f64, f64)>,
    /// The waiting time of its messages in seconds, by limit.
    pub(super) waiting_s_by_limit: BTreeMap<LimitKind, f64>,
    /// The sum of the durations of its invocations, in seconds.
    pub(super) invocation_s_total: f64,
}

/// A queue, and the messages that its function handles.
pub(super) struct StageQueue<'m> {
    pub(super) stage: &'m Stage,
    pub(super) waiting: PortionQueue,
    pub(super) in_progress: PortionPool,
    /// Messages that the function does not handle: late requests, and submissions that are held back.
    pub(super) refused: PortionPool,
    /// The level of intake control that this queue's wait has set.
    pub(super) level: Option<IntakeLevel>,
    /// The limit that prevented more starts in the last tick.
    pub(super) limited_by: Option<LimitKind>,
    pollers: f64,
    instances: f64,
    /// The instances that may start at this moment.
    instance_start_tokens: f64,
    pub(super) result: StageResult,
}

/// How many messages start now, and the limit that prevents more.
#[derive(Debug, Clone)]
pub(super) struct StartableMessages {
    pub(super) messages: f64,
    /// The share of them that the function handles. It refuses the others, which uses no units of tables.
    handled: f64,
    limited_by: LimitKind,
}

impl StartableMessages {
    /// The messages that the function handles.
    pub(super) fn handled_messages(&self) -> f64 {
        self.messages * self.handled
    }
}

/// What a function refuses.
#[derive(Debug, Clone, Copy)]
pub(super) struct Refusals {
    /// The share of new tasks that may start.
    pub(super) start_share: f64,
    /// Whether agents refuse requests that are past complete-by.
    pub(super) refuses_late: bool,
}

/// Reduces the started messages so that they use at most `left` units of a resource. `units_of` gives the units that a
/// stage's started messages need. Returns the used units.
pub(super) fn limit(
    starts: &mut [StartableMessages],
    stages: &[Stage],
    units_of: impl Fn(&StartableMessages, &Stage) -> f64,
    left: f64,
    limit_kind: &LimitKind,
) -> f64 {
    let needed: f64 = starts.iter().zip(stages).map(|(start, stage)| units_of(start, stage)).sum();
    if needed <= left.max(0.0) {
        return needed;
    }
    let share = left.max(0.0) / needed;
    for (start, stage) in starts.iter_mut().zip(stages) {
        if units_of(start, stage) > 0.0 {
            start.messages *= share;
            start.limited_by = limit_kind.clone();
        }
    }
    needed * share
}

impl<'m> StageQueue<'m> {
    pub(super) fn new(stage: &'m Stage, pollers: f64, instances_at_once: f64) -> Self {
        Self {
            stage,
            waiting: PortionQueue::new(QUEUE_MERGE_S),
            in_progress: PortionPool::default(),
            refused: PortionPool::default(),
            level: None,
            limited_by: None,
            pollers,
            instances: 0.0,
            instance_start_tokens: instances_at_once,
            result: StageResult::default(),
        }
    }

    /// Lets more instances start, up to `at_once`.
    pub(super) fn refill(&mut self, more: f64, at_once: f64) {
        self.instance_start_tokens = (self.instance_start_tokens + more).min(at_once);
    }

    /// The duration of an invocation that refuses its messages, in seconds.
    pub(super) fn refusal_s(&self, compute_s: f64) -> f64 {
        (SEND_S + compute_s).min(self.stage.invocation_s)
    }

    fn invoked(&self) -> f64 {
        self.in_progress.messages + self.refused.messages
    }

    pub(super) fn startable(
        &self,
        batch: f64,
        in_flight: f64,
        refusals: Refusals,
    ) -> StartableMessages {
        let role = || self.stage.role.clone();
        let headrooms = [
            (self.stage.concurrency * batch, LimitKind::Concurrency(role())),
            (self.pollers * batch, LimitKind::Pollers(role())),
            ((self.instances + self.instance_start_tokens) * batch, LimitKind::Instances(role())),
            (in_flight, LimitKind::InFlight(role())),
        ];
        let least =
            headrooms.into_iter().reduce(|least, next| if next.0 < least.0 { next } else { least });
        let (headroom, limited_by) = least.unwrap_or((0.0, LimitKind::Concurrency(role())));
        // Rounding errors may make the difference negative.
        let messages = (headroom - self.invoked()).min(self.waiting.messages).max(0.0);
        let handled = match self.stage.role {
            FunctionRole::Submission => refusals.start_share,
            FunctionRole::Scheduler | FunctionRole::Agent(_) => 1.0,
        };
        StartableMessages { messages, handled, limited_by }
    }

    /// Starts messages. Returns how many requests are past complete-by.
    pub(super) fn start(
        &mut self,
        start: StartableMessages,
        now_s: f64,
        batch: f64,
        pollers: PollerScaling,
        refusals: Refusals,
    ) -> f64 {
        self.note_level(start.messages, now_s);
        let mut taken = PortionPool::default();
        self.waiting.take(start.messages, &mut taken);
        let mut late = 0.0;
        for (hop, mut portion) in taken.portions() {
            if self.is_late(&portion, now_s) && refusals.refuses_late {
                late += portion.messages;
                self.refused.add(hop, portion);
            } else {
                self.refused.add(hop, portion.split(1.0 - start.handled));
                self.in_progress.add(hop, portion);
            }
        }
        let invocations = self.invoked() / batch;
        let new = (invocations - self.instances).max(0.0);
        self.instances += new;
        self.instance_start_tokens -= new;
        self.result.invocation_s_total += invocations * TICK_S;
        self.limited_by = None;
        // Up to one waiting message is ignored.
        if self.waiting.messages > 1.0 {
            self.pollers = (self.pollers + pollers.more_per_s * TICK_S).min(pollers.max);
            *self.result.waiting_s_by_limit.entry(start.limited_by.clone()).or_default() +=
                self.waiting.messages * TICK_S;
            self.limited_by = Some(start.limited_by);
        }
        self.result.note(&self.waiting, now_s);
        late
    }

    fn is_late(&self, portion: &Portion, now_s: f64) -> bool {
        self.stage.within_s.is_some_and(|within_s| now_s - portion.requested_s > within_s)
    }

    /// Lowers the level of intake control, if the messages that start now have waited for too long. The same function
    /// decides as in the deployment.
    fn note_level(&mut self, starting: f64, now_s: f64) {
        let time_s = match self.stage.role {
            FunctionRole::Submission => return,
            FunctionRole::Scheduler => Some(SCHEDULER_TIME.as_secs_f64()),
            FunctionRole::Agent(_) => self.stage.within_s,
        };
        let Some(time_s) = time_s.filter(|_| starting > 0.0) else { return };
        let used = self.waiting.oldest_s(now_s) / time_s;
        if let Some(level) = IntakeLevel::after(self.level.as_ref(), used, timestamp(now_s)) {
            self.level = Some(level);
        }
    }
}

/// A time of the simulation, for the functions that the deployment uses too.
pub(super) fn timestamp(now_s: f64) -> Timestamp {
    let since_start = SignedDuration::from_millis((now_s * 1_000.0).round() as i64);
    Timestamp::UNIX_EPOCH.saturating_add(since_start).unwrap_or(Timestamp::MAX)
}

impl StageResult {
    fn note(&mut self, waiting: &PortionQueue, now_s: f64) {
        if waiting.messages > self.max_length {
            (self.max_length, self.max_length_at_s) = (waiting.messages, now_s);
        }
        let oldest_s = waiting.oldest_s(now_s);
        self.max_age_s = self.max_age_s.max(oldest_s);
        if oldest_s > BACKLOG_S {
            let from = self.backlog_s.map_or(now_s, |(from, _)| from);
            self.backlog_s = Some((from, now_s));
        }
    }
}
