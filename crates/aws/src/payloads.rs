//! Payloads in an S3 bucket. [`transfer`] streams them.

use std::time::Duration;

use aws_config::{SdkConfig, timeout::TimeoutConfig};
use aws_sdk_s3::{
    Client,
    config::RequestChecksumCalculation,
    operation::head_object::HeadObjectOutput,
    presigning::PresigningConfig,
    types::{ChecksumMode, Delete, MetadataDirective, ObjectIdentifier},
};
use aws_smithy_runtime_api::client::interceptors::SharedInterceptor;
use jiff::Timestamp;
use steward_core::model::payload::{PayloadKey, PayloadReference, Sha256Hex, TASKS};
use steward_runtime::{
    payloads::{
        Claim, ClaimOutcome, EXPIRED, MISSING, OTHER_DIGEST, OTHER_SIZE, PayloadFuture,
        PayloadPage, PayloadStore, StoredPayload, UploadRequest,
    },
    ports::PortError,
};

use crate::{
    config::Config,
    errors::{corrupt, failed},
};

pub mod transfer;

/// The time limit of one attempt at a request, without the body of its response. A copy of 64 MiB takes a second.
const ATTEMPT_WITHIN: Duration = Duration::from_secs(20);

/// The time limit of a request with all its attempts.
const OPERATION_WITHIN: Duration = Duration::from_secs(25);

/// The bucket of payloads. Clones share the connections.
#[derive(Debug, Clone)]
pub struct S3Payloads {
    client: Client,
    /// Signs the URLs of uploads.
    signer: Client,
    bucket: String,
}

impl S3Payloads {
    /// The bucket of the configuration, if it names one.
    #[must_use]
    pub fn configured(
        sdk: &SdkConfig,
        config: &Config,
        interceptors: Vec<SharedInterceptor>,
    ) -> Option<Self> {
        let Config { payloads_bucket: bucket, payloads_url: url, .. } = config;
        (!bucket.is_empty()).then(|| Self::connect(sdk, bucket.clone(), url, interceptors))
    }

    /// The bucket of this name, for a command.
    #[must_use]
    pub fn new(sdk: &SdkConfig, bucket: String) -> Self {
        Self::connect(sdk, bucket, "", Vec::new())
    }

    fn connect(
        sdk: &SdkConfig,
        bucket: String,
        url: &str,
        interceptors: Vec<SharedInterceptor>,
    ) -> Self {
        let mut settings = aws_sdk_s3::config::Builder::from(sdk)
            // The digest in the reference protects the content; a checksum in a trailer would need another signature.
            .request_checksum_calculation(RequestChecksumCalculation::WhenRequired)
            // An emulator at an address of its own has no names for its buckets.
            .force_path_style(sdk.endpoint_url().is_some())
            .timeout_config(
                TimeoutConfig::builder()
                    .operation_attempt_timeout(ATTEMPT_WITHIN)
                    .operation_timeout(OPERATION_WITHIN)
                    .build(),
            );
        for interceptor in interceptors {
            settings.push_interceptor(interceptor);
        }
        let signer = match url {
            "" => settings.clone(),
            url => settings.clone().endpoint_url(url).force_path_style(true),
        };
        let (client, signer) =
            (Client::from_conf(settings.build()), Client::from_conf(signer.build()));
        Self { client, signer, bucket }
    }

    /// What S3 says about an object; `None` if there is none.
    async fn head(&self, key: &PayloadKey) -> Result<Option<HeadObjectOutput>, PortError> {
        let head = self.client.head_object().bucket(&self.bucket).key(key.as_str());
        match head.checksum_mode(ChecksumMode::Enabled).send().await {
            Ok(object) => Ok(Some(object)),
            // The response to HEAD has no body, so no error code either.
            Err(error) if status(&error) == Some(404) => Ok(None),
            Err(error) => Err(failed(format!("look up payload {key}"))(error)),
        }
    }

    async fn check_and_copy(&self, claim: &Claim) -> Result<ClaimOutcome, PortError> {
        let Claim { source, target, expired_before } = claim;
        let Some(object) = self.head(&source.key).await? else {
            return Ok(ClaimOutcome::Refused(MISSING));
        };
        if let Some(reason) = difference(&object, source, *expired_before) {
            return Ok(ClaimOutcome::Refused(reason));
        }
        let etag = object.e_tag.ok_or_else(|| "no ETag".into());
        let etag = etag.map_err(corrupt(format!("look up payload {}", source.key)))?;
        let copy = self.client.copy_object().bucket(&self.bucket).key(target.as_str());
        let copy = copy.copy_source(format!("{}/{}", self.bucket, copy_source(&source.key)));
        let copy = copy.copy_source_if_match(etag).metadata_directive(MetadataDirective::Copy);
        match copy.send().await {
            Ok(_) => Ok(ClaimOutcome::Claimed),
            Err(error) if status(&error) == Some(404) => Ok(ClaimOutcome::Refused(MISSING)),
            Err(error) => Err(failed(format!("copy payload {} to {target}", source.key))(error)),
        }
    }

