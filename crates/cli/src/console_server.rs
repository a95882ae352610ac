//! `steward console`: the operator's console on this machine. Either of a deployment, with the caller's own
//! rights; or, with `--url`, the deployed function's, whose requests are signed here, as no browser can.

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
    access::{Caller, FORWARDED},
    config::Links,
};
use tokio::net::TcpListener;

use crate::client::{Deployment, sdk_config};

/// What of a browser's request goes on to the function.
const PASSED_ON: [&str; 5] = ["accept", "content-type", "hx-request", "origin", "sec-fetch-site"];

/// What of the function's answer goes back to the browser.
const PASSED_BACK: [HeaderName; 6] = [
    header::CACHE_CONTROL,
    header::CONTENT_SECURITY_POLICY,
    header::CONTENT_TYPE,
    header::LOCATION,
    header::REFERRER_POLICY,
    header::X_CONTENT_TYPE_OPTIONS,
];

/// Bytes of a form, at most: a task's whole input may be in it.
const FORM_BYTES_MAX: usize = 1024 * 1024;

/// Which console, and where to serve it.
#[derive(Debug, Args)]
pub(crate) struct ConsoleArgs {
    /// The deployed console's URL: its requests are signed with the AWS credentials of the environment.
    #[arg(long, value_name = "URL")]
    url: Option<Url>,
    /// Where to serve it. Whoever reaches it has your rights: keep it on the loopback interface.
    #[arg(long, default_value = "127.0.0.1:8008")]
    listen: SocketAddr,
    /// An identity-aware proxy is the only one who reaches this: with --url, its word on who is calling goes on to
    /// the function (x-forwarded-email, -user and -groups).
    #[arg(long, requires = "url")]
    behind_proxy: bool,
    /// Show no buttons, and refuse what would act. With --url that is the function's to decide.
    #[arg(long, conflicts_with = "url")]
    read_only: bool,
    /// Who acts, for the record.
    #[arg(long, env = "USER", default_value = "unknown", value_parser = NonEmptyStringValueParser::new())]
    by: String,
    /// Where a task's logs are, with {task_id} in it.
    #[arg(long, env = "STEWARD_CONSOLE_LOGS_URL", value_name = "URL")]
    logs_url: Option<String>,
    /// Where a trace is, with {trace_id} or {xray_trace_id} in it.
    #[arg(long, env = "STEWARD_CONSOLE_TRACE_URL", value_name = "URL")]
    trace_url: Option<String>,
    #[command(flatten)]
    deployment: Deployment,
}

/// Serves until Ctrl-C.
pub(crate) async fn run(args: ConsoleArgs) -> Result<()> {
    let listener = TcpListener::bind(args.listen).await;
    let listener = listener.with_context(|| format!("listen on {}", args.listen))?;
    say!("console http://{}{}", listener.local_addr()?, steward_console::ROOT);
    let routes = match args.url {
        Some(url) => forwarding(Function::new(url, args.behind_proxy).await?),
        None => {
            let ports = args.deployment.ports("console").await?.into();
            let links = Links { logs: args.logs_url, trace: args.trace_url, dashboard: None };
            let caller = Caller { name: args.by, may_act: !args.read_only };
            steward_console::routes_for(caller, Console { ports, links: links.into() })
        }
    };
    tokio::select! {
        served = axum::serve(listener, routes) => served.context("serve the console"),
        interrupted = tokio::signal::ctrl_c() => interrupted.context("wait for Ctrl-C"),
    }
}

/// The deployed function, and whose signature its requests get.
#[derive(Clone)]
struct Function {
    url: Url,
    client: Client,
    sdk: SdkConfig,
    is_behind_proxy: bool,
}

fn forwarding(function: Function) -> Router {
    let is_behind_proxy = function.is_behind_proxy;
    let routes = Router::new().fallback(forward).with_state(function);
    let routes = routes.layer(DefaultBodyLimit::max(FORM_BYTES_MAX));
    if is_behind_proxy { routes } else { steward_console::by_address_only(routes) }
}

async fn forward(
    State(function): State<Function>,
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

impl Function {
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
        let said = |name| Some((name, headers.get(name)?.to_str().ok()?));
        let who = if self.is_behind_proxy { &FORWARDED[..] } else { &[] };
        let names = PASSED_ON.into_iter().chain(who.iter().copied());
        let passed: Vec<_> = names.filter_map(said).collect();
        let signature = self.sign(&method, &url, &passed, &body).await?;
        let mut request = self.client.request(method, url).body(body);
        for (name, value) in passed.into_iter().chain(signature.headers()) {
            request = request.header(name, value);
        }
        let answer = request.send().await.context("ask the function")?;
        let mut response = Response::builder().status(answer.status());
        for name in PASSED_BACK {
            if let Some(value) = answer.headers().get(&name) {
                response = response.header(name, value);
            }
        }
        Ok(response.body(Body::from(answer.bytes().await.context("read its answer")?))?)
    }

    /// AWS's Signature Version 4.
    async fn sign(
        &self,
        method: &Method,
        url: &Url,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<SigningInstructions> {
        let provider = self.sdk.credentials_provider().context("there are no AWS credentials")?;
        use aws_credential_types::provider::ProvideCredentials as _;
        let identity = provider.provide_credentials().await.context("AWS credentials")?.into();
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

/// The region that a function URL names: `https://ID.lambda-url.REGION.on.aws`.
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

    /// It would be passed on to a function that lets the caller act.
    #[test]
    fn what_is_read_only_here_cannot_be_asked_of_the_function() {
        let parsed =
            |args: &[&str]| <Cli as clap::Parser>::try_parse_from([&["console"], args].concat());
        parsed(&["--read-only"]).unwrap();
        parsed(&["--url", "https://x.example"]).unwrap();
        assert!(parsed(&["--url", "https://x.example", "--read-only"]).is_err());
    }

    #[test]
    fn a_function_url_names_its_region() {
        let region = |url: &str| region_of(&url.parse().unwrap()).map(str::to_owned);
        assert_eq!(
            region("https://abc.lambda-url.eu-west-1.on.aws/").as_deref(),
            Some("eu-west-1")
        );
        assert_eq!(region("http://127.0.0.1:4566/_aws/lambda-url/abc/"), None);
    }
}
