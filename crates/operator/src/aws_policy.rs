//! The permissions that the AWS actions of definitions need, as an IAM policy for the role of each agent. Resources are those
//! that the requests name literally; where a name is chosen at run time, or none is known, the resource is `*`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use steward_core::{
    definition::{
        step::{RequestTemplate, StepWork},
        workflow::Workflow,
    },
    model::{attempt::Action, aws_action::AwsAction, aws_services::AwsService, names::AgentName},
};

/// Operations whose permission has another name, or which need several. All others need the action of their own name.
/// The sources are the pages of each service on its actions and resources, and on DynamoDB transactions.
const PERMISSIONS: [(&str, &[&str]); 6] = [
    (
        "dynamodb:TransactWriteItems",
        &[
            "dynamodb:ConditionCheckItem",
            "dynamodb:DeleteItem",
            "dynamodb:PutItem",
            "dynamodb:UpdateItem",
        ],
    ),
    ("dynamodb:TransactGetItems", &["dynamodb:GetItem"]),
    ("sns:PublishBatch", &["sns:Publish"]),
    ("sqs:ChangeMessageVisibilityBatch", &["sqs:ChangeMessageVisibility"]),
    ("sqs:DeleteMessageBatch", &["sqs:DeleteMessage"]),
    ("sqs:SendMessageBatch", &["sqs:SendMessage"]),
];

/// What stands for all resources.
const ANY: &str = "*";

/// The permissions of one agent: the actions that it needs on the same resources.
type Permissions = BTreeMap<BTreeSet<String>, BTreeSet<String>>;

/// The policy of each agent that calls an AWS action in one of these definitions.
pub fn aws_policies<'w>(
    workflows: impl IntoIterator<Item = &'w Workflow>,
) -> BTreeMap<AgentName, Value> {
    let mut agents: BTreeMap<AgentName, Permissions> = BTreeMap::new();
    for step in workflows.into_iter().flat_map(|workflow| workflow.steps.values()) {
        for action in [Action::Do, Action::Undo] {
            let work = step.action(action).map(|of| of.work);
            let Some(StepWork::Call { agents: names, request, .. }) = work else { continue };
            let Some(action) = &request.aws else { continue };
            for agent in names.names() {
                add(agents.entry(agent.clone()).or_default(), action, request);
            }
        }
    }
    agents.into_iter().map(|(agent, permissions)| (agent, policy(&permissions))).collect()
}

/// Whether a policy allows an action on all resources.
#[must_use]
pub fn allows_any_resource(policy: &Value) -> bool {
    let elements = |value: &Value, key: &str| value.get(key)?.as_array().cloned();
    let statements = elements(policy, "Statement").into_iter().flatten();
    statements
        .filter_map(|statement| elements(&statement, "Resource"))
        .flatten()
        .any(|one| one == ANY)
}

fn policy(permissions: &Permissions) -> Value {
    let statements = permissions.iter().map(
        |(resources, actions)| json!({ "Effect": "Allow", "Action": actions, "Resource": resources }),
    );
    json!({ "Version": "2012-10-17", "Statement": statements.collect::<Vec<_>>() })
}

fn add(permissions: &mut Permissions, action: &AwsAction, request: &RequestTemplate) {
    let prefix = AwsService::named(action.service()).iam_prefix();
    let mut found = Found { service: prefix, ..Found::default() };
    if let Some(body) = &request.body {
        found.read("", body.source());
    }
    let of_action = permissions.entry(found.resources()).or_default();
    of_action.extend(names(prefix, action));
    if !found.roles.is_empty() {
        permissions.entry(found.roles).or_default().insert("iam:PassRole".to_owned());
    }
}

/// The names of an action in policies.
fn names(prefix: &str, action: &AwsAction) -> Vec<String> {
    let name = format!("{prefix}:{}", action.operation());
    match PERMISSIONS.iter().find(|(of, _)| *of == name) {
        Some((_, names)) => names.iter().map(|name| (*name).to_owned()).collect(),
        None => vec![name],
    }
}

/// The resources that an input names.
#[derive(Default)]
struct Found<'a> {
    service: &'a str,
    named: BTreeSet<String>,
    /// Whether a name of a resource is chosen at run time.
    has_unknown: bool,
    /// The roles that the service is to assume.
    roles: BTreeSet<String>,
}

