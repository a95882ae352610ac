//! Limits that depend on settings: the throughput of a table, of an index whose keys are spread over partitions, and
//! pollers that are added gradually.

use super::settings::ScaleSettings;
use crate::cost::Resource;

/// The resources of the tables and the due index.
pub(super) const TABLES: [Resource; 5] = [
    Resource::TasksWrites,
    Resource::TasksReads,
    Resource::IndexWrites,
    Resource::DocumentsWrites,
    Resource::DocumentsReads,
];

/// How often the assignment of shards to partitions is drawn. The median is used.
const DRAWS: usize = 101;

/// The write or read units per second of a table or an index.
#[derive(Debug, Clone)]
pub(super) struct TableThroughput {
    pub(super) quota: f64,
    pub(super) warm: f64,
    shards: Option<IndexShards>,
}

/// The partition keys of the due index.
#[derive(Debug, Clone, Copy)]
struct IndexShards {
    count: u32,
    rehearsed: bool,
    partition: f64,
    partition_reads: f64,
    warm_reads: f64,
}

impl TableThroughput {
    pub(super) fn of(settings: &ScaleSettings, resource: Resource) -> Self {
        let (limits, deployment) = (&settings.limits, &settings.deployment);
        let writes = (
            limits.table_writes_quota.value,
            limits.table_writes_at_start.value.max(deployment.warm_writes),
        );
        let reads = (
            limits.table_reads_quota.value,
            limits.table_reads_at_start.value.max(deployment.warm_reads),
        );
        let (quota, warm) = match resource {
            Resource::TasksReads | Resource::DocumentsReads => reads,
            Resource::TasksWrites
            | Resource::IndexWrites
            | Resource::DocumentsWrites
            | Resource::Events => writes,
        };
        let shards = (resource == Resource::IndexWrites).then_some(IndexShards {
            count: deployment.shards,
            rehearsed: deployment.rehearsed,
            partition: limits.partition_writes.value,
            partition_reads: limits.partition_reads.value,
            warm_reads: reads.1,
        });
        Self { quota, warm, shards }
    }

    /// The units per second of the whole index at which its busiest partition is full. `None` for a table, whose keys are
    /// spread evenly.
    pub(super) fn partition_limit(&self) -> Option<f64> {
        let shards = self.shards?;
        let partitions =
            (self.warm / shards.partition).max(shards.warm_reads / shards.partition_reads);
        let busiest = match shards.rehearsed {
            true => 1,
            false => busiest(shards.count, partitions.ceil() as u32),
        };
        Some(shards.partition * f64::from(shards.count) / f64::from(busiest))
    }
}

/// The number of keys on the busiest partition: the median of random assignments. AWS hashes keys, so the assignment
/// cannot be known.
pub(super) fn busiest(keys: u32, partitions: u32) -> u32 {
    let partitions = partitions.max(1) as usize;
    let mut draw = fastrand::Rng::with_seed(u64::from(keys));
    let mut most: Vec<_> = (0..DRAWS)
        .map(|_| {
            let mut loads = vec![0_u32; partitions];
            for _ in 0..keys {
                if let Some(load) = loads.get_mut(draw.usize(..partitions)) {
                    *load += 1;
                }
            }
            loads.into_iter().max().unwrap_or(0)
        })
        .collect();
    most.sort_unstable();
    most.get(DRAWS / 2).copied().unwrap_or(1).max(1)
}

/// How many concurrent invocations the pollers of a queue support over time.
#[derive(Debug, Clone, Copy)]
pub(super) struct PollerScaling {
    pub(super) start: f64,
    pub(super) more_per_s: f64,
    pub(super) max: f64,
}

impl PollerScaling {
    pub(super) fn of(settings: &ScaleSettings) -> Self {
        let (limits, pollers) = (&settings.limits, settings.deployment.pollers);
        let (start, more, max) = if pollers > 0.0 {
            let start = pollers * limits.provisioned_invocations_per_poller.value;
            (
                start,
                &limits.provisioned_invocations_added_per_minute,
                &limits.provisioned_invocations_max,
            )
        } else {
            let start = limits.invocations_at_start.value;
            (start, &limits.invocations_added_per_minute, &limits.invocations_max)
        };
        Self { start, more_per_s: more.value / 60.0, max: max.value }
    }

    /// The seconds until there are pollers for this many concurrent invocations; `None` if there never are.
    pub(super) fn reach(&self, at_once: f64) -> Option<f64> {
        (at_once <= self.max).then(|| (at_once - self.start).max(0.0) / self.more_per_s)
    }

    /// The seconds until `work_s` seconds of invocations are done, with at most `at_once` concurrent invocations.
    pub(super) fn time_for(&self, work_s: f64, at_once: f64) -> f64 {
        let most = at_once.min(self.max);
        let start = self.start.min(most);
        let growing_s = (most - start) / self.more_per_s;
        let grown = (start + most) / 2.0 * growing_s;
        if work_s >= grown {
            return growing_s + (work_s - grown) / most;
        }
        // start·t + more·t²/2 = work
        let root = (start * start + 2.0 * self.more_per_s * work_s).sqrt();
        (root - start) / self.more_per_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pollers_are_added_until_there_are_enough() {
        let pollers = PollerScaling { start: 5.0, more_per_s: 5.0, max: 1_250.0 };
        assert_eq!(pollers.reach(400.0), Some(79.0));
        assert_eq!(pollers.reach(2.0), Some(0.0));
        assert_eq!(pollers.reach(1_251.0), None);
        // 5 + 5t over 10 s is 300; with 20 at most, 3 s bring 37.5, and the rest takes its time.
        assert!((pollers.time_for(300.0, 1_000.0) - 10.0).abs() < 1e-9);
        assert!((pollers.time_for(300.0, 20.0) - (3.0 + 262.5 / 20.0)).abs() < 1e-9);
        assert!((pollers.time_for(300.0, 2.0) - 150.0).abs() < 1e-9);
    }

    #[test]
    fn the_busiest_partition_has_several_keys() {
        assert_eq!(busiest(8, 1), 8);
        assert_eq!(busiest(1, 40), 1);
        // As many keys as partitions: about three are on the busiest.
        assert!((3..=5).contains(&busiest(40, 40)));
        // Many keys even out.
        assert!(busiest(6_400, 64) < 150);
    }
}
