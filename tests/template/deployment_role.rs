//! `infra/deployment-role.yaml` gives no more than a pipeline needs, and the boundary permits what the functions' roles do.
//! `.ci/lint-template` compares its statements with what CloudFormation calls, by `registry.yaml`. That AWS agrees is not
//! verified.

use std::collections::BTreeSet;

use regex::Regex;
use serde_json::{Value, json};

use super::{agent_template, parse_yaml, properties, template};

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

/// The statements of a role's policy; one that depends on a condition is a list of the condition and two values.
fn statements<'a>(template: &'a Value, role: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    let document = &properties(template, role)["Policies"][0]["PolicyDocument"];
    let list = document["Statement"].as_array().unwrap().iter();
    list.map(|statement| if statement.is_array() { &statement[1] } else { statement })
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
    let mut bounded = 0;
    for statement in statements(&role, "ExecutionRole") {
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

/// DynamoDB and the others use a key with the permissions of the caller, which the boundary limits.
#[test]
fn the_boundary_permits_keys_of_ones_own_through_the_services_that_use_them() {
    let role = deployment_role();
    let document = &properties(&role, "FunctionBoundary")["PolicyDocument"];
    let uses_keys = |statement: &&Value| actions_of(statement).contains("kms:Decrypt");
    let keys = document["Statement"].as_array().unwrap().iter().find(uses_keys).unwrap();
    let through = &keys["Condition"]["StringEquals"]["kms:ViaService"];
    let services = ["dynamodb", "s3", "secretsmanager", "sqs"];
    let services = services.map(|service| format!("{service}.${{AWS::Region}}.amazonaws.com"));
    assert_eq!(*through, json!(services));
}

#[test]
fn a_repository_is_named_with_both_ids_or_with_none() {
    let pattern = deployment_role()["Parameters"]["Repository"]["AllowedPattern"].clone();
    let pattern = Regex::new(pattern.as_str().unwrap()).unwrap();
    for repository in ["example@123456/orders@456789", "example/orders", "a.b-c_d/e"] {
        assert!(pattern.is_match(repository), "{repository}");
    }
    for repository in ["example@1/orders", "example/orders@1", "example@*/orders@*", "example/*"] {
        assert!(!pattern.is_match(repository), "{repository}");
    }
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

/// Actions that are allowed for all resources: they have none, or they read layers of other accounts.
const FOR_ALL_RESOURCES: [&str; 11] = [
    "cloudwatch:DescribeAlarms",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSecurityGroups",
    "ec2:DescribeSubnets",
    "ec2:DescribeVpcs",
    "kms:ListAliases",
    "lambda:GetLayerVersion",
    "logs:DescribeIndexPolicies",
    "logs:DescribeLogGroups",
    "logs:DescribeResourcePolicies",
    "secretsmanager:GetRandomPassword",
];

/// What a resource or a condition contains if it names the stacks or what belongs to this one.
const OF_THE_STACKS: [&str; 7] = [
    "${Stacks}",
    "Artifacts.Arn",
    "ExecutionRole.Arn",
    "TableKeyArn",
    ":aws:transform/Serverless-",
    ":secret:CallbackKeys-",
    ":secret:WebhookSecrets-",
];

#[test]
fn each_permission_is_limited_to_the_stacks() {
    let template = deployment_role();
    let mut count = 0;
    for role in ["ExecutionRole", "PipelineRole"] {
        for statement in statements(&template, role) {
            count += 1;
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
    assert!(count > 30, "{count}");
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
    let pass = statements(&template, "PipelineRole");
    let pass: Vec<_> = pass.filter(|it| actions_of(it).contains("iam:PassRole")).collect();
    assert_eq!(pass.len(), 1);
    assert_eq!(pass[0]["Resource"], "ExecutionRole.Arn");
    let to = &pass[0]["Condition"]["StringEquals"]["iam:PassedToService"];
    assert_eq!(to, "cloudformation.amazonaws.com");
}
