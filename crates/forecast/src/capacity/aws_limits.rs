//! The limits of AWS, as data in `aws_limits.yaml`: each with its source and either the month in which it was read
//! there, or the reason why it was not.

use serde::{Deserialize, Serialize};

/// One limit of AWS.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    /// The limit, in `unit`.
    pub value: f64,
    /// What `value` counts, such as invocations per second.
    pub unit: String,
    /// The month in which the limit was read in a copy of the page `source`.
    pub verified: Option<String>,
    /// Why the limit was not read there. A limit has either this reason or `verified`.
    pub unverified_because: Option<String>,
    /// The page of AWS that states the limit.
    pub source: String,
    /// A condition of the limit, or a difference between sources.
    pub note: Option<String>,
}

macro_rules! limits {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// All limits.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct Limits {
            $($(#[$doc])* pub $name: Limit,)*
        }

        impl Limits {
            /// All limits with their names.
            pub fn all(&self) -> impl Iterator<Item = (&'static str, &Limit)> {
                [$((stringify!($name), &self.$name)),*].into_iter()
            }
        }
    };
}

limits! {
    /// The initial number of concurrent invocations of a queue's event source.
    invocations_at_start,
    /// How many concurrent invocations the event source adds per minute.
    invocations_added_per_minute,
    /// The maximum number of concurrent invocations of an event source.
    invocations_max,
    /// The maximum of `MaximumConcurrency`.
    maximum_concurrency_max,
    /// The concurrent invocations of one poller in provisioned mode.
    provisioned_invocations_per_poller,
    /// The maximum of `MinimumPollers`.
    minimum_pollers_max,
    /// How many concurrent invocations are added per minute in provisioned mode.
    provisioned_invocations_added_per_minute,
    /// The maximum number of concurrent invocations in provisioned mode.
    provisioned_invocations_max,
    /// The maximum number of concurrent invocations of all functions of the account.
    account_concurrency,
    /// The maximum number of invocations per second for each concurrent invocation of the account.
    invocations_per_concurrency,
    /// The maximum number of messages of a queue that are received and not yet deleted.
    queue_in_flight,
    /// The write units per second of a new table or index.
    table_writes_at_start,
    /// The read units per second of a new table or index.
    table_reads_at_start,
    /// The quota of write units per second of a table or index.
    table_writes_quota,
    /// The quota of read units per second of a table or index.
    table_reads_quota,
    /// The maximum write units per second of a partition.
    partition_writes,
    /// The maximum read units per second of a partition.
    partition_reads,
    /// The maximum number of requests to the event bus per second.
    events_per_second,
    /// The maximum number of events in a request.
    events_per_request,
}

impl Limits {
    /// Parses `aws_limits.yaml`, which is part of the program.
    ///
    /// # Errors
    /// The file cannot be parsed.
    pub fn load() -> Result<Self, String> {
        serde_saphyr::from_str(include_str!("aws_limits.yaml")).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_has_a_source_and_either_a_date_or_a_reason_why_not() {
        let limits = Limits::load().unwrap();
        for (name, limit) in limits.all() {
            assert!(limit.value > 0.0, "{name}");
            assert!(limit.source.starts_with("https://"), "{name}");
            let dated = limit.verified.as_deref().is_some_and(|month| month.starts_with("20"));
            let has_reason =
                limit.unverified_because.as_deref().is_some_and(|reason| !reason.is_empty());
            assert!(dated != has_reason && dated == limit.verified.is_some(), "{name}");
        }
    }
}
