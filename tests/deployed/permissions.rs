//! The permissions of each function, tested with its own credentials: every operation that Steward uses, and some that it
//! does not, on all resources of the stack. A policy that allows one action or one resource more or less fails the test.

use std::{collections::BTreeSet, rc::Rc};

use aws_credential_types::Credentials;
use futures_util::{StreamExt, stream};
use reqwest::Method;
use serde_json::{Value, json};

use super::{
    aws_requests::{call, signed},
    functions::processes,
    stack::{Stack, client_queue},
    target::deployment_target,
};

const TABLE_OPERATIONS: [&str; 7] =
    ["GetItem", "BatchGetItem", "PutItem", "UpdateItem", "DeleteItem", "Query", "Scan"];

/// PartiQL statements by their IAM action.
const STATEMENTS: [(&str, &str); 4] = [
    ("PartiQLInsert", "INSERT INTO \"TABLE\" VALUE {}"),
    ("PartiQLUpdate", "UPDATE \"TABLE\" SET a=1 WHERE b=1"),
    ("PartiQLDelete", "DELETE FROM \"TABLE\" WHERE b=1"),
    ("PartiQLSelect", "SELECT a FROM \"TABLE\" WHERE b=1"),
];

const QUEUE_OPERATIONS: [&str; 6] = [
    "SendMessage",
    "ReceiveMessage",
    "DeleteMessage",
    "ChangeMessageVisibility",
    "GetQueueAttributes",
    "PurgeQueue",
];

const QUEUES: [&str; 13] = [
    "submissions",
    "scheduler",
    "commands",
    "commands-dead-letters",
    "events",
    "events-dead-letters",
    "sweeps",
    "rejected",
    "agent-payment-requests",
    "agent-shipping-requests",
    "agent-payment-dead-letters",
    "submissions-dead-letters",
    "orders",
];

/// The digest of an empty body.
const EMPTY_SHA256: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

const FUNCTIONS: [&str; 2] = ["submission-http", "console"];

