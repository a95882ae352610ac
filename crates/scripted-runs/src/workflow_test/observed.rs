//! What a run did, in the terms of a test file.

use std::{collections::BTreeMap, time::Duration};

use serde_json::Value;
use steward_core::model::{
    attempt::Action,
    messages::{HttpMethod, StatusNotification, StepRequest},
};
use steward_forecast::cost::scripted::{CallRecord, LogItem, ScriptedPlan, ScriptedRun};
use steward_operator::state::PartState;

use super::{
    names::{alert, part_label, status_name},
    timeline::{self, TimelineLine},
};

/// What a run did.
#[derive(Debug, Clone)]
pub(super) struct Observed {
    /// The state of the task, or `Refused`.
    pub(super) state: String,
    /// The reason of the error, the undo or the refusal.
    pub(super) reason: Option<String>,
    pub(super) steps: BTreeMap<String, PartState>,
    pub(super) output: Value,
    pub(super) calls: Vec<ObservedCall>,
    pub(super) alerts: Vec<&'static str>,
    pub(super) notifications: Vec<&'static str>,
    pub(super) took: Option<Duration>,
    pub(super) timeline: Vec<TimelineLine>,
}

/// A call to a service.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ObservedCall {
    /// The step, or one item of it, as a test file writes it.
    pub(super) part: String,
    pub(super) action: Action,
    pub(super) method: HttpMethod,
    pub(super) path: String,
    pub(super) body: Option<Value>,
}

impl Observed {
    pub(super) fn of(plan: &ScriptedPlan, run: &ScriptedRun) -> Self {
        let mut observed = Self {
            state: run
                .task
                .as_ref()
                .map_or("Refused".to_owned(), |task| task.process_state.to_string()),
            reason: run.refused.clone(),
            steps: BTreeMap::new(),
            output: Value::Null,
            calls: Vec::new(),
            alerts: Vec::new(),
            notifications: Vec::new(),
            took: run.took,
            timeline: timeline::lines(plan, run),
        };
        if let Some(task) = &run.task {
            observed.reason = task.error.clone().or_else(|| task.undo_reason.clone());
            let states = task.steps.iter();
            observed.steps =
                states.map(|(name, record)| (name.to_string(), PartState::of(record))).collect();
        }
        for entry in &run.log {
            match &entry.item {
                LogItem::Called(call) => observed.calls.push(ObservedCall::of(plan, call)),
                LogItem::Notified(notification) => observed.notified(notification),
                LogItem::Published(event) => observed.alerts.extend(alert(event)),
                LogItem::CallbackSent(..) | LogItem::ChildRequested(..) | LogItem::Sent(_) => {}
            }
        }
        observed
    }

    fn notified(&mut self, notification: &StatusNotification) {
        self.notifications.push(status_name(notification.status));
        if let Some(output) = &notification.output {
            self.output = output.clone();
        }
    }
}

impl ObservedCall {
    fn of(plan: &ScriptedPlan, call: &CallRecord) -> Self {
        let StepRequest { action, method, path, body, .. } = &call.request;
        let body = body.as_ref().and_then(|body| serde_json::from_str(body.as_str()).ok());
        let part = part_label(plan, call);
        Self { part, action: *action, method: *method, path: path.clone(), body }
    }
}
