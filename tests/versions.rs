//! Versions of a workflow: a task keeps its version while others are published or unpublished, and a new task gets a
//! published version.

use aws_lambda_events::sqs::SqsBatchResponse;
use serde_json::json;
use steward_aws::{
    definitions::VersionSummary,
    publisher::{Publisher, UnpublishError},
};
use steward_core::{definition::workflow::Workflow, model::task::ProcessState};
use steward_emulator::host::publisher;
use steward_runtime::ports::{Ports, StateStore};

use crate::support::{
    TestDeployment, commands_event, completed_reply, scheduler_instance, sequential_workflow,
    sqs_event, wake_message,
};

/// This version of the workflow, with two steps in sequence.
fn workflow_version(version: u32) -> Workflow {
    Workflow { version, ..sequential_workflow(2) }
}

/// A deployment with a publisher.
struct VersionedDeployment {
    deployment: TestDeployment,
    publisher: Publisher,
}

impl VersionedDeployment {
    async fn open() -> Self {
        let deployment = TestDeployment::new(&workflow_version(1)).await;
        let ports = deployment.ports("publisher");
        let publisher = publisher(&deployment.aws, &deployment.config, &ports);
        Self { deployment, publisher }
    }

    async fn submit(&self, id: &str, version: Option<u32>) {
        let mut body = json!({ "task_id": id, "workflow": "line", "input": { "n": 1 } });
        if let Some(version) = version {
            body["version"] = json!(version);
        }
        let ports = self.deployment.ports("submission");
        let batch = sqs_event([body.to_string()], 1);
        let response =
            steward_submission::handle(&ports, &self.deployment.config.reply_queues, batch).await;
        assert_eq!(response, SqsBatchResponse::default());
    }

    /// The version of a task, if the task exists.
    async fn recorded_version(&self, id: &str) -> Option<u32> {
        let ports = self.deployment.ports("reader");
        let task = ports.store().load(&id.parse().unwrap()).await.unwrap();
        task.map(|task| task.version)
    }

    async fn schedule(&self, bodies: Vec<String>) {
        let ports = self.deployment.ports("scheduler");
        let response = steward_scheduler::handle(&ports, sqs_event(bodies, 1)).await;
        assert_eq!(response, SqsBatchResponse::default());
    }

    /// Runs a task to its end.
    async fn run(&self, id: &str) {
        self.schedule(vec![wake_message(id)]).await;
        self.complete_all_requests().await;
        assert_eq!(self.deployment.task(id).await.process_state, ProcessState::Processed);
    }

    /// Completes requests until there are no more.
    async fn complete_all_requests(&self) {
        loop {
            let replies: Vec<_> =
                self.deployment.take_agent_requests().await.iter().map(completed_reply).collect();
            if replies.is_empty() {
                return;
            }
            self.schedule(replies).await;
        }
    }

