//! `steward agents`: lists the agents of a deployment; forgets the registration of one whose stack no longer exists;
//! prints the contract for agents, and checks agents against it.

use anyhow::{Context, Result};
use clap::{Args, Subcommand, ValueEnum};
use jiff::Timestamp;
use serde_json::{Value, json};
use steward_aws::agents::{AgentQueue, AgentStatus, AgentStatuses, agent_statuses};
use steward_core::{
    breaker::Breaker, contract::ContractDocument, limits::short_line, model::names::AgentName,
};
use steward_operator::agents::{AgentProblem, breaker_state, calls_per_second, problems};
use steward_runtime::agents;

use crate::{
    agent_check::{CheckArgs, check},
    client::DeploymentArgs,
    table::table,
};

/// Options of `steward agents`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct AgentsArgs {
    #[command(subcommand)]
    command: Option<AgentsCommand>,
    #[command(flatten)]
    list: ListArgs,
}

/// Subcommands of `steward agents`.
#[derive(Debug, Subcommand)]
enum AgentsCommand {
    /// Mark the registration of an agent as deleted, if the stack that registered it no longer exists. Then
    /// another stack can register an agent of this name. Changes nothing but the registration.
    Forget {
        /// The agent.
        name: AgentName,
        /// Print JSON.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        deployment: DeploymentArgs,
    },
    /// Print a document of the contract between the scheduler and agents, which agents in any language implement.
    Contract {
        /// The document: AsyncAPI with queues and messages, or the JSON Schema of one message.
        #[arg(long, value_enum, default_value_t = ContractFormat::Asyncapi)]
        format: ContractFormat,
    },
    /// Check which rules of the contract an agent obeys, in any language: plays the scheduler, and the service that the
    /// agent calls. Needs no deployment.
    ///
    /// Exit codes: 0 if all rules hold, 1 if a rule is broken or the check failed, 2 if the options are wrong, 3 if no rule is
    /// broken but some were not checked (0 with --allow-unchecked).
    Check(CheckArgs),
}

/// The documents of the contract.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum ContractFormat {
    /// The AsyncAPI 3.0 document.
    Asyncapi,
    /// The JSON Schema of a request.
    Request,
    /// The JSON Schema of a reply.
    Reply,
}

impl From<ContractFormat> for ContractDocument {
    fn from(format: ContractFormat) -> Self {
        match format {
            ContractFormat::Asyncapi => Self::AsyncApi,
            ContractFormat::Request => Self::Request,
            ContractFormat::Reply => Self::Reply,
        }
    }
}

/// Options of the list.
#[derive(Debug, Args)]
struct ListArgs {
    /// Print one JSON array.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    deployment: DeploymentArgs,
}

/// `steward agents`.
pub(crate) async fn run(args: AgentsArgs) -> Result<()> {
    match args.command {
        None => list(&args.list).await,
        Some(AgentsCommand::Forget { name, json, deployment }) => {
            forget(&name, json, &deployment).await
        }
        Some(AgentsCommand::Contract { format }) => {
            outln!("{:#}", ContractDocument::from(format).generate());
            Ok(())
        }
        Some(AgentsCommand::Check(args)) => check(args).await,
    }
}

#[expect(clippy::print_stderr, reason = "a command's output")]
async fn list(args: &ListArgs) -> Result<()> {
    let ports = args.deployment.ports("agents").await?;
    let AgentStatuses { agents, omitted, are_workflows_omitted } = agent_statuses(&ports).await?;
    let now = Timestamp::now();
    if args.json {
        let agents = agents.iter().map(|agent| agent_json(agent, &args.deployment, now));
        outln!("{:#}", Value::Array(agents.collect()));
    } else if agents.is_empty() {
        outln!("no agent is registered, and no published workflow names one");
    } else {
        let mut rows = table(&HEADER);
        for agent in &agents {
            rows.add_row(row(agent, now));
        }
        outln!("{rows}");
    }
    for agent in &agents {
        for problem in agent_problems(agent, &args.deployment) {
            eprintln!("warning: agent `{}` {problem}", agent.name);
        }
    }
    if omitted > 0 {
        eprintln!("warning: {omitted} further agents are not shown");
    }
    if are_workflows_omitted {
        eprintln!(
            "warning: not all workflows were read; agents that are not registered may be missing"
        );
    }
    Ok(())
}

const HEADER: [&str; 11] = [
    "agent",
    "kind",
    "version",
    "breaker",
    "waiting",
    "in flight",
    "dead letters",
    "calls at once",
    "calls per second",
    "last reply",
    "workflows",
];

