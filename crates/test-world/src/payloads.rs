//! The bucket of payloads in memory.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use jiff::Timestamp;
use steward_core::model::payload::{PayloadKey, PayloadReference, TASKS, UPLOADS};
use steward_runtime::{
    payloads::{
        Claim, ClaimOutcome, EXPIRED, MISSING, OTHER_DIGEST, OTHER_SIZE, PayloadFuture,
        PayloadPage, PayloadStore, StoredPayload, UploadRequest,
    },
    ports::Clock,
};

use crate::{clock::WorldClock, storage::lock};

/// Objects on one page of a list. It is small, so that tests see several pages.
const PAGE: usize = 10;

/// Objects without content: only what references say about them.
#[derive(Debug, Clone)]
pub struct MemoryPayloads {
    objects: Arc<Mutex<BTreeMap<PayloadKey, StoredObject>>>,
    clock: WorldClock,
}

#[derive(Debug, Clone)]
struct StoredObject {
    /// The reference with which the object was stored first. A copy keeps it.
    content: PayloadReference,
    at: Timestamp,
}

impl MemoryPayloads {
    /// An empty bucket.
    #[must_use]
    pub fn new(clock: WorldClock) -> Self {
        Self { objects: Arc::default(), clock }
    }

    /// Stores the object of a reference, as an upload or a large response is stored.
    pub fn put(&self, reference: &PayloadReference) {
        let stored = StoredObject { content: reference.clone(), at: self.clock.now() };
        lock(&self.objects).insert(reference.key.clone(), stored);
    }

    /// Stores the object of a reference, unless there is one with its key. Returns the reference to the object that there is
    /// now: the first one wins, as in the bucket.
    #[must_use]
    pub fn put_new(&self, reference: &PayloadReference) -> PayloadReference {
        let stored = StoredObject { content: reference.clone(), at: self.clock.now() };
        let mut objects = lock(&self.objects);
        let object = objects.entry(reference.key.clone()).or_insert(stored);
        PayloadReference { key: reference.key.clone(), ..object.content.clone() }
    }

    /// The reference with which the content of an object was stored first.
    #[must_use]
    pub fn content(&self, key: &PayloadKey) -> Option<PayloadReference> {
        lock(&self.objects).get(key).map(|object| object.content.clone())
    }

    /// All keys.
    #[must_use]
    pub fn keys(&self) -> Vec<PayloadKey> {
        lock(&self.objects).keys().cloned().collect()
    }

    /// Deletes uploads that are older than `age`, as the bucket does.
    pub fn expire_uploads(&self, age: Duration) {
        let now = self.clock.now();
        let is_old = |at: Timestamp| {
            Duration::try_from(now.duration_since(at)).is_ok_and(|since| since >= age)
        };
        lock(&self.objects)
            .retain(|key, object| !(key.as_str().starts_with(UPLOADS) && is_old(object.at)));
    }

    fn copy(&self, claim: &Claim) -> ClaimOutcome {
        let Claim { source, target, expired_before } = claim;
        let mut objects = lock(&self.objects);
        let Some(object) = objects.get(&source.key).cloned() else {
            return ClaimOutcome::Refused(MISSING);
        };
        if object.content.bytes != source.bytes {
            return ClaimOutcome::Refused(OTHER_SIZE);
        }
        if source.key.is_upload() && object.content.sha256 != source.sha256 {
            return ClaimOutcome::Refused(OTHER_DIGEST);
        }
        if source.key.is_upload() && object.at < *expired_before {
            return ClaimOutcome::Refused(EXPIRED);
        }
        objects.insert(target.clone(), StoredObject { at: self.clock.now(), ..object });
        ClaimOutcome::Claimed
    }
}

impl PayloadStore for MemoryPayloads {
    fn claim<'a>(&'a self, claim: &'a Claim) -> PayloadFuture<'a, ClaimOutcome> {
        Box::pin(async move { Ok(self.copy(claim)) })
    }

    fn upload_request<'a>(
        &'a self,
        reference: &'a PayloadReference,
        _valid_for: Duration,
    ) -> PayloadFuture<'a, UploadRequest> {
        let url = format!("memory:{}", reference.key);
        Box::pin(async move { Ok(UploadRequest { url, headers: Vec::new() }) })
    }

    fn task_payloads<'a>(&'a self, after: Option<&'a str>) -> PayloadFuture<'a, PayloadPage> {
        Box::pin(async move {
            let objects = lock(&self.objects);
            let listed = objects.iter().filter(|(key, _)| key.as_str().starts_with(TASKS));
            let listed = listed.filter(|(key, _)| after.is_none_or(|after| key.as_str() > after));
            let mut payloads: Vec<_> = listed
                .map(|(key, object)| StoredPayload { key: key.clone(), stored_at: object.at })
                .take(PAGE + 1)
                .collect();
            let is_truncated = payloads.len() > PAGE;
            payloads.truncate(PAGE);
            let next = payloads.last().map(|last| last.key.to_string()).filter(|_| is_truncated);
            Ok(PayloadPage { payloads, next })
        })
    }

    fn delete<'a>(&'a self, keys: &'a [PayloadKey]) -> PayloadFuture<'a, ()> {
        Box::pin(async move {
            let mut objects = lock(&self.objects);
            keys.iter().for_each(|key| drop(objects.remove(key)));
            Ok(())
        })
    }
}
