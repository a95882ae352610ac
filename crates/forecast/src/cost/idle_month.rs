//! What a deployment costs in a month without tasks, and from how many tasks a month on it costs less than another service.
//!
//! The counts are those of the templates; `tests/template/idle_month.rs` compares them. The times of the supervisor are
//! estimates.

use serde::Serialize;

use super::{
    ForecastReport,
    alternatives::AlternativePrice,
    prices::{MEMORY_GB, Price, Prices, TaskUsage},
};

/// The minutes of a month of 30 days.
const MINUTES: f64 = 43_200.0;

/// A poller of an empty queue waits 20 seconds for messages.
const POLLS_A_MINUTE: f64 = 3.0;

/// The pollers of an event source with a maximum concurrency. [Lambda reduces][scaling] their number only without one.
///
/// [scaling]: https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-scaling.html
pub const POLLERS: u32 = 5;

/// The pollers of an event source without a maximum concurrency, while it has little traffic.
pub const POLLERS_WITHOUT_MAXIMUM: u32 = 2;

/// The receives that deliver ticks end before their 20 seconds, so the pollers of that queue make at most this many more requests
/// a minute: 9 instead of 6 with five ticks.
const RECEIVES_OF_TICKS: f64 = 3.0;

/// The bytes in the log for each invocation of the supervisor: Lambda's two lines, and those of the runs. An estimate.
const LOG_BYTES: f64 = 650.0;

/// The price of a GB of logs.
const LOG_DOLLARS_A_GB: f64 = 0.50;

/// The queues of the deployment that functions read, without the queue of ticks. Each has a dead-letter queue; so has that of each
/// agent.
pub const QUEUES: u32 = 4;

/// The alarms, without the one of the callback function. Their number does not depend on the number of agents.
pub const ALARMS: u32 = 11;

/// What a run of the supervisor uses, without requests to count messages. An idle run takes 0.1 s, an estimate.
pub const RUN: TaskUsage = TaskUsage {
    write_units: 1.0,
    read_units: 14.0,
    sqs_requests: 1.0,
    invocations: 1.0,
    gb_seconds: 0.1 * MEMORY_GB,
    events: 0.0,
};

/// What a tick uses: it is deleted. A tick takes 0.05 s, an estimate.
pub const TICK: TaskUsage = TaskUsage {
    write_units: 0.0,
    read_units: 4.0,
    sqs_requests: 1.0,
    invocations: 1.0,
    gb_seconds: 0.05 * MEMORY_GB,
    events: 0.0,
};

/// The ticks of a minute.
pub const TICKS: u32 = 5;

/// The cost of a month without tasks.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct IdleMonth {
    /// The number of agents.
    pub agents: u32,
    /// The parts of the cost.
    pub parts: Vec<IdlePart>,
    /// Their sum in dollars.
    pub dollars: f64,
}

/// A part of the cost of a month without tasks.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct IdlePart {
    /// What it is.
    pub what: &'static str,
    /// The cost in dollars.
    pub dollars: f64,
}

impl IdleMonth {
    /// The cost of a deployment with this many agents and one secret.
    #[must_use]
    pub fn of(prices: &Prices, agents: u32) -> Self {
        let queues = f64::from(QUEUES + agents);
        let sqs_requests = |a_minute: f64| dollars(&prices.sqs_requests, a_minute * MINUTES);
        // The prices of usage are those of a million.
        let usage = |usage: &TaskUsage, a_minute: u32| {
            prices.of(usage).total * f64::from(a_minute) * MINUTES / 1e6
        };
        let pollers = queues * f64::from(POLLERS) + f64::from(POLLERS_WITHOUT_MAXIMUM);
        let invocations = f64::from(1 + TICKS) * MINUTES;
        let parts = [
            ("pollers of empty queues", sqs_requests(pollers * POLLS_A_MINUTE)),
            ("receives that deliver ticks", sqs_requests(RECEIVES_OF_TICKS)),
            ("counts of messages", sqs_requests(2.0 * queues)),
            ("runs of the supervisor", usage(&RUN, 1)),
            ("ticks of the supervisor", usage(&TICK, TICKS)),
            ("logs of the supervisor", invocations * LOG_BYTES / 1e9 * LOG_DOLLARS_A_GB),
            ("alarms", dollars(&prices.cloudwatch_alarms, f64::from(ALARMS))),
            ("the metric of the supervisor's runs", dollars(&prices.cloudwatch_metrics, 1.0)),
            ("a secret", dollars(&prices.secrets, 1.0)),
        ];
        let parts: Vec<_> =
            parts.into_iter().map(|(what, dollars)| IdlePart { what, dollars }).collect();
        let dollars = parts.iter().map(|part| part.dollars).sum();
        Self { agents, parts, dollars }
    }
}

/// The price of this many units.
fn dollars(price: &Price, units: f64) -> f64 {
    price.per_million(units) / 1e6
}

/// The cost of a month with tasks, here and on other services.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MonthlyCost {
    /// The number of tasks.
    pub tasks: u64,
    /// What a month without tasks costs here.
    pub idle: IdleMonth,
    /// What the tasks cost here, in addition.
    pub tasks_dollars: f64,
    /// Both together.
    pub dollars: f64,
    /// The cost on other services, which charge nothing without tasks.
    pub elsewhere: Vec<MonthlyAlternative>,
}

/// The cost of the same month on another service.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MonthlyAlternative {
    /// The service.
    pub service: &'static str,
    /// The cost in dollars; absent if the service cannot run the tasks.
    pub dollars: Option<f64>,
    /// The number of tasks a month from which Steward costs less; absent if it never does.
    pub break_even: Option<u64>,
}

impl MonthlyCost {
    /// The cost of this many tasks a month with this many agents, each at the average of the report.
    #[must_use]
    pub fn of(report: &ForecastReport, prices: &Prices, tasks: u64, agents: u32) -> Self {
        let idle = IdleMonth::of(prices, agents);
        let steward = report.dollars_per_million.total;
        let of_tasks = |dollars_per_million: f64| dollars_per_million * tasks as f64 / 1e6;
        let elsewhere = report.elsewhere.iter().map(|other| {
            let AlternativePrice { service, dollars_per_million, .. } = *other;
            let break_even = dollars_per_million.filter(|other| *other > steward);
            let break_even = break_even.map(|other| idle.dollars * 1e6 / (other - steward));
            MonthlyAlternative {
                service,
                dollars: dollars_per_million.map(of_tasks),
                break_even: break_even.map(|tasks| tasks.ceil() as u64),
            }
        });
        let elsewhere = elsewhere.collect();
        let tasks_dollars = of_tasks(steward);
        Self { tasks, dollars: idle.dollars + tasks_dollars, idle, tasks_dollars, elsewhere }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_month_costs_at_most_four_dollars_with_an_agent_and_six_with_eight() {
        let prices = Prices::listed().unwrap();
        let [one, eight] = [1, 8].map(|agents| IdleMonth::of(&prices, agents));
        for known in ["receives that deliver ticks", "logs of the supervisor"] {
            assert!(
                one.parts.iter().any(|part| part.what == known && part.dollars > 0.0),
                "{known}"
            );
        }
        assert!(one.dollars <= 4.0 && eight.dollars <= 6.0, "{one:?} {eight:?}");
    }
}
