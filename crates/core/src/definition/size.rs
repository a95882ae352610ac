//! The size of a task's item. DynamoDB refuses an item over 400 KB, so a task with a larger item could no longer be
//! saved. Validation therefore computes the largest item that a definition can produce, and refuses a definition
//! above [`TASK_ITEM_BYTES_MAX`](limits::TASK_ITEM_BYTES_MAX). The difference to DynamoDB's limit is a reserve: a
//! task whose definition is older than this check, and that grows too large, can still be saved in Error.
//!
//! The functions `largest_…` list every field of their struct, without `..`, so that a new field does not compile until
//! its size is defined here. The attributes that the state store adds are a constant, `STORE_BYTES`.

mod attribute_bytes;

use std::{collections::BTreeMap, num::NonZeroU32, str::FromStr, sync::LazyLock};

use jiff::Timestamp;
use serde::Serialize;

use crate::{
    definition::{step::StepDefinition, workflow::Workflow},
    limits,
    model::{
        attempt::Action,
        command::{Caller, CommandRecord, CommandSource},
        document::{Document, DocumentKey},
        earlier_key::{Denial, EarlierKey, Ran},
        inline_documents::{InlineDocument, InlineDocuments},
        items::{ItemRecords, ListSlices, text::distinct_spans_bytes},
        messages::ParentStep,
        names::{Incarnation, LabelValue, Part, StepName, TaskId, ValueName},
        payload::PayloadPlace,
        rerun::Rerun,
        retention::DocumentRetention,
        step::{AgentPause, Progress, StepRecord, StepState},
        task::{ProcessState, StopCause, Task},
    },
};

/// An upper bound of the bytes that the state store adds to a task: the attributes `shard`, `expires_at` and `ended`, with
/// their names.
const STORE_BYTES: usize = 200;

/// The bytes of the attribute `shard`, which the state store adds while the task is due.
const SHARD_BYTES: usize = "shard".len() + 3;

/// The bytes of the attributes `expires_at` and `ended`, which the state store adds when the task has ended.
const END_BYTES: usize = "expires_at".len() + 6 + "ended".len() + "Processed#127".len();

/// The maximum characters of an instance's name, such as `scheduler-0badcafe`.
const INSTANCE_CHARS: usize = 64;

/// The maximum characters of the URL of a client's queue.
const URL_CHARS: usize = 1_024;

/// The bytes of the record of a step that runs for the first time.
pub const RUNNING_RECORD_BYTES: usize = 20;

/// The bytes of the record of a step that the first attempt completed.
pub const COMPLETED_RECORD_BYTES: usize = 10;

/// Different records of passed items of one step that the computed size has room for. Most items complete at the first
/// attempt. Numbers of attempts and failures, skipped items, undos, edits of the input and completions by operators make
/// records different. A task with more of them than this is stopped only if it is over the limit as a whole.
const PASSED_RECORDS: u32 = 30;

/// Bytes of the spans of passed items: with [`PASSED_RECORDS`] records, a span needs one or two letters.
const PASSED_RUNS_BYTES: usize = limits::ITEMS_MAX as usize * 6 / 5;

/// More than any item has, for a value that cannot be measured.
const UNKNOWN: usize = usize::MAX / 4;

/// Generous bounds: the bytes of one part with the name of its step, and of all else in a task. If even these stay
/// under the limit, [`is_over_limit`] does not measure the task.
const PART_BYTES_BOUND: usize = 900;
const REST_BYTES_BOUND: usize = 80_000;

/// The size of the largest item that a task of a workflow can have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LargestTask {
    /// The bytes of the item, as DynamoDB counts them.
    pub bytes: usize,
    /// Each step with the bytes that it contributes, the largest first.
    pub steps: Vec<LargestStep>,
}

/// The size of the largest records that a step can have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LargestStep {
    /// The step.
    pub name: StepName,
    /// The bytes that it contributes.
    pub bytes: usize,
    /// How many of its items run at once. `None` for a step without items.
    pub at_once: Option<u32>,
}

