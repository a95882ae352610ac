//! Tests of a deployed stack: the functions' binaries, deployed from `template.yaml` on an emulator and called over the
//! network: on MiniStack, which enforces IAM, and on LocalStack. `.ci/e2e` builds the functions, starts the emulator and
//! runs this test.
//!
//! Most of the time is spent waiting for the supervisor, which runs every minute. So the checks run concurrently on one
//! stack, each with its own tasks.

use std::{collections::HashMap, rc::Rc};

use tokio::task::{Id, JoinError, JoinSet, LocalSet};

mod agent_stacks;
mod aws_kinds;
mod aws_requests;
mod callbacks;
mod checked_agent;
mod commands;
mod console;
mod events;
mod example_agents;
mod forwarder;
mod functions;
mod http;
mod killed_functions;
mod own_agent;
mod payloads;
mod permissions;
mod recovery;
mod stack;
mod target;
mod telemetry;
#[path = "../functions/agent/tests/tls/mod.rs"]
mod tls;
mod verify;

use stack::Stack;
use target::deployment_target;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs an emulator and built functions: .ci/e2e"]
async fn the_deployed_stack_does_what_the_design_says() {
    LocalSet::new().run_until(Box::pin(check_stack())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs an AWS account, or an emulator: infra/verify"]
async fn a_stack_of_its_own_is_verified() {
    LocalSet::new().run_until(Box::pin(verify_stack())).await;
}

async fn check_stack() {
    let stack = Rc::new(Stack::deploy().await);
    run_all_checks(&stack).await;
    stack.delete().await;
}

async fn verify_stack() {
    let stack = Rc::new(Stack::deploy().await);
    let mut checks = ConcurrentChecks::default();
    // Runs alone, so that nothing else affects the timing.
    checks.start("latency", verify::print_step_times(stack.clone()));
    checks.end().await;
    let mut long = ConcurrentChecks::default();
    long.start("long wait", verify::long_wait_ends(stack.clone()));
    checks.start("forty steps", verify::task_of_forty_steps_ends(stack.clone()));
    checks.end().await;
    run_all_checks(&stack).await;
    long.end().await;
    // Runs last, because the table stays throttled. The script deletes the stack, also if a check fails.
    checks.start("throttled table", verify::tasks_end_on_a_throttled_table(stack.clone()));
    checks.end().await;
}

async fn run_all_checks(stack: &Rc<Stack>) {
    let mut checks = ConcurrentChecks::default();
    checks.start(
        "killed functions",
        killed_functions::every_task_ends_although_functions_are_killed(stack.clone()),
    );
    checks.start("events", events::event_submits_a_task(stack.clone()));
    checks.start("awaited event", events::event_completes_a_step(stack.clone()));
    checks.start("schedule", events::schedule_submits_a_task(stack.clone()));
    checks.start("http", http::function_url_accepts_submissions(stack.clone()));
    checks.start("console", console::operator_uses_the_console(stack.clone()));
    checks.start("own agent", own_agent::agent_is_a_stack_of_its_own(stack.clone()));
    checks.start("example agents", example_agents::example_agents_run_as_functions(stack.clone()));
    checks.start("payloads", payloads::payloads_go_to_a_service_and_back(stack.clone()));
    checks.start("aws kinds", aws_kinds::agents_call_aws_services(stack.clone()));
    checks.end().await;
    // Runs alone: if a scheduler were killed meanwhile, it would send the killed agent's request again.
    checks
        .start("recovery", recovery::supervisor_recovers_the_task_of_a_killed_agent(stack.clone()));
    checks.start("checked agent", checked_agent::agent_obeys_the_contract(stack.clone()));
    checks.end().await;
    checks.start("commands", commands::only_operators_command(stack.clone()));
    checks.end().await;
    // Every function has run by now, so the credentials of each can be read.
    if deployment_target().enforces_iam("roles") && deployment_target().shows_processes("roles") {
        checks
            .start("roles", permissions::each_function_has_exactly_its_permissions(stack.clone()));
    }
    checks.start("logs", telemetry::logs_contain_metrics_and_no_payloads());
    if deployment_target()
        .shows_processes("traces: functions cannot reach the collector on this machine")
    {
        checks.start("traces", telemetry::task_has_one_trace(stack.clone()));
    }
    checks.end().await;
    aws_kinds::delete_agents(stack.clone()).await;
}

/// Checks that run concurrently. A failed check does not stop the others.
#[derive(Default)]
struct ConcurrentChecks {
    running: JoinSet<()>,
    names: HashMap<Id, &'static str>,
}

impl ConcurrentChecks {
    fn start(&mut self, name: &'static str, check: impl Future<Output = ()> + 'static) {
        self.names.insert(self.running.spawn_local(check).id(), name);
    }

    async fn end(&mut self) {
        let mut failed = Vec::new();
        while let Some(result) = self.running.join_next_with_id().await {
            let id = result.as_ref().map_or_else(JoinError::id, |(id, ())| *id);
            eprintln!("{}: {}", self.names[&id], if result.is_ok() { "ok" } else { "FAILED" });
            failed.extend(result.is_err().then_some(self.names[&id]));
        }
        assert!(failed.is_empty(), "failed: {failed:?}");
    }
}