impl Found<'_> {
    fn resources(&self) -> BTreeSet<String> {
        match self.has_unknown || self.named.is_empty() {
            true => BTreeSet::from([ANY.to_owned()]),
            false => self.named.clone(),
        }
    }

    fn read(&mut self, key: &str, value: &Value) {
        match value {
            Value::Object(members) => members.iter().for_each(|(key, value)| self.read(key, value)),
            Value::Array(elements) => elements.iter().for_each(|element| self.read(key, element)),
            Value::String(text) => self.read_text(key, text),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn read_text(&mut self, key: &str, text: &str) {
        let is_name =
            matches!(key, "TableName" | "QueueUrl") || key.to_lowercase().ends_with("arn");
        let parts: Vec<_> = text.splitn(6, ':').collect();
        match parts.as_slice() {
            _ if text.contains("${") => self.has_unknown |= is_name,
            ["arn", _, "iam", _, _, role] if role.starts_with("role/") && self.service != "iam" => {
                self.roles.insert(text.to_owned());
            }
            ["arn", _, service, ..] if *service == self.service => {
                self.named.insert(text.to_owned());
            }
            _ if key == "TableName" && self.service == "dynamodb" => {
                // A request of an index names its table, too.
                let table = format!("arn:aws:dynamodb:*:*:table/{text}");
                self.named.extend([format!("{table}/index/*"), table]);
            }
            _ if key == "QueueUrl" && self.service == "sqs" => self.named.extend(queue(text)),
            _ => {}
        }
    }
}

/// The ARN of the queue with a URL such as `https://sqs.eu-west-1.amazonaws.com/123456789012/orders`.
fn queue(url: &str) -> Option<String> {
    let rest = url.strip_prefix("https://sqs.")?;
    let (region, rest) = rest.split_once(".amazonaws.com/")?;
    let (account, name) = rest.split_once('/')?;
    Some(format!("arn:aws:sqs:{region}:{account}:{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policies(steps: Value) -> Value {
        let workflow = json!({ "name": "w", "version": 1, "steps": steps });
        let workflow: Workflow = serde_json::from_value(workflow).unwrap();
        assert_eq!(workflow.problems(), []);
        json!(aws_policies([&workflow]))
    }

    #[test]
    fn each_agent_has_a_policy_with_the_actions_and_literal_resources_of_its_steps() {
        let queue = "https://sqs.eu-west-1.amazonaws.com/123456789012/orders";
        let policies = policies(json!({
            "record": {
                "agent": "store",
                "request": { "aws": "dynamodb:PutItem", "body": { "TableName": "orders", "Item": { "id": { "S": "${ task.id }" } } } },
                "undo": { "request": { "aws": "dynamodb:DeleteItem", "body": { "TableName": "orders" } } },
            },
            "other": {
                "agent": "store",
                "request": { "aws": "dynamodb:TransactGetItems", "body": { "TransactItems": [
                    { "Get": { "TableName": "orders" } }, { "Get": { "TableName": "${ input.table }" } },
                ] } },
            },
            "tell": { "agent": "tell", "request": { "aws": "sqs:SendMessageBatch", "body": { "QueueUrl": queue } } },
            "think": { "agent": "tell", "request": { "aws": "bedrock-runtime:InvokeModel", "path": "/model/m/invoke" } },
            "call": { "agent": "http", "request": { "path": "/" } },
        }));
        let table = "arn:aws:dynamodb:*:*:table/orders";
        let allow = |actions: Value, resources: Value| json!({ "Effect": "Allow", "Action": actions, "Resource": resources });
        let policy =
            |statements: Value| json!({ "Version": "2012-10-17", "Statement": statements });
        let expected = json!({
            "store": policy(json!([
                allow(json!(["dynamodb:GetItem"]), json!(["*"])),
                allow(json!(["dynamodb:DeleteItem", "dynamodb:PutItem"]), json!([table, format!("{table}/index/*")])),
            ])),
            "tell": policy(json!([
                allow(json!(["bedrock:InvokeModel"]), json!(["*"])),
                allow(json!(["sqs:SendMessage"]), json!(["arn:aws:sqs:eu-west-1:123456789012:orders"])),
            ])),
        });
        assert_eq!(policies, expected);
        assert!(allows_any_resource(&policies["store"]));
    }

    #[test]
    fn a_role_that_the_service_assumes_must_be_passed() {
        let (job, role) = ("arn:aws:states:eu-west-1:1:stateMachine:m", "arn:aws:iam::1:role/run");
        let policies = policies(json!({ "update": { "agent": "a", "request": {
            "aws": "states:UpdateStateMachine", "body": { "stateMachineArn": job, "roleArn": role },
        } } }));
        let statements = policies["a"]["Statement"].as_array().unwrap();
        let pairs: Vec<_> =
            statements.iter().map(|one| (&one["Action"], &one["Resource"])).collect();
        assert_eq!(
            pairs,
            [
                (&json!(["iam:PassRole"]), &json!([role])),
                (&json!(["states:UpdateStateMachine"]), &json!([job]))
            ]
        );
        assert!(!allows_any_resource(&policies["a"]));
    }
}
