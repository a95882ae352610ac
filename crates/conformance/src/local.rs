//! AWS in this process for an agent that runs beside it: its queue pair, the tables of Steward for agents that use them, and
//! the service that the kit plays.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context, Result};
use aws_sdk_sqs::types::QueueAttributeName;
use axum::middleware::from_fn_with_state;
use serde_json::Value;
use steward_aws::Config;
use steward_core::model::names::AgentName;
use steward_emulator::{
    embedded::EmbeddedAws,
    resources::{self, DOCUMENTS_TABLE, EVENT_BUS, TASKS_TABLE, WORKFLOWS_TABLE},
};
use tokio::{net::TcpListener, task::JoinSet};

use crate::{
    evidence::{Capabilities, Recorder},
    run::Target,
    service::PlayedService,
    sqs_log::{SqsLog, observe},
};

/// The visibility timeout of the agent's queue. It is longer than the cases in which the service does not respond, so
/// that their requests are not delivered again before complete-by.
const VISIBILITY_SECONDS: u32 = 15;

/// AWS and the service, as the agent sees them. Dropping it stops both.
#[derive(Debug)]
pub struct LocalEnvironment {
    /// The base URL of the AWS-compatible endpoint.
    pub endpoint: String,
    /// The service.
    pub service: PlayedService,
    /// Names and URLs of the resources.
    pub config: Config,
    agent: AgentName,
    aws: EmbeddedAws,
    recorder: Recorder,
    _server: JoinSet<()>,
}

impl LocalEnvironment {
    /// Starts the endpoint and the service on free ports of the loopback interface.
    ///
    /// # Errors
    /// There is no free port, or a resource cannot be created.
    pub async fn start(agent: AgentName, response: Value) -> Result<Self> {
        let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let listener = TcpListener::bind(loopback).await.context("listen on 127.0.0.1")?;
        let address = listener.local_addr()?;
        let builder = EmbeddedAws::builder();
        let aws = builder.public_address(address.ip().to_string(), address.port()).build()?;
        let config = resources::create(&aws, std::slice::from_ref(&agent)).await?;
        let sqs = aws_sdk_sqs::Client::new(&aws.sdk_config());
        let set = sqs.set_queue_attributes().queue_url(config.agent_queue_url.of(&agent));
        let visibility = VISIBILITY_SECONDS.to_string();
        let set = set.attributes(QueueAttributeName::VisibilityTimeout, visibility);
        set.send().await.context("set the visibility timeout")?;
        let recorder = Recorder::default();
        let log = SqsLog::new(recorder.clone());
        let router = aws.router().layer(from_fn_with_state(log, observe));
        let mut server = JoinSet::new();
        server.spawn(async move { axum::serve(listener, router).await.unwrap_or_default() });
        let service = PlayedService::start(loopback, response, recorder.clone()).await?;
        let endpoint = format!("http://{address}");
        Ok(Self { endpoint, service, config, agent, aws, recorder, _server: server })
    }

    /// The environment variables of the agent's process.
    #[must_use]
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        let config = &self.config;
        let text = str::to_owned;
        vec![
            ("QUEUE_URL", config.agent_queue_url.of(&self.agent)),
            ("REPLY_QUEUE_URL", config.scheduler_queue_url.clone()),
            ("SERVICE_URL", self.service.url()),
            ("AGENT_NAME", self.agent.to_string()),
            ("AWS_ENDPOINT_URL", self.endpoint.clone()),
            ("AWS_ACCESS_KEY_ID", text("check")),
            ("AWS_SECRET_ACCESS_KEY", text("check")),
            ("AWS_REGION", text("us-east-1")),
            ("AWS_DEFAULT_REGION", text("us-east-1")),
            ("AWS_EC2_METADATA_DISABLED", text("true")),
            // The configuration of an agent that uses the crate `steward-agent`.
            ("STEWARD_AGENT_NAME", self.agent.to_string()),
            ("STEWARD_AGENT_QUEUE_URL", self.endpoint_of_agents()),
            ("STEWARD_SCHEDULER_QUEUE_URL", config.scheduler_queue_url.clone()),
            ("STEWARD_SUBMISSIONS_QUEUE_URL", config.submissions_queue_url.clone()),
            ("STEWARD_REJECTED_QUEUE_URL", config.rejected_queue_url.clone()),
            ("STEWARD_TASKS_TABLE", text(TASKS_TABLE)),
            ("STEWARD_DOCUMENTS_TABLE", text(DOCUMENTS_TABLE)),
            ("STEWARD_WORKFLOWS_TABLE", text(WORKFLOWS_TABLE)),
            ("STEWARD_EVENT_BUS", text(EVENT_BUS)),
        ]
    }

    /// The URL of the agents' queues, with a placeholder for the name.
    fn endpoint_of_agents(&self) -> String {
        let scheduler = &self.config.scheduler_queue_url;
        scheduler.replace(resources::SCHEDULER_QUEUE, resources::AGENT_QUEUE)
    }

    /// The target of a check.
    #[must_use]
    pub fn target(&self) -> Target {
        Target {
            sqs: aws_sdk_sqs::Client::new(&self.aws.sdk_config()),
            queue_url: self.config.agent_queue_url.of(&self.agent),
            replies_url: self.config.scheduler_queue_url.clone(),
            recorder: self.recorder.clone(),
            capabilities: Capabilities { plays_service: true, sees_sqs: true },
        }
    }
}
