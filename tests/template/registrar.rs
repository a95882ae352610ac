//! The registrar in `template.yaml`, and the registration of an agent in `infra/agent.yaml`. Emulators do not check the
//! condition of the registrar's permission, so this test reads it.

use serde_json::{Value, json};
use steward_aws::dead_letters;
use steward_core::model::registration::AGENT_CONTRACT;

use super::{agent_template, all, properties, template};

/// The statements of a role, by `Sid`.
fn statement<'a>(template: &'a Value, role: &str, sid: &str) -> &'a Value {
    let policies = properties(template, role)["Policies"].as_array().unwrap().iter();
    let mut statements = policies
        .flat_map(|policy| policy["PolicyDocument"]["Statement"].as_array().unwrap().iter());
    statements.find(|statement| statement["Sid"] == sid).unwrap()
}

#[test]
fn the_registrar_may_write_only_registrations() {
    let template = template();
    let write = statement(&template, "RegistrarRole", "ReadAndWriteRegistrations");
    assert_eq!(write["Action"], json!(["dynamodb:GetItem", "dynamodb:PutItem"]));
    assert_eq!(write["Resource"], "DocumentsTable.Arn");
    let keys = json!({ "ForAllValues:StringEquals": { "dynamodb:LeadingKeys": ["#agent"] } });
    assert_eq!(write["Condition"], keys);
    let check = statement(&template, "RegistrarRole", "CheckQueueOfAgent");
    assert_eq!(check["Action"], "sqs:GetQueueAttributes");
    assert!(check["Resource"].as_str().unwrap().ends_with(":${AWS::StackName}-agent-*-requests"));
}

#[test]
fn the_supervisor_may_count_every_dead_letter_queue_that_the_registrar_accepts() {
    let template = template();
    let count = statement(&template, "SupervisorRole", "CountDeadLetters");
    let pattern = format!(":${{AWS::StackName}}-agent-*{}", dead_letters::SUFFIX);
    let covers = |resource: &Value| resource.as_str().unwrap().ends_with(&pattern);
    assert!(count["Resource"].as_array().unwrap().iter().any(covers));
}

#[test]
fn the_stack_of_an_agent_registers_it_with_the_settings_of_its_function() {
    let (template, agent) = (template(), agent_template());
    let registration = properties(&agent, "Registration");
    assert_eq!(agent["Resources"]["Registration"]["Type"], "Custom::StewardAgent");
    assert_eq!(registration["Contract"], AGENT_CONTRACT);
    assert_eq!(registration["Timeout"], properties(&agent, "AgentFunction")["Timeout"]);
    assert_eq!(registration["DeadLetterQueue"], "AgentDeadLetters.QueueName");
    // What people see of the rate limit is what the function reads.
    let variables = &properties(&agent, "AgentFunction")["Environment"]["Variables"];
    for (property, variable) in
        [("RatePerSecond", "STEWARD_AGENT_RATE_PER_SECOND"), ("Burst", "STEWARD_AGENT_BURST")]
    {
        assert_eq!(registration[property], property);
        assert_eq!(variables[variable], property);
    }
    let name = properties(&template, "RegistrarFunction")["FunctionName"].as_str().unwrap();
    let name = name.replace("AWS::StackName", "Steward");
    let token = registration["ServiceToken"].as_str().unwrap();
    assert!(token.ends_with(&format!(":function:{name}")), "{token}");
    // A batch has up to ten requests.
    let batch =
        &properties(&agent, "AgentFunction")["Events"]["Requests"]["Properties"]["BatchSize"];
    for size in agent["Mappings"]["Concurrency"].as_object().unwrap().values() {
        let calls = size["Agent"].as_u64().unwrap() * batch.as_u64().unwrap();
        assert_eq!(size["Calls"], calls);
    }
    // The answer arrives before CloudFormation stops to wait.
    let timeout = properties(&template, "RegistrarFunction")["Timeout"].as_u64().unwrap();
    assert!(registration["ServiceTimeout"].as_u64().unwrap() > timeout);
}

#[test]
fn an_agent_is_registered_last_and_nested_agents_after_the_registrar() {
    let agent = agent_template();
    let after = json!(["AgentFunctionRequests", "AgentQueue"]);
    assert_eq!(agent["Resources"]["Registration"]["DependsOn"], after);
    let events = properties(&agent, "AgentFunction")["Events"].as_object().unwrap();
    assert!(
        events.contains_key("Requests"),
        "SAM names the event source after the function and it"
    );
    let template = template();
    let registrar = json!(["RegistrarFunction", "RegistrarRole"]);
    let mut agents = 0;
    for (name, application) in all(&template, "AWS::Serverless::Application") {
        if application["Location"].as_str().unwrap().contains("agent") {
            assert_eq!(template["Resources"][name]["DependsOn"], registrar, "{name}");
            agents += 1;
        }
    }
    assert_eq!(agents, 1);
}
