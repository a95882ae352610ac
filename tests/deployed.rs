//! The real stack: the functions' own binaries, deployed from `template.yaml` on an emulator, spoken to over the
//! wire: on MiniStack, which enforces IAM, and on LocalStack. `.ci/e2e` builds, starts the emulator and runs this.
//!
//! Most of the time is waiting for the supervisor's minute, so the chapters run side by side on one
//! stack, and each has tasks of its own.

#![expect(clippy::print_stderr, reason = "it takes minutes, and says how far it is")]

use std::{collections::HashMap, rc::Rc};

use tokio::task::{Id, JoinError, JoinSet, LocalSet};

mod console;
mod emulator;
mod events;
mod functions;
mod http;
mod logs;
mod place;
mod recovery;
mod roles;
mod stack;
mod storm;
mod verify;

use place::place;
use stack::Stack;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs an emulator and built functions: .ci/e2e"]
async fn the_deployed_stack_does_what_the_design_says() {
    LocalSet::new().run_until(Box::pin(whole())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs an AWS account, or an emulator: infra/verify"]
async fn a_stack_of_its_own_is_verified() {
    LocalSet::new().run_until(Box::pin(verified())).await;
}

async fn whole() {
    let stack = Rc::new(Stack::deploy().await);
    every_chapter(&stack).await;
    stack.delete().await;
}

async fn verified() {
    let stack = Rc::new(Stack::deploy().await);
    let mut chapters = Chapters::default();
    // Alone: nothing else is to be timed.
    chapters.begin("latency", verify::steps_are_timed(stack.clone()));
    chapters.end().await;
    let mut long = Chapters::default();
    long.begin("long wait", verify::a_long_wait_ends(stack.clone()));
    chapters.begin("forty steps", verify::a_task_of_forty_steps_ends(stack.clone()));
    chapters.end().await;
    every_chapter(&stack).await;
    long.end().await;
    // The last: the table stays so. The script deletes the stack, also if a chapter fails.
    chapters.begin("throttled table", verify::tasks_end_on_a_throttled_table(stack.clone()));
    chapters.end().await;
}

async fn every_chapter(stack: &Rc<Stack>) {
    let mut chapters = Chapters::default();
    chapters.begin("storm", storm::every_task_ends_though_functions_are_killed(stack.clone()));
    chapters.begin("events", events::an_event_submits_a_task(stack.clone()));
    chapters.begin("schedule", events::a_schedule_submits_a_task(stack.clone()));
    chapters.begin("http", http::single_submissions_over_a_function_url(stack.clone()));
    chapters.begin("console", console::an_operator_opens_the_console(stack.clone()));
    chapters.end().await;
    // Alone: a scheduler that is killed meanwhile sends the request of the killed agent again.
    chapters.begin("recovery", recovery::the_supervisor_makes_a_killed_agent_good(stack.clone()));
    chapters.end().await;
    // Every function has run by now, so each has credentials that can be borrowed.
    if place().enforces_iam("roles") && place().shows_processes("roles") {
        chapters.begin("roles", roles::each_role_may_do_what_it_must_and_no_more(stack.clone()));
    }
    chapters.begin("logs", logs::counts_are_in_the_logs_and_payloads_are_not());
    if place().shows_processes("traces: the collector is one of this machine") {
        chapters.begin("traces", logs::a_task_is_one_trace(stack.clone()));
    }
    chapters.end().await;
}

/// What runs side by side. A chapter that fails does not keep the others from being told.
#[derive(Default)]
struct Chapters {
    running: JoinSet<()>,
    names: HashMap<Id, &'static str>,
}

impl Chapters {
    fn begin(&mut self, name: &'static str, chapter: impl Future<Output = ()> + 'static) {
        self.names.insert(self.running.spawn_local(chapter).id(), name);
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
