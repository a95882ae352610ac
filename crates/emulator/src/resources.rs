//! Creates the tables, queues and rules of `template.yaml` on the embedded AWS or at external endpoints. A test
//! compares them with the template. Resources that exist already are kept, so a data directory can be reopened.

use std::{collections::HashMap, num::NonZeroU32};

use anyhow::{Context, Result, ensure};
use aws_config::SdkConfig;
use aws_sdk_dynamodb::{
    operation::create_table::builders::CreateTableFluentBuilder,
    types::{
        AttributeDefinition, BillingMode, GlobalSecondaryIndex, KeySchemaElement, KeyType,
        Projection, ProjectionType, ScalarAttributeType, TimeToLiveSpecification,
    },
};
use aws_sdk_eventbridge::types::Target;
use aws_sdk_sqs::types::QueueAttributeName;
use steward_aws::{
    Config,
    bus::EVENT_SOURCE,
    config::{HumanDuration, QueueNames},
    queues::{
        AGENT, COMMANDS, EVENTS, QueueSettings, SCHEDULER, SUBMISSIONS, SWEEPS_RETENTION_SECONDS,
        SWEEPS_VISIBILITY_SECONDS,
    },
};
use steward_core::{model::names::AgentName, submission::ReplyQueues, webhook::Webhooks};

use crate::embedded::{AwsService, EmbeddedAws, EventRule};

/// The table of tasks.
pub const TASKS_TABLE: &str = "steward-tasks";
/// The table of documents.
pub const DOCUMENTS_TABLE: &str = "steward-documents";
/// The table of definitions.
pub const WORKFLOWS_TABLE: &str = "steward-workflows";
/// The bucket of payloads.
pub const PAYLOADS_BUCKET: &str = "steward-payloads";
/// The event bus.
pub const EVENT_BUS: &str = "steward";
/// The queue of submissions.
pub const SUBMISSIONS_QUEUE: &str = "steward-submissions";
/// The scheduler's queue.
pub const SCHEDULER_QUEUE: &str = "steward-scheduler";
/// The queue of operators' commands.
pub const COMMANDS_QUEUE: &str = "steward-commands";
/// The queue of events that steps wait for.
pub const EVENTS_QUEUE: &str = "steward-events";
/// An agent's queue, with `{agent}` for its name.
pub const AGENT_QUEUE: &str = "steward-agent-{agent}";
/// The queue of the supervisor's ticks.
pub const SWEEPS_QUEUE: &str = "steward-sweeps";
/// The queue of rejected submissions.
pub const REJECTED_QUEUE: &str = "steward-rejected";
/// The queue that receives every event of the bus through a rule, so that alerts can be read.
pub const ALERTS_QUEUE: &str = "steward-alerts";
/// The name of that rule on an external event bus.
const ALERTS_RULE: &str = "alerts";
/// The suffix of the name of a dead-letter queue, after the name of its source queue.
pub const DEAD_LETTERS: &str = "-dead-letters";
/// The prefix of the names of clients' reply queues.
pub const CLIENT_QUEUES: &str = "client-";

/// The number of shards of the due index.
pub const SHARDS: NonZeroU32 = NonZeroU32::MIN.saturating_add(3);

/// Creates the tables, the event bus and the queues, also for `agents`; returns the configuration that names them.
///
/// # Errors
/// AWS refuses a request.
pub async fn create(aws: &EmbeddedAws, agents: &[AgentName]) -> Result<Config> {
    let sdk = aws.sdk_config();
    let objects = aws_sdk_s3::config::Builder::from(&sdk).force_path_style(true).build();
    let objects = aws_sdk_s3::Client::from_conf(objects);
    let bucket = objects.create_bucket().bucket(PAYLOADS_BUCKET).send().await;
    bucket.context("create the bucket of payloads")?;
    create_tables(&aws_sdk_dynamodb::Client::new(&sdk)).await?;
    let agent_queues: Vec<_> =
        agents.iter().map(|agent| AGENT_QUEUE.replace("{agent}", agent.as_str())).collect();
    for queue in &agent_queues {
        create_queue(&sdk, queue, Some(AGENT)).await?;
    }
    let submissions_queue_url = create_queue(&sdk, SUBMISSIONS_QUEUE, Some(SUBMISSIONS)).await?;
    let scheduler_queue_url = create_queue(&sdk, SCHEDULER_QUEUE, Some(SCHEDULER)).await?;
    let commands_queue_url = create_queue(&sdk, COMMANDS_QUEUE, Some(COMMANDS)).await?;
    let events_queue_url = create_queue(&sdk, EVENTS_QUEUE, Some(EVENTS)).await?;
    let rejected_queue_url = create_queue(&sdk, REJECTED_QUEUE, None).await?;
    let sweeps_queue_url = create_sweeps_queue(&sdk).await?;
    let alerts = create_queue(&sdk, ALERTS_QUEUE, None).await?;
    if aws.external_url(AwsService::EventBridge).is_some() {
        create_bus(&sdk, &alerts, &[&submissions_queue_url, &events_queue_url]).await?;
    } else {
        aws.add_rule(EventRule {
            bus: EVENT_BUS.to_owned(),
            source: None,
            detail_type: None,
            queue_url: alerts,
        });
    }
    let base = scheduler_queue_url
        .strip_suffix(SCHEDULER_QUEUE)
        .context("a queue's URL ends in its name")?;
    Ok(Config {
        tasks_table: TASKS_TABLE.to_owned(),
        documents_table: DOCUMENTS_TABLE.to_owned(),
        workflows_table: WORKFLOWS_TABLE.to_owned(),
        agent_queue_url: format!("{base}{AGENT_QUEUE}").parse()?,
        dead_letter_queues: QueueNames::default(),
        reply_queues: ReplyQueues::parse(&format!("{base}{CLIENT_QUEUES}*")),
        callback_url: String::new(),
        callback_secret: String::new(),
        webhooks: Webhooks::default(),
        webhook_secret: String::new(),
        event_bus: EVENT_BUS.to_owned(),
        shards: SHARDS,
        retention: "30d".parse::<HumanDuration>()?,
        clock_skew: "0s".parse()?,
        pickup_within: "10s".parse()?,
        submissions_queue_url,
        scheduler_queue_url,
        commands_queue_url,
        events_queue_url,
        // The console on this machine does not authenticate operators.
        console_role_id: String::new(),
        rejected_queue_url,
        sweeps_queue_url,
        payloads_bucket: PAYLOADS_BUCKET.to_owned(),
        payloads_url: String::new(),
    })
}

