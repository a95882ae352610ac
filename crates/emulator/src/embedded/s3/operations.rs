//! The operations of S3 that Steward uses. `s3s` answers *not implemented* to all others.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use futures_util::stream;
use s3s::{
    S3, S3Error, S3Request, S3Response, S3Result,
    dto::{
        AbortMultipartUploadInput, AbortMultipartUploadOutput, CompleteMultipartUploadInput,
        CompleteMultipartUploadOutput, CopyObjectInput, CopyObjectOutput, CopyObjectResult,
        CopySource, CreateBucketInput, CreateBucketOutput, CreateMultipartUploadInput,
        CreateMultipartUploadOutput, DeleteObjectInput, DeleteObjectOutput, DeleteObjectsInput,
        DeleteObjectsOutput, DeletedObject, ETag, ETagCondition, GetObjectInput, GetObjectOutput,
        HeadObjectInput, HeadObjectOutput, ListObjectsV2Input, ListObjectsV2Output, Object,
        PutObjectInput, PutObjectOutput, StreamingBlob, Timestamp, UploadPartInput,
        UploadPartOutput,
    },
    s3_error,
};
use tokio::io::AsyncReadExt;

use super::objects::{ObjectContent, ObjectRecord, ObjectStore, WriteError, Written};

/// Objects on one page of a list: the limit of S3.
const PAGE_MAX: i32 = 1_000;

/// Bytes that are read from a file at once.
const CHUNK_BYTES: usize = 64 * 1024;

/// The smallest part of an upload in parts, except its last.
const PART_BYTES_MIN: u64 = 5 * 1024 * 1024;

type Answer<T> = S3Result<S3Response<T>>;

/// S3 over the stored objects.
pub(super) struct ObjectOperations {
    objects: Arc<ObjectStore>,
    /// Uploads in parts that are neither complete nor aborted. They end with the process.
    uploads: Mutex<HashMap<String, Upload>>,
}

struct Upload {
    place: (String, String),
    content_type: Option<String>,
    parts: BTreeMap<i32, Written>,
}

impl ObjectOperations {
    pub(super) fn new(objects: Arc<ObjectStore>) -> Self {
        Self { objects, uploads: Mutex::default() }
    }

    fn uploads(&self) -> std::sync::MutexGuard<'_, HashMap<String, Upload>> {
        self.uploads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn object(&self, bucket: &str, key: &str) -> S3Result<ObjectRecord> {
        if !self.objects.has_bucket(bucket) {
            return Err(s3_error!(NoSuchBucket));
        }
        self.objects.object(bucket, key).ok_or_else(|| s3_error!(NoSuchKey))
    }

    async fn write(&self, bucket: &str, body: Option<StreamingBlob>) -> S3Result<Written> {
        if !self.objects.has_bucket(bucket) {
            return Err(s3_error!(NoSuchBucket));
        }
        let written = match body {
            Some(body) => self.objects.write(body).await,
            None => self.objects.write(stream::empty::<Result<Bytes, WriteError>>()).await,
        };
        written.map_err(|error| refused_write(&error))
    }
}

fn refused_write(error: &WriteError) -> S3Error {
    match error {
        WriteError::TooLarge => s3_error!(EntityTooLarge),
        WriteError::Incomplete => s3_error!(IncompleteBody),
        WriteError::Io(error) => failed(error),
    }
}

fn failed(error: &std::io::Error) -> S3Error {
    s3_error!(InternalError, "the embedded S3 cannot use its files: {error}")
}

fn existing() -> S3Error {
    s3_error!(PreconditionFailed, "At least one of the pre-conditions you specified did not hold")
}

fn is_only_new(condition: Option<&ETagCondition>) -> bool {
    condition.is_some_and(ETagCondition::is_any)
}

/// The file of an object as a stream.
async fn file_stream(path: std::path::PathBuf) -> std::io::Result<StreamingBlob> {
    let file = tokio::fs::File::open(path).await?;
    let chunks = stream::try_unfold(file, |mut file| async move {
        let mut chunk = vec![0; CHUNK_BYTES];
        let bytes = file.read(&mut chunk).await?;
        chunk.truncate(bytes);
        Ok::<_, std::io::Error>((bytes > 0).then(|| (Bytes::from(chunk), file)))
    });
    Ok(StreamingBlob::wrap(chunks))
}

