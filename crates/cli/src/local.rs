//! `steward local`: runs all functions in this process, with the user's own workflows and services.

use std::{io::Write, net::SocketAddr, path::PathBuf, time::Duration};

use anyhow::{Context, Result, ensure};
use clap::Args;
use steward_agent::http::BaseUrl;
use steward_core::model::names::AgentName;
use steward_definition_file::read_dir;
use steward_emulator::{
    embedded::{AwsService, ExternalEndpoints},
    host::{Host, HostOptions},
    resources,
};

use crate::endpoint::{self, EndpointArgs};

/// Options of `steward local`.
#[derive(Debug, Args)]
pub(crate) struct LocalArgs {
    /// A folder of workflow definitions (YAML or JSON) to publish at startup.
    #[arg(long, default_value = "workflows")]
    workflows: PathBuf,
    /// The base URL of the service that an agent calls, as NAME=BASE_URL; repeatable.
    #[arg(long = "agent", value_name = "NAME=BASE_URL", value_parser = parse_agent)]
    agents: Vec<(AgentName, BaseUrl)>,
    /// The folder for tables and queues; without it, they are in memory. Only one process can use a folder at a time.
    #[arg(long)]
    data: Option<PathBuf>,
    /// The address of the AWS-compatible endpoint, `POST /tasks` and the console. It has no access control: keep it
    /// on the loopback interface.
    #[arg(long, default_value = "127.0.0.1:4566")]
    listen: SocketAddr,
    #[command(flatten)]
    aws: EndpointArgs,
    /// How often the supervisor runs.
    #[arg(long, default_value = "5s", value_parser = humantime::parse_duration)]
    supervise_every: Duration,
    /// How often the supervisor looks for overdue tasks between two runs, in whole seconds. Without it, only its runs do.
    /// The template's settings: `--supervise-every 60s --sweep-every 10s`.
    #[arg(long, value_parser = humantime::parse_duration)]
    sweep_every: Option<Duration>,
}

fn parse_agent(text: &str) -> Result<(AgentName, BaseUrl)> {
    let (name, url) = text.split_once('=').context("expected NAME=BASE_URL")?;
    Ok((name.parse()?, url.parse()?))
}

/// Runs the functions until Ctrl-C.
pub(crate) async fn run(args: LocalArgs) -> Result<()> {
    let workflows = read_dir(&args.workflows)?;
    let published: Vec<_> = workflows
        .iter()
        .map(|workflow| format!("{} {}", workflow.name, workflow.version))
        .collect();
    let agents: Vec<_> = args.agents.iter().map(|(name, url)| format!("{name} → {url}")).collect();
    let external = args.aws.endpoints()?;
    ensure!(
        args.data.is_none() || !external.as_ref().is_some_and(ExternalEndpoints::are_all_external),
        "--data has no effect: --aws-endpoint names another emulator for tables and queues"
    );
    ensure!(
        args.sweep_every.is_none_or(|every| every.as_secs() > 0 && every.subsec_nanos() == 0),
        "--sweep-every must be whole seconds: queues delay messages by whole seconds"
    );
    let own = format!("http://{}", args.listen);
    let is_own = |endpoints: &ExternalEndpoints| {
        AwsService::ALL.into_iter().any(|service| endpoints.url(service) == Some(&own))
    };
    ensure!(
        !external.as_ref().is_some_and(is_own),
        "--aws-endpoint is the address on which this process would listen ({own}): choose another --listen"
    );
    let host = Host::start(HostOptions {
        fast_path: true,
        data: args.data.clone(),
        listen: Some(args.listen),
        external: external.clone(),
        workflows,
        agents: args.agents,
        supervise_every: Some(args.supervise_every),
        sweep_every: args.sweep_every,
        ..HostOptions::default()
    })
    .await?;
    let address =
        host.address.map_or_else(|| args.listen.to_string(), |address| address.to_string());
    let base = format!("http://{address}");
    let local_state =
        args.data.map_or_else(|| "in memory".to_owned(), |dir| dir.display().to_string());
    let state = match &external {
        None => local_state,
        Some(endpoints) if endpoints.are_all_external() => endpoints.to_string(),
        Some(endpoints) => format!("{endpoints}, other services: {local_state}"),
    };
    let variables = endpoint::variables(external.as_ref(), &base);
    let lines = [
        format!("workflows    {}", published.join(", ")),
        format!("agents       {}", agents.join(", ")),
        format!("state        {state}"),
        format!(
            "submit       POST {base}/tasks, or queue {}",
            host.queue_url(resources::SUBMISSIONS_QUEUE)
        ),
        format!("status       GET {base}/tasks/{{id}}"),
        format!("console      {base}{}", steward_console::ROOT),
        format!("alerts       queue {}", host.queue_url(resources::ALERTS_QUEUE)),
        format!("reply queues {}", host.config.reply_queues),
        format!("list tasks   {variables} steward list"),
    ];
    // The host keeps running when the reader has closed standard output.
    let _ = writeln!(std::io::stdout(), "{}", lines.join("\n"));
    tokio::signal::ctrl_c().await.context("wait for Ctrl-C")
}
