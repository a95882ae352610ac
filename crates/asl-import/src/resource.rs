//! What a `Task` does: the kinds of resources, and the request of a step for each.

mod call;
mod http;
mod integration;
mod jobs;
mod parameters;
mod small_letters;

use serde_json::Value;

pub(crate) use call::{AgentKind, Call, ResultShape};
pub(crate) use http::is_read;
pub(crate) use integration::{Completion, completion};
pub(crate) use jobs::{Job, job};

use call::{call, own_agent};
use integration::integration;
use parameters::{field, other_parameters, text_of};

use crate::{
    names::{plain, resource},
    symbol::{Symbol, Untranslatable, literal},
};

/// The work of a state.
#[derive(Debug, Clone)]
pub(crate) enum Work {
    Call(Box<Call>),
    /// A child task: the name of its workflow, and its input.
    Child {
        workflow: String,
        input: Symbol,
        result: ResultShape,
        decisions: Vec<String>,
        notes: Vec<String>,
    },
}

/// The work of a state with this resource. `input` is its effective input, and `parameters` tells whether the state has
/// parameters at all.
///
/// # Errors
/// The resource is of no known kind.
pub(crate) fn work(text: &str, input: &Symbol, region: &str) -> Result<Work, Untranslatable> {
    if let Some((service, action, completion)) = integration(text) {
        return Ok(integrated(text, service, action, completion, input, region));
    }
    let is_activity = text.contains(":activity:")
        || text.starts_with("${") && text.to_ascii_lowercase().contains("activity");
    if is_activity {
        return Ok(Work::Call(Box::new(own_agent(text, &resource(text).0, input, "an activity"))));
    }
    if text.contains(":function:") || text.starts_with("${") || text.contains(":lambda:") {
        return Ok(Work::Call(Box::new(lambda(text, Some(input.clone()), ResultShape::Output))));
    }
    Err(Untranslatable::new(text, "a resource of this kind is not known"))
}

fn integrated(
    text: &str,
    service: &str,
    action: &str,
    completion: Completion,
    input: &Symbol,
    region: &str,
) -> Work {
    let call = match (service, action) {
        ("lambda", "invoke") => lambda_invoke(input),
        ("sqs", "sendMessage") => sqs_message(input),
        ("events", "putEvents") => put_events(text, input),
        ("states" | "sfn", "startExecution") => return start_execution(input, completion),
        ("http", "invoke") => http::invoke(text, input),
        ("apigateway", "invoke") => http::api_gateway(text, input, region),
        _ => http::aws_api(text, service, action, completion, input),
    };
    Work::Call(Box::new(call))
}

fn lambda(function: &str, body: Option<Symbol>, result: ResultShape) -> Call {
    let function = function.trim_end_matches(":$LATEST");
    let (of_resource, is_substitution) = resource(function);
    // An ARN, `ACCOUNT:function:charge` or the name only, each with or without a version or an alias: `charge:live`.
    let target = match function.split_once(":function:") {
        Some((_, target)) => target,
        None if is_substitution || function.starts_with("arn:") => &of_resource,
        None => function,
    };
    let name = target.split_once(':').map_or(target, |(name, _)| name);
    let path = if is_substitution { "/".to_owned() } else { format!("/{target}") };
    let kind = AgentKind::Lambda(function.to_owned());
    let mut call = call(name, kind, literal(&path), body);
    call.result = result;
    call
}

fn lambda_invoke(input: &Symbol) -> Call {
    let body = field(input, "Payload").unwrap_or_else(|| Symbol::object([]));
    let result = ResultShape::Within("Payload");
    let mut call = match text_of(field(input, "FunctionName")) {
        Some(function) => {
            let qualifier = text_of(field(input, "Qualifier")).filter(|text| text != "$LATEST");
            let function = match qualifier {
                Some(qualifier) => format!("{function}:{qualifier}"),
                None => function,
            };
            lambda(&function, Some(body), result)
        }
        None => {
            let name = field(input, "FunctionName");
            let path = name
                .and_then(|name| Symbol::concatenation(&[Symbol::Scalar("/".into()), name]).ok());
            let path = path.unwrap_or_else(|| Symbol::Scalar("/".into()));
            let kind = AgentKind::Lambda("the functions that the path may name".to_owned());
            let mut call = call("functions", kind, path, Some(body));
            call.result = result;
            call.decisions.push(
                "the function is chosen at run time: list all of them as targets of the agent; the path must be the name \
                 of one, not an ARN"
                    .to_owned(),
            );
            call
        }
    };
    if let Some(kind) =
        text_of(field(input, "InvocationType")).filter(|kind| kind != "RequestResponse")
    {
        call.decisions.push(format!(
            "`InvocationType: {kind}` does not wait for the function; the agent waits for its result"
        ));
    }
    let sent = ["FunctionName", "Payload", "Qualifier", "InvocationType", "LogType"];
    other_parameters(input, &sent, &mut call.decisions);
    call
}

