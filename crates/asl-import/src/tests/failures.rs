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
fn a_handler_that_also_runs_without_a_failure_is_the_step_after_it() {
    let steps = steps(&machine(json!({
        "A": catching("a", "Store", json!({ "ResultPath": "$.a", "Next": "B" })),
        "B": task("b", json!({ "Parameters": { "id.$": "$.a.id" }, "ResultPath": null, "Next": "Store" })),
        "Store": task("store", json!({ "Parameters": { "n.$": "$.n" }, "End": true })),
    })));
    assert_eq!(steps["a"]["recovery"], json!({ "attempts": 1, "then": "continue" }));
    assert_eq!(steps["b"]["when"], "${ !steps.a.failed }");
    assert_eq!(steps["store"]["when"], Value::Null, "both ways lead here");
    assert_eq!(steps["store"]["after"], json!(["a", "b"]));
}

#[test]
fn a_handler_that_ends_runs_in_place_of_the_other_states() {
    let import = imported(&machine(json!({
        "A": catching("a", "Refund", json!({ "ResultPath": "$.a", "Next": "B" })),
        "B": task("b", json!({ "Parameters": { "id.$": "$.a.id" }, "ResultPath": null, "OutputPath": "$.a", "End": true })),
        "Refund": task("tell", json!({ "Parameters": { "n.$": "$.n" }, "Next": "Done" })),
        "Done": { "Type": "Succeed" },
    })));
    let yaml: Value = serde_saphyr::from_str(&import.definitions[0].yaml).unwrap();
    parsed(&import);
    assert_eq!(yaml["steps"]["b"]["when"], "${ !steps.a.failed }");
    assert_eq!(yaml["steps"]["refund"]["when"], "${ steps.a.failed }");
    let output = "${ steps.a.failed ? steps.refund.output : steps.a.output }";
    assert_eq!(yaml["output"], output);
}

#[test]
fn a_handler_that_tells_and_fails_ends_in_a_step_that_fails() {
    let steps = steps(&machine(json!({
        "A": catching("a", "Tell", json!({ "End": true })),
        "Tell": task("tell", json!({ "Parameters": { "n.$": "$.n" }, "Next": "Failed" })),
        "Failed": { "Type": "Fail", "Error": "NoA", "Cause": "a failed" },
    })));
    assert_eq!(steps["a"]["recovery"]["then"], "continue");
    assert_eq!(steps["tell"]["when"], "${ steps.a.failed }");
    let fail = json!({ "after": ["tell"], "when": "${ steps.a.failed }", "fail": "NoA: a failed" });
    assert_eq!(steps["fail_failed"], fail);
}

#[test]
fn a_handler_that_reads_the_error_cannot_be_translated_but_its_presence_can_be_tested() {
    let reading = |parameters: Value| {
        machine(json!({
            "A": catching("a", "Tell", json!({ "End": true })),
            "Tell": task("tell", json!({ "Parameters": parameters, "End": true })),
        }))
    };
    let error = json!({ "why.$": "$.error.Cause" });
    refused(&reading(error), Level::Cannot, "but not the error");
    refused(&reading(json!({ "all.$": "$" })), Level::Cannot, "but not the error");
    let steps = steps(&machine(json!({
        "A": catching("a", "Which", json!({ "Next": "Which" })),
        "Which": { "Type": "Choice", "Default": "B", "Choices": [
            { "Variable": "$.error", "IsPresent": true, "Next": "Tell" },
        ] },
        "B": task("b", json!({ "Parameters": { "n.$": "$.n" }, "End": true })),
        "Tell": task("tell", json!({ "Parameters": { "n.$": "$.n" }, "End": true })),
    })));
    assert_eq!(steps["tell"]["when"], "${ steps.a.failed ? true : has(input.error) }");
}

#[test]
fn a_handler_of_errors_by_name_needs_a_decision() {
    let named = |catch: Value| {
        machine(json!({
            "A": task("a", json!({ "Catch": catch, "End": true })),
            "Tell": task("tell", json!({ "Parameters": {}, "End": true })),
            "Other": task("other", json!({ "Parameters": {}, "End": true })),
            "Failed": { "Type": "Fail" },
        }))
    };
    let one = |error: &str, next: &str| json!({ "ErrorEquals": [error], "Next": next });
    refused(&named(json!([one("Gone", "Tell")])), Level::Decision, "only `Gone` is caught");
    let both = named(json!([one("Gone", "Tell"), one("States.ALL", "Other")]));
    refused(&both, Level::Decision, "the catcher of all errors leads to `Other`");
    let fails = named(json!([one("Gone", "Tell"), one("States.ALL", "Failed")]));
    refused(&fails, Level::Decision, "the handler `Tell` is left out");
    let same = named(json!([one("Gone", "Tell"), one("States.ALL", "Tell")]));
    assert_eq!(steps(&same)["tell"]["when"], "${ steps.a.failed }");
    let task_failed = named(json!([one("States.TaskFailed", "Tell")]));
    complete(&task_failed);
    assert!(messages(&task_failed, Level::Note).iter().any(|note| note.contains("timeout")));
}

