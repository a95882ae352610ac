//! The agents that may execute a step: the key `agent`, in one of three forms.
//!
//! ```text
//! agent: payment                                                              one agent
//! agent: [payment, payment-backup]                                            in order: the next only if the one before did not run the step
//! agent: { choose: '${ input.region + "-payment" }', of: [eu-payment, us-payment] }   by an expression
//! ```

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{expression::template::Template, limits, model::names::AgentName};

/// The agents that may execute a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum StepAgents {
    /// Several agents, in the order in which they are tried. The next one gets a request only after the one before has
    /// certainly not run the step.
    InOrder(Vec<AgentName>),
    /// The agent that an expression names.
    Chosen(Box<AgentChoice>),
    /// One agent. The last form: `check` names it if a value has none of the forms.
    One(AgentName),
}

/// An agent that an expression names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentChoice {
    /// The name of the agent, with expressions.
    #[schemars(with = "String")]
    pub choose: Template,
    /// The names that `choose` may result in.
    pub of: Vec<AgentName>,
}

impl StepAgents {
    /// The names of all agents that may execute the step.
    #[must_use]
    pub fn names(&self) -> &[AgentName] {
        match self {
            Self::One(name) => std::slice::from_ref(name),
            Self::InOrder(names) => names,
            Self::Chosen(choice) => &choice.of,
        }
    }

    /// The agent at a position, or the agent of a step that has recorded no position. `None` if it is not chosen yet.
    #[must_use]
    pub fn at(&self, position: Option<u32>) -> Option<&AgentName> {
        match (self, position) {
            (Self::Chosen(_), None) => None,
            // The position is that of an agent of the run, and an agent of its own undoes the step.
            (Self::One(name), _) => Some(name),
            (Self::InOrder(_) | Self::Chosen(_), position) => {
                self.names().get(position.unwrap_or(0) as usize)
            }
        }
    }

    /// The position of the agent with this name.
    #[must_use]
    pub fn position(&self, name: &AgentName) -> Option<u32> {
        let position = self.names().iter().position(|known| known == name)?;
        u32::try_from(position).ok()
    }

    /// The agent at a position for people; all agents if it is not known.
    #[must_use]
    pub fn shown(&self, position: Option<u32>) -> String {
        self.at(position).map_or_else(|| self.to_string(), ToString::to_string)
    }

    /// The position after `position`, if the agents are tried in order and there is another one.
    #[must_use]
    pub fn next(&self, position: Option<u32>) -> Option<u32> {
        let next = position.unwrap_or(0).saturating_add(1);
        (self.falls_back() && (next as usize) < self.names().len()).then_some(next)
    }

    /// Whether another agent is tried if the first certainly did not run the step.
    #[must_use]
    pub fn falls_back(&self) -> bool {
        matches!(self, Self::InOrder(names) if names.len() > 1)
    }

    /// The expression that chooses the agent, if there is one.
    #[must_use]
    pub fn choice(&self) -> Option<&AgentChoice> {
        match self {
            Self::Chosen(choice) => Some(choice),
            Self::One(_) | Self::InOrder(_) => None,
        }
    }

    /// The template that chooses the agent, if there is one.
    pub(super) fn choice_mut(&mut self) -> Option<&mut Template> {
        match self {
            Self::Chosen(choice) => Some(&mut choice.choose),
            Self::One(_) | Self::InOrder(_) => None,
        }
    }

    /// What is wrong with the list of names, with the key inside of `agent`.
    pub(super) fn list_problems(&self) -> Vec<(String, String)> {
        let (key, max) = match self {
            Self::One(_) => return Vec::new(),
            Self::InOrder(_) => ("", limits::AGENTS_IN_ORDER_MAX),
            Self::Chosen(_) => (".of", limits::AGENTS_TO_CHOOSE_MAX),
        };
        let names = self.names();
        let mut problems = Vec::new();
        if names.is_empty() || names.len() > max {
            let message = format!("{} agents; it must be from 1 to {max}", names.len());
            problems.push((key.to_owned(), message));
        }
        let mut seen = BTreeSet::new();
        let repeated = names.iter().enumerate().filter(|(_, name)| !seen.insert(*name));
        problems.extend(
            repeated.map(|(n, name)| (format!("{key}.{n}"), format!("`{name}` is listed twice"))),
        );
        problems
    }
}

impl std::fmt::Display for StepAgents {
    /// `a`, `a, then b`, or `one of a, b`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<_> = self.names().iter().map(AgentName::as_str).collect();
        match self {
            Self::One(_) | Self::InOrder(_) => f.write_str(&names.join(", then ")),
            Self::Chosen(_) => write!(f, "one of {}", names.join(", ")),
        }
    }
}

impl AgentChoice {
    /// The position of the agent with this name.
    ///
    /// # Errors
    /// `name` is not the name of a declared agent.
    pub fn position(&self, name: &Value) -> Result<u32, String> {
        let is_named = |agent: &AgentName| name.as_str() == Some(agent.as_str());
        let position = self.of.iter().position(is_named).and_then(|n| u32::try_from(n).ok());
        position.ok_or_else(|| {
            let names: Vec<_> = self.of.iter().map(AgentName::as_str).collect();
            format!("`agent.choose` does not result in one of {}", names.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn agents(written: &Value) -> StepAgents {
        let agents: StepAgents = serde_json::from_value(written.clone()).unwrap();
        assert_eq!(serde_json::to_value(&agents).unwrap(), *written);
        agents
    }

    #[test]
    fn all_three_forms_are_read_and_written_back() {
        let choice = json!({ "choose": "${ input.region }", "of": ["eu", "us"] });
        for (written, names, shown) in [
            (json!("a"), vec!["a"], "a"),
            (json!(["a", "b"]), vec!["a", "b"], "a, then b"),
            (choice, vec!["eu", "us"], "one of eu, us"),
        ] {
            let agents = agents(&written);
            let found: Vec<_> = agents.names().iter().map(AgentName::as_str).collect();
            assert_eq!((found, agents.to_string()), (names, shown.to_owned()));
        }
        for wrong in [json!(7), json!(["A"]), json!({ "of": ["a"] }), Value::Null] {
            assert!(serde_json::from_value::<StepAgents>(wrong.clone()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_a_list_has_a_next_agent() {
        let in_order = agents(&json!(["a", "b", "c"]));
        assert_eq!(
            [None, Some(0), Some(1), Some(2)].map(|at| in_order.next(at)),
            [Some(1), Some(1), Some(2), None]
        );
        let chosen = agents(&json!({ "choose": "${ input }", "of": ["a", "b"] }));
        assert_eq!((chosen.next(Some(0)), chosen.at(None)), (None, None));
        assert_eq!(agents(&json!("a")).next(None), None);
        assert_eq!(in_order.at(None).unwrap().as_str(), "a");
        assert_eq!(in_order.at(Some(3)), None);
    }
}
