//! Substitutions of the deployment.

use super::*;

fn table(parameters: Value) -> Value {
    machine(json!({ "A": {
        "Type": "Task", "Resource": "arn:aws:states:::dynamodb:getItem", "End": true,
        "Parameters": parameters,
    } }))
}

fn with_set(text: &str, values: &[(&str, &str)]) -> Import {
    let substitutions = values.iter().map(|(name, value)| ((*name).into(), (*value).into()));
    let options =
        Options { name: "m".into(), region: "R".into(), substitutions: substitutions.collect() };
    import(text, &options).unwrap()
}

#[test]
fn substitutions_are_constants_of_env_or_replaced() {
    let table = table(json!({
        "TableName": "${Table}", "Key": { "id": { "S.$": "States.Format('${AWS::Region}/{}', $.id)" } },
    }));
    let import = imported(&table);
    assert_eq!(parsed(&import).env.len(), 2);
    let yaml: Value = serde_saphyr::from_str(&import.definitions[0].yaml).unwrap();
    assert_eq!(yaml["env"], json!({ "Table": null, "AWS_Region": null }));
    let key = json!({ "id": { "S": "${ env.AWS_Region + '/' + string(input.id) }" } });
    let body = json!({ "TableName": "${ env.Table }", "Key": key });
    assert_eq!(yaml["steps"]["a"]["request"]["body"], body);
    let notes = messages(&table, Level::Note);
    assert_eq!(notes.iter().filter(|note| note.contains("--env Table=VALUE")).count(), 1);

    let import = with_set(&table.to_string(), &[("Table", "orders"), ("AWS::Region", "here")]);
    assert_eq!(import.report.status(), Status::Complete);
    assert!(import.definitions[0].yaml.contains("TableName: orders"));
    assert!(parsed(&import).env.is_empty());
}

#[test]
fn a_substitution_that_names_a_function_only_names_an_agent() {
    let import = imported(&machine(json!({
        "A": { "Type": "Task", "Resource": "${ChargeFunctionArn}", "End": true },
    })));
    assert_eq!(import.report.status(), Status::Complete);
    assert!(parsed(&import).env.is_empty());
    assert_eq!(import.agents[0].name, "charge-function");
}

#[test]
fn a_substitution_in_a_path_is_a_constant() {
    let parameters = json!({
        "FunctionName": "arn:aws:lambda:eu-west-1:1:function:${Stage}-charge", "Payload": {},
    });
    let steps = steps(&machine(json!({ "A": {
        "Type": "Task", "Resource": "arn:aws:states:::lambda:invoke", "End": true,
        "Parameters": parameters,
    } })));
    assert_eq!(steps["a"]["request"]["path"], "/${ env.Stage }-charge");
}

#[test]
fn two_substitutions_with_one_name_need_a_decision() {
    let both = table(json!({ "a": "${A.B}", "b": "${A_B}" }));
    refused(&both, Level::Decision, "`${A.B}` and `${A_B}` is `env.A_B`");
}

#[test]
fn substitutions_without_quotes_are_read_and_need_a_value() {
    let text = r#"{ "TimeoutSeconds": ${All}, "StartAt": "W", "States": {
        "W": { "Type": "Wait", "Seconds": ${Pause}, "Next": "A" }, "A": {
        "Type": "Task", "Resource": "arn:aws:states:::dynamodb:getItem", "End": true,
        "TimeoutSeconds": ${Timeout}, "Parameters": { "Limit": ${Limit} } } } }"#;
    let import = with_set(text, &[]);
    assert_eq!(import.report.status(), Status::NeedsDecisions);
    let yaml = &import.definitions[0].yaml;
    assert_eq!(yaml.matches("deadlines are constants").count(), 2, "{yaml}");
    assert!(yaml.contains("wait: ${ env.Pause }s"), "{yaml}");
    assert!(yaml.contains("it has no quotes") && yaml.contains("--set Limit=VALUE"), "{yaml}");
    let import =
        with_set(text, &[("All", "3600"), ("Pause", "10"), ("Timeout", "30"), ("Limit", "5")]);
    assert_eq!(import.report.status(), Status::Complete);
    let yaml = &import.definitions[0].yaml;
    assert!(yaml.contains("complete_within: 1h") && yaml.contains("wait: 10s"), "{yaml}");
    assert!(yaml.contains("complete_within: 30s") && yaml.contains("Limit: 5"), "{yaml}");
}

#[test]
fn a_substitution_that_is_compared_as_a_number_needs_a_value() {
    let which = machine(json!({
        "Which": { "Type": "Choice", "Default": "B", "Choices": [
            { "Variable": "$.n", "NumericGreaterThan": "${Max}", "Next": "A" },
        ] },
        "A": task("a", json!({ "End": true })),
        "B": task("b", json!({ "End": true })),
    }));
    refused(&which, Level::Decision, "--set Max=VALUE");
    let mut pattern = which;
    pattern["States"]["Which"]["Choices"][0] =
        json!({ "Variable": "$.n", "StringMatches": "${Max}*", "Next": "A" });
    refused(&pattern, Level::Decision, "a pattern is a constant");
}
