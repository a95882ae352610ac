//! An agent that is a stack of its own: it is registered, runs tasks, and is deregistered. The main stack does not change.

use std::rc::Rc;

use steward_core::model::{registration::AgentRegistration, task::ProcessState};
use steward_demo::services::{DemoService, Fault};
use steward_runtime::ports::{SharedRecordKey, SharedRecordKind, StateStore};

use super::{
    agent_stacks::{delete_agent, deploy_agent},
    stack::Stack,
    target::deployment_target,
};

const AGENT: &str = "courier";

const BY_COURIER: &str = r#"
name: by-courier
version: 1
steps:
  reserve:
    agent: courier
    request: { path: /reservations, body: { order: "${ task.id }", items: [] } }
"#;

pub(super) async fn agent_is_a_stack_of_its_own(stack: Rc<Stack>) {
    let service = stack.services.base_url(DemoService::Inventory);
    let public = deployment_target().services_url.as_ref();
    let service = public.map_or(service, |url| format!("{url}/inventory"));
    let parameters = [
        "Version=e2e".to_owned(),
        format!("BaseUrl={service}"),
        format!("SecretArn={}", stack.secret),
        "RatePerSecond=2.5".to_owned(),
        "Burst=4".to_owned(),
    ];
    deploy_agent(&stack, AGENT, &parameters).await;
    let is_registered = deployment_target().has_custom_resources("own agent: its registration");
    if is_registered {
        check_registration(&stack).await;
    }

    stack.publish(BY_COURIER).await;
    let submit = async |prefix: &str| {
        let id = stack.order_with(prefix, "reserve", |fault| fault == Fault::Healthy);
        stack.submit(&id, "by-courier", &serde_json::Value::Null).await;
        stack.ended(&id).await.process_state
    };
    assert_eq!(submit("courier").await, ProcessState::Processed);
    // The call took a token: the agent's role may write the record.
    let key = SharedRecordKey { kind: SharedRecordKind::Rate, name: AGENT.to_owned() };
    assert!(stack.store().shared_record(&key).await.unwrap().is_some());

    delete_agent(&stack, AGENT).await;
    if is_registered {
        assert!(registration(&stack).await.deleted_at.is_some());
    }
    // The step fails at once: there is no queue.
    assert_ne!(submit("no-courier").await, ProcessState::Processed);
}

async fn check_registration(stack: &Stack) {
    let registered = registration(stack).await;
    assert_eq!(registered.dead_letter_queue.as_str(), stack.name_of("agent-courier-dead-letters"));
    assert_eq!(registered.version.unwrap().as_str(), "e2e");
    assert_eq!(registered.calls_at_once.unwrap().get(), 20);
    assert_eq!(registered.rate_per_second.map(f64::from), Some(2.5));
    assert_eq!(registered.burst.unwrap().get(), 4);
}

async fn registration(stack: &Stack) -> AgentRegistration {
    let key = SharedRecordKey { kind: SharedRecordKind::Agent, name: AGENT.to_owned() };
    let record = stack.store().shared_record(&key).await.unwrap().expect("a registration");
    serde_json::from_value(record.body).unwrap()
}
