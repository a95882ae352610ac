//! `--aws-endpoint`: an emulator of AWS that somebody else runs, instead of the embedded services.

use std::env;

use anyhow::Result;
use clap::Args;
use steward_local::embedded::{EmbeddedAws, Endpoints, Service};

/// Where AWS's services are, if not in this process.
#[derive(Debug, Args)]
pub(crate) struct EndpointArgs {
    /// Use an emulator that is running, such as LocalStack or moto, instead of the embedded services.
    ///
    /// `http://HOST:PORT` is for DynamoDB, SQS and EventBridge; AWS_ENDPOINT_URL_DYNAMODB, AWS_ENDPOINT_URL_SQS and
    /// AWS_ENDPOINT_URL_EVENTBRIDGE override it for their service. `env` takes these three and AWS_ENDPOINT_URL alone,
    /// and a service that none of them names is embedded. Without this option the variables are ignored: AWS_ENDPOINT_URL
    /// is where the other commands find what this one serves. Tables, queues and the bus are created there if need be.
    #[arg(long, value_name = "URL|env")]
    aws_endpoint: Option<String>,
    /// The account at the emulator, twelve digits; other commands use it with AWS_ACCESS_KEY_ID=ACCOUNT (LocalStack).
    #[arg(long, value_name = "ACCOUNT", requires = "aws_endpoint")]
    aws_account: Option<String>,
}

impl EndpointArgs {
    /// What the options say; nothing if all services are embedded.
    pub(crate) fn endpoints(&self) -> Result<Option<Endpoints>> {
        let Some(option) = &self.aws_endpoint else { return Ok(None) };
        let endpoints = Endpoints::from_option(option, |name| env::var(name).ok())?;
        match &self.aws_account {
            Some(account) => Ok(Some(endpoints.in_account(account.clone())?)),
            None => Ok(Some(endpoints)),
        }
    }

    /// The same, in an account of its own unless one was chosen: what an earlier run left is not seen.
    pub(crate) fn endpoints_of_one_run(&self) -> Result<Option<Endpoints>> {
        let endpoints = self.endpoints()?;
        Ok(if self.aws_account.is_some() {
            endpoints
        } else {
            endpoints.map(Endpoints::in_new_account)
        })
    }
}

/// The variables with which other commands find the services of a host that listens at `base`.
pub(crate) fn variables(aws: &EmbeddedAws, base: &str) -> String {
    let elsewhere = Service::ALL.into_iter().filter_map(|service| {
        aws.external_url(service).map(|url| format!(" {}={url}", service.variable()))
    });
    format!("AWS_ENDPOINT_URL={base}{}", elsewhere.collect::<String>())
}

/// The services that are elsewhere, and where, for people.
pub(crate) fn elsewhere(aws: &EmbeddedAws) -> Vec<String> {
    let services = Service::ALL.into_iter();
    let of = |service| aws.external_url(service).map(|url| format!("{service} at {url}"));
    services.filter_map(of).collect()
}
