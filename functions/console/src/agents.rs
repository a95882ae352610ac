//! The agents: registration, circuit breaker, queue, last reply, and the workflows that name them. The page does not refresh
//! itself, because it reads all definitions and counts the messages of two queues for each agent.

use askama::Template;
use axum::{Extension, extract::State, response::Response};
use steward_aws::agents::{AgentQueue, AgentStatus, AgentStatuses, WORKFLOWS_MAX, agent_statuses};
use steward_operator::agents::{breaker_state, problems};
use steward_runtime::ports::Ports;

use crate::{
    caller::ConsoleCaller,
    console::Console,
    page::{Failure, Frame, render},
};

/// The largest number of workflows that are named in a row.
pub(crate) const WORKFLOWS_SHOWN_MAX: usize = 10;

#[derive(Template)]
#[template(path = "agents.html")]
struct AgentsPage {
    frame: Frame,
    rows: Vec<AgentRow>,
    /// How many agents are not shown.
    omitted: usize,
    /// The number of workflows whose definitions were read, if there are more.
    workflows_read: Option<usize>,
    dashboard: Option<String>,
}

/// An agent, as the page shows it.
struct AgentRow {
    agent: AgentStatus,
    breaker: &'static str,
    problems: Vec<String>,
}

impl AgentRow {
    /// The depth of the queue: messages that wait, and messages in flight.
    fn depth(&self) -> Option<(u64, u64)> {
        match &self.agent.queue {
            AgentQueue::Exists(depth) => Some((depth.waiting, depth.in_flight)),
            AgentQueue::Missing | AgentQueue::Unknown => None,
        }
    }

    /// How many workflows are not named.
    fn more_workflows(&self) -> usize {
        self.agent.users.workflows.len().saturating_sub(WORKFLOWS_SHOWN_MAX)
    }
}

pub(crate) async fn list(
    State(console): State<Console>,
    Extension(caller): Extension<ConsoleCaller>,
) -> Result<Response, Failure> {
    let frame = Frame::new("Agents", "agents", &caller);
    let statuses = Box::pin(agent_statuses(&console.ports)).await?;
    let AgentStatuses { agents, omitted, are_workflows_omitted } = statuses;
    let row = |agent: AgentStatus| {
        let queue = console.ports.channel().agent_queue_name(&agent.name);
        let missing = (agent.queue == AgentQueue::Missing).then_some(queue.as_str());
        let problems = problems(agent.registration.as_ref(), missing, agent.users.contract);
        let problems = problems.iter().map(ToString::to_string).collect();
        AgentRow { breaker: breaker_state(&agent.breaker, frame.now), problems, agent }
    };
    let rows = agents.into_iter().map(row).collect();
    let dashboard = console.links.dashboard.clone();
    let workflows_read = are_workflows_omitted.then_some(WORKFLOWS_MAX);
    Ok(render(&AgentsPage { rows, omitted, workflows_read, dashboard, frame }))
}
