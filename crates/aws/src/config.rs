//! The configuration of the functions, from environment variables. A function does not start if a variable is missing or
//! malformed; the error message names the variable.

use std::{num::NonZeroU32, str::FromStr, time::Duration};

use envconfig::Envconfig;
use steward_core::{model::time::Timing, submission::ReplyQueues, webhook::Webhooks};

use crate::sqs::beside;
pub use crate::sqs::{AgentQueueUrl, NoAgentInUrl};

/// The configuration that all functions of a deployment share. `template.yaml` sets it in one place.
#[derive(Debug, Clone, Envconfig)]
pub struct Config {
    /// The table of tasks.
    #[envconfig(from = "STEWARD_TASKS_TABLE")]
    pub tasks_table: String,
    /// The table of documents: submitted inputs, outputs of steps.
    #[envconfig(from = "STEWARD_DOCUMENTS_TABLE")]
    pub documents_table: String,
    /// The table of definitions.
    #[envconfig(from = "STEWARD_WORKFLOWS_TABLE")]
    pub workflows_table: String,
    /// The submissions queue. Child tasks are submitted here too.
    #[envconfig(from = "STEWARD_SUBMISSIONS_QUEUE_URL")]
    pub submissions_queue_url: String,
    /// The scheduler's queue, for wakes, replies and callbacks.
    #[envconfig(from = "STEWARD_SCHEDULER_QUEUE_URL")]
    pub scheduler_queue_url: String,
    /// The queue of operators' commands. The scheduler, the supervisor and the console use it.
    #[envconfig(from = "STEWARD_COMMANDS_QUEUE_URL", default = "")]
    pub commands_queue_url: String,
    /// The queue of events that steps wait for. The submission function, the scheduler, the supervisor and the console use it.
    #[envconfig(from = "STEWARD_EVENTS_QUEUE_URL", default = "")]
    pub events_queue_url: String,
    /// The unique id of the console's role, `AROA…`: in a command that a session of this role sent, the operator's name is
    /// that of the person whom the console authenticated. Only the scheduler uses it.
    #[envconfig(from = "STEWARD_CONSOLE_ROLE_ID", default = "")]
    pub console_role_id: String,
    /// The queue of rejected submissions.
    #[envconfig(from = "STEWARD_REJECTED_QUEUE_URL")]
    pub rejected_queue_url: String,
    /// The URL of the agents' queues, with the placeholder `{agent}` for the name of the agent.
    #[envconfig(from = "STEWARD_AGENT_QUEUE_URL")]
    pub agent_queue_url: AgentQueueUrl,
    /// The queue of the supervisor's ticks. Only the supervisor uses it.
    #[envconfig(from = "STEWARD_SWEEPS_QUEUE_URL", default = "")]
    pub sweeps_queue_url: String,
    /// Dead-letter queues that the supervisor watches beside its own and those of registered agents, by name or URL,
    /// separated by commas: those of agents whose stacks do not register them yet.
    #[envconfig(from = "STEWARD_DEAD_LETTER_QUEUES", default = "")]
    pub dead_letter_queues: QueueNames,
    /// The queues that clients may choose for notifications: URLs, separated by commas. Each is exact, or a prefix that ends
    /// in `*`. If it is empty, no queue is allowed.
    #[envconfig(from = "STEWARD_REPLY_QUEUES", default = "")]
    pub reply_queues: ReplyQueues,
    /// The address of the callback endpoint, such as `https://ID.lambda-url.eu-west-1.on.aws`, for `callback.url`. Only the
    /// scheduler uses it.
    #[envconfig(from = "STEWARD_CALLBACK_URL", default = "")]
    pub callback_url: String,
    /// The ARN of the secret with the keys that sign callback URLs. Empty if there is no callback endpoint.
    #[envconfig(from = "STEWARD_CALLBACK_SECRET_ARN", default = "")]
    pub callback_secret: String,
    /// The webhooks of other services that the callback endpoint accepts: a JSON object by name. Only the callback function uses
    /// it.
    #[envconfig(from = "STEWARD_WEBHOOKS", default = "")]
    pub webhooks: Webhooks,
    /// The ARN of the secret with the secrets of these webhooks. Empty if there are none.
    #[envconfig(from = "STEWARD_WEBHOOK_SECRET_ARN", default = "")]
    pub webhook_secret: String,
    /// The bucket of payloads. Empty if the deployment, or this function, has none.
    #[envconfig(from = "STEWARD_PAYLOADS_BUCKET", default = "")]
    pub payloads_bucket: String,
    /// The endpoint in the URLs of uploads, for an S3 that clients reach at another address than the functions. Empty for AWS.
    #[envconfig(from = "STEWARD_PAYLOADS_URL", default = "")]
    pub payloads_url: String,
    /// The event bus for alerts and lifecycle events.
    #[envconfig(from = "STEWARD_EVENT_BUS")]
    pub event_bus: String,
    /// The number of shards of the due index. It may be raised at any time. If it is lowered, the supervisor does not find
    /// the tasks of the removed shards.
    #[envconfig(from = "STEWARD_SHARDS", default = "8")]
    pub shards: NonZeroU32,
    /// The retention time of a task and its documents, for example `30d`.
    #[envconfig(from = "STEWARD_RETENTION", default = "30d")]
    pub retention: HumanDuration,
    /// The maximum difference between the clocks of the functions, for example `2s`.
    #[envconfig(from = "STEWARD_CLOCK_SKEW", default = "2s")]
    pub clock_skew: HumanDuration,
    /// The time after which the supervisor sends a wake again, for example `60s`.
    #[envconfig(from = "STEWARD_PICKUP_WITHIN", default = "60s")]
    pub pickup_within: HumanDuration,
}

