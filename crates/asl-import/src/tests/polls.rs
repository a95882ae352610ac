//! Loops that poll a job.

use super::*;

/// A job that is started, and polled after each pause.
fn job() -> Value {
    let call = |action: &str, more: Value| {
        let mut task = json!({ "Type": "Task", "Resource": format!("arn:aws:states:::aws-sdk:glue:{action}") });
        for (key, value) in more.as_object().unwrap() {
            task[key] = value.clone();
        }
        task
    };
    machine(json!({
        "Start": call("startJobRun", json!({ "Parameters": { "JobName": "j" }, "ResultPath": "$.job", "Next": "Pause" })),
        "Pause": { "Type": "Wait", "Seconds": 30, "Next": "Get" },
        "Get": call("getJobRun", json!({
            "Parameters": { "JobName": "j", "RunId.$": "$.job.JobRunId" }, "ResultPath": "$.run", "Next": "Done",
        })),
        "Done": { "Type": "Choice", "Default": "Pause", "Choices": [
            { "Variable": "$.run.JobRun.JobRunState", "StringEquals": "SUCCEEDED", "Next": "Store" },
            { "Variable": "$.run.JobRun.JobRunState", "StringEquals": "FAILED", "Next": "Failed" },
        ] },
        "Store": task("store", json!({ "Parameters": { "n.$": "$.n" }, "End": true })),
        "Failed": { "Type": "Fail", "Cause": "the job failed" },
    }))
}

#[test]
fn a_loop_that_polls_is_a_step_with_until() {
    let steps_of = steps(&job());
    assert_eq!(steps_of["pause"]["wait"], "30s", "the pause before the first call");
    let state = "response.body.JobRun.JobRunState";
    let condition = format!("${{ {state} == 'SUCCEEDED' || {state} == 'FAILED' }}");
    assert_eq!(steps_of["get"]["until"], json!({ "condition": condition, "every": "30s" }));
    assert_eq!(steps_of["get"]["recovery"], json!({ "attempts": 1, "give_up_after": "1d" }));
    let succeeded = "steps.get.output.JobRun.JobRunState == 'SUCCEEDED'";
    assert_eq!(steps_of["store"]["when"], format!("${{ {succeeded} }}"));
    assert_eq!(steps_of["fail_failed"]["when"], format!("${{ !({succeeded}) }}"));
    assert_eq!(steps_of["fail_failed"]["fail"], "the job failed");
    let is_limit = |note: &String| note.contains("polls for at most 1d");
    assert!(messages(&job(), Level::Note).iter().any(is_limit));
    let mut limited = job();
    limited["TimeoutSeconds"] = json!(3600);
    assert_eq!(steps(&limited)["get"]["recovery"]["give_up_after"], "1h");
    assert!(!messages(&limited, Level::Note).iter().any(is_limit));
}

#[test]
fn a_loop_may_begin_with_the_call() {
    let mut job = job();
    job["States"]["Start"]["Next"] = "Get".into();
    let choices = json!([
        { "Variable": "$.run.JobRun.JobRunState", "StringEquals": "RUNNING", "Next": "Pause" },
    ]);
    job["States"]["Done"] = json!({ "Type": "Choice", "Choices": choices, "Default": "Store" });
    let steps = steps(&job);
    assert_eq!(steps["pause"], Value::Null);
    let condition = "${ !(response.body.JobRun.JobRunState == 'RUNNING') }";
    assert_eq!(steps["get"]["until"]["condition"], condition);
    assert_eq!(steps["store"]["when"], Value::Null, "the poll ends only this way");
}

#[test]
fn a_poll_over_http_judges_body_and_status() {
    let mut job = job();
    job["States"]["Get"]["Resource"] = "arn:aws:states:::http:invoke".into();
    job["States"]["Get"]["Parameters"] =
        json!({ "ApiEndpoint": "https://jobs.example/1", "Method": "GET" });
    for rule in job["States"]["Done"]["Choices"].as_array_mut().unwrap() {
        rule["Variable"] = "$.run.ResponseBody.state".into();
    }
    let condition = "${ response.body.state == 'SUCCEEDED' || response.body.state == 'FAILED' }";
    assert_eq!(steps(&job)["get"]["until"]["condition"], condition);
}

#[test]
fn a_loop_whose_test_reads_more_than_the_response_needs_a_decision() {
    let with = |variable: &str| {
        let mut job = job();
        job["States"]["Done"]["Choices"][0]["Variable"] = variable.into();
        job
    };
    for variable in ["$.n", "$.job.JobRunId", "$$.Execution.Id"] {
        refused(&with(variable), Level::Decision, "`until` cannot say when it ends");
    }
    let mut constant = job();
    constant["States"]["Done"]["Choices"][0]["StringEquals"] = "${Done}".into();
    refused(&constant, Level::Decision, "reads no constants of `env`");
    let mut chosen = job();
    let pause = json!({ "Type": "Wait", "SecondsPath": "$.pause", "Next": "Get" });
    chosen["States"]["Pause"] = pause;
    refused(&chosen, Level::Decision, "the pause of a poll is a constant");
}

#[test]
fn an_agent_of_ones_own_may_judge_the_responses() {
    let mut own = job();
    own["States"]["Get"]["Resource"] = "arn:aws:states:::aws-sdk:mediaconvert:getJob".into();
    assert!(messages(&own, Level::Note).iter().any(|note| note.contains("must judge `responses`")));
    assert!(!messages(&own, Level::Decision).iter().any(|decision| decision.contains("a loop")));
}

#[test]
fn a_loop_that_sends_what_it_got_needs_a_decision() {
    let mut job = job();
    job["States"]["Get"]["ResultPath"] = "$.job".into();
    for rule in job["States"]["Done"]["Choices"].as_array_mut().unwrap() {
        rule["Variable"] = "$.job.JobRun.JobRunState".into();
    }
    refused(&job, Level::Decision, "a poll sends the first request again");
    let mut job = self::job();
    job["States"]["Pause"]["OutputPath"] = "$.run".into();
    refused(&job, Level::Decision, "a poll sends the first request again");
}

#[test]
fn a_loop_with_another_way_in_or_more_states_stays_a_loop() {
    let mut entered = job();
    entered["States"]["Start"]["Next"] = "Done".into();
    refused(&entered, Level::Decision, "a loop back to");
    let mut queue = job();
    queue["States"]["Get"]["Resource"] = "arn:aws:states:::sqs:sendMessage".into();
    refused(&queue, Level::Decision, "only a call over HTTP can have `until`");
    let mut set = job();
    set["States"]["Done"]["Choices"][0]["Assign"] = json!({ "x": 1 });
    refused(&set, Level::Decision, "its choice changes the data");
}
