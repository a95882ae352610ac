//! The oracle observes everything that happens and checks invariants. It uses the plan, the services' [`EffectLedger`], and
//! everything that was stored, sent and published. It never calls the decision engine, so that a bug there cannot hide
//! itself.
//!
//! This file holds its state. What it records when something happens is in [`observations`](super::observations). The
//! checks of saves are in [`save_checks`](super::save_checks), of calls in
//! [`call_checks`](super::call_checks), of child tasks in [`child_checks`](super::child_checks), and of the final
//! states in [`final_checks`](super::final_checks).

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use serde_json::Value;
use steward_core::model::{
    attempt::Action,
    messages::StepRequest,
    names::{AgentName, CommandId, Incarnation, Part, StepName, TaskId, WorkflowName},
    task::{ProcessState, Task},
};

use steward_test_world::MemoryPayloads;
use steward_test_world::ledger::EffectLedger;

use super::{
    awaited_events::AwaitedEvents,
    payload_records::PayloadRecords,
    plan::SimulationPlan,
    rate_limits::RateMeter,
    task_record::{TaskIncarnation, has_stopped},
    virtual_time::Millis,
    workflow_model::WorkflowModel,
};

/// A published alert.
#[derive(Debug, Clone)]
pub(super) struct ObservedAlert {
    pub(super) at: Timestamp,
    pub(super) undo_failed: bool,
    pub(super) steps: Vec<Part>,
    /// How many more steps the alert counts without naming them.
    pub(super) more_steps: usize,
}

/// An attempt at a part of a task.
pub(super) type AttemptKey = (TaskId, Part, Action, u32);

/// What the oracle has observed, and the violations that it found.
#[derive(Debug)]
pub(super) struct Oracle {
    models: BTreeMap<WorkflowName, WorkflowModel>,
    pub(super) clock_skew: Duration,
    pub(super) pickup_within: Duration,
    pub(super) sweep_every: Duration,
    pub(super) faults_until: Millis,
    /// Whether nothing disturbs the run: no injected fault, no outage, no operator command, no late message.
    pub(super) is_fault_free: bool,
    /// Whether messages may arrive after their tasks have expired.
    pub(super) has_late_messages: bool,
    /// The tasks as last saved.
    pub(super) tasks: BTreeMap<TaskId, Task>,
    pub(super) created_at: BTreeMap<TaskId, Millis>,
    pub(super) last_saved_at: BTreeMap<TaskId, Timestamp>,
    /// The inputs that clients submit for each task id. A task is recorded with one of them.
    pub(super) candidate_inputs: BTreeMap<TaskId, Vec<Value>>,
    pub(super) client_task_inputs: BTreeMap<TaskId, Value>,
    /// The inputs of child tasks, by task id and incarnation of the parent.
    pub(super) child_task_inputs: BTreeMap<(TaskId, Incarnation), Value>,
    /// The ids of clients' tasks that a child task may have too. Only one of the two tasks is recorded.
    pub(super) colliding_ids: BTreeSet<TaskId>,
    /// The child tasks of each task, by part.
    pub(super) children: BTreeMap<TaskId, BTreeSet<(Part, TaskId)>>,
    /// The attempts that an agent answered.
    pub(super) agent_replies: BTreeSet<AttemptKey>,
    /// The attempts that an agent refused for certain.
    pub(super) certain_refusals: BTreeSet<AttemptKey>,
    pub(super) callbacks_received: BTreeSet<(TaskId, Part)>,
    /// Published events, and the steps that wait for them.
    pub(super) awaited: AwaitedEvents,
    pub(super) payloads: PayloadRecords,
    /// The parts whose child task reported its end.
    pub(super) child_reports_received: BTreeSet<(TaskId, Part)>,
    /// Failed attempts whose document has the reason of an earlier decision, which lost its race: the first document is
    /// kept.
    pub(super) kept_reasons: BTreeSet<AttemptKey>,
    /// When each wait was saved, and until when it lasts.
    pub(super) waits: BTreeMap<AttemptKey, (Timestamp, Timestamp)>,
    /// Parts and undos that an operator completed or skipped.
    pub(super) completed_or_skipped_by_operator: BTreeSet<(TaskId, Part, Action)>,
    /// Steps that were skipped because of their `when`.
    pub(super) skipped: BTreeSet<(TaskId, StepName)>,
    pub(super) notifications: BTreeSet<(String, String, i64)>,
    pub(super) alerts: BTreeMap<TaskId, Vec<ObservedAlert>>,
    /// The edits that operators sent, by command.
    pub(super) input_edits: BTreeMap<(TaskId, CommandId), Value>,
    pub(super) edited_inputs: BTreeMap<TaskId, Value>,
    /// The trace id of each task's calls.
    pub(super) traces: BTreeMap<TaskIncarnation, String>,
    /// The calls of the agents that have a rate limit.
    pub(super) rate_meters: BTreeMap<AgentName, RateMeter>,
    /// The replies of agents that deferred an attempt because of their rate limit.
    pub(super) rate_deferrals: u64,
    /// How often a step moved on to its next agent.
    pub(super) agent_moves: u64,
    /// The ids of the lifecycle events about what saved tasks showed.
    pub(super) occurrences: BTreeSet<String>,
    /// Those that a supervisor's save showed first.
    pub(super) saved_by_supervisor: BTreeSet<String>,
    /// Tasks that had expired when a message for them was redriven. The effects of that message remain lost.
    pub(super) expired_before_redrive: BTreeSet<TaskId>,
    /// The ids of the published lifecycle events.
    pub(super) published: BTreeSet<String>,
    pub(super) violations: Vec<String>,
}

