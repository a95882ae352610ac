//! How large a task's item can become. DynamoDB takes no item over 400 KB, and a task whose item is
//! larger can be saved no more. So the largest item that a definition can produce is computed when the
//! definition is checked, and a definition above [`TASK_ITEM_BYTES_MAX`](limits::TASK_ITEM_BYTES_MAX) is
//! refused. The space between that and DynamoDB's limit is a reserve: a task that grows too large
//! nonetheless, since its definition was published before there was this check, can still be saved in
//! Error.
//!
//! Every field of the item is written out here, without `..`: who adds a field decides how large it is.

use crate::definition::step::StepDefinition;
use crate::definition::workflow::Workflow;
use std::{str::FromStr, sync::LazyLock};

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use crate::{
    limits,
    model::{
        attempt::Action,
        command::CommandRecord,
        document::Kept,
        messages::Parent,
        names::{Incarnation, Part, StepName, TaskId},
        step::{Items, Progress, StepRecord, StepState},
        task::{ProcessState, Task},
    },
};

/// Bytes of what the state store adds to a task: its shard, its time of expiry, its part of the index of
/// tasks that have ended, each with its name.
const STORE_BYTES: usize = 200;

/// Characters of an instance's name, as `scheduler-0badcafe`.
const INSTANCE_CHARS: usize = 64;

/// Characters of the URL of a client's queue.
const URL_CHARS: usize = 1_024;

/// More than any item has: of what cannot be measured.
const UNKNOWN: usize = usize::MAX / 4;

/// More than the record of any part, and of the rest of a task: what is certainly small enough is not
/// written out to be measured.
const PART_BYTES_ROUGHLY: usize = 700;
const REST_BYTES_ROUGHLY: usize = 80_000;

/// The largest item that tasks of a workflow can have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LargestTask {
    /// Bytes of it, as DynamoDB counts them.
    pub bytes: usize,
    /// Bytes that each step contributes, the largest first, with how many parts it has.
    pub steps: Vec<(StepName, usize, u32)>,
}

/// Bytes of what tasks are made of, each at its largest.
struct Largest {
    with_undo: usize,
    without_undo: usize,
    command: usize,
    rest: usize,
}

static LARGEST: LazyLock<Largest> = LazyLock::new(|| Largest {
    with_undo: bytes_of(&largest_record(true)),
    without_undo: bytes_of(&largest_record(false)),
    // What cannot be computed is refused; the tests show that it can. One more for the entry in the list.
    command: largest_command().map_or(UNKNOWN, |command| 1 + bytes_of(&command)),
    rest: largest_without_steps().map_or(UNKNOWN, |task| task_bytes(&task)),
});

impl Workflow {
    /// The largest item that a task of this workflow can have: every part has been done and undone, in the
    /// states that take most room, twenty commands are on record, and every text is as long as may be.
    #[must_use]
    pub fn largest_task(&self) -> LargestTask {
        let step = |(name, step): (&StepName, &StepDefinition)| {
            let count = if step.for_each.is_some() { limits::ITEMS_MAX } else { 1 };
            (name.clone(), step_bytes(name, step, count), count)
        };
        let mut steps: Vec<_> = self.steps.iter().map(step).collect();
        steps.sort_by_key(|(_, bytes, _)| std::cmp::Reverse(*bytes));
        let all: usize = steps.iter().map(|(_, bytes, _)| bytes).sum();
        LargestTask { bytes: LARGEST.rest.saturating_add(all), steps }
    }

    /// The same with only as many items and commands as `task` has. Tests compare real tasks with it: a
    /// mistake in the computation shows long before a task is large.
    #[must_use]
    pub fn largest_task_with_parts_of(&self, task: &Task) -> usize {
        let begun = |name| {
            let items = task.steps.get(name).and_then(|record| record.items.as_ref());
            items.map_or(0, |items| u32::try_from(items.begun.len()).unwrap_or(u32::MAX))
        };
        let steps: usize =
            self.steps.iter().map(|(name, step)| step_bytes(name, step, begun(name))).sum();
        let unused = limits::COMMANDS_KEPT_MAX.saturating_sub(task.commands.len());
        LARGEST.rest.saturating_sub(unused * LARGEST.command).saturating_add(steps)
    }
}

/// The bytes that the record of one part of a step needs at its largest.
#[must_use]
pub fn largest_part(step: &StepDefinition) -> usize {
    let has_undo = step.action(Action::Undo).is_some();
    if has_undo { LARGEST.with_undo } else { LARGEST.without_undo }
}

/// The bytes of the record of one part, without those of its items.
#[must_use]
pub fn part_bytes(record: &StepRecord) -> usize {
    bytes_of(&StepRecord { run: record.run.clone(), undo: record.undo.clone(), items: None })
}