/// The permissions of every function.
const PERMISSIONS: [(&str, &[&str]); 12] = [
    (
        "submission",
        &[
            "PutItem tasks",
            "PartiQLInsert tasks",
            "PutItem documents",
            "GetItem tasks",
            "BatchGetItem tasks",
            "GetItem documents",
            "BatchGetItem documents",
            "GetItem workflows",
            "Query workflows",
            "SendMessage scheduler",
            "SendMessage submissions",
            "SendMessage rejected",
            "SendMessage client",
            "PutEvents",
            "ReceiveMessage submissions",
            "DeleteMessage submissions",
            "ChangeMessageVisibility submissions",
            "GetQueueAttributes submissions",
            "ReceiveMessage events",
            "DeleteMessage events",
            "ChangeMessageVisibility events",
            "GetQueueAttributes events",
            "GetObject uploads",
            "GetObject tasks",
            "PutObject tasks",
            "ListBucket",
            "ListBucket tasks",
        ],
    ),
    (
        "submission-http",
        &[
            "GetItem tasks",
            "BatchGetItem tasks",
            "PutItem tasks",
            "GetItem documents",
            "BatchGetItem documents",
            "PutItem documents",
            "GetItem workflows",
            "Query workflows",
            "SendMessage scheduler",
            "SendMessage client",
            "PutObject uploads",
            "GetObject uploads",
            "PutObject tasks",
            "ListBucket",
            "ListBucket tasks",
        ],
    ),
    (
        "callback",
        &[
            "GetItem tasks",
            "GetItem workflows",
            "SendMessage scheduler",
            "GetSecretValue callback keys",
        ],
    ),
    (
        "scheduler",
        &[
            "GetSecretValue callback keys",
            "GetItem tasks",
            "BatchGetItem tasks",
            "PutItem tasks",
            "PartiQLUpdate tasks",
            "GetItem documents",
            "BatchGetItem documents",
            "PutItem documents",
            "PartiQLInsert documents",
            "Query documents",
            "UpdateItem documents",
            "GetItem workflows",
            "SendMessage agent-payment-requests",
            "SendMessage agent-shipping-requests",
            "SendMessage submissions",
            "SendMessage events",
            "SendMessage scheduler",
            "SendMessage client",
            "PutEvents",
            "ReceiveMessage scheduler",
            "DeleteMessage scheduler",
            "ChangeMessageVisibility scheduler",
            "GetQueueAttributes scheduler",
            "ReceiveMessage commands",
            "DeleteMessage commands",
            "ChangeMessageVisibility commands",
            "GetQueueAttributes commands",
        ],
    ),
    (
        "agent-payment",
        &[
            "GetItem documents",
            "BatchGetItem documents",
            "PutItem documents",
            "PartiQLInsert documents",
            "SendMessage scheduler",
            "PutEvents",
            "GetSecretValue own",
            "ReceiveMessage agent-payment-requests",
            "DeleteMessage agent-payment-requests",
            "ChangeMessageVisibility agent-payment-requests",
            "GetQueueAttributes agent-payment-requests",
            "GetObject tasks",
            "PutObject tasks",
            "AbortMultipartUpload tasks",
            "ListBucket",
            "ListBucket tasks",
        ],
    ),
    (
        "supervisor",
        &[
            "Query due",
            "Query ended",
            "GetItem tasks",
            "BatchGetItem tasks",
            "PutItem tasks",
            "PartiQLUpdate tasks",
            "GetItem documents",
            "PutItem documents",
            "PartiQLInsert documents",
            "Query documents",
            "UpdateItem documents",
            "GetItem workflows",
            "SendMessage scheduler",
            "SendMessage client",
            "PutEvents",
            "GetQueueAttributes agent-payment-dead-letters",
            "GetQueueAttributes submissions-dead-letters",
            "GetQueueAttributes commands-dead-letters",
            "GetQueueAttributes events-dead-letters",
            "SendMessage sweeps",
            "ReceiveMessage sweeps",
            "DeleteMessage sweeps",
            "ChangeMessageVisibility sweeps",
            "GetQueueAttributes submissions",
            "GetQueueAttributes scheduler",
            "GetQueueAttributes commands",
            "GetQueueAttributes events",
            "GetQueueAttributes agent-payment-requests",
            "GetQueueAttributes agent-shipping-requests",
            "GetQueueAttributes sweeps",
            "ListBucket tasks",
            "DeleteObject tasks",
        ],
    ),
    (
        "console",
        &[
            "Query due",
            "Query ended",
            "GetItem tasks",
            "BatchGetItem tasks",
            "GetItem documents",
            "BatchGetItem documents",
            "Query documents",
            "PutItem documents",
            "GetItem workflows",
            "Query workflows",
            "Scan workflows",
            "SendMessage submissions",
            "SendMessage scheduler",
            "SendMessage commands",
            "SendMessage events",
            "SendMessage agent-payment-requests",
            "SendMessage agent-shipping-requests",
            "PutEvents",
            "GetQueueAttributes submissions",
            "GetQueueAttributes scheduler",
            "GetQueueAttributes commands",
            "GetQueueAttributes commands-dead-letters",
            "ReceiveMessage commands-dead-letters",
            "DeleteMessage commands-dead-letters",
            "ChangeMessageVisibility commands-dead-letters",
            "GetQueueAttributes events",
            "GetQueueAttributes events-dead-letters",
            "ReceiveMessage events-dead-letters",
            "DeleteMessage events-dead-letters",
            "ChangeMessageVisibility events-dead-letters",
            "GetQueueAttributes rejected",
            "GetQueueAttributes agent-payment-requests",
            "GetQueueAttributes agent-shipping-requests",
            "GetQueueAttributes agent-payment-dead-letters",
            "GetQueueAttributes submissions-dead-letters",
            "ReceiveMessage agent-payment-dead-letters",
            "ReceiveMessage submissions-dead-letters",
            "DeleteMessage agent-payment-dead-letters",
            "ChangeMessageVisibility agent-payment-dead-letters",
            "DeleteMessage submissions-dead-letters",
            "ChangeMessageVisibility submissions-dead-letters",
            "ReceiveMessage rejected",
            "DeleteMessage rejected",
            "ChangeMessageVisibility rejected",
        ],
    ),
    // The emulator does not check that the keys are those of registrations: `tests/template/registrar.rs` does.
    (
        "registrar",
        &[
            "GetItem documents",
            "PutItem documents",
            "GetQueueAttributes agent-payment-requests",
            "GetQueueAttributes agent-shipping-requests",
        ],
    ),
    // The agents of `aws_kinds.rs`.
    ("agent-invoker", &aws_agent("InvokeFunction submission-http")),
    ("agent-sender", &aws_agent("SendMessage orders")),
    ("agent-publisher", &aws_agent("PutEvents orders")),
    ("agent-reader", &aws_agent("GetQueueAttributes orders")),
];

