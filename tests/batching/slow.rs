//! An AWS whose every call takes a second of the test's clock, which stands still otherwise: so the time
//! that a batch takes is the length of its longest chain of calls, one after the other.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use aws_config::SdkConfig;
use aws_smithy_runtime_api::client::{
    http::{
        HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpClient,
        SharedHttpConnector,
    },
    orchestrator::HttpRequest,
    runtime_components::RuntimeComponents,
};
use steward_agent::attempt::{Fault, RemoteService};
use steward_aws::{
    meter::{Meter, Usages},
    ports::SharedInterceptor,
};
use steward_core::model::messages::StepRequest;
use tokio::time::{Instant, sleep};

use crate::support::{Deployment, TestPorts};

/// What every call takes.
const CALL: Duration = Duration::from_secs(1);

/// What was asked of AWS, and how.
#[derive(Debug, PartialEq)]
pub(super) struct Seen {
    /// Requests, by operation.
    pub(super) requests: Vec<(String, u64)>,
    /// Calls under way at the same time, at most.
    pub(super) at_once: usize,
    /// Calls one after the other, at least.
    pub(super) chain: u64,
}

impl Seen {
    pub(super) fn requests(&self, operation: &str) -> u64 {
        self.requests.iter().find(|(name, _)| name == operation).map_or(0, |(_, count)| *count)
    }
}

/// Ports of one instance over such an AWS.
pub(super) struct Slow {
    pub(super) ports: TestPorts,
    meter: Meter,
    wire: Wire,
}

impl Slow {
    pub(super) fn new(deployment: &Deployment, role: &str) -> Self {
        Self::taking(CALL, deployment, role)
    }

    /// Each call takes `call`.
    pub(super) fn taking(call: Duration, deployment: &Deployment, role: &str) -> Self {
        let sdk = deployment.aws.sdk_config();
        let beyond = sdk.http_client().unwrap();
        let wire = Wire { beyond, call, under_way: Arc::default() };
        let sdk: SdkConfig = sdk.into_builder().http_client(wire.clone()).build();
        let meter = Meter::default();
        let interceptors = vec![SharedInterceptor::new(meter.clone())];
        Self { ports: deployment.watched_over(role, &sdk, interceptors), meter, wire }
    }

    /// Does `work` with the ports; says what it answers, and what was seen of it.
    pub(super) async fn watch<T>(&self, work: impl AsyncFnOnce(&TestPorts) -> T) -> (T, Seen) {
        let (before, start) = (self.meter.read(), Instant::now());
        self.wire.under_way.most.store(0, Ordering::SeqCst);
        let answer = work(&self.ports).await;
        // Whatever waits for less than a call, as answers do for each other, is no link of the chain.
        let chain = start.elapsed().as_secs();
        let at_once = self.wire.under_way.most.load(Ordering::SeqCst);
        (answer, Seen { requests: more(&self.meter.read(), &before), at_once, chain })
    }
}

fn more(after: &Usages, before: &Usages) -> Vec<(String, u64)> {
    let of = |name: &str| before.get(name).map_or(0, |usage| usage.requests);
    let more = after.iter().map(|(name, usage)| (name.clone(), usage.requests - of(name)));
    more.filter(|(_, requests)| *requests > 0).collect()
}

/// What stands between the clients and AWS.
#[derive(Debug, Clone)]
struct Wire {
    beyond: SharedHttpClient,
    call: Duration,
    under_way: Arc<UnderWay>,
}

#[derive(Debug, Default)]
struct UnderWay {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl HttpClient for Wire {
    fn http_connector(
        &self,
        settings: &HttpConnectorSettings,
        components: &RuntimeComponents,
    ) -> SharedHttpConnector {
        let beyond = self.beyond.http_connector(settings, components);
        SharedHttpConnector::new(Connected {
            beyond,
            call: self.call,
            under_way: self.under_way.clone(),
        })
    }
}

#[derive(Debug)]
struct Connected {
    beyond: SharedHttpConnector,
    call: Duration,
    under_way: Arc<UnderWay>,
}

impl HttpConnector for Connected {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let (beyond, call, under_way) = (self.beyond.clone(), self.call, self.under_way.clone());
        HttpConnectorFuture::new(async move {
            let now = under_way.now.fetch_add(1, Ordering::SeqCst) + 1;
            under_way.most.fetch_max(now, Ordering::SeqCst);
            sleep(call).await;
            let answer = beyond.call(request).await;
            under_way.now.fetch_sub(1, Ordering::SeqCst);
            answer
        })
    }
}

/// A remote service that takes as long as AWS does.
#[derive(Debug, Clone)]
pub(super) struct SlowService;

impl RemoteService for SlowService {
    async fn call(
        &self,
        request: &StepRequest,
        _: Option<&str>,
    ) -> Result<serde_json::Value, Fault> {
        sleep(CALL).await;
        Ok(serde_json::json!({ "id": request.step }))
    }
}
