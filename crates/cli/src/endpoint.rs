//! `--aws-endpoint`: an emulator of AWS that somebody else runs, instead of the embedded services.

use std::env;

use anyhow::Result;
use clap::Args;
use steward_emulator::embedded::{Endpoints, Service};

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
    /// The account at the emulator, twelve digits. Without it `local` uses the emulator's default account, and `demo` a
    /// new one for each run. At LocalStack other commands use it with AWS_ACCESS_KEY_ID=ACCOUNT.
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

/// The variables with which other commands find the services: those of a host that listens at `base`, and those
/// that are elsewhere.
pub(crate) fn variables(elsewhere: Option<&Endpoints>, base: &str) -> String {
    let url = |service| elsewhere.and_then(|endpoints| endpoints.url(service));
    let [first, others @ ..] = Service::ALL.map(url);
    if let Some(url) = first.filter(|url| others == [Some(*url); 2]) {
        return format!("AWS_ENDPOINT_URL={url}");
    }
    let own = Service::ALL.into_iter().filter_map(|service| Some((service, url(service)?)));
    let own = own.map(|(service, url)| format!(" {}={url}", service.variable()));
    format!("AWS_ENDPOINT_URL={base}{}", own.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_commands_are_told_where_each_service_is() {
        let (base, a, b) = ("http://host", "http://a", "http://b");
        let told = |option: &str, dynamodb: Option<&str>| {
            let endpoints = Endpoints::from_option(option, |name| {
                let own = (name == Service::DynamoDb.variable()).then_some(dynamodb).flatten();
                own.map(str::to_owned)
            });
            variables(Some(&endpoints.unwrap()), base)
        };
        assert_eq!(variables(None, base), "AWS_ENDPOINT_URL=http://host");
        assert_eq!(told(a, None), "AWS_ENDPOINT_URL=http://a");
        assert_eq!(
            told("env", Some(b)),
            "AWS_ENDPOINT_URL=http://host AWS_ENDPOINT_URL_DYNAMODB=http://b"
        );
        assert_eq!(
            told(a, Some(b)),
            "AWS_ENDPOINT_URL=http://host AWS_ENDPOINT_URL_DYNAMODB=http://b \
             AWS_ENDPOINT_URL_SQS=http://a AWS_ENDPOINT_URL_EVENTBRIDGE=http://a"
        );
    }
}
