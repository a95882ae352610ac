//! `steward console`: serves the operator console on this machine. By default it reads a deployment with the
//! caller's own AWS permissions. With `--url` it forwards requests to the deployed console function and signs
//! them, which a browser cannot do.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use aws_config::SdkConfig;
use aws_sigv4::{
    http_request::{SignableBody, SignableRequest, SigningInstructions, SigningSettings, sign},
    sign::v4,
};
use axum::{
    Router,
    body::{Body, Bytes},
    extract::{DefaultBodyLimit, State},
    http::{HeaderMap, HeaderName, Method, StatusCode, Uri, header},
    response::{IntoResponse, Response},
};
use clap::{Args, builder::NonEmptyStringValueParser};
use jiff::Timestamp;
use reqwest::{Client, Url, redirect::Policy};
use steward_console::{
    Console,
    caller::{ConsoleCaller, FORWARDED},
    config::Links,
};
use tokio::net::TcpListener;

use crate::{
    client::{DeploymentArgs, sdk_config},
    operate::operator_name,
    stop_signal::stop_signal,
};

/// The request headers that are forwarded to the function.
const FORWARDED_REQUEST_HEADERS: [&str; 5] =
    ["accept", "content-type", "hx-request", "origin", "sec-fetch-site"];

/// The response headers that are forwarded to the browser.
const FORWARDED_RESPONSE_HEADERS: [HeaderName; 6] = [
    header::CACHE_CONTROL,
    header::CONTENT_SECURITY_POLICY,
    header::CONTENT_TYPE,
    header::LOCATION,
    header::REFERRER_POLICY,
    header::X_CONTENT_TYPE_OPTIONS,
];

/// The maximum size of a form in bytes. A form may contain a task's whole input.
const FORM_BYTES_MAX: usize = 1024 * 1024;

/// Options of `steward console`.
#[derive(Debug, Args)]
pub(crate) struct ConsoleArgs {
    /// The URL of the deployed console. Requests are signed with the AWS credentials of the environment.
    #[arg(long, value_name = "URL")]
    url: Option<Url>,
    /// The address to serve. Anyone who can connect acts with your permissions: keep it on the loopback interface.
    #[arg(long, default_value = "127.0.0.1:8008")]
    listen: SocketAddr,
    /// Trust the user headers of an identity-aware proxy, and forward them to the function: x-forwarded-email, -user
    /// and -groups. Use it only if nothing but the proxy can connect to this address.
    #[arg(long, requires = "url")]
    behind_proxy: bool,
    /// Show no buttons, and refuse requests that would change anything. With --url the function decides this.
    #[arg(long, conflicts_with = "url")]
    read_only: bool,
    /// The name of the operator, for the audit record.
    #[arg(long, default_value_t = operator_name(), value_parser = NonEmptyStringValueParser::new())]
    by: String,
    /// The link to a task's logs, with {task_id} as placeholder.
    #[arg(long, env = "STEWARD_CONSOLE_LOGS_URL", value_name = "URL")]
    logs_url: Option<String>,
    /// The link to a trace, with {trace_id} or {xray_trace_id} as placeholder.
    #[arg(long, env = "STEWARD_CONSOLE_TRACE_URL", value_name = "URL")]
    trace_url: Option<String>,
    #[command(flatten)]
    deployment: DeploymentArgs,
}

/// Serves until Ctrl-C.
pub(crate) async fn run(args: ConsoleArgs) -> Result<()> {
    let listener = TcpListener::bind(args.listen).await;
    let listener = listener.with_context(|| format!("listen on {}", args.listen))?;
    outln!("console http://{}{}", listener.local_addr()?, steward_console::ROOT);
    let routes = match args.url {
        Some(url) => forwarding(ConsoleFunction::new(url, args.behind_proxy).await?),
        None => {
            let ports = args.deployment.ports("console").await?.into();
            let links = Links { logs: args.logs_url, trace: args.trace_url, dashboard: None };
            let caller = ConsoleCaller { name: args.by, may_act: !args.read_only };
            steward_console::routes_for(caller, Console { ports, links: links.into() })
        }
    };
    tokio::select! {
        served = axum::serve(listener, routes) => served.context("serve the console"),
        stopped = stop_signal() => stopped,
    }
}

/// The deployed console function, and the credentials for its requests.
#[derive(Clone)]
struct ConsoleFunction {
    url: Url,
    client: Client,
    sdk: SdkConfig,
    is_behind_proxy: bool,
}

