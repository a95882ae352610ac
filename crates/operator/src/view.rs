//! A task as clients and operators see it: the fields of the task's item, with readable names.

use std::{collections::BTreeMap, fmt};

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    next::{NextEvent, next_events},
    state::PartState,
};

use steward_core::{
    definition::workflow::Workflow,
    engine::notify::result_key,
    model::{
        attempt::Action,
        command::{CommandId, CommandRecord},
        document::{Document, DocumentKey},
        earlier_key::{EarlierKey, Ran},
        items::ItemRecords,
        names::{AgentName, LabelValue, Part, StepName, TaskId, Tenant, ValueName, WorkflowName},
        step::{Progress, StepRecord, StepState},
        task::{ProcessState, Task},
    },
};

/// The maximum number of items of one step in a view.
pub const ITEMS_SHOWN_MAX: usize = 200;

pub use crate::failure_reason::{failure_reason_keys, newest_reason};

/// A task. The HTTP API and the command line return it as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the fields are those of `Task`")]
pub struct TaskView {
    pub task_id: TaskId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<Tenant>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<ValueName, LabelValue>,
    pub workflow: WorkflowName,
    pub version: u32,
    pub process_state: ProcessState,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undo_reason: Option<String>,
    #[schemars(with = "Option<String>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused_at: Option<Timestamp>,
    #[schemars(with = "String")]
    pub submitted_at: Timestamp,
    #[schemars(with = "String")]
    pub complete_by: Timestamp,
    #[schemars(with = "Option<String>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    #[schemars(with = "Option<String>")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late_at: Option<Timestamp>,
    #[schemars(with = "Option<String>")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub locked_by: Option<String>,
    pub failure_count: u32,
    pub revision: u64,
    /// The steps that have started, and at most 200 items of each: first those that failed, then those that wait or
    /// run, then the others.
    pub steps: BTreeMap<Part, StepView>,
    /// The newest commands of operators, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<CommandRecord>,
    /// The task that this one repeats, if it is a rerun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rerun_of: Option<TaskId>,
    /// The steps that a rerun does not run: it has their outputs from the task that it repeats.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept_steps: Vec<StepName>,
    /// The tasks that repeat this one, as far as its newest commands show.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reruns: Vec<TaskId>,
    /// What happens next, in sentences.
    pub next: String,
    /// The task's output, if it is Processed and the documents were read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
}

/// The key of the document with the task's output; `None` unless the task is Processed.
#[must_use]
pub fn result_key_of(task: &Task) -> Option<DocumentKey> {
    (task.process_state == ProcessState::Processed).then(|| result_key(task))
}

/// A step, or an item of one. As soon as its undo has begun, the fields describe the undo.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StepView {
    /// The state.
    pub state: PartState,
    /// The number of the newest attempt, from 1.
    pub attempt: u32,
    /// The number of attempts that failed since the step started, or since an operator resubmitted it.
    pub failure_count: u32,
    /// The agent that it uses, if its step has several and the workflow was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentName>,
    /// The complete-by of the running attempt, or the time at which the next attempt may start.
    #[schemars(with = "Option<String>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// The reason of the newest failure or deferral, if its document was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Whether it may have taken effect, although it has not completed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub may_have_run: bool,
    /// What is known of its earlier idempotency keys: at another agent, or before an edit of the input.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier_effects: Vec<EarlierEffect>,
    /// The number of items; absent if the step has no `for_each`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub items: Option<u32>,
    /// The number of started items in each state.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub item_states: BTreeMap<PartState, u32>,
}

impl StepView {
    fn of(record: &StepRecord) -> Self {
        let Progress { state, failure_count, .. } = record.undo.as_ref().unwrap_or(&record.forward);
        let until = state.reply_due_by().or(state.waiting_until());
        Self {
            state: PartState::of(record),
            attempt: state.attempt_count(),
            failure_count: *failure_count,
            agent: None,
            until,
            error: None,
            may_have_run: record.forward.may_have_run
                && !matches!(record.forward.state, StepState::Completed { .. }),
            earlier_effects: record.earlier.iter().filter_map(EarlierEffect::of).collect(),
            items: record.items.as_ref().map(ItemRecords::count),
            item_states: item_states(record),
        }
    }

    /// How many items completed or were skipped.
    #[must_use]
    pub fn items_done(&self) -> u32 {
        self.item_states.iter().filter(|(state, _)| state.is_done()).map(|(_, count)| count).sum()
    }
}

/// What is known of an earlier idempotency key of a step or item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EarlierEffect {
    /// The first attempt with the key.
    pub attempt: u32,
    /// The agent, if the step has several and the workflow was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentName>,
    /// The command whose edit of the input it used; absent for the input as it was submitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_edit: Option<CommandId>,
    /// What is known.
    pub state: EarlierEffectState,
}

/// What is known of an earlier idempotency key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EarlierEffectState {
    /// Its outcome is not known.
    MayHaveRun,
    /// It ran the step.
    Ran,
    /// It is undone.
    Undone,
    /// An operator stated that it did not run, or ended the step although it may have.
    Denied,
}

