//! The EventBridge rules that route events to Submission. There is one rule on the deployment's bus for each workflow
//! whose newest published version has a trigger.
//!
//! ```text
//! event ──► bus ──► rule steward-order { source, detail-type } ──► submissions queue ──► Submission
//!                                         └─ not delivered ──► the queue's dead-letter queue
//! ```

use aws_sdk_eventbridge::{
    error::ProvideErrorMetadata,
    operation::put_rule::builders::PutRuleFluentBuilder,
    types::{DeadLetterConfig, RuleState, Target},
};
use aws_sdk_sqs::types::QueueAttributeName;
use serde_json::{Value, json};
use steward_core::{definition::workflow::Trigger, model::names::WorkflowName};
use steward_runtime::ports::PortError;

use crate::errors::{corrupt, failed};

/// The prefix of the names of the rules. The policy of the submissions queue allows rules with this prefix to send to it.
pub const PREFIX: &str = "steward-";

/// The id of the only target of a rule.
const TARGET: &str = "submissions";

/// The error code of EventBridge for a rule that does not exist.
const NOT_FOUND: &str = "ResourceNotFoundException";

/// The error code of EventBridge for a bus that has the maximum number of rules.
const LIMIT_EXCEEDED: &str = "LimitExceededException";

/// The trigger rules of one deployment.
#[derive(Debug, Clone)]
pub struct TriggerRules {
    events: aws_sdk_eventbridge::Client,
    sqs: aws_sdk_sqs::Client,
    bus: String,
    submissions: String,
}

impl TriggerRules {
    /// Rules on `bus` that route events to the queue `submissions`, given by name or URL.
    #[must_use]
    pub fn new(
        events: aws_sdk_eventbridge::Client,
        sqs: aws_sdk_sqs::Client,
        bus: String,
        submissions: String,
    ) -> Self {
        Self { events, sqs, bus, submissions }
    }

    /// Creates the rule of a workflow in the state disabled. It routes no events before [`put`](Self::put).
    ///
    /// # Errors
    /// The bus has the maximum number of rules, or AWS failed.
    pub async fn reserve(
        &self,
        workflow: &WorkflowName,
        trigger: &Trigger,
    ) -> Result<(), PortError> {
        let operation = format!("create the rule of workflow {workflow}");
        match self.rule(workflow, trigger).state(RuleState::Disabled).send().await {
            Ok(_) => Ok(()),
            Err(error) if error.code() == Some(LIMIT_EXCEEDED) => {
                let source = format!(
                    "event bus `{}` has the maximum number of rules that the account's quota allows (300 by default): \
                     remove the trigger, or request a higher quota \"rules per event bus\"",
                    self.bus
                );
                Err(PortError { operation, retryable: false, source: source.into() })
            }
            Err(error) => Err(failed(operation)(error)),
        }
    }

    /// Creates and enables the rule of a workflow, or changes it to this trigger. The operation is idempotent.
    ///
    /// # Errors
    /// AWS failed.
    pub async fn put(&self, workflow: &WorkflowName, trigger: &Trigger) -> Result<(), PortError> {
        let (name, operation) =
            (rule(workflow), || format!("create the rule of workflow {workflow}"));
        let (queue, dead_letters) = self.queue().await?;
        let dead_letters = dead_letters.map(|arn| DeadLetterConfig::builder().arn(arn).build());
        let target = Target::builder().id(TARGET).arn(queue).set_dead_letter_config(dead_letters);
        let target = target.build().map_err(|error| corrupt(operation())(error.into()))?;
        // The target is set before the rule is enabled: an enabled rule without a target loses the events that it matches.
        let put = self.events.put_targets().rule(&name).event_bus_name(&self.bus).targets(target);
        let output = match put.clone().send().await {
            Err(error) if error.code() == Some(NOT_FOUND) => {
                self.reserve(workflow, trigger).await?;
                put.send().await
            }
            output => output,
        };
        let output = output.map_err(failed(operation()))?;
        if let Some(entry) = output.failed_entries().first() {
            let code = entry.error_code().unwrap_or("the target was refused").to_owned();
            return Err(PortError { operation: operation(), retryable: true, source: code.into() });
        }
        let enable = self.rule(workflow, trigger).state(RuleState::Enabled);
        enable.send().await.map(drop).map_err(failed(operation()))
    }

    fn rule(&self, workflow: &WorkflowName, trigger: &Trigger) -> PutRuleFluentBuilder {
        let pattern = json!({ "source": [trigger.source], "detail-type": [trigger.detail_type] });
        self.events
            .put_rule()
            .name(rule(workflow))
            .event_bus_name(&self.bus)
            .description(format!("Submits tasks of workflow {workflow}"))
            .event_pattern(pattern.to_string())
    }

    /// Removes the rule of a workflow, if there is one. The operation is idempotent.
    ///
    /// # Errors
    /// AWS failed.
    pub async fn remove(&self, workflow: &WorkflowName) -> Result<(), PortError> {
        let (name, operation) =
            (rule(workflow), || format!("remove the rule of workflow {workflow}"));
        let remove = self.events.remove_targets().rule(&name).event_bus_name(&self.bus).ids(TARGET);
        match remove.send().await {
            Ok(_) => {}
            Err(error) if error.code() == Some(NOT_FOUND) => return Ok(()),
            Err(error) => return Err(failed(operation())(error)),
        }
        let delete = self.events.delete_rule().name(&name).event_bus_name(&self.bus);
        match delete.send().await {
            Ok(_) => Ok(()),
            Err(error) if error.code() == Some(NOT_FOUND) => Ok(()),
            Err(error) => Err(failed(operation())(error)),
        }
    }

    /// The ARNs of the submissions queue and of its dead-letter queue, if it has one.
    async fn queue(&self) -> Result<(String, Option<String>), PortError> {
        let operation = || format!("look up queue {}", self.submissions);
        let mut url = self.submissions.clone();
        if !url.contains("://") {
            let found = self.sqs.get_queue_url().queue_name(url).send().await;
            url = found.map_err(failed(operation()))?.queue_url.unwrap_or_default();
        }
        let request = self
            .sqs
            .get_queue_attributes()
            .queue_url(url)
            .attribute_names(QueueAttributeName::QueueArn)
            .attribute_names(QueueAttributeName::RedrivePolicy);
        let output = request.send().await.map_err(failed(operation()))?;
        let attributes = output.attributes.unwrap_or_default();
        let arn = attributes.get(&QueueAttributeName::QueueArn).cloned();
        let arn = arn.ok_or_else(|| corrupt(operation())("it has no ARN".into()))?;
        let policy = attributes.get(&QueueAttributeName::RedrivePolicy);
        let policy: Option<Value> = policy.and_then(|policy| serde_json::from_str(policy).ok());
        let dead_letters = policy.as_ref().and_then(|policy| policy.get("deadLetterTargetArn"));
        Ok((arn, dead_letters.and_then(Value::as_str).map(str::to_owned)))
    }
}

fn rule(workflow: &WorkflowName) -> String {
    format!("{PREFIX}{workflow}")
}
