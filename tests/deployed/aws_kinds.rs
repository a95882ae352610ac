//! Agents that call AWS: one of each of the kinds `lambda`, `sqs` and `events`, and one of kind `http` that signs its calls.
//! Each is a stack of its own, whose role may use only the resources that its parameters name.

use std::rc::Rc;

use aws_sdk_eventbridge::types::Tag;
use aws_sdk_sqs::types::Message;
use reqwest::Method;
use serde_json::{Value, json};
use steward_core::model::{document::DocumentKey, task::ProcessState};

use super::{
    agent_stacks::{delete_agent, deploy_agent},
    aws_requests::wait_for,
    callbacks::service_answers_by_signed_url,
    functions::{configuration, processes},
    stack::{Stack, delete_rules, queue, route},
    target::{DeploymentTarget, RUN_TAG, deployment_target},
};

/// The agents, one of each kind.
const AGENTS: [&str; 4] = ["invoker", "sender", "publisher", "reader"];

/// One step of each kind. `look_up` reads its own task by the function behind the function URL.
const EACH_KIND: &str = r#"
name: each-kind
version: 1
steps:
  look_up:
    agent: invoker
    request:
      path: /
      body:
        version: "2.0"
        rawPath: /tasks/${ task.id }
        rawQueryString: ""
        headers: {}
        requestContext:
          timeEpoch: 0
          http: { method: GET, path: "/tasks/${ task.id }", protocol: HTTP/1.1, sourceIp: 127.0.0.1 }
        isBase64Encoded: false
    output: { status: "${ response.body.statusCode }", task: "${ response.body.body }" }
  send:
    agent: sender
    request: { path: "/${ input.queue }", body: { order: "${ task.id }" } }
  publish:
    agent: publisher
    after: [send]
    request:
      path: /
      body:
        detail-type: Order Placed
        detail: { order: "${ task.id }", message: "${ steps.send.output.message_id }" }
  read:
    agent: reader
    request: { path: /, body: { QueueUrl: "${ input.queue_url }", AttributeNames: [QueueArn] } }
    output: { status: "${ response.status }", arn: "${ response.body.Attributes.QueueArn }" }
output:
  look_up: ${ steps.look_up.output }
  message: ${ steps.send.output.message_id }
  event: ${ steps.publish.output.event_id }
  read: ${ steps.read.output }
"#;

/// One call by the agent that the input names, of the target that it names, or of the agent's only one.
const ONE_CALL: &str = r#"
name: one-call
version: 1
steps:
  call:
    agent: { choose: "${ input.agent }", of: [invoker, sender, publisher, reader] }
    when: ${ input.target != '' }
    request: { path: "/${ input.target }", body: "${ input.body }" }
  call_only_target:
    agent: { choose: "${ input.agent }", of: [invoker, sender, publisher, reader] }
    when: ${ input.target == '' }
    request: { path: /, body: "${ input.body }" }
"#;

pub(super) async fn agents_call_aws_services(stack: Rc<Stack>) {
    let resources = Resources::create(&stack).await;
    resources.deploy_agents(&stack).await;
    stack.publish(EACH_KIND).await;
    stack.publish(ONE_CALL).await;
    each_kind_calls_its_service(&stack, &resources).await;
    if deployment_target().has_callbacks("aws kinds: a callback over HTTP") {
        callback_completes_a_step(&stack, &resources).await;
    }
    failures_say_why(&stack, &resources).await;
    let skipped = "aws kinds: resources that no statement names";
    if deployment_target().enforces_iam(skipped) && deployment_target().shows_processes(skipped) {
        iam_refuses_resources_that_no_statement_names(&stack, &resources).await;
    }
}

async fn callback_completes_a_step(stack: &Stack, resources: &Resources) {
    let request = async || loop {
        let request = body(&first_message(stack, &resources.queue).await);
        if request["answer_at"].is_string() {
            break request;
        }
    };
    service_answers_by_signed_url(stack, &resources.queue, request).await;
}

