//! The embedded S3: objects as files of a directory, behind the protocol of the crate `s3s`.
//!
//! | module | contents |
//! | --- | --- |
//! | `objects` | the files, and an index of them in memory |
//! | `operations` | the operations of S3 that Steward uses |
//!
//! As in the other embedded services, the signature in a header is not checked. The signature of a presigned URL is: its expiry
//! and its signed headers are what makes it safe to give away.

use std::{path::Path, sync::Arc};

use s3s::{
    Body, HttpError, HttpResponse, S3Result,
    access::{S3Access, S3AccessContext},
    auth::{S3Auth, SecretKey},
    service::{S3Service, S3ServiceBuilder},
};

mod objects;
mod operations;

pub(super) use objects::ObjectStore;
pub use objects::StoreError;
use operations::ObjectOperations;

/// The secret key of the embedded AWS: that of its SDK configuration.
pub(super) const SECRET_KEY: &str = "embedded";

/// The embedded S3. Clones share the objects.
#[derive(Clone)]
pub(super) struct EmbeddedS3 {
    pub(super) objects: Arc<ObjectStore>,
    service: S3Service,
}

impl EmbeddedS3 {
    /// The objects are files in `dir`, or in a temporary directory that is deleted with the last clone.
    pub(super) fn open(dir: Option<&Path>) -> Result<Self, StoreError> {
        let objects = Arc::new(ObjectStore::open(dir)?);
        let mut builder = S3ServiceBuilder::new(ObjectOperations::new(objects.clone()));
        builder.set_auth(OneSecret);
        builder.set_access(Anyone);
        Ok(Self { objects, service: builder.build() })
    }

    /// Whether the path of a request is that of a bucket, or of an object in one.
    pub(super) fn has_bucket(&self, path: &str) -> bool {
        let bucket = path.trim_start_matches('/').split('/').next().unwrap_or_default();
        self.objects.has_bucket(bucket)
    }

    /// Responds to a request.
    pub(super) async fn respond(
        &self,
        mut request: http::Request<Body>,
    ) -> Result<HttpResponse, HttpError> {
        request.headers_mut().remove(http::header::AUTHORIZATION);
        self.service.call(request).await
    }
}

/// Every access key has the same secret.
struct OneSecret;

#[async_trait::async_trait]
impl S3Auth for OneSecret {
    async fn get_secret_key(&self, _access_key: &str) -> S3Result<SecretKey> {
        Ok(SecretKey::from(SECRET_KEY))
    }
}

/// Allows every request: the embedded AWS has no IAM.
struct Anyone;

#[async_trait::async_trait]
impl S3Access for Anyone {
    async fn check(&self, context: &mut S3AccessContext<'_>) -> S3Result<()> {
        let body = context.headers().get("x-amz-content-sha256");
        if body.is_some_and(|body| body.as_bytes().starts_with(b"STREAMING-")) {
            return Err(s3s::s3_error!(
                NotImplemented,
                "The embedded S3 accepts no chunked bodies: set AWS_REQUEST_CHECKSUM_CALCULATION=when_required."
            ));
        }
        if !signs_its_headers(context) {
            return Err(s3s::s3_error!(
                AccessDenied,
                "There were headers present in the request which were not signed"
            ));
        }
        Ok(())
    }
}

/// Whether a presigned URL signs every `x-amz-` header of its request, as S3 requires. Such a header may change what the request does.
fn signs_its_headers(context: &S3AccessContext<'_>) -> bool {
    let query = context.uri().query().unwrap_or_default();
    let mut parameters = form_urlencoded::parse(query.as_bytes());
    let signed = parameters.find(|(name, _)| name == "X-Amz-SignedHeaders");
    signed.is_none_or(|(_, signed)| {
        let mut names = context.headers().keys().filter(|name| name.as_str().starts_with("x-amz-"));
        names.all(|name| signed.split(';').any(|signed| signed == name.as_str()))
    })
}
