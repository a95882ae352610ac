//! The template of an agent, `infra/agent.yaml`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{agent_template, all, example_agents, parse_yaml, properties};

/// The statements of an agent's role that depend on a condition, with its name.
fn optional_statements(template: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let policy = &properties(template, "AgentRole")["Policies"][0]["PolicyDocument"];
    let optional = policy["Statement"].as_array().unwrap().iter().filter_map(Value::as_array);
    optional.map(|conditional| {
        let [condition, statement, otherwise] = conditional.as_slice() else {
            panic!("{conditional:?}");
        };
        assert_eq!(otherwise, "AWS::NoValue");
        (condition.as_str().unwrap(), statement)
    })
}

/// An agent may use its targets and nothing else of their services.
#[test]
fn an_agent_may_call_exactly_its_targets() {
    let template = agent_template();
    let statements: BTreeMap<_, _> = optional_statements(&template)
        .filter(|(condition, _)| !["IsInVpc", "UsesPayloads"].contains(condition))
        .map(|(condition, statement)| {
            // `!Split [",", !Ref Targets]`.
            let resource = &statement["Resource"];
            let resource = if resource.is_array() { &resource[1] } else { resource };
            (condition, [&statement["Action"], resource].map(|text| text.as_str().unwrap()))
        })
        .collect();
    let expected = BTreeMap::from([
        ("HasSecret", ["secretsmanager:GetSecretValue", "SecretArn"]),
        ("InvokesFunctions", ["lambda:InvokeFunction", "Targets"]),
        ("SendsMessages", ["sqs:SendMessage", "Targets"]),
        ("PublishesEvents", ["events:PutEvents", "Targets"]),
        ("SignsRequests", ["Actions", "Targets"]),
    ]);
    assert_eq!(statements, expected);
    for (condition, kind) in
        [("InvokesFunctions", "lambda"), ("SendsMessages", "sqs"), ("PublishesEvents", "events")]
    {
        assert_eq!(template["Conditions"][condition], json!(["HasTargets", ["Kind", kind]]));
        kind.parse::<steward_agent::config::AgentKind>().unwrap();
    }
    assert_eq!(
        template["Parameters"]["Kind"]["AllowedValues"],
        json!(["http", "lambda", "sqs", "events", "aws"])
    );
}

/// Steps choose what an agent of kind `aws` calls, so its calls have no permission of the function.
#[test]
fn the_calls_of_an_agent_of_kind_aws_have_a_role_with_its_actions_only() {
    let template = agent_template();
    let conditions = &template["Conditions"];
    assert_eq!(conditions["CallsActions"], json!(["Kind", "aws"]));
    assert_eq!(conditions["SignsRequests"], json!(["HasActions", ["CallsActions"]]));
    let role = properties(&template, "CallRole");
    let trusted = &role["AssumeRolePolicyDocument"]["Statement"];
    assert_eq!(trusted[0]["Principal"], json!({ "AWS": "AgentRole.Arn" }));
    let policies = role["Policies"].as_array().unwrap();
    let [policy] = policies.as_slice() else { panic!("{policies:?}") };
    let calls = json!({
        "Sid": "CallTargets", "Effect": "Allow", "Action": "Actions", "Resource": [",", "Targets"],
    });
    let nothing = json!({ "Sid": "CallNothing", "Effect": "Deny", "Action": "*", "Resource": "*" });
    let expected = json!([["HasActions", calls, nothing]]);
    assert_eq!(policy["PolicyDocument"]["Statement"], expected);
    let variables = &properties(&template, "AgentFunction")["Environment"]["Variables"];
    let of_calls = json!(["CallsActions", "CallRole.Arn", "AWS::NoValue"]);
    assert_eq!(variables["STEWARD_AGENT_CALL_ROLE"], of_calls);
}

/// Of the bucket of payloads, an agent reads and stores what belongs to tasks, and nothing else.
#[test]
fn an_agent_uses_payloads_of_tasks_only() {
    let template = agent_template();
    let statements: Vec<_> = optional_statements(&template)
        .filter(|(condition, _)| *condition == "UsesPayloads")
        .map(|(_, statement)| (statement["Action"].clone(), statement["Resource"].clone()))
        .collect();
    let bucket = "arn:${AWS::Partition}:s3:::${PayloadsBucket}";
    let expected = [
        (json!("s3:GetObject"), json!(format!("{bucket}/tasks/*"))),
        (json!(["s3:PutObject", "s3:AbortMultipartUpload"]), json!(format!("{bucket}/tasks/*"))),
        (json!("s3:ListBucket"), json!(bucket)),
    ];
    assert_eq!(statements, expected);
}

/// Lambda manages the network interfaces with the role of the function, whose own code must not.
#[test]
fn an_agent_in_a_vpc_lets_lambda_manage_its_network_interfaces_and_nobody_else() {
    let template = agent_template();
    let config = &properties(&template, "AgentFunction")["VpcConfig"];
    let in_vpc = json!({ "SubnetIds": "SubnetIds", "SecurityGroupIds": "SecurityGroupIds" });
    assert_eq!(*config, json!(["IsInVpc", in_vpc, "AWS::NoValue"]));
    let statements: Vec<_> = optional_statements(&template)
        .filter(|(condition, _)| *condition == "IsInVpc")
        .map(|(_, statement)| statement)
        .collect();
    let [allow, deny] = statements.as_slice() else { panic!("{statements:?}") };
    assert_eq!((&allow["Effect"], &deny["Effect"]), (&json!("Allow"), &json!("Deny")));
    assert_eq!(allow["Action"], deny["Action"]);
    let function = deny["Condition"]["ArnEquals"]["lambda:SourceFunctionArn"].as_str().unwrap();
    assert!(function.ends_with(":function:${Steward}-agent-${Name}"), "{function}");
}

#[test]
fn every_agent_of_orders_and_drone_deliveries_is_deployed() {
    let agents = example_agents();
    let names = all(&agents, "AWS::Serverless::Application")
        .map(|(_, agent)| agent["Parameters"]["Name"].as_str().unwrap().to_owned());
    let mut used_agents = BTreeSet::new();
    for workflow in [
        include_str!("../../workflows/order.yaml"),
        include_str!("../../workflows/drone-delivery.yaml"),
    ] {
        let steps = parse_yaml(workflow)["steps"].as_object().unwrap().clone();
        used_agents
            .extend(steps.values().filter_map(|step| Some(step["agent"].as_str()?.to_owned())));
    }
    assert_eq!(names.collect::<BTreeSet<_>>(), used_agents);
    for (name, agent) in all(&agents, "AWS::Serverless::Application") {
        assert_eq!(agent["Location"], "agent.yaml", "{name}");
        let url = format!("${{ServicesUrl}}/{}", agent["Parameters"]["Name"].as_str().unwrap());
        assert_eq!(agent["Parameters"]["BaseUrl"], json!(url));
    }
}
