//! The prices of AWS, and the price of usage. Only this file converts counts to dollars. The prices are data in
//! `prices.yaml`.

use serde::{Deserialize, Serialize};

use super::settings::ForecastError;

/// The built-in list of prices.
const LIST: &str = include_str!("prices.yaml");

/// The bytes that SQS and EventBridge bill as one request or event.
pub const CHUNK_BYTES: usize = 64 * 1024;

/// The memory of every function in `template.yaml`, in GB.
pub const MEMORY_GB: f64 = 0.25;

/// Prices are for this many tasks.
const MILLION: f64 = 1_000_000.0;

/// The prices of AWS in one region.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prices {
    /// The region.
    pub region: String,
    /// When the prices were looked up: year and month.
    pub as_of: String,
    /// DynamoDB, on demand.
    pub dynamodb_write_units: Price,
    /// DynamoDB, on demand.
    pub dynamodb_read_units: Price,
    /// SQS, standard queues.
    pub sqs_requests: Price,
    /// Lambda.
    pub lambda_invocations: Price,
    /// Lambda on x86_64: one GB for one second.
    pub lambda_gb_seconds: Price,
    /// EventBridge.
    pub eventbridge_events: Price,
    /// Step Functions Standard.
    pub step_functions_transitions: Price,
    /// Step Functions Express: executions.
    pub step_functions_express_requests: Price,
    /// Step Functions Express: one GB for one hour.
    pub step_functions_express_gb_hours: Price,
    /// Lambda durable functions.
    pub durable_operations: Price,
    /// Lambda durable functions: stored inputs and results.
    pub durable_gb_written: Price,
    /// CloudWatch: alarms, for a month.
    pub cloudwatch_alarms: Price,
    /// CloudWatch: custom metrics, for a month.
    pub cloudwatch_metrics: Price,
    /// Secrets Manager: secrets, for a month.
    pub secrets: Price,
}

/// One price.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// The price of `per` units.
    pub dollars: f64,
    /// The number of units.
    pub per: f64,
    /// The billed unit.
    pub unit: String,
    /// The page of AWS with the price.
    pub page: String,
    /// The source where the price was read, with its date.
    pub read: String,
}

impl Price {
    /// The price of a million tasks that use `amount` units each.
    #[must_use]
    pub fn per_million(&self, amount: f64) -> f64 {
        amount * MILLION / self.per * self.dollars
    }
}

impl Prices {
    /// The built-in list of prices.
    ///
    /// # Errors
    /// The list cannot be parsed. A test ensures that it can.
    pub fn listed() -> Result<Self, ForecastError> {
        serde_saphyr::from_str(LIST).map_err(|error| ForecastError::Prices(error.to_string()))
    }

    /// The price of a million tasks with this usage each.
    #[must_use]
    pub fn of(&self, usage: &TaskUsage) -> Dollars {
        let dynamodb = self.dynamodb_write_units.per_million(usage.write_units)
            + self.dynamodb_read_units.per_million(usage.read_units);
        let sqs = self.sqs_requests.per_million(usage.sqs_requests);
        let lambda = self.lambda_invocations.per_million(usage.invocations)
            + self.lambda_gb_seconds.per_million(usage.gb_seconds);
        let eventbridge = self.eventbridge_events.per_million(usage.events);
        Dollars { dynamodb, sqs, lambda, eventbridge, total: dynamodb + sqs + lambda + eventbridge }
    }
}

/// The average usage of AWS by a task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct TaskUsage {
    /// DynamoDB write units.
    pub write_units: f64,
    /// DynamoDB read units.
    pub read_units: f64,
    /// Requests to SQS of up to 64 KB each: sends, and the receive and the delete of each batch.
    pub sqs_requests: f64,
    /// Invocations of functions.
    pub invocations: f64,
    /// GB-seconds of the functions.
    pub gb_seconds: f64,
    /// Events on the bus.
    pub events: f64,
}

