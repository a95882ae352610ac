//! An AWS whose every call takes one second of the test's clock, which moves only while all tasks wait. So the time that
//! a batch takes is the length of its longest chain of sequential calls.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use aws_smithy_runtime_api::client::http::{HttpConnector, HttpConnectorFuture};
use steward_aws::{
    meter::{AwsMeter, UsageByOperation},
    ports::SharedInterceptor,
};
use steward_test_world::service::{CallPlan, FakeService, PlannedServices};
use tokio::time::{Instant, sleep};

use crate::support::{AdapterPorts, TestDeployment, with_request_handler};

/// The default duration of a call.
const CALL: Duration = Duration::from_secs(1);

/// The calls to AWS that a batch made.
#[derive(Debug, PartialEq)]
pub(super) struct ObservedCalls {
    /// The number of requests, by operation.
    pub(super) requests: Vec<(String, u64)>,
    /// The largest number of calls in progress at the same time.
    pub(super) max_concurrent: usize,
    /// The number of calls in the longest sequential chain.
    pub(super) sequential: u64,
}

impl ObservedCalls {
    pub(super) fn requests(&self, operation: &str) -> u64 {
        self.requests.iter().find(|(name, _)| name == operation).map_or(0, |(_, count)| *count)
    }
}

/// Ports of one instance to a slow AWS.
pub(super) struct SlowAws {
    pub(super) ports: AdapterPorts,
    meter: AwsMeter,
    in_progress: Arc<ConcurrentCalls>,
}

impl SlowAws {
    pub(super) fn new(deployment: &TestDeployment, role: &str) -> Self {
        Self::with_call_duration(CALL, deployment, role)
    }

    pub(super) fn with_call_duration(
        call: Duration,
        deployment: &TestDeployment,
        role: &str,
    ) -> Self {
        let in_progress = Arc::<ConcurrentCalls>::default();
        let counter = in_progress.clone();
        let sdk = with_request_handler(&deployment.aws.sdk_config(), move |request, aws| {
            let (aws, counter) = (aws.clone(), counter.clone());
            HttpConnectorFuture::new(async move {
                counter.begin();
                sleep(call).await;
                let response = aws.call(request).await;
                counter.end();
                response
            })
        });
        let meter = AwsMeter::default();
        let interceptors = vec![SharedInterceptor::new(meter.clone())];
        let ports = deployment.ports_with_sdk_and_interceptors(role, &sdk, interceptors);
        Self { ports, meter, in_progress }
    }

    /// Runs `work` with the ports; returns its result and the calls that it made.
    pub(super) async fn observe<T>(
        &self,
        work: impl AsyncFnOnce(&AdapterPorts) -> T,
    ) -> (T, ObservedCalls) {
        let (before, start) = (self.meter.read(), Instant::now());
        self.in_progress.max.store(0, Ordering::SeqCst);
        let result = work(&self.ports).await;
        // A wait shorter than a call, such as for other replies of a batch, does not count.
        let sequential = start.elapsed().as_secs();
        let max_concurrent = self.in_progress.max.load(Ordering::SeqCst);
        let requests = additional_requests(&self.meter.read(), &before);
        (result, ObservedCalls { requests, max_concurrent, sequential })
    }
}

fn additional_requests(after: &UsageByOperation, before: &UsageByOperation) -> Vec<(String, u64)> {
    let earlier = |name: &str| before.get(name).map_or(0, |usage| usage.requests);
    let requests = after.iter().map(|(name, usage)| (name.clone(), usage.requests - earlier(name)));
    requests.filter(|(_, requests)| *requests > 0).collect()
}

/// Counts the calls in progress.
#[derive(Debug, Default)]
struct ConcurrentCalls {
    now: AtomicUsize,
    max: AtomicUsize,
}

impl ConcurrentCalls {
    fn begin(&self) {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.max.fetch_max(now, Ordering::SeqCst);
    }

    fn end(&self) {
        self.now.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A remote service that takes as long as a call to AWS.
pub(super) fn slow_service() -> FakeService<PlannedServices> {
    FakeService::planned(|request, _| {
        let output = serde_json::json!({ "id": request.step });
        CallPlan::success(CALL.as_millis() as u64, output)
    })
}
