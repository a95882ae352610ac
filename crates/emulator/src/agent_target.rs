//! What an agent of the host calls.

use std::{fmt, str::FromStr};

use anyhow::{Context, Result, ensure};
use steward_agent::{
    config::AgentKind,
    http::{BaseUrl, HttpService, HttpSettings},
    kind::{AnyService, AwsService as AwsAgentService},
    signed::AwsSigner,
};
use steward_aws::payloads::S3Payloads;
use steward_core::{limits, model::key_format::KeyFormat};

use crate::{
    embedded::{ACCOUNT, AwsService, EmbeddedAws, REGION},
    resources,
};

/// The longest name of a function, with its qualifier.
const FUNCTION_NAME_MAX: usize = 64 + 1 + 128;

/// The remote service of an agent, as text: `http://…`, `http://…#HEADER/FORM`, `sqs:QUEUE,QUEUE`, `events:BUS`,
/// `lambda:FUNCTION@URL`, `aws` or `aws@URL`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentTarget {
    /// An HTTP service.
    Http {
        /// The base URL.
        base_url: BaseUrl,
        /// The header and the form of the idempotency key, as the parameter `IdempotencyKey` of the agent's stack has them.
        key_format: Option<String>,
    },
    /// Queues, by name. The host creates them.
    Queues(Vec<String>),
    /// Event buses, by name.
    Buses(Vec<String>),
    /// Lambda functions, by name, and the endpoint that serves Lambda's `Invoke` API. The host runs no functions of users.
    Functions {
        /// The names, each with or without a qualifier, such as `charge:live`.
        names: Vec<String>,
        /// The URL before `/2015-03-31/functions/…`.
        endpoint: BaseUrl,
    },
    /// The APIs of AWS: those that the host serves, or those at another endpoint.
    Apis(Option<BaseUrl>),
}

impl FromStr for AgentTarget {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        if text == "aws" {
            return Ok(Self::Apis(None));
        }
        if let Some(url) = text.strip_prefix("aws@") {
            return Ok(Self::Apis(Some(url.parse()?)));
        }
        let names = |names: &str| -> Vec<_> { names.split(',').map(str::to_owned).collect() };
        let target = match text.split_once(':') {
            Some(("sqs", queues)) => Self::Queues(names(queues)),
            Some(("events", buses)) => Self::Buses(names(buses)),
            Some(("lambda", functions)) => return Self::functions(functions),
            Some(_) | None => {
                let (url, key_format) =
                    text.split_once('#').map_or((text, None), |(url, key)| (url, Some(key)));
                key_format.unwrap_or_default().parse::<KeyFormat>()?;
                let key_format = key_format.map(str::to_owned);
                return Ok(Self::Http { base_url: url.parse()?, key_format });
            }
        };
        Ok(target)
    }
}

impl fmt::Display for AgentTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http { base_url, key_format: None } => base_url.fmt(f),
            Self::Http { base_url, key_format: Some(key) } => write!(f, "{base_url}#{key}"),
            Self::Queues(names) => write!(f, "sqs:{}", names.join(",")),
            Self::Buses(names) => write!(f, "events:{}", names.join(",")),
            Self::Functions { names, endpoint } => {
                write!(f, "lambda:{}@{endpoint}", names.join(","))
            }
            Self::Apis(None) => f.write_str("aws"),
            Self::Apis(Some(endpoint)) => write!(f, "aws@{endpoint}"),
        }
    }
}

