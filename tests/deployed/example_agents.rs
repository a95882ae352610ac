//! The example agents in Python and JavaScript, deployed as stacks of their own from their own templates.

use std::rc::Rc;

use serde_json::Value;
use steward_core::model::task::ProcessState;
use steward_demo::services::{DemoService, Fault};

use super::{aws_requests::run, stack::Stack, stack::delete, target::deployment_target};

/// The agents and the folders of their examples.
const AGENTS: [(&str, &str); 2] = [("greeter-py", "python-agent"), ("greeter-js", "node-agent")];

/// Each agent carries out one step.
const BY_EXAMPLES: &str = r#"
name: by-examples
version: 1
defaults:
  recovery: { then: undo }
steps:
  reserve:
    agent: greeter-py
    request: { path: /reservations, body: { order: "${ task.id }", items: [] } }
    undo:
      request: { path: /releases, body: { order: "${ task.id }" } }
  wrap:
    agent: greeter-js
    after: [reserve]
    request: { path: /reservations, body: { order: "${ task.id }", items: [paper] } }
    undo:
      request: { path: /releases, body: { order: "${ task.id }" } }
"#;

pub(super) async fn example_agents_run_as_functions(stack: Rc<Stack>) {
    if !deployment_target().runs_scripts("example agents") {
        return;
    }
    let service = stack.services.base_url(DemoService::Inventory);
    for (agent, example) in AGENTS {
        let name = stack.name_of(agent);
        let template = format!("examples/{example}/template.yaml");
        let steward = format!("Steward={}", deployment_target().stack);
        let (agent, service) = (format!("Name={agent}"), format!("ServiceUrl={service}"));
        run("infra/deploy", &[&name, &template, &steward, &agent, &service]).await;
    }
    stack.publish(BY_EXAMPLES).await;
    for (fault, end) in [
        (Fault::Healthy, ProcessState::Processed),
        // The agent in JavaScript reports the refusal, and both agents undo.
        (Fault::Refuse, ProcessState::Undone),
    ] {
        let id = task_id(&stack, fault);
        stack.submit(&id, "by-examples", &Value::Null).await;
        assert_eq!(stack.ended(&id).await.process_state, end, "{id}");
        let ledger = stack.services.ledgers();
        let active = ledger.active_effects(DemoService::Inventory, &id);
        assert_eq!(active, if end == ProcessState::Processed { 2 } else { 0 }, "{id}");
    }
    for (agent, _) in AGENTS {
        delete(&stack.name_of(agent)).await;
    }
}

/// The id of a task whose second step has this fault, and whose other calls are healthy.
fn task_id(stack: &Stack, fault: Fault) -> String {
    let undo = |id: &str, step| stack.plan.fault_of_undo(&format!("{id}/{step}/undo"));
    let fits = |id: &String| {
        stack.plan.fault(&format!("{id}/reserve/do")) == Fault::Healthy
            && stack.plan.fault(&format!("{id}/wrap/do")) == fault
            && ["reserve", "wrap"].iter().all(|step| undo(id, step) == Fault::Healthy)
    };
    (0..).map(|n| format!("examples-{n}")).find(fits).unwrap()
}
