//! Versions: a task stays with the one that it began with, whatever is published or unpublished
//! meanwhile, and new tasks take what is published.

use aws_lambda_events::sqs::SqsBatchResponse;
use serde_json::json;
use steward_aws::{
    definitions::Listed,
    publisher::{Publisher, UnpublishError},
};
use steward_core::{definition::workflow::Workflow, model::task::ProcessState};
use steward_emulator::host::publisher;
use steward_runtime::ports::{Ports, StateStore};

use crate::support::{Deployment, completed, event, line, wake};

/// The workflow of two steps in a row, in this version.
fn version(version: u32) -> Workflow {
    Workflow { version, ..line(2) }
}

struct World {
    deployment: Deployment,
    publisher: Publisher,
}

impl World {
    async fn open() -> Self {
        let deployment = Deployment::new(&version(1)).await;
        let ports = deployment.ports("publisher");
        let publisher = publisher(&deployment.aws, &deployment.config, &ports.aws);
        Self { deployment, publisher }
    }

    async fn submit(&self, id: &str, version: Option<u32>) {
        let mut body = json!({ "task_id": id, "workflow": "line", "input": { "n": 1 } });
        if let Some(version) = version {
            body["version"] = json!(version);
        }
        let ports = self.deployment.ports("submission");
        let batch = event([body.to_string()], 1);
        let answer =
            steward_submission::handle(&ports, &self.deployment.config.reply_queues, batch).await;
        assert_eq!(answer, SqsBatchResponse::default());
    }

    /// The version that a task was recorded with, if it was.
    async fn recorded(&self, id: &str) -> Option<u32> {
        let ports = self.deployment.ports("reader");
        let task = ports.store().load(&id.parse().unwrap()).await.unwrap();
        task.map(|task| task.version)
    }

    async fn decide(&self, bodies: Vec<String>) {
        let ports = self.deployment.ports("scheduler");
        let answer = steward_scheduler::handle(&ports, event(bodies, 1)).await;
        assert_eq!(answer, SqsBatchResponse::default());
    }

    /// Carries out what a task asks its agent until it asks no more.
    async fn run(&self, id: &str) {
        self.decide(vec![wake(id)]).await;
        self.answer_all().await;
        assert_eq!(self.deployment.task(id).await.process_state, ProcessState::Processed);
    }

    async fn answer_all(&self) {
        loop {
            let replies: Vec<_> = self.deployment.requests().await.iter().map(completed).collect();
            if replies.is_empty() {
                return;
            }
            self.decide(replies).await;
        }
    }

