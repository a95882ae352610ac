//! The kinds of tasks: their agents, requests, deadlines and recovery.

use super::*;

fn resource(resource: &str, parameters: Value, more: Value) -> Value {
    let mut task =
        json!({ "Type": "Task", "Resource": resource, "Parameters": parameters, "End": true });
    for (key, value) in more.as_object().unwrap() {
        task[key] = value.clone();
    }
    machine(json!({ "A": task }))
}

#[test]
fn max_attempts_counts_retries_and_attempts_counts_all() {
    let with = |retry: Value| {
        steps(&machine(json!({ "A": task("a", json!({ "Retry": [retry], "End": true })) })))
    };
    let retry = json!({
        "ErrorEquals": ["States.Timeout"], "IntervalSeconds": 2, "MaxAttempts": 4, "BackoffRate": 3, "JitterStrategy": "FULL",
    });
    let backoff = json!({ "first": "2s", "rate": 3, "max": "54s", "jitter": true });
    assert_eq!(with(retry)["a"]["recovery"], json!({ "attempts": 5, "backoff": backoff }));
    let backoff = json!({ "first": "1s", "rate": 2, "max": "2s", "jitter": false });
    let retry = json!({ "ErrorEquals": ["States.Timeout"], "MaxDelaySeconds": 2 });
    assert_eq!(
        with(retry)["a"]["recovery"],
        json!({ "attempts": 4, "backoff": backoff }),
        "the defaults"
    );
    let none = steps(&machine(json!({ "A": task("a", json!({ "End": true })) })));
    assert_eq!(
        none["a"]["recovery"],
        json!({ "attempts": 1 }),
        "without `Retry` there is one attempt"
    );
    let never = json!({ "ErrorEquals": ["States.ALL"], "MaxAttempts": 0 });
    assert_eq!(with(never)["a"]["recovery"], json!({ "attempts": 1 }));
}

#[test]
fn errors_of_a_function_are_retried_if_retry_says_so() {
    let with = |name: &str| {
        let retry = json!([{ "ErrorEquals": [name] }]);
        machine(json!({ "A": task("a", json!({ "Retry": retry, "End": true })) }))
    };
    assert_eq!(steps(&with("States.ALL"))["a"]["responses"], json!({ "500": "retry" }));
    assert_eq!(steps(&with("Lambda.ServiceException"))["a"]["responses"], Value::Null);
    refused(&with("OutOfStock"), Level::Decision, "only the error `OutOfStock`");
}

#[test]
fn deadlines_are_those_of_the_state() {
    let steps =
        steps(&machine(json!({ "A": task("a", json!({ "TimeoutSeconds": 90, "End": true })) })));
    assert_eq!(steps["a"]["complete_within"], "90s");
    let long = machine(json!({ "A": task("a", json!({ "TimeoutSeconds": 600, "End": true })) }));
    refused(&long, Level::Decision, "cuts a call after 100s");
    let path =
        machine(json!({ "A": task("a", json!({ "TimeoutSecondsPath": "$.t", "End": true })) }));
    refused(&path, Level::Decision, "deadlines are constants");
    let mut whole = machine(json!({ "A": task("a", json!({ "End": true })) }));
    whole["TimeoutSeconds"] = json!(3600);
    assert_eq!(complete(&whole).complete_within.as_secs(), 3600);
}

#[test]
fn a_function_is_an_agent_and_its_payload_the_body() {
    let parameters =
        json!({ "FunctionName": function("charge:live"), "Payload": { "id.$": "$.id" } });
    let invoke = resource(
        "arn:aws:states:::lambda:invoke",
        parameters,
        json!({ "OutputPath": "$.Payload" }),
    );
    let steps = steps(&invoke);
    assert_eq!(steps["a"]["agent"], "charge");
    let request = json!({ "path": "/charge:live", "body": { "id": "${ input.id }" } });
    assert_eq!(steps["a"]["request"], request);
    let import = imported(&invoke);
    assert!(import.definitions[0].yaml.ends_with("output: ${ steps.a.output }\n"));
    let agents: Vec<_> =
        import.agents.iter().map(|agent| (agent.name.as_str(), agent.kind())).collect();
    assert_eq!(agents, [("charge", "lambda")]);
}

#[test]
fn a_function_is_called_by_its_name_with_its_qualifier() {
    let invoked = |parameters: Value| {
        let steps = steps(&resource("arn:aws:states:::lambda:invoke", parameters, json!({})));
        (steps["a"]["agent"].clone(), steps["a"]["request"]["path"].clone())
    };
    let live = (json!("charge"), json!("/charge:live"));
    for name in ["charge", "123456789012:function:charge", &function("charge")] {
        let qualified = json!({ "FunctionName": name, "Qualifier": "live", "Payload": {} });
        assert_eq!(invoked(qualified), live, "{name}");
        let alias = json!({ "FunctionName": format!("{name}:live"), "Payload": {} });
        assert_eq!(invoked(alias), live, "{name}");
        let plain = json!({ "FunctionName": name, "Payload": {} });
        assert_eq!(invoked(plain), (json!("charge"), json!("/charge")), "{name}");
    }
}

