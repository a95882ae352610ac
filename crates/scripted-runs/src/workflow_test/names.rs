//! The names of steps, alerts, notifications and methods in test files and timelines.

use steward_core::model::{
    events::BusEvent,
    messages::{HttpMethod, NotificationStatus},
};
use steward_forecast::cost::scripted::{CallRecord, ScriptedPlan, StepKeyRef};

/// The step or item of a call, as a test file writes it.
pub(super) fn part_label(plan: &ScriptedPlan, call: &CallRecord) -> String {
    let part = &call.request.step;
    let label = plan.label(&StepKeyRef { workflow: &call.workflow, step: &part.step });
    part.item.map_or(label.clone(), |item| format!("{label}[{item}]"))
}

/// The name of an event, if it is an alert: it needs an operator.
pub(super) fn alert(event: &BusEvent) -> Option<&'static str> {
    let name = event.operator_event()?.data.name();
    let is_alert = !matches!(name, "breaker_closed" | "operator_command" | "operator_redrive");
    is_alert.then_some(name)
}

/// The name of a notification's status.
pub(super) fn status_name(status: NotificationStatus) -> &'static str {
    match status {
        NotificationStatus::Received => "received",
        NotificationStatus::Refused => "refused",
        NotificationStatus::Processed => "processed",
        NotificationStatus::Undone => "undone",
        NotificationStatus::Error => "error",
    }
}

/// The name of a method.
pub(super) fn method_name(method: HttpMethod) -> &'static str {
    match method {
        HttpMethod::Get => "GET",
        HttpMethod::Post => "POST",
        HttpMethod::Put => "PUT",
        HttpMethod::Patch => "PATCH",
        HttpMethod::Delete => "DELETE",
    }
}