    async fn unpublish(&self, version: u32) -> Result<(), String> {
        let unpublished = self.publisher.unpublish(&"line".parse().unwrap(), version).await;
        unpublished.map_err(|error| error.to_string())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_stays_with_its_version_and_a_new_one_takes_the_newest_or_the_one_it_names() {
    let world = World::open().await;
    world.submit("old", None).await;
    world.decide(vec![wake("old")]).await;
    world.publisher.publish(&Workflow { version: 2, ..line(1) }).await.unwrap();
    world.answer_all().await;
    let old = world.deployment.task("old").await;
    assert_eq!((old.version, old.process_state), (1, ProcessState::Processed));
    assert_eq!(old.steps.len(), 2, "version 2 has one step");
    world.submit("new", None).await;
    world.submit("named", Some(1)).await;
    assert_eq!(world.recorded("new").await, Some(2));
    assert_eq!(world.recorded("named").await, Some(1));
    world.run("named").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_tasks_are_not_at_rest_their_version_is_not_unpublished() {
    let world = World::open().await;
    for n in 1..=7 {
        world.submit(&format!("t-{n}"), None).await;
    }
    world.run("t-7").await;
    world.decide(vec![wake("t-6")]).await;
    assert_eq!(
        world.unpublish(1).await.unwrap_err(),
        "cannot unpublish workflow `line` version 1: it has 6 unfinished tasks: t-1, t-2, t-3, t-4, t-5, …"
    );
    world.submit("t-8", None).await;
    assert_eq!(world.recorded("t-8").await, Some(1), "nothing was unpublished");
    world.publisher.publish(&version(2)).await.unwrap();
    world.unpublish(2).await.unwrap();
    for n in [1, 2, 3, 4, 5, 8] {
        world.decide(vec![wake(&format!("t-{n}"))]).await;
    }
    world.answer_all().await;
    world.unpublish(1).await.unwrap();
    assert_eq!(world.unpublish(3).await.unwrap_err(), "there is no workflow `line` version 3");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_in_error_or_being_undone_still_needs_its_version() {
    let world = World::open().await;
    world.submit("t-1", None).await;
    let store = world.deployment.ports("writer");
    let store = store.store();
    for (state, at_rest) in [
        (ProcessState::Pending, false),
        (ProcessState::Processing, false),
        (ProcessState::Undoing, false),
        (ProcessState::Error, false),
        (ProcessState::Undone, true),
        (ProcessState::Processed, true),
    ] {
        let mut task = world.deployment.task("t-1").await;
        task.process_state = state;
        task.revision += 1;
        store.save(&task).await.unwrap();
        let unpublished = world.publisher.unpublish(&"line".parse().unwrap(), 1).await;
        match unpublished {
            Ok(()) => assert!(at_rest, "{state}"),
            Err(UnpublishError::InUse { count, first, .. }) => {
                assert!(!at_rest && count == 1 && first[0].as_str() == "t-1", "{state}");
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_unpublished_no_new_task_takes_until_it_is_published_again() {
    let world = World::open().await;
    world.publisher.publish(&version(2)).await.unwrap();
    world.unpublish(2).await.unwrap();
    world.submit("newest", None).await;
    world.submit("named", Some(2)).await;
    assert_eq!(world.recorded("newest").await, Some(1), "the next-newest is the newest now");
    assert_eq!(world.recorded("named").await, None);
    let rejected = world.deployment.take(&world.deployment.config.rejected_queue_url).await;
    assert_eq!(rejected.len(), 1);
    world.publisher.publish(&version(2)).await.unwrap();
    world.submit("named", Some(2)).await;
    assert_eq!(world.recorded("named").await, Some(2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_submitted_while_its_version_is_unpublished_goes_on_and_can_be_undone() {
    let world = World::open().await;
    world.submit("ended", None).await;
    world.run("ended").await;
    // What a publisher does between its look at the tasks and its mark, a client does first.
    let name = "line".parse().unwrap();
    assert_eq!(world.publisher.store.unfinished(&name, 1).await.unwrap(), []);
    world.submit("between", None).await;
    assert!(world.publisher.definitions.unpublish(&name, 1).await.unwrap());
    world.run("between").await;
    let undo = json!({
        "type": "command", "command_id": "c-1", "task_id": "ended", "order": { "command": "undo" },
        "by": "anna", "why": "sent back",
    });
    world.decide(vec![undo.to_string()]).await;
    assert_eq!(world.deployment.task("ended").await.process_state, ProcessState::Undone);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_version_is_listed_with_its_mark_and_no_trigger_is() {
    let world = World::open().await;
    let definitions = world.deployment.ports("reader").aws.definitions().clone();
    let on = json!({ "source": "shop", "detail_type": "Order Placed" });
    let triggered = Workflow {
        name: "a-line".parse().unwrap(),
        trigger: Some(serde_json::from_value(on).unwrap()),
        ..version(1)
    };
    definitions.publish(&triggered).await.unwrap();
    definitions.publish(&version(10)).await.unwrap();
    definitions.publish(&version(9)).await.unwrap();
    definitions.unpublish(&version(9).name, 9).await.unwrap();
    let said = |all: Vec<Listed>| -> Vec<_> {
        let said = |one: Listed| (one.name.to_string(), one.version, one.is_published);
        all.into_iter().map(said).collect()
    };
    let line = |version, is_published| ("line".to_owned(), version, is_published);
    let versions = vec![line(1, true), line(9, false), line(10, true)];
    assert_eq!(said(definitions.list_versions(&version(1).name).await.unwrap()), versions);
    assert_eq!(said(definitions.list_versions(&"li".parse().unwrap()).await.unwrap()), []);
    let all = [vec![("a-line".to_owned(), 1, true)], versions].concat();
    assert_eq!(said(definitions.list().await.unwrap()), all);
}