/// The largest sizes of the components of a task, in bytes.
struct LargestSizes {
    with_undo: usize,
    without_undo: usize,
    several_agents: usize,
    time_limit: usize,
    start: usize,
    command: usize,
    rest: usize,
}

static LARGEST_SIZES: LazyLock<LargestSizes> = LazyLock::new(|| LargestSizes {
    with_undo: bytes_of(&largest_record(true)),
    without_undo: bytes_of(&largest_record(false)),
    several_agents: several_agents_bytes(),
    time_limit: time_limit_bytes(),
    start: start_bytes(),
    // `UNKNOWN` would refuse every definition. It never occurs: the tests unwrap both values. The 1 is the byte of the
    // list entry.
    command: largest_command().map_or(UNKNOWN, |command| 1 + bytes_of(&command)),
    rest: largest_without_steps().map_or(UNKNOWN, |task| task_bytes(&task)),
});

impl Workflow {
    /// Computes the size of the largest item that a task of this workflow can have: every step, and every item that may be
    /// in progress, has a record of its run and of its undo, each in the state that needs most bytes; the maximum number of
    /// commands is recorded; and every text has its maximum length. Passed items share `PASSED_RECORDS` records.
    #[must_use]
    pub fn largest_task(&self) -> LargestTask {
        let step = |(name, step): (&StepName, &StepDefinition)| LargestStep {
            name: name.clone(),
            bytes: step_bytes(name, step, limits::ITEMS_MAX),
            at_once: step.items_at_once(),
        };
        let mut steps: Vec<_> = self.steps.iter().map(step).collect();
        steps.sort_by_key(|step| std::cmp::Reverse(step.bytes));
        let all: usize = steps.iter().map(|step| step.bytes).sum();
        LargestTask { bytes: LARGEST_SIZES.rest.saturating_add(all), steps }
    }

    /// Computes the same size for as many items and commands as `task` has. Tests compare it with real tasks, so that
    /// a mistake in the computation shows long before a task is large.
    #[must_use]
    pub fn largest_task_with_parts_of(&self, task: &Task) -> usize {
        let started_items = |name| {
            let items = task.steps.get(name).and_then(|record| record.items.as_ref());
            items.map_or(0, ItemRecords::started)
        };
        let steps: usize =
            self.steps.iter().map(|(name, step)| step_bytes(name, step, started_items(name))).sum();
        let unused = limits::COMMAND_RECORDS_MAX.saturating_sub(task.commands.len());
        LARGEST_SIZES.rest.saturating_sub(unused * LARGEST_SIZES.command).saturating_add(steps)
    }
}

/// The largest size of the record of one part of a step, in bytes.
#[must_use]
pub fn largest_part(step: &StepDefinition) -> usize {
    let has_undo = step.action(Action::Undo).is_some();
    let record = if has_undo { LARGEST_SIZES.with_undo } else { LARGEST_SIZES.without_undo };
    let limits = more_for_limit(step, Action::Do) + more_for_limit(step, Action::Undo);
    record + more_for_agents(step) + limits
}

/// What the record of a part needs more for each time limit of its step, or of the undo, and for the time of its start.
fn more_for_limit(step: &StepDefinition, action: Action) -> usize {
    let limits = step.action(action).map(|definition| definition.recovery.time_limits());
    let limits = limits.iter().flatten().filter(|(_, limit)| limit.is_some());
    let start = if action == Action::Do && step.reads_start() { LARGEST_SIZES.start } else { 0 };
    limits.count() * LARGEST_SIZES.time_limit + start
}

/// What the record of a part needs more if its step has several agents.
fn more_for_agents(step: &StepDefinition) -> usize {
    let has_several =
        step.agent.as_ref().is_some_and(|agents| agents.falls_back() || agents.choice().is_some());
    if has_several { LARGEST_SIZES.several_agents } else { 0 }
}

/// The size of the record of one part, in bytes: without its items, and without its earlier keys, to which each edit of the input
/// adds one.
#[must_use]
pub fn part_bytes(record: &StepRecord) -> usize {
    bytes_of(&StepRecord {
        forward: record.forward.clone(),
        undo: record.undo.clone(),
        earlier: Vec::new(),
        items: None,
    })
}

