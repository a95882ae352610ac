//! Measures the AWS usage of each function while tasks run through the real handlers, in steady load with full batches,
//! with the SDK's clients.

use std::ops::{Add, Sub};

use aws_lambda_events::sqs::SqsBatchResponse;
use jiff::SignedDuration;
use serde_json::{Value, json};
use steward_agent::Agent;
use steward_aws::{
    meter::{AwsMeter, total},
    ports::SharedInterceptor,
};
use steward_core::{
    breaker::BreakerSettings, definition::workflow::Workflow, model::task::ProcessState,
};
use steward_runtime::ports::{Clock, Ports};
use steward_test_world::service::{FakeService, PlannedServices};

use crate::support::{AdapterPorts, TestDeployment, sqs_event};

/// The number of messages in a batch.
const BATCH: usize = 10;

/// The number of measured tasks of most scenarios: one batch, so that every batch is full.
pub(super) const TASKS: usize = BATCH;

/// The average usage of one task, or of one step.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct AwsUsage {
    pub(super) write_units: f64,
    pub(super) read_units: f64,
    /// Sends, and one receive and one delete by Lambda's poller for each batch.
    pub(super) sqs_requests: f64,
    pub(super) invocations: f64,
    pub(super) events: f64,
}

/// Write units, read units, SQS requests, invocations, events.
pub(super) type RoundedUsage = [f64; 5];

impl AwsUsage {
    /// Rounded to thousandths, because sums of floats are not exact.
    pub(super) fn rounded(&self) -> RoundedUsage {
        let Self { write_units, read_units, sqs_requests, invocations, events } = *self;
        [write_units, read_units, sqs_requests, invocations, events]
            .map(|figure| (figure * 1_000.0).round() / 1_000.0)
    }

    fn map(self, other: Self, f: impl Fn(f64, f64) -> f64) -> Self {
        Self {
            write_units: f(self.write_units, other.write_units),
            read_units: f(self.read_units, other.read_units),
            sqs_requests: f(self.sqs_requests, other.sqs_requests),
            invocations: f(self.invocations, other.invocations),
            events: f(self.events, other.events),
        }
    }
}

impl Add for AwsUsage {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        self.map(other, |one, other| one + other)
    }
}

impl Sub for AwsUsage {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self.map(other, |one, other| one - other)
    }
}

/// The usage of each function.
#[derive(Debug, Clone, Copy)]
pub(super) struct UsageByFunction {
    pub(super) submission: AwsUsage,
    pub(super) scheduler: AwsUsage,
    pub(super) agent: AwsUsage,
}

impl UsageByFunction {
    pub(super) fn all(&self) -> AwsUsage {
        self.submission + self.scheduler + self.agent
    }

    fn map(self, other: Self, f: impl Fn(AwsUsage, AwsUsage) -> AwsUsage) -> Self {
        Self {
            submission: f(self.submission, other.submission),
            scheduler: f(self.scheduler, other.scheduler),
            agent: f(self.agent, other.agent),
        }
    }

    /// The usage per step of a task with `steps` additional steps, whose usage is `more`.
    pub(super) fn per_additional_step(self, steps: usize, more: Self) -> Self {
        let steps = steps as f64;
        let by = AwsUsage {
            write_units: steps,
            read_units: steps,
            sqs_requests: steps,
            invocations: steps,
            events: steps,
        };
        more.map(self, |more, less| (more - less).map(by, |one, other| one / other))
    }

    /// The usage of the task without its `steps`, each of which has the usage `each`.
    pub(super) fn without_steps(self, steps: usize, each: Self) -> Self {
        self.map(each, |all, each| (0..steps).fold(all, |left, _| left - each))
    }
}

/// How the replies of parallel steps are distributed over batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReplyBatching {
    /// The replies for one task are in different batches, as with services that take different times.
    SeparateBatches,
    /// The replies for one task are in the same batch.
    SameBatch,
}

/// A workflow with the documents and the batching that determine its usage.
#[derive(Debug, Clone)]
pub(super) struct UsageScenario {
    pub(super) workflow: Workflow,
    pub(super) input: Value,
    /// The output of every step.
    pub(super) output: Value,
    pub(super) replies: ReplyBatching,
    /// The number of measured tasks.
    pub(super) tasks: usize,
}

impl UsageScenario {
    pub(super) fn new(workflow: Workflow) -> Self {
        let (input, output) = (json!({ "n": 1 }), json!({ "id": "step-1" }));
        Self { workflow, input, output, replies: ReplyBatching::SeparateBatches, tasks: TASKS }
    }

