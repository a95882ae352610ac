//! What AWS charges: list prices of us-east-1 in 2026, in dollars, before any free tier, and what they
//! come to.

use serde::Serialize;

/// The region that the prices are of.
pub const REGION: &str = "us-east-1";

/// When they were looked up.
pub const AS_OF: &str = "2026-11";

/// DynamoDB, on demand: a million write units. A transaction takes twice the units.
pub const DYNAMODB_WRITES: f64 = 0.625;

/// DynamoDB, on demand: a million read units.
pub const DYNAMODB_READS: f64 = 0.125;

/// SQS, standard queues: a million requests of up to 64 KB.
pub const SQS_REQUESTS: f64 = 0.40;

/// Lambda: a million invocations.
pub const LAMBDA_INVOCATIONS: f64 = 0.20;

/// Lambda on arm64: one GB for one second.
pub const LAMBDA_GB_SECOND: f64 = 0.000_013_333_4;

/// EventBridge: a million events of up to 64 KB.
pub const EVENTBRIDGE_EVENTS: f64 = 1.00;

/// Step Functions Standard: a million state transitions.
pub const STEP_FUNCTIONS_TRANSITIONS: f64 = 25.00;

/// The memory that `template.yaml` gives every function, in GB.
pub const MEMORY_GB: f64 = 0.25;

/// Bytes that SQS and EventBridge charge as one.
pub const CHUNK_BYTES: usize = 64 * 1024;

/// What tasks use of AWS, on average.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Usage {
    /// DynamoDB's write units.
    pub write_units: f64,
    /// DynamoDB's read units.
    pub read_units: f64,
    /// Requests to SQS, each of up to 64 KB: sends, and the receive and delete for each batch.
    pub sqs_requests: f64,
    /// Invocations of functions.
    pub invocations: f64,
    /// Their memory over their time.
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
    /// All of them.
    pub total: f64,
}

impl Usage {
    /// What a million tasks cost that use this much each.
    #[must_use]
    pub fn per_million(&self) -> Dollars {
        let dynamodb = self.write_units * DYNAMODB_WRITES + self.read_units * DYNAMODB_READS;
        let sqs = self.sqs_requests * SQS_REQUESTS;
        let lambda = self.invocations * LAMBDA_INVOCATIONS
            + self.gb_seconds * LAMBDA_GB_SECOND * 1_000_000.0;
        let eventbridge = self.events * EVENTBRIDGE_EVENTS;
        Dollars { dynamodb, sqs, lambda, eventbridge, total: dynamodb + sqs + lambda + eventbridge }
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.write_units += other.write_units;
        self.read_units += other.read_units;
        self.sqs_requests += other.sqs_requests;
        self.invocations += other.invocations;
        self.gb_seconds += other.gb_seconds;
        self.events += other.events;
    }

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

/// What one of `batch` messages of this size has of the requests that they share.
pub(super) fn share(bytes: usize, batch: u32) -> f64 {
    let chunks = (bytes * batch as usize).div_ceil(CHUNK_BYTES).max(1);
    chunks as f64 / f64::from(batch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_tasks_cost_what_the_design_says() {
        // A task of one step, as tests/cost.rs counts it, without the time of the functions.
        let usage = Usage {
            write_units: 9.0,
            read_units: 3.0,
            sqs_requests: 1.1,
            invocations: 0.4,
            ..Usage::default()
        };
        assert!((usage.per_million().total - 6.52).abs() < 1e-9, "{:?}", usage.per_million());
    }

    #[test]
    fn large_messages_share_fewer_requests() {
        assert!((share(500, 10) - 0.1).abs() < 1e-9);
        assert!((share(500, 1) - 1.0).abs() < 1e-9);
        assert!((share(CHUNK_BYTES / 5, 10) - 0.2).abs() < 1e-9);
        assert!((share(2 * CHUNK_BYTES, 10) - 2.0).abs() < 1e-9);
    }
}
