//! The plan of a run: the deployment, the fault rates, the services, and the actions of clients and operators. The rates
//! and the schedule are fixed before the run; single faults are drawn while it runs.

use std::{collections::BTreeMap, ops::Range, time::Duration};

use serde_json::{Value, json};
use steward_core::{
    definition::plan::Plan,
    model::{
        command::CommandAction,
        names::{AgentName, TaskId, Tenant},
        time::Timing,
    },
    rate::RateLimit,
};

use super::{
    blueprint::Blueprint, late_message_plan::LateMessagePlan, payload_plan::PayloadPlan,
    virtual_time::Millis,
};

/// The role of a function instance.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum InstanceRole {
    Submission,
    Scheduler,
    Agent(AgentName),
    Supervisor,
}

/// A function instance.
#[derive(Debug, Clone)]
pub(super) struct InstancePlan {
    pub(super) role: InstanceRole,
    /// The name in the trace.
    pub(super) name: String,
    /// How far its clock is ahead of the true time.
    pub(super) clock_offset: Duration,
}

/// The rates at which faults are injected into port calls, messages and instances. Shares are from 0 to 1.
#[derive(Debug, Clone, Default)]
pub(super) struct InfrastructureFaults {
    /// The share of port calls that fail before they take effect.
    pub(super) fail_before: f64,
    /// The share of port calls that take effect, but whose answer is lost.
    pub(super) fail_after: f64,
    /// The share of port calls that crash the instance, before or after they take effect.
    pub(super) crash: f64,
    /// The share of port calls that are slow.
    pub(super) slow: f64,
    /// The share of messages that are delivered twice.
    pub(super) duplicate: f64,
    /// The share of messages that are delayed.
    pub(super) delay: f64,
    /// The longest such delay.
    pub(super) delay_max: Millis,
    /// The mean time between crashes of random instances; zero for none.
    pub(super) mean_time_between_crashes: Millis,
}

impl InfrastructureFaults {
    /// Whether all these rates are zero. Services may still fail, and the plan may have an outage or late messages.
    pub(super) fn is_fault_free(&self) -> bool {
        let shares =
            [self.fail_before, self.fail_after, self.crash, self.slow, self.duplicate, self.delay];
        shares.iter().all(|share| *share == 0.0) && self.mean_time_between_crashes == 0
    }
}

/// The latency and the fault rates of a remote service; shares from 0 to 1.
#[derive(Debug, Clone, Default)]
pub(super) struct ServiceProfile {
    /// The longest usual response time.
    pub(super) latency_max: Millis,
    /// The share of calls that the service throttles: it answers 429, sometimes with a pause.
    pub(super) throttle: f64,
    /// The share of the other calls that fail before they take effect.
    pub(super) fail: f64,
    /// The share of the remaining calls, which neither are refused nor fail before, that take effect but are answered with
    /// an error.
    pub(super) false_error: f64,
    /// The share of the calls that then remain that are never answered, whether they take effect or not.
    pub(super) no_response: f64,
    /// The share of steps that the service refuses permanently.
    pub(super) refuse: f64,
    /// The share of undos that the service refuses permanently.
    pub(super) refuse_undo: f64,
    /// The times at which the service is down.
    pub(super) down: Vec<Range<Millis>>,
    /// The times at which the service accepts no connection.
    pub(super) unreachable: Vec<Range<Millis>>,
    /// The number of characters that are added to the reason of a refusal.
    pub(super) reason_chars: usize,
    /// The share of steps for which the service asks for a pause of hours whenever it throttles or fails.
    pub(super) long_pauses: f64,
    /// The quirks of the service; `None` in runs whose services have none.
    pub(super) quirks: Option<ServiceQuirks>,
}

/// Behaviours of real services that are inconvenient, but within their contract; shares from 0 to 1.
#[derive(Debug, Clone, Default)]
pub(super) struct ServiceQuirks {
    /// Whether the service answers 409 while a call with the same idempotency key is in progress.
    pub(super) conflicts: bool,
    /// It stores no refusals: a call that it refused may take effect when it is made again with the same key.
    pub(super) forgets_refusals: bool,
    /// The share of steps to whose idempotency key the service stores its first answer, also a 503, and repeats it for ever.
    pub(super) stores_answers: f64,
    /// The share of calls that take up to their `call_within`.
    pub(super) slow: f64,
    /// The share of calls whose caller gets an error although the service continues: a gateway timeout or a broken
    /// connection.
    pub(super) disconnects: f64,
    /// The share of steps whose success is a redirect.
    pub(super) redirect: f64,
    /// The share of steps whose success has no body.
    pub(super) empty: f64,
    /// The share of steps whose success has a body that is not JSON.
    pub(super) not_json: f64,
}

