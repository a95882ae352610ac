//! The remote service of an agent of any [kind](AgentKind).

use std::time::Duration;

use aws_config::SdkConfig;
use jiff::Timestamp;
use reqwest::header::HeaderMap;
use steward_aws::payloads::S3Payloads;
use steward_core::{
    breaker::KeyHash,
    model::{aws_action::AwsAction, messages::StepRequest},
};
use steward_runtime::trace;

use crate::{
    arn::{InvalidTarget, Targets},
    attempt::{CallFault, RemoteService},
    aws_action,
    aws_api::AwsApi,
    config::{AgentConfig, AgentKind},
    events,
    http::{self, BaseUrl, Headers, HttpService, HttpSettings, HttpSettingsError, InvalidBaseUrl},
    lambda,
    response::CallResponse,
    signed::AwsSigner,
    sqs,
    transport::{begin_call, end_call},
};

/// The remote service of an agent of any kind.
#[derive(Debug, Clone)]
pub enum AnyService {
    /// An HTTP service.
    Http(HttpService),
    /// An AWS service.
    Aws(AwsService),
}

/// A remote service that is an AWS service, or several.
#[derive(Debug, Clone)]
pub struct AwsService {
    kind: AwsKind,
    api: AwsApi,
}

#[derive(Debug, Clone)]
enum AwsKind {
    Lambda,
    Sqs,
    Events,
    /// Any operation that a request names, by default in this region.
    Actions(Option<String>),
}

