//! Signs requests with AWS Signature Version 4, so that an agent can call AWS services, API Gateway and function URLs.
//! The signature proves the identity of the agent's role. IAM decides what the role may do.
//!
//! The service and the region of a signature follow from the host of the URL:
//!
//! | host | service | region |
//! | --- | --- | --- |
//! | `SERVICE.REGION.amazonaws.com`, also `.amazonaws.com.cn` and `.api.aws` | SERVICE | REGION |
//! | `ID.SERVICE.REGION.amazonaws.com`, such as `ID.execute-api.…` and `BUCKET.s3.…` | SERVICE | REGION |
//! | `ID.REGION.SERVICE.amazonaws.com`, such as `ID.REGION.es.…` | SERVICE | REGION |
//! | `SERVICE.amazonaws.com` | SERVICE | `us-east-1` |
//! | `ID.lambda-url.REGION.on.aws` | `lambda` | REGION |
//!
//! Some services have another name in signatures than in their host. `SIGNING_NAMES` lists the known ones.

use std::{fmt, str::FromStr, time::SystemTime};

use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider};
use aws_sigv4::{
    http_request::{
        PayloadChecksumKind, PercentEncodingMode, SignableBody, SignableRequest, SigningSettings,
        UriPathNormalizationMode, sign,
    },
    sign::v4,
};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use reqwest::header::{AUTHORIZATION, HeaderName, HeaderValue};
use steward_core::model::{
    call_auth::{AwsScope, CallAuth},
    names::{AwsName, InvalidName},
    payload::Sha256Hex,
};
use steward_runtime::ports::error_chain;
use tracing::dispatcher::{Dispatch, with_default};

/// Names in hosts, and the services' names in signatures, where they differ.
const SIGNING_NAMES: [(&str, &str); 8] = [
    ("appsync-api", "appsync"),
    ("bedrock-agent-runtime", "bedrock"),
    ("bedrock-runtime", "bedrock"),
    ("ddb", "dynamodb"),
    ("email", "ses"),
    ("lambda-url", "lambda"),
    ("s3-accesspoint", "s3"),
    ("sync-states", "states"),
];

/// The region of services whose host has none.
const GLOBAL_REGION: &str = "us-east-1";

/// The service and the region that a signature is valid for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SigningScope {
    /// The service's name in signatures.
    pub service: String,
    /// The region.
    pub region: String,
}

/// The service or the region of a signature is neither given nor derived. The message does not contain the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the {0} of the AWS signature does not follow from the host of the agent's base URL: give it in `auth`, as in \
     `{{ aws: {{ service: execute-api, region: eu-west-1 }} }}`, or in the agent's parameter Auth, as in \
     `aws:execute-api/eu-west-1`"
)]
pub struct UnknownScope(&'static str);

impl SigningScope {
    /// The scope of signatures for calls to `host`: what is given, and the rest derived from the host.
    ///
    /// # Errors
    /// The service or the region is neither given nor derived.
    pub fn of(given: &AwsScope, host: &str) -> Result<Self, UnknownScope> {
        let (mut service, mut region) = scope_of_host(host).unzip();
        if let Some(given) = &given.service {
            service = Some(given.to_string());
        }
        if let Some(given) = &given.region {
            region = Some(given.to_string());
        }
        Ok(Self {
            service: service.ok_or(UnknownScope("service"))?,
            region: region.ok_or(UnknownScope("region"))?,
        })
    }
}

/// The service and the region in the name of an AWS host: the table of this file.
fn scope_of_host(host: &str) -> Option<(String, String)> {
    let suffixes = [".amazonaws.com", ".amazonaws.com.cn", ".api.aws", ".on.aws"];
    let (name, suffix) =
        suffixes.iter().find_map(|suffix| Some((host.strip_suffix(suffix)?, *suffix)))?;
    let labels: Vec<_> = name.split('.').filter(|label| *label != "dualstack").collect();
    let (service, region) = match labels.as_slice() {
        [.., service, region] if is_region(region) => (*service, *region),
        [.., region, service] if is_region(region) => (*service, *region),
        [service] if suffix == ".amazonaws.com" => (*service, GLOBAL_REGION),
        _ => return None,
    };
    let service = service.strip_suffix("-fips").unwrap_or(service);
    let renamed = SIGNING_NAMES.iter().find(|(name, _)| *name == service);
    let service = renamed.map_or(service, |(_, signing_name)| signing_name);
    Some((service.to_owned(), region.to_owned()))
}

/// Whether a label of a host looks like a region: `eu-west-1`, `us-gov-east-1`.
fn is_region(label: &str) -> bool {
    let mut words = label.split('-');
    let is_word = |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase());
    let number = words.next_back().unwrap_or_default();
    let words: Vec<_> = words.collect();
    let has_number = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
    has_number
        && (2..=3).contains(&words.len())
        && words.iter().all(|word| is_word(word))
        && words.first().is_some_and(|word| (2..=4).contains(&word.len()))
}

