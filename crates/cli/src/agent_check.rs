//! `steward agent check`: checks which rules of the contract an agent obeys.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde_json::{Value, json};
use steward_conformance::{
    evidence::{Capabilities, Evidence, Recorder},
    judge::verdicts,
    local::LocalEnvironment,
    request::CheckRequest,
    rule::{Rule, Verdict},
    run::{Patience, Target, run},
    service::{PlayedService, default_response},
};
use steward_core::model::names::AgentName;
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::{Child, Command},
    task::JoinSet,
};

use crate::{client::sdk_config, table::table};

/// Options of `steward agent check`.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Start this command, and check it: an agent that polls $QUEUE_URL, replies to $REPLY_QUEUE_URL and calls
    /// $SERVICE_URL. It is stopped at the end.
    #[arg(long, required_unless_present = "queue", conflicts_with = "queue")]
    command: Option<String>,
    /// The URL of the queue of an agent that is running. AWS_ENDPOINT_URL and the usual AWS settings apply.
    #[arg(long, requires = "replies")]
    queue: Option<String>,
    /// The URL of the queue of its replies. Only the check may read from it.
    #[arg(long, requires = "queue")]
    replies: Option<String>,
    /// Play the agent's service on this address. Without it, rules that need a misbehaving service are not checked.
    #[arg(long, value_name = "ADDRESS", requires = "queue")]
    service: Option<SocketAddr>,
    /// The agent's name in the requests.
    #[arg(long, default_value = "example")]
    name: AgentName,
    /// A JSON file with the `method`, `path` and `body` of a request that the agent accepts.
    #[arg(long, value_name = "FILE")]
    request: Option<PathBuf>,
    /// A JSON file with a successful response of the agent's service.
    #[arg(long, value_name = "FILE")]
    response: Option<PathBuf>,
    /// Exit with 0 also if rules were not checked: for an agent that calls no HTTP service.
    #[arg(long)]
    allow_unchecked: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// The exit code of a check in which no rule is broken, but some were not checked.
pub(crate) const EXIT_UNCHECKED: u8 = 3;

/// No rule is broken, but some were not checked.
#[derive(Debug, thiserror::Error)]
#[error(
    "{0} rules were not checked; --allow-unchecked accepts that, for an agent that calls no HTTP service"
)]
pub(crate) struct UncheckedRules(usize);

/// The last characters of the agent's output that are shown if it did not reply.
const LOG_SHOWN: usize = 2_000;

/// How long the rest of the agent's output is awaited after its end.
const LOG_WITHIN: Duration = Duration::from_secs(2);

/// `steward agent check`.
pub(crate) async fn check(args: CheckArgs) -> Result<()> {
    let mut template = CheckRequest::of_agent(args.name.as_str());
    if let Some(path) = &args.request {
        let replaced = template.replaced_by(&read_json(path)?);
        template = replaced.map_err(anyhow::Error::msg).context(path.display().to_string())?;
    }
    let response = args.response.as_deref().map_or_else(|| Ok(default_response()), read_json)?;
    let evidence = match (&args.command, &args.queue, &args.replies) {
        (Some(command), _, _) => {
            check_command(command, args.name.clone(), &template, response).await?
        }
        (None, Some(queue), Some(replies)) => {
            check_queues(queue, replies, args.service, &template, response).await?
        }
        (None, _, _) => bail!("give --command, or --queue and --replies"),
    };
    report(&evidence, &args)
}

fn read_json(path: &Path) -> Result<Value> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    serde_json::from_str(&text).with_context(|| path.display().to_string())
}

async fn check_queues(
    queue: &str,
    replies: &str,
    service: Option<SocketAddr>,
    template: &CheckRequest,
    response: Value,
) -> Result<Evidence> {
    let sdk = sdk_config().await;
    let recorder = Recorder::default();
    let service = match service {
        Some(address) => Some(PlayedService::start(address, response, recorder.clone()).await?),
        None => None,
    };
    let target = Target {
        sqs: aws_sdk_sqs::Client::new(&sdk),
        queue_url: queue.to_owned(),
        replies_url: replies.to_owned(),
        recorder,
        capabilities: Capabilities { plays_service: service.is_some(), sees_sqs: false },
    };
    run(&target, template, Patience::REMOTE).await
}

async fn check_command(
    command: &str,
    name: AgentName,
    template: &CheckRequest,
    response: Value,
) -> Result<Evidence> {
    let environment = LocalEnvironment::start(name, response).await?;
    let mut agent = AgentProcess::start(command, &environment)?;
    let target = environment.target();
    let evidence = tokio::select! {
        evidence = run(&target, template, Patience::LOCAL) => evidence?,
        status = agent.child.wait() => {
            let log = agent.log().await;
            bail!("the agent ended during the check ({}); its output:\n{}", status?, tail(&log));
        }
    };
    let log = agent.stop().await?;
    Ok(Evidence { log: Some(log), ..evidence })
}

