//! What a call of an AWS API needs to know about its service: the host, the name in signatures, and the protocol. The facts
//! are those of the service models of botocore 1.44.8 (`endpointPrefix`, `signingName`, `protocols`, `jsonVersion`,
//! `targetPrefix`, `apiVersion`) and of its endpoint rule sets.
//!
//! The services of this table are called by the name of an operation alone. Every other service counts as one with a REST
//! API, whose operations have a method and a path of their own.

/// The region of services that have only one.
const GLOBAL_REGION: &str = "us-east-1";

/// A service with an API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AwsService<'a> {
    /// Its prefix in IAM actions, or the name of its host if that prefix has several APIs.
    pub name: &'a str,
    /// The beginning of its host, before the region.
    host: &'a str,
    /// Its name in signatures.
    pub signing_name: &'a str,
    /// How it is called.
    pub protocol: AwsProtocol,
    /// The host, if there is one for all regions.
    global_host: Option<&'a str>,
}

/// How the operations of a service are called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AwsProtocol {
    /// A POST of JSON to `/`, with the operation in `X-Amz-Target`.
    Json {
        /// The version in the content type.
        version: &'static str,
        /// What precedes the operation in `X-Amz-Target`.
        target: &'static str,
    },
    /// A POST of a form to `/`, with the operation as `Action`. The response is XML.
    Query {
        /// The version of the API.
        version: &'static str,
        /// How the parameters name the elements of a list.
        lists: QueryLists,
        /// The members of operations that are maps. All other objects are structures.
        maps: &'static [QueryMap],
    },
    /// Each operation has a method and a path.
    Rest,
}

/// How the parameters of a form name the elements of the list `A`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueryLists {
    /// `A.member.1`.
    Member,
    /// `A.1`.
    Number,
    /// `A.NAME.1`, with a name of the list's own. The parameters must be given as the service names them.
    Named,
}

/// A map `A` in the parameters of a form: `A.entry.1.KEY` and `A.entry.1.VALUE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueryMap {
    /// The name of the map.
    pub name: &'static str,
    /// What names the key of an entry.
    pub key: &'static str,
    /// What names the value of an entry.
    pub value: &'static str,
}

/// The maps of SNS.
const SNS_MAPS: [QueryMap; 3] = [
    QueryMap { name: "Attributes", key: "key", value: "value" },
    QueryMap { name: "MessageAttributes", key: "Name", value: "Value" },
    QueryMap { name: "attributes", key: "key", value: "value" },
];

/// The services that are known, in the order of their names.
const SERVICES: [AwsService<'static>; 59] = [
    json("acm", "1.1", "CertificateManager"),
    json("application-autoscaling", "1.1", "AnyScaleFrontendService"),
    json("athena", "1.1", "AmazonAthena"),
    query("autoscaling", "2011-01-01", QueryLists::Member),
    rest("bedrock-agent-runtime").signed_as("bedrock"),
    rest("bedrock-runtime").signed_as("bedrock"),
    json("ce", "1.1", "AWSInsightsIndexService").global("ce.us-east-1.amazonaws.com"),
    query("cloudformation", "2010-05-15", QueryLists::Member),
    json("cloudtrail", "1.1", "com.amazonaws.cloudtrail.v20131101.CloudTrail_20131101"),
    json("cloudwatch", "1.0", "GraniteServiceVersion20100801")
        .at("monitoring")
        .signed_as("monitoring"),
    json("codebuild", "1.1", "CodeBuild_20161006"),
    json("codedeploy", "1.1", "CodeDeploy_20141006"),
    json("codepipeline", "1.1", "CodePipeline_20150709"),
    json("cognito-idp", "1.1", "AWSCognitoIdentityProviderService"),
    json("comprehend", "1.1", "Comprehend_20171127"),
    json("config", "1.1", "StarlingDoveService"),
    json("datasync", "1.1", "FmrsService"),
    json("dms", "1.1", "AmazonDMSv20160101"),
    json("ds", "1.1", "DirectoryService_20150416"),
    json("dynamodb", "1.0", "DynamoDB_20120810"),
    query("ec2", "2016-11-15", QueryLists::Number),
    json("ecr", "1.1", "AmazonEC2ContainerRegistry_V20150921").at("api.ecr"),
    json("ecs", "1.1", "AmazonEC2ContainerServiceV20141113"),
    query("elasticache", "2015-02-02", QueryLists::Named),
    query("elasticloadbalancing", "2015-12-01", QueryLists::Member),
    json("elasticmapreduce", "1.1", "ElasticMapReduce"),
    json("events", "1.1", "AWSEvents"),
    json("firehose", "1.1", "Firehose_20150804"),
    json("forecast", "1.1", "AmazonForecast"),
    json("glue", "1.1", "AWSGlue"),
    query("iam", "2010-05-08", QueryLists::Member).global("iam.amazonaws.com"),
    json("kinesis", "1.1", "Kinesis_20131202"),
    json("kms", "1.1", "TrentService"),
    rest("lex").at("runtime-v2-lex"),
    json("logs", "1.1", "Logs_20140328"),
    json("organizations", "1.1", "AWSOrganizationsV20161128")
        .global("organizations.us-east-1.amazonaws.com"),
    json("personalize", "1.1", "AmazonPersonalize"),
    query("rds", "2014-10-31", QueryLists::Named),
    query("redshift", "2012-12-01", QueryLists::Named),
    json("redshift-data", "1.1", "RedshiftData"),
    json("rekognition", "1.1", "RekognitionService"),
    rest("route53").global("route53.amazonaws.com"),
    json("sagemaker", "1.1", "SageMaker").at("api.sagemaker"),
    json("secretsmanager", "1.1", "secretsmanager"),
    json("servicediscovery", "1.1", "Route53AutoNaming_v20170314"),
    rest("ses").at("email"),
    query("sns", "2010-03-31", QueryLists::Member).with_maps(&SNS_MAPS),
    json("sqs", "1.0", "AmazonSQS"),
    json("ssm", "1.1", "AmazonSSM"),
    json("states", "1.0", "AWSStepFunctions"),
    json("storagegateway", "1.1", "StorageGateway_20130630"),
    query("sts", "2011-06-15", QueryLists::Member),
    json("support", "1.1", "AWSSupport_20130415").global("support.us-east-1.amazonaws.com"),
    json("swf", "1.0", "SimpleWorkflowService"),
    json("textract", "1.1", "Textract"),
    json("transcribe", "1.1", "Transcribe"),
    json("translate", "1.1", "AWSShineFrontendService_20170701"),
    json("wafv2", "1.1", "AWSWAF_20190729"),
    json("workspaces", "1.1", "WorkspacesService"),
];

