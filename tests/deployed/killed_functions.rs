//! Orders and drone deliveries run with faulty services while functions are killed. Each task must end, and its state must
//! agree with the ledgers of the services.

use std::rc::Rc;

use futures_util::{StreamExt, stream};
use steward_core::model::task::ProcessState;
use steward_demo::{audit::Audit, example_workflow::ExampleWorkflow};

use super::{aws_requests::wait_for, functions::kill, stack::Stack};

/// The functions to kill, one after the other. The submission function is excluded: only its queue has the unprocessed
/// submissions, and redelivers them after three minutes.
const KILLED: [&str; 6] =
    ["scheduler", "agent-payment", "scheduler", "agent-transport", "supervisor", "agent-inventory"];

pub(super) async fn every_task_ends_although_functions_are_killed(stack: Rc<Stack>) {
    let (orders, deliveries, ()) = tokio::join!(
        run(&stack, ExampleWorkflow::Order, 60),
        run(&stack, ExampleWorkflow::DroneDelivery, 30),
        kill_functions(&stack),
    );
    let count = |audit: &Audit, state| audit.by_state.get(&state).copied().unwrap_or_default();
    for audit in [&orders, &deliveries] {
        eprintln!("{:?}", audit.by_state);
        assert_eq!(audit.findings, [] as [String; 0]);
        assert!(count(audit, ProcessState::Processed) > 0);
        assert!(count(audit, ProcessState::Undone) > 0);
    }
    assert!(count(&orders, ProcessState::Error) > 0, "no undo failed: choose another seed");
}

async fn run(stack: &Stack, shipped: ExampleWorkflow, tasks: usize) -> Audit {
    let scenario = shipped.scenario();
    let submit = |number| async move {
        stack.submit(&scenario.task_id(number), scenario.name(), &scenario.input(number)).await;
    };
    stream::iter(0..tasks).for_each_concurrent(8, submit).await;
    let ended = |number| async move { stack.ended(&scenario.task_id(number)).await };
    let ended: Vec<_> = stream::iter(0..tasks).map(ended).buffered(4).collect().await;
    for task in &ended {
        let notification =
            format!("{} {}", task.task_id, task.process_state.to_string().to_lowercase());
        wait_for(&notification, async || {
            stack.notified.lock().unwrap().contains(&notification).then_some(())
        })
        .await;
        if task.process_state == ProcessState::Error {
            let id = task.task_id.to_string();
            let alerted = async || stack.alerted.lock().unwrap().contains(&id).then_some(());
            wait_for(&format!("an alert of {id}"), alerted).await;
        }
    }
    let (ledger, alerted) = (stack.services.ledgers(), stack.alerted.lock().unwrap().clone());
    let mut audit = Audit::of(scenario);
    for (number, task) in ended.iter().enumerate() {
        audit.check(number, Some(task), &ledger, &alerted);
    }
    audit
}

/// Kills all processes of one function after the other.
async fn kill_functions(stack: &Stack) {
    for function in KILLED {
        kill(&stack.name_of(function)).await;
    }
}
