//! The tables, queues and rules of `template.yaml`, made on the embedded AWS, or where its services are instead; a
//! test compares the two. Making what exists already is harmless, so a data directory can be opened again.

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
    bus::SOURCE,
    config::{HumanDuration, QueueNames},
    queues::{AGENT, QueueSettings, SCHEDULER, SUBMISSIONS},
};
use steward_core::{model::names::AgentName, submission::ReplyQueues};

use crate::embedded::{EmbeddedAws, EventRule, Service};

/// The table of tasks.
pub const TASKS_TABLE: &str = "steward-tasks";
/// The table of documents.
pub const DOCUMENTS_TABLE: &str = "steward-documents";
/// The table of definitions.
pub const WORKFLOWS_TABLE: &str = "steward-workflows";
/// The event bus.
pub const EVENT_BUS: &str = "steward";
/// The queue of submissions.
pub const SUBMISSIONS_QUEUE: &str = "steward-submissions";
/// The scheduler's queue.
pub const SCHEDULER_QUEUE: &str = "steward-scheduler";
/// An agent's queue, with `{agent}` for its name.
pub const AGENT_QUEUE: &str = "steward-agent-{agent}";
/// Where refused submissions are kept.
pub const REJECTED_QUEUE: &str = "steward-rejected";
/// Where a rule puts every event of the bus, so that alerts can be looked at.
pub const ALERTS_QUEUE: &str = "steward-alerts";
/// The rule that does, on a bus that is not in this process.
const ALERTS_RULE: &str = "alerts";
/// What the name of a queue of dead letters ends with, after its source's name.
pub const DEAD_LETTERS: &str = "-dead-letters";
/// What the names of clients' own queues start with.
pub const CLIENT_QUEUES: &str = "client-";

/// Shards of the due index.
pub const SHARDS: NonZeroU32 = NonZeroU32::MIN.saturating_add(3);

