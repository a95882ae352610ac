//! `template.yaml` and its nested templates match the code and the local host: the tables, the variables that the functions
//! read, the metrics of the alarms. The tests also check settings that emulators ignore: expiry, point-in-time recovery,
//! encryption, visibility timeouts, architectures.

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use envconfig::Envconfig;
use serde_json::{Value, json};
use steward_aws::Config;
use steward_aws::queues;
use steward_core::submission;
use steward_emulator::{embedded::EmbeddedAws, resources};
use steward_supervisor::{SupervisorConfig, SweepSchedule};

mod agent;
mod alarms;
mod capacity;
mod commands;
mod deployment_role;
mod domain;
mod environment;
mod idle_month;
mod parameters;
mod payloads;
mod registrar;
mod supervisor;
mod tags;
mod webhooks;

/// Each finds what the other does not: `sam validate` reads the templates as SAM does.
#[test]
fn lint_template_runs_cfn_lint_and_sam_validate_over_every_template() {
    let script = include_str!("../.ci/lint-template");
    let sam = "for template in \"${templates[@]}\"; do\n    say \"sam validate --lint $template\"\n    \
               .venv/bin/sam validate --lint --template \"$template\" ||";
    assert!(script.contains(sam), "{script}");
    assert!(script.contains(".venv/bin/cfn-lint -- \"${templates[@]}\""), "{script}");
}

/// The functions of `template.yaml`. Each agent has another function, in its own template.
const FUNCTIONS: [&str; 7] = [
    "SubmissionFunction",
    "SubmissionHttpFunction",
    "CallbackFunction",
    "SchedulerFunction",
    "SupervisorFunction",
    "ConsoleFunction",
    "RegistrarFunction",
];

/// Parses YAML without its tags: `!Ref Shards` becomes `Shards`.
fn parse_yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap()
}

fn template() -> Value {
    parse_yaml(include_str!("../template.yaml"))
}

fn agent_template() -> Value {
    parse_yaml(include_str!("../infra/agent.yaml"))
}

fn operations() -> Value {
    parse_yaml(include_str!("../infra/operations.yaml"))
}

fn example_agents() -> Value {
    parse_yaml(include_str!("../infra/example-agents.yaml"))
}

fn new_rust_agent() -> Value {
    parse_yaml(include_str!("../crates/cli/src/new/rust/template.yaml"))
}

fn example_rust_agent() -> Value {
    parse_yaml(include_str!("../examples/rust-agent/template.yaml"))
}

/// The templates of agents that users own: the examples, and those that `steward new` writes.
fn agents_of_users() -> [(&'static str, Value); 5] {
    [
        (
            "examples/python-agent",
            parse_yaml(include_str!("../examples/python-agent/template.yaml")),
        ),
        ("examples/node-agent", parse_yaml(include_str!("../examples/node-agent/template.yaml"))),
        ("examples/rust-agent", example_rust_agent()),
        ("new/python", parse_yaml(include_str!("../crates/cli/src/new/python/template.yaml"))),
        ("new/rust", new_rust_agent()),
    ]
}

fn properties<'a>(template: &'a Value, resource: &str) -> &'a Value {
    &template["Resources"][resource]["Properties"]
}

/// The names and properties of all resources of a type.
fn all<'a>(
    template: &'a Value,
    kind: &'a str,
) -> impl Iterator<Item = (&'a String, &'a Value)> + use<'a> {
    let resources = template["Resources"].as_object().unwrap().iter();
    let matching = resources.filter(move |(_, resource)| resource["Type"] == kind);
    matching.map(|(name, resource)| (name, &resource["Properties"]))
}

/// The environment variables of a function in the template. References to parameters are replaced by defaults.
fn variables(template: &Value, function: &str) -> HashMap<String, String> {
    let shared = template["Globals"]["Function"]["Environment"]["Variables"].as_object();
    let own = properties(template, function)["Environment"]["Variables"].as_object();
    let names = shared.into_iter().chain(own).flatten();
    let parameters = &template["Parameters"];
    names
        .map(|(name, value)| {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let default = &parameters[&text]["Default"];
            let text = if default.is_null() {
                with_defaults(&text, parameters)
            } else {
                default.as_str().map_or_else(|| default.to_string(), str::to_owned)
            };
            (name.clone(), text)
        })
        .collect()
}

