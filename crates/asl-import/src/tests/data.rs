//! What a request contains: paths, intrinsic functions, variables, JSONata.

use super::*;

/// The body of the last task `B` of a machine in which `A` has these keys, and `B` these parameters.
fn body_after(a: Value, parameters: Value) -> Value {
    let mut a = task("a", a);
    a["Next"] = "B".into();
    let b = task("b", json!({ "Parameters": parameters, "End": true }));
    steps(&machine(json!({ "A": a, "B": b })))["b"]["request"]["body"].clone()
}

#[test]
fn result_path_adds_the_result_to_the_data() {
    let body = body_after(
        json!({ "ResultPath": "$.a" }),
        json!({ "id.$": "$.a.id", "amount.$": "$.amount", "kind": "x", "list": [1, { "in.$": "$.b.c" }] }),
    );
    let expected = json!({
        "id": "${ steps.a.output.id }", "amount": "${ input.amount }", "kind": "x",
        "list": [1, { "in": "${ input.b.c }" }],
    });
    assert_eq!(body, expected);
}

#[test]
fn without_result_path_the_result_replaces_the_data() {
    let body = body_after(json!({}), json!({ "id.$": "$.id" }));
    assert_eq!(body, json!({ "id": "${ steps.a.output.id }" }));
    let body = body_after(json!({ "ResultPath": null }), json!({ "id.$": "$.id" }));
    assert_eq!(body, json!({ "id": "${ input.id }" }));
}

#[test]
fn selectors_and_paths_choose_parts() {
    let body = body_after(
        json!({ "ResultSelector": { "n.$": "$.list[0].n" }, "ResultPath": "$.deep.er", "OutputPath": "$.deep" }),
        json!({ "n.$": "$.er.n", "other.$": "$.x['a-b']" }),
    );
    let expected =
        json!({ "n": "${ steps.a.output.list[0].n }", "other": "${ input.deep.x['a-b'] }" });
    assert_eq!(body, expected);
}

#[test]
fn the_whole_data_after_a_result_path_is_merged_unless_the_path_is_deep() {
    let whole = |path: &str| {
        machine(json!({
            "A": task("a", json!({ "ResultPath": path, "Next": "B" })),
            "B": task("b", json!({ "End": true })),
        }))
    };
    let body = &steps(&whole("$.a"))["b"]["request"]["body"];
    assert_eq!(body, "${ maps.merge(input, {'a': steps.a.output}) }");
    refused(&whole("$.a.b"), Level::Decision, "list the fields that are needed");
}

#[test]
fn a_field_that_only_one_branch_sets_may_be_absent() {
    let steps = steps(&machine(json!({
        "Which": { "Type": "Choice", "Default": "Has", "Choices": [
            { "Variable": "$.ok", "BooleanEquals": true, "Next": "A" },
        ] },
        "A": task("a", json!({ "Parameters": {}, "ResultPath": "$.a", "Next": "Has" })),
        "Has": { "Type": "Choice", "Default": "C", "Choices": [
            { "Variable": "$.a", "IsPresent": true, "Next": "B" },
        ] },
        "B": task("b", json!({ "Parameters": { "a.$": "$.a" }, "End": true })),
        "C": task("c", json!({ "End": true })),
    })));
    assert_eq!(steps["b"]["when"], "${ input.ok == true ? true : has(input.a) }");
    let body = "${ maps.merge(input, input.ok == true ? {'a': steps.a.output} : {}) }";
    assert_eq!(steps["c"]["request"]["body"], body);
}

#[test]
fn pass_states_become_expressions_where_their_values_are_read() {
    let steps = steps(&machine(json!({
        "Set": { "Type": "Pass", "Result": { "tax": 19, "text": "a ${" }, "ResultPath": "$.set", "Next": "Make" },
        "Make": { "Type": "Pass", "Parameters": { "sum.$": "States.MathAdd($.net, $.set.tax)", "text.$": "$.set.text" }, "Next": "A" },
        "A": task("a", json!({ "End": true })),
    })));
    let body = json!({ "sum": "${ input.net + 19 }", "text": "a $${" });
    assert_eq!(steps["a"]["request"]["body"], body);
}

