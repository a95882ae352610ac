//! The EventBridge rules that route events of others to Steward. A workflow has up to two rules on the deployment's bus:
//! one if its newest published version has a trigger, and one if steps of a published version wait for events.
//!
//! ```text
//!              ┌─► rule steward-order        { source, detail-type } ──► submissions queue ──► Submission
//! event ──► bus
//!              └─► rule steward-order.waits  { sources, detail-types } ─► events queue ──────► Submission
//!                     └─ not delivered ──► the dead-letter queue of the queue
//! ```
//!
//! The rule of waits matches each of its sources with each of its detail-types. Submission ignores an event for which no
//! step waits.

use aws_sdk_eventbridge::{
    error::ProvideErrorMetadata,
    operation::put_rule::builders::PutRuleFluentBuilder,
    types::{DeadLetterConfig, RuleState, Target},
};
use aws_sdk_sqs::types::QueueAttributeName;
use serde_json::{Value, json};
use steward_core::{
    definition::{
        wait::{EventPattern, rule_pattern},
        workflow::Trigger,
    },
    limits,
    model::names::WorkflowName,
};
use steward_runtime::ports::PortError;

use crate::errors::{corrupt, failed};

/// The prefix of the names of the rules. The policies of the two queues allow rules with this prefix to send to them.
pub const PREFIX: &str = "steward-";

/// The suffix of the name of a rule of waits. No workflow name contains a dot.
const WAITS_SUFFIX: &str = ".waits";

/// The error code of EventBridge for a rule that does not exist.
const NOT_FOUND: &str = "ResourceNotFoundException";

/// The error code of EventBridge for a bus that has the maximum number of rules.
const LIMIT_EXCEEDED: &str = "LimitExceededException";

/// The two kinds of rules of a workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleKind {
    /// The rule of its trigger.
    Trigger,
    /// The rule of the events that its steps wait for.
    Waits,
}

/// A rule of a workflow.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkflowRule {
    workflow: WorkflowName,
    kind: RuleKind,
    pattern: Value,
}

impl RuleKind {
    /// The id of the only target of a rule.
    fn target_id(self) -> &'static str {
        match self {
            Self::Trigger => "submissions",
            Self::Waits => "events",
        }
    }
}

impl WorkflowRule {
    /// The rule of a trigger.
    #[must_use]
    pub fn of_trigger(workflow: &WorkflowName, trigger: &Trigger) -> Self {
        let pattern = json!({ "source": [trigger.source], "detail-type": [trigger.detail_type] });
        Self { workflow: workflow.clone(), kind: RuleKind::Trigger, pattern }
    }

    /// The rule of the events that steps wait for; `None` if there are none.
    #[must_use]
    pub fn of_waits<'a>(
        workflow: &WorkflowName,
        events: impl Iterator<Item = EventPattern<'a>>,
    ) -> Option<Self> {
        let (workflow, kind) = (workflow.clone(), RuleKind::Waits);
        Some(Self { workflow, kind, pattern: rule_pattern(events)? })
    }

    /// Why EventBridge would refuse the rule, if it would.
    pub(crate) fn problem(&self) -> Option<String> {
        let (chars, max) =
            (self.pattern.to_string().chars().count(), limits::EVENT_PATTERN_CHARS_MAX);
        (chars > max).then(|| {
            format!(
                "the events that steps wait for need a pattern of {chars} characters; the limit is {max}: use \
                 fewer or shorter sources and detail-types, or unpublish earlier versions"
            )
        })
    }

    fn description(&self) -> String {
        match self.kind {
            RuleKind::Trigger => format!("Submits tasks of workflow {}", self.workflow),
            RuleKind::Waits => format!("Completes steps of workflow {}", self.workflow),
        }
    }
}

/// The rules of one deployment.
#[derive(Debug, Clone)]
pub struct EventRules {
    /// The client of EventBridge.
    pub events: aws_sdk_eventbridge::Client,
    /// The client of SQS.
    pub sqs: aws_sdk_sqs::Client,
    /// The event bus.
    pub bus: String,
    /// The submissions queue, by name or URL: the target of triggers.
    pub submissions: String,
    /// The events queue, by name or URL: the target of waits.
    pub awaited: String,
}