/// A text with the defaults of the parameters that it names: `${SweepEvery}s` is `10s`.
fn with_defaults(text: &str, parameters: &Value) -> String {
    let parameters = parameters.as_object().into_iter().flatten();
    parameters.fold(text.to_owned(), |text, (name, parameter)| {
        let default = &parameter["Default"];
        let default = default.as_str().map_or_else(|| default.to_string(), str::to_owned);
        text.replace(&format!("${{{name}}}"), &default)
    })
}

#[test]
fn every_function_gets_the_variables_that_it_reads() {
    let template = template();
    for function in FUNCTIONS {
        let variables = variables(&template, function);
        Config::init_from_hashmap(&variables).unwrap();
        assert_eq!(variables["STEWARD_DEPLOYMENT"], "AWS::StackName", "{function}");
    }
    let supervisor = variables(&template, "SupervisorFunction");
    assert_eq!(supervisor["STEWARD_SWEEPS_QUEUE_URL"], "SweepsQueue");
    let supervisor = SupervisorConfig::init_from_hashmap(&supervisor).unwrap();
    let schedule = SweepSchedule::from(supervisor);
    assert_eq!(schedule.sweep_every, Duration::from_secs(10));
    let console = variables(&template, "ConsoleFunction");
    let console = steward_console::config::ConsoleConfig::init_from_hashmap(&console).unwrap();
    assert_eq!(
        console.operators,
        steward_console::caller::IdentityPatterns::default(),
        "no operators by default"
    );
    let links = console.links();
    for (link, part) in [
        (links.logs, "{task_id}"),
        (links.trace, "{xray_trace_id}"),
        (links.dashboard, "StackName"),
    ] {
        assert!(link.is_some_and(|link| link.contains(part)), "{part}");
    }
    let mut agent = variables(&agent_template(), "AgentFunction");
    assert_eq!(agent["STEWARD_DEPLOYMENT"], "Steward");
    for template in [new_rust_agent(), example_rust_agent()] {
        let deployment = &properties(&template, "Function")["Environment"]["Variables"];
        assert_eq!(deployment["STEWARD_DEPLOYMENT"], "Steward");
    }
    Config::init_from_hashmap(&agent).unwrap();
    agent.insert("STEWARD_AGENT_NAME".to_owned(), "payment".to_owned());
    agent.insert("STEWARD_AGENT_BASE_URL".to_owned(), "https://pay.example".to_owned());
    steward_agent::AgentConfig::init_from_hashmap(&agent).unwrap();
}

/// A long name of a stack.
const STACK: &str = "steward-production";

/// A long name of an agent.
const AGENT: &str = "payments-by-card";

/// A text of the template with all its variables replaced.
fn substituted(text: &str) -> String {
    let known = [
        ("${AWS::StackName}", STACK),
        ("${Steward}", STACK),
        ("${Name}", AGENT),
        ("${AWS::Region}", "ap-southeast-2"),
        ("${AWS::URLSuffix}", "amazonaws.com"),
        ("${AWS::AccountId}", "123456789012"),
    ];
    known.into_iter().fold(text.to_owned(), |text, (name, value)| text.replace(name, value))
}

/// The limits are 80 characters for queues, and 64 for functions, roles and rules.
#[test]
fn resource_names_fit_their_length_limits() {
    let longest_agent = "a".repeat(40);
    for template in [template(), agent_template(), operations()] {
        for (kind, name, max) in [
            ("AWS::SQS::Queue", "QueueName", 80),
            ("AWS::Serverless::Function", "FunctionName", 64),
            ("AWS::Events::Rule", "Name", 64),
            ("AWS::CloudWatch::Alarm", "AlarmName", 255),
            ("AWS::SNS::Topic", "TopicName", 256),
        ] {
            for (resource, properties) in all(&template, kind) {
                let Some(given) = properties[name].as_str() else { continue };
                // `stack-agent-name`: long names of agents require a short name of the stack.
                let given =
                    given.replace("${Steward}", "steward-12345").replace("${Name}", &longest_agent);
                assert!(substituted(&given).len() <= max, "{resource}: {}", substituted(&given));
            }
        }
    }
}

