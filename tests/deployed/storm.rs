//! Orders and drone deliveries through services on a bad day, while functions are killed: each ends, and
//! the services' own books agree with how.

use std::rc::Rc;

use futures_util::{StreamExt, stream};
use steward_core::model::task::ProcessState;
use steward_demo::{audit::Audit, scenario::Shipped};

use super::{emulator::wait_for, functions::kill, stack::Stack};

/// Which functions die, one after the other. Not the submission's: nothing but its queue knows of what it
/// has in hand, and that gives it out again after three minutes.
const KILLED: [&str; 6] =
    ["scheduler", "agent-payment", "scheduler", "agent-transport", "supervisor", "agent-inventory"];

pub(super) async fn every_task_ends_though_functions_are_killed(stack: Rc<Stack>) {
    let (orders, deliveries, ()) = tokio::join!(
        run(&stack, Shipped::Order, 60),
        run(&stack, Shipped::DroneDelivery, 30),
        kill_functions(&stack),
    );
    let count = |audit: &Audit, state| audit.by_state.get(&state).copied().unwrap_or_default();
    for audit in [&orders, &deliveries] {
        eprintln!("{:?}", audit.by_state);
        assert_eq!(audit.findings, [] as [String; 0]);
        assert!(count(audit, ProcessState::Processed) > 0);
        assert!(count(audit, ProcessState::Undone) > 0);
    }
    assert!(count(&orders, ProcessState::Error) > 0, "no undo was refused: choose another seed");
}

async fn run(stack: &Stack, shipped: Shipped, tasks: usize) -> Audit {
    let scenario = shipped.scenario();
    let submit = |number| async move {
        stack.submit(&scenario.task_id(number), scenario.name(), &scenario.input(number)).await;
    };
    stream::iter(0..tasks).for_each_concurrent(8, submit).await;
    let ended = |number| async move { stack.ended(&scenario.task_id(number)).await };
    let ended: Vec<_> = stream::iter(0..tasks).map(ended).buffered(4).collect().await;
    for task in &ended {
        let told = format!("{} {}", task.task_id, task.process_state.to_string().to_lowercase());
        wait_for(&told, async || stack.noticed.lock().unwrap().contains(&told).then_some(())).await;
        if task.process_state == ProcessState::Error {
            let id = task.task_id.to_string();
            let alerted = async || stack.alerted.lock().unwrap().contains(&id).then_some(());
            wait_for(&format!("an alert of {id}"), alerted).await;
        }
    }
    let (ledger, alerted) = (stack.services.ledger(), stack.alerted.lock().unwrap().clone());
    let mut audit = Audit::of(scenario);
    for (number, task) in ended.iter().enumerate() {
        audit.check(number, Some(task), &ledger, &alerted);
    }
    audit
}

/// Kills every process of one function after the other, with whatever it has in hand.
async fn kill_functions(stack: &Stack) {
    for function in KILLED {
        kill(&stack.name_of(function)).await;
    }
}