/// A task that a client submits.
#[derive(Debug, Clone)]
pub(super) struct TaskPlan {
    pub(super) task_id: TaskId,
    pub(super) workflow: String,
    /// When the client submits it first.
    pub(super) at: Millis,
    /// The times at which the client repeats the submission.
    pub(super) repeated_at: Vec<Millis>,
    pub(super) input: Value,
    /// Whether the id is also that of a child task, if the step with the child task runs.
    pub(super) id_collision: bool,
    pub(super) tenant: Option<Tenant>,
}

impl TaskPlan {
    /// A task that is submitted once, for no tenant.
    pub(super) fn once(task_id: TaskId, workflow: &str, at: Millis, input: Value) -> Self {
        Self {
            task_id,
            workflow: workflow.to_owned(),
            at,
            repeated_at: Vec::new(),
            input,
            id_collision: false,
            tenant: None,
        }
    }
}

/// A command that an operator sends.
#[derive(Debug, Clone)]
pub(super) struct CommandPlan {
    pub(super) at: Millis,
    pub(super) task_id: TaskId,
    pub(super) action: CommandAction,
    /// How many times the message is sent.
    pub(super) copies: u64,
}

/// Everything that the seed decides before the run.
#[derive(Debug)]
pub(super) struct SimulationPlan {
    /// The time settings of the deployment.
    pub(super) timing: Timing,
    /// The shards of the index of due tasks.
    pub(super) shards: u32,
    /// When random faults stop. Behaviour that depends only on the idempotency key continues: refusals, redirects, empty and
    /// non-JSON bodies. So do conflicts and late messages.
    pub(super) faults_until: Millis,
    pub(super) faults: InfrastructureFaults,
    pub(super) instances: Vec<InstancePlan>,
    pub(super) services: BTreeMap<AgentName, ServiceProfile>,
    /// The limits of the agents' calls, for those that have one.
    pub(super) rate_limits: BTreeMap<AgentName, RateLimit>,
    /// The descriptions from which `workflows` are created.
    pub(super) blueprints: Vec<Blueprint>,
    pub(super) workflows: Vec<Plan>,
    pub(super) tasks: Vec<TaskPlan>,
    pub(super) commands: Vec<CommandPlan>,
    /// How often the supervisor runs.
    pub(super) sweep_every: Millis,
    /// The timeout of an agent's function.
    pub(super) agent_timeout: Millis,
    /// The timeout of all other functions.
    pub(super) function_timeout: Millis,
    /// Whether operators act once the run is quiet: they resolve tasks in Error, undo some Processed tasks, and clients reuse
    /// some task ids.
    pub(super) operators_act_when_quiet: bool,
    /// The delay before operators act or resume paused tasks.
    pub(super) operator_delay: Millis,
    /// How often expired items are deleted: each time a random half of them.
    pub(super) delete_expired_every: Millis,
    /// When all schedulers and supervisors are down, so that messages pile up.
    pub(super) outage: Option<Range<Millis>>,
    pub(super) late_messages: LateMessagePlan,
    /// The payloads, in runs that have some.
    pub(super) payloads: Option<PayloadPlan>,
    /// Whether operators edit the lists of steps with `for_each`.
    pub(super) operators_edit_lists: bool,
    /// Whether the tasks are close to the size limits.
    pub(super) tasks_near_size_limits: bool,
}

#[cfg(test)]
impl SimulationPlan {
    /// A run without faults, operators and late messages: so many tasks of a workflow, one every ten milliseconds from this time on,
    /// at services that all have this profile.
    pub(super) fn of_tasks(
        workflow: Blueprint,
        tasks: u64,
        from: Millis,
        profile: &ServiceProfile,
    ) -> Self {
        let input = json!({ "amount": 1, "items": [], "wait": "1s" });
        let task = |n: u64| {
            let task_id = format!("order-{n}").parse().unwrap();
            TaskPlan::once(task_id, workflow.name.as_str(), from + n * 10, input.clone())
        };
        let usual = Self::of(0).unwrap();
        Self {
            faults_until: 0,
            faults: InfrastructureFaults::default(),
            services: usual.services.keys().map(|name| (name.clone(), profile.clone())).collect(),
            rate_limits: BTreeMap::new(),
            workflows: vec![workflow.workflow().unwrap()],
            tasks: (0..tasks).map(task).collect(),
            blueprints: vec![workflow],
            commands: Vec::new(),
            operators_act_when_quiet: false,
            operator_delay: 0,
            outage: None,
            late_messages: LateMessagePlan::default(),
            payloads: None,
            ..usual
        }
    }
}

/// The output that operators give when they complete a step.
pub(super) fn operator_output() -> Value {
    json!({ "by": "hand" })
}