#[test]
fn functions_have_the_architecture_parameter_and_tracing() {
    let (template, agent) = (template(), agent_template());
    for function in [&template["Globals"]["Function"], properties(&agent, "AgentFunction")] {
        assert_eq!(function["Architectures"], json!(["Architecture"]));
        assert_eq!(function["Tracing"], "Active");
    }
    let functions = all(&template, "AWS::Serverless::Function").map(|(name, _)| name.as_str());
    assert_eq!(functions.collect::<BTreeSet<_>>(), BTreeSet::from(FUNCTIONS));
    for function in ["SubmissionHttpFunction", "ConsoleFunction"] {
        let url = &properties(&template, function)["FunctionUrlConfig"];
        assert_eq!(url["AuthType"], "AWS_IAM", "{function}");
    }
}

/// The one that was built and started.
#[test]
fn the_default_architecture_of_every_template_is_x86_64() {
    let example_agents = example_agents();
    for template in [&template(), &agent_template(), &example_agents, &new_rust_agent()] {
        assert_eq!(template["Parameters"]["Architecture"]["Default"], "x86_64");
    }
    for (path, template) in agents_of_users().iter().filter(|(path, _)| *path != "new/rust") {
        assert_eq!(properties(template, "Function")["Architectures"], json!(["x86_64"]), "{path}");
    }
}

/// `sam deploy --guided` asks about a function with a public `FunctionUrlConfig`, and Enter ends the deployment.
#[test]
fn the_callback_url_is_public_if_callbacks_are_enabled() {
    let template = template();
    assert_eq!(template["Parameters"]["HttpCallbacks"]["Default"], "false");
    assert!(properties(&template, "CallbackFunction").get("FunctionUrlConfig").is_none());
    // The signed URL is the credential.
    let url = json!({ "TargetFunctionArn": "CallbackFunction", "AuthType": "NONE" });
    assert_eq!(*properties(&template, "CallbackFunctionUrl"), url);
    let permissions = all(&template, "AWS::Lambda::Permission").map(|(name, permission)| {
        assert_eq!(template["Resources"][name]["Condition"], "HasCallbacks", "{name}");
        assert_eq!(permission["FunctionName"], "CallbackFunction", "{name}");
        assert_eq!(permission["Principal"], "*", "{name}");
        permission["Action"].as_str().unwrap()
    });
    assert_eq!(
        permissions.collect::<BTreeSet<_>>(),
        BTreeSet::from(["lambda:InvokeFunction", "lambda:InvokeFunctionUrl"])
    );
    // A reservation takes from the account's other functions, and a new account has too little to reserve any.
    assert_eq!(template["Parameters"]["CallbackConcurrency"]["Default"], "");
    assert_eq!(
        properties(&template, "CallbackFunction")["ReservedConcurrentExecutions"],
        json!(["LimitsCallbacks", "CallbackConcurrency", "AWS::NoValue"])
    );
}

#[test]
fn every_queue_has_the_redelivery_settings_of_the_local_queues() {
    for (template, function, queue, local) in [
        (template(), "SubmissionFunction", "SubmissionsQueue", queues::SUBMISSIONS),
        (template(), "SchedulerFunction", "SchedulerQueue", queues::SCHEDULER),
        (template(), "SchedulerFunction", "CommandsQueue", queues::COMMANDS),
        (agent_template(), "AgentFunction", "AgentQueue", queues::AGENT),
    ] {
        let timeout = properties(&template, function)["Timeout"].as_u64().unwrap();
        let queue = properties(&template, queue);
        assert!(u64::from(local.visibility_seconds) >= 6 * timeout, "{function}");
        assert_eq!(queue["VisibilityTimeout"], local.visibility_seconds, "{function}");
        assert_eq!(queue["RedrivePolicy"]["maxReceiveCount"], local.receives_max, "{function}");
        let events = properties(&template, function)["Events"].as_object().unwrap();
        for event in events.values() {
            let source = &event["Properties"];
            assert_eq!(source["FunctionResponseTypes"][0], "ReportBatchItemFailures");
            assert_eq!(source["MaximumBatchingWindowInSeconds"], 0);
            // Numbers from a mapping, because an emulator would pass a parameter as text.
            let at_once = &source["ScalingConfig"]["MaximumConcurrency"];
            let sizes = template["Mappings"][at_once[0].as_str().unwrap()].as_object().unwrap();
            assert_eq!(at_once[1], "Size");
            for size in template["Parameters"]["Size"]["AllowedValues"].as_array().unwrap() {
                let at_once = &sizes[size.as_str().unwrap()][at_once[2].as_str().unwrap()];
                assert!((2..=1000).contains(&at_once.as_u64().unwrap()), "{function}");
            }
        }
    }
}