/// The largest size that a step contributes, in bytes. `count` is the number of items or rounds, if it has any.
fn step_bytes(name: &StepName, step: &StepDefinition, count: u32) -> usize {
    let record = largest_part(step);
    let items = step.items_at_once().map_or(0, |at_once| items_bytes(count, at_once, step));
    // The 1 is the byte of the entry in the map of steps.
    name.as_str().len() + record + items + 1
}

impl LargestTask {
    /// The message of the problem if the item is too large.
    pub(super) fn problem(&self) -> Option<String> {
        let max = limits::TASK_ITEM_BYTES_MAX;
        if self.bytes <= max {
            return None;
        }
        let largest = self.steps.iter().take(3).map(|LargestStep { name, bytes, at_once }| {
            let items = at_once.map(|at_once| format!(", {at_once} items at once"));
            format!("`{name}` {} KB{}", bytes.div_ceil(1_000), items.unwrap_or_default())
        });
        let largest: Vec<_> = largest.collect();
        Some(format!(
            "a task could need {} KB in the state store; the limit is {} KB. The largest steps are {}",
            self.bytes.div_ceil(1_000),
            max / 1_000,
            largest.join("; ")
        ))
    }
}

/// Whether the item of `task` is over the limit.
#[must_use]
pub fn is_over_limit(task: &Task) -> bool {
    let items = task.steps.values().filter_map(|record| record.items.as_ref());
    // Items that share a record need the space of one record.
    let parts = task.steps.len() + items.map(|items| items.spans().count()).sum::<usize>();
    // Every decision that changes a task calls this function, so a task that is small enough by the upper bounds is
    // not measured.
    REST_BYTES_BOUND + parts * PART_BYTES_BOUND > limits::TASK_ITEM_BYTES_MAX
        && task_bytes(task) > limits::TASK_ITEM_BYTES_MAX
}

/// The size of a task's item in bytes, as DynamoDB counts them. Includes what the state store adds, and a small
/// margin.
#[must_use]
pub fn task_bytes(task: &Task) -> usize {
    // DynamoDB counts only names and values of the outermost map, not the map itself. The difference is the margin.
    bytes_of(task) + STORE_BYTES
}

/// The size of a task's item in bytes, as DynamoDB counts it.
#[must_use]
pub fn item_bytes(task: &Task) -> usize {
    let due = if task.due.is_some() { SHARD_BYTES } else { 0 };
    let end = if task.process_state.has_stopped() { END_BYTES } else { 0 };
    attributes_bytes(task) + due + end
}

/// The bytes by which a document makes its task's item larger, if the item has documents already.
#[must_use]
pub fn inline_bytes(key: &DocumentKey, document: &InlineDocument) -> usize {
    // The 1 is the byte of the entry in the map of documents.
    1 + bytes_of(key) + bytes_of(document)
}

/// The bytes of the attributes of an item.
fn attributes_bytes(item: &impl Serialize) -> usize {
    attribute_bytes::item_bytes(item).unwrap_or(UNKNOWN)
}

/// The bytes of a value in an item.
fn bytes_of(value: &impl Serialize) -> usize {
    attribute_bytes::value_bytes(value).unwrap_or(UNKNOWN)
}

/// The maximum bytes that `count` started items add to the record of their step: the field `p`, a map with `n`, the list
/// `d` and the text `l`. Items with different records need most. Only items in progress all have different records: during
/// an undo, up to `at_once` items whose run is awaited, and as many whose undo is in progress.
fn items_bytes(count: u32, at_once: u32, step: &StepDefinition) -> usize {
    let none = bytes_of(&without_started_items(count));
    let entry = 1 + "p".len();
    let names = 1 + "d".len() + 3 + 1 + "l".len();
    let of = |count: u32, record: usize| (count as usize).saturating_mul(1 + record);
    let largest = largest_part(step);
    let (all, at_once) = (of(count, largest) + distinct_spans_bytes(count), at_once.min(count));
    let has_undo = step.action(Action::Undo).is_some();
    let without_undo =
        LARGEST_SIZES.without_undo + more_for_agents(step) + more_for_limit(step, Action::Do);
    let awaited = if has_undo { of(at_once, without_undo) } else { 0 };
    let open = of(at_once, largest) + awaited + distinct_spans_bytes(2 * at_once);
    let passed = of(PASSED_RECORDS, largest) + PASSED_RUNS_BYTES;
    entry + none + names + all.min(open + passed)
}