/// The URLs of the queues that functions consume.
pub(crate) fn handled_queues(config: &Config, agents: &[AgentName]) -> Vec<String> {
    let Config {
        submissions_queue_url,
        scheduler_queue_url,
        commands_queue_url,
        events_queue_url,
        ..
    } = config;
    let own = [submissions_queue_url, scheduler_queue_url, commands_queue_url, events_queue_url];
    let agents = agents.iter().map(|agent| config.agent_queue_url.of(agent));
    own.into_iter().cloned().chain(agents).collect()
}

/// Creates the event bus at an external endpoint, with a rule that sends Steward's own events to the queue of
/// alerts. Policies allow the bus to send to that queue, and to `targets`, the queues for triggers and for awaited events.
async fn create_bus(sdk: &SdkConfig, alerts: &str, targets: &[&str]) -> Result<()> {
    let (events, sqs) = (aws_sdk_eventbridge::Client::new(sdk), aws_sdk_sqs::Client::new(sdk));
    let created = events.create_event_bus().name(EVENT_BUS).send().await;
    if let Err(error) = created
        && !error.as_service_error().is_some_and(|e| e.is_resource_already_exists_exception())
    {
        return Err(error).context("create the event bus");
    }
    for url in targets.iter().copied().chain([alerts]) {
        let policy = serde_json::json!({ "Version": "2012-10-17", "Statement": [{
            "Effect": "Allow", "Principal": { "Service": "events.amazonaws.com" },
            "Action": "sqs:SendMessage", "Resource": queue_arn(&sqs, url).await?,
        }] });
        let set = sqs.set_queue_attributes().queue_url(url);
        let set = set.attributes(QueueAttributeName::Policy, policy.to_string());
        set.send().await.with_context(|| format!("allow the event bus to send to {url}"))?;
    }
    let own = serde_json::json!({ "source": [EVENT_SOURCE] }).to_string();
    let rule = events.put_rule().name(ALERTS_RULE).event_bus_name(EVENT_BUS).event_pattern(own);
    rule.send().await.context("create the rule for alerts")?;
    let target = Target::builder().id("alerts").arn(queue_arn(&sqs, alerts).await?).build()?;
    let put = events.put_targets().rule(ALERTS_RULE).event_bus_name(EVENT_BUS).targets(target);
    let response = put.send().await.context("set the target of the rule for alerts")?;
    ensure!(
        response.failed_entries().is_empty(),
        "the event bus refused the target of the rule for alerts"
    );
    Ok(())
}

async fn queue_arn(sqs: &aws_sdk_sqs::Client, url: &str) -> Result<String> {
    let request = sqs.get_queue_attributes().queue_url(url);
    let request = request.attribute_names(QueueAttributeName::QueueArn);
    let response = request.send().await.with_context(|| format!("look up the queue {url}"))?;
    let attributes = response.attributes.unwrap_or_default();
    let arn = attributes.get(&QueueAttributeName::QueueArn).cloned();
    arn.with_context(|| format!("the queue {url} has no ARN"))
}