fn length(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

fn modified(object: &ObjectRecord) -> Option<Timestamp> {
    Some(Timestamp::from(object.modified()))
}

fn etag(object: &ObjectRecord) -> Option<ETag> {
    Some(ETag::Strong(object.etag.clone()))
}

#[async_trait::async_trait]
impl S3 for ObjectOperations {
    async fn create_bucket(
        &self,
        request: S3Request<CreateBucketInput>,
    ) -> Answer<CreateBucketOutput> {
        self.objects.create_bucket(&request.input.bucket).map_err(|error| failed(&error))?;
        Ok(S3Response::new(CreateBucketOutput::default()))
    }

    async fn put_object(&self, request: S3Request<PutObjectInput>) -> Answer<PutObjectOutput> {
        let PutObjectInput {
            bucket,
            key,
            body,
            content_length,
            content_type,
            checksum_sha256,
            if_none_match,
            ..
        } = request.input;
        let written = self.write(&bucket, body).await?;
        let digest = BASE64_STANDARD.encode(written.sha256);
        if content_length.is_some_and(|announced| announced != length(written.bytes)) {
            self.objects.discard(&written);
            return Err(s3_error!(IncompleteBody));
        }
        if checksum_sha256.as_ref().is_some_and(|sent| *sent != digest) {
            self.objects.discard(&written);
            return Err(s3_error!(
                BadDigest,
                "The SHA256 you specified did not match the calculated checksum."
            ));
        }
        let content = ObjectContent {
            etag: written.md5.clone(),
            sha256: checksum_sha256.clone(),
            content_type,
        };
        let only_new = is_only_new(if_none_match.as_ref());
        let object = self.objects.commit((&bucket, &key), written, content, only_new);
        let object = object.map_err(|error| failed(&error))?.ok_or_else(existing)?;
        let output =
            PutObjectOutput { e_tag: etag(&object), checksum_sha256, ..Default::default() };
        Ok(S3Response::new(output))
    }

    async fn get_object(&self, request: S3Request<GetObjectInput>) -> Answer<GetObjectOutput> {
        let GetObjectInput { bucket, key, range, .. } = request.input;
        if range.is_some() {
            return Err(s3_error!(NotImplemented, "the embedded S3 serves no ranges"));
        }
        let object = self.object(&bucket, &key)?;
        let body = file_stream(self.objects.path(&object)).await.map_err(|error| failed(&error))?;
        Ok(S3Response::new(GetObjectOutput {
            body: Some(body),
            content_length: Some(length(object.bytes)),
            content_type: object.content_type.clone(),
            checksum_sha256: object.sha256.clone(),
            e_tag: etag(&object),
            last_modified: modified(&object),
            ..Default::default()
        }))
    }

    async fn head_object(&self, request: S3Request<HeadObjectInput>) -> Answer<HeadObjectOutput> {
        let object = self.object(&request.input.bucket, &request.input.key)?;
        Ok(S3Response::new(HeadObjectOutput {
            content_length: Some(length(object.bytes)),
            content_type: object.content_type.clone(),
            checksum_sha256: object.sha256.clone(),
            e_tag: etag(&object),
            last_modified: modified(&object),
            ..Default::default()
        }))
    }

    async fn copy_object(&self, request: S3Request<CopyObjectInput>) -> Answer<CopyObjectOutput> {
        let CopyObjectInput { bucket, key, copy_source, copy_source_if_match, .. } = request.input;
        let CopySource::Bucket { bucket: from_bucket, key: from_key, .. } = copy_source else {
            return Err(s3_error!(NotImplemented));
        };
        let from = self.object(&from_bucket, &from_key)?;
        let matches = match &copy_source_if_match {
            Some(ETagCondition::ETag(wanted)) => wanted.value() == from.etag,
            Some(ETagCondition::Any) | None => true,
        };
        if !matches {
            return Err(existing());
        }
        let copied = self.objects.copy(&from, &bucket, &key).map_err(|error| failed(&error))?;
        let copied = copied.ok_or_else(existing)?;
        let result = CopyObjectResult {
            e_tag: etag(&copied),
            last_modified: modified(&copied),
            ..Default::default()
        };
        let output = CopyObjectOutput { copy_object_result: Some(result), ..Default::default() };
        Ok(S3Response::new(output))
    }

    async fn delete_object(
        &self,
        request: S3Request<DeleteObjectInput>,
    ) -> Answer<DeleteObjectOutput> {
        let DeleteObjectInput { bucket, key, .. } = request.input;
        self.objects.delete(&bucket, &key).map_err(|error| failed(&error))?;
        Ok(S3Response::new(DeleteObjectOutput::default()))
    }

    async fn delete_objects(
        &self,
        request: S3Request<DeleteObjectsInput>,
    ) -> Answer<DeleteObjectsOutput> {
        let DeleteObjectsInput { bucket, delete, .. } = request.input;
        let mut deleted = Vec::new();
        for object in delete.objects {
            self.objects.delete(&bucket, &object.key).map_err(|error| failed(&error))?;
            deleted.push(DeletedObject { key: Some(object.key), ..Default::default() });
        }
        let output = DeleteObjectsOutput { deleted: Some(deleted), ..Default::default() };
        Ok(S3Response::new(output))
    }

    async fn list_objects_v2(
        &self,
        request: S3Request<ListObjectsV2Input>,
    ) -> Answer<ListObjectsV2Output> {
        let ListObjectsV2Input {
            bucket, prefix, start_after, continuation_token, max_keys, ..
        } = request.input;
        if !self.objects.has_bucket(&bucket) {
            return Err(s3_error!(NoSuchBucket));
        }
        let max = max_keys.unwrap_or(PAGE_MAX).clamp(0, PAGE_MAX);
        let max = usize::try_from(max).unwrap_or_default();
        let after = continuation_token.or(start_after).unwrap_or_default();
        let prefix = prefix.unwrap_or_default();
        let mut found = self.objects.list(&bucket, &prefix, &after, max + 1);
        let is_truncated = found.len() > max;
        found.truncate(max);
        let next = found.last().map(|object| object.key.clone()).filter(|_| is_truncated);
        let contents = found.iter().map(|object| Object {
            key: Some(object.key.clone()),
            size: Some(length(object.bytes)),
            e_tag: etag(object),
            last_modified: modified(object),
            ..Default::default()
        });
        Ok(S3Response::new(ListObjectsV2Output {
            contents: Some(contents.collect()),
            key_count: i32::try_from(found.len()).ok(),
            is_truncated: Some(is_truncated),
            next_continuation_token: next,
            prefix: Some(prefix),
            name: Some(bucket),
            ..Default::default()
        }))
    }

    async fn create_multipart_upload(
        &self,
        request: S3Request<CreateMultipartUploadInput>,
    ) -> Answer<CreateMultipartUploadOutput> {
        let CreateMultipartUploadInput { bucket, key, content_type, .. } = request.input;
        let id = uuid::Uuid::new_v4().simple().to_string();
        let place = (bucket.clone(), key.clone());
        let upload = Upload { place, content_type, parts: BTreeMap::new() };
        self.uploads().insert(id.clone(), upload);
        Ok(S3Response::new(CreateMultipartUploadOutput {
            bucket: Some(bucket),
            key: Some(key),
            upload_id: Some(id),
            ..Default::default()
        }))
    }

    async fn upload_part(&self, request: S3Request<UploadPartInput>) -> Answer<UploadPartOutput> {
        let UploadPartInput { bucket, body, upload_id, part_number, .. } = request.input;
        let written = self.write(&bucket, body).await?;
        let output = UploadPartOutput {
            e_tag: Some(ETag::Strong(written.md5.clone())),
            ..Default::default()
        };
        let mut uploads = self.uploads();
        let Some(upload) = uploads.get_mut(&upload_id) else {
            self.objects.discard(&written);
            return Err(s3_error!(NoSuchUpload));
        };
        if let Some(earlier) = upload.parts.insert(part_number, written) {
            self.objects.discard(&earlier);
        }
        Ok(S3Response::new(output))
    }

    async fn complete_multipart_upload(
        &self,
        request: S3Request<CompleteMultipartUploadInput>,
    ) -> Answer<CompleteMultipartUploadOutput> {
        let CompleteMultipartUploadInput {
            bucket,
            key,
            upload_id,
            multipart_upload,
            if_none_match,
            ..
        } = request.input;
        let upload = self.uploads().remove(&upload_id);
        let upload = upload.filter(|upload| upload.place == (bucket.clone(), key.clone()));
        let upload = upload.ok_or_else(|| s3_error!(NoSuchUpload))?;
        let parts: Vec<_> = upload.parts.into_values().collect();
        let named = multipart_upload.and_then(|upload| upload.parts).unwrap_or_default().len();
        let inner = parts.len().saturating_sub(1);
        if named != parts.len() {
            return Err(s3_error!(InvalidPart));
        }
        if parts.iter().take(inner).any(|part| part.bytes < PART_BYTES_MIN) {
            return Err(s3_error!(EntityTooSmall));
        }
        let written = self.objects.join(&parts).await.map_err(|error| refused_write(&error))?;
        parts.iter().for_each(|part| self.objects.discard(part));
        let content = ObjectContent {
            etag: format!("{}-{}", written.md5, parts.len()),
            sha256: None,
            content_type: upload.content_type,
        };
        let only_new = is_only_new(if_none_match.as_ref());
        let object = self.objects.commit((&bucket, &key), written, content, only_new);
        let object = object.map_err(|error| failed(&error))?.ok_or_else(existing)?;
        Ok(S3Response::new(CompleteMultipartUploadOutput {
            bucket: Some(bucket),
            key: Some(key),
            e_tag: etag(&object),
            ..Default::default()
        }))
    }

    async fn abort_multipart_upload(
        &self,
        request: S3Request<AbortMultipartUploadInput>,
    ) -> Answer<AbortMultipartUploadOutput> {
        let upload = self.uploads().remove(&request.input.upload_id);
        let upload = upload.ok_or_else(|| s3_error!(NoSuchUpload))?;
        upload.parts.values().for_each(|part| self.objects.discard(part));
        Ok(S3Response::new(AbortMultipartUploadOutput::default()))
    }
}
