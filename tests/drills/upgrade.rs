//! Upgrade drill: orders and drone deliveries while the functions of [two releases](super::two_releases) replace each other.
//! In each phase tasks are submitted, and the next phase begins while they are in flight. The services misbehave as in
//! `steward demo --chaos`. In the end the demo's audit decides.

use std::{
    collections::BTreeSet,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use steward_core::definition::workflow::Workflow;
use steward_demo::{
    audit::Audit,
    example_workflow::ExampleWorkflow,
    scenario::Scenario,
    services::{FaultPlan, MockServices},
};
use steward_emulator::resources;
use steward_runtime::ports::{Ports, StateStore};

use super::two_releases::{PHASE_COUNT, TwoReleases};

/// Tasks that are submitted in each phase.
const TASKS_PER_PHASE: usize = 12;

/// How many tasks of a phase have ended when the next one begins. The others are in flight.
const ENDED_PER_PHASE: usize = 4;

/// How long the drill waits for the ends of all tasks.
const TIMEOUT: Duration = Duration::from_secs(400);

struct Drill {
    scenario: &'static dyn Scenario,
    releases: TwoReleases,
    services: MockServices,
    alerted: Arc<Mutex<BTreeSet<String>>>,
}

/// The definition that the previous release shipped: definitions are upgraded last, because an old function cannot read a
/// new key.
fn workflow(scenario: &dyn Scenario) -> Workflow {
    match std::env::var_os("STEWARD_PREVIOUS_WORKFLOWS").map(PathBuf::from) {
        Some(folder) => {
            let file = folder.join(format!("{}.yaml", scenario.name()));
            steward_definition_file::read_file(&file).unwrap()
        }
        None => scenario.workflow().unwrap(),
    }
}

impl Drill {
    async fn start(scenario: &'static dyn Scenario) -> Self {
        let services =
            MockServices::start(scenario.services(), FaultPlan::chaos(11)).await.unwrap();
        let urls = scenario
            .services()
            .iter()
            .map(|service| (service.name().parse().unwrap(), services.base_url(*service)));
        let mut releases = TwoReleases::start(urls.collect(), 5, &[workflow(scenario)]).await;
        let alerted = Arc::<Mutex<BTreeSet<String>>>::default();
        let url = &releases.config.scheduler_queue_url;
        let alerts = url.replace(resources::SCHEDULER_QUEUE, resources::ALERTS_QUEUE);
        let collected = alerted.clone();
        releases.receive(alerts, move |body| {
            let event: Value = serde_json::from_str(body).unwrap();
            let detail = &event["detail"];
            let name = detail["metadata"]["event"].as_str().unwrap_or_default();
            if matches!(name, "task_in_error" | "undo_failed") {
                let id = detail["data"]["task_id"].as_str().unwrap_or_default();
                collected.lock().unwrap().insert(id.to_owned());
            }
        });
        Self { scenario, releases, services, alerted }
    }

    async fn submit(&self, numbers: std::ops::Range<usize>) {
        let sqs = aws_sdk_sqs::Client::new(&self.releases.aws.sdk_config());
        for number in numbers {
            let submission = json!({
                "task_id": self.scenario.task_id(number), "workflow": self.scenario.name(),
                "input": self.scenario.input(number),
            });
            let send = sqs.send_message().queue_url(&self.releases.config.submissions_queue_url);
            send.message_body(submission.to_string()).send().await.unwrap();
        }
    }

    /// The tasks below this number that have ended.
    async fn ended(&self, count: usize) -> usize {
        let mut ended = 0;
        for number in 0..count {
            let id = self.scenario.task_id(number).parse().unwrap();
            let task = self.releases.ports.store().load(&id).await.unwrap();
            ended += usize::from(
                task.is_some_and(|task| task.ended_at.is_some() || task.error.is_some()),
            );
        }
        ended
    }

    async fn wait_for_ends(&self, wanted: usize, submitted: usize) {
        let started = Instant::now();
        while self.ended(submitted).await < wanted {
            assert!(
                started.elapsed() < TIMEOUT,
                "{} of {submitted} tasks ended",
                self.ended(submitted).await
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Waits until the alert about a task has come from the bus. The audit finds it if it does not.
    async fn wait_for_alert(&self, task: &str) {
        let started = Instant::now();
        while !self.alerted.lock().unwrap().contains(task) && started.elapsed() < TIMEOUT {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn audit(&self, submitted: usize) -> Audit {
        let mut audit = Audit::of(self.scenario);
        let ledgers = self.services.ledgers();
        for number in 0..submitted {
            let name = self.scenario.task_id(number);
            let task = self.releases.ports.store().load(&name.parse().unwrap()).await.unwrap();
            if task.as_ref().is_some_and(|task| task.error.is_some()) {
                self.wait_for_alert(&name).await;
            }
            let alerted = self.alerted.lock().unwrap().clone();
            audit.check(number, task.as_ref(), &ledgers, &alerted);
        }
        audit.check_unknown_subjects(submitted, &ledgers);
        audit
    }
}

async fn drill(workflow: ExampleWorkflow) {
    let drill = Drill::start(workflow.scenario()).await;
    let mut submitted = 0;
    for phase in 0..PHASE_COUNT {
        drill.releases.enter(phase);
        drill.submit(submitted..submitted + TASKS_PER_PHASE).await;
        let before = drill.ended(submitted).await;
        submitted += TASKS_PER_PHASE;
        drill.wait_for_ends(before + ENDED_PER_PHASE, submitted).await;
    }
    drill.wait_for_ends(submitted, submitted).await;
    let audit = drill.audit(submitted).await;
    drill.releases.check_invocations();
    println!("{:?}", audit.by_state);
    assert_eq!(audit.findings, [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the binaries of two releases: .ci/upgrade-drill"]
async fn orders_survive_an_upgrade_by_halves_and_a_rollback() {
    Box::pin(drill(ExampleWorkflow::from_name("order").unwrap())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs the binaries of two releases: .ci/upgrade-drill"]
async fn drone_deliveries_survive_an_upgrade_by_halves_and_a_rollback() {
    Box::pin(drill(ExampleWorkflow::from_name("drone-delivery").unwrap())).await;
}
