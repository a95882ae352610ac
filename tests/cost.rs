//! What a task costs, counted: requests, read and write units, invocations, in steady load with full
//! batches. Pinned, so that a change in the shape of the state shows.

use aws_lambda_events::sqs::SqsBatchResponse;
use steward_aws::{
    meter::{Meter, Usage, total},
    ports::SharedInterceptor,
};
use steward_core::{
    effects::{Effect, Send, carry_out},
    task::ProcessState,
};

use crate::support::{Deployment, TestPorts, event, line, reply, submission};

/// Tasks in the run: a multiple of the batch.
const TASKS: usize = 20;
const BATCH: usize = 10;

/// What one task used on average.
#[derive(Debug, PartialEq)]
struct Cost {
    write_units: f64,
    read_units: f64,
    /// Sends, and the receive and delete that Lambda's poller makes for each batch.
    sqs_requests: f64,
    invocations: f64,
}

/// Runs tasks of `steps` steps through every role, in full batches, and counts. The load is steady:
/// instances have read the definition before.
async fn cost(steps: usize) -> Cost {
    let deployment = Deployment::new(&line(steps)).await;
    let meter = Meter::default();
    let ports = |role| deployment.watched(role, vec![SharedInterceptor::new(meter.clone())]);
    let roles = Roles {
        submission: ports("submission"),
        scheduler: ports("scheduler"),
        agent: ports("agent"),
    };
    roles.run(&deployment, "warm-up", 1).await;
    let before = meter.read();
    let invocations = roles.run(&deployment, "task", TASKS).await;
    let after = meter.read();
    let used = |prefix, figure: fn(Usage) -> f64| {
        (figure(total(&after, prefix)) - figure(total(&before, prefix))) / TASKS as f64
    };
    Cost {
        write_units: used("DynamoDB.", |usage| usage.write_units),
        read_units: used("DynamoDB.", |usage| usage.read_units),
        sqs_requests: used("SQS.", |usage| usage.requests as f64)
            + (2 * invocations) as f64 / TASKS as f64,
        invocations: invocations as f64 / TASKS as f64,
    }
}

struct Roles {
    submission: TestPorts,
    scheduler: TestPorts,
    agent: TestPorts,
}

impl Roles {
    /// Runs `count` tasks to their end; returns how many invocations that took.
    async fn run(&self, deployment: &Deployment, name: &str, count: usize) -> usize {
        let mut invocations = 0;
        let ids: Vec<_> = (0..count).map(|n| format!("{name}-{n:04}")).collect();
        for batch in ids.chunks(BATCH) {
            let event = event(batch.iter().map(|id| submission(id)), 1);
            let answer =
                submission::handle(&self.submission, &deployment.config.reply_queues, event);
            assert_eq!(answer.await, SqsBatchResponse::default());
            invocations += 1;
        }
        loop {
            let messages = deployment.to_scheduler().await;
            if messages.is_empty() {
                break;
            }
            for batch in messages.chunks(BATCH) {
                scheduler::handle(&self.scheduler, event(batch.to_vec(), 1)).await;
                invocations += 1;
            }
            for batch in deployment.requests().await.chunks(BATCH) {
                let replies = batch.iter().map(|request| Send {
                    effect: Effect::Reply(reply(request)),
                    traceparent: None,
                });
                let sent = carry_out(&self.agent, replies.collect()).await;
                assert!(sent.iter().all(Result::is_ok));
                invocations += 1;
            }
        }
        for id in &ids {
            assert_eq!(deployment.task(id).await.process_state, ProcessState::Processed);
        }
        invocations
    }
}

#[tokio::test]
async fn a_task_of_one_step() {
    let cost = cost(1).await;
    assert_eq!(
        cost,
        Cost { write_units: 9.0, read_units: 3.0, sqs_requests: 1.1, invocations: 0.4 }
    );
}

#[tokio::test]
async fn each_step_costs_the_same_from_one_to_twenty() {
    let (one, five, twenty) = (cost(1).await, cost(5).await, cost(20).await);
    for (steps, more) in [(5, five), (20, twenty)] {
        let each = |one: f64, more: f64| (more - one) / f64::from(steps - 1);
        let per_step = Cost {
            write_units: each(one.write_units, more.write_units),
            read_units: each(one.read_units, more.read_units),
            sqs_requests: each(one.sqs_requests, more.sqs_requests),
            invocations: each(one.invocations, more.invocations),
        };
        let rounded = |value: f64| (value * 1_000.0).round() / 1_000.0;
        let figures = (
            rounded(per_step.write_units),
            rounded(per_step.read_units),
            rounded(per_step.sqs_requests),
            rounded(per_step.invocations),
        );
        // Targets: at most 2, 3, 0.7 and 0.25.
        assert_eq!(figures, (2.0, 2.0, 0.6, 0.2), "a step of {steps}");
    }
    // Beside its steps, a task costs 7 write units; the target is 8.
    assert!((one.write_units - 2.0 - 7.0).abs() < 1e-9, "{one:?}");
}