impl AgentTarget {
    /// Parses `FUNCTION,FUNCTION@URL`.
    fn functions(text: &str) -> Result<Self> {
        let (names, url) = text.split_once('@').with_context(|| {
            format!(
                "`lambda:{text}` has no endpoint: this process runs no functions. Append the URL of an emulator that \
                 does, such as `lambda:{text}@http://127.0.0.1:3001`"
            )
        })?;
        let names: Vec<_> = names.split(',').map(str::to_owned).collect();
        for (position, name) in names.iter().enumerate() {
            let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_:$".contains(&byte);
            let is_valid = !name.is_empty() && name.len() <= FUNCTION_NAME_MAX;
            ensure!(
                is_valid && name.bytes().all(is_allowed),
                "`{name}` is not the name of a Lambda function: expected letters, digits, `-` and `_`, and a version \
                 or alias after `:`, such as `charge` or `charge:live`"
            );
            let is_first = names.iter().position(|other| other == name) == Some(position);
            ensure!(is_first, "the function `{name}` is named twice");
        }
        let endpoint = url.parse().with_context(|| format!("the endpoint of `lambda:{text}`"))?;
        Ok(Self::Functions { names, endpoint })
    }

    /// The kind of agent that calls this, as in the agent's stack on AWS.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Http { .. } => "http",
            Self::Queues(_) => "sqs",
            Self::Buses(_) => "events",
            Self::Functions { .. } => "lambda",
            Self::Apis(_) => "aws",
        }
    }

    /// Creates the queues that the agent sends to.
    pub(crate) async fn create_queues(&self, aws: &EmbeddedAws) -> Result<()> {
        if let Self::Queues(names) = self {
            for name in names {
                resources::create_queue(&aws.sdk_config(), name, None).await?;
            }
        }
        Ok(())
    }

    /// The service. `own_url` is the URL at which the host serves AWS, if it listens.
    pub(crate) fn service(
        &self,
        aws: &EmbeddedAws,
        own_url: Option<&str>,
        payloads: Option<S3Payloads>,
    ) -> Result<AnyService> {
        // The credentials of the embedded AWS: a request that is signed with them is of no use elsewhere.
        let signer = aws.sdk_config().credentials_provider().map(AwsSigner::new);
        let external = |service| aws.external_url(service).or(own_url);
        let no_endpoint = "an agent for an AWS service needs a host that listens";
        let (kind, arn_prefix, names, endpoint): (_, _, &[String], _) = match self {
            Self::Http { base_url, key_format } => {
                let key_format = key_format.as_deref().unwrap_or_default().parse()?;
                let settings = HttpSettings {
                    signer,
                    payloads,
                    key_format,
                    ..HttpSettings::new(base_url.clone())
                };
                return Ok(AnyService::Http(HttpService::new(settings)?));
            }
            Self::Queues(names) => {
                let endpoint = external(AwsService::Sqs).context(no_endpoint)?.parse()?;
                (AgentKind::Sqs, ("sqs", ""), names, endpoint)
            }
            Self::Buses(names) => {
                let endpoint = external(AwsService::EventBridge).context(no_endpoint)?.parse()?;
                (AgentKind::Events, ("events", "event-bus/"), names, endpoint)
            }
            Self::Functions { names, endpoint } => {
                (AgentKind::Lambda, ("lambda", "function:"), names, endpoint.clone())
            }
            Self::Apis(endpoint) => {
                let own = || own_url.context(no_endpoint)?.parse().context("the host's own URL");
                (AgentKind::Aws, ("", ""), &[], endpoint.clone().map_or_else(own, Ok)?)
            }
        };
        let (service, resource) = arn_prefix;
        let arn = |name: &String| format!("arn:aws:{service}:{REGION}:{ACCOUNT}:{resource}{name}");
        let arns: Vec<_> = names.iter().map(arn).collect();
        let signer = signer.context("no credentials")?;
        let timeout = limits::CALL_WITHIN_MAX;
        let region = Some(REGION.to_owned());
        let service = AwsAgentService::new(kind, &arns, timeout, signer, Some(endpoint), region)?;
        Ok(AnyService::Aws(service))
    }
}

#[cfg(test)]
mod tests {
    use axum::{
        Router,
        extract::Path,
        http::{HeaderMap, StatusCode},
        routing::post,
    };
    use serde_json::json;
    use steward_agent::attempt::{CallFault, RemoteService};
    use steward_core::model::messages::StepRequest;

    use super::*;

