//! What a save is charged for: the size of the task's item, as DynamoDB counts it.

use std::time::Duration;

use aws_sdk_dynamodb::types::AttributeValue;
use steward_aws::{
    items::{WRITE_UNIT_BYTES, size},
    meter::total,
};
use steward_core::{
    ports::{Created, Ports, Saved, StateStore},
    task::{ProcessState, StepRecord, StepState, Task},
};

use super::{
    samples::{at, full_task, next, step, submission},
    worlds::{Embedded, World},
};

/// A task of twenty steps with names of 12 characters, `running` of them with an agent and the
/// others completed. Its id is a UUID, it has a trace and a queue for notices, and the schedulers'
/// names are as long as they are on AWS.
fn task_of_twenty_steps(running: u32) -> Task {
    let time = |seconds| at(seconds) + Duration::from_millis(123);
    let steps = (0..20).map(|n| {
        let (attempt, complete_by) = (1, time(60));
        let state = match n < running {
            true => StepState::Running { attempt, complete_by },
            false => StepState::Completed { attempt },
        };
        (step(&format!("step_name_{n:02}")), StepRecord::new(state))
    });
    let scheduler = Some("scheduler-0badcafe".to_owned());
    Task {
        version: 12,
        revision: 20,
        process_state: ProcessState::Processing,
        locked_by: scheduler.clone(),
        saved_by: scheduler,
        complete_by: time(3_600),
        failure_count: 0,
        submitted_at: time(0),
        ended_at: None,
        due: Some(time(30)),
        error: None,
        undo_reason: None,
        paused_at: None,
        input: None,
        parent: None,
        retention_s: None,
        commands: Vec::new(),
        steps: steps.collect(),
        ..full_task("0b0e6f3c-6a51-4a0e-9d0c-6f2a4b8f1e55")
    }
}

/// Creates the task and saves it twice; returns its item's size and the write units of the second
/// save, which leaves `due` as it is.
async fn stored_size(world: &Embedded, task: &Task) -> (usize, f64) {
    let store = world.ports().store();
    assert_eq!(store.create(task, &submission(task)).await.unwrap(), Created::Created);
    let units = || total(&world.meter.read(), "DynamoDB.PutItem").write_units;
    let before = units();
    assert_eq!(store.save(&next(task)).await.unwrap(), Saved::Saved);
    let used = units() - before;
    let client = aws_sdk_dynamodb::Client::new(&world.aws.sdk_config());
    let get = client.get_item().table_name(&world.config.tasks_table);
    let get = get.key("task_id", AttributeValue::S(task.task_id.to_string()));
    (size(&get.send().await.unwrap().item.unwrap()), used)
}

#[tokio::test]
async fn a_task_of_twenty_steps_costs_one_write_unit_a_save() {
    // Steps that are with an agent at once: one in a sequence, some in branches, all.
    for running in [0, 1, 5, 20] {
        let world = Embedded::open().await;
        let (bytes, units) = stored_size(&world, &task_of_twenty_steps(running)).await;
        assert!(bytes <= WRITE_UNIT_BYTES, "{running} running: {bytes} bytes");
        assert!((units - 1.0).abs() < f64::EPSILON, "{running} running: {units} units");
    }
}