/// Makes the tables, and the queues for `agents`; returns the configuration that names them.
///
/// # Errors
/// What AWS refuses.
pub async fn create(aws: &EmbeddedAws, agents: &[AgentName]) -> Result<Config> {
    let sdk = aws.sdk_config();
    create_tables(&aws_sdk_dynamodb::Client::new(&sdk)).await?;
    let agent_queues: Vec<_> =
        agents.iter().map(|agent| AGENT_QUEUE.replace("{agent}", agent.as_str())).collect();
    for queue in &agent_queues {
        create_queue(&sdk, queue, Some(AGENT)).await?;
    }
    let submissions_queue_url = create_queue(&sdk, SUBMISSIONS_QUEUE, Some(SUBMISSIONS)).await?;
    let scheduler_queue_url = create_queue(&sdk, SCHEDULER_QUEUE, Some(SCHEDULER)).await?;
    let rejected_queue_url = create_queue(&sdk, REJECTED_QUEUE, None).await?;
    let alerts = create_queue(&sdk, ALERTS_QUEUE, None).await?;
    if aws.external_url(Service::EventBridge).is_some() {
        create_bus(&sdk, &alerts, &submissions_queue_url).await?;
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
    let watched = agent_queues.iter().map(String::as_str);
    let dead_letters = watched
        .chain([SUBMISSIONS_QUEUE, SCHEDULER_QUEUE])
        .map(|queue| format!("{queue}{DEAD_LETTERS}"))
        .collect();
    Ok(Config {
        tasks_table: TASKS_TABLE.to_owned(),
        documents_table: DOCUMENTS_TABLE.to_owned(),
        workflows_table: WORKFLOWS_TABLE.to_owned(),
        agent_queue_url: format!("{base}{AGENT_QUEUE}").parse()?,
        dead_letter_queues: QueueNames(dead_letters),
        reply_queues: ReplyQueues::parse(&format!("{base}{CLIENT_QUEUES}*")),
        event_bus: EVENT_BUS.to_owned(),
        shards: SHARDS,
        retention: "30d".parse::<HumanDuration>()?,
        clock_skew: "0s".parse()?,
        pickup_within: "10s".parse()?,
        submissions_queue_url,
        scheduler_queue_url,
        rejected_queue_url,
    })
}

/// The URLs of the queues that functions read.
pub(crate) fn handled_queues(config: &Config, agents: &[AgentName]) -> Vec<String> {
    let own = [&config.submissions_queue_url, &config.scheduler_queue_url];
    let agents = agents.iter().map(|agent| config.agent_queue_url.of(agent));
    own.into_iter().cloned().chain(agents).collect()
}

/// Makes a bus that is not in this process, with a rule that puts Steward's own events in the queue of alerts. The bus may
/// send to that queue and to submissions, for triggers.
async fn create_bus(sdk: &SdkConfig, alerts: &str, submissions: &str) -> Result<()> {
    let (events, sqs) = (aws_sdk_eventbridge::Client::new(sdk), aws_sdk_sqs::Client::new(sdk));
    let made = events.create_event_bus().name(EVENT_BUS).send().await;
    if let Err(error) = made
        && !error.as_service_error().is_some_and(|e| e.is_resource_already_exists_exception())
    {
        return Err(error).context("create the event bus");
    }
    for url in [alerts, submissions] {
        let policy = serde_json::json!({ "Version": "2012-10-17", "Statement": [{
            "Effect": "Allow", "Principal": { "Service": "events.amazonaws.com" },
            "Action": "sqs:SendMessage", "Resource": queue_arn(&sqs, url).await?,
        }] });
        let set = sqs.set_queue_attributes().queue_url(url);
        let set = set.attributes(QueueAttributeName::Policy, policy.to_string());
        set.send().await.with_context(|| format!("allow the event bus to send to {url}"))?;
    }
    let own = serde_json::json!({ "source": [SOURCE] }).to_string();
    let rule = events.put_rule().name(ALERTS_RULE).event_bus_name(EVENT_BUS).event_pattern(own);
    rule.send().await.context("make the rule of alerts")?;
    let target = Target::builder().id("alerts").arn(queue_arn(&sqs, alerts).await?).build()?;
    let put = events.put_targets().rule(ALERTS_RULE).event_bus_name(EVENT_BUS).targets(target);
    let answer = put.send().await.context("make the target of the rule of alerts")?;
    ensure!(answer.failed_entries().is_empty(), "the target of the rule of alerts was refused");
    Ok(())
}

async fn queue_arn(sqs: &aws_sdk_sqs::Client, url: &str) -> Result<String> {
    let request = sqs.get_queue_attributes().queue_url(url);
    let request = request.attribute_names(QueueAttributeName::QueueArn);
    let answer = request.send().await.with_context(|| format!("look up the queue {url}"))?;
    let attributes = answer.attributes.unwrap_or_default();
    let arn = attributes.get(&QueueAttributeName::QueueArn).cloned();
    arn.with_context(|| format!("the queue {url} has no ARN"))
}

/// Makes a queue, with dead letters if it is said when a message is one; returns its URL.
///
/// # Errors
/// What AWS refuses.
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
    // Set apart: a queue that a data directory has kept may have had other attributes.
    let answer = client.create_queue().queue_name(name).send().await;
    let answer = answer.with_context(|| format!("create queue {name}"))?;
    let url = answer.queue_url.with_context(|| format!("create queue {name}: no URL"))?;
    if !attributes.is_empty() {
        let set = client.set_queue_attributes().queue_url(&url).set_attributes(Some(attributes));
        set.send().await.with_context(|| format!("set the attributes of queue {name}"))?;
    }
    Ok(url)
}

async fn create_tables(client: &aws_sdk_dynamodb::Client) -> Result<()> {
    let there = client.list_tables().send().await.context("list tables")?;
    let there = there.table_names();
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
        if there.iter().any(|table| table == name) {
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

/// With the indices of tasks: those that are due, and those that have ended.
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
    indices.into_iter().try_fold(request, |request, (name, (partition, kind), sort, kept)| {
        let index = GlobalSecondaryIndex::builder()
            .index_name(name)
            .set_key_schema(Some(key_schema([partition, sort].into_iter())?))
            .projection(kept);
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