    #[test]
    fn a_target_is_a_url_or_the_names_of_queues_buses_or_functions() {
        for text in [
            "http://127.0.0.1:8080",
            "http://127.0.0.1:8080#Cko-Idempotency-Key/uuid",
            "sqs:orders,mails",
            "events:steward",
            "lambda:charge@http://127.0.0.1:3001",
            "lambda:charge:live,refund@http://127.0.0.1:9000/finance",
            "aws",
            "aws@http://127.0.0.1:4566",
        ] {
            assert_eq!(text.parse::<AgentTarget>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn an_invalid_target_is_refused_with_what_is_expected() {
        for (text, problem) in [
            ("orders", "not an http or https URL"),
            ("http://127.0.0.1:8080#Key/long", "`long` is not a form"),
            ("lambda:charge", "`lambda:charge` has no endpoint"),
            ("lambda:@http://127.0.0.1:3001", "`` is not the name of a Lambda function"),
            ("lambda:a,,b@http://127.0.0.1:3001", "`` is not the name of a Lambda function"),
            ("lambda:a b@http://127.0.0.1:3001", "`a b` is not the name of a Lambda function"),
            ("lambda:a,a@http://127.0.0.1:3001", "the function `a` is named twice"),
            ("lambda:a@127.0.0.1", "the endpoint of `lambda:a@127.0.0.1`: not an http or https"),
        ] {
            let error = format!("{:#}", text.parse::<AgentTarget>().unwrap_err());
            assert!(error.starts_with(problem), "{text}: {error}");
        }
    }

    /// A request of a step to the function `charge`.
    fn request() -> StepRequest {
        let request = json!({
            "task_id": "order-1", "step": "charge", "action": "do", "attempt": 1,
            "agent": "payment", "method": "POST", "path": "/charge", "body": { "amount": 20 },
            "incarnation": 7, "call_within_ms": 10_000,
            "idempotency_key": "order-1/charge/do", "complete_by": "2100-01-01T00:00:00Z",
        });
        serde_json::from_value(request).unwrap()
    }

    /// The outcome of a call of `charge` at an endpoint with this handler.
    async fn outcome(routes: Router) -> Result<serde_json::Value, CallFault> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(async move { axum::serve(listener, routes).await });
        let aws = EmbeddedAws::builder().build().unwrap();
        let target: AgentTarget = format!("lambda:charge@http://{address}").parse().unwrap();
        let service = target.service(&aws, None, None).unwrap();
        let outcome = service.call(&request(), None).await.and_then(|response| response.body);
        server.abort();
        outcome
    }

    const INVOKE: &str = "/2015-03-31/functions/{function}/invocations";

    #[tokio::test]
    async fn an_agent_for_functions_invokes_them_at_its_endpoint_with_a_signature() {
        let invoke = async |Path(function): Path<String>, headers: HeaderMap, body: String| {
            let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
            let signature = header("authorization").unwrap_or_default();
            assert!(signature.starts_with("AWS4-HMAC-SHA256 Credential=embedded/"), "{signature}");
            assert!(signature.contains("/us-east-1/lambda/aws4_request"), "{signature}");
            assert_eq!(header("x-amz-invocation-type"), Some("RequestResponse"));
            json!({ "function": function, "event": body }).to_string()
        };
        let output = outcome(Router::new().route(INVOKE, post(invoke))).await.unwrap();
        let function = format!("arn:aws:lambda:{REGION}:{ACCOUNT}:function:charge");
        assert_eq!(output, json!({ "function": function, "event": r#"{"amount":20}"# }));
    }

    #[tokio::test]
    async fn a_throttled_invocation_is_retried_and_did_not_run() {
        let throttled = async || {
            let name = [("x-amzn-errortype", "TooManyRequestsException")];
            (StatusCode::TOO_MANY_REQUESTS, name)
        };
        let outcome = outcome(Router::new().route(INVOKE, post(throttled))).await;
        let Err(CallFault::Transient { reason, may_have_run: false, .. }) = outcome else {
            panic!("{outcome:?}");
        };
        assert_eq!(reason, "HTTP 429 Too Many Requests: TooManyRequestsException");
    }
}