#[test]
fn intrinsic_functions_with_a_counterpart_are_translated() {
    let body = body_after(
        json!({ "ResultPath": null }),
        json!({
            "label.$": "States.Format('Order {} of {}', $.id, $.name)",
            "list.$": "States.Array($.id, 'b', 3)",
            "has.$": "States.ArrayContains($.tags, 'x')",
            "count.$": "States.ArrayLength($.tags)",
            "ids.$": "$.lines[*].id",
            "execution.$": "$$.Execution.Id",
            "started.$": "$$.Execution.StartTime",
            "parsed.$": "States.StringToJson($.text)",
            "text.$": "States.JsonToString($.lines)",
            "merged.$": "States.JsonMerge($.a, $.b, false)",
            "parts.$": "States.StringSplit($.text, ',')",
            "range.$": "States.ArrayRange(1, $.n, 1)",
            "unique.$": "States.ArrayUnique($.tags)",
            "base64.$": "States.Base64Decode(States.Base64Encode($.text))",
            "hash.$": "States.Hash($.text, 'SHA-256')",
        }),
    );
    let expected = json!({
        "label": "${ 'Order ' + string(input.id) + ' of ' + string(input.name) }",
        "list": ["${ input.id }", "b", 3],
        "has": "${ 'x' in input.tags }",
        "count": "${ size(input.tags) }",
        "ids": "${ input.lines.map(each, each.id) }",
        "execution": "${ task.id }",
        "started": "${ task.submitted_at }",
        "parsed": "${ json.decode(input.text) }",
        "text": "${ json.encode(input.lines) }",
        "merged": "${ maps.merge(input.a, input.b) }",
        "parts": "${ input.text.split(',').filter(each, each != '') }",
        "range": "${ lists.range(input.n - 1 + 1).map(each, 1 + each) }",
        "unique": "${ input.tags.distinct() }",
        "base64": "${ string(base64.decode(base64.encode(input.text))) }",
        "hash": "${ hash.sha256(input.text) }",
    });
    assert_eq!(body, expected);
}

#[test]
fn what_expressions_cannot_say_has_a_placeholder_that_check_refuses() {
    for (path, reason) in [
        ("States.MathRandom(1, 9)", "is random"),
        ("States.StringSplit($.text, ', ')", "no counterpart"),
        ("States.ArrayPartition($.list, 4)", "no counterpart"),
        ("$..id", "searches all levels"),
        ("$.lines[?(@.n > 1)]", "a filter or a slice"),
        ("$unset.x", "no state before this one assigns"),
        ("States.Format('{}')", "fewer arguments"),
        ("States.Array(1", "`)` is missing"),
    ] {
        let parameters = json!({ "Parameters": { "x.$": path }, "End": true });
        refused(&machine(json!({ "A": task("a", parameters) })), Level::Cannot, reason);
    }
}

#[test]
fn each_uuid_is_another_one_and_stays_the_same() {
    let make = json!({ "Type": "Pass", "Parameters": { "id.$": "States.UUID()" }, "ResultPath": "$.made", "Next": "A" });
    let send = |next: Value| {
        let mut state = task(
            "a",
            json!({
                "Parameters": { "id.$": "$.made.id", "own.$": "States.UUID()", "other.$": "States.Format('x-{}', States.UUID())" },
                "ResultPath": null,
            }),
        );
        state.as_object_mut().unwrap().extend(next.as_object().unwrap().clone());
        state
    };
    let each = json!({
        "Type": "Map", "ItemsPath": "$.list", "MaxConcurrency": 1, "End": true,
        "ItemSelector": { "id.$": "States.UUID()" },
        "ItemProcessor": { "StartAt": "I", "States": { "I": task("i", json!({ "End": true })) } },
    });
    let states = json!({
        "Make": make, "A": send(json!({ "Next": "B" })), "B": send(json!({ "Next": "Each" })), "Each": each,
    });
    let steps = steps(&machine(states));
    let sent = |step: &str| steps[step]["request"]["body"].clone();
    let uuid = |number: u32| format!("hash.uuid(task.id + task.submitted_at + '/{number}')");
    let body = |own: u32| {
        json!({
            "id": format!("${{ {} }}", uuid(1)), "own": format!("${{ {} }}", uuid(own)), "other": format!("${{ 'x-' + string({}) }}", uuid(own + 1)),
        })
    };
    assert_eq!((sent("a"), sent("b")), (body(2), body(4)));
    assert_eq!(
        sent("i"),
        json!({ "id": "${ hash.uuid(task.id + task.submitted_at + '/6' + '/' + string(item_index)) }" })
    );
}

#[test]
fn the_time_of_a_state_is_known_to_its_own_request_only() {
    let parameters = json!({ "at.$": "$$.State.EnteredTime" });
    let steps = steps(&machine(
        json!({ "A": task("a", json!({ "Parameters": parameters, "End": true })) }),
    ));
    assert_eq!(steps["a"]["request"]["body"], json!({ "at": "${ step.started_at }" }));
    let pass = json!({ "Type": "Pass", "Parameters": parameters, "Next": "B" });
    refused(
        &machine(json!({ "A": pass, "B": task("b", json!({ "End": true })) })),
        Level::Cannot,
        "no clock",
    );
}

