//! The clients. They upload payloads, submit tasks, repeat themselves, reuse the ids of expired tasks, and try to submit what is not
//! theirs.

use serde_json::Value;
use steward_core::model::{messages::Submission, names::TaskId};

use super::{
    deployment::SimulatedDeployment,
    handlers::REPLY_QUEUE,
    payload_values::{Reference, with_keys},
    plan::TaskPlan,
    random_plan,
};

impl SimulatedDeployment {
    /// Submits the task with this index in the plan.
    pub(super) fn submit_planned(&self, index: usize) {
        let Some(task) = self.plan.tasks.get(index) else { return };
        let input = self.upload(&task.input);
        self.submit_with(task, &task.task_id, input);
    }

    /// Submits a task with an id that was used before, if the earlier task has expired.
    pub(super) fn reuse_task_id(&self, index: usize) {
        let Some(task) = self.plan.tasks.get(index) else { return };
        if self.present(&task.task_id).is_some() {
            return;
        }
        let input = {
            let state = &mut *self.state();
            let mut input = random_plan::input(&mut state.random);
            if let Some(fields) = input.as_object_mut().filter(|_| self.plan.payloads.is_some()) {
                let document = state.oracle.payloads.numbers.document(&mut state.random);
                fields.insert("document".to_owned(), document);
            }
            state.oracle.observe_id_reuse(&task.task_id, input.clone());
            input
        };
        let input = self.upload(&input);
        self.submit_with(task, &task.task_id, input);
    }

    /// Submits a forged reference, or one whose upload has expired since: that with this number in the plan.
    pub(super) fn submit_forged(&self, number: usize, input: Option<Value>) {
        let payloads = self.plan.payloads.as_ref();
        let forged = payloads.and_then(|payloads| payloads.forged_submissions.get(number));
        let Some(forged) = forged else { return };
        let Some(task) = self.plan.tasks.get(forged.task) else { return };
        let Some(input) = input.or_else(|| self.forged_input(number, forged)) else { return };
        let Ok(own_id) = format!("forged-{number}").parse() else { return };
        let id = if forged.has_its_id { &task.task_id } else { &own_id };
        self.submit_with(task, id, input);
    }

    /// Uploads the payloads of an input. A client that repeats a submission sends the same reference again, or another upload of
    /// the same content. Returns the input with the references.
    fn upload(&self, input: &Value) -> Value {
        let now = self.now();
        let state = &mut *self.state();
        with_keys(input, &mut |reference| {
            let records = &mut state.oracle.payloads;
            let is_uploaded = records.uploaded_at.contains_key(&reference.key);
            let mut upload = reference.clone();
            if is_uploaded && state.random.chance(0.5) {
                let Reference { key, .. } = records.numbers.upload();
                upload.key = key;
            }
            records.upload(&upload, now);
            upload.key
        })
    }

    fn submit_with(&self, task: &TaskPlan, id: &TaskId, input: Value) {
        let Ok(workflow) = task.workflow.parse() else { return };
        self.note("client", || format!("submits {id} to {}", task.workflow));
        self.submit(&Submission {
            task_id: id.clone(),
            workflow,
            version: None,
            input,
            tenant: task.tenant.clone(),
            reply_to: Some(REPLY_QUEUE.to_owned()),
            parent: None,
            undo: false,
            attempt: None,
            has_begun: false,
            retention: None,
            rerun: None,
        });
    }
}
