//! `Catch`: failures, compensations and other handlers.

use super::*;

fn catching(name: &str, target: &str, more: Value) -> Value {
    let catch = json!([{ "ErrorEquals": ["States.ALL"], "ResultPath": "$.error", "Next": target }]);
    let mut task = task(name, json!({ "Catch": catch, "ResultPath": null }));
    for (key, value) in more.as_object().unwrap() {
        task[key] = value.clone();
    }
    task
}

/// A saga: the hotel and the flight are booked, and cancelled in reverse order if a later step fails.
fn saga() -> Value {
    machine(json!({
        "BookHotel": catching("book-hotel", "CancelHotel", json!({ "ResultPath": "$.hotel", "Next": "BookFlight" })),
        "BookFlight": catching("book-flight", "CancelFlight", json!({ "ResultPath": "$.flight", "End": true, "OutputPath": "$.hotel" })),
        "CancelFlight": task("cancel-flight", json!({ "Parameters": { "trip.$": "$.trip" }, "ResultPath": null, "Next": "CancelHotel" })),
        "CancelHotel": task("cancel-hotel", json!({ "Parameters": { "trip.$": "$.trip" }, "ResultPath": null, "Next": "Failed" })),
        "Failed": { "Type": "Fail" },
    }))
}

#[test]
fn compensations_in_reverse_order_become_undos() {
    let mut saga = saga();
    saga["States"]["BookFlight"]["Parameters"] = json!({ "trip.$": "$.trip" });
    let steps = steps(&saga);
    for (step, path) in [("book_hotel", "/cancel-hotel"), ("book_flight", "/cancel-flight")] {
        let undo = &steps[step]["undo"];
        assert_eq!(undo["request"], json!({ "path": path, "body": { "trip": "${ input.trip }" } }));
        assert_eq!(steps[step]["recovery"]["then"], "undo");
    }
    let agents = imported(&saga).agents;
    assert!(
        agents[0].targets().contains("book-hotel") && agents[0].targets().contains("cancel-hotel")
    );
}

#[test]
fn what_a_fail_state_says_of_a_failure_is_noted() {
    let mut saga = saga();
    saga["States"]["BookFlight"]["Parameters"] = json!({ "trip.$": "$.trip" });
    let noted = |saga: &Value| {
        let findings = imported(saga).report.findings;
        findings.iter().filter(|finding| finding.message.starts_with("`Error` and `Cause`")).count()
    };
    assert_eq!(noted(&saga), 0);
    saga["States"]["Failed"]["Cause"] = "no seats".into();
    assert_eq!(noted(&saga), 1);
}

#[test]
fn compensations_in_another_order_need_a_decision() {
    let mut saga = saga();
    saga["States"]["BookFlight"]["Parameters"] = json!({ "trip.$": "$.trip" });
    saga["States"]["BookFlight"]["Catch"][0]["Next"] = "CancelHotel".into();
    saga["States"]["CancelHotel"]["Next"] = "CancelFlight".into();
    saga["States"]["CancelFlight"]["Next"] = "Failed".into();
    refused(&saga, Level::Decision, "do not run in the reverse order");
}

#[test]
fn a_step_without_an_undo_needs_a_decision_if_the_task_may_be_undone() {
    let mut saga = saga();
    saga["States"]["BookFlight"]["Parameters"] = json!({ "trip.$": "$.trip" });
    saga["States"]["BookFlight"]["Next"] = "Mail".into();
    saga["States"]["BookFlight"].as_object_mut().unwrap().shift_remove("End");
    saga["States"]["Mail"] = task("mail", json!({ "Parameters": {}, "End": true }));
    refused(&saga, Level::Decision, "no undo: the task may be undone");
}

#[test]
fn a_catch_that_leads_to_fail_is_an_alert() {
    let steps = steps(&machine(json!({
        "A": catching("a", "Failed", json!({ "End": true })),
        "Failed": { "Type": "Fail" },
    })));
    assert_eq!(steps["a"]["recovery"], json!({ "attempts": 1 }));
    assert_eq!(steps.as_object().unwrap().len(), 1);
}

#[test]
fn a_handler_that_is_no_compensation_needs_a_decision() {
    let notify = machine(json!({
        "A": catching("a", "Tell", json!({ "End": true })),
        "Tell": task("tell", json!({ "Next": "Failed" })),
        "Failed": { "Type": "Fail" },
    }));
    refused(&notify, Level::Decision, "`Tell` handles the failure");
}

#[test]
fn a_failure_after_which_the_machine_goes_on_cannot_be_translated() {
    let goes_on = machine(json!({
        "A": catching("a", "B", json!({ "Next": "B" })),
        "B": task("b", json!({ "End": true })),
    }));
    refused(&goes_on, Level::Cannot, "there are no failure branches");
}