    /// Measures a run. The load is steady: the instances have cached the definition and the circuit breaker. The
    /// periodic query of submission for published versions is excluded, because it does not depend on the tasks.
    pub(super) async fn measure(&self) -> UsageByFunction {
        let deployment = TestDeployment::new(&self.workflow).await;
        // DynamoDB does not count trailing zeros of a number, so the time must have none, whenever the test runs.
        let past_the_second = deployment.clock.now().as_millisecond().rem_euclid(1_000);
        deployment.clock.advance_by(SignedDuration::from_millis(1_111 - past_the_second));
        let service = FakeService::completing(self.output.clone());
        let functions = MeteredFunctions {
            scenario: self,
            submission: MeteredPorts::new(&deployment, "submission"),
            scheduler: MeteredPorts::new(&deployment, "scheduler"),
            agent: MeteredPorts::new(&deployment, "agent"),
            service: Agent::new("a".parse().unwrap(), service, BreakerSettings::default()),
        };
        functions.run(&deployment, "warm-up1", 1).await;
        let before = functions.usage();
        let invocations = functions.run(&deployment, "counted1", self.tasks).await;
        let used = functions.usage().map(before, |after, before| after - before);
        used.map(invocations, |used, invocations| {
            let polls = AwsUsage { sqs_requests: 2.0 * invocations.invocations, ..invocations };
            (used + polls).map(AwsUsage::default(), |figure, _| figure / self.tasks as f64)
        })
    }
}

/// The ports of a function, with a meter of their requests.
struct MeteredPorts {
    ports: AdapterPorts,
    meter: AwsMeter,
}

impl MeteredPorts {
    fn new(deployment: &TestDeployment, role: &str) -> Self {
        let meter = AwsMeter::default();
        let ports =
            deployment.ports_with_interceptors(role, vec![SharedInterceptor::new(meter.clone())]);
        Self { ports, meter }
    }

    fn usage(&self) -> AwsUsage {
        let read = self.meter.read();
        let dynamodb = total(&read, "DynamoDB.");
        // Published versions are queried every ten seconds of the machine's clock.
        let definitions = total(&read, "DynamoDB.Query");
        AwsUsage {
            write_units: dynamodb.write_units,
            read_units: dynamodb.read_units - definitions.read_units,
            sqs_requests: total(&read, "SQS.").requests as f64,
            invocations: 0.0,
            events: total(&read, "EventBridge.").events as f64,
        }
    }
}

/// The functions of a deployment, with a meter for each.
struct MeteredFunctions<'c> {
    scenario: &'c UsageScenario,
    submission: MeteredPorts,
    scheduler: MeteredPorts,
    agent: MeteredPorts,
    service: Agent<FakeService<PlannedServices>>,
}

impl MeteredFunctions<'_> {
    fn usage(&self) -> UsageByFunction {
        UsageByFunction {
            submission: self.submission.usage(),
            scheduler: self.scheduler.usage(),
            agent: self.agent.usage(),
        }
    }

    /// Runs `count` tasks to their end; returns the number of invocations.
    async fn run(&self, deployment: &TestDeployment, name: &str, count: usize) -> UsageByFunction {
        // As long as UUIDs, because the id is part of every item.
        let ids: Vec<_> = (0..count).map(|n| format!("{name}-f04e-4000-8000-{n:012x}")).collect();
        let (mut submissions, mut decisions, mut calls) = (0, 0, 0);
        for batch in ids.chunks(BATCH) {
            let event = sqs_event(batch.iter().map(|id| self.submission_of(id)), 1);
            let queues = &deployment.config.reply_queues;
            let response = steward_submission::handle(&self.submission.ports, queues, event).await;
            assert_eq!(response, SqsBatchResponse::default());
            submissions += 1;
        }
        loop {
            let messages = self.sorted(deployment.take_scheduler_messages().await);
            if messages.is_empty() {
                break;
            }
            for batch in messages.chunks(BATCH) {
                let event = sqs_event(batch.to_vec(), 1);
                let response = steward_scheduler::handle(&self.scheduler.ports, event).await;
                assert_eq!(response, SqsBatchResponse::default());
                decisions += 1;
            }
            for batch in self.sorted(deployment.take_agent_messages().await).chunks(BATCH) {
                let ports = &self.agent.ports;
                let deadline = ports.clock().now() + SignedDuration::from_secs(60);
                let event = sqs_event(batch.to_vec(), 1);
                let response = steward_agent::handle(ports, &self.service, event, deadline).await;
                assert_eq!(response, SqsBatchResponse::default());
                calls += 1;
            }
        }
        for id in &ids {
            assert_eq!(deployment.task(id).await.process_state, ProcessState::Processed);
        }
        let [submission, scheduler, agent] = [submissions, decisions, calls]
            .map(|count| AwsUsage { invocations: f64::from(count), ..AwsUsage::default() });
        UsageByFunction { submission, scheduler, agent }
    }

    fn submission_of(&self, id: &str) -> String {
        let UsageScenario { workflow, input, .. } = self.scenario;
        json!({ "task_id": id, "workflow": workflow.name, "input": input }).to_string()
    }

    /// Messages in the order in which they are divided into batches.
    fn sorted(&self, mut messages: Vec<String>) -> Vec<String> {
        messages.sort_by_cached_key(|body| {
            let message: Value = serde_json::from_str(body).unwrap();
            let [task, step] = ["task_id", "step"].map(|key| message[key].to_string());
            match self.scenario.replies {
                ReplyBatching::SeparateBatches => (step, task),
                ReplyBatching::SameBatch => (task, step),
            }
        });
        messages
    }
}