/// Why an agent cannot start with its configuration.
#[derive(Debug, thiserror::Error)]
pub enum ServiceConfigError {
    /// The kind calls a base URL, and there is none.
    #[error("STEWARD_AGENT_BASE_URL: an agent of kind `http` needs a base URL")]
    NoBaseUrl,
    /// The HTTP service cannot be used.
    #[error(transparent)]
    Http(#[from] HttpSettingsError),
    /// The client of an AWS service could not be created.
    #[error("cannot create the HTTP client")]
    Client(#[from] reqwest::Error),
    /// The targets are invalid.
    #[error("STEWARD_AGENT_TARGETS: {0}")]
    Targets(#[from] InvalidTarget),
    /// The kind has no use for headers.
    #[error("{0}: an agent of this kind sends no configured headers")]
    Headers(&'static str),
    /// The endpoint of the environment is invalid.
    #[error("AWS_ENDPOINT_URL: {0}")]
    Endpoint(#[from] InvalidBaseUrl),
    /// The kind signs its requests, and the function has no credentials.
    #[error("an agent of this kind needs AWS credentials")]
    NoCredentials,
}

/// What a call means for its step if the service answers with this status, headers and body, such as in a test of a
/// workflow. The same code reads the answers of real services. The answer to an action of AWS is read as an agent of kind `aws`
/// reads it. Times in the answer are compared with `now`.
///
/// # Errors
/// The fault that the answer stands for. A status that HTTP does not define, below 100 or above 999, is a fault too.
pub async fn interpret_answer(
    status: u16,
    headers: HeaderMap,
    body: Vec<u8>,
    request: &StepRequest,
    now: Timestamp,
) -> Result<CallResponse, CallFault> {
    if AwsAction::of_request_path(&request.path).is_some() {
        return aws_action::interpret_answer(status, headers, body, request, now);
    }
    http::interpret_answer(status, headers, body, request, now).await
}

impl AnyService {
    /// The service that a configuration describes. `sdk` has the credentials and, for an emulator, the endpoint. Only an HTTP
    /// service uses `payloads`.
    ///
    /// # Errors
    /// The configuration is incomplete or contradictory.
    pub fn configured(
        config: &AgentConfig,
        sdk: &SdkConfig,
        payloads: Option<S3Payloads>,
    ) -> Result<Self, ServiceConfigError> {
        let signer = sdk.credentials_provider().map(AwsSigner::new);
        if config.kind == AgentKind::Http {
            let base_url = config.base_url.clone().ok_or(ServiceConfigError::NoBaseUrl)?;
            let settings = HttpSettings {
                base_url,
                headers: config.headers.clone(),
                call_timeout: config.call_timeout.0,
                signer,
                auth: config.auth.0.clone(),
                key_format: config.idempotency_key.clone(),
                payloads,
            };
            return Ok(Self::Http(HttpService::new(settings)?));
        }
        if config.headers != Headers::default() {
            return Err(ServiceConfigError::Headers("STEWARD_AGENT_HEADERS"));
        }
        if !config.secret_arn.is_empty() {
            return Err(ServiceConfigError::Headers("STEWARD_AGENT_SECRET_ARN"));
        }
        let endpoint = match &config.base_url {
            Some(base_url) => Some(base_url.clone()),
            None => sdk.endpoint_url().map(str::parse::<BaseUrl>).transpose()?,
        };
        let signer = signer.ok_or(ServiceConfigError::NoCredentials)?;
        let arns = &config.targets.0;
        let timeout = config.call_timeout.0;
        let region = sdk.region().map(ToString::to_string);
        let service = AwsService::new(config.kind, arns, timeout, signer, endpoint, region)?;
        Ok(Self::Aws(service))
    }

    /// The HTTP service, if the agent is of that kind. Only it has headers.
    #[must_use]
    pub fn http(&self) -> Option<&HttpService> {
        match self {
            Self::Http(service) => Some(service),
            Self::Aws(_) => None,
        }
    }
}

impl AwsService {
    /// The service of this kind whose resources have these ARNs. `endpoint` replaces the endpoint of AWS. Only an agent of
    /// kind `aws` uses `region`; what it may call, its role says.
    ///
    /// # Errors
    /// The kind is no AWS service, an ARN is of another kind, or the TLS back end failed to initialise.
    pub fn new(
        kind: AgentKind,
        arns: &[String],
        call_timeout: Duration,
        signer: AwsSigner,
        endpoint: Option<BaseUrl>,
        region: Option<String>,
    ) -> Result<Self, ServiceConfigError> {
        let (kind, targets) = match kind {
            AgentKind::Http => return Err(ServiceConfigError::NoBaseUrl),
            AgentKind::Lambda => (AwsKind::Lambda, Some(lambda::FUNCTIONS)),
            AgentKind::Sqs => (AwsKind::Sqs, Some(sqs::QUEUES)),
            AgentKind::Events => (AwsKind::Events, Some(events::BUSES)),
            AgentKind::Aws => (AwsKind::Actions(region), None),
        };
        let targets = targets.map(|of| Targets::parse(arns, of)).transpose()?.unwrap_or_default();
        Ok(Self { kind, api: AwsApi::new(call_timeout, signer, endpoint, targets)? })
    }
}

impl RemoteService for AnyService {
    async fn call(
        &self,
        request: &StepRequest,
        traceparent: Option<&str>,
    ) -> Result<CallResponse, CallFault> {
        match self {
            Self::Http(service) => service.call(request, traceparent).await,
            Self::Aws(service) => service.call(request, traceparent).await,
        }
    }

    fn address(&self) -> KeyHash {
        match self {
            Self::Http(service) => service.address(),
            Self::Aws(service) => service.address(),
        }
    }
}

impl RemoteService for AwsService {
    async fn call(
        &self,
        request: &StepRequest,
        traceparent: Option<&str>,
    ) -> Result<CallResponse, CallFault> {
        let mut span = begin_call(request, traceparent);
        let own = span.traceparent();
        let traceparent = trace::of_call(request, own.as_deref().or(traceparent));
        let result = match &self.kind {
            AwsKind::Lambda => lambda::call(&self.api, request, &traceparent, &mut span).await,
            AwsKind::Sqs => sqs::call(&self.api, request, &traceparent, &mut span).await,
            AwsKind::Events => events::call(&self.api, request, &mut span).await,
            AwsKind::Actions(region) => {
                aws_action::call(&self.api, region.as_deref(), request, &mut span).await
            }
        };
        end_call(span, &result);
        result
    }
}
