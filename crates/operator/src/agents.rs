//! What is wrong with an agent: it has no queue, or is not registered.

use std::{collections::BTreeSet, fmt};

use jiff::Timestamp;
use steward_core::{
    breaker::{Breaker, BreakerState},
    definition::{
        step::{ActionDefinition, StepWork},
        workflow::Workflow,
    },
    model::{
        attempt::Action,
        names::{AgentKind, AgentName, StackId},
        registration::AgentRegistration,
    },
};

/// Something that is wrong with an agent. As text, it continues a sentence that begins with the agent's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentProblem {
    /// It has no queue.
    NoQueue {
        /// The name that the queue would have.
        queue: String,
    },
    /// It is not registered.
    NotRegistered,
    /// It does not understand all messages that its steps need.
    OldContract {
        /// The newest version of the messages that it understands.
        understands: u32,
        /// The version that its steps need.
        needs: u32,
    },
    /// It is of another kind than its steps need.
    OtherKind {
        /// The kind.
        kind: AgentKind,
        /// What its steps need.
        need: KindNeed,
    },
    /// Its stack was deleted.
    Deleted {
        /// When.
        at: Timestamp,
        /// The stack.
        stack: StackId,
    },
}

/// What a step needs of the kind of its agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum KindNeed {
    /// It has `aws`.
    Actions,
    /// It judges responses with a status of success: by `until`, or by `responses`.
    Judgement,
}

impl KindNeed {
    /// The built-in kinds that lack it.
    fn missing_in(self) -> &'static [&'static str] {
        match self {
            Self::Actions => &["http", "lambda", "sqs", "events"],
            Self::Judgement => &["lambda", "sqs", "events"],
        }
    }

    /// What an action needs, if this agent runs it.
    fn of(action: &ActionDefinition<'_>, agent: &AgentName) -> Vec<Self> {
        let StepWork::Call { agents, request, .. } = &action.work else { return Vec::new() };
        if !agents.names().contains(agent) {
            return Vec::new();
        }
        let judges = action.responses.iter().any(|(status, _)| (200..300).contains(&status));
        let needs = [(Self::Actions, request.aws.is_some()), (Self::Judgement, judges)];
        needs.into_iter().filter(|(_, is_needed)| *is_needed).map(|(need, _)| need).collect()
    }
}

impl fmt::Display for AgentProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoQueue { queue } => {
                write!(f, "has no queue `{queue}`; its steps fail until the agent is deployed")
            }
            Self::NotRegistered => {
                f.write_str("is not registered; its dead letters cause no alert")
            }
            Self::OldContract { understands, needs } => {
                write!(
                    f,
                    "understands version {understands} of the messages, and its steps need version {needs}; deploy it again"
                )
            }
            Self::OtherKind { kind, need: KindNeed::Actions } => {
                write!(
                    f,
                    "is of kind `{kind}`, and its steps have `aws`: they need an agent of kind `aws`"
                )
            }
            Self::OtherKind { kind, need: KindNeed::Judgement } => {
                write!(
                    f,
                    "is of kind `{kind}`, which judges no successful call by its response (`until`, `responses`): they need an agent of kind `http` or `aws`"
                )
            }
            Self::Deleted { at, stack } => {
                write!(f, "was deleted at {} with the stack {stack}", truncated(*at))
            }
        }
    }
}

/// Whole seconds.
fn truncated(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

/// What is wrong with an agent with this registration. `missing_queue` is the name of its queue, if the queue does not
/// exist. `needs` is the version of the messages that its steps need.
#[must_use]
pub fn problems(
    registration: Option<&AgentRegistration>,
    missing_queue: Option<&str>,
    needs: u32,
) -> Vec<AgentProblem> {
    let mut problems = Vec::new();
    if let Some(queue) = missing_queue {
        problems.push(AgentProblem::NoQueue { queue: queue.to_owned() });
    }
    match registration {
        Some(AgentRegistration { deleted_at: Some(at), owner, .. }) => {
            problems.push(AgentProblem::Deleted { at: *at, stack: owner.stack.clone() });
        }
        Some(AgentRegistration { contract, .. }) if *contract < needs => {
            problems.push(AgentProblem::OldContract { understands: *contract, needs });
        }
        Some(_) => {}
        // An agent without a queue is not deployed yet. Its stack registers it.
        None if missing_queue.is_some() => {}
        None => problems.push(AgentProblem::NotRegistered),
    }
    problems
}

/// What the steps of a workflow need that an agent of this kind lacks. Agents of one's own may have everything.
#[must_use]
pub fn kind_problems(
    registration: &AgentRegistration,
    agent: &AgentName,
    workflow: &Workflow,
) -> Vec<AgentProblem> {
    let kind = &registration.kind;
    let lacks = |need: &KindNeed| need.missing_in().contains(&kind.as_str());
    let needs: BTreeSet<_> = workflow
        .steps
        .values()
        .flat_map(|step| [Action::Do, Action::Undo].map(|action| step.action(action)))
        .flatten()
        .flat_map(|action| KindNeed::of(&action, agent))
        .filter(lacks)
        .collect();
    let problem = |need| AgentProblem::OtherKind { kind: kind.clone(), need };
    needs.into_iter().map(problem).collect()
}

/// The state of a circuit breaker.
#[must_use]
pub fn breaker_state(breaker: &Breaker, now: Timestamp) -> &'static str {
    match breaker.state {
        BreakerState::Closed => "closed",
        BreakerState::Open { .. } | BreakerState::HalfOpen { .. } => {
            if breaker.is_certainly_open(now) { "open" } else { "half-open" }
        }
    }
}

