//! Counts what AWS bills, by operation: requests, bytes, DynamoDB's consumed capacity, and events on the bus.
//!
//! The meter is an SDK interceptor, so the adapters do not depend on it. It makes DynamoDB report the consumed capacity of
//! each request. Requests are counted for each attempt, as they are billed. The units of writes whose condition fails are
//! not counted, because DynamoDB does not report them.

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

/// The usage of one operation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct OperationUsage {
    /// Requests, including retries.
    pub requests: u64,
    /// Bytes sent.
    pub request_bytes: u64,
    /// Bytes received.
    pub response_bytes: u64,
    /// Read units of DynamoDB.
    pub read_units: f64,
    /// Write units of DynamoDB.
    pub write_units: f64,
    /// Events that EventBridge accepted.
    pub events: u64,
}

impl std::ops::AddAssign for OperationUsage {
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
pub type UsageByOperation = BTreeMap<String, OperationUsage>;

/// Counts the usage of the clients that have it as an interceptor. All clones share their counts.
#[derive(Debug, Clone, Default)]
pub struct AwsMeter {
    usages: Arc<Mutex<UsageByOperation>>,
}

impl AwsMeter {
    /// The usage so far.
    #[must_use]
    pub fn read(&self) -> UsageByOperation {
        self.usages.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn add(&self, bag: &ConfigBag, usage: OperationUsage) {
        let Some(operation) = bag.load::<Metadata>() else { return };
        let name = format!("{}.{}", operation.service(), operation.name());
        let mut usages = self.usages.lock().unwrap_or_else(PoisonError::into_inner);
        *usages.entry(name).or_default() += usage;
    }
}

/// The sum of the usages of all operations that start with `prefix`.
#[must_use]
pub fn total(usages: &UsageByOperation, prefix: &str) -> OperationUsage {
    let mut sum = OperationUsage::default();
    for (_, usage) in usages.iter().filter(|(name, _)| name.starts_with(prefix)) {
        sum += *usage;
    }
    sum
}

impl Intercept for AwsMeter {
    fn name(&self) -> &'static str {
        "steward meter"
    }

    fn modify_before_serialization(
        &self,
        context: &mut BeforeSerializationInterceptorContextMut<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let total = Some(ReturnConsumedCapacity::Total);
        let input = context.input_mut();
        if let Some(input) = input.downcast_mut::<PutItemInput>() {
            input.return_consumed_capacity = total;
        } else if let Some(input) = input.downcast_mut::<GetItemInput>() {
            input.return_consumed_capacity = total;
        } else if let Some(input) = input.downcast_mut::<QueryInput>() {
            input.return_consumed_capacity = total;
        } else if let Some(input) = input.downcast_mut::<BatchGetItemInput>() {
            input.return_consumed_capacity = total;
        } else if let Some(input) = input.downcast_mut::<TransactWriteItemsInput>() {
            input.return_consumed_capacity = total;
        } else if let Some(input) = input.downcast_mut::<BatchExecuteStatementInput>() {
            input.return_consumed_capacity = total;
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
        self.add(
            bag,
            OperationUsage {
                requests: 1,
                request_bytes: bytes as u64,
                ..OperationUsage::default()
            },
        );
        Ok(())
    }

    fn read_before_deserialization(
        &self,
        context: &BeforeDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        bag: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let bytes = context.response().body().bytes().map_or(0, <[u8]>::len);
        self.add(bag, OperationUsage { response_bytes: bytes as u64, ..OperationUsage::default() });
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

/// The units and events of a response. DynamoDB reports one total of units; the operation determines whether they are
/// read units or write units.
fn consumed(output: &Output) -> OperationUsage {
    let units = |consumed: &[ConsumedCapacity]| {
        consumed.iter().filter_map(ConsumedCapacity::capacity_units).sum::<f64>()
    };
    let one = |consumed: Option<&ConsumedCapacity>| {
        consumed.and_then(ConsumedCapacity::capacity_units).unwrap_or_default()
    };
    let reads = |read_units| OperationUsage { read_units, ..OperationUsage::default() };
    let writes = |write_units| OperationUsage { write_units, ..OperationUsage::default() };
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
        // Steward uses batches of statements only for writes.
        writes(units(output.consumed_capacity()))
    } else if let Some(output) = output.downcast_ref::<PutEventsOutput>() {
        let accepted = output.entries().iter().filter(|entry| entry.error_code().is_none());
        OperationUsage { events: accepted.count() as u64, ..OperationUsage::default() }
    } else {
        OperationUsage::default()
    }
}
