//! External services: an emulator at an endpoint serves some or all services instead of this process.

use std::{collections::BTreeMap, fmt};

/// The environment variable for the endpoint of all services.
const ALL: &str = "AWS_ENDPOINT_URL";

/// The option of [`ExternalEndpoints::from_option`] that reads the endpoints from the environment.
const FROM_ENV: &str = "env";

/// The access key if no account is chosen. Emulators use their default account for it.
const DEFAULT_KEY: &str = "test";

/// An AWS service that Steward's functions use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AwsService {
    /// DynamoDB.
    DynamoDb,
    /// SQS.
    Sqs,
    /// The event bus.
    EventBridge,
}

impl AwsService {
    /// All services.
    pub const ALL: [Self; 3] = [Self::DynamoDb, Self::Sqs, Self::EventBridge];

    /// The SDK's environment variable for the endpoint of this service.
    #[must_use]
    pub fn variable(self) -> &'static str {
        match self {
            Self::DynamoDb => "AWS_ENDPOINT_URL_DYNAMODB",
            Self::Sqs => "AWS_ENDPOINT_URL_SQS",
            Self::EventBridge => "AWS_ENDPOINT_URL_EVENTBRIDGE",
        }
    }

    /// The service of a request, by its `x-amz-target`.
    pub(super) fn of(target: &str) -> Option<Self> {
        match target.split_once('.')?.0 {
            "DynamoDB_20120810" => Some(Self::DynamoDb),
            "AmazonSQS" => Some(Self::Sqs),
            "AWSEvents" => Some(Self::EventBridge),
            _ => None,
        }
    }
}

impl fmt::Display for AwsService {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::DynamoDb => "DynamoDB",
            Self::Sqs => "SQS",
            Self::EventBridge => "EventBridge",
        })
    }
}

/// The endpoints of services that this process does not serve itself. None by default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExternalEndpoints {
    urls: BTreeMap<AwsService, String>,
    /// The account at the endpoints; `None` for the default account.
    pub(super) account: Option<String>,
}

/// Why endpoints cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidExternalEndpoints {
    /// The endpoint is not a plain HTTP URL.
    #[error("{0:?} is not an endpoint: use `http://HOST:PORT` or `env`")]
    NotHttp(String),
    /// The option was `env`, and no environment variable contains an endpoint.
    #[error("the environment contains no endpoint: set {ALL} or one of {}", variables())]
    NoneInEnv,
    /// SQS and EventBridge have different endpoints, but rules can send only to queues at their own endpoint.
    #[error(
        "SQS is at {sqs} and EventBridge at {eventbridge}: use the same endpoint for both, because rules send to queues"
    )]
    DifferentEndpoints {
        /// The endpoint of SQS.
        sqs: String,
        /// The endpoint of EventBridge.
        eventbridge: String,
    },
    /// The account is not a number of twelve digits.
    #[error("{0:?} is not an account: use twelve digits")]
    InvalidAccount(String),
}

fn variables() -> String {
    AwsService::ALL.map(AwsService::variable).join(", ")
}

impl ExternalEndpoints {
    /// Parses an option: `http://HOST:PORT` for all services, or `env` for the services with an endpoint in the
    /// environment. The variable of a single service has priority. `env` reads an environment variable.
    ///
    /// # Errors
    /// See [`InvalidExternalEndpoints`].
    pub fn from_option(
        option: &str,
        env: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, InvalidExternalEndpoints> {
        let env = |name: &str| env(name).filter(|url| !url.is_empty());
        let all = if option == FROM_ENV { env(ALL) } else { Some(option.to_owned()) };
        let of = |service: AwsService| {
            let url = env(service.variable()).or_else(|| all.clone())?;
            Some(parse(&url).map(|url| (service, url)))
        };
        let urls: BTreeMap<_, _> =
            AwsService::ALL.into_iter().filter_map(of).collect::<Result<_, _>>()?;
        if urls.is_empty() {
            return Err(InvalidExternalEndpoints::NoneInEnv);
        }
        let endpoints = Self { urls, account: None };
        let [sqs, eventbridge] = [AwsService::Sqs, AwsService::EventBridge]
            .map(|service| endpoints.url(service).unwrap_or("this process").to_owned());
        if sqs != eventbridge {
            return Err(InvalidExternalEndpoints::DifferentEndpoints { sqs, eventbridge });
        }
        Ok(endpoints)
    }

    /// Uses the emulator's account of this number. Without it, the emulator uses its default account.
    ///
    /// # Errors
    /// [`InvalidExternalEndpoints::InvalidAccount`] if it is not twelve digits.
    pub fn in_account(self, account: String) -> Result<Self, InvalidExternalEndpoints> {
        if account.len() == 12 && account.bytes().all(|byte| byte.is_ascii_digit()) {
            return Ok(Self { account: Some(account), ..self });
        }
        Err(InvalidExternalEndpoints::InvalidAccount(account))
    }

    /// Uses a random account, so that state of an earlier run is most likely not visible.
    #[must_use]
    pub fn in_new_account(self) -> Self {
        let account = fastrand::u64(100_000_000_000..1_000_000_000_000).to_string();
        Self { account: Some(account), ..self }
    }

    /// The endpoint of a service; `None` if this process serves it.
    #[must_use]
    pub fn url(&self, service: AwsService) -> Option<&str> {
        self.urls.get(&service).map(String::as_str)
    }

    /// Whether all services have an external endpoint.
    #[must_use]
    pub fn are_all_external(&self) -> bool {
        AwsService::ALL.into_iter().all(|service| self.url(service).is_some())
    }

    /// The access key, by which LocalStack and DynamoDB Local distinguish accounts.
    pub(super) fn access_key(&self) -> &str {
        self.account.as_deref().unwrap_or(DEFAULT_KEY)
    }
}

/// Prints `DynamoDB at http://127.0.0.1:5000, …`.
impl fmt::Display for ExternalEndpoints {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let services = self.urls.iter().map(|(service, url)| format!("{service} at {url}"));
        formatter.write_str(&services.collect::<Vec<_>>().join(", "))
    }
}

