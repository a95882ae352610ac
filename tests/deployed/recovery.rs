//! An agent is killed during a call. Its queue would redeliver the request after twelve minutes; the supervisor, which
//! sweeps every ten seconds, detects earlier that complete-by has passed.

use std::rc::Rc;

use steward_core::model::task::ProcessState;
use steward_demo::{
    example_workflow::ExampleWorkflow,
    services::{DemoService, Fault},
};

use super::{aws_requests::wait_for, functions::kill, stack::Stack};

pub(super) async fn supervisor_recovers_the_task_of_a_killed_agent(stack: Rc<Stack>) {
    // The first call hangs, so there is time to kill the agent.
    let id = stack.order_with("killed", "charge", |fault| fault == Fault::Hang);
    let scenario = ExampleWorkflow::Order.scenario();
    stack.submit(&id, scenario.name(), &scenario.input(0)).await;
    let charging = async || {
        let task = stack.task(&id).await?;
        task.steps.contains_key("charge").then_some(())
    };
    wait_for("the charge", charging).await;
    kill(&stack.name_of("agent-payment")).await;
    let task = stack.ended(&id).await;
    assert_eq!(task.process_state, ProcessState::Processed);
    assert!(task.failure_count > 0, "the supervisor counted no failure");
    let ledger = stack.services.ledgers();
    assert_eq!(ledger.effects(DemoService::Payment, &id), 1);
}
