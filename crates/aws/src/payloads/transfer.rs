//! Reads and writes payloads as streams, with bounded memory.

use aws_sdk_s3::{
    operation::get_object::GetObjectOutput,
    primitives::ByteStream,
    types::{CompletedMultipartUpload, CompletedPart},
};
use aws_smithy_types::body::SdkBody;
use sha2::{Digest, Sha256};
use steward_core::{
    limits::PAYLOAD_BYTES_MAX,
    model::payload::{ContentType, PayloadKey, PayloadReference, Sha256Hex},
};
use steward_runtime::ports::PortError;

use super::{S3Payloads, base64, status};
use crate::errors::{corrupt, failed};

/// The bytes of a part, which are held in memory until it is stored: the minimum of S3.
pub const PART_BYTES: usize = 5 * 1024 * 1024;

/// A source of bytes: the response of a service.
pub trait Chunks: Send {
    /// The error of the source.
    type Error: Send;

    /// The next bytes; `None` at the end.
    fn next(&mut self) -> impl Future<Output = Result<Option<bytes::Bytes>, Self::Error>> + Send;
}

/// Why a payload could not be stored.
#[derive(Debug)]
pub enum StoreFault<E> {
    /// The source failed.
    Source(E),
    /// The source has more than [`PAYLOAD_BYTES_MAX`] bytes.
    TooLarge,
    /// The bucket failed.
    Bucket(PortError),
}

/// An object that is read.
#[derive(Debug)]
pub struct PayloadBody {
    /// Its bytes.
    pub bytes: u64,
    /// Its type.
    pub content_type: ContentType,
    /// Its content.
    pub content: ByteStream,
}

impl S3Payloads {
    /// Opens an object; `None` if there is none.
    ///
    /// # Errors
    /// The bucket failed.
    pub async fn open(&self, key: &PayloadKey) -> Result<Option<PayloadBody>, PortError> {
        let operation = || format!("read payload {key}");
        let get = self.client.get_object().bucket(&self.bucket).key(key.as_str()).send().await;
        let object: GetObjectOutput = match get {
            Ok(object) => object,
            Err(error) if status(&error) == Some(404) => return Ok(None),
            Err(error) => return Err(failed(operation())(error)),
        };
        let bytes = object.content_length.and_then(|bytes| u64::try_from(bytes).ok());
        let bytes = bytes.ok_or_else(|| corrupt(operation())("no Content-Length".into()))?;
        let content_type = object.content_type.and_then(|text| text.try_into().ok());
        let content_type = content_type.unwrap_or_default();
        Ok(Some(PayloadBody { bytes, content_type, content: object.body }))
    }

    /// Stores the bytes of `first` and of `rest` as an object, and returns the reference to it. If there is an object with
    /// this key already, returns the reference to that one: the first delivery of a request wins.
    ///
    /// # Errors
    /// The source or the bucket failed, or the source has too many bytes. Then there is no object.
    pub async fn store<C: Chunks>(
        &self,
        key: PayloadKey,
        content_type: ContentType,
        first: Vec<u8>,
        rest: &mut C,
    ) -> Result<PayloadReference, StoreFault<C::Error>> {
        let mut upload = PartUpload::new(self, key, content_type);
        let stored = upload.run(first, rest).await;
        if stored.is_err() {
            upload.abort().await;
        }
        stored
    }

    /// Stores the content of `reference` under its key.
    ///
    /// # Errors
    /// The bucket failed, or has an object with this key.
    pub async fn upload(
        &self,
        reference: &PayloadReference,
        content: ByteStream,
    ) -> Result<(), PortError> {
        let PayloadReference { key, bytes, sha256, content_type, .. } = reference;
        let put = self.client.put_object().bucket(&self.bucket).key(key.as_str());
        let put = put.content_length(i64::try_from(*bytes).unwrap_or(i64::MAX)).body(content);
        let put = put.content_type(content_type.as_str()).checksum_sha256(base64(sha256));
        let put = put.if_none_match("*").send().await;
        put.map(drop).map_err(failed(format!("upload payload {key}")))
    }

    /// The reference to an object that exists. Its digest is computed from its content.
    async fn reference(&self, key: &PayloadKey) -> Result<PayloadReference, PortError> {
        let operation = || format!("read payload {key}");
        let missing = || corrupt(operation())("there is no such payload".into());
        let body = self.open(key).await?.ok_or_else(missing)?;
        let (mut digest, mut content) = (Sha256::new(), body.content);
        while let Some(chunk) = content.next().await {
            let retry = |error| PortError {
                operation: operation(),
                retryable: true,
                source: Box::new(error),
            };
            digest.update(chunk.map_err(retry)?);
        }
        let sha256 = Sha256Hex::of_digest(&digest.finalize().into());
        Ok(PayloadReference::new(key.clone(), body.bytes, sha256, body.content_type))
    }
}

/// An object that is stored in parts. One that fits in one part is stored with one request.
struct PartUpload<'a> {
    store: &'a S3Payloads,
    key: PayloadKey,
    content_type: ContentType,
    /// The id of the upload in parts, once it has begun.
    id: Option<String>,
    parts: Vec<CompletedPart>,
    digest: Sha256,
    bytes: u64,
}