#[test]
fn a_handler_that_goes_back_is_a_loop() {
    let again = machine(json!({
        "A": task("a", json!({ "ResultPath": null, "Next": "B" })),
        "B": catching("b", "A", json!({ "End": true })),
    }));
    refused(&again, Level::Decision, "a loop back to `A`");
}

#[test]
fn the_steps_of_a_parallel_go_on_together() {
    let branch = |states: Value| machine(states);
    let steps = steps(&machine(json!({
        "Both": {
            "Type": "Parallel", "ResultPath": null, "Next": "Last",
            "Catch": [{ "ErrorEquals": ["States.ALL"], "ResultPath": "$.error", "Next": "Tell" }],
            "Branches": [
                branch(json!({
                    "A": task("a", json!({ "Next": "A2" })),
                    "A2": task("a2", json!({ "End": true })),
                })),
                branch(json!({
                    "Ok": { "Type": "Choice", "Default": "No", "Choices": [
                        { "Variable": "$.ok", "BooleanEquals": true, "Next": "B" },
                    ] },
                    "B": task("b", json!({ "End": true })),
                    "No": { "Type": "Fail" },
                })),
            ],
        },
        "Last": task("last", json!({ "Parameters": { "n.$": "$.n" }, "End": true })),
        "Tell": task("tell", json!({ "Parameters": { "n.$": "$.n" }, "End": true })),
    })));
    for step in ["a", "a2", "b", "fail_no"] {
        assert_eq!(steps[step]["recovery"]["then"], "continue", "{step}");
    }
    assert_eq!(steps["a2"]["when"], "${ !steps.a.failed }");
    let after = json!(["a", "a2", "b", "fail_no"]);
    assert_eq!((&steps["last"]["after"], &steps["tell"]["after"]), (&after, &after));
    let failed = "steps.a.failed || steps.a2.failed || !(input.ok == true) || steps.b.failed";
    assert_eq!(steps["tell"]["when"], format!("${{ {failed} }}"));
    let succeeded = "!steps.a.failed && !steps.a2.failed && input.ok == true && !steps.b.failed";
    assert_eq!(steps["last"]["when"], format!("${{ {succeeded} }}"));
}

/// A `Parallel` of one branch with these states, whose `Catch` tells somebody.
fn caught_parallel(states: Value) -> Value {
    machine(json!({
        "All": {
            "Type": "Parallel", "ResultPath": null, "End": true, "Branches": [machine(states)],
            "Catch": [{ "ErrorEquals": ["States.ALL"], "ResultPath": null, "Next": "Tell" }],
        },
        "Tell": task("tell", json!({ "End": true })),
    }))
}

#[test]
fn a_failure_in_an_inner_parallel_stops_the_branch_around_it() {
    let steps = steps(&caught_parallel(json!({
        "Inner": {
            "Type": "Parallel", "ResultPath": null, "Next": "B",
            "Branches": [machine(json!({ "A": task("a", json!({ "End": true })) }))],
        },
        "B": task("b", json!({ "End": true })),
    })));
    assert_eq!(steps["b"]["when"], "${ !steps.a.failed }");
    assert_eq!(steps["tell"]["when"], "${ steps.a.failed || steps.b.failed }");
}

#[test]
fn compensations_in_a_parallel_that_goes_on_need_a_decision() {
    let mut branch = saga()["States"].clone();
    branch["BookFlight"]["Parameters"] = json!({ "trip.$": "$.trip" });
    refused(&caught_parallel(branch), Level::Decision, "the failure may come from several steps");
}

#[test]
fn a_map_goes_on_after_its_items() {
    let with = |inner: Value| {
        machine(json!({
            "Each": {
                "Type": "Map", "ItemsPath": "$.list", "ItemProcessor": machine(inner), "End": true,
                "Catch": [{ "ErrorEquals": ["States.ALL"], "ResultPath": null, "Next": "Tell" }],
            },
            "Tell": task("tell", json!({ "End": true })),
        }))
    };
    let single = with(json!({ "A": task("a", json!({ "End": true })) }));
    assert_eq!(steps(&single)["a"]["recovery"], json!({ "attempts": 1, "then": "continue" }));
    assert_eq!(steps(&single)["tell"]["when"], "${ steps.a.failed }");
    let noted = |machine: &Value, text: &str| {
        messages(machine, Level::Note).iter().filter(|note| note.contains(text)).count()
    };
    assert_eq!(noted(&single, "the other items go on"), 1);
    assert_eq!(noted(&single, "is in Error, with an alert"), 0);
    let several = with(json!({
        "A": task("a", json!({ "Next": "B" })),
        "B": task("b", json!({ "End": true })),
    }));
    assert_eq!(steps(&several)["each"]["recovery"]["then"], "continue");
    assert_eq!(noted(&several, "is in Error, with an alert"), 1);
}