#[test]
fn messages_and_events_are_bodies_of_their_agents() {
    let parameters = json!({
        "QueueUrl": "https://sqs.eu-west-1.amazonaws.com/123456789012/orders",
        "MessageBody": { "id.$": "$.id", "token.$": "$$.Task.Token" },
    });
    let more = json!({ "TimeoutSeconds": 86400, "HeartbeatSeconds": 600 });
    let steps_of =
        steps(&resource("arn:aws:states:::sqs:sendMessage.waitForTaskToken", parameters, more));
    let body = json!({ "id": "${ input.id }", "token": "${ callback.token }" });
    assert_eq!(steps_of["a"]["request"], json!({ "path": "/orders", "body": body }));
    assert_eq!(steps_of["a"]["callback"], json!({ "within": "1d", "heartbeat": "10m" }));
    let entry = json!({ "Source": "shop", "DetailType": "Paid", "Detail": { "id.$": "$.id" }, "EventBusName": "orders" });
    let steps = steps(&resource(
        "arn:aws:states:::events:putEvents",
        json!({ "Entries": [entry] }),
        json!({}),
    ));
    let body =
        json!({ "source": "shop", "detail-type": "Paid", "detail": { "id": "${ input.id }" } });
    assert_eq!(steps["a"]["request"], json!({ "path": "/orders", "body": body }));
}

#[test]
fn a_callback_without_a_time_limit_needs_a_decision() {
    let parameters = json!({
        "QueueUrl": "https://sqs.eu-west-1.amazonaws.com/123456789012/orders",
        "MessageBody": { "token.$": "$$.Task.Token" },
    });
    let sqs = "arn:aws:states:::sqs:sendMessage.waitForTaskToken";
    let mut open = resource(sqs, parameters.clone(), json!({}));
    refused(&open, Level::Decision, "the callback is awaited for 30d");
    open["TimeoutSeconds"] = json!(7200);
    assert_eq!(steps(&open)["a"]["callback"], json!({ "within": "2h" }), "that of the machine");
    let beating = resource(sqs, parameters, json!({ "HeartbeatSeconds": 60 }));
    let callback = json!({ "within": "30d", "heartbeat": "1m" });
    assert_eq!(steps(&beating)["a"]["callback"], callback);
}

#[test]
fn another_state_machine_is_a_child_task() {
    let parameters = json!({
        "StateMachineArn": "arn:aws:states:eu-west-1:123456789012:stateMachine:Delivery",
        "Input": { "to.$": "$.address", "AWS_STEP_FUNCTIONS_STARTED_BY_EXECUTION_ID.$": "$$.Execution.Id" },
    });
    let start = |suffix: &str| {
        resource(
            &format!("arn:aws:states:::states:startExecution{suffix}"),
            parameters.clone(),
            json!({ "OutputPath": "$.Output" }),
        )
    };
    let child = json!({ "name": "delivery", "input": { "to": "${ input.address }" } });
    assert_eq!(steps(&start(".sync:2"))["a"]["workflow"], child);
    refused(&start(""), Level::Decision, "does not wait for the other execution");
}

#[test]
fn apis_of_aws_are_actions_of_one_agent_or_agents_of_ones_own() {
    let parameters = json!({ "TableName": "t", "Item": { "id": { "S.$": "$.id" } } });
    let put =
        resource("arn:aws:states:::dynamodb:putItem", parameters, json!({ "ResultPath": null }));
    let body = json!({ "TableName": "t", "Item": { "id": { "S": "${ input.id }" } } });
    assert_eq!(steps(&put)["a"]["request"], json!({ "aws": "dynamodb:PutItem", "body": body }));
    let agents = imported(&put).agents;
    assert_eq!((agents[0].kind(), agents[0].targets().as_str()), ("aws", "dynamodb:PutItem"));
    let publish = resource("arn:aws:states:::sns:publish", json!({ "Message": "x" }), json!({}));
    assert!(imported(&publish).definitions[0].yaml.contains("aws: sns:Publish"));
    let notes = messages(&publish, Level::Note);
    assert!(notes.iter().any(|note| note.contains("all values are texts")), "{notes:?}");
    let job = resource("arn:aws:states:::emr-containers:startJobRun.sync", json!({}), json!({}));
    refused(&job, Level::Decision, "needs an agent of your own");
    refused(&resource("arn:aws:other", json!({}), json!({})), Level::Cannot, "not known");
}

