//! The configuration with which SDK clients use the embedded AWS.

use aws_config::{
    BehaviorVersion, Region, SdkConfig, identity::IdentityCache,
    stalled_stream_protection::StalledStreamProtectionConfig, timeout::TimeoutConfig,
};
use aws_sdk_dynamodb::config::{Credentials, SharedCredentialsProvider};

use super::{
    account::{ACCOUNT, REGION},
    aws::EmbeddedAws,
    connector::InProcess,
    external::ExternalEndpoints,
    routing_client::routing_client,
};

impl EmbeddedAws {
    /// A configuration for SDK clients that use this instance.
    #[must_use]
    pub fn sdk_config(&self) -> SdkConfig {
        self.sdk_config_of("embedded")
    }

    /// A configuration for SDK clients that sign as `access_key_id`. The embedded SQS reports it as the sender of their
    /// messages.
    #[must_use]
    pub fn sdk_config_of(&self, access_key_id: &str) -> SdkConfig {
        if let Some(external) = &self.services.external {
            let embedded = InProcess::new(self.clone());
            return external_config(&external.endpoints, Some(embedded));
        }
        let credentials = Credentials::builder()
            .access_key_id(access_key_id)
            .secret_access_key("embedded")
            .account_id(ACCOUNT)
            .provider_name("steward-embedded")
            .build();
        SdkConfig::builder()
            .behavior_version(BehaviorVersion::latest())
            .region(Region::from_static(REGION))
            .credentials_provider(SharedCredentialsProvider::new(credentials))
            .http_client(InProcess::new(self.clone()).client())
            // A long poll would count as a stalled stream.
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
            // These settings save work in every request: there is one endpoint, so its rules need no
            // evaluation; no connection can time out; and the credentials never change.
            .endpoint_url(format!("http://{REGION}.embedded.invalid"))
            .timeout_config(TimeoutConfig::disabled())
            .identity_cache(IdentityCache::no_cache())
            .build()
    }
}

/// A configuration for SDK clients that use the endpoints; services without an endpoint use `embedded`.
pub(super) fn external_config(
    endpoints: &ExternalEndpoints,
    embedded: Option<InProcess>,
) -> SdkConfig {
    let credentials = Credentials::builder()
        .access_key_id(endpoints.access_key())
        .secret_access_key("test")
        .provider_name("steward-external")
        .build();
    SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::from_static(REGION))
        .credentials_provider(SharedCredentialsProvider::new(credentials))
        .http_client(routing_client(endpoints.clone(), embedded))
        .endpoint_url(format!("http://{REGION}.external.invalid"))
        .build()
}