impl Oracle {
    pub(super) fn new(plan: &SimulationPlan, bucket: MemoryPayloads) -> Self {
        let models =
            plan.blueprints.iter().map(|b| (b.name.clone(), WorkflowModel::of(b))).collect();
        let colliding_ids = plan.tasks.iter().filter(|task| task.id_collision);
        Self {
            models,
            clock_skew: plan.timing.clock_skew,
            pickup_within: plan.timing.pickup_within,
            sweep_every: Duration::from_millis(plan.sweep_every),
            faults_until: plan.faults_until,
            is_fault_free: plan.faults.is_fault_free()
                && plan.commands.is_empty()
                && plan.outage.is_none()
                && plan.late_messages.is_empty(),
            has_late_messages: !plan.late_messages.is_empty(),
            tasks: BTreeMap::new(),
            created_at: BTreeMap::new(),
            last_saved_at: BTreeMap::new(),
            candidate_inputs: plan
                .tasks
                .iter()
                .map(|t| (t.task_id.clone(), vec![t.input.clone()]))
                .collect(),
            client_task_inputs: BTreeMap::new(),
            child_task_inputs: BTreeMap::new(),
            colliding_ids: colliding_ids.map(|task| task.task_id.clone()).collect(),
            children: BTreeMap::new(),
            agent_replies: BTreeSet::new(),
            certain_refusals: BTreeSet::new(),
            callbacks_received: BTreeSet::new(),
            awaited: AwaitedEvents::default(),
            payloads: PayloadRecords::new(bucket),
            child_reports_received: BTreeSet::new(),
            kept_reasons: BTreeSet::new(),
            waits: BTreeMap::new(),
            completed_or_skipped_by_operator: BTreeSet::new(),
            skipped: BTreeSet::new(),
            notifications: BTreeSet::new(),
            alerts: BTreeMap::new(),
            input_edits: BTreeMap::new(),
            edited_inputs: BTreeMap::new(),
            traces: BTreeMap::new(),
            rate_meters: plan
                .rate_limits
                .iter()
                .map(|(agent, limit)| (agent.clone(), RateMeter::new(*limit)))
                .collect(),
            rate_deferrals: 0,
            agent_moves: 0,
            occurrences: BTreeSet::new(),
            saved_by_supervisor: BTreeSet::new(),
            expired_before_redrive: BTreeSet::new(),
            published: BTreeSet::new(),
            violations: Vec::new(),
        }
    }

    pub(super) fn add_finding(&mut self, finding: String) {
        self.violations.push(finding);
    }

    pub(super) fn model(&self, task_id: &TaskId) -> Option<&WorkflowModel> {
        self.models.get(&self.tasks.get(task_id)?.workflow)
    }

    /// How long a call may take at its service.
    pub(super) fn call_within(&self, request: &StepRequest) -> Millis {
        let model = self.model(&request.task_id);
        model.map_or(0, |model| model.call_within(&request.step.step, request.action))
    }