/// The agent's setting `STEWARD_AGENT_AUTH`: `none`, `aws`, `aws:SERVICE` or `aws:SERVICE/REGION`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentAuth(pub Option<CallAuth>);

/// The text is not an [`AgentAuth`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is neither `none` nor `aws`, `aws:SERVICE` or `aws:SERVICE/REGION`")]
pub struct InvalidAuth(String);

impl FromStr for AgentAuth {
    type Err = InvalidAuth;

    fn from_str(text: &str) -> Result<Self, InvalidAuth> {
        let invalid = |_: InvalidName| InvalidAuth(text.to_owned());
        let name = |text: &str| text.parse::<AwsName>().map(Some).map_err(invalid);
        let scope = match text {
            "" | "none" => return Ok(Self(None)),
            "aws" => AwsScope::default(),
            _ => {
                let scope = text.strip_prefix("aws:");
                let scope = scope.ok_or_else(|| InvalidAuth(text.to_owned()))?;
                match scope.split_once('/') {
                    Some((service, region)) => {
                        AwsScope { service: name(service)?, region: name(region)? }
                    }
                    None => AwsScope { service: name(scope)?, region: None },
                }
            }
        };
        Ok(Self(Some(CallAuth::Aws(scope))))
    }
}

/// Signs requests with the credentials of a provider. Clones share the provider.
#[derive(Clone)]
pub struct AwsSigner {
    credentials: SharedCredentialsProvider,
}

impl fmt::Debug for AwsSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AwsSigner").finish_non_exhaustive()
    }
}

/// A request cannot be signed. The message contains neither the request nor the credentials.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SigningError {
    /// The provider has no credentials.
    #[error("the request cannot be signed: the agent's AWS credentials cannot be read")]
    NoCredentials,
    /// The request contains what a signature cannot cover.
    #[error("the request cannot be signed")]
    NotSignable,
}

impl AwsSigner {
    /// A signer with these credentials.
    #[must_use]
    pub fn new(credentials: SharedCredentialsProvider) -> Self {
        Self { credentials }
    }

