//! What AWS lets through, as data: `limits.yaml`, with the source of each number and when it was read.

use serde::{Deserialize, Serialize};

/// One limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    /// How much.
    pub value: f64,
    /// Of what.
    pub unit: String,
    /// The month in which it was read in AWS's documentation; absent if it was not.
    pub verified: Option<String>,
    /// The page that says so.
    pub source: String,
    /// What else is to be known.
    pub note: String,
}

macro_rules! limits {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// All of them.
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct Limits {
            $($(#[$doc])* pub $name: Limit,)*
        }

        impl Limits {
            /// By name.
            pub fn all(&self) -> impl Iterator<Item = (&'static str, &Limit)> {
                [$((stringify!($name), &self.$name)),*].into_iter()
            }
        }
    };
}

limits! {
    /// Invocations at once that a queue's event source begins with.
    pollers_at_start,
    /// How many more it adds in a minute.
    pollers_more_per_minute,
    /// How many it comes to.
    pollers_max,
    /// What `MaximumConcurrency` may be set to.
    maximum_concurrency_max,
    /// Invocations at once of one poller in provisioned mode.
    provisioned_poller_holds,
    /// What `MinimumPollers` may be set to.
    provisioned_pollers_min_max,
    /// How many more invocations at once are added in a minute, in provisioned mode.
    provisioned_more_per_minute,
    /// How many it comes to, in provisioned mode.
    provisioned_max,
    /// Invocations at once of all functions.
    account_concurrency,
    /// Invocations a second, for each of those.
    invocations_per_concurrency,
    /// New instances of a function that there may be at once.
    instances_at_once,
    /// New instances of a function in a second.
    instances_per_second,
    /// Messages of a queue in the hands of functions.
    queue_in_flight,
    /// What a new table or index takes.
    table_writes_at_start,
    /// What it gives.
    table_reads_at_start,
    /// How far it grows by itself, as a multiple of the highest load so far...
    table_grows_to,
    /// ...in so many seconds.
    table_grows_every,
    /// What a table or index may take.
    table_writes_quota,
    /// What it may give.
    table_reads_quota,
    /// What a partition takes.
    partition_writes,
    /// What it gives.
    partition_reads,
    /// Requests to the bus in a second.
    events_per_second,
    /// Events in a request.
    events_per_request,
}

impl Limits {
    /// As `limits.yaml` says them.
    ///
    /// # Errors
    /// The file, which is part of the program, is not right.
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
