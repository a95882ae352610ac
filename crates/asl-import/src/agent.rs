//! The agents that an imported definition needs.

use std::collections::BTreeSet;

use serde::{Serialize, Serializer, ser::SerializeStruct};

use crate::resource::AgentKind;

/// An agent that has to be deployed before the definition runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agent {
    /// Its name in the definition.
    pub name: String,
    kinds: BTreeSet<AgentKind>,
}

impl Agent {
    pub(crate) fn new(name: String, kind: AgentKind) -> Self {
        Self { name, kinds: BTreeSet::from([kind]) }
    }

    /// Whether the agent can also make calls of this kind.
    pub(crate) fn accepts(&self, kind: &AgentKind) -> bool {
        let is_aws = |kind: &AgentKind| matches!(kind, AgentKind::Aws(_));
        self.kinds.contains(kind) || is_aws(kind) && self.kinds.iter().all(is_aws)
    }

    /// Adds a target.
    pub(crate) fn add(&mut self, kind: AgentKind) {
        self.kinds.insert(kind);
    }

    /// The parameter `Kind` of `infra/agent.yaml`; `own` for an agent of the user's own.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self.kinds.first() {
            Some(AgentKind::Lambda(_)) => "lambda",
            Some(AgentKind::Sqs(_)) => "sqs",
            Some(AgentKind::Events(_)) => "events",
            Some(AgentKind::Http(..)) => "http",
            Some(AgentKind::Aws(_)) => "aws",
            Some(AgentKind::Own(_)) | None => "own",
        }
    }

    /// What it calls, for people: targets, actions, or the base URL with headers.
    #[must_use]
    pub fn targets(&self) -> String {
        let text = |kind: &AgentKind| match kind {
            AgentKind::Lambda(target)
            | AgentKind::Sqs(target)
            | AgentKind::Events(target)
            | AgentKind::Aws(target)
            | AgentKind::Own(target) => target.clone(),
            AgentKind::Http(url, details) if details.is_empty() => url.clone(),
            AgentKind::Http(url, details) => format!("{url}, {details}"),
        };
        let targets: Vec<_> = self.kinds.iter().map(text).collect();
        crate::source::printable(&crate::deployment::as_written(&targets.join(", ")))
    }
}

impl Serialize for Agent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut agent = serializer.serialize_struct("Agent", 3)?;
        agent.serialize_field("name", &self.name)?;
        agent.serialize_field("kind", self.kind())?;
        agent.serialize_field("targets", &self.targets())?;
        agent.end()
    }
}