#[test]
fn variables_are_followed_through_the_branches() {
    let steps = steps(&machine(json!({
        "Start": { "Type": "Pass", "Assign": { "rate.$": "$.standard" }, "Next": "Which" },
        "Which": { "Type": "Choice", "Default": "Use", "Choices": [
            { "Variable": "$.vip", "BooleanEquals": true, "Next": "Vip" },
        ] },
        "Vip": { "Type": "Pass", "Assign": { "rate": 1 }, "Next": "Use" },
        "Use": task("use", json!({ "Parameters": { "rate.$": "$rate" }, "End": true })),
    })));
    let rate = &steps["use"]["request"]["body"]["rate"];
    assert_eq!(rate, "${ input.vip == true ? 1 : input.standard }");
}

fn jsonata_body(arguments: Value) -> Value {
    let mut all = machine(json!({
        "A": task("a", json!({
            "Arguments": "{% $states.input %}",
            "Assign": { "id": "{% $states.result.id %}" },
            "Output": { "order": "{% $states.input.order %}", "lines": "{% $states.result.lines %}" },
            "Next": "B",
        })),
        "B": task("b", json!({ "Arguments": arguments, "End": true })),
    }));
    all["QueryLanguage"] = "JSONata".into();
    steps(&all)["b"]["request"]["body"].clone()
}

#[test]
fn jsonata_is_translated_to_cel() {
    let body = jsonata_body(json!({
        "id": "{% $id %}",
        "label": "{% 'Order ' & $states.input.order.id & '!' %}",
        "many": "{% $count($states.input.lines) > 3 and $exists($states.input.order.a.b) %}",
        "half": "{% ($id + 1) / 2 %}",
        "which": "{% $states.input.order.n = 1 ? 'one' : 'more' %}",
        "first": "{% $states.input.lines[0].sku %}",
        "last": "{% $states.input.lines[-1].sku %}",
        "in": "{% 'x' in $states.input.order.tags %}",
        "unique": "{% $distinct($states.input.order.tags) %}",
        "plain": "text",
    }));
    let expected = json!({
        "id": "${ steps.a.output.id }",
        "label": "${ 'Order ' + string(input.order.id) + '!' }",
        "many": "${ size(steps.a.output.lines) > 3 && (has(input.order.a) && has(input.order.a.b)) }",
        "half": "${ double(steps.a.output.id + 1) / double(2) }",
        "which": "${ input.order.n == 1 ? 'one' : 'more' }",
        "first": "${ steps.a.output.lines[0].sku }",
        "last": "${ steps.a.output.lines[size(steps.a.output.lines) - 1].sku }",
        "in": "${ 'x' in input.order.tags }",
        "unique": "${ input.order.tags.distinct() }",
        "plain": "text",
    });
    for (key, value) in expected.as_object().unwrap() {
        let text = value.as_str().unwrap().replace(
            "(has(input.order.a) && has(input.order.a.b))",
            "has(input.order.a) && has(input.order.a.b)",
        );
        assert_eq!(body[key], text, "{key}");
    }
}

#[test]
fn other_jsonata_is_refused_with_its_text() {
    for (code, reason) in [
        ("$states.input.lines[n = 1]", "a filter gives a sequence"),
        ("$now()", "deterministic"),
        ("$uppercase('a')", "letters A to Z only"),
        ("$trim('a')", "no counterpart of `$trim`"),
        ("$states.errorOutput.Error", "but not the error"),
        ("$states.input.*", "in a path"),
        ("($x := 1; $x)", "several expressions"),
        ("1 +", "not valid JSONata"),
        ("$sum([1,2])", "no counterpart"),
    ] {
        let mut all = machine(json!({
            "A": task("a", json!({ "Arguments": { "x": format!("{{% {code} %}}") }, "End": true })),
        }));
        all["QueryLanguage"] = "JSONata".into();
        refused(&all, Level::Cannot, reason);
        let text = format!("`{code}`");
        assert!(messages(&all, Level::Cannot).iter().any(|m| m.contains(&text)), "{code}");
    }
    let deep = format!("{}1{}", "(".repeat(900), ")".repeat(900));
    let mut all = machine(json!({
        "A": task("a", json!({ "Arguments": { "x": format!("{{% {deep} %}}") }, "End": true })),
    }));
    all["QueryLanguage"] = "JSONata".into();
    refused(&all, Level::Cannot, "nests too deep");
}