const fn service(name: &str, protocol: AwsProtocol) -> AwsService<'_> {
    AwsService { name, host: name, signing_name: name, protocol, global_host: None }
}

const fn json(
    name: &'static str,
    version: &'static str,
    target: &'static str,
) -> AwsService<'static> {
    service(name, AwsProtocol::Json { version, target })
}

const fn query(
    name: &'static str,
    version: &'static str,
    lists: QueryLists,
) -> AwsService<'static> {
    service(name, AwsProtocol::Query { version, lists, maps: &[] })
}

const fn rest(name: &str) -> AwsService<'_> {
    service(name, AwsProtocol::Rest)
}

impl<'a> AwsService<'a> {
    const fn at(self, host: &'a str) -> Self {
        Self { host, ..self }
    }

    const fn signed_as(self, signing_name: &'a str) -> Self {
        Self { signing_name, ..self }
    }

    const fn with_maps(self, maps: &'static [QueryMap]) -> Self {
        let protocol = match self.protocol {
            AwsProtocol::Query { version, lists, .. } => {
                AwsProtocol::Query { version, lists, maps }
            }
            other @ (AwsProtocol::Json { .. } | AwsProtocol::Rest) => other,
        };
        Self { protocol, ..self }
    }

    const fn global(self, host: &'a str) -> Self {
        Self { global_host: Some(host), ..self }
    }

    /// The service with this prefix in IAM actions. One that is not known has a REST API, and a host of that name.
    #[must_use]
    pub fn named(name: &'a str) -> Self {
        let known = SERVICES.iter().find(|service| service.name == name);
        known.copied().unwrap_or_else(|| rest(name))
    }

    /// The names of the services whose operations need no path.
    pub fn called_by_name() -> impl Iterator<Item = &'static str> {
        let by_name = SERVICES.iter().filter(|service| service.protocol != AwsProtocol::Rest);
        by_name.map(|service| service.name)
    }

    /// The prefix of the service in IAM actions.
    #[must_use]
    pub fn iam_prefix(&self) -> &'a str {
        match self.name {
            "bedrock-agent-runtime" | "bedrock-runtime" => "bedrock",
            name => name,
        }
    }

    /// The region that signs and serves a call, given that of the caller.
    #[must_use]
    pub fn region(&self, callers: &'a str) -> &'a str {
        if self.global_host.is_some() { GLOBAL_REGION } else { callers }
    }

    /// The URL of the service in a region, without a trailing slash.
    #[must_use]
    pub fn endpoint(&self, region: &str) -> String {
        let suffix = if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" };
        match self.global_host {
            Some(host) => format!("https://{host}"),
            None => format!("https://{}.{region}.{suffix}", self.host),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_service_is_in_the_table_once() {
        let names: BTreeSet<_> = SERVICES.iter().map(|service| service.name).collect();
        assert_eq!(names.len(), SERVICES.len());
    }

    #[test]
    fn the_host_and_the_scope_follow_from_the_service_and_the_region() {
        for (name, region, endpoint, scope) in [
            (
                "dynamodb",
                "eu-west-1",
                "https://dynamodb.eu-west-1.amazonaws.com",
                "dynamodb/eu-west-1",
            ),
            ("sqs", "cn-north-1", "https://sqs.cn-north-1.amazonaws.com.cn", "sqs/cn-north-1"),
            ("ecr", "eu-west-1", "https://api.ecr.eu-west-1.amazonaws.com", "ecr/eu-west-1"),
            (
                "cloudwatch",
                "us-gov-west-1",
                "https://monitoring.us-gov-west-1.amazonaws.com",
                "monitoring/us-gov-west-1",
            ),
            ("iam", "eu-west-1", "https://iam.amazonaws.com", "iam/us-east-1"),
            ("ses", "eu-west-1", "https://email.eu-west-1.amazonaws.com", "ses/eu-west-1"),
            (
                "bedrock-runtime",
                "eu-west-1",
                "https://bedrock-runtime.eu-west-1.amazonaws.com",
                "bedrock/eu-west-1",
            ),
            ("batch", "eu-west-1", "https://batch.eu-west-1.amazonaws.com", "batch/eu-west-1"),
        ] {
            let service = AwsService::named(name);
            assert_eq!(service.endpoint(region), endpoint);
            assert_eq!(format!("{}/{}", service.signing_name, service.region(region)), scope);
        }
    }
}
