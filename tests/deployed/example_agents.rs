//! The example agents, deployed as stacks of their own from their own templates: they run tasks, and their roles permit nothing
//! else. The one in Rust takes part if `.ci/package-examples rust` packaged it.

use std::{env, path::PathBuf, rc::Rc};

use serde_json::Value;
use steward_core::model::task::ProcessState;
use steward_demo::services::{DemoService, Fault};

use super::{
    aws_requests::{repository, run},
    permissions::agent_has_exactly_its_permissions,
    stack::Stack,
    stack::delete,
    target::deployment_target,
};

/// An agent's name, and the folder of its example.
type Example = (&'static str, &'static str);
const PYTHON: Example = ("greeter-py", "python-agent");
const JAVASCRIPT: Example = ("greeter-js", "node-agent");
const RUST: Example = ("greeter-rs", "rust-agent");

/// What the functions in Python and JavaScript may do.
const SCRIPT_PERMISSIONS: [&str; 5] = [
    "SendMessage scheduler",
    "ReceiveMessage own requests",
    "DeleteMessage own requests",
    "ChangeMessageVisibility own requests",
    "GetQueueAttributes own requests",
];

/// What the function in Rust may do. It claims calls, and shares the circuit breaker.
const RUST_PERMISSIONS: [&str; 10] = [
    "GetItem documents",
    "BatchGetItem documents",
    "PutItem documents",
    "PartiQLInsert documents",
    "SendMessage scheduler",
    "PutEvents",
    "ReceiveMessage own requests",
    "DeleteMessage own requests",
    "ChangeMessageVisibility own requests",
    "GetQueueAttributes own requests",
];

/// Each of two agents carries out one step.
const BY_EXAMPLES: &str = r#"
name: WORKFLOW
version: 1
defaults:
  recovery: { then: undo }
steps:
  reserve:
    agent: FIRST
    request: { path: /reservations, body: { order: "${ task.id }", items: [] } }
    undo:
      request: { path: /releases, body: { order: "${ task.id }" } }
  wrap:
    agent: SECOND
    after: [reserve]
    request: { path: /reservations, body: { order: "${ task.id }", items: [paper] } }
    undo:
      request: { path: /releases, body: { order: "${ task.id }" } }
"#;

pub(super) async fn example_agents_run_as_functions(stack: Rc<Stack>) {
    if !deployment_target().runs_scripts("example agents") {
        return;
    }
    let packages =
        env::var_os("CARGO_TARGET_DIR").map_or_else(|| repository().join("target"), PathBuf::from);
    let with_rust = packages.join("deploy/examples").join(RUST.1).exists();
    let agents = [PYTHON, JAVASCRIPT].into_iter().chain(with_rust.then_some(RUST));
    for agent in agents.clone() {
        deploy(&stack, agent).await;
    }
    carry_out(&stack, "by-scripts", [PYTHON, JAVASCRIPT]).await;
    if with_rust {
        carry_out(&stack, "by-rust", [RUST, PYTHON]).await;
    }
    // An emulator that runs scripts also enforces IAM, and its functions are processes.
    for example in agents.clone() {
        let may: &[_] = if example == RUST { &RUST_PERMISSIONS } else { &SCRIPT_PERMISSIONS };
        agent_has_exactly_its_permissions(&stack, example.0, may).await;
    }
    for (agent, _) in agents {
        delete(&stack.name_of(agent)).await;
    }
}

async fn deploy(stack: &Stack, (agent, example): Example) {
    let name = stack.name_of(agent);
    let template = format!("examples/{example}/template.yaml");
    let service = stack.services.base_url(DemoService::Inventory);
    let mut parameters = vec![
        format!("Steward={}", deployment_target().stack),
        format!("Name={agent}"),
        format!("ServiceUrl={service}"),
    ];
    if (agent, example) == RUST {
        // It claims calls that must not be repeated, and shares the circuit breaker.
        parameters.push(format!("DocumentsTable={}", stack.variable("STEWARD_DOCUMENTS_TABLE")));
    }
    let arguments = [&name, &template].into_iter().chain(&parameters).map(String::as_str);
    run("infra/deploy", &arguments.collect::<Vec<_>>()).await;
}

/// One task ends processed. In another one, the second agent reports a refusal, and both agents undo.
async fn carry_out(stack: &Stack, workflow: &str, [first, second]: [Example; 2]) {
    let definition = BY_EXAMPLES.replace("WORKFLOW", workflow);
    stack.publish(&definition.replace("FIRST", first.0).replace("SECOND", second.0)).await;
    for (fault, end) in
        [(Fault::Healthy, ProcessState::Processed), (Fault::Refuse, ProcessState::Undone)]
    {
        let id = task_id(stack, workflow, fault);
        stack.submit(&id, workflow, &Value::Null).await;
        assert_eq!(stack.ended(&id).await.process_state, end, "{id}");
        let ledger = stack.services.ledgers();
        let active = ledger.active_effects(DemoService::Inventory, &id);
        assert_eq!(active, if end == ProcessState::Processed { 2 } else { 0 }, "{id}");
    }
}

/// The id of a task whose second step has this fault, and whose other calls are healthy.
fn task_id(stack: &Stack, workflow: &str, fault: Fault) -> String {
    let undo = |id: &str, step| stack.plan.fault_of_undo(&format!("{id}/{step}/undo"));
    let fits = |id: &String| {
        stack.plan.fault(&format!("{id}/reserve/do")) == Fault::Healthy
            && stack.plan.fault(&format!("{id}/wrap/do")) == fault
            && ["reserve", "wrap"].iter().all(|step| undo(id, step) == Fault::Healthy)
    };
    (0..).map(|n| format!("{workflow}-{n}")).find(fits).unwrap()
}