/// The process of the agent. Dropping it kills the process.
struct AgentProcess {
    child: Child,
    output: Arc<Mutex<Vec<u8>>>,
    readers: JoinSet<()>,
}

impl AgentProcess {
    fn start(command: &str, environment: &LocalEnvironment) -> Result<Self> {
        // `exec`, so that the process is the agent and not a shell.
        let mut child = Command::new("sh")
            .args(["-c", &format!("exec {command}")])
            .envs(environment.variables())
            .env_remove("AWS_PROFILE")
            .env_remove("AWS_SESSION_TOKEN")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("start `{command}`"))?;
        let (output, mut readers) = (Arc::default(), JoinSet::new());
        if let Some(stdout) = child.stdout.take() {
            readers.spawn(collect(stdout, Arc::clone(&output)));
        }
        if let Some(stderr) = child.stderr.take() {
            readers.spawn(collect(stderr, Arc::clone(&output)));
        }
        Ok(Self { child, output, readers })
    }

    /// Stops the process; returns what it wrote to its standard output and error.
    async fn stop(mut self) -> Result<String> {
        self.child.kill().await.context("stop the agent")?;
        Ok(self.log().await)
    }

    async fn log(&mut self) -> String {
        let rest = async { while self.readers.join_next().await.is_some() {} };
        // A child of the agent may keep its output open.
        let _ = tokio::time::timeout(LOG_WITHIN, rest).await;
        let output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&output).into_owned()
    }
}

async fn collect(mut stream: impl AsyncRead + Unpin, output: Arc<Mutex<Vec<u8>>>) {
    let mut buffer = [0; 4096];
    while let Ok(read @ 1..) = stream.read(&mut buffer).await {
        let bytes = buffer.get(..read).unwrap_or_default();
        output.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
    }
}

fn tail(log: &str) -> &str {
    let start = log.floor_char_boundary(log.len().saturating_sub(LOG_SHOWN));
    log.get(start..).unwrap_or_default()
}

#[expect(clippy::print_stderr, reason = "a command's output")]
fn report(evidence: &Evidence, args: &CheckArgs) -> Result<()> {
    let verdicts = verdicts(evidence);
    print_verdicts(&verdicts, args.json);
    let never_replied = |(rule, verdict): &(Rule, Verdict)| {
        *rule == Rule::Answer && matches!(verdict, Verdict::Broken(_))
    };
    if verdicts.iter().any(never_replied)
        && let Some(log) = &evidence.log
    {
        eprintln!("the agent's output:\n{}", tail(log));
    }
    match unchecked_rules(&verdicts)? {
        0 => Ok(()),
        count if args.allow_unchecked => {
            eprintln!("warning: {count} rules were not checked");
            Ok(())
        }
        count => Err(UncheckedRules(count).into()),
    }
}

/// The number of rules that were not checked.
///
/// # Errors
/// A rule is broken.
fn unchecked_rules(verdicts: &[(Rule, Verdict)]) -> Result<usize> {
    let (mut broken, mut unchecked) = (Vec::new(), 0);
    for (rule, verdict) in verdicts {
        match verdict {
            Verdict::Holds => {}
            Verdict::Broken(_) => broken.push(rule.to_string()),
            Verdict::NotChecked(_) => unchecked += 1,
        }
    }
    ensure!(broken.is_empty(), "broken rules: {}; see docs/agent-contract.md", broken.join(", "));
    Ok(unchecked)
}

fn print_verdicts(verdicts: &[(Rule, Verdict)], as_json: bool) {
    if as_json {
        let rules = verdicts.iter().map(|(rule, verdict)| {
            let (result, why) = words(verdict);
            json!({ "rule": rule.to_string(), "statement": rule.statement(), "result": result, "why": why })
        });
        outln!("{:#}", json!({ "rules": rules.collect::<Vec<_>>() }));
    } else {
        let mut rows = table(&["rule", "statement", "result", "why"]);
        for (rule, verdict) in verdicts {
            let (result, why) = words(verdict);
            rows.add_row([&rule.to_string(), rule.statement(), result, why.unwrap_or_default()]);
        }
        outln!("{rows}");
    }
}

fn words(verdict: &Verdict) -> (&'static str, Option<&str>) {
    match verdict {
        Verdict::Holds => ("holds", None),
        Verdict::Broken(what) => ("broken", Some(what)),
        Verdict::NotChecked(why) => ("not checked", Some(why)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_rule_outweighs_rules_that_were_not_checked() {
        let not_checked = || (Rule::Once, Verdict::NotChecked("no call".to_owned()));
        let holds = (Rule::Answer, Verdict::Holds);
        assert_eq!(unchecked_rules(&[holds.clone(), not_checked()]).unwrap(), 1);
        let broken = (Rule::Key, Verdict::Broken("no key".to_owned()));
        let error = unchecked_rules(&[holds, broken, not_checked()]).unwrap_err();
        assert!(!error.is::<UncheckedRules>(), "{error}");
        assert!(error.to_string().starts_with("broken rules: R9;"), "{error}");
    }
}