impl EarlierEffect {
    /// `None` if it did not run, as far as is known.
    fn of(key: &EarlierKey) -> Option<Self> {
        let state = match (key.undone, key.ran) {
            (true, _) => EarlierEffectState::Undone,
            (false, Ran::Yes) => EarlierEffectState::Ran,
            (false, Ran::Maybe) => EarlierEffectState::MayHaveRun,
            (false, Ran::No) => key.denied.map(|_| EarlierEffectState::Denied)?,
        };
        let (attempt, input_edit) = (key.since, key.input_edit_id.clone());
        Some(Self { attempt, agent: None, input_edit, state })
    }
}

impl fmt::Display for EarlierEffect {
    /// `attempt 1 at visa ran`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "attempt {}", self.attempt)?;
        if let Some(agent) = &self.agent {
            write!(f, " at {agent}")?;
        }
        f.write_str(match self.state {
            EarlierEffectState::MayHaveRun => " may have run",
            EarlierEffectState::Ran => " ran",
            EarlierEffectState::Undone => " undone",
            EarlierEffectState::Denied => " settled by an operator",
        })
    }
}

/// The number of items in each state.
fn item_states(record: &StepRecord) -> BTreeMap<PartState, u32> {
    let mut states = BTreeMap::new();
    for (items, item) in record.items.iter().flat_map(ItemRecords::spans) {
        *states.entry(PartState::of(item)).or_default() += items.end.saturating_sub(items.start);
    }
    states
}

fn sentences(events: &[NextEvent]) -> String {
    let events: Vec<_> = events.iter().map(ToString::to_string).collect();
    events.join(". ")
}

/// The items of a step that have started: first those that failed, then those that wait or run, then the others.
pub(crate) fn items_by_attention<'t>(
    name: &'t StepName,
    record: &'t StepRecord,
) -> impl Iterator<Item = (Part, &'t StepRecord)> {
    let mut spans: Vec<_> =
        record.part_spans(name).filter(|(span, _)| span.items.is_some()).collect();
    // The sort is stable: items of the same rank keep the order of the list.
    spans.sort_by_key(|(_, record)| PartState::of(record).rank());
    spans.into_iter().flat_map(|(span, record)| span.parts().map(move |part| (part, record)))
}

impl TaskView {
    /// Adds the reasons why steps failed or wait, as far as `documents` contain them.
    #[must_use]
    pub fn with_reasons(mut self, task: &Task, documents: &[Document]) -> Self {
        for (part, view) in &mut self.steps {
            let Some(record) = task.steps.get(&part.step) else { continue };
            let record = if part.item.is_some() { task.record(part) } else { Some(record) };
            let Some(record) = record else { continue };
            let (action, progress) = match &record.undo {
                Some(undo) => (Action::Undo, undo),
                None => (Action::Do, &record.forward),
            };
            if !matches!(progress.state, StepState::Completed { .. }) {
                view.error = newest_reason(documents, part, action);
            }
        }
        self
    }

    /// Adds the agents that parts use whose steps have several, and what an operator can do next.
    #[must_use]
    pub fn with_agents(mut self, task: &Task, workflow: &Workflow) -> Self {
        if task.process_state == ProcessState::Error {
            self.next = sentences(&next_events(task, Some(workflow), &[]));
        }
        // Each item of a step uses an agent of its own.
        for (part, view) in self.steps.iter_mut().filter(|(_, view)| view.items.is_none()) {
            let agents = workflow.steps.get(&part.step).and_then(|step| step.agent.as_ref());
            let several = agents.filter(|agents| agents.names().len() > 1);
            let (Some(agents), Some(record)) = (several, task.record(part)) else { continue };
            view.agent = agents.at(record.agent(Action::Undo)).cloned();
            for effect in &mut view.earlier_effects {
                let key = record.earlier.iter().find(|key| key.since == effect.attempt);
                effect.agent = key.and_then(|key| agents.at(key.agent)).cloned();
            }
        }
        self
    }

