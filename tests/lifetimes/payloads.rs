//! Random lives of tasks with payloads, on the in-memory ports: parents and children, pauses, large outputs, ids that are used again,
//! and the supervisor's passes. The checks know nothing of the functions: what a task that exists refers to exists and has its
//! content, and in the end nothing is left.

use std::{collections::BTreeMap, time::Duration};

use fastrand::Rng;
use serde_json::{Value, json};
use steward_core::{
    limits,
    model::{
        names::{Incarnation, TaskId},
        payload::{PayloadKey, PayloadReference, valid_references},
        task::{ProcessState, Task},
        time::later,
    },
};
use steward_runtime::ports::{Clock, Ports};

use super::harness::*;

const SEEDS: u64 = 12;
const MOVES: u32 = 60;

/// A deployment with payloads, and what they must contain.
struct World {
    deployment: MemoryDeployment,
    random: Rng,
    /// The number of payloads so far, which is the size of the next one: it identifies the content.
    payloads: u64,
    /// The contents that belong to each task, by their sizes.
    owned: BTreeMap<(TaskId, Incarnation), Vec<u64>>,
}

fn workflows() -> [Value; 2] {
    let parent = json!({ "name": "parent", "version": 1, "complete_within": "4d", "retention": "1h",
        "steps": {
            "deliver": { "workflow": { "name": "child", "input": { "document": "${ input.document }" } } },
            "last": { "agent": "a", "after": ["deliver"], "recovery": { "then": "undo" },
                "request": { "path": "/last", "body": "${ steps.deliver.output }" } },
        } });
    let child = json!({ "name": "child", "version": 1, "complete_within": "2d", "retention": "2h",
        "steps": {
            "ship": { "agent": "a", "request": { "path": "/ship", "body": "${ input.document }" } },
        }, "output": "${ steps.ship.output }" });
    [parent, child]
}

impl World {
    fn new(seed: u64) -> Self {
        let deployment = MemoryDeployment::new(&workflows());
        let random = Rng::with_seed(seed);
        Self { deployment, random, payloads: 1, owned: BTreeMap::new() }
    }

    fn new_payload(&mut self, key: PayloadKey) -> PayloadReference {
        self.payloads += 1;
        let sha256 = format!("{:064x}", self.payloads).parse().unwrap();
        let reference =
            PayloadReference::new(key, self.payloads, sha256, "text/plain".parse().unwrap());
        self.deployment.ports.payloads.put(&reference);
        reference
    }

    async fn make_move(&mut self) {
        let id = format!("t-{}", self.random.u64(1..=4));
        match self.random.u64(1..=10) {
            1..=2 => self.submit(&id).await,
            3..=5 => {
                self.reply(&id, "ship").await;
                self.reply(&format!("{id}:deliver"), "ship").await;
            }
            6..=7 => self.reply(&id, "last").await,
            8 => self.pause_or_resume(&id).await,
            _ => {
                let hours = self.random.u32(1..=40);
                self.live_for(hours * HOUR).await;
            }
        }
        self.check().await;
    }

    async fn submit(&mut self, id: &str) {
        let key = PayloadKey::upload(u128::from(self.payloads));
        let reference = self.new_payload(key);
        let workflow = if self.random.f64() < 0.7 { "parent" } else { "child" };
        let input = json!({ "document": reference.to_value() });
        let submission = json!({ "task_id": id, "workflow": workflow, "input": input });
        let is_new = self.deployment.find_task(id).await.is_none();
        let submitted = self.deployment.submit(submission.clone()).await;
        assert_eq!(submitted.is_ok(), is_new, "{id}: {submitted:?}");
        // A client repeats itself.
        assert_eq!(self.deployment.submit(submission).await.is_ok(), is_new);
    }

    /// The agent stores a response, twice: its first reply may be lost.
    async fn reply(&mut self, task: &str, step: &str) {
        let request = self.deployment.requests.get(&(task.to_owned(), step.to_owned())).cloned();
        let Some(request) = request else { return };
        if request.complete_by < self.deployment.ports.clock().now() {
            return;
        }
        let place = request.place();
        // What the agent is to send belongs to the task, and exists.
        if let Some(body) = &request.body
            && let Some(reference) = PayloadReference::of(&body.value())
        {
            let reference = reference.unwrap();
            assert!(place.contains(&reference.key), "{reference:?}");
            let current = self.deployment.find_task(task).await;
            if current.is_some_and(|current| current.incarnation == request.incarnation) {
                self.check_content(&reference);
            }
        }
        let key = place.output_key(&request.step, request.action, request.attempt);
        let stored = self.deployment.ports.payloads.content(&key);
        let reference = stored.unwrap_or_else(|| self.new_payload(key));
        if self.random.f64() < 0.8 {
            self.deployment.complete(task, step, reference.to_value()).await;
        }
    }

