//! `steward local`: runs all functions in this process, with the user's own workflows and services.

use std::{io::Write, net::SocketAddr, num::NonZeroU32, path::PathBuf, time::Duration};

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::Args;
use serde::Deserialize;
use serde_json::Value;
use steward_agent::credentials::Credentials;
use steward_core::{
    definition::workflow::Workflow,
    model::{messages::mistake, names::AgentName, registration::CallRate},
    rate::RateLimit,
    webhook::{WEBHOOKS_PATH, WebhookSecrets, Webhooks},
};
use steward_definition_file::read_dir;
use steward_emulator::{
    agent_target::AgentTarget,
    embedded::{AwsService, ExternalEndpoints},
    host::{Host, HostOptions},
    resources,
};
use steward_runtime::{agents, ports::Ports};

use crate::{
    endpoint::{self, EndpointArgs},
    env_args::EnvArgs,
    log::LogFormat,
    stop_signal,
};

/// Options of `steward local`.
#[derive(Debug, Args)]
pub(crate) struct LocalArgs {
    /// A folder of workflow definitions (YAML or JSON) to publish at startup.
    #[arg(long, default_value = "workflows")]
    workflows: PathBuf,
    #[command(flatten)]
    env: EnvArgs,
    /// An agent and what it calls, as NAME=BASE_URL, with the header and form of its idempotency key as NAME=BASE_URL#HEADER/FORM;
    /// repeatable. Also NAME=sqs:QUEUE,… and NAME=events:BUS,… for queues,
    /// which are created, and event buses of this process, and NAME=lambda:FUNCTION,…@URL for Lambda functions that an
    /// emulator at this URL runs. NAME=aws calls the AWS APIs that this process serves, and NAME=aws@URL those at this URL.
    #[arg(long = "agent", value_name = "NAME=BASE_URL", value_parser = parse_agent)]
    agents: Vec<(AgentName, AgentTarget)>,
    /// An agent in another process, in any language: its queue `steward-agent-NAME` is created and registered, and nothing is
    /// started; repeatable.
    #[arg(long = "queue-agent", value_name = "NAME")]
    queue_agents: Vec<AgentName>,
    /// The credentials of an agent for its HTTP service, as NAME=FILE; repeatable. The file has the JSON that the agent's secret
    /// has on AWS: headers, `oauth` with the client of OAuth tokens, `tls` with a custom CA. The file is read once.
    #[arg(long = "agent-secret", value_name = "NAME=FILE", value_parser = parse_agent_secret)]
    agent_secrets: Vec<(AgentName, Credentials)>,
    /// The rate limit of an agent, as NAME=CALLS/s or NAME=CALLS/s:BURST, for example `payment=5/s:10`; repeatable. Further
    /// calls wait, which costs no attempt.
    #[arg(long = "rate", value_name = "NAME=CALLS/s[:BURST]", value_parser = parse_rate)]
    rates: Vec<(AgentName, RateLimit)>,
    /// The folder for tables and queues; without it, they are in memory. Only one process can use a folder at a time.
    #[arg(long)]
    data: Option<PathBuf>,
    /// The address of the AWS-compatible endpoint, `POST /tasks` and the console. It has no access control: keep it
    /// on the loopback interface.
    #[arg(long, default_value = "127.0.0.1:4566")]
    listen: SocketAddr,
    #[command(flatten)]
    aws: EndpointArgs,
    /// A JSON file with the signed webhooks that `POST /webhooks/NAME` accepts: `webhooks` as in the parameter `Webhooks` of
    /// the template, and `secrets` as in its secret.
    #[arg(long, value_name = "FILE", value_parser = read_webhooks)]
    webhooks: Option<LocalWebhooks>,
    /// How often the supervisor runs.
    #[arg(long, default_value = "5s", value_parser = humantime::parse_duration)]
    supervise_every: Duration,
    /// How often the supervisor looks for overdue tasks between two runs, in whole seconds. Without it, only its runs do.
    /// The template's settings: `--supervise-every 60s --sweep-every 10s`.
    #[arg(long, value_parser = humantime::parse_duration)]
    sweep_every: Option<Duration>,
    /// The format of the log on standard error: `text`, or `json` for the lines that the functions write on AWS, with their
    /// metrics.
    #[arg(long, value_enum, default_value = "text", value_name = "FORMAT")]
    pub(crate) log_format: LogFormat,
}

fn parse_agent(text: &str) -> Result<(AgentName, AgentTarget)> {
    let (name, url) = text.split_once('=').context("expected NAME=BASE_URL")?;
    Ok((name.parse()?, url.parse()?))
}

