//! The order of steps, and the conditions under which they run.

use super::*;

#[test]
fn states_become_steps_one_after_the_other() {
    let steps = steps(&machine(json!({
        "Reserve": task("reserve", json!({ "Next": "Hold" })),
        "Hold": { "Type": "Wait", "Seconds": 90, "Next": "Charge" },
        "Charge": task("charge", json!({ "End": true })),
    })));
    assert_eq!(steps["reserve"]["after"], Value::Null);
    assert_eq!(steps["hold"]["after"], json!(["reserve"]));
    assert_eq!(steps["hold"]["wait"], "90s");
    assert_eq!(steps["charge"]["after"], json!(["hold"]));
}

#[test]
fn each_branch_of_a_choice_has_its_condition_and_the_default_the_negation() {
    let steps = steps(&machine(json!({
        "Which": { "Type": "Choice", "Default": "Ask", "Choices": [
            { "Variable": "$.amount", "NumericLessThan": 10, "Next": "Accept" },
            { "Variable": "$.vip", "BooleanEquals": true, "Next": "Accept" },
            { "Variable": "$.country", "StringEquals": "XX", "Next": "Refuse" },
        ] },
        "Accept": task("accept", json!({ "Next": "Store" })),
        "Ask": task("ask", json!({ "Next": "Store" })),
        "Refuse": task("refuse", json!({ "Next": "Store" })),
        "Store": task("store", json!({ "Parameters": { "n.$": "$.n" }, "End": true })),
    })));
    assert_eq!(steps["accept"]["when"], "${ input.amount < 10 || input.vip == true }");
    let refuse = "${ !(input.amount < 10) && !(input.vip == true) && input.country == 'XX' }";
    assert_eq!(steps["refuse"]["when"], refuse);
    let ask = "${ !(input.amount < 10) && !(input.vip == true) && !(input.country == 'XX') }";
    assert_eq!(steps["ask"]["when"], ask);
    assert_eq!(steps["store"]["when"], Value::Null, "all branches lead here");
    assert_eq!(steps["store"]["after"], json!(["accept", "ask", "refuse"]));
}

#[test]
fn a_choice_without_a_default_fails_if_no_rule_matches() {
    let steps = steps(&machine(json!({
        "Which": { "Type": "Choice", "Choices": [
            { "Variable": "$.kind", "StringEquals": "a", "Next": "A" },
        ] },
        "A": task("a", json!({ "End": true })),
    })));
    let fail = json!({ "when": "${ !(input.kind == 'a') }", "fail": "States.NoChoiceMatched" });
    assert_eq!(steps["fail_which_no_choice"], fail);
}

#[test]
fn a_fail_state_is_a_step_that_fails() {
    let steps = steps(&machine(json!({
        "Which": { "Type": "Choice", "Default": "Refuse", "Choices": [
            { "Variable": "$.ok", "BooleanEquals": true, "Next": "A" },
        ] },
        "A": task("a", json!({ "End": true })),
        "Refuse": { "Type": "Fail", "Error": "Refused", "Cause": "it's not ok" },
    })));
    let fail = json!({ "when": "${ !(input.ok == true) }", "fail": "Refused: it's not ok" });
    assert_eq!(steps["fail_refuse"], fail);
}

#[test]
fn the_text_of_a_failure_is_a_constant() {
    let failing = |more: Value| {
        let mut fail = json!({ "Type": "Fail" });
        for (key, value) in more.as_object().unwrap() {
            fail[key] = value.clone();
        }
        machine(json!({ "A": task("a", json!({ "Next": "No" })), "No": fail }))
    };
    let path = failing(json!({ "Error": "Refused", "CausePath": "$.why" }));
    assert_eq!(steps(&path)["fail_no"]["fail"], "Refused");
    assert!(messages(&path, Level::Note).iter().any(|note| note.contains("`Cause` is not kept")));
    let text = failing(json!({ "Cause": "in ${Stage}" }));
    assert_eq!(steps(&text)["fail_no"]["fail"], "in $ {Stage}");
    assert_eq!(steps(&failing(json!({})))["fail_no"]["fail"], "No");
}

#[test]
fn states_after_a_parallel_come_after_all_branches_and_after_their_failures() {
    let branch = |states: Value| machine(states);
    let steps = steps(&machine(json!({
        "Both": { "Type": "Parallel", "ResultPath": "$.both", "Next": "Last", "Branches": [
            branch(json!({ "A": task("a", json!({ "End": true })) })),
            branch(json!({
                "Ok": { "Type": "Choice", "Default": "No", "Choices": [
                    { "Variable": "$.ok", "BooleanEquals": true, "Next": "B" },
                ] },
                "B": task("b", json!({ "End": true })),
                "No": { "Type": "Fail" },
            })),
        ] },
        "Last": task("last", json!({
            "Parameters": { "a.$": "$.both[0].id", "b.$": "$.both[1].id", "n.$": "$.n" }, "End": true,
        })),
    })));
    assert_eq!(steps["a"]["after"], Value::Null);
    assert_eq!(steps["last"]["after"], json!(["a", "b", "fail_no"]));
    let body = json!({
        "a": "${ steps.a.output.id }", "b": "${ steps.b.output.id }", "n": "${ input.n }",
    });
    assert_eq!(steps["last"]["request"]["body"], body);
}