fn forwarding(function: ConsoleFunction) -> Router {
    let is_behind_proxy = function.is_behind_proxy;
    let routes = Router::new().fallback(forward).with_state(function);
    let routes = routes.layer(DefaultBodyLimit::max(FORM_BYTES_MAX));
    if is_behind_proxy { routes } else { steward_console::reject_foreign_hosts(routes) }
}

async fn forward(
    State(function): State<ConsoleFunction>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    match function.forward(method, &uri, &headers, body).await {
        Ok(response) => response,
        Err(error) => (StatusCode::BAD_GATEWAY, format!("{error:#}")).into_response(),
    }
}

impl ConsoleFunction {
    async fn new(url: Url, is_behind_proxy: bool) -> Result<Self> {
        let client = Client::builder().redirect(Policy::none()).build()?;
        Ok(Self { url, client, sdk: sdk_config().await, is_behind_proxy })
    }

    async fn forward(
        &self,
        method: Method,
        uri: &Uri,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<Response> {
        let mut url = self.url.clone();
        url.set_path(&format!("{}{}", url.path().trim_end_matches('/'), uri.path()));
        url.set_query(uri.query());
        let header = |name| Some((name, headers.get(name)?.to_str().ok()?));
        let user_headers = if self.is_behind_proxy { &FORWARDED[..] } else { &[] };
        let names = FORWARDED_REQUEST_HEADERS.into_iter().chain(user_headers.iter().copied());
        let forwarded: Vec<_> = names.filter_map(header).collect();
        let signature = self.sign(&method, &url, &forwarded, &body).await?;
        let mut request = self.client.request(method, url).body(body);
        for (name, value) in forwarded.into_iter().chain(signature.headers()) {
            request = request.header(name, value);
        }
        let upstream = request.send().await.context("call the console function")?;
        let mut response = Response::builder().status(upstream.status());
        for name in FORWARDED_RESPONSE_HEADERS {
            if let Some(value) = upstream.headers().get(&name) {
                response = response.header(name, value);
            }
        }
        Ok(response.body(Body::from(
            upstream.bytes().await.context("read the response of the console function")?,
        ))?)
    }

    /// Signs a request with AWS Signature Version 4.
    async fn sign(
        &self,
        method: &Method,
        url: &Url,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<SigningInstructions> {
        let provider = self.sdk.credentials_provider().context("no AWS credentials configured")?;
        use aws_credential_types::provider::ProvideCredentials as _;
        let identity = provider.provide_credentials().await.context("load AWS credentials")?.into();
        let region = self.sdk.region().map_or("us-east-1", AsRef::as_ref);
        let parameters = v4::SigningParams::builder()
            .identity(&identity)
            .region(region_of(url).unwrap_or(region))
            .name("lambda")
            .time(Timestamp::now().into())
            .settings(SigningSettings::default())
            .build()?
            .into();
        let body = SignableBody::Bytes(body);
        let request =
            SignableRequest::new(method.as_str(), url.as_str(), headers.iter().copied(), body)?;
        Ok(sign(request, &parameters)?.into_parts().0)
    }
}

/// The region in a function URL: `https://ID.lambda-url.REGION.on.aws`.
fn region_of(url: &Url) -> Option<&str> {
    let (_, rest) = url.host_str()?.split_once(".lambda-url.")?;
    rest.split('.').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Cli {
        #[command(flatten)]
        _args: ConsoleArgs,
    }

    /// The function decides whether the caller may act, so `--read-only` would have no effect.
    #[test]
    fn read_only_cannot_be_combined_with_url() {
        let parsed =
            |args: &[&str]| <Cli as clap::Parser>::try_parse_from([&["console"], args].concat());
        parsed(&["--read-only"]).unwrap();
        parsed(&["--url", "https://x.example"]).unwrap();
        assert!(parsed(&["--url", "https://x.example", "--read-only"]).is_err());
    }

    #[test]
    fn the_region_is_read_from_a_function_url() {
        let region = |url: &str| region_of(&url.parse().unwrap()).map(str::to_owned);
        assert_eq!(
            region("https://abc.lambda-url.eu-west-1.on.aws/").as_deref(),
            Some("eu-west-1")
        );
        assert_eq!(region("http://127.0.0.1:4566/_aws/lambda-url/abc/"), None);
    }
}