    /// The view of a task. Steps have no `error` and the task no `output`: these need documents. Steps have no `agent`: it
    /// needs the workflow.
    #[must_use]
    pub fn of(task: &Task) -> Self {
        let whole = task.steps.iter().map(|(name, record)| (Part::from(name.clone()), record));
        let steps: BTreeMap<_, _> =
            whole
                .chain(task.steps.iter().flat_map(|(name, record)| {
                    items_by_attention(name, record).take(ITEMS_SHOWN_MAX)
                }))
                .map(|(part, record)| (part, StepView::of(record)))
                .collect();
        Self {
            task_id: task.task_id.clone(),
            tenant: task.tenant.clone(),
            labels: task.labels.clone(),
            workflow: task.workflow.clone(),
            version: task.version,
            process_state: task.process_state,
            error: task.error.clone(),
            undo_reason: task.undo_reason.clone(),
            paused_at: task.paused_at,
            submitted_at: task.submitted_at,
            complete_by: task.complete_by,
            ended_at: task.ended_at,
            late_at: task.late_at,
            resolved_at: task.resolved_at,
            locked_by: task.locked_by.clone(),
            failure_count: task.failure_count,
            revision: task.revision,
            next: sentences(&next_events(task, None, &[])),
            steps,
            commands: task.commands.clone(),
            rerun_of: task.rerun.as_ref().map(|rerun| rerun.of.clone()),
            kept_steps: task.rerun.iter().flat_map(|rerun| rerun.kept.iter().cloned()).collect(),
            reruns: task.reruns().cloned().collect(),
            output: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_view_shows_the_effects_of_earlier_keys_where_they_are() {
        let request = json!({ "path": "/" });
        let workflow: Workflow = serde_json::from_value(json!({
            "name": "w", "version": 1, "steps": { "pay": { "agent": ["a", "b"], "request": request } },
        }))
        .unwrap();
        let task: Task = serde_json::from_value(json!({
            "task_id": "42", "workflow": "w", "v": 1, "i": 0, "k": 0, "process_state": "Error",
            "revision": 7, "submitted_at": 0, "complete_by": 0,
            "steps": { "pay": { "s": "c", "a": 4, "n": 1, "g": 4, "m": true, "y": [
                { "a": 1, "m": "y", "c": 1 }, { "a": 2, "n": 1, "m": "m" },
                { "a": 3, "s": { "a": 3, "m": "m" } },
            ] } },
        }))
        .unwrap();
        let view = TaskView::of(&task).with_agents(&task, &workflow);
        let pay = &view.steps[&"pay".parse::<Part>().unwrap()];
        let effects: Vec<_> = pay.earlier_effects.iter().map(ToString::to_string).collect();
        assert_eq!(
            effects,
            [
                "attempt 1 at a ran",
                "attempt 2 at b may have run",
                "attempt 3 at a settled by an operator"
            ]
        );
        assert!(!pay.may_have_run, "it completed");
    }

    #[test]
    fn a_view_names_the_agent_of_a_step_with_several() {
        let request = json!({ "path": "/" });
        let step = |agent: Value| json!({ "agent": agent, "request": request });
        let workflow: Workflow = serde_json::from_value(json!({
            "name": "w", "version": 1,
            "steps": { "one": step(json!("a")), "more": step(json!(["a", "b"])) },
        }))
        .unwrap();
        let mut task: Task = serde_json::from_value(json!({
            "task_id": "42", "workflow": "w", "v": 1, "i": 0, "k": 0, "process_state": "Processing",
            "revision": 7, "submitted_at": 0, "complete_by": 0, "steps": {},
        }))
        .unwrap();
        for name in ["one", "more"] {
            let record = StepRecord::new(StepState::Completed { attempt: Some(1) });
            task.steps.insert(name.parse().unwrap(), record);
        }
        let agents = |task: &Task| {
            let view = TaskView::of(task).with_agents(task, &workflow);
            ["one", "more"].map(|name| {
                let step = view.steps.get(&name.parse::<Part>().unwrap()).unwrap();
                step.agent.as_ref().map(ToString::to_string)
            })
        };
        assert_eq!(agents(&task), [None, Some("a".to_owned())]);
        task.steps.get_mut("more").unwrap().forward.agent = Some(1);
        assert_eq!(agents(&task), [None, Some("b".to_owned())]);
    }

    #[test]
    fn a_view_shows_the_items_that_need_attention_and_counts_the_others() {
        let completed = StepRecord::new(StepState::Completed { attempt: Some(1) });
        let failed = StepRecord::new(StepState::Failed { attempt: Some(3) });
        let running = StepState::Running { attempt: 1, complete_by: Timestamp::UNIX_EPOCH };
        let mut items = ItemRecords::new(9_000);
        (0..5_000).for_each(|_| items.push(completed.clone()));
        items.push(StepRecord::new(running));
        items.push(failed);
        let mut record = StepRecord::new(StepState::RunningItems);
        record.items = Some(items);
        let mut task: Task = serde_json::from_value(json!({
            "task_id": "42", "workflow": "w", "v": 1, "i": 0, "k": 0, "process_state": "Error", "revision": 7,
            "submitted_at": 0, "complete_by": 0, "steps": {},
        }))
        .unwrap();
        task.steps.insert("ship".parse().unwrap(), record);

        let view = TaskView::of(&task);

        let of = |item| view.steps.get(&Part { step: "ship".parse().unwrap(), item });
        assert_eq!(view.steps.len(), ITEMS_SHOWN_MAX + 1);
        assert_eq!(of(Some(5_001)).unwrap().state, PartState::Failed);
        assert_eq!(of(Some(5_000)).unwrap().state, PartState::Running);
        assert!(of(Some(197)).is_some() && of(Some(198)).is_none());
        let step = of(None).unwrap();
        assert_eq!((step.items, step.items_done()), (Some(9_000), 5_000));
        let states = serde_json::to_value(&step.item_states).unwrap();
        assert_eq!(states, json!({ "running": 1, "completed": 5_000, "failed": 1 }));
    }
}