#[test]
fn a_loop_needs_a_decision() {
    let looping = machine(json!({
        "Poll": task("poll", json!({ "Next": "Done" })),
        "Done": { "Type": "Choice", "Default": "Pause", "Choices": [
            { "Variable": "$.done", "BooleanEquals": true, "Next": "End" },
        ] },
        "Pause": { "Type": "Wait", "Seconds": 5, "Next": "Poll" },
        "End": { "Type": "Succeed" },
    }));
    refused(&looping, Level::Decision, "agents of kind `lambda` do not judge responses");
    let mut counting = looping;
    counting["States"]["Pause"]["Next"] = "Count".into();
    counting["States"]["Count"] = json!({ "Type": "Pass", "Next": "Poll" });
    refused(&counting, Level::Decision, "a loop back to `Poll`: steps run once");
}

#[test]
fn a_map_of_one_task_is_a_step_for_each_item() {
    let steps = steps(&machine(json!({
        "Pack": {
            "Type": "Map", "ItemsPath": "$.parcels", "MaxConcurrency": 5,
            "ItemSelector": { "parcel.$": "$$.Map.Item.Value.id", "order.$": "$.order" },
            "ItemProcessor": machine(json!({ "One": task("pack", json!({ "End": true })) })),
            "End": true,
        },
    })));
    assert_eq!(steps["one"]["for_each"], json!({ "items": "${ input.parcels }", "at_once": 5 }));
    let body = json!({ "parcel": "${ item.id }", "order": "${ input.order }" });
    assert_eq!(steps["one"]["request"]["body"], body);
}

#[test]
fn a_map_of_several_states_runs_a_child_task_for_each_item() {
    let map = machine(json!({
        "Pack": {
            "Type": "Map", "ItemsPath": "$.parcels",
            "ItemProcessor": machine(json!({
                "Fold": task("fold", json!({ "ResultPath": "$.folded", "Next": "Fill" })),
                "Fill": task("fill", json!({ "Parameters": { "id.$": "$.id", "box.$": "$.folded.box" }, "End": true })),
            })),
            "End": true,
        },
    }));
    let steps = steps(&map);
    assert_eq!(steps["pack"]["workflow"], json!({ "name": "m-pack", "input": "${ item }" }));
    assert_eq!(steps["pack"]["for_each"], json!({ "items": "${ input.parcels }", "at_once": 40 }));
    let import = imported(&map);
    let child: Value = serde_saphyr::from_str(&import.definitions[1].yaml).unwrap();
    assert_eq!(import.definitions[1].name, "m-pack");
    let body = json!({ "id": "${ input.id }", "box": "${ steps.fold.output.box }" });
    assert_eq!(child["steps"]["fill"]["request"]["body"], body);
}

#[test]
fn what_for_each_has_and_has_not() {
    let with = |more: Value| {
        let mut map = json!({
            "Type": "Map", "ItemsPath": "$.parcels", "End": true,
            "ItemProcessor": machine(json!({ "One": task("pack", json!({ "End": true })) })),
        });
        for (key, value) in more.as_object().unwrap() {
            map[key] = value.clone();
        }
        machine(json!({ "Pack": map }))
    };
    let reader = json!({ "ItemReader": { "Resource": "arn:aws:states:::s3:listObjectsV2" } });
    refused(&with(reader), Level::Cannot, "`for_each` takes a list");
    let index = json!({ "ItemSelector": { "n.$": "$$.Map.Item.Index" } });
    assert_eq!(steps(&with(index))["one"]["request"]["body"], json!({ "n": "${ item_index }" }));
    let states = json!({
        "One": task("pack", json!({ "Next": "Two" })),
        "Two": task("seal", json!({ "Parameters": { "n.$": "$$.Map.Item.Index" }, "End": true })),
    });
    let several = json!({ "ItemProcessor": machine(states) });
    refused(&with(several), Level::Decision, "does not know the index of its item");
    refused(
        &with(json!({ "ToleratedFailurePercentage": 5 })),
        Level::Decision,
        "fails if one item fails",
    );
}

#[test]
fn unknown_keys_are_reported() {
    let unknown = machine(json!({ "A": task("a", json!({ "Retries": [], "End": true })) }));
    refused(&unknown, Level::Decision, "unknown key `Retries`");
}

#[test]
fn a_file_that_is_no_state_machine_is_an_error_with_its_position() {
    let options = Options { name: "m".into(), region: "R".into(), substitutions: BTreeMap::new() };
    let error = |text: &str| import(text, &options).unwrap_err().to_string();
    assert_eq!(error("[1]"), "1:1: : a state machine is an object");
    assert_eq!(
        error("{\n  \"StartAt\": \"B\",\n  \"States\": { \"A\": { \"Type\": \"Succeed\" } }\n}"),
        "2:3: /StartAt: there is no state `B`"
    );
    assert_eq!(
        error("{ \"StartAt\": \"A\", \"States\": {\n  \"A\": { \"Type\": \"Sing\" } } }"),
        "2:3: /States/A: a state needs a known `Type`"
    );
    assert!(error("{ \"StartAt\": ").starts_with("1:"));
    assert!(error(&" ".repeat(crate::BYTES_MAX + 1)).contains("the limit"));
    let deep = (0..12).fold(json!({ "Type": "Succeed" }), |inner, _| {
        json!({ "Type": "Parallel", "End": true, "Branches": [machine(json!({ "A": inner }))] })
    });
    assert!(error(&machine(json!({ "A": deep })).to_string()).contains("nest too deep"));
}
