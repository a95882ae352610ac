//! Who may send to the commands queue, by the templates' text.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{agent_template, all, example_agents, operations, properties, template, variables};

/// The ids of the roles and statements that may send to the commands queue.
fn senders(template: &Value) -> BTreeSet<String> {
    let mut senders = BTreeSet::new();
    for (role, properties) in all(template, "AWS::IAM::Role") {
        let policies = properties["Policies"].as_array().into_iter().flatten();
        let statements =
            policies.flat_map(|policy| policy["PolicyDocument"]["Statement"].as_array().unwrap());
        for statement in statements {
            // A statement, or `!If [condition, statement, AWS::NoValue]`.
            let statement = if statement.is_array() { &statement[1] } else { statement };
            let (actions, resources) = (&statement["Action"], &statement["Resource"]);
            let is_send = actions.to_string().contains("sqs:SendMessage");
            let resources = resources.to_string();
            let is_queue = resources.contains("CommandsQueue") || resources.contains("-commands");
            if is_send && is_queue {
                senders.insert(format!("{role}/{}", statement["Sid"].as_str().unwrap()));
            }
        }
    }
    senders
}

#[test]
fn no_function_but_the_console_may_send_commands() {
    assert_eq!(senders(&template()), BTreeSet::from(["ConsoleRole/SendCommands".to_owned()]));
    for other in [agent_template(), example_agents(), operations()] {
        assert_eq!(senders(&other), BTreeSet::new());
        assert!(!other.to_string().contains("STEWARD_COMMANDS_QUEUE_URL"));
    }
    // No service of AWS may send either: the queue's policy allows nothing.
    let template = template();
    let policy = &properties(&template, "CommandsPolicy")["PolicyDocument"]["Statement"];
    assert!(policy.as_array().unwrap().iter().all(|statement| statement["Effect"] == "Deny"));
}

/// The name of a role can be reused, and anyone who may assume a role chooses the name of the session.
#[test]
fn the_scheduler_knows_the_consoles_role_by_its_unique_id() {
    let template = template();
    let scheduler = variables(&template, "SchedulerFunction");
    assert_eq!(scheduler["STEWARD_CONSOLE_ROLE_ID"], "ConsoleRole.RoleId");
    assert_eq!(scheduler["STEWARD_COMMANDS_QUEUE_URL"], "CommandsQueue");
    for function in ["ConsoleFunction", "SupervisorFunction"] {
        let variables = variables(&template, function);
        assert_eq!(variables["STEWARD_COMMANDS_QUEUE_URL"], "CommandsQueue", "{function}");
        assert!(!variables.contains_key("STEWARD_CONSOLE_ROLE_ID"), "{function}");
    }
}
