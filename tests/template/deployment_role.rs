//! `infra/deployment-role.yaml` lets a pipeline deploy what the templates contain: each type of resource can be created, and
//! the boundary permits what the functions' roles do. That AWS agrees is not verified.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{agent_template, parse_yaml, properties, template};

/// What CloudFormation needs to create a resource of each type, by its documentation; an empty list: nothing.
const CREATES: [(&str, &[&str]); 20] = [
    ("AWS::CloudWatch::Alarm", &["cloudwatch:PutMetricAlarm"]),
    ("AWS::CloudWatch::Dashboard", &["cloudwatch:PutDashboard"]),
    ("AWS::DynamoDB::Table", &["dynamodb:CreateTable", "dynamodb:UpdateTimeToLive"]),
    ("AWS::Events::EventBus", &["events:CreateEventBus"]),
    ("AWS::Events::Rule", &["events:PutRule", "events:PutTargets"]),
    ("AWS::IAM::Role", &["iam:CreateRole", "iam:PutRolePolicy", "iam:PassRole"]),
    ("AWS::KMS::Key", &["kms:CreateKey", "kms:EnableKeyRotation"]),
    ("AWS::Lambda::Permission", &["lambda:AddPermission"]),
    ("AWS::Lambda::Url", &["lambda:CreateFunctionUrlConfig"]),
    ("AWS::Logs::LogGroup", &["logs:CreateLogGroup", "logs:PutRetentionPolicy"]),
    (
        "AWS::S3::Bucket",
        &[
            "s3:CreateBucket",
            "s3:PutBucketOwnershipControls",
            "s3:PutBucketPublicAccessBlock",
            "s3:PutEncryptionConfiguration",
            "s3:PutLifecycleConfiguration",
        ],
    ),
    ("AWS::S3::BucketPolicy", &["s3:PutBucketPolicy"]),
    ("AWS::SNS::Subscription", &["sns:Subscribe"]),
    ("AWS::SNS::Topic", &["sns:CreateTopic"]),
    ("AWS::SNS::TopicPolicy", &["sns:SetTopicAttributes"]),
    ("AWS::SQS::Queue", &["sqs:CreateQueue"]),
    ("AWS::SQS::QueuePolicy", &["sqs:SetQueueAttributes"]),
    (
        "AWS::SecretsManager::Secret",
        &["secretsmanager:CreateSecret", "secretsmanager:GetRandomPassword"],
    ),
    ("AWS::Serverless::Application", &["cloudformation:CreateStack"]),
    (
        "AWS::Serverless::Function",
        &[
            "lambda:CreateFunction",
            "lambda:CreateEventSourceMapping",
            "lambda:CreateFunctionUrlConfig",
            "lambda:PutFunctionRecursionConfig",
        ],
    ),
];

fn deployment_role() -> Value {
    parse_yaml(include_str!("../../infra/deployment-role.yaml"))
}

