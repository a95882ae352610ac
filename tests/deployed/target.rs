//! The target of the deployment: an emulator (`.ci/e2e`) or AWS (`infra/verify`), read from environment variables.

use std::{env, net::SocketAddr, sync::LazyLock, time::Duration};

/// The tag of all that a run creates; its value is the stack's name. `infra/cleanup.py` deletes what has it.
pub(super) const RUN_TAG: &str = "steward:verify";

/// An emulator, or AWS itself.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum TargetKind {
    MiniStack,
    LocalStack,
    Aws,
}

/// The stack and its account, and the address of this process's remote services for the functions.
pub(super) struct DeploymentTarget {
    pub(super) kind: TargetKind,
    /// The stack's name.
    pub(super) stack: String,
    pub(super) account: String,
    pub(super) region: String,
    /// The ARN of the caller, who has the operator permission in the console. On an emulator the account's root.
    pub(super) caller: String,
    /// The address on which the remote services listen.
    pub(super) services: SocketAddr,
    /// The URL by which functions reach the remote services, if it is not that address.
    pub(super) services_url: Option<String>,
}

static TARGET: LazyLock<DeploymentTarget> = LazyLock::new(DeploymentTarget::from_environment);

/// The target of this run.
pub(super) fn deployment_target() -> &'static DeploymentTarget {
    &TARGET
}

fn variable(name: &str, default: &str) -> String {
    env::var(name).unwrap_or_else(|_| default.to_owned())
}

impl DeploymentTarget {
    fn from_environment() -> Self {
        let account = variable("STEWARD_ACCOUNT", "000000000000");
        let root = format!("arn:aws:iam::{account}:root");
        Self {
            kind: match variable("EMULATOR", "").as_str() {
                "ministack" => TargetKind::MiniStack,
                "localstack" => TargetKind::LocalStack,
                "none" => TargetKind::Aws,
                other => panic!("EMULATOR is `{other}`: ministack, localstack or none"),
            },
            stack: variable("STEWARD_STACK", "steward-e2e"),
            region: variable("AWS_REGION", "us-east-1"),
            caller: variable("STEWARD_CALLER", &root),
            services: variable("STEWARD_SERVICES_LISTEN", "127.0.0.1:0").parse().unwrap(),
            services_url: env::var("STEWARD_SERVICES_URL").ok(),
            account,
        }
    }

    /// The longest wait for one thing. On emulators it is long enough for several runs of the supervisor, which runs every
    /// minute. On AWS a table changes its capacity mode in several minutes, and a queue redelivers an agent's request
    /// after twelve.
    pub(super) fn longest_wait(&self) -> Duration {
        Duration::from_secs(if self.kind == TargetKind::Aws { 1200 } else { 420 })
    }

    /// The endpoint of an AWS service.
    pub(super) fn endpoint(&self, service: &str) -> String {
        match self.kind {
            TargetKind::Aws => format!("https://{service}.{}.amazonaws.com", self.region),
            TargetKind::MiniStack | TargetKind::LocalStack => {
                env::var("AWS_ENDPOINT_URL").expect("AWS_ENDPOINT_URL: source infra/localstack/env")
            }
        }
    }

    /// The URL of a queue.
    pub(super) fn queue_url(&self, name: &str) -> String {
        format!("{}/{}/{name}", self.endpoint("sqs"), self.account)
    }

    /// The ARN of a queue.
    pub(super) fn queue_arn(&self, name: &str) -> String {
        format!("arn:aws:sqs:{}:{}:{name}", self.region, self.account)
    }

    /// Whether the target can have the callback endpoint. If not, prints what is skipped.
    pub(super) fn has_callbacks(&self, skipped: &str) -> bool {
        if self.kind == TargetKind::LocalStack {
            eprintln!(
                "{skipped}: skipped: LocalStack does not resolve the URL of a conditional function"
            );
        }
        self.kind != TargetKind::LocalStack
    }

    /// Whether the target enforces IAM policies. If not, prints what is skipped.
    pub(super) fn enforces_iam(&self, skipped: &str) -> bool {
        if self.kind == TargetKind::LocalStack {
            eprintln!("{skipped}: skipped: LocalStack's open edition does not enforce IAM");
        }
        self.kind != TargetKind::LocalStack
    }

    /// Whether the target creates custom resources, by which agents register. If not, prints what is skipped.
    pub(super) fn has_custom_resources(&self, skipped: &str) -> bool {
        if self.kind == TargetKind::LocalStack {
            eprintln!("{skipped}: skipped: LocalStack's open edition has no custom resources");
        }
        self.kind != TargetKind::LocalStack
    }

    /// Whether the target runs functions in Python and JavaScript that `.ci/package-examples` has packaged. If not, prints
    /// what is skipped.
    pub(super) fn runs_scripts(&self, skipped: &str) -> bool {
        if self.kind != TargetKind::MiniStack {
            eprintln!("{skipped}: skipped: only MiniStack runs Python and JavaScript here");
        }
        self.kind == TargetKind::MiniStack
    }

    /// Whether the functions are processes on this machine, whose credentials can be read. If not, prints what is skipped.
    pub(super) fn shows_processes(&self, skipped: &str) -> bool {
        if self.kind == TargetKind::Aws {
            eprintln!("{skipped}: skipped: on AWS the functions are not processes on this machine");
        }
        self.kind != TargetKind::Aws
    }
}