/// The largest record of items of which none has started.
fn without_started_items(count: u32) -> ItemRecords<StepRecord> {
    let slices = ListSlices { len: NonZeroU32::MAX, fingerprint: u32::MAX };
    let mut items = ItemRecords::new(count).with_slices(Some(slices));
    items.add_output(usize::MAX);
    items
}

/// The record of a part in the state that needs most space.
fn largest_record(has_undo: bool) -> StepRecord {
    let progress = largest_progress();
    let undo = has_undo.then(|| progress.clone());
    StepRecord { undo, forward: progress, earlier: Vec::new(), items: None }
}

fn largest_progress() -> Progress {
    let of = |state: StepState| Progress {
        completed_by_hand: matches!(state, StepState::Completed { .. })
            .then(|| longest(limits::COMMAND_ID_CHARS_MAX))
            .flatten(),
        state,
        failure_count: u32::MAX,
        may_have_run: true,
        call_may_run_until: Some(Timestamp::MAX),
        input_edit_id: longest(limits::COMMAND_ID_CHARS_MAX),
        child_revision: Some(u64::MAX),
        agent: Some(u32::MAX),
        key_since: Some(u32::MAX),
        second_delivery_may_act: false,
        ..Progress::new(StepState::RunningItems)
    };
    let all = every_state().map(of);
    all.into_iter().max_by_key(bytes_of).unwrap_or_else(|| of(StepState::RunningItems))
}

/// What several agents add to the progress of a run.
fn several_agents_bytes() -> usize {
    let key = EarlierKey {
        since: u32::MAX,
        agent: Some(u32::MAX),
        input_edit_id: None,
        ran: Ran::Yes,
        output_of: Some(u32::MAX),
        denied: Some(Denial { through: u32::MAX, known: Ran::Yes }),
        undone: true,
        child_revision: None,
    };
    let without = StepRecord::new(StepState::RunningItems);
    let mut with = without.clone();
    with.forward.second_delivery_may_act = true;
    with.earlier = vec![key; limits::AGENTS_IN_ORDER_MAX];
    let pause = AgentPause { agent: u32::MAX, until: Timestamp::MAX };
    with.forward.set_agent_pauses(vec![pause; limits::AGENTS_IN_ORDER_MAX]);
    bytes_of(&with) - bytes_of(&without)
}

/// What a time limit adds to the progress of a run.
fn time_limit_bytes() -> usize {
    let without = Progress::new(StepState::RunningItems);
    let with = Progress { give_up_at: Some(Timestamp::MAX), ..without.clone() };
    bytes_of(&with) - bytes_of(&without)
}

/// What the time of its start adds to the progress of a run.
fn start_bytes() -> usize {
    let without = Progress::new(StepState::RunningItems);
    let mut with = without.clone();
    with.set_started_at(Timestamp::MAX);
    bytes_of(&with) - bytes_of(&without)
}

/// Each state, with the values that need most space.
fn every_state() -> [StepState; 7] {
    let (attempt, time) = (u32::MAX, Timestamp::MAX);
    let all = [
        StepState::Running { attempt, complete_by: time },
        StepState::AwaitingCallback { attempt, complete_by: time, answer_by: time },
        StepState::RunningItems,
        StepState::Waiting { attempt: Some(attempt), until: time, complete_by: Some(time) },
        StepState::Completed { attempt: Some(attempt) },
        StepState::Failed { attempt: Some(attempt) },
        StepState::Skipped { attempt: Some(attempt) },
    ];
    // This match does not compile for a new state. Add the state to the list above.
    for state in &all {
        match state {
            StepState::Running { .. }
            | StepState::AwaitingCallback { .. }
            | StepState::RunningItems
            | StepState::Waiting { .. }
            | StepState::Completed { .. }
            | StepState::Failed { .. }
            | StepState::Skipped { .. } => {}
        }
    }
    all
}