/// The permissions of an agent that calls AWS, with its own one.
const fn aws_agent(own: &str) -> [&str; 7] {
    [
        "GetItem documents",
        "BatchGetItem documents",
        "PutItem documents",
        "PartiQLInsert documents",
        "SendMessage scheduler",
        "PutEvents",
        own,
    ]
}

pub(super) async fn each_function_has_exactly_its_permissions(stack: Rc<Stack>) {
    let probes = probes(&stack);
    let mut found = Vec::new();
    for (function, may) in PERMISSIONS {
        found.extend(differences(&stack, function, may, &probes).await);
    }
    assert_eq!(found, [] as [String; 0]);
}

/// For an agent that has run and is not in [`PERMISSIONS`]. In `may`, `own requests` is its queue.
pub(super) async fn agent_has_exactly_its_permissions(stack: &Stack, agent: &str, may: &[&str]) {
    let function = format!("agent-{agent}");
    let mut probes = probes(stack);
    let requests = stack.name_of(&format!("{function}-requests"));
    probes.extend(queue_probes("own requests", &requests));
    let found = differences(stack, &function, may, &probes).await;
    assert_eq!(found, [] as [String; 0]);
}

/// The operations that a function may do and should not, and those that it should do and may not.
async fn differences(stack: &Stack, function: &str, may: &[&str], probes: &[Probe]) -> Vec<String> {
    let process = processes(&stack.name_of(function)).pop();
    let credentials = process.unwrap_or_else(|| panic!("{function} never ran")).credentials();
    let allowed_operations = not_denied(&credentials, probes).await;
    let may: BTreeSet<_> = may.iter().map(|permission| (*permission).to_owned()).collect();
    let excess = allowed_operations
        .difference(&may)
        .map(|permission| format!("{function} may {permission}"));
    let missing = may
        .difference(&allowed_operations)
        .map(|permission| format!("{function} may not {permission}"));
    excess.chain(missing).collect()
}

/// An operation on a resource, with an incomplete request that has no effect. AWS checks the permission before it validates
/// the request.
#[derive(Clone)]
struct Probe {
    permission: String,
    service: &'static str,
    operation: Operation,
}

#[derive(Clone)]
enum Operation {
    /// With AWS's JSON protocol.
    Json { target: String, body: Value },
    /// An invocation of this function that only checks the permission.
    DryRun(String),
    /// A request to S3: the method, the path and the query. Its precondition never holds, and its object does not exist.
    Object { method: Method, path: String },
}

fn probes(stack: &Stack) -> Vec<Probe> {
    let mut probes = Vec::new();
    for (table, variable) in [
        ("tasks", "STEWARD_TASKS_TABLE"),
        ("documents", "STEWARD_DOCUMENTS_TABLE"),
        ("workflows", "STEWARD_WORKFLOWS_TABLE"),
    ] {
        let name = stack.variable(variable);
        let bodies = TABLE_OPERATIONS.map(|operation| match operation {
            "BatchGetItem" => (operation, json!({ "RequestItems": { name: {} } })),
            _ => (operation, json!({ "TableName": name })),
        });
        probes.extend(bodies.map(|(operation, body)| {
            let target = format!("DynamoDB_20120810.{operation}");
            probe(&format!("{operation} {table}"), "dynamodb", &target, body)
        }));
        probes.extend(STATEMENTS.map(|(action, statement)| {
            let statement = json!({ "Statement": statement.replace("TABLE", name) });
            let (permission, target) =
                (format!("{action} {table}"), "DynamoDB_20120810.BatchExecuteStatement");
            probe(&permission, "dynamodb", target, json!({ "Statements": [statement] }))
        }));
    }
    for index in ["due", "ended"] {
        let table = stack.variable("STEWARD_TASKS_TABLE");
        let query = json!({ "TableName": table, "IndexName": index });
        let (permission, target) = (format!("Query {index}"), "DynamoDB_20120810.Query");
        probes.push(probe(&permission, "dynamodb", target, query));
    }
    let names = QUEUES.map(|queue| (queue, stack.name_of(queue)));
    for (queue, name) in names.into_iter().chain([("client", client_queue())]) {
        probes.extend(queue_probes(queue, &name));
    }
    probes.extend(object_probes(stack.variable("STEWARD_PAYLOADS_BUCKET")));
    let callback_keys = stack.variable("STEWARD_CALLBACK_SECRET_ARN");
    for (secret, arn) in [
        ("own", stack.secret.as_str()),
        ("foreign", &stack.foreign_secret),
        ("callback keys", callback_keys),
    ] {
        let (permission, target) =
            (format!("GetSecretValue {secret}"), "secretsmanager.GetSecretValue");
        probes.push(probe(&permission, "secretsmanager", target, json!({ "SecretId": arn })));
    }
    let bus = stack.variable("STEWARD_EVENT_BUS");
    for (permission, bus) in [("PutEvents", bus), ("PutEvents orders", &stack.name_of("orders"))] {
        let entry =
            json!({ "EventBusName": bus, "Source": "e2e", "DetailType": "Probe", "Detail": "{}" });
        let body = json!({ "Entries": [entry] });
        probes.push(probe(permission, "events", "AWSEvents.PutEvents", body));
    }
    probes.extend(FUNCTIONS.map(|function| {
        let operation = Operation::DryRun(stack.name_of(function));
        Probe { permission: format!("InvokeFunction {function}"), service: "lambda", operation }
    }));
    probes
}