    /// Adds the headers of a signature to `request`. It covers the method, the URL, the body and the
    /// headers that AWS wants signed. It replaces a configured `authorization`. `digest` is that of a body that is a stream.
    ///
    /// # Errors
    /// There are no credentials, or the request cannot be signed. Then it must not be sent.
    pub async fn sign(
        &self,
        request: &mut reqwest::Request,
        digest: Option<&Sha256Hex>,
        scope: &SigningScope,
        now: SystemTime,
    ) -> Result<(), SigningError> {
        let not_signable = |_| SigningError::NotSignable;
        let credentials = self.credentials.provide_credentials().await.map_err(|error| {
            // The reply to the scheduler does not say why. An expired role and a broken metadata service need different repairs.
            tracing::warn!(error = error_chain(&error), "AWS credentials cannot be read");
            SigningError::NoCredentials
        })?;
        let identity = credentials.into();
        let parameters = v4::SigningParams::builder()
            .identity(&identity)
            .region(&scope.region)
            .name(&scope.service)
            .time(now)
            .settings(settings(&scope.service))
            .build()
            .map_err(|_| SigningError::NotSignable)?
            .into();
        if is_s3(&scope.service) {
            let path = s3_path(request.url().path());
            request.url_mut().set_path(&path);
        }
        request.headers_mut().remove(AUTHORIZATION);
        let headers = request.headers().iter().filter(|(name, _)| is_signed(name));
        let headers =
            headers.filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)));
        let body = match digest {
            Some(digest) => SignableBody::Precomputed(digest.to_string()),
            None => {
                let body = request.body().and_then(reqwest::Body::as_bytes);
                SignableBody::Bytes(body.unwrap_or_default())
            }
        };
        let (method, url) = (request.method().as_str(), request.url().as_str());
        let signable = SignableRequest::new(method, url, headers, body);
        let signable = signable.map_err(not_signable)?;
        // The library logs the request and its headers, which may be secret.
        let signature = with_default(&Dispatch::none(), || sign(signable, &parameters));
        let (instructions, _) = signature.map_err(not_signable)?.into_parts();
        for (name, value) in instructions.headers() {
            let name = HeaderName::from_str(name).map_err(|_| SigningError::NotSignable)?;
            let mut value = HeaderValue::from_str(value).map_err(|_| SigningError::NotSignable)?;
            value.set_sensitive(true);
            request.headers_mut().insert(name, value);
        }
        Ok(())
    }
}

/// Whether the signature covers a header. AWS wants `host`, which the library adds, and all of its own headers. Others
/// are left out, because proxies may change them.
fn is_signed(name: &HeaderName) -> bool {
    let name = name.as_str();
    name == "content-type" || name == "idempotency-key" || name.starts_with("x-amz-")
}

/// How a service wants its requests signed. S3 differs from all others: it wants the path as it is, and the digest of the
/// body as a header.
fn settings(service: &str) -> SigningSettings {
    let mut settings = SigningSettings::default();
    if is_s3(service) {
        settings.percent_encoding_mode = PercentEncodingMode::Single;
        settings.uri_path_normalization_mode = UriPathNormalizationMode::Disabled;
        settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256;
    }
    settings
}

/// Whether a service signs as S3 does.
fn is_s3(service: &str) -> bool {
    matches!(service, "s3" | "s3-object-lambda" | "s3-outposts" | "s3express")
}

/// The path of a request to S3, with everything encoded except unreserved characters. S3 computes the signature of a path
/// that is encoded like this, and HTTP clients leave characters such as `=` as they are.
fn s3_path(path: &str) -> String {
    let segments = path.split('/').map(|segment| {
        let decoded = percent_decode_str(segment).collect::<Vec<_>>();
        percent_encode(&decoded, ENCODED_BY_S3).to_string()
    });
    segments.collect::<Vec<_>>().join("/")
}