/// Dollars, by service.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Dollars {
    /// DynamoDB.
    pub dynamodb: f64,
    /// SQS.
    pub sqs: f64,
    /// Lambda.
    pub lambda: f64,
    /// EventBridge.
    pub eventbridge: f64,
    /// The total.
    pub total: f64,
}

impl std::ops::AddAssign for TaskUsage {
    fn add_assign(&mut self, other: Self) {
        self.write_units += other.write_units;
        self.read_units += other.read_units;
        self.sqs_requests += other.sqs_requests;
        self.invocations += other.invocations;
        self.gb_seconds += other.gb_seconds;
        self.events += other.events;
    }
}

impl TaskUsage {
    pub(super) fn divided(&self, by: f64) -> Self {
        Self {
            write_units: self.write_units / by,
            read_units: self.read_units / by,
            sqs_requests: self.sqs_requests / by,
            invocations: self.invocations / by,
            gb_seconds: self.gb_seconds / by,
            events: self.events / by,
        }
    }
}

/// The share of one message in the requests of `batch` messages of this size.
pub(super) fn share(bytes: usize, batch: u32) -> f64 {
    let chunks = (bytes * batch as usize).div_ceil(CHUNK_BYTES).max(1);
    chunks as f64 / f64::from(batch)
}

/// The GB-seconds of an invocation. Lambda rounds up to whole milliseconds.
pub(super) fn gb_seconds(millis: u64) -> f64 {
    millis as f64 / 1_000.0 * MEMORY_GB
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_price_is_parsed_and_has_a_source() {
        let prices = Prices::listed().unwrap();
        let Prices {
            region,
            as_of,
            dynamodb_write_units,
            dynamodb_read_units,
            sqs_requests,
            lambda_invocations,
            lambda_gb_seconds,
            eventbridge_events,
            step_functions_transitions,
            step_functions_express_requests,
            step_functions_express_gb_hours,
            durable_operations,
            durable_gb_written,
            cloudwatch_alarms,
            cloudwatch_metrics,
            secrets,
        } = &prices;
        assert_eq!((region.as_str(), as_of.as_str()), ("us-east-1", "2026-11"));
        let per_million_units = [
            (dynamodb_write_units, 0.625),
            (dynamodb_read_units, 0.125),
            (sqs_requests, 0.4),
            (lambda_invocations, 0.2),
            (lambda_gb_seconds, 16.666_7),
            (eventbridge_events, 1.0),
            (step_functions_transitions, 25.0),
            (step_functions_express_requests, 1.0),
            (step_functions_express_gb_hours, 60_000.0),
            (durable_operations, 8.0),
            (durable_gb_written, 250_000.0),
            (cloudwatch_alarms, 100_000.0),
            (cloudwatch_metrics, 300_000.0),
            (secrets, 400_000.0),
        ];
        for (price, dollars) in per_million_units {
            assert!((price.per_million(1.0) - dollars).abs() < 1e-9, "{price:?}");
            assert!(price.page.starts_with("https://aws.amazon.com/"), "{price:?}");
            assert!(!price.read.is_empty() && !price.unit.is_empty(), "{price:?}");
        }
    }

    #[test]
    fn a_million_tasks_of_one_step_have_the_documented_price() {
        // A task of one step as counted by tests/cost.rs, without the time of the functions.
        let usage = TaskUsage {
            write_units: 9.0,
            read_units: 3.0,
            sqs_requests: 1.1,
            invocations: 0.4,
            ..TaskUsage::default()
        };
        let dollars = Prices::listed().unwrap().of(&usage);
        assert!((dollars.total - 6.52).abs() < 1e-9, "{dollars:?}");
    }

    #[test]
    fn large_messages_share_fewer_requests() {
        assert!((share(500, 10) - 0.1).abs() < 1e-9);
        assert!((share(500, 1) - 1.0).abs() < 1e-9);
        assert!((share(CHUNK_BYTES / 5, 10) - 0.2).abs() < 1e-9);
        assert!((share(2 * CHUNK_BYTES, 10) - 2.0).abs() < 1e-9);
    }
}
