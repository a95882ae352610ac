//! Intake control: how many new tasks a deployment starts while a queue is too long.
//!
//! A step's time runs while its request waits in the agent's queue. Without a limit, a load above the deployment's
//! capacity lengthens that wait until every request arrives too late, and nothing completes. So new tasks wait before
//! they are recorded, when no deadline runs yet. Tasks in progress always continue.
//!
//! ```text
//! request received after 18 % of its time ──► level of its queue: start 62 % of the new tasks
//!                                                  │ a second later: 65 %, unless the wait is still too long
//!                                                  ▼
//!                     submission ──► starts a new task, or puts it back into its queue for a while
//! ```
//!
//! Each queue has a *level*: the share of new tasks that may start, and the share of its time that a message had lost
//! to waiting. A function that receives messages that waited for too long lowers the level, at most once a second. A level
//! rises by itself as time passes, so a deployment without a backlog writes nothing.
//!
//! The queues are fair: the messages of a tenant with much load wait, and those of others do not. So if most messages of a
//! batch are of one [tenant](Tenant), their wait lowers the level of that tenant, and only its new tasks are held back.
//!
//! The level falls with the wait above the [target](TARGET) and with the growth of the wait. The second part makes it
//! stable: it reacts before the wait is long, and stops as soon as the wait stops growing. This is a
//! proportional-integral controller, as in PIE: <https://www.rfc-editor.org/rfc/rfc8033>.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    definition::{step::StepDefinition, workflow::Workflow},
    model::{
        hash::fnv1a,
        names::{AgentName, Tenant},
    },
};

/// The share of its time that a message may wait: a second of an attempt of ten.
pub const TARGET: f64 = 0.1;

/// A shorter wait never counts: without a queue, a message may need this long too, for example during a cold start.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);

/// The time of a message to the scheduler: a wait of this length counts like an attempt's whole time.
pub const SCHEDULER_TIME: Duration = Duration::from_secs(10);

/// How much a level rises in each second.
const GROWTH: f64 = 1.02;

/// How much a level falls for each second and share of the time above the target.
const FALL_FOR_WAIT: f64 = 0.06;

/// How much a level falls for each share of the time by which the wait has grown.
const FALL_FOR_GROWTH: f64 = 5.0;

/// How much a level falls at once, at most. One burst of old messages, such as those that waited while an agent was
/// stopped, does not say that the queue will stay long.
const FALL_MAX: f64 = 0.5;

/// The lowest level. It is not zero, because only messages show that the wait has ended. At this level, a submission is
/// held back twenty times on average, which takes about an hour.
const LOWEST: f64 = 0.05;

/// How far in the future a level may have been set, because clocks disagree.
const CLOCKS_DIFFER_BY_MAX: Duration = Duration::from_secs(10);

/// A level changes at most this often.
const CHANGE_EVERY: Duration = Duration::from_secs(1);

/// Waits are compared with an earlier one that is at most this old.
const COMPARED_WITHIN_S: f64 = 3.0;

/// The longest wait that the controller distinguishes, as a share of the message's time.
const USED_MAX: f64 = 2.0;

/// The first pause of a submission that is put back. It doubles each time.
const FIRST_PAUSE: Duration = Duration::from_secs(5);

/// The longest pause of a submission that is put back: SQS delays a message by at most 15 minutes.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// The pause is longest after fewer turns than these.
const TURNS_MAX: f64 = 10.0;

/// The name of the scheduler's queue in the record. No agent has this name.
const SCHEDULER: &str = "#scheduler";

/// Separates the queue from the tenant in the name of a tenant's level. Names of agents and tenants do not contain it.
const OF_TENANT: char = '@';

/// Levels of tenants in the record. If more tenants have load above the capacity, the wait counts for all tasks.
const TENANT_LEVELS_MAX: usize = 50;

