//! The objects of the embedded S3. Each is a file with its bytes, and a record: a JSON file that names the bytes and is written
//! last, so that a killed process loses no acknowledged object and leaves no half of one.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;

/// The largest body, in bytes: more than any payload.
pub(in super::super) const BODY_BYTES_MAX: u64 = 128 * 1024 * 1024;

/// The bytes of a hexadecimal digest that name a record.
const RECORD: &str = "json";

/// An object without its bytes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in super::super) struct ObjectRecord {
    pub(super) bucket: String,
    pub(super) key: String,
    /// The name of the file with the bytes.
    file: String,
    pub(super) bytes: u64,
    pub(super) etag: String,
    /// The digest that the writer sent and the store checked, in base64.
    pub(super) sha256: Option<String>,
    pub(super) content_type: Option<String>,
    /// Milliseconds since 1970.
    modified_ms: u64,
}

impl ObjectRecord {
    pub(super) fn modified(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(self.modified_ms)
    }
}

/// Bytes that belong to no object yet.
#[derive(Debug)]
pub(super) struct Written {
    file: String,
    pub(super) bytes: u64,
    /// In hexadecimal digits.
    pub(super) md5: String,
    pub(super) sha256: [u8; 32],
}

/// Why bytes could not be stored.
#[derive(Debug, thiserror::Error)]
pub(super) enum WriteError {
    #[error("more than {BODY_BYTES_MAX} bytes")]
    TooLarge,
    #[error("the body is incomplete")]
    Incomplete,
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The objects cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot open the embedded objects in {}", dir.display())]
pub struct StoreError {
    dir: PathBuf,
    source: io::Error,
}

/// All objects.
#[derive(Debug)]
pub(in super::super) struct ObjectStore {
    dir: PathBuf,
    state: Mutex<State>,
    /// Deletes the directory when the store is dropped.
    _temporary: Option<TempDir>,
}

#[derive(Debug, Default)]
struct State {
    buckets: BTreeSet<String>,
    /// By bucket and key.
    objects: BTreeMap<(String, String), ObjectRecord>,
}

impl ObjectStore {
    pub(super) fn open(dir: Option<&Path>) -> Result<Self, StoreError> {
        let failed = |dir: &Path| {
            let dir = dir.to_owned();
            |source| StoreError { dir, source }
        };
        let temporary = match dir {
            Some(_) => None,
            None => Some(TempDir::new().map_err(failed(Path::new("a temporary directory")))?),
        };
        let dir = dir.or_else(|| temporary.as_ref().map(TempDir::path)).unwrap_or(Path::new("."));
        fs::create_dir_all(dir).map_err(failed(dir))?;
        let state = read(dir).map_err(failed(dir))?;
        Ok(Self { dir: dir.to_owned(), state: Mutex::new(state), _temporary: temporary })
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn has_bucket(&self, bucket: &str) -> bool {
        self.state().buckets.contains(bucket)
    }

    /// Creates a bucket, if there is none of this name.
    pub(super) fn create_bucket(&self, bucket: &str) -> io::Result<()> {
        fs::create_dir_all(self.dir.join("buckets").join(bucket))?;
        self.state().buckets.insert(bucket.to_owned());
        Ok(())
    }

    pub(super) fn object(&self, bucket: &str, key: &str) -> Option<ObjectRecord> {
        self.state().objects.get(&(bucket.to_owned(), key.to_owned())).cloned()
    }

    /// The file with the bytes of an object.
    pub(super) fn path(&self, object: &ObjectRecord) -> PathBuf {
        self.dir.join(&object.file)
    }

    /// Writes bytes to a file, without an object.
    pub(super) async fn write<E>(
        &self,
        mut body: impl Stream<Item = Result<Bytes, E>> + Unpin,
    ) -> Result<Written, WriteError> {
        let file = format!("{}.bytes", uuid::Uuid::new_v4().simple());
        let path = self.dir.join(&file);
        let mut out = tokio::fs::File::create(&path).await?;
        let (mut bytes, mut md5, mut sha256) = (0_u64, md5::Context::new(), Sha256::new());
        let mut written = async || {
            while let Some(chunk) = body.next().await {
                let chunk = chunk.map_err(|_| WriteError::Incomplete)?;
                bytes += chunk.len() as u64;
                if bytes > BODY_BYTES_MAX {
                    return Err(WriteError::TooLarge);
                }
                md5.consume(&chunk);
                sha256.update(&chunk);
                out.write_all(&chunk).await?;
            }
            Ok(out.flush().await?)
        };
        if let Err(error) = written().await {
            fs::remove_file(&path)?;
            return Err(error);
        }
        let (md5, sha256) = (format!("{:x}", md5.compute()), sha256.finalize().into());
        Ok(Written { file, bytes, md5, sha256 })
    }

    /// Writes the bytes of several files to one, in this order.
    pub(super) async fn join(&self, parts: &[Written]) -> Result<Written, WriteError> {
        let chunks = futures_util::stream::iter(parts)
            .then(async |part| tokio::fs::read(self.dir.join(&part.file)).await.map(Bytes::from));
        self.write(Box::pin(chunks)).await
    }

    /// Deletes bytes that belong to no object.
    pub(super) fn discard(&self, written: &Written) {
        // A file that stays is deleted at the next start.
        drop(fs::remove_file(self.dir.join(&written.file)));
    }

    /// Makes written bytes an object. With `only_new`, only if there is no object with this key; returns whether it did.
    pub(super) fn commit(
        &self,
        (bucket, key): (&str, &str),
        written: Written,
        content: ObjectContent,
        only_new: bool,
    ) -> io::Result<Option<ObjectRecord>> {
        let place = (bucket.to_owned(), key.to_owned());
        let mut state = self.state();
        if only_new && state.objects.contains_key(&place) {
            self.discard(&written);
            return Ok(None);
        }
        let modified = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let ObjectContent { etag, sha256, content_type } = content;
        let object = ObjectRecord {
            bucket: place.0.clone(),
            key: place.1.clone(),
            file: written.file,
            bytes: written.bytes,
            etag,
            sha256,
            content_type,
            modified_ms: u64::try_from(modified.as_millis()).unwrap_or_default(),
        };
        self.save(&object)?;
        let earlier = state.objects.insert(place, object.clone());
        if let Some(earlier) = earlier {
            drop(fs::remove_file(self.path(&earlier)));
        }
        Ok(Some(object))
    }

    /// Copies an object.
    pub(super) fn copy(
        &self,
        from: &ObjectRecord,
        bucket: &str,
        key: &str,
    ) -> io::Result<Option<ObjectRecord>> {
        let file = format!("{}.bytes", uuid::Uuid::new_v4().simple());
        let bytes = fs::copy(self.path(from), self.dir.join(&file))?;
        let written = Written { file, bytes, md5: String::new(), sha256: [0; 32] };
        let content = ObjectContent {
            etag: from.etag.clone(),
            sha256: from.sha256.clone(),
            content_type: from.content_type.clone(),
        };
        self.commit((bucket, key), written, content, false)
    }

    /// Deletes an object, if there is one.
    pub(super) fn delete(&self, bucket: &str, key: &str) -> io::Result<()> {
        let mut state = self.state();
        if let Some(object) = state.objects.remove(&(bucket.to_owned(), key.to_owned())) {
            fs::remove_file(self.record_path(&object))?;
            fs::remove_file(self.path(&object))?;
        }
        Ok(())
    }

    /// Objects whose key begins with `prefix` and follows `after`, in the order of their keys.
    pub(super) fn list(
        &self,
        bucket: &str,
        prefix: &str,
        after: &str,
        max: usize,
    ) -> Vec<ObjectRecord> {
        let from = (bucket.to_owned(), prefix.max(after).to_owned());
        let state = self.state();
        let objects = state.objects.range(from..).map(|(_, object)| object);
        let objects = objects.take_while(|object| object.bucket == bucket);
        let objects = objects.filter(|object| object.key.as_str() > after);
        objects.take_while(|object| object.key.starts_with(prefix)).take(max).cloned().collect()
    }

    /// Deletes the objects with this prefix that are older than `age`, as a lifecycle rule does.
    pub(in super::super) fn expire(&self, prefix: &str, age: Duration) -> io::Result<usize> {
        let now = SystemTime::now();
        let is_old = |object: &ObjectRecord| {
            now.duration_since(object.modified()).is_ok_and(|since| since >= age)
        };
        let state = self.state();
        let old = state.objects.values().filter(|object| object.key.starts_with(prefix));
        let old: Vec<_> = old.filter(|object| is_old(object)).cloned().collect();
        drop(state);
        old.iter().try_for_each(|object| self.delete(&object.bucket, &object.key))?;
        Ok(old.len())
    }

    /// Makes all objects older, for tests.
    pub(in super::super) fn age(&self, by: Duration) -> io::Result<()> {
        let mut state = self.state();
        for object in state.objects.values_mut() {
            let by = u64::try_from(by.as_millis()).unwrap_or_default();
            object.modified_ms = object.modified_ms.saturating_sub(by);
            self.save(object)?;
        }
        Ok(())
    }

    fn record_path(&self, object: &ObjectRecord) -> PathBuf {
        let digest = Sha256::digest(format!("{}/{}", object.bucket, object.key));
        let name: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        self.dir.join(format!("{name}.{RECORD}"))
    }

    /// Writes a record in one step.
    fn save(&self, object: &ObjectRecord) -> io::Result<()> {
        let path = self.record_path(object);
        let written = path.with_extension("new");
        fs::write(&written, serde_json::to_vec(object)?)?;
        fs::rename(written, path)
    }
}

/// What an object says about its bytes.
#[derive(Debug)]
pub(super) struct ObjectContent {
    pub(super) etag: String,
    pub(super) sha256: Option<String>,
    pub(super) content_type: Option<String>,
}

/// Reads the records, and deletes files that belong to none.
fn read(dir: &Path) -> io::Result<State> {
    let buckets = dir.join("buckets");
    fs::create_dir_all(&buckets)?;
    let mut state = State::default();
    for bucket in fs::read_dir(buckets)? {
        state.buckets.extend(bucket?.file_name().into_string());
    }
    let mut used = BTreeSet::new();
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == RECORD) {
            let object: ObjectRecord = serde_json::from_slice(&fs::read(&path)?)?;
            used.insert(dir.join(&object.file));
            state.objects.insert((object.bucket.clone(), object.key.clone()), object);
        } else if path.is_file() {
            files.push(path);
        }
    }
    let mut unused = files.iter().filter(|path| !used.contains(*path));
    unused.try_for_each(fs::remove_file)?;
    Ok(state)
}
