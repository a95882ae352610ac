//! A client of a deployment: on AWS, or wherever `AWS_ENDPOINT_URL` points.

use anyhow::{Context, Result};
use aws_config::{BehaviorVersion, Region, SdkConfig};
use clap::Args;
use steward_aws::{definitions::DynamoDefinitions, store::DynamoStore};
use steward_local::resources;

/// Which deployment to talk to. The defaults are the names that `steward local` uses. Region,
/// credentials and endpoint come from the AWS environment variables and profile.
#[derive(Debug, Args)]
pub(crate) struct Deployment {
    /// The state store's table.
    #[arg(long, env = "STEWARD_TASKS_TABLE", default_value = resources::TASKS_TABLE)]
    tasks_table: String,
    /// The table of documents.
    #[arg(long, env = "STEWARD_DOCUMENTS_TABLE", default_value = resources::DOCUMENTS_TABLE)]
    documents_table: String,
    /// The table of definitions.
    #[arg(long, env = "STEWARD_WORKFLOWS_TABLE", default_value = resources::WORKFLOWS_TABLE)]
    workflows_table: String,
    /// The submissions queue, by name or URL.
    #[arg(long, env = "STEWARD_SUBMISSIONS_QUEUE_URL", default_value = resources::SUBMISSIONS_QUEUE)]
    submissions_queue: String,
}

impl Deployment {
    /// The state store, to read.
    pub(crate) async fn store(&self) -> DynamoStore {
        let client = aws_sdk_dynamodb_client(&sdk_config().await);
        // A reader makes no index entries and sets no expiry.
        let (shards, retention) = (std::num::NonZeroU32::MIN, std::time::Duration::ZERO);
        let (tasks, documents) = (self.tasks_table.clone(), self.documents_table.clone());
        DynamoStore::new(client, tasks, documents, shards, retention)
    }

    /// The published definitions.
    pub(crate) async fn definitions(&self) -> DynamoDefinitions {
        let client = aws_sdk_dynamodb_client(&sdk_config().await);
        DynamoDefinitions::new(client, self.workflows_table.clone())
    }

    /// A client for the submissions queue, and its URL.
    pub(crate) async fn submissions(&self) -> Result<(aws_sdk_sqs::Client, String)> {
        let client = aws_sdk_sqs::Client::new(&sdk_config().await);
        if self.submissions_queue.contains("://") {
            return Ok((client, self.submissions_queue.clone()));
        }
        let found = client.get_queue_url().queue_name(&self.submissions_queue).send().await;
        let found = found.with_context(|| format!("find queue {}", self.submissions_queue))?;
        let url = found.queue_url.context("the queue has no URL")?;
        Ok((client, url))
    }
}

fn aws_sdk_dynamodb_client(sdk: &SdkConfig) -> steward_aws::store::Client {
    steward_aws::store::Client::new(sdk)
}

/// The AWS environment. At another endpoint than AWS, region and credentials are formalities.
async fn sdk_config() -> SdkConfig {
    let set = |name| std::env::var_os(name).is_some();
    let mut loader = aws_config::defaults(BehaviorVersion::latest());
    if set("AWS_ENDPOINT_URL") {
        if !set("AWS_REGION") && !set("AWS_DEFAULT_REGION") {
            loader = loader.region(Region::from_static("us-east-1"));
        }
        if !set("AWS_ACCESS_KEY_ID") && !set("AWS_PROFILE") {
            loader = loader.test_credentials();
        }
    }
    loader.load().await
}
