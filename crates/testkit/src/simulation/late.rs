//! Messages that come late. In some worlds copies of messages arrive once more, up to fourteen days after
//! they were sent, as SQS keeps them: most of them when clients have begun to use the ids of expired
//! tasks again. In some worlds messages become dead letters after few receives, and an operator sends
//! them back.

use steward_aws::batch::REDRIVEN;
use steward_runtime::ports::Outgoing;

use super::{
    blueprint::Blueprint,
    dice::Dice,
    network::Feed,
    plan::{DAY, HOUR, MINUTE, Millis},
    world::{Happening, State, World},
};

/// How long a queue keeps a message.
const KEPT_WITHIN: Millis = 14 * DAY;

/// The share of worlds with late copies, and of worlds with dead letters.
const WORLDS: f64 = 0.08;

/// What comes late.
#[derive(Debug, Clone, Default)]
pub(super) struct LatePlan {
    pub(super) copies: Option<CopyPlan>,
    pub(super) dead_letters: Option<DeadLetterPlan>,
}

/// Copies of messages.
#[derive(Debug, Clone)]
pub(super) struct CopyPlan {
    /// The share of messages of which a copy arrives late.
    share: f64,
    /// When clients use the ids of expired tasks again.
    pub(super) second_life: Millis,
}

/// Dead letters that are sent back.
#[derive(Debug, Clone)]
pub(super) struct DeadLetterPlan {
    /// How often a message is received before it is a dead letter.
    pub(super) receives_max: u32,
    /// How long it is one at most.
    redriven_within: Millis,
}

/// Whether a message comes late.
pub(super) fn is_late(message: &Outgoing) -> bool {
    message.attributes.iter().any(|(name, _)| *name == REDRIVEN)
}

impl LatePlan {
    /// Draws what comes late, from dice of its own: worlds without are as they would be without this.
    pub(super) fn of(seed: u64, storm_until: Millis, blueprints: &mut [Blueprint]) -> Self {
        let dice = &mut Dice::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1a7e);
        let copies = dice.chance(WORLDS).then(|| CopyPlan {
            share: dice.pick(0.05, &[0.2, 0.5]),
            second_life: storm_until + dice.within(6..=13 * 24) * HOUR,
        });
        if copies.is_some() {
            blueprints.iter_mut().for_each(|blueprint| expire_soon(blueprint, dice));
        }
        let dead_letters = dice.chance(WORLDS).then(|| DeadLetterPlan {
            receives_max: dice.within(1..=3) as u32,
            redriven_within: dice.pick(MINUTE, &[10 * MINUTE, DAY, KEPT_WITHIN]),
        });
        Self { copies, dead_letters }
    }

    /// Whether everything comes at once.
    pub(super) fn is_nothing(&self) -> bool {
        self.copies.is_none() && self.dead_letters.is_none()
    }

    /// The last time until which messages may come that were sent before `now`.
    pub(super) fn last(&self, now: Millis) -> Millis {
        let second_life = self.copies.as_ref().map_or(0, |copies| copies.second_life);
        if self.is_nothing() { now } else { now.max(second_life) + KEPT_WITHIN }
    }
}

fn expire_soon(blueprint: &mut Blueprint, dice: &mut Dice) {
    if dice.chance(0.8) {
        blueprint.retention_h = Some(dice.within(1..=12));
    }
}

impl CopyPlan {
    /// When a copy of a message arrives that is sent now.
    fn arrival(&self, now: Millis, dice: &mut Dice) -> Millis {
        let soon = now + dice.skewed(HOUR);
        let any_time = now + dice.skewed(KEPT_WITHIN);
        let in_second_life = self.second_life + dice.skewed(10 * MINUTE);
        match dice.within(0..=9) {
            0 | 1 => soon,
            2 | 3 => any_time,
            _ if (now..now + KEPT_WITHIN).contains(&in_second_life) => in_second_life,
            _ => any_time,
        }
    }
}

impl World {
    /// Puts the second lives of clients' ids on the agenda.
    pub(super) fn plan_second_lives(&self) {
        let Some(copies) = &self.plan.late.copies else { return };
        for (place, _) in self.plan.tasks.iter().enumerate().filter(|(_, task)| !task.rival) {
            let at = copies.second_life + self.state().dice.skewed(MINUTE);
            self.at(at, Happening::Reuse(place));
        }
    }

    /// Copies of a message that is sent now may arrive late. What it leads to in a second life is not copied,
    /// so that it comes to an end.
    pub(super) fn copy_late(&self, feed: &Feed, message: &Outgoing) {
        let Some(copies) = &self.plan.late.copies else { return };
        let now = self.now();
        let state = &mut *self.state();
        if now < copies.second_life && state.dice.chance(copies.share) {
            for _ in 0..state.dice.pick(1, &[1, 2]) {
                let at = copies.arrival(now, &mut state.dice);
                state.arrives_late(feed.clone(), at, message);
            }
        }
    }

    /// A message is a dead letter: an operator sends it back, in worlds that have such operators.
    pub(super) fn is_dead(&self, feed: Feed, letter: &Outgoing) {
        let body = &letter.body;
        let state = &mut *self.state();
        let plan = self.plan.late.dead_letters.as_ref();
        if is_late(letter) && !(state.storm && plan.is_some()) {
            // Of what is about a task that is gone, nothing comes.
            return;
        }
        let Some(plan) = plan else {
            let finding = format!("a message became a dead letter: {body}");
            return state.oracle.find(finding);
        };
        state.faults += 1;
        let now = self.now();
        let at = now + state.dice.skewed(plan.redriven_within);
        state.arrives_late(feed, at, letter);
    }

    /// A late message arrives.
    pub(super) fn arrives(&self, feed: Feed, message: &Outgoing) {
        self.fault("queue", || format!("a message comes late: {}", message.body));
        self.state().network.put(feed, self.now(), message);
    }
}

impl State {
    /// A message will arrive, marked as one that may have been handled before.
    fn arrives_late(&mut self, feed: Feed, at: Millis, message: &Outgoing) {
        let mut message = message.clone();
        if !is_late(&message) {
            message.attributes.push((REDRIVEN, "true".to_owned()));
        }
        self.put_on_agenda(at, Happening::Arrival(feed, message));
    }
}