#[test]
fn every_queue_is_encrypted_and_refuses_plain_http() {
    for template in [template(), agent_template()] {
        let mut tls_only_queues = BTreeSet::new();
        for (name, policy) in all(&template, "AWS::SQS::QueuePolicy") {
            // A statement, or `!If [TlsOnly, statement, AWS::NoValue]`.
            let statements = policy["PolicyDocument"]["Statement"].as_array().unwrap().iter();
            let statements = statements
                .map(|statement| if statement.is_array() { &statement[1] } else { statement });
            let refusal = statements.clone().find(|statement| statement["Effect"] == "Deny");
            let refusal = refusal.unwrap_or_else(|| panic!("{name} has no Deny statement"));
            assert_eq!(refusal["Principal"], "*");
            assert_eq!(refusal["Action"], "sqs:*");
            assert_eq!(refusal["Condition"], json!({ "Bool": { "aws:SecureTransport": "false" } }));
            // SQS rejects a policy with a statement for more than one queue.
            assert_eq!(policy["Queues"].as_array().unwrap().len(), 1, "{name}");
            let queue = policy["Queues"][0].as_str().unwrap();
            for statement in statements {
                assert_eq!(statement["Resource"], format!("{queue}.Arn"), "{name}");
            }
            tls_only_queues.insert(queue.to_owned());
        }
        for (name, queue) in all(&template, "AWS::SQS::Queue") {
            assert_eq!(queue["SqsManagedSseEnabled"], true, "{name}");
            assert!(tls_only_queues.contains(name), "{name}");
        }
        assert_eq!(template["Parameters"]["PlainHttp"]["Default"], "false");
        assert_eq!(template["Conditions"]["TlsOnly"], json!(["PlainHttp", "false"]));
    }
}

#[test]
fn only_rules_may_send_submissions_and_events() {
    let template = template();
    let schedules = parse_yaml(include_str!("../infra/schedule.yaml"));
    let schedule = properties(&schedules, "Rule")["Name"].as_str().unwrap();
    let schedules = schedule.replace("${Steward}", "${AWS::StackName}").replace("${Name}", "*");
    let of_bus = format!("${{EventBus}}/{}*", steward_aws::rules::PREFIX);
    let submissions = [of_bus.clone(), schedules];
    let events = [format!("{of_bus}.waits")];
    let mut queues_with_senders = BTreeSet::new();
    for (name, policy) in all(&template, "AWS::SQS::QueuePolicy") {
        let statements = policy["PolicyDocument"]["Statement"].as_array().unwrap();
        for statement in statements.iter().filter(|statement| statement["Effect"] == "Allow") {
            assert_eq!(statement["Principal"]["Service"], "events.amazonaws.com", "{name}");
            let from = statement["Condition"]["ArnLike"]["aws:SourceArn"].as_array().unwrap();
            let queue = policy["Queues"][0].as_str().unwrap();
            let rules = if queue.starts_with("Events") { &events[..] } else { &submissions[..] };
            assert_eq!(from.len(), rules.len());
            for (from, rule) in from.iter().zip(rules) {
                assert!(from.as_str().unwrap().ends_with(&format!(":rule/{rule}")), "{from}");
            }
            queues_with_senders.insert(queue);
        }
    }
    let queues = ["EventsDeadLetters", "EventsQueue", "SubmissionsDeadLetters", "SubmissionsQueue"];
    assert_eq!(queues_with_senders, BTreeSet::from(queues));
}

#[test]
fn a_schedule_sends_a_submission_named_after_its_scheduled_time() {
    let template = parse_yaml(include_str!("../infra/schedule.yaml"));
    let rule = properties(&template, "Rule");
    assert!(rule["EventBusName"].is_null(), "schedules need the default bus");
    let transformer = &rule["Targets"][0]["InputTransformer"];
    // The scheduled time, not the time of arrival: it is the same if the event is delivered again.
    assert_eq!(transformer["InputPathsMap"], json!({ "time": "$.time" }));
    let text = transformer["InputTemplate"].as_str().unwrap();
    let text = text
        .replace("${Name}", "nightly-report")
        .replace("${Workflow}", "report")
        .replace("${Input}", template["Parameters"]["Input"]["Default"].as_str().unwrap())
        .replace("<time>", "2026-11-20T03:00:00Z");
    let submission = submission::parse(&text).unwrap();
    assert_eq!(submission.task_id.as_str(), "nightly-report-2026-11-20T03:00:00Z");
    assert_eq!(submission.workflow.as_str(), "report");
    assert_eq!(submission.input, json!({}));
}