impl EventRules {
    /// Creates the rule of a workflow in the state disabled. It routes no events before [`put`](Self::put).
    ///
    /// # Errors
    /// The bus has the maximum number of rules, or AWS failed.
    pub async fn reserve(&self, rule: &WorkflowRule) -> Result<(), PortError> {
        let operation = create(&rule.workflow);
        match self.request(rule).state(RuleState::Disabled).send().await {
            Ok(_) => Ok(()),
            Err(error) if error.code() == Some(LIMIT_EXCEEDED) => {
                let source = format!(
                    "event bus `{}` has the maximum number of rules that the account's quota allows (300 by default): \
                     remove the trigger or the wait for an event, or request a higher quota \"rules per event bus\"",
                    self.bus
                );
                Err(PortError { operation, retryable: false, source: source.into() })
            }
            Err(error) => Err(failed(operation)(error)),
        }
    }

    /// Creates and enables a rule, or changes it. The operation is idempotent.
    ///
    /// # Errors
    /// AWS failed.
    pub async fn put(&self, rule: &WorkflowRule) -> Result<(), PortError> {
        let (name, operation) = (name(&rule.workflow, rule.kind), || create(&rule.workflow));
        let (queue, dead_letters) = self.queue(rule.kind).await?;
        let dead_letters = dead_letters.map(|arn| DeadLetterConfig::builder().arn(arn).build());
        let target = Target::builder()
            .id(rule.kind.target_id())
            .arn(queue)
            .set_dead_letter_config(dead_letters);
        let target = target.build().map_err(|error| corrupt(operation())(error.into()))?;
        // The target is set before the rule is enabled: an enabled rule without a target loses the events that it matches.
        let put = self.events.put_targets().rule(&name).event_bus_name(&self.bus).targets(target);
        let output = match put.clone().send().await {
            Err(error) if error.code() == Some(NOT_FOUND) => {
                self.reserve(rule).await?;
                put.send().await
            }
            output => output,
        };
        let output = output.map_err(failed(operation()))?;
        if let Some(entry) = output.failed_entries().first() {
            let code = entry.error_code().unwrap_or("the target was refused").to_owned();
            return Err(PortError { operation: operation(), retryable: true, source: code.into() });
        }
        let enable = self.request(rule).state(RuleState::Enabled);
        enable.send().await.map(drop).map_err(failed(operation()))
    }

    fn request(&self, rule: &WorkflowRule) -> PutRuleFluentBuilder {
        self.events
            .put_rule()
            .name(name(&rule.workflow, rule.kind))
            .event_bus_name(&self.bus)
            .description(rule.description())
            .event_pattern(rule.pattern.to_string())
    }

    /// Removes a rule of a workflow, if there is one. The operation is idempotent.
    ///
    /// # Errors
    /// AWS failed.
    pub async fn remove(&self, workflow: &WorkflowName, kind: RuleKind) -> Result<(), PortError> {
        let (name, operation) =
            (name(workflow, kind), || format!("remove the rule of workflow {workflow}"));
        let remove = self.events.remove_targets().rule(&name).event_bus_name(&self.bus);
        match remove.ids(kind.target_id()).send().await {
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

    /// The ARNs of the target queue of a rule, and of its dead-letter queue, if it has one.
    async fn queue(&self, kind: RuleKind) -> Result<(String, Option<String>), PortError> {
        let queue = match kind {
            RuleKind::Trigger => &self.submissions,
            RuleKind::Waits => &self.awaited,
        };
        let operation = || format!("look up queue {queue}");
        let mut url = queue.clone();
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

fn create(workflow: &WorkflowName) -> String {
    format!("create the rule of workflow {workflow}")
}

fn name(workflow: &WorkflowName, kind: RuleKind) -> String {
    match kind {
        RuleKind::Trigger => format!("{PREFIX}{workflow}"),
        RuleKind::Waits => format!("{PREFIX}{workflow}{WAITS_SUFFIX}"),
    }
}