/// A name or id of the maximum length.
fn longest<T: FromStr>(chars: usize) -> Option<T> {
    "x".repeat(chars).parse().ok()
}

/// A text of characters with the most bytes in UTF-8.
fn widest(chars: usize) -> String {
    "\u{1f4b3}".repeat(chars)
}

fn largest_command() -> Option<CommandRecord> {
    Some(CommandRecord {
        id: longest(limits::COMMAND_ID_CHARS_MAX)?,
        command: widest(limits::COMMAND_TEXT_CHARS_MAX),
        by: widest(limits::COMMAND_TEXT_CHARS_MAX),
        caller: Caller {
            sender: longest(limits::SENDER_ID_CHARS_MAX)?,
            via: CommandSource::Redrive,
        },
        why: widest(limits::COMMAND_TEXT_CHARS_MAX),
        at: Timestamp::MAX,
        refused: Some(widest(limits::COMMAND_TEXT_CHARS_MAX)),
        // A command that is refused submits nothing.
        submitted: None,
    })
}

/// The place of a parent at the deepest level that has a child.
fn deepest_parent_place(task_id: &TaskId, incarnation: Incarnation) -> PayloadPlace {
    let root = PayloadPlace::of_task(task_id, incarnation);
    (1..limits::CHILD_DEPTH_MAX).fold(root, |place, _| place.of_child(task_id, incarnation))
}

fn largest_without_steps() -> Option<Task> {
    let time = Timestamp::MAX;
    let incarnation = Incarnation::recorded_at(time);
    let command = largest_command()?;
    let task_id: TaskId = longest(limits::TASK_ID_CHARS_MAX)?;
    let part = Part { step: longest(limits::NAME_CHARS_MAX)?, item: Some(limits::ITEMS_MAX - 1) };
    Some(Task {
        parent: Some(ParentStep {
            task_id: task_id.clone(),
            step: part,
            depth: u32::MAX,
            incarnation,
            payload_place: Some(deepest_parent_place(&task_id, incarnation)),
        }),
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
        tenant: longest(limits::TENANT_CHARS_MAX),
        // A kept step has a shorter record and its name here, and is smaller together than a step that runs.
        rerun: Some(Rerun { of: longest(limits::TASK_ID_CHARS_MAX)?, kept: [].into() }),
        labels: largest_labels(),
        retention_for_parent: Some(DocumentRetention { from: time, retention_s: Some(u64::MAX) }),
        retention_start: time,
        retention_s: Some(u64::MAX),
        traceparent: Some("x".repeat(limits::TRACEPARENT_CHARS_MAX)),
        error: Some(widest(limits::ERROR_CHARS_MAX)),
        resolved_at: Some(time),
        undo_reason: Some(widest(limits::ERROR_CHARS_MAX)),
        undo_is_final: true,
        late_at: Some(time),
        is_alert_due: true,
        stop_cause: StopCause::default(),
        paused_at: Some(time),
        input_edit_id: longest(limits::COMMAND_ID_CHARS_MAX),
        commands: vec![command; limits::COMMAND_RECORDS_MAX],
        steps: [].into(),
        documents: largest_documents(),
    })
}

/// As many labels as a task may have, all of the maximum length.
fn largest_labels() -> BTreeMap<ValueName, LabelValue> {
    let names = (0..limits::LABELS_MAX)
        .filter_map(|n| format!("{}{n}", "x".repeat(limits::NAME_CHARS_MAX - 1)).parse().ok());
    names.filter_map(|name| Some((name, longest(limits::LABEL_BYTES_MAX)?))).collect()
}

/// Documents that fill the kilobyte of an item up to which documents are stored in it.
fn largest_documents() -> InlineDocuments {
    let body = "x".repeat(limits::INLINE_DOCUMENTS_BYTES_MAX).into();
    [Document::new(DocumentKey::Submission, Timestamp::MAX, body)].into_iter().collect()
}

#[cfg(test)]
mod tests;