    async fn sign_upload(
        &self,
        reference: &PayloadReference,
        valid_for: Duration,
    ) -> Result<UploadRequest, PortError> {
        let PayloadReference { key, bytes, sha256, content_type, .. } = reference;
        let operation = || format!("sign the upload of payload {key}");
        let expiry = PresigningConfig::expires_in(valid_for);
        let expiry = expiry.map_err(|error| corrupt(operation())(error.into()))?;
        let put = self.signer.put_object().bucket(&self.bucket).key(key.as_str());
        let put = put.content_length(i64::try_from(*bytes).unwrap_or(i64::MAX));
        let put = put.content_type(content_type.as_str()).checksum_sha256(base64(sha256));
        // An upload is never replaced: the same URL is of no use a second time.
        let signed = put.if_none_match("*").presigned(expiry).await.map_err(failed(operation()))?;
        let headers = signed.headers().filter(|(name, _)| !name.eq_ignore_ascii_case("host"));
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Ok(UploadRequest { url: signed.uri().to_owned(), headers })
    }

    /// The keys of all payloads that begin with this prefix. For a command: no function of a deployment does this.
    ///
    /// # Errors
    /// The bucket cannot be listed.
    pub async fn keys_under(&self, prefix: &str) -> Result<Vec<PayloadKey>, PortError> {
        let (mut keys, mut after) = (Vec::new(), None);
        loop {
            let page = self.list(prefix, after.as_deref()).await?;
            keys.extend(page.payloads.into_iter().map(|payload| payload.key));
            after = page.next;
            if after.is_none() {
                return Ok(keys);
            }
        }
    }

    async fn list(&self, prefix: &str, after: Option<&str>) -> Result<PayloadPage, PortError> {
        let list = self.client.list_objects_v2().bucket(&self.bucket).prefix(prefix);
        let list = list.set_start_after(after.map(str::to_owned));
        let page = list.send().await.map_err(failed("list payloads"))?;
        let is_truncated = page.is_truncated.unwrap_or_default();
        let objects = page.contents.unwrap_or_default();
        let last = objects.last().and_then(|object| object.key.clone());
        let payloads = objects.into_iter().filter_map(|object| {
            // An object that Steward did not store is none of its business.
            let key = object.key?.try_into().ok()?;
            let stored_at = Timestamp::from_second(object.last_modified?.secs()).ok()?;
            Some(StoredPayload { key, stored_at })
        });
        Ok(PayloadPage { payloads: payloads.collect(), next: last.filter(|_| is_truncated) })
    }

    async fn delete_all(&self, keys: &[PayloadKey]) -> Result<(), PortError> {
        const OPERATION: &str = "delete payloads";
        if keys.is_empty() {
            return Ok(());
        }
        let objects = keys.iter().map(|key| ObjectIdentifier::builder().key(key.as_str()).build());
        let objects = objects.collect::<Result<Vec<_>, _>>();
        let delete = objects
            .and_then(|objects| Delete::builder().set_objects(Some(objects)).quiet(true).build());
        let delete = delete.map_err(|error| corrupt(OPERATION)(error.into()))?;
        let deleted = self.client.delete_objects().bucket(&self.bucket).delete(delete);
        let deleted = deleted.send().await.map_err(failed(OPERATION))?;
        match deleted.errors().first() {
            None => Ok(()),
            Some(error) => {
                let code = error.code().unwrap_or_default();
                Err(corrupt(OPERATION)(format!("S3 refused it with {code}").into()))
            }
        }
    }
}

/// Why an object is not what its reference says, or may not be used any more.
fn difference(
    object: &HeadObjectOutput,
    reference: &PayloadReference,
    expired_before: Timestamp,
) -> Option<&'static str> {
    let bytes = object.content_length.and_then(|bytes| u64::try_from(bytes).ok());
    if bytes != Some(reference.bytes) {
        return Some(OTHER_SIZE);
    }
    // The digests of objects that agents have stored in parts are not those of their whole content.
    if !reference.key.is_upload() {
        return None;
    }
    if object.checksum_sha256.as_deref() != Some(&base64(&reference.sha256)) {
        return Some(OTHER_DIGEST);
    }
    let uploaded_at = object.last_modified.as_ref().map(aws_smithy_types::DateTime::secs);
    let is_expired = uploaded_at.is_none_or(|at| at < expired_before.as_second());
    is_expired.then_some(EXPIRED)
}

/// A key in the header with the source of a copy. The characters of keys need no other encoding.
fn copy_source(key: &PayloadKey) -> String {
    key.as_str().replace('@', "%40").replace(':', "%3A")
}

/// A digest as S3 writes it.
fn base64(sha256: &Sha256Hex) -> String {
    aws_smithy_types::base64::encode(sha256.digest())
}

/// The HTTP status of an error, if there was a response.
fn status<E>(
    error: &aws_sdk_s3::error::SdkError<
        E,
        aws_smithy_runtime_api::client::orchestrator::HttpResponse,
    >,
) -> Option<u16> {
    error.raw_response().map(|response| response.status().as_u16())
}

impl PayloadStore for S3Payloads {
    fn claim<'a>(&'a self, claim: &'a Claim) -> PayloadFuture<'a, ClaimOutcome> {
        Box::pin(self.check_and_copy(claim))
    }

    fn upload_request<'a>(
        &'a self,
        reference: &'a PayloadReference,
        valid_for: Duration,
    ) -> PayloadFuture<'a, UploadRequest> {
        Box::pin(self.sign_upload(reference, valid_for))
    }

    fn task_payloads<'a>(&'a self, after: Option<&'a str>) -> PayloadFuture<'a, PayloadPage> {
        Box::pin(self.list(TASKS, after))
    }

    fn delete<'a>(&'a self, keys: &'a [PayloadKey]) -> PayloadFuture<'a, ()> {
        Box::pin(self.delete_all(keys))
    }
}