/// Reads the file of `--agent-secret`. No error contains a secret.
fn parse_agent_secret(text: &str) -> Result<(AgentName, Credentials)> {
    let (name, path) = text.split_once('=').context("expected NAME=FILE")?;
    let text = std::fs::read_to_string(path).with_context(|| format!("read {path}"))?;
    let credentials = text.parse().with_context(|| format!("secret `{path}`"))?;
    Ok((name.parse()?, credentials))
}

/// The webhooks of `steward local`, with their secrets.
#[derive(Debug, Clone)]
struct LocalWebhooks {
    webhooks: Webhooks,
    secrets: WebhookSecrets,
}

/// The file of `--webhooks`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WebhooksFile {
    webhooks: Value,
    secrets: Value,
}

/// Reads the file of `--webhooks`. No error contains a secret.
fn read_webhooks(path: &str) -> Result<LocalWebhooks> {
    let text = std::fs::read_to_string(path)?;
    let file = serde_json::from_str(&text).map_err(|error| anyhow!(mistake(&error)))?;
    let WebhooksFile { webhooks, secrets } = file;
    let webhooks: Webhooks = webhooks.to_string().parse()?;
    let secrets = secrets.to_string().parse()?;
    let without = webhooks.without_secret(&secrets);
    ensure!(without.is_empty(), "these webhooks have no secret: {}", without.join(", "));
    Ok(LocalWebhooks { webhooks, secrets })
}

fn parse_rate(text: &str) -> Result<(AgentName, RateLimit)> {
    const EXPECTED: &str = "expected NAME=CALLS/s or NAME=CALLS/s:BURST, such as payment=5/s:10";
    let (name, limit) = text.split_once('=').context(EXPECTED)?;
    let (rate, burst) =
        limit.split_once(':').map_or((limit, None), |(rate, burst)| (rate, Some(burst)));
    let rate: f64 = rate.strip_suffix("/s").and_then(|rate| rate.parse().ok()).context(EXPECTED)?;
    let burst: Option<NonZeroU32> = burst.map(str::parse).transpose().context(EXPECTED)?;
    Ok((name.parse()?, RateLimit::new(CallRate::try_from(rate)?, burst)))
}

