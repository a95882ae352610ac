//! When each agent replied last, as far as this instance knows. It writes a record at most every five minutes for each
//! agent, and none in its first minute: a short burst of instances writes nothing.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use futures_util::future::join_all;
use jiff::Timestamp;
use steward_core::model::{
    messages::StepReply, names::AgentName, registration::AgentSighting, time::later,
};
use steward_runtime::{
    agents::record_sighting,
    ports::{Ports, error_chain},
};

/// The time between two records of an agent.
const RECORD_EVERY: Duration = Duration::from_secs(300);

/// How old an instance is before it records anything.
const FIRST_AFTER: Duration = Duration::from_secs(60);

/// The largest number of agents that an instance remembers. A reply may name any agent.
const AGENTS_MAX: usize = 1_000;

/// When an instance recorded the last reply of each agent.
#[derive(Debug, Default)]
pub struct AgentSightings(Mutex<Recorded>);

#[derive(Debug, Default)]
struct Recorded {
    /// When the instance handled its first batch.
    started: Option<Timestamp>,
    /// When it last recorded a reply of an agent.
    at: BTreeMap<AgentName, Timestamp>,
}

impl AgentSightings {
    /// The sightings of a batch that are to be recorded now. Of several replies of an agent, the last one counts.
    pub(crate) fn to_record<'a>(
        &self,
        replies: impl Iterator<Item = &'a StepReply>,
        now: Timestamp,
    ) -> BTreeMap<AgentName, AgentSighting> {
        let mut recorded = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let started = *recorded.started.get_or_insert(now);
        let mut seen = BTreeMap::new();
        if now < later(started, FIRST_AFTER) {
            return seen;
        }
        for reply in replies {
            let Some(agent) = &reply.agent else { continue };
            let is_due = match recorded.at.get(agent) {
                Some(at) => now >= later(*at, RECORD_EVERY),
                None => recorded.at.len() < AGENTS_MAX,
            };
            if is_due || seen.contains_key(agent) {
                recorded.at.insert(agent.clone(), now);
                seen.insert(agent.clone(), sighting(reply, now));
            }
        }
        seen
    }
}

fn sighting(reply: &StepReply, now: Timestamp) -> AgentSighting {
    let waited = reply.times.queued_at.zip(reply.times.called_at);
    let waited_ms = waited.and_then(|(queued_at, called_at)| {
        u64::try_from(called_at.duration_since(queued_at).as_millis()).ok()
    });
    AgentSighting { at: now, waited_ms }
}

/// Records sightings. A failure is logged: the next reply after five minutes records another one.
pub(crate) async fn record<P: Ports>(ports: &P, seen: BTreeMap<AgentName, AgentSighting>) {
    let records = seen.into_iter().map(|(agent, sighting)| async move {
        let recorded = record_sighting(ports.store(), &agent, &sighting, RECORD_EVERY).await;
        if let Err(error) = recorded {
            tracing::warn!(%agent, error = error_chain(&error), "last reply of agent not recorded");
        }
    });
    join_all(records).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn reply(agent: Option<&str>, waited_ms: i64) -> StepReply {
        let queued_at = Timestamp::from_second(10).unwrap();
        let called_at = Timestamp::from_millisecond(10_000 + waited_ms).unwrap();
        serde_json::from_value(json!({
            "task_id": "t", "step": "s", "attempt": 1, "incarnation": 7, "agent": agent,
            "outcome": { "status": "completed", "output": null },
            "times": { "queued_at": queued_at, "called_at": called_at },
        }))
        .unwrap()
    }

    /// The agents that a batch at this second records, each with the wait of its request.
    fn recorded(
        sightings: &AgentSightings,
        second: i64,
        replies: &[StepReply],
    ) -> Vec<(String, Option<u64>)> {
        let now = Timestamp::from_second(second).unwrap();
        let seen = sightings.to_record(replies.iter(), now);
        seen.into_iter().map(|(agent, seen)| (agent.to_string(), seen.waited_ms)).collect()
    }

    #[test]
    fn an_agent_is_recorded_every_five_minutes_but_not_in_the_first_minute() {
        let sightings = AgentSightings::default();
        let batch =
            [reply(Some("a"), 5), reply(None, 1), reply(Some("b"), -1), reply(Some("a"), 7)];
        assert_eq!(recorded(&sightings, 100, &batch), []);
        assert_eq!(recorded(&sightings, 159, &batch), []);
        let both = [("a".to_owned(), Some(7)), ("b".to_owned(), None)];
        assert_eq!(recorded(&sightings, 160, &batch), both);
        assert_eq!(recorded(&sightings, 459, &batch), []);
        assert_eq!(recorded(&sightings, 460, &batch[..1]), [("a".to_owned(), Some(5))]);
        assert_eq!(recorded(&sightings, 461, &batch), both[1..]);
    }

    #[test]
    fn false_names_of_agents_do_not_fill_the_memory() {
        let sightings = AgentSightings::default();
        recorded(&sightings, 0, &[]);
        let names = (0..2 * AGENTS_MAX).map(|n| reply(Some(&format!("a{n}")), 0));
        assert_eq!(recorded(&sightings, 60, &names.collect::<Vec<_>>()).len(), AGENTS_MAX);
    }
}