/// Deletes the agents and their resources.
pub(super) async fn delete_agents(stack: Rc<Stack>) {
    let [invoker, sender, publisher, reader] = AGENTS.map(|agent| delete_agent(&stack, agent));
    tokio::join!(invoker, sender, publisher, reader);
    let bus = stack.name_of("orders");
    delete_rules(&stack.sdk, &bus).await;
    let events = aws_sdk_eventbridge::Client::new(&stack.sdk);
    events.delete_event_bus().name(&bus).send().await.unwrap();
    let sqs = aws_sdk_sqs::Client::new(&stack.sdk);
    for name in ["orders", "announcements"] {
        let url = deployment_target().queue_url(&stack.name_of(name));
        sqs.delete_queue().queue_url(url).send().await.unwrap();
    }
}

/// What the agents may use, and resources of the same kinds that they may not use.
struct Resources {
    function: String,
    other_function: String,
    queue: String,
    other_queue: String,
    bus: String,
    /// Receives the events of the bus.
    announcements: String,
}

impl Resources {
    async fn create(stack: &Stack) -> Self {
        let resources = Self {
            function: stack.name_of("submission-http"),
            other_function: stack.name_of("console"),
            queue: stack.name_of("orders"),
            other_queue: stack.name_of("rejected"),
            bus: stack.name_of("orders"),
            announcements: stack.name_of("announcements"),
        };
        queue(&stack.sdk, &resources.queue).await;
        let announcements = queue(&stack.sdk, &resources.announcements).await;
        let events = aws_sdk_eventbridge::Client::new(&stack.sdk);
        let tag = Tag::builder().key(RUN_TAG).value(&deployment_target().stack).build().unwrap();
        events.create_event_bus().name(&resources.bus).tags(tag).send().await.unwrap();
        let pattern = json!({ "source": ["steward.agent.publisher"] });
        route(&stack.sdk, (&resources.bus, "announce"), &pattern, &announcements).await;
        resources
    }

    async fn deploy_agents(&self, stack: &Stack) {
        let target = deployment_target();
        let invoker = ["Kind=lambda".to_owned(), targets(&function_arn(target, &self.function))];
        let sender = ["Kind=sqs".to_owned(), targets(&target.queue_arn(&self.queue))];
        let publisher = ["Kind=events".to_owned(), targets(&bus_arn(target, &self.bus))];
        let headers = json!({
            "content-type": "application/x-amz-json-1.0",
            "x-amz-target": "AmazonSQS.GetQueueAttributes",
        });
        let reader = [
            format!("BaseUrl={}", target.endpoint("sqs")),
            format!("Auth=aws:sqs/{}", target.region),
            format!("Headers={headers}"),
            "Actions=sqs:GetQueueAttributes".to_owned(),
            targets(&target.queue_arn(&self.queue)),
        ];
        tokio::join!(
            deploy_agent(stack, "invoker", &invoker),
            deploy_agent(stack, "sender", &sender),
            deploy_agent(stack, "publisher", &publisher),
            deploy_agent(stack, "reader", &reader),
        );
    }
}

fn targets(arn: &str) -> String {
    format!("Targets={arn}")
}

fn function_arn(target: &DeploymentTarget, name: &str) -> String {
    format!("arn:aws:lambda:{}:{}:function:{name}", target.region, target.account)
}

fn bus_arn(target: &DeploymentTarget, name: &str) -> String {
    format!("arn:aws:events:{}:{}:event-bus/{name}", target.region, target.account)
}

async fn each_kind_calls_its_service(stack: &Stack, resources: &Resources) {
    let id = "aws-each-kind";
    let (target, queue) = (deployment_target(), &resources.queue);
    let input = json!({ "queue": queue, "queue_url": target.queue_url(queue) });
    stack.submit(id, "each-kind", &input).await;
    let task = stack.ended(id).await;
    assert_eq!(task.process_state, ProcessState::Processed, "{:?}", task.error);
    let output = task_output(stack, id).await;

    assert_eq!(output["look_up"]["status"], 200, "{output}");
    let looked_up: Value =
        serde_json::from_str(output["look_up"]["task"].as_str().unwrap()).unwrap();
    assert_eq!(looked_up["task_id"], id);
    assert_eq!(output["read"], json!({ "status": 200, "arn": target.queue_arn(queue) }));

    let message = first_message(stack, queue).await;
    assert_eq!(message.message_id.as_deref(), output["message"].as_str());
    assert_eq!(body(&message), json!({ "order": id }));
    let key = &message.message_attributes.unwrap()["idempotency-key"];
    assert_eq!(key.string_value(), Some("aws-each-kind/send/do"));

    let event = body(&first_message(stack, &resources.announcements).await);
    assert_eq!(event["id"], output["event"]);
    assert_eq!(event["detail-type"], "Order Placed");
    assert_eq!(event["detail"], json!({ "order": id, "message": output["message"] }));
    assert_eq!(event["resources"], json!(["aws-each-kind/publish/do"]));
}

