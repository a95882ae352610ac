//! The ledger: tasks go through the real handlers in steady load and full batches, on the SDK's own
//! clients, and what each function uses is counted.

use std::ops::{Add, Sub};

use aws_lambda_events::sqs::SqsBatchResponse;
use jiff::SignedDuration;
use serde_json::{Value, json};
use steward_agent::Agent;
use steward_agent::attempt::{Fault, RemoteService};
use steward_aws::{
    meter::{Meter, total},
    ports::SharedInterceptor,
};
use steward_core::{
    breaker::Settings,
    definition::workflow::Workflow,
    model::{messages::StepRequest, task::ProcessState},
};
use steward_runtime::ports::{Clock, Ports};

use crate::support::{Deployment, TestPorts, event};

/// Tasks in the run: a full batch, so that every batch is full.
pub(super) const TASKS: usize = 10;
const BATCH: usize = 10;

/// What one task used on average, or one step.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Cost {
    pub(super) write_units: f64,
    pub(super) read_units: f64,
    /// Sends, and the receive and delete that Lambda's poller makes for each batch.
    pub(super) sqs_requests: f64,
    pub(super) invocations: f64,
    pub(super) events: f64,
}

/// Write units, read units, SQS requests, invocations, events.
pub(super) type Figures = [f64; 5];

impl Cost {
    /// Rounded, since tenths do not add up exactly.
    pub(super) fn figures(&self) -> Figures {
        let Self { write_units, read_units, sqs_requests, invocations, events } = *self;
        [write_units, read_units, sqs_requests, invocations, events]
            .map(|figure| (figure * 1_000.0).round() / 1_000.0)
    }

    fn map(self, other: Self, f: fn(f64, f64) -> f64) -> Self {
        Self {
            write_units: f(self.write_units, other.write_units),
            read_units: f(self.read_units, other.read_units),
            sqs_requests: f(self.sqs_requests, other.sqs_requests),
            invocations: f(self.invocations, other.invocations),
            events: f(self.events, other.events),
        }
    }
}

impl Add for Cost {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        self.map(other, |one, other| one + other)
    }
}

impl Sub for Cost {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self.map(other, |one, other| one - other)
    }
}

/// What each function used.
#[derive(Debug, Clone, Copy)]
pub(super) struct Costs {
    pub(super) submission: Cost,
    pub(super) scheduler: Cost,
    pub(super) agent: Cost,
}

impl Costs {
    pub(super) fn all(&self) -> Cost {
        self.submission + self.scheduler + self.agent
    }

    fn map(self, other: Self, f: impl Fn(Cost, Cost) -> Cost) -> Self {
        Self {
            submission: f(self.submission, other.submission),
            scheduler: f(self.scheduler, other.scheduler),
            agent: f(self.agent, other.agent),
        }
    }

    /// What each of `steps` more steps took, which `more` has.
    pub(super) fn each_of(self, steps: usize, more: Self) -> Self {
        let steps = steps as f64;
        let by = Cost {
            write_units: steps,
            read_units: steps,
            sqs_requests: steps,
            invocations: steps,
            events: steps,
        };
        more.map(self, |more, less| (more - less).map(by, |one, other| one / other))
    }

    /// What is left for the task without its `steps`.
    pub(super) fn beside(self, steps: usize, each: Self) -> Self {
        self.map(each, |all, each| (0..steps).fold(all, |left, _| left - each))
    }
}

/// When the answers of steps come that run side by side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answers {
    /// In batches of their own: services take unequally long.
    Apart,
    /// The answers to one task in the same batch.
    Together,
}

/// What is run.
#[derive(Debug, Clone)]
pub(super) struct Case {
    pub(super) workflow: Workflow,
    pub(super) input: Value,
    /// What every step returns.
    pub(super) output: Value,
    pub(super) answers: Answers,
}

impl Case {
    pub(super) fn new(workflow: Workflow) -> Self {
        let (input, output) = (json!({ "n": 1 }), json!({ "id": "step-1" }));
        Self { workflow, input, output, answers: Answers::Apart }
    }

