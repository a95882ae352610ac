//! What an agent of the host calls.

use std::{fmt, str::FromStr};

use anyhow::{Context, Result, bail};
use steward_agent::{
    config::AgentKind,
    http::{BaseUrl, HttpService, HttpSettings},
    kind::{AnyService, AwsService as AwsAgentService},
    signed::AwsSigner,
};
use steward_core::limits;

use crate::{
    embedded::{ACCOUNT, AwsService, EmbeddedAws, REGION},
    resources,
};

/// The remote service of an agent, as text: `http://…`, `sqs:QUEUE,QUEUE` or `events:BUS`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentTarget {
    /// A service with this base URL.
    Http(BaseUrl),
    /// Queues, by name. The host creates them.
    Queues(Vec<String>),
    /// Event buses, by name.
    Buses(Vec<String>),
}

impl FromStr for AgentTarget {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let names = |names: &str| -> Vec<_> { names.split(',').map(str::to_owned).collect() };
        let target = match text.split_once(':') {
            Some(("sqs", queues)) => Self::Queues(names(queues)),
            Some(("events", buses)) => Self::Buses(names(buses)),
            Some(("lambda", _)) => bail!(
                "`lambda` needs an emulator that runs functions: deploy the stack there (docs/local.md)"
            ),
            Some(_) | None => return Ok(Self::Http(text.parse()?)),
        };
        Ok(target)
    }
}

impl fmt::Display for AgentTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http(base_url) => base_url.fmt(f),
            Self::Queues(names) => write!(f, "sqs:{}", names.join(",")),
            Self::Buses(names) => write!(f, "events:{}", names.join(",")),
        }
    }
}

impl AgentTarget {
    /// The kind of agent that calls this, as in the agent's stack on AWS.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Http(_) => "http",
            Self::Queues(_) => "sqs",
            Self::Buses(_) => "events",
        }
    }

    /// Creates the queues that the agent sends to.
    pub(crate) async fn create_queues(&self, aws: &EmbeddedAws) -> Result<()> {
        if let Self::Queues(names) = self {
            for name in names {
                resources::create_queue(&aws.sdk_config(), name, None).await?;
            }
        }
        Ok(())
    }

    /// The service. `own_url` is the URL at which the host serves AWS, if it listens.
    pub(crate) fn service(&self, aws: &EmbeddedAws, own_url: Option<&str>) -> Result<AnyService> {
        // The credentials of the embedded AWS: a request that is signed with them is of no use elsewhere.
        let signer = aws.sdk_config().credentials_provider().map(AwsSigner::new);
        let (kind, service, prefix, names) = match self {
            Self::Http(base_url) => {
                let settings = HttpSettings { signer, ..HttpSettings::new(base_url.clone()) };
                return Ok(AnyService::Http(HttpService::new(settings)?));
            }
            Self::Queues(names) => (AgentKind::Sqs, AwsService::Sqs, "sqs", names),
            Self::Buses(names) => (AgentKind::Events, AwsService::EventBridge, "events", names),
        };
        let resource = if kind == AgentKind::Events { "event-bus/" } else { "" };
        let arn = |name: &String| format!("arn:aws:{prefix}:{REGION}:{ACCOUNT}:{resource}{name}");
        let arns: Vec<_> = names.iter().map(arn).collect();
        let endpoint = aws.external_url(service).or(own_url);
        let endpoint = endpoint.context("an agent for an AWS service needs a host that listens")?;
        let signer = signer.context("no credentials")?;
        let endpoint = Some(endpoint.parse()?);
        let service = AwsAgentService::new(kind, &arns, limits::CALL_WITHIN_MAX, signer, endpoint)?;
        Ok(AnyService::Aws(service))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_url_or_the_names_of_queues_or_buses() {
        for text in ["http://127.0.0.1:8080", "sqs:orders,mails", "events:steward"] {
            assert_eq!(text.parse::<AgentTarget>().unwrap().to_string(), text);
        }
        let error = |text: &str| text.parse::<AgentTarget>().unwrap_err().to_string();
        assert!(error("lambda:charge").starts_with("`lambda` needs an emulator"));
        assert!(error("orders").starts_with("not an http or https URL"));
    }
}
