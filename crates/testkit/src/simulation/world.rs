//! What all parts of one simulated world share: the virtual clock, the dice, the queues, the ledger,
//! the oracle, the trace, and the agenda of what is to happen when.

use std::{
    collections::BTreeMap,
    num::NonZeroU32,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use steward_core::model::{
    command::Command,
    messages::{CallbackAnswer, SchedulerMessage, Submission},
    time::later,
};
use steward_runtime::ports::{Outgoing, Queue};
use tokio::{sync::Notify, time::Instant};

use super::{
    dice::Dice,
    ledger::Ledger,
    network::{Feed, Network},
    oracle::Oracle,
    plan::{EPOCH_S, Millis, Plan, SECOND},
    trace,
};
use crate::memory::MemoryPorts;

/// Something that is to happen.
#[derive(Debug)]
pub(super) enum Happening {
    /// A client submits the task of this place in the plan.
    Submit(usize),
    /// The client of this place in the plan uses its id once more, if that is free, for something else.
    Reuse(usize),
    /// An operator's command, this often.
    Command(Command, u64),
    /// Any instance dies, and the next such death is drawn.
    Death,
    /// All schedulers and supervisors are away until then.
    Away(Millis),
    /// The instance of this place comes back.
    Revive(usize),
    /// The supervisor of this place is to sweep.
    Sweep(usize),
    /// The call of this number takes effect, and nobody waits for it any more.
    Commit(u64),
    /// Somebody answers who was handed a token.
    Answer(CallbackAnswer),
    /// The storm is over.
    Calm,
    /// An operator looks for paused tasks.
    Look,
    /// Some of what has expired is deleted.
    Expiry,
    /// A message arrives that was sent long ago.
    Arrival(Feed, Outgoing),
}

/// One simulated world.
#[derive(Debug)]
pub(super) struct World {
    pub(super) plan: Plan,
    pub(super) memory: MemoryPorts,
    start: Instant,
    /// A message or an event has come.
    pub(super) changed: Notify,
    state: Mutex<State>,
}

/// What changes in it.
#[derive(Debug)]
pub(super) struct State {
    pub(super) dice: Dice,
    pub(super) network: Network,
    pub(super) ledger: Ledger,
    pub(super) oracle: Oracle,
    pub(super) agenda: BTreeMap<(Millis, u64), Happening>,
    appointments: u64,
    pub(super) trace: Option<Vec<String>>,
    pub(super) faults: u64,
    pub(super) storm: bool,
}

impl World {
    pub(super) fn new(seed: u64, plan: Plan, traced: bool) -> Self {
        let shards = NonZeroU32::new(plan.shards).unwrap_or(NonZeroU32::MIN);
        let receives_max = plan.late.dead_letters.as_ref().map(|plan| plan.receives_max);
        let state = State {
            dice: Dice::new(seed),
            network: Network::new(receives_max),
            ledger: Ledger::default(),
            oracle: Oracle::new(&plan),
            agenda: BTreeMap::new(),
            appointments: 0,
            trace: traced.then(Vec::new),
            faults: 0,
            storm: true,
        };
        Self {
            memory: MemoryPorts::new(plan.timing, shards),
            plan,
            start: Instant::now(),
            changed: Notify::new(),
            state: Mutex::new(state),
        }
    }

    /// The changing part. Its guard is never held while anything waits.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The true time since the start.
    pub(super) fn now(&self) -> Millis {
        self.start.elapsed().as_millis() as Millis
    }

    /// The true time of day.
    pub(super) fn time(&self) -> Timestamp {
        let epoch = Timestamp::from_second(EPOCH_S).unwrap_or_default();
        later(epoch, self.start.elapsed())
    }

    pub(super) async fn sleep_until(&self, at: Millis) {
        tokio::time::sleep_until(self.start + Duration::from_millis(at)).await;
    }

    /// Puts something on the agenda.
    pub(super) fn at(&self, at: Millis, happening: Happening) {
        self.state().put_on_agenda(at.max(self.now()), happening);
        self.changed.notify_one();
    }

    /// One line of the trace, if anyone reads it.
    pub(super) fn note(&self, who: &str, what: impl FnOnce() -> String) {
        let now = self.now();
        let mut state = self.state();
        if let Some(trace) = &mut state.trace {
            let (seconds, millis) = (now / SECOND, now % SECOND);
            trace.push(format!("{seconds:>6}.{millis:03}s {who:<16} {}", what()));
        }
    }

    /// A fault was injected.
    pub(super) fn fault(&self, who: &str, what: impl FnOnce() -> String) {
        self.state().faults += 1;
        self.note(who, || format!("! {}", what()));
    }

    /// Carries a message over the network: late, twice and out of order, as the weather is.
    pub(super) fn carry(&self, message: &Outgoing) {
        let now = self.now();
        let feed = match &message.queue {
            Queue::Submissions => Feed::Submissions,
            Queue::Scheduler => Feed::Scheduler,
            Queue::Agent(name) => Feed::Agent(name.clone()),
            Queue::Client(_) | Queue::Rejected => return self.heed(message),
        };
        self.heed(message);
        // Whole seconds, rounded up, as on SQS.
        let delay = message.delay.as_millis().div_ceil(1_000) as Millis * SECOND;
        self.put(feed, now + delay, message);
    }

    /// The oracle sees a message.
    fn heed(&self, message: &Outgoing) {
        let state = &mut *self.state();
        state.oracle.sent(message, &state.ledger);
    }

    /// A client's submission sets out.
    pub(super) fn submit(&self, submission: &Submission) {
        let body = serde_json::to_string(submission).unwrap_or_default();
        let traceparent = trace::of_client(&submission.task_id);
        let attributes = traceparent.map(|text| ("traceparent", text)).into_iter().collect();
        let message = Outgoing { attributes, ..plain(Queue::Submissions, body) };
        self.put(Feed::Submissions, self.now(), &message);
    }

    /// An operator's command sets out.
    pub(super) fn command(&self, command: &Command) {
        self.tell_scheduler(&SchedulerMessage::Command(command.clone()));
    }

    /// A message to the scheduler sets out, of somebody who is none of the roles.
    pub(super) fn tell_scheduler(&self, message: &SchedulerMessage) {
        let body = serde_json::to_string(message).unwrap_or_default();
        self.put(Feed::Scheduler, self.now(), &plain(Queue::Scheduler, body));
    }

    fn put(&self, feed: Feed, at: Millis, message: &Outgoing) {
        self.copy_late(&feed, message);
        let mut state = self.state();
        let weather = &self.plan.weather;
        let storm = state.storm;
        let copies = if storm && state.dice.chance(weather.duplicate) { 2 } else { 1 };
        let mut delayed = copies - 1;
        for _ in 0..copies {
            let mut transit = state.dice.within(1..=20);
            if storm && state.dice.chance(weather.delay) {
                transit += state.dice.skewed(weather.delay_max);
                delayed += 1;
            }
            state.network.put(feed.clone(), at + transit, message);
        }
        state.faults += delayed;
        self.changed.notify_one();
    }
}

impl State {
    /// Something is to happen, not in the past.
    pub(super) fn put_on_agenda(&mut self, at: Millis, happening: Happening) {
        self.appointments += 1;
        self.agenda.insert((at, self.appointments), happening);
    }
}

fn plain(queue: Queue, body: String) -> Outgoing {
    Outgoing { queue, body, attributes: Vec::new(), delay: Duration::ZERO }
}