    /// Counts a run. The load is steady: instances have read the definition and the breaker before. That
    /// submission asks now and then what is published is no task's, and is left out.
    pub(super) async fn counted(&self) -> Costs {
        let deployment = Deployment::new(&self.workflow).await;
        // DynamoDB does not count a number's last zeros: a time without any, whenever this is run.
        let past_the_second = deployment.clock.now().as_millisecond().rem_euclid(1_000);
        deployment.clock.advance_by(SignedDuration::from_millis(1_111 - past_the_second));
        let service = Returns(self.output.clone());
        let functions = Functions {
            case: self,
            submission: Counted::new(&deployment, "submission"),
            scheduler: Counted::new(&deployment, "scheduler"),
            agent: Counted::new(&deployment, "agent"),
            service: Agent::new("a".parse().unwrap(), service, Settings::default()),
        };
        functions.run(&deployment, "warm-up1", 1).await;
        let before = functions.used();
        let invocations = functions.run(&deployment, "counted1", TASKS).await;
        let used = functions.used().map(before, |after, before| after - before);
        used.map(invocations, |used, invocations| {
            let polls = Cost { sqs_requests: 2.0 * invocations.invocations, ..invocations };
            (used + polls).map(Cost::default(), |figure, _| figure / TASKS as f64)
        })
    }
}

/// A remote service that returns this at once.
#[derive(Debug, Clone)]
struct Returns(Value);

impl RemoteService for Returns {
    async fn call(&self, _: &StepRequest, _: Option<&str>) -> Result<Value, Fault> {
        Ok(self.0.clone())
    }
}

/// A function's ports, and what went through them.
struct Counted {
    ports: TestPorts,
    meter: Meter,
}

impl Counted {
    fn new(deployment: &Deployment, role: &str) -> Self {
        let meter = Meter::default();
        let ports = deployment.watched(role, vec![SharedInterceptor::new(meter.clone())]);
        Self { ports, meter }
    }

    fn used(&self) -> Cost {
        let read = self.meter.read();
        let dynamodb = total(&read, "DynamoDB.");
        // What is published is asked for once in ten seconds, by the machine's clock.
        let definitions = total(&read, "DynamoDB.Query");
        Cost {
            write_units: dynamodb.write_units,
            read_units: dynamodb.read_units - definitions.read_units,
            sqs_requests: total(&read, "SQS.").requests as f64,
            invocations: 0.0,
            events: total(&read, "EventBridge.").events as f64,
        }
    }
}

struct Functions<'c> {
    case: &'c Case,
    submission: Counted,
    scheduler: Counted,
    agent: Counted,
    service: Agent<Returns>,
}

impl Functions<'_> {
    fn used(&self) -> Costs {
        Costs {
            submission: self.submission.used(),
            scheduler: self.scheduler.used(),
            agent: self.agent.used(),
        }
    }

    /// Runs `count` tasks to their end; returns how many invocations that took.
    async fn run(&self, deployment: &Deployment, name: &str, count: usize) -> Costs {
        // As long as UUIDs: ids are part of every item.
        let ids: Vec<_> = (0..count).map(|n| format!("{name}-f04e-4000-8000-{n:012x}")).collect();
        let (mut submissions, mut decisions, mut calls) = (0, 0, 0);
        for batch in ids.chunks(BATCH) {
            let event = event(batch.iter().map(|id| self.submitted(id)), 1);
            let queues = &deployment.config.reply_queues;
            let answer = steward_submission::handle(&self.submission.ports, queues, event).await;
            assert_eq!(answer, SqsBatchResponse::default());
            submissions += 1;
        }
        loop {
            let messages = self.sorted(deployment.to_scheduler().await);
            if messages.is_empty() {
                break;
            }
            for batch in messages.chunks(BATCH) {
                let event = event(batch.to_vec(), 1);
                let answer = steward_scheduler::handle(&self.scheduler.ports, event).await;
                assert_eq!(answer, SqsBatchResponse::default());
                decisions += 1;
            }
            for batch in self.sorted(deployment.to_agent().await).chunks(BATCH) {
                let ports = &self.agent.ports;
                let deadline = ports.clock().now() + SignedDuration::from_secs(60);
                let event = event(batch.to_vec(), 1);
                let answer = steward_agent::handle(ports, &self.service, event, deadline).await;
                assert_eq!(answer, SqsBatchResponse::default());
                calls += 1;
            }
        }
        for id in &ids {
            assert_eq!(deployment.task(id).await.process_state, ProcessState::Processed);
        }
        let [submission, scheduler, agent] = [submissions, decisions, calls]
            .map(|count| Cost { invocations: f64::from(count), ..Cost::default() });
        Costs { submission, scheduler, agent }
    }

    fn submitted(&self, id: &str) -> String {
        let Case { workflow, input, .. } = self.case;
        json!({ "task_id": id, "workflow": workflow.name, "input": input }).to_string()
    }

    /// Messages in the order in which they make batches.
    fn sorted(&self, mut messages: Vec<String>) -> Vec<String> {
        messages.sort_by_cached_key(|body| {
            let message: Value = serde_json::from_str(body).unwrap();
            let [task, step] = ["task_id", "step"].map(|key| message[key].to_string());
            match self.case.answers {
                Answers::Apart => (step, task),
                Answers::Together => (task, step),
            }
        });
        messages
    }
}