#[test]
fn http_calls_keep_method_query_and_result() {
    let parameters = json!({
        "ApiEndpoint": "https://pay.example/v1/charges", "Method": "PUT",
        "Authentication": { "ConnectionArn": "arn:aws:events:eu-west-1:123456789012:connection/pay" },
        "QueryParameters": { "currency.$": "$.currency" }, "RequestBody": { "amount.$": "$.amount" },
    });
    let call = resource(
        "arn:aws:states:::http:invoke",
        parameters,
        json!({ "ResultSelector": { "id.$": "$.ResponseBody.id" } }),
    );
    let steps = steps(&call);
    let request = json!({
        "method": "PUT", "path": "/v1/charges?currency=${ input.currency }", "body": { "amount": "${ input.amount }" },
    });
    assert_eq!(steps["a"]["request"], request);
    assert!(
        imported(&call).definitions[0].yaml.contains("id: ${ steps.a.output.ResponseBody.id }")
    );
}

#[test]
fn a_job_is_started_by_one_step_and_polled_by_a_second_one() {
    let query = json!({
        "Type": "Task", "Resource": "arn:aws:states:::athena:startQueryExecution.sync",
        "Parameters": { "QueryString.$": "$.sql", "WorkGroup": "primary" }, "TimeoutSeconds": 600,
        "ResultPath": "$.query", "Next": "done",
    });
    let done = task(
        "done",
        json!({
            "Parameters": { "id.$": "$.query.QueryExecution.QueryExecutionId" }, "End": true,
        }),
    );
    let steps = steps(&machine(json!({ "q": query, "done": done })));
    let start = json!({ "aws": "athena:StartQueryExecution", "body": { "QueryString": "${ input.sql }", "WorkGroup": "primary" } });
    assert_eq!((&steps["q"]["request"], steps["q"].get("callback")), (&start, None));
    let end = &steps["q_end"];
    let poll = json!({ "aws": "athena:GetQueryExecution", "body": { "QueryExecutionId": "${ steps.q.output.QueryExecutionId }" } });
    assert_eq!((&end["request"], &end["after"]), (&poll, &json!(["q"])));
    let state = "response.body.QueryExecution.Status.State";
    let until = json!({
        "condition": format!("${{ {state} == 'SUCCEEDED' }}"), "every": "30s",
        "fail": format!("${{ {state} in ['FAILED', 'CANCELLED'] }}"),
    });
    assert_eq!((&end["until"], &end["recovery"]["give_up_after"]), (&until, &json!("10m")));
    let read = json!({ "id": "${ steps.q_end.output.QueryExecution.QueryExecutionId }" });
    assert_eq!(
        (&steps["done"]["request"]["body"], &steps["done"]["after"]),
        (&read, &json!(["q_end"]))
    );

    let glue = |more: Value| {
        let parameters = json!({ "JobName.$": "$.job" });
        let resource = "arn:aws:states:::glue:startJobRun.sync";
        let mut state =
            json!({ "Type": "Task", "Resource": resource, "Parameters": parameters, "End": true });
        state.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        machine(json!({ "g": state }))
    };
    let steps = self::steps(&glue(json!({})));
    let body = json!({ "JobName": "${ input.job }", "RunId": "${ steps.g.output.JobRunId }" });
    assert_eq!(
        (&steps["g_end"]["request"]["body"], &steps["g_end"]["output"]),
        (&body, &json!("${ response.body.JobRun }"))
    );
    let retry = json!({ "Retry": [{ "ErrorEquals": ["States.ALL"], "MaxAttempts": 2 }] });
    refused(&glue(retry), Level::Decision, "is not started again");
    // The handler runs in place of a job that did not start.
    let catch = json!({ "Catch": [{ "ErrorEquals": ["States.ALL"], "Next": "h" }] });
    let mut caught = glue(catch);
    caught["States"]["h"] = task("h", json!({ "End": true }));
    let yaml: Value = serde_saphyr::from_str(&imported(&caught).definitions[0].yaml).unwrap();
    assert_eq!(yaml["steps"]["g_end"]["when"], json!("${ !steps.g.failed }"));
}