/// The bytes that a step contributes at its largest, with so many items if it has items.
fn step_bytes(name: &StepName, step: &StepDefinition, count: u32) -> usize {
    let record = largest_part(step);
    let items = if step.for_each.is_some() { items_bytes(count, record) } else { 0 };
    // One more for the entry in the map of steps.
    name.as_str().len() + record + items + 1
}

impl LargestTask {
    /// What is wrong with it, if it is too large.
    pub(super) fn problem(&self) -> Option<String> {
        let max = limits::TASK_ITEM_BYTES_MAX;
        if self.bytes <= max {
            return None;
        }
        let most = self.steps.iter().take(3).map(|(name, bytes, parts)| {
            let of = if *parts > 1 { format!(", {parts} items") } else { String::new() };
            format!("`{name}` {} KB{of}", bytes.div_ceil(1_000))
        });
        let most: Vec<_> = most.collect();
        Some(format!(
            "a task could need {} KB in the state store; the limit is {} KB. Most is needed by {}",
            self.bytes.div_ceil(1_000),
            max / 1_000,
            most.join("; ")
        ))
    }
}

/// Whether the item of `task` is over the limit.
#[must_use]
pub fn is_over_limit(task: &Task) -> bool {
    let items = task.steps.values().filter_map(|record| record.items.as_ref());
    let parts = task.steps.len() + items.map(|items| items.begun.len()).sum::<usize>();
    // What is certainly small enough is not measured: this is asked at every decision.
    REST_BYTES_ROUGHLY + parts * PART_BYTES_ROUGHLY > limits::TASK_ITEM_BYTES_MAX
        && task_bytes(task) > limits::TASK_ITEM_BYTES_MAX
}

/// The bytes of a task's item, as DynamoDB counts them; with what the store adds to it, and some to spare.
#[must_use]
pub fn task_bytes(task: &Task) -> usize {
    // An item is a map; of the outermost, DynamoDB counts names and values only.
    bytes_of(task) + STORE_BYTES
}

/// The bytes of a value in an item by DynamoDB's rule: names and texts as UTF-8, two digits of a number a
/// byte and one more, 3 bytes for a map or a list and 1 for each of its values.
/// <https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/CapacityUnitCalculations.html>
fn bytes_of(value: &impl Serialize) -> usize {
    fn bytes(value: &Value) -> usize {
        match value {
            Value::Null | Value::Bool(_) => 1,
            Value::Number(number) => number.to_string().len().div_ceil(2) + 1,
            Value::String(text) => text.len(),
            Value::Array(values) => 3 + values.iter().map(|value| 1 + bytes(value)).sum::<usize>(),
            Value::Object(fields) => {
                3 + fields.iter().map(|(name, value)| 1 + name.len() + bytes(value)).sum::<usize>()
            }
        }
    }
    // Our own types always are JSON: their keys are texts.
    serde_json::to_value(value).map_or(UNKNOWN, |value| bytes(&value))
}

/// What so many items add to the record of their step: `p`, a map of `n` and the list `l`.
fn items_bytes(count: u32, record: usize) -> usize {
    let none = bytes_of(&Items { count, begun: Vec::new() });
    let entry = 1 + "p".len();
    let list = 1 + "l".len() + 3;
    entry + none + list + count as usize * (1 + record)
}

/// The record of a part that takes most room.
fn largest_record(has_undo: bool) -> StepRecord {
    let progress = largest_progress();
    StepRecord { undo: has_undo.then(|| progress.clone()), run: progress, items: None }
}

fn largest_progress() -> Progress {
    let of = |state: StepState| Progress {
        completed_by: matches!(state, StepState::Completed { .. })
            .then(|| longest(limits::COMMAND_ID_CHARS_MAX))
            .flatten(),
        state,
        failure_count: u32::MAX,
        may_have_run: true,
        in_progress_until: Some(Timestamp::MAX),
        input: longest(limits::COMMAND_ID_CHARS_MAX),
        child_revision: Some(u64::MAX),
    };
    let all = every_state().map(of);
    all.into_iter().max_by_key(bytes_of).unwrap_or_else(|| of(StepState::Each))
}

/// Each state, with the values that take most room.
fn every_state() -> [StepState; 7] {
    let (attempt, time) = (u32::MAX, Timestamp::MAX);
    let all = [
        StepState::Running { attempt, complete_by: time },
        StepState::HandedOut { attempt, complete_by: time, answer_by: time },
        StepState::Each,
        StepState::Waiting { attempt, until: time, complete_by: Some(time) },
        StepState::Completed { attempt },
        StepState::Failed { attempt },
        StepState::Skipped { attempt },
    ];
    // A new state is to be added above.
    for state in &all {
        match state {
            StepState::Running { .. }
            | StepState::HandedOut { .. }
            | StepState::Each
            | StepState::Waiting { .. }
            | StepState::Completed { .. }
            | StepState::Failed { .. }
            | StepState::Skipped { .. } => {}
        }
    }
    all
}