/// Creates a queue, and a dead-letter queue if `redelivery` is given; returns the queue's URL.
///
/// # Errors
/// AWS refuses a request.
pub async fn create_queue(
    sdk: &SdkConfig,
    name: &str,
    redelivery: Option<QueueSettings>,
) -> Result<String> {
    let client = aws_sdk_sqs::Client::new(sdk);
    let mut attributes = HashMap::new();
    if let Some(QueueSettings { visibility_seconds, receives_max }) = redelivery {
        let dead = format!("{name}{DEAD_LETTERS}");
        let dead = client.create_queue().queue_name(dead).send().await?;
        let arn = queue_arn(&client, dead.queue_url().unwrap_or_default()).await?;
        let policy =
            serde_json::json!({ "deadLetterTargetArn": arn, "maxReceiveCount": receives_max });
        attributes.insert(QueueAttributeName::RedrivePolicy, policy.to_string());
        attributes.insert(QueueAttributeName::VisibilityTimeout, visibility_seconds.to_string());
    }
    create_queue_with(&client, name, attributes).await
}

/// Creates the queue of the supervisor's ticks.
async fn create_sweeps_queue(sdk: &SdkConfig) -> Result<String> {
    let attributes = HashMap::from([
        (QueueAttributeName::VisibilityTimeout, SWEEPS_VISIBILITY_SECONDS.to_string()),
        (QueueAttributeName::MessageRetentionPeriod, SWEEPS_RETENTION_SECONDS.to_string()),
    ]);
    create_queue_with(&aws_sdk_sqs::Client::new(sdk), SWEEPS_QUEUE, attributes).await
}

async fn create_queue_with(
    client: &aws_sdk_sqs::Client,
    name: &str,
    attributes: HashMap<QueueAttributeName, String>,
) -> Result<String> {
    // Attributes are set in a separate request: a queue from the data directory may have other attributes.
    let response = client.create_queue().queue_name(name).send().await;
    let response = response.with_context(|| format!("create queue {name}"))?;
    let url = response.queue_url.with_context(|| format!("create queue {name}: no URL"))?;
    if !attributes.is_empty() {
        let set = client.set_queue_attributes().queue_url(&url).set_attributes(Some(attributes));
        set.send().await.with_context(|| format!("set the attributes of queue {name}"))?;
    }
    Ok(url)
}

async fn create_tables(client: &aws_sdk_dynamodb::Client) -> Result<()> {
    let existing = client.list_tables().send().await.context("list tables")?;
    let existing = existing.table_names();
    let wanted = [
        (TASKS_TABLE, vec![("task_id", ScalarAttributeType::S)]),
        (
            DOCUMENTS_TABLE,
            vec![("task_id", ScalarAttributeType::S), ("document", ScalarAttributeType::S)],
        ),
        (
            WORKFLOWS_TABLE,
            vec![("name", ScalarAttributeType::S), ("version", ScalarAttributeType::N)],
        ),
    ];
    for (name, key) in wanted {
        if existing.iter().any(|table| table == name) {
            continue;
        }
        let mut request =
            client.create_table().table_name(name).billing_mode(BillingMode::PayPerRequest);
        for (attribute, kind) in &key {
            request = request.attribute_definitions(definition(attribute, kind.clone())?);
        }
        request = request.set_key_schema(Some(key_schema(key.iter().map(|(name, _)| *name))?));
        if name == TASKS_TABLE {
            request = indexed(request)?;
        }
        request.send().await.with_context(|| format!("create table {name}"))?;
        if name != WORKFLOWS_TABLE {
            let expiry =
                TimeToLiveSpecification::builder().attribute_name("expires_at").enabled(true);
            client
                .update_time_to_live()
                .table_name(name)
                .time_to_live_specification(expiry.build()?)
                .send()
                .await
                .with_context(|| format!("enable expiry on table {name}"))?;
        }
    }
    Ok(())
}

/// Adds the indices of the table of tasks: `due` for tasks that are due, `ended` for tasks that have ended.
fn indexed(request: CreateTableFluentBuilder) -> Result<CreateTableFluentBuilder> {
    let keys = Projection::builder().projection_type(ProjectionType::KeysOnly).build();
    let workflow = Projection::builder()
        .projection_type(ProjectionType::Include)
        .non_key_attributes("workflow")
        .build();
    let indices = [
        ("due", ("shard", ScalarAttributeType::N), "due", keys),
        ("ended", ("ended", ScalarAttributeType::S), "ended_at", workflow),
    ];
    indices.into_iter().try_fold(request, |request, (name, (partition, kind), sort, projection)| {
        let index = GlobalSecondaryIndex::builder()
            .index_name(name)
            .set_key_schema(Some(key_schema([partition, sort].into_iter())?))
            .projection(projection);
        Ok(request
            .attribute_definitions(definition(partition, kind)?)
            .attribute_definitions(definition(sort, ScalarAttributeType::N)?)
            .global_secondary_indexes(index.build()?))
    })
}

fn definition(name: &str, kind: ScalarAttributeType) -> Result<AttributeDefinition> {
    Ok(AttributeDefinition::builder().attribute_name(name).attribute_type(kind).build()?)
}

fn key_schema<'a>(names: impl Iterator<Item = &'a str>) -> Result<Vec<KeySchemaElement>> {
    let kinds = [KeyType::Hash, KeyType::Range];
    let elements = names.zip(kinds).map(|(name, kind)| {
        Ok(KeySchemaElement::builder().attribute_name(name).key_type(kind).build()?)
    });
    elements.collect()
}
