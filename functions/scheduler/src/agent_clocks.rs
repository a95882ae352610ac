//! Agents whose clock is wrong, by the times in their replies.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use steward_aws::batch::ReceivedMessage;
use steward_core::model::{
    clock_error::ClockError,
    messages::{SchedulerMessage, StepReply},
    names::AgentName,
    time::Timing,
};
use steward_runtime::{agent_clock, ports::Ports};

/// The agents of a batch whose clock is wrong.
pub(crate) type WrongClocks = BTreeMap<AgentName, ClockError>;

/// Finds the replies of agents whose clock is wrong, and judges them as those of calls that may have run.
pub(crate) fn doubt_wrong<'a, E: 'a>(
    received: impl Iterator<Item = &'a mut (Result<SchedulerMessage, E>, ReceivedMessage)>,
    timing: Timing,
) -> WrongClocks {
    let wrong = received.filter_map(|(content, message)| {
        let Ok(SchedulerMessage::Reply(reply)) = content else { return None };
        let StepReply { agent, times, .. } = &*reply;
        let (agent, times) = (agent.clone(), *times);
        let wrong = ClockError::of_sender(times, message.sent_at, timing)?;
        reply.doubt();
        Some((agent?, wrong))
    });
    wrong.collect()
}

/// Alerts each of the agents.
pub(crate) async fn alert<P: Ports>(ports: &P, wrong: WrongClocks) {
    let alerts = wrong
        .into_iter()
        .map(|(agent, wrong)| async move { agent_clock::alert(ports, &agent, wrong).await });
    join_all(alerts).await;
}
