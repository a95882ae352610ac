//! The limits of AWS, as data in `limits.yaml`: each with its source and the month in which it was read.

use serde::{Deserialize, Serialize};

/// One limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    /// The value.
    pub value: f64,
    /// The unit.
    pub unit: String,
    /// The month in which the limit was read in AWS's documentation; absent if it was read elsewhere.
    pub verified: Option<String>,
    /// The page that documents the limit.
    pub source: String,
    /// Further information.
    pub note: String,
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
    pollers_at_start,
    /// How many concurrent invocations the event source adds per minute.
    pollers_more_per_minute,
    /// The maximum number of concurrent invocations of an event source.
    pollers_max,
    /// The maximum of `MaximumConcurrency`.
    maximum_concurrency_max,
    /// The concurrent invocations of one poller in provisioned mode.
    provisioned_poller_holds,
    /// The maximum of `MinimumPollers`.
    provisioned_pollers_min_max,
    /// How many concurrent invocations are added per minute in provisioned mode.
    provisioned_more_per_minute,
    /// The maximum number of concurrent invocations in provisioned mode.
    provisioned_max,
    /// The concurrent invocations of all functions of the account.
    account_concurrency,
    /// The invocations per second for each concurrent invocation of the account.
    invocations_per_concurrency,
    /// The number of new instances of a function that may start at the same moment.
    instances_at_once,
    /// The number of new instances of a function per second.
    instances_per_second,
    /// The messages of a queue that are received, but not deleted.
    queue_in_flight,
    /// The write units per second of a new table or index.
    table_writes_at_start,
    /// The read units per second of a new table or index.
    table_reads_at_start,
    /// How far a table grows automatically, as a multiple of its highest load so far.
    table_grows_to,
    /// The interval in which a table grows, in seconds.
    table_grows_every,
    /// The quota of write units per second of a table or index.
    table_writes_quota,
    /// The quota of read units per second of a table or index.
    table_reads_quota,
    /// The write units per second of a partition.
    partition_writes,
    /// The read units per second of a partition.
    partition_reads,
    /// The requests to the event bus per second.
    events_per_second,
    /// The events in a request.
    events_per_request,
}

impl Limits {
    /// Parses `limits.yaml`, which is part of the program.
    ///
    /// # Errors
    /// The file cannot be parsed.
    pub fn load() -> Result<Self, String> {
        serde_saphyr::from_str(include_str!("limits.yaml")).map_err(|error| error.to_string())
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
            assert!(dated || limit.note.contains("read") || limit.note.contains("known"), "{name}");
        }
    }
}