impl Config {
    /// The time settings of the deployment.
    #[must_use]
    pub fn timing(&self) -> Timing {
        Timing {
            pickup_within: self.pickup_within.0,
            clock_skew: self.clock_skew.0,
            retention: self.retention.0,
        }
    }

    /// Replaces the time settings of the deployment.
    pub fn set_timing(&mut self, timing: Timing) {
        let Timing { pickup_within, clock_skew, retention } = timing;
        self.pickup_within = HumanDuration(pickup_within);
        self.clock_skew = HumanDuration(clock_skew);
        self.retention = HumanDuration(retention);
    }
}

/// A duration in human-readable form: `90s`, `15m`, `30d`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HumanDuration(pub Duration);

impl FromStr for HumanDuration {
    type Err = humantime::DurationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        humantime::parse_duration(text).map(Self)
    }
}

/// Names or URLs of queues, separated by commas.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueueNames(pub Vec<String>);

impl QueueNames {
    /// The URLs of the queues. A queue that is given by name is in the same account and region as the queue with the URL
    /// `other`.
    pub(crate) fn urls(&self, other: &str) -> Vec<String> {
        self.0.iter().map(|name| beside(other, name)).collect()
    }
}

impl FromStr for QueueNames {
    type Err = std::convert::Infallible;

    fn from_str(list: &str) -> Result<Self, Self::Err> {
        let names = list.split(',').map(str::trim).filter(|name| !name.is_empty());
        Ok(Self(names.map(str::to_owned).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn complete() -> HashMap<String, String> {
        [
            ("STEWARD_TASKS_TABLE", "tasks"),
            ("STEWARD_DOCUMENTS_TABLE", "documents"),
            ("STEWARD_WORKFLOWS_TABLE", "workflows"),
            ("STEWARD_SUBMISSIONS_QUEUE_URL", "https://q/submissions"),
            ("STEWARD_SCHEDULER_QUEUE_URL", "https://q/scheduler"),
            ("STEWARD_REJECTED_QUEUE_URL", "https://q/rejected"),
            ("STEWARD_AGENT_QUEUE_URL", "https://q/agent-{agent}"),
            ("STEWARD_EVENT_BUS", "bus"),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
    }

    #[test]
    fn optional_variables_have_defaults() {
        let config = Config::init_from_hashmap(&complete()).unwrap();
        assert_eq!(config.shards.get(), 8);
        assert_eq!(config.retention.0, Duration::from_secs(30 * 24 * 3600));
        assert_eq!(
            config.agent_queue_url.of(&"payment".parse().unwrap()),
            "https://q/agent-payment"
        );
    }

    #[test]
    fn a_queue_is_given_by_name_or_url() {
        let names: QueueNames = "dead-letters, https://other/dead-letters,".parse().unwrap();
        let urls = names.urls("https://q/scheduler");
        assert_eq!(urls, ["https://q/dead-letters", "https://other/dead-letters"]);
    }

    #[test]
    fn a_missing_or_malformed_variable_is_named() {
        for name in complete().keys() {
            let mut variables = complete();
            variables.remove(name);
            let error = Config::init_from_hashmap(&variables).unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
        }
        for (name, value) in
            [("STEWARD_SHARDS", "0"), ("STEWARD_RETENTION", "x"), ("STEWARD_AGENT_QUEUE_URL", "u")]
        {
            let mut variables = complete();
            variables.insert(name.to_owned(), value.to_owned());
            let error = Config::init_from_hashmap(&variables).unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
        }
    }
}
