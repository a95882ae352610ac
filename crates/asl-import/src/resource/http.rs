//! Calls over HTTP: HTTP tasks, API Gateway, and the APIs of AWS services.

use serde_json::{Value, json};
use steward_core::model::aws_services::{AwsProtocol, AwsService};

use super::{
    call::{AgentKind, Call, ResultShape, call, own_agent},
    integration::Completion,
    jobs::job,
    parameters::{field, other_parameters, text_of},
    small_letters,
};
use crate::{
    names::resource,
    symbol::{Symbol, literal},
};

const METHODS: [&str; 5] = ["GET", "POST", "PUT", "PATCH", "DELETE"];

/// Sets method, query and output of a call over HTTP.
fn http_parts(call: &mut Call, input: &Symbol) {
    let method = text_of(field(input, "Method"));
    match METHODS.into_iter().find(|known| method.as_deref() == Some(known)) {
        Some(method) => call.method = method,
        None => {
            call.decisions.push("the method must be GET, POST, PUT, PATCH or DELETE".to_owned())
        }
    }
    if let Some(Symbol::Object { fields, .. }) = field(input, "QueryParameters") {
        let mut parts = vec![call.path.clone()];
        for (n, (key, value)) in fields.into_iter().enumerate() {
            let sign = if n == 0 { '?' } else { '&' };
            parts.push(Symbol::Scalar(format!("{sign}{key}=").into()));
            parts.push(value);
        }
        call.path = path_of(&parts);
    }
    call.output = Some(json!({
        "ResponseBody": "${ response.body }",
        "StatusCode": "${ response.status }",
    }));
    call.result = ResultShape::Http;
}

/// The path of a request from texts and values, which Steward percent-encodes. It is kept as a template.
fn path_of(parts: &[Symbol]) -> Symbol {
    let mut text = String::new();
    for part in parts {
        if let Symbol::Scalar(Value::String(part)) = part {
            text.push_str(part);
            continue;
        }
        match part.cel() {
            Ok(cel) => text.push_str(&format!("${{ {} }}", cel.text)),
            Err(why) => return Symbol::Unknown(why),
        }
    }
    Symbol::Scalar(Value::String(text))
}

pub(super) fn invoke(text: &str, input: &Symbol) -> Call {
    let Some(endpoint) = text_of(field(input, "ApiEndpoint")) else {
        return own_agent(text, "http", input, "a call whose endpoint is chosen at run time");
    };
    let (origin, path) = split_url(&endpoint);
    let host = origin.split("//").last().unwrap_or(&origin).to_owned();
    let mut details = Vec::new();
    if field(input, "Authentication").is_some() || field(input, "InvocationConfig").is_some() {
        details.push("the secret of the connection as an agent secret".to_owned());
    }
    if let Some(headers) = field(input, "Headers") {
        details.push(format!("Headers {}", headers.template(&mut |_| String::new())));
    }
    let kind = AgentKind::Http(origin.clone(), details.join(", "));
    let is_known = !origin.contains("${");
    let mut call = call(&host, kind, literal(&path), field(input, "RequestBody"));
    http_parts(&mut call, input);
    if !is_known {
        call.decisions
            .push("the endpoint is known only when the state machine is deployed".to_owned());
    }
    let sent = [
        "ApiEndpoint",
        "Method",
        "Authentication",
        "InvocationConfig",
        "Headers",
        "QueryParameters",
        "RequestBody",
    ];
    other_parameters(input, &sent, &mut call.decisions);
    call
}

fn split_url(url: &str) -> (String, String) {
    let start = url.find("://").map_or(0, |at| at + 3);
    let end = url.get(start..).and_then(|rest| rest.find('/')).map(|at| start + at);
    match end.and_then(|end| url.split_at_checked(end)) {
        Some((origin, path)) => (origin.to_owned(), path.to_owned()),
        None => (url.to_owned(), "/".to_owned()),
    }
}