/// How long the messages of a batch waited.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchWait {
    /// The tenant whose tasks are concerned. `None`: the wait counts for all tasks.
    pub tenant: Option<Tenant>,
    /// The median of the shares of their time that its messages waited.
    pub used: f64,
}

impl BatchWait {
    /// The wait of a batch, from the tenant of each message and the share of its time that it waited. If one tenant has
    /// more than half of the messages, its messages count, and otherwise all.
    #[must_use]
    pub fn of(waits: Vec<(Option<&Tenant>, f64)>) -> Self {
        let mut counts: BTreeMap<&Tenant, usize> = BTreeMap::new();
        waits.iter().filter_map(|(tenant, _)| *tenant).for_each(|tenant| {
            *counts.entry(tenant).or_default() += 1;
        });
        let most = counts.into_iter().find(|(_, count)| count * 2 > waits.len());
        let tenant = most.map(|(tenant, _)| tenant);
        let counted = waits.iter().filter(|(of, _)| tenant.is_none() || *of == tenant);
        let used = median(counted.map(|(_, used)| *used).collect());
        Self { tenant: tenant.cloned(), used }
    }

    /// Whether the wait counts for the tasks of `tenant`.
    #[must_use]
    pub fn counts_for(&self, tenant: Option<&Tenant>) -> bool {
        self.tenant.is_none() || self.tenant.as_ref() == tenant
    }
}

/// The level of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct IntakeLevel {
    /// The share of new tasks that may start, from 0 to 1.
    pub start: f64,
    /// The share of its time that a message had waited when the level was set.
    pub used: f64,
    /// When the level was set.
    #[serde(with = "jiff::fmt::serde::timestamp::millisecond::required")]
    pub at: Timestamp,
}

impl IntakeLevel {
    /// The share of new tasks that may start at `now`.
    #[must_use]
    pub fn start_at(&self, now: Timestamp) -> f64 {
        self.in_bounds(now).map_or(1.0, |Self { start, at, .. }| {
            (start * GROWTH.powf(now.duration_since(at).as_secs_f64())).min(1.0)
        })
    }

    /// A stored level as it counts at `now`, so that no record can stop new tasks for ever. A level that was set in the
    /// future counts as set now. If it was set so far in the future that a clock must have been wrong, it does not count:
    /// it would neither rise nor be replaced until then.
    fn in_bounds(self, now: Timestamp) -> Option<Self> {
        let ahead = self.at.duration_since(now);
        let counts = ahead.as_secs_f64() <= CLOCKS_DIFFER_BY_MAX.as_secs_f64();
        let (start, used) = (self.start.clamp(LOWEST, 1.0), self.used.clamp(0.0, USED_MAX));
        counts.then(|| Self { start, used, at: self.at.min(now) })
    }

    /// The next level of a queue whose messages have used this share of their time when they are received. `None` if
    /// the level does not change.
    #[must_use]
    pub fn after(before: Option<&Self>, used: f64, now: Timestamp) -> Option<Self> {
        if used <= TARGET {
            return None;
        }
        let used = used.min(USED_MAX);
        let before = before.and_then(|level| level.in_bounds(now));
        let passed = before.map(|level| now.duration_since(level.at).as_secs_f64());
        if passed.is_some_and(|passed_s| passed_s < CHANGE_EVERY.as_secs_f64()) {
            return None;
        }
        let earlier =
            before.filter(|_| passed.is_some_and(|passed_s| passed_s <= COMPARED_WITHIN_S));
        let used_before = earlier.map_or(TARGET, |level| level.used);
        let for_s = earlier.and(passed).unwrap_or(1.0);
        let fall = FALL_FOR_WAIT * (used - TARGET) * for_s + FALL_FOR_GROWTH * (used - used_before);
        let start =
            before.map_or(1.0, |level| level.start_at(now)) * (-fall.clamp(0.0, FALL_MAX)).exp();
        Some(Self { start: start.clamp(LOWEST, 1.0), used, at: now })
    }
}