/// In Step Functions their members begin with a capital letter.
#[test]
fn members_of_batch_ecs_and_codebuild_have_the_names_of_their_apis() {
    let environment = json!([{ "Name": "ORDER", "Value.$": "$.id" }]);
    let parameters = json!({
        "JobName": "pack", "JobQueue": "q", "JobDefinition": "d",
        "Parameters": { "OrderId.$": "$.id" }, "ContainerOverrides": { "Environment": environment },
    });
    let job = json!({
        "Type": "Task", "Resource": "arn:aws:states:::batch:submitJob.sync", "Parameters": parameters, "ResultPath": "$.job",
        "Next": "done",
    });
    let read = json!({ "id.$": "$.job.JobId", "status.$": "$.job.Status" });
    let done = task("done", json!({ "Parameters": read, "End": true }));
    let steps = steps(&machine(json!({ "b": job, "done": done })));
    let sent = json!({
        "jobName": "pack", "jobQueue": "q", "jobDefinition": "d", "parameters": { "OrderId": "${ input.id }" },
        "containerOverrides": { "environment": [{ "name": "ORDER", "value": "${ input.id }" }] },
    });
    assert_eq!(
        steps["b"]["request"],
        json!({ "aws": "batch:SubmitJob", "path": "/v1/submitjob", "body": sent })
    );
    let poll = json!({
        "aws": "batch:DescribeJobs", "path": "/v1/describejobs", "body": { "jobs": ["${ steps.b.output.jobId }"] },
    });
    assert_eq!(
        (&steps["b_end"]["request"], &steps["b_end"]["output"]),
        (&poll, &json!("${ response.body.jobs[0] }"))
    );
    let read = json!({ "id": "${ steps.b_end.output.jobId }", "status": "${ steps.b_end.output.status }" });
    assert_eq!(steps["done"]["request"]["body"], read);

    let run = |parameters: Value| {
        resource("arn:aws:states:::ecs:runTask.sync", parameters, json!({ "ResultPath": null }))
    };
    let steps = self::steps(&run(json!({ "Cluster": "c", "TaskDefinition": "t" })));
    let poll = json!({ "cluster": "c", "tasks": ["${ steps.a.output.tasks[0].taskArn }"] });
    assert_eq!(steps["a_end"]["request"]["body"], poll);
    let stopped = "response.body.tasks[0].lastStatus == 'STOPPED'";
    let failed = "response.body.tasks[0].containers.exists(c, !has(c.exitCode) || c.exitCode != 0)";
    let until = json!({
        "condition": format!("${{ {stopped} && !{failed} }}"), "every": "30s",
        "fail": format!("${{ {stopped} && {failed} }}"),
    });
    assert_eq!(steps["a_end"]["until"], until);
    let steps = self::steps(&run(json!({ "TaskDefinition": "t" })));
    assert_eq!(
        steps["a_end"]["request"]["body"],
        json!({ "tasks": ["${ steps.a.output.tasks[0].taskArn }"] }),
        "the default cluster"
    );
    let dynamic = json!({ "TaskDefinition": "t", "Overrides.$": "$.overrides" });
    refused(&run(dynamic), Level::Decision, "`Overrides` is known only when the task runs");
    let inner = json!([{ "Name.$": "$.n", "EnvironmentFiles.$": "$.files" }]);
    let inner = json!({ "TaskDefinition": "t", "Overrides": { "ContainerOverrides": inner } });
    refused(&run(inner), Level::Decision, "`EnvironmentFiles` is known only when the task runs");
    let several = json!({ "TaskDefinition": "t", "Count": 2 });
    refused(&run(several), Level::Decision, "only the first of several tasks");
    let tags = json!({ "TaskDefinition": "t", "Tags": [{ "Key": "a", "Value": "b" }] });
    let plain = resource("arn:aws:states:::ecs:runTask", tags, json!({ "ResultPath": null }));
    let sent = self::steps(&plain)["a"]["request"]["body"]["tags"].clone();
    assert_eq!(sent, json!([{ "key": "a", "value": "b" }]));
    let all =
        json!({ "Type": "Task", "Resource": "arn:aws:states:::ecs:runTask.sync", "End": true });
    refused(&machine(json!({ "A": all })), Level::Decision, "the parameters are known only when");
    // The names in the whole result would be others.
    let whole = task("f", json!({ "InputPath": "$.task", "End": true }));
    let parameters = json!({ "TaskDefinition": "t" });
    let run_first = json!({
        "Type": "Task", "Resource": "arn:aws:states:::ecs:runTask.sync", "Parameters": parameters,
        "ResultPath": "$.task", "Next": "f",
    });
    let both = machine(json!({ "A": run_first, "f": whole }));
    refused(&both, Level::Decision, "all names begin with a small letter");
    let tag = resource("arn:aws:states:::aws-sdk:batch:tagResource", json!({}), json!({}));
    refused(&tag, Level::Decision, "needs an agent of your own");

    let build = json!({ "ProjectName": "p" });
    let build = resource(
        "arn:aws:states:::codebuild:startBuild.sync",
        build,
        json!({ "ResultPath": null }),
    );
    let steps = self::steps(&build);
    assert_eq!(steps["a"]["request"]["body"], json!({ "projectName": "p" }));
    assert_eq!(
        steps["a_end"]["request"]["body"],
        json!({ "ids": ["${ steps.a.output.build.id }"] })
    );
}
