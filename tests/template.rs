//! `template.yaml` against what the code and the local host say: the same tables, and every variable
//! that a function reads. What emulators ignore (expiry, recovery, encryption, visibility) is held
//! here too.

use std::collections::HashMap;

use envconfig::Envconfig;
use serde_json::Value;
use steward_aws::Config;
use steward_local::{embedded::EmbeddedAws, resources};

const FUNCTIONS: [&str; 4] =
    ["SubmissionFunction", "SchedulerFunction", "AgentFunction", "SupervisorFunction"];

fn template() -> Value {
    // Tags are left out: `!Ref Shards` reads as `Shards`.
    serde_saphyr::from_str(include_str!("../template.yaml")).unwrap()
}

fn properties<'a>(template: &'a Value, resource: &str) -> &'a Value {
    &template["Resources"][resource]["Properties"]
}

/// The variables of a function as the template sets them, with a value of the right kind.
fn variables(template: &Value, function: &str) -> HashMap<String, String> {
    let shared = template["Globals"]["Function"]["Environment"]["Variables"].as_object();
    let own = properties(template, function)["Environment"]["Variables"].as_object();
    let names = shared.into_iter().chain(own).flatten();
    let parameters = &template["Parameters"];
    names
        .map(|(name, value)| {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            // A reference to a parameter has the parameter's default.
            let default = &parameters[&text]["Default"];
            let text = if default.is_null() {
                text
            } else {
                default.as_str().map_or_else(|| default.to_string(), str::to_owned)
            };
            (name.clone(), text)
        })
        .collect()
}

#[test]
fn every_function_gets_the_variables_that_it_reads() {
    let template = template();
    for function in FUNCTIONS {
        Config::init_from_hashmap(&variables(&template, function)).unwrap();
    }
    let mut agent = variables(&template, "AgentFunction");
    agent.insert("STEWARD_AGENT_BASE_URL".to_owned(), "https://pay.example".to_owned());
    agent::AgentConfig::init_from_hashmap(&agent).unwrap();
}

#[test]
fn every_queue_has_dead_letters_and_patience() {
    let template = template();
    for (function, queue) in [
        ("SubmissionFunction", "SubmissionsQueue"),
        ("SchedulerFunction", "SchedulerQueue"),
        ("AgentFunction", "AgentQueue"),
    ] {
        let timeout = properties(&template, function)["Timeout"].as_u64().unwrap();
        let queue = properties(&template, queue);
        assert!(queue["VisibilityTimeout"].as_u64().unwrap() >= 6 * timeout, "{function}");
        assert!(queue["RedrivePolicy"]["maxReceiveCount"].is_u64(), "{function}");
        let events = properties(&template, function)["Events"].as_object().unwrap();
        for event in events.values() {
            let source = &event["Properties"];
            assert_eq!(source["FunctionResponseTypes"][0], "ReportBatchItemFailures");
            assert_eq!(source["MaximumBatchingWindowInSeconds"], 0);
        }
    }
}

#[test]
fn the_rules_of_triggers_and_no_others_may_send_submissions() {
    let template = template();
    let policy = properties(&template, "TriggersMaySubmit");
    let queues = ["SubmissionsQueue", "SubmissionsDeadLetters"];
    assert_eq!(policy["Queues"], serde_json::json!(queues));
    let statement = &policy["PolicyDocument"]["Statement"][0];
    assert_eq!(statement["Principal"]["Service"], "events.amazonaws.com");
    assert_eq!(
        statement["Resource"],
        serde_json::json!(queues.map(|queue| format!("{queue}.Arn")))
    );
    let from = statement["Condition"]["ArnLike"]["aws:SourceArn"].as_str().unwrap();
    let rules = format!(":rule/${{EventBus}}/{}*", steward_aws::rules::PREFIX);
    assert!(from.ends_with(&rules), "{from}");
}

#[tokio::test]
async fn the_tables_are_those_of_the_local_host() {
    let template = template();
    let aws = EmbeddedAws::in_memory().unwrap();
    resources::create(&aws, &[]).await.unwrap();
    let client = aws_sdk_dynamodb::Client::new(&aws.sdk_config());
    for (resource, table) in [
        ("TasksTable", resources::TASKS_TABLE),
        ("DocumentsTable", resources::DOCUMENTS_TABLE),
        ("WorkflowsTable", resources::WORKFLOWS_TABLE),
    ] {
        let said = properties(&template, resource);
        let made = client.describe_table().table_name(table).send().await.unwrap();
        let made = made.table.unwrap();
        assert_eq!(keys(&said["KeySchema"]), made_keys(made.key_schema()), "{resource}");
        let indexes = said["GlobalSecondaryIndexes"].as_array().cloned().unwrap_or_default();
        assert_eq!(indexes.len(), made.global_secondary_indexes().len(), "{resource}");
        for (said, made) in indexes.iter().zip(made.global_secondary_indexes()) {
            assert_eq!(said["IndexName"].as_str(), made.index_name());
            assert_eq!(keys(&said["KeySchema"]), made_keys(made.key_schema()));
            assert_eq!(said["Projection"]["ProjectionType"], "KEYS_ONLY");
        }
        assert_eq!(said["BillingMode"], "PAY_PER_REQUEST");
        assert_eq!(said["PointInTimeRecoverySpecification"]["PointInTimeRecoveryEnabled"], true);
        assert_eq!(said["SSESpecification"]["SSEEnabled"], true);
        let expires = table != resources::WORKFLOWS_TABLE;
        assert_eq!(said["TimeToLiveSpecification"]["Enabled"].as_bool(), expires.then_some(true));
    }
}

fn keys(schema: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let elements = schema.as_array().unwrap().iter();
    elements.map(|key| (text(&key["AttributeName"]), text(&key["KeyType"]))).collect()
}

fn made_keys(schema: &[aws_sdk_dynamodb::types::KeySchemaElement]) -> Vec<(String, String)> {
    let each = |key: &aws_sdk_dynamodb::types::KeySchemaElement| {
        (key.attribute_name().to_owned(), key.key_type().as_str().to_owned())
    };
    schema.iter().map(each).collect()
}