/// The levels of all queues of a deployment, by the name of the agent, such as `payment`. A level that counts for the
/// tasks of one tenant has the tenant in its name, such as `payment@acme`. A queue without a level restricts nothing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Intake(BTreeMap<String, IntakeLevel>);

impl Intake {
    /// Returns the levels after a batch of messages of a queue waited for this long. `None` if nothing changes. `agent`
    /// is `None` for the scheduler's queue. Drops the levels that restrict nothing any more.
    #[must_use]
    pub fn after_wait(
        &self,
        agent: Option<&AgentName>,
        wait: &BatchWait,
        now: Timestamp,
    ) -> Option<Self> {
        let restricting = self.0.iter().filter(|(_, level)| level.start_at(now) < 1.0);
        let mut levels: BTreeMap<_, _> =
            restricting.map(|(name, level)| (name.clone(), *level)).collect();
        let queue = agent.map_or(SCHEDULER, AgentName::as_str);
        let of_tenant = wait.tenant.as_ref().map(|tenant| format!("{queue}{OF_TENANT}{tenant}"));
        let tenants = levels.keys().filter(|name| name.contains(OF_TENANT)).count();
        let of_tenant =
            of_tenant.filter(|name| levels.contains_key(name) || tenants < TENANT_LEVELS_MAX);
        let name = of_tenant.unwrap_or_else(|| queue.to_owned());
        let level = IntakeLevel::after(self.0.get(&name), wait.used, now)?;
        levels.insert(name, level);
        Some(Self(levels))
    }

    /// Whether all new tasks may start.
    #[must_use]
    pub fn is_open(&self, now: Timestamp) -> bool {
        self.0.values().all(|level| level.start_at(now) >= 1.0)
    }

    /// The share of a tenant's new tasks of a workflow that may start: the lowest level of the scheduler and of the agents
    /// of its steps. Workflows with other agents are not restricted, and levels of other tenants do not count. The agents
    /// of child tasks are not known here, so all levels count for a workflow that has any.
    #[must_use]
    pub fn start_share(&self, workflow: &Workflow, tenant: Option<&Tenant>, now: Timestamp) -> f64 {
        let steps = || workflow.steps.values();
        let has_children = steps().any(|step| step.workflow.is_some());
        let counts = |name: &str| {
            let is_agent =
                |step: &StepDefinition| step.agents().any(|agent| agent.as_str() == name);
            name == SCHEDULER || has_children || steps().any(is_agent)
        };
        let levels = self.0.iter().filter(|(name, _)| match name.split_once(OF_TENANT) {
            Some((queue, of)) => {
                tenant.is_some_and(|tenant| tenant.as_str() == of) && counts(queue)
            }
            None => counts(name),
        });
        levels.map(|(_, level)| level.start_at(now)).fold(1.0, f64::min)
    }
}

/// The share of its time that a message had waited when it was received. The time ends at `complete_by`.
#[must_use]
pub fn used_share(sent_at: Timestamp, complete_by: Timestamp, now: Timestamp) -> f64 {
    let time_s = complete_by.duration_since(sent_at).as_secs_f64();
    let waited_s = now.duration_since(sent_at).as_secs_f64().max(0.0);
    match waited_s < SHORTEST_WAIT.as_secs_f64() {
        true => 0.0,
        false if time_s <= 0.0 => USED_MAX,
        false => (waited_s / time_s).min(USED_MAX),
    }
}

/// The median of the shares of their time that the messages of a batch had waited: a single late message says nothing
/// about its queue. Zero if there are none. Of two messages, the shorter wait counts.
fn median(mut used: Vec<f64>) -> f64 {
    used.sort_unstable_by(f64::total_cmp);
    used.get(used.len().saturating_sub(1) / 2).copied().unwrap_or(0.0)
}

/// Whether the tasks of a submission may start if this share of new tasks may. `turn` is how often the submission was
/// put back, so that each turn decides anew. A hash of the text decides, so the same inputs give the same result.
#[must_use]
pub fn may_start(text: &str, turn: u32, share: f64) -> bool {
    share >= 1.0 || turn_fraction(text, turn) < share
}