/// All actions that statements allow, wherever they are in a policy.
fn allowed_actions(policy: &Value, actions: &mut BTreeSet<String>) {
    match policy {
        Value::Object(statement) => {
            if statement.get("Effect").is_some_and(|effect| effect == "Allow") {
                let texts = |value: &Value| value.as_str().map(str::to_owned);
                let action = &statement["Action"];
                let list = action.as_array().map_or(std::slice::from_ref(action), Vec::as_slice);
                actions.extend(list.iter().filter_map(texts));
            }
            statement.values().for_each(|value| allowed_actions(value, actions));
        }
        Value::Array(list) => list.iter().for_each(|value| allowed_actions(value, actions)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn actions_of(policy: &Value) -> BTreeSet<String> {
    let mut actions = BTreeSet::new();
    allowed_actions(policy, &mut actions);
    actions
}

/// The templates of `steward new`, which the pipeline of a project deploys with this role.
fn templates_of_projects() -> [Value; 3] {
    [
        include_str!("../../crates/cli/src/new/none/template.yaml"),
        include_str!("../../crates/cli/src/new/python/template.yaml"),
        include_str!("../../crates/cli/src/new/rust/template.yaml"),
    ]
    .map(parse_yaml)
}

#[test]
fn cloudformation_may_create_every_resource_of_the_templates() {
    let role = deployment_role();
    let allowed = actions_of(&properties(&role, "ExecutionRole")["Policies"]);
    let operations = parse_yaml(include_str!("../../infra/operations.yaml"));
    let schedule = parse_yaml(include_str!("../../infra/schedule.yaml"));
    let templates = [template(), agent_template(), operations, schedule];
    for template in templates.into_iter().chain(templates_of_projects()) {
        for (name, resource) in template["Resources"].as_object().unwrap() {
            let kind = resource["Type"].as_str().unwrap();
            if kind == "Custom::StewardAgent" {
                assert!(allowed.contains("lambda:InvokeFunction"));
                continue;
            }
            let needed = CREATES.iter().find(|(known, _)| *known == kind);
            let (_, needed) = needed.unwrap_or_else(|| panic!("{name}: what does {kind} need?"));
            for action in *needed {
                assert!(allowed.contains(*action), "{name}: the execution role lacks {action}");
            }
        }
    }
}

#[test]
fn the_boundary_permits_what_the_functions_roles_do() {
    let role = deployment_role();
    let boundary = actions_of(&properties(&role, "FunctionBoundary")["PolicyDocument"]);
    for template in [template(), agent_template()].into_iter().chain(templates_of_projects()) {
        for (name, role) in super::all(&template, "AWS::IAM::Role") {
            assert_eq!(role["PermissionsBoundary"][1], "PermissionsBoundaryArn", "{name}");
            // `Actions`: what the operator of an agent adds.
            let used =
                actions_of(&role["Policies"]).into_iter().filter(|action| action != "Actions");
            let lacking: Vec<_> = used.filter(|action| !boundary.contains(action)).collect();
            assert!(lacking.is_empty(), "{name}: the boundary lacks {lacking:?}");
        }
    }
}

#[test]
fn roles_get_permissions_only_within_the_boundary() {
    let role = deployment_role();
    let policies = &properties(&role, "ExecutionRole")["Policies"];
    let statements = policies[0]["PolicyDocument"]["Statement"].as_array().unwrap();
    let mut bounded = 0;
    for statement in statements {
        let grants = actions_of(statement).into_iter().filter(|action| {
            ["iam:CreateRole", "iam:PutRolePolicy", "iam:AttachRolePolicy"].contains(&&**action)
        });
        for action in grants {
            let boundary = &statement["Condition"]["StringEquals"]["iam:PermissionsBoundary"];
            assert_eq!(boundary, "FunctionBoundary", "{action}");
            bounded += 1;
        }
        let removes = actions_of(statement).contains("iam:DeleteRolePermissionsBoundary");
        assert!(!removes, "a role could lose its boundary");
    }
    assert_eq!(bounded, 3);
}

#[test]
fn only_the_environment_of_the_repository_may_assume_the_pipelines_role() {
    let role = deployment_role();
    let trust = &properties(&role, "PipelineRole")["AssumeRolePolicyDocument"]["Statement"][0];
    let condition = &trust["Condition"]["StringEquals"];
    assert_eq!(
        condition["token.actions.githubusercontent.com:sub"],
        "repo:${Repository}:environment:${Environment}"
    );
    assert_eq!(condition["token.actions.githubusercontent.com:aud"], "sts.amazonaws.com");
}

/// Actions that are allowed for all resources: they have none, or its name is not known before it exists.
const FOR_ALL_RESOURCES: [&str; 3] =
    ["kms:CreateKey", "logs:DescribeLogGroups", "secretsmanager:GetRandomPassword"];

/// What a resource or a condition contains if it names the stacks or what belongs to this one.
const OF_THE_STACKS: [&str; 6] = [
    "${Stacks}",
    "Artifacts.Arn",
    "ExecutionRole.Arn",
    ":aws:transform/Serverless-",
    ":secret:CallbackKeys-",
    ":secret:WebhookSecrets-",
];

#[test]
fn each_permission_is_limited_to_the_stacks() {
    let template = deployment_role();
    let mut statements = 0;
    for role in ["ExecutionRole", "PipelineRole"] {
        let policy = &properties(&template, role)["Policies"][0]["PolicyDocument"];
        for statement in policy["Statement"].as_array().unwrap() {
            statements += 1;
            let id = &statement["Sid"];
            let actions = actions_of(statement);
            assert!(actions.iter().all(|action| !action.contains('*')), "{id}: {actions:?}");
            if actions.iter().all(|action| FOR_ALL_RESOURCES.contains(&action.as_str())) {
                continue;
            }
            let resource = &statement["Resource"];
            let resources =
                resource.as_array().map_or(std::slice::from_ref(resource), Vec::as_slice);
            let condition = statement["Condition"].to_string();
            for resource in resources.iter().map(|resource| resource.as_str().unwrap()) {
                let is_limited = |text: &str| OF_THE_STACKS.iter().any(|part| text.contains(part));
                // AWS generates the ids of event source mappings. This statement only reads and tags them.
                let is_mapping = resource.ends_with(":event-source-mapping:*");
                assert!(
                    is_limited(resource) || is_limited(&condition) || is_mapping,
                    "{id}: {resource}"
                );
            }
        }
    }
    assert!(statements > 30, "{statements}");
}

#[test]
fn the_pipeline_changes_stacks_only_through_cloudformation() {
    let template = deployment_role();
    let policy = &properties(&template, "PipelineRole")["Policies"][0]["PolicyDocument"];
    let allowed = actions_of(policy);
    for needed in ["CreateChangeSet", "ExecuteChangeSet", "DescribeChangeSet", "DescribeStacks"] {
        assert!(allowed.contains(&format!("cloudformation:{needed}")), "{needed}");
    }
    let of_services = ["cloudformation:", "dynamodb:", "events:", "iam:PassRole", "s3:", "sqs:"];
    for action in &allowed {
        assert!(of_services.iter().any(|service| action.starts_with(service)), "{action}");
        let deletes = action.contains("Delete") || action.contains("Stack");
        let is_harmless = action.contains(":Describe") || action.contains(":List");
        let of_own = ["cloudformation:DeleteChangeSet", "events:DeleteRule"];
        assert!(!deletes || is_harmless || of_own.contains(&action.as_str()), "{action}");
    }
    let pass = policy["Statement"].as_array().unwrap().iter();
    let pass: Vec<_> = pass.filter(|it| actions_of(it).contains("iam:PassRole")).collect();
    assert_eq!(pass.len(), 1);
    assert_eq!(pass[0]["Resource"], "ExecutionRole.Arn");
    let to = &pass[0]["Condition"]["StringEquals"]["iam:PassedToService"];
    assert_eq!(to, "cloudformation.amazonaws.com");
}