/// Checks a URL, and removes a slash at its end.
fn parse(url: &str) -> Result<String, InvalidExternalEndpoints> {
    let trimmed = url.trim_end_matches('/');
    match trimmed.strip_prefix("http://") {
        Some(host) if !host.is_empty() && !host.contains(['?', '#', ' ']) => Ok(trimmed.to_owned()),
        Some(_) | None => Err(InvalidExternalEndpoints::NotHttp(url.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(
        option: &str,
        env: &[(&str, &str)],
    ) -> Result<[Option<String>; 3], InvalidExternalEndpoints> {
        let value = |name: &str| {
            let found = env.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let endpoints = ExternalEndpoints::from_option(option, value)?;
        Ok(AwsService::ALL.map(|service| endpoints.url(service).map(str::to_owned)))
    }

    fn all(urls: [&str; 3]) -> [Option<String>; 3] {
        urls.map(|url| Some(url.to_owned()).filter(|url| !url.is_empty()))
    }

    #[test]
    fn one_endpoint_serves_all_services_unless_a_services_own_variable_is_set() {
        let (a, b) = ("http://127.0.0.1:1", "http://127.0.0.1:2");
        let own = [("AWS_ENDPOINT_URL_DYNAMODB", b), ("AWS_ENDPOINT_URL", "http://other")];
        assert_eq!(read(a, &[]).unwrap(), all([a, a, a]));
        assert_eq!(read("http://127.0.0.1:1/", &[]).unwrap(), all([a, a, a]));
        assert_eq!(read(a, &own).unwrap(), all([b, a, a]));
    }

    #[test]
    fn environment_sets_endpoints_of_all_services_or_some() {
        let (a, b) = ("http://127.0.0.1:1", "http://127.0.0.1:2");
        let (base, own) = (("AWS_ENDPOINT_URL", a), ("AWS_ENDPOINT_URL_DYNAMODB", b));
        assert_eq!(read("env", &[base]).unwrap(), all([a, a, a]));
        assert_eq!(read("env", &[base, own]).unwrap(), all([b, a, a]));
        assert_eq!(read("env", &[own]).unwrap(), all([b, "", ""]));
        assert_eq!(read("env", &[]), Err(InvalidExternalEndpoints::NoneInEnv));
        assert_eq!(
            read("env", &[("AWS_ENDPOINT_URL", "")]),
            Err(InvalidExternalEndpoints::NoneInEnv)
        );
    }

    #[test]
    fn queues_and_bus_have_the_same_endpoint() {
        let sqs = ("AWS_ENDPOINT_URL_SQS", "http://q");
        for option in ["env", "http://a"] {
            let apart = read(option, &[sqs]).unwrap_err();
            assert!(
                matches!(apart, InvalidExternalEndpoints::DifferentEndpoints { .. }),
                "{apart}"
            );
        }
        let both = [sqs, ("AWS_ENDPOINT_URL_EVENTBRIDGE", "http://q/")];
        assert_eq!(read("env", &both).unwrap(), all(["", "http://q", "http://q"]));
    }

    #[test]
    fn invalid_endpoints_and_accounts_are_refused() {
        for option in ["", "localhost:4566", "https://a", "http://", "http://a b"] {
            let refused = read(option, &[]).unwrap_err();
            assert_eq!(refused, InvalidExternalEndpoints::NotHttp(option.to_owned()));
        }
        let endpoints = ExternalEndpoints::from_option("http://a", |_| None).unwrap();
        for account in ["", "12345678901", "12345678901x"] {
            assert!(endpoints.clone().in_account(account.to_owned()).is_err());
        }
        assert!(endpoints.in_account("123456789012".to_owned()).is_ok());
    }
}