const ENCODED_BY_S3: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_for_s3_encodes_all_but_unreserved_characters_once() {
        assert_eq!(s3_path("/data/dt=2026/a+b(1).json"), "/data/dt%3D2026/a%2Bb%281%29.json");
        assert_eq!(s3_path("/a%20b/%C3%A9/%2Fc~"), "/a%20b/%C3%A9/%2Fc~");
        assert_eq!(s3_path("/"), "/");
    }

    fn scope(host: &str) -> Option<String> {
        let scope = SigningScope::of(&AwsScope::default(), host).ok()?;
        Some(format!("{}/{}", scope.service, scope.region))
    }

    #[test]
    fn service_and_region_follow_from_the_host() {
        for (host, derived) in [
            ("sqs.eu-west-1.amazonaws.com", "sqs/eu-west-1"),
            ("dynamodb.cn-north-1.amazonaws.com.cn", "dynamodb/cn-north-1"),
            ("lambda.us-gov-east-1.amazonaws.com", "lambda/us-gov-east-1"),
            ("kms-fips.us-east-2.amazonaws.com", "kms/us-east-2"),
            ("lambda.eu-west-1.api.aws", "lambda/eu-west-1"),
            ("abc123.execute-api.eu-west-1.amazonaws.com", "execute-api/eu-west-1"),
            ("abc123.lambda-url.eu-central-1.on.aws", "lambda/eu-central-1"),
            ("bucket.s3.eu-west-1.amazonaws.com", "s3/eu-west-1"),
            ("my.bucket.s3.dualstack.eu-west-1.amazonaws.com", "s3/eu-west-1"),
            ("search-x.eu-west-1.es.amazonaws.com", "es/eu-west-1"),
            ("email.eu-west-1.amazonaws.com", "ses/eu-west-1"),
            ("streams.dynamodb.eu-west-1.amazonaws.com", "dynamodb/eu-west-1"),
            ("iam.amazonaws.com", "iam/us-east-1"),
        ] {
            assert_eq!(scope(host).as_deref(), Some(derived), "{host}");
        }
        for host in ["pay.example.com", "127.0.0.1", "", "amazonaws.com", "a.b.amazonaws.com"] {
            assert_eq!(scope(host), None, "{host}");
        }
        // A host that only looks like one of AWS gets no signature that AWS would accept for its services.
        assert_eq!(scope("sqs.eu-west-1.amazonaws.com.evil.example"), None);
    }

    #[test]
    fn given_names_take_precedence_and_the_error_names_what_is_missing() {
        let given = |service: Option<&str>, region: Option<&str>| AwsScope {
            service: service.map(|name| name.parse().unwrap()),
            region: region.map(|name| name.parse().unwrap()),
        };
        let scope = SigningScope::of(&given(Some("es"), None), "x.eu-west-1.amazonaws.com");
        assert_eq!(scope.unwrap().service, "es");
        let own_domain = SigningScope::of(&given(Some("execute-api"), Some("eu-west-1")), "a.b");
        assert_eq!(own_domain.unwrap().region, "eu-west-1");
        let missing = |given| SigningScope::of(&given, "a.b").unwrap_err().to_string();
        assert!(missing(given(None, Some("eu-west-1"))).starts_with("the service of"));
        assert!(missing(given(Some("s3"), None)).starts_with("the region of"));
    }

    #[test]
    fn the_setting_of_an_agent_is_none_or_aws_with_or_without_a_scope() {
        let parse = |text: &str| text.parse::<AgentAuth>().map(|auth| auth.0);
        let aws = |service: Option<&str>, region: Option<&str>| {
            let name = |name: Option<&str>| name.map(|name| name.parse().unwrap());
            Ok(Some(CallAuth::Aws(AwsScope { service: name(service), region: name(region) })))
        };
        assert_eq!((parse(""), parse("none")), (Ok(None), Ok(None)));
        assert_eq!(parse("aws"), aws(None, None));
        assert_eq!(parse("aws:s3"), aws(Some("s3"), None));
        assert_eq!(parse("aws:s3/eu-west-1"), aws(Some("s3"), Some("eu-west-1")));
        for wrong in ["AWS", "aws:", "aws:s3/", "aws:S3", "basic", "aws/s3"] {
            let error = parse(wrong).unwrap_err().to_string();
            assert!(error.starts_with(&format!("`{wrong}` is neither")), "{error}");
        }
    }

    #[test]
    fn debug_output_has_no_credentials() {
        let credentials =
            aws_credential_types::Credentials::new("AKID", "s3cret", None, None, "test");
        let signer = AwsSigner::new(SharedCredentialsProvider::new(credentials));
        assert_eq!(format!("{signer:?}"), "AwsSigner { .. }");
    }
}