    /// How long a service keeps the idempotency key of a call; `None` if for ever.
    pub(super) fn key_valid_for(&self, request: &StepRequest) -> Option<Millis> {
        self.model(&request.task_id)?.key_valid_for(&request.step.step, request.action)
    }

    /// Whether an operator completed or skipped a part, or its undo.
    pub(super) fn is_decided_by_operator(
        &self,
        task_id: &TaskId,
        part: &Part,
        action: Action,
    ) -> bool {
        self.completed_or_skipped_by_operator.contains(&(task_id.clone(), part.clone(), action))
    }

    /// Whether a step was skipped because of its `when`.
    pub(super) fn was_skipped(&self, task_id: &TaskId, step: &StepName) -> bool {
        self.skipped.contains(&(task_id.clone(), step.clone()))
    }

    /// The input with which a task was submitted.
    pub(super) fn input(&self, task: &Task) -> Option<&Value> {
        let id = &task.task_id;
        match &task.parent {
            Some(parent) => self.child_task_inputs.get(&(id.clone(), parent.incarnation)),
            None => self.client_task_inputs.get(id),
        }
    }

    pub(super) fn created_at(&self, task_id: &TaskId) -> Millis {
        self.created_at.get(task_id).copied().unwrap_or_default()
    }

    /// The child tasks of a task, each with its part. A client may have used the id of one that has expired.
    pub(super) fn child_tasks(&self, task_id: &TaskId) -> impl Iterator<Item = (&Part, &Task)> {
        let all = self.children.get(task_id).into_iter().flatten();
        let found = all.filter_map(|(part, child)| Some((part, self.tasks.get(child)?)));
        found.filter(move |(_, child)| {
            child.parent.as_ref().is_some_and(|parent| parent.task_id == *task_id)
        })
    }

    /// The child tasks of a part.
    pub(super) fn child_tasks_of_part(
        &self,
        task_id: &TaskId,
        part: &Part,
    ) -> impl Iterator<Item = &Task> {
        let all = self.child_tasks(task_id).filter(move |(of, _)| *of == part);
        all.map(|(_, child)| child)
    }

    /// Forgets the state of an earlier task with the same id, before `task` is recorded in place of `earlier`. It is a
    /// violation if the earlier task had not expired. Returns whether there was an earlier task.
    pub(super) fn forget_earlier_task(&mut self, task: &Task, earlier: Option<&Task>) -> bool {
        let id = &task.task_id;
        let is_for_later_parent = |earlier: &Task| match (&earlier.parent, &task.parent) {
            (Some(before), Some(now)) => {
                has_stopped(earlier)
                    && before.task_id == now.task_id
                    && before.incarnation < now.incarnation
            }
            (None, _) | (_, None) => false,
        };
        if earlier.is_some_and(|earlier| !is_for_later_parent(earlier)) {
            self.add_finding(format!("{id}: was recorded in place of a task that has not expired"));
        }
        self.created_at.remove(id);
        self.edited_inputs.remove(id);
        self.input_edits.retain(|(of, _), _| of != id);
        self.last_saved_at.remove(id);
        self.children.remove(id);
        self.alerts.remove(id);
        self.agent_replies.retain(|(of, ..)| of != id);
        self.certain_refusals.retain(|(of, ..)| of != id);
        self.callbacks_received.retain(|(of, _)| of != id);
        self.child_reports_received.retain(|(of, _)| of != id);
        self.kept_reasons.retain(|(of, ..)| of != id);
        self.waits.retain(|(of, ..), _| of != id);
        self.completed_or_skipped_by_operator.retain(|(of, ..)| of != id);
        self.skipped.retain(|(of, _)| of != id);
        self.tasks.remove(id).is_some()
    }

    /// The input of a task with all edits.
    pub(super) fn final_input(&self, task: &Task) -> Option<&Value> {
        self.edited_inputs.get(&task.task_id).or_else(|| self.input(task))
    }

    /// Whether a part had no effect, by the services' ledger and the states of its child tasks.
    pub(super) fn had_no_effect(&self, ledger: &EffectLedger, task: &Task, part: &Part) -> bool {
        let account = ledger.account(&task.task_id, part);
        account.is_none_or(|account| account.effects.is_empty())
            && self
                .child_tasks_of_part(&task.task_id, part)
                .all(|child| child.process_state == ProcessState::Undone)
    }
}
