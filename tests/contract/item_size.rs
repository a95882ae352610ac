//! The size of a task's item as DynamoDB counts it: it determines the write units of a save.

use std::{num::NonZeroU32, time::Duration};

use aws_sdk_dynamodb::types::AttributeValue;
use steward_aws::{
    items::{Items, WRITE_UNIT_BYTES, size},
    meter::total,
};
use steward_core::{
    definition::{
        size::{item_bytes, task_bytes},
        workflow::Workflow,
    },
    model::{
        earlier_key::{Denial, EarlierKey, Ran},
        inline_documents::InlineDocuments,
        items::ItemRecords,
        step::{Progress, StepRecord, StepState},
        task::{ProcessState, StopCause, Task},
    },
};
use steward_runtime::ports::{CreateOutcome, Ports, SaveOutcome, StateStore};

use super::{
    backends::{AwsBackend, Backend},
    samples::{at, full_task, next, step, submission},
};

/// A task of twenty steps with names of 12 characters; `running` of them are running, and the others are completed. Its
/// id is a UUID, it has a trace and a reply queue, and the instance names are as long as on AWS.
fn task_of_twenty_steps(running: u32) -> Task {
    let time = |seconds| at(seconds) + Duration::from_millis(123);
    let steps = (0..20).map(|n| {
        let (attempt, complete_by) = (1, time(60));
        let state = match n < running {
            true => StepState::Running { attempt, complete_by },
            false => StepState::Completed { attempt: Some(attempt) },
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
        resolved_at: None,
        undo_reason: None,
        undo_is_final: false,
        late_at: None,
        is_alert_due: false,
        stop_cause: StopCause::default(),
        paused_at: None,
        input_edit_id: None,
        labels: [].into(),
        parent: None,
        retention_for_parent: None,
        rerun: None,
        retention_s: None,
        commands: Vec::new(),
        documents: InlineDocuments::default(),
        steps: steps.collect(),
        ..full_task("0b0e6f3c-6a51-4a0e-9d0c-6f2a4b8f1e55")
    }
}

/// Creates the task and saves it with the same due time; returns the size of its item and the write units of the save.
async fn stored_size(backend: &AwsBackend, task: &Task) -> (usize, f64) {
    let store = backend.ports().store();
    assert_eq!(store.create(task, Some(&submission(task))).await.unwrap(), CreateOutcome::Created);
    let units = || total(&backend.meter.read(), "DynamoDB.PutItem").write_units;
    let before = units();
    assert_eq!(store.save(&next(task)).await.unwrap(), SaveOutcome::Saved);
    let used = units() - before;
    let client = aws_sdk_dynamodb::Client::new(&backend.aws.sdk_config());
    let get = client.get_item().table_name(&backend.config.tasks_table);
    let get = get.key("task_id", AttributeValue::S(task.task_id.to_string()));
    (size(&get.send().await.unwrap().item.unwrap()), used)
}

#[tokio::test]
async fn a_task_of_twenty_steps_costs_one_write_unit_a_save() {
    // Running steps: none, one in a sequence, several in branches, all.
    for running in [0, 1, 5, 20] {
        let backend = AwsBackend::open_in_process().await;
        let (bytes, units) = stored_size(&backend, &task_of_twenty_steps(running)).await;
        assert!(bytes <= WRITE_UNIT_BYTES, "{running} running: {bytes} bytes");
        assert!((units - 1.0).abs() < f64::EPSILON, "{running} running: {units} units");
    }
}

/// Pseudorandom numbers (xorshift), the same on every run.
struct SeededRandom(u64);

impl SeededRandom {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    fn chance(&mut self) -> bool {
        self.below(2) == 0
    }

    fn text(&mut self, chars_max: u64) -> String {
        let character = ["a", "\u{fc}", "\u{8cbb}", "\u{1f4b3}"][self.below(4) as usize];
        character.repeat(self.below(chars_max + 1) as usize)
    }

    fn number(&mut self) -> u32 {
        [0, 1, 99, 100_000, u32::MAX][self.below(5) as usize]
    }

    fn state(&mut self) -> StepState {
        let (attempt, complete_by) = (self.number(), at(self.below(1_000_000_000)));
        let newest = (attempt > 0).then_some(attempt);
        match self.below(7) {
            0 => StepState::Running { attempt, complete_by },
            1 => StepState::AwaitingCallback { attempt, complete_by, answer_by: complete_by },
            2 => StepState::RunningItems,
            3 => {
                let complete_by = self.chance().then_some(complete_by);
                StepState::Waiting { attempt: newest, until: at(5), complete_by }
            }
            4 => StepState::Completed { attempt: newest },
            5 => StepState::Failed { attempt: newest },
            _ => StepState::Skipped { attempt: newest },
        }
    }

    fn progress(&mut self) -> Progress {
        let mut progress = Progress {
            failure_count: self.number(),
            may_have_run: self.chance(),
            input_edit_id: self.chance().then(|| "c-".repeat(18).parse().unwrap()),
            give_up_at: self.chance().then(|| at(self.below(1_000_000_000))),
            key_valid_until: self.chance().then(|| at(self.below(1_000_000_000))),
            ..Progress::new(self.state())
        };
        if self.chance() {
            progress.set_started_at(at(self.below(1_000_000_000)));
        }
        progress
    }

    fn record(&mut self, has_undo: bool) -> StepRecord {
        let undo = (has_undo && self.chance()).then(|| self.progress());
        let earlier = (0..self.below(6)).map(|_| self.earlier_key()).collect();
        let run = Progress { second_delivery_may_act: self.chance(), ..self.progress() };
        StepRecord { forward: run, undo, earlier, items: None }
    }

    fn earlier_key(&mut self) -> EarlierKey {
        EarlierKey {
            since: self.number(),
            agent: self.chance().then(|| self.number()),
            input_edit_id: self.chance().then(|| "c-".repeat(18).parse().unwrap()),
            ran: if self.chance() { Ran::Yes } else { Ran::No },
            output_of: self.chance().then(|| self.number()),
            denied: self.chance().then(|| Denial { through: self.number(), known: Ran::Maybe }),
            undone: self.chance(),
            child_revision: self.chance().then(|| self.number().into()),
        }
    }

    /// A definition with a few steps, some with items and some with an undo; and a task of that definition.
    fn task(&mut self) -> (Workflow, Task) {
        let mut definitions = serde_json::Map::new();
        let mut steps = std::collections::BTreeMap::new();
        for n in 0..1 + self.below(12) {
            let (has_items, has_undo) = (self.chance(), self.chance());
            let recovery = serde_json::json!({ "give_up_after": "1d", "key_valid_for": "1d" });
            let mut definition = serde_json::json!({
                "agent": ["a", "b"], "request": { "path": "/x" }, "recovery": recovery,
            });
            if has_items {
                definition["for_each"] =
                    serde_json::json!({ "items": "${ input.items }", "at_once": 100 });
            }
            if has_undo {
                definition["undo"] =
                    serde_json::json!({ "request": { "path": "/y" }, "recovery": recovery });
            }
            let name = format!("step_{n}_{}", "x".repeat(self.below(30) as usize));
            let mut record = self.record(has_undo);
            if has_items {
                let count = self.below(101) as u32;
                let begun = (0..self.below(u64::from(count) + 1)).map(|_| self.record(has_undo));
                record.items = Some(ItemRecords::with_started(count, begun));
            }
            steps.insert(step(&name), record);
            definitions.insert(name, definition);
        }
        let definition = serde_json::json!({ "name": "order", "version": 1, "steps": definitions });
        let full = full_task("0b0e6f3c-6a51-4a0e-9d0c-6f2a4b8f1e55");
        let mut commands = Vec::new();
        for n in 0..self.below(21) {
            let mut command = full.commands[0].clone();
            command.id = format!("c-{n}").parse().unwrap();
            command.why = self.text(200);
            command.by = self.text(200);
            command.refused = self.chance().then(|| self.text(200));
            commands.push(command);
        }
        let (error, undo_reason) = (Some(self.text(120)), Some(self.text(120)));
        let due = self.chance().then_some(at(7));
        (
            serde_json::from_value(definition).unwrap(),
            Task { steps, commands, error, undo_reason, due, ..full },
        )
    }
}

#[test]
fn no_task_item_is_larger_than_computed_from_its_definition() {
    let items = Items { shards: NonZeroU32::MAX, retention: Duration::from_secs(u32::MAX.into()) };
    for seed in 1..=500 {
        let (workflow, task) = SeededRandom(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed)).task();
        let real = size(&items.task(&task).unwrap());
        let usual = Items { shards: NonZeroU32::new(8).unwrap(), ..items };
        let (usual, estimated) = (size(&usual.task(&task).unwrap()), item_bytes(&task));
        // A task that is due and has ended has no expiry yet.
        assert!((usual..=usual + 24).contains(&estimated), "seed {seed}: {usual}, not {estimated}");
        let (computed, most) = (task_bytes(&task), workflow.largest_task().bytes);
        assert!(real <= computed, "seed {seed}: {real} bytes, computed as {computed}");
        // The computed size includes attributes that the store may add.
        assert!(computed - real <= 300, "seed {seed}: {real} bytes, computed as {computed}");
        assert!(computed <= most, "seed {seed}: {computed} bytes; the definition allows {most}");
    }
}