fn sqs_message(input: &Symbol) -> Call {
    let url = text_of(field(input, "QueueUrl"));
    let (name, is_substitution) =
        url.as_deref().map_or_else(|| ("queue".to_owned(), true), resource);
    let path = if is_substitution { "/".to_owned() } else { format!("/{name}") };
    let body = field(input, "MessageBody");
    let kind = AgentKind::Sqs(url.clone().unwrap_or_default());
    let mut call = call(&name, kind, literal(&path), body);
    if url.is_none() {
        call.decisions
            .push("the queue is chosen at run time; an agent has a list of queues".to_owned());
    }
    call.result = ResultShape::SqsMessage;
    let mut sent = vec!["QueueUrl", "MessageBody"];
    if field(input, "MessageGroupId").is_some() {
        sent.extend(["MessageGroupId", "MessageDeduplicationId"]);
        call.notes.push(
            "the messages of one task are one group of a FIFO queue, and the idempotency key is the deduplication id"
                .to_owned(),
        );
    }
    other_parameters(input, &sent, &mut call.decisions);
    call
}

fn put_events(text: &str, input: &Symbol) -> Call {
    let entry = match field(input, "Entries") {
        Some(Symbol::List(entries)) if entries.len() == 1 => entries.into_iter().next(),
        _ => None,
    };
    let Some(entry) = entry else {
        return own_agent(text, "events", input, "the publication of a list of events");
    };
    let bus = text_of(field(&entry, "EventBusName")).unwrap_or_else(|| "default".to_owned());
    let (name, is_substitution) = resource(&bus);
    let path = if is_substitution { "/".to_owned() } else { format!("/{name}") };
    let mut body = Vec::new();
    for (from, to) in [("Source", "source"), ("DetailType", "detail-type"), ("Detail", "detail")] {
        if let Some(value) = field(&entry, from) {
            body.push((to.to_owned(), value));
        }
    }
    let agent = if name == "default" { "default-bus".to_owned() } else { name };
    let body = Symbol::object(body);
    let mut call = call(&agent, AgentKind::Events(bus), literal(&path), Some(body));
    if matches!(
        field(&entry, "Detail"),
        Some(Symbol::Scalar(Value::String(_)) | Symbol::Deployed(_))
    ) {
        call.decisions.push("`Detail` is JSON in a text; write it as a mapping".to_owned());
    }
    call.result = ResultShape::Events;
    let sent = ["EventBusName", "Source", "DetailType", "Detail"];
    other_parameters(&entry, &sent, &mut call.decisions);
    call
}

fn start_execution(input: &Symbol, completion: Completion) -> Work {
    let (mut decisions, mut notes) = (Vec::new(), Vec::new());
    let arn = text_of(field(input, "StateMachineArn"));
    let workflow = match &arn {
        Some(arn) => plain(&resource(arn).0, "-"),
        None => {
            decisions.push(
                "the state machine is chosen at run time; a step names one workflow".to_owned(),
            );
            "child".to_owned()
        }
    };
    notes.push(format!("import the other state machine as the workflow `{workflow}`"));
    match completion {
        Completion::Job => {}
        Completion::Response => decisions.push(
            "the state does not wait for the other execution; a step waits for its child task"
                .to_owned(),
        ),
        Completion::Token => decisions.push(
            "the state waits for a task token; a step waits for the output of its child task"
                .to_owned(),
        ),
    }
    let mut child_input = field(input, "Input").unwrap_or_else(|| Symbol::object([]));
    if let Symbol::Object { fields, .. } = &mut child_input {
        // Links the executions in the console; a child task knows its parent anyway.
        fields.shift_remove("AWS_STEP_FUNCTIONS_STARTED_BY_EXECUTION_ID");
    }
    if field(input, "Name").is_some() {
        notes.push("the id of a child task is `TASK:STEP`; `Name` is not used".to_owned());
    }
    other_parameters(input, &["StateMachineArn", "Input", "Name"], &mut decisions);
    Work::Child {
        workflow,
        input: child_input,
        result: ResultShape::Within("Output"),
        decisions,
        notes,
    }
}
