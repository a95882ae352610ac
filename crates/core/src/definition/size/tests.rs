//! The largest size of a task's item, and the limit.

use std::time::Duration;

use serde_json::json;

use super::*;

use crate::{
    definition::plan::Plan,
    engine::{
        self,
        decision::{DecisionContext, IgnoreReason, Transition},
        documents::LoadedDocuments,
        effect::Effect,
        event::Event,
        transition::transition,
    },
    model::{command::Command, task::StopCause, time::Timing},
};

/// A workflow with this many parallel steps with items, and names of the maximum length.
fn wide(steps: usize, undo: bool) -> Workflow {
    let step = |n: usize| {
        let mut step = json!({
            "agent": "a", "for_each": { "items": "${ input.items }", "at_once": 100 },
            "request": { "path": "/x" },
        });
        if undo {
            step["undo"] = json!({ "request": { "path": "/y" } });
        }
        (format!("step_{n:035}"), step)
    };
    let steps: serde_json::Map<_, _> = (0..steps).map(step).collect();
    serde_json::from_value(json!({ "name": "wide", "version": 1, "steps": steps })).unwrap()
}

/// The largest task as a value.
fn largest_task_value(workflow: &Workflow) -> Task {
    let steps = workflow.steps.iter().map(|(name, step)| {
        let has_undo = step.action(Action::Undo).is_some();
        let mut record = largest_record(has_undo);
        let recovery = &step.recovery;
        let limits =
            [recovery.give_up_after, recovery.key_valid_for].map(|of| of.map(|_| Timestamp::MAX));
        for progress in std::iter::once(&mut record.forward).chain(&mut record.undo) {
            [progress.give_up_at, progress.key_valid_until] = limits;
        }
        if let Some(each) = &step.for_each {
            let mut items = without_started_items(limits::ITEMS_MAX);
            let mut records = distinct(&record, each.at_once + PASSED_RECORDS).into_iter();
            let undone: Vec<_> = records.by_ref().take(each.at_once as usize).collect();
            let awaited = distinct(&StepRecord { undo: None, ..record.clone() }, each.at_once);
            let open = undone.into_iter().chain(awaited.into_iter().filter(|_| has_undo));
            let all = open.chain(records.cycle());
            all.take(limits::ITEMS_MAX as usize).for_each(|record| items.push(record));
            record.items = Some(items);
        }
        (name.clone(), record)
    });
    Task { steps: steps.collect(), ..largest_without_steps().unwrap() }
}

/// This many records of the same size, of which no two are equal.
fn distinct(record: &StepRecord, count: u32) -> Vec<StepRecord> {
    let of = |number| {
        let mut record = record.clone();
        record.forward.failure_count = u32::MAX - 1 - number;
        record
    };
    (0..count).map(of).collect()
}

#[test]
fn the_computed_size_is_that_of_the_largest_task() {
    let mut limited = wide(13, true);
    for step in limited.steps.values_mut() {
        for recovery in [&mut step.recovery, &mut step.undo.as_mut().unwrap().recovery] {
            recovery.give_up_after = Some(Duration::from_secs(60));
            recovery.key_valid_for = Some(Duration::from_secs(60));
        }
    }
    for workflow in [wide(1, true), wide(3, false), wide(13, true), limited] {
        let largest = largest_task_value(&workflow);
        let (computed, written) = (workflow.largest_task().bytes, task_bytes(&largest));
        assert!(written <= computed, "{computed} bytes computed, {written} written");
        let reserve = workflow.steps.len() * PASSED_RUNS_BYTES / 10;
        assert!(written + reserve > computed, "{computed} bytes computed, {written} written");
        assert_eq!(workflow.largest_task_with_parts_of(&largest), computed);
    }
}

#[test]
fn usual_records_have_the_size_of_the_constants() {
    let complete_by = "2026-06-01T12:00:00.123Z".parse().unwrap();
    for (state, bytes) in [
        (StepState::Running { attempt: 1, complete_by }, RUNNING_RECORD_BYTES),
        (StepState::Completed { attempt: Some(1) }, COMPLETED_RECORD_BYTES),
    ] {
        assert_eq!(bytes_of(&StepRecord::new(state)), bytes);
    }
}

