//! Where the stack is deployed: on an emulator, by `.ci/e2e`, or on AWS, by `infra/verify`. The environment says it.

use std::{env, net::SocketAddr, sync::LazyLock};

/// What answers as AWS.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    MiniStack,
    LocalStack,
    Aws,
}

/// The stack, its account, and how functions reach the services of this process.
pub(super) struct Place {
    pub(super) kind: Kind,
    /// The stack's name.
    pub(super) stack: String,
    pub(super) account: String,
    pub(super) region: String,
    /// The ARN of who asks: on an emulator the account's root. May act in the console.
    pub(super) caller: String,
    /// Where the services listen.
    pub(super) services: SocketAddr,
    /// By which URL functions reach them, if that is not where they listen.
    pub(super) services_url: Option<String>,
}

static PLACE: LazyLock<Place> = LazyLock::new(Place::said);

/// Where this run's stack is.
pub(super) fn place() -> &'static Place {
    &PLACE
}

fn variable(name: &str, default: &str) -> String {
    env::var(name).unwrap_or_else(|_| default.to_owned())
}

impl Place {
    fn said() -> Self {
        let account = variable("STEWARD_ACCOUNT", "000000000000");
        let root = format!("arn:aws:iam::{account}:root");
        Self {
            kind: match variable("EMULATOR", "").as_str() {
                "ministack" => Kind::MiniStack,
                "localstack" => Kind::LocalStack,
                "none" => Kind::Aws,
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

    /// Where a service is asked.
    pub(super) fn endpoint(&self, service: &str) -> String {
        match self.kind {
            Kind::Aws => format!("https://{service}.{}.amazonaws.com", self.region),
            Kind::MiniStack | Kind::LocalStack => {
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

    /// Whether requests that no policy allows are refused here. If not, prints what is skipped.
    pub(super) fn enforces_iam(&self, skipped: &str) -> bool {
        if self.kind == Kind::LocalStack {
            eprintln!("{skipped}: skipped: LocalStack's open edition does not enforce IAM");
        }
        self.kind != Kind::LocalStack
    }

    /// Whether the functions are processes of this machine, from which credentials can be borrowed. If not, prints what
    /// is skipped.
    pub(super) fn shows_processes(&self, skipped: &str) -> bool {
        if self.kind == Kind::Aws {
            eprintln!("{skipped}: skipped: on AWS the functions are not processes of this machine");
        }
        self.kind != Kind::Aws
    }
}