/// Requests to the queue with this full name. `queue` names it in the permissions.
fn queue_probes(queue: &str, name: &str) -> [Probe; QUEUE_OPERATIONS.len()] {
    let url = deployment_target().queue_url(name);
    QUEUE_OPERATIONS.map(|operation| {
        let (permission, target) =
            (format!("{operation} {queue}"), format!("AmazonSQS.{operation}"));
        probe(&permission, "sqs", &target, json!({ "QueueUrl": url }))
    })
}

/// Requests for objects that do not exist.
fn object_probes(bucket: &str) -> Vec<Probe> {
    let operations = [
        ("GetObject", Method::GET, ""),
        ("PutObject", Method::PUT, ""),
        ("DeleteObject", Method::DELETE, ""),
        ("AbortMultipartUpload", Method::DELETE, "?uploadId=none"),
    ];
    let objects = ["uploads", "tasks"].into_iter().flat_map(|place| {
        operations.clone().map(|(operation, method, query)| {
            let path = format!("{bucket}/{place}/probe{query}");
            (format!("{operation} {place}"), method, path)
        })
    });
    let lists = [("ListBucket", "none"), ("ListBucket tasks", "tasks/")].map(|(name, prefix)| {
        let prefix = prefix.replace('/', "%2F");
        let path = format!("{bucket}?list-type=2&prefix={prefix}");
        (name.to_owned(), Method::GET, path)
    });
    let probes = objects.chain(lists).map(|(permission, method, path)| Probe {
        permission,
        service: "s3",
        operation: Operation::Object { method, path },
    });
    probes.collect()
}

fn probe(permission: &str, service: &'static str, target: &str, body: Value) -> Probe {
    let operation = Operation::Json { target: target.to_owned(), body };
    Probe { permission: permission.to_owned(), service, operation }
}

/// The permissions of the probes that are not denied.
async fn not_denied(credentials: &Credentials, probes: &[Probe]) -> BTreeSet<String> {
    let attempt = |probe: &'_ Probe| {
        let probe = probe.clone();
        async move {
            let response = response_to(credentials, &probe).await;
            (!response.contains("AccessDenied")).then_some(probe.permission)
        }
    };
    stream::iter(probes)
        .map(attempt)
        .buffer_unordered(8)
        .filter_map(std::future::ready)
        .collect()
        .await
}

/// The response to a probe, as text.
async fn response_to(credentials: &Credentials, probe: &Probe) -> String {
    match &probe.operation {
        Operation::Json { target, body } => {
            call(credentials, probe.service, target, body).await.1.to_string()
        }
        Operation::Object { method, path } => {
            let url = format!("{}/{path}", deployment_target().endpoint(probe.service));
            let never = [("if-match", "\"none\""), ("x-amz-content-sha256", EMPTY_SHA256)];
            let request = (method.clone(), url.as_str());
            let response = signed(credentials, probe.service, request, &never, "").await;
            response.text().await.unwrap()
        }
        Operation::DryRun(function) => {
            let path = format!("2015-03-31/functions/{function}/invocations");
            let url = format!("{}/{path}", deployment_target().endpoint(probe.service));
            let dry_run = [("x-amz-invocation-type", "DryRun")];
            let request = (Method::POST, url.as_str());
            let response = signed(credentials, probe.service, request, &dry_run, "{}").await;
            response.text().await.unwrap()
        }
    }
}