#[test]
fn the_upper_bounds_are_large_enough() {
    let more = LARGEST_SIZES.several_agents + 2 * LARGEST_SIZES.time_limit;
    let largest = bytes_of(&largest_record(true)) + more;
    assert!(largest + 50 < PART_BYTES_BOUND, "{largest}");
    let rest = task_bytes(&largest_without_steps().unwrap());
    assert!(rest < REST_BYTES_BOUND, "{rest}");
    assert!(!is_over_limit(&largest_task_value(&wide(3, true))));
    assert!(is_over_limit(&largest_task_value(&wide(20, true))));
}

#[test]
fn a_definition_whose_tasks_could_be_too_large_is_refused_with_the_steps_that_need_most() {
    let problems = |workflow: &Workflow| {
        workflow.problems().iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    // Each of four steps may undo a hundred items at once.
    assert_eq!(problems(&wide(4, true)), [""; 0]);
    // Forty small steps, then three larger ones with an undo, the smallest of these first.
    let mut workflow = wide(40, false);
    let with_undo = wide(1, true).steps[0].clone();
    for name in ["large", "larger", "largest"] {
        workflow.steps.insert(name.parse().unwrap(), with_undo.clone());
    }
    let refused = problems(&workflow);
    assert_eq!(refused.len(), 1, "{refused:?}");
    for text in
        ["steps: a task could need ", "the limit is 350 KB", "100 items at once", "`workflow`"]
    {
        assert!(refused[0].contains(text), "{refused:?}");
    }
    let at = |name: &str| refused[0].find(&format!("`{name}`")).unwrap();
    assert!(at("largest") < at("larger") && at("larger") < at("large"), "{refused:?}");
    assert!(!refused[0].contains("step_0"), "{refused:?}");
}

#[test]
fn the_limit_leaves_a_reserve_below_the_limit_of_the_state_store() {
    let error = 4 * limits::ERROR_CHARS_MAX + 100;
    assert!(limits::TASK_ITEM_BYTES_MAX + error + 40_000 < 400 * 1_024);
}

/// A task with 5,300 running parts, all of them different: its item is just below the limit. Its definition is over the limit.
fn near_the_limit() -> (Plan, Task) {
    let mut workflow = wide(53, false);
    let running = StepState::Running { attempt: 1, complete_by: Timestamp::UNIX_EPOCH };
    let progress = Progress { input_edit_id: longest(36), ..Progress::new(running) };
    let part = StepRecord { forward: progress, ..StepRecord::new(StepState::RunningItems) };
    let count = limits::ITEMS_AT_ONCE_MAX;
    let steps = workflow.steps.keys().map(|name| {
        let started = distinct(&part, count);
        let items = Some(ItemRecords::with_started(count, started));
        (name.clone(), StepRecord { items, ..StepRecord::new(StepState::RunningItems) })
    });
    let task = Task {
        steps: steps.collect(),
        commands: Vec::new(),
        ended_at: None,
        undo_is_final: false,
        is_alert_due: false,
        stop_cause: StopCause::default(),
        paused_at: None,
        error: None,
        undo_reason: None,
        input_edit_id: None,
        complete_by: Timestamp::MAX,
        due: Some(Timestamp::UNIX_EPOCH),
        failure_count: 0,
        ..largest_without_steps().unwrap()
    };
    // One more step, which the task has not started.
    workflow.steps.insert("more".parse().unwrap(), wide(1, true).steps[0].clone());
    (Plan::new(workflow).unwrap(), task)
}

#[test]
fn a_task_that_would_grow_over_the_limit_stops_in_error_with_an_alert_and_refuses_commands_once_it_is_full()
 {
    let (plan, task) = near_the_limit();
    let before = task_bytes(&task);
    assert!((300_000..limits::TASK_ITEM_BYTES_MAX).contains(&before), "{before}");
    let context = context();
    let no_documents = LoadedDocuments::new();

    // The sweep abandons every part, which needs more space than there is.
    let swept = transition(&plan, &task, &no_documents, &Event::Swept, context).unwrap();

    let Transition::Apply { task: stopped, documents, effects } = swept else {
        panic!("{swept:?}")
    };
    assert_eq!((stopped.process_state, documents.len()), (ProcessState::Error, 0));
    assert!(stopped.error.as_ref().unwrap().contains("350 KB"), "{:?}", stopped.error);
    assert!(task_bytes(&stopped) < before + 700);
    assert_eq!(effects.iter().filter(is_alert).count(), 1);

    // Commands are recorded until there is no space left. Further commands are refused with an event.
    let mut task = *stopped;
    let command = |n: usize| {
        let order = json!({
            "command_id": format!("c-{n}"), "task_id": task.task_id, "by": "b".repeat(200),
            "why": "w".repeat(200), "order": { "command": "pause" }, "issued_at": context.now,
        });
        let command: Command = serde_json::from_value(order).unwrap();
        Event::CommandReceived(command.received_from("AIDAANN".parse().unwrap()))
    };
    let commands: Vec<_> = (0..200).map(command).collect();
    let mut refused = 0;
    // Leaves room for only a few commands.
    let free = u32::try_from(limits::TASK_ITEM_BYTES_MAX - task_bytes(&task)).unwrap();
    task.steps.insert(
        "more".parse().unwrap(),
        StepRecord {
            items: Some(ItemRecords::with_started(
                100,
                distinct(&largest_record(true), free / 310),
            )),
            ..StepRecord::new(StepState::RunningItems)
        },
    );
    for event in &commands {
        match transition(&plan, &task, &no_documents, event, context).unwrap() {
            Transition::Apply { task: next, .. } => task = *next,
            Transition::Ignore { reason, effects } => {
                assert_eq!((reason, effects.len()), (IgnoreReason::NoRoom, 1));
                refused += 1;
            }
            Transition::Illegal(reason) => panic!("{reason}"),
        }
        assert!(task_bytes(&task) <= limits::TASK_ITEM_BYTES_MAX + 700);
    }
    assert!(refused > 0);
}

#[test]
fn an_effect_that_comes_to_light_in_a_full_task_that_is_undone_is_recorded() {
    let (plan, mut task) = near_the_limit();
    task.process_state = ProcessState::Undone;
    (task.ended_at, task.due, task.resolved_at) = (Some(Timestamp::UNIX_EPOCH), None, None);
    let failed = StepRecord::new(StepState::Failed { attempt: Some(1) });
    task.steps.insert("more".parse().unwrap(), failed);
    task.undo_reason = Some(String::new());
    task.undo_reason = Some("x".repeat(limits::TASK_ITEM_BYTES_MAX - task_bytes(&task)));
    let completed = engine::tests::completed(json!(null));
    let mut reply = engine::tests::reply("more", Action::Do, 1, completed);
    reply.task_id = task.task_id.clone();
    let reply = Event::ReplyReceived(reply);
    let decided = transition(&plan, &task, &LoadedDocuments::new(), &reply, context()).unwrap();
    let Transition::Apply { task: undone_further, .. } = decided else { panic!("{decided:?}") };
    assert_eq!(undone_further.process_state, ProcessState::Undoing);
}

/// A decision of a supervisor in 2027.
fn context() -> DecisionContext<'static> {
    DecisionContext {
        now: Timestamp::from_second(1_800_000_000).unwrap(),
        actor: "supervisor",
        redelivered: false,
        lost_starts: None,
        timing: Timing {
            pickup_within: Duration::from_secs(60),
            clock_skew: Duration::ZERO,
            retention: Timing::RETENTION,
        },
        callback_urls: None,
    }
}

fn is_alert(effect: &&Effect) -> bool {
    matches!(effect, Effect::Publish(event) if event.alerted_end().is_some())
}