/// Lambda stops a chain of sixteen invocations through queues as a recursive loop. A task with many steps is such a chain.
#[test]
fn recursive_loop_detection_is_disabled_for_all_functions() {
    assert_eq!(template()["Globals"]["Function"]["RecursiveLoop"], "Allow");
    assert_eq!(properties(&agent_template(), "AgentFunction")["RecursiveLoop"], "Allow");
}

#[test]
fn tables_outlive_the_stack_unless_its_creation_failed() {
    let template = template();
    let tables = template["Resources"].as_object().unwrap().iter();
    let tables = tables.filter(|(_, resource)| resource["Type"] == "AWS::DynamoDB::Table");
    for (name, table) in tables {
        assert_eq!(table["DeletionPolicy"], "RetainExceptOnCreate", "{name}");
        assert_eq!(table["UpdateReplacePolicy"], "Retain", "{name}");
        assert_eq!(
            table["Properties"]["DeletionProtectionEnabled"], "DeletionProtection",
            "{name}"
        );
    }
    let config = include_str!("../samconfig.toml");
    let (_, prod) = config.split_once("[prod.deploy.parameters]").unwrap();
    assert!(prod.contains("DeletionProtection=true"));
}

/// The cache of `sam build` does not detect changes in `crates`.
#[test]
fn builds_are_not_cached() {
    let config = include_str!("../samconfig.toml");
    assert!(config.contains("\ncached = false\n"));
}

#[tokio::test]
async fn the_tables_match_those_of_the_local_host() {
    let template = template();
    let aws = EmbeddedAws::in_memory().unwrap();
    resources::create(&aws, &[]).await.unwrap();
    let client = aws_sdk_dynamodb::Client::new(&aws.sdk_config());
    for (resource, table) in [
        ("TasksTable", resources::TASKS_TABLE),
        ("DocumentsTable", resources::DOCUMENTS_TABLE),
        ("WorkflowsTable", resources::WORKFLOWS_TABLE),
    ] {
        let expected = properties(&template, resource);
        let local = client.describe_table().table_name(table).send().await.unwrap();
        let local = local.table.unwrap();
        assert_eq!(keys(&expected["KeySchema"]), local_keys(local.key_schema()), "{resource}");
        let indexes = expected["GlobalSecondaryIndexes"].as_array().cloned().unwrap_or_default();
        assert_eq!(indexes.len(), local.global_secondary_indexes().len(), "{resource}");
        for (expected, local) in indexes.iter().zip(local.global_secondary_indexes()) {
            assert_eq!(expected["IndexName"].as_str(), local.index_name());
            assert_eq!(keys(&expected["KeySchema"]), local_keys(local.key_schema()));
            let (expected, local) = (&expected["Projection"], local.projection().unwrap());
            assert_eq!(expected["ProjectionType"], local.projection_type().unwrap().as_str());
            assert_eq!(expected["NonKeyAttributes"], json!(local.non_key_attributes));
        }
        assert_eq!(expected["BillingMode"], "PAY_PER_REQUEST");
        assert_eq!(
            expected["PointInTimeRecoverySpecification"]["PointInTimeRecoveryEnabled"],
            true
        );
        // Without a customer-managed key, DynamoDB uses its own key, and no requests to KMS are billed.
        let key = json!({ "SSEEnabled": true, "SSEType": "KMS", "KMSMasterKeyId": "TableKeyArn" });
        assert_eq!(expected["SSESpecification"], json!(["HasTableKey", key, "AWS::NoValue"]));
        let expires = table != resources::WORKFLOWS_TABLE;
        assert_eq!(
            expected["TimeToLiveSpecification"]["Enabled"].as_bool(),
            expires.then_some(true)
        );
    }
}

fn keys(schema: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let elements = schema.as_array().unwrap().iter();
    elements.map(|key| (text(&key["AttributeName"]), text(&key["KeyType"]))).collect()
}

fn local_keys(schema: &[aws_sdk_dynamodb::types::KeySchemaElement]) -> Vec<(String, String)> {
    let each = |key: &aws_sdk_dynamodb::types::KeySchemaElement| {
        (key.attribute_name().to_owned(), key.key_type().as_str().to_owned())
    };
    schema.iter().map(each).collect()
}