pub(super) fn api_gateway(text: &str, input: &Symbol, region: &str) -> Call {
    let (Some(host), Some(path)) = (
        text_of(field(input, "ApiEndpoint")),
        field(input, "Path").or(Some(Symbol::Scalar("/".into()))),
    ) else {
        return own_agent(text, "api", input, "a call whose endpoint is chosen at run time");
    };
    let stage =
        text_of(field(input, "Stage")).map_or_else(String::new, |stage| format!("/{stage}"));
    let host = host.replace("${AWS::Region}", region);
    let is_signed = text_of(field(input, "AuthType")).is_some_and(|auth| auth == "IAM_ROLE");
    let details = if is_signed { "Auth aws, Actions execute-api:Invoke" } else { "" };
    let (name, _) = resource(host.split('.').next().unwrap_or(&host));
    let kind = AgentKind::Http(format!("https://{host}{stage}"), details.to_owned());
    let mut call = call(&name, kind, path, field(input, "RequestBody"));
    http_parts(&mut call, input);
    if let Some(headers) = field(input, "Headers") {
        let headers = headers.template(&mut |_| String::new());
        call.notes.push(format!("configure the agent with Headers {headers}"));
    }
    let sent = [
        "ApiEndpoint",
        "Path",
        "Stage",
        "Method",
        "AuthType",
        "Headers",
        "QueryParameters",
        "RequestBody",
    ];
    other_parameters(input, &sent, &mut call.decisions);
    call
}

/// APIs of AWS whose operations need only a name, and whose members have the same names in Step Functions: the service there, and
/// in IAM.
const APIS_BY_NAME: [(&str, &str); 24] = [
    ("athena", "athena"),
    ("cloudwatch", "cloudwatch"),
    ("cognitoidentityprovider", "cognito-idp"),
    ("comprehend", "comprehend"),
    ("costexplorer", "ce"),
    ("dynamodb", "dynamodb"),
    ("eventbridge", "events"),
    ("firehose", "firehose"),
    ("glue", "glue"),
    ("kinesis", "kinesis"),
    ("kms", "kms"),
    ("organizations", "organizations"),
    ("redshiftdata", "redshift-data"),
    ("rekognition", "rekognition"),
    ("sagemaker", "sagemaker"),
    ("secretsmanager", "secretsmanager"),
    ("servicediscovery", "servicediscovery"),
    ("sns", "sns"),
    ("sqs", "sqs"),
    ("ssm", "ssm"),
    ("sts", "sts"),
    ("textract", "textract"),
    ("transcribe", "transcribe"),
    ("translate", "translate"),
];

pub(super) fn aws_api(
    text: &str,
    service: &str,
    action: &str,
    completion: Completion,
    input: &Symbol,
) -> Call {
    let is_small = small_letters::SERVICES.contains(&service);
    let api = APIS_BY_NAME.iter().find(|(known, _)| *known == service);
    let api = api.copied().or(is_small.then_some((service, service)));
    let is_known = completion == Completion::Response || job(text).is_some();
    let path = if is_small {
        small_letters::path(service, &capitalized(action))
    } else {
        Some("/".to_owned())
    };
    let (Some((_, service)), Some(path), true) = (api, path, is_known) else {
        return own_agent(
            text,
            &format!("{service}-{action}"),
            input,
            &format!("`{service}:{action}`"),
        );
    };
    let action = capitalized(action);
    let kind = AgentKind::Aws(format!("{service}:{action}"));
    let mut call = call("aws", kind, Symbol::Scalar(path.into()), Some(input.clone()));
    if is_small {
        call.body = Some(small_letters::parameters(input, &mut call.decisions));
        call.result = small_letters::result(&action);
    }
    if action == "RunTask" {
        let one = |count: Symbol| count == Symbol::Scalar(1.into());
        if completion == Completion::Job && field(input, "Count").is_some_and(|count| !one(count)) {
            call.decisions.push("only the first of several tasks is awaited".to_owned());
        }
        let note = "the step fails if any container has another exit code than 0 or none, also one that is not essential";
        call.notes.extend((completion == Completion::Job).then(|| note.to_owned()));
    }
    if matches!(AwsService::named(service).protocol, AwsProtocol::Query { .. }) {
        let note = "the response is XML: in the output of the step, all values are texts";
        call.notes.push(note.to_owned());
    }
    if !is_read(&action) {
        call.notes.push(
            "AWS APIs ignore `Idempotency-Key`: if a repeated call does harm, give `${ request.idempotency_key }` as its client \
             token, or set `idempotent: false`"
                .to_owned(),
        );
    }
    call
}

fn capitalized(action: &str) -> String {
    let mut chars = action.chars();
    chars.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(chars).collect()
}

/// Whether an operation of an AWS API only reads, by its name.
pub(crate) fn is_read(action: &str) -> bool {
    let action = action.to_ascii_lowercase();
    ["get", "list", "describe", "query", "scan", "batchget", "detect", "search", "filter"]
        .iter()
        .any(|verb| action.starts_with(verb))
}