async fn task_output(stack: &Stack, id: &str) -> Value {
    let task = stack.task(id).await.unwrap();
    let all = ["!".to_owned()..="~".to_owned()];
    let documents = stack.store().documents_in(&task, &all).await.unwrap();
    let output =
        documents.into_iter().find(|document| matches!(document.key, DocumentKey::Result(_)));
    output.expect("an output").body
}

/// Waits for a message in a queue.
async fn first_message(stack: &Stack, queue: &str) -> Message {
    let sqs = aws_sdk_sqs::Client::new(&stack.sdk);
    let receive = async || {
        let receive = sqs.receive_message().queue_url(deployment_target().queue_url(queue));
        let receive = receive.message_attribute_names("All").wait_time_seconds(1);
        receive.send().await.unwrap().messages.unwrap_or_default().pop()
    };
    wait_for(&format!("a message in {queue}"), receive).await
}

fn body(message: &Message) -> Value {
    serde_json::from_str(message.body().unwrap()).unwrap()
}

/// The error of a task whose agent makes one call that fails.
async fn error_of_call(stack: &Stack, id: &str, agent: &str, target: &str, body: Value) -> String {
    let input = json!({ "agent": agent, "target": target, "body": body });
    stack.submit(id, "one-call", &input).await;
    let task = stack.ended(id).await;
    assert_eq!(task.process_state, ProcessState::Error, "{id}");
    task.error.unwrap().replacen("step call_only_target:", "step call:", 1)
}

async fn failures_say_why(stack: &Stack, resources: &Resources) {
    // The function refuses what is no request, and ends with an error.
    let event = json!("no request");
    let error = error_of_call(stack, "aws-function-error", "invoker", "", event).await;
    assert!(error.starts_with("step call: the function failed"), "{error}");

    let other = &resources.other_queue;
    let error = error_of_call(stack, "aws-unknown-target", "sender", other, json!(1)).await;
    let reason = "the request's path is not the name of a target of this agent, one of";
    assert_eq!(error, format!("step call: {reason} `/{}`", resources.queue));
}

/// A signed call to another queue; and calls of agents whose configuration names resources that their roles may not use.
async fn iam_refuses_resources_that_no_statement_names(stack: &Stack, resources: &Resources) {
    let target = deployment_target();
    let queue_url = target.queue_url(&resources.other_queue);
    let body = json!({ "QueueUrl": queue_url, "AttributeNames": ["QueueArn"] });
    let error = error_of_call(stack, "aws-refused-read", "reader", "", body).await;
    assert_eq!(error, "step call: HTTP 403 Forbidden");

    let event = json!({ "detail-type": "Order Placed", "detail": {} });
    let calls = [
        ("invoker", function_arn(target, &resources.other_function), json!({})),
        ("sender", target.queue_arn(&resources.other_queue), json!({})),
        ("publisher", bus_arn(target, "default"), event),
    ];
    for (agent, other, body) in calls {
        set_targets(&stack.name_of(&format!("agent-{agent}")), &other).await;
        let id = format!("aws-refused-{agent}");
        let error = error_of_call(stack, &id, agent, "", body).await;
        assert_eq!(error, "step call: HTTP 403 Forbidden: AccessDeniedException", "{agent}");
    }
}

/// Configures the function of an agent with another target. Its role stays as it was deployed.
async fn set_targets(function: &str, arn: &str) {
    let before = configuration(Method::GET, function, "").await;
    let mut variables = before["Environment"]["Variables"].clone();
    variables["STEWARD_AGENT_TARGETS"] = arn.into();
    let environment = json!({ "Environment": { "Variables": variables } });
    configuration(Method::PUT, function, &environment.to_string()).await;
    for process in processes(function) {
        process.kill();
    }
}