/// The rate limit that an agent registered, such as `5 (10 at once)`.
#[must_use]
pub fn calls_per_second(registration: &AgentRegistration) -> Option<String> {
    let rate = registration.rate_per_second?;
    let burst = registration.burst.map(|burst| format!(" ({burst} at once)"));
    Some(format!("{rate}{}", burst.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn registration(deleted_at: Option<i64>) -> AgentRegistration {
        let mut body = json!({
            "kind": "http", "queue": "q", "dead_letter_queue": "d", "contract": 1, "stack": "arn:s",
            "at": 0,
        });
        if let Some(at) = deleted_at {
            body["deleted_at"] = json!(at);
        }
        serde_json::from_value(body).unwrap()
    }

    #[test]
    fn a_rate_limit_shows_its_burst() {
        let mut registration = registration(None);
        assert_eq!(calls_per_second(&registration), None);
        registration.rate_per_second = Some(2.5.try_into().unwrap());
        assert_eq!(calls_per_second(&registration).unwrap(), "2.5");
        registration.burst = std::num::NonZeroU32::new(10);
        assert_eq!(calls_per_second(&registration).unwrap(), "2.5 (10 at once)");
    }

    #[test]
    fn a_problem_says_what_follows_from_it() {
        let texts = |registration: Option<&AgentRegistration>, queue| {
            let problems = problems(registration, queue, 1);
            problems.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let none: [&str; 0] = [];
        assert_eq!(texts(Some(&registration(None)), None), none);
        let no_queue = "has no queue `q`; its steps fail until the agent is deployed";
        assert_eq!(texts(None, Some("q")), [no_queue]);
        assert_eq!(texts(None, None), ["is not registered; its dead letters cause no alert"]);
        let deleted = "was deleted at 1970-01-01T00:00:01Z with the stack arn:s";
        assert_eq!(texts(Some(&registration(Some(1_500))), Some("q")), [no_queue, deleted]);
        let old = problems(Some(&registration(None)), None, 2);
        let too_old =
            "understands version 1 of the messages, and its steps need version 2; deploy it again";
        assert_eq!(old.iter().map(ToString::to_string).collect::<Vec<_>>(), [too_old]);
    }

    #[test]
    fn a_kind_that_lacks_what_a_step_needs_is_a_problem() {
        let step = |agent: &str, more: Value| {
            let mut step =
                json!({ "agent": agent, "request": { "path": "/x" }, "read_only": true });
            step.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            step
        };
        let until = json!({
            "until": { "condition": "${ response.body.done }", "every": "1m" },
            "recovery": { "give_up_after": "1h" },
        });
        let aws = json!({ "request": { "aws": "dynamodb:GetItem", "body": {} } });
        let workflow = json!({
            "name": "w", "version": 1, "complete_within": "2h",
            "steps": { "poll": step("a", until), "get": step("b", aws), "plain": step("c", json!({})) },
        });
        let workflow = serde_json::from_value::<Workflow>(workflow).unwrap();
        let problems = |kind: &str, agent: &str| {
            let mut registration = registration(None);
            registration.kind = kind.parse().unwrap();
            let problems = kind_problems(&registration, &agent.parse().unwrap(), &workflow);
            problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
        };
        assert!(problems("lambda", "a").starts_with("is of kind `lambda`, which judges no"));
        assert!(problems("http", "b").starts_with("is of kind `http`, and its steps have `aws`"));
        for (kind, agent) in [("http", "a"), ("aws", "a"), ("aws", "b"), ("own", "b"), ("sqs", "c")]
        {
            assert_eq!(problems(kind, agent), "", "{kind} {agent}");
        }
    }
}
