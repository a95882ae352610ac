//! Counts what AWS would bill: requests, bytes, DynamoDB's consumed capacity and the bus's events, by
//! operation.
//!
//! An SDK interceptor, so that the adapters know nothing of it. It asks DynamoDB to report the
//! capacity each request consumed; requests are counted per attempt, as they are billed. What is
//! consumed by a write whose condition fails DynamoDB does not say, and is not in it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use aws_sdk_dynamodb::{
    operation::{
        batch_execute_statement::{BatchExecuteStatementInput, BatchExecuteStatementOutput},
        batch_get_item::{BatchGetItemInput, BatchGetItemOutput},
        get_item::{GetItemInput, GetItemOutput},
        put_item::{PutItemInput, PutItemOutput},
        query::{QueryInput, QueryOutput},
        transact_write_items::{TransactWriteItemsInput, TransactWriteItemsOutput},
    },
    types::{ConsumedCapacity, ReturnConsumedCapacity},
};
use aws_sdk_eventbridge::operation::put_events::PutEventsOutput;
use aws_smithy_runtime_api::{
    box_error::BoxError,
    client::{
        interceptors::{
            Intercept,
            context::{
                BeforeDeserializationInterceptorContextRef,
                BeforeSerializationInterceptorContextMut, BeforeTransmitInterceptorContextRef,
                FinalizerInterceptorContextRef, Output,
            },
        },
        orchestrator::Metadata,
        runtime_components::RuntimeComponents,
    },
};
use aws_smithy_types::config_bag::ConfigBag;
use serde::Serialize;

/// What one kind of operation used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Usage {
    /// Requests, retries included.
    pub requests: u64,
    /// Bytes sent.
    pub request_bytes: u64,
    /// Bytes received.
    pub response_bytes: u64,
    /// DynamoDB's read units.
    pub read_units: f64,
    /// DynamoDB's write units.
    pub write_units: f64,
    /// Events that the bus took.
    pub events: u64,
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.requests += other.requests;
        self.request_bytes += other.request_bytes;
        self.response_bytes += other.response_bytes;
        self.read_units += other.read_units;
        self.write_units += other.write_units;
        self.events += other.events;
    }
}

/// Usage by operation: `DynamoDB.PutItem`, `SQS.SendMessageBatch`.
pub type Usages = BTreeMap<String, Usage>;

/// Counts what the clients do that carry it as an interceptor. Clones count together.
#[derive(Debug, Clone, Default)]
pub struct Meter {
    usages: Arc<Mutex<Usages>>,
}

impl Meter {
    /// What has been used so far.
    #[must_use]
    pub fn read(&self) -> Usages {
        self.usages.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn add(&self, bag: &ConfigBag, usage: Usage) {
        let Some(operation) = bag.load::<Metadata>() else { return };
        let name = format!("{}.{}", operation.service(), operation.name());
        let mut usages = self.usages.lock().unwrap_or_else(PoisonError::into_inner);
        *usages.entry(name).or_default() += usage;
    }
}

/// Sums usages whose operation starts with `prefix`.
#[must_use]
pub fn total(usages: &Usages, prefix: &str) -> Usage {
    let mut sum = Usage::default();
    for (_, usage) in usages.iter().filter(|(name, _)| name.starts_with(prefix)) {
        sum += *usage;
    }
    sum
}

impl Intercept for Meter {
    fn name(&self) -> &'static str {
        "steward meter"
    }

    fn modify_before_serialization(
        &self,
        context: &mut BeforeSerializationInterceptorContextMut<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let wanted = Some(ReturnConsumedCapacity::Total);
        let input = context.input_mut();
        if let Some(input) = input.downcast_mut::<PutItemInput>() {
            input.return_consumed_capacity = wanted;
        } else if let Some(input) = input.downcast_mut::<GetItemInput>() {
            input.return_consumed_capacity = wanted;
        } else if let Some(input) = input.downcast_mut::<QueryInput>() {
            input.return_consumed_capacity = wanted;
        } else if let Some(input) = input.downcast_mut::<BatchGetItemInput>() {
            input.return_consumed_capacity = wanted;
        } else if let Some(input) = input.downcast_mut::<TransactWriteItemsInput>() {
            input.return_consumed_capacity = wanted;
        } else if let Some(input) = input.downcast_mut::<BatchExecuteStatementInput>() {
            input.return_consumed_capacity = wanted;
        }
        Ok(())
    }

    fn read_before_transmit(
        &self,
        context: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        bag: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let bytes = context.request().body().bytes().map_or(0, <[u8]>::len);
        self.add(bag, Usage { requests: 1, request_bytes: bytes as u64, ..Usage::default() });
        Ok(())
    }

    fn read_before_deserialization(
        &self,
        context: &BeforeDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        bag: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let bytes = context.response().body().bytes().map_or(0, <[u8]>::len);
        self.add(bag, Usage { response_bytes: bytes as u64, ..Usage::default() });
        Ok(())
    }

    fn read_after_execution(
        &self,
        context: &FinalizerInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        bag: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        if let Some(Ok(output)) = context.output_or_error() {
            self.add(bag, consumed(output));
        }
        Ok(())
    }
}

/// What an operation consumed beside requests. DynamoDB reports one total of units, and whether it is
/// of reads or of writes follows from the operation.
fn consumed(output: &Output) -> Usage {
    let units = |consumed: &[ConsumedCapacity]| {
        consumed.iter().filter_map(ConsumedCapacity::capacity_units).sum::<f64>()
    };
    let one = |consumed: Option<&ConsumedCapacity>| {
        consumed.and_then(ConsumedCapacity::capacity_units).unwrap_or_default()
    };
    let reads = |read_units| Usage { read_units, ..Usage::default() };
    let writes = |write_units| Usage { write_units, ..Usage::default() };
    if let Some(output) = output.downcast_ref::<GetItemOutput>() {
        reads(one(output.consumed_capacity()))
    } else if let Some(output) = output.downcast_ref::<QueryOutput>() {
        reads(one(output.consumed_capacity()))
    } else if let Some(output) = output.downcast_ref::<BatchGetItemOutput>() {
        reads(units(output.consumed_capacity()))
    } else if let Some(output) = output.downcast_ref::<PutItemOutput>() {
        writes(one(output.consumed_capacity()))
    } else if let Some(output) = output.downcast_ref::<TransactWriteItemsOutput>() {
        writes(units(output.consumed_capacity()))
    } else if let Some(output) = output.downcast_ref::<BatchExecuteStatementOutput>() {
        // The only batches of statements there are write.
        writes(units(output.consumed_capacity()))
    } else if let Some(output) = output.downcast_ref::<PutEventsOutput>() {
        let taken = output.entries().iter().filter(|entry| entry.error_code().is_none());
        Usage { events: taken.count() as u64, ..Usage::default() }
    } else {
        Usage::default()
    }
}