/// Runs the functions until Ctrl-C.
pub(crate) async fn run(args: LocalArgs) -> Result<()> {
    let workflows = args.env.apply(read_dir(&args.workflows)?)?;
    let published: Vec<_> = workflows
        .iter()
        .map(|workflow| format!("{} {}", workflow.name, workflow.version))
        .collect();
    let http = args.agents.iter().map(|(name, url)| {
        let limit = args.rates.iter().find(|(limited, _)| limited == name);
        let limit = limit.map(|(_, limit)| format!(" ({limit})")).unwrap_or_default();
        format!("{name} → {url}{limit}")
    });
    let queues = args.queue_agents.iter().map(|name| format!("{name} → its queue"));
    let agents: Vec<_> = http.chain(queues).collect();
    let external = args.aws.endpoints()?;
    check(&args, external.as_ref())?;
    let names = args.webhooks.iter().flat_map(|local| local.webhooks.names());
    let webhooks: Vec<_> = names.map(str::to_owned).collect();
    let host = Host::start(HostOptions {
        fast_path: true,
        webhooks: args.webhooks.map(|LocalWebhooks { webhooks, secrets }| (webhooks, secrets)),
        data: args.data.clone(),
        listen: Some(args.listen),
        external: external.clone(),
        workflows: workflows.clone(),
        agents: args.agents,
        queue_agents: args.queue_agents,
        agent_credentials: args.agent_secrets.into_iter().collect(),
        rate_limits: args.rates.into_iter().collect(),
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
    let mut lines = vec![
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
    lines.extend(
        webhooks.iter().map(|name| format!("webhook      POST {base}{WEBHOOKS_PATH}{name}")),
    );
    warn_of_missing_agents(&host, &workflows).await?;
    // From the first line of output on, a signal ends the process normally.
    let stopped = stop_signal::listen()?;
    // The host keeps running when the reader has closed standard output.
    let _ = writeln!(std::io::stdout(), "{}", lines.join("\n"));
    stopped.await.context("the thread that waits for signals has ended")?
}

/// Warns of the agents that steps name and that are not registered.
async fn warn_of_missing_agents(host: &Host, workflows: &[Workflow]) -> Result<()> {
    let registered = agents::registered(host.ports.store()).await?;
    let is_served = |name: &AgentName| {
        registered.iter().any(|agent| agent.name == *name && !agent.is_deleted())
    };
    for workflow in workflows {
        for (step, definition) in &workflow.steps {
            for agent in definition.agents().filter(|agent| !is_served(agent)) {
                tracing::warn!(
                    workflow = %workflow.name, %step, %agent,
                    "no agent of this name is registered, so the step will fail: add --agent or --queue-agent"
                );
            }
        }
    }
    Ok(())
}

/// Checks options that contradict each other.
fn check(args: &LocalArgs, external: Option<&ExternalEndpoints>) -> Result<()> {
    if let Some((name, _)) = args.agents.iter().find(|(name, _)| args.queue_agents.contains(name)) {
        bail!("agent `{name}` is given with both --agent and --queue-agent");
    }
    let limited = args.rates.iter().map(|(name, _)| ("--rate", name));
    let with_secret = args.agent_secrets.iter().map(|(name, _)| ("--agent-secret", name));
    let mut names = limited.chain(with_secret);
    if let Some((option, name)) =
        names.find(|(_, name)| args.agents.iter().all(|(agent, _)| agent != *name))
    {
        bail!("{option} names agent `{name}`, but there is no --agent {name}=…");
    }
    ensure!(
        args.data.is_none() || !external.is_some_and(ExternalEndpoints::are_all_external),
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
        !external.is_some_and(is_own),
        "--aws-endpoint is the address on which this process would listen ({own}): choose another --listen"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_a_number_of_calls_per_second_and_a_burst() {
        for (text, shown) in [
            ("payment=5/s:10", "at most 5 calls per second, 10 at once"),
            ("payment=0.5/s", "at most 0.5 calls per second, 1 at once"),
        ] {
            let (name, limit) = parse_rate(text).unwrap();
            assert_eq!((name.as_str(), limit.to_string().as_str()), ("payment", shown));
        }
    }

    #[test]
    fn a_file_of_webhooks_is_refused_without_its_secrets() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("webhooks.json");
        let read = |content: &str| {
            std::fs::write(&file, content).unwrap();
            read_webhooks(&file.display().to_string())
        };
        let webhook = r#"{"header":"X-Sig","scheme":"body","source":"s","detail_type":"t"}"#;
        let valid =
            format!(r#"{{"webhooks":{{"a":{webhook}}},"secrets":{{"a":["0123456789abcdef"]}}}}"#);
        let names: Vec<_> = read(&valid).unwrap().webhooks.names().map(str::to_owned).collect();
        assert_eq!(names, ["a"]);
        for (content, expected) in [
            (
                valid.replace("0123456789abcdef", "short"),
                "a list of 1 to 4 texts of 16 to 256 bytes",
            ),
            (valid.replace("\"a\":[", "\"a\":"), "expected"),
            (valid.replace("\"t\"}", "\"\"}"), "webhook `a`: `source` and `detail_type`"),
            ("{}".to_owned(), "missing field `webhooks`"),
        ] {
            let error = read(&content).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
            assert!(!error.contains("short") && !error.contains("0123456789abcdef"), "{error}");
        }
    }

    #[test]
    fn a_secret_of_an_agent_is_read_from_a_file_and_not_shown() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("payment.json");
        let read = |content: &str| {
            std::fs::write(&file, content).unwrap();
            parse_agent_secret(&format!("payment={}", file.display()))
        };
        let oauth = r#"{"token_url":"https://login.example.com","client_id":"shop","client_secret":"s3cret"}"#;
        let (name, credentials) =
            read(&format!(r#"{{"x-key":"s3cret","oauth":{oauth}}}"#)).unwrap();
        assert_eq!((name.as_str(), credentials.oauth.is_some()), ("payment", true));
        assert!(!format!("{credentials:?}").contains("s3cret"));
        for (content, expected) in [
            (r#"["s3cret"]"#, "not a JSON object of headers"),
            (r#"{"oauth":{"client_secret":"s3cret"}}"#, "`oauth` is not an object"),
            (r#"{"tls":{"ca":"s3cret"}}"#, "`tls` is not an object"),
        ] {
            let error = format!("{:#}", read(content).unwrap_err());
            assert!(error.contains(expected) && !error.contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn an_invalid_rate_is_refused_with_what_is_expected() {
        for text in ["payment", "payment=5", "payment=fast/s", "payment=5/s:0", "payment=5/s:x"] {
            let error = parse_rate(text).unwrap_err().to_string();
            assert!(error.starts_with("expected NAME=CALLS/s"), "{text}: {error}");
        }
        let error = parse_rate("payment=0.01/s").unwrap_err().to_string();
        assert!(error.contains("not between 0.1 and 10000"), "{error}");
    }
}