/// How long a submission that was put back `turn` times waits until its next turn. Half of it differs by submission, so
/// that those that were put back together do not return together.
#[must_use]
pub fn pause_before_next_turn(text: &str, turn: u32) -> Duration {
    let fraction = 0.5 + turn_fraction(text, turn.wrapping_add(1)) / 2.0;
    pause_after_turns(f64::from(turn)).mul_f64(fraction)
}

/// The longest pause of a submission that was put back this many times.
#[must_use]
pub fn pause_after_turns(turns: f64) -> Duration {
    FIRST_PAUSE.mul_f64(turns.clamp(0.0, TURNS_MAX).exp2()).min(LONGEST_PAUSE)
}

fn turn_fraction(text: &str, turn: u32) -> f64 {
    f64::from(fnv1a(&format!("{turn}/{text}")) % 10_000) / 10_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    fn agent(name: &str) -> AgentName {
        name.parse().unwrap()
    }

    fn workflow(agent: &str) -> Workflow {
        serde_json::from_value(serde_json::json!({
            "name": "w", "version": 1,
            "steps": { "a": { "agent": agent, "request": { "path": "/" } } },
        }))
        .unwrap()
    }

    fn wait(used: f64) -> BatchWait {
        BatchWait { tenant: None, used }
    }

    #[test]
    fn a_short_wait_changes_nothing() {
        assert_eq!(IntakeLevel::after(None, TARGET, at(0)), None);
        assert!(Intake::default().is_open(at(0)));
        assert_eq!(Intake::default().start_share(&workflow("a"), None, at(0)), 1.0);
    }

    #[test]
    fn a_growing_wait_lowers_the_level_and_a_falling_wait_lets_it_rise() {
        let mut level = None;
        let mut starts = Vec::new();
        for (second, used) in [(0, 0.2), (1, 0.3), (2, 0.4), (3, 0.3), (4, 0.2)] {
            level = IntakeLevel::after(level.as_ref(), used, at(second));
            starts.push(level.unwrap().start);
        }
        assert!(starts[1] < starts[0] && starts[2] < starts[1], "{starts:?}");
        assert!(starts[3] > starts[2] && starts[4] > starts[3], "{starts:?}");
        // Messages do not wait any more, so no function lowers the level, and it rises with time.
        let level = level.unwrap();
        assert_eq!(level.start_at(at(4)), level.start);
        assert_eq!(level.start_at(at(1_000)), 1.0);
    }

    /// Many instances see the same wait. Together they lower the level as one would.
    #[test]
    fn a_level_falls_at_most_once_a_second() {
        let first = IntakeLevel::after(None, 0.5, at(0)).unwrap();
        let soon = Timestamp::from_millisecond(999).unwrap();
        assert_eq!(IntakeLevel::after(Some(&first), 1.5, soon), None);
        assert!(IntakeLevel::after(Some(&first), 1.5, at(1)).unwrap().start < first.start);
    }

    #[test]
    fn a_level_never_falls_to_zero() {
        let mut level = IntakeLevel::after(None, 2.0, at(0));
        for second in 1..500 {
            level = IntakeLevel::after(level.as_ref(), 1e9, at(second));
        }
        assert_eq!(level.unwrap().start, LOWEST);
    }

    #[test]
    fn a_submission_does_not_wait_for_days_at_the_lowest_level() {
        let level = IntakeLevel { start: LOWEST, used: USED_MAX, at: at(0) };
        let turns = 1.0 / level.start_at(at(0));
        let waited = LONGEST_PAUSE.mul_f64(turns);
        assert!(waited <= Duration::from_secs(2 * 3600), "{waited:?}");
    }

    #[test]
    fn a_stored_level_outside_the_bounds_counts_as_one_inside() {
        let level = |start, used| IntakeLevel { start, used, at: at(0) };
        assert_eq!(level(0.0, 0.0).start_at(at(0)), LOWEST);
        assert_eq!(level(-1.0, 0.0).start_at(at(0)), LOWEST);
        assert_eq!(level(9.0, 0.0).start_at(at(0)), 1.0);
        // It rises from there, and it falls like one inside.
        assert!(level(0.0, 0.0).start_at(at(100)) > LOWEST);
        assert_eq!(
            IntakeLevel::after(Some(&level(9.0, 1e9)), 1.0, at(2)),
            IntakeLevel::after(Some(&level(1.0, USED_MAX)), 1.0, at(2))
        );
    }

    #[test]
    fn a_level_that_was_set_in_the_future_does_not_stop_new_tasks_for_ever() {
        let level = |seconds| IntakeLevel { start: 0.3, used: 0.5, at: at(seconds) };
        // The clocks of two instances differ by some seconds.
        assert_eq!(level(5).start_at(at(0)), 0.3);
        assert_eq!(IntakeLevel::after(Some(&level(5)), 0.9, at(0)), None);
        // A clock was wrong by a year.
        let wrong = level(365 * 24 * 3600);
        assert_eq!(wrong.start_at(at(0)), 1.0);
        assert_eq!(
            IntakeLevel::after(Some(&wrong), 0.5, at(0)),
            IntakeLevel::after(None, 0.5, at(0))
        );
    }

    #[test]
    fn a_queue_restricts_only_workflows_that_use_it() {
        let busy = agent("busy");
        let intake = Intake::default().after_wait(Some(&busy), &wait(1.0), at(0)).unwrap();
        assert!(intake.start_share(&workflow("busy"), None, at(0)) < 0.7);
        assert_eq!(intake.start_share(&workflow("other"), None, at(0)), 1.0);
        let both = intake.after_wait(None, &wait(0.2), at(0)).unwrap();
        assert!(
            both.start_share(&workflow("other"), None, at(0)) < 1.0,
            "all use the scheduler's queue"
        );
        assert_eq!(
            both.start_share(&workflow("busy"), None, at(0)),
            intake.start_share(&workflow("busy"), None, at(0))
        );
    }

    #[test]
    fn the_wait_of_most_messages_of_a_batch_counts_for_their_tenant() {
        let (acme, globex): (Tenant, Tenant) = ("acme".parse().unwrap(), "globex".parse().unwrap());
        let of = |waits: &[(Option<&Tenant>, f64)]| {
            let BatchWait { tenant, used } = BatchWait::of(waits.to_vec());
            (tenant.map(|tenant| tenant.to_string()), used)
        };
        let (a, g) = (Some(&acme), Some(&globex));
        assert_eq!(of(&[(a, 0.9), (a, 0.8), (g, 0.0)]), (Some("acme".to_owned()), 0.8));
        // Without a majority, the wait counts for all tasks: of two messages, the shorter one.
        assert_eq!(of(&[(a, 0.9), (g, 0.0)]), (None, 0.0));
        assert_eq!(of(&[(a, 0.9), (None, 0.7), (None, 0.8)]), (None, 0.8));
        assert_eq!(of(&[]), (None, 0.0));
        let wait = BatchWait { tenant: Some(acme.clone()), used: 0.9 };
        assert!(wait.counts_for(a) && !wait.counts_for(g) && !wait.counts_for(None));
        assert!(BatchWait { tenant: None, used: 0.9 }.counts_for(g));
    }

    #[test]
    fn a_tenant_that_waits_is_held_back_and_others_are_not() {
        let (acme, globex): (Tenant, Tenant) = ("acme".parse().unwrap(), "globex".parse().unwrap());
        let of_acme = BatchWait { tenant: Some(acme.clone()), used: 1.0 };
        let intake = Intake::default().after_wait(Some(&agent("a")), &of_acme, at(0)).unwrap();
        let share = |tenant| intake.start_share(&workflow("a"), tenant, at(0));
        assert!(share(Some(&acme)) < 0.7);
        assert_eq!((share(Some(&globex)), share(None)), (1.0, 1.0));
        assert_eq!(intake.start_share(&workflow("b"), Some(&acme), at(0)), 1.0);
        assert!(!intake.is_open(at(0)));
        let all = intake.after_wait(Some(&agent("a")), &wait(1.0), at(0)).unwrap();
        assert!(all.start_share(&workflow("a"), Some(&globex), at(0)) < 0.7);
    }

    #[test]
    fn the_levels_of_tenants_are_limited() {
        let mut intake = Intake::default();
        for n in 0..=TENANT_LEVELS_MAX {
            let of = BatchWait { tenant: format!("t-{n}").parse().ok(), used: 1.0 };
            intake = intake.after_wait(None, &of, at(0)).unwrap();
        }
        assert_eq!(intake.0.len(), TENANT_LEVELS_MAX + 1);
        assert!(intake.start_share(&workflow("a"), None, at(0)) < 0.7, "the last counts for all");
    }

    #[test]
    fn levels_that_restrict_nothing_are_dropped() {
        let intake = Intake::default().after_wait(Some(&agent("one")), &wait(0.2), at(0)).unwrap();
        let later = intake.after_wait(Some(&agent("two")), &wait(0.2), at(1_000)).unwrap();
        assert_eq!(later.0.keys().collect::<Vec<_>>(), ["two"]);
        let stored = serde_json::to_value(&later).unwrap();
        assert_eq!(serde_json::from_value::<Intake>(stored).unwrap(), later);
    }

    #[test]
    fn as_many_submissions_start_as_the_share_says() {
        let text = |n: u32| format!(r#"{{"task_id":"order-{n}","workflow":"order"}}"#);
        for (turn, share) in [(0, 0.1), (1, 0.5), (9, 0.9)] {
            let started = (0..10_000).filter(|n| may_start(&text(*n), turn, share)).count() as f64;
            assert!((started / 10_000.0 - share).abs() < 0.02, "{started} of 10,000 for {share}");
        }
        // Each turn decides anew.
        let held = (0..10_000).filter(|n| !may_start(&text(*n), 0, 0.5)).collect::<Vec<_>>();
        let again = held.iter().filter(|n| !may_start(&text(**n), 1, 0.5)).count() as f64;
        assert!((again / held.len() as f64 - 0.5).abs() < 0.05, "{again} of {}", held.len());
    }

    #[test]
    fn the_pause_doubles_up_to_its_limit() {
        let pauses: Vec<_> = (0..9).map(|turn| pause_before_next_turn("x", turn)).collect();
        assert!(pauses[0] >= FIRST_PAUSE / 2 && pauses[0] <= FIRST_PAUSE, "{pauses:?}");
        assert!(pauses[8] >= LONGEST_PAUSE / 2 && pauses[8] <= LONGEST_PAUSE, "{pauses:?}");
        assert_eq!(pause_after_turns(1e9), LONGEST_PAUSE);
        assert!(LONGEST_PAUSE <= crate::limits::QUEUE_DELAY_MAX);
    }

    #[test]
    fn the_used_share_is_that_of_the_time_until_complete_by() {
        assert_eq!(used_share(at(10), at(20), at(13)), 0.3);
        assert_eq!(used_share(at(10), at(20), at(9)), 0.0);
        assert_eq!(used_share(at(10), at(20), at(1_000)), USED_MAX);
        assert_eq!(used_share(at(10), at(10), at(11)), USED_MAX);
        // A step of 100 ms is not late because a message takes 20 ms.
        let millis = |millis| Timestamp::from_millisecond(millis).unwrap();
        assert_eq!(used_share(millis(0), millis(100), millis(20)), 0.0);
        assert_eq!(used_share(millis(0), millis(2_000), millis(999)), 0.0);
        assert_eq!(used_share(millis(0), millis(2_000), millis(1_000)), 0.5);
    }
}