    async fn unpublish(&self, version: u32) -> Result<(), String> {
        let unpublished = self.publisher.unpublish(&"line".parse().unwrap(), version).await;
        unpublished.map_err(|error| error.to_string())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_keeps_its_version_and_a_new_task_gets_the_newest_or_the_named_one() {
    let fixture = VersionedDeployment::open().await;
    fixture.submit("old", None).await;
    fixture.schedule(vec![wake_message("old")]).await;
    fixture.publisher.publish(&Workflow { version: 2, ..sequential_workflow(1) }).await.unwrap();
    fixture.complete_all_requests().await;
    let old = fixture.deployment.task("old").await;
    assert_eq!((old.version, old.process_state), (1, ProcessState::Processed));
    assert_eq!(old.steps.len(), 2, "version 2 has one step");
    fixture.submit("new", None).await;
    fixture.submit("named", Some(1)).await;
    assert_eq!(fixture.recorded_version("new").await, Some(2));
    assert_eq!(fixture.recorded_version("named").await, Some(1));
    fixture.run("named").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_version_with_unresolved_tasks_cannot_be_unpublished() {
    let fixture = VersionedDeployment::open().await;
    for n in 1..=7 {
        fixture.submit(&format!("t-{n}"), None).await;
    }
    fixture.run("t-7").await;
    fixture.schedule(vec![wake_message("t-6")]).await;
    assert_eq!(
        fixture.unpublish(1).await.unwrap_err(),
        "cannot unpublish workflow `line` version 1: 6 of its tasks are neither Processed nor Undone: t-1, t-2, t-3, t-4, t-5, …; `steward workflow rollback` replaces a version at once"
    );
    fixture.submit("t-8", None).await;
    assert_eq!(fixture.recorded_version("t-8").await, Some(1), "version 1 is still published");
    fixture.publisher.publish(&workflow_version(2)).await.unwrap();
    fixture.unpublish(2).await.unwrap();
    for n in [1, 2, 3, 4, 5, 8] {
        fixture.schedule(vec![wake_message(&format!("t-{n}"))]).await;
    }
    fixture.complete_all_requests().await;
    fixture.unpublish(1).await.unwrap();
    assert_eq!(fixture.unpublish(3).await.unwrap_err(), "there is no workflow `line` version 3");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_processed_and_undone_tasks_release_their_version() {
    let fixture = VersionedDeployment::open().await;
    fixture.submit("t-1", None).await;
    let store = fixture.deployment.ports("writer");
    let store = store.store();
    for (state, releases_version) in [
        (ProcessState::Pending, false),
        (ProcessState::Processing, false),
        (ProcessState::Undoing, false),
        (ProcessState::Error, false),
        (ProcessState::Undone, true),
        (ProcessState::Processed, true),
    ] {
        let mut task = fixture.deployment.task("t-1").await;
        task.process_state = state;
        task.revision += 1;
        store.save(&task).await.unwrap();
        let unpublished = fixture.publisher.unpublish(&"line".parse().unwrap(), 1).await;
        match unpublished {
            Ok(()) => assert!(releases_version, "{state}"),
            Err(UnpublishError::InUse { count, first, .. }) => {
                assert!(!releases_version && count == 1 && first[0].as_str() == "t-1", "{state}");
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_tasks_do_not_use_an_unpublished_version_until_it_is_republished() {
    let fixture = VersionedDeployment::open().await;
    fixture.publisher.publish(&workflow_version(2)).await.unwrap();
    fixture.unpublish(2).await.unwrap();
    fixture.submit("newest", None).await;
    fixture.submit("named", Some(2)).await;
    assert_eq!(
        fixture.recorded_version("newest").await,
        Some(1),
        "version 1 is the newest published version"
    );
    assert_eq!(fixture.recorded_version("named").await, None);
    let rejected =
        fixture.deployment.take_messages(&fixture.deployment.config.rejected_queue_url).await;
    assert_eq!(rejected.len(), 1);
    fixture.publisher.publish(&workflow_version(2)).await.unwrap();
    fixture.submit("named", Some(2)).await;
    assert_eq!(fixture.recorded_version("named").await, Some(2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_submitted_during_unpublication_continues_and_can_be_undone() {
    let fixture = VersionedDeployment::open().await;
    fixture.submit("ended", None).await;
    fixture.run("ended").await;
    // A client submits after the publisher looked for unfinished tasks, and before it marks the version.
    let name = "line".parse().unwrap();
    assert_eq!(fixture.publisher.store.unresolved_tasks_of_version(&name, 1).await.unwrap(), []);
    fixture.submit("between", None).await;
    assert!(fixture.publisher.definitions.unpublish(&name, 1).await.unwrap());
    fixture.run("between").await;
    let undo = json!({
        "type": "command", "command_id": "c-1", "task_id": "ended", "order": { "command": "undo" },
        "by": "anna", "why": "sent back", "issued_at": jiff::Timestamp::now(),
    });
    let ports = fixture.deployment.ports("scheduler");
    let event = commands_event([undo.to_string()], Some("AIDAANNA"));
    let response = steward_scheduler::handle_with(&ports, &scheduler_instance(""), event).await;
    assert_eq!(response, SqsBatchResponse::default());
    assert_eq!(fixture.deployment.task("ended").await.process_state, ProcessState::Undone);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_list_contains_every_version_with_its_state_and_no_trigger() {
    let fixture = VersionedDeployment::open().await;
    let definitions = fixture.deployment.ports("reader").definitions;
    let trigger = json!({ "source": "shop", "detail_type": "Order Placed" });
    let triggered = Workflow {
        name: "a-line".parse().unwrap(),
        trigger: Some(serde_json::from_value(trigger).unwrap()),
        ..workflow_version(1)
    };
    definitions.publish(&triggered).await.unwrap();
    definitions.publish(&workflow_version(10)).await.unwrap();
    definitions.publish(&workflow_version(9)).await.unwrap();
    definitions.unpublish(&workflow_version(9).name, 9).await.unwrap();
    let summary = |all: Vec<VersionSummary>| -> Vec<_> {
        let one = |one: VersionSummary| (one.name.to_string(), one.version, one.is_published);
        all.into_iter().map(one).collect()
    };
    let listed = |version, is_published| ("line".to_owned(), version, is_published);
    let versions = vec![listed(1, true), listed(9, false), listed(10, true)];
    assert_eq!(
        summary(definitions.list_versions(&workflow_version(1).name).await.unwrap()),
        versions
    );
    assert_eq!(summary(definitions.list_versions(&"li".parse().unwrap()).await.unwrap()), []);
    let all = [vec![("a-line".to_owned(), 1, true)], versions].concat();
    assert_eq!(summary(definitions.list().await.unwrap()), all);
}
