//! An interceptor for the AWS SDK that injects faults into selected calls.

use std::sync::{
    Arc,
    atomic::{AtomicI32, Ordering},
};

use aws_smithy_runtime_api::{
    box_error::BoxError,
    client::{
        interceptors::{
            Intercept,
            context::{
                BeforeDeserializationInterceptorContextMut, BeforeTransmitInterceptorContextRef,
            },
        },
        orchestrator::{HttpResponse, Metadata},
        runtime_components::RuntimeComponents,
    },
    http::StatusCode,
};
use aws_smithy_types::{
    body::SdkBody,
    config_bag::{ConfigBag, Storable, StoreReplace},
};

/// A fault in one call to AWS. A panic simulates a crash of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InjectedFault {
    /// The process crashes before the call.
    CrashBefore,
    /// The process crashes after the call took effect and before its response arrives.
    CrashAfter,
    /// The call fails without effect.
    FailBefore,
    /// The call takes effect, its response is lost, and the SDK does not retry it.
    FailAfter,
    /// The call takes effect, its response is lost, and the SDK retries it.
    RetryAfter,
}

/// Injects a fault into the first `remaining` calls of `operation` whose request body contains a text.
#[derive(Debug, Clone)]
pub(crate) struct SdkFaultInjector {
    operation: &'static str,
    request_contains: String,
    fault: InjectedFault,
    remaining: Arc<AtomicI32>,
}

impl SdkFaultInjector {
    pub(crate) fn once(
        operation: &'static str,
        request_contains: &str,
        fault: InjectedFault,
    ) -> Self {
        let remaining = Arc::new(AtomicI32::new(1));
        Self { operation, request_contains: request_contains.to_owned(), fault, remaining }
    }

    pub(crate) fn always(
        operation: &'static str,
        request_contains: &str,
        fault: InjectedFault,
    ) -> Self {
        let remaining = Arc::new(AtomicI32::new(i32::MAX));
        Self { remaining, ..Self::once(operation, request_contains, fault) }
    }

    /// Whether all faults were injected.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.remaining.load(Ordering::SeqCst) <= 0
    }

    /// Whether to inject the fault into the current call; counts the call if so.
    fn selects(&self, bag: &ConfigBag, request: &[u8]) -> bool {
        bag.load::<Metadata>().is_some_and(|metadata| metadata.name() == self.operation)
            && String::from_utf8_lossy(request).contains(&self.request_contains)
            && self.remaining.fetch_sub(1, Ordering::SeqCst) > 0
    }

    fn inject(&self) -> Result<(), BoxError> {
        match self.fault {
            InjectedFault::CrashBefore | InjectedFault::CrashAfter => {
                panic!("injected fault: the process crashes at {}", self.operation)
            }
            InjectedFault::FailBefore | InjectedFault::FailAfter | InjectedFault::RetryAfter => {
                Err("injected fault: the call fails".into())
            }
        }
    }
}

/// Marks a call that gets its fault after it took effect.
#[derive(Debug)]
struct FaultPending;

impl Storable for FaultPending {
    type Storer = StoreReplace<Self>;
}

impl Intercept for SdkFaultInjector {
    fn name(&self) -> &'static str {
        "fault injector"
    }

    fn read_before_transmit(
        &self,
        context: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        bag: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let request = context.request().body().bytes().unwrap_or_default();
        if !self.selects(bag, request) {
            return Ok(());
        }
        match self.fault {
            InjectedFault::CrashBefore | InjectedFault::FailBefore => self.inject(),
            InjectedFault::CrashAfter | InjectedFault::FailAfter | InjectedFault::RetryAfter => {
                bag.interceptor_state().store_put(FaultPending);
                Ok(())
            }
        }
    }

    fn modify_before_deserialization(
        &self,
        context: &mut BeforeDeserializationInterceptorContextMut<'_>,
        _: &RuntimeComponents,
        bag: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        if bag.load::<FaultPending>().is_none() {
            return Ok(());
        }
        bag.interceptor_state().unset::<FaultPending>();
        if self.fault != InjectedFault::RetryAfter {
            return self.inject();
        }
        let unavailable = StatusCode::try_from(503_u16)?;
        *context.response_mut() = HttpResponse::new(unavailable, SdkBody::from("{}"));
        Ok(())
    }
}
