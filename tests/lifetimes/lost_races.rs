//! A save that lost its race repeats none of its writes, but others may have moved the end of the task meanwhile.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use serde_json::json;
use steward_core::model::{
    attempt::{Action, AttemptId},
    document::DocumentKey,
    names::TaskId,
};
use steward_runtime::ports::{PortError, Ports, SaveOutcome, StateStore};
use steward_test_world::{Interceptor, MemoryStore, PortCall, PortReply};

use super::harness::{DAY, MemoryDeployment, large, one_call_workflow, submission};
use crate::support::sqs_event;

/// Before the first save, another writer saves the task `t`, which now lives for a hundred days longer.
#[derive(Clone)]
struct LivesLonger {
    store: MemoryStore,
    done: Arc<AtomicBool>,
}

impl Interceptor for LivesLonger {
    async fn intercept<T: Send + Sync>(
        &self,
        call: PortCall<'_>,
        effect: impl Future<Output = Result<T, PortError>> + Send,
        _: impl Fn(&T) -> PortReply<'_> + Send,
    ) -> Result<T, PortError> {
        if matches!(call, PortCall::Save(_)) && !self.done.swap(true, Ordering::Relaxed) {
            let task: TaskId = "t".parse().unwrap();
            let mut task = self.store.load(&task).await?.unwrap();
            task.revision += 1;
            task.retention_start += 100 * DAY;
            self.store.extend_documents(&task).await?;
            assert!(matches!(self.store.save(&task).await?, SaveOutcome::Saved));
        }
        effect.await
    }
}

#[tokio::test]
async fn a_document_that_was_written_before_a_lost_race_is_kept_as_long_as_the_task() {
    let mut deployment = MemoryDeployment::new(&[one_call_workflow()]);
    deployment.submit(submission("t", "one")).await.unwrap();
    let store = deployment.ports.store().clone();
    let ports = deployment.ports.intercepted(LivesLonger { store, done: Arc::default() });
    let request = &deployment.requests[&("t".to_owned(), "charge".to_owned())];
    let reply = json!({
        "type": "reply", "task_id": "t", "step": "charge", "attempt": 1, "incarnation": request.incarnation,
        "outcome": { "status": "completed", "output": large(json!({})) },
    });
    let response = steward_scheduler::handle(&ports, sqs_event([reply.to_string()], 1)).await;
    assert_eq!(response.batch_item_failures, []);

    let task = deployment.task("t").await;
    deployment.ports.clock().advance(100 * DAY);
    let attempt = AttemptId { step: "charge".parse().unwrap(), action: Action::Do, number: 1 };
    let key = DocumentKey::Output(attempt);
    let found = deployment.ports.store().documents(&task.document_owner(), &[key]).await.unwrap();
    assert_eq!(found.len(), 1);
}
