//! `--aws-endpoint`: use a running AWS emulator instead of the embedded services.

use std::env;

use anyhow::Result;
use clap::Args;
use steward_emulator::embedded::{AwsService, ExternalEndpoints};

/// Endpoints of the AWS services, if they are not embedded in this process.
#[derive(Debug, Args)]
pub(crate) struct EndpointArgs {
    /// Use a running emulator, such as LocalStack or moto, instead of the embedded services.
    ///
    /// `http://HOST:PORT` applies to DynamoDB, SQS and EventBridge. AWS_ENDPOINT_URL_DYNAMODB, AWS_ENDPOINT_URL_SQS and
    /// AWS_ENDPOINT_URL_EVENTBRIDGE override it for one service. `env` reads only these three variables and
    /// AWS_ENDPOINT_URL; a service without a variable is embedded. Without this option all four variables are ignored,
    /// because the other commands use AWS_ENDPOINT_URL to reach this command's own endpoint. Missing tables, queues and
    /// the event bus are created.
    #[arg(long, value_name = "URL|env")]
    aws_endpoint: Option<String>,
    /// The AWS account to use in the emulator, twelve digits. By default, `local` uses the emulator's default account,
    /// and `demo` uses a new account for each run. Other commands select the account in LocalStack with
    /// AWS_ACCESS_KEY_ID=ACCOUNT.
    #[arg(long, value_name = "ACCOUNT", requires = "aws_endpoint")]
    aws_account: Option<String>,
}

impl EndpointArgs {
    /// The endpoints that the options select; `None` if all services are embedded.
    pub(crate) fn endpoints(&self) -> Result<Option<ExternalEndpoints>> {
        let Some(option) = &self.aws_endpoint else { return Ok(None) };
        let endpoints = ExternalEndpoints::from_option(option, |name| env::var(name).ok())?;
        match &self.aws_account {
            Some(account) => Ok(Some(endpoints.in_account(account.clone())?)),
            None => Ok(Some(endpoints)),
        }
    }

    /// Like [`Self::endpoints`], but in a new account unless one was chosen, so that this run does not see the data of
    /// earlier runs.
    pub(crate) fn endpoints_for_one_run(&self) -> Result<Option<ExternalEndpoints>> {
        let endpoints = self.endpoints()?;
        Ok(if self.aws_account.is_some() {
            endpoints
        } else {
            endpoints.map(ExternalEndpoints::in_new_account)
        })
    }
}

/// The environment variables with which other commands reach the services: the host that listens at `base`, and the
/// external endpoints.
pub(crate) fn variables(external: Option<&ExternalEndpoints>, base: &str) -> String {
    let url = |service| external.and_then(|endpoints| endpoints.url(service));
    let [first, others @ ..] = AwsService::ALL.map(url);
    if let Some(url) = first.filter(|url| others == [Some(*url); 2]) {
        return format!("AWS_ENDPOINT_URL={url}");
    }
    let own = AwsService::ALL.into_iter().filter_map(|service| Some((service, url(service)?)));
    let own = own.map(|(service, url)| format!(" {}={url}", service.variable()));
    format!("AWS_ENDPOINT_URL={base}{}", own.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_name_the_endpoint_of_each_service() {
        let (base, a, b) = ("http://host", "http://a", "http://b");
        let with_option = |option: &str, dynamodb: Option<&str>| {
            let endpoints = ExternalEndpoints::from_option(option, |name| {
                let own = (name == AwsService::DynamoDb.variable()).then_some(dynamodb).flatten();
                own.map(str::to_owned)
            });
            variables(Some(&endpoints.unwrap()), base)
        };
        assert_eq!(variables(None, base), "AWS_ENDPOINT_URL=http://host");
        assert_eq!(with_option(a, None), "AWS_ENDPOINT_URL=http://a");
        assert_eq!(
            with_option("env", Some(b)),
            "AWS_ENDPOINT_URL=http://host AWS_ENDPOINT_URL_DYNAMODB=http://b"
        );
        assert_eq!(
            with_option(a, Some(b)),
            "AWS_ENDPOINT_URL=http://host AWS_ENDPOINT_URL_DYNAMODB=http://b \
             AWS_ENDPOINT_URL_SQS=http://a AWS_ENDPOINT_URL_EVENTBRIDGE=http://a"
        );
    }
}
