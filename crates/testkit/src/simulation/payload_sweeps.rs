//! The life of payloads: uploads expire, supervisors delete what no task needs, and in the end nothing is left.

use std::sync::Arc;

use futures_util::future::AbortHandle;
use steward_core::limits;

use super::{
    deployment::SimulatedDeployment, fault_injector, handlers, payload_records::levels,
    virtual_time::DAY,
};

/// The bucket deletes uploads of this age.
const UPLOADS_KEPT: std::time::Duration = limits::UPLOAD_LIFETIME.saturating_mul(2);

/// The days after the end of the run within which all tasks have expired.
const DAYS_MAX: u32 = 500;

/// The days after the last task has expired until all its objects are deleted.
const DAYS_UNTIL_DELETED: u32 = 4;

impl SimulatedDeployment {
    /// Deletes old uploads, as the bucket does.
    pub(super) fn expire_uploads(&self) {
        self.memory.payloads.expire_uploads(UPLOADS_KEPT);
    }

    /// Checks that all objects exist and have their content to which a task refers that exists, or one of whose parents
    /// exists.
    pub(super) fn check_payloads(&self) {
        let known = self.state().oracle.payloads.references.clone();
        for ((id, incarnation), references) in known {
            let place = self.state().oracle.payloads.place(&id, incarnation).map(str::to_owned);
            let mut tasks = levels(&place.unwrap_or_default()).into_iter();
            let is_needed = tasks.any(|(id, incarnation)| self.is_present(&id, incarnation));
            if !is_needed {
                continue;
            }
            for (key, content) in references {
                let oracle = &mut self.state().oracle;
                let wrong = match oracle.payloads.object(&key) {
                    None => "does not exist any more",
                    Some(object) if object != content => "has another content now",
                    Some(_) => continue,
                };
                oracle.add_finding(format!("{id}: refers to {key}, which {wrong}"));
            }
        }
    }

    /// Lets time pass after the end of a run, until all tasks have expired and supervisors have deleted their payloads.
    pub(super) async fn check_no_payload_is_left(self: &Arc<Self>) {
        let (abort_handle, _) = AbortHandle::new_pair();
        let instant = std::time::Duration::ZERO;
        let ports = fault_injector::ports(self.clone(), "supervisor-last", instant, abort_handle);
        let mut days_without_tasks = 0;
        for _ in 0..DAYS_MAX {
            self.sleep_until(self.now() + DAY).await;
            self.delete_expired();
            self.expire_uploads();
            let limit = std::time::Duration::from_millis(self.plan.function_timeout);
            handlers::delete_orphans(&ports, limit).await;
            self.check_payloads();
            let tasks: Vec<_> = self.state().oracle.tasks.keys().cloned().collect();
            if tasks.iter().all(|id| self.present(id).is_none()) {
                days_without_tasks += 1;
            }
            if days_without_tasks == DAYS_UNTIL_DELETED {
                break;
            }
        }
        let left = self.memory.payloads.keys();
        if let Some(key) = left.first() {
            let finding =
                format!("all tasks have expired, but {} payloads are left: {key}", left.len());
            self.state().oracle.add_finding(finding);
        }
    }
}