impl<'a> PartUpload<'a> {
    fn new(store: &'a S3Payloads, key: PayloadKey, content_type: ContentType) -> Self {
        let (digest, parts) = (Sha256::new(), Vec::new());
        Self { store, key, content_type, id: None, parts, digest, bytes: 0 }
    }

    async fn run<C: Chunks>(
        &mut self,
        first: Vec<u8>,
        rest: &mut C,
    ) -> Result<PayloadReference, StoreFault<C::Error>> {
        let mut buffer = Vec::with_capacity(PART_BYTES);
        self.take(&mut buffer, &first)?;
        drop(first);
        while let Some(chunk) = rest.next().await.map_err(StoreFault::Source)? {
            let mut chunk = &chunk[..];
            while !chunk.is_empty() {
                let (now, later) = chunk.split_at(chunk.len().min(PART_BYTES - buffer.len()));
                self.take(&mut buffer, now)?;
                chunk = later;
                if buffer.len() == PART_BYTES {
                    let part = std::mem::replace(&mut buffer, Vec::with_capacity(PART_BYTES));
                    self.store_part(part).await.map_err(StoreFault::Bucket)?;
                }
            }
        }
        self.finish(buffer).await.map_err(StoreFault::Bucket)
    }

    fn take<E>(&mut self, buffer: &mut Vec<u8>, bytes: &[u8]) -> Result<(), StoreFault<E>> {
        self.bytes += bytes.len() as u64;
        if self.bytes > PAYLOAD_BYTES_MAX {
            return Err(StoreFault::TooLarge);
        }
        self.digest.update(bytes);
        buffer.extend_from_slice(bytes);
        Ok(())
    }

    fn operation(&self) -> String {
        format!("store payload {}", self.key)
    }

    async fn store_part(&mut self, part: Vec<u8>) -> Result<(), PortError> {
        let S3Payloads { client, bucket, .. } = self.store;
        if self.id.is_none() {
            let create = client.create_multipart_upload().bucket(bucket).key(self.key.as_str());
            let create = create.content_type(self.content_type.as_str()).send().await;
            let created = create.map_err(failed(self.operation()))?;
            self.id = created.upload_id;
        }
        let number = i32::try_from(self.parts.len() + 1).unwrap_or(i32::MAX);
        let upload = client.upload_part().bucket(bucket).key(self.key.as_str());
        let upload = upload.set_upload_id(self.id.clone()).part_number(number);
        let upload = upload.body(ByteStream::new(SdkBody::from(part))).send().await;
        let etag = upload.map_err(failed(self.operation()))?.e_tag;
        self.parts.push(CompletedPart::builder().part_number(number).set_e_tag(etag).build());
        Ok(())
    }

    /// Stores the last bytes. An object that exists is never replaced.
    async fn finish(&mut self, last: Vec<u8>) -> Result<PayloadReference, PortError> {
        let S3Payloads { client, bucket, .. } = self.store;
        let sha256 = Sha256Hex::of_digest(&self.digest.clone().finalize().into());
        let (key, content_type) = (self.key.clone(), self.content_type.clone());
        let reference = PayloadReference::new(key.clone(), self.bytes, sha256, content_type);
        if self.id.is_none() {
            let PayloadReference { content_type, sha256, .. } = &reference;
            let put = client.put_object().bucket(bucket).key(key.as_str()).if_none_match("*");
            let put = put.content_type(content_type.as_str()).checksum_sha256(base64(sha256));
            return match put.body(ByteStream::new(SdkBody::from(last))).send().await {
                Ok(_) => Ok(reference),
                Err(error) if is_taken(status(&error)) => self.store.reference(&key).await,
                Err(error) => Err(failed(self.operation())(error)),
            };
        }
        if !last.is_empty() {
            self.store_part(last).await?;
        }
        let parts = std::mem::take(&mut self.parts);
        let parts = CompletedMultipartUpload::builder().set_parts(Some(parts)).build();
        let complete = client.complete_multipart_upload().bucket(bucket).key(key.as_str());
        let complete = complete.set_upload_id(self.id.clone()).multipart_upload(parts);
        match complete.if_none_match("*").send().await {
            Ok(_) => Ok(reference),
            Err(error) if is_taken(status(&error)) => self.store.reference(&key).await,
            Err(error) => Err(failed(self.operation())(error)),
        }
    }

    /// Gives up an upload in parts. The lifecycle of the bucket makes up for a failure.
    async fn abort(&self) {
        let Some(id) = &self.id else { return };
        let S3Payloads { client, bucket, .. } = self.store;
        let abort = client.abort_multipart_upload().bucket(bucket).key(self.key.as_str());
        if abort.upload_id(id).send().await.is_err() {
            tracing::debug!(key = %self.key, "upload not aborted; the bucket deletes it");
        }
    }
}

/// Whether the condition failed that there is no object with this key.
fn is_taken(status: Option<u16>) -> bool {
    status == Some(412)
}
