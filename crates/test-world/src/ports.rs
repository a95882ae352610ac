//! The ports of one instance in a test world: each may be in memory, an adapter of AWS, or [intercepted](Intercepted).

use std::{
    num::{NonZeroU32, NonZeroUsize},
    sync::Arc,
    time::Duration,
};

use steward_core::{callback_url::CallbackUrls, model::time::Timing};
use steward_runtime::{
    payloads::PayloadStore,
    ports::{Channel, Clock, Definitions, EventBus, Ports, StateStore},
};

use super::{
    channel::{MemoryBus, MemoryChannel},
    clock::WorldClock,
    definitions::MemoryDefinitions,
    interceptor::{Intercepted, Interceptor},
    payloads::MemoryPayloads,
    store::MemoryStore,
};

/// All ports of one instance. A clone is another handle to the same tables, queues, events and clock.
#[derive(Debug, Clone)]
pub struct WorldPorts<S, D, C, B, K = WorldClock, P = MemoryPayloads> {
    /// The state store.
    pub store: S,
    /// The definitions.
    pub definitions: D,
    /// The queues.
    pub channel: C,
    /// The event bus.
    pub bus: B,
    /// The clock.
    pub clock: K,
    /// The bucket of payloads.
    pub payloads: P,
    /// Whether the instance may use the bucket.
    pub has_bucket: bool,
    /// The time settings of the deployment.
    pub timing: Timing,
    /// The name of the instance.
    pub instance: Arc<str>,
    /// Creates the URLs for callbacks.
    pub callback_urls: Option<Arc<CallbackUrls>>,
}

/// All ports in memory.
pub type MemoryPorts = WorldPorts<MemoryStore, MemoryDefinitions, MemoryChannel, MemoryBus>;

/// Ports whose calls pass the interceptor `I`.
pub type InterceptedPorts<
    I,
    S = MemoryStore,
    D = MemoryDefinitions,
    C = MemoryChannel,
    B = MemoryBus,
    K = WorldClock,
> = WorldPorts<
    Intercepted<S, I>,
    Intercepted<D, I>,
    Intercepted<C, I>,
    Intercepted<B, I>,
    K,
    Intercepted<MemoryPayloads, I>,
>;

/// The ports of `P` with another clock.
pub type PortsOf<P, K = WorldClock> = WorldPorts<
    <P as Ports>::Store,
    <P as Ports>::Definitions,
    <P as Ports>::Channel,
    <P as Ports>::Bus,
    K,
>;

impl Default for MemoryPorts {
    /// The ports with the time settings of `template.yaml` and one shard.
    fn default() -> Self {
        let timing = Timing {
            pickup_within: Duration::from_secs(60),
            clock_skew: Duration::from_secs(2),
            retention: Timing::RETENTION,
        };
        Self::new(timing, NonZeroU32::MIN)
    }
}

impl MemoryPorts {
    /// Empty tables and queues, with this many shards in the due index, and a clock that stands still at the Unix epoch.
    #[must_use]
    pub fn new(timing: Timing, shards: NonZeroU32) -> Self {
        Self::with_clock(timing, shards, WorldClock::default())
    }

    /// The same with this clock.
    #[must_use]
    pub fn with_clock(timing: Timing, shards: NonZeroU32, clock: WorldClock) -> Self {
        Self {
            store: MemoryStore::new(shards, timing.retention, clock.clone()),
            definitions: MemoryDefinitions::default(),
            channel: MemoryChannel::default(),
            bus: MemoryBus::default(),
            payloads: MemoryPayloads::new(clock.clone()),
            has_bucket: true,
            clock,
            timing,
            instance: "memory".into(),
            callback_urls: None,
        }
    }

    /// The same ports, with this many tasks in a page of an index instead of 100.
    #[must_use]
    pub fn with_page_size(&self, tasks: NonZeroUsize) -> Self {
        Self { store: self.store.with_page_size(tasks), ..self.clone() }
    }
}

impl<S, D, C, B, K> WorldPorts<S, D, C, B, K>
where
    S: Clone,
    D: Clone,
    C: Clone,
    B: Clone,
    K: Clone,
{
    /// The ports of an instance on AWS, without payloads and callbacks, with another clock.
    #[must_use]
    pub fn of<P>(ports: &P, clock: K) -> Self
    where
        P: Ports<Store = S, Definitions = D, Channel = C, Bus = B>,
    {
        Self {
            store: ports.store().clone(),
            definitions: ports.definitions().clone(),
            channel: ports.channel().clone(),
            bus: ports.bus().clone(),
            clock,
            payloads: MemoryPayloads::new(WorldClock::default()),
            has_bucket: false,
            timing: ports.timing(),
            instance: ports.instance().into(),
            callback_urls: None,
        }
    }

    /// The same tables, queues, events and clock, used by another instance. `name` is what it writes in `locked_by`.
    #[must_use]
    pub fn with_instance(&self, name: &str) -> Self {
        Self { instance: name.into(), ..self.clone() }
    }

    /// Passes the calls of all ports to an interceptor.
    #[must_use]
    pub fn intercepted<I: Interceptor + Clone>(
        &self,
        interceptor: I,
    ) -> InterceptedPorts<I, S, D, C, B, K> {
        let Self { store, definitions, channel, bus, payloads, .. } = self.clone();
        let by = || interceptor.clone();
        WorldPorts {
            store: Intercepted { inner: store, interceptor: by() },
            definitions: Intercepted { inner: definitions, interceptor: by() },
            channel: Intercepted { inner: channel, interceptor: by() },
            bus: Intercepted { inner: bus, interceptor: by() },
            clock: self.clock.clone(),
            payloads: Intercepted { inner: payloads, interceptor: by() },
            has_bucket: self.has_bucket,
            timing: self.timing,
            instance: self.instance.clone(),
            callback_urls: self.callback_urls.clone(),
        }
    }
}

impl<S, D, C, B, K, P> Ports for WorldPorts<S, D, C, B, K, P>
where
    S: StateStore,
    D: Definitions,
    C: Channel,
    B: EventBus,
    K: Clock,
    P: PayloadStore,
{
    type Store = S;
    type Definitions = D;
    type Channel = C;
    type Bus = B;
    type Clock = K;

    fn store(&self) -> &S {
        &self.store
    }

    fn definitions(&self) -> &D {
        &self.definitions
    }

    fn channel(&self) -> &C {
        &self.channel
    }

    fn bus(&self) -> &B {
        &self.bus
    }

    fn clock(&self) -> &K {
        &self.clock
    }

    fn timing(&self) -> Timing {
        self.timing
    }

    fn instance(&self) -> &str {
        &self.instance
    }

    fn payloads(&self) -> Option<&dyn PayloadStore> {
        self.has_bucket.then_some(&self.payloads as &dyn PayloadStore)
    }

    fn callback_urls(&self) -> Option<Arc<CallbackUrls>> {
        self.callback_urls.clone()
    }
}