/// A text of letters, as long as may be, as the name or id that it is wanted for.
fn longest<T: FromStr>(chars: usize) -> Option<T> {
    "x".repeat(chars).parse().ok()
}

/// A text of characters that take the most bytes.
fn widest(chars: usize) -> String {
    "\u{1f4b3}".repeat(chars)
}

fn largest_command() -> Option<CommandRecord> {
    Some(CommandRecord {
        id: longest(limits::COMMAND_ID_CHARS_MAX)?,
        command: widest(limits::COMMAND_TEXT_CHARS_MAX),
        by: widest(limits::COMMAND_TEXT_CHARS_MAX),
        why: widest(limits::COMMAND_TEXT_CHARS_MAX),
        at: Timestamp::MAX,
        refused: Some(widest(limits::COMMAND_TEXT_CHARS_MAX)),
    })
}

fn largest_without_steps() -> Option<Task> {
    let time = Timestamp::MAX;
    let incarnation = Some(Incarnation::recorded_at(time));
    let command = largest_command()?;
    let task_id: TaskId = longest(limits::TASK_ID_CHARS_MAX)?;
    let part = Part { step: longest(limits::NAME_CHARS_MAX)?, item: Some(limits::ITEMS_MAX - 1) };
    Some(Task {
        parent: Some(Parent { task_id: task_id.clone(), step: part, depth: u32::MAX, incarnation }),
        task_id,
        workflow: longest(limits::NAME_CHARS_MAX)?,
        version: u32::MAX,
        process_state: ProcessState::Processing,
        revision: u64::MAX,
        locked_by: Some("x".repeat(INSTANCE_CHARS)),
        saved_by: Some("x".repeat(INSTANCE_CHARS)),
        complete_by: time,
        failure_count: u32::MAX,
        submitted_at: time,
        incarnation,
        ended_at: Some(time),
        due: Some(time),
        reply_to: Some("x".repeat(URL_CHARS)),
        kept_for_parent: Some(Kept { from: time, retention_s: Some(u64::MAX) }),
        kept_from: Some(time),
        retention_s: Some(u64::MAX),
        traceparent: Some("x".repeat(limits::TRACEPARENT_CHARS_MAX)),
        error: Some(widest(limits::ERROR_CHARS_MAX)),
        undo_reason: Some(widest(limits::ERROR_CHARS_MAX)),
        paused_at: Some(time),
        input: longest(limits::COMMAND_ID_CHARS_MAX),
        commands: vec![command; limits::COMMANDS_KEPT_MAX],
        steps: [].into(),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::definition::plan::Plan;

    use crate::{
        engine::{
            decision::{Context, Ignored, Transition},
            documents::Documents,
            effect::Effect,
            event::Event,
            transition::transition,
        },
        model::time::Timing,
    };

    /// So many steps beside each other, with items, of names as long as may be.
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

    /// The largest task itself.
    fn written_out(workflow: &Workflow) -> Task {
        let steps = workflow.steps.iter().map(|(name, step)| {
            let has_undo = step.action(Action::Undo).is_some();
            let mut record = largest_record(has_undo);
            if step.for_each.is_some() {
                let count = limits::ITEMS_MAX;
                let begun = vec![record.clone(); count as usize];
                record.items = Some(Items { count, begun });
            }
            (name.clone(), record)
        });
        Task { steps: steps.collect(), ..largest_without_steps().unwrap() }
    }

    #[test]
    fn the_computed_size_is_that_of_the_largest_task_written_out() {
        for workflow in [wide(1, true), wide(3, false), wide(13, true)] {
            let largest = written_out(&workflow);
            let (computed, written) = (workflow.largest_task().bytes, task_bytes(&largest));
            // The map of steps takes a byte less than it is taken for where it is empty.
            assert!(computed.abs_diff(written) <= 1);
            assert_eq!(workflow.largest_task_with_parts_of(&largest), computed);
        }
    }

    #[test]
    fn what_is_not_measured_is_small_enough() {
        assert!(bytes_of(&largest_record(true)) + 50 < PART_BYTES_ROUGHLY);
        let rest = task_bytes(&largest_without_steps().unwrap());
        assert!(rest < REST_BYTES_ROUGHLY, "{rest}");
        assert!(!is_over_limit(&written_out(&wide(3, true))));
        assert!(is_over_limit(&written_out(&wide(20, true))));
    }

    #[test]
    fn a_definition_whose_tasks_could_be_too_large_is_refused_with_the_steps_that_need_most() {
        let problems = |workflow: &Workflow| {
            workflow.problems().iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        // A thousand parts are allowed.
        assert_eq!(problems(&wide(10, true)), [""; 0]);
        let refused = problems(&wide(20, true));
        assert_eq!(refused.len(), 1, "{refused:?}");
        for said in ["steps: a task could need ", "the limit is 350 KB", "100 items", "`workflow`"]
        {
            assert!(refused[0].contains(said), "{refused:?}");
        }
    }

    #[test]
    fn the_limit_leaves_a_reserve_below_the_limit_of_the_state_store() {
        let error = 4 * limits::ERROR_CHARS_MAX + 100;
        assert!(limits::TASK_ITEM_BYTES_MAX + error + 40_000 < 400 * 1_024);
    }

    /// A task whose parts all run, so that its item is near the limit, of a definition over the limit.
    fn near_the_limit() -> (Plan, Task) {
        let workflow = wide(64, false);
        let running = StepState::Running { attempt: 1, complete_by: Timestamp::UNIX_EPOCH };
        let progress = Progress { input: longest(36), ..Progress::new(running) };
        let part = StepRecord { run: progress, undo: None, items: None };
        let count = limits::ITEMS_MAX;
        let steps = workflow.steps.keys().map(|name| {
            let items = Some(Items { count, begun: vec![part.clone(); count as usize] });
            (name.clone(), StepRecord { items, ..StepRecord::new(StepState::Each) })
        });
        let task = Task {
            steps: steps.collect(),
            commands: Vec::new(),
            ended_at: None,
            paused_at: None,
            error: None,
            undo_reason: None,
            input: None,
            complete_by: Timestamp::MAX,
            due: Some(Timestamp::UNIX_EPOCH),
            failure_count: 0,
            ..largest_without_steps().unwrap()
        };
        (Plan::new(workflow).unwrap(), task)
    }

    #[test]
    fn a_task_that_would_grow_over_the_limit_stops_in_error_with_an_alert_and_grows_no_more() {
        let (workflow, task) = near_the_limit();
        let before = task_bytes(&task);
        assert!((300_000..limits::TASK_ITEM_BYTES_MAX).contains(&before), "{before}");
        let timing = Timing {
            pickup_within: Duration::from_secs(60),
            clock_skew: Duration::ZERO,
            retention: Timing::RETENTION,
        };
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let context = Context { now, actor: "supervisor", redelivered: false, timing };
        let nothing = Documents::new();

        // Every part is given up, and that takes more room than there is.
        let swept = transition(&workflow, &task, &nothing, &Event::Swept, context).unwrap();

        let Transition::Apply { task: stopped, documents, effects } = swept else {
            panic!("{swept:?}")
        };
        assert_eq!((stopped.process_state, documents.len()), (ProcessState::Error, 0));
        assert!(stopped.error.as_ref().unwrap().contains("350 KB"), "{:?}", stopped.error);
        assert!(task_bytes(&stopped) < before + 700);
        let is_alert =
            |effect: &&Effect| matches!(effect, Effect::Publish(event) if event.is_task_alert());
        assert_eq!(effects.iter().filter(is_alert).count(), 1);

        // Commands are taken in until there is no room, and then refused; the operator is told.
        let mut task = *stopped;
        let command = |n: usize| {
            let order = json!({
                "command_id": format!("c-{n}"), "task_id": task.task_id, "by": "b".repeat(200),
                "why": "w".repeat(200), "order": { "command": "pause" },
            });
            Event::Commanded(serde_json::from_value(order).unwrap())
        };
        let commands: Vec<_> = (0..200).map(command).collect();
        let mut refused = 0;
        task.steps.insert(
            "more".parse().unwrap(),
            StepRecord {
                items: Some(Items {
                    count: 100,
                    begun: vec![
                        largest_record(true);
                        (limits::TASK_ITEM_BYTES_MAX - task_bytes(&task)) / 300
                    ],
                }),
                ..StepRecord::new(StepState::Each)
            },
        );
        for event in &commands {
            match transition(&workflow, &task, &nothing, event, context).unwrap() {
                Transition::Apply { task: next, .. } => task = *next,
                Transition::Ignore { reason, effects } => {
                    assert_eq!((reason, effects.len()), (Ignored::NoRoom, 1));
                    refused += 1;
                }
                Transition::Illegal(reason) => panic!("{reason}"),
            }
            assert!(task_bytes(&task) <= limits::TASK_ITEM_BYTES_MAX + 700);
        }
        assert!(refused > 0);
    }
}