    async fn pause_or_resume(&mut self, id: &str) {
        let Some(task) = self.deployment.find_task(id).await else { return };
        if task.process_state.has_stopped() {
            return;
        }
        let command = if task.paused_at.is_some() { "resume" } else { "pause" };
        self.payloads += 1;
        let command_id = format!("c-{}", self.payloads);
        self.deployment.command(id, &command_id, json!({ "command": command })).await;
    }

    /// Lets time pass. Each day, the bucket and the supervisor delete what they may.
    async fn live_for(&mut self, time: Duration) {
        let mut left = time;
        while !left.is_zero() {
            let day = left.min(DAY);
            self.deployment.run_for(day).await;
            let ports = &self.deployment.ports;
            ports.payloads.expire_uploads(2 * limits::UPLOAD_LIFETIME);
            for _ in 0..4 {
                let deadline = later(ports.clock().now(), HOUR);
                steward_supervisor::run_once(ports, 0, deadline).await.unwrap();
            }
            self.deployment.deliver_all().await;
            left -= day;
        }
    }

    /// Checks everything to which the documents of existing tasks refer.
    async fn check(&mut self) {
        let ids = (1..=4).flat_map(|n| [format!("t-{n}"), format!("t-{n}:deliver")]);
        for id in ids {
            let Some(task) = self.deployment.find_task(&id).await else { continue };
            for reference in self.references(&task).await {
                let place = task.payload_place();
                assert!(place.contains(&reference.key), "{id} refers to {}", reference.key);
                self.check_content(&reference);
                let owner = reference.key.owners().remove(0);
                let owned = self.owned.entry(owner).or_default();
                owned.push(reference.bytes);
            }
        }
        // No content belongs to two tasks, except to parents and their children.
        let mut of_contents: BTreeMap<u64, TaskId> = BTreeMap::new();
        for ((task_id, _), contents) in &self.owned {
            let root = task_id.as_str().split(':').next().unwrap().parse::<TaskId>().unwrap();
            for content in contents {
                assert_eq!(of_contents.entry(*content).or_insert_with(|| root.clone()), &root);
            }
        }
    }

    fn check_content(&self, reference: &PayloadReference) {
        let content = self.deployment.ports.payloads.content(&reference.key);
        let content = content.unwrap_or_else(|| panic!("{} is missing", reference.key));
        assert_eq!(
            (content.bytes, &content.sha256),
            (reference.bytes, &reference.sha256),
            "{}",
            reference.key
        );
    }

    async fn references(&self, task: &Task) -> Vec<PayloadReference> {
        use steward_core::model::{
            attempt::{Action, AttemptId},
            document::DocumentKey,
        };
        use steward_runtime::ports::StateStore;
        let steps = task.steps.keys().flat_map(|step| {
            (1..=5).map(|number| {
                let (step, action) = (step.clone().into(), Action::Do);
                DocumentKey::Output(AttemptId { step, action, number })
            })
        });
        let keys: Vec<_> = steps.chain([DocumentKey::Submission]).collect();
        let documents = self.deployment.ports.store().documents_of(task, &keys).await.unwrap();
        let found = documents.iter().flat_map(|document| valid_references(&document.body));
        found.map(|found| found.reference).collect()
    }
}

#[tokio::test]
async fn no_payload_is_missing_or_anothers_while_its_task_exists_and_none_is_left() {
    let (mut processed, mut stored) = (0, 0);
    for seed in 0..SEEDS {
        let mut world = World::new(seed);
        for _ in 0..MOVES {
            world.make_move().await;
            for n in 1..=4 {
                let task = world.deployment.find_task(&format!("t-{n}")).await;
                processed +=
                    usize::from(task.is_some_and(|t| t.process_state == ProcessState::Processed));
            }
        }
        for n in 1..=4 {
            let id = format!("t-{n}");
            let paused = world.deployment.find_task(&id).await;
            if paused
                .is_some_and(|task| task.paused_at.is_some() && !task.process_state.has_stopped())
            {
                world.pause_or_resume(&id).await;
            }
        }
        stored += world.deployment.ports.payloads.keys().len();
        world.live_for(5 * DAY).await;
        for id in (1..=4).flat_map(|n| [format!("t-{n}"), format!("t-{n}:deliver")]) {
            let task = world.deployment.find_task(&id).await;
            if task.is_some_and(|task| task.is_unresolved()) {
                world.deployment.resolve(&id).await;
            }
        }
        world.live_for(20 * DAY).await;
        assert_eq!(world.deployment.ports.payloads.keys(), [], "seed {seed}");
    }
    assert!(processed > 20 && stored > 50, "{processed} {stored}");
}