fn row(agent: &AgentStatus, now: Timestamp) -> [String; HEADER.len()] {
    let AgentStatus { name, registration, breaker, queue, dead_letters, last_reply, users } = agent;
    let registered = registration.as_ref();
    let none = || "–".to_owned();
    let (waiting, in_flight) = match queue {
        AgentQueue::Exists(depth) => (depth.waiting.to_string(), depth.in_flight.to_string()),
        AgentQueue::Missing => ("no queue".to_owned(), none()),
        AgentQueue::Unknown => (none(), none()),
    };
    let kind = match registered {
        None => "not registered".to_owned(),
        Some(registered) if registered.deleted_at.is_some() => "deleted".to_owned(),
        Some(registered) => registered.kind.to_string(),
    };
    let version = registered.and_then(|registered| registered.version.as_ref());
    let calls = registered.and_then(|registered| registered.calls_at_once);
    let workflows: Vec<_> = users.workflows.iter().map(ToString::to_string).collect();
    [
        name.to_string(),
        kind,
        version.map_or_else(none, ToString::to_string),
        breaker_cell(breaker, now),
        waiting,
        in_flight,
        dead_letters.map_or_else(none, |count| count.to_string()),
        calls.map_or_else(none, |calls| calls.to_string()),
        registered.and_then(calls_per_second).unwrap_or_else(none),
        last_reply.as_ref().map_or_else(none, |reply| reply.at.to_string()),
        workflows.join(", "),
    ]
}

/// The longest reason of a breaker in the table, in characters. The JSON has the whole reason.
const BREAKER_REASON_CHARS_MAX: usize = 60;

/// The state of a breaker, and why it is not closed.
fn breaker_cell(breaker: &Breaker, now: Timestamp) -> String {
    let state = breaker_state(breaker, now);
    match breaker.reason() {
        None => state.to_owned(),
        Some(reason) => format!("{state}: {}", short_line(reason, BREAKER_REASON_CHARS_MAX)),
    }
}

fn agent_json(agent: &AgentStatus, deployment: &DeploymentArgs, now: Timestamp) -> Value {
    let AgentStatus { name, registration, breaker, queue, dead_letters, last_reply, users } = agent;
    let queue = match queue {
        AgentQueue::Exists(depth) => json!({
            "name": depth.name, "waiting": depth.waiting, "in_flight": depth.in_flight, "delayed": depth.delayed,
        }),
        AgentQueue::Missing | AgentQueue::Unknown => Value::Null,
    };
    let registration = registration.as_ref().map(|registered| {
        json!({
            "kind": registered.kind, "queue": registered.queue,
            "dead_letter_queue": registered.dead_letter_queue, "contract": registered.contract,
            "version": registered.version, "stack": registered.owner.stack,
            "calls_at_once": registered.calls_at_once,
            "rate_per_second": registered.rate_per_second, "burst": registered.burst,
            "at": registered.at, "deleted_at": registered.deleted_at,
        })
    });
    let last_reply =
        last_reply.as_ref().map(|reply| json!({ "at": reply.at, "waited_ms": reply.waited_ms }));
    let problems = agent_problems(agent, deployment);
    json!({
        "name": name, "registration": registration,
        "breaker": { "state": breaker_state(breaker, now), "reason": breaker.reason() },
        "queue": queue, "dead_letters": dead_letters, "last_reply": last_reply,
        "workflows": users.workflows,
        "problems": problems.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}

fn agent_problems(agent: &AgentStatus, deployment: &DeploymentArgs) -> Vec<AgentProblem> {
    let queue = deployment.agent_queue_name(&agent.name);
    let missing = (agent.queue == AgentQueue::Missing).then_some(queue.as_str());
    problems(agent.registration.as_ref(), missing, agent.users.contract)
}

async fn forget(name: &AgentName, json: bool, deployment: &DeploymentArgs) -> Result<()> {
    let store = deployment.store().await;
    let registered = agents::registration(&store, name).await?;
    let registered = registered.with_context(|| format!("agent `{name}` is not registered"))?;
    let forgotten = agents::deregister(&store, name, &registered.owner, Timestamp::now()).await?;
    if json {
        let stack = &registered.owner.stack;
        outln!("{:#}", json!({ "agent": name, "forgotten": forgotten, "stack": stack }));
    } else if forgotten {
        outln!("{name}: forgotten; it was registered by {}", registered.owner.stack);
    } else {
        outln!("{name}: its registration was marked as deleted already");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breaker(state: Value) -> Breaker {
        serde_json::from_value(json!({ "state": state })).unwrap()
    }

    #[test]
    fn a_breaker_that_is_not_closed_names_the_reason_and_cuts_it() {
        let cell = |state| breaker_cell(&breaker(state), Timestamp::UNIX_EPOCH);
        assert_eq!(cell(json!({ "is": "closed" })), "closed");
        let expired = "no connection: the certificate has expired";
        let open =
            |reason: &str| json!({ "is": "open", "until": 9, "open_for_ms": 9, "reason": reason });
        assert_eq!(cell(open(expired)), format!("open: {expired}"));
        let cut = cell(open(&"x".repeat(120)));
        assert_eq!(cut, format!("open: {}…", "x".repeat(59)));
        let probing = json!({
            "is": "half_open", "probe": "p", "until": 9, "open_for_ms": 9, "reason": expired,
        });
        assert_eq!(cell(probing), format!("half-open: {expired}"));
    }
}
