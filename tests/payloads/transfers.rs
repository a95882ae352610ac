//! The bucket itself: concurrent and repeated writes, several responses at once, and bounded parts.

use std::convert::Infallible;

use steward_aws::payloads::{
    S3Payloads,
    transfer::{Chunks, PART_BYTES, StoreFault},
};
use steward_core::model::payload::{PayloadKey, PayloadReference};

use super::fixture::{Fixture, digest};

/// A response in chunks of this many bytes.
struct Response {
    content: Vec<u8>,
    chunk: usize,
}

impl Chunks for Response {
    type Error = Infallible;

    async fn next(&mut self) -> Result<Option<bytes::Bytes>, Infallible> {
        let rest = self.content.split_off(self.content.len().min(self.chunk));
        let chunk = std::mem::replace(&mut self.content, rest);
        Ok((!chunk.is_empty()).then(|| chunk.into()))
    }
}

async fn store(bucket: &S3Payloads, key: &str, content: Vec<u8>) -> PayloadReference {
    let key = PayloadKey::try_from(key.to_owned()).unwrap();
    let mut rest = Response { content, chunk: 100_000 };
    let first = rest.next().await.unwrap().unwrap_or_default().to_vec();
    bucket.store(key, "text/plain".parse().unwrap(), first, &mut rest).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_delivery_of_a_request_wins() {
    let fixture = Fixture::start().await;
    let bucket = fixture.host.ports.bucket().unwrap();
    for (n, bytes) in [200_000, PART_BYTES, 2 * PART_BYTES + 1].into_iter().enumerate() {
        let key = format!("tasks/t-1@000000001/output/report/do/{n}");
        let (first, second) = (vec![b'a'; bytes], vec![b'b'; bytes + 1]);
        let stored = store(bucket, &key, first.clone()).await;
        assert_eq!((stored.bytes, stored.sha256.as_str()), (bytes as u64, &*digest(&first)));
        assert_eq!(store(bucket, &key, second).await, stored);
        assert_eq!(fixture.object(&key).await, first);
    }
    assert_eq!(fixture.keys().await.len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_response_that_breaks_off_leaves_nothing() {
    struct Broken(usize);
    impl Chunks for Broken {
        type Error = &'static str;
        async fn next(&mut self) -> Result<Option<bytes::Bytes>, &'static str> {
            self.0 += 1;
            if self.0 > 7 { Err("broke off") } else { Ok(Some(vec![0; 1_000_000].into())) }
        }
    }
    let fixture = Fixture::start().await;
    let bucket = fixture.host.ports.bucket().unwrap();
    let key = PayloadKey::try_from("tasks/t-1@000000001/output/a/do/1".to_owned()).unwrap();
    let stored = bucket.store(key, "text/plain".parse().unwrap(), Vec::new(), &mut Broken(0)).await;
    assert!(matches!(stored, Err(StoreFault::Source("broke off"))), "{stored:?}");
    assert_eq!(fixture.keys().await, Vec::<String>::new());
}
